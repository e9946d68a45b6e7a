"""Discrete Laplace and discrete Gaussian noise, sampled exactly."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, check_positive
from deltahist.noise.exact import (
    TABLE_BITS,
    Interval,
    InversionTable,
    Rng,
    Words,
    certified,
    chance_table,
    complement,
    exp_bounds,
    less_than,
    power_table,
    ratio,
    source,
)
from deltahist.privacy import MOST_SCALE

#: Entries of one table; larger scales are drawn digit by digit in this base.
_BASE = 1024
_LONGEST = 4096
#: A law with scale b is all but surely (2^−64) within so many b.
_SPREAD = 45
#: A geometric variable of a larger scale is drawn up to this power of the base, which int64 holds.
_MOST_DIGITS = 6
#: Where a capped geometric variable ends: beyond every value that noise of a scale of at most 2^50 takes.
CAP = _BASE**_MOST_DIGITS
#: Smaller scales (the least float) are surely a slip, and their e^(−1 / scale) would need thousands of digits.
_LEAST_SCALE = Fraction(1, 1 << 1074)
#: Values drawn at a time, so that the working memory does not grow with the array. An array that is drawn in parts of
#: so many holds the same numbers as one that is drawn at once.
BLOCK = 1 << 20
#: The discrete Gaussian is drawn from a table up to this variance, and by rejection beyond.
_TABLED_VARIANCE = 400 * 400
#: Error allowed to a float acceptance probability; three orders of magnitude above its bound in
#: docs/internals/noise.md.
_MARGIN = 1e-10

Shape = int | Sequence[int]


def discrete_laplace(scale: float | Fraction, shape: Shape = (), *, rng: Rng = None) -> NDArray[np.int64]:
    """Two-sided geometric noise, P(k) ∝ exp(−|k| / scale), exactly.

    Source: Ghosh, Roughgarden, Sundararajan 2009 for the law; sampled by inversion with lazily drawn bits,
    docs/internals/noise.md.

    Parameters
    ----------
    scale : b from 2^−1074 to 2^50; a float stands for its binary number, a Fraction for itself.
    shape : of the array; () gives an array of no dimensions.
    rng : a seeded generator, for experiments only; None takes the operating system's entropy.

    Returns
    -------
    int64 array of `shape`.

    Raises
    ------
    InputError
        On a scale that is not finite and above zero, or so large that int64 might overflow; on an impossible shape.

    >>> discrete_laplace(2.5, (2, 3)).shape
    (2, 3)
    """
    exact = _exact(MOST_SCALE, scale=scale)
    words = source(rng)
    if exact * _SPREAD <= _LONGEST:
        return _filled(shape, lambda number: _signed(_magnitudes(exact, number, words), words))
    # The difference of two geometric variables is the two-sided one.
    return _filled(shape, lambda number: geometric(exact, number, words) - geometric(exact, number, words))


def discrete_gaussian(
    sigma: float | Fraction | None = None,
    shape: Shape = (),
    *,
    variance: float | Fraction | None = None,
    rng: Rng = None,
) -> NDArray[np.int64]:
    """Discrete Gaussian noise, P(k) ∝ exp(−k² / (2 σ²)), exactly.

    Source: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", algorithm 3 for
    large σ; a certified table for small σ.

    Parameters
    ----------
    sigma or variance : σ or σ², one of them, as exact as given; σ up to 2^50.
    shape : of the array; () gives an array of no dimensions.
    rng : a seeded generator, for experiments only; None takes the operating system's entropy.

    Returns
    -------
    int64 array of `shape`.

    Raises
    ------
    InputError
        Unless exactly one of sigma and variance is given, finite and above zero, and not too large; on an impossible
        shape.

    >>> discrete_gaussian(3.0, 5).dtype
    dtype('int64')
    """
    if (sigma is None) == (variance is None):
        raise InputError("give sigma or variance, one of them")
    if sigma is not None:
        exact = _exact(MOST_SCALE, sigma=sigma) ** 2
    else:
        exact = _exact(MOST_SCALE**2, variance=variance)
    words = source(rng)
    if exact <= _TABLED_VARIANCE:
        return _filled(shape, lambda number: _signed(_gaussian_magnitudes(exact, number, words), words))
    return _filled(shape, lambda number: _gaussian_by_rejection(exact, number, words))


def _exact(most: int, **parameter: Any) -> Fraction:
    """Return the one keyword's value as a fraction of Python's own integers: squares of NumPy's wrap around."""
    ((name, value),) = parameter.items()
    rule = f"it must be between 2^-1074 and 2^{most.bit_length() - 1}"
    check_positive(**parameter)
    if value > most:
        raise InputError(
            f"{name} is {float(value):.3g}: {rule}, so that no int64 overflows (is the budget far too small?)"
        )
    if isinstance(value, numbers.Rational):
        out = Fraction(int(value.numerator), int(value.denominator))
    else:  # floats of any width
        out = Fraction(*(int(part) for part in value.as_integer_ratio()))
    if out < _LEAST_SCALE:
        raise InputError(f"{name} is below 2^-1074: {rule} (is the budget far too large?)")
    return out


