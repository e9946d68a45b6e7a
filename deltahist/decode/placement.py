"""How points lie inside cells, estimated from the release itself at no cost to privacy.

Points clump, so the halves of blocks two cells wide differ more than noise explains. The law of these clumps,
extrapolated below the size of a cell, gives the error of answers that cut cells. docs/internals/placement.md derives
the law and lists the measurements behind the constants.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.space.workloads import Boxes

FloatArray = NDArray[np.float64]
#: An index into a map's arrays: slices, or places along each axis.
Chosen: TypeAlias = tuple[slice | NDArray[np.int64], ...]
#: Function that maps a block's size (in cells along each axis) to its typical noise variance.
BlockVariance = Callable[[tuple[int, ...]], float]
#: Larger blocks are used if there are fewer halves than this.
_FEWEST_HALVES = 20


@dataclass(frozen=True, eq=False)
class Placement:
    """How a release's points lie in cells: the cells' estimates h, their typical variance, and a law of clumps."""

    cells: FloatArray
    noise: float
    law: Clumping

    def slope_terms(self, own: FloatArray, chosen: Chosen) -> tuple[FloatArray, ...]:
        """Return 2 h g along each axis, for chosen cells with counts h. An answer is Σ f h + Σ f ξ (2 h g).

        The slope g is half the relative increase in density from the cell's centre to its edge.
        """
        twice = 2 * self.law.trust * own
        slopes = _find_slopes(self.cells, math.sqrt(self.noise), chosen)
        for slope in slopes:
            slope *= twice
        return slopes

    def spreads(self, chosen: Chosen) -> tuple[FloatArray, ...]:
        """Return the fields u of chosen cells (here one field), from which `joined_variance` computes the variance.

        A share f of a cell's area contains f h ± √(f (1 − f) u) of its h points.
        """
        return (self.law.cell_spread(self.cells[chosen], self.noise),)

    def joined_variance(self, apart: Sequence[FloatArray]) -> FloatArray:
        """Return the variance of each answer, given its sum Σ f (1 − f) u for each field of `spreads`."""
        return apart[0]


@dataclass(frozen=True)
class Clumping:
    """How points clump: a measure ψ of small clumps, the chance ρ that two points share a place, and trust in slopes.

    These parameters are estimated from halves of blocks, which are `levels` doublings larger than half a cell.
    """

    clump: float = 0.0
    shared: float = 0.0
    trust: float = 0.0
    levels: int = 1

    def cell_spread(self, cells: FloatArray, noise: float) -> FloatArray:
        """Return u of each cell, given its estimate h and the variance v of estimates."""
        odds = 2.5**self.levels * self.shared  # halving a cell multiplies the odds by 2.5
        shared = odds / (1 - self.shared + odds)
        # h² − v is unbiased for the squared count. A clump of 1 + 1.5 ψ points cannot exceed its cell's count.
        pairs = cells * cells - noise
        clump = np.minimum(1 + 1.5 * self.clump, np.maximum(1.0, cells - math.sqrt(noise)))
        return np.minimum(clump * cells + shared * (pairs - cells), np.maximum(pairs, cells))


def learn_placement(cells: FloatArray, blocks: BlockVariance) -> Placement:
    """Learn from unbiased estimates of cells how points lie in the smallest blocks that stand out from the noise."""
    halves, levels = _Halves(cells, blocks, 2), 1
    while len(halves.points) < _FEWEST_HALVES and min(cells.shape) >= 4 * halves.width:
        halves, levels = _Halves(halves.sums, blocks, 2 * halves.width), levels + 1
    law = Clumping(*halves.fit_law(), levels) if len(halves.points) else Clumping(levels=levels)
    return Placement(cells, blocks((1,) * cells.ndim), law)


class _Halves:
    """Blocks of `width` cells a side that stand out from the noise, split into halves along each axis.

    `quarters` are the sums of the blocks' quarters. There is one entry for each block and axis: the block's points B,
    the difference d (far half minus near half), the d = B g that slopes predict, and the noise variances of B and d.
    """

    def __init__(self, quarters: FloatArray, blocks: BlockVariance, width: int) -> None:
        ndim, self.width, self.sums = quarters.ndim, width, _sum_pairs(quarters)
        whole = blocks((width,) * ndim)
        clear = np.nonzero(self.sums >= max(2.0, 8 * math.sqrt(blocks((width // 2,) * ndim))))
        points = self.sums[clear]
        corners = itertools.product((0, 1), repeat=ndim)
        parts = {ends: quarters[tuple(2 * at + end for at, end in zip(clear, ends, strict=True))] for ends in corners}
        slopes = _find_slopes(self.sums, math.sqrt(whole), clear)
        differences, noise = [], []
        for axis in range(ndim):
            half = tuple(width // 2 if a == axis else width for a in range(ndim))
            near, far = (sum(part for ends, part in parts.items() if ends[axis] == end) for end in (0, 1))
            differences.append(far - near)
            # (far − near)² + (far + near)² = 2 far² + 2 near², and far + near is the block.
            noise.append(np.full(len(points), max(4 * blocks(half) - whole, 0.0)))
        self.points = np.tile(points, ndim)
        self.differences = np.concatenate(differences)
        self.expected = np.concatenate([points * slope for slope in slopes])
        self.noise, self.noise_of_points = np.concatenate(noise), whole

    def fit_law(self) -> tuple[float, float, float]:
        """Return ψ ≥ 0, ρ ≥ 0 and the trust t in slopes.

        Without noise, E (d − t B g)² = B + ψ B + ρ (B² − B). The fit equates the sums of both sides, once as they are
        and once divided by B, so that no block size dominates. With enough halves, t is the slope of d over B g.
        """
        b, lean, trust = self.points, self.expected, 0.0
        if len(b) >= _FEWEST_HALVES and lean.any():
            trust = float(np.clip((self.differences @ lean) / (lean @ lean), 0.0, 1.2))
        # The subtracted slope is also noisy, which adds 14% to the noise variance of a half.
        beyond = (self.differences - trust * lean) ** 2 - b - 1.14 * self.noise
        each = np.maximum(b * b - b - self.noise_of_points, 1.0)
        number, points, excess_over = float(len(b)), float(b.sum()), float((beyond / b).sum())
        pairs, pairs_over, excess = float(each.sum()), float((each / b).sum()), float(beyond.sum())
        determinant = points * pairs_over - pairs * number
        clump, shared = 0.0, excess / pairs
        if abs(determinant) > 1e-12 * points * pairs_over:
            clump = (excess * pairs_over - pairs * excess_over) / determinant
            shared = (points * excess_over - excess * number) / determinant
        if clump < 0:
            clump, shared = 0.0, excess / pairs
        elif shared < 0:
            clump, shared = excess / points, 0.0
        return max(clump, 0.0), min(max(shared, 0.0), 0.999), trust


def _find_slopes(cells: FloatArray, error: float, chosen: Chosen) -> tuple[FloatArray, ...]:
    """Estimate the slopes of chosen cells (`Placement.slope_terms`) from their neighbours. Noise damps them.

    Neighbours have weight 0.75. A cell's absolute slopes add up to at most ½, since more would make a density negative.
    """
    cells, chosen, beside = _with_neighbours(cells, chosen)
    sizes, found = abs(cells) if isinstance(chosen[0], slice) else None, []
    least = 2 * abs(cells[chosen]) + 4 * error
    for axis, places in enumerate(beside):
        low, high = ((*chosen[:axis], place, *chosen[axis + 1 :]) for place in places)
        slope = cells[high] - cells[low]
        slope *= 0.75
        size = abs(cells[high]) + abs(cells[low]) if sizes is None else sizes[high] + sizes[low]
        size += least
        slope /= np.maximum(size, np.finfo(np.float64).tiny, out=size)
        found.append(slope)
    steep = np.maximum(sum(map(abs, found)), 0.5)
    np.divide(0.5, steep, out=steep)
    for slope in found:
        slope *= steep
    return tuple(found)


def _with_neighbours(cells: FloatArray, chosen: Any) -> tuple[FloatArray, Chosen, list[tuple[Any, Any]]]:
    """Return cells, and indices of chosen cells and of their neighbours on each axis (at an edge, the same cells)."""
    if not isinstance(chosen[0], slice):
        ends = zip(chosen, cells.shape, strict=True)
        return cells, chosen, [(np.maximum(some - 1, 0), np.minimum(some + 1, n - 1)) for some, n in ends]
    for axis, some in enumerate(chosen):
        start, stop, _ = some.indices(cells.shape[axis])
        cells = cells.take(np.arange(start - 1, stop + 1).clip(0, cells.shape[axis] - 1), axis)
    return cells, (slice(1, -1),) * cells.ndim, [(slice(0, -2), slice(2, None))] * cells.ndim


def _sum_pairs(cells: FloatArray) -> FloatArray:
    """Return sums over whole blocks of two cells a side."""
    for axis in reversed(range(cells.ndim)):
        pairs = np.moveaxis(cells, axis, 0)[: cells.shape[axis] // 2 * 2]
        cells = np.moveaxis(pairs[::2] + pairs[1::2], 0, axis)
    return cells


def block_variance(decoder: Any) -> BlockVariance:
    """Return a cached function that computes the typical variance of a block under a decoder's noise."""
    return functools.cache(lambda widths: block_error(decoder, widths)[0] ** 2)


