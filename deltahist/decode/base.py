"""Decoder: least squares from noisy answers to cells, and the exact error of every query.

Notation: A the strategy, Σ the diagonal noise covariance, V = (AᵀΣ⁻¹A)⁺ the covariance of the cells,
a(q) = Σ⁻¹ A V q the coefficients with which the released values enter the answer to q, so that the answer
is a(q)·y and its variance a(q)ᵀ Σ a(q). Where the total n is public the estimate is moved onto it along V1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.forms import SumOfProducts, evaluate_boxes, mean_over_boxes, multiply_rows
from deltahist.decode.projection import Metric, simulated_metric
from deltahist.errors import InputError, fits_memory, is_number
from deltahist.privacy import Law
from deltahist.space.cover import Pieces, RegionCover, Span, box_sums
from deltahist.space.workloads import AllRanges, Boxes, range_gram

if TYPE_CHECKING:
    from deltahist.space.domain import Domain
    from deltahist.strategies.base import Strategy

#: Boxes, regions, or explicit queries (m, N).
Asked: TypeAlias = "Boxes | AllRanges | RegionCover | scipy.sparse.csr_array"
#: Boxes without a closed form are solved one by one up to this number; more of them are priced by simulated noise.
MOST_SOLVED = 200
#: Simulated noise fields; their number sets Student's quantile of the interval.
REPLICATES = 100
#: All ranges are thinned out to this many where their mean has no closed form.
_SAMPLE = 2000
#: Numbers of a sparse matrix that are dense at a time.
_DENSE = 1 << 16
#: Variances whose square a float still holds; below, noise is too rare for its kurtosis to matter.
LEAST_SQUARED = 1e-140
#: Sums of integer noise with a standard deviation up to this one are treated with their exact law.
_MOST_EXACT = 4.0
#: Squared share of a vector, per cell, below which it is rounding.
_UNSEEN = 1e-9
#: Cells up to which matrices are explicit.
MOST_DENSE = 1024
#: Queries times rows up to which every coefficient is looked at, and queries at a time.
_MOST_COEFFICIENTS, _BATCH = 50_000_000, 1024
#: Least variance of a row, in that of the noisiest one, that weights tell apart.
_LEAST = 1e-11
#: Relative error at which iterations end, and their number at most.
_TOLERANCE, _MOST_STEPS = 1e-12, 20_000


@dataclass(frozen=True)
class Moments:
    """Error of each query: variance (m,), excess kurtosis (m,; NaN if not known), and how the variance is known.

    Parameters
    ----------
    freedom : infinite where the variance is exact or a bound, else the number of simulated noise fields.
    unresolved : share (m,) of the query's squared norm that the strategy does not determine, or None.
    draws : number of noise draws (m,) whose plain sum the answer's noise is, 0 where it is no such sum; or None.
    """

    variance: NDArray[np.float64]
    kurtosis: NDArray[np.float64]
    freedom: float = np.inf
    unresolved: NDArray[np.float64] | None = None
    draws: NDArray[np.float64] | None = None
    note: str = "exact"

    def and_normal(self, variance: NDArray[np.float64]) -> Moments:
        """Return the moments with an independent normal error (m,) besides."""
        total = self.variance + variance
        share = np.divide(self.variance, total, out=np.ones_like(total), where=total > 0)
        draws = None if self.draws is None else np.where(variance > 0, 0.0, self.draws)
        return replace(self, variance=total, kurtosis=self.kurtosis * share**2, draws=draws)


def interval(moments: Moments, law: Law, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far an interval of a given level reaches below and above each estimate.

    The normal (or Student's) quantile with the Cornish-Fisher correction for the excess kurtosis of
    symmetric noise, z + κ (z³ − 3 z) / 24: single Laplace draws need wider intervals than sums of many.
    Where the noise is a sum of whole draws of `law` the interval holds a whole number of integers, whose probability
    is nearest the level. An even number reaches one further up than down: a symmetric interval could miss the level
    by twice as much.
    """
    probability = (1 + level) / 2
    z = -NormalDist().inv_cdf((1 - level) / 2)
    start = z if np.isinf(moments.freedom) else float(scipy.special.stdtrit(moments.freedom, probability))
    # No law needs more than Chebyshev's bound; draws that are nearly always 0 have a huge kurtosis.
    most = 1 / math.sqrt(1 - level)
    # Below z = √3 the correction is negative; where draws are nearly always 0, more so than the quantile is positive.
    kurtosis = np.nan_to_num(moments.kurtosis)
    half = np.clip(start + kurtosis * ((z**3 - 3 * z) / 24), 0.0, most) * np.sqrt(moments.variance)
    down, up = half.copy(), half.copy()
    if moments.draws is None:
        return down, up
    whole = np.flatnonzero(moments.draws > 0)
    integers = np.maximum(np.rint(2 * half[whole]), 1.0)
    draws = moments.draws[whole]
    few = draws * law.variance() <= _MOST_EXACT**2
    numbers, place = np.unique(draws[few], return_inverse=True)
    integers[few] = np.array([_count_integers(law, int(n), level) for n in numbers])[place]
    down[whole] = (integers - 1) // 2 + 0.5
    up[whole] = integers // 2 + 0.5
    return down, up


