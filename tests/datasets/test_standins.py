"""Made-up data sets have the sizes that they state, repeat exactly, and clump like real data."""

import doctest

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import datasets
import datasets.indoor
import datasets.twitter
import deltahist.sample
from datasets.__main__ import main
from deltahist import sample
from deltahist.sample import sample_points


def busiest_hundredth(points):
    """Share of the points in the fullest 100 of 100 by 100 cells."""
    counts = np.histogram2d(*points.T, bins=100, range=[[0, 1], [0, 1]])[0].ravel()
    return np.sort(counts)[-100:].sum() / len(points)


def test_clumpiness():
    assert busiest_hundredth(datasets.twitter_like_world()) > 0.85
    # the real hashtags of the registry: 0.62 in the same box; the real tags indoors: 0.26 for a tenth of them
    assert 0.45 < busiest_hundredth(datasets.twitter_like_north_america()) < 0.7
    assert 0.2 < busiest_hundredth(datasets.indoor_like()) < 0.35


def test_the_invented_city():
    city = sample_points(7)
    pd.testing.assert_frame_equal(city, sample_points(7))
    assert not city.equals(sample_points(8))
    assert list(city.columns) == ["user", "lon", "lat", "time"]
    months = city.time.dt.month.value_counts()
    assert set(city.time.dt.year) == {2025}
    assert months[7] > 3 * months[1]
    assert len(city) == 20_000
    assert sorted(city.user.unique()) == list(range(2_000))
    west, south, east, north = sample.BOUNDS
    assert city.lon.between(west, east).all()
    assert city.lat.between(south, north).all()
    assert -78 < west < east < -72  # UTM zone 18


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
