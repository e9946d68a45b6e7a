"""Regions from anywhere, fitted to a map: projected, repaired, clipped, and marked."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import DeltaHistWarning, InputError
from deltahist.space.geometries import LONGITUDE_LATITUDE, looks_like_degrees, way_to_map
from deltahist.space.operations import Operation, lattice_of, read_crs

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: Of a cell's area: less of a region than this on the map is rounding.
_SPECK = 1e-6
#: Of the map's longer side: a region that reaches no further outside ends at the edge.
_SLACK = 1e-9
#: Of a cell's side: a piece of a side of a box in degrees, which the map bends, is straight but for less than this.
_BEND = 1e-4
#: Pieces of a side, at most.
_MOST_PIECES = 1024
#: What messages call the geometries.
_NAME = "the frame of geometries"
#: What regions that say no CRS, or the wrong one, are most often in.
_USUAL = {LONGITUDE_LATITUDE: "longitude and latitude", "EPSG:3857": "the metres of web maps"}


@dataclass(frozen=True, eq=False)
class Fitted:
    """Regions as far as a map holds them.

    Parameters
    ----------
    shapes : (m,) valid polygons on the map; None where nothing can be answered.
    outside : (m,) share of each region's area that lies outside the map; NaN without an area.
    notes : (m,) what was done to a region, or why nothing can be answered; None where there is nothing to say.
    """

    shapes: NDArray[Any]
    outside: NDArray[np.float64]
    notes: NDArray[Any]

    @property
    def held(self) -> NDArray[np.bool_]:
        """(m,) which regions can be answered."""
        return np.array([shape is not None for shape in self.shapes], dtype=bool)

    def joined(self, columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Return columns of answers to the shapes (held,) as columns of all regions (m,), which say what was done.

        There may be several answers to each, such as one per step, all of them one after another.
        """
        held, out = np.flatnonzero(self.held), {}
        for name, each in columns.items():
            values = np.asarray(each)
            if len(held) < len(self.shapes):
                some = values.reshape(-1, len(held))
                values = np.full((len(some), len(self.shapes)), np.nan, np.result_type(some, np.float64))
                values[:, held] = some
                values = values.ravel()
            out[name] = values
        times = len(values) // len(self.shapes)
        if "step" in out:
            out["step"] = np.repeat(np.asarray(columns["step"])[:: len(held)], len(self.shapes))
        if (self.outside > 0).any():
            out["outside"] = np.tile(self.outside, times)
        if (self.notes != None).any():  # noqa: E711
            out["note"] = np.tile(self.notes, times)
        return out


def fit(regions: ArrayLike, domain: Domain, crs: Any = None) -> Fitted:
    """Return regions as polygons on a map: clipped to it, and repaired where rings cross themselves.

    Parameters
    ----------
    regions : (m,) shapely geometries. crs : theirs; None for the domain's coordinates.

    Raises
    ------
    InputError
        If none of them can be answered, with the likely cause; if the domain has one dimension; or as of `way_to_map`.

    Warns
    -----
    DeltaHistWarning
        If some were clipped, repaired, or cannot be answered: how many.

    >>> import shapely, warnings, deltahist as dh
    >>> domain = dh.Domain((0, 0, 4, 4), (4, 4))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     found = fit([shapely.box(3, 0, 7, 1), None, shapely.box(0, 0, 1, 1)], domain)
    >>> found.outside.tolist(), found.notes.tolist()
    ([0.75, nan, 0.0], ['clipped: 75% of its area lies outside the map', 'not answered: no geometry', None])
    """
    import shapely

    if domain.ndim != 2:
        raise InputError("regions are polygons: they need a 2-D domain")
    given, crs = np.array(regions, dtype=object), None if crs is None else read_crs(crs)
    if not len(given):
        raise InputError("there are 0 regions: give at least one")
    operation = way_to_map(crs, domain, _NAME)
    shapes, notes = _all_repaired(given)
    near = np.ones(len(shapes))
    if operation is not None:
        shapes, near = _surroundings(shapes, operation, crs, domain)
        there, shapes = ~shapely.is_missing(shapes), operation.shapes(shapes)
        notes[there & shapely.is_missing(shapes)] = (
            f"not answered: it reaches beyond where {domain.crs} is defined"
        )
        rounded = ~shapely.is_missing(shapes) & ~shapely.is_valid(shapes)
        shapes[rounded] = shapely.make_valid(shapes[rounded], method="structure", keep_collapsed=False)

    outside = np.where(shapely.is_missing(shapes), np.nan, 0.0)
    bounds = shapely.box(*domain.bounds)
    slack = _SLACK * max(h - lo for lo, h in zip(domain.low, domain.high, strict=True))
    for at in np.flatnonzero(~shapely.covered_by(shapes, shapely.buffer(bounds, slack)) & (outside == 0)):
        part = _polygons(shapely.intersection(shapes[at], bounds))
        if part.area > _SPECK * np.prod(domain.cell):
            outside[at] = 1 - near[at] * part.area / shapes[at].area
            note = f"clipped: {_percent(outside[at])} of its area lies outside the map"
            shapes[at], notes[at] = part, "; ".join(filter(None, [notes[at], note]))
        else:
            shapes[at], outside[at], notes[at] = None, 1.0, "not answered: outside the map"
    found = Fitted(shapes, outside, notes)
    if not found.held.any():
        raise InputError(_none_held(given, crs, found, domain))
    _tell(found)
    return found


