"""Counts of the cells that are not empty, and how many points each of them has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
#: Pairs of cells and numbers that wait, at least, before they are merged with the others.
_WAITING = 1 << 21


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
