"""Maps of cells and regions, histograms in one dimension, and lists of values with their intervals."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from deltahist.decode import stands_out
from deltahist.decode.base import MOST_DENSE
from deltahist.decode.placement import block_error
from deltahist.errors import check_choice
from deltahist.plots import figures
from deltahist.space.geometries import add_names
from deltahist.space.workloads import Workload, regions
from deltahist.strategies.base import spread_blocks, sum_blocks

if TYPE_CHECKING:
    import geopandas as gpd
    from matplotlib.axes import Axes

    from deltahist.releases.base import BaseRelease
    from deltahist.releases.histogram import Release
    from deltahist.space.domain import Domain

#: Maximum number of regions labelled on a map and listed below it.
ROWS = 40


def plot_map(
    release: BaseRelease,
    ax: Axes | None = None,
    *,
    nonnegative: bool = False,
    per: str = "area",
    context: Sequence[Any] = (),
) -> Axes:
    """Draw the published estimates, in 2-D as colours and in 1-D as steps with a band of ± one standard error.

    The colour scale is proportional for small values and logarithmic for large values. Unbiased estimates of single
    cells are often mostly noise, so cells without clear differences are merged into blocks (`merge_cells`). Blocks that
    may be empty are grey. All blocks are tested together: on 95 of 100 maps, every coloured block contains points.

    Parameters
    ----------
    release : release of counts. ax : axes to draw on, or None for a new figure.
    nonnegative : draw non-negative estimates of every cell instead of merged unbiased estimates.
    per : whether colours show points per "area" (km², or square map units if there is no CRS) or per "cell".
    context : GeoDataFrames or GeoSeries in any CRS, such as roads, to draw as thin grey lines.

    Returns the axes, titled with the kind of estimates.

    >>> import deltahist as dh, numpy as np
    >>> domain = dh.Domain((583000, 4505000, 587000, 4509000), (16, 16), "EPSG:32618")
    >>> release = dh.publish(np.full(domain.shape, 9), dh.Neighbourhood(domain, delta=500), epsilon=1)
    >>> plot_map(release).get_ylabel()
    'northing (km)'
    """
    ax = figures.own_axes(ax)
    notes = draw_map(release, ax, nonnegative=nonnegative, per=per, context=context)
    ax.set_title(textwrap.fill(notes.partition(".")[0], 40), fontsize=8, loc="left")
    return ax


def draw_map(release: Any, ax: Axes, *, per: str, context: Sequence[Any], nonnegative: bool = False) -> str:
    """Draw the map of `plot_map`, and return notes about it."""
    check_choice(("area", "cell"), per=per)
    domain = release.domain
    if domain.ndim == 1:
        return _draw_histogram(release, ax, nonnegative)
    error, _ = block_error(release.decoder, (1, 1))
    merged, standing = merge_cells(release)
    areas: Any = np.ones(domain.shape)
    if per == "area":
        areas = figures.block_areas(domain, [np.arange(n + 1) for n in domain.shape])
    unit = figures.unit_of_area(domain) if per == "area" else "cell"
    ax.set_facecolor("0.94")
    is_even = np.ptp(merged) <= 1e-9 * np.abs(merged).max()
    if domain.size > 1 and (is_even or not standing.any()):
        even = figures.figure_of(max(0.0, float(merged.sum() / areas.sum())))
        notes = [f"Nothing stands out from the noise. An even {even} points per {unit} would fit the data."]
    else:
        shown, point = (release.cells(nonnegative=True) if nonnegative else merged) / areas, 1 / float(np.median(areas))
        merging = "" if nonnegative else ", means over blocks without clear differences"
        notes = [f"Estimates: {release.name_estimator(nonnegative)}{merging}."]
        # Keep the scale proportional up to about three standard errors, so that specks of noise are pale.
        linear = 3 * error * point if nonnegative and error else None
        scale = figures.smooth_scale(shown, linear=linear, least=point)
        (west, south), (east, north) = domain.low, domain.high
        style: dict[str, Any] = {"cmap": scale.colours, "norm": scale.norm, "interpolation": "nearest"}
        drawn = np.ma.masked_array(shown, ~standing)
        ax.imshow(drawn.T, origin="lower", extent=(west, east, south, north), **style)
        figures.add_colour_bar(ax, scale, f"points per {unit}")
        if not standing.all():
            notes.append("Grey: may be empty.")
        but = ", but single cells may be empty" * nonnegative
        notes.append(f"On 95 of 100 maps every coloured block has points{but}.")
    notes.append(f"The unbiased estimate of one cell has a standard error of {figures.figure_of(error)} points.")
    if "points outside" not in release.counting.dropped:
        notes.append("Cells at the edge also count points from outside.")
    figures.draw_frame(ax, domain, domain.bounds, context)
    return " ".join(notes)


def _draw_histogram(release: Any, ax: Axes, positive: bool) -> str:
    domain, edges = release.domain, release.domain.edges(0)
    cells, error = release.estimate_cells(nonnegative=positive)
    low = np.maximum(cells - error, 0.0) if positive else cells - error
    ax.stairs(cells + error, edges, baseline=low, fill=True, color="tab:blue", alpha=0.3, label="± one standard error")
    ax.stairs(cells, edges, baseline=None, color="tab:blue", linewidth=1.2, label="estimate")
    ax.axhline(0, color="0.5", linewidth=0.8)
    ax.set(xlabel=f"x ({domain.unit})", ylabel=f"points per cell of {domain.size_of_cells}", xlim=edges[[0, -1]])
    ax.legend(frameon=False, fontsize=8)
    notes = [f"Estimates: {release.name_estimator(positive)}."]
    if "points outside" not in release.counting.dropped:
        notes.append("The first and the last cell also count points from outside.")
    return " ".join(notes)


def merge_cells(release: Release, level: float = 0.05) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return points per cell (domain.shape), averaged over blocks, and whether each cell's block stands out.

    Blocks are nested. A block is divided if any block in it differs from an even share of the next larger one. A block
    stands out if it almost certainly has points. Both tests cover all blocks together, and each block size gets an
    equal share of `level`. So the probability that any empty block stands out is at most `level`, and so is the
    probability of any false difference. Merging preserves the sums of blocks.
    """
    cells, branching = release.cells(), int(getattr(release.mechanism.strategy, "branching", 2))
    shape, widths = cells.shape, [1]
    while widths[-1] < max(shape):
        widths.append(widths[-1] * branching)
    level /= len(widths)
    errors: Any
    kurtosis: Any
    sums, size, uneven, levels = cells, np.ones(shape), np.zeros(shape, dtype=bool), []
    for fine, coarse in itertools.pairwise([*widths, widths[-1] * branching]):
        if release.decoder.has_closed_form or release.domain.size <= MOST_DENSE:
            moments = release.block_moments(fine)
            errors, kurtosis = np.sqrt(moments.variance).reshape(sums.shape), moments.kurtosis.reshape(sums.shape)
        else:  # computing the errors of all blocks is slow, so a few blocks represent the rest
            errors, kurtosis = block_error(release.decoder, (fine,) * len(shape))
        above = stands_out(sums, errors, kurtosis, level=level)
        starts = tuple(np.arange(0, n, coarse // fine) for n in sums.shape)
        levels.append((sums / size, uneven, above, starts))
        larger, larger_size = sum_blocks(sums, starts), sum_blocks(size, starts)
        # By symmetry, a part's covariance with the whole is its share of the whole's variance. The excess below
        # therefore has a smaller variance than the part.
        excess = sums - size * spread_blocks(larger / larger_size, starts, sums.shape)
        differs = stands_out(excess, errors, kurtosis, level=level, either_side=True)
        uneven = sum_blocks(uneven | differs, starts) > 0
        sums, size = larger, larger_size
    shown, uneven, standing, _ = levels.pop()
    while levels:
        means, finer, above, starts = levels.pop()
        shown, standing, divided = (spread_blocks(each, starts, means.shape) for each in (shown, standing, uneven))
        shown, standing = np.where(divided, means, shown), np.where(divided, above, standing)
        uneven = divided & finer
    return shown, standing


@dataclass(frozen=True, eq=False)
class Values:
    """Regions to draw on a map, with their values.

    names : (m,) names of the regions. shapes : (m,) polygons, clipped to the map and in its coordinates.
    value, low, high : (m,) estimates and their intervals in `unit`; NaN where there is no answer.
    doubtful : (m,) True if a value does not stand out from the noise when all regions are tested together.
    unit : unit of the values in words. estimator : name of the estimates.
    bounds : west, south, east and north of the drawn part of the map.
    """

    names: tuple[str, ...]
    shapes: NDArray[Any]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    doubtful: NDArray[np.bool_]
    unit: str
    estimator: str
    bounds: tuple[float, ...]

    @property
    def order(self) -> NDArray[np.int64]:
        """Indices of the regions that have an answer, by decreasing value (at most m)."""
        order = np.argsort(-self.value, kind="stable")  # NaN comes last
        return order[: int(np.isfinite(self.value).sum())]

    @property
    def scale(self) -> figures.ColourScale | None:
        """The colour scale; None if nothing stands out from the noise."""
        return None if self.doubtful.all() else figures.classed_scale(self.value[~self.doubtful])

    @property
    def faces(self) -> NDArray[np.float64]:
        """The colour (m, 4) of each region."""
        from matplotlib.colors import to_rgba

        out, scale = np.tile(to_rgba("0.94"), (len(self.value), 1)), self.scale
        if scale is not None:
            known = ~self.doubtful
            out[known] = scale.colours(scale.norm(np.maximum(self.value[known], 0.0)))
        return out


def values_of(release: Any, answers: gpd.GeoDataFrame, per: str = "area") -> Values:
    """Return what to draw for `answers`, in points per "area" (km² or square units) or per "region"."""
    check_choice(("area", "region"), per=per)
    domain = release.domain
    columns = (answers[name] for name in ("estimate", "std_error", "low", "high"))
    estimate, error, low, high = (np.asarray(column, dtype=np.float64) for column in columns)
    # The frame contains the region columns first, then the answer columns.
    names = add_names(answers.loc[:, :"estimate"].drop(columns="estimate"))["name"]
    shapes = shapely.make_valid(figures.geometries_of(answers, domain, "answers"))
    shapes = np.asarray(shapely.intersection(shapes, shapely.box(*domain.bounds)))
    area = figures.region_areas(domain, shapes)
    known = np.isfinite(estimate) & (area > 0)
    size = np.where(known, area if per == "area" else 1.0, np.nan)
    standing = np.zeros(len(names), dtype=bool)
    standing[known] = find_standing(release, regions(shapes[known]), estimate[known], error[known])
    estimator = release.name_estimator(False)
    if "estimator" in answers.columns:  # unbiased answers have no such column
        estimator = ", ".join(map(str, answers["estimator"].dropna().unique()))
    # Show the regions' bounding box and a margin. Neither side may be shorter than half the other.
    low_corner, high_corner = shapely.total_bounds(shapes[known]).reshape(2, 2)
    extent = high_corner - low_corner
    margin = 0.04 * extent.max() + np.maximum(0.5 * extent.max() - extent, 0) / 2
    bounds = (*np.maximum(low_corner - margin, domain.low), *np.minimum(high_corner + margin, domain.high))
    labels = tuple(_shorten(name, row) for row, name in enumerate(names))
    drawn = estimate / size, low / size, high / size, ~(standing & (low > 0))
    unit = f"points per {figures.unit_of_area(domain) if per == 'area' else 'region'}"
    return Values(labels, shapes, *drawn, unit, estimator, tuple(map(float, bounds)))


def find_standing(
    source: Any, work: Workload, estimate: Any, error: NDArray[np.float64], *, either_side: bool = False
) -> NDArray[np.bool_]:
    """Return which estimates of regions stand out (`stands_out`) and were measured separately from other places."""
    noise = source.decoder.moments(work.cover(source.domain))
    share = np.divide(noise.variance, error**2, out=np.zeros_like(noise.variance), where=error > 0)
    standing = stands_out(estimate, error, noise.kurtosis * np.minimum(share, 1) ** 2, either_side=either_side)
    return standing if noise.unresolved is None else standing & (noise.unresolved < 1e-6)


def _shorten(name: Any, row: int) -> str:
    """Return a region's name on one line, shortened in the middle if it is long, or its row number if it has none."""
    text = f"region {row + 1}" if name is None or name != name else " ".join(str(name).split())
    return text if len(text) <= 28 else f"{text[:19]}…{text[-8:]}"


def plot_regions(
    release: BaseRelease,
    answers: gpd.GeoDataFrame,
    ax: Axes | None = None,
    *,
    per: str = "area",
    context: Sequence[Any] = (),
) -> Axes:
    """Draw a map of answers for regions, coloured by value. Regions that may be empty are hatched in grey.

    All regions are tested together: on 95 of 100 maps, every coloured region contains points. The 40 regions with the
    largest values are labelled if there is room. `save_picture` also lists these regions' intervals.

    Parameters
    ----------
    answers : `dh.answer(release, frame)` for a GeoDataFrame of regions, in any CRS. The column `name` or `id` contains
        their names.
    ax, context : as in `plot_map`.
    per : whether values are points per "area" (km², or square map units if there is no CRS) or per "region". With
        "area", no region stands out merely because it is large.

    Returns the axes, titled with the kind of estimates.

    >>> import deltahist as dh, geopandas as gpd, numpy as np, shapely
    >>> domain = dh.Domain((583000, 4505000, 587000, 4509000), (16, 16), "EPSG:32618")
    >>> release = dh.publish(np.full(domain.shape, 90), dh.Neighbourhood(domain, delta=500), epsilon=1)
    >>> halves = shapely.box([583000, 585000], 4505000, [585000, 587000], 4509000)
    >>> zones = gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=halves, crs=domain.crs)
    >>> ax = plot_regions(release, dh.answer(release, zones))
    >>> sorted(text.get_text() for text in ax.texts)
    ['east', 'west']
    """
    ax, values = figures.own_axes(ax), values_of(release, answers, per)
    notes = draw_regions(release.domain, values, ax, context)
    ax.set_title(textwrap.fill(notes.partition(".")[0], 40), fontsize=8, loc="left")
    label_regions(ax, values)
    return ax


def draw_regions(domain: Domain, values: Values, ax: Axes, context: Sequence[Any]) -> str:
    """Draw the map of `plot_regions` without labels, and return notes about it."""
    import geopandas as gpd

    shapes, scale = gpd.GeoSeries(values.shapes), values.scale
    shown = ~(shapes.is_empty | shapes.isna()).to_numpy()
    shapes[shown].plot(ax=ax, color=values.faces[shown], edgecolor="0.25", linewidth=0.6, aspect=None)
    notes = [f"Estimates: {values.estimator}."]
    if (hatched := values.doubtful & shown).any():
        shapes[hatched].plot(ax=ax, color="none", edgecolor="0.7", hatch="////", linewidth=0, aspect=None)
        notes.append("Hatched regions, with a white dot in lists, may be empty.")
    if scale is not None:
        notes.append("On 95 of 100 maps every coloured region has points.")
        figures.add_colour_bar(ax, scale, values.unit)
    figures.draw_frame(ax, domain, values.bounds, context)
    if len(values.order) > ROWS:
        notes.append(f"Only the {ROWS} largest of {len(values.order)} regions may have labels.")
    return " ".join(notes)


def label_regions(ax: Axes, values: Values) -> None:
    """Write names on the regions that are large enough."""
    from adjustText import adjust_text
    from matplotlib.patheffects import withStroke

    figure: Any = ax.get_figure(root=True)
    figure.draw_without_rendering()  # to compute the layout
    texts = []
    pixels = ax.get_window_extent().width / (ax.get_xlim()[1] - ax.get_xlim()[0])
    for region in values.order[:ROWS].tolist():
        shape = values.shapes[region]
        circle = shapely.maximum_inscribed_circle(shape, 0.02 * math.sqrt(shape.area))
        if circle.length * pixels < 8:  # too small to be labelled
            continue
        x, y = shapely.get_coordinates(circle)[0]
        style: dict[str, Any] = {"ha": "center", "va": "center", "clip_on": True, "parse_math": False, "zorder": 5}
        text = ax.text(x, y, values.names[region], fontsize=7, **style)
        text.set_path_effects([withStroke(linewidth=2, foreground="white", alpha=0.8)])
        texts.append(text)
    lines: dict[str, Any] = {"arrowstyle": "-", "color": "0.2", "linewidth": 0.6}
    adjust_text(texts, ax=ax, iter_lim=300, expand=(1.02, 1.05), arrowprops=lines)


def draw_intervals(values: Values, ax: Axes, level: float) -> None:
    """Draw the 40 largest answers with their intervals, one row per region, the largest first."""
    shown, scale = values.order[:ROWS], values.scale
    row = np.arange(len(shown))
    value, low, high = (np.maximum(v[shown], 0.0) for v in (values.value, values.low, values.high))
    fill = np.where(values.doubtful[shown, None], 1.0, values.faces[shown])
    ax.hlines(row, low, high, color="0.35", linewidth=1.1, zorder=2)
    ax.scatter(value, row, s=20, c=fill, edgecolors="0.15", linewidths=0.7, zorder=3, clip_on=False)
    if scale is not None and len(scale.ticks) > 2 and scale.ticks[-1] > 10 * scale.ticks[1]:
        ax.set_xscale("asinh", linear_width=scale.ticks[1] / 2)
        ax.set_xticks(scale.ticks, labels=[figures.figure_of(tick, 6) for tick in scale.ticks])
        ax.minorticks_off()
    else:
        ax.locator_params(axis="x", nbins=5)
        ax.xaxis.set_major_formatter(lambda value, _: figures.figure_of(value))
    ax.set_yticks(row, labels=[values.names[i] for i in shown], parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(labelsize=8)
    ax.set(xlim=(0, None), ylim=(len(shown) - 0.4, -0.6), xlabel=f"{values.unit}, with {level:.0%} intervals")
    ax.grid(axis="x", color="0.9")
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
