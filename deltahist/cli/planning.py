"""`deltahist plan`: which strategy is best, from public choices alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist._validate import InputError
from deltahist.cli import console, options

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
    """
    from deltahist.cli.geometry import map_crs
    from deltahist.planner import plan as rank

    if layout not in ("table", "json"):
        raise InputError(f"--format is {layout!r}: it must be table or json")
    console.check_target(out, *filter(None, [boxes]))
    budget = options.budget(epsilon, rho)
    times = options.whole_number(max_per_user or "1", "--max-per-user")
    near = options.space(bounds, cell, cells_per_delta, delta, sources, map_crs(crs, None, bounds))
    work, name = _workload(near, squares, boxes)
    found = rank(near, work, contributions=times, **budget)
    if layout == "json":
        rows = [
            {
                "strategy": c.label,
                "parameters": {k: v for k, v in c.strategy.describe().items() if k != "sets"},
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
            f"{c.cost:.4g}",
            f"{c.rmse:,.4g}",
            "" if c.resolves else "plus what is not measured",
        )
        for rank, c in enumerate(found, start=1)
    ]
    text = console.table(("rank", "strategy", "sensitivity", "error", ""), lines, left=2)
    console.put(f"expected error per query, in points (root mean square), over {name}\n\n{text}", out)


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
