"""Costs of the steps of a series: in every span of steps and in all, and how much may still be spent."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from deltahist.budget import ceil_nano, say_amount
from deltahist.errors import NANO, InputError
from deltahist.preprocessing import Clock
from deltahist.releases.base import BaseRelease

#: Steps that a sentence names.
_NAMED = 5


@dataclass(frozen=True)
class Costs:
    """Costs of releases of consecutive steps, in whole billionths: as they, and maybe a ledger, tell them.

    Parameters
    ----------
    clock : defines steps. unit : "epsilon" or "rho".
    spent : step -> what its release spends.
    spans : steps in a row, None for all there are, with what they may spend; the account's own span first.
    account : name of the account that paid; None if nobody keeps the sum.
    unseen : step of a release -> what its account had charged by then for its own span, without a release here.
    charged : step -> what a ledger has charged for it without a release here.
    from_ledger : whether a ledger told.
    """

    clock: Clock
    unit: str
    spent: Mapping[int, int]
    spans: tuple[tuple[int | None, int], ...] = ()
    account: str | None = None
    unseen: Mapping[int, int] = field(default_factory=dict)
    charged: Mapping[int, int] = field(default_factory=dict)
    from_ledger: bool = False

    @classmethod
    def of(cls, clock: Clock, releases: Mapping[int, BaseRelease]) -> Costs:
        """Return the costs of releases by their steps, and what their account states besides."""
        guarantees = {step: releases[step].guarantee for step in sorted(releases)}
        unit = "rho" if next(iter(guarantees.values())).rho is not None else "epsilon"
        spent = {step: ceil_nano(amount=getattr(own, unit)) for step, own in guarantees.items()}
        payments = {step: releases[step].payment for step in spent}
        paid = payments[max(spent)]
        own = None if paid is None else (paid.account, paid.steps, paid.limit)
        same = all((None if p is None else (p.account, p.steps, p.limit)) == own for p in payments.values())
        place = next((s for each in releases.values() if (s := each.mechanism.step) is not None), None)
        spans: list[tuple[int | None, int]] = []
        if place is not None:
            limit = int(place.budget.amount * NANO)
            further = ((None if more.any else int(more.distance), int(limit * more.factor)) for more in place.limits)
            spans = [(place.window, limit), *further]
        elif paid is not None:
            spans = [(paid.steps, int(paid.limit * NANO))]
        found = cls(clock, unit, spent)
        charged = {step: int(p.spent * NANO) for step, p in payments.items() if p is not None}
        if paid is not None and paid.steps is None:  # a total may be charged in any order
            charged = {max(spent): max(charged.values())}
        steps = None if paid is None else paid.steps
        unseen = {step: nano - found.spent_within(steps, step) for step, nano in charged.items()}
        # Of several accounts, or ledgers that were begun anew, none limits the sum.
        if not same or min(unseen.values(), default=0) < 0:
            return found
        return replace(found, spans=tuple(spans), account=None if paid is None else paid.account, unseen=unseen)

    def with_ledger(self, spans: Iterable[tuple[int | None, Fraction]], charges: Mapping[int, int]) -> Costs:
        """Return the costs as the ledger of the account tells them: it also knows what was charged and never finished.

        Parameters
        ----------
        spans : of the account, as of `Standing`. charges : step -> billionths; of a window its last steps alone.

        Raises
        ------
        InputError
            If the account has other limits than the releases state, or does not know of one of them.
        """
        known = tuple((length, int(limit * NANO)) for length, limit in spans)
        if known != self.spans:
            own, kept = ("; ".join(self._say_span(*span) for span in each) for each in (self.spans, known))
            raise InputError(
                f"account {self.account!r} of the ledger has limits of {kept}, and the releases state {own}: it must "
                "be the ledger that paid for them"
            )
        if known[0][0] is None:  # a total does not tell steps apart
            rest, first = sum(charges.values()) - sum(self.spent.values()), min(self.spent) - 1
            unknown = [] if rest >= 0 else [max(self.spent)]
            kept_from, charged = first, {first: rest} if rest > 0 else {}
        else:
            longest = max(length or max(charges, default=0) + 1 for length, _ in known)
            kept_from = max(charges, default=-1) - longest + 1
            told = {step: nano for step, nano in self.spent.items() if step >= kept_from}
            unknown = [step for step, nano in told.items() if charges.get(step, 0) < nano]
            charged = {step: rest for step, nano in charges.items() if (rest := nano - told.get(step, 0)) > 0}
        if unknown:
            raise InputError(
                f"the ledger's account {self.account!r} does not know that step {self.clock.label(unknown[0])} was "
                "paid for: it must be the ledger that paid for the releases (an old copy, or another stream's?)"
            )
        before = {step: nano for step, nano in self.unseen.items() if step < kept_from}
        return replace(self, charged=charged, unseen=before, from_ledger=True)

    @property
    def letter(self) -> str:
        """Letter of the unit: ε or ρ."""
        return "ε" if self.unit == "epsilon" else "ρ"

    @property
    def last(self) -> int:
        """The last step that was charged, as far as that is known."""
        return max({*self.spent, *self.charged})

    @property
    def in_all(self) -> int:
        """The cost of all releases together for whoever is in all of them: costs add up."""
        return sum(self.spent.values())

    def spent_within(self, length: int | None, step: int) -> int:
        """Return what was charged in `length` steps in a row up to a step, or in all when None.

        At a step of a release it is exact for the account's own span, elsewhere it may be more. Of `unknown` steps, and
        before the first window, nothing is counted.
        """
        first = -math.inf if length is None else step - length + 1
        own = sum(nano for each in (self.spent, self.charged) for at, nano in each.items() if first <= at <= step)
        exact = bool(self.spans) and length == self.spans[0][0] and step in self.unseen
        return own + (self.unseen[step] if exact else self._unseen_within(first, step))

    def _unseen_within(self, first: float, last: int) -> int:
        """Return the most that may have been charged from a step to another, without a release or a ledger here."""
        if not self.doubtful:
            return 0
        window, total, covered = self.spans[0][0], 0, math.inf
        if window is None:  # the sum of all
            return max((nano for end, nano in self.unseen.items() if end <= last), default=0)
        # Spans of the account that hold each such step, from the last one on.
        for place in reversed([at for at in self.doubtful if first <= at <= last]):
            if place < covered:
                end = min((end for end in self.unseen if end - window < place <= end), key=self.unseen.__getitem__)
                total, covered = total + self.unseen[end], end - window + 1
        return total

    @functools.cached_property
    def doubtful(self) -> list[int]:
        """Steps that may have been charged besides: no span that holds them is without such a charge."""
        if not any(self.unseen.values()):
            return []
        length, before = self.spans[0][0], min(self.spent) - 1
        span = {end: range(before if length is None else end - length + 1, end + 1) for end in self.unseen}
        free = {at for end, nano in self.unseen.items() if not nano for at in span[end]}
        found: set[int] = set()
        for end, nano in self.unseen.items():
            places = [at for at in span[end] if at not in self.spent and at not in free]
            found.update((places or [end]) if nano else ())
        return sorted(found)

    @property
    def unknown(self) -> list[int]:
        """Steps between releases of which nothing tells whether they were charged."""
        length = self.spans[0][0] if self.spans else 1
        if self.from_ledger or length is None:
            return []
        covered = {at for end in self.unseen for at in range(end - length + 1, end + 1)}
        steps = range(min(self.spent), max(self.spent))
        return [step for step in steps if step not in self.spent and step not in covered]

    def most_within(self, length: int | None) -> int:
        """Return the most that was charged in `length` steps in a row."""
        ends = (self.last,) if length is None else (*self.spent, *self.charged)
        return max(self.spent_within(length, step) for step in ends)

    @property
    def following(self) -> tuple[int, int] | None:
        """The next step that may spend anything worth naming, and how much; None without limits, or if none may."""
        ends = {
            at + length for each in (self.spent, self.charged) for at in each for length, _ in self.spans if length
        }
        for step in sorted({self.last + 1, *(end for end in ends if end > self.last + 1)}):
            left = min((limit - self.spent_within(length, step) for length, limit in self.spans), default=0)
            if left > 0 and self.say(left, self.spans[0][1]) != "0":
                return step, left
        return None

    def say(self, nano: int, limit: int | None = None) -> str:
        """Return billionths as people type them, to a millionth of a limit."""
        return say_amount(Fraction(nano, NANO), Fraction(limit or self.in_all, NANO))

    def _say_span(self, length: int | None, limit: int) -> str:
        where = "in all" if length is None else f"in {length:,} step{'s' if length > 1 else ''} in a row"
        return f"{self.letter} = {self.say(limit, limit)} {where}"

    @property
    def standing(self) -> str:
        """The rest of the budget, in a sentence."""
        if not self.spans:
            return (
                "No account keeps the sum, and no window limits it: every further release adds its own to what these "
                "cost."
            )
        # The span that leaves least is the one to speak of.
        length, limit = min(self.spans, key=lambda span: span[1] - self.spent_within(span[0], self.last))
        spent = self.spent_within(length, self.last)
        words = f"{self.letter} = {self.say(spent, limit)} of {self.say(limit, limit)} is spent"
        left = self.say(max(limit - spent, 0), limit)
        if length is None:
            more = "nothing more may be published" if left == "0" else f"{left} is left for whatever is published later"
            return f"{words}: {more}."
        steps = "the step" if length == 1 else f"the {length:,} steps"
        words += f" in {steps} that end{'s' if length == 1 else ''} with {self.clock.label(self.last)}"
        if left == "0":
            words += ": nothing more may be published in this window"
        if self.following is None:
            return f"{words}, and no later step may spend anything: a limit without end is spent."
        step, most = self.following
        before = "" if step == self.last + 1 else f" nothing may be published before {self.clock.label(step)};"
        which = "the next step" if not before else "that step"
        return f"{words};{before} {which} may spend {self.say(most, limit)} from {self.clock.label(step)} on."

    @property
    def total(self) -> str:
        """The cost of all releases together, in a sentence."""
        number = len(self.spent)
        if number == 1:
            return f"The one release costs {self.letter} = {self.say(self.in_all)}."
        return (
            f"All {number:,} releases together cost {self.letter} = {self.say(self.in_all)} for whoever is in every "
            "step and moves by at most δ in each: costs add up."
        )

    @property
    def bound(self) -> str | None:
        """The most that as many steps in a row ever spend by the limits, in a sentence; None without limits."""
        steps = max(self.spent) - min(self.spent) + 1
        most = min((limit * (1 if n is None else -(-steps // n)) for n, limit in self.spans), default=None)
        if most is None:
            return None
        return f"By the limits {steps:,} steps in a row never spend more than {self.say(most, most)}."

    @property
    def elsewhere(self) -> str | None:
        """Charges without a release here, in sentences; None if there are none."""
        unseen = self._unseen_within(-math.inf, max(self.spent))
        unknown = ""
        if steps := self.unknown:
            unknown = f"Whether {self._name(steps)} were charged is not known from the releases: the ledger tells."
        if not self.charged and not unseen:
            return unknown or None
        first = min(self.spent)
        places = sorted({*self.charged, *self.doubtful} if unseen else self.charged)
        inside = [step for step in places if step >= first]
        parts = []
        if inside:
            parts.append(f"for {self._name(inside)} (lost, withdrawn or not handed on)")
        if len(inside) < len(places) or not places:
            parts.append("for what was published before, or elsewhere")
        # A part of a span may be counted twice; a total has but one, and so has a single step.
        most = unseen and self.spans[0][0] is not None and len(places) > 1
        cost = f"{'up to ' if most else ''}{self.letter} = {self.say(sum(self.charged.values()) + unseen)}"
        by = "the ledger" if self.from_ledger else "the account, as the releases state it,"
        words = f"Besides these releases {by} has charged {cost}: {', or '.join(parts)}. It stays spent."
        return f"{words} {unknown}".rstrip()

    def _name(self, steps: list[int]) -> str:
        return ", ".join(map(self.clock.label, steps[:_NAMED])) + (", ..." if len(steps) > _NAMED else "")

    def describe(self) -> dict[str, Any]:
        """Return the costs as JSON."""

        def amount(nano: int) -> float:
            return nano / NANO

        spans = []
        for length, limit in self.spans:
            spent = self.spent_within(length, self.last)
            spans.append(
                {
                    "steps": length,
                    "limit": amount(limit),
                    "most_spent": amount(self.most_within(length)),
                    "spent": amount(spent),
                    "left": amount(max(limit - spent, 0)),
                }
            )
        after = self.following
        return {
            "unit": self.unit,
            "account": self.account,
            "known_from": "ledger" if self.from_ledger else "releases",
            "in_all": amount(self.in_all),
            "spans": spans,
            "last": self.clock.label(self.last),
            "next": None if after is None else {"step": self.clock.label(after[0]), "may_spend": amount(after[1])},
            "charged_without_release": amount(
                sum(self.charged.values()) + self._unseen_within(-math.inf, max(self.spent))
            ),
        }
