"""The least value of a function of one number."""

import math

import pytest

from deltahist.strategies.flow.tuning import lowest


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
