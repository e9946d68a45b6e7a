"""Allocating a budget over time: what to spend at each step under a limit on every window of δ steps.

Six days, of which three have queries; any three days in a row may spend 1. Known beforehand, the first day gets
all of it, since nothing is asked for in the two days after it:

>>> allocate_offline([1, 0, 0, 1, 1, 0], length=3, epsilon=1.0).tolist()
[1.0, 0.0, 0.0, 0.5, 0.5, 0.0]

Online, the days to come are only a model. On the third of three days, half having been spent on the first, the rest
is given whatever may come:

>>> allocate_online([0.5, 0.0], [1, 0, 1], length=3, epsilon=1.0, model=Independent((0, 1), (0.5, 0.5)), steps=3)
0.5
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deltahist.accounts.solver import Array, Constraints, Point, Shared, Whole, interior_point
from deltahist.budget import floor_nano
from deltahist.errors import NANO, DeltaHistWarning, InputError, is_number, positive, whole

__all__ = ["Independent", "Markov", "allocate_offline", "allocate_online"]

#: Relative gap between the error and its lower bound that an offline allocation must reach.
_NEEDED = 1e-7
#: Windows ahead that scenarios reach.
_AHEAD = 3
#: Relative gap at which a decision is converged; it moves the decision by about its square root.
_GAP = 1e-7
_ITERATIONS = 60
#: Share of what is left that stays for weights that no scenario foresaw.
_RESERVE = 1e-6
#: Scenarios of the first answer when time is limited; each further one takes four times as many.
_FIRST = 64


# ---------------------------------------------------------------------------------- offline


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
    The method is derived in `solver` and measured in docs/allocation.md.

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


def _open_steps(weights: Array, past: Whole, length: int, limit: int) -> Whole:
    """Return the steps with weight (m,) for which the past, at most length − 1 amounts, has left something.

    The window that holds the last k amounts of the past holds the first length − k steps. Where less than a billionth
    for each step is left of it, these steps get nothing, whatever the rest do.
    """
    back = np.arange(len(past), 0, -1)
    left = limit - np.cumsum(past[::-1])[::-1]  # of the window that holds the last `back` amounts
    closed = (length - back)[left < length]
    steps = np.flatnonzero(weights > 0)
    return steps[steps >= closed.max(initial=0)]


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


# ---------------------------------------------------------------------------------- online


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
    seconds: float | None = None,
    rng: np.random.Generator | None = None,
) -> float:
    """Allocate the present step's amount, when weights up to now are known and a model draws later ones.

    The amount e minimises w_i e^−a plus the mean over scenarios of the least error of their future:

        minimise w_i e^−a + (1/N) Σ_n Σ_(j>i) w_nj x_nj^−a   over e and all x_nj,

    one convex program in which all N scenarios share e and have allocations x_n of their own, each within the windows.
    It may be any amount that the windows leave, so that whatever weights follow, and whenever this stops, no window
    exceeds its limit. Nothing is discretised: the error left is that of the scenarios' number and reach (3 windows).
    Source: 2014, section 7.2 and Problem 2, with one program in place of 100 candidates times 1,000 solutions.

    Parameters
    ----------
    past : (i − 1,) amounts committed so far. weights : (i,) weights up to the present step.
    length, epsilon, power : as in `allocate_offline`.
    model : `Independent`, `Markov`, an object with sample(weights, steps, scenarios, rng) -> (scenarios, steps),
        or such a function; or the probability of weight 1, where weights are 0 or 1 independently.
    steps : number of steps there will be altogether; endless when None.
    scenarios : futures that are drawn.
    seconds : stop after about so long, with the answer of as many scenarios as were reached; at least 64.
    rng : for the scenarios. Weights are public, and so is this randomness; a fixed seed when None.

    Returns
    -------
    The amount, whole billionths; 0 if the present weight is 0 or nothing is left.

    Raises
    ------
    InputError
        On weights that are negative or NaN, a past of another length or that breaks a window, or a model that
        draws something else than weights.

    >>> allocate_online([0.5, 0.0], [1, 0, 1], length=3, epsilon=1.0, model=Independent(), steps=3)
    0.5
    """
    known = check_weights(weights)
    length, limit = check_budget(length, epsilon, power)
    scenarios = whole(scenarios=scenarios)
    if seconds is not None:
        positive(seconds=seconds)
    if not len(known) or np.size(past) != len(known) - 1:
        raise InputError(
            f"past has {np.size(past):,} amounts and weights {len(known):,}: there must be one weight more, "
            "the present step's"
        )
    if steps is not None and whole(steps=steps) < len(known):
        raise InputError(f"steps is {steps:,}: there are {len(known):,} weights already")
    before = check_past(past, length, limit)
    left = limit - int(before.sum())
    if known[-1] == 0 or left <= 0:
        return 0.0
    horizon = _AHEAD * length if steps is None else min(_AHEAD * length, steps - len(known) + 1)
    if horizon == 1:
        return left / NANO
    limits = limits_ahead(before[None, :] / limit, length, horizon)
    rng = np.random.default_rng(0) if rng is None else rng
    started, number, answer = time.monotonic(), scenarios if seconds is None else min(_FIRST, scenarios), 0.0
    while True:
        drawn = draw_futures(model, known, horizon - 1, number, rng)
        found = decide(known[-1:], drawn.T[:, None, :], limits, length, power)
        answer = float(found[0])
        spent = time.monotonic() - started
        # The next answer would take four times as long as this one.
        if number >= scenarios or seconds is None or 5 * spent > seconds:
            break
        number = min(4 * number, scenarios)
    return int(min(answer * limit, (1 - _RESERVE) * left)) / NANO


def limits_ahead(past: Array, length: int, horizon: int) -> Array:
    """Return what the past leaves (horizon, R) of the windows that end at the present step and after it.

    Parameters
    ----------
    past : (R, m) last amounts, latest last, in units of the limit; m up to length − 1.
    """
    reach = np.zeros((horizon, len(past)))
    for step in range(min(horizon, length - 1)):
        back = length - 1 - step
        reach[step] = past[:, max(0, past.shape[1] - back) :].sum(axis=1)
    return np.maximum(1.0 - reach, 0.0)


def decide(now: Array, ahead: Array, limits: Array, length: int, power: float) -> Array:
    """Return amounts (R,) for the present step of R independent problems of N scenarios, in units of the limit.

    One problem for the solver: the steps of all scenarios, from the last to the first, follow each other. A window
    begins at each step with weight; those that end where fewer have passed than a window holds also hold the present
    amount, which the scenarios of a problem share.

    Parameters
    ----------
    now : (R,) present weights, above zero. ahead : (H − 1, R, N) future weights.
    limits : (H, R), above zero, not falling, of the windows that end at each step, past amounts taken off.
    """
    steps, problems, scenarios = ahead.shape
    scale = np.maximum(now, ahead.max(axis=(0, 2)))
    weights = ahead[::-1].transpose(1, 2, 0) / scale[:, None, None]
    before = np.concatenate([np.zeros((problems, scenarios, 1), np.int64), np.cumsum(weights > 0, axis=2)], axis=2)
    whose, _, place = np.nonzero(weights)
    # Steps with weight in the window that ends at each of them, in time.
    held = before[:, :, np.minimum(np.arange(steps) + length, steps)] - before[:, :, :-1]
    first = np.arange(len(place))
    ends = steps - place
    windows = np.flatnonzero(ends < length)
    shared_by = np.bincount(whose[windows], minlength=problems) > 0
    out = limits[0].copy()
    if not shared_by.any():
        return out
    owner = np.cumsum(shared_by) - 1
    shared = Shared((scenarios * now / scale)[shared_by], windows, owner[whose[windows]], np.maximum(owner, 0)[whose])
    constraints = Constraints(first, first + held[weights > 0] - 1, limits[ends, whose])
    point = Point(weights[weights > 0], constraints, power, shared)
    for _ in range(_ITERATIONS):
        if point.gap() < _GAP or not point.improve():
            break
    # The error is convex in the present amount: where its own window gives less than the best, all of that is.
    out[shared_by] = np.minimum(point.e, out[shared_by])
    return out


# ---------------------------------------------------------------------------------- models of weights


@dataclass(frozen=True)
class Independent:
    """Independent weights.

    Parameters
    ----------
    values : the possible weights. probabilities : of each; they add up to 1.

    >>> model = Independent((0, 1), (0.25, 0.75))
    >>> model.sample(np.ones(3), 5, 2, np.random.default_rng(0)).shape
    (2, 5)
    """

    values: tuple[float, ...] = (0.0, 1.0)
    probabilities: tuple[float, ...] = (0.5, 0.5)

    def __post_init__(self) -> None:
        check_weights(self.values, "values")
        _check_probabilities(np.asarray(self.probabilities, dtype=np.float64), len(self.values), "probabilities")

    def sample(self, weights: Array, steps: int, scenarios: int, rng: np.random.Generator) -> Array:
        """Draw independent weights (scenarios, steps)."""
        return rng.choice(
            np.asarray(self.values, np.float64), (scenarios, steps), p=_normalise(self.probabilities)
        )


@dataclass(frozen=True)
class Markov:
    """A Markov chain of weights.

    Parameters
    ----------
    values : (k,) different values. transitions : (k, k), row i the probabilities of what follows values[i].

    >>> model = Markov((0, 1), ((0.9, 0.1), (0.5, 0.5)))
    >>> model.sample(np.array([1.0]), 4, 3, np.random.default_rng(0)).shape
    (3, 4)
    """

    values: tuple[float, ...]
    transitions: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        values = check_weights(self.values, "values")
        if len(np.unique(values)) < len(values) or not len(values):
            raise InputError(f"values are {self.values}: they must be different, at least one")
        if len(self.transitions) != len(values):
            raise InputError(
                f"transitions have {len(self.transitions)} rows: one for each of {len(values)} values"
            )
        for row in self.transitions:
            _check_probabilities(np.asarray(row, dtype=np.float64), len(values), "a row of transitions")

    def sample(self, weights: Array, steps: int, scenarios: int, rng: np.random.Generator) -> Array:
        """Draw chains (scenarios, steps) that continue from the last weight.

        Raises InputError if the last weight is none of the values.
        """
        values = np.asarray(self.values, dtype=np.float64)
        at = np.flatnonzero(values == weights[-1])
        if not len(at):
            raise InputError(f"weight {weights[-1]:g} is none of the model's values, {self.values}")
        upto = np.cumsum([_normalise(row) for row in self.transitions], axis=1)
        state = np.full(scenarios, at[0])
        out = np.empty((scenarios, steps))
        for step in range(steps):
            state = np.minimum((rng.random(scenarios)[:, None] >= upto[state]).sum(axis=1), len(values) - 1)
            out[:, step] = values[state]
        return out


def draw_futures(
    model: Any, weights: Array, steps: int, scenarios: int, rng: np.random.Generator
) -> Array:
    """Return checked future weights (scenarios, steps) that a model draws.

    A number is the probability of weight 1, independently at each step; else the weight is 0.

    Raises InputError if it is neither a model nor a function, or draws something else than weights.
    """
    if is_number(model):
        model = Independent((0.0, 1.0), (1 - float(model), float(model)))  # type: ignore[arg-type]
    draw = getattr(model, "sample", model)
    if not callable(draw):
        raise InputError(
            f"model is {model!r}: it must be Independent, Markov, an object with sample(weights, steps, "
            "scenarios, rng), or such a function"
        )
    drawn = np.asarray(draw(weights.copy(), steps, scenarios, rng), dtype=np.float64)
    if drawn.shape != (scenarios, steps):
        raise InputError(
            f"model draws shape {drawn.shape}: it must be (scenarios, steps) = {(scenarios, steps)}"
        )
    check_weights(drawn.ravel(), "weights that the model draws")
    return drawn


def _check_probabilities(probabilities: Array, number: int, name: str) -> None:
    if probabilities.shape != (number,) or not (probabilities >= 0).all() or abs(float(probabilities.sum()) - 1) > 1e-9:
        raise InputError(
            f"{name} are {probabilities.tolist()}: they must be {number} numbers from 0 that add up to 1"
        )


def _normalise(probabilities: tuple[float, ...]) -> Array:
    array = np.asarray(probabilities, dtype=np.float64)
    return np.asarray(array / array.sum())


# ---------------------------------------------------------------------------------- what is given


def check_weights(weights: ArrayLike, name: str = "weights") -> Array:
    """Return weights (n,) as floats; InputError unless all are finite and none is negative."""
    array = np.asarray(weights)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biuf"):
        raise InputError(f"{name} have shape {array.shape} and type {array.dtype}: they must be (n,) numbers")
    out = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(out) | (out < 0))
    if len(bad):
        raise InputError(
            f"{name} are {out[bad[0]]:g} at step {bad[0] + 1}: they must be finite and not negative (0: no publishing)"
        )
    return out


def check_budget(length: Any, epsilon: Any, power: float) -> tuple[int, int]:
    """Return the length of a window in steps and its limit in billionths."""
    length = whole(length=length)
    positive(epsilon=epsilon)
    positive(power=power)
    limit = floor_nano(epsilon=epsilon)
    if limit < length:
        raise InputError(
            f"epsilon is {epsilon!r}: it must be at least a billionth for each of {length:,} steps"
        )
    return length, limit


def check_past(past: ArrayLike, length: int, limit: int) -> Whole:
    """Return the last length − 1 committed amounts in billionths; InputError if they exceed a window's limit."""
    array = np.asarray(past, dtype=np.float64)
    if array.ndim != 1:
        raise InputError(f"past has shape {array.shape}: it must be (m,) amounts that were committed")
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if len(bad):
        raise InputError(
            f"past is {array[bad[0]]:g} at step {bad[0] + 1}: amounts are finite and not negative"
        )
    # A hair of binary rounding is forgiven before rounding up.
    units = np.ceil(array * NANO - 1e-6).astype(np.int64)
    spent = window_sums(units, length)
    if len(spent) and spent.max() > limit:
        at = int(np.argmax(spent > limit))
        raise InputError(
            f"past spends {spent[at] / NANO:.9g} in the window that ends at step {at + 1}: more than its limit, "
            f"{limit / NANO:.9g}"
        )
    return units[max(0, len(units) - (length - 1)) :] if length > 1 else units[:0]


def window_sums(units: Whole, length: int) -> Whole:
    """Return the sum of the window that ends at each step; the first windows are shorter."""
    total = np.concatenate([[0], np.cumsum(units)])
    start = np.maximum(np.arange(1, len(total)) - length, 0)
    return np.asarray(total[1:] - total[start], dtype=np.int64)


def round_down(amounts: Array, past: Whole, length: int, limit: int) -> Whole:
    """Round amounts down to billionths (n,), so that no window exceeds its limit; checked in whole numbers."""
    # A hundredth of a unit is the solver's rounding; where it was none, what is too much is taken away again.
    units = np.floor(np.maximum(amounts, 0.0) * NANO + 0.01).astype(np.int64)
    while True:
        over = window_sums(np.concatenate([past, units]), length)[len(past) :] - limit
        at = int(np.argmax(over)) if len(over) else 0
        if not len(over) or over[at] <= 0:
            return units
        first = max(0, at + 1 - length)
        largest = first + int(np.argmax(units[first : at + 1]))
        units[largest] = max(0, int(units[largest]) - int(over[at]))
