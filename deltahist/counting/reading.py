"""From points to counts: one loop reads rows of all sources, locates them, bounds users and counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.counting import sql
from deltahist.counting.counts import Counts, Integers, Points, Tally, Unshown, UserBound, merged
from deltahist.counting.databases import open_table
from deltahist.counting.sources import ROWS, is_stream, open_source
from deltahist.counting.sql import Reading
from deltahist.errors import InputError, OutsideBounds
from deltahist.preprocessing import Clock, Preprocessing, normalize_name
from deltahist.space.crs import Operation, read_crs
from deltahist.space.domain import Domain, check_room

if TYPE_CHECKING:
    import pandas as pd

#: Spreads steps over all bits of a hash.
_ODD = np.uint64(0x9E3779B97F4A7C15)
#: Share of points outside from which on they are refused.
_MANY = 0.01


@dataclass(frozen=True, eq=False, repr=False)
class Counted(Unshown):
    """Points by step and cell, and numbers of rows. Only `preprocessing` is public.

    Parameters
    ----------
    rows : rows read. bad_rows : unusable ones, left out. unmatched : those that `where` does not choose.
    outside : usable rows outside the domain, clamped or left out. zeros : those of them at 0,0 before any projection.
    users : their number, if it is known.
    keys, numbers : (m,) step · cells + cell of full cells, rising, and the number of points in each.
    domain, preprocessing : of which cells, and how rows became counts.
    before, after : rows before the first step, and after the last.
    """

    rows: int
    bad_rows: int
    unmatched: int
    outside: int
    zeros: int
    users: int | None
    keys: Integers
    numbers: Integers
    domain: Domain
    preprocessing: Preprocessing
    before: int = 0
    after: int = 0

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


#: Some rows: coordinates as floats (NaN where there are none); then, or None where nothing is known of them, hashes of
#: users and which rows have one, the same of steps, and whether the condition is met.
Batch = tuple[list[NDArray[np.float64]], Any, Any, NDArray[np.bool_] | None]


class Rows:
    """Numbers of rows by place, of all of them and of those that stay, while they are read."""

    def __init__(self, domain: Domain, reading: Reading, *, fine: bool = False, steps: int = 0) -> None:
        self.domain, self.reading, self.fine, self.steps = domain, reading, fine, steps
        if not fine:
            check_room(domain)
        #: Places from here on are outside.
        self.edge = max(steps, 1) * (domain.lattice_shape[0] if fine else domain.size)
        self.all, self.kept = Tally(2 * self.edge), Tally(2 * self.edge)
        self.none = np.zeros(5, dtype=np.int64)
        self.zeros = 0
        self.users: int | None = None

    def read(self, batches: Iterator[Batch], operation: Operation | None) -> None:
        """Take rows batch by batch: project, locate, count, and keep K of each user's in each step."""
        most = self.reading.max_per_user
        bound = None if most is None else UserBound(most)
        for raw, users, steps, chosen in batches:
            columns = raw if operation is None else operation(*raw)
            named = None if users is None else users[1]
            places = sql.places_of(columns, self.domain, chosen, named, steps, self.steps, self.fine)
            self.add(places)
            if (out := places >= self.edge).any() and len(raw) == 2:
                self.zeros += int((out & (raw[0] == 0) & (raw[1] == 0)).sum())
            if bound is not None:
                names, usable = users[0], places >= 0
                if steps is not None:  # users are bounded within each step: whole numbers that differ by step
                    names = names ^ (steps[0].astype(np.uint64) * _ODD).view(names.dtype)
                bound.add(names[usable], places[usable])
        if bound is not None:
            users_of_all, kept = bound.kept()
            self.users = None if self.steps else users_of_all
            self.kept.add(kept)

    def add(self, places: Integers, numbers: Integers | int = 1) -> None:
        point = places >= 0
        if not point.all():
            np.add.at(self.none, -places[~point], numbers if isinstance(numbers, int) else numbers[~point])
            places = places[point]
            numbers = numbers if isinstance(numbers, int) else numbers[point]
        self.all.add(places, numbers)

    def counted(self, rows_of: str, operation: Operation | None, malformed: int = 0) -> Counted:
        """Return what was read; raise InputError on bad rows and no rows, OutsideBounds on many points outside.

        Messages call rows `rows_of`; `malformed` more could not even be cut into columns.
        """
        reading = self.reading
        places, numbers = self.all.pairs()
        kept, kept_numbers = (places, numbers) if reading.max_per_user is None else self.kept.pairs()
        outside = int(numbers[np.searchsorted(places, self.edge) :].sum())
        bad = int(self.none[-sql.BAD]) + malformed
        rows = int(numbers.sum() + self.none.sum()) + malformed
        if reading.outside is None:
            refuse_outside(outside, int(numbers.sum()), self.zeros, self.domain)
        if bad and not (reading.drop_bad_rows and bad < rows):
            what = "coordinates" + " or time" * bool(self.steps)
            what += " or user (floats must be whole, up to 2^53)" * (reading.user is not None)
            cure = ": mend them, or set drop_bad_rows to leave them out"
            cure = ": are these the right columns?" if bad == rows else cure
            raise InputError(f"{bad:,} of {rows:,} {rows_of} have missing, unreadable, NaN or infinite {what}{cure}")
        if not rows and rows_of != "points" and reading.outside is None:
            # With a rule for points outside a release of no rows is meant, too.
            raise InputError(f"there are no {rows_of}; if that is meant, set outside to clamp or drop")
        inner = np.searchsorted(kept, self.edge)
        keys, points = kept[:inner], kept_numbers[:inner]
        if reading.outside != "drop" and inner < len(kept):
            keys, points = merged(np.concatenate([keys, kept[inner:] - self.edge]), kept_numbers)
        return Counted(
            rows, bad, int(self.none[-sql.UNMATCHED]), outside, self.zeros, self.users, keys, points, self.domain,
            reading.preprocessing(operation), int(self.none[-sql.BEFORE]), int(self.none[-sql.AFTER]),
        )  # fmt: skip


