"""Curves: the cost of moves by distance, and answers over time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.mechanisms import BaseMechanism
from deltahist.plots import figures
from deltahist.space.neighbourhood import list_limits

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltahist.releases.series import Series

#: Maximum numbers of panels, columns of panels, points on a line over time, and labelled limits on a curve.
_PANELS, _COLUMNS, _POINTS, _LIMITS = 24, 2, 60, 4


def protection_curve(release: Any, points: int = 60) -> dict[str, NDArray[np.float64]]:
    """Return the cost of a move as a function of its distance, from a fraction of δ to the domain's diameter.

    Each cost holds for its own distance, and for shorter distances down to the previous one (excluded). So a step plot
    never understates a cost.

    Parameters
    ----------
    release : a release, or a mechanism.
    points : number of logarithmically spaced distances. The neighbourhood's limits, and multiples of δ and of the
        cells' sides, are added because costs rise just beyond them.

    Returns arrays of equal length: `distance` in ground units, `exact` and `bound` in units of the budget.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    >>> mechanism = dh.Mechanism(near, dh.strategies.Cumulative(near.domain), dh.Budget(epsilon=1))
    >>> curve = protection_curve(mechanism)
    >>> curve["exact"][-1].item(), curve["bound"][-1].item()
    (3.0, 4.0)
    """
    mechanism: BaseMechanism = getattr(release, "mechanism", release)
    near = mechanism.neighbourhood
    first = min(max(near.delta_ground / 4, 2 * max(near.domain.step)), near.diameter) if near.on_grid else 1.0
    sides = {near.delta_ground, *(near.domain.ground(side) for side in near.domain.cell if near.on_grid)}
    limits = [limit for limit, _ in list_limits(near, _LIMITS) if limit is not None]
    multiples = [side * np.arange(1, points + 1) for side in sides]
    distance = np.concatenate([np.geomspace(first, near.diameter, points), *multiples, limits])
    distance = np.unique(distance.clip(first, near.diameter))
    return {
        "distance": distance,
        "exact": _evaluate_rising(lambda place: float(mechanism.cost_within(distance.item(place))[0]), len(distance)),
        "bound": np.array([float(mechanism.promised_within(r)) for r in distance.tolist()]),
    }


def _evaluate_rising(value: Callable[[int], float], number: int) -> NDArray[np.float64]:
    """Return a non-decreasing function's values at 0, 1, ..., `number` - 1, evaluating none between equal values."""
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


def plot_protection(release: Any, ax: Axes | None = None) -> Axes:
    """Draw the exact and the promised cost of a move against its distance, with marks at δ and at the limits.

    `release` may also be a mechanism or a `Series`. The cost of a series is that of all its steps together. Draw on a
    new figure if `ax` is None. Return the axes.
    """
    ax = figures.own_axes(ax)
    mechanism: BaseMechanism = getattr(release, "mechanism", release)
    near, letter = mechanism.neighbourhood, "ε" if mechanism.budget.rho is None else "ρ"
    curve = protection_curve(release, points=240)  # more steps than a picture can resolve
    factor, unit = (1e-3, "km") if near.unit == "m" and near.diameter >= 2000 else (1.0, near.unit)
    distance, exact, bound = curve["distance"] * factor, curve["exact"], curve["bound"]
    ax.plot(distance, bound, color="0.55", linestyle="--", drawstyle="steps-pre", label="promised")
    ax.plot(distance, exact, color=figures.CATEGORIES[0], linewidth=2, drawstyle="steps-pre", label="exact")
    ax.set_xscale("log")
    if np.max(bound, where=np.isfinite(bound), initial=0) > 20 * exact.min() > 0:
        ax.set_yscale("log")
    delta = near.delta_ground * factor
    ax.axvline(delta, color=figures.CATEGORIES[1], linewidth=1, label=f"δ = {figures.figure_of(delta, 6)} {unit}")
    budget, small = float(mechanism.budget.amount), dict[str, Any](textcoords="offset points", fontsize=8)

    def mark(far: float, height: float, words: str, colour: str = "0.35") -> None:
        ax.annotate(words, (far * factor, height), xytext=(-2, 3), color=colour, ha="right", **small)

    for far, _ in list_limits(near, _LIMITS):
        if far is not None and near.delta_ground < far < near.diameter:
            height = float(mechanism.promised_within(far))
            mark(far, height, f"{figures.figure_of(height / budget)} {letter} = {figures.figure_of(height)}")
    most, true = float(bound[-1]), float(exact[-1])
    if math.isfinite(most):
        mark(near.diameter, most, f"any move: {figures.figure_of(most / budget)} {letter} = {figures.figure_of(most)}")
    else:
        ax.annotate("any move: no bound (∞)", (0.98, 0.97), xycoords="axes fraction", va="top", ha="right", fontsize=8)
    if true < most * (1 - 1e-9):
        mark(near.diameter, true, f"any move, exactly: {figures.figure_of(true)}", figures.CATEGORIES[0])
    ends = [height for height in (most, true) if math.isfinite(height)]
    ax.plot([distance[-1]] * len(ends), ends, "o", color="0.35", markersize=4, clip_on=False)
    _write_ticks(ax)
    ax.margins(y=0.15)
    ax.set(xlabel=f"distance r ({unit})", ylabel=f"{letter} of a move over r (less is better)")
    ax.tick_params(labelsize=8)
    ax.grid(color="0.9")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=8)
    return ax


