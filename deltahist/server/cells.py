"""Route to the cells of a release as features, merged in blocks that are worth drawing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray

from deltahist._http import GEOJSON, copy_headers
from deltahist.errors import InputError
from deltahist.plots.ground import unit_of_area
from deltahist.server.answers import Source, asks_degrees
from deltahist.server.blocks import (
    DIGITS,
    FINEST,
    LEVEL,
    PIXELS,
    Extent,
    block_ends,
    choose_width,
    extent_in_degrees,
    extent_in_map,
    pixels_per_cell,
    summarize_blocks,
)
from deltahist.server.queries import read_box
from deltahist.server.schemas import FeatureCollection, file_of
from deltahist.server.service import Service, tag_of
from deltahist.space.crs import Operation, degrees_east
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE

#: Features of one response.
_MOST = 5_000


def make_router(service: Service) -> APIRouter:
    """Return the route to cells."""
    router = APIRouter(tags=["maps"])

    @router.get(
        "/releases/{name}/cells", response_class=Response, responses=file_of(GEOJSON, FeatureCollection)
    )
    async def list_cells(
        request: Request,
        name: str,
        bbox: str | None = Query(None, description="west,south,east,north; low,high on a line; all when not given"),
        crs: str | None = Query(None, description="CRS of bbox: the release's own, or CRS84 (longitude, latitude)"),
        zoom: float | None = Query(None, ge=0, le=FINEST, description="of the drawing: blocks are 8 pixels or wider"),
        compare: str | None = Query(None, description="another release: cells hold its points less those of this"),
    ) -> Response:
        """Return cells as GeoJSON, at most 5,000 features: merged in blocks that are powers of two wide.

        Each has estimate, standard error and interval of all its cells together, and their density.
        """
        source, asked = service.find_source(name, compare)
        degrees = asks_degrees(source, crs)
        box = None if bbox is None else read_box(bbox, source.domain)
        headers = copy_headers(request, tag_of(asked, "cells"))
        content = await service.workers.run(_encode, source, box, degrees, zoom)
        return Response(content, media_type=GEOJSON, headers=headers)

    return router


def _encode(source: Source, box: NDArray[np.float64] | None, degrees: bool, zoom: float | None) -> bytes:
    """Return the GeoJSON of the blocks that meet a box; InputError if the box is reversed or there are no cells."""
    domain = source.domain
    extent: Extent | None = [(0, n) for n in domain.shape]
    if box is not None:
        half = len(box) // 2
        if not (box[:half] < box[half:])[int(degrees) :].all():  # in degrees it may lie across the antimeridian
            order = "west, south, east, north" if half == 2 else "low, high"
            raise InputError(f"bbox is {box.tolist()}: it must be {order}, each low end below its high one")
        extent = extent_in_degrees(domain, box) if degrees else extent_in_map(domain, box)
    about: dict[str, Any] = {"unit": "points", "density": f"points per {unit_of_area(domain)}", "level": LEVEL}
    features: list[Any] = []
    if extent is not None:
        cell = 1.0 if zoom is None else pixels_per_cell(domain, zoom)
        width = choose_width(domain, extent, cell, pixels=0 if zoom is None else PIXELS, most=_MOST)
        about["width"] = width
        columns = {name: each.tolist() for name, each in summarize_blocks(source, width, extent).items()}
        for shape, *figures in zip(_shapes(domain, width, extent), *columns.values(), strict=True):
            own = dict(zip(columns, figures, strict=True))
            features.append({"type": "Feature", "geometry": shape, "properties": own})
    return orjson.dumps({"type": "FeatureCollection", "features": features, **about})


def _shapes(domain: Domain, width: int, extent: Extent) -> Iterator[dict[str, Any]]:
    """Return the geometries of blocks, x varying slowest: in longitude and latitude, or on a plane without a CRS."""
    ends = [block_ends(n, width, some) for n, some in zip(domain.shape, extent, strict=True)]
    places = [domain.edges(axis)[each] for axis, each in enumerate(ends)]
    if domain.ndim == 1:
        for low, high in zip(places[0][:-1].tolist(), places[0][1:].tolist(), strict=True):
            yield {"type": "LineString", "coordinates": [[low, 0.0], [high, 0.0]]}
        return
    x, y = np.meshgrid(*places, indexing="ij")
    if domain.crs is not None:
        x, y = Operation.off(domain, LONGITUDE_LATITUDE)(x, y)
        x = np.round(x[0, 0] + degrees_east(x, x[0, 0]), DIGITS)  # in one piece across the antimeridian
        y = np.round(y, DIGITS)
    at = np.stack([x, y], axis=-1)
    rings = np.stack([at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:], at[:-1, :-1]], axis=2)
    for ring in rings.reshape(-1, 5, 2).tolist():
        yield {"type": "Polygon", "coordinates": [ring]}
