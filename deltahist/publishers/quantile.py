"""Publishing medians and other quantiles of points on a line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.budgets.paying import Account, amounts_for
from deltahist.counts.private import how_made
from deltahist.errors import InputError, positive, whole
from deltahist.mechanisms import QuantileMechanism
from deltahist.mechanisms.base import vouched
from deltahist.mechanisms.quantile import check_quantile, rank_of
from deltahist.mechanisms.smooth import FLOOR, SIGMA, Smooth
from deltahist.mechanisms.sorted import check_all_there
from deltahist.neighbourhood import Neighbourhood
from deltahist.noise.entropy import Words, source
from deltahist.noise.heavy import rounded
from deltahist.noise.places import draw_place
from deltahist.publishers.histogram import as_counted, check_protection, draw, only_a_mechanism
from deltahist.publishers.sorted import on_a_line
from deltahist.releases import Quantile

#: Points on each side of the quantile that are looked at first.
_NEAR = 4096


def publish_quantile(
    points: ArrayLike,
    q: float,
    near: Neighbourhood | QuantileMechanism,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    probability: float | None = None,
    method: str = "auto",
    contributions: int | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    rng: np.random.Generator | None = None,
) -> Quantile:
    """Publish a quantile of points on a line under δ-neighbourhood.

    Source: 2014, section 5.5.2, with the noises of Bun and Steinke 2019 and places drawn by the number of moves
    within δ that would make them the quantile (docs/quantiles.md). Proofs: docs/privacy/quantiles.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Those outside the domain are clamped to it.
    q : which quantile: the ⌈q n⌉-th smallest point; 0.5 is the median.
    near : the neighbourhood, one dimension, fixed membership. Or a `QuantileMechanism` for the same q, fixed before
        there were data: the other choices are then its own.
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
    weak_protection_accepted, account : as for `publish`.
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
    if isinstance(near, QuantileMechanism):
        amounts = {"epsilon": epsilon, "rho": rho, "probability": probability}
        only_a_mechanism("the budget and the method", {"method": method}, **amounts)
        mechanism = as_counted(near, points, contributions)
        near, steps = mechanism.neighbourhood, _steps(points, mechanism.neighbourhood)
        if (q, len(steps)) != (mechanism.q, mechanism.number):
            raise InputError(
                f"the mechanism is for the {mechanism.q:g}-quantile of {mechanism.number:,} points: q must be that, "
                "and so must their number"
            )
    else:
        check_quantile(q, near)
        counting = how_made(points, near.domain, contributions)
        check_all_there(counting)
        steps = _steps(points, near)
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho), probability=probability)
        mechanism = QuantileMechanism(near, q, len(steps), budget, method, counting)
    check_protection(mechanism, weak_protection_accepted, rng)
    noise, laws, words = mechanism.smooth, mechanism.laws, source(rng)
    window = _PointsAround(steps, mechanism.rank, mechanism.steps - 1)
    payment = None if account is None else account.pay(mechanism.guarantee)
    if noise is not None:
        step = _noisy(window, noise, near.radius, mechanism.counting.contributions, words)
    elif laws:
        step = window.quantile + int(draw(laws[0], 1, rng)[0])
    else:
        step = window.quantile + draw_place(
            window.nearest, window.room, mechanism.reach, mechanism.rate, words
        )
    value = np.array([min(max(step, 0), mechanism.steps - 1)], dtype=np.int64)
    return vouched(Quantile(mechanism, value, payment=payment), rng is None)


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
    window = _PointsAround(steps, rank_of(q, len(steps)), near.domain.lattice_shape[0] - 1)
    return window.smooth(near.radius, float(beta), whole(contributions=contributions)) * near.domain.step[0]


def _steps(points: ArrayLike, near: Neighbourhood) -> NDArray[np.int64]:
    array = on_a_line(points)
    if not len(array):
        raise InputError("there are no points: they have no quantiles")
    return near.domain.lattice(array)[:, 0]


