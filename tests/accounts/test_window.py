"""Accounts that pay for releases: spans of steps by brute force, exact sums, publishers and chains."""

import tempfile
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.accounts.ledger import ChainCharge, Ledger
from deltahist.budget import Payment, Population

LINE = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
CELLS = dh.strategies.Identity(LINE.domain)
COUNTS, POINTS = np.arange(8), np.linspace(0.5, 7.5, 20)

AMOUNTS = st.sampled_from([0.1, 0.25, 1 / 3, Fraction(1, 7), 0.999999999, 1e-9, 1.0])


def rounded_up(amount):
    """What an amount is charged as: of what a number prints as, whole billionths."""
    return Fraction(-int(-Fraction(str(amount)) * 10**9 // 1), 10**9)


@settings(max_examples=40)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0, Fraction(1, 2), 1])), max_size=2),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 3), AMOUNTS), max_size=30),
    st.booleans(),
)
def test_no_span_of_steps_exceeds_its_limit(length, more, total, asked, durable):
    """Windows of several lengths, each with its limit: against all of them over all steps."""
    limits, factor = [], Fraction(1)
    for further, dearer in sorted(dict(more).items()):
        factor += dearer
        limits.append((length + further, factor))
    limits += [(np.inf, factor + 1)] if total else []
    every = [(length, Fraction(1)), *limits]
    spent, step = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        ledger = f"{folder}/a" if durable and len(asked) < 6 else None
        window = dh.accounts.Window(length=length, epsilon=1, limits=limits, ledger=ledger)
        for ahead, amount in asked:
            step += ahead
            left = min(most - sum(v for s, v in spent.items() if step - n < s <= step) for n, most in every)
            assert window.available(step) == left
            assert window.spent(step) == sum(v for s, v in spent.items() if step - length < s <= step)
            if rounded_up(amount) <= left:
                assert window.charge(step, amount).amount == rounded_up(amount)
                spent[step] = spent.get(step, 0) + rounded_up(amount)
            else:
                with pytest.raises(dh.BudgetExceeded, match="is left"):
                    window.charge(step, amount)
            assert window.last_step == max(spent, default=None)
    for n, most in every:
        starts = [-1] if n == np.inf else range(-n, step + n)
        assert all(sum(v for s, v in spent.items() if first <= s < first + n) <= most for first in starts)


def test_equal_shares_keep_every_limit_and_are_refused_where_they_run_out():
    assert dh.accounts.Window(7, 1, limits=[(28, 2)]).equal_share == Fraction(71428571, 10**9)
    assert dh.accounts.Window(7, 1, limits=[(14, 2)]).equal_share == dh.accounts.Window(7, 1).equal_share
    for endless in (dh.accounts.Window(7, 1, limits=[(np.inf, 4)]), dh.accounts.Account.total(epsilon=1).window):
        with pytest.raises(dh.InputError):
            _ = endless.equal_share


def test_the_limit_of_a_longer_run_is_rounded_down():
    window = dh.accounts.Window(1, epsilon=Fraction(1, 10**9), limits=[(2, Fraction(3, 2))])
    window.charge(0, Fraction(1, 10**9))
    assert window.available(1) == 0


