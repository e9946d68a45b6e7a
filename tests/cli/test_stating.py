"""`deltahist statement`: printed, as data, and by suffix; of one release and of a folder."""

import json
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import deltahist as dh
from deltahist.cli import main

DAYS = [f"2020-03-{day:02}" for day in range(1, 8)]


@pytest.fixture
def city(tmp_path):
    near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1)
    dh.publish(np.ones((4, 4), dtype=int), near, "identity", epsilon=1).save(tmp_path / "city.parquet")
    return tmp_path / "city.parquet"


def test_the_statement_is_printed_or_written_by_suffix(city, run):
    out = city.with_name("statement.html")
    run("statement", city, "--out", out, "--title", "A <city>")
    assert "<h1>A &lt;city&gt;</h1>" in out.read_text(encoding="utf-8")
    release = dh.load(city)
    assert run("statement", city).out.strip() == dh.write_statement(release)
    assert json.loads(run("statement", city, "--json").out) == json.loads(json.dumps(dh.list_facts(release)))


@pytest.fixture
def year(tmp_path):
    """A stream of seven days, ε = 2 for any four of them."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"when": np.repeat(DAYS, 50), "x": rng.random(350) * 10, "y": rng.random(350) * 10})
    table.to_csv(tmp_path / "visits.csv", index=False)
    options = {
        "time": "when", "every": "1d", "start": DAYS[0], "until": DAYS[-1], "window": "4", "epsilon": "2",
        "x": "x", "y": "y", "bounds": "0,0,10,10", "cell": "2", "delta": "2", "strategy": "identity",
        "state": tmp_path / "city.ledger", "out": tmp_path / "city",
    }  # fmt: skip
    line = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    assert main(["stream", str(tmp_path / "visits.csv"), *line]) == 0
    return tmp_path


def test_a_folder_says_what_all_its_releases_cost(year, run):
    facts = json.loads(run("statement", year / "city", "--json").out)
    assert facts["epsilon"] == 3.5
    assert facts["promise"].startswith("7 releases, together ε = 3.5 for each point")
    assert facts["series"]["spent"] == dict.fromkeys(DAYS, 0.5)
    assert facts["series"]["together"]["epsilon"] == 3.5
    line = ["--between", DAYS[2], DAYS[3], "--compare", DAYS[0], DAYS[1], "--box", "0,0,4,4", "--format", "json"]
    change = json.loads(run("query", year / "city", *line).out)
    assert change["promise"].startswith("4 releases, together ε = 2 for each point")
    said = " ".join(run("statement", year / "city").out.split())
    assert "Any 4 consecutive steps of 1 day spend at most ε = 2 together" in said
    assert "All 7 releases together cost ε = 3.5" in said
    run("statement", year / "city", "--out", year / "year.html")
    assert (year / "year.html").read_text(encoding="utf-8").count("data:image/svg+xml") == 1


def test_missing_and_withdrawn_steps_are_named_and_what_was_spent_stays_spent(year, run):
    run("withdraw", year / "city" / f"{DAYS[2]}.parquet", "--reason", "rows of another city")
    (year / "city" / f"{DAYS[4]}.parquet").unlink()
    said = " ".join(run("statement", year / "city").out.split())
    assert "2020-03-03 (withdrawn on" in said
    assert "2020-03-05" in said
    assert "All 6 releases together cost ε = 3 " in said


def test_a_folder_is_drawn(year, run, monkeypatch):
    monkeypatch.chdir(year)
    halves = [shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they have no CRS
        gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=halves).to_file("halves.gpkg")
    run("plot", "city", "--out", "lines.svg", "--between", DAYS[1], DAYS[3], "--regions", "halves.gpkg")
    assert (year / "lines.svg").stat().st_size > 1000
