"""Describe queries as boxes or regions, and find the share of each cell that a query contains.

>>> import deltahist as dh
>>> domain = dh.Domain((0, 0, 4, 4), (4, 4))
>>> boxes([[0, 0, 2, 2], [1, 1, 4, 3]]).matrix(domain).sum(axis=1).tolist()  # number of cells in each box
[4.0, 6.0]
>>> len(all_ranges(domain)), len(random_squares(1.5, 10, domain))
(100, 10)
"""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
import scipy
import shapely
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, check_choice, check_memory, check_positive, check_whole
from deltahist.space.domain import Domain

Field: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]
#: Starts (m,) and ends (m,) of intervals along one axis, in cells, with fractions for cut cells.
Span: TypeAlias = tuple[Field, Field]
#: Cell edges (m,) with weights (m,). The sum over an interval is Σ weight · (sum of all cells before the edge).
Edges: TypeAlias = Sequence[tuple[Index, Field]]


class _OfSpans(abc.ABC):
    """Queries that consist of an interval along each axis."""

    @abc.abstractmethod
    def spans(self, domain: Domain) -> tuple[Span, ...]:
        """Return the intervals along each axis, in cells."""

    def cover(self, domain: Domain) -> BoxCover:
        """Return the share of each cell that is inside each query, and the position of that part in the cell."""
        return BoxCover(self.spans(domain))

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Return a matrix (m, N) with the share of each cell's area inside each query."""
        cover, shape = self.cover(domain), domain.shape
        needed = 100 * int(cover.area.sum()) + 16 * len(cover.area) * domain.size * (domain.ndim == 3)
        check_memory(needed, f"{len(cover.area):,} explicit queries")
        if domain.ndim == 3:
            x, y, z = (
                np.clip(np.minimum(high[:, None], np.arange(1, n + 1)) - np.maximum(low[:, None], np.arange(n)), 0, 1)
                for (low, high), n in zip(cover.spans, shape, strict=True)
            )
            return scipy.sparse.csr_array(np.einsum("mi,mj,mk->mijk", x, y, z).reshape(len(x), -1))
        if domain.ndim == 1:  # treat a line as a plane that is one cell high
            zeros = np.zeros(len(cover.area))
            cover, shape = BoxCover((*cover.spans, (zeros, zeros + 1))), (*shape, 1)
        return cover.list_cells(shape).rows


