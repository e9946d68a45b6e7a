"""Intervals have their level, and noise alone stands out in one family of twenty at most."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.signal
import scipy.stats

import deltahist as dh
from deltahist.decode import Moments, interval, stands_out
from deltahist.laws import Gaussian, Laplace

WIDE = Laplace(Fraction(1000))


def half_width(variance, kurtosis=0.0, level=0.95, law=WIDE, **more):
    down, up = interval(Moments(np.array([variance]), np.array([kurtosis]), **more), law, level)
    assert down[0] == up[0]
    return down[0]


@pytest.mark.parametrize("draws", [1, 2, 3, 5, 10])
def test_sums_of_laplace_draws_have_their_level(draws):
    # The exact law of the sum, on a grid of fiftieths of a scale.
    step = 0.02
    x = np.arange(-3000, 3001) * step
    one = np.exp(-np.abs(x))
    one /= one.sum()
    pmf = one
    for _ in range(draws - 1):
        pmf = scipy.signal.fftconvolve(pmf, one, mode="same")
    half = half_width(2.0 * draws, 3.0 / draws)
    assert half_width(2.0 * draws) == pytest.approx(1.96 * np.sqrt(2.0 * draws), rel=1e-3)
    assert pmf[np.abs(x) <= half].sum() == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("name", ["Flow", "Wavelet"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_intervals_hold_the_estimate_and_each_other_at_every_level(name, nonnegative):
    """Also where noise is nearly always 0: below the level at which there is any, intervals are points."""
    domain = dh.Domain((0, 0, 5, 7), (5, 7))
    A = getattr(dh.strategies, name)(domain)
    near, rng = dh.Neighbourhood(domain, 1), np.random.default_rng(1)
    release = dh.publish(np.ones((5, 7), int), near, A, 30.0, rng=rng, weak_protection_accepted=True)
    last = None
    for level in (0.01, 0.5, 0.95, 0.999999):
        found = dh.answer(release, dh.workloads.all_ranges(domain), level=level, nonnegative=nonnegative)
        assert (found["low"] <= found["estimate"]).all()
        assert (found["estimate"] <= found["high"]).all()
        if last is not None:
            assert (found["low"] <= last["low"] + 1e-9).all()
            assert (found["high"] >= last["high"] - 1e-9).all()
        last = found


SIZES = 500


@pytest.mark.parametrize("draws", [1, 2, 5, 60])
@pytest.mark.parametrize("law", [Laplace(Fraction(1, 3)), Laplace(1), Laplace(4), Gaussian(9)], ids=str)
def test_noise_alone_stands_out_in_one_family_of_twenty_at_most(law, draws):
    rng = np.random.default_rng(5)
    if isinstance(law, Laplace):
        chance = -np.expm1(-1 / law.scale)
        up, down = rng.geometric(chance, (2, SIZES, 200, draws)) - 1
        noise = (up - down).sum(axis=-1)
    else:
        noise = rng.normal(0, law.scale, (SIZES, 200, draws)).round().sum(axis=-1)
    error, kurtosis = np.sqrt(draws * law.variance()), law.kurtosis() / draws
    for sides in (False, True):
        alarms = np.mean([stands_out(each, error, kurtosis, either_side=sides).any() for each in noise])
        assert alarms <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / SIZES)
        if draws == 60 and law.unit == "rho":  # where the tail is exact nothing is given away
            assert alarms >= 0.02


def test_found_estimates_leave_their_share_of_the_level():
    """Holm: next to 999 estimates that surely stand out, one is tested as if it were alone."""
    assert stands_out(np.append(np.full(999, 1e3), 17.2), 10.0, 0.0).all()
    assert not stands_out(np.append(np.zeros(999), 17.2), 10.0, 0.0).any()
