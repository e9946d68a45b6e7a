"""Products of one square matrix per axis (cumulative sums and wavelets), and their decoder in closed form."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import forms
from deltahist.decode.base import Decoder
from deltahist.errors import check_choice
from deltahist.laws import Law
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Span, Workload, aligned_spans
from deltahist.strategies.base import Strategy


class Product(Strategy):
    """A product F_x ⊗ F_y of square, invertible factors. Its N rows determine every cell."""

    determines_cells: ClassVar[bool] = True
    #: A square integer matrix F (n, n) for each axis. The methods act on the first axis of an array: `multiply` returns
    #: F x, `transpose` returns Fᵀ y, `solve` returns F⁻¹ y, and `solve_transpose` returns F⁻ᵀ q. Let P_e be the cells
    #: before edge e = 0, ..., n. `prefixes` lists the few non-zero rows of F⁻ᵀ P_e and their entries (n + 1, few).
    factors: tuple[_Sums | _Haar, ...]

    def decoder_class(self) -> type[Decoder]:
        return ProductDecoder

    def along_axes(self, name: str, X: NDArray[Any]) -> NDArray[Any]:
        """Apply the factors' method of this name to X (N, m) along every axis, and return the result."""
        cube = X.reshape(*self.domain.shape, -1)
        for axis, factor in enumerate(self.factors):
            cube = np.moveaxis(getattr(factor, name)(np.moveaxis(cube, axis, 0)), 0, axis)
        return cube.reshape(X.shape)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.along_axes("multiply", X)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.along_axes("transpose", X)


@dataclass(frozen=True)
class _Sums:
    """Prefix sums (each cell and all cells before it) or suffix sums (each cell and all cells after it)."""

    n: int
    suffix: bool

    def multiply(self, x: NDArray[Any]) -> NDArray[Any]:
        return x[::-1].cumsum(axis=0)[::-1] if self.suffix else x.cumsum(axis=0)

    def transpose(self, y: NDArray[Any]) -> NDArray[Any]:
        return _Sums(self.n, not self.suffix).multiply(y)

    def solve(self, y: NDArray[Any]) -> forms.FloatArray:
        return -np.diff(y, axis=0, append=0) if self.suffix else np.diff(y, axis=0, prepend=0)

    def solve_transpose(self, q: NDArray[Any]) -> forms.FloatArray:
        return _Sums(self.n, not self.suffix).solve(q)

    @property
    def prefixes(self) -> tuple[forms.IntArray, forms.FloatArray]:
        # A prefix is one prefix sum, or the difference between the first suffix sum and another suffix sum.
        edge = np.arange(self.n + 1)
        some = (edge > 0).astype(np.float64)
        if not self.suffix:
            return np.maximum(edge - 1, 0)[:, None], some[:, None]
        return np.stack([0 * edge, edge % self.n], axis=1), np.stack([some, -some * (edge < self.n)], axis=1)


@dataclass(frozen=True, eq=False)
class Cumulative(Product):
    """Cumulative sums of cells (along both axes in 2-D): C_n (2014, section 5.2, eq. (6), section 5.4.1).

    In 1-D, a move by d cells costs d. Arrivals cost 1 at the left end for suffix sums (eq. (6)), and at the right end
    for prefix sums (section 5.4.1).

    Parameters
    ----------
    direction : "suffix" to sum each cell and all cells after it, "prefix" to sum each cell and all cells before it.

    >>> Cumulative(Domain((0, 1), (3,))).matrix().toarray().tolist()
    [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    """

    domain: Domain
    direction: Literal["suffix", "prefix"] = "suffix"
    texts: ClassVar[tuple[str, ...]] = ("cumulative[:prefix]",)

    def __post_init__(self) -> None:
        check_choice(("suffix", "prefix"), direction=self.direction)

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Cumulative:
        return cls(near.domain, text.partition(":")[2] or "suffix")  # type: ignore[arg-type]

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        yield "Cumulative (suffix)", cls(near.domain)
        yield "Cumulative (prefix)", cls(near.domain, direction="prefix")

    @functools.cached_property
    def factors(self) -> tuple[_Sums, ...]:  # type: ignore[override]
        return tuple(_Sums(n, self.direction == "suffix") for n in self.domain.shape)

    def edge_cost(self, near: Neighbourhood, norm: int) -> int:
        """Return the largest number of rows that contain exactly one end of an edge (2014, section 5.3).

        Entries are 0 or 1, so both norms count rows. Number the cells from 0, starting at the far end for prefix sums.
        Then r(u) = Π (u_i + 1) rows contain cell u. An arrival at u costs r(u), and a move from u to v costs r(u) +
        r(v) − 2 r(min(u, v)), with the minimum along each axis. The cost never decreases when a move gets longer or
        starts further up, so the most expensive move ends in the far corner and costs Π n_i − Π (n_i − d_i). In 2-D, a
        move by (d_x, −d_y) costs d_x d_y less than a move by (d_x, d_y).
        """
        shape = self.domain.shape
        moves = near.frontier.tolist()
        most = max(self.domain.size - math.prod(n - d for n, d in zip(shape, move, strict=True)) for move in moves)
        cells = np.argwhere(near.source_cells)
        if self.direction == "prefix":
            cells = np.array(shape) - 1 - cells
        return max(most, int((cells + 1).prod(axis=1).max(initial=0)))


