"""SQL of every engine: the columns that are read, and a row's place by the formula of `Domain.lattice`, bit for bit.

Statements are in DuckDB's SQL, and sqlglot translates them for other engines. A place is a whole number: the flat cell
of a point inside, step · cells + cell in a stream, `size` more for a point outside (in its nearest cell), or one of the
negative numbers below for a row that is no point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.where import Condition
from deltahist.errors import InputError, check_choice
from deltahist.preprocessing import SINCE_1970, Clock, Preprocessing
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain

#: Places of rows that are no points: unusable, not chosen, before the first step, after the last.
BAD, UNMATCHED, BEFORE, AFTER = -1, -2, -3, -4
#: Text in place of a user that is missing, as databases and data frames write it.
MISSING = ("", r"\N", "None", "NULL", "null", "NaN", "nan", "NA", "N/A", "<NA>")
#: Names of columns that hold points as text, "POINT (8.07 52.26)", and the pattern of such text.
_WKT = ("wkt", "geom", "geometry", "the_geom")
_POINT = r"(?i)^\s*(?:SRID=\d+;)?\s*POINT\s*[ZM]*\s*\(\s*(\S+)\s+([^\s)]+)[^()]*\)\s*$"
#: Part of a lattice step by which a point may be moved to the lower edge: far too little to change its step.
_NEAR = 2.0**-20
_LARGEST = float(np.finfo(np.float64).max)
_FRACTIONS = ("double", "float", "real", "decimal", "numeric")
_KINDS = {
    "number": (*_FRACTIONS, "int", "bigint", "smallint", "tinyint", "hugeint", "ubigint", "uinteger", "usmallint",
               "utinyint", "uhugeint", "long", "short", "byte"),
    "text": ("varchar", "text", "string", "char", "bpchar", "uuid", "enum"),
    "time": ("timestamp", "date"),
    "truth": ("bool",),
}  # fmt: skip


def kind_of(type_: str) -> str:
    """Return the kind of a column by its type's name in an engine: "number", "text", "time", "truth" or ""."""
    name = type_.lower()
    if name.endswith("]") or name.startswith("interval"):
        return ""
    return next((kind for kind, starts in _KINDS.items() if name.startswith(starts)), "")


#: What `str.strip` takes away. Engines have other sets of their own, and names have one form.
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))


@dataclass(frozen=True)
class Dialect:
    """What engines write each in their own way, in words of DuckDB's SQL that sqlglot leaves as they are.

    Parameters
    ----------
    name : sqlglot's. seconds : of a time since 1970, as a float, may have a fraction. local : a time on the clocks of a
        zone. hash : of a value, 64 bits. normal : text in the form of `normalize_name`. Spark has no NFC, so
        text with combining marks has none.
    random : a fresh random number for each row. PostgreSQL draws it from its system's entropy, Spark from a generator
        that a random seed starts, which is not cryptographic; DuckDB does not need it.
    """

    name: str
    seconds: str
    local: str
    hash: str
    normal: str
    random: str = ""

    def write(self, statement: str) -> str:
        """Return a statement of DuckDB's SQL in this dialect."""
        import sqlglot

        return sqlglot.transpile(statement, read="duckdb", write=self.name)[0]


_ZONED = "timezone('{zone}', CAST({} AS TIMESTAMPTZ))"
_STRIPPED = f"regexp_replace({{0}}, '^[{_SPACES}]+|[{_SPACES}]+$', '', 'g')"
DUCKDB = Dialect("duckdb", "epoch_us({}) / 1e6", _ZONED, "hash({})", f"nfc_normalize({_STRIPPED})")
POSTGRESQL = Dialect(
    "postgres", "extract(epoch FROM {})", _ZONED, "hashtextextended(CAST({} AS TEXT), 0)", f"normalize({_STRIPPED})",
    "gen_random_uuid()",
)  # fmt: skip
SPARK = Dialect(
    "spark", "unix_micros(CAST({} AS TIMESTAMPTZ)) / 1e6", "from_utc_timestamp({}, '{zone}')", "xxhash64({})",
    "CASE WHEN NOT regexp_matches({0}, '\\p{{M}}') THEN " + _STRIPPED + " END", "uuid()",
)  # fmt: skip


def quote(name: str) -> str:
    """Return a name in SQL, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: object) -> str:
    """Return a text in SQL, whatever it holds."""
    return "'" + str(text).replace("'", "''") + "'"


def number(value: float) -> str:
    """Return a float that every engine reads as the same bits."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


