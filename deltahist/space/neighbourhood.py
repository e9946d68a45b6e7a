"""Define which data sets are neighbours, as a graph on cells and a null vertex, and cap the cost of moves beyond δ."""

from __future__ import annotations

import base64
import functools
import itertools
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import scipy
import shapely
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import (
    InputError,
    as_printed_fraction,
    check_choice,
    check_finite,
    check_memory,
    check_positive,
    check_whole,
)
from deltahist.space.domain import Domain


class Limit(NamedTuple):
    """Cap on the cost of moves: a move of up to `distance` costs at most factor · ε (factor² · ρ with Gaussian noise).

    The distance is a ground length like δ, or infinity for any move. For a stream, the distance is a number of steps,
    and the factor multiplies ρ without being squared.
    """

    distance: float | str
    factor: Fraction

    @property
    def any(self) -> bool:
        """True if the limit applies to moves of any length."""
        return self.distance == math.inf


#: Limits as users write them: pairs (distance, factor).
Limits: TypeAlias = "Iterable[tuple[float | str, Any]]"
#: Maximum number of cell pairs for which to compute the cost of moves over several edges.
_MOST_PAIRS = 1 << 23


@dataclass(frozen=True)
class Neighbourhood:
    """δ-neighbourhood: one entity moves by at most δ, or appears or vanishes within δ of a source.

    Two cells are neighbours iff the gap between them, in lattice steps, is less than δ. Only such cells contain points
    within δ of each other. Moves of exactly δ are included, because no point lies on the edge of a cell. A cell touches
    a source iff the gap between them is less than δ. Points outside the domain are counted in cells at the rim, so gaps
    are measured as if these cells had no outer edge.
    Source: 2014, section 3, and the set N of section 5.2.

    Parameters
    ----------
    delta : δ on the ground: a number (in metres, or in the plane's units without a CRS) or text such as "500m".
    sources : None (membership is fixed, so the number of entities is public), "boundary", "left" or "right" (1-D), or a
        shapely geometry in the domain's coordinates, which may extend beyond the domain.
    limits : pairs (distance, factor) that cap the cost of longer moves. A move of up to the distance, or an arrival up
        to that distance from a source, costs at most factor · ε (factor² · ρ with Gaussian noise). A distance of
        infinity or "any" covers every move. () sets no cap. With None, a cap is set when a strategy is chosen.

    Raises InputError if δ is smaller than a lattice step, if `sources` is not valid for the domain, if a limit's
    distance is not above δ, or if a factor is below 1 or decreases with the distance.

    >>> near = Neighbourhood(Domain((0, 0, 1, 1), (10, 10)), delta=0.2)
    >>> near.reach.tolist()        # largest move along y, in cells, for moves of 0, 1, 2 cells along x
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
    #: Whether cells within δ are neighbours, and whether moves within δ connect all cells.
    on_grid: ClassVar[bool] = True
    connected: ClassVar[bool] = True
    #: The limits that no other limit implies, sorted by distance.
    profile: tuple[Limit, ...] = field(init=False, repr=False)

    @staticmethod
    def of(
        domain: Domain | int,
        edges: Any,
        *,
        lengths: ArrayLike | None = None,
        delta: float | None = None,
        sources: Iterable[int] | None = None,
        limits: Limits | None = None,
    ) -> GraphNeighbourhood:
        """Return the neighbourhood in which one entity moves along an edge of a graph on the cells.

        Examples are road networks, policy graphs (Blowfish), city-block distance and any other metric.
        Source: 2014, section 3 (any set of neighbours) and section 4.1.

        Parameters
        ----------
        domain : the cells, or a number n for a line from 0 to n with n cells (numbered from 0).
        edges : pairs (M, 2) of flat cell indices, a sparse matrix with an entry for each edge, a networkx graph, or a
            CSV file with the columns `from` and `to`, and optionally `length` if delta is given.
        delta, lengths : with delta, cells are neighbours if the shortest path between them is at most δ long. A sparse
            matrix, a networkx graph (`weight`) or a file may contain the lengths (M,). The default length is 1.
        sources : cells, or a mask of cells, where entities may appear or vanish (None: membership is fixed).
        limits : caps on the cost of longer moves, as in `Neighbourhood`. Distances are numbers of edges.

        >>> near = Neighbourhood.of(4, [(0, 1), (1, 2), (2, 3), (3, 0)])       # a ring road
        >>> near.edges().tolist(), near.moves_within(2).edges().shape
        ([[0, 1], [0, 3], [1, 2], [2, 3]], (6, 2))
        >>> len(Neighbourhood.of(4, [(0, 1), (1, 2), (2, 3)], lengths=[5, 3, 2], delta=5).edges())
        4
        """
        if not isinstance(domain, Domain):
            domain = Domain((0, domain), (domain,))
        if isinstance(edges, str | Path):
            import pandas as pd

            try:
                table = pd.read_csv(edges)
                lengths = table["length"].to_numpy(np.float64) if "length" in table else lengths
                edges = table[["from", "to"]].to_numpy(np.float64)
            except (OSError, ValueError, KeyError) as problem:
                raise InputError(f"edges file {str(edges)!r} has no readable columns from and to: {problem}") from None
        elif scipy.sparse.issparse(edges):
            entries = scipy.sparse.coo_array(edges)
            lengths = entries.data if lengths is None and delta is not None else lengths
            edges = np.column_stack(entries.coords)
        elif hasattr(edges, "adjacency"):
            entries = [*edges.edges(data="weight", default=1)]
            lengths = [entry[2] for entry in entries] if lengths is None and delta is not None else lengths
            edges = [entry[:2] for entry in entries]
        pairs = np.asarray(edges)
        pairs = pairs.reshape(len(pairs), 2)
        if delta is not None or lengths is not None:
            given = np.ones(len(pairs)) if lengths is None else np.asarray(lengths, dtype=np.float64)
            pairs = _find_pairs_within(pairs, given, domain.size, check_positive(delta=delta))
        if sources is not None:
            mask = np.asarray(sources)
            sources = tuple(np.arange(domain.size)[mask.ravel()].tolist() if mask.dtype == bool else mask.tolist())
        return GraphNeighbourhood(domain, 1, sources, limits, pack_pairs(pairs, domain.size))

    def __post_init__(self) -> None:
        length, step = self.domain.length(self.delta, name="delta"), max(self.domain.step)
        if length < step:
            raise InputError(f"delta is {self.delta!r}: it must be at least {step:.3g}, the length of a lattice step")
        if isinstance(self.sources, shapely.Geometry) and self.domain.ndim < 3:
            check_geometry(self.sources, self.domain)
        elif self.sources is not None:
            check_choice(("boundary", "left", "right")[: 3 if self.domain.ndim == 1 else 1], sources=self.sources)
        measure = functools.partial(self.domain.length, name="the distance of a limit")
        profile = read_limits(self.limits or (), length, measure)
        limits = None if self.limits is None else profile
        for name, value in (("delta", _make_plain(self.delta)), ("limits", limits), ("profile", profile)):
            object.__setattr__(self, name, value)

    @functools.cached_property
    def radius(self) -> int:
        """δ in whole lattice steps, rounded up."""
        return self.steps_of(self.delta)

    def steps_of(self, distance: float | str) -> int:
        """Convert a distance (in the units of delta) to whole lattice steps, rounded up."""
        # Dividing by the shorter step never understates a distance. The tolerance of 0.05 steps covers the rounding of
        # cell sizes if bounds are far from zero. The guarantee for raw coordinates allows for a whole step, which
        # includes this tolerance.
        steps = self.domain.length(distance, name="distance") / min(self.domain.step)
        return max(1, math.ceil(steps - 0.05))

    def read_distance(self, distance: float | str) -> float:
        """Convert a distance (a number, or text such as "2km") to a number in the unit of `delta_ground`."""
        return self.domain.ground(self.domain.length(distance, name="distance"))

    @property
    def fixed_membership(self) -> bool:
        """True if entities can neither appear nor vanish, which makes their number public."""
        return self.sources is None

    @functools.cached_property
    def relations(self) -> tuple[tuple[Fraction, Neighbourhood], ...]:
        """Pairs (factor, relation), one for δ and one for each limit, sorted by distance.

        A strategy's cost is the maximum, over these pairs, of its cost under the relation divided by the factor.
        """
        out = [(Fraction(1), self if self.limits == () else replace(self, limits=()))]
        for limit in self.profile:
            relation = self.anywhere() if limit.any else Neighbourhood(self.domain, limit.distance, self.sources, ())
            out.append((limit.factor, relation))
        return tuple(out)

    @functools.cached_property
    def reach(self) -> NDArray[np.int64]:
        """Largest displacements in cells, clipped to the domain.

        In 1-D, the array has one entry. In 2-D, entry dx is the largest dy for which two cells that differ by (dx, dy)
        are neighbours. Entries never increase with dx.
        """
        check_choice((1, 2), dimensions=self.domain.ndim)
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
        """Maximal non-negative displacements (m, ndim): no other displacement is at least as large on every axis."""
        if self.domain.ndim == 1:
            return _make_readonly(self.reach.reshape(1, 1))
        if self.domain.ndim == 3:
            near = np.pad(self._nearby, (0, 1))
            longer = [np.roll(near, -1, axis) for axis in range(3)]
            return _make_readonly(np.argwhere(near & ~np.logical_or.reduce(longer)))
        keep = np.append(self.reach[1:] < self.reach[:-1], True)
        dx = np.flatnonzero(keep)
        return _make_readonly(np.column_stack([dx, self.reach[dx]]))

    @functools.cached_property
    def _nearby(self) -> NDArray[np.bool_]:
        """In 3-D, an array that is true at all non-negative displacements between neighbouring cells."""
        sides = [
            np.arange(min(-(-self.radius // k) + 1, n))
            for k, n in zip(self.domain.steps, self.domain.shape, strict=True)
        ]
        gaps = [np.maximum(d - 1, 0) * k for d, k in zip(sides, self.domain.steps, strict=True)]
        squares = functools.reduce(
            np.add.outer, [(gap**2).astype(object if self.radius >> 30 else np.int64) for gap in gaps]
        )
        return np.asarray(squares < self.radius**2, dtype=bool)

    def displacements(self) -> NDArray[np.int64]:
        """Return the displacements (m, ndim) between different neighbouring cells, one of each pair ±d."""
        if self.domain.ndim == 1:
            return np.arange(1, self.reach[0] + 1, dtype=np.int64).reshape(-1, 1)
        if self.domain.ndim == 3:
            moves = np.argwhere(self._nearby)
            every = np.unique(np.concatenate([moves * signs for signs in itertools.product((1, -1), repeat=3)]), axis=0)
            return every[len(every) // 2 + 1 :]  # `every` ascends from -d to d, with the null move in the middle
        check_memory(32 * int((2 * self.reach + 1).sum()), f"the list of all moves within delta={self.delta!r}")
        columns = [
            np.column_stack([np.full(2 * r + 1, dx, dtype=np.int64), np.arange(-r, r + 1)])
            for dx, r in enumerate(self.reach.tolist())
        ]
        columns[0] = columns[0][int(self.reach[0]) + 1 :]  # keep one of each pair ±d, and drop the null move
        return np.concatenate(columns)

    @functools.cached_property
    def source_cells(self) -> NDArray[np.bool_]:
        """Mask (domain.shape) of the cells that touch a source: points within δ of a source are counted in them."""
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
        """Return the edges (M, 2) of the graph as flat cell indices, with -1 for the null vertex.

        The first edges are the moves (u, v), u < v, in N = {(i, j): some x in bin i and y in bin j have d(x, y) ≤ δ}.
        The arrivals (-1, v), one per source cell, follow. Source: 2014, section 5.2.
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
        """Return the incidence matrix E (N, M), with +1 where an edge ends, -1 where it starts, and no row for ⊥."""
        edges = self.edges()
        rows, columns = edges[:, ::-1].T.ravel(), np.tile(np.arange(len(edges)), 2)
        kept, values = rows >= 0, np.repeat([1, -1], len(edges))
        places = rows[kept], columns[kept]
        return scipy.sparse.csc_array((values[kept], places), shape=(self.domain.size, len(edges)))

    def capped(self) -> Neighbourhood:
        """Return this neighbourhood, with the default limit of 4 for any move if `limits` is None (docs/choosing.md).

        >>> near = Neighbourhood(Domain((0, 1), (4,)), 0.25)
        >>> [float(limit.factor) for limit in near.capped().profile], replace(near, limits=()).capped().profile
        ([4.0], ())
        """
        return self if self.limits is not None else replace(self, limits=[("any", 4)])

    def moves_within(self, distance: float) -> Neighbourhood:
        """Return a neighbourhood with fixed membership and moves of up to `distance` (in the units of delta)."""
        return Neighbourhood(self.domain, distance, None, ())

    def anywhere(self) -> Neighbourhood:
        """Return a neighbourhood where entities may move and, if there are sources, appear and vanish anywhere."""
        # Every cell is within one diameter of the boundary.
        return Neighbourhood(self.domain, self.diameter, None if self.fixed_membership else "boundary", ())

    @property
    def unit(self) -> str:
        """Unit of distances."""
        return self.domain.unit

    @property
    def delta_words(self) -> str:
        """δ with its unit."""
        return f"{self.delta_ground:g} {self.unit.removesuffix('s') if self.delta_ground == 1 else self.unit}"

    @property
    def delta_ground(self) -> float:
        """δ as a number in ground units (metres with a CRS, the plane's units without one)."""
        return self.domain.ground(self.domain.length(self.delta, name="delta"))

    @property
    def diameter(self) -> float:
        """Ground length of the domain's diagonal, converted with the largest scale factor."""
        return self.domain.ground(math.dist(self.domain.low, self.domain.high))

    def describe(self) -> dict[str, Any]:
        """Return a public description for JSON, without the domain."""
        sources = self.sources
        if sources is not None and not isinstance(sources, str):
            sources = {"wkt": shapely.to_wkt(sources, rounding_precision=-1)}
        out = {"delta": self.delta, "sources": sources}
        return out | {"limits": describe_limits(self.profile)} if self.profile else out

    @classmethod
    def from_description(cls, domain: Domain, description: dict[str, Any]) -> Neighbourhood:
        """Recreate a neighbourhood from the result of `describe`."""
        sources = description["sources"]
        if "graph" in description:
            places = None if sources is None else tuple(sources)
            limits = limits_of(description["limits"]) if "limits" in description else None
            return GraphNeighbourhood(domain, 1, places, limits, description["graph"])
        if isinstance(sources, dict):
            # A damaged geometry must not become None, which would mean fixed membership.
            sources = shapely.from_wkt(sources["wkt"], on_invalid="ignore") or "damaged"
        limits = limits_of(description["limits"]) if "limits" in description else None
        return Neighbourhood(domain, description["delta"], sources, limits)

    def check_on_map(self) -> None:
        """Raise InputError if δ exceeds the map's diagonal, or looks like degrees."""
        degrees = isinstance(self.delta, numbers.Real) and self.delta < 1 and self.domain.crs is not None
        if degrees or self.delta_ground > self.diameter * (1 + 1e-9):
            rule = f"fit on the map, whose diagonal is {self.diameter:,.6g} {self.domain.unit}"
            if degrees:
                rule = "have a unit if it is below 1 m, such as '0.5m' (or is it in degrees?)"
            raise InputError(f"delta is {self.delta!r}: it must {rule}")


