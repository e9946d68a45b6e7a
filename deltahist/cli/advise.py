"""`deltahist advise`: what each choice of δ, ε, points per user and cells gives, in words and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deltahist.cli import console
from deltahist.cli.maps import LIMITS, MAP_CRS, USUAL_POINTS, Coordinates, PlanOptions, move_limits
from deltahist.cli.options import amount, corners, length, listed, option, whole_number
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def advise(
    *,
    bounds: tuple[float, ...] = option(
        "W,S,E,N", "Corners on the map, or in degrees with --project auto.", corners, default=...
    ),
    crs: str | None = MAP_CRS,
    protect: Literal["visit", "home", "trip"] = option(
        "WHAT",
        "What shall be hidden: visit (100 to 500 m), home (250 m to 1 km) or trip (1 to 5 km).",
        default="home",
    ),
    deltas: Any = option("LIST", "Instead of --protect: these δ (250m,1km).", listed(length)),
    epsilons: Any = option("LIST", "Budgets of ε to compare.", listed(amount), default="0.5,1,2"),
    limit: list[Any] | None = LIMITS,
    asked: PlanOptions,
    per_user: Any = option(
        "LIST",
        "Numbers of points kept of each user (1,5,20), who is protected as a whole.",
        listed(whole_number),
        names="--max-per-user",
    ),
    users: Path | None = option(
        "FILE",
        "How many users have so many points, which tells what is kept: a public CSV file with the columns points "
        "and users, or a release of it (docs/choosing.md).",
        names="--points-per-user",
    ),
    layout: Literal["table", "csv", "json"] = option(
        "FORM", "table, csv or json.", default="table", names="--format"
    ),
    out: Path | None = option("FILE", "Write to a file."),
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
    from deltahist.releases import Release
    from deltahist.space.domain import Domain

    console.check_target(out, *asked.files(), users)
    asked.refuse_ranges()
    box, system = Coordinates.of_crs(crs).on_map(bounds)
    queries, _ = asked.queries(Domain(box, (1,) * (len(box) // 2), system))
    points: Any = asked.number
    if users is not None:
        if per_user is None or asked.points is not None:
            other = "--max-per-user is missing" if per_user is None else "--points is given as well"
            raise InputError(
                f"--points-per-user is {str(users)!r}, and {other}: it says what is kept of users' points"
            )
        if users.suffix.lower() == ".parquet":
            points = advice.read_released_users(Release.load(users))
        else:
            points = advice.read_users(users, "--points-per-user")
    found = advice.advise(
        box,
        points,
        queries,
        crs=system,
        deltas=deltas or advice.USES[protect],
        epsilons=epsilons,
        per_user=per_user,
        limits=move_limits(limit),
    )
    if layout == "csv":
        console.put(found.to_csv(index=False), out)
    elif layout == "json":
        console.put(found.to_json(orient="records", indent=2), out)
    else:
        console.put(_render(found, "m" if system else "units", asked, users is None), out)


def _render(found: pd.DataFrame, unit: str, asked: PlanOptions, guessed: bool) -> str:
    """Return the advice in words, followed by a table."""
    records: list[dict[Any, Any]] = found.to_dict("records")
    people = bool(found["points_per_user"].any())
    rows = []
    for row in records:
        half = 1.96 * row["error"]
        kept = (str(row["points_per_user"]), f"{row['points']:,.0f}") if people else ()
        rows.append(
            (
                f"{row['delta']:,.6g} {unit}",
                f"{row['epsilon']:g}",
                *kept,
                f"{row['cell']:,.4g} {unit}",
                f"{row['count']:,.0f} ± {float(f'{half:.2g}'):,.0f} ({half / row['count']:.0%})",
                f"{row['observer']:.1%}" if row["observer"] > 0.99 else f"{row['observer']:.0%}",
                f"ε = {row['any_move']:.3g}",
            )
        )
    heads = ("δ", "ε", *(("K", "kept") if people else ()), "cell", "error of a count", "50% sure becomes")
    best = min(records, key=lambda row: float(row["of_count"]))
    area = f"{best['area'] / 1e6:,.3g} km²" if unit == "m" else f"{best['area']:,.3g} square units"
    who = "a user's K points" if people else "somebody's point"
    lines = [
        f"A typical area of {area} holds {best['count']:,.0f} points if they are evenly spread, "
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
    return "\n".join([*lines, "", console.table((*heads, "any move costs"), rows, left=0)])
