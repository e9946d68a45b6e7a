"""Optimal: the strategy of least mean variance under Gaussian noise, by convex optimisation, with a certificate.

Problem: minimise tr(V X⁻¹) over X = AᵀA, where V = QᵀQ of the workload, subject to eᵀ X e ≤ w_e² for every
column e of the incidence matrix. w_e is the least factor that a neighbourhood's limits promise for the edge, 1 within
δ. Let E have the columns e / w_e, so that all bounds are one. Where membership is fixed, the total is public, and all
is meant on the space of cell vectors that add up to zero, which contains the columns of E.

Lower bound: let λ ≥ 0 add up to one and L = E diag(λ) Eᵀ, so that tr(L X) ≤ 1 for every feasible X. With the
orthogonal U of the polar decomposition of V^½ L^½, and Cauchy and Schwarz,

    f(λ) := tr (L^½ V L^½)^½ = tr(U V^½ X^-½ · X^½ L^½) ≤ √tr(V X⁻¹) · √tr(L X) ≤ √tr(V X⁻¹),

so f(λ)² bounds the optimum from below. The two sides of Cauchy and Schwarz are equal for X⁻¹ V X⁻¹ ∝ L, that
is for X ∝ L^-½ (L^½ V L^½)^½ L^-½, the geometric mean of L⁻¹ and V, for which tr(V X⁻¹) = tr(L X) = f(λ).
Divided by its largest eᵀ X e it is feasible. The gap between the two closes at the best λ, where every edge
of λ > 0 has the same, largest, eᵀ X e.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, DenseDecoder
from deltahist.decode.forms import FloatArray, IntArray
from deltahist.errors import InputError, check_positive
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Workload, range_gram
from deltahist.strategies.base import Strategy
from deltahist.strategies.gaussian import (
    Ascent,
    BestGaussian,
    arrival_squares,
    bound_levels,
    pack_integers,
    unpack_integers,
)

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood

#: Every step of the optimisation decomposes matrices of up to this size.
MOST_CELLS = 2000
#: Steps after which the optimisation ends.
MOST_STEPS = 200
#: Entries are bounded so that 4 N max² stays below this, and no exact sum overflows int64.
_MOST_SQUARED = 2**62


class Certificate(NamedTuple):
    """How good a strategy is known to be, by variances at σ = Δ₂, that is, at ρ = 1/2.

    `primal` is the mean variance of the workload's queries under the strategy in integers with its exact Δ₂. `dual` is
    a lower bound on the mean variance of every strategy.
    """

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """primal / dual - 1: the strategy is at most this much (as a share) worse than the best."""
        return self.primal / self.dual - 1 if self.primal else 0.0


@dataclass(frozen=True, eq=False)
class Optimal(BestGaussian):
    """The best Gaussian strategy for a workload, in integers; for at most 2,000 cells.

    N rows, one dense symmetric matrix, computed when first used (some seconds at 32 × 32 cells). The certified gap to
    the optimum is `certificate.gap`. `describe` holds the matrix, so that reading a release optimises nothing. Source:
    the module's docstring; Li et al. 2010 for any move.

    Parameters
    ----------
    near : the neighbourhood; limits beyond δ are bounds as well.
    workload : the workload whose mean variance is least; all ranges when None.
    gap : certified gap at which the optimisation ends.

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
    """

    near: Neighbourhood
    workload: Workload | None = None
    gap: float = 1e-3
    texts: ClassVar[tuple[str, ...]] = ("optimal",)

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        # On more cells it takes seconds, and Spectral is close enough.
        if norm == 2 and 1 < near.domain.size <= 400:
            yield "Optimal", cls(near, workload)

    def __post_init__(self) -> None:
        check_positive(gap=self.gap)
        _check_size(self.domain)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (self.domain.size, self.domain.size)

    @functools.cached_property
    def solution(self) -> tuple[IntArray, Certificate]:
        """The rows and their certificate; the optimisation runs here."""
        return solve_optimal(self.near, workload_gram(self.workload, self.domain), float(self.gap))

    @property
    def certificate(self) -> Certificate:
        """How far from the optimum the strategy can be."""
        return self.solution[1]

    @property
    def rows(self) -> IntArray:
        """The rows (N, N), symmetric, dense."""
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

    def check_points(self, number: float) -> None:
        largest = int(np.abs(self.rows).max())
        if number * largest >= 2.0**62:
            raise InputError(
                f"counts add up to {number:.3g}: this strategy's entries of up to {largest:,} allow at most "
                f"{2.0**62 / largest:.3g} points"
            )

    def decoder_class(self) -> type[Decoder]:
        return DenseDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> int:
        edges = near.edges()
        if norm == 2:
            return int(evaluate_edges(self._gram, edges).max(initial=0))
        most, rows, step = 0, self.rows, max(1, 4_000_000 // self.domain.size)
        for start in range(0, len(edges), step):
            part = edges[start : start + step]
            # The null vertex has no column.
            change = rows[part[:, 1]] - np.where(part[:, :1] < 0, 0, rows[part[:, 0]])
            most = max(most, int(np.abs(change).sum(axis=1).max()))
        return most

    def describe(self) -> dict[str, Any]:
        return {"strategy": "Optimal", "matrix": self._packed_triangle, **self.certificate._asdict()}

    @functools.cached_property
    def _packed_triangle(self) -> str:
        return pack_integers(self.rows[np.tril_indices(self.domain.size)])

    @classmethod
    def restore(cls, domain: Domain, *, matrix: Any, primal: Any, dual: Any) -> Optimal:  # type: ignore[override]
        """Return the strategy of a description, which is not trusted; nothing is optimised again.

        The author of the description states the two figures of the certificate. The cost and the errors are always
        computed from the matrix.
        """
        _check_size(domain)
        known = all(isinstance(f, float) and math.isfinite(f) and f >= 0 for f in (primal, dual))
        if not known or dual > 1.001 * primal or (dual == 0) != (primal == 0):
            raise InputError(
                "the certificate of strategy Optimal is damaged: it must be two variances, dual not above primal"
            )
        rows, columns = np.tril_indices(domain.size)
        out = np.empty((domain.size, domain.size), dtype=np.int64)
        out[rows, columns] = out[columns, rows] = unpack_integers(
            matrix, (len(rows),), "the matrix of strategy Optimal"
        )
        if not _entries_fit(out) or not _is_invertible(out):
            raise InputError("the matrix of strategy Optimal is damaged: it is too large or not invertible")
        return cls._from_solution(domain=domain, solution=(out, Certificate(primal, dual)))


def _check_size(domain: Domain) -> None:
    if domain.size > MOST_CELLS:
        raise InputError(
            f"the domain has {domain.size:,} cells: the optimal strategy is found for at most {MOST_CELLS:,} "
            "(use the strategy Spectral, which is nearly as good on grids of any size)"
        )


def solve_optimal(near: Neighbourhood, gram: FloatArray, gap: float) -> tuple[IntArray, Certificate]:
    """Return the optimal strategy in integers for V (N, N), certified to within a gap.

    Raises InputError if the certified gap is above 5% after 200 steps, or V asks for nothing but a public total.
    """
    domain, (edges, bounds) = near.domain, edge_bounds(near)
    # With fixed membership nothing changes the total, which may be measured at any precision.
    free = not (edges < 0).any()
    if not len(edges):
        return np.ones((1, 1), dtype=np.int64), Certificate(0.0, 0.0)
    parts = _split_symmetric(near, gram, free)
    rank = sum(part.factor.shape[1] for part in parts)
    if not rank:
        raise InputError("the workload asks for the total alone, which is public: noise has nothing to hide")
    # The iteration may use 80% of the gap, making unused cells invertible 5%, and rounding 10%.
    best, dual, steps = _maximise_bound(parts, edges, bounds, domain.size, 0.8 * gap)
    if rank < domain.size - free:
        # A convex combination of feasible matrices: the identity costs at most its own share.
        best = (1 - 0.05 * gap) * best + 0.05 * gap / 2 * np.eye(domain.size)

    def mean_variance(matrix: NDArray[Any]) -> float:
        """Return the mean variance of the queries at σ = Δ₂; infinite if the matrix is not positive definite."""
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

    matrix = _round_root(_square_root(best, parts), free, mean_variance, 0.1 * gap)
    certificate = Certificate(mean_variance(matrix), dual)
    if not certificate.gap <= max(0.05, gap):
        raise InputError(
            f"the optimal strategy was not found: after {steps} steps it is only known to be within "
            f"{certificate.gap:.1%} of the optimum (use the strategy Spectral, or larger cells)"
        )
    assert _is_invertible(matrix)
    return matrix, certificate


def edge_bounds(near: Neighbourhood) -> tuple[IntArray, FloatArray]:
    """Return all edges (M, 2) of a neighbourhood's relations, and the least bounds (M,) on their squared costs.

    Arrivals follow moves, as in `Neighbourhood.edges`.

    >>> import math, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 3), (3,)), 1, limits=[(math.inf, 2)])
    >>> [each.tolist() for each in edge_bounds(near)]
    [[[0, 1], [1, 2], [0, 2]], [1.0, 1.0, 4.0]]
    """
    edges = near.relations[-1][1].edges()  # the widest relation holds all moves
    edges = edges[edges[:, 0] >= 0]
    start, end = (np.array(np.unravel_index(side, near.domain.shape)) for side in edges.T)
    place, squares = bound_levels(near)
    arrivals = arrival_squares(near).ravel()
    entry = np.flatnonzero(np.isfinite(arrivals))
    entries = np.column_stack([np.full_like(entry, -1), entry])
    bounds = squares[place[tuple(np.abs(end - start))]], arrivals[entry]
    return np.concatenate([edges, entries]), np.concatenate(bounds)


def workload_gram(work: Workload | None, domain: Domain) -> FloatArray:
    """Return V = QᵀQ (N, N) over the number of queries; all ranges when None."""
    if work is None or (isinstance(work, AllRanges) and work.domain == domain):
        return range_gram(domain) / len(AllRanges(domain))
    if not len(work):
        raise InputError("the workload has no queries")
    rows = work.matrix(domain)
    return (rows.T @ rows).toarray() / len(work)


def exact_gram(matrix: IntArray) -> IntArray:
    """Return AᵀA (N, N) of a symmetric matrix, exact: products of 16-bit limbs whose sums a float holds."""
    limit = len(matrix) * int(np.abs(matrix).max()) ** 2
    if limit < 2**53:
        whole = matrix.astype(np.float64)
        return (whole @ whole).astype(np.int64)
    assert limit < _MOST_SQUARED
    low = ((matrix + 2**15) & 0xFFFF) - 2**15
    high = ((matrix - low) >> 16).astype(np.float64)
    low = low.astype(np.float64)
    cross = (high @ low).astype(np.int64)
    return ((high @ high).astype(np.int64) << 32) + ((cross + cross.T) << 16) + (low @ low).astype(np.int64)


def evaluate_edges(form: NDArray[Any], edges: IntArray) -> NDArray[Any]:
    """Return eᵀ X e (M,) of a symmetric X (N, N), for every edge (M, 2) of `Neighbourhood.edges`."""
    start, end = edges.T
    diagonal = np.diagonal(form)
    moved = diagonal[start] + diagonal[end] - 2 * form[start, end]
    return np.where(start < 0, diagonal[end], moved)


@dataclass(frozen=True, eq=False)
class _Part:
    """A space that the neighbourhood and the workload leave apart from the others.

    `basis` has orthonormal columns (N, m), sparse; with `factor` F (m, r), FFᵀ is V on the space.
    """

    basis: scipy.sparse.csr_array
    factor: FloatArray

    def restrict(self, form: FloatArray) -> FloatArray:
        """Return the restriction (m, m) of a symmetric matrix (N, N) to the space."""
        return np.asarray(self.basis.T @ (self.basis.T @ form).T)

    def extend(self, form: FloatArray) -> FloatArray:
        """Return the inverse of `restrict`: zero on the other spaces."""
        return np.asarray(self.basis @ (self.basis @ form).T)


def _split_symmetric(near: Neighbourhood, gram: FloatArray, free: bool) -> list[_Part]:
    """Return even and odd functions along every axis whose reflection changes nothing; else the one whole space.

    Where reflecting the domain changes neither V nor the edges, the mean of X and its reflection is no worse than X
    (the problem is convex): X may be taken symmetric, and maps even functions to even ones, odd ones to odd ones. In
    2-D that makes four problems of a quarter of the size. Where the total is free, X acts on functions that add up to
    zero.
    """
    shape, rounding = near.domain.shape, 1e-13
    cube, arrivals = gram.reshape(shape * 2), arrival_squares(near)
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
            # Householder's reflection of the ones to the first axis leaves the columns at right angles to them.
            normal = ones / np.linalg.norm(ones)
            normal[0] += 1
            within = (within - np.outer(normal, normal) * (2 / (normal @ normal)))[:, 1:]
        value, vector = scipy.linalg.eigh(within.T @ form @ within)
        keep = value > rounding * np.trace(gram)
        parts.append(_Part(basis, within @ (vector[:, keep] * np.sqrt(value[keep]))))  # FFᵀ = V
    return parts


def _maximise_bound(
    parts: list[_Part], edges: IntArray, bounds: FloatArray, size: int, gap: float
) -> tuple[FloatArray, float, int]:
    """Return the best feasible X (N, N), the best lower bound, and the steps taken.

    Every λ gives both: with X the geometric mean for it, f(λ)² is a lower bound, and X over its largest eᵀXe (of
    columns over their w) is feasible, of the variance tr(V X⁻¹) max eᵀXe = f max eᵀXe. The mean of eᵀXe over λ is
    tr(L X) = f, so that λ is the best where eᵀXe / f is one wherever λ_e > 0; edges above one get more (`Ascent`).
    """
    primal, dual, best, step = math.inf, 0.0, np.zeros((0, 0)), 0
    # Every bound has the same share at first, or the many long moves would have it all. No λ falls below a millionth of
    # the mean (for a gap of 10⁻³), since an edge may have to come back.
    _, place, number = np.unique(bounds, return_inverse=True, return_counts=True)
    ascent = Ascent(-np.log(number[place]), floor=gap / 1000 / len(place))
    while primal > (1 + gap) * dual and step < MOST_STEPS:
        step += 1
        weight = ascent.current_weights()
        form, value, bound = _geometric_mean(parts, _weighted_laplacian(weight / bounds, edges, size))
        squares = evaluate_edges(form, edges) / bounds
        most = float(squares.max())
        dual = max(dual, bound * bound)
        if value * most < primal:
            primal, best = value * most, form / most
        ascent.take_step(weight, squares / value, bound)
    return best, dual, step


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
    """Return the geometric mean X (N, N) of L⁻¹ and V, tr(V X⁻¹), and f(λ) (in floats a little less).

    With V = FFᵀ it is X = F (FᵀLF)^-½ Fᵀ, which takes a V of any rank: X L X = F Fᵀ = V, which is X⁻¹ V X⁻¹ = L where
    X has an inverse. Then tr(V X⁻¹) = tr(L X) = tr((FᵀLF)^½) = f(λ), part by part the sum of the roots of the
    eigenvalues of FᵀLF. These are known to within rounding: X takes none below that, the bound the rest alone.
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
    """Return the symmetric square root (N, N) of a form that leaves the parts apart."""
    out = np.zeros_like(form)
    for part in parts:
        value, vector = scipy.linalg.eigh(part.restrict(form))
        out += part.extend((vector * np.sqrt(np.maximum(value, 0))) @ vector.T)
    return (out + out.T) / 2


def _round_root(root: FloatArray, free: bool, mean_variance: Callable[[NDArray[Any]], float], loss: float) -> IntArray:
    """Return round(2^bits · A) with the fewest bits that raise the mean variance by less than the loss (a share).

    Where the total is free, one whole number is added to all entries. It cancels out of every move exactly, and
    out of every answer once the total is known. It measures the total as well as the best-measured wave, and no
    better, because a total that is not published (rows were dropped) should stay in noise.
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
    return 4 * len(matrix) * int(np.abs(matrix).max()) ** 2 < _MOST_SQUARED


def _is_invertible(matrix: IntArray) -> bool:
    """Return whether a symmetric matrix is positive definite, and not nearly singular."""
    dense = matrix.astype(np.float64)
    try:
        factor = scipy.linalg.cholesky(dense)
    except np.linalg.LinAlgError:
        return False
    reciprocal, _ = scipy.linalg.lapack.dpocon(factor, float(np.abs(dense).sum(axis=0).max()))
    return bool(reciprocal > 1e-10)
