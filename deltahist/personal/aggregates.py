"""Aggregates of derived records: what each one fetches, costs, measures and draws, and its answer.

An aggregate is private for adding or removing one derived record: who has k of them pays k times its ε, or k² times its
ρ (`deltahist.personal.asking`).
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget, ceil_nano, read_amount
from deltahist.decode import Moments, interval
from deltahist.errors import InputError, as_printed, finite, positive
from deltahist.mechanisms.base import scale_noise
from deltahist.noise.exact import Words, source
from deltahist.noise.quantiles import draw_costed, moves_that_matter
from deltahist.personal.query import Expression, Query, list_values
from deltahist.privacy import Law
from deltahist.publishers.publication import draw

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.personal.place import Place

#: Probability of the intervals.
LEVEL = 0.95
#: Steps of a value: sums over any number of records stay within 64 bits.
_MOST_STEPS = 10**9
#: Steps between the bounds of a value, if no resolution is given.
_STEPS = 10**6
#: The column that says which value of a histogram a record has.
_CELL = "_cell"
#: Denominators of quantiles: costs stay within 64 bits.
_FINEST = 10**6
#: Costs of places that are told apart: as many powers take some 20 seconds and a gigabyte, whatever the records are.
_MOST_COSTS = 1 << 22

#: Fetched values (n,) by name.
Columns: TypeAlias = Mapping[str, NDArray[Any]]


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
    """An answer for each of several values, in the order in which they were asked for."""

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

        index = pd.Index(self.values, name="value")
        return pd.DataFrame(list(map(vars, self.answers)), index)[["estimate", "std_error", "low", "high"]]

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


@dataclass(frozen=True, kw_only=True)
class Aggregate(ABC):
    """A question about derived records, each of which costs ε or ρ; a float stands for the decimal that it prints as.

    Raises InputError unless one of both is given, above zero and at most 10^9.
    """

    epsilon: float | Fraction | None = None
    rho: float | Fraction | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "rho"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, read_amount(**{name: positive(**{name: given})}))
        Budget(self.epsilon, self.rho)

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def amount(self) -> Fraction:
        """ε or ρ of one derived record."""
        return Fraction(getattr(self, self.unit))

    def cost(self, radii: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the billionths that one derived record costs, for each radius (c,) of persons; NaN is none."""
        return np.full(len(radii), ceil_nano(**{self.unit: self.amount}), dtype=np.int64)

    def keeps_radii(self, query: Query, values: Iterable[Expression]) -> bool:
        """Return whether people with a radius of their own, of whom only places are hidden, may take part.

        They may if nothing that is asked of the records depends on place (docs/privacy/personal.md, section 5).
        """
        return not query.by_place and not any(map(query.depends_on_place, values))

    def check_place(self, query: Query, place: Place) -> None:
        """Raise InputError if places are read otherwise than people's radii are measured."""
        return

    @abstractmethod
    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        """Return the derived records that are used, and the values to fetch of them, by name."""

    def read(self, columns: Columns) -> tuple[Columns, NDArray[np.bool_] | None]:
        """Return fetched values in the form that is measured, and which records have them; None if all have."""
        return columns, None

    @abstractmethod
    def answer(self, columns: Columns, number: int) -> Any:
        """Measure the values of a number of records that are paid for, exactly, and draw the noise."""

    def describe(self) -> dict[str, Any]:
        """Describe the aggregate as JSON; of the same values, the same description is the same question."""
        return {"question": type(self).__name__.removesuffix("Aggregate").lower(), self.unit: str(self.amount)}

    def to_json(self, answer: Any) -> dict[str, Any]:
        """Describe an answer as JSON, for a ledger to keep."""
        return dict(answer.to_json())

    def from_json(self, kept: dict[str, Any]) -> Any:
        """Return the answer that `to_json` described."""
        return Answer.from_json(kept)


