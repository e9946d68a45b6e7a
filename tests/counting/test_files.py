"""Counting files: every format and wrapping gives what `count` gives; bad rows, projections, errors, bounded memory."""

import gzip
import io
import json
import sys
import zipfile

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest
import shapely

import deltahist as dh
from deltahist.counting import count_file, files, tables
from deltahist.counting.arrays import CHUNK, Reading
from deltahist.counting.files import open_source

SQUARE = dh.Domain((0, 0, 10, 10), (10, 10))
LINE = dh.Domain((0, 10), (10,))
NEW_YORK = dh.Domain((560000, 4480000, 610000, 4530000), (20, 20), "EPSG:32618")
METRES = dh.Domain((0, 0, 10, 10), (10, 10), "EPSG:32618")
XY = {"x": "x", "y": "y"}


@pytest.fixture(scope="module")
def frame():
    """A table (200 rows) with gaps, numbers of all lengths, and a few points outside the square."""
    rng = np.random.default_rng(3)
    out = pd.DataFrame(rng.uniform(-0.5, 10.5, (200, 2)), columns=["x", "y"])
    out.loc[::7, "x"] = out.loc[::7, "x"].round()
    return out.assign(user=np.arange(200) % 40, kind=rng.choice(["bus", "tram", None], 200))


def zip_of(path, *members, folder=""):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            archive.write(member, folder + member.name)
    return path


def shapefile(frame, path):
    points = gpd.points_from_xy(frame.x, frame.y)
    gpd.GeoDataFrame(frame.drop(columns=["x", "y"]), geometry=points, crs=32618).to_file(path)
    return [path.with_suffix(ending) for ending in (".shp", ".shx", ".dbf", ".prj", ".cpg")]


def write(frame, folder, name):
    """The table in a format, wrapped as the name's endings say."""
    inner = folder / name.removesuffix(".zip")
    if name.startswith("points"):
        parts = shapefile(frame, folder / "points.shp")
        return zip_of(folder / name, *parts, folder="city/") if name.endswith(".zip") else folder / name
    if "json" in name:
        frame.to_json(inner, orient="records", lines=True, double_precision=15)
    elif ".parquet" in name:
        frame.to_parquet(inner)
    elif ".xlsx" in name:
        frame.to_excel(inner, index=False)
    else:
        frame.to_csv(inner, index=False, sep={"tsv": "\t", "txt": ";"}.get(name.split(".")[1], ","))
    return zip_of(folder / name, inner) if name.endswith(".zip") else inner


