"""Forecast of a stream before any step is published: the errors of a step and of longer sums, and their cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from deltahist.mechanisms import Mechanism
from deltahist.planning.advice import BOXES
from deltahist.preprocessing import Clock
from deltahist.space.workloads import Workload, random_boxes

#: Seconds of the periods that people add up, with their names.
_PERIODS = (
    ("hour", 3600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
)
#: Periods that round to fewer steps are no sums.
_FEWEST = 2


@dataclass(frozen=True)
class Outlook:
    """The sum of some steps in a row: what they spend together, and the expected errors of it.

    Parameters
    ----------
    period : its name. steps : how many. spends : ε or ρ of all of them together.
    cell, queries : standard error of a cell, and root mean square error of a workload, in points.
    """

    period: str
    steps: int
    spends: Fraction
    cell: float | None
    queries: float


def forecast(
    mechanism: Mechanism, clock: Clock, steps: int, workload: Workload | None = None
) -> Iterator[Outlook]:
    """Yield the outlook of one step, and of each usual period that the stream is as long as.

    Steps have noise of their own: variances add up, so that a sum over k steps has √k times the error of one.

    Parameters
    ----------
    mechanism : of a step, with its share of the budget. clock : defines steps.
    steps : how many are planned. workload : the queries; boxes anywhere when None.
    """
    asked = random_boxes(BOXES, mechanism.domain) if workload is None else workload
    cell, queries = mechanism.noise_of_a_cell, mechanism.rmse(asked)
    lengths = [("step", 1)]
    for name, seconds in _PERIODS:
        number = round(seconds / clock.every) if clock.every else 0
        if number >= _FEWEST and number <= steps:
            lengths.append((name, number))
    if steps > lengths[-1][1]:
        lengths.append(("all", steps))
    for name, number in lengths:
        more = math.sqrt(number)
        yield Outlook(
            name,
            number,
            number * mechanism.budget.amount,
            None if cell is None else more * cell,
            more * queries,
        )
