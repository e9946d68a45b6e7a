"""Regions as people have them, on a map: clipped, repaired, marked, and what is wrong where none fits."""

import warnings

import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.space.geometries import fit

PLANE = dh.Domain((0, 0, 10, 8), (10, 8))
CITY = dh.Domain.from_cell((580_000, 4_495_000, 605_000, 4_525_000), "250m", "EPSG:32618")
BOW_TIE = shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])


def fitted(shapes, domain=PLANE, crs=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dh.DeltaHistWarning)
        return fit(shapes, domain, crs)


@pytest.mark.parametrize(
    ("shape", "outside", "note"),
    [
        (shapely.box(-1, 0, 3, 1), 0.25, "clipped: 25%"),
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
        (shapely.LineString([(1, 1), (2, 2)]), np.nan, "LineString without an area"),
        (shapely.Polygon([(1, 1), (2, np.inf), (3, 1)]), np.nan, "no geometry"),
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
    ("shapes", "place"),
    [([shapely.box(1, 8.5, 2, 9.5)], (PLANE,)), ([], (PLANE,)), ([BOW_TIE], (dh.Domain((0, 1), (4,)),)),
     ([BOW_TIE], (PLANE, "EPSG:4326"))],
)  # fmt: skip
def test_regions_that_cannot_be_answered_at_all_are_refused(shapes, place):
    with pytest.raises(dh.InputError):
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
