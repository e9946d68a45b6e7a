"""Where: the coordinates of a file, the map with its cells, and who may be confused with whom on it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deltahist.cli import options
from deltahist.cli.groups import flag, option
from deltahist.errors import BYTES_PER_CELL, InputError, fits_memory

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.mechanisms import BaseMechanism
    from deltahist.neighbourhood import Neighbourhood

#: What --crs is for plain numbers.
_PLAIN = "none"


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """Where a file's coordinates stand, in which CRS they are, and in which CRS the map is."""

    x: Annotated[str | None, option("COL", "Column of x or longitude: a name, or a number from 0.")] = None
    y: Annotated[str | None, option("COL", "Column of y or latitude; none in 1-D.")] = None
    crs: Annotated[
        str | None, option("CRS", "CRS of the points, such as EPSG:4326; none: plain numbers of a plane.")
    ] = None
    project: Annotated[
        str | None,
        option(
            "CRS", "Projected CRS of the map, such as EPSG:32618; auto: one that suits --bounds in degrees."
        ),
    ] = None

    def columns(self, domain: Domain) -> dict[str, Any]:
        """Keywords of what reads points: `x`, `y` and `crs`, as many columns as the map has dimensions."""
        if domain.ndim == 1 and self.y is not None:
            raise InputError(f"--y is {self.y!r}, but --bounds has two numbers: one dimension takes --x only")
        if domain.ndim == 2 and (self.x is None) != (self.y is None):
            missing = "x" if self.x is None else "y"
            raise InputError(f"--{missing} is missing: two dimensions take both --x and --y")
        return {"x": self.x, "y": self.y, "crs": None if self.crs == _PLAIN else self.crs}

    def of_box(self, bounds: str) -> tuple[tuple[float, ...], str | None]:
        """Corners of the map and its CRS: --bounds as they are, or with --project auto what covers those degrees."""
        if self.project == "auto":
            extent = options.in_degrees(bounds, "--bounds")
            return extent.bounds, extent.crs
        box = options.corners(bounds, "--bounds")
        return box, self.of_map(box)

    def of_map(self, bounds: tuple[float, ...]) -> str | None:
        """CRS of the map: --project, or a projected --crs; None for a plane of plain numbers.

        Raises InputError if the points are in degrees, or seem to be, and nothing says how to project them; the message
        has the options to use.
        """
        from deltahist.domain.extents import are_degrees, looks_like_degrees
        from deltahist.domain.operations import read_crs

        if self.crs == _PLAIN:
            if self.project is not None:
                raise InputError(
                    f"--crs is 'none' with --project {self.project}: plain numbers cannot be projected"
                )
            return None
        if self.crs is None and self.project is None:
            if are_degrees(bounds, self.x, self.y):
                own = "" if self.x is None else "--crs EPSG:4326 "
                raise InputError(
                    f"--bounds are {','.join(f'{b:.10g}' for b in bounds)} without a CRS: these look like longitudes "
                    f"and latitudes, and degrees are not lengths; add {own}{self._auto(bounds)}, with --delta and "
                    "--cell in metres (500m); or --crs none if they are plain numbers of a plane"
                )
            return None

        if self.project is not None:
            if read_crs(self.project, "--project").is_geographic:
                raise InputError(
                    f"--project is {self.project!r}: degrees are not lengths, it must be a projected CRS"
                )
            if self.crs is not None:
                read_crs(self.crs, "--crs")
            return self.project
        if not read_crs(self.crs, "--crs").is_geographic:
            return self.crs
        use = "--project with the projected CRS of the region, such as EPSG:32618, and --bounds in its metres"
        if looks_like_degrees(bounds):
            use = self._auto(bounds)
        raise InputError(
            f"--crs is {self.crs!r}: degrees are not lengths, so the points must be projected; add {use}"
        )

    @classmethod
    def of_crs(cls, crs: str | None, grid: str | None = None) -> Coordinates:
        """What --project says where there are no points, whose CRS could be another."""
        return cls(project=crs) if crs == "auto" or grid is not None else cls(crs=crs)

    @staticmethod
    def _auto(bounds: tuple[float, ...]) -> str:
        """What to say for a map that suits bounds in degrees."""
        from deltahist.domain.extents import extent_of

        try:
            extent = extent_of(bounds)
        except InputError as problem:  # too much of the world for one map
            use = "--project with the projected CRS of a region, such as EPSG:32618, and --bounds in its metres"
            return f"{use} ({problem})"
        there = ",".join(f"{b:.15g}" for b in extent.bounds)
        return f"--project auto, which is --project {shlex.quote(extent.crs)} --bounds {there}"


