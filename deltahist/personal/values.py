"""Questions on a value of each record: sums and means of what is clipped to a public range."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError, as_printed, finite, positive
from deltahist.personal.answers import LEVEL, Answer
from deltahist.personal.query import Expression, Query
from deltahist.personal.terminals import Given, OneNumber, Terminal, Used
from deltahist.privacy import Law

#: Steps of a value: sums over any number of records stay within 64 bits.
_MOST_STEPS = 10**9
#: Steps between the bounds of a value, if nothing else is said.
_STEPS = 10**6

_Given = TypeVar("_Given", bound=Given)


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
