"""Counting files: every format gives what `count` gives; bad rows, projections, errors, bounded memory."""

import gzip
import io

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest
import shapely

import deltahist as dh
from deltahist.counting import count_file, files
from deltahist.counting.arrays import CHUNK, Reading

SQUARE = dh.Domain((0, 0, 10, 10), (10, 10))
LINE = dh.Domain((0, 10), (10,))
NEW_YORK = dh.Domain((560000, 4480000, 610000, 4530000), (20, 20), "EPSG:32618")
KEY = bytes(range(32))
XY = {"x": "x", "y": "y"}


@pytest.fixture
def points():
    """Points (500, 2), a few outside the square."""
    return np.random.default_rng(3).uniform(-0.5, 10.5, (500, 2))


def table(points):
    return pd.DataFrame(
        {"name": "n", "x": points[:, 0], "y": points[:, 1], "user": np.arange(len(points)) % 40}
    )


WRITERS = {
    "points.csv": lambda frame, path: frame.to_csv(path, index=False),
    "points.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "points.tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "points.txt": lambda frame, path: frame.to_csv(path, index=False, sep=";"),
    "points.parquet": lambda frame, path: frame.to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("outside", ["clamp", "drop"])
@pytest.mark.parametrize("rows", [64, 1 << 18])
def test_tables_equal_count(tmp_path, monkeypatch, points, name, outside, rows):
    monkeypatch.setattr(files, "CHUNK", rows)
    path = tmp_path / name
    WRITERS[name](table(points), path)
    counted = count_file(path, SQUARE, **XY, outside=outside)
    np.testing.assert_array_equal(counted.counts, dh.count(points, SQUARE, outside=outside))
    beyond = int(((points < 0) | (points > 10)).any(axis=1).sum())
    assert (counted.rows, counted.bad_rows, counted.outside, counted.users) == (500, 0, beyond, None)
    assert counted.kept == counted.counts.sum() == 500 - beyond * (outside == "drop")
    assert counted.counting.dropped == (("points outside",) if outside == "drop" else ())


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_rows_of_users_stay_in_every_format(tmp_path, points, name):
    WRITERS[name](table(points), tmp_path / name)
    table(points).to_parquet(tmp_path / "reference.parquet")
    how = {**XY, "user": "user", "max_per_user": 3, "key": KEY, "outside": "clamp"}
    one, other = (count_file(tmp_path / n, SQUARE, **how) for n in (name, "reference.parquet"))
    np.testing.assert_array_equal(one.counts, other.counts)
    assert (one.kept, one.users) == (120, 40)


@pytest.mark.parametrize("name", ["points.geoparquet", "points.gpkg", "points.geojson", "points.fgb"])
def test_geometries_equal_geopandas_projection(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "CHUNK", 64)
    rng = np.random.default_rng(4)
    places = np.column_stack([rng.uniform(-74.2, -73.7, 300), rng.uniform(40.5, 40.9, 300)]).round(6)
    frame = gpd.GeoDataFrame({"who": np.arange(300) % 7}, geometry=shapely.points(places), crs=4326)
    path = tmp_path / name
    (frame.to_parquet if name.endswith("parquet") else frame.to_file)(path)
    expected = dh.count(frame.to_crs(NEW_YORK.crs), NEW_YORK)
    np.testing.assert_array_equal(count_file(path, NEW_YORK).counts, expected)
    bounded = count_file(path, NEW_YORK, user="who", max_per_user=2)
    assert (bounded.kept, bounded.users) == (14, 7)


def test_geometry_in_the_domains_crs_is_taken_as_it_is(tmp_path):
    frame = gpd.GeoDataFrame(geometry=shapely.points([[585000.0, 4500000.0]]), crs=32618)
    frame.to_parquet(tmp_path / "p.parquet")
    np.testing.assert_array_equal(
        count_file(tmp_path / "p.parquet", NEW_YORK).counts, dh.count(frame, NEW_YORK)
    )


def gowalla_like(number):
    """Lines without a header: user, time, latitude, longitude, place; and longitudes and latitudes (m, 2)."""
    rng = np.random.default_rng(5)
    places = np.column_stack([rng.uniform(-74.2, -73.7, number), rng.uniform(40.5, 40.9, number)])
    lines = [
        f"{i % 9}\t2010-10-12T00:21:{i % 60:02}Z\t{lat!r}\t{lon!r}\t{23261 + i}\n"
        for i, (lon, lat) in enumerate(places.tolist())
    ]
    return "".join(lines), places


@pytest.mark.parametrize("spec", [(3, 2, 0), ("3", "2", "0")])
def test_headerless_gzipped_lines_by_column_number(tmp_path, spec):
    text, places = gowalla_like(200)
    path = tmp_path / "events.tsv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    x, y, user = spec
    project = pyproj.Transformer.from_crs(4326, 32618, always_xy=True)
    expected = dh.count(np.column_stack(project.transform(*places.T)), NEW_YORK)
    counted = count_file(path, NEW_YORK, x=x, y=y, crs="EPSG:4326")
    np.testing.assert_array_equal(counted.counts, expected)
    assert counted.rows == 200
    bounded = count_file(path, NEW_YORK, x=x, y=y, crs="EPSG:4326", user=user, max_per_user=5)
    assert (bounded.kept, bounded.users) == (45, 9)


@pytest.mark.parametrize(
    ("text", "x", "rows"),
    [
        ("0\n5\n7\n", "0", 3),  # a number is data, also where it is the column's number
        ("age\n5\n7\n", "0", 2),
        ("age\n5\n7\n", "age", 2),
        ("\ufeffage\n5\n", "age", 1),
        ('"age"\n"5"\n', "age", 1),
        ("age\n 5 \n+7\n1e0\n", "age", 3),
        ('note,age\n"two\nlines",5\n"a,b",6\n', "age", 2),
    ],
)
def test_headers(tmp_path, text, x, rows):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    assert count_file(tmp_path / "a.csv", LINE, x=x).kept == rows


BAD = "x,y\n1,2\nabc,2\n,2\nnan,2\n1,inf\n1\n1,2,3\n4,4\n"


def test_bad_rows_are_refused_with_how_many_or_dropped(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(BAD)
    with pytest.raises(dh.InputError, match=r"6 of 8 rows .*drop_bad_rows=True"):
        count_file(path, SQUARE, **XY)
    counted = count_file(path, SQUARE, **XY, drop_bad_rows=True)
    assert (counted.rows, counted.bad_rows, counted.kept, counted.counting.dropped) == (8, 6, 2, ("bad rows",))


def test_bad_rows_in_parquet(tmp_path):
    pq.write_table(pa.table({"x": [1.0, None, float("nan"), 2.0], "y": [1, 1, 1, 1]}), tmp_path / "b.parquet")
    with pytest.raises(dh.InputError, match="2 of 4 rows"):
        count_file(tmp_path / "b.parquet", SQUARE, **XY)
    assert count_file(tmp_path / "b.parquet", SQUARE, **XY, drop_bad_rows=True).kept == 2


def test_a_table_of_nobody_is_counted_as_any_other(tmp_path):
    """Where points outside are spoken for; in silence it is a slip."""
    how = {"x": "x", "y": "y", "user": "who", "max_per_user": 1, "drop_bad_rows": True}
    domain, found = dh.Domain((0, 0, 2, 2), (2, 2)), []
    for rows in ("1,1,ann\n", ""):
        (tmp_path / "p.csv").write_text("x,y,who\n" + rows)
        found.append([dh.count_file(tmp_path / "p.csv", domain, outside=said, **how) for said in ("clamp", "drop")])
    assert [each.counting for each in found[0]] == [each.counting for each in found[1]]
    assert [each.kept for each in found[1]] == [0, 0]
    with pytest.raises(dh.InputError, match=r"is empty: it has no rows; .* outside='clamp' or outside='drop'"):
        dh.count_file(tmp_path / "p.csv", domain, **how)


def test_what_is_dropped_says_what_could_be_not_what_was(tmp_path):
    (tmp_path / "good.csv").write_text("x,y\n1,2\n")
    counted = count_file(tmp_path / "good.csv", SQUARE, **XY, drop_bad_rows=True, outside="drop")
    assert counted.counting.dropped == ("bad rows", "points outside")


def test_a_bad_first_row_without_a_header_is_a_bad_row(tmp_path):
    (tmp_path / "a.tsv").write_text("7\tabc\t3\n7\t1\t3\n")
    with pytest.raises(dh.InputError, match="1 of 2 rows"):
        count_file(tmp_path / "a.tsv", SQUARE, x=1, y=2)


def test_bad_rows_late_in_a_file_of_many_blocks(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("x,y\n" + "1,2\n" * 5_000_000 + "abc,2\n")  # the last block holds a bad row only, perhaps
    assert count_file(path, SQUARE, **XY, drop_bad_rows=True).bad_rows == 1


def test_missing_and_empty_points_are_bad_rows(tmp_path):
    frame = gpd.GeoDataFrame(geometry=[shapely.Point(585000, 4500000), None, shapely.Point()], crs=32618)
    frame.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(dh.InputError, match="2 of 3 rows"):
        count_file(tmp_path / "p.parquet", NEW_YORK)


def polygons(path):
    gpd.GeoDataFrame(geometry=[shapely.box(0, 0, 1, 1)], crs=4326).to_parquet(path)


def layers(path):
    for layer in ("spring", "autumn"):
        gpd.GeoDataFrame(geometry=[shapely.Point(1, 1)], crs=4326).to_file(path, layer=layer)


def cut(path):
    whole = io.BytesIO()
    table(np.ones((5000, 2))).to_parquet(whole)
    path.write_bytes(whole.getvalue()[:3000])


def cut_gzip(path):
    whole = gzip.compress(gowalla_like(5000)[0].encode())
    path.write_bytes(whole[: len(whole) // 2])


def text(content):
    return lambda path: path.write_text(content)


USER = {**XY, "user": "user", "max_per_user": 2}
ERRORS = [
    ("none.csv", None, SQUARE, XY, ["none.csv", "does not exist"]),
    ("empty.csv", text(""), SQUARE, XY, ["empty.csv", "no rows"]),
    ("blank.csv", text("\n\n"), SQUARE, XY, ["blank.csv", "no rows"]),
    ("head.csv", text("x,y\n"), SQUARE, XY, ["head.csv", "no rows"]),
    ("none.geojson", text('{"type":"FeatureCollection","features":[]}'), NEW_YORK, {}, ["no rows"]),
    ("a.csv", text("lon,lat\n1,2\n"), SQUARE, XY, ["'x'", "lon, lat"]),
    ("a.csv", text("1,2\n3,4\n"), SQUARE, {"x": "0", "y": "7"}, ["7"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, {"x": "x"}, ["x= and y="]),
    ("a.csv", text("x,y\n1,2\n"), LINE, XY, ["x only"]),
    ("a.csv", text("x,y\nhere,2\nthere,3\n"), SQUARE, XY, ["'x'", "'here'", "no numbers"]),
    ("a.csv", text("x;y\n1,5;2,5\n"), SQUARE, XY, ["'1,5'", "must be numbers"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, USER, ["'user'", "x, y"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, {**XY, "user": "x"}, ["max_per_user", "both or neither"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, {**XY, "max_per_user": 2}, ["user", "both or neither"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, {**XY, "user": "x", "max_per_user": 0}, ["max_per_user is 0"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, {**XY, "outside": "lose"}, ["'lose'", "'clamp'"]),
    ("a.csv", text("x,y\n1,2\n"), NEW_YORK, XY, ["a.csv", "crs='EPSG:4326'"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, {**XY, "crs": "EPSG:4326"}, ["degrees", "project them"]),
    ("a.csv", text("x,y\n1,2\n"), SQUARE, {**XY, "crs": "EPSG:32618"}, ["EPSG:32618", "give the domain"]),
    ("a.csv", lambda path: path.write_bytes("x,y\n1,2\n".encode("utf-16")), SQUARE, XY, ["UTF-8"]),
    ("a.csv", lambda path: path.write_bytes(b"x,y,user\n1,2,\xe9\n"), SQUARE, USER, ["invalid UTF8"]),
    ("a.csv", text("x,y\nnan,2\n"), SQUARE, {**XY, "drop_bad_rows": True}, ["none of the 1 rows"]),
    ("a.doc", text("x,y\n1,2\n"), SQUARE, XY, ["'.doc'", ".parquet"]),
    ("a.parquet", text("hello, this is text"), SQUARE, XY, ["no readable Parquet"]),
    ("a.parquet", cut, SQUARE, XY, ["no readable Parquet", "cut short"]),
    ("a.parquet", lambda path: table(np.ones((2, 2))).to_parquet(path), SQUARE, {}, ["x= and y="]),
    (
        "a.parquet",
        lambda path: table(np.ones((2, 2))).to_parquet(path),
        SQUARE,
        {"x": "name", "y": "y"},
        ["'name'"],
    ),
    (
        "a.parquet",
        lambda path: table(np.ones((2, 2))).to_parquet(path),
        SQUARE,
        {"x": "z", "y": "y"},
        ["x, y, user"],
    ),
    ("a.parquet", polygons, NEW_YORK, {}, ["not points"]),
    ("a.tsv.gz", cut_gzip, NEW_YORK, {"x": 3, "y": 2, "crs": "EPSG:4326"}, ["a.tsv.gz", "cut short"]),
    ("a.gpkg", layers, NEW_YORK, {}, ["spring", "autumn", "layer="]),
    ("a.gpkg", layers, NEW_YORK, {"layer": "winter"}, ["winter"]),
    ("a.gpkg", text("hello"), NEW_YORK, {}, ["a.gpkg", "cannot be read"]),
    ("a.json", text('{"a": 1}'), NEW_YORK, {}, ["a.json", "cannot be read"]),
]


@pytest.mark.parametrize(("name", "write", "domain", "how", "parts"), ERRORS)
def test_errors_are_one_line_that_names_the_cause(tmp_path, name, write, domain, how, parts):
    if write is not None:
        write(tmp_path / name)
    with pytest.raises(dh.InputError) as caught:
        count_file(tmp_path / name, domain, **how)
    message = str(caught.value)
    assert "\n" not in message
    assert not [part for part in parts if part not in message], message


def test_a_crs_that_contradicts_the_file_is_refused(tmp_path):
    frame = gpd.GeoDataFrame(geometry=[shapely.Point(-73.9, 40.7)], crs=4326)
    frame.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(dh.InputError, match=r"EPSG:32618.*EPSG:4326"):
        count_file(tmp_path / "p.parquet", NEW_YORK, crs="EPSG:32618")
    assert count_file(tmp_path / "p.parquet", NEW_YORK, crs="OGC:CRS84").kept == 1


def test_a_layer_is_chosen_by_name(tmp_path):
    layers(tmp_path / "a.gpkg")
    assert count_file(tmp_path / "a.gpkg", NEW_YORK, layer="autumn", outside="clamp").kept == 1


def test_one_row_group_is_not_read_whole(tmp_path):
    """Arrow's own memory stays at a few batches, however large the row group."""
    path = tmp_path / "large.parquet"
    rng = np.random.default_rng(6)
    number = 1_500_000
    pq.write_table(pa.table({"x": rng.random(number), "y": rng.random(number)}), path, row_group_size=number)
    source = files.open_source(path, Reading("x", "y"), 2)
    before = pa.total_allocated_bytes()
    seen = most = 0
    for batch in source.batches:
        assert len(batch.columns[0]) <= CHUNK
        most = max(most, pa.total_allocated_bytes() - before)
        seen += len(batch.columns[0])
    assert seen == number
    assert most < 16 * number  # what both columns would take


def test_progress_is_shown_on_demand_and_not_otherwise(tmp_path, capfd):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    count_file(tmp_path / "a.csv", SQUARE, **XY)
    assert capfd.readouterr() == ("", "")
    assert count_file(tmp_path / "a.csv", SQUARE, **XY, progress=True).kept == 1
    assert capfd.readouterr().out == ""


def test_columns_of_one_name_are_told_apart_by_number(tmp_path):
    path = tmp_path / "double.csv"
    path.write_text("x,y,x\n1,2,3\n1,2,3\n")
    with pytest.raises(dh.InputError, match=r"column 'x' is 2 times in 'double\.csv'"):
        dh.count_file(path, dh.Domain((0, 0, 4, 4), (4, 4)), x="x", y="y")
    assert dh.count_file(path, dh.Domain((0, 0, 4, 4), (4, 4)), x="2", y="y").counts[3, 2] == 2


def test_the_first_bad_row_is_named(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("x,y\n1,2\n2,2\n,3\n1,n/a\n")
    with pytest.raises(dh.InputError, match=r"2 of 4 rows .* \(the first is row 3, about\)"):
        dh.count_file(path, dh.Domain((0, 0, 4, 4), (4, 4)), x="x", y="y")


def test_coordinates_keep_all_their_digits(tmp_path):
    """Metres of a map have seven digits before the point: in 32 bits a point would move by half a metre."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    domain = dh.Domain((5_810_000, 5_810_010), (100,))
    values = np.array([5_810_000.09, 5_810_000.11, 5_810_004.99])
    for kind in (pa.float64(), pa.decimal128(12, 2), pa.string()):
        column = pa.array([f"{v:.2f}" for v in values]).cast(kind)
        pq.write_table(pa.table({"x": column}), tmp_path / "p.parquet")
        found = dh.count_file(tmp_path / "p.parquet", domain, x="x").counts
        assert np.flatnonzero(found).tolist() == [0, 1, 49]
