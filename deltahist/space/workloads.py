"""Workloads: the queries that people ask, as boxes and regions of the public space.

>>> import deltahist as dh
>>> domain = dh.Domain((0, 0, 4, 4), (4, 4))
>>> boxes([[0, 0, 2, 2], [1, 1, 4, 3]]).matrix(domain).sum(axis=1).tolist()  # how many cells each of them holds
[4.0, 6.0]
>>> len(all_ranges(domain)), len(random_squares(1.5, 10, domain))
(100, 10)

The expected squared error of each query is known before there are data. The whole domain's total is public:

>>> near, asked = dh.Neighbourhood(domain, delta=1), boxes([[0, 0, 4, 4], [1, 1, 4, 3]])
>>> dh.expected_error(dh.strategies.Flow(domain), near, asked, epsilon=1).round(1).tolist()
[0.0, 40.0]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy
import shapely
from numpy.typing import ArrayLike, NDArray

from deltahist._memory import check_memory
from deltahist.errors import InputError, check_positive, check_whole
from deltahist.space.cover import BoxCover, RegionCover, Span, count_rim_cells, cover_polygons, in_parts
from deltahist.space.domain import Domain

#: All ranges of a domain are listed one by one up to this number.
MOST_LISTED = 5_000_000
#: Of the map's longer side: a query that reaches no further outside ends at the edge.
_SLACK = 1e-9
#: Cells at the rims of regions that are covered together, so that memory stays small.
_CELLS_AT_A_TIME = 1 << 17
#: Boxes whose explicit rows are made together.
_ROWS_AT_A_TIME = 512


@dataclass(frozen=True, eq=False)
class Boxes:
    """Axis-parallel boxes; a cell that a box cuts counts by the share of its area: Σ_x |b_x ∩ q| / |b_x| c̃_x.

    Source: 2014, section 5.4.2, eq. (8), where c is printed for the published c̃.

    Parameters
    ----------
    corners : (m, 4) west, south, east, north, or (m, 2) low, high in 1-D, in the domain's coordinates.

    >>> import deltahist as dh
    >>> work = dh.workloads.boxes([[0, 0, 2, 1], [1, 1, 2, 2]])
    >>> work.matrix(dh.Domain((0, 0, 2, 2), (2, 2))).toarray().tolist()
    [[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """

    corners: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.corners)

    def thinned(self, most: int) -> Boxes:
        """Return at most `most` of the boxes, evenly taken."""
        return self if len(self) <= most else Boxes(self.corners[:: -(-len(self) // most)])

    def spans(self, domain: Domain) -> tuple[Span, ...]:
        """Return intervals in cells along each axis, through whole lattice steps.

        Raises InputError if a box is reversed, empty or reaches outside the domain.
        """
        d = domain.ndim
        if self.corners.shape[1] != 2 * d:
            raise InputError(f"boxes have {self.corners.shape[1]} numbers each: it must be {2 * d} on a {d}-D domain")
        steps, start, step = (np.array(each + each)[:, None] for each in (domain.steps, domain.low, domain.step))
        places = np.subtract(self.corners.T, start, order="C")
        places /= step
        np.rint(places, out=places)
        low, high = places[:d], places[d:]
        if not (low < high).all():
            self._refuse(~(low < high), "reversed or empty: it must be west < east and south < north")
        outside = (low < 0) | (high > np.array(domain.lattice_shape)[:, None])
        if outside.any():
            bounds = tuple(round(b, 6) for b in domain.bounds)
            self._refuse(outside, f"not inside the domain, whose bounds are {bounds} (degrees, or x and y swapped?)")
        places /= steps
        return tuple(zip(low, high, strict=True))

    def cover(self, domain: Domain) -> BoxCover:
        """Which share of each cell the boxes hold, and where in the cell; InputError as of `spans`."""
        return BoxCover(self.spans(domain))

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Return the queries as explicit rows (m, N) of area shares; InputError as of `spans`."""
        return _rows_of(self.spans(domain), domain.shape)

    def _refuse(self, bad: NDArray[np.bool_], rule: str) -> NoReturn:
        """Raise InputError for the first box that breaks a rule along any axis (d, m)."""
        first = int(np.argmax(bad.any(axis=0)))
        box = ",".join(f"{v:.10g}" for v in self.corners[first])
        raise InputError(f"box {first} ({box}) is {rule}")


@dataclass(frozen=True)
class AllRanges:
    """Every box of whole cells, each once: n (n + 1) / 2 in 1-D, the product over both axes in 2-D.

    >>> len(all_ranges(Domain((0, 1), (4,))))
    10
    """

    domain: Domain

    def __len__(self) -> int:
        return math.prod(n * (n + 1) // 2 for n in self.domain.shape)

    def spans(self, domain: Domain) -> tuple[Span, ...]:
        """Every range listed, x varying slowest; refused beyond five million."""
        self.check(domain)
        if len(self) > MOST_LISTED:
            raise InputError(
                f"there are {len(self):,} ranges: at most {MOST_LISTED:,} are listed one by one "
                "(take .sample(number, seed), or random_squares)"
            )
        pairs = [np.triu_indices(n) for n in self.domain.shape]
        numbers = np.indices([len(first) for first, _ in pairs]).reshape(len(pairs), -1)
        ends = ((first[at], last[at] + 1) for (first, last), at in zip(pairs, numbers, strict=True))
        return tuple((low.astype(np.float64), high.astype(np.float64)) for low, high in ends)

    def sample(self, number: int, seed: int = 0) -> Boxes:
        """Ranges drawn uniformly, with replacement."""
        rng = np.random.default_rng(seed)
        low, high = [], []
        for axis, n in enumerate(self.domain.shape):
            # The ranges that end at cell e are the e + 1 ranks from e (e + 1) / 2 on.
            begins = np.cumsum(np.arange(n + 1))
            rank = rng.integers(0, begins[-1], number)
            end = np.searchsorted(begins, rank, side="right")
            edges = self.domain.edges(axis)
            low.append(edges[rank - begins[end - 1]])
            high.append(edges[end])
        return Boxes(np.column_stack([*low, *high]))

    def cover(self, domain: Domain) -> BoxCover:
        """Return the cover of the ranges listed, which consist of whole cells."""
        return BoxCover(self.spans(domain))

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Return the queries as explicit rows (m, N); InputError as of `spans`."""
        return _rows_of(self.spans(domain), domain.shape)

    def check(self, domain: Domain) -> None:
        """Raise InputError unless the ranges belong to a domain."""
        if domain != self.domain:
            raise InputError("all_ranges was made for another domain: make it from this one")


@dataclass(frozen=True, eq=False)
class Regions:
    """Polygons as queries; a cell at the rim counts by the exact share of its area inside.

    Parameters
    ----------
    geometries : (m,) shapely polygons or multipolygons, in the domain's coordinates.
    names : one name each.
    """

    geometries: NDArray[Any]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.geometries)

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Area shares (m, N); InputError as of `cover`."""
        return self.cover(domain).rows

    def boxes(self) -> Boxes:
        """Return a box for each region: of its area, with the centre and proportions of its bounds."""
        corners = shapely.bounds(self.geometries)
        sides = corners[:, 2:] - corners[:, :2]
        part = np.sqrt(shapely.area(self.geometries) / sides.prod(axis=1))
        middle, half = corners[:, :2] + sides / 2, sides * part[:, None] / 2
        return Boxes(np.column_stack([middle - half, middle + half]))

    def parts(self, domain: Domain) -> list[Regions]:
        """Return the regions in parts whose rims cross a bounded number of cells; InputError as of `cover`."""
        parts = list(in_parts(count_rim_cells(self.geometries, domain), _CELLS_AT_A_TIME))
        if len(parts) == 1:
            return [self]
        self.check(domain)
        return [Regions(self.geometries[some], self.names[some]) for some in parts]

    def cover(self, domain: Domain) -> RegionCover:
        """Which share of each cell the polygons hold, and where in the cell; kept for the domain asked last.

        Raises InputError if a polygon reaches outside the domain, or the domain is 1-D.
        """
        if domain not in self._last:
            self.check(domain)
            self._last.clear()
            self._last[domain] = cover_polygons(self.geometries, domain)
        return self._last[domain]

    @functools.cached_property
    def _last(self) -> dict[Domain, RegionCover]:
        return {}

    def check(self, domain: Domain) -> None:
        """Raise InputError if a polygon reaches outside a domain, or the domain is 1-D."""
        if domain.ndim != 2:
            raise InputError("regions are polygons: they need a 2-D domain")
        outside = reach_beyond(shapely.bounds(self.geometries), domain)
        if outside.any():
            raise InputError(
                f"region {self.names[int(np.argmax(outside))]!r} reaches outside the domain, whose bounds are "
                f"{tuple(round(b, 6) for b in domain.bounds)} ({int(outside.sum()):,} such regions): clip it, nothing "
                "is known there (or is it in another CRS than the domain?)"
            )


all_ranges = AllRanges
#: What can be asked.
Workload = Boxes | AllRanges | Regions


def reach_beyond(corners: NDArray[np.float64], domain: Domain) -> NDArray[np.bool_]:
    """Return whether boxes in a map's coordinates reach beyond it (m,), by more than rounding."""
    low, high = np.array(domain.low), np.array(domain.high)
    first, last = np.split(corners, 2, axis=1)
    slack = _SLACK * (high - low).max()
    return np.asarray(((first < low - slack) | (last > high + slack)).any(axis=1))


def boxes(corners: ArrayLike) -> Boxes:
    """Boxes from an array (m, 4) of west, south, east, north, or (m, 2) of low, high in 1-D.

    Raises InputError on another shape or on NaN or infinite corners.

    >>> len(boxes([[0, 0, 0.5, 0.5]]))
    1
    """
    array = np.atleast_2d(np.asarray(corners, dtype=np.float64))
    if array.ndim != 2 or array.shape[1] not in (2, 4):
        raise InputError(f"boxes have shape {array.shape}: it must be (m, 4), or (m, 2) in 1-D")
    if not np.isfinite(array).all():
        raise InputError("boxes have NaN or infinite corners: all must be finite")
    return Boxes(array)


def regions(geometries: Iterable[Any], names: Sequence[str] | None = None) -> Regions:
    """Regions from polygons; names default to their numbers.

    Raises InputError if a geometry is no valid, non-empty polygon or multipolygon.
    """
    array = np.asarray(list(getattr(geometries, "geometry", geometries)), dtype=object)
    labels = [str(i) for i in range(len(array))] if names is None else [str(n) for n in names]
    if not len(array) or len(labels) != len(array):
        raise InputError(
            f"there are {len(array)} regions and {len(labels)} names: give at least one, and one name each"
        )
    # Type -1 stands for no geometry.
    plain = np.isin(shapely.get_type_id(array), (3, 6)) & shapely.is_valid(array) & ~shapely.is_empty(array)
    if not plain.all():
        first = int(np.argmin(plain))
        raise InputError(
            f"region {labels[first]!r} is {getattr(array[first], 'geom_type', None)}: it must be a valid, non-empty "
            "Polygon or MultiPolygon; repair it (shapely.make_valid)"
        )
    return Regions(array, tuple(labels))


def random_squares(side: float | str, number: int, domain: Domain, *, seed: int = 0) -> Boxes:
    """Return squares (1-D: intervals) of a given side at uniform places inside the domain (2014, section 5.4.2).

    The side is in the domain's coordinates, or text in ground metres such as "2km". Raises InputError if it is longer
    than the domain.
    """
    side = domain.length(side, name="side") if isinstance(side, str) else check_positive(side=side)
    number = check_whole(number=number)
    low, high = np.array(domain.low), np.array(domain.high)
    if side > (high - low).min() * (1 + 1e-12):
        raise InputError(f"side is {side:g}: it must not be longer than the domain ({(high - low).min():g})")
    corner = low + np.random.default_rng(seed).random((domain.ndim, number)).T * np.maximum(0.0, high - low - side)
    return Boxes(np.column_stack([corner, np.minimum(corner + side, high)]))


def random_boxes(number: int, domain: Domain, *, seed: int = 0) -> Boxes:
    """Return boxes (1-D: intervals) whose corners are uniform in the domain: ranges of any size, at any place.

    >>> random_boxes(2_000, Domain((0, 0, 1, 1), (4, 4))).corners.mean(axis=0).round(1).tolist()
    [0.3, 0.3, 0.7, 0.7]
    """
    number = check_whole(number=number)
    low, high = np.array(domain.low), np.array(domain.high)
    ends = np.sort(np.random.default_rng(seed).random((2, number, domain.ndim)), axis=0)
    return Boxes(np.column_stack(list(low + ends * (high - low))))


def range_gram(domain: Domain) -> NDArray[np.float64]:
    """V = QᵀQ (N, N) for all ranges: how many ranges hold each pair of cells."""
    check_memory(16 * domain.size**2, "the Gram matrix of all ranges")
    out = np.ones((1, 1))
    for n in domain.shape:
        i = np.arange(n)
        out = np.kron(out, (np.minimum.outer(i, i) + 1.0) * (n - np.maximum.outer(i, i)))
    return out


def _rows_of(spans: Sequence[Span], shape: tuple[int, ...]) -> scipy.sparse.csr_array:
    """Return boxes as explicit rows (m, N): the share of each cell that lies in them."""
    number, parts = len(spans[0][0]), []
    check_memory(16 * number * math.prod(shape), f"{number:,} explicit queries")
    for start in range(0, max(number, 1), _ROWS_AT_A_TIME):
        some, rows = slice(start, start + _ROWS_AT_A_TIME), np.ones((1, 1))
        for (low, high), cell in zip(spans, map(np.arange, shape), strict=True):
            ends = np.minimum(high[some, None], cell + 1), np.maximum(low[some, None], cell)
            share = np.maximum(ends[0] - ends[1], 0.0)
            rows = (rows[:, :, None] * share[:, None, :]).reshape(len(share), rows.shape[1] * len(cell))
        parts.append(scipy.sparse.csr_array(rows))
    return scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))
