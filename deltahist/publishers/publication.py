"""Publish any kind of data: check the input, charge the account, draw noise, add exact numbers and make the release.

A chain's state is a secret file that only its owner can read. It contains the noise that the next release refines.
"""

from __future__ import annotations

import datetime
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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import check_creatable, check_format, check_secret, exclusive, open_regular, write_whole
from deltahist.budget import Budget, Payment, floor_nano, read_amount
from deltahist.checks import check_foreign
from deltahist.counting import Counts, Points
from deltahist.errors import DamagedFile, InputError, check_memory, check_whole
from deltahist.kinds import RELEASES, parse_release
from deltahist.kinds.quantile import Quantile, QuantileMechanism
from deltahist.kinds.sorted import SortedMechanism, SortedRelease, group_size, read_line
from deltahist.laws import Law
from deltahist.mechanisms import BaseMechanism, Mechanism
from deltahist.mechanisms.base import Chain
from deltahist.noise.exact import BLOCK, open_words
from deltahist.noise.samplers import QUANTILE_SAMPLERS, Refinable, sample_law, sampler_of
from deltahist.planning import mechanism_for
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.releases import About, BaseRelease, Release
from deltahist.releases.base import mark_publishable
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy, check_groups, is_own

if TYPE_CHECKING:
    from deltahist.accounts.window import Account

#: Format version of state files.
_VERSION = 1


