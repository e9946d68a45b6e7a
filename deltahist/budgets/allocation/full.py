"""The last steps of the offline optimum: which windows are full, and prices at which they are, by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltahist.budgets.allocation.windows import Constraints

Array = NDArray[np.float64]

#: Steps at most, and how much of the limit a window may be above it at the end.
_STEPS, _ABOVE = 12, 1e-13


def fill_windows(
    limits: Constraints, weights: Array, power: float, prices: Array
) -> tuple[Array, Array] | None:
    """Best amounts (m,) and the windows' prices, from prices near the best ones; None where that leads nowhere.

    Few windows are full at the best amounts: of 30 steps with random weights, about one in six. The prices λ of those
    alone decide the amounts, x = (a w / s)^(1/(a+1)) with s = Cᵀλ. Newton's method moves them until C x = b:

        (C diag(x/((a + 1) s)) Cᵀ) dλ = C x − b    for the full windows.

    A window whose price falls below zero is full no more; one that is above its limit becomes full.

    Parameters
    ----------
    weights : (m,) above zero. prices : of each window, 0 where it is not full, to begin with.
    """
    from scipy.linalg.lapack import dpbsv

    prices = prices.copy()
    for _ in range(_STEPS):
        step_price = limits.spread(prices)
        if not (step_price > 0).all():
            return None
        amounts = (power * weights / step_price) ** (1 / (power + 1))
        above = limits.total(amounts) - limits.limit
        most = float((above / limits.limit).max())
        if most <= _ABOVE:
            return amounts / (1 + max(0.0, most)), prices
        full = np.flatnonzero((prices > 0) | (above > 0))
        band = limits.overlaps(full, amounts / ((power + 1) * step_price))
        _, change, failed = dpbsv(band, above[full], lower=1, overwrite_ab=1)
        if failed or not np.isfinite(change).all():
            return None
        prices[full] = np.maximum(prices[full] + change, 0.0)
    return None
