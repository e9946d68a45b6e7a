"""server/running.py: several workers, what they share, how they end, and connections that stall."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import psutil
import pytest
import uvicorn

import deltahist as dh
from deltahist.server import running
from deltahist.server.catalogue import Catalogue
from deltahist.server.settings import Settings
from tests.serving import get, serving, wait_for


def workers_of(process):
    return {child.pid for child in psutil.Process(process.pid).children() if child.status() != psutil.STATUS_ZOMBIE}


def is_asked(worker):
    return "ESTABLISHED" in {each.status for each in psutil.Process(worker).net_connections()}


def host_of(address):
    return address.removeprefix("http://")


def test_workers(published, tmp_path):
    """One is killed, files change, and the service is told to end while a request is at work."""
    folder = shutil.copytree(published, tmp_path / "served")
    with serving(tmp_path / "log", folder, "--workers", 2) as (address, process), contextlib.ExitStack() as stack:
        first = wait_for(lambda: len(workers_of(process)) == 2 and workers_of(process), process)
        killed = min(first)
        os.kill(killed, signal.SIGKILL)
        for _ in range(20):
            assert get(f"{address}/releases/line/answer?bbox=0,8")["estimate"] == 28
        old = wait_for(lambda: len(workers_of(process) - {killed}) == 2 and workers_of(process), process)

        near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
        dh.publish(np.ones(8, dtype=int), near, epsilon=1).save(folder / "line.parquet")
        others = wait_for(lambda: not workers_of(process) & old and workers_of(process), process)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            found = threads.map(lambda _: get(f"{address}/releases/line/answer?bbox=0,8")["estimate"], range(40))
        assert set(found) == {8}
        assert workers_of(process) == others

        asking = stack.enter_context(contextlib.closing(http.client.HTTPConnection(host_of(address), timeout=60)))
        body = json.dumps({"boxes": [[0, 8]]}).encode()
        asking.putrequest("POST", "/releases/line/answers")
        asking.putheader("Content-Length", str(len(body)))
        asking.endheaders(body[:5])
        wait_for(lambda: any(map(is_asked, others)))
        process.terminate()
        wait_for(lambda: refuses(address))
        asking.send(body[5:])
        assert json.load(asking.getresponse())["estimate"] == [8]
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not any(map(psutil.pid_exists, others))


def test_head_is_answered_without_a_body_and_who_is_refused_with_one_unread_sees_why(published, tmp_path):
    city = "/releases/city"
    paths = ("/healthz", "/releases", city, f"{city}/download", f"{city}/legend", f"{city}/cells", "/docs", "/nowhere")
    with serving(tmp_path / "log", published, "--max-bytes", 1000, "--cors", "*") as (address, process):
        with contextlib.closing(http.client.HTTPConnection(host_of(address), timeout=60)) as asking:
            for path in (*paths, f"{city}/answer?bbox=-74.02,40.66,-73.97,40.70", f"{city}/answers"):
                asking.request("HEAD", path, headers={"Origin": "http://a"})
                answer = asking.getresponse()
                assert int(answer.headers["content-length"]) > 0, path
                assert answer.read() == b"", path
        body = b" " * (8 << 20)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/releases/city/answers", body, timeout=60)  # it closes the connection
        assert refused.value.code == 413
        refused.value.close()
        wait_for(lambda: (tmp_path / "log").read_text().count("/answers") > 1, process)
    assert "error" not in (tmp_path / "log").read_text().lower()


def refuses(address):
    host, port = host_of(address).split(":")
    with socket.socket() as asking:
        return asking.connect_ex((host, int(port))) != 0


def test_logs_and_metrics_are_of_all_workers_and_tell_only_known_names(published, tmp_path):
    """Metrics of a worker that is killed count on; none outlives the process that started them."""
    log = tmp_path / "log"
    with serving(log, published, "--workers", 2, "--metrics-port", 0) as (address, process):
        metrics = re.search(r"http://\S+/metrics", log.read_text())[0]
        for path, times, expected in (
            ("/releases/line/answer?bbox=0,7.0625", 3, ("/releases/{name}/answer", "line")),
            ("/releases/secret?x=7.0625", 1, ("/releases/{name}", None)),
            ("/secret", 1, ("none", None)),
        ):
            for stopped in workers_of(process):  # so that the other one answers
                os.kill(stopped, signal.SIGSTOP)
                for _ in range(times):
                    with contextlib.closing(http.client.HTTPConnection(host_of(address))) as asking:
                        asking.request("GET", path)
                        number = asking.getresponse().headers["x-request-id"]
                os.kill(stopped, signal.SIGCONT)
            event = wait_for(lambda number=number: events(log, number), process)[0]
            assert (event["route"], event["release"]) == expected

        def counted():
            with urllib.request.urlopen(metrics, timeout=60) as answer:
                return answer.read().decode()

        answered = 'deltahist_requests_total{release="line",route="/releases/{name}/answer",status="200"} 6.0'
        wait_for(lambda: answered in counted(), process)
        os.kill(min(workers_of(process)), signal.SIGKILL)
        assert answered in counted()
        assert 'deltahist_requests_total{release="",route="none",status="404"} 2.0' in counted()
        told = counted() + log.read_text()
        assert "secret" not in told
        assert "7.0625" not in told  # more digits than a time of day has
        workers = wait_for(lambda: len(workers_of(process)) == 2 and workers_of(process), process)
        process.kill()
        wait_for(lambda: not any(map(psutil.pid_exists, workers)))


#: A service whose answers take for ever.
ENDLESS = """
import socket, sys, time
from deltahist.server import answers, running
from deltahist.server.catalogue import Catalogue
from deltahist.server.settings import Settings
catalogue = Catalogue([sys.argv[1]])
answers.BoxQuery.answer = lambda *given: print("asked", flush=True) or time.sleep(600)
running._GRACE, running._KILL, running._warm = 0.2, 0.5, lambda catalogue: None
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
running.run(catalogue, Settings(), listening, int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_ends_although_a_call_goes_on(published, workers):
    line = [sys.executable, "-c", ENDLESS, str(published / "line.parquet"), workers]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline())
            with socket.create_connection(("127.0.0.1", port), timeout=60) as asking:
                asking.sendall(b"GET /releases/line/answer?bbox=0,8 HTTP/1.1\r\nHost: a\r\n\r\n")
                assert process.stdout.readline() == "asked\n"
                started = workers_of(process)
                process.terminate()
                assert process.wait(60) != 0
                wait_for(lambda: not any(map(psutil.pid_exists, started)))
        finally:
            process.kill()


def events(log, number):
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    return [line for line in lines if line.get("id") == number]


@pytest.fixture(scope="module")
def here(published):
    """A service in a thread of this process, with little patience."""
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listening:
        patch.setattr(running, "_HEAD", 0.2)
        server = uvicorn.Server(running._config(Catalogue([published]), Settings(), refresh=False))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        wait_for(lambda: server.started)
        yield listening.getsockname()
        server.should_exit = True
        thread.join(60)


def test_half_a_head_is_hung_up_on(here):
    """Whether it is a connection's first one or another has been answered before."""
    whole = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    halves = (b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-")
    with contextlib.ExitStack() as stack:
        waiting = []
        for before, sent in ((b"", b""), *((before, half) for before in (b"", whole) for half in halves)):
            asking = stack.enter_context(socket.create_connection(here))
            asking.settimeout(60)
            if before:
                asking.sendall(before)
                assert asking.recv(9).startswith(b"HTTP/1.1 ")
            asking.sendall(sent)
            waiting.append(asking)
        for asking in waiting:
            with contextlib.suppress(ConnectionResetError):
                while asking.recv(1000):
                    pass
