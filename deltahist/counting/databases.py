"""Counting for a map inside a database: the cell of a point by the formula of `Domain.lattice`, bit for bit.

Where cells or steps cannot be computed there, coordinates and times come out in batches, as from a file.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.arrays import (
    SAMPLE,
    Batch,
    CountedRows,
    Outside,
    PlaceTally,
    Reading,
    Tally,
    UserBound,
    collect,
    refuse_bad_rows,
)  # fmt: skip
from deltahist.counting.conditions import refuse_place, refuse_times
from deltahist.counting.engines import Engine, NoTable, Session, unbound
from deltahist.counting.expressions import make_safe, read_text
from deltahist.counting.opening import open_engine
from deltahist.counting.values import DTYPES, is_endless, kind_of, normalize, readable_columns
from deltahist.errors import InputError, list_names, meant, meant_file
from deltahist.preprocessing import SINCE_1970, Clock
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    from deltahist.counting.steps import StepPlaces

#: Part of a lattice step by which a point may be moved to the lower edge: far too little to change its step.
_NEAR = 2.0**-20
#: Digits of seconds that databases do not bring to microseconds alike.
_FINE = 9


def read_table(
    engine: Engine,
    rows: TableRows,
    into: Tally | PlaceTally,
    reading: Reading,
    operation: Operation | None,
    *,
    steps: StepPlaces | None = None,
    seen: Outside | None = None,
) -> CountedRows:
    """Read all rows of a table that is open into a tally, as `collect` reads batches.

    Raises InputError as `count_table` does.
    """
    bound = reading.user_bound()
    if steps is not None:
        steps.check_type(rows.columns.schema().to_pyarrow().field("time").type)
    why = None
    if operation is not None and not engine.projects:
        why = f"coordinates in {reading.crs!r} are projected"
    elif not isinstance(into, Tally):
        why = "places are read one by one"
    elif steps is not None and not rows.has_steps(steps.clock):
        why = f"times of type {rows.columns['time'].type()} are read"
    elif bound is not None and not engine.bounds_users:
        why = "users are bounded"
    with engine.snapshot() as look:
        total = None if reading.where is None else rows.total(look)
        if why is None:
            assert isinstance(into, Tally)
            with rows.onto_map(look, operation) as placed:
                return _count(look, placed, into, reading, operation, steps, total, bound)
        if not engine.has_batches:
            raise InputError(
                f"the database {engine.name} hands out no rows, and {why} outside of it: add columns that need "
                "none of it (coordinates on the map, timestamps), or take a file or another database"
            )
        batches = rows.batches(look, total)
        return collect(batches, f"rows of {reading.table!r}", into, reading, operation, steps=steps, seen=seen)


@contextmanager
def open_table(database: str | Path | Any, reading: Reading, axes: int) -> Iterator[tuple[Engine, TableRows]]:
    """Open a database, and look up the columns of its table; raise InputError if it, or one of them, is not there."""
    for name, usual in (("layer", None), ("format", None), ("decimal", ".")):
        if (value := getattr(reading, name)) != usual:
            raise InputError(f"{name} is {value!r} with the table {reading.table!r}: it is about files; leave it out")
    is_path = isinstance(database, Path) or (isinstance(database, str) and "://" not in database)
    if database and is_path and not Path(database).is_file():  # DuckDB would make one
        path = Path(database)
        kind = "is a folder" if path.is_dir() else f"does not exist{meant_file(path)}"
        raise InputError(f"input {str(database)!r} {kind}: a table is one of a database")
    engine = open_engine(database)
    try:
        yield engine, TableRows.of(engine, reading, axes)
    finally:
        engine.close()


@dataclass(frozen=True)
class TableRows:
    """The rows of a table that meet a condition: coordinates "x" and "y", "user" and "time" as Ibis columns.

    Projected ones have coordinates as they were read beside those on the map.
    """

    columns: Any
    axes: str
    every: Any
    is_projected: bool = False

    @classmethod
    def of(cls, engine: Engine, reading: Reading, ndim: int) -> TableRows:
        """Return the rows of a table; raise InputError if it lacks a column, or one is of another type."""
        table = str(reading.table)
        try:
            records = unbound(table, engine.schema(table), engine.name_parts)
        except NoTable as problem:
            known = engine.tables()
            raise InputError(f"{problem}: it has {list_names(known) or 'none'}{meant(table, known)}") from None
        axes, names = "xy"[:ndim], reading.coordinates
        if not names or len(names) != ndim:
            need = "x and y" if ndim != 1 else "x only"
            raise InputError(f"input {table!r} needs columns for its coordinates: name {need}, as x= and y=")
        columns = {axis: _coordinate(records, name, table) for axis, name in zip(axes, names, strict=True)}
        if reading.user is not None:
            columns["user"] = _column(records, str(reading.user), table)
        if reading.time is not None:
            columns["time"] = _time(_column(records, str(reading.time), table), engine)
        return cls(_chosen(records, reading, engine).select(**columns), axes, records)

    @property
    def points(self) -> list[Any]:
        """Columns of coordinates."""
        return [self.columns[axis] for axis in self.axes]

    @property
    def read(self) -> list[Any]:
        """Columns of coordinates as they were read."""
        return [self.columns[f"{axis}_read"] for axis in self.axes] if self.is_projected else self.points

    @contextmanager
    def onto_map(self, look: Session, operation: Operation | None) -> Iterator[TableRows]:
        """Open the rows with coordinates on the map."""
        if operation is None:
            yield self
            return
        with look.project(self.columns, operation, self.axes) as columns:
            yield replace(self, columns=columns, is_projected=True)

    def has_steps(self, clock: Clock) -> bool:
        """Return whether the database can compute steps from the times."""
        kind = self.columns["time"].type()
        if kind.is_integer():
            return not clock.every or clock.format in SINCE_1970
        return bool(clock.every and kind.is_timestamp() and kind.scale != _FINE)

    def total(self, look: Session) -> int:
        """Return the number of rows, whether or not they meet the condition."""
        return int(look.fetch(self.every.aggregate(rows=self.every.count()))["rows"][0].as_py())

    def batches(self, look: Session, total: int | None) -> Iterator[Batch]:
        """Yield the rows; those that do not meet the condition are told at the end."""
        rows = 0
        for table in look.batches(self.columns):
            found = {name: table[name].combine_chunks() for name in table.column_names}
            places = [found[axis].to_numpy(zero_copy_only=False) for axis in self.axes]
            rows += len(table)
            yield Batch(places, found.get("user"), times=found.get("time"))
        if total is not None:
            yield self._left_out(max(total - rows, 0))

    def _left_out(self, number: int) -> Batch:
        """Return a batch of rows of which none was chosen."""
        nobody = self.columns.schema().to_pyarrow().empty_table()
        found = {name: nobody[name].combine_chunks() for name in nobody.column_names}
        places = [found[axis].to_numpy(zero_copy_only=False) for axis in self.axes]
        chosen = np.zeros(number, dtype=np.bool_)
        return Batch(places, found.get("user"), times=found.get("time"), chosen=chosen)


def _count(
    look: Session,
    rows: TableRows,
    into: Tally,
    reading: Reading,
    operation: Operation | None,
    steps: StepPlaces | None,
    total: int | None,
    bound: UserBound | None,
) -> CountedRows:
    """Count rows in the database by step and place; one statement says all, as the table may change between two."""
    import pyarrow.compute as pc

    domain = into.domain
    by = {"place": _place_of(domain, reading.outside == "drop", *rows.points)}
    if rows.is_projected:
        by["point"] = _all_of(map(_is_finite, rows.read))
    if steps is not None:
        by["step"] = step_of(rows.columns["time"], steps.clock, steps.steps)
    if bound is None:
        points = rows.columns.select(**by)
        found = look.fetch(points.group_by(list(by)).agg(points=points.count()))
        number = named = kept = found["points"].to_numpy()
    else:
        found = look.fetch(_bounded(rows.columns.select("user", **by), bound))
        number, named, kept = (found[name].to_numpy() for name in ("points", "named", "kept"))
    has_place = pc.is_valid(found["place"]).to_numpy()
    cells: NDArray[np.int64] = pc.fill_null(found["place"], 0).to_numpy()
    off = cells < 0
    # A point that the map has no place for is one outside to whoever judges the bounds, and a bad row.
    point = found["point"].to_numpy() if rows.is_projected else has_place
    is_timely, due, step = np.ones(len(cells), dtype=np.bool_), point, None
    if steps is not None:
        is_timely = pc.is_valid(found["step"]).to_numpy()
        step = steps.enter(pc.fill_null(found["step"], -1).to_numpy(), is_timely, number)
        due = point & (step >= steps.due)
    astray = due & (off | ~has_place)
    if reading.outside is None and astray.any():
        _refuse_outside(look, rows, domain, operation, steps, int(number[due].sum()), int(number[astray].sum()))
    usable = np.where(has_place & is_timely, named, 0)
    read = int(number.sum())
    bad = read - int(usable.sum())
    unmatched = 0 if total is None else max(total - read, 0)
    refuse_bad_rows(bad, read + unmatched, f"rows of {reading.table!r}", reading, steps)
    cells = np.where(off, -1 if reading.outside == "drop" else -2 - cells, cells)
    if step is not None:
        cells = np.where((cells < 0) | (step < 0), -1, step * domain.size + cells)
    counts = has_place & is_timely & (cells >= 0)
    into.add(cells[counts], kept[counts])
    outside = int(usable[off].sum())
    return CountedRows(read + unmatched, bad, unmatched, outside, None, reading.preprocessing(operation))


def _place_of(domain: Domain, is_dropped: bool, *columns: Any) -> Any:
    """Return the cell of points inside, by the formula of `Domain.flat_cells`, bit for bit, as an Ibis expression.

    Of points outside it is -1 if they are dropped, else -2 - cell; NULL where a coordinate is NULL, NaN or infinite. No
    coordinate makes it fail.
    """
    import ibis

    clamped = _flat(domain, columns, clamped=True)
    return ibis.cases(
        (_is_well_inside(domain, columns), _flat(domain, columns)),
        (_is_inside(domain, columns), clamped),
        (_all_of(map(_is_finite, columns)), _whole(-1) if is_dropped else _whole(-2) - clamped),
    )


def _flat(domain: Domain, columns: Sequence[Any], *, clamped: bool = False) -> Any:
    """Return the flat cell of finite points anywhere if `clamped`, or else of those that are well inside."""
    import ibis

    flat: Any = None
    for axis, at in enumerate(columns):
        low, high, step = domain.low[axis], domain.high[axis], domain.step[axis]
        if clamped:
            # Far away floats could overflow, and close by be smaller than a float can be, which PostgreSQL takes for
            # an error.
            at = ibis.least(ibis.greatest(at, _number(low + step * _NEAR)), _number(high + (high - low)))
        if low != 0:
            at = at - _number(low)
        # The floor of steps / n, rounded as it is, is that of ⌊steps⌋ / n: a float below a whole multiple k n, exact as
        # a float, is still below k once it is divided by n (docs/queries.md has the proof).
        cell = _floor((at * _number(1.0 / step) + _number(0.5)) / _number(domain.steps[axis]))
        if clamped:
            cell = ibis.least(cell, _number(domain.shape[axis] - 1))
        # All are whole, and below 2^53: floats are exact.
        flat = cell if flat is None else flat * _number(domain.shape[axis]) + cell
    return flat.cast("int64")


def _is_well_inside(domain: Domain, columns: Sequence[Any]) -> Any:
    """Return whether points are far enough inside for `_flat` without guards, as nearly all points are."""
    return _all_of(
        column.between(_number(low + step * _NEAR), _number(_farthest(domain, axis)))
        for axis, (column, low, step) in enumerate(zip(columns, domain.low, domain.step, strict=True))
    )


def _farthest(domain: Domain, axis: int) -> float:
    """Return a coordinate near the upper edge up to which no lattice step is beyond the last.

    All of the formula's operations, rounded as they are, keep the order of coordinates.
    """
    low, high, step = domain.low[axis], domain.high[axis], domain.step[axis]
    back = step
    while ((high - back) - low) * (1.0 / step) + 0.5 >= domain.lattice_shape[axis]:
        back *= 2
    return high - back


def step_of(times: Any, clock: Clock, steps: int) -> Any:
    """Return the step of times as an Ibis expression, int64, as `steps_of` gives it.

    Parameters
    ----------
    times : Ibis column: timestamps in UTC, or whole numbers. clock, steps : as of `count_steps`.

    Returns
    -------
    Ibis expression: -1 before the first step, `steps` after the last; NULL where there is no time.
    """
    import ibis

    kind = times.type()
    if kind.is_timestamp():
        since = times.truncate("s").epoch_seconds().cast("float64")
        most = float("inf")
    elif clock.every:
        since = _floor(times.cast("float64") / _number(1000.0 if clock.format == "unix-ms" else 1.0))
        most = 1e11
    else:
        since, most = times.cast("float64"), 1e15
    after = since - _number(float(clock.start))
    # Both are whole, and below 2^53: the floor of their quotient is exact.
    step = _floor(after / _number(float(clock.every))) if clock.every else after
    end = _number(float(steps))
    found = ibis.cases((step < _number(0.0), _number(-1.0)), (step >= end, end), else_=step)
    known = since.notnull() if most == float("inf") else since.abs() < _number(most)
    return ibis.cases((known, found)).cast("int64")


def _floor(value: Any) -> Any:
    """Return the floor as a float: Ibis' own is cast to a whole number at each step, which takes long."""
    import ibis

    @ibis.udf.scalar.builtin(name="floor", signature=(("float64",), "float64"))
    def floor(value):  # type: ignore[no-untyped-def]
        """Return the floor."""

    return floor(value)


