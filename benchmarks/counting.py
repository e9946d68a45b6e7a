"""Points from Parquet to a saved 1000 × 1000 release by the command line, beside a bare DuckDB count of the same file.

Both are whole processes, from the start of Python to its end, and take turns. Targets for the ratio of their times: 1.5
for ten million points, 1.1 for a hundred million (`python -m benchmarks.counting 100000000`); at most 1.5 GiB.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

POINTS = 10_000_000
ROUNDS = 5
#: Points that are made at a time.
CHUNK = 1_000_000

DUCKDB = (
    "import duckdb, sys\n"
    "cells = 'floor((x - 0) / 0.001) AS i, floor((y - 0) / 0.001) AS j'\n"
    "duckdb.sql(f\"SELECT {cells}, count(*) AS n FROM '{sys.argv[1]}' GROUP BY ALL\").fetchnumpy()"
)
#: What any such process imports.
FLOOR = "import duckdb, numpy, pyarrow.parquet"
OPTIONS = ["--x", "x", "--y", "y", "--bounds", "0,0,1,1", "--cell", "0.001", "--delta", "0.001", "--epsilon", "1"]


class Spent(NamedTuple):
    """Seconds by the clock, seconds of both processors, and GiB at most, of a process."""

    wall: float
    cpu: float
    peak: float


def measure(code: str, *arguments: str) -> list[float]:
    """Seconds and peak GiB that a script of its own reports."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def spent(*arguments: str) -> Spent:
    """Run Python with some arguments, and return what the process took."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise RuntimeError(f"python {' '.join(arguments)[:80]} ended with {status}")
    return Spent(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def write_points(path: str, number: int) -> None:
    """Write made-up points as two columns of floats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    with pq.ParquetWriter(path, pa.schema({"x": pa.float64(), "y": pa.float64()})) as file:
        for start in range(0, number, CHUNK):
            some = min(CHUNK, number - start)
            file.write_table(pa.table({name: rng.normal(0.5, 0.15, some).clip(0, 0.999999) for name in "xy"}))


def main(number: int = POINTS) -> None:
    """Print medians and the ratios of pairs."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = str(Path(folder) / "points.parquet"), str(Path(folder) / "release.parquet")
        write_points(path, number)
        publish = ["-m", "deltahist.cli", "publish", path, *OPTIONS, "--overwrite", "--out", out]
        lines = {"deltahist publish": publish, "DuckDB count": ["-c", DUCKDB, path], "imports alone": ["-c", FLOOR]}
        found: dict[str, list[Spent]] = {name: [] for name in lines}
        for _ in range(ROUNDS):
            for name, line in lines.items():
                found[name].append(spent(*line))
    print(f"{number:,} points from Parquet, 1000 × 1000 cells, whole processes, medians of {ROUNDS} rounds")
    for name, rounds in found.items():
        wall, cpu, peak = map(statistics.median, zip(*rounds, strict=True))
        print(f"{name:18} {wall:6.2f} s by the clock, {cpu:6.2f} s of processors, {peak:.2f} GiB at most")
    pairs = list(zip(found["deltahist publish"], found["DuckDB count"], strict=True))
    wall, cpu = (statistics.median(own[i] / other[i] for own, other in pairs) for i in (0, 1))
    print(f"ratio: {wall:.2f} by the clock, {cpu:.2f} of processors")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
