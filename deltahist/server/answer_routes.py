"""Routes that answer a box, many boxes or a feature collection from a release or a series."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Any

import msgspec
import numpy as np
import orjson
import shapely
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from shapely.errors import GEOSException

from deltahist.answers import answer, rename_own
from deltahist.errors import InputError, check_choice
from deltahist.releases.base import PLACED, UNBIASED
from deltahist.server import models
from deltahist.server.release_routes import sum_periods
from deltahist.server.service import ARROW, CSV, GEOJSON, JSON, BoxQuery, Service, ServiceOf, Source, are_in_degrees
from deltahist.space.domain import Domain

_MEDIA = {"json": JSON, "csv": CSV, "arrow": ARROW}
_MOST_VERTICES = 200_000
#: OpenAPI description of the routes that parse request bodies themselves.
_MANY: dict[str, Any] = {
    "responses": models.returns({JSON: None, GEOJSON: models.FeatureCollection, CSV: None, ARROW: None}),
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": next(iter(msgspec.json.schema(models.Boxes[list[float]])["$defs"].values()))},
                GEOJSON: {"schema": models.FeatureCollection.model_json_schema()},
            },
        }
    },
}

router = APIRouter(tags=["answers"])


@router.get("/releases/{name}/answer", responses=models.returns({JSON: models.BoxAnswer}))
async def answer_box(service: ServiceOf, name: str, asked: Annotated[models.BoxOfRelease, Query()]) -> Response:
    """Return the estimated number of points in a box, with its standard error and interval."""
    source, about = service.find_source(name, asked.compare)
    return await _answer_box(service, source, asked, asked.bbox, {"release": name} | about)


@router.get("/series/{stream}/answer", responses=models.returns({JSON: models.BoxAnswer}))
async def answer_box_of_series(
    service: ServiceOf, stream: str, asked: Annotated[models.BoxOfSeries, Query()]
) -> Response:
    """Return the estimated number of points in a box, summed over a period, with its standard error and interval."""
    source, about = await sum_periods(service, stream, asked)
    return await _answer_box(service, source, asked, asked.bbox, {"series": stream} | about)


@router.post("/releases/{name}/answers", **_MANY)
async def answer_many(
    request: Request, service: ServiceOf, name: str, asked: Annotated[models.OfRelease, Query()]
) -> Response:
    """Answer `{"boxes": [[W, S, E, N], ...]}` with columns, or a FeatureCollection by adding to features' properties.

    CSV and Arrow contain only the answers, in the order of the boxes or features.
    """
    source, about = service.find_source(name, asked.compare)
    return await _answer_body(request, service, source, asked, about)


@router.post("/series/{stream}/answers", **_MANY)
async def answer_many_of_series(
    request: Request, service: ServiceOf, stream: str, asked: Annotated[models.OfSeries, Query()]
) -> Response:
    """Answer many boxes or features, summed over a period, as `/releases/{name}/answers` does for a release."""
    source, about = await sum_periods(service, stream, asked)
    return await _answer_body(request, service, source, asked, about)


@router.get("/districts", responses=models.returns({GEOJSON: models.FeatureCollection}))
async def list_districts(service: ServiceOf) -> Response:
    """Return the outlines and names of the districts that the map can show."""
    return Response(await service.run(getattr, service.districts, "outlines"), media_type=GEOJSON)


@router.get("/releases/{name}/districts", responses=models.returns({JSON: None}))
async def answer_districts(service: ServiceOf, name: str, asked: Annotated[models.OfRelease, Query()]) -> Response:
    """Return lists of estimates and densities of `/districts`, and which of them stand out from the noise."""
    return await _answer_districts(service, *service.find_source(name, asked.compare), asked)


@router.get("/series/{stream}/districts", responses=models.returns({JSON: None}))
async def answer_districts_of_series(
    service: ServiceOf, stream: str, asked: Annotated[models.OfSeries, Query()]
) -> Response:
    """Return lists of estimates and densities of `/districts`, summed over a period."""
    return await _answer_districts(service, *await sum_periods(service, stream, asked), asked)


async def _answer_districts(service: Service, source: Source, about: Any, asked: models.Options) -> Response:
    columns = await service.run(service.districts.answer, source, asked.level, asked.nonnegative)
    about |= _explain_columns(BoxQuery(source, False, asked.level, asked.nonnegative), columns)
    return Response(_encode_json(columns | about), media_type=JSON)


async def _answer_box(
    service: Service, source: Source, options: models.Options, bbox: str, about: dict[str, Any]
) -> Response:
    query = BoxQuery(source, are_in_degrees(source, options.crs), options.level, options.nonnegative)
    corners = read_box(bbox, source.domain)
    # On a large map the first non-negative answer takes seconds. Other boxes must not wait for it.
    found = service.run(query.answer_one, corners) if query.nonnegative else service.batcher.answer(query, corners)
    columns = await found
    content = {"bbox": corners} | {name: each[0] for name, each in columns.items()}
    return Response(_encode_json(content | _explain_columns(query, columns) | about), media_type=JSON)


def _encode_json(content: dict[str, Any]) -> bytes:
    """Encode a JSON object, writing NaN and infinity as null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def _explain_columns(query: BoxQuery, columns: Container[str]) -> dict[str, Any]:
    """Return the unit, level and estimator of answers that have these columns."""
    estimates = query.release.name_estimator(query.nonnegative)
    estimates = PLACED if "cut" in columns and estimates == UNBIASED else estimates
    return {"unit": "points", "level": query.level, "estimates": estimates}


