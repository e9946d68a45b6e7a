"""Noise as a process in its level: laws at one level and at two, up and down, against closed forms."""

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from deltahist.noise import paths
from deltahist.noise.paths import DOWN_SLOTS, UP_SLOTS, Uniforms

#: False alarms of all tests of this file together: 1 in 1,000, shared by so many single ones.
ALARM = 1e-3 / 100
ROWS = 20_000
DIMENSIONS = (1, 2, 3, 20)
LOW, HIGH = 0.5, 0.9


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
