"""Spectral strategies: exact operators and costs, near the optimum, files that are not trusted."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import random_domain, random_neighbourhood

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.strategies import Spectral, from_description, spectral as multipliers
from deltahist.strategies.spectral import convolve_circularly, mirror_quarter, squared_distance, workload_power


def test_the_cost_is_that_of_the_rounded_kernel_for_every_neighbourhood():
    rng = np.random.default_rng(1)
    for _ in range(60):
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        spectral = Spectral(near)
        for other in (near, random_neighbourhood(rng, domain)):
            assert spectral.edge_cost(other, 2) == explicit_edge_cost(spectral, other, 2)


@pytest.mark.parametrize(("n", "cells", "rmse"), [(64, 1, 5.1), (64, 8, 7.3)])
def test_figures_of_the_gaussian_optimum(n, cells, rmse):
    """σ = 1 (ρ = 1/2), all ranges: within 3% of the design's figures."""
    near = dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), cells)
    spectral = Spectral(near)
    assert spectral.solution.gap < 0.01
    found = dh.Mechanism(near, spectral, dh.Budget(rho=0.5)).rmse(dh.workloads.all_ranges(near.domain))
    assert found == pytest.approx(rmse, rel=0.03)


@pytest.mark.parametrize(
    ("shape", "delta", "sources", "limits"),
    [((9,), 1, "left", [(3, 1.25), (math.inf, 1.5)]), ((8,), 2, None, [(2.5, 1.25), (4, 2), (6.5, 3)]),
     ((5, 3), 1, "boundary", [(2, 1.2), (math.inf, 1.25)]), ((4, 6), 2, None, [(3, 1.05)])],
)  # fmt: skip
def test_the_certified_gap_holds_against_a_general_solver(shape, delta, sources, limits):
    import cvxpy as cp

    near = dh.Neighbourhood(dh.Domain((0,) * len(shape) + shape, shape), delta, sources, limits)
    spectral = Spectral(near)
    torus, size = spectral.torus, math.prod(spectral.torus)
    places = list(np.ndindex(torus))
    # x(0) − x(d) = Σ X̂(ω) (1 − cos ω·d) over the number of cells, with each displacement that a move has.
    phase = 2 * np.pi * sum(np.multiply.outer(p, p) / n for p, n in zip(np.array(places).T, torus, strict=True))
    bounds = {}
    for factor, relation in reversed(near.relations):
        for move in relation.displacements().tolist():
            for sign in np.ndindex((2,) * len(shape)):
                end = (d * (1 - 2 * s) % n for d, s, n in zip(move, sign, torus, strict=True))
                bounds[tuple(end)] = float(factor) ** 2
    weight = (workload_power(None, near.domain, torus) + multipliers._CELLS).ravel()
    rows = [2 * (1 - np.cos(phase[places.index(d)])) / size / square for d, square in bounds.items()]
    keep = slice(1, None) if near.fixed_membership else slice(0, None)
    rows += [] if near.fixed_membership else [np.ones(size) / size]
    x = cp.Variable(size)
    terms = cp.multiply(weight[keep], cp.inv_pos(x[keep]))
    problem = cp.Problem(cp.Minimize(cp.sum(terms)), [np.array(rows) @ x <= 1])
    problem.solve(solver=cp.CLARABEL)
    found = mirror_quarter(spectral.solution.spectrum, torus).ravel() ** 2
    assert (np.array(rows)[:, keep] @ found[keep]).max() <= 1 + 1e-9
    reached = (weight[keep] / found[keep]).sum()
    assert problem.value * (1 - 1e-6) <= reached <= problem.value * (1 + spectral.solution.gap + 1e-6)
    assert 0 <= spectral.solution.gap <= 1e-3


