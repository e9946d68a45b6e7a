"""Sums over cut cells against the cells one by one."""

import numpy as np
import pytest

from deltahist.releases.histogram import Rims
from deltahist.space.workloads import BoxCover


@pytest.mark.parametrize("most", [1 << 20, 90])  # blocks of one cell, and of nine, the last of which is not whole
@pytest.mark.parametrize("shape", [(13, 31), (3, 40), (17,)])
def test_sums_over_cut_cells_are_those_of_all_cells(shape, most, monkeypatch):
    monkeypatch.setattr("deltahist.releases.histogram._MOST", most)
    monkeypatch.setattr("deltahist.releases.histogram._CELLS_AT_A_TIME", 100)
    rng, ndim = np.random.default_rng(6), len(shape)
    fields = rng.normal(size=(ndim + 2, *shape))
    low, high = np.sort(rng.uniform(0, shape, (2, 300, ndim)), axis=0)
    low[:60, 0], high[:90, -1] = np.floor(low[:60, 0]), np.ceil(high[:90, -1])
    high[90:150] = np.minimum(high[90:150], np.floor(low[90:150]) + 1)  # within one cell
    low[150:180, 0], high[150:180, 0] = 0, shape[0]
    cover = BoxCover(tuple(zip(low.T, high.T, strict=True)))
    rims = Rims(lambda chosen: [field[chosen] for field in fields], shape)
    found = rims.sum_over(cover)
    for number in range(len(low)):
        inside = [
            [np.clip(end[number, a], np.arange(n), np.arange(n) + 1) for end in (low, high)]
            for a, n in enumerate(shape)
        ]
        along = [b - a for a, b in inside]
        centroid = [a + b - 2 * np.arange(n) - 1 for (a, b), n in zip(inside, shape, strict=True)]
        share = along[0] if ndim == 1 else np.multiply.outer(*along)
        expected = [np.zeros(1), *((share * (1 - share) * u).sum() for u in fields[ndim:])]
        for axis in range(ndim):
            lean = share * (centroid[axis] if ndim == 1 else np.expand_dims(centroid[axis], 1 - axis))
            expected[0] = expected[0] + (lean * fields[axis]).sum()
        assert found[:, number] == pytest.approx(np.hstack(expected), abs=1e-9)
        (alone,) = rims.sum_over(cover[number : number + 1]).T
        assert np.array_equal(found[:, number], alone)
