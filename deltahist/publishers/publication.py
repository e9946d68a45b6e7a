"""Publication: check, measure, charge, draw, add and stamp, in one place for every kind of data."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import check_creatable
from deltahist._memory import check_memory
from deltahist.budget import Budget, floor_nano, read_amount
from deltahist.checks import check_foreign
from deltahist.counting import Counts, Points
from deltahist.errors import InputError, check_whole
from deltahist.kinds import RELEASES
from deltahist.kinds.quantile import Quantile, QuantileMechanism, check_quantile
from deltahist.kinds.sorted import SortedMechanism, SortedRelease, check_membership, group_size, on_a_line, places_for
from deltahist.laws import Law
from deltahist.mechanisms import BaseMechanism, Mechanism
from deltahist.mechanisms.base import Chain
from deltahist.mechanisms.histogram import sensitivity
from deltahist.noise.exact import open_words
from deltahist.noise.samplers import BLOCK, QUANTILE_SAMPLERS, sample_law
from deltahist.planning import mechanism_for
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.publishers.state import State, check_new, draw_chain, new_token, released_noise
from deltahist.releases import BaseRelease, Release
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy, check_groups, is_own

if TYPE_CHECKING:
    from deltahist.accounts.window import Account

#: Noise of a smaller variance is kept in 32 bits: a number that does not fit comes once in e^2000 draws.
_SMALL_VARIANCE = 2.0**40


def publish_mechanism(
    mechanism: BaseMechanism,
    data: ArrayLike,
    *,
    account: Account | None = None,
    state: str | Path | None = None,
    out: str | Path | None = None,
    rng: np.random.Generator | None = None,
    contributions: int | None = None,
    dropped: Iterable[str] = (),
    weak_protection_accepted: bool = False,
) -> Any:
    """Publish private data by a mechanism of any kind, which says what is measured, and how it is hidden.

    Whatever may be refused is refused first. Then the account is charged, and only then noise is drawn and added to
    what was measured.

    Parameters
    ----------
    mechanism : a `Mechanism` for counts, a `SortedMechanism` or a `QuantileMechanism` for points on a line.
    data : counts (domain.shape) or points (n,); private. What `count` and `count_file` return knows how it was made. Of
        a plain array the caller says it (`contributions`, `dropped`).
    account : pays for the release (`dh.Account`), durably, before noise is drawn. It stays charged whatever happens
        next. The release says what the account has spent.
    state : a new file, for a release that can be refined (`dh.refine`): the first one of a chain that costs what its
        last release does. It holds the noise, and must stay as secret as the data.
    out : the release file, written as by `save`.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.
    contributions : points of one user that may move at once; None: what the data know, or 1.
    dropped : what was left out before counting, besides what the data know: "bad rows", "points outside".
    weak_protection_accepted : publish although hardly anything is protected (docs/privacy/weak.md). The first line of
        the statement says so.

    Returns
    -------
    Release, SortedRelease or Quantile, as the mechanism is.

    Raises
    ------
    BudgetExceeded
        If the account has less left than the release spends.
    InputError
        On data that do not fit the mechanism or hold more than it allows for, a budget so large that hardly anything is
        protected, a state that exists already, or a file that cannot be written.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> mechanism = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(epsilon=1))
    >>> dh.publish_mechanism(mechanism, range(8)).total
    28
    """
    mechanism = match_counting(mechanism, data, contributions, dropped)
    check_publication(mechanism, weak_protection_accepted, rng)
    if out is not None:
        check_creatable(out)
    if state is not None:
        mechanism = begin_chain(mechanism, state)
    if rng is None:
        _check_window_pays(mechanism, account)
    private = mechanism.check_data(data)
    release = charge_and_draw(
        functools.partial(RELEASES[mechanism.kind], **mechanism.exact_facts(private)),
        mechanism,
        functools.partial(mechanism.measure, private),
        mechanism.private_noise(private),
        account=account,
        rng=rng,
        state=state,
    )
    if out is not None:
        release.save(out)
    return release


def publish(
    counts: ArrayLike,
    near: Neighbourhood,
    strategy: Strategy | str = "auto",
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
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
    counts : (domain.shape) whole numbers, not negative; private. What `count` and `count_file` return knows how it was
        made. Of a plain array the caller says it (`contributions`, `dropped`).
    near : the neighbourhood, which gives the guarantee its meaning.
    strategy : what to measure, or its name ("flow", "hierarchical:8"), or "auto": the best one for the workload,
        chosen from public data alone.
    epsilon : pure ε with Laplace noise; or
    rho : ρ-zCDP with Gaussian noise.
    workload : what "auto" plans for; all ranges when None.
    contributions : points of one user that may move at once (the unit of privacy is then the user). None: what the
        counts know, or 1. It may be more than they know, not less.
    dropped : what was left out before counting, besides what the counts know: "bad rows", "points outside" (the
        latter needs the boundary as a source). The number of points is then not released.
    weak_protection_accepted, account, state, out, rng : as for `publish_mechanism`.

    Returns
    -------
    Release

    Raises
    ------
    BudgetExceeded
        If the account has less left than the release spends.
    InputError
        As `publish_mechanism`; on counts of another shape or type, a budget that is not finite and above zero, a
        strategy whose groups do not hold every draw once, a projection that tears points apart by more than a hundredth
        of δ, or a grid too large for memory.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.total, release.publishable
    (64, True)
    """
    counting = find_preprocessing(counts, near.domain, contributions, dropped)
    amounts = amounts_for(account, epsilon=epsilon, rho=rho)
    mechanism = mechanism_for(near, strategy, **amounts, workload=workload, counting=counting)
    return publish_mechanism(
        mechanism,
        counts,
        account=account,
        state=state,
        out=out,
        rng=rng,
        weak_protection_accepted=weak_protection_accepted,
    )


