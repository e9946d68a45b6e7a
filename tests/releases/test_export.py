"""Export: every cell in its place, with its estimate and standard error, in every form."""

import contextlib
import errno
import itertools
import json
import os
import resource
import sqlite3
import sys
from pathlib import Path
from xml.etree import ElementTree

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pyogrio
import pytest
import rasterio

import deltahist as dh
from deltahist.errors import InputError
from deltahist.releases.export import check_form, export
from deltahist.releases.style import class_edges, qgis_style

SHAPE = (6, 4)
CALIBRATED = "non-negative (calibrated)"


def make(strategy=dh.strategies.Identity, crs="EPSG:32618", sources=None, shape=SHAPE, **parameters):
    bounds = (500_000, 4_500_000, 500_000 + 100 * shape[0], 4_500_000 + 100 * shape[1])
    domain = dh.Domain(bounds if crs else (0, 0, *shape), shape, crs)
    near = dh.Neighbourhood(domain, delta=100 if crs else 1, sources=sources)
    counts = np.arange(domain.size).reshape(shape)
    return dh.publish(counts, near, strategy(domain, **parameters), epsilon=1)


def one_dimension():
    domain = dh.Domain((0, 10), (10,))
    near = dh.Neighbourhood(domain, delta=1)
    return dh.publish(np.arange(10), near, dh.strategies.Cumulative(domain), epsilon=1)


@pytest.fixture(scope="module")
def release():
    return make()


def test_the_frame_has_each_cell_in_its_place(release):
    frame = release.to_pandas()
    assert len(frame) == release.domain.size
    cells = release.cells()
    for row in frame.itertuples():
        assert row.estimate == cells[row.column, row.row]
        assert row.west < row.x < row.east
        assert row.south < row.y < row.north
        assert release.domain.locate([[row.x, row.y]]).tolist() == [[row.column, row.row]]


def test_geoparquet_is_in_the_domains_crs(release, tmp_path):
    export(release, tmp_path / "cells.parquet")
    frame = gpd.read_parquet(tmp_path / "cells.parquet")
    assert frame.crs == "EPSG:32618"
    assert frame.total_bounds.tolist() == list(release.domain.bounds)
    assert np.allclose(frame.area, 100 * 100)
    assert np.allclose(frame.centroid.x, frame["x"])
    assert frame["estimate"].tolist() == release.cells(nonnegative=True).ravel().tolist()


def test_geojson_is_in_longitude_and_latitude(release, tmp_path):
    export(release, tmp_path / "cells.geojson")
    frame = gpd.read_file(tmp_path / "cells.geojson")
    assert frame.crs == "EPSG:4326"
    west, south, east, north = frame.total_bounds
    assert -76 < west < east < -74
    assert 40 < south < north < 41
    back = frame.to_crs("EPSG:32618")
    assert np.allclose(back.total_bounds, release.domain.bounds, atol=0.1)
    errors = release.estimates(nonnegative=True)[1].ravel()
    assert np.abs(frame["std_error"] - errors).max() <= errors.min() / 20


@pytest.mark.parametrize("form", ["geojson", "parquet", "gpkg"])
def test_a_plane_without_crs_keeps_its_coordinates(tmp_path, form):
    plane = make(crs=None)
    export(plane, tmp_path / f"cells.{form}")
    read = gpd.read_parquet if form == "parquet" else gpd.read_file
    more = {"layer": "cells"} if form == "gpkg" else {}
    assert read(tmp_path / f"cells.{form}", **more).total_bounds.tolist() == [0, 0, *SHAPE]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio, when it reads
