"""Polygon queries: which cells they cover, and which share of each cell at the rim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.errors import InputError

#: Shares of a cell closer than this to none or all of it are none or all.
_ROUNDING = 1e-9
#: Vertices closer than this to a cell's edge, in cells, are on it.
_NEAR_EDGE = 1e-8


@dataclass(frozen=True, eq=False)
class Regions:
    """Polygons as queries; a cell at the rim counts by the exact share of its area inside.

    Parameters
    ----------
    geometries : (m,) shapely polygons or multipolygons, in the domain's coordinates.
    names : one name each.
    """

    geometries: NDArray[Any]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.geometries)

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Area shares (m, N).

        Raises
        ------
        InputError
            If a polygon reaches outside the domain, or the domain is 1-D.
        """
        import shapely

        if domain.ndim != 2:
            raise InputError("regions are polygons: they need a 2-D domain")
        frame = shapely.box(*domain.bounds)
        slack = 1e-9 * max(abs(h - lo) for lo, h in zip(domain.low, domain.high, strict=True))
        outside = ~shapely.covered_by(self.geometries, shapely.buffer(frame, slack))
        if outside.any():
            first = int(np.argmax(outside))
            raise InputError(
                f"region {self.names[first]!r} is not inside the domain, whose bounds are "
                f"{tuple(round(b, 6) for b in domain.bounds)} (is it in the domain's CRS?)"
            )
        rows = [_shares(geometry, domain) for geometry in self.geometries]
        sizes = np.cumsum([0, *(len(cells) for cells, _ in rows)])
        cells = np.concatenate([cells for cells, _ in rows])
        shares = np.concatenate([shares for _, shares in rows])
        return scipy.sparse.csr_array((shares, cells, sizes), shape=(len(rows), domain.size))


def regions(geometries: Iterable[Any], names: Sequence[str] | None = None) -> Regions:
    """Regions from polygons; names default to their numbers.

    Raises
    ------
    InputError
        If a geometry is no valid, non-empty polygon or multipolygon.
    """
    import shapely

    frame = getattr(geometries, "geometry", None)
    array = np.asarray(list(geometries if frame is None else frame), dtype=object)
    labels = [str(i) for i in range(len(array))] if names is None else [str(n) for n in names]
    if not len(array) or len(labels) != len(array):
        raise InputError(
            f"there are {len(array)} regions and {len(labels)} names: give at least one, and one name each"
        )
    for label, geometry in zip(labels, array, strict=True):
        kind = getattr(geometry, "geom_type", type(geometry).__name__)
        if kind not in ("Polygon", "MultiPolygon") or shapely.is_empty(geometry):
            raise InputError(f"region {label!r} is {kind}: it must be a non-empty Polygon or MultiPolygon")
        if not shapely.is_valid(geometry):
            raise InputError(f"region {label!r} is not valid: {shapely.is_valid_reason(geometry)}")
    return Regions(array, tuple(labels))


def _shares(geometry: Any, domain: Domain) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Flat cells that a polygon touches and the share of each inside it."""
    import shapely

    nx, ny = domain.shape

    def to_cells(at: NDArray[np.float64]) -> NDArray[np.float64]:
        place = (at - domain.low) / domain.cell
        edge = np.rint(place)
        return np.where(np.abs(place - edge) < _NEAR_EDGE, edge, place)

    in_cells = shapely.transform(geometry, to_cells)
    if not shapely.is_valid(in_cells):  # rounding can make a ring touch itself
        in_cells = shapely.make_valid(in_cells)
    west, south, east, north = shapely.bounds(in_cells)
    x0, x1 = max(int(west), 0), min(math.ceil(east), nx)
    y0, y1 = max(int(south), 0), min(math.ceil(north), ny)
    i, j = (a.ravel() for a in np.meshgrid(np.arange(x0, x1), np.arange(y0, y1), indexing="ij"))
    cells = shapely.box(i, j, i + 1, j + 1)
    shapely.prepare(in_cells)
    touched = shapely.intersects(in_cells, cells)
    whole = shapely.contains_properly(in_cells, cells)
    share = whole.astype(np.float64)
    rim = touched & ~whole
    share[rim] = shapely.area(shapely.intersection(cells[rim], in_cells))
    # A billionth of a cell is rounding in the areas.
    share[share > 1 - _ROUNDING] = 1.0
    keep = share > _ROUNDING
    return (i[keep] * ny + j[keep]).astype(np.int64), share[keep]
