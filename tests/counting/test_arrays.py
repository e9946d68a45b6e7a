"""Counting arrays: the lattice's formula, clamping, dropping, bad input, memory."""

import tracemalloc

import geopandas as gpd
import numpy as np
import pytest
import shapely
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.counting import arrays as module

SQUARE = dh.Domain((0, 0, 10, 10), (10, 10))
LINE = dh.Domain((0, 10), (10,))


def by_definition(points, domain):
    """Counts by `Domain.locate`, one point after the other."""
    counts = np.zeros(domain.shape, dtype=np.int64)
    for place in domain.locate(points):
        counts[tuple(place)] += 1
    return counts


ordinary = st.floats(-5, 15) | st.integers(-5, 15).map(float) | st.integers(0, 100).map(lambda k: k / 10)
extreme = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(ordinary | extreme, ordinary | extreme), max_size=40), st.sampled_from([(10, 10), (7, 13)]))
def test_equals_the_definition(points, shape):
    domain = dh.Domain((0, 0, 10, 10), shape)
    points = np.array(points).reshape(-1, 2)
    with np.errstate(over="ignore"):
        expected = by_definition(points, domain)
    counts = dh.count(points, domain, outside="clamp")
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("number", [0, 1, 2**17, 2**17 + 1, 2**20 + 3])
def test_chunks_make_no_difference(number):
    points = np.random.default_rng(number).uniform(-1, 11, (number, 2))
    cells = SQUARE.locate(points)
    expected = np.bincount(cells[:, 0] * 10 + cells[:, 1], minlength=100).reshape(10, 10)
    np.testing.assert_array_equal(dh.count(points, SQUARE, outside="clamp"), expected)


def test_axis_0_is_x_and_tenths_fall_where_they_should():
    assert np.argwhere(dh.count([[2.5, 7.5]], SQUARE)).tolist() == [[2, 7]]
    tenths = dh.Domain((0, 1), (10,))
    assert np.argwhere(dh.count([0.3], tenths)).tolist() == [[3]]  # 0.3 / 0.1 is 2.9999999999999996


def test_points_outside_are_clamped_or_dropped():
    points = [[-1, 5], [5, 11], [5, 5], [1e308, -1e308]]
    clamped = dh.count(points, SQUARE, outside="clamp")
    assert (clamped.sum(), clamped[9, 0]) == (4, 1)
    dropped = dh.count(points, SQUARE, outside="drop")
    assert (dropped.sum(), dropped[5, 5]) == (1, 1)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.float32, np.float64])
def test_number_types_and_one_dimension(kind):
    values = np.array([0, 3, 3, 9], dtype=kind)
    expected = np.bincount([0, 3, 3, 9], minlength=10)
    np.testing.assert_array_equal(dh.count(values, LINE), expected)
    np.testing.assert_array_equal(dh.count(values[:, None], LINE), expected)


def test_geoseries():
    series = gpd.GeoSeries(shapely.points([[2.5, 7.5], [2.6, 7.4]]))
    assert dh.count(series, SQUARE)[2, 7] == 2
    assert dh.count(series.to_frame("geometry").set_geometry("geometry"), SQUARE)[2, 7] == 2
    with pytest.raises(dh.InputError, match="EPSG:4326"):
        dh.count(series.set_crs(4326), SQUARE)
    with pytest.raises(dh.InputError, match="points"):
        dh.count(series.buffer(1), SQUARE)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([[np.nan, 1], [1, 1], [np.inf, 2]], "2 of 3 points"),
        ([[1, 2, 3]], r"shape \(1, 3\)"),
        ([[1], [1, 2]], "different lengths"),
        ([["a", "b"]], "must be numbers"),
        ([[None, 1.0]], "must be numbers"),
    ],
)
def test_bad_points_are_refused(points, message):
    with pytest.raises(dh.InputError, match=message):
        dh.count(points, SQUARE)


def test_bad_outside_and_a_grid_beyond_memory_are_refused():
    with pytest.raises(dh.InputError, match="outside is 'ignore': it must be one of 'clamp', 'drop', None"):
        dh.count([[1, 1]], SQUARE, outside="ignore")
    with pytest.raises(dh.InputError, match=r"4,000,000,000 cells needs about .* GiB"):
        dh.count([1], dh.Domain((0, 1), (4 * 10**9,)))
    with pytest.raises(dh.InputError, match=r"1,000,000 × 1,000,000 cells is more than the 2\^34"):
        dh.count([[1, 1]], dh.Domain((0, 0, 1, 1), (10**6, 10**6)))


def test_memory_does_not_grow_with_the_points():
    def peak(number):
        points = np.zeros((number, 2))
        tracemalloc.start()
        dh.count(points, SQUARE)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    few, many = peak(module._BLOCK), peak(4 * module._BLOCK)
    assert many < few + 9 * module._BLOCK  # masks of a byte per row, no arrays of coordinates or cells
