"""Very many small accounts: as a dictionary would keep them, durably, in turns, all or nothing."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.personal import purses as module
from deltahist.personal.purses import PurseLog, Purses, pack, unpack
from deltahist.personal.tables import Entry
from tests.accounts.processes import SERVER

RADII = st.sampled_from([float("nan"), 0.0, 1.5, 200.0])
LIMITS = st.sampled_from([0, 1, 7, 30, 10**9, 10**18])
JOINS = st.lists(st.tuples(LIMITS, RADII), max_size=4)
#: Of which persons, how often, at which price for each radius: cut to those that there are.
CHARGES = st.tuples(
    st.lists(st.sampled_from([0, 0, 1, 2, 300, 70_000, 2**62]), max_size=12),
    st.lists(st.integers(0, 9), min_size=4),
)


@pytest.fixture
def purses(tmp_path):
    return Purses(Ledger(tmp_path / "city.ledger"), "people")


def held(purses):
    with purses.turn() as turn:
        radii = turn.classes[turn.which] if len(turn.classes) else np.zeros(0)
        # As text, in which one NaN is like another.
        return turn.limits.tolist(), turn.spent.tolist(), str(radii.tolist())


def join(purses, *columns):
    with purses.turn() as turn:
        return turn.join(*columns)


def broken(purses, change):
    with purses.turn() as turn:
        change(turn)
        raise KeyError("here")


@settings(max_examples=20)
@given(
    st.lists(st.one_of(JOINS, CHARGES, st.just("reopen"), st.just("break")), max_size=8), st.integers(0, 5)
)
def test_purses_are_as_a_plain_list_keeps_them(tmp_path_factory, events, longest):
    path, people = tmp_path_factory.mktemp("purses") / "l", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LONGEST", longest)
        patch.setattr(module, "_PAGE", 3)
        purses = Purses(Ledger(path), "people")
        other = Purses(Ledger(path), "people")
        for event in events:
            purses, other = other, purses
            if event == "reopen":
                purses = Purses(Ledger(path), "people")
            elif event == "break":
                with pytest.raises(KeyError):
                    broken(purses, lambda turn: (turn.charge([1] * len(turn.limits), 1), turn.join([5])))
            elif isinstance(event, list):
                first = len(people)
                people += [[limit, 0, radius] for limit, radius in event]
                assert join(purses, [p[0] for p in people[first:]], [p[2] for p in people[first:]]) == range(
                    first, len(people)
                )
            else:
                times = (event[0] + [0] * len(people))[: len(people)]
                with purses.turn() as turn:
                    prices = np.array(event[1] * 4)[: len(turn.classes)]
                    paid = turn.charge(times, prices)
                    each = prices[turn.which] if len(prices) else []
                for person, often, price, took_part in zip(people, times, each, paid, strict=True):
                    assert took_part == (often > 0 and person[1] + often * int(price) <= person[0])
                    person[1] += often * int(price) * bool(took_part)
        for one in (purses, other, Purses(Ledger(path), "people")):
            limits, spent, radii = ([person[column] for person in people] for column in range(3))
            assert held(one) == (limits, spent, str(radii))


@pytest.mark.parametrize("change", [lambda turn: turn.charge([1, 1], 1), lambda turn: turn.join([3])])
def test_an_error_leaves_everything_as_it_was(where, change):
    purses = Purses(Ledger(where), "people")
    join(purses, [5, 6])
    before = held(purses)
    with pytest.raises(KeyError, match="here"):
        broken(purses, change)
    assert held(purses) == before == held(Purses(purses.ledger, "people"))
    join(purses, [7])
    assert held(purses)[0] == [5, 6, 7]


def test_a_break_while_the_log_is_read_is_made_good(purses, monkeypatch):
    join(purses, [5, 6])
    with purses.turn() as turn:
        turn.charge([1, 1], 2)
    whole = PurseLog._charge

    def half_way(state, *columns):
        whole(state, *columns)
        raise KeyboardInterrupt

    monkeypatch.setattr(PurseLog, "_charge", half_way)
    with pytest.raises(KeyboardInterrupt):
        held(purses)
    monkeypatch.undo()
    assert held(purses)[1] == [2, 2]


@pytest.mark.parametrize(
    ("limits", "radii", "why"),
    [
        ([1, 2], [1.0], r"\(2,\) limits, \(1,\) radii"),
        ([-1], None, "limits go from -1e-09"),
        ([10**18 + 1], None, "between 0 and 10"),
        ([1, 1], [1.0, -2.0], "radius is -2.0"),
        ([1], [float("inf")], "radius is inf"),
    ],
)
def test_bad_purses_are_refused(purses, limits, radii, why):
    with pytest.raises(dh.InputError, match=why):
        join(purses, limits, radii)
    assert held(purses) == ([], [], "[]")


def test_an_account_stays_what_it_is(purses):
    with pytest.raises(dh.InputError, match='unit was "epsilon", is "rho"'):
        Purses(purses.ledger, "people", unit="rho")
    purses.ledger.account("other", {})
    purses.ledger.close_if_unused("people")
    with pytest.raises(dh.InputError, match="is not what it was when it was opened"):
        join(purses, [1])
    Purses(purses.ledger, "people", unit="rho")  # what would be charged of ρ is not ε
    with pytest.raises(dh.InputError, match="is not what it was when it was opened"):
        join(purses, [1])


def test_a_log_does_not_grow(purses, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", 5)
    join(purses, [10**9] * 3)
    other = Purses(purses.ledger, "people")
    for _ in range(40):
        with purses.turn() as turn:
            turn.charge([1, 0, 2], 1)
    with purses.ledger.transaction() as accounts:
        assert len(accounts.entries("people")) <= 8
    assert held(other)[1] == held(purses)[1] == [40, 0, 80]


def test_what_a_turn_may_not_do(purses, monkeypatch):
    """Numbers and classes go on where a log begins anew, which it does at every change here."""
    monkeypatch.setattr(module, "_LONGEST", 0)
    with purses.turn() as turn:
        assert [turn.join([100], [5.0]), turn.join([100, 100], [np.nan, 1.0])] == [range(1), range(1, 3)]
        with pytest.raises(RuntimeError, match="charges before anybody joins"):
            turn.charge([], 1)
        with pytest.raises(dh.InputError, match="is open in this thread already"):
            join(purses, [6])
    with purses.turn() as turn:
        turn.charge([1, 1, 1], [10, 20, 30])
        assert turn.join([7]) == range(3, 4)
        with pytest.raises(RuntimeError, match="charges once"):
            turn.charge([1, 1, 1], 3)
        with pytest.raises(ValueError, match="read-only"):
            turn.spent[0] = 0
    with purses.turn() as turn:
        turn.charge([1, 1, 1, 0], [10, 20, 30])
    assert held(purses)[1] == held(Purses(purses.ledger, "people"))[1] == [20, 60, 40, 0]
    purses.ledger.close_if_unused("people")
    assert held(purses)[0] == [100, 100, 100, 7]


def test_a_log_that_begins_anew_remembers_that_there_was_a_question(purses, monkeypatch):
    """Also one that nobody paid for: whether there was a question is public, who paid is not."""
    monkeypatch.setattr(module, "_LONGEST", 0)

    def asked():
        with Purses(purses.ledger, "people").turn() as turn:
            return turn.asked

    for _ in range(3):
        join(purses, [100])
        assert not asked()
    with purses.turn() as turn:
        turn.charge([0, 0, 0], 1)
    for _ in range(3):
        assert asked()
        join(purses, [100])


OPENED = pack(np.array([9, 9]), np.array([0, 0]), np.array([np.nan, 2.0]), np.zeros(32, np.uint8))
MARK = np.zeros(16, np.uint8)
ONE, TWO = np.array([1]), np.array([1, 1], dtype=np.uint8)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry(2, "charge", 0, pack(ONE, TWO)), "entries 1 to 1 are missing"),
        (Entry(1, "other", 0, b""), "kind 'other'"),
        (Entry(1, "charge", 0, b"{}"), "does not say"),
        (Entry(1, "charge", 0, pack(ONE, TWO[:1])), "multipliers do not fit"),
        (Entry(1, "charge", 0, pack(np.array([-1]), TWO)), "prices do not fit"),
        (Entry(1, "charge", 0, pack(np.array([1, 1, 1]), TWO)), "prices do not fit"),
        (Entry(1, "charge", 0, pack(np.array([10]), TWO)), "more than their limits"),
        (Entry(1, "charge", 0, pack(ONE, np.array([1, 2**63], dtype=np.uint64))), "too large"),
        (Entry(1, "charge", 0, pack(ONE, TWO, np.array([0, 2], dtype=np.uint32))), "persons that there are not"),
        (Entry(1, "charge", 0, pack(ONE, TWO, np.array([1, 1], dtype=np.uint32))), "one of them twice"),
        (Entry(1, "join", 1, pack(np.array([1]), np.array([2]), np.array([0.0]), MARK)), "spent more"),
        (Entry(1, "join", 1, pack(ONE, np.array([0, 0]), np.array([0.0]), MARK)), "different lengths"),
        (Entry(1, "join", 1, pack(ONE, np.array([0]), np.array([0.0]), MARK[1:])), "different lengths"),
        (Entry(1, "join", 1, pack(ONE)), "does not know"),
    ],
)
def test_a_damaged_log_is_noticed(purses, entry, why):
    with purses.ledger.transaction() as accounts:
        accounts.enter("people", Entry(0, "join", 2, OPENED))
        accounts.enter("people", entry)
    for _ in range(2):
        with pytest.raises(
            dh.DamagedFile, match=f"'people' of the ledger is damaged at entry {entry.number}: .*{why}"
        ):
            held(purses)


def _charge(path, times):
    purses = Purses(Ledger(path), "people")
    for _ in range(times):
        with purses.turn() as turn:
            turn.charge(np.ones(len(turn.limits), dtype=int), 1)


def test_processes_and_threads_take_turns(where):
    purses = Purses(Ledger(where), "people")
    join(purses, [25, 10**9])
    work = {"target": _charge, "args": (where, 10)}
    workers = [SERVER.Process(**work), SERVER.Process(**work), threading.Thread(**work)]
    for worker in workers:
        worker.start()
    for _ in range(5):
        with purses.turn() as turn:
            turn.charge([1, 1], 1)
    for worker in workers:
        worker.join()
    assert held(purses)[1] == held(Purses(Ledger(where), "people"))[1] == [25, 35]


# ---------------------------------------------------------------------------------- columns as bytes

KINDS = ("int64", "uint8 uint16")


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3, 1_000])
def test_columns_come_back(length, compress):
    columns = np.arange(length) - 5, np.arange(length, dtype=np.uint16)
    again = unpack(pack(*columns, compress=compress), KINDS)
    assert [c.dtype for c in again] == [np.int64, np.uint16]
    assert all((a == b).all() for a, b in zip(again, columns, strict=True))
    assert not any(c.flags.writeable for c in again)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not say"),
        (b"[]\n", "does not say"),
        (b'{"plain": 3}\n', "does not say"),
        (b'{"plain": [], "zlib": []}\n', "does not say"),
        (b'{"other": [["int64", 1]]}\n12345678', "does not know"),
        (b'{"plain": [["float64", 1]]}\n12345678', "does not know"),
        (b'{"plain": [["int64", -1]]}\n', "does not know"),
        (b'{"plain": [["int64", 0], ["uint8", 0], ["uint8", 0]]}\n', "does not know"),
        (b'{"plain": []}\n', "does not know"),
        (b'{"plain": [["int64", 2]]}\n12345678', "8 bytes instead of 16"),
        (b'{"zlib": [["int64", 1]]}\nno such', "7 bytes instead of 8"),
    ],
)
def test_other_bytes_are_refused(data, why):
    with pytest.raises(ValueError, match=why):
        unpack(data, KINDS, optional=1)


def test_what_swells_is_not_swollen():
    honest = pack(np.zeros(1_000_000, dtype=np.int64), compress=True)
    with pytest.raises(ValueError, match="81 bytes instead of 80"):
        unpack(honest.replace(b"1000000", b"10"), KINDS[:1])
