"""One ledger and many clients: requests with keys, retries and duplicates on SQLite and PostgreSQL, and clients that
are killed at random points. What was paid, what was answered and what the ledger keeps must agree to the last one.

    python -m benchmarks.ledger [requests] [kills] [postgresql://user@host/database]

Without a URL a server is started for the time of the run, where PostgreSQL is installed.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import deltahist as dh

PROCESSES, THREADS = 8, 8
#: Of a client that is killed.
_MORTAL_THREADS = 3
ACCOUNT, AMOUNT = "city", Fraction(1, 1000)
#: The accounts pay for this share of the requests, and must refuse the rest.
PAID = Fraction(4, 5)
#: Clients that are made anew, one for each kill, by a process that has loaded all that they need.
_SPAWN = multiprocessing.get_context("forkserver")
_SPAWN.set_forkserver_preload(["deltahist.accounts.databases", "psycopg"])


@dataclass(frozen=True)
class Served:
    """What clients were told, against what the ledger keeps."""

    requests: int
    answered: int
    refused: int
    seconds: float
    faults: tuple[str, ...]

    @property
    def words(self) -> str:
        """A line for people."""
        rate = self.requests / self.seconds
        return f"{self.requests:,} requests in {self.seconds:.0f} s, {rate:,.0f} a second; {self.tally}"

    @property
    def tally(self) -> str:
        """What was answered, and what went wrong."""
        wrong = "; ".join(self.faults) or "no overspend, no lost charge"
        return f"{self.answered:,} answered, {self.refused:,} refused: {wrong}"


# ---------------------------------------------------------------------------------- many clients


def many_clients(
    where: str | Path, requests: int, processes: int = PROCESSES, threads: int = THREADS, seed: int = 1
) -> Served:
    """Let clients ask at the same time; a quarter of all requests is asked by two of them, or twice by one."""
    ledger, questions = dh.Ledger(where), requests * 4 // 5
    ledger.open(ACCOUNT, epsilon=AMOUNT * int(questions * PAID))
    asked = [*range(questions), *random.Random(seed).sample(range(questions), requests - questions)]
    random.Random(seed + 1).shuffle(asked)
    begun, results = time.monotonic(), _SPAWN.SimpleQueue()
    clients = [
        _SPAWN.Process(target=_client, args=(where, asked[k::processes], threads, results)) for k in range(processes)
    ]
    for client in clients:
        client.start()
    told, failed = [], []
    for _ in clients:
        pairs, problem = results.get()
        told += pairs
        failed += [problem] if problem else []
    for client in clients:
        client.join()
    if failed:
        raise RuntimeError(f"{len(failed)} of {processes} clients failed: {failed[0]}")
    seconds = time.monotonic() - begun
    return _agreed(ledger, told, seconds)


def _client(where: str | Path, asked: list[int], threads: int, results: Any) -> None:
    """Threads of one process that share its ledger."""
    try:
        ledger = dh.Ledger(where)
        with ThreadPoolExecutor(threads) as pool:
            told = list(pool.map(lambda question: (question, _ask(ledger, question)), asked))
    except Exception as problem:
        results.put(([], repr(problem)))
    else:
        results.put((told, ""))


def _ask(ledger: dh.Ledger, question: int) -> str | None:
    """The answer to a question, or None if it cannot be paid."""
    try:
        out: str = ledger.answer(
            ACCOUNT, AMOUNT, lambda charge: os.urandom(8).hex(), key=f"question {question}", request=question
        )
    except dh.BudgetExceeded:
        return None
    return out


def _agreed(ledger: dh.Ledger, told: list[tuple[int, str | None]], seconds: float) -> Served:
    """Compare what clients were told with what the ledger keeps."""
    answers: dict[int, set[str]] = {}
    for question, answer in told:
        if answer is not None:
            answers.setdefault(question, set()).add(answer)
    standing, faults = ledger.standing(ACCOUNT), []
    with ledger.transaction() as accounts:
        kept = {question: accounts.find_answer(ACCOUNT, f"question {question}") for question in answers}
        number = sum(1 for _ in accounts.requests(ACCOUNT))
    if standing.spent > standing.limit:
        faults.append(f"OVERSPENT: {standing.spent} of {standing.limit}")
    if standing.spent != number * AMOUNT:
        faults.append(f"LOST: {number:,} answers are kept, and {standing.spent / AMOUNT} were charged")
    uncharged = [question for question, found in kept.items() if found is None]
    if uncharged:
        faults.append(f"UNCHARGED: {len(uncharged):,} answers that were handed out")
    differing = [q for q, found in kept.items() if found is not None and answers[q] != {found[1]}]
    if differing:
        faults.append(f"DIFFERING: {len(differing):,} questions with two answers")
    refused = sum(answer is None for _, answer in told)
    if refused and standing.left >= AMOUNT:
        faults.append(f"REFUSED: {refused:,} requests, although {float(standing.left):g} is left")
    faults += ledger.problems()
    return Served(len(told), len(answers), refused, seconds, tuple(faults))


# ---------------------------------------------------------------------------------- clients that are killed


def killed(where: str | Path, folder: Path, kills: int, seed: int = 1, at_once: int = 2) -> Served:
    """Kill clients at random points, each while it asks, draws, commits or writes down what it was told."""
    ledger, rng = dh.Ledger(where), random.Random(seed)
    ledger.open(ACCOUNT, epsilon=AMOUNT * 5 * kills)
    begun = time.monotonic()
    running = [_mortal(where, folder, number) for number in range(min(at_once, kills))]
    started = len(running)
    while running:
        process, heard = running.pop(0)
        heard.recv()  # it asks now
        # Somewhere in the first requests: the pace is that of the machine as it is.
        for _ in range(rng.randrange(3)):
            heard.recv()
        time.sleep(rng.random() * _pace(folder))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        heard.close()
        if started < kills:
            running.append(_mortal(where, folder, started))
            started += 1
    told = [
        (int(question), answer)
        for file in folder.glob("*.told")
        for question, answer in map(json.loads, file.read_text().split("\n")[:-1])
    ]
    return _agreed(ledger, told, time.monotonic() - begun)


def _mortal(where: str | Path, folder: Path, number: int) -> tuple[Any, Connection]:
    heard, say = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_ask_for_ever, args=(where, folder, number, say))
    process.start()
    say.close()
    return process, heard


def _ask_for_ever(where: str | Path, folder: Path, number: int, say: Connection) -> None:
    """Ask in threads that share commits, write down what was told, and say so.

    Every third question is one that others ask as well.
    """
    ledger = dh.Ledger(where)
    with ThreadPoolExecutor(_MORTAL_THREADS) as pool:
        for thread in range(_MORTAL_THREADS):
            pool.submit(_keep_asking, ledger, folder, number * _MORTAL_THREADS + thread, None if thread else say)


def _keep_asking(ledger: dh.Ledger, folder: Path, number: int, say: Connection | None) -> None:
    rng = random.Random(number)
    with (folder / f"{number}.told").open("a") as told:
        while True:
            begun = time.monotonic()
            if say is not None:
                say.send(number)
            question = rng.randrange(50) if rng.random() < 0.3 else number * 10**6 + rng.randrange(10**6)
            told.write(json.dumps([question, _ask(ledger, question)]) + "\n")
            told.flush()
            (folder / "pace").write_text(f"{time.monotonic() - begun:.6f} ")


def _pace(folder: Path) -> float:
    """Seconds that a request took just now."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return min(0.5, float((folder / "pace").read_text().split()[0]))
    return 0.01


# ---------------------------------------------------------------------------------- the run


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[str | None]:
    """The URL of a server: the one that is given, or of one that runs as long; None if PostgreSQL is not installed."""
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
    """An empty database of its own on a server."""
    import psycopg

    name = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def main(requests: int = 100_000, kills: int = 1_000, url: str | None = None) -> None:
    """Print what came of both, for both databases."""
    with _server(url) as server:
        for name in ("SQLite", "PostgreSQL") if server else ("SQLite",):
            for what in ("clients", "kills"):
                with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
                    where: str | Path = Path(folder, "city.ledger")
                    if name == "PostgreSQL" and server is not None:
                        where = held.enter_context(_database(server))
                    if what == "clients":
                        served = many_clients(where, requests)
                        print(f"{name:<10} {PROCESSES * THREADS} clients: {served.words}", flush=True)
                        continue
                    served = killed(where, Path(folder), kills)
                    print(f"{name:<10} {kills:,} killed in {served.seconds:.0f} s: {served.tally}", flush=True)


if __name__ == "__main__":
    said = sys.argv[1:]
    main(*map(int, said[:2]), *said[2:])
