"""What is left of the protection at a distance: the cost of a move against its length."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.mechanisms.base import BaseMechanism
from deltahist.mechanisms.limits import distances_of, limit_facts
from deltahist.neighbourhood import Neighbourhood
from deltahist.neighbourhood.profile import some_below

#: Distances along an axis, and multiples of δ, that are looked at; the short ones all.
_SOME = 200


def protection_curve(release: Any, points: int = 60) -> dict[str, NDArray[np.float64]]:
    """What a move costs against its distance, from a fraction of δ to the diameter.

    Costs go up just beyond the distances between cells, and the bound just beyond multiples of δ and those of limits:
    that is where they are worked out. A value holds from the distance before it up to its own. Drawn as such steps,
    costs are never understated, and `exact` is nowhere above `bound`.

    Parameters
    ----------
    release : a release, or a mechanism.
    points : about how many distances at most; where there are more, one stands for those just below it.

    Returns
    -------
    dict of arrays of one length: `distance` in ground units, `exact` and `bound` in units of the budget.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    >>> mechanism = dh.Mechanism(near, dh.strategies.Cumulative(near.domain), dh.Budget(epsilon=1))
    >>> curve = protection_curve(mechanism)
    >>> curve["distance"][-4:].tolist(), curve["exact"][-4:].tolist()
    ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 3.0])
    """
    mechanism: BaseMechanism = getattr(release, "mechanism", release)
    near = mechanism.neighbourhood
    first = min(max(near.delta_ground / 4, 2 * max(near.domain.step)), near.diameter)
    distance = np.concatenate([_jumps(near), np.geomspace(first, max(first, near.delta_ground), 9)])
    distance = np.unique(distance)
    distance = distance[(distance > first) & (distance < near.diameter)]
    if len(distance) > points:
        wanted = np.searchsorted(distance, np.geomspace(first, near.diameter, points))
        distance = distance[np.unique(np.minimum(wanted, len(distance) - 1))]
    # δ is where the promise changes, and so are limits: they are never left out.
    kept = np.clip([near.delta_ground, *distances_of(near)], first, near.diameter)
    distance = np.unique([first, *distance, *kept, near.diameter])
    return {
        "distance": distance,
        "exact": _rising(
            lambda place: float(mechanism.cost_within(float(distance[place]))[0]), len(distance)
        ),
        "bound": np.array([float(mechanism.promised_within(r)) for r in distance.tolist()]),
    }


def _jumps(near: Neighbourhood) -> NDArray[np.float64]:
    """Where a move may begin to cost more: distances between cells, multiples of δ; all short ones, some long ones."""
    domain, delta = near.domain, near.delta_ground
    gaps = [domain.ground(side) * some_below(n, _SOME) for side, n in zip(domain.cell, domain.shape, strict=True)]
    apart = np.hypot(*np.meshgrid(*gaps)).ravel() if domain.ndim == 2 else gaps[0]
    multiples = delta * some_below(math.ceil(near.diameter / delta) + 1, _SOME)
    limits = [limit["distance"] or near.diameter for limit in limit_facts(near, 1)]
    # What differs by rounding only is one distance.
    return np.asarray(np.unique(np.round(np.concatenate([apart, multiples, limits]) / delta, 9)) * delta)


def _rising(value: Callable[[int], float], number: int) -> NDArray[np.float64]:
    """Values at 0, 1, ... of what never falls; nothing is asked between two places of the same value."""
    out = np.full(number, np.nan)
    spans = [(0, number - 1)]
    while spans:
        low, high = spans.pop()
        for place in (low, high):
            if np.isnan(out[place]):
                out[place] = value(place)
        if out[low] == out[high]:
            out[low : high + 1] = out[low]
        elif high - low > 1:
            middle = (low + high) // 2
            spans += [(low, middle), (middle, high)]
    return out
