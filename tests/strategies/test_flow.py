"""Flows: R(η + U_e) = R(η) + A E_e to the last digit, costs that are those of U, totals that are kept."""

from fractions import Fraction

import numpy as np
import pytest
from examples import random_domain, random_flow, random_neighbourhood

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.strategies import Flow, from_description
from deltahist.strategies.flow.lines import hats, sums_on
from tests.laws import calibrate


def cases(number, seed, most=(12, 5)):
    """Flows with neighbourhoods that they can serve."""
    rng = np.random.default_rng(seed)
    while number:
        domain = random_domain(rng, most=most)
        near = random_neighbourhood(rng, domain)
        flow = random_flow(rng, domain)
        if flow is None or (near.source_cells.any() and flow.keeps_total):
            continue
        number -= 1
        yield rng, near, flow


def test_noise_makes_up_for_every_edge_exactly():
    """The condition of the theorem in docs/privacy/factorisation.md, in whole numbers: E = K U."""
    for rng, near, flow in cases(300, 1):
        change = flow.changes(near).toarray()
        data = (flow.matrix() @ near.incidence()).toarray()
        noise = rng.integers(-1000, 1000, flow.draws)
        before = flow.scatter(noise)
        assert before.dtype == np.int64
        for sign in (1, -1):
            after = flow.scatter(noise + sign * change.T)  # of all edges at once
            assert np.array_equal(after - before, sign * data.T), (flow, near)


def test_many_releases_at_once_are_what_each_is_alone():
    for rng, _, flow in cases(100, 8):
        for noise in (rng.integers(-1000, 1000, (2, 3, flow.draws)), rng.normal(size=(2, 3, flow.draws))):
            together = flow.scatter(noise)
            assert together.shape == (2, 3, flow.shape[0])
            assert together.dtype == noise.dtype
            assert all(
                np.array_equal(together[i, j], flow.scatter(noise[i, j])) for i in range(2) for j in range(3)
            )


def test_the_cost_is_that_of_the_changes():
    for _, near, flow in cases(200, 2):
        assert dh.sensitivity(flow, near) == explicit_edge_cost(flow, near, 1), (flow, near)
        closed, exact = dh.sensitivity(flow, near, norm=2).squared, explicit_edge_cost(flow, near, 2)
        # A move over several lines does not cross all of them where one sum has all the weight; of hubs few have one.
        one = all(d <= b for d, b in zip(near.frontier.max(axis=0), flow.block, strict=True))
        plain = not flow.hub_widths and not (flow.widths and flow.centred)
        if plain and (not flow.widths or (one and near.fixed_membership)):
            assert closed == exact, (flow, near)
        assert closed >= exact


def test_the_weights_of_the_sums_add_up_to_one_at_every_border():
    for n in (1, 2, 5, 16, 100, 999):
        for width in (2, 3, 12, 17, 40):
            weights = hats(n, width)
            assert weights.shape == (sums_on(n, width), n)
            assert (weights.sum(axis=0) == 2 * width).all()
            assert weights.min() >= 0
            assert (np.count_nonzero(weights, axis=0) <= 2).all()


def test_the_log_likelihood_of_the_draws_moves_by_epsilon_at_most():
    """Brute force over all neighbours: Σ |U_je| / b_j in exact fractions, the dearest edge reaching ε."""
    for _, near, flow in cases(60, 3):
        laws = calibrate(flow, near, epsilon=Fraction(1, 3))
        if not laws[0].parameter:
            continue
        scale = np.empty(flow.draws, dtype=object)
        for group, law in zip(flow.groups, laws, strict=True):
            scale[group.members] = law.parameter
        change = np.abs(flow.changes(near).toarray())
        spent = [
            sum((Fraction(int(u)) / b for u, b in zip(c, scale, strict=True) if u), Fraction(0))
            for c in change.T
        ]
        assert max(spent) == Fraction(1, 3)


def test_a_whole_number_of_steps_is_rounded_and_floats_are_not():
    for rng, _, flow in cases(100, 4):
        noise = rng.integers(-1000, 1000, flow.draws)
        linear = flow.scatter(noise.astype(float))
        # Each side of a cell is the difference of two rounded sums; a cell has at most four sides.
        assert np.abs(flow.scatter(noise) - linear).max() <= 4 + 1e-6
        weights = rng.normal(size=flow.shape[0])
        assert flow.scatter(noise.astype(float)) @ weights == pytest.approx(
            noise @ flow.gather(weights), abs=1e-6
        )


