"""Exact area and centroid of polygons in every cell, in time linear in their vertices and cells.

The inside is what lies above the edges that go east, less what lies above those that go west (outer rings
anticlockwise, holes clockwise). Edges are cut at the grid's lines. A piece within a cell then adds a trapezoid to
that cell, and a strip of its own width to every cell further up in the same column: a running sum up the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from deltahist.space.workloads.cover import RegionCover, in_parts

#: Vertices closer than this to a cell's edge, in cells, are on it.
_NEAR_EDGE = 1e-8
#: Cells at the rims of polygons that are looked at a time: what is worked out stays near the processor.
_AT_A_TIME = 1 << 17
#: Running sums are taken in whole multiples of one by this, exactly: a sum does not depend on the polygons before it.
_WHOLE = 1 << 52


def cover_polygons(
    geometries: NDArray[Any], low: NDArray[np.float64], cell: NDArray[np.float64], shape: tuple[int, ...], least: float
) -> RegionCover:
    """Return the cover of polygons by the cells of a grid, in the order of polygons and cells.

    Parameters
    ----------
    geometries : (m,) valid shapely polygons or multipolygons; what lies outside the grid is moved to its edge.
    low, cell, shape : west and south edge, sides of a cell, numbers of cells of the grid.
    least : areas, in cells, that are not further than this from none or from all of a cell are none or all.

    >>> import shapely
    >>> found = cover_polygons(np.array([shapely.box(0, 0, 1.5, 1)]), np.zeros(2), np.ones(2), (4, 4), 0.0)
    >>> found.x.tolist(), found.share.tolist(), found.places[0].tolist(), found.low.tolist(), found.high.tolist()
    ([1], [0.5], [-0.25], [[0, 0]], [[1, 1]])
    """
    parts = []
    for some in in_parts(count_rim_cells(geometries, cell), _AT_A_TIME):
        owner, *cut, whole, first, last = _parts(geometries[some], low, cell, shape, least)
        parts.append((owner + some.start, *cut, whole + some.start, first, last))
    owner, x, y, area, along_x, along_y, *rectangles = map(np.concatenate, zip(*parts, strict=True))
    # Moments are in cells, places in half cells.
    return RegionCover(len(geometries), shape, owner, x, y, area, (2 * along_x, 2 * along_y), *rectangles)


def count_rim_cells(geometries: NDArray[Any], cell: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return about how many cells (m,) with these sides the rims of polygons cross, and how many vertices they have."""
    across = sum(1 / side for side in cell)
    sizes: NDArray[np.float64] = shapely.length(geometries) * across + shapely.get_num_coordinates(geometries)
    return sizes


