"""Regions as people have them, on a map: clipped, repaired, marked, and what is wrong where none fits."""

import warnings

import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.space.geometries import fit

PLANE = dh.Domain((0, 0, 10, 8), (10, 8))
CITY = dh.Domain.from_cell((580_000, 4_495_000, 605_000, 4_525_000), "250m", "EPSG:32618")
DISTRICT = shapely.box(585_000, 4_505_000, 588_000, 4_508_000)
BOW_TIE = shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])


def fitted(shapes, domain=PLANE, crs=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dh.DeltaHistWarning)
        return fit(shapes, domain, crs)


@pytest.mark.parametrize(
    ("shape", "outside", "note"),
    [
        (shapely.box(-1, 0, 3, 1), 0.25, "clipped: 25% of its area lies outside the map"),
        (shapely.box(0, 7, 1, 8.001), 0.001 / 1.001, "clipped: less than 1% of its area lies outside the map"),
        (shapely.box(-999, 0, 1, 1), 0.999, "clipped: more than 99% of its area lies outside the map"),
        (shapely.union_all([shapely.box(1, 1, 2, 2), shapely.box(20, 0, 21, 1)]), 0.5, "clipped: 50%"),
    ],
)
def test_what_reaches_outside_is_clipped(shape, outside, note):
    found = fitted([shape])
    assert found.outside[0] == pytest.approx(outside)
    assert found.notes[0].startswith(note)
    assert found.shapes[0].equals(shapely.intersection(shape, shapely.box(*PLANE.bounds)))


@pytest.mark.parametrize(
    ("shape", "area", "note"),
    [
        (BOW_TIE, 2, "repaired: self-intersection"),
        # Land where rings overlap, not a hole.
        (shapely.MultiPolygon([shapely.box(0, 0, 2, 2), shapely.box(1, 1, 3, 3)]), 7, "repaired: self-intersection"),
        (shapely.Polygon([(0, 0), (4, 0), (4, 2), (4, 0), (4, 4), (0, 4)]), 16, "repaired: self-intersection"),
        (shapely.GeometryCollection([shapely.box(0, 0, 1, 1), shapely.Point(5, 5)]), 1, None),
        (shapely.transform(BOW_TIE, lambda v: v - [1, 0]), 1, "repaired: self-intersection; clipped: 50%"),
    ],
)
def test_rings_that_cross_themselves_are_repaired(shape, area, note):
    found = fitted([shape])
    assert shapely.is_valid(found.shapes[0])
    assert found.shapes[0].area == pytest.approx(area)
    assert str(found.notes[0]).startswith(str(note))


@pytest.mark.parametrize(
    ("shape", "outside", "note"),
    [
        (None, np.nan, "no geometry"),
        (shapely.Polygon(), np.nan, "no geometry"),
        (shapely.LineString([(1, 1), (2, 2)]), np.nan, "LineString without an area"),
        (shapely.Point(1, 1), np.nan, "Point without an area"),
        (shapely.Polygon([(1, 1), (2, 2), (3, 3)]), np.nan, "Polygon without an area"),
        (shapely.Polygon([(1, 1), (2, np.inf), (3, 1)]), np.nan, "no geometry"),
        (shapely.box(11, 0, 12, 1), 1.0, "outside the map"),
        (shapely.box(10, 0, 12, 1), 1.0, "outside the map"),  # it only touches
        (shapely.box(10 - 1e-8, 0, 12, 1), 1.0, "outside the map"),  # less than rounding
    ],
)
def test_what_has_no_area_on_the_map_is_kept_without_an_answer(shape, outside, note):
    found = fitted([shape, shapely.box(0, 0, 1, 1)])
    assert found.held.tolist() == [False, True]
    assert found.notes.tolist() == [f"not answered: {note}", None]
    assert np.array_equal(found.outside, [outside, 0], equal_nan=True)


@pytest.mark.parametrize(
    ("shape", "share"),
    [
        (shapely.box(100, -10, 110, 10), 0),  # the other side of the earth, which the projection folds over
        (shapely.box(-180, -90, 180, -60), 0),
        (shapely.box(-180, -90, 180, 90), 750e6 / 5.1e14),
        (shapely.box(-100, 20, -60, 60), 750e6 / 1.45e13),
    ],
)
def test_regions_far_larger_than_the_map_or_far_from_it(shape, share):
    found = fitted([shape, shapely.box(-74, 40.7, -73.9, 40.8)], CITY, "EPSG:4326")
    assert 1 - found.outside[0] == pytest.approx(share, rel=0.1)
    assert found.held.tolist() == [share > 0, True]
    if share:
        assert found.shapes[0].equals(shapely.box(*CITY.bounds))


def test_a_map_that_ends_near_the_antimeridian():
    fiji = dh.Domain.from_cell((650_000, 7_960_000, 810_000, 8_100_000), "10km", "EPSG:32760")
    found = fitted([shapely.box(178.5, -18, 179.5, -17.5), shapely.box(0, 0, 5, 5)], fiji, "EPSG:4326")
    assert found.outside.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("shapes", "place", "words"),
    [
        ([shapely.Point(1, 1), None], (PLANE,), r"0 of 2 regions can be answered \(the first: not answered: Point"),
        ([shapely.box(1, 8.5, 2, 9.5)], (PLANE,), "outside the map"),
        ([], (PLANE,), "there are 0 regions"),
        ([BOW_TIE], (dh.Domain((0, 1), (4,)),), "they need a 2-D domain"),
        ([BOW_TIE], (PLANE, "EPSG:4326"), "a plane without a CRS"),
    ],
)
def test_other_regions_that_are_no_question(shapes, place, words):
    with pytest.raises(dh.InputError, match=words):
        fit(shapes, *place)


def test_answers_come_back_to_all_regions_and_steps():
    found = fitted([shapely.box(1, 1, 2, 2), shapely.box(20, 20, 21, 21), shapely.box(0, 0, 1, 1)])
    given = {"step": np.array(list("aabb")), "estimate": np.arange(4), "by": np.array(list("xxyy"), object)}
    columns = found.spread_over_regions(given)
    assert columns["step"].tolist() == list("aaabbb")
    assert columns["estimate"].tolist() == pytest.approx([0, np.nan, 1, 2, np.nan, 3], nan_ok=True)
    assert columns["by"].tolist()[3::2] == ["y", "y"]
    assert columns["outside"].tolist() == [0, 1, 0] * 2
    assert columns["note"].tolist() == [None, "not answered: outside the map", None] * 2
