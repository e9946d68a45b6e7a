"""Commits that threads share: durable before anybody goes on, each change by itself, failures of some and of all."""

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy

import deltahist as dh
from deltahist.accounts import commits, tables
from deltahist.accounts.commits import shared_commits
from deltahist.accounts.databases import SCHEMA, PostgreSQLSchema, SQLite
from deltahist.accounts.ledger import KeyReuseError, Ledger
from deltahist.personal.purses import Purses


@pytest.fixture
def city(where, monkeypatch):
    """A ledger whose groups end when nobody is left in line."""
    monkeypatch.setattr(commits, "_LONGEST", 600.0)
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    return ledger


@pytest.fixture
def begun(monkeypatch):
    """One entry for each transaction that changes something."""
    entries = []

    def counting(begin):
        def counted(database, change):
            entries.extend([database] if change else [])
            return begin(database, change)

        return counted

    for kind in (SQLite, PostgreSQLSchema):
        monkeypatch.setattr(kind, "begin", counting(kind.begin))
    return entries


def until(condition):
    """Wait for a condition, for half a minute at most."""
    last = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.001)


def together(ledger, *calls):
    """Make calls in threads that stand in line in this order; return what each returned or raised."""
    shared = shared_commits(ledger._database)
    with ThreadPoolExecutor(len(calls)) as pool:
        with contextlib.suppress(dh.InputError), ledger.transaction():
            futures = []
            for call in calls:
                futures.append(pool.submit(call))
                until(lambda: shared._waiting == len(futures))
        return [future.exception() or future.result() for future in futures]


def charge(ledger, amount, key=None):
    return ledger.charge("city", amount, key=key).amount


def break_connection(ledger):
    with ledger.transaction() as accounts:
        accounts.charge("city", 0, 1)
        accounts._connection.connection.driver_connection.close()


def break_off(ledger):
    with ledger.transaction() as accounts:
        accounts._connection.connection.driver_connection.close()
        accounts.charge("city", 0, 1)


def give_up(ledger):
    """Fail in the first look, where SQLite gives up the transaction: without memory, or on a bad disk."""
    with ledger.transaction() as accounts:
        accounts._connection.connection.driver_connection.rollback()
        accounts._connection.exec_driver_sql("SELECT unreadable")


def give_up_unnoticed(ledger):
    """Go on where the transaction is over: the next statement would begin another."""
    with ledger.transaction() as accounts:
        accounts._connection.connection.driver_connection.rollback()
        if isinstance(ledger._database, PostgreSQLSchema):
            # Where a role has the settings, the server would not miss them.
            accounts._connection.exec_driver_sql(f"SET LOCAL search_path = {SCHEMA}")
        accounts.charge("city", 0, 1)


def go_on_after_a_failure(ledger):
    """Pass over a statement that failed; a server ends the connection then, as it does at a timeout."""
    with ledger.transaction() as accounts:
        server = isinstance(ledger._database, PostgreSQLSchema)
        failing = "SELECT pg_terminate_backend(pg_backend_pid())" if server else "SELECT unreadable"
        with pytest.raises(sqlalchemy.exc.OperationalError):
            accounts._execute(sqlalchemy.text(failing))
        accounts.fact("city", "anything")


def tear(ledger):
    """Write the charges of others, and fail before their answers are written."""
    with ledger.transaction() as accounts:
        send, torn = accounts._send, [sqlalchemy.text("SELECT unwritable")]

        def tearing(changes):
            send([change for change in changes if not torn or change[0] is tables._CHARGE])
            while torn:
                accounts._execute(torn.pop())

        accounts._send = tearing
        accounts.fact("city", "anything")


def stay_undone(ledger):
    """Fail, and be interrupted before anything is undone."""
    with ledger.transaction() as accounts:
        accounts.charge("city", 0, 1)
        accounts.undo = lambda: 1 / 0
        raise dh.InputError("not wanted")


def fail_after(ledger):
    """Charge, open, and fail."""
    with ledger.transaction() as accounts:
        accounts.charge("city", 0, 10**8)
        accounts.open("other", {"kind": "total", "epsilon_nano": 10**9})
        assert accounts.rule("other")
        raise KeyError("here")


