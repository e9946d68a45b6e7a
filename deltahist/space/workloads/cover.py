"""How queries lie on the cells: which share of each cell they hold, where in the cell it lies, and sums of cells."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

Field: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]
#: Intervals along one axis, in cells: starts (m,) and ends (m,), fractions where a cell is cut.
Span: TypeAlias = tuple[Field, Field]
#: Edges (m,) with weights (m,): an interval is the sum of all that lies before each, times its weight.
Edges: TypeAlias = Sequence[tuple[Index, Field]]


# --- sums of cells ------------------------------------------------------------------------------------------


def prefix_sums(cells: Field) -> Field:
    """Return sums from the low corner up to every cell edge: the shape grows by one along each axis."""
    out = np.zeros(tuple(n + 1 for n in cells.shape))
    if cells.ndim == 1:
        np.cumsum(cells, out=out[1:])
        return out
    # Row by row: NumPy's sums along the first axis go down each column by itself, past the cache.
    for i, row in enumerate(cells):
        np.add(out[i, 1:], np.cumsum(row), out=out[i + 1, 1:])
    return out


def aligned_spans(spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Return which boxes (m,) consist of whole cells."""
    return np.asarray(np.logical_and.reduce([edge == np.floor(edge) for span in spans for edge in span]))


def box_sums(cells: Field, spans: Sequence[Span]) -> Field:
    """Return the sums of cells over boxes; a cut cell counts by its share."""
    return sums_between(prefix_sums(cells), spans)


def sums_between(total: Field, spans: Sequence[Span]) -> Field:
    """Return sums over boxes from prefix sums, which are interpolated linearly where a box cuts cells."""
    if len(spans) == 1:
        low, high = spans[0]
        return _at(total.ravel(), high) - _at(total.ravel(), low)
    (west, east), (south, north) = spans
    if aligned_spans(spans).all():
        flat, row = total.ravel(), total.shape[1]
        w, e, s, n = (c.astype(np.int64) for c in (west, east, south, north))
        w *= row
        e *= row
        return flat[e + n] - flat[w + n] - flat[e + s] + flat[w + s]
    # In one call, which takes much of the time of a few boxes.
    corners = np.array([east, west, east, west]), np.array([north, north, south, south])
    northeast, northwest, southeast, southwest = _at_corners(total, *corners)
    return northeast - northwest - southeast + southwest


def _at(total: Field, place: Field) -> Field:
    below = np.minimum(place.astype(np.int64), len(total) - 2)
    share = place - below
    return total[below] * (1 - share) + total[below + 1] * share


def _at_corners(total: Field, x: Field, y: Field) -> Field:
    row = total.shape[1]
    i = np.minimum(x.astype(np.int64), total.shape[0] - 2)
    j = np.minimum(y.astype(np.int64), row - 2)
    f, g = x - i, y - j
    at, flat = i * row + j, total.ravel()
    low = flat[at] * (1 - g) + flat[at + 1] * g
    high = flat[at + row] * (1 - g) + flat[at + row + 1] * g
    return low * (1 - f) + high * f


def counted(numbers: Index) -> Index:
    """Return 0, 1, ... up to each number, one number after the other."""
    return np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)


