"""Amounts of budget as whole numbers of billionths: sums and comparisons are exact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from deltahist.errors import NANO, BudgetExceeded, InputError, as_printed, is_number, shown

#: Largest amount, so that sums of many stay within 64 bits.
_MOST = 10**9


def as_said(**amount: Any) -> Fraction:
    """The one keyword's value as the fraction that it says: a float stands for the decimal that it prints as.

    Budgets are typed and added up by people: ten times 0.1 must be 1, although the binary number is a little more.

    Raises InputError unless it is a finite number, zero or more, and at most 10^9.

    >>> as_said(epsilon=0.1)
    Fraction(1, 10)
    """
    ((name, value),) = amount.items()
    if not is_number(value) or value != value or not 0 <= value <= _MOST:
        raise InputError(f"{name} is {shown(value)}: it must be a finite number from 0 to 10^9")
    return as_printed(value)


def charged(**amount: Any) -> int:
    """Billionths that an amount is charged as: rounded up.

    >>> charged(epsilon=Fraction(1, 3))
    333333334
    """
    value = as_said(**amount)
    return -((-value.numerator * NANO) // value.denominator)


def allowed(**amount: Any) -> int:
    """Billionths that a budget allows: rounded down.

    >>> allowed(epsilon=Fraction(1, 3))
    333333333
    """
    value = as_said(**amount)
    return value.numerator * NANO // value.denominator


def held(charges: Mapping[int, int], step: int, length: int | None) -> int:
    """Billionths charged in so many steps in a row up to one; in all steps when None.

    >>> held({1: 5, 2: 7, 4: 1}, 4, 3)
    8
    """
    first = -math.inf if length is None else step - length
    return sum(nano for at, nano in charges.items() if first < at <= step)


def exceeded(said: str, who: str, held: int, limit: int) -> BudgetExceeded:
    """The refusal of an amount: who (with a verb) has spent how much of what."""
    left = (limit - held) / NANO
    return BudgetExceeded(f"{said}: {who} spent {held / NANO:.10g} of {limit / NANO:.10g}, {left:.10g} is left")
