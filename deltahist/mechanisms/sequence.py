"""The place of a release in a sequence: in a chain of ever finer releases, or in a stream of steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from deltahist.budget import Budget
from deltahist.errors import InputError, whole
from deltahist.preprocessing import Clock
from deltahist.space.profile import Limit, describe_limits, limits_of, read_lasting

#: Longest chain that is read from a file.
_LONGEST = 10_000
#: No start lies before that many seconds, or step numbers.
_FAR = 10**15


@dataclass(frozen=True)
class Chain:
    """Which of the releases of a chain one is; public.

    Parameters
    ----------
    name : 32 hexadecimal digits, drawn at random; empty for a more private copy of a release that is in no chain.
    amounts : ε or ρ of the releases up to this one, rising: all of them together cost the last one.
    copied : ε or ρ of a more private copy that was made of that last one (`dh.tighten`); None for the release itself.
    origin : of a copy: SHA-256 of the release that it was made of, which all copies of that release state. Together
        with that release they cost what it does.

    Raises
    ------
    InputError
        If the amounts do not rise, or the copy is not more private.

    >>> chain = Chain("0" * 32, (Fraction(1), Fraction(2)))
    >>> chain.finer(Fraction(3)).amounts[-1], chain.finer(Fraction(3)).number
    (Fraction(3, 1), 3)
    """

    name: str
    amounts: tuple[Fraction, ...]
    copied: Fraction | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{32}" if self.copied is None else r"([0-9a-f]{32})?", self.name):
            raise InputError(f"name of a chain is {self.name!r}: it must be 32 hexadecimal digits")
        if not 0 < len(self.amounts) <= _LONGEST or not self.amounts[0] > 0:
            raise InputError(
                f"a chain of {len(self.amounts):,} amounts: there must be 1 to {_LONGEST:,}, above zero"
            )
        for before, now in zip(self.amounts, self.amounts[1:], strict=False):
            if not before < now:
                raise InputError(
                    f"amounts of a chain go from {float(before):.10g} to {float(now):.10g}: they must rise"
                )
        if self.copied is not None and not 0 < self.copied < self.amounts[-1]:
            raise InputError(
                f"a copy at {float(self.copied):.10g} of a release at {float(self.amounts[-1]):.10g}: it must be less"
            )
        if not re.fullmatch("" if self.copied is None else r"[0-9a-f]{64}", self.origin):
            raise InputError(
                f"origin is {self.origin!r}: a copy must state the SHA-256 of the release that it was made of, 64 "
                "hexadecimal digits, and other releases none"
            )

    @property
    def number(self) -> int:
        """Which release of the chain it is, from 1."""
        return len(self.amounts)

    @property
    def amount(self) -> Fraction:
        """ε or ρ of the release itself."""
        return self.amounts[-1] if self.copied is None else self.copied

    def finer(self, amount: Fraction) -> Chain:
        """Return the chain with a further release; InputError unless its amount is larger."""
        if self.copied is not None:
            raise InputError(
                "the release is a more private copy, which cannot be refined: refine the release that it was made of"
            )
        if not amount > self.amounts[-1]:
            raise InputError(
                f"the amount is {float(amount):.10g}, but the release has spent {float(self.amounts[-1]):.10g}: it "
                "must be more (a more private copy of a release is what `tighten` makes)"
            )
        return replace(self, amounts=(*self.amounts, amount))

    def words(self, letter: str) -> str:
        """Say how much all releases of the chain cost together."""
        if self.copied is not None:
            of = f"release {self.number} of chain {self.name}, " if self.name else ""
            amount = f"{letter} = {float(self.amounts[-1]):.10g}"
            return (
                f"a more private copy of {of}a release with {amount} and the SHA-256 {self.origin}: all copies of that "
                f"release together, and it, cost at most {amount}, not the sum"
            )
        whole = f"{letter} = {float(self.amount):.10g}"
        if self.number == 1:
            return f"release 1 of chain {self.name}; it may be refined: all releases then cost what the last one does"
        return f"release {self.number} of chain {self.name}: all {self.number} together cost {whole}, not the sum"

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready description; amounts are kept exact."""
        copied = {} if self.copied is None else {"copied": str(self.copied), "origin": self.origin}
        return {"name": self.name, "amounts": [str(a) for a in self.amounts], **copied}

    @classmethod
    def from_description(cls, description: dict[str, Any] | None) -> Chain | None:
        """Make the chain that `describe` described, from an untrusted file; None for no chain."""
        if description is None:
            return None
        if len(description["amounts"]) > _LONGEST:
            raise InputError(f"a chain of {len(description['amounts']):,} releases: at most {_LONGEST:,}")
        copied = description.get("copied")
        amounts = tuple(Fraction(a) for a in description["amounts"])
        origin = description.get("origin", "")
        return cls(description["name"], amounts, None if copied is None else Fraction(copied), str(origin))


