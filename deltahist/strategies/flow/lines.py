"""The noise draws of a flow on a grid, and the estimate of the flow across a line."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import Form, Overlap, weighted
from deltahist.space.workloads.cover import Pieces

#: Names of kinds of draws: noise on moves across one border, and across two.
STRAIGHT, DIAGONAL = "straight flows", "diagonal flows"
#: Binary digits after the point of flows between blocks: rounding adds less than a thousandth of a point squared.
BITS = 4
#: Flows across lines that are worked on at a time, so that what is in between stays small and near.
_AT_A_TIME = 1 << 19


def sums_on(n: int, width: int, centred: bool = False) -> int:
    """Return the number of overlapping sums, a width apart on a line of n borders, one more if centred."""
    return max(1, round(n / width)) + centred


def hats(n: int, width: int, centred: bool = False) -> NDArray[np.int64]:
    """Return weights (sums, n) of the borders in each sum, in units of 1 / (2 width).

    Each sum's weight falls linearly from one at its centre to nothing at its neighbours' centres; before the first
    and behind the last centre it stays one. At every border the weights add up to one. Sums over separate blocks
    would be weighted one inside and nothing outside: a range then ends inside a block with nothing between.
    The first sum begins at the line's start; centred sums leave as much at both ends, and reach beyond them.
    """
    number = sums_on(n, width, centred)
    first = n - 1 - (number - 1) * width if centred else width - 1
    centre = 2 * width * np.arange(number) + first
    place = np.clip(2 * np.arange(n), centre[0], centre[-1])
    return np.maximum(2 * width - np.abs(place - centre[:, None]), 0)


def exact_product(values: NDArray[Any], weights: NDArray[np.int64], axis: int = -1) -> NDArray[Any]:
    """Return values (..., n) times weights (p, n) along the last axis, or the last but one; exact in whole numbers.

    In each row of weights few are not zero, and stand together: only these are multiplied.
    """
    shape = list(values.shape)
    shape[axis] = len(weights)
    out = np.empty(shape, dtype=np.result_type(values, weights))
    for i, row in enumerate(weights):
        places = np.flatnonzero(row)
        some = slice(places[0], places[-1] + 1) if places.size else slice(0)
        if axis == -1:
            out[..., i] = values[..., some] @ row[some]
        else:
            out[..., i, :] = row[some] @ values[..., some, :]
    return out


def strips(flow: NDArray[Any]) -> Iterator[tuple[slice, slice]]:
    """Yield lines of a flow (..., lines, n), a few at a time: the blocks before them, and behind them."""
    number = flow.shape[-2]
    step = max(1, _AT_A_TIME * number // max(1, flow.size))
    for start in range(0, number, step):
        stop = min(start + step, number)
        yield slice(start, stop), slice(start + 1, stop + 1)


def sums_before(before: NDArray[np.float64], edge: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sums before places (m, k), linear between whole edges (n + 1, k)."""
    at = edge.astype(np.int64)
    if (edge == at).all():
        return before[at]
    at = np.minimum(at, len(before) - 2)
    share = (edge - at)[:, None]
    return np.asarray((1 - share) * before[at] + share * before[at + 1])


