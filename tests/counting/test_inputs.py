"""Where tables come from: every format and every wrapping gives the same counts; what is damaged is refused."""

import gzip
import io
import json
import sys
import zipfile

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely

import deltahist as dh
from deltahist.counting import count_file, files
from deltahist.counting.arrays import Reading
from deltahist.counting.files import STDIN, find_input, open_source

SQUARE = dh.Domain((0, 0, 10, 10), (10, 10), "EPSG:32618")
HOW = {"x": "x", "y": "y", "crs": "EPSG:32618"}
BOUND = {"user": "user", "max_per_user": 2, "key": bytes(32)}


@pytest.fixture
def frame():
    """A table (200 rows) with gaps and numbers of all lengths."""
    rng = np.random.default_rng(3)
    out = pd.DataFrame(
        {"user": rng.integers(0, 40, 200), "x": rng.uniform(0, 10, 200), "y": rng.uniform(0, 10, 200)}
    )
    out.loc[::7, "x"] = out.loc[::7, "x"].round()
    out["kind"] = rng.choice(["bus", "tram", None], 200)
    return out


def _zip(path, *members, folder=""):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            archive.write(member, folder + member.name)


def _shapefile(frame, path):
    points = gpd.points_from_xy(frame.x, frame.y)
    gpd.GeoDataFrame(frame.drop(columns=["x", "y"]), geometry=points, crs=32618).to_file(path)
    return [path.with_suffix(ending) for ending in (".shp", ".shx", ".dbf", ".prj", ".cpg")]


def _write(frame, folder, name):
    """The table in a format, wrapped as the name's endings say."""
    path = folder / name
    inner = folder / name.removesuffix(".zip")
    if ".csv" in name:
        frame.to_csv(inner, index=False)
    elif "jsonl" in name or "ndjson" in name:
        frame.to_json(inner, orient="records", lines=True, double_precision=15)
    elif ".parquet" in name:
        frame.to_parquet(inner)
    elif ".xlsx" in name:
        frame.to_excel(inner, index=False)
    else:
        parts = _shapefile(frame, folder / "points.shp")
        if name.endswith(".zip"):
            _zip(path, *parts, folder="city/")
        return path
    if name.endswith(".zip"):
        _zip(path, inner)
    return path


