"""Neighbourhood: which data sets are neighbours, as a graph on the cells and a null vertex, and limits beyond δ."""

from __future__ import annotations

import functools
import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy
import shapely
from numpy.typing import NDArray

from deltahist.errors import InputError, as_printed_fraction, check_choice, check_memory, check_positive, check_whole
from deltahist.space.domain import Domain


class Limit(NamedTuple):
    """A cap: a move over at most `distance` costs at most `factor` times ε (factor² times ρ).

    The distance is a ground length, as δ is, or infinity for any move. For a stream it is a number of steps, and the
    factor applies to ρ directly.
    """

    distance: float | str
    factor: Fraction

    @property
    def any(self) -> bool:
        """Whether the limit applies to moves of any length."""
        return self.distance == math.inf


#: Limits as users give them: pairs of a distance and a factor.
Limits: TypeAlias = "Iterable[tuple[float | str, Any]]"


@dataclass(frozen=True)
class Neighbourhood:
    """δ-neighbourhood: one entity moves by at most δ, or appears or vanishes within δ of a source.

    Two cells are neighbours iff the gap between them is less than δ, in lattice steps. Only then can two points in them
    be within δ of each other. Moves of exactly δ are included, since no point lies on the edge of a cell. A cell
    touches a source iff its gap to the source is less than δ. Cells at the rim also count the points outside the
    domain, so for gaps they extend outwards without end.
    Source: 2014, section 3, and the set N of section 5.2.

    Parameters
    ----------
    delta : δ as a ground length: a number (metres if the domain has a CRS, else its units) or text such as "500m".
    sources : None (membership is fixed, the number of entities is public), "boundary", "left" or "right" (1-D), or a
        shapely geometry in the domain's coordinates, which may extend beyond the domain.
    limits : pairs (distance, factor) that cap longer moves. A move over at most the distance, or an arrival at most
        this far from a source, costs at most factor · ε (factor² · ρ with Gaussian noise). Infinity or "any" means any
        move. () sets no cap. With None, the choice of a strategy sets one.

    Raises InputError if δ is smaller than a lattice step, a source does not fit the domain, a limit's distance is not
    above δ, or a factor is below 1 or less than that of a shorter distance.

    >>> near = Neighbourhood(Domain((0, 0, 1, 1), (10, 10)), delta=0.2)
    >>> near.reach.tolist()        # most cells along y for 0, 1, 2 cells along x
    [2, 2, 2]
    >>> near.displacements().shape
    (12, 2)
    >>> far = Neighbourhood(Domain((0, 0, 1, 1), (10, 10)), 0.2, limits=[(0.5, 2), (math.inf, 4)])
    >>> [(float(factor), int(relation.reach[0])) for factor, relation in far.relations]
    [(1.0, 2), (2.0, 5), (4.0, 9)]
    """

    domain: Domain
    delta: float | str
    sources: str | shapely.Geometry | None = None
    limits: Limits | None = field(default=None, compare=False)
    #: The normalized limits, sorted by distance.
    profile: tuple[Limit, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        length = self.domain.length(self.delta, name="delta")
        if length < max(self.domain.step):
            raise InputError(f"delta is {self.delta!r}: it must be at least a step of {max(self.domain.step):.3g}")
        if isinstance(self.sources, shapely.Geometry):
            check_geometry(self.sources, self.domain)
        elif self.sources is not None:
            check_choice(("boundary", "left", "right")[: 3 if self.domain.ndim == 1 else 1], sources=self.sources)
        measure = functools.partial(self.domain.length, name="the distance of a limit")
        profile = read_limits(self.limits or (), length, measure)
        limits = None if self.limits is None else profile
        vars(self).update(delta=_make_plain(self.delta), limits=limits, profile=profile)

    @functools.cached_property
    def radius(self) -> int:
        """δ in whole lattice steps, rounded up."""
        return self.steps_of(self.delta)

    def steps_of(self, distance: float | str) -> int:
        """Convert a distance (in the units of delta) to whole lattice steps, rounded up."""
        # The shorter of two unequal steps gives the larger number, so neither axis is understated. The tolerance of
        # 0.05 steps covers the rounding of cell sizes where bounds are far from zero. It is within the one lattice step
        # by which the guarantee for raw coordinates falls short of δ.
        steps = self.domain.length(distance, name="distance") / min(self.domain.step)
        return max(1, math.ceil(steps - 0.05))

    @property
    def fixed_membership(self) -> bool:
        """Whether entities can neither appear nor vanish, so that their number is public."""
        return self.sources is None

    @functools.cached_property
    def relations(self) -> tuple[tuple[Fraction, Neighbourhood], ...]:
        """Factors and the relations that they apply to, by increasing distance, starting with δ.

        The cost of a strategy is the largest of its costs under these relations, each divided by the factor.
        """
        out = [(Fraction(1), self if self.limits == () else replace(self, limits=()))]
        for limit in self.profile:
            relation = self.anywhere() if limit.any else Neighbourhood(self.domain, limit.distance, self.sources, ())
            out.append((limit.factor, relation))
        return tuple(out)

    @functools.cached_property
    def reach(self) -> NDArray[np.int64]:
        """Closed form of the displacement set, clipped to the domain.

        1-D: one number, the largest displacement in cells. 2-D: for dx = 0, 1, ... the largest dy such that cells
        (dx, dy) apart are neighbours, in descending order.
        """
        kx, radius = self.domain.steps[0], self.radius
        # gap = (|d| - 1) k < radius
        far_x = min(-(-radius // kx), self.domain.shape[0] - 1)
        if self.domain.ndim == 1:
            return _make_readonly(np.array([far_x], dtype=np.int64))
        ky, ny = self.domain.steps[1], self.domain.shape[1]
        out = []
        for dx in range(far_x + 1):
            gap = max(dx - 1, 0) * kx
            # largest integer g with gap² + g² < radius²
            most = math.isqrt(radius * radius - gap * gap - 1)
            out.append(min(most // ky + 1, ny - 1))
        return _make_readonly(np.array(out, dtype=np.int64))

    @functools.cached_property
    def frontier(self) -> NDArray[np.int64]:
        """Maximal non-negative displacements (m, ndim): no other displacement is as large on every axis."""
        if self.domain.ndim == 1:
            return _make_readonly(self.reach.reshape(1, 1))
        keep = np.append(self.reach[1:] < self.reach[:-1], True)
        dx = np.flatnonzero(keep)
        return _make_readonly(np.column_stack([dx, self.reach[dx]]))

    def displacements(self) -> NDArray[np.int64]:
        """Return all displacements (m, ndim) between different neighbouring cells, one from each pair ±d."""
        if self.domain.ndim == 1:
            return np.arange(1, self.reach[0] + 1, dtype=np.int64).reshape(-1, 1)
        check_memory(32 * int((2 * self.reach + 1).sum()), f"the list of all moves within delta={self.delta!r}")
        columns = [
            np.column_stack([np.full(2 * r + 1, dx, dtype=np.int64), np.arange(-r, r + 1)])
            for dx, r in enumerate(self.reach.tolist())
        ]
        columns[0] = columns[0][int(self.reach[0]) + 1 :]  # keep one from each pair, and drop the null move
        return np.concatenate(columns)

    @functools.cached_property
    def source_cells(self) -> NDArray[np.bool_]:
        """Whether each cell (domain.shape, bool) touches a source, that is, counts points within δ of one."""
        near = np.zeros(self.domain.shape, dtype=bool)
        if isinstance(self.sources, shapely.Geometry):
            near = find_touched_cells(self.sources, self.domain, self.radius)
        for axis, (n, k) in enumerate(zip(self.domain.shape, self.domain.steps, strict=True)):
            deep = min(-(-self.radius // k), n)  # cells i with gap i k < radius
            side = np.moveaxis(near, axis, 0)
            if self.sources in ("boundary", "left"):
                side[:deep] = True
            if self.sources in ("boundary", "right"):
                side[n - deep :] = True
        return _make_readonly(near)

    def edges(self) -> NDArray[np.int64]:
        """Return the edges (M, 2) of the graph as flat cell indices; -1 is the null vertex.

        First come the moves (u, v), u < v, of N = {(i, j): some x in bin i and y in bin j have d(x, y) ≤ δ}. Then come
        the arrivals (-1, v), one per source cell. Source: 2014, section 5.2.
        """
        shape = np.array(self.domain.shape)
        moves = self.displacements()
        number = int(np.prod(np.maximum(shape - np.abs(moves), 0), axis=1).sum())
        check_memory(64 * number, f"the list of {number:,} edges")
        index = np.arange(self.domain.size).reshape(self.domain.shape)
        parts = []
        for move in moves.tolist():
            here = tuple(slice(max(0, -d), n - max(0, d)) for d, n in zip(move, shape.tolist(), strict=True))
            there = tuple(slice(max(0, d), n - max(0, -d)) for d, n in zip(move, shape.tolist(), strict=True))
            parts.append(np.column_stack([index[here].ravel(), index[there].ravel()]))
        entry = np.flatnonzero(self.source_cells)
        parts.append(np.column_stack([np.full_like(entry, -1), entry]))
        return np.concatenate(parts)

    def incidence(self) -> scipy.sparse.csc_array:
        """Return the incidence matrix E (N, M), int64: +1 where an edge ends, -1 where it starts; no row for ⊥."""
        edges = self.edges()
        rows, columns = edges[:, ::-1].T.ravel(), np.tile(np.arange(len(edges)), 2)
        kept, values = rows >= 0, np.repeat([1, -1], len(edges))
        places = rows[kept], columns[kept]
        return scipy.sparse.csc_array((values[kept], places), shape=(self.domain.size, len(edges)))

    def capped(self) -> Neighbourhood:
        """Return the neighbourhood with the default limit of 4 for any move if `limits` is None (docs/choosing.md).

        >>> near = Neighbourhood(Domain((0, 1), (4,)), 0.25)
        >>> [float(limit.factor) for limit in near.capped().profile], replace(near, limits=()).capped().profile
        ([4.0], ())
        """
        return self if self.limits is not None else replace(self, limits=[("any", 4)])

    def moves_within(self, distance: float) -> Neighbourhood:
        """Return the relation of moves up to `distance` (in the units of delta), with fixed membership."""
        return Neighbourhood(self.domain, distance, None, ())

    def anywhere(self) -> Neighbourhood:
        """Return the standard relation: entities move anywhere, and with sources appear and vanish anywhere."""
        # The boundary is within one diameter of every cell.
        return Neighbourhood(self.domain, self.diameter, None if self.fixed_membership else "boundary", ())

    @property
    def delta_ground(self) -> float:
        """δ as a number in ground units (metres, or the plane's units)."""
        return self.domain.ground(self.domain.length(self.delta, name="delta"))

    @property
    def diameter(self) -> float:
        """Length of the domain's diagonal on the ground, by the largest scale factor."""
        return self.domain.ground(math.dist(self.domain.low, self.domain.high))

    def describe(self) -> dict[str, Any]:
        """Return a public JSON-ready description, without the domain."""
        sources = self.sources
        if sources is not None and not isinstance(sources, str):
            sources = {"wkt": shapely.to_wkt(sources, rounding_precision=-1)}
        out = {"delta": self.delta, "sources": sources}
        return out | {"limits": describe_limits(self.profile)} if self.profile else out

    @classmethod
    def from_description(cls, domain: Domain, description: dict[str, Any]) -> Neighbourhood:
        """Recreate a neighbourhood from its `describe`."""
        sources = description["sources"]
        if isinstance(sources, dict):
            # None would mean no sources, so use another value for a damaged geometry.
            sources = shapely.from_wkt(sources["wkt"], on_invalid="ignore") or "damaged"
        limits = limits_of(description["limits"]) if "limits" in description else None
        return Neighbourhood(domain, description["delta"], sources, limits)

    def check_on_map(self) -> None:
        """Raise InputError if δ is longer than any move on the map, or looks like degrees."""
        degrees = isinstance(self.delta, numbers.Real) and self.delta < 1 and self.domain.crs is not None
        if degrees or self.delta_ground > self.diameter * (1 + 1e-9):
            rule = "have a unit if below 1 m, such as '0.5m' (or is it in degrees?)" if degrees else "fit on the map"
            raise InputError(
                f"delta is {self.delta!r}: it must {rule}; the map's diagonal is {self.diameter:,.6g} "
                f"{self.domain.unit}"
            )


def _make_readonly(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array read-only, because sensitivities depend on it."""
    array.flags.writeable = False
    return array


def _make_plain(value: Any) -> Any:
    """Convert a number to a plain int or float for JSON, and return anything else unchanged."""
    if not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


# --- profiles: limits on the cost of a change, by its length in space or time ----------------------------------


def read_limits(given: Limits, within: float, measure: Callable[[Any], float]) -> tuple[Limit, ...]:
    """Read limits, sort them by distance, and drop those that a longer one implies.

    `within` is the length up to which the budget itself applies; `measure` converts a distance to a length.
    """
    found = []
    for distance, factor in given:
        distance = math.inf if distance == "any" else _make_plain(distance)
        factor = as_printed_fraction(check_positive(**{"the factor of a limit": factor}))
        found.append((math.inf if distance == math.inf else measure(distance), Limit(distance, factor)))
    found.sort(key=lambda each: each[0])
    for (near, low), (far, high) in itertools.pairwise([(within, Limit(within, Fraction(1))), *found]):
        if far < near or high.factor < low.factor or (far == near and high.factor > low.factor):
            raise InputError(
                f"limits contains ({high.distance}, {float(high.factor):g}): distances must be longer than {within:g}, "
                "and factors must be at least 1 and not decrease with the distance"
            )
    kept = [limit for _, limit in found]
    return tuple(a for a, b in itertools.zip_longest(kept, kept[1:]) if b is None or a.factor < b.factor)


def read_lasting(given: Limits, window: int | None) -> tuple[Limit, ...]:
    """Read limits on changes that last more steps than a window; None is an endless window."""
    within = math.inf if window is None else float(window)
    return read_limits(given, within, lambda steps: check_whole(**{"the steps of a limit": steps}))


def describe_limits(limits: Sequence[Limit]) -> list[list[Any]]:
    """Return limits as JSON: pairs of the distance, or "any", and the exact factor."""
    return [["any" if limit.any else limit.distance, str(limit.factor)] for limit in limits]


def limits_of(description: Any) -> list[tuple[float | str, Fraction]]:
    """Read the output of `describe_limits`, up to 4096 limits. No valid file has more."""
    return [(distance, Fraction(factor)) for distance, factor in description[:4096]]


def list_limits(near: Neighbourhood, most: int | None = None) -> list[tuple[float | None, Fraction]]:
    """Return ground distances (None for any move) and factors of at most `most` limits, always with the last."""
    domain, chosen = near.domain, near.profile
    if most is not None and len(chosen) > most:
        chosen = tuple(chosen[round(k * (len(chosen) - 1) / (most - 1))] for k in range(most))
    return [(None if each.any else domain.ground(domain.length(each.distance)), each.factor) for each in chosen]


# --- sources that are geometries ----------------------------------------------------------------------------


def check_geometry(geometry: shapely.Geometry, domain: Domain) -> None:
    """Raise InputError unless a source is a valid, non-empty, finite geometry that is not too far away."""
    away = np.abs(shapely.get_coordinates(geometry)[:, : domain.ndim] - domain.low) / domain.step
    # Up to 2^48 steps, distances are exact to a sixteenth of a step. NaN is not near.
    near = away.max(initial=0.0) < 1 << 48
    if shapely.is_empty(geometry) or not shapely.is_valid(geometry) or not near:
        raise InputError(
            f"sources is a geometry that is empty, invalid, or so far away that distances are not exact "
            f"({shapely.is_valid_reason(geometry)}; is it in another CRS?)"
        )


def place_on_lattice(geometry: shapely.Geometry, domain: Domain) -> shapely.Geometry:
    """Convert a geometry to lattice steps, with vertices rounded to whole steps; in 1-D it lies on the x axis."""

    def to_lattice(vertices: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.zeros_like(vertices)
        out[:, : domain.ndim] = np.rint((vertices[:, : domain.ndim] - domain.low) / domain.step)
        return out

    if geometry.geom_type == "LinearRing":  # a line, unlike a ring, may cross itself after rounding
        geometry = shapely.LineString(geometry)
    placed = shapely.transform(geometry, to_lattice)
    return placed if shapely.is_valid(placed) else shapely.make_valid(placed)


def is_far(geometry: shapely.Geometry, domain: Domain, radius: int) -> bool:
    """Return whether a geometry is too far away to touch any cell within `radius` lattice steps."""
    sides = (*domain.lattice_shape, 0)[:2]
    return bool(shapely.distance(place_on_lattice(geometry, domain), shapely.box(0, 0, *sides)) >= radius - 0.25)


def find_touched_cells(geometry: shapely.Geometry, domain: Domain, radius: int) -> NDArray[np.bool_]:
    """Return the cells (domain.shape, bool) that count raw points less than `radius` lattice steps from a geometry.

    Points outside the domain count in the nearest cell, so cells at the rim extend outwards without end (in 1-D along
    x only). The geometry's vertices are rounded to whole lattice steps, so that distances in simple positions are
    exact. Proof: docs/privacy/histogram.md, lemma 2.
    """
    placed = place_on_lattice(geometry, domain)
    shapely.prepare(placed)
    shape = np.array((*domain.shape, 1)[:2])
    steps = np.array((*domain.steps, 0)[:2], dtype=np.float64)
    limit = radius - 0.25  # so that rounding cannot add a cell that is exactly δ away
    # Points further out than this are no nearer to the geometry.
    bounds = np.array(shapely.bounds(placed))
    outer_low = np.where(steps > 0, np.minimum(0, bounds[:2] - radius), 0)
    outer_high = np.where(steps > 0, np.maximum(shape * steps, bounds[2:] + radius), 0)

    near = np.zeros(tuple(shape), dtype=bool)
    # Divide one block that contains the grid repeatedly, down to single cells.
    split = 8  # number of parts per axis
    block, low = split ** math.ceil(math.log(shape.max(), split)), np.zeros((1, 2), dtype=np.int64)
    while True:
        high = np.minimum(low + block, shape)
        first = np.where(low == 0, outer_low, low * steps)
        last = np.where(high == shape, outer_high, high * steps)
        close = shapely.distance(placed, shapely.box(*first.T, *last.T)) < limit
        low, high = low[close], high[close]
        if block == 1:
            near[tuple(low.T)] = True
            return near.reshape(domain.shape)
        # Do not divide a block whose farthest point in the domain is certainly within the limit.
        middle = shapely.points((low + high) * steps / 2)
        inside = shapely.distance(placed, middle) + np.hypot(*((high - low) * steps / 2).T) < limit
        for (x0, y0), (x1, y1) in zip(low[inside].tolist(), high[inside].tolist(), strict=True):
            near[x0:x1, y0:y1] = True
        block //= split
        finer = low[~inside, None] + np.indices((split, split)).reshape(2, -1).T * block
        low = finer[(finer < shape).all(axis=2)]
