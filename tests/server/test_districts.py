"""server/districts.py: the library's answers for an operator's districts, and which of them stand out."""

import geopandas as gpd
import numpy as np
import pytest
import shapely
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.cli import main
from deltahist.releases.series import Difference
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from deltahist.server.districts import Districts
from deltahist.server.service import Settings
from tests.server.conftest import BOUNDS, check_problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three days. All points of the first are in the west, of the last in the east."""
    folder, near = tmp_path_factory.mktemp("days"), dh.Neighbourhood(dh.Domain(BOUNDS, (16, 16), "EPSG:32618"), 500)
    for day in (1, 2, 3):
        counts = np.zeros((16, 16), dtype=int)
        counts[:8] += 90 * (3 - day)
        counts[8:] += 90 * (day - 1)
        dh.publish(counts, near, "flow", epsilon=1).save(folder / f"2010-05-0{day}.parquet")
    return folder


@pytest.fixture(scope="module")
def districts(folder):
    """West, a half of 4 km × 8 km; a part of the east that cuts cells; one elsewhere; one without a shape."""
    west, south, east, north = BOUNDS
    shapes = [shapely.box(west, south, west + 4000, north), shapely.box(east - 2100, south, east + 500, south + 900)]
    shapes += [shapely.box(0, 0, 1, 1), None]
    frame = gpd.GeoDataFrame({"name": ["west", "edge", "far", "lost"]}, geometry=shapes, crs="EPSG:32618")
    frame.to_crs("EPSG:4326").to_file(folder / "districts.gpkg")
    return folder / "districts.gpkg"


@pytest.fixture(scope="module")
def client(folder, districts):
    settings = Settings(districts=Districts.read(districts, None))
    with TestClient(create_app(Catalogue([folder]), settings)) as client:
        yield client


@pytest.mark.parametrize("path", ["releases/2010-05-01", "series/{}", "releases/2010-05-03?compare=2010-05-01"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_districts_have_the_librarys_answers_and_stand_out_from_the_noise(client, folder, districts, path, nonnegative):
    name, _, compare = path.partition("?compare=")
    asked = {"level": 0.9, "nonnegative": nonnegative and not compare} | ({"compare": compare} if compare else {})
    asked |= {"between": "2010-05-01,2010-05-02"} if "series" in path else {}
    found = client.get(f"{name.format(folder.name)}/districts", params=asked).json()
    one, three = (dh.load(folder / f"2010-05-0{day}.parquet") for day in (1, 3))
    source = dh.Series.load(folder).between("2010-05-01", "2010-05-02") if "series" in path else one
    source = Difference(three, one) if compare else source
    expected = dh.answer(source, gpd.read_file(districts), level=0.9, nonnegative=asked["nonnegative"])
    for column in ("estimate", "std_error", "low", "high"):
        np.testing.assert_allclose(np.array(found[column], dtype=float), expected[column], rtol=1e-9)
    assert found["density"][0] == pytest.approx(found["estimate"][0] / 32, rel=2e-3)  # a km of the map is 0.9997 km
    assert found["stands_out"] == [True, "series" in path or bool(compare), False, False]
    names = [each["properties"]["name"] for each in client.get("districts").json()["features"]]
    assert names == found["name"] == ["west", "edge", "far", "lost"]


def test_cells_of_a_period_are_its_sums(client, folder):
    asked = {"between": "2010-05-01,2010-05-02", "width": 8}
    found = client.get(f"series/{folder.name}/cells", params=asked).json()
    sums = [client.get(f"releases/2010-05-0{day}/cells?width=8").json()["density"] for day in (1, 2)]
    np.testing.assert_allclose(found["density"], np.sum(sums, axis=0), rtol=1e-6)
    assert found["stands_out"] == [True] * 4


def test_districts_that_cannot_be_are_refused(client, folder, capsys):
    with TestClient(create_app(Catalogue([folder]))) as other:
        check_problem(other.get("releases/2010-05-01/districts"), 404, "--regions")
    file = folder / "round.geojson"
    file.write_text(shapely.to_geojson(shapely.segmentize(shapely.box(0, 0, 1, 1), 2e-5)))
    assert main(["serve", str(folder), "--regions", str(file), "--check"]) != 0
    assert "200001" in capsys.readouterr().err
