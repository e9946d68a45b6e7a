"""Read rows from any source, find the cell of each row, limit the rows per user, and count them. Counts are private.

Counts record how they were made, and the statement of a release repeats that record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import ArrayLike, NDArray

from deltahist.counting import sql
from deltahist.counting.sources import ROWS, is_server, is_stream, open_input
from deltahist.counting.sql import Reading
from deltahist.errors import InputError, OutsideBounds
from deltahist.noise.exact import open_words
from deltahist.preprocessing import Clock, Preprocessing, normalize_name
from deltahist.space.crs import Operation, read_crs
from deltahist.space.domain import Domain, check_memory_for

if TYPE_CHECKING:
    import pandas as pd

Integers = NDArray[np.int64]
#: Minimum number of entries to collect before merging them.
_WAITING = 1 << 21


@dataclass(frozen=True, eq=False, repr=False)
class Unshown:
    """Private data with a record of how they were made. `repr` hides the numbers, because people share notebooks."""

    array: NDArray[Any]
    domain: Domain
    preprocessing: Preprocessing
    #: Refuse NumPy arithmetic, whose results would lack a record of how they were made.
    __array_ufunc__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private: not shown)"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.array)


class Counts(Unshown):
    """Private numbers of points in the cells, int64 of shape domain.shape, with a record of how they were made."""

    def sum(self) -> int:
        """Return the number of points."""
        return int(self.array.sum())


class Points(Unshown):
    """Private points on a line, float64 of shape (m,), rounded to the lattice, with a record of how they were made."""


class Tally:
    """Number of rows at each place from 0 to size - 1, stored as an array, or sparsely if there are many places."""

    def __init__(self, size: int) -> None:
        self._all = np.zeros(size, dtype=np.int64) if size <= 1 << 22 else None
        self._parts = [(np.zeros(0, dtype=np.int64),) * 2]
        self._limit = _WAITING

    def add_rows(self, places: Integers, numbers: Integers | int = 1) -> None:
        """Add rows at `places`, which may repeat. `numbers` has one number per place, or is one number for all."""
        if self._all is not None:
            np.add.at(self._all, places, numbers)
            return
        self._parts.append(np.unique(places, return_counts=True) if isinstance(numbers, int) else (places, numbers))
        if sum(len(part[0]) for part in self._parts) > self._limit:
            # Doubling the limit keeps the total time for merging linear in the number of rows.
            self._limit = 2 * len(self.list_full()[0]) + _WAITING

    def list_full(self) -> tuple[Integers, Integers]:
        """Return the non-empty places in ascending order, and the number of rows at each, both of shape (m,)."""
        if self._all is not None:
            places = np.flatnonzero(self._all)
            return places, self._all[places]
        self._parts = [merge_pairs(*(np.concatenate(each) for each in zip(*self._parts, strict=True)))]
        return self._parts[0]


def merge_pairs(places: Integers, numbers: Integers) -> tuple[Integers, Integers]:
    """Sum the numbers of rows at each distinct place. Return the non-empty places in ascending order, and the sums."""
    places, inverse = np.unique(places, return_inverse=True)
    sums = np.zeros(len(places), dtype=np.int64)
    np.add.at(sums, inverse, numbers)
    return places[sums > 0], sums[sums > 0]


class UserBound:
    """Keep at most `most` points of each user: those with the smallest random numbers.

    The random numbers depend only on the system's entropy. Moving a point therefore does not change which rows are
    kept, and K points of a user cost K times as much as one (see docs/privacy/histogram.md). Add all rows before you
    drop any that lie outside the domain. If two rows have equal random numbers, the first is kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._draw = open_words(None)
        #: Batches of candidate rows, each with users, random numbers and places.
        self._parts: list[tuple[NDArray[Any], ...]] = []
        self._limit = _WAITING

    def add_rows(self, users: NDArray[Any], places: Integers) -> None:
        """Add a batch of rows, given their users (as whole numbers) and places."""
        self._parts.append((users, self._draw(len(users)), places))
        if sum(len(part[0]) for part in self._parts) > self._limit:
            self._remove_surplus()
            self._limit = 2 * len(self._parts[0][0]) + _WAITING

    def list_kept(self) -> tuple[int, Integers]:
        """Return the number of users, and the places of the kept rows."""
        if not self._parts:
            return 0, np.zeros(0, dtype=np.int64)
        self._remove_surplus()
        users, _, places = self._parts[0]
        return len(np.unique(users)), places

    def _remove_surplus(self) -> None:
        users, drawn, places = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((drawn, users))
        ranked = users[order]
        stay = order[np.arange(len(order)) - np.searchsorted(ranked, ranked) < self.most]
        stay.sort()  # preserve the order of rows
        self._parts = [(users[stay], drawn[stay], places[stay])]


