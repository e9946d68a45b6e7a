"""The metric of an estimate's noise: the waves in which it is uncorrelated, and how large it is in each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

#: Simulated noise fields at least and at most, from which a spectrum is learnt; below a quarter of the most it is
#: smoothed more.
_FIELDS = (4, 100)
#: Fields times the side of a square map: the larger it is, the more waves are alike that are next to each other.
_FIELDS_TIMES_SIDE = 6400
#: Least and most power of the frequency by which long waves are trusted beyond their noise, and the power of the
#: frequency that the trusted variance should have.
_TILT, _TRUSTED_POWER = (0.5, 1.5), 1.5
#: Bytes from which on a filter is worth more than one processor: to wake the others takes longer than a small one.
_SHARED = 1 << 21
#: Smallest variance of a frequency, relative to the mean: a metric must be finite.
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Metric:
    """Waves in which an estimate's noise is (nearly) uncorrelated, and the variance of each.

    Parameters
    ----------
    variance : of the noise by frequency, less for long waves (`trusted`); 0 at the origin if the total is known.
    grid : shape of the fields that are transformed.
    periodic : whether the waves are those of a torus (the frequencies are those of a real transform); else cosines.
    inside : the domain's part of the grid; there are no points beyond it.
    slope : power of the frequency with which the noise's own variance falls off towards long waves; 0 for white noise.
    """

    variance: NDArray[np.float64]
    grid: tuple[int, ...]
    periodic: bool
    inside: tuple[slice, ...]
    slope: float = 0.0

    def filter(
        self, field: NDArray[Any], factor: NDArray[Any], *, overwrite: bool = False
    ) -> NDArray[Any]:
        """The field, or each of a stack of fields (…, *grid), with each of its waves multiplied by a factor.

        With `overwrite` the field's memory may be used for the result.
        """
        axes, workers = self.axes, -1 if field.nbytes >= _SHARED else 1
        if self.periodic:
            waves = scipy.fft.rfftn(field, axes=axes, workers=workers)
            waves *= factor
            return np.asarray(scipy.fft.irfftn(waves, self.grid, axes=axes, workers=workers, overwrite_x=True))
        waves = scipy.fft.dctn(field, norm="ortho", axes=axes, workers=workers, overwrite_x=overwrite)
        waves *= factor
        return np.asarray(scipy.fft.idctn(waves, norm="ortho", axes=axes, workers=workers, overwrite_x=True))

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of a grid, at the end of a stack's."""
        return tuple(range(-len(self.grid), 0))

    @property
    def precision(self) -> NDArray[np.float64]:
        """One over the variance of each wave; 0 where that is 0: such waves do not move."""
        variance = self.variance
        return np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)

    @property
    def of_a_cell(self) -> float:
        """Variance of a single cell's noise, in points²: the mean over all waves."""
        return float((self.copies * self.variance).sum() / self.copies.sum())

    @property
    def copies(self) -> NDArray[np.float64]:
        """How many waves of the whole grid each frequency stands for: a real transform leaves out those that mirror."""
        out = np.ones(self.variance.shape)
        if self.periodic:
            out[..., 1 : (self.grid[-1] + 1) // 2] = 2
        return out


def simulated_metric(
    field: Callable[[], NDArray[np.float64]], grid: tuple[int, ...], *, total_known: bool
) -> Metric:
    """The metric of noise that `field` draws on a grid, in cosines."""
    size = math.prod(grid)
    fields = int(np.clip(_FIELDS_TIMES_SIDE / math.sqrt(size), *_FIELDS))
    power = np.zeros(grid)
    for _ in range(fields):
        power += scipy.fft.dctn(field(), norm="ortho", workers=-1) ** 2
    power /= fields
    origin = 0.0 if total_known else power.flat[0]
    power.flat[0] = power.flat[min(1, size - 1)]  # the origin is apart: neighbours must not feel it
    power = scipy.ndimage.uniform_filter(power, 3 if fields > _FIELDS[1] // 4 else 5, mode="reflect")
    power = np.maximum(power, _LEAST * power.mean())
    power.flat[0] = origin
    return trusted(Metric(power, grid, False, tuple(slice(0, n) for n in grid)))


def trusted(metric: Metric, power: float | None = None) -> Metric:
    """The metric with long waves trusted beyond their noise, by a power of the frequency.

    Cutting off negative cells adds a little to every empty cell, always in the same direction: over a box this
    grows with the area, while noise grows more slowly. The variance of long waves is therefore lowered, by a
    power that depends on how the noise itself falls off where it is None, and that of the mean, where the total is not
    known, to that of the longest wave; it is raised nowhere, so that the certificate still bounds the error in standard
    errors.
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
    slope = _slope(metric.variance[some], waves[some])
    if power is None:
        power = float(np.clip(_TRUSTED_POWER - slope, *_TILT))
    variance = metric.variance.copy()
    variance[some] *= waves[some] ** power
    # The mean of a map is its longest wave, in which what is cut off adds up most of all.
    variance.flat[0] = min(variance.flat[0], variance[some][np.argmin(waves[some])])
    return replace(metric, variance=variance, slope=slope)


def _slope(variance: NDArray[np.float64], waves: NDArray[np.float64]) -> float:
    """The power of the frequency with which the variance of waves falls off."""
    # Long waves are few, and matter most: every octave counts alike.
    octave = np.floor(np.log2(waves)).astype(np.int64)
    octave -= octave.min()
    number = np.bincount(octave)
    level = np.log(np.bincount(octave, variance)[number > 0] / number[number > 0])
    at = np.bincount(octave, np.log(waves))[number > 0] / number[number > 0]
    return float(np.polyfit(at, level, 1)[0]) if len(at) > 1 else 0.0
