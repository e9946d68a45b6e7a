"""server/: answers equal the library's, forms of answers, headers, and malformed requests."""

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from fastapi.testclient import TestClient
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.server import queries
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
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
    many = client.post(f"{CITY}/answers", json={"boxes": [box, box], **asked}).json()
    for name, value in expected.items():
        assert single[name] == value
        assert many[name] == [value, value]


def test_degrees_are_the_usual_coordinates(client, catalogue):
    release = catalogue.find("city").release
    expected = dh.answer(release, [DEGREES])
    found = client.post(f"{CITY}/answers", json={"boxes": [DEGREES]}).json()
    assert found["estimate"] == expected["estimate"].tolist()
    bbox = ",".join(map(str, DEGREES))
    for crs in ({}, {"crs": "CRS84"}, {"crs": "http://www.opengis.net/def/crs/OGC/1.3/CRS84"}):
        assert client.get(f"{CITY}/answer", params={"bbox": bbox, **crs}).json()["estimate"] == found["estimate"][0]
    own = client.get(f"{CITY}/answer", params={
        "bbox": ",".join(map(str, BOUNDS)), "crs": "http://www.opengis.net/def/crs/EPSG/0/32618",
    })  # fmt: skip
    assert own.json()["estimate"] == release.total


def test_a_clipped_box_is_noted_and_others_beside_it_are_not(client):
    clipped = client.get(f"{CITY}/answer", params={"bbox": "-74.1,40.66,-73.97,40.70"}).json()
    assert clipped["note"].startswith("clipped: ")
    assert 0 < clipped["outside"] < 1
    whole = client.get(f"{CITY}/answer", params={"bbox": ",".join(map(str, DEGREES))}).json()
    assert not {"note", "outside"} & set(whole)
    own = [[579000, 4500000, 584000, 4508000], [580000, 4500000, 584000, 4508000], [0, 0, 1, 1]]
    found = client.post(f"{CITY}/answers", json={"boxes": own, "crs": "EPSG:32618"}).json()
    assert found["estimate"][0] == found["estimate"][1]
    assert found["outside"] == pytest.approx([0.2, 0.0, 1.0])
    assert found["note"] == [
        "clipped: 20% of its area lies outside the map",
        None,
        "not answered: outside the map",
    ]
    alone = client.get(f"{CITY}/answer", params={"bbox": ",".join(map(str, own[0])), "crs": "EPSG:32618"}).json()
    assert (alone["estimate"], alone["note"]) == (found["estimate"][0], found["note"][0])
    line = client.get("/releases/line/answer", params={"bbox": "-8,8"}).json()
    assert (line["estimate"], line["outside"]) == (28, 0.5)


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
        assert found.json() == alone[number % 4].json()


def test_forms_of_many_answers(client):
    asked = {"boxes": [list(BOUNDS), [580000, 4500000, 584000, 4504000]], "crs": "EPSG:32618"}
    plain = client.post(f"{CITY}/answers", json=asked).json()
    assert (plain["unit"], plain["level"], plain["estimates"]) == ("points", 0.95, "unbiased")
    table = pd.read_csv(io.StringIO(client.post(f"{CITY}/answers", json=asked, headers={"accept": "text/csv"}).text))
    assert table["estimate"].tolist() == plain["estimate"]
    arrow = client.post(f"{CITY}/answers", json=asked, headers={"accept": "application/vnd.apache.arrow.stream"})
    found = pa.ipc.open_stream(arrow.content).read_all()
    assert found["low"].to_pylist() == plain["low"]
    assert found.schema.metadata[b"digest"].decode() == plain["digest"]


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


def test_a_geometry_that_is_none_is_told_apart_from_no_geometry(client):
    text = {"geometry": {"type": "Point", "coordinates": ["-74", "40.7"]}}
    sound = {"geometry": shapely.geometry.mapping(shapely.box(*DEGREES))}
    body = {"type": "FeatureCollection", "features": [text]}
    check_problem(client.post(f"{CITY}/answers", json=body), 400, "features[0] has a geometry that cannot be read")
    body["features"] = [{"geometry": None}, text, sound]
    notes = [each["properties"]["note"] for each in client.post(f"{CITY}/answers", json=body).json()["features"]]
    assert notes[0] == "not answered: no geometry"
    assert "coordinates are numbers" in notes[1]
    assert notes[2] is None


