"""Privacy levels by distance: a decreasing function ε(d)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import NANO, InputError, positive

_NUMBER = r"\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?"
#: exp(4-3.3d), exp(-0.5*d), 15*exp(-0.5 d).
_EXPONENTIAL = re.compile(
    rf"(?:({_NUMBER})\*?)?exp\((?:([-+]?(?:{_NUMBER})))?-(?:({_NUMBER})\*?)?d(?:/({_NUMBER}))?\)",
    re.IGNORECASE,
)
#: The largest ε; beyond it nothing is protected, and a float would not tell billionths apart.
_MOST = 1e6
_FORMS = "exp(4-3.3d), or distances with their ε such as 1:15,2:8,4:0.5"

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class PrivacyLevels:
    """ε(d): how private data are against someone at distance d, a function that does not increase.

    ε is rounded down to whole billionths, so that it is never more than promised, and is at least one billionth.

    Source: 2018, section II: "a decreasing function that converts a distance d to a privacy level ε(d)".

    Parameters
    ----------
    epsilon : one of

        - a text: "exp(4-3.3d)" or "15*exp(-0.5d)";
        - a table, {1: 15, 2: 8, 4: 0.5} or "1:15,2:8,4:0.5": up to distance 1 it is 15, beyond it and up to 2 it is 8,
          and so on; beyond the last distance it is the last ε;
        - a function of an array of distances. It is checked on all distances that are asked for together.
    least : ε for whoever is further away, and for whoever is not connected at all; those are refused when None.
    most : ε for whoever is nearer.

    Raises
    ------
    InputError
        If ε is not finite and above zero, grows with the distance, or `least` is above `most`.

    >>> PrivacyLevels("exp(4-3.3d)").at([0.5, 1.5])
    array([10.48556972,  0.38674102])
    >>> PrivacyLevels({1: 15, 2: 8, 4: 0.5}).at([1, 1.2, 3, 100])
    array([15. ,  8. ,  0.5,  0.5])
    >>> PrivacyLevels("exp(4-3.3d)", least=0.5, most=15).billionths([0, 1, float("inf")])
    array([15000000000,  2013752707,   500000000])
    """

    epsilon: str | Mapping[float, float] | Function
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        for name in ("least", "most"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _level(name, getattr(self, name)))
        if self.least is not None and self.most is not None and self.least > self.most:
            raise InputError(f"least is {self.least:g} and most {self.most:g}: least must not be above most")
        if isinstance(self.epsilon, str):
            function = _read(self.epsilon)
        elif isinstance(self.epsilon, Mapping):
            function = _table(self.epsilon)
        elif callable(self.epsilon):
            function = self.epsilon
        else:
            raise InputError(
                f"epsilon is {self.epsilon!r}: it must be a function of the distance, such as {_FORMS}"
            )
        object.__setattr__(self, "_function", function)

    @classmethod
    def of(cls, epsilon: Any) -> PrivacyLevels:
        """Return levels that are given, or make them of a text, a table or a function."""
        return epsilon if isinstance(epsilon, cls) else cls(epsilon)

    def at(self, distances: ArrayLike) -> NDArray[np.float64]:
        """Return ε at each distance, before rounding.

        Raises InputError if distances are negative or NaN, someone is not connected and `least` is not said, or the
        function grows or is not finite and above zero.
        """
        array = np.asarray(distances, dtype=np.float64)
        if not (array >= 0).all():
            odd = float(array[~(array >= 0)].flat[0])
            raise InputError(f"a distance is {odd:g}: it must be zero or more")
        unique, where = np.unique(array, return_inverse=True)
        reached = unique < np.inf
        if self.least is None and not reached.all():
            raise InputError(
                "a distance is infinite: the two are not connected, and nothing is said of them; state the least ε, "
                "which they get, or leave them out"
            )
        out = np.full(len(unique), 0.0 if self.least is None else self.least)
        out[reached] = self._checked(unique[reached])
        low = 0.0 if self.least is None else self.least
        return np.asarray(
            np.clip(out, low, _MOST if self.most is None else self.most)[where].reshape(array.shape)
        )

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
        if isinstance(self.epsilon, str):
            said = self.epsilon
        elif isinstance(self.epsilon, Mapping):
            said = ",".join(f"{d:g}:{e:g}" for d, e in self.epsilon.items())
        else:
            said = "a function of the distance"
        limits = [
            f"at {name} {value:g}" for name in ("least", "most") if (value := getattr(self, name)) is not None
        ]
        return ", ".join([said, *limits])

    def _checked(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate the function at rising distances; InputError if ε grows or is out of range."""
        values = np.asarray(self._function(distances), dtype=np.float64)  # type: ignore[attr-defined]
        if values.shape != distances.shape:
            raise InputError(
                f"epsilon gives {values.shape} numbers for {distances.shape} distances: it must give one for each"
            )
        bad = ~((values > 0) & (values <= _MOST))
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(
                f"epsilon is {values[at]:g} at distance {distances[at]:g}: it must be above zero and at most 10^6"
            )
        _refuse_growth(distances, values)
        return values


