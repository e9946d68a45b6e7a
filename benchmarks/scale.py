"""Count the points of a file by cell: CPU time of `count_file` and of DuckDB's own group-by, from Parquet and text."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import deltahist as dh

POINTS, SIDE, REPEATS = 10_000_000, 1000, 3
#: A simpler formula than the lattice's, without bit-for-bit equality.
BARE = (
    f"SELECT CAST(floor(x * {SIDE}) AS BIGINT) * {SIDE} + CAST(floor(y * {SIDE}) AS BIGINT) AS cell, count(*) AS n "
    "FROM visits GROUP BY 1"
)


def main() -> None:
    domain = dh.Domain((0, 0, 1, 1), (SIDE, SIDE))
    rng = np.random.default_rng(1)
    table = pa.table({"x": rng.random(POINTS), "y": rng.random(POINTS), "who": rng.integers(0, POINTS // 20, POINTS)})
    users = {"user": "who", "max_per_user": 3}
    print(f"{POINTS:,} points to {SIDE} × {SIDE} cells, the best of {REPEATS}, seconds of processors")
    with tempfile.TemporaryDirectory() as folder:
        for name, write in (("visits.parquet", pq.write_table), ("visits.csv", pyarrow.csv.write_csv)):
            path = Path(folder, name)
            write(table, path)
            bare = BARE.replace("visits", f"'{path}'")
            ways = {
                "group-by": lambda: duckdb.connect().execute(bare).to_arrow_table(),  # noqa: B023
                "count_file": lambda: dh.count_file(path, domain, x="x", y="y"),  # noqa: B023
                "with users": lambda: dh.count_file(path, domain, x="x", y="y", **users),  # noqa: B023
            }
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(REPEATS):
                for way, run in ways.items():
                    before = os.times()
                    run()
                    after = os.times()
                    times[way].append(after.user + after.system - before.user - before.system)
            print(name, ", ".join(f"{way} {min(each):.2f}" for way, each in times.items()))
