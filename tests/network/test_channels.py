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
        assert finer.then(coarse.remainder(finer)) == coarse
    else:
        with pytest.raises(InputError):
            coarse.remainder(finer)


@given(PARTS, PARTS, PARTS, PARTS)
def test_refining_is_bayes(a, b, c, d):
    """The fine bit by its channel, the coarse one from it: the same joint law as the coarse one, then the fine one."""
    finer, after = Channel(*sorted((a, b))), Channel(*sorted((c, d)))
    if finer.zero == finer.one:
        return
    coarse = finer.then(after)
    chances = finer.refining(coarse)
    for x, y, z in itertools.product((0, 1), repeat=3):
        one = chances[2 * x + y]
        assert chance(coarse, x, y) * (one if z else 1 - one) == chance(finer, x, z) * chance(after, z, y)


def test_log_odds_are_precise_where_they_are_small_and_large():
    assert Channel.flips(F(1, 2) - F(1, 10**9)).log_odds == pytest.approx(8e-9, rel=1e-12)
    assert Channel.flips(F(1, 10**200)).log_odds == pytest.approx(400 * math.log(10), rel=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Channel(F(-1), F(1)), r"zero is Fraction\(-1, 1\): it must be a probability"),
        (lambda: Channel(F(0), math.nan), "one is nan: it must be a probability, from 0 to 1"),
    ],
)
def test_what_is_no_channel_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
