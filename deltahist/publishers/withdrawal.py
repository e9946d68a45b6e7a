"""Withdraw a release."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from pathlib import Path

from deltahist.accounts.ledger import WITHDRAWN, Ledger, get_note, set_note
from deltahist.budget import Payment
from deltahist.errors import InputError
from deltahist.kinds import read_release
from deltahist.preprocessing import check_line
from deltahist.releases.base import Notice


def withdraw(path: str | Path, reason: str, *, ledger: Ledger | str | Path | None = None) -> Notice:
    """Withdraw a release: record a notice durably in the ledger that paid, then write the notice next to the file.

    The charge remains, because people have seen the release. A second call completes an interrupted first call.

    Parameters
    ----------
    path : the release file; publish the notice wherever the file was published (docs/streams.md).
    reason : public reason in one line.
    ledger : the ledger whose account paid for the release, if any.

    Raises DamagedFile for an unreadable release or notice; InputError if the ledger did not pay, or the reason changed.

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
    if notice.reason != check_line(reason=reason):
        raise InputError(f"reason is {reason!r}, but {path} was withdrawn {notice}: give the same reason")
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
