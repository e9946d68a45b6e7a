"""Where the map is: bounds in degrees with a projection that is chosen, grids, what they cannot be."""

import json

import numpy as np
import pytest

import deltahist as dh
from deltahist.space.crs import extent_of

CITY, ISLANDS = "-74.3,40.45,-73.6,40.95", "170,-50,-170,-30"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table of places in New York, on both sides of the antimeridian, and in Brussels."""
    monkeypatch.chdir(tmp_path)
    rows = ["-74,40.7", "-73.9,40.8", "179,-40", "-179,-40", "4.35,50.85"]
    (tmp_path / "p.csv").write_text("\n".join(["lon,lat", *rows, ""]))
    return tmp_path


def publish(bounds, *more, delta="5km"):
    line = ["publish", "p.csv", "--x", "lon", "--y", "lat", "--crs", "EPSG:4326", "--bounds", bounds]
    line += ["--delta", delta, "--epsilon", "1", "--strategy", "identity", "--out", "r.parquet", "--overwrite"]
    return [*line, "--outside", "clamp", *more]


def test_a_projection_is_chosen_for_degrees(folder, run):
    output, error = run(*publish(CITY, "--project", "auto", "--cell", "5km"))
    domain = dh.load("r.parquet").domain
    assert domain == dh.Domain.from_degrees(tuple(map(float, CITY.split(","))), "5km")
    assert "in EPSG:32618" in output
    assert "WGS 84 / UTM zone 18N; a metre on the ground is 0.99964 to" in output
    assert "3 points outside" in error


def test_bounds_across_the_antimeridian_are_one_map(folder, run):
    error = run(*publish(ISLANDS, "--project", "auto", "--cell", "100km", delta="100km")).err
    assert "2 points" not in error.splitlines()[1]
    domain = dh.load("r.parquet").domain
    assert domain.crs == "+proj=laea +lat_0=-39.7 +lon_0=180 +datum=WGS84 +units=m"
    assert domain.shape == (20, 23)


@pytest.mark.parametrize("bounds", ["3950000,3050100,3999999,3119000", "4,50.6,4.7,51.1"])
def test_cells_of_a_grid(folder, run, bounds):
    output, error = run(*publish(bounds, "--grid", "EPSG:3035/5km", delta="4.9km"))
    domain = dh.load("r.parquet").domain
    assert domain.crs == "EPSG:3035"
    assert domain.grid == 5000
    assert all(corner % 5000 == 0 for corner in domain.bounds)
    assert "5000 × 5000 m of the map, on the grid of their multiples; only δ is in ground metres" in output
    assert ("are taken as degrees: 38" in error) == bounds.startswith("4,")
    run("export", "r.parquet", "--out", "cells.csv")
    header, first = (folder / "cells.csv").read_text().splitlines()[:2]
    assert header.startswith("column,row,cell,")
    assert first.split(",")[2] == f"5kmN{int(domain.low[1]) // 1000}E{int(domain.low[0]) // 1000}"


def test_aligned_cells_are_those_of_the_grid(folder, run):
    bounds = "558910,4477940,618720,4534160"
    run(*publish(bounds, "--grid", "EPSG:32618/5km", delta="4.9km"))
    grid = dh.load("r.parquet").domain
    run(*publish(bounds, "--project", "EPSG:32618", "--cell", "5km", "--align", delta="4.9km"))
    assert dh.load("r.parquet").domain == grid
    run(*publish(CITY, "--project", "auto", "--cell", "5km", "--align", delta="4.9km"))
    assert dh.load("r.parquet").domain == grid
    assert grid.bounds == (555_000, 4_475_000, 620_000, 4_535_000)


def test_plans_and_streams_take_degrees_too(folder, run):
    line = ["plan", "--project", "auto", "--bounds", CITY, "--cell", "5km", "--delta", "5km", "--epsilon", "1"]
    output, error = run(*line, "--format", "json")
    assert json.loads(output)[0]["rmse"] > 0
    assert "EPSG:32618" in error
    (folder / "t.csv").write_text("t,lon,lat\n0,-74,40.7\n1,-73.9,40.8\n")
    line = ["stream", "t.csv", "--time", "t", "--start", "0", "--until", "1", "--window", "2", "--x", "lon", "--y"]
    line += ["lat", "--crs", "EPSG:4326", "--grid", "EPSG:32618/5km", "--bounds", CITY, "--delta", "4.9km"]
    line += ["--epsilon", "1", "--strategy", "identity", "--state", "s.ledger", "--out", "maps"]
    assert "on the grid of their multiples" in run(*line).out
    first = dh.load(sorted((folder / "maps").iterdir())[0])
    assert first.domain.grid == 5000


@pytest.mark.parametrize(
    ("bounds", "more", "words"),
    [
        (
            "558910,4477940,618720,4534160",
            ["--project", "auto"],
            ["558910", "in degrees", "--project EPSG:32618"],
        ),
        ("0,10", ["--project", "auto"], ["--y is 'lat'", "--bounds has two numbers"]),
        ("-180,-60,180,80", ["--project", "auto"], ["-180", "in one piece", "leave out an ocean"]),
        ("-180,-60,180,80", [], ["-180", "in one piece", "leave out an ocean"]),
        (ISLANDS, [], ["west 170 must be less", "--project auto"]),
        (ISLANDS, ["--project", "EPSG:3832"], ["west 170 must be less", "--project auto"]),
        (
            "-11,35,32,71",
            [],
            ["'EPSG:4326'", "--project auto, which is --project EPSG:3035 --bounds 2409000,"],
        ),
        (CITY, ["--project", "EPSG:32618"], ["smaller than a cell", "558910,4477940,", "--project auto"]),
        (CITY, ["--grid", "EPSG:3035"], ["'EPSG:3035'", "EPSG:3035/1km"]),
        (CITY, ["--grid", "EPSG:4326/1"], ["--grid is 'EPSG:4326/1'", "projected"]),
        (CITY, ["--grid", "nowhere/1km"], ["'nowhere'", "known CRS"]),
        (CITY, ["--grid", "EPSG:3035/wide"], ["'wide'", "250m"]),
        (CITY, ["--grid", "EPSG:32618/1km", "--project", "auto"], ["--project is 'auto' with --grid"]),
        (CITY, ["--grid", "EPSG:32618/1km", "--cell", "1km"], ["--cell is '1km' with --grid"]),
        (CITY, ["--grid", "EPSG:32618/0.3m"], ["step is 0.3", "halves"]),
    ],
)
def test_maps_that_cannot_be_are_refused_in_one_line(folder, refused, bounds, more, words):
    assert len(refused(publish(bounds, *more), *words).splitlines()) == 1
    assert not (folder / "r.parquet").exists()


def test_the_options_that_a_message_names_make_the_same_map(folder, run, refused):
    said = refused(publish(CITY), "which is ").split("which is ")[1].split()
    run(*publish(CITY, *said, "--cell", "5km"))
    assert np.array_equal(dh.load("r.parquet").domain.low, extent_of(tuple(map(float, CITY.split(",")))).low)