def _filled(shape: Shape, draw: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Draw an array of `shape`, block by block."""
    try:
        out = np.empty(shape, dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"shape is {shape!r}: it must be a whole number or a tuple of them, each at least 0 (and not too large)"
        ) from error
    flat = out.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK]
        part[:] = draw(part.size)
    return out


def _signed(size: NDArray[np.int64], words: Words) -> NDArray[np.int64]:
    """Magnitudes with independent random signs; zero has both."""
    bits = np.unpackbits(words.words(-(-len(size) // 64)).view(np.uint8), count=len(size))
    return size * (1 - 2 * bits.view(np.int8))


def _magnitudes(scale: Fraction, number: int, words: Words) -> NDArray[np.int64]:
    """|X| of two-sided geometric X. Given |X| ≥ L the excess over L is geometric."""
    table = _magnitude_table(scale)
    size = table.draw(number, words)
    far = np.flatnonzero(size == len(table.thresholds))
    if len(far):
        size[far] += geometric(scale, len(far), words)
    return size


def geometric(scale: Fraction, number: int, words: Words) -> NDArray[np.int64]:
    """G ≥ 0 with P(G ≥ k) = e^(−k / scale): its digits in base 1024 are independent."""
    out = np.zeros(number, dtype=np.int64)
    unit = 1
    digits, table = _digits(scale)
    for digit in digits:
        out += unit * digit.draw(number, words)
        unit *= _BASE
    left = np.arange(number)
    while len(left):  # beyond the table a geometric variable starts anew
        size = table.draw(len(left), words)
        out[left] += unit * size
        left = left[size == len(table.thresholds)]
    return out


def capped_geometric(scale: Fraction, number: int, words: Words) -> NDArray[np.int64]:
    """min(G, 2^60) with P(G ≥ k) = e^(−k / scale), of any scale, however large."""
    if scale <= MOST_SCALE:
        return geometric(scale, number, words)
    out = np.full(number, CAP, dtype=np.int64)
    below = np.flatnonzero(_beyond_cap(scale).draw(number, words))
    # Given that G is below the cap its digits are independent, as all digits of a geometric variable are.
    out[below] = 0
    for place in range(_MOST_DIGITS):
        unit = _BASE**place
        out[below] += unit * _digit_table(scale / unit).draw(len(below), words)
    return out


@functools.lru_cache(maxsize=64)
def _beyond_cap(scale: Fraction) -> InversionTable:
    """0 with probability e^(−2^60 / scale), else 1."""
    return chance_table(functools.partial(exp_bounds, CAP / scale))


@functools.lru_cache(maxsize=64)
def _digits(scale: Fraction) -> tuple[tuple[InversionTable, ...], InversionTable]:
    """Laws of the digits of a geometric variable, the last one first, and of the rest."""
    digits = []
    while scale * _SPREAD > _LONGEST:
        digits.append(_digit_table(scale))
        scale /= _BASE
    return tuple(digits), _geometric_table(scale)


@functools.lru_cache(maxsize=64)
def _geometric_table(scale: Fraction) -> InversionTable:
    """F(k) = 1 − e^(−(k+1) / scale)."""
    return power_table(1 / scale, 1, max(1, math.ceil(_SPREAD * scale)), complement)


@functools.lru_cache(maxsize=64)
def _digit_table(scale: Fraction) -> InversionTable:
    """F(k) = (1 − e^(−(k+1) / scale)) / (1 − e^(−1024 / scale)), k < 1024."""

    @functools.cache
    def whole(bits: int) -> Interval:
        return complement(exp_bounds(_BASE / scale, bits), bits)

    def law(power: Interval, bits: int) -> Interval:
        return ratio(complement(power, bits), whole(bits), bits)

    # The last threshold is one: no word is beyond it, so it need not stand in the table.
    return power_table(1 / scale, 1, _BASE - 1, law)


@functools.lru_cache(maxsize=64)
def _magnitude_table(scale: Fraction) -> InversionTable:
    """F(k) = 1 − 2 e^(−(k+1) / scale) / (1 + e^(−1 / scale)), for |X|."""

    @functools.cache
    def whole(bits: int) -> Interval:
        low, high = exp_bounds(1 / scale, bits)
        return (1 << bits) + low, (1 << bits) + high

    def law(power: Interval, bits: int) -> Interval:
        return complement(ratio((2 * power[0], 2 * power[1]), whole(bits), bits), bits)

    return power_table(1 / scale, 1, max(1, math.ceil(_SPREAD * scale)), law)


@functools.lru_cache(maxsize=2)
def _gaussian_sums(variance: Fraction, bits: int) -> tuple[list[Interval], Interval]:
    """Bounds of Σ_{|j| ≤ k} e^(−j² / (2 σ²)) for each k, and of the whole sum, at `bits` bits."""
    total = (1 << bits, 1 << bits)
    sums = [total]
    # e^(−(k+1)²/2σ²) = e^(−k²/2σ²) · e^(−(2k+1)/2σ²), and the second factor shrinks by e^(−1/σ²) each time.
    term, factor = (1 << bits, 1 << bits), exp_bounds(1 / (2 * variance), bits)
    shrink = exp_bounds(1 / variance, bits)
    # Rounding up keeps a term's upper bound above 1 / (1 − factor), which is less than variance + 4 out there.
    while term[1] > math.ceil(variance) + 4:
        term = term[0] * factor[0] >> bits, (term[1] * factor[1] >> bits) + 1
        factor = factor[0] * shrink[0] >> bits, (factor[1] * shrink[1] >> bits) + 1
        total = total[0] + 2 * term[0], total[1] + 2 * term[1]
        sums.append(total)
    # What is left out is at most a geometric series with the last factor.
    rest = (2 * term[1] << bits) // max((1 << bits) - factor[1], 1) + 2
    return sums, (total[0], total[1] + rest)


@functools.lru_cache(maxsize=64)
def _gaussian_table(variance: Fraction) -> InversionTable:
    """F(k) = P(|X| ≤ k), up to where less than 2^−64 is left."""
    guard = 64 + 2 * math.ceil(variance).bit_length()

    def exact(k: int, bits: int) -> Interval:
        sums, whole = _gaussian_sums(variance, bits + guard)
        part = sums[k] if k < len(sums) else (sums[-1][0], whole[1])
        return ratio(part, whole, bits)

    fast: list[Interval] = []
    while not fast or (1 << TABLE_BITS) - fast[-1][1] >= 1 << (TABLE_BITS - 66):
        fast.append(exact(len(fast), TABLE_BITS))
    return InversionTable(certified(fast, exact), exact)


def _gaussian_magnitudes(variance: Fraction, number: int, words: Words) -> NDArray[np.int64]:
    """|X| of discrete Gaussian X."""
    table = _gaussian_table(variance)
    size = table.draw(number, words)
    for i in np.flatnonzero(size == len(table.thresholds)):  # beyond the table: once in 2^64 draws
        size[i] = _gaussian_tail(variance, len(table.thresholds), words)
    return size


def _gaussian_tail(variance: Fraction, start: int, words: Words) -> int:
    """|X| given |X| ≥ start: offer start + geometric of rate start/σ², accept with e^(−j² / (2 σ²)).

    For k = start + j, k²/(2σ²) = start²/(2σ²) + j · start/σ² + j²/(2σ²).
    """
    while True:
        offer = int(geometric(variance / start, 1, words)[0])
        gamma = Fraction(offer * offer) / (2 * variance)
        if less_than(int(words.words(1)[0]), functools.partial(exp_bounds, gamma), words):
            return start + offer


def _gaussian_by_rejection(variance: Fraction, number: int, words: Words) -> NDArray[np.int64]:
    """Discrete Laplace of scale t = floor(σ) + 1, accepted with e^(−(|y| − σ²/t)² / (2 σ²))."""
    t = math.isqrt(int(variance)) + 1
    scale = Fraction(t)
    centre, double = float(variance / t), float(2 * variance)
    parts, have = [], 0
    while have < number:
        size = int((number - have) * 1.5) + 64
        offer = geometric(scale, size, words) - geometric(scale, size, words)
        word = words.words(size)
        distance = np.abs(offer).astype(np.float64) - centre
        with np.errstate(under="ignore"):
            chance = np.exp(-distance * distance / double) * 2.0**64
        real = word.astype(np.float64)
        accept = real < chance
        # Floats decide only where they are far enough from the threshold to be right.
        for i in np.flatnonzero(np.abs(real - chance) <= _MARGIN * 2.0**64):
            gamma = (abs(int(offer[i])) - variance / t) ** 2 / (2 * variance)
            accept[i] = less_than(int(word[i]), functools.partial(exp_bounds, gamma), words)
        parts.append(offer[accept])
        have += len(parts[-1])
    return np.concatenate(parts)[:number]
