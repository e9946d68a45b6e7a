"""Maps of cells and regions: what is drawn is what was published, with units, and what stands out from the noise."""

import functools
import itertools

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from matplotlib_scalebar.scalebar import ScaleBar

import deltahist as dh
from deltahist.errors import InputError
from deltahist.plots import plot_map, plot_regions
from deltahist.plots.ground import block_areas, new_figure
from deltahist.plots.maps import draw_intervals, draw_map, draw_regions, merge_cells, values_of
from deltahist.sample import sample_points

# --- cells --------------------------------------------------------------------------------------------------


def notes_of(release, **look):
    return draw_map(release, new_figure().add_subplot(), **look)


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


def test_a_map_says_which_estimates_it_shows(town):
    positive, merged = (plot_map(town, per="cell", nonnegative=asked) for asked in (True, False))
    shown, standing = merge_cells(town)
    for picture, cells in ((positive, town.cells(nonnegative=True)), (merged, shown)):
        drawn = picture.images[0].get_array()
        assert np.array_equal(drawn.mask, ~standing.T)
        assert np.array_equal(drawn.compressed(), cells.T[standing.T])
    assert "non-negative" in positive.get_title(loc="left")
    assert "unbiased" in merged.get_title(loc="left")
    assert "standard error of 2.8" in notes_of(town)


def test_a_speck_of_noise_is_pale_and_an_even_map_is_not_dark(make):
    """Nearly all of the scale is left to what stands out, however large that is."""
    counts = np.zeros((40, 32), dtype=np.int64)
    counts[8:16, 16:24] = 60
    release = make(counts, rng=np.random.default_rng(1))
    picture = plot_map(release, per="cell", nonnegative=True).images[0]
    assert picture.norm(2.8) < 0.15  # one standard error
    assert picture.norm(60) > 0.8
    single = plot_map(make(np.full((1, 1), 40))).images[0]  # nothing to compare it with
    assert 0.3 < single.norm(single.get_array().max()) < 0.95


def test_the_largest_values_are_beyond_the_scale(town):
    labels = [label.get_text() for label in plot_map(town).figure.axes[1].get_xticklabels()]
    assert labels[0] == "0"
    assert labels[-1].startswith("≥ ")
    assert float(labels[-1][2:].replace(",", "")) < town.cells().max() / 0.25**2


def test_a_map_in_which_nothing_stands_out_says_so(make):
    release = make(np.ones((30, 24), dtype=np.int64), budget={"epsilon": 0.01}, rng=np.random.default_rng(2))
    for asked in (None, False, True):
        assert not plot_map(release, nonnegative=asked).images
        assert "Nothing stands out" in notes_of(release, nonnegative=asked)
        assert "even −" not in notes_of(release, nonnegative=asked)


def test_points_from_outside_are_mentioned_where_they_are_counted(make, town):
    assert "points from outside" in notes_of(town)
    dropped = make(np.ones((8, 8), dtype=np.int64), sources="boundary", dropped=["points outside"])
    assert "points from outside" not in notes_of(dropped)


def test_a_plane_has_its_own_units_and_no_scale_bar(make, town):
    ax = plot_map(make(np.ones((4, 4), dtype=np.int64), crs=None))
    assert ax.get_xlabel() == "x (units)"
    assert (*ax.get_xlim(), *ax.get_ylim()) == (0, 4, 0, 4)
    assert not [child for child in ax.get_children() if isinstance(child, ScaleBar)]
    (bar,) = (child for child in plot_map(town).get_children() if isinstance(child, ScaleBar))
    assert bar.dx == pytest.approx(1, rel=2e-3)  # metres on the ground of one on the map
    with pytest.raises(InputError):
        plot_map(town, per="region")


@pytest.mark.parametrize("town_of", ["cells", "hierarchy"])
def test_merging_keeps_sums_and_what_stands_out(town_of, town, make):
    """Blocks are those of a hierarchy, where the strategy is one."""
    release, dense, height = town, np.s_[8:16, 16:24], 200
    if town_of == "hierarchy":
        counts, dense, height = np.zeros((36, 36), dtype=np.int64), np.s_[6:12, 18:24], 30
        counts[dense] = height
        sixths = functools.partial(dh.strategies.Hierarchical, branching=6)
        release = make(counts, strategy=sixths, rng=np.random.default_rng(3))
    shown, standing = merge_cells(release)
    assert standing[dense].all()
    assert shown.sum() == pytest.approx(release.cells().sum())
    assert shown[dense].mean() == pytest.approx(height, abs=3)
    assert np.abs(shown[20:, 24:]).max() < 30  # an empty quarter
    assert len(np.unique(shown)) < release.domain.size / 3
    if release is town:
        assert shown[30, 5] == pytest.approx(5_000, abs=50)


