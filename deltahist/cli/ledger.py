"""`deltahist ledger`: how accounts stand, whether a ledger is in order, and its accounts for a report."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer.core import TyperGroup

from deltahist.cli import console
from deltahist.cli.app import Command
from deltahist.cli.groups import LETTERS
from deltahist.cli.options import argument, flag, option, spread
from deltahist.errors import InputError, meant_file

if TYPE_CHECKING:
    from deltahist.accounts.ledger import Ledger, Standing

_LEDGER = argument("LEDGER", "A file that `publish --ledger` or `stream --state` made, or a postgresql:// URL.")
#: Columns of a report; empty where an account has no such figure.
_COLUMNS = (
    *("account", "kind", "unit", "steps", "limit", "spent", "left", "probability", "probability_spent"),
    "withdrawn",
)


class _ShowUnlessSaid(TyperGroup):
    """`deltahist ledger FILE` is `deltahist ledger show FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say `show` where no command is named."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger = typer.Typer(cls=_ShowUnlessSaid, rich_markup_mode=None, add_completion=False)


@ledger.callback()
def about() -> None:
    """Show, check or export the accounts of a ledger: limit, spent and left.

    The password of a database is best kept in PGPASSWORD or ~/.pgpass: other users see what a command line says.

    \b
    Examples:
      deltahist ledger city.ledger             # the same as: deltahist ledger show city.ledger
      deltahist ledger audit city.ledger
      deltahist ledger export postgresql://ann@db.example.org/city --out accounts.csv
    """


@ledger.command(cls=Command, short_help="Show the accounts: limit, spent, left.")
@spread
def show(where: str = _LEDGER, as_json: bool = flag("The same as data.", names="--json")) -> None:
    """Show the accounts of a ledger: limit, spent and left, in all or in the last window of steps.

    It holds private figures beside (a stream's number of rows, people's own budgets), which are not shown.

    \b
    Examples:
      deltahist ledger show city.ledger
      deltahist ledger show city.ledger --json
    """
    standings = sorted(open_ledger(where).standings(), key=lambda each: each.account)
    if as_json:
        console.put_json([each.describe() for each in standings])
    else:
        header = ("account", "", "limit", "spent", "left")
        rows = [row for each in standings for row in _rows(each)] + _sums(standings)
        console.put("\n".join([console.table(header, rows, left=2), *_list_withdrawn(standings)]))


@ledger.command(cls=Command, short_help="Check that a ledger can be right; exit status 2 if not.")
@spread
def audit(where: str = _LEDGER) -> int:
    """Check a ledger, and change nothing: exit status 2, and one line for each thing that is wrong.

    The database is whole; no account has spent more than its limit, in any window; what chains and keys paid for was
    charged; every account is of a kind that is known. What nobody can tell from a ledger is whether it is an old copy.
    """
    opened = open_ledger(where)
    problems = opened.problems()
    for problem in problems:
        console.note(f"wrong: {problem}")
    if problems:
        raise InputError(
            f"ledger {opened.place!r} is not in order, problems: {len(problems):,}; publish nothing from it "
            "before it is known why (written by another program, or restored in part?)"
        )
    standings = opened.standings()
    said = f"ledger {opened.place!r} is in order, accounts: {len(standings):,}, none above its limit"
    console.put("\n".join([said, *_list_withdrawn(standings)]))
    return 0


@ledger.command(cls=Command, short_help="Write the accounts as CSV or JSON, for a report.")
@spread
def export(
    where: str = _LEDGER,
    out: Path | None = option("FILE", "Write it there. [default: print it]"),
    form: Literal["csv", "json"] | None = option(
        "FORM", "csv or json. [default: by the file's name, else csv]", names="--format"
    ),
) -> None:
    """Write the accounts as a table: limit, spent and left, for a report on what has been published.

    Budgets are public, and nothing else is written: of accounts of people's own budgets only name and unit.

    \b
    Examples:
      deltahist ledger export city.ledger --out accounts.csv
      deltahist ledger export city.ledger --format json
    """
    opened = open_ledger(where)
    console.check_target(out, opened.path)
    standings = opened.standings()
    rows = [{"kind": each.kind, **each.describe()} for each in standings]
    if (form or ("" if out is None else out.suffix[1:].lower())) == "json":
        console.put_json(rows, out)
        return
    for row, each in zip(rows, standings, strict=True):
        row["withdrawn"] = "; ".join(map(_describe_withdrawal, each.withdrawn))
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    console.put(text.getvalue(), out)


def open_ledger(where: str) -> Ledger:
    """Open a ledger that exists: looking at one makes none."""
    from deltahist.accounts.databases import database
    from deltahist.accounts.ledger import Ledger

    if not Ledger.exists(where):
        place = database(where)
        near = "" if place.path is None else meant_file(place.path)
        raise InputError(f"ledger {place.place!r} does not exist{near}; the first release that it pays for makes it")
    return Ledger(where)


def _rows(standing: Standing) -> list[tuple[str, ...]]:
    """Return lines of a table: one more for each longer limit, and for failure probabilities."""
    from deltahist.budget import say_amount

    letter = LETTERS[standing.unit]
    if standing.kind == "purses":
        return [(standing.account, "of each person", f"in {letter}", "", "")]
    rows: list[tuple[str, ...]] = []
    for steps, limit, spent in standing.spans:
        figures = (f"{letter} = {say_amount(each, limit)}" for each in (limit, spent, limit - spent))
        name = "" if rows else standing.account
        rows.append((name, "altogether" if steps is None else f"in {steps:,} steps", *figures))
    if standing.probability is not None and standing.failed is not None:
        failing = (standing.probability, standing.failed, standing.probability - standing.failed)
        rows.append(("", "but for", *(f"{float(each):.10g}" for each in failing)))
    return rows


def _list_withdrawn(standings: list[Standing]) -> list[str]:
    """Return a line for each release that was withdrawn; none if nothing was."""
    found = [(each.account, about) for each in standings for about in each.withdrawn]
    lines = [f"{_describe_withdrawal(about)} (account {account!r})" for account, about in found]
    return ["", "withdrawn, and what they cost stays spent:", *lines] if lines else []


def _describe_withdrawal(about: dict[str, Any]) -> str:
    from deltahist.statement import explain_withdrawal

    return f"{about['file']} (SHA-256 {about['digest'][:16]}...) {explain_withdrawal(about)}"


def _sums(standings: list[Standing]) -> list[tuple[str, ...]]:
    """Return a line for each unit in which several accounts are totals: what somebody in all of them may have spent."""
    from deltahist.budget import say_amount

    rows: list[tuple[str, ...]] = []
    for unit, letter in LETTERS.items():
        totals = [each for each in standings if each.kind == "total" and each.unit == unit]
        if len(totals) > 1:
            sums = (sum(figures) for figures in zip(*((t.limit, t.spent, t.left) for t in totals), strict=True))
            limit, *others = map(Fraction, sums)
            figures = (f"{letter} = {say_amount(each, limit)}" for each in (limit, *others))
            rows.append(("together", "for who is in all", *figures))
    return rows
