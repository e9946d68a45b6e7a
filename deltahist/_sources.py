"""Sources given as geometries: which cells are within δ of them, on the lattice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist._validate import InputError

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

    from deltahist.domain import Domain

#: Blocks of cells are split into this many per axis and level until they are single cells.
_SPLIT = 8


def check_geometry(geometry: BaseGeometry, domain: Domain) -> None:
    """Raise InputError unless `geometry` is a valid, non-empty, finite shapely geometry."""
    import shapely

    if not isinstance(geometry, shapely.Geometry):
        raise InputError(
            f'sources is {geometry!r}: it must be None, "boundary", "left" or "right" (1-D), '
            "or a shapely geometry"
        )
    if shapely.is_empty(geometry) or not np.isfinite(shapely.get_coordinates(geometry)).all():
        raise InputError("sources is an empty or unbounded geometry: it must have finite coordinates")
    if not shapely.is_valid(geometry):
        raise InputError(f"sources is not a valid geometry: {shapely.is_valid_reason(geometry)}")


def touched_cells(geometry: BaseGeometry, domain: Domain, radius: int) -> NDArray[np.bool_]:
    """Cells (domain.shape, bool) whose gap to the geometry is less than `radius` lattice steps.

    The geometry is defined on the lattice: its vertices are rounded to whole steps, so that distances in
    simple positions are exact. A quarter of a step separates "exactly δ away" from rounding in distances.
    """
    import shapely

    def to_lattice(vertices: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.zeros_like(vertices)
        for axis in range(domain.ndim):
            out[:, axis] = np.rint((vertices[:, axis] - domain.low[axis]) / domain.step[axis])
        return out

    on_lattice = shapely.transform(geometry, to_lattice)
    # A 1-D domain is the x axis of a plane, its cells segments; a rounded ring may cross itself.
    on_lattice = on_lattice if shapely.is_valid(on_lattice) else shapely.make_valid(on_lattice)
    shapely.prepare(on_lattice)
    shape = np.array((*domain.shape, 1)[:2])
    steps = np.array((*domain.steps, 0)[:2], dtype=np.float64)
    limit = radius - 0.25

    near = np.zeros(tuple(shape), dtype=bool)
    block = np.ones(2, dtype=np.int64)
    while (block * _SPLIT < shape).any():
        block *= _SPLIT
    block = np.minimum(block, shape)
    low = np.stack(
        np.meshgrid(*(np.arange(0, n, b) for n, b in zip(shape, block, strict=True)), indexing="ij"), -1
    )
    low = low.reshape(-1, 2)
    while len(low):
        high = np.minimum(low + block, shape)
        boxes = shapely.box(*(low * steps).T, *(high * steps).T)
        close = shapely.distance(on_lattice, boxes) < limit
        low, high = low[close], high[close]
        if (block == 1).all():
            near[low[:, 0], low[:, 1]] = True
            break
        # A block whose farthest point is surely within the limit needs no finer look.
        middle = shapely.points(*((low + high) * steps / 2).T)
        half = np.hypot(*((high - low) * steps / 2).T)
        inside = shapely.distance(on_lattice, middle) + half < limit
        for (x0, y0), (x1, y1) in zip(low[inside].tolist(), high[inside].tolist(), strict=True):
            near[x0:x1, y0:y1] = True
        low = low[~inside]
        finer = np.maximum(block // _SPLIT, 1)
        offsets = np.stack(
            np.meshgrid(*(np.arange(0, b, f) for b, f in zip(block, finer, strict=True)), indexing="ij"), -1
        )
        low = (low[:, None, :] + offsets.reshape(1, -1, 2)).reshape(-1, 2)
        low = low[(low < shape).all(axis=1)]
        block = finer
    return near.reshape(domain.shape)