def _column(records: Any, name: str, table: str) -> Any:
    """Return a column of a table; raise InputError if it is not there."""
    if name not in records.columns:
        listed = list_names(records.columns) + meant(name, records.columns)
        raise InputError(f"column {name!r} is not in {table!r}: its columns are {listed}")
    return records[name]


def _coordinate(records: Any, name: str, table: str) -> Any:
    """Return a column of coordinates, as floats."""
    column = _column(records, name, table)
    kind = column.type()
    if not kind.is_numeric() or is_endless(kind):
        raise InputError(
            f"column {name!r} is of type {kind}: coordinates are numbers; make a view that casts it, or that has the "
            "coordinates of its points"
        )
    return column.cast("float64")


def _time(column: Any, engine: Engine) -> Any:
    """Return a column of times: timestamps of UTC, numbers, or text."""
    kind = column.type()
    if kind.is_timestamp() and kind.scale == _FINE:
        return column
    if kind.is_timestamp() or kind.is_date():
        return normalize(engine.narrow(column)).cast(DTYPES["time"])
    if kind.is_integer() and not kind.is_uint64():
        return column.cast("int64")
    if kind.is_numeric() and not is_endless(kind):
        return column.cast("float64")
    if kind.is_string():
        return column
    raise InputError(f"column {column.get_name()!r} is of type {kind}: times are timestamps, dates, numbers or text")


