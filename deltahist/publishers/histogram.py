"""Publishing a histogram: y = A c + R(η), exact integers throughout."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._validate import InputError, exact, fits_memory, one_of, whole
from deltahist.calibration import calibrate, rho_for
from deltahist.neighbourhood import Neighbourhood
from deltahist.noise import discrete_gaussian, discrete_laplace
from deltahist.planner import choose
from deltahist.privacy import Law
from deltahist.release import DROPS, Release
from deltahist.strategies.base import Strategy
from deltahist.workloads import AllRanges, Boxes
from deltahist.workloads.polygons import Regions

#: Sums of counts over any rows stay exact in 64 bits, and so do their float estimates.
_MOST_POINTS = 1 << 52


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
    contributions: int = 1,
    dropped: Iterable[str] = (),
    rng: np.random.Generator | None = None,
) -> Release:
    """Publish counts under δ-neighbourhood: measure the strategy's rows and add exact integer noise.

    Source: 2014, section 5.2, with integer noise (Canonne, Kamath, Steinke 2020). Proof of the guarantee:
    docs/privacy/histogram.md.

    Parameters
    ----------
    counts : (domain.shape) whole numbers, not negative; private.
    near : the neighbourhood; it decides what the guarantee means.
    strategy : what to measure, or "auto": the best one for the workload, chosen from public data alone.
    epsilon : pure ε with Laplace noise; or
    rho : ρ-zCDP with Gaussian noise.
    probability : with epsilon, the failure probability δ_prob that is allowed: a strategy then gets the
        Gaussian noise that is (ε, δ_prob)-private, and "auto" chooses among both noises.
    noise : "laplace" or "gaussian", if it is to be said; it must fit the budget.
    workload : what "auto" plans for; all ranges when None.
    contributions : points of one user that may move at once (the unit of privacy is then the user).
    dropped : what was left out before counting: "bad rows", "points outside" (the latter needs the boundary
        as a source). The number of points is then not released.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.

    Returns
    -------
    Release

    Raises
    ------
    InputError
        On counts of another shape or type, a budget that is not finite and above zero, Gaussian noise with
        pure ε, or a grid too large for memory.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.total, release.publishable
    (64, True)
    """
    times = whole(contributions=contributions)
    budget = _budget(epsilon, rho, noise, probability)
    left_out = tuple(one_of(DROPS, dropped=d) for d in dropped)
    if "points outside" in left_out and near.sources != "boundary":
        raise InputError(
            "points outside were dropped, but the boundary is no source: then a point may vanish by moving; "
            'clamp them, or declare sources="boundary"'
        )
    private = _checked(counts, near)
    if isinstance(strategy, str):
        one_of(("auto",), "or a strategy object", strategy=strategy)
        best = choose(near, workload, noise=noise, left_out=bool(left_out), contributions=times, **budget)
        strategy, budget = best.strategy, dict(best.budget)
    elif "probability" in budget:
        budget = {"rho": rho_for(strategy, near, contributions=times, **budget)}
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
    drawn = np.empty(strategy.draws, dtype=np.int64)
    for group, law in zip(strategy.groups, laws, strict=True):
        drawn[group.rows] = draw(law, len(drawn[group.rows]), rng)
    values = strategy.measure(private) + strategy.scatter(drawn)
    return Release(
        near,
        strategy,
        values,
        total=int(private.sum()) if near.fixed_membership and not left_out else None,
        contributions=times,
        dropped=left_out,
        publishable=rng is None,
        **budget,
    )


def _budget(
    epsilon: float | Fraction | None,
    rho: float | Fraction | None,
    noise: str | None,
    probability: float | None,
) -> dict[str, Any]:
    """The budget's own name and exact value; beside ε the probability, if Gaussian noise may be used."""
    if (epsilon is None) == (rho is None):
        raise InputError("give epsilon (pure, Laplace noise) or rho (zCDP, Gaussian noise), one of them")
    if noise is not None:
        one_of(("laplace", "gaussian"), noise=noise)
        if noise == "gaussian" and rho is None and probability is None:
            raise InputError(
                "noise is 'gaussian' with epsilon alone: Gaussian noise is never pure; give rho (zCDP), or the "
                "failure probability that is allowed, such as probability=1e-6"
            )
        if noise == "laplace" and rho is not None:
            raise InputError("noise is 'laplace' with rho: Laplace noise takes epsilon (pure)")
    if rho is not None:
        if probability is not None:
            raise InputError(
                "probability goes with epsilon: rho (zCDP) holds for every failure probability at once"
            )
        return {"rho": exact(rho=rho)}
    if probability is None or noise == "laplace":
        return {"epsilon": exact(epsilon=epsilon)}
    return {"epsilon": exact(epsilon=epsilon), "probability": probability}


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
