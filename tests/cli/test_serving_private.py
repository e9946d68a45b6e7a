"""`deltahist serve --private`: keys, settings that are refused, and a real process that is killed and started again."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import duckdb
import pytest

from deltahist.cli import main
from deltahist.personal import People
from deltahist.personal.service import hash_key

QUESTION = json.dumps({"answer": {"kind": "count", "epsilon": 0.01}}).encode()


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.fixture
def night(tmp_path, capsys):
    """A file with settings, and the key of a client."""
    with duckdb.connect(tmp_path / "city.duckdb") as base:
        base.execute("CREATE TABLE trip AS SELECT unnest(['Ada', 'Bob']) AS who, unnest([8, 9]) AS hour")
    people = People(tmp_path / "city.duckdb", "trip", owner="who", ledger=tmp_path / "city.ledger", epsilon=1)
    people.enrol()
    people.database.close()
    assert main(["serve", "--new-key", "ann"]) == 0
    made, port = capsys.readouterr(), free_port()
    file = tmp_path / "night.toml"
    file.touch(0o600)
    file.write_text(
        f'database = "{tmp_path}/city.duckdb"\nledger = "{tmp_path}/city.ledger"\n'
        f"port = {port}\nstep = 4\nmax_waiting = 4\n"
        f'[accounts.people]\ntable = "trip"\nowner = "who"\n'
        f"{made.err.partition(':' + chr(10))[2]}accounts = ['people']\n"
    )
    return file, made.out.strip()


def test_a_key_is_shown_once_and_only_its_hash_is_for_the_file(night):
    file, key = night
    hashed = re.search(r'"(sha256[^"]*)"', file.read_text())[1]
    assert hash_key(key) == hashed
    assert key not in file.read_text()


def test_settings_are_checked(night, capsys):
    file, _ = night
    assert main(["serve", "--private", str(file), "--check"]) == 0
    file.write_text("host = '0.0.0.0'\n" + file.read_text())
    assert main(["serve", "--private", str(file), "--check"]) == 2
    assert "tls_in_front = true" in capsys.readouterr().err
    file.write_text(file.read_text().partition("[clients")[0])
    assert main(["serve", "--private", str(file)]) == 2
    assert "clients is invalid" in capsys.readouterr().err
    assert main(["serve"]) == 2
    assert "name release files or folders" in capsys.readouterr().err


@contextlib.contextmanager
def running(file):
    """A service in a process of its own, which is killed in the end, and its address."""
    line = [sys.executable, "-m", "deltahist", "serve", "--private", str(file)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if found := re.search(r"running on (http://[\d.:]+)", line):
                    break
            yield process, f"{found[1]}/ask"
        finally:
            process.kill()


def ask(address, key, number):
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": f"report-{number}"}
    with urllib.request.urlopen(urllib.request.Request(address, QUESTION, headers), timeout=60) as answer:
        return answer.read()


@pytest.mark.process
def test_who_asks_again_after_a_kill_has_the_same_answer_and_has_paid_once(night):
    """Clients ask at once, and the service is killed when some of them have answers; its logs tell of no question."""
    file, key = night
    told = {}

    def ask_until_killed(number):
        # The connection breaks in one way or another.
        with contextlib.suppress(OSError, http.client.HTTPException):
            told[number] = ask(address, key, number)
            some.release()

    some = threading.Semaphore(0)
    with running(file) as (process, address), ThreadPoolExecutor(2) as pool:
        for number in range(4):
            pool.submit(ask_until_killed, number)
        for _ in range(2):
            assert some.acquire(timeout=60)
        process.kill()
    assert len(told) >= 2
    with running(file) as (process, address), ThreadPoolExecutor(4) as pool:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(address, f"{key}x", 7)
        again = list(pool.map(lambda number: ask(address, key, number), range(4)))
        logged = [process.stderr.readline() for _ in range(5)]
    assert {number: again[number] for number in told} == told
    people = People(file.parent / "city.duckdb", "trip", owner="who", ledger=file.parent / "city.ledger")
    assert people.spent(["Ada", "Bob"]) == [Fraction(1, 25), Fraction(1, 25)]
    assert logged == ["POST 401\n", *["POST 200\n"] * 4]
    assert not [line for line in logged for word in ("count", "people", "report", 'ann"') if word in line]
