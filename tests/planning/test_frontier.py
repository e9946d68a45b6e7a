"""The frontier: the least error for each limit on what any move costs."""

import math

import pytest

import deltahist as dh

NEAR = dh.Neighbourhood(dh.Domain((0, 0, 9, 8), (9, 8)), 1)


def test_each_limit_has_the_best_candidate_under_it():
    found = dh.frontier(NEAR, epsilon=0.5, limits=(1, 4, None))
    assert [point.limit for point in found] == [1, 4, None]
    for point in found:
        limits = () if point.limit is None else [(math.inf, point.limit)]
        best = dh.plan(NEAR.with_limits(limits), epsilon=0.5)[0]
        assert (point.best.label, point.best.rmse) == (best.label, best.rmse)
        assert point.times == pytest.approx(best.any_move / 0.5)
        assert point.limit is None or point.times <= point.limit
    assert found[-1].best.rmse < found[0].best.rmse


def test_beside_each_stands_what_that_budget_does_for_all_moves():
    found = dh.frontier(NEAR, epsilon=0.5, limits=(1, 4, None))
    alone = dh.plan(NEAR.anywhere(), epsilon=0.5)[0]
    assert found[0].rival.rmse == pytest.approx(alone.rmse)
    assert found[1].rival.label == alone.label
    dearer = alone.mechanism.with_budget(dh.Budget(epsilon=2))
    assert found[1].rival.rmse == pytest.approx(dearer.rmse(dh.workloads.all_ranges(NEAR.domain)))
    assert found[1].rival.any_move == pytest.approx(2)
    assert found[2].rival is None


def test_both_noises_have_their_own():
    found = dh.frontier(NEAR, epsilon=1, probability=1e-6, limits=(1.5,))
    assert sorted(point.noise for point in found) == ["gaussian", "laplace"]
    assert found[0].best.rmse <= found[1].best.rmse
    (rho,) = (point for point in found if point.noise == "gaussian")
    assert rho.times <= 1.5 * (1 + 1e-9)
    assert rho.rival.mechanism.neighbourhood.relations[0][1].reach.tolist() == NEAR.anywhere().reach.tolist()


def test_other_limits_are_kept_as_far_as_the_one_for_any_move_leaves_them():
    near = NEAR.with_limits([(4, 2), ("any", 9)])
    found = dh.frontier(near, epsilon=1, limits=(1.5, 3, None))
    profiles = [
        [(limit.any, float(limit.factor)) for limit in point.mechanism.neighbourhood.profile] for point in found
    ]
    assert profiles == [[(True, 1.5)], [(False, 2.0), (True, 3.0)], [(False, 2.0)]]


def test_a_limit_below_one_is_refused():
    with pytest.raises(dh.InputError, match=r"limits holds 0\.5: it must be a number of at least 1"):
        dh.frontier(NEAR, epsilon=1, limits=(0.5,))


def test_a_larger_limit_is_never_worse():
    """On these squares hubs, which only limits ask for, are better than flows without."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 40, 42), (40, 42)), 4)
    points = dh.frontier(near, epsilon=1, limits=(8, None, 4, 2, 1))
    assert [point.limit for point in points] == [8, None, 4, 2, 1]
    errors = {point.limit: point.best.rmse for point in points}
    assert errors[None] <= errors[8] <= errors[4] <= errors[2] <= errors[1]
