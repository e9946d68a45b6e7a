"""Networks: users, who knows whom, the text files that say so, and distances between users; public."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.sparse import csgraph

from deltahist._progress import progress
from deltahist.errors import InputError, fits_memory

if TYPE_CHECKING:
    import networkx
    import pandas as pd

#: Users that a message names.
_NAMED = 3
#: Words of the first line of a table of pairs, where the line is a heading.
_HEADINGS = frozenset({
    "source", "target", "from", "to", "src", "dst", "owner", "requester", "distance", "user", "friend", "user1",
    "user2", "node1", "node2", "id1", "id2", "weight",
})  # fmt: skip
#: Bytes for each pair of a component: the Laplacian, its inverse, and their sum.
_BYTES_PER_PAIR = 32
#: Users from whom hops are counted at a time.
_STARTS = 256


@dataclass(frozen=True, eq=False)
class Network:
    """Users and who knows whom, without weights; public.

    Names are compared as text: user 7 of one table is user "7" of another. Whoever knows themselves, or is told twice
    to know another, changes nothing.

    Source: 2018, section II-A.

    Parameters
    ----------
    nodes : names of the N users, different from each other.
    adjacency : (N, N) sparse matrix of ones; symmetric unless `directed`.
    directed : whether knowing goes one way, from the owner of data towards those who ask.

    Raises InputError if two users have the same name or none, or the matrix does not fit them, has other numbers than
    0 and 1, or is not symmetric.

    >>> Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "bob")])
    Network of 3 users and 2 edges
    """

    nodes: tuple[str, ...]
    adjacency: Any
    directed: bool = False

    def __post_init__(self) -> None:
        nodes = tuple(map(str, self.nodes))
        if len(set(nodes)) < len(nodes) or not all(nodes):
            twice = next(name for name in nodes if not name or nodes.count(name) > 1)
            raise InputError(f"a user is called {twice!r}: each must have a name of its own, as text")
        object.__setattr__(self, "nodes", nodes)
        try:
            matrix = scipy.sparse.csr_array(self.adjacency)
        except (TypeError, ValueError):
            raise InputError("adjacency is no matrix: it must be a sparse or dense one of zeros and ones") from None
        self.check_square(matrix, "adjacency")
        matrix.sum_duplicates()
        odd = matrix.data[(matrix.data != 0) & (matrix.data != 1)]
        if len(odd):
            raise InputError(f"adjacency holds {odd[0]:g}: it must be zeros and ones (are these distances?)")
        matrix = matrix.astype(bool)
        matrix.setdiag(False)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        if not self.directed and (matrix != matrix.T).nnz:
            raise InputError("adjacency is not symmetric: it must be, or say directed=True if knowing goes one way")
        object.__setattr__(self, "adjacency", matrix)

    def check_square(self, matrix: Any, name: str) -> None:
        """Raise InputError unless a matrix has a row and a column for each user."""
        if matrix.shape != (len(self), len(self)):
            raise InputError(f"{name} has the shape {matrix.shape}: it must be {len(self):,} by {len(self):,} users")

    @classmethod
    def from_edges(cls, edges: Any, nodes: Iterable[Any] = (), *, directed: bool = False) -> Network:
        """Make a network from a list of edges.

        Parameters
        ----------
        edges : (m, 2) names; a frame's first two columns.
        nodes : users besides the ends of edges.
        directed : whether an edge goes from the first to the second only.

        Raises InputError if there are not two columns, or a name is missing.

        >>> Network.from_edges([(1, 2), (2, 2)], nodes=[3]).nodes
        ('1', '2', '3')
        """
        import pandas as pd

        try:
            frame = pd.DataFrame(edges)
        except ValueError:
            frame = pd.DataFrame([edges])
        if frame.shape[1] < 2 and len(frame):
            raise InputError(f"edges have {frame.shape[1]} column(s): they must be pairs, such as [('ann', 'bob')]")
        ends = frame.iloc[:, :2] if len(frame) else pd.DataFrame({0: [], 1: []})
        missing = ends.isna().any(axis=1).to_numpy()
        if missing.any():
            raise InputError(f"edge {int(np.argmax(missing)) + 1:,} lacks a user: each must have two (an empty line?)")
        texts = [*ends.iloc[:, 0].astype(str), *ends.iloc[:, 1].astype(str), *map(str, nodes)]
        codes, users = pd.factorize(np.array(texts, dtype=object))
        first, second = codes[: len(ends)], codes[len(ends) : 2 * len(ends)]
        if not directed:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        ones = np.ones(len(first), dtype=bool)
        return cls(tuple(users), scipy.sparse.coo_array((ones, (first, second)), shape=(len(users),) * 2), directed)

    @classmethod
    def from_networkx(cls, graph: networkx.Graph) -> Network:
        """Make a network from a networkx graph, without weights."""
        edges = np.array([(str(a), str(b)) for a, b in graph.edges()], dtype=object).reshape(-1, 2)
        return cls.from_edges(edges, graph.nodes(), directed=graph.is_directed())

    def __repr__(self) -> str:
        number = self.adjacency.nnz // (1 if self.directed else 2)
        kind = "Directed network" if self.directed else "Network"
        return f"{kind} of {len(self.nodes):,} users and {number:,} edge{'' if number == 1 else 's'}"

    def __len__(self) -> int:
        return len(self.nodes)

    @functools.cached_property
    def _places(self) -> pd.Index:
        import pandas as pd

        return pd.Index(self.nodes, dtype=object)

    def index(self, users: Sequence[Any] | NDArray[Any] | pd.Series[Any], what: str = "user") -> NDArray[np.int64]:
        """Return the places (m,) of users among the nodes.

        Raises InputError, which calls them `what`, if some are not in the network.

        >>> Network.from_edges([("ann", "bob")]).index(["bob", "ann"])
        array([1, 0])
        """
        import pandas as pd

        # A column keeps its type; of a list each name is read as it is.
        column = users if isinstance(users, pd.Series) else pd.Series(users, dtype=object)
        codes, distinct = pd.factorize(column, use_na_sentinel=False)
        names = pd.Index([str(user) for user in distinct], dtype=object)
        found = np.asarray(self._places.get_indexer(names), dtype=np.int64)
        places, unknown = found[codes], names[found < 0].unique()
        if len(unknown):
            listed = ", ".join(map(repr, unknown[:_NAMED])) + (", ..." if len(unknown) > _NAMED else "")
            like = f"users are called like {self.nodes[0]!r}" if self.nodes else "there are none"
            raise InputError(
                f"{what} {listed} is not in the network ({len(unknown):,} of {len(places):,} are not): its {like}"
            )
        return places

    def with_users(self, users: Iterable[Any]) -> Network:
        """Return the network with further users, who know nobody; known users change nothing.

        They are put in the order of their names: that of a private table may tell about its rows.

        >>> Network.from_edges([("ann", "bob")]).with_users(["bob", "cem"])
        Network of 3 users and 1 edge
        """
        more = sorted(set(map(str, users)).difference(self.nodes))
        matrix = self.adjacency.copy()
        matrix.resize((len(self) + len(more),) * 2)
        return Network((*self.nodes, *more), matrix, self.directed)


@progress("reading the network")
def read_network(path: str | Path, *, directed: bool = False) -> Network:
    """Read a network from a text file with an edge on each line (`read_pairs`)."""
    return Network.from_edges(read_pairs(path), directed=directed)


def read_pairs(path: str | Path, columns: int = 2) -> pd.DataFrame:
    """Read the first columns of a table of text; commas, semicolons, tabs or spaces separate columns.

    Remarks begin with #. The first line is left out if it is a heading: words such as source and target, from and to,
    owner and requester.

    Raises InputError if the file is missing, empty or unreadable, or a line has too few columns.
    """
    import pandas as pd

    try:
        lines = [line for line in Path(path).read_text(encoding="utf-8-sig").splitlines() if line.split("#")[0].strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"file {str(path)!r} cannot be read as text: {problem}") from None
    if not lines:
        raise InputError(f"file {str(path)!r} is empty: it must have a line for each pair of users")
    mark = next((mark for mark in ",;\t" if mark in lines[0]), None)
    rows = [[part.strip().strip('"') for part in line.split(mark)[:columns]] for line in lines]
    if {word.lower() for word in rows[0]} <= _HEADINGS:
        del rows[0], lines[0]
    for line, row in zip(lines, rows, strict=True):
        if len(row) < columns or not all(row):
            raise InputError(f"line {line[:60]!r} of {str(path)!r} has fewer than {columns} columns")
    return pd.DataFrame(rows, columns=range(columns), dtype=object)


# ------------------------------------------------------------------------------------------------ distances


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances d(i, j) from the owner i of data to whoever asks, j; public.

    Parameters
    ----------
    words : how a statement calls them.
    between : gives the distances (m,) of owners and requesters, (m,) places among the nodes; infinite where no way is.
    """

    words: str
    between: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