def test_the_operator_equals_its_matrix_and_its_description_makes_it_again():
    for rng, near, flow in cases(60, 5):
        dense = flow.matrix().toarray()
        x, y = rng.integers(0, 99, flow.shape[1]), rng.integers(-99, 99, flow.shape[0])
        assert np.array_equal(flow @ x, dense @ x)
        assert np.array_equal(flow.T @ y, dense.T @ y)
        assert np.linalg.matrix_rank(dense) == near.domain.size
        again = from_description(near.domain, flow.describe())
        assert again.describe() == flow.describe()
        assert again.groups == flow.groups
        assert sum(g.members.stop - g.members.start for g in flow.groups) == flow.draws
        assert sum(g.members.stop - g.members.start for g in flow.parts) == flow.shape[0]


@pytest.mark.parametrize("budget", [{"epsilon": 0.5}, {"rho": 0.05}])
@pytest.mark.parametrize("shape", [(12,), (9, 7), (1, 6)])
@pytest.mark.parametrize("block", [1, 2])
def test_the_total_is_kept_exactly_without_arrivals(budget, shape, block):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    block = tuple(min(block, n) for n in shape)
    near = dh.Neighbourhood(domain, 1)
    flow = Flow.tuned(near, block=block)
    assert flow.keeps_total
    release = dh.publish(np.full(shape, 3), near, flow, rng=np.random.default_rng(1), **budget)
    assert release.cells().sum() == pytest.approx(3 * domain.size, abs=1e-9)
    if flow.plain:
        assert release.values.sum() == 16 * 3 * domain.size
        assert not np.array_equal(release.values, np.full(domain.size, 48))


def test_a_diagonal_move_costs_both_lines():
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    near = dh.Neighbourhood(domain, 1)
    shares = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 3))
    flow = Flow(domain, 1, (4,), shares)
    assert flow.edge_cost(near, 1) == max(Fraction(1, 2) + Fraction(1, 3), Fraction(1, 4) + Fraction(2, 3))


def test_rows_that_were_dropped_and_a_kept_total_do_not_go_together():
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    near = dh.Neighbourhood(domain, 1)
    with pytest.raises(dh.InputError, match="keeps the number of points"):
        dh.publish(np.ones((8, 8), int), near, Flow(domain), 1.0, dropped=["bad rows"])
    release = dh.publish(np.ones((8, 8), int), near, epsilon=1.0, dropped=["bad rows"])
    assert not release.strategy.keeps_total


def test_sources_need_arrivals():
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    near = dh.Neighbourhood(domain, 1, "boundary")
    with pytest.raises(dh.InputError, match="no arrivals"):
        dh.sensitivity(Flow(domain), near)
    flow = Flow.tuned(near)
    assert flow.arrivals == "boundary"
    assert dh.sensitivity(flow, near) <= Fraction(101, 100)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"block": 9}, "at least two blocks"),
        ({"block": (1, 2, 3)}, "one for each"),
        ({"block": 0}, "block"),
        ({"widths": (4, 3)}, "must increase"),
        ({"widths": (12,)}, "no longer than a line"),
        ({"shares": (1, 2, 3)}, "shares"),
        ({"arrivals": (99,)}, "arrivals"),
        ({"arrivals": "everywhere"}, "arrivals"),
    ],
)
def test_bad_parameters_are_named(arguments, text):
    with pytest.raises(dh.InputError, match=text):
        Flow(dh.Domain((0, 0, 8, 8), (8, 8)), **arguments)


def test_tuning_reaches_the_targets_for_all_ranges():
    """Expected RMSE at ε = 1, δ = one cell, diagonal moves included."""
    for n, most in ((64, 19.3), (128, 23.7), (256, 28.5)):
        domain = dh.Domain((0, 0, n, n), (n, n))
        near = dh.Neighbourhood(domain, 1)
        flow = Flow.tuned(near)
        assert dh.sensitivity(flow, near) <= Fraction(101, 100)
        work = dh.workloads.all_ranges(domain).sample(2000, seed=3)
        assert dh.expected_error(flow, near, work, 1.0).mean() ** 0.5 < 1.02 * most


def test_tuning_is_for_the_workload_and_the_noise():
    domain = dh.Domain((0, 0, 64, 64), (64, 64))
    near = dh.Neighbourhood(domain, 1)
    small, large = (dh.workloads.random_squares(side, 300, domain) for side in (2, 50))
    for work in (small, large):
        best = Flow.tuned(near, work)
        for other in (Flow.tuned(near, small), Flow.tuned(near, large), Flow(domain)):
            assert (
                dh.expected_error(best, near, work).mean()
                <= 1.02 * dh.expected_error(other, near, work).mean()
            )
    assert Flow.tuned(near, small).widths == ()
    gaussian = Flow.tuned(near, large, norm=2)
    errors = [dh.expected_error(f, near, large, rho=0.5).mean() for f in (gaussian, Flow.tuned(near, large))]
    assert errors[0] <= errors[1]
