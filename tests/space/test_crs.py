"""Projections: scale factors, maps chosen for bounds in degrees, one operation for a domain, refusals."""

import math
from types import SimpleNamespace

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import pytest
import shapely
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.space.crs import Operation, extent_of, extent_on, scales

UTM, EUROPE, FEET, MERCATOR = "EPSG:32618", "EPSG:3035", "EPSG:2263", "EPSG:3857"
PLACES = {
    UTM: (560_000, 4_480_000, 610_000, 4_530_000),
    EUROPE: (4_000_000, 2_800_000, 4_100_000, 2_900_000),
    FEET: (900_000, 120_000, 1_070_000, 280_000),
    MERCATOR: (-8_250_000, 4_950_000, -8_200_000, 5_000_000),
}


def local_scales(crs, places, length=10.0):
    """Map length per ground metre of short steps in many directions, by geodesics."""
    system = pyproj.CRS(crs)
    back = pyproj.Transformer.from_crs(system, system.geodetic_crs, always_xy=True)
    geod = system.get_geod()
    out = []
    for angle in np.linspace(0, math.pi, 12, endpoint=False):
        step = length * np.array([math.cos(angle), math.sin(angle)])
        ground = geod.inv(*back.transform(*places.T), *back.transform(*(places + step).T))[2]
        out.append(length / np.asarray(ground))
    return np.array(out)


@pytest.mark.parametrize("crs", PLACES)
def test_the_scale_is_the_largest_there_is(crs):
    domain = dh.Domain(PLACES[crs], (4, 4), crs)
    places = np.random.default_rng(1).uniform(domain.low, domain.high, (300, 2))
    corners = np.array([(x, y) for x in domain.bounds[::2] for y in domain.bounds[1::2]])
    found = local_scales(crs, np.concatenate([places, corners]))
    assert found.max() <= domain.scale * (1 + 1e-6)
    assert domain.scale <= found.max() * (1 + 1e-4)


@pytest.mark.parametrize(
    ("crs", "bounds", "words"),
    [
        ("EPSG:4326", (2, 48, 3, 49), "from_degrees"),
        ("EPSG:4978", (0, 0, 1, 1), "projected"),  # geocentric
        (MERCATOR, (-2.0037e7, -1e6, 2.0037e7, 1e6), "antimeridian"),
        (MERCATOR, (1.99e7, 0, 2.01e7, 1e5), "antimeridian"),  # lengths are right on both sides
        (UTM, (0, 0, 1e9, 1e9), "defined"),
        (MERCATOR, (-1e6, 0, 1e6, 4e7), "below 100"),
    ],
)
def test_systems_that_tear_or_stretch_the_ground_are_refused(crs, bounds, words):
    with pytest.raises(dh.InputError, match=words):
        dh.Domain(bounds, (4, 4), crs)


def test_a_stated_scale_is_checked():
    """A smaller one would promise more than is kept; and a domain across a seam is refused whatever its scale."""
    bounds = (1_000_000, 8_200_000, 1_400_000, 8_600_000)
    true = dh.Domain(bounds, (20, 20), "EPSG:3857").scale
    assert true > 2
    with pytest.raises(dh.InputError, match="scale"):
        dh.Domain(bounds, (20, 20), "EPSG:3857", scale=1.0)
    assert dh.Domain(bounds, (20, 20), "EPSG:3857", scale=2 * true).scale == 2 * true
    with pytest.raises(dh.InputError, match="antimeridian"):
        dh.Domain((-20037508, -1e6, 20037508, 1e6), (20, 20), "EPSG:3857", scale=50.0)


def test_bounds_in_another_order_are_refused_where_they_leave_the_area_of_use():
    with pytest.raises(dh.InputError):
        dh.Domain((560_000, 610_000, 4_480_000, 4_530_000), (4, 4), UTM)
    for crs, bounds in ((UTM, (100_000, 4_480_000, 900_000, 4_530_000)), ("EPSG:3832", (1e6, 2e6, 3e6, 4e6))):
        assert dh.Domain(bounds, (4, 4), crs).crs == crs


