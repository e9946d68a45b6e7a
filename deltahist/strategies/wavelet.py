"""Wavelet: sums of all, and differences of halves, quarters and so on, along every axis."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.strategies.base import Group, Strategy, read_shares, whole_shares
from deltahist.strategies.product import MOST_TABLED, Factor, Product

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.workloads import Workload


@dataclass(frozen=True)
class _Haar:
    """Row 0 sums everything; every other row is +1 on the left and −1 on the right half of a segment."""

    n: int

    @functools.cached_property
    def levels(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], ...]:
        """Segments [low, high) split at mid, per level, coarse to fine. The left half is the longer one."""
        low, high = np.array([0]), np.array([self.n])
        out: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        while True:
            split = high - low > 1
            low, high = low[split], high[split]
            if not len(low):
                return tuple(out)
            mid = (low + high + 1) // 2
            out.append((low, mid, high))
            low, high = np.concatenate([[low], [mid]]).T.ravel(), np.concatenate([[mid], [high]]).T.ravel()

    @functools.cached_property
    def level_of_row(self) -> NDArray[np.int64]:
        """Level per row: 0 for the sum of all, then 1 for the whole domain's halves, and so on."""
        sizes = [1, *(len(low) for low, _, _ in self.levels)]
        return np.repeat(np.arange(len(sizes)), sizes)

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        total = np.concatenate([np.zeros_like(x[:1]), x.cumsum(axis=0)])
        rows = [2 * total[mid] - total[low] - total[high] for low, mid, high in self.levels]
        return np.concatenate([total[-1:], *rows])

    def transpose(self, y: NDArray[Any]) -> NDArray[Any]:
        change = np.zeros((self.n + 1, *y.shape[1:]), dtype=y.dtype)
        change[0] = y[0]
        row = 1
        for low, mid, high in self.levels:
            part = y[row : row + len(low)]
            change[low] += part
            change[mid] -= 2 * part
            change[high] += part
            row += len(low)
        return change.cumsum(axis=0)[:-1]

    def solve(self, y: NDArray[Any]) -> NDArray[np.float64]:
        # total[low] is the sum of the segment that starts at low: left = (sum + difference) / 2.
        total = np.zeros(y.shape, dtype=np.float64)
        total[0] = y[0]
        row = 1
        for low, mid, _ in self.levels:
            part = y[row : row + len(low)]
            whole = total[low]
            total[low] = (whole + part) / 2
            total[mid] = (whole - part) / 2
            row += len(low)
        return total

    def solve_transpose(self, q: NDArray[Any]) -> NDArray[np.float64]:
        weight = np.array(q, dtype=np.float64)
        rows: list[NDArray[np.float64]] = []
        for low, mid, _ in reversed(self.levels):
            left, right = weight[low], weight[mid]
            rows.append((left - right) / 2)
            weight[low] = (left + right) / 2
        return np.concatenate([weight[:1], *reversed(rows)])

    def prefix_power(self) -> float:
        # A prefix is 1 or 0 on every segment that its edge does not cut: only segments around the edge have
        # coefficients. `mean` is the value of the one around each edge, half of its halves' together.
        mean, out = np.ones(self.n + 1), 1.0
        mean[0] = 0.0
        for low, mid, high in reversed(self.levels):
            length = high - low - 1
            segment = np.repeat(np.arange(len(low)), length)
            edge = np.arange(length.sum()) - np.repeat(length.cumsum() - length, length) + low[segment] + 1
            left = np.where(edge >= mid[segment], 1.0, mean[edge])
            right = np.where(edge <= mid[segment], 0.0, mean[edge])
            out += float((((left - right) / 2) ** 2).sum())
            mean[edge] = (left + right) / 2
        return out + float((mean[1:-1] ** 2).sum())


