"""Decoding tents: what is smooth comes from the tents, the rest from the cells; two small transforms per axis."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, decodes
from deltahist.decode.features import BlockPower
from deltahist.decode.metric import Metric, trusted
from deltahist.decode.moments import Asked, Moments
from deltahist.decode.rims import near
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy
from deltahist.strategies.tents import Tents, along
from deltahist.workloads import AllRanges, Boxes, Span
from deltahist.workloads.cover import explicit

#: Numbers of boxes times waves at a time.
_AT_A_TIME = 1 << 22
#: Ratio of the precisions of tents and cells beyond which the cells' own noise says nothing more.
_MOST_PRECISE = 1e12
#: What a wave holds of the total, which is of the size of a cell's, where rounding is all that it holds.
_UNSEEN = 1e-9
#: Power of the frequency by which long waves are trusted beyond their noise; found on real counts.
TRUST = 1.0


@decodes(Tents)
class TentsDecoder(Decoder):
    """ĉ = y₁ + Tᵀ (r⁻¹ + T Tᵀ)⁻¹ (y₂ − T y₁), for cells y₁, tents y₂ and r the ratio of their noise's variances.

    T Tᵀ is a product over the axes, inverted in the eigenvectors of its small factors (docs/theory.md, section 7).
    `parts` : values count in so many parts of a point.
    """

    strategy: Tents

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool, parts: int = 1) -> None:
        super().__init__(strategy, laws, total_known)
        self._parts = float(parts)

    @functools.cached_property
    def _cells(self) -> float:
        """Variance of the noise of a cell."""
        return self.laws[0].variance() / self._parts**2

    @functools.cached_property
    def _tents(self) -> float:
        """Variance of the noise of a tent, in points."""
        return self.laws[1].variance() / (self._parts * self.strategy.scale) ** 2

    @functools.cached_property
    def _precision(self) -> float:
        """Variance of the cells' noise over that of the tents'."""
        return self._cells / max(self._tents, self._cells / _MOST_PRECISE) if self._cells > 0 else 0.0

    def _shrunk(self, tents: NDArray[np.float64]) -> NDArray[np.float64]:
        """(r⁻¹ + T Tᵀ)⁻¹ of a field over the tents."""
        eigen = [axis.eigen for axis in self.strategy.lattices]
        values = functools.reduce(np.multiply.outer, [value for value, _ in eigen])
        waves = along([vectors.T for _, vectors in eigen], tents)
        return along(
            [vectors for _, vectors in eigen], waves * (self._precision / (1 + self._precision * values))
        )

    def _over(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """T of cells (N,), in points, as a field over the tents."""
        strategy = self.strategy
        field = along([axis.matrix for axis in strategy.lattices], cells.reshape(self.domain.shape))
        return np.asarray(field / strategy.scale)

    def _under(self, tents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tᵀ of a field over the tents, in points, as cells (N,)."""
        strategy = self.strategy
        return np.asarray(
            along([axis.transpose for axis in strategy.lattices], tents).ravel() / strategy.scale
        )

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        values = values / self._parts
        cells, tents = values[: self.domain.size], values[self.domain.size :] / self.strategy.scale
        return cells + self._under(self._shrunk(tents.reshape(self.strategy.tents) - self._over(cells)))

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        tents = self._shrunk(self._over(query))
        return np.concatenate([query - self._under(tents), tents.ravel() / self.strategy.scale]) / self._parts

    @functools.cached_property
    def _precise(self) -> NDArray[np.float64]:
        """Precision of the tents over that of the cells, for every wave (one axis per axis)."""
        values = functools.reduce(np.multiply.outer, [axis.waves[0] for axis in self.strategy.lattices])
        return np.asarray(self._precision * values)

    @functools.cached_property
    def _known(self) -> NDArray[np.float64]:
        """Share of the cells' variance that the tents take away, for every wave."""
        return np.asarray(self._precise / (1 + self._precise))

    @functools.cached_property
    def _onto(self) -> tuple[NDArray[np.float64], float]:
        """V1 over the variance of a cell by its waves, and its sum.

        The tents add up to one over every cell, so that all ones, and V1, are sums of the waves alone.
        """
        ones = functools.reduce(np.multiply.outer, [axis.waves[1][-1] for axis in self.strategy.lattices])
        onto = ones / (1 + self._precise)
        return onto, float((ones * onto).sum())

    def moments(self, work: Asked) -> Moments:
        if not isinstance(work, Boxes | AllRanges):
            return super().moments(work)
        spans = work.spans(self.domain)
        step = max(1, _AT_A_TIME // sum(self._known.shape))
        starts = range(0, len(spans[0][0]), step)
        parts = [
            self._of_boxes([(low[i : i + step], high[i : i + step]) for low, high in spans]) for i in starts
        ]
        variance = np.concatenate([np.zeros(0), *parts])
        variance[variance < self.speck] = 0.0
        return Moments(variance, self.kurtosis(spans, variance))

    def variance(self, work: Asked) -> NDArray[np.float64]:
        """Variance of the answers alone: of explicit queries by waves, many at a time."""
        if isinstance(work, Boxes | AllRanges) or self.domain.ndim == 1:
            return super().variance(work)
        work = explicit(work)
        out = self._cells * np.asarray((work * work).sum(axis=1))
        waves = [np.diff(axis.waves[1], axis=0) for axis in self.strategy.lattices]
        for around in near(work, self.domain.shape):
            seen = around.between(waves[0], waves[1])
            taken = np.einsum("kij,ij->k", seen**2, self._known)
            if self.total_known:
                onto, spread = self._onto
                taken += np.einsum("kij,ij->k", seen, onto) ** 2 / spread
            out[around.some] -= self._cells * taken
        out[out < self.speck] = 0.0
        return out

    def _of_boxes(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        """Variance of boxes."""
        asked = [axis.asked(*span) for axis, span in zip(self.strategy.lattices, spans, strict=True)]
        size = math.prod((BlockPower(1, 2)(*span) for span in spans), start=np.ones(len(spans[0][0])))
        taken = _of_waves([each**2 for each in asked], self._known)
        if self.total_known:
            onto, spread = self._onto
            # The total has nothing of half of the waves: those that differ in sign about the middle of an axis.
            held = [np.abs(axis.waves[1][-1]) > _UNSEEN for axis in self.strategy.lattices]
            seen = [each[:, some] for each, some in zip(asked, held, strict=True)]
            taken += _of_waves(seen, onto[np.ix_(*held)]) ** 2 / spread
        return self._cells * (size - taken)

    def mean_variance(self, work: AllRanges) -> float:
        lattices = self.strategy.lattices
        taken = self._known
        for axis in reversed(lattices):
            taken = taken @ axis.mean_asked
        size = math.prod((n + 2) / 3 for n in self.domain.shape)
        if self.total_known:
            onto, spread = self._onto
            pairs = [axis.mean_pairs(slice(None)) for axis in lattices]
            size -= float((onto * along(pairs, onto)).sum()) / spread
        return self._cells * max(0.0, size - float(taken))

    def kurtosis(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Excess kurtosis of the answers to boxes: what it is if no draw enters with more than its full weight."""
        most = max(law.kurtosis() for law in self.laws)
        if most <= 0:
            return np.zeros(len(variance))
        # Σ aᵢ⁴ vᵢ² ≤ max(aᵢ² vᵢ) Σ aᵢ² vᵢ
        largest = max(self._cells, self._tents)
        return most * np.divide(largest, variance, out=np.zeros_like(variance), where=variance > 0).clip(
            max=1.0
        )

    def metric(self) -> Metric:
        """In cosines, exactly what each has of the noise; the tents see the longer ones, nearly one by one."""
        seen = [
            scipy.fft.dct(np.diff(axis.waves[1], axis=0), axis=0, norm="ortho") ** 2
            for axis in self.strategy.lattices
        ]
        variance = self._cells * (1 - along(seen, self._known))
        if self.total_known:
            variance.flat[0] = 0.0
        inside = tuple(slice(0, n) for n in self.domain.shape)
        return trusted(Metric(variance, self.domain.shape, False, inside), TRUST)

    @property
    def speck(self) -> float:
        return 1e-12 * self._cells * self.domain.size


def _of_waves(asked: Sequence[NDArray[np.float64]], field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ over waves of a field times what each query (m,) asks of them along the axes."""
    first, *rest = asked
    out = first @ field
    return np.asarray(np.einsum("mw,mw->m", out, rest[0]) if rest else out)
