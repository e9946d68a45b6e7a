"""Pictures of a release: the published map, and what protection is left at which distance."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist._files import write_whole
from deltahist.decode.merging import block_error, merged_cells
from deltahist.domain import Domain
from deltahist.errors import InputError
from deltahist.mechanisms.base import bound_of
from deltahist.mechanisms.statement import protection_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Suffixes of pictures.
PICTURES = (".png", ".svg", ".pdf")
#: Colours of plain cells are about proportional up to this many standard errors, logarithmic beyond.
_LINEAR = 3.0
#: Share of cells whose estimates the colours tell apart at the top; a few cells must not use up the scale.
_TOP = 0.9995


class Drawn(Protocol):
    """What pictures are made of; every release has it, and one of a map its cells and their decoder."""

    @property
    def domain(self) -> Domain: ...
    @property
    def mechanism(self) -> Any: ...
    @property
    def publishable(self) -> bool: ...
    def cells(self, *, nonnegative: bool = False) -> NDArray[np.float64]: ...
    def estimates(self, *, nonnegative: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...


def check_picture(path: str | Path, only: str | None = None) -> None:
    """Raise InputError unless a picture can be called that, and `only` is None, "map" or "curve"."""
    if Path(path).suffix.lower() not in PICTURES:
        raise InputError(f"output is {str(path)!r}: its suffix must be one of {', '.join(PICTURES)}")
    if only not in (None, "map", "curve"):
        raise InputError(f"only is {only!r}: it must be map or curve")


def save_picture(
    release: Drawn,
    path: str | Path,
    only: str | None = None,
    *,
    plain: bool = False,
    nonnegative: bool = False,
) -> None:
    """Draw the map and the protection curve beside it, or one of them, into a PNG, SVG or PDF file.

    The file appears whole or not at all.

    Raises
    ------
    InputError
        On another suffix, or an unknown part.
    """
    check_picture(path, only)
    figure = _figure(release, only, plain=plain, nonnegative=nonnegative)
    form = Path(path).suffix.lower()[1:]
    write_whole(Path(path), lambda part: figure.savefig(part, format=form, dpi=150))


def picture(release: Drawn) -> bytes:
    """The map as a PNG picture, as notebooks show it."""
    file = io.BytesIO()
    _figure(release, "map", plain=False, nonnegative=False).savefig(file, format="png", dpi=80)
    return file.getvalue()


def _figure(release: Drawn, only: str | None, *, plain: bool, nonnegative: bool) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    parts = [only] if only else ["map", "curve"]
    widths = {"map": 8.0 if release.domain.ndim == 2 else 7.0, "curve": 5.5}
    height = _height(release) if "map" in parts else 4.5
    figure = Figure(figsize=(sum(widths[p] for p in parts), height), layout="compressed")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(parts), squeeze=False, width_ratios=[widths[p] for p in parts])[0]
    for part, ax in zip(parts, axes, strict=True):
        if part == "map":
            plot_map(release, ax, plain=plain, nonnegative=nonnegative)
        else:
            plot_protection(release, ax)
    _say_what_it_is(figure, release)
    return figure


def _height(release: Drawn) -> float:
    """Inches that the map needs at its width, within reason."""
    if release.domain.ndim == 1:
        return 4.5
    wide, high = (hi - lo for lo, hi in zip(release.domain.low, release.domain.high, strict=True))
    return float(np.clip(1.4 + 6.0 * high / wide, 4.5, 9.0))


def _say_what_it_is(figure: Figure, release: Drawn) -> None:
    cost = (
        f"ε = {float(release.mechanism.budget.epsilon):g}"
        if release.mechanism.budget.epsilon is not None
        else f"ρ = {float(release.mechanism.budget.rho or 0):g}"
    )
    near, unit = release.mechanism.neighbourhood, release.domain.unit
    who = release.mechanism.counting.who
    cells = f"cells of {release.domain.size_of_cells}"
    figure.suptitle(f"δ = {near.delta_ground:g} {unit},  {cost} per {who},  {cells}", fontsize=11)
    if not release.publishable:
        figure.text(
            0.5,
            0.5,
            "NOT FOR PUBLICATION",
            rotation=25,
            ha="center",
            va="center",
            fontsize=40,
            color="crimson",
            alpha=0.35,
            weight="bold",
            zorder=10,
        )


def plot_map(
    release: Drawn,
    ax: Axes | None = None,
    *,
    plain: bool = False,
    nonnegative: bool = False,
) -> Axes:
    """The published estimates: colours in 2-D, steps with a band of one standard error in 1-D.

    Sorted points are drawn as their histogram.

    Single cells are often mostly noise, so cells are merged where they do not stand out (`merged_cells`).
    Colours are proportional for small values and logarithmic for large ones.

    Parameters
    ----------
    release : Release
    ax : where to draw; a new figure when None.
    plain : draw every cell's own estimate, noise and all; what is below one standard error is pale.
    nonnegative : draw non-negative estimates of every cell (`Release.cells`) instead.

    Returns
    -------
    The axes.
    """
    ax = _axes(ax)
    if release.domain.ndim == 1:
        return _steps(release, ax, nonnegative)
    from matplotlib.colors import AsinhNorm

    domain = release.domain
    if nonnegative:
        cells = release.cells(nonnegative=True)
    else:
        cells = release.cells() if plain else merged_cells(release)
    noise, _ = block_error(release.mechanism.decoder, (1,) * release.domain.ndim)
    top = max(float(np.quantile(cells, _TOP)), 1.0)
    # What a single cell cannot tell from nothing is pale; merged blocks can tell less, and are drawn from zero.
    own = plain and not nonnegative
    low = noise if own else 0.0
    width = _LINEAR * noise if own and noise else top / 50
    factor, unit = _axis_unit(release)
    (west, south), (east, north) = domain.low, domain.high
    picture = ax.imshow(
        cells.T,
        origin="lower",
        extent=(west * factor, east * factor, south * factor, north * factor),
        cmap="magma_r",
        norm=AsinhNorm(linear_width=width, vmin=low, vmax=max(top, 2 * low)),
        interpolation="nearest",
    )
    name = f" ({unit}, {domain.crs})" if domain.crs else f" ({unit})"
    ax.set(
        xlabel=("easting" if domain.crs else "x") + name,
        ylabel=("northing" if domain.crs else "y") + f" ({unit})",
    )
    ax.ticklabel_format(useOffset=False, style="plain")
    if east - west < 0.2 * (north - south):  # no room for figures side by side
        ax.tick_params(axis="x", rotation=90)
    bar = ax.figure.colorbar(picture, ax=ax, extend="both" if low else "max", shrink=0.85)
    bar.set_label("points per cell (estimate)")
    bar.set_ticks(_round_ticks(picture.norm))
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    bar.minorticks_off()
    how = "below that is pale" if own else "cells that do not stand out from it are merged"
    if nonnegative:
        how = "drawn are the nearest estimates that are not negative"
    ax.set_title(f"Standard error of one cell: {noise:,.3g} points;\n{how}", fontsize=9)
    return ax


def _steps(release: Drawn, ax: Axes, nonnegative: bool) -> Axes:
    domain = release.domain
    edges = domain.edges(0)
    cells, error = release.estimates(nonnegative=nonnegative)
    ax.stairs(
        cells + error,
        edges,
        baseline=cells - error,
        fill=True,
        color="tab:blue",
        alpha=0.3,
        label="± one standard error",
    )
    ax.stairs(cells, edges, baseline=None, color="tab:blue", linewidth=1.2, label="estimate")
    ax.axhline(0, color="0.5", linewidth=0.8)
    ax.set(xlabel=f"x ({domain.unit})", ylabel="points per cell (estimate)", xlim=(edges[0], edges[-1]))
    ax.set_title("Published histogram", fontsize=10)
    ax.legend(frameon=False)
    return ax


def plot_protection(release: Drawn, ax: Axes | None = None) -> Axes:
    """What a move costs, exactly and at most, against its distance; δ and the diameter are marked.

    Parameters
    ----------
    release : Release
    ax : where to draw; a new figure when None.

    Returns
    -------
    The axes.
    """
    ax = _axes(ax)
    near, letter = release.mechanism.neighbourhood, "ε" if release.mechanism.budget.rho is None else "ρ"
    curve = protection_curve(release)
    factor, unit = 1.0, near.domain.unit
    if unit == "m" and near.delta_ground >= 1000:
        factor, unit = 1e-3, "km"
    # Each value holds up to its distance, so a step before it never understates; δ itself is worth a value.
    distance = np.append(curve["distance"], near.delta_ground)
    exact = np.append(curve["exact"], float(release.mechanism.cost_within(near.delta_ground)[0]))
    order = np.argsort(distance)
    distance, exact = distance[order] * factor, exact[order]
    ends, bound = _bound(release)
    ax.plot(
        ends * factor,
        bound,
        color="0.55",
        linestyle="--",
        drawstyle="steps-pre",
        label="bound, by ⌈r/δ⌉ moves",
    )
    ax.plot(distance, exact, color="tab:blue", linewidth=2, drawstyle="steps-pre", label="exact")
    ax.set_xscale("log")
    if bound.max() > 20 * exact.min() > 0:
        ax.set_yscale("log")
    ax.axvline(near.delta_ground * factor, color="tab:red", linewidth=1)
    ax.annotate(
        f"δ = {near.delta_ground * factor:g} {unit}",
        (near.delta_ground * factor, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        color="tab:red",
        va="top",
    )
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set(xlabel=f"distance r ({unit})", ylabel=f"{letter} of a move over r (less is better protected)")
    ax.set_title("Protection by distance", fontsize=10, pad=24)
    ax.grid(color="0.9")
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9, borderaxespad=0.2
    )
    return ax


def _bound(release: Drawn) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the steps of δ, up to the diameter, and what that many moves cost together at most."""
    near = release.mechanism.neighbourhood
    last = max(1, math.ceil(near.diameter / near.delta_ground - 1e-9))
    # Beyond a few hundred steps a logarithmic axis does not show them one by one.
    steps = np.unique(np.geomspace(1, last, 500).round().astype(np.int64))
    cost = [float(bound_of(release.mechanism.guarantee, int(k))) for k in steps]
    ends = np.minimum(steps * near.delta_ground, near.diameter)
    return np.concatenate([[near.delta_ground / 4], ends]), np.array([cost[0], *cost])


def _axes(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure that belongs to no window system."""
    if ax is not None:
        return ax
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def _axis_unit(release: Drawn) -> tuple[float, str]:
    """Factor and unit of the map's axes: kilometres where the CRS has metres."""
    if release.domain.crs is None:
        return 1.0, "units"
    import pyproj

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axis = pyproj.CRS.from_user_input(release.domain.crs).axis_info[0]
    return (1e-3, "km") if axis.unit_name == "metre" else (1.0, axis.unit_name)


def _round_ticks(norm: Any) -> list[float]:
    """Zero and 1, 2, 5, 10, ... within the colours' range, those that are not too close on the bar."""
    chosen: list[float] = []
    for value in [0.0, *(m * 10.0**e for e in range(-6, 13) for m in (1, 2, 5))]:
        if norm.vmin <= value <= norm.vmax and (not chosen or norm(value) - norm(chosen[-1]) > 0.08):
            chosen.append(value)
    return chosen
