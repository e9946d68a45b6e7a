"""Withdraw a release: a line in the ledger that paid for it, then a notice beside its file."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from deltahist.accounts.ledger import WITHDRAWN, Ledger, get_note, set_note
from deltahist.budget import Payment
from deltahist.errors import InputError
from deltahist.kinds import read_release
from deltahist.preprocessing import check_line
from deltahist.releases.notices import Notice


def withdraw(path: str | Path, reason: str, *, ledger: Ledger | str | Path | None = None) -> Notice:
    """Withdraw a release: enter it in the ledger that paid, durably, then write the notice beside the file.

    What was spent stays spent, since the release was seen. A second call with the same reason does what the first one
    left undone, and returns the same notice.

    Parameters
    ----------
    path : the release file. Its notice must be published wherever the file was (docs/streams.md).
    reason : why, one line; public.
    ledger : the ledger whose account paid for it, if one did.

    Raises
    ------
    DamagedFile
        If the release, or a notice beside it, cannot be understood.
    InputError
        If it was withdrawn for another reason, or the ledger has no account that paid for it.

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
        raise InputError(f"reason is {reason!r}, but {path} was withdrawn {notice.words}: give that reason")
    if ledger is not None:
        _enter(ledger, release.payment, notice, path.name)
    if known is None:
        notice.save(path)
    return notice


def _enter(ledger: Ledger | str | Path, payment: Payment | None, notice: Notice, name: str) -> None:
    """Keep a notice with the account that paid, unless it is there already."""
    if payment is None:
        raise InputError("ledger is given, but no account paid for the release: leave it out")
    if not isinstance(ledger, Ledger):
        if not Ledger.exists(ledger):
            raise InputError(f"ledger {str(ledger)!r} does not exist")
        ledger = Ledger(ledger)
    standing = ledger.read_standing(payment.account)
    if (standing.unit, standing.limit, standing.spans[0].steps) != (payment.unit, payment.limit, payment.steps):
        raise InputError(f"ledger {ledger.place!r} did not pay for the release: {payment}")
    key = WITHDRAWN + notice.digest
    with ledger.transaction() as connection:
        if get_note(connection, payment.account, key) is None:
            set_note(connection, payment.account, key, {"file": name, **notice.describe()})
