"""Questions in files, and the command that asks them."""

import json

import duckdb
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.personal import People
from deltahist.personal.questions import Question, _take_steps
from tests.personal.city import city, without_noise

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
    assert main([*ASK, "--key", "k"]) == 0
    first = capsys.readouterr().out
    assert main([*ASK, "--key", "k", "--out", "answer.txt"]) == 0
    assert (night / "answer.txt").read_text() == first
    people = People("city.duckdb", "visits", owner="who", ledger="city.ledger")
    assert people.spent(["Ada", "Bob"]) == [1, 1]
    people.database.close()
    # Nobody can pay, and the answer does not say so.
    assert main([*ASK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == 0


def test_a_refused_command_costs_nothing(night, capsys):
    assert main(ASK) == 2  # nobody has joined
    for more in (["--table", "trips"], ["--limit", "0"], ["--limit", "1", "--out", "a.parquet"]):
        assert main([*ASK, *more]) == 2
    assert main([each.replace("city.duckdb", "town.duckdb") for each in ASK] + ["--limit", "1"]) == 2
    assert not (night / "town.duckdb").exists()
    (night / "night.toml").write_text("[[steps]]" + NIGHT.partition("[[steps]]")[2])
    assert main([*ASK, "--limit", "1"]) == 2  # no table
    capsys.readouterr()
    assert main([*ASK, "--limit", "1", "--table", "visits", "--owner", "who", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"answer": COUNT, "step": []}, {"answer": COUNT, "steps": [{"where": "a", "distinct": ["b"]}]},
        {"answer": COUNT, "steps": [{"where": "a", "by": "b"}]}, {"answer": COUNT, "steps": [{"at_most": True}]},
        {"answer": COUNT, "steps": [{"union": [[{"where": "a"}], [{"at_most": "b"}]]}]},
        {"answer": {"kind": "max", "epsilon": 1}}, {"answer": {"kind": "sum", "epsilon": 1}},
        {"answer": {"kind": "count", "epsilon": "1"}}, {"answer": COUNT | {"clip": [0, 1]}},
        *({"answer": {"kind": "histogram", "column": "who", "values": values, "epsilon": 1}}
          for values in ([], [[1]], [{}], [None], [1, "a"])),
    ],
)  # fmt: skip
def test_bad_questions_cost_nothing(tmp_path, wrong):
    people = city(tmp_path, [("Ada", "bus", 8, 1.0)])
    with pytest.raises(dh.InputError):
        Question.from_mapping(wrong).ask(people.records)
    assert people.spent(["Ada"]) == [0]


def test_files_without_a_question_are_refused(tmp_path):
    for content in (None, "where = = 3", "a = " + "9" * 5000, "a = " + "[" * 50_000):
        if content is not None:
            (tmp_path / "no.toml").write_text(content)
        with pytest.raises(dh.InputError):
            Question.read(tmp_path / "no.toml")


def test_every_step_does_what_the_method_does(tmp_path):
    records = city(tmp_path).records
    steps = [
        {"where": "fare > 1"}, {"select": {"twice": "fare * 2", "kind": "kind"}},
        {"flat_map": [{"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"}]},
        {"union": [[], [{"where": "kind = 'bus'"}]]}, {"distinct": ["kind"]}, {"at_most": 2, "by": ["kind"]},
        {"select": ["kind"]},
    ]  # fmt: skip
    written = _take_steps(records, Question.from_mapping({"steps": steps, "answer": COUNT}).steps)
    several = records.where("fare > 1").select(twice="fare * 2", kind="kind")
    several = several.flat_map({"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"})
    several = several.union(several.where("kind = 'bus'")).distinct("kind").at_most(2, by=["kind"]).select("kind")
    assert written.table.equals(several.table)
