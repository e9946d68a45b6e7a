"""The best strategy for Gaussian noise on a torus, with its decoder and certificate in Fourier space.

`Spectral` minimises Σ V̂/X̂ subject to 2 (x(0) − x(d)) ≤ w(d)² for every displacement d of a move, and x(0) ≤ w² for
arrivals. Each round raises the multipliers of constraints whose ratio of cost to w² is above the mean. The gap closes
when every constraint with a positive multiplier has the largest ratio. Derivation: docs/internals/theory.md, section 6.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder
from deltahist.decode.forms import FloatArray, IntArray, PublicTotal
from deltahist.decode.projection import Metric, shrink_long_waves
from deltahist.errors import InputError, check_memory
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Pieces, Regions, Span, Workload
from deltahist.strategies import gaussian
from deltahist.strategies.base import Strategy

#: Larger tori start from the multipliers of a torus with this many cells per side (more if δ is large).
_COARSE = 256
#: The weight of single cells, which are added to a workload so that every frequency occurs.
_CELLS = 1e-3


@dataclass(frozen=True, eq=False)
class Spectral(gaussian.BestGaussian):
    """The best strategy for Gaussian noise (use `rho`) among those whose rows are shifts of one kernel on a torus.

    `Spectral` minimises tr(V X⁻¹) over circulant X = AᵀA for the workload's power spectrum V̂. (e_u − e_v)ᵀ X (e_u −
    e_v) is at most 1 for moves within δ, and at most the squared limit for longer moves. The kernel is rounded to
    integers, and the sensitivity is computed exactly from the rounded kernel. The torus wraps around, so moves across
    its seam are also protected. The torus is about a quarter longer than the domain, because an empty margin improves
    non-negative estimates.
    Source: docs/internals/theory.md, section 6.

    Parameters
    ----------
    near : the neighbourhood. If it has sources, the least factor for arrivals protects arrivals in every cell.
    workload : the queries (all ranges by default). Only their sizes matter.

    Raises InputError if the workload does not fit the domain, or if the torus does not fit in memory.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64)
    >>> workload = dh.workloads.all_ranges(near.domain)
    >>> error = dh.expected_error(Spectral(near), near, workload.sample(1000), rho=0.5)
    >>> bool(4.9 < error.mean() ** 0.5 < 5.4)
    True
    """

    near: Neighbourhood
    workload: Workload | None = None
    texts: ClassVar[tuple[str, ...]] = ("spectral",)
    most_axes: ClassVar[int] = 2

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if norm == 2 and near.domain.size > 1:
            yield "Spectral", cls(near, workload)

    def __post_init__(self) -> None:
        # Raises InputError if the torus does not fit in memory or the workload does not fit the domain.
        workload_power(self.workload, self.domain, tuple(min(n, 4) for n in self.torus))

    @functools.cached_property
    def torus(self) -> tuple[int, ...]:
        """The number of cells of the torus along each axis. Raises InputError if the torus does not fit in memory."""
        padded = [n + n // 4 for n in self.domain.shape]
        halves = [1 << max(0, n.bit_length() - 6) for n in padded]
        # Round up to numbers with many factors of 2, for fast transforms.
        torus = tuple(-(-n // half) * half for n, half in zip(padded, halves, strict=True))
        check_memory(64 * math.prod(torus), f"a torus of {torus} cells")
        return torus

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        return (math.prod(self.torus), self.domain.size)

    @functools.cached_property
    def solution(self) -> SpectralSolution:
        """The best spectrum before rounding, with its certificate."""
        return solve_spectral(self.near, self.workload, self.torus)

    @functools.cached_property
    def kernel(self) -> IntArray:
        """The integer row of cell 0, an array over the torus that is symmetric along each axis."""
        spectrum = self.solution.spectrum
        kernel = cosine_transform(spectrum, self.torus) / math.prod(self.torus)
        for bits in range(8, 29, 2):
            rounded = np.rint(kernel * 2.0**bits)
            error = np.abs(cosine_transform(rounded, self.torus) / 2.0**bits / spectrum - 1)
            if error.max() <= 0.01 or 4 * np.abs(rounded).max() >= gaussian.LARGEST_ENTRY:
                break
        return mirror_quarter(rounded.astype(np.int64), self.torus)

    @functools.cached_property
    def transform(self) -> FloatArray:
        """The spectrum (never zero) of the rounded kernel at the frequencies of a real transform."""
        out = np.asarray(scipy.fft.rfftn(self.kernel.astype(np.float64)).real)
        if np.abs(out).min() <= 1e-12 * np.abs(out).max():
            raise InputError("the kernel of strategy Spectral is damaged: its spectrum must be nonzero everywhere")
        return out

    @functools.cached_property
    def point_limit(self) -> int:  # type: ignore[override]
        return (1 << 62) // int(np.abs(self.kernel).max())

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._convolve_columns(X, self.domain.shape, self.torus)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._convolve_columns(X, self.torus, self.domain.shape)

    def _convolve_columns(self, X: NDArray[Any], given: tuple[int, ...], wanted: tuple[int, ...]) -> NDArray[Any]:
        inside, cut = (tuple(slice(0, n) for n in shape) for shape in (given, wanted))
        out = np.empty((math.prod(wanted), X.shape[1]), dtype=X.dtype)
        for column in range(X.shape[1]):
            field = np.zeros(self.torus, dtype=X.dtype)
            field[inside] = X[:, column].reshape(given)
            out[:, column] = convolve_circularly(self.kernel, field)[cut].ravel()
        return out

    def decoder_class(self) -> type[Decoder]:
        return SpectralDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> int | None:
        """Return the exact largest Σ (k(w) − k(w − d))² over moves d within δ, or Σ k(w)² if arrivals cost more."""
        if norm == 1:
            return None
        # A move across more than half the torus ends in the same place as a shorter one, which is also tried.
        distances, error = np.atleast_2d(self._distances[0]), self._distances[1]
        reach = np.minimum(near.reach[: len(distances)], distances.shape[1] - 1)
        # Each row contains moves of length 0 up to its reach.
        allowed = np.arange(distances.shape[1]) <= reach[:, None]
        costs = np.where(allowed, distances[: len(reach)], -np.inf)
        moves = [tuple(move[-self.kernel.ndim :]) for move in np.argwhere(costs >= costs.max() - 2 * error).tolist()]
        arrival = squared_distance(self.kernel, None) if near.source_cells.any() else 0
        if len(moves) > 16:
            # One convolution is faster than computing many distances, but raises InputError if sums exceed 64 bits.
            with contextlib.suppress(InputError):
                moves = [min(moves, key=convolve_circularly(self.kernel, self.kernel).__getitem__)]
        return max(arrival, *(squared_distance(self.kernel, move) for move in moves))

    @functools.cached_property
    def _distances(self) -> tuple[FloatArray, float]:
        """Σ (k(w) − k(w − d))² for the displacements d in a quarter of the torus, and a bound on rounding errors."""
        size, times = math.prod(self.torus), count_mirrored(self.torus)
        squares = self.transform[slice_quarter(self.torus)] ** 2
        covariance = cosine_transform(squares, self.torus) / size
        # A bound that follows from the 2-norm errors of both transforms.
        largest, norm = (times * squares).sum() / size, math.sqrt((times * squares**2).sum() / size)
        return 2 * (covariance.flat[0] - covariance), float(4 * transform_error(size) * (2 * largest + norm))

    def describe(self) -> dict[str, Any]:
        return {"strategy": "Spectral", "kernel": gaussian.pack_integers(self.kernel[slice_quarter(self.torus)])}

    @classmethod
    def restore(cls, domain: Domain, *, kernel: Any) -> Spectral:  # type: ignore[override]
        out = cls._from_solution(domain=domain)
        quarter = gaussian.unpack_integers(kernel, tuple(n // 2 + 1 for n in out.torus), "kernel")
        out.__dict__["kernel"] = mirror_quarter(quarter, out.torus)
        return out


class SpectralDecoder(Decoder):
    """Estimate ĉ as the domain's part of A⁻¹y. A table contains the variance of a box of any side lengths."""

    strategy: Spectral
    has_closed_form = True

    @functools.cached_property
    def _inside(self) -> tuple[slice, ...]:
        """The domain's part of the torus."""
        return tuple(slice(0, n) for n in self.domain.shape)

    def solve(self, values: FloatArray) -> FloatArray:
        return self._divide_spectrum(values.reshape(self.strategy.torus))[self._inside].ravel()

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        field = np.zeros(self.strategy.torus)
        field[self._inside] = query.reshape(self.domain.shape)
        return self._divide_spectrum(field).ravel()

    def _divide_spectrum(self, field: FloatArray) -> FloatArray:
        return np.asarray(scipy.fft.irfftn(scipy.fft.rfftn(field) / self.strategy.transform, field.shape))

    @functools.cached_property
    def spectrum(self) -> FloatArray:
        """The variance of the estimates at each frequency of the torus, without using a public total."""
        return np.asarray(self.laws[0].variance() / self.strategy.transform**2)

    def estimate_on_grid(self, values: NDArray[Any], total: int | None) -> FloatArray:
        """Return the estimates on the whole torus, adjusted to the total if it is known."""
        field = self._divide_spectrum(np.asarray(values, dtype=np.float64).reshape(self.strategy.torus))
        return field if total is None else field + (total - field.sum()) / field.size

    def noise_metric(self) -> Metric:
        """Return the metric, which is exact because different waves of the torus have independent noise."""
        spectrum = self.spectrum.copy()
        if self.total_known:
            spectrum.flat[0] = 0.0
        return shrink_long_waves(Metric(spectrum, self.strategy.torus, True, self._inside))

    @functools.cached_property
    def table(self) -> FloatArray:
        """The variance of a box of any side lengths (n + 1 per axis), without using a public total."""
        last = self.strategy.torus[-1]
        # A real transform omits frequencies that mirror others.
        out = self.spectrum[..., np.minimum(np.arange(last), last - np.arange(last))]
        for axis, n in enumerate(self.domain.shape):
            out = np.moveaxis(_variance_by_length(np.moveaxis(out, axis, -1), n), -1, axis)
        return np.maximum(out, 0.0, order="C")  # contiguous, because boxes index the flat table

    @functools.cached_property
    def _public_total(self) -> PublicTotal | None:
        if not self.total_known:
            return None
        along = self.solve(self.laws[0].variance() * self.solve_adjoint(np.ones(self.domain.size)))
        return PublicTotal(along.reshape(self.domain.shape))

    def box_variance(self, spans: Sequence[Span]) -> FloatArray:
        # The weights add up to 0, so q = Σ w_e P_e has autocorrelation −½ Σ w_e w_f tri(e − f) along each axis.
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
        return out if self._public_total is None else out - self._public_total.box_reduction(spans)

    @property
    def rounding_floor(self) -> float:
        return 1e-12 * max(1.0, float(self.table.flat[-1]))

    def mean_variance(self, work: AllRanges) -> float:
        out = self.table
        for n in reversed(self.domain.shape):
            out = out[..., 1:] @ (np.arange(n, 0, -1) / (n * (n + 1) / 2))
        return float(out) - (0.0 if self._public_total is None else self._public_total.mean_reduction())


