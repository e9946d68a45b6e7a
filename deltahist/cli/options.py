"""Options that several commands share, and functions that turn them into a map, queries, a budget and an account.

A command uses each option as the type of a parameter, such as `rho: Rho = None`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeGuard

from typer import Argument, BadParameter, Option

from deltahist._files import is_address, is_stored_file
from deltahist.cli import format_facts, format_table, print_note, show_progress
from deltahist.errors import BudgetExceeded, InputError

if TYPE_CHECKING:
    import geopandas as gpd

    from deltahist.accounts.window import Account
    from deltahist.mechanisms import Mechanism
    from deltahist.planning import CellChoice
    from deltahist.releases import About, BaseRelease, Series
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

    Queries: TypeAlias = Callable[[Domain], Workload]

#: Number of points to assume if --points is not given.
USUAL_POINTS = 100_000


def require(satisfied: object, rule: str) -> None:
    """Raise InputError with the message `rule` unless the options satisfy it."""
    if not satisfied:
        raise InputError(rule)


# --- parsers -------------------------------------------------------------------------------------------------


def parse_number(text: str) -> Fraction | None:
    """Parse a decimal number or a fraction exactly. Return None for anything else, and for huge numbers."""
    try:
        # A large exponent could produce an integer with a billion digits.
        decimal = None if "/" in text or len(text) > 1000 else Decimal(text)
        if len(text) > 1000 or (decimal and not (decimal.is_finite() and abs(decimal.adjusted()) <= 400)):
            return None
        value = Fraction(text if decimal is None else decimal)
        float(value)
    except (ValueError, ArithmeticError):
        return None
    return value


def parse_amount(text: Any) -> Fraction:
    """Parse a positive number exactly."""
    number = parse_number(str(text))
    if number is None or number <= 0:
        raise BadParameter(f"{str(text)[:40]!r} is not a finite number above zero")
    return number


def parse_corners(text: Any) -> tuple[float, ...]:
    """Parse the corners of a box, or the ends of an interval. The library checks their order."""
    try:
        values = tuple(map(float, str(text).split(",")))
    except ValueError:
        values = ()
    if len(values) not in (2, 4, 6) or not all(abs(value) <= 1e12 for value in values):
        raise BadParameter(f"{str(text)[:80]!r} is not W,S,E,N (or LOW,HIGH in 1D, or W,S,BOTTOM,E,N,TOP in 3D)")
    return values


def parse_length(text: Any) -> float | str:
    """Return a length as a number, or as a string if it has a unit."""
    from deltahist.space.domain import read_length

    try:
        return float(text)
    except ValueError:
        if text != "auto":
            read_length(text)
        return str(text).strip()


def parse_list(parse: Callable[[str], Any]) -> Callable[[Any], list[Any]]:
    """Return a parser of comma-separated lists."""
    return lambda text: [parse(part) for part in str(text).split(",")]


def parse_place(text: str) -> Path | str:
    """Return the location of a release: a path, or a URL as a string."""
    return text if is_address(text) else Path(text)


def parse_limits(texts: Sequence[str] | None, option: str = "--limit") -> list[Any] | None:
    """Parse caps on longer moves or spans into pairs of length and factor. Return None if the option is missing."""
    found: list[Any] = []
    for text in texts or ():
        distance, _, factor = (part.strip() for part in text.rpartition(":"))
        if (distance, factor) != ("any", "none"):
            rule = "it must be LENGTH:FACTOR, such as 2km:2 or any:4, or any:none"
            require(distance and parse_number(factor) is not None, f"{option} is {text!r}: {rule}")
            found.append((distance if distance == "any" else parse_length(distance), parse_number(factor)))
    return found if texts else None


Amount = partial(Option, metavar="E", parser=parse_amount)
Length = partial(Option, metavar="LENGTH", parser=parse_length)
Column = partial(Option, metavar="COL")
File = partial(Option, metavar="FILE")
Period = partial(Option, metavar="FIRST LAST")
Name = partial(Option, metavar="NAME")
Text = partial(Option, metavar="TEXT")
OutFile = partial(Option, "--out", "-o", metavar="FILE")

Input = Annotated[str, Argument(metavar="INPUT", help="Data: a file, a folder, a URL (s3, gs or az), or - (stdin).")]
Release = Annotated[Path, Argument(metavar="RELEASE", parser=parse_place, help="A release file or its URL.")]
Published = Annotated[Path, Argument(metavar="RELEASE", parser=parse_place, help="A release file, folder or URL.")]
ColumnOfX = Annotated[str | None, Column(help="Name or number of the x (longitude) column.")]
ColumnOfY = Annotated[str | None, Column(help="Name or number of the y (latitude) column. Omit it in one dimension.")]
PointsCrs = Annotated[str | None, Option("--crs", help="CRS of points, such as EPSG:4326, or none for plain numbers.")]
Bounds = Annotated[
    Any, Option(metavar="W,S,E,N", parser=parse_corners, help="Map corners (1D: LOW,HIGH; 3D: W,S,BOTTOM,E,N,TOP).")
]
Cell = Annotated[Any, Length(help="Side of a cell, such as 250m. [default: auto]")]
Delta = Annotated[Any, Length(help="δ: hide moves of up to this distance.")]
Sources = Annotated[str, Option(metavar="WHERE", help="Where points may enter: none, boundary, left, right or a file.")]
Limit = Annotated[
    list[str] | None,
    Option(
        metavar="LENGTH:FACTOR",
        help="Cap the cost of moves: 2km:2 allows 2ε for moves of up to 2 km (repeatable). [default for counts: any:4]",
    ),
]
Rho = Annotated[Fraction | None, Amount(metavar="R", help="Budget ρ for Gaussian noise, instead of ε.")]
Strategy = Annotated[str, Name(help="Name of a strategy, such as flow, or auto to use the best one.")]
Regions = Annotated[Path | None, File(help="Polygons to query later, used to choose the cells and the strategy.")]
Points = Annotated[Fraction | None, Amount(metavar="N", help="Rough number of points, for planning. [default: 100000]")]
User = Annotated[str | None, Column(help="Column with user names, to protect all points of each user together.")]
MaxPerUser = Annotated[int | None, Option(metavar="K", min=1, help="Maximum number of points to keep per user.")]
Where = Annotated[str | None, Option(metavar="EXPR", help="Public condition on rows to count, such as kind = 'bus'.")]
Table = Annotated[str | None, Name(help="Table to read, if INPUT is a database.")]
LedgerFile = Annotated[str | None, Option("--ledger", metavar="FILE", help="Ledger file or postgresql:// URL.")]
AccountName = Annotated[str | None, Option("--account", metavar="NAME", help="Account to charge in the ledger.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show the guarantee and expected errors without reading data.")]
ReleaseFile = Annotated[Path, OutFile(help="Release file to write (.parquet).")]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Title = Annotated[str | None, Text(help="Title of the page or picture. [default: the title of the release]")]
Nonnegative = Annotated[bool, Option("--nonnegative", help="Use non-negative estimates (biased, often more accurate).")]
RegionLayer = Annotated[str | None, Option("--layer", metavar="NAME", help="Layer of --regions to read.")]
RegionName = Annotated[str | None, Option("--name", metavar="COL", help="Column of --regions that holds the names.")]
Between = Annotated[tuple[str, str] | None, Period(help="Use only the steps from FIRST to LAST in a folder.")]


def read_crs(crs: str | None) -> str | None:
    """Return the CRS of the points, or None for plain numbers."""
    return None if crs == "none" else crs


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """The budget of a release."""

    epsilon: Annotated[Fraction | None, Amount(help="Budget ε for Laplace noise.")] = None
    rho: Rho = None

    def read(self) -> dict[str, Any]:
        """Return the budget as a keyword argument of `publish` and `plan`."""
        require((self.epsilon is None) != (self.rho is None), "give a budget: exactly one of --epsilon and --rho")
        return {"epsilon": self.epsilon} if self.rho is None else {"rho": self.rho}


@dataclass(frozen=True, kw_only=True)
class AboutOptions:
    """What a release says about itself."""

    title: Annotated[str | None, Text(help="Title of the release. Public, like the three options below.")] = None
    publisher: Annotated[str | None, Text(help="Who publishes the release.")] = None
    contact: Annotated[str | None, Text(help="Where readers can ask, such as an e-mail address.")] = None
    licence: Annotated[str | None, Text(help="Licence of the release, such as CC BY 4.0.")] = None

    def read(self) -> About:
        """Return the texts. Raises InputError unless each is one printable line."""
        from deltahist.releases import About

        return About(**vars(self))


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The rows to count. The fields are keyword arguments of `count_file`."""

    user: User = None
    max_per_user: MaxPerUser = None
    where: Where = None
    outside: Annotated[
        Literal["clamp", "drop"] | None,
        Option(help="Clamp or drop points outside --bounds. By default, up to 1% of points may be clamped."),
    ] = None
    drop_bad_rows: Annotated[bool, Option("--drop-bad-rows", help="Drop bad rows and say so in the statement.")] = False
    table: Table = None


