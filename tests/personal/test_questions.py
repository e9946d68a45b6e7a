"""Questions in files: what they may say, and that they ask just that."""

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.personal.asking import Question
from deltahist.space.crs import Operation

NIGHT = """
table = "visit"
owner = "who"

[[steps]]
where = "hour >= 22"

[[steps]]
at_most = 1
by = ["hour"]

[answer]
kind = "count"
epsilon = 0.25
"""
MAP = (
    'table = "visit"\nowner = "who"\nplace = ["x", "y"]\n[answer]\nkind = "map"\nepsilon = 0.1\nx = "x"\ny = "y"\n'
    "bounds = [0, 0, 8, 4]\ncell = 1\ndelta = 1\n"
)
COUNT = {"kind": "count", "epsilon": 0.1}


@pytest.fixture
def folder(tmp_path):
    """A table that another program made."""
    import duckdb

    connection = duckdb.connect(tmp_path / "city.duckdb")
    frame = pd.DataFrame(
        {
            "who": ["Ada"] * 3 + ["Bob", "Cyd", None],
            "hour": [22, 23, 8, 23, 9, 23],
            "kind": ["bus", "bus", "tram", "tram", "bus", "bus"],
            "x": [1.0, 2, 3, 4, 5, 6],
            "y": [0.5] * 6,
        }
    )
    connection.register("rows", frame)
    connection.execute("CREATE TABLE visit AS SELECT * FROM rows")
    connection.close()
    (tmp_path / "night.toml").write_text(NIGHT)
    return tmp_path


def ask(folder, question="night.toml", *more):
    line = ["ask", folder / question, "--database", folder / "city.duckdb", "--ledger", folder / "l", *more]
    return main([str(part) for part in line])


def people(folder):
    return dh.People(folder / "city.duckdb", "visit", owner="who", ledger=folder / "l")


def test_a_question_from_a_file_is_paid_for_by_those_it_is_about(folder, capsys):
    assert ask(folder, "night.toml", "--limit", "1", "--key", "a") == 0
    first = capsys.readouterr().out
    assert first.startswith("number of records: ")
    assert "Each person paid ε = 0.25 for each of their records that was used" in first
    assert ask(folder, "night.toml", "--key", "a") == 0
    assert capsys.readouterr().out == first
    found = people(folder)
    assert [float(each) for each in found.spent(["Ada", "Bob", "Cyd"])] == [0.25, 0.25, 0]
    found.database.close()


def test_a_copy_that_was_put_back_is_taken_once_it_is_said(folder, capsys):
    import duckdb

    copy = (folder / "city.duckdb").read_bytes()
    assert ask(folder, "night.toml", "--limit", "0.25") == 0
    for rows in ([], ["Dan", "Eve"]):
        (folder / "city.duckdb").write_bytes(copy)
        with duckdb.connect(folder / "city.duckdb") as connection:
            connection.executemany("INSERT INTO visit VALUES (?, 23, 'bus', 1, 1)", [["Ada"], *([who] for who in rows)])
        capsys.readouterr()
        assert ask(folder, "night.toml") == 2
        assert "open this one once with --restored:" in capsys.readouterr().err
        assert ask(folder, "night.toml", "--limit", "0.25", "--restored") == 0
        assert ask(folder, "night.toml") == 0
    found = people(folder)
    assert [float(each) for each in found.spent(["Ada", "Bob", "Dan", "Eve"])] == [0.25] * 4
    found.database.close()


def test_a_map_and_data(folder, capsys):
    (folder / "map.toml").write_text(MAP)
    assert ask(folder, "map.toml", "--limit", "1") == 2
    assert "--out is missing" in capsys.readouterr().err
    assert ask(folder, "map.toml", "--limit", "1", "--out", folder / "m.parquet") == 0
    made = dh.load(folder / "m.parquet").mechanism
    # One record of somebody without a radius: to appear anywhere.
    price = f"{float(made.cost_under(made.neighbourhood.appearing_anywhere())):.10g}"
    assert f"Each person paid ε = {price} for each of their records that was used" in capsys.readouterr().err
    assert dh.load(folder / "m.parquet").cells().shape == (8, 4)
    assert ask(folder, "map.toml", "--out", folder / "m.parquet") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert ask(folder, "night.toml", "--json", "--out", folder / "n.json") == 0
    assert set(pd.read_json(folder / "n.json", typ="series").index) >= {"estimate", "low", "high"}


def test_a_map_under_limits(folder, capsys):
    for said, factors in (('[[3, 1.5], ["any", 2]]', [1.5, 2]), ("[]", [])):
        (folder / "map.toml").write_text(f"{MAP}limits = {said}")
        assert ask(folder, "map.toml", "--limit", "1", "--out", folder / "m.parquet", "--overwrite") == 0
        assert [float(limit.factor) for limit in dh.load(folder / "m.parquet").neighbourhood.profile] == factors
    capsys.readouterr()
    for said, words in (("4", "limits is 4"), ("[[0.5, 2]]", "longer than delta=1"), ('["any:4"]', "must be a pair")):
        (folder / "map.toml").write_text(f"{MAP}limits = {said}")
        assert ask(folder, "map.toml", "--out", folder / "other.parquet") == 2
        assert words in capsys.readouterr().err


