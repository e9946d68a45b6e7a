"""Medians and other quantiles of points on a line: smooth sensitivity, and places drawn by the moves they need."""

from __future__ import annotations

import bisect
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.counts.private import how_made
from deltahist.errors import InputError, positive, whole
from deltahist.mechanisms import QuantileMechanism
from deltahist.mechanisms.quantile import check_quantile, rank_of
from deltahist.mechanisms.smooth import FLOOR, SIGMA, Smooth
from deltahist.mechanisms.sorted import check_all_there
from deltahist.neighbourhood import Neighbourhood
from deltahist.noise.entropy import Words, source
from deltahist.noise.exact import exp_bounds
from deltahist.noise.heavy import rounded
from deltahist.publishers.histogram import draw
from deltahist.releases import Quantile

#: Points on each side of the quantile that are looked at first.
_NEAR = 4096
#: Bits of the fixed-point weights of places at first, and what their tail may weigh: 2 to the minus this.
_BITS = 192
_TAIL = 80


def publish_quantile(
    points: ArrayLike,
    q: float,
    near: Neighbourhood,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    probability: float | None = None,
    method: str = "auto",
    contributions: int | None = None,
    rng: np.random.Generator | None = None,
) -> Quantile:
    """Publish a quantile of points on a line under δ-neighbourhood.

    Source: 2014, section 5.5.2, with the noises of Bun and Steinke 2019 and places drawn by the number of moves
    within δ that would make them the quantile (docs/quantiles.md). Proofs: docs/privacy/quantiles.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Those outside the domain are clamped to it.
    q : which quantile: the ⌈q n⌉-th smallest point; 0.5 is the median.
    near : the neighbourhood, one dimension, fixed membership.
    epsilon : pure ε; or
    rho : ρ-zCDP.
    probability : with epsilon, a failure probability that is allowed: more noises are then considered.
    method : "auto" takes the least expected error for evenly spread points (`quantile_methods`), or one of

        - "inverse": a place is drawn with probability ∝ e^(−ε/2 · moves), where `moves` is how many moves within
          δ it takes to make it the quantile; "exponential": the same for moves of any length (the baseline);
        - "global": integer noise of scale δ/ε;
        - "smooth-student" (pure ε), "smooth-laplace" (ε and probability), "smooth-lognormal" (ρ, or ε and
          probability): noise in proportion to the smooth sensitivity.
    contributions : points of one user that may move at once; what the points know (`points_file`), or 1, when None.
    rng : a seeded generator, for experiments only: the result is stamped not for publication.

    Returns
    -------
    Quantile, with the value on the public lattice; the scale of the noise is not in it.

    Raises
    ------
    InputError
        On no points or points that are no finite numbers, a q outside 0 to 1, two dimensions, membership that is
        not fixed, or a method that does not go with the budget.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> found.method, abs(found.value - 50) < 10
    ('inverse', True)
    """
    check_quantile(q, near)
    counting = how_made(points, near.domain, contributions)
    check_all_there(counting)
    steps = _steps(points, near)
    mechanism = QuantileMechanism(near, q, len(steps), Budget(epsilon, rho, probability), method, counting)
    words = source(rng)
    window = _Window(steps, mechanism.rank, near)
    if mechanism.smooth is not None:
        step = _smooth(window, mechanism.smooth, counting.contributions, words)
    elif mechanism.laws:
        step = window.centre + int(draw(mechanism.laws[0], 1, rng)[0])
    else:
        step = _place(window, mechanism.reach, mechanism.rate, mechanism.steps, words)
    value = np.array([min(max(step, 0), mechanism.steps - 1)], dtype=np.int64)
    return Quantile(mechanism, value, publishable=rng is None)


def smooth_sensitivity(
    points: ArrayLike, q: float, near: Neighbourhood, *, beta: float, contributions: int = 1
) -> float:
    """Smooth sensitivity of a quantile under δ-neighbourhood, exactly: max over t of e^(−βt) min(δ, A(t)).

    A(t) is the longest stretch around the quantile that t moves can clear, max over s of
    x_(r+s) − x_(r+s−t−1). No move takes the quantile further than δ (docs/quantiles.md). It tells about the data:
    never publish it.

    Source: Nissim, Raskhodnikova and Smith 2007; 2014, section 5.5.2.

    Parameters
    ----------
    points : (n,) coordinates in the domain's units, sorted or not; private.
    q : which quantile. near : the neighbourhood, one dimension, fixed membership.
    beta : β > 0, by how much the logarithm may change between neighbours.
    contributions : points of one user that may move at once.

    Returns
    -------
    float, in the domain's units.

    Raises
    ------
    InputError
        As `quantile` does, and if beta is not above zero.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=10)
    >>> round(smooth_sensitivity([10, 20, 21, 22, 90], 0.5, near, beta=0.5), 3)
    6.065
    """
    check_quantile(q, near)
    positive(beta=beta)
    steps = _steps(points, near)
    window = _Window(steps, rank_of(q, len(steps)), near)
    return window.smooth(float(beta), whole(contributions=contributions)) * near.domain.step[0]


