"""OGC API – Features: every map is a collection, and every cell of it a feature."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
import orjson
import shapely
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist.errors import InputError
from deltahist.releases import Release
from deltahist.server.answers import CRS84
from deltahist.server.catalogue import Served
from deltahist.server.cells import DIGITS, LEVEL, fit_box
from deltahist.server.models import FeatureCollection, ItemsAsked, returns
from deltahist.server.service import GEOJSON, JSON, PARQUET, Service, service_of
from deltahist.space.crs import area_of, width_in_degrees
from deltahist.space.domain import Domain
from deltahist.space.geometries import to_degrees
from deltahist.space.workloads import boxes, regions

_SPEC = "http://www.opengis.net/spec"
#: Requirements classes that the service meets.
CONFORMANCE = (
    *(f"{_SPEC}/ogcapi-common-1/1.0/conf/{name}" for name in ("core", "landing-page", "json")),
    f"{_SPEC}/ogcapi-common-2/1.0/conf/collections",
    *(f"{_SPEC}/ogcapi-features-1/1.0/conf/{name}" for name in ("core", "geojson")),
)
#: Features of a page; and the share of a cell's side to which thinner boxes are widened.
_MOST, _THIN = 10_000, 2e-3
#: In every collection and page, since people add features up.
NOTE = (
    "Estimates are unbiased, and some are below zero. Do not add errors of cells, nor their squares: the noise of one "
    "cell depends on that of others. Ask /releases/{name}/answer for sums over boxes and regions."
)
Box = tuple[float, float, float, float]

router = APIRouter(tags=["OGC API"])


def list_links(base: str) -> dict[str, Any]:
    """Return the links from `/`."""
    links = [
        _link("self", base),
        _link("service-desc", f"{base}openapi.json", "application/vnd.oai.openapi+json;version=3.1"),
        _link("conformance", f"{base}conformance"),
        _link("data", f"{base}collections"),
        _link("items", f"{base}releases"),
    ]
    about = "Counts of points on maps that were published under differential privacy, with errors and intervals."
    return {"title": "Range queries over private maps", "description": about, "links": links}


@router.get("/conformance")
async def list_conformance() -> dict[str, Any]:
    """List the requirements classes of OGC's standards that the service meets."""
    return {"conformsTo": CONFORMANCE}


@router.get("/collections")
async def list_collections(request: Request) -> dict[str, Any]:
    """List the collections: all releases of a map with a CRS."""
    base = str(request.base_url)
    found = [_describe(each, base) for each in service_of(request).catalogue.in_force() if _is_collection(each)]
    return {"links": [_link("self", f"{base}collections")], "collections": found}


@router.get("/collections/{name}")
async def describe_collection(request: Request, name: str) -> dict[str, Any]:
    """Describe a collection: its extent, and links to its features."""
    return _describe(_find(service_of(request), name), str(request.base_url))


@router.get("/collections/{name}/items", responses=returns({GEOJSON: FeatureCollection}))
async def list_items(request: Request, name: str, asked: Annotated[ItemsAsked, Query()]) -> Response:
    """Return cells as GeoJSON with 95% intervals, page by page, from the south-west, column by column."""
    service = service_of(request)
    served, limit = _find(service, name), min(asked.limit, _MOST)
    box = None if asked.bbox is None else _read_degrees(asked.bbox)
    features, matched = await service.run(_page, served.release, box, asked.offset, limit)
    collection = f"{request.base_url}collections/{served.quoted}"
    links = [_link("self", f"{collection}/items?{request.url.query}", GEOJSON), _link("collection", collection)]
    if asked.offset + limit < matched:
        query = asked.model_dump(exclude_none=True) | {"limit": limit, "offset": asked.offset + limit}
        links.append(_link("next", f"{collection}/items?{urlencode(query)}", GEOJSON))
    content = {"type": "FeatureCollection", "features": features, "links": links, "level": LEVEL}
    content |= {"numberMatched": matched, "numberReturned": len(features), "note": NOTE}
    return Response(orjson.dumps(content), media_type=GEOJSON)


@router.get("/collections/{name}/items/{number}", responses=returns({GEOJSON: None}))
async def show_item(request: Request, name: str, number: str) -> Response:
    """Return one cell as GeoJSON."""
    service = service_of(request)
    served = _find(service, name)
    size = served.release.domain.size
    if not (number.isdecimal() and number.isascii() and len(number) < 16 and int(number) < size):
        raise HTTPException(404, f"feature is {number[:80]!r}: it must be a number from 0 to {size - 1:,}")
    (feature,) = await service.run(_features, served.release, np.array([int(number)]))
    address = f"{request.base_url}collections/{served.quoted}"
    links = [_link("self", f"{address}/items/{number}", GEOJSON), _link("collection", address)]
    return Response(orjson.dumps(feature | {"links": links}), media_type=GEOJSON)


