"""Accounts by name, in every database: what a charge costs, keys, answers that are kept, and what is refused."""

import contextlib
import threading
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.budget import Budget, Charge
from deltahist.budgets import accounts as tables
from deltahist.budgets.ledger import Ledger
from deltahist.budgets.rules import ATTO

LINE = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)


@pytest.fixture
def ledger(where):
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    return ledger


def test_ten_times_a_tenth_is_one(ledger):
    for _ in range(10):
        assert ledger.charge("city", 0.1) == Fraction(1, 10)
    assert (ledger.spent("city"), ledger.left("city")) == (1, 0)
    with pytest.raises(dh.BudgetExceeded, match=r"amount is 1e-09: account 'city' has spent 1 of 1, 0 is left"):
        ledger.charge("city", 1e-9)


def test_it_is_the_account_of_publishers(ledger, where):
    account = dh.Account.total(epsilon=1, ledger=where, name="city")
    dh.publish(np.ones(8, dtype=int), LINE, epsilon=0.5, account=account)
    ledger.charge("city", 0.25)
    account.window.charge_up_to(0.2, "c" * 32, None)
    assert account.spent == ledger.spent("city") == Fraction(19, 20)
    dh.Account.total(rho=2, ledger=where, name="other")
    ledger.open("other", rho=2)
    release = dh.publish(np.ones(8, dtype=int), LINE, rho=ledger.charge("other", 0.5))
    assert release.guarantee.rho == ledger.spent("other") == Fraction(1, 2)


def test_an_account_is_opened_with_one_limit(ledger):
    ledger.open("city", epsilon=Fraction(1))
    with pytest.raises(dh.InputError, match="opened with other parameters: epsilon was 1, is 2"):
        ledger.open("city", epsilon=2)
    with pytest.raises(dh.InputError, match="epsilon was 1, is null, rho was null, is 1"):
        ledger.open("city", rho=1)
    with pytest.raises(dh.InputError, match="probability was null, is 1e-06"):
        ledger.open("city", epsilon=1, probability=1e-6)
    ledger.open("third", epsilon=Fraction(1, 3))
    assert ledger.left("third") == Fraction(333_333_333, 10**9)
    assert ledger.charge("third", Fraction(1, 9)) == Fraction(111_111_112, 10**9)


@pytest.mark.parametrize(
    ("name", "limit", "message"),
    [
        ("a", {}, "give epsilon .* or rho"),
        ("a", {"epsilon": 1, "rho": 1}, "one of them"),
        ("a", {"epsilon": 0}, "epsilon is 0: it must be a finite number above zero"),
        ("a", {"epsilon": float("nan")}, "epsilon is nan"),
        ("a", {"epsilon": 1e-10}, "epsilon is 1e-10: an account's limit is at least a billionth"),
        ("a", {"epsilon": 1, "probability": 1}, "probability is 1: it must lie between 0 and 1"),
        ("a", {"epsilon": 1, "probability": 1e-19}, "probability is 1e-19: an account's limit is at least 10⁻¹⁸"),
        ("a", {"rho": 1, "probability": 1e-6}, "probability goes with epsilon"),
        ("", {"epsilon": 1}, "account is '': it must be a text of 1 to 200 printable characters"),
        ("a\nb", {"epsilon": 1}, "account is"),
        (7, {"epsilon": 1}, "account is 7"),
    ],
)
def test_limits_and_names_that_are_none(tmp_path, name, limit, message):
    with pytest.raises(dh.InputError, match=message):
        Ledger(tmp_path / "l").open(name, **limit)
    assert Ledger(tmp_path / "l").accounts() == {}


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        (0, "amount is 0: it must be a finite number above zero"),
        (-0.1, "amount is -0.1"),
        (float("nan"), "amount is nan"),
        (float("inf"), "amount is inf"),
        (True, "amount is True"),
        ("0.1", "amount is '0.1': it must be a finite number above zero, of epsilon, or a Guarantee or Budget"),
        (Budget(rho=0.1), "keeps pure epsilon, and the release spends rho: the two do not add up; spend epsilon"),
        (Charge(Fraction(1, 10), "rho"), "spends rho"),
        (dh.Guarantee(epsilon=Fraction(0)), "amount is 0 of epsilon"),
        (
            Budget(0.1, probability=1e-6),
            "spends epsilon but for a probability of 1e-06: .* take an account in rho .* with a probability",
        ),
    ],
)
def test_amounts_that_are_none(tmp_path, amount, message):
    ledger = Ledger(tmp_path / "l")
    ledger.open("city", epsilon=1)
    for charge in (ledger.charge, lambda *asked: ledger.answer(*asked, draw=lambda _: 1)):
        with pytest.raises(dh.InputError, match=message):
            charge("city", amount)
    assert ledger.spent("city") == 0


