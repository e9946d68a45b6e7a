"""Flows: R(η + U_e) = R(η) + A E_e exactly, costs equal to those of U, and exact totals."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import served_flows

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.strategies import Flow
from deltahist.strategies.flow import PathCosts
from deltahist.strategies.flow.noise import (
    HUB_STRIPS,
    HUB_SUMS,
    HUBS,
    Hubs,
)

SQUARE = dh.Domain((0, 0, 8, 8), (8, 8))


def square(n, delta=1, limits=None, sources=None):
    return dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), delta, sources, limits)


def test_noise_makes_up_for_every_edge_exactly():
    """The condition of the theorem in docs/privacy/factorisation.md, in whole numbers: E = K U."""
    for rng, near, flow in served_flows(150, 1):
        change = flow.changes(near).toarray()
        data = (flow.matrix() @ near.incidence()).toarray()
        noise = rng.integers(-1000, 1000, flow.draws)
        before = flow.scatter(noise)
        assert before.dtype == np.int64
        for sign in (1, -1):
            after = flow.scatter(noise + sign * change.T)  # of all edges at once
            assert np.array_equal(after - before, sign * data.T), (flow, near)


def test_changes_make_up_for_far_moves_whatever_the_noise():
    """Also where sums of noise are longer than floats hold."""
    near = square(11).anywhere()
    rng = np.random.default_rng(1)
    for more in ((1, (3,), True), (3, (2,)), (1, (4,), False, True), (3, (2,), True, True), (1, (2, 4), False, True)):
        flow = Flow(near.domain, 1, (), None, None, *more)
        some = rng.integers(0, len(near.edges()), 40)
        change = flow.changes(near)[:, some].toarray()
        moved = (flow.matrix() @ near.incidence())[:, some].toarray()
        noise = rng.integers(-(10**16), 10**16, flow.draws)
        assert np.array_equal(flow.scatter(noise + change.T) - flow.scatter(noise), moved.T)


def test_whole_numbers_of_steps_are_rounded_and_floats_are_not():
    for rng, _, flow in served_flows(60, 4):
        noise = rng.integers(-1000, 1000, flow.draws)
        linear = flow.scatter(noise.astype(float))
        # Each side of a cell is the difference of two rounded sums; a cell has at most four sides.
        assert np.abs(flow.scatter(noise) - linear).max() <= 4 + 1e-6
        weights = rng.normal(size=flow.shape[0])
        assert linear @ weights == pytest.approx(noise @ flow.gather(weights), abs=1e-6)


def test_the_estimate_at_hubs_is_least_squares():
    """The inflow at hubs, against the normal equations of the hubs' own noise, their sums, and strips."""
    ratios = (0.7, 0.4)
    hubs = replace(Hubs.on_grid((9, 7), 1, (2, 4), True), ratios=ratios)
    x, y = hubs.axes
    on_x, on_y = x.windows.theta, y.windows.theta
    theta = [np.kron(on_x, on_y), np.concatenate([np.kron(on_x, np.eye(7)), np.kron(np.eye(9), on_y)])]
    precision = np.eye(63) + sum(t.T @ t / ratio for t, ratio in zip(theta, ratios, strict=True))
    rng = np.random.default_rng(1)
    own, *sums = (rng.normal(size=(5, n)) for n in (63, *map(len, theta)))
    told = sum(s @ t / ratio for s, t, ratio in zip(sums, theta, ratios, strict=True))
    draws = {HUBS: own, HUB_SUMS: sums[0] * x.weight_unit * y.weight_unit, HUB_STRIPS: sums[1] * x.weight_unit}
    assert np.allclose(hubs.estimate_inflow(draws), np.linalg.solve(precision, (own + told).T).T)


# -- costs -----------------------------------------------------------------------------------------------------


def test_the_cost_is_that_of_the_changes():
    for _, near, flow in served_flows(150, 2):
        assert dh.sensitivity(flow, near) == explicit_edge_cost(flow, near, 1), (flow, near)
        closed, exact = dh.sensitivity(flow, near, norm=2).squared, explicit_edge_cost(flow, near, 2)
        # A move over several lines does not cross all of them where one sum has all the weight; of hubs few have one.
        one = all(d <= b for d, b in zip(near.frontier.max(axis=0), flow.sides, strict=True))
        plain = not flow.hub_widths and not (flow.widths and flow.centred)
        if plain and (not flow.widths or (one and near.fixed_membership)):
            assert closed == exact, (flow, near)
        assert closed >= exact


