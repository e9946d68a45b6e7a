"""`deltahist query` with regions as people have them, and the files it writes."""

import io
import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely

import deltahist as dh

CITY = dh.Domain.from_cell((583_000, 4_505_000, 588_000, 4_509_000), "500m", "EPSG:32618")
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
    output, notes = run("query", folder / "city.parquet", "--regions", folder / "zones.geojson", "--out", out)
    assert not output
    assert "warning: of 5 regions 1 clipped to the map, 1 repaired, 2 not answered" in notes
    assert "columns low are called low_region" in notes
    found = read(out)
    with pytest.warns(dh.DeltaHistWarning):
        expected = dh.answer(dh.load(folder / "city.parquet"), gpd.read_file(folder / "zones.geojson"))
    assert found["name"].tolist() == found["zone"].tolist() == list("abcde")
    assert found["low_region"].tolist() == list(range(5))
    assert found["code"].isna().tolist() == [False, True, False, False, False]
    for column in ("estimate", "std_error", "low", "high", "outside"):
        assert np.allclose(found[column].astype(float), expected[column], equal_nan=True)
    assert found["note"].astype(object).where(found["note"].notna(), None).tolist() == [
        "clipped: 50% of its area lies outside the map",
        None,
        "repaired: self-intersection",
        "not answered: no geometry",
        "not answered: outside the map",
    ]
    if suffix in (".geojson", ".gpkg"):
        assert found.crs == ("EPSG:4326" if suffix == ".geojson" else "EPSG:32618")
        # The whole region, of which a part is answered.
        assert np.allclose(found.to_crs(CITY.crs).geometry[0].bounds, SHAPES[0].bounds, atol=0.1)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".txt"])
def test_nonnegative_answers_say_so_in_every_form(folder, tmp_path, suffix, run):
    ask = [folder / "city.parquet", "--box", "583000,4505000,584000,4507000", "--out"]
    run("query", *ask, tmp_path / f"unbiased{suffix}")
    run("query", *ask, tmp_path / f"other{suffix}", "--nonnegative")
    if suffix == ".txt":
        lines = (tmp_path / "other.txt").read_text().splitlines()
        assert lines[-2].startswith("Points, non-negative; low to high: 95% interval.")
        assert "estimator" not in lines[0]
        assert "\nPoints, unbiased; " in (tmp_path / "unbiased.txt").read_text()
    else:
        assert read(tmp_path / f"other{suffix}")["estimator"].tolist() == ["non-negative"]
        assert "estimator" not in read(tmp_path / f"unbiased{suffix}")


def test_layers(folder, run, refused):
    ask = [folder / "city.parquet", "--regions", folder / "atlas.gpkg"]
    assert json.loads(run("query", *ask, "--layer", "parks", "--format", "json")[0])["answers"][0]["zone"] == "c"
    refused(["query", *ask], "atlas.gpkg' has the layers districts, parks: choose one with --layer")
    refused(["query", *ask, "--layer", "lakes"], "districts, parks")
    refused(["query", folder / "city.parquet", "--box", "0,0,1,1", "--layer", "x"], "--layer is 'x'")


BOX = "585000,4506000,586000,4507000"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--out", "answers.shp"], ["'answers.shp'", ".gpkg", "--format must say"]),
        (["--out", "answers.csv", "--format", "gpkg"], ["'gpkg'", "'answers.csv', which says csv"]),
        (["--format", "parquet"], ["'parquet', which is not for terminals", "--out"]),
        (["--out", "no/answers.gpkg"], ["--out is 'no/answers.gpkg': its folder does not exist"]),
    ],
)
def test_forms_that_do_not_fit(folder, tmp_path, monkeypatch, more, words, refused):
    monkeypatch.chdir(tmp_path)
    refused(["query", folder / "city.parquet", "--box", BOX, *more], *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["geojson", "gpkg"])
def test_a_line_has_no_shapes(folder, tmp_path, form, run, refused):
    ask = [folder / "ages.parquet", "--box", "10,20"]
    refused(["query", *ask, "--out", tmp_path / f"a.{form}"], "in one dimension")
    run("query", *ask, "--out", tmp_path / "a.parquet")
    found = pd.read_parquet(tmp_path / "a.parquet")
    assert found.loc[0, ["box_low", "box_high"]].tolist() == [10, 20]