@dataclass(frozen=True)
class _Haar:
    """A Haar matrix. Row 0 sums all cells. Every other row is +1 on a segment's left half and −1 on its right half."""

    n: int

    @functools.cached_property
    def levels(self) -> tuple[tuple[slice, forms.IntArray, forms.IntArray, forms.IntArray], ...]:
        """The rows of each level, from coarse to fine, and their segments [low, high), which are split at mid."""
        low, high, row = np.array([0]), np.array([self.n]), 1
        out: list[tuple[slice, forms.IntArray, forms.IntArray, forms.IntArray]] = []
        while (split := high - low > 1).any():
            low, high = low[split], high[split]
            mid = (low + high + 1) // 2
            out.append((slice(row, row + len(low)), low, mid, high))
            row += len(low)
            low, high = np.stack([low, mid], axis=1).ravel(), np.stack([mid, high], axis=1).ravel()
        return tuple(out)

    @functools.cached_property
    def depth(self) -> NDArray[np.int64]:
        """For each cell (n,), the last level with a row that contains it. Every earlier level also has one such row."""
        change = np.zeros(self.n + 1, dtype=np.int64)
        for _, low, _, high in self.levels:
            change[low] += 1
            change[high] -= 1
        return change.cumsum()[:-1]

    def multiply(self, x: NDArray[Any]) -> NDArray[Any]:
        total = np.concatenate([np.zeros_like(x[:1]), x.cumsum(axis=0)])
        rows = [2 * total[mid] - total[low] - total[high] for _, low, mid, high in self.levels]
        return np.concatenate([total[-1:], *rows])

    def transpose(self, y: NDArray[Any]) -> NDArray[Any]:
        change = np.zeros((self.n + 1, *y.shape[1:]), dtype=y.dtype)
        change[0] = y[0]
        for rows, low, mid, high in self.levels:
            change[low] += y[rows]
            change[mid] -= 2 * y[rows]
            change[high] += y[rows]
        return change.cumsum(axis=0)[:-1]

    def solve(self, y: NDArray[Any]) -> forms.FloatArray:
        # total[low] is the sum of the segment that starts at low, and left = (sum + difference) / 2.
        total = np.zeros(y.shape, dtype=np.float64)
        total[0] = y[0]
        for rows, low, mid, _ in self.levels:
            total[low], total[mid] = (total[low] + y[rows]) / 2, (total[low] - y[rows]) / 2
        return total

    def solve_transpose(self, q: NDArray[Any]) -> forms.FloatArray:
        weight = np.array(q, dtype=np.float64)
        rows: list[forms.FloatArray] = []
        for _, low, mid, _ in reversed(self.levels):
            left, right = weight[low], weight[mid]
            rows.append((left - right) / 2)
            weight[low] = (left + right) / 2
        return np.concatenate([weight[:1], *reversed(rows)])

    @property
    def prefixes(self) -> tuple[forms.IntArray, forms.FloatArray]:
        # A prefix is constant on every segment that its edge does not cut. So each level has one coefficient, for the
        # segment around the edge. `mean` is the prefix's mean over this segment.
        mean = np.ones(self.n + 1)
        mean[0] = 0.0
        rows = np.zeros((self.n + 1, 1 + len(self.levels)), dtype=np.int64)
        entries = np.zeros(rows.shape)
        for level, (own, low, mid, high) in reversed(list(enumerate(self.levels, start=1))):
            length = high - low - 1
            segment = np.repeat(np.arange(len(low)), length)
            edge = np.arange(length.sum()) - np.repeat(length.cumsum() - length, length) + low[segment] + 1
            left = np.where(edge >= mid[segment], 1.0, mean[edge])
            right = np.where(edge <= mid[segment], 0.0, mean[edge])
            rows[edge, level], entries[edge, level] = own.start + segment, (left - right) / 2
            mean[edge] = (left + right) / 2
        entries[:, 0] = mean
        return rows, entries


