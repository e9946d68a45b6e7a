"""The private service: questions that people pay for, over HTTP, from clients with keys.

Every answer leaves one step after its question was read, and holds the ledger for one share of the step, whatever the
records are. `deltahist serve --private CONFIG` runs it.
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
from deltahist.personal.questions import Question, Strict, check_model, read_toml

_LOG = logging.getLogger("deltahist.personal")
#: The part of a step in which records are read, and the last part, in which they are not; plans are made in the rest.
_READ, _LAST = 0.64, 0.1

_Text = Annotated[str, Field(min_length=1)]
_Positive = Annotated[int, Field(ge=1)]


class AskedAccount(Strict):
    """An account of people about whom clients may ask: table and owner's column of their records (`People`)."""

    table: _Text
    owner: _Text


class Client(Strict):
    """A client: hashes of its keys, the accounts it may ask, and its requests in any minute."""

    keys: Annotated[list[str], Field(min_length=1)]
    accounts: Annotated[list[str], Field(min_length=1)]
    per_minute: _Positive = 60


class PrivateSettings(Strict):
    """Choices of an operator.

    Parameters
    ----------
    database, ledger : where they are, as `People` takes them.
    accounts : by their names in the ledger. clients : by name.
    host, port : where to listen. tls_in_front : whether a proxy encrypts what goes to other machines.
    step : seconds; every answer leaves when they have passed. max_bytes : of a question.
    max_waiting : questions in any step, which share its time alike; more are put off.
    """

    database: _Text
    ledger: _Text
    accounts: Annotated[dict[str, AskedAccount], Field(min_length=1)]
    clients: Annotated[dict[str, Client], Field(min_length=1)]
    host: _Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8001
    tls_in_front: bool = False
    step: Annotated[float, Field(gt=0, le=60)] = 10.0
    max_bytes: _Positive = 64 << 10
    max_waiting: _Positive = 16

    @classmethod
    def read(cls, path: Path) -> PrivateSettings:
        """Read a TOML file; InputError if others may read or write it, or a setting is missing, unknown or wrong."""
        if os.name == "posix" and path.exists():
            check_secret(path, "config")
            if path.stat().st_uid != os.geteuid():
                raise InputError(f"config {str(path)!r} is another user's: it must be yours")
        return check_model(cls, read_toml(path, "config"), "config")

    @model_validator(mode="after")
    def _check(self) -> PrivateSettings:
        if not self.tls_in_front and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(f"host is {self.host!r}: put TLS in front (tls_in_front = true) or take 127.0.0.1")
        seen: set[str] = set()
        for name, client in self.clients.items():
            # Name and key of a request, with a colon, are the key in the ledger.
            if not 0 < len(name) <= 60 or ":" in name or not name.isprintable():
                raise ValueError(f"client is {name!r}: a name has 1 to 60 characters, no colon")
            if unknown := set(client.accounts) - set(self.accounts):
                raise ValueError(f"clients.{name}.accounts has {min(unknown)!r}, which is not there")
            for hashed in client.keys:
                if not re.fullmatch(r"sha256\$[0-9a-f]{64}", hashed) or hashed in seen:
                    raise ValueError(f"clients.{name}.keys: a different hash of --new-key, never the key")
                seen.add(hashed)
        return self

    @property
    def share(self) -> float:
        """Seconds for which a question may read: with all questions that come in a step, most of the step."""
        return _READ * self.step / self.max_waiting

    def find_client(self, key: str) -> str | None:
        """Return the client of a key, or None; the time that it takes reveals hashes at most, never keys."""
        hashed = hash_key(key)
        return next((name for name, client in self.clients.items() if hashed in client.keys), None)


def make_key() -> tuple[str, str]:
    """Return a new key of 256 random bits, and the hash by which it is known."""
    key = f"dhk_{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def hash_key(key: str) -> str:
    """Return the hash of a key; it needs no salt, since nobody can guess a key."""
    return f"sha256${hashlib.sha256(key.encode(errors='replace')).hexdigest()}"


class _Refusal(Exception):  # noqa: N818
    """A request that is refused, with a status, the field at fault and the rule."""

    def __init__(self, status: int, field: str, detail: str, **headers: str) -> None:
        self.status, self.field, self.detail, self.headers = status, field, detail, headers


def open_people(settings: PrivateSettings) -> dict[str, People]:
    """Open the people of each account; InputError if an account, a table or the database is not there."""
    there = Ledger(settings.ledger).list_accounts() if Ledger.exists(settings.ledger) else {}
    for name in settings.accounts:
        if there.get(name, {}).get("kind") != "purses":
            raise InputError(f"the ledger has no people in account {name!r}: let them join (deltahist ask)")
    ledger, engine = Ledger(settings.ledger), Engine.open(settings.database)
    people = {
        name: People(engine, about.table, owner=about.owner, ledger=ledger, name=name)
        for name, about in settings.accounts.items()
    }
    for one in people.values():
        # So that the first question does not wait for imports, and damaged purses are noticed.
        with one.purses.open_turn(), engine.open_session() as session:
            session.plan_fetch(one.names)
    return people


