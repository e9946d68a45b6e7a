"""Compute the best online policy for weights that are independent coin tosses, by dynamic programming."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: A finite stand-in for the infinite error of publishing with no budget left.
_NOTHING_LEFT = 1e9


def best_policy(chance: float, steps: int, window: int, parts: int, *, bound: bool = False) -> NDArray[np.float64]:
    """Return the least expected total error Σ ε_i^−2 (steps,) of 1, 2, ..., `steps` steps, if a window may spend 1.

    Amounts are multiples u/m of the limit, with m = `parts`. Nothing else is discretised. Only the last δ − 1 amounts
    matter; they are the state v (`_States`). Let V_n(v) be the least expected error of n more steps, V_0 = 0, and
    let v ← u be the state after spending u. Then

        V_n(v) = p · min over u of ((m/u)² + V_(n−1)(v ← u)) + (1 − p) · V_(n−1)(v ← 0),

    where u runs over 1, 2, ... up to what is left of the window's limit. A step of weight 0 spends nothing. The answer
    is V_n of the state in which nothing was spent.

    The best policy that spends multiples of 1/m gives an upper bound on the least error. `bound` asks for a lower bound
    over all policies instead. It charges an amount x as u = ⌊m x⌋ parts, 0 included, so every window limit that a
    policy respects is still respected. It computes the error with one part more: x < (u + 1)/m, so x^−2 > (m/(u + 1))².
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
    """The last `kept` amounts u_1 (the latest), u_2, ... in units of limit/m, m = `parts`, together at most m.

    A state is stored as the sums v_k = u_1 + ... + u_k, with 0 ≤ v_1 ≤ v_2 ≤ ... ≤ m. The combinatorial number system
    numbers such sequences Σ_k C(v_k + k − 1, k), starting at 0 if nothing is spent.
    """

    kept: int
    parts: int

    @functools.cached_property
    def sums(self) -> NDArray[np.int16]:
        """Return v of every state (states, kept), in the order of their numbers."""
        out = np.zeros((1, 0), dtype=np.int16)
        for _ in range(self.kept):
            # Extend each sequence by every value from its last one up to m.
            last = out[:, -1] if out.shape[1] else np.zeros(len(out), dtype=np.int16)
            more = self.parts + 1 - last
            start = np.repeat(last, more)
            turn = np.arange(len(start)) - np.repeat(np.cumsum(more) - more, more)
            out = np.column_stack([np.repeat(out, more, axis=0), (start + turn).astype(np.int16)])
        return out[np.argsort(self._numbers(out))]

    @property
    def number(self) -> int:
        """Return the number of states."""
        return len(self.sums)

    @property
    def left(self) -> NDArray[np.int16]:
        """Return the rest of the limit for the next amount in each state (states,)."""
        return self.parts - self.sums[:, -1]

    def after(self, states: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
        """Return the numbers of the states after an amount is spent; the oldest amount is forgotten."""
        sums = self.sums[states]
        shifted = np.column_stack([np.zeros(len(sums), np.int16), sums[:, :-1]])
        return self._numbers(shifted + np.int16(amount))

    def _numbers(self, sums: NDArray[np.int16]) -> NDArray[np.int64]:
        out = np.zeros(len(sums), dtype=np.int64)
        for k in range(1, self.kept + 1):
            ways = np.array([math.comb(v + k - 1, k) for v in range(self.parts + 1)])
            out += ways[sums[:, k - 1]]
        return out
