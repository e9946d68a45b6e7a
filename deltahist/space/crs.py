"""Coordinate systems: operations to a map, its scale and seams over a box, and the map that suits bounds in degrees.

Between two coordinate systems there may be many operations, each for an area of its own. Where a library chooses
one for each point, two points that are a hand apart can land hundreds of metres apart. Here one is taken for all, and
none with a grid of corrections, at whose edges coordinates jump.
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import DeltaHistWarning, InputError, finite

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: Coordinates x and y.
Places: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
#: Points per side at which a projection is examined; scale factors are smooth, extremes lie on the rim.
_SAMPLES = 65
#: Half-axis in metres and flattening of the ellipsoid on which ground metres are counted, WGS 84.
_EQUATOR, _FLATTENING = 6378137.0, 1 / 298.257223563
#: Bounds are in longitude and latitude of this.
_DEGREES = "EPSG:4326"
#: Usual names of columns of degrees.
_ANGLES = {"lon", "lng", "long", "longitude", "lat", "latitude"}
#: The UTM zone is taken where the largest scale over the bounds is at most this many times the smallest.
_UTM_DISTORTION = 1.01
#: Boxes are extended to multiples of a power of ten that is at most this part of their longer side.
_ROUND = 1e-3
#: Part of the sides by which a map must go on beyond the box: cells are whole.
_ROOM = 0.05


class Extent(NamedTuple):
    """A box, (west, south, east, north), on a map with a projected CRS."""

    bounds: tuple[float, ...]
    crs: str


# --- one operation for all coordinates ----------------------------------------------------------------------


def read_crs(text: Any, name: str = "crs") -> Any:
    """Return the pyproj CRS of a text; raise InputError if pyproj cannot read it."""
    import pyproj

    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError:
        raise InputError(f"{name} is {text!r}: it must be a known CRS such as EPSG:32618") from None


def single(source: Any, target: Any, area: tuple[float, ...] | None) -> Any:
    """Return the pyproj transformer from a CRS to another that suits an area (W, S, E, N in degrees) best.

    Raises InputError if there is none without a grid of corrections.
    """
    from pyproj.transformer import AreaOfInterest, TransformerGroup

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a more accurate one needs grids that are not installed
        of_interest = None if area is None else AreaOfInterest(*area)
        found = TransformerGroup(source, target, always_xy=True, area_of_interest=of_interest).transformers
    for each in found:
        if not re.search(r"\b(grids|file)=", each.definition):
            return each
    raise InputError(
        f"coordinates in {source.to_string()[:60]} cannot be brought to {target.to_string()[:60]}: there is no "
        "operation between them without a grid of corrections"
    )


def area_of(crs: Any, bounds: tuple[float, ...]) -> tuple[float, float, float, float] | None:
    """Return west, south, east and north, in degrees, of a box on a map; None if they cannot be worked out."""
    import pyproj

    x, y = lattice_of(bounds[:2], bounds[2:], 9)
    # Which of several operations it is makes no difference for a rough area.
    back = pyproj.Transformer.from_crs(read_crs(crs), "EPSG:4326", always_xy=True)
    lon, lat = (np.asarray(v)[np.isfinite(v)] for v in back.transform(x, y))
    if not len(lon) or not len(lat):
        return None
    turn = degrees_east(lon, lon[0])  # a domain may lie across the antimeridian
    west, east = ((lon[0] + t + 180) % 360 - 180 for t in (turn.min(), turn.max()))
    return float(west), float(lat.min()), float(east), float(lat.max())


def degrees_east(lon: NDArray[np.float64], other: Any) -> NDArray[np.float64]:
    """Return how far east of another each longitude lies, from -180 to 180 degrees."""
    return (lon - other + 180) % 360 - 180


def lattice_of(low: ArrayLike, high: ArrayLike, number: int) -> Places:
    """Return the places of a lattice over a box, its rim included."""
    sides = (np.linspace(lo, hi, number) for lo, hi in zip(np.ravel(low), np.ravel(high), strict=True))
    x, y = np.meshgrid(*sides, indexing="ij")
    return x, y


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation between a domain's map and another CRS, for all coordinates alike.

    `projection` is its name. `transformer` is pyproj's, which can be sent to other processes.
    """

    projection: str
    transformer: Any

    @classmethod
    def between(cls, source: Any, target: Any, area: tuple[float, ...] | None) -> Operation:
        """Return the operation that `single` finds."""
        import pyproj

        found = single(source, target, area)
        # A transformer of a pipeline can be pickled.
        return cls(found.description, pyproj.Transformer.from_pipeline(found.definition))

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def onto(domain: Domain, source: Any) -> Operation | None:
        """Return the operation that brings coordinates in a CRS to the map; None if they are in the map's.

        Raises InputError if there is none.
        """
        given, own = read_crs(source), read_crs(domain.crs)
        if given.equals(own, ignore_axis_order=True):
            return None
        found = Operation.between(given, own, area_of(domain.crs, domain.bounds))
        if "ballpark" in found.projection.lower():
            warnings.warn(
                f"coordinates come to {domain.crs} by {found.projection!r}, which shifts nothing between the two "
                "datums: places may be off by a hundred metres or more",
                DeltaHistWarning,
                stacklevel=2,
            )
        if found.projection == "unknown":  # of a CRS that is not registered
            found = replace(found, projection=own.coordinate_operation.method_name)
        return found

    @staticmethod
    def off(domain: Domain, target: Any) -> Operation:
        """Return the operation from the map to another CRS, for public coordinates."""
        return off(domain.crs, domain.bounds, target)

    def __call__(self, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return coordinates x and y after the operation; infinite where there are none."""
        return [np.asarray(c) for c in self.transformer.transform(*columns)]

    def back(self, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return coordinates x and y before the operation."""
        return [np.asarray(c) for c in self.transformer.transform(*columns, direction="INVERSE")]

    def shapes(self, shapes: NDArray[Any]) -> NDArray[Any]:
        """Return geometries (m,) after the operation; None where there was none, or a vertex has no place there."""
        import shapely

        moved = shapely.transform(shapes, lambda v: np.column_stack(self(v[:, 0], v[:, 1])))
        places, owner = shapely.get_coordinates(moved, return_index=True)
        moved[owner[~np.isfinite(places).all(axis=1)]] = None
        return moved


@functools.lru_cache(maxsize=64)
def off(crs: Any, bounds: tuple[float, ...], target: Any) -> Operation:
    """Return `Operation.off`, kept for the boxes asked last."""
    return Operation.between(read_crs(crs), read_crs(target), area_of(crs, bounds))


# --- a map over a box ---------------------------------------------------------------------------------------


# Kept: cells of every size lie on the same few boxes.
@functools.lru_cache(maxsize=64)
def scales(crs: str, bounds: tuple[float, ...]) -> tuple[float, float]:
    """Return the smallest and largest ratio of map units to ground metres, in any direction, over a box.

    At each of a lattice of places that includes the rim, the derivatives along the map's axes of the place in space,
    in metres from the centre of the ellipsoid, make a 3 × 2 matrix; the inverses of its singular values are the
    extremes of the local scale. (Some projections state the factors of a sphere instead.)
    Rounded outwards in the seventh digit.

    Raises InputError unless the CRS is projected, horizontal, and unbroken over the box: places near each other on
    the ground must not lie far apart on the map.
    """
    import pyproj

    system = read_crs(crs)
    if system.is_geographic:
        raise InputError(
            f"crs is {crs!r}: degrees are not lengths, so a domain needs a projected CRS; "
            "Domain.from_degrees chooses one for bounds in degrees, or give the bounds in the metres of one"
        )
    if not system.is_projected or len(bounds) != 4:
        raise InputError(f"crs is {crs!r}: it must be a projected CRS, on a 2-D domain")
    to_ground = off(crs, bounds, _DEGREES)
    x, y = lattice_of(bounds[:2], bounds[2:], _SAMPLES)
    lon, lat = to_ground(x, y)
    if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
        raise InputError(
            f"bounds are {bounds}: they leave the area where {crs} is defined "
            "(are they in metres of that CRS, in the order west, south, east, north?)"
        )
    # Wide enough that positions keep their digits, narrow enough that scales do not change.
    h = max(max(map(abs, bounds)) * 1e-6, 1e-3)
    ahead = (_in_space(*to_ground(x + dx, y + dy)) for dx, dy in ((h, 0.0), (0.0, h)))
    behind = (_in_space(*to_ground(x - dx, y - dy)) for dx, dy in ((h, 0.0), (0.0, h)))
    ground = np.stack([(a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)], axis=-1)
    # Latitudes lose half of their digits at a pole; places a little further off stand for it.
    sure = _EQUATOR * np.cos(np.radians(lat)) > 1e3 * h
    singular = np.linalg.svd(ground[np.isfinite(ground).all(axis=(-1, -2)) & sure], compute_uv=False)
    most, least = float(singular[..., 0].max(initial=0.0)), float(singular[..., -1].min(initial=math.inf))
    largest = math.ceil(1e7 / least) / 1e7 if 0 < least < math.inf else math.inf
    if not largest < 100:
        raise InputError(
            f"bounds are {bounds} in {crs}: lengths on this map are up to {largest:.3g} times "
            "those on the ground; choose a projection made for the region"
        )
    # Between two places the map's length is at most the largest scale times the ground's along a geodesic that
    # stays inside. Three times as much between places on the rim means a seam that is reached from both sides.
    x, y, lon, lat = (np.concatenate([a[0], a[-1], a[:, 0], a[:, -1]])[::4] for a in (x, y, lon, lat))
    i, j = np.triu_indices(len(x), 1)
    metres = np.asarray(pyproj.Geod(ellps="WGS84").inv(lon[i], lat[i], lon[j], lat[j])[2])
    on_map = np.hypot(x[i] - x[j], y[i] - y[j])
    # Beyond a seam the map goes on, but no position is ever drawn there: it comes back on the other side.
    again = to_ground.back(lon, lat)
    beyond = (np.hypot(again[0] - x, again[1] - y) > 1e-3 * on_map.max()).any()
    # Corners stand on the rim twice: a millionth of the box is rounding.
    if beyond or (on_map - 1e-6 * on_map.max() > 3 * largest * metres).any():
        raise InputError(
            f"bounds are {bounds} in {crs}: the domain reaches the antimeridian (or another seam of the "
            "map) from both sides, so that points near each other on the ground lie far apart on the map; "
            "use two domains or another projection"
        )
    return math.floor(1e7 / most) / 1e7, largest


def _in_space(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return metres (..., 3) from the centre of the ellipsoid, which have no seams."""
    flat = _FLATTENING * (2 - _FLATTENING)
    with np.errstate(invalid="ignore"):  # places that are not on the map
        east, north = np.radians(lon), np.radians(lat)
        radius = _EQUATOR / np.sqrt(1 - flat * np.sin(north) ** 2)
        out = radius * np.cos(north)
        return np.stack([out * np.cos(east), out * np.sin(east), (1 - flat) * radius * np.sin(north)], axis=-1)


def words(domain: Domain) -> str:
    """Describe a domain's map in words: the name of its CRS, and how its lengths compare with the ground's.

    >>> from deltahist.space.domain import Domain
    >>> words(Domain((560_000, 4_480_000, 610_000, 4_530_000), (50, 50), "EPSG:32618"))
    'WGS 84 / UTM zone 18N; a metre on the ground is 0.99964 to 0.99975 m of the map'
    """
    crs = read_crs(domain.crs)
    name = crs.name
    if name == "unknown" and crs.coordinate_operation is not None:  # made up, not registered
        name = crs.coordinate_operation.method_name
    least, largest = scales(str(domain.crs), domain.bounds)
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

    It is extended outwards to round figures, by at most a five-hundredth of its longer side. Raises InputError if the
    bounds are not degrees, or some of them have no place on the map.

    >>> extent_on((-74.3, 40.45, -73.6, 40.95), "EPSG:32618").bounds
    (558910.0, 4477940.0, 618720.0, 4534160.0)
    """
    box = _check_degrees(bounds)
    west, south, east, north = box
    width, transformer = (east - west) % 360 or 360.0, single(read_crs(_DEGREES), read_crs(crs), box)
    around = (-180.0, south, 180.0, north) if width == 360 else box
    found = np.array(transformer.transform_bounds(*around, densify_pts=1000))
    inside = transformer.transform(*lattice_of((west, south), (west + width, north), 33))
    if not (np.isfinite(found).all() and np.isfinite(inside).all()):
        raise InputError(
            f"bounds are {tuple(bounds)} in degrees: they leave the area where {crs} is defined; choose a projection "
            "made for the region"
        )
    unit = 10.0 ** math.floor(math.log10((found[2:] - found[:2]).max() * _ROUND))
    corners = [*np.floor(found[:2] / unit), *np.ceil(found[2:] / unit)]
    # Dividing by a whole number gives the decimals that were meant.
    return Extent(tuple(float(c * unit if unit >= 1 else c / round(1 / unit)) for c in corners), crs)


def _check_degrees(bounds: Sequence[float]) -> tuple[float, ...]:
    """Return bounds that are longitudes and latitudes; raise InputError if they are not."""
    box = tuple(float(finite(bounds=b)) for b in bounds)
    if not looks_like_degrees(box) or not box[1] < box[3] or box[0] == box[2]:
        raise InputError(
            f"bounds are {tuple(bounds)}: as degrees they must be west, south, east, north, longitudes within 180 and "
            "latitudes within 90, south must be less than north, and west other than east"
        )
    return box


def extent_of(bounds: Sequence[float]) -> Extent:
    """Choose the map that suits bounds in degrees, as of `extent_on`, and return the box on it that covers them.

    It is the UTM zone of their middle if the largest scale over the box is at most 1.01 times the smallest. Else it is
    the one of two equal-area maps centred on the bounds, Lambert's azimuthal and cylindrical ones, that distorts less.

    Raises InputError if the bounds are not degrees, or no map holds them in one piece.

    >>> extent_of((-74.3, 40.45, -73.6, 40.95)).crs, extent_of((170, -50, -170, -30)).crs
    ('EPSG:32618', '+proj=laea +lat_0=-39.7 +lon_0=180 +datum=WGS84 +units=m')
    """
    _check_degrees(bounds)
    west, south, east, north = bounds
    width = (east - west) % 360 or 360.0
    middle = 180 - (180 - west - width / 2) % 360  # from -180, not included, to 180
    if south >= -80 and north <= 84:  # there are no UTM zones around the poles
        zone = (32600 if south + north >= 0 else 32700) + min(int((middle + 180) // 6) + 1, 60)
        distortion, extent = _with_room(bounds, f"EPSG:{zone}")
        if extent is not None and distortion <= _UTM_DISTORTION:
            return extent
    # The latitude of the centre of mass of the bounds on a sphere.
    low, high, half = np.radians([south, north, width / 2])
    up = half * (math.sin(high) ** 2 - math.sin(low) ** 2) / 2
    out = math.sin(half) * (high - low + math.sin(high) * math.cos(high) - math.sin(low) * math.cos(low)) / 2
    latitude = round(math.degrees(math.atan2(up, max(out, 0.0))), 1) + 0.0  # no minus before a zero
    kinds = (f"laea +lat_0={latitude:g}", "cea +lat_ts=30")
    maps = (f"+proj={kind} +lon_0={middle:.10g} +datum=WGS84 +units=m" for kind in kinds)
    _, extent = min((_with_room(bounds, crs) for crs in maps), key=lambda each: each[0])
    if extent is None:
        raise InputError(
            f"bounds are {tuple(bounds)} in degrees: no map holds so much of the earth in one piece; up to 240 degrees "
            "of longitude fit, or most of a hemisphere"
        )
    return extent


def _with_room(bounds: Sequence[float], crs: str) -> tuple[float, Extent | None]:
    """Return the extent on a map, and how many times the smallest scale the largest one is.

    Infinity and None if the map does not hold it in one piece, with room for whole cells.
    """
    try:
        extent = extent_on(bounds, crs)
        low, high = np.split(np.array(extent.bounds), 2)
        room = _ROOM * (high - low)
        scales(crs, (*(low - room).tolist(), *(high + room).tolist()))
        least, largest = scales(crs, extent.bounds)
    except InputError:
        return math.inf, None
    return largest / least, extent
