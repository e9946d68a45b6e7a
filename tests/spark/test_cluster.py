"""Spark on a master and a worker: through Spark Connect, as the driver, and when its processes are killed."""

import os
import subprocess
import sys
import threading

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltahist.counting.arrays import UserBound
from deltahist.counting.engines import unbound
from deltahist.counting.opening import open_engine

import deltahist as dh
from deltahist.cli import main

#: The sockets to Java are closed when Java is.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{each}")
    for each in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]
DOMAIN = dh.Domain((0, 0, 4, 2), (4, 2))
HOW = {"x": "east", "y": "north"}


def kill_executors(cluster, told):
    """Kill what runs tasks, and the Python in it, once a task says that it is in the midst of its records."""
    with told.open() as pipe:  # until a task opens it, too
        assert pipe.read() == "reading"
    for executor in cluster.executors():
        for each in [*executor.children(recursive=True), executor]:
            each.kill()
        psutil.wait_procs([executor], timeout=30)


@pytest.mark.parametrize("losses", [1, 2])
def test_a_lost_executor_costs_time_or_ends_the_count(cluster, tmp_path, frame, losses, monkeypatch, capfd):
    """Of a task two may fail: after one loss the counts are the same, after two nothing is charged or written."""
    told, left = tmp_path / "told", tmp_path / "left"
    os.mkfifo(told)
    left.mkdir()
    for number in range(losses):
        (left / str(number)).touch()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "visits.parquet")
    session, pipe, tokens = open_engine(f"sc://127.0.0.1:{cluster.port}")._session, str(told), str(left)

    def read_slowly(batches):
        import os
        import signal

        for batch in batches:
            for name in os.listdir(tokens):
                os.unlink(os.path.join(tokens, name))
                with open(pipe, "w") as told:
                    told.write("reading")
                signal.pause()  # until it is killed
            yield batch

    rows = session.read.parquet(str(tmp_path / "visits.parquet"))
    rows.mapInArrow(read_slowly, rows.schema).createOrReplaceTempView("slow")
    killer = threading.Thread(target=lambda: [kill_executors(cluster, told) for _ in range(losses)], daemon=True)
    killer.start()
    if losses == 1:
        points = frame[["east", "north"]].to_numpy(np.float64)
        assert (dh.count_table("slow", DOMAIN, database=session, **HOW).counts == dh.count(points, DOMAIN)).all()
    else:
        monkeypatch.setattr("deltahist.counting.databases.open_engine", lambda where: open_engine(session))
        out, ledger = tmp_path / "out.parquet", tmp_path / "city.ledger"
        bounds = ["--bounds", "0,0,4,2", "--cell", "1", "--delta", "1", "--epsilon", "1"]
        account = ["--ledger", str(ledger), "--account", "city", "--account-limit", "5"]
        words = ["publish", "sc://here", "--table", "slow", "--x", "east", "--y", "north", *bounds, *account]
        assert main([*words, "--out", str(out)]) == 2
        assert "did not read all records" in capfd.readouterr().err
        assert not out.exists()
        assert not ledger.exists()
    killer.join(30)
    assert not killer.is_alive()


DRIVER = """
import sys

import deltahist as dh
from deltahist.counting.opening import open_engine

master, path = sys.argv[1:]
engine = open_engine(master)
engine._session.sql(f"CREATE TABLE visits USING parquet LOCATION '{path}'")
domain = dh.Domain((580000, 4500000, 600000, 4520000), (20, 20), crs="EPSG:32618")
how = {"x": "lon", "y": "lat", "crs": "EPSG:4326", "outside": "clamp"}
found = dh.count_table("visits", domain, database=engine._session, **how, user="who", max_per_user=2, key=bytes(32))
assert (found.rows, found.counts.sum()) == (300, 6)
engine.close()
"""


def test_the_own_driver_leaves_no_value_and_no_key_in_any_log(cluster, tmp_path):
    """Whatever the settings of the machine are: no event log is written, no page is open, and logs hold no record."""
    names = ["Xanthippe7", "Yolanda8", "Zenobia9"]
    rng = np.random.default_rng(1)
    rows = {"lon": rng.uniform(-74, -73.9, 300), "lat": rng.uniform(40.7, 40.8, 300), "who": names * 100}
    pq.write_table(pa.table(rows), tmp_path / "visits.parquet")
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir file://{events}\nspark.ui.enabled true\n"
        f"spark.cores.max 1\nspark.executor.memory 512m\nspark.sql.warehouse.dir {tmp_path}/warehouse\n"
    )
    settings = {"SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": f"{tmp_path}/local"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, cluster.master, str(tmp_path / "visits.parquet")], cwd=tmp_path,
        env=os.environ | settings, capture_output=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert not list(events.iterdir())
    secret = UserBound(2, bytes(32)).secret
    private = [*names, secret, *(repr(float(value)) for value in [*rows["lon"][:50], *rows["lat"][:50]])]
    logs = [each for each in cluster.folder.rglob("*") if each.is_file() and each.suffix != ".jar"]
    assert {"stderr", "master.log", "worker.log"} <= {each.name for each in logs}
    told = done.stdout + done.stderr + b"".join(each.read_bytes() for each in logs)
    assert [each for each in private if each.encode() in told] == []
    left = [each for each in (tmp_path / "local").rglob("*") if each.is_file()]
    assert [each for each in left if secret.encode() in each.read_bytes()] == []


def test_counts_come_through_spark_connect_and_a_server_that_goes_away_is_an_error(cluster, tmp_path, frame):
    address = f"sc://127.0.0.1:{cluster.port}"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "visits.parquet")
    engine = open_engine(address)
    engine._session.sql(f"CREATE TABLE visits USING parquet LOCATION '{tmp_path}/visits.parquet'").collect()
    points = frame[["east", "north"]].to_numpy(np.float64)
    assert (dh.count_table("visits", DOMAIN, database=address, **HOW).counts == dh.count(points, DOMAIN)).all()
    kept = dh.count_table("visits", DOMAIN, database=address, **HOW, user="who", max_per_user=30).counts
    assert kept.sum() == 120
    with engine.snapshot() as look:
        cluster.server.kill()
        with pytest.raises(dh.InputError, match="did not read all records"):
            look.fetch(unbound("visits", {"east": "float64"}))
    with pytest.raises(dh.InputError, match="does not answer: is Spark there"):
        open_engine(address + "/;token=hidden")
    for hidden in ("sc://me:hidden@127.0.0.1:1", "sc://127.0.0.1:1;token=hidden"):
        with pytest.raises(dh.InputError, match=r"the database 'sc://127\.0\.0\.1:1' does not answer"):
            open_engine(hidden)
