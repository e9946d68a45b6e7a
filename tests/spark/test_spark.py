"""Counting on Spark: places bit for bit as NumPy has them, and counts as `count` gives them."""

import os
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from points import DOMAINS, nasty_coordinates
from visits import DOMAIN, counts_of

import deltahist as dh
from deltahist.counting.sources import Spark
from deltahist.counting.sql import locate_rows, write_placing
from deltahist.preprocessing import Clock

pytest.importorskip("pyspark")
os.environ["PYSPARK_PYTHON"] = sys.executable
#: The sockets to Java are closed when Java is.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{each}")
    for each in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]
HOW = {"x": "east", "y": "north", "table": "visits"}
#: Small, of this machine alone, and without pages.
SETTINGS = {
    "spark.driver.memory": "1g", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "3",
}  # fmt: skip


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


@pytest.fixture
def fill(spark, tmp_path):
    """Puts rows into a table of one Parquet file."""

    def put(name, rows):
        pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), tmp_path / f"{name}.parquet")
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{tmp_path}/{name}.parquet'")

    return put


@pytest.fixture
def frame(fill):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({
        "east": rng.uniform(0, 4, 3000), "north": rng.uniform(0, 2, 3000), "speed": rng.integers(0, 9, 3000),
        "who": rng.choice(["ann", "bob", "zoë"], 3000), "kind": rng.choice(["bus", "tr'a\\m"], 3000),
        "time": pd.date_range("2026-05-01", periods=3000, freq="2min"),
    })  # fmt: skip
    fill("visits", pa.Table.from_pandas(frame, preserve_index=False))
    return frame


@pytest.mark.parametrize("domain", DOMAINS[:3] + DOMAINS[6:7], ids=lambda domain: str(domain.bounds))
def test_places_are_those_of_numpy(spark, fill, domain):
    rng = np.random.default_rng(5)
    columns = [nasty_coordinates(domain, axis, 20_000, rng) for axis in range(domain.ndim)]
    chosen = rng.random(20_000) < 0.9
    fill("points", {"n": np.arange(20_000), "chosen": chosen, **dict(zip("xy", columns, strict=False))})
    with Spark.open(spark) as engine:
        statement = write_placing("SELECT *, n AS u FROM points", domain, users=True)
        found = pa.Table.from_batches(engine.batches(statement)).sort_by("u")["place"].to_numpy()
    assert (found == locate_rows(columns, domain, chosen, None, None)).all()


def test_counts_are_those_of_arrays(spark, frame):
    assert (dh.count_file(spark, DOMAIN, **HOW).counts.array == counts_of(frame)).all()
    for where, chosen in {
        "kind = 'tr''a\\m' and speed > 3": (frame["kind"] != "bus") & (frame["speed"] > 3),
        "time < '2026-05-02'": frame["time"] < "2026-05-02",
    }.items():
        found = dh.count_file(spark, DOMAIN, **HOW, where=where)
        assert (found.counts.array == counts_of(frame[chosen])).all()
        assert (found.rows, found.unmatched) == (3000, (~chosen).sum())
    found = dh.count_file(spark, DOMAIN, **HOW, user="who", max_per_user=7)
    assert (found.kept, found.users) == (21, 3)
    assert (found.counts.array <= counts_of(frame)).all()
    steps = dh.count_file(spark, DOMAIN, clock=Clock.of("2026-05-02", "1d"), steps=2, time="time", **HOW)
    day = (frame["time"] - pd.Timestamp("2026-05-02")).dt.days
    assert all((steps.counts_of(step).array == counts_of(frame[day == step])).all() for step in range(2))
    for wrong in ({"table": "nowhere"}, {"x": "who"}, {"y": "up"}, {"where": "north > 1"}):
        with pytest.raises(dh.InputError):
            dh.count_file(spark, DOMAIN, **{**HOW, **wrong})


def test_a_user_has_one_spelling(spark, fill):
    """Spark cannot tell that an accent of its own and a letter with an accent are the same."""
    fill("visits", {"east": [1.0] * 4, "north": [1.0] * 4, "who": ["José", "José\x0b", " José", "Jose\u0301"]})
    with pytest.raises(dh.InputError, match="1 of 4"):
        dh.count_file(spark, DOMAIN, **HOW, user="who", max_per_user=1)
    found = dh.count_file(spark, DOMAIN, **HOW, user="who", max_per_user=1, drop_bad_rows=True)
    assert (found.kept, found.users) == (1, 1)
