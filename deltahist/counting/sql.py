"""SQL of every engine: the columns that are read, and a row's place by the formula of `Domain.lattice`, bit for bit.

Statements are written in DuckDB's SQL, and sqlglot writes them for other engines. A place is a whole number: the flat
cell of a point inside, step · cells + cell in a stream, `size` more for a point outside (in its nearest cell), or one
of the numbers below 0 here for a row that is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.where import Condition
from deltahist.errors import InputError
from deltahist.preprocessing import SINCE_1970, Clock
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    from deltahist.counting.reading import Reading

#: Places of rows that are no points: unusable, not chosen, before the first step, after the last, without a time.
BAD, UNMATCHED, BEFORE, AFTER, UNTIMED = -1, -2, -3, -4, -5
#: Part of a lattice step by which a point may be moved to the lower edge: far too little to change its step.
_NEAR = 2.0**-20
_LARGEST = float(np.finfo(np.float64).max)
_KINDS = {
    "number": ("double", "float", "real", "decimal", "numeric", "int", "bigint", "smallint", "tinyint", "hugeint",
               "ubigint", "uinteger", "usmallint", "utinyint", "uhugeint", "long", "short", "byte"),
    "text": ("varchar", "text", "string", "char", "bpchar"),
    "time": ("timestamp", "date"),
    "truth": ("bool",),
}  # fmt: skip


def kind_of(type_: str) -> str:
    """Return the kind of a column by its type's name in an engine: "number", "text", "time", "truth" or ""."""
    name = type_.lower()
    if name.endswith("]") or name.startswith("interval"):
        return ""
    return next((kind for kind, starts in _KINDS.items() if name.startswith(starts)), "")


@dataclass(frozen=True)
class Dialect:
    """What engines write each in their own way, in words of DuckDB's SQL that sqlglot leaves as they are.

    Parameters
    ----------
    name : sqlglot's. seconds : of a time since 1970, as a float, may have a fraction. hash : of a value, 64 bits.
    random : a fresh random number for each row. PostgreSQL draws it from its system's entropy, Spark from a generator
        that a random seed starts, which is not cryptographic; of DuckDB it is not asked.
    """

    name: str
    seconds: str
    hash: str
    random: str

    def write(self, statement: str) -> str:
        """Return a statement of DuckDB's SQL in this dialect."""
        import sqlglot

        if self.name == "duckdb":
            return statement
        return sqlglot.transpile(statement, read="duckdb", write=self.name)[0]


DUCKDB = Dialect("duckdb", "epoch_us({}) / 1e6", "hash({})", "random()")
POSTGRESQL = Dialect("postgres", "extract(epoch FROM {})", "hashtextextended(CAST({} AS TEXT), 0)", "gen_random_uuid()")
SPARK = Dialect("spark", "unix_micros(CAST({} AS TIMESTAMPTZ)) / 1e6", "xxhash64({})", "uuid()")


def quote(name: str) -> str:
    """Return a name in SQL, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def number(value: float) -> str:
    """Return a float that every engine reads as the same bits."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


