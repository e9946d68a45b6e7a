"""Fixed points in fewer steps: Anderson's acceleration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Steps that are remembered at most, and numbers that they may take together (of four bytes).
_MOST_STEPS, _MOST_NUMBERS = 15, 1 << 29
#: What is remembered is forgotten where a residual is so many times the last one.
_WORSE = 2.0
#: Added to the squared lengths of changes, relative: they are kept to single precision.
_RIDGE = 1e-6


class Anderson:
    """The next point of a fixed-point iteration, from what the last few steps taught of its residual.

    Iterating x ↦ x + r(x) moves by the residual. Here the residual is first lowered by that combination of its
    last changes that leaves least of it, and the points are moved along (Walker and Ni 2011). Where r is affine
    this is GMRES.

    Parameters
    ----------
    size : numbers in a point. 120 bytes each are held, and 2 GiB at most, by remembering fewer steps.

    >>> import numpy as np
    >>> matrix, accelerated, point = np.diag([0.5, 0.9, 0.99]), Anderson(3), np.ones(3)
    >>> for _ in range(6):
    ...     point = accelerated.step(point, matrix @ point - point)
    >>> bool(np.abs(point).max() < 1e-5)
    True
    """

    def __init__(self, size: int) -> None:
        memory = int(np.clip(_MOST_NUMBERS // (2 * max(size, 1)), 2, _MOST_STEPS))
        self._changes = np.empty((memory, size), dtype=np.float32)  # of residuals, of length 1
        self._moves = np.empty((memory, size), dtype=np.float32)
        self._gram = np.empty((memory, memory))
        self.forget()

    def forget(self) -> None:
        """Start anew, from a point of another iteration."""
        self._count, self._least, self._best = 0, np.inf, np.empty(0)
        self._last: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def step(self, point: NDArray[np.float64], residual: NDArray[np.float64]) -> NDArray[np.float64]:
        """The point that follows one with that residual (of the same shape)."""
        plain, norm = point + residual, float(np.linalg.norm(residual))
        if norm > _WORSE * self._least:
            # Back to where the plain iteration leads from the best point: its residual does not grow.
            best = self._best
            self.forget()
            return best
        if norm < self._least:
            self._best, self._least = plain, norm
        last, self._last = self._last, (plain, residual)
        if last is None:
            return plain
        before, earlier = last
        change = residual - earlier
        length = float(np.linalg.norm(change))
        if length == 0:
            return plain
        at = self._count % len(self._gram)
        self._count += 1
        held = slice(min(self._count, len(self._gram)))
        np.divide(change.ravel(), length, out=self._changes[at], casting="same_kind")
        np.subtract(plain, before, out=change)
        np.divide(change.ravel(), length, out=self._moves[at], casting="same_kind")
        self._gram[at, held] = self._changes[held] @ self._changes[at]
        along = (self._changes[held] @ residual.ravel().astype(np.float32)).astype(np.float64)
        self._gram[held, at] = self._gram[at, held]
        shares = np.linalg.solve(self._gram[held, held] + _RIDGE * np.eye(held.stop), along)
        return plain - (shares.astype(np.float32) @ self._moves[held]).reshape(point.shape)