def test_a_form_may_be_said_where_the_suffix_says_nothing(folder, tmp_path, run):
    ask = [folder / "city.parquet", "--box", BOX]
    run("query", *ask, "--out", tmp_path / "answers", "--format", "csv")
    assert (tmp_path / "answers").read_text().startswith("name,west")
    run("query", *ask, "--out", tmp_path / "map.json", "--format", "geojson")
    assert json.loads((tmp_path / "map.json").read_text())["type"] == "FeatureCollection"
    run("query", *ask, "--out", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text().rstrip() == run("query", *ask)[0].rstrip()


def test_boxes_are_shapes_in_files_of_shapes(folder, tmp_path, run):
    run("query", folder / "city.parquet", "--box", BOX, "--out", tmp_path / "a.gpkg")
    found = read(tmp_path / "a.gpkg")
    assert found.geometry[0].equals(shapely.box(*map(float, BOX.split(","))))
    assert found.loc[0, ["west", "north"]].tolist() == [585_000, 4_507_000]


def test_boxes_in_degrees_are_taken_to_the_map(folder, tmp_path, run, refused):
    degrees = "-73.99,40.7,-73.97,40.72"
    output, notes = run("query", folder / "city.parquet", f"--box={degrees}", "--format", "json")
    assert "look like degrees, and the map is in EPSG:32618" in notes
    found = json.loads(output)["answers"][0]
    assert found["name"] == degrees
    assert found["box"] == [-73.99, 40.7, -73.97, 40.72]
    zone = gpd.GeoSeries([shapely.box(*found["box"])], crs="EPSG:4326")
    expected = dh.answer(dh.load(folder / "city.parquet"), zone)
    assert found["estimate"] == pytest.approx(expected["estimate"].iloc[0], abs=1)
    (tmp_path / "boxes.csv").write_text(f"name,west,south,east,north\nhere,{degrees}\n")
    output, _ = run("query", folder / "city.parquet", "--boxes", tmp_path / "boxes.csv", "--format", "csv")
    row = pd.read_csv(io.StringIO(output)).iloc[0]
    assert row["estimate"] == pytest.approx(found["estimate"])
    assert row[["name", "west", "north"]].tolist() == ["here", -73.99, 40.72]
    message = "with latitude and longitude swapped would be on it"
    refused(["query", folder / "city.parquet", "--box", "40.7,-73.99,40.72,-73.97"], message)


def test_boxes_in_degrees_among_others_are_named_as_the_cause(tmp_path, refused):
    domain = dh.Domain((580_000, 4_500_000, 590_000, 4_510_000), (10, 10), crs="EPSG:32618")
    counts, near = np.ones(domain.shape, dtype=int), dh.Neighbourhood(domain, delta=1000)
    dh.publish(counts, near, "identity", epsilon=1).save(tmp_path / "r.parquet")
    boxes = ["--box", "-74.01,40.70,-73.95,40.72", "--box", "583000,4505000,584000,4506000"]
    refused(["query", tmp_path / "r.parquet", *boxes], "it looks like degrees: give all boxes in degrees")


@pytest.mark.parametrize("form", ["table", "json", "geojson", "parquet", "gpkg"])
def test_answers_say_how_to_read_them(folder, tmp_path, form, run):
    release, out = dh.load(folder / "city.parquet"), tmp_path / f"a.{form.replace('table', 'txt')}"
    run("query", folder / "city.parquet", "--box", BOX, "--level", "0.5", "--out", out)
    if form == "table":
        *_, points, whose = out.read_text(encoding="utf-8").splitlines()
        assert points.startswith("Points, unbiased; low to high: 50% interval.")
        assert whose == f"Release {release.digest[:16]}: {release.mechanism.promise}."
        return
    if form == "json":
        said = json.loads(out.read_text(encoding="utf-8"))
        assert said["answers"][0]["box"] == list(map(float, BOX.split(",")))
    elif form == "geojson":
        said = json.loads(out.read_text(encoding="utf-8"))["deltahist_export"]
    elif form == "parquet":
        said = json.loads(pq.read_schema(out).metadata[b"deltahist_export"])
    else:
        said = pyogrio.read_info(out, layer="answers")["layer_metadata"]
        said["level"] = float(said["level"])
    assert (said["unit"], said["level"], said["estimator"]) == ("points", 0.5, "unbiased")
    assert (said["promise"], said["digest"]) == (release.mechanism.promise, release.digest)
    assert "Do not add std_error" in said["how_to_read"]


def test_csv_on_the_terminal_is_explained_beside_it(folder, run):
    said = run("query", folder / "city.parquet", "--box", BOX, "--format", "csv")
    assert len(said.out.splitlines()) == 2
    assert "Points, unbiased; low to high: 95% interval." in said.err


@pytest.mark.parametrize("suffix", [".csv", ".json", ".gpkg"])
def test_regions_come_in_order_with_how_sure_it_is_in_every_form(folder, tmp_path, suffix, run):
    ask = ["query", folder / "city.parquet", "--regions", folder / "zones.geojson", "--rank"]
    out = tmp_path / f"ranking{suffix}"
    run(*ask, "--out", out)
    found = read(out)
    assert found["estimate"].dropna().is_monotonic_decreasing
    assert found["rank"].dropna().tolist() == [1, 2, 3]
    assert found["rank"].isna().tolist() == [False] * 3 + [True] * 2
    assert (found["above_next"][:2] > 0.95).all()
    assert found["above_next"][2:].isna().all()
    table = run(*ask).out.splitlines()
    assert table[0].split()[:3] == ["name", "rank", "estimate"]
    assert [line.split()[1] for line in table[2:7]] == ["1", "2", "3", "-", "-"]
    assert "above_next" in table[-2]


def test_boxes_come_in_order_with_their_corners_and_names(folder, tmp_path, run):
    (tmp_path / "boxes.csv").write_text(
        "name,west,south,east,north\nsmall,584000,4506000,585000,4507000\nlarge,584000,4505500,588000,4508500\n"
    )
    metres = pd.read_csv(io.StringIO(run("query", folder / "city.parquet", "--boxes", tmp_path / "boxes.csv",
                                         "--rank", "--format", "csv").out))  # fmt: skip
    assert metres["name"].tolist() == ["large", "small"]
    assert metres["north"].tolist() == [4508500, 4507000]
    assert metres["rank"].tolist() == [1, 2]
    degrees = ["--box=-73.98,40.70,-73.975,40.705", "--box=-74,40.69,-73.97,40.72"]
    found = pd.read_csv(io.StringIO(run("query", folder / "city.parquet", *degrees, "--rank", "--format", "csv").out))
    assert found["west"].tolist() == [-74, -73.98]
    assert found["estimate"].is_monotonic_decreasing


def test_an_order_is_refused_of_what_has_no_joint_error(folder, tmp_path, refused):
    (tmp_path / "days").mkdir()
    near, rng = dh.Neighbourhood(CITY, "500m", "boundary"), np.random.default_rng(1)
    for day in (1, 2):
        counts = rng.integers(0, 9, CITY.shape)
        dh.publish(counts, near, "identity", epsilon=1).save(tmp_path / f"days/2010-05-0{day}.parquet")
    ask = ["query", tmp_path / "days", "--box=584000,4506000,585000,4507000", "--rank"]
    refused([*ask, "--each"], "--rank is given with --each")
    change = ["--between", *["2010-05-01"] * 2, "--compare", *["2010-05-02"] * 2]
    refused([*ask, *change], "--rank is given with --compare")
    refused(["query", folder / "ages.parquet", "--quantiles", "0.5", "--rank"], "--rank is given with --quantiles")


DISTRICTS = gpd.GeoSeries([shapely.box(584_000, 4_506_000, 586_000, 4_507_500)], crs="EPSG:32618")


@pytest.mark.parametrize("suffix", ["gpkg", "geojson"])
def test_metres_that_are_labelled_as_degrees_are_noted_and_answered_as_the_map_s(folder, tmp_path, run, suffix):
    DISTRICTS.set_crs(4326, allow_override=True).to_file(tmp_path / f"zones.{suffix}")
    ask = ["query", folder / "city.parquet", "--format", "csv", "--regions"]
    out, notes = run(*ask, tmp_path / f"zones.{suffix}")
    assert f"zones.{suffix}' says EPSG:4326, but its coordinates reach from 584000,4506000 to" in notes
    assert "degrees lie within ±180 and ±90, so that they are taken to be in EPSG:32618, as the map is" in notes
    DISTRICTS.to_file(tmp_path / "right.gpkg")
    expected, notes = run(*ask, tmp_path / "right.gpkg")
    assert out == expected
    assert "warning" not in notes


@pytest.mark.filterwarnings("ignore:'crs' was not provided")


@pytest.mark.filterwarnings("ignore:'crs' was not provided")
def test_commands_that_plan_take_the_crs_of_regions_and_one_layer_alone(folder, tmp_path, run, refused):
    DISTRICTS.to_crs(32619).set_crs(None, allow_override=True).to_file(tmp_path / "bare.gpkg")
    plan = ["plan", "--bounds", "583000,4505000,588000,4509000", "--project", "EPSG:32618", "--cell", "500m"]
    plan += ["--delta", "500m", "--epsilon", "1", "--regions"]
    assert "the 1 regions of" in run(*plan, tmp_path / "bare.gpkg", "--regions-crs", "EPSG:32619").out
    said = refused([*plan, folder / "atlas.gpkg"], "atlas.gpkg' has the layers districts, parks: make a file of one")
    assert "--layer" not in said


def test_boxes_with_the_latitude_first_are_refused_with_the_box_that_was_meant(folder, tmp_path, refused):
    ask = ["query", folder / "city.parquet"]
    refused([*ask, "--box=40.70,-73.98,40.705,-73.975"], "-73.98,40.7,-73.975,40.705; boxes are west, south, east")
    refused([*ask, "--box=4506000,584000,4507000,585000"], "swapped it would be: 584000,4506000,585000,4507000")
    tokyo = dh.Domain((380_000, 3_940_000, 390_000, 3_950_000), (10, 10), "EPSG:32654")
    dh.publish(np.ones((10, 10), dtype=int), dh.Neighbourhood(tokyo, 1000), epsilon=1).save(tmp_path / "tokyo.parquet")
    refused(
        ["query", tmp_path / "tokyo.parquet", "--box=35.65,139.7,35.67,139.72"],
        "it looks like degrees with the latitude first: give the longitude first, 139.7,35.65,139.72,35.67",
    )
    said = refused([*ask, "--box=10,10,11,11"], "0 of 1 regions are inside the domain")
    assert "swapped" not in said


def test_decimal_commas_in_a_box_are_named(folder, refused):
    refused(["query", folder / "city.parquet", "--box=-74,0,40,6,-73,9,40,7"], "decimals stand behind a point")