def test_geotiff_has_north_up_two_named_bands_and_tags(release, tmp_path):
    export(release, tmp_path / "cells.tif")
    assert [path.name for path in tmp_path.iterdir()] == ["cells.tif"]
    with rasterio.open(tmp_path / "cells.tif") as file:
        assert file.crs.to_epsg() == 32618
        assert tuple(file.bounds) == release.domain.bounds
        assert file.descriptions == ("estimate", "std_error")
        assert file.tags()["statement"] == release.statement()
        assert file.tags()["promise"] == release.mechanism.promise
        assert file.units == ("points", "points")
        assert "standard error" in file.tags(2)["description"]
        sampled = np.array(list(file.sample(release.to_pandas()[["x", "y"]].to_numpy())))
    expected = release.estimates(nonnegative=True)
    assert sampled.T.tolist() == [cells.ravel().tolist() for cells in expected]


@pytest.mark.parametrize(
    ("strategy", "parameters"),
    [
        (dh.strategies.Identity, {}),
        (dh.strategies.Wavelet, {}),
        (dh.strategies.Cumulative, {}),
        (dh.strategies.Hierarchical, {"branching": 2}),
        (dh.strategies.ShiftedGrids, {"width": 2, "shift": 1}),
    ],
)
@pytest.mark.parametrize("sources", [None, "boundary"])
@pytest.mark.parametrize("at_once", [1_000_000, 9])
def test_errors_of_cells_are_those_of_the_answers(monkeypatch, strategy, parameters, sources, at_once):
    monkeypatch.setattr("deltahist.releases.histogram._AT_ONCE", at_once)
    release = make(strategy, sources=sources, **parameters)
    frame = release.to_pandas()
    boxes = dh.workloads.boxes(frame[["west", "south", "east", "north"]].to_numpy())
    expected = dh.answer(release, boxes)
    assert np.allclose(release.estimates()[1].ravel(), expected["std_error"])
    assert np.allclose(frame["estimate"], expected["estimate"])


# Which estimates


def in_file(target):
    """The estimates in a file, in any order, and all that it says of itself, as text."""
    form = target.suffix
    if form == ".csv":
        return pd.read_csv(target)["estimate"], (target.parent / f"{target.name}-metadata.json").read_text()
    if form == ".parquet":
        return pd.read_parquet(target)["estimate"], str(pq.read_schema(target).metadata)
    if form == ".geojson":
        return gpd.read_file(target)["estimate"], target.read_text(encoding="utf-8")
    if form == ".gpkg":
        said = pyogrio.read_info(target, layer="cells")["layer_metadata"]
        return gpd.read_file(target, layer="cells")["estimate"], str(said)
    with rasterio.open(target) as file:
        return file.read(1), str([file.tags(), file.tags(1), file.tags(2)])


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio, when it reads
@pytest.mark.parametrize("form", ["csv", "parquet", "geojson", "gpkg", "tif"])
@pytest.mark.parametrize("asked", [None, False])
def test_a_file_holds_nonnegative_estimates_unless_others_are_asked_for_and_says_which(tmp_path, form, asked):
    empty = noisy()
    export(empty, tmp_path / f"cells.{form}", nonnegative=asked)
    estimates, said = in_file(tmp_path / f"cells.{form}")
    expected, errors = empty.estimates(nonnegative=asked is not False)
    rounding = errors.min() / 20 if form in ("csv", "geojson") else 1e-9
    assert np.abs(np.sort(np.ravel(estimates)) - np.sort(expected, axis=None)).max() <= rounding
    assert (np.min(np.asarray(estimates)) < 0) == (asked is False)
    mine, other = (CALIBRATED, "unbiased")[:: 1 if asked is not False else -1]
    assert f"Estimates of points per cell, {mine}, with standard errors" in said
    assert f"standard error of the estimate beside it, which is {mine}; errors of cells depend on each other" in said
    assert other not in said.replace(empty.statement(), "")


def noisy():
    """Noise about one full cell in a small map."""
    domain = dh.Domain((0, 0, *SHAPE), SHAPE, None)
    near = dh.Neighbourhood(domain, delta=1)
    counts = np.zeros(SHAPE, dtype=np.int64)
    counts[0, 0] = 300
    return dh.publish(counts, near, "identity", epsilon=0.5, rng=np.random.default_rng(3))