def _variance_by_length(spectrum: FloatArray, n: int) -> FloatArray:
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
    """The best feasible √X̂ at a quarter of the frequencies, with a variance at most a fraction `gap` over the least."""

    spectrum: FloatArray
    gap: float


def solve_spectral(near: Neighbourhood, workload: Workload | None, torus: tuple[int, ...]) -> SpectralSolution:
    """Return the best spectrum on a torus for a neighbourhood and a workload."""
    longest = int(max(near.reach.max(initial=1), len(near.reach) - 1 if len(torus) == 2 else 1, 1))
    coarse = tuple(min(n, max(_COARSE, 4 * longest)) for n in torus)
    chart = _Chart(near, workload, coarse)
    if not len(chart.scale):  # a single cell without arrivals needs no protection
        return SpectralSolution(np.ones(chart.place.shape), 0.0)
    # At first, all relations have equal shares, each spread evenly over its displacements.
    place = chart.place[chart.bounded]
    start = chart.times / np.bincount(place, chart.times)[place]
    multipliers, spectrum, reached = _climb(chart, start / start.sum(), 400, gaussian.GAP)
    if coarse != torus:
        fine = _Chart(near, workload, torus)
        # With limits, the multipliers spread over the whole torus and need more rounds.
        rounds, gap = (40, 3 * gaussian.GAP) if near.profile else (4, gaussian.GAP)
        _, spectrum, reached = _climb(fine, fine.start_from(chart, multipliers), rounds, gap)
    if not chart.arrivals:
        # No move changes the total, so measuring it as precisely as the best frequency costs nothing.
        spectrum.flat[0] = spectrum.max()
    return SpectralSolution(np.sqrt(spectrum), reached)


