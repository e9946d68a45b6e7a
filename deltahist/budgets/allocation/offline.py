"""Offline allocation: all weights are known (2014, Problems 1 and 2), by a banded interior-point method."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budgets.allocation.windows import (
    Constraints,
    check_budget,
    check_past,
    check_weights,
    rounded_down,
)
from deltahist.budgets.nano import NANO
from deltahist.errors import DeltaHistWarning, InputError, fits_memory

#: Relative gap between the error and its lower bound at which the solver stops, and which it must reach.
_GAP, _NEEDED = 1e-11, 1e-7
_ITERATIONS = 300
#: Iterations from the one that reaches the gap on.
_POLISH = 4


def allocate_offline(
    weights: ArrayLike,
    *,
    window: int,
    epsilon: float | Fraction,
    power: float = 2.0,
    error: Callable[[Any], Any] | None = None,
    past: ArrayLike = (),
) -> NDArray[np.float64]:
    """What to spend at each step when all weights are known: least Σ w_i Err(ε_i), no window above its limit.

    Source: 2014, section 7.1, Problem 1 (with windows from the first step on), and Problem 2 with `past`.
    Derivation of the solver: docs/allocation.md.

    Parameters
    ----------
    weights : (n,) of the queries, finite, not negative; 0 where nothing is published. They must be public.
    window : δ, in steps.
    epsilon : limit of the sum over every `window` consecutive steps (or of ρ).
    power : a > 0 of Err(ε) = ε^−a; 2 for the variance of Laplace noise, 1 for that of Gaussian noise in ρ.
    error : another convex error function, falling in ε: from a cvxpy expression to a convex one, entry by entry.
        It is then solved by cvxpy.
    past : amounts committed before the first weight, latest last; they count in the windows.

    Returns
    -------
    (n,) amounts, whole billionths, rounded down; 0 where the weight is 0, or where the past has left nothing.

    Raises
    ------
    InputError
        On weights that are negative, NaN or infinite, a window longer than the data, a limit that is not
        above zero, or a past that breaks a window.

    >>> allocate_offline([1, 0, 0, 1, 1, 0], window=3, epsilon=1.0).tolist()
    [1.0, 0.0, 0.0, 0.5, 0.5, 0.0]
    """
    wanted = check_weights(weights)
    length, limit = check_budget(window, epsilon, power)
    before = check_past(past, length, limit)
    if len(wanted) + np.size(past) < length:
        raise InputError(
            f"window is {length:,} steps, longer than the data, {len(wanted) + np.size(past):,} steps: there is no "
            "whole window to limit; use a shorter one, or add weights of 0"
        )
    steps = np.flatnonzero(wanted > 0)
    if len(steps) and len(before):
        # Steps in a window that the past has used up get nothing, whatever the rest do.
        reach = length - np.arange(min(length - 1, len(before)), 0, -1)
        spent = np.cumsum(before[::-1])[::-1]
        blocked = reach[limit - spent[-len(reach) :] < NANO * 1e-9 * length]
        if len(blocked):
            steps = steps[steps >= blocked.max()]
    out = np.zeros(len(wanted))
    if not len(steps):
        return out
    limits = Constraints.of(steps, before, length, limit)
    scale = limit / NANO
    if error is not None:
        out[steps] = scale * _by_cvxpy(wanted[steps], limits, error, scale)
    else:
        # Err(s x) = s^−a Err(x): the limit can be taken as one.
        found, gap = interior_point(wanted[steps], limits, float(power))
        if gap > _NEEDED:
            warnings.warn(
                f"allocation stopped with an error of at most {gap:.2g} above the least (weights of very different "
                "size?): it is feasible, but not the best",
                DeltaHistWarning,
                stacklevel=2,
            )
        out[steps] = scale * found
    return rounded_down(out, before, length, limit) / NANO


def interior_point(
    weights: NDArray[np.float64], limits: Constraints, power: float
) -> tuple[NDArray[np.float64], float]:
    """Amounts (m,) of least Σ w x^−a within the windows' limits, and the certified relative gap.

    Primal and dual together: windows have slack z and prices λ with λ z → 0, and every step's price s = Σ λ of its
    windows satisfies a w = s x^(a+1), of which the logarithm is linearised. Windows couple steps that lie close, so
    that Newton's system is banded.

    Parameters
    ----------
    weights : (m,) above zero. limits : windows over the m steps. power : a.
    """
    from scipy.linalg.lapack import dpbtrf, dpbtrs

    number, a = len(weights), power
    width = int((limits.last - limits.first + 1).max())
    fits_memory(8 * (width + 20) * number, f"an allocation of {number:,} steps")
    # Weights in units of their largest: prices then are of a size that floats hold.
    w = weights / weights.max()
    # What each window would give if it were alone, and prices that are rather too high: those fall fast.
    x = 0.8 * limits.shares(w ** (1 / (a + 1)))
    z = limits.limit - limits.total(x)
    price = limits.largest(a * w * x ** (-a - 1))
    factor = a ** (1 / (a + 1)) + a ** (-a / (a + 1))
    best, gap, more = x, np.inf, _POLISH

    def solved(target: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Newton's direction towards λ z = target."""
        change = target / z - price
        dx, _ = dpbtrs(band, -s * off - limits.spread(change, number), lower=1)
        dz = -limits.total(dx)
        return dx, dz, change - price / z * dz

    for _ in range(_ITERATIONS):
        s = limits.spread(price, number)
        off = (a + 1) * np.log(x) + np.log(s) - np.log(a * w)
        value = float((w * x**-a).sum())
        # The least of w x^−a + s x over x, summed, less the prices of the limits.
        bound = float((factor * w ** (1 / (a + 1)) * s ** (a / (a + 1))).sum() - limits.limit @ price)
        if value - bound < max(gap, _GAP) * value:
            best, gap = x, max(0.0, 1 - bound / value)
        # The error is flat at its least: a few more steps settle the amounts as well.
        more -= gap < _GAP
        if not more:
            break
        band = limits.coupled(price / z, number)
        band[0] += (a + 1) * s / x
        band, failed = dpbtrf(band, lower=1, overwrite_ab=1)
        if failed:
            break
        dx, dz, dl = solved(np.zeros(len(z)))
        near, far = min(_room(z, dz), _room(x, dx)), _room(price, dl)
        centre = float(price @ z) / len(z)
        after = float((price + far * dl) @ (z + near * dz)) / len(z)
        dx, dz, dl = solved((after / centre) ** 3 * centre - dz * dl)
        near, far = min(1.0, 0.95 * _room(z, dz), 0.95 * _room(x, dx)), min(1.0, 0.95 * _room(price, dl))
        x, z, price = x + near * dx, z + near * dz, price + far * dl
        if not (np.isfinite(x).all() and (z > 0).all() and (x > 0).all() and (price > 0).all()):
            break
    return best, gap


