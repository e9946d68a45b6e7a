"""Strategies of whole grids of boxes."""


import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.strategies import Hierarchical, ShiftedGrids, dyadic_grids


@given(st.integers(1, 60), st.integers(1, 7))
def test_dyadic_grids_use_every_multiple_of_delta_once(n, spacing):
    A = dyadic_grids(dh.Domain((0, 1), (n,)), spacing)
    lines = np.concatenate([s[0][1:] for s in A.starts])
    assert sorted(lines.tolist()) == list(range(spacing, n, spacing))


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 6))
def test_shifted_grids_use_every_multiple_of_the_shift_once(n, shift, times):
    A = ShiftedGrids(dh.Domain((0, 1), (n,)), width=shift * times, shift=shift)
    assert len(A.starts) == times
    lines = np.concatenate([s[0][1:] for s in A.starts])
    assert sorted(lines.tolist()) == list(range(shift, n, shift))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 7))
def test_hierarchies_are_nested_from_the_whole_domain_to_the_cells(nx, ny, branching):
    A = Hierarchical(dh.Domain((0, 0, nx, ny), (nx, ny)), branching)
    assert A.blocks[0] == (1, 1)
    assert A.blocks[-1] == (nx, ny)
    for coarse, fine in zip(A.starts[:-1], A.starts[1:], strict=True):
        assert all(set(c) <= set(f) for c, f in zip(coarse, fine, strict=True))


@pytest.mark.parametrize("size", [10**9, 10**19, 10**30])
def test_blocks_beyond_the_domain_are_one_block(size):
    domain = dh.Domain((0, 0, 1, 1), (4, 4))
    A = ShiftedGrids(domain, widths=(size, 2), offsets=(size // 2, 1))
    assert A.blocks == ((1, 1), (3, 3))
    assert Hierarchical(domain, size).shape == (17, 16)
