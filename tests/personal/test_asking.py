"""One question: people who can pay take part and are charged for each derived record, and nothing else happens."""

import contextlib
import io
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.personal import People, engines, people as asking, questions
from deltahist.personal.people import Turn
from tests.personal.city import Model, city, insert, without_noise

TENTH = Fraction(1, 10)
ROWS = [
    ("Ada", "bus", 8, 2.0), ("Ada", "bus", 18, 3.0), ("Ada", "tram", 9, 1.0),
    ("Bob", "bus", 8, 4.0), ("Cyd", "tram", 22, None), ("Cyd", "tram", 23, 5.0),
]  # fmt: skip


@pytest.fixture
def people(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    return city(tmp_path, ROWS)


def spent(people):
    return [float(each) for each in people.spent(["Ada", "Bob", "Cyd"])]


def test_rho_is_charged_by_the_square(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    people = city(tmp_path, ROWS, rho=1)
    assert people.records.count(rho=0.1).estimate == 6
    assert spent(people) == [0.9, 0.1, 0.4]
    with pytest.raises(dh.InputError):
        people.records.count(epsilon=0.1)
    with broken(engines.DuckDBEngine, "run_statement"), pytest.raises(dh.InputError):
        people.records.at_most(2).count(rho=0.1)
    assert spent(people) == [1.0, 0.5, 0.8]


EVENTS = st.one_of(
    st.tuples(st.just("join"), st.sampled_from("ABCDE"), st.sampled_from([1, 2, 3])),
    st.tuples(
        st.just("insert"), st.lists(st.tuples(st.sampled_from("ABCDE"), st.sampled_from([1, 2]), st.integers(0, 3)))
    ),
    st.tuples(st.just("ask"), st.sampled_from(["all", "bus", "both"]), st.sampled_from([TENTH, Fraction(1, 3), 1])),
)
BUS = "kind = 'bus'"


@settings(max_examples=10)
@given(st.lists(EVENTS, min_size=3, max_size=9), st.sampled_from(["epsilon", "rho"]))
def test_any_course_of_events_is_paid_as_defined(tmp_path_factory, events, unit):
    with pytest.MonkeyPatch.context() as patch:
        without_noise(patch)
        people = city(tmp_path_factory.mktemp("city"), **{unit: 2})
        model, rows = Model(unit), []
        for what, *event in events:
            if what == "join" and event[0] not in model.limits:
                people.join([event[0]], **{unit: event[1]})
                model.join(*event)
            elif what == "insert" and event[0]:
                fresh = [(who, "bus" if kind == 1 else "tram", hour, 0.0) for who, kind, hour in event[0]]
                for row in fresh:
                    model.join(row[0], 2)
                insert(people, fresh)
                rows += fresh
            elif what == "ask":
                of = people.records
                query = {
                    "all": of,
                    "bus": of.where(BUS),
                    "both": of.flat_map({"kind": "kind"}, {"kind": "kind", "where": BUS}),
                }[event[0]]
                owners = [row[0] for row in rows if event[0] != "bus" or row[1] == "bus"]
                owners += [row[0] for row in rows if event[0] == "both" and row[1] == "bus"]
                # A third is charged rounded up.
                charged = Fraction(-(-event[1] * 10**9 // 1), 10**9)
                assert query.count(**{unit: event[1]}).estimate == model.used(owners, charged)
        assert people.spent(list(model.spent)) == list(model.spent.values())


def test_a_key_is_for_one_question(tmp_path):
    people = city(tmp_path, ROWS)
    buses = people.records.where("kind = 'bus'")
    first = buses.mean("fare", clip=(0, 9), epsilon=0.1, key="q")
    again = People(people.database, "trip", owner="who", ledger=people.ledger, epsilon=1).records
    assert again.where("kind = 'bus'").mean("fare", clip=(0, 9), epsilon=0.1, key="q") == first
    for query, clip, epsilon, key in (
        (people.records.where("kind = 'tram'"), (0, 9), 0.1, "q"),
        (buses, (0, 8), 0.1, "q"),
        (buses, (0, 9), 0.2, "q"),
        (buses, (0, 9), 0.1, ""),
        (buses, (0, 9), 0.1, 3.5),
    ):
        with pytest.raises(dh.InputError):
            query.mean("fare", clip=clip, epsilon=epsilon, key=key)
    hours = np.arange(2000)  # NumPy prints the ends only
    kept = people.records.histogram("hour", hours, epsilon=1e-3, key="h")
    assert people.records.histogram("hour", hours.copy(), epsilon=1e-3, key="h") == kept
    with pytest.raises(dh.InputError):
        people.records.histogram("hour", np.where(hours == 1000, 5000, hours), epsilon=1e-3, key="h")
    assert spent(people) == [0.203, 0.101, 0.002]


@pytest.mark.process
def test_a_request_is_the_same_in_another_process():
    code = """
import duckdb
from deltahist.personal import Engine
from deltahist.personal.people import _describe_request
from deltahist.personal.questions import Histogram
connection = duckdb.connect()
connection.execute("CREATE TABLE trip (who TEXT, kind TEXT, hour BIGINT)")
query = Engine.open(connection).make_query("trip", "who").where("hour > 3").at_most(2, by="hour")
aggregate = Histogram("kind", ["bus", "tram"], epsilon=1)
print(_describe_request(query, aggregate.add_up(query), aggregate))
"""
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(code, {})
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert here.getvalue() == other
    assert "Histogram(" in other


class Injected(Exception):  # noqa: N818
    """A fault that a test injects."""


def _raise(*_, **__):
    raise Injected("Ada's secret")


@contextlib.contextmanager
def broken(place, name):
    # What is planned breaks when it is fetched.
    fault = (lambda *_: _raise) if name == "plan_fetch" else _raise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, fault)
        yield


def test_an_error_of_the_ledger_or_before_records_are_read_changes_nothing(people):
    people.records.count(epsilon=0.1)
    steps = [
        (type(people.database), "open_session"), (engines.DuckDBEngine, "write_sql"), (Turn, "__init__"),
        (Turn, "charge_people"), (Turn, "_write_columns"), (Turn, "keep_answer"),
    ]  # fmt: skip
    before = spent(people)
    for place, name in steps:
        with broken(place, name), pytest.raises((Injected, dh.InputError)) as caught:
            people.records.count(epsilon=0.1, key="k")
        assert caught.value.__context__ is None
        assert spent(people) == before
    # What fails in one step alone would let the others charge.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines.Session, "plan_fetch", _raise)
        with pytest.raises(dh.InputError):
            people.records.count(epsilon=0.1, key="k")
    assert spent(people) == before
    people.records.count(epsilon=0.1, key="k")
    assert spent(people) == [0.6, 0.2, 0.4]


#: Where a question can break off once records are read.
READING = [
    (engines.DuckDBEngine, "run_statement"), (engines.Session, "plan_fetch"), (questions.Count, "measure"),
    (questions, "sample_law"), (questions.Count, "release"),
]  # fmt: skip


def test_a_question_that_breaks_off_while_reading_charges_everybody_the_most(tmp_path, monkeypatch):
    """That it broke off may tell of Ada: everybody pays, asked or not, and the error is always the same."""
    without_noise(monkeypatch)
    messages = set()
    for number, (place, name) in enumerate(READING):
        people = city(tmp_path, ROWS, name=str(number), epsilon=1)
        trams = people.records.where("kind = 'tram'")
        trams.count(epsilon=0.1)
        for question, key, paid in ((trams.at_most(2), "k", [0.5, 0.4, 0.6]), (trams, "l", [0.9, 1.0, 1.0])):
            asked = questions.Count(epsilon=0.2)
            with broken(place, name), pytest.raises(asking.InterruptedQuestionError) as caught:
                question.ask(asked, key)
            assert caught.value.__context__ is None
            assert spent(people) == paid
            messages.add(str(caught.value))
    assert people.ledger.find_problems() == []
    assert messages == {str(asking.InterruptedQuestionError())}


def test_a_question_planned_too_late_is_refused_unread_and_free(people):
    late = replace(people.records.at_most(1), seconds=1, until=asking.time.monotonic() + 1)
    with broken(engines.Session, "plan_fetch"), pytest.raises(asking.UnusableError):
        late.count(epsilon=0.1, key="k")
    assert spent(people) == [0, 0, 0]


@pytest.fixture
def clock(monkeypatch):
    """A clock that sleeping moves, and each call of `name` after `clock.takes(place, name, seconds)`."""
    now = [0.0]
    monkeypatch.setattr(asking.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(engines.Session, "stop_at", lambda *_: contextlib.nullcontext())

    def takes(place, name, seconds):
        plain = getattr(place, name)

        def slowly(*given):
            now[0] += seconds
            return plain(*given)

        monkeypatch.setattr(place, name, slowly)

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(asking.time, "sleep", sleep)
    return SimpleNamespace(now=now, takes=takes)


def test_planning_takes_no_time_from_reading(people, clock):
    """Public work that fills the time would let one record decide: it is done before, however long it takes."""
    clock.takes(engines.Session, "plan_fetch", 9)
    replace(people.records.at_most(1), seconds=0.6, until=60).count(epsilon=0.1)
    assert spent(people) == [0.1, 0.1, 0.1]


def test_a_question_whose_answer_comes_late_breaks_off(people, clock):
    """Its time ends while the answer is drawn: nothing is kept, and everybody pays."""
    clock.takes(questions.Count, "release", 9)
    with pytest.raises(asking.InterruptedQuestionError):
        replace(people.records.where("kind = 'tram'").at_most(1), seconds=8).count(epsilon=0.1, key="k")
    assert spent(people) == [0.1, 0.1, 0.1]


def test_one_record_moves_the_chance_to_break_off_by_little(people, clock, monkeypatch):
    """The end is drawn evenly from the second half: reading for three quarters breaks off half the draws."""
    clock.takes(questions.Count, "release", 6)
    ends = []
    for eighth in range(8):
        monkeypatch.setattr(asking.secrets, "randbelow", lambda most, at=eighth: most * at // 8)
        with contextlib.suppress(asking.InterruptedQuestionError):
            replace(people.records.at_most(1), seconds=8).count(epsilon=1e-9)
            ends.append(eighth)
    assert ends == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seconds", [0, 3])
def test_the_ledger_is_held_as_long_whatever_the_records_are(people, clock, seconds):
    clock.takes(questions.Count, "release", seconds)
    replace(people.records, seconds=8).count(epsilon=0.1)
    assert clock.now == [8]


def test_records_of_people_who_cannot_pay_are_not_looked_at(people, monkeypatch):
    """A question that breaks off may tell of the records that were looked at: their owners can pay for that."""
    people.records.where("kind = 'bus'").count(epsilon=0.5)
    assert spent(people) == [1.0, 0.5, 0.0]
    looked = []
    fetch = engines.DuckDBEngine.run_statement

    def look(database, connection, statement, schema):
        if asking.RECORDS in statement:
            looked.append(connection.execute(f"SELECT count(*) FROM {asking.RECORDS}").fetchone()[0])
            plan = connection.execute(f"EXPLAIN {statement}").fetchone()[1]
            assert plan.index("length(kind)") < plan.index("LIMIT") < plan.index("JOIN")
        return fetch(database, connection, statement, schema)

    monkeypatch.setattr(engines.DuckDBEngine, "run_statement", look)
    people.where.execute("INSERT INTO trip VALUES ('stranger', 'bus', 8, 1.0)")
    people.records.where("length(kind) > 1").count(epsilon=0.1)
    assert looked == [3]


def test_postgresql_takes_no_condition_past_the_choice_of_people(tmp_path, postgres_url):
    people = city(tmp_path, ROWS, where=postgres_url)
    asked = questions.Count(epsilon=1).add_up(people.records.where("length(kind) > 1"))
    with people.purses.open_turn() as turn, people.database.open_session() as look:
        look.put_table(asking.PAYERS, turn.find_payers(["Ada"], 1))
        look.create_view(asking.RECORDS, people.payers_records)
        assert look.plan_fetch(asked)().to_pydict() == {"_person": [0], "number": [3]}
        plan = str(look.connection.execute(f"EXPLAIN {look._write_sql(asked)}").fetchall())
    assert plan.index("length") < plan.index("Join")


def test_a_question_stopped_by_hand_charges_everybody(people, monkeypatch):
    monkeypatch.setattr(engines.DuckDBEngine, "run_statement", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as caught:
        people.records.at_most(1).count(epsilon=0.1)
    assert caught.value.__context__ is None
    assert spent(people) == [0.1] * 3


def test_noise_is_drawn_after_the_charge_is_written(people, monkeypatch):
    seen = []
    write = Turn._write_spent
    monkeypatch.setattr(Turn, "_write_spent", lambda turn: (seen.append("charged"), write(turn))[1])
    monkeypatch.setattr(
        questions, "sample_law", lambda law, size, rng: (seen.append("drawn"), np.zeros(size, dtype=int))[1]
    )
    people.records.count(epsilon=0.1)
    assert seen == ["charged", "drawn"]