NAMES = [
    "p.csv.zip", "p.csv.gz.zip", "p.jsonl", "p.ndjson.gz", "p.jsonl.zip", "p.parquet.zip", "p.xlsx", "p.xlsx.zip",
    "points.shp", "points.zip",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_in_small_batches(tmp_path, frame, monkeypatch, name):
    monkeypatch.setattr(files, "CHUNK", 64)
    frame.to_csv(tmp_path / "reference.csv", index=False)
    path = _write(frame, tmp_path, name)
    how = {} if name.startswith("points") else HOW
    for more in ({}, BOUND, {"where": "kind = 'bus' and \"user\" > 9"}):
        one = count_file(path, SQUARE, **how, **more)
        other = count_file(tmp_path / "reference.csv", SQUARE, **HOW, **more)
        np.testing.assert_array_equal(one.counts, other.counts)
        assert (one.rows, one.kept, one.users, one.unmatched) == (
            200,
            other.kept,
            other.users,
            other.unmatched,
        )


def test_decimal_commas(tmp_path, frame):
    frame.to_csv(tmp_path / "point.csv", index=False)
    frame.to_csv(tmp_path / "comma.csv", index=False, sep=";", decimal=",")
    frame[["y", "x"]].to_csv(tmp_path / "bare.txt", index=False, header=False, sep="\t", decimal=",")
    frame.to_csv(tmp_path / "quoted.csv", index=False, decimal=",")
    expected = count_file(tmp_path / "point.csv", SQUARE, **HOW).counts
    for name, more in (("comma.csv", {}), ("bare.txt", {"x": 1, "y": 0}), ("quoted.csv", {})):
        found = count_file(tmp_path / name, SQUARE, **(HOW | more), decimal=",")
        np.testing.assert_array_equal(found.counts, expected)
    below = count_file(tmp_path / "comma.csv", SQUARE, **HOW, decimal=",", where='"user" < 2.5')
    assert below.kept == (frame.user < 2.5).sum()
    with pytest.raises(dh.InputError, match=r"'x' holds no numbers .*then decimal=','"):
        count_file(tmp_path / "comma.csv", SQUARE, **HOW)


def test_a_point_among_decimal_commas_is_not_guessed_at(tmp_path):
    (tmp_path / "p.csv").write_text("x;y\n1,5;2\n1.234;2\n")
    with pytest.raises(dh.InputError, match="1 of 2 rows"):
        count_file(tmp_path / "p.csv", SQUARE, **HOW, decimal=",")


def test_whole_numbers_first_and_fractions_later_in_json(tmp_path):
    rows = [{"x": 1, "y": 2}] * 20_000 + [{"x": 1.5, "y": 2, "more": [1]}, {"y": 1}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    counted = count_file(tmp_path / "p.jsonl", SQUARE, **HOW, drop_bad_rows=True)
    assert (counted.rows, counted.bad_rows, counted.kept) == (20_002, 1, 20_001)


def test_json_lines_are_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 1 << 12)
    (tmp_path / "p.jsonl").write_text('{"x": 1.25, "y": 2.5, "id": "somebody"}\n' * 50_000)
    source = open_source(tmp_path / "p.jsonl", Reading("x", "y"), 2)
    before = pa.total_allocated_bytes()
    most = rows = 0
    for batch in source.batches:
        most, rows = max(most, pa.total_allocated_bytes() - before), rows + len(batch.columns[0])
    assert rows == 50_000
    assert most < 1_000_000  # the two columns alone would be 800,000, the text 2 million


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (b"x,y\n1,2\n", None),
        (gzip.compress(b"x,y\n1,2\n", mtime=0), None),
        (b'{"x": 1, "y": 2}\n', None),
        (b'{"x": 1, "y": 2}\n', "jsonl"),
        ("parquet", None),
    ],
)
def test_standard_input(tmp_path, monkeypatch, content, format):
    if content == "parquet":
        pd.DataFrame({"x": [1], "y": [2]}).to_parquet(tmp_path / "p.parquet")
        content = (tmp_path / "p.parquet").read_bytes()
    _lead_in(monkeypatch, content)
    assert count_file("-", SQUARE, **HOW, format=format).counts[1, 2] == 1


def _lead_in(monkeypatch, content):
    """Standard input that gives a few bytes at a time, as a pipe may."""
    raw = io.BytesIO(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(raw, 3)))


def test_standard_input_of_many_blocks_is_read_once(monkeypatch):
    _lead_in(monkeypatch, b"x,y\n" + b"1.5,2.5\n" * 200_000)
    assert count_file("-", SQUARE, **HOW).counts[1, 2] == 200_000


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["standard input", "empty"]),
        (b"PK\x03\x04", ["'zip'", "save it to a file"]),
        (b"SQLite format 3\0", ["'geo'", "save it to a file"]),
        (b'{"type": "FeatureCollection",\n"features": []}', ["'geo'"]),
        (b'{"type": "Feature"}', ["'geo'"]),
        (gzip.compress(b"x,y\n" + b"1,2\n" * 9000, mtime=0)[:40], ["standard input", "cut short"]),
    ],
)
def test_standard_input_that_cannot_be_read(monkeypatch, content, parts):
    _lead_in(monkeypatch, content)
    with pytest.raises(dh.InputError) as caught:
        count_file("-", SQUARE, **HOW)
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


def test_a_terminal_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    with pytest.raises(dh.InputError, match="terminal"):
        find_input(STDIN)


