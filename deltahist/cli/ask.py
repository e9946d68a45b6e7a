"""`deltahist ask`: a question of people's records, each of whom has a budget of their own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from deltahist.cli import console
from deltahist.cli.options import amount, argument, flag, option
from deltahist.errors import InputError, is_number

if TYPE_CHECKING:
    from deltahist.personal.asking import Question
    from deltahist.personal.people import People


@dataclass(frozen=True, kw_only=True)
class _PeopleOptions:
    """The people whose records are asked, and the ledger of their budgets."""

    database: str = option("WHERE", "DuckDB file, or postgresql://user@host/name.", default=...)
    ledger: str = option("WHERE", "Ledger of the budgets: a file, made at first, or postgresql://….", default=...)
    table: str | None = option("TABLE", "Table of the records, if the question does not say it.")
    owner: str | None = option("COL", "Column that says whose a record is, likewise.")
    account: str = option("NAME", "Account of these people in the ledger.", default="people")
    limit: Fraction | None = option(
        "E", "Budget of each new person: all owners of records join with it.", amount
    )
    restored: bool = flag("An older copy of the database was put back: take it instead of the one that is lost.")

    def people(self, question: Question) -> People:
        """Open the accounts of the people, new ones among them."""
        from deltahist.accounts.databases import find_database
        from deltahist.accounts.ledger import Ledger
        from deltahist.personal.people import People

        unit = "epsilon" if "epsilon" in question.answer else "rho"
        price = question.answer[unit]
        if self.limit is not None and is_number(price) and self.limit < price:
            console.note(
                f"each record costs {unit} = {price:g}, more than --limit {float(self.limit):g}: who joined with that "
                "is in no answer"
            )
        # Before either is made.
        file = self.database.removeprefix("duckdb:///")
        if "://" not in file and not Path(file).is_file():
            raise InputError(f"--database {file!r} does not exist")
        console.check_target(find_database(self.ledger).path, option="--ledger")
        if self.limit is None and not (Ledger.exists(self.ledger) and self.account in Ledger(self.ledger).accounts()):
            raise InputError(
                f"the ledger has no account {self.account!r}, so that nobody has joined and nobody can pay: say what "
                "each person may spend, --limit 1; or is it another --ledger or --account?"
            )
        found = People(
            self.database,
            self._either("table", question),
            owner=self._either("owner", question),
            ledger=self.ledger,
            name=self.account,
            place=question.place,
            crs=question.crs,
            restored=self.restored,
            **{unit: self.limit},  # type: ignore[arg-type]
        )
        if self.limit is not None:
            found.enrol()
        return found

    def _either(self, name: str, question: Question) -> str:
        own, written = getattr(self, name), getattr(question, name)
        if own is not None and written is not None and own != written:
            raise InputError(f"--{name} is {own!r}, and the question says {written!r}: leave one of them out")
        if own is None and written is None:
            raise InputError(f"--{name} is missing, and the question does not say it: name it")
        return str(own if written is None else written)


def ask(
    *,
    question: Path = argument("QUESTION", "A TOML file: steps, and what is asked (docs/personal.md)."),
    whom: _PeopleOptions,
    key: str | None = option(
        "KEY", "Of this request: asked again with it, the same answer comes back, and nobody pays twice."
    ),
    out: Path | None = option("FILE", "Where the answer goes, as text or JSON."),
    as_json: bool = flag("The answer as data.", names="--json"),
) -> None:
    """Ask a question of people's records, paid for by those whose records it uses.

    Each person has a budget of their own. Records of who cannot pay are left out, without a word: nothing here tells
    who paid, or how many.

    \b
    Examples:
      deltahist ask night.toml --database city.duckdb --ledger city.ledger --limit 1
      deltahist ask night.toml --database city.duckdb --ledger city.ledger --key report-7 --json
    """
    from deltahist.personal.asking import Question

    asked = Question.read(question)
    if out is not None and out.suffix.lower() not in (".txt", ".json"):
        raise InputError(f"--out is {str(out)!r}: an answer is text or JSON, so its suffix must be .txt or .json")
    console.check_target(out, question, replace=True)
    answer = asked.ask(whom.people(asked).records, key)
    if as_json or (out is not None and out.suffix.lower() == ".json"):
        console.put_json(answer.to_json(), out)
    else:
        console.put(f"{answer}\n\n{answer.words[0].upper()}{answer.words[1:]}.", out)
