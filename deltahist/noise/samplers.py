"""Exact samplers for noise at one or several levels, and for published quantiles.

The level is one divided by the parameter of the law, so a higher level means less noise. Noise at any level is noise at
a higher level plus independent noise, so releases at several levels are together as private as the release at the
highest level (docs/privacy/gradual.md, which derives this for whole numbers).
Source: Koufogiannis, Han and Pappas, 2015, Theorem 10 and Theorem 12.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, as_exact_fraction
from deltahist.laws import MOST_SCALE, Gaussian, Laplace, Law, RoundedGaussian
from deltahist.noise import exact
from deltahist.noise.exact import Interval, InversionTable, Rng, Words, complement, exp_bounds, open_words

Integers = NDArray[np.int64]
Shape = int | Sequence[int]
Level = float | Fraction

#: Largest number of entries in a table. For larger scales, noise is drawn digit by digit, in base 1024.
_LONGEST_TABLE = 4096


def discrete_laplace(scale: float | Fraction, shape: Shape = (), *, rng: Rng = None) -> Integers:
    """Draw exact two-sided geometric noise, P(k) ∝ exp(−|k| / scale), as an int64 array of `shape`.

    Source of the law: Ghosh, Roughgarden and Sundararajan 2009. docs/internals/noise.md describes the sampling.

    Parameters
    ----------
    scale : scale of the noise, from 2^−1074 to 2^50. A float counts as its exact binary value.
    shape : shape of the array, where () gives a 0-d array.
    rng : a seeded generator (only for experiments), or None for the operating system's entropy.

    Raises InputError if the scale is out of range.

    >>> discrete_laplace(2.5, (2, 3)).shape
    (2, 3)
    """
    known = _read_scale(MOST_SCALE, scale=scale)
    draw = _draw_narrow_laplace if _count_entries(known) <= _LONGEST_TABLE else _draw_difference
    words = open_words(rng)
    return _fill_blocks(shape, lambda number: draw(known, number, words))


def _read_scale(most: int, **parameter: Any) -> Fraction:
    """Return the only keyword argument as a fraction. Raises InputError if it is below 2^−1074 or above `most`."""
    known, (name,) = as_exact_fraction(**parameter), parameter
    # A scale below the smallest float is surely a mistake, and e^(−1 / scale) would need thousands of digits.
    if not Fraction(1, 1 << 1074) <= known <= most:
        rule = f"it must be between 2^-1074 and 2^{most.bit_length() - 1}, so that no 64-bit integer overflows"
        raise InputError(f"{name} is too {'large' if known > most else 'small'}: {rule}")
    return known


def _fill_blocks(shape: Shape, draw: Callable[[int], Integers]) -> Integers:
    """Draw an array of `shape`, block by block."""
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)
    for start in range(0, flat.size, exact.BLOCK):
        part = flat[start : start + exact.BLOCK]
        part[:] = draw(part.size)
    return out


def _sign_randomly(sizes: Integers, words: Words) -> Integers:
    """Multiply each size by an independent random sign."""
    bits = np.unpackbits(words(-(-len(sizes) // 64)).view(np.uint8), count=len(sizes))
    return sizes * (1 - 2 * bits.view(np.int8))


def _draw_narrow_laplace(scale: Fraction, number: int, words: Words) -> Integers:
    """Draw |X| from a table of L entries, and then a sign. Given |X| ≥ L, the excess over L is geometric."""
    table = _laplace_size_table(scale)
    sizes = _draw_beyond_table(table, number, words, lambda beyond: draw_geometric(scale, beyond, words))
    return _sign_randomly(sizes, words)


def _draw_beyond_table(table: InversionTable, number: int, words: Words, excess: Callable[[int], Integers]) -> Integers:
    """Draw from a table, and add a draw from `excess` to each value beyond the last threshold."""
    out = table.draw(number, words)
    beyond = np.flatnonzero(out == len(table.thresholds))
    if len(beyond):
        out[beyond] += excess(len(beyond))
    return out


def draw_geometric(scale: Fraction, number: int, words: Words) -> Integers:
    """Draw G ≥ 0 with P(G ≥ k) = e^(−k / scale). The digits of G in base 1024 are independent."""
    out = np.zeros(number, dtype=np.int64)
    unit = 1
    digits, table = _digit_tables(scale)
    for digit in digits:
        out += unit * digit.draw(number, words)
        unit *= 1024
    left = np.arange(number)
    while len(left):  # geometric variables are memoryless, so the excess is another draw
        sizes = table.draw(len(left), words)
        out[left] += unit * sizes
        left = left[sizes == len(table.thresholds)]
    return out


def _draw_difference(scale: Fraction, number: int, words: Words) -> Integers:
    """Draw the difference of two geometric variables, which has the discrete Laplace law."""
    return draw_geometric(scale, number, words) - draw_geometric(scale, number, words)


@functools.lru_cache(maxsize=64)
def _digit_tables(scale: Fraction) -> tuple[tuple[InversionTable, ...], InversionTable]:
    """Return the tables for a geometric variable's low digits, lowest first, and the table for the rest."""
    digits = []
    while _count_entries(scale) > _LONGEST_TABLE:
        digits.append(_digit_table(scale))
        scale /= 1024
    return tuple(digits), _geometric_table(scale)


