"""Lengths as text, and grids of the multiples of a length: cells that neighbouring maps share, and their names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, finite, positive

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: The CRS in which INSPIRE names cells.
_INSPIRE = "EPSG:3035"
_LENGTH = re.compile(r"\s*([-+0-9.eE]+)\s*(km|m|cm|mm)\s*")
_METRES = {"km": 1000.0, "m": 1.0, "cm": 0.01, "mm": 0.001}


def has_unit(value: float | str) -> bool:
    """Return whether a length is a text with a unit."""
    return isinstance(value, str) and _LENGTH.fullmatch(value) is not None


def read_length(value: float | str, name: str = "length") -> float:
    """Return a length without its unit, in metres if it has one; raise InputError if it is no number.

    >>> read_length("0.5km"), read_length("7"), read_length(7)
    (500.0, 7.0, 7)
    """
    if not isinstance(value, str):
        return value
    match = _LENGTH.fullmatch(value)
    try:
        return float(value) if match is None else float(match[1]) * _METRES[match[2]]
    except ValueError:
        raise InputError(
            f"{name} is {value!r}: it must be a number, or a number with a unit such as 250m or 0.5km"
        ) from None


def length_times(length: float | str, factor: float) -> float | str:
    """Multiply a length, a number or text with its unit, by a factor.

    >>> length_times("0.5km", 1 / 4)
    '125m'
    """
    product = read_length(length) * factor
    return f"{product:.15g}m" if has_unit(length) else product


def number(value: float | str, crs: str | None, name: str) -> float:
    """Return a length without its unit, metres if it has one, which needs a CRS; raise InputError unless above zero."""
    if crs is None and has_unit(value):
        raise InputError(
            f"{name} is {value!r}, but the domain has no CRS and so no metres: "
            "give a plain number, or state the CRS of the bounds"
        )
    found = read_length(value, name)
    if isinstance(value, str) and not (math.isfinite(found) and found > 0):  # the text, not its metres
        raise InputError(f"{name} is {value!r}: it must be a finite length above zero")
    return float(positive(**{name: found}))


def whole_cells(bounds: Sequence[float], step: float) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Extend bounds outwards to multiples of a step, and count the cells of that side per axis.

    Raises InputError if floats do not hold such a multiple exactly.

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
    """Return the side of square cells whose edges are exactly multiples of it; else None.

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
    """Return whether INSPIRE has names for the cells: on a grid in EPSG:3035 with a step of whole metres."""
    step = domain.grid
    return str(domain.crs).upper() == _INSPIRE and step is not None and step == int(step)


def cell_codes(domain: Domain) -> NDArray[np.str_] | None:
    """Return INSPIRE's names of cells (domain.shape) on a grid in EPSG:3035, "1kmN2689E4337"; None on other domains.

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