@dataclass(frozen=True)
class Given:
    """The columns of a relation as they are read, in SQL.

    Parameters
    ----------
    label : in messages. relation : what stands after FROM. types : of columns by name, in order.
    aliases : what columns are called in the relation, if not by their names. decimal : mark of numbers in text; None
        where text holds no numbers. header : whether names are names.
    """

    label: str
    relation: str
    types: dict[str, str]
    dialect: Dialect
    aliases: dict[str, str] | None = None
    decimal: str | None = None
    header: bool = True

    def column(self, asked: str) -> str:
        """Return the name of a column that is given by its name, in a structure ("loc.x"), or by its number from 0."""
        names = list(self.types)
        if asked in names and (self.header or not asked.isdigit()):
            return asked
        if asked.isdigit() and int(asked) < len(names):
            return names[int(asked)]
        raise InputError(
            f"column {asked!r} is not in {self.label!r}: it must be one of {', '.join(names[:20])}, or a number from 0"
        )

    def name(self, column: str) -> str:
        """Return a column's name in the relation, quoted."""
        return quote(column if self.aliases is None else self.aliases[column])

    def number(self, column: str) -> str:
        """Return a column as floats, NULL where text is none; raise InputError if its type holds none."""
        kind, name = kind_of(self.types[column]), self.name(column)
        if kind == "number":
            return f"CAST({name} AS DOUBLE)"
        if kind != "text" or self.decimal is None:
            raise InputError(f"column {column!r} is of the type {self.types[column]}: it must hold numbers")
        text = f"TRY_CAST({name} AS DOUBLE)"
        if self.decimal == ",":  # whether 1.234 is little or much could only be guessed
            text = f"CASE WHEN NOT contains({name}, '.') THEN TRY_CAST(replace({name}, ',', '.') AS DOUBLE) END"
        return text

    def user(self, column: str) -> str:
        """Return a hash of each user's name, NULL where there is none."""
        name, kind = self.name(column), self.types[column].lower()
        if kind_of(kind) == "text":
            return f"CASE WHEN {name} <> '' THEN {self.dialect.hash.format(name)} END"
        if kind.startswith(("double", "float", "real")):  # beyond 2^53 they cannot be told apart
            whole = f"{name} = floor({name}) AND abs({name}) <= {number(2**53)}"
            return f"CASE WHEN {whole} THEN {self.dialect.hash.format(f'CAST({name} AS BIGINT)')} END"
        return f"CASE WHEN {name} IS NOT NULL THEN {self.dialect.hash.format(name)} END"

    def step(self, column: str, clock: Clock, steps: int) -> str:
        """Return the steps of times: -1 before the first, `steps` after the last, NULL where there is no time."""
        kind, name = kind_of(self.types[column]), self.name(column)
        most = 1e15
        if clock.every == 0:
            since = self.number(column)
        elif clock.format in SINCE_1970 and kind != "time":
            since, most = f"floor({self.number(column)} / {number(1000 if clock.format == 'unix-ms' else 1)})", 1e11
        elif kind == "time":
            since = f"floor({self.dialect.seconds.format(name)})"
        elif kind == "text" and self.decimal is not None:
            text = f"trim({name})"
            if clock.format is not None:
                mask = clock.format.replace("'", "''")
                read = f"CAST(try_strptime({text}, '{mask}') AS TIMESTAMPTZ)"
            else:
                short = f"try_strptime({text}, ['%Y-%m-%dT%H:%M%z', '%Y-%m-%d %H:%M%z'])"
                read = f"coalesce(TRY_CAST({text} AS TIMESTAMPTZ), {short})"
            since = f"floor({self.dialect.seconds.format(read)})"
        else:
            raise InputError(
                f"the time column {column!r} is of the type {self.types[column]}: with every= it must hold dates or "
                "date-times, or seconds since 1970 with time_format='unix'; step numbers take a whole number as start"
            )
        after = f"({since} - {number(clock.start)})"
        step = f"floor({after} / {number(clock.every)})" if clock.every else after
        bounded = f"CAST(least(greatest({step}, {number(-1)}), {number(steps)}) AS BIGINT)"
        return f"CASE WHEN abs({since}) < {number(most)} AND {since} = floor({since}) THEN {bounded} END"

    def chosen(self, condition: Condition) -> str:
        """Return whether rows meet a condition, in this dialect; NULL where text that it compares cannot be read."""
        unread: list[str] = []

        def column(asked: str, kind: str) -> str:
            name = self.column(asked)
            own = kind_of(self.types[name])
            if own == "text" and self.decimal is not None and kind in ("number", "truth"):
                read = self.number(name) if kind == "number" else f"TRY_CAST({self.name(name)} AS BOOLEAN)"
                unread.append(f"trim({self.name(name)}) <> '' AND ({read}) IS NULL")
                return read
            if kind and own != kind and (kind, own) != ("text", "time"):
                raise InputError(
                    f"where compares column {name!r} with {kind}, but it is of the type {self.types[name]}: numbers "
                    "stand without quotes, text and times in single ones"
                )
            return self.name(name)

        met = f"coalesce({condition.sql('duckdb', column)}, false)"
        return f"CASE WHEN NOT coalesce({' OR '.join(unread)}, false) THEN {met} END" if unread else met


def place_sql(
    rows: str, domain: Domain, dialect: Dialect, *, fine: bool = False, steps: int = 0, users: bool = False
) -> str:
    """Return a statement for the place of each row of a statement with x (and y), chosen, and maybe step and u.

    With `fine` cells are the lattice's steps along a line.
    """
    axes = "xy"[: domain.ndim]
    point = " AND ".join(f"{axis} BETWEEN {number(-_LARGEST)} AND {number(_LARGEST)}" for axis in axes)
    sides = zip(axes, domain.low, domain.high, strict=True)
    inside = " AND ".join(f"{axis} BETWEEN {number(low)} AND {number(high)}" for axis, low, high in sides)
    size = _size(domain, fine)
    key = f"step * {size} + cell" if steps else "cell"
    cases = [("NOT chosen", UNMATCHED), ("NOT point", BAD)]
    cases += [("u IS NULL", BAD)] if users else []
    cases += [("step IS NULL", UNTIMED), ("step < 0", BEFORE), (f"step >= {steps}", AFTER)] if steps else []
    when = " ".join(f"WHEN {case} THEN {place}" for case, place in cases)
    place = f"CASE {when} WHEN inside THEN {key} ELSE {max(steps, 1) * size} + {key} END AS place"
    more = ("u, " if users else "") + ("step, " if steps else "")
    cell = f"CAST({_cell(domain, axes, fine)} AS BIGINT) AS cell"
    flags = f"coalesce({point}, false) AS point, coalesce({inside}, false) AS inside"
    return f"SELECT {more}{place} FROM (SELECT chosen, {more}{cell}, {flags} FROM ({rows}) AS r) AS p"


