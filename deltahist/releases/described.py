"""What an exported file says of itself: the columns with their units, and the statement, in each form's own place."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.releases.frames import columns_of
from deltahist.statement import BY_DISTANCE, VERDICT, list_rows

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.releases.base import BaseRelease

#: Key of Parquet metadata, and name of the member of GeoJSON; not that of a release's own description.
KEY = "deltahist_export"
_DATATYPES = {"i": "integer", "f": "double", "O": "string"}


def about(release: BaseRelease, names: Iterable[Hashable], nonnegative: bool) -> dict[str, Any]:
    """What a file of cells says of itself, JSON-ready: promise, statement, and its columns with their units."""
    estimator = release.estimator(nonnegative)
    known = columns_of(release.domain, estimator)
    return {
        "title": f"Estimates of points per cell, {estimator}, with standard errors",
        "estimator": estimator,
        "promise": release.mechanism.promise,
        "may_be_published": release.may_be_published,
        "columns": {name: known[name] for name in map(str, names) if name in known},
        "statement": release.statement(),
    }


def in_parquet(part: Path, said: dict[str, Any]) -> None:
    """Add what is said to a Parquet file: the whole under a key of its own, units at their columns."""
    import pyarrow.parquet as pq

    table = pq.read_table(part)
    meta = {**(table.schema.metadata or {}), KEY.encode(): json.dumps(said, ensure_ascii=False).encode()}
    schema = table.schema
    for name, column in said["columns"].items():
        place = schema.get_field_index(name)
        schema = schema.set(place, schema.field(place).with_metadata(column))
    pq.write_table(table.cast(schema).replace_schema_metadata(meta), part, compression="zstd")


def csv_metadata(name: str, frame: pd.DataFrame, said: dict[str, Any]) -> str:
    """The companion of a CSV file, as "CSV on the Web" wants it: types, units and the statement (CSVW, W3C 2015)."""
    columns = [
        {
            "name": column,
            "titles": column,
            "datatype": _DATATYPES[frame[column].dtype.kind],
            "dc:description": said["columns"][column]["description"],
            "schema:unitText": said["columns"][column]["unit"],
        }
        for column in frame
    ]
    key = [column for column in ("column", "row") if column in frame]
    content = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "url": name,
        "dc:title": said["title"],
        "dc:description": f"{said['promise']}\n\n{said['statement']}",
        "tableSchema": {"columns": columns, "primaryKey": key},
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def statement_frame(release: BaseRelease) -> pd.DataFrame:
    """The statement as a table of labels and texts, for programs that show tables."""
    import pandas as pd

    rows = [row for row in list_rows(release.mechanism, release.facts()) if row[0] not in (VERDICT, BY_DISTANCE)]
    allowed = (VERDICT, [release.may_be_published])
    promise = ("Promise", [release.mechanism.promise])
    return pd.DataFrame(
        [(label, " ".join(" ".join(lines).split())) for label, lines in (allowed, promise, *rows)],
        columns=["label", "text"],
    )
