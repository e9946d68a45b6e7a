"""Withdraw a release: in the ledger that paid for it, then by a notice beside its file."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

from deltahist._objects import is_address
from deltahist.accounts.ledger import Ledger
from deltahist.accounts.withdrawals import WITHDRAWN, check_paid
from deltahist.errors import InputError
from deltahist.kinds import read_release
from deltahist.preprocessing import check_reason
from deltahist.releases import BaseRelease
from deltahist.releases.notices import Notice, Replacement


def withdraw(
    path: str | Path, reason: str, *, ledger: Ledger | str | Path | None = None, replacement: str | Path | None = None
) -> Notice:
    """Withdraw a release: enter it in the ledger that paid, durably, then write the notice beside the file.

    What was spent stays spent: the release was seen. Called again with the same reason, it does the rest, if
    anything was left undone, and changes nothing else.

    Parameters
    ----------
    path : the release file; its notice is to be published wherever the file was (docs/corrections.md).
    reason : why, one line; public.
    ledger : the ledger whose account paid for it, if one did.
    replacement : the release file to use instead, whose description says that it replaces this one.

    Raises
    ------
    DamagedFile
        If the release, or a notice beside it, cannot be understood.
    InputError
        If it was withdrawn for another reason or is replaced by another release, the replacement does not say that it
        is one, it is a step of a stream, which cannot be replaced, or the ledger's account did not pay for it.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dh.publish(np.ones(4, dtype=int), near, epsilon=1).save(f"{folder}/city.parquet")
    ...     dh.withdraw(f"{folder}/city.parquet", "wrong column").reason
    'wrong column'
    """
    if is_address(path):
        raise InputError(f"{path} is an address: withdraw a copy on this machine, and put the notice there yourself")
    reason, path = check_reason(reason), Path(path)
    release = read_release(path)
    instead = None if replacement is None else _find_replacement(release, path, reason, Path(replacement))
    notice = _merge(release.withdrawn, Notice(release.digest, reason, date.today().isoformat(), instead), path)
    if ledger is not None:
        notice = _enter(open_paying(release, path, ledger), release, notice, path)
    if notice != release.withdrawn:
        notice.save(path)
    return notice


def check_replaceable(path: Path, reason: str) -> BaseRelease:
    """Return the release of a file that may be replaced for a reason; InputError if not, as of `withdraw`."""
    release = read_release(path)
    _refuse_step(release, path)
    known = release.withdrawn
    if known is not None and known.replacement is not None:
        raise InputError(f"{path} is replaced by {known.replacement.file} already: correct that one in its turn")
    _merge(known, Notice(release.digest, check_reason(reason), date.today().isoformat()), path)
    return release


def _refuse_step(release: BaseRelease, path: Path) -> None:
    if release.mechanism.step is not None:
        raise InputError(
            f"{path} is step {release.mechanism.step.label} of a stream, whose account was charged by its steps: it "
            "cannot be replaced; withdraw it, and sums leave it out (--missing skip)"
        )


def _find_replacement(release: BaseRelease, path: Path, reason: str, file: Path) -> Replacement:
    """Return the replacement in a file; InputError unless it says that it replaces the release, for this reason."""
    _refuse_step(release, path)
    found = read_release(file)
    stated = found.counting.replaces
    if stated is None or stated.digest != release.digest:
        raise InputError(
            f"replacement is {str(file)!r}: it does not say that it replaces {path} (publish it with --replaces)"
        )
    if stated.reason != reason:
        raise InputError(f"reason is {reason!r}, but {file} states another, {stated.reason!r}: give that one")
    return Replacement(found.digest, file.name)


def _merge(known: Notice | None, now: Notice, path: Path) -> Notice:
    """Return the notice that is known, with the replacement of a later one; InputError if one contradicts the other."""
    if known is None:
        return now
    if known.reason != now.reason:
        raise InputError(
            f"reason is {now.reason!r}, but {path} was withdrawn on {known.date} for another, {known.reason!r}: give "
            "that one"
        )
    if None not in (known.replacement, now.replacement) and known.replacement != now.replacement:
        assert known.replacement is not None
        raise InputError(f"{path} is replaced by {known.replacement.file} already: it cannot be by another")
    return replace(known, replacement=known.replacement or now.replacement)


def open_paying(release: BaseRelease, path: Path, ledger: Ledger | str | Path) -> Ledger:
    """Return the ledger that paid for a release; InputError if it did not."""
    payment, step = release.payment, release.mechanism.step
    if payment is None:
        raise InputError(f"ledger is given, but no account paid for {path}, as it states itself: leave the ledger out")
    if not isinstance(ledger, Ledger):
        if not Ledger.exists(ledger):
            raise InputError(f"ledger {str(ledger)!r} does not exist")
        ledger = Ledger(ledger)
    with ledger.read() as found:
        amount = release.mechanism.budget.amount
        check_paid(found, payment, ledger.place, None if step is None else (step.number, amount))
    return ledger


def _enter(ledger: Ledger, release: BaseRelease, notice: Notice, path: Path) -> Notice:
    """Enter a notice with the account that paid, durably, and return the one that is kept there."""
    assert release.payment is not None
    account, key = release.payment.account, WITHDRAWN + release.digest
    with ledger.transaction() as change:
        kept = change.fact(account, key)
        known = None if kept is None else Notice.of(kept)
        notice = _merge(known, notice, path)
        if notice != known:
            change.store(account, key, {"file": path.name, **asdict(notice)})
    return notice
