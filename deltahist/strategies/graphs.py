"""A flow on any graph. The noise on an edge cancels in any region that contains both ends."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, PlainDecoder
from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import GraphNeighbourhood, Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Group, Strategy


@dataclass(frozen=True, eq=False)
class GraphFlow(Strategy):
    """Release every cell with noise that flows along the edges of a graph, so that only a region's border has noise.

    The noise is E η, where E is the incidence matrix of the graph. A move along an edge changes one draw by one, so it
    costs 1, and an arrival at a source also costs 1. If there are hubs, each cell also has noise of its own, and a move
    between any two cells changes two of these draws. Without hubs, a move costs 1 for each edge of its shortest path.
    Source: docs/privacy/factorisation.md (E = K U with U = I). For two cells, this is a policy graph (He et al. 2014).

    Parameters
    ----------
    graph : the edges, as in `GraphNeighbourhood`.
    sources : cells where entities may appear or vanish, or None.
    hubs : the share of ε for the cells' own noise, or None for no such noise. To keep a limit on any move, use half the
        limit's factor (or the factor divided by √2 for Gaussian noise).

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood.of(100, [(i, (i + 1) % 100) for i in range(100)], limits=())      # a ring road
    >>> A = GraphFlow.suited(near)
    >>> int(dh.sensitivity(A, near)), int(dh.sensitivity(A, near.anywhere()))
    (1, 50)
    >>> dh.expected_error(A, near, dh.workloads.boxes([[10, 40]]), 1).round(2).tolist()     # identity: 217
    [3.68]
    """

    domain: Domain
    graph: str
    sources: tuple[int, ...] | None = None
    hubs: Fraction | None = None
    on_graphs: ClassVar[bool] = True
    determines_cells: ClassVar[bool] = True
    scatters_linearly: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("graph",)

    def __post_init__(self) -> None:
        hubs = None if self.hubs is None else Fraction(self.hubs)
        # Use the neighbourhood's order, because draws are numbered in that order.
        for name, value in (("hubs", hubs), ("graph", self.near.graph), ("sources", self.near.sources)):
            object.__setattr__(self, name, value)
        _ = self.groups  # Raises InputError if the graph or the share is invalid.
        if hubs is None and not self.near.connected:  # The exact number of points in each part would leak.
            raise InputError("the graph does not connect all cells: set a limit on any move, or give the flow hubs")

    @classmethod
    def suited(cls, near: GraphNeighbourhood, norm: int = 1) -> GraphFlow:
        """Return the flow along a neighbourhood's edges, with hubs that keep its limits (norm 1 for Laplace noise)."""
        hubs = None
        if near.profile:
            least = near.profile[0].factor
            hubs = least / 2 if norm == 1 else Fraction(math.isqrt(int(least**2 * 5 * 10**17)), 10**9)
        return cls(near.domain, near.graph, near.sources, hubs)  # type: ignore[arg-type]

    @classmethod
    def suits(cls, near: Neighbourhood) -> bool:
        return not near.on_grid

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> GraphFlow:
        return cls.suited(near, norm)  # type: ignore[arg-type]

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if near.connected or near.profile:
            yield "GraphFlow", cls.suited(near, norm)  # type: ignore[arg-type]

    @classmethod
    def restore(cls, domain: Domain, **parameters: Any) -> Strategy:
        hubs = parameters.pop("hubs")
        return cls(domain, **parameters, hubs=None if hubs is None else Fraction(hubs))

    @functools.cached_property
    def near(self) -> GraphNeighbourhood:
        """The neighbourhood that the graph defines, without limits."""
        return GraphNeighbourhood(self.domain, 1, self.sources, (), self.graph)

    @property
    def keeps_total(self) -> bool:  # type: ignore[override]
        return not self.sources and self.hubs is None

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        moves, entries = len(self.near.pairs), len(self.sources or ())
        found = [Group("edges", slice(0, moves)), Group("arrivals", slice(moves, moves + entries))]
        if self.hubs is not None:
            found.append(Group("cells", slice(moves + entries, moves + entries + self.domain.size), self.hubs))
        return tuple(group for group in found if group.members.start < group.members.stop)  # type: ignore[union-attr]

    @property
    def parts(self) -> tuple[Group, ...]:
        return (Group("cells", slice(0, self.domain.size)),)

    @property
    def draws(self) -> int:
        return self._spread.shape[1]

    @functools.cached_property
    def _spread(self) -> scipy.sparse.csr_array:
        """The matrix K (N, draws), which maps draws to the noise of cells."""
        edges = self.near.incidence()
        if self.hubs is not None:
            edges = scipy.sparse.hstack([edges, scipy.sparse.eye_array(self.domain.size, dtype=np.int64)])
        return scipy.sparse.csr_array(edges)

    def scatter(self, noise: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((self._spread @ noise.T).T)

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self._spread.T @ weights)

    def changes(self, near: Neighbourhood) -> scipy.sparse.csr_array:
        """Return U (draws, M). Each edge of the graph changes one draw. Others change cells' own draws or a path's."""
        edges = near.edges()
        own = {edge: place for place, edge in enumerate(map(tuple, self.near.edges().tolist()))}
        found = scipy.sparse.lil_array((self.draws, len(edges)), dtype=np.int64)
        for column, (start, end) in enumerate(map(tuple, edges.tolist())):
            if (start, end) in own:
                found[own[start, end], column] = 1
            elif self.hubs is not None:
                found[len(own) + end, column] = 1
                if start >= 0:
                    found[len(own) + start, column] = -1
            else:
                begin = start if start >= 0 else self.sources[0]  # type: ignore[index]
                if start < 0:
                    found[own[-1, begin], column] = 1
                before = scipy.sparse.csgraph.breadth_first_order(self.near.adjacency, begin, directed=False)[1]
                while end != begin:
                    previous = int(before[end])
                    found[own[min(previous, end), max(previous, end)], column] = 1 if previous < end else -1
                    end = previous
        return scipy.sparse.csr_array(found)

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction:
        """Return the largest cost of a move or an arrival, or a bound on it if `near` has another graph."""
        own, arrivals = self.near, near.source_cells.ravel()
        longest = own.diameter if own.connected else math.inf
        if isinstance(near, GraphNeighbourhood) and near.graph == self.graph:
            longest = min(own.diameter, near.hops)
        costs = [Fraction(len(own.pairs) > 0)]
        if longest > 1:
            costs.append(Fraction(longest) if self.hubs is None else 2 * self.hubs**norm)
        if arrivals.any():
            costs.append(Fraction(1))
        if (arrivals & ~own.source_cells.ravel()).any():
            if self.hubs is None and not self.sources:
                raise InputError("sources is None, but the neighbourhood has sources: new entities would not be hidden")
            costs.append(Fraction(1 + own.diameter) if self.hubs is None else self.hubs**norm)
        return max(costs)

    def decoder_class(self) -> type[Decoder]:
        return PlainDecoder

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return X

    _rmatmat = _matmat