def publish_sorted(
    points: ArrayLike,
    near: Neighbourhood,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    group: int | str = "auto",
    most: int | None = None,
    contributions: int | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    state: str | Path | None = None,
    rng: np.random.Generator | None = None,
) -> SortedRelease:
    """Publish the sorted coordinates of points on a line under δ-neighbourhood.

    When one point moves by at most δ, the sorted vector and sums of its consecutive entries move by at most δ in the L1
    norm: integer Laplace noise of scale δ/ε (in lattice steps) on each is ε-private.
    Source: 2014, section 5.5.1. Proof: docs/privacy/sorted.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    near : the neighbourhood, in one dimension; sources None (n is public), "left" or "right".
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    group : points per sum, or "auto": chosen from public figures (`group_size`).
    most : public bound on the number of points, with sources "left" or "right".
    contributions : points of one user that may move at once; None: as many as `points_file` kept, or 1.
    weak_protection_accepted, account, state, rng : as for `publish_mechanism`.

    Raises InputError on points that are not finite numbers, no points, more points than `most`, two dimensions, or a
    group whose sum does not fit.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> release = publish_sorted([31, 8, 64, 47], near, epsilon=1.0, group=2)
    >>> release.values.shape, release.total
    ((2,), 4)
    """
    check_membership(near)
    counting = find_preprocessing(points, near.domain, contributions)
    number = places_for(len(on_a_line(points)), near, most)
    budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
    together = group_size(near, number, budget, counting.contributions) if group == "auto" else check_whole(group=group)
    return publish_mechanism(
        SortedMechanism(near, number, budget, together, counting),
        points,
        account=account,
        state=state,
        rng=rng,
        weak_protection_accepted=weak_protection_accepted,
    )


def publish_quantile(
    points: ArrayLike,
    q: float,
    near: Neighbourhood,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    method: str = "inverse",
    contributions: int | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    rng: np.random.Generator | None = None,
) -> Quantile:
    """Publish a quantile of points on a line under δ-neighbourhood.

    Source: 2014, section 5.5.2, and places drawn by the number of moves within δ that would make them the quantile
    (docs/internals/quantiles.md). Proofs: docs/privacy/quantiles.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    q : the quantile is the ⌈q n⌉-th smallest point; 0.5 is the median.
    near : the neighbourhood, one dimension, fixed membership.
    epsilon, rho : pure ε, or ρ-zCDP.
    method : "inverse" draws a place with probability ∝ e^(−ε/2 · moves), the moves within δ that make it the quantile;
        "smooth" (with ε) adds noise in proportion to the smooth sensitivity, whose scale is not published.
    contributions : points of one user that may move at once; None: as many as `points_file` kept, or 1.
    weak_protection_accepted, account, rng : as for `publish_mechanism`.

    Raises InputError on no points, points that are not finite numbers, a q outside 0 to 1, two dimensions, sources, or
    a method that cannot use the budget.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> found.method, abs(found.value - 50) < 10
    ('inverse', True)
    """
    counting = find_preprocessing(points, near.domain, contributions)
    check_quantile(q, near)
    budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
    return publish_mechanism(
        QuantileMechanism(near, q, len(on_a_line(points)), budget, method, counting),
        points,
        account=account,
        rng=rng,
        weak_protection_accepted=weak_protection_accepted,
    )


