"""The map of cells, merged where cells do not stand out from the noise, or the histogram of a line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.placement import ErrorSource, block_error
from deltahist.errors import InputError, one_of
from deltahist.plots.colours import smooth_scale
from deltahist.plots.ground import (
    add_bar,
    axis_unit,
    cell_areas,
    draw_ground,
    figure_of,
    holds_points_from_outside,
    note_above,
    own_axes,
    sides,
    unit_of_area,
)
from deltahist.strategies.base import spread_blocks, sum_blocks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deltahist.releases.base import BaseRelease
    from deltahist.releases.histogram import Release

#: Colours of single cells are about proportional up to this many standard errors, so that specks of noise are pale, and
#: logarithmic beyond.
LINEAR = 3.0


def plot_map(
    release: BaseRelease,
    ax: Axes | None = None,
    *,
    plain: bool = False,
    nonnegative: bool | None = None,
    per: str = "area",
    axes: str = "km",
    context: Sequence[Any] = (),
) -> Axes:
    """Draw the published estimates: colours in 2-D, steps with a band of one standard error in 1-D.

    Sorted points are drawn as their histogram.

    Every cell has its non-negative estimate, where it is not too much to find them. Unbiased estimates of single cells
    are often mostly noise, so of these cells are merged where they do not stand out (`merge_cells`). Where no cell
    does, the picture says so instead. Colours are proportional for small values and logarithmic for large ones. Above
    the picture stands which estimates they are.

    Parameters
    ----------
    release : Release
    ax : where to draw; a new figure when None.
    plain : draw every cell's own unbiased estimate, noise and all; values below one standard error are pale.
    nonnegative : draw non-negative estimates of every cell, or else unbiased ones, merged; by default non-negative
        ones of up to 32,768 cells, where they are calibrated (`Release.draws_nonnegative`).
    per : colours are points per "area" (km², or the square of a plane's unit) or per "cell".
    axes : labelled in "km" (the plane's units without a CRS) or "degrees".
    context : geometries to find one's way by, drawn thin and grey: GeoDataFrames or GeoSeries, in any CRS.

    Returns
    -------
    The axes.

    Raises
    ------
    InputError
        On another `per` or `axes`, `plain` with `nonnegative`, degrees without a CRS, or a context of which nothing
        lies on the map.

    >>> import deltahist as dh, numpy as np
    >>> domain = dh.Domain((583000, 4505000, 587000, 4509000), (16, 16), "EPSG:32618")
    >>> release = dh.publish(np.full(domain.shape, 9), dh.Neighbourhood(domain, delta=500), epsilon=1)
    >>> plot_map(release, plain=True).get_xlabel()
    'easting (km, EPSG:32618)'
    """
    one_of(("area", "cell"), per=per)
    ax, domain, cell = own_axes(ax), release.domain, "cell"
    if plain and nonnegative:
        raise InputError(
            "plain is given with nonnegative: it draws unbiased estimates; leave one of them out"
        )
    positive = release.draws_nonnegative(False if plain and nonnegative is None else nonnegative)
    if domain.ndim == 1:
        if context:
            raise InputError(
                "context is given, but the release is of a line: it must be a map in two dimensions"
            )
        return _draw_histogram(release, ax, positive)
    of_counts: Any = release  # a map is one of counts, or a sum of such
    noise, _ = block_error(of_counts.decoder, (1, 1))
    merged = None if plain else merge_cells(of_counts)
    error = f"{figure_of(noise)} points"
    kind = f"Estimates: {release.estimator(positive)}"
    rim = holds_points_from_outside(release)
    if merged is not None and domain.size > 1 and np.ptp(merged) <= 1e-9 * np.abs(merged).max():
        even = float(merged[0, 0]) * (domain.size / cell_areas(domain).sum() if per == "area" else 1.0)
        unit = unit_of_area(domain) if per == "area" else "cell"
        words = (
            f"Nothing stands out from the noise:\nan even {figure_of(even)} points per {unit} fits all of it"
        )
        wide, high = sides(domain)
        lines = [f"Standard error of one {cell}: {error}"]
        if 0.6 < wide / high < 4:
            ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center")
        else:
            lines = [words.replace("\n", " "), *lines]
        ax.set_facecolor("0.94")
    else:
        _colour_cells(release, ax, merged, noise, nonnegative=positive, per=per)
        explanation = "below that is pale" if plain else f"{cell.split()[0]}s that do not stand out from it are merged"
        lines = [f"{kind}; standard error of one {cell}: {error};", explanation]
        if positive:
            lines = [kind, f"Standard error of one cell, unbiased: {error}"]
    if rim:
        lines.append("Dashed rim: cells there also hold points from outside")
    draw_ground(ax, domain, axes=axes, context=context, rim=rim)
    note_above(ax, lines, domain)
    return ax


def _colour_cells(
    release: BaseRelease, ax: Axes, merged: Any, noise: float, *, nonnegative: bool, per: str
) -> None:
    """Draw the picture and its bar; `merged` is None where every cell is drawn for itself."""
    domain = release.domain
    own = merged is None and not nonnegative
    shown = release.cells(nonnegative=True) if nonnegative else release.cells() if own else merged
    label, point = "points per cell", 1.0
    if per == "area":
        areas = cell_areas(domain)
        shown, point = shown / areas, 1 / float(np.median(areas))
        label = f"points per {unit_of_area(domain)}"
    # What a single cell cannot tell from nothing is pale; merged blocks can tell less, and are drawn from zero.
    low = noise * point if own else 0.0
    linear = LINEAR * noise * point if (own or nonnegative) and noise else None
    scale = smooth_scale(shown, low=low, linear=linear, least=point)
    factor, _ = axis_unit(domain)
    (west, south), (east, north) = domain.low, domain.high
    ax.imshow(
        shown.T,
        origin="lower",
        extent=(west * factor, east * factor, south * factor, north * factor),
        cmap=scale.colours,
        norm=scale.norm,
        interpolation="nearest",
    )
    add_bar(ax, scale, label, domain, pale=own)


def _draw_histogram(release: BaseRelease, ax: Axes, positive: bool) -> Axes:
    domain = release.domain
    edges = domain.edges(0)
    cells, error = release.estimates(nonnegative=positive)
    ax.stairs(
        cells + error,
        edges,
        baseline=np.maximum(cells - error, 0.0) if positive else cells - error,
        fill=True,
        color="tab:blue",
        alpha=0.3,
        label="± one standard error",
    )
    ax.stairs(cells, edges, baseline=None, color="tab:blue", linewidth=1.2, label="estimate")
    ax.axhline(0, color="0.5", linewidth=0.8)
    size = f"cell of {domain.size_of_cells}"
    ax.set(xlabel=f"x ({domain.unit})", ylabel=f"points per {size} (estimate)", xlim=(edges[0], edges[-1]))
    lines = [f"Estimates: {release.estimator(positive)}"]
    if _nothing_stands_out(release):
        lines.append("Nothing stands out from the noise: an even spread fits all of it")
    if holds_points_from_outside(release):
        lines.append("The first and the last cell also hold points from outside")
    note_above(ax, lines, domain)
    ax.legend(frameon=False, fontsize="small")
    return ax


def _nothing_stands_out(release: Any) -> bool:
    """Return whether nothing of a histogram of counts stands out; sorted points have no cells of their own."""
    if getattr(release.mechanism, "decoder", None) is None or release.domain.size == 1:
        return False
    merged = merge_cells(release)
    return bool(np.ptp(merged) <= 1e-9 * np.abs(merged).max())


def merge_cells(release: Release) -> NDArray[np.float64]:
    """Return points per cell (domain.shape), averaged over blocks wherever cells do not stand out from the noise.

    Blocks are nested. One is divided if somewhere in it a part surely differs from an even spread over the
    next larger block (by chance that happens about once on a map), and, once its surroundings are divided,
    if one of its own parts probably does (by chance in one block of a hundred). Sums over blocks are kept.
    This looks at nothing but the release, so it costs no privacy.
    """
    branching = int(getattr(release.mechanism.strategy, "branching", 2))
    return merge_blocks(release.cells(), release.decoder, branching)


def merge_blocks(cells: NDArray[np.float64], decoder: ErrorSource, branching: int = 2) -> NDArray[np.float64]:
    """Return `merge_cells` of unbiased estimates (domain.shape) whose errors a decoder tells."""
    shape, widths = cells.shape, _nested_widths(cells.shape, branching)
    sums, size = cells, np.broadcast_to(1.0, shape)
    surely, levels = np.zeros(shape, dtype=bool), []
    for fine, coarse in itertools.pairwise(widths):
        starts = tuple(np.arange(0, n, coarse // fine) for n in sums.shape)
        larger, larger_size = sum_blocks(sums, starts), sum_blocks(size, starts)
        expected = spread_blocks(larger / larger_size, starts, sums.shape)
        expected *= size
        error, kurtosis = block_error(decoder, (fine,) * len(shape))
        # Standard errors by which each part differs from an even spread.
        deviation = np.abs(np.subtract(sums, expected, out=expected), out=expected)
        deviation /= max(error, 1e-12)
        # What chance makes once on a map, and in one block of a hundred.
        sure = _typical_largest(sums.size, kurtosis)
        likely = _typical_largest(100 * (coarse // fine) ** 2, kurtosis)
        surely = sum_blocks(surely | (deviation > sure), starts) > 0
        stands_out = surely | (sum_blocks(deviation > likely, starts) > 0)
        levels.append((sums, size, stands_out, starts))
        sums, size = larger, larger_size
    shown, divided = sums / size, np.ones(sums.shape, dtype=bool)
    while levels:
        sums, size, stands_out, starts = levels.pop()
        divided = spread_blocks(divided & stands_out, starts, sums.shape)
        shown = spread_blocks(shown, starts, sums.shape)
        np.divide(sums, size, out=shown, where=divided)
    return shown


def _typical_largest(draws: int, kurtosis: float) -> float:
    """Return the typical largest of many draws of noise, in standard errors.

    √(2 ln m) for normal noise, ln m / √2 for Laplace noise, and between them by the excess kurtosis.
    """
    log = math.log(max(draws, 20))
    normal, laplace = math.sqrt(2 * log), log / math.sqrt(2)
    return normal + min(kurtosis / 3, 1.0) * max(0.0, laplace - normal)


def _nested_widths(shape: tuple[int, ...], branching: int) -> list[int]:
    """Return sides of nested blocks, from one cell up to the whole map, through the blocks of a hierarchy."""
    widths = [1]
    for factor in itertools.cycle(_prime_factors(branching)):
        if widths[-1] >= max(shape):
            break
        widths.append(widths[-1] * factor)
    return widths


def _prime_factors(number: int) -> list[int]:
    for factor in range(2, math.isqrt(number) + 1):
        if number % factor == 0:
            return [factor, *_prime_factors(number // factor)]
    return [number]