def _steps(points: ArrayLike, near: Neighbourhood) -> NDArray[np.int64]:
    array = np.asarray(points)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise InputError(f"points have shape {array.shape} and type {array.dtype}: they must be (n,) numbers")
    if not len(array):
        raise InputError("there are no points: they have no quantiles")
    return near.domain.lattice(array)[:, 0]


class _Window:
    """Sorted lattice steps around one rank, fetched from unsorted points as far as they are needed."""

    def __init__(self, steps: NDArray[np.int64], rank: int, near: Neighbourhood) -> None:
        self._steps, self._rank, self._near = steps, rank, near
        self._last = near.domain.size * near.domain.steps[0] - 1
        self._half = 0
        self.fetch(_NEAR)

    def fetch(self, half: int) -> None:
        """Have at least `half` points on either side, or all; beyond them lie the ends of the domain."""
        if half <= self._half:
            return
        half = min(max(half, 4 * self._half), len(self._steps) + 1)
        first, last = max(0, self._rank - 1 - half), min(len(self._steps) - 1, self._rank - 1 + half)
        if last - first + 1 < len(self._steps):
            self._steps.partition(sorted({first, last}))
        part = np.sort(self._steps[first : last + 1])
        below, above = half - (self._rank - 1 - first), half - (last - self._rank + 1)
        self._around = np.concatenate([np.zeros(below, np.int64), part, np.full(above, self._last, np.int64)])
        self._half = half

    @property
    def centre(self) -> int:
        """The quantile itself."""
        return int(self._around[self._half])

    def above(self, number: int) -> NDArray[np.int64]:
        """Steps of the quantile and of the points above it, rising, at most `number` and no ends of the domain."""
        self.fetch(min(number, len(self._steps)))
        return self._around[self._half : self._half + min(number, len(self._steps) - self._rank + 1)]

    def below(self, number: int) -> NDArray[np.int64]:
        """Steps of the quantile and of the points below it, falling."""
        self.fetch(min(number, len(self._steps)))
        return self._around[self._half - min(number, self._rank) + 1 : self._half + 1][::-1]

    def longest(self, t: int, together: int) -> int:
        """min(δ, A(t)): stretches of (t + 1) K gaps that hold the quantile; without a move it must be at an end."""
        gaps = min((t + 1) * together, len(self._steps) + 1)
        self.fetch(gaps)
        stretch = (
            self._around[self._half : self._half + gaps + 1]
            - self._around[self._half - gaps : self._half + 1]
        )
        if t == 0:
            stretch = stretch[[0, -1]]
        return min(self._near.radius, int(stretch.max()))

    def smooth(self, beta: float, together: int) -> float:
        """max over t of e^(−βt) min(δ, A(t)), by branch and bound: A does not fall, so that between a and b no
        value exceeds e^(−β(a+1)) A(b).
        """
        best, limit = 0.0, -(-(len(self._steps) + 1) // together)
        known: dict[int, int] = {}

        def value(t: int) -> float:
            nonlocal best
            known[t] = self.longest(t, together)
            best = max(best, math.exp(-beta * t) * known[t])
            return best

        marks = [0]
        value(0)
        # Beyond the first t with a stretch of δ, and where even δ would not do, nothing can be gained.
        while known[marks[-1]] < self._near.radius and marks[-1] < limit:
            following = min(2 * marks[-1] + 1, limit)
            if math.exp(-beta * (marks[-1] + 1)) * self._near.radius <= best:
                break
            value(following)
            marks.append(following)
        todo = list(itertools.pairwise(marks))
        while todo:
            a, b = todo.pop()
            if b - a > 1 and math.exp(-beta * (a + 1)) * known[b] > best:
                middle = (a + b) // 2
                value(middle)
                todo += [(a, middle), (middle, b)]
        return best


def _smooth(window: _Window, noise: Smooth, together: int, words: Words) -> int:
    # Below the floor e^(−βt) would lose its digits, and at last be zero: a value without noise. The larger of a smooth
    # bound and a constant is one as well (docs/privacy/quantiles.md).
    scale = max(Fraction(window.smooth(noise.beta, together)), Fraction(FLOOR)) * noise.factor
    return rounded(noise.method.removeprefix("smooth-"), window.centre, scale, words, sigma=SIGMA)


def _place(window: _Window, reach: int, rate: Fraction, size: int, words: Words) -> int:
    """A lattice step drawn with probability ∝ e^(−rate · moves), exactly.

    Steps that take equally many moves form a stretch on either side, so that a number of moves is drawn first.
    Weights are fixed-point bounds; far stretches are not looked at unless the drawn real falls where they matter.
    """
    drawn, bits = 0, 0
    levels = max(8, math.ceil((math.log(size) + _TAIL * math.log(2)) / float(rate)))
    for attempt in range(64):
        above = _stretches(window.above(levels + 1), reach, levels, size - 1, 1)
        below = _stretches(-window.below(levels + 1), reach, levels, 0, -1)
        more = _BITS << attempt
        low, high = _weights(np.diff(above) + np.diff(below), rate, more)
        left = size - 1 - int(above[-1] - above[0]) - int(below[-1] - below[0])
        rest = left * exp_bounds(rate * (levels + 1), more)[1]
        while bits < more:
            drawn, bits = drawn << 64 | int(words.words(1)[0]), bits + 64
        # The real lies in [drawn, drawn + 1) / 2^bits; times the whole weight it falls into one stretch, or is open.
        whole_low, whole_high = low[-1], high[-1] + rest
        least, most = drawn * whole_low >> bits, ((drawn + 1) * whole_high >> bits) + 1
        level = bisect.bisect_right(high, least)
        if level < len(high) and most <= low[level] and (level == 0 or least >= high[level - 1]):
            if level == 0:
                return window.centre
            a, b = int(above[level] - above[level - 1]), int(below[level] - below[level - 1])
            pick = _below_number(a + b, words)
            return int(above[level - 1]) + 1 + pick if pick < a else -int(below[level - 1]) - 1 - (pick - a)
        levels *= 2
    raise AssertionError("a real number cannot stay undecided for so long")


def _stretches(points: NDArray[np.int64], reach: int, levels: int, end: int, sign: int) -> NDArray[np.int64]:
    """Ends e_0 ≤ e_1 ≤ ...: steps in (e_(l−1), e_l] take l moves; one side, mirrored if sign is −1.

    Passing a point, and every further δ beyond it, costs one more move: the l-th smallest of x_i + k δ, in turn.
    """
    last = end * sign
    low, high = int(points[0]), int(min(last, points[0] + levels * reach))

    def passed(place: int) -> int:
        near = points[points < place]
        return int((-(-(place - near) // reach)).sum())

    # The furthest place that takes at most `levels` moves.
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if passed(middle) <= levels else (low, middle - 1)
    inside = points[points < low] if low > points[0] else points[:0]
    number = -(-(low - inside) // reach)
    start = np.repeat(inside, number)
    turn = np.arange(len(start)) - np.repeat(np.cumsum(number) - number, number)
    ends = np.sort(start + turn * reach)
    # The l-th smallest mark ends the stretch of l − 1 moves; the last stretch ends where one more would be needed.
    ends = np.append(ends, low) if len(ends) else np.array([points[0]])
    return np.append(ends, np.full(levels + 1 - len(ends), ends[-1]))[: levels + 1]


def _weights(widths: NDArray[np.int64], rate: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Cumulative bounds of 1 + Σ_l widths[l − 1] e^(−rate l), in units of 2^−bits."""
    unit = exp_bounds(rate, bits + 32)
    low_power, high_power = 1 << (bits + 32), 1 << (bits + 32)
    low, high = [1 << bits], [1 << bits]
    for width in widths.tolist():
        low_power = low_power * unit[0] >> (bits + 32)
        high_power = (high_power * unit[1] >> (bits + 32)) + 1
        low.append(low[-1] + (width * low_power >> 32))
        high.append(high[-1] + (width * high_power >> 32) + 1)
    return low, high


def _below_number(number: int, words: Words) -> int:
    """A uniform whole number below `number`, by rejection."""
    size = (number - 1).bit_length()
    while True:
        drawn = 0
        for word in words.words(max(1, -(-size // 64))):
            drawn = drawn << 64 | int(word)
        drawn &= (1 << size) - 1
        if drawn < number:
            return drawn


def quantile(*arguments: Any, **options: Any) -> Quantile:
    """The former name of `publish_quantile`.

    >>> import numpy as np, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> quantile(np.arange(101), 0.5, near, epsilon=2.0).number
    101
    """
    return publish_quantile(*arguments, **options)
