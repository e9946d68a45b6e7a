"""The command line end to end, in process: publish, query, plan, inspect, plot, export, demo."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from fractions import Fraction
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from rich.cells import cell_len

import deltahist as dh
from deltahist.cli import app as run_module, console, main
from deltahist.cli.demo import PLACES

BOUNDS = (583_000, 4_505_000, 588_000, 4_509_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of visits in degrees, the same on the map, and a release of it."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(5)
    place = np.array(BOUNDS[:2]) + rng.random((3_000, 2)) * (5_000, 4_000)
    on_map = gpd.GeoSeries(gpd.points_from_xy(*place.T), crs="EPSG:32618")
    degrees = on_map.to_crs("EPSG:4326")
    visits = pd.DataFrame({"id": rng.permutation(3_000) % 500, "lon": degrees.x, "lat": degrees.y})
    visits.to_csv(folder / "visits.csv", index=False)
    visits.to_parquet(folder / "visits.parquet")
    visits.to_csv(folder / "bare.tsv", index=False, header=False, sep="\t")
    assert main(publish(folder, "visits.csv", "city.parquet")) == 0
    return folder


def publish(folder, source, out, *more, bounds=BOUNDS, epsilon="1", strategy="identity"):
    line = ["publish", str(folder / source), "--x", "lon", "--y", "lat"]
    line += ["--crs", "EPSG:4326", "--project", "EPSG:32618", "--bounds", ",".join(map(str, bounds))]
    line += ["--cell", "250m", "--delta", "500m", "--epsilon", epsilon, "--strategy", strategy]
    return [*line, *more, "--overwrite", "--out", str(folder / out)]


# publish


def test_publish_makes_the_release_that_was_asked_for(folder, run):
    output, error = run(*publish(folder, "visits.parquet", "again.parquet"))
    assert "Identity" in output
    assert "deltahist statement" in output
    assert "3,000" in error
    assert "3,000" not in output
    release = dh.Release.load(folder / "again.parquet")
    assert (release.domain.crs, release.domain.low) == ("EPSG:32618", BOUNDS[:2])
    assert release.neighbourhood.delta_cells == (2, 2)
    assert (release.epsilon, release.total, release.publishable) == (1, 3_000, True)
    assert np.abs(release.cells().sum() - 3_000) < 1e-6


@pytest.mark.parametrize(
    ("source", "more"), [("visits.parquet", []), ("bare.tsv", ["--x", "1", "--y", "2", "--user", "0"])]
)
def test_publish_bounds_users(folder, run, source, more):
    more = more or ["--user", "id"]
    assert "500 users" in run(*publish(folder, source, "users.parquet", *more, "--max-per-user", "2")).err
    release = dh.Release.load(folder / "users.parquet")
    assert release.contributions == 2
    assert release.total <= 1_000


def test_rho_and_gaussian(folder, run):
    out = folder / "rho.parquet"
    line = ["publish", folder / "visits.csv", "--x", "lon", "--y", "lat", "--bounds", "-75,40,-73,41.5"]
    line += ["--crs", "none"]
    line += ["--delta", "0.1", "--rho", "0.5", "--noise", "gaussian", "--strategy", "wavelet", "--out", out]
    line += ["--cells-per-delta", "1"]
    run(*line)
    release = dh.Release.load(out)
    assert release.rho == Fraction(1, 2)
    assert release.noise == "gaussian"
    assert release.domain.crs is None
    assert release.domain.shape == (20, 15)


def test_one_dimension_with_an_end_as_source(tmp_path, run):
    pd.DataFrame({"age": [3.0, 50.0, 99.0]}).to_csv(tmp_path / "ages.csv", index=False)
    line = ["publish", tmp_path / "ages.csv", "--x", "age", "--bounds", "0,100", "--delta", "5"]
    line += ["--cells-per-delta", "5", "--sources", "left", "--epsilon", "1"]
    run(*line, "--out", tmp_path / "a.parquet")
    release = dh.Release.load(tmp_path / "a.parquet")
    assert release.domain.shape == (100,)
    assert release.neighbourhood.delta_cells == (5,)
    assert release.total is None
    answer = json.loads(run("query", tmp_path / "a.parquet", "--box", "0,100", "--format", "json").out)["answers"]
    assert answer[0]["box"] == [0, 100]


def test_a_warning_names_what_is_probably_wrong(folder, run):
    far = (100_000, 4_000_000, 105_000, 4_004_000)
    error = run(*publish(folder, "visits.csv", "far.parquet", "--outside", "clamp", bounds=far)).err
    assert "warning: more than half of the points lie outside the bounds" in error
    assert "3,000 points outside" in error


def test_rows_of_a_condition_from_standard_input(folder, run, monkeypatch):
    visits = pd.read_csv(folder / "visits.csv")
    text = visits.to_json(orient="records", lines=True)
    for where, kept in (("id < 100", 600), ("id = 1000", 0)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        line = ["publish", "-", "--x", "lon", "--y", "lat", "--crs", "EPSG:4326", "--project", "EPSG:32618"]
        line += ["--bounds", ",".join(map(str, BOUNDS)), "--cell", "250m", "--delta", "500m", "--epsilon", "1"]
        error = run(*line, "--where", where, "--overwrite", "--out", folder / "few.parquet").err
        assert f"3,000 rows read, {kept:,} points counted" in error
        assert f"{3000 - kept:,} rows left out that are not {where}" in error
        assert ("warning: no row meets the condition" in error) == (kept == 0)
        release = dh.load(folder / "few.parquet")
        assert (release.total, release.counting.where) == (kept, where)
        assert f"only those where {where}" in run("statement", folder / "few.parquet").out


def test_library_warnings_are_one_line(tmp_path, run):
    line = ["plan", "--bounds", "0,100", "--delta", "5.2", "--cell", "1", "--epsilon", "1"]
    error = run(*line).err
    warning, limit = error.splitlines()  # and what is said of moves beyond δ
    assert warning.startswith("warning: delta is 5.2 cells, a little over 5")
    assert limit.startswith("limit ")
    with warnings.catch_warnings(record=True) as caught:  # the usual way is restored
        warnings.simplefilter("always")
        warnings.warn("later", dh.DeltaHistWarning, stacklevel=1)
    assert len(caught) == 1


# query


def test_formats_agree_with_the_library(folder, run):
    city, boxes = folder / "city.parquet", ["584000,4506000,585000,4507000", "584100,4506000,585050,4507000"]
    corners = np.array([list(map(float, box.split(","))) for box in boxes])
    expected = dh.answer(dh.Release.load(city), dh.workloads.boxes(corners))
    ask = ["query", city, "--box", boxes[0], "--box", boxes[1], "--format"]
    columns = ["estimate", "std_error", "low", "high", "noise_error", "placement_error", "cut", "inner", "outer"]
    as_json = pd.DataFrame(json.loads(run(*ask, "json").out)["answers"])
    assert list(as_json["name"]) == boxes
    assert as_json["box"].tolist() == corners.tolist()
    as_csv = pd.read_csv(io.StringIO(run(*ask, "csv").out))
    as_geojson = gpd.read_file(io.StringIO(run(*ask, "geojson").out))
    for frame in (as_json, as_csv, as_geojson):
        assert np.allclose(frame[columns], expected[columns])
    back = as_geojson.to_crs("EPSG:32618")
    assert np.allclose(back.geometry[0].bounds, corners[0], atol=0.1)
    table = run(*ask, "table").out.splitlines()
    assert table[0].split() == ["name", *(c for c in columns if c not in ("noise_error", "placement_error"))]
    assert max(map(len, table)) <= 120
    assert f"{expected['estimate'][1]:,.1f}" in table[3]


def save_unit(path):
    """A seeded release around the origin, on a plane without a CRS."""
    domain = dh.Domain((-4, -4, 4, 4), (8, 8))
    near = dh.Neighbourhood(domain, delta=1)
    dh.publish(np.ones((8, 8), dtype=int), near, "identity", epsilon=1, rng=np.random.default_rng(1)).save(path)


def test_level_and_output_file(folder, tmp_path, run):
    ask = ["query", folder / "city.parquet", "--box", "584000,4506000,585000,4507000", "--format", "json"]
    wide, narrow = (json.loads(run(*ask, "--level", level).out)["answers"][0] for level in ("0.99", "0.5"))
    assert wide["high"] - wide["low"] > 2 * (narrow["high"] - narrow["low"])
    assert run(*ask, "--out", tmp_path / "a.json").out == ""
    assert json.loads((tmp_path / "a.json").read_text())["answers"][0]["estimate"] == wide["estimate"]


# the others


def test_inspect(folder, run):
    release = dh.Release.load(folder / "city.parquet")
    assert run("statement", folder / "city.parquet").out.strip() == release.statement().strip()
    assert json.loads(run("statement", folder / "city.parquet", "--json").out) == json.loads(
        json.dumps(release.facts())
    )


def test_seeded_releases_are_pointed_out(tmp_path, run):
    save_unit(tmp_path / "seeded.parquet")
    assert "not for publication" in run("statement", tmp_path / "seeded.parquet").err


def test_plan_ranks_as_the_library_does(run):
    line = ["plan", "--bounds", "0,0,8,8", "--cell", "1", "--delta", "1", "--epsilon", "0.5"]
    found = json.loads(run(*line, "--format", "json").out)
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), delta=1)
    expected = dh.plan(near, epsilon=0.5)
    assert [f["strategy"] for f in found] == [c.label for c in expected]
    assert [f["rmse"] for f in found] == pytest.approx([c.rmse for c in expected])
    table = run(*line).out
    assert expected[0].label in table.splitlines()[4]
    assert "plus what is not measured" in table
    assert run(*line, "--squares", "4").out != table
    tripled = json.loads(run(*line, "--format", "json", "--max-per-user", "3").out)
    assert tripled[0]["rmse"] == pytest.approx(3 * found[0]["rmse"], rel=0.05)


def test_a_probability_lets_both_noises_in(folder, tmp_path, run):
    (tmp_path / "p.csv").write_text("x,y\n" + "\n".join(f"{i % 8 + 0.5},{i // 8 + 0.5}" for i in range(64)))
    line = ["publish", tmp_path / "p.csv", "--x", "x", "--y", "y", "--cell", "1", "--epsilon", "1"]
    line += ["--overwrite", "--out", tmp_path / "r.parquet"]
    line += ["--bounds", "0,0,16,16", "--delta", "6"]
    for more, noise in (
        (["--probability", "1e-6", "--noise", "laplace"], "laplace"),
        (["--probability", "1e-6", "--strategy", "spectral"], "gaussian"),
        (["--strategy", "flow:4"], "laplace"),
    ):
        run(*line, *more)
        release = dh.Release.load(tmp_path / "r.parquet")
        assert release.noise == noise
        assert release.approximate(1e-6) <= 1
    assert release.strategy.block == (4, 4)


def test_plan_shows_the_crossovers(run):
    line = ["plan", "--bounds", "0,0,32,32", "--cell", "1", "--delta", "1", "--epsilon", "1"]
    line += ["--probability", "1e-6", "--limit", "any:none", "--deltas", "1,8"]
    found = json.loads(run(*line, "--format", "json").out)
    best = {row["delta"]: row["strategy"].split()[0] for row in found if row["best"]}
    assert best == {"1.0": "Flow", "8.0": "Spectral"}
    assert {row["noise"] for row in found} == {"laplace", "gaussian"}
    assert [row["note"] for row in found if row["best"]][1] == "best, where Flow was"
    assert "kernel" not in json.dumps(found)


def test_cells_are_not_negative_unless_others_are_asked_for(tmp_path, run, monkeypatch):
    save_unit(tmp_path / "unit.parquet")
    release = dh.Release.load(tmp_path / "unit.parquet")
    drawn = {}
    monkeypatch.setattr("deltahist.plots.save_picture", lambda *given, **look: drawn.update(look))
    for more, positive in ((), True), (["--nonnegative"], True), (["--unbiased"], False):
        run("export", tmp_path / "unit.parquet", "--out", tmp_path / "cells.csv", *more)
        estimates = pd.read_csv(tmp_path / "cells.csv")["estimate"]
        cells, errors = release.estimates(nonnegative=positive)
        assert np.abs(estimates - cells.ravel()).max() <= errors.min() / 20
        run("plot", tmp_path / "unit.parquet", "--out", tmp_path / "map.png", *more)
        assert drawn["nonnegative"] == (positive if more else None)
    assert (release.cells() < 0).any()


def test_large_maps_are_unbiased_by_default_and_say_so(tmp_path, run, monkeypatch):
    save_unit(tmp_path / "unit.parquet")
    release = dh.Release.load(tmp_path / "unit.parquet")
    cells = release.domain.size
    monkeypatch.setattr("deltahist.releases.histogram.MOST_NONNEGATIVE", cells - 1)
    note = (
        f"note: estimates are unbiased: to find non-negative ones of {cells:,} cells, more than {cells - 1:,}, can "
        "take minutes (--nonnegative)"
    )
    monkeypatch.setattr("deltahist.plots.save_picture", lambda *given, **look: None)
    out = tmp_path / "cells.csv"
    assert note in run("export", tmp_path / "unit.parquet", "--out", out).err.splitlines()
    assert np.abs(pd.read_csv(out)["estimate"] - release.cells().ravel()).max() < 0.06
    for asked in ("", "--only curve", "--plain", "--unbiased", "--nonnegative"):
        said = run("plot", tmp_path / "unit.parquet", "--out", tmp_path / "a.png", *asked.split()).err
        assert (note in said.splitlines()) == (asked == "")
    said = run("export", tmp_path / "unit.parquet", "--out", out, "--nonnegative").err
    assert f"finding non-negative estimates of {cells:,} cells: this can take minutes" in said
    assert pd.read_csv(out)["estimate"].min() >= 0


def test_plot_and_export(folder, tmp_path, run):
    run("plot", folder / "city.parquet", "--out", tmp_path / "curve.svg", "--only", "curve")
    for form in ("csv", "gpkg"):
        run("export", folder / "city.parquet", "--out", tmp_path / f"cells.{form}")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".gpkg", ".svg"]


def districts(folder):
    """Two halves of the map, in degrees, and a road across."""
    west, south, east, north = BOUNDS
    middle = (west + east) / 2
    halves = shapely.box([west, middle], south, [middle, east], north)
    frame = gpd.GeoDataFrame({"ward": ["left", "right"]}, geometry=halves, crs="EPSG:32618")
    frame.to_crs("EPSG:4326").to_file(folder / "wards.gpkg")
    road = shapely.LineString([(west, south), (east, north)])
    gpd.GeoSeries([road], crs="EPSG:32618").to_file(folder / "road.geojson")
    return folder / "wards.gpkg", folder / "road.geojson"


def test_plot_draws_regions_with_their_intervals(folder, tmp_path, run, refused, monkeypatch):
    wards, road = districts(tmp_path)
    drawn = {}
    monkeypatch.setattr("deltahist.plots.save_picture", lambda *given, **look: drawn.update(look))
    line = ["plot", folder / "city.parquet", "--regions", wards, "--name", "ward", "--context", road]
    run(*line, "--out", tmp_path / "wards.png", "--per", "region", "--title", "Wards")
    asked = json.loads(
        run("query", folder / "city.parquet", "--regions", wards, "--name", "ward", "--format", "json").out
    )["answers"]
    assert drawn["answers"]["name"].tolist() == ["left", "right"]
    assert drawn["answers"]["estimate"].tolist() == pytest.approx([row["estimate"] for row in asked])
    assert [len(layer) for layer in drawn["context"]] == [1]
    assert (drawn["per"], drawn["axes"], drawn["title"]) == ("region", "km", "Wards")
    run("plot", folder / "city.parquet", "--per", "region", "--out", tmp_path / "cells.png")
    assert drawn["per"] == "cell"
    run(*line, "--out", tmp_path / "order.png", "--rank")
    assert drawn["answers"]["rank"].tolist() in ([1, 2], [1, 1])
    density = drawn["answers"]["estimate"] / drawn["answers"].to_crs("EPSG:32618").area
    assert density.is_monotonic_decreasing
    refused([*line[:2], "--out", tmp_path / "a.png", "--rank"], "--rank is given without --regions")


def test_a_drawing_of_two_districts_in_a_corner_shows_the_corner(folder, tmp_path, run):
    west, south, *_ = BOUNDS
    shapes = shapely.box([west, west + 600], south, [west + 600, west + 900], south + 700)
    corner = gpd.GeoDataFrame({"ward": ["Harbour", "Old town"]}, geometry=shapes, crs="EPSG:32618")
    corner.to_file(tmp_path / "corner.gpkg")
    line = ["plot", folder / "city.parquet", "--regions", tmp_path / "corner.gpkg", "--title", "In May " * 60]
    said = run(*line, "--out", tmp_path / "corner.svg")
    assert said.err.splitlines() == [f"wrote {tmp_path / 'corner.svg'}"]
    written = (tmp_path / "corner.svg").read_text()
    words = re.findall(r"<!-- (.*?) -->", written, re.DOTALL)
    northings = [float(word) for word in words if re.fullmatch(r"4\d{3}(\.\d+)?", word)]
    assert len(northings) > 1
    assert 4505 <= min(northings) <= max(northings) < 4506.5  # of 4 km
    assert any(word.startswith("Harbour") for word in words)
    title = [word for word in words if word.startswith(("In May", "May"))]  # a line each
    assert len(title) == 2
    assert title[1].endswith("…")


def test_demo_works_in_an_empty_folder(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    output = run("demo").out
    assert time.monotonic() - start < 20
    files = sorted(path.name for path in Path("deltahist-demo").iterdir())
    assert files == ["city.parquet", "city.png", "visits.csv"]
    assert "Privacy statement" in output
    assert "only because the city is made up" in output
    assert all(name in output for name in PLACES)
    release = dh.Release.load("deltahist-demo/city.parquet")
    assert release.contributions == 5
    assert release.publishable
    # The command that it shows for the next step works as it stands.
    query = next(line for line in output.splitlines() if "deltahist query" in line).split()[1:]
    assert json.loads(run(*query).out)["answers"][0]["std_error"] > 0


# the terminal


def test_a_table_keeps_names_as_they_are_and_its_columns_flush():
    lines = console.table(
        ["name", "count"],
        [["[bold]a", "1"], ["東京 :smile:", "1,000"], ["x" * 300, "2"], ["two\nlines \x1b[1m", "3"]],
    ).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["[bold]a", "東京", "x" * 300, "two"]
    assert lines[5].startswith("two lines  [1m  ")
    assert len(lines) == 6
    assert lines[0].split() == ["name", "count"]
    assert set(lines[1]) == {"-", " "}
    widths = [cell_len(line) for line in lines]
    assert widths[0] == widths[2] == widths[3] == widths[4] == widths[5]


def test_no_command_is_help(run):
    assert run().out == run("--help").out
    assert dh.__version__ in run("--version").out


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (MemoryError("5 GiB"), "out of memory 5 GiB: use larger cells"),
        (PermissionError(13, "Permission denied", "/data/x"), "/data/x: Permission denied"),
        (OSError("disk on fire"), "disk on fire"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_what_the_machine_refuses_is_one_line(monkeypatch, capsys, problem, words):
    def fail(arguments):
        raise problem

    monkeypatch.setattr(run_module, "invoke", fail)
    assert main(["statement", "x"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert words in error
    assert len(error.splitlines()) == 1


def test_programming_errors_keep_their_traceback(monkeypatch):
    def fail(arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(run_module, "invoke", fail)
    with pytest.raises(ZeroDivisionError):
        main(["statement", "x"])


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP], ids=["to end", "that its terminal was closed"])
def test_who_is_told_to_end_sweeps_up(tmp_path, told):
    """While the file is written; and what a process that was killed left long ago."""
    pd.DataFrame({"x": [1.0, 2.0], "y": [1.0, 3.0]}).to_csv(tmp_path / "v.csv", index=False)
    old = tmp_path / ".o.parquet.abcd1234.parquet"
    old.write_bytes(b"part")
    os.utime(old, (0, 0))
    place = ["--x", "x", "--y", "y", "--bounds", "0,0,4,4", "--cell", "1", "--delta", "1", "--epsilon", "1"]
    code = (
        f"import signal, sys, time\nimport deltahist.releases.base as base\nfrom deltahist.cli.app import main\n"
        f"signal.signal({told}, signal.SIG_DFL)\n"  # tests may run where it is ignored (nohup)
        f"sys.argv = {['deltahist', 'publish', 'v.csv', *place, '--strategy', 'identity', '--out', 'o.parquet']}\n"
        "real = base.write_parquet\n"
        "def slow(*given):\n    real(*given)\n    print('writing', flush=True)\n    time.sleep(60)\n"
        "base.write_parquet = slow\nsys.exit(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(dh.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        while b"writing" not in process.stdout.readline():
            assert process.poll() is None
        assert len(list(tmp_path.iterdir())) == 2  # the table and one part: the old one is gone
        process.send_signal(told)
        assert process.wait(20) == 128 + told
    assert [each.name for each in tmp_path.iterdir()] == ["v.csv"]
