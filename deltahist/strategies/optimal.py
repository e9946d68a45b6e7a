"""Use convex optimisation to find the strategy with the least mean variance under Gaussian noise, and a certificate.

`Optimal` minimises tr(V X⁻¹) over X = AᵀA, where V = QᵀQ for the workload Q, subject to eᵀ X e ≤ w_e² for every edge e.
w_e is the least factor that the neighbourhood promises for the edge (1 within δ). Let L = Σ λ_e e eᵀ / w_e² for λ ≥ 0
with sum one, and f(λ) = tr (L^½ V L^½)^½. Then f(λ)² is a lower bound on tr(V X⁻¹). Let X be the geometric mean of L⁻¹
and V. X divided by its largest eᵀ X e / w_e² is feasible, and the gap closes at the best λ (docs/internals/theory.md,
section 6). With fixed membership, the total is public, so only cell vectors with sum zero matter.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, DenseDecoder
from deltahist.decode.forms import FloatArray, IntArray
from deltahist.errors import InputError, check_finite
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Workload, range_gram
from deltahist.strategies import gaussian
from deltahist.strategies.base import Strategy

#: The largest number of optimisation steps, and of cells (each step decomposes matrices of this size).
MOST_STEPS, MOST_CELLS = 200, 2000


class Certificate(NamedTuple):
    """Mean query variance at σ = Δ₂ (ρ = ½): `primal` for the integer rows, and `dual`, a bound for any strategy."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """primal / dual - 1, which bounds the strategy's excess variance relative to the optimum."""
        return self.primal / self.dual - 1 if self.primal else 0.0


@dataclass(frozen=True, eq=False)
class Optimal(gaussian.BestGaussian):
    """The best Gaussian strategy for a workload on at most 2,000 cells, rounded to integers.

    The N rows are a dense symmetric matrix, which is computed on first use (seconds for 32 × 32 cells) and stored in
    releases. Source: docs/internals/theory.md, section 6; Li et al. 2010 (any move).

    Parameters
    ----------
    near : the neighbourhood, whose limits beyond δ are also constraints.
    workload : the queries (all ranges by default). Raises InputError if there are more than 2,000 cells and, on first
        use, if the workload does not fit the domain or no strategy within 5% of the optimum is found.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(Domain((0, 1), (4,)), delta=0.25)
    >>> A = Optimal(near)
    >>> A.shape, A.certificate.gap < 1e-3
    ((4, 4), True)
    """

    near: Neighbourhood
    workload: Workload | None = None
    texts: ClassVar[tuple[str, ...]] = ("optimal",)
    most_axes: ClassVar[int] = 2

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        # More cells would take seconds, and Spectral is nearly as good.
        if norm == 2 and 1 < near.domain.size <= 400:
            yield "Optimal", cls(near, workload)

    def __post_init__(self) -> None:
        check_finite(most=MOST_CELLS, **{"number of cells of strategy Optimal": self.domain.size})

    @functools.cached_property
    def solution(self) -> tuple[IntArray, Certificate]:
        """The rows and their certificate, from an optimisation that runs on first access."""
        return solve_optimal(self.near, workload_gram(self.workload, self.domain))

    @property
    def certificate(self) -> Certificate:
        """A bound on the distance to the optimum (not stored in files)."""
        return self.solution[1]

    @functools.cached_property
    def rows(self) -> IntArray:
        """The symmetric dense matrix of the rows (N, N)."""
        return self.solution[0]

    def matrix(self) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(self.rows)

    @functools.cached_property
    def _float_rows(self) -> FloatArray:
        return self.rows.astype(np.float64)

    @functools.cached_property
    def _gram(self) -> IntArray:
        return exact_gram(self.rows)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((self._float_rows if X.dtype.kind == "f" else self.rows) @ X)

    _rmatmat = _matmat  # the matrix is symmetric

    @functools.cached_property
    def point_limit(self) -> int:  # type: ignore[override]
        return (1 << 62) // int(np.abs(self.rows).max())

    def decoder_class(self) -> type[Decoder]:
        return DenseDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> int | None:
        return int(evaluate_edges(self._gram, near.edges()).max(initial=0)) if norm == 2 else None

    def describe(self) -> dict[str, Any]:
        return {"strategy": "Optimal", "matrix": gaussian.pack_integers(self.rows[np.tril_indices(self.domain.size)])}

    @classmethod
    def restore(cls, domain: Domain, *, matrix: Any) -> Optimal:  # type: ignore[override]
        check_finite(most=MOST_CELLS, **{"number of cells of strategy Optimal": domain.size})
        i, j = np.tril_indices(domain.size)
        rows = np.empty((domain.size, domain.size), dtype=np.int64)
        rows[i, j] = rows[j, i] = gaussian.unpack_integers(matrix, (len(i),), "matrix")
        if not _entries_fit(rows) or not _is_invertible(rows):
            raise InputError("matrix is damaged: it must be positive definite, with entries that fit in 64 bits")
        return cls._from_solution(domain=domain, rows=rows)


