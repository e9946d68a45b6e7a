"""Decoding flows, and the errors of their answers: in closed form over boxes, and by the rims of other queries.

Block sums are the estimate as they come; cells share what their block gains. Noise on a border enters an answer by how
much the query differs on both sides of the border: only borders at a rim have some. Sums along a line spread all that
crosses the line over its borders; that part is a sum over few waves. Hubs are few, and enter by their sums' waves.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import LEAST_SQUARED, Asked, Decoder, Moments
from deltahist.decode.forms import (
    BilinearForm,
    BlockPower,
    BoxFunction,
    FloatArray,
    IndependentIncrements,
    IntArray,
    IntervalForms,
    IntervalFunction,
    MixedMoment,
    QuadraticForm,
    QueryBoxes,
    SumOfProducts,
    Windows,
    combine_rows,
    cumulate_rows,
    interpolate_sums,
    iterate_query_boxes,
    mean_increment_product,
)
from deltahist.space.cover import Pieces, RegionCover, Span, counted, prefix_sums, sums_between
from deltahist.space.workloads import AllRanges, Boxes
from deltahist.strategies.base import Starts, spread_blocks, sum_blocks
from deltahist.strategies.flow.lines import Lines, Sums
from deltahist.strategies.flow.noise import (
    ARRIVALS,
    BITS,
    DIAGONAL,
    HUB_STRIPS,
    HUB_SUMS,
    HUBS,
    STRAIGHT,
    HubLine,
    Hubs,
    joint,
)

if TYPE_CHECKING:
    from deltahist.strategies.flow import Flow

_ONE = float(1 << BITS)
#: Parts of a sum of products that are smaller than this, against the largest, are rounding.
_ROUNDING = 1e-12
#: Variance and fourth cumulant of a draw, a flow being counted in points.
Cumulants: TypeAlias = tuple[float, float]


# -- forms along a line ----------------------------------------------------------------------------------------


class Diagonal(QuadraticForm):
    """Independent edges."""

    def __init__(self, values: FloatArray) -> None:
        self.values, self.size = values, len(values)

    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        return np.where(i == j, self.values[i], 0.0)

    def value_at(self, weight: FloatArray) -> float:
        return float(weight @ (self.values * weight))


class Steps(QuadraticForm):
    """−½ for the border just before (shift 0) or behind (1) an inner edge that lies before another, made symmetric."""

    def __init__(self, size: int, shift: int) -> None:
        self.size, self.shift = size, shift
        #: G_ij for i < j, which depends on i alone (size,).
        self.before = np.full(size, -0.5)
        self.before[0] = 0.0

    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        one, other = (((a > 0) & (a < self.size - 1)) & (a - 1 + self.shift < b) for a, b in ((i, j), (j, i)))
        return -0.5 * np.add(one, other, dtype=np.float64)

    def value_at(self, weight: FloatArray) -> float:
        later = np.cumsum(weight[::-1])[::-1]  # from each edge on
        inner = np.arange(1, self.size - 1)
        return -float(weight[inner] @ later[inner + self.shift])


class LowRank(QuadraticForm):
    """A form, and Σ_p (a_ip b_jp + b_ip a_jp) for a and b over the edges (size, p)."""

    def __init__(self, base: IndependentIncrements | Steps, a: FloatArray, b: FloatArray) -> None:
        self.base, self.a, self.b, self.size = base, a, b, base.size

    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        both = np.einsum("ep,ep->e", self.a[i], self.b[j]) + np.einsum("ep,ep->e", self.b[i], self.a[j])
        return self.base.entries_at(i, j) + both

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        a, b = combine_rows(self.a, intervals.edges), combine_rows(self.b, intervals.edges)
        return self.base.evaluate_pieces(intervals) + 2 * np.einsum("mp,mp->m", a, b)

    def value_at(self, weight: FloatArray) -> float:
        return self.base.value_at(weight) + 2 * float((weight @ self.a) @ (weight @ self.b))


class Patches:
    """Forms of intervals along an axis, from few numbers: between two knots, forms are polynomials of both edges.

    For edges i < j a form is G_ij = Σ_p a_ip b_jp, with a and b quadratic from each knot to the next. At a share u of
    the way these are sums of 1, u and u (1 − u), so that G_ij is a sum of nine products, with weights for each pair of
    stretches. That table is small, and no answer depends on what was asked before.

    Parameters
    ----------
    knots : some of the edges (s + 1,), with the first, the last, and all where a or b bends.
    own, beside : G_ii (k, n + 1) and G_ij for the next j (k, n), at the edges of cells.
    pairs : a and b (size, p) of the last of the k forms; others are nothing between different edges.
    place : where among the edges each edge of cells is (n + 1,): at that of the cell before, or one further.
    """

    def __init__(
        self,
        knots: IntArray,
        own: FloatArray,
        beside: FloatArray,
        pairs: Sequence[tuple[FloatArray, FloatArray]],
        place: IntArray,
    ) -> None:
        self._own, self._cell = own, own[:, :-1] + own[:, 1:] - 2 * beside
        length, number = np.diff(knots), len(knots) - 1
        #: The stretch of each cell, and the shares of the way at which its edges are.
        self._stretch = np.repeat(np.arange(number), length).take(place[:-1], mode="clip")
        first, length = knots[self._stretch], length[self._stretch]
        self._near, self._far = (place[:-1] - first) / length, (place[1:] - first) / length
        tables = []
        for pair in pairs:
            a, b = (_in_shares(values, knots) for values in pair)
            tables.append((a @ b.T).reshape(3, number, 3, number).swapaxes(1, 2).reshape(9, -1))
        #: Weights of the nine products, for each form and two stretches.
        self._number, self._table = number, np.concatenate(np.stack(tables, axis=1))
        # What an edge has with itself beyond the products.
        start = self._stretch, self._near, self._near * (1 - self._near)
        self._rest = own[:, :-1] - self._products(start, start)

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        """Return the forms of intervals between any places (k, m), in cells."""
        first, last, head, tail = intervals.first, intervals.last, intervals.head, intervals.tail
        out = self._products(self._at(first, 1 - head), self._at(last, tail))
        if intervals.whole:
            out *= -2
            out += self._own.take(first, axis=1)
            out += self._own.take(last + 1, axis=1)
            return out
        beside = np.flatnonzero(last == first + 1)
        out[:, beside] += (1 - head[beside]) * (1 - tail[beside]) * self._rest.take(last[beside], axis=1)
        out *= -2
        for cell, share in ((first, 1 - head), (last, tail)):
            out += (1 - share) * self._own.take(cell, axis=1)
            out += share * self._own.take(cell + 1, axis=1)
            out -= share * (1 - share) * self._cell.take(cell, axis=1)
        alone = np.flatnonzero(last == first)
        out[:, alone] = head[alone] ** 2 * self._cell.take(first[alone], axis=1)
        return out

    def _at(self, cell: IntArray, share: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the stretch of places in cells, and how much of u and u (1 − u) is there."""
        near, far, rest = self._near.take(cell), self._far.take(cell), 1 - share
        return (
            self._stretch.take(cell),
            rest * near + share * far,
            rest * near * (1 - near) + share * far * (1 - far),
        )

    def _products(
        self, start: tuple[IntArray, FloatArray, FloatArray], stop: tuple[IntArray, FloatArray, FloatArray]
    ) -> FloatArray:
        """Return the sum of the nine products for each form (k, m)."""
        found = self._table.take(start[0] * self._number + stop[0], axis=1).reshape(3, 3, -1, len(start[0]))
        out = np.zeros((len(self._own), len(start[0])))
        for rows, (_, share, bend) in ((found.swapaxes(0, 1), stop), (found[:, 0], start)):
            rows[1] *= share
            rows[2] *= bend
            rows[0] += rows[1]
            rows[0] += rows[2]
        out[-found.shape[2] :] = found[0, 0]
        return out


