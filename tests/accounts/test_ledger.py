"""The ledger in every database: transactions, runs, forks; accounts by name, keys and answers; standing and audits."""

import contextlib
import multiprocessing
import os
import pickle
import time
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.accounts import databases, tables
from deltahist.accounts.ledger import Ledger, differences
from deltahist.budget import ATTO, Budget, Charge
from tests.accounts.processes import SERVER

LINE = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)


@pytest.fixture
def city(where):
    """A ledger with an account by name."""
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    return ledger


def test_what_is_stored_is_there_again(ledger, where):
    again = Ledger(where)
    assert again.accounts() == {"city": {"length": 3}}
    assert again.fact("city", "rows") == 17
    assert again.fact("city", "other") is None
    again.store("city", "rows", {"a": [1]})
    assert ledger.fact("city", "rows") == {"a": [1]}
    assert ledger.charges("city") == {}
    assert repr(again) == f"Ledger({ledger.place!r})"


def test_an_account_keeps_its_rule(ledger):
    ledger.account("city", {"length": 3})
    with pytest.raises(dh.InputError, match="length was 3, is 4"):
        ledger.account("city", {"length": 4})
    with pytest.raises(dh.InputError, match="about was null"):
        ledger.account("city", {"length": 3, "about": {"x": 1}})
    assert (
        differences({"a": {"b": 1, "c_nano": 5}}, {"a": {"b": 2, "c_nano": 10**9}})
        == "a.b was 1, is 2, a.c was 5e-09, is 1"
    )


