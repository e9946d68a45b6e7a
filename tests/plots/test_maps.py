"""Maps of cells and regions: what is drawn is what was published, with units, and what stands out from the noise."""

import functools
import itertools

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely

import deltahist as dh
from deltahist.plots import plot_map
from deltahist.plots.figures import new_figure
from deltahist.plots.maps import draw_intervals, draw_map, draw_regions, find_standing, merge_cells, values_of
from tests.plots.conftest import made


def notes_of(release, **look):
    return draw_map(release, new_figure().add_subplot(), **{"per": "area", "context": (), **look})


def test_a_map_shows_the_cells_where_they_are(town):
    ax = plot_map(town, nonnegative=True)
    picture = ax.images[0]
    shown = picture.get_array()
    assert np.allclose(shown, np.ma.array(town.cells(nonnegative=True).T / 0.25**2, mask=shown.mask), rtol=0.002)
    assert not shown.mask[16:24, 8:16].any()
    assert shown.mask[0, 35]  # an empty corner
    assert tuple(picture.get_extent()) == (580_000, 590_000, 4_500_000, 4_508_000)
    assert picture.origin == "lower"
    assert ax.get_xlabel() == "easting (km)"
    assert ax.xaxis.get_major_formatter()(581_500, 0) == "581.5"
    assert ax.figure.axes[1].get_xlabel() == "points per km²"


def test_a_map_in_which_nothing_stands_out_says_so():
    release = made(np.ones((30, 24), dtype=np.int64), budget={"epsilon": 0.01}, rng=np.random.default_rng(2))
    for asked in (None, False, True):
        assert not plot_map(release, nonnegative=asked).images
        assert "Nothing stands out" in notes_of(release, nonnegative=asked)
        assert "even −" not in notes_of(release, nonnegative=asked)


@pytest.mark.parametrize("town_of", ["cells", "hierarchy"])
def test_merging_keeps_sums_and_what_stands_out(town_of, town):
    """Blocks are those of a hierarchy, where the strategy is one."""
    release, dense, height = town, np.s_[8:16, 16:24], 200
    if town_of == "hierarchy":
        counts, dense, height = np.zeros((36, 36), dtype=np.int64), np.s_[6:12, 18:24], 30
        counts[dense] = height
        sixths = functools.partial(dh.strategies.Hierarchical, branching=6)
        release = made(counts, strategy=sixths, rng=np.random.default_rng(3))
    shown, standing = merge_cells(release)
    assert standing[dense].all()
    assert shown.sum() == pytest.approx(release.cells().sum())
    assert shown[dense].mean() == pytest.approx(height, abs=3)
    assert np.abs(shown[20:, 24:]).max() < 30  # an empty quarter
    assert len(np.unique(shown)) < release.domain.size / 3
    if release is town:
        assert shown[30, 5] == pytest.approx(5_000, abs=50)


#: Maps that are published, and how many of them may show anything false: one in twenty.
RELEASES, MOST = 120, 6


@pytest.mark.audit
def test_no_more_than_one_map_in_twenty_shows_points_where_there_are_none():
    """Empty maps, maps with a few busy places, and thin ones. A block is false if it stands out and holds no point."""
    rng, side = np.random.default_rng(11), 48
    domain = dh.Domain((0, 0, side, side), (side, side))
    empty = np.zeros(domain.shape, dtype=np.int64)
    busy = empty.copy()
    busy[10:14, 10:14], busy[30, 35], busy[40:, :3] = 100, 300, 8
    thin = rng.poisson(0.05, domain.shape) * (rng.random(domain.shape) < 0.5)
    false, number = 0, 0
    strategies = ("identity", "flow", "tents", "hierarchical")
    for strategy, delta, epsilon, rep in itertools.product(strategies, (1, 2), (0.3, 1, 4), range(5)):
        counts = (empty, busy, thin)[rep % 3]
        near = dh.Neighbourhood(domain, delta, sources="boundary" if rep % 2 else None)
        release = dh.publish(counts, near, strategy, epsilon, rng=rng, weak_protection_accepted=True)
        shown, standing = merge_cells(release)
        false += any(counts[standing & (shown == value)].sum() == 0 for value in np.unique(shown[standing]))
        number += 1
        if counts is busy:
            assert standing[30, 35] or epsilon < 1
    assert number == RELEASES
    assert false <= MOST


