"""What can be asked of derived records: each question says what it fetches, what it costs, measures and draws.

A question is private for adding or removing one derived record: who has k of them pays k times its ε, or k² times its
ρ (`deltahist.personal.asking`).
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import scipy.special
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.budgets.nano import as_said, charged
from deltahist.decode import interval
from deltahist.decode.moments import Moments
from deltahist.errors import InputError, as_printed, finite, positive
from deltahist.personal.answers import LEVEL, Answer, Answers
from deltahist.personal.query import Expression, Query
from deltahist.privacy import Law
from deltahist.publishers.histogram import draw

#: Steps of a value: sums over any number of records stay within 64 bits.
_MOST_STEPS = 10**9
#: Steps between the bounds of a value, if nothing else is said.
_STEPS = 10**6
#: Noise of a larger scale may overflow.
_MOST_SCALE = 1 << 50
#: Which of the values of a histogram a record has.
_CELL = "_cell"


class Given(Protocol):
    """An answer."""

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description, of which `Terminal.again` makes the answer."""


_Given = TypeVar("_Given", bound=Given)


class Used(Protocol):
    """The derived records of those who pay; private."""

    number: int

    def column(self, name: str) -> NDArray[Any]:
        """A fetched value of each of them."""


@dataclass(frozen=True, kw_only=True)
class Terminal(ABC, Generic[_Given]):
    """A question.

    Parameters
    ----------
    epsilon, rho : what one derived record costs, one of them; a float stands for the decimal that it prints as.

    Raises
    ------
    InputError
        Unless one of both is given, above zero and at most 10^9.
    """

    epsilon: float | Fraction | None = None
    rho: float | Fraction | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "rho"):
            said = getattr(self, name)
            if said is not None:
                object.__setattr__(self, name, as_said(**{name: positive(**{name: said})}))
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
        """Billionths that one derived record costs a person, for each radius (c,) that persons have; NaN is none."""
        return np.full(len(radii), charged(**{self.unit: self.amount}), dtype=np.int64)

    def keeps_radii(self, query: Query, values: Iterable[Expression]) -> bool:
        """Whether people with a radius of their own, of whom only places are hidden, may take part: if nothing that is
        asked of these records depends on place (docs/privacy/personal.md, section 5)."""
        return not query.by_place and not any(map(query.depends_on_place, values))

    def read(
        self, columns: Mapping[str, NDArray[Any]]
    ) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.bool_] | None]:
        """Values that were fetched as they are measured, and which records have them; None if all have."""
        return columns, None

    @abstractmethod
    def answer(self, used: Used) -> _Given:
        """What is handed out: measured exactly, with exact noise. The noise is drawn here."""

    @abstractmethod
    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        """The derived records that it is about, and the values of them that it needs, by name."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """A JSON-ready description; two questions with one description are the same, if they are asked of the same
        values."""

    @abstractmethod
    def again(self, kept: dict[str, Any]) -> _Given:
        """The answer of which `to_json` was kept."""

    def _described(self, **more: Any) -> dict[str, Any]:
        return {"question": type(self).__name__.lower(), self.unit: str(self.amount), **more}


@dataclass(frozen=True, kw_only=True)
class Measured(Terminal[_Given]):
    """A question whose answer follows from whole numbers with noise of one law."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Whatever is wrong with it is said before anything is fetched.
        self.law  # noqa: B018

    @property
    def law(self) -> Law:
        """Of the noise that each measured number gets."""
        if self.unit == "epsilon":
            law = Law("laplace", Fraction(self.sensitivity) / self.amount)
        else:
            law = Law("gaussian", Fraction(self.sensitivity) ** 2 / (2 * self.amount))
        if law.parameter > (_MOST_SCALE if law.kind == "laplace" else _MOST_SCALE**2):
            raise InputError(
                f"{self.unit} is {float(self.amount):g} where one record changes {self.sensitivity:,} steps: noise "
                "would overflow; take a larger budget or a coarser resolution"
            )
        return law

    def answer(self, used: Used) -> _Given:
        """What is handed out: measured exactly, with exact noise. The noise is drawn here."""
        measured = self.measure(used)
        return self.told(measured + draw(self.law, len(measured), None))

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """How much one derived record changes the measured numbers: in all for ε, in Euclidean length for ρ."""

    @abstractmethod
    def measure(self, used: Used) -> NDArray[np.int64]:
        """What gets noise, as whole numbers."""

    @abstractmethod
    def told(self, noisy: NDArray[np.int64]) -> _Given:
        """The answer that follows from the numbers with noise."""

    def _one(self, what: str, noisy: int, step: Fraction = Fraction(1)) -> Answer:
        """The answer of one number of steps with one draw of noise."""
        error, down, up = _reach(self.law)
        estimate, low, high = (float(place * step) for place in (noisy, noisy - down, noisy + up))
        return Answer(what, estimate, error * float(step), low, high, self.unit, self.amount)


