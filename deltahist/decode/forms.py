"""Errors of queries, as sums of products over the axes for boxes, and as sums over bounding boxes for other queries.

An interval q is a difference of prefixes, q = Σ_e w_e P_e, where P_e contains all cells before edge e. Then
qᵀ V q, the variance of q, is the quadratic form wᵀ G w with G_ef = P_eᵀ V P_f, the covariance of prefix sums.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import check_memory
from deltahist.space.workloads import Edges, Pieces, RegionCover, Span, count_up_to, prefix_sums, sums_between

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: Number of cells (in boxes around queries) to process together, small enough for the processor's cache.
_CELLS = 1 << 16


class IntervalFunction(ABC):
    """A function that returns one number for each interval [low, high) along an axis, in cells."""

    @abstractmethod
    def __call__(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the function's value at each interval."""

    def mean_over_intervals(self, n: int) -> float:
        """Return the mean over all intervals of whole cells on an axis of n cells."""
        first, last = np.triu_indices(n)
        return float(self(first.astype(np.float64), last.astype(np.float64) + 1).mean())


class BoxFunction(ABC):
    """A function that returns one number for each box and is not a product over the axes.

    Functions used in a variance also have a method `mean_over_boxes(shape)`, the mean over all boxes of whole cells.
    """

    @abstractmethod
    def __call__(self, spans: Sequence[Span]) -> FloatArray:
        """Return the function's value at each box."""


#: Terms of a sum. Each is a coefficient times a function of boxes or a product of interval functions, one per axis.
SumOfProducts = Sequence[tuple[float, tuple[IntervalFunction, ...] | BoxFunction]]


def evaluate_boxes(terms: SumOfProducts, spans: Sequence[Span]) -> FloatArray:
    """Return the value of a closed form at each box."""
    out, together = np.zeros(len(spans[0][0])), 1 << 13  # fits in the processor's cache
    for start in range(0, len(out), together):
        some = slice(start, start + together)
        boxes, found = [(low[some], high[some]) for low, high in spans], out[some]
        known: dict[tuple[int, IntervalFunction], FloatArray] = {}
        for weight, functions in terms:
            if isinstance(functions, BoxFunction):
                found += weight * functions(boxes)
                continue
            product = np.full(len(found), weight)
            for axis, (function, span) in enumerate(zip(functions, boxes, strict=True)):
                if (axis, function) not in known:
                    known[axis, function] = function(*span)
                product *= known[axis, function]
            found += product
    return out


def mean_over_boxes(terms: SumOfProducts, shape: tuple[int, ...]) -> float:
    """Return the mean of a closed form over all boxes of whole cells."""
    out = 0.0
    for weight, functions in terms:
        if isinstance(functions, BoxFunction):
            out += weight * functions.mean_over_boxes(shape)  # type: ignore[attr-defined]
        else:  # intervals on the two axes are independent, so the mean of the product is the product of the means
            out += weight * math.prod(f.mean_over_intervals(n) for f, n in zip(functions, shape, strict=True))
    return out


