"""Purses: nobody spends more than their limit, whatever happens in between, and nothing is charged twice."""

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
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
def test_purses_are_as_a_plain_list_keeps_them(tmp_path_factory, events):
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


@pytest.mark.parametrize("spent", [b"", np.array([6], "<i8").tobytes(), np.array([-1], "<i8").tobytes(), bytes(16)])
def test_damaged_columns_are_noticed(purses, spent):
    with purses.open_turn() as turn:
        turn.join_people(["a"], [5])
        turn._connection.execute(_SPENT.update().values(spent=spent))
    with pytest.raises(DamagedFile), purses.open_turn():
        pass


def test_purses_that_are_gone_are_noticed(purses):
    """Whoever has spent all would have a new purse."""
    with purses.open_turn() as turn:
        turn.join_people(["a"], [5])
        turn._connection.execute(_SPENT.delete())
    with pytest.raises(DamagedFile), purses.open_turn():
        pass


@pytest.mark.parametrize("server", [False, True])
def test_many_charge_at_once_and_nobody_overspends(tmp_path, request, server):
    where = request.getfixturevalue("postgres_url") if server else tmp_path / "l"
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


@pytest.mark.parametrize("server", [False, True])
def test_a_trigger_that_undoes_charges_is_noticed(tmp_path, request, server):
    where = request.getfixturevalue("postgres_url") if server else tmp_path / "l"
    purses = Purses(dh.Ledger(where), "people")
    with purses.open_turn() as turn:
        turn.join_people(["a"], [5])
    if server:
        with psycopg.connect(where) as other:
            other.execute(
                "CREATE FUNCTION deltahist.undo() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'"
            )
            other.execute(
                "CREATE TRIGGER undo BEFORE UPDATE ON deltahist.purse_spent FOR EACH ROW"
                " EXECUTE FUNCTION deltahist.undo()"
            )
    else:
        with contextlib.closing(sqlite3.connect(where)) as other:
            other.execute(
                "CREATE TRIGGER undo AFTER UPDATE ON purse_spent WHEN new.spent <> old.spent BEGIN"
                " UPDATE purse_spent SET spent = old.spent; END"
            )
    with purses.open_turn() as turn:
        turn.charge_people(np.array([1]), 1)
    with pytest.raises(DamagedFile, match="changed after a charge"), purses.open_turn():
        pass
