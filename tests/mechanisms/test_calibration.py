"""Exact sensitivity: closed forms agree with the definition (audits/test_exact.py has that of small grids)."""

from fractions import Fraction

import numpy as np
import pytest
from examples import STRATEGIES, random_domain, random_neighbourhood

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from tests.laws import calibrate


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


@pytest.mark.parametrize(("name", "continuous", "discrete"), [("Identity", 160, 156.71), ("Cumulative", 32, 29.46)])
def test_table_3s_totals(name, continuous, discrete):
    four = dh.Domain((0, 1), (4,))
    given = getattr(dh.strategies, name)(four), dh.Neighbourhood(four, 0.25, "left"), dh.workloads.all_ranges(four)
    assert dh.expected_error(*given, 1.0, continuous=True).sum() == pytest.approx(continuous, abs=1e-9)
    assert dh.expected_error(*given, 1.0).sum() == pytest.approx(discrete, abs=0.005)
    assert dh.expected_error(*given).sum() == pytest.approx(discrete, abs=0.005)


def test_entries_whose_squares_overflow_are_refused():
    class Huge(dh.strategies.Hierarchical):
        edge_cost = dh.Strategy.edge_cost

        def matrix(self):
            return super().matrix() * (1 << 32)

    near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), 1)
    assert dh.sensitivity(Huge(near.domain), near) == dh.sensitivity(Huge.__base__(near.domain), near) * 2**32
    with pytest.raises(dh.InputError):
        dh.sensitivity(Huge(near.domain), near, norm=2)
