"""What routes share: releases, settings, boxes that wait, and turns for long work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastapi import Request
from starlette.exceptions import HTTPException

from deltahist.releases.base import BaseRelease
from deltahist.releases.sums import ReleaseDifference
from deltahist.server.answers import Batcher, Source
from deltahist.server.catalogue import Catalogue, Served

#: Media types.
JSON, GEOJSON, CSV = "application/json", "application/geo+json", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
#: Long requests of a worker that run at a time, and that run or wait; seconds within which a body must arrive.
_AT_ONCE, _MOST_WAITING, _PATIENCE = 2, 16, 20


@dataclass(frozen=True)
class Settings:
    """Choices of an operator; limits hold for each worker."""

    origins: tuple[str, ...] = ()  # of web pages that may ask; "*" is all
    max_bytes: int = 16 << 20  # of a request's body
    max_boxes: int = 100_000  # or features, of a request
    tiles: str | None = None  # address of the map's background, with {z}, {x} and {y}
    attribution: str = ""


@dataclass
class Service:
    """Releases, an operator's choices, boxes that wait, and turns for long work."""

    catalogue: Catalogue
    settings: Settings
    batcher: Batcher = field(default_factory=Batcher)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _number: int = 0

    def find(self, name: str, field: str = "release") -> Served:
        """Return the release of a name; HTTPException 404 if there is none, 410 if it is withdrawn."""
        served = self.catalogue.find(name)
        if served is None:
            raise HTTPException(404, f"{field} is {name[:80]!r}: it must be one of those at /releases")
        if served.release.withdrawn is None:
            return served
        successor = self.catalogue.find_successor(served.release)
        headers = {"cache-control": "no-cache"}
        if successor is not None:
            headers["link"] = f'</releases/{successor.quoted}>; rel="successor-version"'
        words = f"release {name!r} was withdrawn {served.release.withdrawn.words}"
        detail: Any = {"detail": words, "withdrawn": self.describe_withdrawal(served.release)}
        raise HTTPException(410, detail, headers)

    def describe_withdrawal(self, release: BaseRelease) -> dict[str, str | None]:
        """Return when and why a release was withdrawn, and the name of the release that replaces it."""
        assert release.withdrawn is not None
        successor = self.catalogue.find_successor(release)
        about = {"date": release.withdrawn.date, "reason": release.withdrawn.reason}
        return about | {"replacement": None if successor is None else successor.name}

    def find_source(self, name: str, compare: str | None) -> tuple[Source, list[Served]]:
        """Return a release, or another one minus this one; and the releases it is made of."""
        served = self.find(name)
        if compare is None:
            return served.release, [served]
        other = self.find(compare, "compare")
        return ReleaseDifference(served.release, other.release), [served, other]

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold one of the places for long requests; HTTPException 503 if all are taken."""
        if self._number >= _MOST_WAITING:
            raise HTTPException(503, "the service is busy: ask again in a second", {"retry-after": "1"})
        self._number += 1
        try:
            yield
        finally:
            self._number -= 1

    async def run(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a long call, made in a thread when its turn comes."""
        async with self._turns:
            return await asyncio.to_thread(call, *given)

    async def read_body(self, request: Request) -> bytes:
        """Return the body of a request; HTTPException 413 if it is too long, 408 if it is too slow."""
        body, most = bytearray(), self.settings.max_bytes
        try:
            async with asyncio.timeout(_PATIENCE):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise HTTPException(413, f"the body has more than {most:,} bytes: ask in several requests")
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {_PATIENCE} seconds") from None
        return bytes(body)


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


def plain(value: Any) -> Any:
    """Return a figure as JSON has it: None where it is not known."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
