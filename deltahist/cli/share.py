"""`deltahist share`: noisy values for the users of a network."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from deltahist._files import write_whole
from deltahist.cli import shared
from deltahist.cli.console import check_target, facts, note, show_progress
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.network.mechanism import DiffusionMechanism

#: Pairs that --all answers at most.
_MOST_PAIRS = 10_000_000


def share(
    source: Annotated[Path, Argument(metavar="INPUT", help="A table with one row for each user.")],
    *,
    user: Annotated[str, Option("--id", metavar="COL", help="Column of user names.")],
    x: shared.X = None,
    y: shared.Y = None,
    crs: shared.PointsCrs = None,
    project: Annotated[str | None, Option(metavar="CRS", help="Projected CRS of the answers.")] = None,
    value: Annotated[str | None, Option(metavar="COL", help="Instead of --x and --y: numbers.")] = None,
    bit: Annotated[str | None, Option(metavar="COL", help="Instead of --x and --y: zeros and ones.")] = None,
    edges: Annotated[Path, Option(metavar="FILE", exists=True, help="Who knows whom: two users on each line.")],
    directed: Annotated[bool, Option("--directed", help="Edges lead from owners to requesters.")] = False,
    distance: Annotated[str, Option(metavar="KIND", help="hops, resistance, or a file.")] = "hops",
    epsilon: Annotated[str, Option(metavar="E(d)", help="ε at distance d: 'exp(4-3.3d)', or 1:5,2:2,4:0.5.")],
    alpha: Annotated[Any, Option(metavar="LENGTH", parser=shared.length, help="α: distance that is hidden.")] = None,
    step: Annotated[Fraction | None, Option(parser=shared.amount, help="Lattice step. [default: α / 1000]")] = None,
    least: Annotated[float | None, Option(metavar="E", help="ε of users who are not connected.")] = None,
    pairs: Annotated[Path | None, Option(metavar="FILE", exists=True, help="Answer these: owner, requester.")] = None,
    requester: Annotated[str | None, Option(metavar="ID", help="Or: everything for this user.")] = None,
    everything: Annotated[bool, Option("--all", help="Or: everything for every user.")] = False,
    state: Annotated[Path, Option(metavar="FILE", help="Secret key of all answers; made if it is missing.")],
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The answers: .csv or .parquet.")],
    where: shared.Where = None,
) -> Any:
    """Share noisy values over a network: the closer the user, the less noise.

    Users who pool their answers learn no more than the closest of them knows (docs/kinds.md).

    \b
    Examples:
      deltahist share homes.csv --id user --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --alpha 100m \\
          --edges friends.txt --epsilon 'exp(4-3.3d)' --requester ann --state homes.key --out ann.csv
      deltahist share ages.csv --id user --value age --alpha 5 --edges friends.txt --epsilon 1:2,2:0.5 \\
          --all --state ages.key --out answers.parquet
    """
    from deltahist.counting import check_file, read_owners
    from deltahist.network.diffusion import Diffusion
    from deltahist.network.graph import read_network, read_pairs
    from deltahist.network.mechanism import DiffusionMechanism, PrivacyLevels
    from deltahist.space.crs import are_degrees

    if out.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"--out is {str(out)!r}: it must end in .csv or .parquet")
    if any(each is not None and each.resolve() == source.resolve() for each in (edges, pairs)):
        raise InputError(f"INPUT is {str(source)!r}: --edges and --pairs must be other files")
    check_target(out, state, source, edges, pairs)
    check_target(state, source, edges, pairs, option="--state")
    places = value is None and bit is None
    if sum(each is not None for each in (x, value, bit)) > 1 or (x is None) != (y is None):
        raise InputError("give --x and --y, or --value, or --bit")
    if not places and (crs or project):
        raise InputError("--crs and --project require --x and --y")
    if sum((pairs is not None, requester is not None, everything)) != 1:
        raise InputError("give exactly one of --pairs, --requester and --all")
    if (alpha is None) != (bit is not None):
        raise InputError("numbers and places require --alpha, and --bit excludes it")
    columns = {"x": x, "y": y} if places else {"x": value or bit, "y": None}
    how: dict[str, Any] = {"user": user, "where": where, "crs": None if crs == shared.PLAIN else crs, **columns}
    check_file(source, 2 if places else 1, max_per_user=1, **how)
    network, levels = read_network(edges, directed=directed), PrivacyLevels(epsilon, least=least)
    kind = read_pairs(distance, 3) if Path(distance).is_file() else distance
    name = value or bit or ""
    names = ("x", "y") if places else ((name if not name.isdigit() else "bit" if bit else "value"),)
    mechanism = DiffusionMechanism(network, levels, alpha, kind, names, step, shared.read_map_crs(project, crs))
    if everything and len(network) ** 2 > _MOST_PAIRS:
        raise InputError(f"--all would answer {len(network) ** 2:,} pairs: it must be at most {_MOST_PAIRS:,}")
    asked = None if pairs is None else read_pairs(pairs)
    data = read_owners(source, area=mechanism.area, **how)
    if places and crs is None and are_degrees((*data.min(), *data.max()), "x", "y"):
        raise InputError("the places look like degrees: add --crs EPSG:4326 and --project, or --crs none")
    data.columns = list(mechanism.columns)
    mechanism = _with_everybody(mechanism, data)
    diffusion = Diffusion(data, mechanism, state=state)
    with show_progress("Answering …"):
        if asked is not None:
            answers = diffusion.responses(asked)
        else:
            answers = diffusion.everything() if requester is None else diffusion.to(requester)
    write: Any = answers.to_csv if out.suffix.lower() == ".csv" else answers.to_parquet
    write_whole(out, lambda part: write(part, index=False))
    if answers.empty:
        note("nobody is connected with the requesters: --least answers such pairs, too")
    requesters, owners = answers["requester"].nunique(), answers["owner"].nunique()
    if requesters > 1:
        note(f"{out} is for {requesters:,} users: give each user their own rows only")
    print(facts(answers=f"{out}, {len(answers):,} about {owners:,} users to {requesters:,}"))
    print(mechanism.statement(mechanism.epsilon.billionths(answers["distance"])))
    return answers


def _with_everybody(mechanism: DiffusionMechanism, data: pd.DataFrame) -> DiffusionMechanism:
    """Return the mechanism with the users of the table who have no edges in its network, too."""
    network, users = mechanism.network, set(data.index)
    alone, absent = users.difference(network.nodes), set(network.nodes) - users
    note(f"{len(data):,} rows read")
    if absent:
        note(f"{len(absent):,} of {len(network):,} users of the network have no data: they are only requesters")
    if not alone:
        return mechanism
    if alone == users:
        network.index(list(data.index))
    note(f"{len(alone):,} users of the table have no edges")
    return replace(mechanism, network=network.with_users(data.index))