def solve_optimal(near: Neighbourhood, gram: FloatArray) -> tuple[IntArray, Certificate]:
    """Return the optimal integer rows for V (N, N) and a certificate. Raises InputError if the gap exceeds 5%."""
    domain, (edges, bounds) = near.domain, edge_bounds(near)
    # With fixed membership, no move changes the total, so measuring it costs nothing.
    free = not (edges < 0).any()
    parts = _split_symmetric(near, gram, free)
    rank = sum(part.factor.shape[1] for part in parts)
    if not rank:  # there is one cell, or the public total answers all queries
        return np.eye(domain.size, dtype=np.int64), Certificate(0.0, 0.0)

    def evaluate(weight: FloatArray) -> tuple[FloatArray, FloatArray, float, float]:
        form, variance, bound = _geometric_mean(parts, _weighted_laplacian(weight / bounds, edges, domain.size))
        return form, evaluate_edges(form, edges) / bounds, variance, bound

    # At first, all bounds share λ equally, because otherwise the many long moves would dominate.
    _, place, number = np.unique(bounds, return_inverse=True, return_counts=True)
    # Allocate 80% of the gap to the iteration, 10% to rounding, and 5% to making the matrix invertible.
    climb = gaussian.maximise_bound(evaluate, -np.log(number[place]), MOST_STEPS, 0.8 * gaussian.GAP)
    best = climb.form
    if rank < domain.size - free:
        # A convex combination of feasible matrices is feasible. The identity's weight bounds the increase in variance.
        best = (1 - 0.05 * gaussian.GAP) * best + 0.05 * gaussian.GAP / 2 * np.eye(domain.size)

    def mean_variance(matrix: NDArray[Any]) -> float:
        """Return the mean variance of the queries at σ = Δ₂, or infinity if the matrix is not positive definite."""
        square = exact_gram(matrix) if matrix.dtype == np.int64 else matrix @ matrix
        scale = math.sqrt((evaluate_edges(square, edges) / bounds).max())
        try:
            inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix / scale), np.eye(len(matrix)))
        except np.linalg.LinAlgError:
            return math.inf
        cells = inverse @ inverse
        if free:  # given the total
            along = cells.sum(axis=0)
            cells -= np.outer(along, along) / along.sum()
        return float(np.einsum("ij,ij->", cells, gram))

    matrix = _round_root(_square_root(best, parts), free, mean_variance, 0.1 * gaussian.GAP)
    certificate = Certificate(mean_variance(matrix), climb.dual)
    if not certificate.gap <= 0.05:
        raise InputError(
            f"found no optimal strategy: after {MOST_STEPS} steps the variance may be {certificate.gap:.1%} too large"
        )
    assert _is_invertible(matrix)
    return matrix, certificate


def edge_bounds(near: Neighbourhood) -> tuple[IntArray, FloatArray]:
    """Return all edges (M, 2) of a neighbourhood's relations, moves first, with bounds (M,) on their squared costs."""
    edges = near.relations[-1][1].edges()  # the widest relation contains all moves
    edges = edges[edges[:, 0] >= 0]
    start, end = (np.array(np.unravel_index(side, near.domain.shape)) for side in edges.T)
    place, squares = gaussian.bound_levels(near)
    arrivals = gaussian.arrival_squares(near).ravel()
    entry = np.flatnonzero(np.isfinite(arrivals))
    entries = np.column_stack([np.full_like(entry, -1), entry])
    bounds = squares[place[tuple(np.abs(end - start))]], arrivals[entry]
    return np.concatenate([edges, entries]), np.concatenate(bounds)


