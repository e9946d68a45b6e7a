"""Spectral: the strategy for Gaussian noise that is best on a torus, its decoder and certificate, in Fourier space.

Problem: minimise Σ V̂/X̂ subject to 2 (x(0) − x(d)) ≤ w(d)² for every displacement d of a move, and x(0) ≤ w² for
arrivals. With multipliers λ that add up to one the best is X̂ = √(V̂ / L̂), L̂ = Σ_d λ_d |1 − e^{iω·d}|² / w(d)²
(+ λ₀ / w²); let f be the mean of √(V̂ L̂) over the frequencies. Then f² bounds the best from below, f times the
largest cost over its w² is what X̂ reaches once it is scaled to keep all bounds, and f is also the mean over λ of the
costs over their w², so that the two agree where every λ_d > 0 has the same, largest, of these. Each round raises the
multipliers of what costs more than the mean. Derivation: docs/internals/theory.md, section 6.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist._memory import check_memory
from deltahist.decode.base import Decoder
from deltahist.decode.forms import PublicTotal
from deltahist.decode.projection import Metric, shrink_long_waves
from deltahist.errors import InputError, check_whole
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Boxes, Pieces, Regions, Span
from deltahist.strategies.base import Strategy
from deltahist.strategies.gaussian import Ascent, BestGaussian, arrival_squares, bound_levels, pack, unpack

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

#: Regions of a longer list are thinned out to this many, for their power.
_MOST_REGIONS = 64
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: Largest error of the kernel's spectrum from rounding its entries to whole numbers, and their digits at most.
_ROUNDING, _MOST_BITS = 1e-2, 28
#: Displacements times cells beyond which Laplace noise is priced by a bound.
_MOST_ABSOLUTE = 1 << 31
#: So many displacements that may be the dearest one are looked at one by one.
_MOST_TIED = 16
#: Multipliers are found on a torus of at most this many cells a side, unless δ is long; finer ones start from them.
_COARSE = 256
#: Rounds on the coarse and on the full torus, and the gaps of the certificate at which they end.
_ROUNDS, _FINE_ROUNDS, _GAP = 400, 4, 1e-3
#: The same on the full torus under limits, whose multipliers are spread over all of it.
_LIMITED_ROUNDS, _LIMITED_GAP = 40, 3e-3
#: Part of the gap below which all multipliers together are nothing: a displacement may have to come back.
_IDLE = 1e-3
#: Share of the multipliers that a limit starts with which the coarse torus did not know.
_UNKNOWN = 1e-2
#: Weight of single cells beside the workload's queries: no frequency may be left out.
_CELLS = 1e-3
#: Bound of a transform's relative error per doubling of its length, in units of the float's precision.
_PER_LEVEL = 8
#: Errors below this leave the nearest whole number without doubt.
_SURE = 0.25
#: Entries that are squared at once.
_AT_ONCE = 1 << 16
#: Binary digits that are tried where numbers are too long as they stand.
_SHORTER = (31, 21, 16, 13, 11, 9, 8, 7, 6, 5)


@dataclass(frozen=True, eq=False)
class Spectral(BestGaussian):
    """Rows that are shifts of one kernel on a torus, the best for Gaussian noise (use `rho`).

    Minimises tr(V X⁻¹) over circulant X = AᵀA with (e_u − e_v)ᵀ X (e_u − e_v) ≤ 1 for every move within δ, and
    at most the square of what the neighbourhood's limits promise for longer ones, for the workload's power
    spectrum V̂. The kernel is rounded to whole numbers, and the sensitivity is that of the rounded kernel,
    exactly. The torus wraps around: moves across the seam are protected as well, for nothing. Source:
    docs/internals/theory.md, section 6.

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

    texts: ClassVar[tuple[str, ...]] = ("spectral",)

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if norm == 2 and near.domain.size > 1:
            yield "Spectral", cls(near, workload)

    def __post_init__(self) -> None:
        if self.pad is not None:
            object.__setattr__(self, "pad", check_whole(least=0, pad=self.pad))
        check_memory(64 * math.prod(self.torus), f"a torus of {self.torus} cells")
        if self.workload is not None:  # refuses what does not fit
            power(self.workload, self.domain, tuple(min(n, 4) for n in self.torus))

    @functools.cached_property
    def torus(self) -> tuple[int, ...]:
        """Cells of the torus along each axis."""
        # An axis of a single cell has no moves, and would leave what is added undetermined.
        return tuple(_padded(n) if self.pad is None else n + self.pad if n > 1 else 1 for n in self.domain.shape)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (math.prod(self.torus), self.domain.size)

    @functools.cached_property
    def solution(self) -> SpectralSolution:
        """The best spectrum, before rounding, with its certificate."""
        return solve(self.near, self.workload, self.torus)

    @functools.cached_property
    def kernel(self) -> IntArray:
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
    def transform(self) -> FloatArray:
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
        inside, cut = (tuple(slice(0, n) for n in shape) for shape in (given, wanted))
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
        entry, reach = int(np.abs(self.kernel).sum()), near.reach.tolist()
        if (sum(reach) + len(reach) - 1) * self.kernel.size > _MOST_ABSOLUTE:
            return 2 * entry  # by the triangle inequality: no less than the dearest move
        axes = range(self.kernel.ndim)
        moves = [(dx, dy)[-len(axes) :] for dx, far in enumerate(reach) for dy in range(far + 1)]
        costs = [int(np.abs(self.kernel - np.roll(self.kernel, move, axes)).sum()) for move in moves[1:]]
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
        for move in set(moves) - set(self._known):
            self._known[move] = squared_distance(self.kernel, move)
        return max(self._known[move] for move in moves)

    @functools.cached_property
    def _known(self) -> dict[tuple[int, ...], int]:
        """Exact costs of moves that were asked for before."""
        return {}

    @functools.cached_property
    def _running(self) -> FloatArray:
        """The largest distance of the displacements up to each along the last axis: a row of moves goes from 0 on."""
        return np.asarray(np.maximum.accumulate(self._distances, axis=-1))

    @functools.cached_property
    def _distances(self) -> FloatArray:
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
        out = cls._solved(domain=domain, pad=None if pad is None else check_whole(least=0, pad=pad))
        check_memory(64 * math.prod(out.torus), f"a torus of {out.torus} cells")
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
    has_closed_form = True

    def solve(self, values: FloatArray) -> FloatArray:
        return self._divide(values.reshape(self.strategy.torus))[self.inside].ravel()

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        field = np.zeros(self.strategy.torus)
        field[self.inside] = query.reshape(self.domain.shape)
        return self._divide(field).ravel()

    def _divide(self, field: FloatArray) -> FloatArray:
        return np.asarray(scipy.fft.irfftn(scipy.fft.rfftn(field) / self.strategy.transform, field.shape))

    @functools.cached_property
    def inside(self) -> tuple[slice, ...]:
        """The domain's part of the torus."""
        return tuple(slice(0, n) for n in self.domain.shape)

    @property
    def _same(self) -> bool:
        return self.strategy.torus == self.domain.shape

    @functools.cached_property
    def spectrum(self) -> FloatArray:
        """Variance of the estimates by frequency of the torus; without the total where it is known."""
        out = self.laws[0].variance() / self.strategy.transform**2
        if self.total_known and self._same:
            out.flat[0] = 0.0
        return out

    def estimate_on_grid(self, values: NDArray[Any], total: int | None) -> FloatArray:
        """Return estimates of the whole torus, which hold the total where it is known."""
        field = self._divide(np.asarray(values, dtype=np.float64).reshape(self.strategy.torus))
        return field if total is None else field + (total - field.sum()) / field.size

    def noise_metric(self) -> Metric:
        """Return the exact metric: the torus' own waves."""
        spectrum = self.spectrum.copy()
        if self.total_known:
            spectrum.flat[0] = 0.0
        return shrink_long_waves(Metric(spectrum, self.strategy.torus, True, self.inside))

    @functools.cached_property
    def table(self) -> FloatArray:
        """Variance of boxes by their sides (n + 1 per axis), before a total on a padded torus is used."""
        last = self.strategy.torus[-1]
        # All frequencies: the ones that a real transform leaves out mirror others.
        out = self.spectrum[..., np.minimum(np.arange(last), last - np.arange(last))]
        for axis, n in enumerate(self.domain.shape):
            out = np.moveaxis(_lengths(np.moveaxis(out, axis, -1), n), -1, axis)
        return np.maximum(out, 0.0, order="C")  # rows side by side: boxes look it up as one row

    @functools.cached_property
    def _with_total(self) -> PublicTotal | None:
        """Variance that a public total takes away, if any."""
        if not self.total_known or self._same:
            return None
        along = self.solve(self.laws[0].variance() * self.solve_adjoint(np.ones(self.domain.size)))
        return PublicTotal(along.reshape(self.domain.shape))

    def box_variance(self, spans: Sequence[Span]) -> FloatArray:
        # q = Σ w_e P_e has the correlation −½ Σ w_e w_f tri(e − f) along each axis, the weights adding up to 0.
        flat, row = self.table.ravel(), self.table.shape[-1]
        pairs = []
        for low, high in spans:
            edges = Pieces.of(low, high).edges
            pairs.append([(np.abs(i - j), -0.5 * v * w) for i, v in edges for j, w in edges])
        out = np.zeros(len(spans[0][0]))
        *across, along = pairs
        for side, weight in along:
            for other, factor in across[0] if across else [(np.int64(0), np.float64(1.0))]:
                out += weight * factor * flat[other * row + side]
        return out if self._with_total is None else out - self._with_total.box_reduction(spans)

    @property
    def rounding_floor(self) -> float:
        return 1e-12 * max(1.0, float(self.table.flat[-1]))

    def mean_variance(self, work: AllRanges) -> float:
        out = self.table
        for n in reversed(self.domain.shape):
            out = out[..., 1:] @ (np.arange(n, 0, -1) / (n * (n + 1) / 2))
        return float(out) - (0.0 if self._with_total is None else self._with_total.mean_reduction())


