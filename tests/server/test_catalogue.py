"""server/catalogue.py: files that appear, change, go or are damaged, and releases that must not be served."""

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deltahist as dh
from deltahist.kinds import parse_release
from deltahist.server.catalogue import Catalogue

LINE = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)


@pytest.fixture
def folder(published, tmp_path):
    return shutil.copytree(published, tmp_path / "served")


def test_files_that_appear_change_and_go(folder, tmp_path):
    catalogue = Catalogue([folder])
    city = catalogue.find("city").release
    shutil.copy(folder / "line.parquet", folder / "other.parquet")
    dh.publish(np.ones(8, dtype=int), LINE, epsilon=1).save(folder / "line.parquet")
    catalogue.refresh()
    assert [served.name for served in catalogue] == ["city", "line", "other"]
    assert catalogue.find("line").release.total == 8
    assert catalogue.find("city").release is city  # what did not change is not read again
    (folder / "other.parquet").unlink()
    assert catalogue.refresh()
    assert catalogue.find("other") is None
    assert not catalogue.refresh()


def test_a_damaged_file_leaves_what_was_served(folder, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("deltahist.server"), "disabled", False)  # as other tools' set-up may leave it
    catalogue = Catalogue([folder])
    city = catalogue.find("city").release
    content = (folder / "city.parquet").read_bytes()
    (folder / "city.parquet").write_bytes(content[:-40])
    (folder / "new.parquet").write_bytes(b"PAR1")
    with caplog.at_level(logging.WARNING, "deltahist.server"):
        catalogue.refresh()
        catalogue.refresh()
    assert catalogue.find("city").release is city
    assert catalogue.find("new") is None
    assert len(caplog.records) == 2  # one for each file, once
    assert not catalogue.find("city").is_current
    (folder / "city.parquet").write_bytes(content)
    catalogue.refresh()
    assert catalogue.find("city").release.digest == city.digest


def test_what_is_not_for_publication_is_refused(folder):
    dh.publish(np.ones(8, dtype=int), LINE, epsilon=1, rng=np.random.default_rng(1)).save(folder / "seeded.parquet")
    with pytest.raises(dh.InputError, match=r"seeded.parquet is not for publication"):
        Catalogue([folder / "seeded.parquet"])
    started = Catalogue([folder])
    assert "seeded.parquet is not for publication" in started.problems[0]
    assert started.find("seeded") is None
    (folder / "seeded.parquet").rename(folder / "hidden")
    catalogue = Catalogue([folder])
    (folder / "hidden").rename(folder / "seeded.parquet")
    catalogue.refresh()
    assert catalogue.find("seeded") is None


def test_files_that_cannot_be_served_at_the_start_are_told_and_the_others_are_served(folder, published, tmp_path):
    (folder / "half.parquet").write_bytes((folder / "city.parquet").read_bytes()[:-40])
    (folder / "line.parquet").rename(folder / "with space.PARQUET")
    shutil.copy(folder / "city.parquet", folder / ".hidden.parquet")
    dh.publishers.publish_quantile(np.arange(8.0), 0.5, LINE, epsilon=1).save(folder / "median.parquet")
    (folder / "key.parquet").write_bytes(b"deltahist diffusion key")
    catalogue = Catalogue([folder, published, tmp_path / "nowhere.parquet"])
    assert [each.quoted for each in catalogue] == ["city", "with%20space", "line"]
    found = sorted(catalogue.problems, key=len)
    said = ("half.parquet", "have the same name, 'city'", "nowhere.parquet' cannot be opened")
    for words in (*said, "median.parquet", "key.parquet"):
        assert sum(words in each for each in found) == 1
    with pytest.raises(dh.InputError, match=r"nothing can be served: .*half.*; .*nowhere"):
        Catalogue([folder / "half.parquet", tmp_path / "nowhere.parquet"])


def make_sparse(path):
    """A file of 3 GiB that takes no room, with a footer of 1 GiB if one believes its end."""
    with path.open("wb") as file:
        file.write(b"PAR1")
        file.seek(3 << 30)
        file.write((1 << 30).to_bytes(4, "little") + b"PAR1")


def listen(path):
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(path.parent):
        listening.bind(path.name)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, make_sparse, listen, lambda p: p.symlink_to("/dev/zero"), lambda p: p.symlink_to(p.name),
     lambda p: os.mkfifo(p.with_suffix("")) or p.symlink_to(p.stem), lambda p: p.symlink_to("nowhere")],
)  # fmt: skip
def test_what_is_no_file_keeps_no_release_waiting(folder, make):
    catalogue = Catalogue([folder])
    make(folder / "a.parquet")
    (folder / "line.parquet").rename(folder / "moved.parquet")
    assert catalogue.refresh()
    started = Catalogue([folder])
    assert {each.name for each in catalogue} == {each.name for each in started} == {"city", "moved"}
    assert len(started.problems) == 1
    (folder / "a.parquet").rmdir() if make == Path.mkdir else (folder / "a.parquet").unlink()
    shutil.copy(folder / "city.parquet", folder / "a.parquet")
    catalogue.refresh()
    assert catalogue.find("a").release.digest == catalogue.find("city").release.digest


def test_what_is_no_file_takes_no_memory(folder):
    make_sparse(folder / "sparse.parquet")
    (folder / "zero.parquet").symlink_to("/dev/zero")
    script = ("import sys; from deltahist.server.catalogue import Catalogue; "
              "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); "
              "Catalogue([sys.argv[1]]); before = peak(); "
              "print(len(Catalogue(sys.argv[2:]).problems), peak() - before)")  # fmt: skip
    run = [sys.executable, "-c", script, folder / "city.parquet", folder]
    problems, growth = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert problems == "2"
    assert int(growth) < 10 << 10  # KiB


def test_a_file_that_is_replaced_while_it_is_read_is_handed_out_once_it_was_read(folder, monkeypatch):
    catalogue, city = Catalogue([folder]), folder / "city.parquet"

    def replace_and_read(file, path):
        release = parse_release(file, path)
        shutil.copy(folder / "line.parquet", folder / "next")
        (folder / "next").replace(city)
        return release

    monkeypatch.setattr("deltahist.server.catalogue.parse_release", replace_and_read)
    dh.publish(np.ones(8, dtype=int), LINE, epsilon=1).save(city)
    catalogue.refresh()
    assert not catalogue.find("city").is_current
    monkeypatch.undo()
    catalogue.refresh()
    assert catalogue.find("city").is_current
    assert catalogue.find("city").release.digest == catalogue.find("line").release.digest
