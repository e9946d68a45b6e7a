"""Curves: the cost of a move against its length, and the frontier of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import form_of
from deltahist.errors import InputError
from deltahist.mechanisms import BaseMechanism
from deltahist.plots.colours import CATEGORIES
from deltahist.plots.ground import FORMS, figure_of, new_figure, own_axes, write_figure
from deltahist.privacy import NOISES
from deltahist.space.neighbourhood import Neighbourhood, some_below
from deltahist.statement import choose_limits, length, list_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deltahist.releases.base import BaseRelease
    from deltahist.releases.series import Series

#: Distances on the curve: more steps than a picture shows apart.
_DISTANCES = 240
#: Distances along an axis, and multiples of δ, that are looked at; the short ones all.
_SOME = 200
#: Inches of the picture of a frontier.
_SIZE = (6.4, 4.2)


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
    gaps = [domain.ground(side) * some_below(n, _SOME) for side, n in zip(domain.cell, domain.shape, strict=True)]
    apart = np.hypot(*np.meshgrid(*gaps)).ravel() if domain.ndim == 2 else gaps[0]
    multiples = delta * some_below(math.ceil(near.diameter / delta) + 1, _SOME)
    limits = [limit["distance"] or near.diameter for limit in list_limits(near, 1)]
    # What differs by rounding only is one distance.
    return np.asarray(np.unique(np.round(np.concatenate([apart, multiples, limits]) / delta, 9)) * delta)


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

    ax = own_axes(ax)
    near, letter = release.mechanism.neighbourhood, "ε" if release.mechanism.budget.rho is None else "ρ"
    curve = protection_curve(release, _DISTANCES)
    factor, unit = 1.0, near.domain.unit
    if unit == "m" and near.diameter >= 2000:
        factor, unit = 1e-3, "km"
    distance, exact, bound = curve["distance"] * factor, curve["exact"], curve["bound"]
    promised = "promised, with limits" if near.profile else "bound, by ⌈r/δ⌉ moves"
    ax.plot(distance, bound, color="0.55", linestyle="--", drawstyle="steps-pre", label=promised)
    ax.plot(distance, exact, color=CATEGORIES[0], linewidth=2, drawstyle="steps-pre", label="exact")
    ax.set_xscale("log")
    if np.max(bound, where=np.isfinite(bound), initial=0) > 20 * exact.min() > 0:
        ax.set_yscale("log")
    delta = near.delta_ground * factor
    ax.axvline(delta, color=CATEGORIES[1], linewidth=1)
    named = f"{figure_of(near.delta_ground, 6)} {near.domain.unit}"
    if factor != 1.0 and near.delta_ground >= 1000:
        named = f"{figure_of(delta, 6)} km"
    left = delta < np.sqrt(distance[0] * distance[-1])
    ax.annotate(
        f"δ = {named}",
        (delta, 0.03),
        xycoords=("data", "axes fraction"),
        xytext=(4 if left else -4, 0),
        textcoords="offset points",
        color=CATEGORIES[1],
        va="bottom",
        ha="left" if left else "right",
    )
    ax.margins(y=0.12)
    budget = float(release.mechanism.budget.amount)
    small: dict[str, Any] = {"textcoords": "offset points", "fontsize": "small"}

    def mark(far: float, height: float, words: str, colour: str) -> None:
        ax.annotate(words, (far * factor, height), xytext=(-2, 3), color=colour, ha="right", **small)

    for limit in choose_limits(near, release.mechanism.norm):
        far = limit["distance"]
        if far is not None and near.delta_ground < far < near.diameter:
            height = float(release.mechanism.promised_within(far))
            mark(far, height, f"{figure_of(height / budget)} {letter} = {figure_of(height)}", "0.35")
    most, true = float(bound[-1]), float(exact[-1])
    if math.isfinite(most):
        mark(near.diameter, most, f"any move: {figure_of(most / budget)} {letter} = {figure_of(most)}", "0.35")
    else:
        above: Any = {"xycoords": "axes fraction", "va": "top", "ha": "right", "color": "0.35"}
        ax.annotate("any move: no bound (∞)", (0.98, 0.97), fontsize="small", **above)
    if true < most * (1 - 1e-9):
        mark(near.diameter, true, f"any move, exactly: {figure_of(true)}", CATEGORIES[0])
    ends = [height for height in (most, true) if math.isfinite(height)]
    ax.plot([distance[-1]] * len(ends), ends, "o", color="0.35", markersize=4, clip_on=False)
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high < 30 * low:  # too short for powers of ten alone
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(lambda value, _: figure_of(value))
    ax.set(xlabel=f"distance r ({unit})", ylabel=f"{letter} of a move over r\n(less is better protected)")
    ax.set_title("Protection by distance", fontsize="medium", pad=24)
    ax.grid(color="0.9")
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize="small", borderaxespad=0.2
    )
    return ax


def plot_frontier(found: Sequence[Any], ax: Axes | None = None) -> Axes:
    """Draw the least error against the cost of any move, as `dh.frontier` found it.

    Dashed is the error if that budget were allowed for every move.

    Parameters
    ----------
    found : points of a frontier.
    ax : where to draw; a new figure when None.

    Returns
    -------
    The axes.

    Raises
    ------
    InputError
        If there are no points.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    if not found:
        raise InputError("the frontier has no points: there is nothing to draw")
    ax = own_axes(ax)
    for noise, colour in zip(NOISES, CATEGORIES, strict=False):
        points = sorted((p for p in found if p.noise == noise), key=lambda p: (p.times, p.best.rmse))
        if points:
            _draw_noise(points, noise, colour, ax)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8) if axis is ax.xaxis else (1, 2, 3, 5, 7)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(lambda value, _: figure_of(value))
    near = found[0].mechanism.neighbourhood
    budgets = {p.mechanism.letter: figure_of(float(p.mechanism.budget.amount)) for p in found}
    ax.set(
        xlabel="cost of any move, as times the cost of a move within δ",
        ylabel="expected error of a query (RMSE, points)",
    )
    ax.set_title(
        f"{' or '.join(f'{letter} = {amount}' for letter, amount in budgets.items())} within δ = "
        f"{length(near.delta_ground, near.domain.unit)}, {' × '.join(map(str, near.domain.shape))} cells",
        fontsize="medium",
    )
    ax.grid(color="0.9")
    ax.set_xlim(0.9, 1.5 * max(p.times for p in found))
    ax.margins(y=0.08)
    if ax.lines[1:]:
        ax.plot([], [], "--", color="0.5", linewidth=1, label="if short moves may cost that too")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, frameon=False, fontsize="small")
    return ax


