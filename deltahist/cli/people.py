"""`deltahist ask`: queries charged to people's own budgets. `deltahist share`: noisy values for users of a network."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from deltahist.cli import check_target, format_facts, options, print_note, show_progress, write_json, write_text
from deltahist.cli.options import Amount, Column, File, Length, Name, OutFile, require

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.network.mechanism import Network


def ask(
    question: Annotated[Path, Argument(metavar="QUESTION", help="TOML file with the query (see docs/kinds.md).")],
    *,
    database: Annotated[str, Option(metavar="WHERE", help="Database: a DuckDB file or postgresql://user@host/name.")],
    ledger: Annotated[str, Option(metavar="WHERE", help="Ledger with the budgets: a file or postgresql://...")],
    account: Annotated[str, Name(help="Ledger account with the budgets.")] = "people",
    limit: Annotated[Fraction | None, Amount(help="Let everyone in the table join, each with this budget.")] = None,
    key: Annotated[str | None, Option(metavar="KEY", help="Key that lets you repeat the query at no cost.")] = None,
    out: Annotated[Path | None, OutFile(help="File to write: .txt or .json.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Answer a query, and charge the people whose records it uses.

    Each person has a budget. Records of people who cannot pay are left out. No output reveals who paid or how many did.

    \b
    Example:
      deltahist ask night.toml --database city.duckdb --ledger city.ledger --key report-7 --json
    """
    from deltahist._files import form_of
    from deltahist.accounts.ledger import Ledger, check_text
    from deltahist.personal.people import People
    from deltahist.personal.questions import Question

    asked, account = Question.read(question), check_text(account=account)
    table, owner = asked.table or "", asked.owner or ""
    require(table and owner, f"{question} must set `table` (the records) and `owner` (the column with their owners)")
    form = "text" if out is None else form_of(out, {".txt": "text", ".json": "json"})
    check_target(out, question)
    # Opening a missing file would create it.
    require("://" in database or Path(database).is_file(), f"--database {database!r} does not exist")
    joined = limit is not None or (Ledger.exists(ledger) and account in Ledger(ledger).list_accounts())
    require(joined, f"the ledger has no account {account!r}, so nobody has joined: let people join with --limit 1")
    budget: dict[str, Any] = {asked.answer.budget.unit: limit}
    people = People(database, table, owner=owner, ledger=ledger, name=account, **budget)
    if limit is not None:
        people.enrol()
    answer = asked.ask(people.records, key)
    if as_json or form == "json":
        write_json(answer.to_json(), out)
    else:
        write_text(f"{answer}\n\n{answer.explanation[0].upper()}{answer.explanation[1:]}.", out)


