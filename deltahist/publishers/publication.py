"""Publish every kind of data: check, charge the account, draw noise, add the exact numbers and make the release.

The state of a chain is a secret file with the noise of the last release, which the next release refines. The file
appears whole or not at all, and only its owner can read it.
"""

from __future__ import annotations

import functools
import io
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import check_creatable, check_format, check_secret, exclusive, open_regular, write_whole
from deltahist.budget import Budget, floor_nano, read_amount
from deltahist.checks import check_foreign
from deltahist.counting import Counts, Points
from deltahist.errors import DamagedFile, InputError, check_memory, check_whole
from deltahist.kinds import RELEASES, parse_release
from deltahist.kinds.quantile import Quantile, QuantileMechanism
from deltahist.kinds.sorted import SortedMechanism, SortedRelease, choose_number, group_size, read_line
from deltahist.laws import Law
from deltahist.mechanisms import BaseMechanism, Mechanism
from deltahist.mechanisms.base import Chain
from deltahist.noise.exact import open_words
from deltahist.noise.samplers import BLOCK, QUANTILE_SAMPLERS, Refinable, sample_law, sampler_of
from deltahist.planning import mechanism_for
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.releases import BaseRelease, Release
from deltahist.releases.base import mark_publishable
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy, check_groups, is_own

if TYPE_CHECKING:
    from deltahist.accounts.window import Account

