"""Noise as a process in its level: laws at one level and at two, up and down, against closed forms."""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from deltahist.noise import paths
from deltahist.noise.paths import DOWN_SLOTS, UP_SLOTS, Uniforms
from experiments.euclidean import Euclidean
from tests.noise.test_paths import characteristic, normal_p

#: False alarms of all tests of this file together: 1 in 1,000, shared by so many single ones.
ALARM = 1e-3 / 100
ROWS = 20_000
DIMENSIONS = (1, 2, 3, 20)
LOW, HIGH = 0.5, 0.9


def pairs_p(coarse, fine):
    """p-values: both lengths, the law of the difference, and its independence of the finer value."""
    n = coarse.shape[1]
    lengths = ((np.linalg.norm(v, axis=1) * e) for v, e in ((coarse, LOW), (fine, HIGH)))
    yield from (scipy.stats.kstest(length, scipy.stats.gamma(n).cdf).pvalue for length in lengths)
    # Along a direction that is not an axis; the law is the same for all.
    along = np.arange(1, n + 1) / np.linalg.norm(np.arange(1, n + 1))
    step, end = (coarse - fine) @ along, fine @ along
    for s in (0.3, 1.0):
        difference = characteristic(s, LOW, n) / characteristic(s, HIGH, n)
        yield normal_p(np.cos(s * step), difference)
        yield normal_p(np.cos(s * step + 0.5 * end), difference * characteristic(0.5, HIGH, n))
    yield scipy.stats.binomtest(int((coarse == fine).all(axis=1).sum()), len(fine), (LOW / HIGH) ** (n + 1)).pvalue


@pytest.mark.parametrize("size", [0.3, 4.0])
def test_which_clock_rang_matters(size):
    """T given z: t^(1/2) e^(−t − z²/(4t)), in every dimension; with the other clock's variable it is another law."""
    rng, rows = np.random.default_rng(7), ROWS // 8
    words = rng.integers(0, 1 << 64, (rows, UP_SLOTS + 2, 1), np.uint64)
    by_size = rng.random(rows) < size / (1 + size)
    law = scipy.stats.geninvgauss(1.5, size, scale=size / 2)
    right, wrong = (
        paths.jump_up(np.full((rows, 1), size), clock, Uniforms(words)).total for clock in (by_size, ~by_size)
    )
    assert scipy.stats.kstest(right, law.cdf).pvalue > ALARM > scipy.stats.kstest(wrong, law.cdf).pvalue


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_jumps_downwards_have_the_papers_bessel_law(dimension):
    """Its Table I: r^(n/2) K_(n/2 − 1)(r), at level 1; one p-value for each of 4 dimensions."""
    words = np.random.default_rng(dimension).integers(
        0, 1 << 64, (ROWS, DOWN_SLOTS + dimension + dimension % 2, 1), np.uint64
    )
    radius = np.linalg.norm(paths.jump_down(dimension, Uniforms(words)).value, axis=1)
    # ∫ r^(n/2) K_(n/2 − 1) = −r^(n/2) K_(n/2).
    order, scale = dimension / 2, 2 ** (1 - dimension / 2) / scipy.special.gamma(dimension / 2)

    def distribution(r):
        return 1 - scale * r**order * scipy.special.kv(order, r)

    assert scipy.stats.kstest(radius, distribution).pvalue > ALARM


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_rate_upwards(dimension):
    """(n + 1) (J * l)(x) / l(x) = 1 + |x| at level 1, by quadrature over the mixing variable."""

    def density(shape, z):  # of √(2T) N(0, I), T ~ Gamma(shape), but for (4π)^(−n/2)
        mixed = scipy.integrate.quad(
            lambda t: t ** (shape - 1 - dimension / 2) * np.exp(-t - z * z / (4 * t)), 0, np.inf
        )
        return mixed[0] / scipy.special.gamma(shape)

    for z in (0.2, 1.0, 4.0):
        rate = (dimension + 1) * density((dimension + 3) / 2, z) / density((dimension + 1) / 2, z)
        assert rate == pytest.approx(1 + z, rel=1e-6)


def test_steps_in_between_change_nothing():
    """From 1/2 to 9/10 by way of two other levels: 2 p-values. Down again: the old value is not restored."""
    rng = np.random.default_rng(9)
    coarse = Euclidean(2).start(LOW, ROWS, rng=rng)
    values, levels = coarse, [LOW, 0.6, 0.75, HIGH]
    for level, finer in itertools.pairwise(levels):
        values = Euclidean(2).refine(values, level, finer, rng=rng)
    assert min(pairs_p(coarse, values)) > ALARM
    again = Euclidean(2).tighten(values, HIGH, LOW, rng=rng)
    assert (again != coarse).any(axis=1).mean() > 0.5
    assert min(pairs_p(again, values)) > ALARM
