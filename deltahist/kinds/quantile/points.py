"""Points around a quantile and their smooth sensitivity: the measurement, with NumPy alone; private."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, positive, whole
from deltahist.kinds.quantile.release import check_quantile, rank_of
from deltahist.kinds.sorted.mechanism import on_a_line
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood

#: Points on each side of the quantile that are looked at first.
_NEAR = 4096


def smooth_sensitivity(
    points: ArrayLike, q: float, near: Neighbourhood, *, beta: float, contributions: int = 1
) -> float:
    """Return the smooth sensitivity of a quantile under δ-neighbourhood: max over t of e^(−βt) min(δ, A(t)).

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
    steps = lattice_steps(points, near.domain)
    around = PointsAround(steps, rank_of(q, len(steps)), near.domain.lattice_shape[0] - 1)
    return around.smooth(near.radius, float(beta), whole(contributions=contributions)) * near.domain.step[0]


def lattice_steps(points: ArrayLike, domain: Domain) -> NDArray[np.int64]:
    """Return the lattice steps (n,) of points; InputError if there are none, or they are no numbers on a line."""
    array = on_a_line(points)
    if not len(array):
        raise InputError("there are no points: they have no quantiles")
    return domain.lattice(array)[:, 0]


class PointsAround:
    """Points around a quantile in order, found among unsorted ones as far as they are needed.

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
        """Fetch x_(r − half), …, x_(r + half) at least, or all there are."""
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
        """x_r, without noise."""
        return int(self._around[self._half])

    @property
    def room(self) -> tuple[int, int]:
        """Lattice steps above the quantile and below it."""
        return self._last - self.quantile, self.quantile

    def nearest(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the distances of points above and below the quantile, at most `number` each.

        These are x_i − x_r for i = r, r + 1, … and x_r − x_i for i = r, r − 1, …, without the ends of the domain.
        """
        above, below = min(number, len(self._steps) - self._rank + 1), min(number, self._rank)
        self._fetch(max(above, below))
        centre, around = self._half, self._around
        return (
            around[centre : centre + above] - around[centre],
            around[centre] - around[centre - below + 1 : centre + 1][::-1],
        )

    def longest(self, t: int, contributions: int) -> int:
        """Return A(t), the longest stretch of (t + 1) K gaps with the quantile; without a move it must be at an end."""
        gaps = min((t + 1) * contributions, len(self._steps) + 1)
        self._fetch(gaps)
        around = self._around[self._half - gaps : self._half + gaps + 1]
        stretch = around[gaps:] - around[: gaps + 1]
        return int(stretch.max() if t else max(stretch[0], stretch[-1]))

    def smooth(self, reach: int, beta: float, contributions: int) -> float:
        """Return S_β, the smooth sensitivity in lattice steps, for moves of K points by at most D."""
        # After that many moves the stretch is the whole line.
        most = -(-(len(self._steps) + 1) // contributions)
        return _maximize(lambda t: min(reach, self.longest(t, contributions)), reach, beta, most)


def _maximize(local: Callable[[int], int], limit: int, beta: float, most: int) -> float:
    """Return the maximum of e^(−βt) f(t) over 0 ≤ t ≤ most, by branch and bound.

    f does not fall and is at most `limit`. So no value between a and b is above e^(−β(a+1)) f(b): where that is no
    more than the best so far, nothing is to be gained.

    >>> asked = []
    >>> _maximize(lambda t: asked.append(t) or min(1 + t, 50), 50, 0.5, 1000), asked  # 2 e^(−½) = 1.21
    (1.2130613194252668, [0, 1, 3, 7, 2])
    """
    known: dict[int, int] = {}
    best = 0.0

    def evaluate(t: int) -> None:
        nonlocal best
        known[t] = local(t)
        best = max(best, math.exp(-beta * t) * known[t])

    def bound(a: int, value: int) -> float:
        return math.exp(-beta * (a + 1)) * value

    evaluate(0)
    evaluated = [0]
    # t = 0, 1, 3, 7, …: until f is as large as it can be, or even that would not do.
    while known[evaluated[-1]] < limit and evaluated[-1] < most and bound(evaluated[-1], limit) > best:
        evaluated.append(min(2 * evaluated[-1] + 1, most))
        evaluate(evaluated[-1])
    between = list(itertools.pairwise(evaluated))
    while between:
        a, b = between.pop()
        if b - a > 1 and bound(a, known[b]) > best:
            middle = (a + b) // 2
            evaluate(middle)
            between += [(a, middle), (middle, b)]
    return best