MapCrs = Annotated[
    str | None,
    option(
        "CRS",
        "Projected CRS of the map; auto: one that suits --bounds in degrees; none: a plane.",
        "--project",
        "--crs",
    ),
]
Delta = Annotated[
    str, option("LENGTH", "δ: within this distance everyone is hidden with the full guarantee.")
]
_LIMITS = (
    "A move over this distance costs at most so many times ε: 2km:2, any:4; may be repeated. proportional: ε for every "
    "δ. [default: any:4 where the strategy is chosen; any:none lifts it]"
)
Limits = Annotated[list[str] | None, option("DISTANCE:TIMES", _LIMITS)]
LimitsOrAccounts = Annotated[
    list[str] | None,
    option(
        "DISTANCE:TIMES|E",
        f"{_LIMITS} Without a distance, with --ledger: what may be spent altogether; known after the first time.",
    ),
]
Sources = Annotated[
    str,
    option(
        "WHERE",
        "Where people may appear or vanish: none, boundary, left or right (1-D), or a file of geometries.",
    ),
]


def beyond(mechanism: BaseMechanism, asked: bool) -> str:
    """What is promised beyond δ, and whether that was asked for, in one line."""
    from deltahist.statement import explain_limits

    letter, norm = mechanism.letter, mechanism.norm
    if not mechanism.neighbourhood.profile:
        return f"none: any move at all costs {letter} = {mechanism.any_move:.4g}" + (
            "" if asked else " (--limit any:4 allows 4 times what a move within δ may cost)"
        )
    words = explain_limits(mechanism.neighbourhood, letter, norm)
    if not mechanism.neighbourhood.profile[-1].any:
        words += f"; none for any move at all, which costs {letter} = {mechanism.any_move:.4g}"
    return words if asked else f"{words} (nobody asked for another; --limit any:none lifts it)"


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """The map with its cells, and who may be confused with whom on it."""

    bounds: Annotated[
        str,
        option(
            "W,S,E,N",
            "Corners of the map, in the projected CRS when there is one, in degrees with --project auto; LO,HI in one "
            "dimension.",
        ),
    ]
    delta: Delta
    limit: Limits = None
    cell: Annotated[
        str | None,
        option(
            "LENGTH",
            "Side of a cell: 250m (ground metres), a plain number, or auto, for the least expected error. [default: "
            "auto; δ in one dimension]",
        ),
    ] = None
    cells_per_delta: Annotated[str | None, option("K", "Instead of --cell: cells with a side of δ / K.")] = (
        None
    )
    grid: Annotated[
        str | None,
        option(
            "CRS/STEP",
            "Instead of --project and --cell: the cells of a grid, such as EPSG:3035/1km (INSPIRE); STEP is a length "
            "on the map. --bounds may be degrees.",
        ),
    ] = None
    align: Annotated[
        bool,
        flag(
            "--align",
            "Cells lie at multiples of --cell, which is then a length on the map: maps in one CRS fit together.",
        ),
    ] = False
    sources: Sources = "none"

    #: Whether cells are chosen where nothing is said of them.
    _CHOOSES: ClassVar[bool] = True

    @property
    def distances(self) -> list[str] | None:
        """What --limit says of moves; None if it says nothing of them."""
        return self.limit

    @property
    def chooses(self) -> bool:
        """Whether the cells are to be chosen (`nears`) instead of given (`near`)."""
        if self.cell == "auto":
            if self.cells_per_delta is not None:
                raise InputError("--cell is 'auto' with --cells-per-delta: it must be at most one of them")
            return not self.align
        nothing = self.cell is None and self.cells_per_delta is None and self.grid is None and not self.align
        return self._CHOOSES and nothing and len(options.corners(self.bounds, "--bounds", around=True)) == 4

    def near(self, coordinates: Coordinates) -> Neighbourhood:
        """The neighbourhood on its domain, checked, with room in memory; cells of δ if nothing is said of them."""
        side, coordinates = self._cells(options.length(self.delta, "--delta"), coordinates)
        return self._near(coordinates, side)

    def nears(self, coordinates: Coordinates) -> Iterator[Neighbourhood]:
        """The neighbourhood on cells that may be chosen, from large to small, as far as there is room in memory."""
        from deltahist.domain.domain import CellTooLarge
        from deltahist.planning import on_cells
        from deltahist.planning.cells import SIDES, length_times

        delta = options.length(self.delta, "--delta")
        try:
            near = self._near(coordinates, delta)
        except CellTooLarge:  # δ may still fit between corners; if not, it is δ that is too long
            near = self._near(coordinates, length_times(delta, SIDES[-1]))
        box, crs = coordinates.of_box(self.bounds)
        # A function of the distance becomes limits on the map that is chosen, not on this one.
        limits = options.limits(self.distances, "--limit")
        return on_cells(box, near.delta, crs, sources=near.sources, limits=limits)

    def box(self, coordinates: Coordinates) -> tuple[tuple[float, ...], str | None]:
        """Corners of the map and its CRS, which --grid may say."""
        return self._cells(options.length(self.delta, "--delta"), coordinates)[1].of_box(self.bounds)

    def _near(self, coordinates: Coordinates, side: float | str) -> Neighbourhood:
        from deltahist.domain import Domain
        from deltahist.domain.geometries import read_sources
        from deltahist.neighbourhood import Neighbourhood
        from deltahist.neighbourhood.sources import is_far

        delta, limits = options.length(self.delta, "--delta"), options.limits(self.distances, "--limit")
        box, crs = coordinates.of_box(self.bounds)
        if crs is None:
            far = [("--limit", each[0]) for each in limits or () if isinstance(each, tuple) and each[0] != "any"]
            for name, value in (("--delta", delta), ("--cell", side), *far):
                if isinstance(value, str):
                    raise InputError(
                        f"{name} is {value!r}, but there is no CRS and so no metres: give a plain number in the "
                        "units of --bounds, or --project (or a projected --crs)"
                    )
        else:
            box = options.on_map(box, crs, side, self.grid)
        make = Domain.on_grid if self.align or self.grid is not None else Domain.from_cell
        try:
            domain = make(box, side, crs)
        except (OverflowError, ZeroDivisionError):
            raise InputError(
                f"--bounds are {self.bounds!r} with cells of {side}: the one must not be beyond all measure for the "
                "other"
            ) from None
        grid = " x ".join(f"{n:,}" for n in domain.shape)
        fits_memory(BYTES_PER_CELL * domain.size, f"a grid of {grid} cells")
        near = Neighbourhood(domain, delta, limits=limits)
        near.check_on_map()
        entry = read_sources(self.sources, domain, "--sources")
        if entry is None:
            return near
        if not isinstance(entry, str) and is_far(entry, domain, near.radius):
            raise InputError(
                f"--sources is {self.sources!r}: none of it is within δ of the map (is it in another CRS?)"
            )
        return near.with_sources(entry)

    def _cells(self, delta: float | str, coordinates: Coordinates) -> tuple[float | str, Coordinates]:
        """Side of a cell, and the coordinates with the map's CRS: --grid says both."""
        if self.grid is None:
            return self._side(delta), coordinates
        others = {"project": coordinates.project, "cell": self.cell, "cells-per-delta": self.cells_per_delta}
        for name, value in others.items():
            if value is not None:
                raise InputError(
                    f"--{name} is {value!r} with --grid, which says it already: leave one of them out"
                )
        crs, side = options.grid(self.grid, "--grid")
        return side, replace(coordinates, project=crs)

    def _side(self, delta: float | str) -> float | str:
        """Side of a cell: as given, or δ / K."""
        from deltahist.domain import length_times

        if self.cell is not None and self.cells_per_delta is not None:
            raise InputError("both --cell and --cells-per-delta are given: it must be at most one of them")
        if self.cell is not None:
            return options.length(self.cell, "--cell")
        parts = options.whole_number(self.cells_per_delta or "1", "--cells-per-delta")
        return delta if parts == 1 else length_times(delta, 1 / parts)


@dataclass(frozen=True, kw_only=True)
class PaidPlace(MapOptions):
    """A map that an account may pay for, whose limit stands beside those of moves."""

    limit: LimitsOrAccounts = None

    @property
    def distances(self) -> list[str] | None:
        return options.of_moves(self.limit) or None
