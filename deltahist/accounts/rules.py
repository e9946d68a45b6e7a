"""Rules of accounts: what every span of steps may spend, in whole billionths, and what amounts and chains cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deltahist.budget import Budget, Charge
from deltahist.errors import NANO, BudgetExceeded, InputError, as_printed, is_number, shown, whole
from deltahist.privacy import Guarantee
from deltahist.space.profile import Limit, describe_limits, limits_of, read_lasting

if TYPE_CHECKING:
    from deltahist.accounts.tables import Accounts

#: Failure probabilities are whole numbers of 10⁻¹⁸: a billionth would be a large one.
ATTO = 10**18
#: Largest amount, so that sums of many stay within 64 bits.
_MOST = 10**9
#: The fact of an account that holds the sum of its failure probabilities, and the beginning of those of chains.
_FAILING, CHAIN = "probability charged", "chain "


# ---------------------------------------------------------------------------------- amounts


def read_amount(**amount: Any) -> Fraction:
    """Return the one keyword's value as an exact fraction: a float stands for the decimal that it prints as.

    Budgets are typed and added up by people: ten times 0.1 must be 1, although the binary number is a little more.

    Raises InputError unless it is a finite number, zero or more, and at most 10^9.

    >>> read_amount(epsilon=0.1)
    Fraction(1, 10)
    """
    ((name, value),) = amount.items()
    if not is_number(value) or value != value or not 0 <= value <= _MOST:
        raise InputError(f"{name} is {shown(value)}: it must be a finite number from 0 to 10^9")
    return as_printed(value)


def ceil_nano(**amount: Any) -> int:
    """Return the billionths that an amount is charged as: rounded up.

    >>> ceil_nano(epsilon=Fraction(1, 3))
    333333334
    """
    value = read_amount(**amount)
    return -((-value.numerator * NANO) // value.denominator)


def floor_nano(**amount: Any) -> int:
    """Return the billionths that a limit allows: rounded down.

    >>> floor_nano(epsilon=Fraction(1, 3))
    333333333
    """
    value = read_amount(**amount)
    return value.numerator * NANO // value.denominator


def spent_within(charges: Mapping[int, int], step: int, length: int | None) -> int:
    """Return the billionths charged in `length` steps in a row up to `step`; in all steps up to it when None.

    >>> spent_within({1: 5, 2: 7, 4: 1}, 4, 3)
    8
    """
    first = -math.inf if length is None else step - length
    return sum(nano for at, nano in charges.items() if first < at <= step)


@dataclass(frozen=True)
class Cost:
    """The cost of a release: billionths of an account's unit, and 10⁻¹⁸ of failure probability."""

    nano: int
    atto: int = 0


# ---------------------------------------------------------------------------------- what may be spent