def workload_gram(work: Workload | None, domain: Domain) -> FloatArray:
    """Return V = QᵀQ (N, N) divided by the number of queries (all ranges if `work` is None)."""
    if work is None or (isinstance(work, AllRanges) and work.domain == domain):
        return range_gram(domain) / len(AllRanges(domain))
    rows = work.matrix(domain)
    return (rows.T @ rows).toarray() / len(work)


def exact_gram(matrix: IntArray) -> IntArray:
    """Return AᵀA (N, N) exactly for a symmetric matrix, using float products of 16-bit limbs."""
    limit = len(matrix) * int(np.abs(matrix).max()) ** 2
    if limit < 2**53:
        whole = matrix.astype(np.float64)
        return (whole @ whole).astype(np.int64)
    assert _entries_fit(matrix)
    low = ((matrix + 2**15) & 0xFFFF) - 2**15
    high = ((matrix - low) >> 16).astype(np.float64)
    low = low.astype(np.float64)
    cross = (high @ low).astype(np.int64)
    return ((high @ high).astype(np.int64) << 32) + ((cross + cross.T) << 16) + (low @ low).astype(np.int64)


def evaluate_edges(form: NDArray[Any], edges: IntArray) -> NDArray[Any]:
    """Return eᵀ X e (M,) for a symmetric X (N, N) and every edge (M, 2) of `Neighbourhood.edges`."""
    start, end = edges.T
    diagonal = np.diagonal(form)
    moved = diagonal[start] + diagonal[end] - 2 * form[start, end]
    return np.where(start < 0, diagonal[end], moved)


@dataclass(frozen=True, eq=False)
class _Part:
    """A subspace decoupled from the others, with an orthonormal `basis` (N, m) and a `factor` F such that V = FFᵀ."""

    basis: scipy.sparse.csr_array
    factor: FloatArray

    def restrict(self, form: FloatArray) -> FloatArray:
        """Return the restriction (m, m) of a symmetric matrix (N, N) to the subspace."""
        return np.asarray(self.basis.T @ (self.basis.T @ form).T)

    def extend(self, form: FloatArray) -> FloatArray:
        """Return the matrix (N, N) that has this restriction to the subspace and is zero on the other subspaces."""
        return np.asarray(self.basis @ (self.basis @ form).T)


