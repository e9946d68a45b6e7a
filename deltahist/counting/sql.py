"""Write SQL that reads columns, checks conditions on rows, and computes places by the formula of `Domain.lattice`.

Statements are in DuckDB's SQL, which sqlglot translates for other engines. A place is a whole number, the same in NumPy
and in every engine. The place of a point inside the domain is step · cells + cell. The place of a point outside is
that of the nearest cell plus steps · cells. A row without a point has the place BAD, UNMATCHED, BEFORE or AFTER.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, check_choice, check_whole
from deltahist.preprocessing import SINCE_1970, Clock, Preprocessing, check_line
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain

#: Places of rows that are unusable, do not match `where`, or lie before the first or after the last step.
BAD, UNMATCHED, BEFORE, AFTER = -1, -2, -3, -4
#: Text that databases and data frames write for missing values.
MISSING = ("", r"\N", "None", "NULL", "null", "NaN", "nan", "NA", "N/A", "<NA>")
#: Pattern for the beginning of a non-integer type's name.
_FRACTIONS = "double|float|real|decimal|numeric"


def classify_type(type_: str) -> str:
    """Classify an engine's column type as "number", "text", "time", "truth" or, for any other type, ""."""
    name = type_.lower()
    if name.endswith("]") or name.startswith("interval"):
        return ""
    kinds = {
        "number": f"u?(big|small|tiny|huge)?int|long|short|byte|{_FRACTIONS}",
        "text": "varchar|text|string|char|bpchar|uuid|enum",
        "time": "timestamp|date",
        "truth": "bool",
    }
    return next((kind for kind, starts in kinds.items() if re.match(starts, name)), "")


@dataclass(frozen=True)
class Dialect:
    """Expressions that differ between engines. They use DuckDB's syntax, and functions that sqlglot leaves unchanged.

    name : name of the dialect in sqlglot. seconds : seconds since 1970 as a float. local : local time in a time zone.
    hash : 64-bit hash of a value. normal : text as `normalize_name` returns it. Spark has no NFC, so its expression is
        NULL for text with combining marks.
    random : fresh random number for each row. PostgreSQL draws from its server's entropy. Spark draws from a randomly
        seeded generator, which is not cryptographic. DuckDB needs none, because `UserBound` draws numbers for files.
    """

    name: str
    seconds: str
    local: str
    hash: str
    normal: str
    random: str = ""

    def write(self, statement: str) -> str:
        """Translate a statement from DuckDB's SQL to this dialect."""
        import sqlglot

        return sqlglot.transpile(statement, read="duckdb", write=self.name)[0]


