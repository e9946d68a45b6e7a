"""People join once, and have one purse with a limit that never changes: nobody spends more, or pays twice."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.errors import DamagedFile
from deltahist.personal import People
from deltahist.personal.people import _SPENT, Purses
from tests.personal.city import city, insert, without_noise

ROWS = [("Ada", "bus", 8, 2.5), ("Bob", "tram", 9, 9.0), ("Ada", "bus", 9, 1.0)]


@pytest.fixture
def people(tmp_path):
    return city(tmp_path, ROWS)


def test_joining_again_changes_nothing(people):
    people.join(["Cyd", "Dan"], epsilon=[0.5, Fraction(1, 3)])
    people.records.count(epsilon=0.25)
    people.join(["Eve", "Dan", "Cyd"], epsilon=[2, Fraction(1, 3), 0.5])
    people.join(["Ada"])
    assert people.enrol() == 0
    assert people.spent(["Ada", "Cyd"]) == [Fraction(1, 2), 0]
    left = [Fraction(1, 2), Fraction(1, 2), Fraction(333_333_333, 10**9), 2]
    assert people.left(["Ada", "Cyd", "Dan", "Eve"]) == left


def test_bad_names_and_budgets_let_nobody_join(people):
    for names, policy in (
        (["Cyd", "Ada"], {"epsilon": 2}),
        (["Cyd", "Cyd"], {"epsilon": [1, 2]}),
        (["Cyd"], {"epsilon": 1e-10}),
        (["Cyd"], {"rho": 1}),
        (["Cyd"], {"epsilon": 10**10}),
        *((["Dan", name], {}) for name in ("", " ", 1.5, None, True)),
    ):
        with pytest.raises(dh.InputError):
            people.join(names, **policy)
    for name in ("Cyd", "Dan"):
        with pytest.raises(dh.InputError, match=name):
            people.left([name])


def test_a_person_needs_a_budget(tmp_path):
    people = city(tmp_path, epsilon=None)
    for join in (lambda: insert(people, ROWS), lambda: people.join(["Ada"])):
        with pytest.raises(dh.InputError):
            join()
    people.join(["Ada", "Bob"], epsilon=1)
    assert people.left(["Ada", "Bob"]) == [1, 1]


def test_people_are_known_again_in_any_database(people, tmp_path, monkeypatch):
    """A copy, an older one, or one that is made anew: the ledger knows people by their names."""
    people.records.count(epsilon=0.25)
    again = People(people.where, "trip", owner="who", ledger=str(tmp_path / "city.ledger"))
    assert again.purses.unit == "epsilon"
    without_noise(monkeypatch)
    other = city(tmp_path, [("Ada", "bus", 8, 2.5), ("Cyd", "bus", 8, 2.5)])
    assert other.spent(["Ada", "Bob", "Cyd"]) == [Fraction(1, 2), Fraction(1, 4), 0]
    assert other.records.count(epsilon=0.75).estimate == 1
    assert people.spent(["Ada", "Bob", "Cyd"]) == [Fraction(1, 2), Fraction(1, 4), Fraction(3, 4)]


def test_questions_of_people_on_postgresql(postgres_url, monkeypatch):
    without_noise(monkeypatch)
    people = city(postgres_url, ROWS, where=postgres_url)
    for _ in range(2):
        assert people.records.where("kind = 'bus'").count(epsilon=0.4, key="k").estimate == 2
    assert people.records.histogram("kind", ["bus", "tram"], epsilon=0.4)["tram"].estimate == 1
    assert people.records.mean("fare", clip=(0, 10), epsilon=0.1).estimate == pytest.approx(12.5 / 3)
    assert [float(each) for each in people.spent(["Ada", "Bob"])] == [1.0, 0.5]


EVENTS = st.lists(
    st.tuples(st.just("join"), st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9)), max_size=4))
    | st.tuples(st.just("charge"), st.integers(1, 4), st.lists(st.integers(0, 4), min_size=8, max_size=8))
    | st.tuples(st.just("broken"))
    | st.tuples(st.just("again")),
    max_size=10,
)


def purses_of(where, **limits):
    """New purses of people with limits."""
    purses = Purses(dh.Ledger(where), "people")
    with purses.open_turn() as turn:
        turn.join_people(list(limits), list(limits.values()))
    return purses


def held(purses):
    with purses.open_turn() as turn:
        return turn.limits.tolist(), turn.spent.tolist()


@settings(max_examples=20)
@given(EVENTS)
def test_purses_agree_with_a_plain_list(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("purses") / "l"
    purses, people = Purses(dh.Ledger(path), "people"), {}
    for what, *event in events:
        if what == "again":
            purses = Purses(dh.Ledger(path), "people")
        elif what == "join":
            with purses.open_turn() as turn:
                turn.join_people([name for name, _ in event[0]], [limit for _, limit in event[0]])
            for name, limit in event[0]:
                people.setdefault(name, [limit, 0])
        elif what == "charge":
            price, times = event[0], event[1][: len(people)]
            with purses.open_turn() as turn:
                paid = turn.charge_people(np.array(times), price).tolist()
            for (limit, spent), often, has_paid, name in zip(people.values(), times, paid, list(people), strict=True):
                assert has_paid == (often > 0 and spent + often * price <= limit)
                people[name] = [limit, spent + often * price * has_paid]
        else:
            with pytest.raises(ZeroDivisionError), purses.open_turn() as turn:  # noqa: PT012
                turn.charge_people(np.ones(len(turn.limits), int), 1)
                turn.join_people(["z"], [5])
                1 / 0  # noqa: B018
        limits, spent = held(purses)
        assert list(zip(limits, spent, strict=True)) == [tuple(each) for each in people.values()]
        with purses.open_turn() as turn:
            assert turn.find_places([*people, "z"]).tolist() == [*range(len(people)), -1]


def test_a_price_beyond_64_bits_is_not_paid(tmp_path):
    purses = purses_of(tmp_path / "l", a=10**18, b=5)
    with purses.open_turn() as turn:
        assert turn.charge_people(np.array([1 << 62, 5]), 1 << 3).tolist() == [False, False]
        assert turn.charge_people(np.array([1 << 62, 5]), 1).tolist() == [False, True]
    assert held(purses)[1] == [0, 5]


@pytest.mark.parametrize(
    "damage",
    [
        *(_SPENT.update().values(spent=spent) for spent in (b"", np.array([6]).tobytes(), np.array([-1]).tobytes())),
        _SPENT.delete(),  # otherwise a person who has spent all would have a new purse
    ],
)
def test_damaged_and_missing_purses_are_refused(tmp_path, damage):
    purses = purses_of(tmp_path / "l", a=5)
    with purses.open_turn() as turn:
        turn._connection.execute(damage)
    with pytest.raises(DamagedFile), purses.open_turn():
        pass


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request, tmp_path):
    return tmp_path / "l" if request.param == "SQLite" else request.getfixturevalue("postgres_url")


def test_nobody_overspends_when_many_charge_at_once(where):
    purses = purses_of(where, a=25, b=10**9)

    def pay(_):
        own = Purses(dh.Ledger(where), "people")
        with own.open_turn() as turn:
            return turn.charge_people(np.array([2, 3]), 1).tolist()

    with ThreadPoolExecutor(4) as pool:
        paid = list(pool.map(pay, range(20)))
    assert held(purses)[1] == [24, 60]
    assert [sum(each) for each in zip(*paid, strict=True)] == [12, 20]


UNDO = {
    "sqlite": [
        "CREATE TRIGGER undo AFTER UPDATE ON purse_spent WHEN new.spent <> old.spent"
        " BEGIN UPDATE purse_spent SET spent = old.spent; END"
    ],
    "postgresql": [
        "CREATE FUNCTION deltahist.undo() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        "CREATE TRIGGER undo BEFORE UPDATE ON deltahist.purse_spent FOR EACH ROW EXECUTE FUNCTION deltahist.undo()",
    ],
}


def test_a_trigger_that_undoes_charges_is_noticed(where):
    purses = purses_of(where, a=5)
    with purses.ledger.transaction() as connection:
        for statement in UNDO[connection.dialect.name]:
            connection.exec_driver_sql(statement)
    with purses.open_turn() as turn:
        turn.charge_people(np.array([1]), 1)
    with pytest.raises(DamagedFile), purses.open_turn():
        pass
