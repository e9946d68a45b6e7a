"""The ground under a picture: degrees, context, the scale bar, areas of cells."""

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

import deltahist as dh
from deltahist.errors import InputError
from deltahist.plots import plot_map
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


def test_a_plane_has_no_degrees(make):
    with pytest.raises(InputError, match="axes is 'degrees', but the map is a plane without a CRS"):
        plot_map(make(np.ones((4, 4), dtype=np.int64), crs=None), axes="degrees")


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


def test_context_elsewhere_is_an_error(town):
    far = gpd.GeoSeries([shapely.box(0, 0, 10, 10)], crs=32618)
    with pytest.raises(InputError, match=r"lies within 0, 0, 10, 10: none of it is on the map.*another CRS"):
        plot_map(town, context=[far])


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
