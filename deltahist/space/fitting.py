"""Regions and boxes from anywhere, fitted to a map: projected, repaired, clipped, and marked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely.affinity
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import DeltaHistWarning, InputError
from deltahist.space.crs import LONGITUDE_LATITUDE, Operation, area_of, metres_per_unit, read_crs, width_in_degrees
from deltahist.space.domain import Domain
from deltahist.space.geometries import way_to_map
from deltahist.space.workloads import reach_beyond

#: Share of a cell's area: less of a region than this on the map is rounding.
SPECK = 1e-6
#: Regions fitted at a time, so that memory stays small.
AT_A_TIME = 1 << 12
#: Note of a region of which the map holds nothing.
OUTSIDE = "not answered: outside the map"
#: Share of a cell's side by which a straight piece of an edge in degrees may miss the curve that it is on the map.
_BEND = 2e-3
#: How rings are made valid: where they overlap there is land, and not a hole.
_OVERLAPS_ARE_LAND: Any = {"method": "structure", "keep_collapsed": False}
#: Radius of the earth in metres.
_EARTH = 6_371_000.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """Regions as far as a map holds them.

    Parameters
    ----------
    shapes : (m,) valid polygons on the map, or corners of boxes; None where nothing can be answered.
    outside : (m,) share of each region's area that lies outside the map; NaN without an area.
    notes : (m,) what was done to a region, or why nothing can be answered; None where there is nothing to say.
    """

    shapes: NDArray[Any]
    outside: NDArray[np.float64]
    notes: NDArray[Any]

    @property
    def held(self) -> NDArray[np.bool_]:
        """(m,) which regions can be answered."""
        return np.array([shape is not None for shape in self.shapes], dtype=bool)

    def spread_over_regions(self, columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Return columns of answers to the shapes (held,) as columns of all regions (m,), which say what was done.

        There may be several answers to each, such as one per step, all of them one after another.
        """
        held, out = np.flatnonzero(self.held), {}
        for name, each in columns.items():
            values = np.asarray(each)
            if len(held) < len(self.shapes):
                some = values.reshape(-1, len(held))
                values = np.full((len(some), len(self.shapes)), np.nan, np.result_type(some, np.float64))
                values[:, held] = some
                values = values.ravel()
            out[name] = values
        times = len(values) // len(self.shapes)
        if "step" in out:
            out["step"] = np.repeat(np.asarray(columns["step"])[:: len(held)], len(self.shapes))
        if (self.outside > 0).any():
            out["outside"] = np.tile(self.outside, times)
        if (self.notes != None).any():  # noqa: E711
            out["note"] = np.tile(self.notes, times)
        return out


def fit(regions: ArrayLike, domain: Domain, crs: Any = None) -> Fitted:
    """Return regions (m,), shapely geometries in a CRS or the domain's coordinates, as polygons on a map.

    They are repaired where rings cross themselves, and clipped to the map. In longitude and latitude edges are
    straight in degrees, and longitudes count modulo 360. An edge of more than 180 degrees takes the
    shorter way, across the antimeridian (`read_rings`).

    Warns if regions are changed or cannot be answered. Raises InputError if none of them can be, with the likely cause;
    if the domain has one dimension; or as of `way_to_map`.

    >>> import shapely, warnings, deltahist as dh
    >>> domain = dh.Domain((0, 0, 4, 4), (4, 4))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     found = fit([shapely.box(3, 0, 7, 1), None, shapely.box(0, 0, 1, 1)], domain)
    >>> found.outside.tolist(), found.notes.tolist()
    ([0.75, nan, 0.0], ['clipped: 75% of its area lies outside the map', 'not answered: no geometry', None])
    """
    if domain.ndim != 2:
        raise InputError("regions are polygons: they need a 2-D domain")
    given, crs = np.array(regions, dtype=object), None if crs is None else read_crs(crs)
    if not len(given):
        raise InputError("there are 0 regions: give at least one")
    operation = way_to_map(crs, domain, "the frame of geometries")
    parts = (given[start : start + AT_A_TIME] for start in range(0, len(given), AT_A_TIME))
    found = Fitted(*map(np.concatenate, zip(*(_fit(part, domain, crs, operation) for part in parts), strict=True)))
    if not found.held.any():
        stated = "without a CRS" if crs is None else f"in {crs.to_string()}"
        raise InputError(
            f"0 of {len(given):,} regions can be answered (the first: {found.notes[0]}). The map's bounds are "
            f"{domain.bounds}, theirs are {tuple(shapely.total_bounds(given).round(6).tolist())} {stated}"
        )
    if noted := int((found.notes != None).sum()):  # noqa: E711
        warnings.warn(
            f"{noted:,} of {len(given):,} regions are clipped, repaired or not answered: the column note says why",
            DeltaHistWarning,
            stacklevel=3,
        )
    return found


