"""`deltahist publish` and `deltahist demo`: from private points to a release file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist.cli import console, options
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.counts import Counted
    from deltahist.releases import Release


def publish(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", help="CSV or TSV (also compressed), Parquet, GeoParquet, GeoPackage or GeoJSON."
        ),
    ],
    bounds: options.Bounds,
    delta: options.Delta,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The release file (Parquet); replaced if it exists.")
    ],
    x: options.X = None,
    y: options.Y = None,
    crs: options.Crs = None,
    project: options.Project = None,
    cell: options.Cell = None,
    cells_per_delta: options.CellsPerDelta = None,
    sources: options.Sources = "none",
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    probability: options.Probability = None,
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="LAW", help="laplace (with --epsilon) or gaussian (with --rho or --probability)."
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, flow[:block], spectral, optimal, identity, wavelet, hierarchical[:b], cumulative[:prefix], "
            "shifted:width,shift[,m] or dyadic[:spacing]; lengths in cells.",
        ),
    ] = "auto",
    user: options.User = None,
    max_per_user: options.MaxPerUser = None,
    outside: options.Outside = "clamp",
    drop_bad_rows: Annotated[
        bool,
        typer.Option(
            "--drop-bad-rows", help="Leave out rows without usable coordinates; the statement says so."
        ),
    ] = False,
    layer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Layer of a GeoPackage with more than one.")
    ] = None,
    in_order: Annotated[
        bool,
        typer.Option(
            "--sorted", help="One dimension: publish the sorted points themselves, not counts of cells."
        ),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(metavar="K", help="With --sorted: points per sum. [default: from public figures]"),
    ] = None,
    most: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="With --sorted and --sources left or right: public bound on the points."
        ),
    ] = None,
) -> Any:
    """Publish a file of points as one release file that may be handed out.

    All public choices are checked, and the strategy is chosen, before the data is read. Bounds and sources
    are in the projected CRS; cells and δ in ground metres ("250m"). Without any CRS all are plain numbers.
    Bounds are extended outwards to whole cells. What is said about bad rows and points outside goes to
    stderr: it is for you, not for publication.

    \b
    Examples:
      deltahist publish visits.csv --x lon --y lat --crs EPSG:4326 --project EPSG:32618 \\
          --bounds 560000,4480000,610000,4530000 --cell 250m --delta 500m --epsilon 1 --out city.parquet
      deltahist publish visits.csv --x lon --y lat --user id --max-per-user 5 --crs EPSG:4326 \\
          --project EPSG:32618 --bounds 560000,4480000,610000,4530000 --delta 500m --epsilon 1 --out city.parquet
      deltahist publish log.tsv.gz --x 3 --y 2 ...          # no header: columns by number, from 0
      deltahist publish ages.csv --x age --bounds 0,100 --delta 5 --cells-per-delta 5 --sources left \\
          --rho 0.1 --out ages.parquet
      deltahist publish ages.csv --x age --bounds 0,100 --delta 1 --sorted --epsilon 1 --out ages.parquet
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --cells-per-delta 4 \\
          --epsilon 1 --probability 1e-6 --out city.parquet
    """

    points = options.user_bound(user, max_per_user)
    budget = options.budget(epsilon, rho, noise, probability)
    console.check_target(out, source)
    near = options.space(bounds, cell, cells_per_delta, delta, sources, options.map_crs(crs, project, bounds))
    if near.domain.ndim == 1 and y is not None:
        raise InputError(f"--y is {y!r}, but --bounds has two numbers: one dimension takes --x only")
    if near.domain.ndim == 2 and (x is None) != (y is None):
        raise InputError(f"--{'x' if x is None else 'y'} is missing: two dimensions take both --x and --y")
    if outside not in ("clamp", "drop"):
        raise InputError(f"--outside is {outside!r}: it must be clamp or drop")
    if outside == "drop" and sources != "boundary":
        raise InputError(
            f"--outside is 'drop' with --sources {sources}: a point could vanish by moving out, so it must be "
            "--sources boundary (or --outside clamp)"
        )
    if in_order:
        for option, value, usual in (("--strategy", strategy, "auto"), ("--outside", outside, "clamp")):
            if value != usual:
                raise InputError(f"{option} is {value!r} with --sorted: it must be left out")
        if drop_bad_rows or "probability" in budget:
            given = "--drop-bad-rows" if drop_bad_rows else "--probability"
            raise InputError(
                f"{given} is given with --sorted: it must be left out (the number of points is public)"
            )
        from deltahist.cli.points import publish_in_order

        reading = {"x": x, "crs": crs, "user": user, "max_per_user": user and points, "layer": layer}
        return publish_in_order(near, budget, out, group, most, source=source, **reading)
    if group is not None or most is not None:
        raise InputError(
            f"--{'most' if group is None else 'group'} is given without --sorted: it goes with it"
        )
    from deltahist.domain.counting import Counting
    from deltahist.planning import mechanism_for
    from deltahist.publishers import publish as publish_counts

    kinds = (("bad rows", drop_bad_rows), ("points outside", outside == "drop"))
    counting = Counting(points, user is not None, tuple(kind for kind, given in kinds if given))
    mechanism = mechanism_for(near, strategy, noise=noise, counting=counting, **budget)
    counted = _count(
        source,
        near.domain,
        x=x,
        y=y,
        crs=crs,
        user=user,
        max_per_user=None if user is None else points,
        outside=outside,
        drop_bad_rows=drop_bad_rows,
        layer=layer,
    )
    _tell_publisher(counted, outside)
    release = publish_counts(counted.counts, mechanism)
    release.save(out)
    print(_summary(release, out))
    return release, counted


def _count(source: Path, domain: Any, **how: Any) -> Counted:
    from deltahist.counts import count_file

    return count_file(source, domain, **how)


def _tell_publisher(counted: Counted, outside: str) -> None:
    """Figures about the data that stay on this side."""
    console.note(f"{counted.rows:,} rows read, {counted.kept:,} points counted")
    if counted.bad_rows:
        console.note(f"{counted.bad_rows:,} rows with unusable coordinates dropped")
    if counted.users is not None:
        console.note(f"{counted.users:,} users")
    if counted.outside:
        done = "counted in the nearest cell" if outside == "clamp" else "dropped"
        console.note(f"{counted.outside:,} points outside the bounds {done}")
    if 2 * counted.outside > counted.rows - counted.bad_rows:
        console.note(
            "warning: more than half of the points lie outside the bounds "
            "(is the order W,S,E,N, are x and y swapped, are --crs and --project right?)"
        )


def _summary(release: Release, out: Path) -> str:
    domain = release.domain
    bounds = ",".join(f"{b:.10g}" for b in domain.bounds)
    size = " × ".join(f"{c / (domain.scale or 1.0):.6g}" for c in domain.cell)
    parameters = {k: v for k, v in release.strategy.describe().items() if k != "strategy" and v is not None}
    detail = ", ".join(f"{k} {_short(v)}" for k, v in parameters.items() if k not in options.LONG)
    return "\n".join(
        [
            f"published    {out}",
            f"cells        {' × '.join(map(str, domain.shape))} of {size} {domain.unit}",
            f"bounds       {bounds}" + (f" in {domain.crs}" if domain.crs else ""),
            f"strategy     {release.strategy.name}" + (f" ({detail})" if detail else ""),
            f"guarantee    {release.mechanism.promise}",
            f"inspect it   deltahist inspect {out}",
        ]
    )


def _short(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the demonstration's files.")] = Path(
        "deltahist-demo"
    ),
) -> None:
    """Publish a made-up city end to end: a table of visits becomes a release, answers and a map.

    \b
    Examples:
      deltahist demo
      deltahist demo --out /tmp/demo
    """
    from deltahist.demo import show

    root = context.find_root().command
    show(out, lambda line: root.main(list(line), prog_name="deltahist", standalone_mode=False))
