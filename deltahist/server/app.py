"""The web application, which `deltahist serve` or any other ASGI server can run."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import warnings
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import xstatic.pkg.leaflet
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, JSONResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from deltahist import __version__
from deltahist.errors import DeltaHistWarning, InputError
from deltahist.server import answer_routes, map_routes, places, release_routes
from deltahist.server.catalogue import Catalogue
from deltahist.server.service import PARQUET, Service, Settings


def create_app(catalogue: Catalogue, settings: Settings | None = None) -> FastAPI:
    """Return the application, which answers range queries from a catalogue and rereads changed files."""
    settings = settings or Settings()
    app = FastAPI(
        title="deltahist",
        version=__version__,
        description="Range queries over published releases. Queries cost no further privacy.",
        lifespan=_watch,
        dependencies=[Depends(_refuse_repeats)],
        docs_url=None,  # FastAPI's pages load scripts from another host, which would learn who reads them
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = Service(catalogue, settings)
    static, tiles = Path(__file__).parent / "static", urlsplit(settings.tiles or "")
    background = f" {tiles.scheme}://{tiles.netloc}" if tiles.netloc else ""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        f"img-src 'self' data:{background}; "  # Leaflet's empty tile is a data: URL
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    @app.get("/", responses={200: {"content": {"text/html": {"schema": {}}}}})
    async def land(request: Request) -> Response:
        """Return the map to browsers (Accept: text/html), and the links that OGC requires to other clients."""
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse(map_routes.list_links(str(request.base_url)), headers={"vary": "Accept"})
        headers = {"content-security-policy": policy, "referrer-policy": "no-referrer", "vary": "Accept"}
        return FileResponse(static / "index.html", headers=headers)

    problem = {"type": "object", "required": ["title", "status", "detail"]}  # RFC 9457
    described = {"content": {"application/problem+json": {"schema": problem}}}
    for module in (release_routes, answer_routes, map_routes, places):
        app.include_router(module.router, responses={"4XX": described, "503": described})
    app.mount("/static/leaflet", StaticFiles(directory=xstatic.pkg.leaflet.BASE_DIR))
    app.mount("/static", StaticFiles(directory=static))
    for kind in (InputError, RequestValidationError, HTTPException, ClientDisconnect, TimeoutError, Exception):
        app.add_exception_handler(kind, explain_error)
    excluded = (*DEFAULT_EXCLUDED_CONTENT_TYPES, PARQUET)
    app.add_middleware(_answer_head)
    app.add_middleware(GZipMiddleware, minimum_size=2_000, compresslevel=1, exclude_content_types=excluded)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            expose_headers=["Content-Disposition", "Content-Range", "ETag", "Link", "Retry-After"],
        )
    return app


def serve_files(paths: list[Path], settings: Settings) -> FastAPI:
    """Return the application that serves release files. Each worker process calls this function."""
    sys.setswitchinterval(0.0005)  # so that worker threads wait less for the event loop
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("deltahist.server").setLevel(logging.INFO)
    # Answers already include warnings, and a log of warnings would reveal queries.
    warnings.simplefilter("ignore", DeltaHistWarning)
    app = create_app(Catalogue(paths), settings)
    # Without freezing, the garbage collector scans all releases while answers wait: p99 was 65 ms, not 24 ms.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)
    return app


@contextlib.asynccontextmanager
async def _watch(app: FastAPI) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            await asyncio.sleep(1)
            try:
                await asyncio.to_thread(app.state.service.catalogue.refresh)
            except Exception:  # keep watching, so that withdrawals are noticed
                logging.getLogger("deltahist.server").exception("looking for changed files failed")

    task = asyncio.create_task(watch())
    yield
    task.cancel()


async def _refuse_repeats(request: Request) -> None:
    query = request.query_params
    if len(query) < len(query.multi_items()):
        name = next(name for name in query if len(query.getlist(name)) > 1)
        raise InputError(f"{name[:80]} is repeated: give it only once")


def _answer_head(app: ASGIApp) -> ASGIApp:
    """Treat HEAD as GET. The server then omits the body."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # Downloads have their own route for HEAD, because GET would read the file.
        if scope.get("method") == "HEAD" and not scope["path"].endswith("/download"):
            scope = {**scope, "method": "GET"}
        await app(scope, receive, send)

    return answer


async def explain_error(_: Request, error: Exception) -> Response:
    """Return the problem document (RFC 9457) that describes an error."""
    status, headers, detail = 500, None, "the service failed: see its log"
    if isinstance(error, InputError):
        status, detail = 400, str(error)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        status, name = 400, str(first["loc"][-1])
        given = "is missing" if first["type"] == "missing" else f"is {str(first['input'])[:80]!r}"
        detail = f"{name} {given}: {first['msg']}"
    elif isinstance(error, HTTPException):
        status, headers, detail = error.status_code, error.headers, error.detail
    elif isinstance(error, ClientDisconnect):
        status, detail = 400, "the client disconnected"
    elif isinstance(error, TimeoutError):
        status, detail = 408, "the body did not arrive within 20 seconds"
    content: dict[str, Any] = {"title": HTTPStatus(status).phrase, "status": status}
    content |= detail if isinstance(detail, dict) else {"detail": detail}
    return JSONResponse(content, status, headers, "application/problem+json")