def _draw_noise(points: Sequence[Any], noise: str, colour: str, ax: Axes) -> None:
    """Draw the points of one noise, each new strategy with its name, and its rivals."""
    times, errors = [p.times for p in points], [p.best.rmse for p in points]
    # What holds under a limit holds under all looser ones.
    ax.plot(times, errors, "o-", color=colour, markersize=5, drawstyle="steps-post", label=f"{noise} noise")
    rivals = [(float(p.limit), p.rival.rmse) for p in points if p.rival is not None]
    if rivals:
        ax.plot(*zip(*sorted(rivals), strict=True), "--", color=colour, linewidth=1, alpha=0.7)
    before, below = None, NOISES[noise] != "epsilon"
    for point in points:
        name = point.best.strategy.name
        if name != before:
            ax.annotate(
                name,
                (point.times, point.best.rmse),
                xytext=(4, -11 if below else 5),
                textcoords="offset points",
                fontsize="small",
                color=colour,
            )
        before = name


def save_frontier(found: Sequence[Any], path: str | Path) -> None:
    """Draw a frontier into a PNG, SVG or PDF file, which appears whole or not at all.

    Raises InputError on another suffix, or without points.
    """
    form_of(path, FORMS)
    figure = new_figure(figsize=_SIZE, layout="constrained")
    plot_frontier(found, figure.subplots())
    write_figure(figure, path)
