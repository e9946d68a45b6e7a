"""`deltahist advise`: what each choice of δ, ε, points per user and cells gives, in words and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deltahist.cli import console
from deltahist.cli.maps import LIMITS, MAP_CRS, USUAL_POINTS, Coordinates, PlanOptions, move_limits
from deltahist.cli.options import amount, corners, length, listed, option, whole_number
from deltahist.cli.outlook import Cadence
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.preprocessing import Clock


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
    steps: Cadence,
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
    over --regions, --squares or --boxes; squares of a twentieth of the map's side if nothing is given. With --every
    and --for, windows and limits of a stream are ranked, too; --points is about a step.

    \b
    Examples:
      deltahist advise --bounds 563000,4480000,613000,4532000 --project EPSG:32618 --points 140000 --protect home
      deltahist advise --bounds 563000,4480000,613000,4532000 --project EPSG:32618 --points 140000 \\
          --regions districts.gpkg --deltas 250m,500m --epsilons 0.5,1
      deltahist advise --bounds 563000,4480000,613000,4532000 --project EPSG:32618 --max-per-user 1,5,20 \\
          --points-per-user activity.csv --protect visit
      deltahist advise --bounds 563000,4480000,613000,4532000 --project EPSG:32618 --every 1w --for 52w \\
          --points 20000 --regions districts.gpkg --deltas 1km --epsilons 1
    """
    from deltahist.planning import advice, forecast
    from deltahist.releases import Release
    from deltahist.space.domain import Domain

    console.check_target(out, *asked.files(), users)
    asked.refuse_ranges()
    streaming = steps.every is not None or steps.duration is not None
    clock, number = steps.read() if streaming else (None, 1)
    if streaming and users is None and asked.points is None:
        raise InputError(
            "--points is missing with --every: without about how many points a step has, a public figure, nobody can "
            "judge what drowns in noise"
        )
    if streaming and users is not None:
        raise InputError(
            f"--points-per-user is {str(users)!r} with --every: it is about all points, not a step's; give --points"
        )
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
    how = {
        "crs": system,
        "deltas": deltas or advice.USES[protect],
        "epsilons": epsilons,
        "per_user": per_user,
        "limits": move_limits(limit),
    }
    if clock is None:
        found = advice.advise(box, points, queries, **how)
    else:
        found = forecast.advise_stream(box, points, queries, clock=clock, steps=number, **how)
    if layout == "csv":
        console.put(found.to_csv(index=False), out)
    elif layout == "json":
        console.put(found.to_json(orient="records", indent=2), out)
    else:
        unit = "m" if system else "units"
        if clock is None:
            console.put(_render(found, unit, asked, users is None), out)
        else:
            console.put(_render_stream(found, unit, asked, clock, number), out)


def _render(found: pd.DataFrame, unit: str, asked: PlanOptions, guessed: bool) -> str:
    """Return the advice in words, followed by a table."""
    records: list[dict[Any, Any]] = found.to_dict("records")
    people = bool(found["points_per_user"].any())
    rows = []
    for row in records:
        kept = (str(row["points_per_user"]), f"{row['points']:,.0f}") if people else ()
        rows.append(
            (
                f"{row['delta']:,.6g} {unit}",
                f"{row['epsilon']:g}",
                *kept,
                f"{row['cell']:,.4g} {unit}",
                _interval(row["count"], row["error"]),
                f"{row['observer']:.1%}" if row["observer"] > 0.99 else f"{row['observer']:.0%}",
                f"ε = {row['any_move']:.3g}",
            )
        )
    heads = ("δ", "ε", *(("K", "kept") if people else ()), "cell", "error of a count", "50% sure becomes")
    best = min(records, key=lambda row: float(row["of_count"]))
    who = "a user's K points" if people else "somebody's point"
    lines = [
        f"A typical area of {_area(best, unit)} holds {best['count']:,.0f} points if they are evenly spread, "
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


def _area(row: dict[Any, Any], unit: str) -> str:
    return f"{row['area'] / 1e6:,.3g} km²" if unit == "m" else f"{row['area']:,.3g} square units"


def _interval(count: float, error: float) -> str:
    """Return a count with its interval of 95%, and half of this relative to the count."""
    half = 1.96 * error
    return f"{count:,.{0 if count >= 10 else 1}f} ± {float(f'{half:.2g}'):,.0f} ({half / count:,.0%})"


def _render_stream(found: pd.DataFrame, unit: str, asked: PlanOptions, clock: Clock, steps: int) -> str:
    """Return windows and limits of a stream in words, the best one first, followed by a table."""
    records: list[dict[Any, Any]] = found.to_dict("records")
    people = bool(found["points_per_user"].any())
    names = {"step": "a step", "month": "a month", "all": f"all {steps:,} steps"}
    sums = {name: words for name, words in names.items() if f"{name}_count" in found}
    rows = [
        (
            f"{row['delta']:,.6g} {unit}",
            f"{row['epsilon']:g}",
            *((str(row["points_per_user"]),) if people else ()),
            f"{row['window']:,}",
            row["window_limit"],
            f"{row['cell']:,.4g} {unit}",
            f"ε = {row['step_epsilon']:.3g}",
            f"ε = {row['all_epsilon']:.4g}",
            *(_interval(row[f"{name}_count"], row[f"{name}_error"]) for name in sums),
            f"yes; {_longer_steps(row, clock)}" if row["drowns"] else "",
        )
        for row in records
    ]
    heads = ["δ", "ε", *["K"] * people, "window", "limit", "cell", "a step costs", f"all {steps:,} cost"]
    heads += [f"error of {words}" for words in sums.values()]
    best, metres = records[0], "m" * (unit == "m")
    what = "region" if asked.regions is not None else "square" if asked.boxes is None else "box"
    lines = [
        f"A {what} has {_area(best, unit)} on average, {best['step_count']:,.3g} points in a step if they are evenly "
        "spread, and is told as below (95 of 100 such answers are that near to the truth).",
        f"Any `window` steps in a row spend at most ε; a limit of {steps}:4 lets any {steps:,} spend at most 4 ε.",
        "Choices that do not drown come first, then those that promise most for all steps together.",
    ]
    if not best["drowns"]:
        told = ", ".join(
            f"{_interval(best[f'{name}_count'], best[f'{name}_error'])} in {words}" for name, words in sums.items()
        )
        limit = f" --window-limit {best['window_limit']}" if best["window_limit"] else ""
        lines.append(
            f"The strongest promise whose single steps are of use: --delta {best['delta']:g}{metres} "
            f"--epsilon {best['epsilon']:g} --window {best['window']}{limit} --cell {best['cell']:g}{metres}. A step "
            f"costs ε = {best['step_epsilon']:.3g}, all {steps:,} cost {best['all_epsilon']:.4g}; the count of a "
            f"{what} is known as {told}."
        )
    else:
        short = min(records, key=lambda row: (not row["longer"], row["longer"]))
        lines.append(
            f"All choices drown: the error of a {what} in a step is above its points. Of longer steps, with the same "
            f"promise as --epsilon {short['epsilon']:g} --window {short['window']}, {_longer_steps(short, clock)}."
        )
    return "\n".join([*lines, "", console.table((*heads, "drowns"), rows, left=0, words=("drowns",))])


def _longer_steps(row: dict[Any, Any], clock: Clock) -> str:
    """Tell which longer steps would not drown."""
    from deltahist.preprocessing import Clock

    if not row["longer"]:
        return "nothing longer would do"
    period = Clock(0, clock.every * row["longer"]).period if clock.every else f"{row['longer']:,} steps in one"
    return f"{period} would do"
