"""Releases of counts: estimates of all cells, their files, and answers as arrays.

A few queries are summed cell by cell. Many queries are read off prefix sums of the map (`_CellSums`). Boxes that cut
cells also need sums along their sides, which block sums and a few single cells provide (`Rims`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from deltahist.decode import Decoder, Placement, ProjectedCells, estimate_nonnegative, interval, learn_placement
from deltahist.decode.base import Moments
from deltahist.decode.placement import Chosen, block_variance, find_least_count
from deltahist.errors import check_whole
from deltahist.mechanisms import Mechanism
from deltahist.releases.base import NONNEGATIVE, BaseRelease, join_answers
from deltahist.space import workloads
from deltahist.space.domain import Domain
from deltahist.space.workloads import BoxCover, Boxes, Pieces, RegionCover, Regions, Workload, prefix_sums, sums_between
from deltahist.strategies.base import Strategy

Field = NDArray[np.float64]
Index = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
#: Numbers of boxes and of cells processed at a time, to save memory.
_BOXES_AT_A_TIME, _CELLS_AT_A_TIME = 1 << 12, 1 << 17
#: Maximum number of block sums (128 MiB). Larger maps have longer blocks.
_MOST = 1 << 24


class Measurements(NamedTuple):
    """Measurements y = A c + noise, where c (N,) are the cells, with x varying slowest (`Release.measurements`).

    matrix : A (k, N). values : y (k,), in the units of A. covariance : the noise's covariances (k, k), 0 for exact
    numbers. The matrices may be dense arrays, sparse arrays or SciPy operators.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    >>> matrix, values, covariance = dh.publish(np.array([5, 0, 3, 2]), near, epsilon=1.0).measurements()
    >>> matrix.shape, values.shape, covariance.shape
    ((4, 4), (4,), (4, 4))
    """

    matrix: Any
    values: Field
    covariance: Any


class CountEstimates:
    """Estimates of counts from a release, or from a sum of releases.

    A subclass defines `total`, `decoder` and `placement` as `Release` does, and also `_unbiased_cells` (domain.shape,
    by least squares) and `projection` (non-negative cells, with a certificate). Threads may share an instance.
    """

    def cells(self: Any, *, nonnegative: bool = False) -> Field:
        """Return estimates of all cells (domain.shape).

        The default estimates (least squares) are unbiased, so some are negative. With `nonnegative`, cells are equal
        inside blocks that look empty (`estimate_nonnegative`), and all cells add up to the total if it is public. These
        estimates are biased, but usually much closer to the truth if many cells are empty.
        """
        return self.projection.cells if nonnegative else self._unbiased_cells  # type: ignore[no-any-return]

    @functools.cached_property
    def _unbiased_sums(self: Any) -> _CellSums:
        return _CellSums(self, self.cells(), True)

    @functools.cached_property
    def _nonnegative_sums(self: Any) -> _CellSums:
        return _CellSums(self, self.cells(nonnegative=True), False, self._unbiased_sums.cost_so_far)

    def precompute_sums(self: Any) -> None:
        """Precompute prefix sums, so that answers do not depend on the order of queries."""
        vars(self).pop("_nonnegative_sums", None)
        vars(self)["_unbiased_sums"] = sums = _CellSums(self, self.cells(), True, math.inf)
        _ = sums.prefix_sums, sums.rim_sums

    def answer_workload(self: Any, work: Workload, *, level: float, nonnegative: bool = False) -> Columns:
        """Return the columns (m,) of `dh.answer`. Raises InputError if a query is reversed, empty or off the domain."""
        domain = self.decoder.domain
        return answer_in_batches(work, domain, lambda batch: self._answer_batch(batch, level, nonnegative))

    def _answer_batch(self: Any, work: Workload, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        decoder = self.decoder
        cover = work.cover(decoder.domain)
        cut = cover.cut.any()
        noise = decoder.moments(cover if isinstance(cover, RegionCover) else work)
        unbiased, whole, touched, misplaced = self._unbiased_sums.sum_over(cover)
        estimate, inner, outer = unbiased, whole, touched
        if nonnegative:
            found, inner, outer, _ = self._nonnegative_sums.sum_over(cover)
            estimate = np.maximum(found, 0.0)  # remove rounding errors below zero
        error = np.sqrt(noise.variance)
        reach = [interval(each, decoder.laws[0], level) for each in (noise, noise.and_normal(misplaced))]
        (least, most), (down, up) = reach
        columns = {}
        if cut:
            share, room = cover.cut_share, np.maximum(np.maximum(whole, touched) - unbiased, 0.0)
            if len(alone := np.flatnonzero(share == 1)):
                # A query that contains no whole cell may have been drawn around points (docs/internals/placement.md).
                # Extend the interval upwards by one point, or by the size-weighted mean number of points if that is
                # larger, and scale the noise in proportion.
                found = np.maximum(unbiased[alone], 1e-9)
                more = np.maximum(np.minimum(misplaced[alone], room[alone] * found) / found, 1.0)
                times = np.maximum((found + more) / np.maximum(found, (found + more) * cover.area[alone]), 1.0)
                variance = more**2 + noise.variance[alone] * (times**2 - 1)
                up[alone] = more + np.hypot(up[alone], NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(variance))
                room[alone], most[alone] = np.maximum(room[alone], 1.0), most[alone] * times
            # Wherever points lie in cut cells, the answer is between the sum of whole cells and the sum of all touched
            # cells. The interval may exceed this range by 1.5 times the half-width for noise alone.
            least = np.maximum(unbiased - np.minimum(whole, touched), 0.0) + 1.5 * least
            most = room + 1.5 * most
            down, up = (np.where(cover.cut, np.minimum(h, m), h) for h, m in ((down, least), (up, most)))
            columns = {
                "noise_error": error,
                "placement_error": np.sqrt(misplaced),
                "cut": share,
                "inner": np.clip(inner, 0.0 if nonnegative else None, estimate),
                "outer": np.maximum(outer, estimate),
            }
        low, high = unbiased - down, unbiased + up
        if nonnegative:
            ceiling = np.inf if self.total is None else float(self.total)
            low = np.minimum(np.clip(low, 0.0, ceiling), estimate)
            high = np.maximum(np.clip(high, 0.0, ceiling), estimate)
        table = {"estimate": estimate, "std_error": np.sqrt(error**2 + misplaced), "low": low, "high": high, **columns}
        if decoder.strategy.determines_cells is not True:
            unresolved = noise.unresolved
            table["unresolved"] = np.full(len(estimate), np.nan) if unresolved is None else unresolved
        if nonnegative:
            table["estimator"] = np.full(len(estimate), NONNEGATIVE, dtype=object)
        return table


@dataclass(frozen=True, eq=False, repr=False)
class Release(CountEstimates, BaseRelease):
    """A release of counts: exact noisy answers to a strategy's rows.

    Parameters
    ----------
    mechanism : strategy, neighbourhood, budget and preprocessing.
    values : (k,) int64, y = A c + η.
    total : the number of points if membership is fixed and nothing was dropped, else None.
    payment, withdrawn, about : as in `BaseRelease`.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = dh.publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.cells().shape, release.total, release.publishable
    ((8, 8), 64, True)
    """

    mechanism: Mechanism
    values: NDArray[np.int64]
    total: int | None = None
    mechanism_class: ClassVar[type[Any]] = Mechanism
    bytes_each: ClassVar[int] = 48

    @property
    def strategy(self) -> Strategy:
        """The strategy that was measured."""
        return self.mechanism.strategy

    @property
    def decoder(self) -> Decoder:
        """The least-squares decoder of this release."""
        return self.mechanism.decoder

    @functools.cached_property
    def _unbiased_cells(self) -> Field:
        cells = self.decoder.estimate_cells(self.values, self.total)
        cells.flags.writeable = False
        return cells

    @functools.cached_property
    def projection(self) -> ProjectedCells:
        decoder = self.decoder
        field = decoder.estimate_on_grid(self.values, self.total)
        return estimate_nonnegative(field, decoder.noise_metric(), self.total, find_least_count(decoder))

    def measurements(self) -> Measurements:
        """Return the released numbers y = A c + noise as (A, y, covariance of the noise), for other tools."""
        strategy, variance, size = self.strategy, self.decoder.draw_variance, len(self.values)
        covariance: Any = scipy.sparse.diags_array(variance)
        if not strategy.row_by_row:  # the noise is R(η), for independent draws η
            covariance = LinearOperator(
                (size, size), lambda y: strategy.scatter(variance * strategy.gather(y.ravel())), dtype=np.float64
            )
        return Measurements(aslinearoperator(strategy), self.values.astype(np.float64), covariance)

    def estimate_cells(self, *, nonnegative: bool = False) -> tuple[Field, Field]:
        """Return estimates of all cells and the standard errors of the unbiased ones."""
        return self.cells(nonnegative=nonnegative), self._cell_errors

    @functools.cached_property
    def _cell_errors(self) -> Field:
        return np.sqrt(self.block_moments(1).variance).reshape(self.domain.shape)

    def block_moments(self, width: int) -> Moments:
        """Return the moments of the noise in all blocks with sides of `width` cells. x varies slowest."""
        domain, shape = self.domain, [-(-n // width) for n in self.domain.shape]
        # Evaluate a closed form in batches to save memory. If there is none, all blocks share simulated noise.
        part = max(1, 8 * _CELLS_AT_A_TIME * shape[0] // math.prod(shape)) if self.decoder.has_closed_form else shape[0]
        found = []
        for start in range(0, shape[0], part):
            index = np.indices((min(part, shape[0] - start), *shape[1:])).reshape(domain.ndim, -1)
            index[0] += start
            blocks = [(axis, each + end) for end in (0, 1) for axis, each in enumerate(index)]
            corners = [domain.edges(axis)[np.minimum(at * width, domain.shape[axis])] for axis, at in blocks]
            found.append(self.decoder.moments(Boxes(np.column_stack(corners))))
        variance, kurtosis = (np.concatenate([getattr(m, name) for m in found]) for name in ("variance", "kurtosis"))
        return replace(found[0], variance=variance, kurtosis=kurtosis, unresolved=None, draws=None)

    @functools.cached_property
    def placement(self) -> Placement:
        """The model of points' positions inside cells, learnt from the estimates."""
        return learn_placement(self._unbiased_cells, block_variance(self.decoder))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"total": self.total}

    def file_columns(self) -> dict[str, NDArray[Any]]:
        """Return the index of each value's noise group (int16), and the values (int64)."""
        group = np.empty(self.strategy.shape[0], dtype=np.int16)
        for i, part in enumerate(self.strategy.parts):
            group[part.members] = i
        return {"group": group, **super().file_columns()}

    @classmethod
    def read_fields(cls, description: dict[str, Any], values: NDArray[np.int64] | None) -> dict[str, Any]:
        fields, total = super().read_fields(description, values), None
        if fields["mechanism"].total_known:
            # Cap a total that exceeds 64 bits. The file is then refused, because it states a different total.
            total = min(check_whole(least=0, total=description["total"]), (1 << 63) - 1)
        return fields | {"total": total}


