"""The window accountant: every window by brute force, exact arithmetic, durable state, kills and two processes."""

import contextlib
import random
import signal
import sqlite3
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.budgets.ledger import Ledger
from deltahist.budgets.rules import Rule
from tests.budgets.processes import SERVER

AMOUNTS = st.sampled_from([0.1, 0.25, 1 / 3, Fraction(1, 7), 0.999999999, 1e-9, 1.0])


@settings(deadline=None)
@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 3), AMOUNTS), max_size=30), st.booleans())
def test_no_window_ever_exceeds_its_budget(length, asked, durable):
    """Against all windows over all steps; what is refused would have exceeded one."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        window = dh.Window(
            length=length, epsilon=1, ledger=f"{folder}/a" if durable and len(asked) < 12 else None
        )
        spent, step = {}, 0
        for ahead, amount in asked:
            step += ahead
            total = sum(v for s, v in spent.items() if step - length < s <= step)
            # Rounded up to billionths.
            exact = Fraction(repr(amount)) if isinstance(amount, float) else amount
            nano = Fraction(-((-exact * 10**9) // 1), 10**9)
            assert window.available(step) == 1 - total
            assert window.spent(step) == total
            if total + nano <= 1:
                assert window.charge(step, amount) == nano
                spent[step] = spent.get(step, 0) + nano
            else:
                with pytest.raises(dh.InputError, match="is left"):
                    window.charge(step, amount)
            assert window.last == max(spent, default=None)
        for first in range(-length, step + length):
            assert sum(v for s, v in spent.items() if first <= s < first + length) <= 1


@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0, Fraction(1, 2), 1])), max_size=2),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 3), AMOUNTS), max_size=30),
)
def test_no_run_of_steps_exceeds_its_limit(length, more, total, asked):
    """Windows of several lengths, each with its limit: against all of them over all steps."""
    limits, factor = [], Fraction(1)
    for further, dearer in sorted(dict(more).items()):
        factor += dearer
        limits.append((length + further, factor))
    limits += [(np.inf, factor + 1)] if total else []
    window = dh.Window(length=length, epsilon=1, limits=limits)
    every = [(length, Fraction(1)), *limits]
    spent, step = {}, 0
    for ahead, amount in asked:
        step += ahead
        left = min(most - sum(v for s, v in spent.items() if step - n < s <= step) for n, most in every)
        assert window.available(step) == left
        exact = Fraction(repr(amount)) if isinstance(amount, float) else amount
        nano = Fraction(-((-exact * 10**9) // 1), 10**9)
        if nano <= left:
            window.charge(step, amount)
            spent[step] = spent.get(step, 0) + nano
        else:
            with pytest.raises(dh.BudgetExceeded, match="is left"):
                window.charge(step, amount)
    for n, most in every:
        starts = [-1] if n == np.inf else range(-n, step + n)
        assert all(sum(v for s, v in spent.items() if first <= s < first + n) <= most for first in starts)


def test_limits_are_kept_by_the_ledger_and_across_runs(tmp_path):
    ledger = str(tmp_path / "a.ledger")
    for step in range(1, 7):
        dh.Window(2, 1, ledger=ledger, limits=[(4, Fraction(3, 2)), (np.inf, 2)]).charge(step, 0.3)
    with pytest.raises(dh.BudgetExceeded, match=r"at step 7: all steps have spent 1\.8 of 2, 0\.2 is left"):
        dh.Window(2, 1, ledger=ledger, limits=[(4, Fraction(3, 2)), (np.inf, 2)]).charge(7, 0.3)
    with pytest.raises(dh.InputError, match="limits"):
        dh.Window(2, 1, ledger=ledger)
    with Ledger(ledger).transaction() as change:
        change.charge("window", 7, 10**9)
    found = " ".join(Ledger(ledger).problems())
    assert "has spent 1.9 in 4 steps in a row, more than 1.5 times its limit" in found
    assert "has spent 2.8 in all steps, more than 2 times its limit" in found


@pytest.mark.parametrize("durable", [True, False])
def test_charges_are_kept_for_the_longest_limit(tmp_path, durable):
    window = dh.Window(2, 1, ledger=str(tmp_path / "a.ledger") if durable else None, limits=[(4, 1)])
    window.charge(1, 0.6)
    window.charge(3, 0.4)
    with pytest.raises(dh.BudgetExceeded, match=r"at step 4: steps 1 to 4 have spent 1 of 1, 0 is left"):
        window.charge(4, 0.6)
    window.charge(5, 0.6)
    assert window._charges() == {3: 4 * 10**8, 5: 6 * 10**8}


def test_an_account_that_was_opened_anew_with_limits_is_not_spent_without_them(tmp_path):
    """Whoever still has the window of before would forget charges that the limits are about."""
    ledger = Ledger(str(tmp_path / "a.ledger"))
    ledger.open("other", epsilon=1)
    before = dh.Window(2, 1, ledger=ledger)
    ledger.close_if_unused("window")
    dh.Window(2, 1, ledger=ledger, limits=[(4, 1)]).charge(1, 1)
    with pytest.raises(dh.InputError, match="is not what it was when it was opened"):
        before.charge(3, 1)
    assert ledger.charges("window") == {1: 10**9}


def test_equal_shares_keep_every_limit_and_are_refused_where_they_run_out():
    assert dh.Window(7, 1, limits=[(28, 2)]).equal == Fraction(71428571, 10**9)
    assert dh.Window(7, 1, limits=[(14, 2)]).equal == dh.Window(7, 1).equal
    with pytest.raises(dh.InputError, match="would be spent after 28 steps, since an endless stream"):
        _ = dh.Window(7, 1, limits=[(np.inf, 4)]).equal


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([(7, 2)], "more steps than the window's 7, within which the budget is promised"),
        ([(30, 0.5)], "the limit of 30 steps is 0.5: it must be at least 1"),
        ([(30, 3), (60, 2)], "2 times the budget within 60 after 3 times the budget within 30"),
        ([(30.5, 2)], r"30\.5: it must be a whole number"),
        ([30], "limits holds 30: it must be a pair"),
    ],
)
def test_bad_limits_are_refused_with_the_rule(limits, words):
    with pytest.raises(dh.InputError, match=words):
        dh.Window(7, 1, limits=limits)


def test_ten_times_a_tenth_is_one():
    window = dh.Window(length=10, epsilon=1.0)
    for step in range(1, 1001):
        assert window.charge(step, 0.1) == Fraction(1, 10)
    with pytest.raises(dh.InputError, match="steps 991 to 1000 have spent 1 of 1, 0 is left"):
        window.charge(1000, 1e-9)


def test_memory_does_not_grow(tmp_path):
    for window in (dh.Window(length=5, rho=0.5), dh.Window(length=5, rho=0.5, ledger=tmp_path / "a")):
        for step in range(0, 300, 2):
            window.charge(step, window.equal)
        assert len(window._charges()) <= 5
    assert (tmp_path / "a").stat().st_size < 40_000
    assert window.unit == "rho"
    assert window.equal == Fraction(1, 10)


def test_it_goes_on_where_it_stopped(where):
    first = dh.Window(length=3, epsilon=1, ledger=where)
    first.charge(7, 0.6)
    again = dh.Window(length=3, epsilon=1, ledger=Ledger(where))
    assert again.last == 7
    assert again.available(8) == Fraction(2, 5)
    with pytest.raises(dh.InputError, match="steps must not go back"):
        again.charge(6, 0.1)
    other = dh.Window(length=3, epsilon=1, ledger=where, name="other")
    assert other.charge(1, 1) == 1
    assert again.available(10) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 4}, "length was 3, is 4"),
        ({"epsilon": 2}, "epsilon was 1, is 2"),
        ({"epsilon": None, "rho": 1}, "rho was null"),
        ({"about": {"delta": 5}}, "about"),
    ],
)
def test_other_parameters_are_refused(where, options, message):
    dh.Window(length=3, epsilon=1, ledger=where).charge(1, 0.5)
    with pytest.raises(dh.InputError, match=message):
        dh.Window(**{"length": 3, "epsilon": 1, "ledger": where} | options)
    assert dh.Window(length=3, epsilon=1, ledger=where).spent(1) == Fraction(1, 2)


def test_a_ledger_cut_short_spends_nothing(tmp_path):
    window = dh.Window(length=3, epsilon=1, ledger=tmp_path / "a")
    window.charge(1, 0.5)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data[: len(data) // 2])
    with pytest.raises(dh.InputError, match="nothing was charged"):
        window.charge(2, 0.1)
    with pytest.raises(dh.InputError, match="cut short"):
        dh.Window(length=3, epsilon=1, ledger=tmp_path / "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0, "epsilon": 1}, "length is 0"),
        ({"length": 2.5, "epsilon": 1}, "length is 2.5"),
        ({"length": 2}, "one of them"),
        ({"length": 2, "epsilon": 1, "rho": 1}, "one of them"),
        ({"length": 2, "epsilon": float("nan")}, "epsilon is nan"),
        ({"length": 2, "epsilon": 1e-9}, "at least a billionth"),
    ],
)
def test_bad_windows(options, message):
    with pytest.raises(dh.InputError, match=message):
        dh.Window(**options)


@pytest.mark.parametrize(
    ("step", "amount", "message"),
    [(1.5, 0.1, "step is 1.5"), ("1", 0.1, "step is '1'"), (1, 0, "amount is 0"), (1, -1, "amount is -1"),
     (1, float("nan"), "amount is nan"), (1, 2, "0 of 1, 1 is left"), (2**63, 0.1, "step is")],
)  # fmt: skip
def test_bad_charges_spend_nothing(step, amount, message):
    window = dh.Window(length=3, epsilon=1)
    with pytest.raises(dh.InputError, match=message):
        window.charge(step, amount)
    assert window.last is None


def test_it_goes_with_every_mechanism_of_the_toolkit():
    window = dh.Window(length=2, epsilon=1.0)
    near = dh.Neighbourhood(dh.Domain((0, 1), (8,)), delta=0.25)
    points = np.array([0.1, 0.4, 0.8])
    release = dh.publish(dh.count(points, near.domain), near, epsilon=window.charge(1, 0.5))
    assert release.epsilon == Fraction(1, 2)
    assert dh.publish_sorted(points, near, epsilon=window.charge(2, 0.25)).epsilon == Fraction(1, 4)
    assert dh.quantile(points, 0.5, near, epsilon=window.charge(2, 0.25)).epsilon == Fraction(1, 4)
    assert window.available(2) == 0


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_accounts_of_one_ledger_do_not_mix(tmp_path, names):
    one, other = (dh.Window(length=2, epsilon=1, ledger=tmp_path / "l", name=name) for name in names)
    one.charge(5, 0.9)
    other.charge(5, 0.9)
    other.charge(9, 0.1)
    assert (one.spent(5), other.spent(9)) == (Fraction(9, 10), Fraction(1, 10))
    with pytest.raises(dh.BudgetExceeded):
        one.charge(5, 0.9)
    one.charge(6, 0.1)
    assert (one.spent(6), other.spent(9)) == (1, Fraction(1, 10))
    again = dh.Window(length=2, epsilon=1, ledger=tmp_path / "l", name=names[1])
    assert again.last == 9


# ------------------------------------------------------------------------------------- kills and company


def _publish_on(folder, done):
    """Publish step after step, each for half of what is left, and say so when a step is saved."""
    window = dh.Window(length=3, epsilon=1, ledger=folder / "a.ledger")
    near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    identity, counts = dh.strategies.Identity(near.domain), np.array([3, 1, 0, 2])
    step = (window.last or 0) + 1
    dh.publish(counts, near, identity, 1.0).save(folder / "warm.parquet")
    dh.Window(length=1, epsilon=1, ledger=folder / "a.ledger", name="warm").charge(0, 1e-9)
    while True:
        done.send(step)
        epsilon = window.charge(step, window.available(step) / 2)
        dh.publish(counts, near, identity, epsilon).save(folder / f"{step}.parquet")
        step += 1


def test_a_kill_at_any_point_never_overspends(tmp_path):
    """Twelve runs killed at random times: every release that is there was charged, and no window exceeds 1."""
    rng = random.Random(1)
    paid: dict[int, Fraction] = {}
    pace = 0.0
    for _ in range(12):
        heard, done = SERVER.Pipe(duplex=False)
        run = SERVER.Process(target=_publish_on, args=(tmp_path, done))
        run.start()
        done.close()
        heard.recv()
        for _ in range(rng.randrange(4)):
            start = time.perf_counter()
            heard.recv()
            pace = time.perf_counter() - start
        time.sleep(rng.random() * pace)  # somewhere in the next step, however fast the machine is
        run.kill()
        run.join()
        assert run.exitcode == -signal.SIGKILL
        heard.close()
        window = dh.Window(length=3, epsilon=1, ledger=tmp_path / "a.ledger")
        for file in tmp_path.glob("[0-9]*.parquet"):
            release = dh.Release.load(file)
            paid[int(file.stem)] = release.epsilon
        # What the ledger still holds covers every release of the last window.
        for step, nano in window._charges().items():
            assert Fraction(nano, 10**9) >= paid.get(step, 0)
        assert max(paid, default=0) <= (window.last or 0)
    assert len(paid) > 5
    for first in range(1, max(paid) + 1):
        assert sum(paid.get(s, 0) for s in range(first, first + 3)) <= 1


def _spend(path, results, seed):
    window = dh.Window(length=4, epsilon=1, ledger=path)
    rng = random.Random(seed)
    won = []
    for step in range(1, 30):
        amount = Fraction(rng.randint(1, 400), 1000)
        with contextlib.suppress(dh.InputError):
            won.append((step, window.charge(step, amount)))
    results.put(won)


def test_two_processes_share_one_budget(where):
    dh.Window(length=4, epsilon=1, ledger=where)
    results = SERVER.Queue()
    runs = [SERVER.Process(target=_spend, args=(where, results, seed)) for seed in (1, 2, 3)]
    for run in runs:
        run.start()
    won = [charge for _ in runs for charge in results.get(timeout=120)]
    for run in runs:
        run.join()
    assert len(won) > 20
    for first in range(30):
        assert sum(amount for step, amount in won if first <= step < first + 4) <= 1


@pytest.mark.parametrize("kept", ["in memory", "in a ledger"])
def test_two_threads_never_spend_what_one_has_seen(tmp_path, monkeypatch, kept):
    """Each looks at what is left and then waits for the other to look as well: only one may get it."""
    window = dh.Window(length=3, epsilon=1, ledger=None if kept == "in memory" else tmp_path / "a")
    both = threading.Barrier(2)
    plain = Rule.allow

    def allow(self, *asked):
        plain(self, *asked)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # who holds the account alone waits in vain

    monkeypatch.setattr(Rule, "allow", allow)
    won = []

    def spend():
        with contextlib.suppress(dh.InputError):
            won.append(window.charge(1, 0.8))

    threads = [threading.Thread(target=spend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [Fraction(4, 5)]
    assert window.spent(1) == Fraction(4, 5)


@pytest.mark.parametrize("holding", ["BEGIN IMMEDIATE", "BEGIN; SELECT * FROM charge"])
def test_a_busy_ledger_says_so(tmp_path, monkeypatch, holding):
    """One that changes it lets no other begin; one that reads it lets no other commit."""
    monkeypatch.setattr("deltahist.budgets.accounts.PATIENCE", 0.05)
    window = dh.Window(length=2, epsilon=1, ledger=tmp_path / "a")
    holder = sqlite3.connect(tmp_path / "a", isolation_level=None)
    for statement in holding.split("; "):
        holder.execute(statement).fetchall()
    with pytest.raises(dh.InputError, match=r"locked .*nothing was charged"):
        window.charge(1, 0.5)
    holder.close()
    assert window.last is None
    assert window.charge(1, 0.5) == Fraction(1, 2)
