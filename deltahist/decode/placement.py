"""Where in its cells a release's points lie: learnt from the release itself, which costs nothing.

Cells are looked at in blocks of two a side. How unevenly a block's points fall into its halves, beyond noise, says
how points clump; the same law, carried on below the cell, says how far an answer that cuts cells may be off.
Derivation: docs/placement.md.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.base import Moments
from deltahist.space.domain import Domain
from deltahist.space.workloads import Boxes

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
#: Blocks whose noise stands for that of all blocks of a size.
_TYPICAL = 9
Field = NDArray[np.float64]
#: Some cells of a map: an index of its arrays, by slices or by the places along each axis.
Chosen: TypeAlias = tuple[slice | NDArray[np.int64], ...]
#: Typical variance of the noise in a block of so many cells along each axis.
BlockVariance = Callable[[tuple[int, ...]], float]


@dataclass(frozen=True, eq=False)
class Placement:
    """How a release's points lie within its cells.

    Parameters
    ----------
    cells : unbiased estimates h (domain.shape). noise : their typical variance. law : how points clump.
    """

    cells: Field
    noise: float
    law: Clumping

    def slope_terms(self, own: Field, chosen: Chosen) -> tuple[Field, ...]:
        """Return 2 h g along each axis, of chosen cells with numbers h: Σ f ξ of these is what slopes add to Σ f h.

        The slope g is half of what density grows by from the cell's centre to its edge, as a part of its mean.
        """
        twice = 2 * self.law.trust * own
        slopes = _slopes(self.cells, math.sqrt(self.noise), chosen)
        for slope in slopes:
            slope *= twice
        return slopes

    def spreads(self, chosen: Chosen) -> tuple[Field, ...]:
        """Return the fields u from which `joined_variance` takes the variance, of chosen cells: here one.

        A share f of a cell's area holds f h of its h points, give or take √(f (1 − f) u).
        """
        return (self.law.spread(self.cells[chosen], self.noise),)

    def joined_variance(self, apart: Sequence[Field]) -> Field:
        """Return the variance (m,) from Σ f (1 − f) u (m,) of each of the `spreads`."""
        return apart[0]


def placement_variance(shares: Field, squares: Field) -> Field:
    """Return Σ f (1 − f) u (m,) from Σ f u and Σ f² u."""
    return np.maximum(shares - squares, 0.0)


@dataclass(frozen=True)
class Clumping:
    """How points clump: ψ, the part of small clumps; ρ, the chance that two points share a place; the trust in slopes.

    They were learnt from halves of blocks, `levels` above the halves of a cell.
    """

    clump: float = 0.0
    shared: float = 0.0
    trust: float = 0.0
    levels: int = 1

    def spread(self, cells: Field, noise: float) -> Field:
        """Return u of each cell, from its estimate h and the variance v of estimates."""
        odds = _ODDS**self.levels * self.shared
        shared = odds / (1 - self.shared + odds)
        # h² − v estimates the squared count without bias; a clump holds no more than the points of its cell.
        pairs = cells * cells - noise
        clump = np.minimum(1 + _CLUMP * self.clump, np.maximum(1.0, cells - math.sqrt(noise)))
        return np.minimum(clump * cells + shared * (pairs - cells), np.maximum(pairs, cells))


def placement(cells: Field, blocks: BlockVariance) -> Placement:
    """Learn how points lie in cells, from unbiased estimates (domain.shape) and the variance of their `blocks`."""
    return Placement(cells, blocks((1,) * cells.ndim), learn_clumping(cells, blocks))


def learn_clumping(cells: Field, blocks: BlockVariance) -> Clumping:
    """Return the law of the halves of the smallest blocks of which enough stand out from the noise."""
    halves, levels = _Halves(cells, blocks, 2), 1
    while len(halves.points) < _HALVES and min(cells.shape) >= 4 * halves.width:
        halves, levels = _Halves(halves.sums, blocks, 2 * halves.width), levels + 1
    return Clumping(*halves.fit(), levels) if len(halves.points) else Clumping(levels=levels)


class _Halves:
    """Blocks of `width` cells a side that stand out from the noise, split in two along each axis.

    Blocks consist of `quarters`, whose sums are given. One entry for each block and axis: its points B, the far half
    less the near one d, what slopes say of it B g, and the variances of the noise in B and in d.
    """

    def __init__(self, quarters: Field, blocks: BlockVariance, width: int) -> None:
        ndim, self.width, self.sums = quarters.ndim, width, _sums_of_two(quarters)
        whole = blocks((width,) * ndim)
        clear = np.nonzero(self.sums >= max(_FEWEST, _CLEAR * math.sqrt(blocks((width // 2,) * ndim))))
        points = self.sums[clear]
        parts = {
            ends: quarters[tuple(2 * place + end for place, end in zip(clear, ends, strict=True))]
            for ends in itertools.product((0, 1), repeat=ndim)
        }
        slopes = _slopes(self.sums, math.sqrt(whole), clear)
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

    def fit(self) -> tuple[float, float, float]:
        """Return ψ, ρ ≥ 0 and the trust in slopes.

        E (d − t B g)² = B + ψ B + ρ (B² − B), noise taken off: fitted to the sum over all halves, and to that of
        both sides over B, so that neither large nor small blocks decide alone. t is the regression of d on B g,
        where there are enough.
        """
        b, lean, trust = self.points, self.expected, 0.0
        if len(b) >= _HALVES and lean.any():
            trust = float(np.clip((self.differences @ lean) / (lean @ lean), 0.0, _MOST_TRUST))
        beyond = (self.differences - trust * lean) ** 2 - b - _OF_SLOPE * self.noise
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
        return max(clump, 0.0), min(max(shared, 0.0), _MOST_SHARED), trust


def _slopes(cells: Field, error: float, chosen: Chosen) -> tuple[Field, ...]:
    """Return how density grows across chosen cells (`Placement.slope_terms`), by their neighbours; little in noise."""
    cells, chosen, beside = _with_neighbours(cells, chosen)
    sizes, found = abs(cells) if isinstance(chosen[0], slice) else None, []
    least = 2 * abs(cells[chosen]) + 4 * error
    for axis, places in enumerate(beside):
        low, high = ((*chosen[:axis], place, *chosen[axis + 1 :]) for place in places)
        slope = cells[high] - cells[low]
        slope *= _OF_NEIGHBOURS
        size = abs(cells[high]) + abs(cells[low]) if sizes is None else sizes[high] + sizes[low]
        size += least
        slope /= np.maximum(size, np.finfo(np.float64).tiny, out=size)
        found.append(slope)
    steep = np.maximum(sum(map(abs, found)), _STEEPEST)
    np.divide(_STEEPEST, steep, out=steep)
    for slope in found:
        slope *= steep
    return tuple(found)


def _with_neighbours(cells: Field, chosen: Any) -> tuple[Field, Chosen, list[tuple[Any, Any]]]:
    """Return cells, where the chosen ones are among them, and the neighbours on both sides along each axis.

    Slices are cut out with their neighbours. At an edge of the map a cell is its own neighbour.
    """
    if not isinstance(chosen[0], slice):
        ends = zip(chosen, cells.shape, strict=True)
        return cells, chosen, [(np.maximum(some - 1, 0), np.minimum(some + 1, n - 1)) for some, n in ends]
    for axis, some in enumerate(chosen):
        start, stop, _ = some.indices(cells.shape[axis])
        cells = cells.take(np.arange(start - 1, stop + 1).clip(0, cells.shape[axis] - 1), axis)
    return cells, (slice(1, -1),) * cells.ndim, [(slice(0, -2), slice(2, None))] * cells.ndim


def _sums_of_two(cells: Field) -> Field:
    """Return sums over blocks of two cells a side; cells beyond the last whole one are left out."""
    first, *others = (
        cells[tuple(slice(end, n // 2 * 2, 2) for end, n in zip(ends, cells.shape, strict=True))]
        for ends in itertools.product((0, 1), repeat=cells.ndim)
    )
    out = first.copy()
    for each in others:
        out += each
    return out


class ErrorSource(Protocol):
    """A source of errors of blocks: a decoder, or several of them together."""

    @property
    def domain(self) -> Domain: ...
    def moments(self, work: Boxes) -> Moments: ...


def block_variance(decoder: ErrorSource) -> BlockVariance:
    """Return typical variances of blocks, each worked out once."""
    return functools.cache(lambda widths: block_error(decoder, widths)[0] ** 2)


def block_error(decoder: ErrorSource, widths: tuple[int, ...]) -> tuple[float, float]:
    """Return the median standard error and excess kurtosis of sums over a few blocks of these widths."""
    rng = np.random.default_rng(0)
    low, high = [], []
    for axis, (n, width) in enumerate(zip(decoder.domain.shape, widths, strict=True)):
        first = rng.integers(0, -(-n // width), _TYPICAL) * width
        edges = decoder.domain.edges(axis)
        low.append(edges[first])
        high.append(edges[np.minimum(first + width, n)])
    moments = decoder.moments(Boxes(np.column_stack([*low, *high])))
    return float(np.sqrt(np.median(moments.variance))), float(np.median(moments.kurtosis))
