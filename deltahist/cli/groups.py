"""Groups of options that commands share, and `spread`, by which a command takes a group as one parameter.

A group holds what was typed; its methods say what it stands for, as the library takes it. Choices are checked by Typer.
Lengths, budgets, bounds and whole numbers stay texts that `deltahist.cli.options` reads: budgets must be exact, lengths
have units, and Typer's own messages leave out the value that was typed and the likely cause.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

import typer

from deltahist.cli import options
from deltahist.errors import InputError, fits_memory

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.domain.counting import Counting
    from deltahist.neighbourhood import Neighbourhood

#: Bytes per cell that counting, planning and noise take together; a grid beyond memory is refused at once.
_BYTES_PER_CELL = 48
#: What --crs is for plain numbers.
_PLAIN = "none"


def option(metavar: str, text: str, *names: str) -> Any:
    """An option with a value; its name is that of the parameter unless names are given."""
    return typer.Option(*names, metavar=metavar, help=text)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str) -> Any:
    """What is given by its place."""
    return typer.Argument(metavar=metavar, help=text)


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give Typer every option of a command's groups by itself, and the command its groups.

    A parameter whose type is a dataclass is a group. Required options come first, as in any signature; otherwise all
    stand in the order of the parameters, and within a group in that of its fields.

    >>> @spread
    ... def allocate(*, weights: Path, spending: Spending) -> Any:
    ...     return spending.epsilon
    >>> list(inspect.signature(allocate).parameters)
    ['weights', 'epsilon', 'rho']
    >>> allocate(weights=Path("demand.csv"), epsilon="1", rho=None)
    '1'
    """
    groups: dict[str, Any] = {}
    flat = []
    for each in _parameters(command):
        if is_dataclass(each.annotation):
            groups[each.name] = each.annotation
            flat += _parameters(each.annotation)
        else:
            flat.append(each)

    @wraps(command)
    def run(**given: Any) -> Any:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**given, **made)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        sorted(flat, key=lambda each: each.default is not each.empty)
    )
    return run


