"""What all pictures share: figures with their text, areas on the ground, axes, scale bars and colour bars."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from deltahist._files import form_of, write_whole
from deltahist._text import format_number
from deltahist.space.crs import LONGITUDE_LATITUDE, Operation, read_crs
from deltahist.space.domain import Domain
from deltahist.space.geometries import project_frame

if TYPE_CHECKING:
    import geopandas as gpd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltahist.releases import BaseRelease, Series

#: Picture format for each file suffix.
FORMS = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
#: Width of every picture in inches, narrow enough to keep text legible on a phone.
WIDTH = 5.0


def new_figure(**options: Any) -> Figure:
    """Return a figure that opens no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(**options)
    FigureCanvasAgg(figure)
    return figure


def own_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or axes of a new figure."""
    return new_figure(layout="constrained").add_subplot() if ax is None else ax


def write_around(figure: Figure, title: str, below: str, height: float, source: BaseRelease | Series) -> None:
    """Write a title above panels of `height` inches, and small text and credits below. Stamp unpublishable figures."""
    lines = textwrap.wrap(title, int(WIDTH * 10.5), max_lines=2, placeholder="…")
    credit = ", ".join(filter(None, (source.about.publisher, source.about.licence)))
    small = [*textwrap.wrap(below, int(WIDTH * 16)), *textwrap.wrap(credit, int(WIDTH * 16))]
    figure.set_size_inches(WIDTH, height + 0.25 + 0.19 * len(lines) + 0.15 * len(small))
    if lines:
        figure.suptitle("\n".join(lines), fontsize=11, parse_math=False)
    figure.supxlabel("\n".join(small), x=0.02, ha="left", fontsize=8, color="0.3", parse_math=False)
    if not source.publishable:
        mark: dict[str, Any] = {"color": "crimson", "alpha": 0.35, "weight": "bold", "zorder": 10}
        figure.text(0.5, 0.5, "NOT FOR PUBLICATION", rotation=25, ha="center", va="center", fontsize=27, **mark)


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, in the format that the file's suffix names. An error leaves no half-written file."""
    form = form_of(path, FORMS)
    write_whole(Path(path), lambda part: figure.savefig(part, format=form, dpi=160))


def figure_of(value: float, digits: int = 3) -> str:
    """Return a number as text with `digits` significant digits and a proper minus sign.

    >>> figure_of(12345.6), figure_of(0.012345), figure_of(-3)
    ('12,300', '0.0123', '−3')
    """
    return format_number(value, digits).replace("-", "−")


def unit_of_area(domain: Domain) -> str:
    """Return the unit of areas, or of lengths in one dimension."""
    return "km²" if domain.crs is not None else "unit" if domain.ndim == 1 else "square unit"


