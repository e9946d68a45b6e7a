"""`deltahist ask`: a question about people's records, each of whom has a budget of their own."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from deltahist.cli import console, shared
from deltahist.errors import InputError


def ask(
    question: Annotated[Path, Argument(metavar="QUESTION", help="What is asked, in TOML (docs/kinds.md).")],
    *,
    database: Annotated[str, Option(metavar="WHERE", help="DuckDB file, or postgresql://user@host/name.")],
    ledger: Annotated[str, Option(metavar="WHERE", help="Ledger of the budgets: a file or postgresql://...")],
    table: Annotated[str | None, Option(metavar="TABLE", help="Table of the records.")] = None,
    owner: Annotated[str | None, Option(metavar="COL", help="Column of their owners.")] = None,
    account: Annotated[str, Option(metavar="NAME", help="Account of these people in the ledger.")] = "people",
    limit: Annotated[Fraction | None, Option(parser=shared.amount, metavar="E", help="Let all owners join.")] = None,
    key: Annotated[str | None, Option(metavar="KEY", help="A repeated key repeats the answer, free.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="The answer, .txt or .json.")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Answer a query, charged to the people whose records it uses.

    Each person has a budget of their own. Records of people who cannot pay are left out silently: nothing printed
    reveals who paid, or how many.

    \b
    Examples:
      deltahist ask night.toml --database city.duckdb --ledger city.ledger --limit 1
      deltahist ask night.toml --database city.duckdb --ledger city.ledger --key report-7 --json
    """
    from deltahist.accounts.ledger import Ledger, check_text

    try:
        from deltahist.personal.people import People
        from deltahist.personal.questions import Question
    except ImportError:
        raise InputError("people's records need more packages: pip install 'deltahist[personal]'") from None

    asked, account = Question.read(question), check_text(account=account)
    where: dict[str, Any] = {"table": table or asked.table, "owner": owner or asked.owner}
    for name, value in where.items():
        if value is None:
            raise InputError(f"--{name} is missing, and the question does not name it")
    if out is not None and out.suffix.lower() not in (".txt", ".json"):
        raise InputError(f"--out is {str(out)!r}: its suffix must be .txt or .json")
    console.check_target(out, question, replace=True)
    # Before either is made.
    if "://" not in database and not Path(database).is_file():
        raise InputError(f"--database {database!r} does not exist")
    if limit is None and not (Ledger.exists(ledger) and account in Ledger(ledger).list_accounts()):
        raise InputError(f"the ledger has no account {account!r}: nobody has joined; let people join with --limit 1")
    people = People(database, **where, ledger=ledger, name=account, **{asked.aggregate.unit: limit})  # type: ignore[arg-type]
    if limit is not None:
        people.enrol()
    answer = asked.ask(people.records, key)
    if as_json or (out is not None and out.suffix.lower() == ".json"):
        console.put_json(answer.to_json(), out)
    else:
        console.put(f"{answer}\n\n{answer.explanation[0].upper()}{answer.explanation[1:]}.", out)