def choose_crs(project: str | None, crs: str | None) -> str | None:
    """Return the CRS of a map: --project, or else --crs. None means plain numbers."""
    from deltahist.space import crs as systems

    found = read_crs(project or crs)
    in_degrees = found is not None and systems.read_crs(found, "--project" if project else "--crs").is_geographic
    require(not in_degrees, f"the map would be in {found}, which is in degrees: choose a projected CRS with --project")
    return found


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """The columns of the points, the map and its cells, and the neighbourhood."""

    x: ColumnOfX = None
    y: ColumnOfY = None
    z: Annotated[str | None, Column(help="Column with the third coordinate, such as the floor.")] = None
    crs: PointsCrs = None
    project: Annotated[str | None, Option(metavar="CRS", help="CRS of the map, or auto for bounds in degrees.")] = None
    bounds: Bounds
    cell: Cell = None
    delta: Delta = None
    edges: Annotated[Path | None, File(help="CSV with columns from and to, and length if --delta is given.")] = None
    limit: Limit = None
    sources: Sources = "none"

    @property
    def columns(self) -> dict[str, str | None]:
        """Columns and CRS of the points, as keyword arguments for `count_file`."""
        return {"x": self.x, "y": self.y, "z": self.z, "crs": read_crs(self.crs)}

    def find_extent(self) -> tuple[tuple[float, ...], str | None]:
        """Return the corners and the CRS of the map. Raises InputError if the map would be in degrees."""
        from deltahist.space.crs import are_degrees, extent_of

        if self.project == "auto":
            return extent_of(self.bounds)
        in_degrees = self.project is None and self.crs is None and are_degrees(self.bounds, self.x, self.y)
        require(not in_degrees, "--bounds look like degrees: add --crs EPSG:4326 --project auto, or --crs none")
        return self.bounds, choose_crs(self.project, self.crs)

    def make_neighbourhood(self) -> Neighbourhood:
        """Return the neighbourhood that --delta gives on cells of width --cell (δ if auto), or that --edges gives."""
        from deltahist.space.domain import Domain, check_memory_for
        from deltahist.space.geometries import read_sources
        from deltahist.space.neighbourhood import Neighbourhood, is_far

        box, crs = self.find_extent()
        require(self.delta is not None or self.edges is not None, "--delta or --edges is required")
        if self.edges is not None:
            rule = "--edges requires --cell and --sources none"
            require(self.cell not in (None, "auto") and self.sources == "none", rule)
            domain = Domain(box, cell=self.cell, crs=crs)
            check_memory_for(domain)
            far = None if self.delta is None else domain.length(self.delta)
            return Neighbourhood.of(domain, self.edges, delta=far, limits=parse_limits(self.limit))
        cell = self.delta if self.cell in (None, "auto") else self.cell
        domain = Domain(box, cell=cell, crs=crs)
        near = Neighbourhood(domain, self.delta, limits=parse_limits(self.limit))
        near.check_on_map()
        check_memory_for(domain)
        entry = read_sources(self.sources, domain, "--sources")
        far = entry is not None and not isinstance(entry, str) and is_far(entry, domain, near.radius)
        require(not far, f"--sources is {self.sources!r}: none of it is within δ of the map")
        return replace(near, sources=entry)


