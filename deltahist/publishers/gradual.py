"""Gradual release: finer releases that cost what the last one does, and more private copies without the data."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
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
from deltahist.mechanisms.base import BaseMechanism, Chain, stamp
from deltahist.noise.process import Refinable, process_of
from deltahist.privacy import Law
from deltahist.publishers.publication import Noise, check_protection, publish_measured
from deltahist.publishers.state import State, check_new, lock_state
from deltahist.releases import BaseRelease, Release

Draws = NDArray[np.int64]
_Release = TypeVar("_Release", Release, SortedRelease)


def begin(
    make: Callable[..., _Release],
    mechanism: Mechanism | SortedMechanism,
    measured: Draws,
    path: str | Path,
    *,
    account: Account | None,
    rng: np.random.Generator | None,
) -> _Release:
    """Publish the first release of a chain, whose state, a new file, is written before the release is handed out."""
    if mechanism.step is not None:
        raise InputError("state is given with the step of a stream: its steps cannot be refined")
    check_new(path)
    first = mechanism.with_chain(Chain(secrets.token_hex(16), (mechanism.budget.amount,)))
    noise = ChainNoise(first, path, account)
    return publish_measured(make, first, measured, account=account, rng=rng, noise=noise)


class ChainNoise(Noise):
    """Noise of a release of a chain, kept in its state; `before` is the state of the release before, if any."""

    def __init__(
        self, mechanism: BaseMechanism, path: str | Path, account: Account | None, before: State | None = None
    ) -> None:
        super().__init__(mechanism)
        self._path, self._account, self._before = path, account, before

    def draw(self, rng: np.random.Generator | None) -> Draws:
        self._draws = draw_chain(self.mechanism, self._before, rng)
        return released_noise(self.mechanism, self._draws)

    @property
    def paying(self) -> dict[str, str | None]:
        assert self.mechanism.chain is not None
        known, name = self._before, self.mechanism.chain.name
        return {"chain": name} if known is None else {"chain": name, "token": known.token, "source": known.source}

    def keep(self, release: Release | SortedRelease) -> None:
        known = self._before
        state = State(release, self._draws) if known is None else known.follow(release, self._draws)
        state.write(self._path, new=known is None)
        if self._account is not None:
            self._account.settle(state.chain.name, state.token, state.source)


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
            raise InputError(f"{budget.unit} is given, but the chain spends {given.mechanism.budget.unit}")
        _check_account(known.release, account)
        if chain != known.chain:  # the state went on, and maybe its release was never saved
            return _once_more(known, chain, budget.amount, account)
        finer = known.mechanism.with_chain(chain.finer(budget.amount))
        check_protection(finer, weak_protection_accepted, rng)
        check_refines(known, finer)
        return publish_measured(
            functools.partial(replace, known.release),
            finer,
            known.release.values - released_noise(known.mechanism, known.draws),
            account=account,
            rng=rng,
            noise=ChainNoise(finer, state, account, known),
            publishable=known.release.publishable,
        )


def once_more(state: str | Path, *, account: Account | None = None) -> Any:
    """Return the release of a state once more: where a run ended before it was saved, or its file was lost.

    The account that paid for the chain, if one did, must know of this state before the release is handed out: a copy of
    the state before may have gone another way. Raises InputError if that is so, or as `refine` on the state.
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
        raise InputError(f"{budget.unit} is given, but the release spent {mechanism.budget.unit}")
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
        draws = draw_chain(coarser, known, rng)
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
        if law.parameter:
            size = len(noise[members])
            noise[members] = process_of(law).add(1 / law.parameter, 1 / wider.parameter, size, rng=rng)
    return noise


def _chain_of(release: BaseRelease, known: State, state: str | Path) -> Chain:
    """Return the chain of a release, which the state must belong to."""
    chain, last = release.mechanism.chain, known.chain
    if chain is None or not chain.name:
        raise InputError("the release is in no chain: only one that was published with state= can be refined")
    if chain.copied is not None:
        chain.finer(chain.amounts[-1] + 1)  # says why not
    problem = ""
    if chain.name != last.name:
        problem = f"belongs to chain {last.name}, but the release is of chain {chain.name}: take the state of that one"
    elif chain.number > last.number:
        problem = (
            f"is of release {last.number} of its chain, and release {chain.number} is given: it is an old copy, whose "
            "noise has been refined already; take the state that was written last"
        )
    elif chain == last and not (
        release.describe() == known.release.describe() and np.array_equal(release.values, known.release.values)
    ):
        problem = "and the release hold other numbers: one of them was altered"
    if problem:
        raise InputError(f"state {str(state)!r} {problem}; nothing was drawn or spent")
    return chain


def _once_more(known: State, chain: Chain, amount: Fraction, account: Account | None) -> BaseRelease:
    """Return the state's own release, if it is the next one at that amount."""
    last = known.chain
    if last.amounts != (*chain.amounts, amount):
        raise InputError(
            f"release {chain.number} of chain {chain.name} was refined already, up to {float(last.amounts[-1]):.10g}: "
            f"go on with release {last.number}, which the state holds, too; nothing was drawn or spent"
        )
    return _settled(known, account)


def _settled(known: State, account: Account | None) -> BaseRelease:
    """Return the state's own release, after its account knows of the state: an earlier run may have ended before."""
    if account is not None and known.release.payment is not None:
        account.settle(known.chain.name, known.token, known.source)
    return known.release


def _check_account(release: BaseRelease, account: Account | None) -> None:
    """Raise InputError unless the account that paid for a chain goes on paying: it would say too little."""
    paid, chain = release.payment, release.mechanism.chain
    if paid is not None and (account is None or account.name != paid.account):
        given = "none is given" if account is None else f"account {account.name!r} is given"
        raise InputError(f"account {paid.account!r} paid for this chain, and {given}: it must pay for what follows too")
    if paid is not None and account is not None and chain is not None and not account.paid(chain.name):
        raise InputError(
            f"account {paid.account!r} paid for this chain, but the one that is given has paid nothing for it: take "
            "the ledger that paid"
        )


def draw_chain(mechanism: BaseMechanism, before: State | None, rng: np.random.Generator | None) -> Draws:
    """Draw noise (draws,) of a release, given the state of another one of its chain; None for the first.

    Gaussian noise is in steps of its lattice.
    """
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


def check_refines(known: State, finer: BaseMechanism) -> None:
    """Try to refine a zero before anything is charged: InputError if noise cannot be refined so far, or so little."""
    for (_, law), (_, other) in zip(known.mechanism.noise_groups, finer.noise_groups, strict=True):
        if law.parameter:
            _path_of(finer, other).refine(np.zeros(1, dtype=np.int64), 1 / law.parameter, 1 / other.parameter)


def released_noise(mechanism: BaseMechanism, draws: Draws) -> Draws:
    """Return what the draws of a release add to its numbers."""
    noise = draws.copy()
    for members, law in mechanism.noise_groups:
        if law.parameter:
            noise[members] = _path_of(mechanism, law).nearest(draws[members])
    return mechanism.scatter(noise)


def _path_of(mechanism: BaseMechanism, law: Law) -> Refinable:
    """Return the process of a law; Gaussian noise lies on the lattice of the first release."""
    chain = mechanism.chain
    assert chain is not None
    path = process_of(law, chain.amounts[0] / chain.amount / law.parameter)
    assert isinstance(path, Refinable)
    return path
