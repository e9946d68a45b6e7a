"""CutAugmented: rows are added for free while no edge is cut more often than the worst one already is."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Workload, range_gram
from deltahist.strategies.base import Strategy
from deltahist.strategies.grids import Identity

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood

#: Greedy choice keeps a dense N × N matrix and looks at every candidate: small domains only.
MOST_CELLS = 1024
#: Prior precision of a cell relative to a row's, so that gains exist before the cells are determined.
_PRIOR = 1e-6
#: Planning tries greedy rows while candidates times cells squared stay below this.
_MOST_GREEDY = 40_000_000


@dataclass(frozen=True, eq=False)
class CutAugmented(Strategy):
    """Binary rows given as sets of cells; `CutAugmented.greedy` finds them (2014, section 5.3).

    Parameters
    ----------
    domain : Domain
    sets : one tuple of flat cell indices per row.

    >>> A = CutAugmented(Domain((0, 1), (3,)), sets=((0, 1), (2,)))
    >>> A.matrix().toarray().tolist()
    [[1, 1, 0], [0, 0, 1]]
    """

    domain: Domain
    sets: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        sets = tuple(tuple(sorted(int(c) for c in row)) for row in self.sets)
        object.__setattr__(self, "sets", sets)
        if self.domain.size > 4 * MOST_CELLS:
            raise InputError(
                f"the domain has {self.domain.size:,} cells: explicit sets are for at most {4 * MOST_CELLS:,}"
            )
        for row in sets or ((),):
            if not row or row[0] < 0 or row[-1] >= self.domain.size or len(set(row)) < len(row):
                raise InputError(
                    f"sets has {row[:5]}...: each must hold different cells from 0 to {self.domain.size - 1}"
                )

    @classmethod
    def greedy(
        cls,
        base: Strategy,
        near: Neighbourhood,
        gram: NDArray[np.float64] | None = None,
        candidates: Iterable[tuple[int, ...]] | None = None,
    ) -> CutAugmented:
        """Add the row that helps the workload most and cuts no edge beyond the base's sensitivity; repeat.

        Parameters
        ----------
        base : a strategy with rows of 0 and 1 and equal shares; its rows come first.
        near : the neighbourhood whose edges are cut.
        gram : V = QᵀQ (N, N) of the workload Q; all ranges when None.
        candidates : sets of cells to choose from; all boxes (in 1-D: all ranges) when None.

        Raises
        ------
        InputError
            If the domain has more than 1024 cells, or the base is not binary.
        """
        domain = near.domain
        if domain.size > MOST_CELLS:
            raise InputError(
                f"the domain has {domain.size:,} cells: greedy rows are found for at most {MOST_CELLS:,} "
                "(use ShiftedGrids, which is the same idea in closed form)"
            )
        rows = base.matrix().toarray()
        if not np.isin(rows, (0, 1)).all() or any(g.share != base.groups[0].share for g in base.groups):
            raise InputError(
                f"base is {base.name}: its rows must be sets of cells (entries 0 and 1) of equal shares"
            )
        sets = box_sets(domain) if candidates is None else [tuple(sorted(c)) for c in candidates]
        choice = np.zeros((len(sets), domain.size), dtype=np.int64)
        for i, cells in enumerate(sets):
            choice[i, list(cells)] = 1
        added = augment(rows, near.incidence(), choice, range_gram(domain) if gram is None else gram)
        return cls(domain, tuple(tuple(np.flatnonzero(r).tolist()) for r in (*rows, *choice[added])))

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        """Yield cells with the rows that the greedy algorithm adds to them, on small domains."""
        domain = near.domain
        ranges = math.prod(n * (n + 1) // 2 for n in domain.shape)
        if ranges * domain.size**2 <= _MOST_GREEDY:
            gram = None
            if not isinstance(workload, AllRanges):
                rows = workload.matrix(domain)
                gram = (rows.T @ rows).toarray()
            yield "CutAugmented (cells)", cls.greedy(Identity(domain), near, gram)

    @functools.cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        ends = np.cumsum([0, *(len(row) for row in self.sets)])
        cells = np.concatenate([np.array(row) for row in self.sets])
        return scipy.sparse.csr_array((np.ones(len(cells), dtype=np.int64), cells, ends), shape=self.shape)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (len(self.sets), self.domain.size)

    @functools.cached_property
    def determines_cells(self) -> bool:  # type: ignore[override]
        return bool(np.linalg.matrix_rank(self._matrix.toarray()) == self.domain.size)

    def matrix(self) -> scipy.sparse.csr_array:
        return self._matrix

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self._matrix @ X)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self._matrix.T @ X)


def augment(
    rows: NDArray[np.int64],
    incidence: scipy.sparse.csc_array,
    candidates: NDArray[np.int64],
    gram: NDArray[np.float64],
) -> list[int]:
    """Return indices of the candidates (c, N) that the greedy algorithm adds to rows (k, N), in order.

    A candidate fits if no edge is cut more often than `rows` cut their worst edge. Among those that fit,
    the one that lowers tr(V M⁻¹) most is added, M = AᵀA: adding row r lowers it by
    r M⁻¹ V M⁻¹ rᵀ / (1 + r M⁻¹ rᵀ) (Sherman and Morrison). Ends when none fits.
    """
    cuts = np.abs(rows @ incidence).sum(axis=0)
    limit = cuts.max(initial=0)
    cut_by = np.abs(scipy.sparse.csr_array(candidates) @ incidence).tocsr()
    factor = scipy.linalg.cho_factor(rows.T @ rows + _PRIOR * np.eye(rows.shape[1]))
    inverse = scipy.linalg.cho_solve(factor, np.eye(rows.shape[1]))
    # A candidate equal to a row, or one that was added, may come again: the noise then averages out.
    alive = np.ones(len(candidates), dtype=bool)
    added: list[int] = []
    while True:
        alive &= (cut_by @ (cuts >= limit).astype(np.int64)) == 0
        # A row that cuts nothing is public: it costs nothing and tells nothing new.
        fits = np.flatnonzero(alive & (np.diff(cut_by.indptr) > 0))
        if not len(fits):
            return added
        reach = candidates[fits] @ inverse
        spent = 1 + np.einsum("ij,ij->i", reach, candidates[fits])
        best = int(np.argmax(np.einsum("ij,ij->i", reach @ gram, reach) / spent))
        added.append(int(fits[best]))
        inverse -= np.outer(reach[best], reach[best]) / spent[best]
        cuts = cuts + cut_by[[fits[best]]].toarray()[0]


def box_sets(domain: Domain) -> list[tuple[int, ...]]:
    """Return all boxes of cells, as sets of flat indices."""
    index = np.arange(domain.size).reshape(domain.shape)
    sides = ([slice(*ends) for ends in combinations(range(n + 1), 2)] for n in domain.shape)
    return [tuple(index[box].ravel().tolist()) for box in product(*sides)]
