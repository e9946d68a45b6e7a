"""Budgets, charges and payments in ε or ρ, as exact fractions."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deltahist.errors import NANO, as_exact_fraction, as_printed_fraction, check_choice, check_finite, check_whole
from deltahist.laws import LAWS, Guarantee, Law

#: Symbols of the budget units.
LETTERS = {"epsilon": "ε", "rho": "ρ"}


def read_amount(**amount: Any) -> Fraction:
    """Return the argument's value as an exact fraction. A float is read as the decimal that it prints.

    Ten times 0.1 must be 1, although the float 0.1 exceeds 1/10. Raises InputError unless the value is 0 to 10^9.

    >>> read_amount(epsilon=0.1)
    Fraction(1, 10)
    """
    # The limit keeps sums of many amounts within 64 bits.
    return as_printed_fraction(check_finite(least=0, most=10**9, **amount))


def ceil_nano(**amount: Any) -> int:
    """Return an amount to charge in billionths, rounded up."""
    return -int(-read_amount(**amount) * NANO // 1)


def floor_nano(**amount: Any) -> int:
    """Return a limit in billionths, rounded down."""
    return int(read_amount(**amount) * NANO // 1)


def format_amount(amount: Fraction, limit: Fraction) -> str:
    """Return an amount as decimal text, rounded to a millionth of its limit.

    Shares are rounded down to billionths, so a few billionths of a limit may be left over. The text shows that as 0.

    >>> format_amount(Fraction(3, 10), Fraction(1)), format_amount(Fraction(48, 10**9), Fraction(1))
    ('0.3', '0')
    """
    return f"{round(float(amount), 6 - math.floor(math.log10(limit)) if limit else 0):.10g}"


@dataclass(frozen=True)
class Charge:
    """An amount that an account was charged, in the account's unit. `publish(..., epsilon=charge)` spends it.

    Spend each charge only once, because the account does not notice a second use. `charge / n` is one of n equal parts.

    Parameters
    ----------
    amount : ε or ρ, in whole billionths unless the charge was divided.
    unit : "epsilon" or "rho".

    >>> half = Charge(Fraction(1, 3), "epsilon") / 2
    >>> print(half, half.unit)
    1/6 epsilon
    """

    amount: Fraction
    unit: str

    def __str__(self) -> str:
        return str(self.amount)

    def __float__(self) -> float:
        return float(self.amount)

    def __truediv__(self, parts: int) -> Charge:
        return Charge(self.amount / check_whole(parts=parts), self.unit)

    @property
    def nano(self) -> int:
        """The amount in billionths."""
        return int(self.amount * NANO)


@dataclass(frozen=True)
class Budget:
    """The budget of a publication.

    Parameters
    ----------
    epsilon : pure ε for Laplace noise, as a number or a `Charge`.
    rho : ρ of zCDP for Gaussian noise, as a number or a `Charge`.

    Raises InputError unless exactly one is given, as a finite number above zero or a charge in the same unit.

    >>> Budget(epsilon=0.5).guarantee
    Guarantee(epsilon=Fraction(1, 2), rho=None)
    """

    epsilon: Fraction | float | Charge | None = None
    rho: Fraction | float | Charge | None = None

    def __post_init__(self) -> None:
        _ = self.guarantee

    @functools.cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee, in exact ε or ρ, of a mechanism that spends the whole budget."""
        exact = {}
        for unit, given in (("epsilon", self.epsilon), ("rho", self.rho)):
            if isinstance(given, Charge):
                check_choice((unit,), **{f"unit of the charge for {unit}": given.unit})
                given = given.amount
            exact[unit] = None if given is None else as_exact_fraction(**{unit: given})
        return Guarantee(**exact)

    @property
    def amount(self) -> Fraction:
        """The exact ε or ρ of the budget."""
        return self.guarantee.amount

    def law(self, *, refinable: bool = False) -> type[Law]:
        """Return the first law in `LAWS` whose noise spends this unit and, if `refinable`, can be refined."""
        return next(law for law in LAWS.values() if law.unit == self.unit and refinable in law.refinable)

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    def of(self, amount: Fraction) -> Budget:
        """Return a budget of another amount in the same unit."""
        return Budget(**{self.unit: amount})

    @property
    def exact(self) -> tuple[Fraction | None, Fraction | None]:
        """The exact ε and the exact ρ. One of them is None."""
        return self.guarantee.epsilon, self.guarantee.rho


