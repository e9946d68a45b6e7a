"""What will be asked of a map: options that plan, publish and advise share, and the cells that suit it best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from deltahist.cli import console, options
from deltahist.cli.groups import BoxFile, flag, option
from deltahist.cli.places import Coordinates, MapOptions
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.mechanisms import Mechanism
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.planning import CellChoice
    from deltahist.workloads import Workload

    Queries: TypeAlias = Callable[[Domain], Workload]

#: Squares that stand for all places of a given size.
_SQUARES = 2_000
#: Points on a map of which nobody says how many there are.
USUAL_POINTS = 100_000
#: What errors are about where nothing is asked for in particular.
ANYWHERE = "boxes of any size at any place"


@dataclass(frozen=True, kw_only=True)
class AskedQueries:
    """Which queries an error is about."""

    regions: Annotated[
        Path | None, option("FILE", "Plan for these polygons (GeoJSON, GeoPackage, ...).", "--regions")
    ] = None
    squares: Annotated[
        str | None, option("SIDE", "Plan for squares of this side (2km) at random places.")
    ] = None
    boxes: BoxFile = None
    ranges: Annotated[
        bool, flag("--ranges", "Plan for all ranges of whole cells; needs cells that are given.")
    ] = False

    def files(self) -> list[Path]:
        """What is read."""
        return [file for file in (self.regions, self.boxes) if file is not None]

    def queries(self, domain: Domain) -> tuple[Queries | None, str]:
        """What makes the queries for a domain like this one, with other cells maybe, and their name; None if nothing
        is asked for in particular.
        """
        from deltahist import workloads
        from deltahist.domain.fitting import fit
        from deltahist.domain.geometries import read_shapes

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
            side = domain.length(options.length(self.squares, "--squares"), name="--squares")
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
class Asked(AskedQueries):
    """Which queries the error is about, and about how many points."""

    points: Annotated[
        str | None,
        option(
            "N",
            "About how many points there are, a public figure: it decides on --cell auto. [default: 100000]",
        ),
    ] = None

    @property
    def number(self) -> float:
        """About how many points there are."""
        return float(USUAL_POINTS if self.points is None else options.amount(self.points, "--points"))


@dataclass(frozen=True)
class Settled:
    """The map that was settled on, what is asked of it, and the cells that were compared, best first."""

    near: Neighbourhood
    work: Workload | None
    name: str
    cells: list[CellChoice]

    def mechanism(self, **how: Any) -> Mechanism:
        """The best mechanism for what is asked."""
        from deltahist.planning import mechanism_for

        return self.cells[0].mechanism if self.cells else mechanism_for(self.near, workload=self.work, **how)

    def expected(self, mechanism: Mechanism, points: float) -> CellChoice:
        """What a mechanism is expected to do; at boxes of any place and size where nothing is asked."""
        from deltahist.planning import CellChoice

        return self.cells[0] if self.cells else CellChoice.of(mechanism, points, self.work)


def settle(place: MapOptions, coordinates: Coordinates, asked: Asked, **how: Any) -> Settled:
    """The map with cells as given, or else with the best ones for what is asked; no rows are read."""
    from deltahist.planning import plan_cells

    if not place.chooses:
        near = place.near(coordinates)
        queries, name = asked.queries(near.domain)
        return Settled(near, None if queries is None else queries(near.domain), name, [])
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
    return Settled(near, work, name if queries else ANYWHERE, cells)


def table_of_cells(cells: list[CellChoice]) -> str:
    """The cells that were compared, best first: what each is expected to do."""
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
