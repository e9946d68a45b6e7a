"""DuckDB and PostgreSQL behave alike, no text of a caller becomes SQL, and each person has one name."""

import threading
import time
from uuid import UUID

import duckdb
import pandas as pd
import psycopg
import pytest

import deltahist as dh
from deltahist.errors import InputError
from deltahist.personal import Engine, People, engines
from tests.personal.city import run, without_noise


@pytest.fixture(params=["duckdb", "postgresql"])
def where(request):
    """An empty database: a connection, or an address."""
    return duckdb.connect() if request.param == "duckdb" else request.getfixturevalue("postgres_url")


def _rows(database, query, **values):
    with database.open_session() as look:
        found = look.plan_fetch(query.select(**values).table)()
    return sorted(map(tuple, (row.values() for row in found.to_pylist())), key=repr)


def test_records_are_read_alike(where):
    run(
        where,
        'CREATE TABLE "t a" (who TEXT, place TEXT, stay DOUBLE PRECISION, n INTEGER, "at" TIMESTAMP, day DATE, '
        "ok BOOLEAN, j INTERVAL)",
        'INSERT INTO "t a" VALUES '
        "('ann', 'it''s \"x\",\n', 1.5, 1, '2026-05-01 22:30:00.123456', '2026-05-01', true, NULL)",
        'INSERT INTO "t a" VALUES '
        "('bob', NULL, NULL, NULL, NULL, NULL, NULL, NULL), (NULL, '', 1, 1, NULL, NULL, NULL, NULL)",
    )
    database = Engine.open(where)
    query = database.make_query("t a", "who")
    assert list(query.columns.values()) == ["text", "number", "whole", "time", "date", "truth"]
    rows = _rows(database, query, **{name: name for name in query.columns})
    at = pd.Timestamp("2026-05-01 22:30:00.123456").to_pydatetime(warn=False)
    assert rows == [("ann", 'it\'s "x",\n', 1.5, 1, at, at.date(), True), ("bob", *[None] * 6)]
    assert _rows(database, query.where("place = ''")) == []
    none = query.where("n = 1").select(one="1", none="null")
    assert none.columns == {"one": "whole", "none": "text"}
    assert _rows(database, none, none="none") == [("ann", None)]


def test_tables_and_columns_that_are_not_there_are_refused(where):
    run(where, "CREATE TABLE visits (who TEXT, place TEXT)")
    database = Engine.open(where)
    for table, owner in (("nowhere", "who"), ("visits", "whom"), ("no.visits", "who"), ("visits.who", "who")):
        with pytest.raises(InputError):
            database.make_query(table, owner)


def test_a_snapshot_does_not_see_what_comes_later(where):
    run(where, "CREATE TABLE visits (who TEXT)", "INSERT INTO visits VALUES ('ann')")
    database = Engine.open(where)
    query = database.make_query("visits", "who")
    with database.open_session() as look:
        assert len(look.plan_fetch(query.select().table)()) == 1
        writer = threading.Thread(target=run, args=(where, "INSERT INTO visits VALUES ('ann')"))
        writer.start()
        writer.join()
        assert len(look.plan_fetch(query.select().table)()) == 1
    assert len(_rows(database, query)) == 2


def test_failures_on_private_rows_do_not_show_them(where):
    run(
        where,
        "CREATE TABLE visits (who TEXT, place TEXT)",
        "INSERT INTO visits VALUES ('ann', 'zoo')",
        "CREATE VIEW risky AS SELECT who, CAST(place AS INTEGER) AS n FROM visits",
    )
    database = Engine.open(where)
    query = database.make_query("risky", "who")
    for drop in (False, True):
        if drop:
            run(where, "DROP VIEW risky")
        with pytest.raises(InputError) as caught:
            _rows(database, query, n="n")
        assert "zoo" not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("server", [False, True])
def test_a_statement_that_takes_too_long_is_stopped_in_the_database(request, server):
    endless = "SELECT pg_sleep(600)" if server else "SELECT count(*) FROM range(1000000000000) a, range(9) b"
    database = Engine.open(request.getfixturevalue("postgres_url") if server else ":memory:")
    with pytest.raises(InputError), database.open_session() as look, look.stop_at(time.monotonic() + 0.1):
        look.connection.execute(endless)


def test_a_server_that_goes_away_is_refused(postgres_url):
    run(postgres_url, "CREATE TABLE t (who TEXT)")
    database = Engine.open(postgres_url)
    rows = database.make_query("t", "who").select().table
    with pytest.raises(InputError), database.open_session() as look:  # noqa: PT012
        look.plan_fetch(rows)()
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                          " AND datname = current_database()")  # fmt: skip
        look.plan_fetch(rows)()


