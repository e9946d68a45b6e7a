"""One person, one name: by whatever type, frame or database it comes."""

from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deltahist as dh
from deltahist.personal.database import Database, name_owners, read_names
from tests.personal.city import city, frame

SOMEBODY = UUID("550e8400-e29b-41d4-a716-446655440000")


class Number(IntEnum):
    ONE = 1


class Text(str, Enum):  # noqa: UP042 - it prints as Text.TWO
    TWO = "2"


def test_one_person_has_one_name_in_all_frames(tmp_path):
    people = city(tmp_path)
    people.join(["1", "2"], epsilon=13)
    for owners in (
        [1, 2],
        ["1", "2"],
        np.array([1, 2], dtype=np.int8),
        np.array([1, 2], dtype=np.uint64),
        np.array(["1", "2"]),
        pd.array([1, 2], dtype="Int64"),
        pd.array([1, 2], dtype=pd.ArrowDtype(pa.int32())),
        pd.array(["1", "2"], dtype=pd.ArrowDtype(pa.string())),
        pd.array(["1", "2"], dtype="string"),
        pd.Categorical(["1", "2"]),
        pd.Series([np.int64(1), "2"], dtype=object),
        pd.Series([Number.ONE, Text.TWO], dtype=object),
    ):
        people.insert(frame([("", "bus", 8, 1.0)] * 2).assign(who=owners))
    people.records.count(epsilon=1)
    assert people.left(["1", "2"]) == [1, 1]
    with people.turn() as turn:
        assert len(turn.limits) == 2


OWNERS_OF_NO_NAME = [
    *(1.0, np.float32(1), True, np.True_, Decimal(1), Decimal("1.0"), b"1", bytearray(b"1"), 1 + 0j),
    *(date(2020, 1, 1), datetime(2020, 1, 1), pd.Timestamp("2020-01-01"), np.datetime64("2020-01-01")),
    *(pd.Timedelta(1), pd.Period("2020"), np.timedelta64(1), (1,), object()),
]


def test_what_could_be_two_names_is_refused():
    """Also where another owner of the frame equals it: 1 == True == Decimal(1)."""
    # Of NumPy's arrays, times would be whole numbers.
    columns = [np.array(["2020-01-01"], dtype="M8[ns]"), np.array([1], dtype="m8[ns]")]
    for owner in OWNERS_OF_NO_NAME:
        columns += [pd.Series([owner], dtype=object), pd.Series([1, owner], dtype=object), pd.Series([owner])]
        with pytest.raises(dh.InputError, match=r"somebody is called"):
            read_names([owner], "somebody")
    for owners in columns:
        with pytest.raises(dh.InputError, match=r"an owner is .*, of type \w+: it must be text, a whole number or a"):
            name_owners(owners)


def test_nobody_joins_by_what_is_no_name(tmp_path):
    people = city(tmp_path)
    for name in ("", "a\0b", "\ud800", 1.0):
        rows = frame([("", "bus", 8, 1.0)]).assign(who=pd.Series([name], dtype=object))
        with pytest.raises(dh.InputError, match=r"somebody is called .*: "):
            people.join([name])
        with pytest.raises(dh.InputError, match=r"an owner is "):
            people.insert(rows)
    with people.turn() as turn:
        assert not len(turn.limits)


OWNERS = {
    "SMALLINT": "1", "INTEGER": "1", "BIGINT": "1", "TEXT": "'1'", "VARCHAR(9)": "'1'", "CHAR(5)": "'1'",
    "UUID": f"'{SOMEBODY}'",
}  # fmt: skip
OTHERS = {
    "REAL": "1", "DOUBLE PRECISION": "1", "NUMERIC(9, 2)": "1", "BOOLEAN": "TRUE", "DATE": "'2020-01-01'",
    "TIMESTAMP": "'2020-01-01'", "TIMESTAMPTZ": "'2020-01-01'",
}  # fmt: skip


@pytest.mark.parametrize("where", ["duckdb", "postgresql"])
def test_one_person_has_one_name_in_all_databases(tmp_path, request, where):
    address = ":memory:" if where == "duckdb" else request.getfixturevalue("postgres_url")
    database = Database.open(address)
    blob = {"BLOB" if where == "duckdb" else "BYTEA": "'1'"}
    everything = {**OWNERS, **OTHERS, **blob}
    with database._engine.change() as change:
        for number, (kind, value) in enumerate(everything.items()):
            change.execute(f"CREATE TABLE t{number} (who {kind}, n INTEGER)")
            change.execute(f"INSERT INTO t{number} VALUES ({value}, 1)")
    for number, kind in enumerate(everything):
        if kind not in OWNERS:
            with pytest.raises(dh.InputError, match="it must hold text, whole numbers or UUIDs"):
                dh.People(database, f"t{number}", owner="who", ledger=tmp_path / "l", epsilon=9)
            continue
        people = dh.People(database, f"t{number}", owner="who", ledger=tmp_path / "l", epsilon=9)
        assert people.enrol() == (number == 0 or kind == "UUID")
        people.records.count(epsilon=1)
    assert people.spent(["1", str(SOMEBODY)]) == [len(OWNERS) - 1, 1]
    # The same persons in frames.
    database.create_records("trip", {"n": "whole"}, owner="who")
    people = dh.People(database, "trip", owner="who", ledger=tmp_path / "l", epsilon=9)
    people.insert(pd.DataFrame({"who": pd.Series([1, "1", np.int8(1), SOMEBODY], dtype=object), "n": 1}))
    assert len(database.persons()[0]) == 2
    database.close()
