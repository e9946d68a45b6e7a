"""Closed forms of variances: quadratic forms over the edges of an axis, and functions of intervals.

An interval q is a difference of prefixes, q = Σ_e w_e P_e with P_e all cells before edge e, so that a variance
qᵀ V q is wᵀ G w with G_ef = P_eᵀ V P_f. A form gives single entries of G, its trace and wᵀ G w. Where many
intervals are asked for, the forms of all intervals between two edges are tabulated once (`Between`). The variance of
a box is a sum of products of one feature per axis (`Feature`), or of features of boxes (`Joint`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.space.workloads import Span
from deltahist.space.workloads.pieces import Edges, Pieces
from deltahist.space.workloads.sums import prefix_sums, sums_between

#: Numbers in a table that is kept, at most (half a gigabyte).
MOST_KEPT = 1 << 26
#: A call takes as long without a table as this many intervals.
A_CALL = 8
#: Numbers that are worked out at a time on the way to a table.
_AT_A_TIME = 1 << 20
#: Tables of fourth powers cost four times as much; kurtosis is a small correction on finer grids.
MOST_FOURTH = 1024


class Form:
    """A symmetric matrix G (m + 1, m + 1) over edges; subclasses give `entries` and `whole`, and may know more."""

    #: Edges, m + 1.
    size: int
    #: Multiplications that one interval takes; 0 where a table would be slower.
    work: int = 0

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return G_ij, one by one."""
        raise NotImplementedError

    def rows(self, first: int, stop: int) -> NDArray[np.float64]:
        """Return G from row `first` to the one before `stop`."""
        i, j = np.divmod(np.arange(first * self.size, stop * self.size), self.size)
        return self.entries(i, j).reshape(stop - first, self.size)

    def whole(self, weight: NDArray[np.float64]) -> float:
        """Return wᵀ G w."""
        raise NotImplementedError

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        """Return wᵀ G w (m,) of intervals between any places, in edges."""
        edges, out = intervals.edges, np.zeros(len(intervals.first))
        for a, (i, v) in enumerate(edges):
            for b, (j, w) in enumerate(edges[: a + 1]):
                out += (1.0 if a == b else 2.0) * v * w * self.entries(i, j)
        return out

    def trace(self) -> float:
        """Return Σ_e G_ee."""
        edge = np.arange(self.size)
        return float(self.entries(edge, edge).sum())


class Overlap(Form):
    """min(s_i, s_j) for sums s that do not fall: what two prefixes of independent parts have in common."""

    def __init__(self, sums: NDArray[np.float64]) -> None:
        self.sums, self.size = sums, len(sums)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.sums[np.minimum(i, j)]

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        far = self.sums[intervals.last + 1]
        near = self.sums[intervals.first]
        if intervals.whole:
            return far - near
        after, before = self.sums[intervals.first + 1], self.sums[intervals.last]
        apart = (before - after) + intervals.tail**2 * (far - before)
        return intervals.head**2 * (after - near) + np.where(intervals.apart, apart, 0.0)

    def whole(self, weight: NDArray[np.float64]) -> float:
        # min(s_i, s_j) = Σ of the steps of s up to the lower edge; each step is in all pairs from its edge on.
        later = np.cumsum(weight[::-1])[::-1]
        return float(np.diff(self.sums, prepend=0.0) @ later**2)


