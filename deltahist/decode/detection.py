"""Which estimates stand out from the noise, when all of them are looked at together.

A map shows hundreds of blocks, so the largest of them is often noise. `stands_out` tests all of them at once by Holm's
method (1979). If it says that counts stand out, the chance that any of these is truly zero is at most `level`, however
the errors depend on one another. Holm's method needs one bound for each estimate alone:

Noise is a sum of independent Laplace draws, Gaussian draws, or both. With variance 1 it is √V · N for a normal N and
V = Σ v_i W_i + a constant, where v_i is the share of draw i in the variance and W_i is exponential with mean 1. The
excess kurtosis κ is 3 Σ v_i², so no share exceeds r = √(κ/3), and E e^(sV) ≤ e^(s(1 − r)) / (1 − s r). Let Q be the
normal tail. Since log Q(x/√v) is concave in v, it lies below its tangent at any v, whose slope is s. Hence

    P(noise > x) = E Q(x/√V) ≤ Q(x/√v) e^(−sv) · E e^(sV)    for every v,

which is the normal tail itself for κ = 0. For noise that is nearly one draw another bound is better. Let v_1 be the
largest share, from r² to r. A Laplace draw L of variance v_1 has P(L > y) ≤ ½ e^(−y√(2/v_1)) for every y, so that

    P(noise > x) ≤ ½ e^(−x√(2/v_1)) · E e^((V − v_1 W_1)/v_1),

which is the tail of a single draw for v_1 = 1. The smaller of the two bounds holds, for the worst v_1.

Noise on whole numbers has a kurtosis above 3 where it is coarse. There the standard error is that of the continuous
Laplace law with the same scale, whose moment generating function is larger everywhere, and half a count is taken off
the estimate: k counts or more are at most as likely as more than k − ½ on a continuous scale.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

#: Excess kurtosis of one Laplace draw; no sum of draws has more.
LAPLACE = 3.0
#: Steps of r between 0 and 1. Between two of them the larger one is taken.
_STEPS = 16
#: Estimates without noise are rounded by less than this.
_ROUNDING = 1e-6
#: Variances v whose tangents are tried; the middle one is 1.
_TANGENTS = np.geomspace(1 / 64, 64, 1025)


def stands_out(
    estimates: ArrayLike,
    std_errors: ArrayLike,
    kurtosis: ArrayLike = LAPLACE,
    *,
    level: float = 0.05,
    either_side: bool = False,
) -> NDArray[np.bool_]:
    """Return which estimates are above zero by more than noise explains, all of them taken together.

    Parameters
    ----------
    estimates : unbiased, of all counts that are shown together, in an array of any shape.
    std_errors : their standard errors.
    kurtosis : excess kurtosis of their noise (`Moments.kurtosis`), 0 for Gaussian noise. By default, and where it is
        NaN, that of one Laplace draw, which is the most that a sum of draws can have.
    level : the chance that any count reported here is truly zero.
    either_side : look for differences below zero, too.

    >>> stands_out([0.5, 30.0, 6.0, -9.0], 1.4).tolist()
    [False, True, True, False]
    >>> stands_out(np.append(np.zeros(1000), 6.0), 1.4).any()  # among a thousand, 6 is nothing special
    np.False_
    """
    errors = np.maximum(np.asarray(std_errors, dtype=np.float64), _ROUNDING)
    kurtosis = np.nan_to_num(np.asarray(kurtosis, dtype=np.float64), nan=LAPLACE)
    share = np.sqrt(np.clip(kurtosis / LAPLACE, 0.0, 1.0))
    steps = np.ceil(share * _STEPS - 1e-9).astype(np.int64)
    excess = np.maximum(kurtosis - LAPLACE, 1e-9)
    coarse = np.where(kurtosis > LAPLACE, np.sqrt(2 * excess) / np.arccosh(1 + excess), 1.0)
    size = np.abs(estimates) if either_side else np.asarray(estimates, dtype=np.float64)
    errors, steps, _ = np.broadcast_arrays(errors * coarse, steps, size)
    half = np.minimum(errors, 1) / 2
    # Holm's method: those that are found leave more of the level to the others.
    found = np.zeros(size.shape, dtype=bool)
    while True:
        alone = level / (1 + either_side) / max(1, size.size - int(found.sum()))
        limits = np.array([_limit(alone, step) for step in range(_STEPS + 1)])
        now = size > limits[steps] * errors + half
        if now.sum() == found.sum():
            return now
        found = now


@functools.lru_cache(maxsize=1024)
def _limit(chance: float, step: int) -> float:
    """Return the standard errors that noise exceeds with at most some chance, for r up to step / `_STEPS`."""
    low, high = (0.0 if step == 0 else _limit(chance, step - 1)), 64.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _log_tail(middle, step) > math.log(chance) else (low, middle)
    return high


def _log_tail(x: float, step: int) -> float:
    """Return the logarithm of the bound on the chance that noise exceeds x standard errors, for r of a step."""
    r, least = step / _STEPS, max(step - 1, 0) / _STEPS
    y = x / np.sqrt(_TANGENTS)
    log_normal = scipy.special.log_ndtr(-y)
    slope = y * np.exp(-y * y / 2 - log_normal) / math.sqrt(2 * math.pi) / (2 * _TANGENTS)
    by_tangent = log_normal - slope * _TANGENTS + _log_moment(slope, 1.0, r)
    first = np.linspace(max(least**2, 1e-6), max(r, 1e-6), 65)
    others = np.minimum(1 - first, np.sqrt(np.maximum(r * r - first * first, 0.0)))
    by_largest = -x * np.sqrt(2 / first) - math.log(2) + _log_moment(1 / first, 1 - first, others)
    return float(min(by_tangent.min(), by_largest.max()))


def _log_moment(s: Any, total: Any, most: Any) -> Any:
    """Return a bound on log E e^(sV) for shares whose sum is `total`, and whose squares add up to at most most²."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(s * most < 1, s * (total - most) - np.log1p(-s * most), np.inf)
