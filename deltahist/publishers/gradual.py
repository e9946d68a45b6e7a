"""Gradual release: finer releases that cost what the last one does, and more private copies without the data."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.window import Account, amounts_for
from deltahist.budget import Budget
from deltahist.errors import InputError
from deltahist.kinds import SortedMechanism, SortedRelease
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import BaseMechanism, stamp
from deltahist.mechanisms.sequence import Chain
from deltahist.noise import discrete_gaussian
from deltahist.noise.process import Brownian, GeometricProcess, Process
from deltahist.privacy import Law
from deltahist.publishers.publication import check_protection, publish_measured
from deltahist.publishers.state import State, check_new, lock_state
from deltahist.releases import BaseRelease, Release
from deltahist.strategies.base import Members

Draws = NDArray[np.int64]
_Release = TypeVar("_Release", Release, SortedRelease)

#: Gaussian noise on whole numbers adds up to Gaussian noise where this is large: e^(−2π² · 3) is 10⁻²⁶.
_LEAST_VARIANCE = 3
#: By so much the noise of a copy is larger than it says, which pays for that (docs/privacy/gradual.md).
_MARGIN = 1 + Fraction(1, 1 << 30)


def begin(
    make: Callable[..., _Release],
    mechanism: Mechanism | SortedMechanism,
    measured: Draws,
    path: str | Path,
    *,
    account: Account | None,
    rng: np.random.Generator | None,
) -> _Release:
    """Publish the first release of a chain, whose state is written before the release is handed out.

    Parameters
    ----------
    make, measured, account, rng : as for `publish_measured`.
    mechanism : it gets the chain. path : of the state, a new file.
    """
    if mechanism.step is not None:
        raise InputError(
            "state is given with the step of a stream: its steps cannot be refined; publish them by themselves"
        )
    check_new(path)
    name = secrets.token_hex(16)
    first = mechanism.with_chain(Chain(name, (mechanism.budget.amount,)))
    return publish_measured(
        make,
        first,
        measured,
        account=account,
        rng=rng,
        draw_all=functools.partial(start_draws, first),
        enter=functools.partial(released_noise, first),
        keep=lambda made, draws: _keep(State(made, draws), path, account),
        chain=name,
    )


def _keep(state: State, path: str | Path, account: Account | None) -> None:
    """Write a state, and let its account know that it is the last one of its chain."""
    state.write(path, new=state.source is None)
    if account is not None:
        account.settle(state.chain.name, state.token, state.source)


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
    """Publish a finer release of the same data: all releases of the chain together cost what this one does.

    The data are not needed: the state, which `publish(..., state=)` wrote, holds the noise, and that is refined.
    The error is that of a single release at the last budget. A process that ends between writing the state and
    saving the release loses nothing: ask again for the same budget, and the same release comes out.
    Source: Koufogiannis, Han, Pappas 2015, theorem 12, on the integers. Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : the last release of the chain; None takes it from the state.
    state : file of the state, which then belongs to the new release.
    epsilon, rho : of the new release, in the unit of the chain; more than before.
    weak_protection_accepted : as for `publish`.
    account : pays the difference; the one that paid for the chain's first release, if one did.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.

    Returns
    -------
    Release or SortedRelease, as the release is.

    Raises
    ------
    BudgetExceeded
        If the account has less left than the difference.
    DamagedFile
        If the state is truncated or altered.
    InputError
        If the state is missing, in use, of another chain or not the last one; on a budget that is not larger, or in
        the other unit; if hardly anything would be protected. Nothing is drawn or charged then.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rough = dh.publish(np.arange(8), near, epsilon=1, state=f"{folder}/line.state")
    ...     fine = dh.refine(rough, f"{folder}/line.state", epsilon=2)
    >>> fine.guarantee.epsilon, fine.total
    (Fraction(2, 1), 28)
    """
    with lock_state(state) as known:
        given = known.release if release is None else release
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
        chain = _chain_of(given, known, state)
        if budget.unit != given.mechanism.budget.unit:
            raise InputError(
                f"{budget.unit} is given, but the chain spends {given.mechanism.budget.unit}: its noise is made for "
                "that unit"
            )
        _check_account(known.release, account)
        if chain != known.chain:  # the state went on, and maybe its release was never saved
            return _once_more(known, chain, budget.amount, account)
        finer = known.mechanism.with_chain(chain.finer(budget.amount))
        check_protection(finer, weak_protection_accepted, rng)
        check_refines(known.mechanism, finer)
        return publish_measured(
            functools.partial(replace, known.release),
            finer,
            known.release.values - released_noise(known.mechanism, known.draws),
            account=account,
            rng=rng,
            draw_all=functools.partial(refine_draws, known.mechanism, finer, known.draws),
            enter=functools.partial(released_noise, finer),
            keep=lambda made, draws: _keep(known.follow(made, draws), state, account),
            publishable=known.release.publishable,
            chain=chain.name,
            token=known.token,
            source=known.source,
        )


def once_more(state: str | Path, *, account: Account | None = None) -> Any:
    """Return the release of a state once more: where a run ended before it was saved, or its file was lost.

    Parameters
    ----------
    state : file of the state. account : the one that paid for the chain, if one did: it must know of this state before
        the release is handed out, since a copy of the state before may have gone another way.

    Raises InputError if the account did not pay for the chain, or another state came first; as `refine` on the state.
    """
    with lock_state(state) as known:
        _check_account(known.release, account)
        return _settled(known, account)


def tighten(
    release: BaseRelease,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    state: str | Path | None = None,
    rng: np.random.Generator | None = None,
) -> Any:
    """Make a more private copy of a release, as if it had been released at that budget.

    The data are not needed, and nothing is spent: further noise is added to the published numbers. Several
    copies, and the release with them, cost what the release does.
    Source: Koufogiannis, Han, Pappas 2015, section 3.1.2, on the integers. Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : of counts or of sorted points.
    epsilon, rho : of the copy, in the unit of the release; less than its own.
    state : of the release's chain, after that release. It is needed for flows with sums along the lines,
        since those are joined to the flows by rounding, which the release does not keep, and for Gaussian noise too
        small for whole numbers.
    rng : a seeded generator, for experiments only: the copy is stamped not for publication.

    Returns
    -------
    Release or SortedRelease, as the release is.

    Raises
    ------
    InputError
        On a budget that is not smaller, or in the other unit; on quantiles; on a release that needs a state; on a
        state of another release.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> release = dh.publish(np.arange(8), near, strategy="identity", epsilon=2)
    >>> tighten(release, epsilon=1).guarantee.epsilon
    Fraction(1, 1)
    """
    if not isinstance(release, Release | SortedRelease):
        raise InputError(
            f"a {type(release).__name__} is given: releases of counts and of sorted points can be tightened"
        )
    mechanism, budget = release.mechanism, Budget(epsilon, rho)
    if budget.unit != mechanism.budget.unit:
        raise InputError(
            f"{budget.unit} is given, but the release spent {mechanism.budget.unit}: its noise is made for that unit"
        )
    if not budget.amount < mechanism.budget.amount:
        raise InputError(
            f"{budget.unit} is {float(budget.amount):.10g}, but the release has "
            f"{float(mechanism.budget.amount):.10g}: a more private copy has less"
        )
    before = mechanism.chain
    if before is not None and before.copied is not None and (state is not None or not mechanism.scatters_linearly):
        raise InputError(
            "the release is a more private copy, whose noise no state holds: tighten the release that it was made of"
        )
    history = Chain("", (mechanism.budget.amount,), budget.amount, release.digest) if before is None else before
    origin = history.origin or release.digest  # a copy of a copy is one of the first release
    coarser = mechanism.with_chain(replace(history, copied=budget.amount, origin=origin))
    if state is None:
        values = release.values + mechanism.scatter(_further(mechanism, coarser, rng))
    else:
        known = State.load(state)
        if _chain_of(release, known, state) != known.chain:
            raise InputError(
                f"state {str(state)!r} is of release {known.chain.number} of its chain, and an earlier one is given: "
                "copies are made of the last one"
            )
        draws = tighten_draws(known.mechanism, coarser, known.draws, rng)
        values = release.values - released_noise(known.mechanism, known.draws) + released_noise(coarser, draws)
    changed: dict[str, Any] = {"mechanism": coarser, "values": values}
    return stamp(replace(release, **changed), release.publishable and rng is None)


def _further(
    mechanism: Mechanism | SortedMechanism, coarser: Mechanism | SortedMechanism, rng: np.random.Generator | None
) -> NDArray[np.int64]:
    """Draw noise (draws,) that can be added to published numbers, whose own draws are not known."""
    if not mechanism.scatters_linearly:
        raise InputError(
            f"the release is of {mechanism.words}: it does not keep what further noise would have to be added to; "
            "give its state, or publish a release at that budget"
        )
    noise = np.zeros(mechanism.draws, dtype=np.int64)
    for (members, law), (_, wider) in zip(mechanism.noise_groups, coarser.noise_groups, strict=True):
        if law.kind == "laplace" and law.parameter:
            noise[members] = GeometricProcess().tighten(noise[members], 1 / law.parameter, 1 / wider.parameter, rng=rng)
        elif law.parameter:
            if law.parameter * (1 - law.parameter / wider.parameter) < _LEAST_VARIANCE:
                raise InputError(
                    f"{mechanism.budget.unit} is {float(coarser.budget.amount):.10g}, and the release has "
                    f"{float(mechanism.budget.amount):.10g}: its Gaussian noise is too small for a copy so near; take "
                    "less, give its state, or publish a release at that budget"
                )
            more = wider.parameter * _MARGIN - law.parameter
            noise[members] += discrete_gaussian(variance=more, shape=len(noise[members]), rng=rng)
    return noise


def _chain_of(release: BaseRelease, known: State, state: str | Path) -> Chain:
    """Return the chain of a release, which the state must belong to."""
    chain = release.mechanism.chain
    if chain is None or not chain.name:
        raise InputError(
            "the release is in no chain: only one that was published with state= can be refined"
        )
    if chain.copied is not None:
        chain.finer(chain.amounts[-1] + 1)  # says why not
    if chain.name != known.chain.name:
        raise InputError(
            f"state {str(state)!r} belongs to chain {known.chain.name}, but the release is of chain {chain.name}: "
            "take the state that was written with it; nothing was drawn or spent"
        )
    same = chain == known.chain
    if same and not (
        release.describe() == known.release.describe() and np.array_equal(release.values, known.release.values)
    ):
        raise InputError(
            f"state {str(state)!r} and the release say the same of chain {chain.name}, but hold other numbers: one of "
            "them was altered; nothing was drawn or spent"
        )
    if chain.number > known.chain.number:
        raise InputError(
            f"state {str(state)!r} is of release {known.chain.number} of its chain, and release {chain.number} is "
            "given: it is an old copy, whose noise has been refined already; take the state that was written last"
        )
    return chain


def _once_more(known: State, chain: Chain, amount: Fraction, account: Account | None) -> BaseRelease:
    """Return the state's own release, if it is the next one at that amount."""
    last = known.chain
    if last.amounts != (*chain.amounts, amount):
        raise InputError(
            f"release {chain.number} of chain {chain.name} was refined already, up to {float(last.amounts[-1]):.10g}, "
            f"with this state: go on with release {last.number}, which the state holds, too, where no release is "
            "given; nothing was drawn or spent"
        )
    return _settled(known, account)