def share(
    source: Annotated[Path, Argument(metavar="INPUT", help="A table with one row per user.")],
    *,
    user: Annotated[str, Option("--id", metavar="COL", help="Column with user names.")],
    x: options.ColumnOfX = None,
    y: options.ColumnOfY = None,
    crs: options.PointsCrs = None,
    project: Annotated[str | None, Option(metavar="CRS", help="Projected CRS of the answers.")] = None,
    value: Annotated[str | None, Column(help="Column with numbers, instead of --x and --y.")] = None,
    bit: Annotated[str | None, Column(help="Column with zeros and ones, instead of --x and --y.")] = None,
    edges: Annotated[Path, File(exists=True, help="Edges of the network: two user names on each line.")],
    directed: Annotated[bool, Option("--directed", help="Treat edges as directed, from owner to requester.")] = False,
    distance: Annotated[
        str, Option(metavar="KIND", help="Distance between users: hops, resistance or a file.")
    ] = "hops",
    epsilon: Annotated[str, Option(metavar="E(d)", help="ε at distance d, such as 'exp(4-3.3d)' or 1:5,2:2,4:0.5.")],
    alpha: Annotated[Any, Length(help="α: hide differences of up to this distance.")] = None,
    step: Annotated[Fraction | None, Amount(help="Spacing of possible answers. [default: at most α / 1000]")] = None,
    least: Annotated[float | None, Option(metavar="E", help="ε for users who are not connected.")] = None,
    pairs: Annotated[Path | None, File(exists=True, help="CSV file of pairs to answer, as owner,requester.")] = None,
    requester: Annotated[str | None, Option(metavar="ID", help="User who gets answers about everybody.")] = None,
    everything: Annotated[bool, Option("--all", help="Give every user answers about all others.")] = False,
    state: Annotated[Path, File(help="File with the secret key for all answers, created if missing.")],
    out: Annotated[Path, OutFile(help="File to write the answers to: .csv or .parquet.")],
    where: options.Where = None,
) -> Any:
    """Share noisy values over a network: the closer the user, the less noise.

    Users who pool their answers learn no more than the closest of them learns alone (see docs/kinds.md).

    \b
    Example:
      deltahist share homes.csv --id user --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --alpha 100m \\
          --edges friends.txt --epsilon 'exp(4-3.3d)' --requester ann --state homes.key --out ann.csv
    """
    from deltahist._files import form_of, write_whole
    from deltahist.counting import check_file, read_owners
    from deltahist.network.diffusion import Diffusion
    from deltahist.network.mechanism import DiffusionMechanism, Network, PrivacyLevels, read_pairs
    from deltahist.space.crs import are_degrees

    form = form_of(out, {".csv": "csv", ".parquet": "parquet"})
    for option, file in (("--edges", edges), ("--pairs", pairs)):
        require(file is None or file.resolve() != source.resolve(), f"{option} must differ from INPUT, {str(source)!r}")
    check_target(out, state, source, edges, pairs)
    check_target(state, source, edges, pairs, option="--state")
    places = value is None and bit is None
    columns = sum(each is not None for each in (x, value, bit))
    require((x is None) == (y is None) and columns <= 1, "give --x and --y, or only --value, or only --bit")
    require(places or not (crs or project), "--crs and --project require --x and --y")
    given = (pairs is not None, requester is not None, everything)
    require(sum(given) == 1, "give exactly one of --pairs, --requester and --all")
    require((alpha is None) == (bit is not None), "--alpha is required for numbers and places, and excludes --bit")
    reading: dict[str, Any] = {"user": user, "where": where, "crs": options.read_crs(crs)}
    reading |= {"x": x, "y": y} if places else {"x": value or bit, "y": None}
    check_file(source, 2 if places else 1, max_per_user=1, **reading)
    friends, levels = read_pairs(edges), PrivacyLevels(epsilon, least=least)
    network = Network.from_edges(friends, directed=directed)
    kind = read_pairs(distance, 3) if Path(distance).is_file() else distance
    name = value or bit or ""
    names = ("x", "y") if places else ((name if not name.isdigit() else "bit" if bit else "value"),)
    mechanism = DiffusionMechanism(network, levels, alpha, kind, names, step, options.choose_crs(project, crs))
    asked = None if pairs is None else read_pairs(pairs)
    data = read_owners(source, area=mechanism.area, **reading)
    in_degrees = places and crs is None and are_degrees((*data.min(), *data.max()), "x", "y")
    require(not in_degrees, "the coordinates look like degrees: add --crs EPSG:4326 and --project, or --crs none")
    data.columns = list(mechanism.columns)
    _note_isolated_users(network, data)
    # Sort by name, since the order of a private table may reveal something about its rows.
    mechanism = replace(mechanism, network=Network.from_edges(friends, sorted(data.index), directed=directed))
    diffusion = Diffusion(data, mechanism, state=state)
    with show_progress("Answering …"):
        if asked is not None:
            answers = diffusion.responses(asked)
        else:
            answers = diffusion.everything() if requester is None else diffusion.to(requester)
    write: Any = answers.to_csv if form == "csv" else answers.to_parquet
    write_whole(out, lambda part: write(part, index=False))
    if answers.empty:
        print_note("nobody is connected to the requesters: to answer such pairs anyway, set --least")
    requesters, owners = answers["requester"].nunique(), answers["owner"].nunique()
    if requesters > 1:
        print_note(f"{out} has answers for {requesters:,} users: give each user only their own rows")
    print(format_facts(answers=f"{out}, {len(answers):,} about {owners:,} users to {requesters:,}"))
    print(mechanism.statement(mechanism.privacy_levels.round_down(answers["distance"])))
    return answers


def _note_isolated_users(network: Network, data: pd.DataFrame) -> None:
    users = set(data.index)
    isolated, absent = users.difference(network.nodes), set(network.nodes) - users
    print_note(f"{len(data):,} rows read")
    if absent:
        print_note(f"{len(absent):,} of {len(network):,} users of the network have no data, so they can only ask")
    if isolated == users:  # reject a network that has none of the users
        network.find_places(list(data.index))
    if isolated:
        print_note(f"{len(isolated):,} users in the table have no edges")