#: Maps that are published, and how many of them may show anything false: one in twenty.
RELEASES, MOST = 240, 12


@pytest.mark.audit
def test_no_more_than_one_map_in_twenty_shows_points_where_there_are_none():
    """Empty maps, maps with a few busy places, and thin ones. A block is false if it stands out and holds no point."""
    rng, side = np.random.default_rng(11), 48
    domain = dh.Domain((0, 0, side, side), (side, side))
    empty = np.zeros(domain.shape, dtype=np.int64)
    busy = empty.copy()
    busy[10:14, 10:14], busy[30, 35], busy[40:, :3] = 100, 300, 8
    thin = rng.poisson(0.05, domain.shape) * (rng.random(domain.shape) < 0.5)
    false, made = 0, 0
    strategies = ("identity", "flow", "tents", "hierarchical")
    for strategy, delta, epsilon, rep in itertools.product(strategies, (1, 2), (0.3, 1, 4), range(10)):
        counts = (empty, busy, thin)[rep % 3]
        near = dh.Neighbourhood(domain, delta, sources="boundary" if rep % 2 else None)
        release = dh.publish(counts, near, strategy, epsilon, rng=rng, weak_protection_accepted=True)
        shown, standing = merge_cells(release)
        false += any(counts[standing & (shown == value)].sum() == 0 for value in np.unique(shown[standing]))
        made += 1
        if counts is busy:
            assert standing[30, 35] or epsilon < 1
    assert made == RELEASES
    assert false <= MOST


def test_hot_spots_of_the_sample_city_show():
    points = sample_points()
    domain = dh.Domain.from_cell((578_000, 4_501_000, 593_000, 4_518_000), "500m", "EPSG:32618")
    counts = dh.count(points, domain, x="lon", y="lat", crs="EPSG:4326")
    release = dh.publish(counts, dh.Neighbourhood(domain, 500), epsilon=1, rng=np.random.default_rng(1))
    shown, standing = merge_cells(release)
    hottest = np.argsort(-counts.array, axis=None)[:10]
    assert standing.ravel()[hottest].all()
    assert np.allclose(shown.ravel()[hottest], counts.array.ravel()[hottest], atol=60)


@pytest.mark.parametrize("asked", [None, True])
def test_one_dimension_is_drawn_as_steps_with_a_band(asked):
    domain, positive = dh.Domain((0, 50), (50,)), asked is True
    counts = np.where(np.arange(50) == 30, 90, 0)
    release = dh.publish(counts, dh.Neighbourhood(domain, delta=5), "identity", 0.5, rng=np.random.default_rng(1))
    ax = plot_map(release, nonnegative=asked)
    band, line = ax.patches
    cells, errors = release.estimates(nonnegative=positive)
    assert np.array_equal(line.get_data().values, cells)
    assert np.array_equal(band.get_data().values, cells + errors)
    assert np.array_equal(band.get_data().baseline, np.maximum(cells - errors, 0) if positive else cells - errors)
    assert (cells < 0).any() != positive
    assert "The first and the last cell also hold points from outside" in notes_of(release)


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
    with pytest.raises(InputError, match="another CRS"):
        plot_map(town, context=[gpd.GeoSeries([shapely.box(0, 0, 10, 10)], crs=32618)])


def test_cells_that_are_alike_on_a_map_are_not_on_the_ground():
    """On a Mercator map from the equator to 60° north areas shrink to a quarter; together they are the zone's."""
    x, y = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(10.0, 60.0)
    domain = dh.Domain((0, 0, x, y), (10, 100), "EPSG:3857")
    areas = block_areas(domain, [np.arange(n + 1) for n in domain.shape])
    assert areas.shape == domain.shape
    assert areas[0, -1] / areas[0, 0] == pytest.approx(0.25, rel=0.05)
    zone = shapely.segmentize(shapely.box(0, 0, 10, 60), 0.05)
    whole, _ = pyproj.Geod(ellps="WGS84").geometry_area_perimeter(zone)
    assert areas.sum() == pytest.approx(abs(whole) / 1e6, rel=2e-3)


