"""Noise of one quantile: a place of a line by its cost, or a heavy-tailed real number, rounded; both exactly.

**Places.** Notation of docs/quantiles.md and of its proof: x_1 ≤ … ≤ x_n are points on a line of whole places, and x_r
is the quantile. A move takes one point at most D places along; m(z) is how many moves make the place z the quantile.
P(z) = e^(−λ m(z)) / W. Above x_r every point i ≥ r with x_i < z has to go to z, in ⌈(z − x_i)/D⌉ moves: as many as
there are places x_i, x_i + D, x_i + 2D, … below z, the *marks* of that side. In rising order these are e_0 ≤ e_1 ≤ …,
of which e_0 is x_r itself. So m(z) is the number of marks below z, and the places e_(l−1) < z ≤ e_l, a *stretch*, take
l moves. Below x_r everything is mirrored.

A number of moves is drawn first, then a place. Bits of a uniform real U are drawn until they decide; e^(−λ) is known
between whole multiples of 2^(−b). Places that take more than L moves weigh next to nothing together. Whatever is
undecided is repeated with more bits of U, a larger b and a larger L, so that the law has no error.

**Heavy tails.** Discrete noise needs a scale that may be known. Smooth sensitivity may not, so that x + S Z is drawn as
a real number and rounded: Z is a function of uniform reals, of which as many bits are drawn as decide the result.
"""

from __future__ import annotations

import bisect
import decimal
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, one_of
from deltahist.noise.exact import Words, exp_bounds

#: Bits of U, and b, at first.
_BITS = 192
#: Places that take more than L moves weigh at most 2^(−_TAIL) at first; the quantile itself weighs 1.
_TAIL = 80
#: Further bits of powers of e^(−λ), which take up the rounding when many are multiplied.
_GUARD = 32
#: Bits that heavy-tailed noise draws of each uniform real at first, and again whenever they do not decide.
_MORE_BITS = 64

#: From a number to the distances of the points above the quantile and of those below it: at most so many on either
#: side, the nearest, rising, the quantile's own 0 first.
Nearest = Callable[[int], tuple[NDArray[np.int64], NDArray[np.int64]]]
#: Bounds of a real number.
_Interval = tuple[Decimal, Decimal]


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

    @functools.cache
    def ends_of(most: int) -> NDArray[np.int64]:
        """Return the ends of both sides' stretches; the shorter side goes on with empty ones."""
        above, below = (
            stretches(distances, reach, end, most) for distances, end in zip(nearest(most + 1), room, strict=True)
        )
        longer = max(len(above), len(below))
        return np.array([np.pad(ends, (0, longer - len(ends)), mode="edge") for ends in (above, below)])

    def widths(most: int) -> list[int]:
        return [1, *np.diff(ends_of(most)).sum(axis=0).tolist()]

    moves, most = _draw_cost(widths, 1 + sum(room), rate, words)
    if moves == 0:
        return 0
    (above, last_above), (below, last_below) = ends_of(most)[:, moves - 1 : moves + 1].tolist()
    number = last_above - above
    pick = whole_below(number + last_below - below, words)
    return above + 1 + pick if pick < number else -(below + 1 + pick - number)


