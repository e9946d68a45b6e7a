"""Sums over days: three ways to add up the uncertainty of positions within cells, and the error of each.

`python -m experiments.series_places [--data FILE] [--small] [--out DIR]`. FILE is gowalla_events.tsv.gz
(docs/internals/experiments.md). Without it, the script uses part of an invented city each day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely
from numpy.typing import NDArray

import datasets
import deltahist as dh
from deltahist.decode.placement import Placement
from deltahist.preprocessing import Clock
from deltahist.releases.series import Summed
from deltahist.space.workloads import RegionCover
from experiments._common import Found, parser_of, print_found, print_table, write_csv
from experiments.districts import projected, regions

LOW, HIGH, SEED = np.array((563_000, 4_480_000)), np.array((613_000, 4_532_000)), 1
DAYS = Clock.of("2010-08-01", "1d")
#: The side of a cell in metres (equal to δ), ε per day, points per user and day (None: all), and the number of days.
CASES = [
    (1000, 5.0, None, 31),
    (1000, 5.0, 1, 31),
    (500, 2.0, None, 31),
    (2000, 1.0, None, 31),
    (2000, 1 / 7, 1, 31),
    (2000, 5.0, None, 90),
]


def visits(file: Path | None, small: bool) -> pd.DataFrame:
    """Return columns day, user, x, y in metres of EPSG:32618, with days counted from 1 August 2010."""
    if file is None:
        city = datasets.sample_points(seed=7).head(4_000 if small else None)
        rng = np.random.default_rng(SEED)
        found = city.loc[rng.integers(0, len(city), 5 * len(city))].assign(
            day=lambda f: np.arange(len(f)) % (6 if small else 31)
        )
    else:
        found = pd.read_csv(file, sep="\t", header=None, names=["user", "time", "lat", "lon", "place"])
        found["day"] = (pd.to_datetime(found["time"]).dt.tz_localize(None) - pd.Timestamp("2010-08-01")).dt.days
    found["x"], found["y"] = projected(found["lon"], found["lat"], 32618).T
    within = ((found[["x", "y"]] > LOW) & (found[["x", "y"]] < HIGH)).all(axis=1)
    return found[within & (found["day"] >= 0)]


def measured(rows: pd.DataFrame, cell: int, epsilon: float, most: int | None, days: int) -> Iterator[dict[str, Any]]:
    """Return the coverage of sums over some days, and the ratio of the stated to the actual error."""
    rng = np.random.default_rng(SEED)
    domain = dh.Domain((*LOW, *HIGH), cell=cell)
    near = dh.Neighbourhood(domain, cell, "boundary")
    releases, points = [], []
    for day in range(days):
        today = rows[rows["day"] == day].sample(frac=1, random_state=SEED)
        if most is not None:
            today = today[today.groupby("user").cumcount() < most]
        points.append(today[["x", "y"]].to_numpy())
        counts = dh.count(points[-1], domain)
        releases.append(dh.publish(counts, near, "flow" if epsilon < 1 else "identity", epsilon, rng=rng))
    summed = Summed(tuple(releases))
    tree = shapely.STRtree(shapely.points(np.concatenate(points)))
    for kind, shapes in regions(domain, rng).items():
        work = dh.workloads.regions(shapes, [str(i) for i in range(len(shapes))])
        cover = work.cover(domain)
        found = dh.answer(dh.Series(DAYS, 0, days - 1, dict(enumerate(releases))), work)
        asked, _ = tree.query(np.array(shapes, dtype=object), predicate="intersects")
        off = np.abs(found["estimate"] - np.bincount(asked, minlength=len(shapes))).to_numpy()
        each = [variance_within_cells(part, cover) for part in summed.placement.parts]
        ways = {
            "by chance": np.sum(each, axis=0),
            "as one error": np.sum(np.sqrt(each), axis=0) ** 2,
            "of the sum": variance_within_cells(summed.placement.learnt, cover),
            "stated": found["placement_error"].to_numpy() ** 2,
        }
        row: dict[str, Any] = {"cell": cell, "epsilon": epsilon, "points of a user": most or "all", "days": days}
        row |= {"points": sum(map(len, points)), "asked": kind}
        for name, variance in ways.items():
            error = np.sqrt(found["noise_error"].to_numpy() ** 2 + variance)
            row |= {name: float((off <= 1.96 * error).mean())}
            row |= {f"{name}, width": float(np.sqrt((error**2).mean() / (off**2).mean()))}
        yield row


def variance_within_cells(placement: Placement, cover: RegionCover) -> NDArray[np.float64]:
    """Return the variance (m,) due to the unknown positions of points within their cells."""
    (spread,) = placement.spreads((slice(None),) * placement.cells.ndim)
    rows = cover.rows
    return np.maximum(rows @ spread.ravel() - rows.power(2) @ spread.ravel(), 0.0)


def run(out: Path, small: bool, file: Path | None = None) -> Found:
    """Write series_places.csv."""
    rows = visits(file, small)
    cases = [(2000, 1.0, None, 6 if small else 31)] if file is None else CASES
    found = [row for case in cases for row in measured(rows, *case)]
    write_csv(out / "series_places.csv", found)
    print_table(found)
    return {
        "least coverage": min(row["stated"] for row in found),
        "least coverage by chance": min(row["by chance"] for row in found),
        "largest width over need": max(row["stated, width"] for row in found),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, metavar="FILE", help="gowalla_events.tsv.gz")
    chosen = parser.parse_args(arguments)
    print_found(run(chosen.out, chosen.small, chosen.data))


if __name__ == "__main__":
    main()
