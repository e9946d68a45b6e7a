"""server/map_routes.py: OGC's documents and cells, as GDAL's own client reads them."""

import json
import os
import shutil
import subprocess

import geopandas as gpd
import numpy as np
import orjson
import pytest
import shapely.geometry

import deltahist as dh
from deltahist.server.map_routes import _encode_features, cells_within, extent_of
from tests.server.conftest import DEGREES
from tests.serving import serving

CITY = "/collections/city"
ITEMS = f"{CITY}/items"


def pages_of(client, path, **asked):
    """Return the features of all pages from a first one on, by their `next` links."""
    address, found = client.get(path, params=asked).request.url, []
    while address is not None:
        page = client.get(address).json()
        assert page["numberReturned"] == len(page["features"])
        found += page["features"]
        address = next((each["href"] for each in page["links"] if each["rel"] == "next"), None)
    return found, page["numberMatched"]


def cells_in_degrees(release):
    return release.to_geopandas().to_crs("OGC:CRS84")


@pytest.mark.parametrize("limit", [50, 256])
def test_pages_hold_every_cell_once_with_the_librarys_answers(client, catalogue, limit):
    release = catalogue.find("city").release
    found, matched = pages_of(client, ITEMS, limit=limit)
    assert [each["id"] for each in found] == list(range(256))
    assert matched == 256
    frame, table = cells_in_degrees(release), gpd.GeoDataFrame.from_features(found, crs="OGC:CRS84")
    own = release.to_geopandas().bounds.to_numpy()
    expected = dh.answer(release, dh.workloads.boxes(own))
    names = {"estimate": "estimate", "standard_error": "std_error", "low": "low", "high": "high"}
    for name, column in names.items():
        np.testing.assert_allclose(table[name], expected[column], rtol=1e-12, atol=1e-12)
    assert table[["column", "row"]].equals(frame[["column", "row"]])
    assert (shapely.hausdorff_distance(table.geometry.to_numpy(), frame.geometry.to_numpy()) < 1e-6).all()


@pytest.mark.filterwarnings("ignore::deltahist.errors.DeltaHistWarning")
def test_a_map_across_the_antimeridian_has_cells_on_both_sides():
    domain = dh.Domain.from_degrees((176, -20, -175, -15), "20km")
    west, south, east, north = extent_of(domain)
    assert (west, east) == pytest.approx((175.9, -174.9), abs=0.2)
    thin = [(179.99, -90, -179.99, 90), (179.99, -90, 180.01, 90), (-180.01, -90, -179.99, 90)]
    for one in (cells_within(domain, box) for box in thin):
        assert domain.shape[1] <= one.sum() < 2 * domain.shape[1]
        assert (one == cells_within(domain, thin[0])).all()
    left, right = cells_within(domain, (0, -90, 180, 90)), cells_within(domain, (-180, -90, 0, 90))
    assert (left | right).all()
    assert domain.shape[1] <= (left & right).sum() < 2 * domain.shape[1]
    assert cells_within(domain, (west, south, east, north)).all()
    assert cells_within(domain, (-180, -90, 180, 90)).all()
    assert not cells_within(domain, (0, -90, 10, 90)).any()
    release = dh.publish(np.zeros(domain.shape, int), dh.Neighbourhood(domain, "20km"), epsilon=1)
    features = orjson.loads(orjson.dumps(_encode_features(release, np.arange(domain.size))))
    shapes = [shapely.geometry.shape(each["geometry"]) for each in features]
    widths = np.concatenate([np.ptp(shapely.bounds(shapely.get_parts(each))[:, ::2], axis=1) for each in shapes])
    assert widths.max() < 0.25


def test_gdal_reads_all_cells(published, catalogue, tmp_path):
    if shutil.which("ogr2ogr") is None:
        pytest.fail("GDAL's client is asked, which is not installed: apt-get install gdal-bin")
    environment = {key: value for key, value in os.environ.items() if "PROJ" not in key and "GDAL" not in key}

    def run(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=60).stdout

    file, part = tmp_path / "city.gpkg", tmp_path / "part.geojson"
    with serving(tmp_path / "log", published) as (address, _):
        listed = run("ogrinfo", "-so", f"OAPIF:{address}", "city")
        run("ogr2ogr", "-oo", "PAGE_SIZE=100", str(file), f"OAPIF:{address}", "city")
        run("ogr2ogr", "-spat", *map(str, DEGREES), str(part), f"OAPIF:{address}", "city")
    assert "Feature Count: 256" in listed
    found = gpd.read_file(file)
    release = catalogue.find("city").release
    expected = dh.answer(release, dh.workloads.boxes(release.to_geopandas().bounds.to_numpy()))
    assert len(found) == 256
    order = np.lexsort([found["row"], found["column"]])
    np.testing.assert_array_equal(found["estimate"].to_numpy()[order], expected["estimate"])
    np.testing.assert_allclose(found["standard_error"].to_numpy()[order], expected["std_error"], rtol=1e-12)
    assert 0 < len(json.loads(part.read_text())["features"]) < 256
