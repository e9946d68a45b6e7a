"""Budgets and charged amounts: read in one place, spent as what they are."""

import copy
import operator
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.budget import Budget, Charge

AMOUNTS = st.fractions(Fraction(1, 1000), 100)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({}, "one of them"),
        ({"epsilon": 1, "rho": 1}, "one of them"),
        ({"epsilon": 0}, "epsilon is 0"),
        ({"rho": float("inf")}, "rho is inf"),
        ({"epsilon": True}, "epsilon is True"),
        ({"rho": 1, "probability": 1e-6}, "probability goes with epsilon"),
        ({"epsilon": 1, "probability": 0}, "probability is 0"),
        ({"epsilon": 1, "probability": 1}, "between 0 and 1"),
        ({"epsilon": 1, "probability": float("nan")}, "probability is nan"),
        ({"rho": Charge(Fraction(1), "epsilon")}, "charged as epsilon"),
        ({"epsilon": Charge(Fraction(1), "rho")}, "charged as rho"),
        ({"epsilon": Charge(Fraction(1), "epsilon"), "probability": 1e-6}, "account of pure ε"),
    ],
)
def test_bad_budgets(budget, words):
    with pytest.raises(dh.InputError, match=words):
        Budget(**budget)


def test_budgets_say_what_they_promise():
    assert Budget(epsilon=0.5).guarantee == dh.Guarantee(epsilon=Fraction(1, 2))
    assert Budget(rho=2).guarantee == dh.Guarantee(rho=Fraction(2))
    assert Budget(1, probability=1e-6).guarantee == dh.Guarantee(Fraction(1), probability=Fraction(1e-6))
    assert Budget(Charge(Fraction(1, 3), "epsilon")).exact == (Fraction(1, 3), None)


@given(
    AMOUNTS,
    AMOUNTS,
    st.sampled_from(["add", "sub", "mul", "truediv"]),
    st.sampled_from([Fraction, float, int]),
)
def test_a_charged_amount_stays_one_in_arithmetic(first, second, name, kind):
    charge, other = Charge(first, "epsilon"), kind(second) or 1
    said = Fraction(repr(other)) if isinstance(other, float) else other
    expected = getattr(operator, name)(first, said)
    if expected > first:
        with pytest.raises(dh.InputError, match="not made more"):
            getattr(operator, name)(charge, other)
    else:
        found = getattr(operator, name)(charge, other)
        assert (found, found.unit, type(found)) == (expected, "epsilon", Charge)
    together = charge + Charge(second, "epsilon")
    assert (together, together.unit) == (first + second, "epsilon")
    with pytest.raises(dh.InputError, match="do not add up"):
        charge + Charge(second, "rho")


@pytest.mark.parametrize(
    "change",
    [
        operator.pos,
        operator.abs,
        lambda c: c % 1,
        lambda c: c**2,
        lambda c: c.limit_denominator(2),
        lambda c: c * np.float64(0.5),
        lambda c: 1 * c,
        lambda c: Fraction(1, 2) - c,
        lambda c: round(c, 1),
    ],
)
def test_no_operation_forgets_what_was_charged(change):
    found = change(Charge(Fraction(1, 2), "epsilon"))
    assert (type(found), found.unit) == (Charge, "epsilon")
    with pytest.raises(dh.InputError, match="charged as epsilon"):
        Budget(rho=found)


def test_what_was_charged_is_not_made_more():
    charge = Charge(Fraction(1, 10), "epsilon")
    for more in (lambda: charge * 5, lambda: charge + 0.1, lambda: 1 - charge, lambda: charge / 0.5):
        with pytest.raises(dh.InputError, match="not made more"):
            more()
    parts = [charge / 4] * 4
    assert sum(parts[1:], parts[0]) == charge


def test_copies_are_charged_amounts_too():
    charge = Charge(Fraction(2, 3), "rho")
    for same in (copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))):
        assert (same(charge), same(charge).unit) == (charge, "rho")
