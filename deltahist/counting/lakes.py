"""Tables of Delta and Iceberg: the rows of one version, read from the Parquet files that it names.

What a version consists of (files, columns, deleted rows) is told by `delta` and `iceberg`. The files are read as those
of any folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from deltahist._files import first_line
from deltahist._objects import ask, is_address
from deltahist.counting.arrays import Reading
from deltahist.counting.parts import unchanged
from deltahist.counting.tables import Batches, Input, OpenedTable, open_parquet
from deltahist.errors import InputError

#: Where Parquet keeps the number of a column.
_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class LakeFile:
    """A file of a version, with the number of its `rows` by the table's own account.

    `constants` are values of columns that the table keeps itself, as Arrow scalars; `absent` stand for columns that the
    file does not have. `kept` is false for rows that were deleted.
    """

    source: Input
    rows: int | None
    constants: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, Any] = field(default_factory=dict)
    kept: Any = None


@dataclass(frozen=True)
class LakeTable:
    """One version of a table: its columns (Arrow's schema), and its files in order of their paths.

    `keys` says what a column is called in files: a name, or a number. Files without numbers take `numbers`, by names.
    `refused` says why a column cannot be asked for where a file does not have it.
    """

    name: str
    schema: Any
    files: tuple[LakeFile, ...]
    keys: dict[str, str | int]
    numbers: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.source.size for file in self.files)

    def check_unchanged(self) -> None:
        """Do nothing: each file is checked when its rows have been read."""


class Location(NamedTuple):
    """Where a table is: its path, its name, its files by their ways from it, and the metadata that were named."""

    path: Path
    name: str
    found: dict[str, Input]
    metadata: str | None


# --- reading ------------------------------------------------------------------------------------------------


def open_lake(lake: LakeTable, reading: Reading) -> OpenedTable:
    """Open a version as one table."""
    import pyarrow as pa

    def read(positions: list[int], geometry: bool, rows: int) -> Batches:
        fields = [lake.schema.field(i) for i in positions]
        for file in lake.files:
            with unchanged(file.source):
                yield from _read_file(file, fields, lake, reading, rows)
        if not lake.files:
            yield [pa.nulls(0, each.type) for each in fields], 0

    return OpenedTable(lake.schema.names, read)


def _read_file(file: LakeFile, fields: list[Any], lake: LakeTable, reading: Reading, rows: int) -> Batches:
    """Yield the rows of a file that were not deleted, in the columns that the table has now."""
    import pyarrow as pa

    file.source.check_unchanged()
    name = file.source.name
    table = open_parquet(file.source, reading)
    known = file.rows if file.kept is None else len(file.kept)
    if known is not None and table.rows != known:
        raise InputError(
            f"part {name!r} has {table.rows:,} rows, and other ones by the table's own account: it was replaced"
        )
    if not table.names:
        raise InputError(f"input {name!r} is empty: it has no columns")
    at = _positions(table.schema, lake, name)
    places = [None if each.name in file.constants else at.get(lake.keys[each.name]) for each in fields]
    for each, place in zip(fields, places, strict=True):
        if place is None and each.name in lake.refused and each.name not in file.absent:
            raise InputError(f"part {name!r} has no column {each.name!r}, and {lake.refused[each.name]}")
    own = list(dict.fromkeys(place for place in places if place is not None)) or [0]  # one tells the number of rows
    start = 0
    for columns, malformed in table.read(own, False, rows):
        count = len(columns[0])
        kept = None if file.kept is None else file.kept.slice(start, count)
        start += count
        batch = []
        for each, place in zip(fields, places, strict=True):
            if place is None:
                value = file.constants.get(each.name, file.absent.get(each.name, pa.scalar(None, each.type)))
                column = pa.repeat(value, count)
            else:
                column = _as_now(columns[own.index(place)], each, name)
            batch.append(column if kept is None else column.filter(kept))
        yield batch, malformed


def _positions(schema: Any, lake: LakeTable, name: str) -> dict[str | int, int]:
    """Return where a file has its columns, by the keys of the table."""
    by_number = any(isinstance(key, int) for key in lake.keys.values())
    found: dict[str | int, int] = {}
    plain = not any(_ID in (each.metadata or {}) for each in schema)
    if by_number and plain and not lake.numbers:
        raise InputError(f"part {name!r} has no numbers of columns, by which its table knows them: write the file anew")
    for i, each in enumerate(schema):
        key: str | int | None = each.name
        if by_number:
            own = (each.metadata or {}).get(_ID)
            key = lake.numbers.get(each.name) if plain else None if own is None else int(own)
        if key is None:
            continue
        if key in found:
            raise InputError(f"part {name!r} has column {each.name!r} twice: write the file anew")
        found[key] = i
    if not by_number:
        lower = {each.name.lower(): each.name for each in schema}
        for key in lake.keys.values():
            if key not in found and str(key).lower() in lower:
                raise InputError(
                    f"part {name!r} has a column {lower[str(key).lower()]!r}, and the table one {key!r}: whether they "
                    "are the same is not known; write the file anew"
                )
    return found


def _as_now(column: Any, field: Any, name: str) -> Any:
    """Return a column of a file in the type that the table has now."""
    import pyarrow as pa

    if column.type == field.type:
        return column
    if not _widens(column.type, field.type):
        raise InputError(
            f"part {name!r} has column {field.name!r} as {column.type}, which the table has as {field.type}: write the "
            "file anew"
        )
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        raise InputError(
            f"part {name!r} has values in column {field.name!r}, of type {column.type}, that {field.type}, its type in "
            "the table, does not hold: write the file anew"
        ) from None


def _widens(kind: Any, into: Any) -> bool:
    """Return whether a type of a file may stand for one of a table."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(into):
        # Whole numbers that a float does not hold are an error of the cast; digits that it does not hold are not.
        return types.is_signed_integer(kind) or (types.is_floating(kind) and kind.bit_width <= into.bit_width)
    if types.is_timestamp(into):
        # Old files keep times in 96 bits, which have no zone, and mean UTC.
        return types.is_date(kind) or (types.is_timestamp(kind) and kind.tz in (None, into.tz, "UTC", "+00:00"))
    families: list[tuple[Callable[[Any], bool], ...]] = [
        (types.is_integer,),
        (types.is_decimal,),
        (types.is_string, types.is_large_string, types.is_string_view),
        (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
    ]
    if types.is_decimal(into) and types.is_integer(kind):
        return True
    return any(any(is_of(kind) for is_of in family) and any(is_of(into) for is_of in family) for family in families)


# --- what tables say of themselves ----------------------------------------------------------------------------


def missing(package: str, kind: str, name: str) -> InputError:
    """Return the error for a kind of tables whose package is not installed."""
    return InputError(
        f"input {name!r} is a table of {kind}, and {package}, which knows its versions, is not installed: "
        "pip install 'deltahist[lake]'"
    )


def told(place: Location, kind: str, request: Callable[[], Any]) -> Any:
    """Return what a library tells of a table; of a table in object storage no error of it is passed on."""
    if is_address(place.path):
        return ask(f"input {place.name!r}", request)
    try:
        return request()
    except InputError:
        raise
    except Exception as problem:
        why = first_line(problem)
    raise InputError(f"input {place.name!r} is a table of {kind} that cannot be read: {why}")


def take(place: Location, way: str, size: int, version: str) -> Input:
    """Return a file of a version."""
    source = place.found.get(way)
    if source is None:
        raise InputError(
            f"part {f'{place.name}/{way}'!r} is missing, though {version} of the table has it: was it vacuumed, or "
            "moved? take a version whose files are there"
        )
    if source.size != size:
        raise InputError(
            f"part {source.name!r} has {source.size:,} bytes, and {size:,} by {version} of the table: it was replaced, "
            "or cut short"
        )
    return source
