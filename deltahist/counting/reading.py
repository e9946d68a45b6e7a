"""From points to counts: read, located on the lattice, bounded per user and counted, by one loop for all sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.counting import sql
from deltahist.counting.counts import Counts, Integers, Points, Tally, Unshown, UserBound, merged
from deltahist.counting.sources import STDIN, open_source, readable
from deltahist.counting.sql import AFTER, BAD, BEFORE, UNMATCHED, UNTIMED
from deltahist.errors import InputError, OutsideBounds, one_of, whole
from deltahist.preprocessing import Clock, Preprocessing
from deltahist.space.crs import Operation, read_crs
from deltahist.space.domain import Domain, check_room

if TYPE_CHECKING:
    import pandas as pd

#: Rows of a batch.
_ROWS = 1 << 17
#: Spreads steps over all bits of a hash.
_ODD = np.uint64(0x9E3779B97F4A7C15)
#: Share of points outside from which on they are refused.
_MANY = 0.01


@dataclass(frozen=True)
class Reading:
    """The way in which rows are read and used, as `count_file` describes it; `time` is the column of times."""

    x: str | int | None = None
    y: str | int | None = None
    crs: str | None = None
    user: str | int | None = None
    max_per_user: int | None = None
    outside: str | None = None
    drop_bad_rows: bool = False
    layer: str | None = None
    where: str | None = None
    decimal: str = "."
    table: str | None = None
    time: str | int | None = None

    def __post_init__(self) -> None:
        one_of(("clamp", "drop", None), outside=self.outside)
        one_of((".", ","), decimal=self.decimal)
        for name in ("x", "y", "user", "time"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))
        if (self.user is None) != (self.max_per_user is None):
            raise InputError(
                f"max_per_user is {self.max_per_user!r} and users are {'not ' if self.user is None else ''}given: give "
                "both or neither, since a user's cost is the number of points that may move at once"
            )
        if self.max_per_user is not None:
            whole(max_per_user=self.max_per_user)

    @property
    def coordinates(self) -> list[str]:
        """Names or numbers of the coordinate columns; none for points of a geometry."""
        return [str(c) for c in (self.x, self.y) if c is not None]

    def preprocessing(self, operation: Operation | None) -> Preprocessing:
        """Return how rows become counts; it says what may be left out, whether or not anything was."""
        could = ("bad rows", self.drop_bad_rows), ("points outside", self.outside == "drop")
        dropped = tuple(kind for kind, is_left_out in could if is_left_out)
        projection = None if operation is None else operation.projection
        return Preprocessing(self.max_per_user or 1, self.user is not None, dropped, projection, self.where)


@dataclass(frozen=True, eq=False, repr=False)
class Counted(Unshown):
    """Points by step and cell, and numbers of rows. All but `preprocessing` is for the trusted side only.

    Parameters
    ----------
    rows : rows read. bad_rows : of them unusable, and left out. unmatched : of them not chosen by `where`.
    outside : usable rows outside the domain, clamped or left out. users : their number, if it is known.
    keys, numbers : (m,) step · cells + cell of full cells, rising, and the number of points in each.
    domain, preprocessing : of which cells, and how rows became counts.
    before, after : rows before the first step, and after the last.
    upto : (steps,) rows in the steps up to and with each one, before users were bounded.
    """

    rows: int
    bad_rows: int
    unmatched: int
    outside: int
    users: int | None
    keys: Integers
    numbers: Integers
    domain: Domain
    preprocessing: Preprocessing
    before: int = 0
    after: int = 0
    upto: Integers | None = None

    @property
    def kept(self) -> int:
        """Number of points counted."""
        return int(self.numbers.sum())

    @property
    def counts(self) -> Counts:
        """The counts; of the first step where there are several."""
        return self.counts_of(0)

    @property
    def points(self) -> Points:
        """The points of a line, of `points_file`, whose cells are the lattice's steps."""
        # `Domain.lattice` gives back the steps of these coordinates.
        line = self.domain.low[0] + np.repeat(self.keys, self.numbers) * self.domain.step[0]
        return Points(np.asarray(line, dtype=np.float64), self.domain, self.preprocessing)

    def counts_of(self, step: int) -> Counts:
        """Return the counts of one step."""
        size = self.domain.size
        first, last = np.searchsorted(self.keys, (step * size, (step + 1) * size))
        return Counts(self.numbers[first:last], self.domain, self.preprocessing, self.keys[first:last] - step * size)


