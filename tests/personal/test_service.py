"""The private service: who is let in, one answer and one charge per key, nothing told of people, padded time."""

import asyncio
import contextlib
import io
import json
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
import psycopg
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.errors import InputError
from deltahist.personal import service
from deltahist.personal.metrics import RequestCounts
from deltahist.personal.service import create_app, open_people
from deltahist.personal.settings import AskedAccount, Client, PrivateSettings, fits, make_key
from deltahist.personal.tables import Accounts
from tests.personal.city import city, without_noise

ROWS = [("Ada", "bus", 8, 2.5), ("Ada", "bus", 18, 3.0), ("Bob", "bus", 8, 2.5), ("Cyd", "tram", 22, None)]
COUNT = {"steps": [{"where": "kind = 'bus'"}], "answer": {"kind": "count", "epsilon": 0.25}}
MAP = {"kind": "map", "x": "hour", "y": "fare", "bounds": [0, 0, 8, 8], "cell": 1, "delta": 1, "epsilon": 0.1}
KEYS = {name: make_key() for name in ("ann", "ann's next", "ben", "cleo")}


@dataclass
class Desk:
    """A service, and what stands behind it."""

    client: TestClient
    people: dh.People
    settings: PrivateSettings

    def ask(self, question=COUNT, key="k", who="ann", **options):
        content = question if isinstance(question, bytes) else json.dumps(question).encode()
        headers = {"Authorization": f"Bearer {KEYS[who][0]}", **({} if key is None else {"Idempotency-Key": key})}
        return self.client.post("/ask", content=content, headers=headers, **options)

    @property
    def spent(self):
        return [float(spent) for spent in self.people.spent(["Ada", "Bob", "Cyd"])]


def settings_of(step=50, **other):
    clients = {
        "ann": Client((KEYS["ann"][1], KEYS["ann's next"][1]), ("people",)),
        "ben": Client((KEYS["ben"][1],), ("people", "others"), per_minute=5),
        "cleo": Client((KEYS["cleo"][1],), ("others",)),
    }
    accounts = {"people": AskedAccount("trip", "who"), "others": AskedAccount("trip", "who")}
    return PrivateSettings("unused", "unused", accounts, clients, step=step, max_bytes=4000, **other)


#: A real step, which ends when it does. Where questions are to be answered in one, the shortest that is safe on a busy
#: machine has half a second for each that is asked at once; `max_waiting` is their number (`PrivateSettings.share`).
pass_step = service._pass_step


@pytest.fixture(autouse=True)
def steps_end_with_the_work(monkeypatch):
    monkeypatch.setattr(service, "_pass_step", lambda thread, due: asyncio.wait([thread]))


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
    """A service at which nobody has paid, for requests that are refused."""
    with opened(tmp_path_factory.mktemp("unpaid")) as desk:
        yield desk


def is_problem(response, status, field=None):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == status
    assert field is None or (found["field"] == field and field in found["detail"])
    assert "tmp/" not in found["detail"]
    return found["detail"]


def test_a_question_is_answered_and_paid_for_once(desk):
    first = desk.ask()
    assert (first.status_code, first.json()["estimate"]) == (200, 3)
    assert desk.ask(who="ann's next").json() == first.json()
    assert desk.spent == [0.5, 0.25, 0]
    assert "opened" not in is_problem(desk.ask({**COUNT, "steps": []}), 422, "Idempotency-Key")
    assert "amount was 0.25, is 0.5" in is_problem(
        desk.ask({**COUNT, "answer": {"kind": "count", "epsilon": 0.5}}), 422, "Idempotency-Key"
    )
    assert desk.spent == [0.5, 0.25, 0]
    # The same key of another client, or of another account, is another one.
    assert desk.ask({"answer": {"kind": "count", "epsilon": 0.125}}, who="ben", params={"account": "people"}).is_success
    assert desk.ask(who="ben", params={"account": "others"}).json()["estimate"] == 1
    assert desk.spent == [0.75, 0.375, 0.125]


def test_kinds_of_answers(desk):
    mean = desk.ask({"answer": {"kind": "mean", "column": "fare", "clip": [0, 10], "epsilon": 0.1}}, "mean").json()
    assert mean["low"] <= mean["estimate"] <= mean["high"]
    kinds = {"kind": "histogram", "column": "kind", "values": ["bus", "tram"], "epsilon": 0.1}
    assert [each["estimate"] for each in desk.ask({"answer": kinds}, "kinds").json()["answers"]] == [3, 1]
    drawn = {"kind": "map", "x": "hour", "bounds": [0, 24], "cell": 1, "delta": 1, "epsilon": 0.1}
    released = desk.ask({"answer": drawn}, "map")
    assert released.headers["content-type"] == "application/vnd.apache.parquet"
    assert pq.read_table(io.BytesIO(released.content)).num_rows > 0
    assert desk.ask({"answer": drawn}, "map").content == released.content


