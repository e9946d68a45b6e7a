"""Withdrawals of releases, as the accounts that paid for them keep them; what was spent stays spent."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deltahist.accounts.rules import Rule
from deltahist.errors import NANO, InputError

if TYPE_CHECKING:
    from deltahist.accounts.tables import Accounts
    from deltahist.budget import Payment

#: The names of facts of withdrawals begin so; the SHA-256 of the release follows.
WITHDRAWN = "withdrawn "


def check_paid(accounts: Accounts, payment: Payment, place: str, step: tuple[int, Fraction] | None) -> None:
    """Raise InputError unless an account of a ledger may have made a payment: ledgers do not name releases.

    Parameters
    ----------
    place : of the ledger, for messages.
    step : of a stream, with its amount: charged as much, or so long ago that the window has forgotten it.
    """
    kept: dict[str, Any] = accounts.rule(payment.account) or {}
    rule = Rule.read(kept) if kept.get("kind") in ("total", "window") else None
    charges = accounts.charges(payment.account)
    if rule is None:
        why = f"it has no account {payment.account!r} of releases"
    elif (rule.unit, rule.length, Fraction(rule.limit, NANO)) != (payment.unit, payment.steps, payment.limit):
        why = f"its account {payment.account!r} has another unit or limit"
    elif not _may_have_paid(charges, payment, step):
        why = f"its account {payment.account!r} has spent less"
    else:
        return
    raise InputError(
        f"ledger is {place!r}: {why}, and so did not pay for the release ({payment}); name the ledger that did "
        "(is it an old copy?)"
    )


def _may_have_paid(charges: dict[int, int], payment: Payment, step: tuple[int, Fraction] | None) -> bool:
    if step is None:
        return sum(charges.values()) >= payment.spent * NANO
    number, amount = step
    forgotten = bool(charges) and number < min(charges)
    return forgotten or charges.get(number, 0) >= amount * NANO
