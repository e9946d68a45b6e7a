"""The ground of all pictures: figures and notes; areas, axes, scale bar, bar of colours, context and rim."""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import form_of, write_whole
from deltahist.errors import DeltaHistWarning, InputError, one_of
from deltahist.plots.colours import ColourScale
from deltahist.plots.writing import NO_SIGN, measure, wrap
from deltahist.space.crs import Operation, read_crs
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE, onto_map
from deltahist.statement import number

if TYPE_CHECKING:
    import geopandas as gpd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltahist.releases.base import BaseRelease

#: Form of a picture by the suffix of its file, and dots to an inch.
FORMS, _DPI = {".png": "png", ".svg": "svg", ".pdf": "pdf"}, 160
#: Suffixes of pictures.
PICTURES = tuple(FORMS)
#: Parts of a map along each axis whose areas are worked out; they change slowly over a map.
_AREAS = 64
#: Edges of regions are cut into parts of the map's size over this, before they are projected to where areas are kept.
_PARTS = 200
#: Margin around regions as a share of their extent, and least share of a frame's shorter side in its longer one.
_MARGIN, _SQUAT = 0.04, 0.4
#: A frame of less than this share of the map has a picture of the whole beside it, of so many inches.
_SMALL_PART, _OVERVIEW = 0.5, 0.45
#: Inches of notes above a map that lie beside it, and least width of notes.
_BESIDE_MAP, _NARROWEST = 0.7, 2.5
#: Units of axes.
AXES = ("km", "degrees")
#: Colour of lines to find one's way by: seen on pale and on dark ground, louder than neither.
_GREY = "0.5"
#: Letters' sizes below a map at which its scale bar lies: beside the axis' label, or below it.
_BESIDE, _BELOW = 2.2, 4.2
#: A value stands out if its interval is above zero and its standard error at most this part of it.
_DOUBT = 1 / 3


def own_axes(ax: Axes | None) -> Axes:
    """Return the axes given, or axes of a new figure that belongs to no window system."""
    if ax is not None:
        return ax
    return new_figure(layout="constrained").add_subplot()


