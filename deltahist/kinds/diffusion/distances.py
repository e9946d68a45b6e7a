"""Distances between the users of a network: hops, resistance, or as they are given."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph

from deltahist.errors import InputError, fits_memory
from deltahist.kinds.diffusion.network import Network

if TYPE_CHECKING:
    import pandas as pd

_CURE = "take hops, which are counted row by row, or a smaller network"
#: Bytes for each pair of a component: the matrix, and its inverse as it is made.
_BYTES_PER_PAIR = 16


class Distances(abc.ABC):
    """Distances d(i, j) from the owner i of data to whoever asks, j; public."""

    #: How a statement calls the distances.
    words: str

    @abc.abstractmethod
    def between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances (m,) of pairs of places among the nodes; infinite where there is no way."""


def distances_of(network: Network, kind: Any = "hops") -> Distances:
    """Return the distances of a network.

    Parameters
    ----------
    network : Network.
    kind : "hops" (edges of the shortest way), "resistance" (between the two, with a unit resistor for each edge; 2018,
        equation (2)), or the distances themselves: an (N, N) array in the order of the nodes, or a frame whose first
        three columns are owner, requester and distance. Those hold as they stand, in one direction; pairs that a
        frame does not have are not connected.

    Raises
    ------
    InputError
        If the distances are negative or NaN, an array has another shape, a frame has a pair twice or an unknown user,
        a network is directed and has no resistance, or the result does not fit into memory.

    >>> path = Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "ann"), ("cem", "dia")])
    >>> ann, dia = path.index(["ann"]), path.index(["dia"])
    >>> distances_of(path).between(ann, dia), distances_of(path, "resistance").between(ann, dia).round(4)
    (array([2.]), array([1.6667]))
    """
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise InputError(
                f"distance is {kind!r}: it must be one of {', '.join(map(repr, _KINDS))}, or the distances themselves"
            )
        return _KINDS[kind](network)
    if hasattr(kind, "iloc"):
        return _Listed.of(network, kind)
    return _Matrix.of(network, kind)


