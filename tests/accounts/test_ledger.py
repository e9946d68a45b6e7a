"""The ledger in every database: charges by name and under keys, refusals, populations, audits and processes."""

import contextlib
import json
import multiprocessing
import os
import pickle
import threading
from fractions import Fraction

import pytest
from sqlalchemy import update

import deltahist as dh
from deltahist.accounts import Account, Window
from deltahist.accounts.databases import ACCOUNTS, CHARGES, POPULATIONS
from deltahist.accounts.ledger import Ledger, get_note, open_account, set_note
from deltahist.budget import Budget, Charge, Payment, Population
from deltahist.laws import Guarantee
from deltahist.personal.people import Purses


@pytest.fixture
def city(where):
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    return ledger


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("a", {}), ("a", {"epsilon": 1, "rho": 1}), ("a", {"epsilon": 0}),
        ("a", {"epsilon": 1e-10}), ("", {"epsilon": 1}), ("a\nb", {"epsilon": 1}),
    ],
)  # fmt: skip
def test_bad_limits_and_names_open_no_account(name, limit):
    ledger = Ledger(None)
    with pytest.raises(dh.InputError):
        ledger.open(name, **limit)
    assert ledger.list_accounts() == {}


@pytest.mark.parametrize(
    "ask",
    [
        *(
            lambda city, amount=amount: city.charge("city", amount)
            for amount in (0, -0.1, float("nan"), "0.1", Budget(rho=0.1),
                           Charge(Fraction(1, 10), "rho"), Guarantee(epsilon=Fraction(0)))
        ),
        lambda city: city.charge("town", 0.1),
        lambda city: city.spent("town"),
        lambda city: city.charge("days", 0.1),
        lambda city: city.charge("people", 0.1),
        lambda city: city.left("people"),
        lambda city: city.charge("city", 0.1, key="a\tb"),
    ],
)  # fmt: skip
def test_what_is_refused_charges_nothing(accounts, ask):
    before = accounts.list_standings()
    with pytest.raises(dh.InputError):
        ask(accounts)
    assert accounts.list_standings() == before


@pytest.fixture
def accounts(tmp_path):
    return with_accounts(tmp_path / "l")


def with_accounts(where):
    """A ledger with accounts of every kind."""
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    ledger.charge("city", 0.3, key="May")
    Account.total(epsilon=1, ledger=ledger, name="city").pay(Guarantee(epsilon=Fraction(1, 5)), chain="c" * 32)
    window = Window(2, rho=1, ledger=ledger, name="days")
    for step in range(4):
        window.charge(step, 0.4)
    with ledger.transaction() as connection:
        open_account(connection, "people", {"kind": "purses", "unit": "epsilon"})
    return ledger


def test_standings_state_the_sums_of_each_account_and_of_all(where):
    found = {each.account: each for each in with_accounts(where).list_standings()}
    assert (found["city"].spent, found["city"].left) == (Fraction(1, 2), Fraction(1, 2))
    assert (found["days"].unit, found["days"].spans[0].steps, found["days"].left) == ("rho", 2, Fraction(1, 5))
    sums = (("epsilon", Fraction(1, 2), Fraction(1), Fraction(1)), ("rho", Fraction(8, 5), None, Fraction(1)))
    assert found["city"].population == found["days"].population == Population("everyone", 2, sums, True)
    assert not {"limit", "spent", "left"} & found["people"].describe().keys()


# ---------------------------------------------------------------------------------- populations


def test_accounts_of_the_same_people_add_up(where):
    """Basic composition: a map for 1 and a stream of 1 in any two steps, of which six have been published."""
    ledger = Ledger(where)
    ledger.open("visits", epsilon=1)
    ledger.charge("visits", 1)
    window = Window(2, epsilon=1, ledger=ledger, name="stream")
    for step in range(6):
        payment = Account(window, step).pay(Guarantee(epsilon=Fraction(1, 2)))
    ledger.open("others", epsilon=4, population="visitors")
    ledger.charge("others", 3)
    everyone = Population("everyone", 2, (("epsilon", Fraction(4), None, Fraction(2)),))
    visitors = Population("visitors", 1, (("epsilon", Fraction(3), Fraction(4), Fraction(4)),))
    assert payment.population == ledger.read_standing("visits").population == everyone
    assert ledger.read_standing("others").population == visitors
    assert Payment.from_description(json.loads(json.dumps(payment.describe()))) == payment


def test_a_population_has_a_limit_of_its_own(where):
    ledger = Ledger(where)
    ledger.open("visits", epsilon=1, population_limit=Fraction(3, 2))
    window = Window(2, epsilon=1, ledger=Ledger(where), name="stream")
    assert ledger.charge("visits", 0.75).amount == Fraction(3, 4)
    assert window.charge(0, 0.5).amount == window.charge(1, 0.25).amount * 2
    for ask in (lambda: window.charge(2, 1e-9), lambda: ledger.charge("visits", 0.25)):
        with pytest.raises(dh.BudgetExceeded, match=r"1\.5 of 1\.5"):
            ask()
    chained = Account.total(epsilon=2, ledger=ledger, name="chain")
    with pytest.raises(dh.BudgetExceeded):
        chained.pay(Guarantee(epsilon=Fraction(1)), chain="c" * 32)
    assert ledger.read_standing("visits").population.sums == (("epsilon", *[Fraction(3, 2)] * 3),)
    assert ledger.left("stream") == ledger.left("visits") == window.available(2) == 0
    assert ledger.find_problems() == []


