"""server/cells.py: features are blocks of cells, few enough, with the library's own answers."""

import functools
import math

import numpy as np
import pytest
import shapely
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.preprocessing import Clock
from deltahist.space.crs import Operation
from tests.server.conftest import DOMAIN, check_problem

OFF = Operation.off(DOMAIN, "EPSG:4326")
OUTLINE = shapely.segmentize(shapely.box(*DOMAIN.bounds), 100)
OUTLINE = shapely.transform(OUTLINE, lambda v: np.column_stack(OFF(v[:, 0], v[:, 1])))


def places():
    """Boxes in degrees near the map, far around it, or across the antimeridian."""
    lon, lat = st.floats(-74.1, -73.95), st.floats(40.62, 40.7)
    near = st.tuples(lon, lat, lon, lat).filter(lambda b: b[0] < b[2] and b[1] < b[3])
    return near | st.sampled_from([(-180, -90, 180, 90), (-300, -85, 420, 85), (170, 0, -70, 50), (0, 0, 1, 1)])


@settings(max_examples=15)
@given(box=st.none() | places(), zoom=st.none() | st.integers(0, 20), compare=st.booleans())
def test_features_are_blocks_with_the_librarys_answers(atlas, maps, box, zoom, compare):
    """All of them have the estimate, error and interval that `dh.answer` gives for their block, bit for bit."""
    asked = {} if zoom is None else {"zoom": zoom}
    asked |= {} if box is None else {"bbox": ",".join(map(repr, map(float, box)))}
    asked |= {"compare": "today"} if compare else {}
    found = atlas.get(f"/releases/{'yesterday' if compare else 'today'}/cells", params=asked).json()
    features = found["features"]
    assert len(features) <= 5_000
    if not features:
        return
    release = maps.find("today").release
    if compare:
        clock = Clock.of("2026-01-01", "1d")
        before = dh.Series(clock, 0, 0, {0: maps.find("yesterday").release})
        release = dh.Series(clock, 1, 1, {1: release}).change_from(before)
    corners = corners_of(features)
    expected = dh.answer(release, dh.workloads.boxes(corners))
    cells = np.prod((corners[:, 2:] - corners[:, :2]) / 50, axis=1)
    for name, column in {
        "estimate": expected["estimate"],
        "standard_error": expected["std_error"],
        "low": expected["low"],
        "high": expected["high"],
        "cells": cells.round(),
    }.items():
        assert [each["properties"][name] for each in features] == column.tolist()
    density = [each["properties"]["density"] for each in features]
    np.testing.assert_allclose(density, expected["estimate"] / (cells * 0.0025), rtol=2e-3, atol=1e-9)
    sure = (expected["low"] > 0) | (compare & (expected["high"] < 0))
    sure &= expected["std_error"] <= expected["estimate"].abs() / 3
    assert [each["properties"]["stands_out"] for each in features] == sure.tolist()


def shapes_of(features):
    return shapely.polygons([each["geometry"]["coordinates"][0] for each in features])


def corners_of(features):
    """Return the boxes (m, 4) of features on the map, on its cells' edges."""
    there = shapely.transform(shapes_of(features), lambda v: np.column_stack(OFF.back(v[:, 0], v[:, 1])))
    corners = shapely.bounds(there)
    start, step = np.array(DOMAIN.low * 2), 50
    assert np.abs((corners - start) / step - ((corners - start) / step).round()).max() < 0.01
    return start + step * ((corners - start) / step).round()


@settings(max_examples=25)
@given(box=places(), zoom=st.integers(8, 18))
def test_all_that_a_box_touches_is_there(atlas, box, zoom):
    """And little else; blocks are worth drawing at the zoom, and overlap nowhere."""
    asked = {"bbox": ",".join(map(repr, map(float, box))), "zoom": zoom}
    found = atlas.get("/releases/today/cells", params=asked).json()
    west, south, east, north = box
    window = shapely.box(west, south, east + 360 * (east < west), north)
    touched = shapely.intersection(OUTLINE, window).area
    if not found["features"]:
        assert touched < 1e-9
        return
    shapes = shapes_of(found["features"])
    union = shapely.union_all(shapes)
    assert shapely.intersection(union, window).area == pytest.approx(touched, rel=1e-3, abs=1e-9)
    assert shapely.area(shapes).sum() == pytest.approx(union.area, rel=1e-6)
    width = shapely.bounds(shapes)[:, 2] - shapely.bounds(shapes)[:, 0]
    assert width.max() * 256 * 2**zoom / 360 > 7.5 or len(shapes) == 1
    assert found["width"] == 1 or math.log2(found["width"]).is_integer()


def test_planes_and_lines_keep_their_coordinates(atlas):
    plane = atlas.get("/releases/plane/cells", params={"bbox": "12,2,14,3"}).json()
    rings = [each["geometry"]["coordinates"][0] for each in plane["features"]]
    assert rings == [[[x, 2], [x + 1, 2], [x + 1, 3], [x, 3], [x, 2]] for x in (12, 13)]
    first = plane["features"][0]["properties"]
    assert first["density"] == first["estimate"]
    assert plane["density"] == "points per square unit"
    line = atlas.get("/releases/sorted/cells").json()["features"]
    assert line[3]["geometry"] == {"type": "LineString", "coordinates": [[15, 0], [20, 0]]}


def test_copies_of_cells_are_those_of_their_releases(atlas):
    ask = functools.partial(atlas.get, "/releases/today/cells")
    first, other = ask(), ask(params={"compare": "yesterday"})
    assert first.headers["etag"] != other.headers["etag"] != atlas.get("/releases/yesterday/cells").headers["etag"]
    assert ask(headers={"if-none-match": first.headers["etag"]}).status_code == 304


REFUSED = {
    "/releases/nowhere/cells": (404, "release is 'nowhere'"),
    "/releases/today/cells?compare=nowhere": (404, "compare is 'nowhere'"),
    "/releases/today/cells?compare=today": (400, "share noise"),
    "/releases/today/cells?compare=plane": (400, "only releases of the same cells"),
    "/releases/today/cells?compare=sorted": (400, "one is a SortedRelease"),
    "/releases/today/cells?zoom=25": (400, "zoom is '25'"),
    "/releases/today/cells?zoom=nan": (400, "zoom is 'nan'"),
    "/releases/today/cells?bbox=0,1,1,0": (400, "each low end below its high one"),
    "/releases/today/cells?bbox=1,0,0,1&crs=EPSG:32618": (400, "each low end below its high one"),
    "/releases/today/cells?bbox=1,1": (400, "it must be 4 numbers"),
    "/releases/today/cells?crs=EPSG:3035": (400, "crs is 'EPSG:3035'"),
}


@pytest.mark.parametrize("path", REFUSED)
def test_malformed_requests_get_problem_documents(atlas, path):
    check_problem(atlas.get(path), *REFUSED[path])
