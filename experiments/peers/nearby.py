"""Mechanisms for nearby moves: a policy graph over the cells, and planar Laplace noise on every point."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.noise import discrete_laplace

#: A move of up to one cell, even a diagonal one, follows at most two edges of the grid.
_EDGES = 2


def policy_graph(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Protect moves of up to one cell (Haney, Machanavajjhala, Ding 2015, "Design of policy-aware mechanisms").

    The policy is the grid whose edges join cells with a common side, so counts are differences of amounts on the edges.
    Parallel edges along one grid line form a line; Privelet publishes each line with its own noise. A move along an
    edge changes one line and costs ε/2. The noise of a rectangle is that of the edges across its border. Moves over
    |i| + |j| edges cost at most (|i| + |j|) ε/2.
    """
    out = counts.astype(np.float64)
    for axis in (0, 1):
        noise = _haar_noise(counts.shape[axis] - 1, counts.shape[1 - axis], epsilon / _EDGES, rng=rng)
        out += np.diff(noise if axis == 0 else noise.T, prepend=0, append=0, axis=axis)
    return out


def policy_any_move(shape: tuple[int, ...]) -> float:
    """Bound the policy graph's cost of a move of any length, in multiples of ε."""
    return sum(n - 1 for n in shape) / _EDGES


def _haar_noise(lines: int, length: int, epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return Privelet's noise (lines, length): equal noise for all 1 + log₂ n Haar coefficients of an edge."""
    levels = (length - 1).bit_length()
    scale = (1 + levels) / Fraction(epsilon)
    out = discrete_laplace(scale, (lines, 1), rng=rng) / 2**levels
    for level in range(levels, 0, -1):
        halves = discrete_laplace(scale, out.shape, rng=rng) / 2**level
        out = np.stack([out + halves, out - halves], axis=2).reshape(lines, -1)
    return out[:, :length]


def planar_laplace(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Move each point by noise of density ∝ exp(−ε · distance) in cells, and count (Andrés et al. 2013).

    A move of any distance costs ε times its length in cells. Points lie uniformly in their cells. Those that leave the
    map are moved to its nearest cell.
    """
    cells = np.repeat(np.argwhere(counts), counts[counts > 0], axis=0)
    radius, angle = rng.gamma(2, 1 / epsilon, len(cells)), rng.uniform(0, 2 * np.pi, len(cells))
    places = cells + rng.random(cells.shape) + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x, y = np.clip(np.floor(places), 0, np.array(counts.shape) - 1).astype(np.int64).T
    return np.bincount(x * counts.shape[1] + y, minlength=counts.size).reshape(counts.shape).astype(np.float64)