def multiply_rows(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Multiply rows by a matrix. Unlike with BLAS, no bit of a result depends on the number of rows."""
    number = -(-len(rows) // 16)
    padded = np.zeros((number * 16, rows.shape[1]))
    padded[: len(rows)] = rows
    return np.asarray((padded.reshape(number, 16, -1) @ matrix).reshape(number * 16, -1)[: len(rows)])


def cumulate_rows(values: FloatArray) -> FloatArray:
    """Return the prefix sums of n rows of values, as n + 1 rows."""
    out = np.zeros((len(values) + 1, *values.shape[1:]))
    np.cumsum(values, axis=0, out=out[1:])
    return out


def interpolate_sums(before: FloatArray, edge: FloatArray) -> FloatArray:
    """Interpolate rows of prefix sums linearly at m edges, and return m rows."""
    at = edge.astype(np.int64)
    if (edge == at).all():
        return before[at]
    at = np.minimum(at, len(before) - 2)
    share = (edge - at)[:, None]
    return np.asarray((1 - share) * before[at] + share * before[at + 1])


def sum_intervals(before: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return sums over m intervals, as m rows, from rows of prefix sums. A cut cell counts by the share inside."""
    return interpolate_sums(before, high) - interpolate_sums(before, low)


def mean_increment_product(own: FloatArray | float, whole: FloatArray | float, n: int) -> FloatArray:
    """Return the mean of (a_j − a_i)(b_j − b_i) over edges i < j, from own = Σ a_i b_i and whole = Σ a_i Σ b_i."""
    return np.asarray(((n + 1) * own - whole) / (n * (n + 1) / 2))


class QuadraticForm(ABC):
    """A symmetric matrix G with one row and one column for each of m + 1 edges."""

    #: Number of edges, m + 1.
    size: int

    @abstractmethod
    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        """Return the entries G_ij for arrays of i and j."""

    @abstractmethod
    def value_at(self, weight: FloatArray) -> float:
        """Return wᵀ G w."""

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        """Return wᵀ G w for each of m intervals, whose ends may lie between edges."""
        edges, out = intervals.edges, np.zeros(len(intervals.first))
        for a, (i, v) in enumerate(edges):
            for b, (j, w) in enumerate(edges[: a + 1]):
                out += (1.0 if a == b else 2.0) * v * w * self.entries_at(i, j)
        return out

    def trace(self) -> float:
        """Return Σ_e G_ee."""
        edge = np.arange(self.size)
        return float(self.entries_at(edge, edge).sum())


class IndependentIncrements(QuadraticForm):
    """The matrix min(s_i, s_j) of non-decreasing sums s, the covariance of prefix sums of independent parts."""

    def __init__(self, sums: FloatArray) -> None:
        self.sums, self.size = sums, len(sums)
        #: G_ij for i < j, which depends on i alone (size,).
        self.before = sums

    def entries_at(self, i: IntArray, j: IntArray) -> FloatArray:
        return self.sums[np.minimum(i, j)]

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        far = self.sums[intervals.last + 1]
        near = self.sums[intervals.first]
        if intervals.whole:
            return far - near
        after, before = self.sums[intervals.first + 1], self.sums[intervals.last]
        apart = (before - after) + intervals.tail**2 * (far - before)
        return intervals.head**2 * (after - near) + np.where(intervals.two_cells, apart, 0.0)

    def value_at(self, weight: FloatArray) -> float:
        # min(s_i, s_j) sums the steps of s up to the lower edge, so each step counts for all pairs at or after it.
        return float(np.diff(self.sums, prepend=0.0) @ np.cumsum(weight[::-1])[::-1] ** 2)


def combine_rows(rows: FloatArray, edges: Edges) -> FloatArray:
    """Return Σ_e w_e · (row e) for each interval, which is given by its edges e and their weights."""
    return np.asarray(sum(weight[:, None] * np.take(rows, edge, axis=0) for edge, weight in edges))


@dataclass(frozen=True)
class BlockPower(IntervalFunction):
    """The sum over blocks of `width` cells of (length of the interval inside the block)^power."""

    width: int
    power: int

    def __call__(self, low: FloatArray, high: FloatArray) -> FloatArray:
        width, power = self.width, self.power
        if power == 1:
            return high - low
        first = np.floor(low / width)
        last = np.ceil(high / width) - 1
        same = (high - low) ** power
        cut = ((first + 1) * width - low) ** power + (high - last * width) ** power
        inner = np.maximum(last - first - 1, 0.0) * float(width) ** power
        return np.where(first >= last, same, cut + inner)  # an empty interval ends before its first block

    def mean_over_intervals(self, n: int) -> float:
        if self.power != 2:
            return super().mean_over_intervals(n)
        # Cells i ≤ j both lie in (i + 1)(n − j) of the intervals. Only pairs within a block count.
        cell = np.arange(n)
        start = cell // self.width * self.width
        upto = np.concatenate([[0.0], np.cumsum(cell + 1.0)])
        pairs = 2 * (n - cell) * (upto[1:] - upto[start]) - (n - cell) * (cell + 1.0)
        return float(pairs.sum()) / (n * (n + 1) / 2)


@dataclass(frozen=True, eq=False)
class MixedMoment(IntervalFunction):
    """The sum over cells of q^own · q̄^mean_power, where q̄ is q's mean in the cell's block. Blocks end at `edges`."""

    edges: IntArray
    own: int
    mean_power: int

    def __call__(self, low: FloatArray, high: FloatArray) -> FloatArray:
        first = np.take(self._block_of_cell, low.astype(np.int64))
        last = np.take(self._block_of_cell, np.ceil(high).astype(np.int64) - 1)
        middle, end = self.edges[np.minimum(first + 1, last)], self.edges[last].astype(np.float64)
        behind = self.edges[first + 1].astype(np.float64)
        apart = self._sum_in_block(low, behind, first) + (end - middle) + self._sum_in_block(end, high, last)
        return np.where(first == last, self._sum_in_block(low, high, first), apart)

    @functools.cached_property
    def _block_of_cell(self) -> IntArray:
        return np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges))

    def _sum_in_block(self, low: FloatArray, high: FloatArray, block: IntArray) -> FloatArray:
        size = self.edges[block + 1] - self.edges[block]
        return BlockPower(1, self.own)(low, high) * ((high - low) / size) ** self.mean_power


