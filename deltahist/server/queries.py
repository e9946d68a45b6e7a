"""Routes of answers: one box, many boxes, and the features of a collection."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist._http import ARROW, GEOJSON, JSON, as_json, copy_headers, negotiate, plain, read_body
from deltahist.answers import answer, rename_own
from deltahist.decode import check_level
from deltahist.errors import InputError
from deltahist.releases.export import encode_table
from deltahist.server.answers import BoxQuery, Columns, Source, asks_degrees
from deltahist.server.catalogue import Served
from deltahist.server.schemas import BoxAnswer, BoxAnswers, BoxesAsked, FeatureCollection, reads, shape
from deltahist.server.service import Service, tag_of
from deltahist.server.settings import Settings
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    import pandas as pd

#: Says of a query what its answers say besides their figures.
About: TypeAlias = Callable[[BoxQuery], dict[str, Any]]
#: Said with every answer.
FREE = "Answers are computed from what was published: asking again costs nothing and tells nothing new of anybody."
#: Types of tables of answers.
_MEDIA = {"json": JSON, "csv": "text/csv; charset=utf-8", "arrow": ARROW}
#: Parameters of routes that answer a box, and of those whose body may be features.
Level = Annotated[float, Query(description="of the interval, between 0 and 1")]
Nonnegative = Annotated[bool, Query(description="estimates that are never negative, no longer unbiased")]
CrsOfFeatures = Annotated[str | None, Query(description="CRS of a FeatureCollection; CRS84 when none is given")]
LevelOfFeatures = Annotated[float, Query(description="of the interval, between 0 and 1; of a FeatureCollection")]
NonnegativeOfFeatures = Annotated[
    bool, Query(description="never negative, no longer unbiased; of a FeatureCollection")
]
_Compare = Annotated[str | None, Query(description="another release: the answer is its points less those of this")]
#: Bytes of a body for each place that it takes among those at work or waiting.
_BYTES_PER_PLACE = 1 << 19
#: Said of a geometry that is there, but is no GeoJSON.
_UNREAD = "geometry that cannot be read: it must be GeoJSON, whose coordinates are numbers"
#: Vertices of a feature with crossing rings, whose repair takes long.
_MOST_CROSSING = 200


class _Boxes(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request for answers to boxes."""

    boxes: list[Annotated[list[float], msgspec.Meta(min_length=2, max_length=4)]]
    crs: str | None = None
    level: float = 0.95
    nonnegative: bool = False


class _Feature(msgspec.Struct):
    """A feature of which nothing is read."""

    geometry: msgspec.Raw = msgspec.Raw(b"null")


class _Features(msgspec.Struct):
    """Features of a collection."""

    features: list[_Feature]


def make_router(service: Service) -> APIRouter:
    """Return the routes that answer queries."""
    router = APIRouter(tags=["answers"])

    @router.get("/releases/{name}/answer", responses=shape(BoxAnswer))
    async def answer_box(
        request: Request,
        name: str,
        bbox: str = Query(description="west,south,east,north; low,high on a line", examples=["-74.0,40.7,-73.9,40.8"]),
        crs: str | None = Query(None, description="CRS of bbox: the release's own, or CRS84 (longitude, latitude)"),
        level: Level = 0.95,
        nonnegative: Nonnegative = False,
        compare: _Compare = None,
    ) -> Response:
        """Return the estimated number of points in a box, with standard error and interval.

        With `compare` it is that of the other release less that of this one, with the error of both together; the
        answers of both stand beside it.
        """
        source, asked = service.find_source(name, compare)
        negotiate(request, {JSON: "json"})
        query = ask(source, crs, level, nonnegative)
        corners = read_box(bbox, query.release.domain)
        headers = copy_headers(request, tag_of(asked, "json"))
        queries = [query] if compare is None else [query, *(replace(query, release=each.release) for each in asked)]
        first, *others = await asyncio.gather(*(service.batcher.answer(each, corners) for each in queries))
        content = {"release": name, "bbox": corners.tolist()} | row(first) | _meaning(query, asked)
        if compare is not None:
            names = zip(asked, queries[1:], others, strict=True)
            content["answers"] = {each.name: row(found) | _meaning(own, [each]) for each, own, found in names}
        return as_json(content, headers)

    @router.post(
        "/releases/{name}/answers",
        responses=shape(BoxAnswers, GEOJSON, "text/csv", ARROW),
        openapi_extra={"requestBody": reads({JSON: BoxesAsked, GEOJSON: FeatureCollection})},
    )
    async def answer_many(
        request: Request,
        name: str,
        crs: CrsOfFeatures = None,
        level: LevelOfFeatures = 0.95,
        nonnegative: NonnegativeOfFeatures = False,
        compare: _Compare = None,
    ) -> Response:
        """Return answers to `{"boxes": [[W, S, E, N], ...]}`, or to the features of a GeoJSON FeatureCollection.

        Answers to boxes are columns, in the order of the boxes: JSON, CSV or Arrow (Accept). Features come back as
        GeoJSON with their properties and answers; as CSV or Arrow the answers stand alone, in the order of features.
        """
        source, asked = service.find_source(name, compare)
        about = partial(_meaning, asked=asked)
        return await answer_body(service, request, source, (crs, level, nonnegative), about)

    return router