def boxes_in_degrees(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any] | None:
    """Return boxes (m, 4) as polygons (m,) in longitude and latitude; None unless they surely are in degrees.

    That is: every corner can be a longitude and latitude, and no place of the map has coordinates as small. Their
    sides, which are curves on a map, are cut into pieces.

    Warns
    -----
    DeltaHistWarning
        If they are.
    """
    if domain.crs is None or domain.ndim != 2 or not corners.size:
        return None
    west, south, east, north = corners.T
    in_order = (west < east).all() and (south < north).all()
    if not in_order or not all(map(looks_like_degrees, corners.tolist())):
        return None
    import shapely

    if shapely.intersects(shapely.box(*domain.bounds), shapely.box(-180, -90, 180, 90)):
        return None
    warnings.warn(
        f"the boxes look like degrees, and the map is in {domain.crs}: they are taken as longitudes and latitudes, "
        "with the curved sides that they have on the map",
        DeltaHistWarning,
        stacklevel=4,
    )
    number = _pieces(corners, domain).T.ravel()
    side = np.repeat(np.arange(len(number)), number)
    part = ((np.arange(len(side)) - (np.cumsum(number) - number)[side]) / number[side])[:, None]
    box, turn = np.divmod(side, 4)
    ends = np.array([(0, 1), (2, 1), (2, 3), (0, 3)])
    start, end = (np.take_along_axis(corners[box], ends[(turn + ahead) % 4], axis=1) for ahead in (0, 1))
    rings = shapely.linearrings(start * (1 - part) + end * part, indices=box)
    return np.asarray(shapely.polygons(rings))


def _pieces(corners: NDArray[np.float64], domain: Domain) -> NDArray[np.int64]:
    """Return the number of straight pieces (sides, m) for the sides of boxes in degrees, which the map bends.

    Sides go anticlockwise from the southern one. The distance of a piece's middle from a straight line falls with the
    square of their number.
    """
    operation = Operation.off(domain, LONGITUDE_LATITUDE)
    west, south, east, north = corners.T
    ends = np.array([(west, south), (east, south), (east, north), (west, north), (west, south)])
    # All quarters of a side, so that no bend stays unseen: (sides, quarters, axes, boxes).
    part = np.arange(5).reshape(-1, 1, 1) / 4
    x, y = operation.back(*np.moveaxis(ends[:-1, None] * (1 - part) + ends[1:, None] * part, 2, 0))
    away = np.stack(_finite([x, y])) / np.array(domain.cell).reshape(2, 1, 1, 1)
    bend = np.linalg.norm(away[:, :, 1:-1] - (away[:, :, :-2] + away[:, :, 2:]) / 2, axis=0).max(axis=1)
    # Two quarters make a half, whose middle is as far off as that of a side of half the length.
    wanted = np.ceil(2 * np.sqrt(np.where(np.isfinite(bend), bend, np.inf) / _BEND))
    return np.clip(wanted, 1, _MOST_PIECES).astype(np.int64)


