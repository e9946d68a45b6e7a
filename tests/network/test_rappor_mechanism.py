"""Channels and settings of Rappor: costs, the filter, what relaxes what, and what is refused."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, strategies as st

from deltahist.errors import InputError
from deltahist.network.rappor import Channel, Rappor, Reports

F = Fraction


def test_the_figures_of_the_original_paper():
    """Erlingsson et al. 2014, section 5: k = 2, f = ½, p = ½, q = ¾."""
    mechanism = Rappor(hashes=2, f=0.5, p=0.5, q=0.75)
    one, zero = F(11, 16), F(9, 16)
    assert (mechanism.report.one, mechanism.report.zero) == (one, zero)
    assert float(mechanism.guarantee.epsilon) == pytest.approx(4 * math.log(3), rel=1e-13)
    expected = 2 * math.log(one * (1 - zero) / (zero * (1 - one)))
    assert float(mechanism.report_guarantee.epsilon) == pytest.approx(expected, rel=1e-13)


def test_positions_are_fixed_by_text_cohort_and_hash_and_spread_evenly():
    """Written down, since reports of one version are decoded by another. Chi-square, one false alarm in 10⁶."""
    found = Rappor(bits=128, hashes=2, cohorts=3).find_positions(["cafe", "Ωmega"])
    assert found.tolist() == [[[105, 6], [92, 84], [14, 66]], [[2, 127], [55, 86], [94, 113]]]
    many = Rappor(bits=50, hashes=2, cohorts=10).find_positions([str(i) for i in range(1000)])
    assert scipy.stats.chisquare(np.bincount(many.ravel(), minlength=50)).pvalue > 1e-6


COARSE = Rappor(f=0.5, p=0.5, q=0.75)


@pytest.mark.parametrize(
    ("start", "after"),
    [(COARSE, {"f": 0.6}), (COARSE, {"p": 0.6}), (COARSE, {"p": 0.25, "q": 0.6}), (Rappor(p=0, q=1), {"p": 0.1})],
)
def test_what_does_not_relax(start, after):
    with pytest.raises(InputError):
        start.relaxed(**after)


# The last has more noise in reports, and less altogether.
@pytest.mark.parametrize("after", [{"f": 0.2}, {"p": 0.4, "q": 0.75}, {"f": 0.05, "q": 0.7}])
def test_what_relaxes(after):
    finer = COARSE.relaxed(**after)
    assert finer.guarantee.epsilon >= COARSE.guarantee.epsilon
    assert finer.report_guarantee.epsilon >= COARSE.report_guarantee.epsilon
    assert finer.report.then(COARSE.report.find_remainder(finer.report)) == COARSE.report


@pytest.mark.parametrize("fields", [{"f": 0}, {"p": -0.1}, {"p": 0.5, "q": 0.5}, {"hashes": 2.5}])
def test_settings_that_cannot_be(fields):
    with pytest.raises(InputError):
        Rappor(**fields)


@pytest.mark.parametrize(("cohorts", "bits"), [([0, 2], [[0, 1], [1, 1]]), ([0], [[0, 1], [1, 1]]), ([0], [[0, 2]])])
def test_reports_that_cannot_be(cohorts, bits):
    with pytest.raises(InputError):
        Reports(Rappor(bits=2, hashes=1, cohorts=2), cohorts, bits)


def _exact(part):
    """P(1 | 0) and P(1 | 1), to 300 digits."""
    return [Decimal(x.numerator) / x.denominator for x in (part.zero, part.one)]


@pytest.mark.parametrize("rates", [(0, 1), (1e-9, 1 - 1e-9)])
@pytest.mark.parametrize("epsilon", [0.001, 4.0, 1000.0])
def test_no_guarantee_is_below_the_truth(rates, epsilon):
    """Where a 1 is nearly always reported as such, what is left of a probability is what counts."""
    mechanism = Rappor.costing(epsilon, hashes=2, p=rates[0], q=rates[1])
    assert mechanism.guarantee.epsilon <= Fraction(epsilon)
    with localcontext() as exactly:
        exactly.prec = 600
        low, high = _exact(mechanism.instantaneous)
        zero, one = (low + (high - low) * bit for bit in _exact(mechanism.permanent))
        truth = 2 * (one * (1 - zero) / (zero * (1 - one))).ln()
        said = mechanism.report_guarantee.epsilon
        assert truth <= Decimal(said.numerator) / said.denominator <= truth * (1 + Decimal("1e-9"))


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