def _parameters(taker: Any) -> list[inspect.Parameter]:
    """What a function, or a dataclass when it is made, takes; with types instead of their names."""
    kinds = get_type_hints(taker, include_extras=True)
    return [
        each.replace(annotation=kinds[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(taker).parameters.values()
    ]


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

    @staticmethod
    def _auto(bounds: tuple[float, ...]) -> str:
        """What to say for a map that suits bounds in degrees."""
        from deltahist.domain.extents import extent_of

        extent = extent_of(bounds)
        there = ",".join(f"{b:.15g}" for b in extent.bounds)
        return f"--project auto, which is --project {shlex.quote(extent.crs)} --bounds {there}"


Delta = Annotated[
    str, option("LENGTH", "δ: within this distance everyone is hidden with the full guarantee.")
]
Sources = Annotated[
    str,
    option(
        "WHERE",
        "Where people may appear or vanish: none, boundary, left or right (1-D), or a file of geometries.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Place:
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
    def chooses(self) -> bool:
        """Whether the cells are to be chosen (`nears`) instead of given (`near`)."""
        if self.cell == "auto":
            if self.cells_per_delta is not None:
                raise InputError("--cell is 'auto' with --cells-per-delta: it must be at most one of them")
            return not self.align
        nothing = self.cell is None and self.cells_per_delta is None and self.grid is None and not self.align
        return self._CHOOSES and nothing and len(options.corners(self.bounds, "--bounds")) == 4

    def near(self, coordinates: Coordinates) -> Neighbourhood:
        """The neighbourhood on its domain, checked, with room in memory; cells of δ if nothing is said of them."""
        side, coordinates = self._cells(options.length(self.delta, "--delta"), coordinates)
        return self._near(coordinates, side)

    def nears(self, coordinates: Coordinates) -> Iterator[Neighbourhood]:
        """The neighbourhood on cells that may be chosen, from large to small, as far as there is room in memory."""
        from deltahist.planning import on_cells

        near = self._near(coordinates, options.length(self.delta, "--delta"))
        box, crs = coordinates.of_box(self.bounds)
        return on_cells(box, near.delta, crs, sources=near.sources)

    def _near(self, coordinates: Coordinates, side: float | str) -> Neighbourhood:
        from deltahist.domain import Domain
        from deltahist.domain.geometries import read_sources
        from deltahist.neighbourhood import Neighbourhood
        from deltahist.neighbourhood.sources import is_far

        delta = options.length(self.delta, "--delta")
        box, crs = coordinates.of_box(self.bounds)
        if crs is None:
            for name, value in (("--delta", delta), ("--cell", side)):
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
        fits_memory(_BYTES_PER_CELL * domain.size, f"a grid of {grid} cells")
        near = Neighbourhood(domain, delta)
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
class Spending:
    """What is spent: pure ε or ρ of zero-concentrated privacy."""

    epsilon: Annotated[str | None, option("E", "Budget of pure ε; Laplace noise.")] = None
    rho: Annotated[str | None, option("R", "Instead: budget of ρ-zCDP; Gaussian noise.")] = None

    def keywords(self) -> dict[str, Any]:
        """The one budget that is given, as keyword of `publish` and `plan`."""
        if self.rho is not None and self.epsilon is None:
            return {"rho": options.amount(self.rho, "--rho")}
        if self.epsilon is not None and self.rho is None:
            return {"epsilon": options.amount(self.epsilon, "--epsilon")}
        given = "both --epsilon and --rho are" if self.rho is not None else "neither --epsilon nor --rho is"
        raise InputError(
            f"{given} given: it must be one of them (pure ε with Laplace noise, ρ-zCDP with Gaussian)"
        )


@dataclass(frozen=True, kw_only=True)
class SpendingWithFailure(Spending):
    """A budget of ε that may fail with some probability, too."""

    probability: Annotated[
        str | None,
        option(
            "P",
            "With --epsilon: failure probability that is allowed (1e-6); Gaussian noise is then considered too.",
        ),
    ] = None

    def keywords(self) -> dict[str, Any]:
        """The one budget that is given, with its failure probability, as keywords of `publish` and `plan`."""
        budget = super().keywords()
        if self.probability is None:
            return budget
        if self.rho is not None:
            raise InputError(
                f"--probability is {self.probability!r} with --rho: zCDP holds for every failure probability at once; "
                "--probability goes with --epsilon"
            )
        probability = float(options.amount(self.probability, "--probability"))
        if probability >= 1:
            raise InputError(f"--probability is {self.probability!r}: it must be less than 1, such as 1e-6")
        return {**budget, "probability": probability}


MaxPerUser = Annotated[
    str | None, option("K", "Points of one user that are kept; ε is what all K together pay.")
]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Which rows of a table are read, and how it is written."""

    where: Annotated[
        str | None,
        option(
            "EXPR", "Rows that count: \"kind = 'bus' and speed > 3\"; on columns besides the place. Public."
        ),
    ] = None
    decimal: Annotated[Literal[".", ","], option("MARK", "Point or comma of numbers in text.")] = "."
    format: Annotated[
        Literal["csv", "jsonl", "parquet", "excel", "geo"] | None,
        option("KIND", "csv, jsonl, parquet, excel or geo. [default: by the file's ending]"),
    ] = None
    layer: Annotated[str | None, option("NAME", "Layer, or sheet of a workbook, of several.")] = None


@dataclass(frozen=True, kw_only=True)
class Users(Table):
    """Whose data are protected: single points, or whole users with at most so many points each."""

    user: Annotated[str | None, option("COL", "Column of user names: whole users are protected.")] = None
    max_per_user: MaxPerUser = None

    @property
    def contributions(self) -> int:
        """Points of one user that may move at once: 1 without users."""
        if (self.user is None) != (self.max_per_user is None):
            one, other = "--user", "--max-per-user"
            pair = (
                f"{other} is given without {one}" if self.user is None else f"{one} is given without {other}"
            )
            raise InputError(f"{pair}: both are needed to protect whole users")
        return options.whole_number(self.max_per_user or "1", "--max-per-user")

    def reading(self) -> dict[str, Any]:
        """Keywords of what reads points; the options of rows are called as they are there."""
        return {**vars(self), "max_per_user": None if self.user is None else self.contributions}


@dataclass(frozen=True, kw_only=True)
class Rows(Users):
    """Which rows count: how many of each user, and what becomes of bad rows and points outside the bounds."""

    outside: Annotated[
        Literal["clamp", "drop"] | None,
        option(
            "HOW",
            "clamp: points outside count at the edge; drop: needs --sources boundary. "
            "[default: clamp, but more than 1 in 100 is refused]",
        ),
    ] = None
    drop_bad_rows: Annotated[
        bool, flag("--drop-bad-rows", "Leave out rows that cannot be used; the statement says so.")
    ] = False

    def counting(self, sources: str) -> Counting:
        """How rows become counts, as releases state it; points may only be dropped where they may vanish."""
        from deltahist.domain.counting import Counting

        if self.where is not None:  # before anything takes long
            from deltahist.counts.conditions import Condition

            Condition.of(self.where)
        if self.outside == "drop" and sources != "boundary":
            raise InputError(
                f"--outside is 'drop' with --sources {sources}: a point could vanish by moving out, so it must be "
                "--sources boundary (or --outside clamp)"
            )
        dropped = ["points outside"] if self.outside == "drop" else []
        dropped += ["bad rows"] if self.drop_bad_rows else []
        return Counting(self.contributions, self.user is not None, tuple(dropped), where=self.where)


# Options by themselves that several commands share.
Window = Annotated[str, option("STEPS", "Temporal δ: steps that share one budget.", "--window", "--length")]
WeakProtection = Annotated[
    bool,
    flag("--weak-protection-accepted", "Publish although the budget is so large that hardly anything is protected."),
]
Overwrite = Annotated[bool, flag("--overwrite", "Replace the release if its file exists already.")]
NonNegative = Annotated[
    bool,
    flag(
        "--nonnegative",
        "Answer from non-negative estimates: usually nearer to the truth where many cells are empty, no longer "
        "unbiased; intervals cover at least as often.",
    ),
]
BoxFile = Annotated[
    Path | None, option("FILE.csv", "Boxes: columns west,south,east,north (1-D: low,high) and maybe name.")
]
ReleaseFile = Annotated[Path, argument("RELEASE", "A file that `deltahist publish` wrote.")]