def test_context_is_projected_and_clipped(town):
    road = shapely.LineString([(570_000, 4_504_000), (600_000, 4_504_000)])
    park, tree = shapely.box(584_000, 4_502_000, 585_000, 4_503_000), shapely.Point(583_000, 4_501_000)
    layer = gpd.GeoSeries([road, park, tree, shapely.Point(0, 0)], crs=32618)
    for given in (layer, layer.to_frame("way").set_geometry("way").to_crs(4326)):
        ax = plot_map(town, context=[given])
        road_drawn, park_drawn = ax.collections[0].get_segments()
        assert np.ptp(road_drawn[:, 0]) == pytest.approx(10_000, abs=1)  # as far as the map goes
        assert park_drawn.mean(axis=0) == pytest.approx([584_500, 4_502_500], abs=300)
        assert (*ax.get_xlim(), *ax.get_ylim()) == (580_000, 590_000, 4_500_000, 4_508_000)


@pytest.fixture(scope="module")
def city():
    """Much in the west, little in the middle, nothing in the east, where there is a hole, too."""
    counts = np.zeros((40, 32), dtype=np.int64)
    counts[:8] = 300
    counts[8:24] = 20
    return made(counts, sources="boundary", rng=np.random.default_rng(5))


def zones_of(release, names=("west", "middle", "east")):
    west, south, east, north = release.domain.bounds
    side = (east - west) / 5
    shapes = shapely.box([west, west + side, west + 3 * side], south, [west + side, west + 3 * side, east], north)
    shapes[2] = shapes[2].difference(shapely.Point(east - side, (south + north) / 2).buffer(side / 2))
    return gpd.GeoDataFrame({"name": list(names)}, geometry=shapes, crs=release.domain.crs)


def made_up(release, estimate, std_error):
    """Answers that nobody gave, to see how they are drawn."""
    estimate, std_error = np.array(estimate, dtype=float), np.array(std_error, dtype=float)
    low, high = estimate - 1.96 * std_error, estimate + 1.96 * std_error
    return zones_of(release).assign(estimate=estimate, std_error=std_error, low=low, high=high)


def regions_of(release, answers, **look):
    """The axes of a map of regions, and what is said of it."""
    ax = new_figure().add_subplot()
    return ax, draw_regions(release.domain, values_of(release, answers, **look), ax, ())


def test_areas_are_those_of_the_ground():
    """On a Mercator map at 60° north every length is twice as long as on the ground."""
    _, y = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(0.0, 60.0)
    domain = dh.Domain((0, y, 40_000, y + 40_000), (8, 8), "EPSG:3857")
    near = dh.Neighbourhood(domain, 2_400)
    release = dh.publish(np.full((8, 8), 5), near, epsilon=10, weak_protection_accepted=True)
    zone = gpd.GeoDataFrame(geometry=[shapely.box(*domain.bounds)], crs=domain.crs)
    values = values_of(release, dh.answer(release, zone))
    assert values.value == pytest.approx(320 / 400, rel=0.02)


@pytest.mark.parametrize(("estimate", "std_error", "doubtful"), [(90, 31, False), (-5, 10, True), (90, 46, True)])
def test_what_does_not_stand_out_is_hatched(city, estimate, std_error, doubtful):
    """Its interval includes zero."""
    answers = made_up(city, [5_000, estimate, 400], [10, std_error, 10])
    assert values_of(city, answers).doubtful.tolist() == [False, doubtful, False]
    ax, notes = regions_of(city, answers)
    hatched = [c for c in ax.collections if c.get_hatch()]
    assert sum(len(c.get_paths()) for c in hatched) == doubtful
    assert ("Hatched" in notes) == doubtful


def test_rows_are_the_largest_first_and_hollow_if_in_doubt(city):
    ax = new_figure().add_subplot()
    draw_intervals(values_of(city, made_up(city, [640, 5_000, 20], [10, 100, 30]), per="region"), ax, 0.9)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["middle", "west", "east"]
    intervals, dots = ax.collections
    assert dots.get_offsets().tolist() == [[5_000, 0], [640, 1], [20, 2]]
    assert [bool(np.allclose(colour, 1)) for colour in dots.get_facecolor()] == [False, False, True]
    first, _, last = [path.vertices[:, 0].tolist() for path in intervals.get_paths()]
    assert first + last == pytest.approx([5_000 - 196, 5_000 + 196, 0, 20 + 1.96 * 30])  # none is below 0
    assert ax.get_xlabel() == "points per region, with 90% intervals"


def test_what_stands_out_alone_may_not_stand_out_among_many():
    """Three standard errors: 0.1% by chance alone, but 75% among a thousand."""
    domain = dh.Domain((0, 0, 8, 8), (8, 8))
    release = dh.publish(np.ones((8, 8), int), dh.Neighbourhood(domain, 1), "identity", epsilon=1)
    for number, expected in ((1, True), (1000, False)):
        work = dh.workloads.regions([shapely.box(0, 0, 8, 4)] * number)
        error = np.sqrt(release.decoder.moments(work.cover(domain)).variance)
        assert (find_standing(release, work, 3 * error, error) == expected).all()
