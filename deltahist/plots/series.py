"""Pictures of a series: small maps of its steps, lines over time for regions, and an animation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist._files import form_of, write_whole
from deltahist._progress import progress
from deltahist.decode.placement import block_error
from deltahist.errors import InputError, one_of
from deltahist.plots.cells import LINEAR, merge_blocks
from deltahist.plots.colours import smooth_scale
from deltahist.plots.ground import (
    FORMS,
    axis_unit,
    cell_areas,
    colour_bar,
    context_on,
    figure_of,
    holds_points_from_outside,
    new_figure,
    sides,
    unit_of_area,
    write_figure,
)
from deltahist.plots.periods import divide, write_about
from deltahist.plots.timelines import draw_lines

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltahist.plots.writing import Writing
    from deltahist.releases.series import Series

#: Forms of pictures of a series.
SERIES_FORMS = {**FORMS, ".gif": "gif"}
#: Panels of a picture, and frames of an animation: of more steps, longer periods are drawn.
_PANELS, _FRAMES = 24, 400
#: Width and height in inches of all panels together, and height of the title of each.
_WIDE, _HIGH, _TITLE = 9.0, 8.0, 0.22
#: Least width of a panel with its title, and height of all with the bar of colours.
_NARROW, _LOW = 1.0, 2.6
#: Width of a panel at most.
_PANEL = 3.0
#: Milliseconds of a frame, and dots to an inch.
_FRAME, _DPI = 500, 90
#: Colour of the ground where a step has no release.
_NO_RELEASE = "0.85"


@dataclass(frozen=True)
class _Look:
    """The look of maps: parameters of `save_series`."""

    plain: bool = False
    nonnegative: bool | None = None
    per: str = "area"
    context: tuple[Any, ...] = ()
    title: str | None = None


class _Maps:
    """Maps of periods of a series, as means per step, with one scale of colours for all."""

    def __init__(self, series: Series, most: int, look: _Look) -> None:
        self.series, self.look = series, look
        self.periods, self.kind = divide(series, most)
        domain, example = series.domain, series.example
        sums = [None if each.series is None else each.series.summed for each in self.periods]
        numbers = [0 if each.series is None else len(each.series.releases) for each in self.periods]
        there = [each for each in sums if each is not None]
        with progress("drawing steps", len(there)) as advance:
            positive = example.shows_nonnegative(False if look.plain else look.nonnegative)
            if positive and look.nonnegative is None:  # one that is not sure of itself is not drawn among others
                positive = all(each.posterior is not None for each in there)
            branching = int(getattr(example.strategy, "branching", 2))
            found: list[Any] = []
            for each, number in zip(sums, numbers, strict=True):
                if each is None:
                    found.append(None)
                    continue
                shown = each.cells(nonnegative=True) if positive else each.cells()
                if not positive and not look.plain:
                    shown = merge_blocks(shown, each.decoder, branching)
                found.append(shown / number)
                advance(1)
        # The noise of a mean is largest where it has fewest steps.
        noise = max(block_error(s.decoder, (1,) * domain.ndim)[0] / n for s, n in zip(sums, numbers, strict=True) if s)
        flat = sum(cells is not None and np.ptp(cells) <= 1e-9 * np.abs(cells).max() for cells in found)
        areas: Any = 1.0
        point, unit = 1.0, "cell"
        if look.per == "area":
            areas = cell_areas(domain)
            point, unit = 1 / float(np.median(areas)), unit_of_area(domain)
        self.cells = [None if cells is None else cells / areas for cells in found]
        values = np.concatenate([cells.ravel() for cells in self.cells if cells is not None])
        own = look.plain and not positive
        self.pale = own
        self.scale = smooth_scale(
            values,
            low=noise * point if own else 0.0,
            linear=LINEAR * noise * point if (own or positive) and noise else None,
            least=point,
        )
        each_step = series.clock.period.removeprefix("1 ") or "step"
        self.label = f"points per {unit} and {each_step}"
        self.notes = [f"Estimates: {there[0].estimator(positive)}"]
        if self.kind != "step":
            self.notes[0] = f"Each picture is the mean of the steps of a {self.kind}. {self.notes[0]}"
        if flat:
            words = "the picture" if len(there) == 1 else f"{flat:,} of {len(there):,} pictures"
            self.notes.append(f"nothing stands out from the noise in {words}: one even colour")
        if holds_points_from_outside(example):
            self.notes.append("cells at the edge also hold points from outside")

    def write_about(self, width: float) -> Writing:
        """Return the title, and what stands below, of a picture of a width in inches."""
        series, words = self.series, "; ".join(self.notes)
        if series.domain.ndim == 2:
            (wide, high), (factor, unit) = sides(series.domain), axis_unit(series.domain)
            words += f". Maps are {figure_of(wide * factor)} {unit} wide and {figure_of(high * factor)} {unit} high"
        return write_about(series, "Published maps", self.kind, self.look.title, words, width)

    def draw(self, ax: Axes, number: int) -> None:
        """Draw one map, or the histogram of a line."""
        domain, cells = self.series.domain, self.cells[number]
        if domain.ndim == 1:
            ax.set(xlim=(domain.edges(0)[0], domain.edges(0)[-1]), ylim=(self.scale.norm.vmin, self.scale.norm.vmax))
            if cells is not None:
                ax.stairs(cells, domain.edges(0), fill=True, color="tab:blue", alpha=0.7)
            ax.tick_params(labelsize=7)
        else:
            factor, _ = axis_unit(domain)
            (west, south), (east, north) = domain.low, domain.high
            extent = (west * factor, east * factor, south * factor, north * factor)
            shown = np.full(domain.shape, np.nan) if cells is None else cells
            ax.imshow(
                shown.T,
                origin="lower",
                extent=extent,
                cmap=self.scale.colours,
                norm=self.scale.norm,
                interpolation="nearest",
            )
            for layer in self.look.context:
                _draw_lines(ax, domain, layer, factor)
            ax.set(xticks=[], yticks=[])
        ax.set_facecolor(_NO_RELEASE if cells is None else "white")
        ax.set_title(self.periods[number].title, fontsize=7.5)


def _draw_lines(ax: Axes, domain: Any, layer: Any, factor: float) -> None:
    """Draw lines of a context, thin and grey."""
    import shapely
    from matplotlib.collections import LineCollection

    parts = context_on(domain, layer)
    lines = [shapely.get_coordinates(part) * factor for part in parts[shapely.get_dimensions(parts) == 1]]
    ax.add_collection(LineCollection(lines, colors="0.5", linewidths=0.3, alpha=0.8), autolim=False)


def draw_steps(
    series: Series,
    *,
    plain: bool = False,
    nonnegative: bool | None = None,
    per: str = "area",
    context: Sequence[Any] = (),
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
    ['2010-05-01', '2010-05-02: no release', '2010-05-03']
    """
    maps = _Maps(series, _PANELS, _Look(plain, nonnegative, one_of(("area", "cell"), per=per), tuple(context), title))
    return _draw_panels(maps)