@dataclass(frozen=True)
class GraphNeighbourhood(Neighbourhood):
    """One entity moves along an edge of a graph on the cells, or appears or vanishes at a source (`Neighbourhood.of`).

    Distances are numbers of edges, so δ is 1. The guarantee is for the cells in which points are counted. Moves between
    disconnected parts of the graph are not covered, unless a limit covers all moves.

    Parameters
    ----------
    graph : the edges (`pack_pairs`).
    hops : the largest number of edges in a move.
    """

    graph: str = field(default="", repr=False)
    hops: int = 1
    on_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        profile = read_limits(self.limits or (), 1.0, lambda far: check_whole(**{"the distance of a limit": far}))
        limits = None if self.limits is None else profile
        # Sort edges and sources. A file that lists them in another order does not match, and is refused.
        graph, sources = pack_pairs(self.pairs, self.domain.size), self.sources
        if sources is not None:
            places = np.unique(np.array([*map(operator.index, sources)], dtype=np.int64))
            sources = tuple(np.ravel_multi_index((places,), (self.domain.size,)).tolist())  # raises if out of range
        for name, value in (("limits", limits), ("profile", profile), ("graph", graph), ("sources", sources)):
            object.__setattr__(self, name, value)
        del vars(self)["pairs"]  # cached, perhaps in another order
        check_finite(most=16, **{"number of limits on a graph": len(profile)})  # each has its own matrix

    @functools.cached_property
    def pairs(self) -> NDArray[np.int64]:
        """The edges (M, 2) of the graph, each with the smaller cell first."""
        return _make_readonly(np.frombuffer(base64.b64decode(self.graph), "<i4").reshape(-1, 2).astype(np.int64))

    @functools.cached_property
    def adjacency(self) -> scipy.sparse.csr_array:
        """Matrix (N, N) that is true where an edge joins two cells."""
        size, number = self.domain.size, len(self.pairs)
        ends = (np.append(*self.pairs.T), np.append(*self.pairs.T[::-1]))
        return scipy.sparse.csr_array((np.ones(2 * number, dtype=bool), ends), shape=(size, size))

    @functools.cached_property
    def connected(self) -> bool:  # type: ignore[override]
        """Whether paths connect all cells."""
        return bool(scipy.sparse.csgraph.connected_components(self.adjacency, directed=False)[0] == 1)

    @functools.cached_property
    def diameter(self) -> float:
        """Upper bound on the number of edges in a shortest path between two cells, exact for up to 2,000 cells."""
        size, graph = self.domain.size, self.adjacency
        if size <= 2000:
            far = scipy.sparse.csgraph.shortest_path(graph, unweighted=True, directed=False)
            return float(max(1.0, far[np.isfinite(far)].max()))
        # In a connected part, no shortest path is over twice as long as the longest one from a given cell.
        _, part = scipy.sparse.csgraph.connected_components(graph, directed=False)
        starts = np.unique(part, return_index=True)[1]
        far = scipy.sparse.csgraph.dijkstra(graph, indices=starts, unweighted=True, directed=False, min_only=True)
        return float(max(1.0, 2 * far.max()))

    def steps_of(self, distance: float | str) -> int:
        return max(1, math.ceil(float(distance) - 1e-9))

    @property
    def radius(self) -> int:
        return 1

    @property
    def reach(self) -> NDArray[np.int64]:
        raise InputError("the neighbourhood is a graph, which has no distances along axes: use a strategy for graphs")

    @property
    def unit(self) -> str:
        return "edges"

    def read_distance(self, distance: float | str) -> float:
        return float(check_whole(distance=distance))

    @property
    def delta_ground(self) -> float:
        return 1.0

    @functools.cached_property
    def relations(self) -> tuple[tuple[Fraction, Neighbourhood], ...]:
        out: list[tuple[Fraction, Neighbourhood]] = [(Fraction(1), replace(self, limits=()))]
        for limit in self.profile:
            out.append((limit.factor, self.anywhere() if limit.any else self._widen(int(limit.distance))))
        return tuple(out)

    def _widen(self, hops: int) -> Neighbourhood:
        """Allow moves and arrivals over up to `hops` edges, or anywhere if that gives too many pairs."""
        wide = replace(self, hops=hops, limits=())
        return self.anywhere() if hops >= self.diameter or wide._reachable is None else wide

    def moves_within(self, distance: float) -> Neighbourhood:
        return replace(self, sources=None)._widen(self.steps_of(distance))

    def anywhere(self) -> Neighbourhood:
        within = math.dist(self.domain.low, self.domain.high)
        sources = None if self.fixed_membership else "boundary"
        return Neighbourhood(self.domain, self.domain.ground(within), sources, ())

    @functools.cached_property
    def _reachable(self) -> scipy.sparse.csr_array | None:
        """Matrix of the pairs of cells within `hops` edges of each other, or None if there are too many."""
        near = scipy.sparse.eye_array(self.domain.size, dtype=bool, format="csr") + self.adjacency
        found, degrees, work = near, np.diff(near.indptr), 0
        for _ in range(self.hops - 1):
            products = int(degrees[found.indices].sum())
            work += products
            if products > 2 * _MOST_PAIRS or work > 16 * _MOST_PAIRS:
                return None
            found, before = found @ near, found.nnz
            if found.nnz == before:
                break
        return found

    @functools.cached_property
    def source_cells(self) -> NDArray[np.bool_]:
        near = np.zeros(self.domain.size, dtype=bool)
        near[list(self.sources or ())] = True
        if self.hops > 1 and near.any():  # cells within hops - 1 edges of a source
            near = np.asarray(replace(self, hops=self.hops - 1)._reachable @ near) > 0
        return _make_readonly(near.reshape(self.domain.shape))

    def edges(self) -> NDArray[np.int64]:
        moves = self.pairs
        if self.hops > 1:
            assert self._reachable is not None
            moves = np.column_stack(scipy.sparse.triu(self._reachable, 1).tocsr().sorted_indices().tocoo().coords)
        entry = np.flatnonzero(self.source_cells)
        return np.concatenate([moves, np.column_stack([np.full_like(entry, -1), entry])])

    def describe(self) -> dict[str, Any]:
        sources: Any = self.sources
        out = {"graph": self.graph, "sources": None if sources is None else list(sources)}
        return out | {"limits": describe_limits(self.profile)} if self.profile else out

    def check_on_map(self) -> None:
        """Raise InputError if there are no edges or sources, because the promise for δ would then be empty."""
        check_whole(**{"the number of edges and sources": len(self.pairs) + len(self.sources or ())})


