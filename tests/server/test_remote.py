"""remote.py: a release behind a real service answers as its file does."""

import http.server
import threading
import time
import urllib.request
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from geopandas.testing import assert_geodataframe_equal
from pandas.testing import assert_frame_equal

import deltahist as dh
from deltahist import remote as remote_module
from tests.server.conftest import BOUNDS
from tests.serving import serving

W, S, E, N = BOUNDS
#: Districts with all that is wrong with such files: one crosses itself, one has no shape, two reach outside.
SHAPES = [
    shapely.box(-74.02, 40.66, -73.97, 40.70),
    shapely.Polygon([(-74.03, 40.65), (-74.01, 40.67), (-74.01, 40.65), (-74.03, 40.67)]),
    None,
    shapely.box(-74.1, 40.66, -74.0, 40.7),
    shapely.Point(-74.0, 40.67, 5.0).buffer(0.01),
    shapely.box(10, 50, 11, 51),
]
ZONES = gpd.GeoDataFrame({"zone": list("abcdef"), "low": range(6)}, geometry=SHAPES, crs="EPSG:4326")


@pytest.fixture(scope="module")
def service(published, mapped, tmp_path_factory):
    """Address of the service."""
    with serving(tmp_path_factory.mktemp("service") / "log", published, mapped) as (address, _):
        yield address


@pytest.fixture(scope="module")
def pairs(published, mapped, service):
    """A release of each kind, from its file and behind the service."""
    places, served = {"city": published, "line": published, "plane": mapped, "sorted": mapped}, f"{service}/releases"
    found = {name: (dh.load(at / f"{name}.parquet"), dh.connect(f"{served}/{name}")) for name, at in places.items()}
    for local, _ in found.values():
        if hasattr(local, "precompute_sums"):
            local.precompute_sums()  # sums are added in the same order, whatever was asked before
    return found