def draw_costed(
    costs: NDArray[np.int64], widths: NDArray[np.int64], rate: Fraction, words: Words
) -> tuple[int, int]:
    """Draw a place z with P(z) ∝ e^(−λ m(z)), exactly, where places of equal cost m lie in stretches.

    Return the stretch, and the place in it, from 0. Private are the costs (t,) of stretches, not negative, and how many
    places each has, `widths` (t,); public is the sum of these, which is above zero and below 2^62.

    >>> from deltahist.noise.exact import source
    >>> words = source(np.random.default_rng(0))
    >>> [draw_costed(np.array([4, 3, 9]), np.array([2, 1, 5]), Fraction(1), words) for _ in range(5)]
    [(0, 1), (0, 1), (1, 0), (0, 0), (0, 1)]
    """
    # Only differences matter; the least cost is that of a stretch with places.
    costs = costs - costs[widths > 0].min()

    def sums(most: int) -> list[int]:
        out, near = np.zeros(most + 1, dtype=np.int64), costs <= most
        np.add.at(out, costs[near], widths[near])
        return out.tolist()  # type: ignore[no-any-return]

    cost, _ = _draw_cost(sums, int(widths.sum()), rate, words)
    alike = np.flatnonzero(costs == cost)
    ends = np.cumsum(widths[alike])
    pick = whole_below(int(ends[-1]), words)
    stretch = int(np.searchsorted(ends, pick, side="right"))
    return int(alike[stretch]), pick - int(ends[stretch] - widths[alike[stretch]])


