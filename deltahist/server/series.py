"""Routes to series: folders whose releases are the steps of one stream, their periods, and changes between these."""

from __future__ import annotations

import asyncio
import datetime
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from deltahist._http import ARROW, GEOJSON, JSON, as_json, copy_headers, negotiate
from deltahist.errors import InputError
from deltahist.releases import Release, Series
from deltahist.releases.series import PeriodDifference
from deltahist.server.answers import BoxQuery, Source
from deltahist.server.catalogue import Served
from deltahist.server.queries import (
    CrsOfFeatures,
    Level,
    LevelOfFeatures,
    Nonnegative,
    NonnegativeOfFeatures,
    answer_body,
    ask,
    meaning,
    read_box,
    row,
)
from deltahist.server.schemas import BoxAnswer, BoxAnswers, BoxesAsked, FeatureCollection, reads, shape
from deltahist.server.service import Service, describe_withdrawal, tag_of
from deltahist.space.workloads import boxes

#: Steps of a period.
_MOST_STEPS = 100_000
#: What parameters of answers mean.
_SPAN = "first and last step, separated by a comma, both included"
_BETWEEN = Query(None, description=f"{_SPAN}; all steps when not given", examples=["2010-05-01,2010-05-31"])
_COMPARE = Query(None, description=f"{_SPAN}: the answer is the sum over them less that over `between`")
_MEAN = Query(False, description="mean per step instead of the sum")
_MISSING = Query("stop", description="whether steps without a release are refused, or left out; they are not empty")
_Missing = Literal["stop", "skip"]


def make_router(service: Service) -> APIRouter:
    """Return the routes to the series of a service."""
    router = APIRouter(tags=["series"])

    @router.get("/series")
    async def list_series() -> Response:
        """List all series: folders whose releases are the steps of one stream."""
        found = ((name, series_of(served)) for name, served in service.catalogue.folders().items())
        return as_json({"series": [_summarize(name, series) for name, series in found if series is not None]})

    @router.get("/series/{stream}")
    async def describe_series(stream: str, request: Request) -> Response:
        """Describe a series: its steps with their times, promises, and what each window of steps has spent."""
        series, served = _find(service, stream)
        headers = copy_headers(request, tag_of(served, "series"))
        return as_json(_summarize(stream, series) | {"steps": _list_steps(series)}, headers)

    @router.get("/series/{stream}/answer", responses=shape(BoxAnswer))
    async def answer_period(
        request: Request,
        stream: str,
        bbox: str = Query(description="west,south,east,north; low,high on a line"),
        between: str | None = _BETWEEN,
        compare: str | None = _COMPARE,
        mean: bool = _MEAN,
        missing: _Missing = _MISSING,
        crs: str | None = Query(None, description="CRS of bbox: the releases' own, or CRS84 (longitude, latitude)"),
        level: Level = 0.95,
        nonnegative: Nonnegative = False,
    ) -> Response:
        """Return the sum over the steps of a period in a box, with joint error; with `compare`, the change to another.

        The error is that of all steps together: errors of single steps must not be added. Beside a change stand the
        answers of both periods.
        """
        series, served = _find(service, stream)
        periods = _choose(series, between, compare, mean=mean, skip=missing == "skip")
        negotiate(request, {JSON: "json"})
        query = ask(_source(*periods), crs, level, nonnegative)
        corners = read_box(bbox, series.domain)
        headers = copy_headers(request, tag_of(served, "json"))
        await _prepare(service, periods)
        queries = [query] if compare is None else [query, *(replace(query, release=each) for each in periods)]
        first, *others = await asyncio.gather(*(service.batcher.answer(each, corners) for each in queries))
        content = {"series": stream, "bbox": corners.tolist()} | row(first) | _meaning(query, periods)
        if others:
            content["answers"] = dict(zip(("between", "compare"), map(row, others), strict=True))
        return as_json(content, headers)

    @router.post(
        "/series/{stream}/answers",
        responses=shape(BoxAnswers, GEOJSON, "text/csv", ARROW),
        openapi_extra={"requestBody": reads({JSON: BoxesAsked, GEOJSON: FeatureCollection})},
    )
    async def answer_many_of_period(
        request: Request,
        stream: str,
        between: str | None = _BETWEEN,
        compare: str | None = _COMPARE,
        mean: bool = _MEAN,
        missing: _Missing = _MISSING,
        crs: CrsOfFeatures = None,
        level: LevelOfFeatures = 0.95,
        nonnegative: NonnegativeOfFeatures = False,
    ) -> Response:
        """Return answers of a period to many boxes or features, in the forms of `/releases/{name}/answers`."""
        series, _ = _find(service, stream)
        periods = _choose(series, between, compare, mean=mean, skip=missing == "skip")
        await _prepare(service, periods)
        about = functools.partial(_meaning, periods=periods)
        return await answer_body(service, request, _source(*periods), (crs, level, nonnegative), about)

    return router


def series_of(served: Sequence[Served]) -> Series | None:
    """Return the series that the releases of a folder are, the same object while they are the same; None if none."""
    return _make_series(tuple((each.name, each.release) for each in served if isinstance(each.release, Release)))


@functools.lru_cache(maxsize=16)
def _make_series(named: tuple[tuple[str, Release], ...]) -> Series | None:
    try:
        return Series.of_named(dict(named)) if named else None
    except InputError:  # releases of other kinds of names, or of several streams
        return None


