"""Amounts of a table: each is a number, or one line says which is not."""

from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.budgets.amounts import read_amounts


@pytest.mark.parametrize("amount", ["9" * 5000, "1e999999999", "1e-999999999", "-1", "nan", "many", "1/0"])
def test_an_amount_that_is_no_number_is_refused_at_once(tmp_path, amount):
    (tmp_path / "b.csv").write_text(f"step,epsilon\n1,0.5\n2,{amount}\n")
    with pytest.raises(dh.InputError, match="for step 2: it must be a number, zero or more") as caught:
        read_amounts(tmp_path / "b.csv", ["1", "2"], "epsilon")
    assert len(str(caught.value)) < 200


def test_amounts_are_exact(tmp_path):
    (tmp_path / "b.csv").write_text("step,epsilon\n1,0.1\n2,1/3\n3,0\n")
    assert read_amounts(tmp_path / "b.csv", ["1", "2", "3"], "epsilon") == [Fraction(1, 10), Fraction(1, 3), 0]
