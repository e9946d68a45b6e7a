"""Spectral strategies: exact operators and costs, near the optimum, files that are not trusted."""

import json

import numpy as np
import pytest
from examples import random_domain, random_neighbourhood

import deltahist as dh
from deltahist.mechanisms.calibration import explicit_edge_cost
from deltahist.strategies import Optimal, Spectral, from_description
from deltahist.strategies.convolution import convolve, squared_distance


def cases(number, seed):
    rng = np.random.default_rng(seed)
    while number:
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        number -= 1
        yield rng, near, Spectral(near, pad=[None, 0, 1, 3][number % 4])


def test_the_cost_is_that_of_the_rounded_kernel_for_every_neighbourhood():
    for rng, near, spectral in cases(60, 1):
        for other in (near, random_neighbourhood(rng, near.domain)):
            for norm in (1, 2):
                assert spectral.edge_cost(other, norm) == explicit_edge_cost(spectral, other, norm)


def test_rows_are_shifts_of_one_kernel():
    for _, near, spectral in cases(20, 2):
        dense = spectral.matrix().toarray().reshape(*spectral.torus, *near.domain.shape)
        for cell in np.ndindex(near.domain.shape):
            column = dense[(..., *cell)]
            assert np.array_equal(np.roll(spectral.kernel, cell, range(len(cell))), column)


@pytest.mark.parametrize(("n", "cells", "rmse"), [(64, 1, 5.1), (64, 8, 7.3), (128, 1, 6.0), (128, 8, 8.9)])
@pytest.mark.parametrize("pad", [None, 0])
def test_figures_of_the_gaussian_optimum(n, cells, rmse, pad):
    """σ = 1 (ρ = 1/2), all ranges: within 3% of the design's figures."""
    domain = dh.Domain((0, 0, n, n), (n, n))
    near = dh.Neighbourhood(domain, cells)
    spectral = Spectral(near, pad=pad)
    assert spectral.solution.gap < 0.01
    work = dh.workloads.all_ranges(domain).sample(20_000, seed=1)
    assert dh.expected_error(spectral, near, work, rho=0.5).mean() ** 0.5 == pytest.approx(rmse, rel=0.04)
    candidate = next(c for c in dh.plan(near, rho=0.5) if c.label == "Spectral")
    assert candidate.rmse == pytest.approx(rmse, rel=0.03)


def test_it_is_close_to_the_optimum_without_a_torus():
    for shape, delta in (((16, 16), 1), ((16, 16), 3), ((40,), 2)):
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        near = dh.Neighbourhood(domain, delta)
        work = dh.workloads.all_ranges(domain)
        best, other = (
            dh.expected_error(s, near, work, rho=0.5).mean() for s in (Optimal(near), Spectral(near))
        )
        assert best <= other <= 1.3 * best


def test_the_workload_matters():
    domain = dh.Domain((0, 0, 32, 32), (32, 32))
    near = dh.Neighbourhood(domain, 1)
    works = [dh.workloads.random_squares(side, 200, domain) for side in (1, 20)]
    strategies = [Spectral(near, work) for work in works]
    errors = [[dh.expected_error(s, near, w, rho=0.5).mean() for s in strategies] for w in works]
    assert errors[0][0] < errors[0][1]
    assert errors[1][1] < errors[1][0]


def test_a_workload_of_another_domain_is_refused():
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1)
    with pytest.raises(dh.InputError, match="not inside the domain"):
        Spectral(near, dh.workloads.boxes([[0, 0, 9, 9]]))
    with pytest.raises(dh.InputError, match="another domain"):
        Spectral(near, dh.workloads.all_ranges(dh.Domain((0, 0, 4, 4), (4, 4))))


def test_a_delta_larger_than_the_grid_is_any_move():
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    near, far = dh.Neighbourhood(domain, 8), dh.Neighbourhood(domain, 800)
    assert Spectral(near).edge_cost(near, 2) == pytest.approx(Spectral(far).edge_cost(far, 2), rel=0.02)


def test_damaged_kernels_are_refused():
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    near = dh.Neighbourhood(domain, 1)
    good = json.loads(json.dumps(Spectral(near).describe()))
    assert np.array_equal(from_description(domain, good).kernel, Spectral(near).kernel)
    for bad in (good["kernel"][:-8], "", "$$$", 7, good["kernel"] + "AAAA"):
        with pytest.raises(dh.InputError, match="kernel"):
            from_description(domain, {**good, "kernel": bad})
    with pytest.raises(dh.InputError, match="must hold"):
        from_description(domain, {**good, "pad": 9})
    with pytest.raises(dh.InputError):
        from_description(domain, {**good, "pad": 10**9})


def test_convolution_is_exact_however_large_the_numbers():
    rng = np.random.default_rng(3)
    for shape, large in (((12, 9), 2**24), ((64, 64), 2**27), ((300,), 2**20)):
        kernel = rng.integers(-large, large, shape)
        field = rng.integers(0, 2**20, shape) * (rng.random(shape) < 0.2)
        expected = np.zeros(shape, dtype=object)
        for place in zip(*np.nonzero(field), strict=True):
            rolled = np.roll(kernel, place, range(len(shape)))
            expected += int(field[place]) * rolled.astype(object)
        assert np.array_equal(convolve(kernel, field), expected.astype(np.int64))
        assert squared_distance(kernel, None) == sum(int(v) ** 2 for v in kernel.ravel())
        moved = kernel - np.roll(kernel, (1,) * len(shape), range(len(shape)))
        assert squared_distance(kernel, (1,) * len(shape)) == sum(int(v) ** 2 for v in moved.ravel())


def test_sums_beyond_64_bits_are_refused():
    with pytest.raises(dh.InputError, match="64 bits"):
        convolve(np.full((4, 4), 2**40), np.full((4, 4), 2**30))
