"""Binary channels: what makes one of another, Bayes, and their conditions."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from deltahist.errors import InputError
from deltahist.network.rappor import Channel

F = Fraction
PARTS = st.fractions(0, 1, max_denominator=12)


def chance(channel, x, y):
    one = channel.one if x else channel.zero
    return one if y else 1 - one


@given(PARTS, PARTS, PARTS, PARTS)
def test_a_remainder_is_there_exactly_if_its_probabilities_are(a, b, c, d):
    """Against the definition: solve for the channel and see whether its probabilities are probabilities."""
    coarse, finer = Channel(*sorted((a, b))), Channel(*sorted((c, d)))
    if finer.zero == finer.one:
        possible = coarse.zero == coarse.one
    else:
        rise = (coarse.one - coarse.zero) / (finer.one - finer.zero)
        zero = coarse.zero - rise * finer.zero
        possible = 0 <= zero <= 1 and 0 <= zero + rise <= 1
    if possible:
        assert finer.then(coarse.find_remainder(finer)) == coarse
    else:
        with pytest.raises(InputError):
            coarse.find_remainder(finer)


@given(PARTS, PARTS, PARTS, PARTS)
def test_refining_is_bayes(a, b, c, d):
    """The fine bit by its channel, the coarse one from it: the same joint law as the coarse one, then the fine one."""
    finer, after = Channel(*sorted((a, b))), Channel(*sorted((c, d)))
    if finer.zero == finer.one:
        return
    coarse = finer.then(after)
    chances = finer.find_refinement(coarse)
    for x, y, z in itertools.product((0, 1), repeat=3):
        one = chances[2 * x + y]
        assert chance(coarse, x, y) * (one if z else 1 - one) == chance(finer, x, z) * chance(after, z, y)


def test_log_odds_are_precise_where_they_are_small_and_large():
    assert Channel.flipping(F(1, 2) - F(1, 10**9)).log_odds == pytest.approx(8e-9, rel=1e-12)
    assert Channel.flipping(F(1, 10**200)).log_odds == pytest.approx(400 * math.log(10), rel=1e-12)
