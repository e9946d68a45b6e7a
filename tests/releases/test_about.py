"""What a release says about itself: kept in its file and its copies, bounded, escaped, and shown everywhere."""

import datetime

import numpy as np
import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.plots import _make_figure
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue

PLANE = dh.Neighbourhood(dh.Domain((580000, 4500000, 588000, 4508000), (8, 8), "EPSG:32618"), 1000)
LINE = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1)
ABOUT = dh.About("<script>alert(1)</script>", "City & Co.", "maps@city.example", "CC BY 4.0")
KINDS = {
    "map": lambda **how: dh.publish(np.ones((8, 8), int), PLANE, "identity", 1, about=ABOUT, **how),
    "sorted": lambda **how: dh.publish_sorted(np.arange(8), LINE, 1, about=ABOUT, **how),
    "quantile": lambda **how: dh.publish_quantile(np.arange(8), 0.5, LINE, 1, about=ABOUT, **how),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_keeps_it_under_its_digest_and_a_seed_has_no_date(kind, tmp_path):
    before = datetime.datetime.now(datetime.UTC).date()
    (release := KINDS[kind]()).save(tmp_path / "r.parquet")
    again = dh.load(tmp_path / "r.parquet")
    assert (again.about, again.digest) == (release.about, release.digest)
    assert before <= datetime.date.fromisoformat(again.about.date) <= datetime.datetime.now(datetime.UTC).date()
    assert {**again.about.describe(), "date": None} == {**ABOUT.describe(), "date": None}
    assert dh.write_statement(again).startswith(ABOUT.title)
    page = dh.write_statement(again, "html")
    assert "<script" not in page
    assert "<h1>&lt;script&gt;" in page
    one, two = (KINDS[kind](rng=np.random.default_rng(1)) for _ in range(2))
    assert (one.about, one.digest) == (ABOUT, two.digest)


@pytest.mark.parametrize("text", ["", " ", "two\nlines", "\x1b[31m", "\u202e", "x" * 1001, 5])
def test_texts_are_one_printable_line(text):
    for name in ("title", "publisher", "contact", "licence"):
        with pytest.raises(dh.InputError, match=name):
            dh.About(**{name: text})


def test_finer_and_more_private_releases_keep_it(tmp_path):
    release = KINDS["map"](state=tmp_path / "s")
    for other in (dh.tighten(release, 0.5), dh.refine(release, tmp_path / "s", 2)):
        assert other.about == release.about


def test_pictures_and_services_show_it(tmp_path):
    KINDS["map"]().save(tmp_path / "city.parquet")
    texts = [text.get_text() for text in _make_figure(dh.load(tmp_path / "city.parquet"), "map").texts]
    assert ABOUT.title in texts
    assert any(text.endswith("\nCity & Co., CC BY 4.0") for text in texts)
    client = TestClient(create_app(Catalogue([tmp_path])))
    (listed,), described = client.get("/releases").json()["releases"], client.get("/releases/city").json()
    assert listed["about"] == described["about"] == described["statement"]["about"]
    assert ABOUT.describe().items() < listed["about"].items()
    assert "<h1>&lt;script&gt;" in client.get("/releases/city", headers={"accept": "text/html"}).text
    assert client.get("/collections/city").json()["title"] == ABOUT.title