@dataclass(frozen=True)
class Reading:
    """How rows are read and used, as `count_file` describes it; `time` is the column of times."""

    x: Any = None
    y: Any = None
    crs: str | None = None
    user: Any = None
    max_per_user: int | None = None
    outside: str | None = None
    drop_bad_rows: bool = False
    layer: str | None = None
    where: str | None = None
    decimal: str = "."
    table: str | None = None
    time: Any = None

    def __post_init__(self) -> None:
        check_choice(("clamp", "drop", None), outside=self.outside)
        check_choice((".", ","), decimal=self.decimal)
        for name in ("x", "y", "user", "time"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))
        if (self.user is None) != (self.max_per_user is None):
            raise InputError(f"max_per_user is {self.max_per_user!r}: it requires user, and the reverse")

    @property
    def coordinates(self) -> list[str]:
        """Names or numbers of the coordinate columns; none for points of a geometry."""
        return [c for c in (self.x, self.y) if c is not None]

    def preprocessing(self, operation: Operation | None) -> Preprocessing:
        """Return how rows become counts; it says what may be left out, whether or not anything was."""
        could = ("bad rows", self.drop_bad_rows), ("points outside", self.outside == "drop")
        dropped = tuple(kind for kind, is_left_out in could if is_left_out)
        projection = None if operation is None else operation.projection
        most = 1 if self.max_per_user is None else self.max_per_user
        return Preprocessing(most, self.user is not None, dropped, projection, self.where)


@dataclass(frozen=True)
class Given:
    """The columns of a relation as they are read, in SQL.

    Parameters
    ----------
    label : in messages. relation : what follows FROM. types : of columns by name, in order.
    aliases : what columns are called in the relation, if not by their names. decimal : mark of numbers in text; None
        where text holds no numbers.
    """

    label: str
    relation: str
    types: dict[str, str]
    dialect: Dialect
    aliases: dict[str, str] | None = None
    decimal: str | None = None

    def column(self, asked: str) -> str:
        """Return the name of a column that is given by its name, in a structure ("loc.x"), or by its number from 0."""
        names = list(self.types)
        if asked in names:
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
        """Return a column as floats, NULL where text is not a number; raise InputError if its type holds none."""
        kind, name = kind_of(self.types[column]), self.name(column)
        if kind == "number":
            return f"CAST({name} AS DOUBLE)"
        if kind != "text" or self.decimal is None:
            raise InputError(f"column {column!r} is of the type {self.types[column]}: it must hold numbers")
        if self.decimal == ",":  # whether 1.234 is little or much could only be guessed
            return f"CASE WHEN NOT contains({name}, '.') THEN TRY_CAST(replace({name}, ',', '.') AS DOUBLE) END"
        return f"TRY_CAST({name} AS DOUBLE)"

    def user(self, column: str) -> str:
        """Return a hash of each user's `normalize_name`, NULL where there is none."""
        name, kind = self.name(column), kind_of(self.types[column])
        known = f"{name} IS NOT NULL"
        if kind == "text":
            name = self.dialect.normal.format(f"CAST({name} AS VARCHAR)")
            known = f"{name} NOT IN ({', '.join(map(literal, MISSING))})"
        elif kind != "number":
            raise InputError(f"user column {column!r} is of the type {self.types[column]}: it must be text or integers")
        elif self.types[column].lower().startswith(_FRACTIONS):  # beyond 2^53 they cannot be told apart
            known = f"{name} = floor({name}) AND abs({name}) <= {number(2**53)}"
            name = f"CAST({name} AS BIGINT)"
        return f"CASE WHEN {known} THEN {self.dialect.hash.format(name)} END"

    def step(self, column: str, clock: Clock, steps: int) -> str:
        """Return the steps of times: -1 before the first, `steps` after the last, NULL where there is no time."""
        first, every = clock.start, clock.every or 1
        if not clock.every:
            at = self.number(column)
        else:
            time = self._time(column, clock.format)
            if clock.tz is not None:
                time = self.dialect.local.format(time, zone=clock.tz)
            at = f"floor({self.dialect.seconds.format(time)})"
            if clock.months:
                at = f"12 * extract(year FROM {time}) + extract(month FROM {time}) - 1"
                first, every = clock.first_month, clock.months
        step = f"floor(({at} - {number(first)}) / {number(every)})"
        bounded = f"CAST(least(greatest({step}, {number(-1)}), {number(steps)}) AS BIGINT)"
        return f"CASE WHEN abs({at}) < {number(1e15)} AND {at} = floor({at}) THEN {bounded} END"

    def _time(self, column: str, format: str | None) -> str:
        kind, name = kind_of(self.types[column]), self.name(column)
        if kind == "time":
            return name
        if format in SINCE_1970:
            since = f"floor({self.number(column)} / {number(1000 if format == 'unix-ms' else 1)})"
            return f"to_timestamp(CASE WHEN abs({since}) < {number(1e11)} THEN {since} END)"
        if kind != "text" or self.decimal is None:
            raise InputError(
                f"the time column {column!r} is of the type {self.types[column]}: with every= it must hold dates or "
                "date-times, or seconds since 1970 with time_format='unix'; step numbers take a whole number as start"
            )
        text = f"trim({name})"
        if format is not None:
            return f"CAST(try_strptime({text}, {literal(format)}) AS TIMESTAMPTZ)"
        short = f"try_strptime({text}, ['%Y-%m-%dT%H:%M%z', '%Y-%m-%d %H:%M%z'])"
        return f"coalesce(TRY_CAST({text} AS TIMESTAMPTZ), {short})"

    def chosen(self, condition: Condition) -> str:
        """Return whether rows meet a condition; NULL where text that it compares cannot be read."""
        unread: list[str] = []

        def column(asked: str, kind: str) -> str:
            name = self.column(asked)
            own = kind_of(self.types[name])
            if own == "text" and self.decimal is not None and kind in ("number", "truth"):
                read = self.number(name) if kind == "number" else f"TRY_CAST({self.name(name)} AS BOOLEAN)"
                unread.append(f"trim({self.name(name)}) <> '' AND ({read}) IS NULL")
                return read
            return self.name(name)

        met = f"coalesce({condition.sql(column)}, false)"
        return f"CASE WHEN NOT coalesce({' OR '.join(unread)}, false) THEN {met} END" if unread else met


