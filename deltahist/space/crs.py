"""Maps: their scale and their seams over a box, and the map that suits bounds in degrees."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, finite
from deltahist.space.operations import lattice_of, off, read_crs, single

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: Points per side at which a projection is examined; scale factors are smooth, extremes lie on the rim.
_SAMPLES = 65
#: Half-axis in metres and flattening of the ellipsoid on which ground metres are counted, WGS 84.
_EQUATOR, _FLATTENING = 6378137.0, 1 / 298.257223563
#: Bounds are in longitude and latitude of this.
_DEGREES = "EPSG:4326"
#: Usual names of columns of degrees.
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
    """A box, (west, south, east, north), on a map with a projected CRS."""

    bounds: tuple[float, ...]
    crs: str
    ndim = 2

    @property
    def low(self) -> tuple[float, ...]:
        """Lower corner."""
        return self.bounds[:2]

    @property
    def high(self) -> tuple[float, ...]:
        """Upper corner."""
        return self.bounds[2:]

    @functools.cached_property
    def distortion(self) -> float:
        """How many times the smallest scale the largest one is."""
        least, largest = scales(self)
        return largest / least if least > 0 else math.inf


def utm_code(lon: float, lat: float) -> str:
    """Return the EPSG code of the UTM zone of a position, as a suggestion for a projection.

    >>> utm_code(-73.99, 40.73)
    'EPSG:32618'
    """
    zone = min(int((lon + 180) // 6) + 1, 60)
    return f"EPSG:{(32600 if lat >= 0 else 32700) + zone}"


# --- a map over a box ---------------------------------------------------------------------------------------


def check_map(domain: Domain | Extent) -> float:
    """Return the largest ratio of map units to ground metres, in any direction, over a domain.

    Raises InputError unless its CRS is projected, horizontal, and unbroken over the domain: places near each other on
    the ground must not lie far apart on the map.
    """
    crs = read_crs(str(domain.crs))
    if crs.is_geographic:
        raise InputError(
            f"crs is {domain.crs!r}: degrees are not lengths, so a domain needs a projected CRS; "
            "Domain.from_degrees chooses one for bounds in degrees, or give the bounds in the metres of one"
        )
    if not crs.is_projected or domain.ndim != 2:
        raise InputError(f"crs is {domain.crs!r}: it must be a projected CRS, on a 2-D domain")
    box = domain.crs, domain.low, domain.high
    if not _on_earth(*box):
        raise InputError(
            f"bounds are {domain.bounds}: they leave the area where {domain.crs} is defined "
            "(are they in metres of that CRS, in the order west, south, east, north?)"
        )
    largest = _scales(*box)[1]
    if not largest < 100:
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: lengths on this map are up to {largest:.3g} times "
            "those on the ground; choose a projection made for the region"
        )
    # Between two places the map's length is at most the largest scale times the ground's along a geodesic that
    # stays inside. Three times as much between places on the rim means a seam that is reached from both sides.
    if _stretched(*box) > 3 * largest:
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: the domain reaches the antimeridian (or another seam of the "
            "map) from both sides, so that points near each other on the ground lie far apart on the map; "
            "use two domains or another projection"
        )
    return largest


def scales(domain: Domain | Extent) -> tuple[float, float]:
    """Return the smallest and largest ratio of map units to ground metres, in any direction, over the domain's bounds.

    At each of a lattice of places that includes the rim, the derivatives along the map's axes of the place in space,
    in metres from the centre of the ellipsoid, make a 3 × 2 matrix; the inverses of its singular values are the
    extremes of the local scale. (Some projections state the factors of a sphere instead.)
    Rounded outwards in the seventh digit; (0, inf) where there are none.
    """
    return _scales(domain.crs, domain.low, domain.high)


# Kept: cells of every size lie on the same few boxes.
@functools.lru_cache(maxsize=64)
def _on_earth(crs: str | None, low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    """Return whether all places of a box have a position."""
    places = off(crs, low, high, _DEGREES)(*lattice_of(low, high, _SAMPLES))
    return bool(np.isfinite(places).all())


@functools.lru_cache(maxsize=64)
def _stretched(crs: str | None, low: tuple[float, ...], high: tuple[float, ...]) -> float:
    """Return the largest ratio of the map's length to the ground's between two places on the rim."""
    import pyproj

    to_ground = off(crs, low, high, _DEGREES)
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


@functools.lru_cache(maxsize=64)
def _scales(crs: str | None, low: tuple[float, ...], high: tuple[float, ...]) -> tuple[float, float]:
    to_ground = off(crs, low, high, _DEGREES)
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


def _in_space(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return metres (..., 3) from the centre of the ellipsoid, which have no seams."""
    flat = _FLATTENING * (2 - _FLATTENING)
    with np.errstate(invalid="ignore"):  # places that are not on the map
        east, north = np.radians(lon), np.radians(lat)
        radius = _EQUATOR / np.sqrt(1 - flat * np.sin(north) ** 2)
        out = radius * np.cos(north)
        return np.stack(
            [out * np.cos(east), out * np.sin(east), (1 - flat) * radius * np.sin(north)], axis=-1
        )


def words(domain: Domain | Extent) -> str:
    """Describe a domain's map in words: the name of its CRS, and how its lengths compare with the ground's.

    >>> from deltahist.space.domain import Domain
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
    """Return the map's metres in one unit of a CRS's axes, such as 0.3048 for feet."""
    return float(read_crs(crs).axis_info[0].unit_conversion_factor)


def unit_of(crs: str | None) -> str:
    """Return the unit of a CRS's axes: "m", or its name."""
    return "m" if metres_per_unit(crs) == 1 else str(read_crs(crs).axis_info[0].unit_name)