def test_large_maps_and_undetermined_cells_are_exported_as_they_were_measured(tmp_path, monkeypatch):
    grids = make(dh.strategies.ShiftedGrids, width=2, shift=1)
    line = dh.publish_sorted(np.arange(100), dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5), 1.0)
    assert not grids.mechanism.determines_cells
    assert [each.shows_nonnegative() for each in (noisy(), grids, line)] == [True, False, True]
    monkeypatch.setattr("deltahist.releases.histogram.MOST_NONNEGATIVE", SHAPE[0] * SHAPE[1] - 1)
    assert [each.shows_nonnegative() for each in (noisy(), grids, line)] == [False, False, True]
    assert noisy().shows_nonnegative(True)
    export(release := noisy(), tmp_path / "cells.parquet")
    assert pd.read_parquet(tmp_path / "cells.parquet")["estimate"].tolist() == release.cells().ravel().tolist()


@pytest.mark.parametrize("asked", [None, False])
def test_sorted_points_have_one_kind_of_estimates(tmp_path, asked):
    line = dh.publish_sorted(np.arange(100), dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5), 1.0)
    export(line, tmp_path / "cells.csv", nonnegative=asked)
    estimates, said = in_file(tmp_path / "cells.csv")
    assert np.abs(estimates - line.cells()).max() <= line.estimates()[1].min() / 20
    assert "points in the cell, non-negative (isotonic regression)" in said
    assert "unbiased" not in said.replace(line.statement(), "")


@pytest.mark.parametrize("form", ["parquet", "geojson", "gpkg", "tif"])
def test_one_dimension_has_no_geometry(tmp_path, form):
    with pytest.raises(InputError, match=r"it must be \.csv"):
        export(one_dimension(), tmp_path / f"cells.{form}")
    assert not list(tmp_path.iterdir())


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match=r"cells\.shp.*\.geojson"):
        check_form("cells.shp")


def test_geotiff_without_rasterio_names_the_extra(monkeypatch, release, tmp_path):
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(InputError, match=r"pip install 'deltahist\[geotiff\]'"):
        export(release, tmp_path / "cells.tif")
    assert not list(tmp_path.iterdir())


# What a file says of itself


def test_geopackage_has_named_layers_a_statement_and_a_style(release, tmp_path):
    target = tmp_path / "cells.gpkg"
    export(release, target)
    assert [path.name for path in tmp_path.iterdir()] == ["cells.gpkg"]
    layers = dict(pyogrio.list_layers(target))
    assert layers["cells"] == "Polygon"
    assert {"statement", "layer_styles"} <= layers.keys()
    frame = gpd.read_file(target, layer="cells")
    assert frame.crs == "EPSG:32618"
    assert frame["estimate"].tolist() == release.cells(nonnegative=True).ravel().tolist()
    said = pyogrio.read_info(target, layer="cells")["layer_metadata"]
    assert said["estimate_unit"] == "points"
    assert said["statement"] == release.statement()
    table = pyogrio.read_dataframe(target, layer="statement", read_geometry=False).set_index("label")["text"]
    assert table["May be published"] == "yes"
    assert table["Promise"] == release.mechanism.promise


def test_the_style_is_found_where_qgis_looks_for_it(release, tmp_path):
    export(release, tmp_path / "cells.gpkg")
    with contextlib.closing(sqlite3.connect(tmp_path / "cells.gpkg")) as file:
        ((geometry,),) = file.execute(
            "select column_name from gpkg_geometry_columns where table_name = 'cells'"
        )
        ((style, usual),) = file.execute(
            "select styleQML, useAsDefault from layer_styles "
            "where f_table_schema = '' and f_table_name = 'cells' and f_geometry_column = ?",
            (geometry,),
        )
    assert usual == 1
    renderer = ElementTree.fromstring(style).find("renderer-v2")
    assert renderer.get("type") == "graduatedSymbol"
    assert renderer.get("attr") == "estimate"
    ranges = [(float(r.get("lower")), float(r.get("upper"))) for r in renderer.iter("range")]
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ranges))
    estimates = release.cells(nonnegative=True)
    assert ranges[0][0] <= estimates.min()
    assert ranges[-1][1] >= estimates.max()
    assert {s.get("name") for s in renderer.iter("symbol")} == {str(n) for n in range(len(ranges))}