def _all_repaired(shapes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """`_repaired` of shapes (m,): most are valid polygons and need nothing."""
    import shapely

    places, owner = shapely.get_coordinates(shapes, return_index=True)
    sound = np.isin(shapely.get_type_id(shapes), (3, 6))
    sound[owner[~np.isfinite(places).all(axis=1)]] = False
    sound[sound] = shapely.is_valid(shapes[sound]) & (shapely.area(shapes[sound]) > 0)
    shapes, notes = shapes.copy(), np.full(len(shapes), None, dtype=object)
    for at in np.flatnonzero(~sound):
        shapes[at], notes[at] = _repaired(shapes[at])
    return shapes, notes


def _repaired(shape: Any) -> tuple[Any, str | None]:
    """Return the polygons of a geometry, with valid rings, and a note of the repair; None if it has no area."""
    import shapely

    if shape is None or shapely.is_empty(shape):
        return None, "not answered: no geometry"
    if not np.isfinite(shapely.get_coordinates(shape)).all():
        return None, "not answered: some of its coordinates are not finite"
    note, kind = None, shape.geom_type
    if not shapely.is_valid(shape):
        note = f"repaired: {shapely.is_valid_reason(shape).partition('[')[0].lower()}"
        # Where rings overlap there is land, and not a hole.
        shape = shapely.make_valid(shape, method="structure", keep_collapsed=False)
    shape = _polygons(shape)
    if shape.area > 0:
        return shape, note
    return None, f"not answered: {'no area' if 'Polygon' in kind else kind + ', not a polygon'}"


def _surroundings(
    shapes: NDArray[Any], operation: Operation, crs: Any, domain: Domain
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the parts of shapes in a CRS that lie around a map, and their share (m,) of the area.

    Far from where it is meant for, a projection may fold: a region on the other side of the earth could reach the map.
    """
    import shapely

    low, high = np.array(domain.low), np.array(domain.high)
    places = operation.back(*lattice_of(low - (high - low) / 2, high + (high - low) / 2, 17))
    (west, east), (south, north) = ((np.nanmin(v), np.nanmax(v)) for v in _finite(places))
    share = np.ones(len(shapes))
    if crs.is_geographic and east - west > 180:  # across the antimeridian
        return shapes, share
    window = shapely.box(west, south, east, north)
    shapes = shapes.copy()
    for at in np.flatnonzero(~shapely.is_missing(shapes) & ~shapely.covered_by(shapes, window)):
        part = _polygons(shapely.intersection(shapes[at], window))
        share[at] = _area(part, crs) / _area(shapes[at], crs)
        shapes[at] = part
    return shapes, share


def _finite(columns: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    return [np.where(np.isfinite(values), values, np.nan) for values in columns]


def _area(shape: Any, crs: Any) -> float:
    """Return the area of a shape in units of its own; in degrees, on a sphere."""
    import shapely

    if crs.is_geographic:  # a cylinder keeps areas
        shape = shapely.transform(shape, lambda v: np.column_stack([v[:, 0], np.sin(np.radians(v[:, 1]))]))
    return float(shape.area)


def _polygons(shape: Any) -> Any:
    """Return the polygonal part of a valid geometry."""
    import shapely

    if shape.geom_type in ("Polygon", "MultiPolygon"):
        return shape
    parts = shapely.get_parts(shapely.get_parts(shape))
    return shapely.union_all([part for part in parts if part.geom_type == "Polygon"])


def _percent(share: float) -> str:
    """Return a share in words that never look like none or all.

    >>> _percent(0.123), _percent(0.0003), _percent(0.9996)
    ('12%', 'less than 1%', 'more than 99%')
    """
    if share < 0.01:
        return "less than 1%"
    return "more than 99%" if share > 0.99 else f"{share:.0%}"


def _tell(found: Fitted) -> None:
    """Warn that regions were clipped, repaired or left out, with numbers."""
    said = [note for note in found.notes if note is not None]
    if not said:
        return
    kinds = {
        "clipped to the map": sum("clipped: " in note for note in said),
        "repaired": sum("repaired: " in note for note in said),
        "not answered": int((~found.held).sum()),
    }
    numbers = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if number)
    warnings.warn(
        f"of {len(found.notes):,} regions {numbers}: the column note says which, and why",
        DeltaHistWarning,
        stacklevel=4,
    )


def _none_held(regions: NDArray[Any], crs: Any, found: Fitted, domain: Domain) -> str:
    """Return why no region can be answered: the fault of the first, or where they are instead."""
    import shapely

    number = f"0 of {len(regions):,} regions"
    if not (found.outside == 1).any():
        first = str(found.notes[0]).removeprefix("not answered: ")
        return f"{number} can be answered (the first: {first}): they must be Polygons or MultiPolygons"
    theirs, bounds = (tuple(round(float(v), 6) for v in box) for box in (shapely.total_bounds(regions), domain.bounds))
    stated = "without a CRS" if crs is None else f"in {crs.to_string()}"
    return (
        f"{number} are inside the domain, whose bounds are {bounds}: theirs are {theirs} {stated}; "
        f"{_likely_cause(regions, crs, domain)}"
    )


def _likely_cause(regions: NDArray[Any], crs: Any, domain: Domain) -> str:
    """Return the cure that brings some region onto the map: coordinates swapped, another CRS, or both."""
    if _reaches(regions, crs, True, domain):
        return "with x and y swapped they would be: swap them"
    for swapped in (False, True) if domain.crs is not None else ():
        for code, words in _USUAL.items():
            if _reaches(regions, read_crs(code), swapped, domain):
                how, cure = (" with x and y swapped", " and swap them") if swapped else ("", "")
                return f"taken as {code} ({words}){how} they would be: state that CRS{cure}"
    return "is that the place, and the CRS, that is meant?"


def _reaches(shapes: NDArray[Any], crs: Any, swapped: bool, domain: Domain) -> bool:
    """Return whether some region would lie on the map."""
    import shapely

    if swapped:
        shapes = shapely.transform(shapes, lambda v: v[:, ::-1])
    degrees = looks_like_degrees(shapely.total_bounds(shapes).tolist())
    if crs is not None and crs.is_geographic and not degrees:
        return False
    operation = way_to_map(crs, domain, _NAME)
    moved = shapes if operation is None else operation.shapes(shapes)
    frames = shapely.box(*shapely.bounds(moved[~shapely.is_missing(moved)]).T)
    return bool(shapely.intersects(frames, shapely.box(*domain.bounds)).any())
