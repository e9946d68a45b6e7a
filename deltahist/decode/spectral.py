"""Decoding spectral strategies: division in Fourier space; a box's variance depends on its sides alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, decodes
from deltahist.decode.metric import Metric, trusted
from deltahist.decode.moments import Asked, Moments
from deltahist.decode.totals import PublicTotal
from deltahist.strategies.spectral import Spectral
from deltahist.workloads import AllRanges, Boxes, Span
from deltahist.workloads.pieces import Pieces


@decodes(Spectral)
class SpectralDecoder(Decoder):
    """ĉ = the domain's part of A⁻¹y on the torus.

    The noise is the same everywhere on the torus, so that the variance of a box is a table over its sides.
    """

    strategy: Spectral

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._divide(values.reshape(self.strategy.torus))[self.inside].ravel()

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        field = np.zeros(self.strategy.torus)
        field[self.inside] = query.reshape(self.domain.shape)
        return self._divide(field).ravel()

    def _divide(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(scipy.fft.irfftn(scipy.fft.rfftn(field) / self.strategy.transform, field.shape))

    @functools.cached_property
    def inside(self) -> tuple[slice, ...]:
        """The domain's part of the torus."""
        return tuple(slice(0, n) for n in self.domain.shape)

    @property
    def _same(self) -> bool:
        return self.strategy.torus == self.domain.shape

    @functools.cached_property
    def spectrum(self) -> NDArray[np.float64]:
        """Variance of the estimates by frequency of the torus; without the total where it is known."""
        out = self.laws[0].variance() / self.strategy.transform**2
        if self.total_known and self._same:
            out.flat[0] = 0.0
        return out

    @property
    def torus_spectrum(self) -> NDArray[np.float64]:
        """The same over all frequencies: those of the last axis that a real transform leaves out mirror others."""
        last = self.strategy.torus[-1]
        return self.spectrum[..., np.minimum(np.arange(last), last - np.arange(last))]

    def field(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Estimates of the whole torus, which hold the total where it is known."""
        field = self._divide(np.asarray(values, dtype=np.float64).reshape(self.strategy.torus))
        return field if total is None else field + (total - field.sum()) / field.size

    def metric(self) -> Metric:
        """Exact: the torus' own waves."""
        spectrum = self.spectrum.copy()
        if self.total_known:
            spectrum.flat[0] = 0.0
        return trusted(Metric(spectrum, self.strategy.torus, True, self.inside))

    @functools.cached_property
    def table(self) -> NDArray[np.float64]:
        """Variance of boxes by their sides (n + 1 per axis), before a total on a padded torus is used."""
        out = self.torus_spectrum
        for axis, n in enumerate(self.domain.shape):
            out = np.moveaxis(_lengths(np.moveaxis(out, axis, -1), n), -1, axis)
        return np.maximum(out, 0.0, order="C")  # rows side by side: boxes look it up as one row

    @functools.cached_property
    def _with_total(self) -> PublicTotal | None:
        """What a public total adds, if it does."""
        if not self.total_known or self._same:
            return None
        along = self.solve(self.laws[0].variance() * self.adjoint(np.ones(self.domain.size)))
        return PublicTotal(along.reshape(self.domain.shape))

    def moments(self, work: Asked) -> Moments:
        if not isinstance(work, Boxes | AllRanges):
            return super().moments(work)
        spans = work.spans(self.domain)
        variance = self._of_boxes(spans)
        if self._with_total is not None:
            variance = variance - self._with_total.taken(spans)
        variance = np.where(variance < self.speck * self.table.flat[-1], 0.0, variance)
        return Moments(variance, np.zeros(len(variance)))

    @property
    def speck(self) -> float:
        return 1e-12

    def _of_boxes(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        # q = Σ w_e P_e has the correlation −½ Σ w_e w_f tri(e − f) along each axis, the weights adding up to 0.
        flat, row = self.table.ravel(), self.table.shape[-1]
        pairs = []
        for low, high in spans:
            edges = Pieces.of(low, high).edges
            pairs.append([(np.abs(i - j), -0.5 * v * w) for i, v in edges for j, w in edges])
        out = np.zeros(len(spans[0][0]))
        if len(spans) == 1:
            for side, weight in pairs[0]:
                out += weight * flat[side]
            return out
        for side, weight in pairs[0]:
            for other, factor in pairs[1]:
                out += weight * factor * flat[side * row + other]
        return out

    def mean_variance(self, work: AllRanges) -> float:
        out = self.table
        for n in reversed(self.domain.shape):
            out = out[..., 1:] @ (np.arange(n, 0, -1) / (n * (n + 1) / 2))
        if self._with_total is None:
            return float(out)
        return float(out) - self._with_total.mean_taken()


def _lengths(spectrum: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """(1/P) Σ_ω S(ω) |D_l(ω)|² for interval lengths l = 0, ..., n, along the last axis."""
    p = spectrum.shape[-1]
    omega = 2 * np.pi * np.arange(1, p) / p
    scaled = np.zeros_like(spectrum)
    scaled[..., 1:] = spectrum[..., 1:] / (2 * np.sin(omega / 2) ** 2)
    waves = scipy.fft.rfft(scaled, axis=-1).real
    length = np.arange(n + 1)
    place = np.minimum(length % p, p - length % p)
    return np.asarray(
        (scaled.sum(axis=-1, keepdims=True) - waves[..., place] + spectrum[..., :1] * length**2.0) / p
    )
