"""Aggregates of derived records: what each one fetches, measures and draws, and its answer.

An aggregate is private for adding or removing one derived record: a person with k of them pays k times its ε, or k²
times its ρ (`deltahist.personal.asking`). Every public parameter is checked when an aggregate is made, since a failure
once records are read is charged to everybody.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget, ceil_nano, read_amount
from deltahist.decode import Moments, interval
from deltahist.errors import InputError, as_printed, finite, positive
from deltahist.mechanisms.base import scale_noise
from deltahist.personal.expressions import LARGEST, SMALLEST
from deltahist.personal.query import Query, list_values
from deltahist.privacy import Law
from deltahist.publishers.publication import draw

#: Probability of the intervals.
LEVEL = 0.95
#: Steps of a value: sums over any number of records stay within 64 bits.
_MOST_STEPS = 10**9
#: Steps between the bounds of a value, if no resolution is given.
_STEPS = 10**6
#: The column that says which value of a histogram a record has.
_CELL = "_cell"

#: Fetched values (n,) by name.
Columns: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Answer:
    """One number with the error of the noise that protects it, about the records of people who could pay.

    Parameters
    ----------
    what : the number is. estimate : of the number. std_error : of the noise.
    low, high : an interval that holds the number in 95 of 100 cases.
    unit : "epsilon" or "rho". amount : of it, that one record costs.

    >>> print(Answer("number of records", 120.0, 14.1, 90.0, 150.0, "epsilon", Fraction(1, 10)))
    number of records: 120 ± 14, from 90 to 150 with probability 95%
    """

    what: str
    estimate: float
    std_error: float
    low: float
    high: float
    unit: str
    amount: Fraction

    def __str__(self) -> str:
        estimate, low, high = (_written(value) for value in (self.estimate, self.low, self.high))
        error = _written(self.std_error, digits=2)
        return f"{self.what}: {estimate} ± {error}, from {low} to {high} with probability {LEVEL:.0%}"

    @property
    def words(self) -> str:
        """Who paid, in words that reveal nobody."""
        letter, times = ("ε", "number") if self.unit == "epsilon" else ("ρ", "square of the number")
        price = f"{letter} = {float(self.amount):.10g} times the {times} of their records that were used"
        return f"each person paid {price}; records of people who could not pay were left out"

    def to_json(self) -> dict[str, Any]:
        """Describe the answer as JSON."""
        return {**vars(self), "amount": str(self.amount)}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Answer:
        """Return the answer that `to_json` described."""
        return cls(**{**kept, "amount": Fraction(kept["amount"])})


class Answers(dict[Any, Answer]):
    """The answer for each of several values, in the order of the question."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))

    @property
    def words(self) -> str:
        """Who paid, in words that reveal nobody."""
        return next(iter(self.values())).words

    def to_json(self) -> dict[str, Any]:
        """Describe the answers as JSON; values are texts."""
        return {"values": list(map(str, self)), "answers": [answer.to_json() for answer in self.values()]}


@dataclass(frozen=True, kw_only=True)
class Aggregate(ABC):
    """A question about derived records whose answer follows from whole numbers with noise of one law.

    A record costs ε or ρ; a float stands for the decimal that it prints as. Raises InputError unless one of both is
    given, above zero and at most 10^9.
    """

    epsilon: float | Fraction | None = None
    rho: float | Fraction | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "rho"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, read_amount(**{name: positive(**{name: given})}))
        Budget(self.epsilon, self.rho)
        # A budget that is too small, or a range too wide, is refused before anything is fetched.
        self.decode(self.measure({_CELL: np.zeros(0), "value": np.zeros(0)}, 0))

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def amount(self) -> Fraction:
        """ε or ρ of one derived record."""
        return Fraction(getattr(self, self.unit))

    @property
    def price(self) -> int:
        """Billionths that one derived record costs."""
        return ceil_nano(**{self.unit: self.amount})

    @property
    def law(self) -> Law:
        """The law of the noise that each measured number gets."""
        return scale_noise(Budget(self.epsilon, self.rho), Fraction(self.sensitivity))

    @property
    def sensitivity(self) -> int:
        """The most that one derived record changes the measured numbers, in the 1-norm for ε, the 2-norm for ρ."""
        return 1

    def answer(self, columns: Columns, number: int) -> Any:
        """Measure the values of a number of records that are paid for, exactly, and draw the noise."""
        measured = self.measure(columns, number)
        return self.decode(measured + draw(self.law, len(measured), None))

    @abstractmethod
    def records(self, query: Query) -> tuple[Query, Mapping[str, str]]:
        """Return the derived records that are used, and the values to fetch of them, by name."""

    @abstractmethod
    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        """Return the whole numbers that get noise."""

    @abstractmethod
    def decode(self, noisy: NDArray[np.int64]) -> Any:
        """Return the answer that follows from the numbers with noise."""

    def describe(self) -> dict[str, Any]:
        """Describe the aggregate as JSON: two with the same description ask the same of the same values."""
        return {"question": type(self).__name__.lower(), self.unit: str(self.amount)}

    def from_json(self, kept: dict[str, Any]) -> Any:
        """Return the answer that its `to_json` described."""
        return Answer.from_json(kept)

    def _decode_one(self, what: str, noisy: int, step: Fraction = Fraction(1)) -> Answer:
        """Return the answer of one number of steps with one draw of noise."""
        error, down, up = _reach(self.law)
        estimate, low, high = (float(place * step) for place in (noisy, noisy - down, noisy + up))
        return Answer(what, estimate, error * float(step), low, high, self.unit, self.amount)


