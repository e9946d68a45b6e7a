"""Bad input, one command line each: one line on stderr, exit status 2, the value and the rule, nothing written."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from altered import write_altered

import deltahist as dh
from deltahist.cli import main

PUBLISH = {
    "--x": "x", "--y": "y", "--bounds": "0,0,10,10", "--cell": "1", "--delta": "1", "--epsilon": "1",
    "--strategy": "identity", "--out": "out.parquet",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Input files, good and bad, and release files, good and damaged."""
    folder = tmp_path_factory.mktemp("bad")
    points = pd.DataFrame(
        {"x": [1.5, 2.5, 3.5], "y": [1.5, 2.5, 3.5], "word": ["a", "b", "c"], "id": [1, 1, 2]}
    )
    points.to_csv(folder / "points.csv", index=False)
    points.assign(x=[1.0, np.nan, np.inf]).to_csv(folder / "nan.csv", index=False)
    points.drop(columns="word").to_parquet(folder / "points.parquet")
    points.to_csv(folder / "comma.csv", index=False, sep=";", decimal=",")
    points.to_json(folder / "lines.json", orient="records", lines=True)
    with zipfile.ZipFile(folder / "two.zip", "w") as archive:
        for name in ("points.csv", "points.parquet"):
            archive.write(folder / name, name)
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("x,y\n")
    (folder / "zones.geojson").write_text(_zones([[20, 20], [21, 20], [21, 21], [20, 20]]))
    (folder / "lines.geojson").write_text(_zones([[1, 1], [2, 2]], kind="LineString"))
    (folder / "no.geojson").write_text("{}")
    (folder / "boxes.csv").write_text("west,south,east,north\n0,0,1,nan\n")
    (folder / "columns.csv").write_text("a,b\n0,0\n")
    _write_releases(folder)
    return folder


def _zones(ring, kind="Polygon"):
    geometry = {"type": kind, "coordinates": ring if kind == "LineString" else [ring]}
    feature = {"type": "Feature", "properties": {"zone": "a"}, "geometry": geometry}
    return json.dumps({"type": "FeatureCollection", "features": [feature]})


