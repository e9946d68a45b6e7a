"""Intervals along an axis as shares of a first cell and of a last one, and all cells between."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Edges (m,) with weights (m,): an interval is the sum of all that lies before each, times its weight.
Edges: TypeAlias = Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Intervals [low, high) in cells.

    Parameters
    ----------
    first, last : (m,) cells that they begin and end in.
    before : (m,) share of the first cell that lies before them.
    head, tail : (m,) shares of the first and of the last cell that they hold; where both are one, the head is all, and
        the tail 1.
    whole : whether no interval cuts a cell.

    >>> pieces = Pieces.of(np.array([0.25]), np.array([2.5]))
    >>> [(edge.tolist(), weight.tolist()) for edge, weight in pieces.edges]
    [([0], [-0.75]), ([1], [-0.25]), ([2], [0.5]), ([3], [0.5])]
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    before: NDArray[np.float64]
    head: NDArray[np.float64]
    tail: NDArray[np.float64]
    whole: bool

    @classmethod
    def of(cls, low: NDArray[np.float64], high: NDArray[np.float64]) -> Self:
        """Make the pieces of intervals (m,)."""
        first, behind = np.floor(low), np.ceil(high)
        if (first == low).all() and (behind == high).all():
            ones = np.ones(len(low))
            return cls(first.astype(np.int64), behind.astype(np.int64) - 1, low - first, ones, ones, True)
        last = behind - 1
        head, tail = np.minimum(high, first + 1) - low, np.where(last > first, high - last, 1.0)
        return cls(first.astype(np.int64), last.astype(np.int64), low - first, head, tail, False)

    @property
    def apart(self) -> NDArray[np.bool_]:
        """Whether the first and the last cell are two (m,)."""
        return self.last > self.first

    @functools.cached_property
    def edges(self) -> Edges:
        """Two edges with their weights, or four if any interval cuts a cell."""
        if self.whole:
            return [(self.first, -self.head), (self.last + 1, self.tail)]
        apart = self.apart
        return [
            (self.first, -self.head),
            (self.first + 1, self.head - apart),
            (self.last, (1 - self.tail) * apart),
            (self.last + 1, self.tail * apart),
        ]