def find_least_count(decoder: Any) -> float:
    """Return the smallest number of points with which a block does not look empty (`estimate_nonnegative`).

    It is the standard error of a sum over 16 cells (in which the noise of neighbours can cancel out), plus up to half
    of that for the heavy tails of single Laplace draws. Section 8 of docs/internals/theory.md gives figures.
    """
    ndim = decoder.domain.ndim
    error, _ = block_error(decoder, ((16,), (4, 4), (4, 2, 2))[ndim - 1])
    _, kurtosis = block_error(decoder, (1,) * ndim)
    return error * (1 + float(np.nan_to_num(kurtosis, nan=3.0)) / 6)


def block_error(decoder: Any, widths: tuple[int, ...]) -> tuple[float, float]:
    """Return the median standard error and excess kurtosis of sums over nine random blocks of these widths."""
    rng = np.random.default_rng(0)
    low, high = [], []
    for axis, (n, width) in enumerate(zip(decoder.domain.shape, widths, strict=True)):
        first = rng.integers(0, -(-n // width), 9) * width
        edges = decoder.domain.edges(axis)
        low.append(edges[first])
        high.append(edges[np.minimum(first + width, n)])
    moments = decoder.moments(Boxes(np.column_stack([*low, *high])))
    return float(np.sqrt(np.median(moments.variance))), float(np.median(moments.kurtosis))