def test_who_is_let_in(desk):
    known = KEYS["ann"][0]
    for header in ({}, {"Authorization": known}, {"Authorization": f"Basic {known}"}, {"Authorization": "Bearer "},
                   {"Authorization": f"Bearer {known}x"}, {"Authorization": f"Bearer {KEYS['ann'][1]}"}):  # fmt: skip
        for way, path in (("post", "/ask"), ("get", "/account")):
            response = getattr(desk.client, way)(path, headers={"Idempotency-Key": "k", **header})
            is_problem(response, 401, "Authorization")
            assert response.headers["www-authenticate"].startswith("Bearer")
    for name in ("others", "nobody's"):
        assert "this key is for people" in is_problem(desk.ask(params={"account": name}), 403, "account")
    is_problem(desk.ask(who="cleo", params={"account": "people"}), 403, "account")
    is_problem(desk.ask(who="ben"), 400, "account")
    assert desk.spent == [0, 0, 0]


def test_nothing_is_told_of_people(desk):
    desk.ask()
    about = desk.client.get("/account", headers={"Authorization": f"Bearer {KEYS['ann'][0]}"}).json()
    assert about == {"account": "people", "kind": "purses", "unit": "epsilon", "left": service._NOTHING_TOLD}
    # Ada cannot pay twice more, Bob can: the answers do not say so.
    answers = [desk.ask({**COUNT, "answer": {"kind": "count", "epsilon": 0.3}}, f"{k}").json() for k in range(2)]
    assert [answer["estimate"] for answer in answers] == [1, 1]
    assert {frozenset(answer) for answer in answers} == {frozenset(desk.ask().json())}


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (b"{", "body"),
        (b"[" * 3000, "body"),
        (b"\xff", "body"),
        (b"[1]", "body"),
        ({}, "answer"),
        ({**COUNT, "other": 1}, None),
        ({**COUNT, "table": "other"}, "table"),
        ({**COUNT, "owner": None, "table": 5}, None),
        ({**COUNT, "place": ["lon", "lat"]}, "place"),
        ({**COUNT, "steps": [{"where": "kind ="}]}, None),
        ({**COUNT, "steps": [{"where": "secret = 1"}]}, None),
        ({**COUNT, "steps": [{"at_most": "x"}]}, "at_most"),
        ({"answer": {"kind": "count", "epsilon": -1}}, None),
        ({"answer": {"kind": "count", "epsilon": None}}, None),
        ({"answer": {"kind": "count", "epsilon": 1e300}}, None),
        ({"answer": {"kind": "count", "rho": 0.1}}, None),
        ({"answer": {"kind": "sum", "column": "fare", "clip": [3, 1], "epsilon": 0.1}}, None),
        ({"answer": {"kind": "sum", "column": {}, "clip": {}, "epsilon": "x"}}, None),
        ({"answer": {"kind": "histogram", "column": "kind", "values": [[1], {}], "epsilon": 0.1}}, None),
        ({"answer": {"kind": "map", "x": "hour", "bounds": "x", "cell": [], "delta": {}, "epsilon": 0.1}}, None),
        ({"answer": {**MAP, "crs": "+proj=longlat +nadgrids=/etc/passwd"}}, "crs"),
        ({"answer": {**MAP, "crs": "EPSG:4326", "project": "+proj=utm +zone=18 +nadgrids=/etc/passwd"}}, "project"),
        ({"answer": {"kind": "map", "x": "hour", "bounds": [0, 1e12], "cell": 1e-3, "delta": 1, "epsilon": 0.1}}, None),
    ],
)
def test_what_is_refused_names_field_and_rule_and_charges_nothing(unpaid, question, field):
    is_problem(unpaid.ask(question), 400, field)
    assert unpaid.spent == [0, 0, 0]


def test_limits(desk):
    is_problem(desk.ask(b" " * 4001), 413)
    for key in (None, "", "k" * 101, "\x7f"):
        is_problem(desk.ask(key=key), 400, "Idempotency-Key")
    is_problem(desk.client.get("/ask"), 405)
    is_problem(desk.client.get("/nowhere"), 404)
    headers = {"Authorization": f"Bearer {KEYS['ben'][0]}"}
    statuses = [desk.client.get("/account", params={"account": "others"}, headers=headers) for _ in range(6)]
    assert [response.status_code for response in statuses] == [200] * 5 + [429]
    assert 1 <= int(statuses[-1].headers["retry-after"]) <= 60
    is_problem(statuses[-1], 429)
    assert desk.ask().is_success  # another client's requests are its own


