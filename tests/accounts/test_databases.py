"""The ledger's databases: durable and whole transactions, damaged and foreign ones, broken connections, passwords."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from postgres import break_others

import deltahist as dh
from deltahist import _postgres
from deltahist.accounts import databases
from deltahist.accounts.ledger import Ledger
from deltahist.publishers.stream import Stream

# ---------------------------------------------------------------------------------- a SQLite file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "city.ledger"


@pytest.fixture
def file(path):
    """A ledger in a file."""
    return make_city(path)


def make_city(where):
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    ledger.charge("city", 0.25)
    return ledger


def test_a_ledger_that_appears_meanwhile_is_not_replaced(path, monkeypatch):
    link = os.link

    def late(source, target):
        monkeypatch.setattr(os, "link", link)
        make_city(path)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert Ledger(path).spent("city") == 0.25


def test_damaged_and_foreign_files_are_refused_and_left_as_they_are(file, tmp_path):
    whole, wrong = file.path.read_bytes(), tmp_path / "wrong"
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE a (b)").connection.close()
    sizes = [*range(0, 200, 46), *range(200, len(whole), 7777), len(whole) - 4096, len(whole) - 1]
    damaged = whole[:4096] + b"\xff" * 24 + whole[4120:]
    for content in (*(whole[:size] for size in sizes), damaged, b"a,b\n1,2\n" * 500, (tmp_path / "other").read_bytes()):
        wrong.write_bytes(content)
        with pytest.raises(dh.DamagedFile):
            Ledger(wrong)
        assert wrong.read_bytes() == content
    sqlite3.connect(file.path).execute("PRAGMA user_version = 9").connection.close()
    for path in (tmp_path, tmp_path / "no" / "ledger", file.path):
        with pytest.raises((dh.InputError, FileNotFoundError)):
            Ledger(path)
    file.path.unlink()
    with pytest.raises(dh.InputError):
        file.list_charges("city")
    assert not file.path.exists()


def test_a_ledger_that_is_replaced_under_a_process_is_not_charged(file, path, tmp_path):
    make_city(tmp_path / "other.ledger")
    (tmp_path / "other.ledger").replace(path)
    with pytest.raises(dh.InputError, match="file"):
        file.charge("city", 0.5)
    assert file.charge("city", 0.5).amount == 0.5  # in the one that is there now
    assert Ledger(path).spent("city") == 0.75


def test_a_charge_to_a_file_is_on_the_disk(file):
    with file.transaction() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("synchronous", "journal_mode")]
    assert found == [3, "persist"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_ledger_in_wal_mode_is_refused(file, kept):
    """Another program changed the mode, charged 750, and was killed; its second file may have been lost."""
    code = f"""
import os, signal, sqlite3
ledger = sqlite3.connect({str(file.path)!r}, isolation_level=None)
ledger.execute("PRAGMA journal_mode = WAL")
ledger.execute("INSERT INTO charges (account, step, nano) VALUES ('city', 0, 750)")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    if not kept:
        Path(f"{file.path}-wal").unlink()
    for use in (lambda: Ledger(file.path), lambda: file.charge("city", 0.1)):
        with pytest.raises(dh.DamagedFile, match="wal"):
            use()


def test_a_transaction_that_sqlite_rolled_back_commits_nothing(file):
    """Without disk or memory SQLite may roll back; later statements must not commit alone."""
    with pytest.raises(dh.InputError), file.transaction() as connection:
        connection.connection.driver_connection.execute("ROLLBACK")
    assert file.spent("city") == 0.25


@pytest.mark.skipif(os.name != "posix", reason="locks of other systems are kept")
def test_a_thread_that_reads_leaves_the_locks_of_a_change(file):
    """A process that opens and closes the same file would lose all its locks on it (POSIX)."""
    begin = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    with file.transaction():
        reader = threading.Thread(target=file.list_charges, args=("city",))
        reader.start()
        reader.join()
        other = subprocess.run([sys.executable, "-c", begin, file.path], capture_output=True, text=True)
    assert "database is locked" in other.stderr


