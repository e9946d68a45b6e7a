"""The best that any online policy can do when weights are independent coin tosses, by dynamic programming."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def best_policy(
    chance: float, steps: int, window: int, parts: int, *, bound: bool = False
) -> NDArray[np.float64]:
    """Least expected total error Σ ε_i^−2 (steps,) for 1, 2, ..., `steps` steps, limit 1 per window.

    A state is the last window − 1 amounts, in whole parts of the limit, kept as their sums from the latest one back:
    such rising sequences have a number in the combinatorial number system. With weight 0 nothing is spent.

    Whole parts are what some policy spends: the best of them is an upper bound of the least error. With `bound` it is a
    lower bound that holds for every policy: an amount is charged as its whole parts, rounded down, which keeps every
    window that the policy keeps, and counts for the error as one part more than that.
    """
    kept = window - 1
    choose = np.array([[math.comb(v + k - 1, k) for v in range(parts + 1)] for k in range(1, kept + 1)])
    states = np.zeros((1, 0), dtype=np.int16)
    for _ in range(kept):
        last = states[:, -1] if states.shape[1] else np.zeros(len(states), dtype=np.int16)
        more = parts + 1 - last
        start = np.repeat(last, more)
        turn = np.arange(len(start)) - np.repeat(np.cumsum(more) - more, more)
        states = np.column_stack([np.repeat(states, more, axis=0), (start + turn).astype(np.int16)])

    def number(sums: NDArray[np.int16]) -> NDArray[np.int64]:
        return sum((choose[k][sums[:, k]] for k in range(kept)), np.zeros(len(sums), dtype=np.int64))

    order = np.argsort(number(states))
    states = states[order]
    room = parts - states[:, -1]
    # Where each amount leads: it comes first, the oldest one is forgotten.
    shifted = np.column_stack([np.zeros(len(states), np.int16), states[:, :-1]])
    idle = number(shifted)
    amounts = range(0 if bound else 1, parts + 1)
    able = [np.flatnonzero(room >= u) for u in amounts]
    moves = [number(shifted[rows] + np.int16(u)) for u, rows in zip(amounts, able, strict=True)]
    value, out = np.zeros(len(states)), []
    for _ in range(steps):
        best = np.full(len(states), 1e9)
        for u, rows, to in zip(amounts, able, moves, strict=True):
            best[rows] = np.minimum(best[rows], (parts / (u + bound)) ** 2 + value[to])
        value = chance * best + (1 - chance) * value[idle]
        out.append(float(value[0]))
    return np.array(out)
