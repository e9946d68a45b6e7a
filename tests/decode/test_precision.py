"""Linear equations in a metric's precision: against dense matrices from the plain definitions."""

import numpy as np
import pytest

from deltahist.decode import Metric
from deltahist.decode.posterior import Precision
from tests.decode.test_metric import KINDS, SHAPES, random_metric, waves


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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("periodic", "pad"), KINDS)
def test_solutions_are_those_of_the_dense_equations(shape, known, periodic, pad):
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


@pytest.mark.parametrize("known", [True, False])
def test_steps_are_few_whatever_cells_know(known):
    """Most cells known, a few hardly at all: a hundred steps of a diagonal preconditioner are twenty."""
    rng = np.random.default_rng(6)
    precision = Precision(random_metric(rng, (32, 32), False, known), known)
    mean = precision.waves.mean()
    cells = mean * np.where(rng.random((32, 32)) < 0.1, 1e-4, 10 ** rng.uniform(0, 5, (32, 32)))
    right = precision.of_noise(rng.normal(size=(32, 32))).astype(np.float32)
    steps, filtered = [], precision.metric.filter
    object.__setattr__(
        precision.metric, "filter", lambda *of, **how: (steps.append(1), filtered(*of, **how))[1]
    )
    precision.solver(cells)(right, 1e-6)
    assert len(steps) < 2 * 30


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


def test_nothing_is_asked_and_nothing_known():
    precision = Precision(random_metric(np.random.default_rng(4), (4, 3), False, True), True)
    right = np.stack([np.zeros((4, 3)), np.ones((4, 3)), np.eye(4, 3)]).astype(np.float32)
    found = precision.solver(np.zeros((4, 3)))(right, 1e-9)
    assert not found[:2].any()  # a constant is along no change
    assert np.allclose(found[2], solved(precision, np.zeros((4, 3)), right[2]), atol=1e-4)
