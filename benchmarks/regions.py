"""Boxes in degrees and in metres, and plans for regions: whole commands, by default.

On 1000 × 1000 cells 10,000 boxes in degrees in 2 s, in metres in 1 s; `advise` for 50 regions, nine rows, in 3 s;
`publish --regions` with the choice of cells in 1.5 s.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import geopandas as gpd
import numpy as np
import pyproj
import shapely

import deltahist as dh

BOUNDS = (580_000, 4_500_000, 630_000, 4_550_000)
CRS = "EPSG:32618"
BOXES, REGIONS, POINTS = 10_000, 50, 140_000
ROUNDS = 3


def prepare(folder: Path) -> None:
    """Write a release, boxes in metres and in degrees, regions and points."""
    rng = np.random.default_rng(1)
    west, south, east, north = BOUNDS
    domain = dh.Domain(BOUNDS, (1000, 1000), CRS)
    counts = dh.count(west + (east - west) * rng.beta(2, 2, (10**6, 2)) + (0, south - west), domain)
    dh.publish(counts, dh.Neighbourhood(domain, domain.cell[0]), epsilon=1).save(folder / "release.parquet")
    low = rng.uniform((west + 1_000, south + 1_000), (east - 6_000, north - 6_000), (BOXES, 2))
    boxes = np.hstack([low, low + rng.uniform(100, 5_000, (BOXES, 2))])
    lon_lat = pyproj.Transformer.from_crs(CRS, 4326, always_xy=True).transform
    degrees = np.column_stack([*lon_lat(*boxes[:, :2].T), *lon_lat(*boxes[:, 2:].T)])
    for name, corners in (("metres", boxes), ("degrees", degrees)):
        np.savetxt(folder / f"{name}.csv", corners, "%.8f", ",", header="west,south,east,north", comments="")
    sites = shapely.multipoints(rng.uniform((west, south), (east, north), (REGIONS, 2)))
    zones = shapely.get_parts(shapely.voronoi_polygons(sites, extend_to=shapely.box(*BOUNDS)))
    zones = shapely.intersection(zones, shapely.box(*BOUNDS))
    names = [f"zone {number}" for number in range(len(zones))]
    gpd.GeoDataFrame({"name": names}, geometry=zones, crs=CRS).to_file(folder / "zones.gpkg")
    points = rng.normal(((west + east) / 2, (south + north) / 2), 8_000, (POINTS, 2))
    np.savetxt(folder / "points.csv", points, "%.2f", ",", header="x,y", comments="")


def seconds(folder: Path, *words: str) -> tuple[float, float]:
    """Least time that a command takes, and processor time, of a few runs."""
    found = []
    for _ in range(ROUNDS):
        (folder / words[-1]).unlink(missing_ok=True)
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "deltahist.cli", *words], cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append((time.perf_counter() - start, spent))
    return min(one for one, _ in found), min(other for _, other in found)


def main() -> None:
    """Print the least of three runs for each command."""
    bounds = ",".join(map(str, BOUNDS))
    place = ["--bounds", bounds, "--regions", "zones.gpkg", "--points", str(POINTS)]
    publish = ["publish", "points.csv", "--x", "x", "--y", "y", "--crs", CRS, *place]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for label, words in {
            f"{BOXES:,} boxes in degrees (2 s)": ["query", "release.parquet", "--boxes", "degrees.csv"],
            f"{BOXES:,} boxes in metres (1 s)": ["query", "release.parquet", "--boxes", "metres.csv"],
            f"advise, {REGIONS} regions, nine rows (3 s)": ["advise", "--project", CRS, *place],
            "publish with the choice of cells (1.5 s)": [*publish, "--delta", "500m", "--epsilon", "1"],
        }.items():
            out = {"query": "out.csv", "advise": "out.txt", "publish": "out.parquet"}[words[0]]
            taken, spent = seconds(folder, *words, "--out", out)
            print(f"{label:<40} {taken:6.2f} s, of the processor {spent:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
