"""The nearest feasible cells, with a certificate."""

import cvxpy as cp
import numpy as np
import pytest

import deltahist as dh
from deltahist.decode import nonnegative, projection
from tests.decode.test_metric import random_metric, waves


@pytest.mark.parametrize("shape", [(12,), (6, 5)])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("periodic", "pad"), [(False, 0), (True, 0), (True, 2)])
def test_the_certificate_holds_against_an_exact_solver(shape, known, periodic, pad):
    rng = np.random.default_rng(1)
    for _ in range(3):
        own = random_metric(rng, shape, periodic, known, pad)
        field = rng.normal(1, 3, own.grid)
        total = float(rng.integers(20, 60)) if known else None
        if known:
            field += (total - field.sum()) / field.size
        found = nonnegative(field, own, total)
        assert found.cells.min() >= 0
        if known:
            assert found.cells.sum() == pytest.approx(total)
        covariance = waves(own)
        if known:
            covariance = covariance + 1e-3 * np.ones_like(covariance)  # free: the total is a constraint
        precision = np.linalg.inv(covariance)
        cells = cp.Variable(field.size)
        inside = np.zeros(own.grid, dtype=bool)
        inside[own.inside] = True
        constraints = [cells >= 0, cells[~inside.ravel()] == 0] if pad else [cells >= 0]
        if known:
            constraints.append(cp.sum(cells) == total)
        root = np.linalg.cholesky((precision + precision.T) / 2).T
        cp.Problem(cp.Minimize(cp.sum_squares(root @ (cells - field.ravel()))), constraints).solve(
            solver="CLARABEL"
        )
        away = found.cells - cells.value.reshape(own.grid)[own.inside]
        whole = np.zeros(own.grid)
        whole[own.inside] = away
        assert whole.ravel() @ precision @ whole.ravel() <= found.distance + 1e-4
        assert found.distance <= projection.CLOSE


def test_feasible_estimates_stay_as_they_are():
    own = random_metric(np.random.default_rng(2), (5, 4), False, True)
    field = np.full((5, 4), 2.0)
    assert np.allclose(nonnegative(field, own, 40.0).cells, field)
    assert not nonnegative(field, own, 0).cells.any()


def test_what_is_not_reached_is_said(monkeypatch):
    monkeypatch.setattr(projection, "_MOST_STEPS", 20)
    rng = np.random.default_rng(3)
    own = random_metric(rng, (40, 40), True, True)
    own.variance[...] = own.variance**4
    field = rng.normal(0, 5, (40, 40))
    field += (50 - field.sum()) / field.size
    with pytest.warns(dh.DeltaHistWarning, match="certified to"):
        found = nonnegative(field, own, 50.0)
    assert found.distance > projection.CLOSE
    assert found.cells.min() >= 0
    assert found.cells.sum() == pytest.approx(50)
