"""Private numbers that know how they were made, so that whoever publishes them cannot forget it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.preprocessing import Preprocessing
from deltahist.space.domain import Domain

Integers = NDArray[np.int64]
#: Cells up to which numbers of points are kept for all of them while rows are read.
_FEW = 1 << 22
#: Pairs of cells and numbers that wait, at least, before they are merged with the others.
_WAITING = 1 << 21


class Unshown:
    """Base of objects with private figures, which printing never shows: notebooks are handed on."""

    #: Arithmetic by NumPy is refused: its result would not know how many points of a user it holds.
    __array_ufunc__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private: not shown)"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype=dtype, copy=copy)  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False, repr=False)
class Counts(Unshown):
    """Numbers of points by cell, and how they were made. Private; printing never shows the numbers.

    Parameters
    ----------
    numbers : int64, of all cells (domain.shape), or of `cells` alone.
    domain, preprocessing : of which cells, and how rows became counts.
    cells : flat cells that `numbers` are of, rising; the others are empty. None if they are of all.

    >>> counts = Counts(np.array([3, 4]), Domain((0, 1), (2,)), Preprocessing(contributions=2))
    >>> counts, counts.sum(), counts.array.tolist()
    (Counts(private: not shown), 7, [3, 4])
    """

    numbers: Integers
    domain: Domain
    preprocessing: Preprocessing
    cells: Integers | None = None

    @property
    def array(self) -> Integers:
        """The counts of all cells (domain.shape), axis 0 is x; made anew at each look if full cells alone are kept."""
        if self.cells is None:
            return self.numbers
        found = np.zeros(self.domain.size, dtype=np.int64)
        found[self.cells] = self.numbers
        return found.reshape(self.domain.shape)

    def sum(self) -> int:
        """Return the number of points."""
        return int(self.numbers.sum())

    def tolist(self) -> Any:
        """Return the counts of all cells as lists."""
        return self.array.tolist()


@dataclass(frozen=True, eq=False, repr=False)
class Points(Unshown):
    """Points on a line, float64 (m,) on the domain's lattice, and how they were made. Private; never shown."""

    array: NDArray[np.float64]
    domain: Domain
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.array)


class Tally:
    """Numbers of rows by place, 0 ≤ place < size, that grow by batches: of all places, or of full ones alone."""

    def __init__(self, size: int) -> None:
        self._all = np.zeros(size, dtype=np.int64) if size <= _FEW else None
        self._parts = [(np.zeros(0, dtype=np.int64),) * 2]
        self._limit = _WAITING

    def add(self, places: Integers, numbers: Integers | int = 1) -> None:
        """Count rows, or numbers of them, by their places."""
        if self._all is not None:
            np.add.at(self._all, places, numbers)
            return
        self._parts.append(np.unique(places, return_counts=True) if isinstance(numbers, int) else (places, numbers))
        if sum(len(part[0]) for part in self._parts) > self._limit:
            # Twice as many as there are: merging takes as long as all batches did, whatever their number.
            self._limit = 2 * len(self.pairs()[0]) + _WAITING

    def pairs(self) -> tuple[Integers, Integers]:
        """Return the places that are not empty, rising, and the number of rows in each (m,)."""
        if self._all is not None:
            places = np.flatnonzero(self._all)
            return places, self._all[places]
        self._parts = [merged(*(np.concatenate(each) for each in zip(*self._parts, strict=True)))]
        return self._parts[0]


def merged(places: Integers, numbers: Integers) -> tuple[Integers, Integers]:
    """Return places without repetition, rising, and the sums of their numbers; those with none are left out."""
    places, inverse = np.unique(places, return_inverse=True)
    sums = np.zeros(len(places), dtype=np.int64)
    np.add.at(sums, inverse, numbers)
    return places[sums > 0], sums[sums > 0]


class UserBound:
    """Keeps at most `most` points of each user: those with the smallest random numbers, one for each row.

    The numbers come from the system's entropy, and from nothing else, so that points that move change no choice: K
    points of one user cost K times one point (docs/privacy/histogram.md). Rows must be given before any are left out
    for where they are. Of equal numbers the row that came first stays.

    >>> bound = UserBound(2)
    >>> bound.add(np.array([7, 8, 7, 7]), np.array([10, 20, 11, 12]))
    >>> users, places = bound.kept()
    >>> users, len(places), 20 in places
    (2, 3, True)
    """

    def __init__(self, most: int) -> None:
        from deltahist.noise.exact import KeyStream

        self.most = most
        self._draw = KeyStream().words
        #: Users, random numbers and places of the rows that may stay, in parts.
        self._parts: list[tuple[NDArray[Any], ...]] = []
        self._limit = _WAITING

    def add(self, users: NDArray[Any], places: Integers) -> None:
        """Take a batch: whose the rows are, as whole numbers, and their places."""
        self._parts.append((users, self._draw(len(users)), places))
        if sum(len(part[0]) for part in self._parts) > self._limit:
            self._thin()
            self._limit = 2 * len(self._parts[0][0]) + _WAITING

    def kept(self) -> tuple[int, Integers]:
        """Return the number of users, and the places of the rows that stay."""
        if not self._parts:
            return 0, np.zeros(0, dtype=np.int64)
        self._thin()
        users, _, places = self._parts[0]
        return len(np.unique(users)), places

    def _thin(self) -> None:
        users, drawn, places = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((drawn, users))
        ranked = users[order]
        stay = order[np.arange(len(order)) - np.searchsorted(ranked, ranked) < self.most]
        stay.sort()  # rows that came first stay first
        self._parts = [(users[stay], drawn[stay], places[stay])]