def _parts(
    geometries: NDArray[Any], low: NDArray[np.float64], cell: NDArray[np.float64], shape: tuple[int, ...], least: float
) -> tuple[NDArray[Any], ...]:
    """Return cells that are cut: polygon, x, y, and ∫ 1, ∫ (x − x₀) and ∫ (y − y₀) over the part inside.

    Then the polygon and the corners of each rectangle of whole cells. Lengths are in cells, (x₀, y₀) is the centre.
    """
    start, end, owner = _edges(geometries, low, cell, shape)
    begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    corner = np.floor(np.minimum.reduceat(start, begins)).astype(np.int64)
    wide = np.minimum(np.ceil(np.maximum.reduceat(start, begins)).astype(np.int64), shape) - corner
    # Above every column stand two more cells, for what lies above the box.
    wide[:, 1] += 2
    behind = np.cumsum(wide.prod(axis=1))
    before = behind - wide.prod(axis=1)
    start, end, edge = _cut(start, end)
    owner = owner[edge]
    at = np.floor((start + end) / 2).astype(np.int64)
    (v0, u0), (v1, u1) = (start - at - 0.5).T, (end - at - 0.5).T
    i, j = (at - corner.take(owner, axis=0)).T
    # A piece along the box's eastern side has no width.
    inside = i < wide[owner, 0]
    flat = (before[owner] + i * wide[owner, 1] + j)[inside]
    v0, v1, u0, u1 = v0[inside], v1[inside], u0[inside], u1[inside]
    east, r0, r1 = v1 - v0, 0.5 - u0, 0.5 - u1
    held, number = np.unique(flat, return_inverse=True)

    def per_cell(weight: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(number, weight, len(held)).astype(np.float64, copy=False)

    firsts = np.searchsorted(held, before)

    def running(own: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums of each polygon's cells up to and with each."""
        sums = np.concatenate([[0], np.cumsum(np.rint(own * _WHOLE).astype(np.int64))])
        return (sums[1:] - np.repeat(sums[firsts], np.diff(firsts, append=len(held)))) / _WHOLE

    # What lies above the pieces of a cell enters all cells above; up to the next with a piece it is all or nothing.
    own = per_cell(east)
    above = running(own)
    # Above y = u a cell holds ½ − u, and ∫ y = (¼ − u²) / 2: their means over a piece, u and v being linear.
    area = per_cell(east * (r0 + r1) / 2) + above - own
    along_y = per_cell(east * (0.25 - (u0 * u0 + u0 * u1 + u1 * u1) / 3) / 2)
    along_x = per_cell(east * (2 * v0 * r0 + v0 * r1 + v1 * r0 + 2 * v1 * r1) / 6)
    own = per_cell(east * (v0 + v1) / 2)
    along_x += running(own) - own
    cut = np.flatnonzero((area > least) & (area < 1 - least))

    def cells(flat: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        which = np.repeat(np.arange(len(wide)), np.diff(np.searchsorted(flat, behind), prepend=0))
        x, y = np.divmod(flat - before[which], wide[which, 1])
        return which, x + corner[which, 0], y + corner[which, 1]

    # Cells with pieces, and what lies between them, take turns.
    edges = np.column_stack([held, held + 1]).ravel()
    whole = np.column_stack([area >= 1 - least, above > 0.5]).ravel()
    begins, ends = edges[np.flatnonzero(np.diff(whole, prepend=False, append=False))].reshape(-1, 2).T
    some = ends > begins
    runs = _rectangles(*cells(begins[some]), (ends - begins)[some])
    return *cells(held[cut]), area[cut], along_x[cut], along_y[cut], *runs


def _rectangles(
    owner: NDArray[np.int64], x: NDArray[np.int64], y: NDArray[np.int64], tall: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Owners, lower and upper corners of runs up columns, those side by side put together."""
    columns = np.stack([owner, y, tall, x - np.arange(len(x))])
    new = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    # Without runs there is none that is new.
    first, last = (np.flatnonzero(each) for each in (np.append(len(x) > 0, new), np.append(new, len(x) > 0)))
    low = np.column_stack([x[first], y[first]])
    return owner[first], low, np.column_stack([x[last] + 1, y[first] + tall[first]])


def _edges(
    geometries: NDArray[Any], low: NDArray[np.float64], cell: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """All edges in cells, (k, 2) each end, the inside on their left, and whose they are (k,)."""
    polygons, owner = shapely.get_parts(geometries, return_index=True)
    rings, polygon = shapely.get_rings(polygons, return_index=True)
    outer = np.append(True, polygon[1:] != polygon[:-1])
    turned = shapely.is_ccw(rings) != outer
    place, ring = shapely.get_coordinates(rings, return_index=True)
    place = (place - low) / cell
    edge = np.rint(place)
    place = np.clip(np.where(np.abs(place - edge) < _NEAR_EDGE, edge, place), 0, shape)
    here = np.flatnonzero(ring[1:] == ring[:-1])
    back = turned[ring[here]].astype(np.int64)
    return place[here + back], place[here + 1 - back], owner[polygon[ring[here]]]


def _cut(
    start: NDArray[np.float64], end: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Edges cut wherever they cross a line of the grid, and the edge of each piece."""
    along = end - start
    first = np.floor(np.minimum(start, end)) + 1
    crossed = np.maximum(np.ceil(np.maximum(start, end)) - first, 0).astype(np.int64)
    edges, times = [np.arange(len(start))], [np.zeros(len(start))]
    for axis in (0, 1):
        number = crossed[:, axis]
        edge = np.repeat(np.arange(len(start)), number)
        # In the direction of each edge, so that three lists are in order, which sorting makes use of.
        back = along[:, axis] < 0
        step = np.where(back, -1, 1)
        begin = first[:, axis] + np.where(back, number - 1, 0) - step * (np.cumsum(number) - number)
        line = begin.take(edge) + step.take(edge) * np.arange(len(edge))
        edges.append(edge)
        times.append((line - start[:, axis].take(edge)) / along[:, axis].take(edge))
    edge, time = np.concatenate(edges), np.clip(np.concatenate(times), 0, 1)
    # Not by their sum, whose rounding would depend on how many edges are before.
    both = np.empty(len(edge), dtype=np.complex128)
    both.real, both.imag = edge, time
    order = np.argsort(both, kind="stable")
    edge, time = edge[order], time[order]
    place = start.take(edge, axis=0) + time[:, None] * along.take(edge, axis=0)
    until = np.empty_like(place)
    until[:-1] = place[1:]
    until[np.append(edge[1:] != edge[:-1], True)] = end
    return place, until, edge
