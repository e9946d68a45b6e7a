"""Aggregates of derived records: what each adds up for each person, measures and draws, and its answer.

An aggregate is private for adding or removing one derived record: a person with k of them pays k times its ε, or k²
times its ρ (`deltahist.personal.people`). Every public parameter is checked when an aggregate is made, since a failure
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
from deltahist.errors import InputError, as_printed_fraction, check_finite, check_positive
from deltahist.mechanisms.base import scale_noise
from deltahist.personal.expressions import LARGEST, SMALLEST, write_float
from deltahist.personal.query import Query, list_values
from deltahist.privacy import Law
from deltahist.publishers.publication import sample_law

#: Probability of the intervals, and what every answer is about.
LEVEL, _ABOUT = 0.95, "records whose owners could pay; the true number of records may be larger"
#: The least number of steps that values are rounded to.
_STEPS = 10**6
#: The column that says which value of a histogram a record has.
_CELL = "_cell"

#: Whole numbers (n,) by name, a row for each person (and value): "number" of records, "total" of steps, _CELL.
Sums: TypeAlias = Mapping[str, NDArray[np.int64]]


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
        """What the answer is about, and who paid, in words that reveal nobody."""
        letter, times = ("ε", "number") if self.unit == "epsilon" else ("ρ", "square of the number")
        price = f"{letter} = {float(self.amount):.10g} times the {times} of their records that were used"
        return f"the answer is about {_ABOUT}; each person paid {price}"

    def to_json(self) -> dict[str, Any]:
        """Describe the answer as JSON."""
        return {**vars(self), "amount": str(self.amount), "about": _ABOUT}


class Answers(dict[Any, Answer]):
    """The answer for each of several values, in the order of the question."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))

    @property
    def words(self) -> str:
        """What the answers are about, and who paid, in words that reveal nobody."""
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
                object.__setattr__(self, name, read_amount(**{name: check_positive(**{name: given})}))
        Budget(self.epsilon, self.rho)
        # A budget that is too small, or a range too wide, is refused before anything is fetched.
        nothing = np.zeros(0, np.int64)
        self.decode(self.measure({"number": nothing, "total": nothing, _CELL: nothing}))

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

    def release(self, sums: Sums) -> NDArray[np.int64]:
        """Measure the sums of people who paid, exactly, and add noise."""
        measured = self.measure(sums)
        return measured + sample_law(self.law, len(measured), None)

    @abstractmethod
    def add_up(self, query: Query) -> Any:
        """Return an Ibis table of the sums of each person's derived records that are used (`Query.add_up`)."""

    @abstractmethod
    def measure(self, sums: Sums) -> NDArray[np.int64]:
        """Return the whole numbers that get noise."""

    @abstractmethod
    def decode(self, noisy: NDArray[np.int64]) -> Any:
        """Return the answer that follows from the numbers with noise."""

    def _decode_one(self, what: str, noisy: int, step: Fraction = Fraction(1)) -> Answer:
        """Return the answer of one number of steps with one draw of noise."""
        error, down, up = _reach(self.law)
        estimate, low, high = (float(place * step) for place in (noisy, noisy - down, noisy + up))
        whose = f"{what} whose owners could pay"
        return Answer(whose, estimate, error * float(step), low, high, self.unit, self.amount)


@dataclass(frozen=True, kw_only=True)
class Count(Aggregate):
    """The number of records, with noise of scale 1/ε: one of PINQ's primitives (ProPer, PINQ).

    >>> Count(epsilon=0.1).law
    Laplace(parameter=Fraction(10, 1))
    """

    def add_up(self, query: Query) -> Any:
        return query.add_up()

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        return np.array([sums["number"].sum()])

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        return self._decode_one("number of records", int(noisy[0]))


@dataclass(frozen=True)
class Histogram(Aggregate):
    """The number of records with each of some public values of a column; others are not used, nor paid for."""

    column: str
    values: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(list_values(self.values)))
        super().__post_init__()

    def add_up(self, query: Query) -> Any:
        import pandas as pd

        public = pd.DataFrame({self.column: list(self.values), _CELL: np.arange(len(self.values))})
        return query.select(self.column).join(public, self.column).add_up(_CELL)

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        out = np.zeros(len(self.values), np.int64)
        np.add.at(out, sums[_CELL], sums["number"])
        return out

    def decode(self, noisy: NDArray[np.int64]) -> Answers:
        what, pairs = f"records with {self.column}", zip(self.values, noisy, strict=True)
        return Answers({value: self._decode_one(f"number of {what} {value}", int(number)) for value, number in pairs})