#: Version of all state files.
_VERSION = 1


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
        For a plain array, the mechanism's `counting` states this.
    account : the `dh.Account` that pays for the release, durably. It stays charged if a later step fails.
    state : a new file, which lets `dh.refine` refine the release. It starts a chain, which costs as much as its last
        release. The file contains the noise, so keep it as secret as the data.
    out : the release file to write, as `save` does.
    rng : a seeded generator, for experiments only. The release is then marked as not for publication.
    weak_protection_accepted : publish even if the guarantee protects hardly anything (docs/privacy/weak.md). The first
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
        raise InputError("the mechanism is in a chain, or in a stream although a state is given: neither is allowed")
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
        workload. The choice uses only public data.
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    workload : the queries that "auto" plans for. None for all ranges.
    contributions : points of one user that may move at once. The unit of privacy is then the user. None takes the
        number that the counts record, or 1. A given number must not be smaller than the recorded one.
    dropped : kinds of rows left out before counting, in addition to those that the counts record: "bad rows", "points
        outside" (which requires the boundary as a source). The release then hides the number of points.
    weak_protection_accepted, account, state, rng : as for `publish_mechanism`.

    Raises the errors of `publish_mechanism`, and InputError if the counts have another shape or type, the projection
    separates points by more than a hundredth of δ, or the grid is too large for memory.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.total, release.publishable
    (64, True)
    """
    counting = find_preprocessing(counts, Counts, near.domain, contributions, dropped)
    amounts = amounts_for(account, epsilon=epsilon, rho=rho)
    mechanism = mechanism_for(near, strategy, **amounts, workload=workload, counting=counting)
    return publish_mechanism(
        mechanism, counts, account=account, state=state, rng=rng, weak_protection_accepted=weak_protection_accepted
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

    When one point moves by at most δ, sums of consecutive sorted points move by at most δ in the L1 norm, so integer
    Laplace noise of scale δ/ε on each sum is ε-private. Source: 2014, section 5.5.1. Proof: docs/privacy/sorted.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    near : the neighbourhood, in one dimension. Its sources are None (n is public), "left" or "right".
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    group : points per sum, or "auto" for a choice from public figures (`group_size`).
    most : public bound on the number of points, with sources "left" or "right".
    contributions : points of one user that may move at once; None: as many as `points_file` kept, or 1.
    weak_protection_accepted, account, state, rng : as for `publish_mechanism`.

    Raises InputError if there are no points or more than `most`, if points are not finite numbers, if the neighbourhood
    has two dimensions, or if the sum of a group overflows.

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
    near : the neighbourhood, in one dimension and with fixed membership.
    epsilon, rho : pure ε, or ρ-zCDP.
    method : "inverse" draws a place with probability ∝ e^(−ε/2 · moves), where moves is the number of moves within δ
        that make this place the quantile. "smooth" (with ε) adds noise in proportion to the smooth sensitivity, and
        keeps its scale private.
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


def refine(
    release: BaseRelease | None,
    state: str | Path,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    rng: np.random.Generator | None = None,
) -> Any:
    """Publish a finer release of the same data. All releases of the chain together cost as much as this one.

    The data are not needed, because the state from `publish(..., state=)` has the noise. Each release is A c + R(V_ε),
    where V_ε is one path of noise, and its error is that of a single release at its budget. The value at the new ε is
    drawn given the value at the last ε. If a run ended before saving the release, call this again with the same budget,
    or with `release` and budget None, to get the same release.
    Source, on the integers: 2015, Theorem 1, eq. (1), (3), Theorem 12, eq. (36); 2015 abstract, Theorem 1, eq. (1),
    Theorem 2, eq. (4). Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : the last release of the chain; None takes it from the state.
    state : file of the state, which is replaced by the state of the new release.
    epsilon, rho : budget of the new release, in the unit of the chain and larger than before.
    account : the account that pays the difference. It must be the one that paid for the first release, if any did.
    weak_protection_accepted, rng : as for `publish_mechanism`.

    Raises BudgetExceeded if the account has less left than the difference; DamagedFile if the state is altered;
    InputError if the state is missing, in use, of another chain or not the last one, or the budget is not larger.
    After these errors, nothing has been drawn or charged.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rough = dh.publish(np.arange(8), near, epsilon=1, state=f"{folder}/line.state")
    ...     fine = dh.refine(rough, f"{folder}/line.state", epsilon=2)
    >>> fine.guarantee.epsilon, fine.total
    (Fraction(2, 1), 28)
    """
    open_regular(Path(state), "state").close()  # do not lock a missing state
    with exclusive(Path(state), "state"):
        known = State.load(state)
        _check_account(known.release, account)
        if release is None and epsilon is None and rho is None:
            return _settle_known(known, account)
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
        finer = known.mechanism.with_budget(budget)
        chain = _check_chain(known.release if release is None else release, known, state, budget)
        if chain != known.chain:  # a run ended after writing the state, perhaps before saving its release
            return _settle_known(known, account)
        finer = finer.with_chain(replace(chain, amounts=(*chain.amounts, budget.amount)))
        check_publication(finer, weak_protection_accepted, rng)
        for (_, law), (_, other) in zip(known.mechanism.noise_groups, finer.noise_groups, strict=True):
            if law.parameter:  # try before charging, because budgets may be too far apart or too close
                _path_of(finer, other).refine(np.zeros(1, dtype=np.int64), 1 / law.parameter, 1 / other.parameter)
        return charge_and_draw(
            functools.partial(replace, known.release),  # type: ignore[type-var]
            finer,
            lambda: known.release.values - released_noise(known.mechanism, known.draws),
            account=account,
            rng=rng,
            state=state,
            before=known,
        )


def tighten(
    release: BaseRelease,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    state: str | Path | None = None,
    rng: np.random.Generator | None = None,
) -> Any:
    """Make a more private copy of a release, as if it had been released at that budget.

    The copy spends nothing, because it only adds noise to published numbers. The release and all its copies together
    cost as much as the release.
    Source: 2015, section 3.1.2, eq. (29), on the integers. Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : release of counts or of sorted points.
    epsilon, rho : budget of the copy, smaller than that of the release and in the same unit.
    state : state of the release's chain. Required for flows with sums along the lines, because the release does not
        keep their rounding, and for Gaussian noise too small for whole numbers.
    rng : a seeded generator, for experiments only. The copy is then marked as not for publication.

    Raises InputError if the budget is not smaller, the release is a quantile, a required state is missing, or the state
    is that of another release.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> release = dh.publish(np.arange(8), near, strategy="identity", epsilon=2)
    >>> tighten(release, epsilon=1).guarantee.epsilon
    Fraction(1, 1)
    """
    mechanism, budget = release.mechanism, Budget(epsilon, rho)
    coarser = mechanism.with_budget(budget)
    alone, most = mechanism.scatters_linearly, mechanism.budget.amount
    if budget.amount >= most or (state is None and not alone):
        rule = "" if alone else ", and needs the state of its chain, as the release does not keep all its noise"
        raise InputError(
            f"{budget.unit} is {float(budget.amount):.10g}: a more private copy must have less than the "
            f"{float(most):.10g} of the release{rule}"
        )
    before = mechanism.chain
    history = Chain("", (mechanism.budget.amount,), budget.amount, release.digest) if before is None else before
    origin = history.origin or release.digest  # a copy of a copy counts as a copy of the first release
    coarser = coarser.with_chain(replace(history, copied=budget.amount, origin=origin))
    if state is None:
        noise = np.zeros(mechanism.draws, dtype=np.int64)
        for (members, law), (_, wider) in zip(mechanism.noise_groups, coarser.noise_groups, strict=True):
            if law.parameter:
                size = len(noise[members])
                noise[members] = sampler_of(law).draw_addition(1 / law.parameter, 1 / wider.parameter, size, rng=rng)
        values = release.values + mechanism.scatter(noise)
    else:
        known = State.load(state)
        _check_chain(release, known, state)
        draws = draw_chain(coarser, known, rng)
        values = release.values - released_noise(known.mechanism, known.draws) + released_noise(coarser, draws)
    copy = replace(release, mechanism=coarser, values=values)  # type: ignore[type-var]
    return mark_publishable(copy, release.publishable and rng is None)


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
    make : function that makes the release from `mechanism`, `values` and `payment`.
    measure : function that returns exact numbers (size,); private. It is called late, when the draws have been freed.
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
            account.record_state(chain.name, written.token, written.source)
    return release


def check_publication(mechanism: BaseMechanism, accepted: bool, rng: np.random.Generator | None = None) -> None:
    """Raise InputError if a mechanism cannot publish any data, cannot draw its noise, or protects hardly anything.

    Callers may accept weak protection (docs/privacy/weak.md). With a seeded generator the release is not for
    publication, and may be weak.
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
            "private; use more cells, or correct the rows"
        )


