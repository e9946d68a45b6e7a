"""Files of geometries: layers, and which of them names the regions."""

import json

import geopandas as gpd
import pandas as pd
import pyogrio
import pytest
import shapely

import deltahist as dh
from deltahist.space.geometries import add_names, read_box_file, read_geometries

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
    for given, layer in ((file, None), (file, "lakes"), (only, None)):
        with pytest.raises(dh.InputError):
            read_geometries(given, PLANE, layer=layer)
    pd.DataFrame({"a": [1]}).to_parquet(flat)
    with pytest.raises(dh.InputError):
        read_geometries(flat, PLANE)


def test_damaged_geometries_are_refused(tmp_path):
    frame = gpd.GeoDataFrame({"zone": ["abcd", "b", "c"]}, geometry=SQUARES, crs="EPSG:32618")
    frame.to_file(tmp_path / "z.gpkg")
    whole, ring = (tmp_path / "z.gpkg").read_bytes(), shapely.to_wkb(SQUARES[0])
    assert ring in whole
    (tmp_path / "z.gpkg").write_bytes(whole.replace(ring, ring[:-16] + b"\1" * 16))
    with pytest.raises(dh.InputError, match="not a readable file of geometries"):
        read_geometries(tmp_path / "z.gpkg", PLANE)


@pytest.mark.parametrize("ending", ["csv", "vrt"])
def test_a_file_is_read_by_the_driver_of_its_ending_alone(tmp_path, ending):
    file = tmp_path / f"zones.{ending}"
    file.write_text('{"type": "FeatureCollection", "features": []}')
    with pytest.raises(dh.InputError, match="its ending is"):
        read_geometries(file, PLANE)
    (tmp_path / "zones.shp").write_text(write(tmp_path / "z.geojson", SQUARES, zone=list("abc")).read_text())
    with pytest.raises(dh.InputError):
        read_geometries(tmp_path / "zones.shp", PLANE)


def frame(**columns):
    return gpd.GeoDataFrame(columns, geometry=SQUARES)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"pop": [5, 5, 6], "NAME": ["a", "b", "a"]}, ["a", "b", "a"]),
        ({"name": [None, None, None], "ID": pd.array([1, None, 3], dtype="Int64")}, ["1", None, "3"]),
        ({"code": [1, 1, 2], "ID": [7, 8, 9], "zone": ["a", "b", "c"]}, ["7", "8", "9"]),
        ({"kind": ["p", "p", "q"], "district": ["a", "b", "c"], "pop": [1, 2, 3]}, ["a", "b", "c"]),
        ({}, ["0", "1", "2"]),
    ],
)
def test_names_are_found(columns, names):
    found = add_names(frame(**columns))
    assert found.columns[0] == "name"
    assert found["name"].astype(object).where(found["name"].notna(), None).tolist() == names
    assert {c for c in columns if c != "name"} - set(found.columns) <= {"NAME"}


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
    "content",
    [
        b"",
        b"west,south,east,north\n0,0,1\n0,0,1,one\n",
        b"west,south,east,north\n0,0,1,inf\n",
        b'west,south,east,north\n0,0,1,"1\n',
        b"west,south,east,north\n0,0,1,\xff\n",
    ],
)
def test_files_without_boxes_are_refused(tmp_path, content):
    (tmp_path / "boxes.csv").write_bytes(content)
    with pytest.raises(dh.InputError, match="boxes"):
        read_box_file(tmp_path / "boxes.csv", 4)
