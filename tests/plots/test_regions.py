"""Maps of regions: values, which of them stand out, where they are written, and their intervals beside them."""

import itertools

import geopandas as gpd
import numpy as np
import pytest
import shapely
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import deltahist as dh
from deltahist.errors import InputError
from deltahist.plots import plot_intervals, plot_regions
from deltahist.plots.regions import values_of


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
    shapes = shapely.box(
        [west, west + side, west + 3 * side], south, [west + side, west + 3 * side, east], north
    )
    shapes[2] = shapes[2].difference(shapely.Point(east - side, (south + north) / 2).buffer(side / 2))
    return gpd.GeoDataFrame({"name": list(names)}, geometry=shapes, crs=release.domain.crs)


def answered(release, **frame):
    return dh.answer(release, zones_of(release, **frame))


def made_up(release, estimate, std_error):
    """Answers that nobody gave, to see how they are drawn."""
    estimate, std_error = np.array(estimate, dtype=float), np.array(std_error, dtype=float)
    low, high = estimate - 1.96 * std_error, estimate + 1.96 * std_error
    return zones_of(release).assign(estimate=estimate, std_error=std_error, low=low, high=high)


def test_values_are_points_per_square_kilometre(city):
    found = answered(city)
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
    assert plot_regions(city, answered(city)).get_title().startswith("Estimates: unbiased; figures: ")
    asked = zones_of(city)
    asked.loc[2, "geometry"] = None  # not answered: nothing is said of it
    with pytest.warns(dh.DeltaHistWarning):
        found = dh.answer(city, asked, nonnegative=True)
    assert plot_regions(city, found).get_title().startswith(f"Estimates: {city.estimator(True)}; ")


def test_areas_are_those_of_the_ground():
    """On a Mercator map at 60° north every length is twice as long as on the ground."""
    _, y = _mercator(60.0)
    domain = dh.Domain((0, y, 40_000, y + 40_000), (8, 8), "EPSG:3857")
    near = dh.Neighbourhood(domain, 2_400)
    release = dh.publish(np.full((8, 8), 5), near, epsilon=10, weak_protection_accepted=True)
    zone = gpd.GeoDataFrame(geometry=[shapely.box(*domain.bounds)], crs=domain.crs)
    values = values_of(release, dh.answer(release, zone))
    assert values.value == pytest.approx(320 / 400, rel=0.02)


def _mercator(lat):
    import pyproj

    return pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(0.0, lat)


@pytest.mark.parametrize(
    ("estimate", "std_error", "doubtful"),
    [(90, 20, False), (90, 31, True), (30, 16, True), (-5, 10, True), (90, 46, True)],
)
def test_what_does_not_stand_out_is_hatched(city, estimate, std_error, doubtful):
    """Its interval includes zero, or its standard error is above a third of it."""
    answers = made_up(city, [5_000, estimate, 400], [10, std_error, 10])
    assert values_of(city, answers).doubtful.tolist() == [False, doubtful, False]
    ax = plot_regions(city, answers)
    hatched = [c for c in ax.collections if c.get_hatch()]
    assert sum(len(c.get_paths()) for c in hatched) == doubtful
    assert ("Hatched" in ax.get_title()) == doubtful


def test_words_and_intervals_are_written_where_they_fit(city):
    ax = plot_regions(city, made_up(city, [5_000, 640, 20], [100, 64, 30]))
    written = {text.get_text().split("\n")[0]: text for text in ax.texts}
    assert [to_rgb(written[name].get_color())[0] for name in ("west", "east")] == [1.0, 0.0]  # white on dark
    assert written["west"].get_text() == "west\n312\n(300 to 325)"
    assert written["east"].get_text() == "east\nup to 2.7"
    for text in ax.texts:
        box = text.get_window_extent()
        assert ax.get_window_extent().contains(*box.min)
        assert ax.get_window_extent().contains(*box.max)
    names = ("a very long name indeed of the narrowest", "middle", "east")
    ax = plot_regions(city, answered(city, names=names))
    assert not any("very long" in text.get_text() for text in ax.texts)
    assert len(ax.texts) == 3


