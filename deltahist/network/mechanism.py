"""Diffusion of private data over a network: privacy levels ε(d), the promise to everybody, and one user's signals.

All but the noise. Source: 2018. Proofs: docs/privacy/diffusion.md.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._progress import progress
from deltahist.errors import NANO, InputError, as_printed, positive
from deltahist.mechanisms.base import stamp
from deltahist.network.graph import Distances, Network, distances_of
from deltahist.privacy import Guarantee
from deltahist.space.crs import extent_on, read_crs, unit_of
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = r"\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?"
#: exp(4-3.3d), exp(-0.5*d), 15*exp(-0.5 d).
_EXPONENTIAL = re.compile(
    rf"(?:({_NUMBER})\*?)?exp\((?:([-+]?(?:{_NUMBER})))?-(?:({_NUMBER})\*?)?d(?:/({_NUMBER}))?\)",
    re.IGNORECASE,
)
#: The largest ε; beyond it nothing is protected, and a float would not tell billionths apart.
_MOST = 1e6
_FORMS = "exp(4-3.3d), or distances with their ε such as 1:15,2:8,4:0.5"
#: Lattice steps in α, at least, where nothing is said.
_STEPS = 1000
#: α in lattice steps times n + 1, at most: responses at the least level still fit into 64 bits.
_MOST_REACH = 1 << 26
#: Data further than so many lattice steps from zero are not taken.
_FARTHEST = 1 << 40
#: Columns of answers besides the data's own.
_TAKEN = ("owner", "requester", "distance", "epsilon", "rmse", "flipped")

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class PrivacyLevels:
    """ε(d): how private data are against someone at distance d, a function that does not increase.

    ε is rounded down to whole billionths, so that it is never more than promised, and is at least one billionth.

    Source: 2015, section 4.2, eq. (47); 2018, section II-D: "a function that converts a distance to a privacy level".

    Parameters
    ----------
    epsilon : one of

        - a text: "exp(4-3.3d)" or "15*exp(-0.5d)";
        - a table, {1: 15, 2: 8, 4: 0.5} or "1:15,2:8,4:0.5": up to distance 1 it is 15, beyond it and up to 2 it is 8,
          and so on; beyond the last distance it is the last ε;
        - a function of an array of distances. It is checked on all distances that are asked for together.
    least : ε for users further away or not connected at all; None refuses those.

    Raises InputError if ε is not finite and above zero, or grows with the distance.

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
        if self.least is not None and positive(least=self.least) > _MOST:
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

        Raises InputError if distances are negative or NaN, someone is not connected and `least` is not said, or the
        function grows or is not finite and above zero.
        """
        array = np.asarray(distances, dtype=np.float64)
        odd = array[~(array >= 0)]
        if len(odd):
            raise InputError(f"a distance is {odd[0]:g}: it must be zero or more")
        unique, where = np.unique(array, return_inverse=True)
        reached = unique < np.inf
        if self.least is None and not reached.all():
            raise InputError("a distance is infinite: the two are not connected; state the least ε, or leave them out")
        levels = np.full(len(unique), self.least or 0.0)
        levels[reached] = self._checked(unique[reached])
        return np.maximum(levels, self.least or 0.0)[where].reshape(array.shape)

    def billionths(self, distances: ArrayLike) -> NDArray[np.int64]:
        """Return ε at each distance in whole billionths, rounded down, one at least."""
        epsilon = self.at(distances)
        out = np.floor(epsilon * NANO)
        # A product may be rounded either way; a float stands for the decimal that it prints as, no level is above it.
        out -= out / NANO > epsilon
        out += (out + 1) / NANO <= epsilon
        return np.maximum(out, 1).astype(np.int64)

    @property
    def words(self) -> str:
        """The function as the caller gave it."""
        said = self.epsilon if isinstance(self.epsilon, str) else "a function of the distance"
        if isinstance(self.epsilon, Mapping):
            said = ",".join(f"{d:g}:{e:g}" for d, e in self.epsilon.items())
        return said if self.least is None else f"{said}, at least {self.least:g}"

    def _checked(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate the function at rising distances; InputError if ε grows or is out of range."""
        values = np.asarray(self._function(distances), dtype=np.float64)  # type: ignore[attr-defined]
        if values.shape != distances.shape:
            raise InputError(f"epsilon gives {values.shape} numbers for {distances.shape} distances: one for each")
        _check_levels(distances, values)
        return values


