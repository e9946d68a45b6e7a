"""Routes to answers for one box, many boxes, or the features of a collection, from releases and series."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist.answers import answer, rename_own
from deltahist.errors import InputError
from deltahist.releases.base import PLACED, UNBIASED
from deltahist.server.catalogue import Served
from deltahist.server.models import (
    BoxAnswer,
    Boxes,
    BoxOfRelease,
    BoxOfSeries,
    FeatureCollection,
    OfRelease,
    OfSeries,
    Options,
    returns,
)
from deltahist.server.release_routes import sum_periods
from deltahist.server.service import (
    ARROW,
    CSV,
    GEOJSON,
    JSON,
    BoxQuery,
    Service,
    Source,
    are_in_degrees,
    service_of,
    to_json_value,
)
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    from deltahist.releases import Series

_MEDIA = {"json": JSON, "csv": CSV, "arrow": ARROW}
#: Most vertices of all features of a request.
_MOST_VERTICES = 200_000
#: Schema of a request's body.
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": msgspec.json.schema(Boxes)["$defs"]["Boxes"]},
            GEOJSON: {"schema": FeatureCollection.model_json_schema()},
        },
    }
}
_ANSWERS = returns({JSON: None, GEOJSON: FeatureCollection, CSV: None, ARROW: None})

router = APIRouter(tags=["answers"])


@router.get("/releases/{name}/answer", response_model_exclude_unset=True)
async def answer_box(request: Request, name: str, asked: Annotated[BoxOfRelease, Query()]) -> BoxAnswer:
    """Return the estimated number of points in a box, with standard error and interval."""
    service = service_of(request)
    source, releases = service.find_source(name, asked.compare)
    answer = await _answer_box(service, asked, asked.bbox, source)
    return BoxAnswer(**answer | {"release": name} | _about_releases(releases))


@router.get("/series/{stream}/answer", response_model_exclude_unset=True)
async def answer_box_of_series(request: Request, stream: str, asked: Annotated[BoxOfSeries, Query()]) -> BoxAnswer:
    """Return the estimated sum over a period in a box, with the error of the whole sum."""
    service = service_of(request)
    source, periods = await sum_periods(service, stream, asked)
    answer = await _answer_box(service, asked, asked.bbox, source)
    return BoxAnswer(**answer | {"series": stream} | _about_periods(periods))


@router.post("/releases/{name}/answers", responses=_ANSWERS, openapi_extra=_BODY)
async def answer_many(request: Request, name: str, asked: Annotated[OfRelease, Query()]) -> Response:
    """Answer `{"boxes": [[W, S, E, N], ...]}` in columns, or a FeatureCollection in its properties.

    CSV and Arrow hold the answers alone, in the order of boxes or features.
    """
    source, releases = service_of(request).find_source(name, asked.compare)
    return await _answer_body(request, source, asked, partial(_about_releases, releases))


@router.post("/series/{stream}/answers", responses=_ANSWERS, openapi_extra=_BODY)
async def answer_many_of_series(request: Request, stream: str, asked: Annotated[OfSeries, Query()]) -> Response:
    """Answer many boxes or features for a period, as `/releases/{name}/answers` does."""
    source, periods = await sum_periods(service_of(request), stream, asked)
    return await _answer_body(request, source, asked, partial(_about_periods, periods))


async def _answer_box(service: Service, asked: Options, bbox: str, source: Source) -> dict[str, Any]:
    query = BoxQuery(source, are_in_degrees(source, asked.crs), asked.level, asked.nonnegative)
    corners = read_box(bbox, source.domain)
    # The first non-negative answer takes seconds on a large map. No other box waits for it.
    found = service.run(query.answer_one, corners) if asked.nonnegative else service.batcher.answer(query, corners)
    columns = await found
    answers = {name: to_json_value(each[0]) for name, each in columns.items()}
    return {"bbox": corners.tolist()} | answers | _explain_columns(query, columns)


def _explain_columns(query: BoxQuery, columns: Container[str]) -> dict[str, Any]:
    """Return the unit, level and estimator of answers with these columns."""
    estimates = query.release.name_estimator(query.nonnegative)
    estimates = PLACED if "cut" in columns and estimates == UNBIASED else estimates
    return {"unit": "points", "level": query.level, "estimates": estimates}


def _about_releases(asked: Sequence[Served]) -> dict[str, Any]:
    first, *others = asked
    if not others:
        return {"digest": first.release.digest}
    return {"compare": others[0].name, "difference": f"{others[0].name} minus {first.name}"}


def _about_periods(periods: Sequence[Series]) -> dict[str, Any]:
    """Return the steps that an answer covers."""
    spans = [[period.clock.label(period.first), period.clock.label(period.last)] for period in periods]
    content: dict[str, Any] = {"between": spans[0], "per": "step" if periods[0].mean else "period"}
    content["steps"] = [len(period.releases) for period in periods]
    if any(period.missing_steps for period in periods):
        content["missing"] = [label for period in periods for label in period.missing_steps]
    if len(periods) == 1:
        return content | {"steps": content["steps"][0]}
    first, second = (" to ".join(span) for span in spans)
    return content | {"compare": spans[1], "difference": f"{second} minus {first}"}


def read_box(text: str, domain: Domain) -> NDArray[np.float64]:
    """Return the corners of a box, (4,) or on a line (2,)."""
    sides = 2 * domain.ndim
    try:
        corners = np.array([float(part) for part in text.split(",")])
    except ValueError:
        corners = np.array([np.nan])
    if len(corners) != sides or not np.isfinite(corners).all():
        order = "west,south,east,north" if sides == 4 else "low,high"
        raise InputError(f"bbox is {text[:80]!r}: it must be {sides} numbers, {order}")
    return corners


async def _answer_body(
    request: Request, source: Source, options: Options, about: Callable[[], dict[str, Any]]
) -> Response:
    """Return the answers of a source to the boxes or features in a request's body."""
    service, accept = service_of(request), request.headers.get("accept", "")
    form: str = options.f or next((name for name, media in _MEDIA.items() if media in accept), "json")
    async with service.take_place():
        body = await service.read_body(request)
        if request.headers.get("content-type", "").startswith(GEOJSON) or b'"FeatureCollection"' in body[:1000]:
            content = await service.run(_answer_features, service, source, body, options, form, about())
            return Response(content, media_type=GEOJSON if form == "json" else _MEDIA[form])
        given = options.model_fields_set & {"crs", "level", "nonnegative"}
        if given:
            raise InputError(f"{given.pop()} is in the query string: for boxes it belongs in the body")
        content = await service.run(_answer_boxes, service, source, body, form, about())
    return Response(content, media_type=_MEDIA[form])


