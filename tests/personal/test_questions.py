"""Questions in writing, and the command that asks them."""

import json
import shutil

import duckdb
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.personal import People
from deltahist.personal.questions import Question, _take_steps
from tests.personal.city import without_noise

COUNT = {"kind": "count", "epsilon": 0.1}
NIGHT = """
table = "visits"
owner = "who"

[[steps]]
where = "hour >= 22"

[[steps]]
at_most = 1
by = "hour"

[answer]
kind = "count"
epsilon = 0.5
"""


@pytest.fixture
def night(tmp_path, monkeypatch):
    """A folder with a database and a question."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("city.duckdb") as base:
        base.execute("CREATE TABLE visits AS SELECT unnest(['Ada', 'Ada', 'Bob']) AS who, unnest([22, 23, 22]) AS hour")
    (tmp_path / "night.toml").write_text(NIGHT)
    without_noise(monkeypatch)
    return tmp_path


ASK = ["ask", "night.toml", "--database", "city.duckdb", "--ledger", "city.ledger"]


def test_the_command_asks_and_charges(night, capsys):
    assert main([*ASK, "--limit", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == 2
    assert main([*ASK, "--limit", "1", "--key", "k"]) == 0
    first = capsys.readouterr().out
    assert "number of records whose owners could pay: 2 ± " in first
    assert "person paid ε = 0.5 times the number of their records" in first
    assert "the true number of records may be larger" in first
    assert main([*ASK, "--key", "k", "--out", "answer.txt"]) == 0
    assert (night / "answer.txt").read_text() == first
    people = People("city.duckdb", "visits", owner="who", ledger="city.ledger")
    assert people.spent(["Ada", "Bob"]) == [1, 1]
    people.database.close()
    # Nobody can pay, and nobody is told.
    assert main([*ASK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == 0


def test_what_the_command_refuses_costs_nothing(night, capsys):
    assert main(ASK) == 2  # nobody has joined
    for more in (["--table", "trips"], ["--limit", "0"], ["--limit", "1", "--out", "a.parquet"]):
        assert main([*ASK, *more]) == 2
    assert main([each.replace("city.duckdb", "town.duckdb") for each in ASK] + ["--limit", "1"]) == 2
    assert not (night / "town.duckdb").exists()
    shutil.copy("night.toml", "free.toml")
    (night / "free.toml").write_text(NIGHT.partition("[[steps]]")[2].join(["[[steps]]", ""]))
    free = [each.replace("night", "free") for each in ASK] + ["--limit", "1"]
    assert main(free) == 2  # no table
    capsys.readouterr()
    assert main([*free, "--table", "visits", "--owner", "who"]) == 0


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"answer": COUNT, "step": []},
        {"answer": COUNT, "steps": [{"wher": "a"}]},
        {"answer": COUNT, "steps": [{}]},
        {"answer": COUNT, "steps": [{"where": "a", "distinct": ["b"]}]},
        {"answer": COUNT, "steps": [{"where": "a", "by": "b"}]},
        {"answer": COUNT, "steps": [{"union": [[{"where": "a"}], [{"at_most": "b"}]]}]},
        {"answer": COUNT, "steps": [{"union": [[{"where": "a"}]]}]},
        {"answer": COUNT, "steps": [{"at_most": True}]},
        {"answer": COUNT, "steps": [{"at_most": 0}]},
        {"answer": {"kind": "max", "epsilon": 1}},
        {"answer": {"kind": "sum", "epsilon": 1}},
        {"answer": {"kind": "sum", "column": "a", "clip": [1], "epsilon": 1}},
        {"answer": {"kind": "count", "epsilon": True}},
        {"answer": {"kind": "count", "epsilon": "1"}},
        {"answer": COUNT | {"clip": [0, 1]}},
        {"answer": {"kind": "histogram", "column": "kind", "values": [], "epsilon": 1}},
    ],
)
def test_questions_that_are_none(given):
    with pytest.raises(dh.InputError):
        Question.from_mapping(given)


@pytest.mark.parametrize("values", [[[1]], [{}], [None], ["a", "a"], [1, "a"]])
def test_values_that_are_none(tmp_path, values):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 'Ada' AS who, 'a' AS kind")
    people = People(connection, "t", owner="who", ledger=tmp_path / "l", epsilon=1)
    people.enrol()
    answer = {"kind": "histogram", "column": "kind", "values": values, "epsilon": 1}
    with pytest.raises(dh.InputError):
        Question.from_mapping({"answer": answer}).ask(people.records)
    assert people.spent(["Ada"]) == [0]


def test_files_that_are_no_questions(tmp_path):
    with pytest.raises(dh.InputError, match="cannot be read"):
        Question.read(tmp_path / "none.toml")
    for content in ("where = = 3", "a = " + "9" * 5000, "a = " + "[" * 50_000):
        (tmp_path / "no.toml").write_text(content)
        with pytest.raises(dh.InputError, match="cannot be read"):
            Question.read(tmp_path / "no.toml")


def test_every_step_does_what_the_method_does(tmp_path):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE r (who TEXT, kind TEXT, fare DOUBLE)")
    records = People(connection, "r", owner="who", ledger=tmp_path / "l", epsilon=1).records
    steps = [
        {"where": "fare > 1"},
        {"select": {"twice": "fare * 2", "kind": "kind"}},
        {"flat_map": [{"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"}]},
        {"union": [[], [{"where": "kind = 'bus'"}]]},
        {"distinct": ["kind"]},
        {"at_most": 2, "by": ["kind"]},
        {"select": ["kind"]},
    ]
    said = _take_steps(records, Question.from_mapping({"steps": steps, "answer": COUNT}).steps)
    several = records.where("fare > 1").select(twice="fare * 2", kind="kind")
    several = several.flat_map({"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"})
    several = several.union(several.where("kind = 'bus'")).distinct("kind").at_most(2, by=["kind"]).select("kind")
    assert said.table.equals(several.table)