def read_queries(regions: Path | None, domain: Domain) -> tuple[Queries | None, str]:
    """Return a function that gives a domain's queries (None if there are no regions), and a name for the queries."""
    import numpy as np
    import shapely

    from deltahist import workloads
    from deltahist.space.geometries import add_names, fit, read_geometries

    if regions is None:
        return None, "boxes of any size at any place"
    frame = add_names(read_geometries(regions, domain, "--regions"))
    names = [name or str(number) for number, name in enumerate(frame["name"])]
    fitted = fit(frame.geometry.to_numpy(), domain, frame.crs)

    def clip_regions(on: Domain) -> Workload:  # a map with different cells may be smaller
        parts = shapely.intersection(fitted.shapes, shapely.box(*on.bounds))
        there = np.flatnonzero(np.isin(shapely.get_type_id(parts), (3, 6)) & (shapely.area(parts) > 0))
        return workloads.regions(parts[there], [names[at] for at in there.tolist()])

    return clip_regions, f"the {fitted.held.sum():,} regions of {regions}"


@dataclass(frozen=True)
class Chosen:
    """A mechanism, the number of points and the queries it was chosen for, and the compared cell sizes, best first."""

    mechanism: Mechanism
    points: float
    work: Workload | None
    name: str
    cells: list[CellChoice]

    def describe_error(self) -> str:
        """Describe the expected error of a query, and the two parts of this error."""
        from deltahist.planning import CellChoice

        expected = self.cells[0] if self.cells else CellChoice.of(self.mechanism, self.points, self.work)
        many = f"{self.points:,.0f} points"
        return format_facts(
            error=f"{expected.rmse:,.4g} points (root mean square) over {self.name}, for about {many}",
            parts=f"{expected.noise_error:,.4g} from noise, {expected.placement_error:,.4g} from places within cells",
        )

    def describe_cells(self) -> str:
        """Return a table of the compared cell sizes and their expected errors."""
        rows = []
        for each in self.cells:
            errors = (each.rmse, each.noise_error, each.placement_error)
            rows.append((each.mechanism.domain.size_of_cells, *(f"{error:,.4g}" for error in errors)))
        return format_table(("cell", "error", "from noise", "from placement"), rows)


