"""How rows become counts: the unit of privacy, the rows that may be left out, and the time steps.

These choices are public, and they are made before any row is read.
"""

from __future__ import annotations

import contextlib
import datetime
import numbers
import re
import unicodedata
import uuid
import zoneinfo
from dataclasses import asdict, dataclass, replace
from typing import Any

from deltahist.errors import InputError, check_choice, check_whole, is_number

#: Kind of row that is left out because its user cannot pay.
UNPAID = "people who cannot pay"
#: Kinds of row that may be left out before counting.
DROPS = ("bad rows", "points outside", UNPAID)


@dataclass(frozen=True)
class Correction:
    """The SHA-256 of a faulty release that a new one replaces, and the public reason for replacing it."""

    digest: str
    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.digest, str) or not re.fullmatch(r"[0-9a-f]{64}", self.digest):
            raise InputError(f"digest is {self.digest!r:.80}: it must be a SHA-256 of 64 hexadecimal digits")
        object.__setattr__(self, "reason", check_line(reason=self.reason))


@dataclass(frozen=True)
class Preprocessing:
    """Public choices about how rows become counts.

    contributions : number of points that one user may move at once; 1 if the unit of privacy is a point.
    user : whether the unit of privacy is a user, who may move all of their kept points. True if `contributions` > 1.
    dropped : kinds of rows that may be left out: "bad rows", "points outside" and "people who cannot pay".
    projection : operation that projected coordinates to the map; None if they were already in its CRS.
    where : one-line condition that selected the rows; None if all rows count.
    replaces : the faulty release that this one replaces, if any.
    """

    contributions: int = 1
    user: bool = False
    dropped: tuple[str, ...] = ()
    projection: str | None = None
    where: str | None = None
    replaces: Correction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "contributions", check_whole(contributions=self.contributions))
        object.__setattr__(self, "user", self.user or self.contributions > 1)
        kinds = {check_choice(DROPS, dropped=d) for d in self.dropped}
        object.__setattr__(self, "dropped", tuple(d for d in DROPS if d in kinds))
        if self.where is not None:
            object.__setattr__(self, "where", check_line(where=self.where))

    @property
    def unit(self) -> str:
        """Unit of privacy: "user" or "point"."""
        return "user" if self.user else "point"

    @property
    def who(self) -> str:
        """Unit of privacy as a phrase, with the number of points of a user."""
        if not self.user:
            return "point"
        return f"user ({self.contributions:,} point{'s' if self.contributions > 1 else ''})"

    @property
    def how(self) -> str:
        """Short description of the choices for error messages."""
        out = f"one {self.who} as the unit of privacy"
        out += f" and {' and '.join(self.dropped)} dropped" if self.dropped else ""
        return out + (f", of rows where {self.where}" if self.where is not None else "")

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready public description, without "where" and "replaces" if they are None."""
        return {
            **{"contributions": self.contributions, "unit": self.unit, "dropped": list(self.dropped)},
            "projection": self.projection,
            **({} if self.where is None else {"where": self.where}),
            **({} if self.replaces is None else {"replaces": asdict(self.replaces)}),
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Preprocessing:
        """Recreate the choices from what `describe` returned. Raises InputError if the description is inconsistent."""
        projection, replaces = description["projection"], description.get("replaces")
        found = cls(
            description["contributions"],
            description["unit"] == "user",
            tuple(description["dropped"]),
            None if projection is None else str(projection),
            description.get("where"),
            None if replaces is None else Correction(**replaces),
        )
        check_choice((found.unit,), unit=description["unit"])
        return found


def check_line(**given: Any) -> str:
    """Return the argument's value as one printable line, which privacy statements can quote in full."""
    ((name, value),) = given.items()
    line = value.strip() if isinstance(value, str) else ""
    if not 0 < len(line) <= 1000 or not line.isprintable():
        raise InputError(f"{name} is {value!r:.80}: it must be one printable line of 1 to 1,000 characters")
    return line


#: The default choices: a unit of privacy of one point, the map's own coordinates, and no rows left out.
POINTS = Preprocessing()


#: Names of time formats that have no pattern: seconds or milliseconds since 1970 in UTC.
SINCE_1970 = ("unix", "unix-ms")
#: Seconds in an average calendar month. Clocks represent a period of n months as n times this number.
MONTH = 2_629_746


