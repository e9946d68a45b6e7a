"""`deltahist plan`: which strategy is best, from public choices alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console, options
from deltahist.cli.choosing import PlanOptions, choose_map, table_of_cells
from deltahist.cli.groups import MaxPerUser, SpendingWithFailure
from deltahist.cli.options import flag, option
from deltahist.cli.places import Coordinates, MapCrs, MapOptions
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.planning import Candidate
    from deltahist.space.neighbourhood import Neighbourhood

_NOT_ALL = "plus what is not measured"


def plan(
    *,
    place: MapOptions,
    spending: SpendingWithFailure,
    deltas: Annotated[
        Any,
        option(
            "LIST",
            "Instead of the ranking: the best strategy for each of these δ (250m,1km).",
            read=options.listed(options.length),
        ),
    ] = None,
    frontier: Annotated[
        bool,
        flag("--frontier", "Instead: the best strategy for limits on what any move costs, and the error of each."),
    ] = False,
    picture: Annotated[
        Path | None, option("FILE", "With --frontier: draw it too (.png, .svg or .pdf).")
    ] = None,
    crs: MapCrs = None,
    max_per_user: MaxPerUser = None,
    asked: PlanOptions,
    layout: Annotated[Literal["table", "json"], option("FORM", "table or json.", "--format")] = "table",
    out: Annotated[Path | None, option("FILE", "Write to a file.")] = None,
) -> None:
    """Rank strategies, and cells unless they are given, by expected error on what will be asked. No data is read.

    Cells are compared by the whole error: that of noise, and that of where in the cells points lie, for about the
    number of --points. With cells that are given, the workload is all ranges of whole cells unless another is.

    \b
    Examples:
      deltahist plan --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --cell 250m --delta 500m --epsilon 1
      deltahist plan --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --delta 500m --epsilon 1 \\
          --regions districts.gpkg --points 140000
      deltahist plan --bounds 0,0,1,1 --cell 0.01 --delta 0.01 --epsilon 1 --squares 0.2
      deltahist plan --bounds 0,100 --cell 1 --delta 5 --sources left --rho 0.1 --format json
      deltahist plan --bounds 0,0,64,64 --cell 1 --delta 1 --epsilon 1 --probability 1e-6 --deltas 1,2,4,8
      deltahist plan --bounds 0,0,64,64 --cell 1 --delta 1 --epsilon 1 --frontier --picture frontier.png
    """
    from deltahist.preprocessing import Preprocessing
    from deltahist.space.profile import USUAL_CAP

    if frontier and deltas is not None:
        raise InputError("--frontier is given with --deltas: it must be one of them")
    if picture is not None:
        if not frontier:
            raise InputError(f"--picture is {str(picture)!r} without --frontier: it is what is drawn")
        from deltahist.plots import check_picture

        check_picture(picture)
        console.check_target(picture, *asked.files())
    console.check_target(out, *asked.files())
    how = {"contributions": max_per_user or 1, **spending.keywords()}
    system = Coordinates.of_crs(crs, place.grid)
    if deltas is None:
        title = "expected error per query, in points (root mean square)"
        counting = Preprocessing(how.pop("contributions"))
        chosen = choose_map(place, system, asked, counting=counting, **how)
        how["counting"] = counting
        near, name = chosen.near, chosen.name
        if near.domain.crs is not None:
            console.note(console.facts(**console.about_map(near.domain)))
        if frontier:
            title = "the least expected error per query, in points, by what any move may cost"
            records, table = _frontier(near, chosen.work, how, picture)
        else:
            records, table = _ranking(near, chosen.work, how)
        if chosen.cells:
            records = [{"cell": near.domain.size_of_cells} | record for record in records]
            compared = f"cells by the whole error, for about {asked.number:,.0f} points"
            title = f"{compared}\n\n{table_of_cells(chosen.cells)}\n\nof these, by noise: {title}"
    else:
        title = "best strategies by δ: expected error per query, in points"
        nears = [replace(place, delta=each).near(system) for each in deltas]
        if len({each.domain for each in nears}) > 1:
            raise InputError(
                "--deltas needs --cell: with --cells-per-delta every δ would have cells of its own"
            )
        queries, name = asked.queries(nears[0].domain)
        records, table = _crossovers(nears, None if queries is None else queries(nears[0].domain), how)
    if place.distances is None and not frontier:
        console.note(
            f"limit        any move may cost at most {USUAL_CAP} times what one within δ may (nobody asked for "
            "another; --limit any:none lifts it)"
        )
    if layout == "json":
        console.put(json.dumps(records, indent=2, ensure_ascii=False), out)
    else:
        console.put(f"{title}, over {name}\n\n{table}", out)


def _ranking(near: Neighbourhood, work: Any, how: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Return all candidates, the best one first, as records and as a table."""
    from deltahist.planning import plan as rank

    found = rank(near, work, **how)
    records = [
        {
            "strategy": c.label,
            "noise": c.noise,
            **{name: str(value) for name, value in c.budget.items()},
            "parameters": {k: v for k, v in c.strategy.describe().items() if k not in options.LONG},
            "sensitivity": c.cost,
            "rmse": c.rmse,
            "any_move": c.any_move,
            "determines_cells": c.resolves,
        }
        for c in found
    ]
    rows = [
        (
            str(place),
            c.label,
            c.noise,
            f"{c.cost:.4g}",
            f"{c.rmse:,.4g}",
            _any_move(c),
            _NOT_ALL * (not c.resolves),
        )
        for place, c in enumerate(found, start=1)
    ]
    header = ("rank", "strategy", "noise", "sensitivity", "error", "any move", "")
    return records, console.table(header, rows, left=3)


