"""The frontier of a plan, as a picture: the expected error against what any move costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist._files import write_whole
from deltahist.errors import InputError
from deltahist.plots.drawn import figure_of, own_axes
from deltahist.plots.pictures import DPI, check_picture
from deltahist.statement import length

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How the two noises are drawn.
_COLOURS = {"laplace": "tab:blue", "gaussian": "tab:orange"}
#: Inches.
_SIZE = (6.4, 4.2)


def plot_frontier(found: Sequence[Any], ax: Axes | None = None) -> Axes:
    """The least error against what any move costs, as `dh.frontier` found them; dashed, the error if that budget were
    allowed for every move.

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
    for noise, colour in _COLOURS.items():
        points = sorted((p for p in found if p.noise == noise), key=lambda p: (p.times, p.best.rmse))
        if points:
            _draw(points, noise, colour, ax)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8) if axis is ax.xaxis else (1, 2, 3, 5, 7)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(lambda value, _: figure_of(value))
    near = found[0].mechanism.neighbourhood
    budgets = {p.mechanism.letter: figure_of(float(p.mechanism.budget.amount)) for p in found}
    ax.set(
        xlabel="any move costs so many times what one within δ may",
        ylabel="expected error of a query (RMSE, points)",
    )
    ax.set_title(
        f"{' or '.join(f'{letter} = {amount}' for letter, amount in budgets.items())} within δ = "
        f"{length(near.delta_ground, near.domain.unit)}, {' × '.join(map(str, near.domain.shape))} cells",
        fontsize=10,
    )
    ax.grid(color="0.9")
    ax.set_xlim(0.9, 1.5 * max(p.times for p in found))
    ax.margins(y=0.08)
    if ax.lines[1:]:
        ax.plot([], [], "--", color="0.5", linewidth=1, label="if short moves may cost that too")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, frameon=False, fontsize=8)
    return ax


def _draw(points: Sequence[Any], noise: str, colour: str, ax: Axes) -> None:
    """The points of one noise, each new strategy with its name, and its rivals."""
    times, errors = [p.times for p in points], [p.best.rmse for p in points]
    # What holds under a limit holds under all looser ones.
    ax.plot(times, errors, "o-", color=colour, markersize=5, drawstyle="steps-post", label=f"{noise} noise")
    rivals = [(float(p.limit), p.rival.rmse) for p in points if p.rival is not None]
    if rivals:
        ax.plot(*zip(*sorted(rivals), strict=True), "--", color=colour, linewidth=1, alpha=0.7)
    before, below = None, noise == "gaussian"
    for point in points:
        name = point.best.strategy.name
        if name != before:
            ax.annotate(
                name,
                (point.times, point.best.rmse),
                xytext=(4, -11 if below else 5),
                textcoords="offset points",
                fontsize=8,
                color=colour,
            )
        before = name


def save_frontier(found: Sequence[Any], path: str | Path) -> None:
    """Draw a frontier into a PNG, SVG or PDF file, which appears whole or not at all.

    Raises InputError on another suffix, or without points.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_picture(path)
    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    plot_frontier(found, figure.subplots())
    form = Path(path).suffix.lower()[1:]
    write_whole(Path(path), lambda part: figure.savefig(part, format=form, dpi=DPI))
