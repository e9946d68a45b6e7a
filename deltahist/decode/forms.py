"""Quadratic forms over the edges of an axis, as they are made: their means over all intervals need no table.

An interval q is a difference of prefixes, q = Σ_e w_e P_e with P_e all before edge e, so that a variance qᵀ V q is
wᵀ G w with G_ef = P_eᵀ V P_f. A form gives single entries of G, its trace and wᵀ G w. Where many intervals are asked
for, the forms of all intervals between two edges are tabulated once (`Between`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.strategies.lines import Lines
from deltahist.strategies.product import Factor
from deltahist.workloads.pieces import Edges, Pieces

#: Numbers in a table that is kept, at most (half a gigabyte).
MOST_KEPT = 1 << 26
#: A call takes as long without a table as this many intervals.
A_CALL = 8
#: Numbers that are worked out at a time on the way to a table.
_AT_A_TIME = 1 << 20


class Form:
    """A symmetric matrix G (m + 1, m + 1) over edges; subclasses give `entries` and `whole`, and may know more."""

    #: Edges, m + 1.
    size: int
    #: Multiplications that one interval takes; 0 where a table would be slower.
    work: int = 0

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        """G_ij, one by one."""
        raise NotImplementedError

    def rows(self, first: int, stop: int) -> NDArray[np.float64]:
        """G from row `first` to the one before `stop`."""
        i, j = np.divmod(np.arange(first * self.size, stop * self.size), self.size)
        return self.entries(i, j).reshape(stop - first, self.size)

    def whole(self, weight: NDArray[np.float64]) -> float:
        """wᵀ G w."""
        raise NotImplementedError

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        """wᵀ G w (m,) of intervals between any places, in edges."""
        edges, out = intervals.edges, np.zeros(len(intervals.first))
        for a, (i, v) in enumerate(edges):
            for b, (j, w) in enumerate(edges[: a + 1]):
                out += (1.0 if a == b else 2.0) * v * w * self.entries(i, j)
        return out

    def trace(self) -> float:
        """Σ_e G_ee."""
        edge = np.arange(self.size)
        return float(self.entries(edge, edge).sum())


class Diagonal(Form):
    """Independent edges."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values, self.size = values, len(values)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where(i == j, self.values[i], 0.0)

    def whole(self, weight: NDArray[np.float64]) -> float:
        return float(weight @ (self.values * weight))


class Overlap(Form):
    """min(s_i, s_j) for sums s that do not fall: what two prefixes of independent parts have in common."""

    def __init__(self, sums: NDArray[np.float64]) -> None:
        self.sums, self.size = sums, len(sums)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.sums[np.minimum(i, j)]

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        far = self.sums[intervals.last + 1]
        near = self.sums[intervals.first]
        if intervals.whole:
            return far - near
        after, before = self.sums[intervals.first + 1], self.sums[intervals.last]
        apart = (before - after) + intervals.tail**2 * (far - before)
        return intervals.head**2 * (after - near) + np.where(intervals.apart, apart, 0.0)

    def whole(self, weight: NDArray[np.float64]) -> float:
        # min(s_i, s_j) = Σ of the steps of s up to the lower edge; each step is in all pairs from its edge on.
        later = np.cumsum(weight[::-1])[::-1]
        return float(np.diff(self.sums, prepend=0.0) @ later**2)


class Prefixes(Form):
    """F⁻ᵀP_i · F⁻ᵀP_j for a square factor F: coefficients of prefixes, each row of F having noise of variance one."""

    def __init__(self, factor: Factor) -> None:
        self.factor, self.size, self.work = factor, factor.n + 1, factor.n

    @functools.cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """F⁻ᵀP_e (n + 1, n)."""
        prefix = np.tril(np.ones((self.size, self.size - 1)), -1)  # row e: the cells before edge e
        # Row by row in memory: of another layout every box would copy them all.
        return np.ascontiguousarray(self.factor.solve_transpose(np.ascontiguousarray(prefix.T)).T)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.einsum("en,en->e", self.coefficients[i], self.coefficients[j])

    def rows(self, first: int, stop: int) -> NDArray[np.float64]:
        return self.coefficients[first:stop] @ self.coefficients.T

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        own = weighted(self.coefficients, intervals.edges)
        return np.einsum("mn,mn->m", own, own)

    def whole(self, weight: NDArray[np.float64]) -> float:
        # A cell is in the prefixes of all edges behind it.
        held = np.cumsum(weight[::-1])[::-1][1:]
        own = self.factor.solve_transpose(held.reshape(-1, 1))
        return float((own * own).sum())

    def trace(self) -> float:
        return self.factor.prefix_power()


