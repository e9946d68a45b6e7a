"""Trees of boxes: the quadtree with geometric budget, HB and PrivTree."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist import Domain, Neighbourhood
from deltahist.budget import Budget
from deltahist.mechanisms import Mechanism
from deltahist.noise import discrete_laplace
from deltahist.space.workloads import all_ranges
from deltahist.strategies import Hierarchical
from experiments.peers.noise import SENSITIVITY, any_move


def quadtree(domain: Domain) -> Hierarchical:
    """Full quadtree: each level gets 2^(1/3) times the ε of the one above (Cormode et al. 2012, section IV-B).

    Least squares over all levels is their post-processing (section V).
    """
    levels = len(Hierarchical(domain, 2).groups)
    return Hierarchical(domain, 2, shares=tuple(round(2 ** (level / 3), 6) for level in range(levels)))


def hb2d(domain: Domain) -> Hierarchical:
    """HB: equal ε per level, with the branching that minimises the mean error over all ranges (Qardaji, Yang, Li 2013).

    Their closed form for the best branching approximates that mean; this minimises the mean itself.
    """
    near = Neighbourhood(domain, 10.0 * max(domain.high))
    ranges = all_ranges(domain)
    tried = [Hierarchical(domain, b) for b in (2, 3, 4, 5, 6, 8, 10, 12, 16) if b < max(domain.shape)]
    return min(tried, key=lambda s: Mechanism(near, s, Budget(1.0)).rmse(ranges))


#: PrivTree: the children of a split box, and half of the budget for the tree.
_FANOUT, _TREE = 4, Fraction(1, 2)


def privtree(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """PrivTree (Zhang, Xiao, Xie 2016, algorithm 2): split boxes while their biased noisy count is above 0.

    λ = (2 β − 1) / (β − 1) / ε₁ and δ = λ ln β for β = 4 children (corollary 1). ε₁ and the leaves' ε₂ are halved
    twice: once for the two parts, once for any move. The counts of leaves are spread evenly over their cells.

    Their lemma needs ln P(b + noise > 0) to change by at most 1/λ · e^((1 − b)/λ) when a box loses a point, and by at
    most 1/λ for b ≤ 1. Discrete noise satisfies it: for whole b ≥ 2 the log ratio is at most
    e^(−(b−1)/λ) tanh(1/2λ) · 2 ≤ e^(−(b−1)/λ) / λ, and it is 1/λ at b = 1.
    """
    side = 1 << max(n - 1 for n in counts.shape).bit_length()
    field = np.zeros((side, side), dtype=np.int64)
    field[: counts.shape[0], : counts.shape[1]] = counts
    tree = Fraction(epsilon) * _TREE
    scale = Fraction(2 * _FANOUT - 1, _FANOUT - 1) * SENSITIVITY / tree
    bias = float(scale) * math.log(_FANOUT)
    open_ = np.ones((1, 1), dtype=bool)
    out = np.zeros((side, side))
    depth, width = 0, side
    while open_.any():
        blocks = side // width
        sums = field.reshape(blocks, width, blocks, width).sum(axis=(1, 3)).astype(np.float64)
        biased = np.maximum(sums - depth * bias, -bias) + discrete_laplace(scale, sums.shape, rng=rng)
        split = open_ & (biased > 0) & (width > 1)
        leaf = open_ & ~split
        noisy = (sums + any_move(Fraction(epsilon) - tree, sums.shape, rng=rng)) / width**2
        out += np.kron(np.where(leaf, noisy, 0.0), np.ones((width, width)))
        open_ = np.kron(split, np.ones((2, 2), dtype=bool)) if width > 1 else np.zeros((1, 1), dtype=bool)
        depth, width = depth + 1, max(width // 2, 1)
    return out[: counts.shape[0], : counts.shape[1]]
