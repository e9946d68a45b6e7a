"""A year on one page: `inspect`, `statement`, `plot` and `export` of a folder that `stream` wrote."""

import json
import shutil
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

from deltahist.cli import main

DAYS = [f"2020-03-{day:02}" for day in range(1, 8)]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A stream of seven days, ε = 2 for any four of them, and at most 4 for any six."""
    folder = tmp_path_factory.mktemp("year")
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"when": np.repeat(DAYS, 50), "x": rng.random(350) * 10, "y": rng.random(350) * 10})
    table.to_csv(folder / "visits.csv", index=False)
    options = {
        "time": "when", "every": "1d", "start": DAYS[0], "until": DAYS[-1], "window": "4", "epsilon": "2",
        "x": "x", "y": "y", "bounds": "0,0,10,10", "cell": "2", "delta": "2", "strategy": "identity",
        "state": folder / "city.ledger", "out": folder / "city",
    }  # fmt: skip
    line = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    assert main(["stream", str(folder / "visits.csv"), *line]) == 0
    halves = [shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they have no CRS
        gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=halves).to_file(folder / "halves.gpkg")
    return folder


@pytest.fixture
def year(published, tmp_path):
    """The same, for a test of its own."""
    return shutil.copytree(published, tmp_path / "year")


def words(text):
    return " ".join(text.split())


def test_a_folder_says_what_all_its_releases_cost(year, run):
    said = words(run("inspect", year / "city").out)
    assert "7 of 1 day, from 2020-03-01 to 2020-03-07" in said
    assert "every 4 steps in a row, of 1 day each, spend at most ε = 2 together" in said
    assert (
        "ε = 2 of 2 is spent in the 4 steps that end with 2020-03-07: nothing more may be published in this window; "
        "the next step may spend 0.5 from 2020-03-08 on." in said
    )
    assert "All 7 releases together cost ε = 3.5 for whoever is in every step" in said
    facts = json.loads(run("inspect", year / "city", "--json").out)
    costs = facts["series"]["costs"]
    assert costs["spans"] == [{"steps": 4, "limit": 2.0, "most_spent": 2.0, "spent": 2.0, "left": 0.0}]
    assert costs["next"] == {"step": "2020-03-08", "may_spend": 0.5}
    assert facts["epsilon"] == 0.5


def test_what_was_charged_and_is_not_there_counts(year, run):
    """The account's sums tell of a step in between, and only the ledger of the last one."""
    for day in (DAYS[4], DAYS[6]):
        (year / "city" / f"{day}.parquet").unlink()
    said = words(run("inspect", year / "city").out)
    assert "1 of them has no release, which is not the same as empty: 2020-03-05" in said
    assert "has charged ε = 0.5: for 2020-03-05 (lost, withdrawn or not handed on). It stays spent." in said
    assert "the next step may spend 0.5 from 2020-03-07 on" in said
    told = words(run("inspect", year / "city", "--ledger", year / "city.ledger").out)
    assert "ε = 2 of 2 is spent in the 4 steps that end with 2020-03-07" in told
    assert "the next step may spend 0.5 from 2020-03-08 on" in told
    assert "the ledger has charged ε = 1: for 2020-03-05, 2020-03-07" in told


def test_a_withdrawn_step_stays_spent(year, run):
    release = year / "city" / f"{DAYS[2]}.parquet"
    run("withdraw", release, "--reason", "rows of another city")
    said = words(run("inspect", year / "city").out)
    assert "2020-03-03 (withdrawn on" in said
    assert "All 7 releases together cost ε = 3.5" in said
    run("statement", year / "city", "--out", year / "year.md")
    text = (year / "year.md").read_text(encoding="utf-8")
    assert "| 2020-03-03, withdrawn | 1 | 0.5 | 0.5 |" in text


def test_the_statement_of_a_folder_is_one_page(year, run):
    out = year / "year.html"
    assert f"wrote {out}" in run("statement", year / "city", "--ledger", year / "city.ledger", "--out", out).err
    page = out.read_text(encoding="utf-8")
    assert "May be published: yes." in page
    assert "<h2>What all releases together cost</h2>" in page
    assert page.count("<table>") == page.count("<caption>") == 3
    assert page.count("data:image/svg+xml") == 2
    order = [page.index(each) for each in ("Small maps", "<h2>Protection by distance", "Curve of what a move costs")]
    assert order == sorted(order)
    assert "nothing more may be published in this window" in page
    run("statement", year / "city", "--out", year / "year.md")
    text = (year / "year.md").read_text(encoding="utf-8")
    assert "| 2020-03-01 to 2020-03-07 | 7 | 0.5 | 3.5 |" in text
    assert "| 4 | 2 | 2 | 2 | 0 |" in text
    printed = run("statement", year / "city").out
    assert printed == run("inspect", year / "city").out


def test_the_statement_of_one_step_says_what_its_account_had_spent(year, run):
    run("statement", year / "city" / f"{DAYS[-1]}.parquet", "--out", year / "one.md")
    plain = (year / "one.md").read_text(encoding="utf-8").split("## Protection by distance")[0]
    assert (
        "Its releases of the 4 steps that end with this one cost ε = 2 of 2 together, as known when this one was "
        "published: nothing more may be published in these steps." in plain
    )
    run("statement", year / "city" / f"{DAYS[1]}.parquet", "--out", year / "one.md")
    assert "1 was left for others in these steps." in (year / "one.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "more", "start"),
    [
        ("part.png", ("--between", DAYS[1], DAYS[2]), b"\x89PNG"),
        ("lines.svg", ("--regions", "halves.gpkg", "--between", DAYS[1], DAYS[3]), b"<?xml"),
        ("year.gif", ("--per", "region", "--between", DAYS[0], DAYS[1]), b"GIF89a"),
    ],
)
def test_a_folder_is_drawn(year, run, monkeypatch, name, more, start):
    monkeypatch.chdir(year)
    assert f"wrote {name}" in run("plot", "city", "--out", name, *more).err
    assert (year / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["export", "city", "--out", "cells.csv"], ["'city' is a folder", "deltahist query city --regions"]),
        (["plot", "city", "--out", "a.gif", "--regions", "halves.gpkg"], ["lines over time do not move"]),
        (["plot", "city", "--out", "a.png", "--only", "curve"], ["--only is given with a folder"]),
        (["plot", "city/2020-03-01.parquet", "--out", "a.png", "--between", "a", "b"], ["--between", "one release"]),
        (["plot", "city/2020-03-01.parquet", "--out", "a.gif"], ["its suffix must be one of .png, .svg, .pdf"]),
        (["inspect", "city/2020-03-01.parquet", "--ledger", "city.ledger"], ["deltahist ledger show"]),
        (["inspect", "city", "--ledger", "nowhere.ledger"], ["'nowhere.ledger' does not exist"]),
        (["statement", "city", "--out", "city/year.html"], ["in the folder that is read"]),
    ],
)
def test_what_does_not_go_is_refused_at_once(year, refused, monkeypatch, line, said):
    monkeypatch.chdir(year)
    before = sorted(year.rglob("*"))
    refused(line, *said)
    assert sorted(year.rglob("*")) == before
