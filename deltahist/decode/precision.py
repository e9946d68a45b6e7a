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
#: Fields that are solved together: more take fewer steps, but each step combines all of them.
_TOGETHER = 8
#: Numbers that a cache holds.
_IN_CACHE = 1 << 16
#: Share of a direction that is new, in units of rounding, below which it is none.
_SAME = 10.0


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
        self._within = self.inside if self.size < self.inside.size else np.ones(1)
        copies = metric.copies
        self._even = _EVEN * float((copies * self.waves).sum() / copies.sum())

    def change(self, field: NDArray[Any]) -> NDArray[Any]:
        """The nearest change to a field."""
        inside = self._within.astype(field.dtype, copy=False)
        if inside.size > 1:
            field = field * inside
        if self.total_known:
            level = (field.sum(self.metric.axes, keepdims=True) / self.size).astype(field.dtype)
            field = field - inside * level
        return field

    def of_noise(self, field: NDArray[Any]) -> NDArray[Any]:
        """M of a field."""
        return self.metric.filter(field, self.waves.astype(field.dtype, copy=False))

    def solve(self, cells: NDArray[Any], right: NDArray[Any], within: float) -> NDArray[Any]:
        """The change x with (M + D) x = `right` along all changes, by preconditioned conjugate gradients.

        A few fields of a stack are solved together (O'Leary 1980): each is sought along the directions of all.

        Parameters
        ----------
        cells : diagonal of D (*grid). right : a field or a stack.
        within : squared distance from the solution, in standard errors, at which it ends: as the preconditioner
            estimates it, about ten times too large.
        """
        kind = right.dtype
        nearly_solved = self._nearly_solved(cells, kind)
        cells, waves = cells.astype(kind, copy=False), self.waves.astype(kind, copy=False)

        def image(field: NDArray[Any]) -> NDArray[Any]:
            out = self.metric.filter(field, waves)
            out += cells * field
            return self.change(out)

        fields = right.reshape(-1, cells.size)
        found = np.zeros_like(fields)
        for first in range(0, len(fields), _TOGETHER):
            some = slice(first, first + _TOGETHER)
            rest = self._each(self.change, fields[some])
            # In units of the largest: squares of single precision overflow early.
            unit = float(np.abs(rest).max()) or 1.0
            rest /= kind.type(unit)
            along = step = self._each(nearly_solved, rest)
            size = _products(rest, step)
            for _ in range(_MOST_STEPS):
                if size.diagonal().max() <= within / unit / unit:
                    break
                images = self._each(image, along)
                length = _divided(size, _products(along, images), kind)
                found[some] += length @ along
                rest -= length @ images
                step = self._each(nearly_solved, rest)
                before, size = size, _products(rest, step)
                along = step + _divided(size, before, kind) @ along
            found[some] *= kind.type(unit)
        return self.change(found.reshape(right.shape))

    def _nearly_solved(
        self, cells: NDArray[Any], kind: np.dtype[Any]
    ) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """The preconditioner: from fields to changes that nearly solve the equations.

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

        def nearly_solved(field: NDArray[Any]) -> NDArray[Any]:
            out = self.metric.filter(scale * field, variance)
            out *= scale
            out += known * field
            if level:
                out -= constant * out.sum(self.metric.axes, keepdims=True)
            return out

        return nearly_solved

    def _each(self, function: Callable[[NDArray[Any]], NDArray[Any]], fields: NDArray[Any]) -> NDArray[Any]:
        """A function of each field (k, cells of the grid), of as many at a time as a cache holds."""
        out = np.empty_like(fields)
        many = max(1, _IN_CACHE // fields.shape[1])
        for first in range(0, len(fields), many):
            some = fields[first : first + many]
            out[first : first + many] = function(some.reshape(-1, *self.metric.grid)).reshape(some.shape)
        return out


def _products(some: NDArray[Any], others: NDArray[Any]) -> Field:
    """Inner products (k, k) of fields (k, size) that are alike from either side."""
    out = (some @ others.T).astype(np.float64)
    return np.asarray((out + out.T) / 2)


def _divided(one: Field, other: Field, kind: np.dtype[Any]) -> NDArray[Any]:
    """one · other⁻¹ (k, k), for symmetric products; what `kind` cannot tell from a direction that others hold is 0."""
    length = np.sqrt(np.maximum(other.diagonal(), 0.0))
    unit = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    values, vectors = np.linalg.eigh(unit[:, None] * other * unit)
    kept = values > _SAME * np.finfo(kind).eps * values.max()
    vectors = unit[:, None] * vectors[:, kept]
    return np.asarray((one @ vectors / values[kept]) @ vectors.T, dtype=kind)
