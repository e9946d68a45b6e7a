"""Expressions written as text, `hour >= 22 and kind in ('bus', 'tram')`: a small part of SQL, read by sqlglot.

One reader walks the tree; `IbisReader` makes expressions of a table of a database, and `counting/conditions.py` tests
on columns of a file.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from deltahist.errors import InputError, shortened

#: Characters of an expression: longer ones take long to read, and are refused for their parts in the end.
_LONGEST = 1 << 16


class Reader:
    """A reader of one text: a method for each kind of node that sqlglot may find, and an error for all others.

    Subclasses say what columns and constants become, and how they are combined.
    """

    #: The text in messages, and the rule that messages end with.
    subject: ClassVar[str]
    rule: ClassVar[str]
    #: Nodes with two operands.
    binary: ClassVar[Mapping[str, Callable[[Any, Any], Any]]]
    #: Value of: is null; in (among a list); between, with both ends; like a pattern.
    missing: Callable[[Any], Any]
    among: Callable[[Any, list[Any]], Any]
    between: Callable[[Any, Any, Any], Any]
    like: Callable[[Any, str], Any]

    def __init__(self, text: str) -> None:
        self.text, self.shown = text, f"{self.subject} {shortened(text)}"

    def read(self) -> Any:
        """Return the value of the whole text.

        Raises InputError if sqlglot cannot read it, or it asks for more than the subclass takes.
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

    def value(self, node: Any) -> Any:
        """Return the value of a node of the tree."""
        # A long chain, a or b or c and so on, is as deep as it is long: it is taken apart without recursion.
        rest, chain = node, []
        while type(rest).__name__ in self.binary:
            chain.append(rest)
            rest = rest.this
        if chain:
            out = self.value(rest)
            for each in reversed(chain):
                out = self.binary[type(each).__name__](out, self.value(each.expression))
            return out
        read = getattr(self, f"_read_{type(node).__name__.lower()}", None)
        if read is None:
            raise self.refusal(node)
        return read(node)

    def refusal(self, node: Any) -> InputError:
        """Return the error for a node that is not taken."""
        from sqlglot import exp

        shown = node.sql()[:40] if isinstance(node, exp.Expression) else str(node)[:40]
        return InputError(f"{self.shown}, which asks for {shown!r}{self.cause(node)}: {self.rule}")

    def cause(self, node: Any) -> str:
        """Return a likely cause, in brackets, why a node is there that is not taken."""
        from sqlglot import exp

        if isinstance(node, exp.Column) and node.args.get("table"):
            return " (a name with a point in it is put in double quotes)"
        return ""

    def column_name(self, node: Any) -> str:
        """Return the name of the column that a node is."""
        from sqlglot import exp

        if not isinstance(node, exp.Column) or node.args.get("table"):
            raise self.refusal(node)
        return str(node.name)

    def literal(self, node: Any) -> str | int | float:
        """Return the text or number that a node is."""
        text = str(node.this)
        if node.is_string:
            return text
        whole = text.isdigit()
        # Digits are counted first: long numbers take long to read.
        if whole and len(text.lstrip("0")) <= 19 and int(text) < 1 << 63:
            return int(text)
        if whole or not math.isfinite(float(text)):
            raise InputError(
                f"{self.shown}, with the number {shortened(text)}: whole numbers are below 2^63, and other numbers are "
                "0 or of a size that a float holds"
            )
        return float(text)

    def _read_paren(self, node: Any) -> Any:
        return self.value(node.this)

    def _read_is(self, node: Any) -> Any:
        from sqlglot import exp

        if not isinstance(node.expression, exp.Null):
            raise self.refusal(node)
        return self.missing(node.this)

    def _read_in(self, node: Any) -> Any:
        if not node.expressions or node.args.get("query"):
            raise self.refusal(node)
        return self.among(node.this, node.expressions)

    def _read_between(self, node: Any) -> Any:
        if node.args.get("symmetric"):
            raise self.refusal(node)
        return self.between(node.this, node.args["low"], node.args["high"])

    def _read_like(self, node: Any) -> Any:
        from sqlglot import exp

        if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
            raise self.refusal(node)
        return self.like(node.this, str(node.expression.this))


