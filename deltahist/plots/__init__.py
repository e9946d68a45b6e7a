"""Pictures of a release: its map, its answers for regions, and what protection is left at which distance.

>>> import pathlib, tempfile, deltahist as dh, numpy as np
>>> near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1)
>>> release = dh.publish(np.full((8, 8), 90), near, epsilon=1)
>>> with tempfile.TemporaryDirectory() as folder:
...     dh.plots.save_picture(release, pathlib.Path(folder, "map.svg"), "map")
...     pathlib.Path(folder, "map.svg").stat().st_size > 1000
True
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deltahist._files import form_of
from deltahist._progress import progress
from deltahist.errors import InputError
from deltahist.plots.cells import plot_map
from deltahist.plots.curves import plot_frontier, plot_protection, protection_curve, save_frontier
from deltahist.plots.ground import FORMS, PICTURES, is_narrow, is_wide, new_figure, sides, write_figure
from deltahist.plots.regions import (
    Values,
    draw_intervals,
    draw_regions,
    height_of_rows,
    plot_intervals,
    plot_regions,
    values_of,
)
from deltahist.plots.series import check_series_picture, draw_steps, save_series
from deltahist.plots.timelines import draw_lines
from deltahist.plots.writing import Writing

if TYPE_CHECKING:
    import geopandas as gpd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltahist.releases.base import BaseRelease
    from deltahist.space.domain import Domain

__all__ = [
    "PICTURES",
    "check_picture",
    "check_series_picture",
    "draw_lines",
    "draw_steps",
    "picture",
    "plot_frontier",
    "plot_intervals",
    "plot_map",
    "plot_protection",
    "plot_regions",
    "protection_curve",
    "save_frontier",
    "save_picture",
    "save_series",
]

# Lengths are in inches. A map alone is as wide as the text of a page, a map and a curve as a page on its side.
#: Largest width and height of a map without its labels.
_MAP, _MAP_HIGH = 4.6, 5.2
#: Width of a curve, or a list of values, beside a map.
_CURVE = 4.0
#: Width of a map that is far wider than high, with its labels; others are at least so wide with theirs.
_WIDEST, _NARROWEST = 8.0, 3.8
#: Width and height of a map's own labels and bar.
_LABELS = 1.7, 1.1


@progress("drawing the picture")
def save_picture(
    release: BaseRelease,
    path: str | Path,
    only: str | None = None,
    *,
    answers: gpd.GeoDataFrame | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    plain: bool = False,
    nonnegative: bool | None = None,
    per: str = "area",
    axes: str = "km",
    context: Sequence[Any] = (),
    title: str | None = None,
) -> None:
    """Draw the map and the protection curve beside it, or one of them, into a PNG, SVG or PDF file.

    With answers for regions it is their map (`plot_regions`), and beside it all values with intervals. Below the
    picture stands what was promised. The file appears whole or not at all.

    Parameters
    ----------
    release : what was published.
    path : of the file.
    only : "map" or "curve", instead of both.
    answers, names : of regions, as in `plot_regions`. level : of their intervals, for the words.
    plain, nonnegative, context, axes : as in `plot_map`.
    per : "area", or else "region" with answers and "cell" without.
    title : of the picture, in two lines at most; by default the kind of map.

    Raises
    ------
    InputError
        On another suffix, an unknown part, or what the parts themselves refuse.
    """
    check_picture(path, only)
    if answers is not None and only == "curve":
        raise InputError(
            "only is 'curve' with answers for regions: the curve has no regions; leave one of them out"
        )
    values = None if answers is None else values_of(release, answers, names, per)
    look = _Look(values, level, plain, nonnegative, per, axes, tuple(context), title)
    figure = _make_figure(release, only, look)
    write_figure(figure, path)


def picture(release: BaseRelease) -> bytes:
    """Return the map as a PNG picture, as notebooks show it."""
    file = io.BytesIO()
    _make_figure(release, "map", _Look()).savefig(file, format="png", dpi=90)
    return file.getvalue()


@dataclass(frozen=True, eq=False)
class _Look:
    """The look of a picture: parameters of `save_picture`."""

    values: Values | None = None
    level: float = 0.95
    plain: bool = False
    nonnegative: bool | None = None
    per: str = "area"
    axes: str = "km"
    context: tuple[Any, ...] = ()
    title: str | None = None

    def heading(self, release: BaseRelease, only: str | None) -> str:
        """Return the title of the picture."""
        if self.title is not None or only == "curve":  # which has a title of its own
            return self.title or ""
        if self.values is None:
            return "Published map" if release.domain.ndim == 2 else "Published histogram"
        number = len(self.values.names)
        return f"Published {self.values.unit}, {number} region{'s' if number > 1 else ''}"

    def frame(self, release: BaseRelease) -> Domain:
        """Return the part of the map that is drawn."""
        return release.domain if self.values is None else self.values.frame


def _make_figure(release: BaseRelease, only: str | None, look: _Look) -> Figure:
    from matplotlib import rc_context

    names = [only] if only else ["map", "curve" if look.values is None else "list"]
    parts = [_PARTS[name] for name in names]
    wide, alone = is_wide(look.frame(release)), len(parts) == 1
    widths, heights = zip(*(part.inches(release, look, alone) for part in parts), strict=True)
    size = (max(widths), sum(heights)) if wide else (sum(widths), max(heights))
    grid: dict[str, Any] = {"nrows": len(parts), "height_ratios": heights}
    if not wide:
        grid = {"ncols": len(parts), "width_ratios": widths}
    with rc_context({"font.size": 9}):
        writing = Writing.of(look.heading(release, only), _describe_promise(release, look), size[0])
        figure = new_figure(figsize=(size[0], size[1] + writing.height))
        figure.set_layout_engine("constrained", w_pad=0.1)
        panels = figure.subplots(squeeze=False, **grid).ravel()
        writing.write(figure, publishable=release.publishable)
        # The map comes last: where its labels fit is known when everything else has its place.
        for part, ax in reversed(list(zip(parts, panels, strict=True))):
            part.draw(release, ax, look, alone)
    return figure


class _Part(NamedTuple):
    """A picture, alone or beside another: what draws it, and width and height in inches with its own labels."""

    draw: Callable[[BaseRelease, Axes, _Look, bool], object]
    inches: Callable[[BaseRelease, _Look, bool], tuple[float, float]]


def _inches_of_map(release: BaseRelease, look: _Look, alone: bool) -> tuple[float, float]:
    frame = look.frame(release)
    shape = sides(frame)[0] / sides(frame)[1] if frame.ndim == 2 else 1.4
    if is_wide(frame):
        return _WIDEST, (_WIDEST - 0.8) / shape + 1.6
    across = min(_MAP + 0.3 * alone, _MAP_HIGH * shape)
    return max(across + _LABELS[0], _NARROWEST), across / shape + _LABELS[1]


def _draw_map(release: BaseRelease, ax: Axes, look: _Look, alone: bool) -> None:
    ways: dict[str, Any] = {"axes": look.axes, "context": look.context}
    keyed = look.values is not None and not alone
    if look.values is None:
        plot_map(release, ax, plain=look.plain, nonnegative=look.nonnegative, per=look.per, **ways)
    else:
        draw_regions(release, look.values, ax, level=look.level, keyed=keyed, **ways)
    frame = look.frame(release)
    if frame.ndim == 2:
        high = "N" if (keyed or alone) and not is_wide(frame) else "C"
        ax.set_anchor("W" if is_narrow(frame) else high)


def _inches_of_list(release: BaseRelease, look: _Look, alone: bool) -> tuple[float, float]:
    return _CURVE, height_of_rows(len(look.values.order) if look.values else 0) + 0.5


def _draw_list(release: BaseRelease, ax: Axes, look: _Look, alone: bool) -> None:
    if look.values is not None:
        draw_intervals(look.values, ax, look.level)


#: Pictures by their names; the list of values is drawn only beside a map of regions.
_PARTS = {
    "map": _Part(_draw_map, _inches_of_map),
    "curve": _Part(lambda release, ax, *_: plot_protection(release, ax), lambda *_: (_CURVE, 3.6)),
    "list": _Part(_draw_list, _inches_of_list),
}
#: Those that may be asked for alone.
PARTS = tuple(name for name in _PARTS if name != "list")


def check_picture(path: str | Path, only: str | None = None) -> None:
    """Raise InputError unless a picture can be called that, and `only` is None or one of `PARTS`."""
    form_of(path, FORMS)
    if only is not None and only not in PARTS:
        raise InputError(f"only is {only!r}: it must be {' or '.join(PARTS)}")


def _describe_promise(release: BaseRelease, look: _Look) -> str:
    """Return the promise, and what hatches mean, as stands below the picture."""
    domain, promise = release.domain, release.mechanism.promise
    text = f"Published with noise for privacy: {promise}; cells of {domain.size_of_cells}"
    text += f"; map in {domain.crs}." if domain.crs else "."
    if look.values is not None and look.values.doubtful.any():
        text += " Estimates stand out if their interval is above 0, and their standard error at most a third of them."
    return text
