"""Publish maps of 10⁶ to 10⁹ cells from the command line: seconds, memory and file size, with a process for each map.

Results go to growth_cells.json and docs/internals/growth_cells.png.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.growth_points import PANELS, Found, draw
from benchmarks.processes import run

FOUND = Path(__file__).with_name("growth_cells.json")
PICTURE = Path(__file__).parents[1] / "docs" / "internals" / "growth_cells.png"
POINTS, SIDES, STRATEGIES = 1_000_000, (1024, 4096, 8192, 16384, 32768), ("identity", "auto")


def main() -> None:
    print(f"{POINTS:,} points, cells of 100 m, delta 500 m, epsilon 1")
    print("| cells | strategy | s | s of processors | GiB | file, MiB | bits a cell |\n|---|---|---|---|---|---|---|")
    found: Found = {f"publish, {strategy}": {figure: [] for figure in PANELS} for strategy in STRATEGIES}
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            points, out, far = Path(folder, "points.parquet"), Path(folder, "map.parquet"), 100 * side
            rng = np.random.default_rng(1)
            towns = rng.random((50, 2)) * far
            places = towns[rng.integers(0, 50, POINTS)] + rng.normal(0, far / 80, (POINTS, 2))
            places = np.clip(places, 0, far)
            pq.write_table(pa.table({"x": places[:, 0], "y": places[:, 1]}), points)
            for strategy in STRATEGIES:
                out.unlink(missing_ok=True)
                spent = run(
                    *("-m", "deltahist", "publish", str(points), "--x", "x", "--y", "y"),
                    *("--bounds", f"0,0,{far},{far}", "--cell", "100", "--delta", "500", "--epsilon", "1"),
                    *("--strategy", strategy, "--out", str(out)),
                )
                size = out.stat().st_size
                for figure in PANELS:
                    found[f"publish, {strategy}"][figure].append(float(f"{getattr(spent, figure):.3g}"))
                print(
                    f"| {side:,}² | {strategy} | {spent.clock:.1f} | {spent.processor:.1f} | {spent.peak:.2f} "
                    f"| {size / 2**20:,.1f} | {8 * size / side**2:.2f} |",
                    flush=True,
                )
    sizes = [side**2 for side in SIDES]
    FOUND.write_text(json.dumps({"sizes": sizes, **found}, indent=1) + "\n")
    draw(PICTURE, sizes, found, f"cells, {POINTS:,} points")


if __name__ == "__main__":
    main()