@dataclass(frozen=True, repr=False)
class Batch(Unshown):
    """Some rows: coordinates as floats (NaN where there are none), and what else is known of each row, or None.

    users : hashes of names, and which rows have one. steps : the same of steps. chosen : whether the condition is met.
    """

    columns: list[NDArray[np.float64]]
    users: tuple[NDArray[Any], NDArray[np.bool_]] | None = None
    steps: tuple[Integers, NDArray[np.bool_]] | None = None
    chosen: NDArray[np.bool_] | None = None


class Rows:
    """Numbers of rows by place, of all of them and of those that stay, while they are read."""

    def __init__(self, domain: Domain, reading: Reading, *, fine: bool = False, steps: int = 0, due: int = 0) -> None:
        self.domain, self.reading, self.fine, self.steps, self.due = domain, reading, fine, steps, due
        self.size = domain.lattice_shape[0] if fine else domain.size
        if not fine:
            check_room(domain)
        if max(steps, 1) * self.size >= 1 << 61:
            raise InputError(f"there are {steps:,} steps of {self.size:,} cells: too many for one table; use fewer")
        self.all, self.kept = (Tally(2 * max(steps, 1) * self.size) for _ in range(2))
        self.none = np.zeros(6, dtype=np.int64)
        self.users: int | None = None

    def read(self, batches: Iterator[Batch], operation: Operation | None) -> None:
        """Take rows batch by batch: project, locate, count, and keep K of each user's in each step."""
        most = self.reading.max_per_user
        bound = None if most is None else UserBound(most)
        for batch in batches:
            columns = batch.columns if operation is None else operation(*batch.columns)
            named = None if batch.users is None else batch.users[1]
            places = sql.places_of(
                columns, self.domain, batch.chosen, named, batch.steps, steps=self.steps, fine=self.fine
            )
            self.add(places)
            if bound is not None:
                assert batch.users is not None
                users, usable = batch.users[0], places >= 0
                if batch.steps is not None:  # users are bounded within each step: whole numbers that differ by step
                    users = users ^ (batch.steps[0].astype(np.uint64) * _ODD).view(users.dtype)
                bound.add(users[usable], places[usable])
        if bound is not None:
            self.users, kept = bound.kept()
            self.kept.add(kept)
            if self.steps:
                self.users = None

    def add(self, places: Integers, numbers: Integers | int = 1) -> None:
        """Count rows, or numbers of them, by their places."""
        point = places >= 0
        if not point.all():
            np.add.at(self.none, -places[~point], numbers if isinstance(numbers, int) else numbers[~point])
            places = places[point]
            numbers = numbers if isinstance(numbers, int) else numbers[point]
        self.all.add(places, numbers)

    def counted(self, rows_of: str, operation: Operation | None, malformed: int = 0) -> Counted:
        """Return what was read; raise InputError on bad rows and no rows, OutsideBounds on many points outside.

        Parameters
        ----------
        rows_of : words for rows in messages. malformed : rows besides that could not even be cut into columns.
        """
        reading, size, steps = self.reading, self.size, max(self.steps, 1)
        places, numbers = self.all.pairs()
        kept, kept_numbers = (places, numbers) if reading.max_per_user is None else self.kept.pairs()
        edge = np.searchsorted(places, steps * size)
        bad = int(self.none[-BAD] + self.none[-UNTIMED]) + malformed
        rows = int(numbers.sum() + self.none.sum()) + malformed
        if reading.outside is None:
            due = [numbers[part][places[part] % (steps * size) >= self.due * size].sum() for part in
                   (slice(edge, None), slice(None))]  # fmt: skip
            refuse_outside(int(due[0]), int(due[1]), self.domain)
        if bad and not reading.drop_bad_rows:
            what = "coordinates" + " or user" * (reading.user is not None) + " or time" * bool(self.steps)
            cure = "" if rows_of == "points" else ", or leave them out with drop_bad_rows=True"
            raise InputError(
                f"{bad:,} of {rows:,} {rows_of} have missing, unreadable, NaN or infinite {what}: mend them{cure}"
            )
        if rows and bad == rows:
            raise InputError(f"none of the {rows:,} {rows_of} can be used: are these the right columns?")
        if not rows and rows_of != "points" and reading.outside is None:
            # Whoever says what becomes of points outside gets a release where nobody is, too.
            raise InputError(f"there are no {rows_of}; if it is meant, say outside='clamp' or outside='drop'")
        inner = np.searchsorted(kept, steps * size)
        keys, points = kept[:inner], kept_numbers[:inner]
        if reading.outside != "drop":
            folded = np.concatenate([keys, kept[inner:] - steps * size])
            keys, points = merged(folded, kept_numbers) if len(kept) > inner else (keys, points)
        upto = None
        if self.steps:
            upto = np.zeros(steps, dtype=np.int64)
            np.add.at(upto, places % (steps * size) // size, numbers)
            upto = np.cumsum(upto)
        return Counted(
            rows, bad, int(self.none[-UNMATCHED]), int(numbers[edge:].sum()), self.users, keys, points, self.domain,
            reading.preprocessing(operation), int(self.none[-BEFORE]), int(self.none[-AFTER]), upto,
        )  # fmt: skip


def refuse_outside(outside: int, points: int, domain: Domain) -> None:
    """Raise OutsideBounds if more than one point in a hundred lies outside."""
    if outside > _MANY * points:
        bounds = ",".join(f"{b:.10g}" for b in domain.bounds) + (f" of {domain.crs}" if domain.crs else "")
        raise OutsideBounds(
            f"{outside:,} of {points:,} points ({outside / points:.0%}) lie outside the bounds {bounds}: check the "
            "order W,S,E,N, that x and y are not swapped, and the CRS; if it is meant, say outside='clamp' (they count "
            "at the edge) or outside='drop' (with the boundary as a source)"
        )


# --- arrays and frames ------------------------------------------------------------------------------------------


def count(
    points: ArrayLike | Any,
    domain: Domain,
    *,
    x: str | None = None,
    y: str | None = None,
    crs: str | None = None,
    outside: str | None = None,
    user: ArrayLike | None = None,
    max_per_user: int | None = None,
) -> Counts:
    """Count the points in each cell.

    Parameters
    ----------
    points : (m, 2) x and y, or (m,) in 1-D, in the domain's coordinates; a table of pandas, polars or Arrow; or a
        GeoSeries or GeoDataFrame of points, which are projected if they say another CRS. Masked values are missing.
        Private.
    domain : Domain
    x, y : columns of a table; its first ones when None.
    crs : of the coordinates of an array or a table; the domain's own when None.
    outside : "clamp" counts points outside in the nearest cell, which never lengthens a move; "drop" leaves
        them out, which is right only if the boundary is declared as a source. None clamps, but refuses more than one
        point in a hundred outside: that is mostly a slip in the coordinates or in the bounds.
    user, max_per_user : (m,) whose each point is, or a column's name, and how many points each user may keep; both or
        neither. Which are kept is random, and depends on no place.

    Returns
    -------
    Counts : `array` has the numbers, int64 of domain.shape, axis 0 is x. They know how they were made
    (`preprocessing`): `publish` takes from it whose points they are and what was left out.

    Raises InputError on NaN, missing or infinite coordinates (with how many), points of another dimension, a CRS that
    does not go with the domain's, missing users, or a grid too large for memory; OutsideBounds if many points lie
    outside, unless `outside` says what becomes of them.

    >>> count([[0.1, 0.1], [0.1, 0.2], [5.0, 0.9]], Domain((0, 0, 1, 1), (2, 2)), outside="clamp").array.tolist()
    [[2, 0], [0, 1]]
    """
    reading = Reading(user=None if user is None else "user", max_per_user=max_per_user, outside=outside)
    columns, operation = _columns(points, domain, [c for c in (x, y) if c is not None], crs)
    users = None if user is None else _users(user, points, len(columns[0]))
    rows = Rows(domain, reading)
    starts = range(0, len(columns[0]), _ROWS)
    batches = (
        Batch(
            [c[at : at + _ROWS] for c in columns],
            None if users is None else (users[0][at : at + _ROWS], users[1][at : at + _ROWS]),
        )
        for at in starts
    )
    rows.read(batches, operation)
    return rows.counted("points", operation).counts


def _columns(
    points: Any, domain: Domain, names: list[str], crs: str | None
) -> tuple[list[NDArray[np.float64]], Operation | None]:
    """Return the coordinates as given, one column per axis, and the operation that brings them to the map."""
    geometry = getattr(points, "geometry", None)
    if geometry is not None and not names:
        own = geometry.crs
        if (own is None) != (domain.crs is None):
            raise InputError(
                f"points have the CRS {own and own.to_string()}, the domain has {domain.crs}: say which one they are "
                "in, frame.set_crs(...), or give the domain that of its bounds; degrees are never taken for lengths"
            )
        if not (geometry.geom_type.dropna() == "Point").all():
            raise InputError("geometries are not all points: take their centroids, or one point each")
        columns = [geometry.x.to_numpy(np.float64), geometry.y.to_numpy(np.float64)][: domain.ndim]
        return columns, None if own is None else Operation.onto(domain, own)
    operation = None if crs is None else operation_of(crs, None, domain, "points")
    if hasattr(points, "__arrow_c_stream__") and getattr(points, "ndim", 2) == 2:
        import pyarrow as pa

        table = pa.table(points)
        known = [name for name in table.column_names if not name.startswith("__index_level")]
        if len(names or known) != domain.ndim or not set(names) <= set(known):
            raise InputError(f"points have the columns {known}: say which are the {domain.ndim}, as x= and y=")
        found = [table.column(name).cast(pa.float64(), safe=False) for name in names or known]
        return [np.asarray(column.fill_null(np.nan), dtype=np.float64) for column in found], operation
    try:
        array = np.ma.asarray(points)
    except ValueError:
        raise InputError(f"points are rows of different lengths: they must be (m, {domain.ndim})") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"points are of type {array.dtype}: coordinates must be numbers")
    plain = np.ma.filled(array.astype(np.float64), np.nan) if np.ma.is_masked(array) else np.asarray(array.data)
    if domain.ndim == 1 and plain.ndim == 1:
        plain = plain[:, None]
    if plain.size == 0 and plain.ndim < 2:
        plain = plain.reshape(0, domain.ndim)
    if plain.ndim != 2 or plain.shape[1] != domain.ndim:
        raise InputError(f"points have shape {plain.shape}: it must be (m, {domain.ndim})")
    return [np.asarray(plain[:, axis], dtype=np.float64) for axis in range(domain.ndim)], operation


