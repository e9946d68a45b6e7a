"""Compare the expected and measured errors of mechanisms over neighbourhoods, workloads and budgets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.planning.ranking import mechanism_for
from deltahist.preprocessing import POINTS
from deltahist.publishers import publish_mechanism
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Regions, Workload, box_sums
from deltahist.strategies import Strategy


@dataclass(frozen=True)
class Peer:
    """Another mechanism to compare with.

    Parameters
    ----------
    run : a function (counts, epsilon, *, rng) that returns estimates of all cells.
    relation : in words, the pairs of data sets to which its ε applies.
    any_move : the largest cost of any move, in multiples of ε (infinity if unknown).

    >>> even = Peer(lambda counts, epsilon, *, rng: np.full(counts.shape, counts.mean()), "any move", 0)
    >>> even.run(np.array([[1, 3]]), 0.5, rng=None)
    array([[2., 2.]])
    """

    run: Callable[..., NDArray[np.float64]]
    relation: str
    any_move: float


def sweep(
    nears: Mapping[str, Neighbourhood],
    workloads: Mapping[str, Workload],
    epsilons: Sequence[float | Fraction],
    mechanisms: Mapping[str, str | Strategy | Callable[[Neighbourhood], Strategy] | Peer],
    *,
    counts: Any = None,
    trials: int = 10,
    seed: int = 0,
    nonnegative: bool = False,
) -> pd.DataFrame:
    """Return the errors of mechanisms in all settings, and the largest cost of any move in each.

    Parameters
    ----------
    nears, workloads, epsilons : settings (names are for the table). All neighbourhoods have the same domain.
    mechanisms : strategies, their texts (such as "auto" or "tents:8"), functions from a neighbourhood to a strategy
        (such as `Flow.tuned`), or peers, by name. Each strategy is chosen for the first ε and kept for the others.
    counts : exact counts (domain.shape) to measure errors on. If None, no errors are measured, so peers have none.
        Errors measured on private counts are private.
    trials : the number of releases from which an error is measured. Releases are seeded, so they must not be published.
    seed : seed of the releases, and of the 5,000 ranges that represent all ranges when errors are measured.
    nonnegative : measure non-negative estimates of strategies. Expected errors are always those of unbiased estimates.

    Returns a frame with one row per setting and mechanism: `neighbourhood`, `workload`, `epsilon`, `mechanism`,
    `relation` (what ε protects), `any_move` (its largest cost), and the root mean square errors `expected` (NaN
    if a strategy does not determine all cells) and `measured` of a query, in points.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 64), (64,)), delta=1, limits=())
    >>> ranges = {"all ranges": dh.workloads.all_ranges(near.domain)}
    >>> table = sweep({"1 cell": near}, ranges, [1], {"identity": "identity", "flow": dh.strategies.Flow.tuned})
    >>> table[["mechanism", "any_move", "expected"]].round(1).to_numpy().tolist()
    [['identity', 1.0, 9.2], ['flow', 63.0, 2.0]]
    """
    rows, exact = [], np.asarray(counts)
    settings = itertools.product(nears.items(), workloads.items(), mechanisms.items())
    for (near_name, near), (work_name, work), (name, chosen) in settings:
        asked: Any = work.sample(5000, seed) if isinstance(work, AllRanges) and len(work) > 5000 else work
        own: Any = None
        if not isinstance(chosen, Peer):
            strategy, how = chosen(near) if callable(chosen) else chosen, getattr(counts, "preprocessing", POINTS)
            own = mechanism_for(near, strategy, epsilons[0], workload=work, counting=how)
        for epsilon in epsilons:
            if isinstance(chosen, Peer):
                relation, any_move, expected = chosen.relation, chosen.any_move * float(epsilon), math.nan
            else:
                own = own.with_budget(Budget(epsilon))
                any_move = own.any_move
                expected = own.rmse(work) if own.strategy.determines_cells else math.nan
                relation = f"moves within {near.delta_words}" if any_move > epsilon else "any move"
                relation += "" if near.fixed_membership else ", or arrivals that near a source"
            squares = []
            for trial in range(0 if counts is None else trials):
                rng = np.random.default_rng([seed, trial])
                if isinstance(chosen, Peer):
                    cells = chosen.run(exact.copy(), float(epsilon), rng=rng)
                else:
                    release = publish_mechanism(own, counts, rng=rng, weak_protection_accepted=True)
                    cells = release.cells(nonnegative=nonnegative)
                if isinstance(asked, Regions):
                    sums = asked.matrix(near.domain) @ (cells - exact).ravel()
                else:
                    sums = box_sums(cells - exact, asked.spans(near.domain))
                squares.append((sums**2).mean())
            measured = float(np.sqrt(np.mean(squares))) if squares else math.nan
            setting = near_name, work_name, float(epsilon), name
            rows.append((*setting, relation, any_move, expected, measured))
    columns = ("neighbourhood", "workload", "epsilon", "mechanism", "relation", "any_move", "expected", "measured")
    return pd.DataFrame(rows, columns=columns)
