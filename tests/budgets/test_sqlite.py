"""The ledger's SQLite file: forks, what is on the disk and when, the same bytes as ever."""

import json
import multiprocessing
import os
import pickle
import shutil
import sqlite3
from pathlib import Path

import pytest

import deltahist as dh
from deltahist.budgets.ledger import Ledger
from deltahist.budgets.sqlite import _engine

V1 = Path(__file__).parent.parent / "fixtures" / "v1"


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
        assert _engine.cache_info().currsize == 0  # its parent's engines are not used
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
    monkeypatch.setattr("deltahist.budgets.sqlite._PATIENCE", 0.05)

    def refused():
        with pytest.raises(dh.InputError, match="locked"):
            ledger.store("city", "rows", 1)

    with ledger.transaction() as change:
        change.store("city", "rows", 2)
        child = _fork(refused)
        child.join(60)
        assert child.exitcode == 0
        change.charge("city", 1, 5)
    assert (ledger.fact("city", "rows"), ledger.charges("city")) == (2, {1: 5})


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not listed here")
def test_no_connection_outlives_its_work(ledger):
    ledger.store("city", "rows", 1)
    with pytest.raises(ZeroDivisionError), ledger.transaction():
        1 / 0  # noqa: B018
    with ledger.alone():
        ledger.charges("city")
    held = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert not [link for link in held if ledger.path.name in link.readlink().name]


def test_what_is_charged_is_on_the_disk(ledger):
    with ledger.transaction() as change:
        said = {
            p: change._connection.exec_driver_sql(f"PRAGMA {p}").scalar()
            for p in ("synchronous", "journal_mode")
        }
    assert said == {"synchronous": 3, "journal_mode": "delete"}


def test_who_reads_does_not_wait_and_sees_what_is_committed(ledger):
    with ledger.transaction() as change:
        change.store("city", "rows", 18)
        assert ledger.fact("city", "rows") == 17
    assert ledger.fact("city", "rows") == 18


def test_a_ledger_goes_to_other_processes_by_its_path(ledger):
    assert pickle.loads(pickle.dumps(ledger)).fact("city", "rows") == 17


@pytest.mark.parametrize("name", ["50% of #1?.ledger", "a b.ledger", "Zürich.ledger"])
def test_any_name_is_fine(tmp_path, name):
    ledger = Ledger(tmp_path / name)
    ledger.account("city", {})
    with ledger.alone():
        assert {p.name.removesuffix("-journal") for p in tmp_path.iterdir()} == {name, f"{name}-lock"}
    assert {p.name: p.stat().st_size > 0 for p in tmp_path.iterdir()} == {name: True, f"{name}-lock": False}


# ---------------------------------------------------------------------------------- ledgers of before

#: What wrote a ledger when its statements were SQL.
CHARGE = "INSERT INTO charge VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET nano = nano + excluded.nano"
FORGET = "DELETE FROM charge WHERE account = ? AND step <= ?"
STORE = "INSERT OR REPLACE INTO fact VALUES (?, ?, ?)"
TABLES = ("account", "charge", "fact")


@pytest.mark.parametrize(("source", "name"), [("window", "city"), ("stream", "stream"), ("new", "city")])
def test_a_ledger_gets_the_bytes_that_it_always_got(tmp_path, ledger, source, name):
    old, new = tmp_path / "old", tmp_path / "new"
    for copy in (old, new):
        shutil.copy(ledger.path if source == "new" else V1 / f"{source}.ledger", copy)
    connection = sqlite3.connect(old, isolation_level=None)
    for step, nano in ((2, 5), (2, 7), (3, 10), (1 << 61, 10**18)):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(CHARGE, (name, step, nano))
        connection.execute(FORGET, (name, step - 2))
        connection.execute("COMMIT")
        connection.execute(STORE, (name, "rows", json.dumps(["é", step])))
        with Ledger(new).transaction() as change:
            change.charge(name, step, nano)
            change.forget(name, step - 2)
        Ledger(new).store(name, "rows", ["é", step])
    connection.close()
    assert new.read_bytes() == old.read_bytes()
    assert Ledger(old).charges(name) == {1 << 61: 10**18}


def _schema(path):
    connection = sqlite3.connect(path)
    asked = {
        "application_id": "PRAGMA application_id",
        "user_version": "PRAGMA user_version",
        "encoding": "PRAGMA encoding",
        "journal": "PRAGMA journal_mode",
        "page": "PRAGMA page_size",
        "names": "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY name",
        "rowids": "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' ORDER BY name",
        "columns": "SELECT t.name, c.* FROM sqlite_schema t, pragma_table_xinfo(t.name) c",
        "indices": "SELECT t.name, i.name, i.'unique', i.origin FROM sqlite_schema t, pragma_index_list(t.name) i",
        # A reference to a table without a column means its primary key.
        "references": """SELECT t.name, f.'table', f.'from', ifnull(f.'to', 'name'), f.on_update, f.on_delete
                         FROM sqlite_schema t, pragma_foreign_key_list(t.name) f""",
    }
    found = {what: connection.execute(question).fetchall() for what, question in asked.items()}
    connection.close()
    return found


def test_a_new_ledger_has_the_schema_of_version_1(ledger):
    schema = _schema(ledger.path)
    assert [row[1] for row in schema["rowids"] if row[0] in TABLES] == [1, 1, 1]
    assert schema == _schema(V1 / "window.ledger") == _schema(V1 / "stream.ledger")
