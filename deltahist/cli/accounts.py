"""The account that pays for a release, and the state by which a release is refined."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deltahist.cli import console, options
from deltahist.cli.groups import KEPT
from deltahist.cli.options import option
from deltahist.errors import NANO, BudgetExceeded, InputError

if TYPE_CHECKING:
    from deltahist.accounts.databases import Database
    from deltahist.accounts.window import Account
    from deltahist.releases import BaseRelease

#: Of the units of budgets.
LETTERS = {"epsilon": "ε", "rho": "ρ"}
#: Accounts that releases are not charged to.
_OTHERS = {
    "window": "the window of a stream, which `deltahist stream` charges",
    "purses": "people's own budgets, which queries of their records charge",
    "failing": "an account that keeps failure probabilities beside ε, which is charged in Python",
}


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """The account that pays for all releases about the same people."""

    ledger: Annotated[
        str | None,
        option("FILE", "Ledger of all that is published, or a postgresql:// URL; made at first.", panel=KEPT),
    ] = None
    account: Annotated[str | None, option("NAME", "With --ledger: the account that pays.", panel=KEPT)] = None
    limit: Annotated[
        list[str] | None, option("E", "With --ledger: all that may be spent; known after the first time.", panel=KEPT)
    ] = None

    def check(self, budget: dict[str, Any], chain: str | None = None, **written: Path | None) -> None:
        """Refuse what the account cannot pay, before any data are read; nothing is made or charged yet.

        A chain of releases pays only what the next one costs more than those before it. What is `written` besides,
        by option, must be other files than the ledger, or the sum would be lost.
        """
        for name, path in written.items():
            file = None if self.ledger is None else self._database.path
            if path is not None and file is not None and path.resolve() == file.resolve():
                raise InputError(
                    f"--ledger is {self._database.place!r}, as --{name.replace('_', '-')} is: it keeps what was "
                    "spent, and would be replaced; name two files"
                )
        if self.ledger is None or self.account is None:
            given = {"--ledger": self.ledger, "--account": self.account, "--limit": self._limit}
            there, missing = ([k for k, v in given.items() if (v is None) == no] for no in (False, True))
            if there:
                far = "" if self._limit is None else f" (what any move may cost is --limit any:{self._limit})"
                raise InputError(
                    f"{' and '.join(there)} without {' and '.join(k for k in missing if k != '--limit')}: an account "
                    f"of a ledger takes both --ledger and --account{far}"
                )
            return
        if "probability" in budget:
            raise InputError(
                f"--probability is given with --account {self.account}: failure probabilities do not add up with ε; "
                "spend --rho from an account in ρ"
            )
        file = self._database.path
        if file is not None and not file.parent.is_dir():
            raise InputError(f"folder {str(file.parent)!r} of --ledger does not exist: make it first")
        ((unit, amount),) = budget.items()
        if self._rule() is not None:
            account = self._open(unit)
            paid = Fraction(0) if chain is None else account.paid(chain)
            left = account.left + paid
        elif self._limit is None:
            raise InputError(
                f"--limit is missing: account {self.account!r} is new in {self._database.place!r}{self._others()}"
                + (" (a --limit with a distance is of what moves cost: give both)" if self.limit else "")
            )
        else:
            left, paid = options.amount(self._limit, "--limit"), Fraction(0)
        if amount > left:
            letter = LETTERS[unit]
            known = f" and paid {float(paid):.10g} for this chain, which counts" if paid else ""
            raise BudgetExceeded(
                f"--{unit} is {float(amount):.10g}, but account {self.account!r} of {self._database.place!r} has "
                f"{letter} = {float(left - paid):.10g} left{known}; nothing was published or charged"
            )

    @contextlib.contextmanager
    def open(self, budget: dict[str, Any]) -> Iterator[Account | None]:
        """Open the account. A run that fails notes what stays charged; one that charged nothing leaves no ledger."""
        if self.ledger is None or self.account is None:
            yield None
            return
        fresh = not self._database.exists()
        account = self._open(next(iter(budget)))
        try:
            yield account
        except BaseException:
            for paid in account.payments:
                console.note(f"account {paid.words}: the charge stays, although nothing came of it")
            if fresh and not account.payments:
                from deltahist.accounts.ledger import Ledger

                Ledger(self.ledger).close_if_unused(self.account)
            raise

    @property
    def _limit(self) -> str | None:
        """The account's limit: that of no distance."""
        given = [text for text in self.limit or () if not options.has_distance(text)]
        if len(given) > 1:
            raise InputError(f"--limit is {given[0]!r} and {given[1]!r}: an account has one limit")
        return given[0] if given else None

    @property
    def _database(self) -> Database:
        """Where the ledger is, or will be."""
        from deltahist.accounts.databases import database

        assert self.ledger is not None
        return database(self.ledger)

    def _rules(self) -> dict[str, Any]:
        """Return the rules of the ledger's accounts; none where there is no ledger."""
        from deltahist.accounts.ledger import Ledger

        return Ledger(self.ledger).accounts() if self.ledger is not None and self._database.exists() else {}

    def _rule(self) -> dict[str, Any] | None:
        return self._rules().get(self.account or "")

    def _others(self) -> str:
        """Name the accounts that exist, for a name that is misspelt."""
        names = list(self._rules())
        return f", which has {', '.join(map(repr, names))}" if names else ""

    def _open(self, unit: str) -> Account:
        """Open the account with the limit of the options, or with its own."""
        from deltahist.accounts.window import Account

        assert self.account is not None
        rule = self._rule()
        kind = "total" if rule is None else "failing" if "probability_atto" in rule else rule["kind"]
        if kind != "total":
            raise InputError(
                f"--account is {self.account!r}: that is {_OTHERS.get(kind, 'of another kind')}; take another name"
            )
        if rule is not None and f"{unit}_nano" not in rule:
            other = "rho" if unit == "epsilon" else "epsilon"
            raise InputError(
                f"--{unit} is given, but account {self.account!r} keeps {other}: spend --{other}"
            )
        amount = (
            options.amount(self._limit, "--limit")
            if self._limit is not None
            else Fraction((rule or {})[f"{unit}_nano"], NANO)
        )
        return Account.total(**{unit: amount}, ledger=self.ledger, name=self.account)  # type: ignore[arg-type]


StateFile = Annotated[
    Path | None,
    option("FILE", "New file for the secret state, to refine the release later.", panel=KEPT),
]


def check_state(state: Path | None, out: Path, dry_run: bool) -> None:
    """Refuse a state that cannot be written, before any data are read."""
    from deltahist.publishers.state import check_new

    if state is None or dry_run:
        return
    check_new(state)
    if state.resolve() == out.resolve():
        raise InputError(
            f"--state is {str(state)!r}, as --out is: the release is public, the state is secret; name two files"
        )


def describe_state(state: Path) -> str:
    """Tell the publisher where the state is, and that it is secret."""
    return console.facts(state=f"{state}, which refines it (deltahist refine); as secret as the data")


def chain_summary(release: BaseRelease, out: Path, state: Path | None) -> str:
    chain, letter = release.mechanism.chain, LETTERS[release.mechanism.budget.unit]
    assert chain is not None
    facts = {"published": str(out), "guarantee": release.mechanism.promise, "chain": chain.words(letter)}
    if release.payment is not None:
        facts["account"] = release.payment.words
    return console.facts(**facts) + ("" if state is None else f"\n{describe_state(state)}")
