"""_confined.py: untrusted files in a process of its own: one driver, no network, limits on time and memory."""

import contextlib
import gc
import http.server
import json
import sqlite3
import struct
import threading
import zipfile

import geopandas as gpd
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import deltahist as dh
import deltahist._confined as process
from deltahist.space.geometries import read_geometries

PLANE = dh.Domain((0, 0, 10, 10), (10, 10))
METRES = dh.Domain((600_000, 4_500_000, 600_010, 4_500_010), (10, 10), crs="EPSG:32618")


def count(path, domain=METRES, **how):
    return dh.count_file(path, domain, **how)


def regions(path):
    return read_geometries(path, PLANE)


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    places = rng.uniform(0, 10, (30, 2)) + np.array([600_000, 4_500_000])
    return gpd.GeoDataFrame({"a": range(30)}, geometry=shapely.points(places), crs="EPSG:32618")


@pytest.fixture
def server():
    """A server on this machine, and the requests that it has seen."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *said):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def _points(**members):
    geometry = {"type": "Point", "coordinates": [-73.9, 40.6]}
    feature = {"type": "Feature", "properties": {"a": 1}, "geometry": geometry}
    return json.dumps({"type": "FeatureCollection", "features": [feature], **members})


# --- what files name is not asked for ---------------------------------------------------------------------


def _vrt(source):
    layer = f'<OGRVRTLayer name="p"><SrcDataSource>{source}</SrcDataSource></OGRVRTLayer>'
    return f"<OGRVRTDataSource>{layer}</OGRVRTDataSource>"


def test_files_that_name_addresses_make_no_requests(tmp_path, server, monkeypatch):
    """A server on this machine would see them: those of virtual layers, of services, and of a CRS behind a link."""
    address, seen = server
    # Settings that would lead around the proxy that leads nowhere.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("GDAL_HTTP_PROXY", "")
    link = {"type": "link", "properties": {"href": f"{address}/crs", "type": "esriwkt"}}
    contents = [_vrt(f"/vsicurl/{address}/a.geojson"), f"<OGRWFSDataSource><URL>{address}/</URL></OGRWFSDataSource>"]
    contents += [_points(crs=link), _points(crs={"type": "url", "properties": {"url": f"{address}/crs"}})]
    for number, content in enumerate(contents):
        (tmp_path / f"p{number}.geojson").write_text(content)
        with contextlib.suppress(dh.InputError):
            count(tmp_path / f"p{number}.geojson")
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("p.geojson", contents[0])
    with pytest.raises(dh.InputError, match=r"cannot be read|not a readable file"):
        count(tmp_path / "p.zip")
    assert seen == []


@pytest.mark.parametrize("read", [count, regions])
def test_a_file_is_opened_by_the_driver_of_its_ending_alone(tmp_path, frame, read):
    (tmp_path / "own").mkdir()
    endings = (".gpkg", ".fgb", ".geojson", ".shp")
    for ending in endings if read is count else endings[-1:]:  # one way in serves both
        frame.to_file(own := tmp_path / "own" / f"p{ending}")
        other = {".gpkg": ".fgb", ".fgb": ".geojson", ".geojson": ".shp", ".shp": ".gpkg"}[ending]
        (tmp_path / f"q{other}").write_bytes(own.read_bytes())
        (tmp_path / f"v{ending}").write_text(_vrt(own))
        for wrong in (f"q{other}", f"v{ending}"):
            with pytest.raises(dh.InputError):
                read(tmp_path / wrong)
        assert len(read(own)) if read is regions else read(own).rows == 30


# --- GeoPackages ------------------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS fid, NULL AS geom FROM r"


def _with(path, frame, *statements):
    frame.to_file(path, layer="p")
    with contextlib.closing(sqlite3.connect(path)) as base:
        for statement in statements:
            base.execute(statement)
        base.commit()
    return path


def test_a_view_is_no_layer(tmp_path, frame):
    view = _with(
        tmp_path / "v.gpkg", frame, f"CREATE VIEW other AS {ENDLESS}",
        "UPDATE gpkg_contents SET table_name = 'other'", "UPDATE gpkg_geometry_columns SET table_name = 'other'",
        "DROP TABLE p",
    )  # fmt: skip
    contents = _with(
        tmp_path / "c.gpkg", frame, "ALTER TABLE gpkg_contents RENAME TO kept",
        "CREATE VIEW GPKG_contents AS SELECT * FROM kept",
    )  # fmt: skip
    virtual = _with(
        tmp_path / "t.gpkg", frame, "CREATE VIRTUAL TABLE other USING fts5(fid, geom)",
        "UPDATE gpkg_contents SET table_name = 'other'",
        "UPDATE gpkg_geometry_columns SET table_name = 'other'", "DROP TABLE p",
    )  # fmt: skip
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.write(view, "v.gpkg")
    for path in (view, contents, virtual, tmp_path / "v.zip"):
        with pytest.raises(dh.InputError, match="view"):
            count(path, layer="other")
    with pytest.raises(dh.InputError, match="view"):
        read_geometries(view, METRES, layer="other")


def test_views_and_triggers_beside_a_layer_do_not_matter(tmp_path, frame):
    """Triggers belong to every GeoPackage with an index, and nothing that is only read sets one off."""
    path = _with(tmp_path / "p.gpkg", frame, f"CREATE VIEW other AS {ENDLESS}")
    for layer, problem in (("other", "its layer is a view"), (None, "has layers p, other: choose one")):
        with pytest.raises(dh.InputError, match=problem):
            count(path, layer=layer)
    with contextlib.closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()[0] > 3
    assert count(path, layer="p").rows == len(read_geometries(path, PLANE, layer="p")) == 30


# --- limits -----------------------------------------------------------------------------------------------


def _repeated(path, rows, schema, length=1 << 20):
    """A few bytes of Parquet: a column of one long text in every row."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array(["a" * length]))
    pq.write_table(pa.table({"x": np.ones(rows), "y": np.ones(rows), "u": text}), path, store_schema=schema)
    return path


