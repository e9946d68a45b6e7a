"""Generate an invented city for demonstrations and tests, without any real data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import geopandas
    import pandas as pd

#: Bounds of all points (west, south, east, north) in degrees, around (-73.99, 40.73). EPSG:32618 suits this area.
BOUNDS = (-74.07, 40.66, -73.91, 40.80)


def sample_points(seed: int = 7) -> pd.DataFrame:
    """Return the visits of 2,000 invented users to a city with clustered homes, a busy centre and an empty river.

    The table has 20,000 rows in random order, with columns `user` (0 to 1999, each at least once), `lon` and `lat`
    (degrees inside `BOUNDS`, EPSG:4326, six decimals) and `time` (in 2025; most on summer days, weekends and
    evenings). Users have between one and over a hundred visits each, so bounds on contributions matter. The same seed
    always gives the same table.

    >>> city = sample_points()
    >>> city.shape, city.user.nunique()
    ((20000, 4), 2000)
    """
    import pandas as pd

    rng, users, points, places = np.random.default_rng(seed), 2_000, 20_000, 300
    # Give every user one point. Draw the users of the other points with heavy-tailed weights.
    activity = 1_000_000 // rng.integers(20, 1_000, size=users)
    user = rng.permutation(np.concatenate([np.arange(users), _pick(rng, activity, points - users)]))
    # Draw homes in 14 clusters, and places to visit. Units are metres from the centre.
    middle = rng.uniform((-4_800, -6_000), (4_800, 6_000), size=(14, 2))
    spread = rng.uniform(300, 900, size=14)
    cluster = _pick(rng, rng.integers(1, 10, size=14), users)
    home = middle[cluster] + rng.normal(size=(users, 2)) * spread[cluster, None]
    place = home[rng.integers(users, size=places)] * 0.6  # places are closer to the centre than homes
    popular = _pick(rng, 100_000 // np.arange(10, 10 + places), points)
    options = np.stack(
        [
            home[user] + rng.normal(scale=40.0, size=(points, 2)),
            place[popular] + rng.normal(scale=15.0, size=(points, 2)),
            rng.normal(scale=(550.0, 900.0), size=(points, 2)),
            rng.uniform((-6_000, -7_000), (6_000, 7_000), size=(points, 2)),
        ]
    )
    x, y = options[_pick(rng, np.array([50, 25, 20, 5]), points), np.arange(points)].T
    # Reflect points inside a 500 m wide river across the nearer bank, so that none remains in the river.
    offset = x - (-1_600.0 + 0.12 * y + 600.0 * np.sin(y / 2_300.0))
    side = np.where(offset < 0, -1.0, 1.0)
    x = np.where(np.abs(offset) < 250.0, x + 2 * (side * 250.0 - offset), x)
    # Here a degree of longitude is 84,360 m, and a degree of latitude 111,050 m. Six decimals are about 10 cm.
    west, south, east, north = BOUNDS
    lon = np.clip(-73.99 + x / 84_360.0, west, east).round(6)
    lat = np.clip(40.73 + y / 111_050.0, south, north).round(6)
    days = pd.date_range("2025-01-01", "2025-12-31")
    season = 100 - 60 * np.cos(2 * np.pi * (days.day_of_year - 15) / 365)  # July is four times as busy as January
    day = _pick(rng, season.astype(int) * np.where(days.day_of_week < 5, 2, 3), points)
    hour = _pick(rng, np.array([0] * 7 + [1, 2, 3, 4, 4, 5, 5, 5, 5, 6, 7, 8, 8, 6, 4, 2, 1]), points)
    time = days[day] + pd.to_timedelta(hour * 60 + rng.integers(60, size=points), "min")
    return pd.DataFrame({"user": user, "lon": lon, "lat": lat, "time": time})


def sample_districts() -> geopandas.GeoDataFrame:
    """Return the 24 districts of the invented city, each with a `name` and a polygon (EPSG:4326). They cover `BOUNDS`.

    >>> sample_districts().name.iloc[0]
    'District 1'
    """
    import geopandas
    import shapely

    west, south, east, north = BOUNDS
    centres = shapely.multipoints(np.random.default_rng(8).uniform((west, south), (east, north), (24, 2)))
    frame = shapely.box(*BOUNDS)
    parts = shapely.intersection(shapely.get_parts(shapely.voronoi_polygons(centres, extend_to=frame)), frame)
    names = [f"District {i + 1}" for i in range(len(parts))]
    return geopandas.GeoDataFrame({"name": names}, geometry=parts, crs="EPSG:4326")


def _pick(rng: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """Draw indices (size,) with probabilities proportional to weights, which are whole numbers to avoid rounding."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, rng.integers(ends[-1], size=size), side="right")
