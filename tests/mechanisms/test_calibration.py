"""Exact sensitivity: closed forms, the definition, and brute force over neighbouring data sets agree."""

import math
from fractions import Fraction

import numpy as np
import pytest
from examples import STRATEGIES, gap_neighbours, random_domain, random_neighbourhood

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from tests.laws import calibrate

CASES = 120


def brute_force(strategy, near, norm, rng):
    """Largest weighted change of A c over all data sets that differ from a random one by one neighbouring step."""
    cell = np.eye(strategy.domain.size, dtype=np.int64)
    rows = strategy @ cell
    share = np.empty(len(rows), dtype=object)
    for group in strategy.groups:
        share[group.members] = group.share
    pairs, entry = gap_neighbours(near)
    data = rng.integers(1, 9, strategy.domain.size)
    moves = [cell[v] - cell[u] for pair in pairs for u, v in (pair, pair[::-1])]
    others = [data + step for step in (*moves, *cell[entry], *-cell[entry])]
    if not others:
        return Fraction(0)
    change = np.abs(rows @ np.array(others).T - (rows @ data)[:, None])
    scale = math.lcm(*(s.denominator for s in share))
    weight = np.array([int(s * scale) ** norm for s in share])
    return Fraction(int((weight @ change**norm).max()), scale**norm)


@pytest.mark.parametrize("name", STRATEGIES)
def test_sensitivity_equals_brute_force_over_all_neighbouring_data_sets(name):
    rng = np.random.default_rng([2014, len(name)])
    sources = set()
    for case in range(CASES // 4 if name == "Spectral" else CASES):  # each is an optimisation of its own
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        strategy = STRATEGIES[name](rng, domain)
        norm = 1 + case % 2
        found = dh.sensitivity(strategy, near, norm=norm)
        exact = found if norm == 1 else found.squared
        assert exact == brute_force(strategy, near, norm, rng), (strategy, near, norm)
        sources.add(str(near.sources)[:5])
    assert len(sources) >= 5


@pytest.mark.parametrize("name", STRATEGIES)
def test_closed_form_equals_the_definition_on_larger_grids(name):
    rng = np.random.default_rng([7, len(name)])
    for _ in range(12):
        domain = random_domain(rng, most=(40, 12))
        near = random_neighbourhood(rng, domain)
        strategy = STRATEGIES[name](rng, domain)
        for norm in (1, 2):
            closed = strategy.edge_cost(near, norm)
            if closed is not None:
                assert closed == explicit_edge_cost(strategy, near, norm)


@pytest.mark.parametrize("m", [1, 2, 5, 10])
def test_shifted_grids_cost_four_for_any_number_of_grids(m):
    domain = dh.Domain((0, 0, 1, 1), (100, 100))
    near = dh.Neighbourhood(domain, delta=0.01)
    assert dh.sensitivity(dh.strategies.ShiftedGrids(domain, width=10, shift=1, m=m), near) == (4 if m > 1 else 2)


def test_large_grids_are_priced_in_closed_form():
    domain = dh.Domain((0, 0, 1, 1), (4096, 4096))
    near = dh.Neighbourhood(domain, delta=8 / 4096, sources="boundary")
    assert dh.sensitivity(dh.strategies.Identity(domain), near) == 2
    assert dh.sensitivity(dh.strategies.Hierarchical(domain), near) == 24
    # Columns of full height 13 × 13 that agree on the sum of all alone: 2 · 169 − 2 · (1 + 1) at the middle.
    assert dh.sensitivity(dh.strategies.Wavelet(domain), near) == 2 * 169 - 4


def test_noise_scales_are_exact_fractions():
    domain = dh.Domain((0, 1), (4,))
    near = dh.Neighbourhood(domain, delta=0.25)
    A = dh.strategies.Hierarchical(domain, 2, shares=(1, 2, 3))
    scales = [law.parameter for law in calibrate(A, near, epsilon=Fraction(1, 3), contributions=2)]
    # A move crosses the lower two levels: 2 · (2 + 3) = 10, times 2 points, over a third.
    assert scales == [Fraction(60), Fraction(30), Fraction(20)]
    variances = [law.parameter for law in calibrate(A, near, rho=Fraction(1, 2), contributions=2)]
    assert variances == [Fraction(4 * 26), Fraction(26), Fraction(4 * 26, 9)]
