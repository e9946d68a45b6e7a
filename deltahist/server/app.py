"""The application: routes, problem documents and headers. `deltahist serve` runs it, any ASGI server may."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import logging
import re
import threading
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import numpy as np
import orjson
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deltahist import __version__
from deltahist.answers import answer, rename_own
from deltahist.decode import check_level
from deltahist.errors import DeltaHistWarning, InputError
from deltahist.releases.base import BaseRelease
from deltahist.releases.page import render_page
from deltahist.releases.tables import encode_table
from deltahist.server.answers import Batcher, BoxQuery, Busy, asks_degrees
from deltahist.server.catalogue import Catalogue, Served

_LOG = logging.getLogger("deltahist.server")
_JSON, _PROBLEM, _GEOJSON = "application/json", "application/problem+json", "application/geo+json"
_ARROW = "application/vnd.apache.arrow.stream"
#: Said with every answer.
_FREE = "Answers are computed from what was published: asking again costs nothing and tells nothing new of anybody."
#: Seconds between two looks at the files.
_PACE = 1.0
#: Requests with many queries that are answered at once, and that may wait.
_AT_WORK, _MOST_WAITING = 2, 16
#: Vertices of all features, and of a feature with crossing rings, whose repair takes long.
_MOST_VERTICES, _MOST_CROSSING = 200_000, 200
#: Seconds in which a body must come.
_PATIENCE = 60


@dataclass(frozen=True)
class Settings:
    """Choices of an operator.

    Parameters
    ----------
    origins : web pages of these origins may ask ("*": all).
    most_bytes : of a request's body.
    most_boxes : in one request, features included.
    """

    origins: tuple[str, ...] = ()
    most_bytes: int = 16 << 20
    most_boxes: int = 100_000


class _Boxes(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request for answers to boxes."""

    boxes: list[Annotated[list[float], msgspec.Meta(min_length=2, max_length=4)]]
    crs: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    level: float = 0.95
    nonnegative: bool = False


