"""Linear equations in the sum of a metric's precision, wave by wave, and a precision of every cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.metric import Metric

Field = NDArray[np.float64]

#: Steps of conjugate gradients at most.
_MOST_STEPS = 300
#: Precision of a cell, in means of the waves', of which as much is said by its own law as by the noise.
_EVEN = 3.0
#: Cells a side for each of the longest cosines that are solved exactly in every step, and their least and most number.
_CELLS, _LONGEST = 16, (8, 24)
#: Share of a preconditioner's size below which what it makes of a constant is rounding.
_NOTHING = 1e-12


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
        """The nearest change to a field, in its place."""
        if self.size < self.inside.size:
            field *= self.inside.astype(field.dtype, copy=False)
        if self.total_known:
            inside: tuple[Any, ...] = (..., *self.metric.inside)
            field[inside] -= field.sum(self.metric.axes, keepdims=True) / self.size
        return field

    def of_noise(self, field: NDArray[Any]) -> NDArray[Any]:
        """M of a field."""
        return self.metric.filter(field, self.waves.astype(field.dtype, copy=False))

    def free(self, cells: NDArray[Any]) -> float:
        """How many cells are free: of each, the share that the noise has in what is known of it."""
        return float((self.inside * self._even / (cells + self._even)).sum())

    def solver(self, cells: Field, kind: Any) -> Callable[[NDArray[Any], float], NDArray[Any]]:
        """Return the way from a field or a stack to the changes x with (M + D) x = field along all changes.

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
        """Return what solves the equations for the longest waves W: from what is left r, and a change z (or zero), to

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
            """Wᵀ of a field."""
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
        """The preconditioner: from fields, and memory for two, to changes that nearly solve the equations.

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
        """Inner product of fields, or of each of a stack with its own; a field is spared for it."""
        return np.multiply(one, other, out=spare).sum(self.metric.axes, keepdims=True).astype(np.float64)


def _ratio(one: Field, other: Field) -> Field:
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0)


def _cosines(n: int) -> Field:
    """Return the longest cosines (waves, n), of length 1: at most as many as have products that are cosines, too."""
    number = min(int(np.clip(n // _CELLS, *_LONGEST)), (n + 1) // 2)
    return np.asarray(scipy.fft.idct(np.eye(number, n), norm="ortho", axis=1))
