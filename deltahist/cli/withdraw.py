"""`deltahist withdraw`, and a corrected release in the place of one that is withdrawn (`publish --replaces`)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from deltahist._files import notice_of
from deltahist.cli import console
from deltahist.cli.groups import KEPT, LETTERS, AccountOptions
from deltahist.cli.options import argument, option
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.preprocessing import Preprocessing
    from deltahist.releases import BaseRelease


@dataclass(frozen=True, kw_only=True)
class CorrectionOptions:
    """The release that is withdrawn when a corrected one is published."""

    replaces: Path | None = option(
        "OLD", "A release about the same people that this one corrects; it is withdrawn.", panel=KEPT
    )
    reason: str | None = option("TEXT", "With --replaces: why, one line; public.", panel=KEPT)

    def check(self, budget: dict[str, Any], accounts: AccountOptions) -> BaseRelease | None:
        """Return the release to be replaced, and tell what that costs; InputError if it cannot be."""
        if (self.replaces is None) != (self.reason is None):
            raise InputError("--replaces and --reason go together: which release is corrected, and why")
        if self.replaces is None or self.reason is None:
            return None
        from deltahist.publishers.withdrawal import check_replaceable, open_paying

        old = check_replaceable(self.replaces, self.reason)
        if (ledger := self._ledger(old, accounts)) is not None:
            open_paying(old, self.replaces, ledger)
        console.note(f"--replaces costs {_describe_cost(old, budget)}")
        return old

    def mark(self, counting: Preprocessing, old: BaseRelease | None) -> Preprocessing:
        """Return how rows are prepared, for a release that replaces an old one, if there is one."""
        from deltahist.preprocessing import Correction

        return counting if old is None else replace(counting, replaces=Correction(old.digest, self.reason or ""))

    def finish(self, out: Path, old: BaseRelease | None, accounts: AccountOptions) -> None:
        """Withdraw the old release, if there is one, now that the new one is written."""
        if old is None or self.replaces is None or self.reason is None:
            return
        ledger = self._ledger(old, accounts)
        try:
            _withdraw(self.replaces, self.reason, ledger, out)
        except BaseException:
            said = [*("deltahist", "withdraw", str(self.replaces), "--reason", self.reason), "--replacement", str(out)]
            command = shlex.join(said + ([] if ledger is None else ["--ledger", ledger]))
            console.note(f"warning: {out} is published, but {self.replaces} is not withdrawn yet: {command}")
            raise

    def _ledger(self, old: BaseRelease, accounts: AccountOptions) -> str | None:
        """Return the ledger whose account also paid for the old release; None if another one did, or none."""
        return accounts.ledger if old.payment is not None and old.payment.account == accounts.account else None


def withdraw(
    context: Context,
    *,
    release: Path = argument("RELEASE", "A file that `deltahist publish` or `stream` wrote."),
    reason: str = option("TEXT", "Why, one line; public.", default=...),
    ledger: str | None = option("FILE", "The ledger that paid for it, or a postgresql:// URL."),
    replacement: Path | None = option("NEW", "The release to use instead, published with --replaces RELEASE."),
) -> None:
    """Withdraw a release: enter it in the ledger that paid for it, then write a notice beside the file.

    The notice, city.withdrawn.json beside city.parquet, is public: put it wherever the release was put. Every command,
    the service and the library heed it. What was spent stays spent, since the release was seen. Run it again to do what
    was left undone; docs/corrections.md has more.

    \b
    Examples:
      deltahist withdraw city.parquet --reason "the column of longitudes was wrong"
      deltahist withdraw city.parquet --reason "the column of longitudes was wrong" --ledger city.ledger
      deltahist publish visits.csv --config city.toml --epsilon 1 --out city-2.parquet \\
          --replaces city.parquet --reason "the column of longitudes was wrong"    # withdraws city.parquet, too
    """
    _withdraw(release, reason, ledger, replacement)


def _withdraw(path: Path, reason: str, ledger: str | None, replacement: Path | None) -> None:
    """Withdraw a release, and tell what was written where."""
    from deltahist.kinds import read_release
    from deltahist.publishers.withdrawal import withdraw as enter

    notice = enter(path, reason, ledger=ledger, replacement=replacement)
    payment, spent = read_release(path).payment, None
    if payment is not None and ledger is not None:
        from deltahist.accounts.ledger import Ledger
        from deltahist.budget import say_amount

        stands, letter = Ledger(ledger).standing(payment.account), LETTERS[payment.unit]
        figures = [say_amount(each, stands.limit) for each in (stands.spent, stands.limit, stands.left)]
        spent = "{!r} has spent {} = {} of {}, which stays spent: the release was seen; {} is left".format(
            payment.account, letter, *figures
        )
    print(
        console.facts(
            withdrawn=f"{path}, {notice.words}",
            notice=f"{notice_of(path)}: put it wherever the release was put",
            account=spent,
        )
    )
    if payment is not None and ledger is None:
        console.note(
            f"note: account {payment.account!r} paid for {path}: enter it there, too, by running `deltahist withdraw` "
            "with the same --reason and its --ledger (what was spent stays spent)"
        )


def _describe_cost(old: BaseRelease, budget: dict[str, Any]) -> str:
    """Return the cost of a release in the place of an old one, and of both together."""
    from deltahist.budget import Budget

    new, chain = Budget(**budget), old.mechanism.chain
    # Copies, and the releases of a chain, cost together what the finest of them does.
    before = old.mechanism.budget.amount if chain is None else chain.amounts[-1]
    costs = {old.mechanism.budget.unit: before}
    costs[new.unit] = costs.get(new.unit, Fraction(0)) + new.amount
    together = " and ".join(f"{LETTERS[unit]} = {float(each):.10g}" for unit, each in costs.items())
    failing = sum(each.guarantee.probability for each in (old.mechanism.budget, new))
    together += f" but for a probability of {float(failing):g}" if failing else ""
    earlier = "" if old.counting.replaces is None else ", besides the release that the old one replaced"
    earlier += "" if chain is None else ", and more if a finer one of its chain was published"
    return (
        f"all of it again: {LETTERS[new.unit]} = {float(new.amount):.10g}, since both releases are about the same "
        f"people and a reader can compare them; for moves within the δ of both together {together}{earlier}"
    )