class _PointsAround:
    """The points around the quantile in order, found among unsorted ones as far as they are needed.

    As in docs/quantiles.md, x_1 ≤ … ≤ x_n are lattice steps and r is the rank; x_i is the lower end of the domain for
    i < 1 and the upper one for i > n.

    Parameters
    ----------
    steps : (n,) int64, private; their order changes.
    rank : r. last : the domain's last lattice step.
    """

    def __init__(self, steps: NDArray[np.int64], rank: int, last: int) -> None:
        self._steps, self._rank, self._last = steps, rank, last
        self._half = 0
        self._fetch(_NEAR)

    def _fetch(self, half: int) -> None:
        """Have x_(r − half), …, x_(r + half) at least, or all there are."""
        if half <= self._half:
            return
        number, centre = len(self._steps), self._rank - 1
        half = min(max(half, 4 * self._half), number + 1)
        first, last = max(0, centre - half), min(number - 1, centre + half)
        if last - first + 1 < number:
            self._steps.partition(sorted({first, last}))
        self._around = np.empty(2 * half + 1, dtype=np.int64)
        start, stop = half - (centre - first), half + (last - centre) + 1
        self._around[:start], self._around[stop:] = 0, self._last
        self._around[start:stop] = np.sort(self._steps[first : last + 1])
        self._half = half

    @property
    def quantile(self) -> int:
        """x_r, as it is."""
        return int(self._around[self._half])

    @property
    def room(self) -> tuple[int, int]:
        """Lattice steps above the quantile and below it."""
        return self._last - self.quantile, self.quantile

    def nearest(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distances x_i − x_r for i = r, r + 1, … and x_r − x_i for i = r, r − 1, …: at most `number` each, no ends."""
        above, below = min(number, len(self._steps) - self._rank + 1), min(number, self._rank)
        self._fetch(max(above, below))
        centre, around = self._half, self._around
        return (
            around[centre : centre + above] - around[centre],
            around[centre] - around[centre - below + 1 : centre + 1][::-1],
        )

    def longest(self, t: int, contributions: int) -> int:
        """A(t), the longest stretch of (t + 1) K gaps with the quantile; without a move it must be at an end."""
        gaps = min((t + 1) * contributions, len(self._steps) + 1)
        self._fetch(gaps)
        around = self._around[self._half - gaps : self._half + gaps + 1]
        stretch = around[gaps:] - around[: gaps + 1]
        return int(stretch.max() if t else max(stretch[0], stretch[-1]))

    def smooth(self, reach: int, beta: float, contributions: int) -> float:
        """S_β, the smooth sensitivity in lattice steps, for moves of K points by at most D."""
        # With so many moves the stretch is the whole line.
        most = -(-(len(self._steps) + 1) // contributions)
        return _largest(lambda t: min(reach, self.longest(t, contributions)), reach, beta, most)


def _largest(local: Callable[[int], int], limit: int, beta: float, most: int) -> float:
    """max of e^(−βt) f(t) over 0 ≤ t ≤ most, by branch and bound.

    f does not fall and is at most `limit`. So no value between a and b is above e^(−β(a+1)) f(b): where that is no
    more than the best so far, nothing is to be gained.

    >>> asked = []
    >>> _largest(lambda t: asked.append(t) or min(1 + t, 50), 50, 0.5, 1000), asked  # 2 e^(−½) = 1.21
    (1.2130613194252668, [0, 1, 3, 7, 2])
    """
    known: dict[int, int] = {}
    best = 0.0

    def look_at(t: int) -> None:
        nonlocal best
        known[t] = local(t)
        best = max(best, math.exp(-beta * t) * known[t])

    def bound(a: int, value: int) -> float:
        return math.exp(-beta * (a + 1)) * value

    look_at(0)
    looked_at = [0]
    # t = 0, 1, 3, 7, …: until f is as large as it can be, or even that would not do.
    while known[looked_at[-1]] < limit and looked_at[-1] < most and bound(looked_at[-1], limit) > best:
        looked_at.append(min(2 * looked_at[-1] + 1, most))
        look_at(looked_at[-1])
    between = list(itertools.pairwise(looked_at))
    while between:
        a, b = between.pop()
        if b - a > 1 and bound(a, known[b]) > best:
            middle = (a + b) // 2
            look_at(middle)
            between += [(a, middle), (middle, b)]
    return best


def _noisy(window: _PointsAround, noise: Smooth, reach: int, contributions: int, words: Words) -> int:
    """x_r + S_β Z/s, rounded."""
    # Below the floor e^(−βt) would lose its digits, and at last be zero: a value without noise. The larger of a
    # smooth bound and a constant is one as well (docs/privacy/quantiles.md).
    scale = max(Fraction(window.smooth(reach, noise.beta, contributions)), Fraction(FLOOR)) * noise.factor
    return rounded(noise.method.removeprefix("smooth-"), window.quantile, scale, words, sigma=SIGMA)


#: Its short name.
quantile = publish_quantile
