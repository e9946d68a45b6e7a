"""The private service: access, one answer and one charge per key, padded time, and no word about records."""

import asyncio
import contextlib
import json
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.errors import InputError
from deltahist.personal import People, people, service
from deltahist.personal.people import _ANSWERS, _PEOPLE, Turn
from deltahist.personal.service import AskedAccount, Client, PrivateSettings, create_app, make_key, open_people
from tests.personal.city import city, without_noise

ROWS = [("Ada", "bus", 8, 2.5), ("Ada", "bus", 18, 3.0), ("Bob", "bus", 8, 2.5), ("Cyd", "tram", 22, None)]
COUNT = {"steps": [{"where": "kind = 'bus'"}], "answer": {"kind": "count", "epsilon": 0.25}}
KEYS = {name: make_key() for name in ("ann", "ann's next", "ben", "cleo")}


@dataclass
class Desk:
    """A service with its people and settings."""

    client: TestClient
    people: People
    settings: PrivateSettings

    def ask(self, question=COUNT, key="k", who="ann", **options):
        content = question if isinstance(question, bytes) else json.dumps(question).encode()
        headers = {"Authorization": f"Bearer {KEYS[who][0]}", **({} if key is None else {"Idempotency-Key": key})}
        return self.client.post("/ask", content=content, headers=headers, **options)

    @property
    def spent(self):
        return [float(spent) for spent in self.people.spent(["Ada", "Bob", "Cyd"])]


def settings_of(step=50.0, **other):
    def client(*names, accounts, **more):
        return Client(keys=[KEYS[name][1] for name in names], accounts=accounts, **more)

    asked = AskedAccount(table="trip", owner="who")
    return PrivateSettings(
        database="unused", ledger="unused", accounts={"people": asked, "others": asked}, step=step,
        clients={"ann": client("ann", "ann's next", accounts=["people"]), "cleo": client("cleo", accounts=["others"]),
                 "ben": client("ben", accounts=["people", "others"], per_minute=5)},
        **{"max_bytes": 4000, **other},
    )  # fmt: skip


#: A real step; by default steps end with the work.
pass_step = service._pass_step


@pytest.fixture(autouse=True)
def steps_and_shares_end_with_the_work(monkeypatch):
    monkeypatch.setattr(service, "_pass_step", lambda thread, due: asyncio.wait([thread]))
    monkeypatch.setattr(people, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None))


@contextlib.contextmanager
def opened(place, **options):
    people, others = city(place, ROWS), city(place, [("Eve", "bus", 1, 1.0)], name="others", epsilon=1)
    settings = settings_of(**options)
    with TestClient(create_app(settings, {"people": people, "others": others})) as client:
        yield Desk(client, people, settings)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    with opened(tmp_path) as desk:
        yield desk


@pytest.fixture(scope="module")
def unpaid(tmp_path_factory):
    """A service for requests that are refused: nobody has paid."""
    with opened(tmp_path_factory.mktemp("unpaid")) as desk:
        yield desk


def is_problem(response, status, field=None):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == status
    assert field is None or (found["field"] == field and field in found["detail"])
    assert not [secret for secret in ("tmp/", "division", "Ada") if secret in found["detail"]]
    return found["detail"]


def test_a_question_is_answered_and_paid_for_once_under_each_key(desk):
    first = desk.ask()
    assert (first.status_code, first.json()["estimate"]) == (200, 3)
    assert desk.ask(who="ann's next").json() == first.json()
    is_problem(desk.ask({**COUNT, "steps": []}), 422, "Idempotency-Key")
    assert desk.spent == [0.5, 0.25, 0]
    # The same key of another client, or of another account, is another one.
    assert desk.ask({"answer": {"kind": "count", "epsilon": 0.125}}, who="ben", params={"account": "people"}).is_success
    assert desk.ask(who="ben", params={"account": "others"}).json()["estimate"] == 1
    assert desk.spent == [0.75, 0.375, 0.125]
    # Ada cannot pay twice more, Bob can: the answer does not say so.
    late = desk.ask({**COUNT, "answer": {"kind": "count", "epsilon": 0.3}}, "late").json()
    assert (late["estimate"], late.keys()) == (1, first.json().keys())