def test_bad_addresses_are_refused_without_their_password(tmp_path):
    (tmp_path / "text.duckdb").write_text("no database\n" * 100)
    (tmp_path / "city.ledger").write_bytes(b"SQLite format 3\0" + bytes(84))
    server = "postgresql://me:{}/city"
    for where in (
        tmp_path / "text.duckdb", tmp_path / "city.ledger", "mysql://root@localhost/city", "",
        server.format("secret@127.0.0.1:1"), server.format("se/cret@host"), server.format("s@cret@host"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            Engine.open(where)
        assert "cret" not in str(caught.value)


def test_long_and_infinite_decimals_are_numbers_or_missing(postgres_url):
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


#: Texts that end a constant, where a backslash can, and continue as SQL.
ATTACKS = [
    "\\' OR true --", "\\' OR pg_sleep(9) IS NULL --", "\\'; COPY t TO PROGRAM 'true'; --", "\\", "\\\\'", "'", "''",
    "%s", "%", "\\101", "\\u0041", "$$", "E'\\''", "plain",
]  # fmt: skip
#: Settings of a database, or of a role in it, that change what texts, times and functions mean.
HOSTILE = [
    "standard_conforming_strings = off", "client_encoding = LATIN1", "DateStyle = 'SQL, DMY'", "TimeZone = 'Japan'",
    "extra_float_digits = -9", "transform_null_equals = on", "default_transaction_isolation = serializable",
    "default_transaction_read_only = on", "search_path = hostile, public, pg_catalog",
]  # fmt: skip


@pytest.fixture(params=["DATABASE {0}", pytest.param("ROLE postgres IN DATABASE {0}", marks=pytest.mark.slow)])
def hostile(request, postgres_url):
    """A database with hostile settings, and a hostile schema in its search path."""
    hidden = "CREATE FUNCTION hostile.length(text) RETURNS int LANGUAGE sql AS 'SELECT 7'"
    whose = request.param.format(postgres_url.rpartition("/")[2])
    run(postgres_url, "CREATE SCHEMA hostile", hidden, *(f"ALTER {whose} SET {each}" for each in HOSTILE))
    return postgres_url


def _check_texts_stay_texts(database, address, table, texts):
    with psycopg.connect(address) as connection:
        connection.read_only = False
        connection.execute(f'CREATE TABLE {table} (who TEXT, k TEXT, "at" TIMESTAMP, x DOUBLE PRECISION)')
        for text in texts:
            row = ("ann", text, pd.Timestamp("2026-05-04 22:30:00.000001"), 0.1 + 0.2)
            connection.execute(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", row)
    query = database.make_query(table, "who")
    with database.open_session() as look:
        for text in texts:
            quoted = text.replace("'", "''")
            chosen = query.where(f"k in ('{quoted}', 'none')")
            assert look.plan_fetch(chosen.select(k="k").table)()["k"].to_pylist() == [text]
    return query


def test_texts_and_names_stay_texts_whatever_the_server_settings_are(hostile, monkeypatch):
    database = Engine.open(hostile)
    query = _check_texts_stay_texts(database, hostile, "t", [*ATTACKS, "é\\"])
    plain = query.where("at > '2026-05-04 22:30:00' and k = 'plain'").select(x="x", n="length(k)", at="at").table
    with database.open_session() as look:
        (own,) = look.plan_fetch(plain)().to_pylist()
    assert (own["x"], own["n"], own["at"]) == (0.1 + 0.2, 5, pd.Timestamp("2026-05-04 22:30:00.000001"))
    with pytest.raises(InputError):
        database.make_query("\\'; DROP SCHEMA hostile; --", "who")
    # Also if the server keeps no setting: the driver writes constants as the connection needs them.
    monkeypatch.setattr(engines, "apply_settings", lambda *_: None)
    _check_texts_stay_texts(Engine.open(hostile), hostile, "u", ATTACKS)


SOMEBODY = UUID("550e8400-e29b-41d4-a716-446655440000")
OWNERS = {
    "SMALLINT": "1", "INTEGER": "1", "BIGINT": "1", "TEXT": "'1'", "VARCHAR(9)": "'1'", "CHAR(5)": "'1'",
    "UUID": f"'{SOMEBODY}'",
}  # fmt: skip
OTHERS = {"DOUBLE PRECISION": "1", "NUMERIC(9, 2)": "1", "BOOLEAN": "TRUE", "TIMESTAMPTZ": "'2020-01-01'"}


def test_one_person_has_one_name_in_all_databases(tmp_path, where):
    blob = {"BLOB" if isinstance(where, duckdb.DuckDBPyConnection) else "BYTEA": "'1'"}
    everything = {**OWNERS, **OTHERS, **blob}
    for number, (kind, value) in enumerate(everything.items()):
        run(where, f"CREATE TABLE t{number} (who {kind}, n INTEGER)", f"INSERT INTO t{number} VALUES ({value}, 1)")
    database = Engine.open(where)
    for number, kind in enumerate(everything):
        if kind not in OWNERS:
            with pytest.raises(dh.InputError):
                People(database, f"t{number}", owner="who", ledger=tmp_path / "l", epsilon=9)
            continue
        people = People(database, f"t{number}", owner="who", ledger=tmp_path / "l", epsilon=9)
        assert people.enrol() == (number == 0 or kind == "UUID")
        people.records.count(epsilon=1)
    assert people.spent(["1", str(SOMEBODY)]) == [len(OWNERS) - 1, 1]


def test_one_person_is_one_in_all_forms_of_the_name(tmp_path, where, monkeypatch):
    """Records under all forms are one person's: they are paid for together, and distinct and at_most see them all."""
    without_noise(monkeypatch)
    run(
        where,
        "CREATE TABLE t (who TEXT, kind TEXT)",
        "INSERT INTO t VALUES ('Jos\u00e9', 'bus'), ('Jose\u0301', 'bus'), ('7', 'bus'), (' 7 ', 'tram'), ('  ', 'x')",
    )
    people = People(where, "t", owner="who", ledger=tmp_path / "l", epsilon=2)
    people.join([7])
    assert people.enrol() == 1
    assert people.records.count(epsilon=0.5).estimate == 4
    assert people.records.distinct("kind").count(epsilon=0.25).estimate == 3
    assert people.records.at_most(1).count(epsilon=0.25).estimate == 2
    assert people.spent(["Jose\u0301", " 7"]) == [1.5, 1.75]
    assert people.records.count(epsilon=0.25).estimate == 2  # José pays for two
    assert people.spent(["Jos\u00e9", "7"]) == [2, 1.75]


COLLATIONS = {"duckdb": ["NOCASE", "NOCASE.NOACCENT"], "postgresql": ["loose"]}


@pytest.fixture
def collated(where):
    """The names of tables whose columns of text have a collation in which a, A and á are equal."""
    kind = "duckdb" if isinstance(where, duckdb.DuckDBPyConnection) else "postgresql"
    if kind == "postgresql":
        try:
            run(where, "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)")
        except psycopg.errors.FeatureNotSupported:
            pytest.skip("this server has no ICU")
    for number, collation in enumerate(COLLATIONS[kind]):
        run(
            where,
            f"CREATE TABLE t{number} (who TEXT COLLATE {collation}, kind TEXT COLLATE {collation})",
            f"INSERT INTO t{number} VALUES ('ada', 'bus'), ('ADA', 'BUS'), ('ADA', 'bus'), ('\u00e1da', 'b\u00fas')",
        )
    return [f"t{number}" for number in range(len(COLLATIONS[kind]))]


def test_a_collation_makes_no_record_belong_to_several_people(tmp_path, where, collated, monkeypatch):
    """Names, keys and values are compared by their bytes: each record is one person's, and has one partner at most."""
    without_noise(monkeypatch)
    names = ["ada", "ADA", "\u00e1da", "Ada"]
    for table in collated:
        people = People(where, table, owner="who", ledger=tmp_path / table, epsilon=10)
        people.join(names)
        assert people.enrol() == 0
        assert people.records.count(epsilon=1).estimate == 4
        assert people.spent(names) == [1, 2, 1, 0]
        assert people.records.distinct("kind").count(epsilon=1).estimate == 4
        assert people.records.at_most(1).count(epsilon=1).estimate == 3
        kinds = people.records.histogram("kind", ["bus", "BUS", "b\u00fas", "Bus"], epsilon=1)
        assert [answer.estimate for answer in kinds.values()] == [2, 1, 1, 0]
        assert people.records.where("kind = 'bus' or kind in ('BuS')").count(epsilon=1).estimate == 2
        assert people.spent(names) == [5, 8, 4, 0]


def test_columns_of_a_type_with_its_own_comparison_are_not_read(tmp_path, postgres_url):
    run(
        postgres_url,
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        "CREATE DOMAIN loosely AS TEXT COLLATE loose",
        "CREATE TABLE t (who loosely, kind loosely, n INTEGER)",
    )
    with pytest.raises(dh.InputError, match="owner"):
        People(postgres_url, "t", owner="who", ledger=tmp_path / "l", epsilon=1)
    assert "kind" not in Engine.open(postgres_url).make_query("t", "n").columns
