"""Six kinds of values, the same in every database, and expressions that give one of them for every record."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.personal.engine import Engine

#: Ibis types by the kinds that queries know.
DTYPES = {
    "truth": "boolean", "whole": "int64", "number": "float64", "text": "string", "time": "timestamp(6)", "date": "date",
}  # fmt: skip
WORDS = {
    "truth": "true or false", "whole": "a whole number", "number": "a number", "text": "text", "time": "a time",
    "date": "a date", "null": "NULL",
}  # fmt: skip
#: Numbers are zero, or of a size between these.
SMALLEST, LARGEST = 1e-100, 1e100
#: Decimals of so many digits are floats, with whatever scale; DuckDB has no longer ones.
_DIGITS = 38
_YEAR_FIRST = re.compile(r"\d{4}-\d\d?-\d\d?(?!\d)", re.ASCII)
_YEARS = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


# --- columns --------------------------------------------------------------------------------------------------


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
    if name not in known:
        listed = ", ".join(repr(each) for each in sorted(known)) or "none"
        raise InputError(f"the query asks for column {name!r}, which is not there: there are {listed}")


def readable_columns(table: Any, engine: Engine) -> dict[str, Any]:
    """Return the columns of a database's table that queries can take, each as one of its kind, by name."""
    return {
        name: normalize(engine.narrow(table[name]))
        for name, dtype in table.schema().items()
        if kind_of(dtype) is not None
    }


def normalize(column: Any) -> Any:
    """Return a column of a table as one of its kind.

    NaN, infinite and too large numbers are NULL, and so are times and dates outside the years 1 to 9999; numbers that
    are too small are zero; times are in UTC.
    """
    import ibis

    kind = str(kind_of(column.type()))
    if kind == "number":
        if is_endless(column.type()):
            # Such decimals may be too long for floats, which PostgreSQL would say.
            column = column.cast("decimal")
            low, high = (ibis.literal(repr(each)).cast("decimal") for each in (SMALLEST, LARGEST))
            column = ibis.cases((column.abs().between(low, high), column), (column.abs() < low, low - low))
        return bound(column.cast("float64"), SMALLEST, LARGEST)
    if kind in ("time", "date"):
        if column.type().is_timestamp() and column.type().timezone:
            # DuckDB cannot bring the very last ones to UTC.
            low, high = (ibis.literal(f"{each}+00").cast(column.type()) for each in _YEARS)
            column = ibis.cases((column.between(low, high), column))
        value = column.cast(DTYPES[kind])
        ends = _YEARS if kind == "time" else [each[:10] for each in _YEARS]
        low, high = (ibis.literal(each).cast(DTYPES[kind]) for each in ends)
        return ibis.cases((value.between(low, high), value))
    return column.cast(DTYPES[kind])


def is_endless(dtype: Any) -> bool:
    """Return whether a type has decimals that floats do not reach, by their size or by how small they are.

    >>> import ibis
    >>> [is_endless(ibis.dtype(each)) for each in ("decimal", "decimal(400, 0)", "decimal(38, 37)", "float64")]
    [True, True, False, False]
    """
    return bool(dtype.is_decimal() and (dtype.precision is None or dtype.precision > _DIGITS))


def bound(value: Any, least: float, most: float) -> Any:
    """Return a number: zero where its size is below `least`, NULL where it is above `most`, infinite or NaN."""
    import ibis

    low, high, zero = (ibis.literal(repr(each)).cast("float64") for each in (least, most, 0.0))
    return ibis.cases((value.abs().between(low, high), value), (value.abs() < low, zero))


def as_time(value: Any, kind: str) -> datetime.datetime | datetime.date:
    """Return a constant as a time (of UTC, if it has a zone) or a date; raise InputError if it is neither."""
    import pandas as pd

    try:
        # 01/05/2026 is a day in January to some and in May to others.
        if isinstance(value, str) and not _YEAR_FIRST.match(value):
            raise ValueError
        time = pd.Timestamp(value)
        if pd.isna(time):
            raise ValueError
    except (ValueError, TypeError):
        raise InputError(
            f"the query compares a {kind} with {value!r}: write it as 2026-05-01, or 2026-05-01 22:30:00"
        ) from None
    if time.tzinfo is not None:
        time = time.tz_convert("UTC").tz_localize(None)
    whole: datetime.datetime = time.to_pydatetime(warn=False)
    if kind == "time":
        return whole
    if whole.time() != datetime.time(0):
        raise InputError(
            f"the query compares a date with {value!r}, which is a time: leave out hours and minutes"
        )
    return whole.date()


def as_arrow(column: Any, name: str) -> Any:
    """Return a pandas column as an Arrow one, NaN as NULL; raise InputError if its values are of several types."""
    import pyarrow as pa

    try:
        out = pa.Array.from_pandas(column)
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError(f"column {name!r} holds values of several types: all must be of one") from None
    return out.combine_chunks() if isinstance(out, pa.ChunkedArray) else out


# --- expressions ----------------------------------------------------------------------------------------------