def test_only_known_keys_have_access_and_to_their_accounts(unpaid):
    known = KEYS["ann"][0]
    for header in ({}, {"Authorization": known}, {"Authorization": f"Basic {known}"}, {"Authorization": "Bearer "},
                   {"Authorization": f"Bearer {known}x"}, {"Authorization": f"Bearer {KEYS['ann'][1]}"}):  # fmt: skip
        response = unpaid.client.post("/ask", headers={"Idempotency-Key": "k", **header})
        is_problem(response, 401, "Authorization")
        assert response.headers["www-authenticate"].startswith("Bearer")
    for who, account in (("ann", "others"), ("ann", "nobody's"), ("cleo", "people")):
        is_problem(unpaid.ask(who=who, params={"account": account}), 403, "account")
    is_problem(unpaid.ask(who="ben"), 400, "account")
    assert unpaid.spent == [0, 0, 0]


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (b"{", "body"), (b"[" * 3000, "body"), ({}, "answer"), ({**COUNT, "table": "other"}, "table"),
        ({**COUNT, "steps": [{"where": "secret = 1"}]}, None), ({"answer": {"kind": "count", "rho": 0.1}}, None),
        ({"answer": {"kind": "sum", "column": {}, "clip": {}, "epsilon": "x"}}, None),
        ({"answer": {"kind": "sum", "column": {}, "clip": [0, 1], "epsilon": 0.1}}, None),
        ({"answer": {"kind": "histogram", "column": "kind", "values": [[1], {}], "epsilon": 0.1}}, None),
    ],
)  # fmt: skip
def test_bad_questions_name_their_field_and_charge_nothing(unpaid, question, field):
    is_problem(unpaid.ask(question), 400, field)
    assert unpaid.spent == [0, 0, 0]


def test_sizes_and_requests_are_limited(desk):
    is_problem(desk.ask(b" " * 4001), 413)
    for key in (None, "", "k" * 101, "\x7f"):
        is_problem(desk.ask(key=key), 400, "Idempotency-Key")
    responses = [desk.ask(b"{", who="ben", params={"account": "others"}) for _ in range(6)]
    assert [response.status_code for response in responses] == [400] * 5 + [429]
    assert 1 <= int(responses[-1].headers["retry-after"]) <= 60
    assert desk.ask().is_success  # other clients have limits of their own


@pytest.fixture
def waiting(tmp_path):
    """A service for one request at a time, and an event that its questions await in the ledger."""
    people, go_on = city(tmp_path, ROWS), threading.Event()
    settings = settings_of(max_waiting=1, step=0.2)
    find = Turn.find_answer

    def wait(turn, key, request):
        assert go_on.wait(60)
        return find(turn, key, request)

    with pytest.MonkeyPatch.context() as patch, TestClient(create_app(settings, {"people": people})) as client:
        patch.setattr(Turn, "find_answer", wait)
        yield Desk(client, people, settings), go_on
        go_on.set()


def test_all_responses_leave_one_step_after_the_question(waiting, monkeypatch):
    """Refusals wait for the step; questions that do not end break off, and nobody waits for them."""
    desk, go_on = waiting
    monkeypatch.setattr(service, "_pass_step", pass_step)
    begun = time.monotonic()
    is_problem(desk.ask(b"{"), 400)
    assert time.monotonic() - begun >= 0.2
    two = {**COUNT, "steps": [{"at_most": 2}]}
    # The second has a step of its own, although the first is still at work.
    late = [desk.ask(two, key) for key in ("k", "another")]
    assert not go_on.is_set()
    go_on.set()
    assert len({is_problem(response, 500) for response in late}) == 1
    # They had waited for the ledger, read nothing, and cost nothing.
    assert desk.spent == [0, 0, 0]
    assert kept(desk.people) == {}


def test_a_question_is_put_off_until_the_step_of_another_ends(waiting, monkeypatch):
    """It depends on when others came alone: the first question has ended long before its step."""
    desk, go_on = waiting
    go_on.set()
    ended, step = threading.Event(), threading.Event()

    async def pass_late(thread, due):
        await asyncio.wait([thread])
        ended.set()
        assert await asyncio.to_thread(step.wait, 20)

    monkeypatch.setattr(service, "_pass_step", pass_late)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(desk.ask)
        assert ended.wait(60)
        put_off = desk.ask(key="another")
        step.set()
        first.result()
    is_problem(put_off, 503)
    assert put_off.headers["retry-after"] == "1"
    assert "too many" not in desk.ask(key="another").text


def kept(people):
    """The answers that another connection sees, by key."""
    with people.ledger.read() as connection:
        return {row.key: row.answer for row in connection.execute(_ANSWERS.select())}


def test_no_answer_leaves_before_its_charge_is_durable(desk, monkeypatch):
    """Until the ledger's transaction ends nothing is handed out; from then on another connection sees it."""
    seen, answers, write = [], [], Ledger.transaction

    @contextlib.contextmanager
    def look(database):
        with write(database) as connection:
            yield connection
            seen.append((kept(desk.people), len(answers)))

    monkeypatch.setattr(Ledger, "transaction", look)
    answers.append(desk.ask().json())
    monkeypatch.undo()
    assert seen == [({}, 0)]
    assert kept(desk.people) == {"ann: k": [answers[0]["estimate"]]}


