"""Counting for a map inside a database: the cell of a point by the formula of `Domain.lattice`, bit for bit."""

from __future__ import annotations

import operator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from deltahist.counting.arrays import SAMPLE, Outside, Reading, Tally, bad_rows_error
from deltahist.counting.conditions import refuse_place
from deltahist.counting.engines import Engine, Session, open_engine, unbound
from deltahist.counting.expressions import make_safe, read_text
from deltahist.counting.private import Private
from deltahist.counting.values import DTYPES, check_column, is_endless, kind_of, readable_columns
from deltahist.errors import InputError
from deltahist.space.domain import Domain

#: Part of a lattice step by which a point may be moved to the lower edge: far too little to change its step.
_NEAR = 2.0**-20


def count_table(
    table: str,
    domain: Domain,
    *,
    database: str | Path | Any,
    x: str,
    y: str | None = None,
    where: str | None = None,
    outside: str | None = None,
    user: str | None = None,
    max_per_user: int | None = None,
    key: bytes | None = None,
) -> Private:
    """Count the points of a table in each cell, in the database that holds it.

    Parameters
    ----------
    table : a table or view, "visits" or "part.visits".
    domain : Domain
    database : a DuckDB file ("city.duckdb"), an address ("postgresql://user@host/city"), or an open DuckDB connection.
    x, y : columns of coordinates, in the domain's CRS; x alone in 1-D.
    where : a condition on columns besides these, "kind = 'bus' and extract(hour from time) >= 22" (docs/queries.md).
    outside, max_per_user, key : as for `count`.
    user : the column that says whose a point is.

    Returns
    -------
    Private : what `count` gives for the same points.

    Raises
    ------
    InputError
        On NULL, NaN or infinite coordinates or missing users (with how many), no such table or column, a condition that
        cannot be taken or asks for coordinates, or a database that does not answer.
    OutsideBounds
        If many points lie outside, unless `outside` says what becomes of them.

    >>> import duckdb
    >>> city = duckdb.connect()
    >>> _ = city.execute("CREATE TABLE visits AS SELECT * FROM (VALUES (0.1, 0.1), (0.1, 0.2), (0.7, 0.9)) AS v (x, y)")
    >>> count_table("visits", Domain((0, 0, 1, 1), (2, 2)), database=city, x="x", y="y").tolist()
    [[2, 0], [0, 1]]
    """
    reading = Reading(x, y, user=user, max_per_user=max_per_user, outside=outside, key=key, where=where)
    bound, how = reading.user_bound(), reading.preprocessing()
    tally = Tally(domain)
    engine = open_engine(database)
    try:
        records = unbound(table, engine.schema(table))
        columns = dict(zip("xy", _places(records, domain, x, y), strict=False))
        if user is not None:
            check_column(user, records.columns)
            columns["user"] = records[user]
        points = _chosen(records, how.where, {x, y}, engine).select(**columns)
        places = [points[name] for name in "xy"[: domain.ndim]]
        good = reduce(operator.and_, [_is_finite(column) for column in places])
        sides = zip(places, domain.low, domain.high, strict=True)
        inside = reduce(operator.and_, [column.between(_number(low), _number(high)) for column, low, high in sides])
        cell = cell_of(domain, *places)
        if outside == "drop":
            import ibis

            cell = ibis.cases((inside, cell), else_=_whole(-1))
        with engine.snapshot() as look:
            _check(look, points, good, inside, domain, outside)
            if bound is None:
                found = points.select(cell=cell).group_by("cell").agg(points=lambda each: each.count())
                rows = look.fetch(found)
                cells, number = (rows[name].to_numpy() for name in ("cell", "points"))
                tally.add(cells[cells >= 0], number[cells >= 0])
            else:
                rows = look.fetch(points.select("user", cell=cell))
                bound.add(rows["user"].combine_chunks(), rows["cell"].to_numpy())
                tally.add(bound.cells())
    finally:
        engine.close()
    return Private.of(tally.counts(), how, domain)


def cell_of(domain: Domain, *columns: Any) -> Any:
    """Return the flat cell of points as an Ibis expression, int64, bit for bit as `Domain.flat_cells` does.

    Parameters
    ----------
    columns : Ibis columns of coordinates, float64, one per axis.

    Returns
    -------
    Ibis expression; NULL where a coordinate is NULL, NaN or infinite. No coordinate makes it fail.

    >>> import ibis
    >>> points = ibis.table({"x": "float64"}, name="points")
    >>> cell_of(Domain((0, 1), (4,)), points.x).type()
    Int64(nullable=True)
    """
    import ibis

    flat = None
    for axis, column in enumerate(columns):
        low, high, step = domain.low[axis], domain.high[axis], domain.step[axis]
        # Points beyond the edges come to them first, or to a little inside: floats can then neither overflow, nor be
        # smaller than a float can be, which PostgreSQL takes for errors.
        near, far = low + step * _NEAR, high + (high - low)
        at = ibis.least(ibis.greatest(column, _number(near)), _number(far))
        place = ((at - _number(low)) * _number(1.0 / step) + _number(0.5)).floor()
        place = ibis.least(place, _whole(domain.lattice_shape[axis] - 1))
        cell = (place.cast("float64") / _number(float(domain.steps[axis]))).floor()
        flat = cell if flat is None else flat * _whole(domain.shape[axis]) + cell
    return ibis.cases((reduce(operator.and_, [_is_finite(column) for column in columns]), flat))


def _places(records: Any, domain: Domain, x: str, y: str | None) -> list[Any]:
    """Return the columns of coordinates, as floats."""
    names = [x] if y is None else [x, y]
    if len(names) != domain.ndim:
        raise InputError(
            f"x is {x!r} and y is {y!r}: the domain has {domain.ndim} axes, and a column for each is needed"
        )
    out = []
    for name in names:
        check_column(name, records.columns)
        kind = records[name].type()
        if not kind.is_numeric() or is_endless(kind):
            raise InputError(
                f"column {name!r} is of type {kind}: coordinates are numbers, in the CRS of the "
                f"domain ({domain.crs or 'none'}); add columns that are projected, or use count_file, which projects"
            )
        out.append(records[name].cast("float64"))
    return out


def _chosen(records: Any, where: str | None, places: set[str | None], engine: Engine) -> Any:
    """Return the records that meet the condition."""
    if where is None:
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
        refuse_place(f"where is {where!r}", column, column in places)
    return records.filter(made.value)


def _check(look: Session, points: Any, good: Any, inside: Any, domain: Domain, outside: str | None) -> None:
    """Raise the errors of `count` about points outside, without coordinates, or without users."""
    usable = good
    if users := "user" in points.columns:
        user = points["user"]
        named = user.nullif("") if user.type().is_string() else user
        usable = good & (_is_finite(user) if user.type().is_floating() else named.notnull())
    tests = {"good": good, "off": good & ~inside, "usable": usable}
    sums = {name: test.count(where=test) for name, test in tests.items()}
    (found,) = look.fetch(points.aggregate(rows=points.count(), **sums)).to_pylist()
    if outside is None and found["off"]:
        seen = Outside(domain)
        columns = [name for name in points.columns if name != "user"]
        some = look.fetch(points.filter(good & ~inside).select(*columns).limit(SAMPLE))
        sample = [some[name].to_numpy() for name in columns]
        seen.look(sample, sample)
        seen.points, seen.outside = found["good"], found["off"]
        seen.refuse_many()
    if bad := found["rows"] - found["usable"]:
        raise bad_rows_error(bad, found["rows"], "points", users)


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
