"""Do the intervals of districts and squares cover the truth, and are they wider than necessary?

`python -m experiments.districts [--data FOLDER] [--small] [--out DIR]`. FOLDER contains the public data sets under
their original names (docs/internals/experiments.md); missing ones are skipped. See docs/internals/placement.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.spatial
import shapely
from numpy.typing import NDArray

import datasets
import deltahist as dh
from deltahist.planning import CellChoice
from experiments._common import Found, parser_of, print_found, print_table, write_csv

#: Cell sizes as fractions of δ, numbers of random districts (Voronoi cells of random places), and number of squares.
CELLS, DISTRICTS, SQUARES = (0.125, 0.25, 0.5, 1.0, 2.0), (5, 10, 20, 50, 100, 200), 400
#: Sides of small squares in cells.
SIDES = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0)
EPSILON, LEVEL, MOST_PER_USER, SEED = 1.0, 0.95, 5, 11
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PointSet:
    """Points on a plane with their users, if known; δ is in the plane's units."""

    name: str
    points: Floats
    delta: float
    users: NDArray[Any] | None = None

    def bounded(self) -> PointSet:
        """Keep at most five random points of each user."""
        order = np.random.default_rng(SEED).permutation(len(self.points))
        kept = pd.Series(self.users[order]).groupby(self.users[order]).cumcount().to_numpy() < MOST_PER_USER
        return PointSet(f"{self.name}, users", self.points[order[kept]], self.delta, self.users[order[kept]])


def sets(folder: Path | None, small: bool) -> Iterator[PointSet]:
    """Yield an invented city, evenly spread points, a stand-in, and the public data sets in the folder."""
    city = datasets.sample_points(seed=7)
    yield PointSet("invented city", projected(city["lon"], city["lat"], 32618), 500.0, city["user"].to_numpy())
    if small:
        return
    yield PointSet("evenly spread", np.random.default_rng(2).random((100_000, 2)), 1 / 80)
    yield PointSet("stand-in, North America", datasets.twitter_like_north_america(), 1 / 80)
    if folder is None:
        return
    if (file := folder / "gowalla_nyc" / "gowalla_events.tsv.gz").is_file():
        frame = pd.read_csv(file, sep="\t", header=None)
        yield PointSet("check-ins", projected(frame[3], frame[2], 32618), 500.0, frame[0].to_numpy())
    if (file := folder / "twitter_hashtags_na" / "tweets.csv.gz").is_file():
        frame = pd.read_csv(file).query("25 < lat < 50 and -125 < lon < -66")
        yield _on_map("hashtags", projected(frame["lon"], frame["lat"], 5070))
    if (file := folder / "opensky_flights_world" / "flights.csv.gz").is_file():
        frame = pd.read_csv(file).query("35 < lat1 < 60 and -10 < lon1 < 30").head(100_000)
        yield _on_map("departures", projected(frame["lon1"], frame["lat1"], 3035))
    if (file := folder / "uci_person_activity_10pct" / "ConfLongDemo_JSI_first10pct.csv").is_file():
        frame = pd.read_csv(file, skipinitialspace=True)
        yield _on_map("tags indoors", frame[["x_coordinate", "y_coordinate"]].to_numpy())
    if (file := folder / "dpbench_2d_hist" / "twitter_256_256.npy").is_file():
        counts = np.load(file)
        corners = np.repeat(np.argwhere(counts), counts[counts > 0].astype(int), axis=0)
        yield _on_map("tweets", corners + np.random.default_rng(3).random(corners.shape))


def _on_map(name: str, points: Floats) -> PointSet:
    return PointSet(name, points, float(np.ptp(points, axis=0).max()) / 80)


def projected(lon: Any, lat: Any, crs: int) -> Floats:
    import pyproj

    there = pyproj.Transformer.from_crs(4326, crs, always_xy=True)
    return np.column_stack(there.transform(np.asarray(lon), np.asarray(lat)))


def regions(domain: dh.Domain, rng: np.random.Generator) -> dict[str, list[Any]]:
    """Return random districts that cover the domain, and squares of a fortieth to half of its shorter side."""
    frame, low, high = shapely.box(*domain.bounds), np.array(domain.low), np.array(domain.high)
    districts = []
    for number in DISTRICTS:
        places = shapely.multipoints(rng.uniform(low, high, (number, 2)))
        parts = shapely.get_parts(shapely.voronoi_polygons(places, extend_to=frame))
        districts += [shape for shape in shapely.intersection(parts, frame) if shape.area > 0]
    side = float((high - low).min()) * 10 ** rng.uniform(-1.6, -0.3, SQUARES)
    corner = low + rng.random((SQUARES, 2)) * (high - low - side[:, None])
    squares = shapely.box(corner[:, 0], corner[:, 1], corner[:, 0] + side, corner[:, 1] + side)
    return {"districts": districts, "squares": list(squares)}


def published(data: PointSet, part: float, rng: np.random.Generator, epsilon: float = EPSILON) -> dh.Release:
    """Publish one data set with cells of a fraction of δ."""
    low, high, cell = data.points.min(axis=0), data.points.max(axis=0), data.delta * part
    shape = tuple(int(math.ceil(side / data.delta) * data.delta / cell + 1e-9) for side in high - low)
    domain = dh.Domain((*low, *(low + np.array(shape) * cell)), shape)
    most = {} if data.users is None or "users" not in data.name else {"user": data.users, "max_per_user": MOST_PER_USER}
    counts, near = dh.count(data.points, domain, **most), dh.Neighbourhood(domain, data.delta)
    return dh.publish(counts, near, epsilon=epsilon, weak_protection_accepted=True, rng=rng)


