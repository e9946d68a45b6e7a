"""`deltahist plan`: which strategy is best, from public choices alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist.cli import console, options
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood

#: Squares that stand for all places of a given size.
_SQUARES = 2_000


def plan(
    bounds: options.Bounds,
    delta: options.Delta,
    cell: options.Cell = None,
    cells_per_delta: options.CellsPerDelta = None,
    sources: options.Sources = "none",
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    probability: options.Probability = None,
    deltas: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Instead of the ranking: the best strategy for each of these δ (250m,1km)."
        ),
    ] = None,
    crs: Annotated[
        str | None, typer.Option("--project", "--crs", metavar="CRS", help="Projected CRS of the map.")
    ] = None,
    max_per_user: options.MaxPerUser = None,
    squares: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Plan for squares of this side (2km) at random places.")
    ] = None,
    boxes: options.BoxFile = None,
    layout: Annotated[str, typer.Option("--format", metavar="FORM", help="table or json.")] = "table",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Rank strategies by expected error on a workload: all ranges, or --squares, or --boxes. No data is read.

    \b
    Examples:
      deltahist plan --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --cell 250m --delta 500m --epsilon 1
      deltahist plan --bounds 0,0,1,1 --cell 0.01 --delta 0.01 --epsilon 1 --squares 0.2
      deltahist plan --bounds 0,100 --cell 1 --delta 5 --sources left --rho 0.1 --format json
      deltahist plan --bounds 0,0,64,64 --cell 1 --delta 1 --epsilon 1 --probability 1e-6 --deltas 1,2,4,8
    """
    from deltahist.planning import plan as rank

    if layout not in ("table", "json"):
        raise InputError(f"--format is {layout!r}: it must be table or json")
    console.check_target(out, *filter(None, [boxes]))
    budget = options.budget(epsilon, rho, None, probability)
    times = options.whole_number(max_per_user or "1", "--max-per-user")
    near = options.space(bounds, cell, cells_per_delta, delta, sources, options.map_crs(crs, None, bounds))
    work, name = _workload(near, squares, boxes)
    if deltas is not None:
        nears = [
            options.space(bounds, cell, cells_per_delta, each, sources, options.map_crs(crs, None, bounds))
            for each in deltas.split(",")
        ]
        if len({n.domain for n in nears}) > 1:
            raise InputError(
                "--deltas needs --cell: with --cells-per-delta every δ would have cells of its own"
            )
        rows = _crossovers(nears, _workload(nears[0], squares, boxes)[0], times, budget)
        if layout == "json":
            console.put(json.dumps(rows, indent=2, ensure_ascii=False), out)
        else:
            shown = [(r["delta"], r["strategy"], r["noise"], f"{r['rmse']:,.4g}", r["note"]) for r in rows]
            text = console.table(("delta", "strategy", "noise", "error", ""), shown, left=3)
            console.put(
                f"best strategies by δ: expected error per query, in points, over {name}\n\n{text}", out
            )
        return
    found = rank(near, work, contributions=times, **budget)
    if layout == "json":
        rows = [
            {
                "strategy": c.label,
                "noise": c.noise,
                **{name: str(value) for name, value in c.budget.items()},
                "parameters": {k: v for k, v in c.strategy.describe().items() if k not in options.LONG},
                "sensitivity": c.cost,
                "rmse": c.rmse,
                "determines_cells": c.resolves,
            }
            for c in found
        ]
        console.put(json.dumps(rows, indent=2, ensure_ascii=False), out)
        return
    lines = [
        (
            str(rank),
            c.label,
            c.noise,
            f"{c.cost:.4g}",
            f"{c.rmse:,.4g}",
            "" if c.resolves else "plus what is not measured",
        )
        for rank, c in enumerate(found, start=1)
    ]
    text = console.table(("rank", "strategy", "noise", "sensitivity", "error", ""), lines, left=3)
    console.put(f"expected error per query, in points (root mean square), over {name}\n\n{text}", out)


def _crossovers(
    nears: list[Neighbourhood], work: Any, times: int, budget: dict[str, Any]
) -> list[dict[str, Any]]:
    """The best candidate of each noise for each δ, the best one first; it is noted where the winner changes."""
    from deltahist.planning import crossovers

    rows: list[dict[str, Any]] = []
    before = None
    for near, best in crossovers(nears, work, contributions=times, **budget):
        for place, candidate in enumerate(best):
            kind = candidate.strategy.name
            changed = place == 0 and before not in (None, kind)
            rows.append(
                {
                    "delta": str(near.delta),
                    "strategy": candidate.label,
                    "noise": candidate.noise,
                    "rmse": candidate.rmse,
                    "best": place == 0,
                    "note": ("best" if place == 0 else "") + (f", where {before} was" if changed else ""),
                }
            )
        before = best[0].strategy.name
    return rows


def _workload(near: Neighbourhood, squares: str | None, boxes: Path | None) -> tuple[Any, str]:
    from deltahist import workloads

    domain = near.domain
    if squares is not None and boxes is not None:
        raise InputError("both --squares and --boxes are given: it must be at most one of them")
    if squares is not None:
        side = options.length(squares, "--squares")
        work = workloads.random_squares(domain.length(side, name="--squares"), _SQUARES, domain)
        return work, f"{_SQUARES:,} {'squares' if domain.ndim == 2 else 'intervals'} of side {squares}"
    if boxes is not None:
        corners, _ = options.read_boxes(None, boxes, domain)
        return workloads.boxes(corners), f"the {len(corners):,} boxes of {boxes}"
    return workloads.all_ranges(domain), "all ranges of whole cells"