@pytest.mark.parametrize("holding", ["BEGIN IMMEDIATE", "BEGIN; SELECT * FROM charges"])
def test_a_locked_file_is_refused(impatient, file, holding):
    """A writer lets no other begin, and a reader lets no other commit."""
    file = Ledger(file.path)
    holder = sqlite3.connect(file.path, isolation_level=None)
    for statement in holding.split("; "):
        holder.execute(statement).fetchall()
    with pytest.raises(dh.InputError):
        file.charge("city", 0.1)
    holder.close()
    assert file.spent("city") == 0.25
    file.charge("city", 0.1)
    assert file.left("city") * 100 == 65


@pytest.mark.skipif(os.name != "posix", reason="files have no such rights here")
def test_a_ledger_that_others_can_write_is_refused(file):
    file.path.chmod(0o602)
    with pytest.raises(dh.InputError, match="602"):
        Ledger(file.path)
    file.path.chmod(0o644)
    assert Ledger(file.path).spent("city") == 0.25


# ---------------------------------------------------------------------------------- a PostgreSQL schema


@pytest.fixture
def server(shared_url):
    """Another connection to the same database."""
    with psycopg.connect(shared_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def schema(shared_url):
    """A ledger in a schema."""
    return make_city(shared_url)


def test_a_ledger_has_its_own_schema(server, shared_url):
    server.execute("CREATE TABLE public.accounts (other text); CREATE TABLE public.charges (version text)")
    server.execute("ALTER DATABASE " + server.info.dbname + " SET search_path = public, deltahist")
    assert not Ledger.exists(shared_url)
    make_city(shared_url)
    assert Ledger.exists(shared_url)
    assert Ledger(shared_url).spent("city") == 0.25
    assert server.execute("SELECT count(*) FROM public.accounts").fetchone() == (0,)


def test_many_that_open_a_ledger_at_once_make_one(shared_url):
    at_once = threading.Barrier(4)

    def opened(_):
        at_once.wait(30)
        Ledger(shared_url).open("city", epsilon=1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(opened, range(4)))
    assert list(Ledger(shared_url).list_accounts()) == ["city"]


def test_charges_are_durable_and_texts_stay_texts_whatever_the_server_settings_are(server, shared_url):
    name = server.info.dbname
    for setting in ("standard_conforming_strings = off", "client_encoding = LATIN1", "bytea_output = escape",
                    "synchronous_commit = off", "default_transaction_isolation = 'serializable'"):  # fmt: skip
        server.execute(f"ALTER DATABASE {name} SET {setting}")
    server.execute("CREATE SCHEMA hostile; CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text"
                   " LANGUAGE sql AS 'SELECT $2'")  # fmt: skip
    server.execute(f"ALTER DATABASE {name} SET search_path = hostile, pg_catalog")
    ledger = Ledger(shared_url)
    for account in ("\\' OR true --", "é\\", "%s"):
        ledger.open(account, 1)
        ledger.charge(account, 0.25, key=account)
        assert (ledger.spent(account), len(ledger.list_charges(account))) == (0.25, 1)
    names = ("standard_conforming_strings", "synchronous_commit", "transaction_isolation", "transaction_read_only")
    with ledger.transaction() as connection:
        found = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names]
    assert found == ["on", "on", "read committed", "off"]
    with ledger.read() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"


@pytest.mark.parametrize("setting", ["standard_conforming_strings", "synchronous_commit"])
def test_a_server_that_does_not_keep_settings_is_refused(schema, monkeypatch, server, setting):
    """As if a pooler of connections did not pass them on."""
    server.execute(f"ALTER DATABASE {server.info.dbname} SET {setting} = off")
    apply_settings = _postgres.apply_settings

    def lost(run, *more, **options):
        apply_settings(lambda said, values: None if "set_config" in said else run(said, values), *more, **options)

    monkeypatch.setattr(databases, "apply_settings", lost)
    for use in (lambda: schema.list_charges("city"), lambda: schema.charge("city", 0.1)):
        with pytest.raises(dh.InputError, match="must be"):
            use()


