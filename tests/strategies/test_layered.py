"""Tents over a flow: either layer makes up for every edge, costs are the less of both, variances add up."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from examples import EVERY_STRATEGY, random_domain, random_neighbourhood

import deltahist as dh
from deltahist.mechanisms.calibration import explicit_edge_cost
from deltahist.strategies import Flow, Layered, Tents, from_description, named


def cases(number, seed):
    rng = np.random.default_rng(seed)
    while number:
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        layered = EVERY_STRATEGY["Layered"](rng, near)
        if layered is not None:
            number -= 1
            yield rng, near, layered


def square(n, *limits):
    domain = dh.Domain((0, 0, n, n), (n, n))
    return dh.Neighbourhood(domain, 1, limits=limits or None)


def test_what_changes_makes_up_for_every_edge():
    by_tents = 0
    for rng, near, layered in cases(60, 1):
        for relation in (near, near.anywhere()):
            change = layered.changes(relation).toarray()
            wanted = layered.matrix().toarray() @ relation.incidence().toarray()
            noise = rng.integers(-99, 99, layered.draws)
            before = layered.scatter(noise)
            for column, moved in zip(change.T, wanted.T, strict=True):
                assert np.array_equal(layered.scatter(noise + column), before + moved)
            by_tents += bool(change[layered.inner.draws :].any())
    assert 20 < by_tents < 100


def test_noise_of_many_releases_enters_as_that_of_each():
    for rng, _, layered in cases(10, 2):
        noise = rng.integers(-99, 99, (3, layered.draws))
        assert np.array_equal(layered.scatter(noise), [layered.scatter(each) for each in noise])
        weights = rng.random(layered.shape[0])
        if layered.scatters_linearly:
            assert layered.gather(weights) @ noise[0] == pytest.approx(weights @ layered.scatter(noise[0]))


def test_costs_are_those_of_the_definition_and_the_less_of_both():
    for _, near, layered in cases(60, 3):
        for relation in (near, near.anywhere()):
            both = [layer.edge_cost(relation, 1) for layer in (layered.inner, layered.outer)]
            assert layered.edge_cost(relation, 1) == min(both)
            # A flow's own cost is that of its dearest move, if it has one.
            assert explicit_edge_cost(layered, relation, 1) <= min(both)
            if both[1] < both[0]:
                assert explicit_edge_cost(layered, relation, 1) == both[1]


@pytest.mark.parametrize(
    ("n", "limit", "rmse"), [(64, 3, 23.7), (64, 4, 21.9), (128, 3, 32.0), (128, 4, 28.7), (128, 8, 25.0)]
)
def test_figures_over_all_ranges(n, limit, rmse):
    near = square(n, (math.inf, limit))
    layered = Layered.tuned(near)
    mechanism = dh.Mechanism(near, layered, dh.Budget(epsilon=1))
    ranges = dh.workloads.all_ranges(near.domain)
    assert 0.97 * rmse < mechanism.rmse(ranges) <= rmse
    assert mechanism.sensitivity == pytest.approx(1, abs=2e-3)
    assert mechanism.cost_within(near.diameter)[0] <= limit
    flow = dh.Mechanism(near.without_limits(), layered.inner, dh.Budget(epsilon=1)).rmse(ranges)
    tents = dh.Mechanism(near.anywhere(), layered.outer, dh.Budget(epsilon=1)).rmse(ranges) / limit
    assert mechanism.rmse(ranges) == pytest.approx(math.hypot(flow, tents), rel=1e-2)


def test_it_overtakes_tents_alone_where_any_move_may_cost_more():
    for limit, better in ((1.5, Tents), (4, Layered)):
        near = square(64, (math.inf, limit))
        ranges = dh.workloads.all_ranges(near.domain)
        errors = {
            cls: dh.Mechanism(near, cls.tuned(near), dh.Budget(1)).rmse(ranges) for cls in (Tents, Layered)
        }
        assert min(errors, key=errors.get) is better
        labels = [c.strategy.name for c in dh.plan(near, epsilon=1)]
        assert labels.index(better.__name__) == min(labels.index("Tents"), labels.index("Layered"))


@pytest.mark.parametrize("sources", [None, "boundary"])
def test_every_limit_of_a_profile_is_met(sources):
    near = square(24, (4, Fraction(3, 2)), (9, Fraction(5, 2)), (math.inf, 3)).with_sources(sources)
    layered = Layered.tuned(near)
    for factor, relation in near.relations:
        assert dh.sensitivity(layered, relation) <= factor * Fraction(1002, 1000)
    assert dh.sensitivity(layered, near) >= Fraction(99, 100)


def test_flows_that_cross_several_cells_are_scaled():
    domain = dh.Domain((0, 0, 24, 24), (24, 24))
    near = dh.Neighbourhood(domain, 3, limits=[(6, Fraction(5, 4)), (math.inf, 2)])
    layered = Layered.tuned(near)
    assert layered.inner.edge_cost(near.without_limits(), 1) == 1
    assert dh.sensitivity(layered, near) == pytest.approx(1, abs=3e-3)


def test_bad_layers_are_refused():
    domain, other = dh.Domain((0, 0, 8, 8), (8, 8)), dh.Domain((0, 0, 9, 9), (9, 9))
    with pytest.raises(dh.InputError, match="single cells"):
        Layered(Flow(domain, 2), Tents(domain))
    with pytest.raises(dh.InputError, match="different domains"):
        Layered(Flow(domain), Tents(other))
    with pytest.raises(dh.InputError, match="beyond delta"):
        Layered.tuned(dh.Neighbourhood(domain, 1, limits=()))
    good = json.loads(json.dumps(Layered(Flow(domain), Tents(domain)).describe()))
    assert from_description(domain, good).describe() == good
    for bad in ({"inner": good["outer"]}, {"outer": good}, {"outer": 7}, {"inner": {}}):
        with pytest.raises(dh.InputError, match="must describe a strategy"):
            from_description(domain, {**good, **bad})
    assert named("layered", dh.Neighbourhood(domain, 1)).outer.domain == domain
    counts = np.zeros((8, 8), dtype=np.int64)
    counts[0, 0] = 1 << 51
    with pytest.raises(dh.InputError, match="fewer than"):
        dh.publish(counts, dh.Neighbourhood(domain, 1), "layered", epsilon=1)
