"""Rules of accounts: what every span of steps may spend, and what amounts and chains of releases cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deltahist.budget import Budget, Charge, ceil_nano, floor_nano, read_amount
from deltahist.errors import NANO, DamagedFile, InputError, check_whole, is_number, normalize_name
from deltahist.privacy import Guarantee
from deltahist.space.neighbourhood import Limit, describe_limits, limits_of, read_lasting

#: Characters of a key or a name.
_LONGEST = 200


def check_text(**given: Any) -> str:
    """Return the one keyword's value in its normal form: a name of 1 to 200 printable characters, or InputError."""
    (name,) = given
    text = normalize_name(**given)
    if len(text) > _LONGEST or not text.isprintable():
        raise InputError(f"{name} is {text[:80]!r}: it must have at most {_LONGEST} printable characters")
    return text


@dataclass(frozen=True)
class Rule:
    """The rule of an account: spans of steps, each with a limit in whole billionths.

    A total is one span without end. A window of steps is a span that moves on, and may have longer ones beside it.

    Parameters
    ----------
    unit : "epsilon" or "rho". limit : in billionths. length : steps of the account's own span, None for all.
    longer : further spans, each with its limit as a multiple of the account's own.

    >>> Rule.of(epsilon=1).describe()
    {'kind': 'total', 'epsilon_nano': 1000000000}
    >>> Rule.of(epsilon=1, length=7, limits=[(30, 2)]).spans
    ((7, 1000000000), (30, 2000000000))
    """

    unit: str
    limit: int
    length: int | None = None
    longer: tuple[Limit, ...] = ()

    @classmethod
    def of(
        cls, epsilon: Any = None, rho: Any = None, length: Any = None, limits: Iterable[tuple[Any, Any]] = ()
    ) -> Rule:
        """Return the rule for a limit; InputError on what `Budget` refuses, or less than a billionth for each step."""
        length = None if length is None else check_whole(length=length)
        unit = Budget(epsilon, rho).unit
        limit = floor_nano(**{unit: epsilon if rho is None else rho})
        if limit < (length or 1):
            raise InputError(f"{unit} is {limit / NANO:g}: it must be at least a billionth for each step")
        return cls(unit, limit, length, read_lasting(limits, length))

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Rule:
        """Read the rule that a ledger keeps; DamagedFile if it is neither that of a total nor that of a window."""
        unit = "epsilon" if "epsilon_nano" in kept else "rho"
        try:
            longer = read_lasting(limits_of(kept.get("limits", [])), kept.get("length"))
            return cls(unit, kept[f"{unit}_nano"], kept.get("length"), longer)
        except (KeyError, TypeError, ValueError) as problem:
            raise DamagedFile(f"the ledger is damaged: an account has the rule {str(kept)[:80]}: {problem!r}") from None

    def describe(self) -> dict[str, Any]:
        """Return the rule as a ledger keeps it (JSON)."""
        return {
            **({"kind": "total"} if self.length is None else {"kind": "window", "length": self.length}),
            f"{self.unit}_nano": self.limit,
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
    def most(self) -> int | None:
        """The billionths that all steps there will ever be may spend; None if only windows are limited."""
        return dict(self.spans).get(None)

    @property
    def equal(self) -> Fraction:
        """The share of a step that never runs out, whatever windows it is in, rounded down to billionths.

        Raises InputError if there is a limit for all steps: whatever is charged again and again runs out.
        """
        if self.most is not None:
            most = f"{self.most / NANO:g} {self.unit}"
            raise InputError(
                f"limits hold {most} for all steps: no equal share lasts for ever; say what each step gets"
            )
        length, limit = self.binding
        return Fraction(limit // length, NANO)

    @property
    def binding(self) -> tuple[int, int]:
        """The steps of the span that equal shares fill first, and its limit in billionths."""
        return min(((length or 1, limit) for length, limit in self.spans), key=lambda span: span[1] // span[0])

    def cost(self, name: str, amount: Any) -> Charge:
        """Return the charge for an amount, rounded up to billionths; `name` is that of the account.

        Raises InputError unless it is a number above zero, or a guarantee or budget in the account's unit.
        """
        if isinstance(amount, Budget):
            amount = amount.guarantee
        elif not isinstance(amount, Guarantee):
            if not is_number(amount) or not amount > 0:
                raise InputError(f"amount is {amount!r}: it must be a number above zero, a Guarantee or a Budget")
            amount = Guarantee(**{self.unit: read_amount(amount=amount)})
        own = amount.epsilon if self.unit == "epsilon" else amount.rho
        if own is None or amount.probability:
            other = "rho" if own is None and amount.rho is not None else "epsilon with a failure probability"
            raise InputError(
                f"account {name!r} keeps {self.unit}, and the release spends {other}: use an account in rho for "
                "Gaussian noise, and one in epsilon for Laplace noise"
            )
        charge = Charge(Fraction(ceil_nano(amount=own), NANO), self.unit)
        if not charge.amount:
            raise InputError(f"amount is 0 of {self.unit}: it must be above zero")
        return charge


@dataclass(frozen=True)
class ChainCharge:
    """The charge of a chain of releases, and the state that it was for: an account pays once from each state.

    A charge is made before noise is drawn. Until the state that holds the noise is settled, the charge may be used
    again to refine the same state: whatever was drawn meanwhile was not handed out. The first state that says it came
    of that one settles it.

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
            said = "nothing was drawn or charged; use the last state of the chain"
            raise InputError(f"the state of chain {chain} has been used already: {said}")
