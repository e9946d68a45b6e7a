"""`deltahist serve-private`: keys, settings that are refused, and a real process that is killed and started again."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.personal.settings import fits

QUESTION = json.dumps({"answer": {"kind": "count", "epsilon": 0.25}}).encode()


@pytest.fixture
def night(tmp_path, capsys):
    """A file with settings, and the key of a client."""
    database = dh.Database.open(tmp_path / "city.duckdb")
    database.create_records("trip", {"hour": "whole"}, owner="who")
    people = dh.People(database, "trip", owner="who", ledger=tmp_path / "city.ledger", epsilon=1)
    people.insert(pd.DataFrame({"who": ["Ada", "Bob"], "hour": [8, 9]}))
    database.close()
    assert main(["serve-private", "--new-key", "ann"]) == 0
    made = capsys.readouterr()
    file = tmp_path / "night.toml"
    file.touch(0o600)
    file.write_text(
        f'database = "{tmp_path}/city.duckdb"\nledger = "{tmp_path}/city.ledger"\nport = 0\nstep = 0.1\n'
        f'[accounts.people]\ntable = "trip"\nowner = "who"\n'
        f"{made.err.partition(':' + chr(10))[2]}accounts = ['people']\n"
    )
    return file, made.out.strip()


def test_a_key_is_shown_once_and_only_its_hash_is_for_the_file(night):
    file, key = night
    hashed = re.search(r'"(sha256[^"]*)"', file.read_text())[1]
    assert fits(key, hashed)
    assert key not in file.read_text()


def test_settings_are_checked(night, capsys):
    file, _ = night
    assert main(["serve-private", "--config", str(file), "--check"]) == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ask\n", capsys.readouterr().err)
    file.write_text("host = '0.0.0.0'\n" + file.read_text())
    assert main(["serve-private", "--config", str(file), "--check"]) == 2
    assert "tls_in_front = true" in capsys.readouterr().err
    file.write_text(file.read_text().partition("[clients")[0])
    assert main(["serve-private", "--config", str(file)]) == 2
    assert "missing required field `clients`" in capsys.readouterr().err
    assert main(["serve-private"]) == 2
    assert "--config is missing" in capsys.readouterr().err


def test_who_asks_again_after_a_kill_has_the_same_answer_and_has_paid_once(night):
    file, key = night
    told = []
    for _ in range(2):
        line = [sys.executable, "-m", "deltahist.cli", "serve-private", "--config", str(file)]
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
            try:
                address = process.stderr.readline().strip()
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    urllib.request.urlopen(address, QUESTION, timeout=60)
                headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "report-7"}
                request = urllib.request.Request(address, QUESTION, headers)
                with urllib.request.urlopen(request, timeout=60) as answer:
                    told.append(answer.read())
                logged = process.stderr.readline() + process.stderr.readline()
            finally:
                process.kill()
            logged += process.stderr.read()
        events = [json.loads(line) for line in logged.splitlines()]
        assert [event["status"] for event in events] == [401, 200]
        assert "count" not in logged
        assert "people" not in logged
    assert told[0] == told[1]
    people = dh.People(file.parent / "city.duckdb", "trip", owner="who", ledger=file.parent / "city.ledger")
    assert [float(spent) for spent in people.spent(["Ada", "Bob"])] == [0.25, 0.25]
