"""Accounts that pay for releases, with a limit on every window of steps (2014, Theorem 2) or on the total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from deltahist.accounts import ledger as ledgers
from deltahist.accounts.ledger import CHAIN, Ledger, Limit, Rule, check_text, read_chain, set_note
from deltahist.budget import Charge, Payment, Population
from deltahist.errors import NANO, InputError, check_whole
from deltahist.laws import Guarantee


class Window:
    """An account for a sequence of releases, where any `length` consecutive steps spend at most the budget.

    So all releases together are ε-private (or ρ-private) for sequences that differ only within δ consecutive steps. The
    shorter first windows have limits too. Source: 2014, section 6.4, section 6.5 and Theorem 2. Proof:
    docs/privacy/window.md.

    Parameters
    ----------
    length : δ in steps; None for one endless window, in which all charges add up (`Account.total`).
    epsilon, rho : budget of a window, rounded down to billionths. Give only one. A float counts as its printed decimal.
    ledger : a Ledger, or its path or URL, created if it does not exist; None keeps it in memory.
    name : name of the account in the ledger. The first charge opens the account.
    about : JSON-ready description of the releases. If the account exists, it must have the same description.
    limits : pairs (steps, factor), for data that differ in more steps than a window has. Each pair limits `steps`
        consecutive steps to `factor` times the budget. Infinity means all steps.
    population : the people whom a new account is about (see `Ledger.open`).

    >>> window = Window(length=3, epsilon=1.0)
    >>> print(window.charge(1, 0.5), window.charge(2, 0.25), window.available(3), window.available(4))
    1/2 1/4 1/4 3/4
    >>> window.charge(3, 0.5)
    Traceback (most recent call last):
    ...
    deltahist.errors.BudgetExceeded: amount is 0.5 at step 3: steps 1 to 3 have spent 0.75 of 1, 0.25 is left
    """

    def __init__(
        self,
        length: int | None,
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        ledger: Ledger | str | Path | None = None,
        name: str = "window",
        about: Mapping[str, Any] | None = None,
        limits: Iterable[tuple[Any, Any]] = (),
        population: str | None = None,
    ) -> None:
        self.rule, self.population = Rule.from_budget(epsilon, rho, length, limits), population
        self.length, self.limits = self.rule.length, self.rule.longer
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self.name = check_text(account=name)
        self._description = self.rule.describe() | ({} if about is None else {"about": dict(about)})
        before = self.ledger.list_accounts().get(self.name)
        if before is not None:
            ledgers.check_same_rule(self.name, before, self._description)

    @property
    def equal_share(self) -> Fraction:
        """The most that every step can spend forever (see `Rule.equal_share`)."""
        return self.rule.equal_share

    @property
    def last_step(self) -> int | None:
        """The last step charged, or None if there is no charge."""
        return max(self.ledger.list_charges(self.name), default=None)

    def spent(self, step: int) -> Fraction:
        """Return what the window that ends at a step has spent."""
        return self._list_limits(check_whole(least=0, step=step))[0].spent

    def available(self, step: int) -> Fraction:
        """Return what may still be charged at a step, which is 0 before the last step charged."""
        step, last = check_whole(least=0, step=step), self.last_step
        if self.length is not None and last is not None and step < last:
            return Fraction(0)
        return min(each.left for each in self._list_limits(step))

    def _list_limits(self, step: int) -> list[Limit]:
        """Return the limits on a charge at a step, even before the account is opened."""
        with self.ledger.read() as connection:
            if self.name in ledgers.list_accounts(connection):
                return ledgers.list_limits(connection, ledgers.find_account(connection, self.name), self.rule, step)
        return [Limit(self.name, steps, Fraction(0), Fraction(most, NANO)) for steps, most in self.rule.spans]

    def charge(self, step: int, amount: float | Fraction) -> Charge:
        """Charge an amount at a step durably, and return the charge, which is the budget for one release.

        Charge before drawing noise: `publish(counts, near, epsilon=window.charge(step, 0.1))`. Several charges at one
        step add up. Raises InputError for a step before the last one charged, and BudgetExceeded if too little is left.
        """
        charge = self.rule.make_charge(self.name, amount)
        self.charge_nano(step, charge.nano)
        return charge

    def charge_nano(
        self, step: int, nano: int, *, once: bool = False, chain: tuple[Any, Any, Any] | None = None
    ) -> tuple[Fraction, Population]:
        """Charge billionths in one transaction, and return what the window and the population have spent.

        If `once` is set, refuses a step that was charged before. `chain` holds a name, the token of the state to refine
        and the token of the state before it. A chain pays only what exceeds its earlier charges.
        """
        step, rule = check_whole(least=0, step=step), self.rule
        with self.ledger.transaction() as connection:
            row = ledgers.open_account(connection, self.name, self._description, self.population)
            if chain is not None:
                name, token, source = chain
                paid = read_chain(connection, self.name, name)
                following = paid.after_charge(nano, token, source, name)
                set_note(connection, self.name, CHAIN + name, asdict(following))
                nano = max(0, nano - paid.nano)
            spent = ledgers.charge_account(connection, row, rule, nano, step=step, once=once)
            return spent, ledgers.sum_population(connection, row.population)


@dataclass(frozen=True, eq=False)
class Account:
    """An account that pays for releases. `publish(..., account=account)` charges it durably before drawing any noise.

    Use `Account.total` to publish repeatedly: all of its releases together cost at most its limit. Use
    `Account(window, step)` for one step of a stream.

    Parameters
    ----------
    window : the window or total to charge. step : the step to charge; ignored for a total.
    once : refuse a step that was charged before, so that only one of two runs of a stream publishes it.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> account = Account.total(epsilon=3, name="checkins")
    >>> release = dh.publish(np.ones(8, dtype=int), near, epsilon=1, account=account)
    >>> account.spent, account.left, release.payment.account
    (Fraction(1, 1), Fraction(2, 1), 'checkins')
    """

    window: Window
    step: int = 0
    once: bool = False
    #: Payments made through this object.
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
        """Return an account with one lifetime limit for all its releases. For the parameters, see `Window`."""
        return cls(Window(None, epsilon, rho, ledger=ledger, name=name))

    @property
    def name(self) -> str:
        """Name of the account in its ledger."""
        return self.window.name

    @property
    def spent(self) -> Fraction:
        """The amount spent so far, or in the window that ends at the step."""
        return self.window.spent(self.step)

    @property
    def left(self) -> Fraction:
        """The amount that may still be spent."""
        return self.window.available(self.step)

    def read_paid(self, chain: str) -> Fraction:
        """Return what a chain has paid so far."""
        with self.window.ledger.read() as connection:
            return Fraction(read_chain(connection, self.name, chain).nano, NANO)

    def record_state(self, chain: str, token: str, source: str | None = None) -> None:
        """Record that a chain's state `token` comes from `source`. Raises InputError if another was recorded first."""
        with self.window.ledger.transaction() as connection:
            charge = read_chain(connection, self.name, chain).after_writing(token, source, chain)
            set_note(connection, self.name, CHAIN + chain, asdict(charge))

    def pay(
        self, guarantee: Guarantee, *, chain: str | None = None, token: str | None = None, source: str | None = None
    ) -> Payment:
        """Charge the guarantee of a release, and return the payment. The charge stays, even if the release fails.

        A release in a chain pays only what exceeds the earlier payments of the chain. `token` names the state to refine
        (None for the first release), and `source` the state before it. Charges nothing and raises BudgetExceeded if too
        little is left, or InputError if the state is not the last of its chain.
        """
        if chain is not None and self.window.length is not None:
            raise InputError(f"account {self.name!r} has a limit per window: a chain of releases needs a total limit")
        charge = self.window.rule.make_charge(self.name, guarantee)
        states = None if chain is None else (chain, token, source)
        spent, people = self.window.charge_nano(self.step, charge.nano, once=self.once, chain=states)
        limit = Fraction(self.window.rule.limit, NANO)
        self.payments.append(Payment(self.name, charge.unit, limit, spent, self.window.length, people))
        return self.payments[-1]
