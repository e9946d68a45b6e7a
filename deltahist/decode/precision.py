"""Linear equations in the sum of a metric's precision, wave by wave, and a precision of every cell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.metric import Metric

Field = NDArray[np.float64]

#: Steps of conjugate gradients at most.
_MOST_STEPS = 300
#: How much of the long waves' precision beyond the mean the preconditioner knows.
_LONG = 0.1


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
        self._mean = float((copies * self.waves).sum() / copies.sum())
        self._damped = 1 / (1 + _LONG * np.maximum(self.waves / self._mean - 1, 0.0))

    def change(self, field: NDArray[Any]) -> NDArray[Any]:
        """The nearest change to a field."""
        inside = self.inside.astype(field.dtype, copy=False)
        field = field * inside
        if self.total_known:
            field -= inside * (field.sum(self.metric.axes, keepdims=True) / self.size).astype(field.dtype)
        return field

    def of_noise(self, field: NDArray[Any]) -> NDArray[Any]:
        """M of a field."""
        return self.metric.filter(field, self.waves.astype(field.dtype, copy=False))

    def solve(
        self, cells: NDArray[Any], right: NDArray[Any], start: NDArray[Any] | None, within: float
    ) -> NDArray[Any]:
        """The change x with (M + D) x = `right` along all changes, by preconditioned conjugate gradients.

        Parameters
        ----------
        cells : diagonal of D (*grid). right, start : fields or stacks; without a start, zero.
        within : squared distance from the solution, in standard errors, at which it ends (estimated).
        """
        kind = right.dtype
        cells = cells.astype(kind, copy=False)
        damped = self._damped.astype(kind, copy=False)
        # Where cells are known they matter, elsewhere the waves do.
        scale = 1 / np.sqrt(cells + kind.type(self._mean))
        found = np.zeros_like(right) if start is None else start.copy()
        rest = self.change(right if start is None else right - self.of_noise(found) - cells * found)
        along = step = self.change(scale * self.metric.filter(scale * rest, damped))
        size = self._product(rest, step)
        for _ in range(_MOST_STEPS):
            if size.max() <= within:
                break
            image = self.change(self.of_noise(along) + cells * along)
            length = _ratio(size, self._product(along, image)).astype(kind)
            found += length * along
            rest -= length * image
            step = self.change(scale * self.metric.filter(scale * rest, damped))
            before, size = size, self._product(rest, step)
            along = step + _ratio(size, before).astype(kind) * along
        return found

    def _product(self, one: NDArray[Any], other: NDArray[Any]) -> Field:
        """Inner product of fields, or of each of a stack with its own."""
        return np.asarray((one * other).sum(self.metric.axes, keepdims=True, dtype=np.float64))


def _ratio(one: Field, other: Field) -> Field:
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0)