def _find(service: Service, name: str) -> tuple[Series, list[Served]]:
    """Return a series and its releases; HTTPException 404 if there is none of the name."""
    served = service.catalogue.folders().get(name, [])
    series = series_of(served)
    if series is None:
        raise HTTPException(404, f"series is {name[:80]!r}: it must be one of those at /series")
    return series, served


def _choose(
    series: Series, between: str | None, compare: str | None, *, mean: bool, skip: bool
) -> tuple[Series, ...]:
    """Return the period that is asked for, and the one it is compared with; InputError if there are none."""
    spans = [_read_span("between", between), *([_read_span("compare", compare)] if compare is not None else [])]
    return tuple(_period(series, span, mean, skip) for span in spans)


def _read_span(field: str, text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    first, comma, last = text.partition(",")
    if not (comma and first and last):
        raise InputError(f"{field} is {text[:80]!r}: it must be the first and the last step, separated by a comma")
    return first, last


# Sums over many steps take long to make: those that were asked last are kept.
@functools.lru_cache(maxsize=16)
def _period(series: Series, span: tuple[str, str] | None, mean: bool, skip: bool) -> Series:
    period = series if span is None else series.between(*span)
    number = period.last - period.first + 1
    if number > _MOST_STEPS:
        raise InputError(f"{','.join(span or ())} are {number:,} steps: at most {_MOST_STEPS:,} are summed up")
    period = period.present() if skip else period
    return period.per_step() if mean else period


@functools.lru_cache(maxsize=16)
def _source(period: Series, other: Series | None = None) -> Source:
    """Return a period, or another one less it."""
    return period if other is None else PeriodDifference(period, other)


async def _prepare(service: Service, periods: Sequence[Series]) -> None:
    """Let sums be made by a thread for long work, once; InputError if steps are missing."""
    for period in periods:
        if period.missing and not period.skipping:
            try:
                _ = period.summed
            except InputError as problem:
                raise InputError(f"{problem} (missing=skip leaves them out)") from None
        if "summed" not in vars(period):
            await service.workers.run(_sum_up, period)


def _sum_up(period: Series) -> None:
    period.summed.answerer().prepare()
    domain = period.domain
    inner = [[lo + size / 2 for lo, size in zip(domain.low, domain.cell, strict=True)] + list(domain.high)]
    period.answers(boxes(inner), level=0.5, nonnegative=False)  # it cuts cells, so that all is made that answers need


def _meaning(query: BoxQuery, periods: Sequence[Series]) -> dict[str, Any]:
    """Return what an answer says besides its figures: of which steps it is."""
    spans = [[period.clock.label(period.first), period.clock.label(period.last)] for period in periods]
    content = meaning(query) | {"between": spans[0], "per": "step" if periods[0].mean else "period"}
    if any(period.missing for period in periods):
        content["missing"] = [label for period in periods for label in period.missing]
    if len(periods) == 1:
        return content
    first, second = (f"{' to '.join(span)}" for span in spans)
    numbers = [len(period.releases) for period in periods]
    return content | {"compare": spans[1], "difference": f"{second} minus {first}", "steps": numbers}


def _summarize(name: str, series: Series) -> dict[str, Any]:
    """Return what a list says of a series."""
    example, step = series.example, series.example.mechanism.step
    base = f"/series/{quote(name, safe='')}"
    return {
        "id": name,
        "kind": example.mechanism.words,
        "first": series.labels[0],
        "last": series.labels[-1],
        "period": series.clock.period or None,
        "releases": len(series.releases),
        "missing": series.missing,
        "promise": None if step is None else step.words,
        "beyond": [] if step is None else step.beyond,
        "bounds": list(series.domain.bounds),
        "crs": series.domain.crs,
        "shape": list(series.domain.shape),
        "links": {"self": base, "answer": f"{base}/answer", "answers": f"{base}/answers"},
    }


def _list_steps(series: Series) -> list[dict[str, Any]]:
    """Return each step: its time, release and promise, and what the window that ends there has spent."""
    found: list[dict[str, Any]] = []
    step = series.example.mechanism.step
    paid = {**series.withdrawn, **series.releases}
    for number in range(series.first, series.last + 1):
        label, release = series.clock.label(number), series.releases.get(number)
        entry: dict[str, Any] = {"step": label} | _time_of(series, number)
        if number in series.withdrawn:
            entry |= {"withdrawn": describe_withdrawal(series.withdrawn[number])}
        if release is not None:
            budget = release.mechanism.budget
            entry |= {"release": f"/releases/{label}", "promise": release.mechanism.promise}
            entry |= {budget.unit: float(budget.amount), "digest": release.digest}
            if step is not None:
                window = [paid.get(each) for each in range(number - step.window + 1, number + 1)]
                # Exact until here: amounts are fractions. The account also knows of steps that are not here.
                spent = sum(each.mechanism.budget.amount for each in window if each is not None)
                payment = release.payment
                known = payment.spent if payment is not None and payment.steps == step.window else 0
                entry["window_spent"] = float(max(spent, known))
                entry["window_limit"] = float(step.budget.amount)
        found.append(entry)
    return found


def _time_of(series: Series, step: int) -> dict[str, str]:
    """Return when a step begins and ends, in UTC; nothing if steps are plain numbers."""
    ends = (datetime.datetime.fromtimestamp(each, datetime.UTC).isoformat() for each in series.clock.span(step) or ())
    return dict(zip(("begin", "end"), ends, strict=False))