def _lengths(spectrum: FloatArray, n: int) -> FloatArray:
    """Return (1/P) Σ_ω S(ω) |D_l(ω)|² for interval lengths l = 0, ..., n, along the last axis."""
    p = spectrum.shape[-1]
    omega = 2 * np.pi * np.arange(1, p) / p
    scaled = np.zeros_like(spectrum)
    scaled[..., 1:] = spectrum[..., 1:] / (2 * np.sin(omega / 2) ** 2)
    waves = scipy.fft.rfft(scaled, axis=-1).real
    length = np.arange(n + 1)
    place = np.minimum(length % p, p - length % p)
    return np.asarray((scaled.sum(axis=-1, keepdims=True) - waves[..., place] + spectrum[..., :1] * length**2.0) / p)


class SpectralSolution(NamedTuple):
    """The best spectrum X̂ = √(V̂ / L̂), and how far from the best it can be.

    `spectrum` is √X̂ over a quarter of the torus' frequencies (the others mirror it), scaled so that the largest cost is
    its bound; `gap` bounds the variance's excess over that of the best strategy of the torus: the dual value certifies
    it.
    """

    spectrum: FloatArray
    gap: float


def solve(near: Neighbourhood, workload: Workload | None, torus: tuple[int, ...]) -> SpectralSolution:
    """Return the best spectrum of a torus for a neighbourhood's moves and limits and a workload's sizes."""
    longest = int(max(near.reach.max(initial=1), len(near.reach) - 1 if len(torus) == 2 else 1, 1))
    coarse = tuple(min(n, max(_COARSE, 4 * longest)) for n in torus)
    chart = _Chart(near, workload, coarse)
    if not len(chart.scale):  # a single cell, which nobody enters: there is nothing to protect
        return SpectralSolution(np.ones(chart.place.shape), 0.0)
    climb = _limited if near.profile else _plain
    found = climb(chart, chart.start(), _ROUNDS, _GAP)
    if coarse != torus:
        fine = _Chart(near, workload, torus)
        rounds, gap = (_LIMITED_ROUNDS, _LIMITED_GAP) if near.profile else (_FINE_ROUNDS, _GAP)
        found, chart = climb(fine, fine.refined(chart, found.multipliers), rounds, gap), fine
    spectrum = found.spectrum / found.worst
    if not chart.arrivals:
        # The total is free, since no move changes it: measured as well as the best frequency.
        spectrum.flat[0] = spectrum.max()
    return SpectralSolution(np.sqrt(spectrum), found.gap)