def _room(value: NDArray[np.float64], change: NDArray[np.float64]) -> float:
    """How far a positive value can go along a change before an entry is zero; at most 1."""
    falling = change < 0
    return min(1.0, float((-value[falling] / change[falling]).min())) if falling.any() else 1.0


def _by_cvxpy(
    weights: NDArray[np.float64], limits: Constraints, error: Callable[[Any], Any], scale: float
) -> NDArray[np.float64]:
    """The same with an error function of the caller's, in units of the limit."""
    import cvxpy as cp
    import scipy.sparse

    number = len(weights)
    sizes = limits.last - limits.first + 1
    rows = np.repeat(np.arange(len(sizes)), sizes)
    columns = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - limits.first, sizes)
    held = scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(sizes), number))
    amounts = cp.Variable(number, nonneg=True)
    try:
        value = cp.sum(cp.multiply(weights, error(scale * amounts)))
        problem = cp.Problem(cp.Minimize(value), [held @ amounts <= limits.limit])
        if not problem.is_dcp():
            raise ValueError("it is not recognised as convex")
        problem.solve(solver=cp.CLARABEL)
    except (TypeError, ValueError, AttributeError, cp.error.SolverError) as problem_found:
        raise InputError(
            f"error cannot be used: {problem_found}; it must turn a cvxpy expression into a convex one of the same "
            "shape, such as lambda e: cvxpy.power(e, -2)"
        ) from None
    if problem.status not in ("optimal", "optimal_inaccurate") or amounts.value is None:
        raise InputError(f"error cannot be minimised: the solver says {problem.status} (is it falling in ε?)")
    found = np.maximum(np.asarray(amounts.value, dtype=np.float64), 0.0)
    # The solver's limits hold to its tolerance: a little less holds exactly.
    return found * min(1.0, float((limits.limit / np.maximum(limits.total(found), 1e-300)).min()))
