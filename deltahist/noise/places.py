"""Places of a line, drawn exactly: the fewer moves would make a place the quantile, the likelier it is.

Notation of docs/quantiles.md and of its proof. x_1 ≤ … ≤ x_n are points on a line of whole places, and x_r is the
quantile. A move takes one point at most D places along; m(z) is how many moves make the place z the quantile. Then

    P(z) = e^(−λ m(z)) / W,    W = Σ_z e^(−λ m(z)).

**Moves are marks.** Above x_r every point i ≥ r with x_i < z has to go to z, which takes it ⌈(z − x_i)/D⌉ moves: as
many as there are places x_i, x_i + D, x_i + 2D, … below z. All of these, over all i ≥ r, are the marks of that side.
In rising order they are e_0 ≤ e_1 ≤ …, of which e_0 is x_r itself. So m(z) is the number of marks below z, and the
places e_(l−1) < z ≤ e_l, a *stretch*, take l moves. Below x_r everything is mirrored. Here either side is told by its
distances from x_r, so that both are treated alike.

**A number of moves first, then a place.** Let w_l be how many places take l moves (w_0 = 1: only x_r takes none), and
W_l = Σ_(k ≤ l) w_k e^(−λk). With a uniform real U in [0, 1), l moves are made if W_(l−1) ≤ U W < W_l. Of the w_l places
each is as likely as another.

**Exactly.** Bits of U are drawn until they decide; e^(−λ) is known between whole multiples of 2^(−b), and with it all
W_l. Places that take more than L moves weigh next to nothing together, and are looked at only if U W may lie among
them. Whatever is undecided is repeated with more bits of U, a larger b and a larger L, so that the law has no error.

`draw_costed` does the same for places in stretches of any cost, in which moves have no part.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.noise.entropy import Words
from deltahist.noise.exact import exp_bounds

#: Bits of U, and b, at first.
_BITS = 192
#: Places that take more than L moves weigh at most 2^(−_TAIL) at first; the quantile itself weighs 1.
_TAIL = 80
#: Further bits of powers of e^(−λ), which take up the rounding when many are multiplied.
_GUARD = 32

#: From a number to the distances of the points above the quantile and of those below it: at most so many on either
#: side, the nearest, rising, the quantile's own 0 first.
Nearest = Callable[[int], tuple[NDArray[np.int64], NDArray[np.int64]]]


def draw_place(nearest: Nearest, room: tuple[int, int], reach: int, rate: Fraction, words: Words) -> int:
    """Draw a place z with P(z) ∝ e^(−λ m(z)), exactly, as its distance from the quantile.

    Parameters
    ----------
    nearest : distances of the points, private; it is asked for no more of them than matter.
    room : places above and below the quantile, up to the ends of the line.
    reach : D, how many places a point goes in one move at most.
    rate : λ, above zero.
    words : random words.

    >>> from deltahist.noise.entropy import source
    >>> points = np.array([0, 3]), np.array([0])  # the quantile is the lower one of two points, 3 places apart
    >>> words = source(np.random.default_rng(0))
    >>> [draw_place(lambda number: points, (9, 4), 5, Fraction(1), words) for _ in range(8)]
    [-3, -3, 1, -4, 2, 0, 3, 6]
    """
    uniform, size, bits = _Uniform(words), 1 + sum(room), _BITS
    most = moves_that_matter(size, rate)
    while True:
        sides = zip(nearest(most + 1), room, strict=True)
        ends = _alike(*(stretches(distances, reach, end, most) for distances, end in sides))
        widths = [1, *np.diff(ends).sum(axis=0).tolist()]
        low, high = partial_sums(widths, size - sum(widths), rate, bits)
        moves = _moves_made(uniform.first(bits), bits, low, high)
        if moves is not None:
            return _place_of(moves, ends, words)
        bits, most = 2 * bits, 2 * most


def draw_costed(
    costs: NDArray[np.int64], widths: NDArray[np.int64], rate: Fraction, words: Words
) -> tuple[int, int]:
    """Draw a place z with P(z) ∝ e^(−λ m(z)), exactly, where places of equal cost m lie in stretches.

    Parameters
    ----------
    costs : (t,) m of the places of each stretch, not negative; private.
    widths : (t,) how many places each has; private, but their sum, which is above zero and below 2^62, is public.
    rate : λ, above zero.
    words : random words.

    Returns
    -------
    The stretch, and the place in it, from 0.

    >>> from deltahist.noise.entropy import source
    >>> words = source(np.random.default_rng(0))
    >>> [draw_costed(np.array([4, 3, 9]), np.array([2, 1, 5]), Fraction(1), words) for _ in range(5)]
    [(0, 1), (0, 1), (1, 0), (0, 0), (0, 1)]
    """
    # Only differences matter; the least cost is that of a stretch with places.
    costs = costs - costs[widths > 0].min()
    uniform, size, bits = _Uniform(words), int(widths.sum()), _BITS
    most = moves_that_matter(size, rate)
    while True:
        near = costs <= most
        sums = np.zeros(most + 1, dtype=np.int64)
        np.add.at(sums, costs[near], widths[near])
        low, high = partial_sums(sums.tolist(), size - int(sums.sum()), rate, bits)
        cost = _moves_made(uniform.first(bits), bits, low, high)
        if cost is not None:
            alike = np.flatnonzero(costs == cost)
            pick, ends = whole_below(int(sums[cost]), words), np.cumsum(widths[alike])
            stretch = int(np.searchsorted(ends, pick, side="right"))
            return int(alike[stretch]), pick - int(ends[stretch] - widths[alike[stretch]])
        bits, most = 2 * bits, 2 * most


def _place_of(moves: int, ends: NDArray[np.int64], words: Words) -> int:
    """One of the places that take l moves, each as likely as another: beyond e_(l−1), up to e_l, on either side."""
    if moves == 0:
        return 0
    (above, last_above), (below, last_below) = ends[:, moves - 1 : moves + 1].tolist()
    number = last_above - above
    pick = whole_below(number + last_below - below, words)
    return above + 1 + pick if pick < number else -(below + 1 + pick - number)


def moves_that_matter(size: int, rate: Fraction) -> int:
    """L ≥ 8 with size · e^(−λL) ≤ 2^(−_TAIL)."""
    return max(8, math.ceil((math.log(size) + _TAIL * math.log(2)) / float(rate)))


def stretches(distances: NDArray[np.int64], reach: int, room: int, most: int) -> NDArray[np.int64]:
    """Return where the stretches of one side end: the smallest of d_i + j D, j = 0, 1, ….

    These are e_0 = 0 ≤ e_1 ≤ … ≤ e_L; places at a distance in (e_(l−1), e_l] take l moves.

    Parameters
    ----------
    distances : (p,) d_i of the points on this side, rising, the quantile's own 0 first; the first most + 1 are enough.
    reach : D. room : places on this side; marks beyond count as its end.
    most : L.

    Returns
    -------
    (L + 1,) int64, or fewer where no place takes L moves: then the last one is `room`.

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
    """Return the least c such that at least `wanted` marks lie below c D.

    That is Σ_i max(0, c − q_i) ≥ wanted, for q_i = ⌊d_i / D⌋.

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


def _alike(above: NDArray[np.int64], below: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ends of both sides' stretches, (2, stretches + 1); the shorter side goes on with empty ones."""
    out = np.empty((2, max(len(above), len(below))), dtype=np.int64)
    for row, ends in zip(out, (above, below), strict=True):
        row[: len(ends)] = ends
        row[len(ends) :] = ends[-1]
    return out


def partial_sums(widths: Iterable[int], rest: int, rate: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Bounds of W_0, …, W_L and of W, in units of 2^(−bits), rounded outwards.

    W_l = Σ_(k ≤ l) w_k e^(−λk), and W_L ≤ W ≤ W_L + rest · e^(−λ(L+1)).

    Parameters
    ----------
    widths : w_0, …, w_L. rest : how many places take more than L moves.
    rate : λ. bits : b.

    Returns
    -------
    low, high : lists of L + 2 whole numbers, the last ones for W.

    256 · (1 + 2/e) is 444.4, and 256 · 3/e² is 103.9.

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
    """A uniform real U in [0, 1), of which bits are drawn when they are asked for."""

    def __init__(self, words: Words) -> None:
        self._words, self._first, self._bits = words, 0, 0

    def first(self, bits: int) -> int:
        """⌊2^bits · U⌋, for more bits each time."""
        more = bits - self._bits
        self._first, self._bits = self._first << more | _random_bits(more, self._words), bits
        return self._first


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
