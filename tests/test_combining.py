"""Releases joined with other measurements, by least squares."""

import numpy as np
import pytest
import scipy
from examples import STRATEGIES

import deltahist as dh
from deltahist.combining import Combined
from deltahist.releases import Measurements
from tests.laws import calibrate

DOMAIN = dh.Domain((0, 0, 6, 5), (6, 5))
COUNTS = np.random.default_rng(1).integers(0, 50, DOMAIN.shape)
WORK = dh.workloads.random_boxes(12, DOMAIN)
ROWS = WORK.matrix(DOMAIN).toarray()


def releases(name):
    """Two releases of the same cells, by this strategy and by identity."""
    near = dh.Neighbourhood(DOMAIN, 1, "boundary", limits=())
    return (dh.publish(COUNTS, near, A, 1.0, rng=np.random.default_rng(i)) for i, A in enumerate((name, "identity")))


def dense(operator):
    return scipy.sparse.linalg.aslinearoperator(operator) @ np.eye(operator.shape[1])


@pytest.mark.parametrize("name", ["identity", "hierarchical", "flow", "tents", "wavelet"])
def test_two_releases_are_joined_as_least_squares_on_all_their_numbers(name):
    one, two = releases(name)
    parts = [[dense(m.matrix), m.values, dense(m.covariance)] for m in (one.measurements(), two.measurements())]
    weights = [np.linalg.pinv(covariance, hermitian=True) for *_, covariance in parts]
    precision = sum(A.T @ W @ A for (A, *_), W in zip(parts, weights, strict=True))
    cells = np.linalg.solve(precision, sum(A.T @ W @ y for (A, y, _), W in zip(parts, weights, strict=True)))
    found = Combined(one, two.measurements()).answer(WORK)
    assert np.allclose(found["estimate"], ROWS @ cells, atol=1e-4)
    assert np.allclose(found["std_error"] ** 2, ((ROWS @ np.linalg.inv(precision)) * ROWS).sum(axis=1), rtol=1e-5)


def test_an_exact_total_is_kept_and_lessens_errors():
    release, _ = releases("hierarchical")
    census = Measurements(np.ones((1, DOMAIN.size)), np.array([float(COUNTS.sum())]), np.zeros((1, 1)))
    found, alone = Combined(release, census), dh.answer(release, WORK)
    assert found.cells.sum() == pytest.approx(COUNTS.sum())
    assert (found.answer(WORK)["std_error"] <= alone["std_error"] + 1e-9).all()


@pytest.mark.parametrize("name", ["identity", "hierarchical", "tents", "wavelet"])
def test_a_total_that_the_release_knows_changes_nothing_and_another_is_refused(name):
    release = dh.publish(COUNTS, dh.Neighbourhood(DOMAIN, 1), name, 1.0, rng=np.random.default_rng(1))
    right, wrong = (Measurements(np.ones((1, 30)), [COUNTS.sum() + k], [[0]]) for k in (0, 1))
    alone = dh.answer(release, WORK)[["estimate", "noise_error"]]
    assert np.allclose(Combined(release, right).answer(WORK), alone, atol=1e-5)
    for other in (wrong, right._replace(matrix=np.ones((1, 7)))):
        with pytest.raises(dh.InputError):
            Combined(release, other).answer(WORK)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("known", [False, True])
def test_the_covariance_is_that_of_sums_of_answers(name, known):
    """Var(a + b) = Var a + Var b + 2 Cov(a, b), by the errors of single answers."""
    near = dh.Neighbourhood(DOMAIN, 1, None if known else "boundary", limits=())
    A = STRATEGIES[name](np.random.default_rng(3), DOMAIN)
    found = dh.decode.make_decoder(A, calibrate(A, near, epsilon=1.0), total_known=known)
    rows = ROWS if A.determines_cells else np.random.default_rng(1).random((12, A.shape[0])) @ A.matrix().toarray()
    first, second = np.triu_indices(12, 1)
    variance, joined = (
        found.moments(scipy.sparse.csr_array(each)).variance for each in (rows, rows[first] + rows[second])
    )
    covariance = found.covariance(scipy.sparse.csr_array(rows))
    assert np.allclose(covariance.diagonal(), variance, atol=1e-6)
    assert np.allclose(covariance[first, second], (joined - variance[first] - variance[second]) / 2, atol=1e-5)
