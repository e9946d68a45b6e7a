"""Answers: boxes, polygons, intervals."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import shapely

import deltahist as dh
from deltahist.answers import rank
from deltahist.decode import Moments, interval
from deltahist.laws import Laplace
from deltahist.releases.series import Difference
from deltahist.space.workloads import in_parts

DOMAIN = dh.Domain((0, 0, 8, 8), (8, 8))
COUNTS = np.random.default_rng(1).integers(0, 50, (8, 8))


def exact(strategy=None, sources=None):
    """A release with hardly any noise."""
    A = dh.strategies.Identity(DOMAIN) if strategy is None else strategy
    return dh.publish(COUNTS, dh.Neighbourhood(DOMAIN, 1.0, sources), A, 1000.0, weak_protection_accepted=True)


def test_boxes_count_whole_cells_and_cut_ones_by_area_and_say_what_could_be():
    table = dh.answer(exact(), dh.workloads.boxes([[0, 0, 8, 8], [1, 2, 4, 3], [7, 7, 8, 8]]))
    assert np.allclose(table["estimate"], [COUNTS.sum(), COUNTS[1:4, 2].sum(), COUNTS[7, 7]])
    assert list(table.columns) == ["estimate", "std_error", "low", "high"]
    table = dh.answer(exact(), dh.workloads.boxes([[0.5, 0, 2, 1.25], [0.25, 0.25, 0.5, 0.75]]))
    share = 0.5 * COUNTS[0, 0] + COUNTS[1, 0] + 0.25 * (0.5 * COUNTS[0, 1] + COUNTS[1, 1])
    assert table["estimate"].tolist() == pytest.approx([share, COUNTS[0, 0] / 8], abs=1e-6)
    assert table["inner"].tolist() == pytest.approx([COUNTS[1, 0], 0])
    assert table["outer"].tolist() == pytest.approx([COUNTS[0:2, 0:2].sum(), COUNTS[0, 0]])


def test_polygons_count_by_exact_area_shares():
    triangle = shapely.Polygon([(0.3, 0.2), (7.1, 1.4), (3.3, 6.9)])
    ring = shapely.Point(4, 4).buffer(3).difference(shapely.Point(4, 4).buffer(1))
    table = dh.answer(exact(), dh.workloads.regions([triangle, ring], ["triangle", "ring"]))
    for name, shape in (("triangle", triangle), ("ring", ring)):
        i, j = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
        cells = shapely.box(i, j, i + 1, j + 1)
        share = shapely.area(shapely.intersection(cells, shape))
        assert table.loc[name, "estimate"] == pytest.approx((share * COUNTS).sum(), rel=1e-9)
        assert table.loc[name, "outer"] == pytest.approx(COUNTS[share > 0].sum())
        assert table.loc[name, "inner"] == pytest.approx(COUNTS[share > 1 - 1e-12].sum())


def test_undetermined_strategies_state_what_is_unresolved():
    release = exact(dh.strategies.ShiftedGrids(DOMAIN, width=4, shift=2))
    table = dh.answer(release, dh.workloads.boxes([[0, 0, 4, 4], [0, 0, 1, 1]]))
    assert table["unresolved"][0] == 0
    assert table["unresolved"][1] > 0.5


def test_a_frame_is_answered_row_by_row_whatever_its_index_and_columns():
    import geopandas as gpd

    shapes = [shapely.box(0, 0, 2, 2), shapely.box(2, 2, 5, 5), shapely.box(0, 0, 8, 8)]
    frame = gpd.GeoDataFrame({"Note": "abc", "Note_region": 1}, geometry=shapes, index=[7, 7, 3])
    plain = dh.answer(exact(), shapes)
    with pytest.warns(dh.errors.DeltaHistWarning, match="Note to Note_region_region"):
        found = dh.answer(exact(), frame)
    assert list(found.index) == [7, 7, 3]
    assert list(found["Note_region_region"]) == ["abc"] * 3
    assert list(found["Note_region"]) == [1] * 3
    assert list(found["estimate"]) == list(plain["estimate"])
    assert list(frame.columns) == ["Note", "Note_region", "geometry"]
    with pytest.warns(dh.errors.DeltaHistWarning, match="estimate_region"):
        again = dh.answer(exact(), found)
    assert list(again["high_region"]) == list(found["high"])


REACHING = [shapely.box(-2, 0.5, 2, 3), shapely.box(1, 1, 3, 3), None, shapely.box(20, 0, 21, 1)]


def test_regions_that_reach_outside_are_answered_for_the_part_inside():
    release = dh.publish(COUNTS, dh.Neighbourhood(DOMAIN, 1.0), dh.strategies.Hierarchical(DOMAIN), 0.5)
    with pytest.warns(dh.errors.DeltaHistWarning, match="3 of 4 regions are clipped"):
        found = dh.answer(release, REACHING, level=0.9)
    expected = dh.answer(release, dh.workloads.regions([shapely.box(0, 0.5, 2, 3), REACHING[1]]), level=0.9)
    columns = list(expected.columns)
    assert list(found.columns) == [*columns, "outside", "note"]
    assert {"std_error", "low", "high", "placement_error"} <= set(columns)
    assert np.allclose(found[columns][:2], expected)
    assert found[columns][2:].isna().all(axis=None)
    assert found["outside"].tolist()[:2] == [0.5, 0]
    assert found["note"].isna().tolist() == [False, True, False, False]
    assert list(found.index) == list("0123")


@pytest.mark.parametrize("scale", [1, 3, 5])
@pytest.mark.parametrize("draws", [1, 4])
def test_whole_noise_is_held_by_whole_numbers(scale, draws):
    law = Laplace(Fraction(scale))
    k = np.arange(-400, 401)
    pmf = np.exp(-np.abs(k) / scale)
    pmf /= pmf.sum()
    total = pmf
    for _ in range(draws - 1):
        total = np.convolve(total, pmf, mode="same")
    variance = np.array([draws * law.variance()])
    moments = Moments(variance, np.array([law.kurtosis() / draws]), draws=np.array([float(draws)]))
    down, up = interval(moments, law, 0.95)
    # The truth, estimate − noise, lies in [estimate − down, estimate + up].
    held = total[(k <= down[0]) & (k >= -up[0])].sum()
    assert 0.94 < held < 0.96
    if variance[0] <= 16:  # the exact law is used: no other number of integers comes nearer
        best = min(abs(total[(k >= -b) & (k <= a)].sum() - 0.95) for a in range(60) for b in (a, a + 1))
        assert abs(held - 0.95) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("name", ["flow", "hierarchical"])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_nonnegative_answers_have_the_unbiased_interval_cut_to_counts_that_can_be(name, level):
    near = dh.Neighbourhood(dh.Domain((0, 0, 16, 16), (16, 16)), 1)
    counts = np.random.default_rng(5).poisson(0.2, (16, 16))
    release = dh.publish(counts, near, name, 0.5, rng=np.random.default_rng(3))
    work = [[0, 0, 16, 16], *([x, y, x + 4, y + 7] for x in range(12) for y in range(9))]
    found, unbiased = (dh.answer(release, work, level=level, nonnegative=kind) for kind in (True, False))
    assert found["std_error"].equals(unbiased["std_error"])
    assert found["std_error"][0] == 0
    low, high = (unbiased[end].clip(0, release.total) for end in ("low", "high"))
    assert np.allclose(found["low"], np.minimum(low, found["estimate"]))
    assert np.allclose(found["high"], np.maximum(high, found["estimate"]))


@pytest.mark.parametrize("strategy", ["flow", "tents"])
def test_answers_in_parts_are_those_in_one(strategy, monkeypatch):
    """Regions and boxes are answered some at a time, and large maps keep sums of blocks: nothing else changes."""
    rng = np.random.default_rng(8)
    near = dh.Neighbourhood(dh.Domain((0, 0, 30, 20), (30, 20)), 2)
    release, later = (dh.publish(rng.poisson(9, (30, 20)), near, strategy, epsilon=1, rng=rng) for _ in range(2))
    low, high = np.sort(rng.uniform((0, 0), (30, 20), (2, 20, 2)), axis=0)
    corners = np.hstack([low, high])
    corners[::4] = np.hstack([np.floor(low), np.ceil(high)])[::4]
    change, shapes = Difference(release, later), shapely.box(*corners.T)
    for source, work in ((release, shapes), (release, shapes[::4]), (release, corners), (change, shapes)):
        release.precompute_sums()
        expected = dh.answer(source, work)
        with monkeypatch.context() as small:
            small.setattr("deltahist.space.workloads.in_parts", lambda sizes, _: in_parts(sizes, 40))
            small.setattr("deltahist.releases.histogram._CELLS_AT_A_TIME", 40)
            small.setattr("deltahist.releases.histogram._BOXES_AT_A_TIME", 3)
            small.setattr("deltahist.releases.histogram._MOST", 300)
            release.precompute_sums()
            pd.testing.assert_frame_equal(dh.answer(source, work), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("strategy", "side", "delta"),
    [("flow", 40, 3), ("tents", 90, 3), ("wavelet", 64, 1)],
)  # fmt: skip
def test_a_prepared_answer_to_a_box_is_the_same_alone_and_with_others(strategy, side, delta):
    """To the last bit, in any company, and whatever was asked before; some boxes cut cells and others do not."""
    rng = np.random.default_rng(6)
    near = dh.Neighbourhood(dh.Domain((0, 0, side, side), (side, side)), delta)
    release = dh.publish(rng.poisson(20, (side, side)), near, strategy, epsilon=1, rng=rng)
    release.precompute_sums()
    made = list(vars(release._unbiased_sums))
    low, high = np.sort(rng.uniform(0, side, (2, 60, 2)), axis=0)
    corners = np.hstack([low, high])
    corners[::3] = np.hstack([np.floor(low), np.ceil(high)])[::3]

    def ask(some):
        return release.answer_workload(dh.workloads.boxes(corners[some]), level=0.9)

    alone, *parts = ([ask(some) for some in np.array_split(np.arange(60), number)] for number in (60, 31, 7, 2, 1))
    for name in ("estimate", "std_error", "low", "high"):
        own = np.concatenate([each[name] for each in alone])
        for found in parts:
            assert np.array_equal(np.concatenate([each[name] for each in found]), own), name
    assert list(vars(release._unbiased_sums)) == made


def test_ranks_come_from_joint_errors():
    """100 cells of 100 points, and 90 of them: noise of 32 a cell, 316 and 300 in all, but 100 in the difference."""
    domain = dh.Domain((0, 0, 10, 10), (10, 10))
    near = dh.Neighbourhood(domain, 1, sources="boundary")
    release = dh.publish(np.full((10, 10), 100), near, "identity", rho=0.001, rng=np.random.default_rng(3))
    found = rank(release, [[0, 0, 10, 9], [0, 0, 10, 10], [0, 0, 1, 1]])
    assert found["rank"].tolist() == ["2", "1", "3"]
    gap = found["estimate"][1] - found["estimate"][0]
    assert gap < 2.4 * np.hypot(*found["std_error"][:2])  # errors that are apart would not tell


def test_ranks_know_that_places_in_cells_are_not_known():
    """Whole cells of 1,000 and 1,060 points can be told apart, halves of them cannot: nobody knows where points lie."""
    near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    release = dh.publish(np.tile([1000, 1060], 4), near, "identity", epsilon=2, rng=np.random.default_rng(1))
    assert rank(release, [[0, 1], [1, 2]])["rank"].tolist() == ["2", "1"]
    assert rank(release, [[0, 0.5], [1, 1.5]])["rank"].tolist() == ["1 to 2", "1 to 2"]


CORNERS = [[5, 0, 3, 1], [0, 0, 0, 1], [-1, 0, 1, 1], [0, 0, math.nan, 1], [0, 1], [0, 1, 2]]
SHAPES = [shapely.Point(0, 0), shapely.box(10, 0, 20, 1), shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])]


@pytest.mark.parametrize(
    ("make", "queries"),
    [
        *[(dh.workloads.boxes, [corners]) for corners in CORNERS],
        *[(dh.workloads.regions, [shape]) for shape in SHAPES],
        (dh.workloads.regions, []),
    ],
)
def test_queries_that_are_not_in_the_domain_are_refused(make, queries):
    with pytest.raises(dh.InputError):
        dh.answer(exact(), make(queries))


def test_a_table_without_geometries_is_refused():
    with pytest.raises(AttributeError, match="geometry"):
        dh.answer(exact(), pd.DataFrame({"south": [0], "west": [0], "north": [1], "east": [1]}))


def test_simultaneous_intervals_share_the_chance_of_error():
    release = dh.publish(COUNTS, dh.Neighbourhood(DOMAIN, 1.0), epsilon=1.0)
    work = dh.workloads.random_boxes(10, DOMAIN)
    pd.testing.assert_frame_equal(
        dh.answer(release, work, level=0.9, simultaneous=True), dh.answer(release, work, level=0.99)
    )