def create_app(catalogue: Catalogue, settings: Settings | None = None) -> FastAPI:
    """Return the application that answers range queries from the releases of a catalogue.

    >>> import tempfile, numpy as np, deltahist as dh
    >>> from fastapi.testclient import TestClient
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dh.publish(np.ones((4, 4), dtype=int), near, epsilon=1).save(f"{folder}/city.parquet")
    ...     with TestClient(create_app(Catalogue([folder]))) as client:
    ...         client.get("/releases/city/answer?bbox=0,0,4,4").json()["estimate"]
    16.0
    """
    settings, batcher = settings or Settings(), Batcher()

    @contextlib.asynccontextmanager
    async def watch(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_refresh_for_ever(catalogue))
        with warnings.catch_warnings():
            # Answers say the same, and logs must not tell what is asked.
            warnings.simplefilter("ignore", DeltaHistWarning)
            yield
        task.cancel()

    app = FastAPI(
        title="deltahist",
        version=__version__,
        description="Range queries over releases that were published under distance-aware differential privacy. "
        + _FREE,
        lifespan=watch,
        # The usual pages of documentation load their scripts from elsewhere, which would tell others who reads.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    at_work, waiting = asyncio.Semaphore(_AT_WORK), 0

    async def work(call: Callable[..., bytes], *given: Any) -> bytes:
        """Run a long call in a thread, few at a time; Busy if many wait already."""
        nonlocal waiting
        if waiting >= _MOST_WAITING:
            raise Busy
        waiting += 1
        try:
            async with at_work:
                content: bytes = await asyncio.to_thread(call, *given)
            return content
        finally:
            waiting -= 1

    def find(name: str) -> Served:
        served = catalogue.find(name)
        if served is None:
            raise HTTPException(404, f"release is {name[:80]!r}: it must be one of those at /releases")
        return served

    @app.get("/healthz")
    async def health() -> Response:
        """Say that the service is up, and how many releases it serves."""
        return _json({"status": "ok", "releases": len(catalogue)})

    @app.get("/releases")
    async def list_releases() -> Response:
        """List all releases with their promises."""
        return _json({"releases": [_summarize(served) for served in catalogue]})

    @app.get("/releases/{name}")
    async def describe(name: str, request: Request) -> Response:
        """Describe a release: its promise as JSON, or its privacy statement as a page (Accept: text/html) or text."""
        served = find(name)
        form = _negotiate(request, {_JSON: "json", "text/html": "html", "text/plain": "text"})
        headers = {"vary": "Accept"}
        if unchanged := _unchanged(request, served, form, headers):
            return unchanged
        if form == "json":
            return _json(_summarize(served) | {"statement": served.release.facts()}, headers)
        page = await asyncio.to_thread(_render, served.release, form, served.name)
        return Response(page, media_type=f"text/{'plain' if form == 'text' else form}", headers=headers)

    @app.get("/releases/{name}/download")
    async def download(name: str, request: Request) -> Response:
        """Hand out the release file."""
        served = find(name)
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(served.name, safe='')}.parquet"}
        unchanged = _unchanged(request, served, "file", headers)
        return unchanged or Response(served.content, media_type="application/vnd.apache.parquet", headers=headers)

    @app.get("/releases/{name}/answer")
    async def answer_box(
        request: Request,
        name: str,
        bbox: str = Query(description="west,south,east,north; low,high on a line", examples=["-74.0,40.7,-73.9,40.8"]),
        crs: str | None = Query(None, description="CRS of bbox: the release's own, or CRS84 (longitude, latitude)"),
        level: float = Query(0.95, description="of the interval, between 0 and 1"),
        nonnegative: bool = Query(False, description="estimates that are never negative, no longer unbiased"),
    ) -> Response:
        """Return the estimated number of points in a box, with standard error and interval."""
        served = find(name)
        query = _ask(served, crs, level, nonnegative)
        corners = _read_box(bbox, served)
        headers: dict[str, str] = {}
        if unchanged := _unchanged(request, served, "json", headers):
            return unchanged
        columns = await batcher.answer(query, corners)
        values = {column: _plain(value[0]) for column, value in columns.items()}
        return _json({"release": served.name, "bbox": corners.tolist(), **values, **_meaning(query)}, headers)

    @app.post("/releases/{name}/answers")
    async def answer_many(
        request: Request,
        name: str,
        crs: str | None = Query(None, description="CRS of a FeatureCollection; CRS84 when none is given"),
        level: float = Query(0.95, description="of the interval, between 0 and 1; of a FeatureCollection"),
        nonnegative: bool = Query(False, description="never negative, no longer unbiased; of a FeatureCollection"),
    ) -> Response:
        """Return answers to `{"boxes": [[W, S, E, N], ...]}`, or to the features of a GeoJSON FeatureCollection.

        Answers to boxes are columns, in the order of the boxes: JSON, CSV or Arrow (Accept). Features come back as
        GeoJSON with their properties and answers.
        """
        served = find(name)
        body = await _read_body(request, settings.most_bytes)
        if request.headers.get("content-type", "").startswith(_GEOJSON) or b'"FeatureCollection"' in body[:1000]:
            _negotiate(request, {_GEOJSON: "", _JSON: ""})
            content = await work(_answer_features, served, body, (crs, level, nonnegative), settings.most_boxes)
            return Response(content, media_type=_GEOJSON)
        given = [each for each in ("crs", "level", "nonnegative") if each in request.query_params]
        if given:
            raise InputError(f"{given[0]} is in the address: for boxes it must stand beside them in the body")
        asked = await asyncio.to_thread(_decode, body, settings.most_boxes)
        query = _ask(served, asked.crs, asked.level, asked.nonnegative)
        form = _negotiate(request, {_JSON: "json", "text/csv": "csv", _ARROW: "arrow"})
        content = await work(_answer_boxes, query, asked, form)
        media = {"json": _JSON, "csv": "text/csv; charset=utf-8", "arrow": _ARROW}[form]
        return Response(content, media_type=media, headers={"vary": "Accept"})

    _explain_problems(app)
    app.add_middleware(GZipMiddleware, minimum_size=2_000)
    if settings.origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["GET", "POST"])
    app.add_middleware(_Manners)
    return app


_RENDERING = threading.Lock()


