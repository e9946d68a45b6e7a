"""The made-up city: its size, its place, its river, and that it repeats exactly."""

import numpy as np
import pandas as pd
import pytest

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
