"""Valid small files of every format, and the command lines that read them."""

import gzip
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

import deltahist as dh
from deltahist.cli import main

_MAP = ["--bounds", "0,0,10,10", "--cell", "1", "--delta", "1", "--epsilon", "1", "--strategy", "identity"]
_METRES = ["--bounds", "600000,4500000,600010,4500010", "--project", "EPSG:32618", *_MAP[2:]]
_XY = ["--x", "x", "--y", "y"]
_ADVISE = ["advise", *_METRES[:4], "--deltas", "2", "--epsilons", "1", "--max-per-user", "1,2"]
_TO = ["--out", "out.parquet", "--overwrite"]


@dataclass(frozen=True)
class Format:
    """A format: the name of a valid file, and command lines in which FILE stands for a changed one.

    `secret` files are for their owner alone, and `folder` is copied beside a changed file that belongs to one.
    """

    name: str
    file: str
    lines: tuple[tuple[str, ...], ...]
    secret: bool = False
    folder: str = ""


def _publish(file, *more, bounds=_MAP):
    return Format(f"points {file}", file, (("publish", "FILE", *more, *bounds, *_TO),))


_USERS = ["--user", "u", "--max-per-user", "2", "--where", "kind = 'a'"]
_SAVED = Path(__file__).parent / "saved"
#: A box on the map of each of the saved releases.
_BOXES = dict.fromkeys((
    "identity", "flow", "wavelet_gaussian", "geometry_source", "hierarchical_shares", "chain", "copy", "users_dropped",
    "cumulative_prefix",
), "1,1,4,4") | dict.fromkeys((
    "cuts", "optimal", "shifted", "cumulative_1d_left", "sorted", "sorted_chain", "sorted_left_users",
), "2,6") | dict.fromkeys(("flow_tuned", "spectral_probability"), "562000,4482000,566000,4486000")  # fmt: skip


def _release(name, box):
    lines = (
        ("statement", "FILE"),
        ("query", "FILE", "--box", box),
        ("tighten", "FILE", "--epsilon", "0.1", *_TO),
    )
    return Format(f"release {name}", f"{name}.parquet", (*lines, ("export", "FILE", "--out", "out.csv")))


_SHARE = [
    "share",
    "homes.csv",
    "--id",
    "user",
    "--x",
    "x",
    "--y",
    "y",
    "--alpha",
    "1",
    "--epsilon",
    "exp(3-d)",
]
_SHARE += ["--crs", "none"]
_SHARED = ["--state", "share.key", "--out", "out.csv"]

FORMATS = (
    *(_publish(file, *_XY, *_USERS) for file in (
        "p.csv", "p.csv.gz", "p.tsv.zip", "p.jsonl", "p.ndjson.gz", "p.parquet", "p.xlsx",
    )),
    *(_publish(file, bounds=_METRES) for file in ("g.parquet", "g.gpkg", "g.fgb", "g.shp.zip")),
    _publish("g.geojson", "--project", "EPSG:32618", bounds=_METRES),
    *(Format(f"regions {f}", f, (("query", "map.parquet", "--regions", "FILE"),)) for f in (
        "z.geojson", "z.gpkg", "z.fgb", "z.shp.zip", "z.parquet",
    )),
    Format("sources", "z.geojson", (("publish", "p.csv", *_XY, *_MAP, "--sources", "FILE", *_TO),)),
    Format("boxes", "boxes.csv", (("query", "map.parquet", "--boxes", "FILE"),)),
    Format("weights", "weights.csv", (("allocate", "FILE", "--window", "2", "--epsilon", "1"),)),
    Format("users", "users.csv", ((*_ADVISE, "--points-per-user", "FILE"),)),
    *(_release(*each) for each in _BOXES.items()),
    *(Format(f"quantile {f}", f"quantile_{f}.json", (("statement", "FILE"),)) for f in ("inverse", "smooth_laplace")),
    Format("series", "2020-03-02.parquet", (("query", "FOLDER", "--box", "2,2,6,6"),), folder="series"),
    Format("state", "chain.state", (("refine", "--state", "FILE", "--epsilon", "2", *_TO),), secret=True),
    Format("key", "share.key", (
        (*_SHARE, "--edges", "edges.txt", "--all", "--state", "FILE", "--out", "out.csv"),
    ), secret=True),
    Format("edges", "edges.txt", ((*_SHARE, "--edges", "FILE", "--all", *_SHARED),)),
    Format("distances", "distances.txt", (
        (*_SHARE, "--edges", "edges.txt", "--distance", "FILE", "--all", *_SHARED),
    )),
    Format("pairs", "pairs.csv", ((*_SHARE, "--edges", "edges.txt", "--pairs", "FILE", *_SHARED),)),
    Format("question", "question.toml", (
        ("ask", "FILE", "--database", "people.duckdb", "--ledger", "people.ledger", "--limit", "1000000"),
    )),
    Format("ledger", "city.ledger", (("ledger", "show", "FILE"), ("ledger", "audit", "FILE"))),
)  # fmt: skip


