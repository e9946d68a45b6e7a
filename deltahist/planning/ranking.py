"""Which strategy answers a workload best: mechanisms ranked by their expected error."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.errors import InputError, one_of
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import OfMechanism
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Regions, Workload, all_ranges
from deltahist.strategies.base import Strategy
from deltahist.strategies.registry import named, strategies

#: Boxes of a longer workload are thinned out to this many.
_MOST_QUERIES = 50_000
#: What stands for a workload where only the best is wanted; strategies this near to each other may change places on
#: the whole of it, and those this far behind the best are so on smaller cells as well.
_FEW_QUERIES, _CLOSE, _FAR = 200, 1.5, 3.0


@dataclass(frozen=True)
class Candidate(OfMechanism):
    """One mechanism of a plan, with what it is expected to do.

    Parameters
    ----------
    mechanism : a strategy at a budget; `publish(counts, candidate.mechanism)` publishes it.
    label : name of the strategy with its parameters.
    rmse : expected root mean square error per query, in points; of the resolved part if not resolved.
    resolves : whether it determines the queries; if not, the error is unknown and can be larger.

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
        """Return the strategy that is measured."""
        return self.mechanism.strategy

    @property
    def cost(self) -> float:
        """Sensitivity: in the 1-norm for Laplace, the 2-norm for Gaussian noise."""
        return float(self.mechanism.sensitivity)

    @property
    def budget(self) -> dict[str, Fraction]:
        """The budget as keyword of `publish`."""
        budget = self.mechanism.budget
        return {budget.unit: budget.amount}


def plan(
    near: Neighbourhood,
    workload: Workload | None = None,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    probability: float | None = None,
    contributions: int = 1,
    counting: Preprocessing | None = None,
) -> list[Candidate]:
    """Mechanisms ranked by expected root mean square error on a workload; those that resolve it come first.

    Parameters
    ----------
    near : the neighbourhood; if it says nothing of moves beyond δ (`limits` is None), any move may cost 4 ε at most.
    workload : the queries; all ranges when None.
    epsilon or rho : pure ε with Laplace noise (1.0 when neither is given), or ρ-zCDP with Gaussian noise.
    probability : with epsilon, the failure probability δ_prob that is allowed: Laplace noise at ε and Gaussian
        noise that is (ε, δ_prob)-private are then ranked together.
    contributions : points per user that move at once.
    counting : instead of contributions, how rows will become counts; where rows may be left out, strategies that
        keep the number of points exactly are not among the candidates.

    Returns
    -------
    list of Candidate, best first.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> best = plan(dh.Neighbourhood(domain, delta=0.25, sources="left"))[0]
    >>> best.label, best.any_move
    ('Cumulative (suffix)', 3.0)
    """
    if epsilon is None and rho is None:
        epsilon = 1.0
    workload = measured_on(near, workload)
    counting = Preprocessing(contributions) if counting is None else counting
    return _ranked(near, workload, workload, Budget(epsilon, rho, probability), counting)


def measured_on(near: Neighbourhood, workload: Workload | None) -> Workload:
    """Return the workload over which error is measured: all ranges when None; many boxes are thinned out."""
    if workload is None:
        return all_ranges(near.domain)
    return workload.thinned(_MOST_QUERIES) if isinstance(workload, Boxes) else workload


def _ranked(
    near: Neighbourhood,
    workload: Workload,
    measured: Workload,
    budget: Budget,
    counting: Preprocessing,
    without: Collection[type[Strategy]] = (),
) -> list[Candidate]:
    """Return candidates for a workload, ranked by error on `measured`; under the usual cap without limits.

    Strategies of the kinds `without` are left out.
    """
    near = near.capped()
    kinds = [(1, Budget(budget.epsilon))] if budget.unit == "epsilon" else []
    if budget.unit == "rho" or budget.probability is not None:
        kinds.append((2, budget))
    found = []
    tried = tuple(kind for kind in strategies().values() if kind not in without)
    for norm, amount in kinds:
        for label, strategy in _candidates(near, workload, norm, tried):
            if strategy.keeps_total and (counting.dropped or not near.fixed_membership):
                continue
            mechanism = Mechanism(near, strategy, amount, counting)
            found.append(
                Candidate(mechanism, label, mechanism.rmse(measured), bool(strategy.determines_cells))
            )
    return sorted(found, key=lambda c: (not c.resolves, c.rmse))


@functools.lru_cache(maxsize=16)
def _candidates(
    near: Neighbourhood, workload: Workload, norm: int, kinds: tuple[type[Strategy], ...]
) -> tuple[tuple[str, Strategy], ...]:
    """Return candidates of some kinds for Laplace (norm 1) or Gaussian noise; cached, as no budget changes them."""
    return tuple(found for kind in kinds for found in kind.candidates(near, workload, norm))


