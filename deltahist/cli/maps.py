"""The map and its workload: coordinates, cells, who may be confused with whom, and what will be asked."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from deltahist.cli.console import facts, note, table
from deltahist.cli.groups import DELTA, MAP, PLAN, PRIVACY
from deltahist.cli.options import (
    amount,
    corners,
    flag,
    length,
    move_limit,
    move_limit_or_amount,
    option,
    read_boxes,
    whole_number,
)
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.mechanisms import Mechanism
    from deltahist.planning import CellChoice
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

    Queries: TypeAlias = Callable[[Domain], Workload]

#: Value of --crs for plain numbers.
PLAIN = "none"
#: Option to add where a projection must be named.
NAME_ONE = "--project with the projected CRS of the region, such as EPSG:32618"
#: Squares that stand for all places of a given size.
_SQUARES = 2_000
#: Points on a map of which nobody says how many there are.
USUAL_POINTS = 100_000
#: Queries that an error is about where nothing is asked for in particular.
_ANYWHERE = "boxes of any size at any place"

MAP_CRS = option(
    "CRS",
    "Projected CRS of the map; auto: one that suits --bounds in degrees; none: a plane.",
    names="--project --crs",
)
_LIMITS = "Moves over a distance cost at most so many ε: 2km:2, any:4, any:none, proportional; repeat it."
LIMITS = option("DISTANCE:TIMES", f"{_LIMITS} [default: any:4]", move_limit, several=True, panel=PRIVACY)
LIMITS_OR_ACCOUNTS = option(
    "DISTANCE:TIMES|E", f"{_LIMITS} E: what --account may spend.", move_limit_or_amount, several=True, panel=PRIVACY
)


def move_limits(given: list[Any] | None) -> list[Any] | None:
    """Return the limits of moves as a neighbourhood takes them; None without any."""
    of_moves = [each for each in given or () if not isinstance(each, Fraction)]
    found = [each for each in of_moves if each != ("any", None)]
    if len(found) < len(of_moves) and any(each[0] == "any" for each in found):
        raise InputError("--limit is any:none with another limit for any move: leave one of them out")
    return found if of_moves else None


def describe_limit(mechanism: Mechanism, asked: Any) -> str:
    """Return what any move costs, and how to change it, in one line."""
    hint = ""
    if asked is None:
        hint = " (nobody asked for another limit; --limit any:none lifts it)"
        if not mechanism.neighbourhood.profile:
            hint = " (--limit any:4 allows 4 times what a move within δ may cost)"
    return f"any move at all costs at most {mechanism.letter} = {mechanism.any_move:.4g}{hint}"


def about_map(domain: Domain) -> dict[str, str]:
    """Return cells, bounds and map, for `facts`."""
    from deltahist.space.crs import words

    bounds = ",".join(f"{b:.10g}" for b in domain.bounds) + (f" in {domain.crs}" if domain.crs else "")
    cells = f"{' × '.join(map(str, domain.shape))} of {domain.size_of_cells}"
    if domain.crs is None:
        return {"cells": cells, "bounds": bounds}
    return {"cells": cells, "bounds": bounds, "map": words(domain)}


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """The columns of a file's coordinates, their CRS, and the CRS of the map."""

    x: str | None = option("COL", "Column of x or longitude: a name, or a number from 0.")
    y: str | None = option("COL", "Column of y or latitude; none in 1-D.")
    crs: str | None = option("CRS", "CRS of the points, such as EPSG:4326; none: plain numbers of a plane.")
    project: str | None = option(
        "CRS", "Projected CRS of the map (EPSG:32618); auto: one that suits --bounds in degrees."
    )

    def columns(self, axes: int) -> dict[str, Any]:
        """Return keywords of the readers of points: `x`, `y` and `crs`, a column for each axis of the map."""
        if axes == 1 and self.y is not None:
            raise InputError(f"--y is {self.y!r}, but --bounds has two numbers: one dimension takes --x only")
        if axes == 2 and (self.x is None) != (self.y is None):
            raise InputError(f"--{'x' if self.x is None else 'y'} is missing: two dimensions take both --x and --y")
        return {"x": self.x, "y": self.y, "crs": None if self.crs == PLAIN else self.crs}

    def on_map(self, bounds: tuple[float, ...]) -> tuple[tuple[float, ...], str | None]:
        """Return corners and CRS of the map: --bounds themselves, or with --project auto a map of those degrees.

        Raises InputError if the points are in degrees, or seem to be, and no option projects them; the message has the
        options to use.
        """
        from deltahist.space.crs import are_degrees, extent_of, looks_like_degrees, read_crs

        if self.project == "auto":
            if not looks_like_degrees(bounds):
                raise InputError(
                    f"--bounds are {_text(bounds)}: with --project auto it must be W,S,E,N in degrees; if these are "
                    "metres, name their CRS, such as --project EPSG:32618"
                )
            extent = extent_of(bounds)
            return extent.bounds, extent.crs
        for axis, (first, last) in enumerate((("west", "east"), ("south", "north")) if len(bounds) == 4 else ()):
            low, high = bounds[axis], bounds[axis + 2]
            if not low < high:
                across = axis == 0 and max(map(abs, bounds)) <= 180
                hint = "; degrees that go across the antimeridian take --project auto" * across
                raise InputError(
                    f"--bounds are {_text(bounds)}: {first} {low:g} must be less than {last} {high:g} (the order is "
                    f"west, south, east, north){hint}"
                )
        if self.crs == PLAIN and self.project is not None:
            raise InputError(f"--crs is 'none' with --project {self.project}: plain numbers cannot be projected")
        if self.project is not None and read_crs(self.project, "--project").is_geographic:
            raise InputError(f"--project is {self.project!r}: degrees are not lengths, it must be a projected CRS")
        if self.crs is None or self.crs == PLAIN:
            if self.project is not None or self.crs == PLAIN or not are_degrees(bounds, self.x, self.y):
                return bounds, self.project
            own = "" if self.x is None else "--crs EPSG:4326 "
            raise InputError(
                f"--bounds are {_text(bounds)} without a CRS: these look like longitudes and latitudes, and degrees "
                f"are not lengths; add {own}{_auto(bounds)}, with --delta and --cell in metres (500m); or --crs none "
                "if they are plain numbers of a plane"
            )
        degrees = read_crs(self.crs, "--crs").is_geographic
        if self.project is not None or not degrees:
            return bounds, self.project or self.crs
        use = _auto(bounds) if looks_like_degrees(bounds) else NAME_ONE + ", and --bounds in its metres" * bool(bounds)
        raise InputError(
            f"--crs is {self.crs!r}: degrees are not lengths, so the points must be projected; add {use}"
        )

    @classmethod
    def of_crs(cls, crs: str | None, grid: str | None = None) -> Coordinates:
        """Return the coordinates of a map without points, whose CRS --project alone tells."""
        from deltahist.space.crs import read_crs

        if crs not in (None, PLAIN, "auto"):
            read_crs(crs, "--project")
        return cls(project=crs) if crs == "auto" or grid is not None else cls(crs=crs)


