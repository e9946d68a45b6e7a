"""Keyed uniform reals, and the formulas of noise of density ∝ e^(−ε|v|) in n dimensions, at two precisions.

A formula that is written with these functions runs on arrays of float64, for all rows at once, and on arrays of Decimal
objects, for the few rows in which a float leaves something open. Both read the first bits of the same uniform reals.

V_ε = √(2S)/ε · N(0, I) with S ~ Gamma((n + 1)/2). Downwards in ε it makes independent jumps at the rate n + 1 per unit
of ln ε, each √(2W)/ε · N(0, I) with W ~ Exp(1). Upwards, from the value x, it makes them at the rate 1 + ε|x|
(docs/processes.md). Formulas reckon with values times their level, w = εx, whose law is the same at every level.
"""

from __future__ import annotations

import decimal
import functools
import hmac
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class Jump(NamedTuple):
    """A new value times its level, and what it was made of: for bounds of its rounding error."""

    value: Reals  # (rows, n)
    scale: Reals  # (rows,) of the normal
    normal: Reals  # (rows, n)
    radius: Reals  # (rows,) of all its pairs
    spread: Reals  # (rows,) the squared radius of the normals in the scale


class Rise(NamedTuple):
    """A jump upwards, and what decided it."""

    jump: Jump
    size: Reals  # z = |w| before the jump, as all that follows
    roots: tuple[Reals, Reals]  # the smaller and the larger one of the inverse Gaussian law
    coin: Reals  # decides between them
    smaller: NDArray[np.bool_]  # which one it was
    total: Reals  # T = W + S
    share: Reals  # S / T


#: Uniform reals that `start`, `next_below` and `fall`, `next_above` and `rise` take, besides the reals of a normal.
FALL_SLOTS, RISE_SLOTS = 2, 7


def start_slots(dimension: int) -> int:
    """Return how many uniform reals `start` takes, besides the reals of a normal."""
    return (dimension + 1) // 2 + (0 if dimension % 2 else 2)


def start(dimension: int, uniforms: Uniforms) -> Jump:
    """√(2S) · N(0, I), S ~ Gamma((n + 1)/2)."""
    mixing, slot = uniforms.exponential(0), (dimension + 1) // 2
    for i in range(1, slot):
        mixing = mixing + uniforms.exponential(i)
    spread = 0 * mixing
    if dimension % 2 == 0:  # and half of a squared normal
        half, radius = uniforms.normals(slot, 1)
        mixing, spread = mixing + half[:, 0] ** 2 / 2, radius**2
    normal, radius = uniforms.normals(start_slots(dimension), dimension)
    scale = sqrt(2 * mixing)
    return Jump(scale[:, None] * normal, scale, normal, radius, spread)


def next_below(dimension: int, uniforms: Uniforms) -> Reals:
    """(rows,) the level of the next jump downwards, relative to the present one."""
    return exp(-uniforms.exponential(0) / (dimension + 1))  # type: ignore[no-any-return]


def fall(dimension: int, uniforms: Uniforms) -> Jump:
    """√(2W) · N(0, I), W ~ Exp(1): the addition of a jump downwards."""
    scale = sqrt(2 * uniforms.exponential(1))
    normal, radius = uniforms.normals(FALL_SLOTS, dimension)
    return Jump(scale[:, None] * normal, scale, normal, radius, 0 * scale)


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
    normal, radius = uniforms.normals(RISE_SLOTS, dimension)
    new = share[:, None] * value + width[:, None] * normal
    return Rise(Jump(new, width, normal, radius, spread**2), size, roots, coin, smaller, total, share)
