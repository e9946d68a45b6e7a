"""Exact comparisons of random reals with e^−x, certified tables of distribution functions, and coins.

A uniform real in [0, 1) is an endless string of random bits, of which 64 are drawn at first. They decide every
comparison but those in which they equal the first 64 bits of the threshold; then more bits of both are taken.
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.noise.entropy import Words

#: Bits of the fixed-point numbers from which tables are made; 64 are used, the rest takes up rounding.
TABLE_BITS = 192
#: First bits of a word that a guide looks at, and from how many draws on a guide pays.
_GUIDE_BITS = 16
_MANY = 1 << 12
#: Coins thrown at a time, so that the working memory does not grow with the array.
_COINS = 1 << 20

#: Certified bounds low ≤ 2^bits · value ≤ high of a real number, closer for more bits.
Bounds = Callable[[int], tuple[int, int]]


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers low ≤ 2^bits · e^−x ≤ high, a few units apart, for x ≥ 0.

    `decimal` rounds exp correctly; the argument's rounding moves the result by a factor within
    1 ± (x + 2) · 10^(1 − digits).
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


def less_than(word: int, bounds: Bounds, words: Words) -> bool:
    """Whether a random real whose first 64 bits are `word` is less than a real known by its bounds.

    Ends with probability one, since the chance that the bits agree halves with each bit.
    """
    bits, drawn = 64, word
    while True:
        low, high = bounds(bits)
        if drawn + 1 <= low:
            return True
        if drawn >= high:
            return False
        drawn = drawn << 64 | int(words.words(1)[0])
        bits += 64


class InversionTable:
    """Exact sampling of k = 0, 1, 2, ... from a distribution function F, by inversion of random reals.

    Parameters
    ----------
    thresholds : (L,) floor(2^64 F(k)), certified, not decreasing; F(L − 1) may be less than one.
    bounds : certified bounds of F(k) at any number of bits, for the undecided cases.
    """

    def __init__(self, thresholds: NDArray[np.uint64], bounds: Callable[[int, int], tuple[int, int]]) -> None:
        self.thresholds, self.bounds = thresholds, bounds

    @functools.cached_property
    def guide(self) -> NDArray[np.int32]:
        """Thresholds at most a word (2^16,) for the word's first bits; −1 where a threshold begins with the same."""
        first = (self.thresholds >> np.uint64(64 - _GUIDE_BITS)).astype(np.int64)
        here = np.bincount(first, minlength=1 << _GUIDE_BITS)
        return np.where(here > 0, -1, here.cumsum()).astype(np.int32)

    def draw(self, number: int, words: Words) -> NDArray[np.int64]:
        """Draws (number,) int64; L stands for anything beyond the table."""
        word = words.words(number)
        if number < _MANY:
            return self._searched(word, words)
        # Shifted words are places in the guide: nothing is ever clipped.
        first = (word >> np.uint64(64 - _GUIDE_BITS)).view(np.int64)
        found = self.guide.take(first, mode="clip").astype(np.int64)
        left = np.flatnonzero(found < 0)
        found[left] = self._searched(word[left], words)
        return found

    def _searched(self, word: NDArray[np.uint64], words: Words) -> NDArray[np.int64]:
        """Draw by search in the table; more words decide where they must."""
        found = np.searchsorted(self.thresholds, word, side="right")
        # A word equal to a threshold's first bits does not say on which side of it the real lies.
        below = np.maximum(found, 1) - 1
        for i in (self.thresholds[below] == word).nonzero()[0]:
            found[i] = self._decide(int(word[i]), words)
        return found.astype(np.int64, copy=False)

    def _decide(self, word: int, words: Words) -> int:
        """Return the first k with real < F(k), for a word that equals some thresholds; bits are drawn once."""
        recorded = _Recorded(words)
        k = int(np.searchsorted(self.thresholds, np.uint64(word), side="left"))
        while k < len(self.thresholds) and int(self.thresholds[k]) == word:
            recorded.rewind()
            if less_than(word, lambda bits, at=k: self.bounds(at, bits), recorded):  # type: ignore[misc]
                return k
            k += 1
        return k


class _Recorded:
    """Words that can be read again, so that one real is compared with several thresholds."""

    def __init__(self, words: Words) -> None:
        self._words, self._drawn, self._next = words, list[int](), 0

    def rewind(self) -> None:
        """Start over with the first word."""
        self._next = 0

    def words(self, number: int) -> NDArray[np.uint64]:
        """Return the next words, drawn or recorded."""
        while len(self._drawn) < self._next + number:
            self._drawn.append(int(self._words.words(1)[0]))
        out = self._drawn[self._next : self._next + number]
        self._next += number
        return np.array(out, dtype=np.uint64)


def certified(
    bounds: Sequence[tuple[int, int]], exact: Callable[[int, int], tuple[int, int]]
) -> NDArray[np.uint64]:
    """floor(2^64 F(k)) from bounds at 192 bits; where rounding leaves it open, from more bits."""
    out = np.empty(len(bounds), dtype=np.uint64)
    most = (1 << 64) - 1
    for k, (low, high) in enumerate(bounds):
        bits = TABLE_BITS
        while low >> (bits - 64) != high >> (bits - 64) and high >> (bits - 64) <= most:
            bits += 64
            low, high = exact(k, bits)
        out[k] = min(low >> (bits - 64), most)
    return out


def coins(chances: Sequence[Fraction], which: NDArray[np.uint8], words: Words) -> NDArray[np.bool_]:
    """Throw independent coins: the one at i comes up with probability chances[which[i]], exactly.

    Parameters
    ----------
    chances : rationals from 0 to 1. which : numbers of chances, any shape. words : random words.

    Returns
    -------
    bool array, of the shape of `which`.

    >>> from deltahist.noise.entropy import source
    >>> coins([Fraction(0), Fraction(1)], np.array([[0, 1], [1, 0]], dtype=np.uint8), source(None))
    array([[False,  True],
           [ True, False]])
    """
    bounds = [functools.partial(_rational_bounds, chance) for chance in chances]
    thresholds = certified([b(TABLE_BITS) for b in bounds], lambda k, bits: bounds[k](bits))
    flat, out = which.reshape(-1), np.empty(which.size, dtype=bool)
    for start in range(0, flat.size, _COINS):
        chosen = flat[start : start + _COINS]
        word, threshold = words.words(len(chosen)), thresholds[chosen]
        part = word < threshold
        # A word that equals the chance's first bits does not say on which side of it the real lies.
        for i in np.flatnonzero(word == threshold):
            part[i] = less_than(int(word[i]), bounds[chosen[i]], words)
        out[start : start + _COINS] = part
    return out.reshape(which.shape)


def _rational_bounds(chance: Fraction, bits: int) -> tuple[int, int]:
    scaled = chance.numerator << bits
    return scaled // chance.denominator, -(-scaled // chance.denominator)


def times(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Bounds of a product of two numbers in [0, 1] at 192 bits."""
    return a[0] * b[0] >> TABLE_BITS, (a[1] * b[1] >> TABLE_BITS) + 1


def ratio(above: tuple[int, int], below: tuple[int, int], bits: int) -> tuple[int, int]:
    """Bounds at `bits` bits of a quotient of positive numbers, at most one, from bounds at as many bits each."""
    return (above[0] << bits) // below[1], min((above[1] << bits) // below[0] + 1, 1 << bits)


def complement(p: tuple[int, int], bits: int) -> tuple[int, int]:
    """Bounds of 1 − p at as many bits."""
    return (1 << bits) - p[1], (1 << bits) - p[0]