def create_app(settings: PrivateSettings, people: Mapping[str, People]) -> FastAPI:
    """Return the application that asks the people of each account (`open_people`) for clients that have keys."""
    at_work = 0
    times: dict[str, deque[float]] = {name: deque() for name in settings.clients}
    pool = ThreadPoolExecutor(16)
    app = FastAPI(title="deltahist, people's own budgets", openapi_url=None)

    def admit_request(request: Request) -> tuple[str, str]:
        """Return the client and the account of a request, and count it; refuse more than a client has per minute."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        client = settings.find_client(key.strip()) if scheme.lower() == "bearer" else None
        if client is None:
            named = {"www-authenticate": 'Bearer realm="deltahist"'}
            raise _Refusal(401, "Authorization", "Authorization has no known key: send Bearer KEY", **named)
        allowed = settings.clients[client].accounts
        account = request.query_params.get("account", allowed[0] if len(allowed) == 1 else None)
        if account not in allowed:
            # The answer does not depend on whether there is such an account.
            status, given = (400, "is missing") if account is None else (403, f"is {account[:80]!r}")
            raise _Refusal(status, "account", f"account {given}: this key is for {', '.join(allowed)}")
        recent, most, now = times[client], settings.clients[client].per_minute, time.monotonic()
        while recent and recent[0] <= now - 60:
            recent.popleft()
        if len(recent) >= most:
            wait = math.ceil(recent[0] + 60 - now)
            detail = f"there were {most:,} requests in a minute, the most for this client: wait {wait} seconds"
            raise _Refusal(429, "Authorization", detail, **{"retry-after": str(wait)})
        recent.append(now)
        return client, account

    @app.get("/healthz")
    async def report_health() -> Response:
        """Report that the service is up."""
        return JSONResponse({"status": "ok"})

    @app.post("/ask")
    async def answer_question(request: Request) -> Response:
        """Answer a question about people's records; the same key has the same answer, and is paid for once."""
        nonlocal at_work
        client, name = admit_request(request)
        key = request.headers.get("idempotency-key", "")
        if not 1 <= len(key) <= 100 or not key.isprintable():
            rule = "send 1 to 100 printable characters, new for each new question"
            raise _Refusal(400, "Idempotency-Key", f"Idempotency-Key has {len(key)} characters: {rule}")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > settings.max_bytes:
                raise _Refusal(413, "body", f"body is longer than {settings.max_bytes:,} bytes")
        # Each request is here for one step: whether one is put off depends on when others came, and on nothing else.
        if at_work >= settings.max_waiting:
            raise _Refusal(503, "body", "too many questions wait: ask again later", **{"retry-after": "1"})
        due = time.monotonic() + settings.step
        until = due - _LAST * settings.step
        at_work += 1
        given = (people[name], settings, name, body, f"{client}: {key}", until)
        thread = asyncio.get_running_loop().run_in_executor(pool, _ask_people, *given)
        thread.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await _pass_step(thread, due)
        finally:
            at_work -= 1
        if not thread.done():
            late = "the question did not end in its step: everybody may have been charged the most that it may cost"
            raise _Refusal(500, "body", late)
        return thread.result()

    @app.exception_handler(_Refusal)
    async def write_refusal(_: Request, refusal: _Refusal) -> Response:
        content = {"status": refusal.status, "detail": refusal.detail, "field": refusal.field}
        return JSONResponse(content, refusal.status, refusal.headers, media_type="application/problem+json")

    @app.middleware("http")
    async def log_request(request: Request, answer: Any) -> Response:
        response: Response = await answer(request)
        _LOG.info("%s %s", request.method, response.status_code)
        return response

    return app


async def _pass_step(thread: asyncio.Future[Response], due: float) -> None:
    """Wait for the end of a step, whatever the thread does."""
    await asyncio.sleep(due - time.monotonic())


def _ask_people(people: People, settings: PrivateSettings, name: str, body: bytes, key: str, until: float) -> Response:
    """Answer a question; raise _Refusal, which reveals nothing of records, files or the machine."""
    try:
        question = Question.from_mapping(json.loads(body))
        for field, there in (("table", people.table), ("owner", people.owner)):
            asked = getattr(question, field)
            if asked not in (None, there):
                raise InputError(f"{field} is {asked!r}: account {name!r} has {there!r}; leave it out")
        records = replace(people.records, seconds=settings.share, until=until)
        return JSONResponse(question.ask(records, key).to_json())
    except KeyReuseError:
        refusal = _Refusal(422, "Idempotency-Key", "Idempotency-Key was used for another question: take a new one")
    except InterruptedQuestionError as problem:
        # Not 503: clients would ask again automatically, and everybody would pay again.
        refusal = _Refusal(500, "body", str(problem))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        refusal = _Refusal(400, "body", "body is not JSON")
    except (DamagedFile, UnusableError):
        _LOG.error("the ledger or the database is damaged or cannot be used")
        now = "ledger and database cannot be used just now: ask again later, with the same Idempotency-Key"
        refusal = _Refusal(503, "account", now)
    except InputError as wrong:
        named = re.match(r"[\w.-]+(?= is | has )", str(wrong))
        refusal = _Refusal(400, named[0] if named else "body", str(wrong))
    except Exception as wrong:  # its message may quote records
        _LOG.error("a question failed: %s", type(wrong).__name__)
        refusal = _Refusal(500, "body", "the question failed; the log of the service has the time")
    raise refusal


class _LogFormatter(logging.Formatter):
    """Writes lines of this service and of uvicorn; of errors and other libraries only where they come from."""

    def format(self, record: logging.LogRecord) -> str:
        is_own = record.name.startswith(("uvicorn", _LOG.name)) and not record.exc_info
        return record.getMessage() if is_own else f"{record.levelname} of {record.name}: its text is not shown"


def run_private(config: Path, check: bool = False) -> None:
    """Serve questions as a file of settings says; `check` only opens everything. InputError if that fails."""
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