def _any_move(candidate: Candidate) -> str:
    """Render the cost of a move from anywhere to anywhere."""
    return f"{candidate.mechanism.letter} = {candidate.any_move:.4g}"


def _frontier(
    near: Neighbourhood, work: Any, how: dict[str, Any], picture: Path | None
) -> tuple[list[dict[str, Any]], str]:
    """Return the best candidate for each limit on any move, beside its rival for all moves: records and a table."""
    from deltahist.planning import frontier
    from deltahist.plots import save_frontier

    found = frontier(near, work, **how)
    if picture is not None:
        save_frontier(found, picture)
        console.note(f"wrote {picture}")
    records = [
        {
            "limit": None if point.limit is None else float(point.limit),
            "strategy": point.best.label,
            "noise": point.noise,
            "rmse": point.best.rmse,
            "any_move": point.any_move,
            "rival": None if point.rival is None else point.rival.label,
            "rival_rmse": None if point.rival is None else point.rival.rmse,
        }
        for point in found
    ]
    rows = [
        (
            "none" if point.limit is None else f"any:{float(point.limit):g}",
            point.best.label,
            point.noise,
            f"{point.best.rmse:,.4g}",
            _any_move(point.best),
            "" if point.rival is None else f"{point.rival.rmse:,.4g}",
        )
        for point in found
    ]
    header = ("limit", "strategy", "noise", "error", "any move", "error if short moves cost that too")
    return records, console.table(header, rows, left=3)


def _crossovers(
    nears: list[Neighbourhood], work: Any, how: dict[str, Any]
) -> tuple[list[dict[str, Any]], str]:
    """Return the best candidate of each noise for each δ, with a note where the winner changes."""
    from deltahist.planning import best_of_each_noise

    records: list[dict[str, Any]] = []
    before = None
    for near in nears:
        best = best_of_each_noise(near, work, **how)
        for place, candidate in enumerate(best):
            note = "best" if place == 0 else ""
            if place == 0 and before not in (None, candidate.strategy.name):
                note += f", where {before} was"
            records.append(
                {
                    "delta": str(near.delta),
                    "strategy": candidate.label,
                    "noise": candidate.noise,
                    "rmse": candidate.rmse,
                    "any_move": candidate.any_move,
                    "shown": _any_move(candidate),
                    "best": place == 0,
                    "note": note,
                }
            )
        before = best[0].strategy.name
    rows = [
        (r["delta"], r["strategy"], r["noise"], f"{r['rmse']:,.4g}", r.pop("shown"), r["note"]) for r in records
    ]
    return records, console.table(("delta", "strategy", "noise", "error", "any move", ""), rows, left=3)
