"""Curves: drawn costs are never understated, nor above the bound."""

from types import SimpleNamespace

import numpy as np
import pytest

import deltahist as dh
from deltahist.plots import plot_protection


def drawn(line, distance):
    """What a line of steps shows at a distance in its own units."""
    x, y = line.get_data()
    assert line.get_drawstyle() == "steps-pre"
    return y[np.searchsorted(x, distance - 1e-9)]


def mechanisms():
    """Mechanisms of every kind, on cells as long as δ, shorter, longer, and of no simple ratio to it."""
    budgets = [dh.Budget(epsilon=0.5), dh.Budget(rho=0.1)]
    for delta in (0.7, 3.3):
        near = dh.Neighbourhood(dh.Domain((0, 0, 24, 16), (24, 16)), delta)
        line = dh.Neighbourhood(dh.Domain((0, 30), (30,)), delta)
        for budget in budgets:
            yield dh.Mechanism(near, dh.strategies.Identity(near.domain), budget)
            yield dh.Mechanism(near, dh.strategies.Hierarchical(near.domain, 2), budget)
            yield dh.Mechanism(near, dh.strategies.Flow.tuned(near), budget)
            yield dh.Mechanism(line, dh.strategies.Cumulative(line.domain), budget)
            yield dh.SortedMechanism(line, 50, budget, group=5)
        yield dh.Mechanism(near, dh.strategies.Spectral(near), budgets[1])
    single = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (1, 1)), 2)  # smaller than δ
    yield dh.Mechanism(single, dh.strategies.Identity(single.domain), budgets[0])


@pytest.mark.filterwarnings("ignore::deltahist.DeltaHistWarning")
def test_exact_costs_are_nowhere_drawn_above_the_bound():
    """At every distance, not only where they were worked out; nor below the true cost, nor above the true bound."""
    for mechanism in mechanisms():
        bound, exact = plot_protection(SimpleNamespace(mechanism=mechanism)).lines[:2]
        near = mechanism.neighbourhood
        places = np.linspace(near.delta_ground / 4, near.diameter, 65)
        shown, limit = drawn(exact, places), drawn(bound, places)
        assert (shown <= limit * (1 + 1e-12)).all(), mechanism
        true = np.array([mechanism.cost_within(float(place)) for place in places[::8]], dtype=np.float64)
        assert (shown[::8] <= true[:, 1] * (1 + 1e-12)).all(), mechanism
        assert (shown[::8] >= true[:, 0] * (1 - 1e-12)).all(), mechanism


def test_costs_are_worked_out_where_they_jump():
    """Cells of 1 and δ = 2: a move of more than k crosses one more cell, of more than 2 k is one more step of δ."""
    near = dh.Neighbourhood(dh.Domain((0, 12), (12,)), delta=2)
    mechanism = dh.Mechanism(near, dh.strategies.Cumulative(near.domain), dh.Budget(epsilon=1))
    curve = dh.protection_curve(mechanism)
    at = np.searchsorted(curve["distance"], [2, 2.001, 3, 3.001, 4, 4.001])
    assert curve["bound"][at].tolist() == [1, 2, 2, 2, 2, 3]
    assert curve["exact"][at].tolist() == [1, 1.5, 1.5, 2, 2, 2.5]
    assert set(range(1, 13)) <= set(curve["distance"])


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": 0.2}])
def test_the_curve_jumps_at_limits(budget):
    domain = dh.Domain.from_cell((560000, 4480000, 580000, 4500000), "1km", "EPSG:32618")
    near = dh.Neighbourhood(domain, "1km", limits=[("3.3km", 2), ("any", 4)])
    mechanism = dh.Mechanism(near, dh.strategies.Cumulative(domain), dh.Budget(**budget))
    curve = dh.protection_curve(mechanism, 12)
    assert 3300.0 in curve["distance"]
    assert (curve["exact"] <= curve["bound"] * (1 + 1e-12)).all()
    assert (np.diff(curve["bound"]) >= 0).all()
    at = dict(zip(curve["distance"].tolist(), curve["bound"].tolist(), strict=True))
    amount, norm = (1, 1) if "epsilon" in budget else (0.2, 2)
    assert at[3300.0] == pytest.approx(2**norm * amount)
    assert curve["bound"][-1] == pytest.approx(4**norm * amount)