def _write_releases(folder: Path) -> None:
    domain = dh.Domain((0, 0, 10, 10), (10, 10))
    near = dh.Neighbourhood(domain, delta=1)
    counts = np.ones((10, 10), dtype=np.int64)
    release = dh.publish(counts, near, dh.strategies.Identity(domain), epsilon=1)
    release.save(folder / "good.parquet")
    whole = (folder / "good.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    table = pq.read_table(folder / "good.parquet")

    def variant(name, change):
        description = release.describe()
        change(description)
        write_altered(folder / name, table, description)

    variant("newer.parquet", lambda d: d.update(version=99))
    variant("huge.parquet", lambda d: d["domain"].update(shape=[10**6, 10**6]))
    variant("altered.parquet", lambda d: d.update(epsilon="1/100"))
    variant("damaged.parquet", lambda d: d.pop("domain"))
    pq.write_table(table.slice(0, 50), folder / "short.parquet")
    pq.write_table(pa.table({"a": [1]}), folder / "foreign.parquet")


def publish(source="points.csv", **changes):
    """A good command line with some options changed; None leaves one out, True makes a flag."""
    options = PUBLISH | {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    line = ["publish", source]
    for name, value in options.items():
        line += [] if value is None else [name] if value is True else [name, str(value)]
    return line


def query(*rest, release="good.parquet"):
    return ["query", release, *rest]


#: Command line, and what its error line must contain: the value and the rule.
CASES = [
    # the data
    (publish("missing.csv"), ["missing.csv"]),
    (publish("empty.csv"), ["empty"]),
    (publish("nan.csv"), ["2", "--drop-bad-rows"]),
    (publish(x="lon"), ["lon", "x"]),
    # the budget
    *((publish(epsilon=e), [e, "finite number above zero"]) for e in ("0", "-1", "nan", "one", "1/0", "1e999")),
    (publish(epsilon=None, rho="inf"), ["inf", "finite number above zero"]),
    (publish(epsilon=None), ["--epsilon", "--rho"]),
    (publish(rho=1), ["both", "one of them"]),
    (publish(noise="gaussian"), ["'gaussian'", "--rho"]),
    (publish(noise="uniform"), ["--noise", "'uniform'", "'laplace', 'gaussian'"]),
    # δ and cells
    *((publish(delta=d), [d, "above zero"]) for d in ("-1", "nan")),
    (publish(delta="far"), ["'far'", "number"]),
    (publish(delta="1e-9"), ["1e-9", "lattice step"]),
    (publish(epsilon="1e-300"), ["1e-300", "2^50"]),
    (publish(epsilon="2000", strategy="auto"), ["2000", "likely"]),
    (publish(delta="500m"), ["500m", "no CRS"]),
    *((publish(cell=c), ["--cell is", "above zero"]) for c in ("0", "inf", "1e-999")),
    (publish(cell="1e-300"), ["cells"]),
    (publish(cells_per_delta=2), ["--cell", "at most one"]),
    (publish(cell=None, cells_per_delta=0), ["0", "at least 1"]),
    (publish(cell="0.00001", bounds="0,0,10,10"), ["2^34", "larger cells"]),
    # the bounds
    (publish(bounds="10,0,0,10"), ["10,0,0,10", "west 10 must be less than east 0"]),
    (publish(bounds="0,0,10"), ["'0,0,10'", "four numbers"]),
    (publish(bounds="0,0,ten,10"), ["ten", "four numbers"]),
    (publish(bounds="0,0,inf,10"), ["inf", "finite"]),
    (publish(bounds="0,0,1e300,10"), ["1e300", "beyond"]),
    (publish(bounds="0,0,1e-300,10"), ["1e-300", "like size"]),
    (publish(bounds=""), ["four numbers"]),
    (publish(bounds="0,10"), ["--y", "one dimension"]),
    (publish(y=None), ["--y is missing"]),
    # reference systems
    (
        publish(crs="EPSG:4326", bounds="-74.3,40.4,-73.6,41", cell="250m", delta="500m"),
        ["EPSG:4326", "--project auto", "--project EPSG:32618 --bounds 558870,4472390,"],
    ),
    (publish(crs="EPSG:4326", project="EPSG:4258"), ["EPSG:4258", "projected"]),
    (publish(crs="EPSG:4326", project="EPSG:999999"), ["EPSG:999999", "known CRS"]),
    (publish(crs="here", project="EPSG:32618"), ["here", "known CRS"]),
    (
        publish(
            crs="EPSG:4326", project="EPSG:32618", bounds="-74.3,40.4,-73.6,41", cell="250m", delta="500m"
        ),
        ["-74.3", "metres of EPSG:32618"],
    ),
    (
        publish(
            crs="EPSG:4326", project="EPSG:3857", bounds="19900000,0,20100000,100000", cell="1km", delta="1km"
        ),
        ["19900000", "EPSG:3857"],
    ),
    # sources, strategies, users, points outside
    (publish(sources="nowhere"), ["'nowhere'", "boundary"]),
    (publish(sources="left"), ["'left'", "in 1-D only"]),
    (publish(sources="zones.geojson"), ["zones.geojson", "within δ"]),
    (publish(sources="no.geojson"), ["no.geojson"]),
    (publish(strategy="best"), ["'best'", "hierarchical"]),
    (publish(strategy="hierarchical:1"), ["1", "at least 2"]),
    (publish(strategy="shifted:4,1,9"), ["line"]),
    (publish(user="id"), ["--user", "--max-per-user"]),
    (publish(max_per_user=3), ["--max-per-user", "--user"]),
    (publish(user="id", max_per_user=0), ["0", "at least 1"]),
    (publish(outside="forget"), ["--outside", "'forget'", "'clamp', 'drop'"]),
    (publish(outside="drop"), ["drop", "boundary"]),
    (publish(where="x > 3"), ["'x'", "vanish by moving", "bounds"]),
    (publish(where="word > 3"), ["word > 3", "another kind of value"]),
    (publish(decimal=";"), ["--decimal", "';'"]),
    (publish(format="xml"), ["--format", "'xml'", "'jsonl'"]),
    (publish("two.zip"), ["two.zip", "points.csv, points.parquet", "unpack"]),
    (publish("comma.csv"), ["'1,5'", "--decimal ,"]),
    (publish("lines.json"), ["lines.json", "--format jsonl"]),
    (publish(out="no/such/out.parquet"), ["no/such", "does not exist"]),
    (publish(out="."), ["folder"]),
    (publish(out="points.csv"), ["points.csv", "another name"]),
    (publish(cell=None, cells_per_delta="many"), ["many", "whole number"]),
    (["publish", "points.csv"], ["--bounds"]),
    (["publish", "points.csv", "--bound", "1,2"], ["--bound"]),
    (["unpublish"], ["unpublish"]),
    # releases
    *(
        (query("--box", "0,0,1,1", release=name), [name, *words])
        for name, words in {
            "missing.parquet": ["does not exist"],
            "points.csv": ["not a readable Parquet"],
            "truncated.parquet": ["truncated"],
            "foreign.parquet": ["no release"],
            "newer.parquet": ["99", "up to 1"],
            "huge.parquet": ["GiB"],
            "short.parquet": ["50", "100"],
            "altered.parquet": ["altered"],
            "damaged.parquet": ["damaged"],
            ".": ["not called by dates, times or step numbers", "altered"],
        }.items()
    ),
    (["plot", "truncated.parquet", "--out", "out.png"], ["truncated"]),
    (["export", "newer.parquet", "--out", "out.csv"], ["99"]),
    # queries
    (query("--box", "5,5,20,20"), ["5,5,20,20", "not inside the domain"]),
    (query("--box", "5,5,1,6"), ["5,5,1,6", "west < east"]),
    (query("--box", "0,1"), ["0,1", "4 numbers"]),
    (query("--box", "0,0,nan,1"), ["nan", "finite"]),
    (query("--box", "a,b"), ["a,b", "four numbers"]),
    (query(), ["--box", "--regions"]),
    (query("--box", "0,0,1,1", "--regions", "zones.geojson"), ["--regions"]),
    (query("--box", "0,0,1,1", "--level", "95"), ["95", "between 0 and 1"]),
    (query("--box", "0,0,1,1", "--format", "xml"), ["'xml'", "geojson"]),
    (query("--box", "0,0,1,1", "--name", "zone"), ["zone", "--regions"]),
    (query("--boxes", "boxes.csv"), ["boxes.csv", "1 row"]),
    (query("--boxes", "columns.csv"), ["columns.csv", "west,south,east,north"]),
    (query("--boxes", "missing.csv"), ["missing.csv", "no such file"]),
    (query("--regions", "zones.geojson"), ["0 of 1 regions are inside the domain", "(20.0, 20.0, 21.0, 21.0)"]),
    (query("--regions", "lines.geojson"), ["LineString", "Polygon"]),
    (query("--regions", "missing.geojson"), ["missing.geojson", "no such file"]),
    (query("--regions", "no.geojson"), ["no.geojson"]),
    (query("--regions", "zones.geojson", "--name", "town"), ["'town'", "zone"]),
    (query("--box", "0,0,1,1", "--out", "no/such.csv"), ["does not exist"]),
    (query("--box", "0,0,1,1", "--out", "good.parquet"), ["good.parquet", "another name"]),
    # pictures, other forms, plans
    (["plot", "good.parquet", "--out", "out.gif"], ["out.gif", ".png"]),
    (
        ["plot", "good.parquet", "--out", "out.png", "--only", "legend"],
        ["--only", "'legend'", "map or curve"],
    ),
    (["export", "good.parquet", "--out", "out.shp"], ["out.shp", ".geojson"]),
    (["export", "good.parquet", "--out", "no/out.csv"], ["does not exist"]),
    (["plan", "--bounds", "0,10", "--delta", "1"], ["--epsilon"]),
    (["plan", "--bounds", "0,10", "--delta", "1", "--epsilon", "1", "--squares", "20"], ["20", "domain"]),
    (["plan", "--bounds", "0,10", "--delta", "1", "--epsilon", "1", "--format", "xml"], ["'xml'", "json"]),
    (
        ["plan", "--bounds", "0,10", "--delta", "1", "--epsilon", "1", "--max-per-user", "0"],
        ["0", "at least 1"],
    ),
]


def check(code, error, words):
    assert code == 2
    lines = error.splitlines()
    assert len(lines) == 1, error
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize(("line", "words"), CASES, ids=[" ".join(line)[:90] for line, _ in CASES])
def test_one_line_and_nothing_written(folder, monkeypatch, capsys, line, words):
    monkeypatch.chdir(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    code = main(line)
    output, error = capsys.readouterr()
    check(code, error, words)
    assert output == ""
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_the_same_from_a_shell(folder):
    line, words = CASES[0]
    environment = {**os.environ, "PYTHONPATH": str(Path(dh.__file__).parent.parent), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "deltahist.cli", *line]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    check(done.returncode, done.stderr, words)


def test_an_older_release_survives_a_failure(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    out = tmp_path / "city.parquet"
    out.write_text("an older one")
    assert main(publish("nan.csv", out=out)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["city.parquet"]
    assert out.read_text() == "an older one"


def test_parameters_are_checked_before_the_data_is_read(folder, monkeypatch, capsys):
    """What is wrong with the data must not hide, or depend on, what is wrong with the public choices."""
    monkeypatch.chdir(folder)
    assert main(publish("nan.csv", strategy="shifted:4,1,9")) == 2
    assert "line" in capsys.readouterr().err
    assert main(publish("missing.csv", where="word = ")) == 2
    assert "'word ='" in capsys.readouterr().err


def test_bad_rows_may_be_dropped_and_the_statement_says_so(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    out = tmp_path / "dropped.parquet"
    assert main(publish("nan.csv", drop_bad_rows=True, out=out)) == 0
    assert "2 rows" in capsys.readouterr().err
    release = dh.Release.load(out)
    assert release.total is None
    assert "rows without usable coordinates, user or time were dropped" in release.statement()
