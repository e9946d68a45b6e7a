"""Points outside the bounds: few are clamped, many are refused with the likely cause, unless it was said."""

import pickle

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.counting.files import look_through
from deltahist.counting.steps import Clock, count_steps

CITY = dh.Domain((583_000, 4_505_000, 588_000, 4_509_000), (20, 16), "EPSG:32618")
PLANE = dh.Domain(CITY.bounds, CITY.shape)
METRES = np.array(CITY.low) + np.random.default_rng(1).random((400, 2)) * (5_000, 4_000)
DEGREES = np.column_stack(
    gpd.GeoSeries(gpd.points_from_xy(*METRES.T), crs="EPSG:32618").to_crs(4326).get_coordinates().to_numpy().T
)
SYDNEY = dh.Domain((330_000, 6_245_000, 340_000, 6_255_000), (20, 20), "EPSG:32756")


def saved(path, points):
    pd.DataFrame(points, columns=["x", "y"]).to_csv(path, index=False)
    return path


#: Domain, points as they stand in a file, the CRS that is said, and the cause that must be found.
CAUSES = {
    "swapped": (CITY, DEGREES[:, ::-1], "EPSG:4326", "swapped"),
    "swapped on the map": (CITY, METRES[:, ::-1], "EPSG:32618", "swapped"),
    "swapped without a place on the map": (SYDNEY, np.array([[-33.87, 151.21]] * 9), "EPSG:4326", "swapped"),
    "degrees for metres": (CITY, DEGREES, "EPSG:32618", "degrees"),
    "metres for degrees": (CITY, METRES, "EPSG:4326", "projected"),
    "degrees on a plane": (PLANE, DEGREES, None, "degrees"),
    "points in kilometres": (PLANE, METRES / 1000, None, "large bounds"),
    "bounds in kilometres": (dh.Domain(tuple(b / 1000 for b in PLANE.bounds), (9, 9)), METRES, None, "small bounds"),
    "bounds in degrees": (dh.Domain((-74.1, 40.6, -73.9, 40.9), (9, 9), "EPSG:32618"), DEGREES, "EPSG:4326", "bounds"),
    "another place": (CITY, METRES + 100_000, "EPSG:32618", "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_found(tmp_path, name):
    domain, points, crs, kind = CAUSES[name]
    path = saved(tmp_path / "p.csv", points)
    with pytest.raises(dh.OutsideBounds, match=r"100%.* outside='clamp'") as found:
        dh.count_file(path, domain, x="x", y="y", crs=crs)
    assert found.value.kind == kind
    assert f"{len(points):,} of {len(points):,} points" in str(found.value)
    assert pickle.loads(pickle.dumps(found.value)).kind == kind


@pytest.mark.parametrize("crs", [None, "EPSG:4326"])
def test_arrays_and_frames_are_refused_too(crs):
    if crs is None:
        domain, points = PLANE, METRES[:, ::-1]
    else:
        domain, points = CITY, gpd.GeoSeries(gpd.points_from_xy(*DEGREES.T[::-1]), crs=crs)
    with pytest.raises(dh.OutsideBounds, match="x and y are swapped"):
        dh.count(points, domain)


@pytest.mark.parametrize(("outside", "refused"), [(0, False), (4, False), (5, True)])
def test_one_in_a_hundred_is_few(outside, refused):
    points = METRES.copy()
    points[:outside] += 50_000
    if refused:
        with pytest.raises(dh.OutsideBounds, match="5 of 400"):
            dh.count(points, PLANE)
    else:
        assert dh.count(points, PLANE).sum() == 400
    assert dh.count(points, PLANE, outside="clamp").sum() == 400
    assert dh.count(points, PLANE, outside="drop").sum() == 400 - outside


def test_steps_that_are_published_already_do_not_count(tmp_path):
    """Few of all rows are swapped, but all of those that are due."""
    places = np.concatenate([METRES, METRES[:5, ::-1]])
    table = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "t": [*[0] * 400, *[1] * 5]})
    table.to_csv(tmp_path / "p.csv", index=False)
    how = {"time": "t", "x": "x", "y": "y"}
    with pytest.raises(dh.OutsideBounds, match=r"5 of 5 points .* swapped"):
        count_steps(tmp_path / "p.csv", PLANE, Clock.of("0", None), 2, due=1, **how)
    table.iloc[:401].to_csv(tmp_path / "p.csv", index=False)
    assert count_steps(tmp_path / "p.csv", PLANE, Clock.of("0", None), 2, **how).rows == 401


def test_files_are_looked_at_together(tmp_path):
    few = METRES[:100].copy()
    few[:2] += 50_000
    files = [saved(tmp_path / "a.csv", few), saved(tmp_path / "b.csv", METRES)]
    with pytest.raises(dh.OutsideBounds, match="2 of 100"):
        look_through(files[:1], PLANE, x="x", y="y")
    look_through(files, PLANE, x="x", y="y")


@pytest.mark.parametrize("outside", [None, "clamp"])
def test_where_no_slip_explains_all_the_best_guess_is_named_with_its_share(tmp_path, outside):
    """It goes to whoever holds the data, and nothing of it to the counts."""
    points = np.concatenate([DEGREES[:240, ::-1], DEGREES[:160] + 5])
    path = saved(tmp_path / "p.csv", points)
    words = r"the best guess: with x and y swapped, 60% of the points outside would lie inside"
    how = {"x": "x", "y": "y", "crs": "EPSG:4326", "outside": outside}
    if outside is None:
        with pytest.raises(dh.OutsideBounds, match=words) as found:
            dh.count_file(path, CITY, **how)
        assert found.value.kind == "unknown"
    else:
        read = dh.count_file(path, CITY, **how)
        assert read.guess == words
        assert words not in repr(read) + str(read.counting.describe())
    far = dh.count_file(saved(tmp_path / "f.csv", DEGREES + 5), CITY, **how | {"outside": "clamp"})
    assert far.guess is None


def test_a_cause_that_is_not_that_of_all_points_says_of_how_many(tmp_path):
    path = saved(tmp_path / "p.csv", np.concatenate([DEGREES[:100], DEGREES[100:, ::-1]]))
    with pytest.raises(dh.OutsideBounds, match=r"swapped.* \(but 25% of all points lie inside as they are"):
        dh.count_file(path, CITY, x="x", y="y", crs="EPSG:4326")


def test_metres_of_a_map_on_the_web_are_guessed(tmp_path):
    web = gpd.GeoSeries(gpd.points_from_xy(*DEGREES.T), crs=4326).to_crs(3857).get_coordinates().to_numpy()
    path = saved(tmp_path / "p.csv", web)
    read = dh.count_file(path, CITY, x="x", y="y", crs="EPSG:32618", outside="clamp")
    assert read.guess == "the best guess: as EPSG:3857, 100% of the points outside would lie inside"
