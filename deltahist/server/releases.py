"""Routes to releases: the list, one with its promise and statement, and its file."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from deltahist._http import JSON, PARQUET, as_file, as_json, copy_headers, negotiate
from deltahist.releases.base import BaseRelease
from deltahist.releases.page import render_page
from deltahist.server.catalogue import Served
from deltahist.server.schemas import Described, Listed, file_of, shape
from deltahist.server.service import Service, describe_withdrawal, tag_of
from deltahist.space.crs import area_of


def make_router(service: Service) -> APIRouter:
    """Return the routes to the releases of a service."""
    router = APIRouter(tags=["releases"])

    @router.get("/releases", responses=shape(Listed))
    async def list_releases() -> Response:
        """List all releases with their promises.

        One that was withdrawn says so (`withdrawn`), and answers 410.
        """
        return as_json({"releases": [summarize(served) for served in service.catalogue]})

    @router.get("/releases/{name}", responses=shape(Described, "text/html", "text/plain"))
    async def describe(name: str, request: Request) -> Response:
        """Describe a release: its promise as JSON, or its privacy statement as a page (Accept: text/html) or text."""
        served = service.find(name)
        form = negotiate(request, {JSON: "json", "text/html": "html", "text/plain": "text"})
        chain = service.find_chain(served) if form == "json" else [served]
        headers = copy_headers(request, tag_of(chain, form), by_accept=True)
        if form == "json":
            statement = {"statement": served.release.facts()}
            return as_json(summarize(served) | describe_chain(chain) | statement, headers)
        page = await asyncio.to_thread(_render, served.release, form, served.name)
        headers["content-security-policy"] = _POLICY
        return Response(page, media_type=f"text/{'plain' if form == 'text' else form}", headers=headers)

    @router.get("/releases/{name}/download", response_class=Response, responses=file_of(PARQUET))
    async def download(name: str, request: Request) -> Response:
        """Hand out the release file."""
        served = service.find(name)
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{served.quoted}.parquet"}
        headers |= copy_headers(request, tag := tag_of(served, "file"))
        return as_file(request, served.content, PARQUET, tag, headers)

    return router


#: A statement has its style and pictures in itself, and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_RENDERING = threading.Lock()


@functools.lru_cache(maxsize=64)
def _render(release: BaseRelease, form: str, title: str) -> str:
    with _RENDERING:  # matplotlib's settings are those of the whole process
        return render_page(release, form, title)


def describe_chain(chain: Sequence[Served]) -> dict[str, Any]:
    """Return what releases of one chain, from coarse to fine, say of each other; nothing of one alone."""
    if len(chain) < 2:
        return {}
    steps = []
    for each in chain:
        budget, own = each.release.mechanism.budget, each.release.mechanism.chain
        steps.append(
            {
                "id": each.name,
                budget.unit: float(budget.amount),
                "copy": own is not None and own.copied is not None,
                "href": f"/releases/{each.quoted}",
            }
        )
    finest = chain[-1].name
    note = (
        f"these releases are of the same data and share noise: read {finest} alone, which has the least error; all of "
        "them together cost what it does, and averages of them are no better"
    )
    return {"chain": {"finest": finest, "releases": steps, "note": note}}


def summarize(served: Served) -> dict[str, Any]:
    """Return what a list says of a release."""
    release, domain = served.release, served.release.domain
    base = f"/releases/{served.quoted}"
    return {
        "id": served.name,
        "kind": release.mechanism.words,
        "promise": release.mechanism.promise,
        "may_be_published": release.may_be_published,
        "bounds": list(domain.bounds),
        "crs": domain.crs,
        "extent": None if domain.crs is None else area_of(domain.crs, domain.low, domain.high),  # degrees
        "shape": list(domain.shape),
        "digest": release.digest,
        **({} if release.withdrawn is None else {"withdrawn": describe_withdrawal(release)}),
        "links": {"self": base} | {each: f"{base}/{each}" for each in ("answer", "answers", "cells", "download")},
    }