@functools.lru_cache(maxsize=64)
def _render(release: BaseRelease, form: str, title: str) -> str:
    with _RENDERING:  # matplotlib's settings are those of the whole process
        return render_page(release, form, title)


async def _refresh_for_ever(catalogue: Catalogue) -> None:
    while True:
        await asyncio.sleep(_PACE)
        try:
            await asyncio.to_thread(catalogue.refresh)
        except Exception:
            _LOG.exception("the files could not be looked through")


def _ask(served: Served, crs: str | None, level: float, nonnegative: bool) -> BoxQuery:
    check_level(level)
    return BoxQuery(served.release, asks_degrees(served.release, crs), level, nonnegative)


def _read_box(text: str, served: Served) -> NDArray[np.float64]:
    """Return the corners of a box, (4,) or on a line (2,); InputError if they are no numbers or too many."""
    sides = 2 * served.release.domain.ndim
    try:
        corners = np.array([float(part) for part in text.split(",")])
    except ValueError:
        corners = np.array([np.nan])
    if len(corners) != sides or not np.isfinite(corners).all():
        order = "west,south,east,north" if sides == 4 else "low,high"
        raise InputError(f"bbox is {text[:80]!r}: it must be {sides} numbers, {order}")
    return corners


async def _read_body(request: Request, most: int) -> bytes:
    """Return the body of a request; HTTPException 413 as soon as it is too long."""
    body = bytearray()
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise HTTPException(413, f"the body has {length[:20]} bytes: at most {most:,} are read")
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise HTTPException(413, f"the body has more than {most:,} bytes: ask in several requests")
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {_PATIENCE} seconds") from None
    return bytes(body)


def _decode(body: bytes, most: int) -> _Boxes:
    """Return a body's boxes; InputError if it is no such JSON, HTTPException 413 if they are too many."""
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


def _answer_boxes(query: BoxQuery, asked: _Boxes, form: str) -> bytes:
    sides = 2 * query.release.domain.ndim
    wrong = next((box for box in asked.boxes if len(box) != sides), None)
    if wrong is not None:
        raise InputError(f"boxes holds {wrong[:8]}: every box must be {sides} numbers")
    columns = query.answer(np.array(asked.boxes))
    if form == "json":
        content = {name: _plain_column(values) for name, values in columns.items()}
        return orjson.dumps(content | _meaning(query), option=orjson.OPT_SERIALIZE_NUMPY)
    import pandas as pd

    if form == "csv":
        return encode_table(pd.DataFrame(columns), "csv", query.release.domain)
    import pyarrow as pa

    about = {name: str(value) for name, value in _meaning(query).items()}
    table = pa.table({name: pa.array(values) for name, values in columns.items()}, metadata=about)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _answer_features(served: Served, body: bytes, options: tuple[str | None, float, bool], most: int) -> bytes:
    """Return a FeatureCollection with answers among the properties of its features, which stay as they are."""
    import geopandas as gpd
    import shapely

    crs, level, nonnegative = options
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
    if vertices.sum() > _MOST_VERTICES:
        number = f"there are {vertices.sum():,} vertices"
        raise HTTPException(413, f"{number}: at most {_MOST_VERTICES:,} are answered at once")
    if (~shapely.is_valid(shapes) & (vertices > _MOST_CROSSING)).any():
        raise InputError(f"a feature of more than {_MOST_CROSSING} vertices has rings that cross: repair it first")
    query = _ask(served, None if stated is None else str(stated), level, nonnegative)
    places = gpd.GeoSeries(shapes, crs="OGC:CRS84" if query.degrees else query.release.domain.crs)
    found = answer(query.release, places, level=level, nonnegative=nonnegative).to_dict("records")
    for feature, properties, columns in zip(features, own, found, strict=True):
        names = rename_own(properties)
        kept = {names.get(name, name): value for name, value in properties.items()}
        feature["properties"] = kept | {str(name): _plain(value) for name, value in columns.items()}
    return orjson.dumps(collection)


def _meaning(query: BoxQuery) -> dict[str, Any]:
    """Return what every answer says besides its figures."""
    return {
        "unit": "points",
        "level": query.level,
        "estimates": query.release.estimator(query.nonnegative),
        "digest": query.release.digest,
        "cost": _FREE,
    }


