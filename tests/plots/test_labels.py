"""Labels beside regions that are too small for one: each leads to its region, and none lies on another."""

import itertools

import geopandas as gpd
import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.plots import plot_regions
from deltahist.plots.ground import own_axes
from deltahist.plots.regions import draw_regions, values_of


def squares(release, side, places):
    """Squares of some cells at places in cells, inside one large region."""
    low = np.array(release.domain.low)
    corners = low + 250 * np.array(places, dtype=float)
    small = shapely.box(*corners.T, *(corners + 250 * side).T)
    rest = shapely.box(*low, *release.domain.high).difference(shapely.union_all(small))
    names = ["the rest", *(f"Square {i}" for i in range(len(small)))]
    return gpd.GeoDataFrame({"name": names}, geometry=[rest, *small], crs=release.domain.crs)


def outside_of(ax):
    """Labels outside with the lines that lead to them."""
    return [text for text in ax.texts if text.get_bbox_patch()], list(ax.lines)


def in_dots(ax, line):
    """Both ends of a line, in dots."""
    return ax.transData.transform(np.column_stack(line.get_data()))


@pytest.mark.parametrize("keyed", [False, True])
def test_small_regions_have_labels_outside_that_lead_to_them(make, keyed):
    release = make(np.full((40, 32), 90), rng=np.random.default_rng(1))
    zones = squares(release, 0.3, [(18 + i, 14 + j) for i in range(4) for j in range(3)])
    values = values_of(release, dh.answer(release, zones))
    kept = {"level": 0.95, "axes": "km", "context": (), "keyed": keyed}
    ax = draw_regions(release, values, own_axes(None), **kept)
    labels, lines = outside_of(ax)
    assert len(labels) == len(lines) == 12
    for text, line in zip(labels, lines, strict=True):
        name = text.get_text().split("\n")[0]
        named = values.keys.index(name) if keyed else values.names.index(name)
        (spot, end), box = in_dots(ax, line), text.get_window_extent()
        assert values.shapes[named].contains(shapely.Point(1000 * ax.transData.inverted().transform(spot)))
        assert np.hypot(*(np.clip(end, box.min, box.max) - end)) < 4
    boxes = [shapely.box(*text.get_window_extent().extents) for text in ax.texts]
    frame = shapely.box(*ax.get_window_extent().extents)
    assert all(frame.contains(box) for box in boxes)
    assert not any(one.intersects(two) for one, two in itertools.combinations(boxes, 2))
    ways = [shapely.LineString(in_dots(ax, line)) for line in lines]
    crossed = [way.intersection(box).length for way in ways for box in boxes]
    assert max(crossed) < 1  # dots
    again, _ = outside_of(draw_regions(release, values, own_axes(None), **kept))
    assert [text.get_position() for text in again] == [text.get_position() for text in labels]


def test_a_region_alone_has_its_label_near(make):
    release = make(np.full((40, 32), 90), rng=np.random.default_rng(1))
    zones = squares(release, 1, [(5, 5), (30, 25)])
    ax = plot_regions(release, dh.answer(release, zones))
    _, lines = outside_of(ax)
    lengths = [np.hypot(*np.diff(in_dots(ax, line), axis=0)[0]) for line in lines]
    assert len(lengths) == 2
    assert max(lengths) < 25  # dots: a third of an inch


def test_labels_of_regions_that_overlap_do_not(make):
    release = make(np.full((40, 32), 90), rng=np.random.default_rng(1))
    west, south, *_ = release.domain.bounds
    shapes = shapely.box(west + np.array([0, 500, 800]), south, west + np.array([5000, 5500, 5800]), south + 5000)
    zones = gpd.GeoDataFrame({"name": list("abc")}, geometry=shapes, crs=release.domain.crs)
    ax = plot_regions(release, dh.answer(release, zones))
    boxes = [shapely.box(*text.get_window_extent().extents) for text in ax.texts]
    assert len(boxes) == 3
    assert not any(one.intersects(two) for one, two in itertools.combinations(boxes, 2))


def test_what_there_is_no_room_for_is_told(make):
    """Of very many small regions the largest values are labelled."""
    release = make(np.full((40, 32), 90), rng=np.random.default_rng(1))
    zones = squares(release, 0.9, [(4 * i, 6 * j) for i in range(8) for j in range(5)])
    with pytest.warns(dh.DeltaHistWarning, match="regions have no label on the map: .* each has a number") as told:
        ax = plot_regions(release, dh.answer(release, zones))
    labels, _ = outside_of(ax)
    assert str(told[0].message).startswith(f"{40 - len(labels)} of 41")
    assert 20 < len(labels) <= 30
