"""The map: the coordinates of a file, the cells, and who may be confused with whom on them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deltahist.cli import console
from deltahist.cli.groups import MAP, PRIVACY
from deltahist.cli.options import corners, flag, length, limits, of_moves, option, whole_number
from deltahist.errors import BYTES_PER_CELL, InputError, OutsideBounds, fits_memory

if TYPE_CHECKING:
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood

#: Value of --crs for plain numbers.
_PLAIN = "none"
#: Reader of --bounds, which may go around the world with --project auto.
BOUNDS = partial(corners, around=True)


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """The columns of a file's coordinates, their CRS, and the CRS of the map."""

    x: Annotated[str | None, option("COL", "Column of x or longitude: a name, or a number from 0.")] = None
    y: Annotated[str | None, option("COL", "Column of y or latitude; none in 1-D.")] = None
    crs: Annotated[
        str | None, option("CRS", "CRS of the points, such as EPSG:4326; none: plain numbers of a plane.")
    ] = None
    project: Annotated[
        str | None,
        option("CRS", "Projected CRS of the map (EPSG:32618); auto: one that suits --bounds in degrees."),
    ] = None

    def columns(self, domain: Domain) -> dict[str, Any]:
        """Return keywords of the readers of points: `x`, `y` and `crs`, a column for each dimension of the map."""
        if domain.ndim == 1 and self.y is not None:
            raise InputError(f"--y is {self.y!r}, but --bounds has two numbers: one dimension takes --x only")
        if domain.ndim == 2 and (self.x is None) != (self.y is None):
            missing = "x" if self.x is None else "y"
            raise InputError(f"--{missing} is missing: two dimensions take both --x and --y")
        return {"x": self.x, "y": self.y, "crs": None if self.crs == _PLAIN else self.crs}

    def of_box(self, bounds: tuple[float, ...]) -> tuple[tuple[float, ...], str | None]:
        """Return corners and CRS of the map: --bounds themselves, or with --project auto a map of those degrees."""
        from deltahist.space.crs import extent_of, looks_like_degrees

        if self.project == "auto":
            if not looks_like_degrees(bounds):
                raise InputError(
                    f"--bounds are {_text(bounds)}: with --project auto it must be W,S,E,N in degrees; if these are "
                    "metres, name their CRS, such as --project EPSG:32618"
                )
            extent = extent_of(bounds)
            return extent.bounds, extent.crs
        if len(bounds) == 4 and not bounds[0] < bounds[2]:
            around = max(map(abs, bounds)) <= 180
            raise InputError(
                f"--bounds are {_text(bounds)}: west {bounds[0]:g} must be less than east {bounds[2]:g} (the order is "
                "west, south, east, north)"
                + ("; degrees that go across the antimeridian take --project auto" if around else "")
            )
        return bounds, self.of_map(bounds)

    def of_map(self, bounds: tuple[float, ...]) -> str | None:
        """Return the CRS of the map: --project, or a projected --crs; None for a plane of plain numbers.

        Raises InputError if the points are in degrees, or seem to be, and no option projects them; the message has the
        options to use.
        """
        from deltahist.space.crs import are_degrees, looks_like_degrees
        from deltahist.space.operations import read_crs

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
                    f"--bounds are {_text(bounds)} without a CRS: these look like longitudes "
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
        """Return the coordinates of a map without points, whose CRS --project alone tells."""
        return cls(project=crs) if crs == "auto" or grid is not None else cls(crs=crs)

    @staticmethod
    def _auto(bounds: tuple[float, ...]) -> str:
        """Return the options of a map that suits bounds in degrees."""
        from deltahist.space.crs import extent_of

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
    Any, option("LENGTH", "δ: within this distance everyone is hidden with the full guarantee.", read=length)
]
_LIMITS = "Moves over a distance cost at most so many ε: 2km:2, any:4, any:none, proportional; repeat it."
Limits = Annotated[list[str] | None, option("DISTANCE:TIMES", f"{_LIMITS} [default: any:4]", panel=PRIVACY)]
LimitsOrAccounts = Annotated[
    list[str] | None,
    option(
        "DISTANCE:TIMES|E",
        f"{_LIMITS} E: what --account may spend.",
        panel=PRIVACY,
    ),
]
Sources = Annotated[
    str,
    option(
        "WHERE", "Where people may appear or vanish: none, boundary, left, right or a file.", panel=MAP
    ),
]


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """The map with its cells, and who may be confused with whom on it."""

    bounds: Annotated[
        tuple[float, ...],
        option(
            "W,S,E,N", "Corners on the map; in degrees with --project auto; LO,HI in 1-D.", read=BOUNDS
        ),
    ]
    delta: Delta
    limit: Limits = None
    cell: Annotated[
        float | str | None,
        option(
            "LENGTH",
            "Side of a cell, such as 250m, or auto: the least error. [default: auto; δ in 1-D]",
            read=length,
        ),
    ] = None
    cells_per_delta: Annotated[
        int | None, option("K", "Instead of --cell: cells with a side of δ / K.", read=whole_number, panel=MAP)
    ] = None
    grid: Annotated[
        str | None,
        option("CRS/STEP", "Instead of --project and --cell: cells of a grid, such as EPSG:3035/1km.", panel=MAP),
    ] = None
    align: Annotated[
        bool, flag("--align", "Cells lie at multiples of --cell, a length on the map then.", MAP)
    ] = False
    sources: Sources = "none"

    #: Whether cells are chosen where no option is about them.
    _CHOOSES: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cell is not None and self.cells_per_delta is not None:
            raise InputError("both --cell and --cells-per-delta are given: it must be at most one of them")

    @property
    def distances(self) -> list[str] | None:
        """The limits of moves; None without any."""
        return self.limit

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
        from deltahist.planning.cells import SIDES, length_times
        from deltahist.space.domain import CellTooLarge

        try:
            near = self._near(coordinates, self.delta)
        except CellTooLarge:  # δ may still fit between corners; if not, it is δ that is too long
            near = self._near(coordinates, length_times(self.delta, SIDES[-1]))
        box, crs = coordinates.of_box(self.bounds)
        # A function of the distance becomes limits on the map that is chosen, not on this one.
        wanted = limits(self.distances, "--limit")
        return on_cells(box, near.delta, crs, sources=near.sources, limits=wanted)

    @contextmanager
    def suggesting_options(self, coordinates: Coordinates) -> Iterator[None]:
        """Let a refusal of points outside say with which options they would lie inside."""
        try:
            yield
        except OutsideBounds as problem:
            text = str(problem)
            cure = self._suggest(problem.kind, coordinates)
            if cure:  # before the way around it
                cause, _, around = text.partition(". ")
                text = f"{cause}; mend it by {cure}. {around}"
            raise OutsideBounds(text, problem.kind) from None

    def _suggest(self, kind: str, coordinates: Coordinates) -> str:
        """Return what to change for each cause that can be found; nothing for others."""
        from deltahist.space.crs import extent_on

        box, crs = self._cells(coordinates)[1].of_box(self.bounds)
        plain = "" if crs is not None else " (with --cell and --delta in the same units)"
        match kind:
            case "swapped" if coordinates.x is not None:
                swapped = f"--x {coordinates.y} --y {coordinates.x}"
                if coordinates.project == "auto" and max(map(abs, self.bounds)) <= 90:  # latitudes first, maybe
                    turned = _text([self.bounds[i] for i in (1, 0, 3, 2)])
                    swapped += f" or, if --x is the longitude already, by --bounds {turned} (longitudes first)"
                return swapped
            case "projected":
                return f"--crs {crs}"
            case "degrees":
                return f"--crs EPSG:4326 --project {crs or 'with the projected CRS of the bounds, such as EPSG:32618'}"
            case "bounds" if crs is not None:
                return f"--bounds {_text(extent_on(box, crs).bounds)}"
            case "small bounds":
                return f"--bounds {_text([1000 * b for b in box])}{plain}"
            case "large bounds" if crs is None:
                return f"--bounds {_text([b / 1000 for b in box])}{plain}"
        return ""

    def _near(self, coordinates: Coordinates, side: float | str) -> Neighbourhood:
        from deltahist.space.domain import Domain
        from deltahist.space.geometries import read_sources
        from deltahist.space.neighbourhood import Neighbourhood, is_far

        box, crs = coordinates.of_box(self.bounds)
        if crs is not None:
            box = _on_map(box, crs, side, self.grid)
        make = Domain.on_grid if self.align or self.grid is not None else Domain.from_cell
        domain = make(box, side, crs)
        shape = " x ".join(f"{n:,}" for n in domain.shape)
        fits_memory(BYTES_PER_CELL * domain.size, f"a grid of {shape} cells")
        near = Neighbourhood(domain, self.delta, limits=limits(self.distances, "--limit"))
        near.check_on_map()
        entry = read_sources(self.sources, domain, "--sources")
        if entry is None:
            return near
        if not isinstance(entry, str) and is_far(entry, domain, near.radius):
            raise InputError(
                f"--sources is {self.sources!r}: none of it is within δ of the map (is it in another CRS?)"
            )
        return near.with_sources(entry)

    def _cells(self, coordinates: Coordinates) -> tuple[float | str, Coordinates]:
        """Return the side of a cell, as given or δ / K, and the coordinates with the map's CRS: --grid tells both."""
        from deltahist.space.grids import length_times

        if self.grid is None:
            if self.cell is not None:
                return self.cell, coordinates
            delta: float | str = self.delta
            return length_times(delta, 1 / self.cells_per_delta) if self.cells_per_delta else delta, coordinates
        others = {"project": coordinates.project, "cell": self.cell, "cells-per-delta": self.cells_per_delta}
        for name, value in others.items():
            if value is not None:
                raise InputError(f"--{name} is {value!r} with --grid, which says it already: leave one of them out")
        crs, side = _grid(self.grid)
        return side, replace(coordinates, project=crs)