def _settled(known: State, account: Account | None) -> BaseRelease:
    """Return the state's own release, after its account knows of the state: an earlier run may have ended before."""
    if account is not None and known.release.payment is not None:
        account.settle(known.chain.name, known.token, known.source)
    return known.release


def _check_account(release: BaseRelease, account: Account | None) -> None:
    """Raise InputError unless the account that paid for a chain goes on paying: it would say too little."""
    paid = release.payment
    if paid is not None and (account is None or account.name != paid.account):
        given = "none is given" if account is None else f"account {account.name!r} is given"
        raise InputError(
            f"account {paid.account!r} paid for this chain, and {given}: it must pay for what follows too, or it "
            "would say less than what was spent"
        )
    chain = release.mechanism.chain
    if paid is not None and account is not None and chain is not None and not account.paid(chain.name):
        raise InputError(
            f"account {paid.account!r} paid for this chain, but the one that is given has paid nothing for it: it is "
            "another one of that name; take the ledger that paid; nothing was drawn or charged"
        )


# ----------------------------------------------------------------------------------- noise


def start_draws(mechanism: BaseMechanism, rng: np.random.Generator | None) -> Draws:
    """Draw noise (draws,) of the first release; private, Gaussian noise in steps of its lattice."""
    out = np.zeros(mechanism.draws, dtype=np.int64)
    for members, law in mechanism.noise_groups:
        if law.parameter:
            out[members] = process_of(mechanism, law).start(_level(law), len(out[members]), rng=rng)
    return out


