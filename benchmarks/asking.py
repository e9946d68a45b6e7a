"""Queries per second over HTTP: `deltahist serve --private` with data and ledger in PostgreSQL, or in files.

There are as many clients as a step accepts queries, and they send queries without pause. Each answer is charged, drawn,
stored and durable. A query that fails had too small a share of the step.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import numpy as np
import psutil
import psycopg

from benchmarks.ledger import _database, _server
from deltahist.personal import People
from deltahist.personal.service import make_key

PEOPLE, RECORDS = 1_000, 10_000
#: Seconds per step, and queries per step.
SETTINGS = ((10.0, 16), (10.0, 100), (10.0, 200), (10.0, 300), (2.0, 40))
ROUNDS = 2
QUESTION = {"steps": [{"where": "kind = 'bus' and hour = 8"}], "answer": {"kind": "count", "epsilon": 0.001}}


def make_city(database: str, ledger: str) -> None:
    """Register users and insert their records."""
    rng = np.random.default_rng(1)
    kinds = rng.choice(["bus", "tram", "rail", "foot"], RECORDS)
    rows = zip(rng.integers(0, PEOPLE, RECORDS), kinds, rng.integers(0, 24, RECORDS), strict=True)
    values = ", ".join(f"({who}, '{kind}', {hour})" for who, kind, hour in rows)
    with (psycopg if "://" in database else duckdb).connect(database) as connection:  # type: ignore[attr-defined]
        connection.execute("CREATE TABLE trip (who INTEGER, kind TEXT, hour INTEGER)")
        connection.execute(f"INSERT INTO trip VALUES {values}")
    people = People(database, "trip", owner="who", ledger=ledger, epsilon=1_000_000)
    people.enrol()
    people.database.close()


@contextlib.contextmanager
def serving(folder: Path, database: str, ledger: str, step: float, at_once: int) -> Iterator[tuple[str, str, int]]:
    """Run the service; yield its address, a key and its process ID."""
    key, hashed = make_key()
    file = folder / "night.toml"
    file.touch(0o600)
    file.write_text(
        f'database = "{database}"\nledger = "{ledger}"\nport = 8923\nstep = {step}\nmax_waiting = {at_once}\n'
        '[accounts.people]\ntable = "trip"\nowner = "who"\n'
        f'[clients.ann]\nkeys = ["{hashed}"]\naccounts = ["people"]\nper_minute = 1000000\n'
    )
    line = [sys.executable, "-m", "deltahist", "serve", "--private", str(file)]
    with open(folder / "log", "w") as log, subprocess.Popen(line, stderr=log) as process:
        try:
            while "running on" not in (folder / "log").read_text():
                time.sleep(0.05)
            yield "http://127.0.0.1:8923/ask", key, process.pid
        finally:
            process.terminate()


def ask(address: str, key: str, number: int) -> list[tuple[int, float]]:
    """Send new queries one after another, and return their statuses and seconds."""
    where, told = urlsplit(address), []
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
    for at in range(ROUNDS):
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": f"{time.time_ns()} {number} {at}"}
        begun = time.perf_counter()
        connection.request("POST", where.path, json.dumps(QUESTION), headers)
        with connection.getresponse() as answer:
            answer.read()
        told.append((answer.status, time.perf_counter() - begun))
    connection.close()
    return told


def main() -> None:
    """Print the results of each setting, for both kinds of database."""
    with _server(None) as server, tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as held:
        folder = Path(name)
        places = {"files": (f"{folder}/city.duckdb", f"{folder}/city.ledger")}
        if server is not None:
            places["PostgreSQL"] = (held.enter_context(_database(server)), held.enter_context(_database(server)))
        for what, (database, ledger) in places.items():
            make_city(database, ledger)
            for step, at_once in SETTINGS:
                with serving(folder, database, ledger, step, at_once) as (address, key, process):
                    ask(address, key, -1)
                    before, begun = psutil.Process(process).cpu_times(), time.perf_counter()
                    with ThreadPoolExecutor(at_once) as pool:
                        each = list(pool.map(lambda n, a=address, k=key: ask(a, k, n), range(at_once)))
                    seconds, after = time.perf_counter() - begun, psutil.Process(process).cpu_times()
                told = [one for several in each for one in several]
                kinds = Counter(status for status, _ in told)
                late = [took - step for status, took in told if status != 503]
                work = 1_000 * (after.user + after.system - before.user - before.system) / len(told)
                print(
                    f"{what:<10} step {step:g} s, {at_once:3} in it ({800 * step / at_once:.0f} ms each): "
                    f"{kinds[200] / seconds:.1f} answers a second, {kinds[500]} broke off, {kinds[503]} put off; "
                    f"{work:.0f} ms of processor each; beyond the step {1_000 * statistics.median(late):.0f} ms, at "
                    f"most {1_000 * max(late):.0f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()
