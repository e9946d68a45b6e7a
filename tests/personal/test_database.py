"""Databases with records of people: DuckDB and PostgreSQL behave alike."""

import sys
import threading
import time

import duckdb
import ibis
import pandas as pd
import psycopg
import pytest

from deltahist.errors import InputError
from deltahist.personal import engine as engines
from deltahist.personal.database import Database
from deltahist.personal.query import OWNER

VISITS = pd.DataFrame(
    {
        "who": ["ann", "bob", "ann"],
        "place": ["bar", None, 'it\'s "x",\n'],
        "stay": [1.5, 0.1, None],
        "n": [1, None, 3],
    }
)
KINDS = {"place": "text", "stay": "number", "n": "whole", "at": "time", "day": "date", "ok": "truth"}


@pytest.fixture(params=["duckdb", "postgresql"])
def address(request, tmp_path):
    """The address of an empty database."""
    return (
        str(tmp_path / "city.duckdb")
        if request.param == "duckdb"
        else request.getfixturevalue("postgres_url")
    )


@pytest.fixture
def database(address):
    opened = Database.open(address)
    opened.register(["ann", "bob"], 0)
    yield opened
    opened.close()


def _run(address, *statements):
    with (psycopg if address.startswith("postgres") else duckdb).connect(address) as connection:
        for statement in statements:
            connection.execute(statement)


def _rows(database, query, **values):
    with database.snapshot() as look:
        found = look.fetch(query.rows(**values))
    return sorted(map(tuple, (row.values() for row in found.to_pylist())), key=repr)


def test_records_come_back_as_they_went_in(database):
    frame = VISITS.assign(
        at=pd.Timestamp("2026-05-01 22:30:00.123456"), day=pd.Timestamp("2026-05-01"), ok=True
    )
    frame["day"] = frame["day"].dt.date
    database.create_records("visits", KINDS, owner="who")
    assert database.insert("visits", frame) == 3
    assert database.insert("visits", frame[::-1][list(reversed(frame.columns))]) == 3
    query = database.query("visits", "who")
    assert query.columns == KINDS
    rows = _rows(database, query, place="place", stay="stay", n="n", at="at", day="day", ok="ok")
    when, day = frame["at"][0].to_pydatetime(warn=False), frame["day"][0]
    assert rows == sorted(
        [(0, "bar", 1.5, 1, when, day, True), (1, None, 0.1, None, when, day, True),
         (0, "it's \"x\",\n", None, 3, when, day, True)] * 2, key=repr
    )  # fmt: skip


def test_a_table_of_others_gets_its_owners_from_the_register(address):
    _run(address, 'CREATE TABLE "t a" (who INTEGER, name TEXT, j INTERVAL)',
         "INSERT INTO \"t a\" (who, name) VALUES (7, 'x'), (8, 'y'), (7, NULL), (9, 'z'), (NULL, 'z')")  # fmt: skip
    database = Database.open(address)
    database.register(["8", "7"], 3)
    query = database.query("t a", "who")
    assert query.columns == {"name": "text"}
    assert _rows(database, query, v="name") == [(3, "y"), (4, "x"), (4, None)]
    assert _rows(database, query.where("name = 'z'")) == []


def test_persons_are_numbered_once(database):
    assert database.numbers(["bob", "eve", "ann", "bob"]).tolist() == [1, -1, 0, 1]
    assert database.numbers([]).tolist() == []
    database.register(["bob", "eve"], 1)
    assert database.numbers(["eve"]).tolist() == [2]
    with pytest.raises(InputError, match="person 'ann' is registered already"):
        database.register(["zoe", "ann"], 7)
    assert database.numbers(["zoe"]).tolist() == [-1]
    for names, first, message in (
        (["zoe", "zoe"], 7, "'zoe' is named twice"),
        ([""], 7, "a person is called ''"),
        (["zoe"], -1, "first is -1"),
        (["zoe"], 2**31 - 1, "there can be 2,147,483,647 persons"),
    ):
        with pytest.raises(InputError, match=message):
            database.register(names, first)


