"""`python -m datasets` writes and draws; importing stays light; the examples in docstrings hold."""

import doctest

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


def test_picture(tmp_path):
    file = tmp_path / "figure3.png"
    assert main(["--picture", str(file)]) == 0
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert file.stat().st_size > 20_000


@pytest.mark.parametrize(
    "module", [datasets.twitter, datasets.indoor, deltahist.sample], ids=lambda module: module.__name__
)
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
