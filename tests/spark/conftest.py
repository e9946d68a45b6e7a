"""One local Spark, and one small cluster with a server of Spark Connect; all stop at the end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pyspark = pytest.importorskip("pyspark")
os.environ["PYSPARK_PYTHON"] = sys.executable
BIN = Path(pyspark.__file__).parent / "bin"

#: Small, of this machine alone, and without pages.
SETTINGS = {
    "spark.driver.memory": "1g", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "3",
}
#: Another catalog, of tables in memory.
OTHER = {
    "": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    ".url": "jdbc:derby:memory:other;create=true", ".driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
}  # fmt: skip


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in (SETTINGS | {f"spark.sql.catalog.other{key}": value for key, value in OTHER.items()}).items():
        builder = builder.config(name, value)
    where = tmp_path_factory.mktemp("warehouse")
    builder = builder.config("spark.driver.extraJavaOptions", f"-Dderby.stream.error.file={where}/derby.log")
    session = builder.config("spark.sql.warehouse.dir", str(where)).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


@pytest.fixture
def make_table(spark):
    """Return a function that makes a table of one Parquet file, which has the order of its rows."""

    def make(name, path, rows):
        pq.write_table(pa.table(rows), path)
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")

    return make


@pytest.fixture(scope="session")
def frame():
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "east": rng.uniform(0, 4, 3000), "north": rng.uniform(0, 2, 3000).astype("f4"),
            "who": rng.choice(["ann", "bob", "eve", "zoë"], 3000), "kind": rng.choice(["bus", "tr\\a'm"], 3000),
            "time": pd.date_range("2026-05-01", periods=3000, freq="37min"),
        }
    )  # fmt: skip


@pytest.fixture
def visits(spark, make_table, tmp_path, frame):
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    decimals = rows["north"].cast(pa.float64()).cast(pa.decimal128(20, 10), safe=False)
    rows = rows.append_column("exact", decimals)
    make_table("visits", tmp_path / "visits.parquet", rows)
    return rows


class Process:
    """A process of Spark's own, in a group of its own; it ends with `kill`."""

    def __init__(self, folder: Path, name: str, command: list, ready: str) -> None:
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"},
            )  # fmt: skip
        # Its words at the start; the process ends first if it cannot.
        wait = f"tail -n +1 -F --pid={self.process.pid} {self.log} | grep -q -m1 '{ready}'"
        started = subprocess.run(["bash", "-c", wait], timeout=300)
        if started.returncode:
            self.kill()
        assert started.returncode == 0, self.log.read_text()[-3000:]

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Cluster:
    """A master with one worker, and a server of Spark Connect whose tasks run there, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder, list[Process]()

    def open(self) -> None:
        folder, port = self.folder, free_port()
        self.master, self.port = f"spark://127.0.0.1:{port}", free_port()
        run, host = [BIN / "spark-class"], ["--host", "127.0.0.1", "--webui-port", 0]
        parts = "org.apache.spark.deploy."
        self.start("master", [*run, parts + "master.Master", *host, "--port", port], "New state: ALIVE")
        given = [*host, "-c", 2, "-m", "2g", "-d", folder / "work", self.master]
        self.worker = self.start("worker", [*run, parts + "worker.Worker", *given], "Successfully registered")
        settings = SETTINGS | {
            "spark.sql.warehouse.dir": folder / "warehouse", "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self.port, "spark.cores.max": 1, "spark.executor.memory": "512m",
            "spark.task.maxFailures": 2,
        }  # fmt: skip
        jar = next((BIN.parent / "jars").glob("spark-connect_*.jar"))
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        command = [BIN / "spark-submit", "--master", self.master, *words, "--class", server, jar]
        self.server = self.start("server", command, "Connect server started")

    def start(self, *given) -> Process:
        self.running.append(Process(self.folder, *given))
        return self.running[-1]

    def executors(self) -> list[psutil.Process]:
        """Return the processes that run tasks, as the worker started them."""
        found = psutil.Process(self.worker.process.pid).children()
        return [each for each in found if each.status() != psutil.STATUS_ZOMBIE]

    def stop(self) -> None:
        for process in reversed(self.running):
            process.kill()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.open()
        yield made
    finally:
        made.stop()
