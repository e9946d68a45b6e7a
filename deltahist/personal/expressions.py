"""Expressions on records that no record can make fail, and that mean the same in every database.

An error that depends on what records hold would tell about them: whole numbers that overflow, a division by zero, the
root of a negative number, text that is no number. So expressions of Ibis are made anew, operation by operation: what
could fail is guarded, by giving it NULL where it would, and what cannot be guarded, or is not the same everywhere, is
refused. No guard relies on the order in which a database evaluates the parts of an expression.

Expressions are functions of an Ibis table, or text, `hour >= 22 and kind in ('bus', 'tram')`, which becomes the same.
Numbers are floats, zero or of a size of 1e-100 to 1e100 in columns and results, and of 1e-300 to 1e300 on the way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from deltahist.errors import InputError
from deltahist.personal.values import (
    LARGEST,
    MOST_NODES,
    SMALLEST,
    WORDS,
    SafeExpression,
    as_time,
    check_column,
    clip,
    combine,
    constant,
    convert,
    kind_of,
    too_long_error,
    unify,
)  # fmt: skip

#: Factors are of these sizes, so that no product is too large, or too small, for a float.
_FACTOR = (1e-150, 1e150)
#: Whole numbers up to here are floats, and the other way round.
_EXACT = 2.0**53
_WHOLE = 2.0**63

_COMPARISONS = {
    "Equals": "eq", "NotEquals": "ne", "Less": "lt", "LessEqual": "le", "Greater": "gt", "GreaterEqual": "ge",
}  # fmt: skip
_BY_DAY = {
    "ExtractYear": "year", "ExtractQuarter": "quarter", "ExtractMonth": "month", "ExtractDay": "day",
    "ExtractDayOfYear": "day_of_year",
}  # fmt: skip
_BY_CLOCK = {"ExtractHour": "hour", "ExtractMinute": "minute", "ExtractSecond": "second"}
_UNITS = {
    "YEAR": "Y", "QUARTER": "Q", "MONTH": "M", "WEEK": "W", "DAY": "D", "HOUR": "h", "MINUTE": "m", "SECOND": "s",
}  # fmt: skip
_CAPITALS, _SMALL = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"

_RANDOM = "it gives something else each time"
_OTHERS = "it looks at other records, and a record must be derived from one record alone"
_LIBRARY = "its last digits differ between databases"
_UNKNOWN = "it could fail for some records, or is not the same in every database"
_WHY = {
    **dict.fromkeys(("RandomScalar", "RandomUUID", "TimestampNow", "DateNow", "RowID"), _RANDOM),
    **dict.fromkeys(("WindowFunction", "ScalarSubquery", "InSubquery", "ExistsSubquery"), _OTHERS),
    **dict.fromkeys(("Exp", "Ln", "Log", "Log2", "Log10", "Power", "Sin", "Cos", "Tan", "Atan2"), _LIBRARY),
    "Round": "halves are rounded in different ways; write floor(x + 0.5)",
    "StringConcat": "texts could grow beyond what a database holds",
    "IsNan": "a NaN is missing; ask whether it is null",
    "IsInf": "an infinite number is missing; ask whether it is null",
}
_RULE = (
    "there are comparisons, and, or, not, + - * /, whole % constant, floor, ceil, abs, sqrt, case, coalesce, nullif, "
    "lower, upper, length, substr, like, parts of times, and truncated times"
)


def make_safe(expression: Any, given: Any, records: Any) -> SafeExpression:
    """Turn an expression on a table `given` into one on `records`, of the same columns, that cannot fail.

    Raises
    ------
    InputError
        If it asks for something else than what one record says, or for what could fail or is not the same in every
        database; the message names the operation and the reason.

    >>> import ibis
    >>> visits = ibis.table({"stay": "float64"}, name="visits")
    >>> make_safe(1 / visits.stay > 2, visits, visits).columns
    frozenset({'stay'})
    >>> make_safe(visits.stay > visits.stay.mean(), visits, visits)
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: the query asks for Mean: it looks at other records, and a record must be derived...
    """
    try:
        out = _Maker(given, records).of(expression.op())
    except RecursionError:
        raise too_long_error() from None
    if out.kind == "number":
        out = clip(out, SMALLEST, LARGEST)
    return out


class _Maker:
    """Makes expressions anew, operation by operation."""

    def __init__(self, given: Any, records: Any) -> None:
        import ibis.expr.operations as ops

        self.ops, self.given, self.records = ops, given.op(), records
        self._made: dict[Any, SafeExpression] = {}

    def of(self, op: Any) -> SafeExpression:
        """Return a safe expression for an operation."""
        if op not in self._made:
            name = type(op).__name__
            # A function of the user's own may have any name.
            known = getattr(self.ops, name, None) is type(op)
            make = _MAKERS.get(name) if known else None
            if make is None:
                looks_elsewhere = isinstance(op, self.ops.Reduction | self.ops.Analytic)
                why = _WHY.get(name, _OTHERS if looks_elsewhere else _UNKNOWN)
                raise InputError(f"the query asks for {name}: {why}; {_RULE}")
            self._made[op] = make(self, op)
        return self._made[op]

    def each(self, ops: Sequence[Any]) -> list[SafeExpression]:
        """Return safe expressions for several operations."""
        return [self.of(op) for op in ops]

    def as_kind(self, op: Any, kind: str) -> SafeExpression:
        """Return a safe expression of a kind for an operation."""
        return convert(self.of(op), kind)

    def field(self, op: Any) -> SafeExpression:
        if op.rel != self.given:
            raise InputError(
                f"the query asks for {op.name!r} of another table: {_OTHERS}; public tables come in by join"
            )
        value, kind = self.records[op.name], kind_of(op.dtype)
        least, most = (1.0, _WHOLE) if kind == "whole" else (SMALLEST, LARGEST)
        return SafeExpression(value, str(kind), frozenset((op.name,)), least, most)

    def literal(self, op: Any) -> SafeExpression:
        import ibis

        value = op.value
        if value is None:
            return SafeExpression(ibis.null(), "null")
        if op.dtype.is_timestamp() or op.dtype.is_date():
            return constant(as_time(value, "time" if op.dtype.is_timestamp() else "date"))
        if not (op.dtype.is_numeric() or op.dtype.is_boolean() or op.dtype.is_string()):
            raise InputError(
                f"the query has a constant of type {op.dtype}: it must be a number, text, a time or a date"
            )
        if op.dtype.is_decimal():
            value = float(value)
        return constant(value.item() if hasattr(value, "item") else value)

    # --- truths

    def compare(self, op: Any) -> SafeExpression:
        parts = unify(self.each([op.left, op.right]))
        name = type(op).__name__
        self._ordered(parts[0].kind, name)
        return combine(getattr(parts[0].value, f"__{_COMPARISONS[name]}__")(parts[1].value), "truth", parts)

    def between(self, op: Any) -> SafeExpression:
        value, low, high = parts = unify(self.each([op.arg, op.lower_bound, op.upper_bound]))
        self._ordered(value.kind, "Between")
        return combine(value.value.between(low.value, high.value), "truth", parts)

    def _ordered(self, kind: str, name: str) -> None:
        if kind in ("truth", "text") and name not in ("Equals", "NotEquals"):
            why = "databases order text in different ways" if kind == "text" else "true and false have no order"
            raise InputError(
                f"the query asks for {name} of {WORDS[kind]}: {why}; there are =, <>, in and like"
            )

    def among(self, op: Any) -> SafeExpression:
        if len(op.options) >= MOST_NODES:
            raise too_long_error()
        parts = unify(self.each([op.value, *op.options]))
        return combine(parts[0].value.isin([part.value for part in parts[1:]]), "truth", parts)

    # --- numbers

    def add(self, op: Any) -> SafeExpression:
        parts = [clip(self.as_kind(each, "number"), _FACTOR[0], 1e299) for each in (op.left, op.right)]
        left, right = (part.value for part in parts)
        value = left + right if type(op).__name__ == "Add" else left - right
        # What is left when numbers cancel out is no smaller than the last digit of the smaller one.
        least = min(p.least for p in parts) * 2.0**-53
        return combine(value, "number", parts, least, sum(p.most for p in parts))

    def multiply(self, op: Any) -> SafeExpression:
        one, other = parts = self._factors(op)
        least, most = one.least * other.least / 2, one.most * other.most * 2
        return combine(one.value * other.value, "number", parts, least, most)

    def divide(self, op: Any) -> SafeExpression:
        one, other = parts = self._factors(op)
        value = one.value / other.value.nullif(constant(0.0).value)
        return combine(value, "number", parts, one.least / other.most / 2, one.most / other.least * 2, more=3)

    def _factors(self, op: Any) -> list[SafeExpression]:
        return [clip(self.as_kind(each, "number"), *_FACTOR) for each in (op.left, op.right)]

    def minus(self, op: Any) -> SafeExpression:
        part = self.as_kind(op.arg, "number")
        if part.constant is not None:
            return constant(-part.constant)
        return combine(constant(0.0).value - part.value, "number", [part], part.least, part.most, more=2)

    def size(self, op: Any) -> SafeExpression:
        part = self.as_kind(op.arg, "number")
        return combine(part.value.abs(), "number", [part], part.least, part.most)

    def root(self, op: Any) -> SafeExpression:
        import ibis

        part = self.as_kind(op.arg, "number")
        value = ibis.cases((part.value >= 0, part.value)).sqrt()
        return combine(value, "number", [part] * 2, min(part.least, 1.0), max(part.most, 1.0), more=4)

    def floor(self, op: Any) -> SafeExpression:
        part = self.of(op.arg)
        if part.kind == "whole":
            return part
        return self._floor(convert(part, "number"), type(op).__name__ == "Ceil")

    def _floor(self, part: SafeExpression, up: bool = False) -> SafeExpression:
        part = clip(part, SMALLEST, _EXACT)
        value = part.value.ceil() if up else part.value.floor()
        return combine(value.cast("int64"), "whole", [part], 1.0, _EXACT)

    def floor_divide(self, op: Any) -> SafeExpression:
        return self._floor(self.divide(op))

    def remainder(self, op: Any) -> SafeExpression:
        left, right = parts = self.each([op.left, op.right])
        if left.kind != "whole" or not isinstance(right.constant, int) or not 0 < right.constant < 1 << 31:
            raise InputError(
                "the query asks for a remainder (%): it is one of a whole number (floor makes one) by a whole constant "
                "above 0 and below 2^31"
            )
        return combine(left.value % right.value, "whole", parts, 1.0, right.most)

    # --- one of several values, and other kinds

    def first(self, op: Any) -> SafeExpression:
        import ibis

        parts = unify(self.each(op.arg))
        return self._either(ibis.coalesce(*(part.value for part in parts)), parts, [])

    def null_if(self, op: Any) -> SafeExpression:
        parts = unify(self.each([op.arg, op.null_if_expr]))
        return self._either(parts[0].value.nullif(parts[1].value), parts[:1], parts[1:])

    def _either(
        self, value: Any, results: Sequence[SafeExpression], others: Sequence[SafeExpression]
    ) -> SafeExpression:
        """Return a value that is one of the results."""
        least, most = min(p.least for p in results), max(p.most for p in results)
        return combine(value, results[0].kind, [*results, *others], least, most)

    def if_else(self, op: Any) -> SafeExpression:
        return self._case([self.as_kind(op.bool_expr, "truth")], [op.true_expr, op.false_null_expr])

    def case(self, op: Any) -> SafeExpression:
        return self._case([self.as_kind(each, "truth") for each in op.cases], [*op.results, op.default])

    def simple_case(self, op: Any) -> SafeExpression:
        pairs = [unify(self.each([op.base, each])) for each in op.cases]
        conditions = [combine(base.value == each.value, "truth", [base, each]) for base, each in pairs]
        return self._case(conditions, [*op.results, op.default])

    def _case(self, conditions: Sequence[SafeExpression], results: Sequence[Any]) -> SafeExpression:
        import ibis

        parts = unify(self.each(results))
        branches = [(one.value, then.value) for one, then in zip(conditions, parts, strict=False)]
        return self._either(ibis.cases(*branches, else_=parts[-1].value), parts, conditions)

    def cast(self, op: Any) -> SafeExpression:
        import ibis

        part, kind = self.of(op.arg), kind_of(op.to)
        if part.kind == "truth" and kind == "whole":
            whole = ibis.cases((part.value, constant(1).value), (~part.value, constant(0).value))
            return combine(whole, "whole", [part] * 2, 1.0, 1.0, more=4)
        if part.kind == "time" and kind == "date":
            return combine(part.value.date(), "date", [part])
        if kind is None or (kind == "whole" and not op.to.is_int64()):
            raise InputError(
                f"the query asks for a cast to {op.to}: it must be to int64, float64, string or a time"
            )
        return convert(part, kind)

    # --- times and text

    def part_of_time(self, op: Any) -> SafeExpression:
        name, part = type(op).__name__, self.of(op.arg)
        if name in _BY_CLOCK or part.kind not in ("date", "time"):
            part = convert(part, "time")
        method = {**_BY_DAY, **_BY_CLOCK}.get(name)
        value = part.value.day_of_week.index() if method is None else getattr(part.value, method)()
        return combine(value.cast("int64"), "whole", [part], 1.0, 9999.0, more=4)

    def truncate(self, op: Any) -> SafeExpression:
        part, unit = self.as_kind(op.arg, "time"), op.unit.short
        if unit not in _UNITS.values():
            raise InputError(f"the query truncates times to {unit!r}: it must be one of {', '.join(_UNITS.values())}")
        return combine(part.value.truncate(unit), "time", [part])

    def piece(self, op: Any) -> SafeExpression:
        part = self.as_kind(op.arg, "text")
        ends = [None if each is None else self.of(each).constant for each in (op.start, op.length)]
        asked = ends if op.length is not None else ends[:1]
        if any(not isinstance(each, int) or not 0 <= each < 1 << 30 for each in asked):
            raise InputError(
                "the query asks for a piece of a text: where it starts, and its length, must be constants"
            )
        return combine(part.value.substr(*ends), "text", [part])

    def like(self, op: Any) -> SafeExpression:
        return self._like(self.as_kind(op.arg, "text"), self.of(op.pattern).constant, op.escape)

    def holds(self, op: Any) -> SafeExpression:
        what = {"StartsWith": "start", "EndsWith": "end", "StringContains": "needle"}[type(op).__name__]
        text = self.of(getattr(op, what)).constant
        before, after = "%" * (what != "start"), "%" * (what != "end")
        pattern = before + text + after if isinstance(text, str) and not set(text) & set("%_") else None
        return self._like(self.as_kind(op.haystack if what == "needle" else op.arg, "text"), pattern, None)

    def _like(self, part: SafeExpression, pattern: Any, escape: Any) -> SafeExpression:
        if not isinstance(pattern, str) or "\\" in pattern or escape is not None:
            raise InputError(
                f"the query compares text with the pattern {pattern!r}: it must be a constant, without a backslash or "
                "an escape, which databases read in different ways"
            )
        after = pattern.partition("%")[2]
        if "_" in after or after.count("%") > 1:
            raise InputError(
                f"the query compares text with the pattern {pattern!r}: it must have no _ after a % and at most two %, "
                "since others can take a database very long on some texts; use several patterns, or substr"
            )
        return combine(part.value.like(pattern), "truth", [part], more=2)


def _simple(
    kind: str | None, result: str, function: Callable[..., Any], most: float = LARGEST, more: int = 1
) -> Callable[[_Maker, Any], SafeExpression]:
    """Return the maker of an operation that needs no guard: its arguments are of one kind, if one is given."""

    def make(maker: _Maker, op: Any) -> SafeExpression:
        parts = [maker.of(arg) if kind is None else maker.as_kind(arg, kind) for arg in op.args]
        return combine(function(*(part.value for part in parts)), result, parts, most=most, more=more)

    return make


_MAKERS: Mapping[str, Callable[[_Maker, Any], SafeExpression]] = {
    "And": _simple("truth", "truth", operator.and_),
    "Or": _simple("truth", "truth", operator.or_),
    "Not": _simple("truth", "truth", operator.invert),
    "IsNull": _simple(None, "truth", lambda value: value.isnull()),
    "NotNull": _simple(None, "truth", lambda value: value.notnull()),
    "Date": _simple("time", "date", lambda value: value.date()),
    # Databases agree on the letters A to Z only.
    "Lowercase": _simple("text", "text", lambda value: value.translate(_CAPITALS, _SMALL), more=3),
    "Uppercase": _simple("text", "text", lambda value: value.translate(_SMALL, _CAPITALS), more=3),
    "StringLength": _simple("text", "whole", lambda value: value.length().cast("int64"), 2.0**31),
    **dict.fromkeys(_COMPARISONS, _Maker.compare),
    **dict.fromkeys((*_BY_DAY, *_BY_CLOCK, "DayOfWeekIndex"), _Maker.part_of_time),
    **dict.fromkeys(("Add", "Subtract"), _Maker.add),
    **dict.fromkeys(("Floor", "Ceil"), _Maker.floor),
    **dict.fromkeys(("StartsWith", "EndsWith", "StringContains"), _Maker.holds),
    **dict.fromkeys(("TimestampTruncate", "DateTruncate"), _Maker.truncate),
    "Alias": lambda maker, op: maker.of(op.arg),
    "Field": _Maker.field, "Literal": _Maker.literal, "Between": _Maker.between, "InValues": _Maker.among,
    "Multiply": _Maker.multiply, "Divide": _Maker.divide, "Negate": _Maker.minus, "Abs": _Maker.size,
    "Sqrt": _Maker.root, "FloorDivide": _Maker.floor_divide, "Modulus": _Maker.remainder, "Coalesce": _Maker.first,
    "NullIf": _Maker.null_if, "IfElse": _Maker.if_else, "SearchedCase": _Maker.case, "SimpleCase": _Maker.simple_case,
    "Cast": _Maker.cast, "Substring": _Maker.piece, "StringSQLLike": _Maker.like,
}  # fmt: skip


# --- expressions as text --------------------------------------------------------------------------------------

#: Characters of an expression: longer ones take long to read, and are refused for their parts in the end.
_LONGEST = 1 << 16
_PARTS = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day", "DOY": "day_of_year", "HOUR": "hour",
    "MINUTE": "minute", "SECOND": "second",
}  # fmt: skip


def read_text(text: str, given: Any) -> Any:
    """Return the Ibis expression that a text says of an Ibis table `given`.

    Raises
    ------
    InputError
        If it cannot be read, names a column that is not there, or asks for more than this language has.

    >>> import ibis
    >>> visits = ibis.table({"kind": "string", "time": "timestamp"}, name="visits")
    >>> read_text("kind in ('bus', 'tram') and extract(hour from time) >= 22", visits).type()
    Boolean(nullable=True)
    >>> read_text("random() < 0.5", visits)
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: the query says 'random() < 0.5', which asks for 'RAND()': there are columns, ...
    """
    import ibis

    reader = _ExpressionReader(text, given)
    if len(text) > _LONGEST:
        raise InputError(
            f"{reader.shown}: an expression is of at most {_LONGEST:,} characters; join a public table of the values "
            "instead of listing very many"
        )
    try:
        return reader.read()
    except ibis.common.exceptions.IbisError:
        raise reader.mismatch_error() from None


class Reader:
    """A reader of one text: for each kind of node that sqlglot may find an operator or a method, else an error.

    Columns are objects with Python's operators, and with `isnull`, `isin`, `between` and `like`, as Ibis has them.
    """

    #: The text in messages, the rule that they end with, and the rule where values do not go together.
    subject: ClassVar[str] = "where is"
    rule: ClassVar[str] = (
        "it must compare columns with constants, such as \"kind = 'bus' and speed > 3\"; there are =, <>, <, <=, >, "
        ">=, in, between, like, is null, not, and, or; text and dates stand in single quotes, and a column of true and "
        "false is compared with them (= true)"
    )
    mismatch: ClassVar[str] = rule
    binary: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {
        "EQ": operator.eq, "NEQ": operator.ne, "GT": operator.gt, "GTE": operator.ge, "LT": operator.lt,
        "LTE": operator.le, "And": operator.and_, "Or": operator.or_,
    }  # fmt: skip
    unary: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"Not": operator.invert, "Neg": operator.neg}

    def __init__(self, text: str) -> None:
        self.text, self.shown = text, f"{self.subject} {text!r}"

    def column(self, name: str, quoted: bool) -> Any:
        """Return the object of a column."""
        raise NotImplementedError

    def constant(self, value: str | float | bool) -> Any:
        """Return the object of a constant."""
        return value

    def read(self) -> Any:
        """Return the value of the whole text.

        Raises InputError if sqlglot cannot read it, or it asks for more than this language has.
        """
        import sqlglot
        from sqlglot import exp

        try:
            return self.value(sqlglot.parse_one(self.text, into=exp.Condition))
        except (sqlglot.errors.ParseError, sqlglot.errors.TokenError, RecursionError):
            raise InputError(
                f"{self.shown}, which cannot be read: {self.rule}; names of columns that are words of SQL (when, "
                "order) or have spaces are put in double quotes, text in single ones"
            ) from None
        except (AttributeError, TypeError, ArithmeticError):
            raise self.mismatch_error() from None

    def mismatch_error(self) -> InputError:
        """Return the error for an operation that there is not between values of these kinds."""
        node = repr(self._node.sql()[:200])
        return InputError(f"{self.shown}, in which {node} does not go with the kinds of its parts: {self.mismatch}")

    def value(self, node: Any) -> Any:
        """Return the value of a node of the tree."""
        # A long chain, a or b or c and so on, is as deep as it is long: it is taken apart without recursion.
        rest, chain = node, []
        while (name := type(rest).__name__) in self.binary:
            chain.append(rest)
            rest = rest.this
        if chain:
            out = self.value(rest)
            for each in reversed(chain):
                other, self._node = self.value(each.expression), each
                out = self.binary[type(each).__name__](out, other)
            return out
        if name in self.unary and not node.args.get("decimals") and not node.args.get("to"):
            part, self._node = self.value(node.this), node
            return self.unary[name](part)
        read = getattr(self, f"_read_{name.lower()}", None)
        if read is None:
            raise self.refusal(node)
        self._node = node
        return read(node)

    def refusal(self, node: Any) -> InputError:
        """Return the error for a node that is not taken, with a likely cause."""
        from sqlglot import exp

        pointed = isinstance(node, exp.Column) and node.args.get("table")
        cause = " (a name with a point in it is put in double quotes)" if pointed else ""
        cause = " (write: is null)" if isinstance(node, exp.Null) else cause
        return InputError(f"{self.shown}, which asks for {node.sql()[:40]!r}{cause}: {self.rule}")

    def _read_paren(self, node: Any) -> Any:
        return self.value(node.this)

    def _read_column(self, node: Any) -> Any:
        if node.args.get("table") or not isinstance(node.name, str) or not node.name:
            raise self.refusal(node)
        return self.column(node.name, bool(node.this.args.get("quoted")))

    def _read_boolean(self, node: Any) -> Any:
        return self.constant(bool(node.this))

    def _read_literal(self, node: Any) -> Any:
        text = str(node.this)
        if node.is_string:
            return self.constant(text)
        whole = text.isdigit()
        # Digits are counted first: long numbers take long to read.
        if whole and len(text.lstrip("0")) <= 19 and int(text) < 1 << 63:
            return self.constant(int(text))
        if whole or not math.isfinite(float(text)):
            raise InputError(
                f"{self.shown}, with the number {text!r}: whole numbers are below 2^63, and other numbers are "
                "0 or of a size that a float holds"
            )
        return self.constant(float(text))

    def _read_is(self, node: Any) -> Any:
        from sqlglot import exp

        if not isinstance(node.expression, exp.Null):
            raise self.refusal(node)
        return self.value(node.this).isnull()

    def _read_in(self, node: Any) -> Any:
        if not node.expressions or node.args.get("query"):
            raise self.refusal(node)
        return self.value(node.this).isin([self.value(each) for each in node.expressions])

    def _read_between(self, node: Any) -> Any:
        if node.args.get("symmetric"):
            raise self.refusal(node)
        low, high = (self.value(node.args[end]) for end in ("low", "high"))
        return self.value(node.this).between(low, high)

    def _read_like(self, node: Any) -> Any:
        from sqlglot import exp

        if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
            raise self.refusal(node)
        return self.value(node.this).like(str(node.expression.this))


class _ExpressionReader(Reader):
    """A reader that makes expressions of an Ibis table."""

    subject = "the query says"
    rule = (
        "there are columns, constants, =, <>, <, <=, >, >=, in, between, like, is null, not, and, or, + - * / %, case, "
        "coalesce, nullif, floor, ceil, abs, sqrt, lower, upper, length, substr, extract, date_trunc and "
        "cast(time as date)"
    )
    mismatch = "numbers are compared and reckoned with numbers, text with text, times with '2026-05-01 22:30:00'"
    binary: ClassVar = {
        **Reader.binary, "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv,
        "Mod": operator.mod, "Nullif": lambda one, other: one.nullif(other),
    }  # fmt: skip
    unary: ClassVar = {
        **Reader.unary,
        **{name.title(): operator.methodcaller(name) for name in
           ("lower", "upper", "length", "floor", "ceil", "abs", "sqrt")},
    }  # fmt: skip

    def __init__(self, text: str, given: Any) -> None:
        super().__init__(text)
        self._given = given

    def column(self, name: str, quoted: bool) -> Any:
        if name not in self._given.columns and quoted:
            raise InputError(
                f"the query asks for column {name!r}, which is not there: text stands in single quotes, names of "
                "columns in double ones"
            )
        check_column(name, self._given.columns)
        return self._given[name]

    def constant(self, value: Any) -> Any:
        import ibis

        return ibis.literal(value, {str: "string", bool: "boolean", int: "int64", float: "float64"}[type(value)])

    def _read_null(self, node: Any) -> Any:
        import ibis

        return ibis.null()

    def _read_coalesce(self, node: Any) -> Any:
        import ibis

        return ibis.coalesce(*(self.value(each) for each in (node.this, *node.expressions)))

    def _read_case(self, node: Any) -> Any:
        import ibis

        base = None if node.this is None else self.value(node.this)
        branches = []
        for each in node.args["ifs"]:
            when, then = self.value(each.this), self.value(each.args["true"])
            branches.append((when if base is None else base == when, then))
        default = node.args.get("default")
        return ibis.cases(*branches, else_=None if default is None else self.value(default))

    def _read_extract(self, node: Any) -> Any:
        part, value = str(node.this.name).upper(), self.value(node.expression)
        if part in ("ISODOW", "DAYOFWEEKISO"):
            return value.day_of_week.index() + 1
        if part not in _PARTS:
            raise self.refusal(node)
        return getattr(value, _PARTS[part])()

    def _read_timestamptrunc(self, node: Any) -> Any:
        unit = str(node.args["unit"].name).upper()
        if unit not in _UNITS:
            raise self.refusal(node)
        return self.value(node.this).truncate(_UNITS[unit])

    _read_datetrunc = _read_timestamptrunc

    def _read_cast(self, node: Any) -> Any:
        import ibis
        from sqlglot import exp

        to = {"DATE": "date", "TIMESTAMP": "timestamp(6)", "DATETIME": "timestamp(6)"}.get(node.to.this.name)
        if to is None:
            raise self.refusal(node)
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            return ibis.literal(as_time(str(node.this.this), "date" if to == "date" else "time"))
        return self.value(node.this).cast(to)

    def _read_substring(self, node: Any) -> Any:
        from sqlglot import exp

        ends = [node.args.get("start"), node.args.get("length")]
        if any(each is not None and not (isinstance(each, exp.Literal) and each.is_int) for each in ends):
            raise self.refusal(node)
        start, length = (None if each is None else int(each.this) for each in ends)
        if not start:
            raise InputError(f"{self.shown}: the first letter of a text is number 1")
        return self.value(node.this).substr(start - 1, length)
