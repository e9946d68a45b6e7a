"""server/: answers equal the library's, forms of answers, headers, and malformed requests."""

import asyncio
import io
import json
import shutil
import threading
import time
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from fastapi.testclient import TestClient
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from deltahist.server.service import Service, Settings
from tests.server.conftest import BOUNDS, DEGREES, check_problem

CITY = "/releases/city"


def corners_on_the_map():
    place = st.integers(0, 80).map(lambda tenths: 100.0 * tenths)
    pair = st.tuples(place, place).filter(lambda ends: ends[0] < ends[1])
    west, south = BOUNDS[:2]
    return st.tuples(pair, pair).map(lambda p: [west + p[0][0], south + p[1][0], west + p[0][1], south + p[1][1]])


@settings(max_examples=40)
@given(box=corners_on_the_map(), nonnegative=st.booleans(), level=st.sampled_from([0.5, 0.95]))
def test_answers_are_those_of_the_library_bit_for_bit(client, catalogue, box, nonnegative, level):
    release = catalogue.find("city").release
    expected = dh.answer(release, [box], level=level, nonnegative=nonnegative).iloc[0].to_dict()
    asked = {"crs": "EPSG:32618", "level": level, "nonnegative": nonnegative}
    single = client.get(f"{CITY}/answer", params={"bbox": ",".join(map(repr, box)), **asked}).json()
    many = client.post(f"{CITY}/answers", params=asked, json={"boxes": [box, box]}).json()
    for name, value in expected.items():
        assert single[name] == value
        assert many[name] == [value, value]


def test_boxes_that_arrive_together_have_their_own_answers(client):
    """One of them is wrong, others are clipped or cut no cell: every answer is the one that it has alone."""
    boxes = ["-74.02,40.66,-73.97,40.70", "-74.1,40.66,-73.97,40.70", "0,0,1,1", "-74.01,40.67,-73.99,40.68"]
    alone = [client.get(f"{CITY}/answer", params={"bbox": box}) for box in boxes]
    together: dict[int, object] = {}

    def ask(number):
        together[number] = client.get(f"{CITY}/answer", params={"bbox": boxes[number % 4]})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.status_code for each in alone] == [200, 200, 400, 200]
    for number, found in together.items():
        expected = alone[number % 4].json()
        assert found.json().keys() == expected.keys()
        for name, value in expected.items():
            assert found.json()[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)


def test_features_come_back_with_answers(client, catalogue):
    zones = gpd.GeoDataFrame(
        {"zone": ["a", "b"]},
        geometry=[shapely.box(*DEGREES), shapely.Point(-74.0, 40.67).buffer(0.01)],
        crs="EPSG:4326",
    )
    answer = client.post(f"{CITY}/answers", content=zones.to_json(), headers={"content-type": "application/geo+json"})
    assert answer.headers["content-type"] == "application/geo+json"
    found = gpd.read_file(io.BytesIO(answer.content))
    expected = dh.answer(catalogue.find("city").release, zones)
    assert found["zone"].tolist() == ["a", "b"]
    assert (answer.json()["digest"], answer.json()["unit"]) == (catalogue.find("city").release.digest, "points")
    np.testing.assert_array_equal(found["estimate"], expected["estimate"])
    asked = {"content": zones.to_json()}
    table = pd.read_csv(io.StringIO(client.post(f"{CITY}/answers?f=csv", **asked).text))
    assert table["estimate"].tolist() == expected["estimate"].tolist()
    arrow = pa.ipc.open_stream(client.post(f"{CITY}/answers?f=arrow", **asked).content).read_all()
    assert arrow["low"].to_pylist() == expected["low"].tolist()
    assert arrow.schema.metadata[b"digest"].decode() == catalogue.find("city").release.digest


def test_releases_say_what_they_promise(client, catalogue):
    listed = client.get("/releases").json()["releases"]
    assert [each["id"] for each in listed] == ["city", "line"]
    assert "ε = 1" in listed[0]["promise"]
    assert client.get(CITY).json()["statement"]["digest"] == catalogue.find("city").release.digest
    page = client.get(CITY, headers={"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"})
    assert page.text.startswith("<!DOCTYPE html>")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert client.get("/healthz").json() == {"status": "ok", "releases": 2}


def test_files_are_handed_out_whole_and_in_parts(client, published):
    file = client.get(f"{CITY}/download")
    assert file.content == (published / "city.parquet").read_bytes()
    part = client.get(f"{CITY}/download", headers={"range": "bytes=2-5", "if-range": file.headers["etag"]})
    assert (part.status_code, part.content) == (206, file.content[2:6])
    assert client.get(f"{CITY}/download", headers={"range": "bytes=99999-"}).status_code == 416
    head = client.head(f"{CITY}/download")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", file.headers["etag"])


def test_a_file_that_was_not_checked_is_not_handed_out(published, tmp_path):
    path = Path(shutil.copy(published / "city.parquet", tmp_path))
    with TestClient(create_app(catalogue := Catalogue([tmp_path]))) as client:
        path.write_bytes(b"PAR1 something else")
        check_problem(client.get(f"{CITY}/download"), 503, "being replaced")
        catalogue.refresh()
        check_problem(client.get(f"{CITY}/download"), 503, "being replaced")
        assert client.get(CITY).status_code == 200  # what was read before is still served


