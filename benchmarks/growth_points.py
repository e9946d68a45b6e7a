"""Time and memory from 10⁶ to 10⁸ points, written to growth_points.json and drawn as growth_points.png.

Takes some minutes and, temporarily, 3.2 GB of disk.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.growth import COLOURS
from benchmarks.processes import run
from benchmarks.scale import BARE, SIDE

FOUND = Path(__file__).with_name("growth_points.json")
PICTURE = Path(__file__).with_name("growth_points.png")
SIZES, ROUNDS, BLOCK = (10**6, 10**7, 10**8), 2, 10**6
#: By default DuckDB caches the files it has read as long as there is room.
_DUCKDB = (
    "import duckdb; city = duckdb.connect(); city.execute('SET threads = 2; SET enable_progress_bar = false; "
    "SET enable_external_file_cache = false')"
)
_VIEW = "city.execute(\"CREATE VIEW visits AS SELECT * FROM 'visits.parquet'\")"
#: Methods of counting: code to run before the clock starts, and code to measure.
WAYS = {
    "count_file, one file": ("", "dh.count_file('visits.parquet', domain, x='x', y='y')"),
    "count_file, a folder of parts": ("", "dh.count_file('visits', domain, x='x', y='y')"),
    "DuckDB's own group-by": (f"{_DUCKDB}; {_VIEW}", f"city.execute({BARE!r}).to_arrow_table()"),
}  # fmt: skip
_SCRIPT = (
    "import time, pyarrow.parquet, deltahist as dh; domain = dh.Domain((0, 0, 1, 1), ({side}, {side})); {before}\n"
    "start = time.process_time(); {counted}; print(time.process_time() - start)"
)
#: Panels of a row, by figure.
PANELS = {"processor": "seconds of processors", "peak": "peak memory of the process (GiB)"}

Found = dict[str, dict[str, list[float]]]


def write(folder: Path, number: int) -> None:
    """Write random points as one file, and as a folder of parts."""
    rng = np.random.default_rng(1)
    folder.joinpath("visits").mkdir()
    with pq.ParquetWriter(folder / "visits.parquet", pa.schema({"x": "float64", "y": "float64"})) as file:
        for part in range(number // BLOCK):
            points = pa.table({name: rng.random(BLOCK) for name in "xy"})
            file.write_table(points)
            pq.write_table(points, folder / "visits" / f"{part:03}.parquet")


def measure() -> Found:
    """Return the minimum over the rounds by method and figure, a number per size. Methods take turns."""
    found: Found = {way: {figure: [] for figure in PANELS} for way in WAYS}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            # Use a process of its own, because the memory of the parent counts as the child's.
            script = f"from pathlib import Path; from benchmarks.growth_points import write; write(Path(), {size})"
            run("-c", script, folder=folder)
            rounds: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
            for _ in range(ROUNDS):
                for way, (before, counted) in WAYS.items():
                    spent = run("-c", _SCRIPT.format(side=SIDE, before=before, counted=counted), folder=folder)
                    rounds[way].append((float(spent.printed), spent.peak))
                    print(f"{size:>11,} {way:<30} {rounds[way][-1][0]:7.2f} s {spent.peak:6.3f} GiB", flush=True)
        for way, each in rounds.items():
            for figure, values in zip(PANELS, zip(*each, strict=True), strict=True):
                found[way][figure].append(float(f"{min(values):.3g}"))
    return found


def draw_row(panels: Sequence[Any], sizes: Sequence[int], found: Mapping[str, Any], unit: str) -> None:
    """Draw a panel for each figure over sizes in a unit, with a line of slope one from the smallest."""
    for axes, (figure, label) in zip(panels, PANELS.items(), strict=True):
        for (way, values), colour in zip(found.items(), COLOURS, strict=False):
            axes.loglog(sizes, values[figure], "o-", color=colour, label=way)
        low, high = axes.get_ylim()
        if high < 10 * low:  # label powers of ten only
            low, high = low / 4, high * 4
        axes.loglog(sizes, [high * size / sizes[-1] for size in sizes], ":", color="black", label="linear")
        axes.set_ylim(low, high)
        axes.set(xlabel=unit, ylabel=label)
        axes.grid(alpha=0.3)


def draw(picture: Path, sizes: Sequence[int], found: Mapping[str, Any], unit: str) -> None:
    """Draw a row of panels as a separate picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(PANELS))
    draw_row(panels, sizes, found, unit)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(picture, dpi=130)
    print(f"{picture} is drawn")


def main() -> None:
    """Measure, write the figures, print their slopes, and draw them."""
    found = measure()
    FOUND.write_text(json.dumps({"sizes": SIZES, **found}, indent=1) + "\n")
    for way, values in found.items():
        (_, before, last), (_, fewer, peak) = values["processor"], values["peak"]
        slope = (last - before) / (SIZES[-1] - SIZES[-2])
        print(f"{way:<30} {slope * 1e9:6.1f} ns a point; memory {peak / fewer:.2f} times that of a tenth")
    draw(PICTURE, SIZES, found, f"points of a Parquet file, to {SIDE}² cells")


if __name__ == "__main__":
    main()