class Between:
    """Numbers of all intervals between two edges, each a quadratic form of the interval.

    Parameters
    ----------
    size : edges. rows : gives the forms' entries G (stop - first, size, k) from row `first` to the one before `stop`.
    diagonal : their entries on the diagonal (size, k).
    """

    def __init__(
        self, rows: Callable[[int, int], NDArray[np.float64]], diagonal: NDArray[np.float64]
    ) -> None:
        size, k = diagonal.shape
        #: Interval (i, j) stands at `_start`[i] + j: row by row, empty ones (i, i) first.
        self._start = np.concatenate([[0], np.cumsum(np.arange(size - 1, 0, -1))])
        self._table = np.zeros((size * (size + 1) // 2, k))
        step = max(1, _AT_A_TIME // max(1, size * k))
        for first in range(0, size - 1, step):
            stop = min(first + step, size - 1)
            some = diagonal[first:stop, None] + diagonal - 2 * rows(first, stop)
            for own, i in zip(some, range(first, stop), strict=True):
                self._table[self._start[i] + i + 1 : self._start[i] + size] = own[i + 1 :]
        #: From each edge to the next: small, unlike the table, so that it stays near the processor.
        self._next = np.zeros((size, k))
        self._next[:-1] = self._table[self._start[:-1] + np.arange(1, size)]

    def of(self, intervals: Pieces, place: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Return the numbers of intervals between any places (m, k), in edges; `place` says which edges are alike."""
        ends = [intervals.first, intervals.first + 1, intervals.last, intervals.last + 1]
        near, after, before, far = ends if place is None else (place[end] for end in ends)
        if intervals.whole:
            return self._at(self._start[near] + far)
        head, tail = intervals.head, intervals.tail
        if place is None:
            return self._cut(ends, head, tail)
        out = self._at(self._start[near] + far)
        some = ((head < 1) & (near < after)) | ((tail < 1) & (before < far))
        out[some] = self._cut([end[some] for end in (near, after, before, far)], head[some], tail[some])
        return out

    def _cut(
        self, ends: Sequence[NDArray[np.int64]], head: NDArray[np.float64], tail: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the numbers of intervals that cut cells: bilinear between edges, but a share of a cell counts squared.

        Within one cell the tail is 1, so that what stands for an edge after the one behind it counts nothing.
        """
        near, after, before, far = ends
        low, high = self._start[near], self._start[after]
        a, b = head[:, None], tail[:, None]
        out = self._at(low + far)
        out *= a * b
        out += a * (1 - b) * self._at(low + before)
        out += (1 - a) * b * self._at(high + far)
        out += (1 - a) * (1 - b) * self._at(high + before)
        out -= a * (1 - a) * (near < after)[:, None] * np.take(self._next, near, axis=0)
        out -= b * (1 - b) * (before < far)[:, None] * np.take(self._next, before, axis=0)
        return out

    def _at(self, row: NDArray[np.int64]) -> NDArray[np.float64]:
        # An index in brackets takes rows ten times as long.
        return np.take(self._table, row, axis=0)


def weighted(rows: NDArray[np.float64], edges: Edges) -> NDArray[np.float64]:
    """Return Σ_e w_e · row e (m, k), of intervals by their edges."""
    return np.asarray(sum(weight[:, None] * np.take(rows, edge, axis=0) for edge, weight in edges))


class Feature:
    """A function of intervals [low, high) along an axis, in cells; one number for each interval."""

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        raise NotImplementedError

    def expect(self, number: int) -> None:
        """Make the tables that pay for this number of intervals."""
        return

    def mean(self, n: int) -> float:
        """Return the mean over all intervals of whole cells on an axis of n cells."""
        first, last = np.triu_indices(n)
        return float(self(first.astype(np.float64), last.astype(np.float64) + 1).mean())


class Joint:
    """A function of boxes that is no product over the axes; one number for each box."""

    def __call__(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        raise NotImplementedError

    def expect(self, number: int) -> None:
        """Make the tables that pay for this number of boxes."""
        return

    def mean(self, shape: tuple[int, ...]) -> float:
        """Return the mean over all boxes of whole cells on a grid of this shape."""
        raise NotImplementedError


@dataclass(frozen=True)
class BlockPower(Feature):
    """Σ over blocks of `width` cells of (length of the interval inside the block)^power."""

    width: int
    power: int

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        width, power = self.width, self.power
        if power == 1:
            return high - low
        first = np.floor(low / width)
        last = np.ceil(high / width) - 1
        same = (high - low) ** power
        cut = ((first + 1) * width - low) ** power + (high - last * width) ** power
        inner = np.maximum(last - first - 1, 0.0) * float(width) ** power
        # An interval that is empty begins where it ends.
        return np.where(first >= last, same, cut + inner)

    def mean(self, n: int) -> float:
        if self.power == 1:
            return (n + 2) / 3
        if self.power != 2:
            return super().mean(n)
        # Cells i ≤ j lie both in (i + 1)(n − j) of the intervals; pairs within a block count.
        cell = np.arange(n)
        start = cell // self.width * self.width
        upto = np.concatenate([[0.0], np.cumsum(cell + 1.0)])
        pairs = 2 * (n - cell) * (upto[1:] - upto[start]) - (n - cell) * (cell + 1.0)
        return float(pairs.sum()) / (n * (n + 1) / 2)


@dataclass(frozen=True)
class Times(Feature):
    """The product of two features of one interval."""

    one: Feature
    other: Feature

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.one(low, high) * self.other(low, high)


@dataclass(frozen=True, eq=False)
class Mixed(Feature):
    """Σ over cells of q^own · q̄^mean, for an interval q and q̄ its mean over each cell's block.

    Parameters
    ----------
    edges : first cell of every block, and the number of cells at the end.
    own, mean_power : the two powers, own at least one.
    """

    edges: NDArray[np.int64]
    own: int
    mean_power: int

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        first = np.searchsorted(self.edges, low, side="right") - 1
        last = np.searchsorted(self.edges, high, side="left") - 1
        begin, middle, end = self.edges[first], self.edges[np.minimum(first + 1, last)], self.edges[last]
        same = self._part(low, high, begin, self.edges[first + 1])
        apart = self._part(low, self.edges[first + 1].astype(np.float64), begin, self.edges[first + 1])
        apart = apart + (end - middle) + self._part(end.astype(np.float64), high, end, self.edges[last + 1])
        return np.where(first == last, same, apart)

    def _part(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return the sum over one block, inside which the interval lies."""
        return BlockPower(1, self.own)(low, high) * ((high - low) / (end - begin)) ** self.mean_power


class Forms:
    """Quadratic forms of an interval along one axis, in one table where many intervals are asked for.

    Parameters
    ----------
    forms : (k,) over the m + 1 edges of a row of blocks.
    edges : where each cell edge lies among the blocks, in blocks (n + 1,); None if blocks are cells.
    """

    def __init__(self, forms: Sequence[Form], edges: NDArray[np.float64] | None = None) -> None:
        self.forms, self.edges, self._asked = forms, edges, 0

    def expect(self, number: int) -> None:
        """Make the table if it pays for all intervals that were ever asked for, and is not too large."""
        self._asked += max(number, A_CALL)
        pairs = self.forms[0].size ** 2 // 2
        work = sum(form.work for form in self.forms)
        if pairs < self._asked * work and pairs * len(self.forms) < MOST_KEPT:
            self._between  # noqa: B018

    @functools.cached_property
    def _between(self) -> Between:
        every = np.arange(self.forms[0].size)
        diagonal = np.stack([form.entries(every, every) for form in self.forms], axis=-1)
        return Between(lambda *rows: np.stack([form.rows(*rows) for form in self.forms], axis=-1), diagonal)

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the forms of intervals [low, high) in cells (m, k)."""
        if self.edges is not None:
            cell = np.arange(len(self.edges))
            low, high = np.interp(low, cell, self.edges), np.interp(high, cell, self.edges)
        intervals = Pieces.of(low, high)
        if "_between" in self.__dict__:
            return self._between.of(intervals)
        return np.stack([form.of(intervals) for form in self.forms], axis=-1)

    def means(self, n: int) -> NDArray[np.float64]:
        """Return the means over all intervals of whole cells on an axis of n cells (k,)."""
        return np.array([self._mean(form, n) for form in self.forms])

    def _mean(self, form: Form, n: int) -> float:
        # Σ_{i<j} (G_ii + G_jj − 2 G_ij) over n + 1 edges, G between the edges of cells
        if self.edges is None:
            own, whole = form.trace(), form.whole(np.ones(n + 1))
        else:
            place = self.edges.astype(np.int64)
            share, after = self.edges - place, np.minimum(place + 1, form.size - 1)
            each = (1 - share) ** 2 * form.entries(place, place) + share**2 * form.entries(after, after)
            own = float((each + 2 * share * (1 - share) * form.entries(place, after)).sum())
            size = form.size
            whole = form.whole(np.bincount(place, 1 - share, size) + np.bincount(after, share, size).astype(float))
        return ((n + 1) * own - whole) / (n * (n + 1) / 2)


@dataclass(frozen=True, eq=False)
class Quadratic(Feature):
    """One of the `Forms`, by itself."""

    forms: Forms

    @classmethod
    def of(cls, form: Form, edges: NDArray[np.float64] | None = None) -> Quadratic:
        """Return the feature of a form over edges of blocks."""
        return cls(Forms([form], edges))

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.forms(low, high)[:, 0]

    def expect(self, number: int) -> None:
        self.forms.expect(number)

    def mean(self, n: int) -> float:
        return float(self.forms.means(n)[0])


@dataclass(frozen=True, eq=False)
class Bilinear(Joint):
    """Σ_ij C_ij f_i(x) g_j(y) for forms f and g along the axes.

    Parameters
    ----------
    axes : f and g; one and the same where they are equal. weights : C.
    """

    axes: tuple[Forms, Forms]
    weights: NDArray[np.float64]

    def __call__(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        f, g = (forms(*span) for forms, span in zip(self.axes, spans, strict=True))
        return np.einsum("mj,mj->m", f @ self.weights, g)

    def expect(self, number: int) -> None:
        for forms in self.axes:
            forms.expect(number)

    def mean(self, shape: tuple[int, ...]) -> float:
        f, g = (forms.means(n) for forms, n in zip(self.axes, shape, strict=True))
        return float(f @ self.weights @ g)


class PublicTotal:
    """(qᵀV1)² / (1ᵀV1): the variance that a public total takes away from an answer q, V the cells' covariance.

    Parameters
    ----------
    along : V1 (domain.shape), the covariance of every cell with the total.
    """

    def __init__(self, along: NDArray[np.float64]) -> None:
        self.along, self.spread = along, float(along.sum())

    def reduction(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        """Return the variance taken away from boxes (m,)."""
        return np.asarray(sums_between(self._before, spans) ** 2 / self.spread)

    @functools.cached_property
    def _before(self) -> NDArray[np.float64]:
        """V1 summed up to every edge of cells."""
        return prefix_sums(self.along)[..., 0]

    def mean_reduction(self) -> float:
        """Return the mean over all ranges."""
        both = self.along
        for axis in range(both.ndim):
            both = np.moveaxis(sums_of_both(np.moveaxis(both, axis, 0)), 0, axis)
        return float((self.along * both).sum()) / self.spread


def sums_of_both(field: NDArray[np.float64], starts: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Return Σ_j w_ij field_j over j in i's block, w the share of intervals that hold both.

    (min(i, j) + 1)(n − max(i, j)) of the n (n + 1) / 2 intervals do: sums up to i, and from there on.

    Parameters
    ----------
    field : (n, ...). starts : first cell of each block; all cells are one block when None.
    """
    n = len(field)
    first = np.zeros(1, dtype=np.int64) if starts is None else starts
    cell = np.arange(n).reshape(-1, *(1,) * (field.ndim - 1))
    low, high = ((weight * field).cumsum(axis=0) for weight in (cell + 1.0, n - cell))
    last = np.repeat(np.append(first[1:], n) - 1, np.diff(first, append=n))
    upto = low - np.repeat((low - (cell + 1.0) * field)[first], np.diff(first, append=n), axis=0)
    after = high[last] - high
    return np.asarray(((n - cell) * upto + (cell + 1) * after) / (n * (n + 1) / 2))
