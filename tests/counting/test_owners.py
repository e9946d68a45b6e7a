"""One row for each user: places and numbers of a file."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.counting.files import read_owners

AREA = dh.DiffusionMechanism(
    dh.Network.from_edges([(1, 2)]), "exp(-d)", 1, columns=("x", "y"), crs="EPSG:32618"
).area


@pytest.fixture
def table(tmp_path):
    frame = pd.DataFrame({"user": [7, 8], "lon": [-73.9, -74.0], "lat": [40.7, 40.8], "age": ["31", "42,5"]})
    frame.to_csv(tmp_path / "homes.csv", index=False, sep=";")
    (tmp_path / "none.csv").write_text("user;age\n;3\nann;4\n")
    (tmp_path / "empty.csv").write_text("user;age\n")
    return tmp_path / "homes.csv"


def test_places_come_to_the_map(table):
    found = read_owners(table, user="user", x="lon", y="lat", crs="EPSG:4326", area=AREA)
    assert found.index.tolist() == ["7", "8"]
    there = gpd.GeoSeries.from_xy([-73.9, -74.0], [40.7, 40.8], crs="EPSG:4326").to_crs("EPSG:32618")
    np.testing.assert_allclose(found.to_numpy(), np.column_stack([there.x, there.y]), atol=1e-3)
    gpd.GeoDataFrame({"user": ["a", "b"]}, geometry=there).to_file(table.with_suffix(".gpkg"))
    places = read_owners(table.with_suffix(".gpkg"), user="user", area=AREA)
    np.testing.assert_allclose(places.to_numpy(), found.to_numpy(), atol=1e-3)


def test_numbers_are_taken_unchanged(table):
    assert read_owners(table, user="user", x="age", decimal=",")[0].to_dict() == {"7": 31, "8": 42.5}
    assert read_owners(table, user="user", x="lat", where="user > 7")[0].to_dict() == {"8": 40.8}


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("homes.csv", {"x": "age"}, "1 of 2 rows of 'homes.csv' have no user, or missing, unreadable"),
        ("homes.csv", {"x": "size"}, "column 'size' is not in 'homes.csv'"),
        ("homes.csv", {"x": "lon", "y": "lat", "area": AREA}, "the CRS of the coordinates in 'homes.csv' is not known"),
        ("homes.csv", {"x": "lon", "y": "lat", "crs": "EPSG:4326"}, "are degrees"),
        ("homes.csv", {}, "needs columns for its coordinates"),
        ("none.csv", {"x": "age"}, "1 of 2 rows"),
        ("empty.csv", {"x": "age"}, "is empty"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(table, name, how, message):
    with pytest.raises(dh.InputError, match=message):
        read_owners(table.with_name(name), user="user", **how)