def refuse_outside(outside: int, points: int, zeros: int, domain: Domain) -> None:
    """Raise OutsideBounds if more than one point in a hundred lies outside."""
    if outside > _MANY * points:
        bounds = ",".join(f"{b:.10g}" for b in domain.bounds) + (f" of {domain.crs}" if domain.crs else "")
        missing = f" ({zeros:,} at 0,0, which often means missing)" if zeros else ""
        raise OutsideBounds(
            f"{outside:,} of {points:,} points ({outside / points:.0%}) lie outside the bounds {bounds}{missing}: "
            "check the order W,S,E,N, that x and y are not swapped, and the CRS; if that is meant, set outside to "
            "clamp (they count at the edge) or drop (with the boundary as a source)"
        )


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
    drop_bad_rows: bool = False,
) -> Counts:
    """Count the points in each cell.

    Parameters
    ----------
    points : (m, 2) x and y, or (m,) in 1-D, in the domain's coordinates; a table of pandas, polars or Arrow; or a
        GeoSeries or GeoDataFrame of points, which are projected if they state another CRS. Masked values and NA are
        missing. Private.
    domain : Domain
    x, y : columns of a table; its first ones when None.
    crs : of the coordinates of an array or a table; the domain's own when None.
    outside : "clamp" counts points outside in the nearest cell, which never lengthens a move; "drop" leaves
        them out, which is right only if the boundary is declared as a source. None clamps, but refuses more than one
        point in a hundred outside: that is mostly a slip in the coordinates or in the bounds.
    user, max_per_user : (m,) whose each point is, or a column's name, and how many points each user may keep; both or
        neither. Which are kept is random, and does not depend on places. Users are text or whole numbers, compared as
        `normalize_name` writes them; "", "None" and the like are missing.
    drop_bad_rows : leave out points without a place or a user, such as masked ones. The release says so.

    Returns
    -------
    Counts : `array` has the numbers, int64 of domain.shape, axis 0 is x. They know how they were made
        (`preprocessing`): `publish` takes from it whose points they are and what was left out.

    Raises InputError on missing or infinite coordinates, missing users, or a CRS that contradicts the domain's;
    OutsideBounds if many points lie outside and `outside` is None.

    >>> count([[0.1, 0.1], [0.1, 0.2], [5.0, 0.9]], Domain((0, 0, 1, 1), (2, 2)), outside="clamp").array.tolist()
    [[2, 0], [0, 1]]
    """
    named = None if user is None else "user"
    reading = Reading(x, y, crs, named, max_per_user, outside, drop_bad_rows)
    columns, operation = _columns(points, domain, reading)
    users = None if user is None else _users(user, points, len(columns[0]))
    rows = Rows(domain, reading)
    batches = (
        ([c[part] for c in columns], None if users is None else [each[part] for each in users], None, None)
        for part in (slice(at, at + ROWS) for at in range(0, len(columns[0]), ROWS))
    )
    rows.read(batches, operation)
    return rows.counted("points", operation).counts


