"""The service of personal budgets: questions that people pay for, over HTTP, from clients with keys.

Each request is one transaction of the ledger. Every answer leaves one step after its question was read, whatever the
records are. What has not ended by then breaks off, and everybody pays. `deltahist serve-private` runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.types import Scope

from deltahist._http import (
    Busy,
    Gate,
    Manners,
    as_json,
    make_app,
    problem,
    read_body,
    route_of,
)
from deltahist.accounts.ledger import Ledger
from deltahist.errors import DamagedFile, InputError
from deltahist.personal.asking import (
    BROKEN_OFF,
    Allowance,
    FailedQuestionError,
    Question,
    UnusableError,
    storage_failures,
)
from deltahist.personal.database import Database
from deltahist.personal.metrics import TAKEN, RequestCounts
from deltahist.personal.people import OtherPeopleError, People
from deltahist.personal.settings import AskedAccount, PrivateSettings
from deltahist.personal.tables import KeyReuseError

#: Below that of all services, whose lines hold no messages of errors.
_LOG = logging.getLogger("deltahist.server.private")
#: Characters of a key of a request: those of the client's name come before it in the ledger.
_LONGEST_KEY = 100
#: Questions that are worked on at a time: they share commits.
_AT_ONCE = 16
#: The last part of a step: no question is worked on in it.
_FOR_CHARGES = 0.1
_NOT_NOW = "the ledger or the database cannot be used just now: ask again later, with the same Idempotency-Key"
_NOTHING_TOLD = (
    "each person has a budget of their own; what they have left is told to nobody, since it would say whose records "
    "were used, and who cannot pay is left out without a word"
)


class _Refusal(Exception):  # noqa: N818
    """A request that is refused, with a status, the field at fault and the rule."""

    def __init__(self, status: int, field: str, detail: str, **headers: str) -> None:
        self.status, self.field, self.detail, self.headers = status, field, detail, headers


def open_people(settings: PrivateSettings) -> dict[str, People]:
    """Open the people of each account; InputError if an account, a table or the database is not there."""
    if not Ledger.exists(settings.ledger):
        raise InputError("ledger does not exist: let people join first (`deltahist ask --limit`, or `People.enrol`)")
    ledger, database = Ledger(settings.ledger), Database.open(settings.database)
    there = ledger.accounts()
    for name in settings.accounts:
        if there.get(name, {}).get("kind") != "purses":
            raise InputError(
                f"the ledger has no account {name!r} of people: let them join first (`deltahist ask --limit`, or "
                "`People.enrol`)"
            )
    return {
        name: People(
            database, about.table, owner=about.owner, ledger=ledger, name=name, place=about.place, crs=about.crs
        )
        for name, about in settings.accounts.items()
    }


def create_app(
    settings: PrivateSettings, people: Mapping[str, People], metrics: RequestCounts | None = None
) -> FastAPI:
    """Return the application that asks people's records for clients that have keys.

    Parameters
    ----------
    people : of each account of the settings (`open_people`). metrics : that count its requests.
    """
    at_work = 0
    times: dict[str, deque[float]] = {name: deque() for name in settings.clients}

    @contextlib.asynccontextmanager
    async def run(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_AT_ONCE))
        yield

    about = "Questions about people's records, each paid for by those whose records it uses."
    app = make_app("deltahist, personal budgets", about, run)

    def admit(request: Request) -> tuple[str, str]:
        """Return the client and the account of a request."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        client = settings.find_client(key.strip()) if scheme.lower() == "bearer" else None
        if client is None:
            raise _Refusal(
                401,
                "Authorization",
                "Authorization has no key that is known: send `Authorization: Bearer KEY`",
                **{"www-authenticate": 'Bearer realm="deltahist"'},
            )
        allowed = settings.clients[client].accounts
        account = request.query_params.get("account", allowed[0] if len(allowed) == 1 else None)
        if account not in allowed:
            # Whether there is such an account is not told.
            status, given = (400, "is missing") if account is None else (403, f"is {account[:80]!r}")
            raise _Refusal(status, "account", f"account {given}: this key is for {', '.join(allowed)}")
        _count(times[client], settings.clients[client].per_minute)
        return client, account

    async def work(request: Request, call: Callable[[Allowance], Response], late: _Refusal) -> Response:
        """Return the response of a call, or raise its error, when a step has passed; `late` if it has not ended."""
        nonlocal at_work
        # Each request is here for one step: who is put off depends on when others came, and on nothing else.
        if at_work >= settings.max_waiting:
            raise Busy
        # From the reading of the question on: whoever sends it slowly has no more time.
        due = time.monotonic() + settings.step
        allowance = Allowance(settings.share, due - _FOR_CHARGES * settings.step)
        at_work += 1
        request.scope[TAKEN] = True
        thread = asyncio.ensure_future(asyncio.to_thread(call, allowance))
        thread.add_done_callback(_hear)
        try:
            await _pass_step(thread, due)
        finally:
            at_work -= 1
        if not thread.done():
            raise late
        return thread.result()

    @app.get("/healthz")
    async def health() -> Response:
        """Say that the service is up."""
        return as_json({"status": "ok"})

    @app.get("/account")
    async def account(request: Request) -> Response:
        """Tell what may be told of an account: its unit, and nothing of what people have spent."""
        _, name = admit(request)
        return await work(request, lambda _: _tell_account(people[name]), _Refusal(503, "account", _NOT_NOW))

    @app.post("/ask")
    async def ask(request: Request) -> Response:
        """Answer a question about people's records; the same key has the same answer, and is paid for once."""
        client, name = admit(request)
        key = request.headers.get("idempotency-key", "")
        if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
            raise _Refusal(
                400,
                "Idempotency-Key",
                f"Idempotency-Key has {len(key)} characters: send 1 to {_LONGEST_KEY} printable ones, new for each "
                "new question, and the same to ask again without paying again",
            )
        body = await read_body(request, settings.max_bytes)
        about, own_key = settings.accounts[name], f"{client}: {key}"
        late = _Refusal(500, "body", BROKEN_OFF)
        return await work(request, lambda allowance: _ask(people[name], about, body, own_key, allowance), late)

    @app.exception_handler(_Refusal)
    async def refuse(_: Request, refusal: _Refusal) -> Response:
        answer = problem(refusal.status, refusal.detail, field=refusal.field)
        answer.headers.update(refusal.headers)
        return answer

    app.add_middleware(Gate, most=4 * settings.max_waiting, seconds=settings.max_seconds)

    def tell(scope: Scope, status: int, seconds: float, number: str) -> None:
        _log_request(scope, status, number)
        if metrics is not None:
            metrics.count(scope, status)

    app.add_middleware(Manners, tell=tell, timed=False)
    return app


