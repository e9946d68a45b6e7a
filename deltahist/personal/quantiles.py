"""Quantiles of people's values: places on a public line, the likelier the fewer values lie on the wrong side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, as_printed, finite
from deltahist.noise.exact import Words, source
from deltahist.noise.quantiles import draw_costed, moves_that_matter
from deltahist.personal.aggregates import LEVEL, Columns, QuantileAnswer, ValueAggregate

#: Denominators of quantiles: costs stay within 64 bits.
_FINEST = 10**6
#: Costs of places that are told apart: as many powers take some 20 seconds and a gigabyte, whatever the records are.
_MOST_COSTS = 1 << 22


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
