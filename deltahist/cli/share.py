"""`deltahist share`: users' data as others in a network may know them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deltahist.cli import console, options
from deltahist.cli.groups import TableOptions, argument, flag, option, spread
from deltahist.cli.places import Coordinates
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.kinds.diffusion import Network
    from deltahist.kinds.diffusion.mechanism import DiffusionMechanism
    from deltahist.publishers.diffusion import Diffusion

#: Pairs that --all answers at most.
_MOST_PAIRS = 10_000_000
_BITS, _VALUE = "bit", "value"
#: What --crs is for plain numbers, and what columns of degrees are called.
_PLAIN, _ANGLES = "none", {"lon", "lng", "longitude", "lat", "latitude"}


@dataclass(frozen=True, kw_only=True)
class _Knows:
    """Who knows whom, and how far apart they are."""

    edges: Annotated[
        Path, option("FILE", "Who knows whom: two users on each line, separated by commas, tabs or spaces.")
    ]
    directed: Annotated[
        bool, flag("--directed", "An edge leads one way, from the owner of data towards those who ask.")
    ] = False
    distance: Annotated[
        str,
        option("KIND", "hops, resistance, or a file with owner, requester and distance on each line."),
    ] = "hops"

    def network(self) -> Network:
        """The network of the edges."""
        from deltahist.kinds.diffusion import read_network

        return read_network(self.edges, directed=self.directed)

    def kind(self) -> Any:
        """Distances, as the library takes them."""
        from deltahist.kinds.diffusion import read_pairs

        if self.distance in ("hops", "resistance"):
            return self.distance
        if not Path(self.distance).is_file():
            raise InputError(
                f"--distance is {self.distance!r}: it must be hops, resistance, or a file of distances"
            )
        return read_pairs(self.distance, 3)


@dataclass(frozen=True, kw_only=True)
class _Shared(Coordinates):
    """Which data of each user are shared: a place, a number or a bit."""

    y: Annotated[str | None, option("COL", "Column of y or latitude.")] = None
    project: Annotated[str | None, option("CRS", "Projected CRS of the answers, such as EPSG:32618.")] = None
    value: Annotated[str | None, option("COL", "Instead of --x and --y: column of numbers.")] = None
    bit: Annotated[str | None, option("COL", "Instead of --x and --y: column of zeros and ones.")] = None

    def __post_init__(self) -> None:
        given = [name for name in ("x", _VALUE, _BITS) if getattr(self, name) is not None]
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
        name = self.value if self.bit is None else self.bit
        return (str(name) if name and not name.isdigit() else _VALUE if self.bit is None else _BITS,)

    def map(self) -> str | None:
        """CRS of the places; None for plain numbers. Degrees are refused where the columns are called so."""
        from deltahist.domain.operations import read_crs

        if not self.places:
            return None
        cure = "--project with the projected CRS of the region, such as EPSG:32618"
        if self.project == "auto":
            raise InputError(f"--project is 'auto', which takes --bounds, and there are none: give {cure}")
        if self.crs == _PLAIN or (self.crs is None and self.project is None):
            if self.crs is None and {str(self.x).lower(), str(self.y).lower()} & _ANGLES:
                raise InputError(
                    f"--x is {self.x!r} and --y {self.y!r} without a CRS: degrees are not lengths; add --crs EPSG:4326 "
                    f"and {cure}; or --crs none if they are plain numbers of a plane"
                )
            return None
        name, target = ("--crs", str(self.crs)) if self.project is None else ("--project", self.project)
        if not read_crs(target, name).is_projected:
            raise InputError(f"{name} is {target!r}: degrees are not lengths; add {cure}")
        return target

    def read(self, source: Path, user: str, mechanism: DiffusionMechanism, table: TableOptions) -> pd.DataFrame:
        """The data with the mechanism's columns, and the users as index."""
        from deltahist.counts.owners import read_owners

        x, y = (self.x, self.y) if self.places else (self.value or self.bit, None)
        crs = None if self.crs == _PLAIN else self.crs
        data = read_owners(source, user=user, x=x, y=y, area=mechanism.area, crs=crs, **vars(table))
        if self.places and mechanism.crs is None and self.crs is None:
            _refuse_degrees(data)
        data.columns = list(mechanism.columns)
        return data


