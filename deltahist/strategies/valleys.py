"""The least value of a function, by its values alone: `scipy.optimize` takes longer to import than maps to plan."""

from __future__ import annotations

import math
from collections.abc import Callable

#: What is left of an interval after each step: then one of two places inside is a place of the next step too.
_GOLDEN = (math.sqrt(5) - 1) / 2


def lowest(function: Callable[[float], float], low: float, high: float, width: float) -> tuple[float, float]:
    """Return the least value of a function with one valley, and its place, by golden section to a width.

    >>> value, place = lowest(lambda x: (x - 2) ** 2 + 1, 0, 10, 1e-3)
    >>> round(value, 5), round(place, 2)
    (1.0, 2.0)
    """
    left, right = (
        (function(place), place) for place in (high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
    )
    while high - low > width:
        if left < right:
            high, right = right[1], left
            place = high - _GOLDEN * (high - low)
            left = function(place), place
        else:
            low, left = left[1], right
            place = low + _GOLDEN * (high - low)
            right = function(place), place
    return min(left, right)
