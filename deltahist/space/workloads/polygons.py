"""Polygon queries: which cells they cover, and which share of each cell at the rim."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.space.workloads.areas import Parts, parts_of
from deltahist.space.workloads.cover import RegionCover
from deltahist.space.workloads.ranges import Boxes

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
        """Return a box for each region: of its area, with the centre and proportions of its bounds."""
        import shapely

        corners = shapely.bounds(self.geometries)
        sides = corners[:, 2:] - corners[:, :2]
        part = np.sqrt(shapely.area(self.geometries) / sides.prod(axis=1))
        middle, half = corners[:, :2] + sides / 2, sides * part[:, None] / 2
        return Boxes(np.column_stack([middle - half, middle + half]))

    def cover(self, domain: Domain) -> RegionCover:
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
    def _last(self) -> dict[Domain, RegionCover]:
        return {}

    def _cover(self, domain: Domain) -> RegionCover:
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
        asked = (self.geometries, np.array(domain.low), np.array(domain.cell), domain.shape, _ROUNDING)
        found = Parts(*map(np.concatenate, zip(*parts_of(*asked), strict=True)))
        # Moments are in cells, places in half cells.
        places = (2 * found.along_x, 2 * found.along_y)
        cells, rectangles = (found.owner, found.x, found.y, found.area), (found.whole, found.low, found.high)
        return RegionCover(len(self), domain.shape, *cells, places, *rectangles)


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
    known = np.array([hasattr(each, "geom_type") for each in array])
    plain = known.copy()
    plain[known] = np.isin(shapely.get_type_id(array[known]), (3, 6)) & shapely.is_valid(array[known])
    plain[known] &= ~shapely.is_empty(array[known])
    for at in np.flatnonzero(~plain):
        label, geometry = labels[at], array[at]
        kind = getattr(geometry, "geom_type", type(geometry).__name__)
        if kind not in ("Polygon", "MultiPolygon") or shapely.is_empty(geometry):
            raise InputError(f"region {label!r} is {kind}: it must be a non-empty Polygon or MultiPolygon")
        raise InputError(
            f"region {label!r} is not valid: {shapely.is_valid_reason(geometry)}; repair it (shapely.make_valid)"
        )
    return Regions(array, tuple(labels))
