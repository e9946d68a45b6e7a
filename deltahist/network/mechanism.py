"""Networks of users, distances between users, privacy levels ε(d), and diffusion mechanisms. Public.

Source: 2018. Proofs: docs/privacy/diffusion.md.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csgraph

from deltahist.budget import floor_nano
from deltahist.errors import (
    NANO,
    InputError,
    as_printed_fraction,
    check_choice,
    check_finite,
    check_memory,
    check_positive,
)
from deltahist.laws import Guarantee
from deltahist.preprocessing import normalize_name
from deltahist.space.crs import extent_on, read_crs, unit_of
from deltahist.space.domain import Domain

_NUMBER = r"\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?"
_EXPONENTIAL = re.compile(rf"(?:({_NUMBER})\*?)?exp\((?:([-+]?(?:{_NUMBER})))?-(?:({_NUMBER})\*?)?d\)", re.IGNORECASE)
#: Largest ε. Floats much above this cannot represent billionths.
_MOST = 1e6
Function = Callable[[Any], Any]


class Network:
    """Users and the unweighted edges between them. Public.

    Names are normalized (`normalize_name`), so user 7 in one table is user "7" in another. Self-loops and duplicate
    edges are ignored. Source: 2018, section II-A.

    Parameters
    ----------
    nodes : names of the N users, all different.
    adjacency : sparse or dense (N, N) matrix of zeros and ones, symmetric unless `directed`.
    directed : whether each edge leads from an owner to a user who may request the owner's data.

    >>> Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "bob")])
    Network(users=3, edges=2, directed=False)
    """

    def __init__(self, nodes: Iterable[Any], adjacency: Any, directed: bool = False) -> None:
        self.nodes, self.directed = tuple(normalize_name(user=node) for node in nodes), directed
        self._places = pd.Index(self.nodes, dtype=object)
        matrix = scipy.sparse.csr_array(adjacency)
        matrix.sum_duplicates()
        fits = matrix.shape == (len(set(self.nodes)),) * 2 and np.isin(matrix.data, (0, 1)).all()
        if not fits or (not directed and (matrix != matrix.T).nnz):
            rule = "one row and one column of 0s and 1s for each distinct node, and be symmetric unless directed=True"
            raise InputError(f"adjacency has the shape {matrix.shape}: it must have {rule}")
        self.adjacency = matrix.astype(bool)
        self.adjacency.setdiag(False)
        self.adjacency.eliminate_zeros()
        self.adjacency.sort_indices()

    @classmethod
    def from_edges(cls, edges: Any, nodes: Iterable[Any] = (), *, directed: bool = False) -> Network:
        """Build a network from pairs of names, or from a frame's first two columns. `nodes` adds isolated users."""
        ends = take_columns(edges, 2)
        given = pd.Series([*ends.iloc[:, 0], *ends.iloc[:, 1], *nodes], dtype=object)
        codes, distinct = pd.factorize(given, use_na_sentinel=False)
        same, users = pd.factorize(np.array([normalize_name(user=name) for name in distinct], dtype=object))
        first, second = same[codes[: len(ends)]], same[codes[len(ends) : 2 * len(ends)]]
        if not directed:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        ones = np.ones(len(first), dtype=bool)
        return cls(tuple(users), scipy.sparse.coo_array((ones, (first, second)), shape=(len(users),) * 2), directed)

    def __repr__(self) -> str:
        number = self.adjacency.nnz // (1 if self.directed else 2)
        return f"Network(users={len(self)}, edges={number}, directed={self.directed})"

    def __len__(self) -> int:
        return len(self.nodes)

    def find_places(self, users: Any, what: str = "user") -> NDArray[np.int64]:
        """Return the index of each user in `nodes`."""
        codes, distinct = pd.factorize(pd.Series(users, dtype=object), use_na_sentinel=False)
        names = pd.Index([normalize_name(**{what: user}) for user in distinct], dtype=object)
        places = np.asarray(self._places.get_indexer(names), dtype=np.int64)
        if (places < 0).any():
            unknown, like = names[places < 0], f", unlike {self.nodes[0]!r}" if self.nodes else ""
            raise InputError(f"{what} {unknown[0]!r} is not in the network{like} ({len(unknown):,} unknown in all)")
        return places[codes]


