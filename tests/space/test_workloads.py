"""Workloads: boxes, ranges, squares and polygons; shares, places and areas against their definitions."""

import math

import numpy as np
import pytest
import scipy.stats
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


@pytest.mark.parametrize("domain", [DOMAIN, dh.Domain((0, 6), (12,))])
def test_boxes_are_covered_as_their_definition_says(domain):
    rng = np.random.default_rng(2)
    low = np.array(domain.low) + rng.uniform(0, 0.6, (80, domain.ndim)) * (np.array(domain.high) - domain.low)
    high = low + (np.array(domain.high) - low) * rng.uniform(0.01, 1, low.shape)
    low[:20], high[:20] = np.floor(low[:20] * 2) / 2, np.ceil(high[:20] * 2) / 2
    low[20:30] = np.floor(low[20:30] * 2) / 2 + 0.125  # within one cell
    high[20:30] = low[20:30] + 0.25
    work, field = dh.workloads.boxes(np.hstack([low, high])), rng.normal(size=domain.shape)
    shares = np.ones((len(low), 1))
    for axis in range(domain.ndim):
        first, last = np.maximum(low[:, axis, None], domain.edges(axis)[:-1]), domain.edges(axis)[1:]
        part = np.maximum(np.minimum(high[:, axis, None], last) - first, 0) / domain.cell[axis]
        shares = (shares[:, :, None] * part[:, None]).reshape(len(low), -1)
    cover = work.cover(domain)
    assert np.allclose(work.matrix(domain).toarray(), shares, atol=1e-5)
    shares = work.matrix(domain).toarray()  # of corners at whole lattice steps
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


AWAY = dh.Domain((10, 20, 17, 25), (7, 10))


@pytest.mark.parametrize("shape", [(1,), (6,), (1, 1), (4, 3)])
def test_all_ranges_are_all_different_boxes_of_whole_cells(shape):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    work = dh.workloads.all_ranges(domain)
    rows = work.matrix(domain).toarray()
    assert len(work) == len(rows) == math.prod(n * (n + 1) // 2 for n in shape)
    assert set(np.unique(rows)) <= {0.0, 1.0}
    assert len(np.unique(rows, axis=0)) == len(rows)
    spans = work.spans(domain)
    for row, edges in zip(rows, zip(*(e for span in spans for e in span), strict=True), strict=True):
        box = np.zeros(shape)
        box[tuple(slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))] = 1
        assert np.array_equal(row, box.ravel())


def test_sampled_ranges_are_uniform():
    domain = dh.Domain((0, 0, 3, 2), (3, 2))
    rows = dh.workloads.all_ranges(domain).sample(9000, seed=3).matrix(domain).toarray()
    _, number = np.unique(rows, axis=0, return_counts=True)
    assert len(number) == 6 * 3
    # A fixed seed; another one would fail once in a thousand.
    assert scipy.stats.chisquare(number).pvalue > 0.001


@pytest.mark.parametrize("side", [0.01, 1.3, 5])
def test_random_squares_are_inside_and_of_their_side(side):
    work = dh.workloads.random_squares(side, 400, AWAY, seed=5)
    assert work.corners.shape == (400, 4)
    assert (work.corners[:, :2] >= AWAY.low).all()
    assert (work.corners[:, 2:] <= AWAY.high).all()
    assert np.allclose(work.corners[:, 2:] - work.corners[:, :2], side)
    work.spans(AWAY)
    # Places are uniform: west runs from 10 to 17 − side.
    assert scipy.stats.kstest((work.corners[:, 0] - 10) / (7 - side), "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("corners", "words"),
    [([[11, 21, 12, math.inf]], "inside the domain"), ([[11, 21, 12, math.nan]], "reversed"),
     ([[1, 2, 3]], "shape"), ([[12, 21, 11, 22]], "box 0"),
     ([[11, 21, 12, 22], [11, 22, 12, 22]], "box 1"), ([[9, 21, 12, 22]], "inside the domain")],
)  # fmt: skip
def test_bad_boxes_are_named_with_their_number(corners, words):
    with pytest.raises(dh.InputError, match=words):
        dh.workloads.boxes(corners).spans(AWAY)


def test_long_lists_of_explicit_queries_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 10**6)
    domain = dh.Domain((0, 1), (1000,))
    for work, words in (
        (dh.workloads.random_boxes(999, domain), "explicit"),
        (dh.workloads.all_ranges(domain), "list"),
    ):
        with pytest.raises(dh.InputError, match=words):
            work.matrix(domain)
