"""Processes that are killed, and threads and processes at once: nothing is overspent, and no charge is lost."""

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.accounts import ledger as ledgers
from deltahist.accounts.ledger import Ledger

#: Processes that start with everything imported: one server imports it and forks.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([
    "tests.accounts.test_kills", "deltahist.publishers", "deltahist.releases", "psycopg", "pandas", "pyarrow.parquet",
    "pyarrow.pandas_compat", "cryptography.hazmat.primitives.ciphers",
])  # fmt: skip


def _run_together(target, *arguments):
    """Run a process for each of some arguments, and return their exit codes."""
    clients = [SERVER.Process(target=target, args=each) for each in arguments]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    return [client.exitcode for client in clients]


def _publish_on(folder, done):
    """Publish step after step, each for half of what is left, and say so when a step is saved."""
    window = dh.accounts.Window(length=3, epsilon=1, ledger=folder / "a.ledger")
    near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    identity, counts = dh.strategies.Identity(near.domain), np.array([3, 1, 0, 2])
    step = (window.last_step or 0) + 1
    dh.publish(counts, near, identity, 1.0).save(folder / "warm.parquet")
    dh.accounts.Window(length=1, epsilon=1, ledger=folder / "a.ledger", name="warm").charge(0, 1e-9)
    while True:
        done.send(step)
        epsilon = window.charge(step, window.available(step) / 2)
        dh.publish(counts, near, identity, epsilon).save(folder / f"{step}.parquet")
        step += 1


def test_a_kill_at_any_point_never_overspends(tmp_path):
    """Five runs killed at random times: every release that is there was charged, and no window exceeds 1."""
    rng = random.Random(1)
    paid: dict[int, Fraction] = {}
    pace = 0.0
    for _ in range(5):
        heard, done = SERVER.Pipe(duplex=False)
        run = SERVER.Process(target=_publish_on, args=(tmp_path, done))
        run.start()
        done.close()
        heard.recv()
        for _ in range(rng.randrange(4)):
            start = time.perf_counter()
            heard.recv()
            pace = time.perf_counter() - start
        time.sleep(rng.random() * pace)  # somewhere in the next step, however fast the machine is
        run.kill()
        run.join()
        assert run.exitcode == -signal.SIGKILL
        heard.close()
        window = dh.accounts.Window(length=3, epsilon=1, ledger=tmp_path / "a.ledger")
        for file in tmp_path.glob("[0-9]*.parquet"):
            release = dh.load(file)
            paid[int(file.stem)] = release.epsilon
        # What the ledger still holds covers every release of the last window.
        for step, nano in window.ledger.list_charges(window.name).items():
            assert Fraction(nano, 10**9) >= paid.get(step, 0)
        assert max(paid, default=0) <= (window.last_step or 0)
    assert len(paid) > 2
    for first in range(1, max(paid) + 1):
        assert sum(paid.get(s, 0) for s in range(first, first + 3)) <= 1


def _charge_on(where, done):
    """Charge with keys until killed, and write down each charge once it is made."""
    ledger, number = Ledger(where), 0
    with open(done, "a", buffering=1) as file:
        while True:
            key = f"{os.getpid()} {number}"
            ledger.charge("city", 1e-3, key=key)
            file.write(key + "\n")
            number += 1


def test_charges_of_killed_processes_are_neither_lost_nor_made_twice(where, tmp_path):
    """Each charge that was confirmed is in the ledger, and each key is charged once."""
    Ledger(where).open("city", epsilon=1)
    done, rng = tmp_path / "done", random.Random(2)
    for _ in range(6):
        clients = [SERVER.Process(target=_charge_on, args=(where, done)) for _ in range(2)]
        for client in clients:
            client.start()
        time.sleep(0.2 + 0.4 * rng.random())
        for client in clients:
            client.kill()
        for client in clients:
            client.join()
    ledger = Ledger(where)
    keys, spent = done.read_text().split("\n")[:-1], ledger.spent("city")
    assert ledger.find_problems() == []
    assert keys
    assert len(keys) <= spent * 1000 <= len(keys) + 8
    for key in keys:
        ledger.charge("city", 1e-3, key=key)
    assert ledger.spent("city") == spent


