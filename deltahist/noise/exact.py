"""Random words, and exact decisions with them: comparisons, tables of laws, coins, and reals at two precisions.

A uniform real in [0, 1) is an endless string of random bits, of which 64 are drawn at first. They decide every
comparison but those in which they equal the first 64 bits of the threshold; then more bits of both are taken.

A formula that is written with `Uniforms` and the functions of `Reals` runs on arrays of float64, for all rows at once,
and on arrays of Decimal objects, for the few rows in which a float leaves something open. Both read the first bits of
the same uniform reals.
"""

from __future__ import annotations

import decimal
import functools
import hmac
import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError

#: Bytes.
_CIPHER_BLOCK, KEY_BYTES = 16, 32
#: Plain text, again and again: a key stream is the cipher of zeros.
_ZEROS = memoryview(bytes(1 << 16))
#: The largest word.
_MOST = (1 << 64) - 1
#: Bits of the fixed-point numbers from which tables are made; 64 are used, the rest takes up rounding.
TABLE_BITS = 192
#: First bits of a word that a guide looks at, and from how many draws on a guide pays.
_GUIDE_BITS = 16
_MANY = 1 << 12
#: Coins thrown at a time, so that the working memory does not grow with the array.
_COINS = 1 << 20

#: Whole numbers low ≤ 2^bits · value ≤ high around a real number, at some number of bits.
Interval = tuple[int, int]
#: Certified bounds of a real number, closer for more bits; and of a distribution function at k.
Bounds = Callable[[int], Interval]
BoundsAt = Callable[[int, int], Interval]


class Words(Protocol):
    """A source of independent, uniform 64-bit words."""

    def words(self, number: int) -> NDArray[np.uint64]:
        """Return the next `number` words."""


