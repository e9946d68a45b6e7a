"""Counts of full cells alone: the same numbers as counts of all cells."""

from __future__ import annotations

import numpy as np

from deltahist.counting import sparse
from deltahist.counting.sparse import SparseTally


def test_batches_are_merged_whatever_their_order(monkeypatch) -> None:
    monkeypatch.setattr(sparse, "_WAITING", 7)
    rng, expected, tally = np.random.default_rng(5), np.zeros(600, dtype=np.int64), SparseTally()
    for _ in range(30):
        cells = rng.integers(0, 600, rng.integers(0, 20))
        tally.add(cells)
        np.add.at(expected, cells, 1)
        distinct = np.unique(cells)
        numbers = rng.integers(0, 5, len(distinct))
        tally.add(distinct, numbers)
        expected[distinct] += numbers
    cells, numbers = tally.pairs()
    assert np.array_equal(cells, np.flatnonzero(expected))
    assert np.array_equal(numbers, expected[cells])
