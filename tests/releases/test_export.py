"""Export: every cell in its place, with its estimate and standard error, in every form."""

import sys

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio

import deltahist as dh
from deltahist.errors import InputError
from deltahist.releases.export import check_form, export

SHAPE = (6, 4)


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


def test_csv(release, tmp_path):
    export(release, tmp_path / "cells.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "cells.csv"), release.to_pandas())


def test_csv_in_one_dimension(tmp_path):
    release = one_dimension()
    export(release, tmp_path / "cells.csv")
    frame = pd.read_csv(tmp_path / "cells.csv")
    assert list(frame.columns) == ["column", "low", "high", "x", "estimate", "std_error"]
    assert frame["estimate"].tolist() == release.cells().tolist()
    assert frame["low"].tolist() == list(range(10))


def test_geoparquet_is_in_the_domains_crs(release, tmp_path):
    export(release, tmp_path / "cells.parquet")
    frame = gpd.read_parquet(tmp_path / "cells.parquet")
    assert frame.crs == "EPSG:32618"
    assert frame.total_bounds.tolist() == list(release.domain.bounds)
    assert np.allclose(frame.area, 100 * 100)
    assert np.allclose(frame.centroid.x, frame["x"])
    assert frame["estimate"].tolist() == release.cells().ravel().tolist()


def test_geojson_is_in_longitude_and_latitude(release, tmp_path):
    export(release, tmp_path / "cells.geojson")
    frame = gpd.read_file(tmp_path / "cells.geojson")
    assert frame.crs == "EPSG:4326"
    west, south, east, north = frame.total_bounds
    assert -76 < west < east < -74
    assert 40 < south < north < 41
    back = frame.to_crs("EPSG:32618")
    assert np.allclose(back.total_bounds, release.domain.bounds, atol=0.1)
    assert np.allclose(frame["std_error"], release.estimates()[1].ravel())


@pytest.mark.parametrize("form", ["geojson", "parquet"])
def test_a_plane_without_crs_keeps_its_coordinates(tmp_path, form):
    plane = make(crs=None)
    export(plane, tmp_path / f"cells.{form}")
    read = gpd.read_file if form == "geojson" else gpd.read_parquet
    assert read(tmp_path / f"cells.{form}").total_bounds.tolist() == [0, 0, *SHAPE]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio, when it reads
def test_geotiff_has_north_up_and_two_named_bands(release, tmp_path):
    export(release, tmp_path / "cells.tif")
    assert [path.name for path in tmp_path.iterdir()] == ["cells.tif"]
    with rasterio.open(tmp_path / "cells.tif") as file:
        assert file.crs.to_epsg() == 32618
        assert tuple(file.bounds) == release.domain.bounds
        assert file.descriptions == ("estimate", "std_error")
        sampled = np.array(list(file.sample(release.to_pandas()[["x", "y"]].to_numpy())))
    assert sampled[:, 0].tolist() == release.cells().ravel().tolist()
    assert np.allclose(sampled[:, 1], release.estimates()[1].ravel())


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
    monkeypatch.setattr("deltahist.releases.frames._AT_ONCE", at_once)
    release = make(strategy, sources=sources, **parameters)
    frame = release.to_pandas()
    boxes = dh.workloads.boxes(frame[["west", "south", "east", "north"]].to_numpy())
    expected = dh.answer(release, boxes)
    assert np.allclose(release.estimates()[1].ravel(), expected["std_error"])
    assert np.allclose(frame["estimate"], expected["estimate"])


@pytest.mark.parametrize("form", ["parquet", "geojson", "tif"])
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


def test_a_failed_write_leaves_the_older_file(release, tmp_path, monkeypatch):
    target = tmp_path / "cells.csv"
    target.write_text("older")

    def fail(self, path, **options):
        path.write_text("half")
        raise OSError(28, "no space left")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(OSError, match="no space"):
        export(release, target)
    assert [path.name for path in tmp_path.iterdir()] == ["cells.csv"]
    assert target.read_text() == "older"
