"""Diffusion of private data over a network: privacy levels ε(d), the mechanism without its noise, and signals.

Source: 2018. Proofs: docs/privacy/diffusion.md.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import floor_nano
from deltahist.errors import NANO, InputError, as_printed_fraction, check_positive
from deltahist.mechanisms.base import make_readonly
from deltahist.network.graph import Distances, Network, distances_of
from deltahist.privacy import Guarantee
from deltahist.space.crs import extent_on, read_crs, unit_of
from deltahist.space.domain import Domain

_NUMBER = r"\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?"
#: exp(4-3.3d), exp(-0.5*d), 15*exp(-0.5 d).
_EXPONENTIAL = re.compile(
    rf"(?:({_NUMBER})\*?)?exp\((?:([-+]?(?:{_NUMBER})))?-(?:({_NUMBER})\*?)?d(?:/({_NUMBER}))?\)",
    re.IGNORECASE,
)
#: The largest ε; beyond it nothing is protected, and a float would not tell billionths apart.
_MOST = 1e6
_FORMS = "exp(4-3.3d), or distances with their ε such as 1:15,2:8,4:0.5"
#: α in lattice steps times n + 1, at most: responses at the least level still fit into 64 bits.
_MOST_REACH = 1 << 26
#: Data further than so many lattice steps from zero are not taken.
_FARTHEST = 1 << 40
#: Columns of answers besides the data's own.
_TAKEN = ("owner", "requester", "distance", "epsilon", "rmse", "flipped")

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class PrivacyLevels:
    """ε(d): the privacy level towards a user at distance d, a function that does not increase.

    ε is rounded down to whole billionths, of which there is at least one.
    Source: 2015, section 4.2, eq. (47); 2018, section II-D.

    Parameters
    ----------
    epsilon : one of

        - a text: "exp(4-3.3d)" or "15*exp(-0.5d)";
        - a table, {1: 15, 2: 8, 4: 0.5} or "1:15,2:8,4:0.5": 15 up to distance 1, 8 beyond it and up to 2, and so on;
          beyond the last distance the last ε;
        - a function of an array of rising distances, which is checked at the distances that are asked for together.
    least : ε of users who are further away or not connected; None refuses those who are not connected.

    Raises InputError if ε is not above zero, exceeds 10^6, or grows with the distance.

    >>> PrivacyLevels("exp(4-3.3d)").at([0.5, 1.5])
    array([10.48556972,  0.38674102])
    >>> PrivacyLevels({1: 15, 2: 8, 4: 0.5}).at([1, 1.2, 3, 100])
    array([15. ,  8. ,  0.5,  0.5])
    >>> PrivacyLevels("exp(4-3.3d)", least=0.5).billionths([1, float("inf")])
    array([2013752707,  500000000])
    """

    epsilon: str | Mapping[float, float] | Function
    least: float | None = None

    def __post_init__(self) -> None:
        if self.least is not None and check_positive(least=self.least) > _MOST:
            raise InputError(f"least is {self.least!r}: it must be at most 10^6")
        function: Any = self.epsilon
        if isinstance(function, str):
            function = _read(function)
        if isinstance(function, Mapping):
            function = _table(function)
        if not callable(function):
            raise InputError(f"epsilon is {self.epsilon!r}: it must be a function of the distance, such as {_FORMS}")
        object.__setattr__(self, "_function", function)

    def at(self, distances: ArrayLike) -> NDArray[np.float64]:
        """Return ε at each distance, before rounding.

        Raises InputError if a distance is negative, NaN, or infinite without `least`, or ε is out of range or grows.
        """
        array = np.asarray(distances, dtype=np.float64)
        unique, where = np.unique(array, return_inverse=True)
        reached = unique < np.inf
        if not (unique >= 0).all() or (self.least is None and not reached.all()):
            raise InputError("distances must be zero or more, and finite unless the least ε is given")
        levels = np.full(len(unique), self.least or 0.0)
        found = np.asarray(self._function(unique[reached]), dtype=np.float64)  # type: ignore[attr-defined]
        _check_levels(unique[reached], found)
        levels[reached] = found
        return np.maximum(levels, self.least or 0.0)[where].reshape(array.shape)

    def billionths(self, distances: ArrayLike) -> NDArray[np.int64]:
        """Return ε at each distance in whole billionths, rounded down, one at least."""
        epsilon = self.at(distances)
        out = np.floor(epsilon * NANO)
        # The product may be rounded either way. A float stands for the decimal that it prints as.
        out -= out / NANO > epsilon
        out += (out + 1) / NANO <= epsilon
        return np.maximum(out, 1).astype(np.int64)

    def __str__(self) -> str:
        said = self.epsilon if isinstance(self.epsilon, str) else "a function of the distance"
        if isinstance(self.epsilon, Mapping):
            said = ",".join(f"{d:g}:{e:g}" for d, e in self.epsilon.items())
        return said if self.least is None else f"{said}, at least {self.least:g}"


def _check_levels(distances: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """Raise InputError if an ε is out of range, or grows between two of the rising distances."""
    if values.shape != distances.shape:
        raise InputError(f"epsilon has the shape {values.shape}: it must be {distances.shape}, one per distance")
    if not ((values > 0) & (values <= _MOST)).all():
        raise InputError(f"epsilon is from {values.min():g} to {values.max():g}: it must be above zero, at most 10^6")
    if (growth := np.diff(values) > 0).any():
        raise InputError(f"epsilon grows beyond distance {distances[:-1][growth][0]:g}: it must not grow")


def _read(text: str) -> Function | dict[float, float]:
    """Parse a text: a function of "exp(4-3.3d)", a table of "1:15,2:8"."""
    plain = "".join(text.split())
    match = _EXPONENTIAL.fullmatch(plain)
    if match is None:
        try:
            pairs = [(float(distance), float(level)) for distance, level in (p.split(":") for p in plain.split(","))]
        except ValueError:
            raise InputError(f"epsilon is {text!r}: it must be a falling function, such as {_FORMS}") from None
        if len(dict(pairs)) < len(pairs):
            raise InputError(f"epsilon is {text!r}: each distance may appear once")
        return dict(pairs)
    factor, start, rate, unit = (
        default if part is None else float(part) for part, default in zip(match.groups(), (1, 0, 1, 1), strict=True)
    )
    slope, highest = rate / (unit or math.nan), math.log(factor or math.nan) + start
    if not (0 < slope < math.inf and highest <= math.log(_MOST)):
        raise InputError(f"epsilon is {text!r}: it must fall with the distance, from at most 10^6 and above zero")
    return lambda distances: np.maximum(np.exp(highest - slope * distances), 1 / NANO)


def _table(levels: Mapping[float, float]) -> Function:
    """Return steps: up to each distance its own ε, beyond the last distance the last ε."""
    ends, values = np.array(sorted((float(d), float(e)) for d, e in levels.items())).reshape(-1, 2).T
    if not len(ends) or not ((ends >= 0) & (ends < math.inf)).all():
        raise InputError(f"epsilon is {dict(levels)}: it needs finite distances of zero or more")
    _check_levels(ends, values)
    return lambda distances: values[np.minimum(np.searchsorted(ends, distances), len(ends) - 1)]


def on_lattice(values: ArrayLike, step: Fraction) -> NDArray[np.int64]:
    """Return the nearest whole steps, ⌊value/step + ½⌋ exactly; a float stands for its binary number.

    Values within α are at most ⌈α / step⌉ steps apart along each axis. Raises InputError beyond 2^40 steps.
    """
    array = np.asarray(values, dtype=np.float64)
    place = array / float(step) + 0.5
    if array.size and np.abs(place).max() >= _FARTHEST:
        raise InputError(f"data have a value beyond {_FARTHEST:,} steps of {float(step):g}: use a longer step")
    out = np.floor(place).astype(np.int64)
    # A float may have been rounded across an edge.
    near = np.flatnonzero(np.abs(place - np.rint(place)).ravel() <= 8 * np.spacing(np.abs(place).ravel() + 1))
    for index in near.tolist():
        out.flat[index] = math.floor(Fraction(float(array.flat[index])) / step + Fraction(1, 2))
    return out


@dataclass(frozen=True, eq=False)
class DiffusionMechanism:
    """Each user's data, shared with every other user: the larger their distance, the larger the noise.

    A requester at distance d gets a response that is ε(d)-private for data within α: u and u' are hidden in each other
    if ‖u − u'‖₂ ≤ α. All responses about one user together are as private as the one with the largest ε.
    Source: 2018, eq. (1), Problem 2, Theorem 4. Proof: docs/privacy/diffusion.md.

    Parameters
    ----------
    network : Network.
    epsilon : ε(d), as `PrivacyLevels` or its argument: "exp(4-3.3d)", a table, a function.
    alpha : a number in the data's units, or with a CRS also a length on the ground, "100m". None: the data are bits,
        and either is hidden in the other.
    distance : "hops", "resistance" or distances, as `distances_of` takes them.
    columns : names of the data's n columns; n = 1 for bits.
    step : lattice step of the data, in their units; the power of ten from α / 10,000 to α / 1,000 when None.
    crs : projected CRS of positions; None for plain numbers.

    Raises InputError if α is not above zero, is less than a step or has too many of them, the columns do not fit, the
    CRS is not projected or has no area of use, or the network, ε(d) or the distances cannot be used.

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
        if not isinstance(self.epsilon, PrivacyLevels):
            object.__setattr__(self, "epsilon", PrivacyLevels(self.epsilon))
        columns = tuple(map(str, self.columns))
        object.__setattr__(self, "columns", columns)
        if not columns or len(set(columns)) < len(columns) or set(columns) & set(_TAKEN):
            raise InputError(f"columns are {columns}: they need different names, none of {', '.join(_TAKEN)}")
        if self.bits and (len(columns) > 1 or self.step is not None or self.crs is not None):
            raise InputError("alpha is None: bits have one column, no step and no crs")
        self.reach, self.distances  # noqa: B018  raises early

    @functools.cached_property
    def distances(self) -> Distances:
        """Distances between users; public."""
        return distances_of(self.network, self.distance)

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
        """The CRS's area of use, as one cell: positions must lie in it, and α is a length at its largest scale."""
        if self.crs is None:
            return None
        crs = read_crs(self.crs)
        if self.dimension != 2 or not crs.is_projected:
            raise InputError(f"crs is {self.crs!r} for {self.dimension} column(s): it must be projected, for two")
        use = crs.area_of_use
        if use is not None:
            with contextlib.suppress(InputError):
                extent = extent_on((use.west, use.south, use.east, use.north), self.crs)
                return Domain(extent, (1, 1), self.crs)
        raise InputError(f"crs is {self.crs[:60]!r}: it must have an area of use that is one region, as EPSG:32618 has")

    @functools.cached_property
    def _radius(self) -> Fraction:
        """α in units of the data, exactly."""
        if self.area is not None and self.alpha is not None:
            return Fraction(self.area.length(self.alpha, name="alpha"))
        return as_printed_fraction(check_positive(alpha=self.alpha))

    @functools.cached_property
    def lattice(self) -> Fraction:
        """The step of the lattice, in units of the data."""
        if self.bits:
            return Fraction(1)
        if self.step is not None:
            return as_printed_fraction(check_positive(step=self.step))
        return Fraction(10) ** math.floor(math.log10(float(self._radius / 1000)))

    @functools.cached_property
    def reach(self) -> int:
        """α in lattice steps, rounded up, so that data within α are within it on the lattice; 1 for bits.

        Rounding moves each of two data by half a step along each axis at most: together they move less than √n steps
        further apart. Numbers (n = 1) within α are at most ⌈α / step⌉ steps apart.
        """
        if self.bits:
            return 1
        steps = self._radius / self.lattice
        if steps < 1:
            raise InputError(f"step is {float(self.lattice):g}: it must be at most alpha, {float(self._radius):g}")
        more = Fraction(math.isqrt(self.dimension * 10**12 - 1) + 1, 10**6) if self.dimension > 1 else 0
        reach, most = math.ceil(steps + more), _MOST_REACH // (self.dimension + 1)
        if reach > most:
            raise InputError(f"alpha has {reach:,} steps of {float(self.lattice):g}: it may have {most:,} at most")
        return reach

    def distances_between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return d of pairs (m,) of places; InputError if one asks themselves, or has no path and ε no `least`."""
        nodes = self.network.nodes
        if (owners == requesters).any():
            raise InputError(f"requester {nodes[owners[owners == requesters][0]]!r} is the owner: they must differ")
        distances = self.distances.between(owners, requesters)
        apart = np.flatnonzero(np.isinf(distances))
        if len(apart) and self.epsilon.least is None:
            raise InputError(
                f"no path leads from {nodes[owners[apart[0]]]!r} to {nodes[requesters[apart[0]]]!r} ({len(apart):,} of "
                f"{len(distances):,} pairs): leave them out, or give the least ε"
            )
        return distances

    def levels(self, owners: Sequence[Any], requesters: Sequence[Any]) -> NDArray[np.int64]:
        """Return ε of responses to pairs (m,) of users, in whole billionths.

        Raises InputError if a user is unknown or both, or a pair has no path and ε no `least`.
        """
        first, second = self.network.index(owners, "owner"), self.network.index(requesters, "requester")
        return np.asarray(self.epsilon.billionths(self.distances_between(first, second)))

    def rmse(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return the root mean square of a response's distance from the data, in their units: √(n(n+1)) α/ε.

        Source: 2018, Theorem 4. Rounding data and noise to the lattice adds n/6 squared steps.
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
        hidden, crs = "0 and 1 in each other", "" if self.crs is None else f" in {self.crs}"
        unit = "" if self.crs is None else unit_of(self.crs)
        if not self.bits:
            alpha = f"{self.alpha}{' m' if crs and not isinstance(self.alpha, str) else ''} apart"
            lattice = f"{self.reach:,} steps of a lattice of {float(self.lattice):g} {unit}".rstrip()
            hidden = f"values up to {alpha}{' on the ground' if crs else ''} in each other (α: {lattice})"
        lines = {
            "data": f"{', '.join(self.columns)}{crs}, one row per user",
            "hidden": hidden,
            "promise": "a response at distance d is ε(d)-private: no conclusion becomes over e^ε(d) times likelier",
            "distance": f"{self.distances.name} in a network of {len(self.network):,} users",
            "ε(d)": str(self.epsilon),
            "together": "all responses about a user together are as private as the one with the largest ε",
        }
        if np.size(levels):
            most, least = int(np.max(levels)), int(np.min(levels))
            if self.bits:
                error = f"wrong with a probability of {self.flipped(most):.3g} to {self.flipped(least):.3g}"
            else:
                small, large = (f"{e:,.0f}" if e >= 1000 else f"{e:.4g}" for e in self.rmse([most, least]).tolist())
                error = f"off by {small} to {large} {unit}".rstrip() + " (root mean square)"
            lines["responses"] = f"ε from {least / NANO:.4g} to {most / NANO:.4g}, {error}"
            right = Guarantee(epsilon=Fraction(most, NANO)).certainty
            guess = f"the right one of two equally likely values within α in {100 * right:.7g}% of cases"
            lines["at most"] = f"an attacker with all responses names {guess}"
        lines["public"] = "users, network, distances, ε(d), and who has data; the operator sees who requests"
        lines["not covered"] = "other data about the same users, data that change, what users reveal about each other"
        return "\n".join(f"{name:<12} {text}" for name, text in lines.items())


@dataclass(frozen=True, eq=False)
class Signal:
    """Responses about one user at every level up to an ε: its holder learns as much as from the response at that ε.

    Responses change in steps: `values[k]` is the response from `starts[k]` to before `starts[k + 1]`, and the last one
    up to `most`. Users can pass a signal on without a central server: each trims it to the level of the next user.
    Source: 2018, section IV-A.

    Parameters
    ----------
    mechanism : the promise.
    owner : user whose data they are.
    starts : (k,) rising levels in whole billionths, from the least level.
    most : the largest level.
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
    publishable: bool = False

    def __post_init__(self) -> None:
        make_readonly(self.starts, self.values)

    @property
    def epsilon(self) -> Fraction:
        """The largest ε."""
        return Fraction(self.most, NANO)

    def at(self, epsilon: float | Fraction) -> NDArray[np.float64]:
        """Return the response (n,) at an ε, in the units of the data. Raises InputError as `trim` does."""
        return self.mechanism.in_units(self.trim(epsilon).values[-1])

    def trim(self, epsilon: float | Fraction) -> Signal:
        """Return the part up to an ε. Nothing is left of what was above it.

        Raises InputError if ε is above the signal's, or below its least level.
        """
        level = floor_nano(epsilon=epsilon)
        if not self.starts[0] <= level <= self.most:
            raise InputError(f"epsilon is {float(epsilon):g}: it must be within the signal, to {float(self.epsilon):g}")
        kept = int(np.searchsorted(self.starts, level, side="right"))
        starts, values = self.starts[:kept].copy(), self.values[:kept].copy()
        return Signal(self.mechanism, self.owner, starts, level, values, self.publishable)

    def to(self, requester: str) -> Signal:
        """Return the part for a user of the network. Raises InputError as `levels` and `trim` do."""
        return self.trim(Fraction(int(self.mechanism.levels([self.owner], [requester])[0]), NANO))

    def __repr__(self) -> str:
        return f"Signal of {self.owner!r} up to ε = {float(self.epsilon):g}, {len(self.starts):,} steps"