@functools.lru_cache(maxsize=4096)
def _count_integers(law: Law, draws: int, level: float) -> int:
    """Return the number of integers around 0 with a probability nearest `level`, for a sum of draws."""
    size = 1024
    k = np.minimum(np.arange(size), size - np.arange(size)).astype(np.float64)
    weight = law.weights(k)
    transform = np.fft.rfft(weight / weight.sum())
    pmf = np.fft.irfft(transform**draws, size)
    # 0, 1, −1, 2, −2, ...: the sets that grow by the likeliest integer each time
    order = np.empty(size - 1, dtype=np.int64)
    order[0] = 0
    order[1::2] = np.arange(1, size // 2)
    order[2::2] = -np.arange(1, size // 2)
    return int(np.argmin(np.abs(np.cumsum(pmf[order]) - level))) + 1


def check_level(level: float) -> None:
    """Raise InputError unless the level of an interval lies between 0 and 1."""
    if not is_number(level) or not 0 < level < 1:
        hint = " (a percentage?)" if is_number(level) and 1 < level <= 100 else ""
        raise InputError(f"level is {level!r}: it must lie between 0 and 1, such as 0.95{hint}")


def rows_of(work: Asked, domain: Domain) -> Any:
    """Return queries as rows (m, N)."""
    if isinstance(work, Boxes | AllRanges):
        return work.matrix(domain)
    return work.rows if isinstance(work, RegionCover) else work


class Decoder:
    """Least squares for one strategy and its noise; subclasses give `solve` and `solve_adjoint`.

    Parameters
    ----------
    strategy : A (k, N).
    laws : one noise law per group.
    total_known : whether the number of entities is public, so that estimates add up to it.
    """

    #: How the closed form relates to the truth, as text.
    note = "exact"

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        self.strategy, self.laws, self.total_known = strategy, tuple(laws), total_known
        self.domain = strategy.domain

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return V AᵀΣ⁻¹ y (N,), without the total."""
        raise NotImplementedError

    def solve_adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Σ⁻¹ A V q (k,), the adjoint of `solve`."""
        raise NotImplementedError

    def box_cumulant(self, order: int) -> SumOfProducts | None:
        """Return the closed form over boxes of the variance (order 2) or fourth cumulant (order 4), total included."""
        return None

    @functools.cached_property
    def draw_variance(self) -> NDArray[np.float64]:
        """Variance of each noise draw (draws,)."""
        return self._per_draw([law.variance() for law in self.laws])

    @functools.cached_property
    def draw_kurtosis(self) -> NDArray[np.float64]:
        """Excess kurtosis of each noise draw (draws,)."""
        return self._per_draw([law.kurtosis() for law in self.laws])

    def _per_draw(self, figures: Sequence[float]) -> NDArray[np.float64]:
        out = np.empty(self.strategy.draws)
        for group, figure in zip(self.strategy.groups, figures, strict=True):
            out[group.members] = figure
        return out

    @functools.cached_property
    def onto_total(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """a(1) (k,), the direction in which estimates move onto the total (N,), and its sum.

        The direction is V1 where the rows determine the total; else the part of 1 that no row sees.
        """
        ones = self.solve_adjoint(np.ones(self.domain.size))
        unseen = np.zeros(0)
        if not self.strategy.determines_cells:
            unseen = 1 - np.asarray(self.strategy.rmatvec(ones))
        if unseen @ unseen > _UNSEEN * self.domain.size:
            return ones, unseen, float(unseen.sum())
        direction = self.solve(self.strategy.scatter(self.draw_variance * self.strategy.gather(ones)))
        return ones, direction, float(direction.sum())

    def estimate_cells(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Return least-squares estimates of all cells (domain.shape): A⁺ y, A⁺ = (Aᵀ W A)⁻¹ Aᵀ W, W = 1 / variances.

        Source: 2014, section 5.2, where W is I. Decoding costs no privacy (2015, Proposition 3).
        """
        cells = self.solve(np.asarray(values, dtype=np.float64))
        if self.total_known and total is not None:
            _, direction, spread = self.onto_total
            if spread > 0:
                cells = cells + direction * ((total - cells.sum()) / spread)
        return cells.reshape(self.domain.shape)

    def estimate_on_grid(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Return estimates on the grid of `noise_metric`, which holds the domain; here they are the same.

        A decoder with another grid also overrides `noise_metric`.
        """
        return self.estimate_cells(values, total)

    def noise_metric(self) -> Metric:
        """Return the metric of the estimates' noise, from simulated noise, which anybody may draw.

        Simulated spectra are smoothed over neighbouring frequencies. An error in them makes the non-negative estimate
        a little less sharp, not wrong.
        """
        rng = np.random.default_rng(20140605)
        return simulated_metric(lambda: self.simulate_noise(rng), self.domain.shape, total_known=self.total_known)

    def simulate_noise(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw normal noise of `estimate_on_grid`, with the same joint variances."""
        spread = np.sqrt(self.draw_variance)
        values = self.strategy.scatter(rng.normal(size=len(spread)) * spread)
        return self.estimate_on_grid(values, 0 if self.total_known else None)

    def answer_coefficients(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(q) (k,): how the released values enter the answer to q (N,), beside the public total."""
        own = self.solve_adjoint(query)
        if self.total_known:
            ones, direction, spread = self.onto_total
            if spread > 0:
                own = own - ones * (float(query @ direction) / spread)
        return own

    @property
    def has_closed_form(self) -> bool:
        """Whether `box_variance` and `mean_variance` are known in closed form."""
        return self.box_cumulant(2) is not None

    def box_variance(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        """Return the variance of boxes (m,) in closed form, where there is one."""
        terms = self.box_cumulant(2)
        assert terms is not None
        return evaluate_boxes(terms, spans)

    def moments(self, work: Asked) -> Moments:
        """Return the variance and kurtosis of the answers to boxes, or to explicit queries (m, N).

        In closed form where there is one, else query by query, or from simulated noise where there are many boxes.
        """
        if not isinstance(work, Boxes | AllRanges):
            return self.solved_moments(work)
        if self.has_closed_form:
            spans = work.spans(self.domain)
            variance = self._variance_of_boxes(spans)
            draws = self.draws_summed(spans, variance)
            return Moments(variance, self.box_kurtosis(spans, variance), draws=draws, note=self.note)
        return self.solved_moments(work) if len(work) <= MOST_SOLVED else self._simulated_moments(work)

    def answer_variance(self, work: Asked) -> NDArray[np.float64]:
        """Return the variance of the answers alone (m,), which planning compares.

        The diagonal of Q (Aᵀ W A)⁻¹ Qᵀ, W = 1 / variances: of Laplace noise 2 (Δ_A/ε)² Q (Aᵀ A)⁻¹ Qᵀ.
        Source: 2014, eq. (5), which omits 2/ε².
        """
        if isinstance(work, Boxes | AllRanges) and self.has_closed_form:
            return self._variance_of_boxes(work.spans(self.domain))
        return self.moments(work).variance

    def mean_variance(self, work: AllRanges) -> float:
        """Return the mean variance over all ranges; in closed form where there is one, else over a sample."""
        if self.has_closed_form:
            terms = self.box_cumulant(2)
            assert terms is not None
            return mean_over_boxes(terms, self.domain.shape)
        return float(self.moments(work if len(work) <= MOST_SOLVED else work.sample(_SAMPLE)).variance.mean())

    def _variance_of_boxes(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        variance = self.box_variance(spans)
        return np.where(variance < self.rounding_floor, 0.0, variance)

    def solved_moments(self, work: Asked) -> Moments:
        """Return moments from the coefficients with which noise draws enter each answer, query by query."""
        fits_memory(
            3 * 8 * self.domain.size,
            f"the error of a query by {self.strategy.name} over {self.domain.size:,} cells",
        )
        queries = rows_of(work, self.domain)
        # To slice a single row costs as much as a query.
        parts = [
            self._moments_of(queries[i : i + self._batch].toarray()) for i in range(0, queries.shape[0], self._batch)
        ]
        variance, kurtosis, unresolved = (np.concatenate(p) for p in zip(*parts, strict=True))
        return Moments(variance, kurtosis, unresolved=None if self.strategy.determines_cells else unresolved)

    @property
    def _batch(self) -> int:
        """Queries whose coefficients are looked at together."""
        return max(1, _DENSE // self.domain.size)

    def _all_coefficients(self, queries: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(q) of queries (m, N), beside the public total (m, k)."""
        return np.stack([self.answer_coefficients(query) for query in queries])

    def _by_draw(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how draws enter answers (m, draws), from how values do (m, k)."""
        if self.strategy.row_by_row:
            return coefficients
        return np.stack([self.strategy.gather(weight) for weight in coefficients])

    def _moments_of(self, queries: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Return variance, excess kurtosis and the unresolved share of queries (m, N)."""
        weight = self._all_coefficients(queries)
        part = self._by_draw(weight) ** 2 * self.draw_variance
        variance = part.sum(axis=1)
        variance[variance < self.rounding_floor] = 0.0
        kurtosis, unresolved = np.zeros((2, len(queries)))
        some = variance > LEAST_SQUARED
        fourth = np.einsum("mk,mk,k->m", part, part, self.draw_kurtosis)
        kurtosis[some] = fourth[some] / variance[some] ** 2
        if not self.strategy.determines_cells:
            # aᵀA is what is measured of q; a public total adds its own share.
            missing = queries - np.asarray(self.strategy.rmatmat(np.ascontiguousarray(weight.T))).T
            if self.total_known:
                _, direction, spread = self.onto_total
                missing -= (queries @ direction)[:, None] / spread if spread > 0 else 0.0
            unresolved = (missing * missing).sum(axis=1) / (queries * queries).sum(axis=1)
            unresolved[unresolved < 1e-9] = 0.0
        return variance, kurtosis, unresolved

    def _simulated_moments(self, work: Boxes | AllRanges) -> Moments:
        """Return moments from simulated noise, which needs public figures only, so that anybody may draw it."""
        spans = work.spans(self.domain)
        rng, total = np.random.default_rng(20140604), np.zeros(len(work))
        for _ in range(REPLICATES):
            total += box_sums(self.simulate_noise(rng), spans) ** 2
        note = f"from {REPLICATES} simulated noise fields"
        return Moments(total / REPLICATES, self._unknown_kurtosis(len(total)), freedom=REPLICATES, note=note)

    def box_kurtosis(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the excess kurtosis of the answers to boxes, from the closed form of the fourth cumulant if any."""
        fourth = self.box_cumulant(4)
        if fourth is None:
            return self._unknown_kurtosis(len(variance))
        out, some = np.zeros(len(variance)), variance > LEAST_SQUARED
        most = max(law.kurtosis() for law in self.laws)
        found = evaluate_boxes(fourth, spans)[some] / variance[some] ** 2
        out[some] = np.clip(found, min(most, 0.0), max(most, 0.0))
        return out

    def _unknown_kurtosis(self, number: int) -> NDArray[np.float64]:
        """Return an unknown excess kurtosis for each query: NaN, or 0 if the noise is Gaussian."""
        return np.full(number, 0.0 if all(law.unit == "rho" for law in self.laws) else np.nan)

    def bound_kurtosis(self, variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a bound of the excess kurtosis of answers (m,) that no draw enters with more than its full weight."""
        # Σ aᵢ⁴ vᵢ² ≤ max(aᵢ² vᵢ) Σ aᵢ² vᵢ
        most = max(0.0, *(law.kurtosis() for law in self.laws))
        share = np.divide(self._largest_draw, variance, out=np.zeros_like(variance), where=variance > 0)
        return most * share.clip(max=1.0)

    @property
    def _largest_draw(self) -> float:
        """Variance of the largest draw, in points squared."""
        groups = zip(self.strategy.groups, self.laws, strict=True)
        return max(law.variance() * float(group.unit) ** 2 for group, law in groups)

    def draws_summed(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return the number of draws (m,) whose plain sum is an answer's noise, 0 for none; None if it never is."""
        return None

    @property
    def rounding_floor(self) -> float:
        """Size below which a variance is rounding error: an answer may be exact, such as the public total."""
        return 1e-12 * self._largest_draw


def decoder(strategy: Strategy, laws: Sequence[Law], *, total_known: bool) -> Decoder:
    """Return the decoder of a strategy with its noise (`Strategy.decoder_class`).

    Parameters
    ----------
    strategy : what was measured. laws : noise law of each of its groups.
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
        #: R (k, draws), how draws enter the values; None where it is the identity.
        self._entry = None
        if not strategy.row_by_row:
            self._entry = np.stack([strategy.gather(row) for row in np.eye(strategy.shape[0])])
            self.inverse = self._correlated(dense, self._entry)
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

    def _correlated(self, dense: NDArray[np.float64], entry: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the least squares for noise of covariance R Σ Rᵀ; all rows alike where that is singular."""
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
        inverse = scipy.linalg.pinv(white, rtol=1e-12)
        return np.asarray(scipy.linalg.solve_triangular(root, inverse.T, lower=True, trans="T").T)

    def _by_draw(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        return coefficients if self._entry is None else multiply_rows(coefficients, self._entry)

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.inverse @ values

    def solve_adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return query @ self.inverse

    def moments(self, work: Asked) -> Moments:
        if isinstance(work, Boxes | AllRanges) and len(work) * self.strategy.shape[0] > _MOST_COEFFICIENTS:
            variance = self._corner_variance(work.spans(self.domain))
            # Too many are asked to look at what is not resolved of each.
            unknown = None if self.strategy.determines_cells else np.full(len(variance), np.nan)
            return Moments(variance, self._unknown_kurtosis(len(variance)), unresolved=unknown)
        return self.solved_moments(work)

    @property
    def _batch(self) -> int:
        return _BATCH

    def _all_coefficients(self, queries: NDArray[np.float64]) -> NDArray[np.float64]:
        return multiply_rows(queries, self._full_inverse)

    def mean_variance(self, work: AllRanges) -> float:
        # Σ_q qᵀ V q = Σ_ij V_ij · (number of ranges that hold both i and j)
        spread = self._spread_of_cells
        return max(0.0, float(np.einsum("ij,ij->", spread @ spread.T, range_gram(self.domain))) / len(work))

    @functools.cached_property
    def _full_inverse(self) -> NDArray[np.float64]:
        """Coefficients of every cell (N, k), beside the public total."""
        if not self.total_known:
            return self.inverse
        ones, direction, spread = self.onto_total
        return self.inverse - np.outer(direction, ones) / spread if spread > 0 else self.inverse

    @functools.cached_property
    def _spread_of_cells(self) -> NDArray[np.float64]:
        """S (N, draws) with S Sᵀ the covariance of the estimates."""
        return self._by_draw(self._full_inverse) * np.sqrt(self.draw_variance)

    @functools.cached_property
    def _corners(self) -> NDArray[np.float64]:
        """Covariance of the prefix sums at all pairs of corners, flat."""
        cube = self._spread_of_cells.reshape(*self.domain.shape, -1)
        for axis in range(self.domain.ndim):
            pad = [(0, 0)] * cube.ndim
            pad[axis] = (1, 0)
            cube = np.pad(np.cumsum(cube, axis=axis), pad)
        flat = cube.reshape(-1, cube.shape[-1])
        return flat @ flat.T

    def _corner_variance(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        """Return the variance of boxes from pairs of corners; inside a cell, corners are interpolated."""
        number = len(spans[0][0])
        places = [(np.zeros(number, dtype=np.int64), np.ones(number))]
        for (low, high), n in zip(spans, self.domain.shape, strict=True):
            edges = Pieces.of(low, high).edges
            places = [(at * (n + 1) + i, w * v) for at, w in places for i, v in edges]
        out = np.zeros(number)
        for at, w in places:
            for other, v in places:
                out += w * v * self._corners[at, other]
        return np.where(out < self.rounding_floor, 0.0, out)


class IterativeDecoder(Decoder):
    """Least squares of least norm by iteration (LSMR, Fong and Saunders 2011)."""

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        # Where draws are shared between values, all rows count alike: unbiased, if not the best.
        known = strategy.row_by_row and self.draw_variance.all()
        self._weight = 1 / np.sqrt(self.draw_variance) if known else np.ones(strategy.shape[0])

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._least_squares(self._weight * values, adjoint=False)

    def solve_adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._weight * self._least_squares(query, adjoint=True)

    def _least_squares(self, right: NDArray[np.float64], *, adjoint: bool) -> NDArray[np.float64]:
        """Return B⁺ of values, B = Σ^-½ A, or of its adjoint (Bᵀ)⁺ of a query."""
        from scipy.sparse.linalg import LinearOperator, lsmr

        rows = LinearOperator(
            self.strategy.shape,
            matvec=lambda cells: self._weight * self.strategy.matvec(cells.ravel()),
            rmatvec=lambda values: self.strategy.rmatvec(self._weight * values.ravel()),
            dtype=np.float64,
        )
        found, ended, *_ = lsmr(
            rows.H if adjoint else rows,
            right,
            atol=_TOLERANCE,
            btol=_TOLERANCE,
            conlim=0.0,
            maxiter=_MOST_STEPS,
        )
        if ended == 7:
            raise InputError(
                f"least squares for {self.strategy.name} did not converge in {_MOST_STEPS:,} steps: "
                "the strategy is close to singular; use another one"
            )
        return np.asarray(found)
