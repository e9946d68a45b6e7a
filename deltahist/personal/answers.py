"""Answers to questions on people's records: estimates with their errors, and who pays. Public."""

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
    """The part of every answer that tells who paid, for dataclasses with a unit and an amount."""

    unit: str
    amount: Fraction

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    @property
    def words(self) -> str:
        """Who paid, in words that reveal nobody."""
        return who_pays(self.unit, self.amount)

    def to_json(self) -> dict[str, Any]:
        """Describe the answer as JSON."""
        return {**vars(self), "amount": str(self.amount)}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """Return the answer that `to_json` described."""
        return cls(**{**kept, "amount": Fraction(kept["amount"])})


@dataclass(frozen=True, repr=False)
class Answer(PaidAnswer):
    """One number with the error of the noise that protects it, about the records of people who could pay.

    Parameters
    ----------
    what : the number is. estimate : of the number. std_error : of the noise.
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
        """Who paid, in words that reveal nobody."""
        return self.answers[0].words

    def frame(self) -> pd.DataFrame:
        """Return a table with a row for each value: estimate, std_error, low, high."""
        import pandas as pd

        columns = ("estimate", "std_error", "low", "high")
        rows = [[getattr(answer, name) for name in columns] for answer in self.answers]
        return pd.DataFrame(rows, columns=list(columns), index=pd.Index(self.values, name="value"))

    def to_json(self) -> dict[str, Any]:
        """Describe the answers as JSON; values are texts."""
        return {
            "values": [str(value) for value in self.values],
            "answers": [answer.to_json() for answer in self.answers],
        }


@dataclass(frozen=True, repr=False)
class QuantileAnswer(PaidAnswer):
    """A quantile of values that people pay for.

    Parameters
    ----------
    what : which quantile. value : that was drawn.
    amiss : records on its wrong side, at most, in 95 of 100 cases.
    unit, amount : the cost of one record.

    >>> QuantileAnswer("median of fare", 12.4, 100, "epsilon", Fraction(1, 10))
    QuantileAnswer(median of fare: 12.4, with at most 100 records on the wrong side with probability 95%)
    """

    what: str
    value: float
    amiss: int
    unit: str
    amount: Fraction

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.value:,.6g}, with at most {self.amiss:,} records on the wrong side with probability "
            f"{LEVEL:.0%}"
        )


def shown(value: float, digits: int = 6) -> str:
    """Print a number to some digits, but write whole ones out up to 10^15."""
    return f"{value:,.0f}" if 10.0**digits <= abs(value) < 1e15 else f"{value:,.{digits}g}"


def who_pays(unit: str, amount: Fraction) -> str:
    """Say in words how much each person pays for a question."""
    price = f"{float(amount):.10g}"
    each = (
        f"ε = {price} for each of their records that was used"
        if unit == "epsilon"
        else f"ρ = {price} times the square of the number of their records that were used"
    )
    return f"each person paid {each}; the records of who could not pay were left out"
