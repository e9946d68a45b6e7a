"""Routes for releases and series: lists, statements, files, explanations, and the web map's settings."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse

from deltahist._text import format_length
from deltahist.errors import InputError, check_finite
from deltahist.plots import protection_curve
from deltahist.releases import BaseRelease, Release, Series
from deltahist.releases.series import Difference
from deltahist.server.catalogue import Served
from deltahist.server.models import Described, Period, returns
from deltahist.server.service import PARQUET, Service, ServiceOf, Source
from deltahist.space.crs import area_of
from deltahist.statement import list_facts, list_rows, write_statement
from deltahist.statement.facts import bound_guess, explain_cost, explain_guess, explain_window, list_together

_RENDERING = threading.Lock()

router = APIRouter()


@router.get("/healthz", tags=["releases"])
async def health(service: ServiceOf) -> dict[str, Any]:
    """Report that the service is up, and how many releases it serves."""
    return {"status": "ok", "releases": len(service.catalogue)}


@router.get("/static/settings.json", include_in_schema=False)
async def show_settings(service: ServiceOf) -> dict[str, str | None]:
    """Return the settings of the web map, and whether districts and lines are in degrees or in the plane."""
    settings = service.settings
    districts = None if settings.districts is None else "degrees" if settings.districts.frame.crs else "plane"
    context = settings.context and settings.context[0]
    return {"tiles": settings.tiles, "attribution": settings.attribution, "districts": districts, "context": context}


@router.get("/releases", response_model_exclude_unset=True, tags=["releases"])
async def list_releases(service: ServiceOf) -> dict[str, list[Described]]:
    """List all releases with their promises. Withdrawn releases are marked, and their other routes return 410."""
    return {"releases": [Described(**_summarize(service, each)) for each in service.catalogue]}


@router.get(
    "/releases/{name}",
    response_model=Described,
    response_model_exclude_unset=True,
    responses=returns({"text/html": None}),
    tags=["releases"],
)
async def describe(request: Request, service: ServiceOf, name: str) -> Any:
    """Describe a release as JSON, or show its privacy statement as a page (Accept: text/html)."""
    served = service.find(name)
    if "text/html" in request.headers.get("accept", ""):
        return await _show_statement(served.release, served.name)
    return _summarize(service, served) | {"statement": list_facts(served.release)}


@router.head("/releases/{name}/download", include_in_schema=False)
@router.get(
    "/releases/{name}/download", response_class=FileResponse, responses=returns({PARQUET: None}), tags=["releases"]
)
async def download(service: ServiceOf, name: str) -> FileResponse:
    """Return the release file."""
    served = service.find(name)
    if not served.is_current:  # the new file has not been checked yet
        raise HTTPException(503, "the file is being replaced: try again in a second", {"retry-after": "1"})
    return FileResponse(served.path, media_type=PARQUET, filename=f"{served.name}.parquet")


@router.get("/releases/{name}/explanation", tags=["releases"])
async def explain(service: ServiceOf, name: str) -> Response:
    """Return the rows of a release's privacy statement, and how often a guess at each distance can be right."""
    return JSONResponse(await service.run(_explain, service.find(name).release))


async def _show_statement(release: BaseRelease | Series, title: str) -> HTMLResponse:
    page = await asyncio.to_thread(_render, release, title)
    # A statement embeds its styles and pictures, and has no scripts.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return HTMLResponse(page, headers={"vary": "Accept", "content-security-policy": policy})


@functools.lru_cache(maxsize=64)
def _render(release: BaseRelease | Series, title: str) -> str:
    with _RENDERING:  # because Matplotlib's settings are global
        return write_statement(release, "html", release.about.title or title)


@functools.lru_cache(maxsize=64)
def _explain(release: BaseRelease | Series) -> dict[str, Any]:
    facts, curve = list_facts(release), protection_curve(release)
    delta, steps = facts["delta"], len(release.spent) if isinstance(release, Series) else None
    places = []
    for distance, cost in zip(curve["distance"].tolist(), curve["exact"].tolist(), strict=True):
        label = format_length(distance, facts["distance_unit"])
        share = bound_guess(facts, cost if math.isfinite(cost) else None)
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
        "about": release.about.describe(),
        **({} if release.withdrawn is None else {"withdrawn": service.describe_withdrawal(release)}),
        "links": {"self": base} | {each: f"{base}/{each}" for each in ("answer", "answers", "cells", "download")},
    }


