"""Spectral: the strategy for Gaussian noise that is best on a torus, and its decoder, both in Fourier space."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Asked, Decoder, Moments
from deltahist.decode.forms import PublicTotal
from deltahist.decode.projection import Metric, shrink_long_waves
from deltahist.errors import InputError, fits_memory, whole
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Boxes, Span
from deltahist.space.workloads.cover import Pieces
from deltahist.space.workloads.queries import power
from deltahist.strategies.base import Strategy, refuse_pure
from deltahist.strategies.gaussian import moves_within_delta, pack, unpack
from deltahist.strategies.spectral.multipliers import Multipliers, solve
from deltahist.strategies.spectral.torus import (
    convolve,
    cosines,
    multiplicities,
    quarter_of,
    relative_error,
    spread,
    squared_distance,
)

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

#: Largest error of the kernel's spectrum from rounding its entries to whole numbers.
_ROUNDING = 1e-2
_MOST_BITS = 28
#: Displacements times cells beyond which Laplace noise is priced by a bound.
_MOST_ABSOLUTE = 1 << 31
#: So many displacements that may be the dearest one are looked at one by one.
_MOST_TIED = 16


@dataclass(frozen=True, eq=False)
class Spectral(Strategy):
    """Rows that are shifts of one kernel on a torus, the best for Gaussian noise (use `rho`).

    Minimises tr(V X⁻¹) over circulant X = AᵀA with (e_u − e_v)ᵀ X (e_u − e_v) ≤ 1 for every move within δ, and
    at most the square of what the neighbourhood's limits promise for longer ones, for the workload's power
    spectrum V̂. The kernel is rounded to whole numbers, and the sensitivity is that of the rounded kernel,
    exactly. The torus wraps around: moves across the seam are protected as well, for nothing. Source:
    docs/theory.md, section 6.

    Parameters
    ----------
    near : the neighbourhood whose moves are constraints; one with sources protects arrivals in every cell, by the
        least factor that it promises for any of them.
    workload : the queries; all ranges when None. Only their sizes matter.
    pad : cells by which the torus is longer than the domain, along each axis; a quarter of it when None.
        Beyond the domain there is nothing, which makes non-negative estimates sharper.

    Raises
    ------
    InputError
        If the workload does not fit the domain, or the torus does not fit memory.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64)
    >>> workload = dh.workloads.all_ranges(near.domain)
    >>> error = dh.expected_error(Spectral(near), near, workload.sample(1000), rho=0.5)
    >>> bool(4.9 < error.mean() ** 0.5 < 5.4)
    True
    """

    near: Neighbourhood
    workload: Workload | None = None
    pad: int | None = None

    determines_cells: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("spectral",)

    @classmethod
    def tuned(cls, near: Neighbourhood, workload: Workload | None = None, *, norm: int = 2) -> Spectral:
        """Return the optimum for a workload, all ranges when None; InputError unless norm is 2 (Gaussian noise)."""
        refuse_pure("spectral", norm)
        return cls(near, workload)

    @classmethod
    def named(cls, near: Neighbourhood, text: str, norm: int) -> Spectral:
        refuse_pure(text, norm)
        return cls(near)

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if norm == 2 and near.domain.size > 1:
            yield "Spectral", cls(near, workload)

    def __post_init__(self) -> None:
        if self.pad is not None:
            object.__setattr__(self, "pad", whole(least=0, pad=self.pad))
        fits_memory(64 * math.prod(self.torus), f"a torus of {self.torus} cells")
        if self.workload is not None:
            power(
                self.workload, self.domain, tuple(min(n, 4) for n in self.torus)
            )  # refuses what does not fit

    @functools.cached_property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.near.domain

    @functools.cached_property
    def torus(self) -> tuple[int, ...]:
        """Cells of the torus along each axis."""
        # An axis of a single cell has no moves, and would leave what is added undetermined.
        return tuple(
            _padded(n) if self.pad is None else n + self.pad if n > 1 else 1 for n in self.domain.shape
        )

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (math.prod(self.torus), self.domain.size)

    @functools.cached_property
    def solution(self) -> Multipliers:
        """The best spectrum, before rounding, with its certificate."""
        return solve(self.near, self.workload, self.torus)

    @functools.cached_property
    def kernel(self) -> NDArray[np.int64]:
        """Entries of the row of cell 0 (torus), whole numbers, the same in both directions of each axis."""
        spectrum = self.solution.spectrum
        kernel = cosines(spectrum, self.torus) / math.prod(self.torus)
        for bits in range(8, _MOST_BITS + 1, 2):
            rounded = np.rint(kernel * 2.0**bits)
            error = np.abs(cosines(rounded, self.torus) / 2.0**bits / spectrum - 1)
            if error.max() <= _ROUNDING:
                break
        return spread(rounded.astype(np.int64), self.torus)

    @functools.cached_property
    def transform(self) -> NDArray[np.float64]:
        """Spectrum of the rounded kernel, over the frequencies that a real transform has; none is zero."""
        out = np.asarray(scipy.fft.rfftn(self.kernel.astype(np.float64)).real)
        if np.abs(out).min() <= 1e-12 * np.abs(out).max():
            raise InputError("the spectral strategy is singular: its kernel has no answer to some frequency")
        return out

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._columns(X, self.domain.shape, self.torus)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._columns(X, self.torus, self.domain.shape)

    def _columns(self, X: NDArray[Any], given: tuple[int, ...], wanted: tuple[int, ...]) -> NDArray[Any]:
        inside = tuple(slice(0, min(a, b)) for a, b in zip(given, self.torus, strict=True))
        cut = tuple(slice(0, n) for n in wanted)
        out = np.empty((math.prod(wanted), X.shape[1]), dtype=X.dtype)
        for column in range(X.shape[1]):
            field = np.zeros(self.torus, dtype=X.dtype)
            field[inside] = X[:, column].reshape(given)
            out[:, column] = convolve(self.kernel, field)[cut].ravel()
        return out

    def decoder_class(self) -> type[Decoder]:
        return SpectralDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> int:
        # The same wherever an edge lies on the torus; mirrored moves cost the same.
        arrival = near.source_cells.any()
        if norm == 2:
            return max(self._largest(near), squared_distance(self.kernel, None) if arrival else 0)
        entry, moves = int(np.abs(self.kernel).sum()), moves_within_delta(near)
        if (int(moves.sum()) - 1) * self.kernel.size > _MOST_ABSOLUTE:
            return 2 * entry  # by the triangle inequality: no less than the dearest move
        costs = [
            int(np.abs(self.kernel - np.roll(self.kernel, move, range(self.kernel.ndim))).sum())
            for move in np.argwhere(moves)[1:].tolist()
        ]
        return max([*costs, entry if arrival else 0])

    def _largest(self, near: Neighbourhood) -> int:
        """Return the exact largest Σ (k(w) − k(w − d))² of the moves d within δ."""
        # A move over more than half the torus ends where a shorter one does, which is among them.
        distances = np.atleast_2d(self._distances)
        reach = np.minimum(near.reach[: len(distances)], distances.shape[1] - 1)
        found = np.atleast_2d(self._running)[np.arange(len(reach)), reach]
        least = found.max() - 2 * self._distance_error
        moves = [
            (row, column)[-self.kernel.ndim :]
            for row in np.flatnonzero(found >= least).tolist()
            for column in np.flatnonzero(distances[row, : reach[row] + 1] >= least).tolist()
        ]
        if len(moves) > _MOST_TIED:
            with contextlib.suppress(InputError):  # sums beyond 64 bits
                products = convolve(self.kernel, self.kernel)
                return 2 * (int(products.flat[0]) - min(int(products[move]) for move in moves))
        return max(self._exact_cost(move) for move in moves)

    def _exact_cost(self, move: tuple[int, ...]) -> int:
        if move not in self._known:
            self._known[move] = squared_distance(self.kernel, move)
        return self._known[move]

    @functools.cached_property
    def _known(self) -> dict[tuple[int, ...], int]:
        """Exact costs of moves that were asked for before."""
        return {}

    @functools.cached_property
    def _running(self) -> NDArray[np.float64]:
        """The largest distance of the displacements up to each along the last axis: a row of moves goes from 0 on."""
        return np.asarray(np.maximum.accumulate(self._distances, axis=-1))

    @functools.cached_property
    def _distances(self) -> NDArray[np.float64]:
        """Σ (k(w) − k(w − d))² for the displacements d of a quarter of the torus, to within `_distance_error`."""
        spectrum = self.transform[quarter_of(self.torus)] ** 2
        covariance = cosines(spectrum, self.torus) / math.prod(self.torus)
        return np.asarray(2 * (covariance.flat[0] - covariance))

    @functools.cached_property
    def _distance_error(self) -> float:
        """Bound of the largest error of `_distances`, from both transforms' errors in the 2-norm."""
        size = math.prod(self.torus)
        squares = self.transform[quarter_of(self.torus)] ** 2
        times = multiplicities(self.torus)
        largest, norm = (times * squares).sum() / size, math.sqrt((times * squares**2).sum() / size)
        return float(4 * relative_error(size) * (2 * largest + norm))

    def describe(self) -> dict[str, Any]:
        quarter = self.kernel[quarter_of(self.torus)]
        return {"strategy": "Spectral", "pad": self.pad, "kernel": pack(quarter)}

    @classmethod
    def restore(cls, domain: Domain, *, pad: int | None = None, kernel: str = "") -> Spectral:  # type: ignore[override]
        out = object.__new__(cls)
        pad = None if pad is None else whole(least=0, pad=pad)
        out.__dict__.update(domain=domain, pad=pad, near=None, workload=None)
        fits_memory(64 * math.prod(out.torus), f"a torus of {out.torus} cells")
        quarter = unpack(kernel, tuple(n // 2 + 1 for n in out.torus), "kernel")
        out.__dict__["kernel"] = spread(quarter, out.torus)
        return out


def _padded(n: int) -> int:
    """Return a quarter more cells, rounded up to a number that can be halved often."""
    longer = n + n // 4
    halves = 1 << max(0, longer.bit_length() - 6)
    return -(-longer // halves) * halves


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
        """Variance over all frequencies: the ones that a real transform leaves out mirror others."""
        last = self.strategy.torus[-1]
        return self.spectrum[..., np.minimum(np.arange(last), last - np.arange(last))]

    def field(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Return estimates of the whole torus, which hold the total where it is known."""
        field = self._divide(np.asarray(values, dtype=np.float64).reshape(self.strategy.torus))
        return field if total is None else field + (total - field.sum()) / field.size

    def metric(self) -> Metric:
        """Return the exact metric: the torus' own waves."""
        spectrum = self.spectrum.copy()
        if self.total_known:
            spectrum.flat[0] = 0.0
        return shrink_long_waves(Metric(spectrum, self.strategy.torus, True, self.inside))

    @functools.cached_property
    def table(self) -> NDArray[np.float64]:
        """Variance of boxes by their sides (n + 1 per axis), before a total on a padded torus is used."""
        out = self.torus_spectrum
        for axis, n in enumerate(self.domain.shape):
            out = np.moveaxis(_lengths(np.moveaxis(out, axis, -1), n), -1, axis)
        return np.maximum(out, 0.0, order="C")  # rows side by side: boxes look it up as one row

    @functools.cached_property
    def _with_total(self) -> PublicTotal | None:
        """Variance that a public total takes away, if any."""
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
            variance = variance - self._with_total.reduction(spans)
        variance = np.where(variance < self.rounding_floor * self.table.flat[-1], 0.0, variance)
        return Moments(variance, np.zeros(len(variance)))

    @property
    def rounding_floor(self) -> float:
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
        return float(out) - self._with_total.mean_reduction()


def _lengths(spectrum: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return (1/P) Σ_ω S(ω) |D_l(ω)|² for interval lengths l = 0, ..., n, along the last axis."""
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