@dataclass(frozen=True, eq=False)
class EstimatedFlow:
    """The estimated flow across a line, as forms over the edges of its borders.

    Let T be the flow through each border as the noise on single moves has it, with variances V (a diagonal matrix: of
    a straight move and of the diagonal ones that count there), and s = Θ T + noise of variance W the sums. The estimate
    is T̂ = T + C (s − Θ T) (`Lines`). With independent noise e of T and f of s its error is (I − CΘ) e + C f, so that

        cov T̂ = (I − CΘ) V (I − CΘ)ᵀ + C W Cᵀ = V − C Θ V − V Θᵀ Cᵀ + C (Θ V Θᵀ + W) Cᵀ.

    Summed over the borders before edges i and j (P the prefixes, g_i = P_iᵀC, b_i = P_iᵀ V Θᵀ) that is
    min(v_i, v_j) − b_i·g_j − g_i·b_j + g_iᵀ S g_j, with v_i the sum of V before i and S = Θ V Θᵀ + W. With
    m_i = b_i − S g_i / 2 it becomes min(v_i, v_j) − m_i·g_j − g_i·m_j: a form of low rank.
    """

    line: Lines
    leaf: NDArray[np.float64]
    sums: NDArray[np.float64]

    @functools.cached_property
    def gain(self) -> NDArray[np.float64]:
        """g (n + 1, p)."""
        return self.line.prefix_gain if self.line.widths else np.zeros((self.line.n + 1, 0))

    @functools.cached_property
    def theta(self) -> NDArray[np.float64]:
        """Θ (p, n)."""
        return self.line.theta if self.line.widths else np.zeros((0, self.line.n))

    @functools.cached_property
    def mixed(self) -> NDArray[np.float64]:
        """m (n + 1, p)."""
        weighted = self.theta * self.leaf
        before = np.zeros((self.line.n + 1, len(self.theta)))
        np.cumsum(weighted.T, axis=0, out=before[1:])
        spread = weighted @ self.theta.T + np.diag(self.sums)
        return before - self.gain @ (spread / 2)


class Side(Form):
    """Covariance of the estimated flow through the borders before each edge (`EstimatedFlow`)."""

    def __init__(self, flow: EstimatedFlow) -> None:
        self.flow, self.size = flow, flow.line.n + 1
        self.work = 1 + 2 * flow.gain.shape[1]
        self.own = Overlap(np.concatenate([[0.0], flow.leaf.cumsum()]))

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        g, m = self.flow.gain, self.flow.mixed
        both = np.einsum("ep,ep->e", m[i], g[j]) + np.einsum("ep,ep->e", g[i], m[j])
        return self.own.entries(i, j) - both

    def rows(self, first: int, stop: int) -> NDArray[np.float64]:
        g, m, sums = self.flow.gain, self.flow.mixed, self.own.sums
        return np.minimum.outer(sums[first:stop], sums) - m[first:stop] @ g.T - g[first:stop] @ m.T

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        g, m = weighted(self.flow.gain, intervals.edges), weighted(self.flow.mixed, intervals.edges)
        return self.own.of(intervals) - 2 * np.einsum("mp,mp->m", g, m)

    def whole(self, weight: NDArray[np.float64]) -> float:
        g, m = weight @ self.flow.gain, weight @ self.flow.mixed
        return self.own.whole(weight) - 2 * float(m @ g)


class Corner(Form):
    """How the single flow at one side of an edge X enters the estimate before an edge e, made symmetric.

    A diagonal move that ends at a box's corner counts on both of the box's lines there, so that the two sides' errors
    are not independent. The single flow at border k enters the sum of estimates before e by
    [k < e] − g_e·Θ_k (I − CΘ, summed over the borders before e). For edges X from 1 to n − 1 border k = X − 1 + shift
    is the one just before (shift 0) or just after X (shift 1); prefixes count it negatively, since a box ends there.
    """

    def __init__(self, flow: EstimatedFlow, shift: int) -> None:
        self.flow, self.shift, self.size = flow, shift, flow.line.n + 1
        self.work = 2 + 2 * flow.gain.shape[1]

    def _half(self, corner: NDArray[np.int64], edge: NDArray[np.int64]) -> NDArray[np.float64]:
        inner = (corner >= 1) & (corner <= self.size - 2)
        border = np.clip(corner - 1 + self.shift, 0, self.size - 2)
        along = np.einsum("ep,ep->e", self.flow.gain[edge], self.flow.theta.T[border])
        return np.where(inner, along - (border < edge), 0.0)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return (self._half(i, j) + self._half(j, i)) / 2

    def rows(self, first: int, stop: int) -> NDArray[np.float64]:
        gain, theta, edge = self.flow.gain, self.flow.theta, np.arange(self.size)
        border = np.clip(edge - 1 + self.shift, 0, self.size - 2)
        inner = (edge >= 1) & (edge <= self.size - 2)
        # How the border at each row's edge enters before all edges, and those at all edges before each row's.
        own = theta.T[border[first:stop]] @ gain.T - (border[first:stop, None] < edge)
        other = gain[first:stop] @ theta[:, border] - (border < edge[first:stop, None])
        return np.asarray((own * inner[first:stop, None] + other * inner) / 2)

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        edges = intervals.edges
        gain, out = weighted(self.flow.gain, edges), np.zeros(len(intervals.first))
        for corner, weight in edges:
            inner = (corner >= 1) & (corner <= self.size - 2)
            border = np.clip(corner - 1 + self.shift, 0, self.size - 2)
            along = np.einsum("mp,mp->m", gain, self.flow.theta.T[border])
            before = sum(w * (border < edge) for edge, w in edges)
            out += np.where(inner, weight, 0.0) * (along - before)
        return out

    def whole(self, weight: NDArray[np.float64]) -> float:
        inner = weight[1:-1]
        border = np.arange(1, self.size - 1) - 1 + self.shift
        later = np.cumsum(weight[::-1])[::-1]  # from each edge on
        along = self.flow.theta.T[border] @ (weight @ self.flow.gain)
        return float(inner @ (along - later[border + 1]))


