"""The usual mistakes: each is refused before anything is drawn, charged or written, and the message has the cure."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main

LOW, SIDES = np.array([583_000, 4_505_000]), np.array([5_000, 4_000])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Visits in degrees, in metres and in kilometres."""
    folder = tmp_path_factory.mktemp("refusals")
    metres = LOW + np.random.default_rng(5).random((300, 2)) * SIDES
    degrees = gpd.GeoSeries(gpd.points_from_xy(*metres.T), crs="EPSG:32618").to_crs("EPSG:4326")
    columns = {"lon": degrees.x, "lat": degrees.y, "x": metres[:, 0], "y": metres[:, 1]}
    pd.DataFrame(columns | {"kmx": metres[:, 0] / 1000, "kmy": metres[:, 1] / 1000}).to_csv(
        folder / "visits.csv", index=False
    )
    return folder / "visits.csv"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOOD = {
    "--x": "lon", "--y": "lat", "--crs": "EPSG:4326", "--project": "EPSG:32618", "--cell": "250m",
    "--bounds": "583000,4505000,588000,4509000", "--delta": "500m", "--epsilon": "1", "--strategy": "identity",
    "--out": "city.parquet",
}  # fmt: skip
PLAIN = {"--x": "x", "--y": "y", "--crs": None, "--project": None, "--cell": "250", "--delta": "500"}


def publish(table, changes, command="publish"):
    options = GOOD | changes
    return main([command, str(table), *(word for pair in options.items() if pair[1] is not None for word in pair)])


#: What is changed in a good command line, what the message must say, and what mends it.
MISTAKES = {
    "swapped columns": (
        {"--x": "lat", "--y": "lon"},
        ["300 of 300 points (100%)", "x and y are swapped", "--x lon --y lat", "--outside clamp"],
        {"--x": "lon", "--y": "lat"},
    ),
    "degrees said to be metres": (
        {"--crs": "EPSG:32618", "--project": None},
        ["the coordinates are degrees", "--crs EPSG:4326 --project EPSG:32618"],
        {"--crs": "EPSG:4326", "--project": "EPSG:32618"},
    ),
    "metres said to be degrees": (
        {"--x": "x", "--y": "y"},
        ["in EPSG:32618 already", "by --crs EPSG:32618"],
        {"--crs": "EPSG:32618"},
    ),
    "bounds in kilometres": (
        PLAIN | {"--bounds": "583,4505,588,4509", "--cell": "1", "--delta": "1"},
        ["1,000 times as large", "--bounds 583000,4505000,588000,4509000"],
        {"--bounds": "583000,4505000,588000,4509000", "--cell": "250", "--delta": "500"},
    ),
    "points in kilometres": (
        PLAIN | {"--x": "kmx", "--y": "kmy"},
        ["1,000 times as small", "--bounds 583,4505,588,4509"],
        {"--bounds": "583,4505,588,4509", "--cell": "0.25", "--delta": "0.5"},
    ),
    "bounds in degrees": (
        {"--bounds": "-74.1,40.6,-73.9,40.9", "--cell": "0.05", "--delta": "0.05"},
        ["the bounds are degrees", "--bounds 575800,4494740,593070,4528240"],
        {"--bounds": "575000,4494000,594000,4529000", "--cell": "250m", "--delta": "500m"},
    ),
    "points outside, dropped": (
        {"--bounds": "585000,4505000,588000,4509000", "--sources": "boundary"},
        ["--outside drop (with the boundary as a source)"],
        {"--outside": "drop"},
    ),
    "degrees without a CRS": (
        {"--crs": None, "--project": None, "--bounds": "-74.1,40.6,-73.9,40.9", "--cell": "0.01", "--delta": "0.01"},
        ["longitudes and latitudes", "add --crs EPSG:4326 --project auto, which is", "--bounds 575800,", "--crs none"],
        {"--crs": "EPSG:4326", "--project": "EPSG:32618", "--bounds": "575000,4494000,594000,4529000",
         "--cell": "500m", "--delta": "500m"},
    ),
    "degrees of the whole world, by the columns' names": (
        {"--crs": None, "--project": None, "--bounds": "-180,-90,180,90", "--cell": "1", "--delta": "1"},
        ["longitudes and latitudes", "the projected CRS of the region", "--crs none"],
        {"--crs": "none"},
    ),
    "plain numbers that are projected": (
        {"--crs": "none"},
        ["--crs is 'none' with --project EPSG:32618"],
        {"--crs": "EPSG:4326"},
    ),
    "no columns": (
        {"--x": None, "--y": None},
        ["needs columns for its coordinates: name x and y, as --x and --y"],
        {"--x": "lon", "--y": "lat"},
    ),
    "points outside dropped without a source": (
        {"--outside": "drop"},
        ["--outside is 'drop', but the boundary is no source", "--outside clamp, or declare --sources boundary"],
        {"--sources": "boundary"},
    ),
    "bounds with latitudes first": (
        {"--project": "auto", "--bounds": "40.68,-74.03,40.75,-73.95"},
        ["if --x is the longitude already, by --bounds -74.03,40.68,-73.95,40.75 (longitudes first)"],
        {"--project": "auto", "--bounds": "-74.03,40.68,-73.95,40.75", "--outside": "clamp"},
    ),
    "a release called as a table": (
        {"--out": "city.csv"},
        ["a release is a Parquet file, call it 'city.parquet'", "`deltahist export`"],
        {"--out": "city.parquet"},
    ),
    "an epsilon that protects nobody": (
        {"--epsilon": "10"},
        ["epsilon is 10", "can be 99.9955% sure", "with --weak-protection-accepted"],
        {"--epsilon": "1"},
    ),
    "a column that is missing": ({"--x": "long"}, ["--x is 'long': column 'long' is not in"], {"--x": "lon"}),
    "a decimal comma": ({"--epsilon": "0,5"}, ["--epsilon is '0,5'", "behind a point"], {"--epsilon": "0.5"}),
}  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"--sorted": ""}])
def test_a_release_is_not_replaced_unasked(table, place, capsys, more):
    line = {"--x": "x", "--bounds": "583000,588000", "--delta": "50", "--epsilon": "1", "--out": "city.parquet"}
    words = ["publish", str(table), *(w for pair in (line | more).items() for w in pair if w)]
    assert main(words) == 0
    before = (place / "city.parquet").read_bytes()
    assert main(words) == 2
    assert "'city.parquet', which exists already" in capsys.readouterr().err
    assert (place / "city.parquet").read_bytes() == before
    assert main([*words, "--overwrite"]) == 0
    assert (place / "city.parquet").read_bytes() != before


