"""Costs of moves over a distance: exact ones are those of the worst move, and limits together promise what they say."""

import math

import numpy as np
import pytest
from examples import STRATEGIES, random_domain

import deltahist as dh
from deltahist.mechanisms.base import factor_promised
from deltahist.mechanisms.histogram import explicit_edge_cost


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_cost_of_a_distance_is_that_of_its_worst_move(name):
    rng = np.random.default_rng([9, len(name)])
    for case in range(10):
        domain = random_domain(rng)
        delta = float(rng.integers(1, 3)) * max(domain.cell)
        near = dh.Neighbourhood(domain, min(delta, math.hypot(*np.subtract(domain.high, domain.low))))
        A = STRATEGIES[name](rng, domain)
        budget = {"epsilon": 1.0} if case % 2 else {"rho": 1.0}
        release = dh.publish(np.ones(domain.shape, dtype=int), near, A, **budget)
        norm = 1 if case % 2 else 2
        own = explicit_edge_cost(A, near, norm)
        for times in (1, 1.5, 3, 10):
            distance = times * near.delta_ground
            exact, bound = release.mechanism.cost_within(distance)
            steps = int(np.ceil(times))
            assert bound == (steps if norm == 1 else steps**2)
            assert exact <= bound
            if own:
                wide = explicit_edge_cost(A, near.moves_within(distance), norm)
                assert exact == min(wide / own, bound)


def test_limits_together_promise_what_their_moves_do():
    near = dh.Neighbourhood(dh.Domain((0, 90), (90,)), 1, limits=[(4, 2), (10, 3)])
    steps = {1: 1, 1.5: 2, 4: 2, 5: 3, 8: 3, 10: 3, 11: 4, 12: 5, 14: 5, 20: 6, 33: 11}
    assert {r: int(factor_promised(near, r)) for r in steps} == steps
    rising = [factor_promised(near, r) for r in np.linspace(0.1, 90, 400)]
    assert rising == sorted(rising)


@pytest.mark.parametrize("hair", [0, 1e-9, 3e-8, 4.9e-8])
@pytest.mark.parametrize("shape", [(3000,), (60, 3)])
def test_the_path_bound_counts_whole_lattice_steps(hair, shape):
    """δ a hair above whole cells: the allowance for rounding is made once, not for each move on the way."""
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    near = dh.Neighbourhood(domain, 1 + hair, limits=())
    mechanism = dh.Mechanism(near, dh.strategies.Flow(domain), dh.Budget(epsilon=1))
    for times in (1, 2, 7, 1000, 2000):
        distance = times * (1 + hair)
        if distance < near.diameter:
            exact, bound = mechanism.cost_within(distance)
            far = near.moves_within(distance)
            crossed = int(far.reach[0]) if len(shape) == 1 else len(far.reach) - 1
            # On a line every border that is crossed costs one; each move within δ crosses so many.
            assert exact == mechanism.cost_under(far) <= bound
            assert bound >= -(-crossed // (int(near.reach[0]) if len(shape) == 1 else len(near.reach) - 1))
