"""Domain: lattice, clamping, ground metres, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.space.domain import read_length


def test_points_outside_are_clamped():
    domain = dh.Domain((0, 0, 1, 2), (4, 4))
    assert domain.locate([[-5, 9], [1, 2], [0, 0]]).tolist() == [[0, 3], [3, 3], [0, 0]]


@given(
    st.lists(st.tuples(st.floats(-2, 3), st.floats(-2, 3)), min_size=1, max_size=20),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_flat_cells_are_those_of_the_lattice(points, nx, ny):
    domain = dh.Domain((0, 0, 1, 1), (nx, ny))
    array = np.array(points)
    flat = domain.flat_cells([array[:, 0], array[:, 1]])
    cells = domain.locate(array)
    assert np.array_equal(flat, cells[:, 0] * ny + cells[:, 1])
    assert np.array_equal(cells, domain.lattice(array) // np.array(domain.steps))


@given(st.floats(-1, 2), st.floats(-1, 2), st.floats(-1, 2), st.floats(-1, 2))
def test_clamping_never_lengthens_a_move(x, y, u, v):
    domain = dh.Domain((0, 0, 1, 1), (10, 10))
    a, b = domain.lattice([[x, y], [u, v]])
    raw = math.hypot(x - u, y - v) / domain.step[0]
    assert math.hypot(*(a - b)) <= raw + 2


@pytest.mark.parametrize(
    ("bounds", "cell", "shape", "high"),
    [
        ((0, 0, 1, 1), 0.25, (4, 4), (1, 1)),
        ((0, 0, 1, 0.45), 0.2, (5, 3), (1, 0.6)),
        ((2, 3), 0.3, (4,), (3.2,)),
    ],
)
def test_bounds_are_extended_to_whole_cells(bounds, cell, shape, high):
    domain = dh.Domain.from_cell(bounds, cell)
    assert domain.shape == shape
    assert domain.high == pytest.approx(high)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"bounds": (1, 0, 0, 1), "shape": (2, 2)}, "west, south, east, north"),
        ({"bounds": (0, 0, 0, 1), "shape": (2, 2)}, "must be less than"),
        ({"bounds": (0, 0, math.nan, 1), "shape": (2, 2)}, "nan"),
        ({"bounds": (0, 0, math.inf, 1), "shape": (2, 2)}, "inf"),
        ({"bounds": (0, 1), "shape": (2, 2)}, "shape"),
        ({"bounds": (0, 1, 2), "shape": (2,)}, "they must be"),
        ({"bounds": (0, 1), "shape": (0,)}, "at least 1"),
        ({"bounds": (0, 1), "shape": (2.5,)}, "2.5"),
        ({"bounds": (0, 1), "shape": (10**12,)}, "lattice"),
        ({"bounds": (0, 1), "shape": (2,), "crs": "EPSG:32618"}, "2-D"),
        ({"bounds": (0, 1e-303), "shape": (10,)}, "must hold a lattice step"),
        ({"bounds": (2**60, 2**60 + 5000), "shape": (10,)}, "must hold a lattice step"),
        ({"bounds": (0, 8), "shape": (8,), "scale": 0.5}, "without a CRS"),
        ({"bounds": (0, 8), "shape": (8,), "scale": 2}, "without a CRS"),
    ],
)
def test_bad_domains_are_refused_by_name(parameters, words):
    with pytest.raises(dh.InputError, match=words) as caught:
        dh.Domain(**parameters)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["m", "x250m", "250 miles"])
def test_lengths_are_numbers_with_or_without_a_unit(text):
    assert (read_length("250m"), read_length("2.5e2"), read_length(250)) == (250, 250, 250)
    with pytest.raises(dh.InputError, match=r"such as 250m"):
        read_length(text)