@dataclass(frozen=True, kw_only=True)
class PaidPlace(MapOptions):
    """A map that an account may pay for, whose limit stands beside the limits of moves."""

    limit: LimitsOrAccounts = None

    @property
    def distances(self) -> list[str] | None:
        return of_moves(self.limit) or None


def _grid(text: str) -> tuple[str, float | str]:
    """Return the CRS of a grid and the side of its cells."""
    from deltahist.space.operations import read_crs

    crs, _, step = text.rpartition("/")
    if not crs or not step:
        raise InputError(f"--grid is {text!r}: it must be a CRS and the side of a cell, such as EPSG:3035/1km")
    if not read_crs(crs, "--grid").is_projected:
        raise InputError(f"--grid is {text!r}: degrees are not lengths, its CRS must be projected")
    return crs, length(step, "--grid")


def _on_map(box: tuple[float, ...], crs: str, side: float | str, grid: str | None) -> tuple[float, ...]:
    """Return corners on a projected map; on a grid, corners in degrees.

    Raises InputError if they are surely degrees, all of them smaller than a cell, and there is no grid.
    """
    from deltahist.space.crs import extent_on, looks_like_degrees
    from deltahist.space.grids import has_unit, read_length

    cell = read_length(side) if has_unit(side) else side
    if not looks_like_degrees(box) or isinstance(cell, str) or max(box[2] - box[0], box[3] - box[1]) >= cell:
        return box
    bounds = extent_on(box, crs).bounds
    given, there = ",".join(f"{b:g}" for b in box), ",".join(f"{b:.15g}" for b in bounds)
    if grid is not None:
        console.note(f"--bounds {given} are taken as degrees: {there} in {crs}")
        return bounds
    raise InputError(
        f"--bounds are {given}: all of it is smaller than a cell of {cell:g} m; bounds must be in metres of {crs} "
        f"(these look like degrees, {there} there; --project auto takes degrees)"
    )


def _text(box: Sequence[float]) -> str:
    return ",".join(f"{b:.10g}" for b in box)