@dataclass(frozen=True)
class Rule:
    """The rule of an account: a list of spans of steps with a limit for each.

    A total is one span without end. A window of steps is a span that moves on, and may have longer ones beside it.

    Parameters
    ----------
    unit : "epsilon" or "rho". limit : in billionths. length : steps of the account's own span, None for all.
    longer : further spans, each with its limit as a multiple of the account's own.
    failing : in 10⁻¹⁸, the failure probabilities that may be spent besides ε; None if it pays for pure ε only.

    >>> Rule.of(epsilon=1, probability=1e-6).describe()
    {'kind': 'total', 'epsilon_nano': 1000000000, 'probability_atto': 1000000000000}
    >>> Rule.of(epsilon=1, length=7, limits=[(30, 2)]).spans
    ((7, 1000000000), (30, 2000000000))
    """

    unit: str
    limit: int
    length: int | None = None
    longer: tuple[Limit, ...] = ()
    failing: int | None = None

    @classmethod
    def of(
        cls,
        epsilon: Any = None,
        rho: Any = None,
        probability: Any = None,
        length: Any = None,
        limits: Iterable[tuple[Any, Any]] = (),
    ) -> Rule:
        """Return the rule for a limit; InputError on what `Budget` refuses, or less than a billionth for each step."""
        length = None if length is None else whole(length=length)
        budget = Budget(epsilon, rho, probability)
        limit = floor_nano(**{budget.unit: epsilon if rho is None else rho})
        failing = None if probability is None else int(read_amount(probability=probability) * ATTO)
        if limit < (length or 1):
            least = "an account's limit is at least a billionth" + (f" for each of {length:,} steps" if length else "")
            raise InputError(f"{budget.unit} is {float(budget.amount):g}: {least}")
        if failing == 0:
            raise InputError(f"probability is {probability!r}: an account's limit is at least 10⁻¹⁸")
        return cls(budget.unit, limit, length, read_lasting(limits, length), failing)

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Rule:
        """Read the rule of a total or a window that a ledger keeps; KeyError or InputError if it is none."""
        unit = "epsilon" if "epsilon_nano" in kept else "rho"
        longer = read_lasting(limits_of(kept.get("limits", [])), kept.get("length"))
        return cls(unit, kept[f"{unit}_nano"], kept.get("length"), longer, kept.get("probability_atto"))

    @classmethod
    def of_total(cls, accounts: Accounts, name: str) -> Rule:
        """Return the rule of a total in a ledger; InputError if there is no such account, or one of another kind."""
        kept = rule_of(accounts, name)
        if kept.get("kind") != "total":
            raise InputError(
                f"account {name!r} is of kind {kept.get('kind')!r}: only a total is charged by its name; a window of "
                "steps is charged by `Window`, people's own budgets by the queries that use their records"
            )
        return cls.read(kept)

    def describe(self) -> dict[str, Any]:
        """Return the rule as a ledger keeps it (JSON)."""
        return {
            **({"kind": "total"} if self.length is None else {"kind": "window", "length": self.length}),
            f"{self.unit}_nano": self.limit,
            **({} if self.failing is None else {"probability_atto": self.failing}),
            **({"limits": describe_limits(self.longer)} if self.longer else {}),
        }

    @property
    def spans(self) -> tuple[tuple[int | None, int], ...]:
        """Steps in a row, None for all there are, with the billionths that they may spend together."""
        further = (
            (None if each.any else int(each.distance), math.floor(self.limit * each.factor)) for each in self.longer
        )
        return (self.length, self.limit), *further

    @property
    def memory(self) -> int | None:
        """Steps whose charges are kept; None for all."""
        lengths = [length for length, _ in self.spans]
        return None if None in lengths else max(length for length in lengths if length is not None)

    def effective_step(self, charges: Mapping[int, int], step: int) -> int:
        """Return the step that a charge counts at: for a total always the last one."""
        return max(charges, default=0) if self.length is None else step

    def spent(self, charges: Mapping[int, int], step: int) -> int:
        """Return the billionths that the account's own span has spent, which ends at a step."""
        return spent_within(charges, self.effective_step(charges, step), self.length)

    def left(self, charges: Mapping[int, int], step: int) -> int:
        """Return the billionths that may still be charged at a step: 0 before the last charged one."""
        step = self.effective_step(charges, step)
        if charges and step < max(charges):
            return 0
        return min(limit - spent_within(charges, step, length) for length, limit in self.spans)

    def cost(self, name: str, amount: Any) -> Cost:
        """Return the cost of an amount, rounded up; `name` is that of the account.

        Raises InputError unless it is a number above zero, or a guarantee, budget or charge of what the account keeps.
        """
        if isinstance(amount, Budget):
            amount = amount.guarantee
        elif isinstance(amount, Charge):
            amount = Guarantee(**{amount.unit: Fraction(amount)}, probability=amount.probability)
        elif not isinstance(amount, Guarantee):
            if not is_number(amount) or not amount > 0:
                raise InputError(
                    f"amount is {amount!r}: it must be a finite number above zero, of {self.unit}, or a Guarantee or "
                    "Budget"
                )
            amount = Guarantee(**{self.unit: read_amount(amount=amount)})
        own = amount.epsilon if self.unit == "epsilon" else amount.rho
        if own is None or (amount.probability and self.failing is None):
            raise self._other_unit(name, amount)
        cost = Cost(ceil_nano(amount=own), -int(-amount.probability * ATTO // 1))
        if not cost.nano:
            raise InputError(f"amount is 0 of {self.unit}: what is charged must be more than nothing")
        return cost

    def _other_unit(self, name: str, amount: Guarantee) -> InputError:
        other = "epsilon" if amount.rho is None else "rho"
        but = f" but for a probability of {float(amount.probability):g}" if amount.probability else ""
        pure = "pure " if self.unit == "epsilon" and self.failing is None else ""
        cure = f"spend {self.unit}, or take an account in rho (zCDP) for Gaussian noise"
        if but and self.unit == "epsilon":
            cure += ", or one that was opened with a probability"
        return InputError(
            f"account {name!r} keeps {pure}{self.unit}, and the release spends {other}{but}: the two do not add up; "
            f"{cure}"
        )

    def allow(self, charges: Mapping[int, int], step: int, nano: int, name: str) -> None:
        """Raise unless an amount fits. Later spans hold less of the past, so that those that end here decide."""
        if charges and step < max(charges):
            raise InputError(
                f"step is {step}, but step {max(charges)} has been charged already: steps must not go back (late, or "
                "out of order?)"
            )
        for length, limit in self.spans:
            before = spent_within(charges, step, length)
            if before + nano > limit:
                at, who = f" at step {step}", f"steps {step - (length or 0) + 1} to {step} have"
                if length is None:
                    at, who = ("", f"account {name!r} has") if self.length is None else (at, "all steps have")
                raise BudgetExceeded(
                    f"amount is {nano / NANO:.10g}{at}: {who} spent {before / NANO:.10g} of {limit / NANO:.10g}, "
                    f"{(limit - before) / NANO:.10g} is left"
                )

    def charge(self, change: Accounts, name: str, cost: Cost, step: int = 0) -> int:
        """Charge a cost within a transaction, and return the billionths that the account's own span has spent then.

        Parameters
        ----------
        step : of no matter for a total.

        Raises
        ------
        BudgetExceeded
            If less is left, of either sum.
        """
        charges = change.charges(name)
        step = self.effective_step(charges, step)
        self.allow(charges, step, cost.nano, name)
        if cost.atto:
            failed, failing = failed_so_far(change, name), self.failing or 0
            if failed + cost.atto > failing:
                raise BudgetExceeded(
                    f"probability is {cost.atto / ATTO:.10g}: account {name!r} has spent {failed / ATTO:.10g} of "
                    f"{failing / ATTO:.10g}, {(failing - failed) / ATTO:.10g} is left"
                )
            change.store(name, _FAILING, failed + cost.atto)
        change.charge(name, step, cost.nano)
        if self.memory is not None:
            change.forget(name, step - self.memory)
        return self.spent(charges, step) + cost.nano

    def charge_for(self, cost: Cost) -> Charge:
        """Return the budget that a cost pays for."""
        return Charge(Fraction(cost.nano, NANO), self.unit, Fraction(cost.atto, ATTO))


def rule_of(accounts: Accounts, name: str) -> dict[str, Any]:
    """Return the rule of an account as a ledger keeps it; InputError if the account is not there."""
    rule = accounts.rule(name)
    if rule is None:
        others = ", ".join(map(repr, accounts.rules()))
        raise InputError(f"account {name!r} is not there: open it first" + (others and f"; there are {others}"))
    assert isinstance(rule, dict)
    return rule


def failed_so_far(accounts: Accounts, name: str) -> int:
    """Return the sum of failure probabilities that an account was charged, in 10⁻¹⁸."""
    return int(accounts.fact(name, _FAILING) or 0)


# ---------------------------------------------------------------------------------- chains


@dataclass(frozen=True)
class ChainCharge:
    """The charge of a chain of releases, and the state that it was for: an account pays once from each state.

    A charge is made before noise is drawn, when the state that will hold the noise is not there yet. Until that is
    settled the charge may be used again, by who refines the same state: whatever was drawn meanwhile was not handed
    out. Settled is a state that says it came of that one; of several the first.

    Parameters
    ----------
    nano : billionths charged so far; 0 if the chain is not known.
    source : token of the state that was refined last; None for a chain that begins.
    token : of the state that came of it; None while a charge awaits its state.

    >>> first = ChainCharge().after_charge(1_000, None, None, "a" * 32).after_settling("one", None, "a" * 32)
    >>> first.due(3_000), first.after_charge(3_000, "one", None, "a" * 32).after_settling("two", "one", "a" * 32).token
    (2000, 'two')
    """

    nano: int = 0
    source: str | None = None
    token: str | None = None

    @classmethod
    def read(cls, accounts: Any, name: str, chain: str) -> ChainCharge:
        """Return the charge of a chain that an account of a ledger keeps; nothing of one that it does not know."""
        return cls(**(accounts.fact(name, CHAIN + chain) or {}))

    def keep(self, change: Any, name: str, chain: str) -> None:
        """Keep the charge with an account of a ledger."""
        change.store(name, CHAIN + chain, asdict(self))

    def due(self, nano: int) -> int:
        """Return the billionths that are still to be charged for a chain to cost `nano` in all."""
        return max(0, nano - self.nano)

    def after_charge(self, nano: int, token: str | None, source: str | None, chain: str) -> ChainCharge:
        """Return the charge once `due` is charged for a release from the state `token`, which came of `source`.

        Raises InputError if another state has followed that one: it is a copy, and a second release from it would
        not be paid for.
        """
        if self.nano and not self._goes_on(token, source):
            raise _used(chain)
        return ChainCharge(max(nano, self.nano), token, None)

    def after_settling(self, token: str, source: str | None, chain: str) -> ChainCharge:
        """Return the charge once the state of the release is written; InputError if another state came first."""
        if self.nano and not self._goes_on(token, source):
            raise _used(chain)
        # A charge from this very state still awaits the next one.
        return self if self.token is None and token == self.source else ChainCharge(self.nano, source, token)

    def _goes_on(self, token: str | None, source: str | None) -> bool:
        """Return whether a state is the last one, or may be: the first that came of what was charged last."""
        if self.token is not None:
            return token == self.token
        return token == self.source or source == self.source


def _used(chain: str) -> InputError:
    return InputError(
        f"the state of chain {chain} has been used already, as its account knows (is it a copy?): a second release "
        "from it would not be paid for; nothing was drawn or charged; go on with the last state of the chain"
    )
