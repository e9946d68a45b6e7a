"""The frontier: the expected error against what a move of any length may cost, from public data alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from deltahist._progress import progress
from deltahist.errors import InputError, as_printed, is_number
from deltahist.mechanisms.base import OfMechanism
from deltahist.planning.ranking import Candidate, best_of_each_noise, measured_on, plan
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload

#: Limits of any move, in ε, that are compared; None is no limit.
LIMITS: tuple[float | None, ...] = (1, 1.5, 2, 3, 4, 6, 8, None)


@dataclass(frozen=True)
class FrontierPoint(OfMechanism):
    """The best mechanism under one limit, and what the same promise for any move would cost instead.

    Parameters
    ----------
    limit : times what a move within δ may cost (ρ: in the noise's unit, squared for ρ) that any move may; None for no
        limit.
    best : the best candidate of one noise.
    rival : the best candidate of the same noise if the budget of any move were allowed for every move, short ones too;
        None without a limit, or where there is none.
    """

    limit: Fraction | None
    best: Candidate
    rival: Candidate | None

    @property
    def mechanism(self) -> Any:  # type: ignore[override]
        """The mechanism of the best candidate."""
        return self.best.mechanism

    @property
    def times(self) -> float:
        """How many times what a move within δ may cost any move really costs, in the noise's unit."""
        return float(self.any_move / float(self.mechanism.budget.amount)) ** (1 / self.mechanism.norm)


def frontier(
    near: Neighbourhood,
    workload: Workload | None = None,
    epsilon: float | Fraction | None = None,
    *,
    limits: Sequence[float | Fraction | None] = LIMITS,
    **options: Any,
) -> list[FrontierPoint]:
    """Return the best mechanisms for limits on any move's cost: error against cost, at one budget within δ.

    Parameters
    ----------
    near : the neighbourhood; what it promises for other distances is kept, as far as a limit leaves it.
    workload, epsilon, options : as for `plan`.
    limits : what any move may cost at most, in ε; None for no limit.

    Returns
    -------
    list of FrontierPoint, by limit in the order given; for each noise one, the better one first.

    Raises
    ------
    InputError
        On a limit below 1, or as of `plan`.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 32), (32,)), delta=1)
    >>> for point in dh.frontier(near, epsilon=1, limits=(1, None)):
    ...     print(point.limit, point.best.strategy.name, round(point.best.rmse, 1), point.any_move)
    1 CutAugmented 6.6 1.0
    None Cumulative 1.9 31.0
    """
    for given in limits:
        if given is not None and not (is_number(given) and given >= 1):
            raise InputError(
                f"limits holds {given!r}: it must be a number of at least 1, times what a move within delta may cost, "
                "or None for no limit"
            )
    workload = measured_on(near, workload)
    rivals: dict[str, Candidate] = {}
    for candidate in plan(near.anywhere(), workload, epsilon, **options):
        rivals.setdefault(candidate.noise, candidate)
    found: dict[Fraction | None, list[FrontierPoint]] = {}
    least: dict[str, Candidate] = {}
    wanted = [None if given is None else as_printed(given) for given in limits]
    with progress("comparing limits", len(limits), None) as advance:
        # What keeps a limit keeps larger ones too, and strategies that limits are made for may be the best without.
        for limit in sorted(set(wanted), key=lambda limit: math.inf if limit is None else limit):
            found[limit], under = [], _under(near, limit)
            for best in best_of_each_noise(under, workload, epsilon=epsilon, **options):
                if best.noise in least and least[best.noise].rmse < best.rmse:
                    best = _promising(least[best.noise], under, workload)
                least[best.noise] = best
                rival = rivals.get(best.noise)
                beside = None if limit is None or rival is None else _at(rival, limit, workload)
                found[limit].append(FrontierPoint(limit, best, beside))
            found[limit].sort(key=lambda point: (not point.best.resolves, point.best.rmse))
            advance(1)
    return [point for limit in wanted for point in found[limit]]


def _under(near: Neighbourhood, limit: Fraction | None) -> Neighbourhood:
    """Return the neighbourhood with a limit for any move; limits of shorter moves are no larger."""
    nearer = [each for each in near.profile if not each.any]
    if limit is None:
        return near.with_limits(nearer)
    return near.with_limits(
        [*((each.distance, min(each.factor, limit)) for each in nearer), (math.inf, limit)]
    )


def _promising(candidate: Candidate, near: Neighbourhood, workload: Workload) -> Candidate:
    """Return the candidate with noise for another promise."""
    mechanism = replace(candidate.mechanism, neighbourhood=near)
    return replace(candidate, mechanism=mechanism, rmse=mechanism.rmse(workload))


def _at(rival: Candidate, limit: Fraction, workload: Workload) -> Candidate:
    """Return the rival at the budget that a limit allows any move."""
    budget = rival.mechanism.budget
    mechanism = rival.mechanism.with_budget(budget.of(budget.amount * limit**rival.mechanism.norm))
    return replace(rival, mechanism=mechanism, rmse=mechanism.rmse(workload))