def test_accounts_that_are_not_there_or_of_another_kind(ledger, where):
    dh.Window(3, epsilon=1, ledger=where, name="days").charge(4, 0.5)
    with pytest.raises(dh.InputError, match="account 'town' is not there: open it first; there are 'city', 'days'"):
        ledger.charge("town", 0.1)
    for look in (ledger.spent, ledger.left):
        with pytest.raises(dh.InputError, match="account 'town' is not there"):
            look("town")
    with pytest.raises(dh.InputError, match="'days' is of kind 'window': only a total is charged by its name"):
        ledger.charge("days", 0.1)
    assert (ledger.spent("days"), ledger.standing("days").steps) == (Fraction(1, 2), 3)


# ---------------------------------------------------------------------------------- failure probabilities


def test_probabilities_add_up_beside_epsilon(ledger):
    ledger.open("gauss", epsilon=3, probability=1e-6)
    paid = ledger.charge("gauss", Budget(1, probability=4e-7))
    release = dh.publish(
        np.ones(8, dtype=int), LINE, epsilon=paid, probability=4e-7, noise="gaussian", weak_protection_accepted=True
    )
    assert paid.probability == Fraction(4, 10**7)
    assert 0 < release.approximate(4e-7) <= 1
    ledger.charge("gauss", dh.Guarantee(epsilon=Fraction(1, 2), probability=Fraction(5, 10**7)))
    ledger.charge("gauss", 0.5)
    standing = ledger.standing("gauss")
    assert (standing.spent, standing.failed) == (2, Fraction(9, 10**7))
    message = r"probability is 2e-07: account 'gauss' has spent 9e-07 of 1e-06, 1e-07 is left"
    with pytest.raises(dh.BudgetExceeded, match=message):
        ledger.charge("gauss", Budget(0.1, probability=2e-7))
    with pytest.raises(dh.BudgetExceeded, match="amount is 2"):
        ledger.charge("gauss", Budget(2, probability=1e-8))
    assert ledger.standing("gauss") == standing
    assert ledger.problems() == []


def test_a_probability_is_rounded_up_and_does_not_survive_a_division(ledger):
    ledger.open("gauss", epsilon=3, probability=1e-6)
    paid = ledger.charge("gauss", dh.Guarantee(epsilon=Fraction(1), probability=Fraction(1, 3 * 10**7)))
    assert paid.probability == Fraction(33_333_333_334, ATTO)
    with pytest.raises(dh.InputError, match=r"charged to an account of a probability of 3.33333e-08"):
        Budget(paid, probability=1e-7)
    with pytest.raises(dh.InputError, match="charged to an account of pure ε"):
        Budget(paid / 2, probability=1e-8)


# ---------------------------------------------------------------------------------- keys


def test_a_key_charges_once(ledger):
    for _ in range(3):
        assert ledger.charge("city", 0.4, key="May", request={"visits": [1, 2]}) == Charge(Fraction(2, 5), "epsilon")
    assert ledger.spent("city") == Fraction(2, 5)
    ledger.open("town", epsilon=1)
    ledger.charge("town", 0.1, key="May")  # keys are per account
    ledger.charge("city", 0.6, key="June")
    assert ledger.charge("city", 0.4, key="May", request={"visits": (1, 2)}) == Fraction(2, 5)  # nothing is left


@pytest.mark.parametrize(
    ("again", "message"),
    [
        ({"amount": 0.3}, "amount was 0.4, is 0.3"),
        ({"request": {"visits": 2}}, "request.visits was 1, is 2"),
        ({"request": {"visits": True}}, "request.visits was 1, is true"),
        ({"request": {"visits": 1.0}}, "request.visits was 1, is 1.0"),
        ({"request": None}, 'request was {"visits": 1}, is null'),
        ({"draw": lambda charge: 1}, "drawn was false, is true"),
    ],
)
def test_a_key_of_another_request_is_refused(tmp_path, again, message):
    ledger = Ledger(tmp_path / "l")
    ledger.open("city", epsilon=1)
    asked = {"amount": 0.4, "request": {"visits": 1}, "key": "May"}
    ledger.charge("city", **asked)
    ask = ledger.answer if "draw" in again else ledger.charge
    with pytest.raises(dh.InputError, match=f"key 'May' of account 'city' was used .*: {message}; nothing was charged"):
        ask("city", **asked | again)
    assert ledger.spent("city") == Fraction(2, 5)


