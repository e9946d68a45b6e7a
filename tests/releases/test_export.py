"""Frames and files of cells: every cell in its place, with its estimate and standard error, in every form."""

import io
import json
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pyogrio
import pytest
import rasterio
import shapely

import deltahist as dh
from deltahist.exports import KEY, encode_table, export

SHAPE = (6, 4)
CITY = dh.Domain((580_000, 4_495_000, 605_000, 4_525_000), cell="250m", crs="EPSG:32618")
SQUARE = shapely.box(585_000, 4_505_000, 588_000, 4_508_000)
ABOUT = {"title": "Answers", "how_to_read": "Do not add.", "promise": "ε = 1", "columns": {}}


def make(strategy=dh.strategies.Identity, crs="EPSG:32618", sources=None, shape=SHAPE, **parameters):
    bounds = (500_000, 4_500_000, 500_000 + 100 * shape[0], 4_500_000 + 100 * shape[1])
    domain = dh.Domain(bounds if crs else (0, 0, *shape), shape, crs)
    near = dh.Neighbourhood(domain, delta=100 if crs else 1, sources=sources)
    counts = np.arange(domain.size).reshape(shape)
    return dh.publish(counts, near, strategy(domain, **parameters), epsilon=1)


@pytest.fixture(scope="module")
def release():
    return make()


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio, when it reads
def test_geotiff_has_north_up_two_named_bands_and_tags(release, tmp_path):
    export(release, tmp_path / "cells.tif")
    with rasterio.open(tmp_path / "cells.tif") as file:
        assert file.crs.to_epsg() == 32618
        assert tuple(file.bounds) == release.domain.bounds
        assert file.descriptions == ("estimate", "std_error")
        assert file.units == ("points", "points")
        assert file.tags()["statement"] == dh.write_statement(release)
        sampled = np.array(list(file.sample(release.to_pandas()[["x", "y"]].to_numpy())))
    expected = release.estimate_cells()
    assert sampled.T.tolist() == [cells.ravel().tolist() for cells in expected]


def described(path):
    """The description that a file holds."""
    if path.suffix == ".parquet":
        return json.loads(pq.read_schema(path).metadata[KEY.encode()])
    if path.suffix == ".geojson":
        return json.loads(path.read_text(encoding="utf-8"))[KEY]
    return pyogrio.read_info(path, layer="cells")["layer_metadata"]


@pytest.mark.parametrize("form", ["parquet", "geojson", "gpkg"])
@pytest.mark.parametrize("asked", [True, False])
def test_a_file_says_what_it_holds(release, tmp_path, form, asked):
    export(release, path := tmp_path / f"cells.{form}", nonnegative=asked)
    about = described(path)
    assert about["estimator"] == release.name_estimator(asked)
    assert about["statement"] == dh.write_statement(release)
    assert about["promise"] == release.mechanism.promise
    assert about["may_be_published"] == "yes"
    assert about["digest"] == release.digest
    if form == "gpkg":
        assert about["unit of std_error"] == "points"
    else:
        assert list(about["columns"]) == ["column", "row", "x", "y", "estimate", "std_error", "stands_out"]
        assert about["columns"]["std_error"]["unit"] == "points"
    if form == "parquet":
        assert pq.read_schema(path).field("estimate").metadata[b"unit"] == b"points"
        with pytest.raises(dh.DamagedFile):
            dh.load(path)


def test_rows_that_stand_out_are_marked(tmp_path):
    """Of 35 empty cells none is marked, in 19 of 20 files; the cell of 500 points always is."""
    domain, counts = dh.Domain((0, 0, 6, 6), (6, 6)), np.zeros((6, 6), dtype=np.int64)
    counts[1, 4], false = 500, 0
    for seed in range(20):
        near = dh.Neighbourhood(domain, 1)
        release = dh.publish(counts, near, "identity", 0.5, rng=np.random.default_rng(seed))
        export(release, tmp_path / "a.csv", nonnegative=seed % 2 == 0)
        frame = pd.read_csv(tmp_path / "a.csv")
        full = (frame["west"] <= 1) & (frame["east"] >= 2) & (frame["south"] <= 4) & (frame["north"] >= 5)
        assert frame["stands_out"][full].all()
        false += frame["stands_out"][~full].any()
    assert false <= 3


def messy():
    """Columns as files have them, with gaps, and names that a database uses itself."""
    columns = {
        "name": ["a", "b"], "fid": [3, 3], "geom": ["x", "y"], "code": pd.array([7, None], dtype="Int64"),
        "open": pd.array([True, None], dtype="boolean"), "when": pd.to_datetime(["2020-01-02", None]),
        "tags": [np.array(["u", "v"]), None], "estimate": [2.5, np.nan], "note": [None, "no geometry"],
    }  # fmt: skip
    return gpd.GeoDataFrame(columns, geometry=[SQUARE, None], crs="EPSG:32618").to_crs("EPSG:4326")


