"""The service under more than it can do: ten thousand open connections, and twice its capacity for ten minutes."""

import contextlib
import resource
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import psutil
import pytest

from tests.serving import get, serving, wait_for

pytestmark = pytest.mark.slow
ASKED = "/releases/city/answer?bbox=-74.02,40.66,-73.97,40.70"


def test_ten_thousand_open_connections(published, tmp_path):
    """They cost little, and whoever asks is answered beside them; those that never ask are hung up on."""
    number = 10_000
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < number + 100:
        pytest.skip(f"{most} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with serving(tmp_path / "log", published, "--workers", 2) as (address, process), contextlib.ExitStack() as open_:
        host, port = address.removeprefix("http://").split(":")
        before = memory(process)
        for _ in range(number):
            asking = open_.enter_context(socket.create_connection((host, int(port)), timeout=60))
            asking.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert get(address + ASKED)["estimate"] > 0
        assert memory(process) - before < 400 * 2**20
        wait_for(lambda: connections(process) < 100, process)


def test_who_does_not_read_an_answer_is_hung_up_on(published, tmp_path):
    with serving(tmp_path / "log", published, "--max-seconds", 2) as (address, process):
        host, port = address.removeprefix("http://").split(":")
        with socket.socket() as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asking.connect((host, int(port)))
            asking.sendall(b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n" * 10)
            wait_for(lambda: connections(process) > 1, process)
            wait_for(lambda: connections(process) == 1, process)


def test_twice_the_capacity_for_ten_minutes(published, tmp_path):
    """Nothing but answers and 503, and no more memory at the end than after a minute."""
    if shutil.which("wrk") is None:
        pytest.skip("wrk is missing: apt-get install wrk")
    with serving(tmp_path / "log", published, "--workers", 2, "--max-requests", 20) as (address, process):
        took, statuses, end = [], set(), time.monotonic() + 600
        load = ["wrk", "-t1", "-c200", "-d600s", address + ASKED]
        with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as wrk:
            asking = threading.Thread(target=ask_until, args=(address + ASKED, end, took, statuses))
            asking.start()
            time.sleep(60)
            early = memory(process)
            asking.join()
            late, said = memory(process), wrk.communicate()[0]
    print(f"{len(took)} answers beside wrk, p99 {1000 * np.quantile(took, 0.99):.0f} ms; {early / 2**20:.0f} MiB "
          f"after a minute, {late / 2**20:.0f} at the end\n{said}")  # fmt: skip
    assert statuses <= {200, 503}
    assert 200 in statuses
    assert "Socket errors" not in said or "connect 0, read 0, write 0" in said
    assert late < 1.1 * early


def ask_until(url, end, took, statuses):
    while time.monotonic() < end:
        begin = time.perf_counter()
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                answer.read()
            statuses.add(200)
            took.append(time.perf_counter() - begin)
        except urllib.error.HTTPError as refused:
            refused.close()
            statuses.add(refused.code)
            time.sleep(0.01)


def processes(process):
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children()]


def memory(process):
    """Return the bytes of all processes, shared pages once."""
    return sum(each.memory_full_info().pss for each in processes(process))


def connections(process):
    return sum(len(each.net_connections()) for each in processes(process))