def _in_shares(values: FloatArray, knots: IntArray) -> FloatArray:
    """Return how much of 1, u and u (1 − u) values (size, p) are on each stretch between knots (3 s, p)."""
    low, high = knots[:-1], knots[1:]
    middle = (low + high) // 2
    share = ((middle - low) / (high - low))[:, None]
    rise = values[high] - values[low]
    # Between neighbours there is no edge at which values could bend.
    bend = (values[middle] - values[low] - share * rise) / np.where(share > 0, share * (1 - share), 1.0)
    return np.concatenate([values[low], rise, bend])


class Sides(IntervalForms):
    """The rim of an interval, and the three forms of the flow estimated across a line (`estimated_flow`)."""

    def __init__(self, rim: QuadraticForm, flow: Sequence[LowRank], knots: IntArray, edges: FloatArray | None) -> None:
        super().__init__([rim, *flow], edges)
        self._flow, self._knots = flow, knots

    @functools.cached_property
    def _patches(self) -> Patches:
        edge = np.arange(self.forms[0].size)
        own, beside = (
            np.array([form.entries_at(some, other) for form in self.forms])
            for some, other in ((edge, edge), (edge[:-1], edge[1:]))
        )
        pairs = [
            (np.column_stack([form.base.before, form.a, form.b]), np.column_stack([np.ones(form.size), form.b, form.a]))
            for form in self._flow
        ]
        return Patches(self._knots, own, beside, pairs, edge)

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        return self._patches.evaluate_pieces(intervals)


def estimated_flow(
    line: Lines, straight: float, diagonal: float, sums: Sequence[float]
) -> tuple[LowRank, LowRank, LowRank]:
    """Return the covariance of the estimated flow before each edge of a line, and the two tables of box corners.

    The variances of draws, and of each level of sums, are given in points. Before edges i and j the covariance is
    min(v_i, v_j) − m_i·g_j − g_i·m_j, with v_i the sum of V before i, g = P C, m = P V Θᵀ − g S / 2, S = Θ V Θᵀ + W,
    and P the prefixes. The flow of a move at border k enters the sum of estimates before e by [k < e] − g_e·Θ_k; tables
    are of the borders just before and just behind inner edges (docs/internals/theory.md, section 5).
    """
    leaf, theta, gain = straight + diagonal * line.diagonals, line.windows.theta, line.prefix_gain
    mixed = gain @ (line.spread(leaf, sums) / 2)
    mixed -= cumulate_rows((theta * leaf).T)
    corners = []
    for shift in (0, 1):
        at_edge = np.zeros_like(gain)
        at_edge[1:-1] = theta.T[shift : shift + line.n - 1] / 2
        corners.append(LowRank(Steps(line.n + 1, shift), at_edge, gain))
    return LowRank(IndependentIncrements(cumulate_rows(leaf)), mixed, gain), corners[0], corners[1]


# -- hubs, over boxes ------------------------------------------------------------------------------------------


