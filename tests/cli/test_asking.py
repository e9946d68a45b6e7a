"""cli/maps.py and cli/advise.py: what will be asked decides on strategy and cells, before a row is read."""

import json

import geopandas as gpd
import numpy as np
import pytest
import shapely

import deltahist as dh

BOX = (583_000, 4_505_000, 593_000, 4_515_000)
MAP = ["--project", "EPSG:32618", "--bounds", ",".join(map(str, BOX)), "--delta", "1km", "--epsilon", "1"]


@pytest.fixture(scope="module")
def districts(tmp_path_factory):
    """Districts in degrees, of which one reaches outside, one is elsewhere and one has no geometry."""
    x, y = BOX[:2]
    shapes = [shapely.box(x + 100, y + 100, x + 4_100, y + 5_000), shapely.Point(x + 7_000, y + 5_000).buffer(2_100)]
    shapes += [shapely.box(x - 3_000, y + 6_000, x + 2_000, y + 9_000), shapely.box(0, 0, 10, 10), None]
    file = tmp_path_factory.mktemp("asking") / "districts.geojson"
    frame = gpd.GeoDataFrame({"name": list("abcde")}, geometry=shapes, crs="EPSG:32618")
    frame.to_crs("EPSG:4326").to_file(file)
    return file


def test_cells_are_chosen_for_districts(run, districts, recwarn):
    found = json.loads(run("plan", *MAP, "--regions", districts, "--points", "200000", "--format", "json").out)
    assert {record["cell"] for record in found} == {"125 × 125 m"}
    text = run("plan", *MAP, "--regions", districts, "--points", "2000").out
    assert "cells by the whole error, for about 2,000 points" in text
    assert "over the 3 regions of" in text
    assert text.index("250 × 250 m") < text.index("125 × 125 m")  # few points: noise decides


def test_a_dry_run_reads_nothing(refused, run, tmp_path, districts, recwarn):
    out = tmp_path / "city.parquet"
    line = ["publish", tmp_path / "missing.csv", "--x", "lon", "--y", "lat", "--crs", "EPSG:4326", *MAP]
    text = run(*line, "--regions", districts, "--points", "200000", "--dry-run", "--out", out).out
    assert "would publish 81 × 81 cells of 125 × 125 m" in text
    assert "over the 3 regions of" in text
    assert "Privacy statement" in text
    assert not out.exists()
    refused([*line, "--out", out], "does not exist")
    line = ["publish", "a.csv", "--x", "a", "--bounds", "0,9", "--delta", "1", "--sorted", "--epsilon", "1"]
    refused([*line, "--dry-run", "--out", out], "--dry-run is given with --sorted")


def test_publish_takes_the_cells_that_were_planned(run, tmp_path):
    rng = np.random.default_rng(2)
    place = np.array(BOX[:2]) + rng.random((500, 2)) * 10_000
    (tmp_path / "visits.csv").write_text("x,y\n" + "\n".join(f"{x},{y}" for x, y in place))
    out = tmp_path / "city.parquet"
    line = ["publish", tmp_path / "visits.csv", "--x", "x", "--y", "y", "--crs", "EPSG:32618", *MAP, "--out", out]
    run(*line, "--squares", "2km", "--points", "500")
    release = dh.load(out)
    text = run("plan", *MAP, "--squares", "2km", "--points", "500", "--format", "json").out
    assert {record["cell"] for record in json.loads(text)} == {release.domain.size_of_cells}
    run(*line, "--overwrite", "--cell", "1km")
    assert dh.load(out).domain.shape == (11, 11)  # metres on the ground


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--ranges"], "--ranges is about whole cells, which are to be chosen: --cell must say"),
        (["--squares", "2km", "--ranges", "--cell", "1km"], "--squares and --ranges are both given"),
        (["--cell", "auto", "--cells-per-delta", "2"], "both --cell and --cells-per-delta are given"),
        (["--points", "-3"], "--points is '-3': it must be a finite number above zero"),
        (["--points", "many"], "--points is 'many'"),
    ],
)
def test_what_does_not_go_together(refused, more, message):
    refused(["plan", *MAP, *more], message)


