"""`deltahist ledger`: show, open and check the accounts of a ledger."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from deltahist.cli import expand_groups, format_facts, format_table, options, print_note, write_json, write_text
from deltahist.cli.options import Amount, Name, require

if TYPE_CHECKING:
    from deltahist.accounts.ledger import Ledger, Standing

Where = Annotated[str, Argument(metavar="LEDGER", help="Ledger file or postgresql:// URL.")]

ledger = typer.Typer(rich_markup_mode=None, add_completion=False)


@ledger.callback()
def describe_ledger() -> None:
    """Show, open or check the accounts of a ledger.

    Keep database passwords in PGPASSWORD or ~/.pgpass, because other users can see command lines.

    \b
    Example:
      deltahist ledger show postgresql://ann@db.example.org/city --json
    """


@ledger.command("show", short_help="Show what each account may spend, has spent and has left.")
def show_accounts(where: Where, as_json: options.AsJson = False) -> None:
    """Show what each account may spend, has spent and has left, in total or in the latest window of steps."""
    standings = open_ledger(where).list_standings()
    if as_json:
        write_json([each.describe() for each in standings])
        return
    rows = [row for each in standings for row in _format_limits(each)]
    lines = [format_table(("account", "", "limit", "spent", "left"), rows, left=[""]), ""]
    lines += dict.fromkeys(str(each.population) for each in standings)
    if withdrawn := [(each.account, notice) for each in standings for notice in each.withdrawn]:
        lines += ["", "withdrawn releases (their cost stays spent):"]
        lines += [f"{each['file']}, on {each['date']}: {each['reason']} (account {name!r})" for name, each in withdrawn]
    write_text("\n".join(lines))


@ledger.command("open", short_help="Open an account, or limit what all accounts spend together.")
@expand_groups
def open_account(
    where: Where,
    account: Annotated[str, Argument(metavar="ACCOUNT", help="Name of the account.")],
    *,
    budget: options.BudgetOptions,
    population: Annotated[str | None, Name(help="Population covered by the account. [default: everyone]")] = None,
    population_limit: Annotated[
        Fraction | None, Amount(help="Joint limit for all accounts that cover a new population.")
    ] = None,
) -> None:
    """Open an account in a ledger. Create the ledger if it is missing.

    If several accounts cover the same people, their spending adds up. `publish --account-limit` and `stream` open
    accounts for the population "everyone". To limit what all accounts spend together, open the first one with this
    command and --population-limit.

    \b
    Example:
      deltahist ledger open city.ledger visits --epsilon 1 --population-limit 3
    """
    from deltahist.accounts.ledger import Ledger

    opened = Ledger(where)
    opened.open(account, population=population, population_limit=population_limit, **budget.read())
    write_text(format_facts(account=account, together=opened.read_standing(account).population))


@ledger.command("audit", short_help="Check a ledger for damage and overspent accounts.")
def audit_ledger(where: Where) -> int:
    """Check a ledger without changing it. Print problems, one per line. If there are any, exit with status 2.

    The command checks that the database is intact, that no account or population has exceeded its limits, and that
    totals match the charges. The command cannot detect that an older copy has replaced the ledger.
    """
    opened = open_ledger(where)
    problems = opened.find_problems()
    for problem in problems:
        print_note(f"wrong: {problem}")
    if problems:
        print_note(f"error: ledger {opened.place!r} has {len(problems):,} problems: publish nothing from it")
        return 2
    write_text(f"ledger {opened.place!r} is in order: {len(opened.list_accounts()):,} account(s), none above its limit")
    return 0


def open_ledger(where: str) -> Ledger:
    from deltahist.accounts.ledger import Ledger

    require(Ledger.exists(where), f"ledger {Ledger.name_of(where)!r} does not exist: `publish --ledger` creates one")
    return Ledger(where)


def _format_limits(standing: Standing) -> list[tuple[str, ...]]:
    from deltahist.budget import LETTERS, format_amount

    letter = LETTERS[standing.unit]
    if standing.kind == "purses":
        return [(standing.account, "of each person", f"in {letter}", "", "")]
    rows: list[tuple[str, ...]] = []
    for each in standing.spans:
        figures = (f"{letter} = {format_amount(amount, each.most)}" for amount in (each.most, each.spent, each.left))
        name = "" if rows else standing.account
        rows.append((name, "altogether" if each.steps is None else f"in {each.steps:,} steps", *figures))
    return rows