def _answer_boxes(service: Service, source: Source, body: bytes, form: str, about: dict[str, Any]) -> bytes:
    try:
        asked = msgspec.json.decode(body, type=Boxes)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise InputError(
            f'the body cannot be read ({problem}): it must be {{"boxes": [[W, S, E, N], ...]}} or a FeatureCollection'
        ) from None
    _check_number(len(asked.boxes), service.settings.max_boxes, "boxes")
    sides = 2 * source.domain.ndim
    wrong = next((box for box in asked.boxes if len(box) != sides), None)
    if wrong is not None:
        raise InputError(f"boxes holds {wrong}: every box must be {sides} numbers")
    query = BoxQuery(source, are_in_degrees(source, asked.crs), asked.level, asked.nonnegative)
    numbers = np.fromiter(itertools.chain.from_iterable(asked.boxes), np.float64, sides * len(asked.boxes))
    columns = query.answer(numbers.reshape(-1, sides))
    about = _explain_columns(query, columns) | about
    if form == "json":
        content = {
            name: [to_json_value(value) for value in each] if each.dtype == object else np.ascontiguousarray(each)
            for name, each in columns.items()
        }
        return orjson.dumps(content | about, option=orjson.OPT_SERIALIZE_NUMPY)
    return _encode(columns, form, about)


def _check_number(number: int, most: int, name: str) -> None:
    if number > most:
        raise HTTPException(413, f"the body has {number:,} {name}: at most {most:,} are answered at once")
    if number == 0:
        raise InputError(f"the body has 0 {name}: give at least one")


def _encode(answers: Any, form: str, about: dict[str, Any]) -> bytes:
    """Return a table of answers as CSV, or as Arrow with the rest in its metadata."""
    import pandas as pd
    import pyarrow as pa

    frame = pd.DataFrame(answers)
    if form == "csv":
        return frame.to_csv(index=False).encode()
    metadata = {name: value if isinstance(value, str) else orjson.dumps(value) for name, value in about.items()}
    table = pa.table(
        {name: pa.array(frame[name].to_numpy(), from_pandas=name == "note") for name in frame}, metadata=metadata
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _answer_features(
    service: Service, source: Source, body: bytes, options: Options, form: str, about: dict[str, Any]
) -> bytes:
    """Return a FeatureCollection with answers in its features' properties, or the answers as CSV or Arrow."""
    import geopandas as gpd
    import shapely

    most = service.settings.max_boxes
    try:
        collection = orjson.loads(body)
        features = list(collection["features"])
        stated = collection["crs"]["properties"]["name"] if collection.get("crs") else options.crs
        geometries = [orjson.dumps(each.get("geometry")) for each in features[: most + 1]]
        own = [dict(each.get("properties") or {}) for each in features[: most + 1]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("the body cannot be read: it must be a GeoJSON FeatureCollection") from None
    _check_number(len(features), most, "features")
    if options.crs is not None and stated != options.crs:
        raise InputError(f"crs is {options.crs[:80]!r}, but the collection states another one")
    shapes = shapely.from_geojson(geometries, on_invalid="ignore")
    unread = shapely.is_missing(shapes) & np.array([each.get("geometry") is not None for each in features])
    if unread.any():
        raise InputError(f"features[{np.argmax(unread)}] has a geometry that is not GeoJSON")
    vertices = shapely.get_num_coordinates(shapes)
    if vertices.sum() > _MOST_VERTICES:
        raise HTTPException(413, f"the body has {vertices.sum():,} vertices: at most {_MOST_VERTICES:,} are allowed")
    if (~shapely.is_valid(shapes) & (vertices > 200)).any():
        raise InputError("a feature of more than 200 vertices has rings that cross: repair it first")  # that takes long
    degrees = are_in_degrees(source, None if stated is None else str(stated))
    places = gpd.GeoSeries(shapes, crs="OGC:CRS84" if degrees else source.domain.crs)
    found = answer(source, places, level=options.level, nonnegative=options.nonnegative)
    about |= _explain_columns(BoxQuery(source, degrees, options.level, options.nonnegative), found)
    if form != "json":
        return _encode(found, form, about)
    for feature, properties, columns in zip(features, own, found.to_dict("records"), strict=True):
        names = rename_own(properties)
        kept = {names.get(name, name): value for name, value in properties.items()}
        feature["properties"] = kept | {str(name): to_json_value(value) for name, value in columns.items()}
    return orjson.dumps(collection | about)
