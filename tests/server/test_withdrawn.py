"""A service of releases of which some are withdrawn: 410 with the reason."""

import logging
import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.preprocessing import Correction, Preprocessing
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from tests.server.conftest import BOUNDS, check_problem

NEAR = dh.Neighbourhood(dh.Domain(BOUNDS, (4, 4), "EPSG:32618"), 2000, "boundary")
CELLS = dh.strategies.Identity(NEAR.domain)
BOX = "-74.02,40.66,-73.97,40.70"
REASON = "wrong column"


def publish(path, replaces=None):
    counting = Preprocessing(replaces=None if replaces is None else Correction(dh.load(replaces).digest, REASON))
    mechanism = dh.Mechanism(NEAR, CELLS, dh.Budget(1), counting)
    dh.publishers.publish_mechanism(mechanism, np.full((4, 4), 9)).save(path)


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """A folder of which a release is withdrawn and replaced, and one is in force."""
    folder = tmp_path_factory.mktemp("maps")
    publish(folder / "city.parquet")
    publish(folder / "city 2.parquet", replaces=folder / "city.parquet")
    dh.withdraw(folder / "city.parquet", REASON)
    return folder


@pytest.fixture
def folder(maps, tmp_path):
    return shutil.copytree(maps, tmp_path / "maps")


@pytest.fixture(scope="module")
def client(maps):
    with TestClient(create_app(Catalogue([maps]))) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "releases/city", "releases/city/download", f"releases/city/answer?bbox={BOX}", "releases/city/cells",
        f"releases/city 2/answer?bbox={BOX}&compare=city", "releases/city/explanation", "collections/city",
        "collections/city/items",
        "collections/city/items/3",
    ],
)  # fmt: skip
def test_everything_of_a_release_that_is_withdrawn_is_gone(client, path):
    answer = client.get(f"/{path}")
    check_problem(answer, 410, "release 'city' was withdrawn on ")
    about = answer.json()["withdrawn"]
    assert (about["reason"], about["replacement"]) == (REASON, "city 2")
    assert answer.headers["link"] == '</releases/city%202>; rel="successor-version"'
    assert answer.headers["cache-control"] == "no-cache"  # or a copy of it would be kept where a notice was a mistake


def test_a_notice_that_comes_and_goes_is_taken_up(folder, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("deltahist.server"), "disabled", False)
    catalogue, notice = Catalogue([folder]), folder / "city.withdrawn.json"
    client, written = TestClient(create_app(catalogue)), notice.read_text(encoding="utf-8")
    for content, status in (("", 200), (written, 410), (written[:40], 404), (written, 410)):
        notice.write_text(content, encoding="utf-8")
        if not content:
            notice.unlink()
        with caplog.at_level(logging.WARNING, "deltahist.server"):
            assert catalogue.refresh()
            assert not catalogue.refresh()
        assert client.get(f"/releases/city/answer?bbox={BOX}").status_code == status
    assert sum("may have been withdrawn" in each.getMessage() for each in caplog.records) == 1
