"""Conditions on rows of a file, `kind = 'bus' and speed > 3`: a small part of SQL, checked before any row is read.

Only comparisons of a column with constants, and their combinations, are taken: a row must be chosen by its own values,
whatever other rows there are. `Reader` reads them; `expressions.py` extends it to all that is asked of a database.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partialmethod, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deltahist._files import first_line
from deltahist.counting.tables import is_number, is_text, numbers
from deltahist.errors import InputError, shortened
from deltahist.preprocessing import check_condition_text

#: Names by which a column that is not read is a coordinate all the same.
_PLACES = frozenset({
    "x", "y", "lon", "lng", "long", "longitude", "lat", "latitude", "easting", "northing",
    "geom", "geometry", "wkt", "wkb", "wkb_geometry", "geohash",
})  # fmt: skip


def refuse_place(stated: str, column: str, is_place: bool) -> None:
    """Raise InputError if a condition asks for a column of coordinates, or one that is called like one."""
    if is_place or column.lower() in _PLACES:
        raise InputError(
            f"{stated}: column {column!r} says where a point is, so that a point could vanish by moving, which "
            "nothing protects; choose places by the bounds of the domain"
        )


def refuse_times(stated: str, column: str, is_time: bool) -> None:
    """Raise InputError if a condition asks for the column of times."""
    if is_time:
        raise InputError(
            f"{stated}: column {column!r} holds the times, and which of them count is said by the first and the "
            "last step; leave it out"
        )


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
        self.text, self.shown = text, f"{self.subject} {shortened(text)}"

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
        node = shortened(self._node.sql())
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
                f"{self.shown}, with the number {shortened(text)}: whole numbers are below 2^63, and other numbers are "
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


# --- conditions on Arrow columns --------------------------------------------------------------------------------

#: A column comes in all ways in which its rows are read, each null where it does not go.
_Rows = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Condition:
    """A condition on rows, given as `where=`.

    Parameters
    ----------
    text : as it was written.
    kinds : of each column, the kind of its constants: "number", "text" or "truth"; "" if it is only asked for null.
    texts : its constants that are text.
    ask : columns by name to the rows that meet it, an Arrow column of true, false and null.

    >>> import pyarrow as pa
    >>> condition = Condition.of("kind = 'bus' and speed > 3")
    >>> rows = {"kind": pa.array(["bus", "bus", "car"]), "speed": pa.array(["2", "4.5", "9"])}
    >>> condition.kinds, condition.choose(rows)[0].tolist()
    ({'kind': 'text', 'speed': 'number'}, [False, True, False])
    """

    text: str
    kinds: dict[str, str]
    texts: list[str]
    ask: Callable[[_Rows], Any]

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read a condition; raise InputError if it asks for more than comparisons of columns with constants."""
        line = check_condition_text(text)
        reader = _ConditionReader(line)
        test = reader.read()
        if not isinstance(test, _Test):
            raise reader.mismatch_error()
        return cls(line, reader.kinds, reader.texts, test.ask)

    def choose(
        self, columns: Mapping[str, Any], decimal: str = "."
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows surely meet the condition, and in which rows its Arrow columns can be read.

        Raises InputError if a column's type does not go with its constants; `decimal` is that of numbers in text.
        """
        import pyarrow as pa

        typed, good = {}, np.ones(len(next(iter(columns.values()))), dtype=bool)
        for name, kind in self.kinds.items():
            typed[name], bad = _read_as(columns[name], name, kind, decimal)
            good &= ~bad
        try:
            met = self.ask(typed)
        except pa.ArrowException as problem:
            said = first_line(problem)
            raise InputError(f"where is {self.text!r}, which does not go with the columns: {said}") from None
        return np.asarray(met.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool), good


class _ConditionReader(Reader):
    """A reader that notes the kinds of each column's constants."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.kinds: dict[str, str] = {}
        self.texts: list[str] = []

    def column(self, name: str, quoted: bool) -> _Asked:
        return _Asked(self, name)

    def note(self, name: str, constant: Any) -> None:
        """Note a constant that a column is compared with; None if it is asked for null."""
        kind = _KINDS.get(type(constant))
        if kind is None:
            raise TypeError
        before = self.kinds.get(name, "")
        if before and kind and kind != before:
            raise InputError(
                f"{self.shown}: it compares column {name!r} with {_WORDS[before]} and with {_WORDS[kind]}; it must be "
                "one of them"
            )
        self.kinds[name] = kind or before
        if isinstance(constant, str):
            self.texts.append(constant)


_KINDS = {bool: "truth", int: "number", float: "number", str: "text", type(None): ""}
_WORDS = {"number": "numbers", "text": "text", "truth": "true or false"}


@dataclass(frozen=True, eq=False)
class _Test:
    """A test of rows, with SQL's logic of three values."""

    ask: Callable[[_Rows], Any]

    def _join(self, function: str, *others: Any) -> _Test:
        import pyarrow.compute as pc

        if not all(isinstance(other, _Test) for other in others):
            raise TypeError
        return _Test(lambda rows: getattr(pc, function)(*(test.ask(rows) for test in (self, *others))))

    def __and__(self, other: Any) -> _Test:
        return self._join("and_kleene", other)

    def __or__(self, other: Any) -> _Test:
        return self._join("or_kleene", other)

    def __invert__(self) -> _Test:
        return self._join("invert")


class _Asked:
    """A column that is compared with constants."""

    def __init__(self, reader: _ConditionReader, name: str) -> None:
        self._reader, self._name = reader, name

    def _compare(self, function: str, constant: Any) -> _Test:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._reader.note(self._name, constant)
        compare = getattr(pc, function)

        def ask(column: Any) -> Any:
            if pa.types.is_integer(column.type) and isinstance(constant, float):
                column = column.cast(pa.float64(), safe=False)
            return compare(column, _scalar(constant, column.type, self._name))

        return _Test(lambda rows: pc.coalesce(*map(ask, rows[self._name])))

    __eq__ = partialmethod(_compare, "equal")  # type: ignore[assignment]
    __ne__ = partialmethod(_compare, "not_equal")  # type: ignore[assignment]
    __lt__ = partialmethod(_compare, "less")
    __le__ = partialmethod(_compare, "less_equal")
    __gt__ = partialmethod(_compare, "greater")
    __ge__ = partialmethod(_compare, "greater_equal")

    def isin(self, constants: list[Any]) -> Any:
        return reduce(operator.or_, [self == constant for constant in constants])

    def between(self, low: Any, high: Any) -> Any:
        return (self >= low) & (self <= high)

    def like(self, pattern: str) -> _Test:
        import pyarrow.compute as pc

        self._reader.note(self._name, pattern)
        return _Test(lambda rows: pc.match_like(*rows[self._name], pattern))

    def isnull(self) -> _Test:
        self._reader.note(self._name, None)
        return _Test(lambda rows: _missing(rows[self._name]))


def _missing(readings: tuple[Any, ...]) -> Any:
    """Return the rows that are null in all ways of reading them."""
    import pyarrow.compute as pc

    first, *others = (pc.is_null(each, nan_is_null=True) for each in readings)
    return pc.and_(first, *others) if others else first


# --- columns as what they are compared with ---------------------------------------------------------------------

#: Text that is a whole number of 64 bits, whatever the other rows hold: numbers of 2^53 and more are told apart.
_WHOLE = r"^-?(0*[0-9]{1,18}|[1-8][0-9]{18}|9[01][0-9]{17})$"


def _read_as(column: Any, name: str, kind: str, decimal: str) -> tuple[tuple[Any, ...], NDArray[np.bool_]]:
    """Return a column in all ways of reading it as a kind, and the rows that cannot be read.

    Each row is read by itself: its value must not change with the others in its batch.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types, none = pa.types, np.zeros(len(column), dtype=bool)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    own = column.type
    if types.is_null(own):
        return (column.cast({"number": pa.float64(), "truth": pa.bool_()}.get(kind, pa.string())),), none
    if not kind:
        return (column,), none
    if is_text(own) and kind != "text":
        found = _read_text(pc.utf8_trim_whitespace(column), name, kind, decimal)
        unread = pc.and_(pc.is_valid(column), _missing(found))
        return found, np.asarray(unread.to_numpy(zero_copy_only=False))
    if types.is_floating(own):
        column = pc.if_else(pc.is_nan(column), None, column)
    fits = {
        "number": is_number(own),
        "text": is_text(own) or types.is_timestamp(own),
        "truth": types.is_boolean(own),
    }
    if not fits[kind]:
        raise InputError(
            f"where compares column {name!r} with {_WORDS[kind]}, but it holds {own}: numbers, true and false stand "
            "without quotes, text and times in single quotes; what is none of them can only be asked for null"
        )
    return (column,), none


def _read_text(text: Any, name: str, kind: str, decimal: str) -> tuple[Any, ...]:
    """Return text as true and false, or as whole numbers and as any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "truth":
        lower = pc.utf8_lower(text)
        known = pc.is_in(lower, value_set=pa.array(["true", "false", "1", "0"]))
        return (pc.if_else(known, pc.is_in(lower, value_set=pa.array(["true", "1"])), None),)
    whole = pc.if_else(pc.match_substring_regex(text, _WHOLE), text, None).cast(pa.int64())
    if whole.null_count == text.null_count:
        return (whole,)
    return whole, pa.array(numbers(text, name, decimal=decimal), from_pandas=True)


def _scalar(value: Any, kind: Any, name: str) -> Any:
    """Return a constant in the type of the column that it is compared with."""
    import pandas as pd
    import pyarrow as pa

    if not pa.types.is_timestamp(kind):
        return pa.scalar(value)
    try:
        at = pd.Timestamp(value)
        # Times without a zone are in UTC, as everywhere here.
        at = at.tz_localize("UTC") if at.tz is None else at.tz_convert("UTC")
    except ValueError:
        raise InputError(
            f"where compares column {name!r} with {value!r}, but it holds times ({kind}): write a date or date-time, "
            "such as '2010-01-31' or '2010-01-31T06:00'"
        ) from None
    plain = at.tz_localize(None) if kind.tz is None else at
    return pa.scalar(plain.to_pydatetime(), type=pa.timestamp("us", tz=kind.tz))
