"""Checks on projections: scale factors over a domain, geographic CRSs, the antimeridian."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from deltahist.domain.operations import Area, Operation, lattice_of, read_crs
from deltahist.errors import InputError

#: Points per side at which a projection is examined; scale factors are smooth, extremes lie on the rim.
_SAMPLES = 65
#: Half-axis in metres and flattening of the ellipsoid on which ground metres are counted, WGS 84.
_EQUATOR, _FLATTENING = 6378137.0, 1 / 298.257223563


def utm_code(lon: float, lat: float) -> str:
    """EPSG code of the UTM zone of a position, as a suggestion for a projection.

    >>> utm_code(-73.99, 40.73)
    'EPSG:32618'
    """
    zone = min(int((lon + 180) // 6) + 1, 60)
    return f"EPSG:{(32600 if lat >= 0 else 32700) + zone}"


def check_projected(domain: Area) -> None:
    """Raise InputError unless the domain's CRS is projected, horizontal, and unbroken over the domain."""
    crs = read_crs(str(domain.crs))
    if crs.is_geographic:
        lon, lat = (np.add(domain.low, domain.high) / 2).tolist() if domain.ndim == 2 else (0.0, 0.0)
        inside = abs(lon) <= 180 and abs(lat) <= 84
        raise InputError(
            f"crs is {domain.crs!r}: degrees are not lengths, so a domain needs a projected CRS; "
            f"project the points, for example to {utm_code(lon, lat) if inside else 'EPSG:32618'}, and give the bounds "
            "in its metres"
        )
    if not crs.is_projected or domain.ndim != 2:
        raise InputError(f"crs is {domain.crs!r}: it must be a projected CRS, on a 2-D domain")
    x, y = lattice_of(domain.low, domain.high, _SAMPLES)
    lon, lat = _to_ground(domain, x, y)
    if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
        raise InputError(
            f"bounds are {domain.bounds}: they leave the area where {domain.crs} is defined "
            "(are they in metres of that CRS, in the order west, south, east, north?)"
        )


def refuse_seams(domain: Area) -> None:
    """Raise InputError if places near each other on the ground lie far apart on the map.

    Between two places the map's length is at most the largest scale times the ground's along a geodesic that
    stays inside. Three times as much between places on the rim means that the domain reaches a seam of the
    map, such as the antimeridian, from both sides.
    """
    import pyproj

    samples = lattice_of(domain.low, domain.high, _SAMPLES)
    x, y = (np.concatenate([a[0], a[-1], a[:, 0], a[:, -1]])[::4] for a in samples)
    lon, lat = _to_ground(domain, x, y)
    i, j = np.triu_indices(len(x), 1)
    metres = np.asarray(pyproj.Geod(ellps="WGS84").inv(lon[i], lat[i], lon[j], lat[j])[2])
    on_map = np.hypot(x[i] - x[j], y[i] - y[j])
    # Beyond a seam the map goes on, but no position is ever drawn there: it comes back on the other side.
    again = Operation.off(domain, "EPSG:4326").back(lon, lat)
    lost = np.hypot(again[0] - x, again[1] - y) > 1e-3 * on_map.max()
    if lost.any() or (on_map > 3 * float(domain.scale or 1.0) * metres + 1e-6 * on_map.max()).any():
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: the domain reaches the antimeridian (or another seam of the "
            "map) from both sides, so that points near each other on the ground lie far apart on the map; "
            "use two domains or another projection"
        )


def largest_scale(domain: Area) -> float:
    """Largest ratio of map units to ground metres, in any direction, over the domain's bounds.

    At each of a lattice of places that includes the rim, the derivatives of longitude and latitude along the
    map's axes, in metres on the ellipsoid, make a 2 × 2 matrix; the inverse of its least singular value is the
    largest local scale. (The factors that projections state of themselves are those of a sphere for some.)
    Rounded up in the seventh digit.
    """
    x, y = lattice_of(domain.low, domain.high, _SAMPLES)
    # Wide enough that longitudes keep their digits, narrow enough that scales do not change.
    h = max(max(abs(b) for b in domain.bounds) * 1e-6, 1e-3)
    lat = _to_ground(domain, x, y)[1]
    e2 = _FLATTENING * (2 - _FLATTENING)
    bend = 1 - e2 * np.sin(np.radians(lat)) ** 2
    east_metres = np.radians(_EQUATOR / np.sqrt(bend) * np.cos(np.radians(lat)))
    north_metres = np.radians(_EQUATOR * (1 - e2) / bend**1.5)
    rows = []
    for dx, dy in ((h, 0.0), (0.0, h)):
        (lon1, lat1), (lon0, lat0) = _to_ground(domain, x + dx, y + dy), _to_ground(domain, x - dx, y - dy)
        turn = (lon1 - lon0 + 180) % 360 - 180  # across the antimeridian
        rows.append(np.stack([turn * east_metres, (lat1 - lat0) * north_metres], axis=-1) / (2 * h))
    ground = np.stack(rows, axis=-2)
    ground = ground[np.isfinite(ground).all(axis=(-1, -2))]
    least = float(np.linalg.svd(ground, compute_uv=False)[..., -1].min()) if len(ground) else 0.0
    largest = 1 / least if least > 0 else math.inf
    if not largest < 100:
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: lengths on this map are up to {largest:.3g} times "
            "those on the ground; choose a projection made for the region"
        )
    return math.ceil(largest * 1e7) / 1e7


def _to_ground(
    domain: Area, x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longitude and latitude in degrees, whatever units and meridian the CRS itself counts in."""
    lon, lat = Operation.off(domain, "EPSG:4326")(x, y)
    return lon, lat
