"""The route of the cells of a map, merged into blocks that are worth drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray

from deltahist.decode import stands_out
from deltahist.errors import InputError
from deltahist.plots.ground import block_areas, unit_of_area
from deltahist.releases.histogram import CountEstimates
from deltahist.releases.sums import Difference
from deltahist.server.answers import Source, asks_degrees
from deltahist.server.models import Cells, CellsAsked, returns
from deltahist.server.queries import read_box
from deltahist.server.service import JSON, service_of
from deltahist.space.crs import LONGITUDE_LATITUDE, Operation
from deltahist.space.domain import Domain
from deltahist.space.geometries import bend_boxes, fit
from deltahist.space.workloads import boxes
from deltahist.strategies.base import sum_blocks

#: Blocks of an answer; and how often they are doubled to find larger ones that stand out.
_MOST, _LARGER = 20_000, 4
#: Level of intervals; digits of degrees, a centimetre on the ground.
LEVEL, DIGITS = 0.95, 7
Index: TypeAlias = NDArray[np.int64]

router = APIRouter(tags=["maps"])


@router.get("/releases/{name}/cells", responses=returns({JSON: Cells}))
async def list_cells(request: Request, name: str, asked: Annotated[CellsAsked, Query()]) -> Response:
    """Return the densities of blocks of cells, at most 20,000, x varying slowest, from the map's lower left corner."""
    service = service_of(request)
    source, _ = service.find_source(name, asked.compare)
    degrees = asks_degrees(source, asked.crs)
    box = None if asked.bbox is None else read_box(asked.bbox, source.domain)
    content = await service.run(encode_blocks, source, box, degrees, asked)
    return Response(content, media_type=JSON, headers={"cache-control": "no-cache"})


def encode_blocks(source: Source, box: NDArray[np.float64] | None, degrees: bool, asked: CellsAsked) -> bytes:
    """Return the JSON of the blocks that meet a box."""
    domain = source.domain
    low, high = corner, _ = np.array(domain.low), np.array(domain.high)
    if box is not None:
        low, high = np.split(box, 2)
        if not (low < high)[int(degrees) :].all():  # in degrees it may lie across the antimeridian
            raise InputError(f"bbox is {box.tolist()}: each low end must be below its high end")
        if degrees:
            shape = fit_box(domain, box.tolist())
            low, high = (corner, corner) if shape is None else np.split(np.array(shape.bounds), 2)
    first = np.floor((low - corner) / domain.cell).clip(0, domain.shape).astype(np.int64)
    last = np.ceil((high - corner) / domain.cell).clip(first, domain.shape).astype(np.int64)
    extent = list(zip(first.tolist(), last.tolist(), strict=True))
    ends, width = _block_ends(domain, extent, min(asked.width, max(domain.shape)))
    density, signal = _test_blocks(source, ends)
    x, y = _corners(domain, ends)
    about = {"width": width, "shape": signal.shape, "unit": f"points per {unit_of_area(domain)}"}
    about |= {"ends": ends, "x": x, "y": y, "stands_out": signal.ravel(), "larger": _find_larger(source, ends, signal)}
    about["density"] = density.astype(np.float32).ravel()  # seven digits are enough
    return orjson.dumps(about, option=orjson.OPT_SERIALIZE_NUMPY)


def _block_ends(domain: Domain, extent: Sequence[tuple[int, int]], width: int) -> tuple[list[Index], int]:
    """Return the cells at which blocks begin along each axis, and where the last one ends; and the blocks' width."""
    while True:
        most = width << _LARGER  # the largest blocks fit in, too
        pairs = zip(extent, domain.shape, strict=True)
        spans = [(i - i % most, min(j + -j % most, n)) if i < j else (i, j) for (i, j), n in pairs]
        ends = [np.append(np.arange(i, j, width), j) for i, j in spans]
        if np.prod([len(each) - 1 for each in ends]) <= _MOST:
            return ends, width
        width *= 2


def _test_blocks(source: Source, ends: list[Index]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the density of each block, and whether it stands out when blocks of all sizes are taken together."""
    places = [source.domain.edges(axis)[each] for axis, each in enumerate(ends)]
    first, last = (np.meshgrid(*(each[part] for each in places), indexing="ij") for part in (slice(-1), slice(1, None)))
    work = boxes(np.column_stack([each.ravel() for each in (*first, *last)]))
    found, either = source.answers(work, level=LEVEL, nonnegative=False), isinstance(source, Difference)
    counted = either or isinstance(source, CountEstimates)  # and no sorted points
    kurtosis = source.decoder.moments(work).kurtosis if counted else np.nan  # type: ignore[union-attr]
    level = (1 - LEVEL) / (1 + _LARGER)
    signal = stands_out(found["estimate"], found["std_error"], kurtosis, level=level, either_side=either)
    if "unresolved" in found:  # the strategy does not tell all blocks from those around them
        signal &= found["unresolved"] < 1e-6  # but for rounding
    areas = block_areas(source.domain, ends)
    return found["estimate"].reshape(areas.shape) / areas, signal.reshape(areas.shape)


def _find_larger(source: Source, ends: list[Index], signal: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return larger blocks that stand out while none of their parts does: their corners in the mesh, and densities."""
    found, corners = [], [np.arange(len(each)) for each in ends]
    for _ in range(_LARGER if signal.size else 0):
        parts = sum_blocks(signal, tuple(np.arange(0, n, 2) for n in signal.shape)) > 0
        corners = [np.append(each[:-1:2], each[-1]) for each in corners]
        density, signal = _test_blocks(source, [each[at] for each, at in zip(ends, corners, strict=True)])
        for place in np.argwhere(signal & ~parts):
            first, last = ([each[at + k] for each, at in zip(corners, place, strict=True)] for k in (0, 1))
            found.append({"first": first, "last": last, "density": float(density[tuple(place)])})
        signal |= parts
    return found


def _corners(domain: Domain, ends: list[Index]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x and y of the corners of blocks, the mesh, in degrees if the map has a CRS."""
    places = [domain.edges(axis)[each] for axis, each in enumerate(ends)]
    if domain.ndim == 1:
        return places[0], np.zeros(0)
    x, y = np.meshgrid(*places, indexing="ij")
    if domain.crs is not None:
        x, y = Operation.off(domain, LONGITUDE_LATITUDE)(x, y)
        x = np.round(x[0, 0] + (x - x[0, 0] + 180) % 360 - 180, DIGITS)  # in one piece across the antimeridian
        y = np.round(y, DIGITS)
    return np.ravel(x), np.ravel(y)


def fit_box(domain: Domain, box: Sequence[float]) -> Any:
    """Return what a box in longitude and latitude holds of a map, as a polygon on the map; None if it holds nothing."""
    west, south, east, north = box
    wide = 360.0 if abs(east - west) >= 360 else (east - west) % 360  # across the antimeridian, too
    bent = bend_boxes(np.array([[west, south, west + wide, north]]), domain)
    try:
        return fit(bent, domain, LONGITUDE_LATITUDE).shapes[0]
    except InputError:
        return None