#: Strips the same characters as `str.strip`, because the engines' own functions strip different ones.
_STRIPPED = "regexp_replace({{0}}, '^[{0}]+|[{0}]+$', '', 'g')".format(
    "".join(filter(str.isspace, map(chr, range(0x3001))))
)
DUCKDB = Dialect(
    "duckdb", "epoch_us({}) / 1e6", "timezone('{zone}', CAST({} AS TIMESTAMPTZ))", "hash({})",
    f"nfc_normalize({_STRIPPED})",
)  # fmt: skip
POSTGRESQL = Dialect(
    "postgres", "extract(epoch FROM {})", DUCKDB.local, "hashtextextended(CAST({} AS TEXT), 0)",
    f"normalize({_STRIPPED})", "gen_random_uuid()",
)  # fmt: skip
SPARK = Dialect(
    "spark", "unix_micros(CAST({} AS TIMESTAMPTZ)) / 1e6", "from_utc_timestamp({}, '{zone}')", "xxhash64({})",
    "CASE WHEN NOT regexp_matches({0}, '\\p{{M}}') THEN " + _STRIPPED + " END", "uuid()",
)  # fmt: skip


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def write_number(value: float) -> str:
    """Write a float as SQL that every engine evaluates to the same bits."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


@dataclass(frozen=True)
class Reading:
    """Parameters of `count_file`. Columns are given as text: by name, or by number from 0."""

    x: str | None = None
    y: str | None = None
    z: str | None = None
    crs: str | None = None
    user: str | None = None
    max_per_user: int | None = None
    outside: str | None = None
    drop_bad_rows: bool = False
    where: str | None = None
    table: str | None = None
    time: str | None = None

    @classmethod
    def of(cls, **given: Any) -> Reading:
        """Make a `Reading` from parameters, converting column numbers to text."""
        columns = {name: str(given[name]) for name in ("x", "y", "z", "user", "time") if given.get(name) is not None}
        return cls(**{**given, **columns})

    def __post_init__(self) -> None:
        check_choice(("clamp", "drop", None), outside=self.outside)
        if self.user is None:
            check_choice((None,), **{"max_per_user without user": self.max_per_user})
        else:
            most: Any = self.max_per_user
            check_whole(**{"max_per_user with user": most})

    @property
    def coordinates(self) -> list[str]:
        """The coordinate columns that were named. The list is empty for geometries."""
        return [c for c in (self.x, self.y, self.z) if c is not None]

    def preprocessing(self, operation: Operation | None) -> Preprocessing:
        """Record how rows become counts, including every kind of row that may be dropped, even if none was."""
        could = ("bad rows", self.drop_bad_rows), ("points outside", self.outside == "drop")
        dropped = tuple(kind for kind, may_be in could if may_be)
        projection = None if operation is None else operation.projection
        most = 1 if self.max_per_user is None else self.max_per_user
        return Preprocessing(most, self.user is not None, dropped, projection, self.where)


@dataclass(frozen=True)
class Relation:
    """A table expression in SQL, with the types of its columns.

    label : name of the table in messages. relation : expression after FROM.
    types : types of the columns by name, in order. aliases : names of the columns in SQL, if these differ.
    texts : True if text columns may contain numbers and times.
    """

    label: str
    relation: str
    types: dict[str, str]
    dialect: Dialect
    aliases: dict[str, str] | None = None
    texts: bool = False

    def find_column(self, asked: str) -> str:
        """Find a column by its name (such as "loc.x" in a structure) or its number from 0, and return its name."""
        names = list(self.types)
        if asked.isdigit() and asked not in names and int(asked) < len(names):
            return names[int(asked)]
        return str(check_choice(tuple(names), **{f"column of {self.label!r}": asked}))

    def quote_column(self, column: str) -> str:
        return quote_name(column if self.aliases is None else self.aliases[column])

    def find_kind(self, column: str, *kinds: str) -> str:
        """Return a column's kind. Raises InputError if it is neither in `kinds` nor text that may be converted."""
        kind, text = classify_type(self.types[column]), ("text",) if self.texts else ()
        return str(check_choice((*kinds, *text), **{f"column {column!r} of type {self.types[column]}": kind}))

    def write_floats(self, column: str) -> str:
        """Return SQL that reads a column as floats, or as NULL where text is not a number."""
        cast = "CAST" if self.find_kind(column, "number") == "number" else "TRY_CAST"
        return f"{cast}({self.quote_column(column)} AS DOUBLE)"

    def hash_users(self, column: str) -> str:
        """Return SQL that hashes the normalized names of users, and is NULL for a missing user."""
        name = self.quote_column(column)
        known = f"{name} IS NOT NULL"
        if self.find_kind(column, "text", "number") == "text":
            name = self.dialect.normal.format(f"CAST({name} AS VARCHAR)")
            known = f"{name} NOT IN ({', '.join(map(quote_text, MISSING))})"
        elif re.match(_FRACTIONS, self.types[column].lower()):  # floats beyond 2^53 skip whole numbers
            known = f"{name} = floor({name}) AND abs({name}) <= {write_number(2**53)}"
            name = f"CAST({name} AS BIGINT)"
        return f"CASE WHEN {known} THEN {self.dialect.hash.format(name)} END"

    def write_steps(self, column: str, clock: Clock, steps: int) -> str:
        """Return SQL for time steps: -1 before the first step, `steps` after the last, and NULL for a missing time."""
        first, every = clock.start, clock.every or 1
        if not clock.every:
            at = self.write_floats(column)
        else:
            time = self._write_times(column, clock.format)
            if clock.tz is not None:
                time = self.dialect.local.format(time, zone=clock.tz)
            at = f"floor({self.dialect.seconds.format(time)})"
            if clock.months:
                at = f"12 * extract(year FROM {time}) + extract(month FROM {time}) - 1"
                first, every = clock.first_month, clock.months
        step = f"floor(({at} - {write_number(first)}) / {write_number(every)})"
        bounded = f"CAST(least(greatest({step}, {write_number(-1)}), {write_number(steps)}) AS BIGINT)"
        return f"CASE WHEN abs({at}) < {write_number(1e15)} AND {at} = floor({at}) THEN {bounded} END"

    def _write_times(self, column: str, format: str | None) -> str:
        name = self.quote_column(column)
        if format in SINCE_1970 and classify_type(self.types[column]) != "time":
            since = f"floor({self.write_floats(column)} / {write_number(1000 if format == 'unix-ms' else 1)})"
            return f"to_timestamp(CASE WHEN abs({since}) < {write_number(1e11)} THEN {since} END)"
        if self.find_kind(column, "time") == "time":
            return name
        text = f"trim({name})"
        if format is not None:
            return f"CAST(try_strptime({text}, {quote_text(format)}) AS TIMESTAMPTZ)"
        short = f"try_strptime({text}, ['%Y-%m-%dT%H:%M%z', '%Y-%m-%d %H:%M%z'])"
        return f"coalesce(TRY_CAST({text} AS TIMESTAMPTZ), {short})"

    def write_condition(self, condition: Condition) -> str:
        """Return SQL that is true for rows that match a condition, and NULL for rows with unreadable text."""
        unread: list[str] = []

        def column(asked: str, kind: str) -> str:
            name = self.find_column(asked)
            own, quoted = classify_type(self.types[name]), self.quote_column(name)
            if own == "text" and self.texts and kind in ("number", "truth"):
                read = self.write_floats(name) if kind == "number" else f"TRY_CAST({quoted} AS BOOLEAN)"
                unread.append(f"trim({quoted}) <> '' AND ({read}) IS NULL")
                return read
            return quoted

        met = f"coalesce({condition.write_sql(column)}, false)"
        return f"CASE WHEN NOT coalesce({' OR '.join(unread)}, false) THEN {met} END" if unread else met


