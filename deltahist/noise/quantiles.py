"""Noise of one quantile: a place of a line by the moves it needs, or a heavy-tailed real number; both exactly.

**Places.** Notation of docs/internals/quantiles.md and of its proof: x_1 ≤ … ≤ x_n are points on a line of whole
places, and x_r
is the quantile. A move takes one point at most D places along; m(z) is how many moves make the place z the quantile.
P(z) = e^(−λ m(z)) / W. Above x_r every point i ≥ r with x_i < z has to go to z, in ⌈(z − x_i)/D⌉ moves: as many as
there are places x_i, x_i + D, x_i + 2D, … below z, the *marks* of that side. In rising order these are e_0 ≤ e_1 ≤ …,
of which e_0 is x_r itself. So m(z) is the number of marks below z, and the places e_(l−1) < z ≤ e_l, a *stretch*, take
l moves. Below x_r everything is mirrored.

A number of moves is drawn first, then a place. Bits of a uniform real U are drawn until they decide; e^(−λ) is known
between whole multiples of 2^(−b). Places that take more than L moves weigh next to nothing together. Whatever is
undecided is repeated with more bits of U, a larger b and a larger L, so that the law has no error.

**Heavy tails.** Discrete noise needs a scale that may be known. Smooth sensitivity may not, so that x + S Z is drawn as
a real number and rounded: Z, Student's t with two degrees of freedom, is a function of a uniform real, of which as
many bits are drawn as decide the result.
"""

from __future__ import annotations

import bisect
import decimal
import functools
import heapq
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.noise.exact import Words, exp_bounds

#: Bits of U, and b, at first.
_BITS = 192
#: Places that take more than L moves weigh at most 2^(−_TAIL) at first; the quantile itself weighs 1.
_TAIL = 80
#: Further bits of powers of e^(−λ), which take up the rounding when many are multiplied.
_GUARD = 32
#: Bits that heavy-tailed noise draws of a uniform real at first, and again whenever they do not decide.
_MORE_BITS = 64

#: From a number to the distances of the points above the quantile and of those below it: at most so many on either
#: side, the nearest, rising, the quantile's own 0 first.
Nearest = Callable[[int], tuple[NDArray[np.int64], NDArray[np.int64]]]


def draw_place(nearest: Nearest, room: tuple[int, int], reach: int, rate: Fraction, words: Words) -> int:
    """Draw a place z with P(z) ∝ e^(−λ m(z)), exactly, as its distance from the quantile.

    Parameters
    ----------
    nearest : distances of the points, private; it is asked for no more of them than matter.
    room : places above and below the quantile, up to the ends of the line.
    reach : D, how many places a point goes in one move at most. rate : λ, above zero.

    >>> from deltahist.noise.exact import source
    >>> points = np.array([0, 3]), np.array([0])  # the quantile is the lower one of two points, 3 places apart
    >>> words = source(np.random.default_rng(0))
    >>> [draw_place(lambda number: points, (9, 4), 5, Fraction(1), words) for _ in range(8)]
    [-3, -3, 1, -4, 2, 0, 3, 6]
    """

    size, uniform, bits = 1 + sum(room), _Uniform(words), _BITS
    most = moves_that_matter(size, rate)
    while True:
        above, below = (
            stretches(distances, reach, end, most) for distances, end in zip(nearest(most + 1), room, strict=True)
        )
        # The shorter side goes on with empty stretches.
        longer = max(len(above), len(below))
        above, below = (np.pad(ends, (0, longer - len(ends)), mode="edge") for ends in (above, below))
        # Of all places widths[l] take l moves; l is drawn if W_(l−1) ≤ U W < W_l, W_l = Σ_(k ≤ l) w_k e^(−λk).
        widths = [1, *np.diff(above + below).tolist()]
        low, high = partial_sums(widths, size - sum(widths), rate, bits)
        moves = _moves_made(uniform.first(bits), bits, low, high)
        if moves is not None:
            break
        bits, most = 2 * bits, 2 * most
    if moves == 0:
        return 0
    number = int(above[moves] - above[moves - 1])
    pick = whole_below(widths[moves], words)
    return int(above[moves - 1]) + 1 + pick if pick < number else -(int(below[moves - 1]) + 1 + pick - number)


def moves_that_matter(size: int, rate: Fraction) -> int:
    """L ≥ 8 with size · e^(−λL) ≤ 2^(−_TAIL)."""
    return max(8, math.ceil((math.log(size) + _TAIL * math.log(2)) / float(rate)))


def stretches(distances: NDArray[np.int64], reach: int, room: int, most: int) -> NDArray[np.int64]:
    """Return where the stretches of one side end: the smallest of d_i + j D, j = 0, 1, …, up to the one of L moves.

    Fewer than L + 1 end where no place takes L moves: then the last one is `room`, the number of places on this side.
    `distances` are d_i of the points, rising, the quantile's own 0 first; L + 1 of them are enough.

    Points at 0 and 3 that go 5 places in a move: one of them goes to the places 1 to 3, both go to 4 and 5, and beyond
    the first one goes twice.

    >>> stretches(np.array([0, 3]), reach=5, room=20, most=4)
    array([ 0,  3,  5,  8, 10])
    >>> stretches(np.array([0, 3]), reach=5, room=7, most=4)
    array([0, 3, 5, 7])
    """
    ends: list[int] = []
    marks = distances.tolist()  # rising, and so a heap
    while marks[0] < room and len(ends) <= most:
        ends.append(marks[0])
        heapq.heapreplace(marks, marks[0] + reach)
    return np.array(ends if len(ends) > most else [*ends, room])


