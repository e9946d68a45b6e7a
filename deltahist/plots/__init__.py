"""Pictures of a release: its map, its answers for regions, and its protection at each distance.

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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist._files import form_of
from deltahist.errors import check_choice
from deltahist.plots import figures, maps
from deltahist.plots.curves import draw_lines, plot_protection, plot_sweep, protection_curve
from deltahist.plots.maps import plot_map, plot_regions

if TYPE_CHECKING:
    import geopandas as gpd
    from matplotlib.figure import Figure

    from deltahist.releases.base import BaseRelease

__all__ = [
    "draw_lines", "draw_png", "plot_map", "plot_protection", "plot_regions", "plot_sweep", "protection_curve",
    "save_picture",
]  # fmt: skip


def save_picture(
    release: BaseRelease,
    path: str | Path,
    only: str | None = None,
    *,
    answers: gpd.GeoDataFrame | None = None,
    level: float = 0.95,
    title: str | None = None,
    **look: Any,
) -> None:
    """Write a PNG, SVG or PDF file with the map and, below it, the protection curve.

    If there are answers for regions, draw a map of them (see `plot_regions`) and, below it, their values with
    intervals. The text at the bottom states the guarantee. An error leaves no half-written file.

    Parameters
    ----------
    only : "map" or "curve", to draw only one of the two.
    answers : answers for regions, as in `plot_regions`. level : confidence level of their intervals, for the label.
    title : title of the picture. By default, it is the title of the release, or says what the picture shows.
    look : other options of `plot_map`, or of `plot_regions` if answers are given.

    Raises InputError if `only` or the suffix of `path` is unknown.
    """
    check_choice((None, "map", "curve"), only=only)
    form_of(path, figures.FORMS)
    figures.write_figure(_make_figure(release, only, answers, level, title, **look), path)


def draw_png(release: BaseRelease) -> bytes:
    """Return the map as a PNG picture for notebooks."""
    file = io.BytesIO()
    _make_figure(release, "map").savefig(file, format="png", dpi=90)
    return file.getvalue()


def _make_figure(
    release: BaseRelease,
    only: str | None,
    answers: gpd.GeoDataFrame | None = None,
    level: float = 0.95,
    title: str | None = None,
    *,
    per: str = "area",
    context: Sequence[Any] = (),
    **look: Any,
) -> Figure:
    from matplotlib import rc_context

    domain, notes, heights = release.domain, "", []
    values = None if answers is None or only == "curve" else maps.values_of(release, answers, per)
    check_choice((1, 2), dimensions=domain.ndim)
    name = release.about.title
    heading = name or ("Published map" if domain.ndim == 2 else "Published histogram")
    if values is not None:
        shown = f"{values.unit}, {len(values.names)} region{'s'[: len(values.names) != 1]}"
        heading = f"{name}: {shown}" if name else f"Published {shown}"
    elif only == "curve":
        heading = f"{name}: protection by distance" if name else "Protection by distance"
    elif release.mechanism.step is not None:
        heading += f", step {release.mechanism.step.label}"
    if only != "curve":
        bounds = domain.bounds if values is None else values.bounds
        heights.append(3.0 if domain.ndim == 1 else figures.height_of(bounds))
    if only != "map":
        heights.append(3.3 if values is None else 0.17 * min(len(values.order), maps.ROWS) + 0.8)
    with rc_context({"font.size": 9}):
        figure = figures.new_figure(figsize=(figures.WIDTH, sum(heights)))
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
        panels = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        if values is not None:
            notes = maps.draw_regions(domain, values, panels[0], context) + " "
            if only is None:
                maps.draw_intervals(values, panels[-1], level)
        else:
            if only != "curve":
                notes = maps.draw_map(release, panels[0], per=per, context=context, **look) + " "
            if only != "map":
                plot_protection(release, panels[-1])
        notes += f"Published with noise for privacy: {release.mechanism.promise}; cells of {domain.size_of_cells}"
        notes += f"; map in {domain.crs}." if domain.crs else "."
        figures.write_around(figure, title or heading, notes, sum(heights), release)
        if values is not None:  # last, because labels depend on the finished layout
            maps.label_regions(panels[0], values)
    return figure
