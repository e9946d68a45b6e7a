"""Online allocation: weights become known one by one (2014, section 7.2), as one stochastic program per decision."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.allocation.problem import (
    Array,
    check_budget,
    check_past,
    check_weights,
    imbalance,
    least_cost,
    next_centre,
)
from deltahist.errors import NANO, InputError, is_number, positive, whole

#: Windows ahead that scenarios reach.
_AHEAD = 3
#: Relative gap at which a decision is converged; it moves the decision by about its square root.
_GAP = 1e-5
_ITERATIONS = 60
#: Scenarios of the first answer when time is limited; each further one takes four times as many.
_FIRST = 64


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

    >>> from deltahist.accounts.allocation import Independent
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
    return min(int(answer * limit), left) / NANO


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

    One primal-dual interior-point method for all (`_Scenarios`). Problems that have converged drop out.

    Parameters
    ----------
    now : (R,) present weights, above zero. ahead : (H − 1, R, N) future weights.
    limits : (H, R), above zero, of the windows that end at each step, past amounts taken off.
    """
    point = _Scenarios(now, ahead, limits, length, power)
    out = np.empty(len(now))
    left = np.arange(len(now))
    for _ in range(_ITERATIONS):
        converged = point.converged()
        out[left] = point.first
        if converged.all():
            break
        if converged.any():
            left = left[~converged]
            point.keep_problems(~converged)
        point.improve()
    return out


