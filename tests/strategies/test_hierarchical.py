"""Nested grids: the passes up and down, their closed forms, and the small corrections."""

import numpy as np
import pytest

import deltahist as dh
from deltahist.decode import DenseDecoder
from deltahist.strategies.hierarchical import TreeDecoder
from tests.laws import calibrate


def both(shape, branching, known=False, shares=None, budget=None):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    A = dh.strategies.Hierarchical(domain, branching, shares)
    laws = calibrate(A, dh.Neighbourhood(domain, 1), **(budget or {"epsilon": 1.0}))
    return domain, TreeDecoder(A, laws, known), DenseDecoder(A, laws, known)


@pytest.mark.parametrize(("shape", "branching"), [((64,), 2), ((16, 16), 2), ((8, 16), 2), ((27, 9), 3)])
@pytest.mark.parametrize(("known", "budget"), [(False, {"epsilon": 0.3}), (True, {"rho": 2.0})])
def test_closed_forms_of_regular_trees_are_exact(shape, branching, known, budget):
    levels = {(64,): 7, (16, 16): 5, (8, 16): 5, (27, 9): 4}[shape]
    domain, tree, dense = both(shape, branching, known, tuple(range(1, levels + 1)), budget)
    work = dh.workloads.all_ranges(domain).sample(300, seed=1)
    if tree.regular:
        assert tree.note == "exact"
        assert np.allclose(tree.moments(work).variance, dense.moments(work).variance, rtol=1e-9, atol=1e-9)
    else:
        assert (tree.moments(work).variance >= dense.moments(work).variance * (1 - 1e-9)).all()


@pytest.mark.parametrize(("shape", "known"), [((1100,), False), ((40, 27), True)])
def test_large_irregular_trees_state_a_bound_and_say_so(shape, known):
    domain, tree, _ = both(shape, 2, known)
    assert "bound" in tree.note
    work = dh.workloads.all_ranges(domain).sample(40, seed=2)
    solved = tree.solved_moments(work.matrix(domain))
    found = tree.moments(work).variance
    assert (found >= solved.variance * (1 - 1e-9)).all()
    assert np.median(found / solved.variance) < 1.1


@pytest.mark.parametrize("shape", [(13,), (7, 5), (20, 3), (31, 31), (1, 7)])
@pytest.mark.parametrize("branching", [2, 3])
@pytest.mark.parametrize("known", [False, True])
def test_irregular_trees_need_no_matrix(shape, branching, known):
    """Variances of boxes and their mean over all ranges, against least squares as it is defined."""
    levels = len(dh.strategies.Hierarchical(dh.Domain((0,) * len(shape) + shape, shape), branching).widths)
    domain, tree, dense = both(shape, branching, known, tuple(range(1, levels + 1)))
    work = dh.workloads.all_ranges(domain)
    assert tree.mean_variance(work) == pytest.approx(dense.mean_variance(work), rel=1e-9)
    some = dh.workloads.random_boxes(40, domain, seed=1)
    assert np.allclose(tree.answer_variance(some), dense.moments(some).variance, rtol=1e-8, atol=1e-12)
