"""Flows with hubs: far moves go through two doors, cost what their draws say, and no more than was promised."""

import math
from fractions import Fraction

import numpy as np
import pytest
from examples import random_domain, random_flow, random_neighbourhood

import deltahist as dh
from deltahist.decode.forms import mean_of
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.strategies import Flow, from_description
from deltahist.strategies.flow.costs import Prices, most_direct
from deltahist.strategies.flow.entry import HUB_STRIPS, HUB_SUMS, HUBS, HubGrid, HubLine, Hubs
from deltahist.strategies.flow.errors import HubVariance
from deltahist.strategies.flow.hub_choice import MeanHubError
from deltahist.strategies.flow.tuning import boxes_of, noise_of

ANY = math.inf


def square(n, delta=1, limits=None, sources=None):
    return dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), delta, sources, limits)


def rmse(flow, near):
    return dh.Mechanism(near, flow, dh.Budget(epsilon=1)).rmse(dh.workloads.all_ranges(near.domain))


def cases(number, seed, most):
    """Flows with hubs, and neighbourhoods that they can serve."""
    rng = np.random.default_rng(seed)
    while number:
        domain = random_domain(rng, most=most)
        near = random_neighbourhood(rng, domain)
        flow = random_flow(rng, domain)
        if flow is None or flow.hubs is None:
            continue
        number -= 1
        yield rng, near, flow


