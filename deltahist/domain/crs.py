"""Checks on projections: scale factors over a domain, geographic CRSs, the antimeridian."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.domain.operations import lattice_of, off, read_crs
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.domain.domain import Domain
    from deltahist.domain.extents import Extent

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


def check_projected(domain: Domain | Extent) -> None:
    """Raise InputError unless the domain's CRS is projected, horizontal, and unbroken over the domain."""
    crs = read_crs(str(domain.crs))
    if crs.is_geographic:
        raise InputError(
            f"crs is {domain.crs!r}: degrees are not lengths, so a domain needs a projected CRS; "
            "Domain.from_degrees chooses one for bounds in degrees, or give the bounds in the metres of one"
        )
    if not crs.is_projected or domain.ndim != 2:
        raise InputError(f"crs is {domain.crs!r}: it must be a projected CRS, on a 2-D domain")
    if not _on_earth(domain.crs, domain.low, domain.high):
        raise InputError(
            f"bounds are {domain.bounds}: they leave the area where {domain.crs} is defined "
            "(are they in metres of that CRS, in the order west, south, east, north?)"
        )


def refuse_seams(domain: Domain | Extent) -> None:
    """Raise InputError if places near each other on the ground lie far apart on the map.

    Between two places the map's length is at most the largest scale times the ground's along a geodesic that
    stays inside. Three times as much between places on the rim means that the domain reaches a seam of the
    map, such as the antimeridian, from both sides.
    """
    if _stretched(domain.crs, domain.low, domain.high) > 3 * float(domain.scale or 1.0):
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: the domain reaches the antimeridian (or another seam of the "
            "map) from both sides, so that points near each other on the ground lie far apart on the map; "
            "use two domains or another projection"
        )


@functools.lru_cache(maxsize=64)
def _on_earth(crs: str | None, low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    """Whether all places of a box have a position; cells of every size lie on the same few boxes."""
    return all(
        np.isfinite(a).all() for a in off(crs, low, high, "EPSG:4326")(*lattice_of(low, high, _SAMPLES))
    )


@functools.lru_cache(maxsize=64)
def _stretched(crs: str | None, low: tuple[float, ...], high: tuple[float, ...]) -> float:
    """How many times the ground's length between two places on the rim the map's is, at most."""
    import pyproj

    to_ground = off(crs, low, high, "EPSG:4326")
    x, y = (np.concatenate([a[0], a[-1], a[:, 0], a[:, -1]])[::4] for a in lattice_of(low, high, _SAMPLES))
    lon, lat = to_ground(x, y)
    i, j = np.triu_indices(len(x), 1)
    metres = np.asarray(pyproj.Geod(ellps="WGS84").inv(lon[i], lat[i], lon[j], lat[j])[2])
    on_map = np.hypot(x[i] - x[j], y[i] - y[j])
    # Beyond a seam the map goes on, but no position is ever drawn there: it comes back on the other side.
    again = to_ground.back(lon, lat)
    if (np.hypot(again[0] - x, again[1] - y) > 1e-3 * on_map.max()).any():
        return math.inf
    # Corners stand on the rim twice: a millionth of the box is rounding.
    return float(
        (np.maximum(on_map - 1e-6 * on_map.max(), 0.0) / np.maximum(metres, np.finfo(float).tiny)).max()
    )


def largest_scale(domain: Domain | Extent) -> float:
    """Largest ratio of map units to ground metres, in any direction, over the domain's bounds.

    Raises InputError if it is beyond all use.
    """
    largest = scales(domain)[1]
    if not largest < 100:
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: lengths on this map are up to {largest:.3g} times "
            "those on the ground; choose a projection made for the region"
        )
    return largest


def scales(domain: Domain | Extent) -> tuple[float, float]:
    """Smallest and largest ratio of map units to ground metres, in any direction, over the domain's bounds.

    At each of a lattice of places that includes the rim, the derivatives along the map's axes of the place in space,
    in metres from the centre of the ellipsoid, make a 3 × 2 matrix; the inverses of its singular values are the
    extremes of the local scale. (The factors that projections state of themselves are those of a sphere for some.)
    Rounded outwards in the seventh digit; (0, inf) where there are none.
    """
    return _scales(domain.crs, domain.low, domain.high)


@functools.lru_cache(maxsize=64)
def _scales(crs: str | None, low: tuple[float, ...], high: tuple[float, ...]) -> tuple[float, float]:
    """`scales`; cells of every size lie on the same few boxes."""
    to_ground = off(crs, low, high, "EPSG:4326")
    x, y = lattice_of(low, high, _SAMPLES)
    # Wide enough that positions keep their digits, narrow enough that scales do not change.
    h = max(max(abs(b) for b in (*low, *high)) * 1e-6, 1e-3)
    ahead = (_in_space(*to_ground(x + dx, y + dy)) for dx, dy in ((h, 0.0), (0.0, h)))
    behind = (_in_space(*to_ground(x - dx, y - dy)) for dx, dy in ((h, 0.0), (0.0, h)))
    ground = np.stack([(a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)], axis=-1)
    # Latitudes lose half of their digits at a pole; places a little further off stand for it.
    sure = _EQUATOR * np.cos(np.radians(to_ground(x, y)[1])) > 1e3 * h
    ground = ground[np.isfinite(ground).all(axis=(-1, -2)) & sure]
    if not len(ground):
        return 0.0, math.inf
    singular = np.linalg.svd(ground, compute_uv=False)
    most, least = float(singular[..., 0].max()), float(singular[..., -1].min())
    largest = math.ceil(1e7 / least) / 1e7 if least > 0 else math.inf
    return math.floor(1e7 / most) / 1e7, largest


def words(domain: Domain | Extent) -> str:
    """What a domain's map is, for people: the name of its CRS, and how its lengths compare with those on the ground.

    >>> from deltahist.domain import Domain
    >>> words(Domain((560_000, 4_480_000, 610_000, 4_530_000), (50, 50), "EPSG:32618"))
    'WGS 84 / UTM zone 18N; a metre on the ground is 0.99964 to 0.99975 m of the map'
    """
    crs = read_crs(domain.crs)
    name = crs.name
    if name == "unknown" and crs.coordinate_operation is not None:  # made up, not registered
        name = crs.coordinate_operation.method_name
    least, largest = scales(domain)
    return f"{name}; a metre on the ground is {least:.5g} to {largest:.5g} {unit_of(domain.crs)} of the map"


def metres_per_unit(crs: str | None) -> float:
    """Metres in one unit of a CRS's axes, such as 0.3048 for feet; those of the map, not of the ground."""
    return float(read_crs(crs).axis_info[0].unit_conversion_factor)


def unit_of(crs: str | None) -> str:
    """The unit of a CRS's axes: "m", or its name."""
    return "m" if metres_per_unit(crs) == 1 else str(read_crs(crs).axis_info[0].unit_name)


def _in_space(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.float64]:
    """Metres (..., 3) from the centre of the ellipsoid, which have no seams."""
    flat = _FLATTENING * (2 - _FLATTENING)
    with np.errstate(invalid="ignore"):  # places that are not on the map
        east, north = np.radians(lon), np.radians(lat)
        radius = _EQUATOR / np.sqrt(1 - flat * np.sin(north) ** 2)
        out = radius * np.cos(north)
        return np.stack(
            [out * np.cos(east), out * np.sin(east), (1 - flat) * radius * np.sin(north)], axis=-1
        )
