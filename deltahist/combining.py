"""Combine a release with other measurements of the same cells by least squares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg

from deltahist.answers import read_workload
from deltahist.errors import InputError, check_choice
from deltahist.releases import Measurements, Release
from deltahist.space.workloads import Workload

Field = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Combined:
    """The best estimates from a release and from other measurements of its cells with independent noise.

    Let ĉ be the release's estimates, with covariance V. Let z = B c + noise be the other measurements, whose noise has
    covariance Γ. Then ĉ + V Bᵀ S⁻¹ (z − B ĉ), where S = B V Bᵀ + Γ, has the least variance among all unbiased linear
    combinations of ĉ and z. The privacy costs of the releases add up. Public numbers cost nothing, and may be exact
    (Γ = 0). Source: docs/internals/theory.md, section 3.

    Parameters
    ----------
    release : a release of counts whose strategy determines every cell.
    other : public numbers, or `measurements()` of another release with the same cells.

    A release shares noise with its refinements and copies, so combine only one of them.

    Raises InputError if the strategy does not determine every cell, or if the numbers of cells differ.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), 1, sources="boundary")
    >>> release = dh.publish(np.array([5, 0, 3, 2]), near, "identity", epsilon=1.0)
    >>> census = Measurements(np.ones((1, 4)), np.array([10.0]), np.zeros((1, 1)))
    >>> Combined(release, census).answer([[0, 4], [0, 2]]).round(1).iloc[0].tolist()      # all cells
    [10.0, 0.0]
    """

    release: Release
    other: Measurements

    def __post_init__(self) -> None:
        cells = self.release.domain.size if self.release.strategy.determines_cells else 0
        measured = np.shape(self.other.matrix)[1]
        check_choice((cells,), **{"number of measured cells (the release must determine all)": measured})

    @functools.cached_property
    def cells(self) -> Field:
        """Estimated points in each cell, of shape domain.shape. Raises InputError if exact numbers disagree."""
        own, values = self.release.cells(), np.asarray(self.other.values)
        given = values - self._matrix @ own.ravel()
        found = self._solve(given)
        if not np.allclose(self._weigh(found), given, rtol=0, atol=1e-6 * np.abs(values).max(initial=1.0)):
            raise InputError("measurements contradict the release or each other: exact numbers must agree")
        return own + self._spread(self._matrix.rmatvec(found)).reshape(own.shape)

    def answer(self, workload: Workload | Any) -> pd.DataFrame:
        """Return the estimate of each query and its standard error from noise. `workload` is as in `dh.answer`."""
        asked, framed = read_workload(workload, self.release.domain)
        rows = asked.matrix(self.release.domain)
        variance = []
        for row in rows:
            query = row.toarray().ravel()
            along = self._spread(query)
            seen = self._matrix @ along
            variance.append(query @ along - seen @ self._solve(seen))
        return framed({"estimate": rows @ self.cells.ravel(), "std_error": np.sqrt(np.maximum(variance, 0.0))})

    @functools.cached_property
    def _matrix(self) -> LinearOperator:
        return aslinearoperator(_read_matrix(self.other.matrix))

    @functools.cached_property
    def _noise(self) -> LinearOperator:
        return aslinearoperator(_read_matrix(self.other.covariance))

    def _spread(self, query: Field) -> Field:
        """Return V q, of shape (N,)."""
        decoder = self.release.decoder
        draws = decoder.draw_variance * decoder.strategy.gather(decoder.answer_coefficients(query))
        return decoder.estimate_cells(decoder.strategy.scatter(draws), 0 if decoder.total_known else None).ravel()

    def _weigh(self, given: Field) -> Field:
        """Return S x, of the same shape (m,) as x."""
        return np.asarray(self._matrix @ self._spread(self._matrix.rmatvec(given)) + self._noise @ given)

    @functools.cached_property
    def _solve(self) -> Callable[[Field], Field]:
        """A function from x to S⁻¹ x, by Cholesky's factors of S for up to 4,096 measurements."""
        m, cells = self._matrix.shape
        if m > 1 << 12:
            whole = LinearOperator((m, m), self._weigh)
            return lambda given: np.asarray(cg(whole, given, rtol=1e-9, maxiter=10_000)[0])
        # S is singular if the release knows an exact number, such as the total. The ridge exceeds rounding errors.
        ridge = np.array([row @ row for row in map(self._matrix.rmatvec, np.eye(m))])
        ridge *= 1e-11 * self._spread(np.eye(1, cells).ravel())[0]
        factor = cho_factor(np.stack([self._weigh(row) for row in np.eye(m)]) + np.diag(ridge))
        return lambda given: np.asarray(cho_solve(factor, given))


def _read_matrix(matrix: Any) -> Any:
    return matrix if hasattr(matrix, "shape") else np.asarray(matrix, dtype=np.float64)
