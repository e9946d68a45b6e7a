"""Costs of a series: what releases and ledgers tell of every window, against the account that was charged."""

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.accounts.window import Account, Window
from deltahist.errors import NANO, InputError
from deltahist.mechanisms.base import Step
from deltahist.preprocessing import Clock
from deltahist.privacy import Guarantee
from deltahist.releases.costs import Costs
from deltahist.releases.together import list_runs

DAYS = Clock.of("2010-05-01", "1d")
NEAR = dh.Neighbourhood(dh.Domain((0, 4), (4,)), 1)


def paid(window, amounts, limits=()):
    """What is known of releases whose amounts a window was charged with; steps of 0 have none."""
    out = {}
    for number, amount in enumerate(amounts):
        if amount:
            payment = Account(window, number).pay(Guarantee(epsilon=amount))
            step = Step(DAYS, number, window.length, dh.Budget(1), limits) if window.length else None
            out[number] = SimpleNamespace(
                guarantee=Guarantee(epsilon=amount), payment=payment, mechanism=SimpleNamespace(step=step)
            )
    return out


def exact(nano):
    return Fraction(nano, NANO)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    length=st.integers(1, 4),
    tenths=st.lists(st.integers(0, 10), min_size=2, max_size=12),
    lost=st.sets(st.integers(0, 11), max_size=5),
    longer=st.booleans(),
)
def test_releases_tell_what_their_windows_have_spent_whichever_are_missing(length, tenths, lost, longer):
    limits = [(length + 2, Fraction(3, 2))] if longer else []
    # The amounts are made to fit one after another, as the window allows.
    window, fitted = Window(length, epsilon=1, limits=limits), []
    trial = Window(length, epsilon=1, limits=limits)
    for step, tenth in enumerate(tenths):
        fitted.append(min(Fraction(tenth, 10), trial.available(step)))
        if fitted[-1]:
            trial.charge(step, fitted[-1])
    every = paid(window, fitted, window.limits)
    known = {step: each for step, each in every.items() if step not in lost}
    if not known:
        return
    costs = Costs.of(DAYS, known)
    for step in known:
        truth = sum(fitted[max(0, step - length + 1) : step + 1])
        assert exact(costs.spent_within(length, step)) == truth
        for further, _ in window.rule.spans:
            truth = sum(fitted[max(0, step - further + 1) : step + 1])
            if step - further + 1 >= min(known) and not any(step - further < at for at in costs.unknown):
                assert exact(costs.spent_within(further, step)) >= truth
    assert exact(costs.in_all) == sum(fitted[step] for step in known)
    if costs.last == max(every):  # what came last is known from releases alone: never too little is
        for step in range(costs.last + 1, costs.last + length + 3):
            assert exact(costs.spent_within(length, step)) >= sum(fitted[max(0, step - length + 1) :])
            if not lost:
                assert exact(costs.spent_within(length, step)) == sum(fitted[max(0, step - length + 1) :])
    told = costs.with_ledger(((n, exact(limit)) for n, limit in window.rule.spans), window.charges())
    assert told.last == max(every)
    after = next((s for s in range(told.last + 1, told.last + 20) if window.available(s)), None)
    assert told.following == (after, window.available(after) * NANO)


def test_a_window_that_is_spent_says_so_and_when_it_goes_on():
    costs = Costs.of(DAYS, paid(Window(4, epsilon=1), [Fraction(1, 4)] * 6))
    assert costs.standing == (
        "ε = 1 of 1 is spent in the 4 steps that end with 2010-05-06: nothing more may be published in this window; "
        "the next step may spend 0.25 from 2010-05-07 on."
    )
    assert costs.total.startswith("All 6 releases together cost ε = 1.5 for whoever is in every step")
    assert costs.bound == "By the limits 6 steps in a row never spend more than 2."
    assert costs.elsewhere is None
    uneven = Costs.of(DAYS, paid(Window(3, epsilon=1), [Fraction(1, 2), 0, Fraction(1, 2)]))
    assert "the next step may spend 0.5 from 2010-05-04 on" in uneven.standing
    at_once = Costs.of(DAYS, paid(Window(3, epsilon=1), [Fraction(1)]))
    assert "nothing may be published before 2010-05-04; that step may spend 1 from 2010-05-04 on" in at_once.standing


def test_the_limit_that_leaves_least_is_spoken_of():
    window = Window(2, epsilon=1, limits=[(6, 2)])
    costs = Costs.of(DAYS, paid(window, [Fraction(1, 3) - Fraction(1, 10**8)] * 6, window.limits))
    assert "ε = 2 of 2 is spent in the 6 steps" in costs.standing
    assert costs.bound == "By the limits 6 steps in a row never spend more than 2."
    endless = Window(2, epsilon=1, limits=[(math.inf, 2)])
    spent = Costs.of(DAYS, paid(endless, [Fraction(1, 2)] * 4, endless.limits))
    assert "no later step may spend anything: a limit without end is spent." in spent.standing
    assert spent.following is None
    assert spent.describe()["next"] is None