def _write_ticks(ax: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high < 30 * low:  # an axis too short to have ticks at powers of ten only
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(lambda value, _: figures.figure_of(value))


def plot_sweep(table: pd.DataFrame, errors: str = "expected", ax: Axes | None = None) -> Axes:
    """Draw the errors of `sweep` against ε, with a line for each mechanism in each setting.

    `errors` is the column "expected" or "measured". Draw on a new figure if `ax` is None. Return the axes.
    """
    ax = figures.own_axes(ax)
    names = ["neighbourhood", "workload", "mechanism"]
    varied = [name for name in names if table[name].nunique() > 1] or names[-1:]
    for number, (setting, rows) in enumerate(table.dropna(subset=errors).groupby(varied, sort=False)):
        rows = rows.sort_values("epsilon")
        label = f"{', '.join(map(str, setting))}: any move {rows['any_move'].iloc[0] / rows['epsilon'].iloc[0]:.3g} ε"
        # Colours repeat after ten lines, so change the dashes.
        dashes = ("-", "--", ":")[number // 10 % 3]
        ax.plot(rows["epsilon"], rows[errors], dashes, marker="o", markersize=3, label=label)
    ax.set(xscale="log", yscale="log", xlabel="ε", ylabel=f"{errors} RMSE of a query (points)")
    _write_ticks(ax)
    ax.grid(color="0.9")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return ax


def _divide_into_periods(series: Series) -> tuple[list[tuple[int, Series | None]], str]:
    """Return at most 60 periods and their kind. Each is a first step and a series (None if there is no release)."""
    import pandas as pd

    clock, steps = series.clock, np.arange(series.first, series.last + 1)
    kind, keys = "step", steps
    if clock.every and len(steps) > _POINTS:
        times = pd.to_datetime([clock.begin(int(step)) for step in steps], unit="s")
        for kind in ("day", "week", "month", "quarter", "year"):
            keys = times.to_period(kind[0].upper()).asi8
            if len(np.unique(keys)) <= _POINTS:
                break
    if len(np.unique(keys)) > _POINTS:
        each = -(-len(steps) // _POINTS)
        kind, keys = f"{each:,} steps", (steps - steps[0]) // each
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    periods = []
    for first, last in zip(steps[begins].tolist(), [*(steps[begins[1:]] - 1).tolist(), series.last], strict=True):
        there = any(step in series.releases for step in range(first, last + 1))
        part = series.select_steps(first, last).skip_missing() if there else None
        periods.append((first, part))
    return periods, kind


def draw_lines(
    series: Series, ask: Callable[[Series], pd.DataFrame], *, level: float = 0.95, title: str | None = None
) -> Figure:
    """Return a figure with a panel for each region. Each panel shows a line over time, with intervals.

    Missing steps leave gaps. More than 60 steps are merged into longer periods (days, weeks, months and so on). The
    lines then show means per step, with intervals for the means. Only the 24 regions with the largest means are drawn.

    `ask` takes a part of the series and returns answers for the regions, with a column `name`. An example is `lambda
    part: dh.answer(part, districts)`. `level` is the confidence level of the intervals, for the axis label.
    """
    from matplotlib import rc_context
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    periods, kind = _divide_into_periods(series)
    found = {place: ask(each.per_step()) for place, (_, each) in enumerate(periods) if each is not None}
    first = next(iter(found.values()))
    names = [str(name) for name in first["name"]]
    # Axes of the table: the estimate and both ends of its interval, the periods, the regions.
    table = np.full((3, len(periods), len(names)), np.nan)
    for place, answers in found.items():
        table[:, place] = answers[["estimate", "low", "high"]].to_numpy(np.float64).T
    mean = table[0][list(found)].mean(axis=0)
    order = np.argsort(-mean, kind="stable")[: np.isfinite(mean).sum()]
    shown, clock = order[:_PANELS], series.clock
    edges: Any = np.array([clock.begin(start) for start, _ in periods] + [clock.begin(series.last + 1)])
    edges = date2num(edges.astype("datetime64[s]")) if clock.every else edges - 0.5
    # Unbiased answers have no estimator column.
    estimators = {str(name) for each in found.values() if "estimator" in each for name in each["estimator"].dropna()}
    domain, each_step = series.domain, clock.period.removeprefix("1 ") or "step"
    notes = [f"Published with noise for privacy: {series.promise}; cells of "]
    notes[0] += f"{domain.size_of_cells}{f'; map in {domain.crs}' if domain.crs else ''}."
    if kind != "step":
        notes.append(f"Each value is the mean of the steps of a {kind}.")
    notes.append(f"Estimates: {', '.join(sorted(estimators)) or series.first_release.name_estimator(False)}.")
    notes.append(f"Bands are {level:.0%} intervals. Each panel has its own scale.")
    if len(shown) < len(names):
        notes.append(f"{len(shown)} of {len(names):,} regions are drawn, those with the largest means.")
    if missing := len(series.missing_steps):
        notes.append(f"{missing:,} of {len(series.step_labels):,} steps have no release.")
    if title is None:
        name = f"{series.about.title}: points" if series.about.title else "Points"
        title = f"{name} per {each_step} in regions{'' if kind == 'step' else f' by {kind}'}, "
        title += f"{series.step_labels[0]} to {series.step_labels[-1]}"
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    with rc_context({"font.size": 8}):
        figure = figures.new_figure(figsize=(figures.WIDTH, rows * 1.4 + 0.2), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for ax, region in zip(panels, shown.tolist(), strict=False):
            middle, low, high = table[:, :, region]
            ax.stairs(high, edges, baseline=low, fill=True, color="tab:blue", alpha=0.3)
            ax.stairs(middle, edges, baseline=None, color="tab:blue", linewidth=1)
            ax.axhline(0, color="0.5", linewidth=0.6)
            ax.set_title(names[region][:28], fontsize=8, parse_math=False)
            ax.locator_params(axis="y", nbins=4)
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlim(edges[0], edges[-1])
            if clock.every:
                locator = AutoDateLocator(minticks=2, maxticks=4)
                ax.xaxis.set_major_locator(locator)
                ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
        for ax in panels[len(shown) - columns : len(shown)]:
            ax.tick_params(labelbottom=True)
        for ax in panels[len(shown) :]:
            ax.set_axis_off()
        figures.write_around(figure, title, " ".join(notes), rows * 1.4 + 0.2, series)
        figure.supylabel("points", fontsize=8)
    return figure