@pytest.mark.parametrize(
    ("estimates", "errors"),
    [
        ([0.0, 0.0], [0.0, 0.0]),
        ([-5.0, -1.0], [2.0, 2.0]),
        ([0.0, 9.0], [0.0, 0.0]),
        ([3.0, 9.0], [5.0, 5.0]),
    ],
)
def test_every_estimate_has_a_colour(estimates, errors):
    edges = class_edges(np.array(estimates), np.array(errors))
    assert len(edges) >= 2
    assert (np.diff(edges) > 0).all()
    assert edges[0] <= min(estimates)
    assert max(estimates) <= edges[-1]


@pytest.mark.parametrize(
    ("errors", "label"),
    [([2, 2, 2], "below 6 points: 3 standard errors of a cell"), ([0.01, 0.01, 9], "below 0.5 points")],
)
def test_what_is_pale_is_said_with_its_reason(errors, label):
    """Of non-negative estimates most errors can be next to nothing: no cell is coloured for a part of a point."""
    root = ElementTree.fromstring(qgis_style(np.array([0.0, 0.3, 500.0]), np.array(errors)))
    first, *others = (each.get("label") for each in root.iter("range"))
    assert first == label
    assert not any("standard" in other for other in others)


def test_parquet_and_geojson_say_what_they_hold(release, tmp_path):
    export(release, tmp_path / "cells.parquet", nonnegative=False)
    export(release, tmp_path / "cells.geojson")
    schema = pq.read_schema(tmp_path / "cells.parquet")
    in_parquet = json.loads(schema.metadata[b"deltahist_export"])
    in_geojson = json.loads((tmp_path / "cells.geojson").read_text(encoding="utf-8"))["deltahist_export"]
    for said in (in_parquet, in_geojson):
        assert said["statement"] == release.statement()
        assert said["may_be_published"] == "yes"
        assert list(said["columns"]) == ["column", "row", "x", "y", "estimate", "std_error"]
        assert said["columns"]["std_error"]["unit"] == "points"
    assert schema.field("estimate").metadata[b"unit"] == b"points"
    assert in_parquet["columns"]["estimate"]["description"] == "points in the cell, unbiased; may be below zero"
    assert in_geojson["columns"]["estimate"]["description"] == f"points in the cell, {release.estimator(True)}"
    with pytest.raises(InputError, match="is Parquet but no release"):
        dh.load(tmp_path / "cells.parquet")


