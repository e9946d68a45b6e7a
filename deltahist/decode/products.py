"""Least squares for products of invertible factors, and for plain cells: closed forms throughout."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, decodes
from deltahist.decode.features import (
    MOST_FOURTH,
    BlockPower,
    CoefficientTable,
    Feature,
    Fourth,
    Quadratic,
    Times,
    WithTotal,
)
from deltahist.decode.moments import Terms
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy
from deltahist.strategies.grids import Identity
from deltahist.strategies.product import MOST_TABLED, Cumulative, Product
from deltahist.workloads import Span
from deltahist.workloads.sums import aligned_spans

#: Noise this close to whole numbers (in points) is treated as whole.
_NEAR_WHOLE = 0.25


@decodes(Identity)
class CellsDecoder(Decoder):
    """Cells with noise of one law: the estimate is the release itself, moved onto the public total."""

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return query

    def terms(self, order: int) -> Terms:
        axes, law = self.domain.ndim, self.laws[0]
        power = [tuple([BlockPower(1, p)] * axes) for p in range(1, 5)]
        n = float(self.domain.size)
        first, second, third, fourth = power
        if order == 2:
            own: Terms = [(law.variance(), second)]
            # The length of an interval, squared: what it has in the one block that is the axis.
            squared: tuple[Feature, ...] = tuple(BlockPower(cells, 2) for cells in self.domain.shape)
            return [*own, (-law.variance() / n, squared)] if self.total_known else own
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

    def draws_summed(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _times(a: tuple[Feature, ...], b: tuple[Feature, ...]) -> tuple[Feature, ...]:
    """Axis-wise product of two tuples of features."""
    return tuple(Times(f, g) for f, g in zip(a, b, strict=True))


@decodes(Product)
class ProductDecoder(Decoder):
    """F_x ⊗ F_y with invertible factors: x̂ = F⁻¹ y, whatever the noise."""

    strategy: Product

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        # With several laws the variance is no product over axes; it is then solved query by query.
        self.tables: tuple[CoefficientTable, ...] = ()
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
            return [(law.kurtosis() * law.variance() ** 2, tuple(Fourth(t) for t in self.tables))]
        own: Terms = [(law.variance(), tuple(Quadratic.of(t.form) for t in self.tables))]
        if not self.total_known:
            return own
        spread = float(np.prod([t.total for t in self.tables]))
        return [*own, (-law.variance() / spread, tuple(WithTotal(t) for t in self.tables))]

    def draws_summed(
        self, spans: Sequence[Span], variance: NDArray[np.float64]
    ) -> NDArray[np.float64] | None:
        if not isinstance(self.strategy, Cumulative) or self.laws[0].variance() == 0:
            return None
        # Differences of sums: every released value enters with coefficient −1, 0 or 1.
        return np.where(aligned_spans(spans), np.rint(variance / self.laws[0].variance()), 0.0)


@functools.lru_cache(maxsize=4)
def _table(factor: Hashable) -> CoefficientTable:
    return CoefficientTable(factor)  # type: ignore[arg-type]  # a Factor, which the cache sees as a key only
