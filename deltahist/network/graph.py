"""Networks of users: edges, text files of edges, and distances between users; public."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.sparse import csgraph

from deltahist._memory import check_memory
from deltahist.errors import InputError, check_choice

if TYPE_CHECKING:
    import pandas as pd

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
    """Users and the unweighted edges between them; public.

    Names are compared as text: user 7 of one table is user "7" of another. Self-loops and duplicate edges are ignored.
    Source: 2018, section II-A.

    Parameters
    ----------
    nodes : names of the N users, different from each other.
    adjacency : (N, N) sparse or dense matrix of zeros and ones; symmetric unless `directed`.
    directed : edges lead from the owners of data to the users who may ask.

    Raises InputError if a name is empty or repeated, or the matrix has another shape, other numbers, or no symmetry.

    >>> Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "bob")])
    Network(users=3, edges=2, directed=False)
    """

    nodes: tuple[str, ...]
    adjacency: Any
    directed: bool = False

    def __post_init__(self) -> None:
        nodes = tuple(map(str, self.nodes))
        if len({*nodes, ""}) <= len(nodes):
            raise InputError("nodes have an empty or a repeated name: each user needs a name of their own")
        matrix = scipy.sparse.csr_array(self.adjacency)
        if matrix.shape != (len(nodes), len(nodes)):
            raise InputError(f"adjacency has the shape {matrix.shape}: it must be {len(nodes):,} by {len(nodes):,}")
        matrix.sum_duplicates()
        if not np.isin(matrix.data, (0, 1)).all():
            raise InputError("adjacency has other numbers than 0 and 1: pass weights as distances")
        matrix = matrix.astype(bool)
        matrix.setdiag(False)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        if not self.directed and (matrix != matrix.T).nnz:
            raise InputError("adjacency is not symmetric: make it so, or pass directed=True")
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "adjacency", matrix)

    @classmethod
    def from_edges(cls, edges: Any, nodes: Iterable[Any] = (), *, directed: bool = False) -> Network:
        """Make a network from a list of edges.

        Parameters
        ----------
        edges : (m, 2) names; a frame's first two columns.
        nodes : further users, who may have no edge.
        directed : an edge leads from the first user to the second only.

        Raises InputError if there are fewer than two columns, or a name is missing.

        >>> Network.from_edges([(1, 2), (2, 2)], nodes=[3]).nodes
        ('1', '2', '3')
        """
        import pandas as pd

        ends = first_columns(edges, 2, "edges")
        if ends.isna().any(axis=None):
            raise InputError("edges lack a name: each edge needs two users")
        texts = [*ends.iloc[:, 0].astype(str), *ends.iloc[:, 1].astype(str), *map(str, nodes)]
        codes, users = pd.factorize(np.array(texts, dtype=object))
        first, second = codes[: len(ends)], codes[len(ends) : 2 * len(ends)]
        if not directed:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        ones = np.ones(len(first), dtype=bool)
        return cls(tuple(users), scipy.sparse.coo_array((ones, (first, second)), shape=(len(users),) * 2), directed)

    def __repr__(self) -> str:
        number = self.adjacency.nnz // (1 if self.directed else 2)
        return f"Network(users={len(self)}, edges={number}, directed={self.directed})"

    def __len__(self) -> int:
        return len(self.nodes)

    @functools.cached_property
    def _places(self) -> pd.Index:
        import pandas as pd

        return pd.Index(self.nodes, dtype=object)

    def index(self, users: Any, what: str = "user") -> NDArray[np.int64]:
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
        places = np.asarray(self._places.get_indexer(names), dtype=np.int64)
        if (places < 0).any():
            unknown, like = names[places < 0], f", unlike {self.nodes[0]!r}" if self.nodes else ""
            raise InputError(f"{what} {unknown[0]!r} ({len(unknown):,} in all) is not in the network{like}")
        return places[codes]

    def with_users(self, users: Iterable[Any]) -> Network:
        """Return the network with further users, who have no edge; known users are ignored.

        They are put in the order of their names: the order of a private table may reveal something about its rows.

        >>> Network.from_edges([("ann", "bob")]).with_users(["bob", "cem"])
        Network(users=3, edges=1, directed=False)
        """
        more = sorted(set(map(str, users)).difference(self.nodes))
        matrix = self.adjacency.copy()
        matrix.resize((len(self) + len(more),) * 2)
        return Network((*self.nodes, *more), matrix, self.directed)


def first_columns(table: Any, number: int, name: str) -> pd.DataFrame:
    """Return the first columns of a table; an empty table has no rows. Raises InputError if there are fewer."""
    import pandas as pd

    frame = pd.DataFrame(table)
    if frame.empty:
        return pd.DataFrame(columns=range(number), dtype=object)
    if frame.shape[1] < number:
        raise InputError(f"{name} have {frame.shape[1]} column(s): there must be {number}")
    return frame.iloc[:, :number]


def read_network(path: str | Path, *, directed: bool = False) -> Network:
    """Read a network from a text file with an edge on each line (`read_pairs`)."""
    return Network.from_edges(read_pairs(path), directed=directed)


def read_pairs(path: str | Path, columns: int = 2) -> pd.DataFrame:
    """Read the first columns of a text table, separated by commas, semicolons, tabs or spaces.

    Lines that begin with # are skipped, and so is a heading such as "source,target".

    Raises InputError if the file is missing, empty or unreadable, or a line has too few columns.
    """
    import pandas as pd

    try:
        lines = [line for line in Path(path).read_text(encoding="utf-8-sig").splitlines() if line.split("#")[0].strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"file {str(path)!r} cannot be read as text: {problem}") from None
    mark = next((mark for mark in ",;\t" if mark in "".join(lines[:1])), None)
    rows = [[part.strip().strip('"') for part in line.split(mark)[:columns]] for line in lines]
    if rows and {word.lower() for word in rows[0]} <= _HEADINGS:
        del rows[0]
    wrong = next((row for row in rows if len(row) < columns or not all(row)), None)
    if not rows or wrong:
        found = f"the line {wrong}" if wrong else "no lines"
        raise InputError(f"file {str(path)!r} has {found}: each line needs {columns} columns")
    return pd.DataFrame(rows, columns=range(columns), dtype=object)


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances d(i, j) from the owner i of data to a requester j; public.

    `name` appears in statements. `between` returns the distances (m,) of owners and requesters, given by their places
    (m,) among the nodes; it is infinite without a path.
    """

    name: str
    between: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


