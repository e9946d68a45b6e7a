"""Groups of options that commands share, and how a release is opened.

A group holds what was typed, as it was read; its methods return what the library takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console
from deltahist.cli.options import amount, argument, decimal, flag, option, whole_number
from deltahist.errors import InputError

if TYPE_CHECKING:
    import geopandas as gpd

    from deltahist.counting import Located
    from deltahist.preprocessing import Preprocessing
    from deltahist.releases import BaseRelease
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood

# Panels of the help, below the options of a usual run.
PRIVACY, MAP, ROWS, PLAN = "More on privacy", "More on the map", "Rows", "Planned for what will be asked"
SORTED, KEPT = "Sorted points", "Files, accounts and chains"


@dataclass(frozen=True, kw_only=True)
class Spending:
    """A budget: pure ε or ρ of zero-concentrated privacy."""

    epsilon: Annotated[Fraction | None, option("E", "Budget of pure ε; Laplace noise.", read=amount)] = None
    rho: Annotated[
        Fraction | None, option("R", "Instead: budget of ρ-zCDP; Gaussian noise.", read=amount, panel=PRIVACY)
    ] = None

    def keywords(self) -> dict[str, Any]:
        """Return the budget as keywords of `publish` and `plan`; InputError if it is none."""
        from deltahist.budget import Budget

        given = {name: getattr(self, name, None) for name in ("epsilon", "rho", "probability")}
        budget = {name: value for name, value in given.items() if value is not None}
        Budget(**budget)
        return budget


@dataclass(frozen=True, kw_only=True)
class SpendingWithFailure(Spending):
    """A budget of ε that may fail with some probability, too."""

    probability: Annotated[
        float | None,
        option(
            "P",
            "With --epsilon: failure probability (1e-6); Gaussian noise is considered too.",
            read=decimal,
            panel=PRIVACY,
        ),
    ] = None


MaxPerUser = Annotated[
    int | None,
    option("K", "Points kept of one user; ε is what all K together pay.", read=whole_number, panel=ROWS),
]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The rows of a table that are read, and the way in which the table is written."""

    where: Annotated[
        str | None,
        option(
            "EXPR", "Rows that count: \"kind = 'bus' and speed > 3\", on other columns. Public.", panel=ROWS
        ),
    ] = None
    decimal: Annotated[Literal[".", ","], option("MARK", "Point or comma of numbers in text.", panel=ROWS)] = "."
    format: Annotated[
        Literal["csv", "jsonl", "parquet", "excel", "geo"] | None,
        option("KIND", "csv, jsonl, parquet, excel or geo. [default: by the file's ending]", panel=ROWS),
    ] = None
    layer: Annotated[str | None, option("NAME", "Layer, or sheet of a workbook, of several.", panel=ROWS)] = None


@dataclass(frozen=True, kw_only=True)
class Users(TableOptions):
    """The unit of privacy: single points, or whole users with a bounded number of points each."""

    user: Annotated[str | None, option("COL", "Column of user names: whole users are protected.", panel=ROWS)] = None
    max_per_user: MaxPerUser = None

    @property
    def contributions(self) -> int:
        """Points of one user that may move at once: 1 without users."""
        return 1 if self.max_per_user is None else self.max_per_user

    def check_users(self) -> None:
        """Raise InputError unless both options of users are given, or none."""
        if (self.user is None) != (self.max_per_user is None):
            there, missing = ("--user", "--max-per-user")[:: 1 if self.max_per_user is None else -1]
            raise InputError(f"{there} is given without {missing}: both are needed to protect whole users")

    def reading(self) -> dict[str, Any]:
        """Return keywords of the readers of points, which call the options of rows alike."""
        self.check_users()
        return {**vars(self), "max_per_user": None if self.user is None else self.contributions}

    def points(self, source: Path, near: Neighbourhood, **columns: Any) -> Located:
        """Read the points of a line; figures about them are for the publisher."""
        from deltahist.counting import points_file
        from deltahist.counting.files import choice_notes

        located = points_file(source, near.domain, **columns, **self.reading())
        console.note(f"{located.rows:,} rows read, {located.kept:,} points")
        for text in choice_notes(located):
            console.note(text)
        if located.outside:
            console.note(f"{located.outside:,} points outside the bounds moved to the nearest end")
        return located


@dataclass(frozen=True, kw_only=True)
class RowOptions(Users):
    """The rows that count, besides bad ones and points outside the bounds."""

    outside: Annotated[
        Literal["clamp", "drop"] | None,
        option(
            "HOW",
            "clamp to the edge, or drop (with --sources boundary). [default: at most 1% clamped]",
            panel=ROWS,
        ),
    ] = None
    drop_bad_rows: Annotated[
        bool, flag("--drop-bad-rows", "Leave out rows that cannot be used; the statement says so.", ROWS)
    ] = False

    def counting(self) -> Preprocessing:
        """Return the preprocessing of rows, as releases state it."""
        from deltahist.preprocessing import Preprocessing

        self.check_users()
        if self.where is not None:  # before anything takes long
            from deltahist.counting.conditions import Condition

            Condition.of(self.where)
        dropped = ["points outside"] if self.outside == "drop" else []
        dropped += ["bad rows"] if self.drop_bad_rows else []
        return Preprocessing(self.contributions, self.user is not None, tuple(dropped), where=self.where)


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
                raise InputError(f"--{what} is {getattr(self, what)!r}, but {does} --regions, which is missing")

    def read(self, domain: Domain) -> gpd.GeoDataFrame | None:
        """Read the regions, with their names in front; None if there are none."""
        from deltahist.space.geometries import named, read_geometries

        if self.regions is None:
            return None
        return named(read_geometries(self.regions, domain, "--regions", self.layer), self.name, "--name")


# Options by themselves that several commands share.
Window = Annotated[
    int, option("STEPS", "Temporal δ: steps that share one budget.", "--window", "--length", read=whole_number)
]
WeakProtection = Annotated[
    bool,
    flag("--weak-protection-accepted", "Publish although so large a budget hardly protects anything.", PRIVACY),
]
Overwrite = Annotated[bool, flag("--overwrite", "Replace the release if its file exists already.", KEPT)]
ReleaseFile = Annotated[Path, argument("RELEASE", "A file that `deltahist publish` wrote.")]


def warn_of(path: Path, publishable: bool, weakness: str | None) -> None:
    """Warn of a release that must not be published, or hardly protects anybody."""
    if not publishable:
        console.note(
            f"warning: {path} is not for publication: its noise came from a seeded generator, or from no publisher of "
            "this toolkit"
        )
    elif weakness is not None:
        console.note(f"warning: {path} hardly protects anybody: {weakness}")


def open_release(path: Path, nonnegative: bool = False) -> BaseRelease:
    """Open a release of any kind; warn if it must not be published, or if its estimates take minutes."""
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
    """The estimates of cells that are shown."""

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
        """Return the choice as exports and pictures take it; None where there is none."""
        return self.nonnegative if self.nonnegative or self.unbiased else None

    def note(self, release: BaseRelease) -> None:
        """Note that a map is too large for non-negative estimates, which are usual."""
        from deltahist.releases import Release
        from deltahist.releases.histogram import MOST_NONNEGATIVE

        small = release.domain.size <= MOST_NONNEGATIVE
        if self.asked is None and not small and isinstance(release, Release) and release.strategy.determines_cells:
            console.note(
                f"note: estimates are unbiased: to find non-negative ones of {release.domain.size:,} cells, more than "
                f"{MOST_NONNEGATIVE:,}, can take minutes (--nonnegative)"
            )
