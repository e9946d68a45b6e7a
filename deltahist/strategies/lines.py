"""Lines: how the flow across a grid line is estimated from noise on its borders and on sums of borders."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Lines:
    """Least squares along a line of n borders, the same for all lines of one direction.

    T is the flow through each border as the noise on single moves has it, Θ T its sums over blocks of borders,
    s the sums that have noise of their own. The estimate is T + C (s − Θ T) with C = V Θᵀ (Θ V Θᵀ + W)⁻¹ for
    the variances V of T and W of s. A move shifts s and Θ T alike, so that s − Θ T does not change, and the
    estimate shifts by exactly the move, whatever C is and however C (s − Θ T) is rounded.

    Parameters
    ----------
    n : borders per line.
    widths : of the sums, one level each.
    straight, diagonal : variance of the noise on a move across one border, up to a common factor.
    sums : variance of the noise on the sums of each level.
    """

    n: int
    widths: tuple[int, ...]
    straight: float
    diagonal: float
    sums: tuple[float, ...]

    @functools.cached_property
    def diagonals(self) -> NDArray[np.float64]:
        """Number of diagonal moves that count at each border (n,)."""
        out = np.zeros(self.n)
        out[:-1] += 1
        out[1:] += 1
        return out

    @functools.cached_property
    def theta(self) -> NDArray[np.float64]:
        """Θ (p, n): which borders each sum holds."""
        place = np.arange(self.n)
        return np.concatenate(
            [np.zeros((0, self.n))]
            + [(place // w == np.arange(-(-self.n // w))[:, None]).astype(np.float64) for w in self.widths]
        )

    @functools.cached_property
    def level(self) -> NDArray[np.int64]:
        """Level of each sum (p,)."""
        return np.repeat(np.arange(len(self.widths)), [-(-self.n // w) for w in self.widths])

    @functools.cached_property
    def gain(self) -> NDArray[np.float64]:
        """C (n, p)."""
        leaf = self.straight + self.diagonal * self.diagonals
        spread = leaf[:, None] * self.theta.T
        own = np.diag(np.array(self.sums)[self.level]) if self.widths else np.zeros((0, 0))
        return np.asarray(np.linalg.solve(self.theta @ spread + own, spread.T).T if self.widths else spread)

    @functools.cached_property
    def prefix_gain(self) -> NDArray[np.float64]:
        """Sums of C over the borders before each edge (n + 1, p)."""
        return np.concatenate([np.zeros((1, self.gain.shape[1])), self.gain.cumsum(axis=0)])

    def surplus(self, flow: NDArray[Any], sums: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """s − Θ T (lines, p) for flows T (lines, n), exact in whole numbers."""
        own = [np.add.reduceat(flow, np.arange(0, self.n, w), axis=1) for w in self.widths]
        return np.concatenate([s - o for s, o in zip(sums, own, strict=True)], axis=1)

    def correction(self, flow: NDArray[Any], sums: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """C (s − Θ T) (lines, n); of whole numbers, rounded so that sums from the line's start are nearest."""
        surplus = self.surplus(flow, sums)
        if surplus.dtype.kind == "f":
            return surplus @ self.gain.T
        along = np.rint(surplus @ self.prefix_gain.T)
        return np.diff(along, axis=1).astype(surplus.dtype)

    def adjoint(
        self, weights: NDArray[np.float64], sums: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """From weights on the estimates (lines, n): those on the sums, filled in, and what T gets beside."""
        back = weights @ self.gain
        for level, part in enumerate(sums):
            part[...] = back[:, self.level == level]
        return -back @ self.theta
