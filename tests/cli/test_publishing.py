"""`deltahist publish`, `quantile` and `demo`: real files in, a release out."""

import io
import json
import sys
from types import SimpleNamespace

import duckdb
import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.cli.demo import PLACES
from deltahist.statement import list_facts
from tests.cli.conftest import PLANE

DEGREES = "-73.98,40.70,-73.90,40.76"
LINE = ["--x", "age", "--bounds", "0,120", "--delta", "5"]


@pytest.fixture(autouse=True)
def folder(visits):
    pd.read_csv("v.csv").to_parquet("v.parquet")
    return visits


def publish(run, *more, source="v.csv", out="r.parquet", budget=("--epsilon", "1")):
    run("publish", source, *more, *budget, "--out", out)
    return dh.load(out)


@pytest.mark.parametrize("source", ["v.csv", "v.parquet"])
def test_a_table_becomes_the_release_that_was_asked_for(run, source):
    release = publish(run, *PLANE, "--title", "Visits", source=source)
    assert (release.publishable, release.about.title) == (True, "Visits")
    assert (release.domain.shape, release.domain.bounds, release.epsilon) == ((8, 8), (0, 0, 8, 8), 1)
    assert (release.strategy.name, release.neighbourhood.delta, release.total) == ("Identity", 1, 400)
    # The noise of 64 cells is far below 400 points.
    table = pd.read_csv("v.csv")
    assert abs(release.cells()[:, :4].sum() - (table["y"] < 4).sum()) < 100
    assert dh.load("r.parquet").counting.contributions == 1


def test_the_statement_is_printed_or_written_by_suffix(run, folder):
    release = publish(run, *PLANE)
    run("statement", "r.parquet", "--out", "s.html", "--title", "A <city>")
    assert "<h1>A &lt;city&gt;</h1>" in (folder / "s.html").read_text(encoding="utf-8")
    assert run("statement", "r.parquet").out.strip() == dh.write_statement(release)
    assert json.loads(run("statement", "r.parquet", "--json").out) == json.loads(json.dumps(list_facts(release)))


def test_users_conditions_and_rows_that_are_left_out(run, folder):
    release = publish(run, *PLANE, "--user", "id", "--max-per-user", "3", "--where", "kind = 'tram'")
    assert (release.counting.contributions, release.counting.where) == (3, "kind = 'tram'")
    (folder / "bad.csv").write_text("x,y\n1,1\n,2\n99,99\n")
    dropped = ["--drop-bad-rows", "--outside", "drop", "--sources", "boundary"]
    release = publish(run, *PLANE, *dropped, source="bad.csv", out="d.parquet")
    assert release.total is None
    assert set(release.counting.dropped) == {"bad rows", "points outside"}


def test_standard_input_and_databases(run, folder, monkeypatch):
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BytesIO((folder / "v.csv").read_bytes()), isatty=lambda: False)
    )
    assert publish(run, *PLANE, source="-").total == 400
    with duckdb.connect("city.duckdb") as city:
        city.execute("CREATE TABLE visits AS SELECT * FROM 'v.csv'")
    assert publish(run, *PLANE, "--table", "visits", source="city.duckdb", out="t.parquet").total == 400


def test_a_projection_is_chosen_for_degrees(run):
    place = ["--x", "lon", "--y", "lat", "--crs", "EPSG:4326", "--project", "auto", "--bounds", DEGREES]
    release = publish(run, *place, "--cell", "1km", "--delta", "1km", "--strategy", "identity")
    assert release.domain.crs == "EPSG:32618"
    on_map = gpd.GeoSeries.from_xy(*(pd.read_csv("v.csv")[c] for c in ("lon", "lat")), crs="EPSG:4326").to_crs(32618)
    low, high = np.array(release.domain.low), np.array(release.domain.high)
    assert ((low <= on_map.total_bounds[:2]) & (on_map.total_bounds[2:] <= high)).all()


def test_cells_of_a_line_are_as_wide_as_delta(run):
    assert publish(run, *LINE).domain.cell == (5,)


@pytest.mark.parametrize(
    ("given", "limits"), [([], None), (["any:none"], ()), (["2:2", "any:3"], (2, 3)), (["any:4"], (4,))]
)
def test_longer_moves_are_capped(run, given, limits):
    place = [*PLANE[:6], "--cell", "1", "--crs", "none", "--delta", "1"]
    release = publish(run, *place, *(word for limit in given for word in ("--limit", limit)))
    factors = [each.factor for each in release.neighbourhood.profile]
    if limits is None:  # the usual cap
        assert factors[-1] == 4
    elif limits == ():
        assert factors == []
    else:
        assert factors[-1] == limits[-1]
        assert release.mechanism.any_move <= limits[-1]


