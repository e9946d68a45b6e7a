"""`deltahist serve`: what would be served, a real process, and its end."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

import deltahist as dh
from deltahist.cli import main


@pytest.fixture
def city(tmp_path):
    near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), delta=1)
    dh.publish(np.ones((4, 4), dtype=int), near, epsilon=1).save(tmp_path / "city.parquet")
    return tmp_path / "city.parquet"


def test_releases_are_checked(city, capsys):
    assert main(["serve", str(city), "--check"]) == 0
    assert capsys.readouterr().err == "http://127.0.0.1:8000/releases/city\n"
    assert main(["serve", str(city.parent / "none.parquet"), "--check"]) == 2
    assert "none.parquet" in capsys.readouterr().err
    assert main(["serve", str(city), "--port", "65536"]) == 2
    assert "--port is 65536: it must be from 0 to 65535" in capsys.readouterr().err


def test_a_service_answers_until_it_is_told_to_end(city):
    line = [sys.executable, "-m", "deltahist.cli", "serve", str(city), "--port", "0"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = re.match(r"http://127.0.0.1:[1-9]\d*/releases/city", process.stderr.readline())[0]
            with urllib.request.urlopen(f"{address}/answer?bbox=0,0,4,4", timeout=60) as answer:
                assert json.load(answer)["estimate"] == 16
            shape = {"type": "Polygon", "coordinates": [[[1, 1], [3, 1], [9, 3], [1, 1]]]}
            zone = {"type": "Feature", "properties": {"estimate": "secret"}, "geometry": shape}
            zones = json.dumps({"type": "FeatureCollection", "features": [zone]}).encode()
            with urllib.request.urlopen(f"{address}/answers", zones, timeout=60) as answer:
                assert json.load(answer)["features"][0]["properties"]["note"].startswith("clipped")
            process.send_signal(signal.SIGTERM)
            assert not process.stderr.read()  # logs do not tell what is asked
            process.wait(60)
        finally:
            process.kill()
