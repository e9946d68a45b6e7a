"""Regions as people have them: files, names, clipped and repaired shapes, boxes in degrees, the antimeridian."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pyproj
import pytest
import shapely

import deltahist as dh
from deltahist.space.geometries import add_names, bend_boxes, boxes_in_degrees, fit, read_box_file, read_geometries

PLANE = dh.Domain((0, 0, 10, 8), (10, 8))
SQUARES = [shapely.box(i, 0, i + 1, 1) for i in range(3)]


def test_of_several_layers_one_is_chosen(tmp_path):
    """A table of styles, as map programs leave it, is none; nor has every file some."""
    file, only = tmp_path / "atlas.gpkg", tmp_path / "styles.gpkg"
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


def test_damaged_geometries_are_refused(tmp_path):
    frame = gpd.GeoDataFrame({"zone": ["abcd", "b", "c"]}, geometry=SQUARES, crs="EPSG:32618")
    frame.to_file(tmp_path / "z.gpkg")
    whole, ring = (tmp_path / "z.gpkg").read_bytes(), shapely.to_wkb(SQUARES[0])
    assert ring in whole
    (tmp_path / "z.gpkg").write_bytes(whole.replace(ring, ring[:-16] + b"\1" * 16))
    with pytest.raises(dh.InputError):
        read_geometries(tmp_path / "z.gpkg", PLANE)


@pytest.mark.parametrize("ending", ["csv", "vrt"])
def test_a_file_is_read_by_the_driver_of_its_ending_alone(tmp_path, ending):
    file = tmp_path / f"zones.{ending}"
    file.write_text('{"type": "FeatureCollection", "features": []}')
    with pytest.raises(dh.InputError, match="suffix is"):
        read_geometries(file, PLANE)
    (tmp_path / "zones.shp").write_text(gpd.GeoSeries(SQUARES).to_json())
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


def test_boxes_are_read_with_their_names(tmp_path):
    text = 'name,North, east ,south,west\n"a,b",3,2,1,0\n\n007,4,4,2,2\n'
    (tmp_path / "boxes.csv").write_text(text, encoding="utf-8-sig")
    corners, names = read_box_file(tmp_path / "boxes.csv", CITY.sides)
    assert corners.tolist() == [[0, 1, 2, 3], [2, 2, 4, 4]]
    assert names == ["a,b", "007"]


@pytest.mark.parametrize(
    "content",
    [b"", b"0,0,1,1\n", *(b"west,south,east,north\n" + rows for rows in
     (b"", b"0,0,1\n0,0,1,one\n", b"0,0,1,inf\n", b'0,0,1,"1\n', b"0,0,1,\xff\n"))],
)  # fmt: skip
def test_files_without_boxes_are_refused(tmp_path, content):
    (tmp_path / "boxes.csv").write_bytes(content)
    with pytest.raises(dh.InputError, match="boxes"):
        read_box_file(tmp_path / "boxes.csv", CITY.sides)


CITY = dh.Domain((580_000, 4_495_000, 605_000, 4_525_000), cell="250m", crs="EPSG:32618")
BOW_TIE = shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])


unwarned = pytest.mark.filterwarnings("ignore::deltahist.errors.DeltaHistWarning")


@unwarned
@pytest.mark.parametrize(
    ("shape", "area", "outside", "note"),
    [
        (shapely.box(-1, 0, 3, 1), 3, 0.25, "clipped: 25%"),
        (shapely.union_all([shapely.box(1, 1, 2, 2), shapely.box(20, 0, 21, 1)]), 1, 0.5, "clipped: 50%"),
        (BOW_TIE, 2, 0, "repaired"),
        (shapely.MultiPolygon([shapely.box(0, 0, 2, 2), shapely.box(1, 1, 3, 3)]), 7, 0, "repaired"),  # no hole
        (shapely.transform(BOW_TIE, lambda v: v - [1, 0]), 1, 0.5, "repaired"),
        (shapely.GeometryCollection([shapely.box(0, 0, 1, 1), shapely.Point(5, 5)]), 1, 0, "None"),
        (None, None, np.nan, "not answered"),
        (shapely.LineString([(1, 1), (2, 2)]), None, np.nan, "not answered"),
        (shapely.Polygon([(1, 1), (2, np.inf), (3, 1)]), None, np.nan, "not answered"),
        (shapely.box(10 - 1e-8, 0, 12, 1), None, 1, "not answered"),  # inside by less than rounding
    ],
)
def test_regions_are_clipped_repaired_or_kept_without_an_answer(shape, area, outside, note):
    found = fit([shape, shapely.box(0, 0, 1, 1)], PLANE)
    assert found.held.tolist() == [area is not None, True]
    assert found.outside == pytest.approx([outside, 0], nan_ok=True)
    assert str(found.notes[0]).startswith(note)
    assert found.notes[1] is None
    if area is not None:
        assert shapely.is_valid(found.shapes[0])
        assert found.shapes[0].area == pytest.approx(area)


@pytest.mark.parametrize(
    ("shapes", "place"),
    [([shapely.box(1, 8.5, 2, 9.5)], (PLANE,)), ([], (PLANE,)), ([BOW_TIE], (dh.Domain((0, 1), (4,)),)),
     ([BOW_TIE], (PLANE, "EPSG:4326"))],
)  # fmt: skip
def test_regions_that_cannot_be_answered_at_all_are_refused(shapes, place):
    with pytest.raises(dh.InputError):
        fit(shapes, *place)


@unwarned
def test_answers_come_back_to_all_regions_and_steps():
    found = fit([shapely.box(1, 1, 2, 2), shapely.box(20, 20, 21, 21), shapely.box(0, 0, 1, 1)], PLANE)
    given = {"step": np.array(list("aabb")), "estimate": np.arange(4), "by": np.array(list("xxyy"), object)}
    columns = found.spread_over_regions(given)
    assert columns["step"].tolist() == list("aaabbb")
    assert columns["estimate"].tolist() == pytest.approx([0, np.nan, 1, 2, np.nan, 3], nan_ok=True)
    assert columns["by"].tolist()[3::2] == ["y", "y"]
    assert columns["outside"].tolist() == [0, 1, 0] * 2
    assert columns["note"].tolist() == [None, "not answered: outside the map", None] * 2


CORNERS = np.array([[-74.01, 40.70, -73.95, 40.75], [-74.2, 40.6, -73.7, 40.9]])


def test_boxes_in_degrees_have_curved_sides_on_the_map():
    with pytest.warns(dh.errors.DeltaHistWarning, match="degrees"):
        found = boxes_in_degrees(CORNERS, CITY)
    fine = gpd.GeoSeries([shapely.box(*c).segmentize(1e-4) for c in CORNERS], crs="EPSG:4326").to_crs(CITY.crs)
    straight = gpd.GeoSeries(shapely.box(*CORNERS.T), crs="EPSG:4326").to_crs(CITY.crs)
    with pytest.warns(dh.errors.DeltaHistWarning, match="1 of 2"):
        on_map = fit(found, CITY, "EPSG:4326").shapes
    expected = shapely.intersection(fine.to_numpy(), shapely.box(*CITY.bounds))
    off = shapely.hausdorff_distance(on_map, expected, densify=0.1)
    assert off.max() < 2e-3 * CITY.cell[0]
    assert shapely.symmetric_difference(straight[1], fine[1]).area > 1e5


@pytest.mark.parametrize(
    ("corners", "domain"),
    [
        ([[-74.01, 40.70, -73.95, 40.75], [585_000, 4_505_000, 588_000, 4_508_000]], CITY),
        ([[-73.95, 40.75, -74.01, 40.70]], CITY),  # reversed: refused as such
        ([[1, 1, 2, 2]], PLANE),
        # A map around its own origin, where small figures are metres.
        ([[10, 10, 60, 60]], dh.Domain((-500, -500, 500, 500), (4, 4), "+proj=laea +lat_0=40 +lon_0=-74")),
    ],
)
def test_boxes_that_may_be_on_the_map_are_not_in_degrees(corners, domain):
    assert boxes_in_degrees(np.array(corners, dtype=float), domain) is None


PACIFIC = dh.Domain((1e6, -3e6, 8e6, 4e6), (8, 8), "EPSG:3832")
WIDE = dh.Domain((-13e6, -7e6, 13e6, 7e6), (100, 40), "EPSG:6933")


@unwarned
@pytest.mark.parametrize(("domain", "west", "east"), [(PACIFIC, 170, -170), (PACIFIC, 170, -180), (WIDE, 180, -120)])
def test_a_box_across_the_antimeridian_is_the_union_of_its_parts_with_their_joint_error(domain, west, east):
    release = dh.publish(np.full(domain.shape, 20), dh.Neighbourhood(domain, 3e5), epsilon=1)
    onto = pyproj.Transformer.from_crs("OGC:CRS84", domain.crs, always_xy=True)
    sides = [each for each in ((west, 180), (-180, east)) if each[0] < each[1]]
    parts = [shapely.box(*onto.transform(w, -10), *onto.transform(e, 10)) for w, e in sides]
    expected = dh.answer(release, shapely.intersection([shapely.union_all(parts)], shapely.box(*domain.bounds)))
    asked = bend_boxes(np.array([[west, -10, east, 10.0]]), domain)
    found = dh.answer(release, gpd.GeoSeries(asked, crs="OGC:CRS84"))
    for name in ("estimate", "std_error", "low", "high"):
        assert found[name].item() == pytest.approx(expected[name].item(), abs=1e-3)


FIJI = dh.Domain.from_degrees((176, -20, -175, -15), "5km")
#: From 178 to -178 degrees, across the antimeridian: written with one long ring, and in two parts.
LONG = shapely.Polygon([(178, -18), (-178, -18), (-178, -16), (178, -16)])
SPLIT = shapely.union_all([shapely.box(178, -18, 180, -16), shapely.box(-180, -18, -178, -16)])


def test_a_region_across_the_antimeridian_is_one_however_it_is_written():
    lon, lat = np.random.default_rng(5).uniform([174, -21], [186, -14], (20_000, 2)).T
    points = pd.DataFrame({"x": (lon + 180) % 360 - 180, "y": lat})
    counted = dh.count(points, FIJI, x="x", y="y", crs="EPSG:4326", outside="clamp")
    truth = ((lon > 178) & (lon < 182) & (lat > -18) & (lat < -16)).sum()
    boxes = [[178, -18, -178, -16], [178, -18, 182, -16], [-182, -18, -178, -16]]
    shapes = [LONG, SPLIT, shapely.box(178, -18, 182, -16), *bend_boxes(np.array(boxes, float), FIJI)]
    shapes.append(shapely.Polygon(LONG.exterior, [[(179.9, -17), (-179.9, -17), (-179.9, -16.9), (179.9, -17)]]))
    fitted = fit(shapes, FIJI, "EPSG:4326")
    found = dh.workloads.regions(fitted.shapes).matrix(FIJI) @ np.asarray(counted.array).ravel()
    assert found[:-1] == pytest.approx(truth, abs=8)  # points in cells that the rim cuts
    assert np.ptp(found[:-1]) < 1e-3
    assert 0 < found[0] - found[-1] < 10  # the hole
    assert (fitted.outside == 0).all()
    release = dh.publish(counted, dh.Neighbourhood(FIJI, "5km"), epsilon=1)
    with pytest.warns(dh.errors.DeltaHistWarning, match="look like degrees"):  # on a map whose origin is within it
        box = dh.answer(release, [boxes[0]])
    split = dh.answer(release, gpd.GeoSeries([SPLIT], crs="EPSG:4326"))
    assert box["estimate"].item() == pytest.approx(split["estimate"].item())


def test_a_box_that_is_reversed_by_mistake_is_not_taken_for_all_the_rest_of_the_world():
    with pytest.raises(dh.InputError, match=r"as west exceeds east.*is the box reversed\?"):
        boxes_in_degrees(np.array([[-73.95, 40.70, -74.01, 40.75]]), CITY)
    assert len(bend_boxes(np.array([[170.0, 40.70, -74.01, 40.75]]), CITY)) == 1