def test_each_change_is_whole_and_none_is_told_before_the_commit(city, begun, monkeypatch):
    told, early, end = [], [], commits._Group.end
    monkeypatch.setattr(commits._Group, "end", lambda group: (early.append(list(told)), end(group)))

    def ask(*given, **options):
        def call():
            try:
                return city.answer("city", *given, **options)
            finally:
                told.append(given)

        return call

    def draw(text):
        return lambda charge: text

    results = together(
        city,
        ask(0.25, draw("first"), key="a"),
        lambda: fail_after(city),
        ask(0.25, draw("again"), key="a"),
        ask(0.25, draw("other"), key="a", request="other"),
        ask(0.5, lambda charge: 1 / 0),
        ask(0.25, draw({1, 2})),
        lambda: city.open("other", epsilon=3),
        ask(0.75, draw("second"), key="b"),
        ask(0.25, draw("third"), key="c"),
    )
    assert (len(begun), early) == (1, [[]])
    assert [r if isinstance(r, str) else type(r) for r in results] == [
        "first", KeyError, "first", KeyReuseError, ZeroDivisionError, dh.InputError, type(None), "second",
        dh.BudgetExceeded,
    ]  # fmt: skip
    assert (city.left("city"), city.left("other"), city.problems()) == (0, 3, [])
    assert city.answer("city", 0.75, draw("never"), key="b") == "second"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (break_connection, "closed"),
        (break_off, "closed"),
        (give_up, "unreadable"),
        (give_up_unnoticed, "broke off|savepoint .* does not exist"),
        (go_on_after_a_failure, "broke off"),
        (tear, "unwritable"),
        (stay_undone, "not wanted"),
    ],
)
def test_a_commit_that_fails_fails_for_all(city, broken, said):
    people = Purses(city, "people")
    with people.turn() as turn:
        turn.join([10, 10])

    def pay():
        with people.turn() as turn:
            turn.charge([1, 1], 3)
            return turn.spent.tolist()

    results = together(city, pay, pay, lambda: charge(city, 0.5, key="a"), lambda: broken(city))
    assert {type(result) for result in results} == {dh.InputError}
    assert len({id(result) for result in results}) == len(results)
    assert re.search(said, str(results[-1]))
    assert city.left("city") == 1
    with city.read() as found:
        assert found.find_answer("city", "a") is None
    # The others are asked again, and nothing of it is remembered.
    assert together(city, pay, lambda: charge(city, 0.5, key="a"), pay) == [[0, 0], 0.5, [3, 3]]
    assert (city.left("city"), pay(), Purses(city, "people").ledger.problems()) == (0.5, [6, 6], [])


def test_purses_share_commits(city, where, begun):
    people, others = Purses(city, "people"), Purses(Ledger(where), "people")
    with people.turn() as turn:
        turn.join([10**9])
    begun.clear()

    def pay(purses, fails=False):
        with purses.turn() as turn:
            turn.charge([1], 1)
            if fails:
                raise KeyError
            return int(turn.spent[0])

    results = together(city, *(lambda who=who, k=k: pay(who, k == 2) for k in range(4) for who in (people, others)))
    assert [r if isinstance(r, int) else type(r) for r in results] == [0, 1, 2, 3, KeyError, KeyError, 4, 5]
    assert len(begun) == 1
    assert pay(others) == 6


def test_nobody_shares_a_change_that_something_else_relies_on(city, begun):
    database = dh.Database.open(":memory:")
    database.create_records("trip", {"kind": "text"}, owner="who")
    people = dh.People(database, "trip", owner="who", ledger=city, epsilon=1)
    begun.clear()

    def look():
        with city.transaction():
            return len(begun)

    # Names that are announced in the database are registered there as soon as they have purses.
    assert together(city, lambda: people.join(["Ada"]), look) == [None, 2]
    assert people.spent(["Ada"]) == [0]


def test_a_full_group_commits_while_others_stand_in_line(city, begun, monkeypatch):
    monkeypatch.setattr(commits, "_LONGEST", -1.0)
    assert together(city, *[lambda: charge(city, 0.25)] * 3) == [0.25] * 3
    assert len(begun) == 4


def test_who_gives_up_leaves_nobody_waiting(city, impatient):
    shared = shared_commits(city._database)
    with ThreadPoolExecutor(1) as pool:
        with city.transaction(), pytest.raises(dh.InputError, match=r"threads hold it .*nothing was charged"):
            pool.submit(charge, city, 0.5).result()
        # Somebody who was called, and did not come.
        shared._waiting += 1
        paid = pool.submit(charge, city, 0.25)
        until(lambda: shared._owner is None and shared._group is not None)
        assert not paid.done()
        with shared._turns:
            shared._waiting -= 1
            shared._call_next()
        assert paid.result(30) == 0.25
    assert city.left("city") == 0.75


def test_a_commit_that_is_interrupted_is_not_known(city, monkeypatch):
    begin = type(city._database).begin

    def interrupted(database, change):
        @contextlib.contextmanager
        def begun():
            with begin(database, change) as connection:
                yield connection
            if change:
                raise KeyboardInterrupt

        return begun()

    with monkeypatch.context() as broken:
        broken.setattr(type(city._database), "begin", interrupted)
        results = together(city, lambda: charge(city, 0.5, key="a"), lambda: charge(city, 0.5, key="b"))
    assert sorted(type(result).__name__ for result in results) == ["InputError", "KeyboardInterrupt"]
    assert any("is not known, and nothing is handed out: ask again with the same key" in str(r) for r in results)
    assert charge(city, 0.5, key="a") == 0.5
    assert city.left("city") == 0