def read_box(text: str, domain: Domain) -> NDArray[np.float64]:
    """Parse the 2 · ndim sides of a box, in the order of `Domain.sides`."""
    sides = 2 * domain.ndim
    try:
        corners = np.array([float(part) for part in text.split(",")])
    except ValueError:
        corners = np.array([np.nan])
    if len(corners) != sides or not np.isfinite(corners).all():
        raise InputError(f"bbox is {text[:80]!r}: it must be the {sides} numbers {','.join(domain.sides)}")
    return corners


async def _answer_body(
    request: Request, service: Service, source: Source, options: models.Options, about: dict[str, Any]
) -> Response:
    accept, most = request.headers.get("accept", ""), service.settings.max_boxes
    form: str = options.f or next((name for name, media in _MEDIA.items() if media in accept), "json")
    async with service.take_place():
        body = await service.read_body(request)
        media = request.headers.get("content-type", "")
        of_features = media.startswith(GEOJSON) or b'"FeatureCollection"' in body[:1000]
        parse, answer_them = (_parse_features, _answer_features) if of_features else (_parse_boxes, _answer_boxes)
        try:
            asked = await service.run(parse, body, most, source.domain.ndim)
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.DecodeError, GEOSException) as problem:
            rule = 'it must be {"boxes": [[W, S, E, N], ...]} or a GeoJSON FeatureCollection'
            raise InputError(f"the body cannot be read ({problem}): {rule}") from None
        content = await service.run(answer_them, source, asked, options, form, about)
    return Response(content, media_type=GEOJSON if of_features and form == "json" else _MEDIA[form])


def _parse_boxes(body: bytes, most: int, ndim: int) -> list[tuple[float, ...]]:
    corners: Any = tuple[(float,) * (2 * ndim)]  # type: ignore[misc]
    asked: list[tuple[float, ...]] = msgspec.json.decode(body, type=models.Boxes[corners]).boxes
    models.check_size(len(asked), most, "boxes")
    return asked


def _answer_boxes(source: Source, asked: Any, options: models.Options, form: str, about: dict[str, Any]) -> bytes:
    query = BoxQuery(source, are_in_degrees(source, options.crs), options.level, options.nonnegative)
    columns = query.answer(np.array(asked))
    about = _explain_columns(query, columns) | about
    if form != "json":
        return _encode_table(columns, form, about)
    lists = {name: each.tolist() if each.dtype == object else each for name, each in columns.items()}
    return _encode_json(lists | about)


def _encode_table(answers: Any, form: str, about: dict[str, Any]) -> bytes:
    """Return answers as CSV, or as Arrow with `about` in its metadata."""
    import pandas as pd
    import pyarrow as pa

    frame = pd.DataFrame(answers)
    if form == "csv":
        return frame.to_csv(index=False).encode()
    metadata = {name: value if isinstance(value, str) else orjson.dumps(value) for name, value in about.items()}
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _parse_features(body: bytes, most: int, _: int) -> tuple[Any, str | None, NDArray[Any], list[dict[str, Any]]]:
    """Return a feature collection, its CRS, and the shapes and properties of its features."""
    collection = orjson.loads(body)
    features = list(collection["features"])
    models.check_size(len(features), most, "features")
    crs = str(collection["crs"]["properties"]["name"]) if collection.get("crs") else None
    given = [each.get("geometry") for each in features]
    shapes = shapely.from_geojson([None if each is None else orjson.dumps(each) for each in given])
    models.check_size(int(shapely.get_num_coordinates(shapes).sum()), _MOST_VERTICES, "vertices")
    return collection, crs, shapes, [dict(each.get("properties") or {}) for each in features]


def _answer_features(source: Source, asked: Any, options: models.Options, form: str, about: dict[str, Any]) -> bytes:
    import geopandas as gpd

    collection, crs, shapes, own = asked
    stated = crs or options.crs
    check_choice((None, stated), crs=options.crs)
    if (~shapely.is_valid(shapes) & (shapely.get_num_coordinates(shapes) > 200)).any():  # repair is slow
        raise InputError("a feature with more than 200 vertices has rings that cross: repair it before you send it")
    query = BoxQuery(source, are_in_degrees(source, stated), options.level, options.nonnegative)
    places = gpd.GeoSeries(shapes, crs="OGC:CRS84" if query.degrees else source.domain.crs)
    found = answer(source, places, level=query.level, nonnegative=query.nonnegative)
    about |= _explain_columns(query, found)
    if form != "json":
        return _encode_table(found, form, about)
    for feature, properties, columns in zip(collection["features"], own, found.to_dict("records"), strict=True):
        names = rename_own(properties)
        feature["properties"] = {names.get(name, name): value for name, value in properties.items()} | columns
    return _encode_json(collection | about)