def test_every_block_is_within_half_the_spacing_of_its_hub():
    for n in range(1, 40):
        for spacing in (1, 3, 5, 7, 9):
            line = HubLine(n, spacing)
            block = np.arange(n)
            assert np.abs(line.places[block // line.apart] - block).max() == line.walk <= spacing // 2
            assert (np.diff(line.places) > 0).all()
            assert len(line.places) == -(-n // line.apart)


def test_the_weights_of_the_sums_add_up_to_one_at_every_hub():
    for n in (1, 2, 7, 30, 31):
        for widths in ((2,), (3,), (5,), (2, 6), (2, 4, 8)):
            line = HubLine(n, 1, widths)
            assert (line.weights.sum(axis=0) == line.unit).all()
            assert line.weights.min() >= 0
            theta = line.weights / line.unit
            assert np.allclose((line.waves.T * line.squares) @ line.waves, theta.T @ theta)
            assert np.allclose(line.waves @ line.waves.T, np.eye(len(line.squares)))


@pytest.mark.parametrize("number", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_the_cost_is_that_of_all_pairs_under_every_relation(number):
    """Within δ, and for any move: 1,000 cases of the 500 flows."""
    far = 0
    for _, near, flow in cases(number, 1, (14, 4)):
        for relation in (near, near.anywhere()):
            closed = flow.edge_cost(relation, 1)
            assert closed in (None, explicit_edge_cost(flow, relation, 1)), (flow, relation)
            far += closed is not None and Prices(flow, 1).far(relation) > 0
    assert far > number // 5


def test_the_cost_in_the_2_norm_is_at_least_that_of_all_pairs():
    for _, near, flow in cases(60, 2, (14, 5)):
        for relation in (near, near.anywhere()):
            assert dh.sensitivity(flow, relation, norm=2).squared >= explicit_edge_cost(flow, relation, 2)


def test_the_cost_within_a_limit_is_that_of_all_pairs():
    """Longer and longer moves on one map, from the first that goes through hubs on."""
    for shape, spacing, width in (((11, 6), 5, None), ((15, 15), 3, 2), ((40,), 5, 2), ((9, 14), 1, None)):
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        flow = Flow(domain, 1, (3, 5) if len(shape) == 2 else (), None, None, spacing, width, True)
        for delta in np.linspace(1, math.hypot(*shape), 6):
            near = dh.Neighbourhood(domain, 1).moves_within(delta)
            assert dh.sensitivity(flow, near) == explicit_edge_cost(flow, near, 1), (shape, delta)


def test_many_cells_with_sums_of_hubs_are_bounded_from_above():
    near = square(24)
    for hubs, width, strips in ((1, 8, False), (3, 4, False), (1, 8, True)):
        flow = Flow(near.domain, 1, (), None, None, hubs, width, False, strips)
        for relation in (near, near.moves_within(9), near.moves_within(5)):
            closed, exact = flow.edge_cost(relation, 1), explicit_edge_cost(flow, relation, 1)
            assert exact <= closed <= Fraction(5, 4) * exact
    flow = Flow(near.domain, 1, (), None, None, 1, 3)
    assert flow.edge_cost(near.anywhere(), 1) == Prices(flow, 1).through_hub * Fraction(2, Prices(flow, 1).denominator)


def test_strips_of_hubs_cost_twice_their_share_at_every_hub():
    """By definition, for any move between two of 7 × 6 cells, and by hand: a hub, its square and its two strips."""
    domain = dh.Domain((0, 0, 7, 6), (7, 6))
    near = dh.Neighbourhood(domain, 1).anywhere()
    shares = tuple(Fraction(s, 8) for s in (8, 8, 2, 3, 5))
    flow = Flow(domain, 1, (), shares, None, 1, 2, True, True)
    assert explicit_edge_cost(flow, near, 1) == flow.edge_cost(near, 1) == 2 * Fraction(2 + 3 + 2 * 5, 8)
    assert explicit_edge_cost(flow, near, 2) <= flow.edge_cost(near, 2)


def test_the_estimate_at_hubs_is_least_squares():
    """What enters at hubs, against the normal equations of the hubs' own noise, their sums, and strips."""
    x, y = HubGrid.between((9, 7), 1, (2, 4), True).axes
    grid, ratios = HubGrid((x, y), True), (0.7, 0.4)
    on_x, on_y = (line.weights / line.unit for line in (x, y))
    theta = [np.kron(on_x, on_y), np.concatenate([np.kron(on_x, np.eye(7)), np.kron(np.eye(9), on_y)])]
    precision = np.eye(63) + sum(t.T @ t / ratio for t, ratio in zip(theta, ratios, strict=True))
    hubs = Hubs("hubs", grid.places, grid, ratios)
    rng = np.random.default_rng(1)
    own, *sums = (rng.normal(size=(5, n)) for n in (63, *map(len, theta)))
    told = sum(s @ t / ratio for s, t, ratio in zip(sums, theta, ratios, strict=True))
    draws = dict(zip((HUBS, HUB_SUMS, HUB_STRIPS), (own, sums[0] * grid.unit, sums[1] * x.unit), strict=True))
    assert np.allclose(hubs.inflow(draws), np.linalg.solve(precision, (own + told).T).T)


def test_a_far_move_changes_two_hubs_and_the_ways_to_them():
    """By hand: 21 cells in a row, hubs at 1, 4, 7, ...; from 0 to 20 a step to the first hub and one from the last."""
    domain = dh.Domain((0, 21), (21,))
    flow = Flow(domain, hubs=3)
    near = dh.Neighbourhood(domain, 1).anywhere()
    edge = [tuple(e) for e in near.edges().tolist()].index((0, 20))
    change = flow.changes(near)[:, [edge]].toarray()[:, 0]
    assert {int(draw): int(change[draw]) for draw in np.flatnonzero(change)} == {0: 16, 19: 16, 20: -16, 26: 16}
    # A direct way may take as many steps as that costs: two steps and two hubs at a share of one.
    assert most_direct(flow) == 4
    assert dh.sensitivity(flow, near) == 4
    assert dh.sensitivity(Flow(domain, hubs=3, shares=(1, Fraction(5, 2))), near) == 7


@pytest.mark.parametrize("most", [10**3, 10**16])
def test_what_changes_makes_up_for_far_moves_whatever_the_noise(most):
    """Also where sums of noise are longer than floats hold."""
    near = square(11).anywhere()
    rng = np.random.default_rng(1)
    for more in ((1, 3, True), (3, 2), (1, 4, False, True), (3, 2, True, True), (1, (2, 4), False, True)):
        flow = Flow(near.domain, 1, (), None, None, *more)
        some = rng.integers(0, len(near.edges()), 40)
        change = flow.changes(near)[:, some].toarray()
        moved = (flow.matrix() @ near.incidence())[:, some].toarray()
        noise = rng.integers(-most, most, flow.draws)
        after = flow.scatter(noise + change.T)
        assert np.array_equal(after - flow.scatter(noise), moved.T)

def test_hubs_serve_sources_as_well():
    near = square(10, sources="boundary")
    flow = Flow(near.domain, hubs=3)
    assert not flow.keeps_total
    assert dh.sensitivity(flow, near) == explicit_edge_cost(flow, near, 1) == 2
    release = dh.publish(np.ones((10, 10), int), near, flow, 1.0, rng=np.random.default_rng(1))
    assert release.values.sum() != 1600


@pytest.mark.parametrize(
    ("n", "limit", "most"),
    [
        (32, 4, 16.1),
        (64, 4, 21.3),
        (128, 4, 28.0),
        (256, 4, 36.6),
        (1000, 4, 61.5),
        (32, 8, 15.5),
        (64, 8, 19.5),
        (128, 8, 24.0),
        (64, 1, 41.0),
    ],
)
def test_tuning_reaches_the_targets_for_all_ranges(n, limit, most):
    near = square(n, limits=[(ANY, limit)])
    flow = Flow.tuned(near)
    assert dh.sensitivity(flow, near.without_limits()) <= Fraction(101, 100)
    assert rmse(flow, near) <= most


@pytest.mark.parametrize(("n", "spacing"), [(64, 1), (64, 3), (700, 1), (700, 5)])
@pytest.mark.parametrize("total_known", [False, True])
def test_what_tuning_expects_of_hubs_is_what_they_add(n, spacing, total_known):
    """Boxes stand for all ranges in tuning, and a part of them where there are many sums."""
    flow = Flow(dh.Domain((0, 0, n, n), (n, n)), 1, ())
    mean = MeanHubError(flow, boxes_of(None, flow.domain, 500), 1, total_known)
    found = list(mean.with_sums(spacing))
    assert len(found) > 2
    for hubs in found:
        own, *sums = (noise_of(share, 1) for share in hubs.shares)
        grid = HubGrid.between(flow.blocks, spacing, hubs.widths, len(sums) > 1)
        ratios = tuple(noise / own for noise in sums)
        added = HubVariance(Hubs("hubs", grid.places, grid, ratios), [None, None], own, sums)
        exact = mean_of(added.second(total_known), (n, n))
        assert hubs.error == pytest.approx(exact, rel=0.25), (hubs, exact)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("sources", [None, "boundary"])
@pytest.mark.parametrize("delta", [1, 3])
@pytest.mark.parametrize("limits", [[(ANY, 1)], [(ANY, 4)], [(8, 2), (ANY, 6)], [(12, 5), (ANY, 40)]])
def test_limits_are_kept(limits, delta, sources, norm):
    """A tuned flow need not scale its noise: what each relation costs is its factor, but for rounding."""
    near = square(30, delta, limits, sources)
    flow = Flow.tuned(near, norm=norm)
    mechanism = dh.Mechanism(near, flow, dh.Budget(**({"epsilon": 1} if norm == 1 else {"rho": 1})))
    for factor, relation in near.relations:
        assert mechanism.cost_under(relation) <= factor**norm
    plain = Flow.tuned(near.without_limits(), norm=norm)
    assert mechanism.sensitivity < dh.sensitivity(plain, near, norm=norm) or flow.hubs is None
    assert mechanism.rmse(dh.workloads.all_ranges(near.domain)) <= 1.01 * dh.Mechanism(
        near, plain, mechanism.budget
    ).rmse(dh.workloads.all_ranges(near.domain))


def test_limits_on_a_line_are_kept():
    near = dh.Neighbourhood(dh.Domain((0, 500), (500,)), 1, limits=[(ANY, 4)])
    flow = Flow.tuned(near)
    assert flow.hubs is not None
    assert dh.sensitivity(flow, near) <= 1
    assert rmse(flow, near) < rmse(Flow(near.domain), near) / 3


def test_without_limits_nothing_changes():
    for limits in (None, ()):
        flow = Flow.tuned(square(64, limits=limits))
        assert flow.describe() == {
            "strategy": "Flow",
            "block": [1, 1],
            "widths": [14],
            "shares": ["193/250", "68/125", "57/250"],
            "arrivals": None,
            "hubs": None,
            "hub_widths": [],
            "centred": False,
            "hub_strips": False,
        }


def test_descriptions_come_back():
    near = square(12)
    flow = Flow(near.domain, 1, (4,), None, None, 3, 2, True)
    for each in (flow, Flow(near.domain, 1, (4,), None, None, 1, (2, 4), True, True)):
        again = from_description(near.domain, each.describe())
        assert again.describe() == each.describe()
        assert again.groups == each.groups


def test_candidates_say_that_they_have_hubs():
    near = square(16, limits=[(ANY, 4)])
    labels = [label for label, _ in Flow.candidates(near, dh.workloads.all_ranges(near.domain), 1)]
    assert labels[0] == "Flow (blocks of cell, hubs 3 apart)"
    assert "hubs" not in next(
        label for label, _ in Flow.candidates(square(16), dh.workloads.all_ranges(near.domain), 1)
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hubs": 4}, "hubs is 4: it must be odd"),
        ({"hubs": 0}, "hubs"),
        ({"hubs": 9}, "at most the 8 blocks"),
        ({"hubs": "all"}, "hubs"),
        ({"hub_widths": 3}, "hub_widths is 3 without hubs"),
        ({"hubs": 3, "hub_widths": 5}, "there are only 3 hubs"),
        ({"hubs": 1, "hub_widths": 1}, "hub_widths"),
        ({"hubs": 1, "hub_widths": (3, 4)}, "each must be a multiple of the one before"),
        ({"hubs": 1, "hub_widths": (4, 4)}, "each must be a multiple of the one before"),
        ({"centred": "yes"}, "centred is 'yes'"),
        ({"hub_strips": 1}, "hub_strips is 1: it must be True or False"),
        ({"hub_strips": True, "hubs": 3}, "hub_strips is True without hub_widths"),
    ],
)
def test_bad_parameters_are_named(arguments, text):
    with pytest.raises(dh.InputError, match=text):
        Flow(dh.Domain((0, 0, 8, 8), (8, 8)), **arguments)


def test_strips_need_hubs_along_both_axes():
    for blocks, hubs in (((9, 3), 3), ((9, 1), 1)):
        domain = dh.Domain((0, 0, *blocks), blocks)
        with pytest.raises(dh.InputError, match="only one hub along an axis"):
            Flow(domain, hubs=hubs, hub_widths=2, hub_strips=True)
        near = dh.Neighbourhood(domain, 1, limits=[(ANY, 2)])
        assert not Flow.tuned(near).hub_strips
    with pytest.raises(dh.InputError, match="in 1-D"):
        Flow(dh.Domain((0, 9), (9,)), hubs=1, hub_widths=2, hub_strips=True)


def test_a_grid_of_hubs_in_one_dimension_has_a_second_axis_of_one():
    grid = HubGrid.between((20,), 5, (2,))
    assert grid.places.tolist() == [2, 7, 12, 17]
    assert grid.sums == len(grid.axes[0].weights)
    assert grid.unit == 4


def test_hubs_are_tuned_for_squares_whose_corners_lie_inside_blocks():
    """Parts of moves at corners are not what the product form is about: the mean error stays above zero."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 20, 20), (20, 20)), 2, limits=[(math.inf, 4)])
    flow = Flow.tuned(near, dh.workloads.random_squares(1, 500, near.domain))
    assert dh.sensitivity(flow, near) <= 1.001