class _Chart:
    """A quarter of a torus, in which the bounded displacements are marked. Displacement 0 represents arrivals.

    Multipliers form a flat array with one entry per marked displacement, summed over its mirror images.
    """

    def __init__(self, near: Neighbourhood, workload: Workload | None, torus: tuple[int, ...]) -> None:
        self.torus, quarter = torus, slice_quarter(torus)
        self.weight = workload_power(workload, near.domain, torus)[quarter] + _CELLS
        place, squares = gaussian.bound_levels(near)
        # A move across more than half the torus ends in the same place as a shorter one, whose bound is smaller.
        known = place[quarter]
        missing = [(0, n // 2 + 1 - have) for n, have in zip(torus, known.shape, strict=True)]
        #: The index of the relation that bounds each displacement, or the number of relations if none does.
        self.place = np.pad(known, missing, constant_values=len(squares) - 1)
        entry = float(gaussian.arrival_squares(near).min())
        self.arrivals = math.isfinite(entry)
        self.place.flat[0] = 0 if self.arrivals else len(squares) - 1
        self.bounded = self.place < len(squares) - 1
        self.times = count_mirrored(torus)[self.bounded]
        self.scale = 1 / (squares[self.place[self.bounded]])
        if self.arrivals:
            self.scale[0] = 1 / entry

    def start_from(self, coarse: _Chart, multipliers: FloatArray) -> FloatArray:
        """Return initial multipliers based on the multipliers of a smaller torus.

        Relations that fit on the smaller torus keep their multipliers. The multipliers of every other relation are
        spread evenly and keep their sum (raised to at least 1% divided by the number of relations).
        """
        place, before = self.place[self.bounded], coarse.place[coarse.bounded]
        number = int(place.max()) + 1
        size, had = (np.bincount(p, chart.times, number) for p, chart in ((place, self), (before, coarse)))
        share = np.maximum(np.bincount(before, multipliers, number), 0.01 / number * (size > had))
        copied = np.zeros(self.place.shape)
        copied[tuple(slice(0, n) for n in coarse.place.shape)][coarse.bounded] = multipliers
        start = np.where((size == had)[place], copied[self.bounded], self.times * (share / np.maximum(size, 1))[place])
        return np.asarray(start / start.sum())

    def find_costs(self, multipliers: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return X̂, ratios of costs to bounds (arrivals first, then 2 (x(0) − x(d)) / w²), and the mean ratio f."""
        forces = np.zeros(self.place.shape)
        forces[self.bounded] = multipliers * self.scale / self.times
        entry = float(forces.flat[0])
        forces.flat[0] = 0
        waves = cosine_transform(forces, self.torus)
        laplacian = 2 * (waves.flat[0] - waves) + entry
        with np.errstate(divide="ignore"):
            spectrum = np.sqrt(self.weight / np.maximum(laplacian, 0))
        if not self.arrivals:
            spectrum.flat[0] = 0
        x = cosine_transform(spectrum, self.torus) / math.prod(self.torus)
        costs = 2 * (x.flat[0] - x)
        costs.flat[0] = x.flat[0]
        relative = np.maximum(costs[self.bounded] * self.scale, 0)
        return spectrum, relative, float(multipliers @ relative / multipliers.sum())


def _climb(chart: _Chart, start: FloatArray, number: int, gap: float) -> tuple[FloatArray, FloatArray, float]:
    """Return the multipliers, the feasible spectrum and its gap after at most `number` rounds of `maximise_bound`."""

    def evaluate(multipliers: FloatArray) -> tuple[FloatArray, FloatArray, float, float]:
        spectrum, relative, mean = chart.find_costs(multipliers)
        return spectrum, relative, mean, mean

    climb = gaussian.maximise_bound(evaluate, np.log(start), number, gap)
    return climb.weight, climb.form, climb.primal / climb.dual - 1


def convolve_circularly(kernel: IntArray, field: NDArray[Any]) -> NDArray[Any]:
    """Return the circular convolution of two arrays of the same shape, exactly for integers.

    Integers are split into short digits, so that the transforms have errors below a quarter and rounding is exact.
    Raises InputError if a result might exceed 64 bits, or if no digits are short enough.
    """
    if field.dtype.kind == "f":
        return np.asarray(scipy.fft.irfftn(_transform_real(kernel) * _transform_real(field), field.shape))
    fits = float(np.abs(kernel).max()) * float(np.abs(field).sum(dtype=np.float64)) < 2.0**62
    longest = 1 + max(int(np.abs(part).max(initial=0)).bit_length() for part in (kernel, field))
    for digits in range(1, 13 if fits else 1):
        bits = -(-longest // digits)
        left, right = _split_digits(kernel, bits), _split_digits(field, bits)
        if max(_product_error(a, b) for a in left for b in right) < 0.25:
            break
    else:
        raise InputError(
            f"counts have too many points or the torus has too many cells ({field.size:,}) for exact sums in 64 bits"
        )
    spectra = [_transform_real(a) for a in left]
    out = np.zeros(field.shape, dtype=np.int64)
    for j, b in enumerate(right):
        other = _transform_real(b)
        for i, spectrum in enumerate(spectra):
            found = scipy.fft.irfftn(spectrum * other, field.shape)
            out += np.rint(found).astype(np.int64) << (bits * (i + j))
    return out


def squared_distance(kernel: IntArray, move: Sequence[int] | None) -> int:
    """Return Σ (k(w) − k(w − move))² exactly, or Σ k(w)² if `move` is None."""
    step = max(1, (1 << 16) * len(kernel) // kernel.size)  # fits in the processor's cache
    total = 0
    for start in range(0, len(kernel), step):
        change = kernel[start : start + step]
        if move is not None:
            from_where = np.arange(start, start + len(change)) - move[0]
            moved = kernel.take(from_where, axis=0, mode="wrap")
            change = change - np.roll(moved, move[1:], range(1, kernel.ndim))
        square = change * change  # entries are below 2^30, so squares of differences are below 2^62
        total += (int((square >> 32).sum()) << 32) + int((square & 0xFFFFFFFF).sum())
    return total


def _transform_real(field: NDArray[Any]) -> NDArray[np.complex128]:
    return np.asarray(scipy.fft.rfftn(field.astype(np.float64, copy=False)))


def _split_digits(field: IntArray, bits: int) -> list[IntArray]:
    """Return the signed digits (at least one) in base 2^bits, lowest first."""
    out: list[IntArray] = []
    rest, half = field, np.int64(1) << (bits - 1)
    while not out or rest.any():
        low = ((rest + half) & ((half << 1) - 1)) - half
        out.append(low)
        rest = (rest - low) >> bits
    return out


def _product_error(a: IntArray, b: IntArray) -> float:
    """Return a bound on the error of a ∗ b from three transforms. No entry of a's spectrum exceeds a's 1-norm."""
    return transform_error(a.size) * float(np.linalg.norm(b) * (2 * np.linalg.norm(a) + np.abs(a).sum()))


def transform_error(size: int) -> float:
    """Return a bound on a transform's relative error in the 2-norm, assuming 8 roundings per doubling of its length."""
    return float(8 * max(1.0, math.log2(size)) * np.finfo(np.float64).eps)


def slice_quarter(torus: Sequence[int]) -> tuple[slice, ...]:
    """Return the part of a torus that determines an even array."""
    return tuple(slice(0, n // 2 + 1) for n in torus)


def _mirror_places(n: int) -> IntArray:
    return np.minimum(np.arange(n), n - np.arange(n))


def mirror_quarter(quarter: NDArray[Any], torus: Sequence[int]) -> NDArray[Any]:
    """Extend a quarter to the whole array, which is then bit-identical on both sides of every axis."""
    return quarter[np.ix_(*map(_mirror_places, torus))]


def count_mirrored(torus: Sequence[int]) -> FloatArray:
    """Return how many entries of the torus each entry of the quarter represents."""
    return functools.reduce(np.multiply.outer, [np.bincount(_mirror_places(n)).astype(np.float64) for n in torus])


def cosine_transform(quarter: FloatArray, torus: Sequence[int]) -> FloatArray:
    """From a quarter of a real even array, return a quarter of its Fourier transform, which is also real and even."""
    out = quarter
    for axis, n in enumerate(torus):
        if n % 2 == 0:
            out = scipy.fft.dct(out, 1, axis=axis)
        else:
            out = scipy.fft.rfft(np.take(out, _mirror_places(n), axis), axis=axis).real
    return np.asarray(out)


def workload_power(work: Boxes | AllRanges | Regions | None, domain: Domain, torus: tuple[int, ...]) -> FloatArray:
    """Return the mean |q̂(ω)|² on a torus over queries rounded to cells (None: all ranges) and their mirror images."""
    if isinstance(work, Regions):
        return _power_of_regions(work, domain, torus)
    frequencies = [2 * np.pi * np.arange(p) / p for p in torus]
    if isinstance(work, Boxes):
        sides = [np.maximum(np.rint(high - low), 1).astype(np.int64) for low, high in work.spans(domain)]
        kinds = [np.unique(side, return_inverse=True) for side in sides]
        out = np.zeros([len(lengths) for lengths, _ in kinds])
        np.add.at(out, tuple(place for _, place in kinds), 1 / len(work))
        for (lengths, _), omega in zip(kinds, frequencies, strict=True):
            power = np.empty((len(lengths), len(omega)))
            power[:, 0] = lengths.astype(np.float64) ** 2
            power[:, 1:] = np.sin(np.multiply.outer(lengths, omega[1:] / 2)) ** 2 / np.sin(omega[1:] / 2) ** 2
            out = np.tensordot(out, power, (0, 0))
        return out
    if work is not None:
        work.check(domain)
    axes = [_power_of_all(n, omega) for n, omega in zip(domain.shape, frequencies, strict=True)]
    return functools.reduce(np.multiply.outer, axes)


def _power_of_all(n: int, omega: FloatArray) -> FloatArray:
    """Return the mean of |q̂|² over all intervals on n cells, using Fejér's kernel."""
    # An interval of l cells has |q̂|² = (1 − cos lω) / (1 − cos ω).
    out = np.full(len(omega), (n + 1) * (n + 2) / 6)
    half = omega[1:] / 2
    fejer = np.sin((n + 1) * half) ** 2 / np.sin(half) ** 2
    out[1:] = ((n + 1) ** 2 - fejer) / (4 * np.sin(half) ** 2) / (n * (n + 1) / 2)
    return out


def _power_of_regions(work: Regions, domain: Domain, torus: tuple[int, ...]) -> FloatArray:
    """Return the mean of |q̂|² over at most 64 regions. Using boxes of equal area would raise the error by 6 to 58%."""
    rows = work.matrix(domain)
    out = np.zeros(torus)
    chosen = range(0, rows.shape[0], -(-rows.shape[0] // 64))
    for i in chosen:
        cells = np.unravel_index(rows[[i]].indices, domain.shape)
        field = np.zeros(torus)
        # Cells that are one torus length apart have the same phase.
        np.add.at(field, tuple(c % p for c, p in zip(cells, torus, strict=True)), rows[[i]].data)
        out += np.abs(np.fft.fftn(field)) ** 2
    for axis in range(out.ndim):
        out = (out + np.roll(np.flip(out, axis), 1, axis)) / 2
    return out / len(chosen)
