"""Sustainable publishing: no window of δ steps may spend more than its budget (2014, Theorem 2)."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.budget import Budget, Charge
from deltahist.budgets.chains import CHAIN, ChainCharge
from deltahist.budgets.nano import allowed, as_said, charged, exceeded, held
from deltahist.errors import NANO, InputError, is_number, whole
from deltahist.neighbourhood.profile import Limit, describe_limits, read_lasting

if TYPE_CHECKING:
    from deltahist.budgets.ledger import Ledger

#: Largest step number, either side of zero: what a ledger's column holds.
_FARTHEST = 1 << 62


@dataclass(frozen=True, eq=False)
class Window:
    """Accountant of a sequence of releases: every `length` consecutive steps together spend at most the budget.

    If the release at step i is ε_i-private for what is collected at step i, and every window of δ steps adds up to at
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
    about : what is published, JSON-ready; an account that was opened for something else is refused.
    limits : for data that differ in more steps than a window: pairs (steps, factor), by which so many steps in a row
        spend at most factor times the budget; infinity stands for all steps there will ever be.

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
    limits: Iterable[tuple[float, Any]] | tuple[Limit, ...] = ()
    _memory: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _chains: dict[str, ChainCharge] = field(default_factory=dict, init=False, repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.length is not None:
            object.__setattr__(self, "length", whole(length=self.length))
        Budget(self.epsilon, self.rho)
        if self.limit < (self.length or 1):
            raise InputError(
                f"{self.unit} is {self._budget!r}: it must be at least a billionth for each of {self.length or 1:,} "
                "steps"
            )
        object.__setattr__(self, "limits", read_lasting(self.limits, self.length))
        if isinstance(self.ledger, str | Path):
            from deltahist.budgets.ledger import Ledger  # SQLAlchemy takes long to import

            object.__setattr__(self, "ledger", Ledger(self.ledger))
        if self.ledger is not None:
            about = {} if self.about is None else {"about": dict(self.about)}
            self._ledger.account(self.name, {**self._rule, **about})

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def limit(self) -> int:
        """Budget of a window in billionths."""
        return allowed(**{self.unit: self._budget})

    @property
    def equal(self) -> Fraction:
        """The share of a step that never runs out, whatever windows it is in, rounded down to billionths.

        Raises InputError for a window without end, or a limit for all steps there will ever be: whatever is charged
        again and again runs out.
        """
        if self.length is None:
            raise InputError(f"account {self.name!r} is a total: no share of it can be spent for ever")
        shares = []
        for length, limit in self._windows:
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
        """What the window that ends at a step has spent."""
        return Fraction(held(self._charges(), _step(step), self.length), NANO)

    def available(self, step: int) -> Fraction:
        """What may still be charged at a step: 0 at steps before the last charged one."""
        charges, step = self._charges(), _step(step)
        if charges and step < max(charges):
            return Fraction(0)
        return Fraction(min(limit - held(charges, step, n) for n, limit in self._windows), NANO)

    def check(self, step: int, amount: float | Fraction) -> None:
        """Raise as `charge` would, and charge nothing."""
        self._allow(self._charges(), _step(step), charged(amount=amount), amount)

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

    def charge_and_sum(self, step: int, amount: float | Fraction) -> tuple[Charge, Fraction]:
        """Charge an amount, and say what its window had spent just then: a later step forgets earlier ones."""
        step = _step(step)
        if not is_number(amount) or not amount > 0:
            raise InputError(f"amount is {amount!r} at step {step}: it must be a finite number above zero")
        nano = charged(amount=amount)
        return Charge(Fraction(nano, NANO), self.unit), self._charge(step, nano, amount)

    def charge_up_to(
        self, amount: float | Fraction, chain: str, token: str | None, source: str | None = None
    ) -> Fraction:
        """Charge what a chain of releases lacks, and say what has been spent then.

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
        return self._charge(0, charged(amount=amount), amount, (chain, token, source))

    def settle(self, chain: str, token: str, source: str | None = None) -> None:
        """Keep which state of a chain is its last one, before its release is handed out; `source` is where it came of.

        Raises InputError if another one came first.
        """
        if self.ledger is None:
            with self._turn:
                self._chains[chain] = self.paid(chain).settled(token, source, chain)
            return
        with self._ledger.transaction() as change:
            known = ChainCharge.of(change.fact(self.name, _fact(chain)))
            change.store(self.name, _fact(chain), known.settled(token, source, chain).describe())

    def paid(self, chain: str) -> ChainCharge:
        """What has been charged for a chain."""
        if self.ledger is None:
            return self._chains.get(chain, ChainCharge())
        return ChainCharge.of(self._ledger.fact(self.name, _fact(chain)))

    def _charge(
        self, step: int, nano: int, amount: Any, chain: tuple[str, str | None, str | None] | None = None
    ) -> Fraction:
        """Charge billionths, or those that a chain lacks (its name, state and source); what has been spent then."""
        if self.ledger is None:
            with self._turn:
                if chain is not None:
                    name, token, source = chain
                    paid = self.paid(name)
                    after, nano = paid.charged(nano, token, source, name), paid.due(nano)
                self._allow(self._memory, step, nano, amount)
                if chain is not None:
                    self._chains[name] = after
                before = held(self._memory, step, self.length)
                self._memory[step] = self._memory.get(step, 0) + nano
                if self._longest is not None:
                    for old in [s for s in self._memory if s <= step - self._longest]:
                        del self._memory[old]
            return Fraction(before + nano, NANO)
        with self._ledger.transaction() as change:
            # It may have been closed, and opened with another limit, since this one looked.
            rule = change.rule(self.name) or {}
            if any(rule.get(key) != self._rule.get(key) for key in {*self._rule, "limits"}):
                raise InputError(
                    f"account {self.name!r} of {self._ledger.place!r} is not what it was when it was opened "
                    "(closed meanwhile?): nothing was charged; open it again"
                )
            if chain is not None:
                name, token, source = chain
                paid = ChainCharge.of(change.fact(self.name, _fact(name)))
                change.store(self.name, _fact(name), paid.charged(nano, token, source, name).describe())
                nano = paid.due(nano)
            charges = change.charges(self.name)
            self._allow(charges, step, nano, amount)
            before = held(charges, step, self.length)
            change.charge(self.name, step, nano)
            if self._longest is not None:
                change.forget(self.name, step - self._longest)
        return Fraction(before + nano, NANO)

    def _allow(self, charges: Mapping[int, int], step: int, nano: int, amount: Any) -> None:
        """Raise unless the amount fits. Later windows hold less of the past, so that those that end here decide."""
        if charges and step < max(charges):
            raise InputError(
                f"step is {step}, but step {max(charges)} has been charged already: steps must not go back (late, or "
                "out of order?)"
            )
        for length, limit in self._windows:
            before = held(charges, step, length)
            if before + nano > limit:
                said = f"amount is {float(as_said(amount=amount)):.10g}"
                who = f"account {self.name!r} has"
                if self.length is not None:
                    said = f"{said} at step {step}"
                    who = "all steps have" if length is None else f"steps {step - length + 1} to {step} have"
                raise exceeded(said, who, before, limit)

    @property
    def _windows(self) -> Iterator[tuple[int | None, int]]:
        """Steps in a row, None for all there are, with the billionths that they may spend together."""
        yield self.length, self.limit
        for steps, factor in self.limits:
            yield None if steps == math.inf else int(steps), math.floor(self.limit * factor)

    @property
    def _longest(self) -> int | None:
        """Steps whose charges are kept; None for all."""
        lengths = [length for length, _ in self._windows]
        return None if None in lengths else max(length for length in lengths if length is not None)

    def _charges(self) -> Mapping[int, int]:
        return self._memory if self.ledger is None else self._ledger.charges(self.name)

    @property
    def _rule(self) -> dict[str, Any]:
        """What a ledger keeps of it, beside what is published."""
        kind = {"kind": "total"} if self.length is None else {"kind": "window", "length": self.length}
        limits = {"limits": describe_limits(self.limits)} if self.limits else {}  # type: ignore[arg-type]
        return {**kind, f"{self.unit}_nano": self.limit, **limits}

    @property
    def _ledger(self) -> Ledger:
        assert not isinstance(self.ledger, str | Path | None)
        return self.ledger

    @property
    def _budget(self) -> float | Fraction:
        budget = self.epsilon if self.rho is None else self.rho
        assert budget is not None
        return budget


def _fact(chain: str) -> str:
    """Where a ledger keeps what is paid for a chain."""
    return CHAIN + chain


def _step(step: Any) -> int:
    if not is_number(step) or step != step or abs(step) >= _FARTHEST or step != int(step):
        raise InputError(f"step is {step!r}: it must be a whole number")
    return int(step)