@pytest.mark.usefixtures("few_fonts")
def test_names_that_no_font_can_write_are_numbered_and_that_is_told_once(city, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **how: seen.extend(each.texts for each in self.axes))
    answers = answered(city, names=("západ", "中", "costs $5 or $6"))
    with pytest.warns(dh.DeltaHistWarning, match="signs for 中: regions named with them .* 'region 3'") as told:
        dh.plots.save_picture(city, tmp_path / "zones.png", "map", answers=answers)
    assert len(told) == 1
    names = {text.get_text().split("\n")[0] for text in itertools.chain(*seen)}
    assert names == {"západ", "region 2", "costs $5 or $6"}  # a name and no formula


@pytest.mark.usefixtures("few_fonts")
def test_regions_keep_their_number_in_whatever_order_they_are_drawn(city):
    answers = answered(city, names=("west", "中", None))
    with pytest.warns(dh.DeltaHistWarning, match="signs for 中"):
        assert values_of(city, answers.iloc[::-1]).names == ("region 3", "region 2", "west")


def test_the_frame_is_filled_by_what_is_asked(city):
    """It is whole cells about the regions, no far longer than wide where the map has room; the rim stays dashed."""
    west, south, *_ = city.domain.bounds  # 40 × 32 cells of 250 m

    def frame_of(*boxes):
        shapes = shapely.box(*(np.array(boxes).T * 250 + np.array([[west], [south], [west], [south]])))
        zones = gpd.GeoDataFrame(geometry=shapes, crs=city.domain.crs)
        ax = plot_regions(city, dh.answer(city, zones))
        low, high = zip(ax.get_xlim(), ax.get_ylim(), strict=True)
        found = np.round((np.array([*low, *high]) * 1000 - [west, south, west, south]) / 250, 6)
        dashed = {side for side, line in ax.spines.items() if line.get_linestyle() not in ("-", "solid")}
        return found.tolist(), dashed, ax

    corner, dashed, ax = frame_of((0, 0, 6, 8), (6, 2, 10, 10))
    assert corner == [0, 0, 11, 11]
    assert dashed == {"left", "bottom"}
    (whole,) = [each for each in ax.child_axes if each.patches and not each.collections]  # an overview
    assert whole.patches[0].get_bbox().bounds == (west, south, 11 * 250, 11 * 250)
    assert frame_of((1, 1, 39, 31))[:2] == ([0, 0, 40, 32], set())  # no cells of the rim
    assert frame_of((10, 2, 11, 30))[0] == [3, 0, 18, 32]  # tall
    assert frame_of((2, 15, 38, 16))[0] == [0, 6, 40, 25]  # wide
    (left, low, right, high), dashed, _ = frame_of((20.5, 20.25, 20.75, 20.5))  # a part of a cell
    assert (left, low, right, high, dashed) == (20, 20, 21, 21, set())


def test_a_region_across_the_seam_of_longitudes_is_drawn_whole():
    seam = 3_339_585  # 180° from 150° E, about which the projection turns
    domain = dh.Domain((seam - 200_000, -2_100_000, seam + 200_000, -1_800_000), (40, 30), "EPSG:3832")
    release = dh.publish(np.full(domain.shape, 90), dh.Neighbourhood(domain, delta="37km"), epsilon=1)
    island = shapely.union(shapely.box(179.7, -17.2, 180, -16.6), shapely.box(-180, -17.2, -179.8, -16.6))
    ax = plot_regions(release, dh.answer(release, gpd.GeoDataFrame(geometry=[island], crs=4326)))
    assert np.ptp(ax.get_xlim()) < 80  # 56 km, and the margin
    assert ax.get_xlim()[0] < seam / 1000 - 33 < seam / 1000 + 22 < ax.get_xlim()[1]


def test_holes_are_not_filled(city):
    ax = plot_regions(city, answered(city))
    outline = ax.collections[0].get_paths()[2]
    around, hole = (shapely.LinearRing(ring) for ring in outline.to_polygons())
    assert shapely.Polygon(around).contains(hole)
    assert shapely.is_ccw(around) != shapely.is_ccw(hole)  # what is wound both ways is outside


