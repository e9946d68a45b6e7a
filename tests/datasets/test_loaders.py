"""Loading a public file: the right one only, or nothing is left behind. No test uses the network."""

import gzip
import hashlib
import io
import socket

import pytest
import requests

from datasets import REGISTRY, DataError, load, registry
from datasets.registry import Entry

CSV = b"name,lat,lon\nfirst,40.5,-74.0\nsecond,41.0,-73.5\n"
OTHER = b"name,lat,lon\nfirst,40.5,-74.0\nsecond,41.0,-73.6\n"
TOWNS = "https://example.org/towns.csv"


def sha(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("the network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def serve(monkeypatch):
    """Let addresses answer with these files, and all others that they have none."""

    def answer(files):
        def get(url, **_):
            response = requests.Response()
            found = files.get(url)
            response.url, response.status_code = url, 404 if found is None else 200
            response.raw = io.BytesIO(found) if isinstance(found, bytes) else found
            return response

        monkeypatch.setattr(requests, "get", get)

    return answer


@pytest.fixture
def register(monkeypatch):
    """Register CSV as "towns" with the given addresses."""

    def add(*urls, excerpt="", content=CSV, parse=registry.table):
        facts = {"origin": "a test", "citation": "nobody", "licence": "none"}
        entry = Entry("towns", sha(content), len(content), urls, excerpt, parse=parse, **facts)
        monkeypatch.setitem(REGISTRY, "towns", entry)

    return add


def test_gzip_of_the_same_text_alone_is_taken(register, tmp_path):
    register()
    file, packed = tmp_path / "towns.csv.gz", gzip.compress(CSV, mtime=7)
    file.write_bytes(packed)
    assert load("towns", file).lat.tolist() == [40.5, 41.0]
    for content in (gzip.compress(OTHER), gzip.compress(bytes(10_000_000)), packed[:30], packed[:10] + b"\xff" * 20):
        file.write_bytes(content)
        with pytest.raises(DataError, match="towns"):
            load("towns", file)


def test_another_version_with_the_callers_hash(register, tmp_path):
    register(excerpt="the first half")
    file = tmp_path / "whole.csv"
    file.write_bytes(OTHER)
    with pytest.raises(DataError, match="the first half"):
        load("towns", file)
    table = load("towns", file, sha256=sha(OTHER).upper())
    assert table.lon.tolist() == [-74.0, -73.6]
    assert "the first half" not in table.attrs["excerpt"]
    with pytest.raises(DataError):
        load("towns", sha256=sha(OTHER))


def test_download_once_from_the_first_address_that_has_it(register, serve, tmp_path):
    register("https://example.org/absent.csv", TOWNS)
    cache = tmp_path / "new" / "cache"
    serve({TOWNS: CSV})
    assert len(load("towns", cache=cache)) == 2
    serve({})
    assert len(load("towns", cache=cache)) == 2  # from the cache
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("served", [CSV[:-9], CSV * 2, OTHER], ids=["truncated", "too long", "another"])
def test_refused_download_leaves_nothing_behind(register, serve, tmp_path, served):
    register(TOWNS)
    serve({TOWNS: served})
    with pytest.raises(DataError, match=f"expected {sha(CSV)} but got {sha(served)}"):
        load("towns", cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_spoilt_cache_is_noticed(register, serve, tmp_path):
    register(TOWNS)
    serve({TOWNS: CSV})
    load("towns", cache=tmp_path / "cache")
    next((tmp_path / "cache").iterdir()).write_bytes(OTHER)
    with pytest.raises(DataError, match="SHA-256"):
        load("towns", cache=tmp_path / "cache")