def test_neither_is_a_quantile(table, place, capsys):
    line = ["quantile", str(table), "--x", "x", "--q", "0.5", "--bounds", "583000,588000", "--epsilon", "1"]
    assert main([*line, "--delta", "50", "--out", "q.json"]) == 0
    assert main([*line, "--delta", "50", "--out", "q.json"]) == 2
    assert "'q.json', which exists already" in capsys.readouterr().err
    assert main([*line, "--delta", "50", "--out", "q.json", "--overwrite"]) == 0
    assert main([*line, "--delta", "8000"]) == 2
    assert "--delta is 8000, but the map is only 5,000 units across" in capsys.readouterr().err


def paying(table, *more, out="city.parquet", epsilon="1", account="checkins"):
    line = [word for pair in (GOOD | {"--epsilon": epsilon, "--out": out}).items() for word in pair]
    return main(["publish", str(table), *line, "--ledger", "city.ledger", "--account", account, *more])


def test_an_account_that_is_spent(table, place, capsys):
    assert paying(table) == 2
    assert "--limit is missing: account 'checkins' is new" in capsys.readouterr().err
    assert paying(table, "--limit", "3", epsilon="4") == 2
    assert "account 'checkins' of 'city.ledger' has ε = 3 left; nothing was published" in capsys.readouterr().err
    assert list(place.iterdir()) == []
    assert paying(table, "--limit", "3") == 0
    assert paying(table, out="b.parquet", epsilon="1.5") == 0  # the limit is known
    line = ["--x", "x", "--bounds", "583000,588000", "--delta", "50", "--epsilon", "0.25"]
    line += ["--ledger", "city.ledger", "--account", "checkins"]
    assert main(["quantile", str(table), "--q", "0.5", *line]) == 0
    assert main(["publish", str(table), "--sorted", "--out", "c.parquet", *line]) == 0
    capsys.readouterr()
    counts, quantile = {"out": "d.parquet", "epsilon": "0.1"}, ["quantile", str(table), "--q", "1", *line]
    for again in (lambda: paying(table, **counts), lambda: main(quantile)):
        assert again() == 2
        assert "account 'checkins' of 'city.ledger' has ε = 0 left" in capsys.readouterr().err
    assert paying(table, "--limit", "5", out="d.parquet") == 2
    assert "opened with other parameters: epsilon was 3, is 5" in capsys.readouterr().err
    assert sorted(file.name for file in place.iterdir()) == ["b.parquet", "c.parquet", "city.ledger", "city.parquet"]
    assert main(["inspect", "b.parquet"]) == 0
    assert "'checkins' has spent ε = 2.5 of 3, this release with it" in capsys.readouterr().out
    assert paying(table, "--limit", "1", account="other", out="e.parquet", epsilon="0.5") == 0
    capsys.readouterr()
    assert main(["ledger", "city.ledger"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[2].split()[:2] == ["checkins", "altogether"]
    assert rows[2].endswith("ε = 3    ε = 3    ε = 0")
    assert rows[3].endswith("ε = 1  ε = 0.5  ε = 0.5")
    assert main(["ledger", "city.ledger", "--json"]) == 0
    (first, second) = json.loads(capsys.readouterr().out)
    assert (first["left"], second) == (
        0, {"account": "other", "unit": "epsilon", "steps": None, "limit": 1, "spent": 0.5, "left": 0.5}
    )  # fmt: skip
    assert main(["ledger", "nobody.ledger"]) == 2
    assert "'nobody.ledger' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stream", "keeps a window of steps"),
        ("people", "keeps people's own budgets"),
        ("gauss", "keeps epsilon that may fail"),
        ("new", "is of kind 'stock'"),
    ],
)
def test_accounts_that_do_not_pay_for_a_release(table, place, capsys, name, said):
    ledger = dh.Ledger("city.ledger")
    dh.Window(7, epsilon=3, ledger=ledger, name="stream")
    ledger.open("gauss", epsilon=3, probability=1e-6)
    ledger.account("people", {"kind": "purses", "unit": "epsilon"})
    ledger.account("new", {"kind": "stock"})
    assert paying(table, account=name) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_fails_after_its_charge_says_so(table, place, capsys, monkeypatch):
    def full(self, path):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as broken:
        broken.setattr(dh.Release, "save", full)
        assert paying(table, "--limit", "3") == 2
    error = capsys.readouterr().err
    assert "account 'checkins' has spent ε = 1 of 3, this release with it: the charge stays" in error
    assert error.splitlines()[-1] == "error: city.parquet: No space left on device"
    assert [file.name for file in place.iterdir()] == ["city.ledger"]
    assert paying(table, epsilon="2.5") == 2
    assert "has ε = 2 left" in capsys.readouterr().err


