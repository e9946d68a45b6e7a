"""Expressions written as text, `hour >= 22 and kind in ('bus', 'tram')`: a small part of SQL, read by sqlglot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltahist.errors import InputError, shortened

_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": lambda one, other: one == other,
    "NEQ": lambda one, other: one != other,
    "GT": lambda one, other: one > other,
    "GTE": lambda one, other: one >= other,
    "LT": lambda one, other: one < other,
    "LTE": lambda one, other: one <= other,
    "And": lambda one, other: one & other,
    "Or": lambda one, other: one | other,
    "Add": lambda one, other: one + other,
    "Sub": lambda one, other: one - other,
    "Mul": lambda one, other: one * other,
    "Div": lambda one, other: one / other,
    "Mod": lambda one, other: one % other,
    "Nullif": lambda one, other: one.nullif(other),
}
_ONE: dict[str, Callable[[Any], Any]] = {
    "Paren": lambda value: value,
    "Not": lambda value: ~value,
    "Neg": lambda value: -value,
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
#: Characters of an expression: longer ones take long to read, and are refused for their parts in the end.
_LONGEST = 1 << 16
_RULE = (
    "there are columns, constants, =, <>, <, <=, >, >=, in, between, like, is null, not, and, or, + - * / %, case, "
    "coalesce, nullif, floor, ceil, abs, sqrt, lower, upper, length, substr, extract, date_trunc and cast(time as date)"
)


def read_text(text: str, given: Any) -> Any:
    """What a text says of an Ibis table `given`, as an Ibis expression.

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
    import sqlglot
    from sqlglot import exp

    if len(text) > _LONGEST:
        raise InputError(
            f"the query says {shortened(text)}: an expression is of at most {_LONGEST:,} characters; join a public "
            "table of the values instead of listing very many"
        )
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition)
        return _Reader(text, given).of(tree)
    except (sqlglot.errors.ParseError, sqlglot.errors.TokenError, RecursionError):
        raise InputError(
            f"the query says {shortened(text)}, which cannot be read: {_RULE}; names of columns that are words of SQL "
            "(when, order) or have spaces are put in double quotes, text in single ones"
        ) from None
    except (AttributeError, TypeError, ArithmeticError, ibis.common.exceptions.IbisError):
        # Ibis has no such operation between values of these types.
        raise InputError(
            f"the query says {shortened(text)}, which does not go with the kinds of its columns: numbers are compared "
            "and reckoned with numbers, text with text, times with '2026-05-01 22:30:00'"
        ) from None


def check_column(name: Any, known: Any) -> None:
    """InputError unless a name is one of the known columns."""
    if name not in known:
        listed = ", ".join(repr(each) for each in sorted(known)) or "none"
        raise InputError(f"the query asks for column {name!r}, which is not there: there are {listed}")


