"""Boxes in longitude and latitude on a map: bent, and cut at the antimeridian."""

import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import pytest
import shapely

import deltahist as dh
from deltahist.space.geometries import bend_boxes, boxes_in_degrees, fit

PLANE = dh.Domain((0, 0, 10, 8), (10, 8))
CITY = dh.Domain.from_cell((580_000, 4_495_000, 605_000, 4_525_000), "250m", "EPSG:32618")


CORNERS = np.array([[-74.01, 40.70, -73.95, 40.75], [-74.2, 40.6, -73.7, 40.9]])


def test_boxes_in_degrees_have_curved_sides_on_the_map():
    with pytest.warns(dh.DeltaHistWarning, match="look like degrees, and the map is in EPSG:32618"):
        found = boxes_in_degrees(CORNERS, CITY)
    fine = gpd.GeoSeries([shapely.box(*c).segmentize(1e-4) for c in CORNERS], crs="EPSG:4326").to_crs(CITY.crs)
    straight = gpd.GeoSeries(shapely.box(*CORNERS.T), crs="EPSG:4326").to_crs(CITY.crs)
    with pytest.warns(dh.DeltaHistWarning, match="1 of 2 regions are clipped"):
        on_map = fit(found, CITY, "EPSG:4326").shapes
    expected = shapely.intersection(fine.to_numpy(), shapely.box(*CITY.bounds))
    off = shapely.hausdorff_distance(on_map, expected, densify=0.1)
    assert off.max() < 2e-3 * CITY.cell[0]
    assert shapely.symmetric_difference(straight[1], fine[1]).area > 1e5


@pytest.mark.parametrize(
    ("corners", "domain"),
    [
        ([[-74.01, 40.70, -73.95, 40.75], [585_000, 4_505_000, 588_000, 4_508_000]], CITY),
        ([[-73.95, 40.75, -74.01, 40.70]], CITY),  # reversed: refused as such
        ([[1, 1, 2, 2]], PLANE),
        # A map around its own origin, where small figures are metres.
        ([[10, 10, 60, 60]], dh.Domain((-500, -500, 500, 500), (4, 4), "+proj=laea +lat_0=40 +lon_0=-74")),
    ],
)
def test_boxes_that_may_be_on_the_map_are_not_in_degrees(corners, domain):
    assert boxes_in_degrees(np.array(corners, dtype=float), domain) is None


PACIFIC = dh.Domain((1e6, -3e6, 8e6, 4e6), (8, 8), "EPSG:3832")
WIDE = dh.Domain((-13e6, -7e6, 13e6, 7e6), (100, 40), "EPSG:6933")


@pytest.mark.parametrize(
    ("domain", "west", "east"),
    [(PACIFIC, 170, -170), (PACIFIC, 170, -180), (WIDE, 180, -120)],
)
def test_a_box_across_the_antimeridian_is_the_union_of_its_parts_with_their_joint_error(domain, west, east):
    release = dh.publish(np.full(domain.shape, 20), dh.Neighbourhood(domain, 3e5), epsilon=1)
    onto = pyproj.Transformer.from_crs("OGC:CRS84", domain.crs, always_xy=True)
    sides = [each for each in ((west, 180), (-180, east)) if each[0] < each[1]]
    parts = [shapely.box(*onto.transform(w, -10), *onto.transform(e, 10)) for w, e in sides]
    expected = dh.answer(release, shapely.intersection([shapely.union_all(parts)], shapely.box(*domain.bounds)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked = bend_boxes(np.array([[west, -10, east, 10.0]]), domain)
        found = dh.answer(release, gpd.GeoSeries(asked, crs="OGC:CRS84"))
    for name in ("estimate", "std_error", "low", "high"):
        assert found[name].item() == pytest.approx(expected[name].item(), abs=1e-3)


FIJI = dh.Domain.from_degrees((176, -20, -175, -15), "5km")
#: From 178 to -178 degrees, across the antimeridian: written with one long ring, and in two parts.
LONG = shapely.Polygon([(178, -18), (-178, -18), (-178, -16), (178, -16)])
SPLIT = shapely.union_all([shapely.box(178, -18, 180, -16), shapely.box(-180, -18, -178, -16)])


def test_a_region_across_the_antimeridian_is_one_however_it_is_written():
    lon, lat = np.random.default_rng(5).uniform([174, -21], [186, -14], (20_000, 2)).T
    points = pd.DataFrame({"x": (lon + 180) % 360 - 180, "y": lat})
    counted = dh.count(points, FIJI, x="x", y="y", crs="EPSG:4326", outside="clamp")
    truth = ((lon > 178) & (lon < 182) & (lat > -18) & (lat < -16)).sum()
    boxes = [[178, -18, -178, -16], [178, -18, 182, -16], [-182, -18, -178, -16]]
    shapes = [LONG, SPLIT, shapely.box(178, -18, 182, -16), *bend_boxes(np.array(boxes, float), FIJI)]
    shapes.append(shapely.Polygon(LONG.exterior, [[(179.9, -17), (-179.9, -17), (-179.9, -16.9), (179.9, -17)]]))
    fitted = fit(shapes, FIJI, "EPSG:4326")
    found = dh.workloads.regions(fitted.shapes).matrix(FIJI) @ np.asarray(counted.array).ravel()
    assert found[:-1] == pytest.approx(truth, abs=8)  # points in cells that the rim cuts
    assert np.ptp(found[:-1]) < 1e-3
    assert 0 < found[0] - found[-1] < 10  # the hole
    assert (fitted.outside == 0).all()
    release = dh.publish(counted, dh.Neighbourhood(FIJI, "5km"), epsilon=1)
    with pytest.warns(dh.DeltaHistWarning, match="look like degrees"):  # on a map whose origin is within it
        box = dh.answer(release, [boxes[0]])
    split = dh.answer(release, gpd.GeoSeries([SPLIT], crs="EPSG:4326"))
    assert box["estimate"].item() == pytest.approx(split["estimate"].item())


def test_a_box_that_is_reversed_by_mistake_is_not_taken_for_all_the_rest_of_the_world():
    with pytest.raises(dh.InputError, match=r"west above east.*is the box reversed\?"):
        boxes_in_degrees(np.array([[-73.95, 40.70, -74.01, 40.75]]), CITY)
    assert len(bend_boxes(np.array([[170.0, 40.70, -74.01, 40.75]]), CITY)) == 1


EUROPE = dh.Domain((2_600_000, 1_500_000, 6_400_000, 5_400_000), (38, 39), "EPSG:3035")


MERCATOR = dh.Domain((-9_000_000, 4_000_000, -7_000_000, 6_000_000), (200, 200), "EPSG:3857")