@dataclass(frozen=True, eq=False)
class Boxes(_OfSpans):
    """Axis-parallel boxes. A cut cell counts in proportion to its area inside the box: Σ_x |b_x ∩ q| / |b_x| c̃_x.

    Source: 2014, section 5.4.2, eq. (8), which misprints the published c̃ as c.

    Parameters
    ----------
    corners : an array (m, 4) of west, south, east, north, or (m, 2) of low, high in 1-D, in the domain's coordinates.
        In 3-D, each row of (m, 6) lists three lows and then three highs, which lie on the edges of cells.

    >>> import deltahist as dh
    >>> work = dh.workloads.boxes([[0, 0, 2, 1], [1, 1, 2, 2]])
    >>> work.matrix(dh.Domain((0, 0, 2, 2), (2, 2))).toarray().tolist()
    [[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """

    corners: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.corners)

    def take_evenly(self, most: int) -> Boxes:
        """Return at most `most` boxes, at regular intervals in the list."""
        return self if len(self) <= most else Boxes(self.corners[:: -(-len(self) // most)])

    def spans(self, domain: Domain) -> tuple[Span, ...]:
        """Return the intervals along each axis, in cells, with ends rounded to whole lattice steps.

        Raises InputError if a box is reversed, empty, or partly outside the domain.
        """
        d = domain.ndim
        check_choice(((2 * d,),), **{"shape of a box": self.corners.shape[1:]})
        steps, start, step = (np.array(each + each)[:, None] for each in (domain.steps, domain.low, domain.step))
        places = np.subtract(self.corners.T, start, order="C")
        places /= step
        np.rint(places, out=places)
        low, high = places[:d], places[d:]
        bad = ~(low < high) | (low < 0) | (high > np.array(domain.lattice_shape)[:, None])
        if d == 3:
            bad |= (places % steps != 0).reshape(2, d, -1).any(axis=0)
        if bad.any():
            first = int(np.argmax(bad.any(axis=0)))
            box, bounds = (",".join(f"{v:.10g}" for v in each) for each in (self.corners[first], domain.bounds))
            raise InputError(
                f"box {first} is {box}: it must be non-empty and inside the domain, whose bounds are {bounds}"
                f"{', and must not cut cells' * (d == 3)} (is it reversed or in degrees, or are x and y swapped?)"
            )
        places /= steps
        return tuple(zip(low, high, strict=True))


@dataclass(frozen=True)
class AllRanges(_OfSpans):
    """All boxes of whole cells: n (n + 1) / 2 in 1-D, and the product of these numbers over all axes otherwise."""

    domain: Domain

    def __len__(self) -> int:
        return math.prod(n * (n + 1) // 2 for n in self.domain.shape)

    def spans(self, domain: Domain) -> tuple[Span, ...]:
        """Return all ranges, with x varying slowest."""
        self.check(domain)
        check_memory(64 * len(self), f"a list of {len(self):,} ranges (`sample` draws a few)")
        pairs = [np.triu_indices(n) for n in self.domain.shape]
        numbers = np.indices([len(first) for first, _ in pairs]).reshape(len(pairs), -1)
        ends = ((first[at], last[at] + 1) for (first, last), at in zip(pairs, numbers, strict=True))
        return tuple((low.astype(np.float64), high.astype(np.float64)) for low, high in ends)

    def sample(self, number: int, seed: int = 0) -> Boxes:
        """Draw ranges uniformly, with replacement."""
        rng = np.random.default_rng(seed)
        low, high = [], []
        for axis, n in enumerate(self.domain.shape):
            # Rank ranges by their ends. The e + 1 ranges that end at cell e have ranks starting at e (e + 1) / 2.
            begins = np.cumsum(np.arange(n + 1))
            rank = rng.integers(0, begins[-1], number)
            end = np.searchsorted(begins, rank, side="right")
            edges = self.domain.edges(axis)
            low.append(edges[rank - begins[end - 1]])
            high.append(edges[end])
        return Boxes(np.column_stack([*low, *high]))

    def check(self, domain: Domain) -> None:
        """Raise InputError unless the ranges were made for this domain."""
        check_choice((self.domain,), domain=domain)


@dataclass(frozen=True, eq=False)
class Regions:
    """Polygons as queries. A cut cell counts in proportion to its exact area inside the polygon.

    Parameters
    ----------
    geometries : (m,) shapely polygons or multipolygons, in the domain's coordinates.
    names : (m,) names of the regions.
    """

    geometries: NDArray[Any]
    names: tuple[str, ...]
    _covers: dict[Domain, RegionCover] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.geometries)

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Return a matrix (m, N) with the share of each cell's area inside each region."""
        return self.cover(domain).rows

    def boxes(self) -> Boxes:
        """Approximate each region by a box of equal area, with the centre and proportions of the region's bounds."""
        corners = shapely.bounds(self.geometries)
        sides = corners[:, 2:] - corners[:, :2]
        part = np.sqrt(shapely.area(self.geometries) / sides.prod(axis=1))
        middle, half = corners[:, :2] + sides / 2, sides * part[:, None] / 2
        return Boxes(np.column_stack([middle - half, middle + half]))

    def parts(self, domain: Domain) -> list[Regions]:
        """Split the regions into batches whose outlines cross a bounded number of cells."""
        parts = list(split_by_rims(self.geometries, domain))
        return [self] if len(parts) == 1 else [Regions(self.geometries[some], self.names[some]) for some in parts]

    def cover(self, domain: Domain) -> RegionCover:
        """Return the share of each cell inside each polygon, and the centroid of that part. Cache the last cover."""
        if domain not in self._covers:
            self.check(domain)
            self._covers.clear()  # keep only one cover, because it may be large
            self._covers[domain] = cover_polygons(self.geometries, domain)
        return self._covers[domain]

    def check(self, domain: Domain) -> None:
        """Raise InputError if a polygon extends beyond a domain, or if the domain is not 2-D."""
        outside = reach_beyond(shapely.bounds(self.geometries), domain)
        if domain.ndim != 2 or outside.any():
            rule = f"it must lie on a 2-D map, within {tuple(round(b, 6) for b in domain.bounds)} (in the map's CRS)"
            raise InputError(f"region {self.names[int(np.argmax(outside))]!r} extends beyond the map: {rule}")


all_ranges = AllRanges
#: Any workload.
Workload = Boxes | AllRanges | Regions


def reach_beyond(corners: NDArray[np.float64], domain: Domain) -> NDArray[np.bool_]:
    """Return True for each box (m,) that extends beyond the map by more than a rounding error."""
    low, high = np.array(domain.low), np.array(domain.high)
    first, last = np.split(corners, 2, axis=1)
    slack = 1e-9 * (high - low).max()
    return np.asarray(((first < low - slack) | (last > high + slack)).any(axis=1))


def boxes(corners: ArrayLike) -> Boxes:
    """Make boxes from an array (m, 4) of west, south, east, north, or an array (m, 2) of low, high in 1-D."""
    return Boxes(np.atleast_2d(np.asarray(corners, dtype=np.float64)))


def regions(geometries: Iterable[Any], names: Sequence[str] | None = None) -> Regions:
    """Make regions from valid, non-empty polygons or multipolygons. If `names` is None, regions are numbered."""
    array = np.asarray(list(getattr(geometries, "geometry", geometries)), dtype=object)
    labels = [str(i) for i in range(len(array))] if names is None else [str(n) for n in names]
    # Types 3 and 6 are polygons and multipolygons.
    plain = np.isin(shapely.get_type_id(array), (3, 6)) & shapely.is_valid(array) & ~shapely.is_empty(array)
    if not len(array) or len(labels) != len(array) or not plain.all():
        wrong = ", ".join(repr(label) for label, good in zip(labels, plain, strict=False) if not good)[:80]
        raise InputError(
            f"there are {len(array)} regions with {len(labels)} names: there must be at least one region, each a "
            f"valid, non-empty polygon or multipolygon with a name (invalid: {wrong or 'none'})"
        )
    return Regions(array, tuple(labels))


def random_squares(side: float | str, number: int, domain: Domain, *, seed: int = 0) -> Boxes:
    """Draw squares (in 1-D, intervals) with a given side, placed uniformly in the domain (2014, section 5.4.2).

    The side is a number in the domain's coordinates, or text with a ground length such as "2km".
    """
    side = domain.length(side, name="side") if isinstance(side, str) else check_positive(side=side)
    number = check_whole(number=number)
    low, high = np.array(domain.low), np.array(domain.high)
    corner = low + np.random.default_rng(seed).random((domain.ndim, number)).T * (high - low - side)
    return Boxes(np.column_stack([corner, corner + side]))


def random_boxes(number: int, domain: Domain, *, seed: int = 0) -> Boxes:
    """Draw boxes (in 1-D, intervals) of random size, with corners uniform in the domain. In 3-D, draw ranges of cells.

    >>> random_boxes(2_000, Domain((0, 0, 1, 1), (4, 4))).corners.mean(axis=0).round(1).tolist()
    [0.3, 0.3, 0.7, 0.7]
    """
    number = check_whole(number=number)
    if domain.ndim == 3:
        return AllRanges(domain).sample(number, seed)
    low, high = np.array(domain.low), np.array(domain.high)
    ends = np.sort(np.random.default_rng(seed).random((2, number, domain.ndim)), axis=0)
    return Boxes(np.column_stack(list(low + ends * (high - low))))


def range_gram(domain: Domain) -> NDArray[np.float64]:
    """Return V = QᵀQ (N, N) for all ranges. Entry (i, j) is the number of ranges that contain cells i and j."""
    check_memory(16 * domain.size**2, "the Gram matrix of all ranges")
    out = np.ones((1, 1))
    for n in domain.shape:
        i = np.arange(n)
        out = np.kron(out, (np.minimum.outer(i, i) + 1.0) * (n - np.maximum.outer(i, i)))
    return out


# --- sums of cells ------------------------------------------------------------------------------------------


def prefix_sums(cells: Field) -> Field:
    """Return sums from the low corner up to every cell edge. Each axis has one more entry than it has cells."""
    out = np.zeros(tuple(n + 1 for n in cells.shape))
    inside = out[(slice(1, None),) * cells.ndim]
    np.cumsum(cells, axis=-1, out=inside)
    for axis in range(cells.ndim - 1):
        np.cumsum(inside, axis=axis, out=inside)
    return out


def aligned_spans(spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Return True for each box (m,) that consists of whole cells."""
    return np.asarray(np.logical_and.reduce([edge == np.floor(edge) for span in spans for edge in span]))


def box_sums(cells: Field, spans: Sequence[Span]) -> Field:
    """Sum the cells in each box, counting cut cells in proportion to their area inside."""
    return sums_between(prefix_sums(cells), spans)


def sums_between(total: Field, spans: Sequence[Span]) -> Field:
    """Sum over boxes using prefix sums, interpolating linearly where a box cuts cells."""
    flat = total.ravel()
    if len(spans) == 1:
        ends = np.array(spans[0])
        below = np.minimum(ends.astype(np.int64), len(flat) - 2)
        share = ends - below
        low, high = flat[below] * (1 - share) + flat[below + 1] * share
        return np.asarray(high - low)
    if len(spans) == 3:  # boxes of whole cells, by inclusion and exclusion of their corners
        ends = np.array(spans).astype(np.int64)
        corners = itertools.product((0, 1), repeat=3)
        return np.asarray(sum((-1) ** (3 - sum(c)) * total[tuple(ends[[0, 1, 2], list(c)])] for c in corners))
    (west, east), (south, north) = spans
    rows, row = total.shape
    if aligned_spans(spans).all():
        w, e, s, n = (c.astype(np.int64) for c in (west, east, south, north))
        w *= row
        e *= row
        return np.asarray(flat[e + n] - flat[w + n] - flat[e + s] + flat[w + s])
    # Handle all corners at once, because the overhead of calls dominates if there are few boxes.
    x, y = np.array([east, west, east, west]), np.array([north, north, south, south])
    i, j = np.minimum(x.astype(np.int64), rows - 2), np.minimum(y.astype(np.int64), row - 2)
    f, g, at = x - i, y - j, i * row + j
    low = flat[at] * (1 - g) + flat[at + 1] * g
    high = flat[at + row] * (1 - g) + flat[at + row + 1] * g
    northeast, northwest, southeast, southwest = low * (1 - f) + high * f
    return np.asarray(northeast - northwest - southeast + southwest)


def count_up_to(numbers: Index) -> Index:
    """Concatenate the ranges 0, 1, ..., n − 1 for each n in `numbers`."""
    return np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)


def in_parts(sizes: NDArray[Any], most: int) -> Iterator[slice]:
    """Yield slices of consecutive items whose sizes (m,) sum to at most `most`. Larger items get their own slices."""
    ends, first = np.cumsum(sizes), 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first = last


# --- covers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pieces:
    """Intervals [low, high), each split into part of a first cell, whole cells, and part of a last cell.

    first, last : (m,) cells in which the intervals begin and end.
    before : (m,) share of the first cell that lies before the interval.
    head, tail : (m,) shares of the first and last cells that lie inside the interval. If both are the same cell, head
        is the interval's length, and tail is 1.
    whole : True if no interval cuts a cell.
    """

    first: Index
    last: Index
    before: Field
    head: Field
    tail: Field
    whole: bool

    @classmethod
    def of(cls, low: Field, high: Field) -> Self:
        """Split intervals (m,)."""
        first, last = np.floor(low), np.ceil(high) - 1
        whole = bool((first == low).all() and (last == high - 1).all())
        head, tail = np.minimum(high, first + 1) - low, np.where(last > first, high - last, 1.0)
        return cls(first.astype(np.int64), last.astype(np.int64), low - first, head, tail, whole)

    @property
    def two_cells(self) -> NDArray[np.bool_]:
        """Mask (m,) of the intervals that extend over more than one cell."""
        return self.last > self.first

    @functools.cached_property
    def edges(self) -> Edges:
        """Two cell edges with weights, or four if any interval cuts a cell."""
        if self.whole:
            return [(self.first, -self.head), (self.last + 1, self.tail)]
        apart = self.two_cells
        return [
            (self.first, -self.head),
            (self.first + 1, self.head - apart),
            (self.last, (1 - self.tail) * apart),
            (self.last + 1, self.tail * apart),
        ]


@dataclass(frozen=True, eq=False)
class RegionCover:
    """Queries on a grid, each a list of cut cells and a list of rectangles of whole cells.

    number : number of queries. shape : number of cells along each axis.
    owner, x, y : (k,) query and indices of each cut cell, sorted by query.
    share : (k,) share f of each cut cell that lies inside the query.
    places : f ξ along each axis, where ξ is the centroid of the part inside, measured from the cell's centre in half
        cells. () if no decoder needs it.
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
        """Make a cover from a matrix (m, N) of queries on a grid. List every cell as a cut cell."""
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        return cls.of_cells(rows.shape[0], shape, owner, rows.indices, rows.data)

    @classmethod
    def of_cells(cls, number: int, shape: tuple[int, ...], owner: Index, cells: Index, share: Field) -> RegionCover:
        """Make a cover from the queries, flat indices and shares (k,) of cut cells, sorted by query."""
        (x, y), none = np.divmod(cells, shape[1]), np.zeros((0, 2), dtype=np.int64)
        return cls(number, shape, owner, x, y, share, (), none[:, 0], none, none)

    @functools.cached_property
    def rows(self) -> scipy.sparse.csr_array:
        """Matrix (m, N) with the share of each cell in each query."""
        wide, tall = (self.high - self.low).T
        rectangle = np.repeat(np.arange(len(wide)), wide)
        tall = tall[rectangle]
        cell = (self.low[rectangle, 0] + count_up_to(wide)) * self.shape[1] + self.low[rectangle, 1]
        cells = np.concatenate([self.x * self.shape[1] + self.y, np.repeat(cell, tall) + count_up_to(tall)])
        owner = np.concatenate([self.owner, np.repeat(self.whole[rectangle], tall)])
        share = np.concatenate([self.share, np.ones(len(cells) - len(self.share))])
        rows = scipy.sparse.csr_array((share, (owner, cells)), shape=(self.number, math.prod(self.shape)))
        rows.sort_indices()
        return rows

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:
        """Mask (m,) of the queries that cut cells."""
        return np.bincount(self.owner, minlength=self.number) > 0

    @functools.cached_property
    def area(self) -> Field:
        """Area of each query (m,), in cells."""
        return np.bincount(self.owner, self.share, self.number) + self._inside

    @property
    def cut_share(self) -> Field:
        """Share of each query's area (m,) that lies in cut cells."""
        return np.asarray(1 - self._inside / np.maximum(self.area, np.finfo(float).tiny))

    @functools.cached_property
    def _inside(self) -> Field:
        return np.bincount(self.whole, (self.high - self.low).prod(axis=1), self.number).astype(np.float64)

    @property
    def unsure(self) -> Field:
        """Σ f (1 − f) over the cut cells of each query (m,), where f is the share of the cell inside the query."""
        return np.bincount(self.owner, self.share * (1 - self.share), self.number).astype(np.float64)


@dataclass(frozen=True, eq=False)
class BoxCover:
    """Boxes as spans along each axis, with the properties of a `RegionCover`. A span cuts at most two cells."""

    spans: tuple[Span, ...]

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:
        return ~aligned_spans(self.spans)

    @property
    def area(self) -> Field:
        return np.asarray(np.prod([high - low for low, high in self.spans], axis=0))

    @property
    def cut_share(self) -> Field:
        inside = np.ones(len(self.cut))
        for low, high in self.spans:
            inside *= np.maximum(np.floor(high) - np.ceil(low), 0.0) / (high - low)
        return 1 - inside

    @property
    def unsure(self) -> Field:
        shares, squares = np.ones((2, len(self.cut)))
        for low, high in self.spans:
            pieces = Pieces.of(low, high)
            shares *= high - low
            between = np.maximum(pieces.last - pieces.first - 1, 0)
            squares *= pieces.head**2 + pieces.two_cells * pieces.tail**2 + between
        return np.maximum(shares - squares, 0.0)

    def __getitem__(self, some: slice) -> BoxCover:
        return BoxCover(tuple((low[some], high[some]) for low, high in self.spans))

    def list_cells(self, shape: tuple[int, ...]) -> RegionCover:
        """Convert to a `RegionCover`, which lists every cut cell of a grid."""
        starts, ends = zip(*self.spans, strict=True)
        touched, inner = (
            [(rounded(low).astype(np.int64), other(high).astype(np.int64)) for low, high in self.spans]
            for rounded, other in ((np.floor, np.ceil), (np.ceil, np.floor))
        )
        owners, cells = [], []
        # List the cells in cut columns, and then those in cut rows and whole columns.
        for axis, (first, last) in enumerate((touched[1], inner[0])):
            (begin, end), (after, before) = touched[axis], inner[axis]
            for cell, cut in ((begin, begin < after), (end - 1, (before < end) & (after < end))):
                length = np.where(cut, np.maximum(last - first, 0), 0)
                owner = np.repeat(np.arange(len(cut)), length)
                place = cell[owner], first[owner] + count_up_to(length)
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


Cover = BoxCover | RegionCover


# --- polygons -----------------------------------------------------------------------------------------------


def cover_polygons(geometries: NDArray[Any], domain: Domain) -> RegionCover:
    """Return the cover of polygons (m,), with exact areas and centroids in every cell (docs/internals/placement.md)."""
    parts = []
    for some in split_by_rims(geometries, domain):
        owner, *cut, whole, first, last = _cover_parts(*_list_edges(geometries[some], domain), domain.shape)
        parts.append((owner + some.start, *cut, whole + some.start, first, last))
    owner, x, y, area, along_x, along_y, *rectangles = map(np.concatenate, zip(*parts, strict=True))
    # Convert moments from cells to half cells.
    return RegionCover(len(geometries), domain.shape, owner, x, y, area, (2 * along_x, 2 * along_y), *rectangles)


def split_by_rims(geometries: NDArray[Any], domain: Domain) -> Iterator[slice]:
    """Yield slices of polygons whose outlines cross so few cells that the arrays fit in the processor's cache."""
    across = sum(1 / side for side in domain.cell)
    return in_parts(shapely.length(geometries) * across + shapely.get_num_coordinates(geometries), 1 << 17)


def _cover_parts(start: Field, end: Field, owner: Index, shape: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
    """Return arrays for a `RegionCover`: cut cells with their integrals, and rectangles of whole cells.

    The integrals are ∫ 1, ∫ (x − x₀) and ∫ (y − y₀) over the part of the cell inside the polygon, where (x₀, y₀) is the
    cell's centre. Lengths are in cells.
    """
    begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    corner = np.floor(np.minimum.reduceat(start, begins)).astype(np.int64)
    wide = np.minimum(np.ceil(np.maximum.reduceat(start, begins)).astype(np.int64), shape) - corner
    # Add two cells at the top of each column, for contributions above the polygon's bounding box.
    wide[:, 1] += 2
    behind = np.cumsum(wide.prod(axis=1))
    before = behind - wide.prod(axis=1)
    start, end, edge = _cut_edges(start, end)
    owner = owner[edge]
    at = np.floor((start + end) / 2).astype(np.int64)
    (v0, u0), (v1, u1) = (start - at - 0.5).T, (end - at - 0.5).T
    i, j = (at - corner.take(owner, axis=0)).T
    # Pieces along the eastern side of the bounding box have no width.
    inside = i < wide[owner, 0]
    flat = (before[owner] + i * wide[owner, 1] + j)[inside]
    v0, v1, u0, u1 = v0[inside], v1[inside], u0[inside], u1[inside]
    east, r0, r1 = v1 - v0, 0.5 - u0, 0.5 - u1
    held, number = np.unique(flat, return_inverse=True)

    def per_cell(weight: Field) -> Field:
        return np.bincount(number, weight, len(held)).astype(np.float64, copy=False)

    firsts = np.searchsorted(held, before)

    def running_sums(own: Field) -> Field:
        """Return running sums over each polygon's cells, exact in multiples of 2^−52."""
        sums = np.concatenate([[0], np.cumsum(np.rint(own * (1 << 52)).astype(np.int64))])
        return np.asarray(sums[1:] - np.repeat(sums[firsts], np.diff(firsts, append=len(held)))) / (1 << 52)

    # Each piece of an edge also contributes to all cells above it. Cells without edges are entirely inside or outside.
    own = per_cell(east)
    above = running_sums(own)
    # Above y = u, a cell has ∫ 1 = ½ − u and ∫ y = (¼ − u²) / 2. Average over the piece, where u and v are linear.
    area = per_cell(east * (r0 + r1) / 2) + above - own
    along_y = per_cell(east * (0.25 - (u0 * u0 + u0 * u1 + u1 * u1) / 3) / 2)
    along_x = per_cell(east * (2 * v0 * r0 + v0 * r1 + v1 * r0 + 2 * v1 * r1) / 6)
    own = per_cell(east * (v0 + v1) / 2)
    along_x += running_sums(own) - own
    rounding = 1e-9  # a share this close to 0 or 1 counts as 0 or 1
    cut = np.flatnonzero((area > rounding) & (area < 1 - rounding))

    def cells(flat: Index) -> tuple[Index, Index, Index]:
        which = np.repeat(np.arange(len(wide)), np.diff(np.searchsorted(flat, behind), prepend=0))
        x, y = np.divmod(flat - before[which], wide[which, 1])
        return which, x + corner[which, 0], y + corner[which, 1]

    # Each cell with an edge is followed by the gap above it, which has no edges.
    edges = np.column_stack([held, held + 1]).ravel()
    whole = np.column_stack([area >= 1 - rounding, above > 0.5]).ravel()
    begins, ends = edges[np.flatnonzero(np.diff(whole, prepend=False, append=False))].reshape(-1, 2).T
    some = ends > begins
    runs = _merge_runs(*cells(begins[some]), (ends - begins)[some])
    return *cells(held[cut]), area[cut], along_x[cut], along_y[cut], *runs


def _merge_runs(owner: Index, x: Index, y: Index, tall: Index) -> tuple[Index, Index, Index]:
    """Merge equal vertical runs in adjacent columns. Return the rectangles' owners, low corners and high corners."""
    columns = np.stack([owner, y, tall, x - np.arange(len(x))])
    new = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    # If there are no runs, no index is first or last.
    first, last = (np.flatnonzero(each) for each in (np.append(len(x) > 0, new), np.append(new, len(x) > 0)))
    low = np.column_stack([x[first], y[first]])
    return owner[first], low, np.column_stack([x[last] + 1, y[first] + tall[first]])


def _list_edges(geometries: NDArray[Any], domain: Domain) -> tuple[Field, Field, Index]:
    """Return the starts and ends (k, 2) of edges, in cells, and the polygons (k,) to their left."""
    polygons, owner = shapely.get_parts(geometries, return_index=True)
    rings, polygon = shapely.get_rings(polygons, return_index=True)
    outer = np.append(True, polygon[1:] != polygon[:-1])
    turned = shapely.is_ccw(rings) != outer
    place, ring = shapely.get_coordinates(rings, return_index=True)
    place = (place - domain.low) / domain.cell
    edge = np.rint(place)  # snap vertices to grid lines that are very close
    place = np.clip(np.where(np.abs(place - edge) < 1e-8, edge, place), 0, domain.shape)
    here = np.flatnonzero(ring[1:] == ring[:-1])
    back = turned[ring[here]].astype(np.int64)
    return place[here + back], place[here + 1 - back], owner[polygon[ring[here]]]


def _cut_edges(start: Field, end: Field) -> tuple[Field, Field, Index]:
    """Cut edges at grid lines. Return the start, the end and the edge of each piece."""
    along = end - start
    first = np.floor(np.minimum(start, end)) + 1
    crossed = np.maximum(np.ceil(np.maximum(start, end)) - first, 0).astype(np.int64)
    edges, times = [np.arange(len(start))], [np.zeros(len(start))]
    for axis in (0, 1):
        number = crossed[:, axis]
        edge = np.repeat(np.arange(len(start)), number)
        # List crossings in the direction of each edge, because sorted lists are faster to merge.
        back = along[:, axis] < 0
        step = np.where(back, -1, 1)
        begin = first[:, axis] + np.where(back, number - 1, 0) - step * (np.cumsum(number) - number)
        line = begin.take(edge) + step.take(edge) * np.arange(len(edge))
        edges.append(edge)
        times.append((line - start[:, axis].take(edge)) / along[:, axis].take(edge))
    edge, time = np.concatenate(edges), np.clip(np.concatenate(times), 0, 1)
    # Sort pairs (edge, time) as complex numbers. Rounding edge + time would depend on the number of earlier edges.
    both = np.empty(len(edge), dtype=np.complex128)
    both.real, both.imag = edge, time
    order = np.argsort(both, kind="stable")
    edge, time = edge[order], time[order]
    place = start.take(edge, axis=0) + time[:, None] * along.take(edge, axis=0)
    until = np.empty_like(place)
    until[:-1] = place[1:]
    until[np.append(edge[1:] != edge[:-1], True)] = end
    return place, until, edge
