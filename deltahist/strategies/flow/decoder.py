"""Decoding flows: block sums are the estimate as they come; cells share what their block gains."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import LEAST_SQUARED, Asked, Decoder, Moments
from deltahist.decode.forms import (
    Bilinear,
    BlockPower,
    Feature,
    Forms,
    Mixed,
    Overlap,
    Quadratic,
    Terms,
    surroundings,
)
from deltahist.space.workloads import AllRanges, Boxes, RegionCover
from deltahist.space.workloads.cover import explicit, prefix_sums, sums_between
from deltahist.strategies.flow.entry import ARRIVALS, HUB_STRIPS, HUB_SUMS, HUBS, Hubs
from deltahist.strategies.flow.errors import HubErrors, HubVariance, RimErrors
from deltahist.strategies.flow.lines import (
    BITS,
    DIAGONAL,
    STRAIGHT,
    Corner,
    Diagonal,
    EstimatedFlow,
    Lines,
    Side,
)
from deltahist.strategies.grids import spread_blocks, sum_blocks
from deltahist.strategies.product import MOST_TABLED

if TYPE_CHECKING:
    from deltahist.strategies.flow.strategy import Flow

_ONE = float(1 << BITS)


class FlowDecoder(Decoder):
    """Cells ĉ = y₁ + Sᵀ N⁻¹ (y₂ − S y₁): y₁ cells, y₂ block sums, N block sizes.

    With blocks of single cells ĉ = y₂. A box's variance is the sum over its four sides of the variance of the
    flow across (docs/theory.md, section 5), with the diagonal moves at its corners counted once.
    """

    strategy: Flow

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._cells(values, self._sums(values))

    def _sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return block sums y₂ (blocks), in points."""
        flow = self.strategy
        return np.asarray(values[flow.shape[0] - flow.size :].reshape(flow.blocks) / _ONE)

    def _cells(self, values: NDArray[Any], sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ĉ (N,) from y₁ and the block sums."""
        flow = self.strategy
        if flow.plain:
            return sums.ravel()
        cells = values[: self.domain.size].reshape(self.domain.shape)
        gain = (sums - sum_blocks(cells, flow.starts)) / self._block_sizes
        return (cells + spread_blocks(gain, flow.starts, self.domain.shape)).ravel()

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        flow = self.strategy
        if flow.plain:
            return query / _ONE
        box = query.reshape(self.domain.shape)
        share = sum_blocks(box, flow.starts) / self._block_sizes
        rest = box - spread_blocks(share, flow.starts, self.domain.shape)
        return np.concatenate([rest.ravel(), share.ravel() / _ONE])

    def estimate(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        moved = self.total_known and total is not None and not self.strategy.keeps_total
        if moved and not self._enters_by_hubs:
            return super().estimate(values, total)
        sums = self._sums(values)
        if moved:
            hubs, spread = self._hubs_onto_total
            if spread > 0:
                assert total is not None
                sums.ravel()[self._hub_places] += hubs * ((total - sums.sum()) / spread)
        return self._cells(values, sums).reshape(self.domain.shape)

    def coefficients(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.adjoint(query) if self.strategy.keeps_total else super().coefficients(query)

    @functools.cached_property
    def onto_total(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        if not self._enters_by_hubs:
            return super().onto_total
        flow, (hubs, spread) = self.strategy, self._hubs_onto_total
        values = np.zeros(flow.shape[0])
        values[flow.shape[0] - flow.size + self._hub_places] = hubs * _ONE
        return self.adjoint(np.ones(self.domain.size)), self.solve(values), spread

    @property
    def _enters_by_hubs(self) -> bool:
        """Whether nothing but hubs moves onto a public total: flows between blocks do not change the total."""
        return len(self.strategy.entry_points) == 1 and self.strategy.hub_grid is not None

    @property
    def _hub_places(self) -> NDArray[np.int64]:
        """The blocks of the hubs, among all blocks (hubs,)."""
        assert self.strategy.hub_grid is not None
        return self.strategy.hub_grid.places

    @property
    def _hubs_onto_total(self) -> tuple[NDArray[np.float64], float]:
        """The hubs' part (hubs,) in moving estimates onto the total, and its sum."""
        assert self._hubs is not None
        assert self.strategy.hub_grid is not None
        (x, y), (core, spread) = self.strategy.hub_grid.axes, self._hubs.onto_total
        return (x.waves.T @ core @ y.waves).ravel(), spread

    @functools.cached_property
    def _block_sizes(self) -> NDArray[np.float64]:
        return sum_blocks(np.ones(self.domain.shape), self.strategy.starts)

    @functools.cached_property
    def _variance(self) -> dict[str, float]:
        """Variance of a draw by the name of its group, a flow being counted in points."""
        return {
            group.name: law.variance() * float(group.unit) ** 2
            for group, law in zip(self.strategy.groups, self.laws, strict=True)
        }

    @functools.cached_property
    def _closed(self) -> bool:
        """Whether variances have a closed form: tables fit, and of a public total nothing but hubs knew less."""
        return max(self.strategy.blocks) <= MOST_TABLED and (
            self.strategy.arrivals is None or not self.total_known
        )

    @functools.cached_property
    def _hubs(self) -> HubVariance | None:
        found = [point for point in self.strategy.entry_points if isinstance(point, Hubs)]
        if not found:
            return None
        sums = [self._variance[name] for name in (HUB_SUMS, HUB_STRIPS) if name in self._variance]
        return HubVariance(found[0], self._edges, self._variance[HUBS], sums)

    def terms(self, order: int) -> Terms | None:
        if not self._closed:
            return None
        return self._terms[order]

    @functools.cached_property
    def _terms(self) -> dict[int, Terms]:
        """Variance and fourth cumulant by their order, hubs included."""
        second, fourth, hubs = self._second, self._fourth, self._hubs
        if hubs is not None:
            second = [*second, *hubs.second(self.total_known)]
            fourth = [*fourth, *hubs.fourth(self.laws[0].kurtosis())]
        return {2: second, 4: fourth}

    @functools.cached_property
    def _fourth(self) -> Terms:
        """Fourth cumulant: exact for cells; of flows the single moves through the rim, in full weight.

        Sums along lines and the corners are left out, and least squares gives single moves a little less weight.
        """
        flow, variance = self.strategy, self._variance
        weight = self.laws[0].kurtosis()
        each = variance[STRAIGHT] ** 2
        if len(flow.blocks) == 1:
            out: Terms = [(weight * each, (self._rims[0],))]
        else:
            each += 2 * variance[DIAGONAL] ** 2
            assert isinstance(flow.block, tuple)
            # An end along x crosses a border in each row of blocks: as many as its cells along y over their height.
            (wide, high), (x, y), length = flow.block, self._rims, BlockPower(1, 4)
            out = [(weight * each / high, (x, length)), (weight * each / wide, (length, y))]
        if flow.plain:
            return out
        cells = weight * variance["cells"] ** 2
        cut = [np.append(s, n) for n, s in zip(self.domain.shape, flow.starts, strict=True)]

        def sums(own: int, mean: int) -> tuple[Feature, ...]:
            return tuple(Mixed(c, own, mean) for c in cut)

        # Σ (q − q̄)⁴, where Σ q q̄³ = Σ q̄⁴ block by block
        return [
            *out,
            (cells, sums(4, 0)),
            (-4 * cells, sums(3, 1)),
            (6 * cells, sums(2, 2)),
            (-3 * cells, sums(1, 3)),
        ]

    @functools.cached_property
    def _edges(self) -> list[NDArray[np.float64] | None]:
        """Where each edge of cells lies among the blocks, per axis; None if blocks are cells."""
        flow = self.strategy
        return [
            None if flow.plain else np.interp(np.arange(n + 1), np.append(s, n), np.arange(len(s) + 1.0))
            for n, s in zip(self.domain.shape, flow.starts, strict=True)
        ]

    @functools.cached_property
    def _rims(self) -> list[Quadratic]:
        """Σ of the squared weights of the inner lines that an interval ends at, per axis."""
        inner = (Diagonal(np.pad(np.ones(m - 1), 1)) for m in self.strategy.blocks)
        return [Quadratic.of(form, edge) for form, edge in zip(inner, self._edges, strict=True)]

    @functools.cached_property
    def _second(self) -> Terms:
        flow, variance = self.strategy, self._variance
        edges, rims = self._edges, self._rims
        if len(edges) == 1:
            out: Terms = [(variance[STRAIGHT], (rims[0],))]
        else:
            out = [(1.0, self._across(rims, edges))]
        if flow.plain:
            return out
        inside = tuple(BlockPower(1, 2) for _ in edges)
        cut = [
            np.append(s, n).astype(np.float64) for n, s in zip(self.domain.shape, flow.starts, strict=True)
        ]
        shared = tuple(Quadratic.of(Overlap(c), e) for c, e in zip(cut, edges, strict=True))
        return [*out, (variance["cells"], inside), (-variance["cells"], shared)]

    def _across(self, rims: list[Quadratic], edges: Sequence[NDArray[np.float64] | None]) -> Bilinear:
        """Return sides along y times ends along x, and the other way round; then the corners.

        Var = J_x G_y + G_x J_y + σ_d² (J_x J_y + 2 J_x B_y + 2 B_x J_y + 2 B_x B_y − 2 B'_x B'_y), derived in
        docs/theory.md: here J is a rim, G a `Side`, B and B' a `Corner` with shifts 0 and 1, each a function of an
        interval along its axis.
        """
        flow, variance = self.strategy, self._variance
        d = variance[DIAGONAL]
        sums = flow.sums_of(lambda kind: variance[kind.name])
        # The lines that cross x run along y, and their forms are over places along y.
        axes = [
            Forms([*rim.forms.forms, *_along(line, variance[STRAIGHT], d, sums)], edge)
            for rim, line, edge in zip(rims, reversed(flow.lines), edges, strict=True)
        ]
        nx, ny = self.domain.shape
        if nx == ny and flow.lines[0] == flow.lines[1] and np.array_equal(flow.starts[0], flow.starts[1]):
            axes[1] = axes[0]
        weights = np.array([[d, 1, 2 * d, 0], [1, 0, 0, 0], [2 * d, 0, 2 * d, 0], [0, 0, 0, -2 * d]])
        return Bilinear((axes[0], axes[1]), weights)

    def moments(self, work: Asked) -> Moments:
        if not isinstance(work, Boxes | AllRanges) and self._by_rims:
            return self._of_queries(work)
        found = super().moments(work)
        found.variance[...] += self._arriving(work)
        return found

    def variance(self, work: Asked) -> NDArray[np.float64]:
        if not isinstance(work, Boxes | AllRanges) and self._by_rims:
            return self._of_queries(work, kurtosis=False).variance
        return super().variance(work) + self._arriving(work)

    def _arriving(self, work: Asked) -> NDArray[np.float64] | float:
        """Return the variance that arrivals add to the closed form of boxes (m,)."""
        if not self._entry or not isinstance(work, Boxes | AllRanges) or not self.closed:
            return 0.0
        return self._entry * sums_between(self._entries_before, work.spans(self.domain))

    @functools.cached_property
    def _entries_before(self) -> NDArray[np.float64]:
        """Shares of entry points summed up to every edge of cells."""
        return prefix_sums(self._entry_shares)[..., 0]

    @property
    def _by_rims(self) -> bool:
        """Whether explicit queries are priced by their rims: on grids, where only hubs let mass enter."""
        flow = self.strategy
        only_hubs = all(isinstance(point, Hubs) for point in flow.entry_points)
        return len(flow.blocks) == 2 and min(flow.blocks) > 1 and only_hubs

    def _of_queries(self, queries: RegionCover | scipy.sparse.csr_array, kurtosis: bool = True) -> Moments:
        """Return errors of regions or explicit queries (m, N), by their rims (`RimErrors`)."""
        number = queries.number if isinstance(queries, RegionCover) else queries.shape[0]
        variance, fourth = np.zeros((2, number))
        if not self.strategy.plain:
            queries, *left = self._in_blocks(explicit(queries), 4 if kurtosis else 2)
            for out, cumulant, powers in zip((variance, fourth), self._cumulants["cells"], left, strict=False):
                out += cumulant * powers
        for around in surroundings(queries, self.strategy.blocks):
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
            RimErrors(flow.lines, known, flow.sums_of(lambda kind: known[kind.name]))
        ]
        if self._hubs is not None:
            sums = [known[name][1] for name in (HUB_SUMS, HUB_STRIPS) if name in known]
            out.append(HubErrors(self._hubs, known[HUBS][1], sums, self.total_known))
        return out

    def _in_blocks(
        self, queries: scipy.sparse.csr_array, order: int
    ) -> tuple[scipy.sparse.csr_array, *tuple[NDArray[np.float64], ...]]:
        """Return the share of each block that queries hold (m, blocks), and the power of the residuals of cells.

        These are Σ of second and, if that is the order, of fourth powers (m,).
        """
        flow, domain = self.strategy, self.domain
        block = spread_blocks(np.arange(flow.size).reshape(flow.blocks), flow.starts, domain.shape).ravel()
        # Cells of a block that lie in one column come one after the other.
        own_block = block[queries.indices]
        new = np.append(True, own_block[1:] != own_block[:-1])
        new[queries.indptr[:-1][np.diff(queries.indptr) > 0]] = True
        runs = np.flatnonzero(new)
        column, rows = own_block[runs], np.searchsorted(runs, queries.indptr)
        held, power = [], queries.data
        for _ in range(order):
            sums = np.add.reduceat(power, runs) if len(runs) else power
            held.append(scipy.sparse.csr_array((sums, column.copy(), rows.copy()), (queries.shape[0], flow.size)))
            held[-1].sum_duplicates()
            power = power * queries.data
        one, two, *more = (each.data for each in held)
        shares, size = held[0], self._block_sizes.ravel()[held[0].indices]
        mean = one / size
        # Block by block, so that nothing is left of whole blocks.
        left = [two - mean * one]
        if more:
            three, four = more
            left.append(four - 4 * mean * three + 6 * mean**2 * two - 3 * mean**3 * one)
        own = np.repeat(np.arange(shares.shape[0]), np.diff(shares.indptr))
        of_rest = (np.bincount(own, part, shares.shape[0]).astype(np.float64) for part in left)
        return scipy.sparse.csr_array((mean, shares.indices, shares.indptr), shape=shares.shape), *of_rest

    @functools.cached_property
    def _cumulants(self) -> dict[str, tuple[float, float]]:
        """Variance and fourth cumulant of a draw by the name of its group, as `_variance`."""
        groups = zip(self.strategy.groups, self.laws, strict=True)
        return {g.name: (v := self._variance[g.name], law.kurtosis() * v * v) for g, law in groups}

    def mean_variance(self, work: AllRanges) -> float:
        mean = super().mean_variance(work)
        if not self._entry or not self._closed:
            return mean
        shares = self._entry_shares
        for n in reversed(self.domain.shape):
            cell = np.arange(n)
            shares = shares @ ((cell + 1) * (n - cell) / (n * (n + 1) / 2))
        return mean + self._entry * float(shares)

    @property
    def _entry(self) -> float:
        return self._variance.get(ARRIVALS, 0.0)

    @functools.cached_property
    def _entry_shares(self) -> NDArray[np.float64]:
        """Share of a block in each cell, where entities may appear; a box's own share squared is less."""
        flow = self.strategy
        open_ = np.zeros(flow.size)
        open_[flow.entries] = 1.0
        sizes = np.ones(flow.blocks) if flow.plain else self._block_sizes
        return spread_blocks(open_.reshape(flow.blocks) / sizes, flow.starts, self.domain.shape)

    @property
    def note(self) -> str:  # type: ignore[override]
        return "a bound" if self._entry and self._closed and not self.strategy.plain else "exact"


def _along(
    line: Lines, straight: float, diagonal: float, sums: Sequence[float]
) -> tuple[Side, Corner, Corner]:
    """Return the estimated flow through the borders before each edge, and the two tables of the corners (`forms`)."""
    own = np.array(sums)[line.level] if line.widths else np.zeros(0)
    flow = EstimatedFlow(line, straight + diagonal * line.diagonals, own)
    return Side(flow), Corner(flow, 0), Corner(flow, 1)
