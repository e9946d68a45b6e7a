"""The best that any online policy can do when weights are independent coin tosses, by dynamic programming."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Error of publishing where nothing is left to spend, in place of an infinite one.
_NOTHING_LEFT = 1e9


def best_policy(chance: float, steps: int, window: int, parts: int, *, bound: bool = False) -> NDArray[np.float64]:
    """Least expected total error Σ ε_i^−2 (steps,) for 1, 2, ..., `steps` steps, limit 1 per window.

    Amounts are whole parts of the limit, u/m with m = `parts`; that is all that is discretised. What has been spent
    matters by the last δ − 1 amounts alone, the state v (`_States`). With V_n(v) the least expected error of n more
    steps, V_0 = 0, and v ← u the state after spending u,

        V_n(v) = p · min over u of ((m/u)² + V_(n−1)(v ← u)) + (1 − p) · V_(n−1)(v ← 0),

    where u runs over 1, 2, ... up to what the window has left. With weight 0 nothing is spent. The answer is V_n of
    the state in which nothing was spent.

    Whole parts are what some policy spends: the best of them is an upper bound of the least error. With `bound` it is a
    lower bound that holds for every policy. An amount x is charged as u = ⌊m x⌋ parts, u = 0 among them, which keeps
    every window that the policy keeps, and counts for the error as one part more: x < (u + 1)/m, so that
    x^−2 > (m/(u + 1))².
    """
    states = _States(window - 1, parts)
    idle = states.after(np.arange(states.number), 0)
    amounts = range(0 if bound else 1, parts + 1)
    able = [np.flatnonzero(states.left >= u) for u in amounts]
    leads_to = [states.after(place, u) for u, place in zip(amounts, able, strict=True)]
    value, out = np.zeros(states.number), []
    for _ in range(steps):
        best = np.full(states.number, _NOTHING_LEFT)
        for u, place, then in zip(amounts, able, leads_to, strict=True):
            best[place] = np.minimum(best[place], (parts / (u + bound)) ** 2 + value[then])
        value = chance * best + (1 - chance) * value[idle]
        out.append(float(value[0]))
    return np.array(out)


@dataclass(frozen=True)
class _States:
    """The last `kept` amounts u_1 (the latest), u_2, ... in whole parts of the limit, m = `parts` at most together.

    A state is kept as the sums v_k = u_1 + ... + u_k, 0 ≤ v_1 ≤ v_2 ≤ ... ≤ m. Such rising sequences are numbered by
    the combinatorial number system, from 0 for nothing spent: Σ_k C(v_k + k − 1, k).
    """

    kept: int
    parts: int

    @functools.cached_property
    def sums(self) -> NDArray[np.int16]:
        """v of every state (states, kept), in the order of their numbers."""
        out = np.zeros((1, 0), dtype=np.int16)
        for _ in range(self.kept):
            # Each sequence goes on with every value from its last one up to m.
            last = out[:, -1] if out.shape[1] else np.zeros(len(out), dtype=np.int16)
            more = self.parts + 1 - last
            start = np.repeat(last, more)
            turn = np.arange(len(start)) - np.repeat(np.cumsum(more) - more, more)
            out = np.column_stack([np.repeat(out, more, axis=0), (start + turn).astype(np.int16)])
        return out[np.argsort(self._numbers(out))]

    @property
    def number(self) -> int:
        """How many states there are."""
        return len(self.sums)

    @property
    def left(self) -> NDArray[np.int16]:
        """What each state leaves for the next amount (states,)."""
        return self.parts - self.sums[:, -1]

    def after(self, states: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
        """Numbers of the states that some states become by an amount: it comes first, the oldest one is forgotten."""
        sums = self.sums[states]
        shifted = np.column_stack([np.zeros(len(sums), np.int16), sums[:, :-1]])
        return self._numbers(shifted + np.int16(amount))

    def _numbers(self, sums: NDArray[np.int16]) -> NDArray[np.int64]:
        out = np.zeros(len(sums), dtype=np.int64)
        for k in range(1, self.kept + 1):
            ways = np.array([math.comb(v + k - 1, k) for v in range(self.parts + 1)])
            out += ways[sums[:, k - 1]]
        return out