def _count_entries(scale: Fraction) -> int:
    """Return the length of a geometric table that only one in about 2^64 draws exceeds."""
    return max(1, math.ceil(45 * scale))


def _geometric_table(scale: Fraction) -> InversionTable:
    """Return the table of F(k) = 1 − e^(−(k+1) / scale)."""
    return exact.power_table(1 / scale, 1, _count_entries(scale), complement)


def _digit_table(scale: Fraction) -> InversionTable:
    """Return the table of F(k) = (1 − e^(−(k+1) / scale)) / (1 − e^(−1024 / scale)), k < 1024."""
    whole = functools.cache(lambda bits: complement(exp_bounds(1024 / scale, bits), bits))

    def law(power: Interval, bits: int) -> Interval:
        return exact.divide_bounds(complement(power, bits), whole(bits), bits)

    # Omit the last threshold, which is 1: no word lies beyond it.
    return exact.power_table(1 / scale, 1, 1023, law)


@functools.lru_cache(maxsize=64)
def _laplace_size_table(scale: Fraction) -> InversionTable:
    """Return the table of F(k) = P(|X| ≤ k) = 1 − 2 e^(−(k+1) / scale) / (1 + e^(−1 / scale))."""
    rate = 1 / scale
    ratio = functools.cache(functools.partial(exp_bounds, rate))

    def law(power: Interval, bits: int) -> Interval:
        low, high = ratio(bits)
        whole = (1 << bits) + low, (1 << bits) + high
        return complement(exact.divide_bounds((2 * power[0], 2 * power[1]), whole, bits), bits)

    return exact.power_table(rate, 1, _count_entries(scale), law)


def discrete_gaussian(sigma: float | Fraction, shape: Shape = (), *, rng: Rng = None) -> Integers:
    """Draw exact discrete Gaussian noise, P(k) ∝ exp(−k² / (2 σ²)), as an int64 array of `shape`.

    Source: Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy", algorithm 3 for large σ.

    Parameters
    ----------
    sigma : σ, from 2^−537 to 2^50. A float counts as its exact binary value.
    shape, rng : as for `discrete_laplace`.

    Raises InputError if sigma is out of range.

    >>> discrete_gaussian(3.0, 5).dtype
    dtype('int64')
    """
    return _draw_gaussian(_read_scale(MOST_SCALE, sigma=sigma) ** 2, shape, rng)


def _draw_gaussian(variance: Fraction, shape: Shape, rng: Rng) -> Integers:
    variance = _read_scale(MOST_SCALE**2, variance=variance)
    words, draw = open_words(rng), _draw_narrow_gaussian if variance <= 400 * 400 else _draw_wide_gaussian
    return _fill_blocks(shape, lambda number: draw(variance, number, words))


@functools.lru_cache(maxsize=2)
def _gaussian_sums(variance: Fraction, bits: int) -> tuple[list[Interval], Interval]:
    """Return bounds on Σ_{|j| ≤ k} e^(−j² / (2 σ²)) for each k, and on the sum over all j, in units of 2^−bits."""
    total = (1 << bits, 1 << bits)
    sums = [total]
    # e^(−(k+1)²/2σ²) = e^(−k²/2σ²) · e^(−(2k+1)/2σ²), and the second factor shrinks by e^(−1/σ²) each time.
    term, factor = (1 << bits, 1 << bits), exp_bounds(1 / (2 * variance), bits)
    shrink = exp_bounds(1 / variance, bits)
    # Stop at variance + 4: rounding up keeps the upper bound of terms above 1 / (1 − factor), which is smaller by then.
    while term[1] > math.ceil(variance) + 4:
        term, factor = exact.multiply_bounds(term, factor, bits), exact.multiply_bounds(factor, shrink, bits)
        total = total[0] + 2 * term[0], total[1] + 2 * term[1]
        sums.append(total)
    # The sum of the remaining terms is at most the sum of a geometric series with the last factor as its ratio.
    rest = (2 * term[1] << bits) // max((1 << bits) - factor[1], 1) + 2
    return sums, (total[0], total[1] + rest)


