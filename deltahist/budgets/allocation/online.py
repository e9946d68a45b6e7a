"""Online allocation: weights become known one by one (2014, section 7.2), as one stochastic program per decision."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budgets.allocation.models import Model, Sampler, futures
from deltahist.budgets.allocation.windows import check_budget, check_past, check_weights
from deltahist.budgets.nano import NANO
from deltahist.errors import InputError, positive, whole

Array = NDArray[np.float64]
#: Windows ahead that scenarios reach.
_AHEAD = 3
#: Relative gap at which a decision is settled; it moves the decision by about its square root.
_GAP = 1e-5
_ITERATIONS = 60
#: Scenarios of the first answer when time is limited; each further one takes four times as many.
_FIRST = 64


def allocate_online(
    past: ArrayLike,
    weights: ArrayLike,
    *,
    window: int,
    epsilon: float | Fraction,
    model: Model | Sampler | float,
    power: float = 2.0,
    steps: int | None = None,
    scenarios: int = 1000,
    seconds: float | None = None,
    rng: np.random.Generator | None = None,
) -> float:
    """What to spend now, when the weights up to now are known and a model says what may come.

    The amount e minimises w_i e^−a plus the mean over scenarios of the least error of their future: one convex
    program in which all scenarios share e and have allocations of their own. It may be any amount that the
    windows leave, so that whatever weights follow, and whenever this stops, no window exceeds its limit.
    Source: 2014, section 7.2 and Problem 2, with one program in place of 100 candidates times 1,000 solutions.

    Parameters
    ----------
    past : (i − 1,) amounts committed so far. weights : (i,) weights up to the present step.
    window, epsilon, power : as in `allocate_offline`.
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

    >>> from deltahist.budgets.allocation import Independent
    >>> allocate_online([0.5, 0.0], [1, 0, 1], window=3, epsilon=1.0, model=Independent(), steps=3)
    0.5
    """
    known = check_weights(weights)
    length, limit = check_budget(window, epsilon, power)
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
        drawn = futures(model, known, horizon - 1, number, rng)
        found = decide(known[-1:], drawn.T[:, None, :], limits, length, power)
        answer = float(found[0])
        spent = time.monotonic() - started
        # The next answer would take four times as long as this one.
        if number >= scenarios or seconds is None or 5 * spent > seconds:
            break
        number = min(4 * number, scenarios)
    return min(int(answer * limit), left) / NANO


def limits_ahead(past: Array, length: int, horizon: int) -> Array:
    """What the past leaves (horizon, R) of the windows that end at the present step and after it.

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
    """Amounts (R,) for the present step of R independent problems, each with N scenarios, in units of the limit.

    One primal-dual interior-point method for all: arrays are (steps, R, N), so that the banded elimination is a
    loop over steps and band whose every operation runs over all problems and scenarios. The first amount, e, is
    shared by the scenarios of a problem and eliminated last, when what each scenario leaves of its equation is
    added up. Problems that have converged drop out.

    Parameters
    ----------
    now : (R,) present weights, above zero. ahead : (H − 1, R, N) future weights.
    limits : (H, R), above zero, of the windows that end at each step, past amounts taken off.
    """
    batch = _Batch(now, ahead, limits, length, power)
    out = np.empty(len(now))
    left = np.arange(len(now))
    for _ in range(_ITERATIONS):
        settled = batch.prices()
        out[left] = batch.x[0, :, 0]
        if settled.all():
            break
        if settled.any():
            left = left[~settled]
            batch.keep(~settled)
        batch.improve()
    return out