def test_a_schema_of_another_version_or_without_a_table_is_refused(server, schema, shared_url):
    server.execute("COMMENT ON SCHEMA deltahist IS 'version 9'")
    with pytest.raises(dh.InputError, match="9"):
        Ledger(shared_url)
    server.execute("DROP TABLE deltahist.charges")
    with pytest.raises(dh.DamagedFile, match="charges"):
        Ledger(shared_url)


@pytest.mark.parametrize(
    ("database", "made"),
    [
        ("file", "CREATE TRIGGER forget AFTER INSERT ON charges"
         " BEGIN DELETE FROM charges; UPDATE accounts SET spent = 0; END"),
        ("schema", "CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
         " CREATE TRIGGER forget BEFORE INSERT ON deltahist.charges FOR EACH ROW EXECUTE FUNCTION public.forget()"),
        ("schema", "CREATE RULE forget AS ON INSERT TO deltahist.charges DO INSTEAD NOTHING"),
    ],
)  # fmt: skip
def test_a_foreign_trigger_or_rule_is_refused(request, database, made):
    """A trigger that deletes charges would let a window spend without end, and no sum would contradict it."""
    ledger = request.getfixturevalue(database)
    with ledger.transaction() as connection:
        connection.exec_driver_sql(made)
    for use in (lambda: Ledger(ledger._where), ledger.find_problems):
        with pytest.raises(dh.DamagedFile, match="forget"):
            use()


def test_a_connection_that_breaks_in_a_transaction_or_at_its_commit_charges_once(server, schema, monkeypatch):
    def broken():
        with schema.transaction() as connection:
            break_others(server)
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(dh.InputError, match="nothing"):
        broken()
    commit = databases.Database._commit_changes
    monkeypatch.setattr(databases.Database, "_commit_changes", lambda *its: (break_others(server), commit(*its)))
    with pytest.raises(dh.InputError, match="same key"):
        schema.charge("city", 0.1, key="k")
    monkeypatch.undo()
    assert schema.spent("city") == 0.25
    schema.charge("city", 0.1, key="k")
    assert schema.left("city") * 100 == 65
    break_others(server)  # while it is kept for the next transaction
    schema.charge("city", 0.1)
    assert schema.left("city") * 100 == 55


def test_a_locked_schema_is_refused(impatient, server, schema):
    schema = Ledger(schema._where)
    server.execute("BEGIN; LOCK TABLE deltahist.accounts IN SHARE ROW EXCLUSIVE MODE")
    with pytest.raises(dh.InputError):
        schema.charge("city", 0.1)
    server.execute("ROLLBACK")
    assert schema.charge("city", 0.1).amount * 10 == 1


# ---------------------------------------------------------------------------------- addresses


def test_no_password_is_ever_shown(shared_url):
    secret = shared_url.replace("postgres@", "postgres:s3cret-word@") + "?application_name=s3cret-too"
    ledger = Ledger(secret)
    near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1)
    stream = Stream(near, dh.Budget(1), 2, None, secret)
    shown = [ledger, ledger._database, dh.accounts.Window(3, 1, ledger=secret, name="w"), stream, ledger.place]
    ledger.open("city", 1)
    away = secret.replace("127.0.0.1:", "127.0.0.1:1")
    for wrong in (
        lambda: ledger.open("city", 2),
        lambda: Ledger(away),
        lambda: Ledger(secret.replace("/test_", "/nobody_")),
        lambda: Ledger("postgresql://ann:s3cret-word@host:port/city"),
        lambda: Ledger("postgresql://ann:s3cret-word@host"),
        lambda: Ledger("mysql://ann:s3cret-word@host/city"),
        lambda: Ledger(secret + "&nonsense=1"),
    ):
        with pytest.raises(dh.InputError) as problem:
            wrong()
        shown.append(problem.value)
    assert not [text for text in map(repr, shown) if "s3cret" in text]
