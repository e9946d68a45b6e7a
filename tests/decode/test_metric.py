"""Metrics: their waves against dense matrices, how often each frequency stands, and how noise falls off."""

import numpy as np
import pytest
import scipy.fft

from deltahist.decode import Metric
from deltahist.decode.projection import _fit_slope, shrink_long_waves, simulate_metric

SHAPES = [(9,), (8,), (5, 4), (4, 7), (1, 6)]
#: Periodic or cosines, and cells beyond the domain.
KINDS = [(False, 0), (True, 0), (True, 2)]


def waves(metric):
    """The metric's covariance as a matrix, from its definition."""
    size = int(np.prod(metric.grid))
    columns = [metric.filter(e.reshape(metric.grid), metric.variance).ravel() for e in np.eye(size)]
    return np.array(columns).T


def random_metric(rng, shape, periodic, known, pad=0):
    grid = tuple(n + pad for n in shape)
    inside = tuple(slice(0, n) for n in shape)
    frequencies = [np.minimum(np.arange(n), n - np.arange(n)) if periodic else np.arange(n) for n in grid]
    if periodic:
        frequencies[-1] = frequencies[-1][: grid[-1] // 2 + 1]
    variance = 0.2 + sum(f.reshape([-1 if i == a else 1 for i in range(len(grid))]) for a, f in enumerate(frequencies))
    variance = variance.astype(float)
    if known:
        variance.flat[0] = 0
    return Metric(variance, grid, periodic, inside)


@pytest.mark.parametrize(("periodic", "pad"), KINDS)
def test_copies_are_the_waves_of_the_whole_transform(periodic, pad):
    """Sums over frequencies, each as often as it stands, are traces of the dense matrix."""
    for shape in SHAPES:
        metric = random_metric(np.random.default_rng(5), shape, periodic, False, pad)
        covariance = waves(metric)
        for power in (1, 2):
            trace = np.trace(np.linalg.matrix_power(covariance, power))
            assert (metric.copies * metric.variance**power).sum() == pytest.approx(trace)
        assert metric.copies.sum() == np.prod(metric.grid)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("periodic", [True, False])
def test_the_slope_is_the_power_with_which_variance_falls_off(power, periodic):
    shape = (64, 48)
    ends = (np.pi * 63 / 64, np.pi * 47 / 48)
    along = [np.linspace(0, end, n) for end, n in zip(ends, shape, strict=True)]
    if periodic:
        along = [2 * np.pi * np.fft.fftfreq(64), 2 * np.pi * np.fft.rfftfreq(48)]
    omega = np.hypot(2 * np.sin(along[0] / 2)[:, None], 2 * np.sin(along[1] / 2))
    variance = 3 * omega**power
    variance[0, 0] = 5.0
    metric = Metric(variance, shape, periodic, (slice(0, 64), slice(0, 48)))
    # The mean of a power over an octave is not the power of the mean: a tenth.
    assert _fit_slope(variance[omega > 0], omega[omega > 0]) == pytest.approx(power, abs=0.1)
    for given in (None, 1.0):
        found = shrink_long_waves(metric, given)
        assert (found.variance <= variance * (1 + 1e-12)).all()
        # The mean is trusted like the longest wave.
        assert found.variance[0, 0] == min(5.0, found.variance[1, 0])
        assert found.variance.max() == pytest.approx(variance[omega > 0].max())
    ratio = np.log(shrink_long_waves(metric, 1.0).variance / variance)[omega > 0]
    assert np.allclose(ratio, np.log(omega[omega > 0] / omega.max()))


def test_waves_in_which_no_noise_was_drawn_have_some_variance():
    """The metric has the inverse of it: what happened not to be drawn must not be taken for known exactly."""
    only = scipy.fft.idctn(np.eye(1, 256, 17).reshape(16, 16), norm="ortho")
    own = simulate_metric(lambda: only, (16, 16), total_known=True)
    assert own.variance.flat[1:].min() > 0
    assert np.isfinite(own.precision).all()
