"""`deltahist query` with regions as people have them, and the files it writes."""

import json
import shutil

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import deltahist as dh
from deltahist.releases.base import PLACED

CITY = dh.Domain((583_000, 4_505_000, 588_000, 4_509_000), cell="500m", crs="EPSG:32618")
BOW_TIE = shapely.Polygon([(584e3, 4506e3), (586e3, 4508e3), (586e3, 4506e3), (584e3, 4508e3)])
SHAPES = [
    shapely.box(582_000, 4_506_000, 584_000, 4_507_000),
    shapely.box(585_000, 4_506_000, 586_000, 4_507_500),
    BOW_TIE,
    None,
    shapely.box(700_000, 4_300_000, 705_000, 4_305_000),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A release, its districts in degrees with all that is wrong with such files, and an atlas of two layers."""
    folder = tmp_path_factory.mktemp("query")
    counts = np.random.default_rng(1).integers(0, 90, CITY.shape)
    dh.publish(counts, dh.Neighbourhood(CITY, "500m"), epsilon=1).save(folder / "city.parquet")
    columns = {"zone": list("abcde"), "code": pd.array([1, None, 3, 4, 5], dtype="Int64"), "low": range(5)}
    zones = gpd.GeoDataFrame(columns, geometry=SHAPES, crs="EPSG:32618").to_crs("EPSG:4326")
    zones.to_file(folder / "zones.geojson")
    zones[1:2].to_file(folder / "atlas.gpkg", layer="districts")
    zones[2:3].to_file(folder / "atlas.gpkg", layer="parks")
    line = dh.Neighbourhood(dh.Domain((0, 100), (100,)), 1)
    dh.publish(np.ones(100, dtype=int), line, epsilon=1).save(folder / "ages.parquet")
    return folder


def read(file):
    if file.suffix == ".json":
        return pd.DataFrame(json.loads(file.read_text())["answers"])
    if file.suffix == ".csv":
        return pd.read_csv(file)
    if file.suffix == ".gpkg":
        return gpd.read_file(file, layer="answers")
    return gpd.read_parquet(file) if file.suffix == ".parquet" else gpd.read_file(file)


@pytest.mark.parametrize("suffix", [".json", ".geojson", ".gpkg"])
def test_every_region_has_a_row_with_its_columns_in_every_form(folder, tmp_path, suffix, run):
    out = tmp_path / f"answers{suffix}"
    output, notes = run(
        "query", folder / "city.parquet", "--regions", folder / "zones.geojson", "--name", "zone", "--out", out
    )
    assert not output
    assert "warning: 4 of 5 regions are clipped" in notes
    found = read(out)
    with pytest.warns(dh.errors.DeltaHistWarning):
        expected = dh.answer(dh.load(folder / "city.parquet"), gpd.read_file(folder / "zones.geojson"))
    assert found["name"].tolist() == found["zone"].tolist() == list("abcde")
    assert found["low_region"].tolist() == list(range(5))
    assert found["code"].isna().tolist() == [False, True, False, False, False]
    for column in ("estimate", "std_error", "low", "high", "outside"):
        assert np.allclose(found[column].astype(float), expected[column], equal_nan=True)
    cut = "of its area lies in cut cells, where positions are assumed"
    assert found["note"].astype(object).where(found["note"].notna(), None).tolist() == [
        "clipped: 50% of its area lies outside the map",
        f"67% {cut}",
        f"repaired: self-intersection; 100% {cut}",
        "not answered: no geometry",
        "not answered: outside the map",
    ]
    if suffix in (".geojson", ".gpkg"):
        assert found.crs == ("EPSG:4326" if suffix == ".geojson" else "EPSG:32618")
        # The whole region, of which a part is answered.
        assert np.allclose(found.to_crs(CITY.crs).geometry[0].bounds, SHAPES[0].bounds, atol=0.1)
    assert list(tmp_path.iterdir()) == [out]


BOX = "585000,4506000,586000,4507000"


def test_a_line_has_no_shapes(folder, tmp_path, run, refused):
    ask = [folder / "ages.parquet", "--box", "10,20"]
    refused(["query", *ask, "--out", tmp_path / "a.gpkg"])
    run("query", *ask, "--out", tmp_path / "a.parquet")
    found = pd.read_parquet(tmp_path / "a.parquet")
    assert found.loc[0, ["box_low", "box_high"]].tolist() == [10, 20]


def test_boxes_in_degrees_are_taken_to_the_map(folder, tmp_path, run, refused):
    degrees = "-73.99,40.7,-73.97,40.72"
    output, _ = run("query", folder / "city.parquet", f"--box={degrees}", "--format", "json")
    found = json.loads(output)["answers"][0]
    assert found["name"] == degrees
    assert found["box"] == [-73.99, 40.7, -73.97, 40.72]
    zone = gpd.GeoSeries([shapely.box(*found["box"])], crs="EPSG:4326")
    expected = dh.answer(dh.load(folder / "city.parquet"), zone)
    assert found["estimate"] == pytest.approx(expected["estimate"].iloc[0], abs=1)
    (tmp_path / "boxes.csv").write_text(f"name,west,south,east,north\nhere,{degrees}\n")
    run("query", folder / "city.parquet", "--boxes", tmp_path / "boxes.csv", "--out", tmp_path / "a.csv")
    row = read(tmp_path / "a.csv").iloc[0]
    assert row["estimate"] == pytest.approx(found["estimate"])
    assert row[["name", "west", "north"]].tolist() == ["here", -73.99, 40.72]
    refused(["query", folder / "city.parquet", "--box", "40.7,-73.99,40.72,-73.97"])


def test_answers_say_how_to_read_them(folder, run):
    release, ask = dh.load(folder / "city.parquet"), [folder / "city.parquet", "--box", BOX, "--level", "0.5"]
    assert f"Release {release.digest[:16]}: {release.mechanism.promise}." in run("query", *ask).out
    said = json.loads(run("query", *ask, "--format", "json").out)
    assert said["answers"][0]["box"] == list(map(float, BOX.split(",")))
    assert (said["unit"], said["level"], said["estimator"]) == ("points", 0.5, PLACED)
    assert (said["promise"], said["digest"]) == (release.mechanism.promise, release.digest)


def test_a_layer_is_chosen(folder, run, refused):
    ask = [folder / "city.parquet", "--regions", folder / "atlas.gpkg"]
    assert json.loads(run("query", *ask, "--layer", "parks", "--format", "json").out)["answers"][0]["zone"] == "c"
    refused(["query", *ask])
    refused(["query", *ask, "--layer", "lakes"])


# folders of a stream

NEAR = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1, "boundary")
BOXES = ["--box", "0,0,2,2", "--box", "1,1,4,4"]


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    days = tmp_path_factory.mktemp("city")
    for day in (1, 2, 3, 5, 6):
        dh.publish(np.full((4, 4), day), NEAR, "identity", 1.0).save(days / f"2010-05-0{day}.parquet")
    return days


@pytest.fixture
def ask(run, days, tmp_path):
    """Ask for two boxes of a folder; return the answers and the notes."""

    def ask(*more):
        said = run("query", days, *BOXES, "--out", tmp_path / "answers.csv", *more)
        return pd.read_csv(tmp_path / "answers.csv"), said.err

    return ask


def test_a_period_is_summed(days, ask):
    found, _ = ask("--between", "2010-05-01", "2010-05-03")
    series = dh.Series.load(days).between("2010-05-01", "2010-05-03")
    expected = dh.answer(series, [[0, 0, 2, 2], [1, 1, 4, 4]])
    pd.testing.assert_frame_equal(found[list(expected.columns)], expected, check_dtype=False)
    mean, _ = ask("--between", "2010-05-01", "2010-05-03", "--mean")
    assert np.allclose(mean["estimate"], found["estimate"] / 3)


def test_missing_steps_stop_or_are_skipped(days, ask, refused):
    refused(["query", days, *BOXES], "2010-05-04")
    found, note = ask("--skip-missing")
    assert found["steps"].tolist() == [5, 5]
    assert "2010-05-04" in note


def test_a_row_for_each_step(ask):
    found, note = ask("--each", "--between", "2010-05-03", "2010-05-05")
    assert found["step"].tolist() == [f"2010-05-0{day}" for day in (3, 3, 4, 4, 5, 5)]
    assert found["name"].tolist() == ["0,0,2,2", "1,1,4,4"] * 3
    assert found["estimate"].isna().tolist() == [False, False, True, True, False, False]
    assert "2010-05-04" in note


def test_two_periods_are_compared(ask):
    line = ["--between", "2010-05-05", "2010-05-06", "--compare", "2010-05-01", "2010-05-03"]
    found, note = ask(*line)
    assert np.allclose(found["after"] - found["before"], found["estimate"])
    assert "3 and 2 steps" in note
    assert "sums of" not in ask(*line, "--mean")[1]


@pytest.mark.parametrize(
    "more",
    [
        ["--box", "0,1"],
        [*BOXES, "--out", "a.shp"],
        [*BOXES, "--each", "--mean"],
        [*BOXES, "--nonnegative", "--compare", "2010-05-01", "2010-05-02"],
        [*BOXES, "--compare", "2010-05-01", "2010-05-02"],
        [*BOXES, "--between", "2010-05-03", "2010-05-01"],
    ],
    ids=" ".join,
)
def test_mistakes(days, refused, monkeypatch, tmp_path, more):
    monkeypatch.chdir(tmp_path)
    refused(["query", days, *more])
    refused(["query", days / "2010-05-01.parquet", *BOXES, "--mean"])  # a single release has no steps
    assert not list(tmp_path.iterdir())
    release = shutil.copy(days / "2010-05-01.parquet", tmp_path)
    refused(["query", days, *BOXES, "--out", release], "already exists")