@functools.lru_cache(maxsize=64)
def _gaussian_table(variance: Fraction) -> InversionTable:
    """Return the table of F(k) = P(|X| ≤ k), up to a tail of less than 2^−64."""
    guard = 64 + 2 * math.ceil(variance).bit_length()

    def bounds(k: int, bits: int) -> Interval:
        sums, whole = _gaussian_sums(variance, bits + guard)
        part = sums[k] if k < len(sums) else (sums[-1][0], whole[1])
        return exact.divide_bounds(part, whole, bits)

    fast: list[Interval] = []
    while not fast or (1 << exact.TABLE_BITS) - fast[-1][1] >= 1 << (exact.TABLE_BITS - 66):
        fast.append(bounds(len(fast), exact.TABLE_BITS))
    return InversionTable(fast, bounds)


def _draw_narrow_gaussian(variance: Fraction, number: int, words: Words) -> Integers:
    """Draw |X| from a table, and then a sign. About one draw in 2^64 lies beyond the table."""
    table = _gaussian_table(variance)
    length = len(table.thresholds)

    def draw_excess(beyond: int) -> Integers:
        return np.array([_draw_gaussian_tail(variance, length, words) - length for _ in range(beyond)])

    return _sign_randomly(_draw_beyond_table(table, number, words, draw_excess), words)


def _draw_gaussian_tail(variance: Fraction, start: int, words: Words) -> int:
    """Propose |X| = start + j, where j is geometric with rate start/σ². Accept it with probability e^(−j² / (2 σ²)).

    For k = start + j, k²/(2σ²) = start²/(2σ²) + j · start/σ² + j²/(2σ²).
    """
    while True:
        offer = int(draw_geometric(variance / start, 1, words)[0])
        gamma = Fraction(offer * offer) / (2 * variance)
        if exact.UniformReal(words).is_below(functools.partial(exp_bounds, gamma)):
            return start + offer


def _draw_wide_gaussian(variance: Fraction, number: int, words: Words) -> Integers:
    """Propose a discrete Laplace y of scale t = ⌊σ⌋ + 1. Accept it with probability e^(−(|y| − σ²/t)² / (2 σ²))."""
    t = math.isqrt(int(variance)) + 1
    parts, have = [], 0
    while have < number:
        offer = _draw_difference(Fraction(t), int((number - have) * 1.5) + 64, words)

        def find_exponent(i: int, offer: Integers = offer) -> Fraction:
            return (abs(int(offer[i])) - variance / t) ** 2 / (2 * variance)

        distance = np.abs(offer).astype(np.float64) - float(variance / t)
        accept = _decide(-distance * distance / float(2 * variance), 0.0, find_exponent, words)
        parts.append(offer[accept])
        have += len(parts[-1])
    return np.concatenate(parts)[:number]


def _decide(
    exponents: NDArray[np.float64], error: float, find_exponent: Callable[[int], Fraction], words: Words
) -> NDArray[np.bool_]:
    """Draw independent booleans, each True with a probability of exactly e^−γ(i).

    e^exponents[i] is that probability, up to `error` and float rounding. find_exponent(i) returns the exact γ(i).
    """
    word = words(len(exponents))
    with np.errstate(under="ignore"):
        chance = np.exp(exponents)
    real = word.astype(np.float64) * 2.0**-64
    out = real < chance
    # Compare floats only where certain: 1e-10 is a thousand times their rounding error (docs/internals/noise.md).
    for i in np.flatnonzero(np.abs(real - chance) <= error + 1e-10).tolist():
        out[i] = exact.UniformReal(words, int(word[i])).is_below(functools.partial(exp_bounds, find_exponent(i)))
    return out


# --- the sampler of each law --------------------------------------------------------------------------------


