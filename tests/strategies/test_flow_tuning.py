"""How a flow is tuned: the least value of a function, and sums of which a part is cut."""

import math

import numpy as np
import pytest

from deltahist.strategies.flow.lines import sums_before
from deltahist.strategies.flow.tuning import lowest


@pytest.mark.parametrize("edges", [[0, 3, 6], [0, 2.5, 6], [0.25, 5.75]], ids=["whole", "one is cut", "all are cut"])
def test_sums_before_an_edge_take_a_part_of_what_is_cut(edges):
    before = np.random.default_rng(1).normal(size=(7, 3))
    expected = [np.interp(edges, np.arange(7), column) for column in before.T]
    assert sums_before(before, np.array(edges, dtype=float)) == pytest.approx(np.stack(expected, axis=1))


@pytest.mark.parametrize("bottom", [0.0, 0.31, 2.0, 5.9, 6.0])
@pytest.mark.parametrize("shape", [abs, math.sqrt, lambda x: x**2, lambda x: x**4], ids=["|x|", "root", "square", "4"])
def test_the_least_value_is_found_wherever_it_lies(bottom, shape):
    asked = []

    def function(x):
        asked.append(x)
        return shape(abs(x - bottom))

    value, place = lowest(function, 0.0, 6.0, 0.01)
    assert abs(place - bottom) < 0.01
    assert value == function(place)
    assert all(0 <= x <= 6 for x in asked)
    assert len(set(asked)) <= 17  # every step costs one value more
