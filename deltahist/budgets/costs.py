"""What an account of a ledger keeps, and what an amount costs it: ε, ρ, or ε and a failure probability."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deltahist.budget import Budget, Charge
from deltahist.budgets.nano import allowed, as_said, charged, exceeded
from deltahist.errors import NANO, BudgetExceeded, InputError, is_number
from deltahist.privacy import Guarantee

if TYPE_CHECKING:
    from deltahist.budgets.accounts import Accounts

#: Failure probabilities are whole numbers of 10⁻¹⁸: a billionth would be a large one.
ATTO = 10**18
#: Where the sum of failure probabilities stands; all else of a total is charged at one step.
_FAILING, _STEP = "probability charged", 0


@dataclass(frozen=True)
class Cost:
    """What is charged: billionths of the account's unit, and 10⁻¹⁸ of failure probability."""

    nano: int
    atto: int = 0


@dataclass(frozen=True)
class TotalAccount:
    """An account for all that is ever published, as its rule in a ledger says (that of `Account.total`).

    Parameters
    ----------
    unit : "epsilon" or "rho". limit : in billionths.
    failing : in 10⁻¹⁸, the failure probabilities that may be spent besides ε; None if it pays for pure ε only.

    >>> TotalAccount.of(epsilon=1, probability=1e-6).rule
    {'kind': 'total', 'epsilon_nano': 1000000000, 'probability_atto': 1000000000000}
    """

    unit: str
    limit: int
    failing: int | None = None

    @classmethod
    def of(cls, epsilon: Any = None, rho: Any = None, probability: Any = None) -> TotalAccount:
        """The rule for a limit; InputError on what `Budget` refuses, or less than a billionth."""
        budget = Budget(epsilon, rho, probability)
        limit = allowed(**{budget.unit: epsilon if rho is None else rho})
        failing = None if probability is None else int(as_said(probability=probability) * ATTO)
        if limit < 1:
            raise InputError(f"{budget.unit} is {float(budget.amount):g}: an account's limit is at least a billionth")
        if failing == 0:
            raise InputError(f"probability is {probability!r}: an account's limit is at least 10⁻¹⁸")
        return cls(budget.unit, limit, failing)

    @classmethod
    def kept(cls, accounts: Accounts, name: str) -> TotalAccount:
        """What a ledger keeps; InputError if there is no such account, or it is of another kind."""
        rule = rule_of(accounts, name)
        if rule.get("kind") != "total":
            raise InputError(
                f"account {name!r} is of kind {rule.get('kind')!r}: only a total is charged by its name; a window of "
                "steps is charged by `Window`, people's own budgets by the queries that use their records"
            )
        unit = "epsilon" if "epsilon_nano" in rule else "rho"
        return cls(unit, rule[f"{unit}_nano"], rule.get("probability_atto"))

    @property
    def rule(self) -> dict[str, Any]:
        """As a ledger keeps it."""
        failing = {} if self.failing is None else {"probability_atto": self.failing}
        return {"kind": "total", f"{self.unit}_nano": self.limit, **failing}

    def cost(self, name: str, amount: Any) -> Cost:
        """What an amount costs, rounded up; `name` is that of the account.

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
            amount = Guarantee(**{self.unit: as_said(amount=amount)})
        own = own_amount(amount, self.unit, name, failing=self.failing is not None)
        cost = Cost(charged(amount=own), -int(-amount.probability * ATTO // 1))
        if not cost.nano:
            raise InputError(f"amount is 0 of {self.unit}: what is charged must be more than nothing")
        return cost

    def pay(self, change: Accounts, name: str, cost: Cost) -> Charge:
        """Charge it within a transaction; BudgetExceeded if less is left, of either sum."""
        held = sum(change.charges(name).values())
        if held + cost.nano > self.limit:
            raise exceeded(f"amount is {cost.nano / NANO:.10g}", f"account {name!r} has", held, self.limit)
        if cost.atto:
            assert self.failing is not None
            failed = self.failed(change, name)
            if failed + cost.atto > self.failing:
                raise BudgetExceeded(
                    f"probability is {cost.atto / ATTO:.10g}: account {name!r} has spent {failed / ATTO:.10g} of "
                    f"{self.failing / ATTO:.10g}, {(self.failing - failed) / ATTO:.10g} is left"
                )
            change.store(name, _FAILING, failed + cost.atto)
        change.charge(name, _STEP, cost.nano)
        return self.charge(cost)

    def charge(self, cost: Cost) -> Charge:
        """What a cost pays for."""
        return Charge(Fraction(cost.nano, NANO), self.unit, Fraction(cost.atto, ATTO))

    def failed(self, accounts: Accounts, name: str) -> int:
        """The sum of failure probabilities that were charged."""
        return int(accounts.fact(name, _FAILING) or 0)


def rule_of(accounts: Accounts, name: str) -> dict[str, Any]:
    """The rule of an account; InputError if it is not there."""
    rule = accounts.rule(name)
    if rule is None:
        others = ", ".join(map(repr, accounts.rules()))
        raise InputError(f"account {name!r} is not there: open it first" + (others and f"; there are {others}"))
    assert isinstance(rule, dict)
    return rule


def own_amount(guarantee: Guarantee, unit: str, name: str, *, failing: bool = False) -> Fraction:
    """What a guarantee spends of an account's unit.

    Raises InputError if it is another one, or holds but for a probability that the account does not keep (`failing`).
    """
    amount = guarantee.epsilon if unit == "epsilon" else guarantee.rho
    if amount is None or (guarantee.probability and not failing):
        other = "epsilon" if guarantee.rho is None else "rho"
        but = f" but for a probability of {float(guarantee.probability):g}" if guarantee.probability else ""
        pure = "pure " if unit == "epsilon" and not failing else ""
        cure = f"spend {unit}, or take an account in rho (zCDP) for Gaussian noise"
        if but and unit == "epsilon":
            cure += ", or one that was opened with a probability"
        raise InputError(
            f"account {name!r} keeps {pure}{unit}, and the release spends {other}{but}: the two do not add up; {cure}"
        )
    return amount
