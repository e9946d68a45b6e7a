"""Files of geometries: layers, columns with gaps, and which of them names the regions."""

import json

import geopandas as gpd
import pandas as pd
import pyogrio
import pytest
import shapely

import deltahist as dh
from deltahist.space.geometries import named, read_box_file, read_geometries, read_shapes, read_sources

PLANE = dh.Domain((0, 0, 10, 8), (10, 8))
SQUARES = [shapely.box(i, 0, i + 1, 1) for i in range(3)]


def write(path, shapes, **columns):
    features = [
        {
            "type": "Feature",
            "properties": {name: values[i] for name, values in columns.items()},
            "geometry": None if shape is None else shapely.geometry.mapping(shape),
        }
        for i, shape in enumerate(shapes)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_of_several_layers_one_is_chosen(tmp_path):
    """A table of styles, as map programs leave it, is none; nor has every file some."""
    file, only, flat = tmp_path / "atlas.gpkg", tmp_path / "styles.gpkg", tmp_path / "z.parquet"
    for layer, number in (("districts", 3), ("parks", 1)):
        frame = gpd.GeoDataFrame({"label": list("abc")[:number]}, geometry=SQUARES[:number], crs="EPSG:32618")
        frame.to_file(file, layer=layer)
        pyogrio.write_dataframe(pd.DataFrame({"style": ["<qgis/>"]}), file, layer="layer_styles")
        if layer == "districts":
            assert read_geometries(file, PLANE)["label"].tolist() == list("abc")
    assert [len(read_geometries(file, PLANE, layer=layer)) for layer in ("parks", "districts")] == [1, 3]
    pyogrio.write_dataframe(pd.DataFrame({"style": ["<qgis/>"]}), only, layer="layer_styles")
    frame.to_parquet(flat)
    for given, layer, words in (
        (file, None, "'.*atlas.gpkg' has the layers districts, parks: choose one with layer="),
        (file, "lakes", "layer is 'lakes': it must be one of .*atlas.gpkg', districts, parks"),
        (only, None, "without geometries"),
        (flat, "a", "layer is 'a': .*z.parquet', which has none"),
    ):
        with pytest.raises(dh.InputError, match=words):
            read_geometries(given, PLANE, layer=layer)


@pytest.mark.parametrize("form", ["geojson", "parquet", "shp"])
def test_whole_numbers_and_truths_stay_so_where_some_are_missing(tmp_path, form):
    file = write(
        tmp_path / "z.geojson", SQUARES, code=[7, None, 9], open=[True, False, None], share=[0.5, None, 1.0]
    )
    if form == "parquet":
        frame = read_geometries(file, PLANE)
        frame.astype({"code": float}).to_parquet(tmp_path / "floats.parquet")
        assert read_geometries(tmp_path / "floats.parquet", PLANE)["code"].dtype == float
        frame.to_parquet(file := tmp_path / "z.parquet")
    elif form == "shp":
        frame = read_geometries(file, PLANE).drop(columns="open").set_crs("EPSG:32618")
        frame.to_file(file := tmp_path / "z.shp")
    found = read_geometries(file, PLANE)
    assert found["code"].dtype == "Int64"
    assert found["code"].astype(object).where(found["code"].notna(), None).tolist() == [7, None, 9]
    assert found["share"].dtype == float
    assert form == "shp" or found["open"].dtype == "boolean"


def test_rows_without_geometry_are_kept_unless_all_are(tmp_path):
    file = write(tmp_path / "z.geojson", [SQUARES[0], None], zone=["a", "b"])
    assert read_geometries(file, PLANE)["zone"].tolist() == ["a", "b"]
    assert read_sources(str(file), PLANE).equals(SQUARES[0])
    with pytest.raises(dh.InputError, match="has no geometries"):
        read_geometries(write(tmp_path / "n.geojson", [None, None], zone=["a", "b"]), PLANE)


def test_geometries_and_names_that_are_damaged(tmp_path, monkeypatch):
    frame = gpd.GeoDataFrame({"zone": ["abcd", "b", "c"]}, geometry=SQUARES, crs="EPSG:32618")
    frame.to_file(tmp_path / "z.gpkg")
    whole = (tmp_path / "z.gpkg").read_bytes()
    ring = shapely.to_wkb(SQUARES[0])
    for old, new, said in ((ring, ring[:-16] + b"\1" * 16, "LinearRing"), (b"abcd", b"ab\xffd", "UTF8")):
        assert old in whole
        (tmp_path / "z.gpkg").write_bytes(whole.replace(old, new))
        with pytest.raises(dh.InputError, match=f"not a readable file of geometries: .*{said}"):
            read_geometries(tmp_path / "z.gpkg", PLANE)
    (tmp_path / "z.gpkg").write_bytes(whole)

    def torn(frame):
        raise shapely.errors.GEOSException("side location conflict")

    monkeypatch.setattr(gpd.GeoDataFrame, "union_all", torn)
    plane = dh.Domain((0, 0, 10, 8), (10, 8), crs="EPSG:32618")
    with pytest.raises(dh.InputError, match="cannot be put together: side location conflict"):
        read_sources(str(tmp_path / "z.gpkg"), plane)


def frame(**columns):
    return gpd.GeoDataFrame(columns, geometry=SQUARES)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"pop": [5, 5, 6], "NAME": ["a", "b", "a"]}, ["a", "b", "a"]),
        ({"code": ["x", "y", "z"], "nom": ["a", None, "c"]}, ["a", None, "c"]),
        ({"name": [None, None, None], "ID": pd.array([1, None, 3], dtype="Int64")}, ["1", None, "3"]),
        ({"id": [1.0, None, 2.5]}, ["1", None, "2.5"]),
        ({"code": [1, 1, 2], "ID": [7, 8, 9], "zone": ["a", "b", "c"]}, ["7", "8", "9"]),
        ({"code": [1, 1, 2], "zone": ["a", "b", "c"]}, ["a", "b", "c"]),
        ({"kind": ["p", "p", "q"], "district": ["a", "b", "c"], "pop": [1, 2, 3]}, ["a", "b", "c"]),
        ({"BoroName": ["a", "b", "c"], "BoroCD": ["x", "y", "z"]}, ["a", "b", "c"]),
        ({"zone_nr": [4, 5, 6]}, ["4", "5", "6"]),
        ({}, ["0", "1", "2"]),
    ],
)
def test_names_are_found(columns, names):
    found = named(frame(**columns))
    assert found.columns[0] == "name"
    assert found["name"].astype(object).where(found["name"].notna(), None).tolist() == names
    assert {c for c in columns if c != "name"} - set(found.columns) <= {"NAME"}