@dataclass(frozen=True)
class Clock:
    """A division of time into steps: equal periods from a start, calendar months, or plain step numbers.

    Parameters
    ----------
    start : start of step 0 in seconds since 1970 (in UTC or the local time of `tz`), or the first step number.
    every : length of a step in seconds; a multiple of `MONTH` for calendar months, and 0 for plain step numbers.
    format : format of times in text: a `strptime` pattern, "unix" or "unix-ms"; None for ISO 8601.
    tz : time zone in which days and months begin, such as "Europe/Berlin"; None for UTC.

    >>> clock = Clock.of("2010-01-01", "1d")
    >>> clock.step("2010-01-31"), clock.label(30), Clock.of("2010-11-01", "month").label(3)
    (30, '2010-01-31', '2011-02')
    """

    start: int
    every: int
    format: str | None = None
    tz: str | None = None

    def __post_init__(self) -> None:
        fits = self.tz is None or (self.every > 0 and (self.every % 86_400 == 0 or self.months > 0))
        with contextlib.suppress(TypeError, ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            if fits and (self.tz is None or zoneinfo.ZoneInfo(self.tz)):
                return
        rule = "it must be a time zone, such as Europe/Berlin, with steps of days, weeks or months"
        raise InputError(f"tz is {self.tz!r}: {rule}")

    @classmethod
    def of(cls, start: str, every: str | None, format: str | None = None, tz: str | None = None) -> Clock:
        """Read a clock from text: a date or date-time with a period such as 1d or month, or a step number alone."""
        number = _read_step_number(start)
        if number is not None and (every, format, tz) == (None, None, None):
            return cls(number, 0)
        if number is None and every is not None:
            length = read_period(every, "every")
            clock = cls(read_seconds(start, "start"), length, None if format is None else check_format(format), tz)
            if not clock.months or clock.begin(0) == clock.start:
                return clock
        raise InputError(
            f"start is {start!r}: a time needs `every` (such as 1d or 6h), and must start a month if `every` is in "
            "months. A step number excludes `every`, `time_format` and `tz`"
        )

    @property
    def months(self) -> int:
        """Number of calendar months in a step; 0 if steps are not months."""
        return 0 if self.every % MONTH else self.every // MONTH

    @property
    def first_month(self) -> int:
        """Number of months from the year 0 to step 0."""
        at = datetime.datetime.fromtimestamp(self.start, datetime.UTC)
        return 12 * at.year + at.month - 1

    def step(self, text: str, name: str = "until") -> int:
        """Return the number, counted from 0, of the step that contains a time given as text."""
        at = read_seconds(text, name, numbered=self.every == 0)
        if self.months:
            return (Clock(at, MONTH).first_month - self.first_month) // self.months
        return (at - self.start) // (self.every or 1)

    def begin(self, step: int) -> int:
        """Return the start of a step in seconds since 1970 (in UTC or the local time of `tz`), or its step number."""
        if not self.months:
            return self.start + step * (self.every or 1)
        year, month = divmod(self.first_month + step * self.months, 12)
        return int(datetime.datetime(year, month + 1, 1, tzinfo=datetime.UTC).timestamp())

    def since(self, step: int) -> Clock:
        """Return the same clock, with `step` as its step 0."""
        return replace(self, start=self.begin(step))

    def label(self, step: int) -> str:
        """Return the name of a step: its month, its date (with the time unless steps are whole days), or its number."""
        if self.every == 0:
            return str(self.start + step)
        at = datetime.datetime.fromtimestamp(self.begin(step), datetime.UTC)
        if self.months:
            return at.strftime("%Y-%m")
        whole_days = self.every % 86_400 == 0 and self.start % 86_400 == 0
        return at.strftime("%Y-%m-%d" if whole_days else "%Y-%m-%dT%H%M%S")

    @property
    def period(self) -> str:
        """Length of a step as text; empty for plain step numbers."""
        zone = f" ({self.tz})" if self.tz else ""
        names = {"month": MONTH, "week": 7 * 86_400, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}
        for name, length in names.items():
            if self.every and self.every % length == 0:
                return f"{self.every // length:,} {name}{'s' if self.every > length else ''}{zone}"
        return ""


def read_period(text: str, name: str) -> int:
    """Return the length in seconds of a period such as 1d, 6h, 15min, 1w or month."""
    found = re.fullmatch(r"\s*(\d{0,9})\s*(s|min|h|d|w|months?)\s*", text)
    number = 0 if found is None else int(found[1] or found[2] == "month")
    if found is None or not number:
        raise InputError(f'{name} is {text!r}: it must be a number with a unit (1d, 6h, 15min, 1w), or "month"')
    units = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "month": MONTH}
    return number * units[found[2].removesuffix("s") or "s"]


def _read_step_number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[-+]?\d{1,15}", text.strip()) else None


def read_seconds(text: str, name: str, numbered: bool = False) -> int:
    """Return an ISO 8601 date, date-time or month (UTC by default) as seconds since 1970, or a step number as is."""
    if not numbered:
        with contextlib.suppress(ValueError):
            found = datetime.datetime.fromisoformat(re.sub(r"^\d{4}-\d\d$", r"\g<0>-01", text.strip()))
            return int((found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)).timestamp())
    elif (number := _read_step_number(text)) is not None:
        return number
    raise InputError(f"{name} is {text!r}: it must be a date, a time (2010-01-31T06:00, UTC), a month or a step number")


def check_format(format: str) -> str:
    """Return the format. Raises InputError unless it is one of SINCE_1970 or a `strptime` pattern with a full date."""
    day = datetime.datetime(2031, 12, 30, tzinfo=datetime.UTC)
    try:
        if format in SINCE_1970 or datetime.datetime.strptime(day.strftime(format), format).date() == day.date():
            return format
    except (ValueError, TypeError):
        pass
    rule = "a pattern with a day, a month and a year, such as '%d/%m/%Y %H:%M', or 'unix' or 'unix-ms'"
    raise InputError(f"time_format is {format!r}: it must be {rule}")


def normalize_name(**parameter: Any) -> str:
    """Return the name of a user, owner, account or key (the argument) in a canonical form for comparison.

    Text is converted to NFC and loses surrounding spaces. Whole numbers and UUIDs become text. Raises InputError for
    empty text, other types, fractions, and floats beyond 2^53, which do not represent all whole numbers.

    >>> normalize_name(user=" Jose\u0301 ") == "Jos\u00e9", normalize_name(user=7.0), normalize_name(user=2**70)
    (True, '7', '1180591620717411303424')
    """
    ((name, value),) = parameter.items()
    if isinstance(value, str | uuid.UUID):
        text = unicodedata.normalize("NFC", str(value)).strip()
    elif is_number(value) and (isinstance(value, numbers.Integral) or (value % 1 == 0 and abs(value) <= 2**53)):
        text = str(int(value))
    else:
        text = ""
    if not text:
        raise InputError(f"{name} is {value!r:.200}: it must be text or a whole number, at most 2^53 if it is a float")
    return text
