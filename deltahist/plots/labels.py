"""Labels of regions on a map: inside where they fit, else beside the region, with a line that leads to it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.plots.colours import is_dark
from deltahist.plots.ground import figure_of
from deltahist.plots.writing import NO_SIGN, choose_fonts, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deltahist.plots.regions import Values

#: Size of labels in points, and inches of a name beside its region.
_SIZE, _LONGEST = 7, 1.3
#: Regions with their value outside: more of them are a thicket.
_MOST_OUTSIDE = 30
#: Directions and distances, in steps of some dots, at which a label outside is tried.
_TURNS, _STEPS, _STEP = 36, 48, 6.0
#: Steps from its region at which a label is tried first; more where not all find a place.
_NEAREST = (1, 6, 12, 18)
#: Room about a label outside, in dots.
_ROOM = 2.0
#: Dots of a longer line that it is worth not to cover regions with labels outside, others, borders, or cross lines.
_CROWDED, _COVERED, _BORDER, _CROSSED = 300.0, 40.0, 20.0, 200.0


def label_regions(
    ax: Axes, values: Values, faces: NDArray[np.float64], factor: float, *, most: int | None
) -> int:
    """Write on every region as much as fits into it, or a label beside it; return how many there is no room for.

    Parameters
    ----------
    faces : (m, 4) colours of the regions. factor : from coordinates of the map to coordinates in the axes.
    most : number of the largest values that get their keys of a list; None writes values on all regions.
    """
    import shapely
    from matplotlib.patheffects import withStroke

    figure: Any = ax.get_figure(root=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NO_SIGN)  # it is told when the picture is written
        figure.draw_without_rendering()
    measure, back = figure.canvas.get_renderer(), ax.transData.inverted()
    dots = shapely.transform(values.shapes, lambda at: ax.transData.transform(at * factor))
    style: dict[str, Any] = {
        "fontsize": _SIZE,
        "ha": "center",
        "va": "center",
        "zorder": 5,
        "clip_on": True,
        "parse_math": False,
    }
    taken: list[Any] = []
    waiting: list[tuple[int, Any]] = []
    left: list[Any] = []
    for region in values.order[:most].tolist():
        # Regions may overlap, their labels must not.
        shape = shapely.difference(dots[region], shapely.union_all(taken))
        shape = dots[region] if shape.is_empty else shape
        circle = shapely.maximum_inscribed_circle(shape, 0.02 * np.sqrt(shape.area))
        spot = shapely.get_coordinates(circle)[0]
        (x, y), colour = back.transform(spot), "white" if is_dark(faces[region][:3]) else "black"
        text = ax.text(x, y, "", color=colour, **style)
        text.set_path_effects([withStroke(linewidth=2, foreground=faces[region])])
        for words in _words(values, region) if most is None else [values.keys[region]]:
            text.set(text=words, fontfamily=choose_fonts(words))
            box = shapely.box(*text.get_window_extent(measure).extents)
            if words and shape.contains(box):
                taken.append(box)
                break
        else:
            text.remove()
            waiting.append((region, spot))
    if most is None:
        waiting, left = waiting[:_MOST_OUTSIDE], waiting[_MOST_OUTSIDE:]
    outside = []
    for region, spot in waiting:
        words = values.keys[region]
        if most is None:
            words = "\n".join([*wrap(values.names[region], _LONGEST, _SIZE, 1), [*_words(values, region)][-1]])
        x, y = back.transform(spot)
        text = ax.text(x, y, words, fontfamily=choose_fonts(words), **style)
        text.set_bbox({"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "0.4", "linewidth": 0.4})
        outside.append((text, spot, np.array(text.get_window_extent(measure).size) + 2 * _ROOM))
    ground = _Ground(
        shapely.box(*ax.get_window_extent().extents).buffer(-_ROOM),
        shapely.union_all(dots[[region for region, _ in waiting]]),
        shapely.union_all(dots),
        shapely.union_all(shapely.boundary(shapely.simplify(dots, 1.0))),
    )
    for (text, _, _), found in zip(outside, _find_places(outside, taken, ground), strict=True):
        if found is None:
            text.remove()
            left.append(text)
            continue
        place, line = found
        text.set_position(tuple(back.transform(shapely.get_coordinates(place.centroid)[0])))
        (leader,) = ax.plot(*back.transform(shapely.get_coordinates(line)).T, "-o", color="0.15", linewidth=0.7)
        leader.set(markersize=2.0, markevery=[0], zorder=4.5)
        leader.set_path_effects([withStroke(linewidth=2, foreground="white")])
    return len(left)


class _Ground(NamedTuple):
    """The ground of labels: the frame; regions with a label outside, all regions, their borders."""

    frame: Any
    crowd: Any
    regions: Any
    borders: Any


def _find_places(outside: Sequence[Any], inside: Sequence[Any], ground: _Ground) -> list[Any]:
    """Return for each label outside its box and the line from its region, or None if there is no room.

    Where not all find a place, they are tried farther away, which leaves more room between them.
    """
    import shapely

    best: list[Any] = []
    for nearest in _NEAREST:
        taken, crossed, found = shapely.union_all(inside), shapely.MultiLineString(), []
        for _, spot, size in outside:
            found.append(_find_place(spot, size, taken, crossed, ground, nearest))
            if found[-1] is not None:
                taken, crossed = shapely.union(taken, found[-1][0]), shapely.union(crossed, found[-1][1])
        if not best or found.count(None) < best.count(None):
            best = found
        if None not in best:
            break
    return best


def _find_place(
    spot: NDArray[np.float64], size: NDArray[np.float64], taken: Any, crossed: Any, ground: _Ground, nearest: int
) -> tuple[Any, Any] | None:
    """Return the box of a label and the line from its region, whichever costs least; None if none is free."""
    import shapely

    turns = 2 * np.pi * np.arange(_TURNS) / _TURNS
    way = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    centre = (spot + way * (size / 2 + _STEP * np.arange(nearest, _STEPS)[:, None, None])).reshape(-1, 2)
    ends = np.clip(spot, centre - size / 2, centre + size / 2)
    length = np.hypot(*(ends - spot).T)
    order, best, least = np.argsort(length, kind="stable"), None, math.inf
    shapely.prepare((ground.frame, ground.borders, taken, crossed))
    for some in np.array_split(order, len(order) // _TURNS):
        if length[some[0]] >= least:  # no longer line costs less
            break
        boxes = shapely.box(*(centre[some] - size / 2).T, *(centre[some] + size / 2).T)
        lines = shapely.linestrings(np.stack([np.broadcast_to(spot, (len(some), 2)), ends[some]], axis=1))
        free = shapely.covers(ground.frame, boxes) & ~shapely.intersects(crossed, boxes)
        free &= ~(shapely.intersects(taken, boxes) | shapely.intersects(taken, lines))
        boxes, lines = boxes[free], lines[free]
        cost = length[some][free] + shapely.length(shapely.intersection(ground.crowd, lines))
        cost += _BORDER * shapely.intersects(ground.borders, boxes) + _CROSSED * shapely.intersects(crossed, lines)
        for there, weight in ((ground.crowd, _CROWDED), (ground.regions, _COVERED)):
            cost += weight * shapely.area(shapely.intersection(there, boxes)) / np.prod(size)
        if len(cost) and cost.min() < least:
            least, best = float(cost.min()), (boxes[cost.argmin()], lines[cost.argmin()])
    return best


def _words(values: Values, region: int) -> Iterator[str]:
    """Yield labels of a region, the longest first; a region not told from zero gets its upper bound."""
    value, low, high = (float(v[region]) for v in (values.value, values.low, values.high))
    if low <= 0:
        labels = [f"up to {figure_of(max(high, 0.0), 2)}"]
    else:
        # Digits that say less than a quarter of the interval say nothing.
        place = -math.floor(math.log10(max(high - low, 1e-9 * value) / 4))
        known, least, most = (figure_of(round(v, place), 15) for v in (value, low, high))
        labels = [f"{known}\n({least} to {most})", known]
    yield f"{values.names[region]}\n{labels[0]}"
    yield from labels
