"""Budget: ε, ρ, or ε with a failure probability; read and checked in one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deltahist.errors import InputError, as_printed, exact, one_of, positive, whole
from deltahist.privacy import Guarantee


class Charge(Fraction):
    """An amount that an account has charged, of ε or of ρ; arithmetic keeps the unit.

    `probability` is the failure probability that was charged with it; a part of it pays for pure ε.

    An account of ε promises pure ε, an account of ρ promises zCDP: a publisher takes the amount as what it was
    charged for and as nothing else. It can be divided, and several can be added up; what would make more of it
    is refused. Each part of it pays for one release: who publishes twice with one amount has spent it twice (the
    account cannot see that).

    >>> half = Charge(Fraction(1, 3), "epsilon") / 2
    >>> half, half.unit
    (Charge(1, 6), 'epsilon')
    """

    unit: str
    probability: Fraction

    def __new__(cls, amount: Fraction, unit: str, probability: Fraction = Fraction(0)) -> Charge:
        out = super().__new__(cls, amount)
        out.unit = one_of(("epsilon", "rho"), unit=unit)
        out.probability = probability
        return out

    def __reduce__(self) -> Any:
        return Charge, (Fraction(self.numerator, self.denominator), self.unit, self.probability)

    def __copy__(self) -> Charge:
        return self

    def __deepcopy__(self, memo: Any) -> Charge:
        return self


def _staying_charged(name: str) -> Callable[[Charge, Any], Any]:
    plain = getattr(Fraction, name)

    def method(self: Charge, other: Any) -> Any:
        if isinstance(other, Charge) and other.unit != self.unit:
            raise InputError(f"amounts of {self.unit} and of {other.unit} were charged: they do not add up")
        if isinstance(other, float):  # as people mean it: floats would round upwards
            other = as_printed(other)
        out = plain(self, other)
        paid = Fraction(self) + (Fraction(other) if isinstance(other, Charge) else 0)
        if isinstance(out, Fraction) and out > paid:
            raise _made_more(Charge(paid, self.unit), out)
        return Charge(out, self.unit) if isinstance(out, Fraction) else out

    return method


def _made_more(paid: Charge, out: Fraction | float) -> InputError:
    return InputError(
        f"{float(paid):g} of {paid.unit} was charged, and {float(out):g} is to be spent: what was charged can be "
        "divided, not made more; charge more first"
    )


def _one_operand(name: str) -> Callable[..., Any]:
    plain = getattr(Fraction, name)

    def method(self: Charge, *more: Any) -> Any:
        out = plain(Fraction(self), *more)
        if out > self:
            raise _made_more(self, out)
        # A power may be no fraction: a float is rounded down to one.
        return Charge(out if isinstance(out, Fraction) else Fraction(math.nextafter(out, 0)), self.unit)

    return method


_TWO = ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__mod__")
for _name in _TWO:
    setattr(Charge, _name, _staying_charged(_name))
for _name in ("__pos__", "__neg__", "__abs__", "__pow__", "__round__", "limit_denominator"):
    setattr(Charge, _name, _one_operand(_name))


@dataclass(frozen=True)
class Budget:
    """The budget of a publication.

    Parameters
    ----------
    epsilon : pure ε; or
    rho : ρ of zCDP.
    probability : with epsilon, the failure probability δ_prob that is allowed.

    Raises
    ------
    InputError
        Unless exactly one of epsilon and rho is given, finite and above zero; on a probability with rho, or not
        between 0 and 1; on an amount that was charged as something else.

    >>> Budget(epsilon=0.5).guarantee
    Guarantee(epsilon=Fraction(1, 2), rho=None, probability=Fraction(0, 1))
    """

    epsilon: Fraction | float | None = None
    rho: Fraction | float | None = None
    probability: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            given = "neither epsilon nor rho is" if self.rho is None else "both epsilon and rho are"
            raise InputError(
                f"{given} given: it must be one of them (pure ε with Laplace noise, ρ-zCDP with Gaussian)"
            )
        given = getattr(self, self.unit)
        if isinstance(given, Charge) and given.unit != self.unit:
            raise InputError(
                f"{self.unit} is {float(given):g}, but it was charged as {given.unit}: it must be spent as what it is"
            )
        object.__setattr__(self, self.unit, exact(**{self.unit: given}))
        if self.probability is None:
            return
        if self.rho is not None:
            raise InputError(
                "probability goes with epsilon: rho (zCDP) holds for every failure probability at once"
            )
        positive(probability=self.probability)
        if self.probability >= 1:
            raise InputError(
                f"probability is {self.probability!r}: it must lie between 0 and 1, such as 1e-6"
            )
        least = min(as_printed(self.probability), Fraction(self.probability))
        if isinstance(given, Charge) and given.probability < least:
            paid = f"a probability of {float(given.probability):g}" if given.probability else "pure ε"
            raise InputError(
                f"probability is {self.probability!r} with an epsilon that was charged to an account of {paid}, which "
                "promises no such failure probability: leave it out, or keep the account in rho (zCDP), which pays for "
                "Gaussian noise"
            )

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def amount(self) -> Fraction:
        """ε or ρ."""
        amount = getattr(self, self.unit)
        assert isinstance(amount, Fraction)
        return amount

    def of(self, amount: Fraction) -> Budget:
        """Return another amount of the same unit."""
        return Budget(epsilon=amount) if self.rho is None else Budget(rho=amount)

    @property
    def exact(self) -> tuple[Fraction | None, Fraction | None]:
        """ε and ρ, one of which is None."""
        return (self.amount, None) if self.rho is None else (None, self.amount)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of a mechanism that spends the whole budget."""
        if self.rho is not None:
            return Guarantee(rho=self.amount)
        return Guarantee(epsilon=self.amount, probability=Fraction(self.probability or 0))


@dataclass(frozen=True)
class Payment:
    """The payment for a release: the account, its limit and its sum by then; public, as budgets are.

    Parameters
    ----------
    account : its name. unit : "epsilon" or "rho".
    limit : of the account. spent : so far, this release with it.
    steps : number of steps of time that limit and spent are about; None for all that is ever published.

    Raises
    ------
    InputError
        Unless something has been spent, and no more than the limit.
    """

    account: str
    unit: str
    limit: Fraction
    spent: Fraction
    steps: int | None = None

    def __post_init__(self) -> None:
        one_of(("epsilon", "rho"), unit=self.unit)
        if self.steps is not None:
            whole(steps=self.steps)
        if not isinstance(self.account, str) or not 0 < self.spent <= self.limit:
            raise InputError(
                f"account {self.account!r} has spent {float(self.spent):g} of {float(self.limit):g}: it must be more "
                "than nothing and no more than the limit"
            )

    @property
    def words(self) -> str:
        """The payment in words."""
        letter = "ε" if self.unit == "epsilon" else "ρ"
        sum_ = f"{self.account!r} has spent {letter} = {float(self.spent):.10g} of {float(self.limit):.10g}"
        return f"{sum_}, this release with it" + (
            "" if self.steps is None else f", in the {self.steps:,} steps that end with it"
        )

    def describe(self) -> dict[str, Any]:
        """Describe the payment as JSON."""
        return {**vars(self), "limit": str(self.limit), "spent": str(self.spent)}

    @classmethod
    def from_description(cls, description: dict[str, Any] | None) -> Payment | None:
        """Read a description; None for a release that no account paid for."""
        if description is None:
            return None
        limit, spent = (Fraction(description[name]) for name in ("limit", "spent"))
        return cls(description["account"], description["unit"], limit, spent, description["steps"])
