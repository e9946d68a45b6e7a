"""Texts of options and what they stand for; every message names the option, the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist.errors import InputError, fits_memory

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.neighbourhood import Neighbourhood

#: Bytes per cell that counting, planning and noise take together; a grid beyond memory is refused at once.
_BYTES_PER_CELL = 48
#: No coordinate of any map is larger; beyond, floats cannot tell cells apart.
_FARTHEST = 1e12

# Options that several commands share.
Bounds = Annotated[
    str,
    typer.Option(
        metavar="W,S,E,N",
        help="Corners of the map, in the projected CRS when there is one; LO,HI in one dimension.",
    ),
]
Cell = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH", help="Side of a cell: 250m (ground metres), or a plain number. [default: δ]"
    ),
]
CellsPerDelta = Annotated[
    str | None, typer.Option(metavar="K", help="Instead of --cell: cells with a side of δ / K.")
]
Delta = Annotated[
    str,
    typer.Option(
        metavar="LENGTH", help="δ: within this distance everyone is hidden with the full guarantee."
    ),
]
Sources = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        help="Where people may appear or vanish: none, boundary, left or right (1-D), or a file of geometries.",
    ),
]
#: Parameters of strategies that are too long to be shown.
LONG = ("sets", "kernel", "matrix")
Epsilon = Annotated[str | None, typer.Option(metavar="E", help="Budget of pure ε; Laplace noise.")]
Rho = Annotated[str | None, typer.Option(metavar="R", help="Instead: budget of ρ-zCDP; Gaussian noise.")]
Probability = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="With --epsilon: failure probability that is allowed (1e-6); Gaussian noise is then considered too.",
    ),
]
NonNegative = Annotated[
    bool,
    typer.Option(
        "--nonnegative",
        help="Answer from non-negative estimates: usually nearer to the truth where many cells are empty, no longer "
        "unbiased; intervals cover at least as often.",
    ),
]
X = Annotated[
    str | None, typer.Option(metavar="COL", help="Column of x or longitude: a name, or a number from 0.")
]
Y = Annotated[str | None, typer.Option(metavar="COL", help="Column of y or latitude; none in 1-D.")]
Crs = Annotated[str | None, typer.Option(metavar="CRS", help="CRS of the points, such as EPSG:4326.")]
Project = Annotated[
    str | None, typer.Option(metavar="CRS", help="Projected CRS of the map, such as EPSG:32618.")
]
User = Annotated[
    str | None, typer.Option(metavar="COL", help="Column of user names: whole users are protected.")
]
Outside = Annotated[
    str,
    typer.Option(
        metavar="HOW", help="clamp: points outside count at the edge; drop: needs --sources boundary."
    ),
]
Length = Annotated[
    str,
    typer.Option("--window", "--length", metavar="STEPS", help="Temporal δ: steps that share one budget."),
]
MaxPerUser = Annotated[
    str | None,
    typer.Option(metavar="K", help="Points of one user that are kept; ε is what all K together pay."),
]
Box = Annotated[
    list[str] | None,
    typer.Option("--box", metavar="W,S,E,N", help="A box, in the release's coordinates; may be repeated."),
]
BoxFile = Annotated[
    Path | None,
    typer.Option(
        "--boxes",
        metavar="FILE.csv",
        help="Boxes: columns west,south,east,north (1-D: low,high) and maybe name.",
    ),
]
ReleaseFile = Annotated[
    Path, typer.Argument(metavar="RELEASE", help="A file that `deltahist publish` wrote.")
]


def numbers(text: str, option: str, allowed: Sequence[int] = (2, 4)) -> tuple[float, ...]:
    """Finite numbers separated by commas, as many as one of `allowed` says.

    >>> numbers("-74.3,40.4,-73.6,41", "--bounds")
    (-74.3, 40.4, -73.6, 41.0)
    """
    rule = "it must be four numbers W,S,E,N, or two in one dimension, separated by commas"
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} is {text!r}: {rule}") from None
    if len(values) not in allowed:
        raise InputError(f"{option} is {text!r}, that is {len(values)} numbers: {rule}")
    if not all(map(math.isfinite, values)):
        raise InputError(f"{option} is {text!r}: all its numbers must be finite, none NaN or infinite")
    if max(map(abs, values)) > _FARTHEST:
        raise InputError(
            f"{option} is {text!r}: its numbers must not be beyond {_FARTHEST:g} (a slip in a digit?)"
        )
    return values


def corners(text: str, option: str) -> tuple[float, ...]:
    """Corners with west < east and south < north."""
    values = numbers(text, option)
    half = len(values) // 2
    for low, high, names in zip(values, values[half:], (("west", "east"), ("south", "north")), strict=False):
        if not low < high:
            one, other = names if half == 2 else ("low", "high")
            raise InputError(
                f"{option} is {text!r}: {one} {low:g} must be less than {other} {high:g} "
                f"(the order is {'west, south, east, north' if half == 2 else 'low, high'})"
            )
    return values


def amount(text: str, option: str) -> Fraction:
    """A budget as the exact fraction that its decimals (or a/b) say.

    >>> amount("0.1", "--epsilon")
    Fraction(1, 10)
    """
    try:
        rough = float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InputError(f"{option} is {text!r}: it must be a finite number above zero") from None
    if not math.isfinite(rough) or rough <= 0:
        raise InputError(f"{option} is {text!r}: it must be a finite number above zero")
    return Fraction(text)


def budget(
    epsilon: str | None, rho: str | None, noise: str | None = None, probability: str | None = None
) -> dict[str, Any]:
    """The one budget that is given, as keyword of `publish` and `plan`."""
    if (epsilon is None) == (rho is None):
        given = "both --epsilon and --rho are" if rho is not None else "neither --epsilon nor --rho is"
        raise InputError(
            f"{given} given: it must be one of them (pure ε with Laplace noise, ρ-zCDP with Gaussian)"
        )
    if noise is not None and noise not in ("laplace", "gaussian"):
        raise InputError(f"--noise is {noise!r}: it must be laplace or gaussian")
    if noise == "laplace" and rho is not None:
        raise InputError("--noise is 'laplace' with --rho: Laplace noise takes --epsilon (pure)")
    if noise == "gaussian" and rho is None and probability is None:
        raise InputError(
            "--noise is 'gaussian' with --epsilon alone: Gaussian noise is never pure; give --rho (zCDP), or "
            "--probability, such as 1e-6"
        )
    if rho is not None:
        if probability is not None:
            raise InputError(
                f"--probability is {probability!r} with --rho: zCDP holds for every failure probability at once; "
                "--probability goes with --epsilon"
            )
        return {"rho": amount(str(rho), "--rho")}
    out: dict[str, Any] = {"epsilon": amount(str(epsilon), "--epsilon")}
    if probability is not None and noise != "laplace":
        out["probability"] = float(amount(probability, "--probability"))
        if out["probability"] >= 1:
            raise InputError(f"--probability is {probability!r}: it must be less than 1, such as 1e-6")
    return out


def length(text: str, option: str) -> float | str:
    """A length as the library takes it: text with its unit, or a number.

    Raises InputError unless it is above zero.
    """
    from deltahist.domain import metres

    try:
        value = float(text)
    except ValueError:
        try:
            value = metres(text)
        except InputError:
            rule = "it must be a number, or a number with a unit such as 250m or 0.5km"
            raise InputError(f"{option} is {text!r}: {rule}") from None
        if math.isfinite(value) and value > 0:
            return text.strip()
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{option} is {text!r}: it must be a finite length above zero")
    return value


def cell_side(cell: str | None, cells_per_delta: str | None, delta: float | str) -> float | str:
    """Side of a cell: as given, or δ / K."""
    from deltahist.domain import metres

    if cell is not None and cells_per_delta is not None:
        raise InputError("both --cell and --cells-per-delta are given: it must be at most one of them")
    if cell is not None:
        return length(cell, "--cell")
    parts = whole_number(cells_per_delta or "1", "--cells-per-delta")
    if isinstance(delta, float):
        return delta / parts
    return delta if parts == 1 else f"{metres(delta) / parts!r}m"


def whole_number(text: str, option: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise InputError(f"{option} is {text!r}: it must be a whole number of at least 1")
    return value


def user_bound(user: str | None, max_per_user: str | None) -> int:
    """Points of one user that may move at once: 1 without users."""
    points = whole_number(max_per_user or "1", "--max-per-user")
    if (user is None) != (max_per_user is None):
        there, missing = ("--max-per-user", "--user") if user is None else ("--user", "--max-per-user")
        raise InputError(f"{there} is given without {missing}: both are needed to protect whole users")
    return points


def space(
    bounds: str, cell: str | None, cells_per_delta: str | None, delta: str, sources: str, crs: str | None
) -> Neighbourhood:
    """Domain and neighbourhood from their options, checked, with room in memory."""
    from deltahist.domain import Domain
    from deltahist.domain.geometries import read_sources
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.neighbourhood.sources import is_far

    box = corners(bounds, "--bounds")
    moved = length(delta, "--delta")
    side = cell_side(cell, cells_per_delta, moved)
    if crs is None:
        for option, value in (("--delta", moved), ("--cell", side)):
            if isinstance(value, str):
                raise InputError(
                    f"{option} is {value!r}, but there is no CRS and so no metres: give a plain number in the "
                    "units of --bounds, or --project (or a projected --crs)"
                )
    check_bounds(box, crs, side)
    try:
        domain = Domain.from_cell(box, side, crs)
    except (OverflowError, ZeroDivisionError):
        raise InputError(
            f"--bounds are {bounds!r} with cells of {side}: the one must not be beyond all measure for the other"
        ) from None
    fits_memory(
        _BYTES_PER_CELL * domain.size, f"a grid of {' x '.join(f'{n:,}' for n in domain.shape)} cells"
    )
    near = Neighbourhood(domain, moved)
    entry = read_sources(sources, domain, "--sources")
    if entry is None:
        return near
    if not isinstance(entry, str) and is_far(entry, domain, near.radius):
        raise InputError(
            f"--sources is {sources!r}: none of it is within δ of the map (is it in another CRS?)"
        )
    return near.with_sources(entry)


def read_boxes(box: Sequence[str] | None, file: Path | None, domain: Domain) -> tuple[Any, list[str]]:
    """Boxes from options and from a file, as (m, 2 d) array with one name each."""
    import numpy as np

    from deltahist.domain.geometries import read_box_file

    wanted = 2 * domain.ndim
    rows, names = [], []
    for text in box or []:
        values = corners(text, "--box")
        if len(values) != wanted:
            raise InputError(
                f"--box is {text!r}: the map has {domain.ndim} dimension(s), it must be {wanted} numbers"
            )
        rows.append(values)
        names.append(",".join(f"{v:.15g}" for v in values))
    array = np.array(rows, dtype=np.float64).reshape(-1, wanted)
    if file is None:
        return array, names
    more, labels = read_box_file(file, wanted, "--boxes")
    return np.concatenate([array, more]), names + labels


def level_of(text: str) -> float:
    """A confidence level between 0 and 1."""
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0 < level < 1:
        hint = " (a percentage?)" if 1 < level <= 100 else ""
        raise InputError(f"--level is {text!r}: it must lie between 0 and 1, such as 0.95{hint}")
    return level


def map_crs(crs: str | None, project: str | None, bounds: str) -> str | None:
    """CRS of the map: --project, or a projected --crs.

    Raises InputError if the points are in degrees and nothing says how to project them; the message has the
    options to use.
    """
    from deltahist.domain.geometries import in_utm, looks_like_degrees
    from deltahist.domain.operations import read_crs

    if project is not None:
        if read_crs(project, "--project").is_geographic:
            raise InputError(f"--project is {project!r}: degrees are not lengths, it must be a projected CRS")
        if crs is not None:
            read_crs(crs, "--crs")
        return project
    if crs is None or not read_crs(crs, "--crs").is_geographic:
        return crs
    box = corners(bounds, "--bounds")
    use = "--project with the projected CRS of the region, such as EPSG:32618, and --bounds in its metres"
    if looks_like_degrees(box):
        code, metres = in_utm(box)
        use = f"--project {code} --bounds {','.join(f'{m:.0f}' for m in metres)}"
    raise InputError(f"--crs is {crs!r}: degrees are not lengths, so the points must be projected; add {use}")


def check_bounds(box: tuple[float, ...], crs: str | None, side: float | str) -> None:
    """Raise InputError if bounds on a projected map are surely degrees: smaller than a cell."""
    from deltahist.domain import metres
    from deltahist.domain.geometries import in_utm, looks_like_degrees

    if crs is None or not looks_like_degrees(box):
        return
    cell = metres(side) if isinstance(side, str) else side
    if max(box[2] - box[0], box[3] - box[1]) < cell:
        code, there = in_utm(box)
        other = f", which are {','.join(f'{m:.0f}' for m in there)} in {code}" if crs.upper() == code else ""
        text = ",".join(f"{b:g}" for b in box)
        raise InputError(
            f"--bounds are {text}: all of it is smaller than a cell of {cell:g} m; bounds must be in metres of {crs} "
            f"(these look like degrees{other})"
        )
