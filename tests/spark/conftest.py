"""One local Spark for all tests of this folder, and one server of Spark Connect; both stop at the end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

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
    where = tmp_path_factory.mktemp("warehouse")
    session = builder.config("spark.sql.warehouse.dir", str(where)).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


class Server:
    """A server of Spark Connect in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        settings = SETTINGS | {
            "spark.sql.warehouse.dir": folder / "warehouse", "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self.port,
        }  # fmt: skip
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        jar = next((submit.parent.parent / "jars").glob("spark-connect_*.jar"))
        given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [submit, "--master", "local[2]", *given, "--class",
                   "org.apache.spark.sql.connect.service.SparkConnectServer", jar]  # fmt: skip
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip
        # Its last words at the start; the process ends first if it cannot.
        wait = f"tail -n +1 -F --pid={self.process.pid} {self.log} | grep -q -m1 'Connect server started'"
        assert subprocess.run(["bash", "-c", wait], timeout=120).returncode == 0, self.log.read_text()[-3000:]

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("connect"))
    yield server
    server.kill()
