"""Points of a Parquet file by cells: what deltahist takes beside the engine's own group-by, on DuckDB and on Spark."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import deltahist as dh

POINTS, SIDE, REPEATS = 10_000_000, 1000, 5
#: Another formula than the lattice's, as whoever needs no bit of equality would write it.
BARE = (
    f"SELECT CAST(floor(x * {SIDE}) AS BIGINT) * {SIDE} + CAST(floor(y * {SIDE}) AS BIGINT) AS cell, count(*) AS n "
    "FROM visits GROUP BY 1"
)


def main() -> None:
    from pyspark.sql import SparkSession

    domain, how = dh.Domain((0, 0, 1, 1), (SIDE, SIDE)), {"x": "x", "y": "y", "outside": "clamp"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "visits.parquet")
        rng = np.random.default_rng(1)
        with pq.ParquetWriter(path, pa.schema({"x": "float64", "y": "float64"})) as file:
            for _ in range(10):
                file.write_table(pa.table({name: rng.random(POINTS // 10) for name in "xy"}))
        city = duckdb.connect()
        city.execute("SET threads = 2; SET enable_progress_bar = false")
        city.execute(f"CREATE VIEW visits AS SELECT * FROM '{path}'")
        builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", folder)
        for name, value in {
            "spark.driver.memory": "2g", "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "4",
        }.items():  # fmt: skip
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        spark.read.parquet(str(path)).createOrReplaceTempView("visits")
        engines = {
            "DuckDB": (lambda: city.execute(BARE).to_arrow_table(), city),
            "Spark": (lambda: spark.sql(BARE).toArrow(), spark),
        }
        print(f"{POINTS:,} points from Parquet to {SIDE} × {SIDE} cells, the best of {REPEATS}, seconds (2 threads)")
        for name, (bare, database) in engines.items():
            times: dict[str, list[float]] = {"group-by": [], "count_table": []}
            for _ in range(1 + REPEATS):  # by turns, since Java becomes faster while it runs; the first turn warms up
                for what, run in (
                    ("group-by", bare),
                    ("count_table", lambda: dh.count_table("visits", domain, database=database, **how)),  # noqa: B023
                ):
                    start = time.perf_counter()
                    run()
                    times[what].append(time.perf_counter() - start)
            alone, ours = (min(each[1:]) for each in times.values())
            print(f"{name:8} group-by {alone:6.2f}  count_table {ours:6.2f}  ratio {ours / alone:5.2f}", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
