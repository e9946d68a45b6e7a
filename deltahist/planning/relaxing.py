"""How far to relax: the least budget at which the expected error meets a target, from public figures alone."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from deltahist.budget import Budget
from deltahist.errors import InputError, positive
from deltahist.mechanisms import Mechanism
from deltahist.space.workloads import Workload, all_ranges

#: The budget found is at most this much larger than the least one.
_NEAR = 1e-3
#: Beyond so many times the mechanism's own budget, or below that part of it, nothing is looked for.
_FARTHEST = 1e9


def budget_for(mechanism: Mechanism, rmse: float, workload: Workload | None = None) -> Budget:
    """Return the least budget, to a thousandth, at which a mechanism's expected error is at most `rmse`.

    A rule for when to stop refining (`dh.refine`): it asks public figures alone, so that stopping tells nothing
    about the data. Rounded up to four significant digits.

    Parameters
    ----------
    mechanism : of the release, made or planned; its own budget does not matter, but for the unit.
    rmse : the target, root mean square error per query in points, by noise.
    workload : the queries; all ranges when None.

    Raises
    ------
    InputError
        If the target is not above zero, or no budget within a factor of a billion of the mechanism's own meets it.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (16, 16)), delta=1 / 16)
    >>> mechanism = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(epsilon=0.1))
    >>> found = budget_for(mechanism, 10)
    >>> found.epsilon, bool(9.9 < mechanism.with_budget(found).rmse(dh.workloads.all_ranges(near.domain)) <= 10)
    (Fraction(1409, 1000), True)
    """
    positive(rmse=rmse)
    work = all_ranges(mechanism.domain) if workload is None else workload
    own = mechanism.budget.amount

    def error(amount: Fraction) -> float:
        return _at(mechanism, amount).rmse(work)

    low = high = own  # low misses the target, high meets it
    # Errors go with 1/ε, and with 1/√ρ: the guess is nearly right at once where noise is large.
    power = 1 if mechanism.norm == 1 else 2
    now = error(own)
    if now <= rmse:
        while now <= rmse:
            high, low = low, low * _factor((now / rmse) ** power, below=True)
            if low < own / Fraction(_FARTHEST):
                raise _out_of_reach(rmse, now, high, mechanism)
            now = error(low)
    else:
        while now > rmse:
            low, high = high, high * _factor((now / rmse) ** power)
            if high > own * Fraction(_FARTHEST):
                raise _out_of_reach(rmse, now, low, mechanism)
            now = error(high)
    while _rounded_up(low * Fraction(1 + _NEAR)) < high:
        middle = _rounded_up(Fraction(math.sqrt(low * high)))
        if not low < middle < high:
            break
        low, high = (middle, high) if error(middle) > rmse else (low, middle)
    return mechanism.budget.of(_rounded_up(high))


def _factor(guess: float, *, below: bool = False) -> Fraction:
    """Return the factor of a step towards the target, and a little beyond it."""
    return Fraction(min(max(guess * 0.995, 1e-3), 0.995) if below else max(min(guess * 1.005, 1e3), 1.005))


def _at(mechanism: Mechanism, amount: Fraction) -> Mechanism:
    if mechanism.chain is None:
        return mechanism.with_budget(mechanism.budget.of(amount))
    return mechanism.with_chain(replace(mechanism.chain, amounts=(amount,), copied=None))


def _rounded_up(amount: Fraction) -> Fraction:
    """Round up to the next number of four significant digits."""
    unit = Fraction(10) ** (math.floor(math.log10(amount)) - 3)
    return -((-amount) // unit) * unit


def _out_of_reach(rmse: float, error: float, amount: Fraction, mechanism: Mechanism) -> InputError:
    return InputError(
        f"rmse is {rmse:g}, but the expected error is {error:.4g} at {mechanism.budget.unit} = {float(amount):.4g}: "
        "no budget near that meets it"
    )
