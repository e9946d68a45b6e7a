"""`deltahist publish`: from private points to a release file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context

from deltahist.cli import console, options
from deltahist.cli.accounts import AccountOptions, StateFile, check_state, describe_state
from deltahist.cli.choosing import ANYWHERE, ChosenMap, PlanOptions, choose_map, table_of_cells
from deltahist.cli.command import Config, refuse_passwords, write_options
from deltahist.cli.groups import (
    KEPT,
    PLAN,
    PRIVACY,
    SORTED,
    Overwrite,
    RowOptions,
    SpendingWithFailure,
    WeakProtection,
)
from deltahist.cli.options import argument, flag, option, whole_number
from deltahist.cli.places import Coordinates, PaidPlace
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.counting import Counted
    from deltahist.kinds import SortedRelease
    from deltahist.mechanisms import Mechanism
    from deltahist.releases import Release


@dataclass(frozen=True, kw_only=True)
class _NoisyBudget(SpendingWithFailure):
    """A budget, and the noise that spends it."""

    noise: Annotated[
        str | None,
        option("LAW", "laplace (with --epsilon) or gaussian (with --rho or --probability).", panel=PRIVACY),
    ] = None

    def keywords(self) -> dict[str, Any]:
        from deltahist.privacy import law_for

        budget = super().keywords()
        if self.noise == law_for("epsilon").noise:  # it never fails
            budget.pop("probability", None)
        return budget

@dataclass(frozen=True, kw_only=True)
class SortedOptions:
    """Sorted points instead of counts."""

    in_order: Annotated[
        bool, flag("--sorted", "Publish the points of one dimension in order, not counts of cells.", SORTED)
    ] = False
    group: Annotated[
        int | None,
        option("K", "Points per sum. [default: from public figures]", read=whole_number, panel=SORTED),
    ] = None
    most: Annotated[
        int | None,
        option(
            "N",
            "With --sources left or right: public bound on the points.",
            read=whole_number,
            panel=SORTED,
        ),
    ] = None

    def wanted(self, strategy: str, rows: Any, budget: dict[str, Any]) -> bool:
        """Return whether sorted points are published; InputError if other options do not go with them."""
        if not self.in_order:
            for name in ("group", "most"):
                if getattr(self, name) is not None:
                    raise InputError(f"--{name} is given without --sorted: it goes with it")
            return False
        if strategy != "auto" or rows.outside == "drop":
            name, value = ("strategy", strategy) if strategy != "auto" else ("outside", "drop")
            raise InputError(f"--{name} is {value!r} with --sorted: it must be left out")
        if rows.drop_bad_rows or "probability" in budget:
            name = "--drop-bad-rows" if rows.drop_bad_rows else "--probability"
            raise InputError(
                f"{name} is given with --sorted: it must be left out (the number of points is public)"
            )
        return True


#: Endings of other forms, which programs would open in vain.
_NO_RELEASES = tuple(
    f".{kind}"
    for kind in ("csv", "tsv", "txt", "json", "geojson", "gpkg", "shp", "xlsx", "tif", "png", "svg", "pdf", "html")
)


def publish(
    context: Context,
    *,
    source: Annotated[
        Path,
        argument(
            "INPUT",
            "CSV, JSON lines, Parquet, Excel, GeoPackage, ..., also .gz or .zip; - is stdin.",
        ),
    ],
    coordinates: Coordinates,
    place: PaidPlace,
    out: Annotated[Path, option("FILE", "The release file (Parquet).")],
    spending: _NoisyBudget,
    dry_run: Annotated[
        bool, flag("--dry-run", "Tell what would be published, and its error; read no rows, draw nothing.")
    ] = False,
    strategy: Annotated[
        str,
        option(
            "NAME",
            "auto, flow[:block], spectral, optimal, identity, wavelet, hierarchical[:b], cumulative[:prefix], "
            "shifted:w,shift[,m], dyadic[:w], tents[:w[,degree]]; in cells.",
            panel=PLAN,
        ),
    ] = "auto",
    asked: PlanOptions,
    rows: RowOptions,
    order: SortedOptions,
    accounts: AccountOptions,
    state: StateFile = None,
    weak_protection_accepted: WeakProtection = False,
    overwrite: Overwrite = False,
    config: Config = None,
    write_config: Annotated[
        Path | None,
        option(
            "FILE.toml", "With --dry-run: write the options to a file for --config.", panel=KEPT
        ),
    ] = None,
) -> Any:
    """Publish a file of points as one release file that may be handed out.

    All choices are public, and checked before the data is read. Cells and δ are in ground metres ("250m"), or plain
    numbers without a CRS. Bounds are extended to whole cells. What stderr says of rows is not for publication.

    \b
    Examples:
      deltahist publish visits.csv --x lon --y lat --crs EPSG:4326 --project auto \\
          --bounds -74.3,40.45,-73.6,40.95 --cell 250m --delta 500m --epsilon 1 --out city.parquet
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --epsilon 1 \\
          --user id --max-per-user 5 --dry-run --write-config city.toml --out city.parquet
      deltahist publish visits.csv --config city.toml
    """
    from deltahist.counting import count_file
    from deltahist.publishers import publish as publish_counts
    from deltahist.publishers.publication import check_protection

    budget = spending.keywords()
    files = [source, *asked.files(), *filter(None, [config])]
    console.check_target(out, *files, replace=overwrite or dry_run)
    console.check_target(write_config, *files, out, *filter(None, [state]), replace=overwrite)
    if write_config is not None:
        if not dry_run:
            raise InputError("--write-config is given without --dry-run: it writes what would be published")
        refuse_passwords(context)
    if out.suffix.lower() in _NO_RELEASES:
        raise InputError(
            f"--out is {str(out)!r}: a release is a Parquet file, call it {str(out.with_suffix('.parquet'))!r}; "
            "`deltahist export` makes other forms of it, `deltahist plot` pictures"
        )
    accounts.check(budget, out=out, state=state, write_config=write_config)
    check_state(state, out, dry_run)
    counting = rows.counting()
    if order.wanted(strategy, rows, budget):
        if dry_run:
            raise InputError("--dry-run is given with --sorted: it goes with counts")
        accepted = budget | {"weak_protection_accepted": weak_protection_accepted}
        return _publish_sorted(source, coordinates, place, order, rows, accounts, state, out, accepted)
    how = {"strategy": strategy, "noise": spending.noise, "counting": counting, **budget}
    chosen = choose_map(place, coordinates, asked, **how)
    mechanism = chosen.mechanism(**how)
    check_protection(mechanism, weak_protection_accepted)
    columns = coordinates.columns(mechanism.domain)
    limit = console.limit_in_words(mechanism, place.distances is not None)
    if dry_run:
        print(_render_plan(chosen, mechanism, asked, limit), mechanism.statement(), sep="\n\n")
        if write_config is not None:
            write_options(context, write_config)
            console.note(f"wrote {write_config}")
        return None
    with place.suggesting_options(coordinates):
        counted = count_file(source, mechanism.domain, **columns, **rows.reading())
    _note_rows(counted, rows.outside)
    with accounts.open(budget) as account:
        release = publish_counts(
            counted.counts,
            mechanism,
            weak_protection_accepted=weak_protection_accepted,
            account=account,
            state=state,
        )
        release.save(out)
    print(_summary(release, out, limit) + ("" if state is None else f"\n{describe_state(state)}"))
    return release, counted


def _publish_sorted(
    source: Path,
    coordinates: Coordinates,
    place: PaidPlace,
    order: SortedOptions,
    rows: RowOptions,
    accounts: AccountOptions,
    state: Path | None,
    out: Path,
    budget: dict[str, Any],
) -> SortedRelease:
    """Publish sorted points as a release file."""
    from deltahist.kinds.sorted import check_membership, places_for
    from deltahist.publishers.points import publish_sorted

    near = place.near(coordinates)
    columns = coordinates.columns(near.domain)
    check_membership(near)
    places_for(1, near, order.most)  # whether a bound is due is known before the points are
    with place.suggesting_options(coordinates):
        located = rows.points(source, near, **columns)
    with accounts.open(budget) as account:
        release = publish_sorted(
            located.points, near, group=order.group or "auto", most=order.most, account=account, state=state, **budget
        )
        release.save(out)
    domain = near.domain
    what = "points" if near.fixed_membership else "places for points"
    text = console.facts(
        published=str(out),
        line=f"{domain.low[0]:.10g} to {domain.high[0]:.10g}" + (f" in {domain.crs}" if domain.crs else ""),
        sorted=f"{release.number:,} {what}, {release.group:,} per sum",
        guarantee=release.mechanism.promise,
        ask_it=f"deltahist query {out} --quantiles 0.25,0.5,0.75",
    )
    print(text + ("" if state is None else f"\n{describe_state(state)}"))
    return release


def _note_rows(counted: Counted, outside: str | None) -> None:
    """Figures about the data that stay on this side."""
    from deltahist.counting.files import choice_notes

    console.note(f"{counted.rows:,} rows read, {counted.kept:,} points counted")
    for text in choice_notes(counted):
        console.note(text)
    if counted.bad_rows:
        console.note(f"{counted.bad_rows:,} rows dropped that cannot be used")
    if counted.users is not None:
        console.note(f"{counted.users:,} users")
    if counted.outside:
        done = "dropped" if outside == "drop" else "counted in the nearest cell"
        console.note(f"{counted.outside:,} points outside the bounds {done}")
    if 2 * counted.outside > counted.rows - counted.bad_rows - counted.unmatched:
        console.note(
            "warning: more than half of the points lie outside the bounds "
            "(is the order W,S,E,N, are x and y swapped, are --crs and --project right?)"
        )


def _render_plan(chosen: ChosenMap, mechanism: Mechanism, asked: PlanOptions, limit: str) -> str:
    """Tell what a map would be like, from public figures alone."""
    expected = chosen.expected(mechanism, asked.number)
    about = f"for about {asked.number:,.0f} points" + ("" if asked.points else " (--points says how many)")
    queries = ANYWHERE if chosen.work is None else chosen.name
    text = console.facts(
        would_publish=_render_shape(mechanism),
        strategy=_render_strategy(mechanism),
        guarantee=mechanism.promise,
        limit=limit,
        error=f"{expected.rmse:,.4g} points (root mean square) over {queries}, {about}",
        of_it=f"{expected.noise_error:,.4g} by noise, {expected.placement_error:,.4g} by places within cells",
    )
    return text + (f"\n\nCells that were compared:\n{table_of_cells(chosen.cells)}" if chosen.cells else "")


def _render_shape(mechanism: Mechanism) -> str:
    domain = mechanism.domain
    return f"{' × '.join(map(str, domain.shape))} cells of {domain.size_of_cells}"


def _render_strategy(mechanism: Mechanism) -> str:
    """Render the strategy with its parameters."""
    parameters = {
        k: v for k, v in mechanism.strategy.describe().items() if k not in ("strategy", *options.LONG)
    }
    said = {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in parameters.items()}
    detail = ", ".join(f"{name} {value}" for name, value in said.items() if value not in (None, ""))
    return mechanism.strategy.name + (f" ({detail})" if detail else "")


def _summary(release: Release, out: Path, limit: str) -> str:
    return console.facts(
        published=str(out),
        **console.about_map(release.domain),
        strategy=_render_strategy(release.mechanism),
        guarantee=release.mechanism.promise,
        limit=limit,
        inspect_it=f"deltahist inspect {out}",
    )
