"""Checks of parameters, names and typed numbers, and the memory that is left."""

import datetime
import math
import uuid
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.cli.options import parse_number
from deltahist.errors import as_exact_fraction, check_choice, check_finite, check_memory, check_positive, check_whole
from deltahist.preprocessing import normalize_name


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "1", None, [1], 1j, np.bool_(1), 0, -1.5])
def test_other_values_are_refused_with_their_name(value):
    checks = [check_positive, check_whole]
    if value in (0, -1.5):
        assert check_finite(delta=value) == value
    else:
        checks.append(check_finite)
    for check in checks:
        with pytest.raises(dh.InputError, match="delta is "):
            check(delta=value)


@pytest.mark.parametrize(("value", "least"), [(1, 1), (2.0, 1), (np.int32(7), 2), (0, 0), (Fraction(4, 2), 2)])
def test_whole_numbers_become_ints(value, least):
    found = check_whole(least=least, n=value)
    assert (found, type(found)) == (value, int)
    with pytest.raises(dh.InputError, match="n is"):
        check_whole(n=value + 0.5)


def test_a_choice_has_the_type_of_a_choice():
    assert check_choice(("a", "b"), kind="b") == "b"
    for other in (1.0, True, np.ones(1), "c"):
        with pytest.raises(dh.InputError, match="norm is"):
            check_choice((1, 2), norm=other)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32, np.float64])
def test_exact_fractions_hold_whole_numbers_of_any_length(kind):
    # A fraction of 64-bit numbers would overflow in exact arithmetic.
    found = as_exact_fraction(epsilon=kind(3))
    assert found == 3
    assert type(found.numerator) is type(found.denominator) is int
    assert as_exact_fraction(epsilon=0.1) == Fraction(3602879701896397, 36028797018963968)


def test_a_large_allocation_is_refused_with_both_figures(monkeypatch):
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 2 * 2**30)
    check_memory(2 * 2**30, "a map")
    with pytest.raises(dh.InputError, match=r"a map needs about 3\.0 GiB, but only 2\.0 GiB"):
        check_memory(3 * 2**30, "a map")
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 0)
    check_memory(2**20, "a small map")


def test_names_have_one_form():
    same = ["Zu\u0308rich", " Z\u00fcrich\t", np.str_("Z\u00fcrich\u00a0")]
    assert {normalize_name(account=name) for name in same} == {"Z\u00fcrich"}
    assert {normalize_name(user=name) for name in (7, "7 ", 7.0, np.int8(7), np.float32(7))} == {"7"}
    code = "cfcd2084-95d5-65ef-66e7-dff9f98764da"
    assert normalize_name(user=uuid.UUID(code)) == normalize_name(user=code)
    for wrong in ("", " ", None, True, 1.5, 2.0**60, math.nan, math.inf, b"ann", [1], datetime.date(2026, 1, 1)):
        with pytest.raises(dh.InputError, match="user is"):
            normalize_name(user=wrong)


def test_typed_numbers_are_exact_or_refused_at_once():
    assert [parse_number(text) for text in ("0.1", " 22/7 ", "-3", "1_000", "2.5e3", "0e999999999", "1e-300")] == [
        Fraction(1, 10), Fraction(22, 7), -3, 1000, 2500, 0, Fraction(1, 10**300),
    ]  # fmt: skip
    texts = (
        "9" * 5000, "0." + "0" * 5000 + "1", "1." + "0" * 5000, "1e999999999", "1e-999999999", "1e400", "1e-500", "nan",
        "-inf", "sNaN", "1/0", "9" * 900 + "/1", "1/2/3", "", "one", "1,5",
    )  # fmt: skip
    assert [text[:20] for text in texts if parse_number(text) is not None] == []
