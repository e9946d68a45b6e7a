"""The ledger: whole files or none, damage is noticed, transactions, one run at a time."""

import multiprocessing
import os
import sqlite3
import threading

import pytest

import deltahist as dh
from deltahist.budgets.ledger import Ledger, differences
from deltahist.budgets.nano import allowed, as_said, charged


def test_what_is_stored_is_there_again(ledger):
    again = Ledger(ledger.path)
    assert again.accounts() == {"city": {"length": 3}}
    assert again.fact("city", "rows") == 17
    assert again.fact("city", "other") is None
    again.store("city", "rows", {"a": [1]})
    assert ledger.fact("city", "rows") == {"a": [1]}
    assert ledger.charges("city") == {}
    assert "city.ledger" in repr(again)


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


def test_nothing_is_left_beside_a_new_ledger(ledger):
    assert [p.name for p in ledger.path.parent.iterdir()] == ["city.ledger"]


def test_a_ledger_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.ledger"
    link = os.link

    def late(source, target):
        monkeypatch.setattr(os, "link", link)
        Ledger(path).account("first", {})
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert list(Ledger(path).accounts()) == ["first"]


def test_a_file_that_is_cut_short_at_any_length_is_refused(ledger, tmp_path):
    whole = ledger.path.read_bytes()
    cut = tmp_path / "cut.ledger"
    for size in [*range(0, 200, 23), *range(200, len(whole), 1777), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(dh.DamagedFile, match=r"cut short|damaged"):
            Ledger(cut)
        assert cut.read_bytes() == whole[:size]
    cut.write_bytes(whole + b"\0" * 4096)
    with pytest.raises(dh.DamagedFile, match="bytes instead of"):
        Ledger(cut)


def test_damage_inside_is_noticed(ledger):
    data = bytearray(ledger.path.read_bytes())
    data[4096:4120] = b"\xff" * 24
    ledger.path.write_bytes(data)
    with pytest.raises(dh.DamagedFile, match=r"damaged|cut short"):
        Ledger(ledger.path)


def test_files_that_are_no_ledger(tmp_path, ledger):
    (tmp_path / "text").write_text("a,b\n1,2\n" * 500)
    with pytest.raises(dh.DamagedFile, match="cannot be used: file is not a database"):
        Ledger(tmp_path / "text")
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE a (b)").connection.close()
    with pytest.raises(dh.DamagedFile, match="something else"):
        Ledger(tmp_path / "other")
    with pytest.raises(dh.InputError, match="is no file"):
        Ledger(tmp_path)
    with pytest.raises(dh.InputError, match="does not exist"):
        Ledger(tmp_path / "no" / "ledger")
    connection = sqlite3.connect(ledger.path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(dh.InputError, match="version 9"):
        Ledger(ledger.path)
    ledger.path.unlink()
    with pytest.raises(dh.InputError, match="is gone"):
        ledger.charges("city")
    assert not ledger.path.exists()


def test_one_run_at_a_time(ledger):
    with ledger.alone():
        with pytest.raises(dh.InputError, match="another process publishes"), Ledger(ledger.path).alone():
            pass
        ledger.store("city", "rows", 1)
    with ledger.alone():
        pass


def _hold(path, ready, done):
    with Ledger(path).alone():
        ready.set()
        done.wait(60)


def test_the_lock_ends_with_its_process(ledger):
    spawn = multiprocessing.get_context("spawn")
    ready, done = spawn.Event(), spawn.Event()
    other = spawn.Process(target=_hold, args=(ledger.path, ready, done))
    other.start()
    assert ready.wait(60)
    with pytest.raises(dh.InputError, match="in use"), ledger.alone():
        pass
    other.kill()
    other.join()
    with ledger.alone():
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


def test_billionths():
    assert charged(epsilon=0.1) == allowed(epsilon=0.1) == 10**8
    assert charged(epsilon=1e-10) == 1
    assert allowed(epsilon=1e-10) == 0
    assert 3 * charged(epsilon=as_said(epsilon=1) / 3) == 10**9 + 2
    for bad in (float("nan"), -1, 1e10, "1", None):
        with pytest.raises(dh.InputError, match="epsilon is"):
            as_said(epsilon=bad)
