"""Generate a small invented city from a seed, for demonstrations and tests. It contains no real data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import geopandas
    import pandas as pd

USERS, POINTS = 2_000, 20_000
CENTRE = (-73.99, 40.73)  # degrees; UTM zone 18N, so EPSG:32618 projects it
BOUNDS = (-74.07, 40.66, -73.91, 40.80)  # W, S, E, N: every point lies inside
_METRES = (84_360.0, 111_050.0)  # of one degree of longitude and of latitude at CENTRE
_HALF_WIDTH = 250.0  # metres, of the river
_CLUSTERS, _PLACES = 14, 300


def sample_points(seed: int = 7) -> pd.DataFrame:
    """Return the visits of 2,000 invented users to a city with clustered homes, a busy centre and an empty river.

    Returns 20,000 rows in random order: `user` (0 to 1999, each at least once), and `lon` and `lat` in degrees
    (EPSG:4326, six decimals), all inside `BOUNDS`. Users have from one visit to over a hundred, so that
    contribution bounds matter. The same seed always gives the same table.

    >>> city = sample_points()
    >>> city.shape, city.user.nunique()
    ((20000, 3), 2000)
    """
    import pandas as pd

    rng = np.random.default_rng(seed)
    user = rng.permutation(_owners(rng))
    lon, lat = _degrees(_clear_river(_visits(rng, user)))
    return pd.DataFrame({"user": user, "lon": lon, "lat": lat})


def sample_districts(number: int = 24, seed: int = 8) -> geopandas.GeoDataFrame:
    """Return the districts of the invented city: `name` and polygons in degrees (EPSG:4326) that cover `BOUNDS`.

    >>> sample_districts().name.iloc[0]
    'District 1'
    """
    import geopandas
    import shapely

    west, south, east, north = BOUNDS
    centres = shapely.multipoints(np.random.default_rng(seed).uniform((west, south), (east, north), (number, 2)))
    frame = shapely.box(*BOUNDS)
    parts = shapely.intersection(shapely.get_parts(shapely.voronoi_polygons(centres, extend_to=frame)), frame)
    names = [f"District {i + 1}" for i in range(number)]
    return geopandas.GeoDataFrame({"name": names}, geometry=parts, crs="EPSG:4326")


def _pick(rng: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """Draw indices (size,) in proportion to integer weights; integers keep the draw free of rounding."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, rng.integers(ends[-1], size=size), side="right")


def _owners(rng: np.random.Generator) -> np.ndarray:
    """Return the user of each point (POINTS,): each user once, the rest in proportion to a heavy-tailed activity."""
    activity = 1_000_000 // rng.integers(20, 1_000, size=USERS)
    return np.concatenate([np.arange(USERS), _pick(rng, activity, POINTS - USERS)])


def _visits(rng: np.random.Generator, user: np.ndarray) -> np.ndarray:
    """Return positions (n, 2) in metres from the centre: at home, at a shared place, in the centre, anywhere."""
    middle = rng.uniform((-4_800, -6_000), (4_800, 6_000), size=(_CLUSTERS, 2))
    spread = rng.uniform(300, 900, size=_CLUSTERS)
    cluster = _pick(rng, rng.integers(1, 10, size=_CLUSTERS), USERS)
    home = middle[cluster] + rng.normal(size=(USERS, 2)) * spread[cluster, None]
    place = home[rng.integers(USERS, size=_PLACES)] * 0.6  # shops lean towards the centre
    popular = _pick(rng, 100_000 // np.arange(10, 10 + _PLACES), user.size)
    options = np.stack(
        [
            home[user] + rng.normal(scale=40.0, size=(user.size, 2)),
            place[popular] + rng.normal(scale=15.0, size=(user.size, 2)),
            rng.normal(scale=(550.0, 900.0), size=(user.size, 2)),
            rng.uniform((-6_000, -7_000), (6_000, 7_000), size=(user.size, 2)),
        ]
    )
    kind = _pick(rng, np.array([50, 25, 20, 5]), user.size)
    return options[kind, np.arange(user.size)]


def _clear_river(metres: np.ndarray) -> np.ndarray:
    """Mirror points in the water at the nearer bank, so that the river is a real hole in the data."""
    x, y = metres.T
    offset = x - (-1_600.0 + 0.12 * y + 600.0 * np.sin(y / 2_300.0))
    wet = np.abs(offset) < _HALF_WIDTH
    side = np.where(offset < 0, -1.0, 1.0)
    return np.column_stack([np.where(wet, x + 2 * (side * _HALF_WIDTH - offset), x), y])


def _degrees(metres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return longitudes and latitudes, six decimals (a tenth of a metre), kept inside BOUNDS."""
    west, south, east, north = BOUNDS
    lon, lat = (CENTRE[i] + metres[:, i] / _METRES[i] for i in (0, 1))
    return np.clip(lon, west, east).round(6), np.clip(lat, south, north).round(6)
