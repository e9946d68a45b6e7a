"""One coordinate operation for a whole domain, from other coordinates to the map, and how far it tears.

Between two coordinate systems there may be many operations, each for an area of its own. Where a library chooses
one for each point, two points that are a hand apart can land hundreds of metres apart. Here one is taken for all.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import DeltaHistWarning, InputError, is_number

if TYPE_CHECKING:
    import geopandas as gpd

    from deltahist.space.crs import Extent
    from deltahist.space.domain import Domain

#: Coordinates x and y.
Places: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
#: Lines along each axis on which an operation is looked at for jumps, and intervals of a line.
_LINES, _INTERVALS = 33, 128
#: Suspicious intervals are cut into this many, again and again; a jump stays as large, a bend does not.
_CUT, _ROUNDS, _MOST_SUSPECTS = 8, 7, 300_000
#: Derivatives are taken over this part of an interval.
_NEARBY = 1e-3
#: Part of the domain's sides by which an operation is looked at beyond the bounds.
_BEYOND = 1 / 8
#: Coordinates on a map are right to about a hundredth of a millimetre, in its units.
_PRECISION = 1e-5


def read_crs(text: Any, name: str = "crs") -> Any:
    """Return the pyproj CRS of a text; raise InputError if pyproj cannot read it."""
    import pyproj

    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError:
        raise InputError(f"{name} is {text!r}: it must be a known CRS such as EPSG:32618") from None


def single(source: Any, target: Any, area: tuple[float, ...] | None) -> Any:
    """Return the pyproj transformer from a CRS to another that suits an area (W, S, E, N in degrees) best.

    Raises InputError if there is none.
    """
    from pyproj.transformer import AreaOfInterest, TransformerGroup

    with warnings.catch_warnings():
        # That a more accurate one would need grids which are not installed: the name says which one was taken.
        warnings.simplefilter("ignore", UserWarning)
        of_interest = None if area is None else AreaOfInterest(*area)
        group = TransformerGroup(source, target, always_xy=True, area_of_interest=of_interest)
    if not group.transformers:
        raise InputError(
            f"coordinates in {source.to_string()[:60]} cannot be brought to {target.to_string()[:60]}: no operation "
            "between them is known here (grids that are not installed?)"
        )
    return group.transformers[0]


def area_of(crs: Any, low: ArrayLike, high: ArrayLike) -> tuple[float, float, float, float] | None:
    """Return west, south, east and north, in degrees, of a box on a map; None if they cannot be worked out."""
    import pyproj

    x, y = lattice_of(low, high, 9)
    # Which of several operations it is makes no difference for a rough area.
    back = pyproj.Transformer.from_crs(read_crs(crs), "EPSG:4326", always_xy=True)
    lon, lat = (np.asarray(v)[np.isfinite(v)] for v in back.transform(x, y))
    if not len(lon) or not len(lat):
        return None
    turn = (lon - lon[0] + 180) % 360 - 180  # a domain may lie across the antimeridian
    west, east = ((lon[0] + t + 180) % 360 - 180 for t in (turn.min(), turn.max()))
    return float(west), float(lat.min()), float(east), float(lat.max())


def lattice_of(low: ArrayLike, high: ArrayLike, number: int) -> Places:
    """Return the places of a lattice over a box, its rim included."""
    sides = (np.linspace(lo, hi, number) for lo, hi in zip(np.ravel(low), np.ravel(high), strict=True))
    x, y = np.meshgrid(*sides, indexing="ij")
    return x, y


@dataclass(frozen=True)
class Projection:
    """How coordinates came to the map, as a release says it.

    Parameters
    ----------
    name : the one operation that was used, in the words of the PROJ library.
    jump : how much further than a smooth map it may take two points of the domain apart, in units of the map, as far
        as was measured; 0 for operations without grids of corrections.
    """

    name: str
    jump: float = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and is_number(self.jump) and 0 <= self.jump < float("inf")):
            raise InputError(f"projection is {self.name!r}, {self.jump!r}: it must be a name and a length")

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready public description; `Projection(**description)` makes it again."""
        return {"name": self.name, "jump": self.jump}