class _Scenarios:
    """A point of the method: amounts x of the steps, slacks z and prices λ of the windows, all (H, R, N).

    Each of the R problems is: minimise N w_0 e^−a + Σ_n Σ_(t>0) w_tn x_tn^−a over e and all x_tn, x_0n = e, so that in
    every scenario n the window that ends at step t holds no more than b_t: N times the mean error of the futures. The
    conditions and directions are those that `problem` derives, scenario by scenario, but for the amount e that all
    share: the equations of their first steps are added up into one,

        s_0 e^(a+1) = a N w_0,   s_0 = Σ_n s_0n.

    Newton's matrix of a scenario is banded: steps less than a window apart are coupled. It is eliminated from the last
    step down to the second, so that e comes last, with what every scenario leaves of its first equation added up.
    Steps go along the first axis: elimination is a loop over steps and band whose every operation runs over all
    problems and scenarios. Steps of weight 0 keep x = 0 and have no part in it.
    """

    def __init__(self, now: Array, ahead: Array, limits: Array, length: int, power: float) -> None:
        shape = (len(ahead) + 1, *ahead.shape[1:])
        self.length, self.power = min(length, shape[0]), power
        scale = np.maximum(now, ahead.max(axis=(0, 2)))
        self.w = np.concatenate([np.broadcast_to(now[:, None], shape[1:])[None], ahead]) / scale[:, None]
        self.on = self.w > 0
        self.limits = np.broadcast_to(limits[:, :, None], shape)
        # What each window would give if it were alone, in proportion to what its steps ask for; of these the least.
        demand = np.where(self.on, self.w ** (1 / (power + 1)), 0.0)
        asked = self._total(demand)
        x = demand * self._over_windows(np.minimum, self.limits / np.where(asked > 0, asked, 1.0))
        x[0] = x[0].min(axis=1, keepdims=True)
        self.x = 0.7 * x
        self.z = self.limits - self._total(self.x)
        # Prices that are rather too high: those fall fast.
        needed = np.where(self.on, power * self.w * self._safe() ** (-power - 1), 0.0)
        self.price = self._over_steps(np.maximum, needed)
        self.price[asked == 0] = 1e-6 * self.price.max()

    @property
    def first(self) -> Array:
        """Amount of the present step, in each problem (R,)."""
        return self.x[0, :, 0]

    def _safe(self) -> Array:
        """Return the amounts, with 1 where the weight is zero."""
        return np.where(self.on, self.x, 1.0)

    def _over_steps(self, combine: np.ufunc, values: Array) -> Array:
        """Combine values of the steps that each window holds: a window ends at its own step."""
        out = values.copy()
        for back in range(1, self.length):
            combine(out[back:], values[:-back], out=out[back:])
        return out

    def _over_windows(self, combine: np.ufunc, values: Array) -> Array:
        """Combine values of the windows that hold each step: these end there and later."""
        out = values.copy()
        for later in range(1, self.length):
            combine(out[:-later], values[later:], out=out[:-later])
        return out

    def _total(self, x: Array) -> Array:
        """Return C x."""
        return self._over_steps(np.add, x)

    def _spread(self, price: Array) -> Array:
        """Return Cᵀλ."""
        return self._over_windows(np.add, price)

    def converged(self) -> NDArray[np.bool_]:
        """Work out step prices and imbalances; return which problems (R,) are within the gap."""
        a, number = self.power, self.x.shape[2]
        safe, weights = self._safe(), np.where(self.on, self.w, 1.0)
        self.step_price = self._spread(self.price)
        self.off = np.where(self.on, imbalance(safe, self.step_price, weights, a), 0.0)
        now, self.shared_price = number * self.w[0, :, 0], self.step_price[0].sum(axis=1)
        self.shared_off = imbalance(self.first, self.shared_price, now, a)

        error = now * self.first**-a + self._ahead(weights * safe**-a)
        bound = least_cost(now, self.shared_price, a) + self._ahead(least_cost(weights, self.step_price, a))
        bound = bound - (self.limits * self.price).sum(axis=(0, 2))
        return np.asarray(error - bound < _GAP * error)

    def _ahead(self, values: Array) -> Array:
        """Sum values over the later steps with weight, of all scenarios (R,)."""
        return np.asarray(np.where(self.on, values, 0.0)[1:].sum(axis=(0, 2)))

    def keep_problems(self, problems: NDArray[np.bool_]) -> None:
        """Keep some problems only."""
        for name in ("w", "on", "limits", "x", "z", "price", "step_price", "off"):
            setattr(self, name, getattr(self, name)[:, problems])
        for name in ("shared_price", "shared_off"):
            setattr(self, name, getattr(self, name)[problems])

    def improve(self) -> None:
        """Take one step from the prices that `converged` has worked out."""
        self._eliminate(self._matrix())
        dx, dz, dl = self._direction(np.zeros((1, 1, 1)))
        now = (self.price * self.z).mean(axis=(0, 2))
        near, far = self._reaches(dx, dz, dl, 1.0)
        reached = ((self.price + far * dl) * (self.z + near * dz)).mean(axis=(0, 2))
        dx, dz, dl = self._direction(next_centre(now, reached)[:, None] - dz * dl)
        near, far = self._reaches(dx, dz, dl, 0.95)
        self.x, self.z, self.price = self.x + near * dx, self.z + near * dz, self.price + far * dl

    def _reaches(self, dx: Array, dz: Array, dl: Array, share: float) -> tuple[Array, Array]:
        """Return how far amounts and slacks, and prices, can go in each problem, (R, 1)."""

        def reach(value: Array, change: Array) -> Array:
            ratio = np.where(change < 0, value / np.where(change < 0, -change, 1.0), np.inf)
            return np.asarray(np.minimum(1.0, share * ratio.min(axis=(0, 2))))[:, None]

        return np.minimum(reach(self.z, dz), reach(self._safe(), dx)), reach(self.price, dl)

    def _matrix(self) -> Array:
        """Return the bands (length, H, R, N) of Newton's matrix Cᵀ diag(λ/z) C + diag((a + 1) s/x).

        Entry [d, t] is that of steps t and t − d: the stiffness of all windows that hold both. Those are the ones that
        hold t + 1 and t − d, which is entry [d + 1, t + 1], and the one that ends at t. What the shared amount adds to
        its own entry is left out.
        """
        self.stiffness = self.price / self.z
        bands = np.zeros((self.length, *self.x.shape))
        for d in range(self.length - 1, -1, -1):
            bands[d] = self.stiffness
            if d + 1 < self.length:
                bands[d, :-1] += bands[d + 1, 1:]
        curvature = (self.power + 1) * self.step_price / self._safe()
        curvature[0] = 0.0
        bands[0] += curvature
        for d in range(1, self.length):
            bands[d, d:] *= self.on[d:] & self.on[:-d]
        return bands

    def _eliminate(self, bands: Array) -> None:
        """Factor the matrix, whose bands are overwritten, from the last step down to the second.

        Step t with pivot p_t takes factor_dt = band_dt / p_t times its row from that of step t − d, for every d in the
        band. What is left are the pivots and, added up over the scenarios, the pivot of the shared amount.
        """
        self.pivot, self.factors = bands[0], np.zeros_like(bands)
        for t in range(len(self.x) - 1, 0, -1):
            reach = min(self.length - 1, t)
            factor = bands[1 : reach + 1, t] / bands[0, t]
            self.factors[1 : reach + 1, t] = factor
            for d in range(1, reach + 1):
                bands[0 : reach - d + 1, t - d] -= factor[d - 1] * bands[d : reach + 1, t]
        own = (self.power + 1) * self.shared_price / self.first
        self.shared_pivot = self.pivot[0].sum(axis=1) + own

    def _direction(self, target: Array) -> tuple[Array, Array, Array]:
        """Return the direction (dx, dz, dλ) towards λ z = target, with the factored matrix."""
        change = target / self.z - self.price
        side = -self._spread(change)
        side[1:] -= (self.step_price * self.off)[1:]
        side *= self.on
        dx = self._solve(side)
        dz = -self._total(dx)
        return dx, dz, change - self.stiffness * dz

    def _solve(self, side: Array) -> Array:
        """Solve for dx: down to the second step, the shared amount, and up again; `side` is overwritten."""
        steps = range(1, len(side))
        for t in reversed(steps):
            for d in range(1, min(self.length - 1, t) + 1):
                side[t - d] -= self.factors[d, t] * side[t]
        dx = np.empty_like(side)
        shared = side[0].sum(axis=1) - self.shared_price * self.shared_off
        dx[0] = (shared / self.shared_pivot)[:, None]
        for t in steps:
            dx[t] = side[t] / self.pivot[t]
            for d in range(1, min(self.length - 1, t) + 1):
                dx[t] -= self.factors[d, t] * dx[t - d]
        return dx


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
