"""Accounts that pay for releases: spans of steps by brute force, exact sums, publishers, chains, kills and company."""

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

PUBLISHERS = {
    "counts": lambda **how: dh.publish(COUNTS, LINE, CELLS, **how),
    "sorted points": lambda **how: dh.publish_sorted(POINTS, LINE, **how),
    "a quantile": lambda **how: dh.publish_quantile(POINTS, 0.5, LINE, **how),
    "a smooth quantile": lambda **how: dh.publish_quantile(POINTS, 0.5, LINE, method="smooth", **how),
}
AMOUNTS = st.sampled_from([0.1, 0.25, 1 / 3, Fraction(1, 7), 0.999999999, 1e-9, 1.0])
SHARES = st.sampled_from([0.1, 0.25, 1 / 3, Fraction(1, 7), 0.5, 0.001, 1])


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
        window = dh.Window(length=length, epsilon=1, limits=limits, ledger=ledger)
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


def test_limits_are_kept_by_the_ledger_and_across_runs(tmp_path):
    ledger = str(tmp_path / "a.ledger")
    for step in range(1, 7):
        dh.Window(2, 1, ledger=ledger, limits=[(4, Fraction(3, 2)), (np.inf, 2)]).charge(step, 0.3)
    with pytest.raises(dh.BudgetExceeded, match=r"has spent 1\.8 of 2, 0\.2 is left"):
        dh.Window(2, 1, ledger=ledger, limits=[(4, Fraction(3, 2)), (np.inf, 2)]).charge(7, 0.3)
    with pytest.raises(dh.InputError, match="limits"):
        dh.Window(2, 1, ledger=ledger)


def test_equal_shares_keep_every_limit_and_are_refused_where_they_run_out():
    assert dh.Window(7, 1, limits=[(28, 2)]).equal_share == Fraction(71428571, 10**9)
    assert dh.Window(7, 1, limits=[(14, 2)]).equal_share == dh.Window(7, 1).equal_share
    with pytest.raises(dh.InputError):
        _ = dh.Window(7, 1, limits=[(np.inf, 4)]).equal_share


def test_it_goes_on_where_it_stopped(where):
    first = dh.Window(length=3, epsilon=1, ledger=where)
    first.charge(7, 0.6)
    again = dh.Window(length=3, epsilon=1, ledger=Ledger(where))
    assert again.last_step == 7
    assert again.available(8) == Fraction(2, 5)
    with pytest.raises(dh.InputError, match="steps must not go back"):
        again.charge(6, 0.1)
    other = dh.Window(length=3, epsilon=1, ledger=where, name="other")
    assert other.charge(1, 1).amount == 1
    assert again.available(10) == 1
    with pytest.raises(dh.InputError, match="length"):
        dh.Window(length=4, epsilon=1, ledger=where)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0"),
        ({"epsilon": None}, "one of them"),
        ({"rho": 1}, "one of them"),
        ({"epsilon": 1e-9}, "at least a billionth"),
        ({"epsilon": 2}, "epsilon was 1, is 2"),
        ({"epsilon": None, "rho": 1}, "rho was null"),
        ({"about": {"delta": 5}}, "about"),
    ],
)
def test_bad_and_other_parameters_are_refused(tmp_path, options, message):
    dh.Window(length=3, epsilon=1, ledger=tmp_path / "l").charge(1, 0.5)
    with pytest.raises(dh.InputError, match=message):
        dh.Window(**{"length": 3, "epsilon": 1, "ledger": tmp_path / "l"} | options)
    assert dh.Window(length=3, epsilon=1, ledger=tmp_path / "l").spent(1) == Fraction(1, 2)


