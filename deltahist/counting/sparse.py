"""Counts of maps that outgrow memory: the cells that are not empty, and how many points each of them has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.private import Private, Unshown
from deltahist.errors import InputError
from deltahist.preprocessing import Preprocessing
from deltahist.space.domain import Domain

Integers = NDArray[np.int64]
#: Pairs of cells and numbers that wait, at least, before they are merged with the others.
_WAITING = 1 << 21


class SparseCounts(Unshown):
    """Counts of people on a map of more than 4096² cells, in memory that grows with the full cells alone. Private.

    As `Private`, it knows how it was made: `counting`, on which `domain`. `publish` takes it; printing never shows its
    figures.

    Parameters
    ----------
    cells, numbers : (m,) flat cells that are not empty, rising, and the number of points in each.

    >>> import deltahist as dh
    >>> counts = dh.count([[0.5, 0.5], [0.5, 0.5], [4999.5, 2.5]], dh.Domain((0, 0, 5000, 5000), (5000, 5000)))
    >>> counts, counts.sum(), counts.slab(slice(0, 2))[0, :3].tolist()
    (SparseCounts(private: not shown), 3, [2, 0, 0])
    """

    def __init__(self, cells: Integers, numbers: Integers, domain: Domain, counting: Preprocessing) -> None:
        self.domain, self.counting = domain, counting
        self._cells, self._numbers = cells, numbers
        for each in (cells, numbers):
            each.flags.writeable = False

    def __array__(self, *how: Any, **more: Any) -> NDArray[Any]:
        raise InputError(
            f"counts of {self.domain.size:,} cells are kept for full cells alone: all of them would need more memory "
            "than is taken for granted; `slab` has those of some columns of cells"
        )

    def sum(self) -> int:
        """Return the number of points."""
        return int(self._numbers.sum())

    def slab(self, x: slice) -> Integers:
        """Return the counts (cells along x, ny) of all cells in some columns of cells."""
        height = self.domain.shape[1]
        first, last = np.searchsorted(self._cells, (x.start * height, x.stop * height))
        found = np.zeros((x.stop - x.start) * height, dtype=np.int64)
        found[self._cells[first:last] - x.start * height] = self._numbers[first:last]
        return found.reshape(-1, height)


class SparseTally:
    """Numbers of points by cell that grow by batches, in memory that grows with the full cells alone."""

    def __init__(self) -> None:
        self._cells = self._numbers = np.zeros(0, dtype=np.int64)
        self._parts: list[tuple[Integers, Integers]] = []
        self._waiting = 0

    def add(self, cells: Integers, number: Integers | int = 1) -> None:
        """Count points, or numbers of them, by their flat cells."""
        if isinstance(number, int):  # many times as fast as with numbers of their own
            different, times = np.unique(cells, return_counts=True)
            part = different, times * number
        else:
            part = _merged([(cells, number)])
        self._parts.append(part)
        self._waiting += len(part[0])
        # As many as there are: merging takes as long as all batches did, whatever their number.
        if self._waiting > max(_WAITING, len(self._cells)):
            self._merge()

    def pairs(self) -> tuple[Integers, Integers]:
        """Return the cells that are not empty, rising, and the number of points in each (m,)."""
        self._merge()
        return self._cells, self._numbers

    def _merge(self) -> None:
        self._cells, self._numbers = _merged([(self._cells, self._numbers), *self._parts])
        self._parts, self._waiting = [], 0


def _merged(parts: list[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
    """Return cells without repetition, rising, and the sums of their numbers; those with none are left out."""
    cells, numbers = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(cells, kind="stable")
    cells, numbers = cells[order], numbers[order]
    first = np.flatnonzero(np.diff(cells, prepend=-1))
    sums = np.add.reduceat(numbers, first) if len(first) else numbers
    full = sums > 0
    return cells[first][full], sums[full]


def slab_of(counts: Private | SparseCounts | NDArray[Any], x: slice) -> Integers:
    """Return the counts (cells along x, ny) of some columns of cells, of either kind."""
    if isinstance(counts, SparseCounts):
        return counts.slab(x)
    return np.asarray(counts[x]).astype(np.int64, copy=False)
