"""`deltahist publish` and `deltahist quantile`: from private points to a release file."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from deltahist.cli import shared, write_project
from deltahist.cli.console import check_target, facts, note, put, show_progress
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.accounts.window import Account
    from deltahist.preprocessing import Preprocessing

Replaces = Annotated[Path | None, Option(metavar="OLD", help="Release to correct and withdraw.")]
Reason = Annotated[str | None, Option(metavar="TEXT", help="With --replaces: why. Public.")]
NewState = Annotated[Path | None, Option(metavar="FILE", help="File for the secret state, to refine later.")]


def publish(
    context: typer.Context,
    source: shared.Input,
    *,
    x: shared.X = None,
    y: shared.Y = None,
    crs: shared.PointsCrs = None,
    project: shared.Project = None,
    bounds: shared.Bounds,
    cell: shared.Cell = None,
    delta: shared.Delta,
    epsilon: shared.Epsilon = None,
    rho: shared.Rho = None,
    limit: shared.Limit = None,
    sources: shared.Sources = "none",
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The release file (Parquet).")],
    dry_run: shared.DryRun = False,
    write_config: Annotated[Path | None, Option(metavar="FILE", help="With --dry-run: write a project file.")] = None,
    strategy: shared.Strategy = "auto",
    regions: shared.Regions = None,
    points: shared.Points = None,
    user: shared.User = None,
    max_per_user: shared.MaxPerUser = None,
    where: shared.Where = None,
    outside: shared.Outside = None,
    drop_bad_rows: shared.DropBadRows = False,
    table: shared.Table = None,
    ledger: shared.LedgerFile = None,
    account: shared.AccountName = None,
    account_limit: shared.AccountLimit = None,
    replaces: Replaces = None,
    reason: Reason = None,
    state: NewState = None,
) -> Any:
    """Publish a file of points as one release file, which you may hand out.

    All options are public. Lengths are in ground metres ("250m"), or plain numbers without a CRS. Bounds are extended
    to whole cells. Row counts on stderr are private.

    \b
    Examples:
      deltahist publish visits.csv --x lon --y lat --crs EPSG:4326 --project auto \\
          --bounds -74.3,40.45,-73.6,40.95 --cell 250m --delta 500m --epsilon 1 --out city.parquet
      deltahist publish visits.csv --out city.parquet --dry-run      # the other options from deltahist.toml
    """
    from deltahist.budget import Budget
    from deltahist.counting import check_file, count_file
    from deltahist.counting.sql import Reading
    from deltahist.mechanisms.base import weakness_of
    from deltahist.publishers import publish_mechanism
    from deltahist.publishers.publication import check_publication, refuse_weak
    from deltahist.statement import write_statement
    from deltahist.strategies.base import find_strategy_class

    budget = shared.read_budget(epsilon, rho)
    if write_config is not None and not dry_run:
        raise InputError("--write-config requires --dry-run")
    check_target(write_config, source, regions, out, ledger, option="--write-config")
    check_target(out, regions)
    payer = _prepare(source, out, replaces, reason, state, (ledger, account, account_limit), budget, dry_run)
    refuse_weak(Budget(**budget), weakness_of(Budget(**budget).guarantee))
    if strategy != "auto":
        find_strategy_class(strategy)
    reading: dict[str, Any] = {
        **{"x": x, "y": y, "crs": None if crs == shared.PLAIN else crs, "user": user, "max_per_user": max_per_user},
        **{"where": where, "outside": outside, "drop_bad_rows": drop_bad_rows, "table": table},
    }
    counting = _correct(Reading.of(**reading).preprocessing(None), replaces, reason)
    place = shared.MapOptions(
        bounds=bounds, delta=delta, cell=cell, crs=crs, project=project, sources=sources, limit=limit, columns=(x, y)
    )
    if not dry_run:  # a misspelt column is found before cells and strategies are compared
        check_file(source, len(bounds) // 2, **reading)
    chosen = shared.choose(place, points, {"regions": regions}, strategy=strategy, counting=counting, **budget)
    mechanism = chosen.mechanism
    check_publication(mechanism, accepted=False)
    about = {
        **shared.about_map(mechanism.domain),
        "strategy": mechanism.strategy.name,
        "guarantee": mechanism.promise,
        "limit": shared.describe_limit(mechanism, limit),
    }
    if dry_run:
        print(facts(**about), chosen.describe_error(points), sep="\n")
        if chosen.cells:
            print(f"\nCells that were compared:\n{chosen.table_of_cells()}")
        print(f"\n{write_statement(mechanism)}")
        if write_config is not None:
            write_project(context, write_config)
            note(f"wrote {write_config}")
        return None
    with show_progress("Counting points …"):
        counted = count_file(source, mechanism.domain, **reading)
    shared.note_rows(counted, outside)
    with shared.warn_of_charges(payer), show_progress("Drawing noise …"):
        release = publish_mechanism(mechanism, counted.counts, account=payer, out=out, state=state)
    print(facts(published=out, **about, account=release.payment, state=describe_state(state)))
    return release, counted


def publish_sorted(
    source: shared.Input,
    *,
    x: Annotated[str, Option(metavar="COL", help="Column of the values: a name, or a number from 0.")],
    bounds: Annotated[Any, Option(metavar="LOW,HIGH", parser=shared.corners, help="Values outside are clamped.")],
    delta: shared.Delta,
    cell: Annotated[Any, Option(metavar="LENGTH", parser=shared.length, help="Bin of histograms. [default: δ]")] = None,
    limit: shared.Limit = None,
    epsilon: shared.Epsilon = None,
    rho: shared.Rho = None,
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The release file (Parquet).")],
    user: shared.User = None,
    max_per_user: shared.MaxPerUser = None,
    where: shared.Where = None,
    outside: Annotated[Literal["clamp"] | None, Option(help="Values outside. [default: clamp up to 1%]")] = None,
    table: shared.Table = None,
    ledger: shared.LedgerFile = None,
    account: shared.AccountName = None,
    account_limit: shared.AccountLimit = None,
    replaces: Replaces = None,
    reason: Reason = None,
    state: NewState = None,
) -> Any:
    """Publish the sorted values of one column as one release file, which answers ranges and quantiles.

    The number of values is public.

    \b
    Examples:
      deltahist sorted ages.csv --x age --bounds 0,120 --delta 1 --epsilon 1 --out ages.parquet
      deltahist query ages.parquet --quantiles 0.25,0.5,0.75
    """
    from deltahist.counting import points_file
    from deltahist.kinds.sorted import check_membership, places_for
    from deltahist.publishers import publish_sorted as publish_points

    budget = shared.read_budget(epsilon, rho)
    payer = _prepare(source, out, replaces, reason, state, (ledger, account, account_limit), budget)
    near = shared.MapOptions(bounds=bounds, delta=delta, cell=cell, limit=limit).near()
    check_membership(near)
    places_for(1, near, None)
    reading = {"x": x, "user": user, "max_per_user": max_per_user, "where": where, "outside": outside, "table": table}
    with show_progress("Reading points …"):
        points = points_file(source, near.domain, **reading)
    shared.note_rows(points)
    prepared = _correct(points.points.preprocessing, replaces, reason)
    with shared.warn_of_charges(payer), show_progress("Drawing noise …"):
        release = publish_points(
            replace(points.points, preprocessing=prepared), near, account=payer, state=state, **budget
        )
        release.save(out)
    print(
        facts(
            published=out,
            sorted=f"{release.mechanism.number:,} points, {release.mechanism.group:,} per sum",
            guarantee=release.mechanism.promise,
            account=release.payment,
            ask_it=f"deltahist query {out} --quantiles 0.25,0.5,0.75",
            state=describe_state(state),
        )
    )
    return release


def _prepare(
    source: str,
    out: Path,
    replaces: Path | None,
    reason: str | None,
    state: Path | None,
    paying: tuple[str | None, str | None, Fraction | None],
    budget: dict[str, Any],
    dry_run: bool = False,
) -> Account | None:
    """Check what a release is written to, and open the account that pays for it."""
    from deltahist.publishers.state import check_new

    if (replaces is None) != (reason is None):
        raise InputError("--replaces requires --reason, and the reverse")
    if out.suffix.lower() != ".parquet":
        raise InputError(f"--out is {str(out)!r}: a release ends in .parquet (`deltahist export` writes other forms)")
    check_target(out, source, replaces, paying[0], replace=dry_run)
    if state is not None and not dry_run:
        check_new(state)
        check_target(state, source, out, paying[0], option="--state")
    return shared.open_account(*paying, budget)


def _correct(counting: Preprocessing, replaces: Path | None, reason: str | None) -> Preprocessing:
    """Return how rows were prepared, with the release that is corrected, if there is one."""
    from deltahist.kinds import read_release
    from deltahist.preprocessing import Correction

    if replaces is None or reason is None:
        return counting
    return replace(counting, replaces=Correction(read_release(replaces).digest, reason))


def describe_state(state: Path | None) -> str | None:
    """Return where the state of a release is, as text."""
    return None if state is None else f"{state} (keep it secret; `deltahist refine` needs it)"


def quantile(
    source: shared.Input,
    *,
    q: Annotated[float, Option(metavar="Q", help="Which quantile: 0.5 is the median.")],
    x: Annotated[str, Option(metavar="COL", help="Column of the values: a name, or a number from 0.")],
    bounds: Annotated[Any, Option(metavar="LOW,HIGH", parser=shared.corners, help="Values outside are clamped.")],
    delta: shared.Delta,
    limit: shared.Limit = None,
    epsilon: shared.Epsilon = None,
    rho: shared.Rho = None,
    method: Annotated[Literal["inverse", "smooth"], Option(help="Inverse or smooth sensitivity.")] = "inverse",
    user: shared.User = None,
    max_per_user: shared.MaxPerUser = None,
    where: shared.Where = None,
    outside: shared.Outside = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="Also write it as JSON.")] = None,
    ledger: shared.LedgerFile = None,
    account: shared.AccountName = None,
    account_limit: shared.AccountLimit = None,
) -> Any:
    """Publish the median or another quantile of one column.

    The number of values is public, and printed. The noise scale is not, since with smooth sensitivity it depends on
    the data.

    \b
    Examples:
      deltahist quantile ages.csv --x age --q 0.5 --bounds 0,120 --delta 5 --epsilon 1
      deltahist quantile trips.parquet --x metres --q 0.9 --bounds 0,50000 --delta 500 --rho 0.1 --out median.json
    """
    from deltahist.counting import points_file
    from deltahist.kinds.quantile import check_quantile
    from deltahist.publishers import publish_quantile
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood

    budget = shared.read_budget(epsilon, rho)
    payer = shared.open_account(ledger, account, account_limit, budget)
    if ledger is not None and out is None:
        raise InputError("--ledger requires --out, so that the answer outlives the terminal")
    check_target(out, source, ledger, replace=False)
    near = Neighbourhood(Domain(bounds, (1000,)), delta, limits=shared.read_limits(limit))
    near.check_on_map()
    check_quantile(q, near)
    reading = {"x": x, "user": user, "max_per_user": max_per_user, "where": where, "outside": outside}
    located = points_file(source, near.domain, **reading)
    shared.note_rows(located)
    with shared.warn_of_charges(payer), show_progress("Drawing the quantile …"):
        found = publish_quantile(located.points, q, near, method=method, account=payer, **budget)
        if out is not None:
            put(found.to_json(), out)
    print(f"{found.value:.12g}  (quantile {q:g} of {found.total:,}, {found.method}, {found.mechanism.promise})")
    if found.payment is not None:
        print(f"account {found.payment}")
    return found
