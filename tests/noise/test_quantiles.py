"""Noise of one quantile: places by moves against brute force, heavy tails by exact bounds; bits drawn on demand."""

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from deltahist.errors import InputError
from deltahist.noise import samplers
from deltahist.noise.exact import open_words
from tests.moves import distances, moves_of
from tests.words import Scripted, p_value


def sides_of(points, rank):
    """Distances of the points from the quantile, above it and below it, rising."""
    x = np.sort(points)
    return x[rank - 1 :] - x[rank - 1], (x[rank - 1] - x[:rank])[::-1]


@pytest.mark.parametrize(("number", "size", "reach"), [(3, 8, 2), (4, 6, 1), (2, 9, 20), (1, 9, 2), (5, 5, 2)])
def test_moves_to_make_a_place_the_quantile_by_brute_force(number, size, reach):
    """Stretches against the fewest moves to any data set with that quantile, for every data set and rank."""
    for points in itertools.combinations_with_replacement(range(size), number):
        for rank in range(1, number + 1):
            plain = np.full(size, 99)
            for other, moves in distances(points, size, reach, 1).items():
                plain[other[rank - 1]] = min(plain[other[rank - 1]], moves)
            here = points[rank - 1]
            found = np.zeros(size, dtype=int)
            for side, room, sign in zip(sides_of(points, rank), (size - 1 - here, here), (1, -1), strict=True):
                ends = samplers.find_stretches(side, reach, room, number * size)
                assert ends[0] == 0
                assert ends[-1] == room
                for moves, (after, last) in enumerate(itertools.pairwise(ends), start=1):
                    found[here + sign * np.arange(after + 1, last + 1)] = moves
            assert found.tolist() == plain.tolist()


@pytest.mark.parametrize(("rate", "reach"), [(Fraction(3, 4), 4), (Fraction(1, 50), 40), (Fraction(1, 10**20), 4)])
def test_places_have_their_probabilities(rate, reach):
    """Chi-square over all places of a small line. False alarms: 1 in 1,000 each."""
    points, size, words = np.array([3, 4, 4, 9, 15, 15, 30]), 40, open_words(np.random.default_rng(4))
    near = lambda most: tuple(side[:most] for side in sides_of(points, 4))  # noqa: E731
    drawn = [9 + samplers.draw_place(near, (30, 9), reach, rate, words) for _ in range(3000)]
    seen, moves = np.bincount(drawn, minlength=size), moves_of(points, 4, reach, size)
    right, wrong = (np.exp(-float(each) * moves) for each in (rate, rate * Fraction(6, 5)))
    assert p_value(seen, right / right.sum()) > 1e-3
    if reach == 4 and rate > Fraction(1, 2):  # the check catches a rate that is a fifth off
        assert p_value(seen, wrong / wrong.sum()) < 1e-3


def test_far_places_are_looked_at_when_the_drawn_real_asks_for_them():
    """U = 1 − 2^−1024 is the farthest place, 30 moves away, though all beyond 8 moves weigh less than 2^−80."""
    points, words = (np.array([0]), np.array([0])), Scripted(*[2**64 - 1] * 16)
    assert samplers.draw_place(lambda most: points, (59, 0), 2, Fraction(8), words) == 59
    assert words.used > 6


def test_partial_sums_are_bounds():
    """Against the sums at 200 digits: they hold the value, and are closer than a part in 2^150."""
    widths, rest, rate, bits = [1, 7, 0, 10**9, 3], 10**12, Fraction(1, 3), 192
    low, high = samplers.bound_partial_sums(widths, rest, rate, bits)
    with localcontext(prec=200):
        factor, unit, total = (-Decimal(1) / 3).exp(), Decimal(2) ** bits, Decimal(0)
        for moves, width in enumerate(widths):
            total += width * factor**moves
            assert low[moves] <= total * unit <= high[moves]
            assert high[moves] - low[moves] < total * unit / 2**150
        assert low[-1] == low[-2]
        assert 0 <= high[-1] - high[-2] - rest * factor**5 * unit < unit / 2**100