def _check_window_pays(mechanism: BaseMechanism, account: Account | None) -> None:
    """Raise InputError unless the account belongs to the window that the step states."""
    step, paying = mechanism.step, None
    if step is None:
        return
    if account is not None:
        window = account.window
        paying = account.step, window.length, window.rule.unit, window.rule.limit, window.limits
    unit, amount = step.budget.unit, step.budget.amount
    if paying != (step.number, step.window, unit, floor_nano(**{unit: amount}), step.limits):
        raise InputError(
            f"the mechanism is for step {step.label} of a stream, so the Account(window, step) for that window must "
            f"pay for it, not {'no account' if account is None else f'account {account.name!r}'}"
        )


def refuse_weak(budget: Budget, weakness: str | None) -> None:
    """Raise InputError with the reason why a budget protects hardly anything, if there is one."""
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

    Raises InputError if the data's record states another kind (counts or points) or another domain.
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

    Raises InputError unless the mechanism allows for everything that the data record. Plain arrays record nothing.
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
            f"the mechanism is for data with {allowed.how}, but these have {known.how}: it must allow for all that"
        )
    if known.projection == allowed.projection:
        return mechanism
    return mechanism.with_changes(counting=replace(allowed, projection=known.projection))


def amounts_for(account: Account | None, **amounts: Any) -> dict[str, Any]:
    """Return amounts as an account charges them, with floats as printed. Without an account, they are unchanged."""
    if account is None:
        return amounts
    return {name: None if amount is None else read_amount(**{name: amount}) for name, amount in amounts.items()}


