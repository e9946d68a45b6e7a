"""Accounts that pay for releases: a window of steps (2014, Theorem 2), or a total for all that is ever published."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.accounts.rules import ChainCharge, Cost, Rule, ceil_nano, read_amount
from deltahist.budget import Charge, Payment
from deltahist.errors import NANO, InputError, is_number
from deltahist.privacy import Guarantee

if TYPE_CHECKING:
    from deltahist.accounts.ledger import Ledger

#: Largest step number, either side of zero: what a ledger's column holds.
_FARTHEST = 1 << 62


@dataclass(frozen=True, eq=False)
class Window:
    """Accountant of a sequence of releases: every `length` consecutive steps together spend at most the budget.

    If the release at step i is ε_i-private for the data collected at step i, and every window of δ steps adds up to at
    most ε, then all releases together, for ever, are ε-private for sequences that differ within δ steps. The same
    holds for ρ. With δ-neighbourhood inside each step, entities may moreover move by δ in space. Proof:
    docs/privacy/window.md.

    Source: 2014, section 6.5, Theorem 2, with windows from the first step on.

    Parameters
    ----------
    length : δ in steps: data of one entity that differ lie in `length` consecutive steps (last − first + 1). None for
        a window without end: everything that is ever charged adds up (`Account.total`).
    epsilon, rho : budget of a window, one of them. It is rounded down to billionths, charges are rounded up; a float
        stands for the decimal that it prints as.
    ledger : a Ledger, or the path or URL of one, which is made if it does not exist: the account survives the process.
        In memory when None. Either way it keeps the last `length` steps only.
    name : of the account in the ledger.
    about : description of the releases, JSON-ready; an account that was opened for something else is refused.
    limits : for data that differ in more steps than a window: pairs (steps, factor), by which that number of steps in
        a row spends at most factor times the budget; infinity stands for all steps there will ever be.

    Raises
    ------
    InputError
        On a length that is no whole number of at least 1, not exactly one budget, a budget below a billionth per
        step, a limit that is below 1, falls with the steps or has no more of them than the window, a ledger that is
        damaged, or an account with other parameters.

    Examples
    --------
    >>> window = Window(length=3, epsilon=1.0)
    >>> window.charge(1, 0.5), window.charge(2, 0.25), window.available(3), window.available(4)
    (Charge(1, 2), Charge(1, 4), Fraction(1, 4), Fraction(3, 4))
    >>> window.charge(3, 0.5)
    Traceback (most recent call last):
    ...
    deltahist.errors.BudgetExceeded: amount is 0.5 at step 3: steps 1 to 3 have spent 0.75 of 1, 0.25 is left
    """

    length: int | None
    epsilon: float | Fraction | None = None
    rho: float | Fraction | None = None
    ledger: Ledger | str | Path | None = None
    name: str = "window"
    about: Mapping[str, Any] | None = None
    limits: Iterable[tuple[Any, Any]] = ()
    rule: Rule = field(init=False, repr=False)
    _keeper: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rule = Rule.of(self.epsilon, self.rho, None, self.length, self.limits)
        keeper: Any = self.ledger
        if isinstance(keeper, str | Path):
            from deltahist.accounts.ledger import Ledger  # SQLAlchemy takes long to import

            keeper = Ledger(keeper)
        read = {"rule": rule, "length": rule.length, "limits": rule.longer, "ledger": keeper}
        for name, value in {**read, "_keeper": _Memory() if keeper is None else keeper}.items():
            object.__setattr__(self, name, value)
        about = {} if self.about is None else {"about": dict(self.about)}
        self._keeper.account(self.name, {**rule.describe(), **about})

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return self.rule.unit

    @property
    def limit(self) -> int:
        """Budget of a window in billionths."""
        return self.rule.limit

    @property
    def equal(self) -> Fraction:
        """The share of a step that never runs out, whatever windows it is in, rounded down to billionths.

        Raises InputError for a window without end, or a limit for all steps there will ever be: whatever is charged
        again and again runs out.
        """
        if self.length is None:
            raise InputError(f"account {self.name!r} is a total: no share of it can be spent for ever")
        shares = []
        for length, limit in self.rule.spans:
            if length is None:
                most = limit * self.length // self.limit
                raise InputError(
                    f"limits holds {limit / self.limit:g} times the budget for changes of any length: equal shares "
                    f"would be spent after {most:,} steps, since an endless stream at constant noise promises nothing "
                    "for changes without end; say for how many steps the limit is to hold, or what each step gets"
                )
            shares.append(limit // length)
        return Fraction(min(shares), NANO)

    @property
    def last(self) -> int | None:
        """The last step that was charged; None if none was."""
        return max(self._charges(), default=None)

    def spent(self, step: int) -> Fraction:
        """Return the sum of the window that ends at a step."""
        return Fraction(self.rule.spent(self._charges(), _step(step)), NANO)

    def available(self, step: int) -> Fraction:
        """Return what may still be charged at a step: 0 at steps before the last charged one."""
        return Fraction(self.rule.left(self._charges(), _step(step)), NANO)

    def check(self, step: int, amount: float | Fraction) -> None:
        """Raise as `charge` would, and charge nothing."""
        self.rule.allow(self._charges(), _step(step), ceil_nano(amount=amount), self.name)

    def charge(self, step: int, amount: float | Fraction) -> Charge:
        """Charge an amount at a step, durably, and return what was charged: the budget for the release.

        It is spent as what it was charged for: an account of ε pays for pure ε, not for a failure probability.

        Do so before noise is drawn: `publish(counts, near, epsilon=window.charge(step, 0.1))`. Several charges at one
        step add up; steps without a charge may lie between.

        Raises
        ------
        InputError
            If the step is no whole number or lies before the last charged one, the amount is not above zero, or the
            window would exceed its budget. Nothing is charged then.
        """
        return self.charge_and_sum(step, amount)[0]

    def charge_and_sum(self, step: int, amount: float | Fraction | Guarantee) -> tuple[Charge, Fraction]:
        """Charge an amount, and return it with the sum of its window just then: a later step forgets earlier ones."""
        step, cost = _step(step), self.rule.cost(self.name, amount)
        with self._transaction() as change:
            spent = self.rule.charge(change, self.name, cost, step)
        return self.rule.charge_for(cost), Fraction(spent, NANO)

    def charge_up_to(
        self, amount: float | Fraction | Guarantee, chain: str, token: str | None, source: str | None = None
    ) -> Fraction:
        """Charge what a chain of releases lacks, and return what has been spent then.

        Parameters
        ----------
        amount : what all releases of the chain cost together, the next one with them. chain : its name.
        token : of the state that is refined; None for a chain that begins. source : of the state that it came of.

        Raises
        ------
        InputError
            On a state that is not the last one of its chain, or an account of a window of steps. BudgetExceeded as
            `charge`. Nothing is charged then.
        """
        if self.length is not None:
            raise InputError(
                f"account {self.name!r} is the window of a stream: a chain of releases is paid by a total "
                "(`Account.total`)"
            )
        nano = self.rule.cost(self.name, amount).nano
        with self._transaction() as change:
            paid = ChainCharge.read(change, self.name, chain)
            following = paid.after_charge(nano, token, source, chain)
            spent = self.rule.charge(change, self.name, Cost(paid.due(nano)))
            following.keep(change, self.name, chain)
        return Fraction(spent, NANO)

    def settle(self, chain: str, token: str, source: str | None = None) -> None:
        """Keep which state of a chain is its last one, before its release is handed out; `source` is where it came of.

        Raises InputError if another one came first.
        """
        with self._keeper.transaction() as change:
            charge = ChainCharge.read(change, self.name, chain)
            charge.after_settling(token, source, chain).keep(change, self.name, chain)

    def chain_charge(self, chain: str) -> ChainCharge:
        """Return what has been charged for a chain."""
        return ChainCharge.read(self._keeper, self.name, chain)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Begin a change of the account, alone and durable; InputError if it has become another one."""
        with self._keeper.transaction() as change:
            # It may have been closed, and opened with another limit, since this one looked.
            kept, rule = change.rule(self.name) or {}, self.rule.describe()
            if any(kept.get(key) != rule.get(key) for key in {*rule, "limits"}):
                raise InputError(
                    f"account {self.name!r} of {self._keeper.place!r} is not what it was when it was opened "
                    "(closed meanwhile?): nothing was charged; open it again"
                )
            yield change

    def _charges(self) -> dict[int, int]:
        found: dict[int, int] = self._keeper.charges(self.name)
        return found


