"""Binary channels and cut Laplace noise: what makes one of another, Bayes, and their conditions."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from deltahist.errors import InputError
from deltahist.network.rappor import STEPS, Channel, Threshold

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
        with pytest.raises(InputError, match="cannot be taken back"):
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


@pytest.mark.parametrize(("zero", "one"), [(0.2, 0.9), (0.1, 0.3), (0.6, 0.8), (0.05, 0.5), (0.5, 0.75)])
def test_a_threshold_has_nearly_the_channel_s_probabilities(zero, one):
    found = Threshold.near(Channel(F(zero), F(one)))
    room = float(found.epsilon) / STEPS + 1e-11
    assert float(found.channel.zero) == pytest.approx(zero, rel=room)
    assert 1 - float(found.channel.one) == pytest.approx(1 - one, rel=room)


@pytest.mark.parametrize("epsilon", [0.1, 5.0])
@pytest.mark.parametrize("steps", [1, 3, STEPS])
def test_flips_of_a_threshold_in_the_middle(epsilon, steps):
    """½ e^(−ε/2) / cosh(ε/(2 steps)): the paper's figure on a fine lattice, randomised response on the coarsest."""
    channel = Threshold(F(epsilon), (steps + 1) // 2, steps).channel
    expected = math.exp(-epsilon / 2) / (2 * math.cosh(epsilon / (2 * steps)))
    assert float(channel.zero) == pytest.approx(expected, rel=1e-12)
    assert float(1 - channel.one) == pytest.approx(expected, rel=1e-12)
    assert steps > 1 or expected == pytest.approx(1 / (1 + math.exp(epsilon)))


def test_a_threshold_s_probabilities_are_sums_of_its_noise():
    p, found = math.exp(-2 / 5), Threshold(F(2), 4, 5)
    law = {k: (1 - p) / (1 + p) * p ** abs(k) for k in range(-300, 301)}
    for b, reported in enumerate((found.channel.zero, found.channel.one)):
        assert float(reported) == pytest.approx(sum(w for k, w in law.items() if 5 * b + k >= 4), rel=1e-12)


def test_log_odds_are_precise_where_they_are_small_and_large():
    assert Channel.flips(F(1, 2) - F(1, 10**9)).log_odds == pytest.approx(8e-9, rel=1e-12)
    assert Channel.flips(F(1, 10**200)).log_odds == pytest.approx(400 * math.log(10), rel=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Channel(F(-1), F(1)), r"zero is Fraction\(-1, 1\): it must be a probability"),
        (lambda: Channel(F(0), math.nan), "one is nan: it must be a probability, from 0 to 1"),
        (lambda: Threshold.near(Channel(F(0), F(1, 2))), r"probability 0 and 0.5.*0 < p < q < 1"),
        (lambda: Threshold.near(Channel.flips(F(1, 2) - F(1, 10**18))), "too much alike"),
        (lambda: Threshold(F(0), 1), "epsilon is"),
    ],
)
def test_what_is_no_channel_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
