"""Linear equations in the sum of a metric's precision, wave by wave, and a precision of every cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.metric import Metric

Field = NDArray[np.float64]

#: Steps of conjugate gradients at most.
_MOST_STEPS = 300
#: Precision of a cell, in means of the waves', of which as much is said by its own law as by the noise.
_EVEN = 3.0
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
        copies = metric.copies
        self._even = _EVEN * float((copies * self.waves).sum() / copies.sum())

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

    def solve(self, cells: NDArray[Any], right: NDArray[Any], within: float) -> NDArray[Any]:
        """The change x with (M + D) x = `right` along all changes, by preconditioned conjugate gradients.

        Parameters
        ----------
        cells : diagonal of D (*grid). right : a field or a stack.
        within : squared distance from the solution, in standard errors, at which it ends: as the preconditioner
            estimates it, about ten times too large.
        """
        kind = right.dtype
        nearly_solved = self._nearly_solved(cells, kind)
        cells, waves = cells.astype(kind, copy=False), self.waves.astype(kind, copy=False)
        # In units of the largest: squares of single precision overflow early.
        unit = float(np.abs(right).max()) or 1.0
        rest = self.change(right / kind.type(unit))
        # Memory of its own for each field: to ask for more in every step costs as much as the transforms.
        found, along, image, spare = (np.zeros_like(rest) for _ in range(4))
        size = np.zeros(1)
        for _ in range(_MOST_STEPS):
            image = nearly_solved(rest, image, spare)
            before, size = size, self._product(rest, image, spare)
            if size.max() <= within / unit / unit:
                break
            along *= _ratio(size, before).astype(kind)
            along += image
            np.copyto(image, along)
            image = self.metric.filter(image, waves, overwrite=True)
            image += np.multiply(cells, along, out=spare)
            self.change(image)
            length = _ratio(size, self._product(along, image, spare)).astype(kind)
            found += np.multiply(length, along, out=spare)
            rest -= np.multiply(length, image, out=spare)
        found *= kind.type(unit)
        return self.change(found)

    def _nearly_solved(
        self, cells: NDArray[Any], kind: np.dtype[Any]
    ) -> Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]:
        """The preconditioner: from fields, and memory for two, to changes that nearly solve the equations.

        Where cells are known, D⁻¹ does, elsewhere M⁻¹, which is the noise's variance: with a = D / (D + even),
        a (D + even)⁻¹ + √(1 − a) M⁻¹ √(1 − a). Changes add up to zero in its own metric: taken off in the plain one,
        a constant would cost cells that are known.
        """
        known = self.inside * cells / (cells + self._even) ** 2
        scale = self.inside * np.sqrt(self._even / (cells + self._even))
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