def test_a_population_with_a_limit_refuses_other_limits_units_and_purses():
    ledger = Ledger(None)
    ledger.open("visits", epsilon=1, population_limit=2)
    ledger.open("visits", epsilon=1, population="everyone", population_limit=2)
    for refused in (
        lambda: ledger.open("more", epsilon=1, population_limit=3),
        lambda: ledger.open("visits", epsilon=1, population="visitors"),
        lambda: ledger.open("more", rho=1),
        lambda: Purses(ledger, "people"),
    ):
        with pytest.raises(dh.InputError):
            refused()
    assert list(ledger.list_accounts()) == ["visits"]
    ledger.open("more", rho=1, population="visitors")
    with pytest.raises(dh.InputError):
        ledger.open("even more", rho=1, population="visitors", population_limit=2)


def test_a_name_has_one_spelling(where):
    """NFC, NFD and spaces at the end name one account and one key, which have one limit."""
    ledger, names = Ledger(where), ["Z\u00fcrich", "Zu\u0308rich", "Z\u00fcrich "]
    for name in names:
        ledger.open(name, epsilon=1, population=name)
        ledger.charge(name, 0.25, key=name)
        Window(None, epsilon=1, ledger=ledger, name=name).charge(0, 0.125)
    assert list(ledger.list_accounts()) == ["Z\u00fcrich"]
    assert {ledger.spent(name) for name in names} == {Fraction(5, 8)}
    assert ledger.read_standing(names[1]).population.name == "Z\u00fcrich"


def _alter(table, owner, **values):
    column = table.c.name if table is ACCOUNTS else table.c.account
    return lambda connection: connection.execute(update(table).where(column == owner).values(**values))


@pytest.mark.parametrize(
    ("alter", "number"),
    [
        (_alter(CHARGES, "city", nano=600_000_000), ""),
        (_alter(ACCOUNTS, "city", spent=100_000_000), "0.5"),
        (_alter(CHARGES, "days", nano=700_000_000), "1.4"),
        (_alter(CHARGES, "city", account="nobody"), "'nobody'"),
        (_alter(ACCOUNTS, "days", rule={"kind": "stock"}), "'stock'"),
        (_alter(ACCOUNTS, "days", rule={"kind": "total"}), "'total'"),
        (_alter(ACCOUNTS, "days", most=2 * 10**9), "'days'"),
        (_alter(ACCOUNTS, "days", rule=[]), "None"),
        (_alter(ACCOUNTS, "days", notes=7), "None"),
        (lambda c: set_note(c, "city", "chain c", {"paid": 1}), "chain c"),
        (lambda c: set_note(c, "city", "chain c", {"nano": 10**9}), "chains"),
        (lambda c: c.execute(update(POPULATIONS).values(rule={"kind": "total", "epsilon_nano": 1})), "'everyone'"),
    ],
)
def test_an_audit_finds_what_cannot_be_right(accounts, alter, number):
    assert accounts.find_problems() == []
    with accounts.transaction() as connection:
        alter(connection)
    assert any(number in problem for problem in accounts.find_problems()), accounts.find_problems()


def test_the_database_itself_keeps_the_limit_of_all_charges(city):
    """Even a program that bypasses the guard cannot let an account exceed its limit."""
    with pytest.raises(dh.InputError), city.transaction() as connection:
        connection.execute(update(ACCOUNTS).values(spent=10**9 + 1))
    with pytest.raises(dh.InputError), city.transaction() as connection:
        connection.execute(CHARGES.insert(), {"account": "city", "step": 0, "nano": -1})
    assert city.spent("city") == 0


# ---------------------------------------------------------------------------------- transactions


def test_a_transaction_is_seen_once_it_commits_and_undone_by_an_error(city):
    for fails in (True, False):
        with contextlib.suppress(ZeroDivisionError), city.transaction() as connection:
            set_note(connection, "city", "rows", {"a": [1]})
            with city.read() as other:
                assert get_note(other, "city", "rows") is None
            1 / (not fails)
        with city.read() as other:
            assert get_note(other, "city", "rows") == (None if fails else {"a": [1]})


def test_a_transaction_within_a_transaction_is_refused_at_once(city):
    with city.transaction(), pytest.raises(dh.InputError, match="thread"):
        city.charge("city", 0.1)
    assert city.charge("city", 0.1).amount == Fraction(1, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("start", [threading.Thread, multiprocessing.get_context("fork").Process])
def test_threads_and_forks_take_turns(city, start):
    def charge():
        for _ in range(5):
            city.charge("city", 0.02)

    others = [start(target=charge) for _ in range(3)]
    for other in others:
        other.start()
    charge()
    for other in others:
        other.join(60)
    assert [getattr(other, "exitcode", 0) for other in others] == [0, 0, 0]
    assert city.spent("city") == pickle.loads(pickle.dumps(city)).spent("city") == Fraction(4, 10)
    assert city.find_problems() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_ledger_in_memory_pays_in_its_own_process_alone():
    """A copy in another process would pay a second time from the same budget."""
    account = Account.total(epsilon=1)
    account.window.charge(0, 0.5)
    for copied in (account, account.window, account.window.ledger):
        with pytest.raises(dh.InputError):
            pickle.dumps(copied)

    def charge():
        with pytest.raises(dh.InputError):
            account.window.charge(0, 0.5)
        with pytest.raises(dh.InputError):
            account.spent  # noqa: B018

    child = multiprocessing.get_context("fork").Process(target=charge)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert account.left == Fraction(1, 2)