def count_sql(rows: str, domain: Domain, dialect: Dialect, *, steps: int = 0, most: int | None = None) -> str:
    """Return a statement for the number of rows in each place; with `most` also how many rows stay, and of whom.

    Each user keeps the `most` rows with the smallest random numbers, in each step.
    """
    places = place_sql(rows, domain, dialect, steps=steps, users=most is not None)
    if most is None:
        return f"SELECT place, count(*) AS number FROM ({places}) AS q GROUP BY place"
    # Rows that are no points have no user, or they would take a point's room.
    by = f"CASE WHEN place >= 0 THEN u END, {'step, ' if steps else ''}place < 0"
    ranked = f"SELECT place, row_number() OVER (PARTITION BY {by} ORDER BY drawn) AS k FROM"
    drawn = f"SELECT *, {dialect.random} AS drawn FROM ({places}) AS q"
    return (
        f"SELECT place, count(*) AS number, count(CASE WHEN k <= {most} THEN 1 END) AS kept, "
        f"count(CASE WHEN k = 1 THEN 1 END) AS users FROM ({ranked} ({drawn}) AS d) AS s GROUP BY place"
    )


def _size(domain: Domain, fine: bool) -> int:
    return domain.lattice_shape[0] if fine else domain.size


def _cell(domain: Domain, axes: str, fine: bool) -> str:
    """Return the flat cell of points, clamped to the domain, as a float, which is exact; of any number, and of none."""
    flat = ""
    for axis, at in enumerate(axes):
        low, high, step = domain.low[axis], domain.high[axis], domain.step[axis]
        # The nearest of the numbers between: far away floats could overflow, and close by be too small for PostgreSQL.
        # Of no number, or NaN, the upper one, which nobody looks at. The formula rises, so that no step changes.
        near = f"least(greatest({at}, {number(low + step * _NEAR)}), {number(high + (high - low))})"
        place = f"floor(({near} - {number(low)}) * {number(1.0 / step)} + {number(0.5)})"
        last = number(domain.lattice_shape[axis] - 1)
        place = f"least(greatest({place}, {number(0)}), {last})"
        if not fine:
            place = f"floor({place} / {number(domain.steps[axis])})"
        flat = f"{flat} * {number(domain.shape[axis])} + {place}" if flat else place
    return flat


def places_of(
    columns: list[NDArray[np.float64]],
    domain: Domain,
    chosen: NDArray[np.bool_] | None,
    named: NDArray[np.bool_] | None,
    step: tuple[NDArray[np.int64], NDArray[np.bool_]] | None,
    steps: int = 0,
    fine: bool = False,
) -> NDArray[np.int64]:
    """Return the places of rows (m,): what `place_sql` states, by `Domain.flat_cells`.

    Parameters
    ----------
    columns : coordinates on the map, NaN where there are none. chosen, named : rows that meet the condition, and that
        name a user. step : of each row, and whether it has one.
    """
    point, inside = np.ones((2, len(columns[0])), dtype=np.bool_)
    for column, low, high in zip(columns, domain.low, domain.high, strict=True):
        point &= np.isfinite(column)
        inside &= (column >= low) & (column <= high)
    known = columns if point.all() else [np.where(point, column, 0.0) for column in columns]
    cell = domain.lattice(known[0])[:, 0] if fine else domain.flat_cells(known)
    size = _size(domain, fine)
    place: NDArray[np.int64] = cell if step is None else step[0] * size + cell
    place = np.where(inside, place, max(steps, 1) * size + place)
    if step is not None:
        place[step[0] >= steps] = AFTER
        place[step[0] < 0] = BEFORE
        place[~step[1]] = UNTIMED
    if named is not None:
        place[~named] = BAD
    place[~point] = BAD
    if chosen is not None:
        place[~chosen] = UNMATCHED
    return place


def read_sql(
    given: Given, reading: Reading, axes: int, time: tuple[Clock, int] | None, geometry: str | None = None
) -> str:
    """Return the statement that reads a relation: x (and y), or g (a geometry), chosen, and maybe u and step.

    Raises InputError if it lacks a column, a column is of another kind, or the condition asks for coordinates.
    """
    coordinates, names = [given.column(c) for c in reading.coordinates], "xy"
    expression = given.number
    if not coordinates and geometry is not None:
        fields = [f"{geometry}.x", f"{geometry}.y"][:axes]
        if set(fields) <= set(given.types):  # GeoArrow's points
            coordinates = fields
        else:
            coordinates, names, expression = [geometry], "g", given.name
    elif len(coordinates) != axes:
        need = "x and y" if axes == 2 else "x only"
        raise InputError(f"input {given.label!r} needs columns for its coordinates: name {need}, as x= and y=")
    columns = [f"{expression(c)} AS {n}" for c, n in zip(coordinates, names, strict=False)]
    timed = None if reading.time is None or time is None else given.column(str(reading.time))
    chosen = "true"
    if reading.where is not None:
        condition = Condition.of(reading.where)
        condition.check_columns({*coordinates, *([] if geometry is None else [geometry])}, timed)
        chosen = given.chosen(condition)
    columns.append(f"{chosen} AS chosen")
    if reading.user is not None:
        columns.append(f"{given.user(given.column(str(reading.user)))} AS u")
    if timed is not None and time is not None:
        columns.append(f"{given.step(timed, *time)} AS step")
    return f"SELECT {', '.join(columns)} FROM {given.relation}"
