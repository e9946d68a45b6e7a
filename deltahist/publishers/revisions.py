"""Refine a release, make more private copies of it, or withdraw it."""

from __future__ import annotations

import functools
from dataclasses import asdict, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist.accounts.ledger import WITHDRAWN, Ledger, get_note, set_note
from deltahist.budget import Budget, Payment
from deltahist.errors import InputError
from deltahist.kinds import read_release
from deltahist.mechanisms.base import Chain
from deltahist.noise.samplers import sampler_of
from deltahist.preprocessing import check_line
from deltahist.publishers.publication import amounts_for, charge_and_draw, check_publication
from deltahist.publishers.state import State, check_refines, draw_chain, lock_state, released_noise
from deltahist.releases import BaseRelease
from deltahist.releases.base import Notice, mark_publishable

if TYPE_CHECKING:
    from deltahist.accounts.window import Account


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

    The data are not needed: the state from `publish(..., state=)` holds the noise. Each release is A c + R(V_ε), where
    V_ε is one path of noise, and its error is that of a single release at its budget. The function draws the value at
    the new ε given the value at the last ε. If a run ended before saving the release, call it again with the same
    budget, or with `release` and budget None, to get the same release.
    Source, on the integers: 2015, Theorem 1, eq. (1), (3), Theorem 12, eq. (36); 2015 abstract, Theorem 1, eq. (1),
    Theorem 2, eq. (4). Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : the last release of the chain; None takes it from the state.
    state : file of the state. The call replaces it with the state of the new release.
    epsilon, rho : budget of the new release, in the unit of the chain and larger than before.
    account : the account that pays the difference: the one that paid for the chain's first release, if any.
    weak_protection_accepted, rng : as for `publish_mechanism`.

    Raises BudgetExceeded if the account has less left than the difference; DamagedFile if the state is altered;
    InputError if the state is missing, in use, of another chain or not the last one, or the budget is not larger.
    Nothing is drawn or charged then.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rough = dh.publish(np.arange(8), near, epsilon=1, state=f"{folder}/line.state")
    ...     fine = dh.refine(rough, f"{folder}/line.state", epsilon=2)
    >>> fine.guarantee.epsilon, fine.total
    (Fraction(2, 1), 28)
    """
    with lock_state(state) as known:
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
        check_refines(known, finer)
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
    release : of counts or of sorted points.
    epsilon, rho : of the copy, in the unit of the release; less than its own.
    state : of the release's chain. Needed for flows with sums along the lines, whose rounding the release does not
        keep, and for Gaussian noise too small for whole numbers.
    rng : a seeded generator, for experiments only: the copy is stamped not for publication.

    Raises InputError on a budget that is not smaller, a quantile, a release that needs a state, or the state of another
    release.

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
        rule = "" if alone else ", and the state of its chain, since the release does not keep all its noise"
        raise InputError(
            f"{budget.unit} is {float(budget.amount):.10g}: a more private copy must have less than the "
            f"{float(most):.10g} of its release{rule}"
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


def _check_chain(release: BaseRelease, known: State, state: str | Path, budget: Budget | None = None) -> Chain:
    """Return the chain of a release; InputError unless the state is that of the release.

    With a budget it may also be that of the next release, if it has this budget.
    """
    chain, last, problem = release.mechanism.chain, known.chain, ""
    if chain is None or chain.name != last.name or chain.copied is not None:
        problem = f"belongs to chain {last.name}, and the release is a more private copy, or not in that chain"
    elif chain.number > last.number:
        problem = (
            f"is of release {last.number} of its chain, and release {chain.number} is given: it is an old copy, whose "
            "noise has been refined already; take the state that was written last"
        )
    elif chain.number < last.number and (budget is None or last.amounts != (*chain.amounts, budget.amount)):
        problem = (
            f"is of release {last.number} of its chain, up to {float(last.amount):.10g}, and release {chain.number} is "
            "given: go on with the last one"
        )
    elif chain.number == last.number and not (
        release.describe() == known.release.describe() and np.array_equal(release.values, known.release.values)
    ):
        problem = "and the release hold other numbers: one of them was altered"
    if problem or chain is None:
        raise InputError(f"state {str(state)!r} {problem}; nothing was drawn or spent")
    return chain


def _settle_known(known: State, account: Account | None) -> BaseRelease:
    """Record the state in its account, as a stopped run may not have done, and return its release again."""
    if account is not None and known.release.payment is not None:
        account.settle_chain(known.chain.name, known.token, known.source)
    return known.release


def _check_account(release: BaseRelease, account: Account | None) -> None:
    """Raise InputError unless the same account and ledger keep paying for a chain: else its total would be too low."""
    paid, chain = release.payment, release.mechanism.chain
    if paid is None or chain is None:
        return
    if account is None or account.name != paid.account or not account.read_paid(chain.name):
        given = "no account" if account is None else f"account {account.name!r}"
        raise InputError(
            f"account {paid.account!r} paid for this chain, and must pay for what follows, from the same ledger: "
            f"{given} or another ledger is given"
        )


def withdraw(path: str | Path, reason: str, *, ledger: Ledger | str | Path | None = None) -> Notice:
    """Withdraw a release. Record it durably in the ledger that paid, then write the notice next to the file.

    The charge stays, since people have seen the release. A second call completes an interrupted first call, and returns
    its notice with the first reason.

    Parameters
    ----------
    path : the release file. Publish its notice wherever the file was published (docs/streams.md).
    reason : the reason in one line; public.
    ledger : the ledger whose account paid for it, if any.

    Raises DamagedFile if the release or its notice cannot be read; InputError if no account of the ledger paid for it.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dh.publish(np.ones(4, dtype=int), near, epsilon=1).save(f"{folder}/city.parquet")
    ...     dh.withdraw(f"{folder}/city.parquet", "wrong column").reason
    'wrong column'
    """
    path, release = Path(path), read_release(path)
    known = release.withdrawn
    notice = known or Notice(release.digest, check_line(reason=reason), date.today().isoformat())
    if ledger is not None:
        _record_notice(ledger, release.payment, notice, path.name)
    if known is None:
        notice.save(path)
    return notice


def _record_notice(place: Ledger | str | Path, payment: Payment | None, notice: Notice, name: str) -> None:
    """Record a notice in the account that paid, unless it is there already."""
    ledger = place if isinstance(place, Ledger) else Ledger(place) if Ledger.exists(place) else None
    paid = None
    if ledger is not None and payment is not None:
        standing = ledger.read_standing(payment.account)
        paid = standing.unit, standing.limit, standing.spans[0].steps
    if ledger is None or payment is None or paid != (payment.unit, payment.limit, payment.steps):
        raise InputError(f"ledger does not exist or did not pay for the release: {payment or 'no account paid for it'}")
    key = WITHDRAWN + notice.digest
    with ledger.transaction() as connection:
        if get_note(connection, payment.account, key) is None:
            set_note(connection, payment.account, key, {"file": name, **asdict(notice)})
