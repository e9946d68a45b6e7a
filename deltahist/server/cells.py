"""The route of the cells of a map, merged into blocks that are worth drawing."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.plots.ground import block_areas, unit_of_area
from deltahist.server.answers import Source, asks_degrees
from deltahist.server.models import Cells, CellsAsked, returns
from deltahist.server.queries import read_box
from deltahist.server.service import JSON, service_of
from deltahist.space.crs import Operation, degrees_east
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE
from deltahist.space.workloads import boxes

#: Blocks of an answer, and parts of the mesh along an axis.
_MOST, _MESH = 20_000, 32
#: Level of intervals; digits of degrees, a centimetre on the ground.
LEVEL, DIGITS = 0.95, 7
#: Parts along each axis into which a map is cut to find those that a box in degrees meets.
_PARTS = 64
#: A first and a last cell along each axis; the last one does not belong to it.
Extent: TypeAlias = list[tuple[int, int]]

router = APIRouter(tags=["maps"])


@router.get("/releases/{name}/cells", responses=returns({JSON: Cells}))
async def list_cells(request: Request, name: str, asked: Annotated[CellsAsked, Query()]) -> Response:
    """Return the densities of blocks of cells, at most 20,000, x varying slowest, from the map's lower left corner."""
    service = service_of(request)
    source, _ = service.find_source(name, asked.compare)
    degrees = asks_degrees(source, asked.crs)
    box = None if asked.bbox is None else read_box(asked.bbox, source.domain)
    content = await service.run(_encode, source, box, degrees, asked)
    return Response(content, media_type=JSON, headers={"cache-control": "no-cache"})


def _encode(source: Source, box: NDArray[np.float64] | None, degrees: bool, asked: CellsAsked) -> bytes:
    """Return the JSON of the blocks that meet a box."""
    domain = source.domain
    extent: Extent = [(0, n) for n in domain.shape]
    if box is not None:
        low, high = np.split(box, 2)
        if not (low < high)[int(degrees) :].all():  # in degrees it may lie across the antimeridian
            raise InputError(f"bbox is {box.tolist()}: each low end must be below its high end")
        extent = extent_in_degrees(domain, box) if degrees else _extent_in_map(domain, low, high)
    ends, width = _block_ends(domain, extent, min(asked.width, max(domain.shape)))
    places = [domain.edges(axis)[each] for axis, each in enumerate(ends)]
    first, last = (np.meshgrid(*(each[part] for each in places), indexing="ij") for part in (slice(-1), slice(1, None)))
    work = boxes(np.column_stack([each.ravel() for each in (*first, *last)]))
    found = source.answers(work, level=LEVEL, nonnegative=False)
    strict = source.answers(work, level=1 - (1 - LEVEL) / max(1, len(work)), nonnegative=False)
    columns = {"density": found["estimate"] / block_areas(domain, ends).ravel()}
    if asked.errors:
        columns |= {name: found[name] for name in ("estimate", "std_error", "low", "high")}
    nodes = [np.unique(each[np.linspace(0, len(each) - 1, _MESH + 1).round().astype(int)]) for each in ends]
    x, y = _corners(domain, nodes)
    about = {"width": width, "shape": [len(each) - 1 for each in ends], "unit": f"points per {unit_of_area(domain)}"}
    about |= {"ends": ends, "nodes": nodes, "x": x, "y": y, "stands_out": (strict["low"] > 0) | (strict["high"] < 0)}
    # Seven digits are enough for figures.
    about |= {name: each.astype(np.float32) for name, each in columns.items()}
    return orjson.dumps(about, option=orjson.OPT_SERIALIZE_NUMPY)


def _block_ends(domain: Domain, extent: Extent, width: int) -> tuple[list[NDArray[np.int64]], int]:
    """Return the cells at which blocks begin along each axis, and where the last one ends; and the blocks' width."""
    while True:
        spans = [(first // width, -(-last // width)) for first, last in extent]
        if np.prod([last - first for first, last in spans]) <= _MOST:
            break
        width *= 2
    ends = [np.arange(first, last + 1) * width for first, last in spans]
    return [np.minimum(each, n) for each, n in zip(ends, domain.shape, strict=True)], width


def _corners(domain: Domain, nodes: list[NDArray[np.int64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x and y of the corners of cells, in degrees if the map has a CRS."""
    places = [domain.edges(axis)[each] for axis, each in enumerate(nodes)]
    if domain.ndim == 1:
        return places[0], np.zeros(0)
    x, y = np.meshgrid(*places, indexing="ij")
    if domain.crs is not None:
        x, y = Operation.off(domain, LONGITUDE_LATITUDE)(x, y)
        x = np.round(x[0, 0] + degrees_east(x, x[0, 0]), DIGITS)  # in one piece across the antimeridian
        y = np.round(y, DIGITS)
    return np.ravel(x), np.ravel(y)


def _extent_in_map(domain: Domain, low: NDArray[np.float64], high: NDArray[np.float64]) -> Extent:
    """Return the cells that meet a box in the map's coordinates."""
    first = np.floor((low - domain.low) / domain.cell).clip(0, domain.shape).astype(np.int64)
    last = np.ceil((high - domain.low) / domain.cell).clip(first, domain.shape).astype(np.int64)
    return list(zip(first.tolist(), last.tolist(), strict=True))


def extent_in_degrees(domain: Domain, box: NDArray[np.float64]) -> Extent:
    """Return cells that hold all that a box in longitude and latitude has of a map.

    Parts of the map that meet the box are kept, and cut again: the box may reach where the projection has no places.
    """
    west, south, east, north = box
    east += 360.0 if east < west else 0.0  # across the antimeridian
    off, extent = Operation.off(domain, LONGITUDE_LATITUDE), [(0, n) for n in domain.shape]
    for _ in range(2):
        ends = [np.unique(np.linspace(*some, _PARTS + 1).round().astype(np.int64)) for some in extent]
        lon, lat = off(*np.meshgrid(*(domain.edges(axis)[each] for axis, each in enumerate(ends)), indexing="ij"))
        parts = [np.stack([at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]]) for at in (lon, lat)]
        lon, lat = parts[0][0] + degrees_east(parts[0], parts[0][0]), parts[1]
        # Longitudes meet if some number of turns brings one interval over the other.
        meets = np.floor((east - lon.min(axis=0)) / 360) >= np.ceil((west - lon.max(axis=0)) / 360)
        meets &= (lat.min(axis=0) < north) & (lat.max(axis=0) > south)
        if not meets.any():
            return [(0, 0)] * 2
        found: Extent = []
        for axis, each in enumerate(ends):
            held = np.flatnonzero(meets.any(axis=1 - axis))
            # One part more at either side: their edges are curves.
            found.append((int(each[max(held[0] - 1, 0)]), int(each[min(held[-1] + 2, len(each) - 1)])))
        extent = found
    return extent