@dataclass(eq=False)
class _CellSums:
    """Sums of a release's cells (domain.shape) over queries.

    `placed` states whether to compute the variance due to points' positions inside cells. `cost_so_far` is the cost of
    all previous queries, in units of the cost of prefix sums for one cell.
    """

    release: Any
    cells: Field
    placed: bool
    cost_so_far: float = 0.0

    @functools.cached_property
    def prefix_sums(self) -> Field:
        """Prefix sums of the cells up to every edge."""
        return prefix_sums(self.cells)

    @functools.cached_property
    def rim_sums(self) -> Rims:
        """Precomputed sums for the cells that boxes cut."""
        return Rims(self._find_fields, self.cells.shape)

    def _find_fields(self, chosen: Chosen) -> tuple[Field, ...]:
        """Return the slope terms of cells along each axis and, if `placed`, their spreads (`Placement`)."""
        placement = self.release.placement
        leaning = placement.slope_terms(self.cells[chosen], chosen)
        return (*leaning, *(placement.spreads(chosen) if self.placed else ()))

    def sum_over(self, cover: workloads.Cover) -> tuple[Field, Field, Field, Field]:
        """Return arrays (m,): estimates, sums of whole cells, sums of all touched cells, and placement variances."""
        if isinstance(cover, BoxCover):
            if not len(cover.cut):
                return (np.zeros(0),) * 4
            sizes = [high - low for low, high in cover.spans]
            rims = 4 * float(sum(sizes) @ cover.cut)  # cells at both ends, each at twice the cost
            use_sums = self._use_prefix_sums(len(cover.cut), float(np.prod(sizes, axis=0).sum()), rims)
            if len(sizes) != 2 or use_sums:
                parts = workloads.in_parts(np.ones(len(cover.cut)), _BOXES_AT_A_TIME)
                found = [self._by_sums(cover[some]) for some in parts]
            else:
                parts = workloads.in_parts(2 * np.sum(sizes, axis=0), _CELLS_AT_A_TIME)
                found = [self._by_cells(cover[some].list_cells(self.cells.shape)) for some in parts]
            one, two, three, four = (np.concatenate(each) for each in zip(*found, strict=True))
            return one, two, three, four
        assert isinstance(cover, RegionCover)
        return self._by_cells(cover)

    def _use_prefix_sums(self, number: int, area: float, rims: float = 0.0) -> bool:
        """Add the cost of `number` more boxes, and return whether prefix sums would have cost less by now."""
        # One box costs as much as prefix sums for 64 cells, and so does summing 64² whole cells.
        self.cost_so_far += 64 * number + area / 64 + rims
        return self.cost_so_far > self.cells.size

    def _by_sums(self, cover: BoxCover) -> tuple[Field, Field, Field, Field]:
        if not cover.cut.any():
            return (sums_between(self.prefix_sums, cover.spans),) * 3 + (np.zeros(len(cover.cut)),)
        touched = sums_between(self.prefix_sums, [(np.floor(low), np.ceil(high)) for low, high in cover.spans])
        inner = [(np.ceil(low), np.floor(high)) for low, high in cover.spans]
        whole = sums_between(self.prefix_sums, [(low, np.maximum(low, high)) for low, high in inner])
        lean, *apart = self.rim_sums.sum_over(cover)
        found = sums_between(self.prefix_sums, cover.spans) + lean
        misplaced = self._join_variances([np.maximum(each, 0.0) for each in apart], len(found))
        return found, whole, touched, np.where(cover.cut, misplaced, 0.0)

    def _by_cells(self, cover: RegionCover) -> tuple[Field, Field, Field, Field]:
        inside, cut = self._sum_inside(cover), (cover.x, cover.y)
        if not len(cover.owner):
            return inside, inside, inside, np.zeros(len(inside))
        own, others = self.cells[cut], self._find_fields(cut)

        def sum_by_query(part: Field) -> Field:
            return np.asarray(np.bincount(cover.owner, part, cover.number))

        lean = sum(along * part for along, part in zip(cover.places, others, strict=False))
        spreads, share = others[self.cells.ndim :], cover.share
        apart = [np.maximum(sum_by_query(share * u) - sum_by_query(share**2 * u), 0.0) for u in spreads]
        found, touched = inside + sum_by_query(cover.share * own + lean), inside + sum_by_query(own)
        return found, inside, touched, self._join_variances(apart, len(found))

    def _join_variances(self, apart: list[Field], number: int) -> Field:
        return self.release.placement.joined_variance(apart) if apart else np.zeros(number)

    def _sum_inside(self, cover: RegionCover) -> Field:
        """Return, for each query (m,), the sum over the cells that lie entirely inside it."""
        (west, south), (east, north) = cover.low.T, cover.high.T
        if self._use_prefix_sums(len(west), float(((east - west) * (north - south)).sum())):
            sums = self.prefix_sums
            each = sums[east, north] - sums[west, north] - sums[east, south] + sums[west, south]
        else:
            boxes = zip(west, east, south, north, strict=True)
            each = np.array([self.cells[w:e, s:n].sum() for w, e, s, n in boxes])
        return np.asarray(np.bincount(cover.whole, each, cover.number))