def in_parts(sizes: NDArray[Any], most: int) -> Iterator[slice]:
    """Yield slices of items whose sizes (m,) add up to at most `most`; a larger item is a slice by itself.

    >>> list(in_parts(np.array([2, 2, 9, 1]), 4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends, first = np.cumsum(sizes), 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first = last


# --- covers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pieces:
    """Intervals [low, high) as shares of a first cell and of a last one, and all cells between.

    Parameters
    ----------
    first, last : (m,) cells that they begin and end in.
    before : (m,) share of the first cell that lies before them.
    head, tail : (m,) shares of the first and of the last cell that they hold; where both are one, the head is all, and
        the tail 1.
    whole : whether no interval cuts a cell.

    >>> pieces = Pieces.of(np.array([0.25]), np.array([2.5]))
    >>> [(edge.tolist(), weight.tolist()) for edge, weight in pieces.edges]
    [([0], [-0.75]), ([1], [-0.25]), ([2], [0.5]), ([3], [0.5])]
    """

    first: Index
    last: Index
    before: Field
    head: Field
    tail: Field
    whole: bool

    @classmethod
    def of(cls, low: Field, high: Field) -> Self:
        """Make the pieces of intervals (m,)."""
        first, last = np.floor(low), np.ceil(high) - 1
        whole = bool((first == low).all() and (last == high - 1).all())
        if whole:
            head = tail = np.ones(len(low))
        else:
            head, tail = np.minimum(high, first + 1) - low, np.where(last > first, high - last, 1.0)
        return cls(first.astype(np.int64), last.astype(np.int64), low - first, head, tail, whole)

    @property
    def apart(self) -> NDArray[np.bool_]:
        """Whether the first and the last cell are two (m,)."""
        return self.last > self.first

    @functools.cached_property
    def edges(self) -> Edges:
        """Two edges with their weights, or four if any interval cuts a cell."""
        if self.whole:
            return [(self.first, -self.head), (self.last + 1, self.tail)]
        apart = self.apart
        return [
            (self.first, -self.head),
            (self.first + 1, self.head - apart),
            (self.last, (1 - self.tail) * apart),
            (self.last + 1, self.tail * apart),
        ]


@dataclass(frozen=True, eq=False)
class RegionCover:
    """Queries by the cells that they cut, and by rectangles of cells that they hold whole.

    Parameters
    ----------
    number : of the queries. shape : of the grid.
    owner, x, y : (k,) query and cell of each cell that is cut, sorted by query. share : of the cell that is held.
    places : along each axis f ξ of every share, ξ the centroid of the part held, from the cell's centre and in half
        cells; none where they are not wanted.
    whole, low, high : query (r,) and corners (r, 2) of each rectangle, sorted by query.
    """

    number: int
    shape: tuple[int, ...]
    owner: Index
    x: Index
    y: Index
    share: Field
    places: tuple[Field, ...]
    whole: Index
    low: Index
    high: Index

    @classmethod
    def of_rows(cls, rows: scipy.sparse.csr_array, shape: tuple[int, ...]) -> RegionCover:
        """Make the cover of queries (m, N) on a grid, every cell by itself."""
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        return cls.of_cells(rows.shape[0], shape, owner, rows.indices, rows.data)

    @classmethod
    def of_cells(cls, number: int, shape: tuple[int, ...], owner: Index, cells: Index, share: Field) -> RegionCover:
        """Make the cover of queries by the numbers of cells (k,) on a grid, sorted by query, and their shares."""
        (x, y), none = np.divmod(cells, shape[1]), np.zeros((0, 2), dtype=np.int64)
        return cls(number, shape, owner, x, y, share, (), none[:, 0], none, none)

    @functools.cached_property
    def rows(self) -> scipy.sparse.csr_array:
        """The shares (m, N), every cell by itself."""
        wide, tall = (self.high - self.low).T
        column = counted(wide)
        rectangle = np.repeat(np.arange(len(wide)), wide)
        tall = tall[rectangle]
        cell = (self.low[rectangle, 0] + column) * self.shape[1] + self.low[rectangle, 1]
        cells = np.concatenate([self.x * self.shape[1] + self.y, np.repeat(cell, tall) + counted(tall)])
        owner = np.concatenate([self.owner, np.repeat(self.whole[rectangle], tall)])
        share = np.concatenate([self.share, np.ones(len(cells) - len(self.share))])
        rows = scipy.sparse.csr_array((share, (owner, cells)), shape=(self.number, math.prod(self.shape)))
        rows.sort_indices()
        return rows

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:
        """Which queries cut cells (m,)."""
        return np.bincount(self.owner, minlength=self.number) > 0

    @functools.cached_property
    def area(self) -> Field:
        """Area of each query, in cells (m,)."""
        return np.bincount(self.owner, self.share, self.number) + self._inside

    @property
    def cut_share(self) -> Field:
        """Share of each query's area that lies in cells that it cuts (m,)."""
        return np.asarray(1 - self._inside / np.maximum(self.area, np.finfo(float).tiny))

    @functools.cached_property
    def _inside(self) -> Field:
        return np.bincount(self.whole, (self.high - self.low).prod(axis=1), self.number).astype(np.float64)

    @property
    def unsure(self) -> Field:
        """Σ f (1 − f) over the cells that each query cuts (m,), f the share inside."""
        return np.bincount(self.owner, self.share * (1 - self.share), self.number).astype(np.float64)