def block_areas(domain: Domain, ends: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the areas of blocks whose edges are cell numbers `ends`, in km² or (without a CRS) square map units."""
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
    """Return the area of a cell in each part of a map (km², from an equal-area projection), and the parts' edges."""
    # Areas change slowly over a map, so 64 parts along each axis are enough.
    taken = [np.unique(np.linspace(0, n, min(n, 64) + 1).round().astype(np.int64)) for n in domain.shape]
    corners = np.meshgrid(*(domain.edges(axis)[t] for axis, t in enumerate(taken)), indexing="ij")
    x, y = _to_equal_areas(domain)(*corners)
    # Twice the area of a quadrangle is the cross product of its diagonals.
    rising, falling = ((v[1:, 1:] - v[:-1, :-1], v[:-1, 1:] - v[1:, :-1]) for v in (x, y))
    area = np.abs(rising[0] * falling[1] - rising[1] * falling[0]) / 2e6
    return area / np.multiply.outer(*map(np.diff, taken)), taken


def region_areas(domain: Domain, shapes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the areas (m,) that regions cover, in km², or in square map units if there is no CRS."""
    if domain.crs is not None:
        longest = max(hi - lo for lo, hi in zip(domain.low, domain.high, strict=True)) / 200
        project = _to_equal_areas(domain)
        shapes = shapely.segmentize(shapes, longest)
        shapes = shapely.transform(shapes, lambda v: np.column_stack(project(v[:, 0], v[:, 1])) / 1e3)
    return np.asarray(shapely.area(shapes))


def _to_equal_areas(domain: Domain) -> Operation:
    """Return the transformation from a map to an equal-area projection around the map's centre, in metres."""
    middle = [np.array([(lo + hi) / 2]) for lo, hi in zip(domain.low, domain.high, strict=True)]
    (lon,), (lat,) = Operation.off(domain, LONGITUDE_LATITUDE)(*middle)
    return Operation.off(domain, f"+proj=laea +lat_0={lat:.6f} +lon_0={lon:.6f} +datum=WGS84 +units=m")


def height_of(bounds: Sequence[float]) -> float:
    """Return the height in inches of a map with these bounds, including its axes and colour bar."""
    west, south, east, north = bounds
    return min((WIDTH - 0.8) * (north - south) / (east - west), 6.5) + 1.1


def draw_frame(ax: Axes, domain: Domain, bounds: Sequence[float], context: Sequence[Any]) -> None:
    """Draw the axes, scale bar and context layers of a map within `bounds`, in map coordinates."""
    import geopandas as gpd
    from matplotlib.ticker import MaxNLocator
    from matplotlib.transforms import ScaledTranslation
    from matplotlib_scalebar.scalebar import ScaleBar

    for layer in context:
        shapes = geometries_of(layer, domain, "context")
        outlines = np.where(shapely.get_dimensions(shapes) == 2, shapely.boundary(shapes), shapes)
        parts = shapely.get_parts(shapely.clip_by_rect(outlines, *domain.bounds))
        parts = shapely.get_parts(parts[~shapely.is_empty(parts)])
        gpd.GeoSeries(parts).plot(ax=ax, color="0.5", linewidth=0.5, markersize=2, aspect=None)
    west, south, east, north = bounds
    ax.set(xlim=(west, east), ylim=(south, north), aspect="equal")
    unit = "units" if domain.crs is None else read_crs(domain.crs).axis_info[0].unit_name
    factor, unit = (1e-3, "km") if unit == "metre" else (1.0, unit)
    names = ("easting", "northing") if domain.crs else ("x", "y")
    ax.set_xlabel(f"{names[0]} ({unit})", loc="left" if domain.crs else "center")
    ax.set_ylabel(f"{names[1]} ({unit})")
    for axis, span in ((ax.xaxis, east - west), (ax.yaxis, north - south)):
        axis.set_major_locator(MaxNLocator(max(1, round(5 * span / max(east - west, north - south)))))
        axis.set_major_formatter(lambda value, _: f"{round(value * factor, 6):.10g}")
    ax.tick_params(labelsize=8)
    if domain.crs is not None and 2 * (east - west) > north - south:
        # Draw a scale bar of a round length below the right corner. The length is exact at the centre of the map.
        areas, _ = _areas_in_parts(domain)
        metres = math.sqrt(areas[areas.shape[0] // 2, areas.shape[1] // 2] * 1e6 / math.prod(domain.cell))
        below: Any = ax.transAxes
        below += ScaledTranslation(0, -0.22, ax.figure.dpi_scale_trans)
        style: dict[str, Any] = {"length_fraction": 0.25, "width_fraction": 0.01, "font_properties": {"size": 8}}
        corner = {"location": "upper right", "bbox_to_anchor": (1, 0), "bbox_transform": below}
        bar = ScaleBar(metres, box_alpha=0, scale_loc="left", sep=3, pad=0, border_pad=0, **style, **corner)
        ax.add_artist(bar)


def geometries_of(layer: gpd.GeoDataFrame | gpd.GeoSeries, domain: Domain, name: str) -> NDArray[Any]:
    """Return the geometries (m,) of a frame or series, in the map's coordinates."""
    frame = layer if hasattr(layer, "columns") else layer.to_frame("geometry").set_geometry("geometry")
    return np.asarray(project_frame(frame, domain, name).geometry.to_numpy(), dtype=object)


def add_colour_bar(axes: Any, scale: ColourScale, label: str) -> None:
    """Draw the colour bar below the axes. The last tick's label starts with ≥ if values exceed that tick."""
    from matplotlib.cm import ScalarMappable

    where: dict[str, Any] = {"ax": axes, "location": "bottom", "aspect": 35, "fraction": 0.2, "pad": 0.02}
    extend, colours = "max" if scale.beyond else "neither", ScalarMappable(scale.norm, scale.colours)
    bar = np.ravel(axes)[0].figure.colorbar(colours, extend=extend, spacing="uniform", label=label, **where)
    words = [figure_of(tick, 6) for tick in scale.ticks]
    bar.set_ticks(list(scale.ticks), labels=[*words[:-1], f"≥ {words[-1]}" if scale.beyond else words[-1]])
    bar.ax.tick_params(labelsize=8)
    bar.minorticks_off()


# --- colours, from pale to dark, so that everyone can read them, even in greyscale --------------------

#: Colours for categories, which colour-blind readers can distinguish (Okabe and Ito, Color Universal Design, 2008).
CATEGORIES = ("#0072B2", "#D55E00")


@dataclass(frozen=True)
class ColourScale:
    """A colour scale: Matplotlib's norm and colour map, ticks, and whether values exceed the last tick."""

    norm: Any
    colours: Any
    ticks: tuple[float, ...]
    beyond: bool


def smooth_scale(values: NDArray[np.float64], *, linear: float | None, least: float) -> ColourScale:
    """Return a scale that reaches `least`. It is proportional up to `linear` (default: top / 50), then logarithmic."""
    from matplotlib.colors import AsinhNorm

    most = float(values.max())
    # Keep a few large cells from taking up the whole scale, and nearly equal values from making the whole map dark.
    top = max(float(np.quantile(values, 0.9995)), least, 2 * float(np.median(values)))
    top = float(f"{top:.2g}") if most > 1.5 * top else max(most, top)
    norm, ticks = AsinhNorm(linear_width=linear or top / 50, vmin=0.0, vmax=top), [top] if most > top else []
    for value in [0.0, *(v for v in _round_values(top * 1e-9, top) if v <= top)]:
        if all(abs(float(norm(value) - norm(other))) > 0.1 for other in ticks):
            ticks.append(value)
    return ColourScale(norm, _shades(256), tuple(sorted(ticks)), most > top)


def classed_scale(values: NDArray[np.float64]) -> ColourScale:
    """Return a scale of at most seven classes with round limits. At least one of the values (m,) must be above zero."""
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    most = float(values.max())
    least = max(float(values[values > 0].min()), 1e-4 * most)
    if most <= 6 * least:
        breaks = [float(v) for v in MaxNLocator(5).tick_values(0.8 * least, most) if v > 0]
    else:
        for factors in ((1, 2, 5), (1, 3), (1,)):
            breaks = [v for v in _round_values(least, most, factors) if least / 5 < v < most]
            if len(breaks) < 7:
                break
        breaks = breaks[-6:]
    edges, beyond = [0.0, *breaks], most > breaks[-1]
    number = len(edges) - 1 + beyond
    norm = BoundaryNorm(edges, number, extend="max" if beyond else "neither")
    return ColourScale(norm, _shades(number), tuple(edges), beyond)


def _shades(number: int) -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # A few classes are easy to distinguish without the darkest colours, which would hide lines and labels.
    return ListedColormap(colormaps["magma_r"](np.linspace(0.0, min(0.88, 0.3 * (number - 1)), number)))


def _round_values(low: float, high: float, factors: tuple[int, ...] = (1, 2, 5)) -> list[float]:
    """Return round values (1, 2, 5, 10, ...): those between `low` and `high`, and the next one on either side."""
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    series = [float(f"{factor}e{power}") for power in powers for factor in factors]
    first, last = max(v for v in series if v <= low), min(v for v in series if v > high)
    return [value for value in series if first <= value <= last]