def test_a_total_knows_what_was_published_elsewhere(tmp_path):
    ledger = Ledger(tmp_path / "city.ledger")
    account = Account.total(2, ledger=ledger, name="city")
    account.pay(Guarantee(epsilon=Fraction(1, 2)))
    counts, releases = np.full(4, 50), {}
    for day in range(2):
        releases[day] = dh.publish(counts, NEAR, "identity", 0.5, account=account)
    series = dh.Series(DAYS, 0, 1, releases)
    assert series.costs.standing == "ε = 1.5 of 2 is spent: 0.5 is left for whatever is published later."
    assert "has charged ε = 0.5: for what was published before, or elsewhere. It stays spent." in series.costs.elsewhere
    account.pay(Guarantee(epsilon=Fraction(1, 2)))
    told = series.with_ledger([(None, account.limit)], ledger.charges("city"))
    assert told.costs.standing == "ε = 2 of 2 is spent: nothing more may be published."
    assert "ε = 2 of 2 is spent: nothing more may be published." in " ".join(told.statement().split())
    assert told.facts()["series"]["costs"]["known_from"] == "ledger"
    assert told.between("2010-05-01", "2010-05-01").costs.from_ledger is False


def test_another_ledger_is_refused():
    window = Window(3, epsilon=1)
    costs = Costs.of(DAYS, paid(window, [Fraction(3, 10)] * 5))
    spans = [(3, Fraction(1))]
    assert costs.with_ledger(spans, window.charges()).charged == {}
    with pytest.raises(InputError, match=r"limits of ε = 2 in 3 steps in a row, and the releases state ε = 1 in 3"):
        costs.with_ledger([(3, Fraction(2))], window.charges())
    old = Window(3, epsilon=1)
    paid(old, [Fraction(3, 10)] * 4)
    with pytest.raises(InputError, match="does not know that step 2010-05-05 was paid for"):
        costs.with_ledger(spans, old.charges())
    less = {**window.charges(), 3: 1}
    with pytest.raises(InputError, match="does not know that step 2010-05-04"):
        costs.with_ledger(spans, less)


def test_releases_that_nobody_keeps_the_sum_of():
    releases = {day: dh.publish(np.full(4, 50), NEAR, "identity", rho=Fraction(1 + day, 10)) for day in range(3)}
    series = dh.Series(DAYS, 0, 2, releases)
    assert "every further release adds its own" in series.costs.standing
    assert series.dearest == 2
    text = series.statement()
    assert "ρ = 0.1 to 0.3" in text
    assert "All 3 releases together cost ρ = 0.6" in text
    assert series.facts()["rho"] == pytest.approx(0.3)
    assert list_runs(series) == [(f"2010-05-0{day + 1}",) * 2 + (1, (day + 1) * 10**8, False) for day in range(3)]


def test_no_account_limits_a_sum_that_several_paid(tmp_path):
    counts, ledgers = np.full(4, 50), [Ledger(tmp_path / f"{each}.ledger") for each in "ab"]
    for paying in ([(0, "city"), (0, "town")], [(0, "tram"), (1, "tram")], [None, (0, "bus")], [(0, "ship"), None]):
        accounts = [each and Account.total(2, ledger=ledgers[each[0]], name=each[1]) for each in paying]
        releases = {day: dh.publish(counts, NEAR, "identity", 0.9, account=own) for day, own in enumerate(accounts)}
        costs = dh.Series(DAYS, 0, 1, releases).costs
        assert (costs.spans, costs.account, costs.bound) == ((), None, None)
        assert "every further release adds its own" in costs.standing


def test_no_window_limits_steps_that_another_ledger_paid():
    one, other = (paid(Window(3, epsilon=1), [Fraction(3, 10)] * 3) for _ in range(2))
    assert Costs.of(DAYS, one).spans == ((3, NANO),)
    renewed = paid(Window(3, epsilon=1), [0, 0, Fraction(3, 10)])[2]
    assert Costs.of(DAYS, {0: one[0], 1: other[1], 2: renewed}).spans == ()


def test_a_total_that_was_charged_in_any_order_charged_nothing_besides(tmp_path):
    account = Account.total(2, ledger=tmp_path / "city.ledger", name="city")
    releases = {day: dh.publish(np.full(4, 50), NEAR, "identity", 0.5, account=account) for day in (2, 0, 1)}
    costs = dh.Series(DAYS, 0, 2, releases).costs
    assert (costs.elsewhere, costs.describe()["charged_without_release"]) == (None, 0)
    assert costs.standing == "ε = 1.5 of 2 is spent: 0.5 is left for whatever is published later."


def test_the_most_that_was_spent_may_lie_far_back_and_be_without_a_release():
    window = Window(2, epsilon=1)
    known = paid(window, [Fraction(1, 2), Fraction(1, 2), Fraction(1, 10), Fraction(1, 10)])
    costs = Costs.of(DAYS, known)
    assert costs.most_within(2) == NANO
    assert costs.describe()["spans"][0]["most_spent"] == 1
    window.charge(4, Fraction(9, 10))  # and was never finished
    told = costs.with_ledger([(2, Fraction(1))], window.charges())
    assert told.spent_within(2, told.last) == NANO
    assert told.following == (5, NANO // 10)
    window.charge(5, Fraction(1, 10))
    assert costs.with_ledger([(2, Fraction(1))], window.charges()).following == (6, NANO * 9 // 10)
    alone = Window(3, epsilon=1)
    first = Costs.of(DAYS, paid(alone, [Fraction(1, 10)]))
    alone.charge(3, Fraction(1))  # was never finished, and leaves nothing before it is out of the window
    assert first.with_ledger([(3, Fraction(1))], alone.charges()).following == (6, NANO)
