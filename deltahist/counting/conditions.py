"""Conditions on rows of a file, `kind = 'bus' and speed > 3`: a small part of SQL, checked before any row is read.

Only comparisons of a column with constants, and their combinations, are taken: a row must be chosen by its own values,
whatever other rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.inputs import short
from deltahist.counting.tables import is_text, numbers
from deltahist.counting.texts import Reader
from deltahist.errors import InputError
from deltahist.preprocessing import Preprocessing

#: Functions of Arrow for a comparison, and for the same seen from the other side.
_COMPARISONS = {
    "EQ": ("equal", "equal"),
    "NEQ": ("not_equal", "not_equal"),
    "GT": ("greater", "less"),
    "GTE": ("greater_equal", "less_equal"),
    "LT": ("less", "greater"),
    "LTE": ("less_equal", "greater_equal"),
}
#: Text that is a whole number of 64 bits, whatever the other rows hold: numbers of 2^53 and more are told apart.
_WHOLE = r"^-?(0*[0-9]{1,18}|[1-8][0-9]{18}|9[01][0-9]{17})$"

#: Columns to the rows that meet a condition: an Arrow column of true, false and null. A column comes in all ways in
#: which its rows are read, each null where it does not go.
_Test = Callable[[Mapping[str, tuple[Any, ...]]], Any]


@dataclass(frozen=True)
class Condition:
    """A condition on rows, given as `where=`.

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
        """Read a condition; raise InputError if it asks for more than comparisons of columns with constants."""
        line = Preprocessing(where=text).where or ""
        reader = _TestReader(line)
        test = reader.read()
        return cls(line, reader.kinds, tuple(reader.texts), test)

    def choose(
        self, columns: Mapping[str, Any], decimal: str = ".", *, some: bool = False
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows surely meet the condition, and in which rows its columns can be read.

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


def _both(function: str) -> Callable[[_Test, _Test], _Test]:
    """Return how two tests become one, by a function of Arrow."""

    def join(one: _Test, other: _Test) -> _Test:
        import pyarrow.compute as pc

        return lambda rows: getattr(pc, function)(one(rows), other(rows))

    return join


class _TestReader(Reader):
    """A reader that makes tests on Arrow columns, and notes what each column is compared with."""

    subject = "where is"
    rule = (
        "it must compare columns with constants, such as \"kind = 'bus' and speed > 3\"; there are =, <>, <, <=, >, "
        ">=, in, between, like, is null, not, and, or"
    )
    binary: ClassVar = {"And": _both("and_kleene"), "Or": _both("or_kleene")}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.kinds: dict[str, str] = {}
        self.texts: list[str] = []

    def missing(self, node: Any) -> _Test:
        name = self._column(node, "")
        return lambda rows: _missing(rows[name])

    def among(self, node: Any, options: list[Any]) -> _Test:
        import pyarrow.compute as pc

        return self._compared(node, options, lambda column, *values: _any([pc.equal(column, v) for v in values]))

    def between(self, node: Any, low: Any, high: Any) -> _Test:
        import pyarrow.compute as pc

        return self._compared(
            node,
            [low, high],
            lambda column, least, most: pc.and_kleene(pc.greater_equal(column, least), pc.less_equal(column, most)),
        )

    def like(self, node: Any, pattern: str) -> _Test:
        import pyarrow.compute as pc

        self.texts.append(pattern)
        name = self._column(node, "text")
        return lambda rows: pc.match_like(*rows[name], pattern)

    def cause(self, node: Any) -> str:
        from sqlglot import exp

        if isinstance(node, exp.Null):
            return " (write: is null)"
        if isinstance(node, exp.Column) and not node.args.get("table"):
            return " (text is put in single quotes, and a column of true and false compared with them: = true)"
        if isinstance(node, exp.Binary):
            return " (a date, like any text, is put in single quotes)"
        return super().cause(node)

    def _read_not(self, node: Any) -> _Test:
        import pyarrow.compute as pc

        inner = self.value(node.this)
        return lambda rows: pc.invert(inner(rows))

    def _read_comparison(self, node: Any) -> _Test:
        import pyarrow.compute as pc
        from sqlglot import exp

        way, turned = _COMPARISONS[type(node).__name__]
        if isinstance(node.this, exp.Column):
            return self._compared(node.this, [node.expression], getattr(pc, way))
        return self._compared(node.expression, [node.this], getattr(pc, turned))

    _read_eq = _read_neq = _read_gt = _read_gte = _read_lt = _read_lte = _read_comparison

    def _compared(self, column: Any, constants: list[Any], test: Callable[..., Any]) -> _Test:
        """Return a test of a column against constants."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found = [self._constant(each) for each in constants]
        for _, kind in found:
            name = self._column(column, kind)
        values = [value for value, _ in found]

        def ask(column: Any) -> Any:
            if pa.types.is_integer(column.type) and float in map(type, values):
                column = column.cast(pa.float64(), safe=False)
            return test(column, *(_scalar(value, column.type, name) for value in values))

        return lambda rows: pc.coalesce(*map(ask, rows[name]))

    def _column(self, node: Any, kind: str) -> str:
        """Return the name of a column that is compared with constants of a kind; "" for none."""
        name = self.column_name(node)
        before = self.kinds.get(name, "")
        if before and kind and kind != before:
            raise InputError(
                f"{self.shown}: it compares column {name!r} with {_WORDS[before]} and with {_WORDS[kind]}; it must be "
                "one of them"
            )
        self.kinds[name] = kind or before
        return name

    def _constant(self, node: Any) -> tuple[str | int | float | bool, str]:
        """Return a constant and its kind."""
        from sqlglot import exp

        if isinstance(node, exp.Boolean):
            return bool(node.this), "truth"
        minus = isinstance(node, exp.Neg)
        literal = node.this if minus else node
        if not isinstance(literal, exp.Literal) or (minus and literal.is_string):
            raise self.refusal(node)
        value = self.literal(literal)
        if isinstance(value, str):
            self.texts.append(value)
            return value, "text"
        return -value if minus else value, "number"


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
    """Return the rows that are null in all ways of reading them."""
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
    """Return a column in all ways of reading it as a kind, and the rows that have none (or None)."""
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
    """Return text as whole numbers and as any, or as true and false; and the rows that are neither nor null.

    Each row is read by itself: its value must not change with the others in its batch.
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
    """Return a constant in the type of the column that it is compared with."""
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