def test_weak_protection_is_said_in_exports_too(tmp_path):
    near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1)
    counts = np.ones((4, 4), dtype=int)
    weak = dh.publish(counts, near, "identity", epsilon=50, weak_protection_accepted=True)
    seeded = dh.publish(counts, near, "identity", epsilon=1, rng=np.random.default_rng(1))
    for release, words in ((weak, "only if everybody in the data accepts weak"), (seeded, "no: noise from")):
        export(release, tmp_path / "cells.gpkg")
        export(release, tmp_path / "cells.parquet")
        layer = pyogrio.read_dataframe(tmp_path / "cells.gpkg", layer="statement", read_geometry=False)
        assert layer.set_index("label")["text"]["May be published"].startswith(words)
        metadata = pq.read_schema(tmp_path / "cells.parquet").metadata
        assert json.loads(metadata[b"deltahist_export"])["may_be_published"].startswith(words)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_a_companion_describes_the_csv_file(release, tmp_path, dimensions):
    made = release if dimensions == 2 else one_dimension()
    export(made, tmp_path / "cells.csv")
    said = json.loads((tmp_path / "cells.csv-metadata.json").read_text(encoding="utf-8"))
    assert said["url"] == "cells.csv"
    assert made.statement() in said["dc:description"]
    columns = said["tableSchema"]["columns"]
    frame = pd.read_csv(tmp_path / "cells.csv")
    whole = made.to_pandas(nonnegative=True)
    # Whole figures are written without a point, and so read as integers.
    pd.testing.assert_frame_equal(frame, whole, rtol=0, atol=whole["std_error"].min() / 20, check_dtype=False)
    assert all(len(f"{each:.12g}".partition(".")[2]) <= 3 for each in frame["estimate"])
    assert [column["name"] for column in columns] == list(frame.columns)
    kinds = {"i": "integer", "f": "double"}
    assert [column["datatype"] for column in columns] == [kinds[kind.kind] for kind in whole.dtypes]
    assert columns[-1]["schema:unitText"] == "points"
    assert said["tableSchema"]["primaryKey"] == ["column", "row"][:dimensions]
    if dimensions == 1:
        assert list(frame.columns) == ["column", "low", "high", "x", "estimate", "std_error"]
        assert frame["low"].tolist() == list(range(10))