def pack_pairs(pairs: ArrayLike, size: int) -> str:
    """Encode pairs (M, 2) of cells as 32-bit numbers in base 64, without direction, repetitions or loops."""
    check_finite(below=1 << 31, **{"number of cells of a graph": size})
    ends = np.sort(np.asarray(pairs), axis=1)
    wrong = ends[(ends != np.floor(ends)) | (ends < 0) | (ends >= size)]
    if wrong.size:
        raise InputError(f"edges have cell {wrong[0]}: it must be a whole number from 0 to {size - 1:,}")
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    return base64.b64encode(ends.astype("<i4").tobytes()).decode()


def _find_pairs_within(pairs: NDArray[Any], lengths: NDArray[np.float64], size: int, delta: float) -> NDArray[np.int64]:
    """Return all pairs of cells that are joined by a path at most `delta` long."""
    pack_pairs(pairs, size)  # raises if a cell does not exist
    check_finite(least=0, shortest_length=lengths.min(initial=1.0))
    # If an edge is repeated, use its shortest length.
    order = np.lexsort((lengths, *np.sort(pairs, axis=1).T))
    ends, lengths = np.sort(pairs, axis=1)[order].astype(np.int64), lengths[order]
    first = np.append(True, (np.diff(ends, axis=0) != 0).any(axis=1))[: len(ends)]
    graph = scipy.sparse.csr_array((lengths[first], tuple(ends[first].T)), shape=(size, size))
    found, block, most = [], max(1, (1 << 22) // size), delta * (1 + 1e-12)
    for start in range(0, size, block):  # `most` allows for rounding in sums of lengths
        some = np.arange(start, min(start + block, size))
        far = scipy.sparse.csgraph.dijkstra(graph, directed=False, indices=some, limit=most)
        one, other = np.nonzero(np.isfinite(far))
        found.append(np.column_stack([some[one], other]))
        check_memory(64 * sum(map(len, found)), f"the list of all pairs within delta={delta!r}")
    return np.concatenate(found)


def _make_readonly(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array read-only, because computed sensitivities rely on its values."""
    array.flags.writeable = False
    return array


def _make_plain(value: Any) -> Any:
    """Convert a number to a Python int or float for JSON, and return anything else unchanged."""
    if not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def read_limits(given: Limits, within: float, measure: Callable[[Any], float]) -> tuple[Limit, ...]:
    """Check limits, sort them by distance, and drop those that a limit on longer moves implies.

    The budget itself applies to moves up to the length `within`. `measure` converts a distance to a length.
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
                "and factors must be at least 1 and must not decrease with the distance"
            )
    kept = [limit for _, limit in found]
    return tuple(a for a, b in itertools.zip_longest(kept, kept[1:]) if b is None or a.factor < b.factor)


def read_lasting(given: Limits, window: int | None) -> tuple[Limit, ...]:
    """Check limits on changes that last longer than a window of steps. If `window` is None, it is endless."""
    within = math.inf if window is None else float(window)
    return read_limits(given, within, lambda steps: check_whole(**{"the steps of a limit": steps}))


def describe_limits(limits: Sequence[Limit]) -> list[list[Any]]:
    """Return limits as pairs for JSON. Each has a distance or "any", and the exact factor as text."""
    return [["any" if limit.any else limit.distance, str(limit.factor)] for limit in limits]


def limits_of(description: Any) -> list[tuple[float | str, Fraction]]:
    """Read the output of `describe_limits`. Ignore limits after the first 4096, because no valid file has more."""
    return [(distance, Fraction(factor)) for distance, factor in description[:4096]]


def list_limits(near: Neighbourhood, most: int | None = None) -> list[tuple[float | None, Fraction]]:
    """Return the ground distance (None for any move) and factor of up to `most` limits, always including the last."""
    domain, chosen = near.domain, near.profile
    if most is not None and len(chosen) > most:
        chosen = tuple(chosen[round(k * (len(chosen) - 1) / (most - 1))] for k in range(most))
    return [(None if each.any else domain.ground(domain.length(each.distance)), each.factor) for each in chosen]


def check_geometry(geometry: shapely.Geometry, domain: Domain) -> None:
    """Raise InputError unless a source is a valid, non-empty geometry near enough to the map for exact distances."""
    away = np.abs(shapely.get_coordinates(geometry)[:, : domain.ndim] - domain.low) / domain.step
    # Distances up to 2^48 steps are exact to a sixteenth of a step. NaN fails this comparison.
    near = away.max(initial=0.0) < 1 << 48
    if shapely.is_empty(geometry) or not shapely.is_valid(geometry) or not near:
        raise InputError(
            f"sources is a {geometry.geom_type} with bounds {geometry.bounds} ({shapely.is_valid_reason(geometry)}): "
            "it must be valid, non-empty and near the domain (is it in another CRS?)"
        )


def place_on_lattice(geometry: shapely.Geometry, domain: Domain) -> shapely.Geometry:
    """Convert a geometry to lattice steps, rounding vertices to whole steps. In 1-D, put it on the x axis."""

    def to_lattice(vertices: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.zeros_like(vertices)
        out[:, : domain.ndim] = np.rint((vertices[:, : domain.ndim] - domain.low) / domain.step)
        return out

    if geometry.geom_type == "LinearRing":  # after rounding, the ring may cross itself, which is invalid
        geometry = shapely.LineString(geometry)
    placed = shapely.transform(geometry, to_lattice)
    return placed if shapely.is_valid(placed) else shapely.make_valid(placed)


def is_far(geometry: shapely.Geometry, domain: Domain, radius: int) -> bool:
    """Return True if a geometry is at least `radius` lattice steps from every cell."""
    sides = (*domain.lattice_shape, 0)[:2]
    return bool(shapely.distance(place_on_lattice(geometry, domain), shapely.box(0, 0, *sides)) >= radius - 0.25)


def find_touched_cells(geometry: shapely.Geometry, domain: Domain, radius: int) -> NDArray[np.bool_]:
    """Return a mask (domain.shape) of the cells that receive points less than `radius` lattice steps from a geometry.

    A point outside the domain is counted in the nearest cell, so cells at the rim have no outer edge here (in 1-D, only
    along x). The geometry's vertices are rounded to whole lattice steps, which makes distances along an axis exact.
    Proof: docs/privacy/histogram.md, lemma 2.
    """
    placed = place_on_lattice(geometry, domain)
    shapely.prepare(placed)
    shape = np.array((*domain.shape, 1)[:2])
    steps = np.array((*domain.steps, 0)[:2], dtype=np.float64)
    limit = radius - 0.25  # rounding must not add a cell that is exactly δ away

    # Extend cells at the rim only this far, because no point further out is nearer to the geometry.
    bounds = np.array(shapely.bounds(placed))
    outer_low = np.where(steps > 0, np.minimum(0, bounds[:2] - radius), 0)
    outer_high = np.where(steps > 0, np.maximum(shape * steps, bounds[2:] + radius), 0)

    near = np.zeros(tuple(shape), dtype=bool)
    # Start with one block that contains the grid. Divide blocks into 8 × 8 parts until they are single cells.
    split = 8
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
        # Mark a whole block without dividing it if its farthest point is certainly within the limit.
        middle = shapely.points((low + high) * steps / 2)
        inside = shapely.distance(placed, middle) + np.hypot(*((high - low) * steps / 2).T) < limit
        for (x0, y0), (x1, y1) in zip(low[inside].tolist(), high[inside].tolist(), strict=True):
            near[x0:x1, y0:y1] = True
        block //= split
        finer = low[~inside, None] + np.indices((split, split)).reshape(2, -1).T * block
        low = finer[(finer < shape).all(axis=2)]
