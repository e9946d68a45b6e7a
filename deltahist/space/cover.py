"""How queries lie on the cells: which share of each cell they hold, where in the cell it lies, and sums of cells."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import scipy
import shapely
from numpy.typing import NDArray

from deltahist.space.domain import Domain

Field: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]
#: Intervals along one axis, in cells: starts (m,) and ends (m,), fractions where a cell is cut.
Span: TypeAlias = tuple[Field, Field]
#: Edges (m,) with weights (m,): an interval is the sum of all that lies before each, times its weight.
Edges: TypeAlias = Sequence[tuple[Index, Field]]
#: Shares of a cell closer than this to none or all of it are none or all.
_ROUNDING = 1e-9
#: Vertices closer than this to a cell's edge, in cells, are on it.
_NEAR_EDGE = 1e-8
#: Cells at the rims of polygons that are looked at a time: what is worked out stays near the processor.
_AT_A_TIME = 1 << 17
#: Running sums are taken in whole multiples of one by this, exactly: a sum does not depend on the polygons before it.
_WHOLE = 1 << 52


# --- sums of cells ------------------------------------------------------------------------------------------


def prefix_sums(cells: Field) -> Field:
    """Return sums from the low corner up to every cell edge: the shape grows by one along each axis."""
    out = np.zeros(tuple(n + 1 for n in cells.shape))
    inside = out[(slice(1, None),) * cells.ndim]
    np.cumsum(cells, axis=-1, out=inside)
    if cells.ndim == 2:
        np.cumsum(inside, axis=0, out=inside)
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


# --- polygons -----------------------------------------------------------------------------------------------


def cover_polygons(geometries: NDArray[Any], domain: Domain) -> RegionCover:
    """Return the cover of valid shapely polygons or multipolygons (m,): exact areas and centroids in every cell.

    What lies outside the domain is moved to its edge. The time is linear in vertices and cells
    (docs/internals/placement.md).

    >>> found = cover_polygons(np.array([shapely.box(0, 0, 1.5, 1)]), Domain((0, 0, 4, 4), (4, 4)))
    >>> found.x.tolist(), found.share.tolist(), found.places[0].tolist(), found.low.tolist(), found.high.tolist()
    ([1], [0.5], [-0.25], [[0, 0]], [[1, 1]])
    """
    parts = []
    for some in in_parts(count_rim_cells(geometries, domain), _AT_A_TIME):
        owner, *cut, whole, first, last = _parts(*_edges(geometries[some], domain), domain.shape)
        parts.append((owner + some.start, *cut, whole + some.start, first, last))
    owner, x, y, area, along_x, along_y, *rectangles = map(np.concatenate, zip(*parts, strict=True))
    # Moments are in cells, places in half cells.
    return RegionCover(len(geometries), domain.shape, owner, x, y, area, (2 * along_x, 2 * along_y), *rectangles)


def count_rim_cells(geometries: NDArray[Any], domain: Domain) -> Field:
    """Return about how many cells (m,) the rims of polygons cross, and how many vertices they have."""
    across = sum(1 / side for side in domain.cell)
    return np.asarray(shapely.length(geometries) * across + shapely.get_num_coordinates(geometries))


def _parts(start: Field, end: Field, owner: Index, shape: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
    """Return cells that are cut: polygon, x, y, and ∫ 1, ∫ (x − x₀) and ∫ (y − y₀) over the part inside.

    Then the polygon and the corners of each rectangle of whole cells. Lengths are in cells, (x₀, y₀) is the centre.
    """
    begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    corner = np.floor(np.minimum.reduceat(start, begins)).astype(np.int64)
    wide = np.minimum(np.ceil(np.maximum.reduceat(start, begins)).astype(np.int64), shape) - corner
    # Above every column stand two more cells, for what lies above the box.
    wide[:, 1] += 2
    behind = np.cumsum(wide.prod(axis=1))
    before = behind - wide.prod(axis=1)
    start, end, edge = _cut(start, end)
    owner = owner[edge]
    at = np.floor((start + end) / 2).astype(np.int64)
    (v0, u0), (v1, u1) = (start - at - 0.5).T, (end - at - 0.5).T
    i, j = (at - corner.take(owner, axis=0)).T
    # A piece along the box's eastern side has no width.
    inside = i < wide[owner, 0]
    flat = (before[owner] + i * wide[owner, 1] + j)[inside]
    v0, v1, u0, u1 = v0[inside], v1[inside], u0[inside], u1[inside]
    east, r0, r1 = v1 - v0, 0.5 - u0, 0.5 - u1
    held, number = np.unique(flat, return_inverse=True)

    def per_cell(weight: Field) -> Field:
        return np.bincount(number, weight, len(held)).astype(np.float64, copy=False)

    firsts = np.searchsorted(held, before)

    def running(own: Field) -> Field:
        """Return the sums of each polygon's cells up to and with each."""
        sums = np.concatenate([[0], np.cumsum(np.rint(own * _WHOLE).astype(np.int64))])
        return (sums[1:] - np.repeat(sums[firsts], np.diff(firsts, append=len(held)))) / _WHOLE

    # What lies above the pieces of a cell enters all cells above; up to the next with a piece it is all or nothing.
    own = per_cell(east)
    above = running(own)
    # Above y = u a cell holds ½ − u, and ∫ y = (¼ − u²) / 2: their means over a piece, u and v being linear.
    area = per_cell(east * (r0 + r1) / 2) + above - own
    along_y = per_cell(east * (0.25 - (u0 * u0 + u0 * u1 + u1 * u1) / 3) / 2)
    along_x = per_cell(east * (2 * v0 * r0 + v0 * r1 + v1 * r0 + 2 * v1 * r1) / 6)
    own = per_cell(east * (v0 + v1) / 2)
    along_x += running(own) - own
    cut = np.flatnonzero((area > _ROUNDING) & (area < 1 - _ROUNDING))

    def cells(flat: Index) -> tuple[Index, Index, Index]:
        which = np.repeat(np.arange(len(wide)), np.diff(np.searchsorted(flat, behind), prepend=0))
        x, y = np.divmod(flat - before[which], wide[which, 1])
        return which, x + corner[which, 0], y + corner[which, 1]

    # Cells with pieces, and what lies between them, take turns.
    edges = np.column_stack([held, held + 1]).ravel()
    whole = np.column_stack([area >= 1 - _ROUNDING, above > 0.5]).ravel()
    begins, ends = edges[np.flatnonzero(np.diff(whole, prepend=False, append=False))].reshape(-1, 2).T
    some = ends > begins
    runs = _rectangles(*cells(begins[some]), (ends - begins)[some])
    return *cells(held[cut]), area[cut], along_x[cut], along_y[cut], *runs


