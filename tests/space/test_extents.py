"""Bounds in degrees: the map that is chosen, the box that covers them, and δ on the ground there."""

import numpy as np
import pyproj
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.space.crs import extent_of, extent_on, scales

CITY, EUROPE, ISLANDS = (-74.3, 40.45, -73.6, 40.95), (-11, 35, 32, 71), (170, -50, -170, -30)
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
        (EUROPE, LAEA.format(51.1, 10.5)),
        ((10, 80, 35, 85), LAEA.format(82.3, 22.5)),  # beyond the zones of UTM
        (CAP, LAEA.format(90, 0)),
    ],
)
def test_the_map_is_a_utm_zone_that_holds_the_bounds_or_an_equal_area_map(bounds, crs):
    extent, found = extent_of(bounds)
    assert found == crs
    least, largest = scales(crs, extent)
    assert largest / least <= (1.01 if crs.startswith("EPSG:32") else 5)


@pytest.mark.parametrize(
    ("bounds", "rule"),
    [
        ((0, 10), "as degrees"),
        ((0, 10, 5, 10), "south less than north"),
        ((-74.3, -73.6, 40.45, 40.95), "in the order west, south, east, north"),
        ((0, np.nan, 5, 10), "nan"),
    ],
)
def test_bounds_that_are_no_degrees_are_refused(bounds, rule):
    with pytest.raises(dh.InputError, match=rule):
        extent_of(bounds)
    with pytest.raises(dh.InputError, match="leave the area where EPSG:32618 is defined"):
        extent_on((10, -80, 30, 80), "EPSG:32618")


@given(
    st.floats(-180, 179.9),
    st.floats(-89, 80),
    st.floats(0.001, 120),
    st.floats(0.001, 60),
    st.integers(0, 1000),
)
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


@pytest.mark.parametrize(
    ("bounds", "cell", "deltas"),
    [
        (CITY, "500m", ["500m"]),
        (EUROPE, "10km", ["20km"]),
        (ISLANDS, "20km", ["40km", "400km"]),
        (CAP, "50km", ["100km"]),
    ],
)
def test_moves_of_delta_on_the_ground_join_neighbours_everywhere(bounds, cell, deltas):
    domain = dh.Domain.from_degrees(bounds, cell)
    rng = np.random.default_rng(1)
    share = rng.random((4_000, 2))
    share = np.where(rng.random(share.shape) < 0.4, np.round(share), share)  # on the rim and in the corners too
    start = np.array(domain.low) + share * np.subtract(domain.high, domain.low)
    lon, lat = pyproj.Transformer.from_crs(domain.crs, "EPSG:4326", always_xy=True).transform(*start.T)
    for delta in deltas:
        near = dh.Neighbourhood(domain, delta)
        length = np.full(len(lon), near.delta_ground * (1 - 1e-6))
        end = onto(domain.crs, *GEOD.fwd(lon, lat, rng.uniform(0, 360, len(lon)), length)[:2]).T
        inside = ((end >= domain.low) & (end <= domain.high)).all(axis=1)
        moved = np.abs(domain.locate(start[inside]) - domain.locate(end[inside]))
        assert inside.sum() > 1_000
        assert (moved[:, 0] < len(near.reach)).all()
        assert (moved[:, 1] <= near.reach[moved[:, 0]]).all()
