"""Where in its cells a release's points lie: learnt from the release itself, which costs nothing.

Cells are looked at in blocks of two a side. How unevenly a block's points fall into its halves, beyond noise, says
how points clump; the same law, carried on below the cell, says how far an answer that cuts cells may be off.
Derivation: docs/placement.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.merging import ErrorSource, block_error
from deltahist.workloads.cover import CellSums, Cover

#: Weight of the neighbours in a cell's slope, and how steep it may be: steeper ones (sum over the axes) go below zero.
_OF_NEIGHBOURS, _STEEPEST = 0.75, 0.5
#: How much slopes that were learnt are believed at most.
_MOST_TRUST = 1.2
#: Blocks are looked at from this many standard errors, and from this many points, on.
_CLEAR, _FEWEST = 8.0, 2.0
#: Fewer halves than this say too little: larger blocks are taken.
_HALVES = 20
#: The variance of a half's noise grows by this where the slope, noisy itself, is taken off.
_OF_SLOPE = 1.14
#: The odds that two points share a place grow by this for every halving of the cell, a clump's size by 1 + 1.5 ψ at
#: once.
_ODDS, _CLUMP = 2.5, 1.5
#: Points of one cell do not all share one place.
_MOST_SHARED = 0.999
#: What nothing is divided by.
_TINY = np.finfo(np.float64).tiny
#: Cells that are looked at a time.
_AT_A_TIME = 1 << 15

Field = NDArray[np.float64]
#: Typical variance of the noise in a block of so many cells along each axis.
BlockVariance = Callable[[tuple[int, ...]], float]


@dataclass(frozen=True, eq=False)
class Placement:
    """How a release's points lie within its cells.

    Parameters
    ----------
    spread : u of each cell (domain.shape), in points squared: a share f of a cell's area holds f h of its h points,
        give or take √(f (1 − f) u).
    slopes : along each axis, half of what density grows by from the cell's centre to its edge, as a part of its mean
        (domain.shape).
    """

    spread: Field
    slopes: tuple[Field, ...]

    def slanted(self, cells: Field) -> tuple[Field, ...]:
        """2 h g along each axis (domain.shape): Σ f ξ of these is what slopes add to Σ f h."""
        found = tuple(cells * slope for slope in self.slopes)
        for each in found:
            each *= 2  # in place: on large maps an array more takes longer than the product
        return found

    @property
    def spreads(self) -> tuple[Field, ...]:
        """The fields u (domain.shape) from which `joined` takes the variance: here one."""
        return (self.spread,)

    def joined(self, apart: Sequence[Field]) -> Field:
        """Return the variance (m,) from Σ f (1 − f) u (m,) of each of the `spreads`."""
        return apart[0]

    def variance(self, cover: Cover) -> Field:
        """Return Σ f (1 − f) u (m,): what is not known of where the points of cut cells lie."""
        return unplaced(*cover.sums(CellSums(self.spread), (0, "share"), (0, "square")))


def unplaced(shares: Field, squares: Field) -> Field:
    """Return Σ f (1 − f) u (m,) from Σ f u and Σ f² u."""
    return np.maximum(shares - squares, 0.0)


@dataclass(frozen=True)
class Clumping:
    """How points clump: ψ, what small clumps add; ρ, the chance that two points share a place; and how slopes are
    to be trusted.

    They were learnt from halves of blocks, so many levels above the halves of a cell.
    """

    clump: float = 0.0
    shared: float = 0.0
    trust: float = 0.0
    levels: int = 1

    def spread(self, cells: Field, noise: float) -> Field:
        """u of each cell, from its estimate h and the variance v of estimates."""
        odds = _ODDS**self.levels * self.shared
        shared = odds / (1 - self.shared + odds)
        # h² − v estimates the squared count without bias; a clump holds no more than the points of its cell.
        pairs = cells * cells - noise
        clump = np.minimum(1 + _CLUMP * self.clump, np.maximum(1.0, cells - math.sqrt(noise)))
        return np.minimum(clump * cells + shared * (pairs - cells), np.maximum(pairs, cells))


def placement(cells: Field, decoder: ErrorSource) -> Placement:
    """Learn how points lie within cells, from their unbiased estimates (domain.shape) and the noise of these."""
    return placed(cells, block_variance(decoder))


def block_variance(decoder: ErrorSource) -> BlockVariance:
    """Typical variances of blocks, each worked out once."""

    @functools.cache
    def blocks(widths: tuple[int, ...]) -> float:
        return block_error(decoder, widths)[0] ** 2

    return blocks


def placed(cells: Field, blocks: BlockVariance) -> Placement:
    """`placement`, of estimates whose blocks have these variances of noise."""
    noise = blocks((1,) * cells.ndim)
    law = learnt(cells, blocks)
    spread, slopes = np.empty(cells.shape), [np.empty(cells.shape) for _ in cells.shape]
    # Some rows at a time: what is worked out on the way stays near the processor.
    step = max(1, _AT_A_TIME * len(cells) // cells.size)
    for first in range(0, len(cells), step):
        rows = slice(first, first + step)
        spread[rows] = law.spread(cells[rows], noise)
        for out, found in zip(slopes, _slopes(cells, math.sqrt(noise), rows), strict=True):
            np.multiply(found, law.trust, out=out[rows])
    return Placement(spread, tuple(slopes))


def learnt(cells: Field, blocks: BlockVariance) -> Clumping:
    """The law of the halves of the smallest blocks of which enough stand out from the noise."""
    halves, levels = _Halves(cells, blocks, 2), 1
    while len(halves.points) < _HALVES and min(cells.shape) >= 4 * halves.width:
        halves, levels = _Halves(cells, blocks, 2 * halves.width), levels + 1
    if not len(halves.points):
        return Clumping(levels=levels)
    return Clumping(*halves.fitted(), levels)


class _Halves:
    """Blocks of `width` cells a side that stand out from the noise, split in two along each axis.

    One entry for each block and axis: its points B, the far half less the near one d, what slopes say of it B g,
    and the variances of the noise in B and in d.
    """

    def __init__(self, cells: Field, blocks: BlockVariance, width: int) -> None:
        ndim, self.width = cells.ndim, width
        quarters = _block_sums(cells, (width // 2,) * ndim)
        sums = _block_sums(quarters, (2,) * ndim)
        whole = blocks((width,) * ndim)
        clear = sums >= max(_FEWEST, _CLEAR * math.sqrt(blocks((width // 2,) * ndim)))
        slopes = _slopes(sums, math.sqrt(whole), slice(0, len(sums))) if clear.any() else (sums,) * ndim
        differences, slanted, noise = [], [], []
        for axis in range(ndim):
            half = tuple(width // 2 if a == axis else width for a in range(ndim))
            split = _block_sums(quarters, tuple(1 if a == axis else 2 for a in range(ndim)))
            near, far = (np.take(split, np.arange(end, 2 * sums.shape[axis], 2), axis) for end in (0, 1))
            differences.append((far - near)[clear])
            slanted.append((sums * slopes[axis])[clear])
            # (far − near)² + (far + near)² = 2 far² + 2 near², and far + near is the block.
            noise.append(np.full(int(clear.sum()), max(4 * blocks(half) - whole, 0.0)))
        self.points = np.tile(sums[clear], ndim)
        self.differences, self.slanted = np.concatenate(differences), np.concatenate(slanted)
        self.noise, self.noise_of_points = np.concatenate(noise), whole

    def fitted(self) -> tuple[float, float, float]:
        """ψ, ρ ≥ 0 and the trust in slopes.

        E (d − t B g)² = B + ψ B + ρ (B² − B), noise taken off: fitted to the sum over all halves, and to that of
        both sides over B, so that neither large nor small blocks decide alone. t is the regression of d on B g,
        where there are enough.
        """
        b, lean, trust = self.points, self.slanted, 0.0
        if len(b) >= _HALVES and lean.any():
            trust = float(np.clip((self.differences @ lean) / (lean @ lean), 0.0, _MOST_TRUST))
        excess = (self.differences - trust * lean) ** 2 - b - _OF_SLOPE * self.noise
        pairs = np.maximum(b * b - b - self.noise_of_points, 1.0)
        (a, c), (d, e) = (b.sum(), pairs.sum()), (float(len(b)), (pairs / b).sum())
        one, other = excess.sum(), (excess / b).sum()
        determinant = a * e - c * d
        clump, shared = 0.0, one / c
        if abs(determinant) > 1e-12 * a * e:
            clump, shared = (one * e - c * other) / determinant, (a * other - one * d) / determinant
        if clump < 0:
            clump, shared = 0.0, one / c
        elif shared < 0:
            clump, shared = one / a, 0.0
        return max(float(clump), 0.0), float(np.clip(shared, 0.0, _MOST_SHARED)), trust


def _slopes(cells: Field, error: float, rows: slice) -> tuple[Field, ...]:
    """How density grows across each cell of some rows (`Placement.slopes`), from its neighbours; little in noise."""
    start, stop, _ = rows.indices(len(cells))
    around = cells[np.clip(np.arange(start - 1, stop + 1), 0, len(cells) - 1)]
    own = around[1:-1]
    neighbours = [(around[:-2], around[2:])]
    if cells.ndim == 2:
        padded = np.pad(own, ((0, 0), (1, 1)), mode="edge")
        neighbours.append((padded[:, :-2], padded[:, 2:]))
    least = 2 * abs(own) + 4 * error
    found = [
        _OF_NEIGHBOURS * (high - low) / np.maximum(abs(high) + abs(low) + least, _TINY) for low, high in neighbours
    ]
    steep = _STEEPEST / np.maximum(sum(map(abs, found)), _STEEPEST)
    return tuple(slope * steep for slope in found)


def _block_sums(cells: Field, widths: tuple[int, ...]) -> Field:
    """Sums over whole blocks; cells beyond the last whole one are left out."""
    for axis, width in enumerate(widths):
        if width > 1:
            whole = np.moveaxis(cells, axis, 0)[: cells.shape[axis] // width * width]
            cells = np.moveaxis(np.asarray(sum(whole[i::width] for i in range(width))), 0, axis)
    return cells