def distances_of(network: Network, kind: Any = "hops") -> Distances:
    """Return the distances d_ij of a network (2018, section II-A).

    Parameters
    ----------
    network : Network.
    kind : "hops" (edges of the shortest path), "resistance" (with a unit resistor on each edge; 2018, eq. (2)), or the
        distances in one direction: an (N, N) array in the order of the nodes, or a frame whose first three columns are
        owner, requester and distance. Pairs that a frame lacks are not connected. `Distances` are returned unchanged.

    Raises InputError if distances are negative or NaN, an array has another shape, a frame has a pair twice or an
    unknown user, a directed network is asked for resistances, or the result does not fit into memory.

    >>> path = Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "ann"), ("cem", "dia")])
    >>> ann, dia = path.index(["ann"]), path.index(["dia"])
    >>> distances_of(path).between(ann, dia), distances_of(path, "resistance").between(ann, dia).round(4)
    (array([2.]), array([1.6667]))
    """
    if isinstance(kind, Distances):
        return kind
    if not isinstance(kind, str):
        return _given(network, kind)
    return _hops(network) if check_choice(("hops", "resistance"), distance=kind) == "hops" else _resistance(network)


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
    """Compute R_ij = Γ_ii + Γ_jj − 2 Γ_ij with Γ = (L + J/n)⁻¹ of a component's Laplacian L (2018, eq. (2)).

    J is all ones. Γ differs from the pseudo-inverse of L by J/n, which cancels.
    """
    if network.directed:
        raise InputError("distance is 'resistance': a directed network has none; use 'hops'")
    components = csgraph.connected_components(network.adjacency, directed=False)[1]
    pairs = _BYTES_PER_PAIR * int((np.bincount(components).astype(object) ** 2).sum())
    check_memory(pairs, "resistance distances")

    @functools.cache
    def inverse_of(component: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        members = np.flatnonzero(components == component)
        laplacian = csgraph.laplacian(network.adjacency[members][:, members].astype(np.float64)).toarray()
        inverse = np.linalg.inv(laplacian + 1 / len(members))
        return members, (inverse + inverse.T) / 2  # symmetric to the last bit

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


def _given(network: Network, given: Any) -> Distances:
    """Take distances from an (N, N) array, or from a frame with owner, requester and distance."""
    import pandas as pd

    number = len(network)
    if isinstance(given, pd.DataFrame):
        table = first_columns(given, 3, "distances")
        owners, requesters = network.index(table.iloc[:, 0], "owner"), network.index(table.iloc[:, 1], "requester")
        values: NDArray[Any] = pd.to_numeric(table.iloc[:, 2], errors="coerce").to_numpy(np.float64)
        known = pd.Series(values, index=owners * number + requesters)
        if not known.index.is_unique:
            raise InputError("distances have a pair twice: each may have one distance")
    else:
        values = np.asarray(given, dtype=np.float64)
        if values.shape != (number, number):
            raise InputError(f"distance has the shape {values.shape}: it must be {number:,} by {number:,}")
        known = pd.Series(values.ravel())
    if not (values >= 0).all():
        raise InputError(f"distance is {values[~(values >= 0)][0]:g}: it must be a number of at least zero")

    def between(owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        return known.reindex(owners * number + requesters, fill_value=np.inf).to_numpy()

    return Distances("distances as given", between)
