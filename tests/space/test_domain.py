"""Domain: lattice, clamping, ground metres, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh


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
    ("bounds", "shape", "more"),
    [
        ((1, 0, 0, 1), (2, 2), {}),
        ((0, 0, math.nan, 1), (2, 2), {}),
        ((0, 1), (2, 2), {}),
        ((0, 1), (0,), {}),
        ((0, 1), (10**12,), {}),
        ((2**60, 2**60 + 5000), (10,), {}),  # floats are further apart than lattice steps
        ((0, 1), (2,), {"crs": "EPSG:32618"}),
        ((0, 8), (8,), {"scale": 2}),
    ],
)
def test_bad_domains_are_refused(bounds, shape, more):
    with pytest.raises(dh.InputError):
        dh.Domain(bounds, shape, **more)