@dataclass(frozen=True)
class Condition:
    """A condition on rows (`where=`) that compares columns with constants.

    Whether a row counts must depend neither on the row's place nor on other rows.

    text : the original condition. tree : the condition parsed by sqlglot. kinds : kind of each column: "number",
        "text", "truth", or "" for a column that is only compared with null.
    """

    text: str
    tree: Any
    kinds: dict[str, str]

    @classmethod
    def of(cls, text: str) -> Condition:
        """Parse a condition. Raises InputError unless every comparison is between a column and a constant."""
        import sqlglot

        line = check_line(where=text)
        tree, kinds = None, None
        with suppress(sqlglot.errors.SqlglotError, ValueError, RecursionError):
            tree = sqlglot.parse_one(line, into=sqlglot.exp.Condition)
            kinds = _classify_columns(tree)
        if kinds is None:
            raise InputError(
                f"where is {line!r}: it must compare columns with constants, as in \"kind = 'bus' and speed > 3\", "
                "and use only the operators =, <>, <, <=, >, >=, in, between, like, is null, not, and, or"
            )
        return cls(line, tree, kinds)

    def check_columns(self, places: set[str], axes: int, time: str | None) -> None:
        """Raise InputError if a column contains coordinates or times, or has a name that usually means coordinates."""
        names = {
            "x", "y", "lon", "lng", "long", "longitude", "lat", "latitude", "easting", "northing",
            "geom", "geometry", "wkt", "wkb", "wkb_geometry", "geohash",
        }  # fmt: skip
        names |= {"z", "floor", "level", "alt", "altitude", "elevation", "height"} if axes == 3 else set()
        for column in self.kinds:
            if column in places or column.lower() in names or column == time:
                rule = f"it must not use column {column!r}: select places by bounds, and times by steps"
                raise InputError(f"where is {self.text!r}: {rule}")

    def write_sql(self, column: Callable[[str, str], str]) -> str:
        """Write the condition in DuckDB's SQL. `column(name, kind)` writes a column for constants of that kind."""
        import sqlglot

        def written(node: Any) -> Any:
            if not isinstance(node, sqlglot.exp.Column):
                return node
            return sqlglot.parse_one(column(node.name, self.kinds[node.name]), read="duckdb")

        return str(self.tree.transform(written).sql(dialect="duckdb"))