class HubVariance:
    """Covariance of the inflow at hubs, and the part that a public total takes away.

    With noise of variance v of their own, and w on a level of sums with the eigenvalues λ, it is T² (v + Σ w λ/ρ²) for
    each product of waves along both axes (T and ρ as in `Hubs`). With a and b for the waves, and the identity where an
    index is 0, that is Σ_ij K_ij a_i a_iᵀ ⊗ b_j b_jᵀ. A public total takes away (q·m)² / Σ m, m what the covariance
    makes of all ones.

    Variances `own`, `sums` are of draws in points; `edges` is where each edge of cells lies among the blocks, per axis,
    None if blocks are cells.
    """

    def __init__(self, hubs: Hubs, edges: list[FloatArray | None], own: float, sums: Sequence[float]) -> None:
        self.hubs, self.own, self.edges = hubs, own, edges
        self._lines = hubs.axes[: len(edges)]
        levels = zip(sums, hubs.ratios, hubs.levels, strict=False)
        #: Variance of each product of waves, and K.
        self.waves = hubs.trust**2 * (own + sum(w / ratio**2 * level for w, ratio, level in levels))
        self.joint = joint(self.waves)

    @functools.cached_property
    def onto_total(self) -> tuple[FloatArray, float]:
        """m in waves (k, l), and Σ m, the variance of all that enters; 0 where there is next to no noise."""
        core = self.waves[1:, 1:] * self.hubs.ones
        return core, float((core * self.hubs.ones).sum())

    def second(self, total_known: bool) -> tuple[float, WavesKnown]:
        """Return the term of the variance."""
        core, spread = self.onto_total if total_known else (np.zeros_like(self.joint[1:, 1:]), 1.0)
        # Without noise there is nothing that a total could take away.
        return 1.0, WavesKnown(self._lines, self.edges, self.joint, core / np.sqrt(spread) if spread > 0 else core)

    def fourth(self, kurtosis: float) -> tuple[float, tuple[Fourths, ...]]:
        """Return the term of their own noise's fourth cumulant in full weight; sums and total make it a little less."""
        lines = zip(self._lines, self.edges, strict=True)
        before = (line.before if edge is None else interpolate_sums(line.before, edge) for line, edge in lines)
        return kurtosis * self.own**2, tuple(map(Fourths, before))


@dataclass(frozen=True, eq=False)
class Fourths(IntervalFunction):
    """Σ over hubs of (share of the hub's block in the interval)⁴; `before` are hubs up to edges (n + 1, 1)."""

    before: FloatArray

    def __call__(self, low: FloatArray, high: FloatArray) -> FloatArray:
        return BlockPower(1, 4)(*(interpolate_sums(self.before, place)[:, 0] for place in (low, high)))


class WavesKnown(BoxFunction):
    """Σ_ij K_ij a_i(q) b_j(q) − (Σ_ij M_ij (a_i·q) (b_j·q))² for a box q, which is a product over the axes.

    For waves a_i(q) is (a_i·q)², and for i = 0 the squared length of q. K (`squared`) and M (`whole`) are nearly of low
    rank: a few products are all of each. On a line there is no b, and it stands for a single wave. `edges` is where
    each edge of cells lies among the blocks, per axis, None if blocks are cells.
    """

    def __init__(
        self, lines: Sequence[HubLine], edges: Sequence[FloatArray | None], squared: FloatArray, whole: FloatArray
    ) -> None:
        self._lines, self._edges, self.squared, self.whole = lines, edges, squared, whole
        squares, sums = _factors(squared), _factors(whole)
        self._axes = [_Waves(*each) for each in zip(lines, edges, squares, sums, strict=False)]
        #: On a line, what the products are with.
        self._line = (squares[1].sum(axis=0)[:, None], sums[1][0][:, None]) if len(lines) == 1 else None

    def __call__(self, spans: Sequence[Span]) -> FloatArray:
        found = [axis(*span) for axis, span in zip(self._axes, spans, strict=True)]
        squares, sums = zip(*found if self._line is None else (*found, self._line), strict=True)
        return np.asarray(sum_products(*squares) - sum_products(*sums) ** 2)

    def mean_over_boxes(self, shape: tuple[int, ...]) -> float:
        pairs = []
        for line, edge, n in zip(self._lines, self._edges, shape, strict=True):
            own = line.waves_before if edge is None else interpolate_sums(line.waves_before, edge)
            pairs.append(mean_increment_product(own.T @ own, np.multiply.outer(own.sum(axis=0), own.sum(axis=0)), n))
        x, y = pairs + [np.ones((1, 1))] * (2 - len(shape))
        alike = [axis.alike.mean_over_intervals(n) for axis, n in zip(self._axes, shape, strict=True)] + [1.0]
        one, other = (np.append(mean, np.diag(own)) for mean, own in zip(alike, (x, y), strict=False))
        return float(one @ self.squared @ other - ((x @ self.whole) * (self.whole @ y)).sum())


