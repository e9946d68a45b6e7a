"""The stand-ins have the paper's sizes, lie in the unit square, repeat exactly, and clump like real data."""

import hashlib

import numpy as np
import pytest

import datasets
from datasets import indoor, twitter

SETS = {
    "world": (datasets.twitter_like_world, 193_841),
    "north-america": (datasets.twitter_like_north_america, 183_072),
    "indoor": (datasets.indoor_like, 164_860),
}
each_set = pytest.mark.parametrize(("make", "size"), SETS.values(), ids=SETS.keys())


def fingerprint(points):
    return hashlib.sha256(np.ascontiguousarray(points).tobytes()).hexdigest()


def busiest_hundredth(points):
    """Share of the points in the fullest 100 of 100 by 100 cells."""
    counts = np.histogram2d(*points.T, bins=100, range=[[0, 1], [0, 1]])[0].ravel()
    return np.sort(counts)[-100:].sum() / len(points)


@each_set
def test_size_type_and_range(make, size):
    points = make()
    assert points.shape == (size, 2)
    assert points.dtype == np.float64
    assert points.min() >= 0
    assert points.max() < 1


@pytest.mark.parametrize(("make", "size"), [SETS["world"], SETS["indoor"]], ids=["world", "indoor"])
def test_same_seed_same_points_even_when_nothing_is_remembered(make, size):
    first = fingerprint(make(5))
    twitter._world.cache_clear()
    twitter._cities.cache_clear()
    assert fingerprint(make(5)) == first
    other = make(6)
    assert len(other) == size
    assert fingerprint(other) != first


def test_north_america_is_the_crop_of_the_world():
    lon, lat = datasets.twitter_like_world(3, normalised=False).T
    inside = (lon >= -126) & (lon < -66) & (lat >= 24) & (lat < 52)
    crop = datasets.twitter_like_north_america(3, normalised=False)
    np.testing.assert_array_equal(crop, np.column_stack([lon, lat])[inside])
    np.testing.assert_allclose(datasets.twitter_like_north_america(3), (crop - [-126, 24]) / [60, 28])


def test_clumpiness():
    assert busiest_hundredth(datasets.twitter_like_world()) > 0.85
    # the real hashtags of the registry: 0.62 in the same box; the real tags indoors: 0.26 for a tenth of them
    assert 0.45 < busiest_hundredth(datasets.twitter_like_north_america()) < 0.7
    assert 0.2 < busiest_hundredth(datasets.indoor_like()) < 0.35


def test_indoor_labels():
    table = datasets.indoor_like(with_labels=True)
    assert list(table.columns) == ["person", "sequence", "tag", "t", "x", "y"]
    assert table.person.nunique() == 5
    assert table.groupby("person").sequence.nunique().eq(5).all()
    assert (table.sequence.str[0] == table.person).all()
    assert sorted(table.tag.unique()) == sorted(indoor.TAGS)
    assert table.groupby("sequence", sort=False).t.is_monotonic_increasing.all()
    np.testing.assert_allclose(table[["x", "y"]].to_numpy() / indoor.ROOM, datasets.indoor_like())


def test_indoor_tags_move_continuously():
    table = datasets.indoor_like(with_labels=True)
    chest = table[table.tag == "chest"]
    step = chest.groupby("sequence")[["x", "y", "t"]].diff().dropna()
    length = np.hypot(step.x, step.y)
    assert length.median() < 0.12  # metres, the sensor's error included
    assert step.t.median() == pytest.approx(0.108)  # as in the real data