def distances_of(network: Network, kind: Any = "hops") -> Distances:
    """Return the distances d_ij of a network (2018, section II-A).

    Parameters
    ----------
    network : Network.
    kind : "hops" (edges of the shortest way), "resistance" (between the two, with a unit resistor for each edge; 2018,
        eq. (2)), or the distances themselves: an (N, N) array in the order of the nodes, or a frame whose first
        three columns are owner, requester and distance. Those hold as they stand, in one direction; pairs that a
        frame does not have are not connected.

    Raises InputError if the distances are negative or NaN, an array has another shape, a frame has a pair twice or an
    unknown user, a network is directed and has no resistance, or the result does not fit into memory.

    >>> path = Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "ann"), ("cem", "dia")])
    >>> ann, dia = path.index(["ann"]), path.index(["dia"])
    >>> distances_of(path).between(ann, dia), distances_of(path, "resistance").between(ann, dia).round(4)
    (array([2.]), array([1.6667]))
    """
    if not isinstance(kind, str):
        return _look_up(network, kind)
    if kind not in _KINDS:
        raise InputError(
            f"distance is {kind!r}: it must be one of {', '.join(map(repr, _KINDS))}, or the distances themselves"
        )
    return _KINDS[kind](network)


def _hops(network: Network) -> Distances:
    """Count edges of the shortest path, from a few users at a time."""

    def between(owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Search from each different owner, or backwards from each requester if they are fewer."""
        graph, starts, ends = network.adjacency, owners, requesters
        if len(np.unique(requesters)) < len(np.unique(owners)):
            graph, starts, ends = graph.T.tocsr(), requesters, owners
        out = np.empty(len(starts))
        unique, place = np.unique(starts, return_inverse=True)
        for first in range(0, len(unique), _STARTS):
            hops = csgraph.dijkstra(graph, indices=unique[first : first + _STARTS], unweighted=True)
            rows = np.flatnonzero((place >= first) & (place < first + _STARTS))
            out[rows] = hops[place[rows] - first, ends[rows]]
        return out

    return Distances("hops", between)


def _resistance(network: Network) -> Distances:
    """Compute R_ij = Γ_ii + Γ_jj − 2 Γ_ij, Γ the pseudo-inverse of the component's Laplacian (2018, eq. (2))."""
    if network.directed:
        raise InputError("distance is 'resistance' in a directed network: resistors conduct both ways; take 'hops'")
    components = csgraph.connected_components(network.adjacency, directed=False)[1]
    pairs = _BYTES_PER_PAIR * int((np.bincount(components).astype(object) ** 2).sum())
    fits_memory(pairs, "resistance distances")

    @functools.cache
    def inverse_of(component: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        members = np.flatnonzero(components == component)
        return members, _invert_laplacian(network.adjacency[members][:, members])

    def between(owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute distances from the inverses of components, each made at its first use."""
        component = components[owners]
        out = np.where(owners == requesters, 0.0, np.inf)
        together = (component == components[requesters]) & (owners != requesters)
        for one in np.unique(component[together]).tolist():
            rows = np.flatnonzero(together & (component == one))
            members, inverse = inverse_of(one)
            i, j = (np.searchsorted(members, ends[rows]) for ends in (owners, requesters))
            out[rows] = np.maximum(inverse[i, i] + inverse[j, j] - 2 * inverse[i, j], 0.0)
        return out

    return Distances("resistance distance", between)


def _invert_laplacian(adjacency: Any) -> NDArray[np.float64]:
    """Return (L + J/n)⁻¹ of a connected graph, symmetric to the last bit.

    J is all ones. It differs from the pseudo-inverse by J/n, which resistances do not see.
    """
    number = adjacency.shape[0]
    inverse = np.linalg.inv(csgraph.laplacian(adjacency.astype(np.float64)).toarray() + 1 / number)
    return (inverse + inverse.T) / 2


def _look_up(network: Network, given: Any) -> Distances:
    """Take distances of an (N, N) array, or of a frame with owner, requester and distance."""
    import pandas as pd

    number = len(network)
    if not isinstance(given, pd.DataFrame):
        try:
            matrix = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("distance is no array of numbers, frame of pairs or name: it must be one") from None
        network.check_square(matrix, "distance")
        pairs, values = np.arange(number**2), matrix.ravel()
    else:
        if given.shape[1] < 3:
            raise InputError(f"distances have {given.shape[1]} column(s): owner, requester, distance are needed")
        owners = network.index(given.iloc[:, 0].to_numpy(), "owner")
        pairs = owners * number + network.index(given.iloc[:, 1].to_numpy(), "requester")
        values = pd.to_numeric(given.iloc[:, 2], errors="coerce").to_numpy(np.float64)
        order = np.argsort(pairs, kind="stable")
        pairs, values = pairs[order], values[order]
    bad, twice = ~(values >= 0), np.zeros(len(pairs), dtype=bool)
    twice[1:] = pairs[1:] == pairs[:-1]
    if (bad | twice).any():
        at = int(np.argmax(bad | twice))
        i, j = divmod(int(pairs[at]), number)
        problem = f"is {values[at]:g}: it must be a number, zero or more" if bad[at] else "stands there twice"
        raise InputError(f"the distance from {network.nodes[i]!r} to {network.nodes[j]!r} {problem}")

    def between(owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Look distances up among the sorted pairs."""
        wanted = owners * number + requesters
        if not len(pairs):
            return np.full(len(wanted), np.inf)
        place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        return np.where(pairs[place] == wanted, values[place], np.inf)

    return Distances("distances as given", between)


_KINDS: dict[str, Callable[[Network], Distances]] = {"hops": _hops, "resistance": _resistance}
