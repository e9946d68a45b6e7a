"""_http.py: requests beyond a limit are put off, long ones are ended, and failures are told without their cause."""

import asyncio
import json
import logging
import threading

import pytest

from deltahist._http import Busy, Gate, Manners, Workers, problem


async def ask(app, path="/a", method="GET"):
    """Return status, headers and body of an ASGI application's answer."""
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    await app({"type": "http", "path": path, "method": method, "headers": []}, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent)


def test_requests_beyond_a_number_are_put_off_at_once_but_not_those_after_health():
    async def run():
        go_on = asyncio.Event()

        async def app(scope, receive, send):
            if scope["path"] != "/healthz":
                await go_on.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        gate = Gate(app, most=2, seconds=60)
        at_work = [asyncio.create_task(ask(gate)) for _ in range(2)]
        await asyncio.sleep(0)
        status, headers, body = await ask(gate)
        healthy, _, _ = await ask(gate, "/healthz")
        go_on.set()
        done = [each[0] for each in await asyncio.gather(*at_work)]
        return status, headers, body, healthy, done, (await ask(gate))[0]

    status, headers, body, healthy, done, later = asyncio.run(run())
    assert (status, headers["retry-after"], headers["content-type"]) == (503, "1", "application/problem+json")
    assert "ask again in a second" in json.loads(body)["detail"]
    assert (healthy, done, later) == (200, [200, 200], 200)


def test_who_is_refused_and_sends_on_slowly_takes_nobodys_place():
    async def run():
        waits, body = asyncio.Event(), asyncio.Event()

        async def receive():
            waits.set()
            await body.wait()
            return {"type": "http.request"}

        async def send(message):
            pass

        gate = Gate(problem(401, "no key"), most=1, seconds=60)
        slow = asyncio.create_task(gate({"type": "http", "path": "/a"}, receive, send))
        await waits.wait()
        another = await ask(gate)
        body.set()
        await slow
        return another[0], gate._number

    assert asyncio.run(asyncio.wait_for(run(), 30)) == (401, 0)


def test_a_request_that_takes_too_long_is_ended():
    async def app(scope, receive, send):
        await asyncio.sleep(60)

    status, _, body = asyncio.run(asyncio.wait_for(ask(Gate(app, most=1, seconds=0.01)), 30))
    assert status == 503
    assert "there was no answer within 0.01 seconds" in json.loads(body)["detail"]


def test_calls_count_until_they_end():
    async def run():
        workers, running, go_on = Workers(most=2, at_once=1), threading.Event(), threading.Event()

        def call():
            running.set()
            return go_on.wait(60)

        left = asyncio.create_task(workers.run(call))
        await asyncio.to_thread(running.wait, 60)
        left.cancel()  # nobody waits for it any more
        await asyncio.gather(left, return_exceptions=True)
        second = asyncio.create_task(workers.run(int, 7))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await workers.run(int, 8)
        assert not second.done()
        go_on.set()
        return await second, await workers.run(int, 9)

    assert asyncio.run(run()) == (7, 9)


def test_places_are_held_before_a_body_is_read_and_none_takes_more_than_there_are():
    async def run():
        workers = Workers(most=4)
        async with workers.place(3):
            with pytest.raises(Busy):
                async with workers.place(2):
                    pass
            assert await workers.run(int, 7) == 7
        async with workers.place(9):
            assert await workers.run_in_place(int, 8) == 8
            with pytest.raises(Busy):
                await workers.run(int, 9)

    asyncio.run(run())


def test_a_failure_has_the_number_under_which_the_log_has_it(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("deltahist.server"), "disabled", False)  # as other tools' set-up may leave it
    told = []

    async def app(scope, receive, send):
        raise RuntimeError("at POLYGON ((7 7))")

    status, headers, body = asyncio.run(ask(Manners(app, lambda *given: told.append(given))))
    assert status == 500
    assert b"POLYGON" not in body
    number = headers["x-request-id"]
    assert json.loads(body)["request"] == caplog.records[0].facts["id"] == told[0][3] == number
    assert told[0][1] == 500
