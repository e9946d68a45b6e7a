"""Expressions on records that no record can make fail, and that mean the same in DuckDB and PostgreSQL.

An error that depends on a record would reveal it: an overflow, a division by zero. So sqlglot reads an expression, and
each operation is built anew with Ibis. What could fail gives NULL, and what cannot be guarded, or differs between the
databases, is refused. No guard relies on the order in which a database evaluates an expression.

Values are of six kinds: "truth", "whole" (64 bits), "number" (a float), "text", "time" (UTC) and "date". Numbers are
zero, or of a size of 1e-100 to 1e100 in columns and results, and of 1e-300 to 1e300 in between.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltahist.errors import InputError

#: Ibis types of the kinds.
DTYPES = {
    "truth": "boolean", "whole": "int64", "number": "float64", "text": "string", "time": "timestamp(6)", "date": "date",
}  # fmt: skip
#: Sizes of numbers that are not zero.
SMALLEST, LARGEST = 1e-100, 1e100
#: Sizes of factors, so that no product leaves the range of floats.
_FACTOR = (1e-150, 1e150)
#: Whole numbers up to here are exact as floats.
_EXACT = 2.0**53
#: Parts of an expression, guards included, and how deeply they may be nested.
_MOST_NODES, _MOST_DEEP = 4000, 60
#: Characters of an expression, and of any text: in records the rest is cut off, so that no record takes long.
_LONGEST, LONGEST_TEXT = 1 << 16, 1000
_CAPITALS, _SMALL = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_COMPARISONS = {"EQ": "eq", "NEQ": "ne", "LT": "lt", "LTE": "le", "GT": "gt", "GTE": "ge"}
_DATE_PARTS = {"YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day", "DOY": "day_of_year"}
_CLOCK_PARTS = {"HOUR": "hour", "MINUTE": "minute", "SECOND": "second"}
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_RULE = (
    "there are columns, constants, =, <>, <, <=, >, >=, in, between, like, is null, not, and, or, + - * / %, case, "
    "coalesce, nullif, floor, ceil, abs, sqrt, lower, upper, length, substr, extract, date_trunc and cast(time as date)"
)


def kind_of(dtype: Any) -> str | None:
    """Return the kind that an Ibis type is read as; None if queries cannot take it.

    >>> import ibis
    >>> kind_of(ibis.dtype("int16")), kind_of(ibis.dtype("decimal(9, 2)")), kind_of(ibis.dtype("array<int64>"))
    ('whole', 'number', None)
    """
    tests = {
        "truth": dtype.is_boolean(),
        "whole": dtype.is_integer() and not dtype.is_uint64(),
        "number": dtype.is_uint64() or dtype.is_floating() or dtype.is_decimal(),
        "text": dtype.is_string(),
        "time": dtype.is_timestamp(),
        "date": dtype.is_date(),
    }
    return next((kind for kind, is_it in tests.items() if is_it), None)


def check_column(name: Any, known: Any) -> None:
    """Raise InputError unless a name is one of the known columns."""
    if not isinstance(name, str) or name not in known:
        listed = ", ".join(repr(each) for each in sorted(known)) or "none"
        raise InputError(f"column is {name!r}: it must be one of {listed}")


def write_float(value: float) -> Any:
    """Return a constant that every database reads as the same float."""
    import ibis

    return ibis.literal(repr(value)).cast("float64")


def bound_number(value: Any, least: float, most: float) -> Any:
    """Return a number: zero where its size is below `least`, NULL where it is above `most`, infinite or NaN."""
    import ibis

    low, high, zero = (write_float(each) for each in (least, most, 0.0))
    return ibis.cases((value.abs().between(low, high), value), (value.abs() < low, zero))


def read_expression(text: str, records: Any, columns: Mapping[str, str], sizes: Mapping[str, int]) -> SafeExpression:
    """Read an expression in SQL, on columns of an Ibis table and of some kinds, as one that cannot fail.

    `sizes` are the parts of the expressions behind columns (1 by default), which a database may write out.
    Raises InputError if it cannot be read, names unknown columns, could fail, or differs between databases.

    >>> import ibis
    >>> visits = ibis.table({"kind": "string", "time": "timestamp"}, name="visits")
    >>> kinds = {"kind": "text", "time": "time"}
    >>> read_expression("kind in ('bus', 'tram') and extract(hour from time) >= 22", visits, kinds, {}).kind
    'truth'
    >>> read_expression("random() < 0.5", visits, kinds, {})
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: expression is 'random() < 0.5', which asks for 'RAND()': there are columns, ...
    """
    import sqlglot
    from sqlglot import exp

    if not isinstance(text, str) or len(text) > _LONGEST:
        raise InputError(f"expression is {str(text)[:60]!r}: it must be text of at most {_LONGEST:,} characters")
    try:
        made = _Reader(text, records, columns, sizes).read(sqlglot.parse_one(text, into=exp.Condition))
    except (sqlglot.errors.ParseError, sqlglot.errors.TokenError):
        raise InputError(f"expression is {text[:60]!r}: it must be SQL; {_RULE}") from None
    except RecursionError:
        raise _too_long() from None
    return _clip(made, SMALLEST, LARGEST) if made.kind == "number" else made


@dataclass(frozen=True)
class SafeExpression:
    """An expression that gives a value for every record.

    Parameters
    ----------
    value : Ibis expression. kind : one of the six, or "null" for NULL itself.
    least, most : a number is zero, or its size is between them.
    nodes, deep : its length when written out, and how deeply it is nested.
    constant : its value if it does not depend on the record.
    """

    value: Any
    kind: str
    least: float = SMALLEST
    most: float = LARGEST
    nodes: int = 1
    deep: int = 1
    constant: Any = None


def convert(made: SafeExpression, kind: str) -> SafeExpression:
    """Convert whole numbers to numbers, dates to times, NULL to any kind; InputError otherwise."""
    import ibis

    if made.kind == kind:
        return made
    if made.kind == "null":
        return replace(made, value=ibis.null(DTYPES[kind]), kind=kind, most=SMALLEST)
    if (made.kind, kind) == ("whole", "number"):
        if made.constant is not None:
            return make_constant(float(made.constant))
        return _combine(made.value.cast("float64"), kind, [made], least=1.0, most=made.most)
    if (made.kind, kind) == ("date", "time"):
        return _combine(made.value.cast(DTYPES["time"]), kind, [made])
    if made.kind == "text" and made.constant is not None and kind in ("time", "date"):
        return make_constant(_read_time(made.constant, kind))
    raise InputError(f"the query takes a {made.kind} for a {kind}: values must be of one kind")


def unify(parts: Sequence[SafeExpression]) -> list[SafeExpression]:
    """Convert expressions to the one kind that suits all; raise InputError if there is none."""
    kinds = {part.kind for part in parts if part.kind != "null"}
    # A constant text may stand for a time.
    steady = {part.kind for part in parts if part.constant is None or part.kind != "text"} - {"null"} or kinds
    wide = next((to for one, to in (("whole", "number"), ("date", "time")) if steady == {one, to}), None)
    common = wide or min(steady, default="null")
    return [convert(part, common) for part in parts]


def make_constant(value: Any) -> SafeExpression:
    """Return a constant, written so that every database reads the same value; InputError if none can."""
    import ibis

    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return SafeExpression(ibis.literal(value), "truth", constant=value)
    if isinstance(value, int):
        if abs(value) >= 1 << 63:
            raise InputError(f"constant is {str(value)[:60]}: whole numbers must be below 2^63 in size")
        written, size = ibis.literal(value).cast("int64"), max(1.0, abs(float(value)))
        return SafeExpression(written, "whole", least=1.0, most=size, constant=value)
    if isinstance(value, float):
        if not math.isfinite(value) or (value and not SMALLEST <= abs(value) <= LARGEST):
            raise InputError(f"constant is {value}: numbers must be 0 or of a size of 1e-100 to 1e100")
        size = abs(value) or 1.0
        return SafeExpression(write_float(value), "number", least=size, most=size, constant=value)
    if isinstance(value, str):
        if "\0" in value or len(value) > LONGEST_TEXT:
            rule = f"text must have at most {LONGEST_TEXT:,} characters, none of them the character 0"
            raise InputError(f"constant is {value[:60]!r}: {rule}")
        return SafeExpression(ibis.literal(value, "string"), "text", constant=value)
    if not isinstance(value, datetime.date):
        raise InputError(f"constant is {value!r}: it must be a number, text, a truth value, a time or a date")
    kind = "time" if isinstance(value, datetime.datetime) else "date"
    return SafeExpression(ibis.literal(str(value)).cast(DTYPES[kind]), kind, constant=value)


def _read_time(value: str, kind: str) -> datetime.datetime | datetime.date:
    """Return a text as a time (in UTC, if it has a zone) or a date; InputError if it is neither."""
    try:
        time = datetime.datetime.fromisoformat(value)
        if time.tzinfo is not None:
            time = time.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise InputError(f"{kind} is {value!r}: write 2026-05-01, or 2026-05-01 22:30:00") from None
    if kind == "date" and time.time() != datetime.time(0):
        raise InputError(f"date is {value!r}: it must have no hours and minutes")
    return time if kind == "time" else time.date()


def _too_long() -> InputError:
    return InputError(f"expression is too long: it must have at most {_MOST_NODES:,} parts, {_MOST_DEEP} deep")


def _combine(
    value: Any, kind: str, parts: list[SafeExpression], least: float = SMALLEST, most: float = LARGEST, more: int = 1
) -> SafeExpression:
    """Return the expression that `value` makes of parts; raise InputError if it is too long or too deep."""
    nodes = more + sum(part.nodes for part in parts)
    deep = 1 + max((part.deep for part in parts), default=0)
    if nodes > _MOST_NODES or deep > _MOST_DEEP:
        raise _too_long()
    return SafeExpression(value, kind, least, most, nodes, deep)


def _clip(part: SafeExpression, least: float, most: float) -> SafeExpression:
    """Return a number with zero in place of sizes below `least`, and NULL in place of sizes above `most`."""
    if part.least >= least and part.most <= most:
        return part
    return _combine(bound_number(part.value, least, most), "number", [part] * 4, least, most, more=6)


class _Reader:
    """Builds a safe expression from sqlglot's tree: for each type of node there is a method `_read_…`."""

    def __init__(self, text: str, records: Any, columns: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        self.shown, self.records = f"expression is {text[:60]!r}", records
        self.columns, self.sizes = columns, sizes

    def read(self, node: Any) -> SafeExpression:
        """Return the safe expression of a node; InputError if the language has no such node."""
        node = node.unnest()
        name = type(node).__name__
        if name in _COMPARISONS:
            return self._compare(node, name)
        method: Callable[[Any], SafeExpression] | None = getattr(self, f"_read_{name.lower()}", None)
        if method is None:
            raise self.refusal(node)
        return method(node)

    def refusal(self, node: Any) -> InputError:
        return InputError(f"{self.shown}, which asks for {node.sql()[:40]!r}: {_RULE}")

    def as_kind(self, node: Any, kind: str) -> SafeExpression:
        return convert(self.read(node), kind)

    def _read_column(self, node: Any) -> SafeExpression:
        if node.args.get("table"):
            raise self.refusal(node)
        check_column(node.name, self.columns)
        kind = self.columns[node.name]
        least, most = (1.0, 2.0**63) if kind == "whole" else (SMALLEST, LARGEST)
        return SafeExpression(self.records[node.name], kind, least, most, self.sizes.get(node.name, 1))

    def _read_boolean(self, node: Any) -> SafeExpression:
        return make_constant(bool(node.this))

    def _read_null(self, node: Any) -> SafeExpression:
        import ibis

        return SafeExpression(ibis.null(), "null")

    def _read_literal(self, node: Any) -> SafeExpression:
        text = str(node.this)
        if node.is_string:
            return make_constant(text)
        # Long numbers take long to read: their first 20 digits are too many already.
        return make_constant(int(text.lstrip("0")[:20] or "0") if text.isdigit() else float(text))

    def _compare(self, node: Any, name: str) -> SafeExpression:
        parts = unify([self.read(node.this), self.read(node.expression)])
        self._check_order(parts[0].kind, node, name in ("EQ", "NEQ"))
        return _combine(getattr(parts[0].value, f"__{_COMPARISONS[name]}__")(parts[1].value), "truth", parts)

    def _check_order(self, kind: str, node: Any, is_equality: bool) -> None:
        # Databases order text in different ways.
        if kind in ("truth", "text") and not is_equality:
            raise InputError(f"{self.shown}: {node.sql()[:40]!r} compares a {kind}; use =, <>, in or like")

    def _read_between(self, node: Any) -> SafeExpression:
        if node.args.get("symmetric"):
            raise self.refusal(node)
        given = (node.this, node.args["low"], node.args["high"])
        value, low, high = parts = unify([self.read(each) for each in given])
        self._check_order(value.kind, node, False)
        return _combine(value.value.between(low.value, high.value), "truth", parts)

    def _read_in(self, node: Any) -> SafeExpression:
        if not node.expressions or node.args.get("query"):
            raise self.refusal(node)
        if len(node.expressions) >= _MOST_NODES:
            raise _too_long()
        parts = unify([self.read(each) for each in (node.this, *node.expressions)])
        return _combine(parts[0].value.isin([part.value for part in parts[1:]]), "truth", parts)

    def _read_is(self, node: Any) -> SafeExpression:
        from sqlglot import exp

        if not isinstance(node.expression, exp.Null):
            raise self.refusal(node)
        part = self.read(node.this)
        return _combine(part.value.isnull(), "truth", [part])

    def _read_and(self, node: Any) -> SafeExpression:
        parts = [self.as_kind(each, "truth") for each in (node.this, node.expression)]
        one, other = (part.value for part in parts)
        return _combine(one & other if type(node).__name__ == "And" else one | other, "truth", parts)

    _read_or = _read_and

    def _read_not(self, node: Any) -> SafeExpression:
        part = self.as_kind(node.this, "truth")
        return _combine(~part.value, "truth", [part])

    def _read_like(self, node: Any) -> SafeExpression:
        part, pattern = self.as_kind(node.this, "text"), self.read(node.expression).constant
        # Databases take other patterns in different ways, and may need very long for some texts.
        if not isinstance(pattern, str) or not re.fullmatch(r"%?[^%_\\]*%?", pattern, re.DOTALL):
            rule = "it must be a constant such as 'bus%' or '%bus%', without _ and \\"
            raise InputError(f"pattern is {str(pattern)[:60]!r}: {rule}")
        # PostgreSQL compares the whole pattern at every place of a text.
        return _combine(part.value.like(pattern), "truth", [part], more=2 + len(pattern) // 4)

    def _read_add(self, node: Any) -> SafeExpression:
        parts = [_clip(self.as_kind(each, "number"), _FACTOR[0], 1e299) for each in (node.this, node.expression)]
        left, right = (part.value for part in parts)
        value = left + right if type(node).__name__ == "Add" else left - right
        # What is left when numbers cancel out is no smaller than the last digit of the smaller one.
        least = min(p.least for p in parts) * 2.0**-53
        return _combine(value, "number", parts, least, sum(p.most for p in parts))

    _read_sub = _read_add

    def _read_mul(self, node: Any) -> SafeExpression:
        one, other = parts = self._factors(node)
        least, most = one.least * other.least / 2, one.most * other.most * 2
        return _combine(one.value * other.value, "number", parts, least, most)

    def _read_div(self, node: Any) -> SafeExpression:
        one, other = parts = self._factors(node)
        value = one.value / other.value.nullif(make_constant(0.0).value)
        least, most = one.least / other.most / 2, one.most / other.least * 2
        return _combine(value, "number", parts, least, most, more=3)

    def _factors(self, node: Any) -> list[SafeExpression]:
        return [_clip(self.as_kind(each, "number"), *_FACTOR) for each in (node.this, node.expression)]

    def _read_mod(self, node: Any) -> SafeExpression:
        left, right = parts = [self.read(node.this), self.read(node.expression)]
        if left.kind != "whole" or not isinstance(right.constant, int) or not 0 < right.constant < 1 << 31:
            raise InputError(f"{self.shown}: % takes a whole number (from floor) and a constant, 1 to 2^31")
        return _combine(left.value % right.value, "whole", parts, 1.0, right.most)

    def _read_neg(self, node: Any) -> SafeExpression:
        part = self.read(node.this)
        if isinstance(part.constant, int | float) and not isinstance(part.constant, bool):
            return make_constant(-part.constant)
        part = convert(part, "number")
        return _combine(write_float(0.0) - part.value, "number", [part], part.least, part.most, more=2)

    def _read_abs(self, node: Any) -> SafeExpression:
        part = self.as_kind(node.this, "number")
        return _combine(part.value.abs(), "number", [part], part.least, part.most)

    def _read_sqrt(self, node: Any) -> SafeExpression:
        import ibis

        part = self.as_kind(node.this, "number")
        value = ibis.cases((part.value >= 0, part.value)).sqrt()
        return _combine(value, "number", [part] * 2, min(part.least, 1.0), max(part.most, 1.0), more=4)

    def _read_floor(self, node: Any) -> SafeExpression:
        if node.args.get("decimals") or node.args.get("to"):
            raise self.refusal(node)
        part = self.read(node.this)
        if part.kind == "whole":
            return part
        part = _clip(convert(part, "number"), SMALLEST, _EXACT)
        value = part.value.ceil() if type(node).__name__ == "Ceil" else part.value.floor()
        return _combine(value.cast("int64"), "whole", [part], 1.0, _EXACT)

    _read_ceil = _read_floor

    def _read_coalesce(self, node: Any) -> SafeExpression:
        import ibis

        parts = unify([self.read(each) for each in (node.this, *node.expressions)])
        return _either(ibis.coalesce(*(part.value for part in parts)), parts, [])

    def _read_nullif(self, node: Any) -> SafeExpression:
        parts = unify([self.read(node.this), self.read(node.expression)])
        return _either(parts[0].value.nullif(parts[1].value), parts[:1], parts[1:])

    def _read_case(self, node: Any) -> SafeExpression:
        import ibis

        conditions = []
        for each in node.args["ifs"]:
            if node.this is None:
                conditions.append(self.as_kind(each.this, "truth"))
            else:
                pair = unify([self.read(node.this), self.read(each.this)])
                conditions.append(_combine(pair[0].value == pair[1].value, "truth", pair))
        results = [self.read(each.args["true"]) for each in node.args["ifs"]]
        default = node.args.get("default")
        parts = unify([*results, self._read_null(node) if default is None else self.read(default)])
        branches = [(one.value, then.value) for one, then in zip(conditions, parts, strict=False)]
        return _either(ibis.cases(*branches, else_=parts[-1].value), parts, conditions)

    def _read_cast(self, node: Any) -> SafeExpression:
        kind = {"DATE": "date", "TIMESTAMP": "time", "DATETIME": "time"}.get(node.to.this.name)
        if kind is None:
            raise self.refusal(node)
        part = self.read(node.this)
        if (part.kind, kind) == ("time", "date"):
            return _combine(part.value.date(), "date", [part])
        return convert(part, kind)

    def _read_extract(self, node: Any) -> SafeExpression:
        name, part = str(node.this.name).upper(), self.read(node.expression)
        if name in _CLOCK_PARTS or part.kind not in ("date", "time"):
            part = convert(part, "time")
        if name in ("ISODOW", "DAYOFWEEKISO"):
            value = part.value.day_of_week.index() + 1
        elif method := {**_DATE_PARTS, **_CLOCK_PARTS}.get(name):
            value = getattr(part.value, method)()
        else:
            raise self.refusal(node)
        return _combine(value.cast("int64"), "whole", [part], 1.0, 9999.0, more=4)

    def _read_timestamptrunc(self, node: Any) -> SafeExpression:
        unit, part = str(node.args["unit"].name).upper(), self.as_kind(node.this, "time")
        if unit not in _UNITS:
            raise self.refusal(node)
        return _combine(part.value.truncate(unit), "time", [part])

    _read_datetrunc = _read_timestamptrunc

    def _read_lower(self, node: Any) -> SafeExpression:
        part = self.as_kind(node.this, "text")
        # Databases agree on the letters A to Z only.
        letters = (_CAPITALS, _SMALL) if type(node).__name__ == "Lower" else (_SMALL, _CAPITALS)
        return _combine(part.value.translate(*letters), "text", [part], more=3)

    _read_upper = _read_lower

    def _read_length(self, node: Any) -> SafeExpression:
        part = self.as_kind(node.this, "text")
        return _combine(part.value.length().cast("int64"), "whole", [part], 1.0, 2.0**31)

    def _read_substring(self, node: Any) -> SafeExpression:
        part = self.as_kind(node.this, "text")
        given = [node.args.get("start"), node.args.get("length")]
        start, length = (None if each is None else self.read(each).constant for each in given)
        ends = [start] if given[1] is None else [start, length]
        if any(type(each) is not int or not 0 <= each < 1 << 30 for each in ends) or not start:
            raise InputError(f"{self.shown}: substr takes a constant start, from 1 on, and a constant length")
        return _combine(part.value.substr(start - 1, length), "text", [part])


def _either(value: Any, results: list[SafeExpression], others: list[SafeExpression]) -> SafeExpression:
    """Return a value that is one of the results."""
    least, most = min(p.least for p in results), max(p.most for p in results)
    return _combine(value, results[0].kind, [*results, *others], least, most)
