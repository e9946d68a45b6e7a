"""Planning: which strategy answers a workload best, from public data alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from deltahist._validate import InputError
from deltahist.calibration import sensitivity
from deltahist.decode.products import MOST_TABLED
from deltahist.error import planned_decoder, queries_of
from deltahist.neighbourhood import Neighbourhood
from deltahist.strategies import (
    Cumulative,
    CutAugmented,
    Hierarchical,
    Identity,
    ShiftedGrids,
    Strategy,
    Wavelet,
    dyadic_grids,
)
from deltahist.strategies.cuts import boxes, range_gram
from deltahist.workloads import AllRanges, Boxes, all_ranges
from deltahist.workloads.polygons import Regions

#: Branching numbers that are tried for hierarchies.
BRANCHING = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32)
#: Strategies that do not determine the cells need a pseudo-inverse each, which is slow on more cells.
_MOST_PSEUDO = 256
#: Greedy rows are tried while candidates times cells squared stay below this.
_MOST_GREEDY = 40_000_000
#: Boxes of a longer workload are thinned out to this many.
_MOST_QUERIES = 50_000


@dataclass(frozen=True)
class Candidate:
    """One strategy of a plan.

    Parameters
    ----------
    strategy : the strategy.
    label : name with its parameters.
    cost : its sensitivity (1-norm for ε, 2-norm for ρ).
    rmse : expected root mean square error per query, in points; of the resolved part if not resolved.
    resolves : whether it determines the queries; if not, the error is unknown and can be larger.
    """

    strategy: Strategy
    label: str
    cost: float
    rmse: float
    resolves: bool


def plan(
    near: Neighbourhood,
    work: Boxes | AllRanges | Regions | None = None,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    contributions: int = 1,
) -> list[Candidate]:
    """Strategies ranked by expected root mean square error on a workload; those that resolve it come first.

    Parameters
    ----------
    near : the neighbourhood.
    work : the queries; all ranges when None.
    epsilon or rho : pure ε with Laplace noise (1.0 when neither is given), or ρ-zCDP with Gaussian noise.
    contributions : points per user that move at once.

    Returns
    -------
    list of Candidate, best first.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> plan(dh.Neighbourhood(domain, delta=0.25, sources="left"))[0].label
    'Cumulative (suffix)'
    """
    if epsilon is None and rho is None:
        epsilon = 1.0
    work = all_ranges(near.domain) if work is None else work
    if isinstance(work, Boxes) and len(work) > _MOST_QUERIES:
        work = Boxes(work.corners[:: -(-len(work) // _MOST_QUERIES)])
    found = []
    for label, strategy in candidates(near, work):
        plan_of = planned_decoder(strategy, near, epsilon=epsilon, rho=rho, contributions=contributions)
        if isinstance(work, AllRanges):
            mean = plan_of.mean_variance(work)
        else:
            mean = float(plan_of.moments(queries_of(work, strategy)).variance.mean())
        cost = sensitivity(strategy, near, norm=1 if rho is None else 2)
        found.append(
            Candidate(strategy, label, float(cost), math.sqrt(mean), bool(strategy.determines_cells))
        )
    if not found:
        raise InputError("no strategy fits the domain")
    return sorted(found, key=lambda c: (not c.resolves, c.rmse))


def candidates(near: Neighbourhood, work: Boxes | AllRanges | Regions) -> Iterator[tuple[str, Strategy]]:
    """The strategies that are tried, with their labels."""
    domain = near.domain
    yield "Identity", Identity(domain)
    longest = max(domain.shape)
    if longest <= MOST_TABLED:
        yield "Wavelet", Wavelet(domain)
        yield "Cumulative (suffix)", Cumulative(domain)
        yield "Cumulative (prefix)", Cumulative(domain, direction="prefix")
    for branching in BRANCHING:
        if branching < longest:
            yield f"Hierarchical (branching {branching})", Hierarchical(domain, branching)
    reach = max(1, int(near.reach.max()))
    if domain.ndim == 1 and 2 * reach <= longest:
        yield "ShiftedGrids (dyadic)", dyadic_grids(domain, reach)
    # Strategies that are not determined are priced densely, so that they are shown on small domains only.
    if domain.size <= _MOST_PSEUDO:
        if domain.ndim == 2 and 2 * reach <= longest:
            yield "ShiftedGrids (dyadic)", dyadic_grids(domain, reach)
        for times in (2, 4, 8):
            if reach * times < longest:
                yield (
                    f"ShiftedGrids (width {reach * times}, shift {reach})",
                    ShiftedGrids(domain, width=reach * times, shift=reach),
                )
    ranges = math.prod(n * (n + 1) // 2 for n in domain.shape)
    if ranges * domain.size**2 <= _MOST_GREEDY:
        gram = range_gram(domain)
        if not isinstance(work, AllRanges):
            rows = work.matrix(domain)
            gram = (rows.T @ rows).toarray()
        yield "CutAugmented (cells)", CutAugmented.greedy(Identity(domain), near, gram, boxes(domain))
