"""Networks: users, who knows whom, and the text files that say so; public."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError

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

    Raises
    ------
    InputError
        If two users have the same name or none, or the matrix does not fit them, has other numbers than 0 and 1, or is
        not symmetric.

    >>> Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "bob")])
    Network of 3 users and 2 edges
    """

    nodes: tuple[str, ...]
    adjacency: Any
    directed: bool = False

    def __post_init__(self) -> None:
        nodes = tuple(map(str, self.nodes))
        if len(set(nodes)) < len(nodes) or not all(nodes):
            twice = next((n for n in nodes if not n or nodes.count(n) > 1), "")
            raise InputError(f"a user is called {twice!r}: each must have a name of its own, as text")
        try:
            matrix = scipy.sparse.csr_array(self.adjacency)
        except (TypeError, ValueError):
            raise InputError(
                "adjacency is no matrix: it must be a sparse or dense one of zeros and ones"
            ) from None
        if matrix.shape != (len(nodes), len(nodes)):
            raise InputError(
                f"adjacency has the shape {matrix.shape}: it must be that of {len(nodes):,} by {len(nodes):,} users"
            )
        matrix.sum_duplicates()
        odd = matrix.data[(matrix.data != 0) & (matrix.data != 1)]
        if len(odd):
            raise InputError(
                f"adjacency holds {odd[0]:g}: it must be zeros and ones; if these are distances, give them as distances"
            )
        matrix = matrix.astype(bool)
        matrix.setdiag(False)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        if not self.directed and (matrix != matrix.T).nnz:
            raise InputError(
                "adjacency is not symmetric: it must be, or say directed=True if knowing goes one way"
            )
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "adjacency", matrix)

    @classmethod
    def from_edges(cls, edges: Any, nodes: Iterable[Any] = (), *, directed: bool = False) -> Network:
        """Make a network from a list of edges.

        Parameters
        ----------
        edges : (m, 2) names; a frame's first two columns.
        nodes : users besides the ends of edges.
        directed : whether an edge goes from the first to the second only.

        Raises
        ------
        InputError
            If there are not two columns, or a name is missing.

        >>> Network.from_edges([(1, 2), (2, 2)], nodes=[3]).nodes
        ('1', '2', '3')
        """
        import pandas as pd

        try:
            frame = pd.DataFrame(edges)
        except ValueError:
            raise InputError(
                "edges are no table: they must be pairs of users, such as [('ann', 'bob')]"
            ) from None
        if frame.shape[1] < 2 and len(frame):
            raise InputError(
                f"edges have {frame.shape[1]} column(s): there must be two, one for each end of an edge"
            )
        if not len(frame):
            return cls(
                tuple(map(str, nodes)), scipy.sparse.csr_array((len(tuple(nodes)),) * 2, dtype=bool), directed
            )
        ends = frame.iloc[:, :2]
        missing = ends.isna().any(axis=1).to_numpy()
        if missing.any():
            raise InputError(
                f"edge {int(np.argmax(missing)) + 1:,} lacks a user: each must have two (an empty line?)"
            )
        texts = np.concatenate(
            [ends.iloc[:, 0].astype(str), ends.iloc[:, 1].astype(str), [str(n) for n in nodes]]
        )
        codes, names = pd.factorize(texts.astype(object))
        first, second = codes[: len(ends)], codes[len(ends) : 2 * len(ends)]
        if not directed:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        ones = scipy.sparse.coo_array(
            (np.ones(len(first), dtype=bool), (first, second)), shape=(len(names),) * 2
        )
        return cls(tuple(names), ones.tocsr(), directed)

    @classmethod
    def from_networkx(cls, graph: networkx.Graph) -> Network:
        """Make a network from a networkx graph, without weights.

        >>> import networkx
        >>> Network.from_networkx(networkx.path_graph(4))
        Network of 4 users and 3 edges
        """
        edges = [(str(a), str(b)) for a, b in graph.edges()]
        return cls.from_edges(
            np.array(edges, dtype=object).reshape(-1, 2), graph.nodes(), directed=graph.is_directed()
        )

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
        named = np.array([str(user) for user in distinct], dtype=object)
        found = np.asarray(self._places.get_indexer(pd.Index(named, dtype=object)), dtype=np.int64)
        places = found[codes]
        unknown = list(dict.fromkeys(named[found < 0].tolist()))
        if unknown:
            listed = ", ".join(map(repr, unknown[:_NAMED])) + (", ..." if len(unknown) > _NAMED else "")
            said = (
                f"{len(unknown):,} of {len(places):,} {what}s are"
                if len(places) > 1
                else f"{what} {listed} is"
            )
            more = f" ({listed})" if len(places) > 1 else ""
            like = f"users are called like {self.nodes[0]!r}" if self.nodes else "there are none"
            raise InputError(f"{said} not in the network{more}: they must be, and its {like}")
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


def read_network(path: str | Path, *, directed: bool = False) -> Network:
    """Read a network from a text file with an edge on each line (`read_pairs`).

    Raises InputError if it cannot be read, or an edge lacks a user.
    """
    return Network.from_edges(read_pairs(path), directed=directed)


def read_pairs(path: str | Path, columns: int = 2) -> pd.DataFrame:
    """Read the first columns of a table of text; commas, semicolons, tabs or spaces separate columns.

    Remarks begin with #. The first line is left out if it is a heading: words such as source and target, from and to,
    owner and requester.

    Raises InputError if the file is missing, empty or unreadable, or a line has too few columns.
    """
    import pandas as pd

    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"file {str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"file {str(path)!r} cannot be read as text: {problem}") from None
    numbered = [
        (number, line) for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"
    ]
    if not numbered:
        raise InputError(f"file {str(path)!r} is empty: it must have a line for each pair of users")
    mark = next((mark for mark in ",;\t" if mark in numbered[0][1]), None)
    rows = [[part.strip().strip('"') for part in line.split(mark)][:columns] for _, line in numbered]
    if {word.lower() for word in rows[0]} <= _HEADINGS:
        rows, numbered = rows[1:], numbered[1:]
    for (number, line), row in zip(numbered, rows, strict=True):
        if len(row) < columns or not all(row):
            raise InputError(
                f"line {number:,} of {str(path)!r} is {line[:60]!r}: it must have {columns} columns, as the first line "
                "separates them"
            )
    return pd.DataFrame(rows, columns=range(columns), dtype=object)
