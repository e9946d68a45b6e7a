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
from deltahist.strategies.flow import PathCosts, find_longest_direct
from deltahist.strategies.flow.noise import (
    HUB_STRIPS,
    HUB_SUMS,
    HUBS,
    HubLine,
    Hubs,
    LineEstimator,
    count_sums,
    make_hat_weights,
)
from tests.laws import calibrate

SQUARE = dh.Domain((0, 0, 8, 8), (8, 8))


def square(n, delta=1, limits=None, sources=None):
    return dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), delta, sources, limits)


def test_noise_makes_up_for_every_edge_exactly():
    """The condition of the theorem in docs/privacy/factorisation.md, in whole numbers: E = K U."""
    for rng, near, flow in served_flows(300, 1):
        change = flow.changes(near).toarray()
        data = (flow.matrix() @ near.incidence()).toarray()
        noise = rng.integers(-1000, 1000, flow.draws)
        before = flow.scatter(noise)
        assert before.dtype == np.int64
        for sign in (1, -1):
            after = flow.scatter(noise + sign * change.T)  # of all edges at once
            assert np.array_equal(after - before, sign * data.T), (flow, near)


@pytest.mark.parametrize("most", [10**3, 10**16])
def test_changes_make_up_for_far_moves_whatever_the_noise(most):
    """Also where sums of noise are longer than floats hold."""
    near = square(11).anywhere()
    rng = np.random.default_rng(1)
    for more in ((1, (3,), True), (3, (2,)), (1, (4,), False, True), (3, (2,), True, True), (1, (2, 4), False, True)):
        flow = Flow(near.domain, 1, (), None, None, *more)
        some = rng.integers(0, len(near.edges()), 40)
        change = flow.changes(near)[:, some].toarray()
        moved = (flow.matrix() @ near.incidence())[:, some].toarray()
        noise = rng.integers(-most, most, flow.draws)
        assert np.array_equal(flow.scatter(noise + change.T) - flow.scatter(noise), moved.T)


def test_whole_numbers_of_steps_are_rounded_and_floats_are_not():
    for rng, _, flow in served_flows(60, 4):
        noise = rng.integers(-1000, 1000, flow.draws)
        linear = flow.scatter(noise.astype(float))
        # Each side of a cell is the difference of two rounded sums; a cell has at most four sides.
        assert np.abs(flow.scatter(noise) - linear).max() <= 4 + 1e-6
        weights = rng.normal(size=flow.shape[0])
        assert linear @ weights == pytest.approx(noise @ flow.gather(weights), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7, 30, 100])
def test_weights_of_sums_add_up_to_one_everywhere(n):
    for width in (2, 3, 12, 40):
        weights = make_hat_weights(n, width)
        assert weights.shape == (count_sums(n, width), n)
        assert (weights.sum(axis=0) == 2 * width).all()
        assert weights.min() >= 0
        assert (np.count_nonzero(weights, axis=0) <= 2).all()
    for widths in ((2,), (5,), (2, 6), (2, 4, 8)):
        line = HubLine(n, 1, widths)
        theta = line.windows.theta
        assert (line.windows.weights.sum(axis=0) == line.weight_unit).all()
        assert line.windows.weights.min() >= 0
        assert np.allclose((line.waves.T * line.spectrum[0]) @ line.waves, theta.T @ theta)
        assert np.allclose(line.waves @ line.waves.T, np.eye(len(line.waves)))