@pytest.mark.parametrize("schema", [False, True])
def test_a_text_in_every_row_takes_no_more_memory_than_the_limit(tmp_path, schema):
    path = _repeated(tmp_path / "p.parquet", 1_000, schema)
    assert path.stat().st_size < 64_000
    with pytest.raises(dh.InputError, match=r"'p.parquet' cannot be read: .*more memory than any ordinary file"):
        count(path, PLANE, x="x", y="y", user="u", max_per_user=1)
    assert count(path, PLANE, x="x", y="y").rows == 1_000  # a column that is not asked for is not read


def test_files_that_take_too_long_are_given_up(tmp_path, frame, monkeypatch):
    """Among them Parquet with more rows than its bytes can hold, although its columns are numbers."""
    monkeypatch.setattr(process, "_SECONDS", 0.002)
    monkeypatch.setattr(process, "_SECONDS_PER_BYTE", 0)
    path = tmp_path / "p.parquet"
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000_000, dtype=np.int32)), pa.array([1.0]))
    pq.write_table(pa.table({"x": same, "y": same}).cast(pa.schema([("x", "f8"), ("y", "f8")])), path)
    assert path.stat().st_size * 64 < 3_000_000
    frame.to_file(tmp_path / "p.geojson")
    for read in (
        lambda: count(path, PLANE, x="x", y="y"),
        lambda: count(tmp_path / "p.geojson"),
        lambda: regions(tmp_path / "p.geojson"),
    ):
        with pytest.raises(dh.InputError, match=r"more than 0 s of computing"):
            read()


def test_a_row_of_a_workbook_is_as_long_as_the_columns_that_are_read(tmp_path):
    pd.DataFrame({"x": [1.5], "y": [2.5]}).to_excel(tmp_path / "p.xlsx", index=False)
    row = '<row r="{0}"><c r="A{0}"><v>1.5</v></c><c r="B{0}"><v>2.5</v></c><c r="XFD{0}"><v>1</v></c></row>'
    rows = "".join(row.format(number) for number in range(3, 4_000)).encode()
    with zipfile.ZipFile(tmp_path / "p.xlsx") as book, zipfile.ZipFile(tmp_path / "q.xlsx", "w", 8) as wide:
        for name in book.namelist():
            wide.writestr(name, book.read(name).replace(b"</sheetData>", rows + b"</sheetData>"))
    assert count(tmp_path / "q.xlsx", PLANE, x="x", y="y").rows == 3_998


def test_geometries_that_are_nested_too_deeply_end_no_program_but_their_reader(tmp_path, frame):
    nested = struct.pack("<BII", 1, 7, 1) * 200_000 + struct.pack("<BII", 1, 7, 0)
    frame.to_parquet(tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    table = table.set_column(table.num_columns - 1, "geometry", pa.array([nested] * 30))
    pq.write_table(table, tmp_path / "p.parquet")
    for read in (count, regions):
        with pytest.raises(dh.InputError, match="makes its reader crash"):
            read(tmp_path / "p.parquet")


def test_no_process_is_left_behind(tmp_path, frame):
    frame.to_file(tmp_path / "p.gpkg")
    pd.DataFrame({"x": [1.0], "y": [1.0]}).to_excel(tmp_path / "p.xlsx", index=False)
    with pytest.raises(dh.InputError, match="'z'"):
        count(tmp_path / "p.gpkg", METRES, user="z", max_per_user=1)
    with pytest.raises(dh.InputError, match="'z'"):
        count(tmp_path / "p.xlsx", PLANE, x="x", y="z")
    gc.collect()
    assert not [p for p in psutil.Process().children() if "_confined.py" in " ".join(p.cmdline())]


# --- GeoParquet -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"{", b"[" * 100_000, b"null", b"\xff", b'{"primary_column": ["geometry"], "columns": {}}',
        b'{"primary_column": "geometry", "columns": {"geometry": 1}, "version": "1.0.0"}',
        b'{"primary_column": "geometry", "version": "1.0.0", '
        b'"columns": {"geometry": {"encoding": "WKB", "crs": "EPSG:9"}}}',
    ],
    ids=lambda said: repr(said[:30]),
)  # fmt: skip
def test_damaged_metadata_of_geometries_are_refused(tmp_path, frame, said):
    frame.to_parquet(tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    pq.write_table(table.replace_schema_metadata({b"geo": said}), tmp_path / "p.parquet")
    for read in (count, regions):
        with pytest.raises(dh.InputError, match=r"p\.parquet' (says|names|is not a readable)|'EPSG:9'"):
            read(tmp_path / "p.parquet")
