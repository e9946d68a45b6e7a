"""Spectral: the strategy for Gaussian noise that is best on a torus, found in Fourier space."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.errors import InputError, fits_memory, whole
from deltahist.strategies._packed import pack, unpack
from deltahist.strategies.base import Strategy, refuse_pure
from deltahist.strategies.convolution import convolve, squared_distance
from deltahist.workloads.power import power

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.workloads import Workload

#: Multipliers are found on a torus of at most this many cells a side, unless δ is long; finer ones start from them.
_COARSE = 256
#: Rounds on the coarse and on the full torus, and the gap of the certificate at which they end.
_ROUNDS, _FINE_ROUNDS, _GAP = 400, 4, 1e-3
#: Largest error of the kernel's spectrum from rounding its entries to whole numbers.
_ROUNDING = 1e-2
_MOST_BITS = 28
#: Weight of single cells beside the workload's queries: no frequency may be left out.
_CELLS = 1e-3
#: Displacements times cells beyond which Laplace noise is priced by a bound.
_MOST_ABSOLUTE = 1 << 31
#: Share of the largest cost within which a displacement counts as one of the worst.
_NEAR_WORST = 1e-9


@dataclass(frozen=True)
class Multipliers:
    """Solution of the spectral problem: X̂ = √(V̂ / L̂) and how far from the best it can be.

    `spectrum` is √X̂ over the frequencies of the torus, scaled to a largest cost of one; `gap` bounds the
    variance's excess over that of the best strategy of the torus: the dual value certifies it.
    """

    spectrum: NDArray[np.float64]
    gap: float


@dataclass(frozen=True, eq=False)
class Spectral(Strategy):
    """Rows that are shifts of one kernel on a torus, the best for Gaussian noise (use `rho`).

    Minimises tr(V X⁻¹) over circulant X = AᵀA with (e_u − e_v)ᵀ X (e_u − e_v) ≤ 1 for every move within δ, for
    the workload's power spectrum V̂. The kernel is rounded to whole numbers, and the sensitivity is that of
    the rounded kernel, exactly. The torus wraps around: moves across the seam are protected as well, for
    nothing. Source: docs/theory.md, section 6.

    Parameters
    ----------
    near : the neighbourhood whose moves are constraints; one with sources protects arrivals in every cell.
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
        kernel = scipy.fft.irfftn(spectrum[..., : self.torus[-1] // 2 + 1], self.torus)
        for bits in range(8, _MOST_BITS + 1, 2):
            rounded = _mirrored(np.rint(kernel * 2.0**bits).astype(np.int64))
            error = np.abs(_transform(rounded) / 2.0**bits / spectrum[..., : self.torus[-1] // 2 + 1] - 1)
            if error.max() <= _ROUNDING:
                break
        return rounded

    @functools.cached_property
    def transform(self) -> NDArray[np.float64]:
        """Spectrum of the rounded kernel, over the frequencies that a real transform has; none is zero."""
        out = _transform(self.kernel)
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

    def edge_cost(self, near: Neighbourhood, norm: int) -> int:
        # The same wherever an edge lies on the torus; mirrored moves cost the same.
        arrival = near.source_cells.any()
        if norm == 1:
            entry = int(np.abs(self.kernel).sum())
            moves = np.argwhere(_within(near))[1:]
            if len(moves) * self.kernel.size > _MOST_ABSOLUTE:
                return 2 * entry  # by the triangle inequality: no less than the dearest move
            costs = [
                int(np.abs(self.kernel - np.roll(self.kernel, move, range(self.kernel.ndim))).sum())
                for move in moves.tolist()
            ]
            return max([*costs, entry if arrival else 0])
        within = _within(near)
        found = np.where(within, self._distances[tuple(slice(0, n) for n in within.shape)], 0.0)
        worst = np.argwhere(found >= found.max() - _NEAR_WORST * self._distances.max())
        costs = [squared_distance(self.kernel, move) for move in worst.tolist() if any(move)]
        return max([*costs, squared_distance(self.kernel, None) if arrival else 0])

    @functools.cached_property
    def _distances(self) -> NDArray[np.float64]:
        """Σ (k(w) − k(w − d))² for every displacement d of the torus, to twelve digits or so."""
        covariance = scipy.fft.irfftn(self.transform**2, self.torus)
        return np.asarray(2 * (covariance.flat[0] - covariance))

    def describe(self) -> dict[str, Any]:
        quarter = tuple(slice(0, n // 2 + 1) for n in self.torus)
        return {"strategy": "Spectral", "pad": self.pad, "kernel": pack(self.kernel[quarter])}

    @classmethod
    def restore(cls, domain: Domain, *, pad: int | None = None, kernel: str = "") -> Spectral:  # type: ignore[override]
        out = object.__new__(cls)
        pad = None if pad is None else whole(least=0, pad=pad)
        out.__dict__.update(domain=domain, pad=pad, near=None, workload=None)
        fits_memory(64 * math.prod(out.torus), f"a torus of {out.torus} cells")
        quarter = unpack(kernel, tuple(n // 2 + 1 for n in out.torus), "kernel")
        index = np.ix_(*(np.minimum(np.arange(n), n - np.arange(n)) for n in out.torus))
        out.__dict__["kernel"] = quarter[index]
        return out


def _within(near: Neighbourhood) -> NDArray[np.bool_]:
    """Which displacements, none negative, stay within δ; the first is none at all."""
    if near.domain.ndim == 1:
        return np.ones(int(near.reach[0]) + 1, dtype=bool)
    return np.asarray(np.arange(int(near.reach[0]) + 1) <= near.reach[:, None])


def _padded(n: int) -> int:
    """A quarter more cells, rounded up to a number that can be halved often."""
    longer = n + n // 4
    halves = 1 << max(0, longer.bit_length() - 6)
    return -(-longer // halves) * halves


def _mirrored(kernel: NDArray[np.int64]) -> NDArray[np.int64]:
    """The kernel with entries at −d replaced by those at d, along every axis: equal to the last bit."""
    return kernel[np.ix_(*(np.minimum(np.arange(n), n - np.arange(n)) for n in kernel.shape))]


def _transform(kernel: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(scipy.fft.rfftn(kernel.astype(np.float64)).real)


def solve(near: Neighbourhood, workload: Workload | None, torus: tuple[int, ...]) -> Multipliers:
    """The best spectrum of a torus for a neighbourhood's moves and a workload's sizes.

    Minimise Σ V̂/X̂ subject to 2 (x(0) − x(d)) ≤ 1 for every displacement d within δ, and x(0) ≤ 1 if there are
    sources. With multipliers λ the best is X̂ = √(V̂ / L̂), L̂ = Σ_d λ_d |1 − e^{iω·d}|² (+ λ₀); each round
    multiplies λ by its constraint's value. The dual value (Σ √(V̂ L̂))² / Σ λ bounds the best from below.
    """
    longest = int(max(near.displacements().max(initial=1), 1))
    coarse = tuple(min(n, max(_COARSE, 4 * longest)) for n in torus)
    chart = _Chart(near, coarse)
    if not chart.allowed.any():  # a single cell, which nobody enters: there is nothing to protect
        return Multipliers(np.ones(torus), 0.0)
    weight = power(workload, near.domain, coarse) + _CELLS
    start = chart.allowed / chart.allowed.sum()
    multipliers, _ = chart.rounds(weight, start, _ROUNDS)
    if coarse != torus:
        fine = _Chart(near, torus)
        weight = power(workload, near.domain, torus) + _CELLS
        moved = np.zeros(torus)
        moved[fine.allowed] = multipliers[chart.allowed]
        chart, (multipliers, _) = fine, fine.rounds(weight, moved, _FINE_ROUNDS)
    spectrum, costs = chart.evaluate(weight, multipliers)
    worst, mean = costs[chart.allowed].max(), float((multipliers * costs).sum() / multipliers.sum())
    spectrum /= worst
    if not chart.arrivals:
        # The total is free, since no move changes it: measured as well as the best frequency.
        spectrum.flat[0] = spectrum.max()
    return Multipliers(np.sqrt(spectrum), float(worst / mean - 1))


class _Chart:
    """A torus with the displacements that are constraints marked on it; 0 stands for arrivals."""

    def __init__(self, near: Neighbourhood, torus: tuple[int, ...]) -> None:
        self.torus, self.arrivals = torus, bool(near.source_cells.any())
        self.allowed = np.zeros(torus, dtype=bool)
        moves = near.displacements()
        for sign in np.ndindex(*(2,) * len(torus)):
            place = moves * (1 - 2 * np.array(sign))
            self.allowed[tuple(p % n for p, n in zip(place.T, torus, strict=True))] = True
        self.allowed.flat[0] = self.arrivals

    def evaluate(
        self, weight: NDArray[np.float64], multipliers: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """X̂ and the costs 2 (x(0) − x(d)), at 0 that of an arrival."""
        entry = float(multipliers.flat[0])
        rest = multipliers.copy()
        rest.flat[0] = 0
        laplacian = 2 * (rest.sum() - scipy.fft.fftn(rest).real) + entry
        with np.errstate(divide="ignore"):
            spectrum = np.sqrt(weight / np.maximum(laplacian, 0))
        if not self.arrivals:
            spectrum.flat[0] = 0
        x = scipy.fft.ifftn(spectrum).real
        costs = 2 * (x.flat[0] - x)
        costs.flat[0] = x.flat[0]
        return spectrum, costs

    def rounds(
        self, weight: NDArray[np.float64], start: NDArray[np.float64], number: int
    ) -> tuple[NDArray[np.float64], float]:
        """Multipliers after at most `number` rounds, and the gap they certify."""
        multipliers, gap = start, math.inf
        for _ in range(number):
            _, costs = self.evaluate(weight, multipliers)
            mean = float((multipliers * costs).sum() / multipliers.sum())
            gap = float(costs[self.allowed].max()) / mean - 1
            if gap <= _GAP:
                break
            multipliers = np.where(self.allowed, multipliers * np.maximum(costs, 0), 0.0)
            multipliers /= multipliers.sum()
        return multipliers, gap