def _users(user: Any, points: Any, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a whole number for each point's user, from a column's name or from values, and which points have one."""
    import pandas as pd

    if isinstance(user, str):
        try:
            user = points[user]
        except (KeyError, TypeError, IndexError, ValueError):
            raise InputError(f"user is {user!r}: it must be a column of the points, or one entry for each") from None
    given, own = (getattr(each, "index", None) for each in (user, points))
    if isinstance(given, pd.Index) and isinstance(own, pd.Index) and not given.equals(own):
        raise InputError("user has another index than the points: its entries would go to other points; align it")
    ids = pd.Series(user.to_pandas() if hasattr(user, "to_pandas") else user).reset_index(drop=True)
    if len(ids) != number:
        raise InputError(f"user has {len(ids):,} entries: there must be one for each of {number:,} points")
    if pd.api.types.is_float_dtype(ids) and ((ids % 1 != 0) & ids.notna() | (ids.abs() > 2.0**53)).any():
        raise InputError("user has numbers that are not whole, or beyond 2^53, where they cannot be told apart")
    codes = pd.factorize(ids)[0].astype(np.int64)
    return codes, (codes >= 0) & np.asarray(ids != "", dtype=np.bool_)


# --- files and databases ----------------------------------------------------------------------------------------


def count_file(
    path: str | Path | Any,
    domain: Domain,
    *,
    x: str | int | None = None,
    y: str | int | None = None,
    crs: str | None = None,
    user: str | int | None = None,
    max_per_user: int | None = None,
    outside: str | None = None,
    drop_bad_rows: bool = False,
    layer: str | None = None,
    where: str | None = None,
    decimal: str = ".",
    table: str | None = None,
) -> Counted:
    """Count the points of a table: of a file, a folder, object storage, or a database.

    Parameters
    ----------
    path : CSV, JSON lines (both may be gzipped), Parquet, Excel, GeoPackage, GeoJSON, FlatGeobuf or a shapefile; "-" is
        standard input. A folder of Parquet files, whose folders may be partitions
        ("day=2026-11-01"), here or in object storage ("s3://bucket/visits", "gs://…", "az://…"). A folder that is a
        table of Delta; a table of Iceberg by the metadata of a version (".metadata.json"). With `table` a database: a
        DuckDB file, "postgresql://user@host/city", "sc://host:15002" of Spark, or an open Spark session.
    domain : Domain, with the projected CRS if there is one.
    x, y : columns by name, or by number from 0 (for text without a header); none for files with geometry.
    crs : of the coordinates, needed if the domain has one; files with geometry state it themselves, and columns of a
        database are in the domain's unless it is said.
    user, max_per_user : column of user ids, and how many points each may keep, as in `count`.
    outside : "clamp", "drop" or None, as in `count`. Users' points are chosen before any are dropped.
    drop_bad_rows : leave out rows with missing, unreadable, NaN or infinite coordinates or a missing user.
    layer : of a GeoPackage; the sheet of a workbook.
    where : a condition on columns besides the place, such as "kind = 'bus' and speed > 3": only rows that meet it are
        counted, before users are bounded. It is public, and releases state it. Text that is compared with a number must
        be one, or empty.
    decimal : "." or ",": of numbers in text.
    table : of a database, "visits" or "part.visits".

    Returns
    -------
    Counted

    Raises InputError if the file is missing, damaged, of an unknown kind or changes while it is read, lacks a column,
    holds rows that cannot be used (with how many), its CRS does not go with the domain's, the condition asks for
    coordinates, or it has no rows, unless `outside` is given; OutsideBounds as `count` does.

    >>> import pathlib, tempfile, deltahist as dh
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "p.csv").write_text("x,y\\n0.5,0.5\\n1.5,0.2\\n")
    ...     counted = dh.count_file(f"{folder}/p.csv", dh.Domain((0, 0, 2, 2), (2, 2)), x="x", y="y")
    >>> counted.rows, counted.counts.tolist()
    (2, [[1, 0], [1, 0]])
    """
    how = Reading(x, y, crs, user, max_per_user, outside, drop_bad_rows, layer, where, decimal, table)
    return _read(path, Rows(domain, how), None)


def count_steps(
    path: str | Path | Any, domain: Domain, clock: Clock, steps: int, *, time: str | int, due: int = 0, **how: Any
) -> Counted:
    """Count a table's points in each of the first `steps` steps of a clock; users are bounded within each step.

    Parameters
    ----------
    path, domain, how : as for `count_file`.
    clock : of the steps. steps : how many there are; other rows are left out and counted.
    time : the column of times.
    due : the first step that is to be published; many points outside are refused only if they lie in these steps.

    Raises InputError as `count_file` does, and on times that cannot be read.
    """
    return _read(path, Rows(domain, Reading(time=time, **how), steps=steps, due=due), clock)


def points_file(path: str | Path | Any, domain: Domain, **how: Any) -> Counted:
    """Read the `points` of a file on a line, on the domain's lattice, as `count_file` reads them."""
    return _read(path, Rows(domain, Reading(**how), fine=True), None)