@dataclass(frozen=True, eq=False)
class _Hops(Distances):
    """Edges of the shortest way, counted from one user at a time."""

    network: Network
    words: str = "hops"

    def between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Search breadth-first from each different owner, or backwards from each requester if they are fewer."""
        adjacency, here, there = self.network.adjacency, owners, requesters
        starts, place = np.unique(here, return_inverse=True)
        ends = np.unique(there)
        if len(ends) < len(starts):
            adjacency, there = adjacency.T.tocsr() if self.network.directed else adjacency, owners
            starts, place = np.unique(requesters, return_inverse=True)
        out = np.empty(len(owners))
        order = np.argsort(place, kind="stable")
        ends_at = np.cumsum(np.bincount(place, minlength=len(starts)))
        for start, rows in zip(starts.tolist(), np.split(order, ends_at)[:-1], strict=True):
            out[rows] = hops_from(adjacency, start)[there[rows]]
        return out


def hops_from(adjacency: Any, start: int) -> NDArray[np.float64]:
    """Count the edges (N,) of the shortest way from one node to each; infinite where there is none.

    >>> import scipy.sparse
    >>> hops_from(scipy.sparse.csr_array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]), 0)
    array([ 0.,  1.,  2., inf])
    """
    order, before = csgraph.breadth_first_order(adjacency, start, directed=True)
    out = np.full(adjacency.shape[0], np.inf)
    place = np.empty(len(out), dtype=np.int64)
    place[order] = np.arange(len(order))
    # Whence each was reached, as a place in the order: it never falls, so that rings are stretches.
    came = place[before[order[1:]]]
    begin, end, ring = 0, 1, 0
    while begin < end:
        out[order[begin:end]] = ring
        begin, end, ring = end, 1 + int(np.searchsorted(came, end)), ring + 1
    return out


@dataclass(frozen=True, eq=False)
class _Resistance(Distances):
    """R_ij = Γ_ii + Γ_jj − 2 Γ_ij, Γ the pseudo-inverse of the Laplacian of the component that holds both."""

    network: Network
    words: str = "resistance distance"

    _inverses: dict[int, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.network.directed:
            raise InputError(
                "distance is 'resistance' in a directed network: a resistor conducts both ways; take 'hops', or the "
                "network with directed=False"
            )
        sizes = np.diff(self._parts[1], append=len(self.network)).astype(object)
        fits_memory(_BYTES_PER_PAIR * int((sizes**2).sum()), "resistance distances", _CURE)

    @functools.cached_property
    def _components(self) -> NDArray[np.int64]:
        return np.asarray(csgraph.connected_components(self.network.adjacency, directed=False)[1])

    @functools.cached_property
    def _parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Nodes by component, where each component starts among them, and the place of each node in its own."""
        order = np.argsort(self._components, kind="stable")
        starts = np.searchsorted(self._components[order], np.arange(self._components.max(initial=-1) + 1))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order)) - starts[self._components[order]]
        return order, starts, place

    def _inverse_of(self, component: int) -> NDArray[np.float64]:
        """Return the inverse of a component, computed at its first use."""
        if component not in self._inverses:
            order, starts, _ = self._parts
            members = order[starts[component] :][: np.count_nonzero(self._components == component)]
            self._inverses[component] = _inverse(self.network.adjacency[members][:, members])
        return self._inverses[component]

    def between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute distances from the inverses of the components that hold both of a pair."""
        component = self._components[owners]
        together = np.flatnonzero((component == self._components[requesters]) & (owners != requesters))
        out = np.where(owners == requesters, 0.0, np.inf)
        together = together[np.argsort(component[together], kind="stable")]
        each, first = np.unique(component[together], return_index=True)
        for one, rows in zip(each.tolist(), np.split(together, first)[1:], strict=True):
            inverse = self._inverse_of(one)
            i, j = (self._parts[2][ends[rows]] for ends in (owners, requesters))
            out[rows] = np.maximum(inverse[i, i] + inverse[j, j] - 2 * inverse[i, j], 0.0)
        return out


def _inverse(adjacency: Any) -> NDArray[np.float64]:
    """Return (L + J/n)⁻¹ of a connected graph, in place, symmetric to the last bit.

    J is all ones. It differs from the pseudo-inverse by J/n, which resistances do not see.
    """
    from scipy.linalg import lapack

    number = adjacency.shape[0]
    matrix = np.full((number, number), 1 / number, order="F")
    rows, columns = adjacency.nonzero()
    matrix[rows, columns] -= 1.0
    matrix[np.diag_indices(number)] += np.bincount(rows, minlength=number)
    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
    inverse, unsolved = lapack.dpotri(factor, lower=1, overwrite_c=1)
    assert not failed, "a connected graph's matrix is positive definite"
    assert not unsolved
    for row in range(number - 1):  # only the lower triangle was made
        inverse[row, row + 1 :] = inverse[row + 1 :, row]
    return np.asarray(inverse)


@dataclass(frozen=True, eq=False)
class _Matrix(Distances):
    """Distances that are given as one array."""

    matrix: NDArray[np.float64]
    words: str = "distances as given"

    @classmethod
    def of(cls, network: Network, given: Any) -> _Matrix:
        try:
            matrix = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                "distance is no array of numbers: it must be a name, an (N, N) array or a frame of pairs"
            ) from None
        if matrix.shape != (len(network), len(network)):
            raise InputError(
                f"distances have the shape {matrix.shape}: it must be that of {len(network):,} by {len(network):,} "
                "users"
            )
        bad = np.argwhere(~(matrix >= 0))
        if len(bad):
            i, j = bad[0]
            raise InputError(
                f"the distance from {network.nodes[i]!r} to {network.nodes[j]!r} is {matrix[i, j]:g}: it must be zero "
                "or more (infinite: not connected)"
            )
        return cls(matrix)

    def between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Look distances up."""
        return self.matrix[owners, requesters]


@dataclass(frozen=True, eq=False)
class _Listed(Distances):
    """Distances of single pairs, sorted by owner and requester."""

    number: int
    pairs: NDArray[np.int64]
    values: NDArray[np.float64]
    words: str = "distances as given"

    @classmethod
    def of(cls, network: Network, frame: pd.DataFrame) -> _Listed:
        import pandas as pd

        if frame.shape[1] < 3:
            raise InputError(
                f"distances have {frame.shape[1]} column(s): they must have three, owner, requester and distance"
            )
        owners = network.index(frame.iloc[:, 0].to_numpy(), "owner")
        requesters = network.index(frame.iloc[:, 1].to_numpy(), "requester")
        values = pd.to_numeric(frame.iloc[:, 2], errors="coerce").to_numpy(np.float64)
        pairs = owners * len(network) + requesters
        order = np.argsort(pairs, kind="stable")
        pairs, values = pairs[order], values[order]

        def named(place: int) -> str:
            return " to ".join(repr(network.nodes[i]) for i in divmod(int(pairs[place]), len(network)))

        bad = ~(values >= 0)
        if bad.any():
            at = int(np.argmax(bad))
            said = frame.iloc[:, 2].iloc[order[at]]
            raise InputError(f"the distance from {named(at)} is {said}: it must be a number, zero or more")
        twice = pairs[1:] == pairs[:-1]
        if twice.any():
            raise InputError(
                f"the distance from {named(int(np.argmax(twice)))} stands there twice: it must be one"
            )
        return cls(len(network), pairs, values)

    def between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Look distances up among the sorted pairs."""
        wanted = owners * self.number + requesters
        if not len(self.pairs):
            return np.full(len(wanted), np.inf)
        place = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        return np.where(self.pairs[place] == wanted, self.values[place], np.inf)


_KINDS: dict[str, Callable[[Network], Distances]] = {"hops": _Hops, "resistance": _Resistance}