def charge_and_draw(
    make: Callable[..., BaseRelease],
    mechanism: BaseMechanism,
    measure: Callable[[], NDArray[np.int64]],
    private_noise: tuple[str, dict[str, Any]] | None = None,
    *,
    account: Account | None,
    rng: np.random.Generator | None,
    state: str | Path | None = None,
    before: State | None = None,
) -> BaseRelease:
    """Charge the account, draw noise, add it to what is measured, and return the release.

    Everything that may be refused was checked before: from the charge on, nothing about data decides anything.
    What is measured is fixed whatever ε, and decoding is post-processing: noise between both can be refined, too.
    Source: 2015, Corollary 13, eq. (40), (41).

    Parameters
    ----------
    make : makes the release of `mechanism`, `values`, `payment` and `publishable`.
    measure : returns exact numbers (size,); private. It is called when the noise has entered, and its draws are gone
        from memory.
    private_noise : of the mechanism (`BaseMechanism.private_noise`).
    account : charged, durably, before noise is drawn.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.
    state : the state of the release's chain. It is written before the release is handed out.
    before : the state of the chain's release before, which is refined.
    """
    chain, source_token = mechanism.chain, None if before is None else before.token
    facts: dict[str, Any] = {}
    if state is not None:
        assert chain is not None
        facts = {"chain": chain.name} | ({} if before is None else {"token": before.token, "source": before.source})
    payment = None if account is None else account.pay(mechanism.guarantee, **facts)
    draws = None
    if state is not None:
        draws = draw_chain(mechanism, before, rng)
        values = released_noise(mechanism, draws)
    elif private_noise is not None:
        sampler, parameters = private_noise
        values = np.array([QUANTILE_SAMPLERS[sampler](**parameters, words=open_words(rng))], dtype=np.int64)
    else:
        values = mechanism.scatter_groups(draw_noise(mechanism, rng))
    values += measure()
    publishable = rng is None and (before is None or before.release.publishable)
    release = make(mechanism=mechanism, values=values, payment=payment, publishable=publishable)
    if state is not None and draws is not None:
        written = State(release, draws, source=source_token)
        written.write(state, new=before is None)
        if account is not None and chain is not None:
            account.settle_chain(chain.name, written.token, written.source)
    return release


def begin_chain(mechanism: BaseMechanism, state: str | Path) -> BaseMechanism:
    """Return the mechanism of the first release of a chain; InputError if it cannot have one, or its state exists."""
    if not mechanism.supports_chains:
        raise InputError(f"state is given with {mechanism.words}, which cannot be refined")
    if mechanism.step is not None:
        raise InputError("state is given with the step of a stream: its steps cannot be refined")
    check_new(state)
    return mechanism.with_chain(Chain(new_token(), (mechanism.budget.amount,)))


def check_publication(mechanism: BaseMechanism, accepted: bool, rng: np.random.Generator | None = None) -> None:
    """Raise InputError if a mechanism can publish nothing, whatever the data are, or hardly protects anything.

    Weak protection may be accepted (docs/privacy/weak.md). With a seeded generator it always is: that is no
    publication. Noise that cannot be drawn is refused here, too, and so is a generator of another kind.
    """
    if isinstance(mechanism, Mechanism):
        strategy = mechanism.strategy
        check_groups(strategy)
        if not is_own(strategy):
            check_foreign(strategy)
            if mechanism.sensitivity != sensitivity(strategy, mechanism.neighbourhood, norm=mechanism.norm):
                raise InputError(f"strategy {strategy.name} has changed its sensitivity since the mechanism was made")
    laws = mechanism.laws  # raises if the noise is too large
    mechanism.neighbourhood.check_on_map()
    if rng is not None:
        open_words(rng)
    elif not accepted:
        refuse_weak(mechanism.budget, mechanism.weakness)
    check_memory(16 * mechanism.size + 5 * mechanism.draws, f"a release of {mechanism.size:,} values")
    if mechanism.counting.dropped and not all(law.parameter for law in laws):
        raise InputError(
            "the domain is a single cell and rows were dropped: their number is then all there is to publish, and it "
            "may depend on a person; use more cells, or mend the rows"
        )


