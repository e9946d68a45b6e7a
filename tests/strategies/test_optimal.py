"""The optimal Gaussian strategy: against a general convex solver, its certificate, its exact cost, its file form."""

import math

import numpy as np
import pytest
import shapely
from examples import quiet
from profiles import promised

import deltahist as dh
from deltahist.space.workloads import range_gram
from deltahist.strategies import from_description, optimal as convex
from deltahist.strategies.gaussian import pack_integers
from deltahist.strategies.optimal import Optimal, exact_gram, workload_gram


def neighbourhood(shape, cells, sources=None, limits=None):
    """δ in cells, on cells of side one."""
    return quiet(dh.Domain((0,) * len(shape) + shape, shape), cells, sources, limits)


def best_by_solver(near, gram):
    """The least mean variance for σ = 1, by semidefinite programming."""
    import cvxpy as cp

    size, factors = near.domain.size, promised(near)
    unit = np.eye(size + 1)[:, :size]  # the null vertex is the last
    E = np.array([(unit[v] - unit[u]) / float(factor) for (u, v), factor in factors.items()]).T
    Z = np.linalg.svd(np.ones((1, size)))[2][1:].T if near.fixed_membership else np.eye(size)
    value, vector = np.linalg.eigh(Z.T @ gram @ Z)
    X = cp.Variable((Z.shape[1],) * 2, PSD=True)
    inside = Z.T @ E
    squares = cp.sum(cp.multiply(inside, X @ inside), axis=0)
    problem = cp.Problem(cp.Minimize(cp.matrix_frac(vector * np.sqrt(np.maximum(value, 0)), X)), [squares <= 1])
    problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
    return problem.value


@pytest.mark.parametrize(
    ("shape", "cells", "sources", "limits"),
    [((8,), 2, "boundary", None), ((4, 4), 1, None, None), ((4, 4), 2, "boundary", None),
     ((5, 3), 1, shapely.Point(0, 0), None), ((8,), 1, "left", [(2, 1.25), (math.inf, 1.5)]),
     ((4, 4), 1, None, [(math.inf, 1.2)])],
)  # fmt: skip
def test_the_optimum_is_that_of_a_general_solver(shape, cells, sources, limits):
    near = neighbourhood(shape, cells, sources, limits)
    A = Optimal(near)
    optimum = best_by_solver(near, range_gram(near.domain) / len(dh.workloads.all_ranges(near.domain)))
    found = A.certificate
    assert found.dual <= optimum * (1 + 1e-6)
    assert optimum <= found.primal * (1 + 1e-6)
    assert 0 <= found.gap <= 1e-3


@pytest.mark.parametrize("sources", [None, "boundary"])
def test_a_workload_of_its_own_is_weighed_and_only_its_error_counts(sources):
    near = neighbourhood((4, 4), 1, sources)
    work = dh.workloads.random_squares(1.7, 40, near.domain)
    A = Optimal(near, work)
    assert A.certificate.gap < 1e-3
    optimum = best_by_solver(near, workload_gram(work, near.domain))
    assert math.isclose(A.certificate.primal, optimum, rel_tol=1e-3)
    variance = dh.expected_error(A, near, work, rho=0.5, continuous=True)
    assert math.isclose(variance.mean(), A.certificate.primal, rel_tol=1e-6)
    assert variance.mean() < dh.expected_error(Optimal(near), near, work, rho=0.5).mean()


def test_the_gram_matrix_is_exact():
    rng, largest = np.random.default_rng(3), 2**27
    half = rng.integers(-largest, largest, (30, 30))
    matrix = np.tril(half) + np.tril(half, -1).T
    matrix[0, 0] = -largest
    true = matrix.astype(object) @ matrix.astype(object)
    assert (exact_gram(matrix) == true).all()


UNIT = np.eye(6, dtype=int)[np.tril_indices(6)]


@pytest.mark.parametrize(
    "change",
    [{"matrix": "no base64 é"}, {"matrix": pack_integers(UNIT)[:-8]}, {"matrix": pack_integers(np.zeros(10**7))},
     {"matrix": pack_integers(UNIT * 2**30)}, {"matrix": pack_integers(0 * UNIT)}],
)  # fmt: skip
def test_damaged_descriptions_are_refused(change):
    domain, good = dh.Domain((0, 6), (6,)), {"strategy": "Optimal", "matrix": pack_integers(UNIT)}
    assert (from_description(domain, good).rows == np.eye(6)).all()
    with pytest.raises(dh.InputError, match="damaged"):
        from_description(domain, good | change)


def test_a_certified_gap_that_is_too_wide_is_never_passed_over(monkeypatch):
    near = neighbourhood((8, 8), 4)
    monkeypatch.setattr(convex, "MOST_STEPS", 1)
    with pytest.raises(dh.InputError, match="after 1 steps"):
        _ = Optimal(near).solution
