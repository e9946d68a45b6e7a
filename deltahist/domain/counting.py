"""Counting, the public half: how rows become counts, which is fixed before any row is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from deltahist.domain.operations import Projection
from deltahist.errors import InputError, one_of, whole

#: Records of people whose own budget did not suffice.
UNPAID = "people who cannot pay"
#: What may have been left out before counting.
DROPS = ("bad rows", "points outside", UNPAID)
#: Characters of a condition on rows: what a person can read in a statement.
_LONGEST = 1000


@dataclass(frozen=True)
class Counting:
    """How rows become counts: which rows, whose points they are, what is left out, the way to the map.

    Parameters
    ----------
    contributions : points of one user that may move at once; 1 if the unit of privacy is a point.
    user : whether the unit of privacy is a user, all of whose kept points may move; so it is with more than one.
    dropped : kinds of rows that may have been left out: "bad rows", "points outside", "people who cannot pay".
    projection : the operation that brought coordinates to the map; None if they were in its CRS.
    where : the condition that chose the rows, on columns besides the place; None if all were taken.

    Raises
    ------
    InputError
        If contributions is no whole number of at least 1, something else is said to be dropped, or the condition is
        no line of text.

    >>> Counting(contributions=3).unit, Counting(contributions=1, user=True).unit, Counting().unit
    ('user', 'user', 'point')
    """

    contributions: int = 1
    user: bool = False
    dropped: tuple[str, ...] = ()
    projection: Projection | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "contributions", whole(contributions=self.contributions))
        object.__setattr__(self, "user", self.user or self.contributions > 1)
        kinds = {one_of(DROPS, dropped=d) for d in self.dropped}
        object.__setattr__(self, "dropped", tuple(d for d in DROPS if d in kinds))
        if self.where is not None:
            object.__setattr__(self, "where", _line(self.where))

    @property
    def unit(self) -> str:
        """Unit of privacy: "user" or "point"."""
        return "user" if self.user else "point"

    @property
    def who(self) -> str:
        """The unit of privacy for people, with how many points it has."""
        if not self.user:
            return "point"
        return f"user ({self.contributions:,} point{'s' if self.contributions > 1 else ''})"

    @property
    def how(self) -> str:
        """All of it in a few words, for messages."""
        out = f"one {self.who} as the unit of privacy"
        out += f" and {' and '.join(self.dropped)} dropped" if self.dropped else ""
        return out + (f", of rows where {self.where}" if self.where is not None else "")

    def and_also(self, contributions: int | None = None, dropped: Iterable[str] = ()) -> Counting:
        """This one with what the caller knows besides: more points of a user, more that was left out.

        Raises InputError on fewer contributions than are known already.
        """
        more = tuple(dropped)
        out = replace(self, dropped=(*self.dropped, *more)) if more else self
        if contributions is None:
            return out
        if whole(contributions=contributions) < self.contributions:
            raise InputError(
                f"contributions is {contributions!r}, but up to {self.contributions:,} points of a user were kept: it "
                "must be at least as many; leave it out"
            )
        return replace(out, contributions=contributions)

    def describe(self) -> dict[str, Any]:
        """A JSON-ready public description; without a condition it is what it was before there were any."""
        out = {
            "contributions": self.contributions,
            "unit": self.unit,
            "dropped": list(self.dropped),
            "projection": None if self.projection is None else self.projection.describe(),
        }
        return out if self.where is None else {**out, "where": self.where}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Counting:
        """What `describe` described.

        Raises InputError if it contradicts itself.
        """
        contributions = whole(contributions=description["contributions"])
        unit = one_of(("point", "user"), unit=description["unit"])
        dropped, projection = description["dropped"], description["projection"]
        if not isinstance(dropped, list) or (unit == "point" and contributions > 1):
            raise InputError("the unit of privacy or what was dropped is damaged (altered?)")
        return cls(
            contributions,
            unit == "user",
            tuple(dropped),
            None if projection is None else Projection(**projection),
            description.get("where"),
        )


def _line(where: Any) -> str:
    """A condition as it is stated; release files and terminals show it as it is."""
    if not isinstance(where, str) or not where.strip():
        raise InputError(f"where is {where!r}: it must be a condition on columns, such as \"kind = 'bus'\"")
    line = where.strip()
    if len(line) > _LONGEST or not line.isprintable():
        raise InputError(
            f"where is {line[:40]!r}, of {len(line):,} characters: it must be one line of at most {_LONGEST:,}, since "
            "the privacy statement says it in full"
        )
    return line


#: Points, one of them at a time, in the map's own coordinates, none left out.
POINTS = Counting()
