"""Reading points in batches: whatever the table is, coordinates as floats, users and times as they are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counts import layers, tables
from deltahist.counts.arrays import CHUNK
from deltahist.counts.columns import from_wkb, numbers
from deltahist.counts.conditions import Condition
from deltahist.counts.inputs import find_input, readable
from deltahist.counts.private import Unshown
from deltahist.counts.tables import OpenedTable, TableRequest
from deltahist.errors import InputError

_OPENERS = {
    "csv": tables.open_text,
    "jsonl": tables.open_json_lines,
    "parquet": tables.open_parquet,
    "excel": tables.open_excel,
    "geo": layers.open_layer,
}
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
        """Rows that were read, chosen or not."""
        return (len(self.columns[0]) if self.chosen is None else len(self.chosen)) + self.malformed

    def row(self, number: int) -> int:
        """Place among the rows read, from 0, of one of these rows."""
        return number if self.chosen is None else int(np.flatnonzero(self.chosen)[number])

    def first_bad(self, good: NDArray[np.bool_]) -> int:
        """Place among the rows read of the first that cannot be used; malformed ones are taken to come last."""
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
    table = _OPENERS[source.format](source, request)
    by_geometry = not request.coordinates and table.geometry is not None
    if not by_geometry and len(request.coordinates) != request.axes:
        need = "x and y" if request.axes == 2 else "x only"
        raise InputError(f"input {source.name!r} needs columns for its coordinates: name {need} (x=, y=)")
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
    """The rows that a condition chooses, their columns, and the places of rows that could not be asked."""
    import pyarrow as pa

    chosen, good = condition.choose(asked, decimal, some=some)
    chosen &= good
    if not chosen.all():
        mask = pa.array(chosen)
        columns = [column.filter(mask) for column in columns]
    return chosen, columns, np.flatnonzero(~good)


def _position(column: str, table: OpenedTable, name: str) -> int:
    """Where a column stands that is given by its name, or by its number from 0."""
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
    """Raise InputError if a condition asks for what a point may change by moving, or for what is never there."""
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
