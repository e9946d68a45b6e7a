"""Rappor's public half: what it costs, the filter, what relaxes what, and what is refused."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from deltahist.errors import InputError
from deltahist.network.rappor import Rappor, Reports

F = Fraction


def test_the_figures_of_the_original_paper():
    """Erlingsson et al. 2014, section 5: k = 2, f = ½, p = ½, q = ¾."""
    mechanism = Rappor(hashes=2, f=0.5, p=0.5, q=0.75)
    one, zero = F(11, 16), F(9, 16)
    assert (mechanism.report.one, mechanism.report.zero) == (one, zero)
    assert float(mechanism.guarantee.epsilon) == pytest.approx(4 * math.log(3), rel=1e-13)
    expected = 2 * math.log(one * (1 - zero) / (zero * (1 - one)))
    assert float(mechanism.report_guarantee.epsilon) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("f", "epsilon"), [(0.9, 0.8027), (0.5, 4.3944), (0.1, 11.7778)])
def test_permanent_bits_cost_less_than_the_cut_laplace_noise_of_the_paper(f, epsilon):
    """The table of docs/internals/rappor.md: ε_∞ of two hashes. Cut Laplace noise costs 8 ln(1/f)."""
    found = float(Rappor(f=f).guarantee.epsilon)
    assert found == pytest.approx(epsilon, abs=1e-4)
    assert found < 8 * math.log(1 / f)
    assert Rappor(f=1).guarantee.epsilon == 0


def test_positions_are_fixed_by_text_cohort_and_hash_and_spread_evenly():
    """Written down, since reports of one version are decoded by another. Chi-square, one false alarm in 10⁶."""
    found = Rappor(bits=128, hashes=2, cohorts=3).find_positions(["cafe", "Ωmega"])
    assert found.tolist() == [[[105, 6], [92, 84], [14, 66]], [[2, 127], [55, 86], [94, 113]]]
    many = Rappor(bits=50, hashes=2, cohorts=10).find_positions([str(i) for i in range(1000)])
    assert scipy.stats.chisquare(np.bincount(many.ravel(), minlength=50)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"f": 0.6}, "f is 0.6"),
        ({}, {"bits": 64}, "bits"),
        ({}, {"p": 0.6}, "reported 1"),
        ({}, {"p": 0.25, "q": 0.6}, "reported 0"),
        ({"p": 0, "q": 1}, {"p": 0.1}, "reported 1"),
    ],
)
def test_what_does_not_relax(before, after, message):
    with pytest.raises(InputError, match=message):
        Rappor(**{"f": 0.5, "p": 0.5, "q": 0.75} | before).relaxed(**after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"f": 0.2}),
        ({}, {"p": 0.4, "q": 0.75}),
        ({"f": 1}, {"q": 0.8}),
        ({}, {"f": 0.05, "q": 0.7}),  # more noise in reports, less altogether
    ],
)
def test_what_relaxes(before, after):
    start = Rappor(**{"f": 0.5, "p": 0.5, "q": 0.75} | before)
    finer = start.relaxed(**after)
    assert finer.guarantee.epsilon >= start.guarantee.epsilon
    assert finer.report_guarantee.epsilon >= start.report_guarantee.epsilon
    assert finer.report.then(start.report.find_remainder(finer.report)) == start.report


@pytest.mark.parametrize(
    "fields",
    [{"f": 0}, {"p": -0.1}, {"p": 0.5, "q": 0.5}, {"hashes": 2.5}, {"hashes": 9, "bits": 8}],
)
def test_settings_that_cannot_be(fields):
    with pytest.raises(InputError):
        Rappor(**fields)


@pytest.mark.parametrize(
    ("cohorts", "bits"),
    [([0, 2], [[0, 1], [1, 1]]), ([0], [[0, 1], [1, 1]]), ([0], [[0, 2]]), ([[0]], [[0, 1]])],
)
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