def _columns(points: Any, domain: Domain, reading: Reading) -> tuple[list[NDArray[np.float64]], Operation | None]:
    """Return the coordinates as given, one column per axis, and the operation that brings them to the map."""
    names, crs, geometry = reading.coordinates, reading.crs, getattr(points, "geometry", None)
    if geometry is not None and not names:
        columns = [geometry.x.to_numpy(np.float64), geometry.y.to_numpy(np.float64)][: domain.ndim]
        return columns, operation_of(crs, geometry.crs, domain, "points")
    operation = None if crs is None else operation_of(crs, None, domain, "points")
    if hasattr(points, "__arrow_c_stream__") and getattr(points, "ndim", 2) == 2:
        import pyarrow as pa

        table = pa.table(points)
        known = [name for name in table.column_names if not name.startswith("__index_level")]
        if len(names or known) != domain.ndim or not set(names) <= set(known):
            raise InputError(f"points have the columns {known}: name {domain.ndim} of them, as x= and y=")
        found = [table.column(name).cast(pa.float64(), safe=False) for name in names or known]
        return [np.asarray(column.fill_null(np.nan), dtype=np.float64) for column in found], operation
    array = np.ma.asarray(points)
    if array.dtype.kind not in "iuf":
        raise InputError(f"points are of type {array.dtype}: coordinates must be numbers")
    plain = np.ma.filled(array.astype(np.float64, copy=False), np.nan)
    if plain.ndim < 2 and (domain.ndim == 1 or not plain.size):
        plain = plain.reshape(-1, domain.ndim)
    if plain.ndim != 2 or plain.shape[1] != domain.ndim:
        raise InputError(f"points have shape {plain.shape}: it must be (m, {domain.ndim})")
    return list(plain.T), operation