class _Found(NamedTuple):
    """Multipliers, the spectrum that they lead to, the largest of its costs over their bounds, and the gap."""

    multipliers: FloatArray
    spectrum: FloatArray
    worst: float
    gap: float


class _Chart:
    """A torus with the displacements that are bounded marked on its quarter; 0 stands for arrivals.

    Multipliers are a flat array of those displacements alone, each for itself and its mirror images.
    """

    def __init__(self, near: Neighbourhood, workload: Workload | None, torus: tuple[int, ...]) -> None:
        self.torus, quarter = torus, quarter_of(torus)
        self.weight = power(workload, near.domain, torus)[quarter] + _CELLS
        place, squares = bound_levels(near)
        # A move that is longer than half the torus ends where a shorter one does, whose bound is no larger.
        known = place[quarter]
        missing = [(0, n // 2 + 1 - have) for n, have in zip(torus, known.shape, strict=True)]
        #: Which of the neighbourhood's relations bounds each displacement: the number of them if none does.
        self.place = np.pad(known, missing, constant_values=len(squares) - 1)
        entry = float(arrival_squares(near).min())
        self.arrivals = math.isfinite(entry)
        self.place.flat[0] = 0 if self.arrivals else len(squares) - 1
        self.bounded = self.place < len(squares) - 1
        self.times = multiplicities(torus)[self.bounded]
        self.scale = 1 / (squares[self.place[self.bounded]])
        if self.arrivals:
            self.scale[0] = 1 / entry

    def start(self) -> FloatArray:
        """Return multipliers to start from: each relation has the same share, evenly spread."""
        place = self.place[self.bounded]
        out = self.times / np.bincount(place, self.times)[place]
        return np.asarray(out / out.sum())

    def refined(self, coarse: _Chart, multipliers: FloatArray) -> FloatArray:
        """Return multipliers to start from, given a smaller torus with its multipliers.

        Those of relations that are all on the smaller torus are the same; others keep their sum, spread evenly.
        """
        place, before = self.place[self.bounded], coarse.place[coarse.bounded]
        number = int(place.max()) + 1
        size, had = (np.bincount(p, chart.times, number) for p, chart in ((place, self), (before, coarse)))
        share = np.maximum(np.bincount(before, multipliers, number), _UNKNOWN / number * (size > had))
        out = np.zeros(self.place.shape)
        out[self.bounded] = self.times * (share / np.maximum(size, 1))[place]
        same = np.append(size == had, False)
        inner = tuple(slice(0, n) for n in coarse.place.shape)
        kept = np.zeros(coarse.place.shape)
        kept[coarse.bounded] = multipliers
        known = coarse.bounded & same[np.where(coarse.bounded, coarse.place, number)]
        out[inner] = np.where(known, kept, out[inner])
        start = out[self.bounded]
        return np.asarray(start / start.sum())

    def evaluate(self, multipliers: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return X̂, the costs over their bounds, 2 (x(0) − x(d)) / w², an arrival's first, and their mean f."""
        forces = np.zeros(self.place.shape)
        forces[self.bounded] = multipliers * self.scale / self.times
        entry = float(forces.flat[0])
        forces.flat[0] = 0
        waves = cosines(forces, self.torus)
        laplacian = 2 * (waves.flat[0] - waves) + entry
        with np.errstate(divide="ignore"):
            spectrum = np.sqrt(self.weight / np.maximum(laplacian, 0))
        if not self.arrivals:
            spectrum.flat[0] = 0
        x = cosines(spectrum, self.torus) / math.prod(self.torus)
        costs = 2 * (x.flat[0] - x)
        costs.flat[0] = x.flat[0]
        relative = np.maximum(costs[self.bounded] * self.scale, 0)
        return spectrum, relative, float(multipliers @ relative / multipliers.sum())


def _plain(chart: _Chart, start: FloatArray, number: int, gap: float) -> _Found:
    """Return the spectrum after rounds of λ ← λ · cost, enough where only moves within δ are bounded."""
    multipliers = start
    for left in range(number, -1, -1):
        spectrum, relative, mean = chart.evaluate(multipliers)
        worst = float(relative.max())
        if not left or worst / mean - 1 <= gap:
            break
        multipliers = multipliers * relative
        multipliers /= multipliers.sum()
    return _Found(multipliers, spectrum, worst, worst / mean - 1)


def _limited(chart: _Chart, start: FloatArray, number: int, gap: float) -> _Found:
    """Return the best spectrum of some steps of `Ascent`, with the best lower bound of all of them."""
    ascent = Ascent(np.log(start), floor=_IDLE * gap / len(start))
    dual, primal = 0.0, math.inf
    for _ in range(number):
        multipliers = ascent.weight()
        spectrum, relative, mean = chart.evaluate(multipliers)
        worst, dual = float(relative.max()), max(dual, mean)
        if mean * worst < primal:
            primal, best = mean * worst, (multipliers, spectrum, worst)
        if primal <= (1 + gap) * dual**2:
            break
        ascent.step(multipliers, relative / mean, mean)
    return _Found(*best, primal / dual**2 - 1)


def convolve(kernel: IntArray, field: NDArray[Any]) -> NDArray[Any]:
    """Return the circular convolution of two arrays of one shape: exact for integers, else as exact as floats are.

    Whole numbers are cut into digits so short that the transforms' error stays under a quarter; sums of
    products of digits, rounded, are then exact. Raises InputError if a result could exceed 64 bits.
    """
    if field.dtype.kind == "f":
        return np.asarray(scipy.fft.irfftn(_transform(kernel) * _transform(field), field.shape))
    if float(np.abs(kernel).max()) * float(np.abs(field).sum(dtype=np.float64)) >= 2.0**62:
        raise InputError("sums of counts times the strategy's rows exceed 64 bits: there are too many points")
    longest = 1 + max(int(np.abs(part).max(initial=0)).bit_length() for part in (kernel, field))
    for bits in (longest, *(bits for bits in _SHORTER if bits < longest)):
        left, right = _digits(kernel, bits), _digits(field, bits)
        # Without a transform first: a spectrum's mean square is the sum of squares, its largest entry no less.
        if max(_error(a, _norm(a), b) for a in left for b in right) >= _SURE:
            continue
        spectra = [_transform(d) for d in left]
        highest = [float(np.abs(spectrum).max()) for spectrum in spectra]
        if all(_error(a, high, b) < _SURE for a, high in zip(left, highest, strict=True) for b in right):
            break
    else:
        raise InputError(f"a torus of {field.size:,} cells is too large for exact sums: use fewer cells")
    out = np.zeros(field.shape, dtype=np.int64)
    for j, b in enumerate(right):
        other = _transform(b)
        for i, spectrum in enumerate(spectra):
            found = scipy.fft.irfftn(spectrum * other, field.shape)
            out += np.rint(found).astype(np.int64) << (bits * (i + j))
    return out


def squared_distance(kernel: IntArray, move: Sequence[int] | None) -> int:
    """Return the exact Σ (k(w) − k(w − move))², or Σ k(w)² without a move."""
    step = max(1, _AT_ONCE * len(kernel) // kernel.size)
    total = 0
    for start in range(0, len(kernel), step):
        change = kernel[start : start + step]
        if move is not None:
            from_where = np.arange(start, start + len(change)) - move[0]
            moved = kernel.take(from_where, axis=0, mode="wrap")
            change = change - np.roll(moved, move[1:], range(1, kernel.ndim))
        total += _sum_of_squares(change.ravel())
    return total


def _sum_of_squares(numbers: IntArray) -> int:
    """Return the exact sum of squares, in floats if it is small enough for these to stay whole."""
    plain = numbers.astype(np.float64)
    found = float(plain @ plain)
    if found < 2.0**52:
        return int(found)
    if float(np.abs(plain).max()) >= 2.0**31:
        raise InputError("the strategy's rows are too large: entries must be below 2^30")
    square = numbers * numbers
    return (int((square >> 32).sum()) << 32) + int((square & 0xFFFFFFFF).sum())


def _transform(field: NDArray[Any]) -> NDArray[np.complex128]:
    return np.asarray(scipy.fft.rfftn(field.astype(np.float64, copy=False)))


def _digits(field: IntArray, bits: int) -> list[IntArray]:
    """Return signed digits in base 2^bits, lowest first; at least one."""
    out: list[IntArray] = []
    rest, half = field, np.int64(1) << (bits - 1)
    while not out or rest.any():
        low = ((rest + half) & ((half << 1) - 1)) - half
        out.append(low)
        rest = (rest - low) >> bits
    return out


def _error(a: IntArray, highest: float, b: IntArray) -> float:
    """Return the bound of the largest error of a ∗ b: three transforms, each with a relative error in the 2-norm.

    `highest` is the largest entry of the spectrum of a.
    """
    return relative_error(a.size) * _norm(b) * (2 * _norm(a) + highest)


def _norm(digits: IntArray) -> float:
    return math.sqrt(float(np.square(digits, dtype=np.float64).sum()))


def relative_error(size: int) -> float:
    """Return the bound of a transform's relative error in the 2-norm."""
    return float(_PER_LEVEL * max(1.0, math.log2(size)) * np.finfo(np.float64).eps)


def quarter_of(torus: Sequence[int]) -> tuple[slice, ...]:
    """Return the part of a torus that says all of an even array."""
    return tuple(slice(0, n // 2 + 1) for n in torus)


def spread(quarter: NDArray[Any], torus: Sequence[int]) -> NDArray[Any]:
    """Return the whole array of a quarter, equal to the last bit on both sides of every axis."""
    return quarter[np.ix_(*(np.minimum(np.arange(n), n - np.arange(n)) for n in torus))]


def multiplicities(torus: Sequence[int]) -> FloatArray:
    """Return how many entries of the torus each entry of the quarter stands for."""
    places = (np.minimum(np.arange(n), n - np.arange(n)) for n in torus)
    return functools.reduce(np.multiply.outer, [np.bincount(place).astype(np.float64) for place in places])


def cosines(quarter: FloatArray, torus: Sequence[int]) -> FloatArray:
    """Return the Fourier transform of an even array, which is real and even as well, from quarter to quarter."""
    out = quarter
    for axis, n in enumerate(torus):
        if n % 2 == 0:
            out = scipy.fft.dct(out, 1, axis=axis)
        else:
            index = np.minimum(np.arange(n), n - np.arange(n))
            out = scipy.fft.rfft(np.take(out, index, axis), axis=axis).real
    return np.asarray(out)


# --- power on a torus ---------------------------------------------------------------------------------------


def power(work: Boxes | AllRanges | Regions | None, domain: Domain, torus: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the mean |q̂(ω)|² of the queries over the frequencies of a torus, mirrored along every axis.

    All a translation-invariant strategy knows of queries; of all ranges when None. Sizes of boxes are rounded to whole
    cells.
    """
    if isinstance(work, Regions):
        return _power_of_regions(work, domain, torus)
    frequencies = [2 * np.pi * np.arange(p) / p for p in torus]
    if isinstance(work, Boxes):
        sides = [np.maximum(np.rint(high - low), 1).astype(np.int64) for low, high in work.spans(domain)]
        kinds = [np.unique(side, return_inverse=True) for side in sides]
        each = [_power_of_lengths(lengths, omega) for (lengths, _), omega in zip(kinds, frequencies, strict=True)]
        if len(each) == 1:
            return np.asarray(np.bincount(kinds[0][1]) @ each[0] / len(work))
        (first, i), (second, j) = kinds
        number = np.bincount(i * len(second) + j, minlength=len(first) * len(second))
        return np.asarray(each[0].T @ number.reshape(len(first), len(second)) @ each[1] / len(work))
    if work is not None:
        work.check(domain)
    axes = [_power_of_all(n, omega) for n, omega in zip(domain.shape, frequencies, strict=True)]
    return axes[0] if len(axes) == 1 else np.multiply.outer(*axes)


def _power_of_all(n: int, omega: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of |q̂|² over all intervals of n cells, through Fejér's kernel.

    For an interval of l cells, |q̂|² = (1 − cos lω) / (1 − cos ω).
    """
    out = np.full(len(omega), (n + 1) * (n + 2) / 6)
    half = omega[1:] / 2
    fejer = np.sin((n + 1) * half) ** 2 / np.sin(half) ** 2
    out[1:] = ((n + 1) ** 2 - fejer) / (4 * np.sin(half) ** 2) / (n * (n + 1) / 2)
    return out


def _power_of_lengths(lengths: NDArray[np.int64], omega: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |q̂|² of intervals (lengths, frequencies)."""
    out = np.empty((len(lengths), len(omega)))
    out[:, 0] = lengths.astype(np.float64) ** 2
    out[:, 1:] = np.sin(np.multiply.outer(lengths, omega[1:] / 2)) ** 2 / np.sin(omega[1:] / 2) ** 2
    return out


def _power_of_regions(work: Regions, domain: Domain, torus: tuple[int, ...]) -> NDArray[np.float64]:
    rows = work.matrix(domain)
    out = np.zeros(torus)
    chosen = range(0, rows.shape[0], -(-rows.shape[0] // _MOST_REGIONS))
    for i in chosen:
        cells = np.unravel_index(rows[[i]].indices, domain.shape)
        field = np.zeros(torus)
        # Cells a torus apart have the same phase at its frequencies.
        np.add.at(field, tuple(c % p for c, p in zip(cells, torus, strict=True)), rows[[i]].data)
        out += np.abs(np.fft.fftn(field)) ** 2
    for axis in range(out.ndim):
        out = (out + np.roll(np.flip(out, axis), 1, axis)) / 2
    return out / len(chosen)