@pytest.mark.parametrize(
    ("columns", "asked", "words"),
    [
        ({"kind": list("ppq"), "pop": [1, 2, 2]}, None, "name is missing: .* of the columns kind, pop; say in which"),
        ({"zone": list("abc")}, "town", "name is 'town': it must be one of the file's columns, zone$"),
        ({"district_n": list("abc")}, "district_name", "shapefiles cut names to 'district_n'"),
    ],
)
def test_where_names_are_not_plain_the_columns_are_listed(columns, asked, words):
    with pytest.raises(dh.InputError, match=words):
        named(frame(**columns), asked)


def test_another_column_that_is_called_name_is_kept():
    found = named(frame(Name=["a", "a", "b"], zone=["x", "y", "z"]), "zone")
    assert found.columns.tolist() == ["name", "Name_region", "zone", "geometry"]
    assert found["name"].tolist() == ["x", "y", "z"]
    assert found["Name_region"].tolist() == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("text", "corners", "names"),
    [
        ("0,1,2,3\n\n4,5,6,7.5\n", [[0, 1, 2, 3], [4, 5, 6, 7.5]], ["0", "1"]),
        ('name,North, east ,south,west\n"a,b",3,2,1,0\n007,4,4,2,2\n', [[0, 1, 2, 3], [2, 2, 4, 4]], ["a,b", "007"]),
    ],
)
def test_boxes_are_read_with_their_names(tmp_path, text, corners, names):
    (tmp_path / "boxes.csv").write_text(text, encoding="utf-8-sig")
    found = read_box_file(tmp_path / "boxes.csv", 4)
    assert found[0].tolist() == corners
    assert found[1] == names


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has 0 rows"),
        (b"west,south,east,north\n", "has 0 rows"),
        (b"1,2\n", "has 0 rows of 1,2"),
        (b"west,south,east,north\n0,0,1\n0,0,1,one\n", r"2 row\(s\) .* the first at box 0"),
        (b"west,south,east,north\n0,0,1,1,5\n", "more values than columns in '0,0,1,1,5'"),
        (b'west,south,east,north\n0,0,1,"1\n', "not readable as CSV"),
        (b"west,south,east,north\n0,0,1,\xff\n", "not readable as CSV"),
    ],
)
def test_files_without_boxes_are_refused(tmp_path, content, words):
    (tmp_path / "boxes.csv").write_bytes(content)
    with pytest.raises(dh.InputError, match=f"boxes.csv.*{words}"):
        read_box_file(tmp_path / "boxes.csv", 4)


@pytest.mark.parametrize(
    ("ending", "crs"), [("gpkg", "EPSG:4326"), ("geojson", "EPSG:32618"), ("parquet", "EPSG:4326")]
)
def test_shapes_alone_are_those_of_the_frame(tmp_path, ending, crs):
    whole = gpd.GeoDataFrame({"zone": list("abc")}, geometry=SQUARES, crs=crs)
    file = tmp_path / f"zones.{ending}"
    if ending == "parquet":
        whole.to_parquet(file)
    else:
        whole.to_file(file)
    frame = read_geometries(file, PLANE)
    shapes, stated = read_shapes(file, PLANE)
    assert shapes.tolist() == frame.geometry.tolist()
    assert stated == frame.crs