@dataclass(frozen=True, kw_only=True)
class OneNumber(Measured[Answer]):
    """A question whose answer is one number."""

    def again(self, kept: dict[str, Any]) -> Answer:
        return Answer.from_json(kept)


@dataclass(frozen=True, kw_only=True)
class Count(OneNumber):
    """The number of records.

    >>> Count(epsilon=0.1).law
    Law(kind='laplace', parameter=Fraction(10, 1))
    """

    @property
    def sensitivity(self) -> int:
        return 1

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        return query, {}

    def measure(self, used: Used) -> NDArray[np.int64]:
        return np.array([used.number])

    def told(self, noisy: NDArray[np.int64]) -> Answer:
        return self._one("number of records", int(noisy[0]))

    def describe(self) -> dict[str, Any]:
        return self._described()


@dataclass(frozen=True)
class OfValues(Terminal[_Given]):
    """A question on a value of each record, which is clipped; records without it (NULL) are not asked, nor paid for.

    Parameters
    ----------
    column : the value, a text or a function of an Ibis table.
    clip : the least and the greatest value that counts, public; others count as the nearer of both.
    resolution : values are rounded to multiples of it, public; a power of ten that is at most a millionth of the
        largest value (of the range, for a mean) when None.

    Raises
    ------
    InputError
        On a clip range that is missing, or no range; on a resolution that is not above zero, or beyond 10^9 steps.
    """

    column: Expression
    clip: tuple[float, float] | None = None
    resolution: float | Fraction | None = None
    step: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        low, high = self.bounds()
        size = self._size(low, high)
        if self.resolution is None:
            step = _power_of_ten(size / _STEPS)
        else:
            step = as_printed(positive(resolution=self.resolution))
        if not size / _MOST_STEPS <= step <= high - low:
            raise InputError(
                f"resolution is {float(step):g} for values from {float(low):g} to {float(high):g}: it must be at most "
                f"{float(high - low):g}, and at least {float(size / _MOST_STEPS):g}"
            )
        object.__setattr__(self, "step", step)
        super().__post_init__()

    def bounds(self) -> tuple[Fraction, Fraction]:
        """The clip range, exactly."""
        if self.clip is None:
            raise InputError(
                "clip is missing: say between which values the column is clipped, clip=(low, high), from public "
                "knowledge and not from the data; one record may change a sum by that much"
            )
        try:
            low, high = self.clip
        except (TypeError, ValueError):
            raise InputError(f"clip is {self.clip!r}: it must be (low, high)") from None
        least, most = (as_printed(finite(clip=bound)) for bound in (low, high))
        if least >= most:
            raise InputError(f"clip is {self.clip!r}: the first must be less than the second")
        return least, most

    @abstractmethod
    def _size(self, low: Fraction, high: Fraction) -> Fraction:
        """What one record may change."""

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        made = query.select(value=self.column)
        if made.columns["value"] not in ("number", "whole"):
            raise InputError(
                f"column {self.what!r} is of the kind {made.columns['value']!r}: it must hold numbers; count its values"
            )
        return made.where("value is not null"), {"value": "value"}

    @property
    def what(self) -> str:
        """The value, in words."""
        return self.column if isinstance(self.column, str) else "an expression"

    def describe(self) -> dict[str, Any]:
        return self._described(clip=[str(bound) for bound in self.bounds()], resolution=str(self.step))


    def steps(self, used: Used, origin: Fraction) -> NDArray[np.int64]:
        """Values as whole steps from an origin, clipped."""
        low, high = self.bounds()
        values = np.clip(used.column("value").astype(np.float64), float(low), float(high))
        steps = np.rint((values - float(origin)) / float(self.step)).astype(np.int64)
        # Rounding may put a value a step beyond its bound.
        return np.clip(steps, round((low - origin) / self.step), round((high - origin) / self.step))


@dataclass(frozen=True)
class Sum(OfValues[Answer], OneNumber):
    """The sum of a value.

    >>> Sum("fare", clip=(0, 50), epsilon=0.5).law
    Law(kind='laplace', parameter=Fraction(10000000, 1))
    """

    def _size(self, low: Fraction, high: Fraction) -> Fraction:
        return max(abs(low), abs(high))

    @property
    def sensitivity(self) -> int:
        return max(abs(round(bound / self.step)) for bound in self.bounds())

    def measure(self, used: Used) -> NDArray[np.int64]:
        return self.steps(used, Fraction(0)).sum(keepdims=True)

    def told(self, noisy: NDArray[np.int64]) -> Answer:
        return self._one(f"sum of {self.what}", int(noisy[0]), self.step)


