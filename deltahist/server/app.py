"""The application: it puts the routes together. `deltahist serve` runs it, any ASGI server may."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import Depends, FastAPI, Response
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Scope
from starlette_compress import CompressMiddleware, add_compress_type

from deltahist._http import ARROW, Gate, Manners, as_json, make_app, refuse_unknown
from deltahist.server import cells, docs, features, landing, pages, queries, releases, series, tiles, tilesets
from deltahist.server.catalogue import Catalogue
from deltahist.server.logs import log_request
from deltahist.server.metrics import Metrics
from deltahist.server.queries import FREE
from deltahist.server.schemas import Health, problems, shape
from deltahist.server.service import Service
from deltahist.server.settings import Settings

#: Seconds between two looks at the files.
PACE = 1.0
#: Headers of responses that pages of other origins may read, besides those that all may.
_READABLE = (
    *("Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Link", "Retry-After"),
    *("Server-Timing", "X-Request-ID"),
)


def create_app(
    catalogue: Catalogue,
    settings: Settings | None = None,
    *,
    refresh: bool = True,
    metrics: Metrics | None = None,
) -> FastAPI:
    """Return the application that answers range queries from the releases of a catalogue.

    Parameters
    ----------
    refresh : whether to look for files that change, while the application's lifespan runs.
    metrics : that count its requests.

    >>> import tempfile, numpy as np, deltahist as dh
    >>> from fastapi.testclient import TestClient
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dh.publish(np.ones((4, 4), dtype=int), near, epsilon=1).save(f"{folder}/city.parquet")
    ...     with TestClient(create_app(Catalogue([folder]))) as client:
    ...         client.get("/releases/city/answer?bbox=0,0,4,4").json()["estimate"]
    16.0
    """
    choices = settings or Settings()
    service = Service(catalogue, choices)

    @contextlib.asynccontextmanager
    async def watch(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_refresh_for_ever(catalogue)) if refresh else None
        yield
        if task is not None:
            task.cancel()

    about = "Range queries over releases that were published under distance-aware differential privacy. " + FREE
    app = make_app("deltahist", about, watch)
    if choices.public_url is not None:
        app.servers = [{"url": choices.public_url.rstrip("/")}]

    @app.get("/healthz", tags=["service"], responses=shape(Health))
    async def health() -> Response:
        """Say that the service is up, and how many releases it serves."""
        return as_json({"status": "ok", "releases": len(catalogue)})

    for resource in (pages, releases, queries, cells, series, landing, features, tiles, tilesets):
        router = resource.make_router(service)
        for route in router.routes:
            if isinstance(route, APIRoute):  # or its function's name would be its title
                route.summary = route.description.split("\n")[0].removesuffix(".")
        app.include_router(router, responses=problems(), dependencies=[Depends(refuse_unknown)])
    app.include_router(docs.make_router())
    add_compress_type(ARROW)
    app.add_middleware(CompressMiddleware, minimum_size=2_000)
    app.add_middleware(Gate, most=choices.max_requests, seconds=choices.max_seconds)
    if choices.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(choices.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["If-None-Match", "If-Range", "Range"],
            expose_headers=_READABLE,
        )

    def tell(scope: Scope, status: int, seconds: float, number: str) -> None:
        log_request(scope, catalogue, status, seconds, number)
        if metrics is not None:
            metrics.count(scope, catalogue, status, seconds)

    app.add_middleware(Manners, tell=tell)
    return app


async def _refresh_for_ever(catalogue: Catalogue) -> None:
    while True:
        await asyncio.sleep(PACE)
        await asyncio.to_thread(catalogue.refresh)