def test_advice_in_words_and_as_data(refused, run, tmp_path):
    where = MAP[:4]
    asked = ["--points", "50000", "--deltas", "1km", "--epsilons", "0.5,2", "--squares", "3km"]
    text = run("advise", *where, *asked).out
    assert "A typical area of 9 km² holds 4,497 points" in text
    assert [line.partition(" ε = ")[0].split()[-1] for line in text.splitlines()[-2:]] == ["62%", "88%"]
    assert "--points is missing" not in text
    users = tmp_path / "activity.csv"
    users.write_text("points,users\n1,9000\n10,500\n")
    line = ["advise", *where, "--deltas", "1km", "--epsilons", "1", "--points-per-user", users, "--format", "json"]
    rows = json.loads(run(*line, "--max-per-user", "1,5").out)
    assert [(row["points_per_user"], row["points"]) for row in rows] == [(1, 9500), (5, 11500)]
    refused(line, "--max-per-user is missing")
    refused(["advise", *where, "--points", "100", "--ranges"], "--ranges is about whole cells")
    refused([*line, "--max-per-user", "1", "--points", "9"], "--points is given as well")


def test_advice_protects_what_it_is_asked_to(run):
    text = run("advise", *MAP[:4], "--protect", "trip", "--epsilons", "1").out
    assert "--points is missing: about 100,000 are assumed" in text
    assert [line.split(" m")[0].strip() for line in text.splitlines()[-3:]] == ["1,000", "2,000", "5,000"]


STREAM = ("--every", "1w", "--for", "52w")


def test_a_planned_stream_has_the_figures_of_its_dry_run(run, refused, tmp_path):
    where = [*MAP[:4], "--delta", "1km", "--cell", "1km", "--epsilon", "1", "--squares", "2km", "--points", "500"]
    how = [*where, "--window", "4", "--window-limit", "52:4"]
    (tmp_path / "v.csv").write_text("when,x,y\n")
    line = ["stream", tmp_path / "v.csv", "--every", "1w", "--start", "2020-01-06", "--until", "2021-01-03", *how]
    line += ["--state", tmp_path / "s.ledger", "--out", tmp_path / "out", "--dry-run"]
    published, planned = run(*line).out, run("plan", "--stream", *STREAM, *how).out
    assert planned.splitlines() == [line.partition(", 2020-01-06 to")[0] for line in published.splitlines()[:-1]]
    assert "each step    ε = 0.076923: `--window-limit 52:4` binds" in planned
    rows = json.loads(run("plan", "--stream", *STREAM, *how, "--format", "json").out)
    assert [(row["period"], row["steps"]) for row in rows] == [("step", 1), ("month", 4), ("year", 52)]
    assert rows[0]["errors"] is None  # of places that were drawn at random
    boxes = tmp_path / "b.csv"
    boxes.write_text("west,south,east,north,name\n584000,4506000,586000,4509000,fort\n")
    how[how.index("--squares")] = "--boxes"
    how[how.index("2km")] = boxes
    rows = json.loads(run("plan", "--stream", *STREAM, *how, "--format", "json").out)
    assert rows[1]["errors"] == {"fort": pytest.approx(rows[1]["error"])}
    assert rows[1]["points"] == {"fort": pytest.approx(4 * 500 * 6 / 121, rel=0.01)}  # cells reach out of the bounds
    refused(["plan", *STREAM, *where], "--every is given without --stream")
    refused(["plan", "--stream", *STREAM, *where], "--window is missing with --stream")
    refused(["plan", "--stream", *STREAM[:2], *how], "--for is missing")
    refused(["plan", "--stream", *STREAM[2:], *how], "--for is '52w' without --every")
    refused(["plan", "--stream", *STREAM[:3], "6d", *how], "--for is '6d': it must be from 1 to")
    refused(["plan", "--stream", *STREAM, *how, "--frontier"], "--frontier is given with --stream")
    refused(["plan", "--stream", *STREAM, *how, "--probability", "1e-6"], "--probability is given with --stream")


def test_advice_for_a_stream_tells_which_choice_to_take(run, refused):
    asked = [*MAP[:4], *STREAM, "--deltas", "1km", "--epsilons", "1", "--squares", "3km"]
    text = run("advise", *asked, "--points", "300").out
    choice = text.splitlines()[3]
    first = next(row for row in text.splitlines() if row.startswith("1,000 m"))
    assert "steps are of use: --delta 1000m --epsilon 1 --window 4 --cell" in choice
    assert "A step costs ε = 0.25, all 52 cost 13;" in choice
    assert "ε = 0.25       ε = 13" in first
    assert "yes" not in first
    text = run("advise", *asked, "--points", "10").out
    assert "All choices drown: the error of a square in a step is above its points." in text
    assert sum("yes; " in line for line in text.splitlines()) == 4
    assert "weeks would do." in text
    refused(["advise", *asked], "--points is missing with --every")
    users = ["--max-per-user", "1", "--points-per-user", "no.csv"]
    refused(["advise", *asked, *users], "--points-per-user is 'no.csv' with --every")
