"""What a public total takes away from the variances of answers."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deltahist.workloads import Span
from deltahist.workloads.sums import prefix_sums, sums_between


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
        return np.asarray(sums_between(self._before, spans) ** 2 / self.spread)

    @functools.cached_property
    def _before(self) -> NDArray[np.float64]:
        """V1 summed up to every edge of cells."""
        return prefix_sums(self.along)[..., 0]

    def mean_taken(self) -> float:
        """The mean over all ranges."""
        both = self.along
        for axis in range(both.ndim):
            both = np.moveaxis(sums_of_both(np.moveaxis(both, axis, 0)), 0, axis)
        return float((self.along * both).sum()) / self.spread


def sums_of_both(field: NDArray[np.float64], starts: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Σ_j (share of all intervals of the first axis that hold both i and j) field_j, over j in the same block as i.

    (min(i, j) + 1)(n − max(i, j)) of the n (n + 1) / 2 intervals do: sums up to i, and from there on.

    Parameters
    ----------
    field : (n, ...). starts : first cell of each block; all cells are one block when None.
    """
    n = len(field)
    first = np.zeros(1, dtype=np.int64) if starts is None else starts
    cell = np.arange(n).reshape(-1, *(1,) * (field.ndim - 1))
    low, high = ((weight * field).cumsum(axis=0) for weight in (cell + 1.0, n - cell))
    last = np.repeat(np.append(first[1:], n) - 1, np.diff(first, append=n))
    upto = low - np.repeat((low - (cell + 1.0) * field)[first], np.diff(first, append=n), axis=0)
    after = high[last] - high
    return np.asarray(((n - cell) * upto + (cell + 1) * after) / (n * (n + 1) / 2))
