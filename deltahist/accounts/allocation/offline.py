"""Offline allocation: all weights are known (2014, Problems 1 and 2), by a banded interior-point method."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.allocation.problem import (
    Array,
    Constraints,
    check_budget,
    check_past,
    check_weights,
    imbalance,
    least_cost,
    next_centre,
    round_down,
)
from deltahist.errors import NANO, DeltaHistWarning, InputError, fits_memory

#: Relative gap between the error and its lower bound at which the solver stops, and which it must reach.
_GAP, _NEEDED = 1e-11, 1e-7
_ITERATIONS = 300
#: Iterations from the one that reaches the gap on.
_POLISH = 4
#: Gap from which on it is tried to fill the windows that look full, and by how much smaller it is at the next trial.
_TRIED, _AGAIN = 1e-3, 3e-2
#: Part of the way to the boundary that a step goes.
_FAR = 0.98
#: Windows of a piece that is solved by itself, and of the margin at its ends, in lengths of a window; iterations after
#: which it is given up.
_PIECE, _MARGIN, _ROUNDS = 1 << 14, 16, 16
#: Steps at most, and how much of the limit a window may be above it at the end.
_NEWTON_STEPS, _ABOVE = 12, 1e-13
#: Stiffness of a window whose price is settled, over the largest one.
_FIXED = 1e12


def allocate_offline(
    weights: ArrayLike,
    *,
    length: int,
    epsilon: float | Fraction,
    power: float = 2.0,
    error: Callable[[Any], Any] | None = None,
    past: ArrayLike = (),
) -> Array:
    """Allocate a budget when all weights are known: least Σ w_i Err(ε_i), no window above its limit.

    Source: 2014, section 7.1, Problem 1 (with windows from the first step on), and Problem 2 with `past`.
    The method is derived in `problem` and measured in docs/allocation.md.

    Parameters
    ----------
    weights : (n,) of the queries, finite, not negative; 0 where nothing is published. They must be public.
    length : δ, the steps of a window, as of `Window`.
    epsilon : limit of the sum over every `length` consecutive steps (or of ρ).
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

    >>> allocate_offline([1, 0, 0, 1, 1, 0], length=3, epsilon=1.0).tolist()
    [1.0, 0.0, 0.0, 0.5, 0.5, 0.0]
    """
    wanted = check_weights(weights)
    length, limit = check_budget(length, epsilon, power)
    before = check_past(past, length, limit)
    if len(wanted) + np.size(past) < length:
        raise InputError(
            f"length is {length:,} steps, longer than the data, {len(wanted) + np.size(past):,} steps: there is no "
            "whole window to limit; use a shorter one, or add weights of 0"
        )
    steps = _open_steps(wanted, before, length, limit)
    out = np.zeros(len(wanted))
    if not len(steps):
        return out
    limits = Constraints.of(steps, before, length, limit)
    scale = limit / NANO
    if error is not None:
        out[steps] = scale * _solve_by_cvxpy(wanted[steps], limits, error, scale)
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
    return round_down(out, before, length, limit) / NANO


def _open_steps(
    weights: Array, past: NDArray[np.int64], length: int, limit: int
) -> NDArray[np.int64]:
    """Return the steps with weight (m,) for which the past, at most length − 1 amounts, has left something.

    The window that holds the last k amounts of the past holds the first length − k steps. Where less than a billionth
    for each step is left of it, these steps get nothing, whatever the rest do.
    """
    back = np.arange(len(past), 0, -1)
    left = limit - np.cumsum(past[::-1])[::-1]  # of the window that holds the last `back` amounts
    closed = (length - back)[left < length]
    steps = np.flatnonzero(weights > 0)
    return steps[steps >= closed.max(initial=0)]


def interior_point(
    weights: Array, limits: Constraints, power: float
) -> tuple[Array, float]:
    """Return amounts (m,) of least Σ w x^−a within the windows' limits, and the certified relative gap.

    Parameters
    ----------
    weights : (m,) above zero. limits : windows over the m steps. power : a.
    """
    width = int((limits.last - limits.first + 1).max())
    fits_memory(8 * (width + 20) * len(weights), f"an allocation of {len(weights):,} steps")
    # Weights in units of their largest: prices then are of a size that floats hold.
    weights = weights / weights.max()
    pieces = _prices_by_pieces(weights, limits, power, _MARGIN * width)
    if pieces is not None:
        found = _fill_and_certify(weights, limits, power, pieces)
        if found is not None and found[2] < _GAP:
            return found[0], found[2]
    best, gap, _ = _solve(weights, limits, power)
    return best, gap


def _prices_by_pieces(
    weights: Array, limits: Constraints, power: float, margin: int
) -> Array | None:
    """Return prices of windows near the best ones, from pieces that a cache holds.

    None for few windows, or unless all pieces end with prices of full windows.

    A window matters less the further away it is: windows in the margins at a piece's ends serve the others alone.
    The result is near the best, and counts only with a certificate.
    """
    number = len(limits.first)
    if number < 2 * (_PIECE + 2 * margin):
        return None
    out = np.zeros(number)
    for begin in range(0, number, _PIECE):
        end = min(begin + _PIECE, number)
        low, high = max(0, begin - margin), min(end + margin, number)
        first = int(limits.first[low])
        own = weights[first : limits.last[high - 1] + 1]
        part = Constraints(limits.first[low:high] - first, limits.last[low:high] - first, limits.limit[low:high])
        _, _, prices = _solve(own / own.max(), part, power, _ROUNDS)
        if prices is None:
            return None
        out[begin:end] = own.max() * prices[begin - low : end - low]
    return out


def _solve(
    weights: Array, limits: Constraints, power: float, rounds: int = _ITERATIONS
) -> tuple[Array, float, Array | None]:
    """Return amounts, the gap, and prices of full windows (None where the method did not end with those)."""
    point = _Point(weights, limits, power)
    best, gap, tried, polish = point.x, np.inf, _TRIED, _POLISH
    for _ in range(rounds):
        now = point.gap()
        if now < max(gap, _GAP):
            best, gap = point.x, max(0.0, now)
        if gap < tried:
            tried = _AGAIN * gap
            full = point.fill_windows()
            if full is not None and full[2] < _GAP:
                return full[0], full[2], full[1]
        # The error is flat at its least: a few more steps settle the amounts as well.
        polish -= gap < _GAP
        if not polish or not point.improve():
            break
    return best, gap, None


def _fill_and_certify(
    weights: Array, limits: Constraints, power: float, prices: Array
) -> tuple[Array, Array, float] | None:
    """Return amounts, prices and the gap with those windows full whose prices are positive."""
    found = fill_windows(limits, weights, power, prices)
    if found is None:
        return None
    amounts, prices = found
    return amounts, prices, max(0.0, _gap(weights, limits, power, amounts, prices, limits.spread(prices)))


def _gap(
    weights: Array,
    limits: Constraints,
    power: float,
    amounts: Array,
    prices: Array,
    step_prices: Array,
) -> float:
    """Return how far the error may be above the least, as a share of it."""
    error = float((weights * amounts**-power).sum())
    lowest = least_cost(weights, step_prices, power).sum() - limits.limit @ prices
    return 1 - float(lowest) / error


class _Point:
    """A point of the method: amounts x (m,) of the steps, slacks z and prices λ of the windows.

    The conditions, the bound and the directions are derived in `problem`. Windows couple only steps that lie close:
    the matrix of the directions is banded, as wide as the most steps in a window.
    """

    def __init__(self, weights: Array, limits: Constraints, power: float) -> None:
        self.limits, self.power, self.w = limits, power, weights
        # A little less than each window would give if it were alone, and prices that fall with slack: about half of
        # what the dearest of a window's steps should pay, divided among all windows that hold that step.
        self.x = 0.97 * limits.fair_shares(self.w ** (1 / (power + 1)))
        self.z = limits.limit - limits.total(self.x)
        due = power * self.w * self.x ** (-power - 1) / limits.spread(1 / self.z)
        self.price = 0.5 * limits.largest(due) / self.z
        self.band = np.empty((int((limits.last - limits.first + 1).max()), len(weights)), order="F")

    def gap(self) -> float:
        """Work out step prices and imbalances; return how far the error may be above the least, as a share of it."""
        self.step_price = self.limits.spread(self.price)
        self.off = imbalance(self.x, self.step_price, self.w, self.power)
        return _gap(self.w, self.limits, self.power, self.x, self.price, self.step_price)

    def fill_windows(self) -> tuple[Array, Array, float] | None:
        """Fill the windows that look full at the point where `gap` was worked out."""
        gives = self.limits.total(self.x / ((self.power + 1) * self.step_price))
        prices = np.where(self.price * gives > self.z, self.price, 0.0)
        return _fill_and_certify(self.w, self.limits, self.power, prices)

    def improve(self) -> bool:
        """Take one step from the point where `gap` was worked out; False where floats carry no further."""
        if not self._factor():
            return False
        dx, dz, dl = self._direction(np.zeros(len(self.z)))
        near, far = min(_reach(self.z, dz), _reach(self.x, dx)), _reach(self.price, dl)
        now = float(self.price @ self.z) / len(self.z)
        reached = float((self.price + far * dl) @ (self.z + near * dz)) / len(self.z)
        dx, dz, dl = self._direction(next_centre(now, reached) - dz * dl)
        near = min(1.0, _FAR * min(_reach(self.z, dz), _reach(self.x, dx)))
        far = min(1.0, _FAR * _reach(self.price, dl))
        self.x, self.z, self.price = self.x + near * dx, self.z + near * dz, self.price + far * dl
        inside = (self.z > 0).all() and (self.x > 0).all() and (self.price > 0).all()
        return bool(np.isfinite(self.x).all() and inside)

    def _factor(self) -> bool:
        """Factor Cᵀ diag(λ/z) C + diag((a + 1) s/x); False unless it is positive definite in floats."""
        from scipy.linalg.lapack import dpbtrf

        self.stiffness = self.price / self.z
        self.limits.fill_bands(self.stiffness, self.band)
        self.band[0] += (self.power + 1) * self.step_price / self.x
        _, failed = dpbtrf(self.band, lower=1, overwrite_ab=1)
        return not failed

    def _direction(self, target: Array) -> tuple[Array, ...]:
        """Return the direction (dx, dz, dλ) towards λ z = target."""
        from scipy.linalg.lapack import dpbtrs

        change = target / self.z - self.price
        side = -self.step_price * self.off - self.limits.spread(change)
        dx, _ = dpbtrs(self.band, side, lower=1, overwrite_b=1)
        dz = -self.limits.total(dx)
        return dx, dz, change - self.stiffness * dz


def _reach(value: Array, change: Array) -> float:
    """Return how far a positive value can go along a change before an entry is zero; at most 1."""
    return 1 / max(1.0, -float((change / value).min()))


def fill_windows(
    limits: Constraints, weights: Array, power: float, prices: Array
) -> tuple[Array, Array] | None:
    """Return best amounts (m,) and prices of the windows, from prices near the best ones; None without convergence.

    Few windows are full at the best amounts: of 30 steps with random weights, about one in six. The prices λ of those
    alone decide the amounts, x = (a w / s)^(1/(a+1)) with s = Cᵀλ. Newton's method moves them until C x = b:

        (C diag(x/((a + 1) s)) Cᵀ) dλ = C x − b    for the full windows.

    A window that is above its limit becomes full. One whose price would fall below zero is full no more: its price
    becomes zero, and the step of the others is worked out anew, with that change in it.

    Parameters
    ----------
    weights : (m,) above zero. prices : of each window, 0 where it is not full, to begin with.
    """
    prices = prices.copy()
    for _ in range(_NEWTON_STEPS):
        step_price = limits.spread(prices)
        if not (step_price > 0).all():
            return None
        amounts = (power * weights / step_price) ** (1 / (power + 1))
        above = limits.total(amounts) - limits.limit
        most = float((above / limits.limit).max())
        if most <= _ABOVE:
            return amounts / (1 + max(0.0, most)), prices
        full = np.flatnonzero((prices > 0) | (above > 0))
        band = limits.overlap_bands(full, amounts / ((power + 1) * step_price))
        shifted = _shift_prices(band, above[full], prices[full])
        if shifted is None:
            return None
        prices[full] = shifted
    return None


def _shift_prices(band: Array, above: Array, prices: Array) -> Array | None:
    """Return prices (k,), none below zero, after a Newton step that brings windows back to their limits; or None."""
    from scipy.linalg.lapack import dpbsv

    out = np.zeros(len(prices), dtype=bool)
    fixed = _FIXED * band[0].max(initial=0.0)
    for _ in range(_NEWTON_STEPS):
        # So stiff that nothing else moves them.
        matrix, side = band.copy(order="F"), np.where(out, -fixed * prices, above)
        matrix[0, out] += fixed
        _, change, failed = dpbsv(matrix, side, lower=1, overwrite_ab=1, overwrite_b=1)
        if failed or not np.isfinite(change).all():
            return None
        below = (prices + change < 0) & ~out
        if not below.any():
            return np.where(out, 0.0, prices + change)
        out |= below
    return None


def _solve_by_cvxpy(
    weights: Array, limits: Constraints, error: Callable[[Any], Any], scale: float
) -> Array:
    """Return the best amounts for the caller's error function, in units of the limit."""
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
