"""Grids of the multiples of a step, in whole numbers: cells that neighbouring maps share, and their names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, finite

if TYPE_CHECKING:
    from deltahist.domain.domain import Domain

#: The CRS in which INSPIRE names cells.
_INSPIRE = "EPSG:3035"


def whole_cells(bounds: Sequence[float], step: float) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Bounds extended outwards to multiples of a step, and how many cells of that side there are per axis.

    Raises
    ------
    InputError
        If floats do not hold such a multiple exactly.

    >>> whole_cells((0.2, -3.5, 4, 7.5), 2.5)
    ((0.0, -5.0, 5.0, 7.5), (2, 5))
    """
    side, half = Fraction(step), len(bounds) // 2
    places = [Fraction(finite(bounds=b)) / side for b in bounds]
    low, high = [math.floor(p) for p in places[:half]], [math.ceil(p) for p in places[half:]]
    box = tuple(float(k * side) for k in (*low, *high))
    if any(Fraction(b) != k * side for b, k in zip(box, (*low, *high), strict=True)):
        raise InputError(
            f"step is {step!r}: its multiples must be exact as floats, so that neighbouring maps meet; use a whole "
            "number of the map's units, or halves"
        )
    return box, tuple(max(h - b, 1) for b, h in zip(low, high, strict=True))


def common_step(bounds: Sequence[float], shape: Sequence[int]) -> float | None:
    """The side of cells that are square and lie between multiples of it, exactly; else None.

    >>> common_step((500, 250, 1500, 1000), (4, 3)), common_step((500, 200, 1500, 950), (4, 3))
    (250.0, None)
    """
    half = len(shape)
    low, high = ([Fraction(b) for b in part] for part in (bounds[:half], bounds[half:]))
    sides = {(h - b) / n for b, h, n in zip(low, high, shape, strict=True)}
    side = sides.pop()
    aligned = not sides and Fraction(float(side)) == side and all(b % side == 0 for b in low)
    return float(side) if aligned else None


def has_codes(domain: Domain) -> bool:
    """Whether INSPIRE has names for the cells: on a grid in EPSG:3035 with a step of whole metres."""
    step = domain.grid
    return (
        domain.crs is not None and domain.crs.upper() == _INSPIRE and step is not None and step == int(step)
    )


def cell_codes(domain: Domain) -> NDArray[np.str_] | None:
    """INSPIRE's names of the cells (domain.shape) on a grid in EPSG:3035: "1kmN2689E4337"; None on other domains.

    The side of a cell, then northing and easting of its south-west corner, without as many digits as the side in
    metres has zeros at its end.
    """
    if not has_codes(domain):
        return None
    side = int(domain.grid or 0)
    size = f"{side}m" if side < 1000 else f"{side / 1000:.10g}km"
    digits = str(side)
    divisor = 10 ** (len(digits) - len(digits.rstrip("0")))
    east, north = (
        [f"{letter}{(int(lo) + side * i) // divisor}" for i in range(n)]
        for letter, lo, n in zip("EN", domain.low, domain.shape, strict=True)
    )
    return np.char.add(np.char.add(size, np.array(north)[None, :]), np.array(east)[:, None])
