"""The metric in which estimates are projected: the noise's variance by frequency, and a precision by place."""

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
Field = NDArray[np.float64]
#: Steps of conjugate gradients at most.
_MOST_STEPS = 300
#: Precision of a cell, in means of the waves', of which as much is said by its own law as by the noise.
_EVEN = 3.0
#: Cells a side for each of the longest cosines that are solved exactly in every step, and their least and most number.
_CELLS, _LONGEST = 16, (8, 24)
#: Share of a preconditioner's size below which what it makes of a constant is rounding.
_NOTHING = 1e-12


@dataclass(frozen=True, eq=False)
class Metric:
    """Waves in which an estimate's noise is (nearly) uncorrelated, and the variance of each.

    Parameters
    ----------
    variance : of the noise by frequency, less for long waves (`shrink_long_waves`); 0 at the origin for a known total.
    grid : shape of the fields that are transformed.
    periodic : whether the waves live on a torus (frequencies as of a real transform); else cosines.
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
        """Return a field, or a stack of fields (…, *grid), with each wave multiplied by a factor.

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
        """The axes of a grid, the last ones of a stack of grids."""
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
    """Return the metric of noise that `field` draws on a grid, in cosines."""
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
    return shrink_long_waves(Metric(power, grid, False, tuple(slice(0, n) for n in grid)))


