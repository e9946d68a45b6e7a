"""The workload of a map: options that plan, publish, stream and advise share, and the cells that suit it best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from deltahist.cli import console, options
from deltahist.cli.groups import PLAN
from deltahist.cli.options import flag, option
from deltahist.cli.places import Coordinates, MapOptions
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.mechanisms import Mechanism
    from deltahist.planning import CellChoice
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

    Queries: TypeAlias = Callable[[Domain], Workload]

#: Squares that stand for all places of a given size.
_SQUARES = 2_000
#: Points on a map of which nobody says how many there are.
USUAL_POINTS = 100_000
#: What errors are about where nothing is asked for in particular.
ANYWHERE = "boxes of any size at any place"


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The queries that an error is about."""

    regions: Annotated[
        Path | None, option("FILE", "Polygons (GeoJSON, GeoPackage, ...).", panel=PLAN)
    ] = None
    squares: Annotated[
        str | None, option("SIDE", "Squares of this side (2km) at random places.", panel=PLAN)
    ] = None
    boxes: Annotated[
        Path | None,
        option("FILE.csv", "Boxes: west,south,east,north (1-D: low,high) and maybe name.", panel=PLAN),
    ] = None
    ranges: Annotated[
        bool, flag("--ranges", "All ranges of whole cells; needs cells that are given.", PLAN)
    ] = False

    def files(self) -> list[Path]:
        """Return the files that are read."""
        return [file for file in (self.regions, self.boxes) if file is not None]

    def queries(self, domain: Domain) -> tuple[Queries | None, str]:
        """Return a function from a domain to its queries, and their name; None without a workload.

        The function takes domains with other cells, too.
        """
        from deltahist import workloads
        from deltahist.space.fitting import fit
        from deltahist.space.geometries import read_shapes

        given = [
            name
            for name, value in vars(self).items()
            if name in ("regions", "squares", "boxes", "ranges") and value not in (None, False)
        ]
        if len(given) > 1:
            raise InputError(f"--{given[0]} and --{given[1]} are both given: it must be at most one workload")
        if self.regions is not None:
            drawn, crs = read_shapes(self.regions, domain, "--regions")
            fitted = fit(drawn, domain, crs)
            shapes = fitted.shapes[fitted.held]
            return lambda on: _within(shapes, on), f"the {len(shapes):,} regions of {self.regions}"
        if self.squares is not None:
            side = domain.length(options.length(self.squares, "--squares"), name="squares")
            kind = "squares" if domain.ndim == 2 else "intervals"
            name = f"{_SQUARES:,} {kind} of side {self.squares}"
            return lambda on: workloads.random_squares(side, _SQUARES, on), name
        if self.boxes is not None:
            corners, _ = options.read_boxes(None, self.boxes, domain)
            return lambda on: workloads.boxes(corners), f"the {len(corners):,} boxes of {self.boxes}"
        if self.ranges:
            return workloads.all_ranges, "all ranges of whole cells"
        return None, "all ranges of whole cells"


@dataclass(frozen=True, kw_only=True)
class PlanOptions(WorkloadOptions):
    """The queries that an error is about, and the number of points."""

    points: Annotated[
        Fraction | None,
        option(
            "N",
            "About how many points: a public figure, which decides on cells. [default: 100000]",
            read=options.amount,
            panel=PLAN,
        ),
    ] = None

    @property
    def number(self) -> float:
        """About how many points there are."""
        return float(USUAL_POINTS if self.points is None else self.points)


@dataclass(frozen=True)
class ChosenMap:
    """A map that was chosen, its workload, and the cells that were compared, best first."""

    near: Neighbourhood
    work: Workload | None
    name: str
    cells: list[CellChoice]

    def mechanism(self, **how: Any) -> Mechanism:
        """Return the best mechanism for the workload."""
        from deltahist.planning import mechanism_for

        return self.cells[0].mechanism if self.cells else mechanism_for(self.near, workload=self.work, **how)

    def expected(self, mechanism: Mechanism, points: float) -> CellChoice:
        """Return the expected error of a mechanism; over boxes of any place and size without a workload."""
        from deltahist.planning import CellChoice

        return self.cells[0] if self.cells else CellChoice.of(mechanism, points, self.work)


def choose_map(place: MapOptions, coordinates: Coordinates, asked: PlanOptions, **how: Any) -> ChosenMap:
    """Choose the map: cells as given, or else the best ones for the workload; no rows are read."""
    from deltahist.planning import plan_cells

    if not place.chooses:
        near = place.near(coordinates)
        queries, name = asked.queries(near.domain)
        return ChosenMap(near, None if queries is None else queries(near.domain), name, [])
    if asked.ranges:
        raise InputError(
            "--ranges is about whole cells, whichever they are: --cell must say how large they are, such as --cell "
            "250m (or plan for --squares, --boxes or --regions)"
        )
    nears = list(place.nears(coordinates))
    queries, name = asked.queries(nears[0].domain)
    cells = plan_cells(nears, asked.number, queries, **how)
    near = cells[0].neighbourhood
    work = None if queries is None else queries(near.domain)
    return ChosenMap(near, work, name if queries else ANYWHERE, cells)


def table_of_cells(cells: list[CellChoice]) -> str:
    """Render the cells that were compared, best first, with their expected errors."""
    rows = [
        (
            c.neighbourhood.domain.size_of_cells,
            *(f"{v:,.4g}" for v in (c.rmse, c.noise_error, c.placement_error)),
        )
        for c in cells
    ]
    return console.table(("cell", "error", "by noise", "by placement"), rows, left=1)


def _within(shapes: Any, domain: Domain) -> Workload:
    """Regions as far as they lie on a map with other cells, which may end a little earlier."""
    import numpy as np
    import shapely

    from deltahist import workloads

    parts = shapely.intersection(shapes, shapely.box(*domain.bounds))
    return workloads.regions(parts[np.isin(shapely.get_type_id(parts), (3, 6)) & (shapely.area(parts) > 0)])
