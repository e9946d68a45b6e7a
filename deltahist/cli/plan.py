"""`deltahist plan`: which strategy is best, from public choices alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deltahist.cli import console
from deltahist.cli.groups import MAX_PER_USER, SpendingWithFailure
from deltahist.cli.maps import (
    MAP_CRS,
    Coordinates,
    MapOptions,
    PlanOptions,
    about_map,
    choose_map,
    sources_option,
)
from deltahist.cli.options import LONG, flag, length, listed, option, whole_number
from deltahist.cli.outlook import (
    WINDOW_LIMIT,
    Cadence,
    OutlookTable,
    StreamPlace,
    describe_shares,
    share_of_step,
)
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.planning import Candidate
    from deltahist.space.neighbourhood import Neighbourhood

# Columns of the tables: each heading, and what stands below it, made of a record.
_NAMED = {"strategy": "{strategy}", "noise": "{noise}"}
_PROMISED = {"error": "{rmse:,.4g}", "any move": "{letter} = {any_move:.4g}"}
_RANKING = {"rank": "{rank}", **_NAMED, "sensitivity": "{sensitivity:.4g}", **_PROMISED, "": "{missing}"}
_FRONTIER = {"limit": "{most}", **_NAMED, **_PROMISED, "error if short moves cost that too": "{rival_error}"}
_BY_DELTA = {"delta": "{delta}", **_NAMED, **_PROMISED, "": "{note}"}
#: Entries of a record that only tables show.
_SHOWN = ("rank", "letter", "missing", "most", "rival_error")


@dataclass(frozen=True, kw_only=True)
class _Place(MapOptions):
    # Without a word, none; of a stream the boundary.
    sources: str | None = sources_option(None)  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class _StreamOptions(Cadence):
    """The stream that is planned."""

    stream: bool = flag("Instead: what a step of a stream costs, and errors of a step, a week, a month and a year.")
    length: int | None = option("STEPS", "Of a stream: steps that share --epsilon.", whole_number, names="--window")
    window_limit: list[Any] | None = WINDOW_LIMIT

    def check(self, *others: str) -> None:
        """Raise InputError on options of a stream without one, a stream without a window, or `others` with one."""
        if not self.stream:
            names = {"--every": self.every, "--for": self.duration, "--window": self.length}
            for name, value in {**names, "--window-limit": self.window_limit}.items():
                if value is not None:
                    raise InputError(f"{name} is given without --stream: it is about a stream")
        elif others:
            raise InputError(f"{others[0]} is given with --stream: it must be one of them")
        elif self.length is None:
            raise InputError("--window is missing with --stream: it says how many steps share --epsilon, such as 4")


def plan(
    *,
    place: _Place,
    spending: SpendingWithFailure,
    deltas: Any = option(
        "LIST", "Instead of the ranking: the best strategy for each of these δ (250m,1km).", listed(length)
    ),
    frontier: bool = flag(
        "Instead: the best strategy for limits on what any move costs, and the error of each."
    ),
    picture: Path | None = option("FILE", "With --frontier: draw it too (.png, .svg or .pdf)."),
    steps: _StreamOptions,
    crs: str | None = MAP_CRS,
    max_per_user: int | None = MAX_PER_USER,
    asked: PlanOptions,
    layout: Literal["table", "json"] = option("FORM", "table or json.", default="table", names="--format"),
    out: Path | None = option("FILE", "Write to a file."),
) -> None:
    """Rank strategies, and cells unless they are given, by expected error on what will be asked. No data is read.

    Cells are compared by the whole error: that of noise, and that of where in the cells points lie, for about the
    number of --points. With cells that are given, the workload is all ranges of whole cells unless another is. With
    --stream, cells, sources and figures are as of `deltahist stream --dry-run`, and --points is about a step.

    \b
    Examples:
      deltahist plan --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --cell 250m --delta 500m --epsilon 1
      deltahist plan --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --delta 500m --epsilon 1 \\
          --regions districts.gpkg --points 140000
      deltahist plan --bounds 0,0,1,1 --cell 0.01 --delta 0.01 --epsilon 1 --squares 0.2
      deltahist plan --bounds 0,100 --cell 1 --delta 5 --sources left --rho 0.1 --format json
      deltahist plan --bounds 0,0,64,64 --cell 1 --delta 1 --epsilon 1 --probability 1e-6 --deltas 1,2,4,8
      deltahist plan --bounds 0,0,64,64 --cell 1 --delta 1 --epsilon 1 --frontier --picture frontier.png
      deltahist plan --stream --every 1w --for 52w --window 4 --window-limit 52:4 --epsilon 1 \\
          --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --cell 1km --delta 2km --regions districts.gpkg
    """
    from deltahist.plots import check_picture
    from deltahist.preprocessing import Preprocessing

    probability = [] if spending.probability is None else ["--probability"]
    steps.check(*["--frontier"] * frontier, *["--deltas"] * (deltas is not None), *probability)
    if frontier and deltas is not None:
        raise InputError("--frontier is given with --deltas: it must be one of them")
    if picture is not None:
        if not frontier:
            raise InputError(f"--picture is {str(picture)!r} without --frontier: it is what is drawn")
        check_picture(picture)
        console.check_target(picture, *asked.files(), option="--picture")
    console.check_target(out, *asked.files())
    how = {"counting": Preprocessing(max_per_user or 1), **spending.keywords()}
    system = Coordinates.of_crs(crs, place.grid)
    if steps.stream:
        there = StreamPlace(**vars(place) | {"sources": place.sources or "boundary"})
        _put_stream(steps, there, system, asked, how, layout, out)
        return
    place = replace(place, sources=place.sources or "none")
    if deltas is not None:
        nears = [replace(place, delta=each).near(system) for each in deltas]
        if len({each.domain for each in nears}) > 1:
            raise InputError("--deltas needs --cell: with --cells-per-delta every δ would have cells of its own")
        queries, name = asked.queries(nears[0].domain)
        title, columns = "best strategies by δ: expected error per query, in points", _BY_DELTA
        records = _by_delta(nears, queries and queries(nears[0].domain), how)
    else:
        chosen = choose_map(place, system, asked, **how)
        near, name = chosen.near, chosen.name
        if near.domain.crs is not None:
            console.note(console.facts(**about_map(near.domain)))
        if frontier:
            title = "the least expected error per query, in points, by what any move may cost"
            columns, records = _FRONTIER, _along_frontier(near, chosen.work, how, picture)
        else:
            title, columns = "expected error per query, in points (root mean square)", _RANKING
            records = _ranking(near, chosen.work, how)
        if chosen.cells:
            records = [{"cell": near.domain.size_of_cells} | record for record in records]
            compared = f"cells by the whole error, for about {asked.number:,.0f} points"
            title = f"{compared}\n\n{chosen.table()}\n\nof these, by noise: {title}"
    if place.limits is None and not frontier:
        console.note(
            "limit        any move may cost at most 4 times what one within δ may (nobody asked for another limit; "
            "--limit any:none lifts it)"
        )
    if layout == "json":
        known = [{key: value for key, value in record.items() if key not in _SHOWN} for record in records]
        console.put_json(known, out)
    else:
        rows = [[form.format(**record) for form in columns.values()] for record in records]
        console.put(f"{title}, over {name}\n\n{console.table(tuple(columns), rows, left=3)}", out)


def _put_stream(
    steps: _StreamOptions,
    place: StreamPlace,
    system: Coordinates,
    asked: PlanOptions,
    how: dict[str, Any],
    layout: str,
    out: Path | None,
) -> None:
    """Print the shares of a stream's steps, and the errors of sums over them."""
    from deltahist.accounts.window import Window

    clock, number = steps.read()
    ((unit, total),) = ((unit, amount) for unit, amount in how.items() if unit != "counting")
    window = Window(steps.length, **{unit: total}, limits=steps.window_limit or ())
    share = how | {unit: share_of_step(window)}
    chosen = choose_map(place, system, asked, **share)
    mechanism = chosen.mechanism(**share)
    mechanism = mechanism.with_budget(mechanism.budget.of(window.equal))
    sums = OutlookTable(mechanism, clock, number, chosen, asked)
    if layout == "json":
        console.put_json(sums.records(), out)
        return
    shares = describe_shares(window, clock, number)
    about = {**about_map(chosen.near.domain), "strategy": mechanism.strategy.name, **shares}
    console.put(f"{console.facts(**about)}\n\n{sums.describe(total)}", out)


