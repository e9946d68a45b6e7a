"""Publishing a histogram: y = A c + R(η), exact integers throughout."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._validate import InputError, fits_memory, one_of
from deltahist.budget import Budget
from deltahist.calibration import calibrate, rho_for
from deltahist.counting import Counting
from deltahist.counts.private import how_made
from deltahist.neighbourhood import Neighbourhood
from deltahist.noise import discrete_gaussian, discrete_laplace
from deltahist.planner import choose
from deltahist.privacy import Law
from deltahist.release import Release
from deltahist.strategies.base import Strategy
from deltahist.workloads import AllRanges, Boxes
from deltahist.workloads.polygons import Regions

#: Sums of counts over any rows stay exact in 64 bits, and so do their float estimates.
_MOST_POINTS = 1 << 52
#: δ must be at least so many times as long as what the way to the map tears apart.
_MOST_JUMPS = 100


def publish(
    counts: ArrayLike,
    near: Neighbourhood,
    strategy: Strategy | str = "auto",
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    noise: str | None = None,
    probability: float | None = None,
    workload: Boxes | AllRanges | Regions | None = None,
    contributions: int | None = None,
    dropped: Iterable[str] = (),
    rng: np.random.Generator | None = None,
) -> Release:
    """Publish counts under δ-neighbourhood: measure the strategy's rows and add exact integer noise.

    Source: 2014, section 5.2, with integer noise (Canonne, Kamath, Steinke 2020). Proof of the guarantee:
    docs/privacy/histogram.md.

    Parameters
    ----------
    counts : (domain.shape) whole numbers, not negative; private. What `count` and `count_file` make knows how it was
        made; of a plain array it has to be said (`contributions`, `dropped`).
    near : the neighbourhood; it decides what the guarantee means.
    strategy : what to measure, or "auto": the best one for the workload, chosen from public data alone.
    epsilon : pure ε with Laplace noise; or
    rho : ρ-zCDP with Gaussian noise.
    probability : with epsilon, the failure probability δ_prob that is allowed: a strategy then gets the
        Gaussian noise that is (ε, δ_prob)-private, and "auto" chooses among both noises.
    noise : "laplace" or "gaussian", if it is to be said; it must fit the budget.
    workload : what "auto" plans for; all ranges when None.
    contributions : points of one user that may move at once (the unit of privacy is then the user); what the counts
        know, or 1, when None. It may be said to be more, not less.
    dropped : what was left out before counting besides what the counts know: "bad rows", "points outside" (the
        latter needs the boundary as a source). The number of points is then not released.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.

    Returns
    -------
    Release

    Raises
    ------
    InputError
        On counts of another shape or type, a budget that is not finite and above zero or was charged as something
        else, Gaussian noise with pure ε, a strategy whose groups do not hold every draw once, a way to the map that
        tears points apart by more than a hundredth of δ, or a grid too large for memory.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.total, release.publishable
    (64, True)
    """
    budget = _budget(epsilon, rho, noise, probability)
    counting = how_made(counts, contributions, dropped)
    check_counting(counting, near)
    times, left_out = counting.contributions, counting.dropped
    private = _checked(counts, near)
    if isinstance(strategy, str):
        one_of(("auto",), "or a strategy object", strategy=strategy)
        best = choose(near, workload, noise=noise, left_out=bool(left_out), contributions=times, **budget)
        strategy, budget = best.strategy, dict(best.budget)
    else:
        check_groups(strategy)
        if "probability" in budget:
            budget = {"rho": rho_for(strategy, near, contributions=times, **budget)}
    if strategy.keeps_total and not near.fixed_membership:
        raise InputError(
            f"the neighbourhood has sources, and {strategy.name} keeps the number of points exactly: it would give "
            "away who appears; take another strategy (a flow with arrivals)"
        )
    if left_out and strategy.keeps_total:
        raise InputError(
            f"rows were dropped, and {strategy.name} keeps the number of points exactly, which may then depend on a "
            "person: take another strategy, or mend the rows"
        )
    fits_memory(40 * (sum(strategy.shape) + strategy.draws), f"a release of {strategy.shape[0]:,} values")
    laws = calibrate(strategy, near, contributions=times, **budget)
    if left_out and not all(law.parameter for law in laws):
        raise InputError(
            "the domain is a single cell and rows were dropped: their number is then all there is to publish, and it "
            "may depend on a person; use more cells, or mend the rows"
        )
    drawn = np.zeros(strategy.draws, dtype=np.int64)
    for group, law in zip(strategy.groups, laws, strict=True):
        drawn[group.rows] = draw(law, len(drawn[group.rows]), rng)
    values = strategy.measure(private) + strategy.scatter(drawn)
    return Release(
        near,
        strategy,
        values,
        total=int(private.sum()) if near.fixed_membership and not left_out else None,
        counting=counting,
        publishable=rng is None,
        **budget,
    )


def check_counting(counting: Counting, near: Neighbourhood) -> None:
    """Refuse counts that were not made as the neighbourhood's guarantee needs them."""
    if "points outside" in counting.dropped and near.sources != "boundary":
        raise InputError(
            "points outside were dropped, but the boundary is no source: then a point may vanish by moving; "
            'clamp them, or declare sources="boundary"'
        )
    way = counting.projection
    if way is not None and way.jump * _MOST_JUMPS > near.domain.length(near.delta, name="delta"):
        raise InputError(
            f"the points came to the map by {way.name!r}, which takes near points up to {way.jump:.3g} units of the "
            f"map apart: that must be at most a hundredth of delta={near.delta!r}; bring the coordinates to "
            f"{near.domain.crs} by a smooth operation first"
        )


