"""Any course of events, in every database, against a plain model of what each account must have spent."""

from fractions import Fraction

import psycopg
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.laws import Guarantee

NAMES, KEYS = st.sampled_from(["city", "town"]), st.sampled_from(["k" * 200, "June", "é"])
AMOUNTS = st.sampled_from([0.1, 0.25, Fraction(1, 3), Fraction(1, 7), 1e-9, 0.6, 1, 2])
LIMITS = {"city": {"epsilon": 2}, "town": {"rho": 1}}
STEPS = 3


def nano(amount):
    """Billionths, rounded up, of what a number prints as."""
    return -int(-Fraction(str(amount)) * 10**9 // 1)


class Course(RuleBasedStateMachine):
    """A ledger, and a plain model of it."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    @initialize()
    def begin(self):
        self.ledger = Ledger(self.where)
        self.spent, self.keys, self.chains, self.days = {}, {}, {}, {}

    @rule(name=NAMES)
    def open(self, name):
        self.ledger.open(name, **LIMITS[name])
        self.spent.setdefault(name, 0)

    @rule(name=NAMES)
    def open_with_another_limit(self, name):
        if name in self.spent:
            with pytest.raises(dh.InputError):
                self.ledger.open(name, epsilon=3)

    @rule()
    def reopen(self):
        self.ledger = Ledger(self.where)

    def pay(self, name, cost, ask):
        """The result of `ask`, or None where the model expects a refusal."""
        if name not in self.spent:
            with pytest.raises(dh.InputError):
                ask()
            return None
        if self.spent[name] + cost > 10**9 * LIMITS[name].get("epsilon", 1):
            with pytest.raises(dh.BudgetExceeded):
                ask()
            return None
        out = ask()
        self.spent[name] += cost
        return out

    @rule(name=NAMES, amount=AMOUNTS)
    def charge(self, name, amount):
        out = self.pay(name, nano(amount), lambda: self.ledger.charge(name, amount))
        assert out is None or out.nano == nano(amount)

    @rule(name=NAMES, amount=AMOUNTS, key=KEYS)
    def charge_with_a_key(self, name, amount, key):
        before = self.keys.get((name, key))
        if before is None:
            if self.pay(name, nano(amount), lambda: self.ledger.charge(name, amount, key=key)) is not None:
                self.keys[name, key] = nano(amount)
        elif before == nano(amount):
            assert self.ledger.charge(name, amount, key=key).nano == before
        else:
            with pytest.raises(dh.InputError):
                self.ledger.charge(name, amount, key=key)

    @rule(amount=AMOUNTS, chain=st.sampled_from("ab"), settled=st.booleans())
    def refine(self, amount, chain, settled):
        if "city" not in self.spent:
            return
        account = dh.accounts.Account.total(epsilon=2, ledger=self.ledger, name="city")
        promise = Guarantee(epsilon=Fraction(str(amount)))
        paid, token = self.chains.get(chain, (0, None))
        due = max(0, nano(amount) - paid)
        if self.pay("city", due, lambda: account.pay(promise, chain=chain, token=token, source=token)) is None:
            return
        if settled:
            token, source = f"{token}+", token
            account.record_state(chain, token, source)
        self.chains[chain] = (max(paid, nano(amount)), token)

    @rule(amount=AMOUNTS, step=st.integers(0, 12), once=st.booleans())
    def charge_a_day(self, amount, step, once):
        window = dh.accounts.Window(STEPS, epsilon=1, ledger=self.ledger, name="days")
        held = sum(each for at, each in self.days.items() if step - STEPS < at <= step)
        last = max(self.days, default=-1)
        ask = lambda: window.charge_nano(step, nano(amount), once=once)[0]  # noqa: E731
        if step < last or (once and step == last):
            with pytest.raises(dh.InputError):
                ask()
        elif held + nano(amount) > 10**9:
            with pytest.raises(dh.BudgetExceeded):
                ask()
        else:
            assert ask() * 10**9 == held + nano(amount)
            self.days[step] = self.days.get(step, 0) + nano(amount)

    @invariant()
    def it_agrees_with_the_model(self):
        assert self.ledger.find_problems() == []
        found = {each.account: each for each in self.ledger.list_standings() if each.kind == "total"}
        assert {name: each.spent * 10**9 for name, each in found.items()} == self.spent
        assert self.ledger.list_charges("days") == dict(sorted(self.days.items()))


def test_any_course_of_events(where, tmp_path):
    files = iter(range(10**6))

    def fresh():
        if where == tmp_path / "city.ledger":
            return Course(tmp_path / f"{next(files)}.ledger")
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS deltahist CASCADE")
        return Course(where)

    run_state_machine_as_test(fresh, settings=settings(max_examples=8, stateful_step_count=25))
