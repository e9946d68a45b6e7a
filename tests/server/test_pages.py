"""server/pages.py: files of the map, its policy, and the statement's plain words."""

import geopandas as gpd
import pytest
import shapely
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.errors import InputError
from deltahist.releases.page import render_page
from deltahist.server.app import create_app
from deltahist.server.service import Settings


def test_the_policy_allows_nobody_but_the_service_and_the_background(client, catalogue):
    policy = client.get("/?f=html").headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:"} < set(policy)
    assert not any("unsafe" in each or "http" in each for each in policy)
    tiles = "https://tiles.example.org:8080/a/{z}/{x}/{y}.png"
    other = TestClient(create_app(catalogue, Settings(tiles=tiles)))
    allowed = "img-src 'self' data: https://tiles.example.org:8080"
    assert allowed in other.get("/?f=html").headers["content-security-policy"].split("; ")
    assert other.get("/static/settings.json").json()["tiles"] == tiles


@pytest.mark.parametrize("tiles", ["tiles/{z}/{x}/{y}", "https://a.org; script-src *//{z}{x}{y}", "https://a.org/{z}"])
def test_a_background_is_an_address_of_tiles(tiles):
    with pytest.raises(InputError, match=r"it must be https://server/path with \{z\}"):
        Settings(tiles=tiles)


def test_files_of_the_map_and_no_others_are_handed_out(client):
    script = client.get("/static/leaflet/leaflet-src.esm.js")
    assert script.headers["content-type"].startswith("text/javascript")
    known = client.get("/static/main.js", headers={"if-none-match": client.get("/static/main.js").headers["etag"]})
    assert known.status_code == 304
    for path in ("../pages.py", "%2e%2e/pages.py", "leaflet/leaflet.js.map", "none.js"):
        assert client.get(f"/static/{path}").status_code == 404


@pytest.mark.parametrize(("west", "number"), [(-74.1, 1), (10.0, 0)])
def test_the_context_is_what_lies_on_the_map(catalogue, tmp_path, west, number):
    file = tmp_path / "roads.geojson"
    line = shapely.LineString([(west, 40.6), (west + 0.2, 40.75)])
    gpd.GeoSeries([line], crs="OGC:CRS84").to_file(file, driver="GeoJSON")
    client = TestClient(create_app(catalogue, Settings(context=file)))
    assert client.get("/static/settings.json").json()["context"]
    found = shapely.geometry.shape(client.get("/releases/city/context").json())
    assert len(found.geoms) == number
    for each in found.geoms:
        assert each.length < line.length / 2
        assert line.buffer(1e-4).contains(each)


def test_plain_words_are_those_of_the_statement(client, catalogue):
    release = catalogue.find("city").release
    found = client.get("/releases/city/explanation").json()
    page = render_page(release, "html").replace("&#x27;", "'").replace("&quot;", '"')
    for heading, paragraphs in list(found["sections"].items())[1:]:
        assert heading in page
        assert all(paragraph in page for paragraph in paragraphs)
    curve = found["curve"]
    at_delta = curve["guess"][curve["distance"].index(500)]
    assert at_delta == pytest.approx(dh.load(catalogue.find("city").path).mechanism.guarantee.certainty, abs=1e-3)
    assert curve["guess"] == sorted(curve["guess"])
