"""`deltahist publish`: from private points to a release file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console, options
from deltahist.cli.accounts import Keeping, StateFile, check_state, kept_secret
from deltahist.cli.choosing import ANYWHERE, Asked, Settled, settle, table_of_cells
from deltahist.cli.groups import (
    Overwrite,
    RowOptions,
    SpendingWithFailure,
    WeakProtection,
    argument,
    flag,
    option,
    spread,
)
from deltahist.cli.mending import mending
from deltahist.cli.places import Coordinates, PaidPlace, beyond
from deltahist.cli.quantile import InOrder
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.counts import Counted
    from deltahist.mechanisms import Mechanism
    from deltahist.releases import Release


@dataclass(frozen=True, kw_only=True)
class _Spending(SpendingWithFailure):
    """What is spent, and by which noise."""

    noise: Annotated[
        Literal["laplace", "gaussian"] | None,
        option("LAW", "laplace (with --epsilon) or gaussian (with --rho or --probability)."),
    ] = None

    def keywords(self) -> dict[str, Any]:
        budget = super().keywords()
        if self.noise == "laplace" and self.rho is not None:
            raise InputError("--noise is 'laplace' with --rho: Laplace noise takes --epsilon (pure)")
        if self.noise == "gaussian" and self.rho is None and self.probability is None:
            raise InputError(
                "--noise is 'gaussian' with --epsilon alone: Gaussian noise is never pure; give --rho (zCDP), or "
                "--probability, such as 1e-6"
            )
        if self.noise == "laplace":  # it never fails
            budget.pop("probability", None)
        return budget

#: Endings of other forms, which programs would open in vain.
_NO_RELEASES = tuple(
    f".{kind}"
    for kind in ("csv", "tsv", "txt", "json", "geojson", "gpkg", "shp", "xlsx", "tif", "png", "svg", "pdf", "html")
)


@spread
def publish(
    *,
    source: Annotated[
        Path,
        argument(
            "INPUT",
            "CSV, JSON lines (also .gz), Parquet, Excel, GeoPackage, GeoJSON, FlatGeobuf or shapefile, each also in a "
            ".zip; - is standard input.",
        ),
    ],
    coordinates: Coordinates,
    place: PaidPlace,
    out: Annotated[Path, option("FILE", "The release file (Parquet).")],
    spending: _Spending,
    strategy: Annotated[
        str,
        option(
            "NAME",
            "auto, flow[:block], spectral, optimal, identity, wavelet, hierarchical[:b], cumulative[:prefix], "
            "shifted:width,shift[,m], dyadic[:spacing] or tents[:spacing[,degree]]; lengths in cells.",
        ),
    ] = "auto",
    asked: Asked,
    rows: RowOptions,
    order: InOrder,
    keeping: Keeping,
    state: StateFile = None,
    dry_run: Annotated[
        bool,
        flag(
            "--dry-run",
            "Say what would be published and how large its error would be; read no rows, draw nothing.",
        ),
    ] = False,
    weak_protection_accepted: WeakProtection = False,
    overwrite: Overwrite = False,
) -> Any:
    """Publish a file of points as one release file that may be handed out.

    All public choices are checked, and the strategy and the cells are chosen for what will be asked (--regions,
    --squares, --boxes), before the data is read. Bounds and sources are in the projected CRS, bounds with --project
    auto in degrees; cells and δ in ground metres ("250m"), with --grid and --align only δ. Without any CRS all are
    plain numbers.
    Bounds are extended outwards to whole cells. What is said about bad rows and points outside goes to
    stderr: it is for you, not for publication.

    \b
    Examples:
      deltahist publish visits.csv --x lon --y lat --crs EPSG:4326 --project EPSG:32618 \\
          --bounds 560000,4480000,610000,4530000 --cell 250m --delta 500m --epsilon 1 --out city.parquet
      deltahist publish visits.csv --x lon --y lat --crs EPSG:4326 --project auto \\
          --bounds -74.3,40.45,-73.6,40.95 --cell 250m --delta 500m --epsilon 1 --out city.parquet
      deltahist publish visits.csv --x lon --y lat --crs EPSG:4326 --project EPSG:32618 \\
          --bounds 560000,4480000,610000,4530000 --delta 500m --epsilon 1 --regions districts.gpkg --points 140000 \\
          --dry-run --out city.parquet
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --epsilon 1 \\
          --limit 2000:2 --limit any:4 --out city.parquet
      deltahist publish visits.csv --x lon --y lat --user id --max-per-user 5 --crs EPSG:4326 \\
          --project EPSG:32618 --bounds 560000,4480000,610000,4530000 --delta 500m --epsilon 1 --out city.parquet
      deltahist publish log.tsv.gz --x 3 --y 2 ...          # no header: columns by number, from 0
      deltahist publish rides.zip --x x --y y --decimal , --where "kind in ('bus', 'tram') and speed > 3" ...
      deltahist publish ages.csv --x age --bounds 0,100 --delta 5 --cells-per-delta 5 --sources left \\
          --rho 0.1 --out ages.parquet
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --epsilon 0.5 \\
          --state city.state --out city.parquet          # can be refined: deltahist refine --help
      deltahist publish ages.csv --x age --bounds 0,100 --delta 1 --sorted --epsilon 1 --out ages.parquet
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --cells-per-delta 4 \\
          --epsilon 1 --probability 1e-6 --out city.parquet
    """
    from deltahist.counts import count_file
    from deltahist.publishers import publish as publish_counts
    from deltahist.publishers.histogram import check_protection

    budget = spending.keywords()
    console.check_target(out, source, *asked.files(), replace=overwrite or dry_run)
    if out.suffix.lower() in _NO_RELEASES:
        raise InputError(
            f"--out is {str(out)!r}: a release is a Parquet file, call it {str(out.with_suffix('.parquet'))!r}; "
            "`deltahist export` makes other forms of it, `deltahist plot` pictures"
        )
    keeping.check(budget, out=out, state=state)
    check_state(state, out, dry_run)
    counting = rows.counting(place.sources)
    if order.wanted(strategy, rows, budget):
        if dry_run:
            raise InputError("--dry-run is given with --sorted: it goes with counts")
        near = place.near(coordinates)
        columns = coordinates.columns(near.domain)
        with mending(coordinates, place):
            accepted = budget | {"weak_protection_accepted": weak_protection_accepted, "state": state}
            return order.publish(near, accepted, out, keeping, source=source, **columns, **rows.reading())
    how = {"strategy": strategy, "noise": spending.noise, "counting": counting, **budget}
    settled = settle(place, coordinates, asked, **how)
    mechanism = settled.mechanism(**how)
    check_protection(mechanism, weak_protection_accepted)
    columns = coordinates.columns(mechanism.domain)
    limit = beyond(mechanism, place.distances is not None)
    if dry_run:
        print(_expectation(settled, mechanism, asked, limit), mechanism.statement(), sep="\n\n")
        return None
    with mending(coordinates, place):
        counted = count_file(source, mechanism.domain, **columns, **rows.reading())
    _tell_publisher(counted, rows.outside)
    with keeping.paying(budget) as account:
        release = publish_counts(
            counted.counts,
            mechanism,
            weak_protection_accepted=weak_protection_accepted,
            account=account,
            state=state,
        )
        release.save(out)
    print(_summary(release, out, limit) + ("" if state is None else f"\n{kept_secret(state)}"))
    return release, counted


def _tell_publisher(counted: Counted, outside: str | None) -> None:
    """Figures about the data that stay on this side."""
    from deltahist.counts.files import choice_notes

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


def _expectation(settled: Settled, mechanism: Mechanism, asked: Asked, limit: str) -> str:
    """What a map would be like, from public figures alone."""
    expected = settled.expected(mechanism, asked.number)
    about = f"for about {asked.number:,.0f} points" + ("" if asked.points else " (--points says how many)")
    queries = ANYWHERE if settled.work is None else settled.name
    text = console.facts(
        would_publish=_shape(mechanism),
        strategy=_named(mechanism),
        guarantee=mechanism.promise,
        limit=limit,
        error=f"{expected.rmse:,.4g} points (root mean square) over {queries}, {about}",
        of_it=f"{expected.noise_error:,.4g} by noise, {expected.placement_error:,.4g} by places within cells",
    )
    return text + (f"\n\nCells that were compared:\n{table_of_cells(settled.cells)}" if settled.cells else "")


def _shape(mechanism: Mechanism) -> str:
    domain = mechanism.domain
    return f"{' × '.join(map(str, domain.shape))} cells of {domain.size_of_cells}"


def _named(mechanism: Mechanism) -> str:
    """The strategy with its parameters."""
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
        strategy=_named(release.mechanism),
        guarantee=release.mechanism.promise,
        limit=limit,
        inspect_it=f"deltahist inspect {out}",
    )