@dataclass(frozen=True, eq=False)
class Wavelet(Product):
    """Haar wavelets with entries −1, 0 and 1: Y_n (2014, section 5.4.1, Figure 2; Xiao et al. 2010).

    An odd number of cells is split into nearly equal halves. In 2-D, each row is a product of one row per axis.

    >>> Wavelet(Domain((0, 1), (4,))).matrix().toarray().tolist()
    [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    """

    domain: Domain
    texts: ClassVar[tuple[str, ...]] = ("wavelet",)
    most_axes: ClassVar[int] = 2

    @functools.cached_property
    def factors(self) -> tuple[_Haar, ...]:  # type: ignore[override]
        return tuple(_Haar(n) for n in self.domain.shape)

    def edge_cost(self, near: Neighbourhood, norm: int) -> int:
        """Return the largest cost of an edge, in closed form.

        Let h(u) be the number of rows of an axis's factor that contain cell u. In 2-D, rows are products, so an arrival
        at (u, v) costs h(u) h(v). `_cost` computes the costs of moves, for all distinct pairs of cells along x and y
        that are within reach. The reach along y falls as dx grows, so each pair along x is tried only at its least dx.
        """
        most = 0
        if near.source_cells.any():
            held = functools.reduce(np.multiply.outer, [1 + f.depth for f in self.factors])
            most = int(held[near.source_cells].max())
        if self.domain.ndim == 1:  # treat a line as a plane with one row of cells and the factor [1]
            reach = [0] * (int(near.reach[0]) + 1)
            along_y = [{Pair(1, 1, 1, 0)}]
        else:
            reach = near.reach.tolist()
            along_y = _list_pairs(self.factors[1], reach[0])
        along_x = _list_pairs(self.factors[0], len(reach) - 1)
        within = list(accumulate(along_y, operator.or_))  # the pairs along y that are at most 0, 1, 2, ... cells apart
        tried = set[Pair]()
        for dx, dy in enumerate(reach):
            fresh = along_x[dx] - tried
            tried |= fresh
            if fresh:
                x = Pair(*np.array(sorted(fresh)).T[:, :, None])
                y = Pair(*np.array(sorted(within[dy])).T[:, None, :])
                most = max(most, int(_cost(x, y, norm).max()))
        return most


class Pair(NamedTuple):
    """The numbers of rows that contain u, u', both with equal signs, and both with opposite signs."""

    first: Any
    second: Any
    agree: Any
    opposite: Any


def _cost(x: Pair, y: Pair, norm: int) -> Any:
    """Return Σ_r |A_r(u, v) − A_r(u', v')|^p for a move from (u, v) to (u', v'), with x = (u, u') and y = (v, v').

    h_u h_v rows contain (u, v), and h_u' h_v' rows contain (u', v'). Both numbers include the rows that contain both
    cells. Such rows change by 0 if their factors agree on both axes or on neither axis, and by 2 otherwise.
    """
    agree = x.agree * y.agree + x.opposite * y.opposite
    opposite = x.agree * y.opposite + x.opposite * y.agree
    return x.first * y.first + x.second * y.second - 2 * agree + (2**norm - 2) * opposite


@functools.lru_cache(maxsize=2)
def _list_pairs(haar: _Haar, longest: int) -> list[set[Pair]]:
    """Return the distinct pairs of cells that are d apart, for d = 0, ..., longest.

    Let m be the level of the coarsest segment that is split between cells u < u'. On each of the m levels above, one
    row has both cells in the same half. On level m, one row has the cells in opposite halves. No row on lower levels
    contains both. So a pair depends only on m and the two depths, and there are few such triples. A pair is listed in
    both orders, because the move along the other axis may go either way.
    """
    n, depth, number = haar.n, haar.depth, 1 + len(haar.levels)
    split = np.zeros(n, dtype=np.int64)  # the level of the segment that is split just before each cell
    for level, (_, _, mid, _) in enumerate(haar.levels, start=1):
        split[mid] = level
    out = [{Pair(1 + i, 1 + i, 1 + i, 0) for i in depth.tolist()}]
    parting = np.full(n, np.iinfo(np.int64).max)  # the level of the coarsest split between u and u + d
    for d in range(1, longest + 1):
        parting = np.minimum(parting[: n - d], split[d:])
        pairs: set[Pair] = set()
        for triple in np.unique((parting * number + depth[: n - d]) * number + depth[d:]).tolist():
            rest, end = divmod(triple, number)
            level, start = divmod(rest, number)
            pairs |= {Pair(1 + start, 1 + end, level, 1), Pair(1 + end, 1 + start, level, 1)}
        out.append(pairs)
    return out


