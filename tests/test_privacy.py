"""Laws and guarantees as data."""

import math
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.privacy import Law


@pytest.mark.parametrize("parameter", [0.05, 0.3, 1, 4, 24, 26, 1000])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_moments_are_those_of_the_pmf(kind, parameter):
    law = Law(kind, Fraction(parameter))
    k = np.arange(-60_000, 60_001, dtype=float)
    pmf = np.exp(-np.abs(k) / parameter if kind == "laplace" else -k * k / (2 * parameter))
    pmf /= pmf.sum()
    second, fourth = pmf @ k**2, pmf @ k**4
    assert law.variance() == pytest.approx(second, rel=1e-9)
    if second > 1e-6:
        assert law.kurtosis() == pytest.approx(fourth / second**2 - 3, rel=1e-6, abs=1e-6)


def test_no_noise_is_a_law_too():
    assert (Law("laplace", Fraction(0)).variance(), Law("laplace", Fraction(0)).kurtosis()) == (0, 0)


def test_guarantees_add_up():
    half = dh.Guarantee(epsilon=Fraction(1, 2))
    rho = dh.Guarantee(rho=Fraction(1, 10))
    assert (half + half).epsilon == 1
    assert (half + rho).rho == Fraction(1, 8) + Fraction(1, 10)
    assert half.times(3).epsilon == Fraction(3, 2)
    assert rho.times(3).rho == Fraction(9, 10)
    with pytest.raises(dh.InputError):
        dh.Guarantee()


def test_zcdp_implies_approximate_privacy():
    # Never more than the well-known ρ + 2 √(ρ ln 1/δ), never less than the Gaussian mechanism's exact curve.
    from scipy.stats import norm

    for rho in (0.01, 0.1, 0.5, 2.0):
        for probability in (1e-9, 1e-6, 1e-3):
            epsilon = dh.Guarantee(rho=Fraction(rho)).approximate(probability)
            assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / probability))
            mu = math.sqrt(2 * rho)
            exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            assert exact <= probability