@pytest.fixture
def waiting(tmp_path):
    """A service for one request at a time, and an event for which its questions wait in the ledger."""
    people, go_on = city(tmp_path, ROWS), threading.Event()
    settings = msgspec.structs.replace(settings_of(), max_waiting=1, step=0.3)
    find = Accounts.find_answer

    def wait(accounts, name, key):
        assert go_on.wait(60)
        return find(accounts, name, key)

    with pytest.MonkeyPatch.context() as patch, TestClient(create_app(settings, {"people": people})) as client:
        patch.setattr(Accounts, "find_answer", wait)
        yield Desk(client, people, settings), go_on
        go_on.set()


def test_all_leave_one_step_after_the_question(waiting, monkeypatch):
    """Refusals are there at once, and wait; questions that do not end break off, and are not waited for."""
    desk, go_on = waiting
    monkeypatch.setattr(service, "_pass_step", pass_step)
    begun = time.monotonic()
    assert "server-timing" not in desk.ask(b"{").headers
    assert time.monotonic() - begun >= 0.3
    two = {**COUNT, "steps": [{"at_most": 2}]}
    # The second has a step of its own, although the first is still at work.
    late = [desk.ask(two, key) for key in ("k", "another")]
    assert not go_on.is_set()
    go_on.set()
    said = {is_problem(response, 500) for response in late}
    assert "everybody was charged the most" in said.pop()
    assert not said
    paid = [1.0, 1.0, 1.0]
    deadline = time.monotonic() + 60
    while desk.spent != paid and time.monotonic() < deadline:
        pass
    assert desk.spent == paid
    with desk.people.ledger.read() as found:
        assert found.find_answer("people", "ann: k") is None


def test_who_is_put_off_depends_on_when_others_came_alone(waiting, monkeypatch):
    """The first question has ended long before its step has, and another is put off all the same."""
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
    assert desk.ask(key="another").status_code != 503


def test_all_questions_of_a_step_end_within_it():
    for settings in (settings_of(), msgspec.structs.replace(settings_of(), max_waiting=1)):
        assert settings.share * settings.max_waiting + service._FOR_CHARGES * settings.step < settings.step


def test_no_answer_leaves_before_its_charge_is_durable(desk, monkeypatch):
    """What was told is looked for by another connection."""
    there, check = [], Accounts.check

    def look(accounts):
        check(accounts)
        with desk.people.ledger.read() as found:
            there.append(found.find_answer("people", "ann: k"))
        there.append(len(told))

    told = []
    monkeypatch.setattr(Accounts, "check", look)
    told.append(desk.ask().json())
    monkeypatch.undo()
    assert there == [None, 0]
    with desk.people.ledger.read() as found:
        assert found.find_answer("people", "ann: k")[1] == told[0]


def test_many_at_once_are_charged_once_each(desk):
    question = {"answer": {"kind": "count", "epsilon": 0.01}}
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda number: desk.ask(question, f"{number % 6}"), range(12)))
    assert [response.status_code for response in responses] == [200] * 12
    assert desk.spent == [0.12, 0.06, 0.06]