@dataclass(frozen=True, kw_only=True)
class Measured(Aggregate):
    """An aggregate whose answer follows from whole numbers with noise of one law."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # A budget that is too small is refused before anything is fetched.
        self.law  # noqa: B018

    @property
    def law(self) -> Law:
        """The law of the noise that each measured number gets."""
        return scale_noise(Budget(self.epsilon, self.rho), Fraction(self.sensitivity))

    def answer(self, columns: Columns, number: int) -> Any:
        measured = self.measure(columns, number)
        return self.decode(measured + draw(self.law, len(measured), None))

    @property
    def sensitivity(self) -> int:
        """The most that one derived record changes the measured numbers, in the 1-norm for ε, the 2-norm for ρ."""
        return 1

    @abstractmethod
    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        """Return the whole numbers that get noise."""

    @abstractmethod
    def decode(self, noisy: NDArray[np.int64]) -> Any:
        """Return the answer that follows from the numbers with noise."""

    def _decode_one(self, what: str, noisy: int, step: Fraction = Fraction(1)) -> Answer:
        """Return the answer of one number of steps with one draw of noise."""
        error, down, up = _reach(self.law)
        estimate, low, high = (float(place * step) for place in (noisy, noisy - down, noisy + up))
        return Answer(what, estimate, error * float(step), low, high, self.unit, self.amount)


@dataclass(frozen=True, kw_only=True)
class Count(Measured):
    """The number of records, with noise of scale 1/ε: one of PINQ's primitives (ProPer, PINQ).

    >>> Count(epsilon=0.1).law
    Laplace(parameter=Fraction(10, 1))
    """

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        return query, {}

    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        return np.array([number])

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        return self._decode_one("number of records", int(noisy[0]))


@dataclass(frozen=True)
class Histogram(Measured):
    """The number of records with each of some public values of a column; others are not used, nor paid for.

    >>> Histogram("kind", ("bus", "tram"), epsilon=1).describe()["values"]
    ['bus', 'tram']
    """

    column: str
    values: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(list_values(self.values)))
        super().__post_init__()

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        import pandas as pd

        public = pd.DataFrame({self.column: list(self.values), _CELL: np.arange(len(self.values))})
        return query.select(self.column).join(public, self.column), {_CELL: _CELL}

    def measure(self, columns: Columns, number: int) -> NDArray[np.int64]:
        return np.bincount(columns[_CELL].astype(np.int64), minlength=len(self.values))

    def decode(self, noisy: NDArray[np.int64]) -> Answers:
        whats = (f"number of records with {self.column} {value}" for value in self.values)
        answers = (self._decode_one(what, int(number)) for what, number in zip(whats, noisy, strict=True))
        return Answers(tuple(self.values), tuple(answers))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"values": [str(value) for value in self.values]}

    def from_json(self, kept: dict[str, Any]) -> Answers:
        return Answers(tuple(self.values), tuple(map(Answer.from_json, kept["answers"])))


@dataclass(frozen=True)
class ValueAggregate(Aggregate):
    """An aggregate of a clipped value of each record; records without it (NULL) are not used, nor paid for.

    Parameters
    ----------
    column : the value, a text or a function of an Ibis table.
    clip : the least and the greatest value that counts, public; others count as the nearer of both.
    resolution : values are rounded to multiples of it, public, at most 10^9 of them; a power of ten that is at most a
        millionth of the largest value (of the range, for a mean) when None.
    """

    column: Expression
    clip: tuple[float, float] | None = None
    resolution: float | Fraction | None = None

    @functools.cached_property
    def bounds(self) -> tuple[Fraction, Fraction]:
        """The clip range, exactly."""
        if self.clip is None:
            raise InputError(
                "clip is missing: say between which values the column is clipped, clip=(low, high), from public "
                "knowledge and not from the data; one record may change a sum by that much"
            )
        try:
            low, high = (as_printed(finite(clip=bound)) for bound in self.clip)
        except (TypeError, ValueError):
            raise InputError(f"clip is {self.clip!r}: it must be (low, high), two finite numbers") from None
        if low >= high:
            raise InputError(f"clip is {self.clip!r}: the first must be less than the second")
        return low, high

    @functools.cached_property
    def step(self) -> Fraction:
        """The resolution, exactly."""
        low, high = self.bounds
        step = _round_to_ten(self.change / _STEPS)
        if self.resolution is not None:
            step = as_printed(positive(resolution=self.resolution))
        if not self.change / _MOST_STEPS <= step <= high - low:
            raise InputError(
                f"resolution is {float(step):g} for values from {float(low):g} to {float(high):g}: it must be at most "
                f"{float(high - low):g}, and at least {float(self.change / _MOST_STEPS):g}"
            )
        return step

    @property
    def change(self) -> Fraction:
        """The most that one record changes, in units of the value."""
        low, high = self.bounds
        return high - low

    @property
    def sensitivity(self) -> int:
        """The most that one record changes, in steps."""
        return round(self.change / self.step)

    @property
    def label(self) -> str:
        """The value, in words."""
        return self.column if isinstance(self.column, str) else "an expression"

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        made = query.select(value=self.column)
        if made.columns["value"] not in ("number", "whole"):
            raise InputError(
                f"column {self.label!r} is of the kind {made.columns['value']!r}: it must hold numbers; count its "
                "values"
            )
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
class Sum(ValueAggregate, Measured):
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
        return self._decode_one(f"sum of {self.label}", int(noisy[0]), self.step)


@dataclass(frozen=True)
class Mean(ValueAggregate, Measured):
    """The mean of a value.

    Measured are two sums, of the distances to the lower and to the upper bound. One record changes both together by
    the range, whatever its value is (and by no more in Euclidean length). Their total is the range times the number of
    records, so that both get the whole budget: a sum and a count with half of it each would have twice the variance.

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
            f"mean of {self.label}",
            *(low + width * share, width * error, low + width * least, low + width * most),
            *(self.unit, self.amount),
        )


