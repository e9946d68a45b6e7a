"""Noise of every law: at one level, or as a path over all levels, on which many releases cost as much as the best.

A level is 1 / parameter of the law: the higher, the less noise. V at any level is V at a higher one plus independent
noise, so that releases at several levels are as private as at the highest of them alone (docs/privacy/gradual.md).
Source, on the integers here: Koufogiannis, Han and Pappas, 2015, Theorem 10, Theorem 12; derivations:
docs/internals/gradual.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, as_exact_fraction, check_choice, check_whole
from deltahist.noise.discrete import (
    CAP,
    Shape,
    capped_geometric,
    discrete_gaussian,
    discrete_laplace,
    geometric,
)
from deltahist.noise.exact import (
    Interval,
    InversionTable,
    Rng,
    Words,
    chance_table,
    complement,
    exp_bounds,
    less_than,
    power_table,
    ratio,
    source,
    times,
)
from deltahist.privacy import Gaussian, Laplace, Law, RoundedGaussian

Integers = NDArray[np.int64]
Level = float | Fraction

#: Threads that draw: more of them take memory, and wait for it.
MOST_THREADS = 4
#: Values refined at a time, so that the working memory does not grow with the array.
_BLOCK = 1 << 18
#: Longest table of first outcomes; longer ones are drawn digit by digit.
_LONGEST = 4096
#: A geometric law is all but surely (2^−64) within so many of its scales.
_SPREAD = 45
#: Gaussian noise is drawn on a lattice so fine that σ is 2^_FINE of its steps at first.
_FINE = 24
#: By so much Gaussian noise is larger than its level says; it pays for the lattice (docs/privacy/gradual.md).
_MARGIN = 1 + Fraction(1, 1 << 40)
#: Least variance, in steps, of what a refinement draws: below it the lattice would show.
_LEAST_VARIANCE = 64
#: Gaussian noise on whole numbers adds up to Gaussian noise where this is large: e^(−2π² · 3) is 10⁻²⁶.
_LEAST_ADDED = 3
#: By so much the noise of a copy is larger than it says, which pays for that (docs/privacy/gradual.md).
_COPY_MARGIN = 1 + Fraction(1, 1 << 30)


class GeometricProcess:
    """Two-sided geometric noise, P(V = k) ∝ e^(−level |k|), as a process in the level; exact.

    With p = e^(−level), V at a lower level is V at the higher one plus, with probability 1 − (p'/p)((1 − p)/(1 −
    p'))², further two-sided geometric noise of the lower level (p' at the higher). `refine` draws from what that
    implies backwards: from a value x, the path does not jump with probability e^((level − finer) |x|) sinh(level) /
    sinh(finer); else it moves towards zero or jumps, perhaps back to x (docs/internals/gradual.md). Levels go down to
    2^−50, and values up to ±2^60. Source: 2015, section 3.4: the lazy Markov process V_ε, on the integers here.

    >>> process = GeometricProcess()
    >>> coarse = process.start(0.5, 5, rng=np.random.default_rng(2))
    >>> coarse.tolist(), process.refine(coarse, 0.5, 2, rng=np.random.default_rng(2)).tolist()
    ([1, -1, -3, 0, -2], [0, 0, -1, 0, 0])
    """

    def start(self, level: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        """Draw noise at a first level, int64 of `shape`, each number by itself (2015, Theorem 11, eq. (32), (33))."""
        return discrete_laplace(1 / as_exact_fraction(level=level), shape, rng=rng)

    def refine(self, values: ArrayLike, level: Level, finer: Level, *, rng: Rng = None) -> Integers:
        """Move values to a higher level; earlier ones do not matter.

        On the line the density of values x before and y after, at levels a < b, is a²/(2b) e^(−b|y|) δ(x − y) +
        a (b² − a²)/(4b) e^(−a|x − y| − b|y|). y is drawn given x, from that over the density a/2 e^(−a|x|) of x.
        Source, on the integers: 2015, Theorem 10, eq. (19), (20), (25), Algorithm 1; 2015 abstract, Theorem 1, eq. (2).
        """
        a, b = rising(level, finer)
        words = source(rng)
        return _in_blocks(values, lambda part: _refined(part, a, b, words))

    def tighten(self, values: ArrayLike, level: Level, coarser: Level, *, rng: Rng = None) -> Integers:
        """Move values to a lower level; the addition does not depend on the values.

        On the line it is 0 with probability (a/b)², else Laplace noise of the lower level a: the density given the
        value y at level b is (a/b)² δ(x − y) + (1 − (a/b)²) a/2 e^(−a|x − y|).
        Source, on the integers: 2015, section 3.1.2, eq. (28), (29).
        """
        a, b = rising(coarser, level, "coarser", "level")
        stays, words = _stays_when_tightened(a, b), source(rng)

        def tightened(part: Integers) -> Integers:
            out = part.copy()
            moved = np.flatnonzero(stays.draw(len(part), words))
            out[moved] += discrete_laplace(1 / a, len(moved), rng=rng)
            return out

        return _in_blocks(values, tightened)

    def add(self, level: Level, coarser: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        """Draw what takes released numbers to a lower level, where their own noise is not known."""
        return self.tighten(np.zeros(shape, dtype=np.int64), level, coarser, rng=rng)

    def nearest(self, values: Integers) -> Integers:
        """Return values as whole numbers, which is how they enter a release."""
        return values


def _refined(values: Integers, a: Fraction, b: Fraction, words: Words) -> Integers:
    """V at level b given V = `values` at level a < b.

    Let x = |V|, r = e^(a − b), and G geometric, P(G ≥ k) = r^k. First a jump over zero, with the probability that
    `_first` has; else G if G ≤ x; else x itself, or a jump outwards. Jumps are 1 + geometric, of ratio e^(−a − b).
    """
    size = np.abs(values)
    outward = np.where(values < 0, -1, 1)
    first = _first(a, b, len(values), words)
    # 0 stands for a jump over zero, k + 1 for G = k.
    out = outward * (first - 1)
    far = np.flatnonzero(first > size + 1)
    out[far] = values[far]
    jumps = far[_jumps_outwards(a, b).draw(len(far), words) == 0]
    over = np.flatnonzero(first == 0)
    out[jumps] += outward[jumps] * (1 + geometric(1 / (a + b), len(jumps), words))
    out[over] = -outward[over] * (1 + geometric(1 / (a + b), len(over), words))
    return out


def _first(a: Fraction, b: Fraction, number: int, words: Words) -> Integers:
    """0 with probability 1 − s, else 1 + G: the distribution function at j is 1 − s r^j, with s of `_inwards`."""
    scale = 1 / (b - a)
    if scale * _SPREAD > _LONGEST:
        inwards = _inwards(a, b).draw(number, words) == 0
        out = np.zeros(number, dtype=np.int64)
        # A step beyond every value leads nowhere: how far beyond does not matter.
        out[inwards] = 1 + capped_geometric(scale, int(inwards.sum()), words)
        return out
    table = _first_table(a, b)
    out = table.draw(number, words)
    beyond = np.flatnonzero(out == len(table.thresholds))
    out[beyond] += geometric(scale, len(beyond), words)
    return out


def _share(x: Fraction, y: Fraction, bits: int) -> Interval:
    """Bounds of (1 − e^−x) / (1 − e^−y) for x ≤ y."""
    more = bits + 64 + max(0, -math.frexp(float(y))[1])  # so many bits are lost where y is small
    above, below = (complement(exp_bounds(z, more), more) for z in (x, y))
    return ratio(above, below, bits)


@functools.lru_cache(maxsize=64)
def _inwards(a: Fraction, b: Fraction) -> InversionTable:
    """s = (1 − e^(−a − b)) / (1 − e^(−2b)): no jump over zero."""
    return chance_table(lambda bits: _share(a + b, 2 * b, bits))


@functools.lru_cache(maxsize=64)
def _jumps_outwards(a: Fraction, b: Fraction) -> InversionTable:
    """1 − (1 − e^(−2a)) / (1 − e^(−a − b)): of values that neither jump over zero nor move towards it."""
    return chance_table(lambda bits: complement(_share(2 * a, a + b, bits), bits))


@functools.lru_cache(maxsize=64)
def _first_table(a: Fraction, b: Fraction) -> InversionTable:
    """F(j) = 1 − s e^((a − b) j)."""
    share = functools.cache(functools.partial(_share, a + b, 2 * b))

    def law(power: Interval, bits: int) -> Interval:
        return complement(times(share(bits), power, bits), bits)

    return power_table(b - a, 0, math.ceil(_SPREAD / (b - a)) + 1, law)


@functools.lru_cache(maxsize=64)
def _stays_when_tightened(a: Fraction, b: Fraction) -> InversionTable:
    """(e^−b / e^−a) ((1 − e^−a) / (1 − e^−b))² for a < b: nothing is added."""

    def bounds(bits: int) -> Interval:
        more = bits + 64
        part, power = _share(a, b, more), exp_bounds(b - a, more)
        low, high = times(times(part, part, more), power, more)
        return low >> 64, (high >> 64) + 1

    return chance_table(bounds)


class GaussianProcess:
    """Discrete Gaussian noise on whole numbers. It has no path: two of them do not refine one another exactly."""

    def start(self, level: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        return discrete_gaussian(variance=1 / as_exact_fraction(level=level), shape=shape, rng=rng)

    def add(self, level: Level, coarser: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        a, b = rising(coarser, level, "coarser", "level")
        if (1 - a / b) / b < _LEAST_ADDED:
            raise InputError(
                "its Gaussian noise is too small for a copy so near; take less, give its state, or publish a release "
                "at that budget"
            )
        return discrete_gaussian(variance=_COPY_MARGIN / a - 1 / b, shape=shape, rng=rng)

    def nearest(self, values: Integers) -> Integers:
        return values


@dataclass(frozen=True)
class Brownian(GaussianProcess):
    """Gaussian noise as a process in 1/σ², on a lattice of steps 2^−bits; `nearest` rounds it to whole numbers.

    Discrete Gaussian noises on one lattice do not refine one another exactly, unless their variances are an odd
    number apart (docs/internals/gradual.md). So the path lies on a lattice so fine that this cannot matter: the
    guarantee holds to the last digit (docs/privacy/gradual.md), and a release is rounded.

    >>> process = Brownian.at(Fraction(1, 100))
    >>> coarse = process.start(Fraction(1, 100), 4, rng=np.random.default_rng(1))
    >>> fine = process.refine(coarse, Fraction(1, 100), Fraction(1, 4), rng=np.random.default_rng(1))
    >>> process.nearest(coarse).tolist(), process.nearest(fine).tolist()
    ([-3, -18, -5, -2], [0, 0, 1, -1])
    """

    bits: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", check_whole(least=0, bits=self.bits))

    @classmethod
    def at(cls, level: Level) -> Brownian:
        """Return the process that begins at a level: σ is about 2^24 steps there."""
        return cls(max(0, _FINE + math.floor(math.log2(float(as_exact_fraction(level=level))) / 2)))

    def variance(self, level: Fraction) -> Fraction:
        """σ² at a level, in steps squared."""
        return (1 << 2 * self.bits) * _MARGIN / level

    def start(self, level: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        return discrete_gaussian(variance=self.variance(as_exact_fraction(level=level)), shape=shape, rng=rng)

    def refine(self, values: ArrayLike, level: Level, finer: Level, *, rng: Rng = None) -> Integers:
        # Gaussian around the part of each value that remains on average.
        a, b = rising(level, finer)
        variance = self._enough(self.variance(b) * (1 - a / b), a, b)
        words = source(rng)
        return _in_blocks(values, lambda part: _gaussian_around(part, a / b, variance, words))

    def tighten(self, values: ArrayLike, level: Level, coarser: Level, *, rng: Rng = None) -> Integers:
        a, b = rising(coarser, level, "coarser", "level")
        self._enough(self.variance(b) * (1 - a / b), a, b)
        array = _whole(values)
        return array + discrete_gaussian(variance=self.variance(a) - self.variance(b), shape=array.shape, rng=rng)

    def nearest(self, values: ArrayLike) -> Integers:
        array = _whole(values)
        return array if self.bits == 0 else (array + (1 << self.bits - 1)) >> self.bits

    def _enough(self, variance: Fraction, a: Fraction, b: Fraction) -> Fraction:
        if variance < _LEAST_VARIANCE:
            raise InputError(
                f"levels {float(a):.10g} and {float(b):.10g} of Gaussian noise are too near to each other, or too far "
                "from the first one: take a larger step, or begin a new chain"
            )
        return variance


def _gaussian_around(values: Integers, share: Fraction, variance: Fraction, words: Words) -> Integers:
    """Draw k with P(k) ∝ e^(−(k − share · value)² / (2 s²)), s² = `variance`.

    By rejection, from a whole number near the centre.

    With centre m + f, |f| ≤ 1, and Y two-sided geometric of scale t: m + Y is accepted with e^−γ, γ = (|Y| ∓ f −
    s²/t)² / (2 s²) + (1 ∓ f)/t ≥ 0, the sign being that of Y (Canonne, Kamath, Steinke 2020, algorithm 3, around
    any centre).
    """
    near = np.rint(values.astype(np.float64) * float(share)).astype(np.int64)
    t = math.isqrt(int(variance)) + 1
    centre, double = float(variance / t), float(2 * variance)
    # What f can change, and floats: the probability moves by less than 4/s, e^(−u²/2) u being at most 0.61.
    margin = 4 / math.sqrt(float(variance)) + 1e-10
    out = np.empty(len(values), dtype=np.int64)
    left = np.arange(len(values))
    while len(left):
        offer = geometric(Fraction(t), len(left), words) - geometric(Fraction(t), len(left), words)
        word = words.words(len(left))
        distance = np.abs(offer).astype(np.float64) - centre
        with np.errstate(under="ignore"):
            chance = np.exp(-distance * distance / double - 1 / t)
        real = word.astype(np.float64) * 2.0**-64
        accept = real < chance
        # Floats decide only where they are far enough from the threshold to be right.
        for i in np.flatnonzero(np.abs(real - chance) <= margin):
            at = left[i]
            side = 1 if offer[i] >= 0 else -1
            f = side * (int(values[at]) * share - int(near[at]))
            gamma = (abs(int(offer[i])) - f - variance / t) ** 2 / (2 * variance) + (1 - f) / t
            accept[i] = less_than(int(word[i]), functools.partial(exp_bounds, gamma), words)
        out[left[accept]] = near[left[accept]] + offer[accept]
        left = left[~accept]
    return out


#: Noise of one law at any level; and that whose values can be moved to any other level.
Process = GeometricProcess | GaussianProcess
Refinable = GeometricProcess | Brownian

#: Name of a law -> its process, from the first level of a chain.
PROCESSES: dict[str, Callable[[Fraction], Process]] = {
    Laplace.kind: lambda first: GeometricProcess(),
    Gaussian.kind: lambda first: GaussianProcess(),
    RoundedGaussian.kind: Brownian.at,
}


def process_of(law: Law, first: Fraction | None = None) -> Process:
    """Return the process of a law, from the first level of its chain (its own by default)."""
    check_choice(tuple(PROCESSES), law=law.kind)
    return PROCESSES[law.kind](1 / law.parameter if first is None else first)


def draw(law: Law, size: int, rng: Rng) -> Integers:
    """Draw exact noise of a law (size,). All noise of releases by themselves is drawn here."""
    if not law.parameter:  # nothing changes between neighbours: there is nothing to hide
        return np.zeros(size, dtype=np.int64)
    process = process_of(law)
    return process.nearest(process.start(1 / law.parameter, size, rng=rng))


def rising(low: Level, high: Level, first: str = "level", second: str = "finer") -> tuple[Fraction, Fraction]:
    """Return two levels as fractions; InputError unless the second is above the first."""
    a, b = as_exact_fraction(**{first: low}), as_exact_fraction(**{second: high})
    if not a < b:
        raise InputError(
            f"{second} is {float(b):.10g} with {first} {float(a):.10g}: {second} must be above {first} (the higher, "
            "the less noise)"
        )
    return a, b


def _whole(values: ArrayLike) -> Integers:
    """Return values as int64, or raise InputError."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise InputError(f"values are of type {array.dtype}: they must be whole numbers")
    if array.size and max(int(array.max()), -int(array.min())) >= CAP:
        far = max(int(array.max()), int(array.min()), key=abs)
        raise InputError(
            f"values hold {far}: they must lie within ±2^60, as noise of a scale of at most 2^50 does (are they noise?)"
        )
    return array.astype(np.int64, copy=False)


def _in_blocks(values: ArrayLike, change: Callable[[Integers], Integers]) -> Integers:
    """Change all values, some at a time."""
    array = _whole(values)
    out = np.empty(array.shape, dtype=np.int64)
    flat, given = out.reshape(-1), array.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        flat[part] = change(given[part])
    return out
