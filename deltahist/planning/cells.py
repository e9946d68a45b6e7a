"""Choice of cells: the error of noise grows with their number, the error of places within them falls.

Derivation of the prior and how it does on data: docs/choosing.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.placement import unplaced
from deltahist.errors import InputError, positive
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import OfMechanism
from deltahist.planning.ranking import mechanism_for
from deltahist.space.domain import CellTooLarge, Domain
from deltahist.space.grids import length_times
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, CellSums, Workload, random_boxes
from deltahist.strategies.base import Strategy

#: Two of a map's points share one of M cells with chance M^−0.55: people gather along roads and at centres, on 1.1
#: dimensions of the plane's two.
CLUMPING = 0.55
#: Boxes that stand for all places and sizes.
_BOXES = 2_000
#: Sides of cells that are tried, in δ, the largest first.
SIDES = (2.0, 1.0, 1 / 2, 1 / 4, 1 / 8)


def expected_spread(domain: Domain, points: float, *, contributions: int = 1) -> float:
    """Return four times the variance of a count in half a cell, as places in the cell are unknown.

    No data are read: two of all points share one of M cells with chance M^−0.55, at every scale. Points of one user
    (`contributions`) may all be at one place.
    """
    number, size = positive(points=points), domain.size
    # The chance to share a cell falls alike with every halving of a cell, below its size too.
    shared = (2 ** ((1 - CLUMPING) * domain.ndim) - 1) / (2**domain.ndim - 1)
    return (contributions * number + shared * number**2 * size**-CLUMPING) / size


def cut_shares(workload: Workload, domain: Domain) -> NDArray[np.float64]:
    """Return Σ f (1 − f) (m,) over the cells that queries cut, f the share inside."""
    if isinstance(workload, AllRanges):  # of whole cells
        return np.zeros(1)
    return unplaced(*workload.cover(domain).sums(CellSums(np.ones(domain.shape)), (0, "share"), (0, "square")))


@dataclass(frozen=True)
class CellChoice(OfMechanism):
    """The best mechanism on cells of one size, and the expected root mean square of either part of its error."""

    mechanism: Mechanism
    noise_error: float
    placement_error: float

    @classmethod
    def of(cls, mechanism: Mechanism, points: float, workload: Workload | None = None) -> CellChoice:
        """Return a mechanism's expected errors for a number of points on a workload; on boxes anywhere when None."""
        domain = mechanism.domain
        queries = random_boxes(_BOXES, domain) if workload is None else workload
        spread = expected_spread(domain, points, contributions=mechanism.counting.contributions)
        placement = spread * float(cut_shares(queries, domain).mean())
        return cls(mechanism, mechanism.rmse(queries), math.sqrt(placement))

    @property
    def neighbourhood(self) -> Neighbourhood:
        """The neighbourhood, on the domain that has these cells."""
        return self.mechanism.neighbourhood

    @property
    def rmse(self) -> float:
        """Expected root mean square error per query, in points: noise and placement together."""
        return math.hypot(self.noise_error, self.placement_error)


def plan_cells(
    nears: Iterable[Neighbourhood],
    points: float,
    workload: Workload | Callable[[Domain], Workload] | None = None,
    **how: Any,
) -> list[CellChoice]:
    """Rank cells by the expected total error, of noise and of places within cells; the best ones first.

    Neighbourhoods differ in their cells, from large cells to small ones (`on_cells`). After two that are each worse
    than the one before no others are looked at. The number of points is a rough, public figure. The workload, or a
    function that makes it for a domain, is boxes at any place when None. Strategy and budget are given as
    for `publish`.

    >>> import deltahist as dh
    >>> for points in (1_000, 1_000_000):
    ...     best = plan_cells(on_cells((0, 0, 64, 64), 4), points, epsilon=1, strategy="flow")[0]
    ...     best.neighbourhood.domain.shape, round(best.noise_error), round(best.placement_error)
    ((16, 16), 8, 14)
    ((128, 128), 60, 1540)
    """
    found: list[CellChoice] = []
    rising, behind = 0, set[type[Strategy]]()
    for near in nears:
        queries = workload(near.domain) if callable(workload) else workload
        choice = CellChoice.of(mechanism_for(near, workload=queries, behind=behind, **how), points, queries)
        rising = rising + 1 if found and choice.rmse > found[-1].rmse else 0
        found.append(choice)
        if rising == 2:
            break
    if not found:
        raise InputError("there are no cells to choose from: the map must be larger than a cell of δ/8")
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
    """Yield the neighbourhood on cells of 2 δ, δ ... δ/8, while they are at least two and at most `most`.

    >>> [near.domain.shape for near in on_cells((0, 0, 3, 3), 1)]
    [(2, 2), (3, 3), (6, 6), (12, 12), (24, 24)]
    """
    if isinstance(limits, Iterator):  # each map reads them anew
        limits = list(limits)
    for times in SIDES:
        try:
            domain = Domain.from_cell(bounds, length_times(delta, times), crs)
        except CellTooLarge:
            if times == SIDES[-1]:
                raise InputError(
                    f"delta is {delta!r}: the map has room for no two cells of δ/8 (are the bounds in other units?)"
                ) from None
            continue
        if 1 < domain.size <= most:
            yield Neighbourhood(domain, delta, sources, limits)