def _split_symmetric(near: Neighbourhood, gram: FloatArray, free: bool) -> list[_Part]:
    """Split the space into even and odd functions along each axis whose reflection preserves V and the edges.

    The problem is convex, so the mean of X and its reflection is at least as good as X. So some optimal X maps even
    functions to even functions, and odd functions to odd functions. In 2-D, this yields four problems, each a quarter
    of the size. If the total is free to measure, X acts only on functions with sum zero.
    """
    shape, rounding = near.domain.shape, 1e-13
    cube, arrivals = gram.reshape(shape * 2), gaussian.arrival_squares(near)
    along = []
    for axis, n in enumerate(shape):
        mirrored = np.flip(cube, (axis, axis + len(shape)))
        functions = [unit := np.eye(n)]
        same = np.abs(mirrored - cube).max() <= rounding * np.abs(cube).max()
        if same and np.array_equal(np.flip(arrivals, axis), arrivals):
            # even (n, ⌈n/2⌉) and odd (n, ⌊n/2⌋) functions
            functions = [(unit + unit[::-1])[:, : n - n // 2], (unit - unit[::-1])[:, : n // 2]]
        along.append([scipy.sparse.csr_array(each / np.sqrt((each * each).sum(axis=0))) for each in functions])
    parts = []
    for axes in itertools.product(*along):
        basis = scipy.sparse.csr_array(functools.reduce(lambda a, b: scipy.sparse.kron(a, b, "csr"), axes))
        if not basis.shape[1]:
            continue
        form = np.asarray(basis.T @ (basis.T @ gram).T)
        ones, within = basis.sum(axis=0), np.eye(len(form))
        if free and ones @ ones > 0.5:
            # The Householder reflection that maps 1 = (1, …, 1) to the first axis provides a basis orthogonal to 1.
            normal = ones / np.linalg.norm(ones)
            normal[0] += 1
            within = (within - np.outer(normal, normal) * (2 / (normal @ normal)))[:, 1:]
        value, vector = scipy.linalg.eigh(within.T @ form @ within)
        keep = value > rounding * np.trace(gram)
        parts.append(_Part(basis, within @ (vector[:, keep] * np.sqrt(value[keep]))))  # FFᵀ = V
    return parts


def _weighted_laplacian(weight: FloatArray, edges: IntArray, size: int) -> FloatArray:
    """Return L = E diag(λ) Eᵀ (N, N)."""
    start, end = edges.T
    moves = start >= 0
    out = np.bincount(start[moves] * size + end[moves], -weight[moves], size * size).astype(np.float64)
    out = out.reshape(size, size)
    out = out + out.T
    out[np.diag_indices(size)] = -out.sum(axis=0) + np.bincount(end[~moves], weight[~moves], size)
    return out


def _geometric_mean(parts: list[_Part], laplacian: FloatArray) -> tuple[FloatArray, float, float]:
    """Return the geometric mean X (N, N) of L⁻¹ and V, then tr(V X⁻¹), and f(λ) rounded down.

    For V = FFᵀ of any rank, X = F (FᵀLF)^-½ Fᵀ, because X L X = F Fᵀ = V. Then tr(V X⁻¹) = tr(L X) = tr((FᵀLF)^½) =
    f(λ). In each part, f(λ) is the sum of the square roots of the eigenvalues of FᵀLF. Rounding may change an
    eigenvalue by `error`. So X uses at least `error` for every eigenvalue, and the bound subtracts `error` from each.
    """
    form, value, bound = np.zeros_like(laplacian), 0.0, 0.0
    for part in parts:
        if part.factor.shape[1]:
            inner = part.factor.T @ part.restrict(laplacian) @ part.factor
            squared, vector = scipy.linalg.eigh(inner)
            error = len(squared) * np.finfo(float).eps * squared[-1]
            root = np.sqrt(np.maximum(squared, error))
            spread = part.factor @ (vector / np.sqrt(root))
            form += part.extend(spread @ spread.T)
            value += float(root.sum())
            bound += float(np.sqrt(np.maximum(squared - error, 0)).sum())
    return form, value, bound


def _square_root(form: FloatArray, parts: list[_Part]) -> FloatArray:
    """Return the symmetric square root (N, N) of a form that decouples the parts."""
    out = np.zeros_like(form)
    for part in parts:
        value, vector = scipy.linalg.eigh(part.restrict(form))
        out += part.extend((vector * np.sqrt(np.maximum(value, 0))) @ vector.T)
    return (out + out.T) / 2


def _round_root(root: FloatArray, free: bool, mean_variance: Callable[[NDArray[Any]], float], loss: float) -> IntArray:
    """Return round(2^bits · A) with the fewest bits for which the mean variance rises by at most the fraction `loss`.

    If the total is free to measure, the same integer is added to all entries. This integer cancels exactly in every
    move, and in every answer if the total is known. The total is then measured as precisely as the best-measured wave,
    but no more precisely, because an unpublished total (if rows were dropped) should stay noisy.
    """
    total = float(scipy.linalg.norm(root, 2)) / len(root) if free else 0.0
    exact = mean_variance(root + total)
    out = np.zeros(root.shape, dtype=np.int64)
    for bits in range(6, 32):
        finer = np.rint(np.ldexp(root, bits)).astype(np.int64)
        finer += math.ceil(math.ldexp(total, bits))
        if not _entries_fit(finer):
            break
        out = finer
        if bits % 2 == 0 and mean_variance(out) <= (1 + loss) * exact:
            break
    return out


def _entries_fit(matrix: IntArray) -> bool:
    """Return whether squared distances between rows fit in 64 bits."""
    return 4 * len(matrix) * int(np.abs(matrix).max()) ** 2 < 2**62


def _is_invertible(matrix: IntArray) -> bool:
    """Return whether a symmetric matrix is positive definite and not nearly singular."""
    dense = matrix.astype(np.float64)
    try:
        factor = scipy.linalg.cholesky(dense)
    except np.linalg.LinAlgError:
        return False
    reciprocal, _ = scipy.linalg.lapack.dpocon(factor, float(np.abs(dense).sum(axis=0).max()))
    return bool(reciprocal > 1e-10)
