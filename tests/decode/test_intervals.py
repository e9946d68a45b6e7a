"""Intervals: quantiles, heavy tails, whole numbers; never beyond what Chebyshev's inequality guarantees."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.signal
import scipy.stats

import deltahist as dh
from deltahist.decode import Moments, interval
from deltahist.privacy import Laplace

WIDE = Laplace(Fraction(1000))


def half_width(variance, kurtosis=0.0, level=0.95, law=WIDE, **more):
    down, up = interval(Moments(np.array([variance]), np.array([kurtosis]), **more), law, level)
    assert down[0] == up[0]
    return down[0]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_without_excess_kurtosis_quantiles_are_normal(level):
    assert half_width(9.0, level=level) == pytest.approx(3 * scipy.stats.norm.ppf((1 + level) / 2))


def test_simulated_variances_take_students_quantile():
    assert half_width(4.0, freedom=100) == pytest.approx(2 * scipy.stats.t.ppf(0.975, 100))


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
    assert pmf[np.abs(x) <= half].sum() == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("name", ["Flow", "Hierarchical", "ShiftedGrids", "Wavelet"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_intervals_hold_the_estimate_and_each_other_at_every_level(name, nonnegative):
    """Also where noise is nearly always 0: below the level at which there is any, intervals are points."""
    domain = dh.Domain((0, 0, 5, 7), (5, 7))
    make = {"ShiftedGrids": lambda domain: dh.strategies.dyadic_grids(domain, 1)}
    A = make.get(name, getattr(dh.strategies, name))(domain)
    near, rng = dh.Neighbourhood(domain, 1), np.random.default_rng(1)
    release = dh.publish(np.ones((5, 7), int), near, A, 30.0, rng=rng, weak_protection_accepted=True)
    last = None
    for level in (0.01, 0.2, 0.5, 0.8, 0.95, 0.999999):
        found = dh.answer(release, dh.workloads.all_ranges(domain), level=level, nonnegative=nonnegative)
        assert (found["low"] <= found["estimate"]).all()
        assert (found["estimate"] <= found["high"]).all()
        if last is not None:
            assert (found["low"] <= last["low"] + 1e-9).all()
            assert (found["high"] >= last["high"] - 1e-9).all()
        last = found
