"""Groups of options that commands share, and `spread`, by which a command takes a group as one parameter.

A group holds what was typed; its methods say what it stands for, as the library takes it. Choices are checked by Typer.
Lengths, budgets, bounds and whole numbers stay texts that `deltahist.cli.options` reads: budgets must be exact, lengths
have units, and Typer's own messages leave out the value that was typed and the likely cause.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from deltahist.cli import console, options
from deltahist.errors import InputError

if TYPE_CHECKING:
    import geopandas as gpd

    from deltahist.domain import Domain
    from deltahist.domain.counting import Counting
    from deltahist.releases import BaseRelease


def option(metavar: str, text: str, *names: str) -> Any:
    """An option with a value; its name is that of the parameter unless names are given."""
    return typer.Option(*names, metavar=metavar, help=text)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str) -> Any:
    """What is given by its place."""
    return typer.Argument(metavar=metavar, help=text)


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give Typer every option of a command's groups by itself, and the command its groups.

    A parameter whose type is a dataclass is a group. Required options come first, as in any signature; otherwise all
    stand in the order of the parameters, and within a group in that of its fields. Groups that have an option of one
    name share it, as the first of them says it.

    >>> @spread
    ... def allocate(*, weights: Path, spending: Spending) -> Any:
    ...     return spending.epsilon
    >>> list(inspect.signature(allocate).parameters)
    ['weights', 'epsilon', 'rho']
    >>> allocate(weights=Path("demand.csv"), epsilon="1", rho=None)
    '1'
    """
    groups: dict[str, Any] = {}
    own: set[str] = set()
    flat = []
    for each in _parameters(command):
        if is_dataclass(each.annotation):
            groups[each.name] = each.annotation
            flat += _parameters(each.annotation)
        else:
            flat.append(each)
            own.add(each.name)
    shared: dict[str, inspect.Parameter] = {}
    for each in flat:
        shared.setdefault(each.name, each)

    @wraps(command)
    def run(**given: Any) -> Any:
        made = {
            name: group(**{field.name: given[field.name] for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**{name: value for name, value in given.items() if name in own}, **made)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        sorted(shared.values(), key=lambda each: each.default is not each.empty)
    )
    return run


def _parameters(taker: Any) -> list[inspect.Parameter]:
    """What a function, or a dataclass when it is made, takes; with types instead of their names."""
    kinds = get_type_hints(taker, include_extras=True)
    return [
        each.replace(annotation=kinds[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(taker).parameters.values()
    ]


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What is spent: pure ε or ρ of zero-concentrated privacy."""

    epsilon: Annotated[str | None, option("E", "Budget of pure ε; Laplace noise.")] = None
    rho: Annotated[str | None, option("R", "Instead: budget of ρ-zCDP; Gaussian noise.")] = None

    def keywords(self) -> dict[str, Any]:
        """The one budget that is given, as keyword of `publish` and `plan`."""
        if self.rho is not None and self.epsilon is None:
            return {"rho": options.amount(self.rho, "--rho")}
        if self.epsilon is not None and self.rho is None:
            return {"epsilon": options.amount(self.epsilon, "--epsilon")}
        given = "both --epsilon and --rho are" if self.rho is not None else "neither --epsilon nor --rho is"
        raise InputError(
            f"{given} given: it must be one of them (pure ε with Laplace noise, ρ-zCDP with Gaussian)"
        )


@dataclass(frozen=True, kw_only=True)
class SpendingWithFailure(Spending):
    """A budget of ε that may fail with some probability, too."""

    probability: Annotated[
        str | None,
        option(
            "P",
            "With --epsilon: failure probability that is allowed (1e-6); Gaussian noise is then considered too.",
        ),
    ] = None

    def keywords(self) -> dict[str, Any]:
        """The one budget that is given, with its failure probability, as keywords of `publish` and `plan`."""
        budget = super().keywords()
        if self.probability is None:
            return budget
        if self.rho is not None:
            raise InputError(
                f"--probability is {self.probability!r} with --rho: zCDP holds for every failure probability at once; "
                "--probability goes with --epsilon"
            )
        probability = float(options.amount(self.probability, "--probability"))
        if probability >= 1:
            raise InputError(f"--probability is {self.probability!r}: it must be less than 1, such as 1e-6")
        return {**budget, "probability": probability}


MaxPerUser = Annotated[
    str | None, option("K", "Points of one user that are kept; ε is what all K together pay.")
]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Which rows of a table are read, and how it is written."""

    where: Annotated[
        str | None,
        option(
            "EXPR", "Rows that count: \"kind = 'bus' and speed > 3\"; on columns besides the place. Public."
        ),
    ] = None
    decimal: Annotated[Literal[".", ","], option("MARK", "Point or comma of numbers in text.")] = "."
    format: Annotated[
        Literal["csv", "jsonl", "parquet", "excel", "geo"] | None,
        option("KIND", "csv, jsonl, parquet, excel or geo. [default: by the file's ending]"),
    ] = None
    layer: Annotated[str | None, option("NAME", "Layer, or sheet of a workbook, of several.")] = None


@dataclass(frozen=True, kw_only=True)
class Users(TableOptions):
    """Whose data are protected: single points, or whole users with at most so many points each."""

    user: Annotated[str | None, option("COL", "Column of user names: whole users are protected.")] = None
    max_per_user: MaxPerUser = None

    @property
    def contributions(self) -> int:
        """Points of one user that may move at once: 1 without users."""
        if (self.user is None) != (self.max_per_user is None):
            one, other = "--user", "--max-per-user"
            pair = (
                f"{other} is given without {one}" if self.user is None else f"{one} is given without {other}"
            )
            raise InputError(f"{pair}: both are needed to protect whole users")
        return options.whole_number(self.max_per_user or "1", "--max-per-user")

    def reading(self) -> dict[str, Any]:
        """Keywords of what reads points; the options of rows are called as they are there."""
        return {**vars(self), "max_per_user": None if self.user is None else self.contributions}


@dataclass(frozen=True, kw_only=True)
class RowOptions(Users):
    """Which rows count: how many of each user, and what becomes of bad rows and points outside the bounds."""

    outside: Annotated[
        Literal["clamp", "drop"] | None,
        option(
            "HOW",
            "clamp: points outside count at the edge; drop: needs --sources boundary. "
            "[default: clamp, but more than 1 in 100 is refused]",
        ),
    ] = None
    drop_bad_rows: Annotated[
        bool, flag("--drop-bad-rows", "Leave out rows that cannot be used; the statement says so.")
    ] = False

    def counting(self, sources: str) -> Counting:
        """How rows become counts, as releases state it; points may only be dropped where they may vanish."""
        from deltahist.domain.counting import Counting

        if self.where is not None:  # before anything takes long
            from deltahist.counts.conditions import Condition

            Condition.of(self.where)
        if self.outside == "drop" and sources != "boundary":
            raise InputError(
                f"--outside is 'drop' with --sources {sources}: a point could vanish by moving out, so it must be "
                "--sources boundary (or --outside clamp)"
            )
        dropped = ["points outside"] if self.outside == "drop" else []
        dropped += ["bad rows"] if self.drop_bad_rows else []
        return Counting(self.contributions, self.user is not None, tuple(dropped), where=self.where)


@dataclass(frozen=True, kw_only=True)
class Zones:
    """Regions that are answered, each with its name."""

    regions: Annotated[
        Path | None,
        option("FILE", "Polygons (GeoJSON, GeoPackage, ...) in any CRS; they keep their columns."),
    ] = None
    layer: Annotated[
        str | None, option("NAME", "Layer of --regions; needed if there are several with geometries.")
    ] = None
    name: Annotated[
        str | None,
        option("COLUMN", "Column of --regions that names them. [default: name, id, ... or the only text]"),
    ] = None

    def __post_init__(self) -> None:
        for what, does in (("name", "it names"), ("layer", "it is one of")):
            if getattr(self, what) is not None and self.regions is None:
                raise InputError(
                    f"--{what} is {getattr(self, what)!r}, but {does} --regions, which is missing"
                )

    def read(self, domain: Domain) -> gpd.GeoDataFrame | None:
        """The regions with their names in front; None if there are none."""
        from deltahist.domain.geometries import named, read_geometries

        if self.regions is None:
            return None
        return named(read_geometries(self.regions, domain, "--regions", self.layer), self.name, "--name")


# Options by themselves that several commands share.
Window = Annotated[str, option("STEPS", "Temporal δ: steps that share one budget.", "--window", "--length")]
WeakProtection = Annotated[
    bool,
    flag(
        "--weak-protection-accepted",
        "Publish although the budget is so large that hardly anything is protected.",
    ),
]
Overwrite = Annotated[bool, flag("--overwrite", "Replace the release if its file exists already.")]
NonNegative = Annotated[
    bool,
    flag(
        "--nonnegative",
        "Answer from non-negative estimates: usually nearer to the truth where many cells are empty, no longer "
        "unbiased; the answers say so.",
    ),
]
BoxFile = Annotated[
    Path | None, option("FILE.csv", "Boxes: columns west,south,east,north (1-D: low,high) and maybe name.")
]
ReleaseFile = Annotated[Path, argument("RELEASE", "A file that `deltahist publish` wrote.")]


def warn_of(path: Path, publishable: bool, weakness: str | None) -> None:
    """Say so where what is opened must not be published, or protects hardly anybody."""
    if not publishable:
        console.note(
            f"warning: {path} is not for publication: its noise came from a seeded generator, or from no publisher of "
            "this toolkit"
        )
    elif weakness is not None:
        console.note(f"warning: {path} hardly protects anybody: {weakness}")


def open_release(path: Path, nonnegative: bool = False) -> BaseRelease:
    """A release of any kind; with a warning if it must not be published, or if it takes its time."""
    from deltahist.kinds import load
    from deltahist.releases.histogram import MOST_NONNEGATIVE

    release = load(path)
    warn_of(path, release.publishable, release.mechanism.weakness)
    if nonnegative and release.domain.size > MOST_NONNEGATIVE:
        console.note(
            f"finding non-negative estimates of {release.domain.size:,} cells: this can take minutes"
        )
    return release


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Which estimates of cells are shown."""

    nonnegative: Annotated[
        bool,
        flag(
            "--nonnegative",
            "Non-negative estimates, usually nearer to the truth; so are those of up to 32,768 cells by default. For "
            "more it can take minutes.",
        ),
    ] = False
    unbiased: Annotated[
        bool,
        flag("--unbiased", "Unbiased estimates, some of them below zero, whose sums are right on average."),
    ] = False

    def __post_init__(self) -> None:
        if self.nonnegative and self.unbiased:
            raise InputError("--nonnegative is given with --unbiased: it must be one of them")

    @property
    def asked(self) -> bool | None:
        """What exports and pictures take; None if nothing is said."""
        return self.nonnegative if self.nonnegative or self.unbiased else None

    def note(self, release: BaseRelease) -> None:
        """Say so where a map is too large for what is usual."""
        from deltahist.releases import Release
        from deltahist.releases.histogram import MOST_NONNEGATIVE

        small = release.domain.size <= MOST_NONNEGATIVE
        if self.asked is None and not small and isinstance(release, Release) and release.strategy.determines_cells:
            console.note(
                f"note: estimates are unbiased: to find non-negative ones of {release.domain.size:,} cells, more than "
                f"{MOST_NONNEGATIVE:,}, can take minutes (--nonnegative)"
            )