def _chosen(records: Any, reading: Reading, engine: Engine) -> Any:
    """Return the records that meet the condition."""
    if (where := reading.where) is None:
        return records
    import ibis

    kinds = readable_columns(records, engine)
    given = ibis.table(
        {name: DTYPES[str(kind_of(column.type()))] for name, column in kinds.items()}, name="records"
    )
    made = make_safe(read_text(where, given), given, kinds)
    if made.kind != "truth":
        raise InputError(f"where is {where!r}, of the kind {made.kind!r}: a condition is true or false")
    for column in sorted(made.columns):
        refuse_place(f"where is {where!r}", column, column in reading.coordinates)
        refuse_times(f"where is {where!r}", column, column == reading.time)
    return records.filter(made.value)


def _bounded(points: Any, bound: UserBound) -> Any:
    """Return numbers of points by place and step: of all, of those with a user, and of those that stay.

    The score of a user's i-th usable point of a step is a keyed hash of all three, and the smallest scores stay, as in
    `UserBound`.
    """
    import ibis

    @ibis.udf.scalar.builtin(signature=((), "int64"))
    def monotonically_increasing_id():  # type: ignore[no-untyped-def]
        """Return a number of the row, from where it stands in the table."""

    by = [name for name in ("place", "step", "point") if name in points.columns]
    known = [name for name in by if name != "point"]
    user = points["user"]
    named = user.notnull()
    if user.type().is_string():
        named = user != ""
    elif user.type().is_floating():
        named &= ~user.isnan()
    named = named.fill_null(False)
    usable = reduce(operator.and_, [points[name].notnull() for name in known], named)
    # The key comes as a row of a table: constants are shown by the engine's pages and logs.
    secret = ibis.memtable({"secret": [bound.secret]}, schema={"secret": "string"})
    rows = points.select(*by, "user", named=named, usable=usable, row=monotonically_increasing_id())
    rows = rows.cross_join(secret)
    each = ["user", "usable", *known[1:]]
    rows = rows.mutate(number=ibis.row_number().over(group_by=each, order_by="row"))
    text = rows.secret + rows.number.cast("string") + ":"
    if "step" in by:
        text += rows.step.cast("string") + ":"
    rows = rows.mutate(score=(text + rows.user.cast("string")).hexdigest("sha256"))
    rows = rows.mutate(rank=ibis.row_number().over(group_by=each, order_by=["score", "number"]))
    return rows.group_by(by).agg(
        points=rows.count(),
        named=rows.count(where=rows.named),
        kept=rows.count(where=rows.usable & (rows["rank"] < bound.most)),
    )


