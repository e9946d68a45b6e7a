"""The ground under a picture: degrees, context, the scale bar, areas of cells; and colours that say amounts."""

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

import deltahist as dh
from deltahist.errors import InputError
from deltahist.plots import plot_map
from deltahist.plots.colours import classed_scale, is_dark, smooth_scale
from deltahist.plots.ground import cell_areas


def test_degrees_stand_where_the_meridians_meet_the_edges(town):
    ax = plot_map(town, axes="degrees")
    to_map = pyproj.Transformer.from_crs(4326, 32618, always_xy=True)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels
    for place, label in zip(ax.get_xticks(), labels, strict=True):
        lon = -float(label.removesuffix("° W"))
        lat = pyproj.Transformer.from_crs(32618, 4326, always_xy=True).transform(place * 1000, 4_500_000)[1]
        assert to_map.transform(lon, lat)[0] == pytest.approx(place * 1000, abs=5)
    assert all(label.get_text().endswith("° N") for label in ax.get_yticklabels())
    assert ax.get_xlabel().startswith("longitude")


def test_context_is_projected_clipped_and_thin(town):
    road = shapely.LineString([(570_000, 4_504_000), (600_000, 4_504_000)])
    park = shapely.box(584_000, 4_502_000, 585_000, 4_503_000)
    tree, far = shapely.Point(583_000, 4_501_000), shapely.Point(0, 0)
    layer = gpd.GeoSeries([road, park, tree, far], crs=32618)
    for given in (layer, layer.to_frame("way").set_geometry("way").to_crs(4326)):
        ax = plot_map(town, context=[given])
        road_drawn, park_drawn = ax.collections[-1].get_segments()
        assert np.ptp(road_drawn[:, 0]) == pytest.approx(10, abs=0.01)  # as far as the map goes, in km
        assert park_drawn.mean(axis=0) == pytest.approx([584.5, 4502.5], abs=0.3)
        assert max(ax.collections[-1].get_linewidths()) < 1
        (dot,) = ax.lines[-1].get_xydata()
        assert dot == pytest.approx([583, 4501], abs=0.01)


def test_context_elsewhere_and_degrees_of_a_plane_are_refused(town, make):
    elsewhere = gpd.GeoSeries([shapely.box(0, 0, 10, 10)], crs=32618)
    with pytest.raises(InputError, match=r"lies within 0, 0, 10, 10: none of it is on the map.*another CRS"):
        plot_map(town, context=[elsewhere])
    with pytest.raises(InputError, match="axes is 'degrees', but the map is a plane without a CRS"):
        plot_map(make(np.ones((4, 4), dtype=np.int64), crs=None), axes="degrees")


def test_the_scale_bar_is_as_long_as_it_says(town, make):
    ax = plot_map(town)
    (bar,) = [child for child in ax.get_children() if isinstance(child, AnchoredSizeBar)]
    (drawn,) = bar.size_bar.get_children()
    assert bar.txt_label.get_text() == "2 km"
    assert drawn.get_width() == pytest.approx(2, rel=2e-3)
    plane = plot_map(make(np.ones((4, 4), dtype=np.int64), crs=None))
    assert not [child for child in plane.get_children() if isinstance(child, AnchoredSizeBar)]


def test_cells_that_are_alike_on_a_map_are_not_on_the_ground():
    """On a Mercator map from the equator to 60° north areas shrink to a quarter; together they are the zone's."""
    x, y = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(10.0, 60.0)
    domain = dh.Domain((0, 0, x, y), (10, 100), "EPSG:3857")
    areas = cell_areas(domain)
    assert areas.shape == domain.shape
    assert areas[0, -1] / areas[0, 0] == pytest.approx(0.25, rel=0.05)
    zone = shapely.segmentize(shapely.box(0, 0, 10, 60), 0.05)
    whole, _ = pyproj.Geod(ellps="WGS84").geometry_area_perimeter(zone)
    assert areas.sum() == pytest.approx(abs(whole) / 1e6, rel=2e-3)


@pytest.mark.parametrize("unit", [1e-14, 1.0, 1e12])
def test_widely_spread_values_are_classed_by_their_size(unit):
    scale = classed_scale(np.array([3.6, 17, 110, 2_400]) * unit, width=unit)
    assert np.allclose(np.array(scale.ticks) / unit, [0, 3, 10, 30, 100, 300, 1_000])
    assert scale.beyond
    assert scale.grows
    classes = scale.norm(np.array([0, 2.9, 3.1, 9.9, 11, 999, 1_001, 2_400]) * unit)
    assert classes.tolist() == [0, 0, 1, 1, 2, 5, 7, 7]
    assert scale.colours.N == 7
    assert scale.colours(7) == scale.colours(6)  # what lies beyond has the last colour


@pytest.mark.parametrize(
    ("values", "width", "ticks"),
    [
        ([481.0, 495, 507], 1, (0, 480, 485, 490, 495, 500, 505, 510)),
        ([481.0, 495, 507], 30, (0, 450, 500, 550)),
        ([481.0, 481.5], 10, (0, 480, 490)),
        ([7.0], 2, (0, 6, 8)),
    ],
)
def test_what_cannot_be_told_apart_is_in_one_class(values, width, ticks):
    scale = classed_scale(np.array(values), width)
    assert scale.ticks == ticks
    assert is_dark(scale.colours(len(ticks) - 2)[:3]) == (len(ticks) > 3)  # few classes need no dark colours


def test_colours_get_darker_and_a_few_cells_do_not_use_them_up():
    """Read in grey, too: the brightness falls all the way."""
    values = np.concatenate([np.linspace(0, 100, 9_999), [50_000.0]])
    scale = smooth_scale(values, low=0.0, linear=None, least=1.0)
    assert scale.beyond
    assert scale.ticks[-1] == pytest.approx(100, rel=0.02)
    assert scale.norm(scale.ticks[-1]) == pytest.approx(1)
    shades = scale.colours(np.linspace(0, 1, 30))[:, :3] @ (0.299, 0.587, 0.114)
    assert (np.diff(shades) < 0).all()
    assert shades[-1] < 0.15
    even = smooth_scale(np.full(100, 50.0), low=0.0, linear=None, least=1.0)
    assert (even.beyond, even.norm.vmax) == (False, 100)
