"""The ledger, in every database: what is stored, transactions, one run at a time, forks."""

import multiprocessing
import os
import pickle
import threading

import pytest

import deltahist as dh
from deltahist.budgets import databases
from deltahist.budgets.ledger import Ledger, differences
from deltahist.budgets.rules import ceil_nano, floor_nano, read_amount
from tests.budgets.processes import SERVER


def test_what_is_stored_is_there_again(ledger, where):
    again = Ledger(where)
    assert again.accounts() == {"city": {"length": 3}}
    assert again.fact("city", "rows") == 17
    assert again.fact("city", "other") is None
    again.store("city", "rows", {"a": [1]})
    assert ledger.fact("city", "rows") == {"a": [1]}
    assert ledger.charges("city") == {}
    assert repr(again) == f"Ledger({ledger.place!r})"


def test_an_account_keeps_its_rule(ledger):
    ledger.account("city", {"length": 3})
    with pytest.raises(dh.InputError, match="length was 3, is 4"):
        ledger.account("city", {"length": 4})
    with pytest.raises(dh.InputError, match="about was null"):
        ledger.account("city", {"length": 3, "about": {"x": 1}})
    assert (
        differences({"a": {"b": 1, "c_nano": 5}}, {"a": {"b": 2, "c_nano": 10**9}})
        == "a.b was 1, is 2, a.c was 5e-09, is 1"
    )


def test_a_transaction_is_undone_by_an_error(ledger):
    def half_way():
        with ledger.transaction() as change:
            change.charge("city", 1, 5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_way()
    assert ledger.charges("city") == {}


def test_one_run_at_a_time(ledger, where):
    with ledger.exclusive():
        with pytest.raises(dh.InputError, match="another process publishes"), Ledger(where).exclusive():
            pass
        ledger.store("city", "rows", 1)
    with ledger.exclusive():
        pass


def _hold(path, ready, done):
    with Ledger(path).exclusive():
        ready.set()
        done.wait(60)


def test_the_lock_ends_with_its_process(ledger, where):
    ready, done = SERVER.Event(), SERVER.Event()
    other = SERVER.Process(target=_hold, args=(where, ready, done))
    other.start()
    assert ready.wait(60)
    with pytest.raises(dh.InputError, match="in use"), ledger.exclusive():
        pass
    other.kill()
    other.join()
    with ledger.exclusive():
        pass


def test_threads_take_turns(ledger):
    def add():
        for _ in range(20):
            with ledger.transaction() as change:
                change.store("city", "rows", change.fact("city", "rows") + 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.fact("city", "rows") == 17 + 80


def forking(test):
    """Python warns that threads are not there after a fork: these tests are about that."""
    test = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")(test)



def _fork(work):
    """A child process with all that its parent has; it fails if the work does."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child



@forking
def test_forks_take_turns(ledger):
    def add_in_child():
        assert not databases._ENGINES  # its parent's connections are not used
        add()

    def add():
        for _ in range(10):
            with ledger.transaction() as change:
                change.store("city", "rows", change.fact("city", "rows") + 1)

    children = [_fork(add_in_child) for _ in range(3)]
    add()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert ledger.fact("city", "rows") == 17 + 40



@forking
def test_a_fork_within_a_transaction_has_no_part_in_it(ledger, monkeypatch):
    monkeypatch.setattr("deltahist.budgets.accounts.PATIENCE", 0.05)

    def refused():
        with pytest.raises(dh.InputError, match="lock"):
            ledger.store("city", "rows", 1)

    with ledger.transaction() as change:
        change.store("city", "rows", 2)
        child = _fork(refused)
        child.join(60)
        assert child.exitcode == 0
        change.charge("city", 1, 5)
    assert (ledger.fact("city", "rows"), ledger.charges("city")) == (2, {1: 5})



def test_who_reads_does_not_wait_and_sees_what_is_committed(ledger):
    with ledger.transaction() as change:
        change.store("city", "rows", 18)
        assert ledger.fact("city", "rows") == 17
    assert ledger.fact("city", "rows") == 18



def test_a_ledger_goes_to_other_processes_by_its_path(ledger):
    assert pickle.loads(pickle.dumps(ledger)).fact("city", "rows") == 17


def test_billionths():
    assert ceil_nano(epsilon=0.1) == floor_nano(epsilon=0.1) == 10**8
    assert ceil_nano(epsilon=1e-10) == 1
    assert floor_nano(epsilon=1e-10) == 0
    assert 3 * ceil_nano(epsilon=read_amount(epsilon=1) / 3) == 10**9 + 2
    for bad in (float("nan"), -1, 1e10, "1", None):
        with pytest.raises(dh.InputError, match="epsilon is"):
            read_amount(epsilon=bad)