def test_many_requests_at_once_are_charged_once_per_key(desk):
    question = {"answer": {"kind": "count", "epsilon": 0.01}}
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda number: desk.ask(question, f"{number % 6}"), range(12)))
    assert [response.status_code for response in responses] == [200] * 12
    assert desk.spent == [0.12, 0.06, 0.06]


def test_failures_show_neither_places_nor_records(desk, monkeypatch, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    for place in ("deltahist.personal.service.Question.ask", "deltahist.personal.questions.Count.release"):
        with monkeypatch.context() as broken:
            broken.setattr(place, lambda *_: 1 / 0)
            is_problem(desk.ask(), 500)
    assert desk.spent == [1, 1, 1]
    (tmp_path / "city.ledger").rename(tmp_path / "away")
    is_problem(desk.ask(), 503)
    (tmp_path / "away").rename(tmp_path / "city.ledger")
    with desk.people.ledger.transaction() as connection:
        connection.execute(_PEOPLE.update().values(limits=b""))
    assert "same Idempotency-Key" in is_problem(desk.ask(), 503)
    shown = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("deltahist"))
    assert not [word for word in ("bus", "'ann", "ann:", "people", "city", KEYS["ann"][0]) if word in shown]


def test_the_log_hides_messages_and_problems_of_other_libraries(unpaid):
    formatter, secret = service._LogFormatter(), "key (who)=(Ada)"
    failed = (ValueError, ValueError(secret), None)
    for name, text, problem, shown in (
        ("deltahist.personal", "POST 200", None, True), ("uvicorn.error", "Uvicorn running", None, True),
        ("uvicorn.error", "Exception in ASGI application", failed, False), ("psycopg", secret, None, False),
    ):  # fmt: skip
        line = formatter.format(logging.LogRecord(name, logging.ERROR, "file", 1, text, (), problem))
        assert (text in line, secret in line) == (shown, False)
    assert unpaid.client.get("/healthz").json() == {"status": "ok"}


# ---------------------------------------------------------------------------------- settings


GOOD = f"""
database = "city.duckdb"
ledger = "city.ledger"
step = 0.5
[accounts.people]
table = "trip"
owner = "who"
[clients.ann]
keys = ["{KEYS["ann"][1]}"]
accounts = ["people"]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "night.toml"
    path.touch(0o600)
    return path


def test_settings_are_read(file):
    file.write_text(GOOD)
    read = PrivateSettings.read(file)
    assert (read.host, read.port, read.step, read.accounts["people"].table) == ("127.0.0.1", 8001, 0.5, "trip")
    assert [read.find_client(KEYS[name][0]) for name in ("ann", "ben")] == ["ann", None]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('database = "city.duckdb"', "", "database"), ("step = 0.5", "step = ", "night.toml"),
        ("step = 0.5", 'host = "0.0.0.0"', "0.0.0.0"), ("[clients.ann]", '[clients."a:n"]', "a:n"),
        (f'"{KEYS["ann"][1]}"', "", "keys"), (KEYS["ann"][1], KEYS["ann"][0], "keys"),
    ],
    ids=["no database", "no TOML", "no TLS", "a colon", "no key", "the key itself"],
)  # fmt: skip
def test_bad_settings_are_refused(file, old, new, name):
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError, match=re.escape(name)) as problem:
        PrivateSettings.read(file)
    assert KEYS["ann"][0] not in str(problem.value)


def test_settings_that_others_can_read_or_write_are_refused(file):
    file.write_text("no settings at all")  # they are not looked at
    for mode in (0o640, 0o602):
        file.chmod(mode)
        with pytest.raises(InputError, match=f"mode {mode:o}"):
            PrivateSettings.read(file)


def test_accounts_without_people_or_settings_are_refused(tmp_path):
    where = {"ledger": str(tmp_path / "city.ledger"), "database": ":memory:"}
    for _ in range(2):
        with pytest.raises(InputError, match="'others'"):
            open_people(settings_of().model_copy(update=where))
        dh.Ledger(tmp_path / "city.ledger").open("others", epsilon=1)
    city(tmp_path)
    client = Client(keys=[KEYS["ann"][1]], accounts=["poeple"])
    with pytest.raises(InputError, match="'poeple'"):
        open_people(settings_of().model_copy(update={**where, "accounts": {}, "clients": {"ann": client}}))
