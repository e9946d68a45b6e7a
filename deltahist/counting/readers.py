"""Points in batches: a table is found and opened, and its coordinates become floats."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.arrays import CHUNK
from deltahist.counting.conditions import Condition
from deltahist.counting.inputs import HEAD, Input, readable
from deltahist.counting.private import Unshown
from deltahist.counting.tables import FORMATS, OpenedTable, TableRequest, from_wkb, numbers
from deltahist.errors import InputError, one_of

#: The path that stands for standard input.
STDIN = Path("-")
#: Names by which a column that is not read is a coordinate all the same.
_PLACES = frozenset({
    "x", "y", "lon", "lng", "long", "longitude", "lat", "latitude", "easting", "northing",
    "geom", "geometry", "wkt", "wkb", "wkb_geometry", "geohash",
})  # fmt: skip


@dataclass(frozen=True, repr=False)
class Batch(Unshown):
    """Some rows: a float column per axis (NaN where unusable), user ids and times (Arrow arrays) or None.

    `malformed` counts rows beside these that have no columns at all: lines with too few or too many fields. With a
    condition `chosen` says which of the rows read these are, and `unread` are places of others that could not be asked.
    """

    columns: list[NDArray[np.float64]]
    users: Any
    malformed: int = 0
    times: Any = None
    chosen: NDArray[np.bool_] | None = None
    unread: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def read(self) -> int:
        """Number of rows that were read, chosen or not."""
        return (len(self.columns[0]) if self.chosen is None else len(self.chosen)) + self.malformed

    def row(self, number: int) -> int:
        """Return the place, from 0, of one of these rows among the rows read."""
        return number if self.chosen is None else int(np.flatnonzero(self.chosen)[number])

    def first_bad(self, good: NDArray[np.bool_]) -> int:
        """Return the place of the first unusable row among the rows read; malformed ones are taken to come last."""
        places = [] if good.all() else [self.row(int(np.argmin(good)))]
        return min([*places, *self.unread[:1].tolist()], default=self.read - self.malformed)


@dataclass(frozen=True)
class Source:
    """A table opened for reading: its name, its batches, its CRS if it states one, its number of rows if known."""

    name: str
    batches: Iterator[Batch]
    crs: Any = None
    rows: int | None = None


def open_source(
    path: Path, request: TableRequest, condition: Condition | None = None, format: str | None = None
) -> Source:
    """Open a table by its ending or format.

    Raises InputError if it is missing, empty, of an unknown kind, unreadable, lacks a column, or the condition asks for
    coordinates.
    """
    source = find_input(path, format)
    table = FORMATS[source.format].open(source, request)
    by_geometry = not request.coordinates and table.geometry is not None
    if not by_geometry and len(request.coordinates) != request.axes:
        need = "x and y" if request.axes == 2 else "x only"
        raise InputError(f"input {source.name!r} needs columns for its coordinates: name {need}, as x= and y=")
    places = {c: _position(c, table, source.name) for c in request.columns}
    if condition is not None:
        _check_condition(condition, places, table, request)
    positions = list(dict.fromkeys(places.values()))
    place_of = {c: positions.index(places[c]) for c in places}

    def batches() -> Iterator[Batch]:
        some = True
        with readable(source.name):
            for columns, malformed in table.read(positions, by_geometry, CHUNK):
                chosen = None
                unread = np.zeros(0, dtype=np.int64)
                if condition is not None:
                    asked = {c: columns[place_of[c]] for c in condition.kinds}
                    chosen, columns, unread = _choose(condition, asked, columns, request.decimal, some)
                if by_geometry:
                    found = from_wkb(columns[-1], request.axes, source.name)
                else:
                    read = [(c, columns[place_of[c]]) for c in request.coordinates]
                    found = [numbers(v, c, some=some, decimal=request.decimal) for c, v in read]
                some = some and not len(found[0])
                users, times = (
                    None if c is None else columns[place_of[c]] for c in (request.user, request.time)
                )
                yield Batch(found, users, malformed, times, chosen, unread)

    return Source(source.name, _ahead(batches()), table.crs if by_geometry else None, table.rows)


def _ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches, while a thread reads the next one."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _choose(
    condition: Condition, asked: dict[str, Any], columns: list[Any], decimal: str, some: bool
) -> tuple[NDArray[np.bool_], list[Any], NDArray[np.int64]]:
    """Return the rows that a condition chooses, their columns, and the places of rows that it cannot read."""
    import pyarrow as pa

    chosen, good = condition.choose(asked, decimal, some=some)
    chosen &= good
    if not chosen.all():
        mask = pa.array(chosen)
        columns = [column.filter(mask) for column in columns]
    return chosen, columns, np.flatnonzero(~good)


def _position(column: str, table: OpenedTable, name: str) -> int:
    """Return the position of a column that is given by its name, or by its number from 0."""
    names = table.names
    if table.header and names.count(column) == 1:
        return names.index(column)
    if column.isdigit():
        if int(column) < len(names):
            return int(column)
        raise InputError(f"column {column} is not in {name!r}: it has columns 0 to {len(names) - 1}")
    if names.count(column) > 1:
        raise InputError(
            f"column {column!r} is {names.count(column)} times in {name!r}: rename the others, or give its "
            "number, from 0"
        )
    if column not in names:
        listed = ", ".join(n[:40] for n in names[:20]) + (", ..." if len(names) > 20 else "")
        if "\ufffd" in listed:
            listed += " (is the file in UTF-8? convert it, or give the column's number, from 0)"
        raise InputError(f"column {column!r} is not in {name!r}: its columns are {listed}")
    return names.index(column)


def refuse_place(said: str, column: str, is_place: bool) -> None:
    """Raise InputError if a condition asks for a column of coordinates, or one that is called like one."""
    if is_place or column.lower() in _PLACES:
        raise InputError(
            f"{said}: column {column!r} says where a point is, so that a point could vanish by moving, which "
            "nothing protects; choose places by the bounds of the domain"
        )


def _check_condition(condition: Condition, places: dict[str, int], table: OpenedTable, request: TableRequest) -> None:
    """Raise InputError if a condition asks for a value that changes as a point moves, or that is never there."""
    coordinates = {places[c] for c in request.coordinates} | {table.geometry}
    for column in condition.kinds:
        said = f"where is {condition.text!r}"
        refuse_place(said, column, places[column] in coordinates)
        if request.time is not None and places[column] == places[request.time]:
            raise InputError(
                f"{said}: column {column!r} holds the times, and which of them count is said by the first and the last "
                "step; leave it out"
            )
    for value in condition.texts:
        if value in table.missing:
            raise InputError(
                f"where is {condition.text!r}: {value!r} stands for a missing value in a file of text; write: is null"
            )


# --- finding a table ----------------------------------------------------------------------------------------


def find_input(path: Path, format: str | None = None) -> Input:
    """Return the table that a path names; its ending tells the format unless it is given.

    Raises InputError if it is missing, empty, of an unknown kind, or an archive of no or several tables.
    """
    if format is not None:
        one_of(tuple(FORMATS), format=format)
    if path == STDIN:
        return _standard_input(format)
    if not path.is_file():
        why = "is a folder: it must be a file" if path.is_dir() else "does not exist"
        raise InputError(f"input {str(path)!r} {why}")
    if path.stat().st_size == 0:
        raise InputError(f"input {str(path)!r} is empty: it has no rows")
    if path.suffix.lower() == ".zip":
        member = _member(path, format)
        return Input(path, member, format or _format(member) or "")
    found = format or _format(path.name)
    if found is None:
        packed, plain = (
            ", ".join(e for kind in FORMATS.values() if kind.streamed == streamed for e in kind.endings)
            for streamed in (True, False)
        )
        raise InputError(
            f"input {str(path)!r} has the ending {path.suffix.lower()!r}: it must be {packed} (also .gz), {plain}, or "
            "a .zip of one of them; or give its format, such as format='csv'"
        )
    return Input(path, None, found)


def _format(name: str) -> str | None:
    endings = [ending.lower() for ending in PurePosixPath(name).suffixes]
    gzipped = endings[-1:] == [".gz"]
    last = "".join(endings[-2:-1] if gzipped else endings[-1:])
    found = next((name for name, kind in FORMATS.items() if last in kind.endings), None)
    return None if gzipped and not (found and FORMATS[found].streamed) else found


def _member(path: Path, format: str | None) -> str:
    """Return the name of the one table in an archive, beside a licence or the parts of a shapefile."""
    with readable(path.name), zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and not _hidden(m.filename)]
    tables = [m for m in members if _format(m.filename) is not None] or (members if format else [])
    if len(tables) != 1:
        listed = ", ".join(m.filename[:60] for m in (tables or members)[:20]) or "nothing"
        what = f"{len(tables):,} tables" if tables else "no table"
        raise InputError(
            f"input {path.name!r} is an archive with {what}: it holds {listed}; unpack it, and give one table"
        )
    if tables[0].flag_bits & 1:
        raise InputError(
            f"input {path.name!r} is an archive with a password: unpack it, and give the table in it"
        )
    if tables[0].file_size == 0:
        raise InputError(f"input {path.name!r} is empty: {tables[0].filename!r} in it has no rows")
    return tables[0].filename


def _hidden(name: str) -> bool:
    """Return whether an operating system left this member there."""
    parts = PurePosixPath(name).parts
    return parts[0] == "__MACOSX" or parts[-1].startswith(".")


# --- standard input ---------------------------------------------------------------------------------------


def _standard_input(format: str | None) -> Input:
    if sys.stdin.isatty():
        raise InputError(
            "input is '-', standard input, but that is a terminal: lead a table into it, or name a file"
        )
    stream = io.BufferedReader(_FullReads(sys.stdin.buffer), HEAD)
    guess = Input(STDIN, None, format or "csv", stream)
    with readable(guess.name):
        head = guess.head()
    if not head:
        raise InputError("input '-', standard input, is empty: it has no rows")
    found = format or _guess(head)
    streamed = [name for name, kind in FORMATS.items() if kind.streamed]
    if found not in (*streamed, "parquet"):
        raise InputError(
            f"input '-', standard input, holds a table of format {found!r}: it must be "
            f"{', '.join(streamed)} or parquet; save it to a file, and give its name"
        )
    return Input(STDIN, None, found, stream)


def _guess(head: bytes) -> str:
    """Return the format of a table by its first bytes; text unless they say something else."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK"):
        return "zip"
    if head.startswith(b"SQLite format"):
        return "geo"
    if not head.lstrip().startswith(b"{"):
        return "csv"
    try:
        first = json.loads(head.lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return "geo"
    return "geo" if str(first.get("type", "")).startswith("Feature") else "jsonl"


class _FullReads(io.RawIOBase):
    """A stream whose reads are as long as they can be, so that one look shows the whole head; it is left open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
