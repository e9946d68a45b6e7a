"""The private service: clients with keys send queries over HTTP, and each query charges the owners of its records.

The service sends every answer one step after reading the query, and locks the ledger for a fixed share of the step, so
timing reveals nothing about records.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, model_validator

from deltahist._files import check_secret
from deltahist.accounts.ledger import Ledger
from deltahist.errors import DamagedFile, InputError
from deltahist.personal.engines import Engine
from deltahist.personal.people import InterruptedQuestionError, KeyReuseError, People, UnusableError
from deltahist.personal.questions import Question, Strict, check_model

_LOG = logging.getLogger("deltahist.personal")
#: Fractions of a step: for reading records, and for the end of a step, when nothing is read. The rest is for planning.
_READ, _LAST = 0.64, 0.1

_Text = Annotated[str, Field(min_length=1)]
_Positive = Annotated[int, Field(ge=1)]


class AskedAccount(Strict):
    """An account that clients may query: the table of its records, and the column that names their owners."""

    table: _Text
    owner: _Text


class Client(Strict):
    """A client: hashes of its keys, the accounts it may query, and its maximum number of requests per minute."""

    keys: Annotated[list[Annotated[str, Field(pattern=r"^sha256\$[0-9a-f]{64}$")]], Field(min_length=1)]
    accounts: Annotated[list[str], Field(min_length=1)]
    per_minute: _Positive = 60


class PrivateSettings(Strict):
    """An operator's settings.

    database, ledger : files or URLs, as for `People`.
    accounts : the accounts, by their names in the ledger. clients : the clients, by name.
    host, port : address to listen on. tls_in_front : whether a proxy encrypts traffic to other machines.
    step : seconds from a query to its answer. max_bytes : maximum size of a query.
    max_waiting : maximum number of queries that share a step. Further queries are refused.
    """

    database: _Text
    ledger: _Text
    accounts: Annotated[dict[str, AskedAccount], Field(min_length=1)]
    # The ledger's key joins the client's name and the request's key with a colon, so names must not contain one.
    clients: Annotated[dict[Annotated[str, Field(pattern=r"^[\w .@-]{1,60}$")], Client], Field(min_length=1)]
    host: _Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8001
    tls_in_front: bool = False
    step: Annotated[float, Field(gt=0, le=60)] = 10.0
    max_bytes: _Positive = 64 << 10
    max_waiting: _Positive = 16

    @classmethod
    def read(cls, path: Path) -> PrivateSettings:
        """Read a TOML file. Raises InputError if other users can read or write it, or if a setting is invalid."""
        if os.name == "posix" and path.exists():
            check_secret(path, "config")
            if path.stat().st_uid != os.geteuid():
                raise InputError(f"config {str(path)!r} belongs to another user: you must own it")
        return check_model(cls, path, "config")

    @model_validator(mode="after")
    def _check_host(self) -> PrivateSettings:
        if not self.tls_in_front and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(f"host is {self.host!r}: add a TLS proxy and set tls_in_front = true, or use 127.0.0.1")
        return self

    def find_client(self, key: str) -> str | None:
        """Return the client that a key belongs to, or None. Timing may reveal hashes, but never a key."""
        hashed = hash_key(key)
        return next((name for name, client in self.clients.items() if hashed in client.keys), None)


def make_key() -> tuple[str, str]:
    """Return a new key of 256 random bits, and its hash."""
    key = f"dhk_{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def hash_key(key: str) -> str:
    """Return the hash of a key. It needs no salt, since nobody can guess a key."""
    return f"sha256${hashlib.sha256(key.encode(errors='replace')).hexdigest()}"


def open_people(settings: PrivateSettings) -> dict[str, People]:
    """Return each account's people, by account name. Raises InputError if an account, table or database is missing."""
    known = Ledger(settings.ledger).list_accounts() if Ledger.exists(settings.ledger) else {}
    for name in sorted({*settings.accounts, *(name for each in settings.clients.values() for name in each.accounts)}):
        if name not in settings.accounts or known.get(name, {}).get("kind") != "purses":
            raise InputError(f"account {name!r} must be in the settings, and people must have joined it")
    ledger, engine = Ledger(settings.ledger), Engine.open(settings.database)
    asked = settings.accounts.items()
    people = {name: People(engine, each.table, owner=each.owner, ledger=ledger, name=name) for name, each in asked}
    for one in people.values():
        # Import what the first query needs, and detect damaged purses.
        with one.purses.open_turn(), engine.open_session() as session:
            session.plan_fetch(one.names)
    return people