@dataclass(frozen=True, eq=False)
class Wavelet(Product):
    """Haar wavelets, unnormalised: Y_n (2014, Figure 2; Xiao et al. 2010); in 2-D the product of both axes.

    Entries are −1, 0 and 1. A number of cells that is no power of two is split into nearly equal halves.

    Parameters
    ----------
    domain : Domain
    shares : one number per level of the longest axis, from the sum of all down to single cells; in 2-D a
        row's share is the product over its two levels. Equal when None.

    >>> Wavelet(Domain((0, 1), (4,))).matrix().toarray().tolist()
    [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    """

    domain: Domain
    shares: tuple[Fraction, ...] | None = None
    texts: ClassVar[tuple[str, ...]] = ("wavelet",)

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if max(near.domain.shape) <= MOST_TABLED:
            yield "Wavelet", cls(near.domain)

    def __post_init__(self) -> None:
        if self.shares is not None:
            levels = max(int(f.level_of_row[-1]) for f in self._haar) + 1
            object.__setattr__(self, "shares", read_shares(self.shares, levels, "level"))

    @functools.cached_property
    def _haar(self) -> tuple[_Haar, ...]:
        return tuple(_Haar(n) for n in self.domain.shape)

    @functools.cached_property
    def factors(self) -> tuple[Factor, ...]:
        return self._haar

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        if self.shares is None:
            return super().groups
        level = [f.level_of_row for f in self._haar]
        if self.domain.ndim == 1:
            return tuple(
                Group(f"level {i}", np.flatnonzero(level[0] == i), self.shares[i])
                for i in range(level[0][-1] + 1)
            )
        rows = np.arange(self.domain.size).reshape(self.domain.shape)
        return tuple(
            Group(
                f"levels {i}, {j}",
                rows[np.ix_(level[0] == i, level[1] == j)].ravel(),
                self.shares[i] * self.shares[j],
            )
            for i, j in product(range(level[0][-1] + 1), range(level[1][-1] + 1))
        )

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction:
        """Closed form over pairs of columns, see docs/theory.md.

        In 1-D the columns of two cells agree on the rows above the segment where they part, differ in sign
        on that one row, and have no common row below. In 2-D the products of entries agree where both axes
        agree or both differ.
        """
        levels = [int(f.level_of_row[-1]) + 1 for f in self._haar]
        shares = self.shares or (Fraction(1),) * max(levels)
        weights, denominator = whole_shares(shares)
        weight = [w**norm for w in weights]
        pairs = [_pair_figures(f, weight, int(r)) for f, r in zip(self._haar, _ranges(near), strict=True)]
        # For the L2 norm a row that changes sign counts 2² = 4 instead of 2.
        sign = 2 if norm == 2 else 1

        def cost(x: _Figures, y: _Figures) -> NDArray[Any]:
            # x = (weight of u, weight of u', weight of rows that agree, weight of rows that differ in sign)
            (hu, hu1, same_x, flip_x), (hv, hv1, same_y, flip_y) = x, y
            agree = same_x * same_y + flip_x * flip_y
            against = same_x * flip_y + flip_x * same_y
            return hu * hv + hu1 * hv1 - 2 * agree + 2 * (sign - 1) * against

        # Shares may be fractions of any length: beyond 62 bits Python's whole numbers take over.
        small = (2 * sum(weight)) ** self.domain.ndim < 1 << 60
        kind: Any = np.int64 if small else object

        def columns(figures: set[tuple[int, ...]]) -> tuple[NDArray[Any], ...]:
            return tuple(np.array(sorted(figures), dtype=kind).T)

        most = 0
        if self.domain.ndim == 1:
            one = tuple(np.array([f], dtype=object) for f in (1, 1, 1, 0))
            reachable = {p for d in pairs[0][: int(near.reach[0]) + 1] for p in d}
            most = int(cost(columns(reachable), one).max())
        else:
            upto: list[set[tuple[int, ...]]] = []
            for figures in pairs[1]:
                upto.append(upto[-1] | figures if upto else set(figures))
            # The reach along y only falls, so a pair's figures matter at the smallest dx that has them.
            done: set[tuple[int, ...]] = set()
            for dx, reach in enumerate(near.reach.tolist()):
                fresh = pairs[0][dx] - done
                done |= fresh
                if fresh:
                    x = tuple(c[:, None] for c in columns(fresh))
                    y = tuple(c[None, :] for c in columns(upto[reach]))
                    most = max(most, int(cost(x, y).max()))
        if near.source_cells.any():
            column = [_column_weights(f, weight) for f in self._haar]
            arrival = column[0] if self.domain.ndim == 1 else np.multiply.outer(*column)
            most = max(most, int(arrival[near.source_cells].max()))
        return Fraction(most, denominator ** (norm * self.domain.ndim))


_Figures = tuple[NDArray[Any], ...]


def _ranges(near: Neighbourhood) -> list[int]:
    """Longest displacement per axis."""
    return [len(near.reach) - 1, int(near.reach[0])] if near.domain.ndim == 2 else [int(near.reach[0])]


def _column_weights(haar: _Haar, weight: list[int]) -> NDArray[Any]:
    """Sum of the weights of the rows that hold each cell, as Python's whole numbers."""
    magnitude = np.full(haar.n, weight[0], dtype=object)
    for level, (low, _, high) in enumerate(haar.levels, start=1):
        inside = np.zeros(haar.n + 1, dtype=np.int64)
        np.add.at(inside, low, 1)
        np.add.at(inside, high, -1)
        magnitude[inside.cumsum()[:-1] > 0] += weight[level]
    return magnitude


def _pair_figures(haar: _Haar, weight: list[int], longest: int) -> list[set[tuple[int, ...]]]:
    """For each displacement up to `longest` the different (h_u, h_u', agreeing, opposite) row weights.

    Both orders of a pair are listed, since the other axis may run either way.
    """
    n = haar.n
    height = _column_weights(haar, weight)
    depth_of_split = np.zeros(n + 1, dtype=np.int64)  # level of the segment that is split just before cell i
    for level, (_, mid, _) in enumerate(haar.levels, start=1):
        depth_of_split[mid] = level
    above = [0, *accumulate(weight)]
    # Heights are packed by their rank, of which there are few, whatever the weights.
    heights = sorted(set(height.tolist()))
    place = {h: i for i, h in enumerate(heights)}
    rank = np.array([place[h] for h in height.tolist()], dtype=np.int64)
    code = len(heights)
    out: list[set[tuple[int, ...]]] = [{(h, h, h, 0) for h in heights}]
    # Cells u < u' part at the coarsest split between them: a running minimum over longer and longer moves.
    parting = np.full(n, np.iinfo(np.int64).max)
    for d in range(1, longest + 1):
        parting = np.minimum(parting[: n - d], depth_of_split[d:n])
        packed = np.unique((parting * code + rank[: n - d]) * code + rank[d:])
        figures: set[tuple[int, ...]] = set()
        for p in packed.tolist():
            rest, second = divmod(p, code)
            level, first = divmod(rest, code)
            a, b = heights[first], heights[second]
            figures.add((a, b, above[level], weight[level]))
            figures.add((b, a, above[level], weight[level]))
        out.append(figures)
    return out