def write_all(folder: Path) -> None:
    """Write the valid files of all formats, and what their command lines need besides."""
    for saved in _SAVED.iterdir():
        (folder / saved.name).write_bytes(saved.read_bytes())
    rng = np.random.default_rng(1)
    points = pd.DataFrame({"x": rng.uniform(0, 10, 60).round(3), "y": rng.uniform(0, 10, 60).round(3)})
    points["u"], points["kind"] = [f"user {n}" for n in rng.integers(0, 20, 60)], list("abc") * 20
    points.to_csv(folder / "p.csv", index=False)
    content = (folder / "p.csv").read_bytes()
    (folder / "p.csv.gz").write_bytes(gzip.compress(content, mtime=0))
    with zipfile.ZipFile(folder / "p.tsv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("p.tsv", content.replace(b",", b"\t"))
    points.to_json(folder / "p.jsonl", orient="records", lines=True)
    (folder / "p.ndjson.gz").write_bytes(gzip.compress((folder / "p.jsonl").read_bytes(), mtime=0))
    points.to_parquet(folder / "p.parquet")
    points.to_excel(folder / "p.xlsx", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _write_geometries(folder, points)
    (folder / "boxes.csv").write_text("west,south,east,north,name\n0,0,5,5,a\n2,3,8,9,b\n1,1,2,2,c\n")
    (folder / "weights.csv").write_text(
        "step,weight\n2020-01-01,1\n2020-01-02,4.5\n2020-01-03,0\n2020-01-04,2\n"
    )
    (folder / "users.csv").write_text("points,users\n1,100\n2,40\n5,3\n")
    _write_releases(folder, points)
    _write_sharing(folder)
    _write_asking(folder)


def _write_geometries(folder, points):
    places = gpd.points_from_xy(600_000 + points["x"], 4_500_000 + points["y"], crs="EPSG:32618")
    frame = gpd.GeoDataFrame(points[["u", "kind"]], geometry=places)
    zones = [shapely.box(i, i, i + 3, i + 2).union(shapely.box(i, i + 4, i + 1, i + 5)) for i in range(4)]
    zones = gpd.GeoDataFrame({"zone": list("abcd"), "n": [1, None, 3, 4]}, geometry=zones)
    for name, each in (("g", frame), ("z", zones)):
        each.to_parquet(folder / f"{name}.parquet")
        each.to_file(folder / f"{name}.gpkg")
        each.to_file(folder / f"{name}.fgb")
        each.to_file(folder / f"{name}.shp")
        with zipfile.ZipFile(folder / f"{name}.shp.zip", "w") as archive:
            for ending in (".shp", ".shx", ".dbf", ".prj", ".cpg"):
                if (part := folder / f"{name}{ending}").exists():
                    archive.write(part, part.name)
    frame.to_crs("EPSG:4326").to_file(folder / "g.geojson")
    zones.to_file(folder / "z.geojson")


def _write_releases(folder, points):
    domain = dh.Domain((0, 0, 10, 10), (10, 10))
    near = dh.Neighbourhood(domain, delta=1)
    counts = dh.count(points[["x", "y"]].to_numpy(), domain)
    dh.publish(counts, near, dh.strategies.Identity(domain), epsilon=1).save(folder / "map.parquet")
    days = [
        "--time",
        "day",
        "--start",
        "2020-03-01",
        "--until",
        "2020-03-03",
        "--every",
        "1d",
        "--window",
        "2",
    ]
    points.assign(day=["2020-03-01", "2020-03-02", "2020-03-03"] * 20).to_csv(
        folder / "days.csv", index=False
    )
    source = str(folder / "p.csv")
    stream = [*_XY, *_MAP, "--state", str(folder / "days.ledger"), "--out", str(folder / "series")]
    account = ["--ledger", str(folder / "city.ledger"), "--account", "city", "--account-limit", "5"]
    for arguments in (
        ["publish", source, *_XY, *_MAP, *account, "--out", str(folder / "paid.parquet")],
        ["stream", str(folder / "days.csv"), *days, *stream],
    ):
        assert main(arguments) == 0, arguments
    (folder / "2020-03-02.parquet").write_bytes((folder / "series" / "2020-03-02.parquet").read_bytes())


def _write_sharing(folder):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"user": range(12), "x": rng.uniform(0, 9, 12), "y": rng.uniform(0, 9, 12)})
    frame.to_csv(folder / "homes.csv", index=False)
    (folder / "edges.txt").write_text("".join(f"{i} {(i + 1) % 12}\n" for i in range(12)))
    (folder / "distances.txt").write_text(
        "".join(f"{i},{j},{abs(i - j)}\n" for i in range(6) for j in range(6) if i - j)
    )
    (folder / "pairs.csv").write_text("owner,requester\n1,2\n3,4\n0,7\n")
    to = ["--state", str(folder / "share.key"), "--out", str(folder / "shared.csv")]
    line = [str(folder / "homes.csv") if part == "homes.csv" else part for part in _SHARE]
    assert main([*line, "--edges", str(folder / "edges.txt"), "--all", *to]) == 0


def _write_asking(folder):
    import duckdb

    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE trips AS SELECT i % 20 AS who, i % 24 AS hour, i * 1.5 AS price FROM range(100) t(i)"
        )
    (folder / "question.toml").write_text(
        'table = "trips"\nowner = "who"\n\n[[steps]]\nwhere = "hour >= 22 and price < 50"\n\n[[steps]]\n'
        'at_most = 3\n\n[answer]\nkind = "sum"\ncolumn = "price"\nclip = [0, 40]\nepsilon = 0.001\n'
    )
