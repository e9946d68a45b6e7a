"""Routes of OGC API – Features: every map is a collection, and every cell of it a feature."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist._http import GEOJSON, JSON, PARQUET, as_json, copy_headers, negotiate
from deltahist.errors import InputError
from deltahist.preprocessing import seconds
from deltahist.releases import Release
from deltahist.server.answers import CRS84
from deltahist.server.blocks import DIGITS, LEVEL
from deltahist.server.catalogue import Served
from deltahist.server.landing import link
from deltahist.server.schemas import FeatureCollection, GeoFeature, file_of
from deltahist.server.service import Service
from deltahist.space.crs import Operation
from deltahist.space.degrees import bend_boxes
from deltahist.space.domain import Domain
from deltahist.space.fitting import fit
from deltahist.space.geometries import LONGITUDE_LATITUDE
from deltahist.space.workloads import boxes, regions

#: Relation of a collection to its tilesets.
TILESETS = "http://www.opengis.net/def/rel/ogc/1.0/tilesets-map"
#: Features of a page: unless it is said, and at most.
_USUAL, _MOST = 1_000, 10_000
#: Of a cell's side: boxes that are thinner, points too, are widened to it, or they would pass for rounding.
_THIN = 2e-3
#: Said of every collection and page, since those who see features add them up.
NOTE = (
    "Estimates are unbiased, and some are below zero. Errors of cells must not be added, nor their squares: noise of "
    "one cell is related to that of others. Ask /releases/{name}/answer for sums over boxes and regions."
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
Box = tuple[float, float, float, float]


def make_router(service: Service) -> APIRouter:
    """Return the routes to collections and their features."""
    router = APIRouter(tags=["OGC API"])

    @router.get("/collections")
    async def list_collections(request: Request) -> Response:
        """List the collections: all releases of a map that has a place on the earth."""
        negotiate(request, {JSON: "json"})
        base = service.address(request)
        found = [_describe(served, base) for served in service.catalogue.in_force() if is_collection(served)]
        return as_json({"links": [link("self", f"{base}collections", "this document")], "collections": found})

    @router.get("/collections/{name}")
    async def describe(name: str, request: Request) -> Response:
        """Describe a collection: where it lies, and links to its features and tiles."""
        served = find_collection(service, name)
        negotiate(request, {JSON: "json"})
        headers = copy_headers(request, service.tag_links(served, "collection", request))
        return as_json(_describe(served, service.address(request)), headers)

    @router.get("/collections/{name}/items", response_class=Response, responses=file_of(GEOJSON, FeatureCollection))
    async def list_items(
        request: Request,
        name: str,
        bbox: str | None = Query(None, description="west,south,east,north in longitude and latitude; all if not given"),
        limit: int = Query(_USUAL, ge=1, description=f"features of a page; more than {_MOST:,} are taken for that"),
        offset: int = Query(0, ge=0, le=1 << 53, description="features before those of the page, as `next` links say"),
        time: str | None = Query(None, alias="datetime", description="an instant or interval (RFC 3339), as a/b"),
    ) -> Response:
        """Return cells as GeoJSON, page by page, from the south-west, column by column.

        Each has estimate, standard error and interval (95%). Errors of cells must not be added.
        """
        served = find_collection(service, name)
        negotiate(request, {GEOJSON: "geojson", JSON: "json"})
        box, meant = None if bbox is None else read_degrees(bbox), time is None or _is_within(served, time)
        headers = copy_headers(request, service.tag_links(served, "items", request))
        limit = min(limit, _MOST)
        found = await service.workers.run(_page, served.release, box if meant else (), offset, limit)
        features, matched = found
        collection = _address(served, service.address(request))
        address = f"{collection}/items"
        kept = {"bbox": bbox, "datetime": time, "limit": limit}
        links = [
            link("self", f"{address}?{request.url.query}".removesuffix("?"), "this page", GEOJSON),
            link("collection", collection, "the collection"),
        ]
        for relation, first in (("next", offset + limit), ("prev", max(offset - limit, 0))):
            if first < matched if relation == "next" else offset > 0:
                query = {key: value for key, value in kept.items() if value is not None} | {"offset": first}
                links.append(link(relation, f"{address}?{urlencode(query)}", f"{relation} page", GEOJSON))
        content = {
            "type": "FeatureCollection",
            "features": features,
            "numberMatched": matched,
            "numberReturned": len(features),
            "links": links,
            "level": LEVEL,
            "note": NOTE.replace("{name}", served.quoted),
        }
        return Response(orjson.dumps(content), media_type=GEOJSON, headers=headers)

    @router.get("/collections/{name}/items/{number}", response_class=Response, responses=file_of(GEOJSON, GeoFeature))
    async def show_item(request: Request, name: str, number: str) -> Response:
        """Return one cell as GeoJSON."""
        served = find_collection(service, name)
        negotiate(request, {GEOJSON: "geojson", JSON: "json"})
        if not re.fullmatch(r"\d{1,15}", number) or int(number) >= served.release.domain.size:
            size = served.release.domain.size
            raise HTTPException(404, f"feature is {number[:80]!r}: it must be a number from 0 to {size - 1:,}")
        headers = copy_headers(request, service.tag_links(served, "item", request))
        address = _address(served, service.address(request))
        links = [
            link("self", f"{address}/items/{number}", "this feature", GEOJSON),
            link("collection", address, "the collection"),
        ]
        (feature,) = await service.workers.run(_features, served.release, np.array([int(number)]))
        return Response(orjson.dumps(feature | {"links": links}), media_type=GEOJSON, headers=headers)

    return router


def is_collection(served: Served) -> bool:
    """Return whether a release has cells that have a place on the earth."""
    return isinstance(served.release, Release) and served.release.domain.ndim == 2 and bool(served.release.domain.crs)


def find_collection(service: Service, name: str) -> Served:
    """Return the release that a collection is; HTTPException 404 if there is none."""
    served = service.catalogue.find(name)
    if served is None or not is_collection(served):
        raise HTTPException(404, f"collection is {name[:80]!r}: it must be one of those at /collections")
    return service.refuse_withdrawn(served)


def _describe(served: Served, base: str) -> dict[str, Any]:
    """Return what a collection's document says."""
    address, source = _address(served, base), f"{base}releases/{served.quoted}"
    extent: dict[str, Any] = {"spatial": {"bbox": [extent_of(served.release.domain)], "crs": CRS84}}
    if (times := _times_of(served)) is not None:
        ends = [datetime.datetime.fromtimestamp(each, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in times]
        extent["temporal"] = {"interval": [ends]}
    return {
        "id": served.name,
        "title": served.name,
        "description": f"Cells of {served.release.mechanism.words}. {served.release.mechanism.promise}. "
        + NOTE.replace("{name}", served.quoted),
        "extent": extent,
        "itemType": "feature",
        "crs": [CRS84],
        "links": [
            link("self", address, "this document"),
            link("items", f"{address}/items", "cells as features", GEOJSON),
            link(TILESETS, f"{address}/map/tiles", "cells as pictures"),
            link("describedby", source, "promise and statement"),
            link("enclosure", f"{source}/download", "file", PARQUET),
        ],
    }


def _address(served: Served, base: str) -> str:
    return f"{base}collections/{served.quoted}"


@functools.lru_cache(maxsize=1_000)
def extent_of(domain: Domain) -> Box:
    """Return west, south, east and north of a map in degrees, rounded outwards."""
    x, y = domain.edges(0), domain.edges(1)
    rim = [(x, y[:1].repeat(len(x))), (x, y[-1:].repeat(len(x))), (x[:1].repeat(len(y)), y), (x[-1:].repeat(len(y)), y)]
    lon, lat = Operation.off(domain, LONGITUDE_LATITUDE)(*(np.concatenate(each) for each in zip(*rim, strict=True)))
    step = 10.0**-DIGITS
    west, south = (round(float(each.min()) - step, DIGITS) for each in (lon, lat))
    east, north = (round(float(each.max()) + step, DIGITS) for each in (lon, lat))
    return west, south, east, north


def read_degrees(text: str) -> list[Box]:
    """Return the boxes, two across the antimeridian, of a bbox in longitude and latitude; heights are left out.

    Raises InputError if it is no such box.
    """
    try:
        parts = [float(part) for part in text.split(",")]
    except ValueError:
        parts = []
    west, south, east, north = parts if len(parts) == 4 else parts[:2] + parts[3:5] if len(parts) == 6 else [np.nan] * 4
    if not (np.isfinite([west, east]).all() and -90 <= south <= north <= 90):
        raise InputError(
            f"bbox is {text[:80]!r}: it must be west,south,east,north in longitude and latitude, south at most north"
        )
    return [(west, south, east, north)] if west <= east else [(west, south, 180, north), (-180, south, east, north)]


def _times_of(served: Served) -> tuple[int, int] | None:
    """Return the first second of a step of a stream, and that after its last one; None without a time."""
    step = served.release.mechanism.step
    return None if step is None else step.clock.span(step.number)


def _is_within(served: Served, text: str) -> bool:
    """Return whether a release's time meets an instant or interval; what has no time always does.

    Raises InputError if it is none.
    """
    ends = text.split("/")
    open_ends = ("", "..")
    if len(ends) > 2 or (len(ends) == 1 and text in open_ends):
        raise InputError(f"datetime is {text[:80]!r}: it must be an instant, or two with / between")
    low = -np.inf if ends[0] in open_ends else float(seconds(ends[0], "datetime"))
    high = np.inf if ends[-1] in open_ends else float(seconds(ends[-1], "datetime"))
    high += 86_399 if _DAY.fullmatch(ends[-1]) else 0
    if low > high:
        raise InputError(f"datetime is {text[:80]!r}: its ends are reversed")
    times = _times_of(served)
    return times is None or (times[0] <= high and low < times[1])


def _page(release: Release, asked: Sequence[Box] | None, offset: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the features of a page, and how many there are in all."""
    domain = release.domain
    meets = None if asked is None else cells_within(domain, asked)
    if meets is None:
        return _features(release, np.arange(min(offset, domain.size), min(offset + limit, domain.size))), domain.size
    # Columns of cells are counted first, so that only those of the page are listed.
    until = np.cumsum(meets.sum(axis=1))
    first = int(np.searchsorted(until, offset, side="right"))
    last = int(np.searchsorted(until, offset + limit)) + 1
    before = int(until[first - 1]) if first else 0
    cells = first * domain.shape[1] + np.flatnonzero(meets[first:last])
    return _features(release, cells[offset - before : offset - before + limit]), int(until[-1])


def cells_within(domain: Domain, asked: Sequence[Box]) -> NDArray[np.bool_] | None:
    """Return which cells (domain.shape) meet any of some boxes in degrees; None for all.

    Boxes are cut to the map's surroundings first, since far from there its projection has no places.
    """
    west, south, east, north = extent_of(domain)
    near = []
    for box in asked:
        w, s, e, n = max(box[0], west), max(box[1], south), min(box[2], east), min(box[3], north)
        if (w, s, e, n) == (west, south, east, north):
            return None
        if w <= e and s <= n:
            x, y = _THIN * (east - west) / domain.shape[0], _THIN * (north - south) / domain.shape[1]
            near.append((w, s, max(e, w + x), max(n, s + y)))
    meets = np.zeros(domain.shape, dtype=bool)
    if not near:
        return meets
    try:
        fitted = fit(bend_boxes(np.array(near), domain), domain, LONGITUDE_LATITUDE)
    except InputError:  # near the map, but beside it
        return meets
    cover = regions(fitted.shapes[fitted.held]).cover(domain)
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
    ring = [np.stack(each, axis=1) for each in ((west, east, east, west, west), (south, south, north, north, south))]
    lon, lat = Operation.off(domain, LONGITUDE_LATITUDE)(*ring)
    rings = np.round(np.stack([lon, lat], axis=2), DIGITS).tolist()
    figures = {"column": column, "row": row, "estimate": found["estimate"], "standard_error": found["std_error"]}
    figures |= {"low": found["low"], "high": found["high"]}
    names, rows = list(figures), zip(*(each.tolist() for each in figures.values()), strict=True)
    return [
        {
            "type": "Feature",
            "id": number,
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": dict(zip(names, values, strict=True)),
        }
        for number, ring, values in zip(cells.tolist(), rings, rows, strict=True)
    ]