@dataclass(frozen=True)
class QuantileAggregate(ValueAggregate):
    """A quantile of a value: of the places between its bounds, those with fewer records amiss are likelier.

    Neither the values nor their number are known. In ρ it costs ε²/2. Unlike quantiles of points that move
    (`deltahist.kinds.quantile`), one value more or less is hidden here. Proof: docs/privacy/personal.md, section 4.

    It is q from 0 to 1, of at most six decimals; 0.5 is the median. A budget too small to draw with is refused.

    >>> QuantileAggregate("fare", clip=(0, 50), q=0.9, epsilon=0.5).places
    5000001
    """

    q: float | Fraction = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        share = as_printed(finite(q=self.q))
        if not 0 <= share <= 1 or share.denominator > _FINEST:
            raise InputError(f"q is {self.q!r}: it must be a number from 0 to 1 of at most six decimals")
        object.__setattr__(self, "q", share)
        if not self.pure or moves_that_matter(self.places, decay_rate(share, self.pure)) > _MOST_COSTS:
            raise InputError(
                f"{self.unit} is {float(self.amount):g} for q = {float(share):g}: to draw that exactly would take too "
                f"long; take more {self.unit}, or a q of fewer decimals"
            )

    @property
    def places(self) -> int:
        """Places on the line between the bounds."""
        return self.sensitivity + 1

    @property
    def pure(self) -> Fraction:
        """ε by which places are drawn: at most what ρ = ε²/2 allows."""
        if self.unit == "epsilon":
            return self.amount
        digits = 10**12
        return Fraction(math.isqrt(int(2 * self.amount * digits * digits)), digits)

    def answer(self, columns: Columns, number: int) -> QuantileAnswer:
        share, (low, _) = Fraction(self.q), self.bounds
        place = draw_quantile(self.steps(columns, low), self.places, share, self.pure, source(None))
        name = "median" if share == Fraction(1, 2) else f"{float(share):g}-quantile"
        amiss = bound_amiss(self.places, share, self.pure, 1 - LEVEL)
        return QuantileAnswer(f"{name} of {self.label}", float(low + place * self.step), amiss, self.unit, self.amount)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"q": str(self.q)}

    def from_json(self, kept: dict[str, Any]) -> QuantileAnswer:
        return QuantileAnswer.from_json(kept)


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

    Without noise neither a nor b is negative. Fieller's interval: all shares s for which (1 − s) a − s b, which is 0 at
    the true one, is no larger than its noise may be. If these shares are not connected, the interval holds all between
    them too. Sums of Laplace noise have no heavier tails than a single draw.
    """
    total, variance = above + below, law.variance()
    reach = law.reach(LEVEL)
    share = min(max(above / total, 0.0), 1.0) if total > 0 else 0.5
    off = math.sqrt(variance * (share**2 + (1 - share) ** 2))
    error = min(off / total, 1.0) if total > 0 else 1.0
    # (total² − 2 v) s² − 2 (above total − v) s + above² − v ≤ 0
    v = reach * reach * variance
    square, linear, constant = total * total - 2 * v, above * total - v, above * above - v
    possible = [s for s in (0.0, 1.0) if (square * s - 2 * linear) * s + constant <= 0]
    inner = linear * linear - square * constant
    if inner >= 0 and square:
        roots = ((linear + sign * math.sqrt(inner)) / square for sign in (-1, 1))
        possible += [root for root in roots if 0 <= root <= 1]
    possible.append(share)
    return share, error, min(possible), max(possible)


def largest_change(q: Fraction) -> int:
    """Return s: how much the cost of a place changes at most with one value more.

    >>> largest_change(Fraction(1, 2)), largest_change(Fraction(19, 20))
    (1, 19)
    """
    return max(q.numerator, q.denominator - q.numerator)


def decay_rate(q: Fraction, epsilon: Fraction) -> Fraction:
    """Return λ = ε/(2s): how fast the logarithm of a place's probability falls with its cost."""
    return epsilon / (2 * largest_change(q))


