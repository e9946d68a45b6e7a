"""Lines over time for regions, a panel each, with bands and gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist._progress import progress
from deltahist.errors import InputError
from deltahist.plots.ground import new_figure
from deltahist.plots.periods import divide, write_about
from deltahist.plots.writing import choose_fonts, write_names

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from deltahist.releases.series import Series

#: Points of a line, of more steps longer periods are drawn; and regions.
_POINTS, _MOST = 60, 24
#: Width and height of a panel in inches, and columns of panels.
_PANEL, _COLUMNS = (2.5, 1.5), 4
#: Letters of a region's name.
_NAME = 28


def draw_lines(
    series: Series, ask: Callable[[Series], pd.DataFrame], *, level: float = 0.95, title: str | None = None
) -> Figure:
    """Return a figure of lines over time, a panel for each region with the band of its intervals, and gaps.

    Of more than 60 steps longer periods are drawn, as means per step with their joint error. At most 24 regions are,
    of the largest means; parameters as of `save_series`.
    """
    from matplotlib import rc_context
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    periods, kind = divide(series, _POINTS)
    found: dict[int, pd.DataFrame] = {}
    with progress("asking steps", len(periods)) as advance:
        for place, each in enumerate(periods):
            if each.series is not None:
                found[place] = ask(each.series.per_step())
            advance(1)
    first = next(iter(found.values()))
    names = write_names(first["name"], first.index)
    # Rows are estimates and ends of intervals, then periods, then regions.
    table = np.full((3, len(periods), len(names)), np.nan)
    for place, answers in found.items():
        table[:, place] = answers[["estimate", "low", "high"]].to_numpy(np.float64).T
    mean = table[0][list(found)].mean(axis=0)
    order = np.argsort(-mean, kind="stable")[: np.isfinite(mean).sum()]
    if not len(order):
        raise InputError("answers say nothing of any region on the map (are they in another CRS?)")
    shown, clock = order[:_MOST], series.clock
    edges: Any = np.array([each.steps[0] for each in periods] + [series.last + 1]) * (clock.every or 1) + clock.start
    edges = date2num(edges.astype("datetime64[s]")) if clock.every else edges - 0.5
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    each_step = clock.period.removeprefix("1 ") or "step"
    # Answers have a column of estimators unless they are unbiased.
    estimators = {str(name) for each in found.values() if "estimator" in each for name in each["estimator"].dropna()}
    notes = [f"Estimates: {', '.join(sorted(estimators)) or series.example.estimator(False)}"]
    if kind != "step":
        notes.insert(0, f"Each value is the mean of the steps of a {kind}, with the error of all of them together")
    if len(order) > len(shown):
        notes.append(f"the {len(shown)} largest of {len(order):,} regions: {len(order) - len(shown):,} are left out")
    if len(names) > len(order):
        notes.append(f"{len(names) - len(order):,} more have no answer on this map")
    if missing := series.missing:
        notes.append(f"{len(missing):,} of {len(series.labels):,} steps have no release")
    width = max(columns * _PANEL[0], 5.0)
    writing = write_about(series, "Regions", kind, title, "; ".join(notes), width)
    with rc_context({"font.size": 8}):
        figure = new_figure(figsize=(width, rows * _PANEL[1] + writing.height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for place, ax in enumerate(panels):
            if place >= len(shown):
                ax.set_axis_off()
                continue
            middle, low, high = table[:, :, shown[place]]
            ax.stairs(high, edges, baseline=low, fill=True, color="tab:blue", alpha=0.3)
            ax.stairs(middle, edges, baseline=None, color="tab:blue", linewidth=1)
            ax.axhline(0, color="0.5", linewidth=0.6)
            name = names[shown[place]][:_NAME]
            ax.set_title(name, fontsize=8, fontfamily=choose_fonts(name), parse_math=False)
            ax.locator_params(axis="y", nbins=4)
            ax.tick_params(labelsize=7)
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlim(edges[0], edges[-1])
            if clock.every:
                locator = AutoDateLocator(minticks=2, maxticks=5)
                ax.xaxis.set_major_locator(locator)
                ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
        unit = f"points per {each_step}, with {level:.0%} intervals"
        figure.supylabel(f"{unit}; each region has a scale of its own", fontsize=8)
        writing.write(figure, publishable=series.publishable)
    return figure