def check_groups(strategy: Strategy) -> None:
    """Raise InputError unless the groups of a strategy hold every noise draw once."""
    held, number = np.zeros(strategy.draws, dtype=bool), 0
    for group in strategy.groups:
        number += len(held[group.rows])
        held[group.rows] = True
    if number != strategy.draws or not held.all():
        raise InputError(
            f"groups of {strategy.name} name {number:,} noise draws, {int(held.sum()):,} different ones: they must "
            f"hold each of {strategy.draws:,} once, or values would be published without noise of their own"
        )


def _budget(
    epsilon: float | Fraction | None,
    rho: float | Fraction | None,
    noise: str | None,
    probability: float | None,
) -> dict[str, Any]:
    """The budget's own name and exact value; beside ε the probability, if Gaussian noise may be used."""
    if noise is not None:
        one_of(("laplace", "gaussian"), noise=noise)
        if noise == "gaussian" and rho is None and probability is None:
            raise InputError(
                "noise is 'gaussian' with epsilon alone: Gaussian noise is never pure; give rho (zCDP), or the "
                "failure probability that is allowed, such as probability=1e-6"
            )
        if noise == "laplace" and rho is not None:
            raise InputError("noise is 'laplace' with rho: Laplace noise takes epsilon (pure)")
    # Laplace noise does not fail.
    budget = Budget(epsilon, rho, None if noise == "laplace" and rho is None else probability)
    out: dict[str, Any] = {budget.unit: budget.amount}
    return out if budget.probability is None else out | {"probability": budget.probability}


def _checked(counts: ArrayLike, near: Neighbourhood) -> NDArray[np.int64]:
    array = np.asarray(counts)
    if array.shape != near.domain.shape:
        raise InputError(f"counts have shape {array.shape}: the domain has {near.domain.shape} (axis 0 is x)")
    whole_floats = array.dtype.kind == "f" and bool((np.isfinite(array) & (array == np.floor(array))).all())
    if not (np.issubdtype(array.dtype, np.integer) or whole_floats):
        raise InputError(f"counts are of type {array.dtype}: they must be whole numbers")
    if array.size and array.min() < 0:
        raise InputError("counts have a negative entry: they must be numbers of points")
    total = float(array.sum(dtype=np.float64))
    if total >= _MOST_POINTS:
        raise InputError(f"counts add up to {total:.3g}: at most 2^52 points can be counted")
    return array.astype(np.int64, copy=False)


def draw(law: Law, size: int, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """Exact noise of a law; the functions that draw it are looked up here, where audits replace them."""
    if law.parameter == 0:  # nothing changes between neighbours: there is nothing to hide
        return np.zeros(size, dtype=np.int64)
    if law.kind == "laplace":
        return discrete_laplace(law.parameter, size, rng=rng)
    return discrete_gaussian(variance=law.parameter, shape=size, rng=rng)
