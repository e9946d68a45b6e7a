"""Planning: ranked by expected error, the best one first, from public data alone."""

import math

import numpy as np
import pytest
import shapely

import deltahist as dh


@pytest.mark.parametrize(
    ("shape", "delta", "sources"),
    [((16,), 1, None), ((12,), 2, "left"), ((6, 6), 1, None), ((8, 5), 2, "boundary")],
)
@pytest.mark.parametrize("budget", [{"epsilon": 0.5}, {"rho": 0.2}])
def test_the_ranking_is_that_of_the_expected_errors(shape, delta, sources, budget):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    near = dh.Neighbourhood(domain, delta, sources)
    work = dh.workloads.all_ranges(domain)
    found = dh.plan(near, work, **budget)
    for candidate in found:
        error = dh.expected_error(candidate.strategy, near, work, **budget)
        assert candidate.rmse == pytest.approx(math.sqrt(error.mean()), rel=1e-6)
        norm = 1 if "epsilon" in budget else 2
        assert candidate.cost == pytest.approx(float(dh.sensitivity(candidate.strategy, near, norm=norm)))
        assert candidate.resolves == (
            np.linalg.matrix_rank(candidate.strategy.matrix().toarray()) == domain.size
        )
    assert found == sorted(found, key=lambda c: (not c.resolves, c.rmse))
    assert found[0].resolves


def test_suffix_sums_win_where_the_paper_says():
    domain = dh.Domain((0, 1), (64,))
    best = dh.plan(dh.Neighbourhood(domain, 1 / 64, "left"), epsilon=1.0)[0]
    assert best.label == "Cumulative (suffix)"
    best = dh.plan(dh.Neighbourhood(domain, 1 / 64, "right"), epsilon=1.0)[0]
    assert best.label == "Cumulative (prefix)"


def test_the_workload_matters():
    domain = dh.Domain((0, 0, 1, 1), (64, 64))
    near = dh.Neighbourhood(domain, 1 / 64)
    small = dh.plan(near, dh.workloads.random_squares(1 / 64, 200, domain))[0]
    large = dh.plan(near, dh.workloads.random_squares(0.5, 200, domain))[0]
    assert small.label == "Identity"
    assert large.label.startswith("Hierarchical")


def test_polygons_can_be_planned_for():
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    found = dh.plan(dh.Neighbourhood(domain, 1.0), dh.workloads.regions([shapely.Point(4, 4).buffer(3)]), 1.0)
    assert found[0].resolves
    assert found[0].rmse > 0


def test_greedy_rows_are_offered_on_small_domains():
    domain = dh.Domain((0, 1), (8,))
    labels = [c.label for c in dh.plan(dh.Neighbourhood(domain, 1 / 8, "boundary"))]
    assert "CutAugmented (cells)" in labels


def test_large_grids_are_planned_in_closed_form():
    domain = dh.Domain((0, 0, 1, 1), (1000, 1000))
    best = dh.plan(dh.Neighbourhood(domain, 0.001), epsilon=1.0)[0]
    assert best.label == "Hierarchical (branching 10)"
    assert best.rmse == pytest.approx(412.3, abs=0.1)