def test_nobody_asks_of_a_data_base_or_an_account_that_is_not_there(folder, capsys):
    assert ask(folder, "night.toml") == 2
    assert "no account 'people', so that nobody has joined and nobody can pay" in capsys.readouterr().err
    assert ask(folder, "night.toml", "--limit", "1") == 0
    assert ask(folder, "night.toml", "--account", "peple") == 2
    assert "no account 'peple'" in capsys.readouterr().err
    line = ["ask", folder / "night.toml", "--database", folder / "ctiy.duckdb", "--ledger", folder / "n"]
    assert main([str(part) for part in [*line, "--limit", "1"]]) == 2
    assert "ctiy.duckdb' does not exist" in capsys.readouterr().err
    assert not (folder / "ctiy.duckdb").exists()
    assert not (folder / "n").exists()


def test_maps_of_degrees_are_projected(folder):
    import duckdb

    with duckdb.connect(folder / "city.duckdb") as connection:
        connection.execute("INSERT INTO visit SELECT 'Ada', 22, 'bus', -73.9965, 40.7 FROM range(500)")
    found = people(folder)
    found.join(["Ada", "Bob", "Cyd"], epsilon=10**6)
    sizes = {"cell": "1km", "delta": "1km", "epsilon": 1}
    answer = {"kind": "map", "x": "x", "y": "y", "bounds": [-74.05, 40.68, -73.95, 40.75], **sizes}

    def asked(**more):
        return Question.of({"answer": answer | more}).ask(found.records)

    release = asked(crs="EPSG:4326", project="auto")
    assert release.domain.crs == "EPSG:32618"
    x, y = Operation.onto(release.domain, "EPSG:4326")(np.array([-73.9965]), np.array([40.7]))
    (cell,) = release.domain.flat_cells([x, y])
    assert np.argmax(release.cells()) == cell
    again = asked(crs="EPSG:4326", project="EPSG:32618", bounds=list(release.domain.bounds))
    assert (again.domain.crs, again.domain.shape) == (release.domain.crs, release.domain.shape)
    for more, why in [
        ({"crs": "EPSG:4326"}, "degrees are not lengths, so the points must be projected; add project = 'auto'"),
        ({"project": "auto"}, "project is 'auto' without crs: say of which CRS the columns are"),
        ({"crs": "EPSG:4326", "project": "auto", "cell": "1cm"}, "are the bounds swapped"),
    ]:
        with pytest.raises(dh.InputError, match=why):
            asked(**more)
    found.database.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "answer is missing"),
        ({"answer": COUNT, "step": []}, "step is not known in a question: there are table"),
        ({"answer": COUNT, "steps": [{"wher": "a"}]}, "a step is wher: it must be one of where, select"),
        ({"answer": COUNT, "steps": [{"where": "a", "distinct": ["b"]}]}, "a step is where, distinct"),
        ({"answer": COUNT, "steps": [{"where": 3}]}, "where is 3: it must be text"),
        ({"answer": COUNT, "steps": [{"union": [[{"where": "a"}], [{"at_most": "b"}]]}]}, "at_most is 'b'"),
        ({"answer": COUNT, "steps": [{"at_most": True}]}, "at_most is True: it must be a whole number"),
        ({"answer": COUNT, "steps": "where"}, "steps must be a list"),
        ({"answer": COUNT, "place": "x"}, "place is 'x': it must be a list of columns"),
        ({"answer": COUNT, "table": 3}, "table is 3: it must be text"),
        ({"answer": {"kind": "max", "epsilon": 1}}, "kind of the answer is 'max': it must be one of count"),
        ({"answer": {"kind": "sum", "epsilon": 1}}, "column and clip missing"),
        ({"answer": {"kind": "count"}}, "spends epsilon or rho, one of them"),
        ({"answer": COUNT, "steps": [{"at_most": 1, "by": 3}]}, "by is 3: it must be a column"),
        ({"answer": {"kind": "count", "epsilon": True}}, "epsilon is True: it must be a number"),
        ({"answer": COUNT | {"rho": 1}}, "spends epsilon or rho, one of them"),
        ({"answer": COUNT | {"clip": [0, 1]}}, "clip is not known in an answer of kind 'count'"),
    ],
)
def test_questions_that_ask_for_what_there_is_not(said, why):
    with pytest.raises(dh.InputError, match=why):
        Question.of(said)


def test_files_that_are_no_questions(tmp_path):
    with pytest.raises(dh.InputError, match="does not exist"):
        Question.read(tmp_path / "none.toml")
    (tmp_path / "no.toml").write_text("where = = 3")
    with pytest.raises(dh.InputError, match="cannot be read as TOML"):
        Question.read(tmp_path / "no.toml")
    for content in ("a = " + "9" * 5000, "a = " + "[" * 50_000):
        (tmp_path / "no.toml").write_text(content)
        with pytest.raises(dh.InputError, match="cannot be read as TOML"):
            Question.read(tmp_path / "no.toml")


def test_every_step_does_what_the_method_does(tmp_path):
    base = dh.Database.open(":memory:")
    base.create_records("r", {"kind": "text", "fare": "number"}, owner="who")
    records = dh.People(base, "r", owner="who", ledger=tmp_path / "l", epsilon=1).records
    steps = [
        {"where": "fare > 1"},
        {"select": {"twice": "fare * 2", "kind": "kind"}},
        {"flat_map": [{"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"}]},
        {"union": [[], [{"where": "kind = 'bus'"}]]},
        {"distinct": ["kind"]},
        {"at_most": 2, "by": ["kind"]},
        {"select": ["kind"]},
    ]
    said = Question.of({"steps": steps, "answer": COUNT}).records(records)
    several = records.where("fare > 1").select(twice="fare * 2", kind="kind")
    several = several.flat_map({"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"})
    several = several.union(several.where("kind = 'bus'")).distinct("kind").at_most(2, by=["kind"]).select("kind")
    assert said.table.equals(several.table)
