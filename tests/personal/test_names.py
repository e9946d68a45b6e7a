"""One person, one name: of whatever type the owner's column is, and whatever collation it has."""

from uuid import UUID

import duckdb
import pandas as pd
import psycopg
import pytest

import deltahist as dh
from deltahist.personal import Engine, People
from tests.personal.city import run, without_noise

SOMEBODY = UUID("550e8400-e29b-41d4-a716-446655440000")
OWNERS = {
    "SMALLINT": "1", "INTEGER": "1", "BIGINT": "1", "TEXT": "'1'", "VARCHAR(9)": "'1'", "CHAR(5)": "'1'",
    "UUID": f"'{SOMEBODY}'",
}  # fmt: skip
OTHERS = {"DOUBLE PRECISION": "1", "NUMERIC(9, 2)": "1", "BOOLEAN": "TRUE", "TIMESTAMPTZ": "'2020-01-01'"}


@pytest.fixture(params=["duckdb", "postgresql"])
def where(request):
    return duckdb.connect() if request.param == "duckdb" else request.getfixturevalue("postgres_url")


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
        public = pd.DataFrame({"kind": ["bus", "BUS", "Bus", "BuS"]})
        assert people.records.join(public, "kind").count(epsilon=1).estimate == 3
        assert people.spent(names) == [6, 10, 4, 0]


def test_columns_of_a_type_with_its_own_comparison_are_not_read(tmp_path, postgres_url):
    run(
        postgres_url,
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        "CREATE DOMAIN loosely AS TEXT COLLATE loose",
        "CREATE TABLE t (who loosely, kind loosely, n INTEGER)",
    )
    with pytest.raises(dh.InputError, match="text"):
        People(postgres_url, "t", owner="who", ledger=tmp_path / "l", epsilon=1)
    assert "kind" not in Engine.open(postgres_url).make_query("t", "n").columns
