"""Planning: mechanisms ranked by expected error."""

import math
from dataclasses import replace

import numpy as np
import pytest

import deltahist as dh
from deltahist.planning import mechanism_for


def grid(*shape):
    return dh.Domain((0,) * len(shape) + shape, shape)


@pytest.mark.parametrize(
    ("shape", "delta", "sources", "limits"),
    [((16,), 1, None, ()), ((12,), 2, "left", None), ((6, 6), 1, None, [(3, 2), ("any", 3)]),
     ((8, 5), 2, "boundary", ())],
)  # fmt: skip
@pytest.mark.parametrize("budget", [{"epsilon": 0.5}, {"rho": 0.2}])
def test_the_ranking_is_that_of_the_expected_errors(shape, delta, sources, limits, budget):
    given = dh.Neighbourhood(grid(*shape), delta, sources, limits)
    work = dh.workloads.all_ranges(given.domain)
    found = dh.plan(given, work, **budget)
    near = given.capped()
    for candidate in found:
        error = dh.expected_error(candidate.strategy, near, work, **budget)
        assert candidate.rmse == pytest.approx(math.sqrt(error.mean()), rel=1e-6)
        norm = 1 if "epsilon" in budget else 2
        assert candidate.cost == pytest.approx(float(dh.sensitivity(candidate.strategy, near, norm=norm)))
        rank = np.linalg.matrix_rank(candidate.strategy.matrix().toarray())
        assert candidate.resolves == (rank == near.domain.size)
    assert found == sorted(found, key=lambda c: (not c.resolves, c.rmse / c.strategy.accepted_excess(near)))
    assert found[0].resolves


def test_large_grids_are_planned_in_closed_form():
    best = dh.plan(dh.Neighbourhood(grid(1000, 1000), 1, limits=()), epsilon=1.0)[0]
    assert best.label == "Flow (blocks of cell, sums 46 apart)"
    assert best.rmse == pytest.approx(40.5, abs=0.3)


def test_any_move_is_capped_where_nothing_is_said_of_it():
    near = dh.Neighbourhood(grid(16, 16), 1)
    for budget, most in (({"epsilon": 0.5}, 4), ({"rho": 0.5}, 16)):
        assert all(c.any_move <= most * 0.5 * (1 + 1e-12) for c in dh.plan(near, **budget))
    free = dh.plan(replace(near, limits=()), epsilon=0.5)[0]
    assert (free.strategy.name, free.any_move) == ("Flow", 7.5)
    # What is chosen says so; what is named or given stays as it is.
    chosen = mechanism_for(near, epsilon=1)
    assert [(limit.any, limit.factor) for limit in chosen.neighbourhood.profile] == [(True, 4)]
    assert mechanism_for(near, "flow", epsilon=1).neighbourhood is near
    given = mechanism_for(near, dh.strategies.Cumulative(near.domain), epsilon=1)
    assert given.neighbourhood is near
    assert given.any_move > 4
    assert mechanism_for(replace(near, limits=[("any", 9)]), epsilon=1).neighbourhood.profile[0].factor == 9
