"""The last steps of the offline optimum: which windows are full, and prices at which they are, by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltahist.budgets.allocation.windows import Constraints

Array = NDArray[np.float64]

#: Steps at most, and how much of the limit a window may be above it at the end.
_STEPS, _ABOVE = 12, 1e-13
#: Stiffness of a window whose price is settled, over the largest one.
_FIXED = 1e12


def fill_windows(
    limits: Constraints, weights: Array, power: float, prices: Array
) -> tuple[Array, Array] | None:
    """Best amounts (m,) and the windows' prices, from prices near the best ones; None where that leads nowhere.

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
        moved = _moved(band, above[full], prices[full])
        if moved is None:
            return None
        prices[full] = moved
    return None


def _moved(band: Array, above: Array, prices: Array) -> Array | None:
    """Prices (k,) after a step that takes off what windows are above their limits, none below zero; None if there is
    none."""
    from scipy.linalg.lapack import dpbsv

    out = np.zeros(len(prices), dtype=bool)
    fixed = _FIXED * band[0].max(initial=0.0)
    for _ in range(_STEPS):
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
