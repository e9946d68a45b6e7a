"""Random changes of files: of their bytes, and below what packs, compresses or checks them."""

import contextlib
import gzip
import io
import json
import random
import re
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
from altered import write_altered

from deltahist._files import KEY

#: Words and numbers that readers stumble over.
NASTY = (
    b"NaN", b"-inf", b"1e999", b"-1", b"0", b"99999999999999999999", b"1" * 400, b"9" * 5000, b"null", b"true",
    b'"', b"'", b"\\", b"\0", b"\n", b"\r", b",", b";", b"[" * 2000, b'{"a":' * 300, b"]", b"}", b"\xff\xfe",
    b"\xf0\x9f", b"\xef\xbb\xbf", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0" * 64, b"=1+1",
    b"../../etc/passwd", b"/vsicurl/http://127.0.0.1:1/", b"http://127.0.0.1:1/a", b"<OGRVRTDataSource>",
    b"CREATE VIEW", b"EPSG:4326", b"A" * 3000, b"\x1f\x8b\x08", b"PK\x03\x04", b"PAR1", "é\u0301\u202e".encode(),
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def change(content: bytes, chance: random.Random) -> bytes:
    """A file with one to three changes, below its packing every other time."""
    for way in (_in_zip, _in_gzip, _in_parquet):
        if chance.random() < 0.5 and (found := way(content, chance)) is not None:
            return found
    for _ in range(chance.choice((1, 1, 2, 3))):
        content = chance.choice(_WAYS)(content, chance)
    return content


def _flip(content, chance):
    changed = bytearray(content or b"\0")
    for _ in range(chance.choice((1, 2, 8, 40))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _truncate(content, chance):
    return content[: chance.randrange(len(content) + 1)]


def _splice(content, chance):
    start, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    end = min(end, start + chance.choice((4, 64, 4096)))
    place = chance.randrange(len(content) + 1)
    piece = content[start:end] * chance.choice((0, 1, 2, 50))
    return content[:place] + piece + content[place + chance.choice((0, len(piece))) :]


def _put_nasty(content, chance):
    place = chance.randrange(len(content) + 1)
    word = chance.choice(NASTY)
    return content[:place] + word + content[place + chance.choice((0, len(word))) :]


def _replace_number(content, chance):
    found = list(_NUMBER.finditer(content))
    if not found:
        return _flip(content, chance)
    one = chance.choice(found)
    return content[: one.start()] + chance.choice(NASTY) + content[one.end() :]


_WAYS = (_flip, _truncate, _splice, _put_nasty, _put_nasty, _replace_number)


def _in_zip(content, chance):
    """A change of one member of an archive."""
    if not content.startswith(b"PK"):
        return None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    one = chance.choice(list(members))
    members[one] = change(members[one], chance)
    with zipfile.ZipFile(made := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


def _in_gzip(content, chance):
    return (
        gzip.compress(change(gzip.decompress(content), chance), mtime=0)
        if content[:2] == b"\x1f\x8b"
        else None
    )


def _in_parquet(content, chance):
    """A change of what the metadata say, of a column's type, or of how many rows there are."""
    if not content.startswith(b"PAR1"):
        return None
    table = pq.read_table(pa.BufferReader(content))
    meta = dict(table.schema.metadata or {})
    if meta and chance.random() < 0.7:
        key = chance.choice(list(meta))
        try:
            meta[key] = json.dumps(_changed_json(json.loads(meta[key]), chance)).encode()
        except (ValueError, RecursionError):
            meta[key] = change(meta[key], chance)
        if chance.random() < 0.3:
            meta[key] = chance.choice(_WAYS)(meta[key], chance)
        table = table.replace_schema_metadata(meta)
        if KEY in meta:
            with contextlib.suppress(RecursionError):  # too deep for a digest
                write_altered(made := io.BytesIO(), table, meta[KEY].decode(errors="replace"))
                return made.getvalue()
    elif chance.random() < 0.5 and table.num_columns:
        place = chance.randrange(table.num_columns)
        values = table.column(place).to_pylist()
        values = chance.choice((
            lambda: pa.array([str(v) for v in values]), lambda: pa.array([None] * len(values), pa.float64()),
            lambda: pa.array([[v] for v in values]), lambda: pa.array([-(2**63)] * len(values)),
            lambda: pa.array(["A" * 100_000] * len(values)).dictionary_encode(),
        ))()  # fmt: skip
        table = table.set_column(place, table.schema.names[place], values)
    else:
        table = table.slice(0, chance.randrange(table.num_rows + 1)) if chance.random() < 0.5 else pa.concat_tables(
            [table] * chance.choice((2, 20))
        )  # fmt: skip
    if KEY in meta:
        with contextlib.suppress(RecursionError):  # too deep for a digest
            write_altered(made := io.BytesIO(), table, meta[KEY].decode())
            return made.getvalue()
    pq.write_table(table, made := io.BytesIO())
    return made.getvalue()


def _changed_json(said, chance):
    """What JSON says with one value exchanged, left out or doubled."""
    where = [(said, None)]
    for holder, _ in where:
        parts = (
            holder.items()
            if isinstance(holder, dict)
            else enumerate(holder)
            if isinstance(holder, list)
            else ()
        )
        where += [(part, (holder, key)) for key, part in parts]
    _, place = chance.choice(where)
    new = chance.choice((
        None, True, -1, 0, 1, 2**31, 2**63, 10**30, -0.5, 1e308, float("nan"), float("inf"), "", "1/0",
        "9" * 5000, "1e999999", "\ud800", [], {}, [[]], [0], {"a": 1}, "identity", [1] * 5000, said,
    ))  # fmt: skip
    if place is None:
        return new
    holder, key = place
    if chance.random() < 0.15:
        del holder[key]
    else:
        holder[key] = json.loads(json.dumps(new))
    return said