def new_figure(**options: Any) -> Figure:
    """Return a figure that belongs to no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(**options)
    FigureCanvasAgg(figure)
    return figure


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file in the form of the suffix; the file appears whole or not at all."""
    form = form_of(path, FORMS)
    with warnings.catch_warnings(record=True) as found:
        warnings.filterwarnings("always", NO_SIGN)
        write_whole(Path(path), lambda part: figure.savefig(part, format=form, dpi=_DPI))
    missing = set()
    for each in found:
        if sign := re.match(NO_SIGN, str(each.message)):
            missing.add(chr(int(sign[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing:
        warnings.warn(
            f"the font of pictures has no sign for {' '.join(sorted(missing)[:10])}: there are empty boxes instead",
            DeltaHistWarning,
            stacklevel=2,
        )


def figure_of(value: float, digits: int = 3) -> str:
    """Return a number as text, in some digits, with a minus sign.

    >>> figure_of(12345.6), figure_of(0.012345), figure_of(-3)
    ('12,300', '0.0123', '−3')
    """
    return number(value, digits).replace("-", "−")


def note_above(ax: Axes, lines: Sequence[str], domain: Domain) -> None:
    """Write small lines above a picture, broken to about its width."""
    # There is room beside the picture, over its axis and its bar.
    across = max(_inches_across(ax, domain) + _BESIDE_MAP, _NARROWEST)
    broken = [part for line in lines for part in wrap(line, across, "small") if part]
    ax.set_title("\n".join(broken), fontsize="small", loc="left" if is_narrow(domain) else "center", y=1)


def _inches_across(ax: Axes, domain: Domain) -> float:
    """Return about how wide a picture becomes in its axes."""
    box, figure = ax.get_position(original=True), ax.get_figure(root=True)
    assert figure is not None
    across, along = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    return across if domain.ndim == 1 else min(across, along * sides(domain)[0] / sides(domain)[1])


def sides(domain: Domain) -> tuple[float, float]:
    """Return the width and height of a map."""
    wide, high = (hi - lo for lo, hi in zip(domain.low, domain.high, strict=True))
    return wide, high


def is_narrow(domain: Domain) -> bool:
    """Return whether a map is too narrow to write across."""
    return domain.ndim == 2 and sides(domain)[0] < 0.2 * sides(domain)[1]


def is_wide(domain: Domain) -> bool:
    """Return whether a map is so wide that its bar, and other pictures, lie below it."""
    return domain.ndim == 2 and sides(domain)[0] > 2.2 * sides(domain)[1]


def holds_points_from_outside(release: BaseRelease) -> bool:
    """Return whether points outside the bounds were counted in the nearest cell, at the rim."""
    return "points outside" not in release.mechanism.counting.dropped


def unit_of_area(domain: Domain) -> str:
    """Return the unit of areas, or on a line of lengths."""
    return "km²" if domain.crs is not None else "unit" if domain.ndim == 1 else "square unit"


def cell_areas(domain: Domain) -> NDArray[np.float64]:
    """Return the areas of all cells (domain.shape) on the ground, in km²; on a plane without CRS in its own units."""
    return block_areas(domain, [np.arange(n + 1) for n in domain.shape])


def block_areas(domain: Domain, ends: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the areas of blocks of cells, as of `cell_areas`; `ends` are the cells between them along each axis."""
    if domain.crs is None:
        return math.prod(domain.cell) * functools.reduce(np.multiply.outer, map(np.diff, ends)).astype(np.float64)
    areas, taken = _areas_in_parts(domain)
    held = [
        np.maximum(np.minimum(b[1:, None], t[1:]) - np.maximum(b[:-1, None], t[:-1]), 0)
        for b, t in zip(ends, taken, strict=True)
    ]
    return np.asarray(held[0] @ areas @ held[1].T)


@functools.lru_cache(maxsize=64)
def _areas_in_parts(domain: Domain) -> tuple[NDArray[np.float64], list[NDArray[np.int64]]]:
    """Return a cell's area in each part of a map (km², by an equal-area projection), and the parts' ends."""
    taken = [np.unique(np.linspace(0, n, min(n, _AREAS) + 1).round().astype(np.int64)) for n in domain.shape]
    corners = np.meshgrid(*(domain.edges(axis)[t] for axis, t in enumerate(taken)), indexing="ij")
    x, y = _to_equal_areas(domain)(*corners)
    # Twice the area of a quadrangle is the cross product of its diagonals.
    across, along = (np.stack([x[i] - x[j], y[i] - y[j]]) for i, j in _DIAGONALS)
    area = np.abs(across[0] * along[1] - across[1] * along[0]) / 2e6
    return area / np.multiply.outer(*map(np.diff, taken)), taken


#: Places of the ends of both diagonals of a quadrangle, among all corners.
_LOW, _HIGH = slice(None, -1), slice(1, None)
_DIAGONALS = (((_HIGH, _HIGH), (_LOW, _LOW)), ((_LOW, _HIGH), (_HIGH, _LOW)))


def region_areas(domain: Domain, shapes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the areas (m,) of regions on the ground, in km²; on a plane without CRS in its own units."""
    import shapely

    if domain.crs is None:
        return np.asarray(shapely.area(shapes))
    longest = max(hi - lo for lo, hi in zip(domain.low, domain.high, strict=True)) / _PARTS
    there = _to_equal_areas(domain)
    projected = shapely.transform(
        shapely.segmentize(shapes, longest), lambda v: np.column_stack(there(v[:, 0], v[:, 1]))
    )
    return np.asarray(shapely.area(projected) / 1e6)


def _to_equal_areas(domain: Domain) -> Operation:
    """Return the operation from the map to a projection about its middle that keeps areas, in metres."""
    middle = [np.array([(lo + hi) / 2]) for lo, hi in zip(domain.low, domain.high, strict=True)]
    (lon,), (lat,) = Operation.off(domain, LONGITUDE_LATITUDE)(*middle)
    return Operation.off(domain, f"+proj=laea +lat_0={lat:.6f} +lon_0={lon:.6f} +datum=WGS84 +units=m")


def exceeds_zero(
    value: NDArray[np.float64], error: NDArray[np.float64], low: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return which values (m,) stand out from the noise: what does not is hatched.

    Their interval begins above zero, and their standard error is at most a third of them.
    """
    return (low > 0) & (error <= _DOUBT * value)


def crop(domain: Domain, shapes: NDArray[Any]) -> Domain:
    """Return the part of a map, in whole cells, that shapes (m,) within it fill, with a margin around them."""
    import shapely

    bounds = shapely.total_bounds(shapes).reshape(2, 2)
    extent = np.ptp(bounds, axis=0)
    # No side is far shorter than the other, where the map has room.
    extent = np.maximum(extent, _SQUAT * extent.max()) + 2 * _MARGIN * extent.max()
    middle, low, cell = bounds.mean(axis=0), np.array(domain.low), np.array(domain.cell)
    first = np.floor((middle - extent / 2 - low) / cell + 1e-9).clip(0, np.array(domain.shape) - 1)
    last = np.ceil((middle + extent / 2 - low) / cell - 1e-9).clip(first + 1, domain.shape)
    ends = [domain.edges(axis)[[int(a), int(b)]] for axis, (a, b) in enumerate(zip(first, last, strict=True))]
    shape = tuple((last - first).astype(int).tolist())
    return Domain((*(e[0] for e in ends), *(e[1] for e in ends)), shape, domain.crs, domain.scale)


def draw_ground(
    ax: Axes, domain: Domain, *, axes: str, context: Sequence[Any], rim: bool, frame: Domain | None = None
) -> float:
    """Draw axes, scale bar, outline and lines of a map whose picture is in axes already.

    Parameters
    ----------
    axes : "km" or "degrees". context : geometries in any CRS (GeoDataFrames or GeoSeries). rim : points from outside
        are counted at the rim, whose outline is then dashed. frame : the part of the map that is drawn; None: all.

    Returns
    -------
    The factor of coordinates in the drawing: whatever else is drawn on the map takes it, too.

    Raises
    ------
    InputError
        If the axes are something else, degrees are wanted without a CRS, or nothing of a context lies on the map.
    """
    factor, unit = axis_unit(domain)
    frame = frame or domain
    west, south, east, north = (v * factor for v in frame.bounds)
    ax.set(xlim=(west, east), ylim=(south, north), aspect="equal")
    if one_of(AXES, axes=axes) == "degrees":
        _label_degrees(ax, frame, factor)
    else:
        name = f" ({unit}, {domain.crs})" if domain.crs else f" ({unit})"
        ax.set_xlabel(("easting" if domain.crs else "x") + name, loc="left")
        ax.set_ylabel(("northing" if domain.crs else "y") + f" ({unit})")
        ax.ticklabel_format(useOffset=False, style="plain")
    narrow = is_narrow(frame)
    if narrow:  # no room for figures side by side
        ax.set_xticks([west])
    else:
        ax.locator_params(axis="y", nbins=max(2, min(9, round(9 * (north - south) / (east - west)))))
    for side, end, whole in zip(("left", "bottom", "right", "top"), frame.bounds, domain.bounds, strict=True):
        at_rim = math.isclose(end, whole, abs_tol=1e-6 * min(domain.cell))
        ax.spines[side].set_linewidth(1.2 if at_rim else 0.6)
        ax.spines[side].set_linestyle((0, (5, 3)) if rim and at_rim else "solid")
    for layer in context:
        _draw_context(ax, domain, layer, factor)
    if domain.crs is not None and not narrow:
        _draw_scale_bar(ax, frame, factor)
    if frame.size < _SMALL_PART * domain.size:
        _draw_overview(ax, domain, frame)
    return factor


def _draw_overview(ax: Axes, domain: Domain, frame: Domain) -> None:
    """Draw the outline of the whole map beside the picture, and in it the part that is drawn."""
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import ScaledTranslation

    wide, high = (_OVERVIEW * side / max(sides(domain)) for side in sides(domain))
    left, bottom = (-wide, 0.08) if is_wide(frame) else (0.15, -0.1 - high)
    scale: Any = ax.transAxes
    corner = ScaledTranslation(1, float(is_wide(frame)), scale)
    whole = ax.inset_axes((left, bottom, wide, high), transform=ax.figure.dpi_scale_trans + corner)
    (west, south), (east, north) = domain.low, domain.high
    whole.set(xlim=(west, east), ylim=(south, north), xticks=[], yticks=[])
    whole.add_patch(Rectangle((frame.low[0], frame.low[1]), *sides(frame), color="0.3", linewidth=1))
    whole.spines[:].set_color(_GREY)


def axis_unit(domain: Domain) -> tuple[float, str]:
    """Return factor and unit of the map's axes: kilometres where the CRS has metres."""
    if domain.crs is None:
        return 1.0, "units"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axis = read_crs(domain.crs).axis_info[0]
    return (1e-3, "km") if axis.unit_name == "metre" else (1.0, axis.unit_name)


def _label_degrees(ax: Axes, domain: Domain, factor: float) -> None:
    """Set ticks where round meridians meet the lower edge, and round parallels the left one."""
    if domain.crs is None:
        raise InputError("axes is 'degrees', but the map is a plane without a CRS: it must be 'km'")
    from matplotlib.ticker import MaxNLocator

    off = Operation.off(domain, LONGITUDE_LATITUDE)
    (west, south), (east, north) = domain.low, domain.high
    share = np.linspace(0, 1, 257)
    x, y = west + share * (east - west), south + share * (north - south)
    lon = np.unwrap(off(x, np.full_like(x, south))[0], period=360)
    lat = off(np.full_like(y, west), y)[1]
    wide, high = sides(domain)
    most_ticks = [max(1, min(5, round(5 * s / max(wide, high)))) for s in (wide, high)]
    lines = ((ax.xaxis, lon, x, "EW", most_ticks[0]), (ax.yaxis, lat, y, "NS", most_ticks[1]))
    for axis, degrees, place, letters, most in lines:
        order = np.argsort(degrees)
        ticks = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(degrees.min(), degrees.max())
        ticks = ticks[(ticks >= degrees.min()) & (ticks <= degrees.max())]
        turned = (ticks + 180) % 360 - 180 if letters == "EW" else ticks
        digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else 3
        words = [f"{abs(t):.{digits}f}° {letters[0] if t >= 0 else letters[1]}" for t in turned]
        axis.set_ticks(np.interp(ticks, degrees[order], place[order]) * factor, labels=words)
    ax.set_xlabel("longitude, along this edge", loc="left")
    ax.set_ylabel("latitude, along this edge")


def context_on(domain: Domain, layer: gpd.GeoDataFrame | gpd.GeoSeries) -> NDArray[Any]:
    """Return lines, outlines and points (k,) of a layer, as far as they lie on the map; InputError if nothing does."""
    import shapely

    shapes = geometries_of(layer, domain, "context")
    outlines = np.where(shapely.get_dimensions(shapes) == 2, shapely.boundary(shapes), shapes)
    parts = shapely.get_parts(shapely.clip_by_rect(outlines, *domain.bounds))
    parts = shapely.get_parts(parts[~shapely.is_empty(parts)])
    if not len(parts):
        bounds = ", ".join(f"{b:g}" for b in shapely.total_bounds(shapes))
        raise InputError(
            f"context lies within {bounds}: none of it is on the map, whose bounds are "
            f"{', '.join(f'{b:g}' for b in domain.bounds)} (is it in another CRS?)"
        )
    return np.asarray(parts, dtype=object)


def _draw_context(ax: Axes, domain: Domain, layer: Any, factor: float) -> None:
    import shapely
    from matplotlib.collections import LineCollection

    parts = context_on(domain, layer)
    dots = parts[shapely.get_dimensions(parts) == 0]
    lines = [shapely.get_coordinates(p) * factor for p in parts[shapely.get_dimensions(parts) == 1]]
    ax.add_collection(LineCollection(lines, colors=_GREY, linewidths=0.5, alpha=0.8), autolim=False)
    ax.plot(
        *(shapely.get_coordinates(dots) * factor).T,
        ".",
        color=_GREY,
        markersize=2.5,
        scalex=False,
        scaley=False,
    )


def geometries_of(layer: gpd.GeoDataFrame | gpd.GeoSeries, domain: Domain, name: str) -> NDArray[Any]:
    """Return the geometries (m,) of a frame or series, in the map's coordinates."""
    frame = layer if hasattr(layer, "columns") else layer.to_frame("geometry").set_geometry("geometry")
    return np.asarray(onto_map(frame, domain, name).geometry.to_numpy(), dtype=object)


def _draw_scale_bar(ax: Axes, domain: Domain, factor: float) -> None:
    """Draw a bar of a round length below the map's right corner; lengths are right in the middle of the map."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties
    from matplotlib.transforms import ScaledTranslation
    from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

    wide, _ = sides(domain)
    areas, _ = _areas_in_parts(domain)
    middle = areas[areas.shape[0] // 2, areas.shape[1] // 2] * 1e6
    per_metre = math.sqrt(math.prod(domain.cell) / middle)
    longest = wide / per_metre / 4
    size = 10.0 ** math.floor(math.log10(longest))
    metres = next(m * size for m in (5, 2, 1) if m * size <= longest)
    words = f"{figure_of(metres / 1000)} km" if metres >= 1000 else f"{figure_of(metres)} m"
    if areas.max() > 1.1 * areas.min():
        words += " in the middle"
    # Beside the axis' label, or below it where there is no room.
    label, length = ax.xaxis.label, metres * per_metre / wide * _inches_across(ax, domain)
    beside = measure(label.get_text(), label.get_fontsize()) + max(length, measure(words, "small"))
    down = (_BESIDE if beside < _inches_across(ax, domain) else _BELOW) * rcParams["font.size"]
    bar = AnchoredSizeBar(
        ax.transData,
        metres * per_metre * factor,
        words,
        "upper right",
        pad=0,
        borderpad=0,
        sep=2,
        frameon=False,
        bbox_to_anchor=(1, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -down / 72, ax.figure.dpi_scale_trans),
        fontproperties=FontProperties(size="small"),
    )
    ax.add_artist(bar)


def add_bar(ax: Axes, scale: ColourScale, label: str, domain: Domain, *, pale: bool = False) -> None:
    """Draw the bar of colours beside a map, or below a wide one; `pale` as in `colour_bar`."""
    if is_wide(domain):
        where: dict[str, Any] = {"ax": ax, "location": "bottom", "shrink": 0.6, "aspect": 40, "pad": 0.03}
    else:
        # Inside the map's own axes it stays as high as the map, whatever the layout; as wide on narrow maps.
        wide, high = sides(domain)
        thick = 0.04 * max(1.0, high / wide)
        where = {"cax": ax.inset_axes((1 + thick, 0.02, thick, 0.84))}
    bar = colour_bar(ax.figure, scale, pale, **where)
    if is_wide(domain):
        bar.set_label(label)
    else:
        bar.ax.set_title(label.replace(" per", "\nper"), fontsize="small", loc="left")


def colour_bar(figure: Any, scale: ColourScale, pale: bool, **where: Any) -> Any:
    """Draw a bar of colours where Matplotlib is told to, and return it.

    The last tick is labelled ≥ where values lie beyond it; with `pale` values below the first tick have its colour.
    """
    from matplotlib.cm import ScalarMappable

    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    bar = figure.colorbar(
        ScalarMappable(scale.norm, scale.colours),
        ticks=scale.ticks,
        extend=extend[pale, scale.beyond],
        spacing="uniform",
        **where,
    )
    words = [figure_of(t, 6) for t in scale.ticks]
    if scale.beyond:
        words[-1] = f"≥ {words[-1]}"
    bar.set_ticks(list(scale.ticks), labels=words)
    bar.minorticks_off()
    bar.outline.set_linewidth(0.5)
    return bar