def _refuse_growth(distances: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """Raise InputError if ε grows between two of the rising distances."""
    grows = np.diff(values) > 0
    if grows.any():
        at = int(np.argmax(grows))
        raise InputError(
            f"epsilon grows from {values[at]:.10g} at distance {distances[at]:.10g} to {values[at + 1]:.10g} at "
            f"distance {distances[at + 1]:.10g}: whoever is further away must not learn more"
        )


def _level(name: str, value: Any) -> float:
    """Check a privacy level that somebody stated."""
    if positive(**{name: value}) > _MOST:
        raise InputError(f"{name} is {value!r}: it must be at most 10^6")
    return float(value)


def _read(text: str) -> Function:
    """Parse a text, "exp(4-3.3d)" or "1:15,2:8"."""
    plain = "".join(text.split())
    match = _EXPONENTIAL.fullmatch(plain)
    if match is not None:
        factor, start, rate, unit = (None if part is None else float(part) for part in match.groups())
        if factor == 0:
            raise InputError(f"epsilon is {text!r}: the factor {match[1]} must be above zero (at least 1e-308)")
        return _exponential(0.0 if factor is None else math.log(factor), start or 0.0, rate, unit, text)
    pairs = [part.split(":") for part in plain.split(",")]
    try:
        table = [(float(distance), float(epsilon)) for distance, epsilon in pairs]
    except ValueError:
        raise InputError(
            f"epsilon is {text!r}: it must be a function that falls with the distance, such as {_FORMS}"
        ) from None
    if len(dict(table)) < len(table):
        raise InputError(f"epsilon is {text!r}: a distance stands there twice")
    return _table(dict(table))


def _exponential(scale: float, start: float, rate: float | None, unit: float | None, text: str) -> Function:
    """Return exp(scale + start − rate d / unit), one billionth at least."""
    slope = (1.0 if rate is None else rate) / (1.0 if unit is None else unit or math.nan)
    if not 0 < slope < math.inf:
        raise InputError(f"epsilon is {text!r}: it must fall with the distance")
    if scale + start > math.log(_MOST):
        raise InputError(f"epsilon is {text!r}: at distance 0 it must be at most 10^6")
    return lambda distances: np.maximum(np.exp(scale + start - slope * distances), 1 / NANO)


def _table(levels: Mapping[float, float]) -> Function:
    """Return steps: up to each distance its own ε, beyond the last distance the last ε."""
    if not levels:
        raise InputError("epsilon is an empty table: it must have a distance and its ε at least")
    ends, values = np.array(sorted((float(d), float(e)) for d, e in levels.items())).T
    for distance, value in zip(ends, values, strict=True):
        if not 0 <= distance < math.inf or not 0 < value <= _MOST:
            raise InputError(
                f"epsilon is {value:g} at distance {distance:g}: distances must be zero or more, and ε above zero and "
                "at most 10^6"
            )
    _refuse_growth(ends, values)
    return lambda distances: values[np.minimum(np.searchsorted(ends, distances), len(ends) - 1)]
