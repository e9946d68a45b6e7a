"""`deltahist publish`, `sorted` and `quantile` make releases; `refine`, `tighten` and `withdraw` follow."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from deltahist.cli import check_target, format_facts, options, print_note, show_progress, write_text
from deltahist.cli.options import Length, OutFile, require

if TYPE_CHECKING:
    from deltahist.accounts.window import Account
    from deltahist.preprocessing import Preprocessing
    from deltahist.releases import BaseRelease


def publish(
    source: options.Input,
    *,
    x: options.X = None,
    y: options.Y = None,
    crs: options.PointsCrs = None,
    project: options.Project = None,
    bounds: options.Bounds,
    cell: options.Cell = None,
    delta: options.Delta,
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    limit: options.Limit = None,
    sources: options.Sources = "none",
    out: options.ReleaseFile,
    dry_run: options.DryRun = False,
    strategy: options.Strategy = "auto",
    regions: options.Regions = None,
    points: options.Points = None,
    user: options.User = None,
    max_per_user: options.MaxPerUser = None,
    where: options.Where = None,
    outside: options.Outside = None,
    drop_bad_rows: options.DropBadRows = False,
    table: options.Table = None,
    ledger: options.LedgerFile = None,
    account: options.AccountName = None,
    account_limit: options.AccountLimit = None,
    replaces: options.Replaces = None,
    reason: options.Reason = None,
    state: options.NewState = None,
) -> Any:
    """Publish a file of points as one release file, which you may hand out.

    All options are public. Lengths are in ground metres ("250m"), or plain numbers without a CRS. Bounds are extended
    to whole cells. Row counts printed on stderr are private.

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

    budget = options.read_budget(epsilon, rho)
    check_target(out, regions)
    payer = _prepare(source, out, replaces, reason, state, (ledger, account, account_limit), budget, dry_run)
    refuse_weak(Budget(**budget), weakness_of(Budget(**budget).guarantee))
    if strategy != "auto":
        find_strategy_class(strategy)
    reading: dict[str, Any] = {
        **{"x": x, "y": y, "crs": options.read_crs(crs), "user": user, "max_per_user": max_per_user},
        **{"where": where, "outside": outside, "drop_bad_rows": drop_bad_rows, "table": table},
    }
    counting = _correct(Reading.of(**reading).preprocessing(None), replaces, reason)
    place = options.MapOptions(
        bounds=bounds, delta=delta, cell=cell, crs=crs, project=project, sources=sources, limit=limit, columns=(x, y)
    )
    if not dry_run:  # find a misspelt column before comparing cells and strategies
        check_file(source, len(bounds) // 2, **reading)
    chosen = options.choose_mechanism(
        place, points, {"regions": regions}, strategy=strategy, counting=counting, **budget
    )
    mechanism = chosen.mechanism
    check_publication(mechanism, accepted=False)
    about = {
        **options.describe_map(mechanism.domain),
        "strategy": mechanism.strategy.name,
        "guarantee": mechanism.promise,
        "limit": options.describe_limit(mechanism, limit),
    }
    if dry_run:
        print(format_facts(**about), chosen.describe_error(points), sep="\n")
        if chosen.cells:
            print(f"\nExpected errors by size of cells:\n{chosen.describe_cells()}")
        print(f"\n{write_statement(mechanism)}")
        return None
    with show_progress("Counting points …"):
        counted = count_file(source, mechanism.domain, **reading)
    options.note_rows(counted, outside)
    with options.warn_of_charges(payer), show_progress("Drawing noise …"):
        release = publish_mechanism(mechanism, counted.counts, account=payer, out=out, state=state)
    print(format_facts(published=out, **about, account=release.payment, state=_describe_state(state)))
    return release, counted


def publish_sorted(
    source: options.Input,
    *,
    x: options.Values,
    bounds: options.Range,
    delta: options.Delta,
    cell: Annotated[Any, Length(help="Bin width of histograms. [default: δ]")] = None,
    limit: options.Limit = None,
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    out: options.ReleaseFile,
    user: options.User = None,
    max_per_user: options.MaxPerUser = None,
    where: options.Where = None,
    outside: Annotated[
        Literal["clamp"] | None, Option(help="Clamp all values outside the bounds. [default: only up to 1%]")
    ] = None,
    table: options.Table = None,
    ledger: options.LedgerFile = None,
    account: options.AccountName = None,
    account_limit: options.AccountLimit = None,
    replaces: options.Replaces = None,
    reason: options.Reason = None,
    state: options.NewState = None,
) -> Any:
    """Publish the sorted values of one column as one release, which answers ranges and quantiles.

    The number of values is public.

    \b
    Examples:
      deltahist sorted ages.csv --x age --bounds 0,120 --delta 1 --epsilon 1 --out ages.parquet
      deltahist query ages.parquet --quantiles 0.25,0.5,0.75
    """
    from deltahist.counting import points_file
    from deltahist.kinds.sorted import check_line
    from deltahist.publishers import publish_sorted as publish_points

    budget = options.read_budget(epsilon, rho)
    payer = _prepare(source, out, replaces, reason, state, (ledger, account, account_limit), budget)
    near = options.MapOptions(bounds=bounds, delta=delta, cell=cell, limit=limit).make_neighbourhood()
    check_line(near, (None,))
    reading = {"x": x, "user": user, "max_per_user": max_per_user, "where": where, "outside": outside, "table": table}
    with show_progress("Reading points …"):
        located = points_file(source, near.domain, **reading)
    options.note_rows(located)
    points = replace(located.points, preprocessing=_correct(located.points.preprocessing, replaces, reason))
    with options.warn_of_charges(payer), show_progress("Drawing noise …"):
        release = publish_points(points, near, account=payer, state=state, **budget)
        release.save(out)
    print(
        format_facts(
            published=out,
            sorted=f"{release.mechanism.number:,} points, {release.mechanism.group:,} per sum",
            guarantee=release.mechanism.promise,
            account=release.payment,
            ask_it=f"deltahist query {out} --quantiles 0.25,0.5,0.75",
            state=_describe_state(state),
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
    """Check the output files of a release, and open the account that pays for it."""
    from deltahist._files import form_of
    from deltahist.publishers.state import check_new

    require((replaces is None) == (reason is None), "--replaces requires --reason, and the reverse")
    form_of(out, {".parquet": "parquet"})
    check_target(out, source, replaces, paying[0], replace=dry_run)
    if state is not None and not dry_run:
        check_new(state)
        check_target(state, source, out, paying[0], option="--state")
    return options.open_account(*paying, budget)


def _correct(counting: Preprocessing, replaces: Path | None, reason: str | None) -> Preprocessing:
    """Return the preprocessing of rows, with the release that this one replaces, if any."""
    from deltahist.kinds import read_release
    from deltahist.preprocessing import Correction

    if replaces is None or reason is None:
        return counting
    return replace(counting, replaces=Correction(read_release(replaces).digest, reason))


def publish_quantile(
    source: options.Input,
    *,
    q: Annotated[float, Option(metavar="Q", help="Share of the values below the quantile: 0.5 for the median.")],
    x: options.Values,
    bounds: options.Range,
    delta: options.Delta,
    limit: options.Limit = None,
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    method: Annotated[
        str,
        Option(
            metavar="METHOD",
            help="How to draw the quantile: inverse (few moves) or smooth (smooth sensitivity, requires ε).",
        ),
    ] = "inverse",
    user: options.User = None,
    max_per_user: options.MaxPerUser = None,
    where: options.Where = None,
    outside: options.Outside = None,
    out: Annotated[Path | None, OutFile(help="JSON file to write, too.")] = None,
    ledger: options.LedgerFile = None,
    account: options.AccountName = None,
    account_limit: options.AccountLimit = None,
) -> Any:
    """Publish the median or another quantile of one column.

    The number of values is public, and the command prints it. The noise scale stays private, because it depends on the
    data with smooth sensitivity.

    \b
    Examples:
      deltahist quantile ages.csv --x age --q 0.5 --bounds 0,120 --delta 5 --epsilon 1
      deltahist quantile trips.parquet --x metres --q 0.9 --bounds 0,50000 --delta 500 --rho 0.1 --out median.json
    """
    from deltahist.counting import points_file
    from deltahist.kinds.sorted import read_shares
    from deltahist.publishers import publish_quantile as publish_points
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood

    budget = options.read_budget(epsilon, rho)
    payer = options.open_account(ledger, account, account_limit, budget)
    require(ledger is None or out is not None, "--ledger requires --out, so that the answer outlives the terminal")
    check_target(out, source, ledger, replace=False)
    near = Neighbourhood(Domain(bounds, (1000,)), delta, limits=options.parse_limits(limit))
    near.check_on_map()
    read_shares(q)
    located = points_file(source, near.domain, x=x, user=user, max_per_user=max_per_user, where=where, outside=outside)
    options.note_rows(located)
    with options.warn_of_charges(payer), show_progress("Drawing the quantile …"):
        found = publish_points(located.points, q, near, method=method, account=payer, **budget)
        if out is not None:
            write_text(found.to_json(), out)
    print(f"{found.value:.12g}  (quantile {q:g} of {found.total:,}, {method}, {found.mechanism.promise})")
    if found.payment is not None:
        print(f"account {found.payment}")
    return found


# --- the life of a release -----------------------------------------------------------------------------------


def refine(
    release: Annotated[Path | None, Argument(metavar="RELEASE", help="[default: the last one of the state]")] = None,
    *,
    state: Annotated[Path, Option(metavar="FILE", help="State file that `publish --state` wrote.")],
    out: options.ReleaseFile,
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    ledger: options.LedgerFile = None,
    account: options.AccountName = None,
) -> Any:
    """Publish a more accurate release of the same data. All releases of the chain together cost what the last one does.

    The data are not read again. The state holds the noise, and the command updates it for the new release. The account
    that paid for the first release pays the difference. After an interrupted run, leave out RELEASE and budget to write
    the last release of the state again.

    \b
    Examples:
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --epsilon 0.5 \\
          --state city.state --out city.parquet
      deltahist refine city.parquet --state city.state --epsilon 2 --out city-2.parquet
      deltahist refine city.parquet --state city.state --epsilon 2 --out city-2.parquet \\
          --ledger city.ledger --account visits
    """
    from deltahist.publishers.revisions import refine as refine_release
    from deltahist.publishers.state import State

    check_target(out, state, release, ledger, replace=False)
    given: Any = State.load(state).release if release is None else options.open_release(release)
    again = release is None and epsilon is None and rho is None
    spent, chain = given.mechanism.budget, given.mechanism.chain
    budget = {spent.unit: spent.amount} if again else options.read_budget(epsilon, rho)
    payer = options.open_account(ledger, account, None, budget, None if chain is None else chain.name)
    with options.warn_of_charges(payer), show_progress("Drawing noise …"):
        made = refine_release(None if release is None else given, state, account=payer, **({} if again else budget))
        made.save(out)
    print(_describe_chain(made, out, state))
    return made


def tighten(
    release: options.Release,
    *,
    out: options.ReleaseFile,
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    state: Annotated[Path | None, Option(metavar="FILE", help="State of its chain, if the strategy needs it.")] = None,
) -> Any:
    """Make a more private copy of a release, for readers who may see less. The data are not needed.

    The copy gets additional noise, as if it had been released at the smaller budget. It spends nothing. Flows with sums
    along the lines, which `auto` often chooses, need the state of their chain.

    \b
    Example:
      deltahist tighten city.parquet --epsilon 0.2 --out city-public.parquet
    """
    from deltahist.publishers.revisions import tighten as tighten_release

    check_target(out, release, state, replace=False)
    given, budget = options.open_release(release), options.read_budget(epsilon, rho)
    with show_progress("Drawing noise …"):
        made = tighten_release(given, state=state, **budget)
    made.save(out)
    print(_describe_chain(made, out, None))
    return made


def withdraw(
    release: Annotated[Path, Argument(metavar="RELEASE", help="A release file.")],
    *,
    reason: Annotated[str, Option(metavar="TEXT", help="Reason, in one line. Published.")],
    ledger: options.LedgerFile = None,
) -> None:
    """Withdraw a release: record it in the ledger that paid for it, and write a public notice next to the file.

    Copy the notice, city.withdrawn.json for city.parquet, to every place that has the release. Commands, the service
    and the library refuse a withdrawn release. The budget stays spent, because people have seen the release.

    \b
    Example:
      deltahist withdraw city.parquet --reason "the column of longitudes was wrong" --ledger city.ledger
    """
    from deltahist.accounts.ledger import Ledger
    from deltahist.kinds import read_release
    from deltahist.publishers.revisions import withdraw as withdraw_release
    from deltahist.releases.base import notice_path

    notice = withdraw_release(release, reason, ledger=ledger)
    payment = read_release(release).payment
    left = None
    if payment is not None and ledger is not None:
        standing = str(Ledger(ledger).read_standing(payment.account).binding)
        left = f"{payment.account!r}: {standing.removeprefix(f'account {payment.account!r} ')}"
    print(format_facts(withdrawn=f"{release}, {notice}", notice=notice_path(release), account=left))
    if payment is not None and ledger is None:
        print_note(f"note: account {payment.account!r} paid for {release}: run this again with its --ledger")


def _describe_chain(release: BaseRelease, out: Path, state: Path | None) -> str:
    """Return a release of a chain, its payment and the place of its state, as text."""
    from deltahist.statement.facts import explain_chain

    mechanism = release.mechanism
    assert mechanism.chain is not None
    return format_facts(
        published=out,
        guarantee=mechanism.promise,
        chain=explain_chain(mechanism.chain, mechanism.letter),
        account=release.payment,
        state=_describe_state(state),
    )


def _describe_state(state: Path | None) -> str | None:
    return None if state is None else f"{state} (keep it secret; `deltahist refine` needs it)"