def _link(relation: str, address: str, media: str = JSON) -> dict[str, str]:
    return {"rel": relation, "type": media, "href": address}


def _is_collection(served: Served) -> bool:
    release = served.release
    return release.mechanism.determines_cells is not None and release.domain.ndim == 2 and bool(release.domain.crs)


def _find(service: Service, name: str) -> Served:
    """Return the release that a collection is; HTTPException 404 or 410 if there is none."""
    served = service.find(name, "collection")
    if not _is_collection(served):
        raise HTTPException(404, f"collection is {name[:80]!r}: it must be one of those at /collections")
    return served


def _describe(served: Served, base: str) -> dict[str, Any]:
    address, source = f"{base}collections/{served.quoted}", f"{base}releases/{served.quoted}"
    mechanism = served.release.mechanism
    return {
        "id": served.name,
        "description": f"Cells of {mechanism.words}. {mechanism.promise}. {NOTE}",
        "extent": {"spatial": {"bbox": [extent_of(served.release.domain)], "crs": CRS84}},
        "itemType": "feature",
        "crs": [CRS84],
        "links": [
            _link("self", address),
            _link("items", f"{address}/items", GEOJSON),
            _link("describedby", source),
            _link("enclosure", f"{source}/download", PARQUET),
        ],
    }


def extent_of(domain: Domain) -> Box:
    """Return west, south, east and north of a map in degrees, rounded outwards; west above east across 180 degrees."""
    area = area_of(str(domain.crs), domain.bounds) or (-180.0, -90.0, 180.0, 90.0)
    step = 10.0**-DIGITS
    west, south, east, north = np.round(np.array(area) + step * np.array([-1, -1, 1, 1]), DIGITS).tolist()
    return west, south, east, north


def _read_degrees(text: str) -> Box:
    """Return the box of a bbox in longitude and latitude; heights are ignored."""
    try:
        parts = [float(part) for part in text.split(",")]
    except ValueError:
        parts = []
    west, south, east, north = parts if len(parts) == 4 else parts[:2] + parts[3:5] if len(parts) == 6 else [np.nan] * 4
    if not (np.isfinite([west, east]).all() and -90 <= south <= north <= 90):
        raise InputError(f"bbox is {text[:80]!r}: it must be west,south,east,north in degrees, south at most north")
    return west, south, east, north


def _page(release: Release, asked: Box | None, offset: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the features of a page, and how many there are in all."""
    domain = release.domain
    if asked is None:
        return _features(release, np.arange(min(offset, domain.size), min(offset + limit, domain.size))), domain.size
    cells = np.flatnonzero(cells_within(domain, asked))
    return _features(release, cells[offset : offset + limit]), len(cells)


def cells_within(domain: Domain, asked: Box) -> NDArray[np.bool_]:
    """Return which cells (domain.shape) meet a box in degrees; west above east means across the antimeridian."""
    west, south, east, north = asked
    own = extent_of(domain)
    # A box without a width, such as a point, is widened a little.
    x, y = _THIN * width_in_degrees(own[0], own[2]) / domain.shape[0], _THIN * (own[3] - own[1]) / domain.shape[1]
    wide = 360.0 if abs(east - west) >= 360 else (east - west) % 360
    shape = fit_box(domain, [west, south, west + min(max(wide, x), 360.0), max(north, south + y)])
    meets = np.zeros(domain.shape, dtype=bool)
    if shape is None:
        return meets
    cover = regions([shape]).cover(domain)
    meets[cover.x, cover.y] = True
    for (west_end, south_end), (east_end, north_end) in zip(cover.low.tolist(), cover.high.tolist(), strict=True):
        meets[west_end:east_end, south_end:north_end] = True
    return meets


def _features(release: Release, cells: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return cells, by their numbers (m,), as GeoJSON."""
    if not len(cells):
        return []
    domain = release.domain
    column, row = np.divmod(cells, domain.shape[1])
    x, y = domain.edges(0), domain.edges(1)
    west, south, east, north = x[column], y[row], x[column + 1], y[row + 1]
    found = release.answers(boxes(np.column_stack([west, south, east, north])), level=LEVEL, nonnegative=False)
    cell = to_degrees(shapely.box(west, south, east, north), domain)
    shapes = shapely.to_geojson(shapely.transform(cell, lambda places: places.round(DIGITS)))
    figures = {"column": column, "row": row, "estimate": found["estimate"], "standard_error": found["std_error"]}
    figures |= {"low": found["low"], "high": found["high"]}
    rows = zip(*(each.tolist() for each in figures.values()), strict=True)
    return [
        {
            "type": "Feature",
            "id": number,
            "geometry": orjson.Fragment(shape),
            "properties": dict(zip(figures, row, strict=True)),
        }
        for number, shape, row in zip(cells.tolist(), shapes, rows, strict=True)
    ]