def answer_in_batches(work: Workload, domain: Domain, answer: Callable[[Workload], Columns]) -> Columns:
    """Return the columns of answers, each of shape (m,). Regions are answered in batches to save memory."""
    parts = work.parts(domain) if isinstance(work, Regions) else [work]
    found = []
    while parts:
        found.append(answer(parts.pop(0)))  # free each batch and its cover before the next one
    return found[0] if len(found) == 1 else join_answers(found)


class _Sides(NamedTuple):
    """First and last cells of boxes along an axis (2, m), and the shares f of these cells that are inside the boxes.

    If both are the same cell, the last has share 0. `lean` is f ξ, where ξ is the centroid of the inside part, in half
    cells from the cell's centre.
    """

    cell: Index
    share: Field
    lean: Field

    @classmethod
    def from_pieces(cls, pieces: Pieces) -> Self:
        head, tail = pieces.head, pieces.tail * pieces.two_cells
        # The part inside the box is at the end of the first cell, and at the start of the last one.
        lean = np.array([head * (2 * pieces.before + head - 1), tail * (tail - 1)])
        return cls(np.array([pieces.first, pieces.last]), np.array([head, tail]), lean)


class Rims:
    """Sums over the cells that boxes cut. `fields` returns chosen cells' slope terms and spreads (`Placement`)."""

    def __init__(self, fields: Callable[[Chosen], Sequence[Field]], shape: tuple[int, ...]) -> None:
        self._fields, self._shape = fields, shape
        if len(shape) == 2:
            number = len(fields((slice(1), slice(1)))) - 1
            self._width = -(-2 * number * math.prod(shape) // _MOST)
            self._blocks = self._sums_of_blocks(number)

    def _sums_of_blocks(self, number: int) -> tuple[Field, Field]:
        """Return prefix sums of blocks along x (blocks + 1, ny, number) and along y (nx, blocks + 1, number)."""
        width, (nx, ny), (of_x, of_y) = self._width, self._shape, (n // self._width for n in self._shape)
        along_x, along_y = np.zeros((of_x + 1, ny, number)), np.zeros((nx, of_y + 1, number))
        step = width * max(1, _CELLS_AT_A_TIME // (width * ny))
        for start in range(0, nx, step):
            rows = slice(start, start + step)
            lean_x, lean_y, *spreads = self._fields((rows, slice(None)))
            for place, field in enumerate((lean_x, *spreads)):
                blocks = field[:, : of_y * width].reshape(len(field), of_y, width) @ np.ones(width)
                np.cumsum(blocks, axis=1, out=along_y[rows, 1:, place])
            for place, field in enumerate((lean_y, *spreads)):
                blocks = field[: len(field) // width * width].reshape(-1, width, ny).sum(axis=1)
                for block, each in enumerate(blocks, start // width):
                    np.add(along_x[block, :, place], each, out=along_x[block + 1, :, place])
        return along_x, along_y

    def sum_over(self, cover: BoxCover) -> Field:
        """Return sums (1 + spreads, m) over cut cells of f ξ times the slope terms, then f (1 − f) u per spread u."""
        pieces = [Pieces.of(*span) for span in cover.spans]
        x, *others = sides = [_Sides.from_pieces(each) for each in pieces]
        if not others:
            lean, *spreads = self._fields((x.cell,))
            return np.asarray(_weigh_fields(x.lean * lean, x.share, spreads).sum(axis=1))
        (y,) = others
        cell, share, lean = x.cell[:, None], x.share[:, None], x.lean[:, None]
        lean_x, lean_y, *spreads = self._fields((cell, y.cell))
        corners = _weigh_fields(lean * y.share * lean_x + share * y.lean * lean_y, share * y.share, spreads)
        out: Field = corners.sum(axis=1).sum(axis=1)
        for axis in (0, 1):
            out += self._sum_sides(axis, pieces[axis], sides[1 - axis])
        return out

    def _sum_sides(self, axis: int, pieces: Pieces, sides: _Sides) -> Field:
        """Return sums (1 + spreads, m) over both sides of boxes along an axis, without the corners.

        Block sums extend to the block edges nearest to the ends of a side. Single cells make up the difference.
        """
        blocks, width, low = self._blocks[axis], self._width, pieces.first + 1
        ends = np.array([np.maximum(pieces.last, low), low])[:, None]
        nearest = np.minimum((ends + width // 2) // width, self._shape[axis] // width)
        row = nearest * blocks.shape[1] + sides.cell if axis == 0 else sides.cell * blocks.shape[1] + nearest
        far, near = np.take(blocks.reshape(-1, blocks.shape[2]), row, axis=0)
        lean, *spreads = np.moveaxis(far - near, 2, 0)
        found: Field = _weigh_fields(sides.lean * lean, sides.share, spreads).sum(axis=1)
        if width > 1:
            edge = nearest * width
            begin: Index = np.broadcast_to(np.minimum(edge, ends), row.shape).ravel()
            gap: Index = np.broadcast_to(ends - edge, row.shape).ravel()
            which = np.repeat(np.arange(row.size), abs(gap))
            place = begin[which] + workloads.count_up_to(abs(gap))
            sign = np.where(which < sides.cell.size, 1, -1) * np.sign(gap)[which]
            side = which % sides.cell.size
            cell, share, lean = sides.cell.ravel()[side], sides.share.ravel()[side], sides.lean.ravel()[side]
            lean_x, lean_y, *singles = self._fields((place, cell) if axis == 0 else (cell, place))
            parts = sign * _weigh_fields(lean * (lean_y if axis == 0 else lean_x), share, singles)
            found += [np.bincount(which % len(low), part, len(low)) for part in parts]
        return found


def _weigh_fields(lean: Field, share: Field, spreads: Sequence[Field]) -> Field:
    """Return an array (1 + spreads, …) of `lean`, and of f (1 − f) u for each spread u, where f is `share`."""
    return np.array([lean, *(share * (1 - share) * each for each in spreads)])