def _ranking(near: Neighbourhood, work: Any, how: dict[str, Any]) -> list[dict[str, Any]]:
    """Return records of all candidates, the best one first."""
    from deltahist.planning import plan as rank

    return [
        {
            "strategy": each.label,
            "noise": each.noise,
            **{name: str(value) for name, value in each.budget.items()},
            "parameters": {name: value for name, value in each.strategy.describe().items() if name not in LONG},
            "sensitivity": each.cost,
            "rmse": each.rmse,
            "any_move": each.any_move,
            "determines_cells": each.resolves,
            "rank": place,
            "letter": each.mechanism.letter,
            "missing": "" if each.resolves else "plus what is not measured",
        }
        for place, each in enumerate(rank(near, work, **how), start=1)
    ]


def _along_frontier(
    near: Neighbourhood, work: Any, how: dict[str, Any], picture: Path | None
) -> list[dict[str, Any]]:
    """Return records of the best candidate for each limit on any move, beside its rival for all moves."""
    from deltahist.planning import frontier
    from deltahist.plots import save_frontier

    found = frontier(near, work, **how)
    if picture is not None:
        save_frontier(found, picture)
        console.note(f"wrote {picture}")
    return [
        {
            "limit": None if point.limit is None else float(point.limit),
            "strategy": point.best.label,
            "noise": point.noise,
            "rmse": point.best.rmse,
            "any_move": point.any_move,
            "rival": None if point.rival is None else point.rival.label,
            "rival_rmse": None if point.rival is None else point.rival.rmse,
            "most": "none" if point.limit is None else f"any:{float(point.limit):g}",
            "letter": point.mechanism.letter,
            "rival_error": "" if point.rival is None else f"{point.rival.rmse:,.4g}",
        }
        for point in found
    ]


def _by_delta(nears: list[Neighbourhood], work: Any, how: dict[str, Any]) -> list[dict[str, Any]]:
    """Return records of the best candidate of each noise for each δ, with a note where the winner changes."""
    from deltahist.planning import best_of_each_noise

    records = []
    before: Candidate | None = None
    for near in nears:
        best, *others = best_of_each_noise(near, work, **how)
        changed = before is not None and before.strategy.name != best.strategy.name
        note = "best" + (f", where {before.strategy.name} was" if before is not None and changed else "")
        for each in (best, *others):
            records.append(
                {
                    "delta": str(near.delta),
                    "strategy": each.label,
                    "noise": each.noise,
                    "rmse": each.rmse,
                    "any_move": each.any_move,
                    "best": each is best,
                    "note": note if each is best else "",
                    "letter": each.mechanism.letter,
                }
            )
        before = best
    return records