def test_a_transaction_is_undone_by_an_error(ledger):
    def half_way():
        with ledger.transaction() as change:
            change.charge("city", 1, 5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_way()
    assert ledger.charges("city") == {}


def test_one_run_at_a_time(ledger, where):
    with ledger.exclusive():
        with pytest.raises(dh.InputError, match="another process publishes"), Ledger(where).exclusive():
            pass
        ledger.store("city", "rows", 1)
    with ledger.exclusive():
        pass


def _hold(path, ready, done):
    with Ledger(path).exclusive():
        ready.set()
        done.wait(60)


def test_the_lock_ends_with_its_process(ledger, where):
    ready, done = SERVER.Event(), SERVER.Event()
    other = SERVER.Process(target=_hold, args=(where, ready, done))
    other.start()
    assert ready.wait(60)
    with pytest.raises(dh.InputError, match="in use"), ledger.exclusive():
        pass
    other.kill()
    other.join()
    # A server needs a moment to notice that its client is gone.
    for _ in range(600):
        with contextlib.suppress(dh.InputError), ledger.exclusive():
            return
        time.sleep(0.05)
    pytest.fail("the lock of a killed process is still there after 30 s")


def forking(test):
    """Python warns that threads are not there after a fork: these tests are about that."""
    test = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")(test)


def _fork(work):
    """A child process with all that its parent has; it fails if the work does."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child


@forking
def test_forks_take_turns(ledger):
    def add_in_child():
        assert os.getpid() not in {process for process, *_ in databases._ENGINES}  # its parent's are not used
        add()

    def add():
        for _ in range(10):
            with ledger.transaction() as change:
                change.store("city", "rows", change.fact("city", "rows") + 1)

    children = [_fork(add_in_child) for _ in range(3)]
    add()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert ledger.fact("city", "rows") == 17 + 40


@forking
def test_a_fork_within_a_transaction_has_no_part_in_it(impatient, ledger):
    def refused():
        with pytest.raises(dh.InputError, match="lock"):
            ledger.store("city", "rows", 1)

    with ledger.transaction() as change:
        change.store("city", "rows", 2)
        child = _fork(refused)
        child.join(60)
        assert child.exitcode == 0
        change.charge("city", 1, 5)
    assert (ledger.fact("city", "rows"), ledger.charges("city")) == (2, {1: 5})


def test_who_reads_does_not_wait_and_sees_what_is_committed(ledger):
    with ledger.transaction() as change:
        change.store("city", "rows", 18)
        assert ledger.fact("city", "rows") == 17
    assert ledger.fact("city", "rows") == 18


def test_a_ledger_goes_to_other_processes_by_its_path(ledger):
    assert pickle.loads(pickle.dumps(ledger)).fact("city", "rows") == 17


# ---------------------------------------------------------------------------------- accounts by name


def test_it_is_the_account_of_publishers(city, where):
    account = dh.Account.total(epsilon=1, ledger=where, name="city")
    dh.publish(np.ones(8, dtype=int), LINE, epsilon=0.5, account=account)
    city.charge("city", 0.25)
    account.pay(dh.Guarantee(epsilon=Fraction(1, 5)), chain="c" * 32)
    assert account.spent == city.spent("city") == Fraction(19, 20)
    dh.Account.total(rho=2, ledger=where, name="other")
    city.open("other", rho=2)
    release = dh.publish(np.ones(8, dtype=int), LINE, rho=city.charge("other", 0.5))
    assert release.guarantee.rho == city.spent("other") == Fraction(1, 2)


def test_an_account_is_opened_with_one_limit(city):
    city.open("city", epsilon=Fraction(1))
    with pytest.raises(dh.InputError, match="opened with other parameters: epsilon was 1, is 2"):
        city.open("city", epsilon=2)
    with pytest.raises(dh.InputError, match="epsilon was 1, is null, rho was null, is 1"):
        city.open("city", rho=1)
    with pytest.raises(dh.InputError, match="probability was null, is 1e-06"):
        city.open("city", epsilon=1, probability=1e-6)
    city.open("third", epsilon=Fraction(1, 3))
    assert city.left("third") == Fraction(333_333_333, 10**9)
    assert city.charge("third", Fraction(1, 9)).amount == Fraction(111_111_112, 10**9)


@pytest.mark.parametrize(
    ("name", "limit", "message"),
    [
        ("a", {}, "neither epsilon nor rho is given"),
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
        (Charge(Fraction(1, 10), "rho"), "it must be a finite number above zero"),
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


def test_all_that_was_charged_counts_wherever_it_stands(city):
    with city.transaction() as change:
        change.charge("city", 3, 5 * 10**8)
    for _ in range(5):
        assert city.charge("city", 0.1).amount == Fraction(1, 10)
    assert (city.spent("city"), city.left("city")) == (1, 0)
    with pytest.raises(dh.BudgetExceeded, match=r"amount is 1e-09: account 'city' has spent 1 of 1, 0 is left"):
        city.charge("city", 1e-9)
    city.close_if_unused("city")
    city.open("town", epsilon=1)
    city.close_if_unused("town")
    assert list(city.accounts()) == ["city"]


def test_the_smallest_probabilities_add_up_too(city):
    city.open("gauss", epsilon=3, probability=Fraction(2, ATTO))
    for _ in range(2):
        paid = city.charge("gauss", dh.Guarantee(epsilon=Fraction(1, 2), probability=Fraction(1, 10**30)))
        assert paid.probability == Fraction(1, ATTO)
    with pytest.raises(dh.BudgetExceeded, match="has spent 2e-18 of 2e-18"):
        city.charge("gauss", dh.Guarantee(epsilon=Fraction(1, 2), probability=Fraction(1, 10**30)))
    with pytest.raises(dh.InputError, match="charged to an account of pure ε"):
        Budget(paid / 2, probability=1e-8)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda city: city.charge("town", 0.1), "account 'town' is not there: open it first; there are 'city', 'days'"),
        (lambda city: city.spent("town"), "account 'town' is not there"),
        (lambda city: city.charge("days", 0.1), "'days' is of kind 'window': only a total is charged by its name"),
        (lambda city: city.charge("people", 0.1), "is of kind 'purses': only a total is charged by its name"),
        (lambda city: city.left("people"), "'people' holds people's own budgets: nothing is told"),
        (lambda city: city.charge("city", 0.1, key="a\tb"), "key is .* a text of 1 to 200 printable characters"),
        (lambda city: city.charge("city", 0.1, key="k", request={"visits": np.int64(1)}), "int64.* must be JSON"),
        (lambda city: city.charge("city", 0.1, request={}), "request is given without a key"),
        (lambda city: city.answer("city", 0.1, lambda _: city.charge("city", 0.1)), "open in this thread already"),
    ],
)
def test_what_is_refused_charges_nothing(tmp_path, ask, message):
    city = with_accounts(tmp_path / "l")
    with pytest.raises(dh.InputError, match=message):
        ask(city)
    assert city.spent("city") == Fraction(1, 2)
    city.charge("city", 0.1, key="k" * 200)


def test_probabilities_add_up_beside_epsilon(city):
    city.open("gauss", epsilon=3, probability=1e-6)
    paid = city.charge("gauss", Budget(1, probability=4e-7))
    release = dh.publish(
        np.ones(8, dtype=int), LINE, epsilon=paid, probability=4e-7, noise="gaussian", weak_protection_accepted=True
    )
    assert paid.probability == Fraction(4, 10**7)
    assert 0 < release.approximate(4e-7) <= 1
    city.charge("gauss", dh.Guarantee(epsilon=Fraction(1, 2), probability=Fraction(5, 10**7)))
    city.charge("gauss", 0.5)
    standing = city.standing("gauss")
    assert (standing.spent, standing.failed) == (2, Fraction(9, 10**7))
    message = r"probability is 2e-07: account 'gauss' has spent 9e-07 of 1e-06, 1e-07 is left"
    with pytest.raises(dh.BudgetExceeded, match=message):
        city.charge("gauss", Budget(0.1, probability=2e-7))
    with pytest.raises(dh.BudgetExceeded, match="amount is 2"):
        city.charge("gauss", Budget(2, probability=1e-8))
    assert city.standing("gauss") == standing
    assert city.problems() == []


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


def test_an_answer_is_drawn_once_and_kept(city, where):
    drawn = []

    def draw(charge):
        drawn.append(charge)
        return {"visits": (7, 1.5), "é": None}

    first = city.answer("city", 0.4, draw, key="May", request="visits")
    again = Ledger(where).answer("city", 0.4, draw, key="May", request="visits")
    assert first == again == {"visits": [7, 1.5], "é": None}
    assert drawn == [Charge(Fraction(2, 5), "epsilon")]
    assert city.spent("city") == Fraction(2, 5)
    assert city.answer("city", 0.4, draw) == first  # without a key: another one
    assert (len(drawn), city.spent("city")) == (2, Fraction(4, 5))


def test_it_is_charged_before_it_is_drawn_and_shown_once_it_is_committed(city, where, monkeypatch):
    """Others see neither the charge nor the answer while it is drawn; it cannot be paid twice."""
    seen = []

    def draw(charge):
        assert charge.amount == Fraction(2, 5)
        seen.append(Ledger(where).spent("city"))
        return 1

    def dying(self, name, *rest):
        raise RuntimeError("the machine stops")

    with monkeypatch.context() as broken:
        broken.setattr(tables.Accounts, "keep_answer", dying)
        with pytest.raises(RuntimeError, match="stops"):
            city.answer("city", 0.4, draw, key="May")
        broken.setattr(tables.Accounts, "charge", dying)
        with pytest.raises(RuntimeError, match="stops"):
            city.answer("city", 0.4, draw)
    assert seen == [0]
    assert city.spent("city") == 0


@pytest.mark.parametrize("key", [None, "May"])
def test_a_draw_that_fails_charges_nothing(city, key):
    def fail(charge):
        raise OSError("no data")

    with pytest.raises(OSError, match="no data"):
        city.answer("city", 0.4, fail, key=key)
    with pytest.raises(dh.InputError, match=r"what was drawn cannot be kept: .* it must be JSON"):
        city.answer("city", 0.4, lambda charge: np.ones(3), key=key)
    assert city.spent("city") == 0
    assert city.answer("city", 0.4, lambda charge: 1, key=key) == 1


# ---------------------------------------------------------------------------------- standing


def with_accounts(where):
    """A ledger with accounts of every kind."""
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    ledger.open("gauss", epsilon=1, probability=1e-6)
    ledger.charge("city", 0.3, key="May")
    ledger.charge("gauss", dh.Budget(0.5, probability=5e-7), key="May")
    dh.Account.total(epsilon=1, ledger=ledger, name="city").pay(dh.Guarantee(epsilon=Fraction(1, 5)), chain="c" * 32)
    window = dh.Window(2, rho=1, ledger=ledger, name="days")
    for step in range(4):
        window.charge(step, 0.4)
    with ledger.transaction() as change:
        change.open("people", {"kind": "purses", "unit": "epsilon"})
        change.store("people", "number", 123_456)
    return ledger


def test_how_accounts_stand(where):
    audited = with_accounts(where)
    assert audited.problems() == []
    found = {each.account: each for each in audited.standings()}
    assert audited.standing("city") == found["city"]
    assert (found["city"].spent, found["city"].left) == (Fraction(1, 2), Fraction(1, 2))
    assert (found["days"].unit, found["days"].spans[0][0], found["days"].left) == ("rho", 2, Fraction(1, 5))
    assert found["gauss"].describe() == {
        "account": "gauss", "unit": "epsilon", "steps": None, "limit": 1.0, "spent": 0.5, "left": 0.5,
        "probability": 1e-6, "probability_spent": 5e-7,
    }  # fmt: skip
    assert found["people"].describe() == {"account": "people", "unit": "epsilon", "steps": None, "kind": "purses"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda to: to.charge("city", 0, 600_000_000), "'city' has spent 1.1, more than its limit, 1"),
        (lambda to: to.charge("days", 3, 600_000_000), "'days' has spent 1.4 in 2 steps in a row, more than its limit"),
        (lambda to: to.charge("days", 7, 1), "account 'days' keeps charges of more steps than its window"),
        (lambda to: to.charge("city", 0, -1), "was charged 0.499999999, but chains and keys paid 0.5"),
        (lambda to: to.charge("days", 2, -500_000_000), "account 'days' has a charge below zero"),
        (lambda to: to.store("gauss", "probability charged", 10**13), "spent a probability of 1e-05, which"),
        (lambda to: to.store("gauss", "probability charged", 1), "less failure probability than what its keys"),
        (lambda to: to.open("new", {"kind": "stock", "epsilon_nano": 1}), "'new' is of kind 'stock', which"),
        (lambda to: to.open("odd", {"kind": "total"}), "'odd' has a rule that cannot be read: KeyError"),
        (lambda to: to.keep_answer("nobody", "k", {}, 1), "'answer' has rows of account 'nobody', which is"),
    ],
)  # fmt: skip
def test_an_audit_finds_what_cannot_be_right(tmp_path, change, said):
    audited = with_accounts(tmp_path / "l")
    with audited.transaction() as accounts:
        change(accounts)
    with audited.read() as accounts:
        before = [accounts.rules(), *(accounts.charges(name) for name in accounts.rules())]
    problems = audited.problems()
    assert [said in problem for problem in problems] == [True], problems
    with audited.read() as accounts:
        assert before == [accounts.rules(), *(accounts.charges(name) for name in accounts.rules())]