#: Nodes of an expression as it is written out, guards included, and how deep they may be nested.
MOST_NODES, _MOST_DEEP = 4000, 60


@dataclass(frozen=True)
class SafeExpression:
    """An expression that gives a value for every record.

    Parameters
    ----------
    value : Ibis expression. kind : "truth", "whole", "number", "text", "time", "date", or "null" for NULL itself.
    columns : that it depends on.
    least, most : a number is zero, or its size is between them.
    nodes, deep : how long it is when written out, and how deeply nested.
    constant : what it always is; None if that depends on the record.
    """

    value: Any
    kind: str
    columns: frozenset[str] = frozenset()
    least: float = SMALLEST
    most: float = LARGEST
    nodes: int = 1
    deep: int = 1
    constant: Any = None


def convert(made: SafeExpression, kind: str) -> SafeExpression:
    """Convert an expression: whole numbers to numbers, dates to times, NULL to any kind.

    Raises InputError otherwise.
    """
    import ibis

    if made.kind == kind:
        return made
    if made.kind == "null":
        return replace(made, value=ibis.null(DTYPES[kind]), kind=kind, most=SMALLEST)
    if (made.kind, kind) == ("whole", "number"):
        if made.constant is not None:
            return replace(constant(float(made.constant)), columns=made.columns)
        return combine(made.value.cast("float64"), kind, [made], least=1.0, most=made.most)
    if (made.kind, kind) == ("date", "time"):
        return combine(made.value.cast(DTYPES["time"]), kind, [made])
    if made.kind == "text" and made.constant is not None and kind in ("time", "date"):
        return constant(as_time(made.constant, kind))
    raise InputError(
        f"the query takes {WORDS[made.kind]} for {WORDS[kind]}: they must be of one kind, and text is never read as "
        "a number (extract, floor and comparisons change kinds)"
    )


def unify(parts: Sequence[SafeExpression]) -> list[SafeExpression]:
    """Convert expressions to the one kind that suits all; raise InputError if there is none."""
    kinds = {part.kind for part in parts if part.kind != "null"}
    # A constant text may stand for a time.
    steady = {part.kind for part in parts if part.constant is None or part.kind != "text"} - {"null"} or kinds
    wide = next((to for one, to in (("whole", "number"), ("date", "time")) if steady == {one, to}), None)
    common = wide or min(steady, default="null")
    return [convert(part, common) for part in parts]


def too_long_error() -> InputError:
    return InputError(
        f"the query has an expression of more than {MOST_NODES:,} parts, guards included, or nested more than "
        f"{_MOST_DEEP} deep: compute parts of it by select first"
    )


def combine(
    value: Any,
    kind: str,
    parts: Sequence[SafeExpression],
    least: float = SMALLEST,
    most: float = LARGEST,
    more: int = 1,
) -> SafeExpression:
    """Return the expression that `value` makes of parts; raise InputError if it is too long or too deep."""
    nodes = more + sum(part.nodes for part in parts)
    deep = 1 + max((part.deep for part in parts), default=0)
    if nodes > MOST_NODES or deep > _MOST_DEEP:
        raise too_long_error()
    columns = frozenset[str]().union(*(part.columns for part in parts))
    return SafeExpression(value, kind, columns, least, most, nodes, deep)


def clip(part: SafeExpression, least: float, most: float) -> SafeExpression:
    """Return a number with zero in place of sizes below `least`, and NULL in place of sizes above `most`."""
    if part.least >= least and part.most <= most:
        return part
    return combine(bound(part.value, least, most), "number", [part] * 4, least, most, more=6)


def constant(value: Any) -> SafeExpression:
    """Return a constant, written in a way that every database reads exactly alike."""
    import ibis

    if isinstance(value, bool):
        return SafeExpression(ibis.literal(value), "truth", constant=value)
    if isinstance(value, int):
        if abs(value) >= 1 << 63:
            raise InputError(f"the query has the constant {value:.3g}: whole numbers are below 2^63 in size")
        written, size = ibis.literal(value).cast("int64"), max(1.0, abs(float(value)))
        return SafeExpression(written, "whole", least=1.0, most=size, constant=value)
    if isinstance(value, float):
        if not math.isfinite(value) or (value and not SMALLEST <= abs(value) <= LARGEST):
            raise InputError(
                f"the query has the constant {value}: numbers are 0 or of a size of 1e-100 to 1e100"
            )
        written, size = ibis.literal(repr(value)).cast("float64"), abs(value) or 1.0
        return SafeExpression(written, "number", least=size, most=size, constant=value)
    if isinstance(value, str):
        if "\0" in value:
            raise InputError(f"the query has the constant {value!r}: text must not hold the character 0")
        return SafeExpression(ibis.literal(value, "string"), "text", constant=value)
    kind = "time" if isinstance(value, datetime.datetime) else "date"
    text = value.isoformat(" ") if kind == "time" else value.isoformat()
    return SafeExpression(ibis.literal(text).cast(DTYPES[kind]), kind, constant=value)