@pytest.mark.parametrize(
    ("step", "amount", "message"),
    [(1.5, 0.1, "step is 1.5"), ("1", 0.1, "step is '1'"), (1, 0, "amount is 0"), (1, -1, "amount is -1"),
     (1, float("nan"), "amount is nan"), (1, 2, "0 of 1, 1 is left"), (2**63, 0.1, "step is")],
)  # fmt: skip
def test_bad_charges_spend_nothing(step, amount, message):
    window = dh.Window(length=3, epsilon=1)
    with pytest.raises(dh.InputError, match=message):
        window.charge(step, amount)
    assert window.last_step is None


# ---------------------------------------------------------------------------------- publishers


@settings(deadline=None, max_examples=8)
@given(st.lists(st.tuples(st.sampled_from(sorted(PUBLISHERS)), SHARES), max_size=10), st.booleans())
def test_what_was_published_never_exceeds_the_limit(asked, durable):
    with tempfile.TemporaryDirectory() as folder:
        account = dh.Account.total(epsilon=1, ledger=f"{folder}/l" if durable else None, name="people")
        published = Fraction(0)
        for name, amount in asked:
            left, payments = account.left, len(account.payments)
            try:
                release = PUBLISHERS[name](epsilon=amount, account=account)
            except dh.BudgetExceeded:
                assert rounded_up(amount) > left
                assert (account.left, len(account.payments)) == (left, payments)
                continue
            published += release.epsilon
            assert published <= account.spent == release.payment.spent <= 1
            assert account.left == left - (account.spent - (1 - left))
        assert published <= 1


@pytest.mark.parametrize("name", PUBLISHERS)
def test_the_release_says_who_keeps_the_sum(tmp_path, name):
    account = dh.Account.total(epsilon=3, name="checkins")
    PUBLISHERS[name](epsilon=1, account=account)
    release = PUBLISHERS[name](epsilon=0.5, account=account)
    release.save(tmp_path / "r")
    again = dh.load(tmp_path / "r")
    for each in (release, again):
        everyone = Population("everyone", 1, (("epsilon", Fraction(3, 2), Fraction(3), Fraction(3)),))
        assert each.payment == Payment("checkins", "epsilon", Fraction(3), Fraction(3, 2), None, everyone)
        said = "'checkins' has spent ε = 1.5 of 3, this release with it, and 1.5 was left"
        said += "; the only account of population 'everyone' has spent ε = 1.5 of 3 together"
        assert f"Account {said}" in " ".join(dh.write_statement(each).split())
        assert dh.list_facts(each)["account"]["spent"] == "3/2"
    alone = PUBLISHERS[name](epsilon=0.5)
    assert "Account             None." in dh.write_statement(alone)
    assert dh.list_facts(alone)["account"] is None
    assert "Account" not in dh.write_statement(alone.mechanism)


def test_a_window_pays_for_a_step(tmp_path):
    window = dh.Window(length=7, epsilon=1, ledger=tmp_path / "l", name="days")
    release = PUBLISHERS["counts"](epsilon=0.25, account=dh.Account(window, 3))
    assert window.spent(3) == Fraction(1, 4)
    said = "'days' has spent ε = 0.25 of 1, this release with it, in the 7 steps that end with it"
    assert said in dh.write_statement(release)
    with pytest.raises(dh.BudgetExceeded, match=r"at step 4: steps -2 to 4 have spent 0\.25"):
        PUBLISHERS["counts"](epsilon=1, account=dh.Account(window, 4))


def test_a_copy_of_the_first_state_does_not_take_the_turn_of_the_last_one():
    """A charge for what comes of the second state awaits it; the first has none before it, and is over."""
    waiting = ChainCharge(1, "one", "two").after_charge(2, "two", "one", "c" * 32)
    assert waiting == ChainCharge(2, "two", None)
    for step in (waiting.after_settling, lambda *state: waiting.after_charge(3, *state)):
        with pytest.raises(dh.InputError, match="has been used already"):
            step("copy", None, "c" * 32)
    assert waiting.after_settling("three", "two", "c" * 32) == ChainCharge(2, "two", "three")