def test_the_map_may_load_from_nobody_but_the_service_and_the_background(client, catalogue):
    html = {"accept": "text/html"}
    policy = client.get("/", headers=html).headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:"} < set(policy)
    assert not any("unsafe" in each or "http" in each for each in policy)
    tiles = "https://tiles.example.org:8080/a/{z}/{x}/{y}.png"
    other = TestClient(create_app(catalogue, Settings(tiles=tiles)))
    allowed = "img-src 'self' data: https://tiles.example.org:8080"
    assert allowed in other.get("/", headers=html).headers["content-security-policy"].split("; ")
    assert other.get("/static/settings.json").json()["tiles"] == tiles
    assert client.get("/static/leaflet/leaflet-src.esm.js").status_code == 200
    for path in ("../app.py", "%2e%2e/app.py", "none.js"):
        assert client.get(f"/static/{path}").status_code == 404


#: Requests that cannot be answered: path, status, and the field at fault.
REFUSED = {
    "/releases/nowhere": (404, "nowhere"),
    "/static/%00": (404, "Not Found"),
    "/releases/%ff%00": (404, "release"),
    f"{CITY}/answer": (400, "bbox"),
    f"{CITY}/answer?bbox=nan,0,1,1": (400, "bbox"),
    f"{CITY}/answer?bbox=%ff,%00,1,1": (400, "bbox"),
    f"{CITY}/answer?bbox=0,0,1,1": (400, "0 of 1"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=EPSG:3035": (400, "EPSG:3035"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=%2Binit%3D/etc/passwd:x": (400, "crs"),
    f"{CITY}/answer?bbox=0,0,1,1&level=95": (400, "level"),
    f"{CITY}/answer?bbox=0,0,1,1&levle=0.9": (400, "levle"),
    f"{CITY}/answer?bbox=0,0,1,1&f=gml": (400, "gml"),
    "/releases/line/answer?bbox=0,1&bbox=0,2": (400, "repeated"),
    "/collections/line": (404, "collection is 'line'"),
    "/collections/nowhere/items": (404, "collection is 'nowhere'"),
    "/collections/city/items?bbox=1,2,3": (400, "bbox is '1,2,3'"),
    "/collections/city/items?bbox=1,3,2,2": (400, "north is 2.0"),
    "/collections/city/items?limit=0": (400, "limit is '0'"),
    "/collections/city/items?offset=-1": (400, "offset is '-1'"),
    "/collections/city/items?datetime=yesterday": (400, "datetime is 'yesterday'"),
    "/collections/city/items/256": (404, "it must be a number from 0 to 255"),
}
#: A ring that crosses itself many times, and a feature with many vertices.
RING = [[-74 + (7 * n % 301) / 9e3, 40.67 + (n % 5) / 1e3] for n in range(301)]
CROSSING = {"features": [{"geometry": {"type": "Polygon", "coordinates": [[*RING, RING[0]]]}}]}
MANY = {"features": [{"geometry": {"type": "LineString", "coordinates": [[0, 0]] * 1_001}}]}
TEXT = {"features": [{"geometry": {"type": "Point", "coordinates": ["-74", "40.7"]}}]}


@pytest.mark.parametrize("path", REFUSED)
def test_malformed_requests_get_problem_documents(client, path):
    check_problem(client.get(path), *REFUSED[path])


def collection(content):
    return json.dumps({"type": "FeatureCollection"} | content).encode()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "body"),
        (b"{}", 400, "boxes"),
        (b'{"boxes": [[1, 2, 3, 4]], "\xff": 1}', 400, "body"),
        (b'{"boxes": [["a", 0, 1, 1]]}', 400, "float"),
        (b'{"boxes": [[0, 1]]}', 400, "length 4"),
        (b'{"boxes": []}', 400, "length >= 1"),
        (b'{"boxes": [[0, 0, 1, 1]], "level": 0.9}', 400, "level"),
        (json.dumps({"boxes": [[0, 0, 1, 1]] * 101}).encode(), 413, "more than 100 boxes"),
        (b" " * 100_001, 413, "100,000 bytes"),
        (collection(MANY), 413, "more than 1,000 vertices"),
        (collection({}), 400, "FeatureCollection"),
        (collection({"features": [7]}), 400, "FeatureCollection"),
        (collection({"features": [{"geometry": None}] * 101}), 413, "more than 100 features"),
        (collection({"features": []}), 400, "number of regions is 0"),
        (collection(TEXT), 400, "must be number"),
        (collection(CROSSING), 400, "cross"),
    ],
)
def test_malformed_bodies_get_problem_documents(client, monkeypatch, body, status, said):
    monkeypatch.setattr("deltahist.server.answer_routes._MOST_VERTICES", 1_000)
    check_problem(client.post(f"{CITY}/answers", content=body), status, said)


def test_head_says_what_get_would(client):
    for path in ("/", "/releases", CITY, f"{CITY}/cells", f"{CITY}/download", "/static/main.js"):
        head, answer = client.head(path), client.get(path)
        assert head.status_code == 200
        assert head.headers["content-type"] == answer.headers["content-type"]
    assert client.head(f"{CITY}/answers").status_code == 405
    assert client.head("/releases/nowhere").status_code == 404


def test_a_body_without_a_stated_length_is_measured_as_it_comes(client):
    parts = (b" " * 10_000 for _ in range(20))
    check_problem(client.post(f"{CITY}/answers", content=parts), 413, "more than 100,000 bytes")


def test_long_requests_have_places_and_turns(catalogue):
    """Two run at a time, sixteen run or wait, and the next one is sent away."""
    running, most = 0, 0

    def work():
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1

    async def request(service):
        async with service.take_place():
            await service.run(work)

    async def ask():
        service = Service(catalogue, Settings())
        found = await asyncio.gather(*(request(service) for _ in range(17)), return_exceptions=True)
        await request(service)  # places are free again
        return found

    found = asyncio.run(ask())
    assert [getattr(each, "status_code", 200) for each in found] == [200] * 16 + [503]
    assert most == 2