class _Memory:
    """An account in memory, with what a window asks of a ledger and of its transactions."""

    place = "memory"

    def __init__(self) -> None:
        self._kept: dict[int, int] = {}
        self._facts: dict[str, Any] = {}
        self._turn = threading.Lock()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[_Memory]:
        with self._turn:
            yield self

    def account(self, name: str, rule: dict[str, Any]) -> None:
        self._rule = rule

    def rule(self, name: str) -> dict[str, Any]:
        return self._rule

    def charges(self, name: str) -> dict[int, int]:
        return dict(self._kept)

    def charge(self, name: str, step: int, nano: int) -> None:
        self._kept[step] = self._kept.get(step, 0) + nano

    def forget(self, name: str, step: int) -> None:
        for old in [at for at in self._kept if at <= step]:
            del self._kept[old]

    def fact(self, name: str, key: str) -> Any:
        return self._facts.get(key)

    def store(self, name: str, key: str, value: Any) -> None:
        self._facts[key] = value


def _step(step: Any) -> int:
    if not is_number(step) or step != step or abs(step) >= _FARTHEST or step != int(step):
        raise InputError(f"step is {step!r}: it must be a whole number")
    return int(step)


@dataclass(frozen=True, eq=False)
class Account:
    """A payer of releases: `publish(..., account=account)` charges it, durably, before any noise is drawn.

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
        """Return an account of all that is ever published: a window without end.

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

    @property
    def name(self) -> str:
        """Name of the account in its ledger."""
        return self.window.name

    @property
    def limit(self) -> Fraction:
        """Return the most that may be spent; for a window, in each of its windows."""
        return Fraction(self.window.limit, NANO)

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
        return Fraction(self.window.chain_charge(chain).nano, NANO)

    def settle(self, chain: str, token: str, source: str | None = None) -> None:
        """Keep which state of a chain is its last one, and of which it came; InputError if another one came first."""
        self.window.settle(chain, token, source)

    def pay(
        self,
        guarantee: Guarantee,
        *,
        chain: str | None = None,
        token: str | None = None,
        source: str | None = None,
    ) -> Payment:
        """Charge what a release promises, and return what has been spent then.

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
        if chain is None:
            _, spent = self.window.charge_and_sum(self.step, guarantee)
        else:
            spent = self.window.charge_up_to(guarantee, chain, token, source)
        self.payments.append(Payment(self.name, self.window.unit, self.limit, spent, self.window.length))
        return self.payments[-1]


def amounts_for(account: Account | None, **amounts: Any) -> dict[str, Any]:
    """Return amounts as an account will charge them: a float as the decimal that it prints as; as given without one."""
    if account is None:
        return amounts
    return {name: None if amount is None else read_amount(**{name: amount}) for name, amount in amounts.items()}