def publish_mechanism(
    mechanism: BaseMechanism,
    data: ArrayLike,
    *,
    account: Account | None = None,
    state: str | Path | None = None,
    about: About = About(),
    rng: np.random.Generator | None = None,
    weak_protection_accepted: bool = False,
) -> Any:
    """Publish private data with a mechanism of any kind: check everything, charge the account, then draw noise.

    Parameters
    ----------
    mechanism : a `Mechanism` for counts, or a `SortedMechanism` or `QuantileMechanism` for points on a line.
    data : private counts (domain.shape) or points (n,). The mechanism's `counting` states how a plain array was made.
    account : the `dh.accounts.Account` to charge. The charge is durable, and remains if a later step fails.
    state : a new file for the noise, which `dh.refine` needs to refine the release. The release starts a chain, and the
        whole chain costs as much as its last release. Keep the file as secret as the data.
    about : title, publisher, contact and licence, which all readers see.
    rng : a seeded generator, for experiments only. The release is then marked as not for publication.
    weak_protection_accepted : publish even if the guarantee protects hardly anything (docs/privacy/weak.md).

    Returns a Release, SortedRelease or Quantile. Raises BudgetExceeded if the account has too little left; InputError
    if the data do not fit the mechanism, protection is weak, or the state exists or cannot be written.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> mechanism = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(epsilon=1))
    >>> dh.publishers.publish_mechanism(mechanism, range(8)).total
    28
    """
    mechanism = match_counting(mechanism, data)
    check_publication(mechanism, weak_protection_accepted, rng)
    if mechanism.chain is not None:  # a new release is not part of an old chain
        mechanism = mechanism.with_budget(mechanism.budget)
    if state is not None:
        check_new(state)
        mechanism = mechanism.with_chain(Chain(new_token(), (mechanism.budget.amount,)))
    if rng is None:
        _check_payer(mechanism, account)
    private = mechanism.check_data(data)
    about = replace(about, date=None)  # fails before the charge if `about` has another type
    make = functools.partial(RELEASES[mechanism.kind], **mechanism.exact_facts(private) | {"about": about})
    measure, noise = functools.partial(mechanism.measure, private), mechanism.private_noise(private)
    return charge_and_draw(make, mechanism, measure, noise, account=account, rng=rng, state=state)


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
    about: About = About(),
    rng: np.random.Generator | None = None,
) -> Release:
    """Publish a noisy map of counts.

    The release is A c + Lap(Δ_A/ε) for counts c and a strategy A with sensitivity Δ_A under δ-neighbourhood. Source:
    2014, section 5.2, on integers (Canonne, Kamath, Steinke 2020). Proof: docs/privacy/histogram.md.

    Parameters
    ----------
    counts : (domain.shape) non-negative whole numbers; private. For a plain array, pass `contributions` and `dropped`.
    near : the neighbourhood that defines the guarantee.
    strategy : the strategy, or its name ("flow", "hierarchical:8"). "auto" chooses the best one for the workload.
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    workload : the queries that "auto" plans for; None means all ranges.
    contributions : number of points of one user that may move at once. The unit of privacy is then the user. None means
        the number that the counts record, or 1. A number below the recorded one is refused.
    dropped : kinds of rows that were left out before counting and that the counts do not record: "bad rows" or "points
        outside" (which requires the boundary as a source). The release then hides the number of points.
    weak_protection_accepted, account, state, about, rng : as for `publish_mechanism`.

    Raises the errors of `publish_mechanism`, and InputError if the counts have the wrong shape or type, or the grid is
    too large for memory.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.total, release.publishable
    (64, True)
    """
    counting = find_preprocessing(counts, contributions, dropped)
    amounts = amounts_for(account, epsilon=epsilon, rho=rho)
    mechanism = mechanism_for(near, strategy, **amounts, workload=workload, counting=counting)
    how: dict[str, Any] = {"account": account, "state": state, "about": about, "rng": rng}
    return publish_mechanism(mechanism, counts, weak_protection_accepted=weak_protection_accepted, **how)


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
    about: About = About(),
    rng: np.random.Generator | None = None,
) -> SortedRelease:
    """Publish the sorted coordinates of points on a line under δ-neighbourhood.

    When one point moves by at most δ, sums of consecutive sorted points change by at most δ in the L1 norm. So integer
    Laplace noise of scale δ/ε on each sum gives ε-privacy. Source: 2014, section 5.5.1. Proof: docs/privacy/sorted.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    near : a one-dimensional neighbourhood whose sources are None (n is public), "left" or "right".
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    group : number of points per sum. "auto" chooses it from public figures (`group_size`).
    most : public upper bound on the number of points, required with sources "left" or "right".
    contributions : number of points of one user that may move at once; None means as many as `points_file` kept, or 1.
    weak_protection_accepted, account, state, about, rng : as for `publish_mechanism`.

    Raises InputError if there are no points or too many, one is not finite, the map is 2-D, or group sums overflow.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> release = publish_sorted([31, 8, 64, 47], near, epsilon=1.0, group=2)
    >>> release.values.shape, release.total
    ((2,), 4)
    """
    counting = find_preprocessing(points, contributions)
    fixed = near.fixed_membership
    number = check_whole(points=len(read_line(points))) if fixed and most is None else check_whole(most=most)
    budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
    together = group_size(near, number, budget, counting.contributions) if group == "auto" else check_whole(group=group)
    mechanism = SortedMechanism(near, number, budget, together, counting)
    how: dict[str, Any] = {"account": account, "state": state, "about": about, "rng": rng}
    return publish_mechanism(mechanism, points, weak_protection_accepted=weak_protection_accepted, **how)


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
    about: About = About(),
    rng: np.random.Generator | None = None,
) -> Quantile:
    """Publish a quantile of points on a line under δ-neighbourhood.

    Source: 2014, section 5.5.2. Proofs: docs/privacy/quantiles.md.

    Parameters
    ----------
    q : level of the quantile, which is the ⌈q n⌉-th smallest point. 0.5 means the median.
    near : a one-dimensional neighbourhood with fixed membership. epsilon, rho : pure ε, or ρ-zCDP.
    method : "inverse" draws a place with probability ∝ e^(−ε/2 · m), where m is the least number of moves within δ that
        make it the quantile. "smooth" (only with ε) adds noise proportional to the smooth sensitivity, which is secret.
    points, contributions, weak_protection_accepted, account, about, rng : as for `publish_sorted`.

    Raises InputError if there are no points, one is not finite, q is not from 0 to 1, the domain is 2-D, `near` has
    sources, or the method is "smooth" with ρ.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> found.mechanism.method, abs(found.value - 50) < 10
    ('inverse', True)
    """
    counting = find_preprocessing(points, contributions)
    budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
    mechanism = QuantileMechanism(near, q, len(read_line(points)), budget, method, counting)
    how: dict[str, Any] = {"account": account, "about": about, "rng": rng}
    return publish_mechanism(mechanism, points, weak_protection_accepted=weak_protection_accepted, **how)


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

    The state from `publish(..., state=)` contains the noise, so the data are not needed. Each release is A c + R(V_ε)
    for one noise path V and rounding R, and is as precise as a single release at its budget. V at the new ε is drawn
    conditionally on V at the last ε. If a run ended before saving the release, call this again with the same budget, or
    with neither a release nor a budget, to get the same release.
    Source, on the integers: 2015, Theorem 1, eq. (1), (3), Theorem 12, eq. (36); 2015 abstract, Theorem 1, eq. (1),
    Theorem 2, eq. (4). Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : the last release of the chain; None reads it from the state.
    state : the state file, which is replaced by the state of the new release.
    epsilon, rho : budget of the new release, larger than that of the last one and in the same unit.
    account : the account that paid for the first release, if any. It pays the difference.
    weak_protection_accepted, rng : as for `publish_mechanism`.

    Raises BudgetExceeded if the account cannot pay the difference; DamagedFile if the state is altered; InputError if
    it is missing, in use, outdated or another chain's, or if the budget is no larger. Nothing is then drawn or charged.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rough = dh.publish(np.arange(8), near, epsilon=1, state=f"{folder}/line.state")
    ...     fine = dh.refine(rough, f"{folder}/line.state", epsilon=2)
    >>> fine.guarantee.epsilon, fine.total
    (Fraction(2, 1), 28)
    """
    open_regular(Path(state), "state").close()  # fail here if the state is missing, before locking it
    with exclusive(Path(state), "state"):
        known = State.load(state)
        _check_payer(known.mechanism, account, known.release.payment)
        if release is None and epsilon is None and rho is None:
            return _complete_refinement(known, account)
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
        finer = known.mechanism.with_budget(budget)
        chain = _check_chain(known.release if release is None else release, known, state, budget)
        if chain != known.chain:  # an earlier run wrote the state, but perhaps not the release
            return _complete_refinement(known, account)
        finer = finer.with_chain(replace(chain, amounts=(*chain.amounts, budget.amount)))
        check_publication(finer, weak_protection_accepted, rng)
        for (_, law), (_, other) in zip(known.mechanism.noise_groups, finer.noise_groups, strict=True):
            if law.parameter:  # budgets that are too far apart or too close fail here, before the charge
                _path_of(finer, other).refine(np.zeros(1, dtype=np.int64), 1 / law.parameter, 1 / other.parameter)
        return charge_and_draw(
            functools.partial(replace, known.release),
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
    """Make a more private copy of a release, distributed like a release at the smaller budget.

    The copy spends nothing, because it only adds noise to published numbers. The release and all its copies together
    cost as much as the release.
    Source: 2015, section 3.1.2, eq. (29), on the integers. Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : a release of counts or sorted points.
    epsilon, rho : budget of the copy, smaller than that of the release and in the same unit.
    state : the state file of the release's chain. It is required for flows with sums along lines, whose rounding the
        release does not record, and for Gaussian noise that is too small for whole numbers.
    rng : a seeded generator, for experiments only. The copy is then marked as not for publication.

    Raises InputError if the budget is not smaller, a quantile is given, or the state is missing or from another chain.

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
        rule = "" if alone else ", and needs `state`, because the release does not record all its noise"
        raise InputError(
            f"{budget.unit} is {float(budget.amount):.10g}: a more private copy must spend less than its release "
            f"({float(most):.10g}){rule}"
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
    copy = replace(release, mechanism=coarser, values=values)
    return _mark_and_date(copy, release.publishable and rng is None)


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

    The caller has checked everything. After the charge, no decision depends on the data. The noise can be refined,
    because the measurements do not depend on ε and decoding is post-processing.
    Source: 2015, Corollary 13, eq. (40), (41).

    make : function that makes the release from `mechanism`, `values` and `payment`.
    measure : function that returns the exact, private numbers (size,). It is called after the noise is drawn.
    private_noise : sampler and parameters, if the noise depends on the data (`BaseMechanism.private_noise`).
    state : the state file to write before returning the release.
    before : the state of the release that this one refines; None for the first release.
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
    release = _mark_and_date(make(mechanism=mechanism, values=values, payment=payment), publishable)
    if state is not None and draws is not None:
        written = State(release, draws, source=None if before is None else before.token)
        written.write(state, new=before is None)
        if account is not None and chain is not None:
            account.record_state(chain.name, written.token, written.source)
    return release


def _mark_and_date(release: BaseRelease, publishable: bool) -> BaseRelease:
    """Mark a new release as publishable or unpublishable. A publishable release gets the day (UTC) as its date."""
    if publishable:
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        release = replace(release, about=replace(release.about, date=day))
    return mark_publishable(release, publishable)


def check_publication(mechanism: BaseMechanism, accepted: bool, rng: np.random.Generator | None = None) -> None:
    """Raise InputError if a mechanism cannot publish any data, cannot draw its noise, or protects hardly anything.

    `accepted` allows weak protection (docs/privacy/weak.md). So does a seeded `rng`, as its release is unpublishable.
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
            "the domain is a single cell and rows were dropped: use more cells, or the release reveals how many remain"
        )


def _check_payer(mechanism: BaseMechanism, account: Account | None, paid: Payment | None = None) -> None:
    """Raise InputError if the stream, or the payment for the chain so far (`paid`), requires another account."""
    step, chain, payer, known = mechanism.step, mechanism.chain, None, None
    if account is not None:
        rule = account.window.rule
        known = account.step, account.window.length, rule.unit, rule.limit, account.window.limits
    if step is not None:
        limit = floor_nano(**{step.budget.unit: step.budget.amount})
        if known != (step.number, step.window, step.budget.unit, limit, step.limits):
            payer = f"the Account(window, step) of the stream for step {step.label}"
    elif chain is not None and paid is not None:
        same = account is not None and account.name == paid.account and account.read_paid(chain.name)
        payer = None if same else f"account {paid.account!r} in the ledger that paid for earlier releases of the chain"
    if payer is not None:
        raise InputError(f"account is {None if account is None else account.name!r}: {payer} must pay")


def refuse_weak(budget: Budget, weakness: str | None) -> None:
    """Raise InputError if there is a reason (`weakness`) why the budget protects hardly anything."""
    if weakness is not None:
        raise InputError(
            f"{budget.unit} is {float(budget.amount):g}: {weakness}; use a smaller budget (epsilon of about 1, or rho "
            "of about 0.1), or pass weak_protection_accepted=True"
        )


def find_preprocessing(data: ArrayLike, contributions: int | None = None, dropped: Iterable[str] = ()) -> Preprocessing:
    """Combine the data's own record of how they were made with the caller's arguments."""
    known = data.preprocessing if isinstance(data, Counts | Points) else POINTS
    known = replace(known, dropped=(*known.dropped, *dropped))
    return known if contributions is None else replace(known, contributions=contributions)


def match_counting(mechanism: BaseMechanism, data: ArrayLike) -> BaseMechanism:
    """Return the mechanism with the data's projection. Raises InputError if the mechanism does not cover the data."""
    if not isinstance(data, Counts | Points):
        return mechanism
    known, allowed = data.preprocessing, mechanism.counting
    kind = Counts if isinstance(mechanism, Mechanism) else Points
    if (
        not isinstance(data, kind)
        or data.domain != mechanism.domain
        or known.contributions > allowed.contributions
        or known.user > allowed.user
        or not set(known.dropped) <= set(allowed.dropped)
        or known.where != allowed.where
    ):
        raise InputError(
            f"the data are {type(data).__name__} on {data.domain} with {known.how}, but the mechanism is for "
            f"{kind.__name__} on {mechanism.domain} with {allowed.how}: use a mechanism that covers these data"
        )
    if known.projection == allowed.projection:
        return mechanism
    return mechanism.with_changes(counting=replace(allowed, projection=known.projection))


def amounts_for(account: Account | None, **amounts: Any) -> dict[str, Any]:
    """Return amounts as the account, if any, charges them. Accounts read a float as the decimal that Python prints."""
    if account is None:
        return amounts
    return {name: None if amount is None else read_amount(**{name: amount}) for name, amount in amounts.items()}


def draw_noise(mechanism: BaseMechanism, rng: np.random.Generator | None) -> list[NDArray[Any]]:
    """Draw the noise of each group in parallel parts, each from its own random stream.

    A seeded generator draws the parts in sequence. Small noise is stored in 32 bits if all numbers of a part fit.
    """

    def draw_part(start: int, law: Law, number: int) -> NDArray[Any]:
        values = sample_law(law, min(BLOCK, number - start), rng)
        if law.variance() < 2.0**40:  # at most one draw in e^2000 does not fit
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
    """Return a unique name of 32 hexadecimal digits for one version of a state."""
    return secrets.token_hex(16)


def write_state(
    path: Path, form: str, description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], token: str,
    *, new: bool = False,
) -> None:  # fmt: skip
    """Write a state durably. Raises InputError if it cannot be written, or if `new` is true and the file exists."""
    content = json.dumps({"format": form, "version": _VERSION, "token": token, **description}).encode()
    named = {"description": np.frombuffer(content, dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    if not write_whole(path, write, secret=True, replace=not new):
        check_new(path, taken=True)


def check_new(path: str | Path, *, taken: bool = False) -> None:
    """Raise InputError unless a state can be written to a new file. States are never overwritten."""
    if taken or Path(path).exists():
        raise InputError(f"state {str(path)!r} already exists: choose a new file, or refine the existing release")
    check_creatable(path)


def read_state(path: Path, form: str, parse: Callable[..., Any] = lambda *content: content) -> Any:
    """Read a state file, which is untrusted input, and return `parse(description, arrays, token)`.

    Raises InputError if the file is missing, has several names, or can be read by other users; DamagedFile if it is
    truncated or not a state of this form and version, or if `parse` fails.
    """
    with open_regular(path, "state") as file:
        if zipfile.is_zipfile(file):  # only zip files can be states
            check_secret(path, "state")
            if (names := path.stat().st_nlink) > 1:
                raise InputError(
                    f"state {str(path)!r} has {names} names (hard links), and the same noise could be refined from "
                    f"each: keep one (`find FOLDER -samefile {str(path)!r}` shows them)"
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
        except Exception as problem:  # NumPy evaluates headers, which can raise any error
            damage = DamagedFile(f"state {str(path)!r} is truncated, altered or no state: {problem}")
            raise problem if isinstance(problem, InputError) else damage from None


@dataclass(frozen=True, eq=False)
class State:
    """The noise that a release contains, for `refine`. Anyone who has a state can remove the noise and see the data.

    The state also contains the release, in case the process ends before saving it.

    release : the last release of the chain. draws : (draws,) the noise in the release; private.
    token : name of this state in ledgers. source : token of the previous state; None for the first state.
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
                raise ValueError("its release is not part of a chain")
            return cls(release, draws, token, description.get("source"))

        return read_state(Path(path), "deltahist-state", parse)

    def write(self, path: str | Path, *, new: bool) -> None:
        """Write the state durably, as a `new` file or in place of the previous state, which the caller has locked."""
        self.release.write_file(buffer := io.BytesIO())
        content = np.frombuffer(buffer.getvalue(), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {"release": content, "draws": self.draws}
        write_state(Path(path), "deltahist-state", {"source": self.source}, arrays, self.token, new=new)


def draw_chain(mechanism: BaseMechanism, before: State | None, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """Draw a release's noise (draws,), given the chain's previous state, if any. Gaussian noise is in lattice steps."""
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
    """Return the noise (size,) that a release's draws add to its numbers."""
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
    """Return the chain of a release. Raises InputError unless the state belongs to the release.

    If a budget is given, the state may also belong to the next release, which has that budget.
    """
    chain, last, problem = release.mechanism.chain, known.chain, ""
    if chain is None or chain.name != last.name or chain.copied is not None:
        problem = f"belongs to chain {last.name}, but the release is a more private copy or not in that chain"
    elif chain.number > last.number:
        problem = f"is of release {last.number} of its chain, but release {chain.number} is given: it is an old copy"
    elif chain.number < last.number and (budget is None or last.amounts != (*chain.amounts, budget.amount)):
        problem = (
            f"is of release {last.number} of its chain, up to {float(last.amount):.10g}, but release {chain.number} is "
            "given: use the last release"
        )
    elif chain.number == last.number and release.digest != known.release.digest:
        problem = "and the release have different numbers: one of them was altered"
    if problem or chain is None:
        raise InputError(f"state {str(state)!r} {problem}; nothing was drawn or spent")
    return chain


def _complete_refinement(known: State, account: Account | None) -> BaseRelease:
    """Record the state in its account, in case an interrupted run did not, and return the state's release."""
    if account is not None and known.release.payment is not None:
        account.record_state(known.chain.name, known.token, known.source)
    return known.release
