"""`deltahist share`: users' data as others in a network may know them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from deltahist._files import write_whole
from deltahist.cli import console
from deltahist.cli.groups import TableOptions
from deltahist.cli.maps import NAME_ONE, PLAIN, Coordinates
from deltahist.cli.options import amount, argument, decimal, flag, length, option
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.network.mechanism import DiffusionMechanism

#: Pairs that --all answers at most.
_MOST_PAIRS = 10_000_000
#: Names of columns of degrees.
_ANGLES = {"lon", "lng", "longitude", "lat", "latitude"}


@dataclass(frozen=True, kw_only=True)
class _DataOptions(Coordinates):
    """The data of each user that are shared: a place, a number or a bit."""

    y: str | None = option("COL", "Column of y or latitude.")
    project: str | None = option("CRS", "Projected CRS of the answers, such as EPSG:32618.")
    value: str | None = option("COL", "Instead of --x and --y: column of numbers.")
    bit: str | None = option("COL", "Instead of --x and --y: column of zeros and ones.")

    def __post_init__(self) -> None:
        given = [name for name in ("x", "value", "bit") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(
                f"--{given[0]} and --{given[1]} are given: one table is one kind of data; share others from another "
                "table, whose ε adds up"
            )
        if (self.x is None) != (self.y is None):
            missing = "x" if self.x is None else "y"
            raise InputError(f"--{missing} is missing: places take both --x and --y; numbers take --value")
        for name in ("crs", "project"):
            if not self.places and getattr(self, name) is not None:
                raise InputError(
                    f"--{name} is {getattr(self, name)!r} with --{given[0]}: it goes with places, --x and --y"
                )

    @property
    def places(self) -> bool:
        """Whether places are shared, of columns or of geometries."""
        return self.value is None and self.bit is None

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the answers."""
        if self.places:
            return ("x", "y")
        kind, name = ("value", self.value) if self.bit is None else ("bit", self.bit)
        return (str(name) if name and not name.isdigit() else kind,)

    def map(self) -> str | None:
        """Return the CRS of the places; None for plain numbers. Refuse columns that are called like degrees."""
        if not self.places:
            return None
        if self.project == "auto":
            raise InputError(f"--project is 'auto', which takes --bounds, and there are none: give {NAME_ONE}")
        if self.crs is None and self.project is None and {str(self.x).lower(), str(self.y).lower()} & _ANGLES:
            raise InputError(
                f"--x is {self.x!r} and --y {self.y!r} without a CRS: degrees are not lengths; add --crs EPSG:4326 "
                f"and {NAME_ONE}; or --crs none if they are plain numbers of a plane"
            )
        return self.on_map(())[1]

    def columns(self, axes: int = 2) -> dict[str, Any]:
        """Return keywords of the readers of the data."""
        x, y = (self.x, self.y) if self.places else (self.value or self.bit, None)
        return {"x": x, "y": y, "crs": None if self.crs == PLAIN else self.crs}

    def read(self, source: Path, mechanism: DiffusionMechanism, **how: Any) -> pd.DataFrame:
        """Read the data, with the mechanism's columns and the users as index."""
        from deltahist.counting import read_owners
        from deltahist.space.crs import are_degrees, utm_code

        data = read_owners(source, area=mechanism.area, **how)
        if self.places and mechanism.crs is None and self.crs is None:
            low, high = data.min(), data.max()
            if are_degrees((low[0], low[1], high[0], high[1]), "x", "y"):
                code = utm_code((low[0] + high[0]) / 2, (low[1] + high[1]) / 2)
                raise InputError(
                    "places without a CRS look like longitudes and latitudes, and degrees are not lengths: add "
                    f"--crs EPSG:4326 --project {code}; or --crs none if they are plain numbers of a plane"
                )
        data.columns = list(mechanism.columns)
        return data


