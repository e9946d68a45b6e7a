"""Domains and their integer lattice: edges of cells, lengths, moves, clamping, refusals."""

import math

import numpy as np
import pytest
from examples import quiet
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


@pytest.mark.parametrize(
    ("bounds", "cell", "shape", "high"),
    [((0, 0, 1, 1), 0.25, (4, 4), (1, 1)), ((0, 0, 1, 0.45), 0.2, (5, 3), (1, 0.6)), ((2, 3), 0.3, (4,), (3.2,))],
)  # fmt: skip
def test_bounds_are_extended_to_whole_cells(bounds, cell, shape, high):
    domain = dh.Domain(bounds, cell=cell)
    assert domain.shape == shape
    assert domain.high == pytest.approx(high)


@pytest.mark.parametrize(
    ("bounds", "shape", "more"),
    [
        ((1, 0, 0, 1), (2, 2), {}),
        ((0, 1), None, {}),
        ((0, 1), (4,), {"cell": 0.25}),
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


@pytest.mark.parametrize("low", [0.0, 0.1, -1 / 3, 560_000.1])
@pytest.mark.parametrize("side", [1.0, 0.1, 0.7, 250.0])
def test_the_edge_of_a_cell_belongs_to_the_cell_above(low, side):
    # k · side and low + k · side round either way in floats; a lattice step of its own lies around each edge.
    for n in (3, 7, 10, 49, 100, 997):
        domain = dh.Domain((low, low + n * side), (n,))
        k = np.arange(n)
        for edge in (low + k * side, low + k * (n * side) / n, domain.edges(0)[:-1]):
            assert np.array_equal(domain.locate(edge).ravel(), k)


@pytest.mark.parametrize("cells", [(1, math.pi), (math.e, 1), (1, math.sqrt(2) / 1000)])
@pytest.mark.parametrize("times", [1, 37, 1000])
def test_delta_is_understated_on_neither_axis(cells, times):
    # Sides without a simple ratio have steps of slightly different lengths; a tenth of a step is rounding.
    domain = dh.Domain((0, 0, 2000 * cells[0], 2000 * cells[1]), (2000, 2000))
    assert domain.step[0] != domain.step[1]
    assert domain.step[0] == pytest.approx(domain.step[1], rel=1e-8)
    near = quiet(domain, times * max(cells))
    for step in domain.step:
        assert near.radius * step > times * max(cells) - 0.1 * step
        assert near.radius * step <= times * max(cells) * (1 + 1e-8)


@pytest.mark.parametrize("n", [3, 7, 10, 30, 49, 100, 1000])
def test_a_delta_of_k_cells_reaches_k_cells(n):
    domain = dh.Domain((0, 0, 1, 1), (n, n))
    for k in range(1, min(n, 12)):
        for delta in (k / n, k * (1 / n), k * domain.cell[0]):
            near = dh.Neighbourhood(domain, delta)  # and there is no warning
            assert near.reach[0] == min(k, n - 1)