def test_records_are_inserted_all_or_none(database):
    database.create_records("visits", {"place": "text", "stay": "number", "n": "whole"}, owner="who")
    refused = [
        (
            VISITS.assign(who=["ann", "eve", "zoe"]),
            "2 of 3 records are of persons who are not registered, such as 'eve'",
        ),
        (VISITS.assign(who=[1.0, 2.0, 3.0]), r"an owner is 1.0, of type float: .*astype\(\"Int64\"\)"),
        (VISITS.assign(who=["ann", None, "bob"]), "1 of 3 records have no 'who'"),
        (VISITS.drop(columns="n"), r"table 'visits' takes \['n', 'place', 'stay', 'who'\]"),
        (VISITS.assign(n=[1.5, 2, 3]), "'n' of the kind 'values that do not fit': the table holds 'whole'"),
        (VISITS.assign(who=[3.0, None, 4.0]), r"an owner is 3.0, of type float: .*astype\(\"Int64\"\)"),
        (VISITS.assign(stay=["1", "2", "3"]), "'stay' of the kind 'text': the table holds 'number'"),
    ]
    for frame, message in refused:
        with pytest.raises(InputError, match=message):
            database.insert("visits", frame)
    assert _rows(database, database.query("visits", "who")) == []
    with pytest.raises(InputError, match="'deltahist_person' was not made by create_records"):
        database.insert("deltahist_person", VISITS)


