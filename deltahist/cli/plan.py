"""`deltahist plan`: which δ, cells and strategy are best, from public choices alone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from deltahist.cli import shared
from deltahist.cli.console import check_target, facts, note, put, put_json, show_progress, table
from deltahist.cli.shared import parse_number
from deltahist.cli.stream import Every, WindowLimit, allocate_steps, describe_stream
from deltahist.errors import NANO, InputError, check_whole

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.preprocessing import Clock

#: Half of a 95% interval, in parts of a typical count, up to which a choice is recommended.
_USEFUL = 0.2


def plan(
    *,
    bounds: shared.Bounds,
    project: Annotated[
        str | None, Option("--project", "--crs", metavar="CRS", help="Of the map; auto or none.")
    ] = None,
    deltas: Annotated[
        Any, Option("--delta", metavar="LENGTHS", parser=shared.each(shared.length), help="250m,500m,1km.")
    ],
    cell: shared.Cell = None,
    epsilons: Annotated[
        Any, Option("--epsilon", metavar="E,...", parser=shared.each(shared.amount), help="0.5,1,2.")
    ] = None,
    rho: shared.Rho = None,
    limit: shared.Limit = None,
    sources: shared.Sources = "none",
    regions: shared.Regions = None,
    squares: Annotated[Any, Option(metavar="SIDE", parser=shared.length, help="Plan for squares: 2km.")] = None,
    boxes: Annotated[Path | None, Option(metavar="FILE.csv", help="Plan for boxes: west,south,east,north.")] = None,
    points: shared.Points = None,
    max_per_user: shared.MaxPerUser = None,
    stream: Annotated[bool, Option("--stream", help="Plan a stream: costs and errors over time.")] = False,
    every: Every = None,
    duration: Annotated[str | None, Option("--for", metavar="PERIOD", help="Length of the stream: 52w.")] = None,
    window: Annotated[int | None, Option(metavar="STEPS", min=1, help="Steps that share one budget.")] = None,
    window_limit: WindowLimit = None,
    weights: Annotated[Path | None, Option(metavar="FILE.csv", help="Spread the budget: step,weight.")] = None,
    as_json: shared.AsJson = False,
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Rank choices of δ, ε, cells and strategies by expected error. No data is read.

    With one δ and one budget, the command ranks strategies, and cells without --cell. What `publish` takes comes first.
    With several δ or ε, it finds the best cells of each choice, and recommends the strongest protection that is still
    useful. Errors are those of unbiased answers, the default everywhere. They come from noise, and from the unknown
    places of points within cells, for about --points kept points.

    \b
    Examples:
      deltahist plan --bounds -74.3,40.45,-73.6,40.95 --project auto --delta 250m,500m,1km --epsilon 0.5,1,2 \\
          --points 140000
      deltahist plan --bounds 0,0,1,1 --cell 0.01 --delta 0.01 --epsilon 1 --squares 0.2 --json
      deltahist plan --stream --every 1w --for 52w --window 4 --bounds 560000,4480000,610000,4530000 \\
          --project EPSG:32618 --cell 1km --delta 2km --epsilon 1 --regions districts.gpkg --points 3000
    """
    from deltahist.accounts.ledger import Rule
    from deltahist.planning import advise, plan as rank
    from deltahist.preprocessing import Clock, Preprocessing, read_period
    from deltahist.space.domain import Domain

    check_target(out, regions, boxes)
    asked = {"regions": regions, "squares": squares, "boxes": boxes}
    place = shared.MapOptions(bounds=bounds, delta=deltas[0], cell=cell, project=project, sources=sources, limit=limit)
    number = float(points or shared.USUAL_POINTS)
    if len(deltas) > 1 or (epsilons is not None and len(epsilons) > 1):
        if cell is not None or rho is not None or sources != "none" or epsilons is None:
            raise InputError("several δ or ε require --epsilon, and exclude --cell, --rho and --sources")
        box, crs = place.extent()
        queries, _ = shared.read_queries(Domain(box, (1,) * (len(box) // 2), crs), **asked)
        per_user = None if max_per_user is None else [max_per_user]
        limits = shared.read_limits(limit)
        choices: dict[str, Any] = {"deltas": deltas, "epsilons": epsilons, "per_user": per_user, "limits": limits}
        with show_progress("Comparing δ, ε and cells …"):
            found = advise(box, number, queries, crs=crs, **choices)
        put_json(found.to_dict("records"), out) if as_json else put(_recommend(found, crs), out)
        return
    how: dict[str, Any] = {"counting": Preprocessing(max_per_user or 1)}
    how |= shared.read_budget(epsilons and epsilons[0], rho)
    if stream:
        if window is None or (duration is None and weights is None):
            raise InputError("--stream requires --window, and --for or --weights")
        longer = shared.read_limits(window_limit, "--window-limit") or []
        rule = Rule.from_budget(epsilons and epsilons[0], rho, window, longer)
        amounts = None if weights is None else allocate_steps(weights, rule, out)
        clock = Clock(0, 0 if every is None else read_period(every, "--every"))
        steps = _count_steps(str(duration), clock) if amounts is None else len(amounts)
        share = rule.equal_share if amounts is None else Fraction(rule.limit, NANO) / window
        place = replace(place, cell=deltas[0] if cell is None else cell, sources="boundary")
        chosen = shared.choose(place, points, asked, counting=how["counting"], **{rule.unit: share})
        expected = None if points is None else float(points)
        page = describe_stream(chosen.mechanism, rule, clock, steps, chosen.work, expected, amounts)
        about = facts(**shared.about_map(chosen.mechanism.domain), strategy=chosen.mechanism.strategy.name)
        put(f"{about}\n\n{page}", out if weights is None else None)
        if weights is not None and out is not None:
            note(f"wrote {out}, for `stream --budgets`")
        return
    chosen = shared.choose(place, points, asked, **how)
    best = chosen.mechanism
    # Cells that were given keep the neighbourhood as it was given: a ranking caps it anyway.
    near = best.neighbourhood if chosen.cells else place.near()
    with show_progress("Comparing strategies …"):
        ranked = rank(near, chosen.work, **how)
    if as_json:
        records = [
            {"cell": near.domain.size_of_cells, "strategy": each.label, "noise": each.noise}
            | {name: str(value) for name, value in each.budget.items()}
            | {"sensitivity": each.cost, "rmse": each.rmse, "any_move": each.any_move}
            | {"determines_cells": each.resolves}
            for each in ranked
        ]
        put_json(records, out)
        return
    if near.domain.crs is not None:
        note(facts(**shared.about_map(near.domain)))
    rows = [
        (
            *(each.label, each.noise, f"{each.cost:.4g}", f"{each.rmse:,.4g}"),
            *(f"{best.letter} = {each.any_move:.4g}", "" if each.resolves else "plus what is not measured"),
        )
        for each in ranked
    ]
    heads = ("strategy", "noise", "sensitivity", "error", "any move", "")
    over = chosen.name if chosen.work is not None else "all ranges of whole cells"
    parts = [
        f"Recommended: cells of {near.domain.size_of_cells} and the strategy {best.strategy.name}, as "
        f"`publish` chooses them. Any move costs at most {best.letter} = {best.any_move:.4g}.",
        chosen.describe_error(points),
        f"Strategies by the error of noise, in points (root mean square) over {over}:\n{table(heads, rows, left=2)}",
    ]
    if chosen.cells:
        parts.insert(2, f"Cells by the whole error, for about {number:,.0f} points:\n{chosen.table_of_cells()}")
    put("\n\n".join(parts), out)


def _count_steps(duration: str, clock: Clock) -> int:
    """Return the steps of a period, or of a plain number."""
    from deltahist.preprocessing import read_period

    if duration.isdigit() or not clock.every:
        return check_whole(steps=parse_number(duration) or 0)
    return read_period(duration, "--for") // clock.every


def _recommend(found: pd.DataFrame, crs: str | None) -> str:
    """Return the choices as a table, after a recommendation in words."""
    from deltahist.statement.facts import format_guess

    unit, suffix = ("m", "m") if crs else ("units", "")
    records: list[dict[Any, Any]] = found.to_dict("records")
    useful = [row for row in records if 1.96 * row["of_count"] <= _USEFUL]
    best = min(useful or records, key=lambda row: (row["epsilon"], -row["delta"]) if useful else (row["of_count"], 0))
    area = f"{best['area'] / 1e6:,.3g} km²" if crs else f"{best['area']:,.3g} square units"
    reason = f"It is the strongest protection with intervals within ±{_USEFUL:.0%}."
    if not useful:
        reason = f"No choice has intervals within ±{_USEFUL:.0%}. This one comes nearest."
    lines = [
        f"A typical query has {area} and {best['count']:,.0f} points, if points are evenly spread.",
        f"Recommended: --delta {best['delta']:g}{suffix} --epsilon {best['epsilon']:g} "
        f"--cell {best['cell']:.6g}{suffix}: a 95% interval of {_interval(best['count'], best['error'])}. {reason}",
        "Errors are those of unbiased answers. A guess between two places within δ is right at most as often as shown. "
        "A coin is right in 50 of 100.",
    ]
    rows = [
        (
            *(f"{row['delta']:,.6g} {unit}", f"{row['epsilon']:g}", f"{row['cell']:,.4g} {unit}"),
            _interval(row["count"], row["error"]),
            format_guess(row["observer"]),
            f"ε = {row['any_move']:.3g}",
        )
        for row in records
    ]
    heads = ("δ", "ε", "cell", "95% interval of a count", "a guess is right in", "any move costs")
    return "\n".join([*lines, "", table(heads, rows, left=0)])


def _interval(count: float, error: float) -> str:
    """Return a count with the half of its 95% interval, absolute and relative."""
    half = 1.96 * error
    return f"{count:,.{0 if count >= 10 else 1}f} ± {float(f'{half:.2g}'):,.0f} ({half / count:,.0%})"