class _Batch:
    """State of the interior-point method: amounts x, slacks z of windows and their prices."""

    def __init__(self, now: Array, ahead: Array, limits: Array, length: int, power: float) -> None:
        shape = (len(ahead) + 1, *ahead.shape[1:])
        self.length, self.power = min(length, shape[0]), power
        scale = np.maximum(now, ahead.max(axis=(0, 2)))
        self.w = np.concatenate([np.broadcast_to(now[:, None], shape[1:])[None], ahead]) / scale[:, None]
        self.on = self.w > 0
        self.limits = np.broadcast_to(limits[:, :, None], shape)
        # What each window would give if it were alone, in proportion to what its steps ask for.
        demand = np.where(self.on, self.w ** (1 / (power + 1)), 0.0)
        asked = self._total(demand)
        share = self.limits / np.where(asked > 0, asked, 1.0)
        x = share.copy()
        for later in range(1, self.length):
            x[:-later] = np.minimum(x[:-later], share[later:])
        x *= demand
        x[0] = x[0].min(axis=1, keepdims=True)
        self.x = 0.7 * x
        self.z = self.limits - self._total(self.x)
        # Prices that are rather too high: those fall fast.
        needed = np.where(self.on, power * self.w * self._safe() ** (-power - 1), 0.0)
        self.price = needed.copy()
        for back in range(1, self.length):
            self.price[back:] = np.maximum(self.price[back:], needed[:-back])
        self.price[asked == 0] = 1e-6 * self.price.max()

    def _safe(self) -> Array:
        """Amounts, with one where the weight is zero."""
        return np.where(self.on, self.x, 1.0)

    def _total(self, x: Array) -> Array:
        """Sum of the window that ends at each step."""
        out = x.copy()
        for back in range(1, self.length):
            out[back:] += x[:-back]
        return out

    def _spread(self, price: Array) -> Array:
        """Sum over the windows that hold each step."""
        out = price.copy()
        for later in range(1, self.length):
            out[:-later] += price[later:]
        return out

    def prices(self) -> NDArray[np.bool_]:
        """Work out every step's price and how far its condition is off; which problems are settled."""
        a, safe, number = self.power, self._safe(), self.x.shape[2]
        weights = np.where(self.on, self.w, 1.0)
        self.s = self._spread(self.price)
        self.off = np.where(self.on, (a + 1) * np.log(safe) + np.log(self.s) - np.log(a * weights), 0.0)
        self.now, self.shared = number * self.w[0, :, 0], self.s[0].sum(axis=1)
        self.first = self.x[0, :, 0]
        self.off_now = (a + 1) * np.log(self.first) + np.log(self.shared) - np.log(a * self.now)
        factor = a ** (1 / (a + 1)) + a ** (-a / (a + 1))

        def least(w: Array, s: Array) -> Array:
            return np.asarray(factor * w ** (1 / (a + 1)) * s ** (a / (a + 1)))

        value = self.now * self.first**-a + np.where(self.on, weights * safe**-a, 0.0)[1:].sum(axis=(0, 2))
        bound = least(self.now, self.shared) + np.where(self.on, least(weights, self.s), 0.0)[1:].sum(
            axis=(0, 2)
        )
        bound = bound - (self.limits * self.price).sum(axis=(0, 2))
        return np.asarray(value - bound < _GAP * value)

    def keep(self, problems: NDArray[np.bool_]) -> None:
        """Go on with some problems only."""
        for name in ("w", "on", "limits", "x", "z", "price", "s", "off"):
            setattr(self, name, getattr(self, name)[:, problems])
        for name in ("now", "shared", "first", "off_now"):
            setattr(self, name, getattr(self, name)[problems])

    def improve(self) -> None:
        """One predictor and corrector step."""
        self._eliminate()
        dx, dz, dl = self._direction(np.zeros((1, 1, 1)))
        centre = (self.price * self.z).mean(axis=(0, 2))
        near, far = self._rooms(dx, dz, dl, 1.0)
        after = ((self.price + far * dl) * (self.z + near * dz)).mean(axis=(0, 2))
        dx, dz, dl = self._direction(((after / centre) ** 3 * centre)[:, None] - dz * dl)
        near, far = self._rooms(dx, dz, dl, 0.95)
        self.x, self.z, self.price = self.x + near * dx, self.z + near * dz, self.price + far * dl

    def _rooms(self, dx: Array, dz: Array, dl: Array, share: float) -> tuple[Array, Array]:
        """How far amounts and slacks, and prices, can go, per problem, (R, 1)."""

        def room(value: Array, change: Array) -> Array:
            ratio = np.where(change < 0, value / np.where(change < 0, -change, 1.0), np.inf)
            return np.asarray(np.minimum(1.0, share * ratio.min(axis=(0, 2))))[:, None]

        return np.minimum(room(self.z, dz), room(self._safe(), dx)), room(self.price, dl)

    def _eliminate(self) -> None:
        """Factor Newton's matrix from the last step down to the second.

        rows[d][t] is the entry of steps t and t − d: the windows that hold both are those that hold t + 1 and t − d,
        and the one that ends at t. Steps without weight have no part in it.
        """
        depth, n = self.length, len(self.x)
        self.pull = self.price / self.z
        rows = np.zeros((depth, *self.x.shape))
        for d in range(depth - 1, -1, -1):
            rows[d] = self.pull
            if d + 1 < depth:
                rows[d, :-1] += rows[d + 1, 1:]
        curve = (self.power + 1) * self.s / self._safe()
        curve[0] = 0.0
        rows[0] += curve
        for d in range(1, depth):
            rows[d, d:] *= self.on[d:] & self.on[:-d]
        self.pivot, self.factors = rows[0], np.zeros_like(rows)
        for t in range(n - 1, 0, -1):
            reach = min(depth - 1, t)
            factor = rows[1 : reach + 1, t] / rows[0, t]
            self.factors[1 : reach + 1, t] = factor
            for k in range(1, reach + 1):
                rows[0 : reach - k + 1, t - k] -= factor[k - 1] * rows[k : reach + 1, t]
        self.shared_pivot = rows[0, 0].sum(axis=1) + (self.power + 1) * self.shared / self.first

    def _direction(self, target: Array) -> tuple[Array, Array, Array]:
        """Newton's direction towards price · slack = target."""
        n = len(self.x)
        change = target / self.z - self.price
        side = -self._spread(change)
        side[1:] -= (self.s * self.off)[1:]
        side *= self.on
        for t in range(n - 1, 0, -1):
            for k in range(1, min(self.length - 1, t) + 1):
                side[t - k] -= self.factors[k, t] * side[t]
        dx = np.empty_like(side)
        dx[0] = ((side[0].sum(axis=1) - self.shared * self.off_now) / self.shared_pivot)[:, None]
        for t in range(1, n):
            dx[t] = side[t] / self.pivot[t]
            for k in range(1, min(self.length - 1, t) + 1):
                dx[t] -= self.factors[k, t] * dx[t - k]
        dz = -self._total(dx)
        return dx, dz, change - self.pull * dz