# --- regions ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def city(make):
    """Much in the west, little in the middle, nothing in the east, where there is a hole, too."""
    counts = np.zeros((40, 32), dtype=np.int64)
    counts[:8] = 300
    counts[8:24] = 20
    return make(counts, sources="boundary", rng=np.random.default_rng(5))


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


def test_values_are_points_per_square_kilometre(city):
    found = dh.answer(city, zones_of(city))
    values = values_of(city, found)
    # 40 × 32 cells of 250 m; UTM enlarges lengths by up to a thousandth.
    area = np.array([16.0, 32.0, 32.0 - np.pi * 1.0])
    assert np.allclose(values.value, found["estimate"] / area, rtol=0.01)
    assert np.allclose(values.low, found["low"] / area, rtol=0.01)
    assert values.unit == "points per km²"
    counts = values_of(city, found, per="region")
    assert np.array_equal(counts.value, found["estimate"])
    assert counts.unit == "points per region"


def test_regions_say_which_estimates_they_show(city):
    assert "unbiased" in plot_regions(city, dh.answer(city, zones_of(city))).get_title(loc="left")
    found = dh.answer(city, zones_of(city), nonnegative=True)
    assert city.estimator(True) in plot_regions(city, found).get_title(loc="left")


def test_areas_are_those_of_the_ground():
    """On a Mercator map at 60° north every length is twice as long as on the ground."""
    _, y = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(0.0, 60.0)
    domain = dh.Domain((0, y, 40_000, y + 40_000), (8, 8), "EPSG:3857")
    near = dh.Neighbourhood(domain, 2_400)
    release = dh.publish(np.full((8, 8), 5), near, epsilon=10, weak_protection_accepted=True)
    zone = gpd.GeoDataFrame(geometry=[shapely.box(*domain.bounds)], crs=domain.crs)
    values = values_of(release, dh.answer(release, zone))
    assert values.value == pytest.approx(320 / 400, rel=0.02)


@pytest.mark.parametrize(
    ("estimate", "std_error", "doubtful"),
    [(90, 20, False), (90, 31, False), (30, 16, True), (-5, 10, True), (90, 46, True)],
)
def test_what_does_not_stand_out_is_hatched(city, estimate, std_error, doubtful):
    """Its interval includes zero."""
    answers = made_up(city, [5_000, estimate, 400], [10, std_error, 10])
    assert values_of(city, answers).doubtful.tolist() == [False, doubtful, False]
    ax, notes = regions_of(city, answers)
    hatched = [c for c in ax.collections if c.get_hatch()]
    assert sum(len(c.get_paths()) for c in hatched) == doubtful
    assert ("Hatched" in notes) == doubtful


def test_one_of_many_regions_must_stand_out_from_more_noise(city):
    west, south, east, north = city.domain.bounds
    edges = np.linspace(west, east, 41)
    zones = gpd.GeoDataFrame(geometry=shapely.box(edges[:-1], south, edges[1:], north), crs=city.domain.crs)
    estimate = np.where(np.arange(40) == 7, 27.0, 0.0)
    answers = zones.assign(estimate=estimate, std_error=10.0, low=estimate - 19.6, high=estimate + 19.6)
    assert values_of(city, answers).doubtful.all()
    assert values_of(city, answers.iloc[7:8]).doubtful.tolist() == [False]


def test_values_are_written_on_the_regions(city):
    ax = plot_regions(city, made_up(city, [5_000, 640, 20], [100, 64, 30]))
    written = {text.get_text().split("\n")[0]: text for text in ax.texts}
    assert written["west"].get_text() == "west\n312"
    assert written["east"].get_text() == "east\nup to 2.7"
    assert not any(text.get_parse_math() for text in ax.texts)  # $ is a sign and no formula


def test_names_are_cut_in_the_middle_and_regions_without_one_are_numbered(city):
    answers = dh.answer(city, zones_of(city, names=("a name that is far too long of the west", "$5 or $6", None)))
    names = values_of(city, answers).names
    assert names == ("a name that is far …the west", "$5 or $6", "region 3")


