"""Tents: exact weights, costs by brute force under every profile, the best choice, and their decoder."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from examples import quiet, random_tents
from scipy.interpolate import BSpline

import deltahist as dh
from deltahist.decode import DenseDecoder
from deltahist.strategies import Tents, from_description
from deltahist.strategies.tents import Lattice, TentSearch


def test_weights_are_splines_to_the_last_digit_and_add_up_over_every_cell():
    rng = np.random.default_rng(1)
    for _ in range(200):
        n = int(rng.integers(1, 40))
        axis = Lattice(n, int(rng.integers(1, n + 1)), int(rng.integers(1, 4)))
        dense = axis.matrix.toarray()
        assert dense.dtype == np.int64
        assert (dense.sum(axis=0) == axis.scale).all()
        assert (dense.sum(axis=1) > 0).all()
        assert np.array_equal(dense, dense[::-1, ::-1])
        if n == 1:
            continue
        order = axis.weights.shape[1]
        spline = BSpline.basis_element(np.arange(order + 1) - order / 2, extrapolate=False)
        middle = (len(dense) - 1) / 2
        for tent, row in enumerate(dense):
            place = (np.arange(n) - (n - 1) / 2) / axis.spacing - (tent - middle)
            assert np.allclose(row / axis.scale, np.nan_to_num(spline(place)), atol=1e-12)


@pytest.mark.parametrize(("n", "delta", "limit", "rmse"), [(64, 1, 1, 42.5), (64, 1, 2, 26.7), (64, 8, 2, 38.7)])
def test_figures_over_all_ranges(n, delta, limit, rmse):
    """Those of the design or better, at ε = 1 with the total public."""
    near = dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), delta, limits=[(math.inf, limit)])
    mechanism = dh.Mechanism(near, Tents.tuned(near), dh.Budget(epsilon=1))
    assert 0.95 * rmse < mechanism.rmse(dh.workloads.all_ranges(near.domain)) <= rmse
    assert mechanism.sensitivity == pytest.approx(1, abs=2e-3)
    assert mechanism.cost_within(near.diameter)[0] <= limit * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(40,), (8, 36)])
def test_no_other_tents_are_much_better(shape):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    near = dh.Neighbourhood(domain, 2, "boundary", limits=[(6, Fraction(3, 2)), (math.inf, 2)])
    search = TentSearch(near, None)
    spacings = itertools.product(*(range(2, min(n, 14)) for n in shape))
    best = min(search.best_shares(s, degree).error for s in spacings if max(s) <= 2 * min(s) for degree in (1, 2, 3))
    tuned = Tents.tuned(near)
    assert search.best_shares(tuned.apart, tuned.degree).error <= 1.02 * best
    found = dh.Mechanism(near, tuned, dh.Budget(1)).rmse(dh.workloads.all_ranges(domain))
    # The search minimises the error itself, except for integer noise and rounded shares.
    assert found**2 == pytest.approx(search.best_shares(tuned.apart, tuned.degree).error, rel=0.03)


def test_descriptions_are_bounded_before_anything_is_made():
    domain = dh.Domain((0, 1), (1_000_000,))
    good = json.loads(json.dumps(Tents(domain, 1000, 2).describe()))
    assert from_description(domain, good).tents == (1003,)
    with pytest.raises(dh.InputError, match="at most 4,128 tents"):
        from_description(domain, {**good, "spacing": [1]})
    # Planning tries other strategies on that line.
    near = dh.Neighbourhood(domain, 1e-6)
    assert not list(Tents.candidates(near, dh.workloads.all_ranges(domain), 1))
    with pytest.raises(dh.InputError, match="at most 2\\^40"):
        from_description(domain, {**good, "spacing": [900_000]})


@pytest.mark.parametrize(("n", "spacing", "degree"), [(1, 1, 3), (40, 3, 1), (41, 4, 2), (64, 7, 3)])
def test_waves_are_the_eigenvectors_of_the_matrix(n, spacing, degree):
    tents = Lattice(n, spacing, degree)
    matrix = tents.matrix.toarray() / tents.scale
    values, sums = tents.wave_values, tents.wave_sums
    waves = np.diff(sums, axis=0)
    assert np.allclose(tents.gram_eigen[0][::-1], np.linalg.eigvalsh(matrix @ matrix.T), atol=1e-13)
    assert np.allclose(waves.T @ waves, np.eye(len(values)), atol=1e-9)
    assert np.allclose((waves * values) @ waves.T, matrix.T @ matrix, atol=1e-11)
    assert not sums[0].any()


def mechanisms(number, seed):
    """Tents of any kind with a public total, and with one that is not."""
    rng = np.random.default_rng(seed)
    for case in range(number):
        shape = tuple(rng.integers(2, 10, 1 + case % 2).tolist())
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        near = quiet(domain, 1, [None, "boundary"][case // 2 % 2])
        budget = dh.Budget(0.7) if case % 3 else dh.Budget(rho=0.2)
        yield rng, dh.Mechanism(near, random_tents(rng, domain), budget)


def test_the_stated_kurtosis_is_at_least_that_of_the_draws():
    larger = 0
    for _, mechanism in mechanisms(20, 3):
        work = dh.workloads.all_ranges(mechanism.domain)
        stated, dense = (d.moments(work) for d in (
            mechanism.decoder, DenseDecoder(mechanism.strategy, mechanism.laws, mechanism.total_known)
        ))  # fmt: skip
        some = stated.variance > 0
        assert (stated.kurtosis[some] >= dense.kurtosis[some] - 1e-9).mean() > 0.995
        larger += int((stated.kurtosis[some] > 2 * dense.kurtosis[some]).sum())
    assert larger  # it is a bound


def test_the_metric_is_the_exact_covariance_before_a_total_adjusts_it():
    for _, mechanism in mechanisms(12, 4):
        decoder, size = mechanism.decoder, mechanism.domain.size
        metric = decoder.noise_metric()
        columns = [metric.filter(e.reshape(metric.grid), metric.variance).ravel() for e in np.eye(size)]
        weights = np.array([decoder.solve_adjoint(e) for e in np.eye(size)])
        exact = (weights * decoder.draw_variance) @ weights.T
        assert np.allclose(columns, exact, atol=1e-9 * exact.max())
        assert metric.cell_variance == pytest.approx(np.trace(exact) / size)
