"""Allocate a budget over time, so that every window of δ steps spends at most the limit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.ledger import Rule
from deltahist.errors import NANO, InputError, check_choice, check_positive, is_number

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


def allocate_offline(
    weights: ArrayLike, *, length: int, epsilon: float | Fraction, power: float = 2.0, past: ArrayLike = ()
) -> Array:
    """Return the amounts that minimise Σ w_i Err(ε_i) within every window's limit, given all weights.

    Source: 2014, section 7.1: Problem 1, or Problem 2 if `past` is given. Unlike in the paper, the first windows, which
    are shorter, have limits too. cvxpy solves the problem with Clarabel.

    Parameters
    ----------
    weights : (n,) public weights of the steps, with 0 where nothing is published. 10,000 weights take about 3 seconds.
    length : δ, the number of steps in a window, as for `Window`.
    epsilon : limit on the sum of ε (or of ρ) over every `length` consecutive steps.
    power : a > 0 in Err(ε) = ε^−a. Use 2 for the variance of Laplace noise, or 1 for Gaussian noise (with ρ as ε).
    past : amounts spent in earlier steps, latest last. Windows include these steps.

    Returns
    -------
    (n,) amounts, rounded down to whole billionths. They are 0 where the weight is 0 or nothing is left to spend.

    Here any three days in a row may spend 1 in total. The first gets all of it, as the next two days publish nothing:

    >>> allocate_offline([1, 0, 0, 1, 1, 0], length=3, epsilon=1.0).round(4).tolist()
    [1.0, 0.0, 0.0, 0.5, 0.5, 0.0]
    """
    wanted = check_weights(weights)
    limit, power = Rule.from_budget(epsilon, length=length).limit, float(check_positive(power=power))
    before = check_past(past, length, limit)
    left = limits_ahead(before[None], length, len(wanted), limit)[:, 0]
    # A step gets nothing if the window that ends there has less left than a billionth per step.
    steps, out = np.flatnonzero((wanted > 0) & (left >= length)), np.zeros(len(wanted))
    if len(steps):
        out[steps] = _solve_program(wanted[steps], steps, left / NANO, min(length, len(before) + len(wanted)), power)
    return round_down(out, before, length, limit) / NANO


def _solve_program(weights: Array, steps: Whole, left: Array, length: int, power: float) -> Array:
    """Return the (m,) amounts that minimise Σ w ε^−a over `steps`. The window that ends at step i may spend left[i]."""
    import cvxpy as cp

    # Divide amounts by the equal share, since the solver is accurate at that scale. Use cumulative sums as variables,
    # to keep the problem sparse.
    ends, share = np.arange(1, len(left) + 1), left.max() / length
    sums = cp.Variable(len(left) + 1)
    amounts = cp.diff(sums)
    closed = np.setdiff1d(ends - 1, steps)
    # Leave out a window if the next one contains it and has no more left to spend.
    ends = ends[np.append((left[1:] > left[:-1]) | (ends[1:] > length), True)]
    rules = [sums[0] == 0, amounts >= 0, sums[ends] - sums[np.maximum(ends - length, 0)] <= left[ends - 1] / share]
    rules += [amounts[closed] == 0] if len(closed) else []
    error = cp.sum(cp.multiply(weights / weights.max(), cp.power(amounts[steps], -power)))
    cp.Problem(cp.Minimize(error), rules).solve(solver=cp.CLARABEL)
    return np.asarray(share * amounts[steps].value, dtype=np.float64)


def allocate_online(
    past: ArrayLike,
    weights: ArrayLike,
    *,
    length: int,
    epsilon: float | Fraction,
    model: Any,
    power: float = 2.0,
    steps: int | None = None,
    scenarios: int = 1000,
) -> float:
    """Return the amount for the current step, given the weights so far and a model of later weights.

    Minimises w_i e^−a + (1/N) Σ_n Σ_(j>i) w_nj x_nj^−a within the limits of all windows. All N scenarios share the
    amount e of this step, and scenario n spends x_nj later. Whatever weights follow, no window exceeds its limit.
    Source: 2014, section 7.2 and Problem 2. The paper solves 1,000 programs per e, but this function only one.

    Parameters
    ----------
    past : (i − 1,) amounts of earlier steps. weights : (i,) weights up to the current step.
    length, epsilon, power : as in `allocate_offline`.
    model : probability that a weight is 1, for independent weights of 0 or 1; or a function of (weights, steps,
        scenarios, rng) that returns weights of shape (scenarios, steps).
    steps : total number of steps; None for an endless sequence.
    scenarios : number of possible futures to draw, each three windows long. They are public, like the weights.

    The amount is a whole number of billionths. It is 0 if the current weight is 0 or nothing is left.

    >>> allocate_online([0.5, 0.0], [1, 0, 1], length=3, epsilon=1.0, model=0.5, steps=3)
    0.5
    """
    known = check_weights(weights)
    limit, power = Rule.from_budget(epsilon, length=length).limit, float(check_positive(power=power))
    check_choice((len(known) - 1,), **{"number of amounts in past": np.size(past)})
    before = check_past(past, length, limit)
    left = limit - int(before.sum())
    if known[-1] == 0 or left <= 0:
        return 0.0
    horizon = 3 * length if steps is None else min(3 * length, steps - len(known) + 1)
    if horizon <= 1:
        return left / NANO
    limits = limits_ahead(before[None, :] / limit, length, horizon)
    drawn = draw_futures(model, known, horizon - 1, scenarios, np.random.default_rng(0))
    found = float(allocate_current_step(known[-1:], drawn.T[:, None, :], limits, length, power)[0])
    # Keep back a millionth of what is left, in case later weights match no scenario.
    return int(min(found * limit, (1 - 1e-6) * left)) / NANO


def limits_ahead(past: NDArray[Any], length: int, horizon: int, limit: float = 1.0) -> Array:
    """Return what `past` (R, m) leaves to each window that ends now or later, in shape (horizon, R)."""
    reach = np.zeros((horizon, len(past)))
    for step in range(min(horizon, length - 1)):
        reach[step] = past[:, max(0, past.shape[1] - length + 1 + step) :].sum(axis=1)
    return np.maximum(limit - reach, 0.0)


def allocate_current_step(now: Array, ahead: Array, limits: Array, length: int, power: float) -> Array:
    """Return the amounts (R,) of the current step in R independent problems of N scenarios, as fractions of the limit.

    Each window has a price λ. A step's amount is (a w / s)^(1/(a+1)), where s is the sum of the prices of the windows
    that contain it. If a window spends u of its limit b, each round multiplies its price by (u/b)^(0.8 (a+1)). Once
    prices stop changing, no window exceeds its limit and only full windows have a price. So the amounts are optimal.

    now : (R,) current weights, above zero. ahead : (H − 1, R, N) future weights.
    limits : (H, R) amounts that the window ending at each step can still spend, above zero and not decreasing.
    """
    root, scenarios = 1 / (power + 1), ahead.shape[2]
    scale = np.maximum(now, ahead.max(axis=(0, 2)))
    demand = (power * ahead / scale[:, None]) ** root
    demand_now = (power * scenarios * now / scale) ** root
    holds_now = (np.arange(1, len(limits)) < length)[:, None, None]
    limit, prices = limits[1:, :, None], np.ones(ahead.shape)
    found, before = limits[0].copy(), limits[0]
    for turn in range(1, 601):
        step_prices = window_sums(prices[::-1], length)[::-1]
        amounts = np.divide(demand, step_prices**root, out=np.zeros(ahead.shape), where=demand > 0)
        shared = (prices * holds_now).sum(axis=(0, 2))
        found = np.minimum(np.divide(demand_now, shared**root, out=limits[0].copy(), where=shared > 0), limits[0])
        spent = window_sums(amounts, length) + holds_now * found[:, None]
        prices = np.maximum(prices * (spent / limit) ** (0.8 / root), 1e-300)
        if turn % 20 == 0:
            if (abs(found - before) <= 1e-4 * found).all():
                break
            before = found
    return np.asarray(found)


def draw_futures(model: Any, weights: Array, steps: int, scenarios: int, rng: np.random.Generator) -> Array:
    """Draw future weights of shape (scenarios, steps) from a model."""
    if is_number(model):
        return np.asarray(rng.random((scenarios, steps)) < model, dtype=np.float64)
    return np.asarray(model(weights.copy(), steps, scenarios, rng), dtype=np.float64).reshape(scenarios, steps)


def check_weights(weights: ArrayLike, name: str = "weights") -> Array:
    """Return the n weights as an array of floats. Raises InputError unless all are finite and none is negative."""
    out = np.asarray(weights, dtype=np.float64).ravel()
    bad = np.flatnonzero(~np.isfinite(out) | (out < 0))
    if len(bad):
        raise InputError(f"{name} has {out[bad[0]]:g} at step {bad[0] + 1}: all must be finite and non-negative")
    return out


def check_past(past: ArrayLike, length: int, limit: int) -> Whole:
    """Return the last `length` − 1 past amounts in billionths. Raises InputError if a past window exceeds its limit."""
    # Before rounding up, subtract more than a float's rounding error.
    units = np.ceil(check_weights(past, "past") * NANO - 1e-6).astype(np.int64)
    spent = window_sums(units, length)
    if len(spent) and spent.max() > limit:
        at = int(np.argmax(spent > limit))
        where = f"in the window that ends at step {at + 1}"
        raise InputError(f"past spends {spent[at] / NANO:.9g} {where}: it must be at most {limit / NANO:g}")
    return units[max(0, len(units) - length + 1) :]


def window_sums(values: NDArray[Any], length: int) -> NDArray[Any]:
    """Return the sum of the window that ends at each step of the first axis. The first windows are shorter."""
    total = np.cumsum(values, axis=0)
    out = total.copy()
    out[length:] -= total[:-length]
    return out


def round_down(amounts: Array, past: Whole, length: int, limit: int) -> Whole:
    """Round n amounts down to whole billionths, so that no window exceeds its limit."""
    # The solver's rounding errors are below a hundredth of a unit. The loop removes any larger excess.
    units = np.floor(np.maximum(amounts, 0.0) * NANO + 0.01).astype(np.int64)
    while True:
        over = window_sums(np.concatenate([past, units]), length)[len(past) :] - limit
        at = int(np.argmax(over)) if len(over) else 0
        if not len(over) or over[at] <= 0:
            return units
        first = max(0, at + 1 - length)
        largest = first + int(np.argmax(units[first : at + 1]))
        units[largest] = max(0, int(units[largest]) - int(over[at]))