@dataclass(frozen=True)
class ValueAggregate(Aggregate):
    """An aggregate of a clipped value of each record; records without it (NULL) are not used, nor paid for.

    Parameters
    ----------
    column : the value, an expression.
    clip : the least and the greatest value, public. Values are rounded to about a millionth of what one can change.
    """

    column: str
    clip: tuple[float | Fraction, float | Fraction]

    def __post_init__(self) -> None:
        try:
            low, high = (as_printed_fraction(check_finite(clip=bound)) for bound in self.clip)
        except (TypeError, ValueError):
            raise InputError(f"clip is {self.clip!r}: it must be (low, high), two finite numbers") from None
        sizes = [float(abs(each)) for each in (low, high) if each]
        if float(low) >= float(high) or any(not SMALLEST <= size <= LARGEST for size in sizes):
            raise InputError(f"clip is {self.clip!r}: low < high must hold, each 0 or 1e-100 to 1e100 in size")
        object.__setattr__(self, "clip", (low, high))
        super().__post_init__()

    @functools.cached_property
    def step(self) -> Fraction:
        """What values are rounded to multiples of: the power of ten up to a millionth of what a record changes."""
        return Fraction(10) ** math.floor(math.log10(self.change / _STEPS))

    @property
    def origin(self) -> Fraction:
        """The value at which steps begin."""
        return Fraction(self.clip[0])

    @property
    def change(self) -> Fraction:
        """The most that one record changes, in units of the value."""
        return Fraction(self.clip[1]) - Fraction(self.clip[0])

    @property
    def sensitivity(self) -> int:
        """The most that one record changes, in steps."""
        return round(self.change / self.step)

    def add_up(self, query: Query) -> Any:
        made = query.select(value=self.column)
        if made.columns["value"] not in ("number", "whole"):
            raise InputError(f"column is {self.column!r}, a {made.columns['value']}: it must hold numbers")
        made = made.where("value is not null")
        return made.add_up(total=self.steps(made.table["value"]))

    def steps(self, values: Any) -> Any:
        """Return an Ibis column of values as whole steps from the origin, clipped, the same in every database."""
        import ibis

        low, high, origin, step, half = (write_float(float(each)) for each in (*self.clip, self.origin, self.step, 0.5))
        clipped = ibis.greatest(ibis.least(values.cast("float64"), high), low)
        steps = ((clipped - origin) / step + half).floor().cast("int64")
        # Rounding may put a value a step beyond its bound.
        least, most = (ibis.literal(round((each - self.origin) / self.step), "int64") for each in self.clip)
        return ibis.greatest(ibis.least(steps, most), least)


@dataclass(frozen=True)
class Sum(ValueAggregate):
    """The sum of a value.

    >>> Sum("fare", clip=(0, 50), epsilon=0.5).law
    Laplace(parameter=Fraction(10000000, 1))
    """

    @property
    def origin(self) -> Fraction:
        return Fraction(0)

    @property
    def change(self) -> Fraction:
        return max(abs(Fraction(each)) for each in self.clip)

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        return np.array([sums["total"].sum()])

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        return self._decode_one(f"sum of {self.column} of records", int(noisy[0]), self.step)


@dataclass(frozen=True)
class Mean(ValueAggregate):
    """The mean of a value.

    It measures the sums of the distances to the lower and to the upper bound. One record changes both together by the
    range, and by no more in Euclidean length, so both get the whole budget. Their total is the range times the count.

    >>> Mean("fare", clip=(0, 50), epsilon=0.5).sensitivity
    5000000
    """

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        above = sums["total"].sum(keepdims=True)
        return np.append(above, sums["number"].sum(keepdims=True) * self.sensitivity - above)

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        low, high = map(float, self.clip)
        share, error, least, most = _estimate_ratio(float(noisy[0]), float(noisy[1]), self.law)
        width = high - low
        numbers = (low + width * share, width * error, low + width * least, low + width * most)
        return Answer(f"mean of {self.column} of records whose owners could pay", *numbers, self.unit, self.amount)


def _written(value: float, digits: int = 6) -> str:
    """Print a number to some digits, but write whole ones out up to 10^15."""
    return f"{value:,.0f}" if 10.0**digits <= abs(value) < 1e15 else f"{value:,.{digits}g}"


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
