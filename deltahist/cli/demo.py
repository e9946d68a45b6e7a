"""`deltahist demo`: publish a made-up city, query it and draw a map."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import deltahist as dh

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

PLACES = {
    "the centre, 3 km": (583700, 4507500, 586700, 4510500),
    "west bank": (578000, 4501000, 583000, 4518000),
    "one block, 500 m": (585000, 4509000, 585500, 4509500),
    "cells cut in half": (584125, 4508125, 586125, 4510125),
    "north-east corner": (591000, 4516000, 593000, 4518000),
}


def publish_demo(
    out: Annotated[Path, Option("--out", "-o", metavar="DIR", help="Folder to write to.")] = Path("deltahist-demo"),
) -> None:
    """Publish a made-up city from start to finish: turn a table of visits into a release, answers and a map.

    \b
    Example:
      deltahist demo --out /tmp/demo
    """
    from deltahist.sample import sample_districts, sample_points

    out.mkdir(parents=True, exist_ok=True)
    names = ("visits.csv", "districts.geojson", "city.parquet", "city.png")
    visits, districts, city, picture = (out / name for name in names)
    sample = sample_points()
    sample.to_csv(visits, index=False)
    print(f"A made-up city: {len(sample):,} visits of {sample['user'].nunique():,} invented users, in {visits}")
    sample_districts().to_file(districts, driver="GeoJSON")

    publish = ["publish", str(visits), "--x", "lon", "--y", "lat", "--user", "user", "--max-per-user", "5"]
    publish += ["--crs", "EPSG:4326", "--project", "EPSG:32618", "--bounds", "578000,4501000,593000,4518000"]
    publish += ["--cell", "250m", "--delta", "500m", "--epsilon", "1", "--out", str(city)]
    city.unlink(missing_ok=True)
    release, counted = _run_command(publish)
    _run_command(["statement", str(city)])
    _print_comparison(release, counted.counts.array, sample)
    _run_command(["plot", str(city), "--out", str(picture)])
    box = ",".join(map(str, PLACES["the centre, 3 km"]))
    print(f"\nLook at {picture}. Then try:")
    print(f"  deltahist query {city} --box {box} --format json")
    print(f"  deltahist plot {city} --regions {districts} --out {out / 'districts.png'}")
    print(f"  deltahist export {city} --out {out / 'cells.geojson'}")
    print(f"  deltahist serve {city}      # an interactive map at http://127.0.0.1:8000")
    print("  deltahist publish --help      # how to publish your own file")


def _run_command(arguments: Sequence[str]) -> Any:
    from deltahist.cli import invoke

    line = " ".join(["$ deltahist", *arguments])
    print("\n" + " \\\n".join(textwrap.wrap(line, 100, subsequent_indent="      ", break_on_hyphens=False)), flush=True)
    return invoke(["--config", os.devnull, *arguments])  # ignore the project file in this folder


def _print_comparison(release: dh.Release, kept: NDArray[Any], sample: pd.DataFrame) -> None:
    import geopandas

    places = {"whole map": release.domain.bounds, **PLACES}
    work = dh.workloads.boxes(list(places.values()))
    table = dh.answer(release, work)[["estimate", "low", "high"]].set_axis(list(places))
    table["kept visits"] = dh.workloads.box_sums(kept.astype("float64"), work.spans(release.domain))
    degrees = geopandas.GeoSeries.from_xy(sample["lon"], sample["lat"], crs="EPSG:4326")
    on_map = degrees.to_crs(release.domain.crs)  # includes visits beyond the limit per user
    table["all visits"] = [len(on_map.cx[west:east, south:north]) for west, south, east, north in places.values()]
    print(
        "\nAnswers from the release, with 95% intervals, next to the truth, which is known here\n"
        "because the city is made up. The release counts the kept visits, at most 5\n"
        "per user.\n"
    )
    print(table.to_string(float_format="{:,.0f}".format, formatters={"all visits": "{:,}".format}))
