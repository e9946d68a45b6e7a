"""Answers for regions: a map in a few colours, and beside it every value with its interval."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import DeltaHistWarning, InputError, one_of
from deltahist.plots.colours import ColourScale, classed_scale, is_dark
from deltahist.plots.ground import (
    add_bar,
    axis_unit,
    crop,
    draw_ground,
    exceeds_zero,
    figure_of,
    geometries_of,
    holds_points_from_outside,
    note_above,
    own_axes,
    region_areas,
    unit_of_area,
)
from deltahist.plots.labels import label_regions
from deltahist.plots.writing import choose_fonts, wrap, write_names
from deltahist.space.domain import Domain
from deltahist.space.geometries import named

if TYPE_CHECKING:
    import geopandas as gpd
    from matplotlib.axes import Axes
    from matplotlib.path import Path as Outline

    from deltahist.releases.base import BaseRelease
    from deltahist.space.domain import Domain

#: Hatching of what does not stand out.
_HATCH = "////"
#: Colour of regions where nothing is known, or nothing stands out.
_BLANK = "0.94"
#: Rows of values beside a map that can be read.
ROWS = 50
#: Space in points that a row of values needs at least, and takes at most.
_PITCH = (7.8, 14.0)
#: Names of at most so many letters are written on the map themselves; longer ones are numbered.
_SHORT = 4
#: Inches of a name in the list.
_LONGEST = 1.6


@dataclass(frozen=True, eq=False)
class Values:
    """Regions on a map with their values.

    Parameters
    ----------
    names : (m,) of the regions. shapes : (m,) their polygons within the map, in its coordinates.
    value, low, high : (m,) estimates and their intervals in `unit`; NaN where there is no answer.
    doubtful : (m,) whether a value does not stand out from the noise.
    unit : of the values, in words. estimator : name of the estimates.
    at_rim : whether some also hold points from outside the map.
    frame : the part of the map that is drawn.
    rank : (m,) places, which neighbours share whose order is not sure; None where the order is not asked.
    """

    names: tuple[str, ...]
    shapes: NDArray[Any]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    doubtful: NDArray[np.bool_]
    unit: str
    estimator: str
    at_rim: bool
    frame: Domain
    rank: NDArray[np.float64] | None = None

    @functools.cached_property
    def order(self) -> NDArray[np.int64]:
        """The regions (at most m) that have an answer, the largest value first."""
        order = np.argsort(-self.value, kind="stable")  # NaN comes last
        return order[: int(np.isfinite(self.value).sum())]

    @functools.cached_property
    def scale(self) -> ColourScale | None:
        """The scale of colours; None if nothing stands out from the noise."""
        sure = self.value[~self.doubtful]
        return (
            classed_scale(sure, float(np.median((self.high - self.low)[~self.doubtful])))
            if len(sure)
            else None
        )

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """The key of each region on the map: its name if all are short, else its place in the order."""
        if max(map(len, self.names)) <= _SHORT:
            return self.names
        out = [""] * len(self.names)
        for place, region in enumerate(self.order.tolist(), start=1):
            out[region] = str(place)
        return tuple(out)


def values_of(
    release: BaseRelease, answers: gpd.GeoDataFrame, names: Sequence[str] | None = None, per: str = "area"
) -> Values:
    """Return the values that a picture shows of `dh.answer(release, frame)` for a frame of regions.

    Parameters
    ----------
    names : (m,) of the regions; by default the column `name` or `id`, or their numbers.
    per : values are points per "area" (km², or the square of a plane's unit) or per "region".

    Raises
    ------
    InputError
        If the answers are no such frame, the names are not one for each, or none of it is on the map.
    """
    import shapely

    one_of(("area", "region"), per=per)
    if not hasattr(answers, "geometry"):
        raise InputError(
            f"answers are a {type(answers).__name__} without geometries: they must be what dh.answer(release, frame) "
            "returns for a GeoDataFrame of regions"
        )
    domain = release.domain
    estimate, error, low, high = (_column(answers, c) for c in ("estimate", "std_error", "low", "high"))
    if names is None:  # answers stand behind the columns of the regions themselves
        names = named(answers.loc[:, :"estimate"].drop(columns="estimate"), name="the column of names")[
            "name"
        ]
    called = write_names(names, answers.index)
    if len(called) != len(answers):
        raise InputError(f"there are {len(called)} names and {len(answers)} regions: give one name each")
    shapes = shapes_on_map(answers, domain)
    area = region_areas(domain, shapes)
    known = np.isfinite(estimate) & (area > 0)
    if not known.any():
        raise InputError("answers say nothing of any region on the map (are they in another CRS?)")
    # A region at whose edge cells of the rim lie holds some of what is counted there.
    inside = [lo + c for lo, c in zip(domain.low, domain.cell, strict=True)]
    inside += [hi - c for hi, c in zip(domain.high, domain.cell, strict=True)]
    reaches = not shapely.covered_by(shapes, shapely.box(*inside)).all()
    unit = f"points per {unit_of_area(domain)}" if per == "area" else "points per region"
    size = np.where(known, area if per == "area" else 1.0, np.nan)
    # Answers have a column of estimators unless they are unbiased.
    estimator = release.estimator(False)
    if "estimator" in answers.columns:
        estimator = ", ".join(map(str, answers["estimator"].dropna().unique()))
    return Values(
        called,
        shapes,
        estimate / size,
        low / size,
        high / size,
        ~(known & exceeds_zero(estimate, error, low)),
        unit,
        estimator,
        reaches and holds_points_from_outside(release),
        crop(domain, shapes[known]),
        _column(answers, "rank") if "rank" in answers.columns else None,
    )


def shapes_on_map(frame: gpd.GeoDataFrame, domain: Domain) -> NDArray[Any]:
    """Return the parts of regions (m,) that a map holds, in its coordinates."""
    import shapely

    shapes = shapely.make_valid(geometries_of(frame, domain, "answers"))
    return np.asarray(shapely.intersection(shapes, shapely.box(*domain.bounds)))


def _column(answers: gpd.GeoDataFrame, name: str) -> NDArray[np.float64]:
    """Return a column of answers."""
    if name not in answers.columns:
        raise InputError(
            f"answers have no column {name!r}: they must be what dh.answer(release, frame) returns for a GeoDataFrame"
        )
    return np.asarray(answers[name], dtype=np.float64)


def plot_regions(
    release: BaseRelease,
    answers: gpd.GeoDataFrame,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    per: str = "area",
    axes: str = "km",
    context: Sequence[Any] = (),
) -> Axes:
    """Draw a map of answers for regions: colours are values, hatched is what does not stand out from the noise.

    A region is hatched if its interval includes zero, or its standard error is more than a third of the value. Values
    and their intervals are written where there is room (`plot_intervals` has all of them). Where no region stands out,
    the picture says so, and has no colours.

    Parameters
    ----------
    release : Release
    answers : `dh.answer(release, frame)` for a GeoDataFrame of regions, in any CRS.
    ax : where to draw; a new figure when None. Its layout is worked out, to see where labels fit.
    names : (m,) of the regions; by default the column `name` or `id`, or their numbers.
    level : of the intervals in the answers, for the words.
    per : values are points per "area" (km², or the square of a plane's unit), so that large regions do not stand out
        by their size; or points per "region".
    axes, context : as in `plot_map`.

    Returns
    -------
    The axes.

    Raises
    ------
    InputError
        If the answers are no such frame, on another `per` or `axes`, or on a context of which nothing is on the map.

    >>> import deltahist as dh, geopandas as gpd, numpy as np, shapely
    >>> domain = dh.Domain((583000, 4505000, 587000, 4509000), (16, 16), "EPSG:32618")
    >>> release = dh.publish(np.full(domain.shape, 90), dh.Neighbourhood(domain, delta=500), epsilon=1)
    >>> halves = shapely.box([583000, 585000], 4505000, [585000, 587000], 4509000)
    >>> zones = gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=halves, crs=domain.crs)
    >>> ax = plot_regions(release, dh.answer(release, zones))
    >>> sorted(text.get_text().splitlines()[0] for text in ax.texts)
    ['east', 'west']
    """
    values = values_of(release, answers, names, per)
    return draw_regions(release, values, own_axes(ax), level=level, axes=axes, context=context)


def draw_regions(
    release: BaseRelease,
    values: Values,
    ax: Axes,
    *,
    level: float,
    axes: str,
    context: Sequence[Any],
    keyed: bool = False,
) -> Axes:
    """Draw the map of `plot_regions`; `keyed` writes keys of a list beside it on the regions instead of values."""
    domain, frame = release.domain, values.frame
    factor, _ = axis_unit(domain)
    faces = _faces(values)
    _fill(ax, values, faces, factor)
    lines = ["" if keyed else f"; figures: estimate ({level:.0%} interval)", ""]
    if values.scale is None:
        lines[1] = "No region stands out from the noise"
    else:
        add_bar(ax, values.scale, values.unit, frame)
        if values.doubtful.any():
            lines[1] = "Hatched: does not stand out from the noise"
    if values.at_rim:
        lines[1] += f"{'; d' if lines[1] else 'D'}ashed rim: with points from outside"
    draw_ground(ax, domain, axes=axes, context=context, rim=values.at_rim, frame=frame)
    note_above(ax, [f"Estimates: {values.estimator}{lines[0]}", *lines[1:]], frame)
    left = label_regions(ax, values, faces, factor, most=ROWS if keyed else None)
    if left:
        warnings.warn(
            f"{left} of {len(values.order)} regions have no label on the map: there is no room in them or near them"
            + ("" if keyed else "; with the list of all values beside the map each has a number"),
            DeltaHistWarning,
            stacklevel=2,
        )
    return ax


def _faces(values: Values) -> NDArray[np.float64]:
    """Return the colour (m, 4) of each region."""
    from matplotlib.colors import to_rgba

    out = np.tile(to_rgba(_BLANK), (len(values.value), 1))
    if values.scale is not None:
        known = np.isfinite(values.value)
        out[known] = values.scale.colours(values.scale.norm(np.maximum(values.value[known], 0.0)))
    return out


def _fill(ax: Axes, values: Values, faces: NDArray[np.float64], factor: float) -> None:
    from matplotlib.collections import PathCollection

    outlines = [_outline(shape, factor) for shape in values.shapes]
    style: dict[str, Any] = {"linewidths": 0, "facecolors": "none"}
    ax.add_collection(PathCollection(outlines, facecolors=list(faces), linewidths=0), autolim=False)
    dark = np.array([is_dark(face[:3]) for face in faces])
    for these, colour in ((values.doubtful & ~dark, "0.5"), (values.doubtful & dark, "0.8")):
        chosen = [outline for outline, wanted in zip(outlines, these, strict=True) if wanted]
        marked = PathCollection(chosen, hatch=_HATCH, edgecolors=colour, **style)
        marked.set_hatch_linewidth(0.5)
        ax.add_collection(marked, autolim=False)
    style["linewidths"] = 0.6
    ax.add_collection(PathCollection(outlines, edgecolors="0.25", **style), autolim=False)


def _outline(shape: Any, factor: float) -> Outline:
    """Return all rings of a polygon as one path, so that holes are not filled."""
    import shapely
    from matplotlib.path import Path as Outline

    # Rings that turn against each other leave holes under every rule of filling.
    parts = shapely.get_parts(shapely.normalize(shape))
    rings = shapely.get_rings(parts[shapely.get_dimensions(parts) == 2])
    paths = [Outline(shapely.get_coordinates(ring) * factor, closed=True) for ring in rings]
    return Outline.make_compound_path(*paths) if paths else Outline(np.zeros((0, 2)))


def plot_intervals(
    release: BaseRelease,
    answers: gpd.GeoDataFrame,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    per: str = "area",
) -> Axes:
    """Draw answers for regions with their intervals, a row each, the largest first.

    Parameters
    ----------
    release, answers, ax, names, level, per : as in `plot_regions`.

    Returns
    -------
    The axes. Values that do not stand out are hollow; at most 50 rows are drawn, of the largest values.

    Raises
    ------
    InputError
        As in `plot_regions`.
    """
    return draw_intervals(values_of(release, answers, names, per), own_axes(ax), level)


def draw_intervals(values: Values, ax: Axes, level: float) -> Axes:
    """Draw the rows of `plot_intervals`."""
    shown = values.order[:ROWS]
    row = np.arange(len(shown))
    value, low, high = (v[shown] for v in (values.value, values.low, values.high))
    colours = _faces(values)[shown]
    # Nothing is below zero, so that only what is above it is drawn of an interval.
    ax.hlines(row, np.maximum(low, 0.0), np.maximum(high, 0.0), color="0.35", linewidth=1.1, zorder=2)
    tied = _mark_ties(ax, values, shown)
    sure = ~values.doubtful[shown]
    dots: dict[str, Any] = {"s": 20, "edgecolors": "0.15", "linewidths": 0.7, "zorder": 3, "clip_on": False}
    at = np.maximum(value, 0.0)
    ax.scatter(at[sure], row[sure], c=colours[sure], **dots)
    ax.scatter(at[~sure], row[~sure], c="white", **dots)
    if values.scale is not None and values.scale.grows:
        ax.set_xscale("asinh", linear_width=values.scale.ticks[1] / 2)
        ax.set_xticks(values.scale.ticks, labels=[figure_of(t, 6) for t in values.scale.ticks])
        ax.minorticks_off()
    else:
        ax.locator_params(axis="x", nbins=5)
        ax.xaxis.set_major_formatter(lambda value, _: figure_of(value))
    keys = [values.keys[i] for i in shown]
    names = [values.names[i] for i in shown]
    labels = [wrap(name, _LONGEST, 8, 1)[0] for name in names]
    if len(set(labels)) < len(set(names)):  # they differ at the end
        short = [wrap(name[:-8], _LONGEST - 0.6, 8, 1)[0] + name[-8:] for name in names]
        labels = [name if name == label else cut for name, label, cut in zip(names, labels, short, strict=True)]
    if values.keys != values.names:
        labels = [f"{label}  {key:>2}" for label, key in zip(labels, keys, strict=True)]
    ax.set_yticks(row, labels=labels)
    for tick, label in zip(ax.get_yticklabels(), labels, strict=True):
        tick.set(fontfamily=choose_fonts(label), parse_math=False)
    ax.tick_params(axis="y", length=0, labelsize=8 if len(shown) <= 30 else 6.5)
    ax.tick_params(axis="x", labelsize=8)
    ax.set(ylim=(len(shown) - 0.4, -0.6))
    ax.set_xlim(left=0)
    ax.margins(x=0.02)
    ax.grid(axis="x", color="0.9")
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_xlabel(f"{values.unit}, with {level:.0%} intervals", fontsize=9)
    words = f"The {len(shown)} largest of {len(values.order)}" if len(shown) < len(values.order) else ""
    words = "; ".join(filter(None, [words, f"on one band: order less sure than {level:.0%}" if tied else ""]))
    # Above the list, since a box within it would lie on intervals.
    words = "\n".join(filter(None, [words, "" if sure.all() else "White dot: does not stand out from the noise"]))
    ax.set_title(words, fontsize=8)
    return ax


def _mark_ties(ax: Axes, values: Values, shown: NDArray[np.int64]) -> bool:
    """Lay a band behind neighbouring rows that share a rank; return whether there are any."""
    if values.rank is None:
        return False
    rank = values.rank[shown]
    begins = np.flatnonzero(np.diff(rank, prepend=np.nan) != 0)
    ends = np.append(begins[1:], len(rank))
    bands = [(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True) if end - begin > 1]
    for begin, end in bands:
        ax.axhspan(begin - 0.42, end - 0.58, color="0.92", linewidth=0, zorder=0)
    return bool(bands)


def height_of_rows(number: int) -> float:
    """Return the height in inches of some rows of intervals."""
    least, most = _PITCH
    return max(min(number, ROWS), 3) * (most if number <= 15 else max(least, most * 15 / number)) / 72
