"""Databases with records of people: DuckDB and PostgreSQL behave alike."""

import sys
import threading
import time

import duckdb
import pandas as pd
import psycopg
import pytest

from deltahist.errors import InputError
from deltahist.personal import Engine, engines
from tests.personal.city import run


@pytest.fixture(params=["duckdb", "postgresql"])
def address(request, tmp_path):
    """The address of an empty database; a DuckDB one is open in this process."""
    if request.param == "postgresql":
        yield request.getfixturevalue("postgres_url")
        return
    with duckdb.connect(str(tmp_path / "city.duckdb")):
        yield str(tmp_path / "city.duckdb")


def _rows(database, query, **values):
    with database.open_session() as look:
        found = look.fetch_table(query.select(**values).table)
    return sorted(map(tuple, (row.values() for row in found.to_pylist())), key=repr)


def test_records_are_read_alike(address):
    run(
        address,
        'CREATE TABLE "t a" (who TEXT, place TEXT, stay DOUBLE PRECISION, n INTEGER, "at" TIMESTAMP, day DATE, '
        "ok BOOLEAN, j INTERVAL)",
        'INSERT INTO "t a" VALUES '
        "('ann', 'it''s \"x\",\n', 1.5, 1, '2026-05-01 22:30:00.123456', '2026-05-01', true, NULL)",
        'INSERT INTO "t a" VALUES '
        "('bob', NULL, NULL, NULL, NULL, NULL, NULL, NULL), (NULL, '', 1, 1, NULL, NULL, NULL, NULL)",
    )
    database = Engine.open(address)
    query = database.make_query("t a", "who")
    assert list(query.columns.values()) == ["text", "number", "whole", "time", "date", "truth"]
    rows = _rows(database, query, **{name: name for name in query.columns})
    at = pd.Timestamp("2026-05-01 22:30:00.123456").to_pydatetime(warn=False)
    assert rows == [("ann", 'it\'s "x",\n', 1.5, 1, at, at.date(), True), ("bob", *[None] * 6)]
    assert _rows(database, query.where("place = ''")) == []


def test_long_texts_are_read_up_to_a_thousand_characters(address):
    run(address, "CREATE TABLE t (who TEXT, name TEXT)", "INSERT INTO t VALUES ('a', repeat('\u00e9', 2000))")
    database = Engine.open(address)
    assert _rows(database, database.make_query("t", "who"), v="length(name)") == [("a", 1000)]


def test_what_is_not_there(address):
    run(address, "CREATE TABLE visits (who TEXT, place TEXT)")
    database = Engine.open(address)
    for table, owner in (("nowhere", "who"), ("visits", "whom"), ("no.visits", "who"), ("visits.who", "who")):
        with pytest.raises(InputError):
            database.make_query(table, owner)


def test_a_snapshot_does_not_see_what_comes_later(address):
    run(address, "CREATE TABLE visits (who TEXT)", "INSERT INTO visits VALUES ('ann')")
    database = Engine.open(address)
    query = database.make_query("visits", "who")
    with database.open_session() as look:
        assert len(look.fetch_table(query.select().table)) == 1
        writer = threading.Thread(target=run, args=(address, "INSERT INTO visits VALUES ('ann')"))
        writer.start()
        writer.join()
        assert len(look.fetch_table(query.select().table)) == 1
    assert len(_rows(database, query)) == 2


def test_failures_on_private_rows_say_nothing_of_them(address):
    run(
        address,
        "CREATE TABLE visits (who TEXT, place TEXT)",
        "INSERT INTO visits VALUES ('ann', 'zoo')",
        "CREATE VIEW risky AS SELECT who, CAST(place AS INTEGER) AS n FROM visits",
    )
    database = Engine.open(address)
    query = database.make_query("risky", "who")
    with pytest.raises(InputError, match=r"cannot evaluate this: .* message is not shown") as caught:
        _rows(database, query, n="n")
    assert "zoo" not in str(caught.value)
    assert caught.value.__context__ is None
    run(address, "DROP VIEW risky")
    with pytest.raises(InputError, match="was a table or a column changed"):
        _rows(database, query, n="n")


@pytest.mark.parametrize("server", [False, True])
def test_what_takes_too_long_is_stopped_in_the_database(request, server):
    endless = "SELECT pg_sleep(600)" if server else "SELECT count(*) FROM range(1000000000000) a, range(9) b"
    database = Engine.open(request.getfixturevalue("postgres_url") if server else ":memory:")
    with (
        database.open_session() as look,
        pytest.raises(InputError, match="went away"),
        look.stop_at(time.monotonic() + 0.1),
        database.hide_failures(),
    ):
        look._connection.execute(endless)


def test_a_server_that_goes_away_is_named_and_nothing_is_shown(postgres_url):
    run(postgres_url, "CREATE TABLE t (who TEXT)")
    database = Engine.open(postgres_url)
    rows = database.make_query("t", "who").select().table
    with database.open_session() as look:
        look.fetch_table(rows)
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                          " AND datname = current_database()")  # fmt: skip
        with pytest.raises(InputError, match=r"went away, or ran out of room, .* nothing was answered"):
            look.fetch_table(rows)


def test_addresses_that_lead_nowhere(tmp_path):
    (tmp_path / "text.duckdb").write_text("no database\n" * 100)
    (tmp_path / "city.ledger").write_bytes(b"SQLite format 3\0" + bytes(84))
    for where in (
        tmp_path / "text.duckdb",
        "mysql://root@localhost/city",
        tmp_path / "city.ledger",
        "",
        "postgresql://me:secret@127.0.0.1:1/city",
        "postgresql://me:se/cret@host/city",
        "postgresql://me:s@cret@host/city",
        "postgresql://me@host/city?nonsense=1",
    ):
        with pytest.raises(InputError) as caught:
            Engine.open(where)
        assert "cret" not in str(caught.value)


