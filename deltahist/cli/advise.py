"""`deltahist advise`: what each choice of δ, ε, points per user and cells gives, in words and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console, options
from deltahist.cli.choosing import USUAL_POINTS, PlanOptions
from deltahist.cli.options import option
from deltahist.cli.places import BOUNDS, Coordinates, Limits, MapCrs
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def advise(
    *,
    bounds: Annotated[
        tuple[float, ...],
        option("W,S,E,N", "Corners on the map, or in degrees with --project auto.", read=BOUNDS),
    ],
    crs: MapCrs = None,
    protect: Annotated[
        Literal["visit", "home", "trip"],
        option(
            "WHAT", "What shall be hidden: visit (100 to 500 m), home (250 m to 1 km) or trip (1 to 5 km)."
        ),
    ] = "home",
    deltas: Annotated[
        Any,
        option("LIST", "Instead of --protect: these δ (250m,1km).", read=options.listed(options.length)),
    ] = None,
    epsilons: Annotated[
        Any, option("LIST", "Budgets of ε to compare.", read=options.listed(options.amount))
    ] = "0.5,1,2",
    limit: Limits = None,
    asked: PlanOptions,
    per_user: Annotated[
        Any,
        option(
            "LIST",
            "Numbers of points kept of each user (1,5,20), who is protected as a whole.",
            "--max-per-user",
            read=options.listed(options.whole_number),
        ),
    ] = None,
    users: Annotated[
        Path | None,
        option(
            "FILE",
            "How many users have so many points, which tells what is kept: a public CSV file with the columns points "
            "and users, or a release of it (docs/choosing.md).",
            "--points-per-user",
        ),
    ] = None,
    layout: Annotated[
        Literal["table", "csv", "json"], option("FORM", "table, csv or json.", "--format")
    ] = "table",
    out: Annotated[Path | None, option("FILE", "Write to a file.")] = None,
) -> None:
    """Compare choices of δ, ε and K, each with its best cells: how exact answers are, how safe people.

    No data is read but public figures. For every choice the cells are the ones with the least expected error
    over --regions, --squares or --boxes; squares of a twentieth of the map's side if nothing is given.

    \b
    Examples:
      deltahist advise --bounds 563000,4480000,613000,4532000 --project EPSG:32618 --points 140000 --protect home
      deltahist advise --bounds 563000,4480000,613000,4532000 --project EPSG:32618 --points 140000 \\
          --regions districts.gpkg --deltas 250m,500m --epsilons 0.5,1
      deltahist advise --bounds 563000,4480000,613000,4532000 --project EPSG:32618 --max-per-user 1,5,20 \\
          --points-per-user activity.csv --protect visit
    """
    from deltahist.planning import advice
    from deltahist.space.domain import Domain

    console.check_target(out, *asked.files(), *filter(None, [users]))
    if asked.ranges:
        raise InputError(
            "--ranges is about whole cells, which are compared here: plan for --squares, --boxes or --regions (and "
            "with given cells `deltahist plan`)"
        )
    box, system = Coordinates.of_crs(crs).of_box(bounds)
    queries, _ = asked.queries(Domain(box, (1,) * (len(box) // 2), system))
    if users is not None and (per_user is None or asked.points is not None):
        other = "--max-per-user is missing" if per_user is None else "--points is given as well"
        raise InputError(
            f"--points-per-user is {str(users)!r}, and {other}: it says what is kept of users' points"
        )
    points = asked.number if users is None else _read_users(users)
    found = advice.advise(
        box,
        points,
        queries,
        crs=system,
        deltas=deltas or advice.USES[protect],
        epsilons=epsilons,
        per_user=per_user,
        limits=options.limits(limit, "--limit"),
    )
    if layout == "csv":
        console.put(found.to_csv(index=False), out)
    elif layout == "json":
        console.put(found.to_json(orient="records", indent=2), out)
    else:
        unit = "m" if system else "units"
        console.put(_render(found, unit, asked, users is None), out)


def _read_users(file: Path) -> dict[int, int]:
    """Numbers of users by their number of points, from a public table or from a release."""
    from deltahist.planning import advice
    from deltahist.releases import Release

    if file.suffix.lower() == ".parquet":
        return advice.read_released_users(Release.load(file))
    return advice.read_users(file, "--points-per-user")


def _render(found: pd.DataFrame, unit: str, asked: PlanOptions, guessed: bool) -> str:
    """Return the advice in words, followed by a table."""
    rows = [_row(row, unit) for row in found.to_dict("records")]
    people = bool(found["points_per_user"].any())
    heads = ("δ", "ε", "K", "kept", "cell", "error of a count", "50% sure becomes", "any move costs")
    kept = list(range(len(heads))) if people else [0, 1, 4, 5, 6, 7]
    table = console.table([heads[i] for i in kept], [[row[i] for i in kept] for row in rows], left=0)
    best = min(found.to_dict("records"), key=lambda row: float(row["of_count"]))
    who = "a user's K points" if people else "somebody's point"
    lines = [
        f"A typical area of {_area(best['area'], unit)} holds {best['count']:,.0f} points if they are evenly spread, "
        "and is told as below (95 of 100 such answers are that near to the truth).",
        f"Whoever was 50% sure which of two places within δ {who} had becomes at most so sure as the last column but "
        "one says; the last has the ε of a move from anywhere to anywhere.",
    ]
    if guessed and asked.points is None:
        lines.append(f"--points is missing: about {USUAL_POINTS:,} are assumed.")
    if people and guessed:
        lines.append(
            "How many points are left with K of each user is not known: --points is taken for each K alike "
            "(--points-per-user tells)."
        )
    return "\n".join([*lines, "", table])


def _row(row: dict[Any, Any], unit: str) -> list[str]:
    half = 1.96 * row["error"]
    return [
        f"{row['delta']:,.6g} {unit}",
        f"{row['epsilon']:g}",
        str(row["points_per_user"]),
        f"{row['points']:,.0f}",
        f"{row['cell']:,.4g} {unit}",
        f"{row['count']:,.0f} ± {float(f'{half:.2g}'):,.0f} ({half / row['count']:.0%})",
        f"{row['observer']:.1%}" if row["observer"] > 0.99 else f"{row['observer']:.0%}",
        f"ε = {row['any_move']:.3g}",
    ]


def _area(area: float, unit: str) -> str:
    return f"{area / 1e6:,.3g} km²" if unit == "m" else f"{area:,.3g} square units"
