"""Least squares for any strategy: dense on small domains, conjugate gradients on large ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from deltahist._validate import InputError
from deltahist.decode.base import Decoder
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy

#: Cells up to which matrices are explicit.
MOST_DENSE = 1024
_TOLERANCE = 1e-11
_MOST_STEPS = 20_000


class DenseDecoder(Decoder):
    """The definition: the pseudo-inverse of Σ^(−1/2) A. It shows how every other decoder must answer."""

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        weight = 1 / np.sqrt(np.maximum(self.row_variance, np.finfo(float).tiny))
        if not self.row_variance.all():  # no noise: all rows alike
            weight = np.ones_like(weight)
        dense = strategy.matrix().toarray()
        self.inverse = scipy.linalg.pinv(weight[:, None] * dense, rtol=1e-12) * weight
        self.exact = bool(np.linalg.matrix_rank(dense) == self.domain.size)

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.inverse @ values

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return query @ self.inverse


class IterativeDecoder(Decoder):
    """Conjugate gradients on AᵀΣ⁻¹A from zero, which ends at the solution of least norm."""

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        self.precision = 1 / self.row_variance if self.row_variance.all() else np.ones(strategy.shape[0])

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._invert(self._gather(self.precision * values))

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.precision * self._spread(self._invert(query))

    def _spread(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.strategy.matvec(cells))

    def _gather(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.strategy.rmatvec(rows))

    def _invert(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        size = self.domain.size
        normal = LinearOperator(
            (size, size),
            matvec=lambda x: self._gather(self.precision * self._spread(x.ravel())),
            dtype=np.float64,
        )
        if self.strategy.determines_cells is not True:
            right = self._project(normal, right)
        solution, failed = cg(normal, right, rtol=_TOLERANCE, atol=0.0, maxiter=_MOST_STEPS)
        if failed:
            raise InputError(
                f"least squares for {self.strategy.name} did not converge in {_MOST_STEPS:,} steps: "
                "the strategy is close to singular; use another one"
            )
        return np.asarray(solution)

    def _project(self, normal: LinearOperator, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """The part of a query that the rows determine: without it conjugate gradients diverge.

        LSQR-style: minimise |Aᵀ z − q| over rows z, in the norm of cells.
        """
        size = self.strategy.shape[0]
        outer = LinearOperator(
            (size, size), matvec=lambda z: self._spread(self._gather(z.ravel())), dtype=np.float64
        )
        start = self._spread(right)
        if not start.any():
            return np.zeros_like(right)
        z, failed = cg(outer, start, rtol=_TOLERANCE, atol=0.0, maxiter=_MOST_STEPS)
        if failed:
            raise InputError(
                f"the part of a query that {self.strategy.name} determines was not found in {_MOST_STEPS:,} steps: "
                "the strategy is close to singular; use another one"
            )
        return self._gather(np.asarray(z))