def partial_sums(widths: Iterable[int], rest: int, rate: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Bounds of W_0, …, W_L and of W, in units of 2^(−bits), rounded outwards: lists of L + 2 whole numbers.

    W_l = Σ_(k ≤ l) w_k e^(−λk), and W_L ≤ W ≤ W_L + rest · e^(−λ(L+1)); `rest` places take more than L moves.
    256 · (1 + 2/e) is 444.4, and 256 · 3/e² is 103.9:

    >>> partial_sums([1, 2], 3, Fraction(1), 8)
    ([256, 444, 444], [257, 446, 550])
    """
    shift = bits + _GUARD
    least, most = _unit(rate, shift)
    low_power = high_power = 1 << shift
    low, high, low_sum, high_sum = [], [], 0, 0
    for width in widths:
        low_sum += width * low_power >> _GUARD
        high_sum += (width * high_power >> _GUARD) + 1
        low.append(low_sum)
        high.append(high_sum)
        low_power = low_power * least >> shift
        high_power = (high_power * most >> shift) + 1
    beyond = (rest * high_power >> _GUARD) + 1 if rest else 0
    return [*low, low_sum], [*high, high_sum + beyond]


@functools.lru_cache(maxsize=64)
def _unit(rate: Fraction, bits: int) -> tuple[int, int]:
    """Bounds of e^(−λ); λ is public, so that they may be kept."""
    return exp_bounds(rate, bits)


def _moves_made(first: int, bits: int, low: list[int], high: list[int]) -> int | None:
    """Return the l with W_(l−1) ≤ U W < W_l, or None if the bounds leave it open.

    U lies in [first, first + 1) / 2^bits. Between W_L and W, the last sum, nothing is decided.

    >>> low, high = [256, 444, 444], [257, 446, 550]
    >>> [_moves_made(u, 8, low, high) for u in (10, 140, 180, 230)]
    [0, None, 1, None]
    """
    least = first * low[-1] >> bits
    most = ((first + 1) * high[-1] >> bits) + 1
    moves = bisect.bisect_right(high, least)
    return moves if most <= low[moves] else None


class _Uniform:
    """A uniform real U in [0, 1), of which bits are drawn when they are needed."""

    def __init__(self, words: Words) -> None:
        self._words, self._first, self._bits = words, 0, 0

    def first(self, bits: int) -> int:
        """⌊2^bits · U⌋, for more bits each time."""
        more = bits - self._bits
        if more:
            self._first, self._bits = self._first << more | _random_bits(more, self._words), bits
        return self._first

    def refine(self) -> None:
        """Draw more bits."""
        self.first(self._bits + _MORE_BITS)

    @property
    def bounds(self) -> tuple[Decimal, Decimal]:
        """The interval that the bits so far leave open."""
        unit = Decimal(2) ** -self._bits
        return self._first * unit, (self._first + 1) * unit


def whole_below(number: int, words: Words) -> int:
    """Draw a uniform whole number from 0 to number − 1, by rejection."""
    while True:
        drawn = _random_bits((number - 1).bit_length(), words)
        if drawn < number:
            return drawn


def _random_bits(number: int, words: Words) -> int:
    """So many bits as a whole number; at least one word is drawn."""
    drawn = words.words(max(1, -(-number // 64)))
    return int.from_bytes(drawn.astype(">u8").tobytes()) & ((1 << number) - 1)


def rounded_student(centre: int, scale: Fraction, words: Words) -> int:
    """Return the whole number nearest to centre + scale · Z, exactly, for Z of Student's t with 2 degrees of freedom.

    Z is drawn by inversion, P √(2 / (1 − P²)) for uniform P in (−1, 1). A scale that is not above zero is refused: the
    value would come out without noise.
    """
    if not scale > 0:
        raise InputError(f"scale is {scale}: it must be above zero, or nothing hides the value")
    uniform = _Uniform(words)
    uniform.first(_MORE_BITS)
    # Uniform reals of so many bits are exact decimals; what follows is rounded far below their spacing.
    context = decimal.Context(prec=2 * _MORE_BITS + 40, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    with decimal.localcontext(context) as inner:
        while True:
            low, high = (2 * u - 1 for u in uniform.bounds)
            if low > -1 and high < 1:
                bounds = student_bounds(low, high)
                least, most = (math.floor(centre + scale * Fraction(z) + Fraction(1, 2)) for z in bounds)
                if least == most:
                    return least
                inner.prec += _MORE_BITS
            uniform.refine()


def student_bounds(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """Return bounds of P √(2 / (1 − P²)) for P from low to high, with room for the rounding of decimals."""
    least, most = (p * (2 / ((1 - p) * (1 + p))).sqrt() for p in (low, high))
    digits = decimal.getcontext().prec - 10
    slack = max(abs(least), abs(most)).scaleb(-digits) + Decimal(1).scaleb(-digits)
    return least - slack, most + slack
