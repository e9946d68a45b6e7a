"""Write the page of docs/explorable, and the figures of many real releases of the made-up city, into a folder."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import shapely

import deltahist as dh
from deltahist.plots.maps import merge_cells
from deltahist.sample import BOUNDS, sample_districts, sample_points

SOURCE = Path(__file__).resolve().parent.parent / "docs" / "explorable"
# The stops of the sliders, and where they start. Lengths are in metres. The limit None leaves far moves unlimited.
GRID = {
    "delta": [250, 500, 1000, 2000, 4000],
    "epsilon": [0.25, 0.5, 1, 2, 4],
    "limit": [1, 2, 4, None],
    "cell": [250, 500, 1000],
}
START = {"delta": 500, "epsilon": 1, "limit": 4, "cell": 500}
# Visits kept of each person, and where the map's colours begin, in visits per square kilometre.
KEPT, COLOURS = 5, [0, 20, 50, 100, 200, 500]


def write_page(folder: str | Path, grid: dict[str, list[Any]] = GRID) -> None:
    """Write the page and its figures. The noise has a fixed seed, so the same code always writes the same page."""
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
    figures = json.dumps(compute_figures(grid), separators=(",", ":"))
    # The figures are a script, because a page opened as a file may not fetch JSON.
    Path(folder, "figures.js").write_text(f"const FIGURES = {figures};\n", encoding="utf-8")


def compute_figures(grid: dict[str, list[Any]]) -> dict[str, Any]:
    """Publish the city at every combination of the grid, and return what the page shows, ready for JSON."""
    visits = sample_points()
    kept = visits.groupby("user").head(KEPT)  # a uniform choice, because rows are in random order
    coarse = dh.Domain.from_degrees(BOUNDS, "1km")
    districts = sample_districts().to_crs(coarse.crs)
    points = gpd.GeoSeries.from_xy(kept["lon"], kept["lat"], crs="EPSG:4326").to_crs(coarse.crs)
    true = np.array([points.within(shape).sum() for shape in districts.geometry])
    diameter = dh.Neighbourhood(coarse, "1km").diameter
    distances = [*sorted({*range(250, math.ceil(diameter), 250), *grid["delta"]}), diameter]
    regions = dh.workloads.regions(districts)
    true_maps, blurs, settings, releases = [], [], [], {}
    for cell in grid["cell"]:
        domain = dh.Domain(coarse.bounds, [n * 1000 // cell for n in coarse.shape], coarse.crs)
        counts = dh.count(kept, domain, x="lon", y="lat", crs="EPSG:4326", user="user", max_per_user=KEPT)
        true_maps.append(encode_map(domain, counts.array, counts.array > 0))
        blurs.append(measure_error(publish_exact(counts, domain), districts, true))
        for delta, limit in itertools.product(grid["delta"], grid["limit"]):
            near = dh.Neighbourhood(domain, f"{delta}m", limits=[] if limit is None else [("any", limit)])
            for release in publish_all(counts, near, regions, grid["epsilon"]):
                # Some settings lead to the same release.
                known = releases.setdefault(release.cells().tobytes(), (len(releases), release))
                settings.append({"release": known[0], "guesses": list_guesses(release.mechanism, distances)})
    outlines = [trace_outline(coarse, shape) for shape in districts.geometry]
    return {
        "grid": grid,
        "start": START,
        "shape": coarse.shape,
        "colours": COLOURS,
        "distances": distances,
        "visits": {"all": len(visits), "kept": len(kept), "people": visits["user"].nunique(), "most": KEPT},
        "districts": {"number": len(districts), "mean": true.mean(), "outlines": outlines},
        "truth": true_maps,
        "blurs": blurs,
        "settings": settings,
        "releases": [describe_release(release, districts, true) for _, release in releases.values()],
    }


def trace_outline(domain: dh.Domain, shape: shapely.Polygon) -> str:
    """Return a district's corners in whole metres from the map's north-west corner, as SVG takes them."""
    x, y = shape.exterior.xy
    metres = domain.ground(np.array(x) - domain.low[0]), domain.ground(domain.high[1] - np.array(y))
    return " ".join(f"{east:.0f},{south:.0f}" for east, south in zip(*metres, strict=True))


def publish_all(
    counts: Any, near: dh.Neighbourhood, regions: dh.workloads.Regions, epsilons: list[float]
) -> Iterator[dh.Release]:
    """Publish counts with each ε, always with the strategy that suits the regions best."""
    strategy: Any = "auto"
    for epsilon in epsilons:
        release = dh.publish(counts, near, strategy, epsilon, workload=regions, rng=np.random.default_rng(1))
        strategy = release.mechanism.strategy
        yield release


def publish_exact(counts: Any, domain: dh.Domain) -> dh.Release:
    """Publish counts almost without noise, to see what cells alone do to an answer."""
    near = dh.Neighbourhood(domain, "1km")
    return dh.publish(counts, near, "identity", 1_000, weak_protection_accepted=True, rng=np.random.default_rng(1))


def list_guesses(mechanism: dh.Mechanism, distances: list[float]) -> list[int]:
    """Return how often an attacker is right at each distance at most, in thousandths, rounded up."""
    costs = [mechanism.cost_within(far)[0] for far in distances]
    return [math.ceil(1000 * dh.Budget(cost).guarantee.certainty - 1e-9) for cost in costs]


def describe_release(release: dh.Release, districts: gpd.GeoDataFrame, true: np.ndarray) -> dict[str, Any]:
    """Return a release's map, and the expected noise and the actual error of a district's count."""
    noise = round(release.mechanism.rmse(dh.workloads.regions(districts)), 1)
    shown = encode_map(release.domain, *merge_cells(release))
    return {"map": shown, "noise": noise, "actual": measure_error(release, districts, true)}


def measure_error(release: dh.Release, districts: gpd.GeoDataFrame, true: np.ndarray) -> float:
    """Return the root mean square error of the answers for districts."""
    return round(float(np.sqrt(np.mean((dh.answer(release, districts)["estimate"] - true) ** 2))), 1)


def encode_map(domain: dh.Domain, counts: np.ndarray, shown: np.ndarray) -> str:
    """Return the colour of each cell as a digit, 0 where nothing is shown, by rows from the north-west."""
    area = domain.ground(domain.cell[0]) * domain.ground(domain.cell[1]) / 1e6
    colours = np.where(shown, np.searchsorted(COLOURS, counts / area, side="right").clip(1), 0)
    return "".join(map(str, colours.T[::-1].ravel()))


if __name__ == "__main__":
    write_page(sys.argv[1])