def _auto(bounds: tuple[float, ...]) -> str:
    """Return the options of a map that suits bounds in degrees."""
    from deltahist.space.crs import extent_of

    try:
        extent = extent_of(bounds)
    except InputError as problem:  # too much of the world for one map
        return f"{NAME_ONE}, and --bounds in its metres ({problem})"
    there = ",".join(f"{b:.15g}" for b in extent.bounds)
    return f"--project auto, which is --project {shlex.quote(extent.crs)} --bounds {there}"


def sources_option(default: str | None) -> Any:
    """Return the option that declares sources."""
    text = "Where people may appear or vanish: none, boundary, left, right, a file."
    return option("WHERE", text, default=default, panel=MAP)


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """The map with its cells, and who may be confused with whom on it."""

    bounds: tuple[float, ...] = option(
        "W,S,E,N", "Corners on the map; in degrees with --project auto; LO,HI in 1-D.", corners, default=...
    )
    delta: Any = DELTA
    limit: list[Any] | None = LIMITS
    cell: float | str | None = option(
        "LENGTH", "Side of a cell, such as 250m, or auto: the least error. [default: auto; δ in 1-D]", length
    )
    cells_per_delta: int | None = option(
        "K", "Instead of --cell: cells with a side of δ / K.", whole_number, panel=MAP
    )
    grid: str | None = option(
        "CRS/STEP", "Instead of --project and --cell: cells of a grid, such as EPSG:3035/1km.", panel=MAP
    )
    align: bool = flag("Cells lie at multiples of --cell, a length on the map then.", panel=MAP)
    sources: str = sources_option("none")

    #: Whether cells are chosen where no option is about them.
    _CHOOSES: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cell is not None and self.cells_per_delta is not None:
            raise InputError("both --cell and --cells-per-delta are given: it must be at most one of them")

    @property
    def limits(self) -> list[Any] | None:
        """The limits of moves; None without any."""
        return move_limits(self.limit)

    @property
    def chooses(self) -> bool:
        """Whether the cells are to be chosen (`nears`) instead of given (`near`)."""
        if self.cell == "auto":
            return not self.align
        nothing = self.cell is None and self.cells_per_delta is None and self.grid is None and not self.align
        return self._CHOOSES and nothing and len(self.bounds) == 4

    def near(self, coordinates: Coordinates) -> Neighbourhood:
        """Return the neighbourhood on its domain, checked, with room in memory; cells of δ where none are given."""
        side, coordinates = self._cells(coordinates)
        return self._near(coordinates, side)

    def nears(self, coordinates: Coordinates) -> Iterator[Neighbourhood]:
        """Return the neighbourhood on cells that may be chosen, from large to small, with room in memory."""
        from deltahist.planning import on_cells
        from deltahist.planning.advice import SIDES
        from deltahist.space.domain import CellTooLarge, length_times

        try:
            near = self._near(coordinates, self.delta)
        except CellTooLarge:  # δ may still fit between corners; if not, it is δ that is too long
            near = self._near(coordinates, length_times(self.delta, SIDES[-1]))
        box, crs = coordinates.on_map(self.bounds)
        # A function of the distance becomes limits on the map that is chosen, not on this one.
        return on_cells(box, near.delta, crs, sources=near.sources, limits=self.limits)

    def _near(self, coordinates: Coordinates, side: float | str) -> Neighbourhood:
        from deltahist.space.domain import Domain, check_room
        from deltahist.space.geometries import read_sources
        from deltahist.space.neighbourhood import Neighbourhood, is_far

        box, crs = coordinates.on_map(self.bounds)
        if crs is not None:
            box = _out_of_degrees(box, crs, side, self.grid)
        domain = Domain.from_cell(box, side, crs)
        check_room(domain)
        near = Neighbourhood(domain, self.delta, limits=self.limits)
        near.check_on_map()
        entry = read_sources(self.sources, domain, "--sources")
        if entry is not None and not isinstance(entry, str) and is_far(entry, domain, near.radius):
            raise InputError(
                f"--sources is {self.sources!r}: none of it is within δ of the map (is it in another CRS?)"
            )
        return near.with_sources(entry)

    def _cells(self, coordinates: Coordinates) -> tuple[float | str, Coordinates]:
        """Return the side of a cell, as given or δ / K, and the coordinates with the map's CRS: --grid tells both."""
        from deltahist.space.crs import read_crs
        from deltahist.space.domain import length_times

        if self.grid is None:
            side = length_times(self.delta, 1 / self.cells_per_delta) if self.cells_per_delta else self.delta
            return side if self.cell is None else self.cell, coordinates
        others = {"project": coordinates.project, "cell": self.cell, "cells-per-delta": self.cells_per_delta}
        for name, value in others.items():
            if value is not None:
                raise InputError(f"--{name} is {value!r} with --grid, which says it already: leave one of them out")
        crs, _, step = self.grid.rpartition("/")
        if not crs or not step or not read_crs(crs, "--grid").is_projected:
            raise InputError(
                f"--grid is {self.grid!r}: it must be a projected CRS and the side of a cell, such as EPSG:3035/1km"
            )
        return length(step, "--grid"), replace(coordinates, project=crs)


