"""Metrics against dense matrices; the nearest feasible cells, with a certificate."""

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.fft

import deltahist as dh
from deltahist.decode import Metric, project_nonnegative, projection
from deltahist.decode.projection import Anderson, _fit_slope, shrink_long_waves, simulate_metric
from deltahist.strategies import Flow, Spectral, Tents

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


STRATEGIES = {
    "flow": (lambda near: Flow.tuned(near), {"epsilon": 1.0}),
    "tents": (Tents.tuned, {"epsilon": 1.0}),
    "spectral": (Spectral, {"rho": 0.05}),
}


def clumpy(n, rng):
    """Clusters on a mostly empty map, as people live."""
    centres = rng.integers(0, n, (6, 2))
    points = np.concatenate([c + rng.normal(0, n / 40, (int(300 / (i + 1)), 2)) for i, c in enumerate(centres)])
    return np.histogram2d(*points.clip(0, n - 0.01).T, bins=n, range=[(0, n), (0, n)])[0].astype(int)


def exact(metric, field, total):
    """The nearest cells on the whole grid by an interior-point method, and M as a matrix."""
    covariance = waves(metric)
    if total is not None:
        covariance = covariance + 1e-3 * np.ones_like(covariance)  # free: the total is a constraint
    precision = np.linalg.inv(covariance)
    cells = cp.Variable(field.size)
    outside = np.ones(metric.grid, dtype=bool)
    outside[metric.inside] = False
    constraints = [cells >= 0, cells[outside.ravel()] == 0] if outside.any() else [cells >= 0]
    if total is not None:
        constraints.append(cp.sum(cells) == total)
    root = np.linalg.cholesky((precision + precision.T) / 2).T
    away = cp.sum_squares(root @ (cells - field.ravel()))
    cp.Problem(cp.Minimize(away), constraints).solve(solver="CLARABEL")
    return cells.value.reshape(metric.grid), precision


def assert_certified(found, metric, field, total):
    """The cells are feasible, and no further from the nearest ones than certified, or than the goal."""
    assert found.cells.min() >= 0
    if total is not None:
        assert found.cells.sum() == pytest.approx(total)
    nearest, precision = exact(metric, field, total)
    away = -nearest
    away[metric.inside] += found.cells
    assert away.ravel() @ precision @ away.ravel() <= found.distance + 1e-4
    assert found.distance <= projection.CLOSE


def with_total(field, total):
    return field if total is None else field + (total - field.sum()) / field.size


@pytest.mark.parametrize("shape", [(12,), (6, 5)])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("periodic", "pad"), [(False, 0), (True, 0), (True, 2)])
def test_the_certificate_holds_against_an_exact_solver(shape, known, periodic, pad):
    rng = np.random.default_rng(1)
    for _ in range(3):
        own = random_metric(rng, shape, periodic, known, pad)
        total = float(rng.integers(20, 60)) if known else None
        field = with_total(rng.normal(1, 3, own.grid), total)
        assert_certified(project_nonnegative(field, own, total), own, field, total)


def one_cell(field):
    field[...] = 0
    field.flat[field.size // 3] = 5000


def hugely_negative(field):
    field -= 1e3
    field.flat[0] += 50


def alternating(field):
    field[...] = 300 * (-1.0) ** np.arange(field.size).reshape(field.shape)


@pytest.mark.parametrize("spoil", [one_cell, hugely_negative, alternating])
@pytest.mark.parametrize("total", [1.0, None])
@pytest.mark.parametrize(("periodic", "pad"), [(False, 0), (True, 3)])
def test_the_certificate_holds_for_fields_that_are_far_from_counts(spoil, total, periodic, pad):
    rng = np.random.default_rng(5)
    own = random_metric(rng, (6, 5), periodic, total is not None, pad)
    field = rng.normal(0, 1, own.grid)
    spoil(field)
    field = with_total(field, total)
    assert_certified(project_nonnegative(field, own, total), own, field, total)


def test_the_bound_is_the_difference_of_the_two_programmes():
    """For any feasible cells and multipliers: twice the primal value less the dual one, from its definition."""
    rng = np.random.default_rng(6)
    own = random_metric(rng, (5, 4), True, False, 2)
    covariance, field = waves(own), rng.normal(0, 3, own.grid)
    cells, multipliers = np.zeros(own.grid), rng.normal(0, 2, own.grid)
    cells[own.inside] = rng.gamma(1, 2, (5, 4))
    multipliers[own.inside] = rng.gamma(1, 2, (5, 4))
    away, price = (cells - field).ravel(), multipliers.ravel()
    primal = away @ np.linalg.solve(covariance, away) / 2
    dual = -price @ field.ravel() - price @ covariance @ price / 2
    assert projection._bound_distance(cells, field, multipliers, own) == pytest.approx(2 * (primal - dual))


@pytest.mark.parametrize("variance", [1e4, 0.0])
def test_a_small_total_survives_rounding_of_huge_cells(variance):
    """Doubles near 10¹⁸ are 128 apart, and the cells must still add up to ten."""
    rng = np.random.default_rng(4)
    own = random_metric(rng, (6, 5), False, True)
    own.variance[...] *= variance
    field = rng.integers(-(1 << 63), 1 << 63, (6, 5), dtype=np.int64, endpoint=False).astype(float)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="non-negative estimates are certified")
        found = project_nonnegative(field, own, 10.0)
    assert found.cells.min() >= 0
    assert found.cells.sum() == pytest.approx(10, rel=1e-12)


def test_counts_without_noise_stay_as_they_are():
    own = random_metric(np.random.default_rng(2), (5, 4), False, True)
    counts = np.random.default_rng(3).poisson(1, (5, 4)).astype(float)
    for scale in (0.0, 1e-250, 1e-20):
        none = replace(own, variance=own.variance * scale)
        assert np.allclose(project_nonnegative(counts, none, counts.sum()).cells, counts, rtol=0, atol=1e-12)
        assert np.array_equal(project_nonnegative(counts - 1, none, None).cells, np.maximum(counts - 1, 0))


@pytest.mark.parametrize(("name", "most"), [("flow", 200), ("spectral", 350), ("tents", 120)])
def test_large_grids_are_certified_in_few_steps(name, most):
    """Of one filter each; alternating directions alone take 600 at least."""
    make, budget = STRATEGIES[name]
    near = dh.Neighbourhood(dh.Domain((0, 0, 128, 128), (128, 128)), 1)
    counts = clumpy(128, np.random.default_rng(4))
    found = dh.publish(counts, near, make(near), rng=np.random.default_rng(1), **budget).projection
    assert found.distance <= projection.CLOSE
    assert found.steps <= most


def affine(size, rng):
    """A contraction x ↦ x + r(x), slow along some directions, and its fixed point."""
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix, fixed = basis @ np.diag(np.linspace(0.5, 0.999, size)) @ basis.T, rng.normal(size=size)
    return (lambda point: matrix @ (point - fixed) + fixed - point), fixed


def test_an_affine_iteration_ends_after_as_many_steps_as_it_has_directions():
    residual, fixed = affine(6, np.random.default_rng(1))
    accelerated, found, plain = Anderson(6), np.zeros(6), np.zeros(6)
    for _ in range(10):
        found, plain = accelerated.step(found, residual(found)), plain + residual(plain)
    assert np.abs(found - fixed).max() < 1e-4
    assert np.abs(plain - fixed).max() > 0.1
