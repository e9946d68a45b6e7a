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
