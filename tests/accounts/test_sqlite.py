"""The ledger's SQLite file: whole or not at all, what is on the disk and when, the same bytes as ever."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import deltahist as dh
from deltahist.accounts import databases
from deltahist.accounts.ledger import Ledger


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
    with ledger.exclusive():
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


def _wal(path):
    """Another program's connection, which puts the ledger into WAL mode."""
    other = sqlite3.connect(path, isolation_level=None)
    assert other.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    return other


def _killed_while_charging(path, amounts):
    """Charge as a program would that does not look at the mode, and be killed."""
    code = f"""
import os, signal, sqlite3
ledger = sqlite3.connect({str(path)!r}, isolation_level=None)
ledger.execute("PRAGMA journal_mode = WAL")
for nano in {amounts}:
    change = "INSERT INTO charge VALUES ('city', 0, ?) ON CONFLICT DO UPDATE SET nano = nano + excluded.nano"
    ledger.execute(change, [nano])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL


def test_charges_that_wait_in_a_file_beside_the_ledger_are_brought_back(ledger):
    _killed_while_charging(ledger.path, [250, 500])
    assert Path(f"{ledger.path}-wal").stat().st_size > 0
    assert Ledger(ledger.path).charges("city") == {0: 750}
    assert [p.name for p in ledger.path.parent.iterdir()] == ["city.ledger"]
    assert ledger.path.read_bytes()[18:20] == b"\1\1"
    _killed_while_charging(ledger.path, [200])
    assert ledger.charges("city") == {0: 950}
    assert [p.name for p in ledger.path.parent.iterdir()] == ["city.ledger"]


def test_a_ledger_without_the_file_that_its_charges_wait_in_is_refused(ledger):
    """750 were charged, and the file alone knows none of them."""
    _killed_while_charging(ledger.path, [250, 500])
    Path(f"{ledger.path}-wal").unlink()
    before = ledger.path.read_bytes()
    with pytest.raises(dh.DamagedFile, match=r"'city\.ledger-wal', is not beside it, or is empty: charges may"):
        Ledger(ledger.path)
    assert ledger.path.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="locks of other systems are kept")
def test_a_thread_that_reads_leaves_the_locks_of_a_change(ledger):
    """A file that a process opens and closes by itself would give up all its locks on that file."""
    begin = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    with databases.SQLite(ledger.path).change():
        reader = threading.Thread(target=ledger.charges, args=("city",))
        reader.start()
        reader.join()
        other = subprocess.run([sys.executable, "-c", begin, ledger.path], capture_output=True, text=True)
    assert "database is locked" in other.stderr


def test_a_ledger_that_another_program_holds_in_wal_mode_is_refused(ledger):
    other = _wal(ledger.path)
    other.execute("INSERT INTO charge VALUES ('city', 7, 0)")
    with pytest.raises(dh.InputError, match="does not go back: database is locked"):
        Ledger(ledger.path)
    with pytest.raises(dh.InputError, match="does not go back"):
        ledger.store("city", "rows", 18)
    other.execute("PRAGMA journal_mode = DELETE")
    other.close()
    assert Ledger(ledger.path).fact("city", "rows") == 17


def test_nothing_is_charged_that_may_not_be_on_the_disk(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        pragma = databases._pragma
        patch.setattr(databases, "_pragma", lambda c, said: 2 if "synchronous" in said else pragma(c, said))
        with pytest.raises(dh.InputError, match="synchronous 2"):
            ledger.store("city", "rows", 18)
    monkeypatch.setattr(databases.SQLite, "_end_wal", lambda *_: None)
    other = _wal(ledger.path)
    with pytest.raises(dh.InputError, match="journal_mode 'wal'"):
        ledger.store("city", "rows", 18)
    other.close()


@pytest.mark.skipif(os.name != "posix", reason="files have no such rights here")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_ledger_that_others_can_write_is_refused(ledger, mode):
    ledger.path.chmod(mode)
    with pytest.raises(dh.InputError, match=rf"can be written by others \(mode {mode:o}\): .* `chmod go-w` it"):
        Ledger(ledger.path)
    ledger.path.chmod(0o644)
    assert Ledger(ledger.path).fact("city", "rows") == 17


@pytest.mark.parametrize("name", ["50% of #1?.ledger", "a b.ledger", "Zürich.ledger"])
def test_any_name_is_fine(tmp_path, name):
    ledger = Ledger(tmp_path / name)
    ledger.account("city", {})
    with ledger.exclusive():
        assert {p.name.removesuffix("-journal") for p in tmp_path.iterdir()} == {name, f"{name}-lock"}
    assert {p.name: p.stat().st_size > 0 for p in tmp_path.iterdir()} == {name: True, f"{name}-lock": False}


# ---------------------------------------------------------------------------------- ledgers of before

#: What wrote a ledger when its statements were SQL.
CHARGE = "INSERT INTO charge VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET nano = nano + excluded.nano"
FORGET = "DELETE FROM charge WHERE account = ? AND step <= ?"
STORE = "INSERT OR REPLACE INTO fact VALUES (?, ?, ?)"
TABLES = ("account", "charge", "fact")


def test_a_ledger_gets_the_bytes_that_plain_statements_give(tmp_path, ledger):
    name = "city"
    old, new = tmp_path / "old", tmp_path / "new"
    for copy in (old, new):
        shutil.copy(ledger.path, copy)
        copy.chmod(0o600)
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
