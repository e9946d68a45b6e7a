"""Diffusion over a network: the promise to everybody about users' data, and signals of one user's responses."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import NANO, InputError, as_printed, positive
from deltahist.kinds.diffusion.distances import Distances, distances_of
from deltahist.kinds.diffusion.levels import PrivacyLevels
from deltahist.kinds.diffusion.network import Network
from deltahist.mechanisms.base import stamp
from deltahist.privacy import Guarantee
from deltahist.space.crs import extent_on, unit_of
from deltahist.space.domain import Domain
from deltahist.space.operations import read_crs

if TYPE_CHECKING:
    import pandas as pd

#: Lattice steps in α, at least, where nothing is said.
_STEPS = 1000
#: α in lattice steps times n + 1, at most: responses at the least level still fit into 64 bits.
_MOST_REACH = 1 << 26
#: Columns of answers besides the data's own.
_TAKEN = ("owner", "requester", "distance", "epsilon", "rmse", "flipped")


@dataclass(frozen=True, eq=False)
class DiffusionMechanism:
    """Every user's data go to every other, the noisier the further away they are in a network.

    Whoever asks at distance d gets a response that is ε(d)-private for data within α. All responses that one user's
    data give, to whomever, are as private as the one of the largest ε among them: whoever put theirs together know no
    more than the nearest of them. Source: 2018, theorem 4. Proof: docs/privacy/diffusion.md.

    Parameters
    ----------
    network : Network.
    epsilon : ε(d), as `PrivacyLevels` or what it is made of: "exp(4-3.3d)", a table, a function.
    alpha : data at most so far apart (Euclidean distance) are hidden in each other; a number in the data's units, or
        with a CRS also "100m", on the ground. None: the data are bits, and either is hidden in the other.
    distance : "hops", "resistance" or distances, as `distances_of` takes them.
    columns : names of the data's columns, one for each of n dimensions. A bit has one.
    step : the lattice that data are put on, in their units; the power of ten from α / 10,000 to α / 1,000 when None.
    crs : projected CRS of positions; None for plain numbers.

    Raises
    ------
    InputError
        If α is not above zero, is less than a step or has too many of them, the columns do not fit, the CRS is not
        projected or holds no region in one piece, or the network, ε(d) or the distances cannot be used.

    >>> network = Network.from_edges([("ann", "bob"), ("bob", "cem")])
    >>> mechanism = DiffusionMechanism(network, "exp(3-d)", alpha=100, columns=("x", "y"))
    >>> mechanism.reach, mechanism.rmse(mechanism.levels(["ann", "ann"], ["bob", "cem"])).round(1)
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
        object.__setattr__(self, "epsilon", PrivacyLevels.of(self.epsilon))
        columns = tuple(map(str, self.columns))
        object.__setattr__(self, "columns", columns)
        if not columns or len(set(columns)) < len(columns) or set(columns) & set(_TAKEN):
            raise InputError(
                f"columns are {columns}: there must be one at least, each with a name of its own, none of "
                f"{', '.join(_TAKEN)}"
            )
        if self.alpha is None:
            if len(columns) > 1 or self.step is not None or self.crs is not None:
                raise InputError(
                    "alpha is None, so that the data are bits: they have one column, no step and no crs"
                )
        else:
            _ = self.reach
        _ = self.distances

    @functools.cached_property
    def distances(self) -> Distances:
        """Between users; public."""
        ready = isinstance(self.distance, Distances)
        return self.distance if ready else distances_of(self.network, self.distance)

    @property
    def bits(self) -> bool:
        """Whether the data are bits."""
        return self.alpha is None

    @property
    def dimension(self) -> int:
        """n, columns of the data."""
        return len(self.columns)

    @functools.cached_property
    def area(self) -> Domain | None:
        """Where the CRS is made for, as one cell: positions must lie there, and α is of its largest scale."""
        if self.crs is None:
            return None
        crs = read_crs(self.crs)
        if len(self.columns) != 2 or not crs.is_projected:
            raise InputError(
                f"crs is {self.crs!r} for {len(self.columns)} column(s): it must be a projected CRS, such as "
                "EPSG:32618, for two columns; degrees are not lengths"
            )
        use = crs.area_of_use
        cure = "name a projected CRS that is made for the region, such as EPSG:32618"
        if use is None:
            raise InputError(f"crs is {self.crs[:60]!r}, which does not say what area it is for: {cure}")
        try:
            return Domain(
                extent_on((use.west, use.south, use.east, use.north), self.crs).bounds, (1, 1), self.crs
            )
        except InputError:
            raise InputError(
                f"crs is {self.crs!r}, for {use.name[:60]!r}, which is no map in one piece: {cure}"
            ) from None

    @functools.cached_property
    def _radius(self) -> Fraction:
        """α in units of the data, exactly."""
        assert self.alpha is not None
        if self.area is not None:
            return Fraction(self.area.length(self.alpha, name="alpha"))
        if isinstance(self.alpha, str):
            raise InputError(
                f"alpha is {self.alpha!r}, but there is no CRS and so no metres: give a plain number"
            )
        return as_printed(positive(alpha=self.alpha))

    @functools.cached_property
    def lattice(self) -> Fraction:
        """The step of the lattice, in units of the data."""
        if self.bits:
            return Fraction(1)
        if self.step is not None:
            return as_printed(positive(step=self.step))
        return Fraction(10) ** math.floor(math.log10(float(self._radius / _STEPS)))

    @functools.cached_property
    def reach(self) -> int:
        """α in lattice steps, rounded up, so that data within α are as private as promised.

        Data within α are less than √n steps further apart on the lattice, each of the two moving by half a step along
        each axis at most; numbers (n = 1) are at most ⌈α / step⌉ apart. 1 for bits.
        """
        if self.bits:
            return 1
        steps = self._radius / self.lattice
        if steps < 1:
            raise InputError(
                f"step is {float(self.lattice):g} with an alpha of {float(self._radius):g}: it must be no longer than "
                "that"
            )
        more = Fraction(math.isqrt(self.dimension * 10**12 - 1) + 1, 10**6) if self.dimension > 1 else 0
        reach = math.ceil(steps + more)
        if reach * (self.dimension + 1) > _MOST_REACH:
            most = _MOST_REACH // (self.dimension + 1)
            raise InputError(
                f"alpha has {reach:,} steps of {float(self.lattice):g}: there must be at most {most:,}; take a longer "
                "step"
            )
        return reach

    @property
    def unit(self) -> str:
        """The unit of the data; "" if there is none."""
        return "" if self.crs is None else unit_of(self.crs)

    def distances_between(
        self, owners: NDArray[np.int64], requesters: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return d of pairs (m,) of places among the nodes.

        Raises InputError if both are the same, or they are not connected and the least ε is not stated.
        """
        nodes = self.network.nodes
        if (owners == requesters).any():
            name = nodes[owners[owners == requesters][0]]
            raise InputError(f"user {name!r} is asked for what is their own: owner and requester must differ")
        distances = self.distances.between(owners, requesters)
        apart = np.flatnonzero(np.isinf(distances))
        if len(apart) and self.epsilon.least is None:
            raise InputError(
                f"no way leads from {nodes[owners[apart[0]]]!r} to {nodes[requesters[apart[0]]]!r} ({len(apart):,} of "
                f"{len(distances):,} pairs): leave them out, or state the least ε, which they get then"
            )
        return distances

    def levels(self, owners: Sequence[Any], requesters: Sequence[Any]) -> NDArray[np.int64]:
        """Return ε of responses to pairs (m,) of users, in whole billionths.

        Raises InputError if a user is not in the network or asks themselves, or two are not connected and the least ε
        is not stated.
        """
        first, second = self.network.index(owners, "owner"), self.network.index(requesters, "requester")
        return np.asarray(self.epsilon.billionths(self.distances_between(first, second)))

    def rmse(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return the root mean square of a response's distance from the data: √(n(n+1)) α/ε, and the lattice's.

        Source: 2018, theorem 4. Data and noise are both rounded to the lattice.
        """
        epsilon = np.asarray(levels, dtype=np.float64) / NANO
        noise = self.dimension * (self.dimension + 1) * (self.reach / epsilon) ** 2
        return float(self.lattice) * np.asarray(np.sqrt(noise + self.dimension / 6))

    def flipped(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that the response to a bit is the other one, 1/(1 + e^ε)."""
        return 1 / (1 + np.exp(np.minimum(np.asarray(levels, dtype=np.float64) / NANO, 700.0)))

    def in_units(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return whole lattice steps in the units of the data, to the last digit."""
        return np.asarray(steps * float(self.lattice.numerator) / float(self.lattice.denominator))

    def statement(self, levels: ArrayLike = ()) -> str:
        """Return the promise as text; with the levels of some responses, also how good these are."""
        lines = {
            "data": f"{', '.join(self.columns)}{f' in {self.crs}' if self.crs else ''}, one row of each user",
            "hidden": self._hidden,
            "promise": "whoever asks at distance d gets a response that is ε(d)-private: no conclusion becomes more "
            "than e^ε(d) times likelier",
            "distance": f"{self.distances.words} in a network of {len(self.network):,} users",
            "ε(d)": self.epsilon.words,
            "together": "all responses about a user, whoever puts them together, are as private as the one of the "
            "largest ε among them",
        }
        if np.size(levels):
            most, least = int(np.max(levels)), int(np.min(levels))
            right = Guarantee(epsilon=Fraction(most, NANO)).certainty
            lines["responses"] = f"ε from {least / NANO:.4g} to {most / NANO:.4g}, {self._error(most, least)}"
            lines["at most"] = (
                f"of two values that are hidden in each other, held for equally likely, all of them together tell the "
                f"right one in {100 * right:.7g}% of all cases"
            )
        lines["public"] = "users, network, distances, ε(d), who has data; who asks is seen by whoever answers"
        lines["not covered"] = (
            "other data about the same users, data that change, what users tell of each other"
        )
        return "\n".join(f"{name:<12} {text}" for name, text in lines.items())

    @property
    def _hidden(self) -> str:
        if self.bits:
            return "0 and 1 in each other"
        unit = " m" if self.crs is not None and not isinstance(self.alpha, str) else ""
        ground = " on the ground" if self.crs is not None else ""
        lattice = f"{self.reach:,} steps of a lattice of {float(self.lattice):g} {self.unit}".rstrip()
        return f"values up to {self.alpha}{unit} apart{ground} in each other (α: {lattice})"

    def _error(self, most: int, least: int) -> str:
        if self.bits:
            return f"wrong with a probability of {self.flipped(most):.3g} to {self.flipped(least):.3g}"
        errors = [float(self.rmse(level)) for level in (most, least)]
        small, large = (f"{error:,.0f}" if error >= 1000 else f"{error:.4g}" for error in errors)
        return f"off by {small} to {large} {self.unit}".rstrip() + " (root mean square)"


@dataclass(frozen=True, eq=False)
class Signal:
    """One user's responses at every level up to an ε; whoever holds the signal knows that ε about the user, no more.

    It changes in steps: `values[k]` is the response from `starts[k]` to before `starts[k + 1]`, the last one up to and
    with `most`. Users can pass it on without anybody in the middle: each trims it to what the next one may know.
    Source: 2018, section IV-A.

    Parameters
    ----------
    mechanism : the promise.
    owner : whose data they are.
    starts : (k,) rising levels in whole billionths; the first one is the least that it answers.
    most : the largest level that it answers.
    values : (k, n) responses as whole lattice steps, or bits.
    publishable : whether its noise came from the operating system.

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
    publishable: bool = field(default=False, init=False)

    @property
    def epsilon(self) -> Fraction:
        """The largest ε that it answers, and tells."""
        return Fraction(self.most, NANO)

    def at(self, epsilon: float | Fraction) -> NDArray[np.float64]:
        """Return the response (n,) at an ε, in the units of the data.

        Raises InputError if it is above the signal's, or below a billionth.
        """
        place = int(np.searchsorted(self.starts, self._level(epsilon), side="right")) - 1
        return self.mechanism.in_units(self.values[place])

    def trim(self, epsilon: float | Fraction) -> Signal:
        """Return the part up to an ε, for somebody who may know that much; of what was above it nothing is left.

        Raises InputError if it is above the signal's, or below a billionth.
        """
        level = self._level(epsilon)
        kept = int(np.searchsorted(self.starts, level, side="right"))
        starts, values = self.starts[:kept].copy(), self.values[:kept].copy()
        return stamp(Signal(self.mechanism, self.owner, starts, level, values), self.publishable)

    def to(self, requester: str) -> Signal:
        """Return the part that a user of the network may know.

        Raises InputError if they are not in the network, not connected, or may know more than the signal says.
        """
        return self.trim(Fraction(int(self.mechanism.levels([self.owner], [requester])[0]), NANO))

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each step: the epsilon from which on it holds, and the response."""
        import pandas as pd

        values = self.mechanism.in_units(self.values)
        columns = {name: values[:, axis] for axis, name in enumerate(self.mechanism.columns)}
        return pd.DataFrame({"epsilon": self.starts / NANO, **columns})

    def __repr__(self) -> str:
        return f"Signal of {self.owner!r} up to ε = {float(self.epsilon):g}, {len(self.starts):,} steps"

    def _level(self, epsilon: float | Fraction) -> int:
        """Return whole billionths of an ε, rounded down."""
        exact = as_printed(positive(epsilon=epsilon))
        level = exact.numerator * NANO // exact.denominator
        if not self.starts[0] <= level <= self.most:
            raise InputError(
                f"epsilon is {float(epsilon):g}: it must be from {self.starts[0] / NANO:g} to "
                f"{float(self.epsilon):g}, all that the signal of {self.owner!r} has"
            )
        return level
