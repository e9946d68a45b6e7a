"""Wavelet: sums of all, and differences of halves, quarters and so on, along every axis."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.space.domain import Domain
from deltahist.strategies.base import Group, Strategy, read_shares, whole_shares
from deltahist.strategies.product import MOST_TABLED, Factor, Product

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload


@dataclass(frozen=True)
class _Haar(Factor):
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
        """Return the largest cost of an edge, in closed form.

        Let A be the factor of one axis and w_r = s_r^p the weight of its row r, p the norm. Its columns cost by four
        sums of weights per pair of cells u, u' (`Pair`): of the rows that hold u, h(u); those that hold u', h(u');
        those whose entries agree at both, a; and those whose entries are opposite, f. An arrival at u costs h(u).
        In 2-D the rows are products, and so are their weights: an arrival at (u, v) costs h(u) h(v), a move `_cost`.
        """
        shares = self.shares or (Fraction(1),) * (max(int(f.level_of_row[-1]) for f in self._haar) + 1)
        numerators, denominator = whole_shares(shares)
        weight = [s**norm for s in numerators]
        most = self._dearest_move(near, weight, norm)
        if near.source_cells.any():
            held = [_held_weight(f, weight) for f in self._haar]
            arrival = held[0] if self.domain.ndim == 1 else np.multiply.outer(*held)
            most = max(most, int(arrival[near.source_cells].max()))
        return Fraction(most, denominator ** (norm * self.domain.ndim))

    def _dearest_move(self, near: Neighbourhood, weight: list[int], norm: int) -> int:
        """Return the largest cost of a move, over all different pairs of cells along x and along y in reach.

        The reach along y only falls as dx grows, so that a pair along x need be tried at its least dx alone.
        """
        if self.domain.ndim == 1:  # as on a plane of one row of cells, whose factor is the matrix [1]
            reach = [0] * (int(near.reach[0]) + 1)
            along_y = [{Pair(1, 1, 1, 0)}]
        else:
            reach = near.reach.tolist()
            along_y = _different_pairs(self._haar[1], weight, reach[0])
        if self.domain.shape[1:] == self.domain.shape[:1] and len(along_y) >= len(reach):
            along_x = along_y  # those of an axis of the same length
        else:
            along_x = _different_pairs(self._haar[0], weight, len(reach) - 1)
        within = list(accumulate(along_y, operator.or_))  # pairs along y at most so many cells apart
        # Shares may be fractions of any length: beyond 62 bits Python's whole numbers take over.
        small = (2 * sum(weight)) ** self.domain.ndim < 1 << 60
        kind: Any = np.int64 if small else object
        most, tried = 0, set[Pair]()
        for dx, dy in enumerate(reach):
            fresh = along_x[dx] - tried
            tried |= fresh
            if fresh:
                x = Pair(*np.array(sorted(fresh), dtype=kind).T[:, :, None])
                y = Pair(*np.array(sorted(within[dy]), dtype=kind).T[:, None, :])
                most = max(most, int(_cost(x, y, norm).max()))
        return most


class Pair(NamedTuple):
    """Common rows of two cells u, u' of an axis: sums of row weights, each a number or an array of pairs."""

    #: h(u): rows that hold u, that is, whose entry there is not zero.
    first: Any
    #: h(u').
    second: Any
    #: a: rows that hold both with the same sign.
    agree: Any
    #: f: rows that hold both with opposite signs.
    opposite: Any


def _cost(x: Pair, y: Pair, norm: int) -> Any:
    """Return Σ_r w_r |A_r(u, v) − A_r(u', v')|^p of a move.

    It leads from (u, v) to (u', v'); x = (u, u') and y = (v, v').

    The products that hold (u, v) weigh h_u h_v, those that hold (u', v') h_u' h_v'. Products that hold both are in
    both figures: they agree where the factors agree on both axes or on neither, and change by nothing; else they
    are opposite, and change by 2.
    """
    agree = x.agree * y.agree + x.opposite * y.opposite
    opposite = x.agree * y.opposite + x.opposite * y.agree
    return x.first * y.first + x.second * y.second - 2 * agree + (2**norm - 2) * opposite


def _held_weight(haar: _Haar, weight: list[int]) -> NDArray[Any]:
    """Return h(u): sum of the weights of the rows that hold each cell (n,), as Python's whole numbers."""
    held = np.full(haar.n, weight[0], dtype=object)
    for level, (low, _, high) in enumerate(haar.levels, start=1):
        inside = np.zeros(haar.n + 1, dtype=np.int64)
        np.add.at(inside, low, 1)
        np.add.at(inside, high, -1)
        held[inside.cumsum()[:-1] > 0] += weight[level]
    return held


def _different_pairs(haar: _Haar, weight: list[int], longest: int) -> list[set[Pair]]:
    """Return the different pairs of cells d apart, for d = 0, ..., longest.

    Let u < u' part at level m, that of the coarsest segment with a split between them. On each level above, one row
    holds both, in the same half: a = Σ_{l < m} w_l. On level m one row holds both, in opposite halves: f = w_m. No row
    below holds both. So m, h(u) and h(u') are all there is to a pair, and few of these triples are different.
    Both orders of a pair are listed, since the other axis may run either way.
    """
    n, above = haar.n, [0, *accumulate(weight)]
    split = np.zeros(n, dtype=np.int64)  # level of the segment that is split just before each cell
    for level, (_, mid, _) in enumerate(haar.levels, start=1):
        split[mid] = level
    held = _held_weight(haar, weight).tolist()
    # Weights may be of any length: h is packed by its rank among the different values.
    values = sorted(set(held))
    rank_of = {h: i for i, h in enumerate(values)}
    rank = np.array([rank_of[h] for h in held], dtype=np.int64)
    out = [{Pair(h, h, h, 0) for h in values}]
    parting = np.full(n, np.iinfo(np.int64).max)  # least split between u and u + d, for d from 0 on
    for d in range(1, longest + 1):
        parting = np.minimum(parting[: n - d], split[d:])
        packed = np.unique((parting * len(values) + rank[: n - d]) * len(values) + rank[d:])
        pairs: set[Pair] = set()
        for triple in packed.tolist():
            rest, second = divmod(triple, len(values))
            level, first = divmod(rest, len(values))
            a, f = above[level], weight[level]
            pairs.add(Pair(values[first], values[second], a, f))
            pairs.add(Pair(values[second], values[first], a, f))
        out.append(pairs)
    return out