@pytest.mark.parametrize(("n", "cells", "limit", "price"), [(64, 1, 2, 1.006), (64, 1, 1, 1.52)])
def test_what_a_limit_for_any_move_costs(n, cells, limit, price):
    """RMSE relative to no limit: the design's figures, and the limit holds."""
    near = dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), cells, limits=())
    capped = replace(near, limits=[(math.inf, limit)])
    work = dh.workloads.all_ranges(near.domain)
    free, held = (dh.Mechanism(one, Spectral(one), dh.Budget(rho=0.5)) for one in (near, capped))
    assert held.strategy.solution.gap < 0.005
    assert held.rmse(work) / free.rmse(work) == pytest.approx(price, rel=0.01)
    assert held.cost_under(near.anywhere()) <= held.budget.amount * capped.profile[0].factor ** 2
    assert held.cost_under(near) <= held.budget.amount


def test_a_large_torus_starts_from_a_small_one():
    """A limit that the small torus does not know, and one that it does."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 340, 300), (340, 300)), 1, limits=[(9, 1.5), (150, 1.9), (math.inf, 1.92)])
    spectral = Spectral(near)
    assert max(spectral.torus) > multipliers._COARSE
    assert spectral.solution.gap < 0.005
    found = dh.sensitivity(spectral, near, norm=2).squared
    costs = [Fraction(spectral.edge_cost(relation, 2)) / factor**2 for factor, relation in near.relations]
    assert found == max(costs)
    assert min(costs) > 0.98 * max(costs)


def test_displacements_that_cost_the_same_are_told_apart_exactly():
    """A kernel of single cells, for which all moves cost the same; and many that differ in the last digits."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 40, 40), (40, 40)), 1)
    single = Spectral(near.anywhere(), dh.workloads.random_squares(1, 50, near.domain))
    assert single.edge_cost(near.anywhere(), 2) == single.edge_cost(near, 2) == squared_distance(single.kernel, (3, 1))
    rng = np.random.default_rng(5)
    for shape in ((30,), (9, 8)):
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        far = dh.Neighbourhood(domain, 1).anywhere()
        spectral = Spectral(far)
        kernel = np.full(spectral.torus, 3)
        kernel.flat[0] = 2**24 + int(rng.integers(100))
        spectral.__dict__["kernel"] = kernel
        kernel[tuple(n // 2 for n in kernel.shape)] -= 1
        assert spectral.edge_cost(far, 2) == explicit_edge_cost(spectral, far, 2)


def test_damaged_kernels_are_refused():
    near = dh.Neighbourhood(domain := dh.Domain((0, 0, 8, 8), (8, 8)), 1)
    good = json.loads(json.dumps(Spectral(near).describe()))
    assert np.array_equal(from_description(domain, good).kernel, Spectral(near).kernel)
    for bad in ({"kernel": good["kernel"][:-8]}, {"kernel": 7}):
        with pytest.raises(dh.InputError):
            from_description(domain, {**good, **bad})


def test_convolution_is_exact_however_large_the_numbers():
    rng = np.random.default_rng(3)
    for shape, large in (((12, 9), 2**24), ((64, 64), 2**27), ((300,), 2**20)):
        kernel = rng.integers(-large, large, shape)
        field = rng.integers(0, 2**20, shape) * (rng.random(shape) < 0.2)
        expected = np.zeros(shape, dtype=object)
        for place in zip(*np.nonzero(field), strict=True):
            rolled = np.roll(kernel, place, range(len(shape)))
            expected += int(field[place]) * rolled.astype(object)
        assert np.array_equal(convolve_circularly(kernel, field), expected.astype(np.int64))
        assert squared_distance(kernel, None) == sum(int(v) ** 2 for v in kernel.ravel())
        moved = kernel - np.roll(kernel, (1,) * len(shape), range(len(shape)))
        assert squared_distance(kernel, (1,) * len(shape)) == sum(int(v) ** 2 for v in moved.ravel())
    with pytest.raises(dh.InputError, match="64 bits"):
        convolve_circularly(np.full((4, 4), 2**40), np.full((4, 4), 2**30))