def test_an_account_pays_and_refuses(run, refused, folder):
    account = ["--ledger", "l", "--account", "visits"]
    refused(["publish", "v.csv", *PLANE, "--epsilon", "1", "--out", "a.parquet", *account])  # no limit yet
    release = publish(run, *PLANE, *account, "--account-limit", "3")
    assert release.payment.account == "visits"
    publish(run, *PLANE, *account, out="b.parquet")
    refused(["publish", "v.csv", *PLANE, "--epsilon", "2", "--out", "c.parquet", *account])
    refused(["publish", "v.csv", *PLANE, "--rho", "0.1", "--out", "c.parquet", *account])
    assert not (folder / "c.parquet").exists()
    assert dh.Ledger("l").read_standing("visits").left == 1
    found = json.loads(run("ledger", "show", "l", "--json").out)
    assert [each["account"] for each in found] == ["visits"]
    more = ["--ledger", "l", "--account", "trips", "--account-limit", "1"]
    said = run("publish", "v.csv", *PLANE, "--epsilon", "1", "--out", "c.parquet", *more)
    assert "'trips' is new" in said.err
    assert "the 2 accounts of population 'everyone' have spent ε = 3 of 4 together" in said.out


def test_a_terminal_that_is_gone_after_the_charge_does_not_make_a_retry_pay_twice(refused, folder, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    account = ["--ledger", "l", "--account", "visits", "--account-limit", "3"]
    line = ["publish", "v.csv", *PLANE, "--epsilon", "1", "--out", "r.parquet", *account]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Full())
        assert main(line) == 2
    assert dh.load("r.parquet").payment.spent == 1
    refused(line, "already exists")
    assert dh.Ledger("l").spent("visits") == 1


def test_a_run_that_fails_after_its_charge_says_so(refused, folder, monkeypatch):
    def fail(*given, **named):
        raise OSError("disk on fire")

    monkeypatch.setattr("deltahist._files.write_parquet", fail)
    account = ["--ledger", "l", "--account", "visits", "--account-limit", "3"]
    line = ["publish", "v.csv", *PLANE, "--epsilon", "1", "--out", "r.parquet", *account]
    assert "the charge stays" in refused(line)
    assert dh.Ledger("l").read_standing("visits").spent == 1
    assert not (folder / "r.parquet").exists()


def test_a_dry_run_reads_and_writes_nothing(run, folder):
    before = set(folder.iterdir())
    out = run("publish", "none.csv", *PLANE, "--epsilon", "1", "--out", "r.parquet", "--dry-run").out
    assert "Privacy statement" in out
    assert "points (root mean square)" in out
    assert set(folder.iterdir()) == before


def test_points_in_order_are_asked_for_quantiles(run, refused, folder):
    run("sorted", "v.csv", *LINE, "--epsilon", "1", "--user", "id", "--max-per-user", "2", "--out", "r.parquet")
    release = dh.load("r.parquet")
    assert release.mechanism.number == 80
    run("query", "r.parquet", "--quantiles", "0.25,0.5", "--out", "q.csv")
    found = pd.read_csv("q.csv")
    assert found["q"].tolist() == [0.25, 0.5]
    assert found["estimate"].between(0, 120).all()
    refused(["sorted", "v.csv", *LINE, "--epsilon", "1", "--outside", "drop", "--out", "s.parquet"])
    refused(["sorted", "v.csv", "--x", "x", *PLANE[4:6], "--delta", "1", "--epsilon", "1", "--out", "s.parquet"])
    assert not (folder / "s.parquet").exists()


def test_a_quantile(run, refused, folder):
    line = ["quantile", "v.csv", *LINE, "--q", "0.5", "--epsilon", "1"]
    account = ["--ledger", "l", "--account", "ages", "--account-limit", "1.5"]
    out = run(*line, *account, "--out", "q.json").out
    found = json.loads((folder / "q.json").read_text())
    assert float(out.split()[0]) == pytest.approx(found["value"])
    assert 30 < found["value"] < 90
    refused([*line, *account])  # its answer would be lost with the terminal
    refused([*line, *account, "--out", "more.json"])  # 0.5 is left
    refused([*line, "--out", "q.json"])
    refused([*line, "--method", "mean"])


def test_the_demonstration_works_in_an_empty_folder(run, tmp_path):
    output = run("demo", "--out", "made-up").out
    files = {path.name for path in (tmp_path / "made-up").iterdir()}
    assert files == {"city.parquet", "city.png", "districts.geojson", "visits.csv"}
    assert all(name in output for name in PLACES)
    release = dh.load("made-up/city.parquet")
    assert release.publishable
    assert release.counting.contributions == 5
    # The command that it shows for the next step works as it is.
    query = next(line for line in output.splitlines() if "deltahist query" in line).split()[1:]
    assert json.loads(run(*query).out)["answers"][0]["std_error"] > 0
    run("demo", "--out", "made-up")
