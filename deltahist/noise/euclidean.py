"""Real noise of density ∝ e^(−ε|v|) in n dimensions as a process in its level ε: docs/processes.md has the derivations.

V_ε = √(2S)/ε · N(0, I) with S ~ Gamma((n + 1)/2). Downwards in ε it makes independent jumps at the rate n + 1 per unit
of ln ε, each √(2W)/ε · N(0, I) with W ~ Exp(1). Upwards, from the value x, it makes them at the rate 1 + ε|x|.

The functions of this file know no level: they reckon with values times their level, w = εx, whose law is the same at
every level. They take arrays of float64 or of Decimal objects alike (`noise/reals.py`), so that `noise/paths.py`
evaluates the very same formulas exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, exact, whole
from deltahist.noise.discrete import Shape
from deltahist.noise.entropy import Words, source
from deltahist.noise.process import rising
from deltahist.noise.reals import Reals, Uniforms, exp, expm1, norm, pairs, sqrt

#: Rows that are worked on at a time: their arrays fit into a processor's cache.
_BLOCK = 1 << 14

Level = float | Fraction


class ScaledDraw(NamedTuple):
    """A value times its level, and what it was made of: for bounds of its rounding error."""

    value: Reals  # (rows, n)
    mixing: Reals  # (rows,) S
    spread: Reals  # (rows,) the squared radius of the normal in S
    normal: Reals  # (rows, n)
    radius: Reals  # (rows,) of all its pairs


class Fall(NamedTuple):
    """The addition of a jump downwards, times its level."""

    value: Reals  # (rows, n)
    scale: Reals  # (rows,) √(2W)
    normal: Reals  # (rows, n)
    radius: Reals  # (rows,)


class Rise(NamedTuple):
    """Where a jump upwards leads, times its level, and what it was made of."""

    value: Reals  # (rows, n)
    size: Reals  # (rows,) z = |w| before the jump, as all that follows
    roots: tuple[Reals, Reals]  # the smaller and the larger one of the inverse Gaussian law
    coin: Reals  # decides between them
    smaller: NDArray[np.bool_]  # which one it was
    total: Reals  # T = W + S
    spread: Reals  # the squared radius of the normals in T
    share: Reals  # S / T
    width: Reals  # √(2 S W / T)
    normal: Reals  # (rows, n)
    radius: Reals  # (rows,)


def start_slots(dimension: int) -> int:
    """Uniform reals that `start` takes."""
    return (dimension + 1) // 2 + (0 if dimension % 2 else 2) + pairs(dimension)


def start(dimension: int, uniforms: Uniforms) -> ScaledDraw:
    """√(2S) · N(0, I), S ~ Gamma((n + 1)/2)."""
    mixing, slot = uniforms.exponential(0), (dimension + 1) // 2
    for i in range(1, slot):
        mixing = mixing + uniforms.exponential(i)
    spread = 0 * mixing
    if dimension % 2 == 0:  # and half of a squared normal
        half, radius = uniforms.normals(slot, 1)
        mixing, spread, slot = mixing + half[:, 0] ** 2 / 2, radius**2, slot + 2
    normal, radius = uniforms.normals(slot, dimension)
    return ScaledDraw(sqrt(2 * mixing)[:, None] * normal, mixing, spread, normal, radius)


def fall_slots(dimension: int) -> int:
    """Uniform reals that `next_below` (the first one) and `fall` take."""
    return 2 + pairs(dimension)


def next_below(dimension: int, uniforms: Uniforms) -> Reals:
    """(rows,) the level of the next jump downwards, relative to the present one."""
    return exp(-uniforms.exponential(0) / (dimension + 1))


def fall(dimension: int, uniforms: Uniforms) -> Fall:
    """√(2W) · N(0, I), W ~ Exp(1)."""
    scale = sqrt(2 * uniforms.exponential(1))
    normal, radius = uniforms.normals(2, dimension)
    return Fall(scale[:, None] * normal, scale, normal, radius)


def rise_slots(dimension: int) -> int:
    """Uniform reals that `next_above` (the first two) and `rise` take."""
    return 7 + pairs(dimension)


def next_above(size: Reals, uniforms: Uniforms) -> tuple[Reals, Reals]:
    """(rows,) when two clocks ring first, relative to the present level: at rate 1 in ln ε, and |x| in ε; z = `size`.

    The earlier one makes the process jump.
    """
    with np.errstate(divide="ignore", over="ignore"):  # from the value 0 the second one never rings
        return 1 / uniforms.value[:, 0], 1 + uniforms.exponential(1) / size


def rise(value: Reals, by_size: NDArray[np.bool_], uniforms: Uniforms) -> Rise:
    """Draw a jump upwards from `value` (rows, n), times the level of the jump; `by_size` where the second clock rang.

    T is the sum of an inverse Gaussian variable and a Gamma one: Gamma(3/2) or, by size, Gamma(1). The inverse Gaussian
    one is drawn as Michael, Schucany and Haas (1976) do, with both roots free of cancellation.
    """
    dimension, size, coin = value.shape[1], norm(value), uniforms.value[:, 4]
    two, spread = uniforms.normals(2, 2)
    square = two[:, 0] ** 2
    larger = size / 2 + square / 4 + sqrt(size * square + square * square / 4) / 2
    roots = size * size / 4 / larger, larger
    smaller = (coin * (size / 2 + roots[0]) <= size / 2).astype(bool)
    total = np.where(smaller, *roots) + uniforms.exponential(5) + np.where(by_size, 0, two[:, 1] ** 2 / 2)
    exponent = 2 * uniforms.exponential(6) / (dimension + 1)
    share = exp(-exponent)
    width = sqrt(-2 * share * expm1(-exponent) * total)
    normal, radius = uniforms.normals(7, dimension)
    new = share[:, None] * value + width[:, None] * normal
    return Rise(new, size, roots, coin, smaller, total, spread**2, share, width, normal, radius)


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

        Raises InputError if the level is not above zero, and on an impossible shape.
        """
        scale, words, n = float(exact(level=level)), source(rng), self.dimension
        try:
            whole_shape = np.broadcast_to(0.0, shape).shape
        except (TypeError, ValueError):
            raise InputError(
                f"shape is {shape!r}: it must be a whole number or a tuple of them, each at least 0"
            ) from None
        out = np.empty((math.prod(whole_shape), n))
        for block in _blocks(len(out)):
            uniforms = _uniforms(words, len(out[block]), start_slots(n))
            out[block] = start(n, uniforms).value / scale
        return out.reshape(*whole_shape, n)

    def refine(
        self, values: Any, level: Level, finer: Level, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise at the level `finer` given `values` (..., n) at `level`; unchanged where the process does not jump.

        Raises InputError unless finer > level > 0 and the values are finite numbers with n in the last axis.
        """
        low, high = map(float, rising(level, finer))
        return self._moved(values, source(rng), lambda rows, words: self._refined(rows, low, high, words))

    def tighten(
        self, values: Any, level: Level, coarser: Level, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Noise at the level `coarser` given `values` (..., n) at `level`: needs nothing but the values.

        Raises InputError unless level > coarser > 0 and the values are finite numbers with n in the last axis.
        """
        low, high = map(float, rising(coarser, level, "coarser", "level"))
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
        low, high = map(float, rising(level, finer))
        met: list[tuple[float, NDArray[np.float64]]] = []
        words = source(rng)
        row = _rows(value, self.dimension)
        if row.ndim != 1:
            raise InputError(
                f"value has the shape {row.shape}: it must be one vector of {self.dimension} numbers"
            )
        self._refined(row[None], low, high, words, met)
        return np.array([e for e, _ in met]), np.array([v for _, v in met]).reshape(-1, self.dimension)

    def _moved(
        self, values: Any, words: Words, move: Callable[[NDArray[np.float64], Words], None]
    ) -> NDArray[np.float64]:
        out = _rows(values, self.dimension)
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
            first, second = next_above(level * norm(rows[going]), _uniforms(words, len(going), 2))
            level = level * np.minimum(first, second)
            stay = level <= high
            going, level, by_size = going[stay], level[stay], (second < first)[stay]
            uniforms, factor = _uniforms(words, len(going), rise_slots(self.dimension)), level[:, None]
            rows[going] = rise(factor * rows[going], by_size, uniforms).value / factor
            if met is not None and len(going):
                met.append((float(level[0]), rows[0].copy()))

    def _tightened(self, rows: NDArray[np.float64], high: float, low: float, words: Words) -> None:
        going, level = np.arange(len(rows)), np.full(len(rows), high)
        while len(going):
            level = level * next_below(self.dimension, _uniforms(words, len(going), 1))
            stay = level >= low
            going, level = going[stay], level[stay]
            uniforms = _uniforms(words, len(going), fall_slots(self.dimension))
            rows[going] += fall(self.dimension, uniforms).value / level[:, None]


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


def _rows(values: Any, dimension: int) -> NDArray[np.float64]:
    """Copy the values as float64."""
    try:
        out = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError("values are not an array of numbers (are rows of different lengths?)") from None
    if out.ndim == 0 or out.shape[-1] != dimension:
        raise InputError(
            f"values have the shape {out.shape}: the last axis must have length {dimension}, the dimension"
        )
    if not np.isfinite(out).all():
        raise InputError(f"values hold {out[~np.isfinite(out)][0]}: they must be finite numbers")
    return out