def read_sql(
    given: Given, reading: Reading, axes: int, geometry: str | None, clock: Clock | None = None, steps: int = 1
) -> str:
    """Return the statement that reads a relation: x (and y), or g (a geometry), chosen, and maybe u and step.

    Raises InputError if it lacks a column, a column is of another kind, or the condition asks for coordinates.
    """
    places = [given.column(c) for c in reading.coordinates]
    if len(places) == axes:
        columns = [f"{given.number(c)} AS {n}" for c, n in zip(places, "xy", strict=False)]
    elif places:
        raise InputError(f"input {given.label!r} has {axes} axes: name x{' and y' if axes == 2 else ' only'}")
    elif geometry is not None:
        places = [geometry]
        fields = [f"{geometry}.x", f"{geometry}.y"][:axes]  # GeoArrow's points
        columns = [f"{given.name(geometry)} AS g"]
        if set(fields) <= set(given.types):
            columns = [f"{given.number(c)} AS {n}" for c, n in zip(fields, "xy", strict=False)]
    else:
        places = [c for c in given.types if c.lower() in _WKT and kind_of(given.types[c]) == "text"][:1]
        if not places or given.dialect is not DUCKDB:
            raise InputError(f"input {given.label!r} needs x= (and y=), the columns of its coordinates")
        parts = (f"regexp_extract({given.name(places[0])}, {literal(_POINT)}, {group})" for group in (1, 2))
        columns = [f"TRY_CAST({part} AS DOUBLE) AS {n}" for part, n in zip(parts, "xy"[:axes], strict=False)]
    timed = None if clock is None else given.column(reading.time)
    chosen = "true"
    if reading.where is not None:
        condition = Condition.of(reading.where)
        condition.check_columns({*places, *([] if geometry is None else [geometry])}, timed)
        chosen = given.chosen(condition)
    columns.append(f"{chosen} AS chosen")
    if reading.user is not None:
        columns.append(f"{given.user(given.column(reading.user))} AS u")
    if clock is not None and timed is not None:
        columns.append(f"{given.step(timed, clock, steps)} AS step")
    return f"SELECT {', '.join(columns)} FROM {given.relation}"


