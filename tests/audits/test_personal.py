"""Budgets of persons: all answers together tell of a person with or without their data what their limit allows.

Through the real engine, with bugs planted beneath it. One table holds thousands of cities, in each of which the same
few people live; each question is a histogram over the cities, so that every city is a sample of its own. A city's
person "o" has records of 0 and of 1, "x" one of 1, "y" one of 0, or nobody but x and y is there.

False alarms: 0.1% each (`harness.ERROR`). Power is stated in docs/privacy/audits.md.
"""

import dataclasses
import tempfile
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import pytest

from deltahist.personal import People, people as purses, questions
from deltahist.publishers.publication import sample_law
from tests.audits.harness import Pair, audit, gaussian, pure, refuted, report

RELEASES = 16_000
LIMITS = {"epsilon": Fraction(3, 2), "rho": Fraction(1, 2)}
#: Conditions and amounts, one after the other: o pays for the first, cannot pay for the second (two records), and pays
#: for the third what is left.
COURSES = {
    "epsilon": (("value = 0", Fraction(1)), ("true", Fraction(1, 2)), ("value = 1", Fraction(1, 2))),
    "rho": (("value = 0", Fraction(2, 5)), ("true", Fraction(1, 10)), ("value = 1", Fraction(1, 10))),
}


def answers(there, number, rng, unit):
    """Answers (cities, questions) to a course of questions, of cities with o or without."""
    rows = [(f"x{i}", i, 1) for i in range(number)] + [(f"y{i}", i, 0) for i in range(number)]
    if there:
        rows += [(f"o{i}", i, value) for i in range(number) for value in (0, 1)]
    questions.sample_law = lambda law, size, _: sample_law(law, size, rng)
    questions.Histogram.decode = lambda self, noisy: noisy  # estimates and intervals follow from these
    base, frame = duckdb.connect(), pd.DataFrame(rows, columns=["who", "city", "value"])
    base.register("frame", frame)
    base.execute("CREATE TABLE records AS FROM frame")
    with tempfile.TemporaryDirectory() as folder:
        people = People(base, "records", owner="who", ledger=f"{folder}/l", **{unit: LIMITS[unit]})
        people.enrol()
        out = [
            people.records.where(condition).histogram("city", range(number), **{unit: amount})
            for condition, amount in COURSES[unit]
        ]
    base.close()
    # The last column is a published number of points; there is none.
    return np.column_stack([*out, np.full(number, -1)])


def pair(second=0):
    """What o changes: the first answer and the third, by one each; the second by two, if o took part in it.

    Rows weigh what they are worth: two to one for amounts of 1 and 1/2 in ε, and of 4 and 1 in ρ.
    """
    counts, centre, change = (np.array(each) for each in ([1], (1, 2, 1), (1, second, 1)))
    return Pair("with o or without", counts, 0 * counts, centre, change, np.array([2, 1, 1]))


def found(unit, seed=11, releases=RELEASES):
    claims = {"epsilon": pure, "rho": gaussian}[unit](LIMITS[unit])
    # All three answers are looked at, and held against what o is promised.
    return audit(
        lambda counts, number, rng: answers(bool(counts[0]), number, rng, unit),
        [pair(second=2)],
        lambda _: claims(pair()),
        releases=releases,
        seed=seed,
    )


@pytest.fixture(autouse=True)
def usual(monkeypatch):
    """What `answers` replaces is put back after each test."""
    monkeypatch.setattr(questions, "sample_law", questions.sample_law)
    monkeypatch.setattr(questions.Histogram, "decode", questions.Histogram.decode)


@pytest.mark.parametrize("unit", ["epsilon", pytest.param("rho", marks=pytest.mark.slow)])
def test_a_person_is_promised_their_limit(unit):
    findings = found(unit)
    assert not refuted(findings), report(findings)
    # Much of it can be seen to be spent: an audit that could not see that would see nothing.
    assert unit == "rho" or findings[0].bound > 0.6 * float(LIMITS[unit])


def _all_take_part(patch):
    """Records of who cannot pay are used all the same."""
    charge = purses.Turn.charge_people

    def charged(self, times, price):
        charge(self, times, price)
        return np.asarray(times) > 0

    patch.setattr(purses.Turn, "charge_people", charged)


def _multiplier_ignored(patch):
    """Whoever has records pays for one of them."""
    charge = purses.Turn.charge_people
    patch.setattr(purses.Turn, "charge_people", lambda self, times, price: charge(self, np.minimum(times, 1), price))


def _charges_forgotten(patch):
    """Every question finds the purses full."""
    read = purses.Turn.__init__

    def forgetful(self, *given):
        read(self, *given)
        self.spent = 0 * self.spent

    patch.setattr(purses.Turn, "__init__", forgetful)


def _noise_halved(patch):
    law = questions.Aggregate.law.fget
    patch.setattr(
        questions.Aggregate,
        "law",
        property(lambda self: dataclasses.replace(law(self), parameter=law(self).parameter / 2 ** law(self).norm)),
    )


def _not_squared(patch):
    """In ρ, who has k records pays k times instead of k² times."""
    charge = purses.Turn.charge_people

    def plain(self, times, price):
        return charge(self, np.sqrt(times).astype(np.int64), price)

    patch.setattr(purses.Turn, "charge_people", plain)


BUGS = [
    pytest.param(unit, bug, marks=[] if (unit, bug) == ("epsilon", _all_take_part) else pytest.mark.slow)
    for unit in LIMITS
    for bug in (_all_take_part, _multiplier_ignored, _charges_forgotten, _noise_halved)
]


@pytest.mark.parametrize(("unit", "bug"), BUGS, ids=lambda each: getattr(each, "__name__", each))
def test_planted_bugs_are_caught(unit, bug, monkeypatch):
    bug(monkeypatch)
    assert refuted(found(unit))


@pytest.mark.slow
def test_who_has_two_records_pays_four_times_in_rho(monkeypatch):
    """Two records at ρ = 1/10 cost 4/10, which o has not got after 2/5; by the plain multiple o would take part."""
    _not_squared(monkeypatch)
    monkeypatch.setitem(LIMITS, "rho", Fraction(3, 5))
    course = (("value = 0", Fraction(2, 5)), ("true", Fraction(1, 10)), ("false", Fraction(1, 10)))
    monkeypatch.setitem(COURSES, "rho", course)
    assert refuted(found("rho"))
