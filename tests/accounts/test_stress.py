"""Many clients at once, and clients that are killed: nothing is overspent, no charge is lost, no answer is free."""

import dataclasses
import json
import os

import pytest

from benchmarks import ledger as stress
from deltahist.accounts.ledger import Ledger
from deltahist.accounts.tables import Accounts
from tests.accounts.processes import SERVER


def test_sixty_four_clients(where):
    served = stress.many_clients(where, 150, processes=2, threads=32)
    assert served.faults == ()
    assert (served.requests, served.answered) == (150, 96)
    assert served.refused > 20
    assert "96 answered" in served.words


def test_clients_that_are_killed(where, tmp_path):
    served = stress.killed(where, tmp_path, 12)
    assert served.faults == ()
    assert served.answered > 2
    assert len(list(tmp_path.glob("*.told"))) > 12


def test_whoever_dies_in_a_transaction_leaves_no_trace(where):
    """Killed after the charge and the answer, before the commit."""
    ledger = Ledger(where)
    ledger.open("city", epsilon=1)
    client = SERVER.Process(target=_die_within, args=(where,))
    client.start()
    client.join(60)
    assert client.exitcode == 9
    assert ledger.spent("city") == 0
    assert ledger.answer("city", 0.5, lambda charge: "again", key="k") == "again"
    assert ledger.problems() == []


def _die_within(where):
    keep = Accounts.keep_answer

    def dying(self, *what):
        keep(self, *what)
        os._exit(9)

    Accounts.keep_answer = dying
    Ledger(where).answer("city", 0.5, lambda charge: "first", key="k")


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("a charge is lost", "LOST"),
        ("an answer is not kept", "UNCHARGED"),
        ("another answer is kept", "DIFFERING"),
        ("the limit is forgotten", "OVERSPENT"),
        ("one is refused too many", "REFUSED"),
    ],
)
def test_what_goes_wrong_is_found(tmp_path, bug, said):
    ledger = Ledger(tmp_path / "l")
    ledger.open(stress.ACCOUNT, epsilon=stress.AMOUNT * 3)
    told = [(number, stress._ask(ledger, number)) for number in range(4)]
    assert [answer is None for _, answer in told] == [False, False, False, True]
    assert stress._agreed(ledger, told, 1.0).faults == ()
    with ledger.transaction() as accounts:
        if bug == "a charge is lost":
            accounts.charge(stress.ACCOUNT, 0, -1_000_000)
        if bug == "the limit is forgotten":
            accounts.charge(stress.ACCOUNT, 0, 1_000_000)
        if bug == "one is refused too many":
            rule = json.dumps(accounts.rule(stress.ACCOUNT) | {"epsilon_nano": 4_000_000})
            accounts._connection.exec_driver_sql("UPDATE account SET rule = ?", (rule,))
    if bug == "an answer is not kept":
        told.append((7, "free"))
    if bug == "another answer is kept":
        told.append((0, json.dumps("other")))
    found = stress._agreed(ledger, told, 1.0)
    assert any(fault.startswith(said) for fault in found.faults)
    assert said in dataclasses.replace(found, seconds=2.0).words
