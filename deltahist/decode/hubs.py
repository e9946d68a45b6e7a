"""The variance that hubs add to a box."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.features import BlockPower, Feature, Joint, Quadratic
from deltahist.decode.forms import A_CALL, MOST_KEPT, Between, Overlap, weighted
from deltahist.decode.moments import Terms
from deltahist.strategies.doors import HubLine, Hubs, joint
from deltahist.workloads import Span
from deltahist.workloads.pieces import Pieces

#: Parts of a sum of products that are smaller than this, against the largest, are rounding.
_ROUNDING = 1e-12
#: An interval takes as long without a table as so many numbers of it take to be made.
_AS_LONG = 32


@dataclass(frozen=True, eq=False)
class Fourths(Feature):
    """Σ over hubs of (share of the hub's block inside the interval)⁴.

    Parameters
    ----------
    before : hubs before each edge of a cell (n + 1,), of those inside a block the share.
    """

    before: NDArray[np.float64]

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        first, last = (_at(self.before[:, None], place)[:, 0] for place in (low, high))
        return np.where(first < last, BlockPower(1, 4)(first, np.maximum(first + 1e-12, last)), 0.0)


class HubVariance:
    """Covariance of what enters at the hubs, and what of it a public total takes away.

    With noise of variance v of their own, and w on a level of sums with the eigenvalues λ, it is T² (v + Σ w λ/ρ²) for
    each product of waves along both axes (T and ρ as in `Hubs`). With a and b for the waves, and the identity where an
    index is 0, that is Σ_ij K_ij a_i a_iᵀ ⊗ b_j b_jᵀ. A public total takes away (q·m)² / Σ m, m what the covariance
    makes of all ones.

    Parameters
    ----------
    hubs : with the ratios of their noises.
    edges : where each edge of cells lies among the blocks, per axis; None if blocks are cells.
    own, sums : variance of the draws, in points: the hubs' own, and that of each level of sums.

    Attributes
    ----------
    waves : variance of each product of waves. joint : K.
    """

    def __init__(
        self, hubs: Hubs, edges: list[NDArray[np.float64] | None], own: float, sums: Sequence[float]
    ) -> None:
        self.hubs, self.own, self.edges = hubs, own, edges
        self._lines = hubs.grid.axes[: len(edges)]
        levels = zip(sums, hubs.ratios, hubs.grid.levels, strict=False)
        self.waves = hubs.trust**2 * (own + sum(w / ratio**2 * level for w, ratio, level in levels))
        self.joint = joint(self.waves)

    def second(self, total_known: bool) -> Terms:
        """Terms of the variance."""
        core, spread = self.onto_total if total_known else (np.zeros_like(self.joint[1:, 1:]), 1.0)
        alike = [
            Quadratic.of(Overlap(before[:, 0]), edge)
            for before, edge in zip(self._before_blocks, self.edges, strict=True)
        ]
        before = []
        for line, edge in zip(self._lines, self.edges, strict=True):
            waves = _before(line, line.waves)
            before.append(waves if edge is None else _at(waves, edge))
        # Without noise there is nothing that a total could take away.
        return [(1.0, WavesKnown(alike, before, self.joint, core / np.sqrt(spread) if spread > 0 else core))]

    def fourth(self, kurtosis: float) -> Terms:
        """Fourth cumulant of the hubs' own noise in full weight; sums and total make it a little less."""
        features = tuple(
            Fourths(before[:, 0] if edge is None else np.interp(edge, np.arange(len(before)), before[:, 0]))
            for before, edge in zip(self._before_blocks, self.edges, strict=True)
        )
        return [(kurtosis * self.own**2, features)]

    @property
    def _before_blocks(self) -> list[NDArray[np.float64]]:
        """Hubs before each edge of blocks (n + 1, 1), per axis."""
        return [_before(line, np.ones((1, len(line.places)))) for line in self._lines]

    @functools.cached_property
    def onto_total(self) -> tuple[NDArray[np.float64], float]:
        """m in waves (k, l), and Σ m, the variance of all that enters; 0 where there is next to no noise."""
        # Ones are a sum of waves, since sums' weights add up to one at every hub; without sums there is one wave.
        held = np.multiply.outer(*(line.waves.sum(axis=1) for line in self.hubs.grid.axes))
        core = self.waves[1:, 1:] * held
        return core, float((core * held).sum())


class WavesKnown(Joint):
    """Σ_ij K_ij a_i(q) b_j(q) − (Σ_ij M_ij (a_i·q) (b_j·q))² for a box q, which is a product over the axes.

    For waves a_i(q) is (a_i·q)², and for i = 0 the squared length of q. K and M are nearly of low rank: a few products
    are all of each.

    Parameters
    ----------
    alike : the squared length, per axis.
    before : sums of the waves a, and of the waves b, over all cells before each edge (n + 1, k), per axis.
    squared : K (1 + k, 1 + l). whole : M (k, l). On a line there is no b, and l is 1.
    """

    def __init__(
        self,
        alike: list[Quadratic],
        before: list[NDArray[np.float64]],
        squared: NDArray[np.float64],
        whole: NDArray[np.float64],
    ) -> None:
        self.alike, self.before, self.squared, self.whole = alike, before, squared, whole
        squares, sums = _factors(squared), _factors(whole)
        self._axes = [_Waves(*each) for each in zip(alike, before, squares, sums, strict=False)]
        #: On a line, what the products are with.
        self._line = (squares[1].sum(axis=0), sums[1][0]) if len(before) == 1 else None

    def expect(self, number: int) -> None:
        for axis in self._axes:
            axis.expect(number)

    def __call__(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        found = [axis(*span) for axis, span in zip(self._axes, spans, strict=True)]
        squares, sums = zip(*found if self._line is None else (*found, self._line), strict=True)
        return np.asarray((squares[0] * squares[1]).sum(axis=1) - (sums[0] * sums[1]).sum(axis=1) ** 2)

    def mean(self, shape: tuple[int, ...]) -> float:
        # Over all pairs of edges of an axis, Σ (b_f − b_e)(b_f − b_e)ᵀ = (n + 1) Σ b bᵀ − (Σ b)(Σ b)ᵀ.
        both = [
            ((n + 1) * own.T @ own - np.multiply.outer(own.sum(axis=0), own.sum(axis=0))) / (n * (n + 1) / 2)
            for own, n in zip(self.before, shape, strict=True)
        ]
        x, y = both if len(both) == 2 else (*both, np.ones((1, 1)))
        alike = [each.mean(n) for each, n in zip(self.alike, shape, strict=True)] + [1.0]
        one, other = (np.append(mean, np.diag(held)) for mean, held in zip(alike, (x, y), strict=False))
        return float(one @ self.squared @ other - ((x @ self.whole) * (self.whole @ y)).sum())


class _Waves:
    """Waves along an axis: (|q|², (a·q)²) @ weight and (a·q) @ factor for intervals q.

    Edges between the same two hubs have the same waves before them, and are kept as one place.

    Parameters
    ----------
    alike : |q|². before : sums of the waves a over all cells before each edge (n + 1, k). weight (1 + k, r).
    factor (k, s).
    """

    def __init__(
        self,
        alike: Quadratic,
        before: NDArray[np.float64],
        weight: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> None:
        moves = np.any(before[1:] != before[:-1], axis=1)
        self.place = np.concatenate([[0], np.cumsum(moves)])
        self.waves = before[np.concatenate([[True], moves])]
        self.alike, self.own, self.weight = alike, weight[0], weight[1:]
        self.linear, self._asked = self.waves @ factor, 0

    def expect(self, number: int) -> None:
        """Make the table if it pays for all intervals that were ever asked for, and is not too large."""
        self._asked += max(number, A_CALL)
        pairs = len(self.waves) ** 2 // 2
        if pairs < self._asked * _AS_LONG and pairs * self.weight.shape[1] < MOST_KEPT:
            self._between  # noqa: B018

    @functools.cached_property
    def _between(self) -> Between:
        """(a·q)² @ weight of the intervals between all places."""
        waves, weight = self.waves, self.weight

        def rows(first: int, stop: int) -> NDArray[np.float64]:
            return np.swapaxes((waves[first:stop, None] * weight.T) @ waves.T, 1, 2)

        return Between(rows, waves**2 @ weight)

    def __call__(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        intervals = Pieces.of(low, high)
        edges = [(self.place[edge], share) for edge, share in intervals.edges]
        if "_between" in self.__dict__:
            squares = self._between.of(intervals, self.place)
        else:
            squares = weighted(self.waves, edges) ** 2 @ self.weight
        squares += np.multiply.outer(self.alike(low, high), self.own)
        return squares, weighted(self.linear, edges)


def _before(line: HubLine, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of weights of hubs (k, hubs) before each edge of blocks (n + 1, k)."""
    out = np.zeros((line.n + 1, len(weights)))
    out[line.places + 1] = weights.T
    return np.asarray(out.cumsum(axis=0))


def _at(values: NDArray[np.float64], place: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values (n + 1, k) at places between their rows."""
    below = np.minimum(place.astype(np.int64), len(values) - 2)
    share = (place - below)[:, None]
    return np.asarray((1 - share) * values[below] + share * values[below + 1])


def _factors(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """L (k, r) and R (l, r) with L Rᵀ the matrix, r its rank beyond rounding."""
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    some = int(np.count_nonzero(sizes > _ROUNDING * max(sizes[0], np.finfo(float).tiny)))
    return left[:, :some] * sizes[:some], right[:some].T