def test_what_is_not_there_or_is_already(database):
    database.create_records("visits", {"place": "text"}, owner="who")
    for ask, message in (
        (lambda d: d.query("nowhere", "who"), "has no table 'nowhere'"),
        (lambda d: d.query("visits", "whom"), "owner is 'whom': it must be one of 'who'"),
        (lambda d: d.query("visits", "who", place=["x"]), "column 'x', which is not there: there are 'place'"),
        (lambda d: d.create_records("visits", {"a": "text"}, "who"), "table 'visits' is there already"),
        (lambda d: d.create_records("deltahist_person", {"a": "text"}, "who"), "is there already"),
        (lambda d: d.create_records("more", {"a": "float"}, "who"), "kind is 'float': it must be one of 'truth'"),
        (lambda d: d.create_records("more", {}, "who"), "'more' has no columns"),
        (lambda d: d.create_records("more", {OWNER: "whole"}, "who"), "'_person', which is kept"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            ask(database)


def test_a_column_that_is_called_like_the_hidden_one_is_refused(address):
    _run(
        address,
        f"CREATE TABLE mine (who TEXT, {OWNER} INTEGER)",
        "CREATE TABLE other (who DOUBLE PRECISION, a INTEGER)",
    )
    database = Database.open(address)
    with pytest.raises(InputError, match="'_person', which is kept for the numbers of persons: rename it"):
        database.query("mine", "who")
    with pytest.raises(
        InputError, match="owner is 'who', of type float64: it must hold text, whole numbers or UUIDs"
    ):
        database.query("other", "who")


def test_a_snapshot_does_not_see_what_comes_later(database):
    database.create_records("visits", {"place": "text"}, owner="who")
    one = pd.DataFrame({"who": ["ann"], "place": ["bar"]})
    database.insert("visits", one)
    query = database.query("visits", "who")
    with database.snapshot() as look:
        assert len(look.fetch(query.rows())) == 1
        writer = threading.Thread(target=database.insert, args=("visits", one))
        writer.start()
        writer.join()
        assert len(look.fetch(query.rows())) == 1
    assert len(_rows(database, query)) == 2


def test_failures_on_private_rows_say_nothing_of_them(database):
    risky = "CREATE VIEW risky AS SELECT place AS who, CAST(place AS INTEGER) AS n FROM visits"
    database.create_records("visits", {"place": "text"}, owner="who")
    with database._engine.change() as change:
        change.execute(risky)
    database.insert("visits", pd.DataFrame({"who": ["ann"], "place": ["zoo"]}))
    database.register(["zoo"], 2)
    query = database.query("risky", "who")
    with pytest.raises(InputError, match=r"cannot evaluate this: .* What it says is not shown") as caught:
        _rows(database, query, n="n")
    assert "zoo" not in str(caught.value)
    assert caught.value.__context__ is None
    with database._engine.change() as change:
        change.execute("DROP VIEW risky")
    with pytest.raises(InputError, match="was a table or a column changed meanwhile"):
        _rows(database, query, n="n")


@pytest.mark.parametrize("server", [False, True])
def test_what_takes_too_long_is_stopped_in_the_database(request, server):
    endless = "SELECT pg_sleep(600)" if server else "SELECT count(*) FROM range(1000000000000) a, range(9) b"
    database = Database.open(request.getfixturevalue("postgres_url") if server else ":memory:")
    with database.snapshot() as look, pytest.raises(InputError, match="went away"), look.until(time.monotonic() + 0.1):
        look.execute(endless)


def test_a_server_that_goes_away_is_named_and_nothing_is_shown(postgres_url):
    database = Database.open(postgres_url)
    persons = ibis.table({"name": "string", "number": "int32"}, name="deltahist_person")
    with database.snapshot() as look:
        look.fetch(persons)
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                          " AND datname = current_database()")  # fmt: skip
        with pytest.raises(InputError, match=r"went away, or ran out of room, .* nothing was answered"):
            look.fetch(persons)


def test_a_connection_that_was_closed_is_gone():
    connection = duckdb.connect()
    database = Database.open(connection)
    connection.close()
    with pytest.raises(InputError, match="the database of the connection went away, or ran out of room"):
        database.numbers(["ann"])


def test_addresses_that_lead_nowhere(tmp_path):
    (tmp_path / "text.duckdb").write_text("no database\n" * 100)
    (tmp_path / "city.ledger").write_bytes(b"SQLite format 3\0" + bytes(84))
    for where, message in (
        (tmp_path / "text.duckdb", r"text.duckdb' is another file: it must be a DuckDB file"),
        ("mysql://root@localhost/city", r"database is 'mysql'://…: it must be a DuckDB file"),
        (tmp_path / "city.ledger", r"city.ledger' is a SQLite file: .*or is it a ledger"),
        (3, "database is int: it must be a path, an address, or a DuckDB connection"),
        ("postgresql://me:secret@127.0.0.1:1/city", r"the database 'city on 127\.0\.0\.1' does not answer"),
        ("postgresql://me@host/city?nonsense=1", "database is an address that cannot be read"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            Database.open(where)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("module", "extra"), [("duckdb", "duckdb"), ("psycopg", "postgresql")])
def test_libraries_that_are_not_installed_are_named(monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    where = "postgresql://localhost/city" if extra == "postgresql" else "city.duckdb"
    with pytest.raises(
        InputError, match=rf"need {module}, which is not installed: pip install 'deltahist\[{extra}\]'"
    ):
        Database.open(where)


def test_the_last_times_of_a_zone_are_missing():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT 'ann' AS who, unnest(['infinity', '294247-01-10 04:00:54.775806+00', "
        "'2020-01-01 10:00:00+02'])::TIMESTAMPTZ AS at"
    )
    database = Database.open(connection)
    database.register(["ann"], 0)
    rows = _rows(database, database.query("t", "who"), h="extract(hour from at)")
    assert rows == [(0, 8), (0, None), (0, None)]


def test_long_and_endless_decimals_are_numbers_or_missing(postgres_url):
    _run(postgres_url, "CREATE TABLE t (who TEXT, large NUMERIC(400, 0), small NUMERIC(400, 400))",
         "INSERT INTO t VALUES ('ann', 1e350, 1e-399), ('ann', 3, 0.5), ('ann', 'NaN', 'NaN')",
         "CREATE TABLE u (who TEXT, price NUMERIC)",
         "INSERT INTO u SELECT 'ann', n FROM "
         "(VALUES (1e400), (1e-400), (-0.1), ('NaN'::NUMERIC), ('Infinity'::NUMERIC), (0)) AS v (n)")  # fmt: skip
    database = Database.open(postgres_url)
    database.register(["ann"], 0)
    rows = _rows(database, database.query("t", "who"), large="large", small="small")
    assert rows == [(0, 3.0, 0.5), (0, None, 0.0), (0, None, None)]
    rows = _rows(database, database.query("u", "who"), price="price")
    assert rows == [(0, -0.1), (0, 0.0), (0, 0.0), (0, None), (0, None), (0, None)]


def test_a_connection_with_other_settings_reads_texts_alike():
    connection = duckdb.connect()
    connection.execute("SET GLOBAL default_collation = 'NOCASE'")
    database = Database.open(connection)
    database.register(["Ann", "ann"], 0)
    database.create_records("t", {"k": "text"}, owner="who")
    database.insert("t", pd.DataFrame({"who": ["Ann", "ann"], "k": ["BUS", "bus"]}))
    assert _rows(database, database.query("t", "who").where("k = 'bus'")) == [(1,)]


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
    _run(postgres_url, "CREATE SCHEMA hostile", hidden, *(f"ALTER {whose} SET {each}" for each in HOSTILE))
    return postgres_url


def _texts_stay(database, table, texts):
    database.register(["ann"], 0)
    database.create_records(table, {"k": "text", "at": "time", "x": "number"}, owner="who")
    times = pd.to_datetime(["2026-05-04 22:30:00.000001"] * len(texts))
    database.insert(table, pd.DataFrame({"who": "ann", "k": texts, "at": times, "x": 0.1 + 0.2}))
    query = database.query(table, "who")
    with database.snapshot() as look:
        for text in texts:
            said = text.replace("'", "''")
            for chosen in (query.where(lambda t, text=text: t.k == text), query.where(f"k in ('{said}', 'none')")):
                assert look.fetch(chosen.rows(k="k"))["k"].to_pylist() == [text]
                assert look.plan(chosen.rows(k="k"))().num_rows == 1
    return query


def test_a_text_or_a_name_stays_one_whatever_the_servers_settings_are(hostile, monkeypatch):
    database = Database.open(hostile)
    query = _texts_stay(database, "t", [*ATTACKS, "é\\"])
    plain = query.where("at > '2026-05-04 22:30:00' and k = 'plain'").rows(x="x", n="length(k)", at="at")
    with database.snapshot() as look:
        (own,) = look.fetch(plain).to_pylist()
    assert (own["x"], own["n"], own["at"]) == (0.1 + 0.2, 5, pd.Timestamp("2026-05-04 22:30:00.000001"))
    database.register(["\\' OR true --", "bob\\"], 1)
    assert database.numbers(["bob\\", "\\' OR true --", "none"]).tolist() == [2, 1, -1]
    with pytest.raises(InputError, match="has no table"):
        database.query("\\'; DROP SCHEMA hostile; --", "who")
    # Even where no setting is kept: the driver writes constants for the connection that there is.
    monkeypatch.setattr(engines, "settle", lambda *_: None)
    _texts_stay(Database.open(hostile), "u", ATTACKS)


def test_a_server_that_does_not_keep_settings_is_refused(postgres_url, monkeypatch):
    database = Database.open(postgres_url)
    execute = psycopg.Connection.execute

    def lost(connection, query, *more, **options):
        return execute(connection, *(("SELECT 1",) if "set_config" in query else (query, *more)))

    _run(postgres_url, f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET standard_conforming_strings = off")
    monkeypatch.setattr(psycopg.Connection, "execute", lost)
    for ask in (lambda: Database.open(postgres_url), lambda: database.query("t", "who"), database.persons):
        with pytest.raises(InputError, match="has standard_conforming_strings = 'off' although 'on' was set"):
            ask()