@dataclass(frozen=True)
class Step:
    """One of the maps of a stream, every `window` of which in a row spend at most `budget` together.

    Parameters
    ----------
    clock : what a step is.
    number : of the step, from 0.
    window : steps that share the budget.
    budget : of every window, ε or ρ.
    limits : what more steps in a row spend together at most: pairs (steps, times the budget), infinity for all.

    Raises
    ------
    InputError
        On a number below 0 or outside all dates, a window below 1, a budget with a failure probability, or limits that
        do not go with the window.

    >>> import deltahist as dh
    >>> step = Step(Clock.of("2010-05-01", "1d"), 2, 7, dh.Budget(1))
    >>> step.label, step.words
    ('2010-05-03', 'every 7 steps in a row, of 1 day each, spend at most ε = 1 together')
    """

    clock: Clock
    number: int
    window: int
    budget: Budget
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", whole(least=0, number=self.number))
        object.__setattr__(self, "window", whole(window=self.window))
        object.__setattr__(self, "limits", read_lasting(self.limits, self.window))
        try:
            self.clock.label(self.number)
        except (OverflowError, ValueError):
            raise InputError(f"number is {self.number:,}: such a step lies outside all dates") from None
        if self.budget.probability is not None:
            raise InputError("the budget of a window has a failure probability: it must be ε or ρ")

    @property
    def label(self) -> str:
        """The step's name: its date, or its number."""
        return self.clock.label(self.number)

    @property
    def words(self) -> str:
        """The promise of all maps of a window together, in words."""
        letter = "ε" if self.budget.unit == "epsilon" else "ρ"
        period = f", of {self.clock.period} each," if self.clock.every else ""
        every = f"every {self.window:,} steps in a row" if self.window > 1 else "every step"
        most = f"{letter} = {float(self.budget.amount):.10g}"
        spend = f"spend at most {most} together" if self.window > 1 else f"spends at most {most}"
        return f"{every}{period} {spend}"

    @property
    def beyond(self) -> list[str]:
        """Promises for data that differ in more steps than a window has, in words."""
        letter = "ε" if self.budget.unit == "epsilon" else "ρ"
        amount = float(self.budget.amount)
        out = [
            f"{'in whichever steps' if limit.any else f'within {limit.distance:,} steps'} {letter} = "
            f"{amount * float(limit.factor):.10g}"
            for limit in self.limits
        ]
        if not self.limits or not self.limits[-1].any:
            until = int(self.limits[-1].distance) if self.limits else self.window
            most = amount * float(self.limits[-1].factor if self.limits else 1)
            out.append(f"within {2 * until:,} steps {letter} = {2 * most:.10g}, and so on without end")
        return out

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready public description; the budget is kept exact."""
        return {
            "start": self.clock.start,
            "every": self.clock.every,
            "number": self.number,
            "window": self.window,
            self.budget.unit: str(self.budget.amount),
            **({"limits": describe_limits(self.limits)} if self.limits else {}),
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Step:
        """Make the step that `describe` described, from an untrusted file."""
        clock = Clock(
            whole(least=-_FAR, start=description["start"]), whole(least=0, every=description["every"])
        )
        epsilon, rho = (Fraction(description[k]) if k in description else None for k in ("epsilon", "rho"))
        budget = Budget(epsilon, rho)
        limits = tuple(Limit(*pair) for pair in limits_of(description.get("limits", [])))
        return cls(clock, description["number"], description["window"], budget, limits)
