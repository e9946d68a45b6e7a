"""Accounts that pay for releases: a window of steps (2014, Theorem 2), or a total for all that is ever published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.accounts.rules import Rule, check_text
from deltahist.budget import Charge, Payment, Population
from deltahist.errors import NANO, InputError, is_number

if TYPE_CHECKING:
    from deltahist.accounts.ledger import Ledger, Limit
    from deltahist.privacy import Guarantee

#: Largest step number, either side of zero: what a ledger's column holds.
_FARTHEST = 1 << 62


@dataclass(frozen=True, eq=False)
class Window:
    """Accountant of a sequence of releases: every `length` consecutive steps together spend at most the budget.

    If every window of δ steps adds up to at most ε, Σ ε_(k+i) ≤ ε over i = 1..δ for all k ≥ 0, then all releases
    together are ε-private for sequences that differ within δ steps, i_t − i_s + 1. The same holds for ρ. With
    δ-neighbourhood inside each step, entities may moreover move by δ in space. Source: 2014, section 6.4, section 6.5,
    Theorem 2, with windows from the first step on. Proof: docs/privacy/window.md.

    Parameters
    ----------
    length : δ in steps. None for a window without end: everything that is ever charged adds up (`Account.total`).
    epsilon, rho : budget of a window, one of them; rounded down to billionths. A float is the decimal it prints as.
    ledger : a Ledger, or the path or URL of one, which is made if it does not exist. In memory when None.
    name : of the account in the ledger, which is opened with its first charge.
    about : description of the releases, JSON-ready; an account that was opened for something else is refused.
    limits : for data that differ in more steps than a window: pairs (steps, factor), by which that number of steps in
        a row spends at most factor times the budget; infinity stands for all steps there will ever be.
    population : the people whom a new account is about (`Ledger.open`).

    Raises InputError on a length, budget or limit that is none, a ledger that is damaged, or an account with other
    parameters.

    Examples
    --------
    >>> window = Window(length=3, epsilon=1.0)
    >>> print(window.charge(1, 0.5), window.charge(2, 0.25), window.available(3), window.available(4))
    1/2 1/4 1/4 3/4
    >>> window.charge(3, 0.5)
    Traceback (most recent call last):
    ...
    deltahist.errors.BudgetExceeded: amount is 0.5 at step 3: steps 1 to 3 have spent 0.75 of 1, 0.25 is left
    """

    length: int | None
    epsilon: float | Fraction | None = None
    rho: float | Fraction | None = None
    ledger: Any = None
    name: str = "window"
    about: Mapping[str, Any] | None = None
    limits: Iterable[tuple[Any, Any]] = ()
    population: str | None = None
    rule: Rule = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from deltahist.accounts import ledger as ledgers  # SQLAlchemy takes long to import

        rule = Rule.of(self.epsilon, self.rho, self.length, self.limits)
        ledger = self.ledger if isinstance(self.ledger, ledgers.Ledger) else ledgers.Ledger(self.ledger)
        read: dict[str, Any] = {"rule": rule, "length": rule.length, "limits": rule.longer, "ledger": ledger}
        read["name"] = check_text(account=self.name)
        for name, value in read.items():
            object.__setattr__(self, name, value)
        before = ledger.accounts().get(self.name)
        if before is not None:
            ledgers.check_same_rule(self.name, before, self._description)

    @property
    def _description(self) -> dict[str, Any]:
        return self.rule.describe() | ({} if self.about is None else {"about": dict(self.about)})

    @property
    def equal(self) -> Fraction:
        """The share of a step that never runs out (`Rule.equal`)."""
        return self.rule.equal

    @property
    def last(self) -> int | None:
        """The last step that was charged; None if none was."""
        return max(self.charges(), default=None)

    def charges(self) -> dict[int, int]:
        """Return the billionths charged at each step."""
        return dict(self.ledger.charges(self.name))

    def spent(self, step: int) -> Fraction:
        """Return the sum of the window that ends at a step."""
        limits = self._limits(_step(step))
        return limits[0].amounts[0] if limits else Fraction(0)

    def available(self, step: int) -> Fraction:
        """Return what may still be charged at a step: 0 at steps before the last charged one."""
        step, last = _step(step), self.last
        if self.length is not None and last is not None and step < last:
            return Fraction(0)
        left = [each.most - each.spent for each in self._limits(step)]
        return Fraction(min(left or [most for _, most in self.rule.spans]), NANO)

    def _limits(self, step: int) -> list[Limit]:
        """Return the limits of a charge at a step; none before the account is open."""
        from deltahist.accounts.ledger import find_account, list_accounts, list_limits

        with self.ledger.read() as connection:
            if self.name not in list_accounts(connection):
                return []
            return list_limits(connection, find_account(connection, self.name), self.rule, step)

    def charge(self, step: int, amount: float | Fraction) -> Charge:
        """Charge an amount at a step, durably, and return what was charged: the budget for the release.

        Do so before noise is drawn: `publish(counts, near, epsilon=window.charge(step, 0.1))`. Several charges at one
        step add up. Raises InputError, and charges nothing, for a step before the last charged one, an amount that is
        not above zero, or (BudgetExceeded) more than the window has left.
        """
        charge = self.rule.cost(self.name, amount)
        self.spend(step, charge.nano)
        return charge

    def spend(
        self, step: int, nano: int, *, once: bool = False, chain: tuple[Any, Any, Any] | None = None
    ) -> tuple[Fraction, Population]:
        """Charge billionths in one transaction, and return the sums of the window and of the population just then.

        With `once` a step that was charged already is refused. For a chain, (its name, the token of the state that is
        refined, that of the state before), only what it costs more than so far is charged.
        """
        from deltahist.accounts import ledger as ledgers

        step, rule = _step(step), self.rule
        with self.ledger.transaction() as connection:
            found = ledgers.open_account(connection, self.name, self._description, self.population)
            if chain is None:
                spent = ledgers.charge_account(connection, found, rule, nano, step=step, once=once)
            else:
                spent = ledgers.charge_chain(connection, found, rule, nano, *chain)
            return Fraction(spent, NANO), ledgers.sum_population(connection, found.population)


def _step(step: Any) -> int:
    if not is_number(step) or step != step or abs(step) >= _FARTHEST or step != int(step):
        raise InputError(f"step is {step!r}: it must be a whole number")
    return int(step)


@dataclass(frozen=True, eq=False)
class Account:
    """A payer of releases: `publish(..., account=account)` charges it, durably, before any noise is drawn.

    `Account.total` is for repeated publishing: all releases that it pays for add up to at most its limit.
    `Account(window, step)` is for a step of a stream.

    Parameters
    ----------
    window : the accountant. step : where in it is charged; of no matter for a total.
    once : refuse a step that was charged before, so that of two runs of a stream one alone publishes it.

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
        population: str | None = None,
    ) -> Account:
        """Return an account of all that is ever published: a `Window` without end, whose parameters these are."""
        return cls(Window(None, epsilon, rho, ledger=ledger, name=name, population=population))

    @property
    def name(self) -> str:
        """Name of the account in its ledger."""
        return self.window.name

    @property
    def limit(self) -> Fraction:
        """Return the most that may be spent; for a window, in each of its windows."""
        return Fraction(self.window.rule.limit, NANO)

    @property
    def spent(self) -> Fraction:
        """Return the amount spent so far; for a window, in the one that ends at the step."""
        return self.window.spent(self.step)

    @property
    def left(self) -> Fraction:
        """Return the amount that may still be spent."""
        return self.window.available(self.step)

    def paid(self, chain: str) -> Fraction:
        """Return what has been charged for a chain so far."""
        from deltahist.accounts.ledger import read_chain

        with self.window.ledger.read() as connection:
            return Fraction(read_chain(connection, self.name, chain).nano, NANO)

    def settle(self, chain: str, token: str, source: str | None = None) -> None:
        """Keep which state of a chain is its last one; `source` is the one before. InputError if another came first."""
        from deltahist.accounts.ledger import CHAIN, read_chain, set_note

        with self.window.ledger.transaction() as connection:
            charge = read_chain(connection, self.name, chain).after_settling(token, source, chain)
            set_note(connection, self.name, CHAIN + chain, asdict(charge))

    def pay(
        self, guarantee: Guarantee, *, chain: str | None = None, token: str | None = None, source: str | None = None
    ) -> Payment:
        """Charge what a release promises, and return what has been spent then. It stays charged, whatever happens.

        For a release of a chain only what it costs more than those before it is charged; `token` names the state that
        is refined (None for the first release), `source` the one that it came of.

        Raises BudgetExceeded if the account has less left, and InputError if it keeps another unit, the state is not
        the last one of its chain, or the account of a chain is a window of steps. Nothing is charged then.
        """
        if chain is not None and self.window.length is not None:
            raise InputError(f"account {self.name!r} is the window of a stream: a chain of releases takes a total")
        charge = self.window.rule.cost(self.name, guarantee)
        states = None if chain is None else (chain, token, source)
        spent, people = self.window.spend(self.step, charge.nano, once=self.once, chain=states)
        self.payments.append(Payment(self.name, charge.unit, self.limit, spent, self.window.length, people))
        return self.payments[-1]
