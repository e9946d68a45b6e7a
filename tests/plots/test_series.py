"""Pictures of a series: periods, gaps, lines with bands."""

import geopandas as gpd
import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.plots import draw_lines
from deltahist.preprocessing import Clock

DOMAIN = dh.Domain((0, 0, 8, 6), (8, 6))
NEAR = dh.Neighbourhood(DOMAIN, 1, "boundary")

pytestmark = pytest.mark.filterwarnings("ignore:1 of 3 regions are clipped")

#: Two regions, the smaller one first, and one beyond the map.
ZONES = gpd.GeoDataFrame(
    {"name": ["few", "many", "beyond"]},
    geometry=[shapely.box(0, 0, 1, 1), shapely.box(0, 0, 8, 5), shapely.box(20, 20, 21, 21)],
)


def series(steps, every="1d", start="2010-05-01", near=NEAR, seeded=False):
    """A series with releases at some steps; there are about 90 (step + 1) points in a cell."""
    how = {"rng": np.random.default_rng(1)} if seeded else {}
    size = near.domain.shape
    releases = {s: dh.publish(np.full(size, 90 * (s + 1)), near, "identity", 2.0, **how) for s in steps}
    return dh.Series(Clock.of(start, every), min(steps), max(steps), releases)


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