def share(
    context: Context,
    *,
    source: Path = argument(
        "INPUT", "One row for each user: CSV, JSON lines, Parquet, Excel, GeoPackage or another table."
    ),
    user: str = option("COL", "Column of user names.", default=..., names="--id"),
    shared: _DataOptions,
    edges: Path = option(
        "FILE", "Who knows whom: two users on each line, separated by commas, tabs or spaces.", default=...
    ),
    directed: bool = flag("An edge leads one way, from the owner of data towards those who ask."),
    distance: str = option(
        "KIND", "hops, resistance, or a file with owner, requester and distance on each line.", default="hops"
    ),
    epsilon: str = option(
        "E(d)",
        "ε at distance d: 'exp(4-3.3d)', or steps 1:15,2:8,4:0.5 (up to distance 1 it is 15, ...).",
        default=...,
    ),
    alpha: float | str | None = option(
        "LENGTH", "α: data so far apart are hidden in each other: 100m (on the ground), or a plain number.", length
    ),
    step: Fraction | None = option(
        "LENGTH", "Lattice of the answers, in units of the map or of the numbers. [default: α / 1,000 or less]", amount
    ),
    least: float | None = option(
        "E", "Least ε, also for whoever is not connected. [default: those get no answer]", decimal
    ),
    pairs: Path | None = option("FILE", "Answer these: owner and requester on each line."),
    requester: str | None = option("ID", "Or: all that this user may know of everybody else."),
    everything: bool = flag("Or: all that everybody may know of everybody else.", names="--all"),
    state: Path = option(
        "FILE", "Key of all answers about these data: made if it is not there, and to be kept, secret.", default=...
    ),
    out: Path = option("FILE", "The answers: .csv or .parquet.", default=...),
    table: TableOptions,
) -> Any:
    """Answer what users of a network may know of each other: the nearer they are, the more exactly.

    Coalitions of users gain nothing: together they know what the nearest of them does (docs/diffusion.md).

    \b
    Examples:
      deltahist share homes.csv --id user --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --alpha 100m \\
          --edges friends.txt --epsilon 'exp(4-3.3d)' --requester ann --state homes.key --out ann.csv
      deltahist share ages.csv --id user --value age --alpha 5 --edges friends.txt --epsilon 1:2,2:0.5 \\
          --all --state ages.key --out answers.parquet
    """
    from deltahist.counting import check_file
    from deltahist.network.diffusion import Diffusion
    from deltahist.network.graph import read_network, read_pairs
    from deltahist.network.mechanism import DiffusionMechanism, PrivacyLevels

    _check_files(source, edges, pairs, state, out)
    number = sum((pairs is not None, requester is not None, everything))
    if number != 1:
        raise InputError(f"{number} of --pairs, --requester and --all are given: it must be one of them")
    if (alpha is None) != (shared.bit is not None):
        given = "missing" if alpha is None else f"{alpha!r} with --bit"
        raise InputError(f"--alpha is {given}: numbers and places need it, bits have none")
    how: Any = {"user": user, **shared.columns(), **vars(table)}
    axes = 2 if shared.places else 1
    check_file(source, axes, max_per_user=1, **how)
    network, levels = read_network(edges, directed=directed), PrivacyLevels(epsilon, least=least)
    kind = read_pairs(distance, 3) if Path(distance).is_file() else distance
    mechanism = DiffusionMechanism(network, levels, alpha, kind, shared.names, step, shared.map())
    if everything and len(network) ** 2 > _MOST_PAIRS:
        raise InputError(
            f"--all is given for {len(network):,} users, {len(network) ** 2:,} pairs: it answers {_MOST_PAIRS:,} "
            "at most; take --pairs or --requester"
        )
    asked = None if pairs is None else read_pairs(pairs)
    data = shared.read(source, mechanism, **how)
    mechanism = _with_everybody(mechanism, data)
    diffusion = Diffusion(data, mechanism, state=state)
    if asked is not None:
        answers = diffusion.responses(asked)
    else:
        answers = diffusion.everything() if requester is None else diffusion.to(requester)
    write: Any = answers.to_csv if out.suffix.lower() == ".csv" else answers.to_parquet
    write_whole(out, lambda part: write(part, index=False))
    if answers.empty:
        console.note("nobody is connected with whom was asked for: --least says what those get")
    requesters, owners = answers["requester"].nunique(), answers["owner"].nunique()
    if requesters > 1:
        console.note(
            f"{out} holds what {requesters:,} users may know: give each their own rows only; whoever has them all "
            "knows the largest ε"
        )
    print(console.facts(answers=f"{out}, {len(answers):,} about {owners:,} users to {requesters:,}"))
    print(mechanism.statement(mechanism.epsilon.billionths(answers["distance"])))
    return answers


def _check_files(source: Path, edges: Path, pairs: Path | None, state: Path, out: Path) -> None:
    """Refuse files that are confused with each other, or cannot be written."""
    if state.resolve() == out.resolve():
        raise InputError(
            f"--state is {str(state)!r}, as --out is: the answers are for others, the key is secret; name two files"
        )
    console.check_target(out, state, source, edges, pairs)
    if not state.exists():
        console.check_target(state, option="--state")
    for name, other in (("edges", edges), ("pairs", pairs)):
        if other is not None and not other.is_file():
            raise InputError(f"--{name} is {str(other)!r}: there is no such file")
        if other is not None and source.exists() and other.samefile(source):
            raise InputError(f"--{name} is {str(other)!r}, which is the table of data: name the file of {name}")
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"--out is {str(out)!r}: it must end in .csv or .parquet")


def _with_everybody(mechanism: DiffusionMechanism, data: pd.DataFrame) -> DiffusionMechanism:
    """Return the mechanism with users of the table who have no edge in its network, too."""
    network, users = mechanism.network, set(data.index)
    alone, absent = users.difference(network.nodes), set(network.nodes) - users
    console.note(f"{len(data):,} rows read")
    if absent:
        console.note(
            f"{len(absent):,} of {len(network):,} users of the network have no data: they may only ask "
            f"({', '.join(map(repr, sorted(absent)[:3]))}{', ...' if len(absent) > 3 else ''})"
        )
    if not alone:
        return mechanism
    if alone == users:
        network.index(list(data.index))
    console.note(f"{len(alone):,} users of the table have no edge: nobody is connected with them")
    return replace(mechanism, network=network.with_users(data.index))
