"""Maps of cells: what is drawn is what was published, with units, merged where it is noise."""

import functools
from dataclasses import replace

import numpy as np
import pytest

import deltahist as dh
from deltahist.errors import InputError
from deltahist.plots import plot_map
from deltahist.plots.cells import merge_cells


def test_plain_map_shows_the_cells_where_they_are(town):
    ax = plot_map(town, plain=True)
    picture = ax.images[0]
    assert np.allclose(picture.get_array(), town.cells().T / 0.25**2, rtol=0.002)
    assert tuple(picture.get_extent()) == (580, 590, 4500, 4508)
    assert picture.origin == "lower"
    assert np.array_equal(plot_map(town, plain=True, per="cell").images[0].get_array(), town.cells().T)
    assert ax.get_xlabel() == "easting (km, EPSG:32618)"
    assert ax.get_ylabel() == "northing (km)"
    assert "Estimates: unbiased" in ax.get_title()


def test_a_map_shows_nonnegative_estimates_unless_others_are_asked_for_and_says_which(town, monkeypatch):
    usual, merged = (plot_map(town, per="cell", nonnegative=asked) for asked in (None, False))
    assert np.array_equal(usual.images[0].get_array(), town.cells(nonnegative=True).T)
    assert np.array_equal(merged.images[0].get_array(), merge_cells(town).T)
    assert usual.get_title().startswith("Estimates: non-negative (calibrated)\n")
    assert "Standard error of one cell, unbiased: 2.8 points" in usual.get_title()
    assert bar_of(usual).get_title(loc="left") == "points\nper cell"
    said = " ".join(merged.get_title().split())
    assert "Estimates: unbiased; standard error of one cell: 2.8 points; cells that do not stand out" in said
    monkeypatch.setattr("deltahist.releases.histogram.MOST_NONNEGATIVE", town.domain.size - 1)
    large = plot_map(town, per="cell")
    assert np.array_equal(large.images[0].get_array(), merged.images[0].get_array())
    assert "Estimates: unbiased" in large.get_title()
    asked = plot_map(town, per="cell", nonnegative=True)
    assert np.array_equal(asked.images[0].get_array(), usual.images[0].get_array())


def test_a_map_of_nearest_cells_is_merged_unless_they_are_asked_for(town, monkeypatch):
    """Where the calibrated estimates are not sure of themselves, specks of noise are not shown as places."""
    monkeypatch.setattr("deltahist.releases.histogram.posterior", lambda *given: None)
    unsure = replace(town)
    usual, asked = (plot_map(unsure, per="cell", nonnegative=asked) for asked in (None, True))
    assert np.array_equal(usual.images[0].get_array(), merge_cells(unsure).T)
    assert "Estimates: unbiased" in usual.get_title()
    assert np.array_equal(asked.images[0].get_array(), unsure.cells(nonnegative=True).T)
    assert "Estimates: non-negative (nearest cells)" in asked.get_title()


def test_a_speck_of_noise_is_pale_and_an_even_map_is_not_dark(make):
    """Nearly all of the scale is left to what stands out, however large that is."""
    counts = np.zeros((40, 32), dtype=np.int64)
    counts[8:16, 16:24] = 60
    picture = plot_map(make(counts, rng=np.random.default_rng(1)), per="cell").images[0]
    assert picture.norm(2.8) < 0.15  # one standard error
    assert picture.norm(60) > 0.8
    single = plot_map(make(np.full((1, 1), 40))).images[0]  # nothing to compare it with
    assert 0.3 < single.norm(single.get_array().max()) < 0.95


def bar_of(ax):
    """The axes of the bar of colours."""
    (bar,) = ax.child_axes
    return bar


def test_the_largest_values_are_said_to_be_beyond_the_scale(town):
    bar = bar_of(plot_map(town))
    assert bar.get_title(loc="left") == "points\nper km²"
    labels = [label.get_text() for label in bar.get_yticklabels()]
    assert labels[0] == "0"
    assert labels[-1].startswith("≥ ")
    assert float(labels[-1][2:].replace(",", "")) < town.cells().max() / 0.25**2


def test_a_map_in_which_nothing_stands_out_says_so(make):
    """It shows no noise, whatever is drawn of it, but on demand."""
    release = make(np.ones((30, 24), dtype=np.int64), budget={"epsilon": 0.01}, rng=np.random.default_rng(2))
    for ax in (plot_map(release, nonnegative=asked) for asked in (None, False, True)):
        assert not ax.images
        (words,) = (text.get_text() for text in ax.texts)
        assert words == "Nothing stands out from the noise:\nan even 16 points per km² fits all of it"
    assert plot_map(release, plain=True).images
    tall = make(np.ones((2, 40), dtype=np.int64), budget={"epsilon": 0.001}, rng=np.random.default_rng(2))
    ax = plot_map(tall)  # no room for words on it
    assert not ax.texts
    assert "Nothing stands out" in ax.get_title(loc="left")


