"""Questions: what they measure and cost, their noise and intervals; in files, and by the command that asks them."""

import functools
import json
import math
from datetime import UTC, datetime
from fractions import Fraction

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.cli import main
from deltahist.laws import LAWS, Gaussian
from deltahist.personal import People
from deltahist.personal.engines import write_sql
from deltahist.personal.query import OWNER, Query
from deltahist.personal.questions import Answers, Count, Histogram, Mean, Question, Sum, _estimate_ratio
from tests.personal.city import city, without_noise

ROWS = [("Ada", "bus", 8, 2.5), ("Bob", "tram", 9, 99.0), ("Cyd", "bus", 9, -7.0), ("Dan", "foot", 9, None)]
BOUNDS = st.tuples(st.integers(-50, 50), st.integers(1, 70)).map(lambda pair: (pair[0], pair[0] + pair[1]))
#: One time, with a zone and without.
SAME_TIME = [datetime(2026, 5, 1, 8), datetime(2026, 5, 1, 8, tzinfo=UTC)]
VALUES = st.lists(st.floats(-1e100, 1e100), max_size=6)
FARES = Query(ibis.table({OWNER: "int64", "fare": "float64"}, name="fares"), ("fares", "who"))


@pytest.fixture(scope="module")
def add_up():
    """Sums of values that belong to two people by turns."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")

        def of(aggregate, values):
            owners = pa.array([n % 2 for n in range(len(values))], pa.int64())
            connection.register("fares", pa.table({OWNER: owners, "fare": pa.array(values, pa.float64())}))
            rows = connection.execute(write_sql(aggregate.add_up(FARES), "duckdb")).to_arrow_table()
            return {name: rows[name].cast(pa.int64()).to_numpy() for name in rows.column_names}

        yield of


@pytest.fixture
def people(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    return city(tmp_path, ROWS, epsilon=100)


def test_questions_measure_what_they_say_and_records_without_the_value_are_free(people):
    of = people.records
    assert of.sum("fare", clip=(0, 20), epsilon=1).estimate == 2.5 + 20 + 0
    assert of.mean("fare", clip=(-5, 20), epsilon=1).estimate == pytest.approx((2.5 + 20 - 5) / 3)
    kinds = of.histogram("kind", ["tram", "bus", "ship"], epsilon=1)
    assert [(value, answer.estimate) for value, answer in kinds.items()] == [("tram", 1), ("bus", 2), ("ship", 0)]
    assert people.spent(["Ada", "Dan"]) == [3, 0]
    assert of.count(epsilon=1).estimate == 4
    assert of.sum("hour * 2", clip=(0, 17), epsilon=1).estimate == 16 + 3 * 17
    assert of.histogram("hour", [8, 9], epsilon=1)[9].estimate == 3


@pytest.mark.audit
@settings(max_examples=30)
@given(VALUES, st.floats(-1e100, 1e100), BOUNDS)
def test_one_record_changes_no_more_than_noise_hides(add_up, values, another, clip):
    for kind in (Sum, Mean):
        aggregate = kind("fare", clip, epsilon=1)
        more, less = (aggregate.measure(add_up(aggregate, each)) for each in ([*values, another], values))
        assert abs(more - less).sum() <= aggregate.sensitivity == round(aggregate.law.parameter)
        assert ((more - less).astype(object) ** 2).sum() <= 2 * kind("fare", clip, rho=1).law.parameter
        # And no less: some record changes that much.
        ends = [abs(aggregate.measure(add_up(aggregate, [end]))).sum() for end in clip]
        assert aggregate.sensitivity in ends


@settings(max_examples=30)
@given(VALUES, BOUNDS)
def test_sums_and_means_are_those_of_clipped_values(add_up, values, clip):
    clipped = np.clip(values, *clip)
    for aggregate, expected in ((Sum("fare", clip, epsilon=1), np.sum), (Mean("fare", clip, epsilon=1), np.mean)):
        if values or expected is np.sum:
            answer = aggregate.decode(aggregate.measure(add_up(aggregate, values)))
            assert float(answer.estimate) == pytest.approx(expected(clipped), abs=1e-3)


def test_prices_are_rounded_up():
    assert Count(epsilon=Fraction(1, 3)).price == 333_333_334
    assert Count(rho=0.1).price == 10**8
    assert Count(epsilon=0.1).law.parameter == 10
    assert Count(rho=0.1).law == Gaussian(Fraction(5))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(("above", "below"), [(300, 700), (40, 0), (0, 0)])
def test_intervals_of_means_hold(kind, above, below):
    """At least 95% of 2,000 intervals hold the share, within 4 standard errors (once in 30,000 for each of 6)."""
    law, rng, held = LAWS[kind](Fraction(5)), np.random.default_rng(5), 0
    noise = rng.laplace(0, 5, (2_000, 2)) if kind == "laplace" else rng.normal(0, math.sqrt(5), (2_000, 2))
    share = above / (above + below) if above + below else 0.5
    for one, other in noise:
        estimate, error, low, high = _estimate_ratio(above + one, below + other, law)
        assert 0 <= low <= estimate <= high <= 1
        assert 0 < error <= 1
        held += low <= share <= high
    assert held / 2_000 > 0.95 - 4 * math.sqrt(0.05 * 0.95 / 2_000)


def test_answers_are_json_and_state_their_intervals():
    answer = Count(epsilon=0.5).decode(np.array([1234]))
    assert all(number in str(answer) for number in ("1,234 ± 2.8", "1,228.5", "1,240.5", "95%"))
    answers = Histogram("kind", ["bus", "tram"], rho=0.5).decode(np.array([3, 4]))
    assert json.loads(json.dumps(answers.to_json()))["values"] == ["bus", "tram"]
    assert len(answers) == len(str(answers).splitlines()) == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Count(),
        lambda: Count(epsilon=1, rho=1), lambda: Count(epsilon=-1), lambda: Count(rho=0),
        lambda: Count(epsilon=Fraction(1, 1 << 51)), lambda: Count(epsilon=10**10),
        lambda: Sum("fare", (3, 1), epsilon=1), lambda: Mean("fare", (0, float("nan")), epsilon=1),
        lambda: Mean("fare", (-1e307, 1e307), epsilon=1), lambda: Sum("fare", (0, 1), epsilon=1e-10),
        lambda: Histogram("kind", [], epsilon=1), lambda: Histogram("kind", ["bus", "bus"], epsilon=1),
        lambda: Histogram("kind", [float("nan")], epsilon=1), lambda: Histogram("fare", [1.5], epsilon=1),
        lambda: Histogram("fare", [1], epsilon=1).add_up(FARES), lambda: Histogram("t", SAME_TIME, epsilon=1),
        lambda: Sum("kind", (0, 1), epsilon=1).add_up(FARES),
        lambda: Histogram("price", ["bus"], epsilon=1).add_up(FARES),
    ],
)  # fmt: skip
def test_bad_questions_are_refused(ask):
    with pytest.raises(dh.InputError):
        ask()


SIZES = [0.0, 5e-324, 1e-310, 1e-200, 1e-100, 1e-30, 1.0, 1e16, 1e30, 1e100, 1e200, 1.7e308, 10**400]


@pytest.mark.parametrize("one", SIZES)
def test_no_clip_range_fails_once_records_are_read(add_up, one):
    """Wrong public parameters are refused before: later it would cost everybody."""
    for kind, clip in ((Sum, (0.0, one)), (Mean, (-one, one)), (Mean, (min(one, 1.0), max(one, 1.0)))):
        try:
            aggregate = kind("fare", clip, epsilon=1)
        except dh.InputError:
            continue
        for values in ([], [1e100, -1e100, 1e-100, *map(float, clip)] * 50):
            answer = aggregate.decode(aggregate.release(add_up(aggregate, values)))
            assert np.isfinite([answer.estimate, answer.low, answer.high, answer.std_error]).all()


@pytest.mark.parametrize(
    "aggregate",
    [Count(epsilon=1e-9), Sum("fare", (0, 1), epsilon=1), Mean("fare", (0, 1), rho=1), Histogram("n", (0, 1), rho=1)],
)
def test_sums_beyond_64_bits_end_in_an_answer(aggregate):
    """An error would cost everybody, and tell of one record: sums go round instead."""
    most = np.full(9, np.iinfo(np.int64).max)
    answer = aggregate.decode(aggregate.release({"number": most, "total": most, "_person_cell": np.zeros(9, np.int64)}))
    for each in answer.values() if isinstance(answer, Answers) else [answer]:
        assert np.isfinite([each.estimate, each.std_error, each.low, each.high]).all()


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
    for more in (["--limit", "0"], ["--limit", "1", "--out", "a.parquet"]):
        assert main([*ASK, *more]) == 2
    assert main([each.replace("city.duckdb", "town.duckdb") for each in ASK] + ["--limit", "1"]) == 2
    assert not (night / "town.duckdb").exists()
    (night / "night.toml").write_text("[[steps]]" + NIGHT.partition("[[steps]]")[2])
    assert main([*ASK, "--limit", "1"]) == 2  # no table
    capsys.readouterr()
    (night / "night.toml").write_text(NIGHT)
    assert main([*ASK, "--limit", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"answer": COUNT, "step": []}, {"answer": COUNT, "steps": [{"where": "a", "distinct": ["b"]}]},
        {"answer": COUNT, "steps": [{"where": "a", "by": "b"}]}, {"answer": COUNT, "steps": [{"at_most": True}]},
        {"answer": COUNT, "steps": [{"at_most": "b"}]},
        {"answer": {"kind": "max", "epsilon": 1}}, {"answer": {"kind": "sum", "epsilon": 1}},
        {"answer": {"kind": "count", "epsilon": "1"}}, {"answer": COUNT | {"clip": [0, 1]}},
        *({"answer": {"kind": "histogram", "column": "who", "values": values, "epsilon": 1}}
          for values in ([], [[1]], [{}], [None], [1, "a"])),
        # No file, and files without a question.
        None, "where = = 3", "a = " + "9" * 5000, "a = " + "[" * 50_000,
    ],
)  # fmt: skip
def test_bad_questions_cost_nothing(tmp_path, wrong):
    people, file = city(tmp_path, [("Ada", "bus", 8, 1.0)]), tmp_path / "no.toml"
    if isinstance(wrong, str):
        file.write_text(wrong)
    with pytest.raises(dh.InputError):
        (Question.read(file) if isinstance(wrong, str | None) else Question.from_mapping(wrong)).ask(people.records)
    assert people.spent(["Ada"]) == [0]


def test_every_step_does_what_the_method_does(tmp_path):
    records = city(tmp_path).records
    steps = [
        {"where": "fare > 1"}, {"select": {"twice": "fare * 2", "kind": "kind"}},
        {"flat_map": [{"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"}]},
        {"distinct": ["kind"]}, {"at_most": 2, "by": ["kind"]},
        {"select": ["kind"]},
    ]  # fmt: skip
    question = Question.from_mapping({"steps": steps, "answer": COUNT})
    written = functools.reduce(lambda derived, step: step.derive_records(derived), question.steps, records)
    several = records.where("fare > 1").select(twice="fare * 2", kind="kind")
    several = several.flat_map({"kind": "kind"}, {"kind": "upper(kind)", "where": "twice > 3"})
    several = several.distinct("kind").at_most(2, by=["kind"]).select("kind")
    assert written.table.equals(several.table)