def choose_mechanism(options: MapOptions, points: Fraction | None, regions: Path | None, **how: Any) -> Chosen:
    """Choose the mechanism without reading rows. If --cell is auto, or missing in 2D or 3D, also choose a cell size."""
    from deltahist.planning import mechanism_for, on_cells, plan_cells

    number, near = float(points or USUAL_POINTS), options.make_neighbourhood()
    if options.cell != "auto" and (options.cell is not None or len(options.bounds) == 2):
        queries, name = read_queries(regions, near.domain)
        work = queries and queries(near.domain)
        with show_progress("Comparing strategies …"):
            return Chosen(mechanism_for(near, workload=work, **how), number, work, name, [])
    limits, (box, crs) = parse_limits(options.limit), options.find_extent()
    nears = list(on_cells(box, near.delta, crs, sources=near.sources, limits=limits))
    queries, name = read_queries(regions, nears[0].domain)
    with show_progress("Comparing cells and strategies …"):
        cells = plan_cells(nears, number, queries, **how)
    best = cells[0].mechanism
    return Chosen(best, number, queries and queries(best.domain), name, cells)


def describe_map(domain: Domain) -> dict[str, str]:
    """Return the cells, bounds and projection of a map as arguments for `format_facts`."""
    from deltahist.space.crs import describe_map

    about = {
        "cells": f"{' × '.join(map(str, domain.shape))} of {domain.size_of_cells}",
        "bounds": ",".join(f"{b:.10g}" for b in domain.bounds) + (f" in {domain.crs}" if domain.crs else ""),
    }
    return about if domain.crs is None else about | {"map": describe_map(domain)}


def describe_limit(mechanism: Mechanism, asked: Any) -> str:
    """Return one line that states the maximum cost of a move and how to remove the default cap."""
    hint = " (--limit any:none removes the cap)" if asked is None and mechanism.neighbourhood.profile else ""
    return f"any move costs at most {mechanism.letter} = {mechanism.any_move:.4g}{hint}"


def note_rows(read: Any, outside: str | None = None) -> None:
    """Print row counts, which are private, on stderr."""
    print_note(f"{read.rows:,} rows read, {read.kept:,} points kept (row counts on stderr are private)")
    if read.bad_rows:
        print_note(f"{read.bad_rows:,} unusable rows dropped")
    if read.users is not None:
        print_note(f"{read.users:,} users")
    if read.outside:
        zeros = f" ({read.zeros:,} at 0,0, which often means missing)" if read.zeros else ""
        print_note(f"{read.outside:,} points outside{zeros} {'dropped' if outside == 'drop' else 'moved to the edge'}")