@dataclass(frozen=True, kw_only=True)
class Count(Aggregate):
    """The number of records, with noise of scale 1/ε: one of PINQ's primitives (ProPer, PINQ).

    >>> Count(epsilon=0.1).law
    Laplace(parameter=Fraction(10, 1))
    """

    def records(self, query: Query) -> tuple[Query, Mapping[str, str]]:
        return query, {}

    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        return np.array([number])

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        return self._decode_one("number of records", int(noisy[0]))


@dataclass(frozen=True)
class Histogram(Aggregate):
    """The number of records with each of some public values of a column; others are not used, nor paid for.

    >>> Histogram("kind", ("bus", "tram"), epsilon=1).describe()["values"]
    ['bus', 'tram']
    """

    column: str
    values: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(list_values(self.values)))
        super().__post_init__()

    def records(self, query: Query) -> tuple[Query, Mapping[str, str]]:
        import pandas as pd

        public = pd.DataFrame({self.column: list(self.values), _CELL: np.arange(len(self.values))})
        return query.select(self.column).join(public, self.column), {_CELL: _CELL}

    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        return np.bincount(columns[_CELL].astype(np.int64), minlength=len(self.values))

    def decode(self, noisy: NDArray[np.int64]) -> Answers:
        what, pairs = f"number of records with {self.column}", zip(self.values, noisy, strict=True)
        return Answers({value: self._decode_one(f"{what} {value}", int(number)) for value, number in pairs})

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"values": [str(value) for value in self.values]}

    def from_json(self, kept: dict[str, Any]) -> Answers:
        return Answers(zip(self.values, map(Answer.from_json, kept["answers"]), strict=True))


@dataclass(frozen=True)
class ValueAggregate(Aggregate):
    """An aggregate of a clipped value of each record; records without it (NULL) are not used, nor paid for.

    Parameters
    ----------
    column : the value, an expression. clip : the least and the greatest value, public.
    resolution : values are rounded to multiples of it, at most 10^9 of them; when None, to about a millionth.
    """

    column: str
    clip: tuple[float, float]
    resolution: float | Fraction | None = None

    @functools.cached_property
    def bounds(self) -> tuple[Fraction, Fraction]:
        """The clip range, exactly."""
        try:
            low, high = (as_printed(finite(clip=bound)) for bound in self.clip)
        except (TypeError, ValueError):
            raise InputError(f"clip is {self.clip!r}: it must be (low, high), two finite numbers") from None
        sizes = [float(abs(each)) for each in (low, high) if each]
        if low >= high or any(not SMALLEST <= size <= LARGEST for size in sizes):
            raise InputError(f"clip is {self.clip!r}: it must be low < high, each 0 or of a size of 1e-100 to 1e100")
        return low, high

    @functools.cached_property
    def step(self) -> Fraction:
        """The resolution, exactly."""
        low, high = self.bounds
        step = _round_to_ten(self.change / _STEPS)
        if self.resolution is not None:
            step = as_printed(positive(resolution=self.resolution))
        if not self.change / _MOST_STEPS <= step <= high - low:
            least, most = float(self.change / _MOST_STEPS), float(high - low)
            raise InputError(f"resolution is {float(step):g}: it must be from {least:g} to {most:g}")
        return step

    @property
    def change(self) -> Fraction:
        """The most that one record changes, in units of the value."""
        return self.bounds[1] - self.bounds[0]

    @property
    def sensitivity(self) -> int:
        """The most that one record changes, in steps."""
        return round(self.change / self.step)

    def records(self, query: Query) -> tuple[Query, Mapping[str, str]]:
        made = query.select(value=self.column)
        if made.columns["value"] not in ("number", "whole"):
            raise InputError(f"column is {self.column!r}, a {made.columns['value']}: it must hold numbers")
        return made.where("value is not null"), {"value": "value"}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"clip": [str(bound) for bound in self.bounds], "resolution": str(self.step)}

    def steps(self, columns: Columns, origin: Fraction) -> NDArray[np.int64]:
        """Return the values (n,) as whole steps from an origin, clipped."""
        low, high = self.bounds
        values = np.clip(columns["value"].astype(np.float64), float(low), float(high))
        steps = np.rint((values - float(origin)) / float(self.step)).astype(np.int64)
        # Rounding may put a value a step beyond its bound.
        return np.clip(steps, round((low - origin) / self.step), round((high - origin) / self.step))


