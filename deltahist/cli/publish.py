"""`deltahist publish`: from private points to a release file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from deltahist.cli import console
from deltahist.cli.app import write_project
from deltahist.cli.groups import (
    KEPT,
    OVERWRITE,
    PLAN,
    PRIVACY,
    SORTED,
    WEAK,
    AccountOptions,
    RowOptions,
    SpendingWithFailure,
    describe_state,
    mark_points,
    note_rows,
    read_line,
)
from deltahist.cli.maps import Coordinates, PaidPlace, PlanOptions, about_map, choose_map, describe_limit
from deltahist.cli.options import LONG, argument, flag, option, whole_number
from deltahist.cli.withdraw import CorrectionOptions
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.preprocessing import Preprocessing
    from deltahist.strategies import Strategy


@dataclass(frozen=True, kw_only=True)
class _NoisyBudget(SpendingWithFailure):
    """A budget, and the noise that spends it."""

    noise: str | None = option(
        "LAW", "laplace (with --epsilon) or gaussian (with --rho or --probability).", panel=PRIVACY
    )

    def keywords(self) -> dict[str, Any]:
        from deltahist.privacy import NOISES

        budget = super().keywords()
        if self.noise is not None and NOISES.get(self.noise) == "epsilon":  # it never fails
            budget.pop("probability", None)
        return budget


@dataclass(frozen=True, kw_only=True)
class SortedOptions:
    """Sorted points instead of counts."""

    in_order: bool = flag(
        "Publish the points of one dimension in order, not counts of cells.", names="--sorted", panel=SORTED
    )
    group: int | None = option(
        "K", "Points per sum. [default: from public figures]", whole_number, panel=SORTED
    )
    most: int | None = option(
        "N", "With --sources left or right: public bound on the points.", whole_number, panel=SORTED
    )


#: Endings of other forms, which programs would open in vain.
_NO_RELEASES = tuple(
    f".{kind}"
    for kind in ("csv", "tsv", "txt", "json", "geojson", "gpkg", "shp", "xlsx", "tif", "png", "svg", "pdf", "html")
)


def publish(
    context: Context,
    *,
    source: str = argument(
        "INPUT",
        "CSV, JSON lines, Parquet, Excel, ...; a folder, s3://, gs://, az://; - is stdin.",
    ),
    coordinates: Coordinates,
    place: PaidPlace,
    out: Path = option("FILE", "The release file (Parquet).", default=...),
    spending: _NoisyBudget,
    dry_run: bool = flag("Tell what would be published, and its error; read no rows, draw nothing."),
    strategy: str = option(
        "NAME",
        "auto, flow[:block], spectral, optimal, identity, wavelet, hierarchical[:b], cumulative[:prefix], "
        "shifted:w,shift[,m], dyadic[:w], tents[:w[,degree]]; in cells.",
        default="auto",
        panel=PLAN,
    ),
    asked: PlanOptions,
    rows: RowOptions,
    order: SortedOptions,
    accounts: AccountOptions,
    correction: CorrectionOptions,
    state: Path | None = option(
        "FILE", "New file for the secret state, to refine the release later.", panel=KEPT
    ),
    weak_protection_accepted: bool = WEAK,
    overwrite: bool = OVERWRITE,
    write_config: Path | None = option(
        "FILE.toml", "With --dry-run: write the options to a file, such as deltahist.toml.", panel=KEPT
    ),
) -> Any:
    """Publish a file of points as one release file that may be handed out.

    All choices are public. Cells and δ are in ground metres ("250m"), or plain numbers without a CRS; bounds are
    extended to whole cells. What stderr says of rows is not for publication.

    \b
    Examples:
      deltahist publish visits.csv --x lon --y lat --crs EPSG:4326 --project auto \\
          --bounds -74.3,40.45,-73.6,40.95 --cell 250m --delta 500m --epsilon 1 --out city.parquet
      deltahist publish visits.csv --out city.parquet --dry-run      # with a deltahist.toml, which `init` writes
    """
    from deltahist.budget import Budget
    from deltahist.counting.files import count_file, open_rows
    from deltahist.mechanisms.base import weakness_of
    from deltahist.publishers import publish as publish_counts
    from deltahist.publishers.publication import check_protection, refuse_weak
    from deltahist.strategies.base import kind_named

    budget = spending.keywords()
    files = [source, *asked.files()]
    console.check_target(out, *files, correction.replaces, replace=overwrite or dry_run)
    console.check_target(write_config, *files, out, state, replace=overwrite, option="--write-config")
    if write_config is not None and not dry_run:
        raise InputError("--write-config is given without --dry-run: it writes what would be published")
    if out.suffix.lower() in _NO_RELEASES:
        raise InputError(
            f"--out is {str(out)!r}: a release is a Parquet file, call it {str(out.with_suffix('.parquet'))!r}; "
            "`deltahist export` makes other forms of it, `deltahist plot` pictures"
        )
    old = correction.check(budget, accounts)
    accounts.check(budget, out=out, state=state, write_config=write_config)
    if state is not None and not dry_run:
        from deltahist.publishers.gradual import check_new  # a map without a state does not wait for chains

        check_new(state)
        if state.resolve() == out.resolve():
            raise InputError(
                f"--state is {str(state)!r}, as --out is: the release is public, the state is secret; name two files"
            )
    asked_for = Budget(**budget, noise=spending.noise)
    if not weak_protection_accepted:
        refuse_weak(asked_for, weakness_of(asked_for.guarantee))
    if strategy != "auto":
        kind_named(strategy)
    counting = correction.mark(rows.counting(context), old)
    columns = coordinates.columns(len(place.bounds) // 2)
    ways: dict[str, Any] = {"weak_protection_accepted": weak_protection_accepted, "state": state}
    for name in ("group", "most"):
        if getattr(order, name) is not None and not order.in_order:
            raise InputError(f"--{name} is given without --sorted: it goes with it")
    if order.in_order:
        _refuse_for_sorted(strategy=strategy != "auto", outside=rows.outside == "drop", dry_run=dry_run,
                           drop_bad_rows=rows.drop_bad_rows, probability="probability" in budget)  # fmt: skip
    opened: Any = source  # a cheap mistake is told before anything takes long
    if not dry_run:
        opened = context.with_resource(open_rows(source, axes=len(place.bounds) // 2, **columns, **vars(rows)))
    if order.in_order:
        sorted_release = _publish_sorted(
            opened, columns, coordinates, place, order, rows, accounts, out, budget, ways, counting
        )
        correction.finish(out, old, accounts)
        return sorted_release
    how = {"strategy": strategy, "noise": spending.noise, "counting": counting, **budget}
    chosen = choose_map(place, coordinates, asked, **how)
    mechanism = chosen.mechanism(**how)
    check_protection(mechanism, weak_protection_accepted)
    domain = mechanism.domain
    about = {
        "strategy": _describe_strategy(mechanism.strategy),
        "guarantee": mechanism.promise,
        "limit": describe_limit(mechanism, place.limits),
    }
    if dry_run:
        shape = " × ".join(map(str, domain.shape))
        print(console.facts(would_publish=f"{shape} cells of {domain.size_of_cells}", **about))
        print(chosen.describe_error(mechanism, asked))
        print(f"\nCells that were compared:\n{chosen.table()}\n" if chosen.cells else "")
        print(mechanism.statement())
        if write_config is not None:
            write_project(context, write_config)
            console.note(f"wrote {write_config}")
        return None
    with place.suggesting_options(coordinates):
        counted = count_file(opened, domain, **columns, **vars(rows))
    note_rows(counted, " counted", "dropped" if rows.outside == "drop" else "counted in the nearest cell")
    with accounts.open(budget) as account:
        release = publish_counts(counted.counts, mechanism, account=account, out=out, **ways)
    print(
        console.facts(
            published=str(out),
            **about_map(domain),
            **about,
            account=release.payment,
            statement=f"deltahist statement {out}",
            state=describe_state(state),
        )
    )
    correction.finish(out, old, accounts)
    return release, counted


def _refuse_for_sorted(**given: bool) -> None:
    """Raise InputError on options that do not go with sorted points, whose number is public."""
    for name, there in given.items():
        if there:
            raise InputError(f"--{name.replace('_', '-')} is given with --sorted: it goes with counts; leave it out")


def _publish_sorted(
    source: Any,
    columns: dict[str, Any],
    coordinates: Coordinates,
    place: PaidPlace,
    order: SortedOptions,
    rows: RowOptions,
    accounts: AccountOptions,
    out: Path,
    budget: dict[str, Any],
    ways: dict[str, Any],
    counting: Preprocessing,
) -> Any:
    """Publish sorted points as a release file."""
    from deltahist.kinds.sorted import check_membership, places_for
    from deltahist.publishers.points import publish_sorted

    near = place.near(coordinates)
    domain = near.domain
    check_membership(near)
    places_for(1, near, order.most)  # whether a bound is due is known before the points are
    with place.suggesting_options(coordinates):
        located = read_line(source, domain, **columns, **vars(rows))
    points = mark_points(located.points, replaces=counting.replaces)
    with accounts.open(budget) as account:
        release = publish_sorted(
            points, near, group=order.group or "auto", most=order.most, account=account, **budget, **ways
        )
        release.save(out)
    what = "points" if near.fixed_membership else "places for points"
    print(
        console.facts(
            published=str(out),
            line=f"{domain.low[0]:.10g} to {domain.high[0]:.10g}" + (f" in {domain.crs}" if domain.crs else ""),
            sorted=f"{release.mechanism.number:,} {what}, {release.mechanism.group:,} per sum",
            guarantee=release.mechanism.promise,
            account=release.payment,
            ask_it=f"deltahist query {out} --quantiles 0.25,0.5,0.75",
            state=describe_state(ways["state"]),
        )
    )
    return release


def _describe_strategy(strategy: Strategy) -> str:
    """Render a strategy with its parameters."""
    parameters = {name: value for name, value in strategy.describe().items() if name not in ("strategy", *LONG)}
    detail = ", ".join(f"{name} {value}" for name, value in parameters.items() if value not in (None, ""))
    return f"{strategy.name} ({detail})" if detail else strategy.name