@dataclass(frozen=True, kw_only=True)
class _Promise:
    """What is promised at which distance."""

    epsilon: Annotated[
        str,
        option(
            "E(d)",
            "ε at distance d: 'exp(4-3.3d)', or steps 1:15,2:8,4:0.5 (up to distance 1 it is 15, ...).",
        ),
    ]
    alpha: Annotated[
        str | None,
        option(
            "LENGTH",
            "α: data so far apart are hidden in each other: 100m (on the ground), or a plain number.",
        ),
    ] = None
    step: Annotated[
        str | None,
        option(
            "LENGTH",
            "Lattice of the answers, in units of the map or of the numbers. [default: α / 1,000 or less]",
        ),
    ] = None
    least: Annotated[
        str | None, option("E", "Least ε, also for whoever is not connected. [default: those get no answer]")
    ] = None
    most: Annotated[str | None, option("E", "Largest ε, however near.")] = None

    def mechanism(self, knows: _Knows, shared: _Shared, network: Network) -> DiffusionMechanism:
        """What will be answered, fixed before any data are read."""
        from deltahist.kinds.diffusion import PrivacyLevels
        from deltahist.kinds.diffusion.mechanism import DiffusionMechanism

        alpha = None if self.alpha is None else options.length(self.alpha, "--alpha")
        if (alpha is None) != (shared.bit is not None):
            said = "missing" if alpha is None else f"{self.alpha!r} with --bit"
            raise InputError(f"--alpha is {said}: numbers and places need it, bits have none")
        limits = {
            name: None if said is None else float(options.amount(said, f"--{name}"))
            for name, said in (("least", self.least), ("most", self.most))
        }
        step = None if self.step is None else options.amount(self.step, "--step")
        levels = PrivacyLevels(self.epsilon, **limits)
        return DiffusionMechanism(network, levels, alpha, knows.kind(), shared.names, step, shared.map())


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Whose questions are answered."""

    pairs: Annotated[Path | None, option("FILE", "Answer these: owner and requester on each line.")] = None
    requester: Annotated[str | None, option("ID", "Or: all that this user may know of everybody else.")] = (
        None
    )
    everything: Annotated[bool, flag("--all", "Or: all that everybody may know of everybody else.")] = False

    def __post_init__(self) -> None:
        given = [self.pairs is not None, self.requester is not None, self.everything]
        if sum(given) != 1:
            raise InputError(
                f"{sum(given)} of --pairs, --requester and --all are given: it must be one of them"
            )

    def check(self, network: Network) -> pd.DataFrame | None:
        """The pairs that are asked for, if they are listed."""
        from deltahist.kinds.diffusion import read_pairs

        if self.everything and len(network) ** 2 > _MOST_PAIRS:
            raise InputError(
                f"--all is given for {len(network):,} users, {len(network) ** 2:,} pairs: it answers {_MOST_PAIRS:,} "
                "at most; take --pairs or --requester"
            )
        return None if self.pairs is None else read_pairs(self.pairs)

    def answers(self, diffusion: Diffusion, pairs: pd.DataFrame | None) -> pd.DataFrame:
        """What is asked for."""
        if pairs is not None:
            return diffusion.responses(pairs)
        return diffusion.everything() if self.requester is None else diffusion.to(self.requester)


@spread
def share(
    *,
    source: Annotated[
        Path,
        argument(
            "INPUT", "One row for each user: CSV, JSON lines, Parquet, Excel, GeoPackage or another table."
        ),
    ],
    user: Annotated[str, option("COL", "Column of user names.", "--id")],
    shared: _Shared,
    knows: _Knows,
    promise: _Promise,
    asked: _Asked,
    state: Annotated[
        Path,
        option(
            "FILE", "Key of all answers about these data: made if it is not there, and to be kept, secret."
        ),
    ],
    out: Annotated[Path, option("FILE", "The answers: .csv or .parquet.")],
    table: TableOptions,
) -> Any:
    """Answer what users of a network may know of each other's data: the noisier the further they are apart.

    Whoever asks at distance d gets a response that is ε(d)-private, the same one whenever they ask. Users who put
    their responses together know no more than the nearest of them does.

    All answers about the same data must come from one --state. The first run makes it; it is refused for other data,
    another α or another lattice. Edges, distances and ε(d) may change: what is promised holds for the largest ε that
    was ever answered.

    \b
    Examples:
      deltahist share homes.csv --id user --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --edges friends.txt \\
          --epsilon "exp(4-1.2d)" --alpha 100m --state share.key --requester 17 --out seen-by-17.csv
      deltahist share homes.csv --id user --x x --y y --edges friends.txt --epsilon 1:15,2:8,4:0.5 --alpha 100 \\
          --state share.key --pairs asked.csv --out answers.parquet
      deltahist share status.csv --id user --bit infected --edges friends.txt --distance resistance \\
          --epsilon "exp(4-3.3d)" --least 0.1 --state infected.key --all --out answers.csv
    """
    from deltahist.publishers.diffusion import Diffusion

    files = [source, knows.edges, *filter(None, [asked.pairs])]
    console.check_target(out, state, *files)
    if not state.exists():
        console.check_target(state)
    if state.resolve() == out.resolve():
        raise InputError(
            f"--state is {str(state)!r}, as --out is: the answers are for others, the key is secret; name two files"
        )
    for name, other in (("edges", knows.edges), ("pairs", asked.pairs)):
        if other is not None and other.exists() and source.exists() and other.samefile(source):
            raise InputError(f"--{name} is {str(other)!r}, which is the table of data: name the file of {name}")
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"--out is {str(out)!r}: it must end in .csv or .parquet")
    mechanism = promise.mechanism(knows, shared, knows.network())
    pairs = asked.check(mechanism.network)
    data = shared.read(source, user, mechanism, table)
    mechanism = _with_everybody(mechanism, data)
    answers = asked.answers(Diffusion(data, mechanism, state=state), pairs)
    _write(answers, out)
    if answers.empty:
        console.note("nobody is connected with whom was asked for: --least says what those get")
    requesters = answers["requester"].nunique()
    if requesters > 1:
        console.note(
            f"{out} holds what {requesters:,} users may know: give each their own rows only; whoever has them all "
            "knows the largest ε"
        )
    owners = answers["owner"].nunique()
    print(console.facts(answers=f"{out}, {len(answers):,} about {owners:,} users to {requesters:,}"))
    print(mechanism.statement(mechanism.epsilon.billionths(answers["distance"])))
    return answers


def _with_everybody(mechanism: DiffusionMechanism, data: pd.DataFrame) -> DiffusionMechanism:
    """The mechanism with those users of the table in its network, too, who have no edge."""
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


def _refuse_degrees(data: pd.DataFrame) -> None:
    """Raise InputError if places without a CRS look like degrees; for whoever holds the data."""
    from deltahist.domain.crs import utm_code
    from deltahist.domain.extents import are_degrees

    low, high = data.min(), data.max()
    if are_degrees((low[0], low[1], high[0], high[1]), "x", "y"):
        code = utm_code((low[0] + high[0]) / 2, (low[1] + high[1]) / 2)
        raise InputError(
            "places without a CRS look like longitudes and latitudes, and degrees are not lengths: add "
            f"--crs EPSG:4326 --project {code}; or --crs none if they are plain numbers of a plane"
        )


def _write(answers: pd.DataFrame, out: Path) -> None:
    """Write a table of answers, whole or not at all."""
    from deltahist._files import write_whole

    if out.suffix.lower() == ".csv":
        write_whole(out, lambda part: answers.to_csv(part, index=False))
    else:
        write_whole(out, lambda part: answers.to_parquet(part, index=False))
