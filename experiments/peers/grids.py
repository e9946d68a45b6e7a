"""Uniform and adaptive grids (Qardaji, Yang, Li 2013, "Differentially private grids for geospatial data").

Their grids cut continuous space into equal blocks. Our blocks consist of whole cells, which seldom divide a side as the
guideline asks. With `equal`, all blocks have the width rounded down and the last one contains the rest, so there may be
more blocks than asked for. Otherwise their number is exact, and widths differ by one cell. Then dense cells sometimes
share a block with their neighbours, and on clustered data this bias outweighs the noise. With the coarser reading of
the guideline, equal blocks are far better on such data and slightly worse on smooth data. With the finer reading they
are worse.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.peers.noise import add_noise

#: Their constants c and c₂ = c / 2 (sections IV-A, IV-B), and the first level's share of ε.
_C, _C2, _ALPHA = 10.0, 5.0, 0.5


def uniform_grid(
    counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator, guide: float = 0.5, equal: bool = True
) -> NDArray[np.float64]:
    """UG: m × m blocks, m = √(n ε / c), each spread evenly over its cells (guideline 1).

    The guideline uses ε times `guide`. The value ½ converts to their neighbour relation: they add or remove a point, so
    the same noise costs half of the ε. The value 1 follows the guideline literally.
    """
    m = max(1, math.ceil(math.sqrt(counts.sum() * guide * epsilon / _C)))
    edges = [_edges(n, m, equal) for n in counts.shape]
    return _evenly(add_noise(_block_sums(counts, *edges), epsilon, rng=rng), *edges)


def adaptive_grid(
    counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator, guide: float = 0.5, equal: bool = True
) -> NDArray[np.float64]:
    """AG: m₁ × m₁ blocks, m₁ = max(10, √(n ε / c) / 4), each cut into m₂ × m₂, m₂ = √(n' (1 − α) ε / c₂).

    n' is the block's noisy count. Constrained inference (section IV-B) joins both levels. `guide` is as above.
    """
    own = guide * epsilon
    m = max(10, math.ceil(math.sqrt(counts.sum() * own / _C) / 4))
    xs, ys = (_edges(n, m, equal) for n in counts.shape)
    first = Fraction(_ALPHA) * Fraction(epsilon)
    second = Fraction(epsilon) - first
    coarse = add_noise(_block_sums(counts, xs, ys), first, rng=rng)
    out = np.empty(counts.shape)
    for i, (x0, x1) in enumerate(pairwise(xs)):
        for j, (y0, y1) in enumerate(pairwise(ys)):
            cut = max(1, math.ceil(math.sqrt(max(coarse[i, j], 0) * (1 - _ALPHA) * own / _C2)))
            fine_x, fine_y = (_edges(n, cut, equal) for n in (x1 - x0, y1 - y0))
            fine = add_noise(_block_sums(counts[x0:x1, y0:y1], fine_x, fine_y), second, rng=rng).astype(np.float64)
            # Weight by precision: one noisy count of the block, fine.size of its parts.
            weight = _ALPHA**2 * fine.size
            best = (weight * coarse[i, j] + (1 - _ALPHA) ** 2 * fine.sum()) / (weight + (1 - _ALPHA) ** 2)
            fine += (best - fine.sum()) / fine.size
            out[x0:x1, y0:y1] = _evenly(fine, fine_x, fine_y)
    return out


def _edges(n: int, parts: int, equal: bool) -> NDArray[np.int64]:
    """Return the whole-cell edges of `parts` parts of n cells, at most n."""
    if equal:
        return np.append(np.arange(0, n, max(1, n // parts)), n)
    return np.unique(np.rint(np.linspace(0, n, parts + 1)).astype(np.int64))


def _block_sums(counts: NDArray[np.int64], xs: NDArray[np.int64], ys: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.add.reduceat(np.add.reduceat(counts, xs[:-1], axis=0), ys[:-1], axis=1)


def _evenly(sums: NDArray[Any], xs: NDArray[np.int64], ys: NDArray[np.int64]) -> NDArray[np.float64]:
    """Spread each block's sum evenly over its cells."""
    width, height = np.diff(xs), np.diff(ys)
    return np.repeat(np.repeat(sums / np.outer(width, height), width, axis=0), height, axis=1)
