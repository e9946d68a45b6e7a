"""The integer lattice: every coordinate on a cell's edge, every length, every move."""

import math

import numpy as np
import pytest
from examples import quiet
from hypothesis import given, strategies as st

import deltahist as dh


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


LENGTHS = st.floats(0.05, 3)
PLACES = st.floats(-0.5, 1.5)


@given(PLACES, st.booleans(), st.floats(0, 1), st.integers(1, 40), LENGTHS)
def test_raw_moves_within_delta_join_neighbours_on_a_line(start, forwards, share, n, delta):
    domain = dh.Domain((0, 1), (n,))
    near = quiet(domain, delta)
    length = share * (delta - domain.step[0])
    u, v = domain.locate([start, start + length if forwards else start - length]).ravel()
    assert abs(u - v) <= near.reach[0]


@given(
    st.tuples(PLACES, PLACES),
    st.floats(0, 2 * math.pi),
    st.floats(0, 1),
    st.tuples(st.integers(1, 15), st.integers(1, 15)),
    LENGTHS,
)
def test_raw_moves_within_delta_join_neighbours_of_any_aspect(start, angle, share, shape, delta):
    domain = dh.Domain((0, 0, 1, 1), shape)
    near = quiet(domain, delta)
    length = share * (delta - max(domain.step))
    end = (start[0] + length * math.cos(angle), start[1] + length * math.sin(angle))
    dx, dy = np.abs(np.subtract(*domain.locate([start, end]))).tolist()
    assert dx < len(near.reach)
    assert dy <= near.reach[dx]


@pytest.mark.parametrize("n", [3, 7, 10, 30, 49, 100, 1000])
def test_a_delta_of_k_cells_reaches_k_cells(n):
    domain = dh.Domain((0, 0, 1, 1), (n, n))
    for k in range(1, min(n, 12)):
        for delta in (k / n, k * (1 / n), k * domain.cell[0]):
            near = dh.Neighbourhood(domain, delta)  # and there is no warning
            assert near.reach[0] == min(k, n - 1)