def _classify_columns(tree: Any) -> dict[str, str] | None:
    """Return the kind of constant that each column is compared with, or None if the condition is not supported."""
    from sqlglot import exp

    comparisons = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Like, exp.Is)
    kinds: dict[str, str] = {}
    rest = [tree]  # a stack, because recursion would fail on a long chain of "or"
    while rest:
        node = rest.pop()
        parts = list(node.iter_expressions())
        if isinstance(node, exp.And | exp.Or | exp.Not | exp.Paren):
            rest += parts
            continue
        columns = [part for part in parts if isinstance(part, exp.Column) and part.name and not part.table]
        found = {_kind_of_constant(part) for part in parts if not isinstance(part, exp.Column)}
        if len(columns) != 1 or len(found) != 1 or not isinstance(node, comparisons) or node.args.get("symmetric"):
            return None
        name, (kind,) = columns[0].name, found
        before = kinds.get(name, "")
        # "is" requires null, null requires "is", and all constants for a column must be of one kind.
        if kind is None or (kind == "") != isinstance(node, exp.Is) or (kind and before not in ("", kind)):
            return None
        kinds[name] = kind or before
    return kinds


def _kind_of_constant(constant: Any) -> str | None:
    """Return the kind of a constant, "" for null, or None for any other expression."""
    from sqlglot import exp

    if isinstance(constant, exp.Neg) and not constant.this.is_string:
        constant = constant.this
    if isinstance(constant, exp.Literal):
        return "text" if constant.is_string else "number"
    return {exp.Boolean: "truth", exp.Null: ""}.get(type(constant))


def write_reading(
    given: Relation, reading: Reading, axes: int, geometry: str | None, clock: Clock | None = None, steps: int = 1
) -> str:
    """Write SQL that selects coordinates (or a geometry g), `chosen` and, if needed, u (the user's hash) and `step`."""
    places = [given.find_column(c) for c in reading.coordinates]
    if not places and geometry is None and given.dialect is DUCKDB:  # text such as "POINT (8.07 52.26)"
        names = [c for c in given.types if c.lower() in ("wkt", "geom", "geometry", "the_geom")]
        geometry = next((c for c in names if classify_type(given.types[c]) == "text"), None)
    if places or geometry is None:
        check_choice((axes,), **{f"number of coordinate columns of input {given.label!r}": len(places)})
        columns = [f"{given.write_floats(c)} AS {n}" for c, n in zip(places, "xyz", strict=False)]
    else:
        columns = [f"{given.quote_column(geometry)} AS g"]
        fields = [f"{geometry}.{name}" for name in "xyz"[:axes]]  # GeoArrow's points
        if set(fields) <= set(given.types):
            places, columns = fields, [f"{given.write_floats(c)} AS {n}" for c, n in zip(fields, "xyz", strict=False)]
    timed = None if clock is None or reading.time is None else given.find_column(reading.time)
    chosen = "true"
    if reading.where is not None:
        condition = Condition.of(reading.where)
        condition.check_columns({*places, *([] if geometry is None else [geometry])}, axes, timed)
        chosen = given.write_condition(condition)
    columns.append(f"{chosen} AS chosen")
    if reading.user is not None:
        columns.append(f"{given.hash_users(given.find_column(reading.user))} AS u")
    if clock is not None and timed is not None:
        columns.append(f"{given.write_steps(timed, clock, steps)} AS step")
    return f"SELECT {', '.join(columns)} FROM {given.relation}"


