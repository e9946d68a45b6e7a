"""Mechanisms ranked by their expected error."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.errors import InputError
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import OfMechanism
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Regions, Workload, all_ranges
from deltahist.strategies.base import Strategy, parse_strategy, strategies

#: Most boxes of a workload; longer ones are thinned out.
_MOST_QUERIES = 50_000
#: Number of boxes that represent a workload when only the best strategy is needed. Strategies within the second factor
#: may change places on the whole workload. Those beyond the third are also behind on smaller cells.
_FEW_QUERIES, _CLOSE, _FAR = 200, 1.5, 3.0


@dataclass(frozen=True)
class Candidate(OfMechanism):
    """One mechanism of a plan, with its expected error.

    Parameters
    ----------
    mechanism : a strategy at a budget; `publish_mechanism(candidate.mechanism, counts)` publishes it.
    label : name of the strategy with its parameters.
    rmse : expected root mean square error per query, in points; of the resolved part if it does not determine all
        queries.
    resolves : whether it determines the queries. If not, the error is unknown and can be larger.

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
        """Sensitivity: in the 1-norm for Laplace, the 2-norm for Gaussian noise."""
        return float(self.mechanism.sensitivity)

    @property
    def budget(self) -> dict[str, Fraction]:
        """The budget as a keyword of `publish`."""
        budget = self.mechanism.budget
        return {budget.unit: budget.amount}


def plan(
    near: Neighbourhood,
    workload: Workload | None = None,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    contributions: int = 1,
    counting: Preprocessing | None = None,
) -> list[Candidate]:
    """Rank mechanisms by expected root mean square error on a workload; those that resolve it come first.

    Parameters
    ----------
    near : the neighbourhood. If it has no limits beyond δ (`limits` is None), any move costs at most 4 ε.
    workload : the queries; all ranges when None.
    epsilon or rho : pure ε with Laplace noise (1.0 when neither is given), or ρ-zCDP with Gaussian noise.
    contributions : points per user that move at once.
    counting : how rows will become counts, instead of contributions. If rows may be left out, the candidates exclude
        strategies that keep the number of points exactly.

    Returns
    -------
    list of Candidate, best first.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> best = plan(dh.Neighbourhood(domain, delta=0.25, sources="left"))[0]
    >>> best.label, best.any_move
    ('Cumulative (suffix)', 3.0)
    """
    if not isinstance(near, Neighbourhood):
        raise InputError(f"near is {str(near)[:80]}: it must be a Neighbourhood")
    workload = _measured_on(near, workload)
    counting = Preprocessing(contributions) if counting is None else counting
    return _ranked(near, workload, workload, _budget(epsilon, rho), counting)


def _budget(epsilon: Any, rho: Any) -> Budget:
    return Budget(1.0 if epsilon is None and rho is None else epsilon, rho)


def _measured_on(near: Neighbourhood, workload: Workload | None) -> Workload:
    """Return the workload that defines the error: all ranges when None, and many boxes thinned out."""
    if workload is None:
        return all_ranges(near.domain)
    return workload.take_evenly(_MOST_QUERIES) if isinstance(workload, Boxes) else workload


def _ranked(
    near: Neighbourhood,
    workload: Workload,
    measured: Workload,
    budget: Budget,
    counting: Preprocessing,
    without: Collection[type[Strategy]] = (),
) -> list[Candidate]:
    """Return candidates for a workload, ranked by error on `measured`. Without limits the usual cap applies."""
    near = near.capped()
    found = []
    tried = tuple(kind for kind in strategies().values() if kind not in without)
    for label, strategy in _candidates(near, workload, budget.law().norm, tried):
        if strategy.keeps_total and (counting.dropped or not near.fixed_membership):
            continue
        mechanism = Mechanism(near, strategy, budget, counting)
        found.append(Candidate(mechanism, label, mechanism.rmse(measured), bool(strategy.determines_cells)))
    return sorted(found, key=lambda c: (not c.resolves, c.rmse))


@functools.lru_cache(maxsize=16)
def _candidates(
    near: Neighbourhood, workload: Workload, norm: int, kinds: tuple[type[Strategy], ...]
) -> tuple[tuple[str, Strategy], ...]:
    """Return candidates of some kinds for Laplace (norm 1) or Gaussian noise. They do not depend on the budget."""
    return tuple(found for kind in kinds for found in kind.candidates(near, workload, norm))


def mechanism_for(
    near: Neighbourhood,
    strategy: Strategy | str = "auto",
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    workload: Workload | None = None,
    counting: Preprocessing = POINTS,
    skipped_kinds: set[type[Strategy]] | None = None,
) -> Mechanism:
    """Return the mechanism that `publish` uses for the same parameters. No data is read.

    With strategy "auto" and no limits beyond δ, the mechanism's neighbourhood has the usual cap. The search skips the
    kinds of strategies in `skipped_kinds`, and adds to them the kinds that are far behind the best.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> mechanism_for(near, "flow", 1).strategy.name
    'Flow'
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
    ranked = _ranked(near, workload, few, budget, counting, skipped_kinds or ())
    if not ranked:
        raise InputError("no strategy fits the domain and the noise that is asked for")
    best = ranked[0]
    if skipped_kinds is not None:
        near_best = {type(c.strategy) for c in ranked if c.resolves < best.resolves or c.rmse <= _FAR * best.rmse}
        skipped_kinds |= {type(c.strategy) for c in ranked} - near_best
    # A few boxes find the near-best strategies and the best one of each kind. Only these run on the whole workload.
    close: dict[tuple[type[Strategy], str], Mechanism] = {}
    for c in ranked:
        if c.resolves == best.resolves and c.rmse <= _CLOSE * best.rmse:
            close.setdefault((type(c.strategy), c.noise), c.mechanism)
    if few is workload or len(close) == 1:
        return best.mechanism
    return min(close.values(), key=lambda mechanism: mechanism.rmse(workload))


def expected_error(
    strategy: Strategy,
    near: Neighbourhood,
    workload: Workload,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    contributions: int = 1,
    continuous: bool = False,
) -> NDArray[np.float64]:
    """Return the variance of the answer to each query, in points squared. No data is read.

    A shortcut to `Mechanism.variance`.

    Parameters
    ----------
    strategy, near, workload : the measurement, the neighbourhood and the queries.
    epsilon or rho : pure ε with Laplace noise (1.0 when neither is given), or ρ-zCDP with Gaussian noise.
    contributions : points per user that move at once.
    continuous : return figures of continuous noise of the same scale, to compare with papers.

    Returns
    -------
    (m,) float64, one variance per query.

    Raises
    ------
    InputError
        On queries outside the domain, or parameters that are not finite and positive.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25, sources="left")
    >>> A = dh.strategies.Cumulative(domain)
    >>> round(float(expected_error(A, near, dh.workloads.all_ranges(domain), 1.0, continuous=True).sum()), 6)
    32.0
    """
    mechanism = Mechanism(near, strategy, _budget(epsilon, rho), Preprocessing(contributions))
    return mechanism.variance(workload, continuous=continuous)
