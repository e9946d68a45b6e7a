"""Numbers as they are typed: exact, or refused in one short line."""

from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.cli import options

LONG = ["9" * 5000, "1." + "0" * 5000, "1e999999999", "1e-999999999"]


@pytest.mark.parametrize("text", [*LONG, "0", "-1", "nan", "inf", "1/0"])
def test_what_is_no_budget(text):
    with pytest.raises(dh.InputError, match=r"--epsilon is .*: it must be a finite number above zero") as caught:
        options.amount(text, "--epsilon")
    assert len(str(caught.value)) < 150
    with pytest.raises(dh.InputError, match=r"--limit 'any:.*: the factor is"):
        options.move_limit(f"any:{text}", "--limit")


def test_budgets_are_exact():
    assert [options.amount(text, "--epsilon") for text in ("0.1", "1/3", "1e-9")] == [
        Fraction(1, 10), Fraction(1, 3), Fraction(1, 10**9),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["9" * 5000, "0", "1.5", "many"])
def test_what_is_no_whole_number(text):
    with pytest.raises(dh.InputError, match="it must be a whole number of at least 1") as caught:
        options.whole_number(text, "--max-per-user")
    assert len(str(caught.value)) < 150


def test_a_limit_is_of_moves_or_of_an_account():
    texts = ["1", "1/3", "any:4", "2km:2", "proportional"]
    found = [options.move_limit_or_amount(text, "--limit") for text in texts]
    assert found == [1, Fraction(1, 3), ("any", 4), ("2km", 2), "proportional"]
