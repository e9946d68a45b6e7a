"""Decoder of sums of consecutive sorted values: isotonic regression, ranks, and bounds that assume nothing."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deltahist.privacy import Law

#: Ranks and lattice steps of a piecewise linear estimate.
Knots = tuple[NDArray[np.float64], NDArray[np.float64]]
#: Simulated noise values for standard errors, and the least and largest number of simulations.
_SIMULATED = 100_000_000
_SIMULATIONS = (20, 200)


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Ranks and places from noisy sums (rows,) of groups of sorted whole numbers from 0 to size − 1.

    `ends` are the ranks (rows + 1,) between the groups: 0, k, 2k, ..., n.
    """

    values: NDArray[np.int64]
    ends: NDArray[np.int64]
    law: Law
    size: int
    _bounds: dict[float, Knots] = field(default_factory=dict, init=False, repr=False)

    @functools.cached_property
    def knots(self) -> Knots:
        """(ranks, steps), both rising from an end of the domain to the other: how many values lie below a step."""
        return self._decode(self.values)

    def _decode(self, values: NDArray[np.int64] | NDArray[np.float64]) -> Knots:
        from scipy.optimize import isotonic_regression

        number = self.ends[-1]
        sizes = np.diff(self.ends).astype(np.float64)
        # The noise of a mean of m points has a standard deviation in proportion to 1/m.
        found = isotonic_regression(values / sizes, weights=sizes * sizes)
        edges = self.ends[found.blocks]
        ranks, steps = (edges[1:] + edges[:-1]) / 2, found.x[found.blocks[:-1]]
        low, high = -0.5, self.size - 0.5
        inside = np.flatnonzero((steps > low) & (steps < high))
        if len(inside) == 0:
            below = float(edges[np.searchsorted(steps, (low + high) / 2)])
            return np.array([0.0, below, below, number]), np.array([low, low, high, high])
        first, last = inside[0], inside[-1]
        ranks, steps = ranks[first : last + 1], steps[first : last + 1]
        # Half of the outer blocks lies beyond their centres, as densely as between them and the next ones.
        start, stop = steps[0], steps[-1]
        if len(steps) > 1:
            start -= (ranks[0] - edges[first]) * (steps[1] - steps[0]) / (ranks[1] - ranks[0])
            stop += (edges[last + 1] - ranks[-1]) * (steps[-1] - steps[-2]) / (ranks[-1] - ranks[-2])
        ranks = np.concatenate([[0.0, edges[first]], ranks, [edges[last + 1], number]])
        steps = np.concatenate([[low, max(start, low)], steps, [min(stop, high), high]])
        return ranks, steps

    @functools.cached_property
    def simulated(self) -> list[Knots]:
        """Decodings of the sums that the estimate has, with other noise (public, hence seeded)."""
        rng, rows = np.random.default_rng(0), len(self.values)
        ranks, steps = self.knots
        # Sums over groups of the piecewise linear estimate, from its integral at the groups' ends.
        area = np.concatenate([[0.0], np.cumsum(np.diff(ranks) * (steps[1:] + steps[:-1]) / 2)])
        place = np.clip(np.searchsorted(ranks, self.ends, side="right") - 1, 0, len(ranks) - 2)
        beyond = self.ends - ranks[place]
        run = ranks[place + 1] - ranks[place]
        # Where ranks stand still the estimate jumps, and no rank lies beyond the knot.
        slope = (steps[place + 1] - steps[place]) / np.where(run > 0, run, np.inf)
        sums = np.diff(area[place] + beyond * (steps[place] + slope * beyond / 2))
        number = int(np.clip(_SIMULATED // rows, *_SIMULATIONS))
        return [self._decode(sums + self.law.simulate(rows, rng)) for _ in range(number)]

    def bounds(self, alpha: float) -> Knots:
        """Return confidence bounds from both sides, each wrong with probability `alpha` at most at any one place.

        upper[j] bounds the coordinate of rank j k + 1 from above: the windows of 1, 2, 4, ... groups that begin
        there have means at least as large, so that the least mean plus what its noise can take away bounds it.
        lower[j] bounds rank j k from below, by the windows that end there. Each window has an equal share of
        `alpha`. Both are made monotone, which keeps them valid (docs/sorted.md).
        """
        if alpha not in self._bounds:
            rows = len(self.values)
            sums = np.concatenate([[0.0], np.cumsum(self.values, dtype=np.float64)])
            upper, lower = np.full(rows + 1, np.inf), np.full(rows + 1, -np.inf)
            widths = [1 << i for i in range(rows.bit_length())]
            for m in widths:
                reach = self.law.tail(m, alpha / len(widths))
                change = sums[m:] - sums[:-m]
                points = (self.ends[m:] - self.ends[:-m]).astype(np.float64)
                np.minimum(upper[:-m], (change + reach) / points, out=upper[:-m])
                np.maximum(lower[m:], (change - reach) / points, out=lower[m:])
            self._bounds[alpha] = np.maximum.accumulate(upper), np.minimum.accumulate(lower[::-1])[::-1]
        return self._bounds[alpha]

    def below_bounds(
        self, steps: NDArray[np.float64], alpha: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and largest number of points below steps, each missed with probability `alpha` at most."""
        upper, lower = self.bounds(alpha)
        rows, number = len(self.values), int(self.ends[-1])
        # All ranks j k + 1 whose upper bound is below the step are below it; those with a lower bound above are not.
        known = np.searchsorted(upper, steps, side="left")
        least = np.where(known > 0, self.ends[np.maximum(known, 1) - 1] + 1, 0)
        beyond = np.searchsorted(lower, steps, side="left")
        most = np.where(beyond <= rows, self.ends[np.minimum(beyond, rows)] - 1, number)
        inside = (steps > -0.5) & (steps < self.size - 0.5)
        everything = np.where(steps <= -0.5, 0, number)
        least, most = (np.where(inside, np.clip(bound, 0, number), everything) for bound in (least, most))
        return least.astype(np.float64), np.maximum(most, least).astype(np.float64)


def below(knots: Knots, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the number of points below steps; a jump counts as a whole from its far side on."""
    ranks, at = knots
    found = np.interp(steps, at, ranks)
    return np.where(steps <= at[0], 0.0, np.where(steps >= at[-1], ranks[-1], found))
