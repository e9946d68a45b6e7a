"""Conditions on rows against pandas; what is refused; moving points chooses the same rows."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deltahist as dh
from deltahist.counting import count_file
from deltahist.counting.conditions import Condition
from deltahist.preprocessing import Preprocessing

SQUARE = dh.Domain((0, 0, 10, 10), (10, 10))
XY = {"x": "x", "y": "y"}


@pytest.fixture
def table():
    """Rows with every kind of column, some of them missing."""
    rng = np.random.default_rng(7)
    number = 400
    frame = pd.DataFrame(rng.uniform(0, 10, (number, 2)), columns=["x", "y"])
    frame["kind"] = rng.choice(["bus", "tram", "it's", None], number)
    frame["speed"] = np.where(rng.random(number) < 0.1, np.nan, rng.integers(0, 20, number))
    frame["open"] = rng.choice([True, False], number)
    frame["when"] = pd.Timestamp("2020-01-01", tz="UTC") + pd.to_timedelta(rng.integers(0, 99, number), unit="h")
    frame["user"] = rng.integers(0, 30, number)
    return frame


def write(table, path):
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)


def refuses(parts, function, *values, **options):
    with pytest.raises(dh.InputError) as caught:
        function(*values, **options)
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


SAME = [
    ("kind = 'bus'", lambda t: t.kind == "bus"),
    ("kind <> 'bus'", lambda t: (t.kind != "bus") & t.kind.notna()),  # as in SQL: null is neither
    ("not kind = 'bus'", lambda t: (t.kind != "bus") & t.kind.notna()),
    ("kind = 'it''s'", lambda t: t.kind == "it's"),
    ("kind is null", lambda t: t.kind.isna()),
    ("kind is not null and speed is null", lambda t: t.kind.notna() & t.speed.isna()),
    ("kind in ('bus', 'tram')", lambda t: t.kind.isin(["bus", "tram"])),
    ("kind not in ('bus')", lambda t: (t.kind != "bus") & t.kind.notna()),
    ("kind like '%u%'", lambda t: t.kind == "bus"),
    ("speed > 3", lambda t: t.speed > 3),
    ("3 < speed", lambda t: t.speed > 3),
    ("3.5 >= speed", lambda t: t.speed <= 3.5),
    ("speed <> 4", lambda t: t.speed.notna() & (t.speed != 4)),
    ("speed > -1", lambda t: t.speed > -1),
    ("speed between 3 and 5", lambda t: t.speed.between(3, 5)),
    ("speed in (1, 2.0, 1e1)", lambda t: t.speed.isin([1, 2, 10])),
    ("open = true", lambda t: t.open),
    ("open <> true or speed = 1", lambda t: ~t.open | (t.speed == 1)),
    ("(kind = 'bus' or kind = 'tram') and not (speed < 5)", lambda t: t.kind.isin(["bus", "tram"]) & (t.speed >= 5)),
    ("kind = 'bus' or speed > 3 and open = false", lambda t: (t.kind == "bus") | ((t.speed > 3) & ~t.open)),
    ('"when" >= \'2020-01-03\'', lambda t: t.when >= "2020-01-03"),
    ("user = 7", lambda t: t.user == 7),
]  # fmt: skip


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_the_rows_are_those_of_pandas(tmp_path, table, name):
    write(table, tmp_path / name)
    # Reading Parquet takes a process each time: a condition of each type there.
    for where, expected in SAME if name == "t.csv" else SAME[::4]:
        rows = expected(table).to_numpy(bool)
        assert 0 < rows.sum() < len(rows), where  # it tells something
        counted = count_file(tmp_path / name, SQUARE, **XY, where=where)
        same = dh.count(table.loc[rows, ["x", "y"]].to_numpy(), SQUARE)
        np.testing.assert_array_equal(counted.counts, same, err_msg=where)
        assert (counted.rows, counted.bad_rows, counted.unmatched) == (400, 0, int((~rows).sum())), where
        assert counted.counts.counting.where == where


def test_moving_points_chooses_the_same_rows(tmp_path, table):
    """What the guarantee rests on: of two neighbours the same rows are counted, also where users are bounded."""
    how = {"where": "kind = 'bus' or speed > 12", "user": "user", "max_per_user": 2, "key": bytes(32)}
    path = tmp_path / "t.csv"
    table.assign(x=np.arange(400)).to_csv(path, index=False)  # each row in a cell of its own
    stayed = np.flatnonzero(count_file(path, dh.Domain((-0.5, 399.5), (400,)), x="x", **how).counts)
    assert 30 < len(stayed) <= 60
    for frame in (table, table.assign(x=10 - table.x, y=table.x)):
        frame.to_csv(path, index=False)
        expected = dh.count(frame.loc[stayed, ["x", "y"]].to_numpy(), SQUARE)
        np.testing.assert_array_equal(count_file(path, SQUARE, **XY, **how).counts, expected)


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        ("speed > 3 and", ["cannot be read", "kind = 'bus'"]),
        ("when > '2020'", ["cannot be read", "double quotes"]),
        ("speed > avg(speed)", ["'AVG(speed)'", "constants"]),
        ("speed > 3 and rand() > 0.5", ["RAND"]),
        ("speed in (select 3)", ["SELECT"]),
        ("speed > 3; drop table x", ["cannot be read"]),
        ("speed + 1 > 3", ["'speed + 1'"]),
        ("speed > other", ["'speed > other'", "single quotes"]),
        ("kind = \"bus\"", ["'kind = \"bus\"'", "single quotes"]),
        ("open", ["'open'", "= true"]),
        ("kind = null", ["is null"]),
        ("t.kind = 'bus'", ["'t.kind'", "double quotes"]),
        ("speed between symmetric 5 and 1", ["'(speed BETWEEN"]),
        ("kind like 3", ["LIKE"]),
        ("kind = 'bus' or kind = 3", ["'kind'", "text", "numbers"]),
        ("(" * 400 + "a = 1" + ")" * 400, ["cannot be read"]),
        ("a = '" + "x" * 2000 + "'", ["at most 1,000"]),
        ("a < 1e999", ["the number '1e999'", "a float holds"]),
        ("a < -" + "9" * 900, ["'9999999999999999999999999999999999999999...' (900 characters)"]),
        ("a = 'b\nc'", ["one line"]),
        ("  ", ["must be a condition"]),
        (3, ["where is 3"]),
    ],
)  # fmt: skip
def test_more_than_comparisons_is_refused(where, parts):
    refuses(parts, Condition.of, where)


@pytest.mark.parametrize(
    ("name", "where", "parts"),
    [
        ("t.csv", "x > 3", ["'x'", "vanish by moving", "bounds of the domain"]),
        ("t.csv", '"0" > 3', ["'0'", "vanish by moving"]),  # the same column by its number
        ("t.csv", "kind = 'bus' and (speed > 3 or y is null)", ["'y'", "vanish by moving"]),
        ("t.csv", "Lat > 40", ["'Lat'", "vanish by moving"]),  # not one that is read, but a coordinate all the same
        ("t.csv", "colour = 'red'", ["'colour'", "x, y, kind, speed"]),
        ("t.csv", "kind > 3", ["rows of 't.csv'", "values that `where` asks for"]),
        ("t.csv", "kind = true", ["values that `where` asks for"]),
        ("t.csv", "kind = 'NA'", ["'NA'", "is null"]),
        ("t.parquet", "speed = 'fast'", ["'speed'", "double", "without quotes"]),
        ("t.parquet", "open = 1", ["'open'", "bool", "true and false"]),
        ("t.parquet", "\"when\" > 'soon'", ["'when'", "'soon'", "2010-01-31"]),
        ("t.parquet", "\"when\" like '2010%'", ["does not go with"]),
        ("t.parquet", "raw = 'a'", ["'raw'", "binary", "null"]),
    ],
)
def test_conditions_that_do_not_go_with_a_table_are_refused(tmp_path, table, name, where, parts):
    write(table.assign(Lat=1, raw=b"a"), tmp_path / name)
    refuses(parts, count_file, tmp_path / name, SQUARE, **XY, where=where)


def test_rows_that_cannot_be_asked_are_bad_rows(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,speed\n1,1,5\n1,1,\n1,1,7 km/h\n1,1,1\nabc,1,1\n")
    with pytest.raises(dh.InputError, match=r"1 of 5 rows .*`where`.*row 3"):
        count_file(tmp_path / "t.csv", SQUARE, **XY, where="speed > 3")
    counted = count_file(tmp_path / "t.csv", SQUARE, **XY, where="speed > 3", drop_bad_rows=True)
    # The last row is not chosen, so that its coordinate is nobody's concern.
    assert (counted.kept, counted.bad_rows, counted.unmatched) == (1, 1, 3)


def test_long_ids_are_told_apart(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,id\n1,1,9007199254740993\n1,1,9007199254740992\n")
    assert count_file(tmp_path / "t.csv", SQUARE, **XY, where="id = 9007199254740993").kept == 1


@pytest.mark.parametrize(
    "where", ["a = 9007199254740992", "a <> 31", "a in (7, 3.5)", "a between 30 and 1e16", "a is null or a = 1"]
)
def test_other_rows_change_nothing(where):
    """A row that comes or goes must not let others vanish."""
    for value in ("9007199254740993", "0x1F", "-9199999999999999999", "31", "3.5", "1e3", "007"):
        found = []
        for other in ("5", "5.5", "abc", ""):
            chosen, good = Condition.of(where).choose({"a": pa.array([value, other])})
            found.append((bool(chosen[0] & good[0]), bool(good[0])))
        assert len(set(found)) == 1


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_times_without_a_zone_are_in_utc(zone):
    times = pa.array([datetime.datetime(2020, 1, 1, h) for h in (4, 5, 6)], pa.timestamp("ms", tz=zone))
    for text in ("2020-01-01T05:00", "2020-01-01T00:00-05:00"):
        assert Condition.of(f"t >= '{text}'").choose({"t": times})[0].tolist() == [False, True, True]
    numbers = pa.array([9007199254740993, 3])  # long whole numbers and a fraction
    assert Condition.of("a > 3.5").choose({"a": numbers})[0].tolist() == [True, False]


def test_a_condition_is_part_of_how_rows_become_counts(tmp_path, table):
    table.to_csv(tmp_path / "t.csv", index=False)
    near = dh.Neighbourhood(SQUARE, 1)
    counts = count_file(tmp_path / "t.csv", SQUARE, **XY, where="kind = 'bus'").counts
    release = dh.publish(counts, near, epsilon=1, strategy="identity")
    release.save(tmp_path / "r.parquet")
    loaded = dh.load(tmp_path / "r.parquet")
    assert loaded.counting.where == loaded.facts()["where"] == "kind = 'bus'"
    assert loaded.total == counts.sum()
    text = " ".join(loaded.statement().split())
    assert "only those where kind = 'bus' which rows these are is taken as fixed" in text
    assert "nor how many rows meet it" in text
    mechanism = dh.Mechanism(
        near, dh.strategies.Identity(SQUARE), dh.Budget(1), counting=Preprocessing(where="kind = 'tram'")
    )
    with pytest.raises(dh.InputError, match=r"where kind = 'tram'.*where kind = 'bus'"):
        dh.publish(counts, mechanism)


def test_the_statement_says_what_a_condition_gives_away():
    def statement(near, where=None):
        counting = Preprocessing(where=where)
        return dh.Mechanism(near, dh.strategies.Identity(SQUARE), dh.Budget(1), counting=counting).statement()

    assert "where" not in Preprocessing().describe()  # ledgers and files of before compare equal
    assert "only those where" not in statement(dh.Neighbourhood(SQUARE, 1))
    text = statement(dh.Neighbourhood(SQUARE, 1, "boundary"), "kind = 'bus'")
    assert "what the condition asks for is not" in text
    assert "how many rows meet it" not in text


@pytest.mark.parametrize("where", [5, "", "x" * 2000, "a\u202eb", ["a"]])
def test_a_description_with_no_condition_in_its_place_is_refused(where):
    described = {**Preprocessing().describe(), "version": 2, "where": where}
    with pytest.raises(dh.InputError, match="where is"):
        Preprocessing.from_description(described)
    assert Preprocessing.from_description(described | {"where": "a = 1"}).where == "a = 1"