def write_placing(rows: str, domain: Domain, *, steps: int = 0, users: bool = False) -> str:
    """Write SQL that returns the places of rows. `rows` is a statement with the columns of `write_reading`."""
    axes, largest = "xyz"[: domain.ndim], float(np.finfo(np.float64).max)
    point = " AND ".join(f"{axis} BETWEEN {write_number(-largest)} AND {write_number(largest)}" for axis in axes)
    sides = zip(axes, domain.low, domain.high, strict=True)
    inside = " AND ".join(f"{axis} BETWEEN {write_number(low)} AND {write_number(high)}" for axis, low, high in sides)
    key = f"step * {domain.size} + cell" if steps else "cell"
    cases = [("NOT chosen", UNMATCHED), ("NOT point", BAD)]
    cases += [("u IS NULL", BAD)] if users else []
    cases += [("step IS NULL", BAD), ("step < 0", BEFORE), (f"step >= {steps}", AFTER)] if steps else []
    when = " ".join(f"WHEN {case} THEN {place}" for case, place in cases)
    place = f"CASE {when} WHEN inside THEN {key} ELSE {max(steps, 1) * domain.size} + {key} END AS place"
    more = ("u, " if users else "") + ("step, " if steps else "")
    cell = f"CAST({_write_cell(domain, axes)} AS BIGINT) AS cell"
    flags = f"coalesce({point}, false) AS point, coalesce({inside}, false) AS inside"
    return f"SELECT {more}{place} FROM (SELECT chosen, {more}{cell}, {flags} FROM ({rows}) AS r) AS p"


def write_counting(rows: str, domain: Domain, random: str, *, steps: int = 0, most: int | None = None) -> str:
    """Write SQL that counts the rows at each place and, if `most` is set, the users and the rows to keep."""
    places = write_placing(rows, domain, steps=steps, users=most is not None)
    if most is None:
        return f"SELECT place, count(*) AS number FROM ({places}) AS q GROUP BY place"
    # Rank rows without a point separately, so that they do not displace the user's points.
    by = f"CASE WHEN place >= 0 THEN u END, {'step, ' if steps else ''}place < 0"
    ranked = f"SELECT place, row_number() OVER (PARTITION BY {by} ORDER BY drawn) AS k FROM"
    drawn = f"SELECT *, {random} AS drawn FROM ({places}) AS q"
    return (
        f"SELECT place, count(*) AS number, count(CASE WHEN k <= {most} THEN 1 END) AS kept, "
        f"count(CASE WHEN k = 1 THEN 1 END) AS users FROM ({ranked} ({drawn}) AS d) AS s GROUP BY place"
    )


def _write_cell(domain: Domain, axes: str) -> str:
    """Write SQL that clamps a point to the domain and returns its flat cell index as an exact float."""
    flat = ""
    for axis, at in enumerate(axes):
        low, high, step = domain.low[axis], domain.high[axis], domain.step[axis]
        # Clamp first, because very large floats could overflow and PostgreSQL could reject tiny ones. This changes no
        # step. NaN and NULL become the upper bound, but are not used.
        near = f"least(greatest({at}, {write_number(low + step * 2.0**-20)}), {write_number(high + (high - low))})"
        place = f"floor(({near} - {write_number(low)}) * {write_number(1.0 / step)} + {write_number(0.5)})"
        place = f"least(greatest({place}, {write_number(0)}), {write_number(domain.lattice_shape[axis] - 1)})"
        place = f"floor({place} / {write_number(domain.steps[axis])})"
        flat = f"{flat} * {write_number(domain.shape[axis])} + {place}" if flat else place
    return flat


def locate_rows(
    columns: list[NDArray[np.float64]],
    domain: Domain,
    chosen: NDArray[np.bool_] | None,
    named: NDArray[np.bool_] | None,
    step: tuple[NDArray[np.int64], NDArray[np.bool_]] | None,
    steps: int = 0,
    fine: bool = False,
) -> NDArray[np.int64]:
    """Return the place of each row, of shape (m,). `write_placing` computes the same places in SQL.

    columns : coordinates on the map, NaN where missing. chosen, named : masks of the rows that match the condition, and
        of the rows with a user. step : step of each row, and a mask of the rows with a step. fine : True if each
        lattice step of a line is a cell.
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