def test_a_window_goes_on_where_it_stopped_under_the_same_rule(where):
    limits = [(6, Fraction(3, 2)), (np.inf, 2)]
    first = dh.accounts.Window(3, 1, limits=limits, ledger=where)
    for step in (1, 4, 7):
        first.charge(step, 0.6)
    again = dh.accounts.Window(3, 1, limits=limits, ledger=Ledger(where))
    assert (again.last_step, again.available(8), again.available(10)) == (7, Fraction(1, 5), Fraction(1, 5))
    with pytest.raises(dh.BudgetExceeded, match=r"1\.8 of 2"):
        again.charge(10, 0.3)
    with pytest.raises(dh.InputError, match="6"):
        again.charge(6, 0.1)
    other = dh.accounts.Window(3, 1, ledger=where, name="other")
    assert other.charge(1, 1).amount == 1
    for rule in (
        {},
        {"limits": limits[:1]},
        {"limits": limits, "length": 4},
        {"limits": limits, "about": {"delta": 5}},
    ):
        with pytest.raises(dh.InputError):
            dh.accounts.Window(**{"length": 3, "epsilon": 1, "ledger": where} | rule)


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 0}, {"epsilon": None}, {"rho": 1}, {"epsilon": 1e-9},
        {"limits": [(3, 2)]}, {"limits": [(30, 0.5)]}, {"limits": [(30, 3), (60, 2)]}, {"limits": [(30.5, 2)]},
    ],
)  # fmt: skip
def test_bad_windows_are_refused(wrong):
    with pytest.raises(dh.InputError):
        dh.accounts.Window(**{"length": 3, "epsilon": 1} | wrong)


@pytest.mark.parametrize(
    ("step", "amount"), [(1.5, 0.1), ("1", 0.1), (1, 0), (1, -1), (1, float("nan")), (1, 2), (2**63, 0.1)]
)
def test_bad_charges_spend_nothing(step, amount):
    window = dh.accounts.Window(length=3, epsilon=1)
    with pytest.raises(dh.InputError):
        window.charge(step, amount)
    assert window.last_step is None


# ---------------------------------------------------------------------------------- publishers


@pytest.mark.parametrize(
    "refused",
    [
        lambda account: dh.publish(-COUNTS, LINE, CELLS, 0.5, account=account),
        lambda account: dh.publish(COUNTS, LINE, CELLS, rho=0.5, account=account),
        lambda account: dh.publishers.publish_sorted([np.nan], LINE, 0.5, account=account),
    ],
)
def test_what_is_refused_is_not_charged(tmp_path, refused):
    account = dh.accounts.Account.total(epsilon=100, ledger=tmp_path / "l")
    with pytest.raises(dh.InputError):
        refused(account)
    assert (account.spent, account.payments) == (0, [])


def test_the_release_states_what_its_account_has_spent(tmp_path):
    account = dh.accounts.Account.total(epsilon=3, name="checkins")
    for publish, data in (
        (dh.publish, (COUNTS, LINE, CELLS)), (dh.publishers.publish_sorted, (POINTS, LINE)),
        (dh.publishers.publish_quantile, (POINTS, 0.5, LINE)),
    ):  # fmt: skip
        release = publish(*data, epsilon=0.5, account=account)
        release.save(tmp_path / "file")
        everyone = Population("everyone", 1, (("epsilon", account.spent, Fraction(3), Fraction(3)),))
        for each in (release, dh.load(tmp_path / "file")):
            assert each.payment == Payment("checkins", "epsilon", Fraction(3), account.spent, None, everyone)
    assert account.spent == Fraction(3, 2)


def test_a_window_pays_for_steps_alone():
    window = dh.accounts.Window(length=7, epsilon=1, name="days")
    release = dh.publish(COUNTS, LINE, CELLS, epsilon=0.25, account=dh.accounts.Account(window, 0))
    with pytest.raises(dh.BudgetExceeded, match=r"-5 to 1 .* 0\.25"):
        dh.publish(COUNTS, LINE, CELLS, epsilon=1, account=dh.accounts.Account(window, 1))
    with pytest.raises(dh.InputError):
        window.ledger.charge("days", 0.25)
    assert window.spent(0) == release.payment.spent == Fraction(1, 4)


def test_a_copy_of_the_first_state_cannot_be_refined_after_the_last_one():
    waiting = ChainCharge(1, "one", "two").after_charge(2, "two", "one", "c" * 32)
    assert waiting == ChainCharge(2, "two", None)
    for step in (waiting.after_writing, lambda *state: waiting.after_charge(3, *state)):
        with pytest.raises(dh.InputError, match="has been used already"):
            step("copy", None, "c" * 32)
    assert waiting.after_writing("three", "two", "c" * 32) == ChainCharge(2, "two", "three")