@dataclass(frozen=True, kw_only=True)
class PaidPlace(MapOptions):
    """A map that an account may pay for, whose limit stands beside the limits of moves."""

    limit: list[Any] | None = LIMITS_OR_ACCOUNTS


def _out_of_degrees(box: tuple[float, ...], crs: str, side: float | str, grid: str | None) -> tuple[float, ...]:
    """Return corners on a projected map; on a grid, corners in degrees.

    Raises InputError if they are surely degrees, all of them smaller than a cell, and there is no grid.
    """
    from deltahist.space.crs import extent_on, looks_like_degrees
    from deltahist.space.domain import has_unit, read_length

    cell = read_length(side) if has_unit(side) else side
    if not looks_like_degrees(box) or isinstance(cell, str) or max(box[2] - box[0], box[3] - box[1]) >= cell:
        return box
    bounds = extent_on(box, crs).bounds
    there = ",".join(f"{b:.15g}" for b in bounds)
    if grid is None:
        raise InputError(
            f"--bounds are {_text(box)}: all of it is smaller than a cell of {cell:g} m; bounds must be in metres of "
            f"{crs} (these look like degrees, {there} there; --project auto takes degrees)"
        )
    note(f"--bounds {_text(box)} are taken as degrees: {there} in {crs}")
    return bounds


