"""accounts/withdrawals.py: what an account keeps of withdrawals, in each database, and kills in between."""

import os
import signal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import deltahist as dh
from deltahist.accounts.withdrawals import check_paid
from deltahist.budget import Payment
from deltahist.releases.notices import Notice
from tests.accounts.processes import SERVER

NEAR = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1)


def publish(where, path):
    """Publish a release that an account of a ledger pays for; return the ledger."""
    ledger = dh.Ledger(where)
    account = dh.Account.total(epsilon=2, ledger=ledger, name="visits")
    dh.publish(np.ones(8, dtype=int), NEAR, "identity", 1, account=account).save(path)
    return ledger


def withdraw_and_be_killed(where, path):
    """Withdraw a release in a process that is killed when it comes to write the notice."""
    Notice.save = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    dh.withdraw(path, "wrong column", ledger=where)


def test_a_kill_between_the_entry_and_the_notice_is_mended(where, tmp_path):
    path, notice = tmp_path / "city.parquet", tmp_path / "city.withdrawn.json"
    ledger = publish(where, path)
    killed = SERVER.Process(target=withdraw_and_be_killed, args=(where, path))
    killed.start()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    assert not notice.exists()
    (kept,) = ledger.standing("visits").withdrawn
    assert (kept["file"], kept["reason"]) == ("city.parquet", "wrong column")
    with pytest.raises(dh.InputError, match="'wrong column'"):
        dh.withdraw(path, "another", ledger=where)
    found = dh.withdraw(path, "wrong column", ledger=where)
    written = notice.read_bytes()
    assert dh.withdraw(path, "wrong column", ledger=where) == found
    assert notice.read_bytes() == written
    assert ledger.standing("visits").withdrawn == (kept,)
    assert (ledger.spent("visits"), ledger.left("visits")) == (1, 1)
    assert ledger.problems() == []


def test_an_entry_needs_no_account_to_be_open_for_more(where, tmp_path):
    path = tmp_path / "city.parquet"
    ledger = publish(where, path)
    ledger.charge("visits", 1)
    dh.withdraw(path, "wrong column", ledger=where)
    with pytest.raises(dh.BudgetExceeded):  # what was spent stays spent
        ledger.charge("visits", Fraction(1, 10**9))


@pytest.mark.parametrize(
    ("charges", "step", "paid"),
    [
        ({5: 10**9}, 5, True), ({5: 10**9 - 1}, 5, False), ({5: 10**9, 7: 1}, 6, False), ({5: 10**9}, 6, False),
        ({5: 10**9}, 4, True), ({}, 4, False),
    ],
)  # fmt: skip
def test_a_window_paid_for_steps_that_it_remembers_or_may_have_forgotten(charges, step, paid):
    class Accounts:
        def rule(self, name):
            return dh.Window(3, epsilon=2).rule.describe()

        def charges(self, name):
            return charges

    payment = Payment("window", "epsilon", Fraction(2), Fraction(1), 3)
    if paid:
        return check_paid(Accounts(), payment, "a", (step, Fraction(1)))
    with pytest.raises(dh.InputError, match="has spent less"):
        check_paid(Accounts(), payment, "a", (step, Fraction(1)))


def test_a_withdrawal_without_a_ledger_makes_none(tmp_path):
    path = tmp_path / "city.parquet"
    publish(tmp_path / "city.ledger", path)
    Path(tmp_path / "city.ledger").unlink()
    with pytest.raises(dh.InputError, match="does not exist"):
        dh.withdraw(path, "wrong column", ledger=tmp_path / "city.ledger")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["city.parquet"]
