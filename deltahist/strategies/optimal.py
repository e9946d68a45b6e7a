"""Optimal: the strategy of least mean variance under Gaussian noise, found by convex optimisation."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, DenseDecoder
from deltahist.errors import InputError, positive
from deltahist.space.domain import Domain
from deltahist.strategies.base import Strategy, refuse_pure
from deltahist.strategies.convex import (
    Certificate,
    Solution,
    edge_squares,
    entries_fit,
    exact_gram,
    invertible,
    solve,
    workload_gram,
)
from deltahist.strategies.gaussian import pack, unpack

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

#: Every step of the optimisation decomposes matrices of up to this size.
MOST_CELLS = 2000
#: Planning does without on more cells: it takes seconds, and the spectral strategy is near enough.
_MOST_TRIED = 400


@dataclass(frozen=True, eq=False)
class Optimal(Strategy):
    """The best Gaussian strategy for a workload, in whole numbers; for at most 2,000 cells.

    N rows, one dense symmetric matrix. It is computed when first used: some seconds at 32 × 32 cells. The
    certified gap to the optimum is `certificate.gap`; `describe` holds the matrix, so that a release is
    read without optimising again. Source: `deltahist.strategies.convex`; Li et al. 2010 for any move.

    Parameters
    ----------
    near : who may be confused with whom; limits beyond δ are bounds as well.
    workload : the workload whose mean variance is least; all ranges when None.
    gap : certified gap at which the optimisation ends.
    kept : a solution made before (`Optimal.restore`), in place of near and workload.

    Raises
    ------
    InputError
        If the domain has more than 2,000 cells, the workload does not fit it or asks for the public total
        only, or (when first used) no strategy within 5% of the optimum was found.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(Domain((0, 1), (4,)), delta=0.25)
    >>> A = Optimal(near)
    >>> A.shape, A.certificate.gap < 1e-3
    ((4, 4), True)
    >>> again = Optimal.restore(near.domain, **{k: v for k, v in A.describe().items() if k != "strategy"})
    >>> bool((again.matrix() != A.matrix()).nnz)
    False
    """

    near: Neighbourhood | None = None
    workload: Workload | None = None
    gap: float = 1e-3
    kept: Solution | None = field(default=None, repr=False)
    determines_cells: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("optimal",)

    @classmethod
    def tuned(cls, near: Neighbourhood, workload: Workload | None = None, *, norm: int = 2) -> Optimal:
        """Return the optimum for a workload, all ranges when None; InputError unless norm is 2 (Gaussian noise)."""
        refuse_pure("optimal", norm)
        return cls(near, workload)

    @classmethod
    def named(cls, near: Neighbourhood, text: str, norm: int) -> Optimal:
        refuse_pure(text, norm)
        return cls(near)

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if norm == 2 and 1 < near.domain.size <= _MOST_TRIED:
            yield "Optimal", cls(near, workload)

    def __post_init__(self) -> None:
        if (self.near is None) == (self.kept is None):
            raise InputError("near is missing: give the neighbourhood that the strategy is optimal for")
        positive(gap=self.gap)
        _check_size(self.domain)

    @functools.cached_property
    def domain(self) -> Domain:  # type: ignore[override]
        if self.kept is not None:
            return self.kept.domain
        assert self.near is not None
        return self.near.domain

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (self.domain.size, self.domain.size)

    @functools.cached_property
    def solution(self) -> Solution:
        """The matrix and its certificate; here is where the optimisation runs."""
        if self.kept is not None:
            return self.kept
        assert self.near is not None
        return solve(self.near, workload_gram(self.workload, self.domain), float(self.gap))

    @property
    def certificate(self) -> Certificate:
        """How far from the optimum the strategy can be."""
        return self.solution.certificate

    @property
    def matrix_(self) -> NDArray[np.int64]:
        """The rows (N, N), symmetric, dense."""
        return self.solution.matrix

    def matrix(self) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(self.matrix_)

    @functools.cached_property
    def _float(self) -> NDArray[np.float64]:
        return self.matrix_.astype(np.float64)

    @functools.cached_property
    def _gram(self) -> NDArray[np.int64]:
        return exact_gram(self.matrix_)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((self._float if X.dtype.kind == "f" else self.matrix_) @ X)

    _rmatmat = _matmat  # the matrix is symmetric

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return exact answers (N,) to the rows.

        Raises
        ------
        InputError
            If an answer to this number of points might not fit 64 bits.
        """
        total, largest = float(np.abs(counts).sum(dtype=np.float64)), int(np.abs(self.matrix_).max())
        if total * largest >= 2.0**62:
            raise InputError(
                f"counts add up to {total:.3g}: this strategy's entries of up to {largest:,} allow at most "
                f"{2.0**62 / largest:.3g} points"
            )
        return super().measure(counts)

    def decoder_class(self) -> type[Decoder]:
        return DenseDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> int:
        edges = near.edges()
        if norm == 2:
            return int(edge_squares(self._gram, edges).max(initial=0))
        most, rows, step = 0, self.matrix_, max(1, 4_000_000 // self.domain.size)
        for start in range(0, len(edges), step):
            part = edges[start : start + step]
            # The null vertex has no column.
            change = rows[part[:, 1]] - np.where(part[:, :1] < 0, 0, rows[part[:, 0]])
            most = max(most, int(np.abs(change).sum(axis=1).max()))
        return most

    def describe(self) -> dict[str, Any]:
        """Describe the strategy as JSON: the lower triangle, packed."""
        return {
            "strategy": type(self).__name__,
            "matrix": self._text,
            "primal": self.certificate.primal,
            "dual": self.certificate.dual,
        }

    @functools.cached_property
    def _text(self) -> str:
        return pack(self.matrix_[np.tril_indices(self.domain.size)])

    @classmethod
    def restore(cls, domain: Domain, **parameters: Any) -> Optimal:
        """Return the strategy of a description, which is not trusted; nothing is optimised again.

        The two figures of the certificate come from whoever wrote the description; what the strategy
        costs and how large its errors are is always computed from the matrix.

        Raises
        ------
        InputError
            If the text is damaged, of another domain's size, or its matrix is not invertible.
        """
        _check_size(domain)
        if set(parameters) != {"matrix", "primal", "dual"}:
            raise InputError(
                f"strategy Optimal has parameters {sorted(parameters)}: it must have dual, matrix, primal"
            )
        figures = primal, dual = parameters["primal"], parameters["dual"]
        known = all(isinstance(f, float) and math.isfinite(f) and f >= 0 for f in figures)
        if not known or dual > 1.001 * primal or (dual == 0) != (primal == 0):
            raise InputError(
                "the certificate of strategy Optimal is damaged: it must be two variances, dual not above primal"
            )
        size = domain.size
        rows, columns = np.tril_indices(size)
        out = np.empty((size, size), dtype=np.int64)
        out[rows, columns] = out[columns, rows] = unpack(
            parameters["matrix"], (len(rows),), "the matrix of strategy Optimal"
        )
        if not entries_fit(out) or not invertible(out):
            raise InputError("the matrix of strategy Optimal is damaged: it is too large or not invertible")
        return cls(kept=Solution(domain, out, Certificate(primal, dual)))


def _check_size(domain: Domain) -> None:
    if domain.size > MOST_CELLS:
        raise InputError(
            f"the domain has {domain.size:,} cells: the optimal strategy is found for at most {MOST_CELLS:,} "
            "(use the strategy Spectral, which is nearly as good on grids of any size)"
        )
