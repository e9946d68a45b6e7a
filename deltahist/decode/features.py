"""Functions of intervals along one axis, of which variances of boxes are products, and their means."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import A_CALL, MOST_KEPT, Between, Form, Prefixes
from deltahist.strategies.product import Factor
from deltahist.workloads import Span
from deltahist.workloads.pieces import Pieces

#: Tables of fourth powers cost four times as much; kurtosis is a small correction on finer grids.
MOST_FOURTH = 1024


class Feature:
    """A function of intervals [low, high) along an axis, in cells; one number for each interval."""

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        raise NotImplementedError

    def expect(self, number: int) -> None:
        """Make what pays for so many intervals."""
        return

    def mean(self, n: int) -> float:
        """Mean over all intervals of whole cells on an axis of n cells."""
        first, last = np.triu_indices(n)
        return float(self(first.astype(np.float64), last.astype(np.float64) + 1).mean())


class Joint:
    """A function of boxes that is no product over the axes; one number for each box."""

    def __call__(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        raise NotImplementedError

    def expect(self, number: int) -> None:
        """Make what pays for so many boxes."""
        return

    def mean(self, shape: tuple[int, ...]) -> float:
        """Mean over all boxes of whole cells on axes of so many cells."""
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
        return np.where(first == last, same, cut + inner)

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
        """The sum over one block, inside which the interval lies."""
        return BlockPower(1, self.own)(low, high) * ((high - low) / (end - begin)) ** self.mean_power


class CoefficientTable:
    """Sums over the coefficients F⁻ᵀq of intervals q."""

    def __init__(self, factor: Factor) -> None:
        self.form = Prefixes(factor)
        ones = factor.solve_transpose(np.ones((factor.n, 1)))
        self.total = float((ones * ones).sum())
        self.along_total = np.concatenate([[0.0], factor.solve(ones)[:, 0].cumsum()])

    @functools.cached_property
    def fourth(self) -> NDArray[np.float64]:
        """Σ_k (P_jk − P_ik)⁴ for all pairs of edges i, j."""
        p = self.form.coefficients
        cube, square = p**3 @ p.T, (p * p) @ (p * p).T
        own = np.diag(square)
        return own[:, None] + own[None, :] - 4 * cube - 4 * cube.T + 6 * square


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
        """Of intervals [low, high) in cells (m, k)."""
        if self.edges is not None:
            cell = np.arange(len(self.edges))
            low, high = np.interp(low, cell, self.edges), np.interp(high, cell, self.edges)
        intervals = Pieces.of(low, high)
        if "_between" in self.__dict__:
            return self._between.of(intervals)
        return np.stack([form.of(intervals) for form in self.forms], axis=-1)

    def means(self, n: int) -> NDArray[np.float64]:
        """Means over all intervals of whole cells on an axis of n cells (k,)."""
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
        """The feature of a form over edges of blocks."""
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


@dataclass(frozen=True, eq=False)
class Fourth(Feature):
    """Σ_k a_k⁴, for the nearest whole cells."""

    table: CoefficientTable

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.table.fourth[np.rint(low).astype(np.int64), np.rint(high).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class WithTotal(Feature):
    """(Σ_k a_k a_k(1))², the part that a public total takes away."""

    table: CoefficientTable

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        along = self.table.along_total
        edge = np.arange(len(along))
        part = np.interp(high, edge, along) - np.interp(low, edge, along)
        return part * part

    def mean(self, n: int) -> float:
        along = self.table.along_total
        return float((n + 1) * (along @ along) - along.sum() ** 2) / (n * (n + 1) / 2)
