"""Least squares by its definition, dense; structured decoders and error formulas equal it."""

from fractions import Fraction

import numpy as np
import pytest
from examples import STRATEGIES, random_domain, random_neighbourhood

import deltahist as dh
from deltahist.decode.base import DenseDecoder, IterativeDecoder, make_decoder
from deltahist.laws import Laplace
from tests.laws import calibrate


def cases(name, number, seed=3, most=(16, 6)):
    rng = np.random.default_rng([seed, len(name)])
    made = 0
    while made < number:
        domain = random_domain(rng, most=most)
        near = random_neighbourhood(rng, domain)
        A = STRATEGIES[name](rng, domain)
        if name == "Spectral":
            A.__dict__["torus"] = domain.shape  # without a margin the decoder is least squares
        budget = {"epsilon": 0.7} if rng.random() < 0.5 else {"rho": 0.2}
        laws = calibrate(A, near, **budget)
        if laws[0].parameter:
            made += 1
            yield rng, A, laws, near.fixed_membership


def subject_to_the_total(A, variance):
    """Least squares by the definition: coefficients (N, k) of the cells on data whose total is zero; of least norm."""
    free = np.linalg.svd(np.ones((1, A.domain.size)))[2][1:].T  # directions that leave the total as it is
    weight = 1 / np.sqrt(variance)
    return free @ np.linalg.pinv(weight[:, None] * A.matrix().toarray() @ free, rcond=1e-10) * weight


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_dense_decoder_is_least_squares_subject_to_the_total(name):
    """Where the rows hold the total: else the direction in which estimates move onto it is another."""
    done = 0
    for rng, A, laws, known in cases(name, 30):
        rows, n = A.matrix().toarray().astype(float), A.domain.size
        if not known or n == 1 or not np.allclose(np.linalg.lstsq(rows.T, np.ones(n))[0] @ rows, 1):
            continue
        done += 1
        dense, values, start = DenseDecoder(A, laws, True), rng.integers(-20, 40, A.shape[0]), np.full(n, 50 / n)
        weight = subject_to_the_total(A, dense.draw_variance)
        estimate = dense.estimate_cells(values, 50)
        assert np.allclose(estimate.ravel(), start + weight @ (values - A @ start), atol=1e-5)
        assert estimate.sum() == pytest.approx(50)
        if not A.determines_cells:
            continue
        work = dh.workloads.all_ranges(A.domain)
        part = (work.matrix(A.domain) @ weight) ** 2 * dense.draw_variance
        variance, moments = part.sum(axis=1), dense.moments(work)
        assert np.allclose(moments.variance, variance, atol=1e-7)
        assert dense.mean_variance(work) == pytest.approx(variance.mean(), rel=1e-9, abs=1e-9)
        some = variance > 1e-6
        kurtosis = (part**2 @ dense.draw_kurtosis)[some] / variance[some] ** 2
        assert np.allclose(moments.kurtosis[some], kurtosis, atol=1e-6)
    assert done or name == "CutAugmented"  # whose few sets hardly ever hold all cells


@pytest.mark.parametrize("sets", [((0,),), ((0, 1), (1,)), ((1, 2), (2,), (0, 1, 2))])
@pytest.mark.parametrize("kind", [DenseDecoder, IterativeDecoder])
def test_the_total_goes_to_the_cells_that_are_open(sets, kind):
    A = dh.strategies.CutAugmented(dh.Domain((0, 1), (4,)), sets)
    values = A.measure(np.array([10, 30, 30, 30])) + np.arange(len(sets))
    found, start = kind(A, (Laplace(Fraction(2)),), True), np.full(4, 25.0)
    expected = start + subject_to_the_total(A, found.draw_variance) @ (values - A @ start)
    assert np.allclose(found.estimate_cells(values, 100), expected, atol=1e-6)


@pytest.mark.parametrize("name", STRATEGIES)
def test_estimates_and_coefficients_equal_the_dense_ones(name):
    for rng, A, laws, known in cases(name, 12):
        dense = DenseDecoder(A, laws, known)
        values = rng.integers(-20, 40, A.shape[0])
        # Where cells are not determined, only what was measured has an answer of finite variance.
        query = rng.random(A.shape[1]) if A.determines_cells else A.T @ rng.random(A.shape[0])
        for other in (make_decoder(A, laws, total_known=known), IterativeDecoder(A, laws, known)):
            assert np.allclose(dense.estimate_cells(values, 50), other.estimate_cells(values, 50), atol=1e-5)
            assert np.allclose(dense.answer_coefficients(query), other.answer_coefficients(query), atol=1e-5)


@pytest.mark.parametrize("name", STRATEGIES)
def test_error_and_kurtosis_of_boxes_equal_the_dense_ones(name):
    closed = 0
    for _, A, laws, known in cases(name, 12):
        found = make_decoder(A, laws, total_known=known)
        # The closed form of two is no sum of products.
        if found.box_cumulant(2) is None and name not in ("Spectral", "Tents"):
            continue
        closed += 1
        dense = DenseDecoder(A, laws, known)
        for work in (dh.workloads.all_ranges(A.domain), dh.workloads.random_boxes(15, A.domain, seed=closed)):
            truth = dense.moments(work.matrix(A.domain))
            moments = found.moments(work)
            if found.note == "exact":
                assert np.allclose(truth.variance, moments.variance, atol=1e-7)
            else:
                assert (moments.variance >= truth.variance - 1e-7).all()
        # With a public total the closed form of the kurtosis ignores a small shift.
        if name == "Identity" or (name in ("Cumulative suffix", "Wavelet") and not known):
            ranges = dh.workloads.all_ranges(A.domain)
            truth, moments = dense.moments(ranges.matrix(A.domain)), found.moments(ranges)
            some = truth.variance > 1e-6
            assert found.box_cumulant(4) is None or np.allclose(truth.kurtosis[some], moments.kurtosis[some], atol=1e-6)
        ranges = dh.workloads.all_ranges(A.domain)
        assert found.mean_variance(ranges) == pytest.approx(found.moments(ranges).variance.mean(), abs=1e-8)
    assert closed or name in ("CutAugmented", "ShiftedGrids", "ShiftedGrids dyadic")


def test_many_queries_without_a_closed_form_are_priced_by_simulation():
    # A hundred noise fields: each variance is off by a factor of chi-square(100)/100; six standard
    # deviations of that are 0.85, so that a false alarm is less likely than one in a million.
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    A = dh.strategies.ShiftedGrids(domain, width=4, shift=2)
    laws = calibrate(A, dh.Neighbourhood(domain, delta=2), epsilon=1)
    found = IterativeDecoder(A, laws, False)
    work = dh.workloads.all_ranges(domain)
    moments = found.moments(work)
    exact = DenseDecoder(A, laws, False).moments(work)
    assert moments.freedom == 100
    ratio = moments.variance / exact.variance
    assert 0.3 < ratio.min() < ratio.max() < 1.9
    assert ratio.mean() == pytest.approx(1, abs=0.4)
