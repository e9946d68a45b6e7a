"""The decoder of flows. Errors of boxes have a closed form. Errors of other queries are computed at their perimeter.

The released block sums serve as estimates, and the cells of a block share its gain equally. Of the noise on borders,
only that on a query's perimeter changes its answer, because the query has equal weights on both sides of other borders.
Sums along a line redistribute the flow among its borders, through a low-rank matrix. Hubs add products of waves.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode import forms
from deltahist.decode.base import Asked, Decoder, Moments
from deltahist.decode.forms import BlockPower, FloatArray, IntArray, IntervalForms, interpolate_sums
from deltahist.space.workloads import AllRanges, Boxes, Pieces, RegionCover, count_up_to, prefix_sums, sums_between
from deltahist.strategies.base import spread_blocks, sum_blocks
from deltahist.strategies.flow.noise import UNITS, HubLine, Hubs, Kind, LineEstimator, WeightedSums, to_increments

if TYPE_CHECKING:
    from deltahist.strategies.flow import Flow

#: The variance and fourth cumulant of a draw, in points.
Cumulants: TypeAlias = tuple[float, float]


class Diagonal(forms.QuadraticForm):
    """A diagonal matrix."""

    def __init__(self, values: FloatArray) -> None:
        self.values, self.size = values, len(values)

    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        return np.where(i == j, self.values[i], 0.0)

    def value_at(self, weight: FloatArray) -> float:
        return float(weight @ (self.values * weight))


class Steps(forms.QuadraticForm):
    """A form with −½ if the border just before (shift 0) or after (1) inner edge i precedes edge j, plus transpose."""

    def __init__(self, size: int, shift: int) -> None:
        self.size, self.shift = size, shift
        #: G_ij for i < j, which depends only on i (size,).
        self.before = np.full(size, -0.5)
        self.before[0] = 0.0

    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        one, other = (((a > 0) & (a < self.size - 1)) & (a - 1 + self.shift < b) for a, b in ((i, j), (j, i)))
        return -0.5 * np.add(one, other, dtype=np.float64)

    def value_at(self, weight: FloatArray) -> float:
        later = np.cumsum(weight[::-1])[::-1]  # sums over each edge and all later edges
        inner = np.arange(1, self.size - 1)
        return -float(weight[inner] @ later[inner + self.shift])


class LowRank(forms.QuadraticForm):
    """The sum of a form and Σ_p (a_ip b_jp + b_ip a_jp), where a and b have shape (size, p)."""

    def __init__(self, base: forms.IndependentIncrements | Steps, a: FloatArray, b: FloatArray) -> None:
        self.base, self.a, self.b, self.size = base, a, b, base.size

    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        both = np.einsum("ep,ep->e", self.a[i], self.b[j]) + np.einsum("ep,ep->e", self.b[i], self.a[j])
        return self.base.entries_at(i, j) + both

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        a, b = forms.combine_rows(self.a, intervals.edges), forms.combine_rows(self.b, intervals.edges)
        return self.base.evaluate_pieces(intervals) + 2 * np.einsum("mp,mp->m", a, b)

    def value_at(self, weight: FloatArray) -> float:
        return self.base.value_at(weight) + 2 * float((weight @ self.a) @ (weight @ self.b))


class Patches:
    """Evaluate forms of intervals along an axis from a small table. Between knots, forms are polynomials in both edges.

    For edges i < j, a form is G_ij = Σ_p a_ip b_jp, where a and b are quadratic on each stretch between knots. At a
    fraction u of a stretch, a and b are combinations of 1, u and u (1 − u). So G_ij is a sum of nine products, whose
    weights a table gives for each pair of stretches. Answers do not depend on earlier queries.

    knots : (s + 1,) edges, including the first, the last, and every edge where a or b bends.
    own, beside : (k, n + 1) and (k, n), the values of G_ii and G_i,i+1 at the edges of cells.
    pairs : a and b, each (size, p), for each of the last forms. All earlier forms are zero for i < j.
    place : (n + 1,) indices of the forms' edges, one for each edge of cells. They grow by 0 or 1 per cell.
    """

    def __init__(self, knots: IntArray, own: FloatArray, beside: FloatArray, pairs: list[Any], place: IntArray) -> None:
        self._own, self._cell = own, own[:, :-1] + own[:, 1:] - 2 * beside
        length, number = np.diff(knots), len(knots) - 1
        #: The stretch that contains each cell, and the fractions u at the cell's edges.
        self._stretch = np.repeat(np.arange(number), length).take(place[:-1], mode="clip")
        first, length = knots[self._stretch], length[self._stretch]
        self._near, self._far = (place[:-1] - first) / length, (place[1:] - first) / length
        tables = []
        for pair in pairs:
            a, b = (_fit_stretches(values, knots) for values in pair)
            tables.append((a @ b.T).reshape(3, number, 3, number).swapaxes(1, 2).reshape(9, -1))
        #: The weights of the nine products, for each form and each pair of stretches.
        self._number, self._table = number, np.concatenate(np.stack(tables, axis=1))
        # G_ii minus the sum of products.
        start = self._stretch, self._near, self._near * (1 - self._near)
        self._rest = own[:, :-1] - self._sum_nine(start, start)

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        """Evaluate the k forms on m intervals, whose ends may be inside cells. The result has shape (k, m)."""
        first, last, head, tail = intervals.first, intervals.last, intervals.head, intervals.tail
        out = self._sum_nine(self._locate(first, 1 - head), self._locate(last, tail))
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

    def _locate(self, cell: IntArray, share: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the stretch that contains each place, and the values of u and u (1 − u) at the place."""
        near, far, rest = self._near.take(cell), self._far.take(cell), 1 - share
        return (self._stretch.take(cell), rest * near + share * far, rest * near * (1 - near) + share * far * (1 - far))

    def _sum_nine(
        self, start: tuple[IntArray, FloatArray, FloatArray], stop: tuple[IntArray, FloatArray, FloatArray]
    ) -> FloatArray:
        """Return the sum of the nine products for each of the k forms and m intervals."""
        found = self._table.take(start[0] * self._number + stop[0], axis=1).reshape(3, 3, -1, len(start[0]))
        out = np.zeros((len(self._own), len(start[0])))
        for rows, (_, share, bend) in ((found.swapaxes(0, 1), stop), (found[:, 0], start)):
            rows[1] *= share
            rows[2] *= bend
            rows[0] += rows[1]
            rows[0] += rows[2]
        out[-found.shape[2] :] = found[0, 0]
        return out


