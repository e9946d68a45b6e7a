"""Routes to releases and to the map: lists, statements, files, explanations, and the map's settings."""

from __future__ import annotations

import asyncio
import functools
import threading
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse

from deltahist._text import format_length
from deltahist.plots import protection_curve
from deltahist.releases import Series
from deltahist.releases.base import BaseRelease
from deltahist.server.catalogue import Served
from deltahist.server.models import Described, returns
from deltahist.server.service import PARQUET, Service, plain, service_of
from deltahist.space.crs import area_of
from deltahist.statement import list_facts, list_rows, write_statement
from deltahist.statement.facts import bound_guess, explain_guess

STATIC = Path(__file__).parent / "static"
#: A statement has its style and pictures in itself, and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_RENDERING = threading.Lock()

router = APIRouter(tags=["releases"])


@router.get("/healthz")
async def health(request: Request) -> dict[str, Any]:
    """Say that the service is up, and how many releases it serves."""
    return {"status": "ok", "releases": len(service_of(request).catalogue)}


@router.get("/releases", response_model_exclude_unset=True)
async def list_releases(request: Request) -> dict[str, list[Described]]:
    """List all releases with their promises; a withdrawn one says so (`withdrawn`) and answers 410."""
    service = service_of(request)
    return {"releases": [Described(**_summarize(service, each)) for each in service.catalogue]}


@router.get(
    "/releases/{name}",
    response_model=Described,
    response_model_exclude_unset=True,
    responses=returns({"text/html": None}),
)
async def describe(request: Request, name: str) -> Any:
    """Describe a release: its promise as JSON, or its privacy statement as a page (Accept: text/html)."""
    service = service_of(request)
    served = service.find(name)
    if "text/html" in request.headers.get("accept", ""):
        return await show_statement(served.release, served.name)
    about = _summarize(service, served) | {"statement": list_facts(served.release)}
    shared = [each for each in service.catalogue.in_force() if each.release.origin == served.release.origin]
    if len(shared) > 1:  # releases that share noise, from coarse to fine
        names = [each.name for each in sorted(shared, key=lambda each: each.release.mechanism.budget.amount)]
        about["chain"] = {"finest": names[-1], "releases": names}
    return about


@router.head("/releases/{name}/download", include_in_schema=False)
@router.get("/releases/{name}/download", response_class=FileResponse, responses=returns({PARQUET: None}))
async def download(request: Request, name: str) -> FileResponse:
    """Return the release file."""
    served = service_of(request).find(name)
    if not served.is_current:  # what replaced it has not been checked
        raise HTTPException(503, "the file is being replaced: ask again in a second", {"retry-after": "1"})
    return FileResponse(served.path, media_type=PARQUET, filename=f"{served.name}.parquet")


@router.get("/releases/{name}/explanation")
async def explain(request: Request, name: str) -> Response:
    """Explain in plain words what a release promises, and how often a guess is right, by distance."""
    service = service_of(request)
    return JSONResponse(await service.run(explain_promise, service.find(name).release))


@router.get("/static/settings.json", include_in_schema=False)
async def show_settings(request: Request) -> dict[str, str | None]:
    """Return what the operator chose for the map."""
    settings = service_of(request).settings
    return {"tiles": settings.tiles, "attribution": settings.attribution}


async def show_statement(release: BaseRelease | Series, title: str) -> HTMLResponse:
    """Return the page of a release's or a series' privacy statement."""
    page = await asyncio.to_thread(_render, release, title)
    return HTMLResponse(page, headers={"vary": "Accept", "content-security-policy": _POLICY})


@functools.lru_cache(maxsize=64)
def _render(release: BaseRelease | Series, title: str) -> str:
    with _RENDERING:  # matplotlib's settings are those of the whole process
        return write_statement(release, "html", title)


@functools.lru_cache(maxsize=64)
def explain_promise(release: BaseRelease | Series) -> dict[str, Any]:
    """Return the statement in plain words, and how often a guess is right; of a series, from all steps together."""
    facts, curve = list_facts(release), protection_curve(release)
    delta, steps = facts["delta"], len(release.spent) if isinstance(release, Series) else None
    places = []
    for distance, cost in zip(curve["distance"].tolist(), curve["exact"].tolist(), strict=True):
        share = bound_guess(facts, plain(cost))
        label = format_length(distance, facts["unit"])
        text = explain_guess(label, share, steps)
        places.append({"distance": distance, "label": label, "guess": share, "text": text})
    return {"statement": list_rows(release), "delta": delta, "distances": places}


def _summarize(service: Service, served: Served) -> dict[str, Any]:
    release, domain = served.release, served.release.domain
    base = f"/releases/{served.quoted}"
    return {
        "id": served.name,
        "kind": release.mechanism.words,
        "promise": release.mechanism.promise,
        "may_be_published": release.may_be_published,
        "bounds": list(domain.bounds),
        "crs": domain.crs,
        "extent": None if domain.crs is None else area_of(domain.crs, domain.bounds),
        "shape": list(domain.shape),
        "digest": release.digest,
        **({} if release.withdrawn is None else {"withdrawn": service.describe_withdrawal(release)}),
        "links": {"self": base} | {each: f"{base}/{each}" for each in ("answer", "answers", "cells", "download")},
    }
