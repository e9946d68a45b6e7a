"""Routes of OGC API – Tiles: where the tiles of a map are, and in which grid."""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from deltahist._http import JSON, as_json, copy_headers, negotiate
from deltahist.server.answers import CRS84
from deltahist.server.blocks import FINEST, TILE
from deltahist.server.features import extent_of, find_collection
from deltahist.server.landing import link
from deltahist.server.service import Service
from deltahist.server.tiles import WORLD
from deltahist.space.domain import Domain

#: What OGC's register has of the grid of nearly all web maps.
_REGISTERED = f"http://www.opengis.net/def/tilematrixset/OGC/1.0/{WORLD}"
_CRS = "http://www.opengis.net/def/crs/EPSG/0/3857"
_SCALES = "http://www.opengis.net/def/wkss/OGC/1.0/GoogleMapsCompatible"
#: Half the width of the world in metres of that CRS.
_HALF = math.pi * 6378137.0
#: Metres of a pixel by which scales are reckoned.
_SCALE_PIXEL = 0.00028
#: Relation of a tileset to its grid.
_SCHEME = "http://www.opengis.net/def/rel/ogc/1.0/tiling-scheme"


def make_router(service: Service) -> APIRouter:
    """Return the routes to tilesets and to their grid."""
    router = APIRouter(tags=["OGC API"])

    @router.get("/tileMatrixSets")
    async def list_grids(request: Request) -> Response:
        """List the grids of tiles: there is one."""
        negotiate(request, {JSON: "json"})
        links = [link("self", f"{service.address(request)}tileMatrixSets/{WORLD}", "the grid")]
        return as_json({"tileMatrixSets": [{"id": WORLD, "title": WORLD, "uri": _REGISTERED, "links": links}]})

    @router.get("/tileMatrixSets/{grid}")
    async def describe_grid(grid: str, request: Request) -> Response:
        """Describe a grid of tiles."""
        _check_grid(grid)
        negotiate(request, {JSON: "json"})
        levels = [_describe_level(level) for level in range(FINEST + 1)]
        about = {"id": WORLD, "title": WORLD, "uri": _REGISTERED, "crs": _CRS, "orderedAxes": ["E", "N"]}
        return as_json(about | {"wellKnownScaleSet": _SCALES, "tileMatrices": levels})

    @router.get("/collections/{name}/map/tiles")
    async def list_tilesets(name: str, request: Request) -> Response:
        """List the tilesets of a collection: there is one."""
        served = find_collection(service, name)
        negotiate(request, {JSON: "json"})
        address = f"{service.address(request)}collections/{served.quoted}/map/tiles"
        links = [link("self", f"{address}/{WORLD}", "the tileset")]
        tilesets = [_describe_tileset(served.name) | {"links": links}]
        return as_json({"tilesets": tilesets, "links": [link("self", address, "this document")]})

    @router.get("/collections/{name}/map/tiles/{grid}")
    async def describe_tileset(name: str, grid: str, request: Request) -> Response:
        """Describe a tileset: pictures of densities, at `/releases/{name}/tiles`."""
        served = find_collection(service, name)
        _check_grid(grid)
        negotiate(request, {JSON: "json"})
        headers = copy_headers(request, service.tag_links(served, "tileset", request))
        base, path = service.address(request), served.quoted
        tiles = f"{base}releases/{path}/tiles/{WORLD}/{{tileMatrix}}/{{tileCol}}/{{tileRow}}.png"
        west, south, east, north = extent_of(served.release.domain)
        content = _describe_tileset(served.name) | {
            "links": [
                link("self", f"{base}collections/{path}/map/tiles/{WORLD}", "this document"),
                link(_SCHEME, f"{base}tileMatrixSets/{WORLD}", "the grid"),
                {**link("item", tiles, "a tile", "image/png"), "templated": True},
                link("describedby", f"{base}releases/{path}/legend", "what the colours mean"),
            ],
            "boundingBox": {"lowerLeft": [west, south], "upperRight": [east, north], "crs": CRS84},
            "tileMatrixSetLimits": [_limits_of(served.release.domain, level) for level in range(FINEST + 1)],
        }
        return as_json(content, headers)

    return router


def _check_grid(grid: str) -> None:
    if grid != WORLD:
        raise HTTPException(404, f"grid is {grid[:80]!r}: it must be {WORLD}")


def _describe_tileset(name: str) -> dict[str, Any]:
    return {"title": f"Density of {name}", "dataType": "map", "crs": _CRS, "tileMatrixSetURI": _REGISTERED}


def _describe_level(level: int) -> dict[str, Any]:
    """Return one level of the grid."""
    number = 1 << level
    cell = 2 * _HALF / TILE / number
    return {
        "id": str(level),
        "scaleDenominator": cell / _SCALE_PIXEL,
        "cellSize": cell,
        "cornerOfOrigin": "topLeft",
        "pointOfOrigin": [-_HALF, _HALF],
        "tileWidth": TILE,
        "tileHeight": TILE,
        "matrixWidth": number,
        "matrixHeight": number,
    }


def _limits_of(domain: Domain, level: int) -> dict[str, Any]:
    """Return the tiles of a level that a map meets."""
    west, south, east, north = extent_of(domain)
    (first, top), (last, bottom) = _tile_at(west, north, level), _tile_at(east, south, level)
    columns, rows = {"minTileCol": first, "maxTileCol": last}, {"minTileRow": top, "maxTileRow": bottom}
    return {"tileMatrix": str(level)} | rows | columns


def _tile_at(lon: float, lat: float, level: int) -> tuple[int, int]:
    """Return column and row of the tile that holds a place.

    >>> _tile_at(-74.0, 40.7, 10)
    (301, 385)
    """
    number = 1 << level
    sine = math.sin(math.radians(lat))
    y = 0.5 - math.atanh(min(max(sine, -0.9999), 0.9999)) / (2 * math.pi)
    column, row = math.floor((lon + 180) / 360 * number), math.floor(y * number)
    return min(max(column, 0), number - 1), min(max(row, 0), number - 1)
