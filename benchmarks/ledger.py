"""Durable charges per second: a ledger with one thread and with several, compared with a bare loop of sqlite3.

    python -m benchmarks.ledger [charges] [threads] [folder]

The bare loop runs the same two statements in the same durable transaction, in the ledger's journal mode (PERSIST) and
in SQLite's default (DELETE). PostgreSQL is skipped where no server can be started.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltahist as dh


def bare(path: Path, charges: int, mode: str) -> float:
    """Return charges per second of sqlite3 alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("CREATE TABLE account (name TEXT PRIMARY KEY, most INTEGER, spent INTEGER)")
    connection.execute("CREATE TABLE charge (id INTEGER PRIMARY KEY, account TEXT, nano INTEGER)")
    connection.execute("INSERT INTO account VALUES ('city', 1000000000, 0)")
    begun = time.perf_counter()
    for _ in range(charges):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE account SET spent = spent + 1 WHERE name = 'city' AND spent + 1 <= most")
        connection.execute("INSERT INTO charge (account, nano) VALUES ('city', 1)")
        connection.execute("COMMIT")
    return charges / (time.perf_counter() - begun)


def charged(where: str | Path, charges: int, threads: int = 1) -> float:
    """Return charges per second of a ledger."""
    ledger = dh.Ledger(where)
    ledger.open("city", epsilon=1)
    begun = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: ledger.charge("city", 1e-9), range(charges)))
    took = time.perf_counter() - begun
    assert ledger.spent("city") * 10**9 == charges
    return charges / took


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[str | None]:
    """Return the URL of the given server, or of one started for this run; None if PostgreSQL is not installed."""
    if url is None:
        with contextlib.suppress(ImportError):
            from tests import postgres

            if postgres._binaries() is not None:
                state = postgres._start()
                try:
                    yield state["url"] + "/postgres"
                finally:
                    postgres._control(Path(state["folder"]), "stop", "-m", "immediate")
                    shutil.rmtree(state["folder"], ignore_errors=True)
                return
    yield url


@contextlib.contextmanager
def _database(url: str) -> Iterator[str]:
    """Create an empty database on a server."""
    import psycopg

    name = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def main(charges: int = 1_000, threads: int = 16, folder: str | None = None) -> None:
    """Print the figures. Target: 500 per second with one thread on SQLite."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for mode in ("DELETE", "PERSIST"):
            print(f"sqlite3 alone, {mode:<7} {bare(Path(name, mode), charges, mode):8,.0f} a second", flush=True)
        for number in (1, threads):
            found = charged(Path(name, f"{number}.ledger"), charges, number)
            print(f"ledger in a file, {number:>2} threads {found:8,.0f} a second", flush=True)
    with _server(None) as server, contextlib.ExitStack() as held:
        if server is not None:
            found = charged(held.enter_context(_database(server)), charges)
            print(f"ledger in PostgreSQL, one thread {found:8,.0f} a second")


if __name__ == "__main__":
    said = sys.argv[1:]
    main(*map(int, said[:2]), *said[2:])
