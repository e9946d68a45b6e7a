"""Time: equal steps from a start. Which steps there are is public, as the map is."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.domain.times import check_format, since_1970
from deltahist.errors import InputError

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_NAMES = (("week", 7 * 86_400), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Clock:
    """Steps of time: equal periods from a start, or plain step numbers.

    Parameters
    ----------
    start : first second of step 0 (since 1970, UTC); or the first step number.
    every : seconds of a step; 0 for plain step numbers.
    format : of times in text, as for `strptime`, or "unix" or "unix-ms"; ISO 8601 when None.

    >>> clock = Clock.of("2010-01-01", "1d")
    >>> clock.step("2010-01-31"), clock.label(30)
    (30, '2010-01-31')
    """

    start: int
    every: int
    format: str | None = None

    @classmethod
    def of(cls, start: str, every: str | None, format: str | None = None) -> Clock:
        """From text: a date or date-time and a period such as 1d, 6h, 15min; or a whole number and None.

        Raises InputError if they cannot be read or do not go together.
        """
        if re.fullmatch(r"[-+]?\d{1,15}", start.strip()):
            if every is not None:
                raise InputError(
                    f"every is {every!r} with start {start!r}: step numbers have no period; leave it out"
                )
            if format is not None:
                raise InputError(
                    f"time_format is {format!r} with start {start!r}: step numbers have no format; leave it out"
                )
            return cls(int(start), 0)
        if every is None:
            raise InputError(
                f"every is missing with start {start!r}: give the period of a step, such as 1d or 6h"
            )
        found = re.fullmatch(r"\s*(\d{1,9})\s*(s|min|h|d|w)\s*", every)
        if found is None or not int(found[1]):
            raise InputError(
                f"every is {every!r}: it must be a whole number with a unit, such as 1d, 6h, 15min or 1w"
            )
        every_seconds = int(found[1]) * _UNITS[found[2]]
        return cls(seconds(start, "start"), every_seconds, None if format is None else check_format(format))

    def step(self, text: str, name: str = "until") -> int:
        """The step that a text's time lies in, from 0."""
        if self.every == 0:
            if not re.fullmatch(r"[-+]?\d{1,15}", text.strip()):
                raise InputError(f"{name} is {text!r}: it must be a whole number, as start is")
            return int(text) - self.start
        return (seconds(text, name) - self.start) // self.every

    def label(self, step: int) -> str:
        """A step's name: its date, with the time of day where steps are shorter; or its number."""
        if self.every == 0:
            return str(self.start + step)
        at = _EPOCH + datetime.timedelta(seconds=self.start + step * self.every)
        whole_days = self.every % 86_400 == 0 and self.start % 86_400 == 0
        return at.strftime("%Y-%m-%d" if whole_days else "%Y-%m-%dT%H%M%S")

    @property
    def period(self) -> str:
        """How long a step is, for people; nothing for plain step numbers."""
        for name, length in _NAMES:
            if self.every and self.every % length == 0:
                return f"{self.every // length:,} {name}{'s' if self.every > length else ''}"
        return ""

    def steps(self, times: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Steps of an Arrow column of times, and which of them can be read."""
        import pandas as pd

        if self.every == 0:
            values = pd.to_numeric(times.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
            good = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 1e15)
            return np.where(good, values, self.start).astype(np.int64) - self.start, good
        since, good = since_1970(times, self.format)
        return (np.where(good, since, self.start) - self.start) // self.every, good


def seconds(text: str, name: str) -> int:
    """Seconds since 1970 of an ISO 8601 date or date-time, in UTC unless it says otherwise."""
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"{name} is {text!r}: it must be a date or date-time, such as 2010-01-31 or 2010-01-31T06:00 (UTC), or a "
            "whole number"
        ) from None
    at = found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
    return int((at - _EPOCH).total_seconds())
