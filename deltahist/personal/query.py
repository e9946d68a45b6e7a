"""Queries of people's records. Each derived record is made from the records of one owner. Public.

For a query F, F(D) is the union of F(D_o) over the owners o, where D_o are the records of o. So an ε-private aggregate
costs owner o only size(F(D_o)) · ε. Source: ProPer, Lemma 1 and Corollary 1.

An error caused by a record, such as an overflow or a division by zero, would reveal the record. So queries accept only
SQL expressions that cannot fail on any record, and that mean the same in DuckDB and PostgreSQL. sqlglot parses an
expression, and Ibis rebuilds each operation, with a guard that returns NULL where the operation could fail. Operations
without a guard are refused. No guard relies on the order in which a database evaluates an expression.

Values are of six kinds: "truth", "whole" (64 bits), "number" (a float), "text", "time" (UTC) and "date". Nonzero
numbers have a magnitude of 1e-100 to 1e100 in columns and results, and of 1e-300 to 1e300 in intermediate steps.
"""

from __future__ import annotations

import datetime
import operator
import re
import string
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import ibis
import sqlglot
from sqlglot import exp

from deltahist.errors import InputError, check_choice, check_whole

#: Hidden columns: a record's owner (a name, or the index of a purse), and the owner's name.
OWNER, NAME = "_person", "_person_name"
#: Ibis type of each kind.
DTYPES = {
    "truth": "boolean", "whole": "int64", "number": "float64", "text": "string", "time": "timestamp(6)", "date": "date",
}  # fmt: skip
#: Bounds on the magnitudes of nonzero numbers and factors, chosen so that products stay within the range of floats.
SMALLEST, LARGEST, _FACTOR = 1e-100, 1e100, (1e-150, 1e150)
#: Limits on the number of parts in an expression, including guards, and on how deeply they nest.
_MOST_NODES, _MOST_DEEP = 4000, 60
#: Maximum length of strings, in characters. Longer strings in records are truncated, to keep reading fast.
LONGEST_TEXT = 1000
#: Each operation's kind, number of parts and function. Databases agree on upper and lower case only for A to Z.
_OPERATIONS: dict[str, tuple[str, int, Any]] = {
    "And": ("truth", 1, operator.and_),
    "Or": ("truth", 1, operator.or_),
    "Not": ("truth", 1, operator.invert),
    "Abs": ("number", 1, operator.methodcaller("abs")),
    "Lower": ("text", 3, lambda text: text.translate(string.ascii_uppercase, string.ascii_lowercase)),
    "Upper": ("text", 3, lambda text: text.translate(string.ascii_lowercase, string.ascii_uppercase)),
}
_COMPARISONS = {"EQ": "eq", "NEQ": "ne", "LT": "lt", "LTE": "le", "GT": "gt", "GTE": "ge"}
_RULE = (
    "use only columns, constants, =, <>, in, like with % at the ends, is null, not, and, or, + - * /, % by a constant, "
    "case, coalesce, floor, ceil, abs, lower, upper, length, substr with constants, extract, date_trunc, "
    "cast(time as date), and <, <=, >, >= and between for numbers and times"
)


def find_kind(dtype: Any) -> str | None:
    """Return the kind of an Ibis type, or None if queries cannot use it."""
    tests = {
        "truth": dtype.is_boolean(),
        "whole": dtype.is_integer() and not dtype.is_uint64(),
        "number": dtype.is_uint64() or dtype.is_floating() or dtype.is_decimal(),
        "text": dtype.is_string(),
        "time": dtype.is_timestamp(),
        "date": dtype.is_date(),
    }
    return next((kind for kind, is_it in tests.items() if is_it), None)


def write_float(value: float) -> Any:
    """Return a constant that every database reads as the same float."""
    return ibis.literal(repr(value)).cast("float64")


def bound_number(value: Any, least: float, most: float) -> Any:
    """Return a number, but zero if its magnitude is below `least`, and NULL if that is above `most` or NaN."""
    low, high, zero = (write_float(each) for each in (least, most, 0.0))
    return ibis.cases((value.abs().between(low, high), value), (value.abs() < low, zero))


