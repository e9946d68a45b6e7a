"""`deltahist serve`: what would be served, and real processes: one, several, and their end."""

import json
import os
import signal
import urllib.error

import numpy as np
import psutil
import pytest

import deltahist as dh
from deltahist.cli import main
from tests.serving import get, serving, wait_for


@pytest.fixture
def city(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    publish(folder / "city.parquet", 1)
    return folder / "city.parquet"


def publish(path, number):
    near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), delta=1)
    dh.publish(np.full((4, 4), number), near, epsilon=1).save(path)


def status(url, body=None):
    """Return the status of an answer; 0 while nobody answers."""
    try:
        get(url, body)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
    except OSError:
        return 0
    return 200


def test_a_check_lists_what_would_be_served_and_what_is_wrong(city, capsys):
    (city.parent / "with space.parquet").write_bytes(city.read_bytes())
    assert main(["serve", str(city.parent), "--check"]) == 0
    assert "http://127.0.0.1:8000/releases/with%20space\n" in capsys.readouterr().err
    (city.parent / "bad.parquet").write_bytes(b"PAR1")
    assert main(["serve", str(city.parent), "--check"]) == 2
    assert "bad.parquet" in capsys.readouterr().err
    assert main(["serve", str(city.parent / "none.parquet"), "--check"]) == 2


def test_a_service_notices_files_and_stops_on_a_signal(city, tmp_path):
    """A pipe in the folder, whose reading would never end, changes none of that."""
    os.mkfifo(city.parent / "a.parquet")
    with serving(tmp_path / "log", city.parent, "--workers", 2, "--max-boxes", 2) as (address, process):
        asked = f"{address}/releases/city/answer?bbox=0,0,4,4"
        assert get(asked)["estimate"] == 16
        os.mkfifo(city.parent / "b.parquet")
        publish(city, 2)
        wait_for(lambda: all(status(asked) == 200 and get(asked)["estimate"] == 32 for _ in range(8)), process)
        assert status(f"{address}/releases/city/answers", json.dumps({"boxes": [[0, 0, 1, 1]] * 3}).encode()) == 413
        psutil.Process(process.pid).children()[-1].kill()
        wait_for(lambda: sum(each.is_running() for each in psutil.Process(process.pid).children()) >= 2)
        dh.withdraw(city, "wrong column")
        wait_for(lambda: all(status(asked) == 410 for _ in range(8)), process)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert "bbox" not in (tmp_path / "log").read_text()  # logs do not tell what is asked