def test_further_bits_decide_a_tie():
    """U with the first 192 bits of W_0 / W: the next ones say whether it is the quantile or a place beside it."""
    with localcontext(prec=200):
        # Three places, of which the middle one is the quantile: W = 1 + 2 e^(−λ).
        share = 1 / (1 + 2 * (-Decimal(3) / 4).exp())
        bits = int(share * 2**384)
    tie = [(bits >> (384 - 64 * (i + 1))) & (2**64 - 1) for i in range(6)]
    side = np.array([0])
    for change, expected in ((-1, 0), (1, 1)):
        words = Scripted(*tie[:3], tie[3] + change, *tie[4:], 2)
        assert samplers.draw_place(lambda most: (side, side), (1, 1), 5, Fraction(3, 4), words) == expected
        assert words.used == 6 + expected
    # Without a tie three words and one for the place are enough.
    words = Scripted(2**64 - 1, 0, 0, 0)
    assert samplers.draw_place(lambda most: (side, side), (1, 1), 5, Fraction(3, 4), words) == 1
    assert words.used == 4


def test_as_many_points_are_asked_for_as_stretches_need(monkeypatch):
    """One point fewer, and the last stretch would go on to the end of the line."""
    every, right, given = np.arange(500) * 10, samplers.find_stretches, []

    def watched(distances, reach, room, most):
        given.append(len(distances))
        ends = right(distances, reach, room, most)
        assert ends.tolist() == right(every, reach, room, most).tolist()
        return ends

    monkeypatch.setattr(samplers, "find_stretches", watched)
    words = open_words(np.random.default_rng(8))
    for rate in (Fraction(1), Fraction(1, 4)):
        samplers.draw_place(lambda number: (every[:number],) * 2, (10**9, 10**9), 10**6, rate, words)
    assert 0 < min(given) < max(given) < len(every)


def test_heavy_tails_are_rounded():
    """P(round(Z) = k) = F(k + ½) − F(k − ½), by chi-square, with cut tails. False alarms: 1 in 1,000."""
    words = open_words(np.random.default_rng(2))
    drawn = np.array([samplers.draw_student((9, 5), Fraction(1), words) for _ in range(1000)])
    assert (drawn.min(), drawn.max()) == (-5, 9)
    edges = np.arange(-4, 4) + 0.5
    chance = np.diff(np.concatenate([[0.0], scipy.stats.t(2).cdf(edges), [1.0]]))
    seen = np.bincount(np.searchsorted(edges, drawn), minlength=len(chance))
    assert scipy.stats.chisquare(seen, 1000 * chance).pvalue > 1e-3


def test_whole_numbers_below_a_bound_are_uniform():
    """Chi-square; a remainder in place of rejection would double some. False alarms: 1 in 1,000."""
    words = open_words(np.random.default_rng(6))
    seen = np.bincount([samplers.draw_whole_below(1000, words) for _ in range(20_000)], minlength=1000)
    assert len(seen) == 1000
    assert scipy.stats.chisquare(seen).pvalue > 1e-3


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1)])
def test_a_value_is_never_returned_as_it_is(scale):
    with pytest.raises(InputError):
        samplers.draw_student((17, 17), scale, open_words(None))


@pytest.mark.parametrize("place", [-(2**64) + 3, -(10**12), -1, 0, 1, 3 * 2**60, 2**64 - 1])
def test_bounds_hold_the_value_and_are_close(place):
    """Against the formula at 400 digits."""
    low, high = samplers.bound_student(place, 64)
    with localcontext(prec=400):
        p = Decimal(place) / 2**64
        value = p * (2 / (1 - p * p)).sqrt()
        assert Decimal(low.numerator) / low.denominator <= value <= Decimal(high.numerator) / high.denominator
    assert high - low == Fraction(1, 2**128)
