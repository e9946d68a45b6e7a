"""What columns of records may hold: six kinds, the same in every database."""

from __future__ import annotations

import datetime
import re
from typing import Any

from deltahist.errors import InputError

#: Ibis types by the kinds that queries know.
DTYPES = {
    "truth": "boolean",
    "whole": "int64",
    "number": "float64",
    "text": "string",
    "time": "timestamp(6)",
    "date": "date",
}
#: Numbers are zero, or of a size between these.
SMALLEST, LARGEST = 1e-100, 1e100
#: Decimals of so many digits are floats, with whatever scale; DuckDB has no longer ones.
_DIGITS = 38
_YEAR_FIRST = re.compile(r"\d{4}-\d\d?-\d\d?(?!\d)", re.ASCII)
_YEARS = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


def kind_of(dtype: Any) -> str | None:
    """Which kind an Ibis type is read as; None if queries cannot take it.

    >>> import ibis
    >>> kind_of(ibis.dtype("int16")), kind_of(ibis.dtype("decimal(9, 2)")), kind_of(ibis.dtype("array<int64>"))
    ('whole', 'number', None)
    """
    if dtype.is_boolean():
        return "truth"
    if dtype.is_integer():
        return "number" if dtype.is_uint64() else "whole"
    if dtype.is_floating() or dtype.is_decimal():
        return "number"
    tests = (("text", dtype.is_string()), ("time", dtype.is_timestamp()), ("date", dtype.is_date()))
    return next((kind for kind, is_it in tests if is_it), None)


def as_kinds(table: Any, dialect: str) -> dict[str, Any]:
    """Columns of a table of a database that queries can take, each as one of its kind, by name."""
    out = {}
    for name, dtype in table.schema().items():
        column = table[name]
        if dialect == "duckdb" and dtype.is_timestamp() and dtype.scale in (0, 3):
            # These reach further than times of microseconds do.
            column = column.try_cast(DTYPES["time"])
        if kind_of(dtype) is not None:
            out[name] = normal(column)
    return out


def normal(column: Any) -> Any:
    """A column of a table as one of its kind.

    NaN, infinite and too large numbers are NULL, and so are times and dates outside the years 1 to 9999; numbers that
    are too small are zero; times are those of UTC.
    """
    import ibis

    kind = kind_of(column.type())
    if kind == "number":
        if is_endless(column.type()):
            # Such decimals may be too long for floats, which PostgreSQL would say.
            column = column.cast("decimal")
            low, high = (ibis.literal(repr(each)).cast("decimal") for each in (SMALLEST, LARGEST))
            column = ibis.cases((column.abs().between(low, high), column), (column.abs() < low, low - low))
        return bounded(column.cast("float64"), SMALLEST, LARGEST)
    if kind in ("time", "date"):
        if column.type().is_timestamp() and column.type().timezone:
            # DuckDB cannot bring the very last ones to UTC.
            low, high = (ibis.literal(f"{each}+00").cast(column.type()) for each in _YEARS)
            column = ibis.cases((column.between(low, high), column))
        value = column.cast(DTYPES[kind])
        low, high = (
            ibis.literal(each if kind == "time" else each[:10]).cast(DTYPES[kind]) for each in _YEARS
        )
        return ibis.cases((value.between(low, high), value))
    return column.cast(DTYPES[str(kind)])


def is_endless(dtype: Any) -> bool:
    """Whether a type has decimals that floats do not reach, by their size or by how small they are.

    >>> import ibis
    >>> [is_endless(ibis.dtype(each)) for each in ("decimal", "decimal(400, 0)", "decimal(38, 37)", "float64")]
    [True, True, False, False]
    """
    return bool(dtype.is_decimal() and (dtype.precision is None or dtype.precision > _DIGITS))


def bounded(value: Any, least: float, most: float) -> Any:
    """A number, zero where its size is below `least`, NULL where it is above `most`, infinite or NaN."""
    import ibis

    low, high, zero = (ibis.literal(repr(each)).cast("float64") for each in (least, most, 0.0))
    return ibis.cases((value.abs().between(low, high), value), (value.abs() < low, zero))


def as_time(value: Any, kind: str) -> datetime.datetime | datetime.date:
    """A constant as a time (of UTC, if it says a zone) or a date; InputError if it is none."""
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
    """A pandas column as an Arrow one, NaN as NULL; InputError if its values are of several types."""
    import pyarrow as pa

    try:
        out = pa.Array.from_pandas(column)
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError(f"column {name!r} holds values of several types: all must be of one") from None
    return out.combine_chunks() if isinstance(out, pa.ChunkedArray) else out