class _Waves:
    """Waves along an axis: `weight` (1 + k, r) times |q|² and (a·q)², `factor` (k, s) times a·q, for intervals q."""

    def __init__(self, line: HubLine, edges: FloatArray | None, weight: FloatArray, factor: FloatArray) -> None:
        self.alike = IntervalForms([IndependentIncrements(line.before[:, 0])], edges)
        self._line, self._weight, self._hubs = line, weight, line.before[:, 0].astype(np.int64)
        self._before = cumulate_rows(line.waves.T)
        self._linear = self._before @ factor

    @functools.cached_property
    def _squares(self) -> Patches:
        before, weight = self._before, self._weight[1:]
        near, far = before[self._hubs[:-1]], before[self._hubs[1:]]
        own, beside = (before**2 @ weight)[self._hubs].T, ((near * far) @ weight).T
        return Patches(self._line.knots, own, beside, [(before * each, before) for each in weight.T], self._hubs)

    def __call__(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        intervals = self.alike.in_blocks(low, high)
        squares = self._squares.evaluate_pieces(intervals)
        squares += np.multiply.outer(self._weight[0], self.alike.evaluate_pieces(intervals)[0])
        return squares, combine_rows(self._linear, [(self._hubs[edge], share) for edge, share in intervals.edges]).T


def sum_products(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return Σ_k of products (m,) of arrays (k, m), added up in this order."""
    return np.asarray(sum(a * b for a, b in zip(one, other, strict=True)))


def _factors(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return L (k, r) and R (l, r) with L Rᵀ the matrix, r its rank beyond rounding."""
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    some = int(np.count_nonzero(sizes > _ROUNDING * max(sizes[0], np.finfo(float).tiny)))
    return left[:, :some] * sizes[:some], right[:some].T


# -- the decoder -----------------------------------------------------------------------------------------------


class FlowDecoder(Decoder):
    """Cells ĉ = y₁ + Sᵀ N⁻¹ (y₂ − S y₁): y₁ cells, y₂ block sums, N block sizes.

    With blocks of single cells ĉ = y₂. A box's variance is the sum over its four sides of the variance of the
    flow across (docs/internals/theory.md, section 5), with the diagonal moves at its corners counted once.
    """

    strategy: Flow

    def solve(self, values: FloatArray) -> FloatArray:
        return self._cells(values, self._sums(values))

    def _sums(self, values: NDArray[Any]) -> FloatArray:
        """Return block sums y₂ (blocks), in points."""
        flow = self.strategy
        return np.asarray(values[flow.shape[0] - flow.size :].reshape(flow.blocks) / _ONE)

    def _cells(self, values: NDArray[Any], sums: FloatArray) -> FloatArray:
        """Return ĉ (N,) from y₁ and the block sums."""
        flow = self.strategy
        if flow.plain:
            return sums.ravel()
        cells = values[: self.domain.size].reshape(self.domain.shape)
        return _joined(cells, sums, flow.starts, self._block_sizes).ravel()

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        flow = self.strategy
        if flow.plain:
            return query / _ONE
        box = query.reshape(self.domain.shape)
        share = sum_blocks(box, flow.starts) / self._block_sizes
        rest = box - spread_blocks(share, flow.starts, self.domain.shape)
        return np.concatenate([rest.ravel(), share.ravel() / _ONE])

    def estimate_cells(self, values: NDArray[Any], total: int | None) -> FloatArray:
        sums = self._sums(values)
        if self.total_known and total is not None and self._spread > 0:
            self._add_inflow(sums, (total - sums.sum()) / self._spread)
        return self._cells(values, sums).reshape(self.domain.shape)

    def answer_coefficients(self, query: FloatArray) -> FloatArray:
        return self.solve_adjoint(query) if self.strategy.keeps_total else super().answer_coefficients(query)

    @functools.cached_property
    def onto_total(self) -> tuple[FloatArray, FloatArray, float]:
        if self.strategy.keeps_total:
            return super().onto_total
        values = np.zeros(self.strategy.shape[0])
        self._add_inflow(values[self.strategy.shape[0] - self.strategy.size :], _ONE)
        return self.solve_adjoint(np.ones(self.domain.size)), self.solve(values), self._spread

    def _add_inflow(self, sums: FloatArray, times: float) -> None:
        """Add to sums of blocks so many times the covariance of what enters there with all that enters."""
        sums.reshape(-1)[self.strategy.entries] += self._entry * times
        if self._hubs is not None:
            x, y = self._hubs.hubs.axes
            inflow = x.waves.T @ self._hubs.onto_total[0] @ y.waves
            sums.reshape(x.n, y.n)[np.ix_(x.places, y.places)] += inflow * times

    @functools.cached_property
    def _spread(self) -> float:
        """Variance of all that enters, at hubs and where there are arrivals; flows do not change the total."""
        hubs = 0.0 if self._hubs is None else self._hubs.onto_total[1]
        return hubs + len(self.strategy.entries) * self._entry

    @functools.cached_property
    def _block_sizes(self) -> FloatArray:
        return sum_blocks(np.ones(self.domain.shape), self.strategy.starts)

    @functools.cached_property
    def _cumulants(self) -> dict[str, Cumulants]:
        """Variance and fourth cumulant of a draw by the name of its group."""
        out = {}
        for group, law in zip(self.strategy.groups, self.laws, strict=True):
            variance = law.variance() * float(group.unit) ** 2
            out[group.name] = variance, law.kurtosis() * variance * variance
        return out

    def _of_kinds(self, names: Sequence[str]) -> list[Cumulants]:
        """Return the cumulants of some kinds, if there are draws of them."""
        return [self._cumulants[name] for name in names if name in self._cumulants]

    # -- errors of boxes, in closed form -------------------------------------------------------------------

    @functools.cached_property
    def _edges(self) -> list[FloatArray | None]:
        """Where each edge of cells lies among the blocks, per axis; None if blocks are cells."""
        if self.strategy.plain:
            return [None] * self.domain.ndim
        return [np.interp(np.arange(cut[-1] + 1), cut, np.arange(len(cut) + 0.0)) for cut in self._cuts]

    @functools.cached_property
    def _cuts(self) -> list[IntArray]:
        """The first cell of every block, and the number of cells, per axis."""
        return [np.append(s, n) for n, s in zip(self.domain.shape, self.strategy.starts, strict=True)]

    @functools.cached_property
    def _hubs(self) -> HubVariance | None:
        if self.strategy.hub_noise is None:
            return None
        sums = [variance for variance, _ in self._of_kinds([HUB_SUMS, HUB_STRIPS])]
        return HubVariance(self.strategy.hub_noise, self._edges, self._cumulants[HUBS][0], sums)

    @functools.cached_property
    def _rims(self) -> list[IntervalForms]:
        """Σ of the squared weights of the inner lines that an interval ends at, per axis."""
        inner = (Diagonal(np.pad(np.ones(m - 1), 1)) for m in self.strategy.blocks)
        return [IntervalForms([form], edge) for form, edge in zip(inner, self._edges, strict=True)]

    def box_cumulant(self, order: int) -> SumOfProducts | None:
        # Beside a public total nothing but hubs may let mass enter.
        flow = self.strategy
        if flow.arrivals is not None and self.total_known:
            return None
        return self._second if order == 2 else self._fourth

    @functools.cached_property
    def _second(self) -> SumOfProducts:
        straight = self._cumulants[STRAIGHT][0]
        out: list[Any] = [(straight, (self._rims[0],)) if len(self._rims) == 1 else (1.0, self._across(straight))]
        if not self.strategy.plain:
            cuts = zip(self._cuts, self._edges, strict=True)
            shared = tuple(IntervalForms([IndependentIncrements(cut.astype(np.float64))], edge) for cut, edge in cuts)
            cells = self._cumulants["cells"][0]
            out += [(cells, tuple(BlockPower(1, 2) for _ in shared)), (-cells, shared)]
        return out if self._hubs is None else [*out, self._hubs.second(self.total_known)]

    def _across(self, straight: float) -> BilinearForm:
        """Return sides along y times ends along x, and the other way round; then the corners.

        Var = J_x G_y + G_x J_y + σ_d² (J_x J_y + 2 J_x B_y + 2 B_x J_y + 2 B_x B_y − 2 B'_x B'_y), derived in
        docs/internals/theory.md: here J is a rim, and G, B and B' are the forms of `estimated_flow`, each a function
        of an interval along its axis.
        """
        flow, d = self.strategy, self._cumulants[DIAGONAL][0]
        sums = [self._cumulants[name][0] for name in flow.sums]

        def sides(axis: int) -> Sides:
            # The lines that cross x run along y, and their forms are over places along y.
            line, (rim,) = flow.lines[1 - axis], self._rims[axis].forms
            return Sides(rim, estimated_flow(line, straight, d, sums), line.knots, self._edges[axis])

        x = sides(0)
        square = self.domain.shape[0] == self.domain.shape[1] and flow.sides[0] == flow.sides[1]
        axes = x, x if square else sides(1)
        weights = np.array([[d, 1, 2 * d, 0], [1, 0, 0, 0], [2 * d, 0, 2 * d, 0], [0, 0, 0, -2 * d]])
        return BilinearForm(axes, weights)

    @functools.cached_property
    def _fourth(self) -> SumOfProducts:
        """Fourth cumulant: exact for cells; of flows the single moves through the rim, in full weight.

        Sums along lines and the corners are left out, and least squares gives single moves a little less weight.
        """
        flow, weight = self.strategy, self.laws[0].kurtosis()
        known = {name: weight * variance**2 for name, (variance, _) in self._cumulants.items()}
        if len(flow.blocks) == 1:
            out: list[Any] = [(known[STRAIGHT], (self._rims[0],))]
        else:
            each = known[STRAIGHT] + 2 * known[DIAGONAL]
            # An end along x crosses a border in each row of blocks: as many as its cells along y over their height.
            (wide, high), (x, y), length = flow.sides, self._rims, BlockPower(1, 4)
            out = [(each / high, (x, length)), (each / wide, (length, y))]
        if not flow.plain:
            # Σ (q − q̄)⁴, where Σ q q̄³ = Σ q̄⁴ block by block
            for times, own in ((1, 4), (-4, 3), (6, 2), (-3, 1)):
                out.append((times * known["cells"], tuple(MixedMoment(cut, own, 4 - own) for cut in self._cuts)))
        return out if self._hubs is None else [*out, self._hubs.fourth(weight)]

    # -- arrivals, over boxes ------------------------------------------------------------------------------

    @property
    def _entry(self) -> float:
        """Variance of what enters at a block where entities may appear."""
        return self._cumulants.get(ARRIVALS, (0.0, 0.0))[0]

    @functools.cached_property
    def _entry_shares(self) -> FloatArray:
        """Share of a block in each cell, where entities may appear; a box's own share squared is less."""
        flow = self.strategy
        entered = np.zeros(flow.size)
        entered[flow.entries] = 1.0
        return spread_blocks(entered.reshape(flow.blocks) / self._block_sizes, flow.starts, self.domain.shape)

    @functools.cached_property
    def _entries_before(self) -> FloatArray:
        """Shares of entry points summed up to every edge of cells."""
        return prefix_sums(self._entry_shares)

    def _arriving(self, work: Asked) -> FloatArray | float:
        """Return the variance that arrivals add to the closed form of boxes (m,)."""
        if not self._entry or not isinstance(work, Boxes | AllRanges) or not self.has_closed_form:
            return 0.0
        return self._entry * sums_between(self._entries_before, work.spans(self.domain))

    def mean_variance(self, work: AllRanges) -> float:
        mean = super().mean_variance(work)
        if not self._entry or not self.has_closed_form:
            return mean
        shares = self._entry_shares
        for n in reversed(self.domain.shape):
            cell = np.arange(n)
            shares = shares @ ((cell + 1) * (n - cell) / (n * (n + 1) / 2))
        return mean + self._entry * float(shares)

    @property
    def note(self) -> str:  # type: ignore[override]
        return "a bound" if self._entry and self.has_closed_form and not self.strategy.plain else "exact"

    # -- errors of any work --------------------------------------------------------------------------------

    def moments(self, work: Asked) -> Moments:
        if not isinstance(work, Boxes | AllRanges) and self._by_rims:
            return self._of_queries(work)
        found = super().moments(work)
        found.variance[...] += self._arriving(work)
        return found

    def answer_variance(self, work: Asked) -> FloatArray:
        if not isinstance(work, Boxes | AllRanges) and self._by_rims:
            return self._of_queries(work, kurtosis=False).variance
        return super().answer_variance(work) + self._arriving(work)

    @property
    def _by_rims(self) -> bool:
        """Whether explicit queries are priced by their rims: on grids, where only hubs let mass enter."""
        return len(self.strategy.blocks) == 2 and min(self.strategy.blocks) > 1 and self.strategy.arrivals is None

    def _of_queries(self, queries: RegionCover | scipy.sparse.csr_array, kurtosis: bool = True) -> Moments:
        """Return errors of regions or explicit queries (m, N), by their rims."""
        cover = queries if isinstance(queries, RegionCover) else RegionCover.of_rows(queries, self.domain.shape)
        variance, fourth = np.zeros((2, cover.number))
        if not self.strategy.plain:
            cover, *left = self._in_blocks(cover, 4 if kurtosis else 2)
            for out, cumulant, powers in zip((variance, fourth), self._cumulants["cells"], left, strict=False):
                out += cumulant * powers
        for around in iterate_query_boxes(cover, self.strategy.blocks):
            for part in self._rim_errors:
                own, own_fourth = part.of(around, kurtosis)
                variance[around.some] += own
                fourth[around.some] += own_fourth
        variance[variance < self.rounding_floor] = 0.0
        known_well = variance > LEAST_SQUARED
        excess = np.divide(fourth, variance**2, out=np.zeros_like(variance), where=known_well)
        return Moments(variance, excess, note=self.note)

    @functools.cached_property
    def _rim_errors(self) -> list[RimErrors | HubErrors]:
        """Of flows between blocks, and of hubs if there are any."""
        flow, known = self.strategy, self._cumulants
        out: list[RimErrors | HubErrors] = [
            RimErrors(flow.lines, known[STRAIGHT], known[DIAGONAL], self._of_kinds(flow.sums))
        ]
        if self._hubs is not None:
            sums = [fourth for _, fourth in self._of_kinds([HUB_SUMS, HUB_STRIPS])]
            out.append(HubErrors(self._hubs, known[HUBS][1], sums, self.total_known))
        return out

    def _in_blocks(self, cover: RegionCover, order: int) -> tuple[RegionCover, *tuple[FloatArray, ...]]:
        """Return queries by the shares of blocks that they hold, and the power of the residuals of cells.

        These are Σ of second and, if that is the order, of fourth powers (m,).
        """
        flow, blocks = (
            self.strategy,
            [np.searchsorted(cut, np.arange(cut[-1]), "right") - 1 for cut in self._cuts],
        )
        # Of each rectangle, how many of its cells are in each block that it meets.
        begin, end = ([each[place[:, a]] for a, each in enumerate(blocks)] for place in (cover.low, cover.high - 1))
        wide, tall = (last - first + 1 for first, last in zip(begin, end, strict=True))
        which = np.repeat(np.arange(len(wide)), wide * tall)
        x, y = np.divmod(counted(wide * tall), tall[which])
        x, y = x + begin[0][which], y + begin[1][which]
        number = np.ones(len(which))
        for axis, (block, cut) in enumerate(zip((x, y), self._cuts, strict=True)):
            low, high = cover.low[which, axis], cover.high[which, axis]
            number *= np.minimum(high, cut[block + 1]) - np.maximum(low, cut[block])
        owner = np.concatenate([cover.owner, cover.whole[which]])
        block = np.concatenate([blocks[0][cover.x] * flow.blocks[1] + blocks[1][cover.y], x * flow.blocks[1] + y])
        place = owner * flow.size + block
        by_block = np.argsort(place, kind="stable")
        begins = np.flatnonzero(np.diff(place[by_block], prepend=-1))

        def per_block(power: int) -> FloatArray:
            each = np.concatenate([cover.share**power, number])[by_block]
            return np.add.reduceat(each, begins) if len(begins) else each

        one, two, *more = (per_block(power) for power in range(1, order + 1))
        own, block = np.divmod(place[by_block[begins]], flow.size)
        mean = one / self._block_sizes.ravel()[block]
        # Block by block, so that nothing is left of whole blocks.
        left = [two - mean * one]
        if more:
            three, four = more
            left.append(four - 4 * mean * three + 6 * mean**2 * two - 3 * mean**3 * one)
        of_rest = (np.bincount(own, part, cover.number).astype(np.float64) for part in left)
        return RegionCover.of_cells(cover.number, flow.blocks, own, block, mean), *of_rest


# -- errors of queries, by their rims --------------------------------------------------------------------------


class _NearSums:
    """Weighted sums along a line, of which few hold a place, and tables (sums, places) of them."""

    def __init__(self, windows: Sums, *tables: FloatArray) -> None:
        self._tables, self._levels = [Windows(table) for table in tables], windows.ends

    def near(self, start: IntArray, end: IntArray, low: IntArray, size: int) -> tuple[IntArray, list[FloatArray]]:
        """Return the sums that hold places from `start` to `end` (queries, s), and their part of each table.

        Parts are (queries, s, size), from the place before `low` on.
        """
        picked = [np.zeros((len(low), 0), dtype=np.int64)]
        tables: list[list[FloatArray]] = [[np.zeros((len(low), 0, size))] for _ in self._tables]
        for first, last, most in self._levels:
            number = int((last[end] - first[start]).max()) + 1
            begins = np.minimum(first[start], most + 1 - number)
            picked.append(begins[:, None] + np.arange(number))
            for out, table in zip(tables, self._tables, strict=True):
                out.append(table.slice_windows(low, size, begins, number))
        return np.hstack(picked), [np.concatenate(each, axis=1) if len(each) != 2 else each[1] for each in tables]


def _total(one: NDArray[Any], other: NDArray[Any]) -> FloatArray:
    """Return Σ of products over each query."""
    return np.asarray(np.vecdot(one.reshape(len(one), -1), other.reshape(len(other), -1)))


def _squares(values: NDArray[Any]) -> FloatArray:
    return _total(values, values)


def _fourth(values: NDArray[Any]) -> FloatArray:
    """Return Σ of fourth powers over each query; changes the values."""
    return _squares(np.multiply(values, values, out=values))


def _pairs(table: NDArray[Any], some: IntArray) -> NDArray[Any]:
    """Return the part of a table (sums, sums) between some of the sums (queries, s), as (queries, s, s)."""
    return np.asarray(table[some[:, :, None], some[:, None, :]])


def _single(*fields: NDArray[Any]) -> list[Any]:
    """Return fields in single precision, in half of the time: intervals take fourth cumulants to thousandths."""
    return [each.astype(np.float32) for each in fields]


class _LineSums:
    """Sums along the lines of one direction, and the covariance of estimates by them."""

    def __init__(self, line: Lines, straight: float, diagonal: float, sums: Sequence[Cumulants]) -> None:
        theta, self._places = line.windows.theta, line.n
        leaf = theta * line.leaf
        #: C is leafᵀ @ inverse (`Lines`).
        self.inverse = np.linalg.inv(theta @ leaf.T + np.diag(line.own))
        within = line.spread(straight + diagonal * line.diagonals, [variance for variance, _ in sums])
        self.within = self.inverse @ within @ self.inverse
        fourth = np.array([fourth for _, fourth in sums], dtype=np.float64)[line.windows.level]
        self.single, self.fourth = _single(self.inverse, fourth)
        # Of each border its part in C before `inverse`, and in sums.
        self._sums = _NearSums(line.windows, leaf, theta)

    def near(self, around: QueryBoxes, axis: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the sums that hold borders of each box (queries, s), with the borders' parts in C and in sums.

        Parts are (queries, s, wide or tall), in C before `inverse`.
        """
        low, size = around.low[:, axis], around.shares.shape[1 + axis]
        end = np.minimum(around.high[:, axis], self._places - 1)
        picked, (leaf, theta) = self._sums.near(np.maximum(low - 1, 0), end, low, size)
        # Behind the rim of a box there is only room.
        theta *= (np.arange(size) <= (end + 1 - low)[:, None])[:, None]
        return picked, leaf, theta


class RimErrors:
    """Variance and fourth cumulant of flows between the blocks of a grid; lines along y come first."""

    def __init__(
        self, lines: Sequence[Lines], straight: Cumulants, diagonal: Cumulants, sums: Sequence[Cumulants]
    ) -> None:
        self._straight, self._diagonal = straight, diagonal
        self._along = [_LineSums(line, straight[0], diagonal[0], sums) for line in lines]

    def of(self, around: QueryBoxes, kurtosis: bool) -> tuple[FloatArray, FloatArray]:
        """Return variance and fourth cumulant (m,) of the draws in the boxes around queries and of all sums."""
        straight, diagonal = self._straight[0], self._diagonal[0]
        rising, falling = around.subtract_shifted((1, 1), (0, 0)), around.subtract_shifted((1, 0), (0, 1))
        flows = around.subtract_shifted((1, 0), (0, 0)), around.subtract_shifted((0, 1), (0, 0))
        total = straight * sum(map(_squares, flows)) + diagonal * (_squares(rising) + _squares(falling))
        fourth, factors = np.zeros(len(around)), []
        for axis, (sums, own) in enumerate(zip(self._along, flows, strict=True)):
            # A falling move counts at the left, respectively lower, end: its row above, or its column to the right.
            crossing, up, down = (each if axis == 0 else each.mT for each in (own, rising, falling))
            picked, leaf, theta = sums.near(around, 1 - axis)
            known, outer = np.split(crossing @ np.concatenate([leaf, theta], axis=1).mT, 2, axis=2)
            outer = straight * outer + diagonal * (up @ theta.mT)
            outer += (diagonal if axis == 0 else -diagonal) * (down[:, :, :-1] @ theta[:, :, 1:].mT)
            waves = known @ _pairs(sums.inverse, picked)
            total += _total(known @ _pairs(sums.within, picked), known) - 2 * _total(outer, waves)
            if kurtosis:
                squares = known.astype(np.float32) @ sums.single[picked]
                np.multiply(squares, squares, out=squares)
                fourth += _total(squares * sums.fourth, squares)
            factors.append((waves, theta))
        # Of each move what its line along y and its line along x spread there; a falling one's are one further.
        (over, along_y), (up, along_x) = factors
        total += 2 * diagonal * _total(over.mT @ along_x.mT, along_y @ up)
        further = along_x[:, :, 1:].mT, along_y[:, :, 1:]
        total -= 2 * diagonal * _total(over[:, :-1].mT @ further[0], further[1] @ up[:, :-1])
        if not kurtosis:
            return total, fourth
        # The draws in boxes, by what is left of their weights beside the part that lines along y and along x spread.
        east, north, rising, falling, *spread = _single(*flows, rising, falling, over, along_y, along_x.mT, up.mT)
        over, up = spread[0] @ spread[1], spread[2] @ spread[3]
        rising -= over
        rising -= up
        falling[:, :, :-1] -= over[:, :, 1:]
        falling[:, :-1] += up[:, 1:]
        east -= over
        north -= up
        fourth += self._straight[1] * (_fourth(east) + _fourth(north))
        for left in (rising, falling):
            fourth += self._diagonal[1] * _fourth(around.zero_outside(left, 0, 1))
        return total, fourth


class _HubSums:
    """Sums of hubs along one axis, and their knowledge of hubs: of K and T the axis comes first."""

    def __init__(self, line: HubLine, variance: FloatArray, trust: FloatArray) -> None:
        squares, turn = line.spectrum
        self._places, self._sums = line.places, _NearSums(line.windows, line.windows.theta)
        #: What of each sum is in each wave (sums, waves); each wave's sum; K of pairs of sums.
        self.turn, self.waves, self.known = turn, line.waves.sum(axis=1), (turn * variance[1:, 0]) @ turn.T
        onto, own, alone = turn * squares, joint(trust)[1:, 0], trust[1:, 0]
        seen = (turn * alone) @ onto.T, onto @ (alone * self.waves)
        #: What sums see of waves; what T makes of sums, and of ones; what sums see of both.
        self.onto, self.own, self.own_ones, self.seen, self.seen_ones = _single(
            onto, (turn * own) @ turn.T, turn @ (own * self.waves), *seen
        )
        (self.beyond,) = _single(trust[1:, 1:] - trust[1:, :1])

    def near(self, around: QueryBoxes, axis: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Return places of the hubs in each box along an axis, the sums that hold some, and their weights.

        Shapes are (queries, h), (queries, s) and (queries, s, h).

        Before the first, and behind the last hub of a box are places in its rim, where it holds nothing.
        """
        low, high = around.low[:, axis], around.high[:, axis]
        first, behind = (np.searchsorted(self._places, edge) for edge in (low, high))
        hub = first[:, None] + np.arange(-1, int((behind - first).max()) + 1)
        outside = (hub < first[:, None]) | (hub >= behind[:, None])
        places = np.where(outside, 0, self._places.take(hub, mode="clip") - low[:, None] + 1)
        last = np.maximum(behind - 1, 0)
        some, (weights,) = self._sums.near(np.minimum(first, last), last, first, hub.shape[1])
        return places, some, weights

    def strips(
        self, sums: FloatArray, some: IntArray, across: FloatArray, found: FloatArray, alike: FloatArray
    ) -> FloatArray:
        """Return Σ of fourth powers of what sums along this axis see of each query (queries,).

        Some of the sums hold `sums` of it (queries, s, h), and the other axis has weights `across` (queries, t, h).
        `found` are waves along this axis by sums along the other one; `alike` is taken off all hubs.
        """
        factors = np.concatenate([self.seen[some].mT, self.onto @ found], axis=2)
        seen = factors @ np.concatenate([sums, across], axis=1)
        seen -= alike * self.seen_ones[:, None]
        seen *= np.any(sums, axis=1, keepdims=True)
        return _fourth(seen)


class HubErrors:
    """Variance and fourth cumulant of hubs, from the fourth cumulants of their own draws and of each level of sums."""

    def __init__(self, known: HubVariance, draws: float, sums: Sequence[float], total_known: bool) -> None:
        self._known, self._draws, self._sums, self._total_known = known, draws, sums, total_known
        x, y = known.hubs.axes
        self._axes = (
            _HubSums(x, known.joint, known.hubs.trust),
            _HubSums(y, known.joint.T, known.hubs.trust.T),
        )
        self._everywhere = all(len(line.places) == line.n for line in (x, y))

    def of(self, around: QueryBoxes, kurtosis: bool) -> tuple[FloatArray, FloatArray]:
        """Return variance and fourth cumulant (m,) of hubs inside queries, strips through these, and all sums."""
        hubs, known, (x, y) = self._known.hubs, self._known.joint, self._axes
        (at_x, some_x, over), (at_y, some_y, up) = (line.near(around, axis) for axis, line in enumerate(self._axes))
        share = around.shares
        if not self._everywhere:
            share = share[np.arange(len(around))[:, None, None], at_x[:, :, None], at_y[:, None, :]]
        # What sums along one axis hold of each row or column of hubs; few sums hold some of a box, all waves do.
        on_x, on_y = over @ share, up @ share.mT
        turn_x, turn_y = x.turn[some_x], y.turn[some_y]
        found = turn_x.mT @ (over @ on_y.mT) @ turn_y
        variance = known[0, 0] * _squares(share)
        variance += _total(found, known[1:, 1:] * found)
        if hubs.strips:
            variance += _total(on_x, _pairs(x.known, some_x) @ on_x)
            variance += _total(on_y, _pairs(y.known, some_y) @ on_y)
        (core, ones), alike = self._known.onto_total, np.zeros((len(around), 1, 1))
        # What a query holds of the total is taken off all hubs alike; without noise there is nothing to take off.
        if self._total_known and ones > 0:
            entering = found.reshape(len(found), -1) @ core.ravel()
            variance -= entering**2 / ones
            alike = (entering / ones)[:, None, None]
            found = found - alike * np.multiply.outer(x.waves, y.waves)
        fourth = np.zeros(len(around))
        if not kurtosis:
            return variance, fourth
        share, found, on_x, on_y, over, up, turn_x, turn_y, alike, trust, weight = _single(
            share, found, on_x, on_y, over, up, turn_x, turn_y, alike, hubs.trust, joint(hubs.trust)
        )
        # A hub's own draw counts by what is left of the query there, and those of its sums by what they see of that.
        along_x, along_y = turn_x @ (weight[1:, 1:] * found) @ turn_y.mT @ up, np.zeros_like(on_y)
        if hubs.ratios:
            fourth += self._sums[0] * _fourth(x.onto @ ((trust[1:, 1:] * found) @ y.onto.T) / hubs.ratios[0])
        if hubs.strips:
            along_x += _pairs(x.own, some_x) @ on_x - alike * x.own_ones[some_x][:, :, None]
            along_y += _pairs(y.own, some_y) @ on_y - alike * y.own_ones[some_y][:, :, None]
            seen = x.strips(on_x, some_x, up, (x.beyond * found) @ turn_y.mT, alike)
            seen += y.strips(on_y, some_y, over, (y.beyond * found.mT) @ turn_x.mT, alike)
            fourth += self._sums[1] * seen / hubs.ratios[1] ** 4
        left = np.concatenate([over, along_y], axis=1).mT @ np.concatenate([along_x, up], axis=1)
        left += share
        left -= alike
        left *= share != 0
        return variance, fourth + self._draws * _fourth(left)


def _joined(cells: NDArray[Any], sums: FloatArray, starts: Starts, sizes: FloatArray) -> FloatArray:
    """Return cells that add up to the sums of their blocks, whose first cells and sizes are given."""
    gain = (sums - sum_blocks(cells, starts)) / sizes
    return np.asarray(cells + spread_blocks(gain, starts, cells.shape))
