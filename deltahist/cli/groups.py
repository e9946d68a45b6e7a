"""Groups of options that commands share, and how a release is opened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from typer import Context

from deltahist._objects import is_stored_file
from deltahist._progress import progress
from deltahist.cli.console import check_target, note
from deltahist.cli.options import (
    amount,
    argument,
    decimal,
    flag,
    length,
    option,
    place_of_release,
    whole_number,
)
from deltahist.errors import BudgetExceeded, InputError

if TYPE_CHECKING:
    import geopandas as gpd

    from deltahist.accounts.window import Account
    from deltahist.counting import Counted, Points
    from deltahist.preprocessing import Preprocessing
    from deltahist.releases import BaseRelease, Series
    from deltahist.space.domain import Domain

# Panels of the help, below the options of a usual run.
PRIVACY, MAP, ROWS, PLAN = "More on privacy", "More on the map", "Rows", "Planned for what will be asked"
SORTED, KEPT = "Sorted points", "Files, accounts and chains"
#: Of the units of budgets.
LETTERS = {"epsilon": "ε", "rho": "ρ"}

# Options by themselves that several commands share.
DELTA = option("LENGTH", "δ: within this distance everyone is hidden with the full guarantee.", length, default=...)
WINDOW = option(
    "STEPS", "Temporal δ: steps that share one budget.", whole_number, default=..., names="--window --length"
)
MAX_PER_USER = option("K", "Points kept of one user; ε is what all K together pay.", whole_number, panel=ROWS)
WEAK = flag("Publish although so large a budget hardly protects anything.", panel=PRIVACY)
OVERWRITE = flag("Replace the release if its file exists already.", panel=KEPT)
RELEASE = argument(
    "RELEASE", "A file that `deltahist publish` wrote, or its address at a service.", place_of_release
)

PUBLISHED = argument(
    "RELEASE",
    "A file that `deltahist publish` wrote, its address at a service, or a folder of `deltahist stream`.",
    place_of_release,
)


@dataclass(frozen=True, kw_only=True)
class Spending:
    """A budget: pure ε or ρ of zero-concentrated privacy."""

    epsilon: Fraction | None = option("E", "Budget of pure ε; Laplace noise.", amount)
    rho: Fraction | None = option("R", "Instead: budget of ρ-zCDP; Gaussian noise.", amount, panel=PRIVACY)

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

    probability: float | None = option(
        "P", "With --epsilon: failure probability (1e-6); Gaussian noise is considered too.", decimal, panel=PRIVACY
    )


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The rows of a table that are read, and the way in which the table is written."""

    where: str | None = option(
        "EXPR", "Rows that count: \"kind = 'bus' and speed > 3\", on other columns. Public.", panel=ROWS
    )
    decimal: Literal[".", ","] = option("MARK", "Point or comma of numbers in text.", default=".", panel=ROWS)
    format: str | None = option("KIND", "Such as csv, jsonl or geo. [default: by the file's ending]", panel=ROWS)
    layer: str | None = option("NAME", "Layer, or sheet of a workbook, of several.", panel=ROWS)


@dataclass(frozen=True, kw_only=True)
class Users(TableOptions):
    """The unit of privacy: single points, or whole users with a bounded number of points each."""

    user: str | None = option("COL", "Column of user names: whole users are protected.", panel=ROWS)
    max_per_user: int | None = MAX_PER_USER

    def __post_init__(self) -> None:
        if (self.user is None) != (self.max_per_user is None):
            raise InputError("--user and --max-per-user go together: both are needed to protect whole users")


@dataclass(frozen=True, kw_only=True)
class RowOptions(Users):
    """The rows that count, besides bad ones and points outside the bounds."""

    outside: Literal["clamp", "drop"] | None = option(
        "HOW", "clamp to the edge, or drop (with --sources boundary). [default: at most 1% clamped]", panel=ROWS
    )
    drop_bad_rows: bool = flag("Leave out rows that cannot be used; the statement says so.", panel=ROWS)
    table: str | None = option(
        "NAME", "Table of INPUT, a database: city.duckdb, postgresql://user@host/city, sc://host.", panel=ROWS
    )

    def counting(self, context: Context) -> Preprocessing:
        """Return the preprocessing of rows, as releases state it, with the project's file if one was read."""
        from deltahist.preprocessing import Preprocessing

        # Of a database the columns are to be known.
        if self.where is not None and self.table is None:  # before anything takes long
            from deltahist.counting.where import Condition

            Condition.of(self.where)
        dropped = ["points outside"] if self.outside == "drop" else []
        dropped += ["bad rows"] if self.drop_bad_rows else []
        return Preprocessing(
            self.max_per_user or 1,
            self.user is not None,
            tuple(dropped),
            where=self.where,
        )


