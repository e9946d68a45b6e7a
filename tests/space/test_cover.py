"""Covers: shares, places and areas against their definitions."""

import numpy as np
import pytest
import shapely
from hypothesis import assume, given, settings, strategies as st

import deltahist as dh
from deltahist.space.workloads import cover_polygons

DOMAIN = dh.Domain((0, 0, 7, 5), (14, 10))


def sums_of_places(cover, field):
    return [np.bincount(cover.owner, along * field[cover.x, cover.y], cover.number) for along in cover.places]


def polygons(rng, number):
    """Hulls, holes, unions of far parts, polygons along cell edges and corners."""
    out = []
    while len(out) < number:
        shape = shapely.convex_hull(shapely.multipoints(rng.uniform(0, 5, (rng.integers(3, 12), 2))))
        kind = len(out) % 5
        if kind == 1:
            shape = shape.difference(shapely.buffer(shapely.Point(*rng.uniform(1, 4, 2)), 0.7))
        if kind == 2:
            shape = shape.union(shapely.box(5.5, 0.1, 6.5, 4.9)).difference(shapely.box(5.75, 1, 6, 3))
        if kind == 3:
            west, south = rng.integers(0, 8, 2) / 2
            shape = shapely.box(west, south, west + rng.integers(1, 6) / 2, south + rng.integers(1, 3) / 2)
        if kind == 4:
            shape = shapely.Polygon([(0, 0), (7, 0), (7, 5), (3.5, 2.5), (0, 5)])
        if shape.geom_type in ("Polygon", "MultiPolygon") and shape.area > 0:
            out.append(shapely.reverse(shape) if len(out) % 2 else shape)
    return out


def test_areas_and_centroids_are_those_of_the_cut_cells():
    shapes = polygons(np.random.default_rng(1), 60)
    found = cover_polygons(np.array(shapes), DOMAIN)
    area, along_x, along_y = np.zeros((3, len(shapes), 14, 10))
    for out, values in zip((area, along_x, along_y), (found.share, *found.places), strict=True):
        out[found.owner, found.x, found.y] = values
    for owner, (west, south), (east, north) in zip(found.whole, found.low, found.high, strict=True):
        assert not area[owner, west:east, south:north].any()
        area[owner, west:east, south:north] = 1
    cells = shapely.box(*(np.indices((14, 10)) / 2), *((np.indices((14, 10)) + 1) / 2))
    middle = shapely.centroid(cells)
    for number, shape in enumerate(shapes):
        inside = shapely.intersection(cells, shape)
        share = shapely.area(inside) * 4
        centre = np.where(share > 0, shapely.centroid(inside), middle)
        assert area[number] == pytest.approx(share, abs=2e-9)
        assert along_x[number] == pytest.approx(share * (shapely.get_x(centre) - shapely.get_x(middle)) * 4, abs=1e-8)
        assert along_y[number] == pytest.approx(share * (shapely.get_y(centre) - shapely.get_y(middle)) * 4, abs=1e-8)
        assert area[number].sum() == pytest.approx(4 * shape.area)


def test_some_polygons_at_a_time_are_all_of_them(monkeypatch):
    shapes = np.array(polygons(np.random.default_rng(4), 30))
    together = cover_polygons(shapes, DOMAIN)
    monkeypatch.setattr("deltahist.space.workloads._CELLS_AT_A_TIME", 200)
    apart = cover_polygons(shapes, DOMAIN)
    for name in ("owner", "x", "y", "share", "whole", "low", "high"):
        assert getattr(together, name) == pytest.approx(getattr(apart, name), abs=1e-12)
    assert np.array(together.places) == pytest.approx(np.array(apart.places), abs=1e-12)


@pytest.mark.parametrize("domain", [DOMAIN, dh.Domain((0, 6), (12,))])
def test_boxes_are_covered_as_their_definition_says(domain):
    rng = np.random.default_rng(2)
    low = np.array(domain.low) + rng.uniform(0, 0.6, (80, domain.ndim)) * (np.array(domain.high) - domain.low)
    high = low + (np.array(domain.high) - low) * rng.uniform(0.01, 1, low.shape)
    low[:20], high[:20] = np.floor(low[:20] * 2) / 2, np.ceil(high[:20] * 2) / 2
    low[20:30] = np.floor(low[20:30] * 2) / 2 + 0.125  # within one cell
    high[20:30] = low[20:30] + 0.25
    work, field = dh.workloads.boxes(np.hstack([low, high])), rng.normal(size=domain.shape)
    cover, shares = work.cover(domain), work.matrix(domain).toarray()
    assert np.allclose(cover.unsure, (shares * (1 - shares)).sum(axis=1))
    assert np.allclose(cover.cut_share, 1 - (shares > 1 - 1e-9).sum(axis=1) / shares.sum(axis=1))
    assert np.array_equal(cover.cut, ((shares > 1e-9) & (shares < 1 - 1e-9)).any(axis=1))
    if domain.ndim == 1:
        return
    for axis, found in enumerate(sums_of_places(cover.list_cells(domain.shape), field)):
        edges, side = domain.edges(axis)[:-1], domain.cell[axis]
        ends = [np.clip(end[:, axis, None], edges, edges + side) for end in (low, high)]
        place = (sum(ends) / 2 - domain.centres(axis)) / (side / 2)  # centroid of the overlap, in half cells
        weight = shares.reshape(len(low), *domain.shape) * np.expand_dims(place, 2 - axis)
        assert np.allclose(found, (weight * field).sum(axis=(1, 2)), atol=1e-5)


