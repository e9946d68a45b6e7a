"""Bounds in degrees: which map suits them, and the box on it that covers them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deltahist.domain.crs import check_projected, refuse_seams, scales, utm_code
from deltahist.domain.operations import read_crs, single
from deltahist.errors import InputError, finite

#: Bounds are in longitude and latitude of this.
_DEGREES = "EPSG:4326"
#: What columns of degrees are called.
_ANGLES = {"lon", "lng", "long", "longitude", "lat", "latitude"}
#: Latitudes between which there are UTM zones.
_UTM_LATITUDES = (-80.0, 84.0)
#: Maps that everybody knows are taken where the largest scale over the bounds is at most so many times the smallest.
_UTM_DISTORTION, _EUROPE_DISTORTION = 1.01, 1.15
_EUROPE, _WORLD = "EPSG:3035", "EPSG:6933"
#: Places on each edge of the bounds that are projected.
_PLACES = 257
#: Boxes are extended to multiples of a power of ten that is at most this part of their longer side.
_ROUND = 1e-3
#: Part of the sides by which a map must go on beyond the box: cells are whole.
_ROOM = 0.05


@dataclass(frozen=True)
class Extent:
    """A box on a map.

    Parameters
    ----------
    bounds : west, south, east, north in units of the CRS.
    crs : a projected CRS.
    """

    bounds: tuple[float, ...]
    crs: str

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def low(self) -> tuple[float, ...]:
        """Lower corner."""
        return self.bounds[:2]

    @property
    def high(self) -> tuple[float, ...]:
        """Upper corner."""
        return self.bounds[2:]

    @functools.cached_property
    def _scales(self) -> tuple[float, float]:
        return scales(self)

    @property
    def scale(self) -> float:
        """Largest ratio of map length to ground metres."""
        return self._scales[1]

    @property
    def distortion(self) -> float:
        """How many times the smallest scale the largest one is."""
        least, largest = self._scales
        return largest / least if least > 0 else math.inf


def looks_like_degrees(box: Sequence[float]) -> bool:
    """Whether W,S,E,N could be longitudes and latitudes."""
    return len(box) == 4 and max(map(abs, box[::2])) <= 180 and max(map(abs, box[1::2])) <= 90


def are_degrees(box: Sequence[float], *columns: str | None) -> bool:
    """Whether W,S,E,N without a CRS are longitudes and latitudes rather than numbers of some plane.

    They must look like it, and either all columns be called so, or the box not hold the origin: that is a place in the
    ocean, but a corner or the middle of most planes.
    """
    if not looks_like_degrees(box):
        return False
    named = all(str(name).lower() in _ANGLES for name in columns)
    return named or not (box[0] <= 0 <= box[2] and box[1] <= 0 <= box[3])


def extent_on(bounds: Sequence[float], crs: str) -> Extent:
    """The box on a map that covers bounds in degrees.

    The edges are projected at many places; what they may bulge between two of them is added, and the box is
    extended outwards to round figures, by at most a five-hundredth of its longer side.

    Parameters
    ----------
    bounds : west, south, east, north in degrees of WGS 84; west above east means across the antimeridian.
    crs : a projected CRS.

    Raises
    ------
    InputError
        If the bounds are not degrees, or some of them have no place on the map.

    >>> extent_on((-74.3, 40.45, -73.6, 40.95), "EPSG:32618").bounds
    (558910.0, 4477940.0, 618720.0, 4534160.0)
    """
    west, south, east, north = _degrees(bounds)
    along, level = np.linspace(0.0, 1.0, _PLACES), np.ones(_PLACES)
    lon, lat = west + along * ((east - west) % 360 or 360.0), south + along * (north - south)
    edges = [(lon, south * level), (lon, north * level), (lon[0] * level, lat), (lon[-1] * level, lat)]
    operation = single(read_crs(_DEGREES), read_crs(crs), (west, south, east, north))
    places = np.array([operation.transform(*edge) for edge in edges])  # edge, axis, place
    if not np.isfinite(places).all():
        raise InputError(
            f"bounds are {tuple(bounds)} in degrees: they leave the area where {crs} is defined; choose a projection "
            "made for the region"
        )
    # A curve leaves the chord between two places by at most an eighth of its second difference; twice that is taken.
    bulge = np.abs(np.diff(places, 2, axis=-1)).max(axis=(0, 2)) / 4
    low, high = places.min(axis=(0, 2)) - bulge, places.max(axis=(0, 2)) + bulge
    unit = 10.0 ** math.floor(math.log10(float((high - low).max()) * _ROUND))
    corners = [*np.floor(low / unit), *np.ceil(high / unit)]
    # Dividing by a whole number gives the decimals that were meant.
    return Extent(tuple(float(c * unit if unit >= 1 else c / round(1 / unit)) for c in corners), crs)


def extent_of(bounds: Sequence[float]) -> Extent:
    """The map that suits bounds in degrees, and the box on it that covers them.

    The first of these that holds them in one piece:

    1. the UTM zone of their middle, if the largest scale over the box is at most 1.01 times the smallest;
    2. EPSG:3035, inside Europe, if it is at most 1.15 times;
    3. of the equal-area maps (Lambert's azimuthal centred on the bounds, the world's cylindrical one EPSG:6933, the
       same centred on their middle) the one with the least ratio.

    Parameters
    ----------
    bounds : west, south, east, north in degrees of WGS 84; west above east means across the antimeridian.

    Raises
    ------
    InputError
        If the bounds are not degrees, or no map holds them in one piece: so it is for the whole earth.

    >>> extent_of((-74.3, 40.45, -73.6, 40.95)).crs, extent_of((-10, 36, 30, 60)).crs
    ('EPSG:32618', 'EPSG:3035')
    >>> extent_of((170, -50, -170, -30)).crs
    '+proj=laea +lat_0=-39.7 +lon_0=180 +datum=WGS84 +units=m'
    """
    west, south, east, north = _degrees(bounds)
    width = (east - west) % 360 or 360.0
    middle = 180 - (180 - west - width / 2) % 360  # from -180, not included, to 180
    if _UTM_LATITUDES[0] <= south and north <= _UTM_LATITUDES[1]:
        zone = _suiting(bounds, utm_code(middle, (south + north) / 2))
        if zone is not None and zone.distortion <= _UTM_DISTORTION:
            return zone
    home = read_crs(_EUROPE).area_of_use
    if home.west <= west < east <= home.east and home.south <= south and north <= home.north:
        europe = _suiting(bounds, _EUROPE)
        if europe is not None and europe.distortion <= _EUROPE_DISTORTION:
            return europe
    meridian = f"+lon_0={middle:.10g} +datum=WGS84 +units=m"
    maps = [
        f"+proj=laea +lat_0={_centre(south, north, width):g} {meridian}",
        _WORLD,
        f"+proj=cea +lat_ts=30 {meridian}",
    ]
    found = [extent for crs in maps if (extent := _suiting(bounds, crs)) is not None]
    if not found:
        raise InputError(
            f"bounds are {tuple(bounds)} in degrees: no map holds so much of the earth in one piece, somewhere it "
            "tears apart what is near on the ground; leave out an ocean (up to 240 degrees of longitude fit, "
            "such as -100,-50,140,65, or most of a hemisphere, such as -180,20,180,90), or make two maps with half of "
            "the budget each"
        )
    return min(found, key=lambda extent: extent.distortion)


def _degrees(bounds: Sequence[float]) -> tuple[float, float, float, float]:
    """Bounds that are longitudes and latitudes; InputError if they are not."""
    said, box = f"bounds are {tuple(bounds)}", [float(finite(bounds=b)) for b in bounds]
    if not looks_like_degrees(box):
        raise InputError(
            f"{said}: as degrees they must be west, south, east, north, longitudes within 180 and latitudes within 90"
        )
    west, south, east, north = box
    if not south < north or west == east:
        raise InputError(
            f"{said}: south must be less than north, and west other than east (the order is west, south, east, north)"
        )
    return west, south, east, north


def _suiting(bounds: Sequence[float], crs: str) -> Extent | None:
    """The extent on a map if the map is there in one piece, with room for whole cells; else None."""
    try:
        extent = extent_on(bounds, crs)
        room = _ROOM * np.subtract(extent.high, extent.low)
        wider = Extent((*(extent.low - room).tolist(), *(extent.high + room).tolist()), crs)
        check_projected(wider)
        refuse_seams(wider)
    except InputError:
        return None
    return extent if extent.distortion < math.inf else None


def _centre(south: float, north: float, width: float) -> float:
    """Latitude of the centre of mass of bounds on a sphere, on their middle meridian, to a tenth of a degree."""
    low, high, half = np.radians([south, north, width / 2])
    # Integrals over the bounds of the directions to the pole and to the equator.
    up = half * (math.sin(high) ** 2 - math.sin(low) ** 2) / 2
    out = math.sin(half) * (high - low + math.sin(high) * math.cos(high) - math.sin(low) * math.cos(low)) / 2
    return round(math.degrees(math.atan2(up, max(out, 0.0))), 1) + 0.0  # no minus before a zero
