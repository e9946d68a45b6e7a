"""Estimates that are counts can be: not negative, with the known total, and nearest in the noise's own metric."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
import scipy.ndimage
from numpy.typing import NDArray

from deltahist._validate import DeltaHistWarning
from deltahist.decode.base import REPLICATES, Decoder
from deltahist.decode.spectral import SpectralDecoder

#: Steps of the splitting method: between two looks at the certificate, and at most.
_STEPS, _MOST_STEPS = 20, 6000
#: Squared distance from the best estimate, in standard errors, at which the method ends.
CLOSE = 0.1
#: Cells times steps at most, a minute or two.
_MOST_WORK = 1 << 31
#: Over-relaxation (Boyd et al. 2011, section 3.4.3).
_RELAX = 1.7
#: Numbers of simulated noise are drawn to learn its spectrum, in 4 to 100 fields.
_MOST_DRAWN = 1 << 25
#: Least and most power of the frequency by which long waves are trusted beyond their noise, and the power of the
#: frequency that the trusted variance should have.
_TILT, _SLOPE = (0.5, 1.5), 1.5
#: Smallest variance of a frequency, relative to the mean: a metric must be finite.
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Metric:
    """Waves in which an estimate's noise is (nearly) uncorrelated, and the variance of each.

    Parameters
    ----------
    variance : of the noise by frequency, less for long waves (`_trusted`); 0 at the origin if the total is known.
    grid : shape of the fields that are transformed.
    periodic : whether the waves are those of a torus (the frequencies are those of a real transform); else cosines.
    inside : the domain's part of the grid; there are no points beyond it.
    """

    variance: NDArray[np.float64]
    grid: tuple[int, ...]
    periodic: bool
    inside: tuple[slice, ...]

    def filter(self, field: NDArray[np.float64], factor: NDArray[np.float64]) -> NDArray[np.float64]:
        """The field with each of its waves multiplied by a factor."""
        if self.periodic:
            waves = scipy.fft.rfftn(field, workers=-1)
            waves *= factor
            return np.asarray(scipy.fft.irfftn(waves, self.grid, workers=-1, overwrite_x=True))
        waves = scipy.fft.dctn(field, norm="ortho", workers=-1)
        waves *= factor
        return np.asarray(scipy.fft.idctn(waves, norm="ortho", workers=-1, overwrite_x=True))


@dataclass(frozen=True, eq=False)
class Projection:
    """Cells (domain.shape) and the certificate.

    No answer differs from that of the exactly nearest cells by more than √`distance` of its standard errors.
    """

    cells: NDArray[np.float64]
    distance: float
    steps: int


def metric(decoder: Decoder) -> Metric:
    """The metric of a decoder's noise: exact on a torus, else from simulated noise, which anybody may draw.

    Simulated spectra are smoothed over neighbouring frequencies. An error in them makes the estimate a little
    less sharp, not wrong.
    """
    if isinstance(decoder, SpectralDecoder):
        spectrum = decoder.spectrum.copy()
        if decoder.total_known:
            spectrum.flat[0] = 0.0
        return _trusted(Metric(spectrum, decoder.strategy.torus, True, decoder.inside))
    total = 0 if decoder.total_known else None
    rng = np.random.default_rng(20140605)
    spread = np.sqrt(decoder.draw_variance)

    def field() -> NDArray[np.float64]:
        noise = decoder.strategy.scatter(rng.normal(size=len(spread)) * spread)
        return decoder.estimate(noise, total)

    return simulated_metric(field, decoder.domain.shape, total_known=decoder.total_known)


def simulated_metric(
    field: Callable[[], NDArray[np.float64]], grid: tuple[int, ...], *, total_known: bool
) -> Metric:
    """The metric of noise that `field` draws on a grid, in cosines."""
    size = math.prod(grid)
    fields = int(np.clip(_MOST_DRAWN // size, 4, REPLICATES))
    power = np.zeros(grid)
    for _ in range(fields):
        power += scipy.fft.dctn(field(), norm="ortho", workers=-1) ** 2
    power /= fields
    origin = 0.0 if total_known else power.flat[0]
    power.flat[0] = power.flat[min(1, size - 1)]  # the origin is apart: neighbours must not feel it
    power = scipy.ndimage.uniform_filter(power, 3 if fields > REPLICATES // 4 else 5, mode="reflect")
    power = np.maximum(power, _LEAST * power.mean())
    power.flat[0] = origin
    return _trusted(Metric(power, grid, False, tuple(slice(0, n) for n in grid)))


def _trusted(metric: Metric) -> Metric:
    """The metric with long waves trusted beyond their noise.

    Cutting off negative cells adds a little to every empty cell, always in the same direction: over a box this
    grows with the area, while noise grows more slowly. The variance of long waves is therefore lowered, by a
    power of the frequency that depends on how the noise itself falls off; it is raised nowhere, so that the
    certificate still bounds the error in standard errors.
    """
    waves = np.zeros(metric.variance.shape)
    for axis, n in enumerate(metric.grid):
        omega = np.pi * np.arange(metric.variance.shape[axis]) / n * (2 if metric.periodic else 1)
        shape = [1] * waves.ndim
        shape[axis] = -1
        waves += (2 - 2 * np.cos(omega)).reshape(shape)
    waves = np.sqrt(waves / max(waves.max(), 1e-300))
    some = (waves > 0) & (metric.variance > 0)
    if not some.any():
        return metric
    # Long waves are few, and matter most: every octave counts alike.
    octave = np.floor(np.log2(waves[some])).astype(np.int64)
    octave -= octave.min()
    number = np.bincount(octave)
    level = np.log(np.bincount(octave, metric.variance[some])[number > 0] / number[number > 0])
    at = np.bincount(octave, np.log(waves[some]))[number > 0] / number[number > 0]
    slope = float(np.polyfit(at, level, 1)[0]) if len(at) > 1 else 0.0
    power = float(np.clip(_SLOPE - slope, *_TILT))
    variance = metric.variance.copy()
    variance[some] *= waves[some] ** power
    return replace(metric, variance=variance)


def nonnegative(field: NDArray[np.float64], metric: Metric, total: float | None) -> Projection:
    """The nearest cells that are not negative and add up to the total, in the noise's metric.

    Minimises ½ (c − ĉ)ᵀ M (c − ĉ) over c ≥ 0 (and 1ᵀc = n), where M has the inverse of the noise's variance as
    its eigenvalues on waves. In the plain metric the projection would destroy the cancellations between cells
    that make correlated noise small on boxes. Alternating directions (Boyd et al. 2011): one filter and one
    clipping per step. The multipliers bound the least distance from below: the result comes with a certificate.

    Parameters
    ----------
    field : unbiased estimates on the metric's grid, with the total if that is known.
    metric : of their noise.
    total : number of points, or None if it is not known.

    Warns
    -----
    DeltaHistWarning
        If the certificate is not reached; the result is valid, but may be less accurate.
    """
    if (total is not None and total <= 0) or not metric.variance.any():
        return Projection(np.maximum(field[metric.inside], 0.0) * (total != 0), 0.0, 0)
    variance = metric.variance
    most = np.zeros(metric.grid)
    most[metric.inside] = np.inf
    weight = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
    # Large steps suit long waves, small ones short waves; the number of waves across the grid settles it.
    step = 2 * max(metric.grid) / float(variance.mean())
    pull = step * variance / (1 + step * variance)
    z = np.clip(field, 0.0, most)
    u = np.zeros_like(field)
    cells, nearest, done = z, np.inf, 0
    limit = min(_MOST_STEPS, max(_STEPS, _MOST_WORK // field.size))
    while done < limit and nearest > CLOSE:
        for _ in range(_STEPS):
            x = field + metric.filter(z - u - field, pull)
            u += _RELAX * x + (1 - _RELAX) * z
            z = np.clip(u, 0.0, most)
            u -= z
        done += _STEPS
        point = z
        if total is not None:
            point = (
                z * (total / z.sum())
                if z.any()
                else np.where(most > 0, total / most[metric.inside].size, 0.0)
            )
        # For multipliers ν ≥ 0 (of either sign beyond the domain) the least of ½ |c − ĉ|²_M − νᵀc over all c of
        # the right total is −νᵀĉ − ½ νᵀM⁻¹ν.
        away, multiplier = point - field, -step * u
        primal = 0.5 * float((away * metric.filter(away, weight)).sum())
        dual = -float((multiplier * (field + metric.filter(multiplier, variance) / 2)).sum())
        # Strong convexity: ½ |c − c*|²_M ≤ primal − dual.
        distance = max(2 * (primal - dual), 0.0)
        if distance < nearest:
            cells, nearest = point, distance
    if nearest > CLOSE:
        warnings.warn(
            f"non-negative estimates are certified to {nearest**0.5:.2g} standard errors of the nearest ones after "
            f"{done:,} steps (aimed at {CLOSE**0.5:.2g}): they are valid, but may be less accurate",
            DeltaHistWarning,
            stacklevel=2,
        )
    return Projection(cells[metric.inside], nearest, done)
