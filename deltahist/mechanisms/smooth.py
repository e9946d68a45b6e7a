"""Noise in proportion to a smooth sensitivity: how a budget is split between its scale's change and the shift."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from deltahist.budget import Budget
from deltahist.privacy import gaussian_curve

#: The floats of a smooth sensitivity agree with the real ones to fewer digits than this; β pays for it.
SLACK = 1e-12
#: Least smooth sensitivity that noise is drawn for, in lattice steps: public, and far below any accuracy.
FLOOR = 1
#: Spread σ of the log-normal factor: the best for dense points (docs/quantiles.md).
SIGMA = Fraction(1, 2)
#: E|Z| of each noise: Student's t with 2 degrees of freedom, Laplace, Laplace log-normal.
MEAN_SIZE = {
    "smooth-student": math.sqrt(2),
    "smooth-laplace": 1.0,
    "smooth-lognormal": math.exp(float(SIGMA) ** 2 / 2),
}


@dataclass(frozen=True)
class Smooth:
    """How noise goes with a smooth sensitivity: x + S_β · factor · Z.

    Parameters
    ----------
    method : "smooth-student", "smooth-laplace" or "smooth-lognormal", the law of Z.
    beta : β of the smooth sensitivity. factor : what it is multiplied with.
    """

    method: str
    beta: float
    factor: Fraction


@functools.lru_cache(maxsize=256)
def smooth_noise(method: str, budget: Budget) -> Smooth | None:
    """The best split of a budget between the scale's change (β) and the shift, or None if the noise cannot.

    If S_β(x) and S_β(x') differ by a factor of at most e^β and the values by S_β, the output of a neighbour is that
    of Z stretched by e^±β and shifted by at most 1/factor. Stretching costs Student's t 2β, shifting s costs
    3 s / (2 √2) (pure ε); for Laplace log-normal noise the divergence of order α is at most
    α (β/σ + e^(3σ²/2) s)² / 2 (Bun and Steinke 2019); shifting Laplace noise costs s, and stretching it costs ε₁
    but for a probability of e^(−z) (1 − e^(−β)), z = (ε₁ + β)/(e^β − 1). Proofs: docs/privacy/quantiles.md.

    Where points are dense S_β is in proportion to 1/β, so that β s is made as large as possible.
    """
    (epsilon, rho), probability = budget.exact, budget.probability
    if method == "smooth-student":
        if epsilon is None:
            return None
        return _smooth(method, float(epsilon) / 4, float(epsilon) / 2 / _STUDENT_SLOPE)
    if method == "smooth-lognormal":
        if rho is not None:
            root = math.sqrt(2 * float(rho))
            return _smooth(method, root * float(SIGMA) / 2, root / 2 * math.exp(-1.5 * float(SIGMA) ** 2))
        if epsilon is None or probability is None:
            return None
        slope = math.exp(1.5 * float(SIGMA) ** 2)
        return _best(
            method, float(epsilon), probability, slope, lambda e, p: float(SIGMA) * _gaussian_reach(e, p)
        )
    if epsilon is None or probability is None:
        return None
    return _best(method, float(epsilon), probability, 1.0, _laplace_stretch)


#: The steepest slope of the log-density of Student's t with 2 degrees of freedom.
_STUDENT_SLOPE = 3 / (2 * math.sqrt(2))


def _smooth(method: str, beta: float, shift: float) -> Smooth | None:
    """A noise for a β and a shift, both a hair less, for the floats of which they are made."""
    return Smooth(method, beta - SLACK, 1 / Fraction(shift * (1 - SLACK))) if beta > 2 * SLACK else None


def _best(
    method: str, epsilon: float, probability: float, slope: float, stretch: Callable[[float, float], float]
) -> Smooth | None:
    """The share of ε for shifting with the largest β s, over a grid.

    A neighbour's output is shifted first, at the cost of e^(ε₂), and then stretched, so that the failure
    probability of the stretch counts e^(ε₂) times.
    """
    shares = np.linspace(0.02, 0.98, 49)
    betas = [stretch(epsilon * (1 - a), probability * math.exp(-epsilon * a)) for a in shares]
    best = int(np.argmax(np.array(betas) * shares))
    return _smooth(method, betas[best], epsilon * float(shares[best]) / slope)


def _laplace_stretch(epsilon: float, probability: float) -> float:
    """Largest β such that Laplace noise of scales 1 and e^β, or e^−β, is (ε, δ_prob)-close."""

    def failure(beta: float) -> float:
        return math.exp(-(epsilon + beta) / math.expm1(beta)) * -math.expm1(-beta)

    return _largest(lambda beta: failure(beta) <= probability * (1 - 1e-9), epsilon)


def _gaussian_reach(epsilon: float, probability: float) -> float:
    """Largest μ such that standard normals μ apart are (ε, δ_prob)-close."""
    return _largest(lambda mu: gaussian_curve(mu, probability * (1 - 1e-9)) <= epsilon, 10.0)


def _largest(holds: Callable[[float], bool], most: float) -> float:
    low, high = 0.0, most
    if holds(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and holds(middle) else (low, middle)
    return low