def test_a_map_in_which_no_region_stands_out_says_so_and_has_no_colours(city):
    answers = made_up(city, [10, 20, 30], [50, 50, 50])
    ax = plot_regions(city, answers)
    assert "No region stands out from the noise" in ax.get_title()
    assert not ax.child_axes  # no bar
    faces = ax.collections[0].get_facecolor()
    assert len(np.unique(faces, axis=0)) == 1
    assert len(ax.texts) == 3  # how much there may be at most
    rows = plot_intervals(city, answers)
    assert rows.get_xlabel() == "points per km², with 95% intervals"


def test_rows_are_the_largest_first_and_hollow_if_in_doubt(city):
    ax = plot_intervals(city, made_up(city, [640, 5_000, 20], [10, 100, 30]), per="region", level=0.9)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["middle   1", "west   2", "east   3"]
    intervals, sure, doubtful = ax.collections
    assert sure.get_offsets().tolist() == [[5_000, 0], [640, 1]]
    assert doubtful.get_offsets().tolist() == [[20, 2]]
    assert np.allclose(doubtful.get_facecolor()[0], 1)
    ends = [path.vertices[:, 0].tolist() for path in intervals.get_paths()]
    assert ends[0] == pytest.approx([5_000 - 196, 5_000 + 196])
    assert ends[2] == pytest.approx([0, 20 + 1.96 * 30])  # nothing is less than nothing
    assert ax.get_xlabel() == "points per region, with 90% intervals"


def test_neighbours_whose_order_is_open_stand_on_one_band(city):
    answers = made_up(city, [640, 5_000, 20], [10, 100, 30])
    ax = plot_intervals(city, answers.assign(rank=[2, 1, 2]), per="region")
    (band,) = ax.patches
    assert (band.get_y() < 1, band.get_y() + band.get_height() > 2) == (True, True)  # rows 1 and 2, not 0
    assert band.get_y() > 0.5
    hollow = "White dot: does not stand out from the noise"
    assert ax.get_title().splitlines() == ["on one band: order less sure than 95%", hollow]
    ax = plot_intervals(city, answers.assign(rank=[2, 1, 3]), per="region")
    assert (list(ax.patches), ax.get_title()) == ([], hollow)


def test_fifty_rows_at_most(make):
    release = make(np.full((52, 4), 50), rng=np.random.default_rng(1))
    west, south, _, north = release.domain.bounds
    edges = west + 250.0 * np.arange(52)
    zones = gpd.GeoDataFrame(geometry=shapely.box(edges, south, edges + 250, north), crs=release.domain.crs)
    ax = plot_intervals(release, dh.answer(release, zones))
    assert len(ax.get_yticks()) == 50
    assert ax.get_title() == "The 50 largest of 52"


def test_regions_at_the_rim_hold_points_from_outside(make):
    release = make(np.full((10, 10), 20), rng=np.random.default_rng(1))
    west, south, east, north = release.domain.bounds
    inside = gpd.GeoDataFrame(
        geometry=[shapely.box(west, south, east, north).buffer(-251)], crs=release.domain.crs
    )
    assert "rim" not in plot_regions(release, dh.answer(release, inside)).get_title()
    touching = inside.set_geometry(inside.buffer(100))
    assert "Dashed rim" in plot_regions(release, dh.answer(release, touching)).get_title()


def test_answers_must_be_of_a_frame_on_the_map(city):
    with pytest.raises(InputError, match="answers are a DataFrame without geometries"):
        plot_regions(city, dh.answer(city, zones_of(city).geometry.tolist()))
    with pytest.raises(InputError, match=r"no column 'estimate': they must be what dh\.answer"):
        plot_regions(city, zones_of(city))
    with pytest.raises(InputError, match="2 names and 3 regions: give one name each"):
        plot_regions(city, answered(city), names=["a", "b"])
    with pytest.raises(InputError, match="per is 'cell': it must be one of 'area', 'region'"):
        plot_regions(city, answered(city), per="cell")
    with pytest.raises(InputError, match="nothing of any region on the map"):
        plot_regions(city, answered(city).set_geometry(zones_of(city).translate(1e6)))