def note_rows(read: Counted, verb: str, outside: str) -> None:
    """Tell the publisher figures about the data, which are not for publication."""
    note(f"{read.rows:,} rows read, {read.kept:,} points{verb}")
    if read.unmatched:
        note(f"{read.unmatched:,} rows left out that do not meet --where")
    if read.bad_rows:
        note(f"{read.bad_rows:,} rows dropped that cannot be used")
    if read.users is not None:
        note(f"{read.users:,} users")
    if read.outside:
        note(f"{read.outside:,} points outside the bounds {outside}")
    if 2 * read.outside > read.rows - read.bad_rows - read.unmatched:
        note("warning: more than half of the points lie outside the bounds (W,S,E,N? x and y swapped? --crs?)")


def read_line(source: str | Path, domain: Domain, **how: Any) -> Counted:
    """Read the points of a line; figures about them are for the publisher."""
    from deltahist.counting import points_file

    located = points_file(source, domain, **how)
    note_rows(located, "", "moved to the nearest end")
    return located


def mark_points(points: Points, **known: Any) -> Points:
    """Return points that know more of how they were made."""
    return replace(points, preprocessing=replace(points.preprocessing, **known))


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """The account that pays for all releases about the same people."""

    ledger: str | None = option(
        "FILE", "Ledger of all that is published, or a postgresql:// URL; made at first.", panel=KEPT
    )
    account: str | None = option("NAME", "With --ledger: the account that pays.", panel=KEPT)
    limit: list[Any] | None = option(
        "E", "With --ledger: all that may be spent; known after the first time.", amount, several=True, panel=KEPT
    )

    def check(self, budget: dict[str, Any], chain: str | None = None, **written: Path | None) -> None:
        """Refuse what the account cannot pay, before any data are read; nothing is made or charged yet.

        A chain of releases pays only what the next one costs more than those before it. What is `written` besides,
        by option, must be other files than the ledger, or the sum would be lost.
        """
        place = None
        if self.ledger is not None:  # who keeps none waits for no database
            from deltahist.accounts.databases import find_database

            place = find_database(self.ledger)
        for name, path in written.items():
            if path is not None and place is not None and place.path and path.resolve() == place.path.resolve():
                raise InputError(
                    f"--ledger is {place.place!r}, as --{name.replace('_', '-')} is: it keeps what was spent, and "
                    "would be replaced; name two files"
                )
        limit = self._limit
        if place is None or self.account is None:
            given = {"--ledger": self.ledger, "--account": self.account, "--limit": limit}
            if there := [name for name, value in given.items() if value is not None]:
                far = "" if limit is None else f" (what any move may cost is --limit any:{float(limit):g})"
                missing = " and ".join(name for name in ("--ledger", "--account") if name not in there)
                raise InputError(f"{' and '.join(there)} without {missing}: an account of a ledger takes both{far}")
            return
        if "probability" in budget:
            raise InputError(
                f"--probability is given with --account {self.account}: failure probabilities do not add up with ε; "
                "spend --rho from an account in ρ"
            )
        check_target(place.path, option="--ledger")
        from deltahist.budget import say_amount

        ((unit, amount),) = budget.items()
        most, left, paid = limit, limit, Fraction(0)
        names = self._accounts()
        if self.account in names:
            account = self._open(unit)
            most, left, paid = account.limit, account.left, paid if chain is None else account.paid(chain)
        if most is None or left is None:
            others = f", which has {', '.join(map(repr, names))}" if names else ""
            more = " (a --limit with a distance is of what moves cost: give both)" if self.limit else ""
            more += " (or did an account of another ledger pay for this chain?)" if chain is not None else ""
            raise InputError(f"--limit is missing: account {self.account!r} is new in {place.place!r}{others}{more}")
        if amount > left + paid:
            known = f" and paid {float(paid):.10g} for this chain, which counts" if paid else ""
            raise BudgetExceeded(
                f"--{unit} is {float(amount):.10g}, but account {self.account!r} of {place.place!r} has "
                f"{LETTERS[unit]} = {say_amount(left, most)} left{known}; nothing was published or charged"
            )

    @contextlib.contextmanager
    def open(self, budget: dict[str, Any]) -> Iterator[Account | None]:
        """Open the account. A run that fails notes what stays charged."""
        if self.ledger is None or self.account is None:
            yield None
            return
        account = self._open(next(iter(budget)))
        try:
            yield account
        except BaseException:
            for paid in account.payments:
                note(f"warning: account {paid}: the charge stays, although nothing came of it")
            raise

    @property
    def _limit(self) -> Fraction | None:
        """The account's limit: the one of no distance."""
        given = [each for each in self.limit or () if isinstance(each, Fraction)]
        if len(given) > 1:
            raise InputError(f"--limit is {float(given[0]):g} and {float(given[1]):g}: an account has one limit")
        return given[0] if given else None

    def _accounts(self) -> list[str]:
        """Return the names of the ledger's accounts; none where there is no ledger."""
        from deltahist.accounts.ledger import Ledger

        assert self.ledger is not None
        return list(Ledger(self.ledger).accounts()) if Ledger.exists(self.ledger) else []

    def _open(self, unit: str) -> Account:
        """Open the account with the limit of the options, or with its own."""
        from deltahist.accounts.ledger import Ledger
        from deltahist.accounts.window import Account

        assert self.ledger is not None
        assert self.account is not None
        limit = self._limit
        if self.account in self._accounts():
            known = Ledger(self.ledger).standing(self.account)
            if known.kind != "total" or known.unit != unit:
                kept = {"window": "a window of steps", "purses": "people's own budgets"}.get(known.kind, known.unit)
                raise InputError(
                    f"--account is {self.account!r}, which keeps {kept}: a release in {unit} takes an account of "
                    f"{unit} alone; take another name"
                )
            limit = known.limit if limit is None else limit
        return Account.total(**{unit: limit}, ledger=self.ledger, name=self.account)  # type: ignore[arg-type]