def _check_levels(distances: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """Raise InputError if an ε is out of range, or grows between two of the rising distances."""
    bad = ~((values > 0) & (values <= _MOST))
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"epsilon is {values[at]:g} at distance {distances[at]:g}: it must be above zero and at most 10^6"
        )
    grows = np.diff(values) > 0
    if grows.any():
        at = int(np.argmax(grows))
        raise InputError(
            f"epsilon grows from {values[at]:.10g} at distance {distances[at]:.10g} to {values[at + 1]:.10g} at "
            f"distance {distances[at + 1]:.10g}: whoever is further away must not learn more"
        )


def _read(text: str) -> Function | dict[float, float]:
    """Parse a text: a function of "exp(4-3.3d)", a table of "1:15,2:8"."""
    plain = "".join(text.split())
    match = _EXPONENTIAL.fullmatch(plain)
    if match is None:
        try:
            parts = [part.split(":") for part in plain.split(",")]
            pairs = [(float(distance), float(level)) for distance, level in parts]
        except ValueError:
            raise InputError(f"epsilon is {text!r}: it must be a function that falls, such as {_FORMS}") from None
        if len(dict(pairs)) < len(pairs):
            raise InputError(f"epsilon is {text!r}: a distance stands there twice")
        return dict(pairs)
    factor, start, rate, unit = (
        default if part is None else float(part) for part, default in zip(match.groups(), (1, 0, 1, 1), strict=True)
    )
    if not factor:
        raise InputError(f"epsilon is {text!r}: the factor must be above zero")
    slope, highest = rate / (unit or math.nan), math.log(factor) + start
    if not 0 < slope < math.inf:
        raise InputError(f"epsilon is {text!r}: it must fall with the distance")
    if highest > math.log(_MOST):
        raise InputError(f"epsilon is {text!r}: at distance 0 it must be at most 10^6")
    return lambda distances: np.maximum(np.exp(highest - slope * distances), 1 / NANO)


def _table(levels: Mapping[float, float]) -> Function:
    """Return steps: up to each distance its own ε, beyond the last distance the last ε."""
    if not levels:
        raise InputError("epsilon is an empty table: it must have a distance and its ε at least")
    ends, values = np.array(sorted((float(d), float(e)) for d, e in levels.items())).T
    odd = ends[~((ends >= 0) & (ends < math.inf))]
    if len(odd):
        raise InputError(f"epsilon has an entry at distance {odd[0]:g}: distances must be zero or more, and finite")
    _check_levels(ends, values)
    return lambda distances: values[np.minimum(np.searchsorted(ends, distances), len(ends) - 1)]


def on_lattice(values: ArrayLike, step: Fraction) -> NDArray[np.int64]:
    """Return the nearest whole steps, ⌊value/step + ½⌋ exactly; a float stands for its binary number.

    So values within α land at most ⌈α / step⌉ apart along each axis. Raises InputError beyond 2^40 steps.
    """
    array = np.asarray(values, dtype=np.float64)
    place = array / float(step) + 0.5
    if array.size and np.abs(place).max() >= _FARTHEST:
        raise InputError(f"data have a value beyond {_FARTHEST:,} steps of {float(step):g}: take a longer step")
    out = np.floor(place).astype(np.int64)
    # A float may have been rounded across an edge.
    near = np.flatnonzero(np.abs(place - np.rint(place)).ravel() <= 8 * np.spacing(np.abs(place).ravel() + 1))
    for index in near.tolist():
        out.flat[index] = math.floor(Fraction(float(array.flat[index])) / step + Fraction(1, 2))
    return out


