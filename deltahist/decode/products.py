"""Least squares for products of invertible factors, and for plain cells: closed forms throughout."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, Feature, Terms, aligned_spans
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy
from deltahist.strategies.product import Cumulative, Factor, Product
from deltahist.workloads import Span

#: Tables over pairs of cell edges are made up to this many cells along an axis.
MOST_TABLED = 4096
#: Tables of fourth powers cost four times as much; kurtosis is a small correction on finer grids.
MOST_FOURTH = 1024
#: Noise this close to whole numbers (in points) is treated as whole.
_NEAR_WHOLE = 0.25


class CellsDecoder(Decoder):
    """Cells with noise of one law: the estimate is the release itself, moved onto the public total."""

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return query

    def terms(self, order: int) -> Terms:
        axes, law = self.domain.ndim, self.laws[0]
        power = [tuple([_POWERS[p]] * axes) for p in range(1, 5)]
        n = float(self.domain.size)
        first, second, third, fourth = power
        if order == 2:
            own: Terms = [(law.variance(), second)]
            return [*own, (-law.variance() / n, _times(first, first))] if self.total_known else own
        weight = law.kurtosis() * law.variance() ** 2
        if not self.total_known:
            return [(weight, fourth)]
        # Σ (q_i − s/n)⁴ with s = Σ q_i
        square = _times(first, first)
        return [
            (weight, fourth),
            (-4 * weight / n, _times(first, third)),
            (6 * weight / n**2, _times(square, second)),
            (-3 * weight / n**3, _times(square, square)),
        ]

    def draws(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        cells = np.ones(len(variance))
        for low, high in spans:
            cells *= high - low
        out = np.where(aligned_spans(spans), cells, 0.0)
        if self.total_known:
            # Moving onto the total takes a share of all cells' noise away; the answer's noise stays close to
            # whole numbers only while what is taken is well below one.
            share = cells / self.domain.size
            spread = np.sqrt(self.laws[0].variance() * self.domain.size) * share
            out[(spread > _NEAR_WHOLE) | (4 * share * np.sqrt(variance) > _NEAR_WHOLE)] = 0.0
        return out


def _power_sum(p: int) -> Feature:
    def feature(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over cells of (share of the cell inside)^p."""
        if p == 1:
            return high - low
        return block_power_sum(low, high, 1, p)

    return feature


def block_power_sum(
    low: NDArray[np.float64], high: NDArray[np.float64], width: int, power: int
) -> NDArray[np.float64]:
    """Sum over blocks of `width` cells of (length of the interval inside the block)^power."""
    first = np.floor(low / width)
    last = np.ceil(high / width) - 1
    same = (high - low) ** power
    cut = ((first + 1) * width - low) ** power + (high - last * width) ** power
    inner = np.maximum(last - first - 1, 0.0) * float(width) ** power
    return np.where(first == last, same, cut + inner)


_POWERS = {p: _power_sum(p) for p in range(1, 5)}


@functools.lru_cache(maxsize=256)
def _times(a: tuple[Feature, ...], b: tuple[Feature, ...]) -> tuple[Feature, ...]:
    """Axis-wise product of two tuples of features."""

    def pair(f: Feature, g: Feature) -> Feature:
        return lambda low, high: f(low, high) * g(low, high)

    return tuple(pair(f, g) for f, g in zip(a, b, strict=True))


class ProductDecoder(Decoder):
    """F_x ⊗ F_y with invertible factors: x̂ = F⁻¹ y, whatever the noise."""

    strategy: Product

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        # With several laws the variance is no product over axes; it is then solved query by query.
        self.tables: tuple[_Table, ...] = ()
        if len(set(laws)) == 1 and max(self.domain.shape) <= MOST_TABLED:
            self.tables = tuple(_table(f) for f in self.strategy.factors)

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.strategy.along_axes("solve", values.reshape(-1, 1))[:, 0]

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.strategy.along_axes("solve_transpose", query.reshape(-1, 1))[:, 0]

    def terms(self, order: int) -> Terms | None:
        if not self.tables:
            return None
        law = self.laws[0]
        if order == 4:
            if max(self.domain.shape) > MOST_FOURTH:
                return None
            # The public total shifts every coefficient a little; the kurtosis hardly feels it.
            return [(law.kurtosis() * law.variance() ** 2, tuple(t.fourth for t in self.tables))]
        own: Terms = [(law.variance(), tuple(t.square for t in self.tables))]
        if not self.total_known:
            return own
        spread = float(np.prod([t.total for t in self.tables]))
        return [*own, (-law.variance() / spread, tuple(t.with_total for t in self.tables))]

    def draws(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64] | None:
        if not isinstance(self.strategy, Cumulative) or self.laws[0].parameter == 0:
            return None
        # Differences of sums: every released value enters with coefficient −1, 0 or 1.
        return np.where(aligned_spans(spans), np.rint(variance / self.laws[0].variance()), 0.0)


@functools.lru_cache(maxsize=8)
def _table(factor: Hashable) -> _Table:
    return _Table(factor)  # type: ignore[arg-type]  # a Factor, which the cache sees as a key only


class _Table:
    """Sums over the coefficients F⁻ᵀq of intervals q, from a table over pairs of cell edges."""

    def __init__(self, factor: Factor) -> None:
        n = factor.n
        prefix = np.tril(np.ones((n + 1, n)), -1)  # row i: the cells before edge i
        self.rows = factor.solve_transpose(np.ascontiguousarray(prefix.T)).T
        self.gram = self.rows @ self.rows.T
        ones = self.rows[-1]
        self.total = float(ones @ ones)
        self.along_total = self.rows @ ones

    @functools.cached_property
    def _fourth(self) -> NDArray[np.float64]:
        """Σ_k (P_jk − P_ik)⁴ for all pairs of edges i, j."""
        p = self.rows
        cube, square = p**3 @ p.T, (p * p) @ (p * p).T
        own = np.diag(square)
        return own[:, None] + own[None, :] - 4 * cube - 4 * cube.T + 6 * square

    def square(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ a_k²."""
        (i, f), (j, g) = self._split(low), self._split(high)
        row, flat = self.gram.shape[1], self.gram.ravel()
        if not f.any() and not g.any():
            return flat[i * row + i] + flat[j * row + j] - 2 * flat[i * row + j]
        corners = [(i, f - 1), (i + (f > 0), -f), (j, 1 - g), (j + (g > 0), g)]
        out = np.zeros(len(low))
        for a, (x, wx) in enumerate(corners):
            for b, (y, wy) in enumerate(corners[: a + 1]):
                out += (1.0 if a == b else 2.0) * wx * wy * flat[x * row + y]
        return out

    def fourth(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ a_k⁴, for the nearest whole cells."""
        return self._fourth[np.rint(low).astype(np.int64), np.rint(high).astype(np.int64)]

    def with_total(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """(Σ a_k a_k(1))²."""
        edge = np.arange(len(self.along_total))
        part = np.interp(high, edge, self.along_total) - np.interp(low, edge, self.along_total)
        return part * part

    @staticmethod
    def _split(place: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        below = place.astype(np.int64)
        return below, place - below