NAMES = [
    "p.csv", "p.csv.gz", "p.tsv", "p.txt", "p.csv.gz.zip", "p.jsonl", "p.jsonl.zip", "p.parquet", "p.parquet.zip",
    "p.xlsx", "p.xlsx.zip", "points.shp", "points.zip",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_what_arrays_give(tmp_path, frame, monkeypatch, name):
    monkeypatch.setattr(files, "CHUNK", 64)
    path, how = write(frame, tmp_path, name), {} if name.startswith("points") else {**XY, "crs": "EPSG:32618"}
    bound = {"user": "user", "max_per_user": 2, "key": bytes(32)}
    beyond = int(((frame[["x", "y"]] < 0) | (frame[["x", "y"]] > 10)).any(axis=1).sum())
    # An archive is unpacked, and then read as what it holds.
    for more in ({},) if name.endswith(".zip") else ({}, bound, {"where": "kind = 'bus' and \"user\" > 9"}):
        rows = frame[(frame.kind == "bus") & (frame.user > 9)] if "where" in more else frame
        users = bound | {"user": rows.user} if more is bound else {}
        for outside in ("clamp",) if more else ("clamp", "drop") if name == "p.csv" else ("drop",):
            counted = count_file(path, METRES, **how, **more, outside=outside)
            same = dh.count(rows[["x", "y"]].to_numpy(), METRES, outside=outside, **users)
            np.testing.assert_array_equal(counted.counts, same)
            assert (counted.rows, counted.bad_rows, counted.unmatched) == (200, 0, 200 - len(rows))
            assert counted.users == (40 if users else None)
            assert counted.counting.dropped == same.counting.dropped
        if not more:
            assert counted.outside == beyond == 200 - counted.kept


@pytest.mark.parametrize("name", ["p.geoparquet", "p.gpkg", "p.geojson", "p.shp"])
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
    if name != "p.gpkg":
        return
    with pytest.raises(dh.InputError, match=r"crs is 'EPSG:32618', but .* states 'EPSG:4326'"):
        count_file(path, NEW_YORK, crs="EPSG:32618")
    assert count_file(path, NEW_YORK, crs="OGC:CRS84").kept == 300
    frame.to_crs(32618).to_parquet(tmp_path / "same.parquet")  # taken as it is
    np.testing.assert_array_equal(count_file(tmp_path / "same.parquet", NEW_YORK).counts, expected)


@pytest.mark.parametrize("spec", [(3, 2, 0), ("3", "2", "0")])
def test_headerless_gzipped_lines_by_column_number(tmp_path, spec):
    rng = np.random.default_rng(5)
    places = np.column_stack([rng.uniform(-74.2, -73.7, 200), rng.uniform(40.5, 40.9, 200)])
    lines = [f"{i % 9}\t2010-10-12T00:21:{i % 60:02}Z\t{y!r}\t{x!r}\t{i}\n" for i, (x, y) in enumerate(places.tolist())]
    path = tmp_path / "events.tsv.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    project = pyproj.Transformer.from_crs(4326, 32618, always_xy=True)
    expected = dh.count(np.column_stack(project.transform(*places.T)), NEW_YORK)
    how = {"x": spec[0], "y": spec[1], "crs": "EPSG:4326"}
    np.testing.assert_array_equal(count_file(path, NEW_YORK, **how).counts, expected)
    bounded = count_file(path, NEW_YORK, **how, user=spec[2], max_per_user=5)
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


def test_columns_of_one_name_are_told_apart_by_number(tmp_path):
    (tmp_path / "double.csv").write_text("x,y,x\n1,2,3\n1,2,3\n")
    with pytest.raises(dh.InputError, match=r"column 'x' is 2 times in 'double\.csv'"):
        count_file(tmp_path / "double.csv", SQUARE, **XY)
    assert count_file(tmp_path / "double.csv", SQUARE, x="2", y="y").counts[3, 2] == 2


def test_decimal_commas(tmp_path, frame):
    frame.to_csv(tmp_path / "point.csv", index=False)
    frame.to_csv(tmp_path / "comma.csv", index=False, sep=";", decimal=",")
    frame[["y", "x"]].to_csv(tmp_path / "bare.txt", index=False, header=False, sep="\t", decimal=",")
    frame.to_csv(tmp_path / "quoted.csv", index=False, decimal=",")
    expected = count_file(tmp_path / "point.csv", SQUARE, **XY, outside="clamp").counts
    for name, more in (("comma.csv", XY), ("bare.txt", {"x": 1, "y": 0}), ("quoted.csv", XY)):
        found = count_file(tmp_path / name, SQUARE, **more, decimal=",", outside="clamp")
        np.testing.assert_array_equal(found.counts, expected)
    how = {**XY, "decimal": ",", "outside": "clamp"}
    assert count_file(tmp_path / "comma.csv", SQUARE, **how, where='"user" < 2.5').kept == (frame.user < 2.5).sum()
    with pytest.raises(dh.InputError, match=r"'x' holds no numbers .*then decimal=','"):
        count_file(tmp_path / "comma.csv", SQUARE, **XY)
    (tmp_path / "mixed.csv").write_text("x;y\n1,5;2\n1.234;2\n")  # a point is not guessed at
    with pytest.raises(dh.InputError, match="1 of 2 rows"):
        count_file(tmp_path / "mixed.csv", SQUARE, **XY, decimal=",")


def test_coordinates_keep_all_their_digits(tmp_path):
    """Metres of a map have seven digits before the point: in 32 bits a point would move by half a metre."""
    domain = dh.Domain((5_810_000, 5_810_010), (100,))
    for kind in (pa.float64(), pa.decimal128(12, 2), pa.string()):
        column = pa.array(["5810000.09", "5810000.11", "5810004.99"]).cast(kind)
        pq.write_table(pa.table({"x": column}), tmp_path / "p.parquet")
        found = count_file(tmp_path / "p.parquet", domain, x="x").counts
        assert np.flatnonzero(found).tolist() == [0, 1, 49]


# --- bad rows -----------------------------------------------------------------------------------------------


def test_bad_rows_are_refused_with_how_many_or_dropped(tmp_path, monkeypatch):
    path = tmp_path / "bad.csv"
    path.write_text("x,y\n1,2\nabc,2\n,2\nnan,2\n1,inf\n1\n1,2,3\n4,4\n")
    with pytest.raises(dh.InputError, match=r"6 of 8 rows .*\(the first is row 2, about\).*drop_bad_rows=True"):
        count_file(path, SQUARE, **XY)
    counted = count_file(path, SQUARE, **XY, drop_bad_rows=True)
    assert (counted.rows, counted.bad_rows, counted.kept, counted.counting.dropped) == (8, 6, 2, ("bad rows",))
    pq.write_table(pa.table({"x": [1.0, None, np.nan, 2.0], "y": [1, 1, 1, 1]}), tmp_path / "b.parquet")
    with pytest.raises(dh.InputError, match="2 of 4 rows"):
        count_file(tmp_path / "b.parquet", SQUARE, **XY)
    assert count_file(tmp_path / "b.parquet", SQUARE, **XY, drop_bad_rows=True).kept == 2
    monkeypatch.setattr(tables, "_BLOCK", 1 << 10)
    path.write_text("x,y\n" + "1,2\n" * 255 + "abc,2\n")  # the last block holds a bad row only
    assert count_file(path, SQUARE, **XY, drop_bad_rows=True).bad_rows == 1
    (tmp_path / "bare.tsv").write_text("7\tabc\t3\n7\t1\t3\n")  # a bad first row without a header
    with pytest.raises(dh.InputError, match="1 of 2 rows"):
        count_file(tmp_path / "bare.tsv", SQUARE, x=1, y=2)
    frame = gpd.GeoDataFrame(geometry=[shapely.Point(585000, 4500000), None, shapely.Point()], crs=32618)
    frame.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(dh.InputError, match="2 of 3 rows"):
        count_file(tmp_path / "p.parquet", NEW_YORK)


def test_a_table_of_nobody_is_counted_as_any_other(tmp_path):
    """Where points outside are spoken for; in silence it is a slip. Dropped is what could be, not what was."""
    how = {**XY, "user": "who", "max_per_user": 1, "drop_bad_rows": True}
    found = []
    for rows in ("1,1,ann\n", ""):
        (tmp_path / "p.csv").write_text("x,y,who\n" + rows)
        found.append([count_file(tmp_path / "p.csv", SQUARE, outside=each, **how) for each in ("clamp", "drop")])
    assert [each.counting for each in found[0]] == [each.counting for each in found[1]]
    assert found[1][1].counting.dropped == ("bad rows", "points outside")
    assert [each.kept for each in found[1]] == [0, 0]
    with pytest.raises(dh.InputError, match=r"is empty: it has no rows; .* outside='clamp' or outside='drop'"):
        count_file(tmp_path / "p.csv", SQUARE, **how)


# --- JSON lines and workbooks -------------------------------------------------------------------------------


def test_whole_numbers_first_and_fractions_later_in_json(tmp_path):
    rows = [{"x": 1, "y": 2}] * 20_000 + [{"x": 1.5, "y": 2, "more": [1]}, {"y": 1}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    counted = count_file(tmp_path / "p.jsonl", SQUARE, **XY, drop_bad_rows=True)
    assert (counted.rows, counted.bad_rows, counted.kept) == (20_002, 1, 20_001)


def test_a_workbook_of_several_sheets(tmp_path, frame):
    path = tmp_path / "p.xlsx"
    with pd.ExcelWriter(path) as book:
        frame.to_excel(book, sheet_name="spring", index=False)
        frame[:50].to_excel(book, sheet_name="autumn", index=False)
    for layer, message in ((None, "sheets spring, autumn: choose one with layer="), ("winter", "but no 'winter'")):
        with pytest.raises(dh.InputError, match=message):
            count_file(path, SQUARE, **XY, layer=layer)
    assert count_file(path, SQUARE, **XY, layer="autumn", outside="clamp").rows == 50


def test_cells_of_a_workbook_are_what_they_show(tmp_path):
    """Ids keep their names whatever Excel takes them for; times are read as text."""
    times = pd.to_datetime(["2020-01-01", "2020-01-02", None])
    table = pd.DataFrame({"x": [1, "2,5", 3.5], "y": 1, "who": [7, 7.0, "7"], "when": times})
    table.to_excel(tmp_path / "p.xlsx", index=False)
    counted = count_file(tmp_path / "p.xlsx", SQUARE, **XY, user="who", max_per_user=2, drop_bad_rows=True)
    assert (counted.users, counted.kept, counted.bad_rows) == (1, 2, 1)
    how = {"where": "\"when\" < '2020-01-02'", "decimal": ",", "drop_bad_rows": True}
    assert count_file(tmp_path / "p.xlsx", SQUARE, **XY, **how).kept == 1


def test_without_openpyxl_a_workbook_is_refused_with_the_cure(tmp_path, frame, monkeypatch):
    path = write(frame, tmp_path, "p.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(dh.InputError, match=r"pip install 'deltahist\[excel\]', or save the sheet as CSV"):
        count_file(path, SQUARE, **XY)


# --- memory and progress ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["p.parquet", "p.jsonl"])
def test_a_file_is_not_read_whole(tmp_path, name, monkeypatch):
    """Arrow's own memory stays at a few batches, however large the row group."""
    monkeypatch.setattr(files, "CHUNK", rows := CHUNK if name == "p.parquet" else 1 << 10)
    number = 1_500_000 if name == "p.parquet" else 20_000
    values = np.random.default_rng(6).random(number)
    if name == "p.parquet":
        pq.write_table(pa.table({"x": values, "y": values}), tmp_path / name, row_group_size=number)
    else:
        (tmp_path / name).write_text('{"x": 1.25, "y": 2.5, "id": "somebody"}\n' * number)
    source = open_source(tmp_path / name, Reading("x", "y"), 2)
    before, seen, most = pa.total_allocated_bytes(), 0, 0
    for batch in source.batches:
        assert len(batch.columns[0]) <= rows
        most, seen = max(most, pa.total_allocated_bytes() - before), seen + len(batch.columns[0])
    assert seen == number
    assert most < 16 * number  # what both columns would take


def test_progress_is_shown_on_demand_and_not_otherwise(tmp_path, capfd):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    count_file(tmp_path / "a.csv", SQUARE, **XY)
    assert capfd.readouterr() == ("", "")
    assert count_file(tmp_path / "a.csv", SQUARE, **XY, progress=True).kept == 1
    assert capfd.readouterr().out == ""


# --- archives and standard input ----------------------------------------------------------------------------


def test_archives_hold_one_table(tmp_path, frame):
    table = write(frame, tmp_path, "p.csv")
    beside = [tmp_path / name for name in ("licence.pdf", "._p.csv", "other.parquet", "log")]
    for path, text in zip(beside, ("free", "left by a system", "", "x,y\n1,2\n"), strict=True):
        path.write_text(text)
    how = {**XY, "outside": "clamp"}
    assert count_file(zip_of(tmp_path / "one.zip", table, *beside[:2]), SQUARE, **how).rows == 200
    for members, message in (
        ((table, beside[2]), r"2 tables: it holds p\.csv, other\.parquet; unpack"),
        (beside[:1], r"no table: it holds licence\.pdf"),
        ((), "no table: it holds nothing"),
    ):
        with pytest.raises(dh.InputError, match=message):
            count_file(zip_of(tmp_path / "wrong.zip", *members), SQUARE, **how)
    for path in (zip_of(tmp_path / "odd.zip", beside[3]), beside[3]):
        assert count_file(path, SQUARE, **how, format="csv").rows == 1


def lead_in(monkeypatch, content):
    """Standard input that gives a few bytes at a time, as a pipe may."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content), 3)))


PARQUET = io.BytesIO()
pd.DataFrame({"x": [1], "y": [2]}).to_parquet(PARQUET)


@pytest.mark.parametrize("format", [None, "jsonl"])
@pytest.mark.parametrize(
    "content",
    [b"x,y\n1,2\n", gzip.compress(b"x,y\n1,2\n", mtime=0), b'{"x": 1, "y": 2}\n', PARQUET.getvalue()],
    ids=["csv", "gzip", "jsonl", "parquet"],
)
def test_standard_input(monkeypatch, content, format):
    lead_in(monkeypatch, content)
    if format is None or content.startswith(b"{"):
        assert count_file("-", SQUARE, **XY, format=format).counts[1, 2] == 1
    lead_in(monkeypatch, b"x,y\n" + b"1.5,2.5\n" * 100_000)  # of many blocks
    assert count_file("-", SQUARE, **XY).counts[1, 2] == 100_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "standard input.*empty"),
        (b"PK\x03\x04", "'zip'.*save it to a file"),
        (b"SQLite format 3\0", "'geo'.*save it to a file"),
        (b'{"type": "FeatureCollection",\n"features": []}', "'geo'"),
        (b'{"type": "Feature"}', "'geo'"),
        (gzip.compress(b"x,y\n" + b"1,2\n" * 9000, mtime=0)[:40], "standard input.*cut short"),
        (None, "that is a terminal"),
    ],
)
def test_standard_input_that_cannot_be_read(monkeypatch, content, message):
    if content is None:
        monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    else:
        lead_in(monkeypatch, content)
    with pytest.raises(dh.InputError, match=message):
        count_file("-", SQUARE, **XY)


# --- errors -------------------------------------------------------------------------------------------------


def polygons(path):
    gpd.GeoDataFrame(geometry=[shapely.box(0, 0, 1, 1)], crs=4326).to_parquet(path)


def layers(path):
    for layer in ("spring", "autumn"):
        gpd.GeoDataFrame(geometry=[shapely.Point(1, 1)], crs=4326).to_file(path, layer=layer)


def table(path):
    pd.DataFrame({"name": "n", "x": [1.0, 1.0], "y": 1.0, "user": 1}).to_parquet(path)


USER = {**XY, "user": "user", "max_per_user": 2}
GOOD = "x,y\n1,2\n"
ERRORS = [
    ("none.csv", None, SQUARE, XY, ["none.csv", "does not exist"]),
    ("empty.csv", "", SQUARE, XY, ["empty.csv", "no rows"]),
    ("head.csv", "x,y\n", SQUARE, XY, ["head.csv", "no rows"]),
    ("none.geojson", '{"type":"FeatureCollection","features":[]}', NEW_YORK, {}, ["no rows"]),
    ("a.csv", "lon,lat\n1,2\n", SQUARE, XY, ["'x'", "lon, lat"]),
    ("a.csv", "1,2\n3,4\n", SQUARE, {"x": "0", "y": "7"}, ["7"]),
    ("a.csv", GOOD, SQUARE, {"x": "x"}, ["x= and y="]),
    ("a.csv", GOOD, LINE, XY, ["x only"]),
    ("a.csv", "x,y\nhere,2\nthere,3\n", SQUARE, XY, ["'x'", "'here'", "no numbers"]),
    ("a.csv", "x;y\n1,5;2,5\n", SQUARE, XY, ["'1,5'", "must be numbers"]),
    ("a.csv", GOOD, SQUARE, USER, ["'user'", "x, y"]),
    ("a.csv", GOOD, SQUARE, {**XY, "max_per_user": 2}, ["user", "both or neither"]),
    ("a.csv", GOOD, SQUARE, {**XY, "outside": "lose"}, ["'lose'", "'clamp'"]),
    ("a.csv", GOOD, SQUARE, {**XY, "format": "xml"}, ["'xml'", "'jsonl'"]),
    ("a.csv", GOOD, SQUARE, {**XY, "decimal": ";"}, ["decimal is ';'"]),
    ("a.csv", GOOD, NEW_YORK, XY, ["a.csv", "crs='EPSG:4326'"]),
    ("a.csv", GOOD, SQUARE, {**XY, "crs": "EPSG:4326"}, ["degrees", "project them"]),
    ("a.csv", GOOD, SQUARE, {**XY, "crs": "EPSG:32618"}, ["EPSG:32618", "give the domain"]),
    ("a.csv", GOOD.encode("utf-16"), SQUARE, XY, ["UTF-8"]),
    ("a.csv", b"x,y,user\n1,2,\xe9\n", SQUARE, USER, ["invalid UTF8"]),
    ("a.csv", "x,y\nnan,2\n", SQUARE, {**XY, "drop_bad_rows": True}, ["none of the 1 rows"]),
    ("a.doc", GOOD, SQUARE, XY, ["'.doc'", ".parquet", "format='csv'"]),
    ("a.parquet", "hello, this is text", SQUARE, XY, ["no readable Parquet", "cut short"]),
    ("a.parquet", table, SQUARE, {"x": "name", "y": "y"}, ["'name'"]),
    ("a.parquet", table, SQUARE, {"x": "z", "y": "y"}, ["x, y, user"]),
    ("a.parquet", polygons, NEW_YORK, {}, ["not points"]),
    ("a.gpkg", layers, NEW_YORK, {"layer": "winter"}, ["winter"]),
    ("a.gpkg", "hello", NEW_YORK, {}, ["a.gpkg", "cannot be read"]),
    ("a.json", '{"a": 1}', NEW_YORK, {}, ["a.json", "cannot be read"]),
    ("p.json", '{"x": 1, "y": 2}\n{"x": 1, "y": 2}\n', NEW_YORK, {}, ["format='jsonl'"]),
    ("p.jsonl", '[{"x": 1}]', SQUARE, XY, ["'p.jsonl'", "each line must be one"]),
    ("p.jsonl", '{"x": [1], "y": 2}\n', SQUARE, XY, ["'x'", "list"]),
    ("p.jsonl", '{"x": 1, "y": 2}\n{"x": 1,\n', SQUARE, XY, ["p.jsonl", "cannot be read"]),
    ("p.jsonl", b'{"x": 1, "y": 2, "\xff\xfe": 3}\n', SQUARE, XY, ["cannot be read"]),
    ("p.jsonl", '{"x": 1, "y": 2, "z": ' + "[" * 100_000 + "]" * 100_000 + "}", SQUARE, XY, ["nested too deeply"]),
    ("p.jsonl", '{"x": 1, "y": 2}\n' * 99_000 + "[" * 100_000, SQUARE, XY, ["nested too deeply"]),
    ("p.shp", "nothing", METRES, {}, ["p.shp", "cut short"]),
    ("p.zip", GOOD, SQUARE, XY, ["p.zip", "cannot be read"]),
    ("p.xlsx", GOOD, SQUARE, XY, ["p.xlsx", "cannot be read"]),
]


@pytest.mark.parametrize(("name", "content", "domain", "how", "parts"), ERRORS)
def test_errors_are_one_line_that_names_the_cause(tmp_path, name, content, domain, how, parts):
    if callable(content):
        content(tmp_path / name)
    elif content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(dh.InputError) as caught:
        count_file(tmp_path / name, domain, **how)
    message = str(caught.value)
    assert "\n" not in message
    assert not [part for part in parts if part not in message], message


@pytest.mark.parametrize("kind", ["csv.zip", "changed", "shp", "jsonl", "xlsx", "csv.gz", "parquet"])
def test_damaged_files_are_refused(tmp_path, frame, kind):
    frame, path = pd.concat([frame] * 20), tmp_path / f"cut.{kind}"
    if kind == "shp":
        content = shapefile(frame, path)[0].read_bytes()[:2000]
    elif kind == "changed":
        path = tmp_path / "cut.zip"
        content = bytearray(write(frame, tmp_path, "p.csv.zip").read_bytes())
        content[3000:3010] = b"0123456789"
    else:
        whole = write(frame, tmp_path, f"p.{kind}").read_bytes()
        content = whole[: len(whole) // 2 + 1]
    path.write_bytes(content)
    how = {} if kind == "shp" else {**XY, "crs": "EPSG:32618"}
    words = "cannot be read|shorter than it says|no readable Parquet"
    with pytest.raises(dh.InputError, match=rf"^input 'cut\..* ({words}).*cut short") as caught:
        count_file(path, METRES, **how, drop_bad_rows=True)
    assert "\n" not in str(caught.value)


def test_a_shapefile_without_its_parts_is_refused(tmp_path, frame):
    shapefile(frame, tmp_path / "p.shp")[1].unlink()
    with pytest.raises(dh.InputError, match=r"parts \.shx and \.dbf must lie beside it"):
        count_file(tmp_path / "p.shp", METRES)
