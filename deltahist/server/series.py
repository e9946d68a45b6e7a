"""Routes of series: folders whose releases are the steps of one stream."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from deltahist.errors import InputError
from deltahist.releases import Release, Series
from deltahist.releases.series import PeriodDifference
from deltahist.server.answers import Source
from deltahist.server.catalogue import Served
from deltahist.server.models import OfSeries
from deltahist.server.pages import explain_promise, show_statement
from deltahist.server.service import Service, service_of
from deltahist.statement.facts import explain_cost, explain_window, list_together

#: Steps of a period.
_MOST_STEPS = 100_000

router = APIRouter(tags=["series"])


@router.get("/series")
async def list_series(request: Request) -> Response:
    """List all series: folders whose releases are the steps of one stream."""
    found = ((name, series_of(served)) for name, served in service_of(request).catalogue.folders().items())
    return JSONResponse({"series": [_summarize(name, series) for name, series in found if series is not None]})


@router.get("/series/{stream}")
async def describe_series(request: Request, stream: str) -> Response:
    """Describe a series and its steps as JSON, or its privacy statement as a page (Accept: text/html)."""
    service = service_of(request)
    series = find_series(service, stream)
    if "text/html" in request.headers.get("accept", ""):
        return await show_statement(series, stream)
    return JSONResponse(
        _summarize(stream, series) | {"steps": _list_steps(service, series)}, headers={"vary": "Accept"}
    )


@router.get("/series/{stream}/explanation")
async def explain_series(request: Request, stream: str) -> Response:
    """Explain in plain words what a series promises, and how often a guess from all its steps is right."""
    service = service_of(request)
    return JSONResponse(await service.run(explain_promise, find_series(service, stream)))


def find_series(service: Service, name: str) -> Series:
    """Return the series of a name; HTTPException 404 if there is none."""
    series = series_of(service.catalogue.folders().get(name, []))
    if series is None:
        raise HTTPException(404, f"series is {name[:80]!r}: it must be one of those at /series")
    return series


def series_of(served: Sequence[Served]) -> Series | None:
    """Return the series that the releases of a folder are; None if they are none."""
    return _make_series(tuple((each.name, each.release) for each in served if isinstance(each.release, Release)))


@functools.lru_cache(maxsize=16)
def _make_series(named: tuple[tuple[str, Release], ...]) -> Series | None:
    try:
        return Series.of_named(dict(named)) if named else None
    except InputError:  # releases of other names, or of several streams
        return None


async def sum_periods(service: Service, stream: str, asked: OfSeries) -> tuple[Source, tuple[Series, ...]]:
    """Return a period of a series, or another one minus it, and the periods it is made of; their sums are ready."""
    series = find_series(service, stream)
    asked_for = [asked.between] if asked.compare is None else [asked.between, asked.compare]
    spans = [None if each is None else tuple(each.split(",")) for each in asked_for]
    periods = tuple(_period(series, span, asked.mean, asked.missing == "skip") for span in spans)
    for period in periods:
        if "summed" not in vars(period):
            await service.run(getattr, period, "summed")
    return periods[0] if len(periods) == 1 else PeriodDifference(*periods), periods


# Sums over many steps take long: the last ones are kept.
@functools.lru_cache(maxsize=16)
def _period(series: Series, span: tuple[str, ...] | None, mean: bool, skip: bool) -> Series:
    period = series if span is None else series.between(*span)
    number = period.last - period.first + 1
    if number > _MOST_STEPS:
        raise InputError(f"{','.join(span or ())} are {number:,} steps: at most {_MOST_STEPS:,} are summed")
    period = period.present() if skip else period
    return period.per_step() if mean else period


def _summarize(name: str, series: Series) -> dict[str, Any]:
    step, base = series.example.mechanism.step, f"/series/{quote(name, safe='')}"
    return {
        "id": name,
        "first": series.labels[0],
        "last": series.labels[-1],
        "missing": series.missing,
        "together": list_together(series),
        "published": [label for label, release in series if release is not None],
        "promise": None if step is None else explain_window(step),
        "cost": explain_cost(series),
        "bounds": list(series.domain.bounds),
        "crs": series.domain.crs,
        "shape": list(series.domain.shape),
        "links": {"self": base, "answer": f"{base}/answer", "answers": f"{base}/answers"},
    }


def _list_steps(service: Service, series: Series) -> list[dict[str, Any]]:
    """Return the name, time and promise of each step, or why it has no release."""
    found: list[dict[str, Any]] = []
    for number in range(series.first, series.last + 1):
        label, release = series.clock.label(number), series.releases.get(number)
        times = (datetime.datetime.fromtimestamp(end, datetime.UTC) for end in series.clock.span(number) or ())
        ends = zip(("begin", "end"), (each.isoformat() for each in times), strict=False)
        entry: dict[str, Any] = {"step": label} | dict(ends)
        if number in series.withdrawn:
            entry["withdrawn"] = service.describe_withdrawal(series.withdrawn[number])
        if release is not None:
            entry |= {"release": f"/releases/{label}", "promise": release.mechanism.promise, "digest": release.digest}
        found.append(entry)
    return found
