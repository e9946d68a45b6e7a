"""Uniform reals from random words, and functions of them, at two precisions: float64, or as many digits as it takes.

A formula that is written with these functions runs on arrays of float64, for all rows at once, and on arrays of Decimal
objects, for the few rows in which a float leaves something open. Both read the first bits of the same uniform reals.
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of float64, or of Decimal objects.
Reals = NDArray[Any]

_WORD = 64


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
            self.value = _quotients(2 * whole + 1, size)
            self.rest = _quotients(size - 1 - 2 * whole, size)
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


def pairs(number: int) -> int:
    """Return how many slots a number of normals takes."""
    return number + number % 2


def _float(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the middle of what the bits leave open, with full relative precision."""
    out = np.full(words.shape[:2], 0.5)
    for plane in reversed(range(words.shape[2])):
        out = (out + words[..., plane]) * 2.0**-_WORD
    return out


def _quotients(whole: NDArray[Any], size: int) -> Reals:
    return _each(lambda number: Decimal(number) / size)(whole)


def _each(function: Callable[[Any], Any]) -> Callable[[Any], Reals]:
    """Make a function of one number for arrays of objects."""
    return np.frompyfunc(function, 1, 1)  # type: ignore[no-any-return]


_LOG, _EXP, _SQRT = _each(Decimal.ln), _each(Decimal.exp), _each(Decimal.sqrt)


def log(x: Reals) -> Reals:
    """Natural logarithm."""
    return _LOG(x) if x.dtype == object else np.log(x)


def exp(x: Reals) -> Reals:
    """e^x."""
    return _EXP(x) if x.dtype == object else np.exp(x)


def expm1(x: Reals) -> Reals:
    """e^x − 1; digits to spare make up for the cancellation in Decimal."""
    return _EXP(x) - 1 if x.dtype == object else np.expm1(x)


def log1p(x: Reals) -> Reals:
    """ln(1 + x)."""
    return _LOG(1 + x) if x.dtype == object else np.log1p(x)


def sqrt(x: Reals) -> Reals:
    """Square root."""
    return _SQRT(x) if x.dtype == object else np.sqrt(x)


def norm(x: Reals) -> Reals:
    """(rows,) Euclidean lengths of (rows, n) vectors."""
    return sqrt((x * x).sum(axis=1))


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
