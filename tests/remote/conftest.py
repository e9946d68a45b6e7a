"""A real service of published releases, in a process of its own."""

import geopandas as gpd
import numpy as np
import pytest
import shapely

import deltahist as dh
from tests.server.conftest import BOUNDS
from tests.serving import serving


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """A folder with a map in EPSG:32618, a plane and a line without a CRS, and sorted points."""
    folder = tmp_path_factory.mktemp("published")
    near = dh.Neighbourhood(dh.Domain(BOUNDS, (16, 16), "EPSG:32618"), delta=500)
    rng = np.random.default_rng(1)
    dh.publish(rng.poisson(20, (16, 16)), near, "flow", epsilon=1).save(folder / "city.parquet")
    plane = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (8, 8)), delta=1)
    dh.publish(rng.poisson(3, (8, 8)), plane, "identity", epsilon=1).save(folder / "plane.parquet")
    line = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    dh.publish(np.arange(8), line, "cumulative", epsilon=1).save(folder / "line.parquet")
    dh.publish_sorted(rng.random(200) * 8, line, epsilon=1).save(folder / "ages.parquet")
    return folder


@pytest.fixture(scope="session")
def service(published, tmp_path_factory):
    """Address of the service."""
    with serving(tmp_path_factory.mktemp("service") / "log", published) as (address, _):
        yield address


@pytest.fixture(scope="session")
def zones():
    """Districts in degrees with all that is wrong with such files."""
    bow_tie = [(-74.03, 40.65), (-74.01, 40.67), (-74.01, 40.65), (-74.03, 40.67)]
    shapes = [
        shapely.box(-74.02, 40.66, -73.97, 40.70),
        shapely.Polygon(bow_tie),
        None,
        shapely.box(-74.1, 40.66, -74.0, 40.7),
        shapely.Point(-74.0, 40.67, 5.0).buffer(0.01),
        shapely.box(10, 50, 11, 51),
    ]
    return gpd.GeoDataFrame({"zone": list("abcdef"), "low": range(6)}, geometry=shapes, crs="EPSG:4326")
