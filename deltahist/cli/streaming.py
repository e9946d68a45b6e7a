"""`deltahist stream`: one release per step of time, under a budget for every window of steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist._progress import progress
from deltahist.cli import console, options
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.publishers.stream import Stream

#: Steps from which on a bar is shown on a terminal.
_LONG = 20
_MOST_STEPS = 10_000_000


def stream(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", help="A table with a time column, or a folder with one file per step."
        ),
    ],
    start: Annotated[
        str, typer.Option(metavar="T", help="First step: a date or date-time (UTC), or a whole number.")
    ],
    until: Annotated[str, typer.Option(metavar="T", help="Last step to publish now; public, like --start.")],
    length: options.Length,
    bounds: options.Bounds,
    delta: options.Delta,
    state: Annotated[
        Path, typer.Option(metavar="FILE", help="The ledger; made at first, needed for every later run.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the releases, one file per step.")],
    every: Annotated[
        str | None,
        typer.Option(metavar="PERIOD", help="Length of a step: 1d, 6h, 15min, 1w. None for numbers."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Column of times (ISO 8601) or of step numbers; of a table."),
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Columns step and epsilon (or rho): what each step gets, 0 for none. [default: equal shares]",
        ),
    ] = None,
    gaps: Annotated[
        str,
        typer.Option(
            metavar="HOW", help="Folder: error, or empty (a missing file is a step without points)."
        ),
    ] = "error",
    x: options.X = None,
    y: options.Y = None,
    crs: options.Crs = None,
    project: options.Project = None,
    cell: options.Cell = None,
    cells_per_delta: options.CellsPerDelta = None,
    sources: options.Sources = "boundary",
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    strategy: Annotated[str, typer.Option(metavar="NAME", help="As for `deltahist publish`.")] = "auto",
    user: options.User = None,
    max_per_user: Annotated[
        str | None, typer.Option(metavar="K", help="Points of one user that are kept in each step.")
    ] = None,
    outside: options.Outside = "clamp",
) -> Any:
    """Publish one map per step of time, for ever, with a budget for every window of steps.

    Every --window consecutive steps together spend at most --epsilon (or --rho): that is what protects an entity
    whose data differ within so many steps, each within δ in space. Every step from --start to --until is published,
    those without points too. The ledger is charged before noise is drawn. Run it again with a later --until to go
    on; a step that was charged but not finished (the machine stopped) is lost, and said so.

    \b
    Examples:
      deltahist stream visits.csv --time when --every 1d --start 2010-01-01 --until 2010-12-31 --window 30 \\
          --epsilon 1 --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --bounds 560000,4480000,610000,4530000 \\
          --cell 1km --delta 2km --state city.ledger --out city
      deltahist stream daily/ --every 1d --start 2010-01-01 --until 2010-03-31 --window 7 --rho 0.1 --x x --y y \\
          --bounds 0,0,50000,50000 --delta 500 --state city.ledger --out city
    """
    from deltahist.budget import Budget
    from deltahist.counts.steps import Clock
    from deltahist.domain.counting import Counting
    from deltahist.publishers.stream import Stream, read_amounts

    points = options.user_bound(user, max_per_user)
    budget = options.budget(epsilon, rho)
    clock = Clock.of(start, every)
    steps = clock.step(until, "--until") + 1
    window_length = options.whole_number(length, "--window")
    if not 1 <= steps <= _MOST_STEPS:
        raise InputError(
            f"--until is {until!r}: it must be from 1 to {_MOST_STEPS:,} steps on from --start, {start!r}"
        )
    near = options.space(bounds, cell, cells_per_delta, delta, sources, options.map_crs(crs, project, bounds))
    if outside not in ("clamp", "drop") or (outside == "drop" and sources != "boundary"):
        raise InputError(
            f"--outside is {outside!r} with --sources {sources}: it must be clamp, or drop with --sources boundary"
        )
    labels = [clock.label(step) for step in range(steps)]
    amounts = None if budgets is None else read_amounts(budgets, labels, next(iter(budget)))
    counting = Counting(points, user is not None, ("points outside",) if outside == "drop" else ())
    columns = {"user": user, "time": time}
    plan = Stream(near, Budget(**budget), window_length, clock, state, strategy, counting, columns)
    reading = {"x": x, "y": y, "crs": crs, "user": user, "max_per_user": user and points, "outside": outside}
    with progress("publishing steps", steps, None if steps >= _LONG else False) as advance:
        tally = plan.publish(
            source, out, steps, amounts=amounts, gaps=gaps, tell=console.note, advance=lambda: advance(1), **reading
        )
    print(_summary(plan, out, tally))
    return tally


def _summary(plan: Stream, out: Path, tally: dict[str, int]) -> str:
    letter = "ε" if plan.budget.unit == "epsilon" else "ρ"
    lost = f", {tally['lost']:,} lost (charged, but never finished)" if tally["lost"] else ""
    near = plan.near
    return "\n".join(
        [
            f"published    {tally['published']:,} steps to {out}{lost}",
            f"strategy     {plan.mechanism.strategy.name}",
            f"guarantee    {letter} = {float(plan.budget.amount):g} for whoever's data differ within {plan.length} "
            f"steps, each by up to {near.delta_ground:g} {near.domain.unit}",
            f"go on        with the same options, --state {plan.ledger} and a later --until",
        ]
    )
