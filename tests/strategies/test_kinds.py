"""What is particular to each strategy."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.space.workloads import range_gram
from deltahist.strategies import Hierarchical, ShiftedGrids, dyadic_grids
from deltahist.strategies.grids import choose_greedy_rows, list_boxes

FOUR = dh.Domain((0, 1), (4,))


def dense(A):
    return A.matrix().toarray().tolist()


def test_the_papers_matrices():
    # 2014, Figure 2, but for H_4, which is printed there as the identity, and the order of Y_4's rows.
    S = dh.strategies
    assert dense(S.Identity(FOUR)) == np.eye(4, dtype=int).tolist()
    assert dense(S.Cumulative(FOUR)) == np.triu(np.ones((4, 4), dtype=int)).tolist()
    assert dense(S.Cumulative(FOUR, direction="prefix")) == np.tril(np.ones((4, 4), dtype=int)).tolist()
    assert sorted(dense(S.Wavelet(FOUR))) == sorted([[0, 0, 1, -1], [1, -1, 0, 0], [1, 1, -1, -1], [1, 1, 1, 1]])
    assert dense(S.Hierarchical(FOUR))[:3] == [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]]


def four_neighbours(n):
    """Incidence of the paper's Figure 1: moves by one cell along one axis."""
    index = np.arange(n * n).reshape(n, n)
    ends = np.concatenate(
        [
            np.column_stack([index[1:].ravel(), index[:-1].ravel()]),
            np.column_stack([index[:, 1:].ravel(), index[:, :-1].ravel()]),
        ]
    )
    column = np.arange(len(ends))
    values = np.concatenate([np.ones(len(ends), dtype=int), -np.ones(len(ends), dtype=int)])
    return scipy.sparse.csc_array((values, (ends.T.ravel(), np.tile(column, 2))), shape=(n * n, len(ends)))


def squares(n, corners):
    index = np.arange(n * n).reshape(n, n)
    rows = np.zeros((len(corners), n * n), dtype=int)
    for row, (i, j) in zip(rows, corners, strict=True):
        row[index[i : i + 2, j : j + 2].ravel()] = 1
    return rows


def test_figure_1_is_reproduced():
    n = 8
    base = squares(n, [(i, j) for i in range(0, n, 2) for j in range(0, n, 2)])
    corners = [(i, j) for i in range(n - 1) for j in range(n - 1)]
    edges = four_neighbours(n)
    gram = range_gram(dh.Domain((0, 0, 1, 1), (n, n)))
    added = {corners[k] for k in choose_greedy_rows(base, edges, squares(n, corners), gram)}
    assert added == {(i, j) for i in range(1, n - 1, 2) for j in range(1, n - 1, 2)}
    both = np.concatenate([base, squares(n, sorted(added))])
    assert abs(base @ edges).sum(axis=0).max() == abs(both @ edges).sum(axis=0).max() == 2


def test_greedy_rows_cost_nothing_help_and_leave_no_room():
    domain = dh.Domain((0, 1), (12,))
    near = dh.Neighbourhood(domain, delta=1 / 12, sources="left")
    # Cells and aligned pairs: edges between pairs are cut four times, those inside a pair twice.
    base = dh.strategies.CutAugmented(domain, [(i,) for i in range(12)] + [(i, i + 1) for i in range(0, 12, 2)])
    A = dh.strategies.CutAugmented.greedy(base, near)
    work = dh.workloads.all_ranges(domain)
    assert dh.sensitivity(A, near) == dh.sensitivity(base, near)
    assert dh.expected_error(A, near, work).sum() < 0.9 * dh.expected_error(base, near, work).sum()
    limit, cuts = 4, abs(A.matrix() @ near.incidence()).sum(axis=0)
    for cells in list_boxes(domain):
        row = np.zeros(12, dtype=int)
        row[list(cells)] = 1
        assert (cuts + abs(row @ near.incidence())).max() > limit


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


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("ShiftedGrids", {"widths": (2, 4), "offsets": (0, 2)}),
        ("ShiftedGrids", {"width": 3, "shift": 1, "m": 4}),
        ("Hierarchical", {"shares": (1, 2, 0)}),
        ("CutAugmented", {"sets": ((16,),)}),
    ],
)
def test_bad_parameters_are_refused(kind, parameters):
    with pytest.raises(dh.InputError):
        getattr(dh.strategies, kind)(dh.Domain((0, 1), (16,)), **parameters)
