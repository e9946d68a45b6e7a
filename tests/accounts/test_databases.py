"""The ledger's databases: whole or not at all, on the disk, other programs, broken connections, no passwords."""

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

import deltahist as dh
from deltahist import _postgres
from deltahist.accounts import databases
from deltahist.accounts.ledger import Ledger
from deltahist.accounts.tables import Accounts
from deltahist.publishers.stream import Stream
from tests.accounts.conftest import let_go, make_city

# ---------------------------------------------------------------------------------- a SQLite file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "city.ledger"


@pytest.fixture
def file(path):
    """A ledger in a file."""
    return make_city(path)


def test_a_ledger_that_appears_meanwhile_is_not_replaced(path, monkeypatch):
    link = os.link

    def late(source, target):
        monkeypatch.setattr(os, "link", link)
        Ledger(path).account("first", {})
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert list(Ledger(path).accounts()) == ["first"]
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_cut_short_at_any_length_is_refused(file, tmp_path):
    whole = file.path.read_bytes()
    cut = tmp_path / "cut.ledger"
    for size in [*range(0, 200, 46), *range(200, len(whole), 3777), len(whole) - 4096, len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(dh.DamagedFile, match=r"cut short|damaged"):
            Ledger(cut)
        assert cut.read_bytes() == whole[:size]
    damaged = bytearray(whole)
    damaged[4096:4120] = b"\xff" * 24
    cut.write_bytes(damaged)
    with pytest.raises(dh.DamagedFile, match=r"damaged|cut short"):
        Ledger(cut)


def test_files_that_are_no_ledger(tmp_path, file):
    (tmp_path / "text").write_text("a,b\n1,2\n" * 500)
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE a (b)").connection.close()
    sqlite3.connect(file.path).execute("PRAGMA user_version = 9").connection.close()
    for path, problem, message in (
        (tmp_path / "text", dh.DamagedFile, "cannot be used: file is not a database"),
        (tmp_path / "other", dh.DamagedFile, "something else"),
        (tmp_path, dh.InputError, "is no file"),
        (tmp_path / "no" / "ledger", dh.InputError, "does not exist"),
        (file.path, dh.InputError, "version 9"),
    ):
        with pytest.raises(problem, match=message):
            Ledger(path)
    file.path.unlink()
    with pytest.raises(dh.InputError, match="is gone"):
        file.charges("city")
    assert not file.path.exists()


def test_a_file_of_an_earlier_program_goes_on(path):
    """Its tables were made by other statements."""
    connection = sqlite3.connect(path)
    connection.executescript("""
        PRAGMA application_id = 1684556871; PRAGMA user_version = 1;
        CREATE TABLE account (name TEXT NOT NULL, rule TEXT NOT NULL, PRIMARY KEY (name)) WITHOUT ROWID;
        CREATE TABLE charge (account TEXT NOT NULL, step INTEGER NOT NULL, nano INTEGER NOT NULL,
            PRIMARY KEY (account, step), FOREIGN KEY(account) REFERENCES account (name)) WITHOUT ROWID;
        CREATE TABLE fact (account TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (account, name), FOREIGN KEY(account) REFERENCES account (name)) WITHOUT ROWID;
        CREATE TABLE answer (account TEXT NOT NULL, "key" TEXT NOT NULL, request TEXT NOT NULL, answer TEXT NOT NULL,
            PRIMARY KEY (account, "key")) WITHOUT ROWID;
        CREATE TABLE entry (account TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, nano INTEGER NOT NULL,
            data BLOB NOT NULL, PRIMARY KEY (account, number));
        INSERT INTO account VALUES ('city', '{"epsilon_nano": 1000000000, "kind": "total"}');
        INSERT INTO charge VALUES ('city', 0, 250000000);
    """)
    connection.close()
    path.chmod(0o600)
    ledger = Ledger(path)
    for _ in range(2):
        ledger.charge("city", 0.5, key="May")
    assert ledger.left("city") == 0.25
    assert ledger.problems() == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not listed here")
def test_no_connection_outlives_its_work(file):
    with pytest.raises(ZeroDivisionError), file.transaction():
        1 / 0  # noqa: B018
    with file.exclusive():
        file.charges("city")
    held = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert not [link for link in held if file.path.name in link.readlink().name]


def test_a_charge_to_a_file_is_on_the_disk(file):
    with file.transaction() as change:
        found = [
            change._connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("synchronous", "journal_mode")
        ]
    assert found == [3, "delete"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_ledger_in_wal_mode_is_refused(file, kept):
    """Another program changed the mode, charged 750, and was killed; its second file may have been lost."""
    code = f"""
import os, signal, sqlite3
ledger = sqlite3.connect({str(file.path)!r}, isolation_level=None)
ledger.execute("PRAGMA journal_mode = WAL")
ledger.execute("INSERT INTO charge VALUES ('city', 0, 750)")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    if not kept:
        Path(f"{file.path}-wal").unlink()
    for use in (lambda: Ledger(file.path), lambda: file.store("city", "rows", 18)):
        with pytest.raises(dh.DamagedFile, match=r"'wal' by another program, .*'city\.ledger-wal'"):
            use()
    mode = sqlite3.connect(file.path)
    mode.execute("PRAGMA journal_mode = DELETE")
    mode.close()
    assert Ledger(file.path).charges("city") == ({0: 750} if kept else {})


@pytest.mark.skipif(os.name != "posix", reason="locks of other systems are kept")
def test_a_thread_that_reads_leaves_the_locks_of_a_change(file):
    """A file that a process opens and closes by itself would give up all its locks on that file."""
    begin = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    with file.transaction():
        reader = threading.Thread(target=file.charges, args=("city",))
        reader.start()
        reader.join()
        other = subprocess.run([sys.executable, "-c", begin, file.path], capture_output=True, text=True)
    assert "database is locked" in other.stderr


@pytest.mark.parametrize("holding", ["BEGIN IMMEDIATE", "BEGIN; SELECT * FROM charge"])
def test_a_busy_file_says_so(impatient, file, holding):
    """One that changes it lets no other begin; one that reads it lets no other commit."""
    holder = sqlite3.connect(file.path, isolation_level=None)
    for statement in holding.split("; "):
        holder.execute(statement).fetchall()
    with pytest.raises(dh.InputError, match=r"locked .*nothing was charged"):
        file.store("city", "rows", 18)
    holder.close()
    assert file.fact("city", "rows") == 17
    file.store("city", "rows", 18)


@pytest.mark.skipif(os.name != "posix", reason="files have no such rights here")
def test_a_ledger_that_others_can_write_is_refused(file):
    file.path.chmod(0o602)
    with pytest.raises(dh.InputError, match=r"can be written by others \(mode 602\): .* `chmod go-w` it"):
        Ledger(file.path)
    file.path.chmod(0o644)
    assert Ledger(file.path).fact("city", "rows") == 17


@pytest.mark.parametrize("name", ["50% of #1?.ledger", "a b.ledger", "Zürich.ledger"])
def test_any_name_is_fine(tmp_path, name):
    ledger = Ledger(tmp_path / name)
    ledger.account("city", {})
    with ledger.exclusive():
        assert {p.name: p.stat().st_size > 0 for p in tmp_path.iterdir()} == {name: True, f"{name}-lock": False}


# ---------------------------------------------------------------------------------- a PostgreSQL schema


@pytest.fixture
def url(shared_url):
    return shared_url


@pytest.fixture
def server(url):
    """Another connection to the same database."""
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.info.server_version >= 130000
        yield connection


@pytest.fixture
def schema(url):
    """A ledger in a schema."""
    return make_city(url)


def _break_all(server):
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                   " AND datname = current_database()")  # fmt: skip


def test_it_has_a_schema_of_its_own(server, url):
    server.execute("CREATE TABLE public.account (other text); CREATE TABLE public.ledger (version text)")
    server.execute("ALTER DATABASE " + server.info.dbname + " SET search_path = public, deltahist")
    assert not Ledger.exists(url)
    Ledger(url).account("city", {"length": 3})
    assert Ledger.exists(url)
    assert Ledger(url).accounts() == {"city": {"length": 3}}
    assert server.execute("SELECT count(*) FROM public.account").fetchone() == (0,)


def test_one_ledger_comes_of_many_that_open_it_at_once(url):
    at_once = threading.Barrier(4)

    def opened(_):
        at_once.wait(30)
        Ledger(url).account("city", {"length": 3})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(opened, range(4)))
    assert Ledger(url).accounts() == {"city": {"length": 3}}
    Ledger(url).close_if_unused("city")  # without accounts it stays
    assert Ledger(url).accounts() == {}


def test_a_charge_is_durable_and_a_text_a_text_whatever_the_servers_settings_are(server, url):
    name = server.info.dbname
    for setting in ("standard_conforming_strings = off", "client_encoding = LATIN1", "bytea_output = escape",
                    "synchronous_commit = off", "default_transaction_isolation = 'serializable'"):  # fmt: skip
        server.execute(f"ALTER DATABASE {name} SET {setting}")
    server.execute("CREATE SCHEMA hostile; CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text"
                   " LANGUAGE sql AS 'SELECT $2'")  # fmt: skip
    server.execute(f"ALTER DATABASE {name} SET search_path = hostile, pg_catalog")
    ledger = Ledger(url)
    for account in ("\\' OR true --", "é\\", "%s"):
        ledger.open(account, 1)
        ledger.charge(account, 0.25, key=account, request=account)
        assert (ledger.spent(account), len(ledger.charges(account))) == (0.25, 1)

    def settings_of(accounts):
        names = ("standard_conforming_strings", "synchronous_commit", "transaction_isolation", "transaction_read_only")
        return [accounts._connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names]

    # Of two that wait for each other, the second sees what the first has done.
    with ledger.transaction() as change:
        assert settings_of(change) == ["on", "on", "read committed", "off"]
    with ledger.read() as accounts:
        assert settings_of(accounts)[2] == "repeatable read"


@pytest.mark.parametrize("setting", ["standard_conforming_strings", "synchronous_commit"])
def test_a_server_that_does_not_keep_settings_is_refused(schema, monkeypatch, server, setting):
    """As if a pooler of connections did not pass them on."""
    server.execute(f"ALTER DATABASE {server.info.dbname} SET {setting} = off")
    let_go()
    settle = _postgres.settle

    def lost(run, *more, **options):
        settle(lambda said, values: None if "set_config" in said else run(said, values), *more, **options)

    monkeypatch.setattr(databases, "settle", lost)
    for use in (lambda: schema.charges("city"), lambda: schema.store("city", "a", 1), schema.exclusive().__enter__):
        with pytest.raises(dh.InputError, match=r"although .* was set .* nothing is read or charged there"):
            use()


def test_a_ledger_of_a_newer_version_or_in_pieces(server, schema, url):
    server.execute("UPDATE deltahist.ledger SET version = 9")
    with pytest.raises(dh.InputError, match="is of version 9: this program knows versions up to 1"):
        Ledger(url)
    server.execute("UPDATE deltahist.ledger SET version = 1; DROP TABLE deltahist.charge")
    with pytest.raises(dh.DamagedFile, match="it has no table 'charge'; nothing was charged"):
        Ledger(url)


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (True, "cannot be used: .*terminat.*; nothing was charged"),
        (False, "is not known, and nothing is handed out: ask again with the same key"),
    ],
)
def test_a_connection_that_breaks_in_a_transaction_or_at_its_commit(server, schema, monkeypatch, again, said):
    check = Accounts.check

    def charge():
        with schema.transaction() as change:
            change.charge("city", 1, 5)
            if again:
                _break_all(server)
                change.charge("city", 1, 5)

    monkeypatch.setattr(Accounts, "check", lambda accounts: (check(accounts), _break_all(server)))
    with pytest.raises(dh.InputError, match=said):
        charge()
    monkeypatch.undo()
    assert schema.charges("city") == {}
    _break_all(server)
    schema.store("city", "rows", 18)  # connections are made anew
    assert schema.fact("city", "rows") == 18


def test_a_schema_that_is_held_says_so_in_the_end(impatient, server, schema):
    server.execute("SELECT pg_advisory_lock(%s)", (databases._CHANGING,))
    with pytest.raises(dh.InputError, match=r"lock timeout .*nothing was charged"):
        schema.store("city", "rows", 18)
    server.execute("SELECT pg_advisory_unlock_all()")
    schema.store("city", "rows", 18)


def test_many_threads_share_few_connections(server, schema):
    let_go()

    def add(_):
        with schema.transaction() as change:
            change.charge("city", 1, 1)
            assert schema.fact("city", "rows") == 17  # a look within a change does not wait for changes

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(add, range(64)))
    assert schema.charges("city") == {1: 64}
    (used,) = server.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    ).fetchone()
    assert used <= 2 * databases._CONNECTIONS + 1


# ---------------------------------------------------------------------------------- addresses


def test_no_password_is_ever_shown(url):
    secret = url.replace("postgres@", "postgres:s3cret-word@") + "?application_name=s3cret-too"
    ledger = Ledger(secret)
    near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1)
    stream = Stream(near, dh.Budget(1), 2, None, secret)
    shown = [ledger, ledger._database, dh.Window(3, 1, ledger=secret, name="w"), stream, ledger.place]
    ledger.account("city", {"length": 3})
    away = secret.replace("127.0.0.1:", "127.0.0.1:1")
    for wrong in (
        lambda: ledger.account("city", {"length": 4}),
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


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("mysql://host/city", "'mysql': it must be a file .* or a database"),
        ("postgresql://host:port/city", "cannot be read .*%40 for an @"),
        ("postgresql://host", "cannot be read"),
        ("sqlite://city.ledger", "names no file: write sqlite:///city.ledger"),
    ],
)  # fmt: skip
def test_addresses_that_are_none(where, message):
    with pytest.raises(dh.InputError, match=message):
        Ledger(where)


def test_a_path_may_be_written_as_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger("sqlite:///city.ledger").account("city", {})
    assert Ledger(f"sqlite:///{tmp_path}/city.ledger").accounts() == Ledger("city.ledger").accounts() == {"city": {}}


def test_a_driver_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(dh.InputError, match=r"pip install 'deltahist\[postgresql\]'"):
        Ledger("postgresql://host/city")