@dataclass(frozen=True)
class Mean(OfValues[Answer], OneNumber):
    """The mean of a value.

    Measured are two sums, of the distances to the lower and to the upper bound: one record changes both together by
    the range, whatever its value is (and by no more in Euclidean length). Their total is the range times the number of
    records, so that both get the whole budget: a sum and a count with half of it each would have twice the variance.

    >>> Mean("fare", clip=(0, 50), epsilon=0.5).sensitivity
    5000000
    """

    def _size(self, low: Fraction, high: Fraction) -> Fraction:
        return high - low

    @property
    def sensitivity(self) -> int:
        low, high = self.bounds()
        return round((high - low) / self.step)

    def measure(self, used: Used) -> NDArray[np.int64]:
        above = self.steps(used, self.bounds()[0])
        return np.array([above.sum(), len(above) * self.sensitivity - above.sum()])

    def told(self, noisy: NDArray[np.int64]) -> Answer:
        low, high = (float(bound) for bound in self.bounds())
        share, error, least, most = _ratio(float(noisy[0]), float(noisy[1]), self.law)
        width = high - low
        return Answer(
            f"mean of {self.what}",
            *(low + width * share, width * error, low + width * least, low + width * most),
            *(self.unit, self.amount),
        )


@dataclass(frozen=True)
class Histogram(Measured[Answers]):
    """The number of records with each of some values; records with other values are not asked, nor paid for.

    Parameters
    ----------
    column : of the query. values : public, all different.

    >>> Histogram("kind", ("bus", "tram"), epsilon=1).describe()["values"]
    ['bus', 'tram']
    """

    column: str
    values: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not len(self.values):
            raise InputError(
                f"values are {self.values!r}: list those that are to be counted, from public knowledge"
            )
        listed = tuple(self.values)
        if any(value is None or value != value for value in listed) or len(set(listed)) < len(listed):
            raise InputError(f"values are {self.values!r}: none may be missing, and each must be there once")
        object.__setattr__(self, "values", listed)
        super().__post_init__()

    @property
    def sensitivity(self) -> int:
        return 1

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        import pandas as pd

        public = pd.DataFrame({self.column: list(self.values), _CELL: np.arange(len(self.values))})
        return query.select(self.column).join(public, self.column), {_CELL: _CELL}

    def measure(self, used: Used) -> NDArray[np.int64]:
        return np.bincount(used.column(_CELL).astype(np.int64), minlength=len(self.values))

    def told(self, noisy: NDArray[np.int64]) -> Answers:
        whats = (f"number of records with {self.column} {value}" for value in self.values)
        answers = (self._one(what, int(number)) for what, number in zip(whats, noisy, strict=True))
        return Answers(tuple(self.values), tuple(answers))

    def describe(self) -> dict[str, Any]:
        return self._described(values=[str(value) for value in self.values])

    def again(self, kept: dict[str, Any]) -> Answers:
        return Answers(tuple(self.values), tuple(Answer.from_json(each) for each in kept["answers"]))


@functools.lru_cache(maxsize=64)
def _reach(law: Law) -> tuple[float, Fraction, Fraction]:
    """Standard deviation of one draw, and how far below it and above it the interval goes."""
    variance = law.variance()
    moments = Moments(np.array([variance]), np.array([law.kurtosis()]), draws=np.ones(1))
    down, up = (Fraction(reach[0]) for reach in interval(moments, law, LEVEL))
    return math.sqrt(variance), down, up


def _power_of_ten(most: Fraction) -> Fraction:
    """The largest power of ten that is at most so much."""
    power = Fraction(10) ** math.floor(math.log10(most))
    return power / 10 if power > most else power * 10 if power * 10 <= most else power


def _ratio(above: float, below: float, law: Law) -> tuple[float, float, float, float]:
    """Estimate, standard error and interval of a / (a + b), from a and b that are not negative, with equal noise.

    Fieller's interval: all shares s for which (1 − s) a − s b, which is 0 at the true one, is no larger than its noise
    may be; of what is not connected, all that lies between. Sums of Laplace noise have no heavier tails than a single
    draw.
    """
    total, variance = above + below, law.variance()
    reach = (
        math.log(1 / (1 - LEVEL)) / math.sqrt(2)
        if law.kind == "laplace"
        else scipy.special.ndtri((1 + LEVEL) / 2)
    )
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