def test_routes_are_called_by_what_they_do(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/"]["get"]["summary"].startswith("Link to all")
    assert paths["/releases"]["get"]["summary"] == "List all releases with their promises"


def test_a_line_without_a_crs(client):
    found = client.get("/releases/line/answer", params={"bbox": "0,8"}).json()
    assert found["estimate"] == 28
    refused = client.get("/releases/line/answer", params={"bbox": "0,8", "crs": "CRS84"})
    assert "the release is of a plane without a CRS" in refused.json()["detail"]


def test_releases_say_what_they_promise(client, catalogue, published):
    listed = client.get("/releases").json()["releases"]
    assert [each["id"] for each in listed] == ["city", "line"]
    assert "ε = 1" in listed[0]["promise"]
    release = catalogue.find("city").release
    assert client.get(CITY).json()["statement"]["digest"] == release.digest
    page = client.get(CITY, headers={"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"})
    assert page.text.startswith("<!DOCTYPE html>")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert client.get(CITY, headers={"accept": "text/plain"}).text.startswith("city")
    file = client.get(f"{CITY}/download")
    assert file.content == (published / "city.parquet").read_bytes()
    for asked, expected in {
        "bytes=0-3": (206, file.content[:4]),
        "bytes=-4": (206, file.content[-4:]),
        "bytes=5-": (206, file.content[5:]),
        "bytes=2-9999999": (206, file.content[2:]),
        "bytes=0-1,3-4": (200, file.content),
        "bytes=-": (200, file.content),
    }.items():
        part = client.get(f"{CITY}/download", headers={"range": asked, "if-range": file.headers["etag"]})
        assert (part.status_code, part.content) == expected
    last = client.get(f"{CITY}/download", headers={"range": "bytes=1-2"})
    assert last.headers["content-range"] == f"bytes 1-2/{len(file.content)}"
    other = client.get(f"{CITY}/download", headers={"range": "bytes=0-3", "if-range": '"another"'})
    assert (other.status_code, other.content) == (200, file.content)
    check_problem(client.get(f"{CITY}/download", headers={"range": "bytes=99999-"}), 416, "range is 'bytes=99999-'")
    assert client.get("/healthz").json() == {"status": "ok", "releases": 2}
    assert "/releases/{name}/answer" in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("*/*", "application/json"),
        ("application/json;q=0, */*", "text/html"),
        ("text/*;q=0.5, text/plain", "text/plain"),
        ("text/html;q=0, text/*", "text/plain"),
        ("application/json;q=0.2, text/plain;q=0.3", "text/plain"),
    ],
)
def test_the_form_that_is_liked_best_is_given(client, accept, media):
    assert client.get(CITY, headers={"accept": accept}).headers["content-type"].split(";")[0] == media


def test_none_of_the_forms_may_be_excluded(client):
    check_problem(client.get(CITY, headers={"accept": "*/*;q=0"}), 406, "Accept must have one of application/json")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_is_encoded_has_a_weak_tag(client, coding):
    body = {"boxes": [DEGREES] * 60}
    assert client.post(f"{CITY}/answers", json=body, headers={"accept-encoding": coding}).headers[
        "content-encoding"
    ] == coding
    assert client.get(CITY, headers={"accept-encoding": coding}).headers["etag"].startswith('W/"')
    assert client.get(f"{CITY}/download", headers={"accept-encoding": coding}).headers["etag"].startswith('"')