def _draw_panels(maps: _Maps) -> Figure:
    from matplotlib import rc_context

    domain, number = maps.series.domain, len(maps.periods)
    wide, high = sides(domain) if domain.ndim == 2 else (1.6, 1.0)
    columns = min(number, max(1, min(8, round(math.sqrt(number * 1.3 * high / wide)))))
    rows = -(-number // columns)
    across = min(_PANEL, _WIDE / columns, (_HIGH / rows - _TITLE) * wide / high)
    width = max(columns * max(across, _NARROW) + 0.9, 5.0)
    writing = maps.write_about(width)
    size = width, max(rows * (across * high / wide + _TITLE), _LOW) + writing.height
    with rc_context({"font.size": 9}):
        figure = new_figure(figsize=size)
        close = domain.ndim == 2 and across >= _NARROW  # else titles need the room
        figure.set_layout_engine("compressed" if close else "constrained", w_pad=0.03, h_pad=0.03)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for place, ax in enumerate(panels):
            if place < number:
                maps.draw(ax, place)
            else:
                ax.set_axis_off()
        _add_key(figure, maps, list(panels))
        writing.write(figure, publishable=maps.series.publishable)
    return figure


def _add_key(figure: Figure, maps: _Maps, panels: list[Axes]) -> None:
    """Draw the bar of colours, or of histograms the name of what their height is."""
    if maps.series.domain.ndim == 1:
        figure.supylabel(maps.label, fontsize=9)
        return
    colour_bar(figure, maps.scale, maps.pale, ax=panels, aspect=30, fraction=0.05, pad=0.02).set_label(maps.label)


def save_series(
    series: Series,
    path: str | Path,
    *,
    ask: Callable[[Series], pd.DataFrame] | None = None,
    level: float = 0.95,
    plain: bool = False,
    nonnegative: bool | None = None,
    per: str = "area",
    context: Sequence[Any] = (),
    title: str | None = None,
) -> None:
    """Draw the maps of a series into a PNG, SVG or PDF file, or as an animation into a GIF.

    With `ask` it is lines over time for regions, each with its band (`draw_lines`). The file appears whole, or not at
    all.

    Parameters
    ----------
    series : what was published. path : of the file.
    ask : what answers regions from a part of the series, such as `lambda part: dh.answer(part, districts)`, with a
        column `name`. level : of its intervals, for the words.
    plain, nonnegative, context : as of `plot_map`; non-negative estimates are drawn by default where every step has
        calibrated ones. per : "area" or "cell". title : of the picture.

    Raises
    ------
    InputError
        On another suffix, another `per`, lines as an animation, or a context of which nothing is on the map.
    """
    form = check_series_picture(path, lines=ask is not None)
    look = _Look(plain, nonnegative, one_of(("area", "cell"), per=per), tuple(context), title)
    if ask is not None:
        write_figure(draw_lines(series, ask, level=level, title=title), path)
    elif form == "gif":
        maps = _Maps(series, _FRAMES, look)
        write_whole(Path(path), lambda part: _animate(maps, part))
    else:
        write_figure(_draw_panels(_Maps(series, _PANELS, look)), path)


def check_series_picture(path: str | Path, *, lines: bool) -> str:
    """Return the form of a picture by its suffix; InputError on another one, or lines as an animation."""
    form = form_of(path, SERIES_FORMS)
    if lines and form == "gif":
        raise InputError(
            f"path is {str(path)!r} with regions: their lines over time do not move; it must be {', '.join(FORMS)}"
        )
    return form


def _animate(maps: _Maps, path: Path) -> None:
    """Write an animation: a map for each period, half a second each."""
    from matplotlib import rc_context
    from PIL import Image

    domain = maps.series.domain
    wide, high = sides(domain) if domain.ndim == 2 else (1.6, 1.0)
    across = min(5.0, 5.0 * wide / high)
    width = max(across + 1.2, 4.5)
    # One palette for all frames: the scale's own colours, and greys of the writing.
    shades = [*maps.scale.colours(np.linspace(0, 1, 200))[:, :3], *([[grey] * 3 for grey in np.linspace(0, 1, 56)])]
    palette = Image.new("P", (1, 1))
    palette.putpalette((np.array(shades) * 255).round().astype(np.uint8).tobytes())
    with rc_context({"font.size": 9}):
        writing = maps.write_about(width)
        figure = new_figure(figsize=(width, max(across * high / wide + _TITLE, _LOW) + writing.height), dpi=_DPI)
        figure.set_layout_engine("constrained")
        ax = figure.subplots()
        maps.draw(ax, 0)
        _add_key(figure, maps, [ax])
        writing.write(figure, publishable=maps.series.publishable)
        canvas: Any = figure.canvas
        canvas.draw()
        figure.set_layout_engine("none")
        # All but the map stays, and is drawn once.
        ax.set_visible(False)
        canvas.draw()
        ground = canvas.copy_from_bbox(figure.bbox)

        def frames() -> Iterator[Image.Image]:
            with progress("drawing frames", len(maps.periods)) as advance:
                for number in range(len(maps.periods)):
                    for old in (*ax.images, *ax.patches, *ax.collections):  # faster than to clear the axes
                        old.remove()
                    ax.set_visible(True)
                    maps.draw(ax, number)
                    canvas.restore_region(ground)
                    figure.draw_artist(ax)
                    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
                    yield pixels.quantize(palette=palette, dither=Image.Dither.NONE)
                    advance(1)

        drawn = frames()
        next(drawn).save(path, "GIF", save_all=True, append_images=drawn, duration=_FRAME, loop=0)