# --- bounds in degrees --------------------------------------------------------------------------------------


def looks_like_degrees(box: Sequence[float]) -> bool:
    """Return whether W,S,E,N could be longitudes and latitudes."""
    return len(box) == 4 and max(map(abs, box[::2])) <= 180 and max(map(abs, box[1::2])) <= 90


def are_degrees(box: Sequence[float], *columns: str | None) -> bool:
    """Return whether W,S,E,N without a CRS are longitudes and latitudes rather than numbers of some plane.

    They must look like it, and either all columns be called so, or the box not hold the origin: that is a place in the
    ocean, but a corner or the middle of most planes.
    """
    if not looks_like_degrees(box):
        return False
    named = all(str(name).lower() in _ANGLES for name in columns)
    return named or not (box[0] <= 0 <= box[2] and box[1] <= 0 <= box[3])


def extent_on(bounds: Sequence[float], crs: str) -> Extent:
    """Return the box on a map that covers bounds (W, S, E, N) in degrees; west above east crosses the antimeridian.

    The edges are projected at many places; what they may bulge between two of them is added, and the box is extended
    outwards to round figures, by at most a five-hundredth of its longer side. Raises InputError if the bounds are not
    degrees, or some of them have no place on the map.

    >>> extent_on((-74.3, 40.45, -73.6, 40.95), "EPSG:32618").bounds
    (558910.0, 4477940.0, 618720.0, 4534160.0)
    """
    west, south, east, north = _read_degrees(bounds)
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
    """Choose the map that suits bounds in degrees, as of `extent_on`, and return the box on it that covers them.

    The first of these that holds them in one piece:

    1. the UTM zone of their middle, if the largest scale over the box is at most 1.01 times the smallest;
    2. EPSG:3035, inside Europe, if it is at most 1.15 times;
    3. of the equal-area maps (Lambert's azimuthal centred on the bounds, the world's cylindrical one EPSG:6933, the
       same centred on their middle) the one with the least ratio.

    Raises InputError if the bounds are not degrees, or no map holds them in one piece: so it is for the whole earth.

    >>> extent_of((-74.3, 40.45, -73.6, 40.95)).crs, extent_of((-10, 36, 30, 60)).crs
    ('EPSG:32618', 'EPSG:3035')
    >>> extent_of((170, -50, -170, -30)).crs
    '+proj=laea +lat_0=-39.7 +lon_0=180 +datum=WGS84 +units=m'
    """
    west, south, east, north = _read_degrees(bounds)
    width = (east - west) % 360 or 360.0
    middle = 180 - (180 - west - width / 2) % 360  # from -180, not included, to 180
    if _UTM_LATITUDES[0] <= south and north <= _UTM_LATITUDES[1]:
        zone = _suitable(bounds, utm_code(middle, (south + north) / 2))
        if zone is not None and zone.distortion <= _UTM_DISTORTION:
            return zone
    home = read_crs(_EUROPE).area_of_use
    if home.west <= west < east <= home.east and home.south <= south and north <= home.north:
        europe = _suitable(bounds, _EUROPE)
        if europe is not None and europe.distortion <= _EUROPE_DISTORTION:
            return europe
    meridian = f"+lon_0={middle:.10g} +datum=WGS84 +units=m"
    maps = [
        f"+proj=laea +lat_0={_centre(south, north, width):g} {meridian}",
        _WORLD,
        f"+proj=cea +lat_ts=30 {meridian}",
    ]
    found = [extent for crs in maps if (extent := _suitable(bounds, crs)) is not None]
    if not found:
        raise InputError(
            f"bounds are {tuple(bounds)} in degrees: no map holds so much of the earth in one piece, somewhere it "
            "tears apart what is near on the ground; leave out an ocean (up to 240 degrees of longitude fit, "
            "such as -100,-50,140,65, or most of a hemisphere, such as -180,20,180,90), or make two maps with half of "
            "the budget each"
        )
    return min(found, key=lambda extent: extent.distortion)


def _read_degrees(bounds: Sequence[float]) -> tuple[float, ...]:
    """Return bounds that are longitudes and latitudes; raise InputError if they are not."""
    box = tuple(float(finite(bounds=b)) for b in bounds)
    if not looks_like_degrees(box) or not box[1] < box[3] or box[0] == box[2]:
        raise InputError(
            f"bounds are {tuple(bounds)}: as degrees they must be west, south, east, north, longitudes within 180 and "
            "latitudes within 90, south must be less than north, and west other than east"
        )
    return box


def _suitable(bounds: Sequence[float], crs: str) -> Extent | None:
    """Return the extent on a map if it is there in one piece, with room for whole cells; else None."""
    try:
        extent = extent_on(bounds, crs)
        room = _ROOM * np.subtract(extent.high, extent.low)
        check_map(Extent((*(extent.low - room).tolist(), *(extent.high + room).tolist()), crs))
    except InputError:
        return None
    return extent if extent.distortion < math.inf else None


def _centre(south: float, north: float, width: float) -> float:
    """Return the latitude of the centre of mass of bounds on a sphere, to a tenth of a degree."""
    low, high, half = np.radians([south, north, width / 2])
    # Integrals over the bounds of the directions to the pole and to the equator.
    up = half * (math.sin(high) ** 2 - math.sin(low) ** 2) / 2
    out = math.sin(half) * (high - low + math.sin(high) * math.cos(high) - math.sin(low) * math.cos(low)) / 2
    return round(math.degrees(math.atan2(up, max(out, 0.0))), 1) + 0.0  # no minus before a zero