@pytest.mark.parametrize(("module", "extra"), [("duckdb", "personal"), ("psycopg", "postgresql")])
def test_libraries_that_are_not_installed_are_named(monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    where = "postgresql://localhost/city" if extra == "postgresql" else "city.duckdb"
    with pytest.raises(InputError, match=rf"{module}.*pip install 'deltahist\[{extra}\]'"):
        Engine.open(where)


def test_long_and_endless_decimals_are_numbers_or_missing(postgres_url):
    run(postgres_url, "CREATE TABLE t (who TEXT, large NUMERIC(400, 0), small NUMERIC(400, 400))",
        "INSERT INTO t VALUES ('ann', 1e350, 1e-399), ('ann', 3, 0.5), ('ann', 'NaN', 'NaN')",
        "CREATE TABLE u (who TEXT, price NUMERIC)",
        "INSERT INTO u SELECT 'ann', n FROM "
        "(VALUES (1e400), (1e-400), (-0.1), ('NaN'::NUMERIC), ('Infinity'::NUMERIC), (0)) AS v (n)")  # fmt: skip
    database = Engine.open(postgres_url)
    rows = _rows(database, database.make_query("t", "who"), large="large", small="small")
    assert [row[1:] for row in rows] == [(3.0, 0.5), (None, 0.0), (None, None)]
    rows = _rows(database, database.make_query("u", "who"), price="price")
    assert [price for _, price in rows] == [-0.1, 0.0, 0.0, None, None, None]


#: Texts that leave a constant, where a backslash can end it, and go on as SQL.
ATTACKS = [
    "\\' OR true --", "\\' OR pg_sleep(9) IS NULL --", "\\'; COPY t TO PROGRAM 'true'; --", "\\", "\\\\'", "'", "''",
    "%s", "%", "\\101", "\\u0041", "$$", "E'\\''", "plain",
]  # fmt: skip
#: What a database, or a role in it, may say, and what texts, times and functions would be then.
HOSTILE = [
    "standard_conforming_strings = off", "client_encoding = LATIN1", "DateStyle = 'SQL, DMY'", "TimeZone = 'Japan'",
    "extra_float_digits = -9", "transform_null_equals = on", "default_transaction_isolation = serializable",
    "default_transaction_read_only = on", "search_path = hostile, public, pg_catalog",
]  # fmt: skip


@pytest.fixture(params=["DATABASE {0}", pytest.param("ROLE postgres IN DATABASE {0}", marks=pytest.mark.slow)])
def hostile(request, postgres_url):
    """A database whose settings, and a schema in its search path, are against us."""
    hidden = "CREATE FUNCTION hostile.length(text) RETURNS int LANGUAGE sql AS 'SELECT 7'"
    whose = request.param.format(postgres_url.rpartition("/")[2])
    run(postgres_url, "CREATE SCHEMA hostile", hidden, *(f"ALTER {whose} SET {each}" for each in HOSTILE))
    return postgres_url


def _texts_stay(database, address, table, texts):
    with psycopg.connect(address) as connection:
        connection.read_only = False
        connection.execute(f'CREATE TABLE {table} (who TEXT, k TEXT, "at" TIMESTAMP, x DOUBLE PRECISION)')
        for text in texts:
            row = ("ann", text, pd.Timestamp("2026-05-04 22:30:00.000001"), 0.1 + 0.2)
            connection.execute(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", row)
    query = database.make_query(table, "who")
    with database.open_session() as look:
        for text in texts:
            said = text.replace("'", "''")
            chosen = query.where(f"k in ('{said}', 'none')")
            assert look.fetch_table(chosen.select(k="k").table)["k"].to_pylist() == [text]
            assert look.plan_fetch(chosen.select(k="k").table)().num_rows == 1
            assert look.fetch_table(query.partition("k", [text])[text].select(k="k").table)["k"].to_pylist() == [text]
    return query


def test_a_text_or_a_name_stays_one_whatever_the_servers_settings_are(hostile, monkeypatch):
    database = Engine.open(hostile)
    query = _texts_stay(database, hostile, "t", [*ATTACKS, "é\\"])
    plain = query.where("at > '2026-05-04 22:30:00' and k = 'plain'").select(x="x", n="length(k)", at="at").table
    with database.open_session() as look:
        (own,) = look.fetch_table(plain).to_pylist()
    assert (own["x"], own["n"], own["at"]) == (0.1 + 0.2, 5, pd.Timestamp("2026-05-04 22:30:00.000001"))
    with pytest.raises(InputError, match="has no table"):
        database.make_query("\\'; DROP SCHEMA hostile; --", "who")
    # Even where no setting is kept: the driver writes constants for the connection that there is.
    monkeypatch.setattr(engines, "apply_settings", lambda *_: None)
    _texts_stay(Engine.open(hostile), hostile, "u", ATTACKS)


def test_a_server_that_does_not_keep_settings_is_refused(postgres_url, monkeypatch):
    database = Engine.open(postgres_url)
    execute = psycopg.Connection.execute

    def lost(connection, query, *more, **options):
        return execute(connection, *(("SELECT 1",) if "set_config" in query else (query, *more)))

    run(postgres_url, f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET standard_conforming_strings = off")
    monkeypatch.setattr(psycopg.Connection, "execute", lost)
    for ask in (
        lambda: Engine.open(postgres_url),
        lambda: database.make_query("t", "who"),
        database.open_session().__enter__,
    ):
        with pytest.raises(InputError, match="standard_conforming_strings = 'off'"):
            ask()