def _check_window_pays(mechanism: BaseMechanism, account: Account | None) -> None:
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


def refuse_weak(budget: Budget, weakness: str | None) -> None:
    """Raise InputError if there is a reason why a budget hardly protects anything."""
    if weakness is not None:
        raise InputError(
            f"{budget.unit} is {float(budget.amount):g}: {weakness}; take less (epsilon of about 1, or rho of about "
            "0.1), or say that it is meant, with weak_protection_accepted=True"
        )


def find_preprocessing(
    data: ArrayLike, domain: Domain, contributions: int | None, dropped: Iterable[str] = ()
) -> Preprocessing:
    """Return how data to be published on a domain were made, with what the caller knows besides.

    Raises InputError if the data were counted on another domain, or the caller contradicts it.
    """
    known = POINTS
    if isinstance(data, Counts | Points):
        if data.domain != domain:
            raise InputError(
                f"the data were counted on {data.domain}, but the neighbourhood is on {domain}: lengths would mean "
                "something else; count them on the neighbourhood's domain"
            )
        known = data.preprocessing
    if more := tuple(dropped):
        known = replace(known, dropped=(*known.dropped, *more))
    if contributions is None:
        return known
    if check_whole(contributions=contributions) < known.contributions:
        raise InputError(
            f"contributions is {contributions!r}, but up to {known.contributions:,} points of a user were kept: it "
            "must be at least as many; leave it out"
        )
    return replace(known, contributions=contributions)


def match_counting(
    mechanism: BaseMechanism, data: ArrayLike, contributions: int | None, dropped: Iterable[str] = ()
) -> BaseMechanism:
    """Return the mechanism with the way in which counts (or points) came to the map, which only they know.

    Raises InputError if they hold more than the mechanism allows for.
    """
    known = find_preprocessing(data, mechanism.domain, contributions, dropped)
    allowed = mechanism.counting
    less = known.contributions > allowed.contributions or known.user > allowed.user
    other = isinstance(data, Counts | Points) and known.where != allowed.where
    if less or other or not set(known.dropped) <= set(allowed.dropped):
        raise InputError(
            f"the mechanism is for counts with {allowed.how}, but these have {known.how}: it must allow for as much"
        )
    if not isinstance(data, Counts | Points) or known.projection == allowed.projection:
        return mechanism  # how plain arrays came to the map is only what the mechanism says
    return mechanism.with_counting(replace(allowed, projection=known.projection))


def amounts_for(account: Account | None, **amounts: Any) -> dict[str, Any]:
    """Return amounts as an account will charge them: a float as the decimal that it prints as; as given without one."""
    if account is None:
        return amounts
    return {name: None if amount is None else read_amount(**{name: amount}) for name, amount in amounts.items()}


def draw_noise(mechanism: BaseMechanism, rng: np.random.Generator | None) -> list[NDArray[Any]]:
    """Draw the noise of each group, part by part, so that little of it is held twice.

    Every part has a stream of its own from the operating system's entropy, so that several are drawn at a time; a
    seeded generator's words come one after another. Small noise is kept in 32 bits, unless a number does not fit.
    """
    found = []
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for members, law in mechanism.noise_groups:
            number = len(range(mechanism.draws)[members]) if isinstance(members, slice) else len(members)
            small = law.variance() < _SMALL_VARIANCE
            drawn = np.zeros(number, dtype=np.int32 if small else np.int64)
            too_large: dict[int, NDArray[np.int64]] = {}

            def fill(start: int, law: Law, drawn: NDArray[Any], too_large: dict[int, NDArray[np.int64]]) -> None:
                part = drawn[start : start + BLOCK]
                values = sample_law(law, len(part), rng)
                part[:] = values
                if drawn.dtype == np.int32 and np.any(part != values):
                    too_large[start] = values

            starts = range(0, number, BLOCK)
            each = map if len(starts) == 1 or rng is not None else pool.map
            list(each(functools.partial(fill, law=law, drawn=drawn, too_large=too_large), starts))
            if too_large:
                drawn = drawn.astype(np.int64)
                for start, values in too_large.items():
                    drawn[start : start + len(values)] = values
            found.append(drawn)
    return found