def draw_noise(mechanism: BaseMechanism, rng: np.random.Generator | None) -> list[NDArray[Any]]:
    """Draw the noise of each group in parallel parts, each from its own stream of entropy.

    A seeded generator draws the parts one after another. Small noise is kept in 32 bits, unless a number does not fit.
    """

    def draw_part(start: int, law: Law, number: int) -> NDArray[Any]:
        values = sample_law(law, min(BLOCK, number - start), rng)
        if law.variance() < 2.0**40:  # all but one draw in e^2000 fit
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


# --- states of chains ---------------------------------------------------------------------------------------


def new_token() -> str:
    """Return a unique name for one version of a state, 32 hexadecimal digits."""
    return secrets.token_hex(16)


def write_state(
    path: Path, form: str, description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], token: str,
    *, new: bool = False,
) -> None:  # fmt: skip
    """Write a state durably. Raises InputError if it cannot be written, or if a `new` state exists already."""
    content = json.dumps({"format": form, "version": _VERSION, "token": token, **description}).encode()
    named = {"description": np.frombuffer(content, dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    if not write_whole(path, write, secret=True, replace=not new):
        refuse_existing(path)


def refuse_existing(path: str | Path) -> NoReturn:
    """Raise InputError, because a state is never overwritten."""
    raise InputError(f"state {str(path)!r} exists already, and is never overwritten: name a new file, or refine it")


def check_new(path: str | Path) -> None:
    """Raise InputError unless a new state can be written."""
    if Path(path).exists():
        refuse_existing(path)
    check_creatable(path)


def read_state(path: Path, form: str, parse: Callable[..., Any] = lambda *content: content) -> Any:
    """Return `parse(description, arrays, token)` of a state, which is untrusted input.

    Raises InputError if the file is missing or has several names, or if other users can read it. Raises DamagedFile if
    it is truncated, not a state of this form and version, or if `parse` fails.
    """
    with open_regular(path, "state") as file:
        if zipfile.is_zipfile(file):  # other files are not states, so their permissions do not matter
            check_secret(path, "state")
            if (names := path.stat().st_nlink) > 1:
                raise InputError(
                    f"state {str(path)!r} has {names} names (hard links), and each would refine the same noise: keep "
                    f"one (`find FOLDER -samefile {str(path)!r}` shows them)"
                )
        try:
            with zipfile.ZipFile(file) as parts:
                check_memory(sum(part.file_size for part in parts.infolist()), f"state {str(path)!r}")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
            description = json.loads(arrays.pop("description").tobytes())
            check_format(description, str(path), (form,), _VERSION)
            return parse(description, arrays, str(description["token"]))
        except Exception as problem:  # NumPy evaluates headers, and fails in many ways
            damage = DamagedFile(f"state {str(path)!r} is truncated, altered or no state: {problem}")
            raise problem if isinstance(problem, InputError) else damage from None


@dataclass(frozen=True, eq=False)
class State:
    """The noise in a release, needed to refine it. Anyone who has it can remove the noise and see the data.

    The file also contains the release, so that it is not lost if the process ends before saving it.

    Parameters
    ----------
    release : the last release of the chain. draws : (draws,) its noise; private.
    token : name of this state in ledgers. source : token of the previous state; None for the first.
    """

    release: BaseRelease
    draws: NDArray[np.int64] = field(repr=False)
    token: str = field(repr=False, default_factory=new_token)
    source: str | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        return f"State(release {self.chain.number} of chain {self.chain.name})"

    @property
    def chain(self) -> Chain:
        """The chain up to this release."""
        assert self.mechanism.chain is not None
        return self.mechanism.chain

    @property
    def mechanism(self) -> BaseMechanism:
        """The mechanism of the release."""
        return self.release.mechanism

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read a state. Raises the errors of `read_state`."""

        def parse(description: dict[str, Any], arrays: dict[str, NDArray[Any]], token: str) -> State:
            release = parse_release(arrays["release"].tobytes(), path)
            draws = arrays["draws"].astype(np.int64, casting="equiv").reshape(release.mechanism.draws)
            chain = release.mechanism.chain
            if chain is None or chain.copied is not None:
                raise ValueError("its release is in no chain")
            return cls(release, draws, token, description.get("source"))

        found: State = read_state(Path(path), "deltahist-state", parse)
        return found

    def write(self, path: str | Path, *, new: bool) -> None:
        """Write the state durably, as a `new` file or in place of the previous state, which the caller has locked."""
        self.release.write_file(buffer := io.BytesIO())
        content = np.frombuffer(buffer.getvalue(), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {"release": content, "draws": self.draws}
        write_state(Path(path), "deltahist-state", {"source": self.source}, arrays, self.token, new=new)


def draw_chain(mechanism: BaseMechanism, before: State | None, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """Draw a release's noise (draws,) given the previous state of its chain. Gaussian noise is in lattice steps."""
    out = np.zeros(mechanism.draws, dtype=np.int64)
    for place, (members, law) in enumerate(mechanism.noise_groups):
        if not law.parameter:
            continue
        path, level = _path_of(mechanism, law), 1 / law.parameter
        if before is None:
            out[members] = path.start(level, len(out[members]), rng=rng)
        else:
            known = 1 / before.mechanism.noise_groups[place][1].parameter
            move = path.refine if known < level else path.tighten
            out[members] = move(before.draws[members], known, level, rng=rng)
    return out


def released_noise(mechanism: BaseMechanism, draws: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the noise that the draws of a release add to its numbers."""
    noise = draws.copy()
    for members, law in mechanism.noise_groups:
        if law.parameter:
            noise[members] = _path_of(mechanism, law).round_values(draws[members])
    return mechanism.scatter(noise)


def _path_of(mechanism: BaseMechanism, law: Law) -> Refinable:
    """Return the noise process of a law. Gaussian noise lies on the lattice of the chain's first release."""
    chain = mechanism.chain
    assert chain is not None
    path = sampler_of(law, chain.amounts[0] / chain.amount / law.parameter)
    assert isinstance(path, Refinable)
    return path


def _check_chain(release: BaseRelease, known: State, state: str | Path, budget: Budget | None = None) -> Chain:
    """Return the chain of a release. Raises InputError unless the state is that of the release.

    If a budget is given, the state may also be that of the next release with this budget.
    """
    chain, last, problem = release.mechanism.chain, known.chain, ""
    if chain is None or chain.name != last.name or chain.copied is not None:
        problem = f"belongs to chain {last.name}, but the release is a more private copy or not in that chain"
    elif chain.number > last.number:
        problem = (
            f"is of release {last.number} of its chain, and release {chain.number} is given: it is an old copy, whose "
            "noise has been refined already; take the state that was written last"
        )
    elif chain.number < last.number and (budget is None or last.amounts != (*chain.amounts, budget.amount)):
        problem = (
            f"is of release {last.number} of its chain, up to {float(last.amount):.10g}, and release {chain.number} is "
            "given: use the last one"
        )
    elif chain.number == last.number and not (
        release.describe() == known.release.describe() and np.array_equal(release.values, known.release.values)
    ):
        problem = "and the release have different numbers: one of them was altered"
    if problem or chain is None:
        raise InputError(f"state {str(state)!r} {problem}; nothing was drawn or spent")
    return chain


def _settle_known(known: State, account: Account | None) -> BaseRelease:
    """Record the state in its account, in case a stopped run did not, and return its release again."""
    if account is not None and known.release.payment is not None:
        account.record_state(known.chain.name, known.token, known.source)
    return known.release


def _check_account(release: BaseRelease, account: Account | None) -> None:
    """Raise InputError unless the chain's own account and ledger pay. Otherwise their total would be too low."""
    paid, chain = release.payment, release.mechanism.chain
    if paid is None or chain is None:
        return
    if account is None or account.name != paid.account or not account.read_paid(chain.name):
        given = "no account" if account is None else f"account {account.name!r}"
        raise InputError(
            f"account {paid.account!r} paid for this chain, and must pay for its later releases from the same ledger: "
            f"{given} or another ledger is given"
        )
