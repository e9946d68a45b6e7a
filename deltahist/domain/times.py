"""Times from columns: ISO 8601, a format that is given, seconds since 1970; and which format texts may be in."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError

#: Formats that are no texts: seconds or milliseconds since 1970, UTC.
_SINCE_1970 = {"unix": "s", "unix-ms": "ms"}
_DATES = (
    "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d/%m/%y", "%m/%d/%y",
    "%d.%m.%y", "%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%Y-%m-%d",
)  # fmt: skip
_HOURS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%H.%M")
_OTHERS = ("%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %z")


def check_format(format: str) -> str:
    """A format of times as it is given to `strptime`, or "unix" or "unix-ms".

    Raises InputError if it does not name day, month and year, each once.
    """
    day = datetime.datetime(2031, 12, 30, tzinfo=datetime.UTC)
    try:
        if (
            format in _SINCE_1970
            or datetime.datetime.strptime(day.strftime(format), format).date() == day.date()
        ):
            return format
    except (ValueError, TypeError):
        pass
    raise InputError(
        f"time_format is {format!r}: it must name a day, a month and a year, such as '%d/%m/%Y %H:%M' (or be 'unix' or "
        "'unix-ms', seconds or milliseconds since 1970)"
    )


def since_1970(times: Any, format: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Seconds since 1970 of an Arrow column of times, UTC unless they say otherwise, and which can be read.

    Raises InputError if it holds numbers and the format is none of numbers.
    """
    import pandas as pd
    import pyarrow as pa

    kind = times.type
    values = times.to_pandas()
    if format in _SINCE_1970 and not pa.types.is_temporal(kind):
        figures = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        figures = np.floor(figures / (1000 if format == "unix-ms" else 1))
        good = np.abs(figures) < 1e11  # beyond the year 5000, and where there is no number, false
        return np.where(good, figures, 0).astype(np.int64), good
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        raise InputError(
            "the time column holds numbers: with every= it must hold dates or date-times (ISO 8601), or seconds since "
            "1970 with time_format='unix'; for step numbers give start= as a whole number"
        )
    texts = format is not None and not pa.types.is_temporal(kind)
    read = pd.to_datetime(
        values.str.strip() if texts else values,
        utc=True,
        errors="coerce",
        format=format if texts else "ISO8601",
    )
    whole = pd.DatetimeIndex(read).tz_localize(None).to_numpy().astype("datetime64[s]")
    good = ~np.isnat(whole)
    return np.where(good, whole.astype(np.int64), 0), good


def guess(texts: Sequence[str]) -> list[str]:
    """Formats in which all texts are times, the likelier first.

    >>> guess(["31/12/2010 08:15"]), guess(["1/2/2010"])
    (['%d/%m/%Y %H:%M'], ['%d/%m/%Y', '%m/%d/%Y'])
    """
    shown = [text.strip() for text in texts]
    if not shown:
        return []
    for name, digits in (("unix", (9, 10)), ("unix-ms", (12, 13))):
        if all(text.isdigit() and len(text) in digits for text in shown):
            return [name]
    return [format for format in _formats() if all(_reads(text, format) for text in shown)]


def _formats() -> Iterable[str]:
    for date, (mark, hour) in itertools.product(
        _DATES, [("", ""), *itertools.product((" ", "T", ", "), _HOURS)]
    ):
        yield date + mark + hour
    yield from _OTHERS


def _reads(text: str, format: str) -> bool:
    try:
        datetime.datetime.strptime(text, format)
    except ValueError:
        return False
    return True
