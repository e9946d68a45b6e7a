"""The usual mistakes: each is refused before anything is drawn, charged or written, and the message has the cure."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main

LOW, SIDES = np.array([583_000, 4_505_000]), np.array([5_000, 4_000])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Visits in degrees, in metres and in kilometres; beside them a release."""
    folder = tmp_path_factory.mktemp("refusals")
    metres = LOW + np.random.default_rng(5).random((300, 2)) * SIDES
    degrees = gpd.GeoSeries(gpd.points_from_xy(*metres.T), crs="EPSG:32618").to_crs("EPSG:4326")
    columns = {"lon": degrees.x, "lat": degrees.y, "x": metres[:, 0], "y": metres[:, 1]}
    pd.DataFrame(columns | {"kmx": metres[:, 0] / 1000, "kmy": metres[:, 1] / 1000}).to_csv(
        folder / "visits.csv", index=False
    )
    out = {"--out": str(folder / "city.parquet")}
    assert main(list(map(str, line(folder / "visits.csv", out)))) == 0
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


def line(table, changes):
    options = GOOD | changes
    return ["publish", table, *(word for pair in options.items() if pair[1] is not None for word in pair)]


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


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_has_the_cure(table, place, run, refused, name):
    changes, words, cure = MISTAKES[name]
    assert len(refused(line(table, changes), *words).splitlines()) == 1
    assert list(place.iterdir()) == []
    run(*line(table, changes | cure))
    assert [file.name for file in place.iterdir()] == ["city.parquet"]


#: What is written behind a good command line, or behind a look at its release, and what is said of it.
CONTRADICTIONS = [
    ("--noise gaussian", "never pure"),
    ("--strategy spectral", "made for Gaussian noise"),
    ("--probability 2", "must lie between 0 and 1"),
    ("--probability many", "--probability"),
    ("--rho 1", "both --epsilon and --rho are given"),
    ("--drop-bad-rows --strategy flow", "keeps the number of points"),
    ("--ledger l", "--ledger without --account"),
    ("--limit 3", "--limit without --ledger and --account"),
    ("--ledger no/l --account a --limit 3", "--ledger is 'no/l': its folder does not exist"),
    ("--ledger l --account a --limit 0", "--limit is '0'"),
    ("--ledger l --account a --limit 3 --probability 1e-6", "do not add up"),
    ("plot --name ward", "--name is 'ward', but it is about --regions, which is missing"),
    ("plot --regions w.gpkg --only curve", "--only curve is given with --regions"),
    ("plot --regions w.gpkg --plain", "--plain is given with --regions"),
    ("plot --plain --nonnegative", "--plain is given with --nonnegative"),
    ("plot --context road.gpkg", "--context is 'road.gpkg': there is no such file"),
    ("plot --nonnegative --unbiased", "--nonnegative is given with --unbiased: it must be one of them"),
    ("export --nonnegative --unbiased", "--nonnegative is given with --unbiased: it must be one of them"),
]


@pytest.mark.parametrize(("more", "message"), CONTRADICTIONS)
def test_what_contradicts_itself_leaves_nothing(table, place, refused, more, message):
    first, *others = more.split()
    if first in ("plot", "export"):
        out = {"plot": "city.png", "export": "city.csv"}[first]
        refused([first, table.with_name("city.parquet"), *others, "--out", out], message)
    else:
        refused([*line(table, {}), first, *others], message)
    assert list(place.iterdir()) == []


COLUMN = ["--x", "x", "--bounds", "583000,588000", "--epsilon", "1"]


@pytest.mark.parametrize(
    "words",
    [
        ["publish", *COLUMN, "--delta", "50", "--out", "city.parquet"],
        ["publish", *COLUMN, "--delta", "50", "--sorted", "--out", "city.parquet"],
        ["quantile", *COLUMN, "--delta", "50", "--q", "0.5", "--out", "q.json"],
    ],
)
def test_what_is_published_is_not_replaced_unasked(table, place, run, refused, words):
    words = [words[0], table, *words[1:]]
    run(*words)
    before = (place / words[-1]).read_bytes()
    refused(words, f"'{words[-1]}', which exists already")
    assert (place / words[-1]).read_bytes() == before
    run(*words, "--overwrite")


def test_no_move_is_longer_than_the_map(table, refused):
    line = ["quantile", table, *COLUMN, "--q", "0.5", "--delta", "8000"]
    refused(line, "--delta is 8000, but the map is only 5,000 units across")