def take_columns(table: Any, number: int) -> pd.DataFrame:
    """Return the first `number` columns of a table, even if it is empty."""
    frame = pd.DataFrame(table)
    return pd.DataFrame(columns=range(number), dtype=object) if frame.empty else frame.iloc[:, :number]


def read_pairs(path: str | Path, columns: int = 2) -> pd.DataFrame:
    """Read the first columns of a text table. Skips empty lines, lines that begin with #, and a heading."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.split("#")[0].strip()]
    mark = next((mark for mark in ",;\t" if mark in "".join(lines[:1])), None)
    rows = [[part.strip().strip('"') for part in line.split(mark)[:columns]] for line in lines]
    headings = (
        "source target from to src dst owner requester distance user friend user1 user2 node1 node2 id1 id2 weight"
    )
    if rows and {word.lower() for word in rows[0]} <= set(headings.split()):
        del rows[0]
    wrong = [row for row in rows if len(row) < columns or not all(row) or "\ufffd" in "".join(row)]
    if not rows or wrong:
        rule = f"each line must have {columns} columns and be in UTF-8"
        raise InputError(f"file {str(path)!r} has {f'the line {wrong[0]}' if wrong else 'no lines'}: {rule}")
    return pd.DataFrame(rows, columns=range(columns), dtype=object)


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances from owners to requesters: a name, and a function of node indices that is infinite without a path."""

    name: str
    between: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


def measure_distances(network: Network, kind: Any = "hops") -> Distances:
    """Return the distances d_ij of a network (2018, section II-A).

    kind : "hops" (number of edges on the shortest path), "resistance" (each edge is a unit resistor; 2018, eq. (2)),
        or a frame whose first three columns are owner, requester and distance (unlisted pairs are unconnected).

    >>> path = Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "ann"), ("cem", "dia")])
    >>> ann, dia = path.find_places(["ann"]), path.find_places(["dia"])
    >>> [measure_distances(path, kind).between(ann, dia).round(4) for kind in ("hops", "resistance")]
    [array([2.]), array([1.6667])]
    """
    if isinstance(kind, pd.DataFrame):
        return _read_distances(network, kind)
    check_choice(("hops",) if network.directed else ("hops", "resistance"), distance=kind)
    return _count_hops(network) if kind == "hops" else _compute_resistances(network)