def test_keys_and_requests_that_are_none(ledger):
    for key in ("", "a\tb", "k" * 201, 7):
        with pytest.raises(dh.InputError, match=r"key is .*: it must be a text of 1 to 200 printable characters"):
            ledger.charge("city", 0.1, key=key)
    with pytest.raises(dh.InputError, match=r"request cannot be kept: .*int64.* must be JSON"):
        ledger.charge("city", 0.1, key="k", request={"visits": np.int64(1)})
    with pytest.raises(dh.InputError, match="request is given without a key"):
        ledger.charge("city", 0.1, request={})
    assert ledger.spent("city") == 0
    ledger.charge("city", 0.1, key="k" * 200)


def test_what_could_not_be_paid_may_be_asked_again(ledger):
    with pytest.raises(dh.BudgetExceeded):
        ledger.charge("city", 1.5, key="May")
    assert ledger.charge("city", 0.5, key="May") == Fraction(1, 2)


# ---------------------------------------------------------------------------------- answers


def test_an_answer_is_drawn_once_and_kept(ledger, where):
    drawn = []

    def draw(charge):
        drawn.append(charge)
        return {"visits": (7, 1.5), "é": None}

    first = ledger.answer("city", 0.4, draw, key="May", request="visits")
    again = Ledger(where).answer("city", 0.4, draw, key="May", request="visits")
    assert first == again == {"visits": [7, 1.5], "é": None}
    assert drawn == [Charge(Fraction(2, 5), "epsilon")]
    assert ledger.spent("city") == Fraction(2, 5)
    assert ledger.answer("city", 0.4, draw) == first  # without a key: another one
    assert (len(drawn), ledger.spent("city")) == (2, Fraction(4, 5))


def test_it_is_charged_before_it_is_drawn_and_shown_once_it_is_committed(ledger, where, monkeypatch):
    """Others see neither the charge nor the answer while it is drawn; it cannot be paid twice."""
    seen = []

    def draw(charge):
        assert charge == Fraction(2, 5)
        seen.append(Ledger(where).spent("city"))
        return 1

    def dying(self, name, *rest):
        raise RuntimeError("the machine stops")

    with monkeypatch.context() as broken:
        broken.setattr(tables.Accounts, "keep_answer", dying)
        with pytest.raises(RuntimeError, match="stops"):
            ledger.answer("city", 0.4, draw, key="May")
        broken.setattr(tables.Accounts, "charge", dying)
        with pytest.raises(RuntimeError, match="stops"):
            ledger.answer("city", 0.4, draw)
    assert seen == [0]
    assert ledger.spent("city") == 0


@pytest.mark.parametrize("key", [None, "May"])
def test_a_draw_that_fails_charges_nothing(ledger, key):
    def fail(charge):
        raise OSError("no data")

    with pytest.raises(OSError, match="no data"):
        ledger.answer("city", 0.4, fail, key=key)
    with pytest.raises(dh.InputError, match=r"what was drawn cannot be kept: .* it must be JSON"):
        ledger.answer("city", 0.4, lambda charge: np.ones(3), key=key)
    assert ledger.spent("city") == 0
    assert ledger.answer("city", 0.4, lambda charge: 1, key=key) == 1


def test_a_draw_must_not_use_its_own_ledger(ledger):
    with pytest.raises(dh.InputError, match="open in this thread already, for which this one would wait for ever"):
        ledger.answer("city", 0.4, lambda charge: ledger.charge("city", 0.1))
    assert ledger.spent("city") == 0
    ledger.charge("city", 0.1)


def test_two_threads_with_one_key_draw_once(ledger):
    drawn, found = [], []

    def ask():
        found.append(ledger.answer("city", 0.4, lambda charge: drawn.append(charge) or len(drawn), key="May"))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 6
    assert ledger.spent("city") == Fraction(2, 5)


def test_two_threads_never_spend_what_one_has_seen(ledger, monkeypatch):
    """Each looks at what is left and then waits for the other to look as well: only one may get it."""
    both, plain, won = threading.Barrier(2), tables.Accounts.charges, []

    def charges(self, name):
        found = plain(self, name)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # who holds the ledger alone waits in vain
        return found

    def spend():
        with contextlib.suppress(dh.BudgetExceeded):
            won.append(ledger.charge("city", 0.8))

    monkeypatch.setattr(tables.Accounts, "charges", charges)
    threads = [threading.Thread(target=spend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [Fraction(4, 5)]
    assert ledger.spent("city") == Fraction(4, 5)


def test_all_that_was_charged_counts_wherever_it_stands(where):
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    with ledger.transaction() as change:
        change.charge("city", 3, 5 * 10**8)
    with pytest.raises(dh.BudgetExceeded, match=r"has spent 0\.5 of 1"):
        ledger.charge("city", 0.6)
    ledger.charge("city", 0.5)
    with pytest.raises(dh.BudgetExceeded):
        ledger.charge("city", 1e-9)
