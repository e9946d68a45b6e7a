"""Least squares for any strategy: dense on small domains, conjugate gradients on large ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder
from deltahist.decode.moments import LEAST_SQUARED, Asked, Moments, rows_of
from deltahist.errors import InputError
from deltahist.privacy import Law
from deltahist.space.workloads import AllRanges, Boxes, Span, range_gram

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    from deltahist.space.domain import Domain
    from deltahist.strategies.base import Strategy

#: Cells up to which matrices are explicit.
MOST_DENSE = 1024
#: Queries times rows up to which every coefficient is looked at, and queries at a time.
_MOST_COEFFICIENTS = 50_000_000
_BATCH = 1024
_TOLERANCE = 1e-11
#: Least variance of a row, in that of the noisiest one, that weights tell apart.
_LEAST = 1e-11
_MOST_STEPS = 20_000


def decoder(strategy: Strategy, laws: Sequence[Law], *, total_known: bool) -> Decoder:
    """Return the decoder of a strategy with its noise (`Strategy.decoder_class`).

    Parameters
    ----------
    strategy : what was measured.
    laws : noise law of each of its groups.
    total_known : whether the number of entities is public.
    """
    # A single cell, whose count is public, has no noise: there is nothing to weigh.
    kind = strategy.decoder_class() if any(law.parameter for law in laws) else DenseDecoder
    return kind(strategy, laws, total_known)


def general_decoder(domain: Domain) -> type[Decoder]:
    """Return the decoder of strategies without a decoder of their own: dense on small domains, else iterative."""
    return DenseDecoder if domain.size <= MOST_DENSE else IterativeDecoder


class DenseDecoder(Decoder):
    """The definition: (AᵀΣ⁻¹A)⁻¹AᵀΣ⁻¹, or the pseudo-inverse where A does not determine the cells.

    It shows how every other decoder must answer.
    """

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        dense = strategy.matrix().toarray().astype(np.float64)
        if not strategy.row_by_row:
            self.inverse = self._correlated(dense)
            return
        # Without noise all rows are alike.
        variance = self.draw_variance if self.draw_variance.all() else np.ones(strategy.shape[0])
        if strategy.determines_cells:
            # Rows that are next to exact are alike, in units of their own: else no equations could be solved.
            own = np.abs(dense).max(axis=1) ** 2
            weighted = dense / np.maximum(variance, _LEAST * own * (variance / own).max())[:, None]
            self.inverse = scipy.linalg.solve(dense.T @ weighted, weighted.T, assume_a="pos")
        else:
            weight = 1 / np.sqrt(variance)
            self.inverse = scipy.linalg.pinv(weight[:, None] * dense, rtol=1e-12) * weight

    @functools.cached_property
    def _entry(self) -> NDArray[np.float64] | None:
        """R (k, draws), how draws enter the values; None where it is the identity."""
        if self.strategy.row_by_row:
            return None
        return np.stack([self.strategy.gather(row) for row in np.eye(self.strategy.shape[0])])

    def _correlated(self, dense: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the least squares for noise of covariance R Σ Rᵀ; all rows alike where that is singular."""
        entry = self._entry
        assert entry is not None
        covariance = (entry * self.draw_variance) @ entry.T
        # Whether it is singular must not depend on what values count in: tents' are 10⁹ times as large as cells.
        each = np.sqrt(np.diag(covariance))
        if (
            not each.all()
            or float(scipy.linalg.eigvalsh(covariance / np.outer(each, each), subset_by_index=[0, 0])[0]) < 1e-9
        ):
            return np.asarray(scipy.linalg.pinv(dense, rtol=1e-12))
        root = scipy.linalg.cholesky(covariance, lower=True)
        white = scipy.linalg.solve_triangular(root, dense, lower=True)
        # pinv(L⁻¹ A) L⁻¹
        return np.asarray(
            scipy.linalg.solve_triangular(root, scipy.linalg.pinv(white, rtol=1e-12).T, lower=True, trans="T").T
        )

    def _by_draw(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how draws enter answers (m, draws), from how values do (m, k)."""
        return coefficients if self._entry is None else coefficients @ self._entry

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.inverse @ values

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return query @ self.inverse

    def moments(self, work: Asked) -> Moments:
        if isinstance(work, Boxes | AllRanges) and len(work) * self.strategy.shape[0] > _MOST_COEFFICIENTS:
            variance = self._corner_variance(work.spans(self.domain))
            return Moments(variance, np.zeros(len(variance)), unresolved=self._all_resolved(len(variance)))
        rows = rows_of(work, self.domain)
        parts = [self._moments_of(rows[i : i + _BATCH].toarray()) for i in range(0, rows.shape[0], _BATCH)]
        variance, kurtosis, unresolved = (np.concatenate(p) for p in zip(*parts, strict=True))
        return Moments(variance, kurtosis, unresolved=None if self.strategy.determines_cells else unresolved)

    def mean_variance(self, work: AllRanges) -> float:
        # Σ_q qᵀ V q = Σ_ij V_ij · (number of ranges that hold both i and j)
        spread = self._by_draw(self._full_inverse) * np.sqrt(self.draw_variance)
        return max(0.0, float(np.einsum("ij,ij->", spread @ spread.T, range_gram(self.domain))) / len(work))

    @functools.cached_property
    def _full_inverse(self) -> NDArray[np.float64]:
        """Coefficients of every cell (N, k), beside the public total."""
        if not self.total_known:
            return self.inverse
        ones, direction, spread = self.onto_total
        return self.inverse - np.outer(direction, ones) / spread if spread > 0 else self.inverse

    def _moments_of(self, queries: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        weight = queries @ self._full_inverse
        part = self._by_draw(weight) ** 2 * self.draw_variance
        variance = part.sum(axis=1)
        variance[variance < self.rounding_floor] = 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            kurtosis = np.where(
                variance > LEAST_SQUARED, (part * part) @ self.draw_kurtosis / variance**2, 0.0
            )
        missing = queries - np.asarray(self.strategy.rmatmat(np.ascontiguousarray(weight.T))).T
        if self.total_known:
            _, direction, spread = self.onto_total
            if spread > 0:
                missing -= (queries @ direction)[:, None] / spread
        unresolved = (missing * missing).sum(axis=1) / (queries * queries).sum(axis=1)
        unresolved[unresolved < 1e-9] = 0.0
        return variance, kurtosis, unresolved

    @functools.cached_property
    def _corners(self) -> NDArray[np.float64]:
        """Covariance of the prefix sums at all pairs of corners, flat."""
        spread = self._by_draw(self._full_inverse) * np.sqrt(self.draw_variance)
        cube = spread.reshape(*self.domain.shape, -1)
        for axis in range(self.domain.ndim):
            pad = [(0, 0)] * cube.ndim
            pad[axis] = (1, 0)
            cube = np.pad(np.cumsum(cube, axis=axis), pad)
        flat = cube.reshape(-1, cube.shape[-1])
        return flat @ flat.T

    def _corner_variance(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        """Return the variance of boxes from pairs of corners; inside a cell, corners are interpolated."""
        places: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = [
            (np.zeros(len(spans[0][0]), dtype=np.int64), np.ones(len(spans[0][0])))
        ]
        for (low, high), n in zip(spans, self.domain.shape, strict=True):
            along = []
            for edge, sign in ((low, -1.0), (high, 1.0)):
                below = np.minimum(edge.astype(np.int64), n - 1)
                share = edge - below
                along += [(below, sign * (1 - share)), (below + 1, sign * share)]
            places = [(at * (n + 1) + i, w * v) for at, w in places for i, v in along if v.any()]
        out = np.zeros(len(spans[0][0]))
        for at, w in places:
            for other, v in places:
                out += w * v * self._corners[at, other]
        return np.where(out < self.rounding_floor, 0.0, out)

    def _all_resolved(self, number: int) -> NDArray[np.float64] | None:
        """Return None if the cells are determined; else NaN for each query, as too many are asked."""
        return None if self.strategy.determines_cells else np.full(number, np.nan)


class IterativeDecoder(Decoder):
    """Conjugate gradients on AᵀΣ⁻¹A from zero, which ends at the solution of least norm."""

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        # Where draws are shared between values, all rows count alike: unbiased, if not the best.
        known = strategy.row_by_row and self.draw_variance.all()
        self.precision = 1 / self.draw_variance if known else np.ones(strategy.shape[0])

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._invert(self._gather(self.precision * values))

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.precision * self._spread(self._invert(query))

    def _spread(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.strategy.matvec(cells))

    def _gather(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.strategy.rmatvec(rows))

    def _invert(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        from scipy.sparse.linalg import LinearOperator, cg

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
        """Return the part of a query that the rows determine: without it conjugate gradients diverge.

        LSQR-style: minimise |Aᵀ z − q| over rows z, in the norm of cells.
        """
        from scipy.sparse.linalg import LinearOperator, cg

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
