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
HOW = {"epsilon": 1, "about": dh.About("<script>alert(1)</script>", "City & Co.", "maps@city.example", "CC BY 4.0")}
KINDS = {
    "map": lambda **more: dh.publish(np.ones((8, 8), int), PLANE, "identity", **HOW, **more),
    "sorted": lambda **more: dh.publishers.publish_sorted(np.arange(8), LINE, **HOW, **more),
    "quantile": lambda **more: dh.publishers.publish_quantile(np.arange(8), 0.5, LINE, **HOW, **more),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_keeps_it_under_its_digest_and_a_seed_has_no_date(kind, tmp_path):
    (release := KINDS[kind]()).save(tmp_path / "r")
    again = dh.load(tmp_path / "r")
    assert (again.about, again.digest) == (release.about, release.digest)
    age = datetime.datetime.now(datetime.UTC).date() - datetime.date.fromisoformat(again.about.date)
    assert again.about.describe() == HOW["about"].describe() | {"date": again.about.date}
    assert age.days in (0, 1)  # a day may end meanwhile
    assert "<h1>&lt;script&gt;" in (page := dh.write_statement(again, "html"))
    assert "<script" not in page
    one, two = (KINDS[kind](rng=np.random.default_rng(1)) for _ in range(2))
    assert (one.about, one.digest) == (HOW["about"], two.digest)


@pytest.mark.parametrize("text", [" ", "two\nlines", "\x1b[31m", "\u202e", "x" * 1001, 5])
def test_texts_are_one_printable_line(text):
    for name in ("title", "publisher", "contact", "licence"):
        with pytest.raises(dh.InputError, match=name):
            dh.About(**{name: text})


def test_a_wrong_type_is_refused_before_the_charge(tmp_path):
    ledger = dh.Ledger(tmp_path / "a.ledger")
    account = dh.accounts.Account.total(epsilon=1, ledger=ledger, name="city")
    with pytest.raises(TypeError):
        dh.publish(np.ones((8, 8), int), PLANE, "identity", account=account, epsilon=1, about={"title": "a"})
    with pytest.raises(dh.InputError, match="does not exist"):  # so nothing is charged
        ledger.spent("city")


def test_copies_pictures_and_services_show_it(tmp_path):
    (release := KINDS["map"](state=tmp_path / "s")).save(tmp_path / "city.parquet")
    assert dh.tighten(release, 0.5).about == dh.refine(release, tmp_path / "s", 2).about == release.about
    above, below = (text.get_text() for text in _make_figure(release, "map").texts)
    assert (above, below.splitlines()[-1]) == (release.about.title, "City & Co., CC BY 4.0")
    client = TestClient(create_app(Catalogue([tmp_path])))
    (listed,), described = client.get("/releases").json()["releases"], client.get("/releases/city").json()
    assert listed["about"] == described["about"] == described["statement"]["about"] == release.about.describe()