@dataclass(frozen=True)
class Sum(ValueAggregate):
    """The sum of a value.

    >>> Sum("fare", clip=(0, 50), epsilon=0.5).law
    Laplace(parameter=Fraction(10000000, 1))
    """

    @property
    def change(self) -> Fraction:
        return max(map(abs, self.bounds))

    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        return self.steps(columns, Fraction(0)).sum(keepdims=True)

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        return self._decode_one(f"sum of {self.column}", int(noisy[0]), self.step)


@dataclass(frozen=True)
class Mean(ValueAggregate):
    """The mean of a value.

    It measures the sums of the distances to the lower and to the upper bound. One record changes both together by the
    range, and by no more in Euclidean length, so both get the whole budget. Their total is the range times the count.

    >>> Mean("fare", clip=(0, 50), epsilon=0.5).sensitivity
    5000000
    """

    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        above = self.steps(columns, self.bounds[0])
        return np.array([above.sum(), len(above) * self.sensitivity - above.sum()])

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        low, high = map(float, self.bounds)
        share, error, least, most = _estimate_ratio(float(noisy[0]), float(noisy[1]), self.law)
        width = high - low
        return Answer(
            f"mean of {self.column}",
            *(low + width * share, width * error, low + width * least, low + width * most),
            *(self.unit, self.amount),
        )


def _written(value: float, digits: int = 6) -> str:
    """Print a number to some digits, but write whole ones out up to 10^15."""
    return f"{value:,.0f}" if 10.0**digits <= abs(value) < 1e15 else f"{value:,.{digits}g}"


def _round_to_ten(most: Fraction) -> Fraction:
    """Return the largest power of ten up to a limit."""
    power = Fraction(10) ** math.floor(math.log10(most))
    return power / 10 if power > most else power * 10 if power * 10 <= most else power


@functools.lru_cache(maxsize=64)
def _reach(law: Law) -> tuple[float, Fraction, Fraction]:
    """Return the standard deviation of one draw, and how far below and above it the interval goes."""
    variance = law.variance()
    moments = Moments(np.array([variance]), np.array([law.kurtosis()]), draws=np.ones(1))
    down, up = (Fraction(reach[0]) for reach in interval(moments, law, LEVEL))
    return math.sqrt(variance), down, up


def _estimate_ratio(above: float, below: float, law: Law) -> tuple[float, float, float, float]:
    """Estimate the ratio a / (a + b) from noisy a and b, with its standard error and interval.

    Fieller's interval holds all shares s for which (1 − s) a − s b is no larger than its noise may be, and all between
    them. Sums of Laplace noise have no heavier tails than a single draw.
    """
    total, variance = above + below, law.variance()
    share = min(max(above / total, 0.0), 1.0) if total > 0 else 0.5
    off = math.sqrt(variance * (share**2 + (1 - share) ** 2))
    error = min(off / total, 1.0) if total > 0 else 1.0
    # (total² − 2 v) s² − 2 (above total − v) s + above² − v ≤ 0
    v = law.reach(LEVEL) ** 2 * variance
    square, linear, constant = total * total - 2 * v, above * total - v, above * above - v
    possible = [s for s in (0.0, 1.0) if (square * s - 2 * linear) * s + constant <= 0]
    inner = linear * linear - square * constant
    if inner >= 0 and square:
        roots = ((linear + sign * math.sqrt(inner)) / square for sign in (-1, 1))
        possible += [root for root in roots if 0 <= root <= 1]
    possible.append(share)
    return share, error, min(possible), max(possible)
