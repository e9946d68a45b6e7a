"""Routes that return the cells of a map, merged into blocks or as single features (OGC API – Features)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlencode

import numpy as np
import orjson
import shapely
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist.decode import stands_out
from deltahist.errors import InputError, check_choice, check_finite
from deltahist.plots.figures import block_areas, unit_of_area
from deltahist.releases import Release, Series
from deltahist.releases.histogram import CountEstimates
from deltahist.releases.series import Difference
from deltahist.server.answer_routes import read_box
from deltahist.server.catalogue import Served
from deltahist.server.models import Cells, CellsAsked, CellsOfSeries, FeatureCollection, ItemsAsked, returns
from deltahist.server.release_routes import sum_periods
from deltahist.server.service import CRS84, GEOJSON, JSON, PARQUET, Service, ServiceOf, Source, are_in_degrees
from deltahist.space.crs import LONGITUDE_LATITUDE, Operation, area_of, width_in_degrees
from deltahist.space.domain import Domain
from deltahist.space.geometries import bend_boxes, fit, to_degrees
from deltahist.space.workloads import boxes, regions
from deltahist.strategies.base import sum_blocks

#: How many times to double the block size when looking for larger blocks that stand out.
_DOUBLINGS = 4
#: Confidence level of intervals, and decimal places of degrees (a centimetre on the ground).
LEVEL, DIGITS = 0.95, 7
#: Note added to every collection and page, because readers may be tempted to add up features.
NOTE = (
    "Estimates are unbiased, so some are below zero. Do not add the errors of cells, or their squares: the noise of "
    "one cell depends on that of others. Use /releases/{name}/answer for sums over boxes and regions."
)
Index: TypeAlias = NDArray[np.int64]
Box: TypeAlias = tuple[float, float, float, float]

router = APIRouter()


@router.get("/releases/{name}/cells", responses=returns({JSON: Cells}), tags=["maps"])
async def list_cells(service: ServiceOf, name: str, asked: Annotated[CellsAsked, Query()]) -> Response:
    """Return the densities of at most 20,000 blocks of cells, from the lower left, with x varying slowest."""
    return await _show_blocks(service, service.find_source(name, asked.compare)[0], asked)


@router.get("/series/{stream}/cells", responses=returns({JSON: Cells}), tags=["maps"])
async def list_cells_of_series(service: ServiceOf, stream: str, asked: Annotated[CellsOfSeries, Query()]) -> Response:
    """Return the densities of blocks of cells, summed over a period."""
    return await _show_blocks(service, (await sum_periods(service, stream, asked))[0], asked)


async def _show_blocks(service: Service, source: Source, asked: CellsAsked) -> Response:
    degrees = are_in_degrees(source, asked.crs)
    box = None if asked.bbox is None else read_box(asked.bbox, source.domain)
    content = await service.run(encode_blocks, source, box, degrees, asked)
    return Response(content, media_type=JSON, headers={"cache-control": "no-cache"})


def encode_blocks(source: Source, box: NDArray[np.float64] | None, degrees: bool, asked: CellsAsked) -> bytes:
    """Return the blocks that intersect a box, as JSON."""
    domain = source.domain
    check_choice((1, 2), dimensions=domain.ndim)
    low, high = corner, _ = np.array(domain.low), np.array(domain.high)
    if box is not None:
        low, high = np.split(box, 2)
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
    """Return the edges (cell numbers) of the blocks along each axis, and the width of a block."""
    while True:
        most = width << _DOUBLINGS  # so that the extent contains whole blocks of the largest size
        pairs = zip(extent, domain.shape, strict=True)
        spans = [(i - i % most, min(j + -j % most, n)) if i < j else (i, j) for (i, j), n in pairs]
        ends = [np.append(np.arange(i, j, width), j) for i, j in spans]
        if np.prod([len(each) - 1 for each in ends]) <= 20_000:
            return ends, width
        width *= 2


def _test_blocks(source: Source, ends: list[Index]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the density of each block, and whether it stands out when blocks of all sizes are tested together."""
    places = [source.domain.edges(axis)[each] for axis, each in enumerate(ends)]
    first, last = (np.meshgrid(*(each[part] for each in places), indexing="ij") for part in (slice(-1), slice(1, None)))
    work = boxes(np.column_stack([each.ravel() for each in (*first, *last)]))
    found, either = source.answer_workload(work, level=LEVEL, nonnegative=False), isinstance(source, Difference)
    counted = either or isinstance(source, (CountEstimates, Series))  # excludes sorted points
    kurtosis = source.decoder.moments(work).kurtosis if counted else np.nan  # type: ignore[union-attr]
    level = (1 - LEVEL) / (1 + _DOUBLINGS)
    signal = stands_out(found["estimate"], found["std_error"], kurtosis, level=level, either_side=either)
    if "unresolved" in found:  # drop blocks that the strategy does not measure separately from their neighbours
        signal &= found["unresolved"] < 1e-6
    areas = block_areas(source.domain, ends)
    return found["estimate"].reshape(areas.shape) / areas, signal.reshape(areas.shape)