@dataclass(frozen=True, eq=False, repr=False)
class Counted:
    """Counts by step and cell, and statistics about the rows read. Only `preprocessing` is public.

    rows : number of rows read. bad_rows : number of unusable rows, which are left out.
    unmatched : number of rows that do not match `where`.
    outside : number of points outside the domain. zeros : number of those points that were originally at 0,0.
    users : number of users, if known. before, after : number of rows before the first step, and after the last.
    keys, numbers : (m,) key of each non-empty cell (step · cells + cell), ascending, and the number of points in it.
    domain, preprocessing : the cells, and a record of how rows became counts.
    """

    rows: int
    bad_rows: int
    unmatched: int
    outside: int
    zeros: int
    users: int | None
    before: int
    after: int
    keys: Integers
    numbers: Integers
    domain: Domain
    preprocessing: Preprocessing

    @property
    def kept(self) -> int:
        """Number of points counted."""
        return int(self.numbers.sum())

    @property
    def counts(self) -> Counts:
        """The counts of the first (or only) step."""
        return self.counts_of(0)

    @property
    def points(self) -> Points:
        """The points on a line that `points_file` read, computed from their lattice steps."""
        line = self.domain.low[0] + np.repeat(self.keys, self.numbers) * self.domain.step[0]
        return Points(np.asarray(line, dtype=np.float64), self.domain, self.preprocessing)

    def counts_of(self, step: int) -> Counts:
        """Return the counts of one step."""
        size = self.domain.size
        first, last = np.searchsorted(self.keys, (step * size, (step + 1) * size))
        array = np.zeros(size, dtype=np.int64)
        array[self.keys[first:last] - step * size] = self.numbers[first:last]
        return Counts(array.reshape(self.domain.shape), self.domain, self.preprocessing)


#: A batch of rows: columns of coordinates (NaN where missing), hashed users with a mask of known users, steps with a
#: mask of known steps, and a mask of the rows that match the condition. Only the coordinates are required.
Batch = tuple[list[NDArray[np.float64]], Any, Any, NDArray[np.bool_] | None]


