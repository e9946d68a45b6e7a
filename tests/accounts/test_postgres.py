"""The ledger's PostgreSQL database: a schema of its own, what is durable, connections that break, no passwords."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import deltahist as dh
from deltahist import _postgres
from deltahist.accounts import databases, tables
from deltahist.accounts.ledger import Ledger
from deltahist.publishers.stream import Stream
from tests.accounts.conftest import let_go


@pytest.fixture
def where(shared_url):
    return shared_url


@pytest.fixture
def server(where):
    """Another connection to the same database."""
    with psycopg.connect(where, autocommit=True) as connection:
        yield connection


def _break_all(server):
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                   " AND datname = current_database()")  # fmt: skip


def test_it_has_a_schema_of_its_own(server, where):
    server.execute("CREATE TABLE public.account (other text); CREATE TABLE public.ledger (version text)")
    server.execute("ALTER DATABASE " + server.info.dbname + " SET search_path = public, deltahist")
    assert not Ledger.exists(where)
    Ledger(where).account("city", {"length": 3})
    assert Ledger.exists(where)
    tables = server.execute("SELECT table_schema, table_name FROM information_schema.tables"
                            " WHERE table_schema IN ('public', 'deltahist') ORDER BY 1, 2").fetchall()  # fmt: skip
    assert tables == [
        *(("deltahist", name) for name in ("account", "answer", "charge", "entry", "fact", "ledger")),
        ("public", "account"),
        ("public", "ledger"),
    ]
    assert server.execute("SELECT count(*) FROM public.account").fetchone() == (0,)


def test_one_ledger_comes_of_many_that_open_it_at_once(where):
    at_once = threading.Barrier(4)

    def opened(_):
        at_once.wait(30)
        Ledger(where).account("city", {"length": 3})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(opened, range(4)))
    assert Ledger(where).accounts() == {"city": {"length": 3}}


def test_what_is_charged_is_durable_and_seen_whatever_the_servers_settings_are(server, where):
    name = server.info.dbname
    server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    server.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    ledger = Ledger(where)
    ledger.account("city", {})
    with ledger.transaction() as change:
        said = [
            change._connection.exec_driver_sql(f"SHOW {setting}").scalar()
            for setting in ("synchronous_commit", "transaction_isolation", "transaction_read_only")
        ]
    # Of two that wait for each other, the second sees what the first has done.
    assert said == ["on", "read committed", "off"]
    with ledger._database.read() as accounts:
        assert accounts._connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"


def test_a_text_stays_a_text_whatever_the_servers_settings_are(server, where):
    name = server.info.dbname
    for setting in ("standard_conforming_strings = off", "client_encoding = LATIN1", "bytea_output = escape"):
        server.execute(f"ALTER DATABASE {name} SET {setting}")
    server.execute("CREATE SCHEMA hostile; CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text"
                   " LANGUAGE sql AS 'SELECT $2'")  # fmt: skip
    server.execute(f"ALTER DATABASE {name} SET search_path = hostile, pg_catalog")
    ledger = Ledger(where)
    for account in ("\\' OR true --", "é\\", "%s"):
        ledger.open(account, 1)
        ledger.charge(account, 0.25, key=account, request=account)
        assert (ledger.spent(account), len(ledger.charges(account))) == (0.25, 1)
    with ledger.transaction() as change:
        said = change._connection.exec_driver_sql("SHOW standard_conforming_strings").scalar()
    assert said == "on"


@pytest.mark.parametrize("setting", ["standard_conforming_strings", "synchronous_commit"])
def test_a_server_that_does_not_keep_settings_is_refused(ledger, monkeypatch, server, setting):
    server.execute(f"ALTER DATABASE {server.info.dbname} SET {setting} = off")
    let_go()
    settle = _postgres.settle

    def lost(run, *more, **options):
        settle(lambda said, values: None if "set_config" in said else run(said, values), *more, **options)

    monkeypatch.setattr(databases, "settle", lost)
    for use in (lambda: ledger.charges("city"), lambda: ledger.store("city", "rows", 18), ledger.exclusive().__enter__):
        with pytest.raises(dh.InputError, match=r"although .* was set .* nothing is read or charged there"):
            use()


def test_a_ledger_of_a_newer_version_or_in_pieces(server, ledger, where):
    server.execute("UPDATE deltahist.ledger SET version = 9")
    with pytest.raises(dh.InputError, match="is of version 9: this program knows versions up to 1"):
        Ledger(where)
    server.execute("UPDATE deltahist.ledger SET version = 1; DROP TABLE deltahist.charge")
    with pytest.raises(dh.DamagedFile, match="it has no table 'charge'; nothing was charged"):
        Ledger(where)
    server.execute("DELETE FROM deltahist.ledger")
    with pytest.raises(dh.DamagedFile, match="damaged"):
        Ledger(where)


def test_a_connection_that_breaks_in_a_transaction_changes_nothing(server, ledger):
    def charge():
        with ledger.transaction() as change:
            change.charge("city", 1, 5)
            _break_all(server)
            change.charge("city", 1, 5)

    with pytest.raises(dh.InputError, match=r"cannot be used: .*terminat.*; nothing was charged"):
        charge()
    assert ledger.charges("city") == {}
    ledger.store("city", "rows", 18)  # connections are made anew
    assert ledger.fact("city", "rows") == 18


def test_a_connection_that_breaks_at_the_commit_leaves_it_open(server, ledger):
    def charge():
        with ledger.transaction() as change:
            change.charge("city", 1, 5)
            _break_all(server)

    with pytest.raises(dh.InputError, match="is not known, and nothing is handed out: ask again with the same key"):
        charge()
    assert ledger.charges("city") == {}


def test_a_server_that_was_away_for_a_while(server, ledger):
    _break_all(server)
    assert ledger.fact("city", "rows") == 17
    ledger.store("city", "rows", 18)


def test_a_ledger_that_is_held_says_so_in_the_end(server, ledger, monkeypatch):
    monkeypatch.setattr(tables, "PATIENCE", 0.05)
    server.execute("SELECT pg_advisory_lock(%s)", (databases._CHANGING,))
    with pytest.raises(dh.InputError, match=r"lock timeout .*nothing was charged"):
        ledger.store("city", "rows", 18)
    server.execute("SELECT pg_advisory_unlock_all()")
    ledger.store("city", "rows", 18)


def test_many_threads_share_few_connections(server, ledger):
    def add(_):
        with ledger.transaction() as change:
            change.charge("city", 1, 1)
            assert ledger.fact("city", "rows") == 17  # a look within a change does not wait for changes

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(add, range(64)))
    assert ledger.charges("city") == {1: 64}
    (used,) = server.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    ).fetchone()
    assert used <= 2 * databases._CONNECTIONS + 1


def test_a_ledger_without_accounts_stays(where):
    ledger = Ledger(where)
    ledger.account("city", {})
    ledger.close_if_unused("city")
    assert Ledger(where).accounts() == {}


# ---------------------------------------------------------------------------------- addresses


def test_no_password_is_ever_shown(where, tmp_path):
    secret = where.replace("postgres@", "postgres:s3cret-word@") + "?application_name=s3cret-too"
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
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(dh.InputError, match=r"pip install 'deltahist\[postgresql\]'"):
        Ledger("postgresql://host/city")