def _fit_stretches(values: FloatArray, knots: IntArray) -> FloatArray:
    """Return the coefficients (3 s, p) of 1, u and u (1 − u) that fit values (size, p) on stretches between knots."""
    low, high = knots[:-1], knots[1:]
    middle = (low + high) // 2
    share = ((middle - low) / (high - low))[:, None]
    rise = values[high] - values[low]
    # A stretch of one step has no inner edge, and therefore no bend.
    bend = (values[middle] - values[low] - share * rise) / np.where(share > 0, share * (1 - share), 1.0)
    return np.concatenate([values[low], rise, bend])


class Sides(IntervalForms):
    """A form for the two ends of an interval, and the three forms from `estimated_flow` for the flow across a line."""

    def __init__(self, rim: forms.QuadraticForm, flow: Sequence[LowRank], knots: IntArray, edges: Any) -> None:
        super().__init__([rim, *flow], edges)
        self._flow, self._knots = flow, knots

    @functools.cached_property
    def _flow_patches(self) -> Patches:
        edge = np.arange(self.forms[0].size)
        places = (edge, edge), (edge[:-1], edge[1:])
        own, beside = (np.array([form.entries_at(i, j) for form in self.forms]) for i, j in places)
        pairs = [
            (np.column_stack([form.base.before, form.a, form.b]), np.column_stack([np.ones(form.size), form.b, form.a]))
            for form in self._flow
        ]
        return Patches(self._knots, own, beside, pairs, edge)

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        return self._flow_patches.evaluate_pieces(intervals)


def estimated_flow(
    line: LineEstimator, straight: float, diagonal: float, sums: Sequence[float]
) -> tuple[LowRank, LowRank, LowRank]:
    """Return the covariance of the estimated flow before each edge of a line, and two tables for the corners of boxes.

    `straight`, `diagonal` and `sums` are variances of draws, in squared points. The flows before edges i and j have
    covariance min(v_i, v_j) − m_i·g_j − g_i·m_j, where v_i is the sum of V before i, g = P C, m = P V Θᵀ − g S / 2,
    S = Θ V Θᵀ + W, and P forms prefix sums. A move at border k shifts the flow before edge e by [k < e] − g_e·Θ_k. The
    tables contain these shifts at the borders just before and after inner edges (docs/internals/theory.md, section 5).
    """
    leaf, theta, gain = straight + diagonal * line.diagonal_counts, line.windows.theta, line.prefix_gain
    mixed = gain @ (line.covariance_of_sums(leaf, sums) / 2)
    mixed -= forms.cumulate_rows((theta * leaf).T)
    corners = []
    for shift in (0, 1):
        at_edge = np.zeros_like(gain)
        at_edge[1:-1] = theta.T[shift : shift + line.n - 1] / 2
        corners.append(LowRank(Steps(line.n + 1, shift), at_edge, gain))
    return LowRank(forms.IndependentIncrements(forms.cumulate_rows(leaf)), mixed, gain), corners[0], corners[1]


class HubVariance:
    """The covariance of the inflow at hubs, and the part of it that a public total removes.

    Let v be the variance of the hubs' own noise, and w the variance of a level of sums with eigenvalues λ. Each product
    of waves has the variance T² (v + Σ w λ/ρ²), with T and ρ from `Hubs`. So the covariance is Σ_ij K_ij a_i a_iᵀ ⊗ b_j
    b_jᵀ, where a and b are the waves and index 0 is the identity. A public total removes (q·m)² / Σ m from the variance
    of a query q, where m is the inflow's covariance with the total.

    `own` and `sums` are in squared points. `edges` holds each axis's cell edges in blocks, or None if blocks are cells.
    """

    def __init__(self, hubs: Hubs, edges: list[FloatArray | None], own: float, sums: Sequence[float]) -> None:
        self.hubs, self.own, self.edges = hubs, own, edges
        self._lines = hubs.axes[: len(edges)]
        levels = zip(sums, hubs.ratios, hubs.level_spectra, strict=False)
        #: The variance of each product of waves, and K.
        self.waves = hubs.trust**2 * (own + sum(w / ratio**2 * level for w, ratio, level in levels))
        self.increments = to_increments(self.waves)

    @functools.cached_property
    def onto_total(self) -> tuple[FloatArray, float]:
        """The wave coefficients of m, and Σ m, the variance of the total inflow (0 if draws are almost surely 0)."""
        core = self.waves[1:, 1:] * self.hubs.ones_in_waves
        return core, float((core * self.hubs.ones_in_waves).sum())

    def make_variance_term(self, total_known: bool) -> tuple[float, WavesKnown]:
        """Return the hubs' term of the variance of boxes."""
        core, spread = self.onto_total if total_known else (np.zeros_like(self.increments[1:, 1:]), 1.0)
        # If there is no noise, a known total removes no variance.
        return 1.0, WavesKnown(self._lines, self.edges, self.increments, core / np.sqrt(spread) if spread > 0 else core)

    def make_fourth_term(self, kurtosis: float) -> tuple[float, tuple[Fourths, ...]]:
        """Return the hubs' term of the fourth cumulant. It is an upper bound if there are sums or a known total."""
        lines = zip(self._lines, self.edges, strict=True)
        before = (line.hubs_before if cut is None else interpolate_sums(line.hubs_before, cut) for line, cut in lines)
        return kurtosis * self.own**2, tuple(map(Fourths, before))