def covered(found: pd.DataFrame, truth: Any) -> NDArray[np.bool_]:
    """Return whether the intervals contain the truth, up to rounding."""
    return ((found["low"] - 1e-6 <= truth) & (truth <= found["high"] + 1e-6)).to_numpy()


def small_squares(data: PointSet, part: float) -> Iterator[dict[str, Any]]:
    """Measure coverage and width for squares around random points, the busiest tenth of these, and random places.

    Each is measured with noise and with almost none.
    """
    tree = scipy.spatial.cKDTree(data.points)
    for noise, epsilon in (("with noise", EPSILON), ("without", 2000.0)):
        rng = np.random.default_rng(SEED)
        release = published(data, part, rng, epsilon)
        domain = release.domain
        low, high = np.array(domain.low), np.array(domain.high)
        for side in SIDES:
            half = side * data.delta * part / 2
            for kind in ("points", "busiest", "places"):
                centre = rng.uniform(low, high, (SQUARES, 2))
                if kind != "places":
                    centre = data.points[rng.integers(0, len(data.points), SQUARES * (10 if kind == "busiest" else 1))]
                centre = centre.clip(low + half, high - half)
                truth = tree.query_ball_point(centre, half * (1 - 1e-12), p=np.inf, return_length=True)
                most = np.argsort(-truth, kind="stable")[:SQUARES]
                centre, truth = centre[most], truth[most]
                found = dh.answer(release, np.column_stack([centre - half, centre + half]))
                error = np.abs(found["estimate"] - truth)
                yield {
                    "set": data.name,
                    "cell": f"{part:g} δ",
                    "noise": noise,
                    "side": side,
                    "about": kind,
                    "truth": float(truth.mean()),
                    "estimate": float(found["estimate"].mean()),
                    "coverage": float(covered(found, truth).mean()),
                    "coverage by 1.96 std_error": float((error <= 1.96 * found["std_error"] + 1e-6).mean()),
                    "mean error": float(error.mean()),
                    "mean half-width": float((found["high"] - found["low"]).mean() / 2),
                }


def measured(data: PointSet, part: float) -> Iterator[dict[str, Any]]:
    """Measure coverage, error and width on one data set, with cells of a fraction of δ."""
    rng = np.random.default_rng(SEED)
    release = published(data, part, rng)
    domain = release.domain
    tree = shapely.STRtree(shapely.points(data.points))
    for kind, shapes in regions(domain, rng).items():
        asked, _ = tree.query(np.array(shapes, dtype=object), predicate="intersects")
        truth = np.bincount(asked, minlength=len(shapes))
        found = dh.answer(release, shapes, level=LEVEL)
        plain = dh.workloads.regions(shapes).matrix(domain) @ release.cells().ravel()
        error = float(np.sqrt(np.mean((found["estimate"] - truth) ** 2)))
        by_noise = np.abs(plain - truth) <= 1.96 * found["noise_error"].to_numpy()
        half = ((found["high"] - found["low"]) / 2).to_numpy()
        yield {
            "set": data.name,
            "cell": f"{part:g} δ",
            "asked": kind,
            "coverage": float(covered(found, truth).mean()),
            "coverage by noise alone": float(by_noise.mean()),
            "error": error,
            "expected error": CellChoice.of(release.mechanism, len(data.points), dh.workloads.regions(shapes)).rmse,
            "stated error": float(np.sqrt(np.mean(found["std_error"] ** 2))),
            "width over need": float(np.sqrt(np.mean(half**2))) / 1.96 / error,
            "error over even": error / float(np.sqrt(np.mean((plain - truth) ** 2))),
        }


def run(out: Path, small: bool, folder: Path | None = None) -> Found:
    """Write districts.csv and small_squares.csv."""
    rows, small_ones = [], []
    for data in sets(folder, small):
        for each in (data,) if data.users is None else (data, data.bounded()):
            for part in CELLS[3:] if small else CELLS:
                rows += measured(each, part)
                if part >= 0.25 and each is data:
                    small_ones += small_squares(each, part)
    write_csv(out / "districts.csv", rows)
    print_table([row | {"coverage": f"{100 * row['coverage']:.1f}%"} for row in rows])
    write_csv(out / "small_squares.csv", small_ones)
    frame = pd.DataFrame(small_ones).drop(columns=["set", "cell"])
    means = frame.groupby(["about", "noise", "side"]).mean().round(3)
    print(means.assign(least=frame.groupby(["about", "noise", "side"])["coverage"].min()).to_string())
    at_points, busiest = (frame.loc[frame["about"] == about, "coverage"] for about in ("points", "busiest"))
    coverage = [row["coverage"] for row in rows]
    return {
        "least coverage": min(coverage),
        "mean coverage": float(np.mean(coverage)),
        "most coverage": max(coverage),
        "largest width over need": max(row["width over need"] for row in rows),
        "mean error over even": float(np.mean([row["error over even"] for row in rows])),
        "least coverage of squares about points": float(at_points.min()),
        "mean coverage of squares about points": float(at_points.mean()),
        "least coverage of squares about the busiest points": float(busiest.min()),
        "mean coverage of squares about the busiest points": float(busiest.mean()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="public data sets (docs/internals/experiments.md)")
    chosen = parser.parse_args(arguments)
    print_found(run(chosen.out, chosen.small, chosen.data))


if __name__ == "__main__":
    main()