def test_trouble_tells_neither_places_nor_records(desk, monkeypatch, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    with monkeypatch.context() as broken:
        broken.setattr(service.Question, "ask", lambda *_: 1 / 0)
        # The client raises what the application does not answer: Manners answers it.
        assert "its log tells why" in is_problem(desk.ask(), 500)
    with monkeypatch.context() as broken:
        broken.setattr("deltahist.personal.aggregates.Count.answer", lambda *_: 1 / 0)
        assert "everybody was charged the most" in is_problem(desk.ask(), 500)
    assert desk.spent == [1, 1, 1]
    (tmp_path / "city.ledger").rename(tmp_path / "away")
    assert "same Idempotency-Key" in is_problem(desk.ask(), 503)
    (tmp_path / "away").rename(tmp_path / "city.ledger")
    with desk.people.ledger.transaction() as accounts:
        accounts.store("people", "state", "another")
    assert "same Idempotency-Key" in is_problem(desk.ask(), 503)
    for record in caplog.records:
        if record.name.startswith("deltahist"):
            said = record.getMessage() + json.dumps(getattr(record, "facts", {}))
            assert not any(word in said for word in ("bus", "'ann", "ann:", "people", "city", KEYS["ann"][0]))


def test_metrics_tell_nothing_that_may_depend_on_records(tmp_path, monkeypatch):
    """Answers, refusals and questions that broke off are one number; the process itself is not measured."""
    people, settings, metrics = city(tmp_path, ROWS), settings_of(), RequestCounts()
    with TestClient(create_app(settings, {"people": people}, metrics)) as client:
        desk = Desk(client, people, settings)
        desk.ask(), desk.ask(b"{", key="another"), desk.ask(key=None), desk.client.get("/nowhere")
        monkeypatch.setattr("deltahist.personal.aggregates.Count.answer", lambda *_: 1 / 0)
        assert desk.ask(key="a third").status_code == 500
    page = TestClient(metrics.page).get("/metrics").text
    told = [line for line in page.splitlines() if not line.startswith("#") and "_created" not in line]
    name = "deltahist_private_requests_total"
    assert told == [f'{name}{{status="{status}"}} {n}.0' for status, n in (("taken", 3), ("400", 1), ("404", 1))]


def test_a_ledger_on_a_server(postgres_url):
    people = city(postgres_url, ROWS)
    with TestClient(create_app(settings_of(), {"people": people})) as client:
        desk = Desk(client, people, settings_of())
        assert desk.ask().json() == desk.ask().json()
        assert desk.spent == [0.5, 0.25, 0]
        with psycopg.connect(postgres_url) as server:
            server.execute("ALTER SCHEMA deltahist RENAME TO away")
        assert "same Idempotency-Key" in is_problem(desk.ask(), 503)


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
    assert PrivateSettings.read(file) == read


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('database = "city.duckdb"', "", "missing required field `database`"),
        ("step = 0.5", "step = 0", r"`float` > 0.* at `\$.step`"),
        ("step = 0.5", "stop = 1", "unknown field `stop`"),
        ("step = 0.5", "step = 30\nmax_seconds = 30", "step is 30 and max_seconds 30: no answer would be in time"),
        ("step = 0.5", "step = ", "cannot be read"),
        ("step = 0.5", 'port = "high"', r"Expected `int`, got `str` - at `\$.port`"),
        ("step = 0.5", 'host = "0.0.0.0"', "host is '0.0.0.0': .*tls_in_front = true"),
        ("step = 0.5", 'host = "example.org"', "host is 'example.org'"),
        (f'"{KEYS["ann"][1]}"', "", "length >= 1"),
        pytest.param(KEYS["ann"][1], KEYS["ann"][0], "never the key itself", id="the key itself"),  # drawn anew
        (f'"{KEYS["ann"][1]}"', f'"{KEYS["ann"][1]}", "{KEYS["ann"][1]}"', "a line of its own"),
        ('["people"]', '["poeple"]', r"clients.ann.accounts has 'poeple': the accounts are people"),
        ("[clients.ann]", '[clients."a:n"]', "no colon"),
        ("[clients.ann]", "[others.ann]", "unknown field `others`|missing required field `clients`"),
    ],
)
def test_settings_that_are_wrong(file, old, new, said):
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError, match=said) as problem:
        PrivateSettings.read(file)
    assert str(problem.value).startswith("--config ")
    assert KEYS["ann"][0] not in str(problem.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_settings_that_others_can_read_or_write_are_refused(file, mode):
    file.write_text("no settings at all")  # they are not looked at
    file.chmod(mode)
    with pytest.raises(InputError, match=rf"open to others \(mode {mode:o}\): .*`chmod 600` it"):
        PrivateSettings.read(file)


def test_settings_of_another_user_are_refused(file, monkeypatch):
    file.write_text(GOOD)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(InputError, match=rf"belongs to user {own}, and this program runs as {own + 1}"):
        PrivateSettings.read(file)


def test_one_key_is_one_clients():
    clients = settings_of().clients
    twice = {**clients, "cleo": Client((KEYS["cleo"][1], KEYS["ann"][1]), ("others",))}
    with pytest.raises(InputError, match=r"clients.cleo.keys has 'sha256.*a line of its own"):
        msgspec.structs.replace(settings_of(), clients=twice).check()


def test_keys_are_long_and_their_hashes_salted():
    (key, hashed), (other, _) = make_key(), make_key()
    assert fits(key, hashed)
    assert not fits(other, hashed)
    assert len({key, other}) == 2
    assert len(key) == 4 + 43
    assert hashed != hashed.replace(hashed.split("$")[1], make_key()[1].split("$")[1])


def test_people_who_are_not_there(tmp_path):
    settings = msgspec.structs.replace(settings_of(), ledger=str(tmp_path / "l"), database=":memory:")
    with pytest.raises(InputError, match="ledger does not exist"):
        open_people(settings)
    dh.Ledger(tmp_path / "l").open("people", epsilon=1)
    with pytest.raises(InputError, match="no account 'people' of people"):
        open_people(settings)
