"""Forecast of a stream before any step is published: errors and costs of steps and longer sums, and choices ranked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget, floor_nano
from deltahist.errors import NANO, positive, whole
from deltahist.mechanisms import Mechanism
from deltahist.planning.advice import BOXES, USES, Size, compare_sizes, query_areas
from deltahist.preprocessing import POINTS, Clock, Preprocessing
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Workload, random_boxes

if TYPE_CHECKING:
    import pandas as pd

_DAY = 86_400
#: Seconds of the periods that people add up, with their names.
_PERIODS = (
    ("hour", 3600),
    ("day", _DAY),
    ("week", 7 * _DAY),
    ("month", 30 * _DAY),
    ("year", 365 * _DAY),
)
#: Seconds of longer steps that are looked at where choices drown.
_LONGER = (*(3600 * n for n in (1, 2, 3, 6, 12)), *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364)))
#: Periods that round to fewer steps, or by a larger part of their length, are no sums.
_FEWEST, _ROUNDED = 2, 0.1
#: Budgets that all steps together may spend at most, where choices have a limit.
_TIMES = 4


@dataclass(frozen=True, eq=False)
class Outlook:
    """The sum of some steps in a row: what they spend together, and the expected errors of it.

    Parameters
    ----------
    period : its name. steps : how many. spends : ε or ρ of all of them together.
    cell, queries : standard error of a cell, and root mean square error of a workload, in points.
    each : standard error of each query (m,); None for all ranges, which are too many.
    counts : expected points of each query (m,), spread evenly over the map; None if nobody said how many there are.
    """

    period: str
    steps: int
    spends: Fraction
    cell: float | None
    queries: float
    each: NDArray[np.float64] | None = None
    counts: NDArray[np.float64] | None = None


def forecast(
    mechanism: Mechanism,
    clock: Clock,
    steps: int,
    workload: Workload | None = None,
    points: float | None = None,
) -> Iterator[Outlook]:
    """Yield the outlook of one step, and of each usual period that the stream is as long as.

    Steps have noise of their own: variances add up, so that a sum over k steps has √k times the error of one.

    Parameters
    ----------
    mechanism : of a step, with its share of the budget. clock : defines steps.
    steps : how many are planned. workload : the queries; boxes anywhere when None.
    points : about how many a step has.
    """
    domain, cell = mechanism.domain, mechanism.noise_of_a_cell
    asked = random_boxes(BOXES, domain) if workload is None else workload
    each = counts = None
    if isinstance(asked, AllRanges):
        queries = mechanism.rmse(asked)
    else:
        variance = mechanism.variance(asked)
        each, queries = np.sqrt(variance), math.sqrt(variance.mean())
        if points is not None:
            sides = (high - low for low, high in zip(domain.low, domain.high, strict=True))
            counts = points / math.prod(sides) * query_areas(asked, domain)
    for name, number in sums(clock, steps):
        more = math.sqrt(number)
        yield Outlook(
            name,
            number,
            number * mechanism.budget.amount,
            None if cell is None else more * cell,
            more * queries,
            None if each is None else more * each,
            None if counts is None else number * counts,
        )


def sums(clock: Clock, steps: int) -> list[tuple[str, int]]:
    """Return names and lengths of sums over steps: one step, each usual period that they fill, and "all".

    >>> sums(Clock.of("2010-01-04", "1w"), 60)
    [('step', 1), ('month', 4), ('year', 52), ('all', 60)]
    """
    found = [("step", 1)]
    for name, seconds in _PERIODS:
        number = round(seconds / clock.every) if clock.every else 0
        if _FEWEST <= number <= steps and abs(number * clock.every - seconds) <= _ROUNDED * seconds:
            found.append((name, number))
    if steps > found[-1][1]:
        found.append(("all", steps))
    return found


@dataclass(frozen=True)
class Promise:
    """A promise of a stream: any `window` steps in a row spend ε, and maybe all of them at most `times` ε."""

    window: int
    steps: int
    times: int | None = None

    def share(self, epsilon: float | Fraction, longer: int = 1) -> Fraction:
        """Return the ε of a step, which may be as long as several, for the same promise in time.

        Data that differ in w steps in a row differ in ⌈(w − 1)/k⌉ + 1 steps of k times their length, at most.
        """
        spans = [(self.window, 1), (self.steps, self.times)]
        touched = [(-(-(steps - 1) // longer) + 1, times) for steps, times in spans if times]
        limit = floor_nano(epsilon=epsilon)
        return min(Fraction(limit * times // steps, NANO) for steps, times in touched)

    @classmethod
    def usual(cls, clock: Clock, steps: int) -> list[Promise]:
        """Return the windows to choose from: a step, each usual period, all steps; the longest with a limit, too.

        >>> [(each.window, each.times) for each in Promise.usual(Clock.of("2010-01-04", "1w"), 52)]
        [(1, None), (4, None), (4, 4), (52, None)]
        """
        windows = [number for _, number in sums(clock, steps)]
        found = [cls(window, steps) for window in windows]
        # The limit leaves every window below the same share: the longest of them promises most.
        if binding := [window for window in windows if _TIMES * window < steps]:
            found.insert(len(binding), cls(binding[-1], steps, _TIMES))
        return found


def advise_stream(
    bounds: tuple[float, ...],
    points: float,
    workload: Workload | Callable[[Domain], Workload] | None = None,
    *,
    clock: Clock,
    steps: int,
    crs: str | None = None,
    deltas: Sequence[float | str] = USES["home"],
    epsilons: Sequence[float | Fraction] = (Fraction(1, 2), Fraction(1), Fraction(2)),
    per_user: Sequence[int] | None = None,
    limits: Any = None,
) -> pd.DataFrame:
    """Rank windows and limits of a stream, each with its best cells and the errors of sums over steps.

    Choices whose steps do not drown in noise come first, then the ones that promise most, by the ε of all steps. Where
    steps drown, `longer` says how many times as long they must be; 0 if none would do. People may appear and vanish at
    the map's edge, as in streams.

    Parameters
    ----------
    points : about how many a step has; a public figure.
    clock : defines steps. steps : how many are planned.
    epsilons : budgets of a window. The other parameters are as of `advise`.
    """
    import pandas as pd

    number, half = float(positive(points=points)), len(bounds) // 2
    whole(steps=steps)
    area = math.prod(high - low for low, high in zip(bounds[:half], bounds[half:], strict=True))
    sizes = compare_sizes(bounds, deltas, workload, crs=crs, limits=limits, sources="boundary")
    rows = []
    for own, epsilon, most in itertools.product(sizes, epsilons, per_user or (None,)):
        counting = POINTS if most is None else Preprocessing(most, user=True)
        for promise in Promise.usual(clock, steps):
            share, users = promise.share(epsilon), counting.contributions
            size = min(own, key=lambda size: math.hypot(*size.errors(number, share, users)))
            mechanism = size.at(number, share, counting).mechanism
            count, domain = number * float(size.areas.mean()) / area, mechanism.domain
            row: dict[str, Any] = {
                "delta": mechanism.neighbourhood.delta_ground,
                "epsilon": float(epsilon),
                "points_per_user": most or 0,
                "window": promise.window,
                "window_limit": "" if promise.times is None else f"{steps}:{promise.times}",
                "cell": domain.ground(domain.cell[0]),
                "strategy": mechanism.strategy.name,
                "area": float(size.areas.mean()) / (domain.scale or 1.0) ** domain.ndim,
                "observer": Budget(epsilon).guarantee.certainty,
            }
            for name, together in {**dict(sums(clock, steps)), "all": steps}.items():
                noise, places = size.errors(together * number, share, users)
                row[f"{name}_epsilon"] = float(together * share)
                row[f"{name}_count"] = together * count
                row[f"{name}_error"] = math.hypot(math.sqrt(together) * noise, places)
            row["drowns"] = row["step_error"] > row["step_count"]
            row["longer"] = _longer(own, promise, epsilon, users, number, area, clock) if row["drowns"] else 1
            rows.append(row)
    order = {"drowns": True, "all_epsilon": True, "delta": False, "step_error": True}
    return pd.DataFrame(rows).sort_values(list(order), ascending=list(order.values()), ignore_index=True)


def _longer(
    own: list[Size],
    promise: Promise,
    epsilon: float | Fraction,
    users: int,
    points: float,
    area: float,
    clock: Clock,
) -> int:
    """Return how many times as long steps must be not to drown under the same promise; 0 if all do."""
    every = clock.every or 1
    known = _LONGER if clock.every else tuple(2**power for power in range(1, promise.steps.bit_length()))
    for length in known:
        longer, rest = divmod(length, every)
        if rest or not 1 < longer <= promise.steps:
            continue
        share = promise.share(epsilon, longer)
        for size in own:
            error = math.hypot(*size.errors(longer * points, share, users))
            if error <= longer * points * size.areas.mean() / area:
                return longer
    return 0
