"""What a public total takes away from the variances of answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deltahist.workloads import Span
from deltahist.workloads.sums import box_sums


class PublicTotal:
    """(qᵀV1)² / (1ᵀV1): by so much less does the answer to q vary, with V the covariance of the cells, once 1 is known.

    Parameters
    ----------
    along : V1 (domain.shape), the covariance of every cell with the total.
    """

    def __init__(self, along: NDArray[np.float64]) -> None:
        self.along, self.spread = along, float(along.sum())

    def taken(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        """For boxes (m,)."""
        return np.asarray(box_sums(self.along, spans) ** 2 / self.spread)

    def mean_taken(self) -> float:
        """The mean over all ranges."""
        both = self.along
        for axis in range(both.ndim):
            both = np.moveaxis(_held(np.moveaxis(both, axis, 0)), 0, axis)
        return float((self.along * both).sum()) / self.spread


def _held(field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ_j (share of all intervals of the first axis that hold both i and j) field_j.

    (min(i, j) + 1)(n − max(i, j)) of the n (n + 1) / 2 intervals do: sums up to i, and from there on.
    """
    n = len(field)
    cell = np.arange(n).reshape(-1, *(1,) * (field.ndim - 1))
    low, high = (cell + 1.0) * field, (n - cell) * field
    upto, after = low.cumsum(axis=0), high.sum(axis=0) - high.cumsum(axis=0)
    return np.asarray(((n - cell) * upto + (cell + 1) * after) / (n * (n + 1) / 2))