def mechanism_for(
    near: Neighbourhood,
    strategy: Strategy | str = "auto",
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    probability: float | None = None,
    noise: str | None = None,
    workload: Workload | None = None,
    counting: Preprocessing = POINTS,
    behind: set[type[Strategy]] | None = None,
) -> Mechanism:
    """Return the mechanism that `publish` takes for the same parameters; no data is looked at.

    Parameters
    ----------
    near, strategy, epsilon, rho, probability, noise, workload : as in `publish`. Where the strategy is chosen and no
        limits for moves beyond δ are given, the mechanism's neighbourhood has the usual cap (`Neighbourhood.capped`).
    counting : how rows will become counts.
    behind : kinds of strategies that were far behind on larger cells, and are not tried; kinds that are so here are
        added.

    Raises
    ------
    InputError
        On a budget that is not finite and above zero, or Gaussian noise with pure ε; or if no strategy fits.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> mechanism_for(near, "flow", 1).strategy.name
    'Flow'
    """
    if noise is not None:
        one_of(("laplace", "gaussian"), noise=noise)
        if noise == "gaussian" and rho is None and probability is None:
            raise InputError(
                "noise is 'gaussian' with epsilon= alone: Gaussian noise is never pure; give rho (zCDP), or "
                "probability=, such as 1e-6"
            )
        if noise == "laplace" and rho is not None:
            raise InputError("noise is 'laplace' with rho: Laplace noise takes epsilon (pure)")
    # Laplace noise does not fail.
    budget = Budget(epsilon, rho, None if noise == "laplace" and rho is None else probability)
    if isinstance(strategy, Strategy):
        return Mechanism(near, strategy, budget, counting)
    if strategy != "auto":
        gaussian = budget.rho is not None or budget.probability is not None
        return Mechanism(near, named(strategy, near, norm=2 if gaussian else 1), budget, counting)
    workload = all_ranges(near.domain) if workload is None else workload
    few: Workload = workload
    if not isinstance(workload, AllRanges):
        few = (workload.boxes() if isinstance(workload, Regions) else workload).thinned(_FEW_QUERIES)
    ranked = [c for c in _ranked(near, workload, few, budget, counting, behind or ()) if noise in (None, c.noise)]
    if not ranked:
        raise InputError("no strategy fits the domain and the noise that is asked for")
    best = ranked[0]
    if behind is not None:
        near_best = {type(c.strategy) for c in ranked if c.resolves < best.resolves or c.rmse <= _FAR * best.rmse}
        behind |= {type(c.strategy) for c in ranked} - near_best
    if few is workload:
        return best.mechanism
    # A few boxes tell which strategies come near, and which is the best of a kind; these are worth the whole workload.
    close: dict[tuple[type[Strategy], str], Mechanism] = {}
    for c in ranked:
        if c.resolves == best.resolves and c.rmse <= _CLOSE * best.rmse:
            close.setdefault((type(c.strategy), c.noise), c.mechanism)
    first, *others = close.values()
    return min((first, *others), key=lambda mechanism: mechanism.rmse(workload)) if others else first


def crossovers(
    nears: Sequence[Neighbourhood],
    workload: Workload | None = None,
    **options: Any,
) -> list[tuple[Neighbourhood, list[Candidate]]]:
    """Return the best candidate of each noise for neighbourhoods that differ in δ: where one overtakes the other.

    Options are as for `plan`. The candidates of a neighbourhood are ranked, the best one first.
    """
    return [(near, best_of_each_noise(near, workload, **options)) for near in nears]


def best_of_each_noise(
    near: Neighbourhood, workload: Workload | None = None, **options: Any
) -> list[Candidate]:
    """Return the best candidate of `plan` for each noise, the best one first."""
    best: dict[str, Candidate] = {}
    for candidate in plan(near, workload, **options):
        best.setdefault(candidate.noise, candidate)
    return list(best.values())


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
    """Return the variance of the answer to each query, in points squared; no data is looked at.

    The short way to `Mechanism.variance`.

    Parameters
    ----------
    strategy, near, workload : the measurement, who may be confused with whom, the queries.
    epsilon or rho : pure ε with Laplace noise (1.0 when neither is given), or ρ-zCDP with Gaussian noise.
    contributions : points per user that move at once.
    continuous : figures of continuous noise of the same scale, to compare with papers.

    Returns
    -------
    (m,) float64, one variance per query.

    Raises
    ------
    InputError
        On queries outside the domain, or parameters that are not finite and above zero.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25, sources="left")
    >>> A = dh.strategies.Cumulative(domain)
    >>> round(float(expected_error(A, near, dh.workloads.all_ranges(domain), 1.0, continuous=True).sum()), 6)
    32.0
    """
    if epsilon is None and rho is None:
        epsilon = 1.0
    mechanism = Mechanism(near, strategy, Budget(epsilon, rho), Preprocessing(contributions))
    return mechanism.variance(workload, continuous=continuous)
