"""Budgets and amounts of ε or ρ, read and checked in one place."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deltahist.errors import (
    NANO,
    InputError,
    as_exact_fraction,
    as_printed_fraction,
    check_choice,
    check_whole,
    is_number,
)
from deltahist.laws import LAWS, Guarantee, Law

#: The symbols of the units of budgets.
LETTERS = {"epsilon": "ε", "rho": "ρ"}


def read_amount(**amount: Any) -> Fraction:
    """Return the given keyword's value as an exact fraction: a float counts as the decimal that it prints as.

    Budgets are typed and added up by people: ten times 0.1 must be 1, although the binary number is a little more.

    Raises InputError unless it is a finite number, zero or more, and at most 10^9.

    >>> read_amount(epsilon=0.1)
    Fraction(1, 10)
    """
    ((name, value),) = amount.items()
    # Sums of many amounts must stay within 64 bits.
    if not is_number(value) or value != value or not 0 <= value <= 10**9:
        raise InputError(f"{name} is {value!r:.200}: it must be a finite number from 0 to 10^9")
    return as_printed_fraction(value)


def ceil_nano(**amount: Any) -> int:
    """Return the billionths that an amount is charged as: rounded up."""
    return -int(-read_amount(**amount) * NANO // 1)


def floor_nano(**amount: Any) -> int:
    """Return the billionths that a limit allows: rounded down."""
    return int(read_amount(**amount) * NANO // 1)


def say_amount(amount: Fraction, limit: Fraction) -> str:
    """Return an amount to a millionth of its limit, as people type it.

    Shares are rounded down to billionths, so a limit may keep a few billionths, which are shown as 0.

    >>> say_amount(Fraction(3, 10), Fraction(1)), say_amount(Fraction(48, 10**9), Fraction(1))
    ('0.3', '0')
    """
    digits = 6 - math.floor(math.log10(limit)) if limit else 0
    return f"{round(float(amount), digits):.10g}"


@dataclass(frozen=True)
class Charge:
    """An amount that an account has charged: `publish(..., epsilon=charge)` spends it in the unit of the account.

    Spend each charge on one release: the account does not notice a second one. A charge divides into equal parts.

    Parameters
    ----------
    amount : of ε or ρ, whole billionths unless it was divided.
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
        """Return one of several equal parts."""
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
    epsilon : pure ε, spent by Laplace noise; or
    rho : ρ of zCDP, spent by Gaussian noise. Either is a number, or the charge of an account.

    Raises InputError unless exactly one of them is given, finite and above zero, and a charge is spent in its unit.

    >>> Budget(epsilon=0.5).guarantee
    Guarantee(epsilon=Fraction(1, 2), rho=None)
    """

    epsilon: Fraction | float | Charge | None = None
    rho: Fraction | float | Charge | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise InputError("a budget must be either epsilon (Laplace noise) or rho (zCDP, Gaussian noise)")
        _ = self.amount

    @functools.cached_property
    def amount(self) -> Fraction:
        """ε or ρ, exact."""
        given = self.epsilon if self.rho is None else self.rho
        if isinstance(given, Charge):
            check_choice((self.unit,), **{f"unit of the charge for {self.unit}": given.unit})
            given = given.amount
        return as_exact_fraction(**{self.unit: given})

    def law(self, *, refinable: bool = False) -> type[Law]:
        """Return the law of the noise that spends the budget: the first of its unit."""
        return next(law for law in LAWS.values() if law.unit == self.unit and refinable in law.refinable)

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    def of(self, amount: Fraction) -> Budget:
        """Return another amount of the same unit."""
        return Budget(amount) if self.rho is None else Budget(rho=amount)

    @property
    def exact(self) -> tuple[Fraction | None, Fraction | None]:
        """ε and ρ, one of which is None."""
        return (self.amount, None) if self.rho is None else (None, self.amount)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of a mechanism that spends the whole budget."""
        return Guarantee(*self.exact)


