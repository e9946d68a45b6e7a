"""Checks on projections: scale factors over a domain, geographic CRSs, the antimeridian."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._validate import InputError

if TYPE_CHECKING:
    from deltahist.domain import Domain

#: Points per side at which a projection is examined; scale factors are smooth, extremes lie on the rim.
_SAMPLES = 65


def utm_code(lon: float, lat: float) -> str:
    """EPSG code of the UTM zone of a position, as a suggestion for --project.

    >>> utm_code(-73.99, 40.73)
    'EPSG:32618'
    """
    zone = min(int((lon + 180) // 6) + 1, 60)
    return f"EPSG:{(32600 if lat >= 0 else 32700) + zone}"


def read_crs(text: str, name: str = "crs") -> Any:
    """The pyproj CRS of a text; InputError if pyproj cannot read it."""
    import pyproj

    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError:
        raise InputError(f"{name} is {text!r}: it must be a known CRS such as EPSG:32618") from None


def check_projected(domain: Domain) -> None:
    """Raise InputError unless the domain's CRS is projected, horizontal, and unbroken over the domain."""
    crs = read_crs(str(domain.crs))
    if crs.is_geographic:
        lon, lat = (np.add(domain.low, domain.high) / 2).tolist() if domain.ndim == 2 else (0.0, 0.0)
        inside = abs(lon) <= 180 and abs(lat) <= 84
        raise InputError(
            f"crs is {domain.crs!r}: degrees are not lengths, so a domain needs a projected CRS; "
            f"project the points, for example with --project {utm_code(lon, lat) if inside else 'EPSG:32618'} "
            "and --bounds in its metres"
        )
    if not crs.is_projected or domain.ndim != 2:
        raise InputError(f"crs is {domain.crs!r}: it must be a projected CRS, on a 2-D domain")
    lon = _inverse(domain)[0]
    if not np.isfinite(lon).all():
        raise InputError(
            f"bounds are {domain.bounds}: they leave the area where {domain.crs} is defined "
            "(are they in metres of that CRS, in the order west, south, east, north?)"
        )
    jump = max(np.abs(np.diff(lon, axis=0)).max(), np.abs(np.diff(lon, axis=1)).max())
    if jump > 180 or float(np.ptp(lon)) > 359:
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: the domain reaches the antimeridian from both "
            "sides, so that points near each other on the ground lie far apart on the map; "
            "use two domains or another projection"
        )


def largest_scale(domain: Domain) -> float:
    """Largest ratio of map units to ground metres, in any direction, over the domain's bounds.

    The maximum of the Tissot ellipse's long half-axis over a lattice that includes the rim, rounded up in
    the seventh digit.
    """
    import pyproj

    crs = read_crs(str(domain.crs))
    lon, lat = _inverse(domain)
    factors = pyproj.Proj(crs).get_factors(lon.ravel(), lat.ravel(), errcheck=False)
    largest = float(np.max(factors.tissot_semimajor))
    if not math.isfinite(largest) or largest > 100:
        raise InputError(
            f"bounds are {domain.bounds} in {domain.crs}: lengths on this map are up to {largest:.3g} times "
            "those on the ground; choose a projection made for the region"
        )
    per_metre = 1.0 / float(crs.axis_info[0].unit_conversion_factor)
    return math.ceil(largest * per_metre * 1e7) / 1e7


def _inverse(domain: Domain) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    import pyproj

    crs = read_crs(str(domain.crs))
    x, y = np.meshgrid(
        *(np.linspace(lo, hi, _SAMPLES) for lo, hi in zip(domain.low, domain.high, strict=True)),
        indexing="ij",
    )
    back = pyproj.Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True)
    lon, lat = back.transform(x, y)
    return np.asarray(lon), np.asarray(lat)