# --- series: folders whose releases are the steps of one stream ---------------------------------------------


@router.get("/series", tags=["series"])
async def list_series(service: ServiceOf) -> Response:
    """List all series: folders whose releases are the steps of one stream."""
    found = ((name, _series_of(served)) for name, served in service.catalogue.folders().items())
    return JSONResponse({"series": [_summarize_series(name, series) for name, series in found if series is not None]})


@router.get("/series/{stream}", tags=["series"])
async def describe_series(request: Request, service: ServiceOf, stream: str) -> Response:
    """Describe a series as JSON, or show its privacy statement as a page (Accept: text/html)."""
    series = _find_series(service, stream)
    if "text/html" in request.headers.get("accept", ""):
        return await _show_statement(series, stream)
    return JSONResponse(_summarize_series(stream, series), headers={"vary": "Accept"})


@router.get("/series/{stream}/explanation", tags=["series"])
async def explain_series(service: ServiceOf, stream: str) -> Response:
    """Return the rows of a series' privacy statement, and how often a guess from all its steps can be right."""
    return JSONResponse(await service.run(_explain, _find_series(service, stream)))


def _find_series(service: Service, name: str) -> Series:
    series = _series_of(service.catalogue.folders().get(name, []))
    if series is None:
        raise HTTPException(404, f"series is {name[:80]!r}: it must be one of those listed at /series")
    return series


def _series_of(served: Sequence[Served]) -> Series | None:
    return _make_series(tuple((each.name, each.release) for each in served if isinstance(each.release, Release)))


@functools.lru_cache(maxsize=16)
def _make_series(named: tuple[tuple[str, Release], ...]) -> Series | None:
    try:
        return Series.from_names(dict(named)) if named else None
    except InputError:  # the names are not step names, or the releases belong to several streams
        return None


async def sum_periods(service: Service, stream: str, asked: Period) -> tuple[Source, dict[str, Any]]:
    """Return the sum over a period, or another period's sum minus it, and fields that describe the result."""
    series = _find_series(service, stream)
    spans = [asked.between] if asked.compare is None else [asked.between, asked.compare]
    periods = [_choose_period(series, span, asked.mean, asked.missing == "skip") for span in spans]
    for period in periods:
        if "summed_releases" not in vars(period):
            await service.run(getattr, period, "summed_releases")
    ends = [[period.clock.label(period.first), period.clock.label(period.last)] for period in periods]
    steps: list[Any] = [len(period.releases) for period in periods]
    about = {"between": ends[0], "per": "step" if asked.mean else "period", "steps": steps}
    if missing := [label for period in periods for label in period.missing_steps]:
        about["missing"] = missing
    if len(periods) == 1:
        return periods[0], about | {"steps": steps[0]}
    first, second = (" to ".join(each) for each in ends)
    return Difference(*periods), about | {"compare": ends[1], "difference": f"{second} minus {first}"}


@functools.lru_cache(maxsize=16)  # because sums over many steps are slow
def _choose_period(series: Series, span: str | None, mean: bool, skip: bool) -> Series:
    period = series if span is None else series.between(*span.split(","))
    check_finite(most=100_000, steps=period.last - period.first + 1)
    period = period.skip_missing() if skip else period
    return period.per_step() if mean else period


def _summarize_series(name: str, series: Series) -> dict[str, Any]:
    step, base = series.first_release.mechanism.step, f"/series/{quote(name, safe='')}"
    return {
        "id": name,
        "first": series.step_labels[0],
        "last": series.step_labels[-1],
        "missing": series.missing_steps,
        "together": list_together(series),
        "published": [label for label, release in series if release is not None],
        "promise": None if step is None else explain_window(step),
        "about": series.about.describe(),
        "cost": explain_cost(series),
        "bounds": list(series.domain.bounds),
        "crs": series.domain.crs,
        "shape": list(series.domain.shape),
        "links": {"self": base, "answer": f"{base}/answer", "answers": f"{base}/answers"},
    }
