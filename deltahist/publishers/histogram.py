"""Publishing a histogram: y = A c + R(η), exact integers throughout."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import check_creatable
from deltahist._memory import check_memory
from deltahist.budget import floor_nano
from deltahist.checks import check_foreign
from deltahist.errors import InputError
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.histogram import sensitivity
from deltahist.planning import mechanism_for
from deltahist.publishers.publication import (
    amounts_for,
    check_protection,
    find_preprocessing,
    match_counting,
    publish_measured,
    refuse_choices,
)
from deltahist.releases import Release
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy, check_groups, is_own
from deltahist.strategies.flow import Flow

if TYPE_CHECKING:
    from deltahist.accounts.window import Account

#: Sums of counts over any rows stay exact in 64 bits, and so do their float estimates.
_MOST_POINTS = 1 << 52


def publish(
    counts: ArrayLike,
    near: Neighbourhood | Mechanism,
    strategy: Strategy | str = "auto",
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    noise: str | None = None,
    probability: float | None = None,
    workload: Workload | None = None,
    contributions: int | None = None,
    dropped: Iterable[str] = (),
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    state: str | Path | None = None,
    out: str | Path | None = None,
    rng: np.random.Generator | None = None,
) -> Release:
    """Publish counts under δ-neighbourhood: measure the strategy's rows and add exact integer noise.

    What is published is A c + Lap(Δ_A/ε), Δ_A the strategy's sensitivity.
    Source: 2014, section 5.2, with integer noise (Canonne, Kamath, Steinke 2020). Proof of the guarantee:
    docs/privacy/histogram.md.

    Parameters
    ----------
    counts : (domain.shape) whole numbers, not negative; private. What `count` and `count_file` make knows how it was
        made; of a plain array it has to be said (`contributions`, `dropped`).
    near : the neighbourhood; it decides what the guarantee means. Or a mechanism, which says all that follows but
        rng.
    strategy : what to measure, or its name ("flow", "hierarchical:8"), or "auto": the best one for the workload,
        chosen from public data alone.
    epsilon : pure ε with Laplace noise; or
    rho : ρ-zCDP with Gaussian noise.
    probability : with epsilon, the failure probability δ_prob that is allowed: a strategy then gets the
        Gaussian noise that is (ε, δ_prob)-private, and "auto" chooses among both noises.
    noise : "laplace" or "gaussian" (or another law's name), if it is to be said; it must fit the budget.
    workload : what "auto" plans for; all ranges when None.
    contributions : points of one user that may move at once (the unit of privacy is then the user); what the counts
        know, or 1, when None. It may be said to be more, not less.
    dropped : what was left out before counting besides what the counts know: "bad rows", "points outside" (the
        latter needs the boundary as a source). The number of points is then not released.
    weak_protection_accepted : publish although hardly anything is protected (docs/privacy/weak.md); the statement
        says so in its first line.
    account : pays for the release (`dh.Account`): charged, durably, once all is checked and before noise is drawn. It
        stays charged whatever happens then; the release says what has been spent.
    state : a new file, for a release that can be refined (`dh.refine`): the first one of a chain that costs what
        its last release does. It holds the noise, is written before this returns, and must stay as secret as the
        data.
    out : the release file, written as by `save`.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.

    Returns
    -------
    Release

    Raises
    ------
    BudgetExceeded
        If the account has less left than the release spends.
    InputError
        On counts of another shape or type, a budget that is not finite and above zero, was charged as something else or
        is so large that hardly anything is protected, a state that exists already, Gaussian noise with pure ε, a
        strategy whose groups do not hold every draw once, a way to the map that tears points apart by more than a
        hundredth of δ, or a grid too large for memory; on a file that cannot be written.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.total, release.publishable
    (64, True)
    """
    if isinstance(near, Mechanism):
        refuse_choices(
            "the strategy and the budget",
            {"strategy": strategy},
            epsilon=epsilon,
            rho=rho,
            noise=noise,
            probability=probability,
            workload=workload,
        )
        mechanism = match_counting(near, counts, contributions, dropped)
    else:
        counting = find_preprocessing(counts, near.domain, contributions, dropped)
        mechanism = mechanism_for(
            near,
            strategy,
            **amounts_for(account, epsilon=epsilon, rho=rho),
            noise=noise,
            probability=probability,
            workload=workload,
            counting=counting,
        )
    check_public(mechanism, weak_protection_accepted, rng)
    if out is not None:
        check_creatable(out)
    if rng is None:
        _check_window_pays(mechanism, account)
    private = _checked(counts, mechanism.neighbourhood)
    total = int(private.sum()) if mechanism.total_known else None
    # Some strategies hold fewer points than others: what they refuse is known before anything is charged. Flows hold
    # all that `_checked` lets pass.
    measured: Any = functools.partial(mechanism.strategy.measure, private)
    if state is not None or not isinstance(mechanism.strategy, Flow):
        measured = measured()
    make = functools.partial(Release, total=total)
    if state is None:
        release = publish_measured(make, mechanism, measured, account=account, rng=rng)
    else:
        from deltahist.publishers.gradual import begin

        release = begin(make, mechanism, measured, state, account=account, rng=rng)
    if out is not None:
        release.save(out)
    return release


def check_public(mechanism: Mechanism, accepted: bool, rng: np.random.Generator | None = None) -> None:
    """Raise InputError if a mechanism could publish no counts, whatever they are."""
    strategy = mechanism.strategy
    check_groups(strategy)
    if not is_own(strategy):
        check_foreign(strategy)
        if mechanism.sensitivity != sensitivity(strategy, mechanism.neighbourhood, norm=mechanism.norm):
            raise InputError(
                f"strategy {strategy.name} costs something else than when the mechanism was made: it must not change"
            )
    check_protection(mechanism, accepted, rng)
    check_memory(16 * strategy.shape[0] + 5 * strategy.draws, f"a release of {strategy.shape[0]:,} values")
    if mechanism.counting.dropped and not all(law.parameter for law in mechanism.laws):
        raise InputError(
            "the domain is a single cell and rows were dropped: their number is then all there is to publish, and it "
            "may depend on a person; use more cells, or mend the rows"
        )


def _check_window_pays(mechanism: Mechanism, account: Account | None) -> None:
    """Raise InputError unless the window that a step's statement speaks of pays for the step."""
    step = mechanism.step
    if step is None:
        return
    paying = None if account is None else (account.step, account.window.length, account.window.rule.unit)
    if (
        account is None
        or paying != (step.number, step.window, step.budget.unit)
        or account.window.rule.limit != floor_nano(**{step.budget.unit: step.budget.amount})
        or account.window.limits != step.limits
    ):
        raise InputError(
            f"the mechanism is for step {step.label} of a stream, and "
            + ("no account pays" if account is None else f"account {account.name!r} pays for something else")
            + ": publish steps with Account(window, step) of that window, or by a Stream"
        )


def _checked(counts: ArrayLike, near: Neighbourhood) -> NDArray[np.int64]:
    """Return counts as whole numbers, or raise InputError."""
    if np.ma.is_masked(counts):
        raise InputError("counts have masked entries: each cell must have a number")
    array = np.asarray(counts)
    if array.shape != near.domain.shape:
        raise InputError(f"counts have shape {array.shape}: the domain has {near.domain.shape} (axis 0 is x)")
    whole_floats = array.dtype.kind == "f" and bool((np.isfinite(array) & (array == np.floor(array))).all())
    if not (np.issubdtype(array.dtype, np.integer) or whole_floats):
        raise InputError(f"counts are of type {array.dtype}: they must be whole numbers")
    if array.size and array.min() < 0:
        raise InputError("counts have a negative entry: they must be numbers of points")
    _check_number(float(array.sum(dtype=np.float64)))
    return array.astype(np.int64, copy=False)


def _check_number(total: float) -> None:
    if total >= _MOST_POINTS:
        raise InputError(f"counts add up to {total:.3g}: at most 2^52 points can be counted")
