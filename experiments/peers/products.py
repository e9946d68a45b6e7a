"""HDMM for all 2-D ranges: an optimised p-identity strategy per axis, and their Kronecker product."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

from deltahist.noise import discrete_laplace
from experiments.peers.noise import SENSITIVITY

#: Half of the random starts are as wide as the identity's rows and half are smaller. Wide starts sometimes end at the
#: identity (62 for n = 64), small ones at a single row (49). Finding a good optimum (44) takes a few of both.
_RESTARTS, _STEPS, _SPREADS = 6, 600, (1.0, 0.3)
#: Fixed-point entries, so that integer noise hides the whole answer. Real rows would leave fractions that no integer
#: noise hides. Rounding down keeps the column norms at most 1.
_ONE = 1 << 16


def hdmm(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """HDMM (McKenna, Miklau, Hay, Machanavajjhala 2018, OPT₀ and OPT⊗) with Laplace noise of scale 2/ε.

    The workload of all 2-D ranges is a product of one factor per axis, and OPT⊗ optimises each axis separately.
    """
    left, right = (fixed_point(n) for n in counts.shape)
    measured = left @ counts @ right.T
    measured += discrete_laplace(SENSITIVITY * _ONE**2 / Fraction(epsilon), measured.shape, rng=rng)
    return np.asarray(_inverse(counts.shape[0]) @ measured @ _inverse(counts.shape[1]).T)


@functools.cache
def fixed_point(n: int) -> NDArray[np.int64]:
    """Return `p_identity` in units of 2^−16, rounded down."""
    return np.floor(p_identity(n) * _ONE).astype(np.int64)


@functools.cache
def _inverse(n: int) -> NDArray[np.float64]:
    return np.asarray(np.linalg.pinv(fixed_point(n).astype(np.float64)))


@functools.cache
def p_identity(n: int) -> NDArray[np.float64]:
    """A = [I; Θ] D with columns of 1-norm one, Θ ≥ 0 of p = n/16 rows, for all ranges of n cells (section 5.2).

    Minimises tr(W (AᵀA)⁻¹) by L-BFGS from several random starts and keeps the best.
    """
    p = max(1, n // 16)
    cell = np.arange(n)
    gram = (np.minimum.outer(cell, cell) + 1.0) * (n - np.maximum.outer(cell, cell))
    rng = np.random.default_rng(2018)
    found = [
        scipy.optimize.minimize(
            _objective,
            rng.random(p * n) * _SPREADS[start % len(_SPREADS)],
            args=(gram, p),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * (p * n),
            options={"maxiter": _STEPS},
        )
        for start in range(_RESTARTS)
    ]
    best = min(found, key=lambda f: f.fun)
    rows = np.concatenate([np.eye(n), best.x.reshape(p, n)])
    return np.asarray(rows / rows.sum(axis=0))


def mean_error(n: int) -> float:
    """Return tr(W (AᵀA)⁻¹) per range of one axis: the mean variance for unit noise."""
    rows = p_identity(n)
    cell = np.arange(n)
    gram = (np.minimum.outer(cell, cell) + 1.0) * (n - np.maximum.outer(cell, cell))
    return float(np.trace(np.linalg.solve(rows.T @ rows, gram)) / (n * (n + 1) / 2))


def _objective(x: NDArray[np.float64], gram: NDArray[np.float64], p: int) -> tuple[float, NDArray[np.float64]]:
    n = len(gram)
    rows = np.concatenate([np.eye(n), x.reshape(p, n)])
    norm = rows.sum(axis=0)
    strategy = rows / norm
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(strategy.T @ strategy), np.eye(n))
    middle = inverse @ gram
    slope = -2 * strategy @ (middle @ inverse)
    gradient = slope[n:] / norm - (slope * rows).sum(axis=0) / norm**2
    return float(np.trace(middle)), gradient.ravel()