class PrefixForm(forms.QuadraticForm):
    """F⁻ᵀP_i · F⁻ᵀP_j for prefixes P and a square factor F, if each row has noise of variance one."""

    def __init__(self, factor: _Sums | _Haar) -> None:
        self.factor, self.size = factor, factor.n + 1
        self.rows, self.entries = factor.prefixes
        ones = factor.solve_transpose(np.ones((factor.n, 1)))
        #: |F⁻ᵀ1|², and the covariance of the total with the sum of the cells before each edge (n + 1,).
        self.total = float((ones * ones).sum())
        self.total_covariance = np.concatenate([[0.0], factor.solve(ones)[:, 0].cumsum()])

    def entries_at(self, i: forms.IntArray, j: forms.IntArray) -> forms.FloatArray:
        common = self.rows[i] == self.rows[j]
        return np.asarray((common * self.entries[i] * self.entries[j]).sum(axis=-1))

    def value_at(self, weight: forms.FloatArray) -> float:
        # A cell belongs to the prefixes of all later edges.
        held = np.cumsum(weight[::-1])[::-1][1:]
        own = self.factor.solve_transpose(held.reshape(-1, 1))
        return float((own * own).sum())


@dataclass(frozen=True, eq=False)
class FourthPowers(forms.IntervalFunction):
    """Σ_k a_k⁴ for the coefficients a = F⁻ᵀq of an interval q, rounded to whole cells."""

    form: PrefixForm

    def __call__(self, low: forms.FloatArray, high: forms.FloatArray) -> forms.FloatArray:
        i, j = (np.rint(edge).astype(np.int64) for edge in (low, high))
        one, other, common = self.form.entries[i], self.form.entries[j], self.form.rows[i] == self.form.rows[j]
        return np.asarray(np.where(common, (other - one) ** 4, one**4 + other**4).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class TotalReduction(forms.IntervalFunction):
    """(Σ_k a_k a_k(1))², which is proportional to the variance that a public total removes."""

    form: PrefixForm

    def __call__(self, low: forms.FloatArray, high: forms.FloatArray) -> forms.FloatArray:
        return forms.sum_intervals(self.form.total_covariance[:, None], low, high)[:, 0] ** 2

    def mean_over_intervals(self, n: int) -> float:
        along = self.form.total_covariance
        return float(forms.mean_increment_product(along @ along, along.sum() ** 2, n))


class ProductDecoder(Decoder):
    """Decode F_x ⊗ F_y with invertible factors. The estimate is x̂ = F⁻¹ y for any noise."""

    strategy: Product

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        self.forms = tuple(map(PrefixForm, self.strategy.factors))
        #: The factor of the variance along each axis.
        self._squares = tuple(forms.IntervalForms([form]) for form in self.forms)

    def solve(self, values: forms.FloatArray) -> forms.FloatArray:
        return self.strategy.along_axes("solve", values.reshape(-1, 1))[:, 0]

    def solve_adjoint(self, query: forms.FloatArray) -> forms.FloatArray:
        return self.strategy.along_axes("solve_transpose", query.reshape(-1, 1))[:, 0]

    def box_cumulant(self, order: int) -> forms.SumOfProducts:
        law = self.laws[0]
        if order == 4:
            # A public total changes every coefficient slightly, which hardly affects the kurtosis.
            return [(law.kurtosis() * law.variance() ** 2, tuple(map(FourthPowers, self.forms)))]
        own: forms.SumOfProducts = [(law.variance(), self._squares)]
        if not self.total_known:
            return own
        spread = math.prod(form.total for form in self.forms)
        return [*own, (-law.variance() / spread, tuple(map(TotalReduction, self.forms)))]

    def draws_summed(self, spans: Sequence[Span], variance: forms.FloatArray) -> forms.FloatArray | None:
        if not isinstance(self.strategy, Cumulative) or self.laws[0].variance() == 0:
            return None
        # Answers are differences of sums, so every released value has the coefficient −1, 0 or 1.
        return np.where(aligned_spans(spans), np.rint(variance / self.laws[0].variance()), 0.0)