@dataclass(frozen=True, eq=False)
class Fourths(forms.IntervalFunction):
    """The sum, over all hubs, of (share of the hub's block in an interval)⁴. `before` counts hubs before each edge."""

    before: FloatArray

    def __call__(self, low: FloatArray, high: FloatArray) -> FloatArray:
        return BlockPower(1, 4)(*(interpolate_sums(self.before, place)[:, 0] for place in (low, high)))


class WavesKnown(forms.BoxFunction):
    """Evaluate Σ_ij K_ij a_i(q) b_j(q) − (Σ_ij M_ij (a_i·q) (b_j·q))² for boxes q.

    a_0(q) is the squared length of q along the axis, and a_i(q) is (a_i·q)² for the waves i > 0. K (`squared`) and M
    (`whole`) have low rank up to rounding. In 1-D, b is a single wave. See `HubVariance` for `edges`.
    """

    def __init__(
        self, lines: Sequence[HubLine], edges: Sequence[FloatArray | None], squared: FloatArray, whole: FloatArray
    ) -> None:
        self._lines, self._edges, self.squared, self.whole = lines, edges, squared, whole
        squares, sums = _factor_low_rank(squared), _factor_low_rank(whole)
        self._axes = [_Waves(*each) for each in zip(lines, edges, squares, sums, strict=False)]
        #: In 1-D, the factors of the second axis.
        self._line = (squares[1].sum(axis=0)[:, None], sums[1][0][:, None]) if len(lines) == 1 else None

    def __call__(self, spans: Sequence[Any]) -> FloatArray:
        found = [axis(*span) for axis, span in zip(self._axes, spans, strict=True)]
        squares, sums = zip(*found if self._line is None else (*found, self._line), strict=True)
        # Add in a fixed order, so that answers do not depend on other queries.
        square, whole = (sum(a * b for a, b in zip(*each, strict=True)) for each in (squares, sums))
        return np.asarray(square - whole**2)

    def mean_over_boxes(self, shape: tuple[int, ...]) -> float:
        pairs = []
        for line, edge, n in zip(self._lines, self._edges, shape, strict=True):
            own = line.waves_before if edge is None else interpolate_sums(line.waves_before, edge)
            whole = own.sum(axis=0)
            pairs.append(forms.mean_increment_product(own.T @ own, np.multiply.outer(whole, whole), n))
        x, y = pairs + [np.ones((1, 1))] * (2 - len(shape))
        alike = [axis.alike.mean_over_intervals(n) for axis, n in zip(self._axes, shape, strict=True)] + [1.0]
        one, other = (np.append(mean, np.diag(own)) for mean, own in zip(alike, (x, y), strict=False))
        return float(one @ self.squared @ other - ((x @ self.whole) * (self.whole @ y)).sum())