def read_expression(text: str, records: Any, columns: Mapping[str, str], sizes: Mapping[str, int]) -> SafeExpression:
    """Turn SQL on a table into an expression that cannot fail. `sizes` maps columns to their numbers of parts."""
    if isinstance(text, str) and len(text) <= 1 << 16:
        with suppress(sqlglot.errors.ParseError, sqlglot.errors.TokenError, RecursionError):
            made = _Reader(text, records, columns, sizes).read(sqlglot.parse_one(text, into=exp.Condition))
            made = _clip_size(made, SMALLEST, LARGEST) if made.kind == "number" else made
            if made.nodes <= _MOST_NODES and made.deep <= _MOST_DEEP:
                return made
    most = f"at most {_MOST_NODES:,} parts, nested at most {_MOST_DEEP} deep"
    raise InputError(f"expression is {str(text)[:60]!r}: write SQL with {most}, and {_RULE}")


@dataclass(frozen=True)
class SafeExpression:
    """An expression that cannot fail on any record.

    value : Ibis expression. kind : one of the six, or "null" for NULL itself.
    least, most : bounds on a number's magnitude, unless it is zero.
    nodes, deep : number of parts when written out, and depth of their nesting.
    constant : value of the expression, if that is a constant.
    """

    value: Any
    kind: str
    least: float = SMALLEST
    most: float = LARGEST
    nodes: int = 1
    deep: int = 1
    constant: Any = None


def convert_kind(made: SafeExpression, kind: str) -> SafeExpression:
    """Convert integers to floats, dates to times, constant strings to either, and NULL to any kind. Refuse the rest."""
    if made.kind == kind:
        return made
    if made.kind == "null":
        return replace(made, value=ibis.null(DTYPES[kind]), kind=kind, most=SMALLEST)
    if (made.kind, kind) == ("whole", "number"):
        if made.constant is not None:
            return make_constant(float(made.constant))
        return _combine_parts(made.value.cast("float64"), kind, [made], least=1.0, most=made.most)
    if (made.kind, kind) == ("date", "time"):
        return _combine_parts(made.value.cast(DTYPES["time"]), kind, [made])
    if made.kind == "text" and made.constant is not None and kind in ("time", "date"):
        with suppress(ValueError, OverflowError):
            return make_constant(_read_time(made.constant, kind))
    rule = "values must be of one kind, and times must look like '2026-05-01 22:30:00'"
    raise InputError(f"the query uses a value of kind {made.kind} as a {kind}: {rule}")


def unify_kinds(parts: Sequence[SafeExpression]) -> list[SafeExpression]:
    """Convert expressions to one kind, which is text if all are NULL. Refuse expressions without a common kind."""
    kinds = {part.kind for part in parts if part.kind != "null"}
    # A constant string may be a time.
    steady = {part.kind for part in parts if part.constant is None or part.kind != "text"} - {"null"} or kinds
    wide = next((to for one, to in (("whole", "number"), ("date", "time")) if steady == {one, to}), None)
    common = wide or min(steady, default="text")
    return [convert_kind(part, common) for part in parts]