def _damaged(frame, folder, kind):
    """Files that are cut short or changed, and what messages say of them."""
    frame = pd.concat([frame] * 20)
    if kind == "cut.zip":
        whole = _write(frame, folder, "p.csv.zip").read_bytes()
        content = whole[: len(whole) // 2]
    elif kind == "changed.zip":
        content = bytearray(_write(frame, folder, "p.csv.zip").read_bytes())
        content[3000:3010] = b"0123456789"
    elif kind == "cut.shp":
        parts = _shapefile(frame, folder / "cut.shp")
        content = parts[0].read_bytes()[:2000]
    else:
        whole = _write(frame, folder, "p." + kind.split(".", 1)[1]).read_bytes()
        content = whole[: len(whole) // 2 + 1]
    (folder / kind).write_bytes(content)
    return folder / kind


@pytest.mark.parametrize(
    "kind", ["cut.zip", "changed.zip", "cut.shp", "cut.jsonl", "cut.ndjson.gz", "cut.xlsx", "cut.csv.gz"]
)
def test_damaged_files_are_refused(tmp_path, frame, kind):
    path = _damaged(frame, tmp_path, kind)
    how = {} if kind.endswith("shp") else HOW
    with pytest.raises(
        dh.InputError, match=rf"^input '{kind}.* (cannot be read|shorter than it says).*cut short"
    ) as caught:
        count_file(path, SQUARE, **how, drop_bad_rows=True)
    assert "\n" not in str(caught.value)


def test_archives_hold_one_table(tmp_path, frame):
    table = _write(frame, tmp_path, "p.csv")
    (tmp_path / "licence.pdf").write_text("free")
    (tmp_path / "other.parquet").write_text("")
    (tmp_path / "._p.csv").write_text("what an operating system leaves")
    _zip(tmp_path / "one.zip", table, tmp_path / "licence.pdf", tmp_path / "._p.csv")
    assert count_file(tmp_path / "one.zip", SQUARE, **HOW).rows == 200
    _zip(tmp_path / "two.zip", table, tmp_path / "other.parquet")
    _zip(tmp_path / "none.zip", tmp_path / "licence.pdf")
    _zip(tmp_path / "nothing.zip")
    for name, parts in {
        "two.zip": ["2 tables", "p.csv, other.parquet", "unpack"],
        "none.zip": ["no table", "licence.pdf"],
        "nothing.zip": ["no table", "nothing"],
    }.items():
        with pytest.raises(dh.InputError) as caught:
            count_file(tmp_path / name, SQUARE, **HOW)
        assert not [part for part in parts if part not in str(caught.value)], str(caught.value)
    (tmp_path / "log").write_text("x,y\n1,2\n")
    _zip(tmp_path / "odd.zip", tmp_path / "log")
    assert count_file(tmp_path / "odd.zip", SQUARE, **HOW, format="csv").rows == 1
    assert count_file(tmp_path / "log", SQUARE, **HOW, format="csv").rows == 1


def test_a_workbook_of_several_sheets(tmp_path, frame):
    path = tmp_path / "p.xlsx"
    with pd.ExcelWriter(path) as book:
        frame.to_excel(book, sheet_name="spring", index=False)
        frame[:50].to_excel(book, sheet_name="autumn", index=False)
    with pytest.raises(dh.InputError, match=r"sheets spring, autumn: choose one with layer="):
        count_file(path, SQUARE, **HOW)
    with pytest.raises(dh.InputError, match=r"sheets spring, autumn, but no 'winter'"):
        count_file(path, SQUARE, **HOW, layer="winter")
    assert count_file(path, SQUARE, **HOW, layer="autumn").rows == 50


def test_cells_of_a_workbook_are_what_they_show(tmp_path):
    """Ids keep their names whatever Excel takes them for; times are read as those of text are."""
    pd.DataFrame(
        {
            "x": [1, "2,5", 3.5],
            "y": 1,
            "who": [7, 7.0, "7"],
            "when": pd.to_datetime(["2020-01-01", "2020-01-02", None]),
        }
    ).to_excel(tmp_path / "p.xlsx", index=False)
    how = HOW | {"user": "who", "max_per_user": 2, "drop_bad_rows": True}
    counted = count_file(tmp_path / "p.xlsx", SQUARE, **how)
    assert (counted.users, counted.kept, counted.bad_rows) == (1, 2, 1)
    when = count_file(
        tmp_path / "p.xlsx", SQUARE, **HOW, where="\"when\" < '2020-01-02'", decimal=",", drop_bad_rows=True
    )
    assert when.kept == 1


def test_without_openpyxl_a_workbook_is_refused_with_the_cure(tmp_path, frame, monkeypatch):
    path = _write(frame, tmp_path, "p.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(dh.InputError, match=r"pip install 'deltahist\[excel\]', or save the sheet as CSV"):
        count_file(path, SQUARE, **HOW)


@pytest.mark.parametrize(
    ("name", "content", "how", "parts"),
    [
        ("p.jsonl", '[{"x": 1}]', HOW, ["'p.jsonl'", "each line must be one"]),
        ("p.jsonl", "\n\n", HOW, ["no rows"]),
        ("p.jsonl", '{"lon": 1, "y": 2}\n', HOW, ["'x'", "lon, y"]),
        ("p.jsonl", '{"x": [1], "y": 2}\n', HOW, ["'x'", "list"]),
        ("p.jsonl", '{"x": 1, "y": 2, "z": ' + "[" * 100_000 + "]" * 100_000 + "}", HOW, ["nested too deeply"]),
        ("p.jsonl", '{"x": 1, "y": 2}\n' * 99_000 + "[" * 100_000, HOW, ["nested too deeply"]),
        ("p.jsonl", '{"x": 1, "y": 2}\n{"x": 1,\n', HOW, ["p.jsonl", "cannot be read"]),
        ("p.jsonl", '{"x": "here", "y": 2}\n', HOW, ["'here'", "no numbers"]),
        ("p.json", '{"x": 1, "y": 2}\n{"x": 1, "y": 2}\n', HOW, ["format='jsonl'"]),
        ("p.csv", "x,y\n1,2\n", HOW | {"format": "xml"}, ["'xml'", "'jsonl'"]),
        ("p.csv", "x,y\n1,2\n", HOW | {"decimal": ";"}, ["decimal is ';'"]),
        ("p.log", "x,y\n1,2\n", HOW, ["'.log'", "format='csv'"]),
        ("p.shp", "nothing", {}, ["p.shp", "cut short"]),
        ("p.zip", "x,y\n1,2\n", HOW, ["p.zip", "cannot be read"]),
        ("p.xlsx", "x,y\n1,2\n", HOW, ["p.xlsx", "cannot be read"]),
    ],
)
def test_errors_name_the_cause(tmp_path, name, content, how, parts):
    (tmp_path / name).write_text(content)
    with pytest.raises(dh.InputError) as caught:
        count_file(tmp_path / name, SQUARE, **how)
    assert "\n" not in str(caught.value)
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


def test_a_shapefile_without_its_parts_is_refused(tmp_path, frame):
    parts = _shapefile(frame, tmp_path / "p.shp")
    parts[1].unlink()
    with pytest.raises(dh.InputError, match=r"parts \.shx and \.dbf must lie beside it"):
        count_file(tmp_path / "p.shp", SQUARE)


def test_geometries_in_a_frame_of_points_equal(tmp_path):
    """Points of a shapefile in degrees are projected as those of a table are."""
    places = np.random.default_rng(1).uniform((-74, 40.6), (-73.8, 40.8), (50, 2))
    city = dh.Domain((560000, 4480000, 610000, 4530000), (20, 20), "EPSG:32618")
    gpd.GeoDataFrame(geometry=shapely.points(places), crs=4326).to_file(tmp_path / "p.shp")
    pd.DataFrame(places, columns=["x", "y"]).to_csv(tmp_path / "p.csv", index=False)
    expected = count_file(tmp_path / "p.csv", city, x="x", y="y", crs="EPSG:4326").counts
    np.testing.assert_array_equal(count_file(tmp_path / "p.shp", city).counts, expected)
