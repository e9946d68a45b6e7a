"""The nearest feasible cells, with a certificate."""

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import deltahist as dh
from deltahist.decode import project_nonnegative, projection
from deltahist.decode.projection import Anderson
from deltahist.strategies import Flow, Hierarchical, Identity, Spectral, Tents
from tests.decode.test_metric import random_metric, waves

STRATEGIES = {
    "flow": (lambda near: Flow.tuned(near), {"epsilon": 1.0}),
    "tents": (Tents.tuned, {"epsilon": 1.0}),
    "spectral": (Spectral, {"rho": 0.05}),
    "identity": (lambda near: Identity(near.domain), {"epsilon": 1.0}),
    "hierarchical": (lambda near: Hierarchical(near.domain, 4), {"epsilon": 1.0}),
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
    """The cells are feasible, and no further from the nearest ones than is said, nor than is aimed at."""
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


@pytest.mark.parametrize(("variance", "spoil"), [(1e4, "one"), (1e4, "limits"), (1e4, "any"), (0.0, "any")])
def test_a_small_total_is_kept_beside_numbers_that_nobody_publishes(variance, spoil):
    """Cells of 10¹⁸ are known to 128: what is left of them must add up to ten all the same."""
    rng = np.random.default_rng(4)
    own = random_metric(rng, (6, 5), False, True)
    own.variance[...] *= variance
    field = rng.integers(-(1 << 63), 1 << 63, (6, 5), dtype=np.int64, endpoint=False).astype(float)
    if spoil == "one":
        field[...] = 0
        field[2, 3] = 2.0**62
    elif spoil == "limits":
        field = np.where(field > 0, 2.0**63, -(2.0**63))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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


def test_of_all_cells_that_were_looked_at_the_nearest_are_given(monkeypatch):
    """Where the certificate is not reached, and was better before the last look."""
    rng = np.random.default_rng(3)
    own = random_metric(rng, (5, 4), False, True)
    field = with_total(rng.normal(0, 5, (5, 4)), 50)
    said, looked = iter([5.0, 1.0, 7.0, 2.0]), []

    def distance(cells, *_):
        looked.append(cells)
        return next(said)

    monkeypatch.setattr(projection, "_bound_distance", distance)
    monkeypatch.setattr(projection, "_MOST_STEPS", 30)
    with pytest.warns(dh.DeltaHistWarning, match="certified to 1 standard errors"):
        found = project_nonnegative(field, own, 50.0)
    assert found.distance == 1
    assert len(looked) == 4
    assert np.array_equal(found.cells, looked[1])
    assert not np.array_equal(looked[1], looked[3])


def test_large_grids_are_given_fewer_steps(monkeypatch):
    monkeypatch.setattr(projection, "_MOST_WORK", 20 * 30)
    monkeypatch.setattr(projection, "_bound_distance", lambda *_: 9.0)
    own = random_metric(np.random.default_rng(3), (5, 4), False, True)
    with pytest.warns(dh.DeltaHistWarning, match="after 30 steps"):
        project_nonnegative(np.full((5, 4), 2.0), own, 40.0)


@pytest.mark.parametrize(
    ("name", "n", "most"),
    [
        ("flow", 128, 200),
        ("spectral", 128, 350),
        ("tents", 128, 120),
        ("identity", 128, 80),
        ("hierarchical", 128, 80),
        pytest.param("flow", 256, 450, marks=pytest.mark.slow),
        pytest.param("tents", 256, 200, marks=pytest.mark.slow),
        pytest.param("hierarchical", 256, 150, marks=pytest.mark.slow),
        pytest.param("spectral", 256, 900, marks=pytest.mark.slow),
    ],
)
def test_large_grids_are_certified_in_few_steps(name, n, most):
    """Of one filter each; alternating directions alone take 600 at least."""
    make, budget = STRATEGIES[name]
    near = dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), 1)
    counts = clumpy(n, np.random.default_rng(4))
    release = dh.publish(counts, near, make(near), rng=np.random.default_rng(1), **budget)
    found = release.projection
    assert found.distance <= projection.CLOSE
    assert found.steps <= most


def affine(size, rng):
    """A contraction x ↦ x + r(x), slow along some directions, and its fixed point."""
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix, fixed = basis @ np.diag(np.linspace(0.5, 0.999, size)) @ basis.T, rng.normal(size=size)
    return (lambda point: matrix @ (point - fixed) + fixed - point), fixed


def run(residual, point, steps):
    accelerated = Anderson(point.size)
    for _ in range(steps):
        point = accelerated.step(point, residual(point))
    return point


def test_an_affine_iteration_ends_after_as_many_steps_as_it_has_directions():
    residual, fixed = affine(6, np.random.default_rng(1))
    found, plain = run(residual, np.zeros(6), 10), np.zeros(6)
    for _ in range(10):
        plain = plain + residual(plain)
    assert np.abs(found - fixed).max() < 1e-4
    assert np.abs(plain - fixed).max() > 0.1


def test_a_worse_residual_takes_it_back_to_the_best_point_and_makes_it_start_anew():
    accelerated = Anderson(2)
    accelerated.step(np.zeros(2), np.array([1.0, 0.0]))
    assert not np.allclose(accelerated.step(np.ones(2), np.array([0.5, 0.1])), [1.5, 1.1])
    assert np.array_equal(accelerated.step(np.full(2, 9.0), np.array([5.0, 0.0])), [1.5, 1.1])
    assert np.array_equal(accelerated.step(np.full(2, 7.0), np.array([5.0, 0.0])), [12.0, 7.0])