class RowCounter:
    """Counts the rows at each place, up to a limit per user. If `fine`, each lattice step of a line is a cell."""

    def __init__(self, domain: Domain, reading: Reading, *, fine: bool = False, steps: int = 0) -> None:
        self.domain, self.reading, self.fine, self.steps = domain, reading, fine, steps
        if not fine:
            check_memory_for(domain)
        #: Places at or above this number are outside the domain.
        self.edge = max(steps, 1) * (domain.lattice_shape[0] if fine else domain.size)
        self.kept = Tally(2 * self.edge)
        #: Entry k counts the rows without a point that have the place -k.
        self.unplaced = np.zeros(5, dtype=np.int64)
        self.placed = self.outside = self.zeros = 0
        self.users: int | None = None

    def read_batches(self, batches: Iterator[Batch], operation: Operation | None) -> None:
        """Project and count rows, keeping at most `max_per_user` rows of each user in each step."""
        most = self.reading.max_per_user
        bound = None if most is None else UserBound(most)
        for raw, users, steps, chosen in batches:
            columns = raw if operation is None else operation(*raw)
            named = None if users is None else users[1]
            places = sql.locate_rows(columns, self.domain, chosen, named, steps, self.steps, self.fine)
            self.add_figures(places)
            if (out := places >= self.edge).any() and len(raw) == 2:
                self.zeros += int((out & (raw[0] == 0) & (raw[1] == 0)).sum())
            usable = places >= 0
            if bound is None:
                self.kept.add_rows(places if usable.all() else places[usable])
                continue
            names = users[0]
            if steps is not None:  # give each user a different hash in each step, so that the limit is per step
                names = names ^ (steps[0].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(names.dtype)
            bound.add_rows(names[usable], places[usable])
        if bound is not None:
            users_of_all, kept = bound.list_kept()
            self.users = None if self.steps else users_of_all
            self.kept.add_rows(kept)

    def add_figures(self, places: Integers, numbers: Integers | int = 1) -> None:
        """Update the totals of rows without a point, with a point, and with a point outside the domain."""
        numbers = np.broadcast_to(numbers, places.shape)
        self.placed += int(numbers[places >= 0].sum())
        self.outside += int(numbers[places >= self.edge].sum())
        np.add.at(self.unplaced, -places[places < 0], numbers[places < 0])

    def make_counts(self, rows_of: str, operation: Operation | None, malformed: int = 0) -> Counted:
        """Return the counts. Refuse bad rows (`malformed` more were unread), empty tables and many points outside."""
        reading = self.reading
        bad = int(self.unplaced[-sql.BAD]) + malformed
        rows = int(self.placed + self.unplaced.sum()) + malformed
        if reading.outside is None:
            refuse_outside(self.outside, self.placed, self.zeros, self.domain)
        what = "coordinates" + " or time" * bool(self.steps) + " or value in where" * (reading.where is not None)
        what += " or user (floats must be whole, up to 2^53)" * (reading.user is not None)
        if not reading.drop_bad_rows or bad == rows:
            refuse_bad_rows(bad, rows, rows_of, what, empty=rows_of == "points" or reading.outside is not None)
        keys, numbers = self.kept.list_full()
        inner = np.searchsorted(keys, self.edge)
        if reading.outside == "drop":
            keys, numbers = keys[:inner], numbers[:inner]
        elif inner < len(keys):
            keys, numbers = merge_pairs(np.where(keys < self.edge, keys, keys - self.edge), numbers)
        unmatched, before, after = (int(self.unplaced[-place]) for place in (sql.UNMATCHED, sql.BEFORE, sql.AFTER))
        figures = rows, bad, unmatched, self.outside, self.zeros, self.users, before, after
        return Counted(*figures, keys, numbers, self.domain, reading.preprocessing(operation))


def refuse_bad_rows(bad: int, rows: int, rows_of: str, what: str, *, empty: bool = True) -> None:
    """Raise InputError if there are bad rows, or if there are no rows and `empty` is False."""
    if bad or not (rows or empty):
        cure = "correct them, or leave them out (drop_bad_rows)" if bad < rows else "are these the right columns?"
        cure = cure if rows else "if the table is meant to be empty, set outside to clamp or drop"
        raise InputError(f"{bad:,} of {rows:,} {rows_of} have missing, unreadable, NaN or infinite {what}: {cure}")


def refuse_outside(outside: int, points: int, zeros: int, domain: Domain) -> None:
    """Raise OutsideBounds if more than 1% of the points lie outside the bounds."""
    if outside > points / 100:
        bounds = ",".join(f"{b:.10g}" for b in domain.bounds) + (f" of {domain.crs}" if domain.crs else "")
        missing = f" ({zeros:,} at 0,0, which often means missing)" if zeros else ""
        raise OutsideBounds(
            f"{outside:,} of {points:,} points ({outside / points:.0%}) lie outside the bounds {bounds}{missing}: "
            "check the CRS, and the order of x and y and of the bounds (W,S,E,N), or set outside to clamp (to count "
            "such points at the edge) or drop (if the boundary is a source)"
        )


def count(
    points: ArrayLike | Any,
    domain: Domain,
    *,
    x: str | None = None,
    y: str | None = None,
    z: str | None = None,
    crs: str | None = None,
    outside: str | None = None,
    user: ArrayLike | None = None,
    max_per_user: int | None = None,
    drop_bad_rows: bool = False,
) -> Counts:
    """Count the points in each cell.

    Parameters
    ----------
    points : coordinates as an (m, domain.ndim) array (or (m,) in 1-D), a pandas, polars or Arrow table, or a GeoSeries
        or GeoDataFrame. They are projected if their CRS is not the domain's. Masked values and NA count as missing.
        Private.
    x, y, z : names of a table's coordinate columns. They may be None if the table has no other columns.
    crs : CRS of an array or a table. None means the domain's CRS.
    outside : "clamp" counts a point outside the domain in the nearest cell, which never lengthens a move. "drop" leaves
        it out, which is valid only if the boundary is a source. None clamps points too, but raises OutsideBounds if
        more than 1% of the points are outside, because the coordinates or the bounds are probably wrong.
    user, max_per_user : each point's user, or the name of that column, and the number of points to keep per user.
        The choice is random, and does not depend on the place. Set both or neither. Users are text or whole numbers,
        compared in the form that `normalize_name` returns. Text such as "" and "None" counts as missing.
    drop_bad_rows : True leaves out points with unusable coordinates or no user. Releases state this.

    The result records the unit of privacy and which kinds of rows were left out. `publish` reads this record.

    Raises InputError on missing or infinite coordinates, missing users, or a CRS that contradicts the domain's. Raises
    OutsideBounds if many points lie outside and `outside` is None.

    >>> count([[0.1, 0.1], [0.1, 0.2], [5.0, 0.9]], Domain((0, 0, 1, 1), (2, 2)), outside="clamp").array.tolist()
    [[2, 0], [0, 1]]
    """
    named = None if user is None else "user"
    options: dict[str, Any] = {"max_per_user": max_per_user, "outside": outside, "drop_bad_rows": drop_bad_rows}
    reading = Reading(x, y, z, crs, named, **options)
    columns, operation = _read_columns(points, domain, reading)
    users = None if user is None else _number_users(user, points, len(columns[0]))
    rows = RowCounter(domain, reading)
    batches = (
        ([c[part] for c in columns], None if users is None else [each[part] for each in users], None, None)
        for part in (slice(at, at + ROWS) for at in range(0, len(columns[0]), ROWS))
    )
    rows.read_batches(batches, operation)
    return rows.make_counts("points", operation).counts


def _read_columns(points: Any, domain: Domain, reading: Reading) -> tuple[list[NDArray[np.float64]], Operation | None]:
    """Return the unprojected coordinates, one column per axis, and the operation that projects them to the map."""
    names, crs, geometry = reading.coordinates, reading.crs, getattr(points, "geometry", None)
    if geometry is not None and not names:
        columns = [getattr(geometry, axis).to_numpy(np.float64) for axis in "xyz"[: domain.ndim]]
        return columns, choose_operation(crs, geometry.crs, domain, "points")
    operation = None if crs is None else choose_operation(crs, None, domain, "points")
    if hasattr(points, "__arrow_c_stream__") and getattr(points, "ndim", 2) == 2:
        table = pa.table(points)
        known = [name for name in table.column_names if not name.startswith("__index_level")]
        found = [name for name in names or known if name in known]
        if len(found) == domain.ndim:
            columns = [table.column(name).cast(pa.float64(), safe=False).fill_null(np.nan) for name in found]
            return [np.asarray(column, dtype=np.float64) for column in columns], operation
        given = f"the columns {known}"
    else:
        array = np.ma.asarray(points)
        if array.ndim < 2 and (domain.ndim == 1 or not array.size):
            array = array.reshape(-1, domain.ndim)
        if array.dtype.kind in "iuf" and array.ndim == 2 and array.shape[1] == domain.ndim:
            return list(np.ma.filled(array.astype(np.float64, copy=False), np.nan).T), operation
        given = f"shape {array.shape} and type {array.dtype}"
    raise InputError(f"points have {given}: pass an (m, {domain.ndim}) array of numbers, or a table with x= and y=")


def _number_users(user: Any, points: Any, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a number for the user of each point, and a mask of the points that have a user."""
    import pandas as pd

    if isinstance(user, str):
        user = points[user]
    given, own = (getattr(each, "index", None) for each in (user, points))
    shuffled = isinstance(given, pd.Index) and isinstance(own, pd.Index) and not given.equals(own)
    masked = isinstance(user, np.ma.MaskedArray)
    ids = pd.Series(user.data if masked else user.to_pandas() if hasattr(user, "to_pandas") else user)
    if shuffled or len(ids) != number:
        raise InputError(f"user has {len(ids):,} entries for {number:,} points: both must agree in number and index")
    if masked:
        ids = ids.astype(object).mask(np.ma.getmaskarray(user))
    codes, names = pd.factorize(ids if ids.dtype.kind in "iu" else ids.astype(object))
    if ids.dtype.kind not in "iu":
        gone = [isinstance(name, str) and name.strip() in sql.MISSING for name in names]
        forms = ["" if missing else normalize_name(user=name) for name, missing in zip(names, gone, strict=True)]
        known = pd.factorize(np.array(["", *forms], dtype=object))[0][1:]  # 0 means no user
        codes = np.append(known, 0)[codes] - 1
    return codes.astype(np.int64), codes >= 0


def count_file(
    path: str | Path | Any,
    domain: Domain,
    *,
    x: str | int | None = None,
    y: str | int | None = None,
    z: str | int | None = None,
    crs: str | None = None,
    user: str | int | None = None,
    max_per_user: int | None = None,
    outside: str | None = None,
    drop_bad_rows: bool = False,
    where: str | None = None,
    table: str | None = None,
    time: str | int | None = None,
    clock: Clock | None = None,
    steps: int = 0,
) -> Counted:
    """Count the points of a table in a file, a folder, object storage or a database.

    Parameters
    ----------
    path : a file (CSV, JSON lines, Parquet, Excel, GeoPackage, GeoJSON, FlatGeobuf or shapefile; the first two may be
        gzipped), or "-" for standard input. It may also be a Delta table or a folder of Parquet files, perhaps
        partitioned ("day=2026-11-01"), on disk or in object storage ("s3://bucket/visits", "gs://…", "az://…"), or the
        newest ".metadata.json" of an Iceberg table. If `table` is set, `path` is a database: a DuckDB
        file, "postgresql://user@host/city", "sc://host:15002" for Spark, or an open Spark session.
    x, y, z : coordinate columns by name, or by number from 0 for text without a header. None for files with geometry
        or with a text column `wkt` or `geom` that contains points ("POINT (8 52)").
    crs : CRS of the coordinates, required if the domain has a CRS. Omit it for files with geometry, which state their
        own CRS. For databases the default is the domain's CRS.
    user, max_per_user, outside : as in `count`, but `user` is a column. Each user's points are chosen before points
        outside the domain are dropped.
    drop_bad_rows : True leaves out rows with missing, unreadable, NaN or infinite coordinates, no user, no time, or a
        value that `where` cannot compare.
    where : condition on columns other than the coordinates, such as "kind = 'bus' and speed > 3". Only matching rows
        count towards `max_per_user`. Releases state the condition.
    table : table of a database, such as "visits" or "part.visits".
    time, clock, steps : the time column, the clock, and the number of steps to count from the clock's start.
        `max_per_user` applies to each step (see `Counted.counts_of`). Rows outside these steps are left out.

    Raises InputError if the table cannot be read, is truncated or empty, lacks a column or has bad rows, if its CRS
    contradicts the domain's, or if the condition uses coordinates. Raises OutsideBounds as `count` does.

    >>> import pathlib, tempfile, deltahist as dh
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "p.csv").write_text("x,y\\n0.5,0.5\\n1.5,0.2\\n")
    ...     counted = dh.count_file(f"{folder}/p.csv", dh.Domain((0, 0, 2, 2), (2, 2)), x="x", y="y")
    >>> counted.rows, counted.counts.array.tolist()
    (2, [[1, 0], [1, 0]])
    """
    how = Reading.of(
        x=x, y=y, z=z, crs=crs, user=user, max_per_user=max_per_user, outside=outside, drop_bad_rows=drop_bad_rows,
        where=where, table=table, time=time,
    )  # fmt: skip
    return _count_rows(path, RowCounter(domain, how, steps=steps), clock)


def points_file(path: str | Path | Any, domain: Domain, **how: Any) -> Counted:
    """Read points on a line and round them to the domain's lattice. The parameters are those of `count_file`."""
    return _count_rows(path, RowCounter(domain, Reading.of(**how), fine=True), None)


def check_file(path: str | Path | Any, axes: int, *, clock: Clock | None = None, **how: Any) -> None:
    """Raise InputError if a table cannot be read or lacks a column. Skip pipes, which can be read only once."""
    reading = Reading.of(**how)
    server = is_server(path)
    if server or not is_stream(Path(path)):
        with open_input(path, reading) as source:
            statement = sql.write_reading(source.given, reading, axes, source.geometry, clock)
            if not server:
                source.batches(f"EXPLAIN {statement}")  # the engine checks types


def read_owners(path: str | Path | Any, *, user: str, area: Domain | None = None, **how: Any) -> pd.DataFrame:
    """Read one row per user. Return a private frame of x and y, projected to `area` and indexed by user."""
    import pandas as pd

    reading = Reading.of(user=user, max_per_user=1, **how)
    with open_input(Path(path), reading) as source:
        axes = 1 if len(reading.coordinates) == 1 else 2  # geometries have two axes and no coordinate columns
        given, label = source.given, source.given.label
        owner = f"{given.quote_column(given.find_column(user))} AS owner, "
        statement = sql.write_reading(given, reading, axes, source.geometry).replace("SELECT ", f"SELECT {owner}", 1)
        operation = choose_operation(reading.crs, None if reading.coordinates else source.crs, area, label)
        rows = source.batches(statement).read_all()
        malformed = source.finish()
    columns, users, _, chosen = _read_batch(rows, axes)
    columns = columns if operation is None else operation(*columns)
    bad = int((chosen & ~(users[1] & np.isfinite(columns).all(axis=0))).sum()) + malformed
    refuse_bad_rows(bad, len(columns[0]) + malformed, f"rows of {label!r}", "numbers or user")
    names = [normalize_name(user=name) for name in rows["owner"].filter(pa.array(chosen)).to_pylist()]
    return pd.DataFrame(dict(enumerate(c[chosen] for c in columns)), index=pd.Index(names, dtype=object))


def _count_rows(path: Any, rows: RowCounter, clock: Clock | None) -> Counted:
    """Count the rows of a table: on its server if the server can project them, and otherwise here in batches."""
    domain, reading = rows.domain, rows.reading
    if reading.table is not None and reading.crs is None:
        reading = rows.reading = replace(reading, crs=domain.crs)
    with open_input(path, reading) as source:
        label, axes = source.given.label, domain.ndim
        statement = sql.write_reading(source.given, reading, axes, source.geometry, clock, rows.steps)
        operation = choose_operation(reading.crs, None if reading.coordinates else source.crs, domain, label)
        if is_server(path) and not rows.fine and (operation is None or source.projects):
            _count_on_server(source, statement, rows, operation)
        else:
            rows.read_batches((_read_batch(each, axes) for each in source.batches(statement)), operation)
        malformed = source.finish()
    return rows.make_counts(f"rows of {label!r}", operation, malformed)


def _count_on_server(engine: Any, statement: str, rows: RowCounter, operation: Operation | None) -> None:
    most = rows.reading.max_per_user
    placed = statement if operation is None else engine.project(statement, operation)
    asked = sql.write_counting(placed, rows.domain, engine.dialect.random, steps=rows.steps, most=most)
    found = pa.Table.from_batches(engine.batches(asked))
    places, numbers = (found[name].to_numpy() for name in ("place", "number"))
    rows.add_figures(places, numbers)
    usable = places >= 0
    rows.kept.add_rows(places[usable], found["number" if most is None else "kept"].to_numpy()[usable])
    if most is not None and not rows.steps:
        rows.users = int(found["users"].to_numpy()[usable].sum())


def _read_batch(rows: Any, axes: int) -> Batch:
    def known(name: str) -> Any:
        if name not in rows.schema.names:
            return None
        column = rows[name]
        return column.fill_null(0).to_numpy(zero_copy_only=False), np.asarray(column.is_valid())

    if "g" in rows.schema.names:
        given = rows["g"].to_numpy(zero_copy_only=False)
        text = "string" in str(rows.schema.field("g").type)
        points = shapely.from_wkt(given, on_invalid="ignore") if text else shapely.from_wkb(given)
        points[shapely.is_empty(points)] = None
        # NaN for geometries other than points.
        columns = [get(points) for get in (shapely.get_x, shapely.get_y, shapely.get_z)[:axes]]
    else:
        columns = [rows[n].fill_null(np.nan).to_numpy(zero_copy_only=False) for n in "xyz"[:axes]]
    if rows["chosen"].null_count:  # a row is bad if the condition cannot compare its value
        columns = [np.where(rows["chosen"].is_null(), np.nan, column) for column in columns]
    return columns, known("u"), known("step"), np.asarray(rows["chosen"].fill_null(True))


def choose_operation(stated: str | None, own: Any, domain: Domain | None, name: str) -> Operation | None:
    """Return the operation that projects coordinates to the map, or None if they need no projection."""
    given = own if stated is None else stated
    map_crs = None if domain is None else domain.crs
    if given is None and map_crs is None:
        return None
    named = {"crs=": stated, repr(name): own, "the map": map_crs}
    same = stated is None or own is None or read_crs(own).equals(read_crs(stated), ignore_axis_order=True)
    if domain is None or given is None or map_crs is None or not same:
        names = ", ".join(f"{where} is {crs and read_crs(crs).to_string()[:40]}" for where, crs in named.items())
        raise InputError(f"a CRS is missing, or two differ ({names}): state both, and make crs= agree with the file")
    return Operation.onto(domain, read_crs(given))
