"""Manners of a service over HTTP: forms of answers, problem documents, and what every response says."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deltahist.errors import InputError

JSON, GEOJSON, ARROW = "application/json", "application/geo+json", "application/vnd.apache.arrow.stream"
_PROBLEM = "application/problem+json"
#: Seconds in which a body must come.
_PATIENCE = 60


class Busy(Exception):  # noqa: N818
    """More is asked than can be answered in time."""


@dataclass
class Workers:
    """Threads for long calls.

    Parameters
    ----------
    at_once : calls that run at a time.
    most_waiting : calls that may wait; more are refused (`Busy`).
    """

    at_once: int = 2
    most_waiting: int = 16
    _turns: asyncio.Semaphore = field(init=False)
    _waiting: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(self.at_once)

    async def run(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a call, made in a thread when its turn comes."""
        if self._waiting >= self.most_waiting:
            raise Busy
        self._waiting += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(call, *given)
        finally:
            self._waiting -= 1


def as_json(content: Any, headers: dict[str, str] | None = None) -> Response:
    """Return a response with content as JSON; what JSON does not have is text."""
    return Response(orjson.dumps(content, default=str), media_type=JSON, headers=headers)


def plain(value: Any) -> Any:
    """Return a figure as JSON has it: none where it is not known."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def negotiate(request: Request, forms: dict[str, str]) -> str:
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


def unchanged(request: Request, tag: str, headers: dict[str, str]) -> Response | None:
    """Enter the headers by which copies are kept; return the response to whoever has the same already, or None."""
    headers |= {"etag": f'"{tag}"', "cache-control": "no-cache"}  # a copy is good while the tag is the same
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers=headers) if f'"{tag}"' in known or "*" in known else None


async def read_body(request: Request, most: int) -> bytes:
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


def explain_problems(app: FastAPI) -> None:
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


class Manners:
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
