"""The ledger's SQLite file: whole or not at all, what is on the disk and when, the same bytes as ever."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

import deltahist as dh
from deltahist.budgets.ledger import Ledger

V1 = Path(__file__).parent.parent / "fixtures" / "v1"


@pytest.fixture
def where(tmp_path):
    return tmp_path / "city.ledger"


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
