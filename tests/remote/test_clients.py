"""Clients of a real service: the commands, and every example of docs/service.md."""

import contextlib
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest

import deltahist as dh
from deltahist.cli import main

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = (ROOT / "docs/service.md").read_text(encoding="utf-8").partition("\n## Clients\n")[2].partition("\n## ")[0]
EXAMPLES = re.findall(r"^```(\w+)\n(.*?)^```$", CLIENTS, re.DOTALL | re.MULTILINE)
W, S = 580000, 4500000


@pytest.fixture(scope="module")
def districts(zones):
    return zones.iloc[[0, 4]].drop(columns="low").assign(zone=["a", "b"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, districts):
    folder = tmp_path_factory.mktemp("clients")
    districts.to_file(folder / "zones.gpkg")
    districts.to_file(folder / "zones.geojson")
    (folder / "boxes.csv").write_text(f"name,west,south,east,north\nα,{W},{S},{W + 999.5},{S + 800}\n")
    return folder


@pytest.fixture
def said(capsys):
    """What a command line says: its code, output and notes."""

    def said(*line):
        capsys.readouterr()
        code = main(list(map(str, line)))
        found = capsys.readouterr()
        return code, found.out, found.err

    return said


def rounded(said):
    """The same with figures of ten digits: a file that is asked little adds up cells in another order."""
    return re.sub(r"\d+\.\d{8,}", lambda found: f"{float(found[0]):.10g}", repr(said))


@pytest.mark.parametrize(
    "line",
    [
        "query city --regions zones.gpkg --name zone --level 0.5",
        "query city --regions zones.geojson --format geojson --nonnegative",
        "query city --boxes boxes.csv --format json",
        "query city --box -74.02,40.66,-73.97,40.70 --format csv",
        "query city --box 1,2,3,4",
        "query city --quantiles 0.5",
        "query ages --quantiles 0.5 --format json",
        "query ages --box 1,2",
        "statement city",
        "statement line --json",
    ],
)
def test_an_address_is_as_good_as_a_file(folder, published, service, said, monkeypatch, line):
    monkeypatch.chdir(folder)
    command, name, *more = line.split()
    expected = said(command, published / f"{name}.parquet", *more)
    assert rounded(said(command, f"{service}/releases/{name}", *more)) == rounded(expected)


def test_files_are_the_same_too(folder, published, service, said, monkeypatch):
    monkeypatch.chdir(folder)
    for line in (
        "query {} --regions zones.gpkg --name zone --out out.csv", "export {} --out out.geojson",
        "plot {} --only curve --out out.png", "statement {} --title City --out out.md",
    ):  # fmt: skip
        written = []
        for place in (published / "city.parquet", f"{service}/releases/city"):
            code, _, notes = said(*line.format(place).split())
            assert code == 0, notes
            file = next(folder.glob("out.*"))
            written.append(file.read_bytes())
            file.unlink()
        assert rounded(written[1]) == rounded(written[0])


def test_what_an_address_cannot_be(service, said):
    code, out, err = said("query", f"{service}/releases/city", "--box", "1,2", "--each")
    assert (code, out) == (2, "")
    assert f"--each is given, but '{service}/releases/city' is one release" in err
    code, _, err = said("statement", f"{service}/releases")
    assert code == 2
    assert f"this service has {service}/releases/ages" in err


# --- docs/service.md ----------------------------------------------------------------------------------------


def example(kind, service):
    """All examples in a language, for the service that runs."""
    found = [text.replace("http://127.0.0.1:8000", service) for language, text in EXAMPLES if language == kind]
    assert found
    return found


@pytest.fixture(scope="module")
def asked(folder, service):
    """The folder after the examples in the shell; the commands run in this process, which saves imports."""
    lines = "\n".join(example("sh", service)).replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith("deltahist "):
            with contextlib.chdir(folder):
                assert main(shlex.split(line)[1:]) == 0, line
        else:
            subprocess.run(["bash", "-c", line], cwd=folder, check=True, capture_output=True, timeout=300)
    return folder


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_examples_in_the_shell(asked, published, districts):
    expected = dh.answer(dh.load(published / "city.parquet"), districts, level=0.9)
    by_curl = gpd.read_file(asked / "answers.geojson")
    for found in (gpd.read_file(asked / "answers.gpkg", layer="answers"), by_curl):
        np.testing.assert_allclose(found["estimate"], expected["estimate"])
    np.testing.assert_allclose(by_curl["low"], expected["low"])
    assert len(gpd.read_file(asked / "cells.gpkg", layer="cells")) == 256


def test_examples_in_python(folder, service, published, districts, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for text in example("python", service):
        exec(text, names)
    release = dh.load(published / "city.parquet")
    np.testing.assert_allclose(names["answers"]["low"], dh.answer(release, districts, level=0.9)["low"])
    assert len(names["cells"]) == 256
    assert capsys.readouterr().out == release.statement() + "\n"
    assert names["release"].digest == release.digest


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_examples_in_sql(asked, service, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(asked)
    answer = json.loads((asked / "answer.json").read_text())
    files, over_http = example("sql", service)
    boxes, box, features = (duckdb.sql(text).fetchall() for text in files.strip().removesuffix(";").split(";"))
    assert boxes[0] == (round(answer["estimate"]), answer["low"], answer["high"])
    assert box == [(answer["estimate"], answer["low"], answer["high"], "points", answer["digest"])]
    assert [zone for zone, _ in features] == ["a", "b"]
    try:
        duckdb.load_extension("httpfs")
    except duckdb.Error:
        return  # it is not installed, and tests fetch nothing
    assert duckdb.sql(over_http).fetchall() == [(answer["estimate"], answer["low"], answer["high"])]


def test_examples_in_r(folder, service):
    known = ["Rscript", "-e", "library(sf); library(httr2)"]
    if not shutil.which("Rscript") or subprocess.run(known, capture_output=True).returncode:
        pytest.skip("R is not installed with sf and httr2")
    (text,) = example("r", service)
    done = subprocess.run(["Rscript", "-e", text], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "estimate" in done.stdout
