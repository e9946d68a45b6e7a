"""Polygon queries: which cells they cover, and which share of each cell at the rim."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.errors import InputError
from deltahist.workloads.areas import areas
from deltahist.workloads.cover import RowCover
from deltahist.workloads.ranges import Boxes

#: Shares of a cell closer than this to none or all of it are none or all.
_ROUNDING = 1e-9


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
        """Area shares (m, N); InputError as of `cover`."""
        return self.cover(domain).rows

    def boxes(self) -> Boxes:
        """A box for each region, as wide for its height as the region, of its area, where it is."""
        import shapely

        corners = shapely.bounds(self.geometries)
        sides = corners[:, 2:] - corners[:, :2]
        part = np.sqrt(shapely.area(self.geometries) / sides.prod(axis=1))
        middle, half = corners[:, :2] + sides / 2, sides * part[:, None] / 2
        return Boxes(np.column_stack([middle - half, middle + half]))

    def cover(self, domain: Domain) -> RowCover:
        """Which share of each cell the polygons hold, and where in the cell; kept for the domain asked last.

        Raises
        ------
        InputError
            If a polygon reaches outside the domain, or the domain is 1-D.
        """
        if domain not in self._last:
            self._last.clear()
            self._last[domain] = self._cover(domain)
        return self._last[domain]

    @functools.cached_property
    def _last(self) -> dict[Domain, RowCover]:
        return {}

    def _cover(self, domain: Domain) -> RowCover:
        import shapely

        if domain.ndim != 2:
            raise InputError("regions are polygons: they need a 2-D domain")
        frame = shapely.box(*domain.bounds)
        slack = 1e-9 * max(abs(h - lo) for lo, h in zip(domain.low, domain.high, strict=True))
        outside = ~shapely.covered_by(self.geometries, shapely.buffer(frame, slack))
        if outside.any():
            first = int(np.argmax(outside))
            number = f" ({int(outside.sum()):,} such regions)" if outside.sum() > 1 else ""
            bounds = f"the domain, whose bounds are {tuple(round(b, 6) for b in domain.bounds)}"
            if shapely.intersects(self.geometries[first], frame):
                raise InputError(
                    f"region {self.names[first]!r} reaches outside {bounds}{number}: clip it, nothing is known there"
                )
            raise InputError(
                f"region {self.names[first]!r} is not inside {bounds}{number} (is it in the domain's CRS?)"
            )
        found = [_on_cells(geometry, domain) for geometry in self.geometries]
        sizes = np.cumsum([0, *(len(cells) for cells, *_ in found)])
        cells, shares, *places = (np.concatenate(column) for column in zip(*found, strict=True))
        rows = scipy.sparse.csr_array((shares, cells, sizes), shape=(len(found), domain.size))
        return RowCover(rows, tuple(places))


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
            raise InputError(
                f"region {label!r} is not valid: {shapely.is_valid_reason(geometry)}; repair it (shapely.make_valid)"
            )
    return Regions(array, tuple(labels))


def _on_cells(
    geometry: Any, domain: Domain
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Flat cells that a polygon touches, the share of each inside it, and that share times its place along x and y."""
    corner, area, along_x, along_y = areas(
        geometry, np.array(domain.low), np.array(domain.cell), domain.shape
    )
    # A billionth of a cell is rounding in the areas.
    whole = area > 1 - _ROUNDING
    i, j = np.nonzero(area > _ROUNDING)
    share = np.where(whole, 1.0, area)[i, j]
    # Moments are in cells, places in half cells.
    places = [np.where(whole, 0.0, 2 * along)[i, j] for along in (along_x, along_y)]
    return (i + corner[0]) * domain.shape[1] + j + corner[1], share, places[0], places[1]
