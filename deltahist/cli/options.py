"""What the text of an option stands for; every message names the option, the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.cli import console
from deltahist.errors import InputError, shortened, typed

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.domain.extents import Extent

#: No coordinate of any map is larger; beyond, floats cannot tell cells apart.
_FARTHEST = 1e12

#: Parameters of strategies that are too long to be shown.
LONG = ("sets", "kernel", "matrix")
#: What a limit of moves must be, and one of steps of time.
_OF_MOVES = (
    "a distance and how many times ε a move over it costs at most, such as 2km:2 or any:4; any:none, or proportional"
)
_OF_STEPS = "a number of steps and how many times the budget so many in a row spend at most, such as 30:2; or any:4"


def corners(text: str, option: str, *, around: bool = False) -> tuple[float, ...]:
    """Corners with west < east and south < north, or low < high; west > east too if they may go `around`.

    >>> corners("-74.3,40.4,-73.6,41", "--bounds")
    (-74.3, 40.4, -73.6, 41.0)
    """
    said = f"{option} is {text!r}"
    rule = "it must be four numbers W,S,E,N, or two in one dimension, separated by commas"
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{said}: {rule}") from None
    if len(values) not in (2, 4):
        raise InputError(f"{said}, that is {len(values)} numbers: {rule}")
    if not all(map(math.isfinite, values)):
        raise InputError(f"{said}: all its numbers must be finite, none NaN or infinite")
    if max(map(abs, values)) > _FARTHEST:
        raise InputError(f"{said}: its numbers must not be beyond {_FARTHEST:g} (a slip in a digit?)")
    names = ("west", "south", "east", "north") if len(values) == 4 else ("low", "high")
    half = len(values) // 2
    for one, low, other, high in zip(names, values, names[half:], values[half:], strict=False):
        if not low < high and not (around and one == "west"):
            rule = f"{one} {low:g} must be less than {other} {high:g} (the order is {', '.join(names)})"
            if option == "--bounds" and one == "west" and max(map(abs, values)) <= 180:
                rule += "; degrees that go across the antimeridian take --project auto"
            raise InputError(f"{said}: {rule}")
    return values


def amount(text: str, option: str) -> Fraction:
    """A budget as the exact fraction that its decimals (or a/b) say.

    >>> amount("0.1", "--epsilon")
    Fraction(1, 10)
    """
    number = typed(text)
    if number is None or number <= 0:
        raise InputError(f"{option} is {shortened(text)}: it must be a finite number above zero")
    return number


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


def has_distance(text: str) -> bool:
    """Whether a --limit is one of what moves cost, and not of what an account may spend."""
    return typed(text) is None and text.strip().lower() not in ("nan", "inf", "-inf")


def of_moves(texts: Sequence[str] | None) -> list[str]:
    """Those of several --limit that are of what moves cost."""
    return [text for text in texts or () if has_distance(text)]


def limits(texts: Sequence[str] | None, option: str) -> list[Any] | None:
    """What is promised beyond δ, as a neighbourhood takes it; None if nothing is said.

    >>> limits(["2km:2", "any:4"], "--limit"), limits(["any:none"], "--limit")
    ([('2km', Fraction(2, 1)), ('any', Fraction(4, 1))], [])
    """
    from deltahist.neighbourhood.profile import ANY, PROPORTIONAL

    if not texts:
        return None
    out: list[Any] = []
    for text in texts:
        if text.strip() == PROPORTIONAL:
            out.append(PROPORTIONAL)
            continue
        distance, _, factor = (part.strip() for part in text.rpartition(":"))
        if not distance or factor != "none":
            out.append(_limit(text, option, _OF_MOVES, "the distance", length))
        elif distance != ANY:
            raise InputError(
                f"{option} is {text!r}: without a limit are all moves, any:none, or those beyond the longest limit"
            )
        elif any(given != text for given in texts if given.strip().startswith(f"{ANY}:")):
            raise InputError(
                f"{option} is {text!r} with another limit for any move: leave one of them out"
            )
    return out


def window_limits(texts: Sequence[str] | None, option: str) -> list[tuple[Any, Fraction]]:
    """What is promised for data that differ in more steps than a window, as the window takes it.

    >>> window_limits(["30:2", "any:4"], "--window-limit")
    [(30, Fraction(2, 1)), ('any', Fraction(4, 1))]
    """
    return [_limit(text, option, _OF_STEPS, "the number of steps", whole_number) for text in texts or ()]


def _limit(
    text: str, option: str, rule: str, what: str, read: Callable[[str, str], float | str]
) -> tuple[float | str, Fraction]:
    """A limit, in space or in time: how far it holds, as `read` reads it, or "any"; and times the budget."""
    from deltahist.neighbourhood.profile import ANY

    distance, _, factor = (part.strip() for part in text.rpartition(":"))
    if not distance or not factor:
        raise InputError(f"{option} is {text!r}: it must be {rule}")
    times = amount(factor, f"{option} {text!r}: the factor")
    if times < 1:
        raise InputError(
            f"{option} is {text!r}: the factor must be at least 1, since what is shorter costs up to the budget itself "
            "(for less take a smaller budget)"
        )
    return (distance if distance == ANY else read(distance, f"{option} {text!r}: {what}")), times


def grid(text: str, option: str) -> tuple[str, float | str]:
    """CRS of a grid and the side of its cells.

    >>> grid("EPSG:3035/1km", "--grid")
    ('EPSG:3035', '1km')
    """
    from deltahist.domain.operations import read_crs

    crs, _, step = text.rpartition("/")
    if not crs or not step:
        raise InputError(
            f"{option} is {text!r}: it must be a CRS and the side of a cell, such as EPSG:3035/1km"
        )
    if not read_crs(crs, option).is_projected:
        raise InputError(f"{option} is {text!r}: degrees are not lengths, its CRS must be projected")
    return crs, length(step, option)


def in_degrees(text: str, option: str) -> Extent:
    """The map that suits corners in degrees, and the box on it that covers them; west > east across the antimeridian.

    >>> in_degrees("-74.3,40.45,-73.6,40.95", "--bounds").crs
    'EPSG:32618'
    """
    from deltahist.domain.extents import extent_of, looks_like_degrees

    box = corners(text, option, around=True)
    if not looks_like_degrees(box):
        raise InputError(
            f"{option} is {text!r}: with --project auto it must be W,S,E,N in degrees; if these are metres, name their "
            "CRS, such as --project EPSG:32618"
        )
    return extent_of(box)


def on_map(box: tuple[float, ...], crs: str, side: float | str, grid: str | None = None) -> tuple[float, ...]:
    """Corners on a projected map: as they are; on a grid those of the degrees that they must be.

    Raises InputError if they are surely degrees, all of them smaller than a cell, and there is no grid.
    """
    from deltahist.domain import metres
    from deltahist.domain.extents import extent_on, looks_like_degrees

    cell = metres(side) if isinstance(side, str) else side
    if not looks_like_degrees(box) or max(box[2] - box[0], box[3] - box[1]) >= cell:
        return box
    bounds = extent_on(box, crs).bounds
    said, there = ",".join(f"{b:g}" for b in box), ",".join(f"{b:.15g}" for b in bounds)
    if grid is not None:
        console.note(f"--bounds {said} are taken as degrees: {there} in {crs}")
        return bounds
    raise InputError(
        f"--bounds are {said}: all of it is smaller than a cell of {cell:g} m; bounds must be in metres of {crs} "
        f"(these look like degrees, {there} there; --project auto takes degrees)"
    )


def whole_number(text: str, option: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise InputError(f"{option} is {shortened(text)}: it must be a whole number of at least 1")
    return value


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
