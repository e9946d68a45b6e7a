"""Rules of accounts: what every span of steps may spend, and what amounts and chains of releases cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deltahist.budget import ATTO, Budget, Charge, ceil_nano, floor_nano, read_amount, say_amount
from deltahist.errors import NANO, BudgetExceeded, InputError, is_number, whole
from deltahist.privacy import Guarantee
from deltahist.space.neighbourhood import Limit, describe_limits, limits_of, read_lasting

if TYPE_CHECKING:
    from deltahist.accounts.tables import Accounts

#: Name of the fact of an account that holds the sum of its failure probabilities.
_FAILING = "probability charged"
#: The names of facts of chains begin so.
CHAIN = "chain "
#: Characters of a key or a name.
_LONGEST = 200


def check_text(**given: Any) -> str:
    """Return the one keyword's value, a text of 1 to 200 printable characters; InputError for anything else."""
    ((name, value),) = given.items()
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST or not value.isprintable():
        shown = repr(value) if len(repr(value)) < 80 else repr(value)[:77] + "..."
        raise InputError(f"{name} is {shown}: it must be a text of 1 to {_LONGEST} printable characters")
    return value


def spent_within(charges: Mapping[int, int], step: int, length: int | None) -> int:
    """Return the billionths charged in `length` steps in a row up to `step`; in all steps there are when None.

    >>> spent_within({1: 5, 2: 7, 4: 1}, 4, 3)
    8
    """
    return sum(nano for at, nano in charges.items() if length is None or step - length < at <= step)


def failed_so_far(accounts: Accounts, name: str) -> int:
    """Return the sum of failure probabilities that an account was charged, in 10⁻¹⁸."""
    return int(accounts.fact(name, _FAILING) or 0)


def check_rule(accounts: Accounts, name: str, rule: dict[str, Any]) -> None:
    """Raise InputError if an account is not under a rule: it may have been closed, and opened under another one."""
    kept = accounts.rule(name) or {}
    if any(kept.get(key) != rule.get(key) for key in {*rule, "limits"}):
        raise InputError(
            f"account {name!r} is not what it was when it was opened (closed meanwhile?): nothing was charged; open it "
            "again"
        )


@dataclass(frozen=True)
class Rule:
    """The rule of an account: spans of steps, with a limit for each in whole billionths.

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

    def left(self, charges: Mapping[int, int], step: int) -> int:
        """Return the billionths that may still be charged at a step: 0 before the last charged one."""
        if self.length is not None and charges and step < max(charges):
            return 0
        return min(limit - spent_within(charges, step, length) for length, limit in self.spans)

    def cost(self, name: str, amount: Any) -> Charge:
        """Return the charge for an amount, rounded up; `name` is that of the account.

        Raises InputError unless it is a number above zero, or a guarantee or budget of what the account keeps.
        """
        if isinstance(amount, Budget):
            amount = amount.guarantee
        elif not isinstance(amount, Guarantee):
            if not is_number(amount) or not amount > 0:
                raise InputError(
                    f"amount is {amount!r}: it must be a finite number above zero, of {self.unit}, or a Guarantee or "
                    "Budget"
                )
            amount = Guarantee(**{self.unit: read_amount(amount=amount)})
        own, failing = amount.epsilon if self.unit == "epsilon" else amount.rho, amount.probability
        if own is None or (failing and self.failing is None):
            pure = "pure " if self.unit == "epsilon" and self.failing is None else ""
            spends = "epsilon" if amount.rho is None else "rho"
            spends += f" but for a probability of {float(failing):g}" if failing else ""
            raise InputError(
                f"account {name!r} keeps {pure}{self.unit}, and the release spends {spends}: the two do not add up; "
                f"spend {self.unit}, take an account in rho (zCDP) for Gaussian noise, or one that was opened with a "
                "probability"
            )
        charge = Charge(Fraction(ceil_nano(amount=own), NANO), self.unit, Fraction(-int(-failing * ATTO // 1), ATTO))
        if not charge.amount:
            raise InputError(f"amount is 0 of {self.unit}: what is charged must be more than nothing")
        return charge

    def allow(self, charges: Mapping[int, int], step: int, nano: int, name: str) -> None:
        """Raise unless an amount fits. Later spans hold less of the past, so that those that end here decide."""
        if self.length is not None and charges and step < max(charges):
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
                most = Fraction(limit, NANO)
                spent, left = (say_amount(Fraction(each, NANO), most) for each in (before, limit - before))
                raise BudgetExceeded(
                    f"amount is {nano / NANO:.10g}{at}: {who} spent {spent} of {float(most):.10g}, {left} is left"
                )

    def charge(self, change: Accounts, name: str, nano: int, atto: int = 0, step: int = 0) -> int:
        """Charge within a transaction, and return the billionths that the account's own span has spent then.

        Raises BudgetExceeded if less is left, of billionths or of failure probability (`atto`, in 10⁻¹⁸).
        """
        charges = change.charges(name)
        self.allow(charges, step, nano, name)
        if atto:
            failed, failing = failed_so_far(change, name), self.failing or 0
            if failed + atto > failing:
                raise BudgetExceeded(
                    f"probability is {atto / ATTO:.10g}: account {name!r} has spent {failed / ATTO:.10g} of "
                    f"{failing / ATTO:.10g}, {(failing - failed) / ATTO:.10g} is left"
                )
            change.store(name, _FAILING, failed + atto)
        # A total counts all its charges, whatever steps they are at: it goes on at the last one.
        change.charge(name, max(charges, default=0) if self.length is None else step, nano)
        lengths = [length for length, _ in self.spans]
        if None not in lengths:
            change.forget(name, step - max(length for length in lengths if length is not None))
        return spent_within(charges, step, self.length) + nano


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
    def read(cls, accounts: Accounts, name: str, chain: str) -> ChainCharge:
        """Return the charge of a chain that an account of a ledger keeps; nothing of one that it does not know."""
        return cls(**(accounts.fact(name, CHAIN + chain) or {}))

    def keep(self, change: Accounts, name: str, chain: str) -> None:
        """Keep the charge with an account of a ledger."""
        change.store(name, CHAIN + chain, asdict(self))

    def due(self, nano: int) -> int:
        """Return the billionths that are still to be charged for a chain to cost `nano` in all."""
        return max(0, nano - self.nano)

    def after_charge(self, nano: int, token: str | None, source: str | None, chain: str) -> ChainCharge:
        """Return the charge once `due` is charged for a release from the state `token`, which came of `source`."""
        self._check_last(token, source, chain)
        return ChainCharge(max(nano, self.nano), token, None)

    def after_settling(self, token: str, source: str | None, chain: str) -> ChainCharge:
        """Return the charge once the state of the release is written."""
        self._check_last(token, source, chain)
        # A charge from this very state still awaits the next one.
        return self if self.token is None and token == self.source else ChainCharge(self.nano, source, token)

    def _check_last(self, token: str | None, source: str | None, chain: str) -> None:
        """Raise InputError unless a state is the last one, or may be: the first that came of the last charge."""
        last = token == self.token if self.token is not None else token == self.source or source == self.source
        if self.nano and not last:
            raise InputError(
                f"the state of chain {chain} has been used already, as its account knows (is it a copy?): a second "
                "release from it would not be paid for; nothing was drawn or charged; go on with the last state of "
                "the chain"
            )
