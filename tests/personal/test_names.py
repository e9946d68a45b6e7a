"""One person, one name: of whatever type the owner's column is, and whatever collation it has."""

from uuid import UUID

import duckdb
import psycopg
import pytest

import deltahist as dh
from deltahist.personal import Database, People
from tests.personal.city import city, run, without_noise

SOMEBODY = UUID("550e8400-e29b-41d4-a716-446655440000")
OWNERS = {
    "SMALLINT": "1", "INTEGER": "1", "BIGINT": "1", "TEXT": "'1'", "VARCHAR(9)": "'1'", "CHAR(5)": "'1'",
    "UUID": f"'{SOMEBODY}'",
}  # fmt: skip
OTHERS = {
    "REAL": "1", "DOUBLE PRECISION": "1", "NUMERIC(9, 2)": "1", "BOOLEAN": "TRUE", "DATE": "'2020-01-01'",
    "TIMESTAMP": "'2020-01-01'", "TIMESTAMPTZ": "'2020-01-01'",
}  # fmt: skip


@pytest.fixture(params=["duckdb", "postgresql"])
def where(request):
    return duckdb.connect() if request.param == "duckdb" else request.getfixturevalue("postgres_url")


def test_nobody_joins_by_what_is_no_name(tmp_path):
    people = city(tmp_path)
    for name in ("", "\ud800", 1.0, None):
        with pytest.raises(dh.InputError, match=r"somebody is called .*: "):
            people.join([name])
    with people.purses.turn() as turn:
        assert not len(turn.limits)


def test_one_person_has_one_name_in_all_databases(tmp_path, where):
    blob = {"BLOB" if isinstance(where, duckdb.DuckDBPyConnection) else "BYTEA": "'1'"}
    everything = {**OWNERS, **OTHERS, **blob}
    for number, (kind, value) in enumerate(everything.items()):
        run(where, f"CREATE TABLE t{number} (who {kind}, n INTEGER)", f"INSERT INTO t{number} VALUES ({value}, 1)")
    database = Database.open(where)
    for number, kind in enumerate(everything):
        if kind not in OWNERS:
            with pytest.raises(dh.InputError, match="it must hold text, whole numbers or UUIDs"):
                People(database, f"t{number}", owner="who", ledger=tmp_path / "l", epsilon=9)
            continue
        people = People(database, f"t{number}", owner="who", ledger=tmp_path / "l", epsilon=9)
        assert people.enrol() == (number == 0 or kind == "UUID")
        people.records.count(epsilon=1)
    assert people.spent(["1", str(SOMEBODY)]) == [len(OWNERS) - 1, 1]


def test_a_text_with_a_zero_is_a_name_like_others(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE visits AS SELECT 'Ada' AS who UNION ALL SELECT 'Bob' || chr(0) || 'secret'")
    people = People(connection, "visits", owner="who", ledger=tmp_path / "l", epsilon=1)
    assert people.enrol() == 2
    assert people.records.count(epsilon=1).estimate == 2


def _collated(where):
    """A table whose columns of text have a collation that takes capitals for small letters."""
    collation = "NOCASE"
    if isinstance(where, str):
        collation = "nocase"
        run(where, "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    run(
        where,
        f"CREATE TABLE t (who TEXT COLLATE {collation}, kind TEXT COLLATE {collation})",
        "INSERT INTO t VALUES ('ada', 'bus'), ('ADA', 'BUS'), ('ADA', 'bus'), ('ada', 'tram')",
    )


def test_a_collation_does_not_make_one_person_of_two(tmp_path, where, monkeypatch):
    """Nobody's derived records depend on the records of somebody whose name differs by capitals alone."""
    without_noise(monkeypatch)
    try:
        _collated(where)
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server has no ICU")
    people = People(where, "t", owner="who", ledger=tmp_path / "l", epsilon=10)
    assert people.enrol() == 2
    assert people.records.distinct("kind").count(epsilon=1).estimate == 4
    assert people.records.at_most(1).count(epsilon=1).estimate == 2
    assert people.spent(["ada", "ADA"]) == [3, 3]


def test_keys_are_compared_by_their_bytes(tmp_path, where, monkeypatch):
    """One record has one partner at most in a public table, and one value of a histogram."""
    without_noise(monkeypatch)
    try:
        _collated(where)
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server has no ICU")
    people = People(where, "t", owner="who", ledger=tmp_path / "l", epsilon=10)
    people.enrol()
    kinds = people.records.histogram("kind", ["bus", "BUS", "Bus", "tram"], epsilon=1)
    assert [answer.estimate for answer in kinds.values()] == [2, 1, 0, 1]
    assert people.records.where("kind = 'bus'").count(epsilon=1).estimate == 2
    assert people.spent(["ada", "ADA"]) == [3, 3]