def test_boxes_and_the_same_polygons_have_one_cover():
    rng = np.random.default_rng(3)
    corners = np.sort(rng.uniform(0, 5, (40, 2, 2)), axis=1).reshape(40, 4)
    work = dh.workloads.boxes(corners)
    boxes, shapes = work.cover(DOMAIN), dh.workloads.regions(shapely.box(*corners.T)).cover(DOMAIN)
    field = rng.normal(size=DOMAIN.shape)
    listed = boxes.list_cells(DOMAIN.shape)
    assert np.allclose(listed.rows.toarray(), shapes.rows.toarray(), atol=1e-5)
    assert np.allclose(boxes.unsure, shapes.unsure, atol=1e-5)
    assert np.allclose(sums_of_places(listed, field), sums_of_places(shapes, field), atol=1e-5)
    assert np.allclose(boxes.cut_share, shapes.cut_share, atol=1e-5)
    assert np.array_equal(boxes.cut, shapes.cut)


def test_boxes_listed_cell_by_cell_are_the_same_cover():
    rng = np.random.default_rng(4)
    corners = np.sort(rng.integers(0, 40, (200, 2, 2)) / 8, axis=1)
    corners[:, 1] += (corners[:, 0] == corners[:, 1]) / 8
    work = dh.workloads.boxes(corners.reshape(200, 4))
    boxes = work.cover(DOMAIN)
    listed = boxes.list_cells(DOMAIN.shape)
    assert np.allclose(listed.rows.toarray(), work.matrix(DOMAIN).toarray())
    assert (np.diff(listed.owner) >= 0).all()
    assert np.array_equal(boxes.cut, listed.cut)
    assert np.allclose(boxes.unsure, listed.unsure)


@settings(max_examples=40)
@given(
    corners=st.tuples(*[st.floats(0.3, 6.7)] * 2, *[st.floats(0.3, 4.7)] * 2),
    sheared=st.tuples(*[st.sampled_from([-0.3, -0.02, 0.0, 0.01, 0.25])] * 2),
    bends=st.integers(1, 4),
    snapped=st.booleans(),
)
def test_boxes_with_slanted_sides_are_covered_as_their_definition_says(corners, sheared, bends, snapped):
    """As boxes in degrees are on a map: each cell by itself, by shapely."""
    (west, east), (south, north) = sorted(corners[:2]), sorted(corners[2:])
    if snapped:
        west, south, east, north = (round(2 * edge) / 2 for edge in (west, south, east, north))
    assume(east - west > 1e-3 and north - south > 1e-3)
    shape = shapely.segmentize(shapely.box(west, south, east, north), 7 / bends)
    shape = shapely.transform(shape, lambda p: p + (p[:, ::-1] - (3.5, 2.5)[::-1]) * sheared)
    shape = shapely.intersection(shape, shapely.box(*DOMAIN.bounds))
    assume(shape.geom_type == "Polygon" and shape.area > 1e-3)
    cells = shapely.box(*(np.indices((14, 10)) / 2), *((np.indices((14, 10)) + 1) / 2))
    inside = shapely.intersection(cells, shape)
    shares = shapely.area(inside) * 4
    # Whole cells are those but for a billionth; slivers near it may be either.
    assume(not ((abs(shares - 1) > 1e-12) & (abs(shares - 1) < 1e-7)).any())
    assume(not ((shares > 1e-12) & (shares < 1e-7)).any())
    some = (shares > 1e-9) & (shares < 1 - 1e-9)
    away = (shapely.get_coordinates(shapely.centroid(inside[some])) * 4) % 2 - 1
    cover = dh.workloads.regions([shape]).cover(DOMAIN)
    assert np.allclose(cover.rows.toarray().reshape(DOMAIN.shape), shares, atol=1e-8)
    field = np.random.default_rng(6).normal(size=DOMAIN.shape)
    assert cover.unsure == pytest.approx([(shares * (1 - shares)).sum()], abs=1e-7)
    for axis, found in enumerate(sums_of_places(cover, field)):
        assert found == pytest.approx([(shares[some] * away[:, axis] * field[some]).sum()], abs=1e-6)
    assert cover.cut.tolist() == [some.any()]
    assert cover.cut_share == pytest.approx(shares[some].sum() / shares.sum(), abs=1e-8)
