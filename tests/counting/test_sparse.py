"""Counts of large maps: the same numbers as counts of all cells, and never shown."""

from __future__ import annotations

import pickle

import duckdb
import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.counting import sparse
from deltahist.counting.arrays import Tally
from deltahist.counting.sparse import SparseCounts, slab_of
from deltahist.space import domain as space

DOMAIN = dh.Domain((0, 0, 20, 30), (20, 30))


@pytest.fixture
def points() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.random(3000) * 20, "y": rng.random(3000) * 9, "id": rng.integers(0, 400, 3000)})
    return frame.astype({"id": str})


@pytest.mark.parametrize("way", ["array", "csv", "parquet", "duckdb"])
@pytest.mark.parametrize("bounded", [False, True])
def test_large_maps_have_the_counts_of_all_cells(points, way, bounded, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sparse, "_WAITING", 100)
    users = {"user": "id", "max_per_user": 2, "key": bytes(32)} if bounded else {}

    def counted():
        if way == "array":
            given = {**users, "user": points["id"]} if bounded else {}
            return dh.count(points[["x", "y"]], DOMAIN, **given)
        if way == "duckdb":
            with duckdb.connect() as database:
                database.register("frame", points)
                database.execute("CREATE TABLE visits AS FROM frame")
                return dh.count_table("visits", DOMAIN, database=database, x="x", y="y", **users).counts
        file = tmp_path / f"points.{way}"
        points.to_csv(file, index=False) if way == "csv" else points.to_parquet(file)
        read = dh.count_file(file, DOMAIN, x="x", y="y", **users)
        assert read.kept == read.counts.sum()
        return read.counts

    whole = counted()
    monkeypatch.setattr(space, "MOST_WHOLE", 599)
    found = counted()
    assert isinstance(found, SparseCounts)
    assert (found.counting, found.domain) == (whole.counting, DOMAIN)
    assert found.sum() == whole.sum()
    for part in (slice(0, 20), slice(3, 4), slice(19, 20), slice(5, 5)):
        assert np.array_equal(slab_of(found, part), np.asarray(whole)[part])
        assert np.array_equal(slab_of(whole, part), np.asarray(whole)[part])


def test_batches_are_merged_whatever_their_order(monkeypatch) -> None:
    monkeypatch.setattr(space, "MOST_WHOLE", 599)
    monkeypatch.setattr(sparse, "_WAITING", 7)
    rng, expected, tally = np.random.default_rng(5), np.zeros(600, dtype=np.int64), Tally(DOMAIN)
    for _ in range(30):
        cells = rng.integers(-1, 600, rng.integers(0, 20))
        tally.add(cells)
        np.add.at(expected, cells[cells >= 0], 1)
        distinct = np.unique(cells[cells >= 0])
        numbers = rng.integers(0, 5, len(distinct))
        tally.add(distinct, numbers)
        expected[distinct] += numbers
    counts = tally.private(dh.count(np.zeros((0, 2)), DOMAIN).counting)
    assert np.array_equal(slab_of(counts, slice(0, 20)).ravel(), expected)


def test_figures_are_not_shown_and_not_spread_over_all_cells(monkeypatch) -> None:
    monkeypatch.setattr(space, "MOST_WHOLE", 599)
    counts = dh.count([[0.5, 0.5], [0.5, 0.5]], DOMAIN)
    assert [repr(counts), str(counts), f"{counts}"] == ["SparseCounts(private: not shown)"] * 3
    messages = set()
    for each in (counts, dh.count(np.zeros((0, 2)), DOMAIN)):
        with pytest.raises(dh.InputError, match="kept for full cells alone") as refusal:
            np.asarray(each)
        messages.add(str(refusal.value))
    assert len(messages) == 1  # nothing of it is about the points
    assert pickle.loads(pickle.dumps(counts)).sum() == 2


def test_maps_up_to_4096_squared_are_held_whole() -> None:
    side = dh.Domain((0, 0, 1, 1), (4096, 4096))
    assert not side.is_large
    assert dh.Domain((0, 0, 1, 1), (4096, 4097)).is_large
    assert not dh.Domain((0, 1), (1 << 30,)).is_large
