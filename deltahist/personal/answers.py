"""Answers to questions on people's records: estimates with their errors, and who pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

#: Probability of the intervals.
LEVEL = 0.95


class PaidAnswer:
    """What every answer says of who paid, and how a ledger keeps it; for dataclasses with a unit and an amount."""

    unit: str
    amount: Fraction

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    @property
    def words(self) -> str:
        """Who paid, for people; it reveals nobody."""
        return who_pays(self.unit, self.amount)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {**vars(self), "amount": str(self.amount)}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """What `to_json` described."""
        return cls(**{**kept, "amount": Fraction(kept["amount"])})


@dataclass(frozen=True, repr=False)
class Answer(PaidAnswer):
    """What is known of one number, with the noise that protects it; public.

    It is about the records of people who could pay.

    Parameters
    ----------
    what : was asked.
    estimate : of the number. std_error : of the noise.
    low, high : an interval that holds the number in 95 of 100 cases.
    unit : "epsilon" or "rho". amount : of it, that one record costs.

    >>> answer = Answer("number of records", 120.0, 14.1, 90.0, 150.0, "epsilon", Fraction(1, 10))
    >>> answer
    Answer(number of records: 120 ± 14, from 90 to 150 with probability 95%)
    >>> answer.words
    'each person paid ε = 0.1 for each of their records that was used; the records of who could not pay were left out'
    """

    what: str
    estimate: float
    std_error: float
    low: float
    high: float
    unit: str
    amount: Fraction

    def __str__(self) -> str:
        estimate, low, high = (shown(value) for value in (self.estimate, self.low, self.high))
        error = shown(self.std_error, digits=2)
        return f"{self.what}: {estimate} ± {error}, from {low} to {high} with probability {LEVEL:.0%}"


@dataclass(frozen=True)
class Answers:
    """An answer for each of several values.

    Parameters
    ----------
    values : that were asked for, in order. answers : to them.
    """

    values: tuple[Any, ...]
    answers: tuple[Answer, ...]

    def __getitem__(self, value: Any) -> Answer:
        if value not in self.values:
            raise InputError(
                f"{value!r} was not asked for: there are {', '.join(map(repr, self.values[:10]))}"
            )
        return self.answers[self.values.index(value)]

    def __iter__(self) -> Iterator[tuple[Any, Answer]]:
        return zip(self.values, self.answers, strict=True)

    def __len__(self) -> int:
        return len(self.values)

    def __str__(self) -> str:
        return "\n".join(str(answer) for answer in self.answers)

    @property
    def words(self) -> str:
        """Who paid, for people; it reveals nobody."""
        return self.answers[0].words

    def frame(self) -> pd.DataFrame:
        """A row for each value: estimate, std_error, low, high."""
        import pandas as pd

        columns = ("estimate", "std_error", "low", "high")
        rows = [[getattr(answer, name) for name in columns] for answer in self.answers]
        return pd.DataFrame(rows, columns=list(columns), index=pd.Index(self.values, name="value"))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description; values as text."""
        return {
            "values": [str(value) for value in self.values],
            "answers": [answer.to_json() for answer in self.answers],
        }


def shown(value: float, digits: int = 6) -> str:
    """A number for people: to so many digits, but whole ones written out up to 10^15."""
    return f"{value:,.0f}" if 10.0**digits <= abs(value) < 1e15 else f"{value:,.{digits}g}"


def who_pays(unit: str, amount: Fraction) -> str:
    """What each person pays for a question, in words."""
    said = f"{float(amount):.10g}"
    each = (
        f"ε = {said} for each of their records that was used"
        if unit == "epsilon"
        else f"ρ = {said} times the square of the number of their records that were used"
    )
    return f"each person paid {each}; the records of who could not pay were left out"
