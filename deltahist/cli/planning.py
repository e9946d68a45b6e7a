"""`deltahist plan`: which strategy is best, from public choices alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console, options
from deltahist.cli.groups import BoxFile, Coordinates, MaxPerUser, Place, SpendingWithFailure, option, spread
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.neighbourhood import Neighbourhood

#: Squares that stand for all places of a given size.
_SQUARES = 2_000
_NOT_ALL = "plus what is not measured"


@dataclass(frozen=True, kw_only=True)
class _Workload:
    """Which queries the error is about."""

    squares: Annotated[
        str | None, option("SIDE", "Plan for squares of this side (2km) at random places.")
    ] = None
    boxes: BoxFile = None

    def on(self, domain: Domain) -> tuple[Any, str]:
        """The queries on a domain, and their name."""
        from deltahist import workloads

        if self.squares is not None and self.boxes is not None:
            raise InputError("both --squares and --boxes are given: it must be at most one of them")
        if self.squares is not None:
            side = domain.length(options.length(self.squares, "--squares"), name="--squares")
            kind = "squares" if domain.ndim == 2 else "intervals"
            return workloads.random_squares(
                side, _SQUARES, domain
            ), f"{_SQUARES:,} {kind} of side {self.squares}"
        if self.boxes is not None:
            corners, _ = options.read_boxes(None, self.boxes, domain)
            return workloads.boxes(corners), f"the {len(corners):,} boxes of {self.boxes}"
        return workloads.all_ranges(domain), "all ranges of whole cells"


@spread
def plan(
    *,
    place: Place,
    spending: SpendingWithFailure,
    deltas: Annotated[
        str | None,
        option("LIST", "Instead of the ranking: the best strategy for each of these δ (250m,1km)."),
    ] = None,
    crs: Annotated[str | None, option("CRS", "Projected CRS of the map; none: a plane.", "--project", "--crs")] = None,
    max_per_user: MaxPerUser = None,
    workload: _Workload,
    layout: Annotated[Literal["table", "json"], option("FORM", "table or json.", "--format")] = "table",
    out: Annotated[Path | None, option("FILE", "Write to a file.")] = None,
) -> None:
    """Rank strategies by expected error on a workload: all ranges, or --squares, or --boxes. No data is read.

    \b
    Examples:
      deltahist plan --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --cell 250m --delta 500m --epsilon 1
      deltahist plan --bounds 0,0,1,1 --cell 0.01 --delta 0.01 --epsilon 1 --squares 0.2
      deltahist plan --bounds 0,100 --cell 1 --delta 5 --sources left --rho 0.1 --format json
      deltahist plan --bounds 0,0,64,64 --cell 1 --delta 1 --epsilon 1 --probability 1e-6 --deltas 1,2,4,8
    """
    console.check_target(out, *filter(None, [workload.boxes]))
    how = {
        "contributions": options.whole_number(max_per_user or "1", "--max-per-user"),
        **spending.keywords(),
    }
    system = Coordinates(crs=crs)
    near = place.near(system)
    work, name = workload.on(near.domain)
    if deltas is None:
        title = "expected error per query, in points (root mean square)"
        records, table = _ranking(near, work, how)
    else:
        title = "best strategies by δ: expected error per query, in points"
        nears = [replace(place, delta=each).near(system) for each in deltas.split(",")]
        if len({each.domain for each in nears}) > 1:
            raise InputError(
                "--deltas needs --cell: with --cells-per-delta every δ would have cells of its own"
            )
        records, table = _crossovers(nears, workload.on(nears[0].domain)[0], how)
    if layout == "json":
        console.put(json.dumps(records, indent=2, ensure_ascii=False), out)
    else:
        console.put(f"{title}, over {name}\n\n{table}", out)


def _ranking(near: Neighbourhood, work: Any, how: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """All candidates, the best one first: as records and as a table."""
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
            "determines_cells": c.resolves,
        }
        for c in found
    ]
    rows = [
        (str(place), c.label, c.noise, f"{c.cost:.4g}", f"{c.rmse:,.4g}", _NOT_ALL * (not c.resolves))
        for place, c in enumerate(found, start=1)
    ]
    return records, console.table(("rank", "strategy", "noise", "sensitivity", "error", ""), rows, left=3)


def _crossovers(
    nears: list[Neighbourhood], work: Any, how: dict[str, Any]
) -> tuple[list[dict[str, Any]], str]:
    """The best candidate of each noise for each δ, the best one first; it is noted where the winner changes."""
    from deltahist.planning import crossovers

    records: list[dict[str, Any]] = []
    before = None
    for near, best in crossovers(nears, work, **how):
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
                    "best": place == 0,
                    "note": note,
                }
            )
        before = best[0].strategy.name
    rows = [(r["delta"], r["strategy"], r["noise"], f"{r['rmse']:,.4g}", r["note"]) for r in records]
    return records, console.table(("delta", "strategy", "noise", "error", ""), rows, left=3)
