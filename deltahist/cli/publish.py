"""`deltahist publish`, `sorted` and `quantile`, and the commands for releases: `refine`, `tighten` and `withdraw`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from deltahist.cli import check_target, format_facts, options, print_note, show_progress, write_text
from deltahist.cli.options import Column, File, Length, OutFile, require
from deltahist.errors import check_finite

if TYPE_CHECKING:
    from deltahist.preprocessing import Preprocessing
    from deltahist.releases import BaseRelease
    from deltahist.space.domain import Domain


@dataclass(frozen=True, kw_only=True)
class NewRelease:
    """The files of a new release, and the old release that it corrects."""

    out: options.ReleaseFile
    replaces: Annotated[Path | None, Option(metavar="OLD", help="Faulty release that the new one corrects.")] = None
    reason: Annotated[str | None, Option(metavar="TEXT", help="Reason for the replacement, to be published.")] = None
    state: Annotated[Path | None, File(help="Secret file to write, needed to refine the release later.")] = None

    def check_out(self) -> None:
        """Raise InputError if the release cannot be written, so that nothing is charged for it."""
        from deltahist._files import check_creatable

        check_creatable(self.out)

    def check_files(self, *used: str | Path | None, dry_run: bool = False) -> None:
        """Raise InputError if a file cannot be written, or is among `used`."""
        from deltahist._files import form_of
        from deltahist.publishers.publication import check_new

        require((self.replaces is None) == (self.reason is None), "--replaces and --reason require each other")
        form_of(self.out, {".parquet": "parquet"})
        check_target(self.out, self.replaces, *used, replace=dry_run)
        if self.state is not None and not dry_run:
            check_new(self.state)
            check_target(self.state, self.out, *used, option="--state")

    def add_correction(self, counting: Preprocessing) -> Preprocessing:
        """Record in the preprocessing which release this one replaces, if any."""
        from deltahist.kinds import read_release
        from deltahist.preprocessing import Correction

        if self.replaces is None or self.reason is None:
            return counting
        return replace(counting, replaces=Correction(read_release(self.replaces).digest, self.reason))


@dataclass(frozen=True, kw_only=True)
class ValueOptions:
    """The column with the values, and the rows to count."""

    x: Annotated[str, Column(help="Name or number of the column with the values.")]
    bounds: Annotated[
        Any, Option(metavar="LOW,HIGH", parser=options.parse_corners, help="Range to which values are clamped.")
    ]
    delta: options.Delta
    limit: options.Limit = None
    user: options.User = None
    max_per_user: options.MaxPerUser = None
    where: options.Where = None
    outside: Annotated[
        Literal["clamp"] | None, Option(help="Clamp values outside --bounds, however many. [default: up to 1%]")
    ] = None
    table: options.Table = None

    def read_points(self, source: str, domain: Domain) -> Any:
        """Read the values, and print row counts."""
        from deltahist.counting import points_file

        names = ("x", "user", "max_per_user", "where", "outside", "table")
        with show_progress("Reading points …"):
            located = points_file(source, domain, **{name: getattr(self, name) for name in names})
        options.note_rows(located)
        return located.points


def publish(
    source: options.Input,
    *,
    place: options.MapOptions,
    rows: options.RowOptions,
    budget: options.BudgetOptions,
    files: NewRelease,
    about: options.AboutOptions,
    payer: options.PayerOptions,
    strategy: options.Strategy = "auto",
    regions: options.Regions = None,
    points: options.Points = None,
    dry_run: options.DryRun = False,
) -> Any:
    """Publish a file of points as one release file, which you may hand out.

    All options are public. Lengths are in metres on the ground ("250m"), or are plain numbers if there is no CRS. The
    map is extended to whole cells. Row counts printed on stderr are private.

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

    amount, texts = budget.read(), about.read()
    files.check_files(source, payer.ledger, regions, dry_run=dry_run)
    account = payer.open(amount)
    refuse_weak(Budget(**amount), weakness_of(Budget(**amount).guarantee))
    if strategy != "auto":
        find_strategy_class(strategy)
    reading: dict[str, Any] = place.columns | vars(rows)
    counting = files.add_correction(Reading.of(**reading).preprocessing(None))
    if not dry_run:  # catch a misspelt column before comparing cells and strategies
        check_file(source, len(place.bounds) // 2, **reading)
    chosen = options.choose_mechanism(place, points, regions, strategy=strategy, counting=counting, **amount)
    mechanism = chosen.mechanism
    check_publication(mechanism, accepted=False)
    shown = {
        **options.describe_map(mechanism.domain),
        "strategy": mechanism.strategy.name,
        "guarantee": mechanism.promise,
        "limit": options.describe_limit(mechanism, place.limit),
    }
    if dry_run:
        print(format_facts(**shown), chosen.describe_error(), sep="\n")
        if chosen.cells:
            print(f"\nExpected errors by cell size:\n{chosen.describe_cells()}")
        print(f"\n{write_statement(mechanism)}")
        return None
    with show_progress("Counting points …"):
        counted = count_file(source, mechanism.domain, **reading)
    options.note_rows(counted, rows.outside)
    with options.warn_of_charges(account), show_progress("Drawing noise …"):
        files.check_out()
        release = publish_mechanism(mechanism, counted.counts, account=account, state=files.state, about=texts)
        release.save(files.out)
    print(format_facts(published=files.out, **shown, account=release.payment, state=_describe_state(files.state)))
    return release, counted


def publish_sorted(
    source: options.Input,
    *,
    values: ValueOptions,
    cell: Annotated[Any, Length(help="Bin width of plotted histograms. [default: δ]")] = None,
    budget: options.BudgetOptions,
    files: NewRelease,
    about: options.AboutOptions,
    payer: options.PayerOptions,
) -> Any:
    """Publish the sorted values of one column as a release, for range and quantile queries.

    The number of values is public.

    \b
    Example:
      deltahist sorted ages.csv --x age --bounds 0,120 --delta 1 --epsilon 1 --out ages.parquet
    """
    from deltahist.kinds.sorted import check_line
    from deltahist.publishers import publish_sorted as publish_points

    amount, texts = budget.read(), about.read()
    files.check_files(source, payer.ledger)
    account = payer.open(amount)
    place = options.MapOptions(bounds=values.bounds, delta=values.delta, cell=cell, limit=values.limit)
    near = place.make_neighbourhood()
    check_line(near, (None,))
    points = values.read_points(source, near.domain)
    points = replace(points, preprocessing=files.add_correction(points.preprocessing))
    with options.warn_of_charges(account), show_progress("Drawing noise …"):
        files.check_out()
        release = publish_points(points, near, account=account, state=files.state, about=texts, **amount)
        release.save(files.out)
    print(
        format_facts(
            published=files.out,
            sorted=f"{release.mechanism.number:,} points, {release.mechanism.group:,} per sum",
            guarantee=release.mechanism.promise,
            account=release.payment,
            ask_it=f"deltahist query {files.out} --quantiles 0.25,0.5,0.75",
            state=_describe_state(files.state),
        )
    )
    return release


def publish_quantile(
    source: options.Input,
    *,
    q: Annotated[float, Option(metavar="Q", help="Share of the values below the quantile: 0.5 for the median.")],
    values: ValueOptions,
    budget: options.BudgetOptions,
    about: options.AboutOptions,
    payer: options.PayerOptions,
    method: Annotated[
        str, Option(metavar="METHOD", help="Sensitivity to use: inverse, or smooth (which requires --epsilon).")
    ] = "inverse",
    out: Annotated[Path | None, OutFile(help="JSON file for the answer, which is also printed.")] = None,
) -> Any:
    """Publish the median or another quantile of one column.

    The number of values is public, and the command prints it. The noise scale stays private, because with smooth
    sensitivity it depends on the data.

    \b
    Example:
      deltahist quantile ages.csv --x age --q 0.5 --bounds 0,120 --delta 5 --epsilon 1
    """
    from deltahist.publishers import publish_quantile as publish_points
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood

    amount, texts = budget.read(), about.read()
    account = payer.open(amount)
    require(account is None or out, "--ledger requires --out, so that no paid answer is lost")
    check_target(out, source, payer.ledger, replace=False)
    near = Neighbourhood(Domain(values.bounds, (1000,)), values.delta, limits=options.parse_limits(values.limit))
    near.check_on_map()
    check_finite(least=0, most=1, q=q)
    points = values.read_points(source, near.domain)
    with options.warn_of_charges(account), show_progress("Drawing the quantile …"):
        found = publish_points(points, q, near, method=method, account=account, about=texts, **amount)
        if out is not None:
            write_text(found.to_json(), out)
    print(f"{found.value:.12g}  (quantile {q:g} of {found.total:,}, {method}, {found.mechanism.promise})")
    if found.payment is not None:
        print(f"account {found.payment}")
    return found


def refine(
    release: Annotated[
        Path | None, Argument(metavar="RELEASE", help="Release file. [default: the last one in --state]")
    ] = None,
    *,
    state: Annotated[Path, File(help="State file that `publish --state` wrote.")],
    out: options.ReleaseFile,
    budget: options.BudgetOptions,
    ledger: options.LedgerFile = None,
    account: options.AccountName = None,
) -> Any:
    """Publish a more accurate release of the same data. The releases together cost only as much as the last one.

    The command does not read the data again. The noise comes from the state file, which the command then updates. The
    account that paid for the first release pays only the added cost. After an interrupted run, leave out RELEASE and
    the budget to write the last release again.

    \b
    Example:
      deltahist refine city.parquet --state city.state --epsilon 2 --out city-2.parquet
    """
    from deltahist.publishers.publication import State, refine as refine_release

    check_target(out, state, release, ledger, replace=False)
    given: Any = State.load(state).release if release is None else options.open_release(release)
    again = release is None and budget == options.BudgetOptions()
    spent, chain = given.mechanism.budget, given.mechanism.chain
    amount = {spent.unit: spent.amount} if again else budget.read()
    payer = options.PayerOptions(ledger=ledger, account=account).open(amount, None if chain is None else chain.name)
    with options.warn_of_charges(payer), show_progress("Drawing noise …"):
        made = refine_release(None if release is None else given, state, account=payer, **({} if again else amount))
        made.save(out)
    print(_describe_chain(made, out, state))
    return made


def tighten(
    release: options.Release,
    *,
    out: options.ReleaseFile,
    budget: options.BudgetOptions,
    state: Annotated[Path | None, File(help="State file of the release, if the strategy requires it.")] = None,
) -> Any:
    """Make a more private copy of a release, for readers who may see less. The data are not needed.

    The command adds noise until the copy is as private as a release with the smaller budget. It spends nothing.
    Strategies with sums along lines, which `auto` often chooses, require --state.

    \b
    Example:
      deltahist tighten city.parquet --epsilon 0.2 --out city-public.parquet
    """
    from deltahist.publishers.publication import tighten as tighten_release

    check_target(out, release, state, replace=False)
    given, amount = options.open_release(release), budget.read()
    with show_progress("Drawing noise …"):
        made = tighten_release(given, state=state, **amount)
    made.save(out)
    print(_describe_chain(made, out, None))
    return made


def withdraw(
    release: Annotated[Path, Argument(metavar="RELEASE", help="A release file.")],
    *,
    reason: Annotated[str, Option(metavar="TEXT", help="One-line reason for the withdrawal, to be published.")],
    ledger: Annotated[str | None, File(help="Ledger charged for the release: a file or postgresql://...")] = None,
) -> None:
    """Withdraw a release: record the withdrawal in the ledger that paid, and write a public notice next to the file.

    Copy the notice (city.withdrawn.json for city.parquet) to every place where you published the release. deltahist
    refuses a release that has a notice next to it. The budget stays spent, because people have seen the release.

    \b
    Example:
      deltahist withdraw city.parquet --reason "the longitude column was wrong" --ledger city.ledger
    """
    from deltahist.kinds import read_release
    from deltahist.publishers.withdrawal import withdraw as withdraw_release
    from deltahist.releases.base import notice_path

    notice = withdraw_release(release, reason, ledger=ledger)
    payment = read_release(release).payment
    account = None if payment is None else payment.account
    print(format_facts(withdrawn=f"{release}, {notice}", notice=notice_path(release), account=account))
    if account is not None and ledger is None:
        print_note(f"note: account {account!r} paid for {release}: run this again with --ledger")


def _describe_chain(release: BaseRelease, out: Path, state: Path | None) -> str:
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
