"""Boxes on their way to a map: clipped to it, or bent, where they are in longitude and latitude."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import DeltaHistWarning, InputError
from deltahist.space.crs import Operation, looks_like_degrees
from deltahist.space.fitting import (
    AT_A_TIME,
    HALF_WORLD,
    OUTSIDE,
    SPECK,
    Fitted,
    fit,
    longitudes_of,
    tell_clipped,
)
from deltahist.space.geometries import LONGITUDE_LATITUDE
from deltahist.space.workloads.queries import reach_beyond

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: Of a cell's side: a piece of a side of a box in degrees, which the map bends, is straight but for less than this.
_BEND = 1e-3
#: Pieces of a side, at most.
_MOST_PIECES = 1024


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
            f"{corners[0].tolist()}; is that the place, and the CRS, that is meant?"
        )
    shapes, notes = np.full(len(corners), None), np.full(len(corners), None)
    for at in np.flatnonzero(~gone):
        shapes[at] = clipped[at] if beyond[at] else corners[at]
    for at in np.flatnonzero(beyond):
        notes[at] = OUTSIDE if gone[at] else tell_clipped(share[at])
    return Fitted(shapes, np.where(gone, 1.0, share), notes)


def boxes_in_degrees(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any] | None:
    """Return boxes (m, 4) as polygons (m,) in longitude and latitude; None unless they surely are in degrees.

    That is: every corner can be a longitude and latitude, and no place of the map has coordinates as small. Their
    sides, which are curves on a map, are cut into pieces. Warns if they are. Raises InputError as `bend_boxes`.
    """
    if domain.crs is None or domain.ndim != 2 or not corners.size:
        return None
    west, south, east, north = corners.T
    # West above east is across the antimeridian.
    in_order = has_width(west, east).all() and (south < north).all()
    if not in_order or not all(map(looks_like_degrees, corners.tolist())):
        return None
    import shapely

    if shapely.intersects(shapely.box(*domain.bounds), shapely.box(-180, -90, 180, 90)):
        return None
    bent = bend_boxes(corners, domain)
    warnings.warn(
        f"the boxes look like degrees, and the map is in {domain.crs}: they are taken as longitudes and latitudes, "
        "with the curved sides that they have on the map",
        DeltaHistWarning,
        stacklevel=4,
    )
    return bent


def fit_boxes(corners: NDArray[np.float64], bent: NDArray[Any], domain: Domain) -> Fitted:
    """Fit boxes (m, 4) in longitude and latitude to a map, as polygons that are bent (m,): `fit`.

    Raises InputError if all lie outside the map, with the first one swapped if that lies on it.
    """
    try:
        return fit(bent, domain, LONGITUDE_LATITUDE)
    except InputError:
        swapped = corners[:1, [1, 0, 3, 2]]
        middle = Operation.off(domain, LONGITUDE_LATITUDE).back(*(swapped[:, :2] + swapped[:, 2:]).T / 2)
        if not looks_like_degrees(swapped[0].tolist()) or reach_beyond(np.tile(np.ravel(middle), (1, 2)), domain).any():
            raise
        one, other = (",".join(f"{v:.10g}" for v in box) for box in (corners[0], swapped[0]))
        raise InputError(
            f"0 of {len(corners):,} boxes are on the map: the first is {one}, which with latitude and longitude "
            f"swapped would be on it, as {other}; boxes are west, south, east, north: give the longitude first"
        ) from None


def has_width(west: NDArray[np.float64], east: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether boxes (m,) have a width in longitude: all around the earth, from -180° to 180°, they do."""
    return np.asarray(((west - east) % 360 != 0) | (west < east))


def bend_boxes(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any]:
    """Return boxes (m, 4) in longitude and latitude as polygons (m,), whose sides are cut where the map bends them.

    A box whose west is above its east lies across the antimeridian: in one piece on a map that does so too, else in
    two. Raises InputError if the map reaches both of its ends but not the antimeridian: it must be reversed.
    """
    import shapely

    if (corners[:, 0] > corners[:, 2]).any():
        return _bend_across(corners, domain)
    if len(corners) > AT_A_TIME:
        starts = range(0, len(corners), AT_A_TIME)
        return np.concatenate([bend_boxes(corners[start : start + AT_A_TIME], domain) for start in starts])
    turns = _turns(corners)
    number = _count_pieces(turns, domain).T.ravel()
    side = np.repeat(np.arange(len(number)), number)
    part = ((np.arange(len(side)) - (np.cumsum(number) - number)[side]) / number[side])[:, None]
    box, turn = np.divmod(side, 4)
    rings = shapely.linearrings(turns[turn, :, box] * (1 - part) + turns[turn + 1, :, box] * part, indices=box)
    return np.asarray(shapely.polygons(rings))


