"""Quantiles of values that come and go: places on a public line, the likelier the fewer values lie amiss.

Unlike the quantiles of `publishers`, whose values move while their number is public, here one value more or less is to
be hidden, and the number of values with it. Proof: docs/privacy/personal.md, section 4.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.noise.entropy import Words
from deltahist.noise.places import draw_costed


def share_of(q: Fraction) -> int:
    """s: by how much the cost of a place changes at most with one value more.

    >>> share_of(Fraction(1, 2)), share_of(Fraction(19, 20))
    (1, 19)
    """
    return max(q.numerator, q.denominator - q.numerator)


def rate_of(q: Fraction, epsilon: Fraction) -> Fraction:
    """λ = ε/(2s): by how much the logarithm of a place's probability falls with its cost."""
    return epsilon / (2 * share_of(q))


def stretches(
    values: NDArray[np.int64], places: int, q: Fraction
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Stretches of places 0, …, places − 1 that cost the same: where each begins, how long it is, what it costs.

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
    """A place z with P(z) ∝ e^(−ε cost / (2s)), exactly: ε-private for one value more or less.

    Parameters
    ----------
    values : (n,) places of the values, private; there may be none. places : of the line, public.
    q : which quantile. epsilon : ε. words : random words.

    >>> from deltahist.noise.entropy import source
    >>> values = np.repeat([3, 8, 9], 200)
    >>> [draw_quantile(values, 12, Fraction(1, 2), Fraction(1), source(np.random.default_rng(i))) for i in range(4)]
    [8, 8, 8, 8]
    """
    starts, widths, costs = stretches(values, places, q)
    stretch, place = draw_costed(costs, widths, rate_of(q, epsilon), words)
    return int(starts[stretch]) + place


def ranks_amiss(places: int, q: Fraction, epsilon: Fraction, probability: float = 0.05) -> int:
    """So many values at most lie on the wrong side of what is drawn, but for a probability; public.

    Places that cost more than c have at most `places` · e^(−ε c / (2s)) of the probability, since some place costs
    nothing.

    >>> ranks_amiss(1001, Fraction(1, 2), Fraction(1, 10))
    100
    """
    cost = math.log(places / probability) / float(rate_of(q, epsilon))
    return math.ceil(cost / q.denominator)
