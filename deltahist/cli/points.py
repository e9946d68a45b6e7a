"""Points on a line: `deltahist publish --sorted` and `deltahist quantile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist.cli import console, options
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.counts import Located
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.releases import SortedRelease


def publish_in_order(
    near: Neighbourhood,
    budget: dict[str, Any],
    out: Path,
    group: str | None,
    most: str | None,
    **reading: Any,
) -> SortedRelease:
    """What `publish --sorted` does once its options are read: sorted points to a release file."""
    from deltahist.mechanisms.sorted import check_membership
    from deltahist.publishers import publish_sorted

    check_membership(near)
    bound = None if most is None else options.whole_number(most, "--most")
    if near.fixed_membership and bound is not None:
        raise InputError(
            f"--most is {most!r} with --sources none: the number of points is public then, so it must be left out"
        )
    if not near.fixed_membership and bound is None:
        raise InputError(
            f"--most is missing with --sources {near.sources}: it must be a public bound on the number of points"
        )
    together: int | str = "auto" if group is None else options.whole_number(group, "--group")
    located = _points(near, **reading)
    release = publish_sorted(located.points, near, group=together, most=bound, **budget)
    release.save(out)
    print(_summary(release, out))
    return release


def _points(near: Neighbourhood, source: Path, **how: Any) -> Located:
    from deltahist.counts import points_file

    located = points_file(source, near.domain, **how)
    console.note(f"{located.rows:,} rows read, {located.kept:,} points")
    if located.outside:
        console.note(f"{located.outside:,} points outside the bounds moved to the nearest end")
    return located


def _summary(release: SortedRelease, out: Path) -> str:
    near, domain = release.neighbourhood, release.domain
    cost = (
        f"ε = {float(release.epsilon):g}"
        if release.epsilon is not None
        else f"ρ = {float(release.rho or 0):.4g}"
    )
    what = "points" if near.fixed_membership else "places for points"
    return "\n".join(
        [
            f"published    {out}",
            f"line         {domain.low[0]:.10g} to {domain.high[0]:.10g}"
            + (f" in {domain.crs}" if domain.crs else ""),
            f"sorted       {release.number:,} {what}, {release.group:,} per sum",
            f"guarantee    {cost} for each {release.counting.who} moving up to {near.delta_ground:g} {domain.unit}",
            f"ask it       deltahist query {out} --quantiles 0.25,0.5,0.75",
        ]
    )


def quantile(
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="CSV or TSV (also compressed), Parquet, or another table.")
    ],
    q: Annotated[str, typer.Option("--q", metavar="Q", help="Which quantile: 0.5 is the median.")],
    x: Annotated[str, typer.Option(metavar="COL", help="Column of the values: a name, or a number from 0.")],
    bounds: Annotated[
        str, typer.Option(metavar="LO,HI", help="Ends of the line; values outside count as the ends.")
    ],
    delta: options.Delta,
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    probability: Annotated[
        str | None,
        typer.Option(
            metavar="P", help="With --epsilon: failure probability that is allowed; more noises then."
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, inverse, exponential, global, smooth-student, smooth-laplace or smooth-lognormal.",
        ),
    ] = "auto",
    user: options.User = None,
    max_per_user: options.MaxPerUser = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="List all methods by expected error too (from public figures).")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON.")] = None,
) -> Any:
    """Publish the median or another quantile of one column.

    The number of values is public, and printed. The method is chosen by the expected error for evenly spread
    values; the scale of the noise is not published, since with smooth sensitivity it tells about the data.

    \b
    Examples:
      deltahist quantile ages.csv --x age --q 0.5 --bounds 0,120 --delta 5 --epsilon 1
      deltahist quantile trips.parquet --x metres --q 0.9 --bounds 0,50000 --delta 500 --rho 0.1 --compare
      deltahist quantile log.tsv.gz --x 2 --q 0.5 --bounds -90,90 --delta 0.01 --epsilon 0.5 --out median.json
    """
    from deltahist.domain import Domain
    from deltahist.mechanisms.quantile import METHODS, check_quantile
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.publishers import publish_quantile

    points = options.user_bound(user, max_per_user)
    budget = options.budget(epsilon, rho, None, probability)
    if method not in ("auto", *METHODS):
        raise InputError(f"--method is {method!r}: it must be auto, {', '.join(METHODS)}")
    try:
        share = float(q)
    except ValueError:
        raise InputError(f"--q is {q!r}: it must be a number between 0 and 1, such as 0.5") from None
    ends = options.corners(bounds, "--bounds")
    if len(ends) != 2:
        raise InputError(f"--bounds is {bounds!r}: a quantile takes two numbers, LO,HI")
    near = Neighbourhood(Domain(ends, (_CELLS,)), options.length(delta, "--delta"))
    check_quantile(share, near)
    console.check_target(out, source)
    located = _points(near, source, x=x, user=user, max_per_user=None if user is None else points)
    found = publish_quantile(located.points, share, near, method=method, **budget)
    cost = (
        f"ε = {float(found.epsilon):g}" if found.epsilon is not None else f"ρ = {float(found.rho or 0):.4g}"
    )
    if found.describe()["probability"] is not None:
        cost += f" but for {found.probability:g}"
    whose = f" for each {found.counting.who}" if found.counting.user else ""
    what = f"quantile {share:g} of {found.number:,}, {found.method}, {cost}, δ = {near.delta_ground:g}{whose}"
    print(f"{found.value:.12g}  ({what})")
    if compare:
        rows = [(m, f"{e:.4g}") for m, e in found.methods().itertuples(index=False)]
        print(console.table(["method", "expected error"], rows))
    if out is not None:
        console.put(json.dumps(found.describe(), indent=2, ensure_ascii=False), out)
    return found


#: Cells of the line: the lattice has a million steps per cell.
_CELLS = 1000
