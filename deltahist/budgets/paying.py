"""Accounts that publishers charge: a window at one of its steps, or a total for all that is ever published."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.budget import Payment
from deltahist.budgets.costs import own_amount
from deltahist.budgets.nano import as_said
from deltahist.budgets.window import Window
from deltahist.errors import NANO
from deltahist.privacy import Guarantee

if TYPE_CHECKING:
    from deltahist.budgets.ledger import Ledger


@dataclass(frozen=True, eq=False)
class Account:
    """What pays for a release: `publish(..., account=account)` charges it, durably, before any noise is drawn.

    `Account.total` is one for repeated publishing: all releases that it pays for add up to at most its limit, so that
    together they are that private for the people whom all of them are about. `Account(window, step)` is one for a
    step of a stream.

    Parameters
    ----------
    window : the accountant. step : where in it is charged; of no matter for a total.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> account = Account.total(epsilon=3, name="checkins")
    >>> release = dh.publish(np.ones(8, dtype=int), near, epsilon=1, account=account)
    >>> account.spent, account.left, release.payment.account
    (Fraction(1, 1), Fraction(2, 1), 'checkins')
    """

    window: Window
    step: int = 0
    #: What it has paid for since it was made.
    payments: list[Payment] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def total(
        cls,
        epsilon: float | Fraction | None = None,
        *,
        rho: float | Fraction | None = None,
        ledger: Ledger | str | Path | None = None,
        name: str = "total",
    ) -> Account:
        """An account of all that is ever published: a window without end.

        Parameters
        ----------
        epsilon, rho : the limit, one of them.
        ledger : a Ledger, or the path or URL of one, which is made if it does not exist; in memory when None.
        name : of the account in the ledger.

        Raises
        ------
        InputError
            Unless exactly one limit is given, of at least a billionth; on a ledger that is damaged, or an account
            that was opened with another limit.
        """
        return cls(Window(None, epsilon, rho, ledger=ledger, name=name))

    def settle(self, chain: str, token: str, source: str | None = None) -> None:
        """Keep which state of a chain is its last one, and of which it came; InputError if another one came first."""
        self.window.settle(chain, token, source)

    def paid(self, chain: str) -> Fraction:
        """What has been charged for a chain so far."""
        return Fraction(self.window.paid(chain).nano, NANO)

    def takes(self, **amounts: Any) -> dict[str, Any]:
        """Amounts as it will charge them: a float stands for the decimal that it prints as; None stays None."""
        return {name: None if amount is None else as_said(**{name: amount}) for name, amount in amounts.items()}

    @property
    def name(self) -> str:
        """Of the account in its ledger."""
        return self.window.name

    @property
    def limit(self) -> Fraction:
        """What may be spent, of a window in each of its windows."""
        return Fraction(self.window.limit, NANO)

    @property
    def spent(self) -> Fraction:
        """What has been spent so far, of a window in the one that ends at the step."""
        return self.window.spent(self.step)

    @property
    def left(self) -> Fraction:
        """What may still be spent."""
        return self.window.available(self.step)

    def pay(
        self,
        guarantee: Guarantee,
        *,
        chain: str | None = None,
        token: str | None = None,
        source: str | None = None,
    ) -> Payment:
        """Charge what a release promises, and say what has been spent then.

        Whatever happens afterwards, it stays charged. For a release of a chain only what it costs more than those
        before it is charged; `token` names the state that is refined (None for the first release), `source` the one
        that it came of.

        Raises
        ------
        BudgetExceeded
            If the account has less left. Nothing is charged then.
        InputError
            If the account keeps ε and the release needs ρ or a failure probability, or the other way round; if the
            state is not the last one of its chain.
        """
        unit = self.window.unit
        amount = own_amount(guarantee, unit, self.name)
        if chain is None:
            _, spent = self.window.charge_and_sum(self.step, amount)
        else:
            spent = self.window.charge_up_to(amount, chain, token, source)
        self.payments.append(Payment(self.name, unit, self.limit, spent, self.window.length))
        return self.payments[-1]


def amounts_for(account: Account | None, **amounts: Any) -> dict[str, Any]:
    """Amounts as an account will charge them; as they are where nobody pays."""
    return amounts if account is None else account.takes(**amounts)