def check_file(path: str | Path | Any, axes: int, *, clock: Clock | None = None, **how: Any) -> None:
    """Raise InputError if a table is missing, cannot be read, or lacks a column: before anything takes long.

    Standard input, which comes once, is not looked at.
    """
    reading, time = Reading(**how), None if clock is None else (clock, 1)
    if _is_server(path):
        from deltahist.counting.databases import open_table

        with open_table(path, reading, axes, time):
            return
    if Path(path) != STDIN:
        with open_source(Path(path), reading) as source:
            statement = sql.read_sql(source.given, reading, axes, time, source.geometry)
            source.connection.execute(f"EXPLAIN {statement}")  # of which types go together the engine knows


def read_owners(path: str | Path | Any, *, user: str, area: Domain | None = None, **how: Any) -> pd.DataFrame:
    """Read one row for each user of a table: a frame with the users as index, a column for each of x and y. Private.

    Rows are read as by `count_file`, without y as one column of numbers, and brought to the map of an area. Raises
    InputError if the file cannot be read, has no rows, or its CRS does not go with the area's; or rows have no user, or
    no finite number.
    """
    import pandas as pd

    reading = Reading(user=user, max_per_user=1, **how)
    with open_source(Path(path), reading) as source:
        axes = 1 if len(reading.coordinates) == 1 else 2  # points of a geometry need no columns
        given, label = source.given, source.given.label
        owner = f"CAST({given.name(given.column(user))} AS VARCHAR) AS owner, "
        statement = sql.read_sql(given, reading, axes, None, source.geometry).replace("SELECT ", f"SELECT {owner}", 1)
        operation = operation_of(reading.crs, None if reading.coordinates else source.crs, area, label)
        with readable(label):
            rows = source.connection.execute(statement).to_arrow_table().combine_chunks().to_batches()
            malformed = source.finish()
    if not rows:
        raise InputError(f"input {label!r} is empty: it has no rows")
    batch = _batch(rows[0], axes)
    columns = batch.columns if operation is None else operation(*batch.columns)
    assert batch.users is not None
    assert batch.chosen is not None
    usable = batch.users[1] & np.isfinite(columns).all(axis=0)
    if bad := int((batch.chosen & ~usable).sum()) + malformed:
        raise InputError(
            f"{bad:,} of {len(usable):,} rows of {label!r} have no user, or missing, unreadable, NaN or infinite "
            "numbers: mend them, or take them out"
        )
    names = pd.Index(rows[0]["owner"].to_pylist(), dtype=object)
    return pd.DataFrame(dict(enumerate(columns)), index=names)[batch.chosen]