def told(ask):
    """The answer, or the error, and all warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = ask()
        except ValueError as problem:
            found = str(problem)
    return found, [str(each.message) for each in said]


def check_same(local, remote, queries, **how):
    (expected, words), (found, said) = told(lambda: dh.answer(local, queries, **how)), told(
        lambda: dh.answer(remote, queries, **how)
    )  # fmt: skip
    assert said == words
    if isinstance(expected, str):
        assert found == expected
        return
    same = assert_geodataframe_equal if isinstance(expected, gpd.GeoDataFrame) else assert_frame_equal
    same(found, expected)
    shape = [expected.geometry.name] if isinstance(expected, gpd.GeoDataFrame) else []
    # The ends of a region's interval depend, in the last digit, on the regions that are answered with it.
    ends = [column for column in ("low", "high") if column in expected]
    assert_frame_equal(found[ends], expected[ends], rtol=1e-12, atol=1e-9)
    rest = [column for column in expected if column not in [*shape, *ends]]
    assert_frame_equal(pd.DataFrame(found)[rest], pd.DataFrame(expected)[rest], check_exact=True)


QUERIES = {
    "a box of whole cells": [[W, S, W + 1000, S + 500]],
    "boxes that cut cells": dh.workloads.boxes([[W + 1, S + 2, W + 3000.1, S + 777.7], [W, S, E, N]]),
    "boxes in degrees": [[-74.02, 40.66, -73.97, 40.70], [-74.1, 40.66, -74.0, 40.7]],
    "a polygon": shapely.Point(W + 3000, S + 3000).buffer(1234.5),
    "a series without a CRS": gpd.GeoSeries([shapely.box(W - 9, S, W + 2500, N), shapely.Point(W, S)]),
    "a box outside": [[W, S, W + 500, S + 500], [W, S, E + 1, N]],
    "a region outside": dh.workloads.regions([shapely.box(W - 1, S, E, N)], ["west"]),
    "no question": "everywhere",
}


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_those_of_the_file(pairs, name):
    check_same(*pairs["city"], QUERIES[name])
    check_same(*pairs["city"], QUERIES[name], level=0.5, nonnegative=True)


def test_every_kind_of_release_is_asked(pairs):
    check_same(*pairs["city"], dh.workloads.all_ranges(pairs["city"][0].domain))
    check_same(*pairs["plane"], [[10, 0, 12.6, 4], [10, 0, 26, 8]])
    check_same(*pairs["plane"], [shapely.box(10.2, 0.1, 16, 4)], nonnegative=True)
    check_same(*pairs["line"], [[0, 8], [0.5, 3.3]])
    check_same(*pairs["line"], dh.workloads.all_ranges(pairs["line"][0].domain))
    check_same(*pairs["sorted"], [[0, 100], [5, 33.3]], level=0.8)
    none = dh.workloads.boxes(np.empty((0, 2)))
    assert list(dh.answer(pairs["line"][1], none)) == list(dh.answer(pairs["line"][0], none))


def test_pieces_are_put_together_in_order(pairs, monkeypatch):
    """Some pieces cut cells and others do not: their columns differ."""
    monkeypatch.setattr("deltahist.remote._MOST_QUERIES", 3)
    monkeypatch.setattr("deltahist.remote._MOST_VERTICES", 200)
    corners = dh.workloads.random_boxes(10, pairs["city"][0].domain).corners
    corners[3:9] = 500 * np.rint(corners[3:9] / 500) + [0, 0, 500, 500]
    corners[3:9] = np.clip(corners[3:9], [W, S, W, S], [E, N, E, N])
    for nonnegative in (False, True):
        check_same(*pairs["city"], corners, nonnegative=nonnegative)
        check_same(*pairs["city"], pd.concat([ZONES, ZONES[::-1], ZONES]), nonnegative=nonnegative)


def test_a_release_that_is_replaced_meanwhile_is_noticed(published, service):
    file = published / "changing.parquet"
    near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), delta=1)
    url = f"{service}/releases/changing"

    def serve():
        dh.publish(np.ones((4, 4), dtype=int), near, epsilon=1).save(file)
        end, digest = time.monotonic() + 60, dh.load(file).digest
        while time.monotonic() < end:
            with urllib.request.urlopen(f"{service}/releases", timeout=60) as answer:
                if digest in answer.read().decode():
                    return
            time.sleep(0.1)

    try:
        serve()
        remote = dh.connect(url)
        assert dh.answer(remote, [[0, 0, 4, 4]])["estimate"][0] == 16
        serve()
        for ask in (
            lambda: dh.answer(remote, [[0, 0, 4, 4]]), lambda: dh.answer(remote, [shapely.box(0, 0, 4, 4)]),
            remote.load,
        ):  # fmt: skip
            with pytest.raises(dh.InputError, match="connect again"):
                ask()
    finally:
        file.unlink()


# --- answers that are not to be trusted ---------------------------------------------------------------------

GOOD = {"estimate": [1.0, np.nan], "std_error": [1.0, 2.0], "low": [0.0, 0.0], "high": [2.0, 3.0]}


@pytest.mark.parametrize(
    "changed",
    [{}, {"estimate": ["a", "b"]}, {"estimate": [[1.0], [2.0]]}, {"\x1b[2J": [1.0, 2.0]}, None, b"ARROW1", b""],
)
def test_answers_that_cannot_be_read_are_refused(pairs, monkeypatch, changed):
    remote, content, asked = pairs["plane"][1], changed, [[10, 0, 11, 1], [10, 0, 12, 2]]
    if not isinstance(changed, bytes):
        table = pa.table(GOOD | changed if changed is not None else {"estimate": [1.0, 2.0]})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema.with_metadata({"digest": remote.digest})) as writer:
            writer.write_table(table.replace_schema_metadata({"digest": remote.digest}))
        content = sink.getvalue().to_pybytes()
    monkeypatch.setattr("deltahist.remote._send", lambda *given: content)
    if changed == {}:
        assert np.isnan(dh.answer(remote, asked)["estimate"][1])
        asked = asked[:1] * 3  # rows for other queries
    with pytest.raises(dh.InputError, match="cannot be read"):
        dh.answer(remote, asked)


def test_a_busy_service_is_waited_for_and_its_refusal_is_told(monkeypatch):
    answers = [503, 503, 200, 404]

    class Service(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(answers.pop(0))
            self.end_headers()
            self.wfile.write(b"here\x1b[2J")

        def log_message(self, *_):
            pass

    monkeypatch.setattr(time, "sleep", lambda _: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        assert remote_module._send(url, "*/*") == b"here\x1b[2J"
        with pytest.raises(dh.InputError, match="404") as refused:
            remote_module._send(url, "*/*")
        assert str(refused.value).isprintable()
        answers.append(200)
        with pytest.raises(dh.InputError, match="more than 3 bytes"):
            remote_module._send(url, "*/*", most=3)
        server.shutdown()