def stretches(
    values: NDArray[np.int64], places: int, q: Fraction
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return stretches of places 0, …, places − 1 of equal cost: where each begins, its length, its cost.

    With q = a/b the cost of z is max(0, b·#{x < z} − a n, a n − b·#{x ≤ z}): 0 where z is a q-quantile of the values.

    >>> [part.tolist() for part in stretches(np.array([2, 2, 5]), 8, Fraction(1, 2))]
    [[0, 2, 3, 5, 6], [2, 1, 2, 1, 2], [3, 0, 1, 1, 3]]
    """
    there, number = np.unique(values, return_counts=True)
    upto = np.concatenate([[0], np.cumsum(number)])
    most, share = q.denominator, q.numerator * len(values)
    # Between two values, and before and after all of them; then at each of the values.
    starts = np.concatenate([[0], there + 1, there])
    widths = np.concatenate([np.diff(np.concatenate([[-1], there, [places]])) - 1, np.ones_like(there)])
    below, least = np.concatenate([upto, upto[:-1]]), np.concatenate([upto, upto[1:]])
    costs = np.maximum(0, np.maximum(most * below - share, share - most * least))
    order = np.lexsort((widths, starts))
    order = order[widths[order] > 0]
    return starts[order], widths[order], costs[order]


def draw_quantile(values: NDArray[np.int64], places: int, q: Fraction, epsilon: Fraction, words: Words) -> int:
    """Draw a place z with P(z) ∝ e^(−ε cost / (2s)), exactly: ε-private for one value more or less.

    Private values (n,) are places themselves, on a public line of some places; there may be none.
    """
    starts, widths, costs = stretches(values, places, q)
    stretch, place = draw_costed(costs, widths, decay_rate(q, epsilon), words)
    return int(starts[stretch]) + place


def bound_amiss(places: int, q: Fraction, epsilon: Fraction, probability: float = 0.05) -> int:
    """Bound the number of values on the wrong side of the drawn place, but for a probability; public.

    Places that cost more than c have at most `places` · e^(−ε c / (2s)) of the probability, since some place costs
    nothing.

    >>> bound_amiss(1001, Fraction(1, 2), Fraction(1, 10))
    100
    """
    cost = math.log(places / probability) / float(decay_rate(q, epsilon))
    return math.ceil(cost / q.denominator)
