"""Manners of a service over HTTP: forms of answers, problem documents, and what every response says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deltahist import __version__
from deltahist.errors import DeltaHistWarning, InputError

JSON, GEOJSON = "application/json", "application/geo+json"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
_LOG = logging.getLogger("deltahist.server")
_PROBLEM = "application/problem+json"
_BUSY = "more is asked than can be answered in time: ask again in a second"
#: Seconds in which a body must come.
_PATIENCE = 20


class ProblemError(HTTPException):
    """An error whose problem document has further members."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(status, detail, headers)
        self.more = more


class Busy(Exception):  # noqa: N818
    """More is asked than can be answered in time."""


@dataclass
class Workers:
    """Threads for long calls.

    Parameters
    ----------
    most : places of calls that run or wait; more are refused (`Busy`).
    at_once : calls that run at a time.
    """

    most: int = 16
    at_once: int = 2
    _turns: asyncio.Semaphore = field(init=False)
    _number: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(self.at_once)

    @contextlib.asynccontextmanager
    async def place(self, number: int = 1) -> AsyncIterator[None]:
        """Hold places among those that run or wait, all of them if there are fewer; raise Busy if they are taken."""
        number = min(number, self.most)
        if self._number + number > self.most:
            raise Busy
        self._number += number
        try:
            yield
        finally:
            self._number -= number

    async def run(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a call, made in a thread when its turn comes; raise Busy if there is no place."""
        async with self.place():
            return await self.run_in_place(call, *given)

    async def run_in_place(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a call for whoever holds a place, made in a thread when its turn comes.

        A thread cannot be stopped: its turn and a place end with the call, also when nobody waits for it any more.
        """
        await self._turns.acquire()
        thread = asyncio.ensure_future(asyncio.to_thread(call, *given))
        thread.add_done_callback(self._end)
        try:
            return await asyncio.shield(thread)
        finally:
            if not thread.done():
                self._number += 1
                thread.add_done_callback(self._leave)

    def _end(self, thread: asyncio.Future[Any]) -> None:
        self._turns.release()
        if not thread.cancelled():
            thread.exception()  # who has left does not want to know it

    def _leave(self, _: asyncio.Future[Any]) -> None:
        self._number -= 1


def as_json(content: Any, headers: dict[str, str] | None = None) -> Response:
    """Return a response with content as JSON; what JSON does not have is text."""
    return Response(orjson.dumps(content, default=str), media_type=JSON, headers=headers)


def plain(value: Any) -> Any:
    """Return a figure as JSON has it: none where it is not known."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def negotiate(request: Request, forms: dict[str, str]) -> str:
    """Return the form that a request asks for by `f`, or likes best by `Accept`, the first of equals.

    The narrowest range that a form falls in tells how it is liked (RFC 9110, section 12.5.1). Raises InputError if `f`
    is none of the forms, HTTPException 406 if none is accepted.
    """
    asked = request.query_params.get("f")
    if asked is not None:
        if asked not in forms.values():
            raise InputError(f"f is {asked[:80]!r}: it must be one of {', '.join(forms.values())}")
        return asked
    liked: dict[str, float] = {}  # quality of each range of media
    for part in (request.headers.get("accept") or "*/*").lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        stated = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        liked[media] = float(stated) if re.fullmatch(r"[01](\.\d*)?", stated) else 1.0

    def quality(offered: str) -> float:
        ranges = (offered, f"{offered.partition('/')[0]}/*", "*/*")
        return next((liked[each] for each in ranges if each in liked), 0.0)

    best = max(forms, key=quality)
    if not quality(best):
        raise HTTPException(406, f"Accept must have one of {', '.join(forms)}")
    return forms[best]


def copy_headers(request: Request, tag: str, *, by_accept: bool = False) -> dict[str, str]:
    """Return the headers by which copies are kept; HTTPException 304 to whoever has the same already.

    The tag is weak: it is the same for every encoding. A copy is good while the tag is the same; for a day without
    asking if the address has `digest`, with which the tag begins.

    Parameters
    ----------
    by_accept : whether the answer's form depends on the header `Accept`.
    """
    digest = request.query_params.get("digest", "")
    keep = "max-age=86400, immutable" if tag.startswith(digest[:32]) and len(digest) >= 32 else "no-cache"
    headers = {"etag": f'W/"{tag}"', "cache-control": keep} | ({"vary": "Accept"} if by_accept else {})
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if f'"{tag}"' in known or "*" in known:
        raise HTTPException(304, headers=headers)
    return headers


def as_file(request: Request, content: bytes, media: str, tag: str, headers: dict[str, str]) -> Response:
    """Return a file, or the range of its bytes that a request asks for (RFC 9110, section 14)."""
    headers |= {"etag": f'"{tag}"', "accept-ranges": "bytes"}
    asked = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", request.headers.get("range", ""))
    if asked is None or asked[0] == "bytes=-" or request.headers.get("if-range", f'"{tag}"') != f'"{tag}"':
        return Response(content, media_type=media, headers=headers)
    size, (first, last) = len(content), asked.groups()
    begin = int(first) if first else max(size - int(last), 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if begin > end:
        answer = problem(416, f"range is {asked[0]!r}: the file has {size:,} bytes")
        answer.headers["content-range"] = f"bytes */{size}"
        return answer
    headers["content-range"] = f"bytes {begin}-{end}/{size}"
    return Response(content[begin : end + 1], 206, headers, media)


def route_of(scope: Scope) -> str:
    """Return the route that answered a request, without the values of its parameters: all that logs may tell."""
    return str(getattr(scope.get("route"), "path", "none"))


async def refuse_unknown(request: Request) -> None:
    """Raise InputError if an address has a parameter that its route does not have: a misspelt one would do nothing."""
    # A coroutine, since FastAPI runs functions in threads, which takes longer than all of this.
    route = request.scope["route"].dependant  # codespell:ignore dependant
    known = {each.alias for each in route.query_params} | {"f", "digest"}
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        raise InputError(f"{unknown[:80]} is no parameter here: it must be one of {', '.join(sorted(known))}")


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request; HTTPException 413 as soon as it is too long, 415 if it is compressed."""
    body = bytearray()
    if (coding := request.headers.get("content-encoding", "identity")).lower() != "identity":
        raise HTTPException(415, f"the body is compressed ({coding[:20]!r}): send it as it is")
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


def problem(status: int, detail: str, **more: Any) -> Response:
    """Return a problem document (RFC 9457); whoever is put off is told to ask again."""
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    later = {"retry-after": "1"} if status == 503 else None
    return Response(orjson.dumps(content | more), status_code=status, media_type=_PROBLEM, headers=later)


def make_app(title: str, description: str, lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]]) -> FastAPI:
    """Return an application without routes, whose every error is a problem document without paths or traces."""

    @contextlib.asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        with warnings.catch_warnings():
            # Answers say what matters of them, and logs must not tell what is asked.
            warnings.simplefilter("ignore", DeltaHistWarning)
            async with lifespan(app):
                yield

    app = FastAPI(
        title=title,
        version=__version__,
        description=description,
        lifespan=run,
        # The usual pages of documentation load their scripts from elsewhere, which would tell others who reads.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _explain_problems(app)
    return app


def _explain_problems(app: FastAPI) -> None:
    """Let every error be a problem document (RFC 9457) that names value and rule."""

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
        if error.status_code == 304:
            return Response(status_code=304, headers=error.headers)
        answer = problem(error.status_code, str(error.detail), **getattr(error, "more", {}))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Busy)
    async def put_off(_: Request, error: Busy) -> Response:
        return problem(503, _BUSY)

    @app.exception_handler(ClientDisconnect)
    async def forget(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody is there to read it


def at_port(port: int, page: ASGIApp, app: ASGIApp) -> ASGIApp:
    """Return an application that is `page` at one of the ports where a server listens, and `app` at the others."""

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        here = scope["type"] == "http" and (scope.get("server") or ("", 0))[1] == port
        await (page if here else app)(scope, receive, send)

    return choose


class Gate:
    """Middleware: requests beyond a number are put off at once, and one that takes too long is ended.

    Parameters
    ----------
    most : requests at a time, not counting those for /healthz.
    seconds : from the head of a request to the end of its answer.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self.app, self.most, self.seconds, self._number = app, most, seconds, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or get_route_path(scope) == "/healthz":
            return await self.app(scope, receive, send)
        started = held = False

        def leave() -> None:
            nonlocal held
            self._number -= held
            held = False

        hear, say = _let_finish(receive, send, leave)

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await say(message)

        if self._number >= self.most:
            return await problem(503, _BUSY)(scope, hear, watch)

        self._number += 1
        held = True
        try:
            async with asyncio.timeout(self.seconds) as limit:
                await self.app(scope, hear, watch)
        except TimeoutError:
            if started or not limit.expired():
                raise
            detail = f"there was no answer within {self.seconds:g} seconds: ask for less at once, or later"
            await problem(503, detail)(scope, receive, send)
        finally:
            leave()


def _let_finish(receive: Receive, send: Send, leave: Callable[[], None]) -> tuple[Receive, Send]:
    """Return the two, where the end of a refusal waits until a body is sent that nobody reads.

    A connection that is closed while a body comes is reset, and the client would never see why. `leave` is called
    before: who is refused takes nobody's place.
    """
    status, whole = 0, False

    async def hear() -> Message:
        nonlocal whole
        message = await receive()
        whole = not message.get("more_body", False)
        return message

    async def say(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and status >= 400 and not whole:
            leave()
            await send({**message, "more_body": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    while not whole:
                        await hear()
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    return hear, say


class Manners:
    """Middleware: HEAD is GET without a body; every response has its request's id; a failure is a 500.

    Parameters
    ----------
    tell : called with the scope, status, seconds and id of each request that ended.
    timed : whether responses say how long they took (Server-Timing).
    """

    def __init__(self, app: ASGIApp, tell: Callable[[Scope, int, float, str], None], timed: bool = True) -> None:
        self.app, self.tell, self.timed = app, tell, timed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        head, begin = scope["method"] == "HEAD", time.perf_counter()
        # In a copy: the server looks at its own to know how long the body of a response to HEAD may be.
        scope = {**scope, "method": "GET"} if head else scope
        status, number = 0, uuid.uuid4().hex

        async def say(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, took = message["status"], 1000 * (time.perf_counter() - begin)
                timing = [(b"server-timing", f"total;dur={took:.1f}".encode())] if self.timed else []
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", number.encode()),
                    *timing,
                    (b"x-content-type-options", b"nosniff"),
                ]
            elif head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self.app(scope, receive, say)
        except Exception:
            if status:
                raise
            _LOG.exception("a request failed", extra={"facts": {"id": number}})
            failed = problem(500, f"the service failed; its log tells why, at request {number}", request=number)
            await failed(scope, receive, say)
        finally:
            self.tell(scope, status or 499, time.perf_counter() - begin, number)