def test_a_process_killed_between_charge_and_commit_leaves_no_trace(where):
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    assert _run_together(_die_within, (where,)) == [9]
    assert ledger.spent("city") == 0
    assert ledger.charge("city", 0.5, key="k").amount == Fraction(1, 2)
    assert ledger.find_problems() == []


def _die_within(where):
    charge = ledgers.charge_account

    def dying(*what, **how):
        charge(*what, **how)
        os._exit(9)

    ledgers.charge_account = dying
    Ledger(where).charge("city", 0.5, key="k")


def _fill(where, together, account, pay):
    """Charge each step of a window, or an account, until less is left, while others look at the same sums."""
    plain = ledgers.list_limits

    def slowly(*asked):
        found = plain(*asked)
        time.sleep(0.02 if account is None else 0.002)
        return found

    ledgers.list_limits = slowly
    for step in range(6 if account is None else 1):
        together.wait(30)
        with contextlib.suppress(dh.BudgetExceeded):
            while True:
                if account is None:
                    dh.accounts.Window(length=3, epsilon=1, limits=[(5, 1.5)], ledger=where).charge(step, pay)
                else:
                    Ledger(where).charge(account, pay)


def test_processes_at_once_never_overspend_a_window(where):
    """No constraint of a table knows windows: only one change at a time keeps them."""
    window = dh.accounts.Window(length=3, epsilon=1, limits=[(5, 1.5)], ledger=where)
    window.charge(0, 1e-9)
    together = SERVER.Barrier(3)
    exits = _run_together(_fill, *((where, together, None, amount) for amount in (0.3, 0.35, 0.4)))
    spent = window.ledger.list_charges(window.name)
    for length, limit in window.rule.spans:
        sums = [sum(spent.get(step, 0) for step in range(end - length + 1, end + 1)) for end in range(6)]
        assert max(sums) <= limit
        assert max(sums) > limit - 0.3e9
    assert window.ledger.find_problems() == []
    assert exits == [0, 0, 0]


def test_accounts_at_once_never_overspend_their_population(where):
    """Each may spend 1, and all of them 1.5: no constraint of a table knows it."""
    ledger, names, together = Ledger(where), ("a", "b", "c"), SERVER.Barrier(3)
    for name in names:
        ledger.open(name, epsilon=1, population_limit=1.5)
    assert _run_together(_fill, *((where, together, name, 0.07) for name in names)) == [0, 0, 0]
    assert sum(ledger.spent(name) for name in names) == Fraction(147, 100)
    assert ledger.find_problems() == []


@pytest.mark.parametrize("charged", ["in memory", "as a window", "by name"])
def test_two_threads_never_spend_what_one_has_seen(where, monkeypatch, charged):
    """Each looks at what is left and then waits for the other to look as well: only one may get it."""
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    window = dh.accounts.Window(length=3, epsilon=1, ledger=None if charged == "in memory" else ledger)
    window.charge(0, 1e-9)
    both, plain, won = threading.Barrier(2), ledgers.find_account, []

    def look(*asked):
        found = plain(*asked)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.1)  # who holds the account alone waits in vain
        return found

    def spend():
        with contextlib.suppress(dh.BudgetExceeded):
            won.append((ledger.charge("city", 0.8) if charged == "by name" else window.charge(1, 0.8)).amount)

    monkeypatch.setattr(ledgers, "find_account", look)
    monkeypatch.setattr(ledgers, "open_account", lambda *asked: look(*asked[:2]))
    threads = [threading.Thread(target=spend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = ledger.spent("city") if charged == "by name" else window.spent(1) - Fraction(1, 10**9)
    assert won == [Fraction(4, 5)] == [spent]