def _text(box: Sequence[float]) -> str:
    return ",".join(f"{b:.10g}" for b in box)


# --- what will be asked -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The queries that an error is about."""

    regions: Path | None = option("FILE", "Polygons (GeoJSON, GeoPackage, ...).", panel=PLAN)
    squares: str | None = option("SIDE", "Squares of this side (2km) at random places.", panel=PLAN)
    boxes: Path | None = option(
        "FILE.csv", "Boxes: west,south,east,north (1-D: low,high) and maybe name.", panel=PLAN
    )
    ranges: bool = flag("All ranges of whole cells; needs cells that are given.", panel=PLAN)

    def files(self) -> list[Path]:
        """Return the files that are read."""
        return [file for file in (self.regions, self.boxes) if file is not None]

    def refuse_ranges(self) -> None:
        """Raise InputError on ranges of whole cells, where cells are to be chosen."""
        if self.ranges:
            raise InputError(
                "--ranges is about whole cells, which are to be chosen: --cell must say how large they are, such as "
                "--cell 250m (or plan for --squares, --boxes or --regions)"
            )

    def queries(self, domain: Domain) -> tuple[Queries | None, str]:
        """Return a function from a domain, whichever its cells, to its queries, and their name; None without any."""
        from deltahist import workloads
        from deltahist.space.fitting import fit
        from deltahist.space.geometries import read_geometries

        given = [name for name in ("regions", "squares", "boxes", "ranges") if getattr(self, name)]
        if len(given) > 1:
            raise InputError(f"--{given[0]} and --{given[1]} are both given: it must be at most one workload")
        if self.regions is not None:
            frame = read_geometries(self.regions, domain, "--regions")
            drawn, crs = frame.geometry.to_numpy(), frame.crs
            fitted = fit(drawn, domain, crs)
            name = f"the {int(fitted.held.sum()):,} regions of {self.regions}"
            return lambda on: _within(fitted.shapes, on), name
        if self.squares is not None:
            side = domain.length(length(self.squares, "--squares"), name="squares")
            kind = "squares" if domain.ndim == 2 else "intervals"
            name = f"{_SQUARES:,} {kind} of side {self.squares}"
            return lambda on: workloads.random_squares(side, _SQUARES, on), name
        if self.boxes is not None:
            boxes, _ = read_boxes(None, self.boxes, domain)
            return lambda on: workloads.boxes(boxes), f"the {len(boxes):,} boxes of {self.boxes}"
        return workloads.all_ranges if self.ranges else None, "all ranges of whole cells"

    def names(self, work: Workload, domain: Domain) -> list[str]:
        """Return the names of a workload's regions or boxes in their file, or their numbers; none for others."""
        from deltahist.space.geometries import named, read_geometries
        from deltahist.space.workloads import Regions

        if self.boxes is not None:
            return read_boxes(None, self.boxes, domain)[1]
        if self.regions is None or not isinstance(work, Regions):
            return []
        try:
            known = named(read_geometries(self.regions, domain, "--regions"))["name"]
        except InputError:  # several columns may be names: numbers do for a forecast
            return list(work.names)
        return [str(known.iloc[int(number)]) for number in work.names]


