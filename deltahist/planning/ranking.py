"""Rank mechanisms by their expected error."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import OfMechanism
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Regions, Workload, all_ranges
from deltahist.strategies.base import Strategy, parse_strategy, strategies

#: `auto` compares all strategies on this many boxes, then those within this factor of the least error on all queries.
_FEW_QUERIES, _CLOSE = 200, 1.5


@dataclass(frozen=True)
class Candidate(OfMechanism):
    """A mechanism in a plan, with its expected error.

    Parameters
    ----------
    mechanism : a strategy with a budget. `publish_mechanism(candidate.mechanism, counts)` publishes it.
    label : name and parameters of the strategy.
    rmse : expected root mean square error of a query, in points.
    resolves : whether the strategy determines the answers to all queries. If not, `rmse` covers only the measured part.

    >>> import deltahist as dh
    >>> best = dh.plan(dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1, limits=()), epsilon=1)[0]
    >>> best.label, round(best.rmse, 2), best.cost, best.any_move
    ('Cumulative (suffix)', 1.69, 1.0, 7.0)
    """

    mechanism: Mechanism
    label: str
    rmse: float
    resolves: bool

    @property
    def strategy(self) -> Strategy:
        """The measured strategy."""
        return self.mechanism.strategy

    @property
    def cost(self) -> float:
        """The sensitivity, in the 1-norm for Laplace noise and in the 2-norm for Gaussian noise."""
        return float(self.mechanism.sensitivity)


def plan(
    near: Neighbourhood,
    workload: Workload | None = None,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    counting: Preprocessing = POINTS,
) -> list[Candidate]:
    """Rank mechanisms by expected root mean square error on a workload, best first.

    Mechanisms that determine the answers to all queries are ranked above the others.

    Parameters
    ----------
    near : the neighbourhood. If its `limits` are None, mechanisms also limit the cost of any move to 4 ε.
    workload : the queries, or None for all ranges. If there are more than 50,000 boxes, a sample is used.
    epsilon or rho : pure ε with Laplace noise (1.0 if neither is given), or ρ-zCDP with Gaussian noise.
    counting : how rows become counts. If rows may be dropped, strategies that reveal the number of points are omitted.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> best = plan(dh.Neighbourhood(domain, delta=0.25, sources="left"))[0]
    >>> best.label, best.any_move
    ('Cumulative (suffix)', 3.0)
    """
    if workload is None:
        workload = all_ranges(near.domain)
    elif isinstance(workload, Boxes):
        workload = workload.take_evenly(50_000)
    return _rank_candidates(near, workload, workload, _read_budget(epsilon, rho), counting)


def _read_budget(epsilon: Any, rho: Any) -> Budget:
    return Budget(1.0 if epsilon is None and rho is None else epsilon, rho)


def _rank_candidates(
    near: Neighbourhood, workload: Workload, measured: Workload, budget: Budget, counting: Preprocessing
) -> list[Candidate]:
    """Return a workload's candidates, ranked by error on `measured`. If `limits` are None, the default cap applies."""
    near = near.capped()
    found = []
    for label, strategy in _list_candidates(near, workload, budget.law().norm, tuple(strategies().values())):
        if strategy.keeps_total and (counting.dropped or not near.fixed_membership):
            continue
        mechanism = Mechanism(near, strategy, budget, counting)
        found.append(Candidate(mechanism, label, mechanism.rmse(measured), bool(strategy.determines_cells)))
    # Rank each strategy as if it were tuned for unbiased answers alone.
    return sorted(found, key=lambda c: (not c.resolves, c.rmse / c.strategy.accepted_excess(near)))


@functools.lru_cache(maxsize=16)
def _list_candidates(
    near: Neighbourhood, workload: Workload, norm: int, kinds: tuple[type[Strategy], ...]
) -> tuple[tuple[str, Strategy], ...]:
    """Return candidates for Laplace noise (norm 1) or Gaussian noise (norm 2). They do not depend on the budget."""
    suitable = [kind for kind in kinds if kind.suits(near)]
    return tuple(found for kind in suitable for found in kind.candidates(near, workload, norm))


def mechanism_for(
    near: Neighbourhood,
    strategy: Strategy | str = "auto",
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    workload: Workload | None = None,
    counting: Preprocessing = POINTS,
) -> Mechanism:
    """Return, without reading data, the mechanism that `publish` uses for the same parameters.

    If the strategy is "auto" and the `limits` are None, the mechanism caps the cost of any move at 4 ε.
    """
    budget = Budget(epsilon, rho)
    if isinstance(strategy, Strategy):
        return Mechanism(near, strategy, budget, counting)
    if strategy != "auto":
        return Mechanism(near, parse_strategy(strategy, near, norm=budget.law().norm), budget, counting)
    workload = all_ranges(near.domain) if workload is None else workload
    few: Workload = workload
    if not isinstance(workload, AllRanges):
        few = (workload.boxes() if isinstance(workload, Regions) else workload).take_evenly(_FEW_QUERIES)
    best, *_ = ranked = _rank_candidates(near, workload, few, budget, counting)
    # Keep each kind's best strategy on the few boxes, if it is close to the overall best. Compare those on all queries.
    close: dict[tuple[type[Strategy], str], Mechanism] = {}
    for c in ranked:
        if c.resolves == best.resolves and c.rmse <= _CLOSE * best.rmse:
            close.setdefault((type(c.strategy), c.noise), c.mechanism)
    if few is workload or len(close) == 1:
        return best.mechanism
    return min(close.values(), key=lambda each: each.rmse(workload) / each.strategy.accepted_excess(near))


def expected_error(
    strategy: Strategy,
    near: Neighbourhood,
    workload: Workload,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    continuous: bool = False,
) -> NDArray[np.float64]:
    """Return the variance of the answer to each query (m,), in points squared (see `Mechanism.variance`).

    Parameters
    ----------
    strategy, near, workload : the strategy, the neighbourhood and the queries.
    epsilon or rho : pure ε with Laplace noise (1.0 if neither is given), or ρ-zCDP with Gaussian noise.
    continuous : whether to assume continuous noise of the same scale, as in the literature.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25, sources="left")
    >>> A = dh.strategies.Cumulative(domain)
    >>> round(float(expected_error(A, near, dh.workloads.all_ranges(domain), 1.0, continuous=True).sum()), 6)
    32.0
    """
    return Mechanism(near, strategy, _read_budget(epsilon, rho)).variance(workload, continuous=continuous)
