"""Non-negative estimates: the nearest cells (in the noise's metric) with the known total and few distinct values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import DeltaHistWarning

FloatArray = NDArray[np.float64]
#: Squared distance from the best estimate, in standard errors, at which the method stops.
CLOSE = 0.1
#: Side of the largest blocks of equal cells, and the shifts of their grids. Any two differ in each bit on some axis.
_SIDE, _SHIFTS = 64, ((0, 0, 0), (21, 42, 10), (42, 21, 53), (63, 63, 63))


@dataclass(frozen=True, eq=False)
class Metric:
    """Waves in which an estimate's noise is (nearly) uncorrelated, and the variance of each.

    variance : by frequency, reduced for long waves (`shrink_long_waves`). It is 0 at the origin if the total is known.
    grid : shape of the fields that are transformed.
    periodic : whether waves are those of a torus (frequencies of a real Fourier transform) rather than cosines.
    inside : the domain's part of the grid. There are no points outside it.
    """

    variance: FloatArray
    grid: tuple[int, ...]
    periodic: bool
    inside: tuple[slice, ...]

    def filter(self, field: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
        """Return a field with each wave multiplied by a factor."""
        workers = -1 if field.nbytes >= 1 << 21 else 1  # starting threads takes longer than a small transform
        if self.periodic:
            waves = scipy.fft.rfftn(field, workers=workers)
            waves *= factor
            return np.asarray(scipy.fft.irfftn(waves, self.grid, workers=workers, overwrite_x=True))
        waves = scipy.fft.dctn(field, norm="ortho", workers=workers)
        waves *= factor
        return np.asarray(scipy.fft.idctn(waves, norm="ortho", workers=workers, overwrite_x=True))

    @property
    def precision(self) -> FloatArray:
        """Inverse variance of each wave, or 0 for waves without noise, which must not change."""
        return np.divide(1.0, self.variance, out=np.zeros_like(self.variance), where=self.variance > 0)

    @property
    def cell_variance(self) -> float:
        """Variance of a single cell's noise, in points², which is the mean variance of all waves."""
        copies = np.ones(self.variance.shape[-1])
        if self.periodic:  # a real transform omits mirror images
            copies[1 : (self.grid[-1] + 1) // 2] = 2
        return float((copies * self.variance).sum() / np.broadcast_to(copies, self.variance.shape).sum())


def simulate_metric(field: Callable[[], FloatArray], grid: tuple[int, ...], *, total_known: bool) -> Metric:
    """Return the metric, in cosines, of the noise that `field` draws on a grid."""
    size = math.prod(grid)
    # Larger maps have more waves of similar frequency, so a smoothed spectrum needs fewer fields (4 to 100).
    fields = int(np.clip(6400 / math.sqrt(size), 4, 100))
    power = np.zeros(grid)
    for _ in range(fields):
        power += scipy.fft.dctn(field(), norm="ortho", workers=-1) ** 2
    power /= fields
    origin = 0.0 if total_known else power.flat[0]
    power.flat[0] = power.flat[min(1, size - 1)]  # the smoothing must not spread the origin over its neighbours
    power = scipy.ndimage.uniform_filter(power, 3 if fields > 25 else 5, mode="reflect")
    power = np.maximum(power, 1e-9 * power.mean())
    power.flat[0] = origin
    return shrink_long_waves(Metric(power, grid, False, tuple(slice(0, n) for n in grid)))


def shrink_long_waves(metric: Metric) -> Metric:
    """Return the metric with the variance of long waves reduced by a power of the frequency.

    Clipping negative cells adds a little to every empty cell, always in the same direction. Over a box, this bias grows
    with the area, but noise grows more slowly. The power is chosen between 0.5 and 1.5 so that the reduced variance
    grows as the frequency to the power 1.5, if possible. If the total is unknown, the variance of the mean is reduced
    to that of the longest wave. No variance increases, so the certificate still bounds the error in standard errors.
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
    power = float(np.clip(1.5 - _fit_slope(metric.variance[some], waves[some]), 0.5, 1.5))
    variance = metric.variance.copy()
    variance[some] *= waves[some] ** power
    variance.flat[0] = min(variance.flat[0], variance[some][np.argmin(waves[some])])
    return replace(metric, variance=variance)


def _fit_slope(variance: FloatArray, waves: FloatArray) -> float:
    """Return the power of the frequency that fits the variance of waves, with equal weight for each octave."""
    octave = np.floor(np.log2(waves)).astype(np.int64)
    octave -= octave.min()
    number = np.bincount(octave)
    level = np.log(np.bincount(octave, variance)[number > 0] / number[number > 0])
    at = np.bincount(octave, np.log(waves))[number > 0] / number[number > 0]
    return float(np.polyfit(at, level, 1)[0]) if len(at) > 1 else 0.0


@dataclass(frozen=True, eq=False)
class ProjectedCells:
    """Cells whose answers are within √`distance` standard errors of the nearest cells' answers, and the step count."""

    cells: FloatArray
    distance: float
    steps: int

    def __post_init__(self) -> None:
        self.cells.flags.writeable = False


def estimate_nonnegative(field: FloatArray, metric: Metric, total: float | None, least: float) -> ProjectedCells:
    """Return non-negative cells that are equal inside blocks where the map looks empty, averaged over shifted blocks.

    `project_nonnegative` alone leaves the positive noise of empty areas on the map. Here, all cells of a block with at
    most `least` points are equal, so their noise cancels. Blocks are found in a first estimate, which itself uses
    blocks. Averaging over shifted grids hides the lines between blocks. The result depends only on the release, so it
    costs no privacy. Section 8 of docs/internals/theory.md gives figures.
    """
    # Blocks can be found at low precision: even stopping at 100 changes errors by less than 0.2% and halves the steps.
    first = project_nonnegative(field, metric, total, close=10.0).cells
    first = project_nonnegative(field, metric, total, merge_cells(first, least), close=10.0).cells
    # Two grids suffice for a million cells. Four would take more than five minutes.
    shifts = _SHIFTS if field.size < 1 << 20 else _SHIFTS[::3]
    found = [project_nonnegative(field, metric, total, merge_cells(first, least, shift)) for shift in shifts]
    cells = np.mean([each.cells for each in found], axis=0)
    return ProjectedCells(cells, max(each.distance for each in found), sum(each.steps for each in found))


def merge_cells(cells: FloatArray, least: float, shift: Sequence[int] = (0, 0, 0)) -> NDArray[np.int64]:
    """Return each cell's block number on a grid of blocks that is shifted by some cells along each axis.

    Blocks start at 64 cells a side, and are halved along each axis for as long as they have more than `least` points.

    >>> import numpy as np
    >>> merge_cells(np.array([0.0, 0, 0, 0, 9, 0, 0, 0]), 3).tolist()
    [3, 3, 3, 3, 0, 1, 2, 2]
    """
    places = [np.arange(n) + by for n, by in zip(cells.shape, shift, strict=False)]
    blocks, divided, side = np.zeros(cells.size, dtype=np.int64), np.ones(cells.size, dtype=bool), _SIDE
    while side and divided.any():
        index = [place // side for place in places]
        each = np.ravel_multi_index(np.ix_(*index), [int(i[-1]) + 1 for i in index]).ravel()
        blocks[divided] = each[divided] + side * (2 * cells.size + 1)  # differs from block numbers at other sizes
        divided &= np.bincount(each, cells.ravel())[each] > least
        side //= 2
    return np.unique(blocks, return_inverse=True)[1].ravel()


def project_nonnegative(
    field: FloatArray,
    metric: Metric,
    total: float | None,
    blocks: NDArray[np.int64] | None = None,
    close: float = CLOSE,
) -> ProjectedCells:
    """Return the non-negative cells that add up to the total and are nearest in the noise's metric.

    The cells c minimise ½ (c − ĉ)ᵀ M (c − ĉ) over c ≥ 0 (and 1ᵀc = n). The eigenvectors of M are waves, and its
    eigenvalues are the inverse variances of their noise. In the plain metric, projection would destroy cancellations
    that make correlated noise small on boxes. Uses the alternating direction method of multipliers (Boyd et al. 2011),
    with one filter and one clipping per step, accelerated as a fixed-point iteration (`Anderson`). The step length
    balances cells and multipliers. The multipliers bound the least distance from below, which gives the certificate.

    field : unbiased estimates on the metric's grid, which add up to any known total. metric : metric of their noise.
    total : number of points, or None if it is unknown.
    blocks : each cell's block number, or None. Cells of the same block must be equal.
    close : squared distance from the best estimate, in standard errors, at which to stop.

    Warns
    -----
    DeltaHistWarning
        If the certificate is not reached. The result is valid, but may be less accurate.
    """
    if (total is not None and total <= 0) or metric.cell_variance < 1e-18:  # rounding errors are larger
        return ProjectedCells(_project_plainly(field, metric.inside, total, blocks)[0][metric.inside], 0.0, 0)
    variance = metric.variance
    step = 30 / metric.cell_variance
    # Above a level, a state contains cells. Below it, a state contains the negated multipliers divided by the step.
    state, accelerated = field, Anderson(field.size)
    # Compute the certificate every 10 steps, and balance the step length after 20, 40, 80, ... steps.
    nearest, cells, done, turn = np.inf, field, 0, 20
    balanced: tuple[FloatArray, FloatArray] | None = None
    limit = max(10, min(6000, (3 << 31) // field.size))  # a few minutes
    while True:
        point, level = _project_plainly(state, metric.inside, total, blocks)
        if done % 10 == 0 or done == turn:
            multipliers = step * (point - state)
        if done % 10 == 0:
            distance = _bound_distance(point, field, multipliers, step * level, metric)
            if distance < nearest:
                cells, nearest = point, distance
            if nearest <= close or done >= limit:
                break
        if done == turn:
            if balanced is not None:
                # If multipliers have changed more than cells, longer steps reach the new multipliers sooner.
                moved = float(np.linalg.norm(point - balanced[0]))
                pushed = float(np.linalg.norm(multipliers - balanced[1]))
                step = pushed / moved / 2 if moved > 0 and pushed > 0 else step
                state = point - multipliers / step
                accelerated.forget()
            balanced, turn = (point, multipliers), 2 * turn
        pull = step * variance / (1 + step * variance)
        smooth = field + metric.filter(2 * point - state - field, pull)
        state = accelerated.step(state, smooth - point)
        done += 1
    if nearest > close:
        warnings.warn(
            f"non-negative estimates are certified to within {nearest**0.5:.2g} standard errors of the best ones after "
            f"{done:,} steps (aimed at {close**0.5:.2g}): they are valid, but may be less accurate",
            DeltaHistWarning,
            stacklevel=2,
        )
    return ProjectedCells(cells[metric.inside], nearest, done)


def _project_plainly(
    state: FloatArray, inside: tuple[slice, ...], total: float | None, blocks: NDArray[np.int64] | None
) -> tuple[FloatArray, float]:
    """Return the feasible cells nearest to a state in the plain metric, and the level subtracted from the state."""
    cells, given = np.zeros_like(state), state[inside]
    if blocks is not None:
        means = np.bincount(blocks, given.ravel()) / np.bincount(blocks)
        given = means[blocks].reshape(given.shape)
    if total is None:
        cells[inside] = np.maximum(given, 0.0)
        return cells, 0.0
    # Work relative to the highest cell, so that rounding does not lose a total much smaller than the cells.
    highest = float(given.max())
    below = given - highest
    kept, number, level = below.ravel(), 0, 0.0
    while kept.size != number:
        number, level = kept.size, (float(kept.sum()) - total) / kept.size
        kept = kept[kept >= level]
    cells[inside] = np.maximum(below - level, 0.0)
    return cells, highest + level


def _bound_distance(
    cells: FloatArray, field: FloatArray, multipliers: FloatArray, level: float, metric: Metric
) -> float:
    """Return a bound on the squared distance from the nearest cells, given multipliers ν and the total's multiplier −λ.

    ν + λ must be non-negative on the domain, or on average over each block if its cells must be equal. The minimum of ½
    |c − ĉ|²_M − νᵀc over all c with the right total is at least −νᵀĉ − ½ νᵀM⁻¹ν. Half the squared distance of a point c
    exceeds this minimum by ½ |c − ĉ − M⁻¹ν|²_M + (ν + λ)ᵀc. By strong convexity, ½ |c − c*|²_M is at most this excess.
    """
    rest = cells - field - metric.filter(multipliers, metric.variance)
    return float((rest * metric.filter(rest, metric.precision)).sum() + 2 * ((multipliers + level) * cells).sum())


class Anderson:
    """An accelerated fixed-point iteration, which extrapolates from the residuals of the last 15 steps.

    Plain iteration, x ↦ x + r(x), moves a point by its residual. `step` first subtracts from the residual the mix of
    recent changes that shrinks it most, and from the point the matching moves (Walker and Ni 2011). For affine r, this
    is GMRES. Memory use is 120 bytes per coordinate. If that would exceed 2 GiB, fewer steps are kept.

    >>> import numpy as np
    >>> matrix, accelerated, point = np.diag([0.5, 0.9, 0.99]), Anderson(3), np.ones(3)
    >>> for _ in range(6):
    ...     point = accelerated.step(point, matrix @ point - point)
    >>> bool(np.abs(point).max() < 1e-5)
    True
    """

    def __init__(self, size: int) -> None:
        memory = int(np.clip((1 << 28) // max(size, 1), 2, 15))
        self._changes = np.empty((memory, size), dtype=np.float32)  # changes of residuals, scaled to length 1
        self._moves = np.empty((memory, size), dtype=np.float32)
        self._gram = np.empty((memory, memory))
        self.forget()

    def forget(self) -> None:
        """Forget all steps, to start again from another point."""
        self._count, self._least, self._best = 0, np.inf, np.empty(0)
        self._last: tuple[FloatArray, FloatArray] | None = None

    def step(self, point: FloatArray, residual: FloatArray) -> FloatArray:
        """Return the next point, given a point and its residual (of the same shape)."""
        plain, norm = point + residual, float(np.linalg.norm(residual))
        if norm > 2 * self._least:
            # Go back to the best point and take a plain step from it, which does not increase the residual.
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
        some = slice(min(self._count, len(self._gram)))
        np.divide(change.ravel(), length, out=self._changes[at], casting="same_kind")
        np.subtract(plain, before, out=change)
        np.divide(change.ravel(), length, out=self._moves[at], casting="same_kind")
        self._gram[at, some] = self._changes[some] @ self._changes[at]
        along = (self._changes[some] @ residual.ravel().astype(np.float32)).astype(np.float64)
        self._gram[some, at] = self._gram[at, some]
        # The ridge matches the single precision of the changes.
        shares = np.linalg.solve(self._gram[some, some] + 1e-6 * np.eye(some.stop), along)
        return plain - (shares.astype(np.float32) @ self._moves[some]).reshape(point.shape)
