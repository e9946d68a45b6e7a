"""A step of a stream: which one it is, and what every window of steps spends together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deltahist.budget import Budget
from deltahist.errors import InputError, whole
from deltahist.neighbourhood.profile import Limit, describe_limits, limits_of, read_lasting
from deltahist.preprocessing import Clock

#: No start lies before that many seconds, or step numbers.
_FAR = 10**15


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
        """What all maps of a window promise together, for people."""
        letter = "ε" if self.budget.unit == "epsilon" else "ρ"
        period = f", of {self.clock.period} each," if self.clock.every else ""
        every = f"every {self.window:,} steps in a row" if self.window > 1 else "every step"
        most = f"{letter} = {float(self.budget.amount):.10g}"
        spend = f"spend at most {most} together" if self.window > 1 else f"spends at most {most}"
        return f"{every}{period} {spend}"

    @property
    def beyond(self) -> list[str]:
        """What is promised for data that differ in more steps than a window has, for people."""
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
        """A JSON-ready public description; the budget is kept exact."""
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
        """What `describe` described, from an untrusted file."""
        clock = Clock(
            whole(least=-_FAR, start=description["start"]), whole(least=0, every=description["every"])
        )
        epsilon, rho = (Fraction(description[k]) if k in description else None for k in ("epsilon", "rho"))
        budget = Budget(epsilon, rho)
        limits = tuple(Limit(*pair) for pair in limits_of(description.get("limits", [])))
        return cls(clock, description["number"], description["window"], budget, limits)
