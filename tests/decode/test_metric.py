"""Metrics: their waves against dense matrices, how often each frequency stands, and how noise falls off."""


import numpy as np
import pytest
import scipy.fft

from deltahist.decode import Metric
from deltahist.decode.posterior import Precision
from deltahist.decode.projection import shrink_long_waves, simulated_metric

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
    variance = 0.2 + sum(
        f.reshape([-1 if i == a else 1 for i in range(len(grid))]) for a, f in enumerate(frequencies)
    )
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
    assert shrink_long_waves(metric).slope == pytest.approx(power, abs=0.1)
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
    own = simulated_metric(lambda: only, (16, 16), total_known=True)
    assert own.variance.flat[1:].min() > 0
    assert np.isfinite(own.precision).all()


def dense(precision, cells):
    """M + D on changes: its matrix, and the matrix P whose columns span the changes (size, changes)."""
    metric = precision.metric
    inverse = np.divide(1.0, metric.variance, out=np.zeros_like(metric.variance), where=metric.variance > 0)
    noise = waves(Metric(inverse, metric.grid, metric.periodic, metric.inside))
    inside = np.zeros(metric.grid, dtype=bool)
    inside[metric.inside] = True
    span = np.eye(inside.size)[:, inside.ravel()]
    if precision.total_known:
        span = span[:, 1:] - span[:, :1]
    return noise + np.diag(cells.ravel()), span


def solved(precision, cells, right):
    """The change x with Pᵀ (M + D) x = Pᵀ right."""
    matrix, span = dense(precision, cells)
    return (span @ np.linalg.solve(span.T @ matrix @ span, span.T @ right.ravel())).reshape(right.shape)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("periodic", "pad"), KINDS)
def test_solutions_are_those_of_the_dense_equations(known, periodic, pad):
    for shape in SHAPES:
        rng = np.random.default_rng(1)
        precision = Precision(random_metric(rng, shape, periodic, known, pad), known)
        grid = precision.metric.grid
        cells = rng.uniform(0, 1, grid) ** 4 * 30
        right = rng.normal(0, 3, (3, *grid)).astype(np.float32)
        found = precision.solver(cells)(right, 1e-8)
        assert found.dtype == np.float32
        for each, own in zip(found, right, strict=True):
            assert np.allclose(each, solved(precision, cells, own.astype(float)), atol=2e-4)
        beyond = np.ones(grid, dtype=bool)
        beyond[precision.metric.inside] = False
        assert not found[:, beyond].any()
        if known:
            assert np.allclose(found.reshape(3, -1).sum(axis=1), 0, atol=1e-4)


@pytest.mark.parametrize("known", [True, False])
def test_fields_of_a_stack_are_solved_as_if_alone(known):
    """Also where they are alike, of very different size, or nothing at all."""
    rng = np.random.default_rng(2)
    precision = Precision(random_metric(rng, (6, 5), True, known, 1), known)
    grid = precision.metric.grid
    cells, one, other = rng.uniform(0.1, 5, grid), *rng.normal(size=(2, *grid))
    right = np.stack([one, other, one, one + other, 1e-4 * other, one * 0]).astype(np.float32)
    before = right.copy()
    for found, own in zip(precision.solver(cells)(right, 1e-9), right, strict=True):
        assert np.allclose(found, precision.solver(cells)(own, 1e-9), atol=2e-4)
        assert np.allclose(found, solved(precision, cells, own), atol=2e-4)
    assert np.array_equal(right, before)


def test_cells_are_free_as_far_as_noise_tells_of_them():
    rng = np.random.default_rng(8)
    precision = Precision(random_metric(rng, (6, 5), True, True, 2), True)
    grid = precision.metric.grid
    assert precision.free(np.zeros(grid)) == 30
    assert precision.free(np.full(grid, 1e9 * precision.waves.max())) < 1e-6
    cells = np.zeros(grid)
    cells[0, 0] = 3 * np.mean(np.linalg.eigvalsh(dense(precision, np.zeros(grid))[0]))
    assert precision.free(cells) == pytest.approx(29.5)


@pytest.mark.parametrize("side", [32, 64, 128])
def test_steps_hardly_grow_with_the_map(side):
    """Noise whose long waves are small, cells of all kinds: without the longest waves, 128 a side take 60 steps."""
    rng = np.random.default_rng(9)
    omega = np.pi * np.arange(side) / side
    variance = (4 - 2 * np.cos(omega[:, None]) - 2 * np.cos(omega)) ** 1.2
    grid = (side, side)
    precision = Precision(Metric(variance, grid, False, (slice(side), slice(side))), True)
    cells = np.median(precision.waves) * 10 ** rng.uniform(-3, 3, grid)
    right = precision.of_noise(rng.normal(size=grid)).astype(np.float32)
    filters = []
    filtered = precision.metric.filter
    object.__setattr__(
        precision.metric, "filter", lambda *of, **how: (filters.append(1), filtered(*of, **how))[1]
    )
    precision.solver(cells)(right, 1e-3 * side**2)
    assert len(filters) < 2 * 18
