"""Queries that are no boxes, such as regions, with the cells around each: many are worked on at once.

Queries of about one size are worked on together, each as the dense box around it: to treat all cells alike takes less
time than to find the cells at the rim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.space.workloads.cover import RegionCover, counted

Field = NDArray[np.float64]
Index = NDArray[np.int64]
#: Cells of the boxes around queries that are looked at a time: what is worked out stays near the processor.
_AT_A_TIME = 1 << 16
#: Boxes whose widths are in one of so many classes, for each doubling, are worked on together.
_CLASSES = 8


def surroundings(work: RegionCover | scipy.sparse.csr_array, shape: tuple[int, ...]) -> Iterator[Around]:
    """Yield queries on a grid of `shape`, of about one size at a time, each with its surroundings.

    Parameters
    ----------
    work : regions on that grid, or rows (m, cells of `shape`).
    """
    cover = work if isinstance(work, RegionCover) else RegionCover.of_rows(work, shape)
    low, high = np.zeros((2, cover.number, 2), dtype=np.int64)
    low[...] = shape
    place = np.column_stack([cover.x, cover.y])
    for owner, start, end in ((cover.owner, place, place + 1), (cover.whole, cover.low, cover.high)):
        begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
        if len(some := owner[begins]):
            low[some] = np.minimum(low[some], np.minimum.reduceat(start, begins))
            high[some] = np.maximum(high[some], np.maximum.reduceat(end, begins))
    low = np.minimum(low, high)
    ends = [np.searchsorted(owner, np.arange(cover.number + 1)) for owner in (cover.owner, cover.whole)]
    # A box has a rim of nothing, one cell wide, so that every neighbour of a cell is there.
    wide, tall = (high - low + 2).T
    order = np.lexsort((tall, np.floor(_CLASSES * np.log2(wide))))
    wide, tall = wide[order], tall[order]
    here = 0
    while here < len(order):
        # As many as there is room for, each in a box as large as the largest needs.
        rest = slice(here, here + max(1, _AT_A_TIME // int(wide[here] * tall[here])))
        sizes = np.maximum.accumulate(wide[rest]) * np.maximum.accumulate(tall[rest])
        fit = max(1, int(np.searchsorted(sizes * np.arange(1, len(sizes) + 1), _AT_A_TIME, side="right")))
        some, own = order[here : here + fit], slice(here, here + fit)
        shares = _dense(cover, some, low[some], ends, wide[own].max(), tall[own].max())
        yield Around(some, shares, low[some], high[some], shape)
        here += fit


def _dense(cover: RegionCover, some: Index, low: Index, ends: Sequence[Index], wide: int, tall: int) -> Field:
    """Return shares of the cells in a box around each of some queries (queries, wide, tall)."""
    out = np.zeros((len(some), wide, tall))
    box = out.reshape(-1)
    query, place = _listed(ends[1], some)
    corners = np.hstack([query[:, None], cover.low[place] - low[query] + 1, cover.high[place] - low[query] + 1])
    for each, west, south, east, north in corners.tolist():
        out[each, west:east, south:north] = 1.0
    query, place = _listed(ends[0], some)
    x, y = cover.x[place] - low[query, 0] + 1, cover.y[place] - low[query, 1] + 1
    box[(query * wide + x) * tall + y] = cover.share[place]
    return out


def _listed(ends: Index, some: Index) -> tuple[Index, Index]:
    """Return the owners, as numbers among some queries, and the places of their entries in a list sorted by owner."""
    number = ends[some + 1] - ends[some]
    query = np.repeat(np.arange(len(some)), number)
    return query, ends[some][query] + counted(number)


class Windows:
    """A table (k, places) whose parts around boxes are looked up, 0 off the grid."""

    def __init__(self, table: Field) -> None:
        # Before the first cell of a box is its rim; the largest box has another behind all places.
        self._padded = np.pad(table, ((0, 0), (1, table.shape[1] + 2)))

    def near(self, low: Index, size: int, first: Index | int = 0, number: int | None = None) -> Field:
        """Return the table at the places from the one before `low` on (queries, number, size), from row `first` on."""
        (across, along), wide = self._padded.strides, number or len(self._padded)
        shape = (len(self._padded) - wide + 1, self._padded.shape[1] - size + 1, wide, size)
        windows = np.ndarray(shape, np.float64, self._padded, strides=(across, along, across, along))
        return np.asarray(windows[first, low])


@dataclass(frozen=True, eq=False)
class Around:
    """Some queries on a grid of `shape`, by the shares of cells that they hold in boxes around them.

    Parameters
    ----------
    some : which queries (queries,). shares : of the cells of each box, with a rim of nothing (queries, wide, tall).
    low, high : the cells of each box within the rim (queries, 2); cells behind them make all boxes one size.
    """

    some: Index
    shares: Field
    low: Index
    high: Index
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.low)

    def differences(self, ahead: tuple[int, int], behind: tuple[int, int]) -> Field:
        """Return q(place + ahead) − q(place + behind) at the places of each box; 0 off the grid."""
        # One box follows the other, each with a rim of nothing: what lies beyond an end is a rim as well.
        one, other = (across * self.shares.shape[2] + along for across, along in (ahead, behind))
        flat, out = self.shares.ravel(), np.empty_like(self.shares)
        size = len(flat) - max(one, other)
        np.subtract(flat[one : one + size], flat[other : other + size], out=out.ravel()[:size])
        out.ravel()[size:] = 0.0
        return self.inside(out, *(axis for axis in (0, 1) if ahead[axis] != behind[axis]))

    def inside(self, values: Field, *axes: int) -> Field:
        """Return values of moves along axes, without moves that begin or end off the grid, or leave the box."""
        for axis in axes:
            view = values if axis == 0 else values.swapaxes(1, 2)
            view[np.flatnonzero(self.low[:, axis] == 0), 0] = 0.0
            ends = np.flatnonzero(self.high[:, axis] == self.shape[axis])
            size = self.high[:, axis] - self.low[:, axis]
            view[ends, size[ends]] = 0.0
            view[np.arange(len(self)), size + 1] = 0.0
            view[:, -1] = 0.0
        return values

    def between(self, left: Field, right: Field) -> Field:
        """Return leftᵀ Q right (queries, a, b) for each query Q, with left (nx, a), right (ny, b)."""
        rows, columns = (
            Windows(table.T).near(self.low[:, axis], self.shares.shape[1 + axis])
            for axis, table in enumerate((left, right))
        )
        return np.asarray(rows @ (self.shares @ columns.mT))
