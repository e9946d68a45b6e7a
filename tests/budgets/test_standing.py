"""How accounts stand, and what an audit finds in ledgers that somebody else has written to."""

import contextlib
import json
from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.budgets.ledger import Ledger


@pytest.fixture
def ledger(where):
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    ledger.open("gauss", epsilon=1, probability=1e-6)
    ledger.charge("city", 0.3, key="May")
    ledger.charge("gauss", dh.Budget(0.5, probability=5e-7), key="May")
    dh.Account.total(epsilon=1, ledger=ledger, name="city").window.charge_up_to(0.2, "c" * 32, None)
    window = dh.Window(2, rho=1, ledger=ledger, name="days")
    for step in range(4):
        window.charge(step, 0.4)
    with ledger.transaction() as change:
        change.open("people", {"kind": "purses", "unit": "epsilon"})
        change.store("people", "number", 123_456)
    return ledger


def test_how_accounts_stand(ledger):
    assert ledger.problems() == []
    found = {each.account: each for each in ledger.standings()}
    assert ledger.standing("city") == found["city"]
    assert (found["city"].spent, found["city"].left) == (Fraction(1, 2), Fraction(1, 2))
    assert (found["days"].unit, found["days"].steps, found["days"].left) == ("rho", 2, Fraction(1, 5))
    assert found["gauss"].describe() == {
        "account": "gauss", "unit": "epsilon", "steps": None, "limit": 1.0, "spent": 0.5, "left": 0.5,
        "probability": 1e-6, "probability_spent": 5e-7,
    }  # fmt: skip
    assert found["people"].describe() == {"account": "people", "unit": "epsilon", "steps": None, "kind": "purses"}


def test_nothing_is_told_of_peoples_own_budgets(ledger):
    for look in (ledger.spent, ledger.left):
        with pytest.raises(dh.InputError, match="'people' holds people's own budgets: nothing is told"):
            look("people")
    with pytest.raises(dh.InputError, match="is of kind 'purses': only a total is charged by its name"):
        ledger.charge("people", 0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda to: to.charge("city", 0, 600_000_000), "account 'city' has spent 1.1, more than its limit, 1"),
        (lambda to: to.charge("days", 3, 600_000_000), "account 'days' has spent 1.4, more than its limit"),
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
def test_an_audit_finds_what_cannot_be_right(ledger, change, said):
    with ledger.transaction() as accounts:
        change(accounts)
    with ledger._database.read() as accounts:
        before = [accounts.rules(), *(accounts.charges(name) for name in accounts.rules())]
    problems = ledger.problems()
    assert [said in problem for problem in problems] == [True], problems
    with ledger._database.read() as accounts:
        assert before == [accounts.rules(), *(accounts.charges(name) for name in accounts.rules())]


def test_an_audit_reads_the_whole_file(tmp_path):
    ledger = Ledger(tmp_path / "l")
    ledger.open("city", epsilon=1)
    data = bytearray(ledger.path.read_bytes())
    name = json.dumps({"epsilon_nano": 10**9, "kind": "total"}).encode()
    at = data.index(name)
    data[at - 10 : at - 2] = b"\xff" * 8
    ledger.path.write_bytes(data)
    with contextlib.suppress(dh.DamagedFile):
        assert ledger.problems() != []
