"""Large maps by the command: published, inspected, and nothing half-written on a full disk or by a killed process."""

import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

import deltahist as dh

#: More than 4096² cells.
MAP = ["--x", "x", "--y", "y", "--bounds", "0,0,4100,4100", "--cell", "1", "--delta", "5"]
LINE = [*MAP, "--epsilon", "1", "--strategy", "identity"]


@pytest.fixture
def points(tmp_path):
    rng = np.random.default_rng(1)
    rows = "\n".join(f"{x:.2f},{y:.2f}" for x, y in rng.random((300, 2)) * 4100)
    file = tmp_path / "points.csv"
    file.write_text(f"x,y\n{rows}\n")
    return file


def command(points, *more):
    return [sys.executable, "-m", "deltahist.cli", "publish", points, *LINE, *more]


def test_a_large_map_is_published_and_inspected(points, tmp_path, run, refused):
    out = tmp_path / "map.parquet"
    said = run("publish", points, *LINE, "--out", out)
    assert "4100 × 4100" in said.out
    release = dh.load(out)
    assert (type(release).__name__, release.total) == ("TiledRelease", 300)
    assert pq.ParquetFile(out).num_row_groups == 17 * 17
    assert "4100 × 4100 cells" in run("inspect", out).out
    run("plot", out, "--only", "map", "--out", tmp_path / "m.png")
    refused(["export", out, "--out", tmp_path / "m.csv"], "16,810,000 cells in tiles", "larger cells")
    for more, why in ((["--strategy", "wavelet"], "needs all cells"), (["--state", tmp_path / "s"], "tile by tile")):
        refused(["publish", tmp_path / "unread.csv", *LINE, *more, "--out", tmp_path / "w.parquet", "--dry-run"], why)


def test_a_full_disk_leaves_no_file_and_the_charge(points, tmp_path):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    out, ledger = tmp_path / "map.parquet", tmp_path / "city.ledger"
    paid = ["--out", out, "--ledger", ledger, "--account", "city", "--limit", "3"]
    failed = subprocess.run(command(points, *paid), preexec_fn=limited, capture_output=True, text=True)
    assert failed.returncode == 2
    assert "map.parquet' cannot be written: " in failed.stderr
    assert "File too large" in failed.stderr
    assert "the charge stays, although nothing came of it" in failed.stderr
    assert not list(tmp_path.glob("*map.parquet*"))
    assert dh.Ledger(ledger).spent("city") == 1
    subprocess.run(command(points, *paid), check=True, capture_output=True)
    assert dh.Ledger(ledger).spent("city") == 2
    assert dh.load(out).tile_values((16, 16))[0].shape == (4, 4)


def test_a_process_that_is_killed_leaves_no_map(points, tmp_path):
    out, ledger = tmp_path / "map.parquet", tmp_path / "city.ledger"
    paid = ["--out", out, "--ledger", ledger, "--account", "city", "--limit", "3"]
    with subprocess.Popen(command(points, *paid), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not any(part.stat().st_size for part in tmp_path.glob(".map.parquet.*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    assert dh.Ledger(ledger).spent("city") == 1
