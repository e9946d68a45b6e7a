"""Ten million points from Parquet to a saved 1000 × 1000 release, beside a bare DuckDB count of the same file.

Targets: at most 2.5 times DuckDB's time in the same run, under 1.5 GB. Each task runs in a process of its own; both
take turns. Times exclude starting Python and importing, for both.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

POINTS = 10_000_000
ROUNDS = 3

DUCKDB = """
import duckdb, json, resource, sys, time
start = time.perf_counter()
duckdb.sql(f"SELECT floor(x * 1000) i, floor(y * 1000) j, count(*) n FROM '{sys.argv[1]}' GROUP BY ALL").fetchnumpy()
spent = time.perf_counter() - start
print(json.dumps([spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""

PUBLISH = """
import json, resource, sys, time
import deltahist as dh
dh.count_file, dh.publish, dh.Release
import pyarrow.parquet
domain = dh.Domain((0, 0, 1, 1), (1000, 1000))
near = dh.Neighbourhood(domain, 0.001)
start = time.perf_counter()
counted = dh.count_file(sys.argv[1], domain, x="x", y="y")
middle = time.perf_counter()
dh.publish(counted.counts, near, epsilon=1.0).save(sys.argv[2])
spent = time.perf_counter() - start
print(json.dumps([spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, middle - start]))
"""


def measure(code: str, *arguments: str) -> list[float]:
    """Seconds and peak GiB that a script of its own reports."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print medians and the ratio."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        path, out = str(Path(folder) / "points.parquet"), str(Path(folder) / "release.parquet")
        rng = np.random.default_rng(1)
        columns = {name: rng.normal(0.5, 0.15, POINTS).clip(0, 0.999999) for name in "xy"}
        pq.write_table(pa.table(columns), path)
        pairs = [(measure(PUBLISH, path, out), measure(DUCKDB, path)) for _ in range(ROUNDS)]
    own, other = (statistics.median(p[i][0] for p in pairs) for i in (0, 1))
    print(f"{POINTS:,} points from Parquet, 1000 × 1000 cells, medians of {ROUNDS} rounds")
    print(
        f"count, plan, publish, save: {own:.2f} s (counting {statistics.median(p[0][2] for p in pairs):.2f} s)"
    )
    print(f"DuckDB count:               {other:.2f} s")
    print(f"ratio: {statistics.median(a[0] / b[0] for a, b in pairs):.2f}")
    print(f"peak memory: {max(p[0][1] for p in pairs):.2f} GiB, DuckDB {max(p[1][1] for p in pairs):.2f} GiB")


if __name__ == "__main__":
    main()
