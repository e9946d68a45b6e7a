"""The variance that hubs add to a box, as products of one function per axis."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.features import BlockPower, Feature, Quadratic
from deltahist.decode.forms import Overlap
from deltahist.decode.moments import Terms
from deltahist.strategies.doors import HubLine, Hubs

#: Parts of a sum of products that are smaller than this, against the largest, are rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Weighted(Feature):
    """Σ_k w_k (a_k·q)² for an interval q.

    Parameters
    ----------
    before : sums of a_k over all cells before each edge (n + 1, k). weight : w (k,).
    """

    before: NDArray[np.float64]
    weight: NDArray[np.float64]

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((_at(self.before, high) - _at(self.before, low)) ** 2 @ self.weight)

    def mean(self, n: int) -> float:
        pairs = (n + 1) * (self.before**2).sum(axis=0) - self.before.sum(axis=0) ** 2
        return float(pairs @ self.weight) / (n * (n + 1) / 2)


@dataclass(frozen=True, eq=False)
class Fourths(Feature):
    """Σ over hubs of (share of the hub's block inside the interval)⁴.

    Parameters
    ----------
    before : hubs before each edge of a cell (n + 1,), of those inside a block the share.
    """

    before: NDArray[np.float64]

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        edge = np.arange(len(self.before))
        first, last = np.interp(low, edge, self.before), np.interp(high, edge, self.before)
        return np.where(first < last, BlockPower(1, 4)(first, np.maximum(first + 1e-12, last)), 0.0)


class HubVariance:
    """Covariance of what enters at the hubs, and what of it a public total takes away.

    With noise of variance v of their own and w on the sums, and C the gain (`Hubs`), it is
    v − Σ_ij K_ij a_i a_iᵀ ⊗ b_j b_jᵀ for the waves a and b along the axes, K = 2 v C − C² (v λ μ + w). K is nearly
    of low rank, so that a few products are all of it. A public total takes away (q·m)² / Σ m, m what the covariance
    makes of all ones.

    Parameters
    ----------
    hubs : with the ratio of both noises.
    edges : where each edge of cells lies among the blocks, per axis; None if blocks are cells.
    own, sums : variance of the draws, in points.
    """

    def __init__(
        self, hubs: Hubs, edges: list[NDArray[np.float64] | None], own: float, sums: float | None
    ) -> None:
        self.hubs, self.own, self.edges = hubs, own, edges
        self._lines = hubs.grid.axes[: len(edges)]
        x, y = hubs.grid.axes
        if sums is None:
            self._lost = np.zeros((len(x.squares), len(y.squares)))
        else:
            noise = own * np.multiply.outer(x.squares, y.squares) + sums
            self._lost = 2 * own * hubs.gain - hubs.gain**2 * noise

    def second(self, total_known: bool) -> Terms:
        """Terms of the variance."""
        each = tuple(
            Quadratic(Overlap(_before(line, np.ones((1, len(line.places))))[:, 0]), edge)
            for line, edge in zip(self._lines, self.edges, strict=True)
        )
        return [(self.own, each), *self._of_sums(), *(self._of_total() if total_known else ())]

    def fourth(self, kurtosis: float) -> Terms:
        """Fourth cumulant of the hubs' own noise in full weight; sums and total make it a little less."""
        features = tuple(
            Fourths(before[:, 0]) for before in self._held([np.ones((1, len(a.places))) for a in self._lines])
        )
        return [(kurtosis * self.own**2, features)]

    def _of_sums(self) -> Terms:
        held = self._held([line.waves for line in self._lines])
        return [(-size, self._weighted(held, pair)) for size, *pair in _parts(self._lost)]

    def _of_total(self) -> Terms:
        x, y = self.hubs.grid.axes
        # Ones are a sum of waves, since the sums' weights add up to one at every hub; without sums there is one wave.
        ones = [line.turn.sum(axis=0) for line in (x, y)]
        held = [line.waves.sum(axis=1) for line in (x, y)]
        core = self.own * np.multiply.outer(*ones) - self._lost * np.multiply.outer(*held)
        spread = float(held[0] @ core @ held[1])
        parts = list(_parts(core))
        out = []
        for (i, one), (j, other) in itertools.combinations_with_replacement(enumerate(parts), 2):
            # (α·q)(α'·q) is ((α + α')·q / 2)² − ((α − α')·q / 2)²
            waves = [
                np.stack([(a + b) / 2, (a - b) / 2]) @ line.waves
                for a, b, line in zip(one[1:], other[1:], self._lines, strict=False)
            ]
            features = self._weighted(self._held(waves), [np.array([1.0, -1.0])] * 2)
            size = one[0] * other[0] * (1 if i == j else 2) / spread
            if len(self._lines) == 1:
                size *= float(one[2][0] * other[2][0])
            out.append((-size, features))
        return out

    def _weighted(
        self, held: list[NDArray[np.float64]], weights: list[NDArray[np.float64]]
    ) -> tuple[Feature, ...]:
        return tuple(Weighted(before, weight) for before, weight in zip(held, weights, strict=False))

    def _held(self, waves: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Sums of weights of hubs (k, hubs) before each edge of cells (n + 1, k), per axis."""
        out = []
        for line, wave, edge in zip(self._lines, waves, self.edges, strict=True):
            before = _before(line, wave)
            out.append(before if edge is None else _at(before, edge))
        return out


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


def _parts(matrix: NDArray[np.float64]) -> list[tuple[float, NDArray[np.float64], NDArray[np.float64]]]:
    """A matrix as a sum of products: the size, the left and the right vector of each."""
    left, sizes, right = np.linalg.svd(matrix)
    some = np.count_nonzero(sizes > _ROUNDING * sizes[0]) if len(sizes) and sizes[0] > 0 else 0
    return [(float(sizes[r]), left[:, r], right[r]) for r in range(some)]