def test_the_cost_is_that_of_all_pairs_under_every_relation():
    """Within δ, and for any move."""
    number = 60
    far = 0
    for _, near, flow in served_flows(number, 1, (14, 4), hubs=True):
        for relation in (near, near.anywhere()):
            closed = flow.edge_cost(relation, 1)
            assert closed in (None, explicit_edge_cost(flow, relation, 1)), (flow, relation)
            far += closed is not None and PathCosts(flow, 1).bound_far(relation) > 0
            assert dh.sensitivity(flow, relation, norm=2).squared >= explicit_edge_cost(flow, relation, 2)
    assert far > number // 5


def test_the_cost_within_a_limit_is_that_of_all_pairs():
    """Longer and longer moves on one map, from the first that goes through hubs on."""
    for shape, spacing, width in (((11, 6), 5, ()), ((15, 15), 3, (2,)), ((40,), 5, (2,)), ((9, 14), 1, ())):
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        flow = Flow(domain, 1, (3, 5) if len(shape) == 2 else (), None, None, spacing, width, True)
        for delta in np.linspace(1, math.hypot(*shape), 6):
            near = dh.Neighbourhood(domain, 1).moves_within(delta)
            assert dh.sensitivity(flow, near) == explicit_edge_cost(flow, near, 1), (shape, delta)


def test_many_cells_with_sums_of_hubs_are_bounded_from_above():
    near = square(24)
    for hubs, width, strips in ((1, 8, False), (3, 4, False), (1, 8, True)):
        flow = Flow(near.domain, 1, (), None, None, hubs, (width,), False, strips)
        for relation in (near, near.moves_within(9)):
            closed, exact = flow.edge_cost(relation, 1), explicit_edge_cost(flow, relation, 1)
            assert exact <= closed <= Fraction(5, 4) * exact
    flow = Flow(near.domain, 1, (), None, None, 1, (3,))
    assert flow.edge_cost(near.anywhere(), 1) == PathCosts(flow, 1).through_hub * Fraction(
        2, PathCosts(flow, 1).denominator
    )


# -- totals, sources and parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [{"epsilon": 0.5}, {"rho": 0.05}])
@pytest.mark.parametrize(("shape", "block"), [((12,), 1), ((9, 7), 1), ((9, 7), 2)])
def test_the_total_is_kept_exactly_without_arrivals(budget, shape, block):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    near = dh.Neighbourhood(domain, 1)
    flow = Flow.tuned(near, block=tuple(min(block, n) for n in shape))
    assert flow.keeps_total
    release = dh.publish(np.full(shape, 3), near, flow, rng=np.random.default_rng(1), **budget)
    assert release.cells().sum() == pytest.approx(3 * domain.size, abs=1e-9)
    if flow.blocks_are_cells:
        assert release.values.sum() == 16 * 3 * domain.size
        assert not np.array_equal(release.values, np.full(domain.size, 48))


def test_sources_need_arrivals_or_hubs():
    near = dh.Neighbourhood(SQUARE, 1, "boundary")
    with pytest.raises(dh.InputError, match="arrivals"):
        dh.sensitivity(Flow(SQUARE), near)
    flow = Flow.tuned(near)
    assert flow.arrivals == "boundary"
    assert dh.sensitivity(flow, near) <= Fraction(101, 100)
    near = square(10, sources="boundary")
    flow = Flow(near.domain, hubs=3)
    assert not flow.keeps_total
    assert dh.sensitivity(flow, near) == explicit_edge_cost(flow, near, 1) == 2
    release = dh.publish(np.ones((10, 10), int), near, flow, 1.0, rng=np.random.default_rng(1))
    assert release.values.sum() != 1600


def test_draws_of_each_group_enter_as_all_draws_do():
    """Also in 32 bits, where sums of what nearly fills them do not fit."""
    domain = dh.Domain((0, 0, 40, 30), (40, 30))
    flow = Flow(domain, 1, (5, 15), hubs=3, hub_widths=(2,), hub_strips=True)
    rng = np.random.default_rng(2)
    draws = rng.integers(-(2**31), 2**31, flow.draws)
    parts = [draws[group.members].astype(np.int32) for group in flow.groups]
    found = flow.scatter_groups(parts)
    assert found.dtype == np.int64
    assert np.array_equal(found, flow.scatter(draws))


@pytest.mark.parametrize(
    "arguments",
    [
        {"block": 9},
        {"widths": (4, 3)},
        {"arrivals": (99,)},
        {"hubs": 4},
        {"hub_widths": (1,), "hubs": 1},
        {"shares": (1, 2, 3)},
        {"hub_strips": True, "hubs": 3},
    ],
)
def test_bad_parameters_are_refused(arguments):
    with pytest.raises(dh.InputError, match=next(iter(arguments))):
        Flow(SQUARE, **arguments)
