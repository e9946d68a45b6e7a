"""`deltahist plan`: what it ranks and recommends is what the library ranks, and what `publish` takes."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import deltahist as dh

BOX = (583_000, 4_505_000, 593_000, 4_515_000)
MAP = ["--project", "EPSG:32618", "--bounds", ",".join(map(str, BOX)), "--epsilon", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    x, y = BOX[:2]
    shapes = [shapely.box(x + 100, y + 100, x + 4_100, y + 5_000), shapely.Point(x + 7_000, y + 5_000).buffer(2_100)]
    gpd.GeoDataFrame({"name": ["a", "b"]}, geometry=shapes, crs="EPSG:32618").to_crs("EPSG:4326").to_file(
        tmp_path / "districts.gpkg"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_strategies_are_ranked_as_the_library_does(run):
    line = ["plan", "--bounds", "0,0,8,8", "--cell", "1", "--delta", "1", "--epsilon", "1"]
    found = json.loads(run(*line, "--json").out)
    ranked = dh.plan(dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1), epsilon=1)
    assert [each["strategy"] for each in found] == [each.label for each in ranked]
    assert [each["rmse"] for each in found] == pytest.approx([each.rmse for each in ranked])
    assert "Recommended: cells of 1 × 1 units" in run(*line).out


def test_publish_takes_the_cells_that_were_planned(run, folder):
    rng = np.random.default_rng(4)
    places = pd.DataFrame({"x": rng.uniform(*BOX[::2], 200), "y": rng.uniform(*BOX[1::2], 200)})
    places.to_csv("p.csv", index=False)
    asked = ["--regions", "districts.gpkg", "--points", "20000", "--delta", "1km"]
    found = json.loads(run("plan", *MAP, *asked, "--json").out)
    rows = ["--x", "x", "--y", "y", "--crs", "EPSG:32618", "--out", "r.parquet"]
    run("publish", "p.csv", *rows, *MAP, *asked)
    assert dh.load("r.parquet").domain.size_of_cells == found[0]["cell"]
    said = run("plan", *MAP, *asked)
    assert f"cells of {found[0]['cell']}" in said.out
    assert "2 regions of districts.gpkg" in said.out


def test_several_choices_end_in_one_recommendation(run):
    line = ["plan", *MAP[:4], "--delta", "1km", "--epsilon", "0.5,1", "--regions", "districts.gpkg", "--points"]
    rows = json.loads(run(*line, "2e5", "--json").out)
    assert [(row["delta"], row["epsilon"]) for row in rows] == [(1000, 0.5), (1000, 1)]
    # All intervals are within 20%, so that the strongest protection is recommended.
    assert "Recommended: --delta 1000m --epsilon 0.5 " in run(*line, "2e5").out
    assert "No choice has" in run(*line, "100").out