def make_constant(value: Any) -> SafeExpression:
    """Return a constant, written so that every database reads the same value."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return SafeExpression(ibis.literal(value), "truth", constant=value)
    if isinstance(value, int) and abs(value) < 1 << 63:
        written, size = ibis.literal(value).cast("int64"), max(1.0, abs(float(value)))
        return SafeExpression(written, "whole", least=1.0, most=size, constant=value)
    if isinstance(value, float) and (not value or SMALLEST <= abs(value) <= LARGEST):
        size = abs(value) or 1.0
        return SafeExpression(write_float(value), "number", least=size, most=size, constant=value)
    if isinstance(value, str) and "\0" not in value and len(value) <= LONGEST_TEXT:
        return SafeExpression(ibis.literal(value, "string"), "text", constant=value)
    if isinstance(value, datetime.date):
        kind = "time" if isinstance(value, datetime.datetime) else "date"
        return SafeExpression(ibis.literal(str(value)).cast(DTYPES[kind]), kind, constant=value)
    raise InputError(
        f"constant is {repr(value)[:60]}: it must be a truth value, a time, a date, a number (0, or 1e-100 to 1e100 in "
        f"magnitude, below 2^63 if whole) or a string of at most {LONGEST_TEXT:,} characters without NUL"
    )


def _read_time(value: str, kind: str) -> datetime.datetime | datetime.date:
    time = datetime.datetime.fromisoformat(value)
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC).replace(tzinfo=None)
    return time if kind == "time" else datetime.date.fromisoformat(value)


def _combine_parts(
    value: Any, kind: str, parts: list[SafeExpression], least: float = SMALLEST, most: float = LARGEST, more: int = 1
) -> SafeExpression:
    deep = 1 + max((part.deep for part in parts), default=0)
    return SafeExpression(value, kind, least, most, more + sum(part.nodes for part in parts), deep)


def _clip_size(part: SafeExpression, least: float, most: float) -> SafeExpression:
    """Return a number, but zero if its magnitude is below `least`, and NULL if that is above `most`."""
    if part.least >= least and part.most <= most:
        return part
    return _combine_parts(bound_number(part.value, least, most), "number", [part] * 4, least, most, more=6)


def _choose_part(value: Any, results: list[SafeExpression], others: list[SafeExpression]) -> SafeExpression:
    """Return an expression for `value`, an Ibis expression that always equals one of the results."""
    least, most = min(p.least for p in results), max(p.most for p in results)
    return _combine_parts(value, results[0].kind, [*results, *others], least, most)


class _Reader:
    """Builds safe expressions from sqlglot's nodes. A method `_read_…` returns None to refuse a node of its type."""

    def __init__(self, text: str, records: Any, columns: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        self.text, self.records, self.columns, self.sizes = text, records, columns, sizes

    def read(self, node: Any) -> SafeExpression:
        """Return the safe expression for a node."""
        node = node.unnest()
        name = type(node).__name__
        method: Any = self._compare if name in _COMPARISONS else getattr(self, f"_read_{name.lower()}", None)
        made: SafeExpression | None = None if method is None else method(node)
        if made is None:
            raise InputError(f"expression is {self.text[:60]!r}, which contains {node.sql()[:40]!r}: {_RULE}")
        return made

    def _read_as(self, kind: str, node: Any) -> SafeExpression:
        return convert_kind(self.read(node), kind)

    def _read_column(self, node: Any) -> SafeExpression | None:
        if node.args.get("table"):
            return None
        check_choice(tuple(self.columns), column=node.name)
        kind = self.columns[node.name]
        least, most = (1.0, 2.0**63) if kind == "whole" else (SMALLEST, LARGEST)
        return SafeExpression(self.records[node.name], kind, least, most, self.sizes.get(node.name, 1))

    def _read_boolean(self, node: Any) -> SafeExpression:
        return make_constant(bool(node.this))

    def _read_null(self, node: Any) -> SafeExpression:
        return SafeExpression(ibis.null(), "null")

    def _read_literal(self, node: Any) -> SafeExpression:
        text = str(node.this)
        if node.is_string:
            return make_constant(text)
        # Keep only 20 digits. These already exceed the limit, and parsing thousands would be slow.
        return make_constant(int(text.lstrip("0")[:20] or "0") if text.isdigit() else float(text))

    def _compare(self, node: Any) -> SafeExpression | None:
        name, parts = type(node).__name__, unify_kinds([self.read(node.this), self.read(node.expression)])
        if name not in ("EQ", "NEQ") and parts[0].kind in ("truth", "text"):
            return None  # databases order these differently
        return _combine_parts(getattr(parts[0].value, f"__{_COMPARISONS[name]}__")(parts[1].value), "truth", parts)

    def _read_between(self, node: Any) -> SafeExpression | None:
        low, high = node.this >= node.args["low"], node.this <= node.args["high"]
        return None if node.args.get("symmetric") else self.read(low.and_(high))

    def _read_in(self, node: Any) -> SafeExpression | None:
        if not node.expressions or node.args.get("query"):
            return None
        parts = unify_kinds([self.read(each) for each in (node.this, *node.expressions)])
        return _combine_parts(parts[0].value.isin([part.value for part in parts[1:]]), "truth", parts)

    def _read_is(self, node: Any) -> SafeExpression | None:
        if not isinstance(node.expression, exp.Null):
            return None
        part = self.read(node.this)
        return _combine_parts(part.value.isnull(), "truth", [part])

    def _read_and(self, node: Any) -> SafeExpression:
        kind, more, operate = _OPERATIONS[type(node).__name__]
        parts = [self._read_as(kind, each) for each in node.iter_expressions()]
        least, most = parts[0].least, parts[0].most
        return _combine_parts(operate(*(part.value for part in parts)), kind, parts, least, most, more)

    _read_or = _read_not = _read_abs = _read_lower = _read_upper = _read_and

    def _read_like(self, node: Any) -> SafeExpression | None:
        part, pattern = self._read_as("text", node.this), self.read(node.expression).constant
        # Databases interpret other patterns differently, and some patterns take very long to match.
        if not isinstance(pattern, str) or not re.fullmatch(r"%?[^%_\\]*%?", pattern, re.DOTALL):
            return None
        # PostgreSQL compares the whole pattern at every position in a text.
        return _combine_parts(part.value.like(pattern), "truth", [part], more=2 + len(pattern) // 4)

    def _read_add(self, node: Any) -> SafeExpression:
        name = type(node).__name__
        sizes = _FACTOR if name in ("Mul", "Div") else (_FACTOR[0], 1e299)
        numbers = [self._read_as("number", each) for each in (node.this, node.expression)]
        one, other = parts = [_clip_size(each, *sizes) for each in numbers]
        if name == "Mul":
            value, least, most = one.value * other.value, one.least * other.least / 2, one.most * other.most * 2
        elif name == "Div":
            value = one.value / other.value.nullif(write_float(0.0))
            least, most = one.least / other.most / 2, one.most / other.least * 2
        else:
            value = one.value + other.value if name == "Add" else one.value - other.value
            # When numbers cancel, a nonzero result is no smaller than the last bit of the smaller number.
            least, most = min(one.least, other.least) * 2.0**-53, one.most + other.most
        return _combine_parts(value, "number", parts, least, most, more=3 if name == "Div" else 1)

    _read_sub = _read_mul = _read_div = _read_add

    def _read_mod(self, node: Any) -> SafeExpression | None:
        left, right = parts = [self.read(node.this), self.read(node.expression)]
        if left.kind != "whole" or not isinstance(right.constant, int) or not 0 < right.constant < 1 << 31:
            return None
        return _combine_parts(left.value % right.value, "whole", parts, 1.0, right.most)

    def _read_neg(self, node: Any) -> SafeExpression:
        part = self.read(node.this)
        if isinstance(part.constant, int | float) and not isinstance(part.constant, bool):
            return make_constant(-part.constant)
        part = convert_kind(part, "number")
        return _combine_parts(write_float(0.0) - part.value, "number", [part], part.least, part.most, more=2)

    def _read_floor(self, node: Any) -> SafeExpression | None:
        if node.args.get("decimals") or node.args.get("to"):
            return None
        part = self.read(node.this)
        if part.kind == "whole":
            return part
        # Whole numbers up to 2^53 are exact as floats.
        part = _clip_size(convert_kind(part, "number"), SMALLEST, 2.0**53)
        value = part.value.ceil() if type(node).__name__ == "Ceil" else part.value.floor()
        return _combine_parts(value.cast("int64"), "whole", [part], 1.0, 2.0**53)

    _read_ceil = _read_floor

    def _read_coalesce(self, node: Any) -> SafeExpression:
        parts = unify_kinds([self.read(each) for each in (node.this, *node.expressions)])
        return _choose_part(ibis.coalesce(*(part.value for part in parts)), parts, [])

    def _read_case(self, node: Any) -> SafeExpression:
        asked = [each.this if node.this is None else node.this.eq(each.this) for each in node.args["ifs"]]
        conditions = [self._read_as("truth", each) for each in asked]
        results = [self.read(each.args["true"]) for each in node.args["ifs"]]
        default = node.args.get("default")
        parts = unify_kinds([*results, self._read_null(node) if default is None else self.read(default)])
        branches = [(one.value, then.value) for one, then in zip(conditions, parts, strict=False)]
        return _choose_part(ibis.cases(*branches, else_=parts[-1].value), parts, conditions)

    def _read_cast(self, node: Any) -> SafeExpression | None:
        kind = {"DATE": "date", "TIMESTAMP": "time", "DATETIME": "time"}.get(node.to.this.name)
        if kind is None:
            return None
        part = self.read(node.this)
        if (part.kind, kind) == ("time", "date"):
            return _combine_parts(part.value.date(), "date", [part])
        return convert_kind(part, kind)

    def _read_extract(self, node: Any) -> SafeExpression | None:
        name, part = str(node.this.name).upper(), self.read(node.expression)
        if name in ("HOUR", "MINUTE", "SECOND") or part.kind not in ("date", "time"):
            part = convert_kind(part, "time")
        if name in ("ISODOW", "DAYOFWEEKISO"):
            value = part.value.day_of_week.index() + 1
        elif name in ("YEAR", "QUARTER", "MONTH", "DAY", "DOY", "HOUR", "MINUTE", "SECOND"):
            value = getattr(part.value, {"DOY": "day_of_year"}.get(name, name.lower()))()
        else:
            return None
        return _combine_parts(value.cast("int64"), "whole", [part], 1.0, 9999.0, more=4)

    def _read_timestamptrunc(self, node: Any) -> SafeExpression | None:
        unit, part = str(node.args["unit"].name).upper(), self._read_as("time", node.this)
        if unit not in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"):
            return None
        return _combine_parts(part.value.truncate(unit), "time", [part])

    _read_datetrunc = _read_timestamptrunc

    def _read_length(self, node: Any) -> SafeExpression:
        part = self._read_as("text", node.this)
        return _combine_parts(part.value.length().cast("int64"), "whole", [part], 1.0, 2.0**31)

    def _read_substring(self, node: Any) -> SafeExpression | None:
        part = self._read_as("text", node.this)
        given = [node.args.get("start"), node.args.get("length")]
        start, length = (None if each is None else self.read(each).constant for each in given)
        ends = [start] if given[1] is None else [start, length]
        if any(type(each) is not int or not 0 <= each < 1 << 30 for each in ends) or not start:
            return None
        return _combine_parts(part.value.substr(start - 1, length), "text", [part])


@dataclass(frozen=True, eq=False)
class Query:
    """Records derived from a table's records, owner by owner. Public: a query contains no data.

    Expressions are SQL on one record, such as "hour >= 22 and kind in ('bus', 'tram')".

    table : the derived records, an unbound Ibis table with the column OWNER.
    source : the table's name, and the column that names the owners of its records.
    copies : maximum number of records derived from one record of the table.
    most : maximum number of records of one owner, or None if unbounded.
    parts : number of expression parts evaluated per record of the table. sizes : number of parts per computed column.
    """

    table: Any
    source: tuple[str, str]
    copies: int = 1
    most: int | None = None
    parts: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, str]:
        """Names and kinds of the columns."""
        return {name: str(find_kind(dtype)) for name, dtype in self.table.schema().items() if name != OWNER}

    def where(self, condition: str) -> Self:
        """Keep the records that satisfy a condition. Other records are free (ProPer, selection principle)."""
        made = convert_kind(self._read(condition), "truth")
        return self._derive_query(self.table.filter(made.value), made.nodes)

    def select(self, *names: str, **columns: str) -> Self:
        """Keep the named columns, and add columns computed by expressions."""
        for name in names:
            check_choice(tuple(self.columns), column=name)
        made = {name: unify_kinds([self._read(each)])[0] for name, each in columns.items()}
        check_names([*names, *made])
        values = {name: self.table[name] for name in (OWNER, *names)}
        table = self.table.select(**values, **{name: each.value for name, each in made.items()})
        sizes = {**self.sizes, **{name: each.nodes for name, each in made.items()}}
        return self._derive_query(table, sum(each.nodes for each in made.values()), sizes=sizes)

    def flat_map(self, *rows: Mapping[str, str]) -> Self:
        """Derive several records from each one. Each new record costs its owner ε (ProPer, Lemma 1 and Corollary 1).

        Each row maps the columns of a new record to expressions, and may map "where" to a condition on the old record.
        """
        columns = [set(row) - {"where"} for row in rows]
        if not rows or not columns[0] or any(each != columns[0] for each in columns):
            raise InputError(f"flat_map rows have the columns {columns}: all rows need the same ones, and at least one")
        copies = self.copies * len(rows)
        self._derive_query(self.table, 0, copies=copies)  # refuse too many copies before building them
        names = [name for name in rows[0] if name != "where"]
        check_names(names)
        made = {name: unify_kinds([self._read(row[name]) for row in rows]) for name in names}
        tables, parts = [], sum(each.nodes for column in made.values() for each in column)
        for number, row in enumerate(rows):
            condition = convert_kind(self._read(row.get("where", "true")), "truth")
            parts += condition.nodes
            table = self.table.filter(condition.value) if "where" in row else self.table
            values = {name: made[name][number].value for name in names}
            tables.append(table.select(**{OWNER: table[OWNER]}, **values))
        most = None if self.most is None else self.most * len(rows)
        sizes = {name: max(each.nodes for each in column) for name, column in made.items()}
        return self._derive_query(ibis.union(*tables), parts, copies=copies, most=most, sizes=sizes)

    def distinct(self, *columns: str) -> Self:
        """Return each owner's distinct records, with only the named columns (by default, all)."""
        kept = self.select(*(columns or self.columns))
        return kept._derive_query(kept.table.distinct(), len(kept.columns))

    def at_most(self, number: int, by: str | Sequence[str] = ()) -> Self:
        """Keep at most the first `number` records of each owner, in the order of the columns `by` (by default, all).

        Records that are equal in `by` are kept or dropped together.
        """
        most = check_whole(number=number)
        names = [by] if isinstance(by, str) else list(by) or list(self.columns)
        for name in names:
            check_choice(tuple(self.columns), column=name)
        # If records are equal in all columns, it does not matter which of them are kept.
        alike = set(names) == set(self.columns)
        table, stays = self.table, f"{OWNER}_stays"
        order = [table[name].asc(nulls_first=False) for name in names]
        own = ibis.window(group_by=OWNER, order_by=order)
        before = (ibis.row_number() if alike else ibis.rank()).over(own)
        peers = ibis.literal(1) if alike else table.count().over(ibis.window(group_by=[OWNER, *names]))
        kept = table.mutate(**{stays: before + peers <= most})
        chosen = kept.filter(kept[stays]).drop(stays)
        most = most if self.most is None else min(most, self.most)
        return self._derive_query(chosen, len(names), most=most)

    def add_up(self, *by: str, **values: Any) -> Any:
        """Return an Ibis table of each owner's number of records and sums of values, per group of the columns `by`."""
        # Keep sums within 64 bits.
        sums = {name: value.sum().clip(-(1 << 62), 1 << 62) for name, value in values.items()}
        return self.table.group_by([OWNER, *by]).aggregate(number=self.table.count(), **sums)

    def _derive_query(self, table: Any, parts: int, **changes: Any) -> Self:
        """Return the query with a different table. Refuse queries that could exhaust memory or time on some records."""
        made = replace(self, table=table, parts=self.parts + self.copies * parts, **changes)
        for number, most, what in ((made.copies, 1000, "records"), (made.parts, 10_000, "expression parts")):
            if number > most:
                raise InputError(f"query needs up to {number:,} {what} for one record: at most {most:,} are allowed")
        return made

    def _read(self, expression: str) -> SafeExpression:
        return read_expression(expression, self.table, self.columns, self.sizes)


def check_names(names: Sequence[str]) -> None:
    """Refuse names that are empty, reserved, over 63 bytes (for PostgreSQL) or equal up to case (for DuckDB)."""
    seen = set()
    for name in names:
        folded = name.casefold()
        if not 0 < len(name.encode()) < 64 or "\0" in name or folded.startswith(OWNER) or folded in seen:
            rule = f"names must differ by more than case, have 1 to 63 bytes, and not begin with {OWNER}"
            raise InputError(f"a column is called {name!r}: {rule}")
        seen.add(folded)
