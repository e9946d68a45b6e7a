"""What anybody does with a release in Python: open, look, turn into frames, ask."""

import io

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import deltahist as dh

CRS = "EPSG:32618"
DOMAIN = dh.Domain.from_cell((583_000, 4_505_000, 587_000, 4_508_000), "500m", CRS)
NEAR = dh.Neighbourhood(DOMAIN, "1km")
COUNTS = np.arange(DOMAIN.size).reshape(DOMAIN.shape) % 7
RELEASE = dh.publish(COUNTS, NEAR, "identity", epsilon=1, rng=np.random.default_rng(2))
LINE = dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5)
SORTED = dh.publish_sorted(np.arange(100), LINE, 1.0)
MEDIAN = dh.publish_quantile(np.arange(99), 0.5, LINE, 1.0)


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (RELEASE, ("Release: Identity with laplace noise", "up to 1000 m (NOT for", "m, 583000")),
        (SORTED, ("SortedRelease: sums of", "ε = 1 for each point moving up to 5 units", "20 cells of 5 units")),
        (MEDIAN, ("Quantile: the 0.5-quantile of 99 points", "moving up to 5 units", "points: 99")),
    ],
)  # fmt: skip
def test_a_release_says_what_it_is_in_four_lines(release, words):
    said = repr(release)
    assert len(said.splitlines()) == 4
    for word in words:
        assert word in said


def test_notebooks_show_the_map_and_four_lines():
    shown = RELEASE._repr_html_()
    assert shown.startswith('<img alt="published map" src="data:image/png;base64,iVBOR')
    assert "<pre>Release: " in shown
    assert "<pre>SortedRelease: " in SORTED._repr_html_()
    assert MEDIAN._repr_html_().startswith("<pre>Quantile: ")


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
    with pytest.raises(dh.InputError, match="no geometry"):
        SORTED.to_geopandas()
    with pytest.raises(dh.InputError, match="has no cells"):
        MEDIAN.to_pandas()


def test_xarray_is_right_side_up():
    found = RELEASE.to_xarray()
    assert found["estimate"].dims == ("y", "x")
    assert found["estimate"].shape == DOMAIN.shape[::-1]
    x, y = DOMAIN.centres(0)[2], DOMAIN.centres(1)[4]
    assert float(found["estimate"].sel(x=x, y=y)) == RELEASE.cells()[2, 4]
    assert found.attrs["crs"] == CRS
    assert found["std_error"].attrs["units"] == "points"
    assert found["estimate"].attrs["long_name"] == "points per cell, unbiased"
    kinds = (RELEASE.to_xarray(nonnegative=True), SORTED.to_xarray())
    assert [each["estimate"].attrs["long_name"] for each in kinds] == [
        "points per cell, non-negative",
        "points per cell, non-negative (isotonic regression)",
    ]
    assert SORTED.to_xarray()["estimate"].dims == ("x",)


def test_plots(tmp_path):
    assert dh.plots.plot_map(RELEASE).get_xlabel().startswith("easting")
    zones = gpd.GeoDataFrame({"name": ["a", "b"]}, geometry=shapely.box(*BOXES.T), crs=CRS)
    assert len(dh.plots.plot_regions(RELEASE, dh.answer(RELEASE, zones)).collections[0].get_paths()) == 2
    figure = dh.plots.plot_map(SORTED).figure
    figure.savefig(file := io.BytesIO(), format="png")
    assert file.getvalue().startswith(b"\x89PNG")


BOXES = np.array([[583_000, 4_505_000, 584_000, 4_506_000], [584_000, 4_505_000, 587_000, 4_508_000.0]])


def test_questions_may_be_asked_in_many_ways():
    expected = dh.answer(RELEASE, dh.workloads.boxes(BOXES))
    pd.testing.assert_frame_equal(dh.answer(RELEASE, BOXES), expected)
    pd.testing.assert_frame_equal(dh.answer(RELEASE, BOXES.tolist()), expected)
    shapes = shapely.box(*BOXES.T)
    for asked in (list(shapes), shapes, gpd.GeoSeries(shapes), dh.workloads.regions(shapes)):
        assert np.allclose(dh.answer(RELEASE, asked)["estimate"], expected["estimate"])
    assert np.allclose(dh.answer(RELEASE, shapes[0])["estimate"], expected["estimate"][:1])
    assert len(dh.answer(SORTED, [[0, 10], [10, 40]])) == 2
    assert len(dh.answer(SORTED, [0, 10])) == 1


def test_a_frame_keeps_its_columns_and_its_crs():
    zones = gpd.GeoDataFrame({"zone": ["a", "b"], "low": [1, 2]}, geometry=shapely.box(*BOXES.T), crs=CRS, index=[7, 3])
    with pytest.warns(dh.DeltaHistWarning, match="low to low_region"):
        found = dh.answer(RELEASE, zones)
    assert isinstance(found, gpd.GeoDataFrame)
    assert found["zone"].tolist() == ["a", "b"]
    assert found["low_region"].tolist() == [1, 2]
    assert found.index.tolist() == [7, 3]
    assert {"estimate", "std_error", "low", "high"} <= set(found.columns)
    zones = zones.drop(columns="low")
    degrees = dh.answer(RELEASE, zones.to_crs("EPSG:4326"))
    assert degrees.crs == "EPSG:4326"
    assert np.allclose(degrees["estimate"], found["estimate"], rtol=1e-3, atol=0.01)
    plane = dh.publish(np.ones((4, 4), dtype=int), dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1), epsilon=1)
    with pytest.raises(dh.InputError, match="a plane without a CRS"):
        dh.answer(plane, zones)


@pytest.mark.parametrize("asked", ["everything", 7, [], None, pd.DataFrame({"west": [0]})])
def test_what_is_no_question(asked):
    with pytest.raises(dh.InputError, match="it must be a workload"):
        dh.answer(RELEASE, asked)


def test_a_quantile_answers_no_counts():
    with pytest.raises(dh.InputError, match="it answers no counts"):
        dh.answer(MEDIAN, [[0, 1]])


def test_strategies_by_name():
    assert dh.publish(COUNTS, NEAR, "hierarchical:3", epsilon=1).strategy.branching == 3
    with pytest.raises(dh.InputError, match="strategy is 'flo'"):
        dh.publish(COUNTS, NEAR, "flo", epsilon=1)


def test_programs_tell_errors_apart():
    window = dh.Window(2, 1.0)
    window.charge(1, 0.75)
    with pytest.raises(dh.BudgetExceeded):
        window.charge(1, 0.5)
    assert issubclass(dh.BudgetExceeded, dh.InputError)
    assert issubclass(dh.DamagedFile, dh.InputError)
