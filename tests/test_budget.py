"""Budgets and charged amounts: read in one place, spent as what they are."""

from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.budget import Budget, Charge, ceil_nano, floor_nano, read_amount
from deltahist.laws import Guarantee

PAID = Charge(Fraction(1, 2), "epsilon")


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({}, "exactly one must be given"),
        ({"epsilon": 1, "rho": 1}, "exactly one must be given"),
        ({"epsilon": 0}, "epsilon is 0"),
        ({"rho": float("inf")}, "rho is inf"),
        ({"epsilon": True}, "epsilon is True"),
        ({"rho": PAID / 2}, "is .epsilon.: it must be .rho."),
        ({"epsilon": Charge(Fraction(1), "rho")}, "is .rho.: it must be .epsilon."),
    ],
)
def test_bad_budgets(budget, words):
    with pytest.raises(dh.InputError, match=words):
        Budget(**budget)


def test_budgets_say_what_they_promise():
    assert Budget(rho=2).guarantee == Guarantee(rho=Fraction(2))
    assert Budget(Charge(Fraction(1, 3), "epsilon")).exact == (Fraction(1, 3), None)


def test_a_charge_is_divided_into_whole_parts():
    assert (PAID / 4).amount == Fraction(1, 8)
    for parts in (0.5, 0, -1, 1.5):
        with pytest.raises(dh.InputError, match="parts is"):
            PAID / parts


def test_billionths():
    assert ceil_nano(epsilon=0.1) == floor_nano(epsilon=0.1) == 10**8
    assert (ceil_nano(epsilon=1e-10), floor_nano(epsilon=1e-10)) == (1, 0)
    assert 3 * ceil_nano(epsilon=read_amount(epsilon=1) / 3) == 10**9 + 2
    for bad in (float("nan"), -1, 1e10, "1", None):
        with pytest.raises(dh.InputError, match="epsilon is"):
            read_amount(epsilon=bad)
