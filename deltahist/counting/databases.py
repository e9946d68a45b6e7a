"""Counting for a map inside a database: the cell of a point by the formula of `Domain.lattice`, bit for bit."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.arrays import (
    SAMPLE,
    Outside,
    Reading,
    Tally,
    UserBound,
    bad_rows_error,
    named_rows,
)  # fmt: skip
from deltahist.counting.conditions import refuse_place
from deltahist.counting.engines import Engine, Session, unbound
from deltahist.counting.expressions import make_safe, read_text
from deltahist.counting.opening import open_engine
from deltahist.counting.private import Private
from deltahist.counting.sparse import SparseCounts
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
) -> Private | SparseCounts:
    """Count the points of a table in each cell, in the database that holds it.

    Parameters
    ----------
    table : a table or view, "visits" or "part.visits".
    domain : Domain
    database : a DuckDB file ("city.duckdb"), an address ("postgresql://user@host/city", "sc://host:15002" or
        "spark://host:7077" of Spark), or an open connection of DuckDB or session of Spark.
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
    from ibis import _

    try:
        records = unbound(table, engine.schema(table))
        columns = dict(zip("xy", _places(records, domain, x, y), strict=False))
        if user is not None:
            check_column(user, records.columns)
            columns["user"] = records[user]
        points = _chosen(records, how.where, {x, y}, engine).select(**columns)
        place = _place_of(domain, outside, *(points[name] for name in "xy"[: domain.ndim]))
        with engine.snapshot() as look:
            # One statement says all: the table may change between two.
            if bound is None:
                rows = look.fetch(points.select(place=place).group_by("place").agg(points=_.count()))
                number = named = kept = rows["points"].to_numpy()
            elif engine.bounds_users:
                rows = look.fetch(_bounded(points.mutate(place=place), bound))
                number, named, kept = (rows[name].to_numpy() for name in ("points", "named", "kept"))
            else:
                rows = look.fetch(points.select("user", place=place))
                users = rows["user"].combine_chunks()
                number, named = np.ones(len(users), dtype=np.int64), named_rows(users)
            cells = _checked(look, points, domain, rows["place"], number, named)
            if bound is not None and not engine.bounds_users:
                bound.add(users, cells)
                cells = bound.cells()
                kept = np.ones(len(cells), dtype=np.int64)
            tally.add(cells[cells >= 0], kept[cells >= 0])
    finally:
        engine.close()
    return tally.private(how)


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

    @ibis.udf.scalar.builtin(name="floor", signature=(("float64",), "float64"))
    def floor(value):  # type: ignore[no-untyped-def]
        """Return the floor as a float: Ibis' own is cast to a whole number at each step, which takes long."""

    flat: Any = None
    for axis, column in enumerate(columns):
        low, high, step = domain.low[axis], domain.high[axis], domain.step[axis]
        # Points beyond the edges come to them first, or to a little inside: floats can then neither overflow, nor be
        # smaller than a float can be, which PostgreSQL takes for errors.
        near, far = low + step * _NEAR, high + (high - low)
        at = ibis.least(ibis.greatest(column, _number(near)), _number(far))
        place = floor((at - _number(low)) * _number(1.0 / step) + _number(0.5))
        place = ibis.least(place, _number(domain.lattice_shape[axis] - 1))
        # All are whole, and below 2^53: floats are exact.
        cell = floor(place / _number(domain.steps[axis]))
        flat = cell if flat is None else flat * _number(domain.shape[axis]) + cell
    return ibis.cases((reduce(operator.and_, [_is_finite(column) for column in columns]), flat.cast("int64")))


def _place_of(domain: Domain, outside: str | None, *columns: Any) -> Any:
    """Return the cell of points inside; of those outside −2 − cell, −1 to drop them; NULL without a place."""
    import ibis

    cell = cell_of(domain, *columns)
    if outside == "clamp":
        return cell
    # A NULL cell stays NULL.
    off = _whole(-2) - cell if outside is None else ibis.cases((cell >= _whole(0), _whole(-1)))
    return ibis.cases((_is_inside(domain, columns), cell), else_=off)


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


def _bounded(points: Any, bound: UserBound) -> Any:
    """Return numbers of points by place: of all, of those with a user, and of those that stay.

    The score of a user's i-th point is a keyed hash of both, and the user's smallest scores stay, as in `UserBound`.
    """
    import ibis

    @ibis.udf.scalar.builtin(signature=((), "int64"))
    def monotonically_increasing_id():  # type: ignore[no-untyped-def]
        """Return a number of the row, from where it stands in the table."""

    user = points["user"]
    named = user.notnull()
    if user.type().is_string():
        named = user != ""
    elif user.type().is_floating():
        named &= ~user.isnan()
    # The key comes as a row of a table: constants are shown by the engine's pages and logs.
    secret = ibis.memtable({"secret": [bound.secret]}, schema={"secret": "string"})
    rows = points.select("place", "user", named=named.fill_null(False), row=monotonically_increasing_id())
    rows = rows.cross_join(secret)
    rows = rows.mutate(number=ibis.row_number().over(group_by="user", order_by="row"))
    score = (rows.secret + rows.number.cast("string") + ":" + rows.user.cast("string")).hexdigest("sha256")
    rows = rows.mutate(score=score)
    rows = rows.mutate(rank=ibis.row_number().over(group_by="user", order_by=["score", "number"]))
    return rows.group_by("place").agg(
        points=rows.count(), named=rows.count(where=rows.named), kept=rows.count(where=rows["rank"] < bound.most)
    )


def _checked(
    look: Session,
    points: Any,
    domain: Domain,
    place: Any,
    number: NDArray[np.int64],
    named: NDArray[np.int64] | NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Return cells (k,) for places that `_place_of` gives, −1 for points dropped; raise what `count` raises.

    Parameters
    ----------
    number, named : (k,) points at each place, and how many of them have a user.
    """
    import pyarrow.compute as pc

    has_place = pc.is_valid(place).to_numpy()
    cells: NDArray[np.int64] = pc.fill_null(place, -1).to_numpy()
    off = cells < -1
    if off.any():
        seen = Outside(domain)
        columns = [points[name] for name in "xy"[: domain.ndim]]
        outside = reduce(operator.and_, map(_is_finite, columns)) & ~_is_inside(domain, columns)
        some = look.fetch(points.filter(outside).select(*columns).limit(SAMPLE))
        sample = [column.to_numpy() for column in some.columns]
        seen.look(sample, sample)
        seen.points, seen.outside = int(number[has_place].sum()), int(number[off].sum())
        seen.refuse_many()
    rows = int(number.sum())
    if bad := rows - int(named[has_place].sum()):
        raise bad_rows_error(bad, rows, "points", "user" in points.columns)
    return np.where(off, -2 - cells, cells)


def _is_inside(domain: Domain, columns: Sequence[Any]) -> Any:
    sides = zip(columns, domain.low, domain.high, strict=True)
    return reduce(operator.and_, [column.between(_number(low), _number(high)) for column, low, high in sides])


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
