"""Purses: nobody spends more than their limit, and nothing is charged twice."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.errors import DamagedFile
from deltahist.personal.people import _SPENT, Purses

EVENTS = st.lists(
    st.tuples(st.just("join"), st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9)), max_size=4))
    | st.tuples(st.just("charge"), st.integers(1, 4), st.lists(st.integers(0, 4), min_size=8, max_size=8))
    | st.tuples(st.just("broken"))
    | st.tuples(st.just("again")),
    max_size=10,
)


@pytest.fixture
def purses(tmp_path):
    return Purses(dh.Ledger(tmp_path / "l"), "people")


def held(purses):
    with purses.open_turn() as turn:
        return turn.limits.tolist(), turn.spent.tolist()


def break_off(purses):
    with purses.open_turn() as turn:
        turn.charge_people(np.ones(len(turn.limits), int), 1)
        turn.join_people(["z"], [5])
        1 / 0  # noqa: B018


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
            with pytest.raises(ZeroDivisionError):
                break_off(purses)
        limits, spent = held(purses)
        assert list(zip(limits, spent, strict=True)) == [tuple(each) for each in people.values()]
        with purses.open_turn() as turn:
            assert turn.find_places([*people, "z"]).tolist() == [*range(len(people)), -1]


def test_a_price_beyond_64_bits_is_not_paid(purses):
    with purses.open_turn() as turn:
        turn.join_people(["a", "b"], [10**18, 5])
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
def test_damaged_and_missing_purses_are_refused(purses, damage):
    with purses.open_turn() as turn:
        turn.join_people(["a"], [5])
        turn._connection.execute(damage)
    with pytest.raises(DamagedFile), purses.open_turn():
        pass


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request, tmp_path):
    return tmp_path / "l" if request.param == "SQLite" else request.getfixturevalue("postgres_url")


def test_nobody_overspends_when_many_charge_at_once(where):
    purses = Purses(dh.Ledger(where), "people")
    with purses.open_turn() as turn:
        turn.join_people(["a", "b"], [25, 10**9])

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
    purses = Purses(dh.Ledger(where), "people")
    with purses.open_turn() as turn:
        turn.join_people(["a"], [5])
    with purses.ledger.transaction() as connection:
        for statement in UNDO[connection.dialect.name]:
            connection.exec_driver_sql(statement)
    with purses.open_turn() as turn:
        turn.charge_people(np.array([1]), 1)
    with pytest.raises(DamagedFile), purses.open_turn():
        pass