def describe_state(state: Path | None) -> str | None:
    """Tell the publisher where the state is, and that it is secret."""
    return None if state is None else f"{state}, which refines it (deltahist refine); as secret as the data"


@dataclass(frozen=True, kw_only=True)
class Zones:
    """Regions that are answered, each with its name."""

    regions: Path | None = option(
        "FILE", "Polygons (GeoJSON, GeoPackage, ...) in any CRS; they keep their columns."
    )
    layer: str | None = option("NAME", "Layer of --regions; needed if there are several with geometries.")
    name: str | None = option(
        "COLUMN", "Column of --regions that names them. [default: name, id, ... or the only text]"
    )

    def __post_init__(self) -> None:
        for name, value in (("name", self.name), ("layer", self.layer)):
            if value is not None and self.regions is None:
                raise InputError(f"--{name} is {value!r}, but it is about --regions, which is missing")

    def read(self, domain: Domain) -> gpd.GeoDataFrame | None:
        """Read the regions, with their names in front; None if there are none."""
        from deltahist.space.geometries import named, read_geometries

        if self.regions is None:
            return None
        frame = read_geometries(self.regions, domain, "--regions", self.layer)
        return named(frame, self.name, "--name")


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """The estimates of cells that are shown."""

    nonnegative: bool = flag(
        "Non-negative estimates, usually nearer to the truth; so are those of up to 32,768 cells by default. For "
        "more it can take minutes."
    )
    unbiased: bool = flag("Unbiased estimates, some of them below zero, whose sums are right on average.")

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

        possible = isinstance(release, Release) and release.strategy.determines_cells
        if possible and self.asked is None and release.domain.size > MOST_NONNEGATIVE:
            note(
                f"note: estimates are unbiased: to find non-negative ones of {release.domain.size:,} cells, more than "
                f"{MOST_NONNEGATIVE:,}, can take minutes (--nonnegative)"
            )


def warn_of(path: Path | str, publishable: bool, weakness: str | None) -> None:
    """Warn of a release that must not be published, or hardly protects anybody."""
    if not publishable:
        note(
            f"warning: {path} is not for publication: its noise came from a seeded generator, or from no publisher of "
            "this toolkit"
        )
    elif weakness is not None:
        note(f"warning: {path} hardly protects anybody: {weakness}")


@progress("reading the release")
def open_release(path: Path | str, nonnegative: bool = False, *, refuse_withdrawn: bool = True) -> BaseRelease:
    """Open a release of any kind; warn if it must not be published, or if its estimates take minutes.

    A release at a service is downloaded. Raises InputError for one that is withdrawn, unless that is only warned of.
    """
    from deltahist.kinds import read_release
    from deltahist.releases.histogram import MOST_NONNEGATIVE

    if isinstance(path, str) and not is_stored_file(path):
        from deltahist.remote import connect

        release = connect(path).load()
    else:
        release = read_release(path)
    if release.withdrawn is not None:
        if refuse_withdrawn:
            raise InputError(f"{path} was withdrawn {release.withdrawn.words}")
        note(f"warning: {path} was withdrawn {release.withdrawn.words}")
    warn_of(path, release.publishable, release.mechanism.weakness)
    if nonnegative and release.domain.size > MOST_NONNEGATIVE:
        note(f"finding non-negative estimates of {release.domain.size:,} cells: this can take minutes")
    return release


def is_folder(place: Path | str) -> TypeGuard[Path]:
    """Return whether a place is a folder, as `deltahist stream` writes it."""
    return isinstance(place, Path) and place.is_dir()


def open_series(folder: Path) -> Series:
    """Open a folder of releases; warn if they must not be published."""
    from deltahist.releases import Series

    series = Series.load(folder)
    warn_of(folder, series.publishable, series.weakness)
    return series
