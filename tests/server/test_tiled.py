"""Maps in tiles behind the service: answers and pictures from their sums, which must be there."""

import io

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import deltahist as dh
from deltahist.releases import coarse
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from deltahist.space import domain as space
from deltahist.strategies import tiles
from tests.server.conftest import BOUNDS, check_problem


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "MOST_WHOLE", 1)
        patch.setattr(tiles, "SIDE", 8)
        patch.setattr(coarse, "MOST_BLOCKS", 8)
        yield


@pytest.fixture(scope="module")
def release(tmp_path_factory, small_tiles):
    domain = dh.Domain(BOUNDS, (32, 32), "EPSG:32618")
    counts = np.zeros((32, 32), dtype=np.int64)
    counts[8:16, 16:24] = 90
    near = dh.Neighbourhood(domain, 500)
    return dh.publish(counts, near, "identity", 1, out=tmp_path_factory.mktemp("served") / "country.parquet")


@pytest.fixture(scope="module")
def client(release):
    release.sums  # noqa: B018  made
    with TestClient(create_app(Catalogue([release.path.parent]))) as client:
        yield client


def test_without_sums_a_map_in_tiles_is_not_served(release, tmp_path) -> None:
    release.save(tmp_path / "alone.parquet")
    with pytest.raises(dh.InputError, match=r"without its file of sums, alone\.sums: ask it once"):
        Catalogue([tmp_path])
    (tmp_path / "alone.sums").write_bytes(b"")
    with pytest.raises(dh.InputError, match="is empty"):
        Catalogue([tmp_path])


def test_boxes_and_regions_are_answered(release, client) -> None:
    box = [582000, 4504000, 584100, 4506000]
    found = client.get("/releases/country/answer", params={"bbox": ",".join(map(str, box)), "crs": "EPSG:32618"}).json()
    asked = dh.answer(release, [box]).iloc[0]
    assert found["estimate"] == pytest.approx(asked["estimate"])
    assert found["std_error"] == pytest.approx(asked["std_error"])
    cells = client.get("/releases/country/cells", params={"zoom": 10}).json()
    assert sum(each["properties"]["estimate"] for each in cells["features"]) == pytest.approx(release.total)


def test_tiles_are_drawn_in_blocks_at_every_zoom(release, client) -> None:
    for zoom, (x, y) in {9: (150, 192), 12: (1206, 1539)}.items():
        found = client.get(f"/releases/country/tiles/WebMercatorQuad/{zoom}/{x}/{y}.png")
        assert found.status_code == 200
        picture = np.asarray(Image.open(io.BytesIO(found.content)).convert("RGBA"))
        assert len(np.unique(picture.reshape(-1, 4), axis=0)) > 2


def test_what_needs_all_cells_is_refused(client) -> None:
    check_problem(client.get("/releases/country/download"), 404, "whose file is not handed out")
    asked = {"bbox": "582000,4504000,584100,4506000", "crs": "EPSG:32618", "nonnegative": True}
    check_problem(client.get("/releases/country/answer", params=asked), 400, "unbiased only")
    assert client.get("/releases/country", headers={"accept": "text/html"}).status_code == 200
