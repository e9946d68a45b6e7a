"""Budgets that protect nobody: how often a guess is right, who is refused, and what the statement says."""

import re
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.laws import Guarantee
from deltahist.preprocessing import Preprocessing

SQUARE = dh.Domain((0, 0, 4, 4), (4, 4))
NEAR = dh.Neighbourhood(SQUARE, 1)
CELLS = dh.strategies.Identity(SQUARE)
LINE = dh.Neighbourhood(dh.Domain((0, 10), (10,)), 1)


def mechanism(contributions=1, **budget):
    return dh.Mechanism(NEAR, CELLS, dh.Budget(**budget), Preprocessing(contributions))


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"epsilon": 4}, {"rho": 1}, {"rho": 8}])
def test_no_guess_from_the_integer_noise_of_two_cells_is_better(budget):
    """A move takes a point from one cell to the next: total variation by enumeration of both noises."""
    made = mechanism(**budget)
    law, k = made.laws[0], np.arange(-200, 201)
    scale = float(law.parameter)
    weight = np.exp(-np.abs(k) / scale) if law.kind == "laplace" else np.exp(-(k**2) / (2 * scale))
    weight /= weight.sum()
    before, after = np.outer(weight, np.roll(weight, 1)), np.outer(np.roll(weight, 1), weight)
    right = np.maximum(before, after).sum() / 2
    assert right <= made.guarantee.certainty + (0.006 if law.kind == "gaussian" else 1e-9)
    assert [Guarantee(epsilon=Fraction(e)).certainty for e in (0, 2000)] == [0.5, 1.0]
    if budget == {"rho": 1}:  # nearly that of continuous noise, as long as it is not small
        assert right == pytest.approx(made.guarantee.certainty, abs=0.02)


@pytest.mark.parametrize(
    ("made", "weak"),
    [
        (mechanism(epsilon=2.5), None),
        (mechanism(epsilon=3), r"less than one point \(standard deviation 0.83\).* 95.2574% sure"),
        (mechanism(epsilon=6.9, contributions=9), None),  # noise of many points
        (mechanism(epsilon=6.91, contributions=9), "can be 99.9"),
        (mechanism(rho=1.1), None),  # small noise, but hardly anything to be learnt
        (mechanism(rho=4), "less than one point.* 92.135% sure"),
        (mechanism(rho=19.2, contributions=9), "can be 99.9"),
        (dh.kinds.SortedMechanism(LINE, 30, dh.Budget(6)), None),
        (dh.kinds.SortedMechanism(LINE, 30, dh.Budget(7)), "can be 99.9"),
        (dh.kinds.QuantileMechanism(LINE, 0.5, 30, dh.Budget(7)), "can be 99.9"),
    ],
)
def test_what_is_weak(made, weak):
    assert (made.weakness is None) if weak is None else re.search(weak, made.weakness)