def _refuse_outside(
    look: Session,
    rows: TableRows,
    domain: Domain,
    operation: Operation | None,
    steps: StepPlaces | None,
    points: int,
    outside: int,
) -> None:
    """Raise OutsideBounds if too many points of the steps that are due lie outside, by their numbers."""
    off = _all_of(map(_is_finite, rows.read)) & ~_is_inside(domain, rows.points).fill_null(False)
    if steps is not None:
        step = step_of(rows.columns["time"], steps.clock, steps.steps)
        off &= step.between(_whole(steps.due), _whole(steps.steps - 1))
    some = look.fetch(rows.columns.filter(off).select(*rows.read).limit(SAMPLE))
    sample = [column.to_numpy() for column in some.columns]
    seen = Outside(domain)
    seen.operation = operation
    seen.look(sample, sample if operation is None else operation(*sample))
    seen.points, seen.outside = points, outside
    seen.refuse_many()


def _is_inside(domain: Domain, columns: Sequence[Any]) -> Any:
    sides = zip(columns, domain.low, domain.high, strict=True)
    return _all_of(column.between(_number(low), _number(high)) for column, low, high in sides)


def _all_of(conditions: Iterable[Any]) -> Any:
    return reduce(operator.and_, conditions)


def _is_finite(column: Any) -> Any:
    largest = float(np.finfo(np.float64).max)
    return column.between(_number(-largest), _number(largest)).fill_null(False)


def _number(value: float) -> Any:
    """Return a float that every database reads as the same bits."""
    import ibis

    return ibis.literal(repr(float(value))).cast("float64")


def _whole(value: int) -> Any:
    import ibis

    return ibis.literal(value).cast("int64")