def _draw_cost(
    widths: Callable[[int], list[int]], size: int, rate: Fraction, words: Words
) -> tuple[int, int]:
    """Draw the cost l of a place, and return the L at which it was decided; `widths` has w_0, …, w_L for an L.

    Of `size` places w_l cost l. With W_l = Σ_(k ≤ l) w_k e^(−λk), l is drawn if W_(l−1) ≤ U W < W_l.
    """
    uniform, bits, most = _Uniform(words), _BITS, moves_that_matter(size, rate)
    while True:
        known = widths(most)
        low, high = partial_sums(known, size - sum(known), rate, bits)
        cost = _moves_made(uniform.first(bits), bits, low, high)
        if cost is not None:
            return cost, most
        bits, most = 2 * bits, 2 * most


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
    marks = _marks(distances, reach, min(room // reach + 1, _turns(distances // reach, most + 1)))
    marks = marks[marks < room][: most + 1]
    return marks if len(marks) > most else np.append(marks, room)


def _turns(starts: NDArray[np.int64], wanted: int) -> int:
    """Return the least c such that at least `wanted` marks lie below c D: Σ_i max(0, c − q_i), q_i = ⌊d_i / D⌋.

    >>> _turns(np.array([0, 0, 2]), 7)  # below 3 D lie three marks of the first, three of the second, one of the third
    3
    """
    # So many marks lie below q_k D. Floats are exact up to 2^53, and beyond it no memory holds the marks.
    earlier = np.zeros(len(starts))
    np.cumsum(np.arange(1.0, len(starts)) * np.diff(starts), out=earlier[1:])
    started = int(np.searchsorted(earlier, wanted))
    return int(starts[started - 1]) + math.ceil((wanted - earlier[started - 1]) / started)


def _marks(distances: NDArray[np.int64], reach: int, turns: int) -> NDArray[np.int64]:
    """All d_i + j D below `turns` · D, sorted."""
    number = turns - distances // reach
    started = number > 0
    number = number[started]
    turn = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    return np.sort(np.repeat(distances[started], number) + turn * reach)


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

    def __init__(self, words: Words, bits: int = 0) -> None:
        self._words, self._first, self._bits = words, 0, 0
        self.first(bits)

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
    def bounds(self) -> _Interval:
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


def rounded(
    kind: str, centre: int, scale: Fraction, words: Words, *, sigma: Fraction = Fraction(1, 2)
) -> int:
    """Return the whole number nearest to centre + scale · Z, exactly.

    The law of Z is "student" (two degrees of freedom), "laplace" or "lognormal", with `sigma` of that factor. A scale
    that is not above zero is refused: the value would come out without noise.
    """
    laws: dict[str, Callable[[], Iterator[_Interval]]] = {
        "student": lambda: student(words),
        "laplace": lambda: laplace(words),
        "lognormal": lambda: lognormal(sigma, words),
    }
    one_of(tuple(laws), kind=kind)
    if not scale > 0:
        raise InputError(f"scale is {scale}: it must be above zero, or nothing hides the value")
    # Uniform reals of so many bits are exact decimals; what follows is rounded far below their spacing.
    digits = 2 * _MORE_BITS + 40
    context = decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    with decimal.localcontext(context) as inner:
        for low, high in laws[kind]():
            least, most = (math.floor(centre + scale * Fraction(z) + Fraction(1, 2)) for z in (low, high))
            if least == most:
                return least
            inner.prec += _MORE_BITS
    raise AssertionError("noise never ends")


def student(words: Words) -> Iterator[_Interval]:
    """Student's t with two degrees of freedom, by inversion: P √(2 / (1 − P²)) for uniform P in (−1, 1)."""
    uniform = _Uniform(words, _MORE_BITS)
    while True:
        low, high = (2 * u - 1 for u in uniform.bounds)
        if low > -1 and high < 1:
            yield _widened(_student(low), _student(high))
        uniform.refine()


def _student(p: Decimal) -> Decimal:
    return p * (2 / ((1 - p) * (1 + p))).sqrt()


def laplace(words: Words) -> Iterator[_Interval]:
    """Laplace of scale 1: a random sign and −ln U."""
    positive = int(words.words(1)[0]) & 1
    uniform = _Uniform(words, _MORE_BITS)
    while True:
        if uniform.bounds[0] > 0:
            low, high = _logarithm(uniform.bounds)
            least, most = _widened(-high, -low)
            yield (least, most) if positive else (-most, -least)
        uniform.refine()


def lognormal(sigma: Fraction, words: Words) -> Iterator[_Interval]:
    """Laplace times e^(σ Y) with a standard normal Y (Bun and Steinke 2019)."""
    magnitude, normal = laplace(words), _normal(words)
    while True:
        exponent = Decimal(sigma.numerator) / Decimal(sigma.denominator)
        ends, (least, most) = next(magnitude), next(normal)
        yield _product(ends, _widened(*_exponential((exponent * least, exponent * most)), absolute=False))


def _normal(words: Words) -> Iterator[_Interval]:
    """Draw a standard normal by the polar method: u √(−2 ln s / s), (u, v) in the unit disc, s = u² + v²."""
    while True:
        pair = _Uniform(words, _MORE_BITS), _Uniform(words, _MORE_BITS)
        while True:
            u, v = ((2 * r.bounds[0] - 1, 2 * r.bounds[1] - 1) for r in pair)
            low, high = (a + b for a, b in zip(_square(u), _square(v), strict=True))
            if low >= 1:
                break
            if high < 1 and low > 0:
                # ln s / s rises with s below 1.
                least, most = _logarithm((low, high))
                yield _product(u, _widened((max(-2 * most, Decimal(0)) / high).sqrt(), (-2 * least / low).sqrt()))
            for real in pair:
                real.refine()


def _product(x: _Interval, y: _Interval) -> _Interval:
    ends = [a * b for a in x for b in y]
    return _widened(min(ends), max(ends))


def _logarithm(x: _Interval) -> _Interval:
    """Bounds of ln x for x above zero, from one logarithm: ln(low + w) ≤ ln(low) + w/low."""
    low = x[0].ln()
    return low, low + (x[1] - x[0]) / x[0]


def _exponential(x: _Interval) -> _Interval:
    """Bound e^x; over a short interval from one exponential: e^(low + w) ≤ e^low / (1 − w) for w < 1."""
    low, width = x[0].exp(), x[1] - x[0]
    return low, low / (1 - width) if width < 1 else x[1].exp()


def _square(x: _Interval) -> _Interval:
    low, high = sorted((x[0] * x[0], x[1] * x[1]))
    return (Decimal(0) if x[0] < 0 < x[1] else low), high


def _widened(low: Decimal, high: Decimal, absolute: bool = True) -> _Interval:
    """Bounds with room for the rounding of a few decimal operations."""
    digits = decimal.getcontext().prec - 10
    slack = max(abs(low), abs(high)).scaleb(-digits)
    if absolute:
        slack += Decimal(1).scaleb(-digits)
    return low - slack, high + slack
