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
