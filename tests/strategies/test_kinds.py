"""What holds for every strategy, and what is particular to the paper's."""

import numpy as np
import pytest
import scipy.sparse
from examples import STRATEGIES, random_domain
from hypothesis import given, strategies as st
from scipy.sparse.linalg import aslinearoperator

import deltahist as dh
from deltahist.decode import DenseDecoder
from deltahist.space.workloads import range_gram
from deltahist.strategies import Optimal, ShiftedGrids, Strategy, Tents, dyadic_grids
from deltahist.strategies.grids import choose_greedy_rows
from deltahist.strategies.hierarchical import TreeDecoder
from tests.laws import calibrate

FOUR = dh.Domain((0, 1), (4,))


def dense(A):
    return A.matrix().toarray().tolist()


def test_the_papers_matrices():
    # 2014, Figure 2; doctests show the others.
    assert dense(dh.strategies.Identity(FOUR)) == np.eye(4, dtype=int).tolist()
    assert dense(dh.strategies.Cumulative(FOUR, direction="prefix")) == np.tril(np.ones((4, 4), dtype=int)).tolist()


def four_neighbours(n):
    """Incidence of the paper's Figure 1: moves by one cell along one axis."""
    unit = np.eye(n, dtype=int)
    steps = np.diff(unit, axis=1)
    return scipy.sparse.csc_array(np.hstack([np.kron(steps, unit), np.kron(unit, steps)]))


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
    for row in work.matrix(domain).toarray():
        assert (cuts + abs(row @ near.incidence())).max() > limit


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 6))
def test_shifted_and_dyadic_grids_use_every_multiple_of_the_shift_once(n, shift, times):
    domain = dh.Domain((0, 1), (n,))
    shifted, dyadic = ShiftedGrids(domain, width=shift * times, shift=shift), dyadic_grids(domain, shift)
    assert len(shifted.starts) == times
    for A in (shifted, dyadic):
        lines = np.concatenate([s[0][1:] for s in A.starts])
        assert sorted(lines.tolist()) == list(range(shift, n, shift))


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [("ShiftedGrids", {"widths": (2, 4), "offsets": (0, 2)}), ("ShiftedGrids", {"width": 3, "shift": 1, "m": 4}),
     ("Hierarchical", {"shares": (1, 2, 0)}), ("CutAugmented", {"sets": ((16,),)})],
)  # fmt: skip
def test_bad_parameters_are_refused(kind, parameters):
    with pytest.raises(dh.InputError):
        getattr(dh.strategies, kind)(dh.Domain((0, 1), (16,)), **parameters)


def both(shape, branching, known, shares=None):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    A = dh.strategies.Hierarchical(domain, branching, shares)
    laws = calibrate(A, dh.Neighbourhood(domain, 1), epsilon=1.0)
    return domain, TreeDecoder(A, laws, known), DenseDecoder(A, laws, known)


@pytest.mark.parametrize(("shape", "known"), [((1100,), False), ((40, 27), True)])
def test_large_irregular_trees_state_a_bound_and_say_so(shape, known):
    domain, tree, _ = both(shape, 2, known)
    assert "bound" in tree.note
    work = dh.workloads.all_ranges(domain).sample(40, seed=2)
    solved = tree.solved_moments(work.matrix(domain))
    found = tree.moments(work).variance
    assert (found >= solved.variance * (1 - 1e-9)).all()
    assert np.median(found / solved.variance) < 1.1


@pytest.mark.parametrize(
    ("shape", "branching", "known"), [((13,), 2, False), ((20, 3), 3, True), ((31, 31), 2, True), ((1, 7), 3, False)]
)
def test_irregular_trees_need_no_matrix(shape, branching, known):
    """Variances of boxes and their mean over all ranges, against least squares as it is defined."""
    levels = len(dh.strategies.Hierarchical(dh.Domain((0,) * len(shape) + shape, shape), branching).widths)
    domain, tree, dense = both(shape, branching, known, tuple(range(1, levels + 1)))
    work = dh.workloads.all_ranges(domain)
    assert tree.mean_variance(work) == pytest.approx(dense.mean_variance(work), rel=1e-9)
    some = dh.workloads.random_boxes(40, domain, seed=1)
    assert np.allclose(tree.answer_variance(some), dense.moments(some).variance, rtol=1e-8, atol=1e-12)


def some(name, number=15, seed=1):
    rng = np.random.default_rng([seed, len(name)])
    for _ in range(number):
        domain = random_domain(rng, most=(20, 7))
        yield rng, domain, STRATEGIES[name](rng, domain)


@pytest.mark.parametrize("name", STRATEGIES)
def test_operator_equals_its_matrix(name):
    for rng, domain, A in some(name):
        dense = A.matrix().toarray()
        assert dense.shape == A.shape
        x, X = rng.integers(-9, 9, domain.size), rng.integers(-9, 9, (domain.size, 3))
        y, Y = rng.integers(-9, 9, A.shape[0]), rng.integers(-9, 9, (A.shape[0], 3))
        assert np.array_equal(A @ x, dense @ x)
        assert np.array_equal(A @ X, dense @ X)
        assert np.array_equal(A.T @ y, dense.T @ y)
        assert np.array_equal(A.T @ Y, dense.T @ Y)
        assert np.array_equal(aslinearoperator(A).H @ y, dense.T @ y)
        assert np.array_equal(A.measure(x.reshape(domain.shape)), dense @ x)
        assert np.array_equal(Strategy.matrix(A).toarray(), dense)
        # A kernel's entries have up to 28 binary digits.
        big = rng.integers(0, 2 ** (28 if name == "Spectral" else 40), domain.size)
        assert (A @ big).dtype == dense.dtype == A.dtype == np.int64


@pytest.mark.parametrize("A", [Optimal(dh.Neighbourhood(FOUR, 0.25)), Tents(FOUR, 3)])
def test_more_points_than_exact_answers_hold_are_refused(A):
    counts = np.array([0, 0, A.point_limit - 10**6, 0])
    assert A.measure(counts).tolist() == (A.matrix().toarray().astype(object) @ counts).tolist()
    counts[3] += 2 * 10**6
    with pytest.raises(dh.InputError, match="fewer than") as said:
        A.measure(counts)
    assert f"{counts.sum():,}" not in str(said.value)  # the count is private


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_said_of_determining_cells_is_the_rank(name):
    for _, domain, A in some(name, 30):
        full = np.linalg.matrix_rank(A.matrix().toarray()) == domain.size
        # Saying no of a strategy that happens to be of full rank on a tiny grid is safe; saying yes must be right.
        assert full if A.determines_cells else True
        if domain.ndim == 1 and name != "CutAugmented":
            assert bool(A.determines_cells) == full
