"""How queries lie on the cells: which share of each cell they hold, and where in the cell that share lies."""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from deltahist.workloads.sums import Span, aligned_spans, box_sums, prefix_sums, sums_between

Field: TypeAlias = NDArray[np.float64]
#: Consecutive cells of each query along an axis: first (m,), stop (m,), their share (m,) and where it lies (m,).
_Piece: TypeAlias = tuple[Field, Field, Field, Field]


class Cover(abc.ABC):
    """What m queries hold of the cells: f is the share of a cell inside a query, 0 outside.

    Fields are arrays of the domain's shape; every sum is (m,), over all cells. `cut` (m,) says which queries cut
    cells.
    """

    cut: NDArray[np.bool_]

    @abc.abstractmethod
    def shares(self, field: Field) -> Field:
        """Σ f · field."""

    @abc.abstractmethod
    def squares(self, field: Field) -> Field:
        """Σ f² · field."""

    @abc.abstractmethod
    def moments(self, field: Field, axis: int) -> Field:
        """Σ f ξ · field, ξ the centroid of the part inside, from the cell's centre, in half cells along an axis."""

    @abc.abstractmethod
    def whole(self, field: Field) -> Field:
        """Sum over the cells that lie inside altogether."""

    @abc.abstractmethod
    def touched(self, field: Field) -> Field:
        """Sum over all cells of which some lies inside."""


@dataclass(frozen=True, eq=False)
class RowCover(Cover):
    """Queries as sparse rows.

    Parameters
    ----------
    rows : (m, N) shares above 0.
    places : along each axis f ξ of every share in `rows.data`.
    """

    rows: scipy.sparse.csr_array
    places: tuple[Field, ...]

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:  # type: ignore[override]
        before = np.concatenate([[0], np.cumsum(self.rows.data < 1)])
        return np.asarray(np.diff(before[self.rows.indptr]) > 0)

    def shares(self, field: Field) -> Field:
        return self._sum(self.rows.data, field)

    def squares(self, field: Field) -> Field:
        return self._sum(self.rows.data**2, field)

    def moments(self, field: Field, axis: int) -> Field:
        return self._sum(self.places[axis], field)

    def whole(self, field: Field) -> Field:
        return self._sum((self.rows.data == 1).astype(np.float64), field)

    def touched(self, field: Field) -> Field:
        return self._sum(np.ones_like(self.rows.data), field)

    def _sum(self, data: Field, field: Field) -> Field:
        rows = scipy.sparse.csr_array((data, self.rows.indices, self.rows.indptr), shape=self.rows.shape)
        return np.asarray(rows @ field.ravel())


@dataclass(frozen=True, eq=False)
class BoxCover(Cover):
    """Boxes, by prefix sums: along each axis at most a first and a last cell are cut, and those between are whole.

    Parameters
    ----------
    spans : along each axis, in cells.
    """

    spans: tuple[Span, ...]

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:  # type: ignore[override]
        return ~aligned_spans(self.spans)

    def shares(self, field: Field) -> Field:
        return box_sums(field, self.spans)

    def squares(self, field: Field) -> Field:
        return self._sum(field, lambda axis, share, place: share**2)

    def moments(self, field: Field, axis: int) -> Field:
        return self._sum(field, lambda along, share, place: share * place if along == axis else share)

    def whole(self, field: Field) -> Field:
        return self._sum(field, lambda axis, share, place: (share == 1).astype(np.float64))

    def touched(self, field: Field) -> Field:
        return box_sums(field, [(np.floor(low), np.ceil(high)) for low, high in self.spans])

    def _sum(self, field: Field, weight: Callable[[int, Field, Field], Field]) -> Field:
        """Sum of a field over all products of pieces, each weighted by its own factor along every axis."""
        total = prefix_sums(field)
        out = np.zeros(len(self.spans[0][0]))
        for pieces in itertools.product(*self._pieces):
            factor = math.prod(weight(axis, share, place) for axis, (_, _, share, place) in enumerate(pieces))
            out += factor * sums_between(total, [(first, stop) for first, stop, _, _ in pieces])
        return out

    @functools.cached_property
    def _pieces(self) -> list[list[_Piece]]:
        return [list(_pieces_of(*span)) for span in self.spans]


def _pieces_of(low: Field, high: Field) -> Iterator[_Piece]:
    """The first cell of each interval, the whole cells after it, and the last one if it is another."""
    first, last = np.floor(low), np.ceil(high) - 1
    end = np.minimum(high, first + 1)
    yield first, first + 1, end - low, low + end - 2 * first - 1
    ones, zeros = np.ones(len(low)), np.zeros(len(low))
    yield first + 1, np.maximum(last, first + 1), ones, zeros
    share = high - last
    yield last, np.where(last > first, last + 1, last), share, share - 1