@dataclass(frozen=True, eq=False)
class DiffusionMechanism:
    """Every user's data go to every other, the noisier the further away they are in a network.

    Whoever asks at distance d gets a response that is ε(d)-private for data within α. All responses that one user's
    data give, to whomever, are as private as the one of the largest ε among them: whoever put theirs together know no
    more than the nearest of them. Data u and u' are hidden in each other if ‖u − u'‖₂ ≤ α.
    Source: 2018, eq. (1), Problem 2, Theorem 4. Proof: docs/privacy/diffusion.md.

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

    Raises InputError if α is not above zero, is less than a step or has too many of them, the columns do not fit, the
    CRS is not projected or holds no region in one piece, or the network, ε(d) or the distances cannot be used.

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
            raise InputError(f"columns are {columns}: each needs a name of its own, none of {', '.join(_TAKEN)}")
        if self.bits and (len(columns) > 1 or self.step is not None or self.crs is not None):
            raise InputError("alpha is None, so that the data are bits: they have one column, no step and no crs")
        self.reach, self.distances  # noqa: B018  they may be impossible

    @functools.cached_property
    def distances(self) -> Distances:
        """Distances between users; public."""
        given = self.distance
        return given if isinstance(given, Distances) else distances_of(self.network, given)

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
        if self.dimension != 2 or not crs.is_projected:
            raise InputError(
                f"crs is {self.crs!r} for {self.dimension} column(s): it must be a projected one for two, such as "
                "EPSG:32618; degrees are not lengths"
            )
        use = crs.area_of_use
        if use is not None:
            with contextlib.suppress(InputError):
                extent = extent_on((use.west, use.south, use.east, use.north), self.crs)
                return Domain(extent.bounds, (1, 1), self.crs)
        raise InputError(
            f"crs is {self.crs[:60]!r}, which states no area of use that is a map in one piece: name a projected CRS "
            "that is made for the region, such as EPSG:32618"
        )

    @functools.cached_property
    def _radius(self) -> Fraction:
        """α in units of the data, exactly."""
        assert self.alpha is not None
        if self.area is not None:
            return Fraction(self.area.length(self.alpha, name="alpha"))
        if isinstance(self.alpha, str):
            raise InputError(f"alpha is {self.alpha!r}, but there is no CRS and so no metres: give a plain number")
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
            raise InputError(f"step is {float(self.lattice):g}: it must be at most alpha, {float(self._radius):g}")
        more = Fraction(math.isqrt(self.dimension * 10**12 - 1) + 1, 10**6) if self.dimension > 1 else 0
        reach, most = math.ceil(steps + more), _MOST_REACH // (self.dimension + 1)
        if reach > most:
            raise InputError(
                f"alpha has {reach:,} steps of {float(self.lattice):g}: at most {most:,}; take a longer step"
            )
        return reach

    @property
    def unit(self) -> str:
        """The unit of the data; "" if there is none."""
        return "" if self.crs is None else unit_of(self.crs)

    def distances_between(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return d of pairs (m,) of different nodes; InputError on those apart unless the least ε is stated."""
        nodes = self.network.nodes
        if (owners == requesters).any():
            name = nodes[owners[owners == requesters][0]]
            raise InputError(f"user {name!r} asks for their own data: owner and requester must differ")
        distances = self.distances.between(owners, requesters)
        apart = np.flatnonzero(np.isinf(distances))
        if len(apart) and self.epsilon.least is None:
            raise InputError(
                f"no way leads from {nodes[owners[apart[0]]]!r} to {nodes[requesters[apart[0]]]!r} ({len(apart):,} of "
                f"{len(distances):,} pairs): leave them out, or state the least ε"
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

        Source: 2018, Theorem 4: the variance is n(n + 1)/ε². Data and noise are both rounded to the lattice.
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

    @progress("writing the statement")
    def statement(self, levels: ArrayLike = ()) -> str:
        """Return the promise as text; with the levels of some responses, also how good these are."""
        hidden, crs = "0 and 1 in each other", "" if self.crs is None else f" in {self.crs}"
        if not self.bits:
            alpha = f"{self.alpha}{' m' if crs and not isinstance(self.alpha, str) else ''} apart"
            lattice = f"{self.reach:,} steps of a lattice of {float(self.lattice):g} {self.unit}".rstrip()
            hidden = f"values up to {alpha}{' on the ground' if crs else ''} in each other (α: {lattice})"
        lines = {
            "data": f"{', '.join(self.columns)}{crs}, one row of each user",
            "hidden": hidden,
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
            lines["responses"] = f"ε from {least / NANO:.4g} to {most / NANO:.4g}, {self._describe_error(most, least)}"
            lines["at most"] = (
                f"of two values that are hidden in each other, held for equally likely, all of them together tell the "
                f"right one in {100 * right:.7g}% of all cases"
            )
        lines["public"] = "users, network, distances, ε(d), who has data; who asks is seen by whoever answers"
        lines["not covered"] = "other data about the same users, data that change, what users tell of each other"
        return "\n".join(f"{name:<12} {text}" for name, text in lines.items())

    def _describe_error(self, most: int, least: int) -> str:
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
        return self.mechanism.in_units(self.trim(epsilon).values[-1])

    def trim(self, epsilon: float | Fraction) -> Signal:
        """Return the part up to an ε, for somebody who may know that much; of what was above it nothing is left.

        Raises InputError if it is above the signal's, or below a billionth.
        """
        exact = as_printed(positive(epsilon=epsilon))
        level = exact.numerator * NANO // exact.denominator
        if not self.starts[0] <= level <= self.most:
            raise InputError(
                f"epsilon is {float(epsilon):g}: it must be from {self.starts[0] / NANO:g} to "
                f"{float(self.epsilon):g}, all that the signal of {self.owner!r} has"
            )
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

        frame = pd.DataFrame(self.mechanism.in_units(self.values), columns=list(self.mechanism.columns))
        frame.insert(0, "epsilon", self.starts / NANO)
        return frame

    def __repr__(self) -> str:
        return f"Signal of {self.owner!r} up to ε = {float(self.epsilon):g}, {len(self.starts):,} steps"
