"""`deltahist ledger`: how accounts stand, whether a ledger is in order, and its accounts for a report."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from deltahist.cli import console, shared
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.accounts.ledger import Ledger, Standing

_Where = Annotated[str, Argument(metavar="LEDGER", help="A ledger's file, or a postgresql:// URL.")]
_COLUMNS = ("account", "kind", "unit", "steps", "limit", "spent", "left", "withdrawn")


class _ShowByDefault(TyperGroup):
    """`deltahist ledger FILE` is `deltahist ledger show FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger = typer.Typer(cls=_ShowByDefault, rich_markup_mode=None, add_completion=False)


@ledger.callback()
def about() -> None:
    """Show, open, check or export the accounts of a ledger: limit, spent and left.

    Keep the password of a database in PGPASSWORD or ~/.pgpass: other users can see a command line.

    \b
    Examples:
      deltahist ledger city.ledger             # the same as: deltahist ledger show city.ledger
      deltahist ledger export postgresql://ann@db.example.org/city --out accounts.csv
    """


@ledger.command(short_help="Show the accounts: limit, spent, left.")
def show(where: _Where, as_json: Annotated[bool, Option("--json", help="The same as data.")] = False) -> None:
    """Show the accounts of a ledger: limit, spent and left, in all or in the last window of steps."""
    standings = open_ledger(where).list_standings()
    if as_json:
        console.put_json([each.describe() for each in standings])
    else:
        rows = [row for each in standings for row in _rows(each)] + _sum_rows(standings)
        lines = [console.table(("account", "", "limit", "spent", "left"), rows, left=2)]
        console.put("\n".join([*lines, *_list_withdrawn(standings)]))


@ledger.command("open", short_help="Open an account, and limit what all accounts spend together.")
def open_account(
    where: _Where,
    account: Annotated[str, Argument(metavar="ACCOUNT", help="Name of the account.")],
    *,
    epsilon: shared.Epsilon = None,
    rho: shared.Rho = None,
    population: Annotated[str | None, Option(metavar="NAME", help="Its people. [default: everyone]")] = None,
    population_limit: Annotated[
        Fraction | None, Option(metavar="E", parser=shared.amount, help="Limit of all accounts of new people together.")
    ] = None,
) -> None:
    """Open an account of a ledger, which is made if need be.

    Accounts of the same people add up. `publish --account-limit` and `stream` open accounts of "everyone". Open the
    first account here to limit what all of them may ever spend together.

    \b
    Example:
      deltahist ledger open city.ledger visits --epsilon 1 --population-limit 3
    """
    from deltahist.accounts.ledger import Ledger

    opened = Ledger(where)
    budget = shared.read_budget(epsilon, rho)
    opened.open(account, population=population, population_limit=population_limit, **budget)
    console.put(console.facts(account=account, together=opened.read_standing(account).population))


@ledger.command(short_help="Check a ledger; exit status 2 if something is wrong.")
def audit(where: _Where) -> int:
    """Check a ledger, and change nothing: one line for each thing that is wrong, and exit status 2.

    The database is whole, no account has spent more than its limit in any window, and sums are those of the charges.
    Whether a ledger is an old copy cannot be told from it.
    """
    opened = open_ledger(where)
    problems = opened.find_problems()
    for problem in problems:
        console.note(f"wrong: {problem}")
    if problems:
        raise InputError(f"ledger {opened.place!r} has {len(problems):,} problems: publish nothing from it")
    console.put(f"ledger {opened.place!r} is in order, accounts: {len(opened.list_accounts()):,}, none above its limit")
    return 0


@ledger.command(short_help="Write the accounts as CSV, for a report.")
def export(
    where: _Where, out: Annotated[Path | None, Option(metavar="FILE", help="Write to a file. [default: print]")] = None
) -> None:
    """Write the accounts as CSV: limit, spent and left. Budgets are public, and nothing else is written."""
    opened = open_ledger(where)
    console.check_target(out, opened.path)
    rows = [row for each in opened.list_standings() for row in _records(each)]
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({**row, "withdrawn": "; ".join(each["file"] for each in row.get("withdrawn", []))})
    console.put(text.getvalue(), out)


def open_ledger(where: str) -> Ledger:
    """Open a ledger that is there; InputError if it is not."""
    from deltahist.accounts.ledger import Ledger

    if not Ledger.exists(where):
        raise InputError(f"ledger {Ledger.name_of(where)!r} does not exist: `publish --ledger` makes one")
    return Ledger(where)


def _records(standing: Standing) -> list[dict[str, Any]]:
    """Return a record for each limit of an account, with what it leaves; a limit of all its people may leave less."""
    about = {"kind": standing.kind, **standing.describe()}
    if standing.kind == "purses":
        return [about]
    least = None if standing.binding in standing.spans else standing.left
    records = []
    for each in standing.spans:
        spent, limit, left = each.amounts
        left = left if least is None else min(left, least)
        records.append({**about, "steps": each.steps, **_floats(limit=limit, spent=spent, left=left)})
    return records


def _floats(**amounts: Fraction) -> dict[str, float]:
    return {name: float(amount) for name, amount in amounts.items()}


def _rows(standing: Standing) -> list[tuple[str, ...]]:
    """Return a line for each limit of an account."""
    from deltahist.budget import LETTERS, say_amount

    letter = LETTERS[standing.unit]
    if standing.kind == "purses":
        return [(standing.account, "of each person", f"in {letter}", "", "")]
    rows: list[tuple[str, ...]] = []
    for each in standing.spans:
        spent, limit, left = each.amounts
        figures = (f"{letter} = {say_amount(amount, limit)}" for amount in (limit, spent, left))
        name = "" if rows else standing.account
        rows.append((name, "altogether" if each.steps is None else f"in {each.steps:,} steps", *figures))
    return rows


def _sum_rows(standings: list[Standing]) -> list[tuple[str, ...]]:
    """Return lines of what all accounts of the same people may spend, have spent and have left together."""
    from deltahist.budget import LETTERS, say_amount

    rows: list[tuple[str, ...]] = []
    for people in dict.fromkeys(each.population for each in standings):
        for unit, spent, most, window in people.sums:
            fellows = [each for each in standings if each.population == people and each.unit == unit and each.spans]
            last = sum((each.spent for each in fellows), Fraction(0))

            def say(amount: Fraction, unit: str = unit, window: Fraction = window) -> str:
                return f"{LETTERS[unit]} = {say_amount(amount, window)}"

            limits = ("no limit", say(spent), "") if most is None else (say(most), say(spent), say(most - spent))
            rows.append((f"all of {people.name}", "altogether", *limits))
            if most is None:
                rows.append(("", "in any window", say(window), say(last), say(window - last)))
    return rows


def _list_withdrawn(standings: list[Standing]) -> list[str]:
    """Return a line for each release that was withdrawn."""
    found = [(each.account, notice) for each in standings for notice in each.withdrawn]
    lines = [f"{notice['file']}, on {notice['date']}: {notice['reason']} (account {name!r})" for name, notice in found]
    return ["", "withdrawn (what they cost stays spent):", *lines] if lines else []