def test_the_frame_is_filled_by_what_is_asked(city):
    west, south, *_ = city.domain.bounds  # 40 × 32 cells of 250 m

    def frame_of(*boxes):
        shapes = shapely.box(*(np.array(boxes).T * 250 + np.array([[west], [south], [west], [south]])))
        zones = gpd.GeoDataFrame(geometry=shapes, crs=city.domain.crs)
        bounds = values_of(city, dh.answer(city, zones)).bounds
        return ((np.array(bounds) - [west, south, west, south]) / 250).tolist()

    assert frame_of((0, 0, 6, 8), (6, 2, 10, 10)) == pytest.approx([0, 0, 10.4, 10.4])
    assert frame_of((0, 0, 40, 32)) == [0, 0, 40, 32]
    low, bottom, high, top = frame_of((10, 2, 11, 30))
    assert (bottom, top) == pytest.approx((0.88, 31.12))
    assert high - low == pytest.approx(14 + 2.24)  # not too narrow


def test_a_region_across_the_seam_of_longitudes_is_drawn_whole():
    seam = 3_339_585  # 180° from 150° E, about which the projection turns
    domain = dh.Domain((seam - 200_000, -2_100_000, seam + 200_000, -1_800_000), (40, 30), "EPSG:3832")
    release = dh.publish(np.full(domain.shape, 90), dh.Neighbourhood(domain, delta="37km"), epsilon=1)
    island = shapely.union(shapely.box(179.7, -17.2, 180, -16.6), shapely.box(-180, -17.2, -179.8, -16.6))
    ax = plot_regions(release, dh.answer(release, gpd.GeoDataFrame(geometry=[island], crs=4326)))
    assert np.ptp(ax.get_xlim()) < 80_000  # 56 km, and the margin
    assert ax.get_xlim()[0] < seam - 33_000 < seam + 22_000 < ax.get_xlim()[1]


def test_a_map_in_which_no_region_stands_out_has_no_colours(city):
    ax, _ = regions_of(city, made_up(city, [10, 20, 30], [50, 50, 50]))
    assert len(ax.figure.axes) == 1  # no bar
    assert len(np.unique(ax.collections[0].get_facecolor(), axis=0)) == 1


def test_rows_are_the_largest_first_and_hollow_if_in_doubt(city):
    ax = new_figure().add_subplot()
    draw_intervals(values_of(city, made_up(city, [640, 5_000, 20], [10, 100, 30]), per="region"), ax, 0.9)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["middle  (1)", "west  (2)", "east  (3)"]
    intervals, dots = ax.collections
    assert dots.get_offsets().tolist() == [[5_000, 0], [640, 1], [20, 2]]
    assert [bool(np.allclose(colour, 1)) for colour in dots.get_facecolor()] == [False, False, True]
    ends = [path.vertices[:, 0].tolist() for path in intervals.get_paths()]
    assert ends[0] == pytest.approx([5_000 - 196, 5_000 + 196])
    assert ends[2] == pytest.approx([0, 20 + 1.96 * 30])  # nothing is less than nothing
    assert ax.get_xlabel() == "points per region, with 90% intervals"


def test_forty_rows_at_most(make):
    release = make(np.full((52, 4), 50), rng=np.random.default_rng(1))
    west, south, _, north = release.domain.bounds
    edges = west + 250.0 * np.arange(52)
    zones = gpd.GeoDataFrame(geometry=shapely.box(edges, south, edges + 250, north), crs=release.domain.crs)
    ax, notes = regions_of(release, answers := dh.answer(release, zones))
    draw_intervals(values_of(release, answers), ax, 0.95)
    assert len(ax.get_yticks()) == 40
    assert "40 largest of 52 regions" in notes


def test_answers_must_be_of_a_frame_on_the_map(city):
    zones = zones_of(city)
    for answers in (dh.answer(city, zones.geometry.tolist()), zones):
        with pytest.raises(InputError, match="answers are"):
            plot_regions(city, answers)
    answers = dh.answer(city, zones)
    with pytest.raises(InputError):
        plot_regions(city, answers, per="cell")
    with pytest.raises(InputError, match="nothing of any region on the map"):
        plot_regions(city, answers.set_geometry(zones.translate(1e6)))
