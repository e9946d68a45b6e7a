"""Projections: scale factors over a domain, and the coordinate systems that are refused."""

import math

import numpy as np
import pyproj
import pytest

import deltahist as dh

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


def test_ground_moves_within_delta_join_neighbours_in_web_mercator():
    # Its formulas are those of a sphere, but positions are on the ellipsoid: northwards, scales differ by 0.7%.
    domain = dh.Domain.from_cell((0, -500_000, 500_000, 500_000), "500m", MERCATOR)
    near = dh.Neighbourhood(domain, "500m")
    back = pyproj.Transformer.from_crs(MERCATOR, "EPSG:4326", always_xy=True)
    x, y = domain.low[0] + 250, domain.low[1] + 10 * domain.cell[1] - 0.1
    longitude, latitude = back.transform(x, y)
    geod = pyproj.Geod(ellps="WGS84")
    moved = geod.fwd(longitude, latitude, 0, 498)[:2]
    there = back.transform(*moved, direction="INVERSE")
    (_, first), (_, second) = domain.locate([(x, y), there]).tolist()
    assert second - first <= near.reach[0]


@pytest.mark.parametrize(
    ("crs", "bounds", "words"),
    [
        ("EPSG:4326", (2, 48, 3, 49), "from_degrees"),
        ("EPSG:4978", (0, 0, 1, 1), "projected"),  # geocentric
        (MERCATOR, (-2.0037e7, -1e6, 2.0037e7, 1e6), "antimeridian"),
        (MERCATOR, (1.99e7, 0, 2.01e7, 1e5), "antimeridian"),  # lengths are right on both sides
        (UTM, (0, 0, 1e9, 1e9), "defined"),
        (MERCATOR, (-1e6, 0, 1e6, 4e7), "those on the ground"),
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
    for scale in (None, 1.1, 50.0):
        with pytest.raises(dh.InputError, match="antimeridian"):
            dh.Domain((-20037508, -1e6, 20037508, 1e6), (20, 20), "EPSG:3857", scale=scale)


def test_bounds_in_another_order_are_refused_where_they_leave_the_area_of_use():
    with pytest.raises(dh.InputError, match="in the order west, south, east, north"):
        dh.Domain((560_000, 610_000, 4_480_000, 4_530_000), (4, 4), UTM)
    for crs, bounds in ((UTM, (100_000, 4_480_000, 900_000, 4_530_000)), ("EPSG:3832", (1e6, 2e6, 3e6, 4e6))):
        assert dh.Domain(bounds, (4, 4), crs).crs == crs
