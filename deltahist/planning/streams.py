"""Figures of a stream before anything is published: what its steps cost together, and the errors of their sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.mechanisms import Mechanism
from deltahist.planning.advice import BOXES, query_areas
from deltahist.preprocessing import Clock
from deltahist.space.workloads import AllRanges, Workload, random_boxes

_DAY = 86_400
#: Seconds of the periods that people add up.
_PERIODS = {"month": 30 * _DAY, "year": 365 * _DAY}


@dataclass(frozen=True, eq=False)
class StreamSum:
    """Some steps of a stream in a row: what they cost together, and the errors of the sum of their releases.

    Parameters
    ----------
    name : "step", "window", "month", "year" or "all". steps : how many.
    cost : the most ε or ρ that so many steps in a row spend.
    limit : the most that they may ever spend; None if nothing limits just this number of steps.
    error : root mean square error of a query by noise, in points; None where steps get different amounts.
    drowned : indices of the queries whose standard error exceeds their count; None where counts are unknown.
    queries : how many queries there are; None for all ranges.
    """

    name: str
    steps: int
    cost: Fraction
    limit: Fraction | None
    error: float | None
    drowned: NDArray[np.int64] | None
    queries: int | None = None


def stream_figures(
    mechanism: Mechanism,
    spans: Iterable[tuple[int | None, Fraction]],
    clock: Clock,
    steps: int,
    workload: Workload | None = None,
    points: float | None = None,
    amounts: Sequence[Fraction] | None = None,
) -> list[StreamSum]:
    """Return the figures of a step, of each limited span, of a month, of a year and of all steps.

    Steps have independent noise: a sum over k steps costs k shares, and has √k times the error of one.

    Parameters
    ----------
    mechanism : of a step, with its share of the budget.
    spans : for each limit its steps, None for all there will ever be, and the ε or ρ that they may spend.
    clock : defines steps. steps : how many are planned.
    workload : the queries; boxes anywhere when None.
    points : about how many points a step has, a public figure. They are taken to be spread evenly over the map.
    amounts : what each step gets; equal shares when None.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), delta=1, sources="boundary")
    >>> step = dh.Mechanism(near, "identity", dh.Budget(epsilon=0.25))
    >>> found = stream_figures(step, [(4, Fraction(1))], Clock.of("2010-01-04", "1w"), 52)
    >>> [(each.name, each.steps, float(each.cost)) for each in found]
    [('step', 1, 0.25), ('window', 4, 1.0), ('month', 4, 1.0), ('year', 52, 13.0), ('all', 52, 13.0)]
    """
    domain = mechanism.domain
    asked = random_boxes(BOXES, domain) if workload is None else workload
    each = expected = None
    if isinstance(asked, AllRanges):
        error = mechanism.rmse(asked)
    else:
        variance = mechanism.variance(asked)
        each, error = np.sqrt(variance), math.sqrt(variance.mean())
        if points is not None:
            area = math.prod(high - low for low, high in zip(domain.low, domain.high, strict=True))
            expected = points / area * query_areas(asked, domain)
    limits = {steps if length is None else length: limit for length, limit in spans}
    named = [("step", 1), *(("window", length) for length in sorted(limits))]
    for name, seconds in _PERIODS.items():
        number = round(seconds / clock.every) if clock.every else 0
        if 1 < number <= steps:
            named.append((name, number))
    shares = None if amounts is None else [Fraction(0), *itertools.accumulate(amounts)]
    found = []
    for name, number in [*named, ("all", steps)]:
        cost, drowned = number * mechanism.budget.amount, None
        if shares is not None:
            cost = max(end - shares[max(0, at - number)] for at, end in enumerate(shares))
        elif each is not None and expected is not None:
            drowned = np.flatnonzero(math.sqrt(number) * each > number * expected)
        total = None if shares is not None else math.sqrt(number) * error
        queries = None if each is None else len(each)
        found.append(StreamSum(name, number, cost, limits.get(number), total, drowned, queries))
    return found
