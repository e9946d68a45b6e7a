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
from tests.server.conftest import BOUNDS

WEST, SOUTH, EAST, NORTH = BOUNDS


def test_districts_have_the_librarys_answers_and_stand_out_from_the_noise(tmp_path):
    """Half the map, a part that cuts cells, a place elsewhere, no shape. All points move from west to east."""
    near = dh.Neighbourhood(dh.Domain(BOUNDS, (16, 16), "EPSG:32618"), 500)
    for day in (1, 2, 3):
        counts = np.repeat([90 * (3 - day), 90 * (day - 1)], 128).reshape(16, 16)
        release = dh.publish(counts, near, "flow", epsilon=40, weak_protection_accepted=True)  # its noise is 0
        release.save(tmp_path / f"2010-05-0{day}.parquet")
    shapes = [shapely.box(WEST, SOUTH, WEST + 4000, NORTH), shapely.box(EAST - 2100, SOUTH, EAST + 500, SOUTH + 900)]
    names = ["west", "edge", "far", "lost"]
    frame = gpd.GeoDataFrame({"name": names}, geometry=[*shapes, shapely.box(0, 0, 1, 1), None], crs="EPSG:32618")
    frame = frame.to_crs("EPSG:4326")  # not the map's
    frame.to_file(tmp_path / "districts.gpkg")
    one, _, three = days = [dh.load(tmp_path / f"2010-05-0{day}.parquet") for day in (1, 2, 3)]
    two = dh.Series.load(tmp_path).between("2010-05-01", "2010-05-02")
    between = "2010-05-01,2010-05-02"
    settings = Settings(districts=Districts.read(tmp_path / "districts.gpkg", None))
    with TestClient(create_app(Catalogue([tmp_path]), settings)) as client:
        for path, source, own, edge in (
            ("releases/2010-05-01", one, {"nonnegative": True}, False),
            ("releases/2010-05-03", Difference(three, one), {"compare": "2010-05-01"}, True),
            (f"series/{tmp_path.name}", two, {"between": between, "nonnegative": True}, True),
        ):
            found = client.get(f"{path}/districts", params={"level": 0.9} | own).json()
            expected = dh.answer(source, frame, level=0.9, nonnegative="nonnegative" in own)
            for column in ("estimate", "std_error", "low", "high"):
                np.testing.assert_allclose(np.array(found[column], dtype=float), expected[column], rtol=1e-9)
            assert found["density"][0] == pytest.approx(found["estimate"][0] / 32, rel=2e-3)
            assert (found["name"], found["stands_out"]) == (names, [True, edge, False, False])
        cells = client.get(f"series/{tmp_path.name}/cells", params={"between": between, "width": 16}).json()
        total = sum(dh.answer(day, [BOUNDS])["estimate"].item() for day in days[:2])
        assert cells["density"] == pytest.approx([total / 64], rel=2e-3)


def test_a_file_of_too_many_vertices_is_refused(published, tmp_path, capsys):
    (tmp_path / "a.geojson").write_text(shapely.to_geojson(shapely.segmentize(shapely.box(0, 0, 1, 1), 2e-5)))
    assert main(["serve", str(published), "--regions", str(tmp_path / "a.geojson"), "--check"]) != 0
    assert "200001" in capsys.readouterr().err