def test_the_rim_is_marked_where_points_from_outside_are_counted(make, town):
    ax = plot_map(town)
    assert "Dashed rim: cells there also hold points from outside" in ax.get_title()
    assert ax.spines["left"].get_linestyle() != "-"
    dropped = make(np.ones((8, 8), dtype=np.int64), sources="boundary", dropped=["points outside"])
    ax = plot_map(dropped)
    assert "rim" not in ax.get_title()
    assert ax.spines["left"].get_linestyle() in ("-", "solid")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"per": "region"}, "per is 'region': it must be one of"),
        ({"axes": "miles"}, "axes is 'miles': it must be one of"),
        ({"plain": True, "nonnegative": True}, "plain is given with nonnegative: it draws unbiased estimates; leave"),
    ],
)
def test_other_looks_are_refused(town, wrong, message):
    with pytest.raises(InputError, match=message):
        plot_map(town, **wrong)


def test_a_plane_has_its_own_units(make):
    release = make(np.ones((4, 4), dtype=np.int64), crs=None)
    ax = plot_map(release)
    assert ax.get_xlabel() == "x (units)"
    assert (*ax.get_xlim(), *ax.get_ylim()) == (0, 4, 0, 4)
    assert bar_of(plot_map(release, plain=True)).get_title(loc="left") == "points\nper square unit"


@pytest.mark.parametrize("town_of", ["cells", "hierarchy"])
def test_merging_keeps_sums_and_what_stands_out(town_of, town, make):
    """Blocks are those of a hierarchy, where the strategy is one."""
    release, dense, height = town, np.s_[8:16, 16:24], 200
    if town_of == "hierarchy":
        counts, dense, height = np.zeros((36, 36), dtype=np.int64), np.s_[6:12, 18:24], 30
        counts[dense] = height
        sixths = functools.partial(dh.strategies.Hierarchical, branching=6)
        release = make(counts, strategy=sixths, rng=np.random.default_rng(3))
    shown = merge_cells(release)
    assert shown.sum() == pytest.approx(release.cells().sum())
    assert shown[dense].mean() == pytest.approx(height, abs=3)
    assert np.abs(shown[20:, 24:]).max() < 30  # an empty quarter
    assert len(np.unique(shown)) < release.domain.size / 3
    if release is town:
        assert shown[30, 5] == pytest.approx(5_000, abs=50)


def test_merging_does_not_invent_places(make):
    """Empty maps: something stands out by chance about once in a map; 12 maps with 70 wrong places would not do."""
    places = 0
    for seed in range(12):
        release = make(np.zeros((64, 64), dtype=np.int64), rng=np.random.default_rng(seed))
        places += len(np.unique(merge_cells(release))) - 1
    assert places < 64 * 64 * 12 / 50


@pytest.mark.parametrize("look", [{}, {"nonnegative": False}, {"plain": True}])
def test_one_dimension_is_drawn_as_steps_with_a_band(look):
    """They are not negative unless others are asked for."""
    domain, positive = dh.Domain((0, 50), (50,)), not look
    counts = np.where(np.arange(50) == 30, 90, 0)
    release = dh.publish(counts, dh.Neighbourhood(domain, delta=5), "identity", 0.5, rng=np.random.default_rng(1))
    ax = plot_map(release, **look)
    band, line = ax.patches
    cells, errors = release.estimates(nonnegative=positive)
    assert np.array_equal(line.get_data().values, cells)
    assert np.array_equal(band.get_data().values, cells + errors)
    assert np.array_equal(band.get_data().baseline, np.maximum(cells - errors, 0) if positive else cells - errors)
    assert (cells < 0).any() != positive
    assert ax.get_xlabel() == "x (units)"
    kind = "non-negative (calibrated)" if positive else "unbiased"
    assert ax.get_title().splitlines()[0] == f"Estimates: {kind}"


def test_both_ends_of_a_line_hold_points_from_outside():
    near = dh.Neighbourhood(dh.Domain((0, 50), (50,)), delta=5)
    ax = plot_map(dh.publish_sorted(np.arange(50), near, epsilon=1))
    assert ax.get_title().splitlines() == [
        "Estimates: non-negative (isotonic regression)",
        "The first and the last cell also hold points from outside",
    ]
    assert ax.get_ylabel() == "points per cell of 1 units (estimate)"
    with pytest.raises(InputError, match="the release is of a line"):
        plot_map(dh.publish_sorted(np.arange(50), near, epsilon=1), context=[None])
