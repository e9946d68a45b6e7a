"""HDMM for all 2-D ranges: a p-identity strategy per axis, optimised, and their Kronecker product."""

from __future__ import annotations

import functools

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

_RESTARTS, _STEPS = 3, 600


def hdmm(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """HDMM (McKenna, Miklau, Hay, Machanavajjhala 2018, OPT₀ and OPT⊗) with Laplace noise of scale 2/ε.

    For the workload of all 2-D ranges, a product of one factor per axis, OPT⊗ optimises each axis by itself.
    """
    left, right = (p_identity(n) for n in counts.shape)
    measured = left @ counts @ right.T
    measured += rng.laplace(scale=2 / epsilon, size=measured.shape)
    return np.linalg.pinv(left) @ measured @ np.linalg.pinv(right).T


@functools.cache
def p_identity(n: int) -> NDArray[np.float64]:
    """A = [I; Θ] D with columns of 1-norm one, Θ ≥ 0 of p = n/16 rows, for all ranges of n cells (section 5.2).

    Minimises tr(W (AᵀA)⁻¹) by L-BFGS from several random starts; the best is kept.
    """
    p = max(1, n // 16)
    cell = np.arange(n)
    gram = (np.minimum.outer(cell, cell) + 1.0) * (n - np.maximum.outer(cell, cell))
    rng = np.random.default_rng(2018)
    found = [
        scipy.optimize.minimize(
            _objective,
            rng.random(p * n),
            args=(gram, p),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * (p * n),
            options={"maxiter": _STEPS},
        )
        for _ in range(_RESTARTS)
    ]
    best = min(found, key=lambda f: f.fun)
    rows = np.concatenate([np.eye(n), best.x.reshape(p, n)])
    return np.asarray(rows / rows.sum(axis=0))


def mean_error(n: int) -> float:
    """tr(W (AᵀA)⁻¹) per range of one axis: the mean variance for unit noise."""
    rows = p_identity(n)
    cell = np.arange(n)
    gram = (np.minimum.outer(cell, cell) + 1.0) * (n - np.maximum.outer(cell, cell))
    return float(np.trace(np.linalg.solve(rows.T @ rows, gram)) / (n * (n + 1) / 2))


def _objective(
    x: NDArray[np.float64], gram: NDArray[np.float64], p: int
) -> tuple[float, NDArray[np.float64]]:
    n = len(gram)
    rows = np.concatenate([np.eye(n), x.reshape(p, n)])
    norm = rows.sum(axis=0)
    strategy = rows / norm
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(strategy.T @ strategy), np.eye(n))
    middle = inverse @ gram
    slope = -2 * strategy @ (middle @ inverse)
    gradient = slope[n:] / norm - (slope * rows).sum(axis=0) / norm**2
    return float(np.trace(middle)), gradient.ravel()