@dataclass(frozen=True, kw_only=True)
class PayerOptions:
    """The account that pays for a release."""

    ledger: LedgerFile = None
    account: AccountName = None
    account_limit: Annotated[Fraction | None, Amount(help="Lifetime budget of a new account.")] = None

    def open(self, budget: dict[str, Any], chain: str | None = None) -> Account | None:
        """Return the account, if any. Raises BudgetExceeded if it cannot pay (a chain pays only the added budget)."""
        from deltahist.accounts.ledger import Ledger
        from deltahist.accounts.window import Account
        from deltahist.budget import LETTERS
        from deltahist.preprocessing import normalize_name

        ledger, name, limit = self.ledger, self.account, self.account_limit
        rule = "--ledger requires --account, and --account-limit requires both"
        require((ledger is None) == (name is None) and (limit is None or ledger is not None), rule)
        if ledger is None or name is None:
            return None
        ((unit, wanted),) = budget.items()
        warn_of_new_account(ledger, name)
        if limit is None:
            known = Ledger(ledger).list_accounts() if Ledger.exists(ledger) else ()
            rule = f"--account-limit is missing: account {name!r} is new in {Ledger.name_of(ledger)!r}"
            require(normalize_name(account=name) in known, rule)
            limit = Ledger(ledger).read_standing(name).limit
        account = Account.total(**{unit: limit}, ledger=ledger, name=name)
        left = account.left + (Fraction(0) if chain is None else account.read_paid(chain))
        if wanted > left:
            has = f"account {name!r} has {LETTERS[unit]} = {float(left):.10g} left"
            raise BudgetExceeded(f"--{unit} is {float(wanted):.10g}: {has}, so nothing was published or charged")
        return account


@contextlib.contextmanager
def warn_of_charges(account: Account | None) -> Iterator[None]:
    """If the block fails after a charge, warn that the charge stays."""
    try:
        yield
    except BaseException:
        for paid in () if account is None else account.payments:
            print_note(f"warning: account {paid}: the charge stays, although the release failed")
        raise


def warn_of_new_account(ledger: str, account: str) -> None:
    """Warn if an account is new and the ledger has other accounts about the same people."""
    from deltahist.accounts.ledger import Ledger
    from deltahist.preprocessing import normalize_name

    if Ledger.exists(ledger):
        others = {each.account: each.population for each in Ledger(ledger).list_standings()}
        people = next((each for each in others.values() if each.name == "everyone"), None)
        if people is not None and normalize_name(account=account) not in others:
            print_note(f"warning: account {account!r} is new, and its spending adds to that of the others: {people}")


def warn_of_release(path: Path | str, publishable: bool, weakness: str | None) -> None:
    """Warn about a release that must not be published, or that hardly protects anybody."""
    if not publishable:
        print_note(f"warning: {path} must not be published: its noise is seeded, or was not drawn by deltahist")
    elif weakness is not None:
        print_note(f"warning: {path} hardly protects anybody: {weakness}")


def open_release(path: Path | str, *, refuse_withdrawn: bool = True) -> BaseRelease:
    """Open a release of any kind, with warnings. Raises InputError if it is withdrawn and `refuse_withdrawn` is set."""
    from deltahist.kinds import read_release

    if isinstance(path, str) and not is_stored_file(path):
        from deltahist.remote import connect

        release = connect(path).load()
    else:
        release = read_release(path)
    if release.withdrawn is not None:
        require(not refuse_withdrawn, f"{path} was withdrawn {release.withdrawn}")
        print_note(f"warning: {path} was withdrawn {release.withdrawn}")
    warn_of_release(path, release.publishable, release.mechanism.weakness)
    return release


def is_folder(path: Path | str) -> TypeGuard[Path]:
    """Return True if a release is a folder, as opposed to a file or a URL."""
    return isinstance(path, Path) and path.is_dir()


def open_series(folder: Path) -> Series:
    """Open a folder of releases, and warn if they must not be published."""
    from deltahist.releases import Series

    series = Series.load(folder)
    warn_of_release(folder, series.publishable, series.weakness)
    return series


def read_regions(regions: Path | None, layer: str | None, name: str | None, domain: Domain) -> gpd.GeoDataFrame | None:
    """Read regions, with their names in the first column. Return None if there is no file."""
    from deltahist.space.geometries import add_names, read_geometries

    if regions is None:
        return None
    return add_names(read_geometries(regions, domain, "--regions", layer), name, "--name")