class Operation:
    """One operation between a domain's map and another CRS, for all coordinates alike."""

    def __init__(self, projection: Projection, transformer: Any) -> None:
        self.projection, self._transformer = projection, transformer

    @classmethod
    def onto(cls, domain: Domain, source: Any) -> Operation | None:
        """Return the operation that brings coordinates in a CRS to the map; None if they are in the map's.

        Raises InputError if there is none.
        """
        given, own = read_crs(source), read_crs(domain.crs)
        if given.equals(own, ignore_axis_order=True):
            return None
        chosen = single(given, own, area_of(domain.crs, domain.low, domain.high))
        # A little beyond the bounds too: points outside are counted at the rim.
        low, high = _wider(domain)
        there = chosen.transform(*lattice_of(low, high, 17), direction="INVERSE")
        if "ballpark" in chosen.description.lower():
            warnings.warn(
                f"coordinates come to {domain.crs} by {chosen.description!r}, which shifts nothing between the two "
                "datums: places may be off by a hundred metres or more (a grid that is not installed, or a "
                "CRS that says too little?)",
                DeltaHistWarning,
                stacklevel=2,
            )
        name = chosen.description
        if name == "unknown":  # of a CRS that is not registered
            name = own.coordinate_operation.method_name
        return cls(Projection(name, largest_jump(chosen.transform, there, domain)), chosen)

    @classmethod
    def off(cls, domain: Domain | Extent, target: Any) -> Operation:
        """Return the operation from the map to another CRS, for public coordinates."""
        return off(domain.crs, domain.low, domain.high, target)

    def __call__(self, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return coordinates x and y after the operation; infinite where there are none."""
        return [np.asarray(c) for c in self._transformer.transform(*columns)]

    def back(self, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return coordinates x and y before the operation."""
        return [np.asarray(c) for c in self._transformer.transform(*columns, direction="INVERSE")]

    def shapes(self, shapes: NDArray[Any]) -> NDArray[Any]:
        """Return geometries (m,) after the operation; None where there was none, or a vertex has no place there."""
        import shapely

        moved = shapely.transform(shapes, lambda v: np.column_stack(self(v[:, 0], v[:, 1])))
        places, owner = shapely.get_coordinates(moved, return_index=True)
        moved[owner[~np.isfinite(places).all(axis=1)]] = None
        return moved

    def frame(self, frame: gpd.GeoDataFrame, crs: Any) -> gpd.GeoDataFrame:
        """Return a frame of geometries after the operation, which is to a CRS.

        Raises InputError if a vertex has no place there.
        """
        import shapely

        moved = self.shapes(frame.geometry.to_numpy())
        if (shapely.is_missing(moved) & frame.geometry.notna().to_numpy()).any():
            raise InputError(
                f"some geometries lie outside the area of {self.projection.name!r}: they must have a place in {crs}"
            )
        return frame.set_geometry(moved, crs=read_crs(crs))


@functools.lru_cache(maxsize=64)
def off(crs: Any, low: tuple[float, ...], high: tuple[float, ...], target: Any) -> Operation:
    """Return `Operation.off`, kept for the boxes asked last."""
    chosen = single(read_crs(crs), read_crs(target), area_of(crs, low, high))
    return Operation(Projection(chosen.description), chosen)


def largest_jump(forward: Callable[..., Places], places: tuple[ArrayLike, ArrayLike], domain: Domain) -> float:
    """Return how far an operation tears on any way through a domain, in units of the map; 0 if it only rounds.

    Looked for along lines over the box that holds `places` (given in the operation's own coordinates): between two
    neighbouring places of a line a smooth operation goes as far as its derivatives at both say, but for the third
    power of their distance. Where it does not, the interval is cut until a jump is left. Jumps on a
    line that reach the domain are added up, and so are the largest sums along both directions.
    """
    low, high = [], []
    for values in places:
        known = np.asarray(values, dtype=np.float64)
        known = known[np.isfinite(known)]
        if not len(known):
            return 0.0
        turned = np.where(known < 0, known + 360, known)
        if 180 < np.ptp(known) <= 360 and np.ptp(turned) < np.ptp(known):  # on both sides of the antimeridian
            known = turned
        low.append(known.min())
        high.append(known.max())
    precision = max(max(domain.step) / 4, _PRECISION * (domain.scale or 1.0))
    return sum(_along(forward, axis, low, high, precision, _wider(domain)) for axis in (0, 1))


def _wider(domain: Domain | Extent) -> NDArray[np.float64]:
    """Return the corners (2, axes) of a box a little beyond a domain."""
    low, high = np.array(domain.low), np.array(domain.high)
    margin = _BEYOND * (high - low)
    return np.stack([low - margin, high + margin])


def _along(
    forward: Callable[..., Places],
    axis: int,
    low: list[float],
    high: list[float],
    precision: float,
    box: NDArray[np.float64],
) -> float:
    """Return the largest sum of the jumps on a line along one axis that end in the box."""
    across = np.linspace(low[1 - axis], high[1 - axis], _LINES)
    step = (high[axis] - low[axis]) / _INTERVALS
    if not step > 0:
        return 0.0

    def image(start: NDArray[np.float64], line: NDArray[np.int64]) -> NDArray[np.float64]:
        pair = (start, across[line]) if axis == 0 else (across[line], start)
        return np.stack([np.asarray(v) for v in forward(*pair)], axis=-1)

    start = np.tile(low[axis] + step * np.arange(_INTERVALS), _LINES)
    line = np.repeat(np.arange(_LINES), _INTERVALS)
    for round_ in range(_ROUNDS):
        ends = [image(start + k * step, line) for k in (0, 1)]
        with np.errstate(invalid="ignore"):  # places that have no image
            slopes = sum(
                image(start + (k + _NEARBY) * step, line) - image(start + (k - _NEARBY) * step, line)
                for k in (0, 1)
            )
            size = np.hypot(*(ends[1] - ends[0] - slopes / (4 * _NEARBY)).T)
        torn = np.isfinite(size) & (size > precision)
        if not torn.any():
            return 0.0
        start, line, size = start[torn], line[torn], size[torn]
        reach = [((box[0] <= end) & (end <= box[1])).all(axis=-1)[torn] for end in ends]
        if round_ == _ROUNDS - 1 or len(start) * _CUT > _MOST_SUSPECTS:
            break
        step /= _CUT
        start = (start[:, None] + step * np.arange(_CUT)).ravel()
        line = np.repeat(line, _CUT)
    # Elsewhere on the lines the map may have seams of its own, which no point of the domain comes near.
    return float(np.bincount(line, weights=size * (reach[0] | reach[1])).max())
