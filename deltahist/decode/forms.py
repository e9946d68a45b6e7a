"""Quadratic forms over the edges of an axis, as they are made: their means over all intervals need no table.

An interval q is a difference of prefixes, q = Σ_e w_e P_e with P_e all before edge e, so that a variance qᵀ V q is
wᵀ G w with G_ef = P_eᵀ V P_f. A form gives single entries of G, its trace and wᵀ G w; its table is made only when
more entries are asked for than it has.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.strategies.lines import Lines
from deltahist.strategies.product import Factor

#: Numbers in a table that is kept, at most.
MOST_KEPT = 1 << 23
#: Edges (m,) with their weights (m,), which make up m intervals.
Edges: TypeAlias = Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]


class Form:
    """A symmetric matrix G (m + 1, m + 1) over edges; subclasses give `entries` and `whole`, and may know more."""

    #: Edges, m + 1.
    size: int
    #: Multiplications that one entry takes.
    work: int = 1

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        """G_ij, one by one."""
        raise NotImplementedError

    def whole(self, weight: NDArray[np.float64]) -> float:
        """wᵀ G w."""
        raise NotImplementedError

    @functools.cached_property
    def table(self) -> NDArray[np.float64]:
        """G, all of it."""
        edge = np.arange(self.size)
        return np.stack([self.entries(np.full(self.size, i), edge) for i in edge])

    def expect(self, number: int) -> None:
        """Make the table if it pays for so many intervals, and is not too large."""
        if self.size**2 < min(number * self.work, MOST_KEPT):
            self.table  # noqa: B018

    @property
    def tabled(self) -> bool:
        """Whether the table is there."""
        return "table" in self.__dict__

    def at(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        """G_ij: from the table where it is there."""
        return self.table.ravel()[i * self.size + j] if self.tabled else self.entries(i, j)

    def of(self, edges: Edges) -> NDArray[np.float64]:
        """wᵀ G w (m,) of intervals by their edges e with weights w_e."""
        out = np.zeros(len(edges[0][0]))
        for a, (i, v) in enumerate(edges):
            for b, (j, w) in enumerate(edges[: a + 1]):
                out += (1.0 if a == b else 2.0) * v * w * self.at(i, j)
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

    at = entries

    def whole(self, weight: NDArray[np.float64]) -> float:
        return float(weight @ (self.values * weight))


class Overlap(Form):
    """min(s_i, s_j) for sums s that do not fall: what two prefixes of independent parts have in common."""

    def __init__(self, sums: NDArray[np.float64]) -> None:
        self.sums, self.size = sums, len(sums)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.sums[np.minimum(i, j)]

    at = entries

    def whole(self, weight: NDArray[np.float64]) -> float:
        # min(s_i, s_j) = Σ of the steps of s up to the lower edge; each step is in all pairs from its edge on.
        later = np.cumsum(weight[::-1])[::-1]
        return float(np.diff(self.sums, prepend=0.0) @ later**2)


class Prefixes(Form):
    """F⁻ᵀP_i · F⁻ᵀP_j for a square factor F: coefficients of prefixes, each row of F having noise of variance one."""

    def __init__(self, factor: Factor) -> None:
        self.factor, self.size = factor, factor.n + 1

    @functools.cached_property
    def rows(self) -> NDArray[np.float64]:
        """F⁻ᵀP_e (n + 1, n)."""
        prefix = np.tril(np.ones((self.size, self.size - 1)), -1)  # row e: the cells before edge e
        return self.factor.solve_transpose(np.ascontiguousarray(prefix.T)).T

    @functools.cached_property
    def table(self) -> NDArray[np.float64]:
        return self.rows @ self.rows.T

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.table.ravel()[i * self.size + j]

    at = entries

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

    @functools.cached_property
    def table(self) -> NDArray[np.float64]:
        mixed = self.flow.mixed @ self.flow.gain.T
        sums = self.own.sums
        return np.minimum.outer(sums, sums) - mixed - mixed.T

    def of(self, edges: Edges) -> NDArray[np.float64]:
        if self.tabled:
            return super().of(edges)
        g, m = weighted(self.flow.gain, edges), weighted(self.flow.mixed, edges)
        return self.own.of(edges) - 2 * np.einsum("mp,mp->m", g, m)

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

    def of(self, edges: Edges) -> NDArray[np.float64]:
        if self.tabled:
            return super().of(edges)
        gain, out = weighted(self.flow.gain, edges), np.zeros(len(edges[0][0]))
        for corner, weight in edges:
            inner = (corner >= 1) & (corner <= self.size - 2)
            border = np.clip(corner - 1 + self.shift, 0, self.size - 2)
            along = np.einsum("mp,mp->m", gain, self.flow.theta.T[border])
            before = sum(w * (border < edge) for edge, w in edges)
            out += np.where(inner, weight, 0.0) * (along - before)
        return out

    @functools.cached_property
    def table(self) -> NDArray[np.float64]:
        n = self.size - 1
        enters = np.tri(n + 1, n, -1) - self.flow.gain @ self.flow.theta
        half = np.zeros((n + 1, n + 1))
        half[1:n] = -enters[:, self.shift : n - 1 + self.shift].T
        return (half + half.T) / 2

    def whole(self, weight: NDArray[np.float64]) -> float:
        inner = weight[1:-1]
        border = np.arange(1, self.size - 1) - 1 + self.shift
        later = np.cumsum(weight[::-1])[::-1]  # from each edge on
        along = self.flow.theta.T[border] @ (weight @ self.flow.gain)
        return float(inner @ (along - later[border + 1]))


def weighted(rows: NDArray[np.float64], edges: Edges) -> NDArray[np.float64]:
    """Σ_e w_e · row e (m, k), of intervals by their edges."""
    return np.asarray(sum(weight[:, None] * rows[edge] for edge, weight in edges))