class KeyStream:
    """AES-256 in counter mode, under a fresh key from the operating system or a given one of its own.

    Nothing is kept between streams of fresh keys, so that a forked process cannot repeat its parent's words as long as
    each draw opens a stream of its own.
    """

    def __init__(self, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # A key of one stream alone needs no other start than zero.
        key, start = (os.urandom(KEY_BYTES), os.urandom(_CIPHER_BLOCK)) if key is None else (key, bytes(_CIPHER_BLOCK))
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()

    def words(self, number: int) -> NDArray[np.uint64]:
        """Return the next `number` words of the key stream."""
        # The cipher asks for room for one more block than it writes.
        out = np.empty(8 * number + _CIPHER_BLOCK, dtype=np.uint8)
        for start in range(0, 8 * number, len(_ZEROS)):
            self._cipher.update_into(_ZEROS[: 8 * number - start], out.data[start:])
        return out[: 8 * number].view(np.uint64)


class Seeded:
    """Words of a seeded generator, for experiments only: they can be predicted."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def words(self, number: int) -> NDArray[np.uint64]:
        """Return the next `number` words of the generator."""
        return self._rng.integers(0, _MOST, number, dtype=np.uint64, endpoint=True)


#: A seeded generator, for experiments only; a stream that is open; or None for a fresh stream.
Rng = np.random.Generator | KeyStream | None


def source(rng: Rng) -> Words:
    """Open a fresh cryptographic stream, or return one that is open or the words of a seeded generator.

    Raises InputError if `rng` is none of these.
    """
    if rng is None:
        return KeyStream()
    if isinstance(rng, KeyStream):
        return rng
    if isinstance(rng, np.random.Generator):
        return Seeded(rng)
    raise InputError(
        f"rng is {rng!r}: it must be None (the operating system's entropy) or a numpy.random.Generator "
        "(for experiments; a seed or RandomState is not taken)"
    )


def exp_bounds(x: Fraction, bits: int) -> Interval:
    """Return bounds of e^−x for x ≥ 0, a few units apart.

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


def times(a: Interval, b: Interval, bits: int) -> Interval:
    """Return bounds of a product of two numbers in [0, 1]."""
    return a[0] * b[0] >> bits, (a[1] * b[1] >> bits) + 1


def ratio(above: Interval, below: Interval, bits: int) -> Interval:
    """Return bounds of a quotient of positive numbers, at most one."""
    return (above[0] << bits) // below[1], min((above[1] << bits) // below[0] + 1, 1 << bits)


def complement(p: Interval, bits: int) -> Interval:
    """Return bounds of 1 − p."""
    return (1 << bits) - p[1], (1 << bits) - p[0]


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

    def __init__(self, thresholds: NDArray[np.uint64], bounds: BoundsAt) -> None:
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
            recorded.next = 0
            if less_than(word, functools.partial(self.bounds, k), recorded):
                return k
            k += 1
        return k


class _Recorded:
    """Words that can be read again, so that one real is compared with several thresholds."""

    def __init__(self, words: Words) -> None:
        self._words, self._drawn, self.next = words, list[int](), 0

    def words(self, number: int) -> NDArray[np.uint64]:
        while len(self._drawn) < self.next + number:
            self._drawn.append(int(self._words.words(1)[0]))
        self.next += number
        return np.array(self._drawn[self.next - number : self.next], dtype=np.uint64)


def certified(fast: Sequence[Interval], bounds: BoundsAt) -> NDArray[np.uint64]:
    """Return floor(2^64 F(k)) from bounds at 192 bits; where they leave it open, from more bits."""
    out = np.empty(len(fast), dtype=np.uint64)
    for k, (low, high) in enumerate(fast):
        bits = TABLE_BITS
        while low >> (bits - 64) != high >> (bits - 64) and high >> (bits - 64) <= _MOST:
            bits += 64
            low, high = bounds(k, bits)
        out[k] = min(low >> (bits - 64), _MOST)
    return out


def power_table(rate: Fraction, first: int, length: int, law: Callable[[Interval, int], Interval]) -> InversionTable:
    """Return the table of F(k) = law(e^(−rate (first + k))), k < length; `law` takes and returns bounds and their bits.

    The law may lose 64 bits, and as many again as a small rate has zeros.
    """
    guard = 64 + 2 * int(1 / rate).bit_length()

    def less(bounds: Interval) -> Interval:
        return bounds[0] >> guard, (bounds[1] >> guard) + 1

    def exact(k: int, bits: int) -> Interval:
        return less(law(exp_bounds(rate * (first + k), bits + guard), bits + guard))

    bits = TABLE_BITS + guard
    step, power, fast = exp_bounds(rate, bits), exp_bounds(rate * first, bits), []
    for _ in range(length):
        fast.append(less(law(power, bits)))
        power = times(power, step, bits)
    return InversionTable(certified(fast, exact), exact)


def chance_table(bounds: Bounds) -> InversionTable:
    """Return the table of 0 with a probability that is known by its bounds, else 1."""
    return InversionTable(certified([bounds(TABLE_BITS)], lambda k, bits: bounds(bits)), lambda k, bits: bounds(bits))


def coins(chances: Sequence[Fraction], which: NDArray[np.uint8], words: Words) -> NDArray[np.bool_]:
    """Throw independent coins: the one at i comes up with probability chances[which[i]], exactly.

    `which` holds numbers of chances, in any shape; the chances are rationals from 0 to 1.

    >>> coins([Fraction(0), Fraction(1)], np.array([[0, 1], [1, 0]], dtype=np.uint8), source(None))
    array([[False,  True],
           [ True, False]])
    """

    def bounds(k: int, bits: int) -> Interval:
        scaled = chances[k].numerator << bits
        return scaled // chances[k].denominator, -(-scaled // chances[k].denominator)

    thresholds = certified([bounds(k, TABLE_BITS) for k in range(len(chances))], bounds)
    flat, out = which.reshape(-1), np.empty(which.size, dtype=bool)
    for start in range(0, flat.size, _COINS):
        chosen = flat[start : start + _COINS]
        word, threshold = words.words(len(chosen)), thresholds[chosen]
        part = word < threshold
        # A word that equals the chance's first bits does not say on which side of it the real lies.
        for i in np.flatnonzero(word == threshold):
            part[i] = less_than(int(word[i]), functools.partial(bounds, int(chosen[i])), words)
        out[start : start + _COINS] = part
    return out.reshape(which.shape)


#: Of float64, or of Decimal objects.
Reals = NDArray[Any]

_WORD = 64
#: A block to encipher: whose words, what for, which 64 bits of them, and which two.
_PLACE = np.dtype([("user", "<u8"), ("purpose", "<u2"), ("plane", "<u2"), ("pair", "<u4")])


class Keyed:
    """Words that are a function of a secret key, a user and an index: AES-256 of one distinct block for each two words.

    To whoever lacks the key they are as good as random; with the key, any of them can be had again at any time. Words
    for another label, or under another key, are independent of them.
    """

    def __init__(self, key: bytes, label: str) -> None:
        self._key = hmac.digest(key, label.encode(), "sha256")

    def words(
        self, purpose: int, users: NDArray[np.int64], *, first: int, number: int, planes: int
    ) -> NDArray[np.uint64]:
        """(users, number, planes) words: `number` of each plane from an even index `first` on."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        pairs = -(-number // 2)
        blocks = np.zeros((len(users), planes, pairs), dtype=_PLACE)
        blocks["user"], blocks["purpose"] = users[:, None, None], purpose
        blocks["plane"], blocks["pair"] = np.arange(planes)[:, None], first // 2 + np.arange(pairs)
        # A cipher of distinct blocks, one by one: no stream could be entered at any place of so many.
        cipher = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()
        words = np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").astype(np.uint64, copy=False)
        return words.reshape(len(users), planes, 2 * pairs)[:, :, :number].swapaxes(1, 2)


class Uniforms:
    """Independent uniform reals in (0, 1), of each of which the first bits are known.

    Parameters
    ----------
    words : (rows, slots, planes) uint64; plane p holds the bits 64 p to 64 p + 63 of every real.
    exact : whether to reckon in Decimal, under the caller's decimal context, or in float64.
    """

    def __init__(self, words: NDArray[np.uint64], exact: bool = False) -> None:
        self._words = words
        self.value: Reals
        self.rest: Reals
        if exact:
            whole = np.zeros(words.shape[:2], dtype=object)
            for plane in range(words.shape[2]):
                whole = whole * (1 << _WORD) + words[..., plane].astype(object)
            size = 1 << (_WORD * words.shape[2] + 1)  # the middle of what the bits leave open
            quotient = np.frompyfunc(lambda number: Decimal(number) / size, 1, 1)
            self.value, self.rest = quotient(2 * whole + 1), quotient(size - 1 - 2 * whole)
        else:
            # From the complement, so that a real next to 1 keeps its distance from 1.
            self.value, self.rest = _float(words), _float(~words)

    def exponential(self, slot: int) -> Reals:
        """(rows,) −ln U, with the relative precision of the reals however near U is to 1."""
        value, rest = self.value[:, slot], self.rest[:, slot]
        if value.dtype == object:
            return -log(value)
        return np.where(rest > 0.5, -np.log(value), -np.log1p(-np.minimum(rest, 0.5)))

    def coin(self, slot: int) -> NDArray[np.bool_]:
        """(rows,) whether the real is above ½: its first bit."""
        return self._words[:, slot, 0] >= 1 << (_WORD - 1)

    def normals(self, slot: int, number: int) -> tuple[Reals, Reals]:
        """(rows, number) standard normals by Box and Muller, and (rows,) the length of all pairs' radii.

        They take the slots from `slot` on, two for each pair.
        """
        parts, length = [], np.zeros(len(self.value), dtype=self.value.dtype)
        for first in range(slot, slot + number, 2):
            square = 2 * self.exponential(first)
            cosine, sine = circle(self.value[:, first + 1])
            parts += [sqrt(square) * cosine, sqrt(square) * sine]
            length = length + square
        return np.stack(parts[:number], axis=1), sqrt(length)


def _float(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the middle of what the bits leave open, with full relative precision."""
    out = np.full(words.shape[:2], 0.5)
    for plane in reversed(range(words.shape[2])):
        out = (out + words[..., plane]) * 2.0**-_WORD
    return out


def _both(floats: Callable[..., Any], decimals: Callable[[Decimal], Decimal]) -> Callable[[Reals], Any]:
    """Make a function of arrays of either precision."""
    each = np.frompyfunc(decimals, 1, 1)
    return lambda x: each(x) if x.dtype == object else floats(x)


# Digits to spare make up for the cancellation in Decimal.
log, exp, sqrt = _both(np.log, Decimal.ln), _both(np.exp, Decimal.exp), _both(np.sqrt, Decimal.sqrt)
expm1, log1p = _both(np.expm1, lambda x: x.exp() - 1), _both(np.log1p, lambda x: (1 + x).ln())


def norm(x: Reals) -> Reals:
    """(rows,) Euclidean lengths of (rows, n) vectors."""
    return sqrt((x * x).sum(axis=1))  # type: ignore[no-any-return]


def circle(turns: Reals) -> tuple[Reals, Reals]:
    """Return cos and sin of 2π times turns in [0, 1]."""
    if turns.dtype != object:
        return np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)
    both = [_circle(turn) for turn in turns]
    return tuple(np.array([b[i] for b in both], dtype=object) for i in (0, 1))  # type: ignore[return-value]


def _circle(turn: Decimal) -> tuple[Decimal, Decimal]:
    """By the series at the opposite point, whose angle is at most π."""
    angle = (2 * turn - 1) * _pi(decimal.getcontext().prec)
    sums, term, power = [Decimal(0), Decimal(0)], Decimal(1), 0
    end = Decimal(10) ** -(decimal.getcontext().prec + 2)
    while abs(term) > end or power < 4:
        sums[power % 2] += -term if power % 4 < 2 else term
        power += 1
        term = term * angle / power
    return sums[0], sums[1]


@functools.cache
def _pi(digits: int) -> Decimal:
    """π by Machin's formula, 16 arctan(1/5) − 4 arctan(1/239), in whole numbers."""
    unit = 10 ** (digits + 10)

    def arctan(inverse: int) -> int:
        power, out, k = unit // inverse, 0, 0
        while power:
            out += (power if k % 2 == 0 else -power) // (2 * k + 1)
            power //= inverse * inverse
            k += 1
        return out

    return Decimal(16 * arctan(5) - 4 * arctan(239)) / unit
