"""Strategies that leave cells open: what was measured is kept, the public total goes where nothing was measured."""

from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.decode import DenseDecoder, IterativeDecoder
from deltahist.privacy import Laplace

FOUR = dh.Domain((0, 1), (4,))
NEAR = dh.Neighbourhood(FOUR, 0.25)
COUNTS = np.array([10, 30, 30, 30])


def constrained_least_squares(rows, variance, values, total):
    """Weighted least squares subject to the total, of least norm; by the definition, through a null space."""
    n = rows.shape[1]
    start = np.full(n, total / n)
    free = np.linalg.svd(np.ones((1, n)))[2][1:].T  # directions that leave the total as it is
    weight = 1 / np.sqrt(variance)
    move = np.linalg.pinv(weight[:, None] * rows @ free) @ (weight * (values - rows @ start))
    return start + free @ move


@pytest.mark.parametrize("sets", [((0,),), ((0, 1), (1,)), ((0,), (1,), (2,)), ((1, 2), (2,), (0, 1, 2))])
@pytest.mark.parametrize("kind", [DenseDecoder, IterativeDecoder])
def test_the_total_goes_to_the_cells_that_are_open(sets, kind):
    A = dh.strategies.CutAugmented(FOUR, sets)
    laws = (Laplace(Fraction(2)),)
    values = A.measure(COUNTS) + np.arange(len(sets))
    found = kind(A, laws, True)
    expected = constrained_least_squares(A.matrix().toarray(), found.draw_variance, values, 100)
    assert np.allclose(found.estimate(values, 100), expected, atol=1e-6)


def test_a_measured_cell_keeps_its_noise_and_its_estimate():
    A = dh.strategies.CutAugmented(FOUR, ((0,),))
    release = dh.publish(COUNTS, NEAR, A, 200.0, weak_protection_accepted=True)
    row = dh.answer(release, dh.workloads.boxes([[0, 0.25]])).iloc[0]
    assert row["estimate"] == pytest.approx(10)
    assert row["unresolved"] == 0
    noisy = dh.publish(COUNTS, NEAR, A, 1.0)
    row = dh.answer(noisy, dh.workloads.boxes([[0, 0.25]])).iloc[0]
    assert row["std_error"] == pytest.approx(noisy.laws[0].variance() ** 0.5)
