"""Real noise of density ∝ e^(−ε|v|) in n dimensions as a process in its level ε: docs/processes.md has the derivations.

V_ε = √(2S)/ε · N(0, I) with S ~ Gamma((n + 1)/2). Downwards in ε it makes independent jumps at the rate n + 1 per unit
of ln ε, each √(2W)/ε · N(0, I) with W ~ Exp(1). Upwards, from the value x, it makes them at the rate 1 + ε|x|.

The functions of this file take arrays of float64 or of Decimal objects alike (`noise/reals.py`), so that
`noise/paths.py` evaluates the very same formulas exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, exact, whole
from deltahist.noise.entropy import Words, source
from deltahist.noise.reals import Reals, Uniforms, exp, expm1, norm, pairs, sqrt

#: Rows that are worked on at a time: their arrays fit into a processor's cache.
_BLOCK = 1 << 14

Shape = int | tuple[int, ...]
Level = float | Fraction


class Drawn(NamedTuple):
    """The value at a fixed level, times that level, and what it was made of: for bounds of its rounding error."""

    value: Reals  # (rows, n)
    mixing: Reals  # (rows,) S
    spread: Reals  # (rows,) the square of the radius that is in S
    normal: Reals  # (rows, n)
    radius: Reals  # (rows,) of the normals


class Addition(NamedTuple):
    """What a jump downwards adds."""

    value: Reals  # (rows, n)
    scale: Reals  # √(2W), times the level
    normal: Reals  # (rows, n)
    radius: Reals


class Jump(NamedTuple):
    """A jump upwards: the new value, and what it was made of."""

    value: Reals  # (rows, n)
    size: Reals  # z = level · |value before|
    smaller: Reals  # the smaller root of inverse Gaussian law
    uniform: Reals  # what decides between the roots
    gaussian: Reals  # G, the root that was taken
    total: Reals  # T
    radius: Reals  # of the normals in T
    share: Reals  # r = S / T
    width: Reals  # √(2 r (1 − r) T), the scale of the Gaussian part times the level
    normal: Reals  # (rows, n)
    normal_radius: Reals


def start_slots(dimension: int) -> int:
    """Uniform reals that `start` takes."""
    return (dimension + 1) // 2 + (0 if dimension % 2 else 2) + pairs(dimension)


def start(dimension: int, uniforms: Uniforms) -> Drawn:
    """The noise at level 1: √(2S) · N(0, I), S ~ Gamma((n + 1)/2)."""
    mixing, slot = uniforms.exponential(0), (dimension + 1) // 2
    for i in range(1, slot):
        mixing = mixing + uniforms.exponential(i)
    spread = 0 * mixing
    if dimension % 2 == 0:  # and half of a squared normal
        half, radius = uniforms.normals(slot, 1)
        mixing, spread, slot = mixing + half[:, 0] ** 2 / 2, radius**2, slot + 2
    normal, radius = uniforms.normals(slot, dimension)
    return Drawn(sqrt(2 * mixing)[:, None] * normal, mixing, spread, normal, radius)


def fall_slots(dimension: int) -> int:
    """Uniform reals that `fall` takes."""
    return 2 + pairs(dimension)


def next_below(level: Reals, dimension: int, uniforms: Uniforms) -> Reals:
    """The level of the next jump downwards."""
    return level * exp(-uniforms.exponential(0) / (dimension + 1))


def fall(level: Reals, dimension: int, uniforms: Uniforms) -> Addition:
    """What a jump downwards at `level` adds."""
    scale = sqrt(2 * uniforms.exponential(1))
    normal, radius = uniforms.normals(2, dimension)
    return Addition((scale / level)[:, None] * normal, scale, normal, radius)


def rise_slots(dimension: int) -> int:
    """Uniform reals that `next_above` and `rise` take."""
    return 7 + pairs(dimension)


def next_above(level: Reals, length: Reals, uniforms: Uniforms) -> tuple[Reals, Reals]:
    """When two clocks ring first: one of rate 1 per unit of ln ε, and one of rate |x| = `length` per unit of ε."""
    with np.errstate(divide="ignore"):  # from the value 0 the second never rings
        return level / uniforms.value[:, 0], level + uniforms.exponential(1) / length


def rise(level: Reals, value: Reals, by_length: NDArray[np.bool_], uniforms: Uniforms) -> Jump:
    """A jump upwards at `level` from `value`; `by_length` where the second clock has rung.

    T = W + S given x is an inverse Gaussian variable and a Gamma one: Gamma(3/2) or, by length, Gamma(1). The inverse
    Gaussian one is drawn as Michael, Schucany and Haas do, with both roots free of cancellation.
    """
    dimension = value.shape[1]
    z = level * norm(value)
    two, radius = uniforms.normals(2, 2)
    square, coin = two[:, 0] ** 2, uniforms.value[:, 4]
    larger = z / 2 + square / 4 + sqrt(z * square + square * square / 4) / 2
    smaller = z * z / 4 / larger
    gaussian = np.where(coin * (z / 2 + smaller) <= z / 2, smaller, larger)
    total = gaussian + uniforms.exponential(5) + np.where(by_length, 0, two[:, 1] ** 2 / 2)
    exponent = 2 * uniforms.exponential(6) / (dimension + 1)
    share = exp(-exponent)
    width = sqrt(-2 * share * expm1(-exponent) * total)
    normal, normal_radius = uniforms.normals(7, dimension)
    new = share[:, None] * value + (width / level)[:, None] * normal
    return Jump(new, z, smaller, coin, gaussian, total, radius, share, width, normal, normal_radius)


@dataclass(frozen=True)
class Euclidean:
    """Noise of density ∝ e^(−ε|v|) in n dimensions, for all levels ε > 0 at once.

    A level is a rate, 1/scale: the larger, the less noise. Values are float64 and the laws exact up to their rounding:
    this is for simulations and pictures. Releases use whole numbers (`noise/paths.py`).

    Parameters
    ----------
    dimension : n, at least 1; with n = 1 it is Laplace's law.

    >>> noise, rng = Euclidean(2), np.random.default_rng(1)
    >>> first = noise.start(0.5, 4, rng=rng)
    >>> second = noise.refine(first, 0.5, 0.6, rng=rng)
    >>> (first == second).all(axis=1)  # few jumps between levels so near
    array([ True, False, False,  True])
    """

    dimension: int

    def __post_init__(self) -> None:
        whole(dimension=self.dimension)

    def start(
        self, level: Level, shape: Shape, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise (*shape, n) at `level`.

        Raises InputError if the level is not above zero.
        """
        scale, words, n = float(exact(level=level)), source(rng), self.dimension
        out = np.empty((int(np.prod(shape)), n))
        for block in _blocks(len(out)):
            uniforms = _uniforms(words, len(out[block]), start_slots(n))
            out[block] = start(n, uniforms).value / scale
        return out.reshape(*np.atleast_1d(np.asarray(shape, dtype=int)), n)

    def refine(
        self, values: Any, level: Level, finer: Level, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise at the level `finer` given `values` (..., n) at `level`; unchanged where the process does not jump.

        Raises InputError unless finer > level > 0 and the values are finite numbers with n in the last axis.
        """
        low, high = _rising(level, finer)
        return self._moved(values, source(rng), lambda rows, words: self._refined(rows, low, high, words))

    def tighten(
        self, values: Any, level: Level, coarser: Level, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise at the level `coarser` given `values` (..., n) at `level`: needs nothing but the values.

        Raises InputError unless level > coarser > 0 and the values are finite numbers with n in the last axis.
        """
        low, high = _falling(level, coarser)
        return self._moved(values, source(rng), lambda rows, words: self._tightened(rows, high, low, words))

    def jumps(
        self, value: Any, level: Level, finer: Level, *, rng: np.random.Generator | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All jumps of one row (n,) from `level` up to `finer`: their levels (K,) and the values (K, n) above them.

        Raises InputError as `refine` does.

        >>> levels, values = Euclidean(3).jumps([1, 0, 0], 1, 10, rng=np.random.default_rng(3))
        >>> levels.round(1), values.shape
        (array([2.4, 2.9, 3.3, 3.6, 5.2, 5.9, 6.4, 9.3]), (8, 3))
        """
        low, high = _rising(level, finer)
        met: list[tuple[float, NDArray[np.float64]]] = []
        words = source(rng)
        self._refined(_rows(value, self.dimension, "value")[None], low, high, words, met)
        return np.array([e for e, _ in met]), np.array([v for _, v in met]).reshape(-1, self.dimension)

    def _moved(
        self, values: Any, words: Words, move: Callable[[NDArray[np.float64], Words], None]
    ) -> NDArray[np.float64]:
        out = _rows(values, self.dimension, "values")
        rows = out.reshape(-1, self.dimension)
        for block in _blocks(len(rows)):
            move(rows[block], words)
        return out

    def _refined(
        self,
        rows: NDArray[np.float64],
        low: float,
        high: float,
        words: Words,
        met: list[tuple[float, NDArray[np.float64]]] | None = None,
    ) -> None:
        """Change the rows in place, round by round those that still jump; note the jumps of a single one."""
        going, level = np.arange(len(rows)), np.full(len(rows), low)
        while len(going):
            uniforms = _uniforms(words, len(going), 2)
            first, second = next_above(level, norm(rows[going]), uniforms)
            level = np.minimum(first, second)
            stay = level <= high
            going, level, by_length = going[stay], level[stay], (second < first)[stay]
            uniforms = _uniforms(words, len(going), rise_slots(self.dimension))
            rows[going] = rise(level, rows[going], by_length, uniforms).value
            if met is not None and len(going):
                met.append((float(level[0]), rows[0].copy()))

    def _tightened(self, rows: NDArray[np.float64], high: float, low: float, words: Words) -> None:
        going, level = np.arange(len(rows)), np.full(len(rows), high)
        while len(going):
            level = next_below(level, self.dimension, _uniforms(words, len(going), 1))
            stay = level >= low
            going, level = going[stay], level[stay]
            uniforms = _uniforms(words, len(going), fall_slots(self.dimension))
            rows[going] += fall(level, self.dimension, uniforms).value


@dataclass(frozen=True)
class Laplace:
    """Laplace noise in every coordinate by itself, density ∝ e^(−ε|v|): `Euclidean(1)` for values of any shape.

    >>> noise, rng = Laplace(), np.random.default_rng(1)
    >>> noise.tighten(noise.start(2, (2, 3), rng=rng), 2, 1, rng=rng).shape
    (2, 3)
    """

    def start(
        self, level: Level, shape: Shape, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise of `shape` at `level`; raises InputError as `Euclidean` does, as all methods here."""
        return Euclidean(1).start(level, shape, rng=rng)[..., 0]

    def refine(
        self, values: Any, level: Level, finer: Level, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise at the level `finer` given `values` at `level`."""
        return Euclidean(1).refine(np.asarray(values)[..., None], level, finer, rng=rng)[..., 0]

    def tighten(
        self, values: Any, level: Level, coarser: Level, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise at the level `coarser` given `values` at `level`."""
        return Euclidean(1).tighten(np.asarray(values)[..., None], level, coarser, rng=rng)[..., 0]


def _blocks(rows: int) -> list[slice]:
    return [slice(first, first + _BLOCK) for first in range(0, rows, _BLOCK)]


def _uniforms(words: Words, rows: int, slots: int) -> Uniforms:
    return Uniforms(words.words(rows * slots).reshape(rows, slots, 1))


def _rising(level: Level, finer: Level) -> tuple[float, float]:
    low, high = exact(level=level), exact(finer=finer)
    if high <= low:
        raise InputError(
            f"finer is {finer} and level {level}: it must be greater (a level is 1/scale: the larger, the less noise; "
            "the other way is to tighten)"
        )
    return float(low), float(high)


def _falling(level: Level, coarser: Level) -> tuple[float, float]:
    high, low = exact(level=level), exact(coarser=coarser)
    if low >= high:
        raise InputError(
            f"coarser is {coarser} and level {level}: it must be smaller (a level is 1/scale: the larger, the less "
            "noise; the other way is to refine)"
        )
    return float(low), float(high)


def _rows(values: Any, dimension: int, name: str) -> NDArray[np.float64]:
    """A copy of the values as float64."""
    try:
        out = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError(f"{name} are not an array of numbers (are rows of different lengths?)") from None
    if out.ndim == 0 or out.shape[-1] != dimension:
        raise InputError(
            f"{name} have the shape {out.shape}: the last axis must have length {dimension}, the dimension"
        )
    if not np.isfinite(out).all():
        raise InputError(f"{name} hold {out[~np.isfinite(out)][0]}: they must be finite numbers")
    return out
