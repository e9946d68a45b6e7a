"""Publication of every kind of data: check, measure, charge the account, draw noise, add it and make the release."""

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
from deltahist.budget import Budget, floor_nano, read_amount
from deltahist.checks import check_foreign
from deltahist.counting import Counts, Points
from deltahist.errors import InputError, check_memory, check_whole
from deltahist.kinds import RELEASES
from deltahist.kinds.quantile import Quantile, QuantileMechanism
from deltahist.kinds.sorted import SortedMechanism, SortedRelease, choose_number, group_size, read_line
from deltahist.laws import Law
from deltahist.mechanisms import BaseMechanism, Mechanism
from deltahist.mechanisms.base import Chain
from deltahist.noise.exact import open_words
from deltahist.noise.samplers import BLOCK, QUANTILE_SAMPLERS, sample_law
from deltahist.planning import mechanism_for
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.publishers.state import State, check_new, draw_chain, new_token, released_noise
from deltahist.releases import BaseRelease, Release
from deltahist.releases.base import mark_publishable
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy, check_groups, is_own

if TYPE_CHECKING:
    from deltahist.accounts.window import Account


def publish_mechanism(
    mechanism: BaseMechanism,
    data: ArrayLike,
    *,
    account: Account | None = None,
    state: str | Path | None = None,
    out: str | Path | None = None,
    rng: np.random.Generator | None = None,
    weak_protection_accepted: bool = False,
) -> Any:
    """Publish private data with a mechanism of any kind: check everything, charge the account, then draw noise.

    Parameters
    ----------
    mechanism : a `Mechanism` for counts, a `SortedMechanism` or a `QuantileMechanism` for points on a line.
    data : counts (domain.shape) or points (n,); private. Results of `count` and `count_file` record how they were made.
        How a plain array was made is what the mechanism states (`counting`).
    account : the `dh.Account` that pays for the release, durably. It stays charged if a later step fails.
    state : a new file, for a release that `dh.refine` can refine. It starts a chain, which costs as much as its last
        release. The file holds the noise, so keep it as secret as the data.
    out : the release file to write, as `save` does.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.
    weak_protection_accepted : publish although the guarantee protects hardly anything (docs/privacy/weak.md). The first
        line of the statement says so.

    Returns a Release, SortedRelease or Quantile. Raises BudgetExceeded if the account has less left than the release
    spends; InputError if the data do not fit the mechanism or exceed its limits, the budget protects hardly anything,
    the state exists already, or a file cannot be written.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> mechanism = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(epsilon=1))
    >>> dh.publish_mechanism(mechanism, range(8)).total
    28
    """
    mechanism = match_counting(mechanism, data)
    check_publication(mechanism, weak_protection_accepted, rng)
    if out is not None:
        check_creatable(out)
    if mechanism.chain is not None or (state is not None and mechanism.step is not None):
        raise InputError("only a state begins a chain: the mechanism must be in none, and no step of a stream")
    if state is not None:
        check_new(state)
        mechanism = mechanism.with_chain(Chain(new_token(), (mechanism.budget.amount,)))
    if rng is None:
        _check_window_pays(mechanism, account)
    private = mechanism.check_data(data)
    make = functools.partial(RELEASES[mechanism.kind], **mechanism.exact_facts(private))
    measure, noise = functools.partial(mechanism.measure, private), mechanism.private_noise(private)
    release = charge_and_draw(make, mechanism, measure, noise, account=account, rng=rng, state=state)
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
    """Publish counts under δ-neighbourhood: A c + Lap(Δ_A/ε), where Δ_A is the strategy's sensitivity.

    Source: 2014, section 5.2, with integer noise (Canonne, Kamath, Steinke 2020). Proof of the guarantee:
    docs/privacy/histogram.md.

    Parameters
    ----------
    counts : (domain.shape) non-negative whole numbers; private. Results of `count` and `count_file` record how they
        were made. For a plain array, pass `contributions` and `dropped`.
    near : the neighbourhood that defines the guarantee.
    strategy : the strategy to measure, its name ("flow", "hierarchical:8"), or "auto" for the best one for the
        workload. The choice uses public data alone.
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    workload : the queries that "auto" plans for; all ranges when None.
    contributions : points of one user that may move at once. The unit of privacy is then the user. None takes the
        number that the counts record, or 1. It may be larger than the recorded number, not smaller.
    dropped : what was left out before counting, in addition to what the counts record: "bad rows", "points outside"
        (the latter needs the boundary as a source). The release then hides the number of points.
    weak_protection_accepted, account, state, out, rng : as for `publish_mechanism`.

    Raises as `publish_mechanism`; also InputError if the counts have another shape or type, the projection separates
    points by more than a hundredth of δ, or the grid is too large for memory.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.total, release.publishable
    (64, True)
    """
    counting = find_preprocessing(counts, Counts, near.domain, contributions, dropped)
    amounts = amounts_for(account, epsilon=epsilon, rho=rho)
    mechanism = mechanism_for(near, strategy, **amounts, workload=workload, counting=counting)
    how: dict[str, Any] = {"state": state, "out": out, "weak_protection_accepted": weak_protection_accepted}
    return publish_mechanism(mechanism, counts, account=account, rng=rng, **how)


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

    When one point moves by at most δ, the sums of consecutive sorted points move by at most δ in the L1 norm, so
    integer Laplace noise of scale δ/ε on each is ε-private. Source: 2014, section 5.5.1. Proof: docs/privacy/sorted.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    near : the neighbourhood, in one dimension. Its sources are None (n is public), "left" or "right".
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    group : points per sum, or "auto" for a choice from public figures (`group_size`).
    most : public bound on the number of points, with sources "left" or "right".
    contributions : points of one user that may move at once; None: as many as `points_file` kept, or 1.
    weak_protection_accepted, account, state, rng : as for `publish_mechanism`.

    Raises InputError if there are no points or more than `most`, if points are not finite numbers, on two dimensions,
    or if the sum of a group does not fit.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> release = publish_sorted([31, 8, 64, 47], near, epsilon=1.0, group=2)
    >>> release.values.shape, release.total
    ((2,), 4)
    """
    counting = find_preprocessing(points, Points, near.domain, contributions)
    number = choose_number(len(read_line(points)), near, most)
    budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
    together = group_size(near, number, budget, counting.contributions) if group == "auto" else check_whole(group=group)
    mechanism = SortedMechanism(near, number, budget, together, counting)
    return publish_mechanism(
        mechanism, points, account=account, state=state, rng=rng, weak_protection_accepted=weak_protection_accepted
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

    Source: 2014, section 5.5.2; docs/internals/quantiles.md. Proofs: docs/privacy/quantiles.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    q : the quantile is the ⌈q n⌉-th smallest point; 0.5 is the median.
    near : the neighbourhood, one dimension, fixed membership.
    epsilon, rho : pure ε, or ρ-zCDP.
    method : "inverse" draws a place with probability ∝ e^(−ε/2 · moves), where moves is the number of moves within δ
        that make it the quantile. "smooth" (with ε) adds noise in proportion to the smooth sensitivity, and keeps its
        scale private.
    contributions : points of one user that may move at once; None: as many as `points_file` kept, or 1.
    weak_protection_accepted, account, rng : as for `publish_mechanism`.

    Raises InputError if there are no points, points are not finite numbers, q is outside 0 to 1, the neighbourhood has
    two dimensions or sources, or the method cannot use the budget.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> found.mechanism.method, abs(found.value - 50) < 10
    ('inverse', True)
    """
    counting = find_preprocessing(points, Points, near.domain, contributions)
    budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
    mechanism = QuantileMechanism(near, q, len(read_line(points)), budget, method, counting)
    return publish_mechanism(
        mechanism, points, account=account, rng=rng, weak_protection_accepted=weak_protection_accepted
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
    """Charge the account, draw noise, add it to the measurements, and return the release.

    The caller has made all checks. From the charge on, no decision depends on the data. The measurements do not depend
    on ε, and decoding is post-processing, so the noise between them can be refined.
    Source: 2015, Corollary 13, eq. (40), (41).

    Parameters
    ----------
    make : makes the release from `mechanism`, `values` and `payment`.
    measure : returns exact numbers (size,); private. Called late, when the draws are out of memory.
    private_noise : noise of the mechanism (`BaseMechanism.private_noise`).
    state : the state of the release's chain. It is written before the release is returned.
    before : the state of the chain's previous release, which this one refines.
    """
    chain = mechanism.chain
    facts: dict[str, Any] = {}
    if state is not None and chain is not None:
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
    release = mark_publishable(make(mechanism=mechanism, values=values, payment=payment), publishable)
    if state is not None and draws is not None:
        written = State(release, draws, source=None if before is None else before.token)
        written.write(state, new=before is None)
        if account is not None and chain is not None:
            account.settle_chain(chain.name, written.token, written.source)
    return release


def check_publication(mechanism: BaseMechanism, accepted: bool, rng: np.random.Generator | None = None) -> None:
    """Raise InputError if a mechanism cannot publish any data, cannot draw its noise, or protects hardly anything.

    The caller may accept weak protection (docs/privacy/weak.md). With a seeded generator nothing is for publication, so
    nobody is asked.
    """
    if isinstance(mechanism, Mechanism):
        strategy = mechanism.strategy
        check_groups(strategy)
        if not is_own(strategy):
            check_foreign(strategy, mechanism)
    laws = mechanism.laws  # raises if the noise is too large
    mechanism.neighbourhood.check_on_map()
    if rng is not None:
        open_words(rng)
    elif not accepted:
        refuse_weak(mechanism.budget, mechanism.weakness)
    check_memory(16 * mechanism.size + 5 * mechanism.draws, f"a release of {mechanism.size:,} values")
    if mechanism.counting.dropped and not all(law.parameter for law in laws):
        raise InputError(
            "the domain is a single cell, and rows were dropped: only their number would be published, which is "
            "private; use more cells, or mend the rows"
        )


def _check_window_pays(mechanism: BaseMechanism, account: Account | None) -> None:
    """Raise InputError unless the account is that of the window in the step's statement."""
    step, paying = mechanism.step, None
    if step is None:
        return
    if account is not None:
        window = account.window
        paying = account.step, window.length, window.rule.unit, window.rule.limit, window.limits
    unit, amount = step.budget.unit, step.budget.amount
    if paying != (step.number, step.window, unit, floor_nano(**{unit: amount}), step.limits):
        raise InputError(
            f"the mechanism is for step {step.label} of a stream, and must be paid by Account(window, step) of its "
            f"window, not by {'no account' if account is None else f'account {account.name!r}'}"
        )


def refuse_weak(budget: Budget, weakness: str | None) -> None:
    """Raise InputError if there is a reason why a budget protects hardly anything."""
    if weakness is not None:
        raise InputError(
            f"{budget.unit} is {float(budget.amount):g}: {weakness}; use less (epsilon of about 1, or rho of about "
            "0.1), or pass weak_protection_accepted=True"
        )


def find_preprocessing(
    data: ArrayLike,
    kind: type[Counts | Points],
    domain: Domain,
    contributions: int | None = None,
    dropped: Iterable[str] = (),
) -> Preprocessing:
    """Return how data for a domain were made, from their own record and the caller's arguments.

    Raises InputError if the data record that they are of another kind (counts or points), or on another domain.
    """
    known = POINTS
    if isinstance(data, Counts | Points):
        if not isinstance(data, kind) or data.domain != domain:
            raise InputError(
                f"the data are {type(data).__name__} on {data.domain}, but the mechanism takes {kind.__name__} on "
                f"{domain}: count them on the neighbourhood's domain"
            )
        known = data.preprocessing
    known = replace(known, dropped=(*known.dropped, *dropped))
    return known if contributions is None else replace(known, contributions=contributions)


def match_counting(mechanism: BaseMechanism, data: ArrayLike) -> BaseMechanism:
    """Return the mechanism with the projection that counts (or points) record.

    Raises InputError unless the mechanism allows for all that they record. Plain arrays record nothing.
    """
    allowed, kind = mechanism.counting, Counts if isinstance(mechanism, Mechanism) else Points
    known = find_preprocessing(data, kind, mechanism.domain)
    if not isinstance(data, Counts | Points):
        return mechanism
    if (
        known.contributions > allowed.contributions
        or known.user > allowed.user
        or not set(known.dropped) <= set(allowed.dropped)
        or known.where != allowed.where
    ):
        raise InputError(
            f"the mechanism is for data with {allowed.how}, but these have {known.how}: it must allow for as much"
        )
    if known.projection == allowed.projection:
        return mechanism
    return mechanism.with_changes(counting=replace(allowed, projection=known.projection))


def amounts_for(account: Account | None, **amounts: Any) -> dict[str, Any]:
    """Return amounts as an account charges them, floats as the decimals they print as; unchanged without an account."""
    if account is None:
        return amounts
    return {name: None if amount is None else read_amount(**{name: amount}) for name, amount in amounts.items()}


def draw_noise(mechanism: BaseMechanism, rng: np.random.Generator | None) -> list[NDArray[Any]]:
    """Draw the noise of each group in parts, which draw from their own streams of entropy in parallel.

    A seeded generator draws them one after another. Small noise is kept in 32 bits, unless a number does not fit.
    """

    def draw_part(start: int, law: Law, number: int) -> NDArray[Any]:
        values = sample_law(law, min(BLOCK, number - start), rng)
        if law.variance() < 2.0**40:  # one draw in e^2000 does not fit
            short = values.astype(np.int32)
            return short if np.array_equal(short, values) else values
        return values

    found = []
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for members, law in mechanism.noise_groups:
            number = len(range(mechanism.draws)[members]) if isinstance(members, slice) else len(members)
            starts = range(0, number, BLOCK)
            each = map if len(starts) == 1 or rng is not None else pool.map
            parts = each(functools.partial(draw_part, law=law, number=number), starts)
            found.append(np.concatenate([np.zeros(0, dtype=np.int32), *parts]))
    return found