def _read(path: Any, rows: Rows, clock: Clock | None) -> Counted:
    """Read a table, in batches, or in the engine of a server where all can be done there."""
    domain, reading = rows.domain, rows.reading
    time = None if clock is None else (clock, rows.steps)
    if reading.table is not None and reading.crs is None:
        reading = rows.reading = replace(reading, crs=domain.crs)
    if _is_server(path):
        from deltahist.counting.databases import open_table

        operation = operation_of(reading.crs, None, domain, str(reading.table))
        with open_table(path, reading, domain.ndim, time) as (engine, statement):
            _read_table(engine, statement, rows, operation)
        return rows.counted(f"rows of {reading.table!r}", operation)
    with open_source(Path(path), reading) as source:
        label = source.given.label
        statement = sql.read_sql(source.given, reading, domain.ndim, time, source.geometry)
        operation = operation_of(reading.crs, None if reading.coordinates else source.crs, domain, label)
        with readable(label):
            found = source.connection.execute(statement).to_arrow_reader(_ROWS)
            rows.read((_batch(each, domain.ndim) for each in found), operation)
            malformed = source.finish()
    return rows.counted(f"rows of {label!r}", operation, malformed)


def _is_server(path: Any) -> bool:
    """Return whether a table is one of a server: not of a path, or of an address of one."""
    known = ("postgresql://", "postgres://", "sc://")
    return not isinstance(path, str | Path) or str(path).startswith(known)


