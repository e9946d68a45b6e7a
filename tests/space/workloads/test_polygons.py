"""Polygon queries: exact area shares, whole cells, names."""

import geopandas
import numpy as np
import pytest
import shapely

import deltahist as dh

PLANE = dh.Domain((0, 0, 9, 6), (9, 12))
CITY = dh.Domain.from_cell((560_000, 4_480_000, 580_000, 4_495_000), "1km", "EPSG:32618")


def cells_of(domain):
    edges = [domain.edges(a) for a in range(2)]
    i, j = (a.ravel() for a in np.meshgrid(*(np.arange(n) for n in domain.shape), indexing="ij"))
    return shapely.box(edges[0][i], edges[1][j], edges[0][i + 1], edges[1][j + 1])


def shapes(rng, domain):
    low, high = np.array(domain.low), np.array(domain.high)
    size = (high - low).min()
    at = rng.uniform(low + size / 5, high - size / 5, (4, 2))
    disc = shapely.Point(at[0]).buffer(size / 5)
    return [
        shapely.Polygon(at[:3]),
        disc,
        disc.difference(shapely.Point(at[0]).buffer(size / 9)),
        shapely.union_all([shapely.box(*p, *(p + size / 50)) for p in at]),
        shapely.box(*domain.bounds),
        shapely.Point(at[1]).buffer(size / 1e4),
    ]


@pytest.mark.parametrize("domain", [PLANE, CITY], ids=["plane", "city"])
def test_cells_count_by_the_share_of_their_area_inside(domain):
    rng = np.random.default_rng(1)
    cells = cells_of(domain)
    for _ in range(10):
        polygons = shapes(rng, domain)
        expected = [shapely.area(shapely.intersection(p, cells)) / shapely.area(cells) for p in polygons]
        rows = dh.workloads.regions(polygons).matrix(domain)
        assert np.allclose(rows.toarray(), expected, atol=1e-8)
        assert rows.data.max() <= 1
        area = [p.area / cells[0].area for p in polygons]
        assert np.allclose(rows.sum(axis=1), area, rtol=1e-6)


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


def test_inner_and_outer_of_a_polygon_along_cell_edges_are_its_count():
    domain = dh.Domain((0, 0, 1, 1), (10, 10))
    counts = np.arange(100).reshape(10, 10)
    release = dh.publish(counts, dh.Neighbourhood(domain, 0.1), dh.strategies.Identity(domain), 1.0)
    corners = [0.1, 0.2, 0.6, 0.9]
    polygon = dh.answer(release, dh.workloads.regions([shapely.box(*corners)]))
    box = dh.answer(release, dh.workloads.boxes([corners]))
    assert polygon["estimate"].iloc[0] == pytest.approx(box["estimate"].iloc[0])
    assert list(polygon.columns) == list(box.columns)


def test_names_are_kept_and_default_to_numbers():
    polygons = [shapely.box(0, 0, 1, 1), shapely.box(1, 1, 2, 2)]
    assert dh.workloads.regions(polygons).names == ("0", "1")
    assert dh.workloads.regions(polygons, ["a", 7]).names == ("a", "7")
    with pytest.raises(dh.InputError, match="2 regions and 1 names"):
        dh.workloads.regions(polygons, ["a"])


def test_frames_and_series_are_taken():
    polygons = [
        shapely.box(0, 0, 1, 1),
        shapely.MultiPolygon([shapely.box(2, 2, 3, 3), shapely.box(4, 4, 5, 5)]),
    ]
    frame = geopandas.GeoDataFrame({"zone": ["a", "b"]}, geometry=polygons)
    for given in (frame, frame.geometry, iter(polygons)):
        rows = dh.workloads.regions(given).matrix(PLANE)
        assert rows.sum(axis=1).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("polygon", "words"),
    [
        (shapely.LineString([(0, 0), (1, 1)]), "region 'x' is LineString"),
        (shapely.Polygon(), "non-empty"),
        (None, "region 'x' is NoneType"),
        ("POINT", "region 'x' is str"),
        (shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), "region 'x' is Polygon .*it must be a valid"),
    ],
)
def test_what_is_no_polygon_is_named(polygon, words):
    with pytest.raises(dh.InputError, match=words):
        dh.workloads.regions([polygon], ["x"])


def test_polygons_stay_inside_a_plane():
    with pytest.raises(dh.InputError, match=r"region 'b' reaches outside the domain, .*clip"):
        dh.workloads.regions([shapely.box(0, 0, 1, 1), shapely.box(8, 0, 9.1, 1)], ["a", "b"]).matrix(PLANE)
    with pytest.raises(dh.InputError, match=r"region .0. reaches outside the domain.*\(2 such regions\).*CRS"):
        dh.workloads.regions([shapely.box(20, 0, 21, 1), shapely.box(8, 0, 9.1, 1)]).matrix(PLANE)
    with pytest.raises(dh.InputError, match="2-D"):
        dh.workloads.regions([shapely.box(0, 0, 1, 1)]).matrix(dh.Domain((0, 4), (4,)))