class LaplaceSampler:
    """Two-sided geometric noise, P(V = k) ∝ e^(−level |k|), as an exact process in the level.

    Let p and p' be e^(−level) at the lower and the higher level. V at the lower level is V at the higher level, plus
    two-sided geometric noise at the lower level with probability 1 − (p'/p)((1 − p)/(1 − p'))². `refine` draws from the
    reverse transition. A value x stays with probability e^((level − finer) |x|) sinh(level) / sinh(finer). Otherwise it
    moves towards zero or jumps, perhaps back to x (docs/privacy/gradual.md). Levels are at least 2^−50, and values
    are within ±2^60. Source: 2015, section 3.4 (the lazy Markov process V_ε), here on integers.

    >>> sampler = LaplaceSampler()
    >>> coarse = sampler.start(0.5, 5, rng=np.random.default_rng(2))
    >>> coarse.tolist(), sampler.refine(coarse, 0.5, 2, rng=np.random.default_rng(2)).tolist()
    ([1, -1, -3, 0, -2], [0, 0, -1, 0, 0])
    """

    def start(self, level: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        """Draw independent noise at the first level. Source: 2015, Theorem 11, eq. (32) and (33)."""
        return discrete_laplace(1 / as_exact_fraction(level=level), shape, rng=rng)

    def refine(self, values: ArrayLike, level: Level, finer: Level, *, rng: Rng = None) -> Integers:
        """Move values to a higher level. The result does not depend on earlier levels.

        On the real line, values x at level a and y at level b > a have the joint density a²/(2b) e^(−b|y|) δ(x − y) + a
        (b² − a²)/(4b) e^(−a|x − y| − b|y|). Dividing by a/2 e^(−a|x|), the density of x, gives that of y given x.
        Source, on integers: 2015, Theorem 10, eq. (19), (20), (25), Algorithm 1; 2015 abstract, Theorem 1 and eq. (2).
        """
        a, b = _read_levels(Fraction(1, MOST_SCALE), level=level, finer=finer)
        words = open_words(rng)
        return _change_blocks(values, lambda part: _refine_laplace(part, a, b, words))

    def tighten(self, values: ArrayLike, level: Level, coarser: Level, *, rng: Rng = None) -> Integers:
        """Move values to a lower level by adding noise that does not depend on them.

        On the real line, the noise is 0 with probability (a/b)², and Laplace noise at the lower level a otherwise.
        Given the value y at level b, the density of x is (a/b)² δ(x − y) + (1 − (a/b)²) a/2 e^(−a|x − y|).
        Source, here on integers: 2015, section 3.1.2, eq. (28) and (29).
        """
        a, b = _read_levels(coarser=coarser, level=level)
        stays, words = _tightening_table(a, b), open_words(rng)

        def tighten_block(part: Integers) -> Integers:
            out = part.copy()
            moved = np.flatnonzero(stays.draw(len(part), words))
            out[moved] += discrete_laplace(1 / a, len(moved), rng=rng)
            return out

        return _change_blocks(values, tighten_block)

    def draw_addition(self, level: Level, coarser: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        """Draw noise that lowers the level of released numbers when added to them."""
        return self.tighten(np.zeros(shape, dtype=np.int64), level, coarser, rng=rng)

    def round_values(self, values: Integers) -> Integers:
        """Return the whole numbers that a release contains for these values."""
        return values


class GaussianSampler:
    """Discrete Gaussian noise on whole numbers. It cannot be refined exactly."""

    def variance(self, level: Fraction) -> Fraction:
        """Return σ² at a level."""
        return 1 / level

    def start(self, level: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        return _draw_gaussian(self.variance(as_exact_fraction(level=level)), shape, rng)

    def draw_addition(self, level: Level, coarser: Level, shape: Shape = (), *, rng: Rng = None) -> Integers:
        a, b = _read_levels(coarser=coarser, level=level)
        # The sum of two discrete Gaussians is nearly discrete Gaussian if (1 − a/b) / b ≥ 3, as e^(−2π² · 3) is 10⁻²⁶.
        if (1 - a / b) / b < 3:
            raise InputError(
                "the release has too little Gaussian noise for this copy: lower its budget, or pass the release's state"
            )
        # Adding slightly more noise than the copy states makes up for the difference (docs/privacy/gradual.md).
        return _draw_gaussian((1 + Fraction(1, 1 << 30)) / a - 1 / b, shape, rng)

    def round_values(self, values: Integers) -> Integers:
        return values


@dataclass(frozen=True)
class RoundedGaussianSampler(GaussianSampler):
    """Gaussian noise as a process in 1/σ², on a lattice with steps of 2^−bits. `round_values` returns whole numbers.

    Discrete Gaussian noise can be refined exactly only if its variance is an odd multiple of the new variance
    (docs/privacy/gradual.md). So the process runs on a lattice fine enough for the guarantee, and releases are rounded.

    >>> sampler = RoundedGaussianSampler.for_level(Fraction(1, 100))
    >>> coarse = sampler.start(Fraction(1, 100), 4, rng=np.random.default_rng(1))
    >>> fine = sampler.refine(coarse, Fraction(1, 100), Fraction(1, 4), rng=np.random.default_rng(1))
    >>> sampler.round_values(coarse).tolist(), sampler.round_values(fine).tolist()
    ([-3, -18, -5, -2], [0, 0, 1, -1])
    """

    bits: int

    @classmethod
    def for_level(cls, level: Level) -> RoundedGaussianSampler:
        """Return the sampler for a chain that begins at `level`, where σ is at least 2^23 lattice steps."""
        return cls(max(0, 24 + math.floor(math.log2(float(as_exact_fraction(level=level))) / 2)))

    def variance(self, level: Fraction) -> Fraction:
        """Return σ² at a level, in squared lattice steps, with a small margin for the error of the lattice."""
        return (1 << 2 * self.bits) * (1 + Fraction(1, 1 << 40)) / level

    def refine(self, values: ArrayLike, level: Level, finer: Level, *, rng: Rng = None) -> Integers:
        # Given a value x at level a, the value at level b is Gaussian with mean (a/b) x.
        a, b = _read_levels(level=level, finer=finer)
        variance = self._check_step(a, b)
        words = open_words(rng)
        return _change_blocks(values, lambda part: _draw_gaussian_around(part, a / b, variance, words))

    def tighten(self, values: ArrayLike, level: Level, coarser: Level, *, rng: Rng = None) -> Integers:
        a, b = _read_levels(coarser=coarser, level=level)
        self._check_step(a, b)
        array = _read_values(values)
        return array + _draw_gaussian(self.variance(a) - self.variance(b), array.shape, rng)

    def round_values(self, values: ArrayLike) -> Integers:
        return (_read_values(values) + ((1 << self.bits) >> 1)) >> self.bits

    def _check_step(self, a: Fraction, b: Fraction) -> Fraction:
        """Return a refinement's variance in squared lattice steps. Raises InputError if it is too small."""
        variance = self.variance(b) * (1 - a / b)
        if variance < 64:
            raise InputError(
                f"levels {float(a):.10g} and {float(b):.10g} of Gaussian noise are too close together, or too far from "
                "the first level: take a larger step, or start a new chain"
            )
        return variance


Sampler = LaplaceSampler | GaussianSampler
#: Samplers whose values can be moved to other levels.
Refinable = LaplaceSampler | RoundedGaussianSampler

#: For the name of each law, a function that returns the law's sampler for a chain starting at a given level.
SAMPLERS: dict[str, Callable[[Fraction], Sampler]] = {
    Laplace.kind: lambda first: LaplaceSampler(),
    Gaussian.kind: lambda first: GaussianSampler(),
    RoundedGaussian.kind: RoundedGaussianSampler.for_level,
}


def sampler_of(law: Law, first: Fraction | None = None) -> Sampler:
    """Return the sampler of a law, for a chain that starts at level `first` (by default, the law's own level)."""
    return SAMPLERS[law.kind](1 / law.parameter if first is None else first)


def sample_law(law: Law, size: int, rng: Rng) -> Integers:
    """Draw `size` values of exact noise from a law. All noise for single releases is drawn here."""
    if not law.parameter:  # the answers are the same for all neighbours, so no noise is needed
        return np.zeros(size, dtype=np.int64)
    sampler = sampler_of(law)
    return sampler.round_values(sampler.start(1 / law.parameter, size, rng=rng))


def _read_levels(step: Fraction = Fraction(0), /, **levels: Level) -> tuple[Fraction, Fraction]:
    """Return two levels as fractions. Raises InputError unless the second exceeds the first by more than `step`."""
    a, b = (as_exact_fraction(**{name: level}) for name, level in levels.items())
    if b - a <= step:
        low, high = levels
        raise InputError(
            f"{high} is {float(b):.10g}: it must exceed {low} ({float(a):.10g}) by more than {float(step):.3g}"
        )
    return a, b


def _read_values(values: ArrayLike) -> Integers:
    """Return noise as an int64 array. Raises InputError unless all values are whole numbers within ±2^60."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or (array.size and max(int(array.max()), -int(array.min())) >= 1 << 60):
        raise InputError(f"values have type {array.dtype}: they must be whole numbers within ±2^60")
    return array.astype(np.int64, copy=False)


def _change_blocks(values: ArrayLike, change: Callable[[Integers], Integers]) -> Integers:
    """Apply a function to all values in blocks, to limit memory."""
    array = _read_values(values)
    out, ends = np.empty(array.shape, dtype=np.int64), range(1 << 18, array.size, 1 << 18)
    for part, given in zip(*(np.array_split(each.reshape(-1), ends) for each in (out, array)), strict=True):
        part[:] = change(given)
    return out


def _refine_laplace(values: Integers, a: Fraction, b: Fraction, words: Words) -> Integers:
    """Draw V at level b, given that V = `values` at level a < b.

    Let x = |V| and r = e^(a − b), and let G be geometric with P(G ≥ k) = r^k. The value jumps over zero with
    probability 1 − s (see `_draw_first_moves`). Otherwise, if G ≤ x, the new size is G. If G > x, the value stays or
    jumps outwards. The length of a jump is 1 plus a geometric variable with ratio e^(−a − b).
    """
    size = np.abs(values)
    outward = np.where(values < 0, -1, 1)
    first = _draw_first_moves(a, b, len(values), words)
    # 0 means a jump over zero, and k + 1 means G = k.
    out = outward * (first - 1)
    far = np.flatnonzero(first > size + 1)
    out[far] = values[far]
    jumps = far[_outward_table(a, b).draw(len(far), words) == 0]
    over = np.flatnonzero(first == 0)
    out[jumps] += outward[jumps] * (1 + draw_geometric(1 / (a + b), len(jumps), words))
    out[over] = -outward[over] * (1 + draw_geometric(1 / (a + b), len(over), words))
    return out


def _draw_first_moves(a: Fraction, b: Fraction, number: int, words: Words) -> Integers:
    """Draw 0 with probability 1 − s, and 1 + G otherwise, so P(draw ≤ j) = 1 − s r^j. `_inward_table` defines s."""
    scale = 1 / (b - a)
    if _count_entries(scale) > _LONGEST_TABLE:
        out = 1 - _inward_table(a, b).draw(number, words)
        inwards = out > 0
        out[inwards] += draw_geometric(scale, int(inwards.sum()), words)
        return out
    table = _first_move_table(a, b)
    return _draw_beyond_table(table, number, words, lambda beyond: draw_geometric(scale, beyond, words))


def _share_bounds(x: Fraction, y: Fraction, bits: int) -> Interval:
    """Return bounds on (1 − e^−x) / (1 − e^−y) for x ≤ y."""
    more = bits + 64 + max(0, -math.frexp(float(y))[1])  # a small y loses bits
    above, below = (complement(exp_bounds(z, more), more) for z in (x, y))
    return exact.divide_bounds(above, below, bits)


@functools.lru_cache(maxsize=64)
def _inward_table(a: Fraction, b: Fraction) -> InversionTable:
    """Return a table that draws 0 (no jump over zero) with probability s = (1 − e^(−a − b)) / (1 − e^(−2b))."""
    return exact.chance_table(lambda bits: _share_bounds(a + b, 2 * b, bits))


@functools.lru_cache(maxsize=64)
def _outward_table(a: Fraction, b: Fraction) -> InversionTable:
    """Return a table that draws 0 (a jump outwards) with probability 1 − (1 − e^(−2a)) / (1 − e^(−a − b))."""
    return exact.chance_table(lambda bits: complement(_share_bounds(2 * a, a + b, bits), bits))


@functools.lru_cache(maxsize=64)
def _first_move_table(a: Fraction, b: Fraction) -> InversionTable:
    """Return the table of F(j) = 1 − s e^((a − b) j)."""
    share = functools.cache(functools.partial(_share_bounds, a + b, 2 * b))

    def law(power: Interval, bits: int) -> Interval:
        return complement(exact.multiply_bounds(share(bits), power, bits), bits)

    return exact.power_table(b - a, 0, _count_entries(1 / (b - a)) + 1, law)


@functools.lru_cache(maxsize=64)
def _tightening_table(a: Fraction, b: Fraction) -> InversionTable:
    """Return a table that draws 0 (nothing is added) with probability (e^−b / e^−a) ((1 − e^−a) / (1 − e^−b))²."""

    def bounds(bits: int) -> Interval:
        more = bits + 64
        part, power = _share_bounds(a, b, more), exp_bounds(b - a, more)
        low, high = exact.multiply_bounds(exact.multiply_bounds(part, part, more), power, more)
        return low >> 64, (high >> 64) + 1

    return exact.chance_table(bounds)


def _draw_gaussian_around(values: Integers, share: Fraction, variance: Fraction, words: Words) -> Integers:
    """Draw k by rejection, with P(k) ∝ e^(−(k − share · value)² / (2 s²)) and s² = `variance`, for each value.

    Let the centre be m + f with |f| ≤ 1, and let Y be two-sided geometric with scale t. Then m + Y is accepted with
    probability e^−γ, where γ = (|Y| ∓ f − s²/t)² / (2 s²) + (1 ∓ f)/t ≥ 0. The upper sign is for Y ≥ 0. Source:
    Canonne, Kamath and Steinke 2020, algorithm 3, generalised to any centre.
    """
    near = np.rint(values.astype(np.float64) * float(share)).astype(np.int64)
    t = math.isqrt(int(variance)) + 1
    # f changes the probability by less than 4/s, since e^(−u²/2) u is at most 0.61.
    error = 4 / math.sqrt(float(variance))
    out, left = np.empty(len(values), dtype=np.int64), np.arange(len(values))
    while len(left):
        offer = _draw_difference(Fraction(t), len(left), words)

        def find_exponent(i: int, offer: Integers = offer, left: Integers = left) -> Fraction:
            f = int(values[left[i]]) * share - int(near[left[i]])
            f = f if offer[i] >= 0 else -f
            return (abs(int(offer[i])) - f - variance / t) ** 2 / (2 * variance) + (1 - f) / t

        distance = np.abs(offer).astype(np.float64) - float(variance / t)
        accept = _decide(-distance * distance / float(2 * variance) - 1 / t, error, find_exponent, words)
        out[left[accept]] = near[left[accept]] + offer[accept]
        left = left[~accept]
    return out


# --- quantiles ----------------------------------------------------------------------------------------------

# Notation of docs/privacy/quantiles.md: points x_1 ≤ … ≤ x_n lie at whole places on a line, and x_r is the quantile.
# A move shifts one point by at most D places. It takes m(z) moves to make z the quantile. P(z) = e^(−λ m(z)) / W. For z
# above x_r, every point i ≥ r with x_i < z must move to z. This takes ⌈(z − x_i)/D⌉ moves, the number of *marks* x_i,
# x_i + D, x_i + 2D, … below z. Let e_0 ≤ e_1 ≤ … be the sorted marks of all points, with e_0 = x_r. So m(z) is the
# number of marks below z, and the places e_(l−1) < z ≤ e_l, a *stretch*, need l moves. Places below x_r mirror this.

#: Function of k that returns sorted distances of the k nearest points above and below the quantile (itself at 0).
NearestDistances = Callable[[int], tuple[Integers, Integers]]


def draw_place(nearest: NearestDistances, room: tuple[int, int], reach: int, rate: Fraction, words: Words) -> int:
    """Draw a place z exactly, with P(z) ∝ e^(−λ m(z)), and return its signed distance from the quantile.

    The bits of a uniform real U decide the number of moves, up to L. Multiples of 2^(−b) bound e^(−λ). If the bits do
    not suffice, more bits of U, a larger b and a larger L are used, so the distribution is exact.

    nearest : function that returns the private distances of the nearest points.
    room : number of places above and below the quantile, up to the ends of the line.
    reach : D, the largest number of places by which one move can shift a point.
    rate : λ, above zero.

    >>> points = np.array([0, 3]), np.array([0])  # the quantile is the lower one of two points, 3 places apart
    >>> words = open_words(np.random.default_rng(0))
    >>> [draw_place(lambda number: points, (9, 4), 5, Fraction(1), words) for _ in range(8)]
    [-3, -3, 1, -4, 2, 0, 3, 6]
    """
    size, uniform, bits = 1 + sum(room), exact.UniformReal(words), 192
    # Start with an L beyond which all places together weigh at most 2^−80. The quantile itself weighs 1.
    most = max(8, math.ceil((math.log(size) + 80 * math.log(2)) / float(rate)))
    while True:
        sides = zip(nearest(most + 1), room, strict=True)
        above, below = (find_stretches(distances, reach, end, most) for distances, end in sides)
        # Pad the shorter side with empty stretches.
        longer = max(len(above), len(below))
        above, below = (np.pad(ends, (0, longer - len(ends)), mode="edge") for ends in (above, below))
        # widths[l] places need l moves. Draw l if W_(l−1) ≤ U W < W_l, with W_l = Σ_(k ≤ l) w_k e^(−λk).
        widths = [1, *np.diff(above + below).tolist()]
        low, high = bound_partial_sums(widths, size - sum(widths), rate, bits)
        # U lies in [first, first + 1) / 2^bits. The draw is undecided if U W is between W_L and W, the last sum.
        first = uniform.read_bits(bits)
        moves = bisect.bisect_right(high, first * low[-1] >> bits)
        if ((first + 1) * high[-1] >> bits) + 1 <= low[moves]:
            break
        bits, most = 2 * bits, 2 * most
    if moves == 0:
        return 0
    number = int(above[moves] - above[moves - 1])
    pick = draw_whole_below(widths[moves], words)
    return int(above[moves - 1]) + 1 + pick if pick < number else -(int(below[moves - 1]) + 1 + pick - number)


def find_stretches(distances: Integers, reach: int, room: int, most: int) -> Integers:
    """Return where the stretches on one side end, at the L + 1 smallest values d_i + j D for j = 0, 1, …

    L is `most`. A single `room`, the number of places on this side, replaces all ends beyond it. `distances` contains
    the d_i in ascending order, at least the first L + 1 if there are as many, starting with 0 for the quantile.

    Suppose a move can shift points at 0 and 3 by up to 5 places. Places 1 to 3 need one move, places 4 and 5 need a
    move of each point, and for places beyond 5 the first point must move twice.

    >>> find_stretches(np.array([0, 3]), reach=5, room=20, most=4)
    array([ 0,  3,  5,  8, 10])
    """
    ends: list[int] = []
    marks = distances.tolist()  # a sorted list is a heap
    while marks[0] < room and len(ends) <= most:
        ends.append(marks[0])
        heapq.heapreplace(marks, marks[0] + reach)
    return np.array(ends if len(ends) > most else [*ends, room])


def bound_partial_sums(widths: Iterable[int], rest: int, rate: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Return a list of lower and a list of upper bounds on W_0, …, W_L and W, in whole multiples of 2^(−bits).

    W_l = Σ_(k ≤ l) w_k e^(−λk), and W_L ≤ W ≤ W_L + rest · e^(−λ(L+1)), where `rest` places need more than L moves.
    """
    guard = 32  # extra bits to absorb the rounding of many products
    shift = bits + guard
    factor, power = exp_bounds(rate, shift), (1 << shift, 1 << shift)
    low, high, low_sum, high_sum = [], [], 0, 0
    for width in widths:
        low_sum += width * power[0] >> guard
        high_sum += (width * power[1] >> guard) + 1
        low.append(low_sum)
        high.append(high_sum)
        power = exact.multiply_bounds(power, factor, shift)
    beyond = (rest * power[1] >> guard) + 1 if rest else 0
    return [*low, low_sum], [*high, high_sum + beyond]


def draw_whole_below(number: int, words: Words) -> int:
    """Draw a uniform whole number from 0 to number − 1, by rejection."""
    while True:
        drawn = exact.draw_bits((number - 1).bit_length(), words)
        if drawn < number:
            return drawn


def draw_student(room: tuple[int, int], scale: Fraction, words: Words) -> int:
    """Draw scale · Z, rounded exactly and clipped to `room`, where Z has Student's t law with 2 degrees of freedom.

    Discrete noise needs a public scale, but a smooth sensitivity is private. So Z is drawn as a real number, by
    inversion: Z = P √(2 / (1 − P²)) for uniform P in (−1, 1). Raises InputError unless the scale is positive.
    """
    if not scale > 0:
        raise InputError(f"scale is {scale}: it must be positive, or else nothing hides the value")
    uniform, bits = exact.UniformReal(words), 64
    while True:
        # P = 2U − 1 lies in [first, first + 2) / 2^bits.
        first = 2 * uniform.read_bits(bits) - (1 << bits)
        if abs(first + 1) < (1 << bits) - 1:
            ends = bound_student(first, bits)[0], bound_student(first + 2, bits)[1]
            low, high = (math.floor(scale * end + Fraction(1, 2)) for end in ends)
            if low == high:
                return min(max(low, -room[1]), room[0])
        bits += 64


def bound_student(place: int, bits: int) -> tuple[Fraction, Fraction]:
    """Return bounds on P √(2 / (1 − P²)) for P = place / 2^bits."""
    unit = 1 << 2 * bits
    root = math.isqrt(2 * (place * unit) ** 2 // (unit - place * place))
    low, high = Fraction(root, unit), Fraction(root + 1, unit)
    return (low, high) if place >= 0 else (-high, -low)


#: Sampler of each quantile method.
QUANTILE_SAMPLERS: dict[str, Callable[..., int]] = {"inverse": draw_place, "smooth": draw_student}
