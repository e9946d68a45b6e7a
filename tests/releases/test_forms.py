"""Tables with shapes in the forms that other programs read."""

import io
import json
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pytest
import shapely

import deltahist as dh
from deltahist.releases.forms import FileTable, encode_table, save_layers

CITY = dh.Domain.from_cell((580_000, 4_495_000, 605_000, 4_525_000), "250m", "EPSG:32618")
PLANE = dh.Domain((0, 0, 10, 8), (10, 8))
SQUARE = shapely.box(585_000, 4_505_000, 588_000, 4_508_000)


def messy():
    """Columns as files have them, with gaps; names that a database takes to be its own, or to be the same."""
    return gpd.GeoDataFrame(
        {
            "name": ["a", "b"],
            "fid": [3, 3],
            "geom": ["x", "y"],
            "Zone": ["p", "q"],
            "zone": ["r", "s"],
            "code": pd.array([7, None], dtype="Int64"),
            "open": pd.array([True, None], dtype="boolean"),
            "when": pd.to_datetime(["2020-01-02", None]),
            "tags": [np.array(["u", "v"]), None],
            "middle": gpd.GeoSeries([shapely.Point(1, 2), None]),
            "estimate": [2.5, np.nan],
            "note": [None, "no geometry"],
        },
        geometry=[SQUARE, None],
        crs="EPSG:32618",
    ).to_crs("EPSG:4326")


ABOUT = {"title": "Answers", "how_to_read": "Do not add.", "promise": "ε = 1", "columns": {}}


def content_of(frame, form, domain, folder):
    """The bytes of a file with a table."""
    save_layers(folder / f"a.{form}", form, [FileTable("answers", frame, ABOUT, "answer")], domain)
    return (folder / f"a.{form}").read_bytes()


def read(content, form):
    if form == "parquet":
        return gpd.read_parquet(io.BytesIO(content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a file in memory has no suffix
        return gpd.read_file(io.BytesIO(content))


@pytest.mark.parametrize(
    ("form", "crs"), [("parquet", "EPSG:32618"), ("gpkg", "EPSG:32618"), ("geojson", "EPSG:4326")]
)
def test_rows_shapes_and_columns_come_back(form, crs, tmp_path):
    given = messy()
    if form == "geojson":  # its readers take the columns' case for nothing
        given = given.rename(columns={"zone": "area"})
    found = read(content_of(given, form, CITY, tmp_path), form)
    assert found.crs == crs
    assert found.geometry[1] is None
    assert np.allclose(found.to_crs(CITY.crs).geometry[0].bounds, SQUARE.bounds, atol=1e-3)
    assert found["estimate"][0] == 2.5
    assert np.isnan(found["estimate"][1])
    assert found["code"].astype(object).tolist()[0] == 7
    assert found["code"].isna().tolist() == [False, True]
    assert found["note"].isna().tolist() == [True, False]
    assert found["when"][0] == pd.Timestamp("2020-01-02")


def test_a_geopackage_has_a_named_layer_and_columns_of_its_own(tmp_path):
    content_of(messy(), "gpkg", CITY, tmp_path)
    assert pyogrio.list_layers(tmp_path / "a.gpkg")[:, 0].tolist() == ["answers"]
    found = gpd.read_file(tmp_path / "a.gpkg", layer="answers")
    assert found["fid"].tolist() == [3, 3]
    assert found["geom"].tolist() == ["x", "y"]
    assert found["Zone"].tolist() == ["p", "q"]
    assert found["zone_"].tolist() == ["r", "s"]
    assert json.loads(found["tags"][0]) == ["u", "v"]
    assert found["middle"][0] == "POINT (1 2)"


def test_texts_have_no_shapes_and_whole_numbers_stay_whole():
    rows = pd.read_csv(io.BytesIO(encode_table(messy(), "csv", CITY)), dtype=str)
    assert list(rows.columns) == [c for c in messy().columns if c != "geometry"]
    assert rows["code"][0] == "7"
    assert rows.loc[1, ["code", "open", "estimate"]].isna().all()
    assert rows["tags"][0] == '["u", "v"]'
    first, second = json.loads(encode_table(messy(), "json", CITY))["answers"]
    assert (first["code"], first["open"], first["tags"], first["note"]) == (7, True, ["u", "v"], None)
    assert first["when"] == "2020-01-02T00:00:00"
    assert (second["code"], second["open"], second["estimate"], second["when"]) == (None, None, None, None)


def test_a_table_without_shapes():
    frame = pd.DataFrame({"q": [0.5], "value": [3.0]})
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(encode_table(frame, "parquet", PLANE))), frame)


@pytest.mark.parametrize("form", ["parquet", "gpkg", "geojson"])
def test_a_plane_keeps_its_figures(form, tmp_path):
    frame = gpd.GeoDataFrame({"name": ["a"]}, geometry=[shapely.box(1, 2, 3, 4)])
    assert read(content_of(frame, form, PLANE, tmp_path), form).geometry[0].bounds == (1, 2, 3, 4)


def test_a_shape_without_a_place_on_the_map_is_left_out():
    frame = gpd.GeoDataFrame(
        {"name": ["here", "nowhere"]},
        geometry=[shapely.box(-74, 40, -73, 41), shapely.box(14, -91, 16, 95)],
        crs=4326,
    )
    assert read(encode_table(frame, "parquet", CITY), "parquet").geometry.isna().tolist() == [False, True]


def test_a_geopackage_is_of_a_version_that_older_programs_know(tmp_path):
    frame = gpd.GeoDataFrame({"name": ["a"]}, geometry=[shapely.box(0, 0, 1, 1)])
    content = content_of(frame, "gpkg", dh.Domain((0, 0, 4, 4), (4, 4)), tmp_path)
    assert int.from_bytes(content[60:64], "big") == 10200  # SQLite's user version


def test_geojson_is_that_of_an_encoder_of_features(monkeypatch):
    monkeypatch.setattr("deltahist.releases.forms._ROWS", 2)
    frame = pd.concat([messy(), messy(), messy()[:1]], ignore_index=True).drop(columns="zone")
    frame = frame.rename(columns={"Zone": '100 % "sure", %s'})
    frame["far"] = [1.0, 1e-7, np.inf, np.nan, 2.5e300]
    found = json.loads(encode_table(frame, "geojson", CITY, {"title": "all"}))
    plain = frame.assign(middle=frame["middle"].to_wkt())
    plain["far"] = plain["far"].replace(np.inf, np.nan)
    plain["when"] = plain["when"].map(lambda each: None if pd.isna(each) else each.isoformat()).astype(object)
    expected = json.loads(json.dumps(plain.to_geo_dict(na="null", drop_id=True), default=lambda each: each.tolist()))
    for one, other in zip(found["features"], expected["features"], strict=True):
        assert one["properties"] == other["properties"]
        assert one["geometry"] == other["geometry"]
    assert found["deltahist_export"] == {"title": "all"}


def test_numbers_in_csv_are_what_pandas_writes(tmp_path):
    frame = pd.DataFrame({"a": [1, -2, 3], "b": [0.1, np.nan, 1e-9], "c": [1e17, 2.0, -3.25]})
    content_of(frame, "csv", PLANE, tmp_path)
    plain = pd.read_csv(io.BytesIO(encode_table(frame, "csv", PLANE)))
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a.csv"), plain, check_dtype=False, rtol=0)
