"""Processes that ask and are killed at random points: each shown answer was charged, and nothing is overspent."""

import json
import os
import random
import signal
import time
from fractions import Fraction

import duckdb
import pytest
from sqlalchemy import select

from deltahist.accounts.ledger import Ledger
from deltahist.personal import People
from deltahist.personal.people import _ANSWERS, Purses

EPSILON = Fraction(1, 1000)
#: Bob, who has two records, can pay for a few questions only.
LIMITS = {"Ada": Fraction(100), "Bob": Fraction(1, 25)}


def ask_until_killed(folder, begin):
    """Ask questions with different keys, and write down their answers."""
    people = People(folder / "city.duckdb", "trip", owner="who", ledger=folder / "l")
    records = people.records.where("hour > 7")
    with (folder / "answers").open("a") as out:
        for number in range(begin, begin + 1000):
            answer = records.count(epsilon=EPSILON, key=f"question {number}")
            out.write(json.dumps([f"question {number}", answer.estimate]) + "\n")
            out.flush()


def killed_run(folder, begin, seconds, answered):
    """Kill a process some seconds after its start, or after its first answer; a fork saves the imports."""
    answers = folder / "answers"
    answers.touch()
    before = answers.stat().st_size
    child = os.fork()
    if child == 0:
        try:
            ask_until_killed(folder, begin)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while answered and answers.stat().st_size == before and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it ended before it was killed"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kills", [4, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_killed_process_has_charged_for_each_answer(tmp_path, kills):
    with duckdb.connect(tmp_path / "city.duckdb") as base:
        base.execute("CREATE TABLE trip (who TEXT, hour INTEGER)")
        base.execute("INSERT INTO trip VALUES ('Ada', 8), ('Bob', 8), ('Bob', 9), ('Bob', 6)")
    people = People(tmp_path / "city.duckdb", "trip", owner="who", ledger=tmp_path / "l")
    people.join(list(LIMITS), epsilon=list(LIMITS.values()))
    people.database.close()
    chance = random.Random(5)
    for run in range(kills):
        # Every second run has answered before it is killed, however slow the machine is.
        answered = run % 2 == 0
        killed_run(tmp_path, 1000 * run, chance.uniform(0, 0.3) if answered else chance.uniform(0.15, 0.5), answered)
    with Purses(Ledger(tmp_path / "l"), "people").open_turn() as turn:
        kept = {row.key: row.answer for row in turn._connection.execute(select(_ANSWERS))}
        spent = [Fraction(nano, 10**9) for nano in turn.spent.tolist()]
    shown = [json.loads(line) for line in (tmp_path / "answers").read_text().splitlines() if line.endswith("]")]
    assert len(shown) >= kills // 3  # a kill may cut short the line of a first answer
    assert all(kept[key] == [estimate] for key, estimate in shown)
    # A charge and its answer are one transaction: exactly the kept answers were charged.
    assert spent[0] == EPSILON * len(kept)
    assert spent[1] == min(2 * EPSILON * len(kept), LIMITS["Bob"])
    assert len(shown) <= len(kept) <= len(shown) + kills
