"""What the routes share: settings, releases by name, batches of boxes, and a queue for long calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypeAlias

import numpy as np
from fastapi import Depends, Request
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist.errors import InputError
from deltahist.releases import Series
from deltahist.releases.base import UNCUT, BaseRelease
from deltahist.releases.series import Difference
from deltahist.server.catalogue import Catalogue, Served
from deltahist.server.models import check_size
from deltahist.space.crs import LONGITUDE_LATITUDE
from deltahist.space.geometries import bend_boxes, fit
from deltahist.space.workloads import boxes, regions

#: Sources of answers: a release, a series of steps, or the difference of two.
Source: TypeAlias = BaseRelease | Series | Difference
#: Answer columns (m,) by name.
Columns: TypeAlias = dict[str, NDArray[Any]]
JSON, GEOJSON, CSV = "application/json", "application/geo+json", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
#: URI that OGC services use for longitude and latitude.
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"


@dataclass(frozen=True)
class Settings:
    """An operator's settings. Limits apply to each worker."""

    origins: tuple[str, ...] = ()  # Web origins that may send requests; "*" allows all.
    max_bytes: int = 16 << 20  # Limit on the size of a request body.
    max_boxes: int = 100_000  # Limit on boxes or features per request.
    tiles: str | None = None  # URL of background tiles, with {z}, {x} and {y}.
    attribution: str = ""
    districts: Any = None  # `Districts` that the map can show.
    context: tuple[str, bytes] | None = None  # Lines to draw on the map: "degrees" or "plane", and GeoJSON.


@dataclass(frozen=True)
class BoxQuery:
    """A source that answers boxes, and the options of `dh.answer`."""

    release: Source
    degrees: bool  # whether boxes are in longitude and latitude, not in the release's own coordinates
    level: float
    nonnegative: bool

    def answer(self, corners: NDArray[np.float64]) -> Columns:
        """Return the columns of `dh.answer` for boxes (m, 2 · ndim), after clipping boxes in degrees to the map."""
        domain, answer = self.release.domain, partial(self.release.answer_workload, level=self.level)
        if not self.degrees:
            return answer(boxes(corners), nonnegative=self.nonnegative)
        west, south, east, north = corners.T
        valid = (west != east) & (south < north) & (np.abs(corners) <= (360, 90, 360, 90)).all(axis=1)
        if not valid.all():
            wrong = corners[np.argmin(valid)].tolist()
            raise InputError(f"bbox is {wrong}: it must be west, south, east and north in degrees")
        clipped = fit(bend_boxes(corners, domain), domain, LONGITUDE_LATITUDE)
        found = answer(regions(clipped.shapes[clipped.held]), nonnegative=self.nonnegative)
        return clipped.spread_over_regions(found)

    def answer_one(self, corners: NDArray[np.float64]) -> Columns:
        """Return the columns of the answer to one box (2 · ndim,), each of shape (1,)."""
        return _select_row(self.answer(corners[None]), 0)

    def answer_separately(self, corners: list[NDArray[np.float64]]) -> list[Columns | Exception]:
        """Return for each box its columns, each of shape (1,), or the error that `answer_one` would raise."""
        try:
            columns = self.answer(np.array(corners))
        except Exception as problem:
            if len(corners) == 1:
                return [problem]
            half = len(corners) // 2  # so that one bad box does not slow down all others
            return [*self.answer_separately(corners[:half]), *self.answer_separately(corners[half:])]
        if len(corners) == 1:
            return [_select_row(columns, 0)]
        unanswered = np.isnan(columns["estimate"])  # answered alone, such a box raises an error that states the reason
        return [
            self.answer_separately([each])[0] if unanswered[at] else _select_row(columns, at)
            for at, each in enumerate(corners)
        ]


def _select_row(columns: Columns, at: int) -> Columns:
    """Return the columns of one box, each of shape (1,), without those that only other boxes need."""
    row = {name: values[[at]] for name, values in columns.items()}
    if "cut" in row and not row["cut"][0]:
        row = {name: value for name, value in row.items() if name not in UNCUT}
    if not row.get("outside", [1.0])[0]:
        del row["outside"]
    if "note" in row and not isinstance(row["note"][0], str):
        del row["note"]
    return row


def are_in_degrees(source: Source, crs: str | None) -> bool:
    """Return True if `crs` is longitude and latitude, or False if it is the release's own.

    None means longitude and latitude, or plain numbers if the map has no CRS. Raises InputError for any other CRS. The
    name is never passed to PROJ, which might open a file of that name.
    """
    own = source.domain.crs
    if crs is None or (own is not None and crs in (CRS84, "OGC:CRS84", "CRS84", "urn:ogc:def:crs:OGC:1.3:CRS84")):
        return own is not None
    forms = ("EPSG:", "http://www.opengis.net/def/crs/EPSG/0/", "urn:ogc:def:crs:EPSG::")
    if own is not None and crs in [own.replace("EPSG:", form) for form in forms]:
        return False
    rule = "leave it out" if own is None else f"it must be {own} or {CRS84} (longitude, latitude)"
    raise InputError(f"crs is {crs[:80]!r}: {rule}")