def test_copies_are_kept_while_the_release_is_the_same(client):
    digest = client.get(CITY).json()["digest"]
    for place in ("?", "/answer?bbox=-74.02,40.66,-73.97,40.70", "/cells?", "/tiles/WebMercatorQuad/0/0/0.png?"):
        forever = client.get(f"{CITY}{place}&digest={digest}")
        assert forever.headers["cache-control"] == "max-age=86400, immutable"
    assert client.get(CITY, params={"digest": "0" * 64}).headers["cache-control"] == "no-cache"
    first = client.get(CITY)
    again = client.get(CITY, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert client.get(CITY, headers={"accept": "text/plain"}).headers["etag"] != first.headers["etag"]
    head = client.head(CITY)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", first.headers["etag"])
    assert first.headers["x-request-id"] != again.headers["x-request-id"]
    assert first.headers["server-timing"].startswith("total;dur=")


#: Requests that cannot be answered: path, status, and what the problem document says.
REFUSED = {
    "/releases/nowhere": (404, "release is 'nowhere': it must be one of those at /releases"),
    "/nowhere": (404, "Not Found"),
    f"{CITY}/answer": (400, "bbox is missing"),
    f"{CITY}/answer?bbox=1,2,3": (400, "bbox is '1,2,3': it must be 4 numbers, west,south,east,north"),
    f"{CITY}/answer?bbox=a,b,c,d": (400, "bbox is 'a,b,c,d'"),
    f"{CITY}/answer?bbox=nan,0,1,1": (400, "it must be 4 numbers"),
    f"{CITY}/answer?bbox=0,1,1,0": (400, "with south below north"),
    f"{CITY}/answer?bbox=-73.9,40.6,-74.1,40.7": (400, "is the box reversed?"),
    f"{CITY}/answer?bbox=580000,4500000,588000,4508000": (400, "in the release's own crs, without saying so?"),
    f"{CITY}/answer?bbox=0,0,1,1": (400, "0 of 1 regions are inside the domain"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=EPSG:32618": (400, "0 of 1 boxes are inside the domain"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=EPSG:3035": (400, "crs is 'EPSG:3035': it must be the release's own, EPSG:32618"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=EPSG:4326": (400, "use CRS84 (longitude, latitude), or leave crs out"),
    f"{CITY}/answer?bbox=40.66,-74.02,40.7,-73.97": (400, "give the longitude first"),
    "/releases/line/answer?bbox=0,1&crs=none": (400, "of a plane without a CRS; leave crs out"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=here": (400, "crs is 'here'"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=%2Binit%3D/etc/passwd:x": (400, "crs is '+init=/etc/passwd:x'"),
    f"{CITY}/answer?bbox=0,0,1,1&crs=EPSG:999999": (400, "crs is 'EPSG:999999'"),
    f"{CITY}/answer?bbox=0,0,1,1&level=95": (400, "level is 95.0: it must lie between 0 and 1"),
    f"{CITY}/answer?bbox=0,0,1,1&level=high": (400, "level is 'high'"),
    f"{CITY}/answer?bbox=0,0,1,1&nonnegative=perhaps": (400, "nonnegative is 'perhaps'"),
    f"{CITY}/answer?bbox=0,0,1,1&f=csv": (400, "f is 'csv': it must be one of json"),
    f"{CITY}/answer?bbox=0,0,1,1&levle=0.9": (400, "levle is no parameter here: it must be one of bbox, compare, crs"),
    "/releases/line/answer?bbox=0,0,1,1": (400, "it must be 2 numbers, low,high"),
}


#: A ring that crosses itself many times.
RING = [[-74 + (7 * n % 301) / 9e3, 40.67 + (n % 5) / 1e3] for n in range(301)]
CROSSING = {"features": [{"geometry": {"type": "Polygon", "coordinates": [[*RING, RING[0]]]}}]}
#: A feature with many vertices.
MANY = {"features": [{"geometry": {"type": "LineString", "coordinates": [[0, 0]] * 1_001}}]}
#: So many that none is read, and a feature with as many arrays elsewhere.
HUGE = {"features": [{"geometry": {"type": "LineString", "coordinates": [[0, 0]] * 2_001}}]}
ARRAYS = {"features": [{"geometry": None, "properties": {"tags": [[]] * 2_001}}]}


@pytest.mark.parametrize("path", REFUSED)
def test_malformed_requests_get_problem_documents(client, path):
    check_problem(client.get(path), *REFUSED[path])


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "the body cannot be read"),
        (b"{}", 400, "missing required field `boxes`"),
        (b'{"boxes": [], "crs": "EPSG:32618"}', 400, "there are 0 boxes"),
        (b'{"boxes": [[1, 2, 3, 4]], "crs": "\xff"}', 400, "the body cannot be read"),
        (b'{"boxes": [[1, 2, 3]]}', 400, "boxes holds [1.0, 2.0, 3.0]: every box must be 4 numbers"),
        (b'{"boxes": [["a"]]}', 400, "Expected `float`, got `str`"),
        (b'{"boxes": [[0, 0, 1, 1]], "colour": 1}', 400, "unknown field `colour`"),
        (json.dumps({"boxes": [[0, 0, 1, 1]] * 101}).encode(), 413, "there are 101 boxes: at most 100"),
        (b" " * 100_001, 413, "at most 100,000 are read"),
        (json.dumps({"type": "FeatureCollection"} | MANY).encode(), 413, "there are 1,001 vertices: at most 1,000"),
        (json.dumps({"type": "FeatureCollection"} | HUGE).encode(), 413, "there are more than 1,000 vertices"),
        (json.dumps({"type": "FeatureCollection"} | ARRAYS).encode(), 400, "0 of 1 regions can be answered"),
        (json.dumps({"boxes": [[0, 0, 1, 1]] * 200}).encode(), 413, "there are more than 100 boxes"),
        (b'{"type": "FeatureCollection"}', 400, "it must be a GeoJSON FeatureCollection"),
        (b'{"type": "FeatureCollection", "features": []}', 400, "there are 0 features"),
        (b'{"type": "FeatureCollection", "features": [{}]}', 400, "0 of 1 regions can be answered"),
        (json.dumps({"type": "FeatureCollection"} | CROSSING).encode(), 400, "rings that cross"),
        (b'{"type": "FeatureCollection", "features": [7]}', 400, "it must be a GeoJSON FeatureCollection"),
    ],
)
def test_malformed_bodies_get_problem_documents(client, body, status, said):
    check_problem(client.post(f"{CITY}/answers", content=body), status, said)


def test_other_methods_and_forms_are_refused(client):
    packed = client.post(f"{CITY}/answers", content=b"x", headers={"content-encoding": "gzip"})
    check_problem(packed, 415, "the body is compressed ('gzip'): send it as it is")
    check_problem(client.delete(CITY), 405, "Method Not Allowed")
    check_problem(client.get(CITY, headers={"accept": "image/png"}), 406, "Accept must have one of application/json")
    boxes = {"boxes": [DEGREES]}
    check_problem(client.post(f"{CITY}/answers", json=boxes, headers={"accept": "text/html"}), 406, "text/csv")


def test_a_body_without_a_stated_length_is_measured_as_it_comes(client):
    parts = (b" " * 10_000 for _ in range(20))
    check_problem(client.post(f"{CITY}/answers", content=parts), 413, "more than 100,000 bytes")


def test_long_bodies_are_put_off_before_they_are_read_where_others_are_at_work(published, monkeypatch):
    """A body takes places by its length: of long ones few wait, short ones go on beside them."""
    begun, go_on = threading.Event(), threading.Event()
    real = queries._answer_boxes
    monkeypatch.setattr(queries, "_answer_boxes", lambda *given: begun.set() or (go_on.wait(60) and real(*given)))
    body = {"content": json.dumps({"boxes": [DEGREES]}).encode().ljust(5 << 20)}
    with TestClient(create_app(Catalogue([published]))) as busy, ThreadPoolExecutor() as threads:
        try:
            first = threads.submit(busy.post, f"{CITY}/answers", **body)
            assert begun.wait(60)

            monkeypatch.setattr(queries, "read_body", None)
            put_off = busy.post(f"{CITY}/answers", **body)
            monkeypatch.undo()
            short = threads.submit(busy.post, f"{CITY}/answers", json={"boxes": [DEGREES]})
        finally:
            go_on.set()
        check_problem(put_off, 503, "more is asked")
        assert (first.result().status_code, short.result().status_code) == (200, 200)


def test_features_stay_as_they_are(client):
    shape = shapely.geometry.mapping(shapely.box(*DEGREES))
    own = {"n": 9007199254740993, "low": "mine", "High": "too", "low_region": "own"}
    feature = {"type": "Feature", "id": "z", "geometry": shape, "properties": own}
    body = {"type": "FeatureCollection", "features": [feature, {"type": "Feature", "geometry": None}]}
    found = client.post(f"{CITY}/answers", json=body).json()["features"]
    first = found[0]["properties"]
    assert (found[0]["id"], first["n"], first["low_region"]) == ("z", 2**53 + 1, "own")
    assert (first["low_region_region"], first["High_region"]) == ("mine", "too")
    assert first["low"] < first["estimate"]
    assert found[1]["properties"]["note"] == "not answered: no geometry"
    stated = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::4267"}}
    refused = client.post(f"{CITY}/answers", json=body | {"crs": stated})
    check_problem(refused, 400, "crs is 'urn:ogc:def:crs:EPSG::4267'")
    check_problem(client.post(f"{CITY}/answers?level=0.5", json={"boxes": [DEGREES]}), 400, "level is in the address")


def test_a_box_all_around_the_earth_is_not_empty(client):
    whole = client.get(f"{CITY}/answer?bbox=-180,40,180,41").json()
    assert whole["estimate"] == client.get(f"{CITY}/answer?bbox=-75,40,-73,41").json()["estimate"] > 0
