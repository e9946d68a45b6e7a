"""Places, searches and an operator's lines around the map."""

import geopandas as gpd
import numpy as np
import pytest
import shapely
from fastapi.testclient import TestClient

from deltahist.errors import InputError
from deltahist.server.app import create_app
from deltahist.server.districts import Districts
from deltahist.server.places import read_context
from deltahist.server.service import Settings


def test_places_in_a_box_are_the_largest_ones_spread_over_it(client):
    found = client.get("/static/places.json?bbox=-74.1,40.6,-73.9,40.8").json()
    people = [each["population"] for each in found]
    assert {"New York City", "Brooklyn"} <= {each["name"] for each in found}
    assert people == sorted(people, reverse=True)
    assert len({((each["x"] + 74.1) // 0.01, (each["y"] - 40.6) // 0.01) for each in found}) == len(found)
    across = client.get("/static/places.json?bbox=170,-50,190,0").json()
    assert {"Auckland", "Apia"} <= {each["name"] for each in across if 170 <= each["x"] <= 190}  # on both sides of 180°
    for text in ("1,2,x,4", "\U00011f50,0,1,1"):
        assert client.get("/static/places.json", params={"bbox": text}).status_code == 400


def test_a_search_finds_the_largest_place_of_a_name(client):
    for text, name in {"ZURICH": "Zürich", "cologne": "Köln", "Paris,  fr": "Paris"}.items():
        found = client.get("/static/search.json", params={"q": text, "bbox": "-75,40,-73,41"}).json()
        assert found[0]["name"] == name
        assert [each["population"] for each in found] == sorted((each["population"] for each in found), reverse=True)
    near = client.get("/static/search.json", params={"q": "har", "bbox": "-75,40,-73,41"}).json()
    assert near[0]["name"] == "Harlem"  # in the box, and smaller than Harbin
    assert max(each["population"] for each in near) > near[0]["population"]


@pytest.mark.parametrize(("crs", "unit"), [("EPSG:32618", "degrees"), (None, "plane")])
def test_a_context_is_lines_of_a_bounded_size(tmp_path, client, catalogue, crs, unit):
    x = np.arange(580000, 592000, 0.1)  # 120,000 vertices
    curve = shapely.LineString(np.column_stack([x, 4500000 + 1000 * np.sin(x / 1000), x]))
    expected = gpd.GeoSeries([curve, shapely.box(580000, 4500000, 590000, 4501000)], crs=crs)
    expected.to_frame("geometry").to_parquet(tmp_path / "lines.parquet")
    served = TestClient(create_app(catalogue, Settings(context=read_context(tmp_path / "lines.parquet", None))))
    assert served.get("/static/settings.json").json()["context"] == unit
    drawn = shapely.from_geojson(served.get("/static/context.json").content)
    assert shapely.get_num_coordinates(drawn) <= 100_000
    expected = expected if crs is None else expected.to_crs("EPSG:4326")
    places = shapely.points(expected.get_coordinates().to_numpy()[::50])
    assert shapely.distance(places, drawn).max() < (5 if crs is None else 5e-5)
    many = gpd.GeoSeries(shapely.linestrings(np.arange(240_000.0).reshape(60_000, 2, 2)), crs=crs)
    many.to_frame("geometry").to_parquet(tmp_path / "many.parquet")
    with pytest.raises(InputError):
        read_context(tmp_path / "many.parquet", None)
    assert client.get("/static/context.json").status_code == 404


@pytest.mark.parametrize("shapes", [[None], [shapely.Point(1, 2)], [shapely.Polygon()], [shapely.box(1, 2, np.inf, 4)]])
def test_files_without_lines_or_areas_are_refused(tmp_path, shapes):
    gpd.GeoDataFrame(geometry=shapes, crs="EPSG:32618").to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError):
        read_context(tmp_path / "a.parquet", None)
    with pytest.raises(InputError):
        Districts.read(tmp_path / "a.parquet", None)