class IntervalForms(IntervalFunction):
    """Quadratic forms of an interval along one axis. Calling the object evaluates the first form.

    forms : k forms over the m + 1 edges of a row of blocks.
    edges : positions of the n + 1 cell edges, in units of blocks, or None if blocks are cells.
    """

    def __init__(self, forms: Sequence[QuadraticForm], edges: FloatArray | None = None) -> None:
        self.forms, self.edges = forms, edges

    def __call__(self, low: FloatArray, high: FloatArray) -> FloatArray:
        return self.evaluate_intervals(low, high)[0]

    def in_blocks(self, low: FloatArray, high: FloatArray) -> Pieces:
        """Convert intervals [low, high) from cells to blocks."""
        if self.edges is None:
            return Pieces.of(low, high)
        # Indexing by cell avoids the search in `np.interp`.
        cells = [(place, place.astype(np.int64)) for place in (low, high)]
        return Pieces.of(*(self.edges.take(cell) + (place - cell) * self._widths.take(cell) for place, cell in cells))

    @functools.cached_property
    def _widths(self) -> FloatArray:
        """The widths of the n cells in units of blocks, followed by 0."""
        assert self.edges is not None
        return np.diff(self.edges, append=self.edges[-1])

    def evaluate_intervals(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the values of k forms at m intervals [low, high), which are given in cells."""
        return self.evaluate_pieces(self.in_blocks(low, high))

    def evaluate_pieces(self, intervals: Pieces) -> FloatArray:
        """Return the values of k forms at m intervals, which are given in units of blocks."""
        return np.array([form.evaluate_pieces(intervals) for form in self.forms])

    def mean_over_intervals(self, n: int) -> float:
        return float(self.interval_means(n)[0])

    def interval_means(self, n: int) -> FloatArray:
        """Return the mean of each form over all intervals of whole cells on an axis of n cells."""
        return np.array([self._form_mean(form, n) for form in self.forms])

    def _form_mean(self, form: QuadraticForm, n: int) -> float:
        # Σ_{i<j} (G_ii + G_jj − 2 G_ij) over n + 1 edges, where G refers to cell edges
        if self.edges is None:
            own, whole = form.trace(), form.value_at(np.ones(n + 1))
        else:
            place, size = self.edges.astype(np.int64), form.size
            share, after = self.edges - place, np.minimum(place + 1, size - 1)
            each = (1 - share) ** 2 * form.entries_at(place, place) + share**2 * form.entries_at(after, after)
            own = float((each + 2 * share * (1 - share) * form.entries_at(place, after)).sum())
            whole = form.value_at(np.bincount(place, 1 - share, size) + np.bincount(after, share, size).astype(float))
        return float(mean_increment_product(own, whole, n))


@dataclass(frozen=True, eq=False)
class BilinearForm(BoxFunction):
    """Σ_ij C_ij f_i(x) g_j(y) with weights C, where f and g are the forms of the two axes."""

    axes: tuple[IntervalForms, IntervalForms]
    weights: FloatArray

    def __call__(self, spans: Sequence[Span]) -> FloatArray:
        f, g = (forms.evaluate_intervals(*span) for forms, span in zip(self.axes, spans, strict=True))
        out = np.zeros(f.shape[1])
        for i, j in np.argwhere(self.weights):
            out += self.weights[i, j] * f[i] * g[j]
        return out

    def mean_over_boxes(self, shape: tuple[int, ...]) -> float:
        f, g = (forms.interval_means(n) for forms, n in zip(self.axes, shape, strict=True))
        return float(f @ self.weights @ g)


class PublicTotal:
    """The variance (qᵀV1)² / (1ᵀV1) that a public total removes from the answer to a query q. `along` is V1."""

    def __init__(self, along: FloatArray) -> None:
        self.along, self.spread = along, float(along.sum())

    def box_reduction(self, spans: Sequence[Span]) -> FloatArray:
        """Return the variance removed from the answer to each box."""
        return np.asarray(sums_between(self._prefix_sums, spans) ** 2 / (self.spread or 1.0))  # 0 without noise

    @functools.cached_property
    def _prefix_sums(self) -> FloatArray:
        return prefix_sums(self.along)

    def mean_reduction(self) -> float:
        """Return the variance removed from the answer to a range, averaged over all ranges."""
        both = self.along
        for axis in range(both.ndim):
            both = np.moveaxis(apply_range_gram(np.moveaxis(both, axis, 0)), 0, axis)
        return float((self.along * both).sum()) / (self.spread or 1.0)


def apply_range_gram(field: FloatArray, starts: IntArray | None = None) -> FloatArray:
    """Return Σ_j w_ij field_j over j in i's block, where w_ij is the share of intervals that contain both i and j.

    Of the n (n + 1) / 2 intervals, (min(i, j) + 1)(n − max(i, j)) contain both cells. So two cumulative sums give all
    results. `starts` holds the first cell of each block. If it is None, all cells form one block.
    """
    n = len(field)
    first = np.zeros(1, dtype=np.int64) if starts is None else starts
    sizes, cell = np.diff(first, append=n), np.arange(n).reshape(-1, *(1,) * (field.ndim - 1))
    low, high = ((weight * field).cumsum(axis=0) for weight in (cell + 1.0, n - cell))
    last = np.repeat(np.append(first[1:], n) - 1, sizes)
    upto = low - np.repeat((low - (cell + 1.0) * field)[first], sizes, axis=0)
    after = high[last] - high
    return np.asarray(((n - cell) * upto + (cell + 1) * after) / (n * (n + 1) / 2))


def iterate_query_boxes(
    work: RegionCover | scipy.sparse.csr_array, shape: tuple[int, ...], most: int = _CELLS
) -> Iterator[QueryBoxes]:
    """Yield queries (regions or sparse rows on a grid) as dense boxes, up to `most` of similar size at a time."""
    cover = work if isinstance(work, RegionCover) else RegionCover.of_rows(work, shape)
    low, high = np.zeros((2, cover.number, 2), dtype=np.int64)
    low[...] = shape
    place = np.column_stack([cover.x, cover.y])
    for owner, start, end in ((cover.owner, place, place + 1), (cover.whole, cover.low, cover.high)):
        begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
        if len(some := owner[begins]):
            low[some] = np.minimum(low[some], np.minimum.reduceat(start, begins))
            high[some] = np.maximum(high[some], np.maximum.reduceat(end, begins))
    low = np.minimum(low, high)
    ends = [np.searchsorted(owner, np.arange(cover.number + 1)) for owner in (cover.owner, cover.whole)]
    # An empty rim, one cell wide, gives every cell a full set of neighbours.
    wide, tall = (high - low + 2).T
    largest = int((wide * tall).max(initial=0))
    check_memory(128 * largest, f"the error of a region whose bounding box has {largest:,} cells")
    order = np.lexsort((tall, np.floor(8 * np.log2(wide))))  # eight width classes per doubling
    wide, tall = wide[order], tall[order]
    here = 0
    while here < len(order):
        # Take as many queries as fit when every box is padded to the size of the largest.
        rest = slice(here, here + max(1, min(most, _CELLS // int(wide[here] * tall[here]))))
        sizes = np.maximum.accumulate(wide[rest]) * np.maximum.accumulate(tall[rest])
        fit = max(1, int(np.searchsorted(sizes * np.arange(1, len(sizes) + 1), _CELLS, side="right")))
        some, own = order[here : here + fit], slice(here, here + fit)
        shares = _fill_boxes(cover, some, low[some], ends, (int(wide[own].max()), int(tall[own].max())))
        yield QueryBoxes(some, shares, low[some], high[some], shape)
        here += fit


def _fill_boxes(
    cover: RegionCover, some: IntArray, low: IntArray, ends: Sequence[IntArray], size: tuple[int, int]
) -> FloatArray:
    """Return each query's shares of the cells in a box around it, in an array of shape (queries, wide, tall)."""
    out = np.zeros((len(some), *size))
    entries = []
    for end in ends:  # owners, as indices into these queries, and the positions of their entries in the cover
        number = end[some + 1] - end[some]
        query = np.repeat(np.arange(len(some)), number)
        entries.append((query, end[some][query] + count_up_to(number)))
    (cut_query, cut), (query, place) = entries
    corners = np.hstack([query[:, None], cover.low[place] - low[query] + 1, cover.high[place] - low[query] + 1])
    for each, west, south, east, north in corners.tolist():
        out[each, west:east, south:north] = 1.0
    out[cut_query, cover.x[cut] - low[cut_query, 0] + 1, cover.y[cut] - low[cut_query, 1] + 1] = cover.share[cut]
    return out


class Windows:
    """A table of shape (k, places) from which each box slices its own window. Places off the grid are 0."""

    def __init__(self, table: FloatArray) -> None:
        # Add a column before the first cell, and columns after the last one, for the rim of the largest box.
        self._padded = np.pad(table, ((0, 0), (1, table.shape[1] + 2)))

    def slice_windows(self, low: IntArray, size: int, first: IntArray | int = 0, number: int = 0) -> FloatArray:
        """Return, for each query, `number` rows of the table from `first` on, at `size` places from `low` − 1 on."""
        (across, along), wide = self._padded.strides, number or len(self._padded)
        shape = (len(self._padded) - wide + 1, self._padded.shape[1] - size + 1, wide, size)
        return np.asarray(
            np.ndarray(shape, np.float64, self._padded, strides=(across, along, across, along))[first, low]
        )


@dataclass(frozen=True, eq=False)
class QueryBoxes:
    """Some queries on a grid of `shape`, as shares of the cells in boxes around them.

    some : indices of the queries. shares : each query's share of the cells of its box and of an empty rim.
    low, high : ends of each box without the rim, of shape (queries, 2). Cells beyond `high` pad boxes to equal size.
    """

    some: IntArray
    shares: FloatArray
    low: IntArray
    high: IntArray
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.low)

    def subtract_shifted(self, ahead: tuple[int, int], behind: tuple[int, int]) -> FloatArray:
        """Return q(place + ahead) − q(place + behind) at the places of each box, or 0 where one is off the grid."""
        # Boxes are adjacent in memory and each has an empty rim, so a shift past the end of a box reads a rim.
        one, other = (across * self.shares.shape[2] + along for across, along in (ahead, behind))
        flat, out = self.shares.ravel(), np.empty_like(self.shares)
        size = len(flat) - max(one, other)
        np.subtract(flat[one : one + size], flat[other : other + size], out=out.ravel()[:size])
        out.ravel()[size:] = 0.0
        return self.zero_outside(out, *(axis for axis in (0, 1) if ahead[axis] != behind[axis]))

    def zero_outside(self, values: FloatArray, *axes: int) -> FloatArray:
        """Set the values of moves along axes to zero where a move starts or ends off the grid, or leaves the box."""
        for axis in axes:
            view = values if axis == 0 else values.swapaxes(1, 2)
            view[np.flatnonzero(self.low[:, axis] == 0), 0] = 0.0
            ends = np.flatnonzero(self.high[:, axis] == self.shape[axis])
            size = self.high[:, axis] - self.low[:, axis]
            view[ends, size[ends]] = 0.0
            view[np.arange(len(self)), size + 1] = 0.0
            view[:, -1] = 0.0
        return values

    def apply_factors(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return leftᵀ Q right, of shape (a, b), for each query Q, where `left` is (nx, a) and `right` is (ny, b)."""
        size = self.shares.shape[1:]
        rows, columns = (Windows(one.T).slice_windows(self.low[:, i], size[i]) for i, one in enumerate((left, right)))
        return np.asarray(rows @ (self.shares @ columns.mT))
