"""Charges a second: threads of one process that ask one ledger at once, each answer kept under a key of its own, on
SQLite and PostgreSQL. Sharing durable commits is compared with one commit for each, in turns.

    python -m benchmarks.charges [requests] [postgresql://user@host/database]

Without a URL a server is started for the time of the run, where PostgreSQL is installed.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import deltahist as dh
from benchmarks.ledger import _database, _server

THREADS, ROUNDS = 64, 5


def charges_a_second(where: str | Path, requests: int, threads: int = THREADS) -> float:
    """Answered requests a second; every one is charged, drawn, kept and durable."""
    ledger = dh.Ledger(where)
    name = f"account {time.monotonic_ns()}"
    ledger.open(name, epsilon=requests)

    def ask(number: int) -> str:
        out: str = ledger.answer(name, 1, lambda charge: os.urandom(8).hex(), key=f"{number}", request=number)
        return out

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(ask, range(threads)))  # connections are made
        begun = time.perf_counter()
        answers = list(pool.map(ask, range(threads, requests)))
        seconds = time.perf_counter() - begun
    if len(set(answers)) != len(answers) or ledger.left(name) != 0:
        raise RuntimeError(f"{len(set(answers))} answers, {ledger.left(name)} is left")
    return len(answers) / seconds


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let every change commit by itself."""
    with mock.patch("deltahist.accounts.commits._LONGEST", -1.0):
        yield


def main(requests: int = 5_000, url: str | None = None) -> None:
    """Print the median of a few rounds, for both databases."""
    with _server(url) as server, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
        places: dict[str, str | Path] = {"SQLite": Path(folder, "city.ledger")}
        if server is not None:
            places["PostgreSQL"] = held.enter_context(_database(server))
        for name, where in places.items():
            shared, alone = [], []
            for _ in range(ROUNDS):
                with _alone():
                    alone.append(charges_a_second(where, THREADS + requests // 20))
                shared.append(charges_a_second(where, THREADS + requests))
            print(
                f"{name:<10} {THREADS} threads: {statistics.median(shared):,.0f} charges a second with shared commits "
                f"({min(shared):,.0f} to {max(shared):,.0f}), {statistics.median(alone):,.0f} with one each",
                flush=True,
            )


if __name__ == "__main__":
    said = sys.argv[1:]
    main(*map(int, said[:1]), *said[1:])
