"""Metrics against dense matrices; the nearest feasible cells, with a certificate."""

import warnings

import cvxpy as cp
import numpy as np
import pytest

import deltahist as dh
from deltahist.decode import Metric, project_nonnegative, projection
from deltahist.decode.projection import merge_cells
from deltahist.strategies import Flow, Spectral, Tents


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


def exact(metric, field, total, blocks):
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
    if blocks is not None:
        domain = np.flatnonzero(~outside.ravel())
        first = domain[np.unique(blocks, return_index=True)[1]]
        constraints.append(cells[domain] == cells[first[blocks]])
    root = np.linalg.cholesky((precision + precision.T) / 2).T
    away = cp.sum_squares(root @ (cells - field.ravel()))
    cp.Problem(cp.Minimize(away), constraints).solve(solver="CLARABEL")
    return cells.value.reshape(metric.grid), precision


def assert_certified(found, metric, field, total, blocks):
    """The cells are feasible, and no further from the nearest ones than certified, or than the goal."""
    assert found.cells.min() >= 0
    if total is not None:
        assert found.cells.sum() == pytest.approx(total)
    nearest, precision = exact(metric, field, total, blocks)
    away = -nearest
    away[metric.inside] += found.cells
    assert away.ravel() @ precision @ away.ravel() <= found.distance + 1e-4
    assert found.distance <= projection.CLOSE


def with_total(field, total):
    return field if total is None else field + (total - field.sum()) / field.size


#: Fields like those of counts, and far from them: one full cell, hugely negative cells, and alternating ones.
FIELDS = {
    "like counts": lambda noise: 1 + 3 * noise,
    "one cell": lambda noise: 5000.0 * (np.arange(noise.size) == noise.size // 3),
    "hugely negative": lambda noise: noise.ravel() - 1000 + 50 * (np.arange(noise.size) == 0),
    "alternating": lambda noise: 300 * (-1.0) ** np.arange(noise.size),
}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("total", [None, 1.0, 40.0])
@pytest.mark.parametrize(("shape", "periodic", "pad"), [((6, 5), False, 0), ((12,), True, 0), ((6, 5), True, 3)])
def test_the_certificate_holds_against_an_exact_solver(kind, shape, total, periodic, pad, merged):
    rng = np.random.default_rng(1)
    own = random_metric(rng, shape, periodic, total is not None, pad)
    field = with_total(FIELDS[kind](rng.normal(size=own.grid)).reshape(own.grid), total)
    blocks = np.unique(rng.integers(0, 6, np.prod(shape)), return_inverse=True)[1] if merged else None
    assert_certified(project_nonnegative(field, own, total, blocks), own, field, total, blocks)


def test_the_bound_is_the_difference_of_the_two_programmes():
    """For any feasible cells and multipliers: twice the primal value less the dual one, from its definition."""
    rng = np.random.default_rng(6)
    own = random_metric(rng, (5, 4), True, False, 2)
    covariance, field = waves(own), rng.normal(0, 3, own.grid)
    cells, multipliers = np.zeros(own.grid), rng.normal(0, 2, own.grid)
    cells[own.inside] = rng.gamma(1, 2, (5, 4))
    multipliers[own.inside] = rng.gamma(1, 2, (5, 4))
    level = 0.7  # of the total's multiplier, which waves without a total do not remove
    away, price = (cells - field).ravel(), multipliers.ravel() - level
    primal = away @ np.linalg.solve(covariance, away) / 2
    dual = -price @ field.ravel() - price @ covariance @ price / 2 - level * cells.sum()
    found = projection._bound_distance(cells, field, multipliers - level, level, own)
    assert found == pytest.approx(2 * (primal - dual))


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


@pytest.mark.parametrize(("name", "most"), [("flow", 200), ("spectral", 350), ("tents", 120)])
def test_large_grids_are_certified_in_few_steps(name, most):
    """Of one filter each; alternating directions alone take 600 at least."""
    make, budget = STRATEGIES[name]
    near = dh.Neighbourhood(dh.Domain((0, 0, 128, 128), (128, 128)), 1)
    counts = clumpy(128, np.random.default_rng(4))
    release = dh.publish(counts, near, make(near), rng=np.random.default_rng(1), **budget)
    decoder = release.decoder
    field = decoder.estimate_on_grid(release.values, release.total)
    plain, blocks = project_nonnegative(field, decoder.noise_metric(), release.total), release.projection
    assert max(plain.distance, blocks.distance) <= projection.CLOSE
    assert max(plain.steps, blocks.steps / 5) <= most
    # Empty areas have less noise, and what is not empty keeps its cells.
    assert np.square(blocks.cells - counts).sum() < 0.98 * np.square(plain.cells - counts).sum()


@pytest.mark.parametrize("shift", [(0, 0), (21, 42)])
@pytest.mark.parametrize("shape", [(100,), (70, 130)])
def test_a_block_is_large_only_where_little_is_counted(shape, shift):
    cells = np.random.default_rng(1).gamma(0.02, 50, shape)
    blocks = merge_cells(cells, 8.0, shift)
    number, points = np.bincount(blocks), np.bincount(blocks, cells.ravel())
    assert ((number == 1) | (points <= 8)).all()
    assert number.max() > 4
    assert cells.max() > 8
