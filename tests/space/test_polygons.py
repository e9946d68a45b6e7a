"""Polygon queries: exact area shares, whole cells, names."""

import numpy as np
import pytest
import shapely

import deltahist as dh

PLANE = dh.Domain((0, 0, 9, 6), (9, 12))


@pytest.mark.parametrize("n", [3, 7, 10, 49])
def test_a_polygon_along_cell_edges_has_whole_cells_only(n):
    # k / n in floats may lie a little to either side of an edge; boxes are rounded to the lattice, too.
    domain = dh.Domain((0, 0, 1, 1), (n, n))
    rng = np.random.default_rng(n)
    for _ in range(10):
        (west, east), (south, north) = (np.sort(rng.choice(n + 1, 2, replace=False)) for _ in range(2))
        rows = dh.workloads.regions([shapely.box(west / n, south / n, east / n, north / n)]).matrix(domain)
        expected = np.zeros((n, n))
        expected[west:east, south:north] = 1
        assert np.array_equal(rows.toarray().reshape(n, n), expected)


def test_polygons_stay_inside_a_plane():
    with pytest.raises(dh.InputError, match="region 'b'"):
        dh.workloads.regions([shapely.box(0, 0, 1, 1), shapely.box(8, 0, 9.1, 1)], ["a", "b"]).matrix(PLANE)
    with pytest.raises(dh.InputError, match="2-D"):
        dh.workloads.regions([shapely.box(0, 0, 1, 1)]).matrix(dh.Domain((0, 4), (4,)))


def test_a_polygon_holds_the_same_of_each_cell_alone_and_behind_others():
    """To the last bit: sums up columns do not go on from one polygon to the next."""
    rng = np.random.default_rng(3)
    plane = dh.Domain((0, 0, 40, 40), (40, 40))
    shapes = [
        shapely.Point(x, y).buffer(radius).difference(shapely.Point(x, y).buffer(radius / 3))
        for x, y, radius in rng.uniform((9, 9, 1), (31, 31, 8), (50, 3))
    ]
    together = dh.workloads.regions(shapes).cover(plane)
    for number, shape in enumerate(shapes):
        alone, own = dh.workloads.regions([shape]).cover(plane), together.owner == number
        assert np.array_equal(alone.share, together.share[own])
        assert all(np.array_equal(one, other[own]) for one, other in zip(alone.places, together.places, strict=True))