def place_sql(rows: str, domain: Domain, *, steps: int = 0, users: bool = False) -> str:
    """Return a statement for the place of each row of a statement with x (and y), chosen, and maybe step and u."""
    axes = "xy"[: domain.ndim]
    point = " AND ".join(f"{axis} BETWEEN {number(-_LARGEST)} AND {number(_LARGEST)}" for axis in axes)
    sides = zip(axes, domain.low, domain.high, strict=True)
    inside = " AND ".join(f"{axis} BETWEEN {number(low)} AND {number(high)}" for axis, low, high in sides)
    key = f"step * {domain.size} + cell" if steps else "cell"
    cases = [("NOT chosen", UNMATCHED), ("NOT point", BAD)]
    cases += [("u IS NULL", BAD)] if users else []
    cases += [("step IS NULL", BAD), ("step < 0", BEFORE), (f"step >= {steps}", AFTER)] if steps else []
    when = " ".join(f"WHEN {case} THEN {place}" for case, place in cases)
    place = f"CASE {when} WHEN inside THEN {key} ELSE {max(steps, 1) * domain.size} + {key} END AS place"
    more = ("u, " if users else "") + ("step, " if steps else "")
    cell = f"CAST({_cell(domain, axes)} AS BIGINT) AS cell"
    flags = f"coalesce({point}, false) AS point, coalesce({inside}, false) AS inside"
    return f"SELECT {more}{place} FROM (SELECT chosen, {more}{cell}, {flags} FROM ({rows}) AS r) AS p"


def count_sql(rows: str, domain: Domain, random: str, *, steps: int = 0, most: int | None = None) -> str:
    """Return a statement for the number of rows in each place; with `most` also how many rows stay, and of whom.

    Each user keeps the `most` rows with the smallest random numbers, in each step.
    """
    places = place_sql(rows, domain, steps=steps, users=most is not None)
    if most is None:
        return f"SELECT place, count(*) AS number FROM ({places}) AS q GROUP BY place"
    # Rows that are no points have no user, or they would take a point's room.
    by = f"CASE WHEN place >= 0 THEN u END, {'step, ' if steps else ''}place < 0"
    ranked = f"SELECT place, row_number() OVER (PARTITION BY {by} ORDER BY drawn) AS k FROM"
    drawn = f"SELECT *, {random} AS drawn FROM ({places}) AS q"
    return (
        f"SELECT place, count(*) AS number, count(CASE WHEN k <= {most} THEN 1 END) AS kept, "
        f"count(CASE WHEN k = 1 THEN 1 END) AS users FROM ({ranked} ({drawn}) AS d) AS s GROUP BY place"
    )


def _cell(domain: Domain, axes: str) -> str:
    """Return the flat cell of points, clamped to the domain, as a float, which is exact; of any number, and of none."""
    flat = ""
    for axis, at in enumerate(axes):
        low, high, step = domain.low[axis], domain.high[axis], domain.step[axis]
        # The nearest of the numbers between: far away floats could overflow, and close by be too small for PostgreSQL.
        # Without a number, or NaN, the upper one, which nobody looks at. The formula rises, so that no step changes.
        near = f"least(greatest({at}, {number(low + step * _NEAR)}), {number(high + (high - low))})"
        place = f"floor(({near} - {number(low)}) * {number(1.0 / step)} + {number(0.5)})"
        place = f"least(greatest({place}, {number(0)}), {number(domain.lattice_shape[axis] - 1)})"
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
        name a user. step : of each row, and whether it has one. fine : cells are the lattice's steps along a line.
    """
    point, inside = np.ones((2, len(columns[0])), dtype=np.bool_)
    for column, low, high in zip(columns, domain.low, domain.high, strict=True):
        point &= np.isfinite(column)
        inside &= (column >= low) & (column <= high)
    known = columns if point.all() else [np.where(point, column, 0.0) for column in columns]
    cell = domain.lattice(known[0])[:, 0] if fine else domain.flat_cells(known)
    size = domain.lattice_shape[0] if fine else domain.size
    place: NDArray[np.int64] = cell if step is None else step[0] * size + cell
    place = np.where(inside, place, max(steps, 1) * size + place)
    if step is not None:
        place[step[0] >= steps] = AFTER
        place[step[0] < 0] = BEFORE
        place[~step[1]] = BAD
    if named is not None:
        place[~named] = BAD
    place[~point] = BAD
    if chosen is not None:
        place[~chosen] = UNMATCHED
    return place