_ONE: Mapping[str, Callable[[Any], Any]] = {
    "Not": operator.invert,
    "Neg": operator.neg,
    "Lower": lambda value: value.lower(),
    "Upper": lambda value: value.upper(),
    "Length": lambda value: value.length(),
    "Floor": lambda value: value.floor(),
    "Ceil": lambda value: value.ceil(),
    "Abs": lambda value: value.abs(),
    "Sqrt": lambda value: value.sqrt(),
}
_PARTS = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day", "DOY": "day_of_year", "HOUR": "hour",
    "MINUTE": "minute", "SECOND": "second",
}  # fmt: skip
_UNITS = {
    "YEAR": "Y", "QUARTER": "Q", "MONTH": "M", "WEEK": "W", "DAY": "D", "HOUR": "h", "MINUTE": "m", "SECOND": "s",
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

    reader = IbisReader(text, given)
    if len(text) > _LONGEST:
        raise InputError(
            f"{reader.shown}: an expression is of at most {_LONGEST:,} characters; join a public table of the values "
            "instead of listing very many"
        )
    try:
        return reader.read()
    except (AttributeError, TypeError, ArithmeticError, ibis.common.exceptions.IbisError):
        # Ibis has no such operation between values of these types.
        raise InputError(
            f"{reader.shown}, which does not go with the kinds of its columns: numbers are compared and reckoned with "
            "numbers, text with text, times with '2026-05-01 22:30:00'"
        ) from None


def check_column(name: Any, known: Any) -> None:
    """Raise InputError unless a name is one of the known columns."""
    if name not in known:
        listed = ", ".join(repr(each) for each in sorted(known)) or "none"
        raise InputError(f"the query asks for column {name!r}, which is not there: there are {listed}")


class IbisReader(Reader):
    """A reader that makes expressions of an Ibis table."""

    subject = "the query says"
    rule = (
        "there are columns, constants, =, <>, <, <=, >, >=, in, between, like, is null, not, and, or, + - * / %, case, "
        "coalesce, nullif, floor, ceil, abs, sqrt, lower, upper, length, substr, extract, date_trunc and "
        "cast(time as date)"
    )
    binary: ClassVar = {
        "EQ": operator.eq, "NEQ": operator.ne, "GT": operator.gt, "GTE": operator.ge, "LT": operator.lt,
        "LTE": operator.le, "And": operator.and_, "Or": operator.or_, "Add": operator.add, "Sub": operator.sub,
        "Mul": operator.mul, "Div": operator.truediv, "Mod": operator.mod,
        "Nullif": lambda one, other: one.nullif(other),
    }  # fmt: skip

    def __init__(self, text: str, given: Any) -> None:
        super().__init__(text)
        self.given = given

    def value(self, node: Any) -> Any:
        apply = _ONE.get(type(node).__name__)
        if apply is not None and not node.args.get("decimals") and not node.args.get("to"):
            return apply(self.value(node.this))
        return super().value(node)

    def missing(self, node: Any) -> Any:
        return self.value(node).isnull()

    def among(self, node: Any, options: list[Any]) -> Any:
        return self.value(node).isin([self.value(each) for each in options])

    def between(self, node: Any, low: Any, high: Any) -> Any:
        return self.value(node).between(self.value(low), self.value(high))

    def like(self, node: Any, pattern: str) -> Any:
        return self.value(node).like(pattern)

    def _read_column(self, node: Any) -> Any:
        name = self.column_name(node)
        if name not in self.given.columns and node.this.args.get("quoted"):
            raise InputError(
                f"the query asks for column {name!r}, which is not there: text stands in single quotes, names of "
                "columns in double ones"
            )
        check_column(name, self.given.columns)
        return self.given[name]

    def _read_literal(self, node: Any) -> Any:
        import ibis

        value = self.literal(node)
        return ibis.literal(value, {str: "string", int: "int64", float: "float64"}[type(value)])

    def _read_boolean(self, node: Any) -> Any:
        import ibis

        return ibis.literal(bool(node.this))

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
        from sqlglot import exp

        to = {"DATE": "date", "TIMESTAMP": "timestamp(6)", "DATETIME": "timestamp(6)"}.get(node.to.this.name)
        if to is None:
            raise self.refusal(node)
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            import ibis

            from deltahist.counting.kinds import as_time

            return ibis.literal(as_time(str(node.this.this), "date" if to == "date" else "time"))
        return self.value(node.this).cast(to)

    def _read_substring(self, node: Any) -> Any:
        from sqlglot import exp

        numbers = [node.args.get("start"), node.args.get("length")]
        if any(each is not None and not (isinstance(each, exp.Literal) and each.is_int) for each in numbers):
            raise self.refusal(node)
        start, length = (None if each is None else int(each.this) for each in numbers)
        if not start:
            raise InputError(f"{self.shown}: the first letter of a text is number 1")
        return self.value(node.this).substr(start - 1, length)
