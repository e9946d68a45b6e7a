"""Area and centroid of a polygon in every cell of a grid, exactly and in time linear in its vertices.

The inside is what lies right of the edges that go down, less what lies right of those that go up (outer rings
anticlockwise, holes clockwise). Edges are cut at the grid's lines. A piece within a cell then adds a trapezoid to
that cell, and a strip of its own height to every cell further right in the same row: a running sum along the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Vertices closer than this to a cell's edge, in cells, are on it.
_NEAR_EDGE = 1e-8


def areas(
    geometry: Any, low: NDArray[np.float64], cell: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[tuple[int, int], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Share of each cell inside a polygon, and its first moments about the cell's centre.

    Parameters
    ----------
    geometry : valid shapely polygon or multipolygon; what lies outside the grid is moved to its edge.
    low, cell, shape : west and south edge, sides of a cell, numbers of cells of the grid.

    Returns
    -------
    corner : indices of the first cell of the polygon's bounding box.
    area, along_x, along_y : over the cells of the bounding box: ∫ 1, ∫ (x − x₀), ∫ (y − y₀) over the part inside,
        lengths in cells, (x₀, y₀) the cell's centre.

    >>> import shapely
    >>> corner, area, along_x, _ = areas(shapely.box(0, 0, 1.5, 1), np.zeros(2), np.ones(2), (4, 4))
    >>> area.ravel().tolist(), along_x.ravel().tolist()
    ([1.0, 0.5], [0.0, -0.125])
    """
    start, end = _edges(geometry, low, cell, shape)
    corner = np.floor(start.min(axis=0)).astype(np.int64)
    rows, columns = np.minimum(np.ceil(start.max(axis=0)).astype(np.int64), shape) - corner
    start, end = _cut(start, end)
    at = np.floor((start + end) / 2).astype(np.int64)
    (u0, v0), (u1, v1) = (start - at - 0.5).T, (end - at - 0.5).T
    down = v0 - v1
    i, j = (at - corner).T
    # A piece along the far edge of the bounding box has nothing right of it, or no height.
    inside = (i < rows) & (j < columns)

    def per_cell(weight: NDArray[np.float64], further: int = 0) -> NDArray[np.float64]:
        flat = ((i + further) * columns + j)[inside]
        sums = np.bincount(flat, weight[inside], (rows + 1) * columns).astype(np.float64)
        return sums.reshape(rows + 1, columns)[:rows]

    def to_the_right(weight: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.cumsum(per_cell(weight, further=1), axis=0)

    # Right of x = u a cell holds ½ − u, and ∫ x = (¼ − u²) / 2: their means over a piece, u and v being linear.
    r0, r1 = 0.5 - u0, 0.5 - u1
    area = per_cell(down * (r0 + r1) / 2) + to_the_right(down)
    along_x = per_cell(down * (0.25 - (u0 * u0 + u0 * u1 + u1 * u1) / 3) / 2)
    along_y = per_cell(down * (2 * v0 * r0 + v0 * r1 + v1 * r0 + 2 * v1 * r1) / 6)
    along_y += to_the_right(down * (v0 + v1) / 2)
    return (int(corner[0]), int(corner[1])), area, along_x, along_y


def _edges(
    geometry: Any, low: NDArray[np.float64], cell: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All edges in cells, (k, 2) each end, the inside on their left."""
    import shapely

    starts, ends = [], []
    for polygon in shapely.get_parts(geometry):
        outer = shapely.get_exterior_ring(polygon)
        for ring in (outer, *shapely.get_rings(polygon)[1:]):
            place = (shapely.get_coordinates(ring) - low) / cell
            edge = np.rint(place)
            place = np.clip(np.where(np.abs(place - edge) < _NEAR_EDGE, edge, place), 0, shape)
            if shapely.is_ccw(ring) != (ring is outer):
                place = place[::-1]
            starts.append(place[:-1])
            ends.append(place[1:])
    return np.concatenate(starts), np.concatenate(ends)


def _cut(
    start: NDArray[np.float64], end: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Edges cut wherever they cross a line of the grid."""
    along = end - start
    first = np.floor(np.minimum(start, end)) + 1
    crossed = np.maximum(np.ceil(np.maximum(start, end)) - first, 0).astype(np.int64)
    edges, times = [np.arange(len(start))], [np.zeros(len(start))]
    for axis in (0, 1):
        number = crossed[:, axis]
        edge = np.repeat(np.arange(len(start)), number)
        line = first[edge, axis] + np.arange(len(edge)) - np.repeat(np.cumsum(number) - number, number)
        edges.append(edge)
        times.append((line - start[edge, axis]) / along[edge, axis])
    edge, time = np.concatenate(edges), np.clip(np.concatenate(times), 0, 1)
    order = np.lexsort((time, edge))
    edge, time = edge[order], time[order]
    until = np.append(time[1:], 1.0)
    until[np.append(edge[1:] != edge[:-1], True)] = 1.0
    return start[edge] + time[:, None] * along[edge], start[edge] + until[:, None] * along[edge]