def test_lines_are_estimated_by_least_squares():
    """Number for number, however many lines are worked on together."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        n, levels = int(rng.integers(1, 60)), int(rng.integers(1, 4))
        widths = tuple(sorted({int(w) for w in rng.integers(2, max(3, n), levels)}))
        noises = rng.uniform(0.1, 4, 2 + len(widths)).tolist()
        line = LineEstimator(n, widths, noises[0], noises[1], tuple(noises[2:]), bool(rng.integers(2)))
        flow, sums = rng.integers(-50, 50, (5, n)), rng.integers(-500, 500, (5, len(line.windows)))
        weighed = line.weigh_flows(flow)
        assert np.array_equal(weighed, flow @ line.windows.weights.T)
        surplus = (sums - weighed).T
        solved = line.solve_sums(surplus)
        assert np.array_equal(solved[:, 2:3], line.solve_sums(surplus[:, 2:3]))
        before = line.correct_prefixes(solved)
        assert np.array_equal(line.correct_prefixes(solved[:, 2:3]), before[2:3])
        told = (surplus / line.windows.units[:, None]).T @ line.prefix_gain.T
        assert np.allclose(before, told, rtol=0, atol=1e-9 * max(1, np.abs(told).max()))


@pytest.mark.parametrize("spacing", [1, 3, 5, 7, 9])
def test_every_block_is_within_half_the_spacing_of_its_hub(spacing):
    for n in range(1, 40):
        line = HubLine(n, spacing)
        block = np.arange(n)
        assert np.abs(line.places[block // line.blocks_apart] - block).max() == line.longest_walk <= spacing // 2
        assert (np.diff(line.places) > 0).all()
        assert len(line.places) == -(-n // line.blocks_apart)


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


@pytest.mark.parametrize("number", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_the_cost_is_that_of_all_pairs_under_every_relation(number):
    """Within δ, and for any move: 1,000 cases of the 500 flows."""
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


def test_the_log_likelihood_of_the_draws_moves_by_epsilon_at_most():
    """Brute force over all neighbours: Σ |U_je| / b_j in exact fractions, the dearest edge reaching ε."""
    for _, near, flow in served_flows(40, 3):
        laws = calibrate(flow, near, epsilon=Fraction(1, 3))
        if not laws[0].parameter:
            continue
        scale = np.empty(flow.draws, dtype=object)
        for group, law in zip(flow.groups, laws, strict=True):
            scale[group.members] = law.parameter
        change = np.abs(flow.changes(near).toarray())
        spent = [sum((Fraction(int(u)) / b for u, b in zip(c, scale, strict=True) if u), Fraction(0)) for c in change.T]
        assert max(spent) == Fraction(1, 3)


def test_a_far_move_changes_two_hubs_and_the_ways_to_them():
    """By hand: 21 cells in a row, hubs at 1, 4, 7, ...; from 0 to 20 a step to the first hub and one from the last."""
    domain = dh.Domain((0, 21), (21,))
    flow = Flow(domain, hubs=3)
    near = dh.Neighbourhood(domain, 1).anywhere()
    edge = [tuple(e) for e in near.edges().tolist()].index((0, 20))
    change = flow.changes(near)[:, [edge]].toarray()[:, 0]
    assert {int(draw): int(change[draw]) for draw in np.flatnonzero(change)} == {0: 16, 19: 16, 20: -16, 26: 16}
    # A direct way may take as many steps as that costs: two steps and two hubs at a share of one.
    assert find_longest_direct(flow) == 4
    assert dh.sensitivity(flow, near) == 4
    assert dh.sensitivity(Flow(domain, hubs=3, shares=(1, Fraction(5, 2))), near) == 7


# -- totals, sources and parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [{"epsilon": 0.5}, {"rho": 0.05}])
@pytest.mark.parametrize(("shape", "block"), [((12,), 1), ((12,), 2), ((9, 7), 1), ((9, 7), 2), ((1, 6), 2)])
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


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_draws_of_each_group_enter_as_all_draws_do(kind):
    """Also in 32 bits, where sums of what nearly fills them do not fit."""
    domain = dh.Domain((0, 0, 40, 30), (40, 30))
    flow = Flow(domain, 1, (5, 15), hubs=3, hub_widths=(2,), hub_strips=True)
    rng = np.random.default_rng(2)
    draws = rng.integers(-(2**31), 2**31, flow.draws)
    parts = [draws[group.members].astype(kind) for group in flow.groups]
    found = flow.scatter_groups(parts)
    assert found.dtype == np.int64
    assert np.array_equal(found, flow.scatter(draws))


@pytest.mark.parametrize(
    "arguments",
    [
        *({"block": b} for b in (9, (1, 2, 3), 0)),
        *({"widths": w} for w in ((4, 3), (12,))),
        *({"arrivals": a} for a in ((99,), (3, 1), "everywhere")),
        *({"hubs": h} for h in (4, 0, 9, "all")),
        *({"hub_widths": w, "hubs": 1} for w in ((1,), (3, 4), (4, 4))),
        {"shares": (1, 2, 3)},
        {"hub_widths": (3,)},
        {"hubs": 3, "hub_widths": (5,)},
        {"centred": "yes"},
        {"hub_strips": 1},
        {"hub_strips": True, "hubs": 3},
    ],
)
def test_bad_parameters_are_refused(arguments):
    with pytest.raises(dh.InputError, match=next(iter(arguments))):
        Flow(SQUARE, **arguments)
