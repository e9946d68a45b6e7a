"""Functions of intervals along one axis, of which variances of boxes are products, and their means."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import Edges, Form, Prefixes
from deltahist.strategies.product import Factor
from deltahist.workloads import Span

#: Tables of fourth powers cost four times as much; kurtosis is a small correction on finer grids.
MOST_FOURTH = 1024


class Feature:
    """A function of intervals [low, high) along an axis, in cells; one number for each interval."""

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        raise NotImplementedError

    def expect(self, number: int) -> None:
        """Make what pays for so many intervals."""
        return

    def mean(self, n: int) -> float:
        """Mean over all intervals of whole cells on an axis of n cells."""
        first, last = np.triu_indices(n)
        return float(self(first.astype(np.float64), last.astype(np.float64) + 1).mean())


class Joint:
    """A function of boxes that is no product over the axes; one number for each box."""

    def __call__(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        raise NotImplementedError

    def expect(self, number: int) -> None:
        """Make what pays for so many boxes."""
        return

    def mean(self, shape: tuple[int, ...]) -> float:
        """Mean over all boxes of whole cells on axes of so many cells."""
        raise NotImplementedError


@dataclass(frozen=True)
class BlockPower(Feature):
    """Σ over blocks of `width` cells of (length of the interval inside the block)^power."""

    width: int
    power: int

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        width, power = self.width, self.power
        if power == 1:
            return high - low
        first = np.floor(low / width)
        last = np.ceil(high / width) - 1
        same = (high - low) ** power
        cut = ((first + 1) * width - low) ** power + (high - last * width) ** power
        inner = np.maximum(last - first - 1, 0.0) * float(width) ** power
        return np.where(first == last, same, cut + inner)

    def mean(self, n: int) -> float:
        if self.power == 1:
            return (n + 2) / 3
        if self.power != 2:
            return super().mean(n)
        # Cells i ≤ j lie both in (i + 1)(n − j) of the intervals; pairs within a block count.
        cell = np.arange(n)
        start = cell // self.width * self.width
        upto = np.concatenate([[0.0], np.cumsum(cell + 1.0)])
        pairs = 2 * (n - cell) * (upto[1:] - upto[start]) - (n - cell) * (cell + 1.0)
        return float(pairs.sum()) / (n * (n + 1) / 2)


@dataclass(frozen=True)
class Times(Feature):
    """The product of two features of one interval."""

    one: Feature
    other: Feature

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.one(low, high) * self.other(low, high)


@dataclass(frozen=True, eq=False)
class Mixed(Feature):
    """Σ over cells of q^own · q̄^mean, for an interval q and q̄ its mean over each cell's block.

    Parameters
    ----------
    edges : first cell of every block, and the number of cells at the end.
    own, mean_power : the two powers, own at least one.
    """

    edges: NDArray[np.int64]
    own: int
    mean_power: int

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        first = np.searchsorted(self.edges, low, side="right") - 1
        last = np.searchsorted(self.edges, high, side="left") - 1
        begin, middle, end = self.edges[first], self.edges[np.minimum(first + 1, last)], self.edges[last]
        same = self._part(low, high, begin, self.edges[first + 1])
        apart = self._part(low, self.edges[first + 1].astype(np.float64), begin, self.edges[first + 1])
        apart = apart + (end - middle) + self._part(end.astype(np.float64), high, end, self.edges[last + 1])
        return np.where(first == last, same, apart)

    def _part(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """The sum over one block, inside which the interval lies."""
        return BlockPower(1, self.own)(low, high) * ((high - low) / (end - begin)) ** self.mean_power


class Table:
    """Sums over the coefficients F⁻ᵀq of intervals q."""

    def __init__(self, factor: Factor) -> None:
        self.form = Prefixes(factor)
        ones = factor.solve_transpose(np.ones((factor.n, 1)))
        self.total = float((ones * ones).sum())
        self.along_total = np.concatenate([[0.0], factor.solve(ones)[:, 0].cumsum()])

    @functools.cached_property
    def fourth(self) -> NDArray[np.float64]:
        """Σ_k (P_jk − P_ik)⁴ for all pairs of edges i, j."""
        p = self.form.rows
        cube, square = p**3 @ p.T, (p * p) @ (p * p).T
        own = np.diag(square)
        return own[:, None] + own[None, :] - 4 * cube - 4 * cube.T + 6 * square


@dataclass(frozen=True, eq=False)
class Quadratic(Feature):
    """wᵀ G w for an interval q = Σ_e w_e P_e, where P_e holds all before edge e of a row of blocks.

    Parameters
    ----------
    form : G over the m + 1 edges of the blocks.
    edges : where each cell edge lies among the blocks, in blocks (n + 1,); None if blocks are cells.
    """

    form: Form
    edges: NDArray[np.float64] | None = None

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.edges is not None:
            cell = np.arange(len(self.edges))
            low, high = np.interp(low, cell, self.edges), np.interp(high, cell, self.edges)
        return self.form.of(corners(low, high))

    def expect(self, number: int) -> None:
        self.form.expect(number)

    def mean(self, n: int) -> float:
        # Σ_{i<j} (G_ii + G_jj − 2 G_ij) over n + 1 edges, G between the edges of cells
        if self.edges is None:
            own, whole = self.form.trace(), self.form.whole(np.ones(n + 1))
        else:
            place, share = _split(self.edges)
            after = np.minimum(place + 1, self.form.size - 1)
            each = (1 - share) ** 2 * self.form.at(place, place) + share**2 * self.form.at(after, after)
            own = float((each + 2 * share * (1 - share) * self.form.at(place, after)).sum())
            size = self.form.size
            whole = self.form.whole(np.bincount(place, 1 - share, size) + np.bincount(after, share, size).astype(float))
        return ((n + 1) * own - whole) / (n * (n + 1) / 2)


@dataclass(frozen=True, eq=False)
class Fourth(Feature):
    """Σ_k a_k⁴, for the nearest whole cells."""

    table: Table

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.table.fourth[np.rint(low).astype(np.int64), np.rint(high).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class WithTotal(Feature):
    """(Σ_k a_k a_k(1))², the part that a public total takes away."""

    table: Table

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        along = self.table.along_total
        edge = np.arange(len(along))
        part = np.interp(high, edge, along) - np.interp(low, edge, along)
        return part * part

    def mean(self, n: int) -> float:
        along = self.table.along_total
        return float((n + 1) * (along @ along) - along.sum() ** 2) / (n * (n + 1) / 2)


def corners(low: NDArray[np.float64], high: NDArray[np.float64]) -> Edges:
    """Edges e and weights w_e with q = Σ_e w_e P_e for intervals q: two edges, or four if any cuts a cell."""
    (i, f), (j, g) = _split(low), _split(high)
    if not f.any() and not g.any():
        return [(i, f - 1), (j, 1 - g)]
    return [(i, f - 1), (i + (f > 0), -f), (j, 1 - g), (j + (g > 0), g)]


def _split(place: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    below = place.astype(np.int64)
    return below, place - below