def test_a_run_that_fails_before_its_charge_leaves_no_ledger(table, place, monkeypatch):
    monkeypatch.setattr("deltahist.publishers.histogram._checked", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        paying(table, "--limit", "3")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--ledger", "l"], "--ledger without --account"),
        (["--limit", "3"], "--limit without --ledger and --account"),
        (["--ledger", "no/l", "--account", "a", "--limit", "3"], "--ledger is 'no/l': its folder does not exist"),
        (["--ledger", "l", "--account", "a", "--limit", "0"], "--limit is '0'"),
        (["--ledger", "l", "--account", "a", "--limit", "3", "--probability", "1e-6"], "do not add up"),
    ],
)
def test_accounts_that_are_not_said_right(table, place, capsys, more, message):
    line = [word for pair in GOOD.items() for word in pair]
    assert main(["publish", str(table), *line, *more]) == 2
    assert message in capsys.readouterr().err
    assert list(place.iterdir()) == []


def test_weak_protection_can_be_accepted(table, place, capsys):
    publish(table, {})
    capsys.readouterr()
    assert main(["inspect", "city.parquet"]) == 0
    assert "WEAK" not in capsys.readouterr().out
    assert publish(table, {"--epsilon": "10", "--out": "weak.parquet", "--sources": "boundary"}) == 2
    line = [word for pair in (GOOD | {"--epsilon": "10", "--out": "weak.parquet"}).items() for word in pair]
    assert main(["publish", str(table), *line, "--weak-protection-accepted"]) == 0
    capsys.readouterr()
    assert main(["inspect", "weak.parquet"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("WEAK PROTECTION: ")
    assert "May be published    only if everybody" in said.out
    assert "warning: weak.parquet hardly protects anybody" in said.err


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_has_the_cure(table, place, capsys, name):
    changes, words, cure = MISTAKES[name]
    assert publish(table, changes) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    for word in words:
        assert word in line
    assert list(place.iterdir()) == []
    assert publish(table, changes | cure) == 0
    assert [file.name for file in place.iterdir()] == ["city.parquet"]
