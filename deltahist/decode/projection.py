"""Estimates that are counts can be: not negative, with the known total, and nearest in the noise's own metric."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.metric import Metric
from deltahist.errors import DeltaHistWarning

#: Steps between two looks at the certificate, and before the step length is first looked at.
_LOOK, _SETTLE = 10, 20
#: Steps at most, and cells times steps, some minutes.
_MOST_STEPS, _MOST_WORK = 6000, 3 << 31
#: Squared distance from the best estimate, in standard errors, at which the method ends.
CLOSE = 0.1
#: Variance of a cell's noise, in points², below which there is none to speak of: rounding is larger.
_NONE = 1e-18
#: Step length at first, in units of the mean precision, and the part of the balanced one that is taken later.
_FIRST, _PART = 30.0, 0.5
#: Steps that are remembered at most, and numbers that they may take together (of four bytes).
_REMEMBERED, _MOST_NUMBERS = 15, 1 << 29
#: What is remembered is forgotten where a residual is so many times the last one.
_WORSE = 2.0
#: Added to the squared lengths of changes, relative: they are kept to single precision.
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class ProjectedCells:
    """Cells (domain.shape) and the certificate, with the number of steps, of one filter each.

    No answer differs from that of the exactly nearest cells by more than √`distance` of its standard errors.
    """

    cells: NDArray[np.float64]
    distance: float
    steps: int

    def __post_init__(self) -> None:
        self.cells.flags.writeable = False


def nonnegative(field: NDArray[np.float64], metric: Metric, total: float | None) -> ProjectedCells:
    """Return the nearest cells that are not negative and add up to the total, in the noise's metric.

    Minimises ½ (c − ĉ)ᵀ M (c − ĉ) over c ≥ 0 (and 1ᵀc = n), where M has the inverse of the noise's variance as
    its eigenvalues on waves. In the plain metric the projection would destroy the cancellations between cells
    that make correlated noise small on boxes. Alternating directions (Boyd et al. 2011), one filter and one
    clipping per step, are accelerated as a fixed-point iteration (`Anderson`), in steps whose length is balanced
    between cells and multipliers. The multipliers bound the least distance from below: the result comes with a
    certificate.

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
    if (total is not None and total <= 0) or metric.of_a_cell < _NONE:
        return ProjectedCells(_feasible(field, metric.inside, total)[0][metric.inside], 0.0, 0)
    variance = metric.variance
    step = _FIRST / float(variance.mean())
    # Cells are what a state holds above a level; below it, it is minus the multipliers over the step.
    state, accelerated = field, Anderson(field.size)
    nearest, cells, done, turn = np.inf, field, 0, _SETTLE
    settled: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    limit = max(_LOOK, min(_MOST_STEPS, _MOST_WORK // field.size))
    while True:
        point, level = _feasible(state, metric.inside, total)
        if done % _LOOK == 0 or done == turn:
            multipliers = step * (point - state + level)
        if done % _LOOK == 0:
            distance = _distance(point, field, multipliers, metric)
            if distance < nearest:
                cells, nearest = point, distance
            if nearest <= CLOSE or done >= limit:
                break
        if done == turn:
            if settled is not None:
                step = _balanced(step, point - settled[0], multipliers - settled[1])
                state = point - multipliers / step
                accelerated.forget()
            settled, turn = (point, multipliers), 2 * turn
        pull = step * variance / (1 + step * variance)
        smooth = field + metric.filter(2 * point - state - field, pull)
        state = accelerated.step(state, smooth - point)
        done += 1
    if nearest > CLOSE:
        warnings.warn(
            f"non-negative estimates are certified to {nearest**0.5:.2g} standard errors of the nearest ones after "
            f"{done:,} steps (aimed at {CLOSE**0.5:.2g}): they are valid, but may be less accurate",
            DeltaHistWarning,
            stacklevel=2,
        )
    return ProjectedCells(cells[metric.inside], nearest, done)


def _feasible(
    state: NDArray[np.float64], inside: tuple[slice, ...], total: float | None
) -> tuple[NDArray[np.float64], float]:
    """Return the feasible cells nearest to a state in the plain metric: what it holds above a level; and the level."""
    cells = np.zeros_like(state)
    if total is None:
        cells[inside] = np.maximum(state[inside], 0.0)
        return cells, 0.0
    # Counted from the highest cell: a total that is small beside what cells hold is not lost in rounding.
    highest = float(state[inside].max())
    below = state[inside] - highest
    kept, number, level = below.ravel(), 0, 0.0
    while kept.size != number:
        number, level = kept.size, (float(kept.sum()) - total) / kept.size
        kept = kept[kept >= level]
    cells[inside] = np.maximum(below - level, 0.0)
    return cells, highest + level


def _distance(
    cells: NDArray[np.float64],
    field: NDArray[np.float64],
    multipliers: NDArray[np.float64],
    metric: Metric,
) -> float:
    """Return a bound of the squared distance from the nearest cells, by multipliers ν ≥ 0 (free beyond the domain).

    The least of ½ |c − ĉ|²_M − νᵀc over all c of the right total is −νᵀĉ − ½ νᵀM⁻¹ν. A point's own half squared
    distance exceeds it by half of |c − ĉ − M⁻¹ν|²_M + 2 νᵀc, and by strong convexity ½ |c − c*|²_M is no more.
    """
    rest = cells - field - metric.filter(multipliers, metric.variance)
    return float((rest * metric.filter(rest, metric.precision)).sum() + 2 * (multipliers * cells).sum())


def _length(field: NDArray[np.float64]) -> float:
    """Return the Euclidean norm, also of numbers whose squares are none any more."""
    most = float(np.abs(field).max())
    return most * float(np.linalg.norm(field / most)) if most > 0 else 0.0


def _balanced(step: float, cells: NDArray[np.float64], multipliers: NDArray[np.float64]) -> float:
    """Return the step length at which cells and multipliers would have changed as much (or the present one).

    Where multipliers have changed more, they are still far off, and longer steps find them sooner.
    """
    moved, pushed = _length(cells), _length(multipliers)
    return _PART * pushed / moved if moved > 0 and pushed > 0 else step


class Anderson:
    """The next point of a fixed-point iteration, from what the last few steps taught of its residual.

    Iterating x ↦ x + r(x) moves by the residual. Here the residual is first lowered by that combination of its
    last changes that leaves least of it, and the points are moved along (Walker and Ni 2011). Where r is affine
    this is GMRES.

    Parameters
    ----------
    size : numbers in a point. 120 bytes each are held, and 2 GiB at most, by remembering fewer steps.

    >>> import numpy as np
    >>> matrix, accelerated, point = np.diag([0.5, 0.9, 0.99]), Anderson(3), np.ones(3)
    >>> for _ in range(6):
    ...     point = accelerated.step(point, matrix @ point - point)
    >>> bool(np.abs(point).max() < 1e-5)
    True
    """

    def __init__(self, size: int) -> None:
        memory = int(np.clip(_MOST_NUMBERS // (2 * max(size, 1)), 2, _REMEMBERED))
        self._changes = np.empty((memory, size), dtype=np.float32)  # of residuals, of length 1
        self._moves = np.empty((memory, size), dtype=np.float32)
        self._gram = np.empty((memory, memory))
        self.forget()

    def forget(self) -> None:
        """Start anew, from a point of another iteration."""
        self._count, self._least, self._best = 0, np.inf, np.empty(0)
        self._last: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def step(self, point: NDArray[np.float64], residual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the point that follows one with that residual (of the same shape)."""
        plain, norm = point + residual, float(np.linalg.norm(residual))
        if norm > _WORSE * self._least:
            # Back to where the plain iteration leads from the best point: its residual does not grow.
            best = self._best
            self.forget()
            return best
        if norm < self._least:
            self._best, self._least = plain, norm
        last, self._last = self._last, (plain, residual)
        if last is None:
            return plain
        before, earlier = last
        change = residual - earlier
        length = float(np.linalg.norm(change))
        if length == 0:
            return plain
        at = self._count % len(self._gram)
        self._count += 1
        held = slice(min(self._count, len(self._gram)))
        np.divide(change.ravel(), length, out=self._changes[at], casting="same_kind")
        np.subtract(plain, before, out=change)
        np.divide(change.ravel(), length, out=self._moves[at], casting="same_kind")
        self._gram[at, held] = self._changes[held] @ self._changes[at]
        along = (self._changes[held] @ residual.ravel().astype(np.float32)).astype(np.float64)
        self._gram[held, at] = self._gram[at, held]
        shares = np.linalg.solve(self._gram[held, held] + _RIDGE * np.eye(held.stop), along)
        return plain - (shares.astype(np.float32) @ self._moves[held]).reshape(point.shape)
