"""Planning: which strategy answers a workload best, from public data alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deltahist._validate import InputError
from deltahist.budget import Budget
from deltahist.calibration import rho_for, sensitivity
from deltahist.decode.products import MOST_TABLED
from deltahist.error import planned_decoder, queries_of
from deltahist.neighbourhood import Neighbourhood
from deltahist.strategies import (
    Cumulative,
    CutAugmented,
    Hierarchical,
    Identity,
    Optimal,
    ShiftedGrids,
    Spectral,
    Strategy,
    Wavelet,
    dyadic_grids,
)
from deltahist.strategies.cuts import boxes, range_gram
from deltahist.strategies.tuning import longest_move, tuned
from deltahist.workloads import AllRanges, Boxes, all_ranges
from deltahist.workloads.polygons import Regions

#: Branching numbers that are tried for hierarchies.
BRANCHING = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32)
#: Strategies that do not determine the cells need a pseudo-inverse each, which is slow on more cells.
_MOST_PSEUDO = 256
#: Greedy rows are tried while candidates times cells squared stay below this.
_MOST_GREEDY = 40_000_000
#: The convex programme takes seconds on more cells, where the spectral strategy is near enough.
_MOST_OPTIMAL = 400
#: Boxes of a longer workload are thinned out to this many.
_MOST_QUERIES = 50_000


@dataclass(frozen=True)
class Candidate:
    """One strategy of a plan, with one kind of noise.

    Parameters
    ----------
    strategy : the strategy.
    label : name with its parameters.
    cost : its sensitivity (1-norm for Laplace, 2-norm for Gaussian noise).
    rmse : expected root mean square error per query, in points; of the resolved part if not resolved.
    resolves : whether it determines the queries; if not, the error is unknown and can be larger.
    epsilon, rho : the budget that its noise has, one of them.
    """

    strategy: Strategy
    label: str
    cost: float
    rmse: float
    resolves: bool
    epsilon: Fraction | None = None
    rho: Fraction | None = None

    @property
    def noise(self) -> str:
        """ "laplace" or "gaussian"."""
        return "laplace" if self.rho is None else "gaussian"

    @property
    def budget(self) -> dict[str, Fraction]:
        """The budget as keyword of `publish`."""
        return {"rho": self.rho} if self.rho is not None else {"epsilon": self.epsilon or Fraction(0)}


def plan(
    near: Neighbourhood,
    work: Boxes | AllRanges | Regions | None = None,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    probability: float | None = None,
    contributions: int = 1,
) -> list[Candidate]:
    """Strategies ranked by expected root mean square error on a workload; those that resolve it come first.

    Parameters
    ----------
    near : the neighbourhood.
    work : the queries; all ranges when None.
    epsilon or rho : pure ε with Laplace noise (1.0 when neither is given), or ρ-zCDP with Gaussian noise.
    probability : with epsilon, the failure probability δ_prob that is allowed: Laplace noise at ε and Gaussian
        noise that is (ε, δ_prob)-private are then ranked together.
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
    budget = Budget(epsilon, rho, probability)
    work = all_ranges(near.domain) if work is None else work
    if isinstance(work, Boxes) and len(work) > _MOST_QUERIES:
        work = Boxes(work.corners[:: -(-len(work) // _MOST_QUERIES)])
    found = []
    if budget.unit == "epsilon":
        found += [
            _priced(label, strategy, near, work, contributions, {"epsilon": budget.amount})
            for label, strategy in candidates(near, work, norm=1)
        ]
    if budget.unit == "rho" or probability is not None:
        for label, strategy in candidates(near, work, norm=2):
            allowed = budget.amount
            if probability is not None:
                allowed = rho_for(
                    strategy, near, epsilon=allowed, probability=probability, contributions=contributions
                )
            found.append(_priced(label, strategy, near, work, contributions, {"rho": allowed}))
    return sorted(found, key=lambda c: (not c.resolves, c.rmse))


def choose(
    near: Neighbourhood,
    work: Boxes | AllRanges | Regions | None = None,
    *,
    noise: str | None = None,
    left_out: bool = False,
    contributions: int = 1,
    **budget: Any,
) -> Candidate:
    """The best candidate of a plan that has the noise that is wanted: what "auto" stands for.

    Where rows are left out before counting, their number is not public, and strategies that keep the number of
    points exactly are passed over.

    Raises InputError if no candidate is left.
    """
    found = plan(near, work, contributions=contributions, **budget)
    fits = [c for c in found if (noise in (None, c.noise)) and not (left_out and c.strategy.keeps_total)]
    if not fits:
        raise InputError("no strategy fits the domain and the noise that is asked for")
    return fits[0]


def crossovers(
    nears: Sequence[Neighbourhood],
    work: Boxes | AllRanges | Regions | None = None,
    **options: Any,
) -> list[tuple[Neighbourhood, list[Candidate]]]:
    """The best candidate of each noise for neighbourhoods that differ in δ: where one overtakes the other.

    Options are those of `plan`. The candidates of a neighbourhood are ranked, the best one first.
    """
    out = []
    for near in nears:
        best: dict[str, Candidate] = {}
        for candidate in plan(near, work, **options):
            best.setdefault(candidate.noise, candidate)
        out.append((near, list(best.values())))
    return out


def _priced(
    label: str,
    strategy: Strategy,
    near: Neighbourhood,
    work: Boxes | AllRanges | Regions,
    contributions: int,
    budget: dict[str, Any],
) -> Candidate:
    found = planned_decoder(strategy, near, contributions=contributions, **budget)
    if isinstance(work, AllRanges):
        mean = found.mean_variance(work)
    else:
        mean = float(found.moments(queries_of(work, strategy)).variance.mean())
    cost = float(sensitivity(strategy, near, norm=1 if "epsilon" in budget else 2))
    return Candidate(strategy, label, cost, math.sqrt(mean), bool(strategy.determines_cells), **budget)


def candidates(
    near: Neighbourhood, work: Boxes | AllRanges | Regions, norm: int = 1
) -> Iterator[tuple[str, Strategy]]:
    """The strategies that are tried for Laplace (norm 1) or Gaussian noise (norm 2), with their labels."""
    domain = near.domain
    if norm == 2 and domain.size > 1:
        if domain.size <= _MOST_OPTIMAL:
            yield "Optimal", Optimal(near, work)
        yield "Spectral", Spectral(near, work)
    yield from _flows(near, work, norm)
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


def _flows(
    near: Neighbourhood, work: Boxes | AllRanges | Regions, norm: int
) -> Iterator[tuple[str, Strategy]]:
    """Flows between blocks as long as a move within δ, and twice as long."""
    block = longest_move(near)
    for times in (1, 2):
        sides = tuple(times * b for b in block)
        if any(2 * b <= n for b, n in zip(sides, near.domain.shape, strict=True)):
            flow = tuned(near, work, norm=norm, block=sides)
            cells = "cell" if math.prod(sides) == 1 else " × ".join(map(str, sides)) + " cells"
            sums = f", sums {', '.join(map(str, flow.widths))} apart" if flow.widths else ""
            yield f"Flow (blocks of {cells}{sums})", flow