@dataclass(frozen=True, kw_only=True)
class PlanOptions(WorkloadOptions):
    """The queries that an error is about, and the number of points."""

    points: Fraction | None = option(
        "N",
        "About how many points: a public figure, which decides on cells. [default: 100000]",
        amount,
        panel=PLAN,
    )

    @property
    def number(self) -> float:
        """About how many points there are."""
        return float(USUAL_POINTS if self.points is None else self.points)


@dataclass(frozen=True)
class ChosenMap:
    """A map that was chosen, its workload with a name, and the cells that were compared, best first."""

    near: Neighbourhood
    work: Workload | None
    name: str
    cells: list[CellChoice]

    def mechanism(self, **how: Any) -> Mechanism:
        """Return the best mechanism for the workload."""
        from deltahist.planning import mechanism_for

        return self.cells[0].mechanism if self.cells else mechanism_for(self.near, workload=self.work, **how)

    @property
    def queries(self) -> str:
        """Name of the queries: boxes of any place and size without a workload."""
        return _ANYWHERE if self.work is None else self.name

    def describe_error(self, mechanism: Mechanism, asked: PlanOptions) -> str:
        """Tell the expected error of a mechanism; over boxes of any place and size without a workload."""
        from deltahist.planning import CellChoice

        expected = self.cells[0] if self.cells else CellChoice.of(mechanism, asked.number, self.work)
        about = f"for about {asked.number:,.0f} points" + ("" if asked.points else " (--points says how many)")
        return facts(
            error=f"{expected.rmse:,.4g} points (root mean square) over {self.queries}, {about}",
            of_it=f"{expected.noise_error:,.4g} by noise, {expected.placement_error:,.4g} by places within cells",
        )

    def table(self) -> str:
        """Render the cells that were compared, with their expected errors."""
        rows = [
            (
                each.neighbourhood.domain.size_of_cells,
                *(f"{error:,.4g}" for error in (each.rmse, each.noise_error, each.placement_error)),
            )
            for each in self.cells
        ]
        return table(("cell", "error", "by noise", "by placement"), rows)


def choose_map(place: MapOptions, coordinates: Coordinates, asked: PlanOptions, **how: Any) -> ChosenMap:
    """Choose the map: cells as given, or else the best ones for the workload; no rows are read."""
    from deltahist.planning import plan_cells

    if not place.chooses:
        near = place.near(coordinates)
        queries, name = asked.queries(near.domain)
        return ChosenMap(near, queries and queries(near.domain), name, [])
    asked.refuse_ranges()
    nears = list(place.nears(coordinates))
    queries, name = asked.queries(nears[0].domain)
    cells = plan_cells(nears, asked.number, queries, **how)
    near = cells[0].neighbourhood
    return ChosenMap(near, queries and queries(near.domain), name if queries else _ANYWHERE, cells)


def _within(shapes: Any, domain: Domain) -> Workload:
    """Return regions as far as they lie on a map with other cells, which may end a little earlier; named by number."""
    import numpy as np
    import shapely

    from deltahist import workloads

    parts = shapely.intersection(shapes, shapely.box(*domain.bounds))
    there = np.flatnonzero(np.isin(shapely.get_type_id(parts), (3, 6)) & (shapely.area(parts) > 0))
    return workloads.regions(parts[there], [str(number) for number in there])