@dataclass
class Batcher:
    """Answers single boxes in batches. Boxes that arrive during one call are answered together in the next."""

    _waiting: dict[BoxQuery, list[tuple[NDArray[np.float64], asyncio.Future[Columns]]]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    async def answer(self, query: BoxQuery, corners: NDArray[np.float64]) -> Columns:
        """Return the columns of the answer to a box (2 · ndim,), each of shape (1,)."""
        future: asyncio.Future[Columns] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(query, []).append((corners, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_waiting())
        return await future

    async def _answer_waiting(self) -> None:
        await asyncio.sleep(0)  # so that requests in the same iteration of the event loop can join the batch
        while self._waiting:
            query, asked = next(iter(self._waiting.items()))
            del self._waiting[query]
            try:
                found = await asyncio.to_thread(query.answer_separately, [corners for corners, _ in asked])
            except Exception as problem:
                found = [problem] * len(asked)
            for (_, future), each in zip(asked, found, strict=True):
                if future.done():
                    continue
                if isinstance(each, Exception):
                    future.set_exception(each)
                else:
                    future.set_result(each)


@dataclass
class Service:
    """The service's releases, settings and waiting boxes, and a queue for long calls."""

    catalogue: Catalogue
    settings: Settings
    batcher: Batcher = field(default_factory=Batcher)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    _number: int = 0  # number of long requests that are running or waiting

    def find(self, name: str, field: str = "release", accepts: Callable[[Served], bool] | None = None) -> Served:
        """Return a release by name. Raises HTTPException 410 if it was withdrawn, or 404 if it does not exist."""
        served = self.catalogue.find(name)
        if served is None or not (accepts is None or accepts(served)):
            listed = "collections" if field == "collection" else "releases"
            raise HTTPException(404, f"{field} is {name[:80]!r}: it must be one of those listed at /{listed}")
        if served.release.withdrawn is None:
            return served
        successor = self.catalogue.find_successor(served.release)
        headers = {"cache-control": "no-cache"}
        if successor is not None:
            headers["link"] = f'</releases/{successor.quoted}>; rel="successor-version"'
        reason = f"release {name!r} was withdrawn {served.release.withdrawn}"
        detail: Any = {"detail": reason, "withdrawn": self.describe_withdrawal(served.release)}
        raise HTTPException(410, detail, headers)

    def describe_withdrawal(self, release: BaseRelease) -> dict[str, str | None]:
        """Return when and why a release was withdrawn, and the name of its replacement."""
        assert release.withdrawn is not None
        successor = self.catalogue.find_successor(release)
        about = {"date": release.withdrawn.date, "reason": release.withdrawn.reason}
        return about | {"replacement": None if successor is None else successor.name}

    def find_source(self, name: str, compare: str | None) -> tuple[Source, dict[str, Any]]:
        """Return a release, or the difference `compare` minus it, and fields that describe this source in answers."""
        release = self.find(name).release
        if compare is None:
            return release, {"digest": release.digest}
        about = {"compare": compare, "difference": f"{compare} minus {name}"}
        return Difference(release, self.find(compare, "compare").release), about

    @property
    def districts(self) -> Any:
        """The operator's districts. Raises HTTPException 404 if there are none."""
        if self.settings.districts is None:
            raise HTTPException(404, "districts are missing: the service was started without --regions")
        return self.settings.districts

    @contextlib.asynccontextmanager
    async def take_place(self) -> AsyncIterator[None]:
        """Occupy one of 16 places for long requests. Raises HTTPException 503 if all are taken."""
        if self._number >= 16:
            raise HTTPException(503, "the service is busy: try again in a second", {"retry-after": "1"})
        self._number += 1
        try:
            yield
        finally:
            self._number -= 1

    async def run(self, call: Callable[..., Any], *given: Any) -> Any:
        """Make a long call in a thread when its turn comes, and return its result."""
        async with self._turns:
            return await asyncio.to_thread(call, *given)

    async def read_body(self, request: Request) -> bytes:
        """Return a request's body. Raises HTTPException 413 if it is too long, and TimeoutError if it is too slow."""
        body = bytearray()
        async with asyncio.timeout(20):
            async for part in request.stream():
                body += part
                check_size(len(body), self.settings.max_bytes, "bytes")
        return bytes(body)


async def _find_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf: TypeAlias = Annotated[Service, Depends(_find_service)]
