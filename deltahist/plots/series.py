"""Pictures of a series: small maps of its steps, and lines over time for regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from deltahist._files import form_of
from deltahist.decode.placement import block_error
from deltahist.errors import InputError, one_of
from deltahist.plots import colours, ground
from deltahist.plots.maps import draw_cells, merge_blocks, stands_out

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from deltahist.releases.series import Series

#: Panels of a picture at most, and columns of maps and of lines.
_PANELS, _MAPS, _LINES = 24, 3, 2
#: Points of a line at most.
_POINTS = 60


class _Period(NamedTuple):
    """Steps that are drawn together: their name, the first of them, and their series; None without a release."""

    name: str
    first: int
    series: Series | None


def _divide(series: Series, most: int) -> tuple[list[_Period], str]:
    """Return at most `most` periods, and the name of what each of them is: a step, a day, a month, ..."""
    import pandas as pd

    clock, steps = series.clock, np.arange(series.first, series.last + 1)
    kind, keys = "step", np.array([clock.label(int(step)) for step in steps])
    if clock.every and len(steps) > most:
        times = pd.to_datetime(clock.start + steps * clock.every, unit="s")
        for kind in ("day", "week", "month", "quarter", "year"):
            keys = np.asarray(times.to_period(kind[0].upper()).astype(str))
            if len(np.unique(keys)) <= most:
                break
    if len(np.unique(keys)) > most:
        each = -(-len(steps) // most)
        kind, keys = f"{each:,} steps", np.array([f"from {clock.label(int(s - (s - steps[0]) % each))}" for s in steps])
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    periods = []
    for first, last in zip(steps[begins].tolist(), [*(steps[begins[1:]] - 1).tolist(), series.last], strict=True):
        there = any(step in series.releases for step in range(first, last + 1))
        part = series.cut(first, last).present() if there else None
        periods.append(_Period(str(keys[first - series.first]).partition("/")[0], first, part))
    return periods, kind


def _write_about(series: Series, heading: str, kind: str, title: str | None, notes: Sequence[str]) -> tuple[str, str]:
    """Return the title and the text below a picture of a series; `kind` is that of its periods."""
    if title is None:
        title = f"{heading}{'' if kind == 'step' else f' by {kind}'}, {series.labels[0]} to {series.labels[-1]}"
    domain, missing = series.domain, len(series.missing)
    words = [f"Published with noise for privacy, in each step {series.mechanism.promise}; cells of "]
    words[0] += f"{domain.size_of_cells}{f'; map in {domain.crs}' if domain.crs else ''}."
    if kind != "step":
        words.append(f"Each value is the mean of the steps of a {kind}.")
    words += notes
    if missing:
        words.append(f"{missing:,} of {len(series.labels):,} steps have no release.")
    return title, " ".join([*words, series.cost_words])


def draw_steps(
    series: Series,
    *,
    nonnegative: bool | None = None,
    per: str = "area",
    title: str | None = None,
) -> Figure:
    """Return a figure of small maps, one for each step, in one scale of colours; grey where there is no release.

    Of more than 24 steps longer periods are drawn, as means per step: days, weeks, months, quarters, years, or as many
    steps as are needed. Parameters as of `save_series`.

    >>> import deltahist as dh, numpy as np
    >>> from deltahist.preprocessing import Clock
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1)
    >>> days = {step: dh.publish(np.full((4, 4), 90), near, "identity", 1.0) for step in (0, 2)}
    >>> figure = draw_steps(dh.Series(Clock.of("2010-05-01", "1d"), 0, 2, days))
    >>> [ax.get_title() for ax in figure.axes[:3]]
    ['2010-05-01', '2010-05-02', '2010-05-03']
    """
    from matplotlib import rc_context

    one_of(("area", "cell"), per=per)
    periods, kind = _divide(series, _PANELS)
    domain, example, number = series.domain, series.example, len(periods)
    sums = [each.series.summed for each in periods if each.series is not None]
    numbers = [len(each.series.releases) for each in periods if each.series is not None]
    positive = example.draws_nonnegative(nonnegative)
    branching = int(getattr(example.strategy, "branching", 2))
    found = [
        each.cells(nonnegative=True) if positive else merge_blocks(each.cells(), each.decoder, branching)
        for each in sums
    ]
    flat = sum(not stands_out(cells) for cells in found)
    areas: Any = ground.cell_areas(domain) if per == "area" else np.ones(domain.shape)
    means = [cells / each / areas for cells, each in zip(found, numbers, strict=True)]
    # The noise of a mean is largest where it has fewest steps.
    noise = max(block_error(s.decoder, (1,) * domain.ndim)[0] / n for s, n in zip(sums, numbers, strict=True))
    point = 1 / float(np.median(areas))
    linear = colours.LINEAR * noise * point if positive and noise else None
    scale = colours.smooth_scale(np.stack(means), linear=linear, least=point)
    notes = [f"Estimates: {sums[0].estimator(positive)}."]
    if flat:
        notes.append(f"Nothing stands out from the noise in {flat:,} of {len(sums):,} pictures: one even colour.")
    if ground.holds_points_from_outside(example):
        notes.append("Cells at the edge also hold points from outside.")
    shape = 0.6
    if domain.ndim == 2:
        factor, unit = ground.axis_unit(domain)
        wide, high = (hi - lo for lo, hi in zip(domain.low, domain.high, strict=True))
        shape = high / wide
        notes.append(f"Maps are {ground.figure_of(wide * factor)} × {ground.figure_of(high * factor)} {unit}.")
    heading, below = _write_about(series, "Published maps", kind, title, notes)
    columns = min(number, _MAPS)
    rows, label = -(-number // columns), f"points per {ground.unit_of_area(domain) if per == 'area' else 'cell'}"
    label += f" and {series.clock.period.removeprefix('1 ') or 'step'}"
    height = rows * (min(ground.WIDTH / columns * shape, 4.0) + 0.25) + 0.7
    with rc_context({"font.size": 8}):
        figure = ground.new_figure(figsize=(ground.WIDTH, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        shown = iter(means)
        for ax, period in zip(panels, periods, strict=False):
            ax.set_title(period.name, fontsize=8)
            if domain.ndim == 2:
                (west, south), (east, north) = domain.low, domain.high
                ax.set(xticks=[], yticks=[], xlim=(west, east), ylim=(south, north), aspect="equal")
            if period.series is None:
                ax.set_facecolor("0.88")
                ax.text(0.5, 0.5, "no release", transform=ax.transAxes, ha="center", va="center")
            elif domain.ndim == 2:
                draw_cells(ax, domain, next(shown), scale)
            else:
                ax.stairs(next(shown), domain.edges(0), fill=True, color="tab:blue", alpha=0.7)
        for ax in panels[number:]:
            ax.set_axis_off()
        if domain.ndim == 2:
            ground.add_colour_bar(panels, scale, label)
        else:
            figure.supylabel(label, fontsize=8)
        ground.write_around(figure, heading, below, height, publishable=series.publishable)
    return figure


def draw_lines(
    series: Series, ask: Callable[[Series], pd.DataFrame], *, level: float = 0.95, title: str | None = None
) -> Figure:
    """Return a figure of lines over time, a panel for each region with the band of its intervals, and gaps.

    Of more than 60 steps longer periods are drawn, as means per step with their joint error. At most 24 regions are,
    of the largest means; parameters as of `save_series`.
    """
    from matplotlib import rc_context
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    periods, kind = _divide(series, _POINTS)
    found = {
        place: ask(each.series.per_step()) for place, each in enumerate(periods) if each.series is not None
    }
    first = next(iter(found.values()))
    names = [str(name) for name in first["name"]]
    # Rows are estimates and ends of intervals, then periods, then regions.
    table = np.full((3, len(periods), len(names)), np.nan)
    for place, answers in found.items():
        table[:, place] = answers[["estimate", "low", "high"]].to_numpy(np.float64).T
    mean = table[0][list(found)].mean(axis=0)
    order = np.argsort(-mean, kind="stable")[: np.isfinite(mean).sum()]
    if not len(order):
        raise InputError("answers say nothing of any region on the map (are they in another CRS?)")
    shown, clock = order[:_PANELS], series.clock
    edges: Any = np.array([each.first for each in periods] + [series.last + 1]) * (clock.every or 1) + clock.start
    edges = date2num(edges.astype("datetime64[s]")) if clock.every else edges - 0.5
    # Answers have a column of estimators unless they are unbiased.
    estimators = {str(name) for each in found.values() if "estimator" in each for name in each["estimator"].dropna()}
    notes = [f"Estimates: {', '.join(sorted(estimators)) or series.example.estimator(False)}."]
    if len(shown) < len(names):
        notes.append(f"{len(shown)} of {len(names):,} regions are drawn, the largest.")
    each_step = clock.period.removeprefix("1 ") or "step"
    heading, below = _write_about(series, f"Points per {each_step} in regions", kind, title, notes)
    columns = min(_LINES, len(shown))
    rows = -(-len(shown) // columns)
    with rc_context({"font.size": 8}):
        figure = ground.new_figure(figsize=(ground.WIDTH, rows * 1.4 + 0.2), layout="constrained")
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
        ground.write_around(figure, heading, below, rows * 1.4 + 0.2, publishable=series.publishable)
        figure.supylabel(f"points, with {level:.0%} intervals; each region has a scale of its own", fontsize=8)
    return figure


def save_series(
    series: Series,
    path: str | Path,
    *,
    ask: Callable[[Series], pd.DataFrame] | None = None,
    level: float = 0.95,
    nonnegative: bool | None = None,
    per: str = "area",
    title: str | None = None,
) -> None:
    """Draw the maps of a series (`draw_steps`), or with `ask` lines over time (`draw_lines`), into a PNG, SVG or PDF.

    Parameters
    ----------
    series : what was published. path : of the file, which appears whole or not at all.
    ask : what answers regions from a part of the series, such as `lambda part: dh.answer(part, districts)`, with a
        column `name`. level : of its intervals, for the words.
    nonnegative : as of `plot_map`. per : "area" or "cell". title : of the picture.

    Raises
    ------
    InputError
        On another suffix or another `per`.
    """
    form_of(path, ground.FORMS)
    if ask is not None:
        ground.write_figure(draw_lines(series, ask, level=level, title=title), path)
    else:
        ground.write_figure(draw_steps(series, nonnegative=nonnegative, per=per, title=title), path)