class _Reader:
    """Turns what sqlglot read into expressions of a table."""

    def __init__(self, text: str, given: Any) -> None:
        self.text, self.given = shortened(text), given

    def of(self, node: Any) -> Any:
        """What a node of the tree says."""
        from sqlglot import exp

        name = type(node).__name__
        if name in _ONE and not node.args.get("decimals") and not node.args.get("to"):
            return _ONE[name](self.of(node.this))
        if name in _TWO:
            return self._two(node)
        if isinstance(node, exp.Column) and not node.args.get("table"):
            if node.name not in self.given.columns and node.this.args.get("quoted"):
                raise InputError(
                    f"the query asks for column {node.name!r}, which is not there: text stands in single quotes, names "
                    "of columns in double ones"
                )
            check_column(node.name, self.given.columns)
            return self.given[node.name]
        special = getattr(self, f"_{name.lower()}", None)
        if special is None:
            raise self._refusal(node)
        return special(node)

    def _two(self, node: Any) -> Any:
        from sqlglot import exp

        # A long chain, a or b or c and so on, is as deep as it is long: it is taken apart without recursion.
        rest, chain = node, []
        while isinstance(rest, exp.Binary | exp.Nullif) and type(rest).__name__ in _TWO:
            chain.append(rest)
            rest = rest.this
        out = self.of(rest)
        for each in reversed(chain):
            out = _TWO[type(each).__name__](out, self.of(each.expression))
        return out

    def _literal(self, node: Any) -> Any:
        import ibis

        text = str(node.this)
        if node.is_string:
            return ibis.literal(text, "string")
        if text.isdigit():
            if len(text.lstrip("0")) > 19 or int(text) >= 1 << 63:
                raise InputError(
                    f"the query says {self.text}, with the number {shortened(text)}: whole numbers are below 2^63"
                )
            return ibis.literal(int(text), "int64")
        return ibis.literal(float(text), "float64")

    def _boolean(self, node: Any) -> Any:
        import ibis

        return ibis.literal(bool(node.this))

    def _null(self, node: Any) -> Any:
        import ibis

        return ibis.null()

    def _is(self, node: Any) -> Any:
        from sqlglot import exp

        if not isinstance(node.expression, exp.Null):
            raise self._refusal(node)
        return self.of(node.this).isnull()

    def _in(self, node: Any) -> Any:
        if not node.expressions or node.args.get("query"):
            raise self._refusal(node)
        return self.of(node.this).isin([self.of(each) for each in node.expressions])

    def _between(self, node: Any) -> Any:
        if node.args.get("symmetric"):
            raise self._refusal(node)
        return self.of(node.this).between(self.of(node.args["low"]), self.of(node.args["high"]))

    def _like(self, node: Any) -> Any:
        from sqlglot import exp

        if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
            raise self._refusal(node)
        return self.of(node.this).like(str(node.expression.this))

    def _coalesce(self, node: Any) -> Any:
        import ibis

        return ibis.coalesce(*(self.of(each) for each in (node.this, *node.expressions)))

    def _case(self, node: Any) -> Any:
        import ibis

        base = None if node.this is None else self.of(node.this)
        branches = []
        for each in node.args["ifs"]:
            when, then = self.of(each.this), self.of(each.args["true"])
            branches.append((when if base is None else base == when, then))
        default = node.args.get("default")
        return ibis.cases(*branches, else_=None if default is None else self.of(default))

    def _extract(self, node: Any) -> Any:
        part, value = str(node.this.name).upper(), self.of(node.expression)
        if part in ("ISODOW", "DAYOFWEEKISO"):
            return value.day_of_week.index() + 1
        if part not in _PARTS:
            raise self._refusal(node)
        return getattr(value, _PARTS[part])()

    def _timestamptrunc(self, node: Any) -> Any:
        unit = str(node.args["unit"].name).upper()
        if unit not in _UNITS:
            raise self._refusal(node)
        return self.of(node.this).truncate(_UNITS[unit])

    _datetrunc = _timestamptrunc

    def _cast(self, node: Any) -> Any:
        from sqlglot import exp

        to = {"DATE": "date", "TIMESTAMP": "timestamp(6)", "DATETIME": "timestamp(6)"}.get(node.to.this.name)
        if to is None:
            raise self._refusal(node)
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            import ibis

            from deltahist.counts.sql.kinds import as_time

            return ibis.literal(as_time(str(node.this.this), "date" if to == "date" else "time"))
        return self.of(node.this).cast(to)

    def _substring(self, node: Any) -> Any:
        from sqlglot import exp

        numbers = [node.args.get("start"), node.args.get("length")]
        if any(each is not None and not (isinstance(each, exp.Literal) and each.is_int) for each in numbers):
            raise self._refusal(node)
        start, length = (None if each is None else int(each.this) for each in numbers)
        if not start:
            raise InputError(f"the query says {self.text}: the first letter of a text is number 1")
        return self.of(node.this).substr(start - 1, length)

    def _refusal(self, node: Any) -> InputError:
        from sqlglot import exp

        cause = ""
        if isinstance(node, exp.Column):
            cause = " (a name with a point in it is put in double quotes)"
        shown = node.sql()[:40] if isinstance(node, exp.Expression) else str(node)[:40]
        return InputError(f"the query says {self.text}, which asks for {shown!r}{cause}: {_RULE}")