def read(content, form):
    if form == "parquet":
        return gpd.read_parquet(io.BytesIO(content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a file in memory has no suffix
        return gpd.read_file(io.BytesIO(content))


@pytest.mark.parametrize(("form", "crs"), [("parquet", "EPSG:32618"), ("gpkg", "EPSG:32618"), ("geojson", "EPSG:4326")])
def test_rows_shapes_and_columns_come_back(form, crs):
    found = read(encode_table(messy(), form, CITY, ABOUT), form)
    assert found.crs == crs
    assert found.geometry[1] is None
    assert np.allclose(found.to_crs(CITY.crs).geometry[0].bounds, SQUARE.bounds, atol=0.1)
    assert found["fid"].tolist() == [3, 3]
    assert found["geom"].tolist() == ["x", "y"]
    assert found["estimate"][0] == 2.5
    assert np.isnan(found["estimate"][1])
    assert found["code"].astype(object).tolist()[0] == 7
    assert found["code"].isna().tolist() == [False, True]
    assert found["note"].isna().tolist() == [True, False]
    assert found["when"][0] == pd.Timestamp("2020-01-02")


CRS = "EPSG:32618"
DOMAIN = dh.Domain((583_000, 4_505_000, 587_000, 4_508_000), cell="500m", crs=CRS)
NEAR = dh.Neighbourhood(DOMAIN, "1km")
COUNTS = np.arange(DOMAIN.size).reshape(DOMAIN.shape) % 7
RELEASE = dh.publish(COUNTS, NEAR, "identity", epsilon=1, rng=np.random.default_rng(2))
LINE = dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5)
SORTED = dh.publishers.publish_sorted(np.arange(100), LINE, 1.0)
MEDIAN = dh.publishers.publish_quantile(np.arange(99), 0.5, LINE, 1.0)


def test_frames_of_pandas_and_geopandas():
    frame = RELEASE.to_pandas()
    assert len(frame) == DOMAIN.size
    assert np.allclose(frame["estimate"], RELEASE.cells().ravel())
    geo = RELEASE.to_geopandas()
    assert geo.crs == CRS
    assert np.allclose(geo.geometry.area, np.prod(DOMAIN.cell))
    assert (RELEASE.to_pandas(nonnegative=True)["estimate"] >= 0).all()
    line = SORTED.to_pandas()
    assert line["estimate"].sum() == pytest.approx(100)
    with pytest.raises(dh.InputError, match="dimensions is 1"):
        SORTED.to_geopandas()
    for ask in (MEDIAN.to_pandas, lambda: dh.answer(MEDIAN, [[0, 1]])):
        with pytest.raises(dh.InputError):
            ask()
    assert RELEASE._repr_html_().startswith('<img alt="published map" src="data:image/png;base64,iVBOR')
    assert MEDIAN._repr_html_().startswith("<pre>")


def test_xarray_is_right_side_up():
    found = RELEASE.to_xarray()
    assert found["estimate"].dims == ("y", "x")
    assert found["estimate"].shape == DOMAIN.shape[::-1]
    x, y = DOMAIN.centres(0)[2], DOMAIN.centres(1)[4]
    assert float(found["estimate"].sel(x=x, y=y)) == RELEASE.cells()[2, 4]
    assert found.attrs["crs"] == CRS
    assert found["std_error"].attrs["units"] == "points"
    assert found["estimate"].attrs["long_name"] == "points per cell, unbiased"
    assert SORTED.to_xarray()["estimate"].dims == ("x",)


def test_synthetic_points_follow_the_nonnegative_cells_and_their_slopes():
    domain = dh.Domain((10, 20, 18, 26), (8, 6))
    counts = np.random.default_rng(1).poisson(np.add.outer(np.arange(8) * 40, np.arange(6)))
    release = dh.publish(counts, dh.Neighbourhood(domain, 1), epsilon=1.0, rng=np.random.default_rng(1))
    number = 200_000
    points = dh.synthetic(release, number, np.random.default_rng(2)).to_numpy()
    cells, places = release.cells(nonnegative=True), domain.locate(points)
    found = np.bincount(np.ravel_multi_index(places.T, domain.shape), minlength=domain.size)
    assert np.abs(np.cumsum(found) - np.cumsum(cells) * (number / cells.sum())).max() <= 1
    # Density 1 + b u on |u| <= 1/2 has mean b/12. Six standard deviations: a false alarm in a thousand million.
    inside = (points - domain.low) - places - 0.5
    own = (places == [5, 3]).all(axis=1)
    slope, _ = release.placement.slope_terms(np.ones(domain.shape), (slice(None), slice(None)))
    assert inside[own, 0].mean() == pytest.approx(2 * slope[5, 3] / 12, abs=6 * 0.29 / own.sum() ** 0.5)
    assert slope[5, 3] > 0.05
    assert len(dh.synthetic(release)) == counts.sum()
