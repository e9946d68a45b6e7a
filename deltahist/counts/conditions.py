"""Conditions on rows, `kind = 'bus' and speed > 3`: a small part of SQL, checked before any row is read.

sqlglot reads the text; of what it may be, only comparisons of a column with constants, and their combinations, are
taken. Nothing else would be right: a row must be chosen by what it says itself, whatever other rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counts.inputs import short
from deltahist.counts.tables import is_text, numbers
from deltahist.domain.counting import Counting
from deltahist.errors import InputError, shortened

#: What a condition may compare, and the same seen from the other side.
_COMPARISONS = {
    "EQ": ("equal", "equal"),
    "NEQ": ("not_equal", "not_equal"),
    "GT": ("greater", "less"),
    "GTE": ("greater_equal", "less_equal"),
    "LT": ("less", "greater"),
    "LTE": ("less_equal", "greater_equal"),
}
_RULE = (
    "it must compare columns with constants, such as \"kind = 'bus' and speed > 3\"; there are =, <>, <, <=, >, >=, "
    "in, between, like, is null, not, and, or"
)

#: Text that is a whole number of 64 bits, whatever the other rows hold: numbers of 2^53 and more are told apart.
_WHOLE = r"^-?(0*[0-9]{1,18}|[1-8][0-9]{18}|9[01][0-9]{17})$"

#: Columns to the rows that meet a condition: an Arrow column of true, false and null. A column comes in all ways in
#: which its rows are read, each null where it does not go.
_Test = Callable[[Mapping[str, tuple[Any, ...]]], Any]


@dataclass(frozen=True)
class Condition:
    """A condition on rows: what `where=` says.

    Parameters
    ----------
    text : as it was written.
    kinds : of each column, what it is compared with: "number", "text" or "truth"; "" if it is only asked for null.
    texts : its constants that are text.
    test : columns by name to the rows that meet it.

    >>> import pyarrow as pa
    >>> condition = Condition.of("kind = 'bus' and speed > 3")
    >>> rows = {"kind": pa.array(["bus", "bus", "car"]), "speed": pa.array(["2", "4.5", "9"])}
    >>> condition.kinds, condition.choose(rows)[0].tolist()
    ({'kind': 'text', 'speed': 'number'}, [False, True, False])
    """

    text: str
    kinds: dict[str, str]
    texts: tuple[str, ...]
    test: _Test

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read a condition.

        Raises InputError if it cannot be read, or asks for more than comparisons of columns with constants.
        """
        import sqlglot
        from sqlglot import exp

        line = Counting(where=text).where or ""
        try:
            tree = sqlglot.parse_one(line, into=exp.Condition)
            tests = _Tests(line)
            test = tests.of(tree)
        except (sqlglot.errors.ParseError, sqlglot.errors.TokenError, RecursionError):
            raise InputError(
                f"where is {text!r}, which cannot be read: {_RULE}; names of columns that are words of SQL "
                "(when, order) or have spaces are put in double quotes"
            ) from None
        return cls(line, tests.kinds, tuple(tests.texts), test)

    def choose(
        self, columns: Mapping[str, Any], decimal: str = ".", *, some: bool = False
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows meet it (where it says neither yes nor no: not), and in which all its columns can be read.

        Parameters
        ----------
        columns : Arrow columns by name.
        decimal : of numbers in text.
        some : whether each column should hold something that can be read, as the first rows of a file do.

        Raises
        ------
        InputError
            If a column's type does not go with what it is compared with.
        """
        import pyarrow as pa

        typed, good = {}, None
        for name, kind in self.kinds.items():
            typed[name], bad = _typed(columns[name], name, kind, decimal)
            if bad is not None:
                if some and bad.any() and bad.sum() + columns[name].null_count == len(bad):
                    raise _mismatch(name, kind, "text", f"text ({_shown(columns[name], bad)})")
                good = ~bad if good is None else good & ~bad
        try:
            met = self.test(typed)
        except pa.ArrowException as problem:
            raise InputError(
                f"where is {self.text!r}, which does not go with the columns: {short(problem)}"
            ) from None
        chosen = np.asarray(met.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
        return chosen, np.ones(len(chosen), dtype=bool) if good is None else good


class _Tests:
    """Turns what sqlglot read into tests, and notes what each column is compared with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: dict[str, str] = {}
        self.texts: list[str] = []

    def of(self, node: Any) -> _Test:
        """What a node of the tree tests."""
        import pyarrow.compute as pc
        from sqlglot import exp

        if isinstance(node, exp.Paren):
            return self.of(node.this)
        if isinstance(node, exp.Not):
            inner = self.of(node.this)
            return lambda rows: pc.invert(inner(rows))
        if isinstance(node, exp.And | exp.Or):
            both = pc.and_kleene if isinstance(node, exp.And) else pc.or_kleene
            one, other = self.of(node.this), self.of(node.expression)
            return lambda rows: both(one(rows), other(rows))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            name = self._column(node.this, "")
            return lambda rows: _missing(rows[name])
        return self._comparison(node)

    def _comparison(self, node: Any) -> _Test:
        import pyarrow.compute as pc
        from sqlglot import exp

        if type(node).__name__ in _COMPARISONS:
            function, turned = (getattr(pc, each) for each in _COMPARISONS[type(node).__name__])
            if isinstance(node.this, exp.Column):
                return self._compared(
                    node.this, [node.expression], lambda column, value: function(column, value)
                )
            return self._compared(node.expression, [node.this], lambda column, value: turned(column, value))
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            return self._compared(
                node.this,
                node.expressions,
                lambda column, *values: _any([pc.equal(column, value) for value in values]),
            )
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            return self._compared(
                node.this,
                [node.args["low"], node.args["high"]],
                lambda column, low, high: pc.and_kleene(
                    pc.greater_equal(column, low), pc.less_equal(column, high)
                ),
            )
        if isinstance(node, exp.Like):
            pattern, kind = self._constant(node.expression)
            if kind != "text":
                raise self._refusal(node)
            name = self._column(node.this, kind)
            return lambda rows: pc.match_like(*rows[name], str(pattern))
        raise self._refusal(node)

    def _compared(self, column: Any, constants: list[Any], test: Callable[..., Any]) -> _Test:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = [self._constant(each) for each in constants]
        for _, kind in found:
            name = self._column(column, kind)
        values = [value for value, _ in found]

        def asked(column: Any) -> Any:
            if pa.types.is_integer(column.type) and float in map(type, values):
                column = column.cast(pa.float64(), safe=False)
            return test(column, *(_scalar(value, column.type, name) for value in values))

        return lambda rows: pc.coalesce(*map(asked, rows[name]))

    def _column(self, node: Any, kind: str) -> str:
        from sqlglot import exp

        if not isinstance(node, exp.Column) or node.args.get("table"):
            raise self._refusal(node)
        name = str(node.name)
        before = self.kinds.get(name, "")
        if before and kind and kind != before:
            raise InputError(
                f"where is {self.text!r}: it compares column {name!r} with {_WORDS[before]} and with {_WORDS[kind]}; "
                "it must be one of them"
            )
        self.kinds[name] = kind or before
        return name

    def _constant(self, node: Any) -> tuple[str | int | float | bool, str]:
        from sqlglot import exp

        if isinstance(node, exp.Neg):
            value, kind = self._constant(node.this)
            if kind == "number":
                return -value, kind  # type: ignore[operator]
        elif isinstance(node, exp.Literal) and node.is_string:
            self.texts.append(str(node.this))
            return str(node.this), "text"
        elif isinstance(node, exp.Literal):
            value = float(node.this)
            if not math.isfinite(value):
                raise InputError(f"where has the number {shortened(str(node.this))}: it must be one that a float holds")
            whole = str(node.this).isdigit() and value < 1 << 62
            return int(node.this) if whole else value, "number"
        elif isinstance(node, exp.Boolean):
            return bool(node.this), "truth"
        raise self._refusal(node)

    def _refusal(self, node: Any) -> InputError:
        from sqlglot import exp

        cause = ""
        if isinstance(node, exp.Null):
            cause = " (write: is null)"
        elif isinstance(node, exp.Column) and node.args.get("table"):
            cause = " (a name with a point in it is put in double quotes)"
        elif isinstance(node, exp.Column):
            cause = (
                " (text is put in single quotes, and a column of true and false compared with them: = true)"
            )
        elif isinstance(node, exp.Binary):
            cause = " (a date, like any text, is put in single quotes)"
        shown = node.sql()[:40] if isinstance(node, exp.Expression) else str(node)[:40]
        return InputError(f"where is {self.text!r}, which asks for {shown!r}{cause}: {_RULE}")


_WORDS = {"number": "numbers", "text": "text", "truth": "true or false"}
#: How Arrow tells which of them a type is.
_FITS: dict[str, Callable[[Any, Any], bool]] = {
    "number": lambda types, own: types.is_integer(own) or types.is_floating(own) or types.is_decimal(own),
    "text": lambda types, own: is_text(own),
    "truth": lambda types, own: types.is_boolean(own),
}


def _mismatch(name: str, kind: str, holds: str, what: str) -> InputError:
    cure = {
        "number": "compare it with numbers, without quotes",
        "text": "compare it with text, in single quotes",
        "truth": "compare it with true or false, without quotes",
    }.get(holds, "it can only be asked for null")
    return InputError(f"where compares column {name!r} with {_WORDS[kind]}, but it holds {what}: {cure}")


def _shown(column: Any, rows: NDArray[np.bool_]) -> str:
    return repr(str(column[int(np.argmax(rows))])[:40])


def _missing(readings: tuple[Any, ...]) -> Any:
    """Rows that say nothing in any way of reading them."""
    import pyarrow.compute as pc

    out = pc.is_null(readings[0], nan_is_null=True)
    for other in readings[1:]:
        out = pc.and_(out, pc.is_null(other, nan_is_null=True))
    return out


def _any(tests: list[Any]) -> Any:
    import pyarrow.compute as pc

    out = tests[0]
    for test in tests[1:]:
        out = pc.or_kleene(out, test)
    return out


def _typed(
    column: Any, name: str, kind: str, decimal: str
) -> tuple[tuple[Any, ...], NDArray[np.bool_] | None]:
    """A column as what it is compared with, in all ways, and where it cannot be read as that (None: nowhere)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    own = column.type
    if types.is_null(own):
        return (column.cast({"number": pa.float64(), "truth": pa.bool_()}.get(kind, pa.string())),), None
    if not kind:
        return (column,), None
    if is_text(own) and kind != "text":
        return _from_text(column, name, kind, decimal)
    if types.is_floating(own):
        column = pc.if_else(pc.is_nan(column), None, column)
    holds = next((each for each, is_kind in _FITS.items() if is_kind(types, own)), "")
    if holds != kind and not (kind == "text" and types.is_timestamp(own)):
        raise _mismatch(name, kind, holds, str(own))
    return (column,), None


def _from_text(
    column: Any, name: str, kind: str, decimal: str
) -> tuple[tuple[Any, ...], NDArray[np.bool_]]:
    """Text as whole numbers and as any, or as true and false; and where it is neither nor null.

    Each row is read by itself: what a row says must not change with the others in its batch.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    if kind == "truth":
        lower = pc.utf8_lower(text)
        known = pc.is_in(lower, value_set=pa.array(["true", "false", "1", "0"]))
        found: tuple[Any, ...] = (pc.if_else(known, pc.is_in(lower, value_set=pa.array(["true", "1"])), None),)
    else:
        whole = pc.if_else(pc.match_substring_regex(text, _WHOLE), text, None).cast(pa.int64())
        found = (whole,)
        if whole.null_count > text.null_count:
            found = whole, pa.array(numbers(text, name, decimal=decimal), from_pandas=True)
    unread = pc.and_(pc.is_valid(text), _missing(found))
    return found, np.asarray(unread.to_numpy(zero_copy_only=False))


def _scalar(value: Any, kind: Any, name: str) -> Any:
    """A constant as the type of the column that it is compared with."""
    import pandas as pd
    import pyarrow as pa

    if not pa.types.is_timestamp(kind):
        return pa.scalar(value)
    try:
        at = pd.Timestamp(value)
        if kind.tz is None:
            at = at if at.tz is None else at.tz_convert("UTC").tz_localize(None)
        else:  # times without a zone are in UTC, as everywhere here
            at = at.tz_localize("UTC") if at.tz is None else at
    except ValueError:
        raise InputError(
            f"where compares column {name!r} with {value!r}, but it holds times ({kind}): write a date or date-time, "
            "such as '2010-01-31' or '2010-01-31T06:00'"
        ) from None
    return pa.scalar(at.to_pydatetime(), type=pa.timestamp("us", tz=kind.tz))