CITY, CONTINENT, ISLANDS = (-74.3, 40.45, -73.6, 40.95), (-11, 35, 32, 71), (170, -50, -170, -30)
ACROSS, CAP = (174, -20, -178, -16), (-180, 60, 180, 90)
LAEA = "+proj=laea +lat_0={} +lon_0={} +datum=WGS84 +units=m"
GEOD = pyproj.Geod(ellps="WGS84")


def onto(crs, lon, lat):
    """Coordinates on a map, by pyproj alone."""
    return np.array(pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True).transform(lon, lat))


@pytest.mark.parametrize(
    ("bounds", "crs"),
    [
        (CITY, "EPSG:32618"),
        (ACROSS, LAEA.format(-18, 178)),
        ((-182, -19, -181, -16), "EPSG:32760"),  # longitudes count modulo 360
        (CONTINENT, LAEA.format(51.1, 10.5)),
        ((10, 80, 35, 85), LAEA.format(82.3, 22.5)),  # beyond the zones of UTM
        (CAP, LAEA.format(90, 0)),
    ],
)
def test_the_map_is_a_utm_zone_that_holds_the_bounds_or_an_equal_area_map(bounds, crs):
    extent, found = extent_of(bounds)
    assert found == crs
    least, largest = scales(crs, extent)
    assert largest / least <= (1.01 if crs.startswith("EPSG:32") else 5)


@given(st.floats(-180, 179.9), st.floats(-89, 80), st.floats(0.001, 120), st.floats(0.001, 60), st.integers(0, 1000))
@settings(max_examples=25)
def test_the_box_covers_every_place_of_the_bounds(west, south, width, height, seed):
    north, east = min(south + height, 89.5), (west + width + 180) % 360 - 180
    middle, centre = (west + width / 2 + 180) % 360 - 180, (south + north) / 2
    crs = LAEA.format(centre, middle)
    rng = np.random.default_rng(seed)
    along = rng.random((2, 2000))
    along[:, :1600] = np.where(rng.random((2, 1600)) < 0.5, np.round(along[:, :1600]), along[:, :1600])
    lon, lat = west + along[0] * ((east - west) % 360), south + along[1] * (north - south)
    x, y = onto(crs, (lon + 180) % 360 - 180, lat)
    low_x, low_y, high_x, high_y = extent_on((west, south, east, north), crs)
    assert low_x <= x.min() <= x.max() <= high_x
    assert low_y <= y.min() <= y.max() <= high_y
    longer = max(high_x - low_x, high_y - low_y)
    assert max(np.ptp(x), np.ptp(y)) >= 0.95 * longer  # and is no larger than it must be


def test_west_and_east_in_the_wrong_order_do_not_go_around_the_world():
    with pytest.raises(dh.InputError):
        extent_of((-73.91, 40.66, -74.07, 40.80))


@pytest.mark.parametrize(
    ("bounds", "cell", "km", "crs"),
    [(CITY, "500m", 0.5, "auto"), (CITY, "500m", 0.5, MERCATOR), (CONTINENT, "10km", 20, "auto"),
     (ISLANDS, "20km", 400, "auto"), (CAP, "50km", 100, "auto")],
)  # fmt: skip
def test_moves_of_delta_on_the_ground_join_neighbours_everywhere(bounds, cell, km, crs):
    domain = dh.Domain.from_degrees(bounds, cell, crs)
    rng = np.random.default_rng(1)
    share = rng.random((4_000, 2))
    share = np.where(rng.random(share.shape) < 0.4, np.round(share), share)  # on the rim and in the corners too
    start = np.array(domain.low) + share * np.subtract(domain.high, domain.low)
    lon, lat = pyproj.Transformer.from_crs(domain.crs, "EPSG:4326", always_xy=True).transform(*start.T)
    near = dh.Neighbourhood(domain, f"{km}km")
    length = np.full(len(lon), 1000 * km * (1 - 1e-6))
    end = onto(domain.crs, *GEOD.fwd(lon, lat, rng.uniform(0, 360, len(lon)), length)[:2]).T
    inside = ((end >= domain.low) & (end <= domain.high)).all(axis=1)
    moved = np.abs(domain.locate(start[inside]) - domain.locate(end[inside]))
    assert inside.sum() > 1_000
    assert (moved[:, 0] < len(near.reach)).all()
    assert (moved[:, 1] <= near.reach[moved[:, 0]]).all()


