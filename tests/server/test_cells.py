"""server/cells.py: blocks of cells, few enough, with the library's own answers and with corners where they are."""

import numpy as np
import pytest
import shapely
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.releases.sums import ReleaseDifference
from deltahist.space.crs import Operation
from tests.server.conftest import DOMAIN, check_problem

OFF = Operation.off(DOMAIN, "EPSG:4326")


def places():
    """Boxes in degrees near the map, far around it, or across the antimeridian."""
    lon, lat = st.floats(-74.1, -73.95), st.floats(40.62, 40.7)
    near = st.tuples(lon, lat, lon, lat).filter(lambda b: b[0] < b[2] and b[1] < b[3])
    return near | st.sampled_from([(-180, -90, 180, 90), (-300, -85, 420, 85), (170, 0, -70, 50), (0, 0, 1, 1)])


def text(box):
    return ",".join(map(repr, map(float, box)))


def corners_of(found, domain):
    """The boxes (m, 4) of blocks on the map."""
    x, y = (domain.edges(axis)[np.array(ends)] for axis, ends in enumerate(found["ends"]))
    low, high = np.meshgrid(x[:-1], y[:-1], indexing="ij"), np.meshgrid(x[1:], y[1:], indexing="ij")
    return np.column_stack([each.ravel() for each in (*low, *high)])


@settings(max_examples=25)
@given(box=st.none() | places(), width=st.integers(1, 200), compare=st.booleans())
def test_blocks_have_the_librarys_answers(atlas, maps, box, width, compare):
    """They hold all that a box has of the map; and with 95% confidence, all that stand out differ from zero."""
    asked = {"width": width, "errors": True} | ({} if box is None else {"bbox": text(box)})
    asked |= {"compare": "today"} if compare else {}
    found = atlas.get(f"/releases/{'yesterday' if compare else 'today'}/cells", params=asked).json()
    number = len(found["density"])
    assert number == np.prod(found["shape"]) <= 20_000
    corners = corners_of(found, DOMAIN)
    if box is not None:
        west, south, east, north = box
        window = shapely.box(west, south, east + 360 * (east < west), north)
        middles = np.array(np.meshgrid(*(DOMAIN.edges(a)[1:] - 25 for a in (0, 1)))).reshape(2, -1)
        there = shapely.points(np.column_stack(OFF(*middles)))
        inside = shapely.points(middles.T)[shapely.contains(window, there)]
        held = shapely.box(*shapely.total_bounds(shapely.box(*corners.T))) if number else shapely.Polygon()
        assert (shapely.distance(inside, held) < 1e-6).all()
    if not number:
        return
    one, other = (maps.find(name).release for name in ("yesterday", "today"))
    release = ReleaseDifference(one, other) if compare else other
    expected = dh.answer(release, dh.workloads.boxes(corners))
    for name in ("estimate", "std_error", "low", "high"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    area = np.prod((corners[:, 2:] - corners[:, :2]) / 1000, axis=1)
    np.testing.assert_allclose(found["density"], expected["estimate"] / area, rtol=2e-3, atol=1e-9)
    strict = dh.answer(release, dh.workloads.boxes(corners), level=1 - 0.05 / number)
    assert found["stands_out"] == ((strict["low"] > 0) | (strict["high"] < 0)).tolist()


def test_the_mesh_lies_where_the_cells_are(atlas):
    found = atlas.get("/releases/today/cells", params={"width": 2}).json()
    places = [DOMAIN.edges(axis)[np.array(each)] for axis, each in enumerate(found["nodes"])]
    nodes = np.meshgrid(*places, indexing="ij")
    np.testing.assert_allclose([found["x"], found["y"]], [each.ravel() for each in OFF(*nodes)], atol=1e-7)
    for ends, nodes in zip(found["ends"], found["nodes"], strict=True):
        assert set(nodes) <= set(ends)
        assert (nodes[0], nodes[-1]) == (ends[0], ends[-1])


def test_planes_and_lines_keep_their_coordinates(atlas):
    plane = atlas.get("/releases/plane/cells", params={"bbox": "12,2,14,3", "errors": True}).json()
    assert (plane["x"], plane["y"]) == ([12, 12, 13, 13, 14, 14], [2, 3] * 3)
    assert plane["density"] == plane["estimate"]
    assert atlas.get("/releases/plane/cells", params={"bbox": "50,2,60,3"}).json()["density"] == []
    line = atlas.get("/releases/sorted/cells").json()
    assert line["ends"] == [list(range(21))]


REFUSED = {
    "/releases/nowhere/cells": (404, "release is 'nowhere'"),
    "/releases/today/cells?compare=nowhere": (404, "compare is 'nowhere'"),
    "/releases/today/cells?compare=today": (400, "share noise"),
    "/releases/today/cells?compare=plane": (400, "cells"),
    "/releases/today/cells?compare=sorted": (400, "SortedRelease"),
    "/releases/today/cells?width=0": (400, "width is '0'"),
    "/releases/today/cells?bbox=0,1,1,0": (400, "bbox"),
    "/releases/today/cells?bbox=1,0,0,1&crs=EPSG:32618": (400, "bbox"),
    "/releases/today/cells?bbox=1,1": (400, "bbox"),
    "/releases/today/cells?crs=EPSG:3035": (400, "crs is 'EPSG:3035'"),
}


@pytest.mark.parametrize("path", REFUSED)
def test_malformed_requests_get_problem_documents(atlas, path):
    check_problem(atlas.get(path), *REFUSED[path])