class _Waves:
    """For intervals q along an axis, multiply |q|² and the k numbers (a·q)² by `weight`, and the a·q by `factor`."""

    def __init__(self, line: HubLine, edges: FloatArray | None, weight: FloatArray, factor: FloatArray) -> None:
        self.alike = IntervalForms([forms.IndependentIncrements(line.hubs_before[:, 0])], edges)
        self._line, self._weight, self._hubs = line, weight, line.hubs_before[:, 0].astype(np.int64)
        self._before = forms.cumulate_rows(line.waves.T)
        self._linear = self._before @ factor

    @functools.cached_property
    def _square_patches(self) -> Patches:
        before, weight = self._before, self._weight[1:]
        near, far = before[self._hubs[:-1]], before[self._hubs[1:]]
        own, beside = (before**2 @ weight)[self._hubs].T, ((near * far) @ weight).T
        return Patches(self._line.knots, own, beside, [(before * each, before) for each in weight.T], self._hubs)

    def __call__(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        intervals = self.alike.in_blocks(low, high)
        squares = self._square_patches.evaluate_pieces(intervals)
        squares += np.multiply.outer(self._weight[0], self.alike.evaluate_pieces(intervals)[0])
        edges = [(self._hubs[edge], share) for edge, share in intervals.edges]
        return squares, forms.combine_rows(self._linear, edges).T


def _factor_low_rank(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two matrices L and R, with as few columns as possible, such that L Rᵀ is the matrix up to rounding."""
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    some = int(np.count_nonzero(sizes > 1e-12 * max(sizes[0], np.finfo(float).tiny)))
    return left[:, :some] * sizes[:some], right[:some].T


class FlowDecoder(Decoder):
    """Estimate the cells ĉ = y₁ + Sᵀ N⁻¹ (y₂ − S y₁) from released cells y₁, block sums y₂ and block sizes N.

    S sums each block. If blocks are cells, ĉ = y₂. A box's variance is that of the flow across its four sides, with
    each diagonal move at a corner counted once (docs/internals/theory.md, section 5).
    """

    strategy: Flow

    def solve(self, values: FloatArray) -> FloatArray:
        return self._join_cells(values, self._read_sums(values))

    def _read_sums(self, values: NDArray[Any]) -> FloatArray:
        """Return y₂, the sum of each block, in points."""
        flow = self.strategy
        return np.asarray(values[flow.shape[0] - flow.size :].reshape(flow.blocks) / UNITS)

    def _join_cells(self, values: NDArray[Any], sums: FloatArray) -> FloatArray:
        """Return the estimated cells ĉ, given the released values and the block sums."""
        flow = self.strategy
        if flow.blocks_are_cells:
            return sums.ravel()
        cells = values[: self.domain.size].reshape(self.domain.shape)
        gain = (sums - sum_blocks(cells, flow.starts)) / self._block_sizes
        return np.asarray(cells + spread_blocks(gain, flow.starts, cells.shape)).ravel()

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        flow = self.strategy
        if flow.blocks_are_cells:
            return query / UNITS
        box = query.reshape(self.domain.shape)
        share = sum_blocks(box, flow.starts) / self._block_sizes
        rest = box - spread_blocks(share, flow.starts, self.domain.shape)
        return np.concatenate([rest.ravel(), share.ravel() / UNITS])

    def estimate_cells(self, values: NDArray[Any], total: int | None) -> FloatArray:
        sums = self._read_sums(values)
        if self.total_known and total is not None and self._inflow_variance > 0:
            self._add_inflow(sums, (total - sums.sum()) / self._inflow_variance)
        return self._join_cells(values, sums).reshape(self.domain.shape)

    @functools.cached_property
    def onto_total(self) -> tuple[FloatArray, FloatArray, float]:
        values = np.zeros(self.strategy.shape[0])
        self._add_inflow(values[self.strategy.shape[0] - self.strategy.size :], UNITS)
        return self.solve_adjoint(np.ones(self.domain.size)), self.solve(values), self._inflow_variance

    def _add_inflow(self, sums: FloatArray, times: float) -> None:
        """Add the covariance of each block's inflow with the total inflow, scaled by `times`, to the block's sum."""
        sums.reshape(-1)[self.strategy.entry_blocks] += self._entry_variance * times
        if self._hubs is not None:
            x, y = self._hubs.hubs.axes
            inflow = x.waves.T @ self._hubs.onto_total[0] @ y.waves
            sums.reshape(x.n, y.n)[np.ix_(x.places, y.places)] += inflow * times

    @functools.cached_property
    def _inflow_variance(self) -> float:
        """The variance of the total inflow through hubs and arrivals. Flows do not change the total."""
        hubs = 0.0 if self._hubs is None else self._hubs.onto_total[1]
        return hubs + len(self.strategy.entry_blocks) * self._entry_variance

    @functools.cached_property
    def _block_sizes(self) -> FloatArray:
        return sum_blocks(np.ones(self.domain.shape), self.strategy.starts)

    @functools.cached_property
    def _draw_cumulants(self) -> dict[str, Cumulants]:
        """The variance and the fourth cumulant of a draw, counted in points, by the name of its group."""
        out = {}
        for group, law in zip(self.strategy.groups, self.laws, strict=True):
            variance = law.variance() * float(group.unit) ** 2
            out[group.name] = variance, law.kurtosis() * variance * variance
        return out

    def _get_cumulants(self, names: Sequence[str]) -> list[Cumulants]:
        """Return the cumulants of those groups in `names` that exist."""
        return [self._draw_cumulants[name] for name in names if name in self._draw_cumulants]

    @functools.cached_property
    def _edges(self) -> list[FloatArray | None]:
        """For each axis, the positions of cell edges in units of blocks, or None if blocks are cells."""
        if self.strategy.blocks_are_cells:
            return [None] * self.domain.ndim
        return [np.interp(np.arange(cut[-1] + 1), cut, np.arange(len(cut) + 0.0)) for cut in self._block_edges]

    @functools.cached_property
    def _block_edges(self) -> list[IntArray]:
        """For each axis, the first cell of every block, followed by the number of cells."""
        return [np.append(s, n) for n, s in zip(self.domain.shape, self.strategy.starts, strict=True)]

    @functools.cached_property
    def _hubs(self) -> HubVariance | None:
        if self.strategy.hub_grid is None:
            return None
        sums = [variance for variance, _ in self._get_cumulants([Kind.HUB_SUMS, Kind.HUB_STRIPS])]
        return HubVariance(self.strategy.hub_grid, self._edges, self._draw_cumulants[Kind.HUBS][0], sums)

    @functools.cached_property
    def _rim_forms(self) -> list[IntervalForms]:
        """For each axis, a form that sums the squared weights of the inner lines at both ends of an interval."""
        inner = (Diagonal(np.pad(np.ones(m - 1), 1)) for m in self.strategy.blocks)
        return [IntervalForms([form], edge) for form, edge in zip(inner, self._edges, strict=True)]

    def box_cumulant(self, order: int) -> forms.SumOfProducts | None:
        # If the total is public, there is no closed form for arrivals.
        flow = self.strategy
        if flow.arrivals and self.total_known:
            return None
        return self._variance_terms if order == 2 else self._fourth_terms

    @functools.cached_property
    def _variance_terms(self) -> forms.SumOfProducts:
        straight, rims = self._draw_cumulants[Kind.STRAIGHT][0], tuple(self._rim_forms)
        out: list[Any] = [(straight, rims) if len(rims) == 1 else (1.0, self._make_line_term(straight))]
        if not self.strategy.blocks_are_cells:
            cuts = zip(self._block_edges, self._edges, strict=True)
            shared = tuple(
                IntervalForms([forms.IndependentIncrements(cut.astype(np.float64))], edge) for cut, edge in cuts
            )
            cells = self._draw_cumulants["cells"][0]
            out += [(cells, tuple(BlockPower(1, 2) for _ in shared)), (-cells, shared)]
        return out if self._hubs is None else [*out, self._hubs.make_variance_term(self.total_known)]

    def _make_line_term(self, straight: float) -> forms.BilinearForm:
        """Return Var = J_x G_y + G_x J_y + σ_d² (J_x J_y + 2 J_x B_y + 2 B_x J_y + 2 B_x B_y − 2 B'_x B'_y).

        J is from `_rim_forms`, and G, B and B' are the forms of `estimated_flow`. Each form is evaluated on the box's
        interval along one axis (docs/internals/theory.md, section 5).
        """
        flow, d = self.strategy, self._draw_cumulants[Kind.DIAGONAL][0]
        sums = [self._draw_cumulants[name][0] for name in flow.sum_names]

        def sides(axis: int) -> Sides:
            # Lines that cross x run along y, so their forms apply to places along y.
            line, (rim,) = flow.lines[1 - axis], self._rim_forms[axis].forms
            return Sides(rim, estimated_flow(line, straight, d, sums), line.knots, self._edges[axis])

        x = sides(0)
        square = self.domain.shape[0] == self.domain.shape[1] and flow.sides[0] == flow.sides[1]
        axes = x, x if square else sides(1)
        weights = np.array([[d, 1, 2 * d, 0], [1, 0, 0, 0], [2 * d, 0, 2 * d, 0], [0, 0, 0, -2 * d]])
        return forms.BilinearForm(axes, weights)

    @functools.cached_property
    def _fourth_terms(self) -> forms.SumOfProducts:
        """The fourth cumulant of boxes, which is exact for cells and approximate for flows.

        Moves across the perimeter get their full weight, slightly too much. Corners and sums along lines are ignored.
        """
        flow, weight = self.strategy, self.laws[0].kurtosis()
        known = {name: weight * variance**2 for name, (variance, _) in self._draw_cumulants.items()}
        if len(flow.blocks) == 1:
            out: list[Any] = [(known[Kind.STRAIGHT], (self._rim_forms[0],))]
        else:
            each = known[Kind.STRAIGHT] + 2 * known[Kind.DIAGONAL]
            # A side across x crosses one border per row of blocks: (cells along y) / (block height) in total.
            (wide, high), (x, y), length = flow.sides, self._rim_forms, BlockPower(1, 4)
            out = [(each / high, (x, length)), (each / wide, (length, y))]
        if not flow.blocks_are_cells:
            # These terms add up to Σ (q − q̄)⁴, because Σ q q̄³ = Σ q̄⁴ within each block.
            for times, own in ((1, 4), (-4, 3), (6, 2), (-3, 1)):
                moments = tuple(forms.MixedMoment(cut, own, 4 - own) for cut in self._block_edges)
                out.append((times * known["cells"], moments))
        return out if self._hubs is None else [*out, self._hubs.make_fourth_term(weight)]

    @property
    def _entry_variance(self) -> float:
        """The variance of the inflow at a block where entities may appear."""
        return self._draw_cumulants.get(Kind.ARRIVALS, (0.0, 0.0))[0]

    @functools.cached_property
    def _entry_shares(self) -> FloatArray:
        """Each cell's fraction of its block, or 0 where entities cannot appear."""
        flow = self.strategy
        entered = np.zeros(flow.size)
        entered[flow.entry_blocks] = 1.0
        return spread_blocks(entered.reshape(flow.blocks) / self._block_sizes, flow.starts, self.domain.shape)

    @functools.cached_property
    def _entries_before(self) -> FloatArray:
        return prefix_sums(self._entry_shares)

    def _price_arrivals(self, work: Asked) -> FloatArray | float:
        """Return the variance that arrivals add to each box, or an upper bound on it if blocks have several cells."""
        if not self._entry_variance or not isinstance(work, Boxes | AllRanges) or not self.has_closed_form:
            return 0.0
        return self._entry_variance * sums_between(self._entries_before, work.spans(self.domain))

    def mean_variance(self, work: AllRanges) -> float:
        mean = super().mean_variance(work)
        if not self._entry_variance or not self.has_closed_form:
            return mean
        shares = self._entry_shares
        for n in reversed(self.domain.shape):
            cell = np.arange(n)
            shares = shares @ ((cell + 1) * (n - cell) / (n * (n + 1) / 2))
        return mean + self._entry_variance * float(shares)

    @property
    def note(self) -> str:  # type: ignore[override]
        bound = self._entry_variance and self.has_closed_form and not self.strategy.blocks_are_cells
        return "a bound" if bound else "exact"

    def moments(self, work: Asked) -> Moments:
        if not isinstance(work, Boxes | AllRanges) and self._uses_rims:
            return self._price_queries(work)
        found = super().moments(work)
        found.variance[...] += self._price_arrivals(work)
        return found

    def answer_variance(self, work: Asked) -> FloatArray:
        if not isinstance(work, Boxes | AllRanges) and self._uses_rims:
            return self._price_queries(work, kurtosis=False).variance
        return super().answer_variance(work) + self._price_arrivals(work)

    @property
    def _uses_rims(self) -> bool:
        """Whether errors of explicit queries are computed at their perimeter. This requires 2-D and no arrivals."""
        return len(self.strategy.blocks) == 2 and min(self.strategy.blocks) > 1 and not self.strategy.arrivals

    def _price_queries(self, queries: RegionCover | scipy.sparse.csr_array, kurtosis: bool = True) -> Moments:
        """Return the errors of regions or of a matrix's rows, computed from the draws near the queries' perimeters."""
        cover = queries if isinstance(queries, RegionCover) else RegionCover.of_rows(queries, self.domain.shape)
        variance, fourth = np.zeros((2, cover.number))
        if not self.strategy.blocks_are_cells:
            cover, *left = self._convert_cover(cover, 4 if kurtosis else 2)
            for out, cumulant, powers in zip((variance, fourth), self._draw_cumulants["cells"], left, strict=False):
                out += cumulant * powers
        for around in forms.iterate_query_boxes(cover, self.strategy.blocks):
            for part in self._rim_errors:
                own, own_fourth = part.price_queries(around, kurtosis)
                variance[around.some] += own
                fourth[around.some] += own_fourth
        return self._moments_of(variance, fourth)

    @functools.cached_property
    def _rim_errors(self) -> list[RimErrors | HubErrors]:
        """The errors from flows between blocks, and from hubs (if any)."""
        flow, known = self.strategy, self._draw_cumulants
        on_lines = self._get_cumulants(flow.sum_names)
        out: list[RimErrors | HubErrors] = [RimErrors(flow.lines, known[Kind.STRAIGHT], known[Kind.DIAGONAL], on_lines)]
        if self._hubs is not None:
            sums = [fourth for _, fourth in self._get_cumulants([Kind.HUB_SUMS, Kind.HUB_STRIPS])]
            out.append(HubErrors(self._hubs, known[Kind.HUBS][1], sums, self.total_known))
        return out

    def _convert_cover(self, cover: RegionCover, order: int) -> tuple[RegionCover, *tuple[FloatArray, ...]]:
        """Return queries as shares of blocks, and their sums of squared residuals (for order 4, also fourth powers)."""
        flow = self.strategy
        blocks = [np.searchsorted(cut, np.arange(cut[-1]), "right") - 1 for cut in self._block_edges]
        # For each rectangle and each block that overlaps it, the number of cells that they have in common.
        begin, end = ([each[place[:, a]] for a, each in enumerate(blocks)] for place in (cover.low, cover.high - 1))
        wide, tall = (last - first + 1 for first, last in zip(begin, end, strict=True))
        which = np.repeat(np.arange(len(wide)), wide * tall)
        x, y = np.divmod(count_up_to(wide * tall), tall[which])
        x, y = x + begin[0][which], y + begin[1][which]
        number = np.ones(len(which))
        for axis, (block, cut) in enumerate(zip((x, y), self._block_edges, strict=True)):
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
        # Subtract block by block, so that whole blocks leave a remainder of exactly zero.
        left = [two - mean * one]
        if more:
            three, four = more
            left.append(four - 4 * mean * three + 6 * mean**2 * two - 3 * mean**3 * one)
        of_rest = (np.bincount(own, part, cover.number).astype(np.float64) for part in left)
        return RegionCover.of_cells(cover.number, flow.blocks, own, block, mean), *of_rest


class _NearSums:
    """Tables of weighted sums along a line, each of shape (sums, places). Any given place is in only a few sums."""

    def __init__(self, windows: WeightedSums, *tables: FloatArray) -> None:
        self._tables, self._levels = [forms.Windows(table) for table in tables], windows.covering_sums

    def find_near(self, start: IntArray, end: IntArray, low: IntArray, size: int) -> tuple[IntArray, list[FloatArray]]:
        """Return, for each query, the s sums that overlap places `start` to `end`, and table excerpts (s, size)."""
        picked = [np.zeros((len(low), 0), dtype=np.int64)]
        tables: list[list[FloatArray]] = [[np.zeros((len(low), 0, size))] for _ in self._tables]
        for first, last, most in self._levels:
            number = int((last[end] - first[start]).max()) + 1
            begins = np.minimum(first[start], most + 1 - number)
            picked.append(begins[:, None] + np.arange(number))
            for out, table in zip(tables, self._tables, strict=True):
                out.append(table.slice_windows(low, size, begins, number))
        return np.hstack(picked), [np.concatenate(each, axis=1) if len(each) != 2 else each[1] for each in tables]


def _sum_products(one: NDArray[Any], other: NDArray[Any]) -> FloatArray:
    """Return, for each query, the sum of the products of its entries in two arrays."""
    return np.asarray(np.vecdot(one.reshape(len(one), -1), other.reshape(len(other), -1)))


def _sum_squares(values: NDArray[Any]) -> FloatArray:
    return _sum_products(values, values)


def _sum_fourths(values: NDArray[Any]) -> FloatArray:
    """Return, for each query, the sum of the fourth powers of its values. Overwrites the values."""
    return _sum_squares(np.multiply(values, values, out=values))


def _pick_pairs(table: NDArray[Any], some: IntArray) -> NDArray[Any]:
    """Return, for each query, a table's entries (s, s) for all pairs of the query's s sums, which `some` lists."""
    return np.asarray(table[some[:, :, None], some[:, None, :]])


def _as_single(*fields: NDArray[Any]) -> list[Any]:
    """Convert arrays to single precision, which is twice as fast and precise enough for fourth cumulants."""
    return [each.astype(np.float32) for each in fields]


class _LineSums:
    """Sums along the lines of one direction, and the covariance of the flows estimated from them."""

    def __init__(self, line: LineEstimator, straight: float, diagonal: float, sums: Sequence[Cumulants]) -> None:
        theta, self._places = line.windows.theta, line.n
        #: C of `LineEstimator` is V Θᵀ times this inverse.
        self.inverse = np.linalg.inv(line.covariance_of_sums(line.border_variance, line.sums))
        within = line.covariance_of_sums(straight + diagonal * line.diagonal_counts, [variance for variance, _ in sums])
        self.within = self.inverse @ within @ self.inverse
        fourth = np.array([fourth for _, fourth in sums], dtype=np.float64)[line.windows.level]
        self.single, self.fourth = _as_single(self.inverse, fourth)
        self._sums = _NearSums(line.windows, theta * line.border_variance, theta)

    def find_near(self, around: forms.QueryBoxes, axis: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return, for each box, the s sums on its borders, and their excerpts (s, width or height) of Θ V and of Θ."""
        low, size = around.low[:, axis], around.shares.shape[1 + axis]
        end = np.minimum(around.high[:, axis], self._places - 1)
        picked, (leaf, theta) = self._sums.find_near(np.maximum(low - 1, 0), end, low, size)
        # Exclude the padding outside a box.
        theta *= (np.arange(size) <= (end + 1 - low)[:, None])[:, None]
        return picked, leaf, theta


class RimErrors:
    """Variances and fourth cumulants that flows between blocks add to queries. Lines along y come first."""

    def __init__(
        self, lines: Sequence[LineEstimator], straight: Cumulants, diagonal: Cumulants, sums: Sequence[Cumulants]
    ) -> None:
        self._straight, self._diagonal = straight, diagonal
        self._along = [_LineSums(line, straight[0], diagonal[0], sums) for line in lines]

    def price_queries(self, around: forms.QueryBoxes, kurtosis: bool) -> tuple[FloatArray, FloatArray]:
        """Return each query's variance and fourth cumulant due to all sums and the draws around the query."""
        straight, diagonal = self._straight[0], self._diagonal[0]
        rising, falling = around.subtract_shifted((1, 1), (0, 0)), around.subtract_shifted((1, 0), (0, 1))
        flows = around.subtract_shifted((1, 0), (0, 0)), around.subtract_shifted((0, 1), (0, 0))
        total = straight * sum(map(_sum_squares, flows)) + diagonal * (_sum_squares(rising) + _sum_squares(falling))
        fourth, factors = np.zeros(len(around)), []
        for axis, (sums, own) in enumerate(zip(self._along, flows, strict=True)):
            # A falling move is stored at its left or lower end, but belongs to the row above or the next column.
            crossing, up, down = (each if axis == 0 else each.mT for each in (own, rising, falling))
            picked, leaf, theta = sums.find_near(around, 1 - axis)
            known, outer = np.split(crossing @ np.concatenate([leaf, theta], axis=1).mT, 2, axis=2)
            outer = straight * outer + diagonal * (up @ theta.mT)
            outer += (diagonal if axis == 0 else -diagonal) * (down[:, :, :-1] @ theta[:, :, 1:].mT)
            waves = known @ _pick_pairs(sums.inverse, picked)
            total += _sum_products(known @ _pick_pairs(sums.within, picked), known) - 2 * _sum_products(outer, waves)
            if kurtosis:
                squares = known.astype(np.float32) @ sums.single[picked]
                np.multiply(squares, squares, out=squares)
                fourth += _sum_products(squares * sums.fourth, squares)
            factors.append((waves, theta))
        # A diagonal move is spread along two lines. Add the covariance of the two parts, shifted if the move falls.
        (over, along_y), (up, along_x) = factors
        total += 2 * diagonal * _sum_products(over.mT @ along_x.mT, along_y @ up)
        further = along_x[:, :, 1:].mT, along_y[:, :, 1:]
        total -= 2 * diagonal * _sum_products(over[:, :-1].mT @ further[0], further[1] @ up[:, :-1])
        if not kurtosis:
            return total, fourth
        # Weights of the draws in a box, minus the parts that are spread along the lines.
        east, north, rising, falling, *spread = _as_single(*flows, rising, falling, over, along_y, along_x.mT, up.mT)
        over, up = spread[0] @ spread[1], spread[2] @ spread[3]
        rising -= over
        rising -= up
        falling[:, :, :-1] -= over[:, :, 1:]
        falling[:, :-1] += up[:, 1:]
        east -= over
        north -= up
        fourth += self._straight[1] * (_sum_fourths(east) + _sum_fourths(north))
        for left in (rising, falling):
            fourth += self._diagonal[1] * _sum_fourths(around.zero_outside(left, 0, 1))
        return total, fourth


class _HubSums:
    """Sums of hubs along one axis, and their products with K (`variance`) and T (`trust`) along this axis."""

    def __init__(self, line: HubLine, variance: FloatArray, trust: FloatArray) -> None:
        squares, turn = line.spectrum
        self._places, self._sums = line.places, _NearSums(line.windows, line.windows.theta)
        #: The coefficient of each sum in each wave (sums, waves), the sum of each wave, and K for pairs of sums.
        self.turn, self.waves, self.known = turn, line.waves.sum(axis=1), (turn * variance[1:, 0]) @ turn.T
        onto, own, alone = turn * squares, to_increments(trust)[1:, 0], trust[1:, 0]
        seen = (turn * alone) @ onto.T, onto @ (alone * self.waves)
        #: Θ in waves, the products of T with the sums and with ones, and Θ times each of these products.
        self.onto, self.own, self.own_ones, self.seen, self.seen_ones = _as_single(
            onto, (turn * own) @ turn.T, turn @ (own * self.waves), *seen
        )
        (self.beyond,) = _as_single(trust[1:, 1:] - trust[1:, :1])

    def find_near(self, around: forms.QueryBoxes, axis: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Return, for each box, its h hubs along an axis, their s sums, and the weights (s, h) of hubs in sums."""
        low, high = around.low[:, axis], around.high[:, axis]
        first, behind = (np.searchsorted(self._places, edge) for edge in (low, high))
        hub = first[:, None] + np.arange(-1, int((behind - first).max()) + 1)
        outside = (hub < first[:, None]) | (hub >= behind[:, None])
        places = np.where(outside, 0, self._places.take(hub, mode="clip") - low[:, None] + 1)
        last = np.maximum(behind - 1, 0)
        some, (weights,) = self._sums.find_near(np.minimum(first, last), last, first, hub.shape[1])
        return places, some, weights

    def sum_strips(
        self, sums: FloatArray, some: IntArray, across: FloatArray, found: FloatArray, alike: FloatArray
    ) -> FloatArray:
        """Sum, for each query, the fourth powers of the weights on strips along this axis.

        `sums` (queries, s, h) contains the queries' sums along this axis, `some` the indices of these sums, and
        `across` (queries, t, h) weights along the other axis. `found` is indexed by waves along this axis and by sums
        along the other axis. `alike` is subtracted from the weight of every hub.
        """
        factors = np.concatenate([self.seen[some].mT, self.onto @ found], axis=2)
        seen = factors @ np.concatenate([sums, across], axis=1)
        seen -= alike * self.seen_ones[:, None]
        seen *= np.any(sums, axis=1, keepdims=True)
        return _sum_fourths(seen)


class HubErrors:
    """Variances and fourth cumulants that hubs add to queries. `draws` and `sums` are fourth cumulants of the noise."""

    def __init__(self, known: HubVariance, draws: float, sums: Sequence[float], total_known: bool) -> None:
        self._known, self._draws, self._sums, self._total_known = known, draws, sums, total_known
        (x, y), variance, trust = known.hubs.axes, known.increments, known.hubs.trust
        self._axes = _HubSums(x, variance, trust), _HubSums(y, variance.T, trust.T)
        self._everywhere = all(len(line.places) == line.n for line in (x, y))

    def price_queries(self, around: forms.QueryBoxes, kurtosis: bool) -> tuple[FloatArray, FloatArray]:
        """Return each query's variance and fourth cumulant due to its hubs, the strips through them, and all sums."""
        hubs, known, (x, y) = self._known.hubs, self._known.increments, self._axes
        (at_x, some_x, over), (at_y, some_y, up) = x.find_near(around, 0), y.find_near(around, 1)
        share = around.shares
        if not self._everywhere:
            share = share[np.arange(len(around))[:, None, None], at_x[:, :, None], at_y[:, None, :]]
        # Sums along each row or column of hubs. Few sums overlap a box, but all waves do.
        on_x, on_y = over @ share, up @ share.mT
        turn_x, turn_y = x.turn[some_x], y.turn[some_y]
        found = turn_x.mT @ (over @ on_y.mT) @ turn_y
        variance = known[0, 0] * _sum_squares(share)
        variance += _sum_products(found, known[1:, 1:] * found)
        if hubs.strips:
            variance += _sum_products(on_x, _pick_pairs(x.known, some_x) @ on_x)
            variance += _sum_products(on_y, _pick_pairs(y.known, some_y) @ on_y)
        (core, ones), alike = self._known.onto_total, np.zeros((len(around), 1, 1))
        # Adjusting to the total subtracts the same amount from all hubs, or nothing if there is no noise.
        if self._total_known and ones > 0:
            entering = found.reshape(len(found), -1) @ core.ravel()
            variance -= entering**2 / ones
            alike = (entering / ones)[:, None, None]
            found = found - alike * np.multiply.outer(x.waves, y.waves)
        fourth = np.zeros(len(around))
        if not kurtosis:
            return variance, fourth
        share, found, on_x, on_y, over, up, turn_x, turn_y, alike, trust, weight = _as_single(
            share, found, on_x, on_y, over, up, turn_x, turn_y, alike, hubs.trust, to_increments(hubs.trust)
        )
        # The weight of a hub's own draw is the query's weight at the hub minus the weight of the hub's sums.
        along_x, along_y = turn_x @ (weight[1:, 1:] * found) @ turn_y.mT @ up, np.zeros_like(on_y)
        if hubs.ratios:
            fourth += self._sums[0] * _sum_fourths(x.onto @ ((trust[1:, 1:] * found) @ y.onto.T) / hubs.ratios[0])
        if hubs.strips:
            along_x += _pick_pairs(x.own, some_x) @ on_x - alike * x.own_ones[some_x][:, :, None]
            along_y += _pick_pairs(y.own, some_y) @ on_y - alike * y.own_ones[some_y][:, :, None]
            seen = x.sum_strips(on_x, some_x, up, (x.beyond * found) @ turn_y.mT, alike)
            seen += y.sum_strips(on_y, some_y, over, (y.beyond * found.mT) @ turn_x.mT, alike)
            fourth += self._sums[1] * seen / hubs.ratios[1] ** 4
        left = np.concatenate([over, along_y], axis=1).mT @ np.concatenate([along_x, up], axis=1)
        left += share
        left -= alike
        left *= share != 0
        return variance, fourth + self._draws * _sum_fourths(left)