def _fit(
    given: NDArray[Any], domain: Domain, crs: Any, operation: Operation | None
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    """Return what `Fitted` holds of some regions."""
    shapes, notes = _repair(read_rings(given) if operation is not None and crs.is_geographic else given)
    near = np.ones(len(shapes))
    if operation is not None:
        shapes, near = _cut_surroundings(shapes, crs, domain)
        there, shapes = ~shapely.is_missing(shapes), operation.shapes(shapes)
        notes[there & shapely.is_missing(shapes)] = f"not answered: it reaches beyond where {domain.crs} is defined"
        rounded = ~shapely.is_missing(shapes) & ~shapely.is_valid(shapes)
        shapes[rounded] = shapely.make_valid(shapes[rounded], **_OVERLAPS_ARE_LAND)

    outside = np.where(shapely.is_missing(shapes), np.nan, 0.0)
    bounds = shapely.box(*domain.bounds)
    for at in np.flatnonzero(reach_beyond(shapely.bounds(shapes), domain) | shapely.is_empty(shapes)):
        part = polygons_of(shapely.intersection(shapes[at], bounds))
        if part.area > SPECK * np.prod(domain.cell):
            outside[at] = share = 1 - near[at] * part.area / shapes[at].area
            shapes[at], notes[at] = part, "; ".join(filter(None, [notes[at], tell_clipped(share)]))
        else:
            shapes[at], outside[at], notes[at] = None, 1.0, OUTSIDE
    return shapes, outside, notes


def tell_clipped(share: float) -> str:
    """Return the note of a clipped region, in words that never look like none or all."""
    words = "less than 1%" if share < 0.01 else "more than 99%" if share > 0.99 else f"{share:.0%}"
    return f"clipped: {words} of its area lies outside the map"


def read_rings(given: NDArray[Any]) -> NDArray[Any]:
    """Return geometries in longitude and latitude whose rings have no edge across more than 180 degrees.

    Such an edge takes the shorter way: from -178 to 178 means from -178 to -182. Edges of a full 360 degrees go all the
    way around, and so do the long edges of a rectangle that is wound anticlockwise, as RFC 7946 winds west to east.

    >>> import shapely
    >>> read_rings(np.array([shapely.box(178, 0, -178, 1), shapely.box(-170, 0, 170, 1)]))[0].bounds
    (-182.0, 0.0, -178.0, 1.0)
    """
    places, owner = shapely.get_coordinates(given, return_index=True)
    step = np.abs(np.diff(places[:, 0]))
    given = given.copy()
    for at in np.unique(owner[1:][(owner[1:] == owner[:-1]) & (step > 180) & (step < 360)]):
        polygons = [each for each in shapely.get_parts(given[at]) if each.geom_type == "Polygon"]
        if polygons:
            given[at] = shapely.multipolygons([_shorten_edges(polygon) for polygon in polygons])
    return given


def _shorten_edges(polygon: Any) -> Any:
    """Return a polygon whose edges of more than 180 degrees take the shorter way; its holes move with it."""
    rings: list[Any] = []
    for ring in shapely.get_rings(polygon):
        places, step = shapely.get_coordinates(ring), np.diff(shapely.get_coordinates(ring)[:, 0])
        turns = np.cumsum(np.where(np.abs(step) < 360, np.rint(step / 360), 0))
        rectangle = len(places) == 5 and shapely.box(*ring.bounds).equals(shapely.Polygon(ring))
        if turns[-1] == 0 and not (rectangle and ring.is_ccw):  # else it goes around a pole
            places[1:, 0] -= 360 * turns
        away = 0.0 if not rings else (rings[0][:, 0].mean() - places[:, 0].mean()) / 360
        rings.append(places + np.array([360 * np.rint(away), 0]))
    return shapely.Polygon(rings[0], rings[1:])


def to_degrees(shapes: NDArray[Any], domain: Domain) -> NDArray[Any]:
    """Return shapes (m,) on a map in longitude and latitude, cut at the antimeridian as RFC 7946 asks."""
    found = read_rings(Operation.off(domain, LONGITUDE_LATITUDE).shapes(shapes))
    for at in np.flatnonzero((np.abs(shapely.bounds(found)[:, ::2]) > 180).any(axis=1)):
        moved = [shapely.affinity.translate(found[at], turn) for turn in (-360, 0, 360)]
        found[at] = shapely.union_all(shapely.intersection(moved, shapely.box(-180, -90, 180, 90)))
    return found


def _repair(given: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the polygons (m,) of geometries, with valid rings, and notes of the repair; None if there is no area."""
    places, owner = shapely.get_coordinates(given, return_index=True)
    finite = np.ones(len(given), dtype=bool)
    finite[owner[~np.isfinite(places).all(axis=1)]] = False
    sound = np.isin(shapely.get_type_id(given), (3, 6)) & finite
    sound[sound] = shapely.is_valid(given[sound]) & (shapely.area(given[sound]) > 0)
    shapes, notes = given.copy(), np.full(len(given), None, dtype=object)
    for at in np.flatnonzero(~sound):
        shape, shapes[at] = given[at], None
        if shape is None or shapely.is_empty(shape) or not finite[at]:
            notes[at] = "not answered: no geometry"
            continue
        if not shapely.is_valid(shape):
            notes[at] = f"repaired: {shapely.is_valid_reason(shape).partition('[')[0].lower()}"
        part = polygons_of(shapely.make_valid(shape, **_OVERLAPS_ARE_LAND))
        if part.area > 0:
            shapes[at] = part
        else:
            notes[at] = f"not answered: {shape.geom_type} without an area"
    return shapes, notes


def polygons_of(shape: Any) -> Any:
    """Return the polygonal part of a valid geometry."""
    if shape.geom_type in ("Polygon", "MultiPolygon"):
        return shape
    parts = shapely.get_parts(shapely.get_parts(shape))
    return shapely.union_all([part for part in parts if part.geom_type == "Polygon"])


def _cut_surroundings(shapes: NDArray[Any], crs: Any, domain: Domain) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the parts of shapes in a CRS that lie around a map, and their share (m,) of the area.

    A projection may fold far from the area that it is made for: a region on the other side of the earth could reach the
    map. Degrees also get more vertices, so that edges become the curves that they are on the map.
    """
    share, area = np.ones(len(shapes)), area_of(domain.crs, domain.bounds, crs)  # type: ignore[arg-type]
    if area is None:
        return shapes, share
    (west, south, east, north), turns, least = area, [0], 1000.0
    beside = max((east - west) / 20, least)
    if crs.is_geographic:
        east, turns, least = west + width_in_degrees(west, east), [-360, 0, 360], 0.01
        # The gap between turns of a map of nearly all longitudes holds its seam.
        beside = min(max((east - west) / 20, least), (360 - east + west) / 4)
    above = max((north - south) / 20, least)
    parts = [shapely.box(west - beside + t, south - above, east + beside + t, north + above) for t in turns]
    # The sides may be curves on the map, and must not come to lie on it.
    window = shapely.segmentize(shapely.union_all(parts), max(east - west, north - south) / 64)
    shapely.prepare(window)
    shapes = shapes.copy()
    for at in np.flatnonzero(~shapely.is_missing(shapes) & ~shapely.covered_by(shapes, window)):
        part = polygons_of(shapely.intersection(shapes[at], window))
        share[at] = _area(part, crs) / _area(shapes[at], crs)
        shapes[at] = part
    if crs.is_geographic:
        # A piece of length l on a circle of radius r is l² / 8 r off its chord.
        cell = min(domain.cell) * metres_per_unit(domain.crs)
        shapes = shapely.segmentize(shapes, math.degrees(math.sqrt(8 * _BEND * cell / _EARTH)))
    return shapes, share


def _area(shape: Any, crs: Any) -> float:
    """Return a shape's area in a CRS; degrees count as on a sphere, whose areas a cylinder keeps."""
    if crs.is_geographic:
        shape = shapely.transform(shape, lambda v: np.column_stack([v[:, 0], np.sin(np.radians(v[:, 1]))]))
    return float(shape.area)


# --- boxes --------------------------------------------------------------------------------------------------


def clip_boxes(corners: NDArray[np.float64], domain: Domain) -> Fitted | None:
    """Clip boxes (m, 4), or (m, 2) on a line, in a map's coordinates to the map.

    The shapes are corners (2 d,); None if every box lies on the map, or one is empty or reversed. Raises InputError if
    all lie outside.

    >>> import deltahist as dh
    >>> found = clip_boxes(np.array([[3.0, 7.0], [0.0, 1.0], [5.0, 6.0]]), dh.Domain((0, 4), (4,)))
    >>> found.shapes.tolist(), found.notes.tolist()[0]
    ([array([3., 4.]), array([0., 1.]), None], 'clipped: 75% of its area lies outside the map')
    """
    low, high = np.array(domain.low), np.array(domain.high)
    first, last = np.split(corners, 2, axis=1)
    beyond = reach_beyond(corners, domain)
    if not beyond.any() or not (first < last).all():
        return None
    clipped = np.hstack([np.clip(first, low, high), np.clip(last, low, high)])
    sides = np.diff(np.split(clipped, 2, axis=1), axis=0)[0]
    share = np.where(beyond, 1 - (sides / (last - first)).prod(axis=1), 0.0)
    gone = beyond & (sides.prod(axis=1) <= SPECK * np.prod(domain.cell))
    if gone.all():
        raise InputError(
            f"0 of {len(corners):,} boxes are inside the domain, whose bounds are {domain.bounds}: the first is "
            f"{corners[0].tolist()}"
        )
    shapes, notes = np.full(len(corners), None), np.full(len(corners), None)
    for at in np.flatnonzero(~gone):
        shapes[at] = clipped[at] if beyond[at] else corners[at]
    for at in np.flatnonzero(beyond):
        notes[at] = OUTSIDE if gone[at] else tell_clipped(share[at])
    return Fitted(shapes, np.where(gone, 1.0, share), notes)


def boxes_in_degrees(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any] | None:
    """Return boxes (m, 4) as polygons (m,) in longitude and latitude; None unless they surely are in degrees.

    That is: every corner can be a longitude and latitude, and no place of the map has coordinates as small or a box
    crosses the antimeridian. Warns if they are. Raises InputError as `bend_boxes`.
    """
    if domain.crs is None or domain.ndim != 2 or not corners.size:
        return None
    west, south, east, north = corners.T
    possible = (np.abs(corners) <= (360, 90, 360, 90)).all() and (west != east).all() and (south < north).all()
    near = shapely.intersects(shapely.box(*domain.bounds), shapely.box(-360, -90, 360, 90))
    if not possible or (near and (west < east).all()):
        return None
    bent = bend_boxes(corners, domain)
    warnings.warn(
        f"the boxes look like degrees, and the map is in {domain.crs}: they are read as longitudes and latitudes, "
        "whose sides are curves on the map",
        DeltaHistWarning,
        stacklevel=4,
    )
    return bent


def bend_boxes(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any]:
    """Return boxes (m, 4) in longitude and latitude as polygons (m,) for `fit`.

    West above east means across the antimeridian. Raises InputError if such a box goes more than half around the earth
    and the map does not: the box must be reversed.
    """
    west, south, east, north = corners.T
    width = width_in_degrees(west, east)
    wide, area = (west > east) & (width > 180), area_of(domain.crs, domain.bounds)  # type: ignore[arg-type]
    if wide.any() and area is not None and width_in_degrees(area[0], area[2]) < 180:
        raise InputError(
            f"box {corners[np.argmax(wide)].tolist()} has west above east, which means across the antimeridian (180°), "
            f"more than half around the world; the map goes from {area[0]:.6g} to {area[2]:.6g}: is the box reversed?"
        )
    # No edge may be so long that `fit` reads it as a shorter one.
    return np.asarray(shapely.segmentize(shapely.box(west, south, west + width, north), 90))
