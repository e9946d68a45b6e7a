"""Random words, and exact random decisions based on them.

A uniform real in [0, 1) is an endless string of random bits. The first 64 bits decide nearly every comparison with a
threshold. If these bits tie, more bits of the real and the threshold are compared.
"""

from __future__ import annotations

import decimal
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError

#: Bits of the fixed-point numbers that tables are built from. Tables keep 64 of them, and the rest absorb rounding.
TABLE_BITS = 192
#: Number of values drawn at a time, to limit memory. Drawing in blocks does not change the values.
BLOCK = 1 << 20

#: Fixed-point bounds on a real number: whole numbers with low ≤ 2^bits · value ≤ high.
Interval = tuple[int, int]
#: Functions that return certified bounds with a given number of bits: on a real number, or on F(k) for a given k.
Bounds = Callable[[int], Interval]
BoundsAt = Callable[[int, int], Interval]


#: A source of independent, uniform 64-bit words: a function that returns the requested number of new words.
Words = Callable[[int], NDArray[np.uint64]]


def open_stream() -> Words:
    """Open a stream of AES-256 in counter mode, with a fresh key and counter from the operating system.

    Each draw must open a new stream, so that a forked process never repeats its parent's words.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key, start = os.urandom(32), os.urandom(16)
    cipher = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()

    def draw(number: int) -> NDArray[np.uint64]:
        # The key stream is the encryption of zeros. The output buffer must have room for one extra block.
        size, step = 8 * number, 1 << 16
        out, zeros = np.empty(size + 16, dtype=np.uint8), memoryview(bytes(min(size, step)))
        for first in range(0, size, step):
            cipher.update_into(zeros[: size - first], out.data[first:])
        return out[:size].view(np.uint64)

    return draw


def seeded_words(rng: np.random.Generator) -> Words:
    """Return a source of words from a seeded generator, for experiments only, because its words are predictable."""
    return lambda number: rng.integers(0, 1 << 64, number, dtype=np.uint64)


#: A seeded generator (only for experiments), or None for a fresh stream.
Rng = np.random.Generator | None


def open_words(rng: Rng) -> Words:
    """Open a fresh cryptographic stream, or return the words of a seeded generator."""
    if rng is None:
        return open_stream()
    if isinstance(rng, np.random.Generator):
        return seeded_words(rng)
    raise InputError(f"rng is {rng!r}: it must be None for publications, or a numpy.random.Generator for experiments")


def exp_bounds(x: Fraction, bits: int) -> Interval:
    """Return bounds on e^−x for x ≥ 0, a few units of 2^−bits apart.

    `decimal` rounds exp correctly. Rounding x changes the result by a factor within 1 ± (x + 2) · 10^(1 − digits).
    """
    whole = int(x) + 2
    digits = int(bits * 0.30103) + len(str(whole)) + 8
    with decimal.localcontext(decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
        if x > bits:  # e^−x < 2^−bits
            return 0, 1
        value = (-(decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator))).exp()
        scaled = value * (decimal.Decimal(2) ** bits)
        slack = scaled * whole * decimal.Decimal(10) ** (2 - digits) + decimal.Decimal(10) ** (2 - digits)
        low = int((scaled - slack).to_integral_value(decimal.ROUND_FLOOR))
        high = int((scaled + slack).to_integral_value(decimal.ROUND_CEILING))
    return max(low, 0), min(high, 1 << bits)


def multiply_bounds(a: Interval, b: Interval, bits: int) -> Interval:
    """Return bounds on a product of non-negative numbers."""
    return a[0] * b[0] >> bits, (a[1] * b[1] >> bits) + 1


def divide_bounds(above: Interval, below: Interval, bits: int) -> Interval:
    """Return bounds on a quotient (at most one) of positive numbers."""
    return (above[0] << bits) // below[1], min((above[1] << bits) // below[0] + 1, 1 << bits)


def complement(p: Interval, bits: int) -> Interval:
    """Return bounds on 1 − p."""
    return (1 << bits) - p[1], (1 << bits) - p[0]


class UniformReal:
    """A uniform real U in [0, 1) that draws its bits on demand, after a first word that may already be known."""

    def __init__(self, words: Words, first: int | None = None) -> None:
        self._words, self._known, self._bits = words, first or 0, 0 if first is None else 64

    def read_bits(self, bits: int) -> int:
        """Return ⌊2^bits · U⌋."""
        if bits > self._bits:
            self._known = self._known << (bits - self._bits) | draw_bits(bits - self._bits, self._words)
            self._bits = bits
        return self._known >> (self._bits - bits)

    def is_below(self, bounds: Bounds) -> bool:
        """Return whether U is below a real with these bounds. Each bit halves the chance of a tie, so the loop ends."""
        bits = 64
        while True:
            low, high = bounds(bits)
            drawn = self.read_bits(bits)
            if drawn + 1 <= low:
                return True
            if drawn >= high:
                return False
            bits += 64


def draw_bits(number: int, words: Words) -> int:
    """Draw a uniform whole number below 2^number."""
    drawn = words(max(1, -(-number // 64)))
    return int.from_bytes(drawn.astype(">u8").tobytes()) & ((1 << number) - 1)


class InversionTable:
    """A table that samples k = 0, 1, 2, ... exactly, by inverting a distribution function F.

    fast : bounds on F(0), …, F(L − 1) in units of 2^−192. F(L − 1) may be less than one.
    bounds : certified bounds on F(k) with any number of bits, for draws that 64 bits cannot decide.
    """

    def __init__(self, fast: Iterable[Interval], bounds: BoundsAt) -> None:
        self.bounds, thresholds = bounds, []
        for k, (low, high) in enumerate(fast):
            bits = TABLE_BITS
            while low >> (bits - 64) != high >> (bits - 64) and not high >> bits:
                bits += 64
                low, high = bounds(k, bits)
            thresholds.append(min(low >> (bits - 64), (1 << 64) - 1))
        #: (L,) ⌊2^64 F(k)⌋, in ascending order.
        self.thresholds = np.array(thresholds, dtype=np.uint64)

    @functools.cached_property
    def guide(self) -> NDArray[np.int32]:
        """Number of thresholds below each 16-bit prefix of a word; −1 if a threshold has that prefix."""
        here = np.bincount((self.thresholds >> np.uint64(48)).astype(np.int64), minlength=1 << 16)
        return np.where(here > 0, -1, here.cumsum()).astype(np.int32)

    def draw(self, number: int, words: Words) -> NDArray[np.int64]:
        """Draw `number` values as int64. The value L stands for all values beyond the table."""
        word = words(number)
        if number < 1 << 12:  # too few values to make building the guide worthwhile
            return self._search(word, words)
        # Shifted words are always valid indices, so "clip" only saves a check.
        first = (word >> np.uint64(48)).view(np.int64)
        found = self.guide.take(first, mode="clip").astype(np.int64)
        left = np.flatnonzero(found < 0)
        found[left] = self._search(word[left], words)
        return found

    def _search(self, word: NDArray[np.uint64], words: Words) -> NDArray[np.int64]:
        """Look up words in the table. If a word ties with a threshold, compare more bits of both."""
        found = np.searchsorted(self.thresholds, word, side="right")
        below = np.maximum(found, 1) - 1
        for i in (self.thresholds[below] == word).nonzero()[0]:
            found[i] = self._break_tie(int(word[i]), words)
        return found.astype(np.int64, copy=False)

    def _break_tie(self, word: int, words: Words) -> int:
        """Return the first k with U < F(k), where the first word of U equals at least one threshold."""
        real, k = UniformReal(words, word), int(np.searchsorted(self.thresholds, np.uint64(word), side="left"))
        while k < len(self.thresholds) and int(self.thresholds[k]) == word:
            if real.is_below(functools.partial(self.bounds, k)):
                return k
            k += 1
        return k


def power_table(rate: Fraction, first: int, length: int, law: Callable[[Interval, int], Interval]) -> InversionTable:
    """Return the table of F(k) = law(e^(−rate (first + k))) for k < length.

    `law` maps bounds and their number of bits to bounds. It may lose 64 bits, plus two for each leading zero of `rate`.
    """
    guard = 64 + 2 * int(1 / rate).bit_length()

    def drop_guard(bounds: Interval) -> Interval:
        return bounds[0] >> guard, (bounds[1] >> guard) + 1

    def exact(k: int, bits: int) -> Interval:
        return drop_guard(law(exp_bounds(rate * (first + k), bits + guard), bits + guard))

    bits = TABLE_BITS + guard
    step, power, fast = exp_bounds(rate, bits), exp_bounds(rate * first, bits), []
    for _ in range(length):
        fast.append(drop_guard(law(power, bits)))
        power = multiply_bounds(power, step, bits)
    return InversionTable(fast, exact)


def chance_table(bounds: Bounds) -> InversionTable:
    """Return a table that draws 0 with the probability that these bounds enclose, and 1 otherwise."""
    return InversionTable([bounds(TABLE_BITS)], lambda k, bits: bounds(bits))


def throw_coins(chances: Sequence[Fraction], which: NDArray[np.uint8], words: Words) -> NDArray[np.bool_]:
    """Flip independent coins. Coin i is True with a probability of exactly chances[which[i]].

    `which` contains indices into `chances`, in any shape. The chances are rationals from 0 to 1.

    >>> throw_coins([Fraction(0), Fraction(1)], np.array([[0, 1], [1, 0]], dtype=np.uint8), open_words(None))
    array([[False,  True],
           [ True, False]])
    """

    def bounds(k: int, bits: int) -> Interval:
        scaled = chances[k].numerator << bits
        return scaled // chances[k].denominator, -(-scaled // chances[k].denominator)

    thresholds = InversionTable([bounds(k, TABLE_BITS) for k in range(len(chances))], bounds).thresholds
    flat, out = which.reshape(-1), np.empty(which.size, dtype=bool)
    for start in range(0, flat.size, BLOCK):
        chosen = flat[start : start + BLOCK]
        word, threshold = words(len(chosen)), thresholds[chosen]
        part = word < threshold
        # If a word ties with its threshold, compare more bits of both.
        for i in np.flatnonzero(word == threshold):
            part[i] = UniformReal(words, int(word[i])).is_below(functools.partial(bounds, int(chosen[i])))
        out[start : start + BLOCK] = part
    return out.reshape(which.shape)