def _bend_across(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any]:
    """Return what `bend_boxes` does, of boxes of which some lie across the antimeridian."""
    import shapely

    west, _, east, _ = corners.T
    across, (first, last) = west > east, longitudes_of(domain)
    wide = across & (west - east < HALF_WORLD)
    if wide.any() and last - first < HALF_WORLD:
        raise InputError(
            f"box {corners[np.argmax(wide)].tolist()} has west above east, which means across the antimeridian (180°), "
            f"more than half around the world; the map reaches from {first:.6g} to {last:.6g}: is the box reversed?"
        )
    if first < -180 or last > 180:  # the map has no seam there
        return bend_boxes(corners + np.outer(across, (0, 0, 360, 0)), domain)
    owner = np.repeat(np.arange(len(corners)), 1 + across)
    parts = corners[owner]
    begins = np.flatnonzero(np.diff(owner, prepend=-1))[across]
    parts[begins, 2], parts[begins + 1, 0] = 180.0, -180.0
    there = parts[:, 0] < parts[:, 2]  # a box that ends at the antimeridian has one part
    return np.asarray(shapely.multipolygons(bend_boxes(parts[there], domain), indices=owner[there]))


def straight_boxes(corners: NDArray[np.float64], domain: Domain) -> NDArray[np.float64] | None:
    """Return boxes (m, 4) in degrees as boxes on a map, if all of them are boxes there; else None.

    They must lie on the map whole. That is so where meridians and parallels are straight, such as on Mercator's maps.
    They may be off by as much as sides that are bent.
    """
    if (corners[:, 0] > corners[:, 2]).any():
        return None
    x, y = _quarters(_turns(corners), domain)
    # The western side is the last, after the southern, the eastern and the northern one.
    ends = np.stack([x[3], y[0], x[1], y[2]])
    if not (np.ptp(ends, axis=1) <= _BEND).all():
        return None
    placed = ends.mean(axis=1).T * np.tile(domain.cell, 2)
    if not (placed[:, :2] < placed[:, 2:]).all() or reach_beyond(placed, domain).any():
        return None
    return np.clip(placed, np.tile(domain.low, 2), np.tile(domain.high, 2))


def _turns(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the corners of boxes anticlockwise from the southern side: where each side begins (5, axes, m)."""
    west, south, east, north = corners.T
    return np.array([(west, south), (east, south), (east, north), (west, north), (west, south)])


def _quarters(turns: NDArray[np.float64], domain: Domain) -> NDArray[np.float64]:
    """Return all quarters of sides on the map, in cells (axes, sides, quarters, m); NaN where it has no place."""
    part = np.arange(5).reshape(-1, 1, 1) / 4
    places = turns[:-1, None] * (1 - part) + turns[1:, None] * part
    away = np.stack(Operation.off(domain, LONGITUDE_LATITUDE).back(*np.moveaxis(places, 2, 0)))
    return np.where(np.isfinite(away), away, np.nan) / np.array(domain.cell).reshape(2, 1, 1, 1)


def _count_pieces(turns: NDArray[np.float64], domain: Domain) -> NDArray[np.int64]:
    """Return the number of straight pieces (sides, m) for the sides of boxes in degrees, which the map bends.

    The distance of a piece's middle from a straight line falls with the square of their number.
    """
    away = _quarters(turns, domain)  # all of them, so that no bend stays unseen
    bend = np.linalg.norm(away[:, :, 1:-1] - (away[:, :, :-2] + away[:, :, 2:]) / 2, axis=0).max(axis=1)
    # Two quarters make a half, whose middle is as far off as that of a side of half the length.
    wanted = np.ceil(2 * np.sqrt(np.where(np.isfinite(bend), bend, np.inf) / _BEND))
    return np.clip(wanted, 1, _MOST_PIECES).astype(np.int64)
