"""`deltahist serve`: what would be served, a real process, and its end."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import fields

import numpy as np
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.server.settings import Settings


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
    assert "--port is '65536': it must be from 0 to 65535" in capsys.readouterr().err


def test_a_check_does_not_disturb_the_service_that_runs(city, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(city), "--port", port, "--check"]) == 0
        assert f"127.0.0.1:{port}/releases/city" in capsys.readouterr().err
        assert main(["serve", str(city), "--port", port]) == 2
        assert "Address already in use" in capsys.readouterr().err


def test_a_check_names_all_that_is_wrong_and_fails(city, capsys):
    folder = city.parent
    (folder / "within").mkdir()
    for name in ("with space.parquet", "within/other.parquet"):
        (folder / name).write_bytes(city.read_bytes())
    (folder / "bad.parquet").write_bytes(b"PAR1")
    assert main(["serve", str(folder), "--check"]) == 2
    said = capsys.readouterr().err
    assert re.search(r"not served: .*bad\.parquet", said)
    assert "/releases/with%20space\n" in said
    assert f"{folder / 'within'} is not looked into" in said


@pytest.mark.parametrize(
    ("options", "environment", "text", "said"),
    [
        (["--port", "7001"], {"PORT": "7002"}, "port = 7003", "127.0.0.1:7001/"),
        ([], {"PORT": "7002"}, "port = 7003", "127.0.0.1:7002/"),
        ([], {}, "port = 7003", "127.0.0.1:7003/"),
        ([], {"MAX_BOXES": "0"}, "", "--max-boxes is '0': it must be a whole number of at least 1"),
        ([], {"PROT": "7002"}, "", "DELTAHIST_SERVE_PROT is set, but no option is called so: is DELTAHIST_SERVE_PORT"),
        ([], {"PORT": "high"}, "", "--port is 'high': it must be from 0 to 65535"),
        ([], {}, "max-boxs = 7", "is 'max-boxes' meant?"),
        ([], {"PUBLIC_URL": "a.example"}, "", "--public-url is 'a.example': it must be https://server"),
        ([], {}, "workers = 1.5", "--workers is '1.5': it must be a whole number"),
    ],
)
def test_settings_come_from_options_the_environment_and_a_file(
    city, capsys, monkeypatch, options, environment, text, said
):
    file = city.parent / "serve.toml"
    file.write_text(f"[serve]\n{text}")
    monkeypatch.setenv("DELTAHIST_SERVE_CONFIG", str(file))
    for name, value in environment.items():
        monkeypatch.setenv(f"DELTAHIST_SERVE_{name}", value)
    main(["serve", str(city), "--check", *options])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("way", ["option", "environment", "file"])
def test_every_setting_comes_in_each_way(city, monkeypatch, tmp_path, way):
    """All that an operator chooses reaches the service, from wherever it is chosen."""
    roads = tmp_path / "roads.geojson"
    roads.write_text('{"type": "LineString", "coordinates": [[0, 0], [4, 4]]}')
    limits = {each.name: 7 + number for number, each in enumerate(fields(Settings)) if each.name.startswith("max_")}
    shown = {"tiles": "https://a.example/{z}/{x}/{y}.png", "attribution": "A", "public_url": "https://a.example/maps"}
    chosen = limits | shown | {"context": str(roads), "cors": ["https://b.example", "https://c.example"]}
    chosen |= {"host": "127.0.0.1", "port": 0, "metrics_port": 0, "workers": 2}
    line, file = ["serve", str(city)], tmp_path / "serve.toml"
    if way == "file":
        line += ["--config", str(file)]
        lines = [f"{name.replace('_', '-')} = {json.dumps(value)}" for name, value in chosen.items()]
        file.write_text("\n".join(["[serve]", *lines]))
    for name, value in chosen.items():
        values = [str(each) for each in (value if isinstance(value, list) else [value])]
        if way == "option":
            line += [part for each in values for part in (f"--{name.replace('_', '-')}", each)]
        elif way == "environment":
            monkeypatch.setenv(f"DELTAHIST_SERVE_{name.upper()}", " ".join(values))
    heard = []
    monkeypatch.setattr("deltahist.server.running.run", lambda *given: heard.extend(given))
    monkeypatch.setattr("deltahist.server.logs.write_logs", lambda: None)
    assert main(line) == 0
    _, settings, _, workers, watched = heard
    assert settings == Settings(tuple(chosen["cors"]), **limits, **shown, context=roads)
    assert (workers, watched is None) == (2, False)


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
            events = [json.loads(line)["event"] for line in process.stderr.read().splitlines()]
            assert events == ["request", "request"]  # and no warning, which would tell what was asked
            process.wait(60)
        finally:
            process.kill()
