"""Sources given as geometries: which cells are within δ of them, on the lattice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

    from deltahist.space.domain import Domain

#: Blocks of cells are split into this many per axis and level until they are single cells.
_SPLIT = 8
#: Farthest lattice coordinate of a source: distances between such coordinates are right to a sixteenth of a step.
_FARTHEST = 1 << 48
#: Part of a step by which a cell must be nearer than δ; it separates "exactly δ away" from rounding in distances.
_MARGIN = 0.25


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
    farthest = max(
        float(np.abs(shapely.get_coordinates(geometry)[:, axis] - lo).max()) / step
        for axis, (lo, step) in enumerate(zip(domain.low, domain.step, strict=True))
    )
    if not farthest < _FARTHEST:
        raise InputError(
            f"sources reach {farthest * max(domain.step):.3g} {domain.unit} from the domain's corner: over so many "
            "lattice steps distances are not exact; use larger cells, or cut the geometry (is it in another CRS?)"
        )


def on_lattice(geometry: BaseGeometry, domain: Domain) -> BaseGeometry:
    """Convert a geometry to lattice steps, its vertices rounded to whole ones; in 1-D flat, on a plane's x axis."""
    import shapely

    def to_lattice(vertices: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.zeros_like(vertices)
        for axis in range(domain.ndim):
            out[:, axis] = np.rint((vertices[:, axis] - domain.low[axis]) / domain.step[axis])
        return out

    if geometry.geom_type == "LinearRing":  # as a line it may cross itself once it is rounded
        geometry = shapely.LineString(geometry)
    placed = shapely.transform(geometry, to_lattice)
    return placed if shapely.is_valid(placed) else shapely.make_valid(placed)


def is_far(geometry: BaseGeometry, domain: Domain, radius: int) -> bool:
    """Whether no place of the domain itself is within `radius` lattice steps of the geometry."""
    import shapely

    sides = (*domain.lattice_shape, 0)[:2]
    return bool(shapely.distance(on_lattice(geometry, domain), shapely.box(0, 0, *sides)) >= radius - _MARGIN)


def touched_cells(geometry: BaseGeometry, domain: Domain, radius: int) -> NDArray[np.bool_]:
    """Cells (domain.shape, bool) in which a raw point less than `radius` lattice steps from the geometry is counted.

    Points outside the domain are counted in the nearest cell: cells at the rim reach outwards without end (in 1-D
    along x only). The geometry is defined on the lattice: its vertices are rounded to whole steps, so that distances
    in simple positions are exact. Proof: docs/privacy/histogram.md, lemma 2.
    """
    import shapely

    placed = on_lattice(geometry, domain)
    shapely.prepare(placed)
    shape = np.array((*domain.shape, 1)[:2])
    steps = np.array((*domain.steps, 0)[:2], dtype=np.float64)
    limit = radius - _MARGIN
    # Nothing of the geometry is nearer to what lies still further out.
    bounds = np.array(shapely.bounds(placed))
    outer_low = np.where(steps > 0, np.minimum(0, bounds[:2] - radius), 0)
    outer_high = np.where(steps > 0, np.maximum(shape * steps, bounds[2:] + radius), 0)

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
        first = np.where(low == 0, outer_low, low * steps)
        last = np.where(high == shape, outer_high, high * steps)
        close = shapely.distance(placed, shapely.box(*first.T, *last.T)) < limit
        low, high = low[close], high[close]
        if (block == 1).all():
            near[low[:, 0], low[:, 1]] = True
            break
        # A block whose farthest point in the domain is surely within the limit needs no finer look.
        middle = shapely.points(*((low + high) * steps / 2).T)
        half = np.hypot(*((high - low) * steps / 2).T)
        inside = shapely.distance(placed, middle) + half < limit
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