def _users(user: Any, points: Any, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a whole number for each point's user, from a column's name or from values, and which points have one."""
    import pandas as pd

    if isinstance(user, str):
        user = points[user]
    given, own = (getattr(each, "index", None) for each in (user, points))
    if isinstance(given, pd.Index) and isinstance(own, pd.Index) and not given.equals(own):
        raise InputError("user has another index than the points: its entries would go to other points; align it")
    masked = isinstance(user, np.ma.MaskedArray)
    ids = pd.Series(user.data if masked else user.to_pandas() if hasattr(user, "to_pandas") else user)
    if len(ids) != number:
        raise InputError(f"user has {len(ids):,} entries: there must be one for each of {number:,} points")
    if masked:
        ids = ids.astype(object).mask(np.ma.getmaskarray(user))
    codes, names = pd.factorize(ids if ids.dtype.kind in "iu" else ids.astype(object))
    if ids.dtype.kind not in "iu":
        gone = [isinstance(name, str) and name.strip() in sql.MISSING for name in names]
        forms = ["" if missing else normalize_name(user=name) for name, missing in zip(names, gone, strict=True)]
        known = pd.factorize(np.array(["", *forms], dtype=object))[0][1:]  # 0 if there is none
        codes = np.append(known, 0)[codes] - 1
    return codes.astype(np.int64), codes >= 0


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
    time: str | int | None = None,
    clock: Clock | None = None,
    steps: int = 0,
) -> Counted:
    """Count the points of a table: of a file, a folder, object storage, or a database.

    Parameters
    ----------
    path : CSV, JSON lines (both may be gzipped), Parquet, Excel, GeoPackage, GeoJSON, FlatGeobuf or a shapefile; "-" is
        standard input. A folder of Parquet files, which may have partitions ("day=2026-11-01"), or a Delta table, here
        or in object storage ("s3://bucket/visits", "gs://…", "az://…"); an Iceberg table by its newest
        ".metadata.json". With `table` a database: a DuckDB file, "postgresql://user@host/city", "sc://host:15002" of
        Spark, or an open Spark session.
    domain : Domain, with the projected CRS if there is one.
    x, y : columns by name, or by number from 0 (for text without a header); none for files with geometry, or with a
        column `wkt` or `geom` of text such as "POINT (8 52)".
    crs : of the coordinates, needed if the domain has one; files with geometry state it, and columns of a database are
        in the domain's by default.
    user, max_per_user, outside : as in `count`, with a column of users. Points are chosen before any are dropped.
    drop_bad_rows : leave out rows with missing, unreadable, NaN or infinite coordinates or a missing user.
    layer : of a GeoPackage; the sheet of a workbook.
    where : a condition on columns besides the place, such as "kind = 'bus' and speed > 3": only rows that meet it are
        counted, before users are bounded. Releases state it. Text compared with a number must be one, or empty.
    decimal : "." or ",": of numbers in text.
    table : of a database, "visits" or "part.visits".
    time, clock, steps : column of times, and the first steps of a clock: each is counted, and its users are bounded, by
        itself (`Counted.counts_of`). Other rows are left out; a row without a time is bad.

    Raises InputError if the table cannot be read, is cut short, lacks a column or has no rows, on rows that cannot be
    used (with how many), a CRS that contradicts the domain's, and a condition on coordinates; OutsideBounds as `count`.

    >>> import pathlib, tempfile, deltahist as dh
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "p.csv").write_text("x,y\\n0.5,0.5\\n1.5,0.2\\n")
    ...     counted = dh.count_file(f"{folder}/p.csv", dh.Domain((0, 0, 2, 2), (2, 2)), x="x", y="y")
    >>> counted.rows, counted.counts.tolist()
    (2, [[1, 0], [1, 0]])
    """
    how = Reading(x, y, crs, user, max_per_user, outside, drop_bad_rows, layer, where, decimal, table, time)
    return _read(path, Rows(domain, how, steps=steps), clock)


def points_file(path: str | Path | Any, domain: Domain, **how: Any) -> Counted:
    """Read the `points` of a file on a line, on the domain's lattice, as `count_file` reads them."""
    return _read(path, Rows(domain, Reading(**how), fine=True), None)


def check_file(path: str | Path | Any, axes: int, *, clock: Clock | None = None, **how: Any) -> None:
    """Raise InputError if a table is missing, cannot be read, or lacks a column: before anything takes long.

    Standard input and pipes, which can be read only once, are not looked at.
    """
    reading = Reading(**how)
    if _is_server(path) or not is_stream(Path(path)):
        with _open(path, reading) as source:
            statement = sql.read_sql(source.given, reading, axes, source.geometry, clock)
            if not _is_server(path):
                source.batches(f"EXPLAIN {statement}")  # the engine knows which types go together


def read_owners(path: str | Path | Any, *, user: str, area: Domain | None = None, **how: Any) -> pd.DataFrame:
    """Read one row for each user of a table: a frame with the users as index, a column for each of x and y. Private.

    Rows are read as by `count_file`, without y as one column of numbers, and brought to the map of an area. Raises
    InputError if the file cannot be read, has no rows, or its CRS contradicts the area's, or if rows lack a user or
    a finite number.
    """
    import pandas as pd

    reading = Reading(user=user, max_per_user=1, **how)
    with open_source(Path(path), reading) as source:
        axes = 1 if len(reading.coordinates) == 1 else 2  # points of a geometry need no columns
        given, label = source.given, source.given.label
        owner = f"{given.name(given.column(user))} AS owner, "
        statement = sql.read_sql(given, reading, axes, source.geometry).replace("SELECT ", f"SELECT {owner}", 1)
        operation = operation_of(reading.crs, None if reading.coordinates else source.crs, area, label)
        rows = source.batches(statement).read_all().combine_chunks().to_batches()
        malformed = source.finish()
    if not rows:
        raise InputError(f"input {label!r} is empty: it has no rows")
    columns, users, _, chosen = _batch(rows[0], axes)
    columns = columns if operation is None else operation(*columns)
    usable = users[1] & np.isfinite(columns).all(axis=0)
    if bad := int((chosen & ~usable).sum()) + malformed:
        raise InputError(
            f"{bad:,} of {len(usable):,} rows of {label!r} have no user, or missing, unreadable, NaN or infinite "
            "numbers: mend them, or take them out"
        )
    names = [normalize_name(user=name) for name in rows[0]["owner"].filter(rows[0]["chosen"]).to_pylist()]
    return pd.DataFrame(dict(enumerate(c[chosen] for c in columns)), index=pd.Index(names, dtype=object))


