"""Bad input, one command line each: one line on stderr, exit status 2, the value and the rule, nothing written."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main

PUBLISH = {
    "--x": "x", "--y": "y", "--bounds": "0,0,10,10", "--cell": "1", "--delta": "1", "--epsilon": "1",
    "--strategy": "identity", "--out": "out.parquet",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Input files and releases, good and bad."""
    folder = tmp_path_factory.mktemp("bad")
    points = pd.DataFrame({"x": [1.5, 2.5, 3.5], "y": [1.5, 2.5, 3.5], "word": ["a", "b", "c"], "id": [1, 1, 2]})
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
    near = dh.Neighbourhood(dh.Domain((0, 0, 10, 10), (10, 10)), delta=1)
    dh.publish(np.ones((10, 10), dtype=int), near, "identity", epsilon=1).save(folder / "good.parquet")
    whole = (folder / "good.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    return folder


def _zones(ring, kind="Polygon"):
    geometry = {"type": kind, "coordinates": ring if kind == "LineString" else [ring]}
    feature = {"type": "Feature", "properties": {"zone": "a"}, "geometry": geometry}
    return json.dumps({"type": "FeatureCollection", "features": [feature]})


def publish(source="points.csv", **changes):
    """A good command line with some options changed; None leaves one out, True makes a flag."""
    options = PUBLISH | {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    line = ["publish", source]
    for name, value in options.items():
        line += [] if value is None else [name] if value is True else [name, str(value)]
    return line


def query(*rest, release="good.parquet"):
    return ["query", release, *rest]


#: Command lines that cannot be meant.
CASES = [
    # the data
    *(publish(name) for name in ("missing.csv", "empty.csv", "nan.csv", "comma.csv", "lines.json", "two.zip")),
    *(publish(**{axis: "lon"}) for axis in ("x", "y")),
    publish(x="word"),
    publish(y=None),
    publish(bounds="0,10"),
    # the budget
    *(publish(epsilon=e) for e in ("0", "nan", "one", "9" * 5000, "2000")),
    publish(epsilon=None),
    publish(rho=1),
    # δ, its caps, and cells
    *(publish(delta=d) for d in ("0", "far", "1e-9", "500m", "99")),
    *(publish(limit=limit) for limit in ("2", "any:0.5", "any:x")),
    *(publish(cell=c) for c in ("0", "1e-300", "0.00001", "wide")),
    # the bounds
    *(publish(bounds=b) for b in ("10,0,0,10", "0,0,10", "0,0,ten,10", "0,0,1e300,10")),
    # reference systems
    publish(crs="EPSG:4326", bounds="-74.3,40.4,-73.6,41", cell="250m", delta="500m"),
    publish(bounds="-74.3,40.4,-73.6,41", x="lon", y="lat"),
    publish(crs="EPSG:4326", project="EPSG:4258"),
    publish(crs="EPSG:4326", project="EPSG:999999"),
    publish(crs="here", project="EPSG:32618"),
    publish(crs="EPSG:4326", project="EPSG:32618", bounds="-74.3,40.4,-73.6,41", cell="250m", delta="500m"),
    # sources, strategies, users, points outside
    *(publish(sources=each) for each in ("nowhere", "left", "zones.geojson", "no.geojson")),
    *(publish(strategy=each) for each in ("best", "hierarchical:1", "shifted:4,1,9")),
    publish(user="id"),
    publish(user="id", max_per_user=0),
    publish(outside="forget"),
    publish(outside="drop"),
    *(publish(where=each) for each in ("x > 3", "word = ", "kind = 'bus'")),
    # files and accounts
    *(publish(out=each) for each in ("no/such/out.parquet", ".", "-", "points.csv", "out.csv", "/proc/o.parquet")),
    *(publish(ledger=each, account="a", account_limit=2) for each in ("points.csv", "none/l")),
    publish(ledger="l"),
    publish(account="a"),
    publish(account_limit=3),
    publish(ledger="l", account="a"),
    publish(replaces="good.parquet"),
    publish(replaces="points.csv", reason="why"),
    publish(state="out.parquet"),
    publish(state="good.parquet"),
    publish(table="visits"),
    ["publish", "points.csv"],
    ["publish", "points.csv", "--bound", "1,2"],
    ["unpublish"],
    # releases
    *(query("--box", "0,0,1,1", release=name) for name in ("missing.parquet", "points.csv", "truncated.parquet", ".")),
    ["plot", "truncated.parquet", "--out", "out.png"],
    ["export", "truncated.parquet", "--out", "out.csv"],
    ["statement", "truncated.parquet"],
    *(["statement", "good.parquet", "--out", out] for out in ("out.xyz", "nowhere/out.html")),
    # queries
    *(query("--box", box) for box in ("5,5,20,20", "5,5,1,6", "0,0,nan,1")),
    query(),
    query("--box", "0,0,1,1", "--level", "95"),
    *(query("--boxes", name) for name in ("boxes.csv", "columns.csv", "missing.csv")),
    *(query("--regions", name) for name in ("zones.geojson", "lines.geojson", "missing.geojson", "no.geojson")),
    query("--regions", "zones.geojson", "--name", "town"),
    query("--box", "0,0,1,1", "--out", "no/such.csv"),
    query("--box", "0,0,1,1", "--out", "good.parquet"),
    query("--quantiles", "0.5"),
    # pictures, other forms, plans, chains
    ["plot", "good.parquet", "--out", "out.xyz"],
    ["plot", "good.parquet", "--out", "out.png", "--only", "legend"],
    ["plot", "good.parquet", "--out", "out.png", "--context", "none.gpkg"],
    ["export", "good.parquet", "--out", "out.shp"],
    ["export", "good.parquet", "--out", "no/out.csv"],
    ["plan", "--bounds", "0,10", "--delta", "1"],
    *(
        ["plan", "--bounds", "0,10", "--delta", *more]
        for more in (
            *(["1,2"], ["1,2", "--rho", "1"], ["1,2", "--epsilon", "1", "--cell", "1"], ["99", "--epsilon", "1"]),
            ["1", "--epsilon", "1", "--max-per-user", "0"],
        )
    ),
    ["refine", "good.parquet", "--state", "none.state", "--epsilon", "2", "--out", "out.parquet"],
    ["tighten", "good.parquet", "--epsilon", "2", "--out", "out.parquet"],
    ["quantile", "points.csv", "--x", "x", "--q", "2", "--bounds", "0,8", "--delta", "1", "--epsilon", "1"],
    ["quantile", "points.csv", "--x", "x", "--q", "0.5", "--bounds", "0,0,8,8", "--delta", "1", "--epsilon", "1"],
    ["quantile", "points.csv", "--x", "word", "--q", "0.5", "--bounds", "0,8", "--delta", "1", "--epsilon", "1"],
    ["serve", "missing.parquet", "--check"],
    *(["serve", "good.parquet", "--check", *more] for more in (["--port", "65536"], ["--max-boxes", "0"])),
    ["ledger", "show", "missing.ledger"],
    ["withdraw", "missing.parquet", "--reason", "why"],
]


def check(code, error):
    assert code == 2
    lines = error.splitlines()
    assert len(lines) == 1, error
    assert lines[0].startswith("error: ")


@pytest.mark.parametrize("line", CASES, ids=lambda line: " ".join(line)[:110])
def test_one_line_and_nothing_written(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    code = main(line)
    output, error = capsys.readouterr()
    check(code, error)
    assert output == ""
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