def create_app(settings: PrivateSettings, people: Mapping[str, People]) -> FastAPI:
    """Return the web application in which clients with keys can query each account's people (see `open_people`)."""
    at_work = 0
    times: dict[str, deque[float]] = {name: deque() for name in settings.clients}
    pool = ThreadPoolExecutor(16)
    app = FastAPI(title="deltahist, people's own budgets", openapi_url=None)

    def count_request(client: str) -> int:
        """Count a request and return 0. If the client is at its limit per minute, only return the seconds to wait."""
        recent, now = times[client], time.monotonic()
        while recent and recent[0] <= now - 60:
            recent.popleft()
        if len(recent) >= settings.clients[client].per_minute:
            return math.ceil(recent[0] + 60 - now)
        recent.append(now)
        return 0

    @app.get("/healthz")
    async def report_health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.post("/ask")
    async def answer_question(request: Request) -> Response:
        """Answer a query about people's records. Repeating a key repeats its answer without a charge."""
        nonlocal at_work
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        client = settings.find_client(secret.strip()) if scheme.lower() == "bearer" else None
        if client is None:
            realm = {"www-authenticate": 'Bearer realm="deltahist"'}
            return _refuse(401, "Authorization", "Authorization has no known key: send Bearer KEY", **realm)
        allowed = settings.clients[client].accounts
        account = request.query_params.get("account", allowed[0] if len(allowed) == 1 else None)
        if account not in allowed:
            # The response does not reveal whether the account exists.
            status, given = (400, "is missing") if account is None else (403, f"is {account[:80]!r}")
            return _refuse(status, "account", f"account {given}: this key is for {', '.join(allowed)}")
        if wait := count_request(client):
            detail = f"this client has reached its limit of requests per minute: wait {wait} seconds"
            return _refuse(429, "Authorization", detail, **{"retry-after": str(wait)})
        key = request.headers.get("idempotency-key", "")
        if not 1 <= len(key) <= 100 or not key.isprintable():
            rule = "send 1 to 100 printable characters, different for each query"
            return _refuse(400, "Idempotency-Key", f"Idempotency-Key has {len(key)} characters: {rule}")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > settings.max_bytes:
                return _refuse(413, "body", f"body is longer than {settings.max_bytes:,} bytes")
        # Each request takes one whole step, so a refusal depends only on when other requests arrived.
        if at_work >= settings.max_waiting:
            return _refuse(503, "body", "too many queries are waiting: try again later", **{"retry-after": "1"})
        due = time.monotonic() + settings.step
        task = (people[account], settings, account, body, f"{client}: {key}", due - _LAST * settings.step)
        at_work += 1
        thread = asyncio.get_running_loop().run_in_executor(pool, _ask_people, *task)
        try:
            await _pass_step(thread, due)
        finally:
            at_work -= 1
        late = "the query did not finish within its step: everybody may have been charged its maximum cost"
        return thread.result() if thread.done() else _refuse(500, "body", late)

    @app.middleware("http")
    async def log_request(request: Request, answer: Any) -> Response:
        response: Response = await answer(request)
        _LOG.info("%s %s", request.method, response.status_code)
        return response

    return app


def _refuse(status: int, field: str, detail: str, **headers: str) -> Response:
    content = {"status": status, "detail": detail, "field": field}
    return JSONResponse(content, status, headers, media_type="application/problem+json")


async def _pass_step(thread: asyncio.Future[Response], due: float) -> None:
    await asyncio.sleep(due - time.monotonic())  # whatever the thread does


def _ask_people(people: People, settings: PrivateSettings, name: str, body: bytes, key: str, until: float) -> Response:
    """Answer a query. Refusals reveal nothing about records, files or the machine."""
    try:
        question = Question.from_mapping(json.loads(body))
        for field, own in (("table", people.table), ("owner", people.owner)):
            asked = getattr(question, field)
            if asked not in (None, own):
                return _refuse(400, field, f"{field} is {asked!r}: account {name!r} has {own!r}, so leave it out")
        # All queries that share a step must fit in it.
        seconds = _READ * settings.step / settings.max_waiting
        records = replace(people.records, seconds=seconds, until=until)
        return JSONResponse(question.ask(records, key).to_json())
    except KeyReuseError:
        return _refuse(422, "Idempotency-Key", "Idempotency-Key was used for another query: use a new one")
    except InterruptedQuestionError as problem:
        # After a 503, clients would retry automatically, and everybody would be charged again.
        return _refuse(500, "body", str(problem))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return _refuse(400, "body", "body is not JSON")
    except (DamagedFile, UnusableError):
        _LOG.error("the ledger or the database is damaged or unusable")
        rule = "try again later with the same Idempotency-Key"
        return _refuse(503, "account", f"the ledger or database of this account cannot be used now: {rule}")
    except InputError as wrong:
        named = re.match(r"[\w.-]+(?= is | has )", str(wrong))
        return _refuse(400, named[0] if named else "body", str(wrong))
    except Exception as wrong:  # the exception's message may quote records
        _LOG.error("a query failed: %s", type(wrong).__name__)
        return _refuse(500, "body", "the query failed: see the service's log")


class _LogFormatter(logging.Formatter):
    """Prints messages of this service and uvicorn, but only the origin of exceptions and other loggers' messages."""

    def format(self, record: logging.LogRecord) -> str:
        is_own = record.name.startswith(("uvicorn", _LOG.name)) and not record.exc_info
        return record.getMessage() if is_own else f"{record.levelname} of {record.name}: its text is not shown"


def run_private(config: Path, check: bool = False) -> None:
    """Run the service with the settings in a file. If `check` is set, only test that everything opens."""
    settings = PrivateSettings.read(config)
    app = create_app(settings, open_people(settings))
    if check:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_LogFormatter())
    logging.basicConfig(handlers=[handler])
    for name in ("uvicorn", _LOG.name):
        logging.getLogger(name).setLevel(logging.INFO)
    quiet: dict[str, Any] = {"access_log": False, "server_header": False, "log_config": None}
    uvicorn.run(app, host=settings.host, port=settings.port, limit_concurrency=4 * settings.max_waiting, **quiet)