class Between:
    """Numbers of all intervals between two edges, each a quadratic form of the interval.

    Parameters
    ----------
    size : edges. rows : gives the forms' entries G (stop - first, size, k) from row `first` to the one before `stop`.
    diagonal : their entries on the diagonal (size, k).
    """

    def __init__(
        self, rows: Callable[[int, int], NDArray[np.float64]], diagonal: NDArray[np.float64]
    ) -> None:
        size, k = diagonal.shape
        #: Interval (i, j) stands at `_start`[i] + j: row by row, empty ones (i, i) first.
        self._start = np.concatenate([[0], np.cumsum(np.arange(size - 1, 0, -1))])
        self._table = np.zeros((size * (size + 1) // 2, k))
        step = max(1, _AT_A_TIME // max(1, size * k))
        for first in range(0, size - 1, step):
            stop = min(first + step, size - 1)
            some = diagonal[first:stop, None] + diagonal - 2 * rows(first, stop)
            for own, i in zip(some, range(first, stop), strict=True):
                self._table[self._start[i] + i + 1 : self._start[i] + size] = own[i + 1 :]
        #: From each edge to the next: small, unlike the table, so that it stays near the processor.
        self._next = np.zeros((size, k))
        self._next[:-1] = self._table[self._start[:-1] + np.arange(1, size)]

    def of(self, intervals: Pieces, place: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Of intervals between any places (m, k), in edges; `place` says which edges are the same as others."""
        ends = [intervals.first, intervals.first + 1, intervals.last, intervals.last + 1]
        near, after, before, far = ends if place is None else (place[end] for end in ends)
        if intervals.whole:
            return self._at(self._start[near] + far)
        head, tail = intervals.head, intervals.tail
        if place is None:
            return self._cut(ends, head, tail)
        out = self._at(self._start[near] + far)
        some = ((head < 1) & (near < after)) | ((tail < 1) & (before < far))
        out[some] = self._cut([end[some] for end in (near, after, before, far)], head[some], tail[some])
        return out

    def _cut(
        self, ends: Sequence[NDArray[np.int64]], head: NDArray[np.float64], tail: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Of intervals that cut cells: bilinear between the cells' edges, but that a share of a cell counts squared.

        Within one cell the tail is 1, so that what stands for an edge after the one behind it counts nothing.
        """
        near, after, before, far = ends
        low, high = self._start[near], self._start[after]
        a, b = head[:, None], tail[:, None]
        out = self._at(low + far)
        out *= a * b
        out += a * (1 - b) * self._at(low + before)
        out += (1 - a) * b * self._at(high + far)
        out += (1 - a) * (1 - b) * self._at(high + before)
        out -= a * (1 - a) * (near < after)[:, None] * np.take(self._next, near, axis=0)
        out -= b * (1 - b) * (before < far)[:, None] * np.take(self._next, before, axis=0)
        return out

    def _at(self, row: NDArray[np.int64]) -> NDArray[np.float64]:
        # An index in brackets takes rows ten times as long.
        return np.take(self._table, row, axis=0)


def weighted(rows: NDArray[np.float64], edges: Edges) -> NDArray[np.float64]:
    """Σ_e w_e · row e (m, k), of intervals by their edges."""
    return np.asarray(sum(weight[:, None] * np.take(rows, edge, axis=0) for edge, weight in edges))
