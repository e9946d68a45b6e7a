"""Blocks of cells that are worth drawing: which of them, their estimates with joint errors, and their densities."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.plots.ground import block_areas, exceeds_zero
from deltahist.releases.sums import Difference
from deltahist.server.answers import Source
from deltahist.space.crs import Operation, degrees_east, lattice_of
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE
from deltahist.space.workloads import boxes

#: Level of intervals.
LEVEL = 0.95
#: Digits of degrees: a centimetre on the ground.
DIGITS = 7
#: Pixels along one side of a tile, and its finest zoom.
TILE, FINEST = 256, 24
#: Pixels along the side of a block that is worth a figure of its own, at least.
PIXELS = 8
#: Parts along each axis into which a map is cut, again and again, to find those that a box in degrees meets.
_PARTS = 32
#: Places along each axis at which cells are measured.
_PLACES = 9
#: A first and a last cell along each axis; the last one does not belong to it.
Extent: TypeAlias = list[tuple[int, int]]


def summarize_blocks(source: Source, width: int, extent: Extent) -> dict[str, NDArray[Any]]:
    """Return the figures of blocks of `width` cells a side that meet an extent (m,); at the upper edges blocks are cut.

    Columns: `estimate`, `standard_error`, `low`, `high`, `density`, `cells` and `stands_out`; x varies slowest.
    """
    domain = source.domain
    ends = [block_ends(n, width, some) for n, some in zip(domain.shape, extent, strict=True)]
    places = [domain.edges(axis)[each] for axis, each in enumerate(ends)]
    low, high = (np.meshgrid(*(p[part] for p in places), indexing="ij") for part in (slice(-1), slice(1, None)))
    corners = np.column_stack([each.ravel() for each in (*low, *high)])
    found = source.answers(boxes(corners), level=LEVEL, nonnegative=False)
    estimate, error = found["estimate"], found["std_error"]
    stands_out = exceeds_zero(estimate, error, found["low"])
    if isinstance(source, Difference):
        stands_out |= exceeds_zero(-estimate, error, -found["high"])
    cells = np.ones(1, dtype=np.int64)
    for each in ends:
        cells = np.multiply.outer(cells, np.diff(each))
    return {
        "estimate": estimate,
        "standard_error": error,
        "low": found["low"],
        "high": found["high"],
        "density": estimate / block_areas(domain, ends).ravel(),
        "cells": cells.ravel(),
        "stands_out": stands_out,
    }


def block_ends(number: int, width: int, some: tuple[int, int]) -> NDArray[np.int64]:
    """Return the cells at which blocks begin along an axis, and where the last one ends."""
    first, last = some[0] // width, -(-some[1] // width)
    return np.minimum(np.arange(first, last + 1) * width, number)


def choose_width(domain: Domain, extent: Extent, cell: float, *, pixels: float, most: int) -> int:
    """Return the least power of two for which blocks are wide enough, and few enough.

    Parameters
    ----------
    cell : pixels along a cell. pixels : along a block, at least. most : blocks.
    """
    width = 1
    while width < max(domain.shape) and (width * cell < pixels or _count_blocks(extent, width) > most):
        width *= 2
    return width


def _count_blocks(extent: Extent, width: int) -> int:
    number = 1
    for first, last in extent:
        number *= -(-last // width) - first // width
    return number


def pixels_per_cell(domain: Domain, zoom: float) -> float:
    """Return how many pixels a cell of a map is typically wide or high at a zoom, whichever is less.

    The world is 256 · 2^zoom pixels wide in the Web Mercator projection, and so is the longer side of a plane without
    a CRS.
    """
    return TILE * 2.0**zoom * _share_of_world(domain)


@functools.lru_cache(maxsize=64)
def _share_of_world(domain: Domain) -> float:
    """Return the shorter side of a typical cell, as a part of the width of the world (`pixels_per_cell`)."""
    if domain.crs is None:
        return min(domain.cell) / longest_side(domain)
    x, y = lattice_of(domain.low, domain.high, _PLACES)
    ends = np.stack([x, x + domain.cell[0], x]), np.stack([y, y, y + domain.cell[1]])
    lon, lat = Operation.off(domain, LONGITUDE_LATITUDE)(*ends)
    east = degrees_east(lon[1:], lon[0])
    north = (lat[1:] - lat[0]) / np.maximum(np.cos(np.radians(lat[0])), 1e-9)
    return float(np.median(np.hypot(east, north).min(axis=0)) / 360)


def longest_side(domain: Domain) -> float:
    """Return the longer side of a map, in its units."""
    return max(hi - lo for lo, hi in zip(domain.low, domain.high, strict=True))


def extent_in_map(domain: Domain, box: NDArray[np.float64]) -> Extent | None:
    """Return the cells that meet a box in the map's coordinates; None if there are none."""
    d = domain.ndim
    low, high = ((box[part] - domain.low) / domain.cell for part in (slice(d), slice(d, None)))
    first, last = np.floor(np.maximum(low, 0.0)), np.ceil(np.minimum(high, domain.shape))
    return _extent(first, last)


def extent_in_degrees(domain: Domain, box: NDArray[np.float64]) -> Extent | None:
    """Return cells that hold all that a box in longitude and latitude has of a map; None if it has nothing.

    The map is cut into parts, those that the box meets are kept, and cut again: the box itself may reach where the
    map's projection has no places.
    """
    west, south, east, north = box
    east += 360.0 if east < west else 0.0  # across the antimeridian
    off, extent = Operation.off(domain, LONGITUDE_LATITUDE), [(0, n) for n in domain.shape]
    while True:
        ends = [np.unique(np.linspace(*some, _PARTS + 1).round().astype(np.int64)) for some in extent]
        corners = np.meshgrid(*(domain.edges(axis)[each] for axis, each in enumerate(ends)), indexing="ij")
        lon, lat = (np.stack(list(_four(each))) for each in off(*corners))
        lon = lon[0] + degrees_east(lon, lon[0])  # corners of a part are near each other
        # Longitudes meet if some number of turns brings one interval over the other.
        turns = np.floor((east - lon.min(axis=0)) / 360) >= np.ceil((west - lon.max(axis=0)) / 360)
        meets = turns & (lat.min(axis=0) < north) & (lat.max(axis=0) > south)
        if not meets.any():
            return None
        found: Extent = []
        for axis, each in enumerate(ends):
            parts = np.flatnonzero(meets.any(axis=1 - axis))
            # One part more at either side: their edges are curves.
            found.append((int(each[max(parts[0] - 1, 0)]), int(each[min(parts[-1] + 2, len(each) - 1)])))
        if found == extent:
            return extent
        extent = found


def _four(corners: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Return the corners of all parts: those at their south-west, south-east, north-east and north-west."""
    yield from (corners[:-1, :-1], corners[1:, :-1], corners[1:, 1:], corners[:-1, 1:])


def _extent(first: NDArray[np.float64], last: NDArray[np.float64]) -> Extent | None:
    if not (first < last).all():
        return None
    return list(zip(first.astype(np.int64).tolist(), last.astype(np.int64).tolist(), strict=True))