@dataclass(frozen=True)
class Population:
    """The joint spending of all accounts about the same people. It is public, as budgets are.

    name : name of the population. accounts : number of its accounts, not counting people's own budgets.
    sums : for each unit, its name, the amount spent, the joint limit or None, and the limit for one window per stream.

    own_budgets : whether people also pay from their own budgets. Such spending is private, so it is not included.

    >>> print(Population("everyone", 2, (("epsilon", Fraction(3), None, Fraction(2)),)))
    the 2 accounts of population 'everyone' have spent ε = 3 together, without a limit (one window of each stream: 2)
    """

    name: str
    accounts: int
    sums: tuple[tuple[str, Fraction, Fraction | None, Fraction], ...]
    own_budgets: bool = False

    def __str__(self) -> str:
        parts = []
        for unit, spent, most, window in self.sums:
            part = f"{LETTERS[unit]} = {format_amount(spent, window)}"
            if most is None:
                part += f" together, without a limit (one window of each stream: {format_amount(window, window)})"
            else:
                part += f" of {format_amount(most, most)} together"
            parts.append(part)
        who = "the only account" if self.accounts == 1 else f"the {self.accounts:,} accounts"
        has = "has" if self.accounts == 1 else "have"
        own = "; people's own budgets are additional" if self.own_budgets else ""
        return f"{who} of population {self.name!r} {has} spent {' and '.join(parts) or 'nothing'}{own}"

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        names = ("unit", "spent", "most", "in_any_window")
        rows = [[None if each is None else str(each) for each in one] for one in self.sums]
        return {**vars(self), "sums": [dict(zip(names, each, strict=True)) for each in rows]}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Population:
        """Recreate a population from its description."""
        sums = []
        for each in description["sums"]:
            spent, most, window = (each[name] for name in ("spent", "most", "in_any_window"))
            limit = None if most is None else Fraction(most)
            sums.append((check_choice(("epsilon", "rho"), unit=each["unit"]), Fraction(spent), limit, Fraction(window)))
        accounts = check_whole(least=0, accounts=description["accounts"])
        return cls(str(description["name"]), accounts, tuple(sums), bool(description["own_budgets"]))


@dataclass(frozen=True)
class Payment:
    """The payment for a release: the account, its limit and its spending so far. It is public, as budgets are.

    account : name of the account. unit : "epsilon" or "rho".
    limit : limit of the account. spent : spending of the account so far, including this release.
    steps : number of time steps that the limit and the spending cover; None if they cover all releases.
    population : joint spending so far of all accounts about the same people.
    """

    account: str
    unit: str
    limit: Fraction
    spent: Fraction
    steps: int | None = None
    population: Population | None = None

    def __post_init__(self) -> None:
        check_choice(("epsilon", "rho"), unit=self.unit)
        if self.steps is not None:
            check_whole(steps=self.steps)
        check_finite(above=0, most=self.limit, spent=self.spent)

    def __str__(self) -> str:
        letter = LETTERS[self.unit]
        spent, limit = (format_amount(each, self.limit) for each in (self.spent, self.limit))
        then = f"and {format_amount(self.limit - self.spent, self.limit)} was left"
        if self.steps is not None:
            then = f"in the last {self.steps:,} steps"
        people = "" if self.population is None else f"; {self.population}"
        return f"{self.account!r} has spent {letter} = {spent} of {limit}, including this release, {then}{people}"

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        people = None if self.population is None else self.population.describe()
        return {**vars(self), "limit": str(self.limit), "spent": str(self.spent), "population": people}

    @classmethod
    def from_description(cls, description: dict[str, Any] | None) -> Payment | None:
        """Recreate a payment from its description. Returns None if no account paid for the release."""
        if description is None:
            return None
        limit, spent = (Fraction(description[name]) for name in ("limit", "spent"))
        found = description["population"]
        people = None if found is None else Population.from_description(found)
        return cls(str(description["account"]), description["unit"], limit, spent, description["steps"], people)