def _count_hops(network: Network) -> Distances:
    """Count the edges on shortest paths, for 256 owners (or requesters, if they are fewer) at a time."""

    def between(owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        graph, starts, ends = network.adjacency, owners, requesters
        if len(np.unique(requesters)) < len(np.unique(owners)):
            graph, starts, ends = graph.T.tocsr(), requesters, owners
        out = np.empty(len(starts))
        unique, place = np.unique(starts, return_inverse=True)
        for first in range(0, len(unique), 256):
            hops = csgraph.dijkstra(graph, indices=unique[first : first + 256], unweighted=True)
            rows = np.flatnonzero((place >= first) & (place < first + 256))
            out[rows] = hops[place[rows] - first, ends[rows]]
        return out

    return Distances("hops", between)


def _compute_resistances(network: Network) -> Distances:
    """Compute R_ij = Γ_ii + Γ_jj − 2 Γ_ij, where Γ = (L + J/n)⁻¹ and L is a component's Laplacian (2018, eq. (2)).

    J is the n × n matrix of ones. Γ differs from the pseudo-inverse of L by J/n, which cancels in R_ij.
    """
    components = csgraph.connected_components(network.adjacency, directed=False)[1]
    # Each pair of nodes in a component takes 32 bytes: one float each in the Laplacian, its inverse and two sums.
    check_memory(32 * int((np.bincount(components).astype(object) ** 2).sum()), "resistance distances")

    @functools.cache
    def inverse_of(component: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        members = np.flatnonzero(components == component)
        laplacian = csgraph.laplacian(network.adjacency[members][:, members].astype(np.float64)).toarray()
        inverse = np.linalg.inv(laplacian + 1 / len(members))
        return members, (inverse + inverse.T) / 2  # make R_ij and R_ji equal

    def between(owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
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


def _read_distances(network: Network, frame: pd.DataFrame) -> Distances:
    number, table = len(network), take_columns(frame, 3)
    owners = network.find_places(table.iloc[:, 0], "owner")
    requesters = network.find_places(table.iloc[:, 1], "requester")
    values = pd.to_numeric(table.iloc[:, 2], errors="coerce").to_numpy(np.float64)
    known = pd.Series(values, index=owners * number + requesters)  # pandas refuses duplicate pairs

    def between(owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        return known.reindex(owners * number + requesters, fill_value=np.inf).to_numpy()

    return Distances("distances as given", between)


@dataclass(frozen=True)
class PrivacyLevels:
    """The privacy level ε(d) of a response to a requester at distance d. It does not increase with d.

    ε is rounded down to whole billionths, but never to zero. Source: 2015, section 4.2, eq. (47); 2018, section II-D.

    Parameters
    ----------
    epsilon : a string such as "exp(4-3.3d)" or "15*exp(-0.5d)", a table, or a function of an array of sorted distances.
        With the table {1: 15, 2: 8, 4: 0.5}, or "1:15,2:8,4:0.5", ε is 15 up to distance 1, 8 up to 2, and 0.5 beyond.
    least : the minimum ε, also for unconnected requesters. If it is None, unconnected requesters are refused.

    >>> PrivacyLevels("exp(4-3.3d)").at([0.5, 1.5])
    array([10.48556972,  0.38674102])
    >>> PrivacyLevels({1: 15, 2: 8, 4: 0.5}).at([1, 1.2, 3, 100])
    array([15. ,  8. ,  0.5,  0.5])
    >>> PrivacyLevels("exp(4-3.3d)", least=0.5).round_down([1, float("inf")])
    array([2013752707,  500000000])
    """

    epsilon: str | Mapping[float, float] | Function
    least: float | None = None

    def __post_init__(self) -> None:
        if self.least is not None:
            least = check_positive(**{"the least epsilon": self.least})
            _check_levels(f"at least {least!r}", np.zeros(1), np.full(1, least))
        _ = self._function  # raises early

    @functools.cached_property
    def _function(self) -> Function:
        given = _read_levels(self.epsilon) if isinstance(self.epsilon, str) else self.epsilon
        if not isinstance(given, Mapping):
            return given
        ends, values = np.array(sorted((float(d), float(e)) for d, e in given.items())).T
        _check_levels(repr(self.epsilon), ends, values)
        return lambda distances: values[np.minimum(np.searchsorted(ends, distances), len(ends) - 1)]

    def at(self, distances: ArrayLike) -> NDArray[np.float64]:
        """Return ε at each distance, before rounding."""
        array = np.asarray(distances, dtype=np.float64)
        unique, where = np.unique(array, return_inverse=True)
        reached = unique != np.inf
        levels = np.full(len(unique), self.least or 0.0)
        found = np.asarray(self._function(unique[reached]), dtype=np.float64)
        _check_levels(f"{found} at the distances {unique[reached]}", unique[reached], found)
        levels[reached] = np.maximum(found, self.least or 0.0)
        return levels[where].reshape(array.shape)

    def round_down(self, distances: ArrayLike) -> NDArray[np.int64]:
        """Return ε at each distance in whole billionths, rounded down, but at least one."""
        epsilon = self.at(distances)
        out = np.floor(epsilon * NANO)
        # Correct the rounding of the product. A float counts as its printed decimal.
        out -= out / NANO > epsilon
        out += (out + 1) / NANO <= epsilon
        return np.maximum(out, 1).astype(np.int64)

    def __str__(self) -> str:
        text = self.epsilon if isinstance(self.epsilon, str) else "a function of the distance"
        if isinstance(self.epsilon, Mapping):
            text = ",".join(f"{d:g}:{e:g}" for d, e in self.epsilon.items())
        return text if self.least is None else f"{text}, at least {self.least:g}"


def _check_levels(given: str, distances: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """Raise InputError if a distance is negative or NaN, or if an ε is out of range or increases with distance."""
    in_range = values.shape == distances.shape and ((values > 0) & (values <= _MOST) & (distances >= 0)).all()
    if not in_range or (np.diff(values) > 0).any():
        rule = "must not increase with the distance, as in exp(4-3.3d) or 1:15,2:8 (distances must be zero or more)"
        raise InputError(f"epsilon is {given}: it must be above zero and at most 10^6, and {rule}")


def _read_levels(text: str) -> Function | dict[float, float]:
    """Return the function or table in a string such as "exp(4-3.3d)" or "1:15,2:8", or a NaN table if it is invalid."""
    plain = "".join(text.split())
    match = _EXPONENTIAL.fullmatch(plain)
    if match is None:
        with contextlib.suppress(ValueError):
            pairs = [(float(distance), float(level)) for distance, level in (p.split(":") for p in plain.split(","))]
            if len(dict(pairs)) == len(pairs):
                return dict(pairs)
    else:
        given = zip(match.groups(), (1, 0, 1), strict=True)
        factor, start, rate = (default if part is None else float(part) for part, default in given)
        highest = math.log(factor or math.nan) + start
        if 0 < rate < math.inf and highest <= math.log(_MOST):
            return lambda distances: np.maximum(np.exp(highest - rate * distances), 1 / NANO)
    return {0.0: math.nan}  # refused by the caller


def snap_to_lattice(values: ArrayLike, step: Fraction) -> NDArray[np.int64]:
    """Return the exact ⌊value/step + ½⌋, the nearest whole number of steps. A float counts as its binary value."""
    array = np.asarray(values, dtype=np.float64)
    place = array / float(step) + 0.5
    out = np.floor(place).astype(np.int64)
    # Where rounding may have crossed a boundary, recompute exactly.
    near = np.flatnonzero(np.abs(place - np.rint(place)).ravel() <= 8 * np.spacing(np.abs(place).ravel() + 1))
    for index in near.tolist():
        out.flat[index] = math.floor(Fraction(float(array.flat[index])) / step + Fraction(1, 2))
    return out


@dataclass(frozen=True, eq=False)
class DiffusionMechanism:
    """The mechanism of a diffusion: the farther apart two users are, the larger the noise.

    A response at distance d is ε(d)-private for data u and u' with ‖u − u'‖₂ ≤ α. All responses about one user together
    are as private as the response with the largest ε.
    Source: 2018, eq. (1), Problem 2, Theorem 4. Proof: docs/privacy/diffusion.md.

    Parameters
    ----------
    epsilon : ε(d): a `PrivacyLevels` or its argument ("exp(4-3.3d)", a table or a function).
    alpha : α in the data's units or, with a CRS, a ground length ("100m"); None means that the data are bits.
    distance : a `Distances`, or the argument `kind` of `measure_distances` ("hops", "resistance" or a frame).
    columns : names of the data's n columns. Bits have one column.
    step : lattice step in the data's units; None chooses a power of ten from α / 10,000 to α / 1,000.
    crs : projected CRS of the data, if they are positions; None means that they are plain numbers.

    >>> network = Network.from_edges([("ann", "bob"), ("bob", "cem")])
    >>> mechanism = DiffusionMechanism(network, "exp(3-d)", alpha=100, columns=("x", "y"))
    >>> mechanism.reach, mechanism.rmse(mechanism.find_levels(["ann", "ann"], ["bob", "cem"])).round(1)
    (1002, array([33.2, 90.3]))
    """

    network: Network
    epsilon: Any
    alpha: float | str | None = None
    distance: Any = "hops"
    columns: tuple[str, ...] = ("bit",)
    step: float | Fraction | None = None
    crs: str | None = None

    def __post_init__(self) -> None:
        taken = {"owner", "requester", "distance", "epsilon", "rmse", "flipped"}  # columns of responses
        different = len(set(self.columns)) == self.dimension and not taken & set(self.columns)
        if not different or (self.bits and self.dimension > 1):
            rule = f"names must differ, none may be {', '.join(sorted(taken))}, and several columns need alpha"
            raise InputError(f"columns are {self.columns}: {rule}")
        self.reach, self.distances, self.privacy_levels  # noqa: B018  raises early

    @functools.cached_property
    def privacy_levels(self) -> PrivacyLevels:
        """ε(d)."""
        return self.epsilon if isinstance(self.epsilon, PrivacyLevels) else PrivacyLevels(self.epsilon)

    @functools.cached_property
    def distances(self) -> Distances:
        """The distances from owners to requesters."""
        given = self.distance
        return given if isinstance(given, Distances) else measure_distances(self.network, given)

    @property
    def bits(self) -> bool:
        """Whether the data are bits."""
        return self.alpha is None

    @property
    def dimension(self) -> int:
        """The number n of data columns."""
        return len(self.columns)

    @functools.cached_property
    def area(self) -> Domain | None:
        """The CRS's area of use, as one cell that contains all positions. The cell's scale converts α to map units."""
        if self.crs is None:
            return None
        crs = read_crs(self.crs)
        use = crs.area_of_use
        if self.dimension == 2 and crs.is_projected and use is not None:
            with contextlib.suppress(InputError):
                extent = extent_on((use.west, use.south, use.east, use.north), self.crs)
                return Domain(extent, (1, 1), self.crs)
        rule = "it must be projected and have an area of use, as EPSG:32618 does, and there must be two columns"
        raise InputError(f"crs is {self.crs[:60]!r}: {rule}")

    @functools.cached_property
    def _radius(self) -> Fraction:
        """α in the data's units, exactly."""
        if self.area is not None and self.alpha is not None:
            return Fraction(self.area.length(self.alpha, name="alpha"))
        return as_printed_fraction(check_positive(alpha=self.alpha))

    @functools.cached_property
    def lattice(self) -> Fraction:
        """The lattice step, in the data's units."""
        if self.bits:
            return Fraction(1)
        if self.step is not None:
            return as_printed_fraction(check_positive(step=self.step))
        return Fraction(10) ** math.floor(math.log10(float(self._radius / 1000)))

    @functools.cached_property
    def reach(self) -> int:
        """α in lattice steps, rounded up enough that data at most α apart are at most `reach` steps apart; 1 for bits.

        Rounding moves a point by up to half a step along each axis, and so changes the distance between two points by
        less than √n steps. Single numbers at most α apart are at most ⌈α / step⌉ steps apart.
        """
        if self.bits:
            return 1
        steps = self._radius / self.lattice
        more = Fraction(math.isqrt(self.dimension * 10**12 - 1) + 1, 10**6) if self.dimension > 1 else 0
        # Responses at the lowest level must fit in 64 bits.
        reach, most = math.ceil(steps + more), (1 << 26) // (self.dimension + 1)
        check_finite(least=1, **{"alpha in steps of the lattice": float(steps)})
        return int(check_finite(most=most, **{"alpha in steps of the lattice": reach}))

    def measure_between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return distances of pairs of nodes. Refuses equal nodes, and unconnected nodes if ε has no minimum."""
        distances, nodes = self.distances.between(owners, requesters), self.network.nodes
        unconnected = np.isinf(distances) if self.privacy_levels.least is None else np.zeros(len(distances), bool)
        refused = np.flatnonzero((owners == requesters) | unconnected)
        if len(refused):
            owner, requester = nodes[owners[refused[0]]], nodes[requesters[refused[0]]]
            why = f"are equal or unconnected ({len(refused):,} of {len(distances):,} pairs)"
            raise InputError(f"{owner!r} and {requester!r} {why}: omit such pairs, or set a minimum ε if unconnected")
        return distances

    def find_levels(self, owners: Sequence[Any], requesters: Sequence[Any]) -> NDArray[np.int64]:
        """Return the ε of the response for each pair of owner and requester, in whole billionths."""
        find = self.network.find_places
        distances = self.measure_between(find(owners, "owner"), find(requesters, "requester"))
        return self.privacy_levels.round_down(distances)

    def rmse(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return the root mean square distance between a response and the data, in the data's units.

        In lattice steps, its square is n(n+1) (α/ε)² from noise (2018, Theorem 4) plus n/6 from rounding.
        """
        epsilon = np.asarray(levels, dtype=np.float64) / NANO
        noise = self.dimension * (self.dimension + 1) * (self.reach / epsilon) ** 2
        return float(self.lattice) * np.asarray(np.sqrt(noise + self.dimension / 6))

    def flip_probability(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that a response flips a bit, 1/(1 + e^ε)."""
        return 1 / (1 + np.exp(np.minimum(np.asarray(levels, dtype=np.float64) / NANO, 700.0)))

    def to_units(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Convert whole lattice steps to the data's units, correctly rounded."""
        return np.asarray(steps * float(self.lattice.numerator) / float(self.lattice.denominator))

    def statement(self, levels: ArrayLike = ()) -> str:
        """Return the public statement, with the errors of responses at `levels` (in billionths of ε)."""
        hidden, crs = "0 and 1 in each other", "" if self.crs is None else f" in {self.crs}"
        unit = "" if self.crs is None else unit_of(self.crs)
        if not self.bits:
            alpha = f"{self.alpha}{' m' if crs and not isinstance(self.alpha, str) else ''} apart"
            lattice = f"{self.reach:,} steps of a lattice of {float(self.lattice):g} {unit}".rstrip()
            hidden = f"values up to {alpha}{' on the ground' if crs else ''} in each other (α: {lattice})"
        lines = {
            "data": f"{', '.join(self.columns)}{crs}, one row per user",
            "hidden": hidden,
            "promise": "a response at distance d is ε(d)-private: it makes no guess more than e^ε(d) times as likely",
            "distance": f"{self.distances.name} in a network of {len(self.network):,} users",
            "ε(d)": str(self.privacy_levels),
            "together": "all responses about one user together are as private as the response with the largest ε",
        }
        if np.size(levels):
            most, least = int(np.max(levels)), int(np.min(levels))
            if self.bits:
                low, high = self.flip_probability([most, least]).tolist()
                error = f"wrong with a probability of {low:.3g} to {high:.3g}"
            else:
                small, large = (f"{e:,.0f}" if e >= 1000 else f"{e:.4g}" for e in self.rmse([most, least]).tolist())
                error = f"off by {small} to {large} {unit}".rstrip() + " (root mean square)"
            lines["responses"] = f"ε from {least / NANO:.4g} to {most / NANO:.4g}, {error}"
            right = Guarantee(epsilon=Fraction(most, NANO)).certainty
            guess = f"the right one of two equally likely values within α in {100 * right:.7g}% of cases"
            lines["at most"] = f"an attacker with all responses names {guess}"
        lines["public"] = "users, network, distances, ε(d), and who has data; the operator sees who makes requests"
        lines["not covered"] = "other data about the same users, data that change, what users reveal about each other"
        return "\n".join(f"{name:<12} {text}" for name, text in lines.items())


@dataclass(frozen=True, eq=False)
class Signal:
    """The responses about one user at all levels up to an ε, which together are as private as the one at that ε.

    `values[k]` is the response from level `starts[k]` to just below `starts[k + 1]`, or to `most` for the last one.
    Users can pass a signal on without a server if each trims it to the level of the next user (2018, section IV-A).

    starts : k ascending levels in whole billionths of ε. most : the largest level.
    values : array (k, n) of responses, in whole lattice steps or as bits.
    publishable : whether the noise came from the operating system's generator.

    >>> network = Network.from_edges([("ann", "bob"), ("bob", "cem")])
    >>> mechanism = DiffusionMechanism(network, "exp(3-d)", alpha=10, columns=("age",), step=1)
    >>> signal = Signal(mechanism, "ann", np.array([1, 10**9]), 2 * 10**9, np.array([[37], [35]]))
    >>> signal.at(1.5), signal.trim(0.5).at(0.5), signal.trim(0.5).epsilon
    (array([35.]), array([37.]), Fraction(1, 2))
    """

    mechanism: DiffusionMechanism
    owner: str
    starts: NDArray[np.int64]
    most: int
    values: NDArray[np.int64]
    publishable: bool = False

    @property
    def epsilon(self) -> Fraction:
        """The largest ε."""
        return Fraction(self.most, NANO)

    def at(self, epsilon: float | Fraction) -> NDArray[np.float64]:
        """Return the most precise response up to an ε, as n numbers in the data's units."""
        return self.mechanism.to_units(self.trim(epsilon).values[-1])

    def trim(self, epsilon: float | Fraction) -> Signal:
        """Return a copy of the signal up to an ε. The copy does not reference the rest of the signal."""
        level = min(floor_nano(epsilon=epsilon), self.most)
        kept = int(np.searchsorted(self.starts, level, side="right"))
        starts, values = self.starts[:kept].copy(), self.values[:kept].copy()
        return Signal(self.mechanism, self.owner, starts, level, values, self.publishable)

    def to(self, requester: str) -> Signal:
        """Return the part of the signal that a requester may receive."""
        return self.trim(Fraction(int(self.mechanism.find_levels([self.owner], [requester])[0]), NANO))
