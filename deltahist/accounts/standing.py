"""The standing of accounts, for display and export, and the audit of a ledger; nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deltahist.accounts.purse_log import PurseLog
from deltahist.accounts.rules import ATTO, CHAIN, ChainCharge, Rule, failed_so_far, rule_of, spent_within
from deltahist.errors import NANO, DamagedFile, InputError

if TYPE_CHECKING:
    from deltahist.accounts.tables import Accounts

#: What accounts there are: all that is ever published, windows of steps, people's own budgets.
_KINDS = ("total", "window", "purses")


@dataclass(frozen=True)
class Standing:
    """Limit and sums of an account: public, as budgets are.

    Parameters
    ----------
    account : its name. kind : "total", "window", or "purses" (of many people, of which nothing is told).
    unit : "epsilon" or "rho". steps : of a window.
    limit, spent : altogether, or in the last window; 0 for purses.
    lasting : for each limit of longer changes its steps, None for all there are, and its own limit and sum.
    probability, failed : what failure probabilities may add up to, and do; None if only pure ε is paid for.
    """

    account: str
    kind: str
    unit: str
    limit: Fraction = Fraction(0)
    spent: Fraction = Fraction(0)
    steps: int | None = None
    probability: Fraction | None = None
    failed: Fraction | None = None
    lasting: tuple[tuple[int | None, Fraction, Fraction], ...] = ()

    @classmethod
    def of(cls, accounts: Accounts, name: str) -> Standing:
        """Return how an account stands; InputError if it is not there, or of a kind that is not known."""
        kept = rule_of(accounts, name)
        kind = kept.get("kind")
        if kind not in _KINDS:
            raise InputError(
                f"account {name!r} is of kind {kind!r}, which this program does not know (a newer version's?): update "
                "it"
            )
        if kind == "purses":
            return cls(name, kind, kept["unit"])
        rule, charges = Rule.read(kept), accounts.charges(name)
        last = max(charges, default=0)
        own, *lasting = (
            (length, Fraction(limit, NANO), Fraction(spent_within(charges, last, length), NANO))
            for length, limit in rule.spans
        )
        steps, limit, spent = own
        probability = failed = None
        if rule.failing is not None:
            probability, failed = Fraction(rule.failing, ATTO), Fraction(failed_so_far(accounts, name), ATTO)
        return cls(name, kind, rule.unit, limit, spent, steps, probability, failed, tuple(lasting))

    @property
    def left(self) -> Fraction:
        """The amount that may still be spent, of whichever limit leaves the least."""
        return min(limit - spent for _, limit, spent in ((self.steps, self.limit, self.spent), *self.lasting))

    def describe(self) -> dict[str, Any]:
        """Return the standing as JSON, for a report; of purses no figures."""
        about: dict[str, Any] = {"account": self.account, "unit": self.unit, "steps": self.steps}
        if self.kind == "purses":
            return {**about, "kind": self.kind}
        about |= {"limit": float(self.limit), "spent": float(self.spent), "left": float(self.left)}
        if self.lasting:
            about["lasting"] = [
                {"steps": steps, "limit": float(limit), "spent": float(spent)}
                for steps, limit, spent in self.lasting
            ]
        if self.probability is None or self.failed is None:
            return about
        return about | {"probability": float(self.probability), "probability_spent": float(self.failed)}


def _most(charges: Mapping[int, int], length: int | None) -> Fraction:
    """Return the most that `length` steps in a row have spent; all steps when None."""
    return Fraction(max((spent_within(charges, step, length) for step in charges), default=0), NANO)


def audit(accounts: Accounts) -> Iterator[str]:
    """Yield what cannot be right in a ledger: one line for each fault.

    No account has spent more than its limit, in any window; no charge is negative; all that chains and keys paid for
    was charged; nobody has two purses; every row belongs to an account, and every account is of a kind that is known.
    """
    rules = accounts.rules()
    for table, names in accounts.accounts_by_table().items():
        for name in sorted(names - rules.keys()):
            yield f"table {table!r} has rows of account {name!r}, which is not there"
    for name in rules:
        try:
            standing = Standing.of(accounts, name)
        except InputError as problem:
            yield str(problem)
            continue
        except (AssertionError, KeyError, TypeError, ValueError) as problem:
            yield f"account {name!r} has a rule that cannot be read: {problem!r}"
            continue
        yield from (_purses if standing.kind == "purses" else _account)(accounts, standing)


def _purses(accounts: Accounts, standing: Standing) -> Iterator[str]:
    log = PurseLog()
    try:
        log.read(standing.account, accounts.entries(standing.account))
    except DamagedFile as problem:
        yield str(problem)
    if log.duplicates:
        yield f"account {standing.account!r} has {log.duplicates:,} purses of people who have another one"


def _account(accounts: Accounts, standing: Standing) -> Iterator[str]:
    who, charges = f"account {standing.account!r}", accounts.charges(standing.account)
    if any(nano < 0 for nano in charges.values()):
        yield f"{who} has a charge below zero"
    spent = _most(charges, standing.steps)
    if spent > standing.limit:
        yield f"{who} has spent {float(spent):.10g}, more than its limit, {float(standing.limit):.10g}"
    if standing.failed is not None and not 0 <= standing.failed <= (standing.probability or 0):
        yield f"{who} has spent a probability of {float(standing.failed):.3g}, which is not within its limit"
    if standing.kind == "window":
        lengths = [standing.steps, *(length for length, _, _ in standing.lasting)]
        longest = math.inf if None in lengths else max(length or 0 for length in lengths)
        if charges and max(charges) - min(charges) >= longest:
            yield f"{who} keeps charges of more steps than its window has"
        for length, limit, _ in standing.lasting:
            if (most := _most(charges, length)) > limit:
                steps = "all steps" if length is None else f"{length:,} steps in a row"
                times = float(limit / standing.limit)
                yield f"{who} has spent {float(most):.10g} in {steps}, more than {times:g} times its limit"
        return
    nano = sum(ChainCharge(**value).nano for value in accounts.facts(standing.account, CHAIN).values())
    atto = 0
    for request in accounts.requests(standing.account):
        nano += request.get("amount_nano", 0)
        atto += request.get("probability_atto", 0)
    if nano > sum(charges.values()):
        yield f"{who} was charged {sum(charges.values()) / NANO:.10g}, but chains and keys paid {nano / NANO:.10g}"
    if Fraction(atto, ATTO) > (standing.failed or 0):
        yield f"{who} was charged less failure probability than what its keys paid, {atto / ATTO:.3g}"
