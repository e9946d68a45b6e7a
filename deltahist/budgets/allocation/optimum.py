"""What both allocations rest on: when amounts are the best, how far from it they are, and the way there.

Problem (2014, section 7, Problems 1 and 2): minimise Σ_i w_i x_i^−a over the amounts x_i > 0 of the steps of weight
w_i > 0, so that C x ≤ b. C is the 0/1 matrix of windows and steps, b what the past has left of each window; all
amounts are in units of the limit.

*Conditions.* Let z = b − C x be the slacks of the windows, λ ≥ 0 their prices, and s = Cᵀλ the prices of the steps.
Amounts within the limits are the best iff

    s_i x_i^(a+1) = a w_i  for every step i,      λ_t z_t = 0  for every window t.

*Lower bound.* For any λ ≥ 0 and all amounts within the limits s·x = λ·C x ≤ λ·b, so that
Σ w x^−a ≥ Σ (w x^−a + s x) − λ·b. The least of w x^−a + s x over x > 0 is `least`.

*The way there.* Windows are held at λ z = μ while μ falls to nothing. The first condition is taken in its logarithm,
r = (a + 1) ln x + ln s − ln(a w) = 0 (`imbalance`), which is nearly linear whatever the size of x. To first order

    (a + 1) dx/x + ds/s = −r,    λ dz + z dλ = μ − λ z,    dz = −C dx,    ds = Cᵀdλ,

and therefore, with the stiffness λ/z of each window,

    (Cᵀ diag(λ/z) C + diag((a + 1) s/x)) dx = −s r − Cᵀ(μ/z − λ),      dλ = (μ/z − λ) − (λ/z) dz.

Two of these directions make one step (Mehrotra's predictor and corrector). The first aims at μ = 0; how far λ z falls
on the way to the boundary says how low the second may aim (`next_centre`). The second also takes off dz dλ, the product
that the linear condition left out, as the first direction has it.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mean = TypeVar("Mean", float, Array)


def imbalance(amounts: Array, step_prices: Array, weights: Array, power: float) -> Array:
    """r = (a + 1) ln x + ln s − ln(a w): zero at the best amounts, above zero where an amount is too large."""
    return np.asarray((power + 1) * np.log(amounts) + np.log(step_prices) - np.log(power * weights))


def least(weights: Array, step_prices: Array, power: float) -> Array:
    """The least of w x^−a + s x over x > 0: c_a w^(1/(a+1)) s^(a/(a+1)), at x = (a w / s)^(1/(a+1)).

    c_a = a^(1/(a+1)) + a^(−a/(a+1)), the first for s x, the second for w x^−a.
    """
    a = power
    factor = a ** (1 / (a + 1)) + a ** (-a / (a + 1))
    return np.asarray(factor * weights ** (1 / (a + 1)) * step_prices ** (a / (a + 1)))


def next_centre(now: Mean, reached: Mean) -> Mean:
    """μ to aim at when the mean of λ z is `now` and the first direction alone would take it to `reached`."""
    return (reached / now) ** 3 * now
