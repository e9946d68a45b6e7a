"""Divide public space into cells on an integer lattice."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, check_finite, check_memory, check_positive, check_whole

#: Minimum number of lattice steps along the side of a cell. In cells of up to a kilometre, a step is at most a
#: millimetre, far below the accuracy of any position.
STEPS_PER_CELL = 1_000_000


def read_length(value: float | str, name: str = "length", *, units: bool = True) -> float:
    """Convert a length to a number, in metres if it has a unit. With `units=False`, units are refused.

    >>> read_length("0.5km"), read_length("7"), read_length(7)
    (500.0, 7.0, 7)
    """
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(.*[0-9.]) *(km|m|cm|mm)", value.strip()) if units else None
    try:
        metres = {"km": 1000.0, "m": 1.0, "cm": 0.01, "mm": 0.001}
        return float(value) if match is None else float(match[1]) * metres[match[2]]
    except ValueError:
        rule = "a number, with a unit or without, such as 250m" if units else "a number, because the map has no metres"
        raise InputError(f"{name} is {value!r}: it must be {rule}") from None


def check_memory_for(domain: Domain) -> None:
    """Raise InputError if there is too little memory to publish a map."""
    # Counting, planning and drawing noise use 45 bytes per cell in total.
    check_memory(45 * domain.size, f"a grid of {domain.size:,} cells")


class CellTooLarge(InputError):  # noqa: N818
    """The requested cell is larger than the whole map."""


@dataclass(frozen=True, init=False)
class Domain:
    """A box of equal cells in one to three dimensions. The third dimension may be time, or the floors of a building.

    Every coordinate is first converted to an integer, the lattice step `floor((x - lo) / step + 1/2)`, clamped to the
    box. Each step lies entirely in one cell, so no point lies on an edge. Distances between cells are integers too.

    Parameters
    ----------
    bounds : (lo, hi) in 1-D, (west, south, east, north) in 2-D, or three lows and three highs in 3-D, in map units.
    shape : number of cells along each axis, (n,), (nx, ny) or (nx, ny, nz). Axis 0 is x.
    cell : side of square cells, in place of a shape. The bounds are extended to whole cells. With a CRS, the side is in
        ground metres (a number, or text such as "250m"), and the map's largest scale converts it to map units.
    crs : a *projected* coordinate reference system (anything that pyproj reads), or None for a plane without units.
    scale : largest ratio of map length to ground metres over the domain, computed by default, and 1 without a CRS.
        `cell` sets `scale`, so that the same scale converts cells and δ.

    >>> domain = Domain(bounds=(0, 0, 1, 1), shape=(10, 10))
    >>> domain.cell, Domain((0, 0, 1, 0.45), cell=0.2).shape
    ((0.1, 0.1), (5, 3))
    >>> domain.locate([[0.3, 0.5]])        # 0.3 / 0.1 is 2.9999999999999996 in floats
    array([[3, 5]])
    """

    bounds: tuple[float, ...]
    shape: tuple[int, ...]
    crs: str | None = None
    scale: float | None = None

    def __init__(
        self,
        bounds: ArrayLike,
        shape: ArrayLike | None = None,
        crs: Any = None,
        scale: float | None = None,
        *,
        cell: float | str | None = None,
    ) -> None:
        if (shape is None) == (cell is None):
            raise InputError(f"shape is {shape!r} and cell is {cell!r}: exactly one of them must be given")
        if cell is not None:
            bounds, shape, scale = _fit_cells(bounds, cell, crs)
        bounds = tuple(float(check_finite(bounds=b)) for b in np.ravel(np.asarray(bounds, dtype=object)))
        shape = tuple(check_whole(shape=n) for n in np.ravel(np.asarray(shape, dtype=object)))
        if crs is not None and not isinstance(crs, str):  # an EPSG code or a pyproj CRS
            crs = f"EPSG:{crs}" if isinstance(crs, int) else crs.to_string()
        for name, value in (("bounds", bounds), ("shape", shape), ("crs", crs)):
            object.__setattr__(self, name, value)
        if (
            (len(bounds), len(shape)) not in ((2, 1), (4, 2), (6, 3))
            or (len(shape) == 3 and crs is not None)
            or not all(map(operator.lt, self.low, self.high))
            or not (0 < max(self.cell) < min(1e300, 1e9 * min(self.cell)))
            or min(self.step) < 1e-290
            or ((farthest := max(map(abs, bounds))) >= 2**53 and np.spacing(farthest) > min(self.step))
            or max(self.lattice_shape) > 1 << 52  # int64 and float64 represent these integers exactly
        ):
            raise InputError(
                f"bounds are {bounds} and shape {shape}: they must be (low, high) and (n,) with low < high, or "
                "(west, south, east, north) and (nx, ny) with west < east and south < north, or, without a CRS, three "
                "lows, three highs and (nx, ny, nz), and cells must not be too thin or too many for the lattice"
            )
        needed = 1.0
        if crs is not None:
            from deltahist.space.crs import scales

            needed = scales(crs, bounds)[1]
        scale = check_positive(scale=needed if scale is None else scale)
        if scale < needed * (1 - 1e-6) or (crs is None and scale != 1):  # versions of PROJ differ by up to a millionth
            raise InputError(f"scale is {scale!r}: it must be at least the map's scale {needed:.7g}, or 1 with no CRS")
        object.__setattr__(self, "scale", None if crs is None else scale)

    @classmethod
    def from_degrees(cls, bounds: Sequence[float], cell: float | str, crs: str = "auto") -> Domain:
        """Make a domain that covers bounds in degrees with square cells.

        Parameters
        ----------
        bounds : west, south, east, north in WGS 84 degrees. If west exceeds east, the bounds cross the antimeridian.
        crs : a projected CRS, or "auto" for the UTM zone that contains the bounds or, if none does, an equal-area map.

        >>> domain = Domain.from_degrees((-74.3, 40.45, -73.6, 40.95), "500m")
        >>> domain.crs, domain.shape
        ('EPSG:32618', (120, 113))
        """
        from deltahist.space.crs import extent_of, extent_on

        extent, crs = extent_of(bounds) if crs == "auto" else (extent_on(bounds, crs), crs)
        return cls(extent, cell=cell, crs=crs)

    @property
    def ndim(self) -> int:
        """Number of dimensions, 1 to 3."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of cells N."""
        return math.prod(self.shape)

    @property
    def sides(self) -> list[str]:
        """Names of the bounds, in their order."""
        names = ("low high", "west south east north", "west south bottom east north top")
        return names[self.ndim - 1].split()

    @property
    def low(self) -> tuple[float, ...]:
        """Lower corner."""
        return self.bounds[: len(self.bounds) // 2]

    @property
    def high(self) -> tuple[float, ...]:
        """Upper corner."""
        return self.bounds[len(self.bounds) // 2 :]

    @property
    def cell(self) -> tuple[float, ...]:
        """Side of a cell along each axis, in units of the CRS."""
        return tuple((hi - lo) / n for lo, hi, n in zip(self.low, self.high, self.shape, strict=True))

    @functools.cached_property
    def steps(self) -> tuple[int, ...]:
        """Number of lattice steps along the side of a cell, for each axis.

        Steps have the same length on all axes if the ratios of the cell's sides are simple. Otherwise the lengths agree
        to nine digits, and dividing by the shorter length never understates a distance.
        """
        cell = self.cell
        ratios = [Fraction(side / cell[-1]).limit_denominator(1000) for side in cell]
        least = math.lcm(*(ratio.denominator for ratio in ratios))
        sides = [int(ratio * least) for ratio in ratios]
        if min(sides) and all(abs(float(r) * cell[-1] / c - 1) < 1e-9 for r, c in zip(ratios, cell, strict=True)):
            return tuple(side * -(-STEPS_PER_CELL // min(sides)) for side in sides)
        shorter = min(cell) / 1e9
        return tuple(round(side / shorter) for side in cell)

    @functools.cached_property
    def lattice_shape(self) -> tuple[int, ...]:
        """Number of lattice steps along each axis of the whole domain."""
        return tuple(n * k for n, k in zip(self.shape, self.steps, strict=True))

    @property
    def step(self) -> tuple[float, ...]:
        """Length of one lattice step along each axis, in units of the CRS."""
        return tuple(c / k for c, k in zip(self.cell, self.steps, strict=True))

    @property
    def unit(self) -> str:
        """Name of the unit of ground lengths: "m" with a CRS, "units" without one."""
        return "units" if self.crs is None else "m"

    def length(self, value: float | str, *, name: str = "length") -> float:
        """Convert a ground length to units of the CRS, using the largest scale factor over the domain."""
        plain = read_length(value, name, units=self.crs is not None)
        return float(check_positive(**{name: plain})) * (self.scale or 1.0)

    def ground(self, length: float) -> float:
        """Convert a length on the map to a ground length (the inverse of `length`)."""
        return length / (self.scale or 1.0)

    @property
    def size_of_cells(self) -> str:
        """Ground size of a cell as text, such as "250 × 250 m"."""
        return " × ".join(f"{float(f'{self.ground(c):.4g}'):,.10g}" for c in self.cell) + f" {self.unit}"

    def lattice(self, points: ArrayLike) -> NDArray[np.int64]:
        """Return the lattice steps (m, ndim) of points, clamped to the domain. All engines use the same formula.

        Points are finite numbers (m, ndim), or (m,) in 1-D, in units of the CRS.
        """
        points = np.asarray_chkfinite(points, np.float64)
        points = points.reshape(len(points), self.ndim)
        steps = [self._steps_along(axis, points[:, axis]) for axis in range(self.ndim)]
        return np.stack(steps, axis=1).astype(np.int64)

    def _steps_along(self, axis: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return lattice steps along one axis, as whole numbers in floats."""
        with np.errstate(over="ignore"):  # a distance that overflows is clamped too
            place = values - self.low[axis]
            place *= 1.0 / self.step[axis]
        place += 0.5
        np.floor(place, out=place)
        return np.clip(place, 0, self.lattice_shape[axis] - 1, out=place)

    def flat_cells(self, columns: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
        """Return the flat cell indices (m,) of points whose coordinates are finite columns, one per axis."""
        flat = np.zeros(len(columns[0]), dtype=np.int64)
        for axis, values in enumerate(columns):
            place = self._steps_along(axis, values)
            # Steps are whole numbers below 2^52, so truncating the quotient gives the exact cell.
            place /= self.steps[axis]
            flat *= self.shape[axis]
            flat += place.astype(np.int64)
        return flat

    def locate(self, points: ArrayLike) -> NDArray[np.int64]:
        """Return the cell indices (m, ndim) of points, clamped to the domain."""
        return np.asarray(self.lattice(points) // np.array(self.steps))

    def edges(self, axis: int) -> NDArray[np.float64]:
        """Return the coordinates of the n + 1 cell edges along an axis."""
        return np.linspace(self.low[axis], self.high[axis], self.shape[axis] + 1)

    def centres(self, axis: int) -> NDArray[np.float64]:
        """Return the coordinates of the n cell centres along an axis."""
        edges = self.edges(axis)
        return (edges[1:] + edges[:-1]) / 2

    def describe(self) -> dict[str, Any]:
        """Return a public description for JSON. `Domain(**description)` recreates the domain."""
        return {"bounds": list(self.bounds), "shape": list(self.shape), "crs": self.crs, "scale": self.scale}


def _fit_cells(bounds: ArrayLike, cell: float | str, crs: Any) -> tuple[tuple[float, ...], tuple[int, ...], Any]:
    """Return the bounds, shape and scale of the map that covers `bounds` with whole cells."""
    rough = Domain(bounds, (1,) * (np.size(np.asarray(bounds, dtype=object)) // 2), crs)
    side = rough.length(cell, name="cell")
    if crs is not None:
        # Rounding up to whole cells may extend the map by one cell, where the scale may be larger.
        wider = Domain((*rough.low, *(hi + side for hi in rough.high)), rough.shape, crs)
        rough = Domain(rough.bounds, rough.shape, crs, wider.scale)
        side = rough.length(cell, name="cell")
    if side > max(rough.cell) * (1 + 1e-9):
        raise CellTooLarge(f"cell is {cell!r}: it (by default δ) must be smaller than the map ({rough.size_of_cells})")
    # Ignore an excess of up to a billionth of a cell, which is a rounding error of the bounds.
    shape = tuple(max(1, math.ceil(extent / side - 1e-9)) for extent in rough.cell)
    high = (lo + n * side for lo, n in zip(rough.low, shape, strict=True))
    return (*rough.low, *high), shape, rough.scale
