"""How often a guess between two possibilities is right at most, given what telling them apart costs."""

from __future__ import annotations

import math
from fractions import Fraction

from deltahist.errors import InputError
from deltahist.privacy import Guarantee
from deltahist.statement import Facts

#: A guess that is right more often than this is as good as knowing.
_KNOWING = 0.9995


def bound_guess(facts: Facts, cost: float | None, deltas: float) -> float | None:
    """Return how often a guess between two places is right at most, if both are equally likely beforehand.

    Under ε that is `Guarantee.certainty`. Under ρ it is what zCDP alone implies, whatever the noise: half of one and
    the total variation distance, by the inequalities of Pinsker and of Bretagnolle and Huber. None without a promise.

    Parameters
    ----------
    cost : ε, or ρ, of a move between the places; None if nothing is promised so far. deltas : their distance in δ.

    >>> round(bound_guess({"rho": None}, 1.0, 1.0), 3)
    0.731
    """
    if cost is None:
        return None
    if facts["rho"] is not None:
        return 0.5 + 0.5 * math.sqrt(min(cost / 2, -math.expm1(-cost)))
    fails = Fraction(0)
    if facts.get("probability"):
        own = Guarantee(Fraction(facts["epsilon"]), probability=Fraction(facts["probability"]))
        try:
            fails = own.times(max(1, math.ceil(deltas - 1e-9))).probability
        except InputError:
            return None
    return Guarantee(Fraction(cost), probability=fails).certainty


def share_of_100(share: float | None) -> str:
    """Return in words how many of a hundred guesses are right."""
    if share is None or share > _KNOWING:
        return "nearly always"
    return f"{math.ceil(1000 * share - 1e-9) / 10:g} of 100"  # rounded up: it is a bound


def say_guess(share: float | None) -> str:
    """Return the end of a sentence: how often a guess is right at most."""
    found = share_of_100(share)
    return f"right in {found} cases at most" if found[0].isdigit() else f"perhaps right {found}"
