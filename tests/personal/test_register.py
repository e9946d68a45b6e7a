"""The register of people: one purse for each name, whatever happens to the databases that know the names."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.personal import purses
from deltahist.personal.database import Database
from deltahist.personal.people import People
from tests.personal.city import city, frame, without_noise

TABLES = ("deltahist_person", "deltahist_coming", "deltahist_account", "deltahist_records", "trip")


def copy_of(base):
    """A database with the same rows, as a backup or a copy of its file has them."""
    other = Database.open(":memory:")
    with base._engine._cursor() as cursor:
        rows = {name: cursor.execute(f"SELECT * FROM {name}").to_arrow_table() for name in TABLES}
    other.create_records("trip", {"kind": "text", "hour": "whole", "fare": "number"}, owner="who")
    with other._engine.change() as change:
        change.execute("DELETE FROM deltahist_records")
        for name, table in rows.items():
            change.append(name, table)
    return other


def opened(base, ledger, **more):
    return People(base, "trip", owner="who", ledger=ledger, **({"epsilon": 1} | more))


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_restored_copy_gives_nobody_a_second_purse(tmp_path):
    """Eve, who joined after the backup, has paid all that she has: three copies put back give her nothing."""
    people = city(tmp_path, [("Ada", "bus", 8, 1.0)])
    backup = copy_of(people.database)
    people.insert(frame([("Eve", "tram", 9, 1.0)]))
    people.join(["Fay"], epsilon=5, radius=200)
    people.records.where("kind = 'tram'").count(epsilon=1)
    for _ in range(3):
        again = copy_of(backup)
        with pytest.raises(
            dh.InputError, match=r"older copy, .* open this one once with restored=True"
        ) as caught:
            opened(again, people.ledger)
        assert "has the purse of before" in str(caught.value)
        found = opened(again, people.ledger, restored=True)
        with pytest.raises(dh.InputError, match="another copy of it was used since"), people.turn():
            pass
        found.insert(frame([("Eve", "tram", 9, 1.0)]))
        found.records.where("kind = 'tram'").count(epsilon=1)
        assert found.spent(["Ada", "Eve", "Fay"]) == [0, 1, 0]
        with pytest.raises(dh.InputError, match="'Fay' joined with epsilon = 5 and a radius of 200"):
            found.join(["Fay"])
        found.join(["Fay"], epsilon=5, radius=200)
        opened(again, people.ledger)
    assert len(people.ledger.problems()) == 0
    with Ledger.transaction(people.ledger) as accounts:
        assert sum(entry.nano for entry in accounts.entries("people") if entry.kind == "join") == 3


def test_what_is_open_is_refused_as_soon_as_a_copy_is_used(tmp_path):
    """A copy beside the original: the one where somebody joined goes on, the other one is asked no more."""
    people = city(tmp_path, [("Ada", "bus", 8, 1.0)])
    beside = opened(copy_of(people.database), people.ledger)
    people.records.count(epsilon=0.5)
    beside.records.count(epsilon=0.5)
    assert beside.left(["Ada"]) == [0]
    beside.join(["Eve"])
    for act in (
        lambda: people.records.count(epsilon=0.1),
        lambda: people.join(["Fay"]),
        lambda: people.join(["Eve"]),
        lambda: people.spent(["Ada"]),
        lambda: opened(people.database, people.ledger),
    ):
        with pytest.raises(dh.InputError, match="another copy of it was used since"):
            act()
    back = opened(people.database, people.ledger, restored=True)
    back.join(["Fay"])
    with pytest.raises(dh.InputError, match="another copy of it was used since"):
        beside.records.count(epsilon=0.1)
    assert back.database.numbers(["Ada", "Eve", "Fay"]).tolist() == [0, -1, 2]


def test_a_database_that_is_lost_is_made_anew(tmp_path):
    people = city(tmp_path, [("Ada", "bus", 8, 1.0)])
    people.records.count(epsilon=1)
    new = Database.open(":memory:")
    new.create_records("trip", {"kind": "text", "hour": "whole", "fare": "number"}, owner="who")
    with pytest.raises(
        dh.InputError, match=r"in another database .* where that one is lost open this one once with"
    ):
        opened(new, people.ledger)
    found = opened(new, people.ledger, restored=True)
    found.insert(frame([("Bob", "bus", 8, 1.0), ("Ada", "bus", 8, 1.0)]))
    assert found.left(["Ada", "Bob"]) == [0, 1]
    assert found.database.numbers(["Ada", "Bob"]).tolist() == [0, 1]


def test_other_people_under_the_same_numbers_are_refused(tmp_path):
    """A ledger that was put back from a copy, in which others joined since."""
    people = city(tmp_path, [("Ada", "bus", 8, 1.0)])
    copies = [copy_of(people.database), tmp_path / "other.ledger"]
    copies[1].write_bytes(people.ledger.path.read_bytes())
    people.join(["Eve"])
    other = opened(copies[0], copies[1])
    other.join(["Zed"])
    for base, ledger in ((people.database, copies[1]), (copies[0], people.ledger)):
        for restored in (False, True):
            with pytest.raises(dh.InputError, match="other people under the numbers of account 'people'"):
                opened(base, ledger, restored=restored)
    with people.database._engine.change() as change:  # by hand, in the right database
        change.execute("UPDATE deltahist_person SET name = 'Zed' WHERE name = 'Eve'")
    with pytest.raises(dh.InputError, match="other people under the numbers of account 'people'"):
        opened(people.database, people.ledger)
    with pytest.raises(dh.InputError, match="other people under the numbers of account 'people'"):
        people.join(["Zed"])


@pytest.mark.parametrize("step", ["announce", "settle"])
def test_a_process_that_ends_while_somebody_joins_harms_nobody(tmp_path, monkeypatch, step):
    """Before the purse is there, it is as if nothing had been; after it, the next turn registers the name."""
    people = city(tmp_path, [("Ada", "bus", 8, 1.0)])
    with monkeypatch.context() as patch:
        patch.setattr(Database, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            people.join(["Cyd"], epsilon=3)
    assert people.database.numbers(["Cyd"]).tolist() == [-1]
    people.records.count(epsilon=1)
    again = opened(people.database, people.ledger)
    again.join(["Dan"])
    if step == "announce":
        again.join(["Cyd"], epsilon=2)
        assert again.left(["Ada", "Dan", "Cyd"]) == [0, 1, 2]
    else:
        with pytest.raises(dh.InputError, match="'Cyd' joined with epsilon = 3"):
            again.join(["Cyd"], epsilon=2)
        assert again.left(["Ada", "Cyd", "Dan"]) == [0, 3, 1]
        assert people.database.numbers(["Cyd", "Dan"]).tolist() == [1, 2]


def test_a_ledger_that_undoes_a_join_leaves_nobody_coming(tmp_path, monkeypatch):
    """The name had been announced: whoever comes next is not taken for it."""
    people = city(tmp_path)
    announce = Database.announce

    def fails(base, *said):
        announce(base, *said)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Database, "announce", fails)
        with pytest.raises(KeyboardInterrupt):
            people.join(["Cyd"])
    people.join(["Dan"])
    assert people.database.numbers(["Cyd", "Dan"]).tolist() == [-1, 0]


def test_many_join_at_once(tmp_path):
    people = city(tmp_path)
    again = opened(people.database, people.ledger)
    names = [["Ada", "Bob", "Cyd"], ["Cyd", "Bob", "Dan"], ["Dan", "Ada", "Eve"]]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(People.join, (people, again, people), names))
    assert sorted(people.database.numbers(["Ada", "Bob", "Cyd", "Dan", "Eve"]).tolist()) == [0, 1, 2, 3, 4]
    with people.turn() as turn:
        assert len(turn.limits) == 5


def test_marks_survive_a_log_that_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(purses, "_LONGEST", 0)
    monkeypatch.setattr(purses, "_PAGE", 2)
    people = city(tmp_path)
    for names in (["Ada", "Bob", "Cyd"], ["Dan"], ["Ada", "Eve"]):
        people.join(names)
    again = opened(people.database, Ledger(people.ledger.path))
    again.join(["Eve", "Cyd", "Fay"])
    assert again.database.numbers(["Ada", "Bob", "Cyd", "Dan", "Eve", "Fay"]).tolist() == list(range(6))


def test_an_audit_finds_who_has_two_purses(tmp_path):
    people = city(tmp_path)
    people.join(["Ada", "Bob"])
    assert people.ledger.problems() == []
    with people.purses.turn() as turn:
        turn.join([10**9], marks=turn.marks[1:])
    assert people.ledger.problems() == ["account 'people' has 1 purses of people who have another one"]
    with people.ledger.transaction() as accounts:
        accounts.enter("people", accounts.entries("people")[0]._replace(number=9, data=b""))
    assert "is damaged at entry 9: entries 2 to 8 are missing" in people.ledger.problems()[0]


NAMES = ("Ada", "Bob", "Cyd")
EVENTS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(NAMES)),
    st.tuples(st.just("join"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)),
    st.tuples(st.sampled_from(["settle", "announce"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["copy", "go on with", "restore"]), st.integers(0, 9)),
)


def _check_histories(folder, events):
    """Nobody has paid for more than their limit over all databases, and no purse was made twice."""
    with pytest.MonkeyPatch.context() as patch:
        without_noise(patch)
        people = city(folder)
        # Records of everybody, for names that join later too.
        paid = dict.fromkeys(NAMES, 0)
        databases = [people.database]
        for what, how in events:
            with contextlib.suppress(dh.InputError, KeyboardInterrupt):
                if what == "ask":
                    used = people.records.where(f"kind = '{how}'").count(epsilon=Fraction(2, 5)).estimate
                    paid[how] += Fraction(2, 5) * int(used)
                elif what == "join":
                    people.insert(pd.DataFrame({"who": how, "kind": how, "hour": 1, "fare": 1.0}))
                elif what == "copy":
                    databases.append(copy_of(databases[how % len(databases)]))
                elif what in ("go on with", "restore"):
                    base = databases[how % len(databases)]
                    people = opened(base, people.ledger, restored=what == "restore")
                else:
                    with patch.context() as crash:
                        crash.setattr(Database, what, interrupted)
                        people.join([how])
        with people.purses.turn() as turn:
            marks, spent = turn.marks.tolist(), turn.spent.sum()
        assert max(paid.values()) <= 1
        assert len(marks) == len(set(marks)) <= len(NAMES)
        assert Fraction(int(spent), 10**9) >= sum(paid.values())


@settings(max_examples=8)
@given(st.lists(EVENTS, max_size=12))
def test_nobody_pays_more_than_their_limit_over_all_copies(tmp_path_factory, events):
    _check_histories(tmp_path_factory.mktemp("histories"), events)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(EVENTS, max_size=40))
def test_nobody_pays_more_than_their_limit_over_all_copies_and_longer(tmp_path_factory, events):
    _check_histories(tmp_path_factory.mktemp("histories"), events)