async def _pass_step(thread: asyncio.Future[Response], due: float) -> None:
    """Wait for the end of a step, whatever the thread does."""
    await asyncio.sleep(due - time.monotonic())


def _hear(thread: asyncio.Future[Response]) -> None:
    """Take note of how a call ended that nobody may wait for any more."""
    if not thread.cancelled():
        thread.exception()


def _count(times: deque[float], most: int) -> None:
    """Count a request of now; refuse it if there were too many in the last minute."""
    now = time.monotonic()
    while times and times[0] <= now - 60:
        times.popleft()
    if len(times) >= most:
        wait = math.ceil(times[0] + 60 - now)
        detail = f"there were {most:,} requests in a minute, which is the most for this client: wait {wait} seconds"
        raise _Refusal(429, "Authorization", detail, **{"retry-after": str(wait)})
    times.append(now)


def _tell_account(people: People) -> Response:
    with _explained(), storage_failures():
        about = people.ledger.standing(people.purses.name).describe()
    return as_json({"account": about["account"], "kind": about["kind"], "unit": about["unit"], "left": _NOTHING_TOLD})


def _ask(people: People, about: AskedAccount, body: bytes, key: str, allowance: Allowance) -> Response:
    with _explained():
        question = _read_question(people, about, body)
        answer = question.ask(replace(people.records, allowance=allowance), key)
        return as_json(answer.to_json())


def _read_question(people: People, about: AskedAccount, body: bytes) -> Question:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as wrong:
        raise _Refusal(400, "body", f"the body is no JSON: {wrong}") from None
    if not isinstance(given, dict):
        raise _Refusal(400, "body", f"the body is {type(given).__name__}: it must be an object with steps and answer")
    question = Question.of(given)
    for name in ("table", "owner", "place", "crs"):
        asked, there = getattr(question, name), getattr(about, name)
        if asked is not None and asked != there:
            detail = f"{name} is {asked!r}: account {people.purses.name!r} has {there!r}; leave it out"
            raise _Refusal(400, name, detail)
    return question


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise errors as refusals that tell nothing of records, files or the machine."""
    try:
        yield
    except KeyReuseError as wrong:
        said = str(wrong).partition(" was used ")[2]
        raise _Refusal(422, "Idempotency-Key", f"Idempotency-Key was used {said}") from None
    except FailedQuestionError as wrong:
        # No 503: clients ask again by themselves then, and everybody would pay again.
        raise _Refusal(500 if wrong.charged else 503, "body", str(wrong)) from None
    except (OtherPeopleError, DamagedFile):
        _LOG.error("database and ledger do not go together, or are damaged")
        raise _Refusal(503, "account", _NOT_NOW) from None
    except UnusableError:
        _LOG.error("the ledger or the database cannot be used")
        raise _Refusal(503, "account", _NOT_NOW) from None
    except InputError as wrong:
        field = re.match(r"[\w-]+(?= is | has )", str(wrong))
        raise _Refusal(400, field[0] if field else "body", str(wrong)) from None


def _log_request(scope: Scope, status: int, number: str) -> None:
    """Log that a request ended: its id, method, route and status."""
    facts = {"id": number, "method": scope["method"], "route": route_of(scope), "status": status}
    _LOG.info("request", extra={"facts": facts})