def test_a_disk_that_is_full_for_the_companion_leaves_nothing(release, tmp_path, monkeypatch):
    write = Path.write_text

    def full(path, text, *_, **how):
        write(path, text[:20], **how)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(dh.InputError, match="No space left on device"):
        export(release, tmp_path / "cells.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["csv", "geojson", "gpkg", "parquet", "tif"])
def test_of_a_full_disk_nothing_is_left(tmp_path, ending):
    release = make(shape=(40, 40))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, before[1]))
    try:
        with pytest.raises(InputError, match="cannot be written"):
            export(release, tmp_path / f"cells.{ending}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


# Sums beside the cells


def read_blocks(target, width):
    """The rows of a file that are blocks of a width."""
    if target.suffix == ".gpkg":
        return gpd.read_file(target, layer="cells" if width == 1 else f"blocks_{width}")
    read = {".csv": pd.read_csv, ".parquet": gpd.read_parquet, ".geojson": gpd.read_file}[target.suffix]
    frame = read(target)
    return frame[frame["block"] == width].reset_index(drop=True)


@pytest.mark.parametrize("form", ["csv", "parquet", "geojson", "gpkg"])
@pytest.mark.parametrize("asked", [None, False])
def test_blocks_have_the_errors_of_their_sums(tmp_path, form, asked):
    city = make(dh.strategies.Hierarchical, shape=(7, 5))
    export(city, tmp_path / f"a.{form}", nonnegative=asked, blocks=[4, 2])
    domain, rounding = city.domain, 0.05 if form in ("csv", "geojson") else 1e-9
    assert len(read_blocks(tmp_path / f"a.{form}", 1)) == 35
    for width, shape in ((2, (4, 3)), (4, (2, 2))):
        found = read_blocks(tmp_path / f"a.{form}", width)
        assert len(found) == np.prod(shape)
        # The last ones are narrower: of 7 by 5 cells.
        wide = np.minimum(found["column"] + width, 7) - found["column"]
        high = np.minimum(found["row"] + width, 5) - found["row"]
        assert found["cells"].tolist() == (wide * high).tolist()
        west, south = (domain.edges(axis)[found[name]] for axis, name in enumerate(("column", "row")))
        corners = np.column_stack([west, south, west + 100 * wide, south + 100 * high])
        expected = dh.answer(city, dh.workloads.boxes(corners), nonnegative=asked is None)
        for name in ("estimate", "std_error"):
            assert np.abs(found[name] - expected[name]).max() <= rounding
        assert found["x"].tolist() == corners[:, ::2].mean(axis=1).tolist()
        if form in ("parquet", "gpkg"):
            assert found.geometry.bounds.to_numpy().tolist() == corners.tolist()


def test_errors_of_blocks_are_not_those_of_added_cells(tmp_path):
    city = make(dh.strategies.Hierarchical, shape=(16, 16))
    export(city, tmp_path / "a.gpkg", nonnegative=False, blocks=[16])
    cells, whole = (read_blocks(tmp_path / "a.gpkg", width) for width in (1, 16))
    assert whole["estimate"][0] == pytest.approx(cells["estimate"].sum())
    assert whole["std_error"][0] < 1e-6 < np.sqrt((cells["std_error"] ** 2).sum())  # the total is public


def test_blocks_of_a_line(tmp_path):
    export(one_dimension(), tmp_path / "a.csv", blocks=[4])
    found = read_blocks(tmp_path / "a.csv", 4)
    assert found[["column", "low", "high", "cells"]].to_numpy().tolist() == [[0, 0, 4, 4], [4, 4, 8, 4], [8, 8, 10, 2]]


@pytest.mark.parametrize(
    ("name", "blocks", "words"),
    [
        ("a.tif", [2], "overviews are means"),
        ("a.csv", [2, 2], "blocks is 2,2: it must be different numbers of cells, from 2 to 6"),
        ("a.csv", [7], "blocks is 7: it must be different"),
        ("a.csv", [1], "blocks is 1: it must be a whole number of at least 2"),
    ],
)
def test_blocks_that_are_none_are_refused(release, tmp_path, name, blocks, words):
    with pytest.raises(InputError, match=words):
        export(release, tmp_path / name, blocks=blocks)
    assert not list(tmp_path.iterdir())


def test_a_pyramid_says_what_its_rows_are(release, tmp_path):
    export(release, tmp_path / "a.csv", blocks=[2])
    said = json.loads((tmp_path / "a.csv-metadata.json").read_text(encoding="utf-8"))
    columns = {each["name"]: each["dc:description"] for each in said["tableSchema"]["columns"]}
    assert said["tableSchema"]["primaryKey"] == ["block", "column", "row"]
    assert "narrower at the rim" in columns["block"]
    assert columns["estimate"].startswith("points in the cell or block, non-negative")
    assert "Do not add std_error, nor its square: ask deltahist query" in said["dc:description"]


def test_answers_lie_beside_the_cells_of_a_geopackage(release, tmp_path):
    zones = gpd.GeoDataFrame({"zone": ["a"]}, geometry=[release.to_geopandas().union_all()], crs="EPSG:32618")
    answers = dh.answer(release, zones)
    export(release, tmp_path / "a.gpkg", nonnegative=False, answers=answers)
    found = gpd.read_file(tmp_path / "a.gpkg", layer="answers")
    assert found["zone"].tolist() == ["a"]
    assert found["std_error"].tolist() == answers["std_error"].tolist()
    said = pyogrio.read_info(tmp_path / "a.gpkg", layer="answers")["layer_metadata"]
    assert (said["level"], said["digest"], said["unit"]) == ("0.95", release.digest, "points")
    with pytest.raises(InputError, match=r"deltahist query --regions"):
        export(release, tmp_path / "a.parquet", answers=answers)


def test_columns_of_a_geopackage_are_described_where_programs_look(release, tmp_path):
    export(release, tmp_path / "a.gpkg")
    with contextlib.closing(sqlite3.connect(tmp_path / "a.gpkg")) as file:
        found = file.execute("SELECT column_name, title, description FROM gpkg_data_columns").fetchall()
        extensions = file.execute("SELECT extension_name FROM gpkg_extensions").fetchall()
    titles = {name: (title, text) for name, title, text in found}
    assert titles["std_error"][0] == "std_error (points)"
    assert "do not add it, nor its square" in titles["std_error"][1]
    assert ("gpkg_schema",) in extensions