async def answer_body(
    service: Service, request: Request, source: Source, options: tuple[str | None, float, bool], about: About
) -> Response:
    """Return the answers of a source to the boxes or features in a request's body.

    Parameters
    ----------
    options : crs, level and nonnegative as the address has them: for features.
    about : returns what is said besides the figures.
    """
    limits = service.settings
    length = request.headers.get("content-length", "")
    size = min(int(length[:20]), limits.max_bytes) if length.isdecimal() else limits.max_bytes
    # Before the body is read: what waits takes memory, and what waits too long is work for nobody.
    async with service.workers.place(-(-size // _BYTES_PER_PLACE) or 1):
        body = await read_body(request, limits.max_bytes)
        if request.headers.get("content-type", "").startswith(GEOJSON) or b'"FeatureCollection"' in body[:1000]:
            form = negotiate(request, {GEOJSON: "geojson", JSON: "json", "text/csv": "csv", ARROW: "arrow"})
            content = await service.workers.run_in_place(
                _answer_features, source, body, options, limits, form, about
            )
            media = GEOJSON if form in ("geojson", "json") else _MEDIA[form]
            return Response(content, media_type=media, headers={"vary": "Accept"})
        given = [each for each in ("crs", "level", "nonnegative") if each in request.query_params]
        if given:
            raise InputError(f"{given[0]} is in the address: for boxes it must stand beside them in the body")
        form = negotiate(request, {JSON: "json", "text/csv": "csv", ARROW: "arrow"})
        content = await service.workers.run_in_place(_answer_boxes, source, body, form, about, limits.max_boxes)
    return Response(content, media_type=_MEDIA[form], headers={"vary": "Accept"})


def ask(source: Source, crs: str | None, level: float, nonnegative: bool) -> BoxQuery:
    """Return the query of boxes in a CRS; InputError on a level or CRS that cannot be."""
    check_level(level)
    return BoxQuery(source, asks_degrees(source, crs), level, nonnegative)


def row(columns: Columns) -> dict[str, Any]:
    """Return the answer to one box, from its columns (1,)."""
    return {name: plain(value[0]) for name, value in columns.items()}


def read_box(text: str, domain: Domain) -> NDArray[np.float64]:
    """Return the corners of a box, (4,) or on a line (2,); InputError if they are no numbers or too many."""
    sides = 2 * domain.ndim
    try:
        corners = np.array([float(part) for part in text.split(",")])
    except ValueError:
        corners = np.array([np.nan])
    if len(corners) != sides or not np.isfinite(corners).all():
        order = "west,south,east,north" if sides == 4 else "low,high"
        raise InputError(f"bbox is {text[:80]!r}: it must be {sides} numbers, {order}")
    return corners


def _decode(body: bytes, most: int) -> _Boxes:
    """Return a body's boxes; InputError if it is no such JSON, HTTPException 413 if they are too many."""
    if body.count(b"[") > 2 * most:  # each box opens one: Python takes seconds to read a million
        raise HTTPException(413, f"there are more than {most:,} boxes: no more are answered at once")
    try:
        asked = msgspec.json.decode(body, type=_Boxes)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise InputError(
            f'the body cannot be read ({problem}): it must be {{"boxes": [[W, S, E, N], ...]}}, or a GeoJSON '
            "FeatureCollection"
        ) from None
    _check_number(len(asked.boxes), most, "boxes")
    return asked


def _check_number(number: int, most: int, name: str) -> None:
    if number > most:
        raise HTTPException(413, f"there are {number:,} {name}: at most {most:,} are answered at once")
    if number == 0:
        raise InputError(f"there are 0 {name}: give at least one")


def _answer_boxes(source: Source, body: bytes, form: str, about: About, most: int) -> bytes:
    asked = _decode(body, most)
    query = ask(source, asked.crs, asked.level, asked.nonnegative)
    sides = 2 * query.release.domain.ndim
    wrong = next((box for box in asked.boxes if len(box) != sides), None)
    if wrong is not None:
        raise InputError(f"boxes holds {wrong[:8]}: every box must be {sides} numbers")
    numbers = np.fromiter(itertools.chain.from_iterable(asked.boxes), np.float64, sides * len(asked.boxes))
    columns = query.answer(numbers.reshape(-1, sides))
    if form == "json":
        content = {name: _plain_column(values) for name, values in columns.items()}
        return orjson.dumps(content | about(query), option=orjson.OPT_SERIALIZE_NUMPY)
    import pandas as pd

    return _encode(pd.DataFrame(columns), form, query, about)


def _encode(answers: pd.DataFrame, form: str, query: BoxQuery, about: About) -> bytes:
    """Return a table of answers as CSV or Arrow."""
    if form == "csv":
        return encode_table(answers, "csv", query.release.domain)
    import pyarrow as pa

    metadata = {name: str(value) for name, value in about(query).items()}
    table = pa.table({name: pa.array(answers[name].to_numpy()) for name in answers}, metadata=metadata)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _answer_features(
    source: Source, body: bytes, options: tuple[str | None, float, bool], limits: Settings, form: str, about: About
) -> bytes:
    """Return a FeatureCollection with answers among its features' properties, or the answers as CSV or Arrow."""
    import geopandas as gpd
    import shapely

    (crs, level, nonnegative), most = options, limits.max_boxes
    _refuse_huge(body, limits.max_vertices)
    try:
        collection = orjson.loads(body)
        features = list(collection["features"])
        stated = collection["crs"]["properties"]["name"] if collection.get("crs") else crs
        shapes = shapely.from_geojson(
            [orjson.dumps(each.get("geometry")) for each in features[: most + 1]], on_invalid="ignore"
        )
        own = [dict(each.get("properties") or {}) for each in features[: most + 1]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("the body cannot be read: it must be a GeoJSON FeatureCollection") from None
    _check_number(len(features), most, "features")
    if crs is not None and stated != crs:
        raise InputError(f"crs is {crs[:80]!r}, but the collection states another: it must be the same, or left out")
    vertices = shapely.get_num_coordinates(shapes)
    if vertices.sum() > limits.max_vertices:
        number = f"there are {vertices.sum():,} vertices"
        raise HTTPException(413, f"{number}: at most {limits.max_vertices:,} are answered at once")
    if (~shapely.is_valid(shapes) & (vertices > _MOST_CROSSING)).any():
        raise InputError(f"a feature of more than {_MOST_CROSSING} vertices has rings that cross: repair it first")
    query = ask(source, None if stated is None else str(stated), level, nonnegative)
    places = gpd.GeoSeries(shapes, crs="OGC:CRS84" if query.degrees else query.release.domain.crs)
    unread = shapely.is_missing(shapes) & np.array([each.get("geometry") is not None for each in features])
    if unread.any() and shapely.is_missing(shapes).all():
        raise InputError(f"features[{np.argmax(unread)}] has a {_UNREAD}")
    found = answer(query.release, places, level=level, nonnegative=nonnegative)
    if unread.any():
        found.loc[unread, "note"] = f"not answered: {_UNREAD}"
    if form in ("csv", "arrow"):
        return _encode(found, form, query, about)
    for feature, properties, columns in zip(features, own, found.to_dict("records"), strict=True):
        names = rename_own(properties)
        kept = {names.get(name, name): value for name, value in properties.items()}
        feature["properties"] = kept | {str(name): plain(value) for name, value in columns.items()}
    return orjson.dumps(collection | about(query))


def _refuse_huge(body: bytes, most: int) -> None:
    """Raise HTTPException 413 if features have more than twice the vertices that they may, before they are read.

    Python takes seconds to read a million vertices, and does nothing else meanwhile. Every vertex opens a bracket, and
    hardly any geometry has more brackets around vertices than vertices.
    """
    if body.count(b"[") <= 2 * most:
        return
    try:
        features = msgspec.json.decode(body, type=_Features).features
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # whoever reads it says why
    if sum(bytes(each.geometry).count(b"[") for each in features) > 2 * most:
        raise HTTPException(413, f"there are more than {most:,} vertices: no more are answered at once")


def meaning(query: BoxQuery) -> dict[str, Any]:
    """Return what every answer says besides its figures, and of what it is."""
    estimates = query.release.estimator(query.nonnegative)
    return {"unit": "points", "level": query.level, "estimates": estimates, "cost": FREE}


def _meaning(query: BoxQuery, asked: Sequence[Served]) -> dict[str, Any]:
    """Return what an answer of a release says besides its figures, or that of one less another."""
    first, *others = asked
    if not others:
        return meaning(query) | {"digest": first.release.digest}
    after = others[0].name
    return meaning(query) | {"compare": after, "difference": f"{after} minus {first.name}"}


def _plain_column(values: NDArray[Any]) -> Any:
    return np.ascontiguousarray(values) if values.dtype != object else [plain(value) for value in values]