def paying(table, *more, account="checkins", **changed):
    changes = {f"--{name}": value for name, value in changed.items()}
    return [*line(table, changes), "--ledger", "city.ledger", "--account", account, *more]


def test_an_account_that_is_spent(table, place, run, refused):
    refused(paying(table), "--limit is missing: account 'checkins' is new")
    spent = "account 'checkins' of 'city.ledger' has ε = {} left"
    refused(paying(table, "--limit", "3", epsilon="4"), spent.format(3) + "; nothing was published")
    assert list(place.iterdir()) == []
    run(*paying(table, "--limit", "3"))
    run(*paying(table, out="b.parquet", epsilon="1.5"))  # the limit is known
    column = [*COLUMN[:-1], "0.25", "--delta", "50", "--ledger", "city.ledger", "--account", "checkins"]
    run("quantile", table, "--q", "0.5", *column)
    run("publish", table, "--sorted", "--out", "c.parquet", *column)
    refused(paying(table, out="d.parquet", epsilon="0.1"), spent.format(0))
    refused(["quantile", table, "--q", "1", *column], spent.format(0))
    changed = "opened with other parameters: epsilon was 3, is 5"
    refused(paying(table, "--limit", "5", out="d.parquet"), changed)
    assert sorted(file.name for file in place.iterdir()) == ["b.parquet", "c.parquet", "city.ledger", "city.parquet"]
    assert "'checkins' has spent ε = 2.5 of 3, this release with it" in run("inspect", "b.parquet").out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stream", "keeps a window of steps"),
        ("people", "keeps people's own budgets"),
        ("gauss", "keeps epsilon that may fail"),
        ("new", "is of kind 'stock'"),
    ],
)
def test_accounts_that_do_not_pay_for_a_release(table, place, refused, name, said):
    ledger = dh.Ledger("city.ledger")
    dh.Window(7, epsilon=3, ledger=ledger, name="stream")
    ledger.open("gauss", epsilon=3, probability=1e-6)
    ledger.account("people", {"kind": "purses", "unit": "epsilon"})
    ledger.account("new", {"kind": "stock"})
    refused(paying(table, account=name), said)


def test_a_run_that_fails_after_its_charge_says_so(table, place, refused, monkeypatch):
    def full(self, path):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as broken:
        broken.setattr(dh.Release, "save", full)
        charged = "account 'checkins' has spent ε = 1 of 3, this release with it, and 2 was left: the charge stays"
        error = refused(paying(table, "--limit", "3"), charged)
    assert error.splitlines()[-1] == "error: city.parquet: No space left on device"
    assert [file.name for file in place.iterdir()] == ["city.ledger"]
    refused(paying(table, epsilon="2.5"), "has ε = 2 left")


def test_a_run_that_fails_before_its_charge_leaves_no_ledger(table, place, run, monkeypatch):
    monkeypatch.setattr("deltahist.publishers.histogram._checked", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(*paying(table, "--limit", "3"))
    assert list(place.iterdir()) == []


def test_weak_protection_can_be_accepted(table, run, refused):
    assert "WEAK" not in run("inspect", table.with_name("city.parquet")).out
    weak = {"--epsilon": "10", "--out": "weak.parquet"}
    refused(line(table, weak | {"--sources": "boundary"}), "--weak-protection-accepted")
    run(*line(table, weak), "--weak-protection-accepted")
    said = run("inspect", "weak.parquet")
    assert said.out.startswith("WEAK PROTECTION: ")
    assert "May be published    only if everybody" in said.out
    assert "warning: weak.parquet hardly protects anybody" in said.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--x": "nope"}, "--x is 'nope': column 'nope' is not in"),
        ({"--where": "zz = 3"}, "column 'zz' is not in"),
        ({"--user": "nobody", "--max-per-user": "3"}, "--user is 'nobody'"),
        (None, "'absent.csv' does not exist"),
    ],
)
@pytest.mark.parametrize("command", ["publish", "stream"])
def test_a_mistake_is_told_before_anything_is_planned(table, refused, monkeypatch, command, changes, words):
    def plan(*given, **how):
        raise AssertionError("it was planned")

    monkeypatch.setattr("deltahist.planning.mechanism_for", plan)
    monkeypatch.setattr("deltahist.planning.plan_cells", plan)
    asked = line(table if changes is not None else "absent.csv", changes or {})
    if command == "stream":
        steps = "--time kmx --start 0 --until 3 --window 2 --state s.ledger"
        asked = ["stream", *asked[1:], *steps.split()]
    refused(asked, words)
