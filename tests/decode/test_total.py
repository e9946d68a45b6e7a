"""With a public total: estimates and errors are those of least squares subject to it, from the definition."""

import numpy as np
import pytest
from examples import STRATEGIES, random_domain

import deltahist as dh
from deltahist.decode import DenseDecoder, IterativeDecoder, decoder
from tests.laws import calibrate


def cases(name, number):
    """Strategies of fixed membership whose rows hold the total, with laws of either kind."""
    rng = np.random.default_rng([17, len(name)])
    while number:
        domain = random_domain(rng, most=(16, 6))
        A = STRATEGIES[name](rng, domain)
        laws = calibrate(
            A,
            dh.Neighbourhood(domain, max(domain.cell)),
            **({"epsilon": 0.7} if number % 2 else {"rho": 0.2}),
        )
        rows = A.matrix().toarray().astype(float)
        everything = np.linalg.lstsq(rows.T, np.ones(domain.size))[0] @ rows
        if laws[0].parameter and np.allclose(everything, 1) and domain.size > 1:
            number -= 1
            yield rng, A, laws


def definition(A, variance):
    """Coefficients (N, k) of the cells, on data sets whose total is zero; of least norm."""
    free = np.linalg.svd(np.ones((1, A.domain.size)))[2][1:].T  # directions that leave the total as it is
    weight = 1 / np.sqrt(variance)
    return free @ np.linalg.pinv(weight[:, None] * A.matrix().toarray() @ free, rcond=1e-10) * weight


@pytest.mark.parametrize("name", STRATEGIES)
def test_estimates_are_least_squares_subject_to_the_total(name):
    for rng, A, laws in cases(name, 25):
        n = A.domain.size
        values = rng.integers(-20, 40, A.shape[0])
        start = np.full(n, 50 / n)
        kinds = [kind(A, laws, total_known=True) for kind in (decoder, DenseDecoder, IterativeDecoder)]
        expected = start + definition(A, kinds[0].draw_variance) @ (values - A @ start)
        for found in kinds:
            estimate = found.estimate(values, 50)
            assert np.allclose(estimate.ravel(), expected, atol=1e-5)
            assert estimate.sum() == pytest.approx(50)


@pytest.mark.parametrize("name", STRATEGIES)
def test_errors_are_those_of_least_squares_subject_to_the_total(name):
    for _, A, laws in cases(name, 25):
        if not A.determines_cells:
            continue
        work = dh.workloads.all_ranges(A.domain)
        kinds = decoder(A, laws, total_known=True), DenseDecoder(A, laws, True)
        part = (work.matrix(A.domain) @ definition(A, kinds[0].draw_variance)) ** 2 * kinds[0].draw_variance
        for found in kinds:
            variance, moments = part.sum(axis=1), found.moments(work)
            assert np.allclose(moments.variance, variance, atol=1e-7)
            assert found.mean_variance(work) == pytest.approx(variance.mean(), rel=1e-9, abs=1e-9)
            some = variance > 1e-6
            if name == "Identity" or isinstance(found, DenseDecoder):
                kurtosis = (part**2 @ found.draw_kurtosis)[some] / variance[some] ** 2
                assert np.allclose(moments.kurtosis[some], kurtosis, atol=1e-6)
