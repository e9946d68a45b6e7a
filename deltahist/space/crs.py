"""Project coordinates, measure the scale of a map, and choose a map for bounds in degrees.

PROJ may offer several operations that convert between two coordinate systems, each for a different area. If each point
had its own operation, neighbouring points could end up hundreds of metres apart, so deltahist uses one operation for
all points. Operations with correction grids are not used, because coordinates jump at the edge of a grid.
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import shapely
from numpy.typing import NDArray
from pyproj.aoi import AreaOfInterest
from pyproj.database import query_utm_crs_info
from pyproj.transformer import TransformerGroup

from deltahist.errors import DeltaHistWarning, InputError, check_finite

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: CRS of longitudes and latitudes, which all GeoJSON uses (RFC 7946).
LONGITUDE_LATITUDE = "EPSG:4326"


def read_crs(text: Any, name: str = "crs") -> Any:
    """Parse a CRS with pyproj. Raises InputError if pyproj cannot parse the text."""
    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError:
        raise InputError(f"{name} is {text!r}: it must be a known CRS such as EPSG:32618") from None


@functools.lru_cache(maxsize=64)
def area_of(crs: str, bounds: tuple[float, ...], target: Any = LONGITUDE_LATITUDE) -> tuple[float, ...] | None:
    """Return the bounds (W, S, E, N) of a map's box in another CRS, or None if that CRS does not cover the box.

    In degrees, west is greater than east if the box crosses the antimeridian (RFC 7946). A box that contains a pole
    spans all longitudes.

    >>> [round(degrees) for degrees in area_of("EPSG:3832", (2.5e6, -1e6, 4.5e6, 1e6))]
    [172, -9, -170, 9]
    """
    # Any operation will do here, because extents differ by at most a few hundred metres.
    onto = pyproj.Transformer.from_crs(read_crs(crs), read_crs(target), always_xy=True)
    west, south, east, north = bounds
    found = onto.transform_bounds(west, south, east, north, densify_pts=100)
    return found if np.isfinite(found).all() else None


@dataclass(frozen=True, eq=False)
class Operation:
    """A conversion between a map and another CRS: PROJ's name for it, and a pyproj Transformer that can be pickled."""

    projection: str
    transformer: Any

    @classmethod
    def between(cls, source: Any, target: Any, area: tuple[float, ...] | None) -> Operation:
        """Return the first operation without correction grids that PROJ offers for an area (W, S, E, N in degrees)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PROJ warns that a better operation needs a grid
            of_interest: Any = None if area is None else AreaOfInterest(*area)
            group = TransformerGroup(source, target, always_xy=True, area_of_interest=of_interest)
        for found in group.transformers:
            if not re.search(r"\b(grids|file)=", found.definition):
                # A transformer made from a pipeline can be pickled.
                return cls(found.description, pyproj.Transformer.from_pipeline(found.definition))
        both = " and ".join(each.to_string()[:60] for each in (source, target))
        raise InputError(f"coordinates cannot be converted: each operation between {both} needs a correction grid")

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def onto(domain: Domain, source: Any) -> Operation | None:
        """Return the operation from a CRS to the map, or None if the CRS is None or the map's own."""
        if source is None:
            return None
        given, own = read_crs(source), read_crs(domain.crs, "the CRS of the map")
        if given.equals(own, ignore_axis_order=True):
            return None
        found = Operation.between(given, own, area_of(domain.crs, domain.bounds))
        if "ballpark" in found.projection.lower():
            said = f"coordinates are projected to {domain.crs} by {found.projection!r}, which ignores the shift between"
            warnings.warn(f"{said} the two datums: places may be off by 100 m or more", DeltaHistWarning, stacklevel=2)
        if found.projection == "unknown":  # an unregistered CRS has no name
            found = replace(found, projection=own.coordinate_operation.method_name)
        return found

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def off(domain: Domain, target: Any) -> Operation:
        """Return the operation from the map to another CRS. Use it for public coordinates only."""
        return Operation.between(read_crs(domain.crs), read_crs(target), area_of(domain.crs, domain.bounds))

    def __call__(self, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Convert columns x and y. Coordinates become infinite where the operation is undefined."""
        return [np.asarray(c) for c in self.transformer.transform(*columns)]

    def back(self, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Apply the inverse operation to columns x and y."""
        return [np.asarray(c) for c in self.transformer.transform(*columns, direction="INVERSE")]

    def shapes(self, shapes: NDArray[Any]) -> NDArray[Any]:
        """Convert geometries (m,). A geometry becomes None if one of its vertices cannot be projected."""
        moved = shapely.transform(shapes, lambda v: np.column_stack(self(v[:, 0], v[:, 1])))
        places, owner = shapely.get_coordinates(moved, return_index=True)
        moved[owner[~np.isfinite(places).all(axis=1)]] = None
        return moved


@functools.lru_cache(maxsize=64)
def scales(crs: str, bounds: tuple[float, ...]) -> tuple[float, float]:
    """Return the smallest and largest ratios of map units to ground metres, in any direction, over a box.

    Raises InputError unless the CRS is projected, is defined everywhere in the box, and has no seam there.
    """
    system = read_crs(crs)
    planar = system.is_projected and len(bounds) == 4
    least, largest = _measure_scales(system, crs, bounds) if planar else (0.0, math.inf)
    if largest >= 100:
        raise InputError(
            f"bounds are {bounds} in {crs}: they must be west, south, east, north in a projected CRS that, within "
            "these bounds, is defined everywhere, has a scale below 100, and has no seam such as the antimeridian "
            "(Domain.from_degrees chooses a CRS for bounds in degrees)"
        )
    return least, largest


def _measure_scales(system: Any, crs: str, bounds: tuple[float, ...]) -> tuple[float, float]:
    """Return the extremes of the scale over a box. The largest is infinite if the CRS is undefined or has a seam there.

    At each point of a lattice over the box, the derivatives of the position in space with respect to x and y form a
    3 × 2 matrix. The inverses of the matrix's singular values are the extremes of the local scale. PROJ's own scale
    factors are not used, because some assume a sphere. The results are rounded outwards to seven decimals.
    """
    to_ground = Operation.between(system, read_crs(LONGITUDE_LATITUDE), area_of(crs, bounds))
    x, y = np.meshgrid(*np.linspace(bounds[:2], bounds[2:], 65).T, indexing="ij")
    lon, lat = to_ground(x, y)
    # The step is wide enough for accurate differences, and narrow enough for the scale to be nearly constant.
    h = max(max(map(abs, bounds)) * 1e-6, 1e-3)
    cartesian = "+proj=pipeline +step +proj=unitconvert +xy_in=deg +xy_out=rad +step +proj=cart +ellps=WGS84"
    to_space = pyproj.Transformer.from_pipeline(cartesian)

    def in_space(dx: float, dy: float) -> NDArray[np.float64]:
        lon, lat = to_ground(x + dx, y + dy)
        return np.stack(to_space.transform(lon, lat, np.zeros_like(lon)), axis=-1)

    with np.errstate(invalid="ignore"):  # coordinates are infinite where the CRS is undefined
        ground = np.stack([in_space(h, 0) - in_space(-h, 0), in_space(0, h) - in_space(0, -h)], axis=-1) / (2 * h)
    # Latitudes lose half of their digits at a pole, so skip points within a thousand steps of a pole.
    sure = 1e3 * h < np.hypot(*in_space(0, 0).T[:2]).T
    singular = np.linalg.svd(ground[np.isfinite(ground).all(axis=(-1, -2)) & sure], compute_uv=False)
    most, least = float(singular[..., 0].max(initial=0.0)), float(singular[..., -1].min(initial=math.inf))
    if not np.isfinite([lon, lat]).all() or not 0 < least < math.inf:
        return 0.0, math.inf
    largest = math.ceil(1e7 / least) / 1e7
    # Bounds given in the order west, east, south, north are often valid, but far outside the area of use.
    west, east, south, north = bounds
    mixed = west < east and south < north and _is_used(crs, (west, south, east, north)) and not _is_used(crs, bounds)
    # The map distance between two points is at most the largest scale times their geodesic's length, if the geodesic
    # stays on the map. If two points on the rim are three times as far apart, the map touches a seam from both sides.
    x, y, lon, lat = (np.concatenate([a[0], a[-1], a[:, 0], a[:, -1]])[::4] for a in (x, y, lon, lat))
    i, j = np.triu_indices(len(x), 1)
    metres = np.asarray(pyproj.Geod(ellps="WGS84").inv(lon[i], lat[i], lon[j], lat[j])[2])
    on_map = np.hypot(x[i] - x[j], y[i] - y[j])
    # Points beyond a seam return to the opposite side of the map when they are projected back.
    again = to_ground.back(lon, lat)
    beyond = (np.hypot(again[0] - x, again[1] - y) > 1e-3 * on_map.max()).any()
    # The rim contains each corner twice, so ignore distances below a millionth of the box.
    torn = mixed or beyond or ((on_map - 1e-6 * on_map.max()) / largest > 3 * metres).any()
    return math.floor(1e7 / most) / 1e7, math.inf if torn else largest


def _is_used(crs: str, box: tuple[float, ...]) -> bool:
    area, use = area_of(crs, box), read_crs(crs).area_of_use
    if area is None or use is None:
        return False
    reached = (area[0] - use.west) % 360 + (area[2] - area[0]) % 360
    return use.south <= area[1] and area[3] <= use.north and bool(reached <= width_in_degrees(use.west, use.east))


def describe_map(domain: Domain) -> str:
    """Describe a domain's map by the name of its CRS and the range of its scale."""
    crs = read_crs(domain.crs)
    name = crs.name
    if name == "unknown" and crs.coordinate_operation is not None:  # an unregistered CRS
        name = crs.coordinate_operation.method_name
    least, largest = scales(str(domain.crs), domain.bounds)
    return f"{name}; a metre on the ground is {least:.5g} to {largest:.5g} {unit_of(domain.crs)} of the map"


def metres_per_unit(crs: str | None) -> float:
    """Return the length of a CRS's unit in metres, such as 0.3048 for feet."""
    return float(read_crs(crs).axis_info[0].unit_conversion_factor)


def unit_of(crs: str | None) -> str:
    """Return "m" for a CRS in metres, and the unit's name for any other CRS."""
    return "m" if metres_per_unit(crs) == 1 else str(read_crs(crs).axis_info[0].unit_name)


def looks_like_degrees(box: Sequence[float]) -> bool:
    """Return True if W, S, E, N could be longitudes (within ±360) and latitudes."""
    return len(box) == 4 and max(map(abs, box[::2])) <= 360 and max(map(abs, box[1::2])) <= 90


def width_in_degrees(west: Any, east: Any) -> Any:
    """Return the width in degrees from west to east, modulo 360. Equal longitudes mean the whole circle."""
    return 360 - (west - east) % 360


def are_degrees(box: Sequence[float], *columns: str | None) -> bool:
    """Guess whether W, S, E, N without a CRS are longitudes and latitudes rather than coordinates on a plane.

    Coordinates count as degrees if they are in range, and either all columns have names such as "lon" or the box does
    not contain the origin. In degrees, the origin is in the ocean, but on most planes it is a corner or the centre.
    """
    angles = {"lon", "lng", "long", "longitude", "lat", "latitude"}
    named = all(str(name).lower() in angles for name in columns)
    return looks_like_degrees(box) and (named or not (box[0] <= 0 <= box[2] and box[1] <= 0 <= box[3]))


def extent_on(bounds: Sequence[float], crs: str) -> tuple[float, ...]:
    """Return the box on a map that covers bounds (W, S, E, N) in degrees.

    If west exceeds east, the bounds cross the antimeridian. Rounding outwards adds at most 0.2% of the longer side.
    """
    west, south, east, north = _check_degrees(bounds)
    onto = Operation.between(read_crs(LONGITUDE_LATITUDE), read_crs(crs), (west, south, east, north))
    east = west + width_in_degrees(west, east)
    rim = shapely.segmentize(shapely.box(west, south, east, north), max(east - west, north - south) / 1000)
    found = np.array(onto(*shapely.get_coordinates(rim).T))
    if not np.isfinite(found).all():
        raise InputError(f"bounds are {tuple(bounds)} in degrees: they must lie where {crs} is defined")
    low, high = found.min(axis=1), found.max(axis=1)
    unit = 10.0 ** math.floor(math.log10((high - low).max() / 1000))
    corners = [*np.floor(low / unit), *np.ceil(high / unit)]
    # Division by a whole number gives exact decimals; multiplication by 0.1 would not.
    return tuple(float(c * unit if unit >= 1 else c / round(1 / unit)) for c in corners)


def _check_degrees(bounds: Sequence[float]) -> tuple[float, ...]:
    """Check bounds in degrees, and return them with longitudes from -180 to 180."""
    box = tuple(float(check_finite(bounds=b)) for b in bounds)
    # If west exceeds east, bounds cross the antimeridian. Such bounds are reversed if they span over 180 degrees.
    valid = looks_like_degrees(box) and box[1] < box[3] and (box[0] < box[2] or 0 < (box[2] - box[0]) % 360 <= 180)
    # Two narrow ranges far apart indicate the order west, east, south, north.
    if not valid or (max(gaps := (box[1] - box[0], box[3] - box[2])) < 2 and min(gaps) > 0 and box[2] - box[0] > 20):
        raise InputError(
            f"bounds are {tuple(bounds)}: they must be west, south, east, north in degrees, with south below north, "
            "west different from east, longitudes within ±360 and latitudes within ±90"
        )
    west, east = (lon if abs(lon) <= 180 else (lon + 180) % 360 - 180 for lon in box[::2])
    return west, box[1], east, box[3]


def extent_of(bounds: Sequence[float]) -> tuple[tuple[float, ...], str]:
    """Choose a map for bounds in degrees, and return the map's box (`extent_on`) and CRS.

    The map is the UTM zone that contains the bounds, or else Lambert's equal-area projection centred on them.

    >>> extent_of((-74.3, 40.45, -73.6, 40.95))[1], extent_of((170, -50, -170, -30))[1]
    ('EPSG:32618', '+proj=laea +lat_0=-39.7 +lon_0=180 +datum=WGS84 +units=m')
    """
    west, south, east, north = box = _check_degrees(bounds)
    width = width_in_degrees(west, east)
    for zone in query_utm_crs_info("WGS 84", AreaOfInterest(*box), contains=True) if width < 6 else ():
        return extent_on(box, f"EPSG:{zone.code}"), f"EPSG:{zone.code}"
    middle = 180 - (180 - west - width / 2) % 360
    # Find the latitude of the bounds' centre of mass on a sphere.
    low, high, half = np.radians([south, north, width / 2])
    up = half * (math.sin(high) ** 2 - math.sin(low) ** 2) / 2
    out = math.sin(half) * (high - low + math.sin(high) * math.cos(high) - math.sin(low) * math.cos(low)) / 2
    latitude = round(math.degrees(math.atan2(up, max(out, 0.0))), 1) + 0.0  # turns -0.0 into 0.0
    crs = f"+proj=laea +lat_0={latitude:g} +lon_0={middle:.10g} +datum=WGS84 +units=m"
    return extent_on(box, crs), crs