def _is_server(path: Any) -> bool:
    """Return whether a table is one of a server: an open session, or the address of one."""
    return not isinstance(path, str | Path) or str(path).startswith(("postgresql://", "postgres://", "sc://"))


def _open(path: Any, reading: Reading) -> Any:
    return open_table(path, str(reading.table)) if _is_server(path) else open_source(Path(path), reading)


def _read(path: Any, rows: Rows, clock: Clock | None) -> Counted:
    """Read a table, in batches, or in the engine of a server where all can be done there."""
    domain, reading = rows.domain, rows.reading
    if reading.table is not None and reading.crs is None:
        reading = rows.reading = replace(reading, crs=domain.crs)
    with _open(path, reading) as source:
        label, axes = source.given.label, domain.ndim
        statement = sql.read_sql(source.given, reading, axes, source.geometry, clock, rows.steps)
        operation = operation_of(reading.crs, None if reading.coordinates else source.crs, domain, label)
        if _is_server(path) and not rows.fine and (operation is None or source.projects):
            _count_there(source, statement, rows, operation)
        else:
            rows.read((_batch(each, axes) for each in source.batches(statement)), operation)
        malformed = source.finish()
    return rows.counted(f"rows of {label!r}", operation, malformed)


def _count_there(engine: Any, statement: str, rows: Rows, operation: Operation | None) -> None:
    import pyarrow as pa

    most = rows.reading.max_per_user
    placed = statement if operation is None else engine.project(statement, operation)
    asked = sql.count_sql(placed, rows.domain, engine.dialect.random, steps=rows.steps, most=most)
    found = pa.Table.from_batches(engine.batches(asked))
    places, numbers = (found[name].to_numpy() for name in ("place", "number"))
    rows.add(places, numbers)
    if most is not None:
        kept, users = (found[name].to_numpy()[places >= 0] for name in ("kept", "users"))
        rows.kept.add(places[places >= 0], kept)
        rows.users = None if rows.steps else int(users.sum())


def _batch(rows: Any, axes: int) -> Batch:
    def known(name: str) -> Any:
        if name not in rows.schema.names:
            return None
        column = rows[name]
        return column.fill_null(0).to_numpy(zero_copy_only=False), np.asarray(column.is_valid())

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
    return columns, known("u"), known("step"), np.asarray(rows["chosen"])


def operation_of(stated: str | None, own: Any, domain: Domain | None, name: str) -> Operation | None:
    """Return the operation from coordinates to the map; None if they are on it, or plain numbers.

    Raises InputError if their CRS is not known, contradicts the file's, or there is no map for it.
    """
    given = own if stated is None else stated
    map_crs = None if domain is None else domain.crs
    if given is None and map_crs is None:
        return None
    if domain is None or given is None or map_crs is None:
        raise InputError(
            f"coordinates of {name!r} are in {given and read_crs(given).to_string()[:40]}, the map is in {map_crs}: "
            "name both CRS, since degrees are never treated as planar"
        )
    source = read_crs(given)
    if stated is not None and own is not None and not read_crs(own).equals(source, ignore_axis_order=True):
        raise InputError(f"crs is {stated!r}, but {name!r} states another one: leave it out, or correct the file")
    return Operation.onto(domain, source)