def shrink_long_waves(metric: Metric, power: float | None = None) -> Metric:
    """Return the metric with the variance of long waves lowered by a power of the frequency.

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
    """Return the power of the frequency with which the variance of waves falls off."""
    # Long waves are few, and matter most: every octave counts alike.
    octave = np.floor(np.log2(waves)).astype(np.int64)
    octave -= octave.min()
    number = np.bincount(octave)
    level = np.log(np.bincount(octave, variance)[number > 0] / number[number > 0])
    at = np.bincount(octave, np.log(waves))[number > 0] / number[number > 0]
    return float(np.polyfit(at, level, 1)[0]) if len(at) > 1 else 0.0


class Precision:
    """M + D on changes of a map: M the inverse variance of waves, D a diagonal of cells.

    A change is zero beyond the domain's part of the grid, and adds up to zero where the total is known.
    Fields may be stacks (…, *grid), in single or double precision.

    Parameters
    ----------
    metric : whose inverse variance M has; waves without variance are left out. total_known : whether changes add up
        to zero.
    """

    def __init__(self, metric: Metric, total_known: bool) -> None:
        self.metric, self.total_known = metric, total_known
        self.waves = metric.precision
        self.inside = np.zeros(metric.grid)
        self.inside[metric.inside] = 1.0
        self.size = float(self.inside.sum())
        self._even = _EVEN * self._mean(self.waves)
        self._long = () if metric.periodic else tuple(map(_cosines, metric.grid))
        #: Of the waves that are left to the preconditioner.
        short = self.waves.copy()
        short[self._corner] = self.waves.min()
        self._even_of_short = _EVEN * self._mean(short)

    def _mean(self, waves: Field) -> float:
        copies = self.metric.copies
        return float((copies * waves).sum() / copies.sum())

    @property
    def _corner(self) -> tuple[slice, ...]:
        """Where the longest waves stand among all."""
        return tuple(slice(0, len(cosines)) for cosines in self._long) or (slice(0, 0),)

    def change(self, field: NDArray[Any]) -> NDArray[Any]:
        """Return the nearest change to a field, in its place."""
        if self.size < self.inside.size:
            field *= self.inside.astype(field.dtype, copy=False)
        if self.total_known:
            inside: tuple[Any, ...] = (..., *self.metric.inside)
            field[inside] -= field.sum(self.metric.axes, keepdims=True) / self.size
        return field

    def of_noise(self, field: NDArray[Any]) -> NDArray[Any]:
        """Return M of a field."""
        return self.metric.filter(field, self.waves.astype(field.dtype, copy=False))

    def free(self, cells: NDArray[Any]) -> float:
        """Return the number of free cells: the sum of the noise's shares in all that is known of each."""
        return float((self.inside * self._even / (cells + self._even)).sum())

    def solver(self, cells: Field, kind: Any) -> Callable[[NDArray[Any], float], NDArray[Any]]:
        """Return a function from fields to the changes x with (M + D) x = field along all changes.

        It takes preconditioned conjugate gradients, and as its second argument the squared distance from the solution,
        in standard errors, at which they end: as the preconditioner estimates it, a few times too large.

        Parameters
        ----------
        cells : diagonal of D (*grid). kind : of the fields' numbers, single or double precision.
        """
        kind = np.dtype(kind)
        nearly_solved, long_waves = self._nearly_solved(cells, kind), self._long_waves(cells, kind)
        cells, waves = cells.astype(kind, copy=False), self.waves.astype(kind, copy=False)

        def times(along: NDArray[Any], image: NDArray[Any], spare: NDArray[Any]) -> NDArray[Any]:
            np.copyto(image, along)
            image = self.metric.filter(image, waves, overwrite=True)
            image += np.multiply(cells, along, out=spare)
            return self.change(image)

        def solve(right: NDArray[Any], within: float) -> NDArray[Any]:
            # In units of the largest: squares of single precision overflow early.
            unit = float(np.abs(right).max()) or 1.0
            rest = self.change(right / kind.type(unit))
            # Memory of its own for each field: to ask for more in every step costs as much as the transforms.
            found, along, image, spare = (np.zeros_like(rest) for _ in range(4))
            if long_waves is not None:
                found = long_waves(rest, None, found)
                rest -= times(found, image, spare)
            size = np.zeros(1)
            for _ in range(_MOST_STEPS):
                image = nearly_solved(rest, image, spare)
                if long_waves is not None:
                    image = long_waves(rest, image, spare)
                before, size = size, self._product(rest, image, spare)
                if size.max() <= within / unit / unit:
                    break
                along *= _ratio(size, before).astype(kind)
                along += image
                image = times(along, image, spare)
                length = _ratio(size, self._product(along, image, spare)).astype(kind)
                found += np.multiply(length, along, out=spare)
                rest -= np.multiply(length, image, out=spare)
            found *= kind.type(unit)
            return self.change(found)

        return solve

    def _long_waves(
        self, cells: Field, kind: np.dtype[Any]
    ) -> Callable[[NDArray[Any], NDArray[Any] | None, NDArray[Any]], NDArray[Any]] | None:
        """Return the solver for the longest waves W, from the residual r and a change z (or zero) to

        z + W (Wᵀ(M + D)W)⁻¹ Wᵀ(r − (M + D) z). A preconditioner leaves most of its error there, where M is large: steps
        grew with the side of the map. With this after it they do not (Tang et al. 2009, A-DEF2). None on a torus, where
        no change is a wave.
        """
        if not self._long:
            return None
        both = scipy.fft.dctn(cells)
        for at, cosines in enumerate(self._long):
            # Products of two cosines are the means of two others: axis by axis, waves become pairs of waves.
            number, size = len(cosines), cells.shape[at]
            i, j = np.arange(number)[:, None], np.arange(number)
            root = np.where(j, 1.0, np.sqrt(0.5)) / np.sqrt(2 * size)
            scale = np.multiply.outer(root, root).reshape(number, number, *[1] * (cells.ndim - at - 1))
            both = (both.take(abs(i - j), 2 * at) + both.take(i + j, 2 * at)) * scale
        order = (*range(0, 2 * cells.ndim, 2), *range(1, 2 * cells.ndim, 2))
        waves = self.waves[self._corner]
        matrix = both.transpose(order).reshape(waves.size, waves.size) + np.diag(waves.ravel())
        first = int(self.total_known)
        inverse = np.zeros_like(matrix)
        inverse[first:, first:] = np.linalg.inv(matrix[first:, first:])
        inverse, cells, waves = (each.astype(kind) for each in (inverse, cells, waves))
        long = [each.astype(kind) for each in self._long]

        def onto(field: NDArray[Any]) -> NDArray[Any]:
            """Return Wᵀ of a field."""
            some = field @ long[-1].T
            return some if len(long) == 1 else long[0] @ some

        def solved(rest: NDArray[Any], found: NDArray[Any] | None, spare: NDArray[Any]) -> NDArray[Any]:
            if found is None:
                left = onto(rest)
            else:
                np.subtract(rest, np.multiply(cells, found, out=spare), out=spare)
                left = onto(spare) - waves * onto(found)
            lead = left.shape[: left.ndim - waves.ndim]
            share = (left.reshape(*lead, -1) @ inverse).reshape(left.shape) @ long[-1]
            more = share if len(long) == 1 else long[0].T @ share
            return more if found is None else np.add(found, more, out=found)

        return solved

    def _nearly_solved(
        self, cells: NDArray[Any], kind: np.dtype[Any]
    ) -> Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]:
        """Return the preconditioner: from fields, and memory for two, to changes that nearly solve the equations.

        Where cells are known, D⁻¹ does, elsewhere M⁻¹, which is the noise's variance: with a = D / (D + even),
        a (D + even)⁻¹ + √(1 − a) M⁻¹ √(1 − a). Changes add up to zero in its own metric: taken off in the plain one,
        a constant would cost cells that are known.
        """
        even = self._even_of_short
        known = self.inside * cells / (cells + even) ** 2
        scale = self.inside * np.sqrt(even / (cells + even))
        constant = known + scale * self.metric.filter(scale, self.metric.variance)
        level = float((constant * self.inside).sum())
        most = float((known + scale**2 * self.metric.variance.max()).sum())
        level = self.total_known * (1 / level if level > _NOTHING * most else 0.0)
        known, scale, constant = (each.astype(kind) for each in (known, scale, level * constant))
        variance = self.metric.variance.astype(kind)

        def nearly_solved(field: NDArray[Any], out: NDArray[Any], spare: NDArray[Any]) -> NDArray[Any]:
            out = self.metric.filter(np.multiply(scale, field, out=out), variance, overwrite=True)
            out *= scale
            out += np.multiply(known, field, out=spare)
            if level:
                out -= np.multiply(constant, out.sum(self.metric.axes, keepdims=True), out=spare)
            return out

        return nearly_solved

    def _product(self, one: NDArray[Any], other: NDArray[Any], spare: NDArray[Any]) -> Field:
        """Return the inner product of fields, or of each of a stack with its own; a field is spared for it."""
        return np.multiply(one, other, out=spare).sum(self.metric.axes, keepdims=True).astype(np.float64)


def _ratio(one: Field, other: Field) -> Field:
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0)


def _cosines(n: int) -> Field:
    """Return the longest cosines (waves, n), of length 1: at most as many as have products that are cosines, too."""
    number = min(int(np.clip(n // _CELLS, *_LONGEST)), (n + 1) // 2)
    return np.asarray(scipy.fft.idct(np.eye(number, n), norm="ortho", axis=1))
