"""The curve of protection: the cost of a move against its length."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.mechanisms import BaseMechanism
from deltahist.plots import colours, ground
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.statement import choose_limits, list_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deltahist.releases.base import BaseRelease
    from deltahist.releases.series import Series

#: Distances on the curve: more steps than a picture shows apart.
_DISTANCES = 240
#: Distances along an axis, and multiples of δ, that are looked at; the short ones all.
_SOME = 200


def protection_curve(release: Any, points: int = 60) -> dict[str, NDArray[np.float64]]:
    """Return the cost of a move against its distance, from a fraction of δ to the diameter.

    Costs go up just beyond the distances between cells, and the bound just beyond multiples of δ and beyond limits:
    they are evaluated there. A value holds from the distance before it up to its own. Drawn as such steps,
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
    distance = np.concatenate([_list_jumps(near), np.geomspace(first, max(first, near.delta_ground), 9)])
    distance = np.unique(distance)
    distance = distance[(distance > first) & (distance < near.diameter)]
    if len(distance) > points:
        wanted = np.searchsorted(distance, np.geomspace(first, near.diameter, points))
        distance = distance[np.unique(np.minimum(wanted, len(distance) - 1))]
    # δ is where the promise changes, and so are limits: they are never left out.
    limits = [limit["distance"] for limit in choose_limits(near, 1) if limit["distance"] is not None]
    kept = np.clip([near.delta_ground, *limits], first, near.diameter)
    distance = np.unique([first, *distance, *kept, near.diameter])
    return {
        "distance": distance,
        "exact": _evaluate_rising(lambda place: float(mechanism.cost_within(distance.item(place))[0]), len(distance)),
        "bound": np.array([float(mechanism.promised_within(r)) for r in distance.tolist()]),
    }


def _list_jumps(near: Neighbourhood) -> NDArray[np.float64]:
    """Return distances at which a move may begin to cost more: all short ones, some long ones."""
    domain, delta = near.domain, near.delta_ground
    gaps = [domain.ground(side) * _some_below(n, _SOME) for side, n in zip(domain.cell, domain.shape, strict=True)]
    apart = np.hypot(*np.meshgrid(*gaps)).ravel() if domain.ndim == 2 else gaps[0]
    multiples = delta * _some_below(math.ceil(near.diameter / delta) + 1, _SOME)
    limits = [limit["distance"] or near.diameter for limit in list_limits(near, 1)]
    # What differs by rounding only is one distance.
    return np.asarray(np.unique(np.round(np.concatenate([apart, multiples, limits]) / delta, 9)) * delta)


def _some_below(number: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` whole numbers below `number`: the first ones all, then at gaps in proportion to size."""
    return np.asarray(np.unique(np.geomspace(1, number, most).round().astype(np.int64)) - 1)


def _evaluate_rising(value: Callable[[int], float], number: int) -> NDArray[np.float64]:
    """Return the values of a rising function at 0, 1, ...; between two equal values it is not evaluated."""
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


def plot_protection(release: BaseRelease | Series, ax: Axes | None = None) -> Axes:
    """Draw the cost of a move, exact and promised, against its distance up to the diameter; mark δ and limits.

    Parameters
    ----------
    release : Release, or a Series, of which it is the step that spends most.
    ax : where to draw; a new figure when None.

    Returns
    -------
    The axes.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    ax, mechanism = ground.own_axes(ax), release.mechanism
    near, letter = mechanism.neighbourhood, "ε" if mechanism.budget.rho is None else "ρ"
    curve = protection_curve(release, _DISTANCES)
    factor, unit = (1e-3, "km") if near.domain.unit == "m" and near.diameter >= 2000 else (1.0, near.domain.unit)
    distance, exact, bound = curve["distance"] * factor, curve["exact"], curve["bound"]
    ax.plot(distance, bound, color="0.55", linestyle="--", drawstyle="steps-pre", label="promised")
    ax.plot(distance, exact, color=colours.CATEGORIES[0], linewidth=2, drawstyle="steps-pre", label="exact")
    ax.set_xscale("log")
    if np.max(bound, where=np.isfinite(bound), initial=0) > 20 * exact.min() > 0:
        ax.set_yscale("log")
    delta = near.delta_ground * factor
    ax.axvline(delta, color=colours.CATEGORIES[1], linewidth=1, label=f"δ = {ground.figure_of(delta, 6)} {unit}")
    budget, small = float(mechanism.budget.amount), {"textcoords": "offset points", "fontsize": 8}

    def mark(far: float, height: float, words: str, colour: str = "0.35") -> None:
        ax.annotate(words, (far * factor, height), xytext=(-2, 3), color=colour, ha="right", **small)  # type: ignore

    for limit in choose_limits(near, mechanism.norm):
        far = limit["distance"]
        if far is not None and near.delta_ground < far < near.diameter:
            height = float(mechanism.promised_within(far))
            mark(far, height, f"{ground.figure_of(height / budget)} {letter} = {ground.figure_of(height)}")
    most, true = float(bound[-1]), float(exact[-1])
    if math.isfinite(most):
        mark(near.diameter, most, f"any move: {ground.figure_of(most / budget)} {letter} = {ground.figure_of(most)}")
    else:
        ax.annotate("any move: no bound (∞)", (0.98, 0.97), xycoords="axes fraction", va="top", ha="right", fontsize=8)
    if true < most * (1 - 1e-9):
        mark(near.diameter, true, f"any move, exactly: {ground.figure_of(true)}", colours.CATEGORIES[0])
    ends = [height for height in (most, true) if math.isfinite(height)]
    ax.plot([distance[-1]] * len(ends), ends, "o", color="0.35", markersize=4, clip_on=False)
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high < 30 * low:  # too short for powers of ten alone
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(lambda value, _: ground.figure_of(value))
    ax.margins(y=0.15)
    ax.set(xlabel=f"distance r ({unit})", ylabel=f"{letter} of a move over r (less is better)")
    ax.tick_params(labelsize=8)
    ax.grid(color="0.9")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=8)
    return ax