def _summarize(served: Served) -> dict[str, Any]:
    release, domain = served.release, served.release.domain
    base = f"/releases/{quote(served.name, safe='')}"
    return {
        "id": served.name,
        "kind": release.mechanism.words,
        "promise": release.mechanism.promise,
        "may_be_published": release.may_be_published,
        "bounds": list(domain.bounds),
        "crs": domain.crs,
        "shape": list(domain.shape),
        "digest": release.digest,
        "links": {"self": base} | {each: f"{base}/{each}" for each in ("answer", "answers", "download")},
    }


# --- manners ------------------------------------------------------------------------------------------------


def _json(content: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content, default=str), media_type=_JSON, headers=headers)


def _plain(value: Any) -> Any:
    """Return a figure as JSON has it: none where it is not known."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _plain_column(values: NDArray[Any]) -> Any:
    return np.ascontiguousarray(values) if values.dtype != object else [_plain(value) for value in values]


def _negotiate(request: Request, forms: dict[str, str]) -> str:
    """Return the form that a request accepts, the first of equals; HTTPException 406 if none is offered."""
    wanted: list[tuple[float, str]] = []  # quality, type of media
    for part in (request.headers.get("accept") or "*/*").lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        stated = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        wanted.append((float(stated) if re.fullmatch(r"[01](\.\d*)?", stated) else 1.0, media))
    for quality, media in sorted(wanted, key=lambda each: -each[0]):
        for offered, form in forms.items():
            if quality and media in (offered, "*/*", f"{offered.partition('/')[0]}/*"):
                return form
    raise HTTPException(406, f"Accept must have one of {', '.join(forms)}")


def _unchanged(request: Request, served: Served, form: str, headers: dict[str, str]) -> Response | None:
    """Enter the headers by which copies are kept; return the response to whoever has the same already, or None."""
    tag = f'"{served.release.digest[:32]}-{form}-{__version__}"'
    headers |= {"etag": tag, "cache-control": "no-cache"}  # a copy is good while the release is the same
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers=headers) if tag in known or "*" in known else None


def _explain_problems(app: FastAPI) -> None:
    """Let every error be a problem document (RFC 9457) that names value and rule, without paths or traces."""

    def problem(status: int, detail: str, **more: Any) -> Response:
        titles = {400: "Bad request", 404: "Not found", 405: "Method not allowed", 406: "Not acceptable"}
        titles |= {413: "Too large", 503: "Busy"}
        content = {"type": "about:blank", "title": titles.get(status, "Error"), "status": status, "detail": detail}
        return Response(orjson.dumps(content | more), status_code=status, media_type=_PROBLEM)

    @app.exception_handler(InputError)
    async def refuse(_: Request, error: InputError) -> Response:
        return problem(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def refuse_parameters(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        name = str(first["loc"][-1])
        given = "is missing" if first["type"] == "missing" else f"is {str(first['input'])[:80]!r}"
        return problem(400, f"{name} {given}: {first['msg'].removesuffix('.')}", field=name)

    @app.exception_handler(HTTPException)
    async def refuse_request(_: Request, error: HTTPException) -> Response:
        answer = problem(error.status_code, str(error.detail))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Busy)
    async def put_off(_: Request, error: Busy) -> Response:
        answer = problem(503, "more is asked than can be answered in time: ask again in a second")
        answer.headers["retry-after"] = "1"
        return answer

    @app.exception_handler(ClientDisconnect)
    async def forget(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody is there to read it

    @app.exception_handler(Exception)
    async def fail(_: Request, error: Exception) -> Response:
        return problem(500, "the service failed; its log tells why")


class _Manners:
    """Middleware: HEAD is GET without a body; every response says its request's id and how long it took."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        head, begin = scope["method"] == "HEAD", time.perf_counter()

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                took = 1000 * (time.perf_counter() - begin)
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", uuid.uuid4().hex.encode()),
                    (b"server-timing", f"total;dur={took:.1f}".encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
            elif head:
                message = {**message, "body": b""}
            await send(message)

        await self.app({**scope, "method": "GET"} if head else scope, receive, say)