@dataclass(frozen=True)
class Lines:
    """Least squares along a line of n borders, the same for all lines of one direction.

    T is the flow through each border as the noise on single moves has it, Θ T its weighted sums (`hats`), s those
    sums with noise of their own. The estimate is T + C (s − Θ T) with C = V Θᵀ (Θ V Θᵀ + W)⁻¹ for
    the variances V of T and W of s. A move shifts s and Θ T alike, so that s − Θ T does not change, and the
    estimate shifts by exactly the move, whatever C is and however C (s − Θ T) is rounded.

    Parameters
    ----------
    n : borders per line.
    widths : between the centres of the sums, one level each.
    straight, diagonal : variance of the noise on a move across one border, up to a common factor.
    sums : variance of the noise on the sums of each level.
    centred : whether the sums are (`hats`).
    """

    n: int
    widths: tuple[int, ...]
    straight: float
    diagonal: float
    sums: tuple[float, ...]
    centred: bool = False

    @functools.cached_property
    def diagonals(self) -> NDArray[np.float64]:
        """Number of diagonal moves that count at each border (n,)."""
        out = np.zeros(self.n)
        out[:-1] += 1
        out[1:] += 1
        return out

    @functools.cached_property
    def weights(self) -> NDArray[np.int64]:
        """Θ in whole numbers (p, n): each level's in units of 1 / (2 width)."""
        return np.concatenate(
            [np.zeros((0, self.n), dtype=np.int64), *(hats(self.n, w, self.centred) for w in self.widths)]
        )

    @functools.cached_property
    def level(self) -> NDArray[np.int64]:
        """Level of each sum (p,)."""
        return np.repeat(np.arange(len(self.widths)), [sums_on(self.n, w, self.centred) for w in self.widths])

    @functools.cached_property
    def units(self) -> NDArray[np.float64]:
        """Units of the weights of each sum (p,)."""
        return 2.0 * np.array(self.widths, dtype=np.float64)[self.level] if self.widths else np.zeros(0)

    @functools.cached_property
    def theta(self) -> NDArray[np.float64]:
        """Θ (p, n)."""
        return self.weights / self.units[:, None]

    @functools.cached_property
    def gain(self) -> NDArray[np.float64]:
        """C (n, p)."""
        leaf = self.straight + self.diagonal * self.diagonals
        spread = leaf[:, None] * self.theta.T
        own = np.diag(np.array(self.sums)[self.level]) if self.widths else np.zeros((0, 0))
        return np.asarray(np.linalg.solve(self.theta @ spread + own, spread.T).T if self.widths else spread)

    @functools.cached_property
    def prefix_gain(self) -> NDArray[np.float64]:
        """Sums of C over the borders before each edge (n + 1, p)."""
        out = np.zeros((self.n + 1, self.gain.shape[1]))
        np.cumsum(self.gain, axis=0, out=out[1:])
        return out

    def surplus(self, flow: NDArray[Any], sums: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return s − Θ T (..., lines, p) for flows T (..., lines, n), in the sums' units."""
        return np.concatenate(sums, axis=-1) - exact_product(flow, self.weights)

    def correction(self, flow: NDArray[Any], sums: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return C (s − Θ T) (..., lines, n); of integers, rounded so that sums from the line's start are nearest."""
        surplus = self.surplus(flow, sums)
        if surplus.dtype.kind == "f":
            return surplus / self.units @ self.gain.T
        along = surplus / self.units @ self.prefix_gain.T
        return np.diff(np.rint(along, out=along), axis=-1).astype(surplus.dtype)

    def adjoint(
        self, weights: NDArray[np.float64], sums: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return −ΘᵀCᵀw, the weights on T beside w, for w (lines, n) on `correction`.

        The weights on the sums of each level, Cᵀw, are written into `sums`.
        """
        back = weights @ self.gain
        for level, part in enumerate(sums):
            part[...] = back[:, self.level == level] / (2 * self.widths[level])
        return -back @ self.theta


@dataclass(frozen=True)
class FlowDraws:
    """The draws of a `Flow` between nx × ny blocks, by what they are: views that can be read and filled.

    Noise on borders and their sums has lines along the last axis but one, places along the line on the last; axes
    before them are releases of their own.

    Parameters
    ----------
    east : (nx − 1, ny) straight flow across the line to the right of each column x.
    north : (ny − 1, nx) straight flow across the line above each row y.
    rising, falling : (nx − 1, ny − 1) diagonal flow from (x, y) to (x + 1, y + 1), and from (x, y + 1) to (x + 1, y);
        None in 1-D. It crosses two lines, and counts on each at its left, respectively lower, end.
    sums_x, sums_y : noise of the sums along the lines that `east` and `north` cross, (lines, sums) per level.
    by_kind : all draws (number,) by the name of their kind; the arrays above are views of these.
    """

    east: NDArray[Any]
    north: NDArray[Any]
    rising: NDArray[Any] | None
    falling: NDArray[Any] | None
    sums_x: Sequence[NDArray[Any]]
    sums_y: Sequence[NDArray[Any]]
    by_kind: dict[str, NDArray[Any]]

    @classmethod
    def between(
        cls,
        blocks: tuple[int, ...],
        by_kind: dict[str, NDArray[Any]],
        sums: Sequence[NDArray[Any]],
        lines: Sequence[Lines],
    ) -> FlowDraws:
        """Return the draws of a flow, from arrays of each kind (..., number) and each level of sums."""
        straight = by_kind[STRAIGHT]
        releases = straight.shape[:-1]
        if len(blocks) == 1:
            none = straight[..., :0].reshape(*releases, 0, 1)
            return cls(straight.reshape(*releases, -1, 1), none, None, None, (), (), by_kind)
        nx, ny = blocks
        cut, half = (nx - 1) * ny, (nx - 1) * (ny - 1)
        diagonal = by_kind[DIAGONAL]
        on_x, on_y = ([int((line.level == level).sum()) for level in range(len(sums))] for line in lines)
        return cls(
            straight[..., :cut].reshape(*releases, nx - 1, ny),
            straight[..., cut:].reshape(*releases, ny - 1, nx),
            diagonal[..., :half].reshape(*releases, nx - 1, ny - 1),
            diagonal[..., half:].reshape(*releases, nx - 1, ny - 1),
            tuple(
                s[..., : (nx - 1) * p].reshape(*releases, nx - 1, p) for s, p in zip(sums, on_x, strict=True)
            ),
            tuple(
                s[..., (nx - 1) * p :].reshape(*releases, ny - 1, own)
                for s, p, own in zip(sums, on_x, on_y, strict=True)
            ),
            by_kind,
        )

    def flow_east(self, some: slice, line: Lines | None) -> NDArray[Any]:
        """Return the straight flow to the east across some lines along y (lines, ny), with their sums' part."""
        east = self.east[..., some, :]
        if line is None or self.rising is None or self.falling is None:
            return east
        # T of the lines: all flow to the east, as the single draws have it.
        across = east.copy()
        across[..., :-1] += self.rising[..., some, :]
        across[..., 1:] += self.falling[..., some, :]
        more = line.correction(across, [sums[..., some, :] for sums in self.sums_x])
        more += east
        return more

    def flow_north(self, some: slice, line: Lines | None) -> NDArray[Any]:
        """Return the straight flow to the north across some lines along x (lines, nx), with their sums' part."""
        north = self.north[..., some, :]
        if line is None or self.rising is None or self.falling is None:
            return north
        # What falls flows south.
        across = north.copy()
        across[..., :-1] += self.rising.mT[..., some, :]
        across[..., 1:] -= self.falling.mT[..., some, :]
        more = line.correction(across, [sums[..., some, :] for sums in self.sums_y])
        more += north
        return more


class Diagonal(Form):
    """Independent edges."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values, self.size = values, len(values)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where(i == j, self.values[i], 0.0)

    def whole(self, weight: NDArray[np.float64]) -> float:
        return float(weight @ (self.values * weight))


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