def _read_table(engine: Any, statement: str, rows: Rows, operation: Operation | None) -> None:
    """Read a table of a database."""
    domain, most = rows.domain, rows.reading.max_per_user
    if not rows.fine and (operation is None or engine.projects):
        placed = statement if operation is None else engine.project(statement, operation)
        found = engine.fetch(sql.count_sql(placed, domain, engine.dialect, steps=rows.steps, most=most))
        places, numbers = (found[name].to_numpy() for name in ("place", "number"))
        rows.add(places, numbers)
        if most is not None:
            kept, users = (found[name].to_numpy() for name in ("kept", "users"))
            rows.kept.add(places[places >= 0], kept[places >= 0])
            rows.users = None if rows.steps else int(users[places >= 0].sum())
    else:
        rows.read((_batch(each, domain.ndim) for each in engine.batches(statement)), operation)


def _batch(rows: Any, axes: int) -> Batch:
    """Return rows of Arrow as a batch."""
    import pyarrow.compute as pc

    def known(name: str) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        if name not in rows.schema.names:
            return None
        column = rows[name]
        there = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))
        return column.fill_null(0).to_numpy(zero_copy_only=False), there

    if "g" in rows.schema.names:
        import shapely

        points = shapely.from_wkb(rows["g"].to_numpy(zero_copy_only=False))
        if not np.isin(shapely.get_type_id(points), (0, -1)).all():  # -1: missing, a bad row
            raise InputError("geometries are not all points: each row must be one point")
        columns = [shapely.get_x(points), shapely.get_y(points)][:axes]
    else:
        columns = [rows[n].fill_null(np.nan).to_numpy(zero_copy_only=False) for n in "xy"[:axes]]
    if unread := rows["chosen"].null_count:
        raise InputError(
            f"where compares a column with numbers, or with true and false, but {unread:,} of its rows hold something "
            "else: mend them, leave them empty, or compare with text in single quotes"
        )
    return Batch(columns, known("u"), known("step"), np.asarray(rows["chosen"].to_numpy(zero_copy_only=False)))


def operation_of(stated: str | None, own: Any, domain: Domain | None, name: str) -> Operation | None:
    """Return the operation from coordinates to the map; None if they are on it, or plain numbers.

    Raises InputError if their CRS is not known, contradicts the file's, or there is no map for it.
    """
    given = stated if stated is not None else own
    if given is None:
        if domain is None or domain.crs is None:
            return None
        raise InputError(f"crs is missing: coordinates of {name!r} must say which CRS they are in, as {domain.crs} is")
    source = read_crs(given)
    if stated is not None and own is not None and not read_crs(own).equals(source, ignore_axis_order=True):
        raise InputError(f"crs is {stated!r}, but {name!r} says another one itself: leave it out, or correct the file")
    if domain is None or domain.crs is None:
        raise InputError(
            f"coordinates of {name!r} are in {source.to_string()[:40]}, but the domain has no CRS: give it a projected "
            "one, such as EPSG:32618; degrees are never treated as planar"
        )
    return Operation.onto(domain, source)
