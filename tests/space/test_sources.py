"""Sources: which cells lie within δ of them."""

import itertools
import math

import numpy as np
import shapely
from examples import quiet

import deltahist as dh


def near_cells(domain, delta, sources):
    return quiet(domain, delta, sources).source_cells


def distances(domain, geometry):
    """Distance of a geometry to what is counted in every cell, by shapely, in the domain's own coordinates."""
    edges = [domain.edges(a) for a in range(2)]
    for side in edges:  # points outside are counted at the rim
        side[0], side[-1] = -1e4, 1e4
    i, j = np.meshgrid(*(np.arange(n) for n in domain.shape), indexing="ij")
    return shapely.distance(geometry, shapely.box(edges[0][i], edges[1][j], edges[0][i + 1], edges[1][j + 1]))


def geometries(rng, low, high):
    at = rng.uniform(low, high, (8, 2))
    triangle = shapely.Polygon(at[:3])
    disc = shapely.Point(at[3]).buffer(rng.uniform(0.5, 20))
    return [
        shapely.Point(at[0]),
        shapely.MultiPoint(at[:4]),
        shapely.LineString(at[:5]),
        shapely.LineString([(low, at[0, 1]), (high, at[0, 1])]),
        triangle,
        disc.difference(disc.centroid.buffer(rng.uniform(0.1, 10))),
        shapely.MultiPolygon([shapely.box(*at[5], *(at[5] + 3)), shapely.box(*(at[5] + 5), *(at[5] + 9))]),
        shapely.GeometryCollection([shapely.Point(at[6]), triangle]),
    ]


def test_cells_closer_than_delta_are_touched():
    rng = np.random.default_rng(1)
    seen = np.zeros(2, dtype=int)
    for _ in range(25):
        shape = tuple(rng.integers(1, 80, 2).tolist())
        aspect = float(rng.choice([1, 0.5, 1.7, math.pi]))
        domain = dh.Domain((-7, 3, shape[0] - 7, 3 + aspect * shape[1]), shape)
        for geometry in geometries(rng, -15, 75):
            if geometry.is_empty or not geometry.is_valid:
                continue
            delta = float(rng.uniform(0.2, 15))
            expected = distances(domain, geometry)
            found = near_cells(domain, delta, geometry)
            clear = np.abs(expected - delta) > 1e-5
            assert np.array_equal(found[clear], (expected < delta)[clear])
            seen += np.bincount(found.ravel(), minlength=2)
    assert seen.min() > 1000


def test_exactly_delta_away_is_not_touched():
    # A step stands for its centre, so that no point of a cell lies on its edge.
    domain = dh.Domain((0, 0, 12, 12), (12, 12))
    i, j = np.meshgrid(np.arange(12), np.arange(12), indexing="ij")
    assert np.array_equal(near_cells(domain, 5, shapely.Point(0, 0)), i**2 + j**2 < 25)
    assert np.array_equal(near_cells(domain, 2, shapely.LineString([(4, 0), (4, 12)])), (i >= 2) & (i < 6))
    box = near_cells(domain, 1, shapely.box(3, 3, 5, 5))
    gap = np.hypot(np.maximum(0, np.maximum(3 - (i + 1), i - 5)), np.maximum(0, np.maximum(3 - (j + 1), j - 5)))
    assert np.array_equal(box, gap < 1)


def test_vertices_are_rounded_to_the_nearest_step():
    """By no more than half a step: what is then within δ less two steps of a source is priced, in every corner."""
    domain = dh.Domain((0, 0, 100, 100), (100, 100))
    h, k = domain.step[0], domain.steps[0]
    for cells, part in itertools.product(range(1, 12), (0.0001, 0.49, 0.51, 0.6, 0.9999)):
        for m in range(3, 9):
            point = (50 * k - 0.4999) * h
            place = (50 * k - m * cells * k // 7 - cells + part) * h
            delta = math.hypot(point - place, point - place) + 2 * h + 1e-9 * h
            near = quiet(domain, delta, shapely.Point(place, place))
            assert near.source_cells[tuple(domain.locate([[point, point]])[0])]
