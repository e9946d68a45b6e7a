"""Release files that were altered, and state the digest of what they hold now: what whoever writes files can do."""

import json

import pyarrow.parquet as pq

from deltahist._files import DIGEST, KEY, digest_of


def write_altered(target, table, description):
    """A Parquet file of a table with a description (text or data), under their own digest."""
    text = description if isinstance(description, str) else json.dumps(description)
    meta = {KEY: text.encode()}
    try:
        columns = {name: table.column(name).to_numpy() for name in table.schema.names}
        meta[DIGEST.encode()] = digest_of(json.loads(text), columns).encode()
    except (ValueError, TypeError, AttributeError, NotImplementedError):  # what has no digest is refused before that
        meta[DIGEST.encode()] = b"0" * 64
    pq.write_table(table.replace_schema_metadata(meta), target)


def altered_json(description):
    """The text of a file that is its description, under its own digest."""
    said = {key: value for key, value in description.items() if key != DIGEST}
    return json.dumps(said | {DIGEST: digest_of(said, {})})