#: ED50 to ETRS89 near the end of one operation's area at 10.38° E, where another one lies 120 m away.
ED50, GERMANY = "EPSG:4230", "EPSG:25832"
BOUNDS = (580_000, 5_300_000, 620_000, 5_360_000)
#: A hand's breadth apart.
PAIR = np.array([[10.379999, 48.3], [10.380001, 48.3]])


def count_pair(kind, path, domain):
    frame = pd.DataFrame(PAIR, columns=["lon", "lat"])
    if kind == "csv":
        frame.to_csv(path / "p.csv", index=False)
        return dh.count_file(path / "p.csv", domain, x="lon", y="lat", crs=ED50).counts
    points = gpd.GeoDataFrame(geometry=shapely.points(PAIR), crs=ED50)
    if kind == "frame":
        return dh.count(points, domain)
    points.to_file(path / "p.gpkg")
    return dh.count_file(path / "p.gpkg", domain).counts


@pytest.mark.parametrize("kind", ["csv", "gpkg", "frame"])
def test_near_points_are_counted_in_near_cells_whatever_the_datum(kind, tmp_path):
    """One operation for all, where a library that chooses for each point tears them apart."""
    x, y = pyproj.Transformer.from_crs(ED50, GERMANY, always_xy=True).transform(*PAIR.T)
    assert np.hypot(np.diff(x), np.diff(y)) > 100
    counts = count_pair(kind, tmp_path, dh.Domain(BOUNDS, cell="60m", crs=GERMANY))
    assert (np.ptp(np.argwhere(np.asarray(counts)), axis=0) <= 1).all()
    assert "ED50 to ETRS89" in counts.preprocessing.projection


@pytest.mark.parametrize(
    ("crs", "bounds", "source"),
    [(UTM, PLACES[UTM], "EPSG:4267"), (GERMANY, BOUNDS, ED50),
     (EUROPE, (2.5e6, 1.4e6, 6.5e6, 5.4e6), "EPSG:4326"), (FEET, PLACES[FEET], "EPSG:4326")],
)  # fmt: skip
def test_operations_do_not_tear(crs, bounds, source):
    """Steps of a ten-thousandth of the map along both directions are about as long everywhere."""
    domain = dh.Domain(bounds, cell=0.01 * (bounds[2] - bounds[0]), crs=crs)
    operation = Operation.onto(domain, source)
    lattice = np.meshgrid(np.linspace(0, 1, 10_001), [0.1, 0.5, 0.9], indexing="ij")
    x, y = (lo + share * (hi - lo) for lo, hi, share in zip(domain.low, domain.high, lattice, strict=True))
    steps = np.hypot(*(np.diff(np.asarray(v), axis=0) for v in operation(*operation.back(x, y))))
    assert steps.max() < 1.01 * steps.min()
    assert Operation.onto(domain, crs) is None


def test_a_grid_of_corrections_is_refused(monkeypatch):
    """Coordinates jump at its edges."""
    found = SimpleNamespace(definition="proj=pipeline step proj=hgridshift grids=t.gsb", description="with a grid")
    monkeypatch.setattr("deltahist.space.crs.TransformerGroup", lambda *_, **__: SimpleNamespace(transformers=[found]))
    with pytest.raises(dh.InputError, match="grid"):
        Operation.between(pyproj.CRS(ED50), pyproj.CRS(GERMANY), None)