@dataclass(frozen=True)
class Population:
    """What all accounts of the same people have spent together. Public, as budgets are.

    Parameters
    ----------
    name : of the people. accounts : how many they have, without people's own budgets.
    sums : for each unit, what has been spent, the limit of it (None without one), and the most in any one window of
        each stream.
    own_budgets : whether people also pay from budgets of their own. What these have spent is private, and comes on top.

    >>> print(Population("everyone", 2, (("epsilon", Fraction(3), None, Fraction(2)),)))
    the 2 accounts of population 'everyone' have spent ε = 3 together, without a limit (one window of each stream: 2)
    """

    name: str
    accounts: int
    sums: tuple[tuple[str, Fraction, Fraction | None, Fraction], ...]
    own_budgets: bool = False

    def __str__(self) -> str:
        """Say what the accounts have spent, and what they may spend."""
        parts = []
        for unit, spent, most, window in self.sums:
            part = f"{LETTERS[unit]} = {say_amount(spent, window)}"
            if most is None:
                part += f" together, without a limit (one window of each stream: {say_amount(window, window)})"
            else:
                part += f" of {say_amount(most, most)} together"
            parts.append(part)
        who = "the only account" if self.accounts == 1 else f"the {self.accounts:,} accounts"
        has = "has" if self.accounts == 1 else "have"
        own = "; people's own budgets come on top" if self.own_budgets else ""
        return f"{who} of population {self.name!r} {has} spent {' and '.join(parts) or 'nothing'}{own}"

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        names = ("unit", "spent", "most", "in_any_window")
        texts = [[None if each is None else str(each) for each in one] for one in self.sums]
        return {**vars(self), "sums": [dict(zip(names, each, strict=True)) for each in texts]}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Population:
        """Make the object that `describe` described."""
        sums = []
        for each in description["sums"]:
            spent, most, window = (each[name] for name in ("spent", "most", "in_any_window"))
            limit = None if most is None else Fraction(most)
            sums.append((check_choice(("epsilon", "rho"), unit=each["unit"]), Fraction(spent), limit, Fraction(window)))
        accounts = check_whole(least=0, accounts=description["accounts"])
        return cls(str(description["name"]), accounts, tuple(sums), bool(description["own_budgets"]))


@dataclass(frozen=True)
class Payment:
    """The payment for a release: the account, its limit, and what it had spent by then. Public, as budgets are.

    Raises InputError unless something has been spent, and no more than the limit.

    Parameters
    ----------
    account : its name. unit : "epsilon" or "rho".
    limit : of the account. spent : so far, including this release.
    steps : number of steps of time that limit and spent are about; None for all that is ever published.
    population : what all accounts of the same people had spent by then.
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
        if not isinstance(self.account, str) or not 0 < self.spent <= self.limit:
            raise InputError(
                f"spent is {float(self.spent):g}: it must be above zero and at most the limit, {float(self.limit):g}"
            )

    def __str__(self) -> str:
        """Say who paid, how much in all, and what was left."""
        letter = LETTERS[self.unit]
        spent, limit = (say_amount(each, self.limit) for each in (self.spent, self.limit))
        then = f"and {say_amount(self.limit - self.spent, self.limit)} was left"
        if self.steps is not None:
            then = f"in the {self.steps:,} steps that end with it"
        people = "" if self.population is None else f"; {self.population}"
        return f"{self.account!r} has spent {letter} = {spent} of {limit}, this release with it, {then}{people}"

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        people = None if self.population is None else self.population.describe()
        return {**vars(self), "limit": str(self.limit), "spent": str(self.spent), "population": people}

    @classmethod
    def from_description(cls, description: dict[str, Any] | None) -> Payment | None:
        """Make the object that `describe` described; None for a release that no account paid for."""
        if description is None:
            return None
        limit, spent = (Fraction(description[name]) for name in ("limit", "spent"))
        found = description["population"]
        people = None if found is None else Population.from_description(found)
        return cls(description["account"], description["unit"], limit, spent, description["steps"], people)