@dataclass(frozen=True, eq=False)
class BoxCover:
    """Boxes by their spans along each axis: at most a first and a last cell are cut, those between are whole."""

    spans: tuple[Span, ...]

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:
        """Which boxes cut cells (m,)."""
        return ~aligned_spans(self.spans)

    @property
    def area(self) -> Field:
        """Area of each query, in cells (m,)."""
        return np.asarray(np.prod([high - low for low, high in self.spans], axis=0))

    @property
    def cut_share(self) -> Field:
        """Share of each query's area that lies in cells that it cuts (m,)."""
        inside = np.ones(len(self.cut))
        for low, high in self.spans:
            inside *= np.maximum(np.floor(high) - np.ceil(low), 0.0) / (high - low)
        return 1 - inside

    @property
    def unsure(self) -> Field:
        """Σ f (1 − f) over the cells that each query cuts (m,), f the share inside."""
        shares, squares = np.ones((2, len(self.cut)))
        for low, high in self.spans:
            pieces = Pieces.of(low, high)
            shares *= high - low
            between = np.maximum(pieces.last - pieces.first - 1, 0)
            squares *= pieces.head**2 + pieces.apart * pieces.tail**2 + between
        return np.maximum(shares - squares, 0.0)

    def __getitem__(self, some: slice) -> BoxCover:
        """Return the cover of some of the boxes."""
        return BoxCover(tuple((low[some], high[some]) for low, high in self.spans))

    def listed(self, shape: tuple[int, int]) -> RegionCover:
        """Return the same by the cells that are cut, one by one, on a grid."""
        starts, ends = zip(*self.spans, strict=True)
        touched, inner = (
            [(rounded(low).astype(np.int64), other(high).astype(np.int64)) for low, high in self.spans]
            for rounded, other in ((np.floor, np.ceil), (np.ceil, np.floor))
        )
        owners, cells = [], []
        # Columns that are cut, over all rows; then rows that are cut, where columns are not.
        for axis, (first, last) in enumerate((touched[1], inner[0])):
            (begin, end), (after, before) = touched[axis], inner[axis]
            for cell, cut in ((begin, begin < after), (end - 1, (before < end) & (after < end))):
                length = np.where(cut, np.maximum(last - first, 0), 0)
                owner = np.repeat(np.arange(len(cut)), length)
                place = cell[owner], first[owner] + counted(length)
                owners.append(owner)
                cells.append(place[:: 1 - 2 * axis])
        owner, (x, y) = np.concatenate(owners), (np.concatenate(each) for each in zip(*cells, strict=True))
        order = np.argsort(owner, kind="stable")
        owner, x, y = owner[order], x[order], y[order]
        shares, centroids = [], []
        for low, high, cell in zip(starts, ends, (x, y), strict=True):
            near, far = np.maximum(low[owner], cell), np.minimum(high[owner], cell + 1)
            shares.append(far - near)
            centroids.append((far - near) * (near + far - 2 * cell - 1))
        whole = np.flatnonzero(np.logical_and(*(first < last for first, last in inner)))
        low, high = (np.stack([each[whole] for each in ends], axis=1) for ends in zip(*inner, strict=True))
        places = centroids[0] * shares[1], shares[0] * centroids[1]
        return RegionCover(len(self.cut), shape, owner, x, y, shares[0] * shares[1], places, whole, low, high)


#: Parts of the cells inside m queries.
Cover = BoxCover | RegionCover
