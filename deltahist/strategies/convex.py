"""The convex programme of the best Gaussian strategy: its solution in whole numbers, with a certificate.

Problem: minimise tr(V X⁻¹) over X = AᵀA, where V = QᵀQ of the workload, subject to eᵀ X e ≤ w_e² for every
column e of the incidence matrix, w_e the least factor that a neighbourhood's limits promise for it, one within δ. Let E
have the columns e / w_e, so that all bounds are one. Where nobody comes or goes the total is public: all is meant on
the space of cell vectors that add up to zero, on which the columns of E lie.

Lower bound: let λ ≥ 0 add up to one and L = E diag(λ) Eᵀ, so that tr(L X) ≤ 1 for every feasible X. With the
orthogonal U of the polar decomposition of V^½ L^½, and Cauchy and Schwarz,

    f(λ) := tr (L^½ V L^½)^½ = tr(U V^½ X^-½ · X^½ L^½) ≤ √tr(V X⁻¹) · √tr(L X) ≤ √tr(V X⁻¹),

so f(λ)² bounds the optimum from below. The two sides of Cauchy and Schwarz are equal for X⁻¹ V X⁻¹ ∝ L, that
is for X ∝ L^-½ (L^½ V L^½)^½ L^-½, the geometric mean of L⁻¹ and V, for which tr(V X⁻¹) = tr(L X) = f(λ);
divided by its largest eᵀ X e it is feasible. The gap between the two closes at the best λ, where every edge
of λ > 0 has the same, largest, eᵀ X e.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Workload, range_gram
from deltahist.strategies.gaussian import Ascent, bound_levels

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood

#: Steps after which the optimisation ends, and the certified gap that is still of use then.
MOST_STEPS = 200
WORST_GAP = 0.05
#: How much of the gap that is asked for is left to the iteration; the rest is for what follows it.
_OF_GAP = 0.8
#: Part of the gap that makes the cells invertible which the workload does not ask for.
_MIXED = 0.05
#: Loss by rounding to whole numbers, as part of the gap.
_ROUNDED = 0.1
#: Eigenvalues of V below this part of its largest are zero.
_RANK = 1e-13
#: Entries are bounded so that 4 N max² stays below this: then no exact sum overflows int64.
_MOST_SQUARED = 2**62
#: Condition (reciprocal, 1-norm) of a matrix that is not invertible for practical purposes.
_SINGULAR = 1e-10


@dataclass(frozen=True)
class Certificate:
    """How good a strategy is known to be: variances for noise of σ = Δ₂, which is ρ = 1/2.

    Parameters
    ----------
    primal : mean variance of the workload's queries, of the strategy in whole numbers with its exact Δ₂.
    dual : what no strategy's mean variance is below.
    """

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """primal / dual - 1: the strategy is at most this much (as a share) worse than the best."""
        return self.primal / self.dual - 1 if self.primal else 0.0


@dataclass(frozen=True, eq=False)
class Solution:
    """A solution: its domain, the symmetric int64 matrix (N, N), and its certificate."""

    domain: Domain
    matrix: NDArray[np.int64]
    certificate: Certificate


def solve(near: Neighbourhood, gram: NDArray[np.float64], gap: float) -> Solution:
    """Return the optimal strategy in whole numbers, certified.

    Parameters
    ----------
    near : the neighbourhood. gram : V (N, N) of the workload, over its number of queries.
    gap : certified gap to end at.

    Raises
    ------
    InputError
        If the certified gap is above 5% after 200 steps, or the workload asks for nothing but a public total.
    """
    domain, bounds = near.domain, EdgeBounds.of(near)
    # With nobody to come or go nothing changes the total: it may be measured at any precision.
    free = not (bounds.edges < 0).any()
    if not len(bounds.edges):
        return Solution(domain, np.ones((1, 1), dtype=np.int64), Certificate(0.0, 0.0))
    parts = _parts(near, gram, free)
    if not sum(part.factor.shape[1] for part in parts):
        raise InputError("the workload asks for nothing that noise must hide: the total alone is public")
    best, dual, steps = _maximise(parts, bounds, domain.size, _OF_GAP * gap)
    if sum(part.factor.shape[1] for part in parts) < domain.size - free:
        # A convex combination of feasible matrices; what it mixes in costs at most its own share.
        best = (1 - _MIXED * gap) * best + _MIXED * gap / 2 * np.eye(domain.size)
    matrix = _whole(_root(best, parts), bounds, gram, free, _ROUNDED * gap)
    primal = _mean_variance(matrix, bounds, gram, free)
    certificate = Certificate(primal, dual)
    if not certificate.gap <= max(WORST_GAP, gap):
        raise InputError(
            f"the optimal strategy was not found: after {steps} steps it is only known to be within "
            f"{certificate.gap:.1%} of the optimum (use the strategy Spectral, or larger cells)"
        )
    assert invertible(matrix)
    return Solution(domain, matrix, certificate)


def workload_gram(work: Workload | None, domain: Domain) -> NDArray[np.float64]:
    """Return V = QᵀQ (N, N) over the number of queries; all ranges when None."""
    if work is None or (isinstance(work, AllRanges) and work.domain == domain):
        return range_gram(domain) / len(AllRanges(domain))
    if not len(work):
        raise InputError("the workload has no queries: there is nothing to be optimal for")
    rows = work.matrix(domain)
    return (rows.T @ rows).toarray() / len(work)


def exact_gram(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
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


def edge_squares(form: NDArray[Any], edges: NDArray[np.int64]) -> NDArray[Any]:
    """Return eᵀ X e (M,) of a symmetric X (N, N), for every edge (M, 2) of `Neighbourhood.edges`."""
    start, end = edges.T
    diagonal = np.diagonal(form)
    moved = diagonal[start] + diagonal[end] - 2 * form[start, end]
    return np.where(start < 0, diagonal[end], moved)


@dataclass(frozen=True, eq=False)
class _Part:
    """A space that the neighbourhood and the workload leave apart from the others.

    basis : orthonormal columns (N, m), sparse. factor : F (m, r), FFᵀ is V on the space.
    """

    basis: scipy.sparse.csr_array
    factor: NDArray[np.float64]

    def inside(self, form: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the restriction (m, m) of a symmetric matrix (N, N) to the space."""
        return np.asarray(self.basis.T @ (self.basis.T @ form).T)

    def outside(self, form: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the inverse of `inside`: zero on the other spaces."""
        return np.asarray(self.basis @ (self.basis @ form).T)


def _parts(near: Neighbourhood, gram: NDArray[np.float64], free: bool) -> list[_Part]:
    """Return even and odd functions along every axis whose reflection changes nothing; else the one whole space.

    Where reflecting the domain changes neither V nor the edges, the mean of X and its reflection is no worse than X
    (the problem is convex): X may be taken symmetric, and maps even functions to even ones, odd ones to odd ones. In
    2-D that makes four problems of a quarter of the size. Where the total is free, X acts on functions that add up to
    zero.
    """
    shape = near.domain.shape
    cube, arrivals = gram.reshape(shape * 2), arrival_squares(near)
    along = []
    for axis, n in enumerate(shape):
        mirrored = np.flip(cube, (axis, axis + len(shape)))
        same = np.abs(mirrored - cube).max() <= _RANK * np.abs(cube).max()
        even = same and np.array_equal(np.flip(arrivals, axis), arrivals)
        along.append(_mirrored(n) if even else [scipy.sparse.eye_array(n, format="csr")])
    parts = []
    for axes in itertools.product(*along):
        basis = scipy.sparse.csr_array(functools.reduce(lambda a, b: scipy.sparse.kron(a, b, "csr"), axes))
        if not basis.shape[1]:
            continue
        form = np.asarray(basis.T @ (basis.T @ gram).T)
        ones = basis.sum(axis=0)
        within = _orthogonal(ones) if free and ones @ ones > 0.5 else np.eye(len(form))
        value, vector = scipy.linalg.eigh(within.T @ form @ within)
        keep = value > _RANK * np.trace(gram)
        parts.append(_Part(basis, within @ (vector[:, keep] * np.sqrt(value[keep]))))  # FFᵀ = V
    return parts


def _mirrored(n: int) -> list[scipy.sparse.csr_array]:
    """Return orthonormal even (n, ⌈n/2⌉) and odd (n, ⌊n/2⌋) functions on n points."""
    unit = np.eye(n)
    even, odd = unit + unit[::-1], unit - unit[::-1]
    halves = even[:, : n - n // 2], odd[:, : n // 2]
    return [scipy.sparse.csr_array(h / np.sqrt((h * h).sum(axis=0))) for h in halves]


def _orthogonal(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return orthonormal columns (m, m - 1) at right angles to a vector (m,) whose first entry is not negative."""
    normal = vector / np.linalg.norm(vector)
    normal[0] += 1  # Householder's reflection to the first axis
    return (np.eye(len(normal)) - np.outer(normal, normal) * (2 / (normal @ normal)))[:, 1:]


def _maximise(
    parts: list[_Part], bounds: EdgeBounds, size: int, gap: float
) -> tuple[NDArray[np.float64], float, int]:
    """Return the best feasible X (N, N), the best lower bound, and the steps taken.

    Every λ gives both: with X the geometric mean for it, f(λ)² is a lower bound, and X over its largest eᵀXe (of
    columns over their w) is feasible, of the variance tr(V X⁻¹) max eᵀXe = f max eᵀXe. The mean of eᵀXe over λ is
    tr(L X) = f, so that λ is the best where eᵀXe / f is one wherever λ_e > 0; edges above one get more (`Ascent`).
    """
    primal, dual, best, step = math.inf, 0.0, np.zeros((0, 0)), 0
    # Not below a millionth of the mean (for a gap of 10⁻³): an edge may have to come back.
    # Every bound has the same share at first, or the many long moves would have it all.
    _, place, number = np.unique(bounds.squares, return_inverse=True, return_counts=True)
    ascent = Ascent(-np.log(number[place]), floor=gap / 1000 / len(place))
    while primal > (1 + gap) * dual and step < MOST_STEPS:
        step += 1
        weight = ascent.weight()
        form, value, bound = _mean(parts, _laplacian(weight / bounds.squares, bounds.edges, size))
        squares = edge_squares(form, bounds.edges) / bounds.squares
        most = float(squares.max())
        dual = max(dual, bound * bound)
        if value * most < primal:
            primal, best = value * most, form / most
        ascent.step(weight, squares / value, bound)
    return best, dual, step


def _laplacian(weight: NDArray[np.float64], edges: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Return L = E diag(λ) Eᵀ (N, N)."""
    start, end = edges.T
    moves = start >= 0
    out = np.bincount(start[moves] * size + end[moves], -weight[moves], size * size).astype(np.float64)
    out = out.reshape(size, size)
    out = out + out.T
    out[np.diag_indices(size)] = -out.sum(axis=0) + np.bincount(end[~moves], weight[~moves], size)
    return out


def _mean(parts: list[_Part], laplacian: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """Return the geometric mean X (N, N) of L⁻¹ and V, tr(V X⁻¹), and f(λ) (in floats a little less).

    With V = FFᵀ it is X = F (FᵀLF)^-½ Fᵀ, which takes a V of any rank: X L X = F Fᵀ = V, which is X⁻¹ V X⁻¹ = L where
    X has an inverse. Then tr(V X⁻¹) = tr(L X) = tr((FᵀLF)^½) = f(λ), part by part the sum of the roots of the
    eigenvalues of FᵀLF. These are known to within rounding: X takes none below that, the bound the rest alone.
    """
    form, value, bound = np.zeros_like(laplacian), 0.0, 0.0
    for part in parts:
        if part.factor.shape[1]:
            inner = part.factor.T @ part.inside(laplacian) @ part.factor
            squared, vector = scipy.linalg.eigh(inner)
            error = len(squared) * np.finfo(float).eps * squared[-1]
            root = np.sqrt(np.maximum(squared, error))
            spread = part.factor @ (vector / np.sqrt(root))
            form += part.outside(spread @ spread.T)
            value += float(root.sum())
            bound += float(np.sqrt(np.maximum(squared - error, 0)).sum())
    return form, value, bound


def _root(form: NDArray[np.float64], parts: list[_Part]) -> NDArray[np.float64]:
    """Return the symmetric square root (N, N) of a form that leaves the parts apart."""
    out = np.zeros_like(form)
    for part in parts:
        value, vector = scipy.linalg.eigh(part.inside(form))
        out += part.outside((vector * np.sqrt(np.maximum(value, 0))) @ vector.T)
    return (out + out.T) / 2


def _whole(
    root: NDArray[np.float64],
    bounds: EdgeBounds,
    gram: NDArray[np.float64],
    free: bool,
    loss: float,
) -> NDArray[np.int64]:
    """Return round(2^bits · A) with the fewest bits that raise the mean variance by less than the loss (a share).

    Where the total is free, one whole number is added to all entries. It cancels out of every move exactly, and
    out of every answer once the total is known; it measures the total as well as the best-measured wave, and no
    better, because a total that is not published (rows were dropped) should stay in noise.
    """
    total = float(scipy.linalg.norm(root, 2)) / len(root) if free else 0.0
    exact = _mean_variance(root + total, bounds, gram, free)
    out = np.zeros(root.shape, dtype=np.int64)
    for bits in range(6, 32):
        finer = np.rint(np.ldexp(root, bits)).astype(np.int64)
        finer += math.ceil(math.ldexp(total, bits))
        if not entries_fit(finer):
            break
        out = finer
        if bits % 2 == 0 and _mean_variance(out, bounds, gram, free) <= (1 + loss) * exact:
            break
    return out


def _mean_variance(matrix: NDArray[Any], bounds: EdgeBounds, gram: NDArray[np.float64], free: bool) -> float:
    """Return the mean variance of the queries at σ = Δ₂; infinite if the matrix is not positive definite."""
    square = exact_gram(matrix) if matrix.dtype == np.int64 else matrix @ matrix
    scale = math.sqrt((edge_squares(square, bounds.edges) / bounds.squares).max())
    try:
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix / scale), np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return math.inf
    cells = inverse @ inverse
    if free:  # given the total
        along = cells.sum(axis=0)
        cells -= np.outer(along, along) / along.sum()
    return float(np.einsum("ij,ij->", cells, gram))


def entries_fit(matrix: NDArray[np.int64]) -> bool:
    return 4 * len(matrix) * int(np.abs(matrix).max()) ** 2 < _MOST_SQUARED


def invertible(matrix: NDArray[np.int64]) -> bool:
    """Return whether a symmetric matrix is positive definite, and not nearly singular."""
    dense = matrix.astype(np.float64)
    try:
        factor = scipy.linalg.cholesky(dense)
    except np.linalg.LinAlgError:
        return False
    reciprocal, _ = scipy.linalg.lapack.dpocon(factor, float(np.abs(dense).sum(axis=0).max()))
    return bool(reciprocal > _SINGULAR)


def arrival_squares(near: Neighbourhood) -> NDArray[np.float64]:
    """Return the bound on the squared cost of an arrival in each cell (domain.shape); infinite where there is none."""
    out = np.full(near.domain.shape, np.inf)
    if not near.fixed_membership:
        for factor, relation in reversed(near.relations):
            out[relation.source_cells] = float(factor) ** 2
    return out


class EdgeBounds(NamedTuple):
    """All edges (M, 2) of a neighbourhood's relations, and the bounds (M,) on their squared costs.

    Examples
    --------
    >>> import math, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 3), (3,)), 1, limits=[(math.inf, 2)])
    >>> bounds = EdgeBounds.of(near)
    >>> bounds.edges.tolist(), bounds.squares.tolist()
    ([[0, 1], [1, 2], [0, 2]], [1.0, 1.0, 4.0])
    """

    edges: NDArray[np.int64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, near: Neighbourhood) -> EdgeBounds:
        """Return the bounds of moves, then arrivals, as in `Neighbourhood.edges`: each the least of its relations."""
        shape = near.domain.shape
        edges = near.relations[-1][1].edges()  # the widest relation holds all moves
        edges = edges[edges[:, 0] >= 0]
        start, end = (np.array(np.unravel_index(side, shape)) for side in edges.T)
        place, squares = bound_levels(near)
        moved = squares[place[tuple(np.abs(end - start))]]
        arrivals = arrival_squares(near).ravel()
        entry = np.flatnonzero(np.isfinite(arrivals))
        entries = np.column_stack([np.full_like(entry, -1), entry])
        return cls(np.concatenate([edges, entries]), np.concatenate([moved, arrivals[entry]]))
