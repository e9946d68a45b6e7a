"""Curves: drawn costs are never understated, nor above the bound; lines of series have periods, gaps and bands."""

from types import SimpleNamespace

import geopandas as gpd
import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.plots import draw_lines, plot_protection
from deltahist.preprocessing import Clock

pytestmark = pytest.mark.filterwarnings("ignore:1 of 3 regions are clipped")


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
            yield dh.kinds.SortedMechanism(line, 50, budget, group=5)
        yield dh.Mechanism(near, dh.strategies.Spectral(near), budgets[1])
    single = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (1, 1)), 2)  # smaller than δ
    yield dh.Mechanism(single, dh.strategies.Identity(single.domain), budgets[0])


@pytest.mark.filterwarnings("ignore::deltahist.errors.DeltaHistWarning")
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
    curve = dh.plots.protection_curve(mechanism)
    at = np.searchsorted(curve["distance"], [2, 2.001, 3, 3.001, 4, 4.001])
    assert curve["bound"][at].tolist() == [1, 2, 2, 2, 2, 3]
    assert curve["exact"][at].tolist() == [1, 1.5, 1.5, 2, 2, 2.5]
    assert set(range(1, 13)) <= set(curve["distance"])


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": 0.2}])
def test_the_curve_jumps_at_limits(budget):
    domain = dh.Domain((560000, 4480000, 580000, 4500000), cell="1km", crs="EPSG:32618")
    near = dh.Neighbourhood(domain, "1km", limits=[("3.3km", 2), ("any", 4)])
    mechanism = dh.Mechanism(near, dh.strategies.Cumulative(domain), dh.Budget(**budget))
    curve = dh.plots.protection_curve(mechanism, 12)
    assert 3300.0 in curve["distance"]
    assert (curve["exact"] <= curve["bound"] * (1 + 1e-12)).all()
    assert (np.diff(curve["bound"]) >= 0).all()
    at = dict(zip(curve["distance"].tolist(), curve["bound"].tolist(), strict=True))
    amount, norm = (1, 1) if "epsilon" in budget else (0.2, 2)
    assert at[3300.0] == pytest.approx(2**norm * amount)
    assert curve["bound"][-1] == pytest.approx(4**norm * amount)


DOMAIN = dh.Domain((0, 0, 8, 6), (8, 6))
NEAR = dh.Neighbourhood(DOMAIN, 1, "boundary")

#: Two regions, the smaller one first, and one beyond the map.
ZONES = gpd.GeoDataFrame(
    {"name": ["few", "many", "beyond"]},
    geometry=[shapely.box(0, 0, 1, 1), shapely.box(0, 0, 8, 5), shapely.box(20, 20, 21, 21)],
)


def series(steps, near=NEAR):
    """Releases at some days, with about 90 (step + 1) points in a cell."""
    releases = {s: dh.publish(np.full(near.domain.shape, 90 * (s + 1)), near, "identity", 2.0) for s in steps}
    return dh.Series(Clock.of("2010-05-01", "1d"), min(steps), max(steps), releases)


def panels(figure):
    return [ax for ax in figure.axes if ax.get_title()]


def ask(part):
    return dh.answer(part, ZONES)


def test_lines_have_bands_gaps_and_the_largest_region_first(monkeypatch):
    city = series([0, 1, 3])
    figure = draw_lines(city, ask)
    assert [ax.get_title() for ax in panels(figure)] == ["many", "few"]
    band, line = panels(figure)[0].patches
    expected = [dh.answer(city.releases[s], ZONES).iloc[1] if s != 2 else None for s in range(4)]
    for column, drawn in (("estimate", line.get_data()[0]), ("high", band.get_data()[0]), ("low", band.get_data()[2])):
        assert np.isnan(drawn[2])
        assert np.delete(drawn, 2) == pytest.approx([each[column] for each in expected if each is not None])
    below = " ".join(figure.get_supxlabel().split())
    assert "1 of 4 steps have no release" in below
    assert "2 of 3 regions are drawn" in below


def test_long_lines_are_means_with_the_error_of_all_their_steps():
    few = dh.Neighbourhood(dh.Domain((0, 0, 8, 6), (2, 2)), 4)
    city = series(list(range(70)), near=few)
    figure = draw_lines(city, ask)
    assert "Points per day in regions by week" in figure.get_suptitle()
    _, line = panels(figure)[0].patches
    week = dh.answer(city.between("2010-05-03", "2010-05-09").per_step(), ZONES)
    assert line.get_data()[0][1] == pytest.approx(week["estimate"].iloc[1])
