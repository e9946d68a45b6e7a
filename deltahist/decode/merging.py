"""Cells that do not stand out from the noise are merged: what a map can honestly show."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.moments import Moments
from deltahist.domain import Domain
from deltahist.strategies.grids import spread_blocks, sum_blocks
from deltahist.workloads import Boxes

if TYPE_CHECKING:
    from deltahist.releases import Release

#: Blocks whose noise stands for that of all blocks of a size.
_TYPICAL = 9


class ErrorSource(Protocol):
    """What the error of a block is known from: a decoder, or several of them together."""

    @property
    def domain(self) -> Domain: ...
    def moments(self, work: Boxes) -> Moments: ...


def merged_cells(release: Release) -> NDArray[np.float64]:
    """Points per cell (domain.shape), averaged over blocks wherever cells do not stand out from the noise.

    Blocks are nested. One is divided if somewhere in it a part surely differs from an even spread over the
    next larger block (by chance that happens about once on a map), and, once its surroundings are divided,
    if one of its own parts probably does (by chance in one block of a hundred). Sums over blocks are kept.
    This looks at nothing but the release, so it costs no privacy.
    """
    cells, shape = release.cells(), release.domain.shape
    levels = [_Level(release, coarse, fine) for coarse, fine in itertools.pairwise(_widths(release))]
    surely = np.zeros(shape, dtype=bool)
    for level in reversed(levels):
        surely = level.divided_by(level.deviation > level.sure, surely)
        level.surely = surely
    shown = np.full(shape, cells.mean())
    divided = np.ones(shape, dtype=bool)
    for level in levels:
        divided &= level.surely | level.divided_by(level.deviation > level.likely)
        shown = np.where(divided, level.density, shown)
    return shown


class _Level:
    """Blocks of `coarse` cells a side and their parts of `fine` cells a side; all arrays are of the map's shape."""

    def __init__(self, release: Release, coarse: int, fine: int) -> None:
        self.shape, self.coarse, self.fine = release.domain.shape, coarse, fine
        cells, size = release.cells(), np.ones(self.shape)
        even = _spread(_per_block(cells, coarse) / _per_block(size, coarse), coarse, self.shape)
        parts = _per_block(cells, fine)
        error, kurtosis = block_error(release.mechanism.decoder, (fine,) * len(self.shape))
        far = np.abs(parts - _per_block(even, fine))
        #: Standard errors by which each part differs from an even spread.
        self.deviation = _spread(far / max(error, 1e-12), fine, self.shape)
        self.density = _spread(parts / _per_block(size, fine), fine, self.shape)
        #: Deviations that chance makes once on a map, and in one block of a hundred.
        self.sure = _largest(parts.size, kurtosis)
        self.likely = _largest(100 * (coarse // fine) ** 2, kurtosis)
        self.surely = np.zeros(self.shape, dtype=bool)

    def divided_by(self, *far: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Blocks in which any cell is marked."""
        marked = _per_block(np.logical_or.reduce(far).astype(np.float64), self.coarse) > 0
        return _spread(marked, self.coarse, self.shape)


def _largest(draws: int, kurtosis: float) -> float:
    """Standard errors that the largest of many draws of noise is about.

    √(2 ln m) for normal noise, ln m / √2 for Laplace noise, and between them by the excess kurtosis.
    """
    log = math.log(max(draws, 20))
    normal, laplace = math.sqrt(2 * log), log / math.sqrt(2)
    return normal + min(kurtosis / 3, 1.0) * max(0.0, laplace - normal)


def _widths(release: Release) -> list[int]:
    """Sides of nested blocks from the whole map down to one cell, through those that a hierarchy measured."""
    branching = int(getattr(release.mechanism.strategy, "branching", 2))
    widths = [1]
    for factor in itertools.cycle(_prime_factors(branching)):
        if widths[-1] >= max(release.domain.shape):
            break
        widths.append(widths[-1] * factor)
    return widths[::-1]


def _prime_factors(number: int) -> list[int]:
    for factor in range(2, math.isqrt(number) + 1):
        if number % factor == 0:
            return [factor, *_prime_factors(number // factor)]
    return [number]


def _per_block(cells: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Sums over blocks of `width` cells a side; those at the upper edges may be cut off."""
    return sum_blocks(cells, _starts(cells.shape, width))


def _spread(blocks: NDArray[Any], width: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Every cell gets its block's value."""
    return spread_blocks(blocks, _starts(shape, width), shape)


def _starts(shape: tuple[int, ...], width: int) -> tuple[NDArray[np.int64], ...]:
    """First cells of blocks, along each axis."""
    return tuple(np.arange(0, n, width) for n in shape)


def block_error(decoder: ErrorSource, widths: tuple[int, ...]) -> tuple[float, float]:
    """Median standard error and excess kurtosis of the sums over a few blocks of so many cells along each axis."""
    rng = np.random.default_rng(0)
    low, high = [], []
    for axis, (n, width) in enumerate(zip(decoder.domain.shape, widths, strict=True)):
        first = rng.integers(0, -(-n // width), _TYPICAL) * width
        edges = decoder.domain.edges(axis)
        low.append(edges[first])
        high.append(edges[np.minimum(first + width, n)])
    moments = decoder.moments(Boxes(np.column_stack([*low, *high])))
    return float(np.sqrt(np.median(moments.variance))), float(np.median(moments.kurtosis))
