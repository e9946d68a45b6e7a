"""Choose cells, δ and ε, and compute the costs and errors of a stream, from public figures alone.

Smaller cells increase the error from noise, and reduce the error from unknown positions in cells (docs/choosing.md).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist.budget import Budget
from deltahist.errors import InputError, check_choice, check_positive
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import OfMechanism
from deltahist.planning.ranking import mechanism_for
from deltahist.preprocessing import POINTS, Clock, Preprocessing
from deltahist.space.domain import CellTooLarge, Domain, read_length
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Workload, random_boxes, random_squares

if TYPE_CHECKING:
    import pandas as pd


#: Two points of a map with M cells are in the same cell with probability M^−0.55 (tested on data in docs/choosing.md).
CLUMPING = 0.55
#: Number of random boxes in the default workload.
BOXES = 2_000
#: Cell sides to try, as multiples of δ, largest first.
SIDES = (2.0, 1.0, 1 / 2, 1 / 4, 1 / 8)


def expected_spread(domain: Domain, points: float, *, contributions: int = 1) -> float:
    """Return four times the variance of the count in half a cell, if all points of a user may be in one place."""
    number, size = check_positive(points=points), domain.size
    # Halving a side always divides the probability of sharing a cell by the same factor, even within a cell.
    shared = (2 ** ((1 - CLUMPING) * domain.ndim) - 1) / (2**domain.ndim - 1)
    return (contributions * number + shared * number**2 * size**-CLUMPING) / size


@dataclass(frozen=True)
class CellChoice(OfMechanism):
    """A mechanism on cells of one size, with its expected root mean square errors from noise and from placement."""

    mechanism: Mechanism
    noise_error: float
    placement_error: float

    @classmethod
    def of(cls, mechanism: Mechanism, points: float, workload: Workload | None = None) -> CellChoice:
        """Return a mechanism with its expected errors on a workload (random boxes if None) for a number of points."""
        domain = mechanism.domain
        queries = random_boxes(BOXES, domain) if workload is None else workload
        spread = expected_spread(domain, points, contributions=mechanism.counting.contributions)
        # Ranges do not cut cells, and listing all of them takes memory.
        unsure = 0.0 if isinstance(queries, AllRanges) else float(queries.cover(domain).unsure.mean())
        return cls(mechanism, mechanism.rmse(queries), math.sqrt(spread * unsure))

    @property
    def rmse(self) -> float:
        """Expected root mean square error of a query, in points, from noise and placement together."""
        return math.hypot(self.noise_error, self.placement_error)


def plan_cells(
    nears: Iterable[Neighbourhood],
    points: float,
    workload: Workload | Callable[[Domain], Workload] | None = None,
    **how: Any,
) -> list[CellChoice]:
    """Rank cell sizes, best first, by the expected error from noise and from unknown positions in cells.

    Parameters
    ----------
    nears : neighbourhoods, largest cells first (see `on_cells`). The search stops when the error rises twice in a row.
    points : rough public number of points on the map.
    workload : the queries, a function from a domain to its queries, or None for random boxes.
    how : strategy and budget, as for `publish`.

    >>> import deltahist as dh
    >>> for points in (1_000, 1_000_000):
    ...     best = plan_cells(on_cells((0, 0, 64, 64), 4), points, epsilon=1, strategy="flow")[0]
    ...     best.mechanism.domain.shape, round(best.noise_error), round(best.placement_error)
    ((16, 16), 8, 14)
    ((128, 128), 60, 1540)
    """
    found: list[CellChoice] = []
    rising = 0
    for near in nears:
        queries = workload(near.domain) if callable(workload) else workload
        choice = CellChoice.of(mechanism_for(near, workload=queries, **how), points, queries)
        rising = rising + 1 if found and choice.rmse > found[-1].rmse else 0
        found.append(choice)
        if rising == 2:
            break
    return sorted(found, key=lambda choice: choice.rmse)


def on_cells(
    bounds: tuple[float, ...],
    delta: float | str,
    crs: str | None = None,
    *,
    most: int = 4_000_000,
    sources: Any = None,
    limits: Any = None,
) -> Iterator[Neighbourhood]:
    """Yield a neighbourhood for each cell size 2 δ, δ, …, δ/8 that divides the map into 2 to `most` cells.

    >>> [near.domain.shape for near in on_cells((0, 0, 3, 3), 1)]
    [(2, 2), (3, 3), (6, 6), (12, 12), (24, 24)]
    """
    check_choice((1, 2), **{"number of axes of a map without a cell size": len(bounds) // 2})
    found, length = False, read_length(delta, "delta", units=crs is not None)
    for times in SIDES:
        with contextlib.suppress(CellTooLarge):
            domain = Domain(bounds, cell=times * length, crs=crs)
            if 1 < domain.size <= most:
                found = True
                yield Neighbourhood(domain, delta, sources, limits)
    if not found:
        raise InputError(
            f"delta is {delta!r}: the map must contain at least two cells of side δ/8, and at most {most:,} cells of "
            "side 2 δ, so check the units of the bounds, and their order (west, south, east, north)"
        )


def advise(
    bounds: tuple[float, ...],
    points: float,
    workload: Workload | Callable[[Domain], Workload] | None = None,
    *,
    crs: str | None = None,
    deltas: Sequence[float | str] = ("250m", "500m", "1km"),
    epsilons: Sequence[float | Fraction] = (Fraction(1, 2), Fraction(1), Fraction(2)),
    per_user: Sequence[int] | None = None,
    limits: Any = None,
) -> pd.DataFrame:
    """Compare choices of δ, ε and points per user: the best cells, their error, and what an observer can learn.

    Parameters
    ----------
    bounds, crs : bounds and CRS of the map, as for `Domain`.
    points : rough public number of points on the map.
    workload : the queries, a function from a domain to them, or None for squares 1/20 as wide as the shorter side.
    deltas : values of δ, the distance within which places are hidden.
    epsilons : budgets of pure ε.
    per_user : numbers of points to keep per user, if users are protected as a whole. None protects single points.
    limits : limits on moves beyond δ, as for `Neighbourhood`. None caps the cost of any move at 4 ε.

    Returns
    -------
    DataFrame with a row for each choice, and these columns:

    - `delta`, `cell`, `epsilon`, `points_per_user`, `points`, `strategy` : the choice, with lengths in ground units,
      and 0 points per user if single points are protected;
    - `area`, `count` : the median area of a query, and the number of points in it if these are evenly spread;
    - `error`, `noise_error`, `placement_error` : root mean square error of unbiased answers, in points, and its parts;
    - `of_count` : the error divided by the count;
    - `observer` : how sure an observer can become of which of two places within δ is true (50% before the release);
    - `any_move` : the ε of a move between any two places.

    >>> table = advise((0, 0, 20, 20), 20_000, deltas=[1], epsilons=[0.5, 2])
    >>> table[["epsilon", "cell", "observer"]].round(2).to_numpy().tolist()
    [[0.5, 0.25, 0.62], [2.0, 0.12, 0.88]]
    """
    import pandas as pd

    points, half, rows = check_positive(points=points), len(bounds) // 2, []
    whole = math.prod(high - low for low, high in zip(bounds[:half], bounds[half:], strict=True))
    for delta in deltas:
        tried = []
        for near in on_cells(bounds, delta, crs, limits=limits):
            near.check_on_map()
            domain = near.domain
            if workload is None:
                side = min(high - low for low, high in zip(domain.low, domain.high, strict=True)) / 20
                queries: Workload = random_squares(side, 500, domain)
            else:
                queries = workload(domain) if callable(workload) else workload
            cover = queries.cover(domain)
            cut, area = float(cover.unsure.mean()), float(np.median(cover.area)) * math.prod(domain.cell)
            # The best mechanism does not depend on ε. Its error is proportional to the points per user, and to 1/ε.
            unit = mechanism_for(near, epsilon=1, workload=queries)
            tried.append((unit, unit.rmse(queries), cut, area))
        for epsilon, most in itertools.product(epsilons, per_user or (None,)):
            counting = POINTS if most is None else Preprocessing(most, user=True)
            number, choices = counting.contributions, []
            for unit, noise, cut, area in tried:
                placement = math.sqrt(expected_spread(unit.domain, points, contributions=number) * cut)
                mechanism = unit.with_changes(counting=counting, budget=Budget(epsilon))
                choices.append((CellChoice(mechanism, noise * number / float(epsilon), placement), area))
            choice, area = min(choices, key=lambda each: each[0].rmse)
            mechanism, domain, count = choice.mechanism, choice.mechanism.domain, points * area / whole
            rows.append(
                {
                    "delta": mechanism.neighbourhood.delta_ground,
                    "epsilon": float(mechanism.budget.amount),
                    "points_per_user": most or 0,
                    "points": points,
                    "cell": domain.ground(domain.cell[0]),
                    "strategy": mechanism.strategy.name,
                    "area": area / (domain.scale or 1.0) ** domain.ndim,
                    "count": count,
                    "error": choice.rmse,
                    "noise_error": choice.noise_error,
                    "placement_error": choice.placement_error,
                    "of_count": choice.rmse / count,
                    "observer": mechanism.guarantee.certainty,
                    "any_move": choice.any_move,
                }
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class StreamSum:
    """The joint cost of consecutive steps of a stream, and the errors of the sum of their releases.

    name : "step", "window", "month", "year" or "all". steps : number of steps.
    cost : the largest ε or ρ that any `steps` consecutive steps spend. limit : the limit on the cost, if there is one.

    error : root mean square error of a query from noise, in points, or None if each step has its own amount.
    """

    name: str
    steps: int
    cost: Fraction
    limit: Fraction | None
    error: float | None


def stream_figures(
    mechanism: Mechanism,
    spans: Iterable[tuple[int | None, Fraction]],
    clock: Clock,
    steps: int,
    workload: Workload | None = None,
    amounts: Sequence[Fraction] | None = None,
) -> list[StreamSum]:
    """Return costs and errors for a step, each limited span, a month, a year and all steps.

    Steps have independent noise, so a sum over k equal steps costs k times as much as one, with √k times the error.

    mechanism : the mechanism of a step, with its share of the budget.
    spans : for each limit, the number of steps that it covers (None for all steps), and the ε or ρ that they may spend.
    clock : defines the length of a step. steps : number of planned steps.
    workload : the queries, or None for random boxes.
    amounts : ε or ρ of each step, or None for equal shares.
    """
    error = mechanism.rmse(random_boxes(BOXES, mechanism.domain) if workload is None else workload)
    limits = {steps if length is None else length: limit for length, limit in spans}
    named = [("step", 1), *(("window", length) for length in sorted(limits))]
    for name, days in (("month", 30), ("year", 365)):
        number = round(days * 86_400 / clock.every) if clock.every else 0
        if 1 < number <= steps:
            named.append((name, number))
    shares = None if amounts is None else [Fraction(0), *itertools.accumulate(amounts)]
    found = []
    for name, number in [*named, ("all", steps)]:
        cost = number * mechanism.budget.amount
        if shares is not None:
            cost = max(end - shares[max(0, at - number)] for at, end in enumerate(shares))
        total = None if shares is not None else math.sqrt(number) * error
        found.append(StreamSum(name, number, cost, limits.get(number), total))
    return found