def _rectangles(owner: Index, x: Index, y: Index, tall: Index) -> tuple[Index, Index, Index]:
    """Owners, lower and upper corners of runs up columns, those side by side put together."""
    columns = np.stack([owner, y, tall, x - np.arange(len(x))])
    new = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    # No runs, so none is new.
    first, last = (np.flatnonzero(each) for each in (np.append(len(x) > 0, new), np.append(new, len(x) > 0)))
    low = np.column_stack([x[first], y[first]])
    return owner[first], low, np.column_stack([x[last] + 1, y[first] + tall[first]])


def _edges(geometries: NDArray[Any], domain: Domain) -> tuple[Field, Field, Index]:
    """All edges in cells, (k, 2) each end, the inside on their left, and whose they are (k,)."""
    polygons, owner = shapely.get_parts(geometries, return_index=True)
    rings, polygon = shapely.get_rings(polygons, return_index=True)
    outer = np.append(True, polygon[1:] != polygon[:-1])
    turned = shapely.is_ccw(rings) != outer
    place, ring = shapely.get_coordinates(rings, return_index=True)
    place = (place - domain.low) / domain.cell
    edge = np.rint(place)
    place = np.clip(np.where(np.abs(place - edge) < _NEAR_EDGE, edge, place), 0, domain.shape)
    here = np.flatnonzero(ring[1:] == ring[:-1])
    back = turned[ring[here]].astype(np.int64)
    return place[here + back], place[here + 1 - back], owner[polygon[ring[here]]]


def _cut(start: Field, end: Field) -> tuple[Field, Field, Index]:
    """Edges cut wherever they cross a line of the grid, and the edge of each piece."""
    along = end - start
    first = np.floor(np.minimum(start, end)) + 1
    crossed = np.maximum(np.ceil(np.maximum(start, end)) - first, 0).astype(np.int64)
    edges, times = [np.arange(len(start))], [np.zeros(len(start))]
    for axis in (0, 1):
        number = crossed[:, axis]
        edge = np.repeat(np.arange(len(start)), number)
        # In the direction of each edge, so that three lists are in order, which sorting makes use of.
        back = along[:, axis] < 0
        step = np.where(back, -1, 1)
        begin = first[:, axis] + np.where(back, number - 1, 0) - step * (np.cumsum(number) - number)
        line = begin.take(edge) + step.take(edge) * np.arange(len(edge))
        edges.append(edge)
        times.append((line - start[:, axis].take(edge)) / along[:, axis].take(edge))
    edge, time = np.concatenate(edges), np.clip(np.concatenate(times), 0, 1)
    # Not by their sum, whose rounding would depend on how many edges are before.
    both = np.empty(len(edge), dtype=np.complex128)
    both.real, both.imag = edge, time
    order = np.argsort(both, kind="stable")
    edge, time = edge[order], time[order]
    place = start.take(edge, axis=0) + time[:, None] * along.take(edge, axis=0)
    until = np.empty_like(place)
    until[:-1] = place[1:]
    until[np.append(edge[1:] != edge[:-1], True)] = end
    return place, until, edge
