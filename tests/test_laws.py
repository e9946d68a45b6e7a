"""Laws and guarantees as data."""

import functools
import itertools
import math
import operator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm

import deltahist as dh
from deltahist.laws import LAWS, Guarantee, gaussian_curve, gaussian_epsilon


@pytest.mark.parametrize("parameter", [0.05, 0.7, 1, 24, 26, 1000])
@pytest.mark.parametrize("kind", LAWS)
def test_moments_are_those_of_the_pmf(kind, parameter):
    law = LAWS[kind](Fraction(parameter))
    k = np.arange(-60_000, 60_001, dtype=float)
    pmf = np.exp(-np.abs(k) / parameter if kind == "laplace" else -k * k / (2 * parameter))
    if kind == "rounded gaussian":
        pmf = norm.sf((np.abs(k) - 0.5) / parameter**0.5) - norm.sf((np.abs(k) + 0.5) / parameter**0.5)
    pmf /= pmf.sum()
    second, fourth = pmf @ k**2, pmf @ k**4
    assert law.variance() == pytest.approx(second, rel=1e-9)
    if second > 1e-6:
        assert law.kurtosis() == pytest.approx(fourth / second**2 - 3, rel=1e-6, abs=1e-6)
    weight = law.weights(k)
    assert weight / weight.sum() == pytest.approx(pmf, abs=1e-12)
    continuous = 2 * parameter**2 if kind == "laplace" else parameter
    assert replace(law, continuous=True).variance() == pytest.approx(continuous)


def test_guarantees_add_up():
    half = Guarantee(epsilon=Fraction(1, 2))
    rho = Guarantee(rho=Fraction(1, 10))
    assert (half + half).epsilon == 1
    assert (half + rho).rho == Fraction(1, 8) + Fraction(1, 10)
    assert half.times(3).epsilon == Fraction(3, 2)
    assert rho.times(3).rho == Fraction(9, 10)
    with pytest.raises(dh.InputError):
        Guarantee()


AMOUNTS = st.tuples(st.sampled_from(["epsilon", "rho"]), st.fractions(Fraction(1, 1000), 20))


@given(st.lists(AMOUNTS, min_size=1, max_size=5))
def test_guarantees_add_up_in_any_order(parts):
    guarantees = [Guarantee(**{unit: amount}) for unit, amount in parts]
    for order in itertools.islice(itertools.permutations(guarantees), 3):
        total = functools.reduce(operator.add, order)
        if any(unit == "rho" for unit, _ in parts):  # pure parts that are added first cost more than each on its own
            assert total.rho >= sum(amount if unit == "rho" else amount**2 / 2 for unit, amount in parts)
        else:
            assert total.epsilon == sum(amount for _, amount in parts)


def test_zcdp_implies_approximate_privacy():
    # Never more than the well-known ρ + 2 √(ρ ln 1/δ), never less than the Gaussian mechanism's exact curve.
    for rho in (0.01, 0.1, 0.5, 2.0):
        for probability in (1e-9, 1e-6, 1e-3):
            epsilon = Guarantee(rho=Fraction(rho)).approximate(probability)
            assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / probability))
            mu = math.sqrt(2 * rho)
            exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            assert exact <= probability


def _failure_of_one_draw(variance: float, shift: int, epsilon: float) -> float:
    """Smallest δ_prob of one integer Gaussian draw, by summation."""
    k = np.arange(-400, 401)
    p = np.exp(-(k**2) / (2 * variance))
    q = np.exp(-((k - shift) ** 2) / (2 * variance))
    return float(np.maximum(p / p.sum() - math.exp(epsilon) * q / q.sum(), 0).sum())


@pytest.mark.parametrize("variance", [3.0, 10.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_gaussian_conversion_is_never_less_than_the_truth(variance, epsilon):
    shift = 1
    true = _failure_of_one_draw(variance, shift, epsilon)
    if true < 1e-12:
        return
    stated = gaussian_epsilon(shift**2 / (2 * variance), true, least_variance=variance, draws=1)
    assert stated >= epsilon
    if variance == 100:
        assert stated <= 1.03 * epsilon + 0.01


def test_the_gaussian_conversion_is_that_of_the_continuous_mechanism_for_much_noise():
    """σ = 4.2248 for ε = 1 at 10⁻⁶, where zCDP alone would ask for 4.53 (Balle and Wang 2018)."""
    sigma = 4.2248
    found = gaussian_epsilon(1 / (2 * sigma**2), 1e-6, least_variance=1e8, draws=10**7)
    assert found == pytest.approx(1.0, abs=1e-4)
    x = np.linspace(-40, 40, 400_001)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    other = np.exp(-((x - 1 / sigma) ** 2) / 2) / math.sqrt(2 * math.pi)
    delta = np.trapezoid(np.maximum(density - math.exp(found) * other, 0), x)
    assert delta == pytest.approx(1e-6, rel=1e-3)
    assert Guarantee(rho=Fraction(1 / (2 * sigma**2))).approximate(1e-6) > 1.05
    with pytest.raises(dh.InputError):
        Guarantee(rho=Fraction(1)).approximate(1.0)


@pytest.mark.parametrize("aside", [0.75, 1.0, 2.0, 3.0])
def test_the_constants_of_the_rounding_bound(aside):
    """S(t) = Σ_z exp(−(z − t)² / 2τ²) varies by at most θ around τ√(2π), and ln((1 + θ)/(1 − θ)) ≤ 2.1 θ."""
    t = np.linspace(0, 1, 2001)[:, None]
    z = np.arange(-60, 61)
    sums = np.exp(-((z - t) ** 2) / (2 * aside)).sum(axis=1)
    theta = 2.0001 * math.exp(-2 * math.pi**2 * aside)
    assert np.abs(sums / math.sqrt(2 * math.pi * aside) - 1).max() <= theta + 1e-14
    assert math.log((1 + theta) / (1 - theta)) <= 2.1 * theta + 1e-16


@pytest.mark.parametrize("mu", [1e-14, 1e-9, 1e-3, 0.5])
def test_the_floats_of_the_gaussian_curve_err_on_the_safe_side(mu):
    """At the ε that is found the failure probability, worked out with many digits, is not larger than asked."""
    from mpmath import erfc, mp, mpf

    for probability in (1e-15, 1e-9, 1e-3):
        epsilon = gaussian_curve(mu, probability)
        with mp.workdps(60):
            m, e = mpf(mu), mpf(epsilon)
            first, second = (erfc(-x / mp.sqrt(2)) / 2 for x in (m / 2 - e / m, -m / 2 - e / m))
            assert first - mp.exp(e) * second <= mpf(probability) * (1 + mpf("1e-9"))
