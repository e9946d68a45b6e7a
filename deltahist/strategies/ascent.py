"""Steps uphill for the multipliers of a dual problem, which the best Gaussian strategies share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Ascent:
    """Steps of λ uphill: λ_e ← λ_e · (cost_e / f)^p, on logarithms with Nesterov's momentum.

    cost_e is what edge e costs over its bound, f its mean over λ. p = 2 would find λ in one step if the edges had
    nothing in common; it grows while f does, and starts again from half, without momentum, when f falls.

    Parameters
    ----------
    start : ln λ (M,) to begin with, up to a constant. floor : least λ, of a sum of one; none falls far below it.
    """

    def __init__(self, start: NDArray[np.float64], floor: float) -> None:
        self.floor = floor
        #: ln λ to go on from, up to a constant, and where the last step led before momentum.
        self.at = self.before = start
        self.power, self.moved, self.last = 2.0, 0, 0.0

    def weight(self) -> NDArray[np.float64]:
        """λ (M,), adding up to one, none far below the floor."""
        weight = np.exp(self.at - self.at.max())
        weight = np.maximum(weight / weight.sum(), self.floor)
        weight /= weight.sum()
        return np.asarray(weight)

    def step(self, weight: NDArray[np.float64], relative: NDArray[np.float64], bound: float) -> None:
        """Go on from λ, where the costs over their bounds and f are `relative` (M,) and f is `bound`."""
        if bound < self.last:
            self.power, self.moved = max(1.0, self.power / 2), 0
        else:
            self.power = min(1.1 * self.power, 12.0)
        here = np.log(weight) + self.power * np.log(np.maximum(relative, 1e-12))
        momentum = self.moved / (self.moved + 3)
        self.at = here + momentum * (here - self.before) if self.moved else here
        self.last, self.before, self.moved = bound, here, self.moved + 1
