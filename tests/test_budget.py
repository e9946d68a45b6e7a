"""Budgets and charged amounts: read in one place, spent as what they are."""

import copy
import operator
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    found = getattr(operator, name)(charge, other)
    said = Fraction(repr(other)) if isinstance(other, float) else other
    assert (found, found.unit) == (getattr(operator, name)(first, said), "epsilon")
    assert isinstance(found, Charge)
    if name in ("add", "mul"):
        assert getattr(operator, name)(kind(second) or 1, charge).unit == "epsilon"
    with pytest.raises(dh.InputError, match="do not add up"):
        charge + Charge(second, "rho")


def test_copies_are_charged_amounts_too():
    charge = Charge(Fraction(2, 3), "rho")
    for same in (copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))):
        assert (same(charge), same(charge).unit) == (charge, "rho")
