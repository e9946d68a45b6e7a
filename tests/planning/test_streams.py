"""Figures of a stream: costs of sums by exact arithmetic, errors by variances."""

from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.planning.advice import stream_figures
from deltahist.preprocessing import Clock

NEAR = dh.Neighbourhood(dh.Domain((0, 0, 10, 10), (5, 5)), 2, "boundary", [("any", 4)])
STEP = dh.Mechanism(NEAR, dh.strategies.Identity(NEAR.domain), dh.Budget(Fraction(2, 5)))
WEEKS, SPANS = Clock.of("2020-03-01", "1w"), [(4, Fraction(2)), (8, Fraction(16, 5))]


def test_sums_cost_what_their_steps_cost_and_have_independent_noise():
    boxes = dh.workloads.boxes([[0, 0, 4, 6], [4, 4, 10, 10]])
    found = stream_figures(STEP, SPANS, WEEKS, 52, boxes)
    assert [(each.name, each.steps, each.limit) for each in found] == [
        ("step", 1, None), ("window", 4, 2), ("window", 8, Fraction(16, 5)), ("month", 4, 2), ("year", 52, None),
        ("all", 52, None),
    ]  # fmt: skip
    for each in found:
        assert each.cost == each.steps * Fraction(2, 5)
        variance = each.steps * STEP.variance(boxes)
        assert each.error == pytest.approx(np.sqrt(variance.mean()), rel=1e-12)