def refine_draws(before: BaseMechanism, after: BaseMechanism, draws: Draws, rng: np.random.Generator | None) -> Draws:
    """Draw noise (draws,) of the next release, given that of the one before."""
    out = np.zeros_like(draws)
    for members, process, level, finer in _moves(before, after):
        out[members] = process.refine(draws[members], level, finer, rng=rng)
    return out


def check_refines(before: BaseMechanism, after: BaseMechanism) -> None:
    """Try to refine a zero before anything is charged: InputError if noise cannot be refined so far, or so little."""
    for _, process, level, finer in _moves(before, after):
        process.refine(np.zeros(1, dtype=np.int64), level, finer)


def tighten_draws(before: BaseMechanism, after: BaseMechanism, draws: Draws, rng: np.random.Generator | None) -> Draws:
    """Draw noise (draws,) of a more private copy, given that of the release."""
    out = np.zeros_like(draws)
    for members, process, level, coarser in _moves(before, after):
        out[members] = process.tighten(draws[members], level, coarser, rng=rng)
    return out


def released_noise(mechanism: BaseMechanism, draws: Draws) -> Draws:
    """Return what the draws of a release add to its numbers."""
    noise = draws.copy()
    for members, law in mechanism.noise_groups:
        if law.parameter:
            noise[members] = process_of(mechanism, law).nearest(draws[members])
    return mechanism.scatter(noise)


def _moves(before: BaseMechanism, after: BaseMechanism) -> Iterator[tuple[Members, Process, Fraction, Fraction]]:
    """Yield the draws that have noise, their process, and its levels in one release and in another."""
    for (members, law), (_, other) in zip(before.noise_groups, after.noise_groups, strict=True):
        if law.parameter:
            yield members, process_of(before, law), _level(law), _level(other)


def process_of(mechanism: BaseMechanism, law: Law) -> Process:
    """Return the process of a law; Gaussian noise lies on the lattice of the first release."""
    if law.kind == "laplace":
        return GeometricProcess()
    assert mechanism.chain is not None
    chain = mechanism.chain
    return Brownian.at(_level(law) * chain.amounts[0] / chain.amount)


def _level(law: Law) -> Fraction:
    """Return 1/scale of Laplace, 1/σ² of Gaussian noise."""
    return 1 / law.parameter
