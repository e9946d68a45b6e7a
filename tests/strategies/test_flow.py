"""Flows: R(η + U_e) = R(η) + A E_e exactly, costs, exact totals, tuning, and variances by the definition."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import random_domain, random_neighbourhood, served_flows

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.strategies import Flow, Spectral
from deltahist.strategies.flow import PathCosts
from deltahist.strategies.flow.noise import Hubs, Kind

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
    draws = {
        Kind.HUBS: own,
        Kind.HUB_SUMS: sums[0] * x.weight_unit * y.weight_unit,
        Kind.HUB_STRIPS: sums[1] * x.weight_unit,
    }
    assert np.allclose(hubs.estimate_inflow(draws), np.linalg.solve(precision, (own + told).T).T)


# -- costs -----------------------------------------------------------------------------------------------------


def test_the_cost_is_that_of_the_changes():
    for _, near, flow in served_flows(150, 2):
        exact, costs = explicit_edge_cost(flow, near, 1), PathCosts(flow, 1)
        assert dh.sensitivity(flow, near) == exact, (flow, near)
        if near.fixed_membership:  # the bound holds where small domains do not use it, too
            assert max(costs.find_direct(near), costs.bound_far(near)) >= exact * costs.denominator
        closed, exact = dh.sensitivity(flow, near, norm=2).squared, explicit_edge_cost(flow, near, 2)
        # A move over several lines does not cross all of them where one sum has all the weight; of hubs few have one.
        one = all(d <= b for d, b in zip(near.frontier.max(axis=0), flow.sides, strict=True))
        plain = not flow.hub_widths and not (flow.widths and flow.centred)
        if plain and (not flow.widths or (one and near.fixed_membership)):
            assert closed == exact, (flow, near)
        assert closed >= exact


def test_the_cost_within_a_limit_is_that_of_all_pairs():
    """Longer and longer moves on one map, from the first that goes through hubs on."""
    for shape, spacing, width in (((11, 6), 5, ()), ((15, 15), 3, (2,)), ((40,), 5, (2,)), ((9, 14), 1, ())):
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        flow = Flow(domain, 1, (3, 5) if len(shape) == 2 else (), None, None, spacing, width, True)
        for delta in np.linspace(1, math.hypot(*shape), 6):
            near = dh.Neighbourhood(domain, 1).moves_within(delta)
            costs, exact = PathCosts(flow, 1), explicit_edge_cost(flow, near, 1)
            bound = Fraction(max(costs.find_direct(near), costs.bound_far(near)), costs.denominator)
            assert dh.sensitivity(flow, near) == bound == exact, (shape, delta)


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
    [{"block": 9}, {"widths": (4, 3)}, {"arrivals": (99,)}, {"hubs": 4}, {"hub_widths": (1,), "hubs": 1},
     {"shares": (1, 2, 3)}, {"hub_strips": True, "hubs": 3}],
)  # fmt: skip
def test_bad_parameters_are_refused(arguments):
    with pytest.raises(dh.InputError, match=next(iter(arguments))):
        Flow(SQUARE, **arguments)


ANY = math.inf


def rmse(flow, near, **budget):
    return dh.Mechanism(near, flow, dh.Budget(**budget or {"epsilon": 1})).rmse(dh.workloads.all_ranges(near.domain))


@pytest.mark.parametrize(
    ("n", "limit", "most"),
    [(64, None, 19.5), (256, None, 28.7), (64, 4, 21.3), (256, 4, 36.6), (128, 8, 24.0), (64, 1, 41.0)],
)  # fmt: skip
def test_tuning_reaches_the_targets_for_all_ranges(n, limit, most):
    """Expected RMSE at ε = 1, δ = one cell, diagonal moves included."""
    near = square(n, limits=() if limit is None else [(ANY, limit)])
    flow = Flow.tuned(near)
    assert dh.sensitivity(flow, replace(near, limits=())) <= Fraction(101, 100)
    assert rmse(flow, near) <= most


@pytest.mark.parametrize(
    ("delta", "sources", "norm", "limits"),
    [(1, None, 1, [(ANY, 1)]), (3, None, 2, [(ANY, 4)]), (1, "boundary", 2, [(8, 2), (ANY, 6)]),
     (3, "boundary", 1, [(12, 5), (ANY, 40)]), (1, None, 1, [(8, 2), (ANY, 6)])],
)  # fmt: skip
def test_limits_are_kept(delta, sources, norm, limits):
    """A tuned flow need not scale its noise: what each relation costs is its factor, but for rounding."""
    near = square(30, delta, limits, sources)
    flow, plain = Flow.tuned(near, norm=norm), Flow.tuned(replace(near, limits=()), norm=norm)
    budget = {"epsilon": 1} if norm == 1 else {"rho": 1}
    mechanism = dh.Mechanism(near, flow, dh.Budget(**budget))
    for factor, relation in near.relations:
        assert mechanism.cost_under(relation) <= factor**norm
    assert mechanism.sensitivity < dh.sensitivity(plain, near, norm=norm) or flow.hubs is None
    assert rmse(flow, near, **budget) <= 1.01 * rmse(plain, near, **budget)


def cases(number, seed):
    flows = served_flows(2 * number, seed, (14, 7), arrivals=lambda near: not near.fixed_membership)
    for i, (rng, near, flow) in enumerate(flows):
        budget = {"epsilon": 0.7} if i % 2 else {"rho": 0.1}
        found = dh.Mechanism(near, flow, dh.Budget(**budget)).decoder
        if found.laws[0].parameter:
            yield rng, near, flow, found


def noise_of_cells(found):
    """How the draws enter the estimate of each cell (N, draws): those of a sum of cells are sums of these."""
    return np.array([found.strategy.gather(found.answer_coefficients(cell)) for cell in np.eye(found.domain.size)])


def test_variances_equal_the_definition():
    exact = 0
    for rng, near, flow, found in cases(15, 1):
        ranges, noise = dh.workloads.all_ranges(near.domain), noise_of_cells(found)
        for work in (ranges, dh.workloads.random_boxes(25, near.domain, seed=int(rng.integers(99)))):
            expected = (work.matrix(near.domain) @ noise) ** 2 @ found.draw_variance
            variance = found.moments(work).variance
            for asked in (work, work.matrix(near.domain)):  # without kurtosis
                assert (found.answer_variance(asked) == found.moments(asked).variance).all()
            if flow.arrivals is None or (flow.blocks_are_cells and work is ranges):
                assert np.allclose(variance, expected, rtol=1e-6, atol=1e-7), (flow, near)
                exact += 1
            else:
                assert (variance >= expected * (1 - 1e-6) - 1e-7).all()
        mean = found.moments(ranges).variance.mean()
        assert found.mean_variance(ranges) == pytest.approx(mean, rel=1e-6, abs=1e-8)
    assert exact > 9


def test_estimates_are_unbiased_and_the_adjoint_is_one():
    for rng, near, flow, found in cases(25, 2):
        counts = rng.integers(0, 50, near.domain.shape)
        total = int(counts.sum()) if found.total_known else None
        assert np.allclose(found.estimate_cells(flow.measure(counts), total), counts)
        y, q = rng.normal(size=flow.shape[0]), rng.normal(size=near.domain.size)
        assert q @ found.solve(y) == pytest.approx(found.solve_adjoint(q) @ y, abs=1e-8)


@pytest.mark.parametrize(("width", "strips"), [((), False), ((2,), True)])
def test_hubs_alone_move_onto_a_public_total(width, strips):
    near = square(9)
    flow = Flow(near.domain, 1, (3,), None, None, 3, width, hub_strips=strips)
    found = dh.Mechanism(near, flow, dh.Budget(epsilon=1)).decoder
    ones, direction, spread = found.onto_total
    by_definition = found.solve(flow.scatter(found.draw_variance * flow.gather(ones)))
    assert np.allclose(direction, by_definition)
    assert spread == pytest.approx(by_definition.sum())
    other = np.delete(direction, flow.hub_grid.places)
    assert np.abs(other).max() < 1e-9 * direction.max()
    variance = found.moments(dh.workloads.boxes([[0, 0, 9, 9], [0, 0, 9, 4]])).variance
    assert variance[0] == pytest.approx(0, abs=1e-9)
    assert variance[1] > 1


def test_padded_spectral_variances_equal_the_definition():
    rng = np.random.default_rng(4)
    for _ in range(20):
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        found = dh.Mechanism(near, Spectral(near), dh.Budget(rho=0.2)).decoder
        if not found.laws[0].parameter:
            continue
        ranges, noise = dh.workloads.all_ranges(domain), noise_of_cells(found)
        for work in (ranges, dh.workloads.random_boxes(25, domain, seed=int(rng.integers(99)))):
            expected = (work.matrix(domain) @ noise) ** 2 @ found.draw_variance
            assert np.allclose(found.moments(work).variance, expected, rtol=1e-5, atol=1e-6 * expected.max())
        assert found.mean_variance(ranges) == pytest.approx(found.moments(ranges).variance.mean(), rel=1e-6)


def test_a_flow_is_tuned_for_thin_boxes_at_the_rim():
    near = dh.Neighbourhood(dh.Domain((0, 0, 30, 16), (30, 16)), 8, limits=[("any", 4)])
    work = dh.workloads.boxes([[0.5, 0.5, 20, 9], [0, 15.999, 30, 16]])
    assert Flow.tuned(near, work).block == (8, 8)