def _find_larger(source: Source, ends: list[Index], signal: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return the corners and densities of larger blocks that stand out although none of their parts does."""
    found, corners = [], [np.arange(len(each)) for each in ends]
    for _ in range(_DOUBLINGS if signal.size else 0):
        parts = sum_blocks(signal, tuple(np.arange(0, n, 2) for n in signal.shape)) > 0
        corners = [np.append(each[:-1:2], each[-1]) for each in corners]
        density, signal = _test_blocks(source, [each[at] for each, at in zip(ends, corners, strict=True)])
        for place in np.argwhere(signal & ~parts):
            first, last = ([each[at + k] for each, at in zip(corners, place, strict=True)] for k in (0, 1))
            found.append({"first": first, "last": last, "density": float(density[tuple(place)])})
        signal |= parts
    return found


def _corners(domain: Domain, ends: list[Index]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the x and y coordinates of the block corners, in degrees if the map has a CRS."""
    places = [domain.edges(axis)[each] for axis, each in enumerate(ends)]
    if domain.ndim == 1:
        return places[0], np.zeros(0)
    x, y = np.meshgrid(*places, indexing="ij")
    if domain.crs is not None:
        x, y = Operation.off(domain, LONGITUDE_LATITUDE)(x, y)
        # Keep a map in one piece across the antimeridian.
        x, y = np.round(x[0, 0] + (x - x[0, 0] + 180) % 360 - 180, DIGITS), np.round(y, DIGITS)
    return np.ravel(x), np.ravel(y)


def fit_box(domain: Domain, box: Sequence[float]) -> Any:
    """Return the part of a map inside a box in degrees as a polygon in map coordinates, or None if it is empty."""
    west, south, east, north = box
    wide = 360.0 if abs(east - west) >= 360 else (east - west) % 360  # also across the antimeridian
    bent = bend_boxes(np.array([[west, south, west + wide, north]]), domain)
    try:
        return fit(bent, domain, LONGITUDE_LATITUDE).shapes[0]
    except InputError:
        return None


# --- OGC API – Features: every map is a collection, and each of its cells is a feature ---------------------


def list_links(base: str) -> dict[str, Any]:
    links = [
        _link("self", base),
        _link("service-desc", f"{base}openapi.json", "application/vnd.oai.openapi+json;version=3.1"),
        _link("conformance", f"{base}conformance"),
        _link("data", f"{base}collections"),
        _link("items", f"{base}releases"),
    ]
    about = "Counts of points on maps published with differential privacy, with errors and intervals."
    return {"title": "Range queries over private maps", "description": about, "links": links}


@router.get("/conformance", tags=["OGC API"])
async def list_conformance() -> dict[str, Any]:
    """List the OGC requirements classes to which the service conforms."""
    classes = {
        "ogcapi-common-1": ("core", "landing-page", "json"),
        "ogcapi-common-2": ("collections",),
        "ogcapi-features-1": ("core", "geojson"),
    }
    base = "http://www.opengis.net/spec"
    return {"conformsTo": [f"{base}/{spec}/1.0/conf/{name}" for spec, names in classes.items() for name in names]}


@router.get("/collections", tags=["OGC API"])
async def list_collections(request: Request, service: ServiceOf) -> dict[str, Any]:
    """List the collections, one for each release of a 2-D map with a CRS."""
    base = str(request.base_url)
    found = [_describe_collection(each, base) for each in service.catalogue.in_force() if _is_collection(each)]
    return {"links": [_link("self", f"{base}collections")], "collections": found}


@router.get("/collections/{name}", tags=["OGC API"])
async def describe_collection(request: Request, service: ServiceOf, name: str) -> dict[str, Any]:
    """Describe a collection, with its extent and links to its features."""
    return _describe_collection(service.find(name, "collection", _is_collection), str(request.base_url))


@router.get("/collections/{name}/items", responses=returns({GEOJSON: FeatureCollection}), tags=["OGC API"])
async def list_items(
    request: Request, service: ServiceOf, name: str, asked: Annotated[ItemsAsked, Query()]
) -> Response:
    """Return a page of cells as GeoJSON with 95% intervals, column by column from the south-west corner."""
    served, limit = service.find(name, "collection", _is_collection), min(asked.limit, 10_000)
    box = None if asked.bbox is None else _read_degrees(asked.bbox, served.release.domain)
    features, matched = await service.run(_list_page, served.release, box, asked.offset, limit)
    collection = f"{request.base_url}collections/{served.quoted}"
    links = [_link("self", f"{collection}/items?{request.url.query}", GEOJSON), _link("collection", collection)]
    if asked.offset + limit < matched:
        query = asked.model_dump(exclude_none=True) | {"limit": limit, "offset": asked.offset + limit}
        links.append(_link("next", f"{collection}/items?{urlencode(query)}", GEOJSON))
    content = {"type": "FeatureCollection", "features": features, "links": links, "level": LEVEL}
    content |= {"numberMatched": matched, "numberReturned": len(features), "note": NOTE}
    return Response(orjson.dumps(content), media_type=GEOJSON)


@router.get("/collections/{name}/items/{number}", responses=returns({GEOJSON: None}), tags=["OGC API"])
async def show_item(request: Request, service: ServiceOf, name: str, number: int) -> Response:
    """Return one cell as GeoJSON."""
    served = service.find(name, "collection", _is_collection)
    size = served.release.domain.size
    if not 0 <= number < size:
        raise HTTPException(404, f"feature is {number}: it must be a number from 0 to {size - 1:,}")
    (feature,) = await service.run(_encode_features, served.release, np.array([number]))
    address = f"{request.base_url}collections/{served.quoted}"
    links = [_link("self", f"{address}/items/{number}", GEOJSON), _link("collection", address)]
    return Response(orjson.dumps(feature | {"links": links}), media_type=GEOJSON)


def _link(relation: str, address: str, media: str = JSON) -> dict[str, str]:
    return {"rel": relation, "type": media, "href": address}


def _is_collection(served: Served) -> bool:
    release = served.release
    return release.mechanism.determines_cells is not None and release.domain.ndim == 2 and bool(release.domain.crs)


def _describe_collection(served: Served, base: str) -> dict[str, Any]:
    address, source = f"{base}collections/{served.quoted}", f"{base}releases/{served.quoted}"
    mechanism = served.release.mechanism
    return {
        "id": served.name,
        "title": served.release.about.title or served.name,
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
    """Return the bounds (W, S, E, N) of a map in degrees, rounded outwards. If it crosses 180°, west exceeds east."""
    area = area_of(str(domain.crs), domain.bounds) or (-180.0, -90.0, 180.0, 90.0)
    step = 10.0**-DIGITS
    west, south, east, north = np.round(np.array(area) + step * np.array([-1, -1, 1, 1]), DIGITS).tolist()
    return west, south, east, north


def _read_degrees(text: str, domain: Domain) -> Box:
    """Parse a bbox in longitude and latitude, ignoring heights."""
    parts = text.split(",")
    west, south, east, north = read_box(",".join(parts[:2] + parts[3:5]) if len(parts) == 6 else text, domain).tolist()
    return west, check_finite(least=-90, most=90, south=south), east, check_finite(least=south, most=90, north=north)


def _list_page(release: Release, asked: Box | None, offset: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    domain = release.domain
    cells = range(domain.size) if asked is None else np.flatnonzero(cells_within(domain, asked))
    return _encode_features(release, np.array(cells[offset : offset + limit], dtype=np.int64)), len(cells)


def cells_within(domain: Domain, asked: Box) -> NDArray[np.bool_]:
    """Return a mask (domain.shape) of cells that meet a box in degrees, which crosses 180° if west exceeds east."""
    west, south, east, north = asked
    own = extent_of(domain)
    # Extend a point or a line to a small fraction of a cell.
    x, y = 2e-3 * width_in_degrees(own[0], own[2]) / domain.shape[0], 2e-3 * (own[3] - own[1]) / domain.shape[1]
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


def _encode_features(release: Release, cells: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return the cells with these numbers (m,) as GeoJSON features."""
    if not len(cells):
        return []
    domain = release.domain
    column, row = np.divmod(cells, domain.shape[1])
    x, y = domain.edges(0), domain.edges(1)
    west, south, east, north = x[column], y[row], x[column + 1], y[row + 1]
    found = release.answer_workload(boxes(np.column_stack([west, south, east, north])), level=LEVEL, nonnegative=False)
    cell = to_degrees(shapely.box(west, south, east, north), domain)
    shapes = shapely.to_geojson(shapely.transform(cell, lambda places: places.round(DIGITS)))
    figures = {"column": column, "row": row, "estimate": found["estimate"], "standard_error": found["std_error"]}
    figures |= {"low": found["low"], "high": found["high"]}
    rows = zip(*(each.tolist() for each in figures.values()), strict=True)
    properties = [dict(zip(figures, row, strict=True)) for row in rows]
    return [
        {"type": "Feature", "id": number, "geometry": orjson.Fragment(shape), "properties": own}
        for number, shape, own in zip(cells.tolist(), shapes, properties, strict=True)
    ]
