"""Covers: shares, places and areas against their definitions."""

import numpy as np
import pytest
import shapely

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
        assert found.unsure[number] == pytest.approx((share * (1 - share)).sum(), abs=1e-7)


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
