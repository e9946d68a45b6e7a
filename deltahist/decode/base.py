"""Decoders: least-squares estimates of cells from noisy values, exact errors of queries, and intervals.

Notation: A is the strategy, Σ the diagonal noise covariance, V = (AᵀΣ⁻¹A)⁺ the covariance of the cells. The answer to a
query q from released values y is a(q)·y with coefficients a(q) = Σ⁻¹ A V q, and its variance is a(q)ᵀ Σ a(q). If the
total is public, a multiple of V1 is added so that the estimates sum to it.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from deltahist.decode.forms import FloatArray, SumOfProducts, evaluate_boxes, mean_over_boxes, multiply_rows
from deltahist.decode.projection import Metric, simulate_metric
from deltahist.errors import InputError, check_finite, check_memory
from deltahist.laws import Law
from deltahist.space.workloads import AllRanges, Boxes, Pieces, RegionCover, Span, box_sums, range_gram

if TYPE_CHECKING:
    from deltahist.space.domain import Domain
    from deltahist.strategies.base import Strategy

#: Boxes, regions, or explicit queries (m, N).
Asked: TypeAlias = "Boxes | AllRanges | RegionCover | scipy.sparse.csr_array"
#: Squares of smaller variances underflow. Noise this small is almost always 0, so its kurtosis does not matter.
LEAST_SQUARED = 1e-140
#: Largest number of cells for which matrices are dense.
MOST_DENSE = 1024


@dataclass(frozen=True)
class Moments:
    """Errors of m queries: their variances, their excess kurtoses (NaN if unknown), and the source of the variances.

    freedom : infinity if the variance is exact or a bound, else the number of simulated noise fields.
    unresolved : for each query, the share of its squared norm that the strategy does not determine, or None.
    draws : for each query, the number of draws whose plain sum is its noise, or 0. None means 0 for all queries.
    """

    variance: FloatArray
    kurtosis: FloatArray
    freedom: float = np.inf
    unresolved: FloatArray | None = None
    draws: FloatArray | None = None
    note: str = "exact"

    def and_normal(self, variance: FloatArray) -> Moments:
        """Return the moments after adding an independent normal error of the given variance to each answer."""
        total = self.variance + variance
        share = np.divide(self.variance, total, out=np.ones_like(total), where=total > 0)
        draws = None if self.draws is None else np.where(variance > 0, 0.0, self.draws)
        return replace(self, variance=total, kurtosis=self.kurtosis * share**2, draws=draws)


def interval(moments: Moments, law: Law, level: float) -> tuple[FloatArray, FloatArray]:
    """Return how far an interval of a given level extends below and above each estimate.

    In standard errors, the distance is the normal (or Student) quantile z plus the Cornish-Fisher correction for the
    excess kurtosis κ of symmetric noise, κ (z³ − 3 z) / 24. A single Laplace draw needs a wider interval than a sum of
    many. For a plain sum of draws of `law`, the interval holds as many integers as bring its probability nearest to the
    level. If they are even in number, one more lies above than below, as a symmetric interval could miss by more.
    """
    z = -NormalDist().inv_cdf((1 - level) / 2)
    start = z if np.isinf(moments.freedom) else float(scipy.special.stdtrit(moments.freedom, (1 + level) / 2))
    # Rare draws have a huge kurtosis, so Chebyshev's bound caps the quantile. Below z = √3 the correction is negative.
    kurtosis = np.nan_to_num(moments.kurtosis)
    half = np.clip(start + kurtosis * ((z**3 - 3 * z) / 24), 0.0, 1 / math.sqrt(1 - level)) * np.sqrt(moments.variance)
    down, up = half.copy(), half.copy()
    if moments.draws is None:
        return down, up
    whole = np.flatnonzero(moments.draws > 0)
    integers = np.maximum(np.rint(2 * half[whole]), 1.0)
    draws = moments.draws[whole]
    few = draws * law.variance() <= 4.0**2  # above this variance, the normal approximation is off by less than one
    numbers, place = np.unique(draws[few], return_inverse=True)
    integers[few] = np.array([_count_integers(law, int(n), level) for n in numbers])[place]
    down[whole] = (integers - 1) // 2 + 0.5
    up[whole] = integers // 2 + 0.5
    return down, up


@functools.lru_cache(maxsize=4096)
def _count_integers(law: Law, draws: int, level: float) -> int:
    """Return the number of integers around 0 whose total probability is nearest `level`, for a sum of draws."""
    size = 1024
    weight = law.weights(np.minimum(np.arange(size), size - np.arange(size)).astype(np.float64))
    pmf = np.fft.irfft(np.fft.rfft(weight / weight.sum()) ** draws, size)
    # In the order 0, 1, −1, 2, −2, ..., each integer is the most likely of those that remain.
    order = np.arange(1, size) // 2
    order[2::2] *= -1
    return int(np.argmin(np.abs(np.cumsum(pmf[order]) - level))) + 1


def check_level(level: float) -> None:
    """Raise InputError unless the level of an interval lies between 0 and 1."""
    check_finite(above=0, below=1, level=level)


def stands_out(
    estimates: ArrayLike,
    std_errors: ArrayLike,
    kurtosis: ArrayLike = 3.0,
    *,
    level: float = 0.05,
    either_side: bool = False,
) -> NDArray[np.bool_]:
    """Test all estimates together, and return which of them exceed zero by more than noise explains.

    A map shows hundreds of blocks, so the largest count is often mere noise. With Holm's method (1979), the chance that
    any reported count is truly zero is at most `level`, whatever the dependence between errors (see `_log_tail`).

    Coarse noise on integers has a kurtosis above 3. For such noise, the test uses the standard error of the continuous
    Laplace law of the same scale, whose moment generating function is larger everywhere. The test also subtracts half a
    count from each estimate, because integer noise reaches k at most as often as continuous noise exceeds k − ½.

    Parameters
    ----------
    estimates : unbiased estimates of all counts that are shown together, in an array of any shape.
    std_errors : their standard errors.
    kurtosis : excess kurtosis of their noise (`Moments.kurtosis`), 0 for Gaussian noise. The default, also used for
        NaN, is the kurtosis of one Laplace draw, which no sum of draws exceeds.
    level : the chance that any reported count is truly zero.
    either_side : also report differences below zero.

    >>> stands_out([0.5, 30.0, 6.0, -9.0], 1.4).tolist()
    [False, True, True, False]
    >>> stands_out(np.append(np.zeros(1000), 6.0), 1.4).any()  # among a thousand, 6 is nothing special
    np.False_
    """
    errors = np.maximum(np.asarray(std_errors, dtype=np.float64), 1e-6)  # exact estimates have rounding errors
    kurtosis = np.nan_to_num(np.asarray(kurtosis, dtype=np.float64), nan=3.0)
    steps = np.ceil(np.sqrt(np.clip(kurtosis / 3, 0.0, 1.0)) * _STEPS - 1e-9).astype(np.int64)
    excess = np.maximum(kurtosis - 3, 1e-9)
    coarse = np.where(kurtosis > 3, np.sqrt(2 * excess) / np.arccosh(1 + excess), 1.0)
    size = np.abs(estimates) if either_side else np.asarray(estimates, dtype=np.float64)
    errors, steps, _ = np.broadcast_arrays(errors * coarse, steps, size)
    half = np.minimum(errors, 1) / 2
    found = np.zeros(size.shape, dtype=bool)
    while True:  # each estimate that stands out leaves more of the level for the others
        alone = level / (1 + either_side) / max(1, size.size - int(found.sum()))
        limits = np.array([_find_limit(alone, step) for step in range(_STEPS + 1)])
        now = size > limits[steps] * errors + half
        if now.sum() == found.sum():
            return now
        found = now


#: Number of steps of r = √(κ/3) from 0 to 1 in the table of `_find_limit`. Kurtosis is rounded up to the next step.
_STEPS = 16


@functools.lru_cache(maxsize=1024)
def _find_limit(chance: float, step: int) -> float:
    """Return how many standard errors noise exceeds with at most this chance, if √(κ/3) is at most step / `_STEPS`."""
    low, high = (0.0 if step == 0 else _find_limit(chance, step - 1)), 64.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _log_tail(middle, step) > math.log(chance) else (low, middle)
    return high


def _log_tail(x: float, step: int) -> float:
    """Return the logarithm of a bound on P(noise > x standard errors), for r from the previous step to this one.

    Noise is a sum of independent Laplace draws, Gaussian draws, or both. With variance 1, it is √V · N for a normal N
    and V = Σ v_i W_i + a constant, where v_i is the share of draw i in the variance and W_i is exponential with mean 1.
    The excess kurtosis κ is 3 Σ v_i², so no share exceeds r = √(κ/3), and E e^(sV) ≤ e^(s(1 − r)) / (1 − s r). Let Q be
    the normal tail. Since log Q(x/√v) is concave in v, it lies below its tangent at any v, whose slope is s. Hence

        P(noise > x) = E Q(x/√V) ≤ Q(x/√v) e^(−sv) · E e^(sV)    for every v,

    which is the normal tail itself for κ = 0. If one draw dominates the noise, another bound is better. Let v_1 be the
    largest share, between r² and r. A Laplace draw L of variance v_1 has P(L > y) ≤ ½ e^(−y√(2/v_1)). Hence

        P(noise > x) ≤ ½ e^(−x√(2/v_1)) · E e^((V − v_1 W_1)/v_1),

    which is the tail of a single draw for v_1 = 1. The function returns the smaller bound, for the worst v_1.
    """
    r, least = step / _STEPS, max(step - 1, 0) / _STEPS
    tangents = np.geomspace(1 / 64, 64, 1025)  # the middle one is 1
    y = x / np.sqrt(tangents)
    log_normal = scipy.special.log_ndtr(-y)
    slope = y * np.exp(-y * y / 2 - log_normal) / math.sqrt(2 * math.pi) / (2 * tangents)
    by_tangent = log_normal - slope * tangents + _log_moment(slope, 1.0, r)
    first = np.linspace(max(least**2, 1e-6), max(r, 1e-6), 65)
    others = np.minimum(1 - first, np.sqrt(np.maximum(r * r - first * first, 0.0)))
    by_largest = -x * np.sqrt(2 / first) - math.log(2) + _log_moment(1 / first, 1 - first, others)
    return float(min(by_tangent.min(), by_largest.max()))


def _log_moment(s: Any, total: Any, most: Any) -> Any:
    """Return a bound on log E e^(sV) for shares that add up to `total` and whose squares add up to at most `most`²."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(s * most < 1, s * (total - most) - np.log1p(-s * most), np.inf)


def rows_of(work: Asked, domain: Domain) -> Any:
    """Return m queries as the rows of a sparse matrix of shape (m, N)."""
    if isinstance(work, Boxes | AllRanges):
        return work.matrix(domain)
    return work.rows if isinstance(work, RegionCover) else work


class Decoder(ABC):
    """Least squares for one strategy and its noise.

    strategy : the matrix A, of shape (k, N).
    laws : one noise law for each group of the strategy.
    total_known : whether the number of entities is public. If so, estimates add up to this number.
    """

    #: Describes how the closed form relates to the true error.
    note = "exact"

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        self.strategy, self.laws, self.total_known = strategy, tuple(laws), total_known
        self.domain = strategy.domain

    @abstractmethod
    def solve(self, values: FloatArray) -> FloatArray:
        """Return the N estimates V AᵀΣ⁻¹ y, ignoring a public total."""

    @abstractmethod
    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        """Return the k coefficients Σ⁻¹ A V q of a query q, the adjoint of `solve`."""

    def box_cumulant(self, order: int) -> SumOfProducts | None:
        """Return closed forms of boxes' variances (order 2) or fourth cumulants (order 4), given any public total."""
        return None

    @functools.cached_property
    def draw_variance(self) -> FloatArray:
        """The variance of each noise draw, in an array of shape (draws,)."""
        return self._spread_over_draws([law.variance() for law in self.laws])

    @functools.cached_property
    def draw_kurtosis(self) -> FloatArray:
        """The excess kurtosis of each noise draw, in an array of shape (draws,)."""
        return self._spread_over_draws([law.kurtosis() for law in self.laws])

    def _spread_over_draws(self, figures: Sequence[float]) -> FloatArray:
        out = np.empty(self.strategy.draws)
        for group, figure in zip(self.strategy.groups, figures, strict=True):
            out[group.members] = figure
        return out

    @functools.cached_property
    def onto_total(self) -> tuple[FloatArray, FloatArray, float]:
        """The coefficients a(1), the direction of adjustments to the total (V1 or 1's unmeasured part), and its sum."""
        ones = self.solve_adjoint(np.ones(self.domain.size))
        if not self.strategy.determines_cells:
            unseen = 1 - np.asarray(self.strategy.rmatvec(ones))
            if unseen @ unseen > 1e-9 * self.domain.size:  # anything smaller is a rounding error
                return ones, unseen, float(unseen.sum())
        direction = self.solve(self.strategy.scatter(self.draw_variance * self.strategy.gather(ones)))
        return ones, direction, float(direction.sum())

    def estimate_cells(self, values: NDArray[Any], total: int | None) -> FloatArray:
        """Return least-squares estimates A⁺ y of all cells, where A⁺ = (Aᵀ W A)⁻¹ Aᵀ W and W = 1 / variances.

        Source: 2014, section 5.2, where W is I. Decoding costs no privacy (2015, Proposition 3).
        """
        cells = self.solve(np.asarray(values, dtype=np.float64))
        if self.total_known and total is not None:
            _, direction, spread = self.onto_total
            if spread > 0:
                cells = cells + direction * ((total - cells.sum()) / spread)
        return cells.reshape(self.domain.shape)

    def estimate_on_grid(self, values: NDArray[Any], total: int | None) -> FloatArray:
        """Return estimates on the grid of `noise_metric`. Decoders with a larger grid override both."""
        return self.estimate_cells(values, total)

    def noise_metric(self) -> Metric:
        """Return the estimates' noise metric, simulated without private data. Its errors only reduce accuracy."""
        rng = np.random.default_rng(20140605)
        return simulate_metric(lambda: self.simulate_noise(rng), self.domain.shape, total_known=self.total_known)

    def covariance(self, queries: scipy.sparse.csr_array) -> FloatArray:
        """Return the noise covariance B diag(σ²) Bᵀ of m queries, where B holds the coefficients of the draws."""
        number, each = queries.shape[0], self._batch_size
        check_memory(8 * number * (number + 2 * self.strategy.draws), f"the covariance of {number:,} answers")
        starts = range(0, number, each)
        weight = [self._draw_coefficients(self._all_coefficients(queries[i : i + each].toarray())) for i in starts]
        spread = np.concatenate(weight) * np.sqrt(self.draw_variance)
        return np.asarray(spread @ spread.T)

    def simulate_noise(self, rng: np.random.Generator) -> FloatArray:
        """Draw normal noise with the covariance of `estimate_on_grid`."""
        spread = np.sqrt(self.draw_variance)
        values = self.strategy.scatter(rng.normal(size=len(spread)) * spread)
        return self.estimate_on_grid(values, 0 if self.total_known else None)

    def answer_coefficients(self, query: FloatArray) -> FloatArray:
        """Return a(q), the coefficients of the released values in the answer to q, which allow for any public total."""
        own = self.solve_adjoint(query)
        if self.total_known:
            ones, direction, spread = self.onto_total
            if spread > 0:
                own = own - ones * (float(query @ direction) / spread)
        return own

    @property
    def has_closed_form(self) -> bool:
        """Whether `box_variance` and `mean_variance` have closed forms."""
        return self.box_cumulant(2) is not None

    def box_variance(self, spans: Sequence[Span]) -> FloatArray:
        """Return the variance of each box from the closed form, which must exist."""
        terms = self.box_cumulant(2)
        assert terms is not None
        return evaluate_boxes(terms, spans)

    def moments(self, work: Asked) -> Moments:
        """Return the errors of boxes or queries, in closed form, query by query or (for many boxes) by simulation."""
        if not isinstance(work, Boxes | AllRanges):
            return self.solved_moments(work)
        if self.has_closed_form:
            spans = work.spans(self.domain)
            variance = self._clean_box_variance(spans)
            draws = self.draws_summed(spans, variance)
            return Moments(variance, self.box_kurtosis(spans, variance), draws=draws, note=self.note)
        return self.solved_moments(work) if len(work) <= 200 else self._simulated_moments(work)

    def answer_variance(self, work: Asked) -> FloatArray:
        """Return only the variances of the answers, which planning compares.

        The variances are the diagonal of Q (Aᵀ W A)⁻¹ Qᵀ with W = 1 / variances, or of 2 (Δ_A/ε)² Q (Aᵀ A)⁻¹ Qᵀ for
        Laplace noise. Source: 2014, eq. (5), which omits 2/ε².
        """
        if isinstance(work, Boxes | AllRanges) and self.has_closed_form:
            return self._clean_box_variance(work.spans(self.domain))
        return self.moments(work).variance

    def mean_variance(self, work: AllRanges) -> float:
        """Return the mean variance over all ranges, in closed form if possible, else over at most 2,000 of them."""
        if (terms := self.box_cumulant(2)) is not None:
            return mean_over_boxes(terms, self.domain.shape)
        return float(self.moments(work if len(work) <= 200 else work.sample(2000)).variance.mean())

    def _clean_box_variance(self, spans: Sequence[Span]) -> FloatArray:
        variance = self.box_variance(spans)
        return np.where(variance < self.rounding_floor, 0.0, variance)

    def solved_moments(self, work: Asked) -> Moments:
        """Return the moments, computed from the coefficients of the noise draws in each answer."""
        size = self.domain.size
        check_memory(3 * 8 * size, f"the error of a query on {size:,} cells with {self.strategy.name}")
        queries = rows_of(work, self.domain)
        # Slice in batches, since slicing a single sparse row takes as long as a query.
        step = self._batch_size
        parts = [self._moments_of_rows(queries[i : i + step].toarray()) for i in range(0, queries.shape[0], step)]
        variance, kurtosis, unresolved = (np.concatenate(p) for p in zip(*parts, strict=True))
        return Moments(variance, kurtosis, unresolved=None if self.strategy.determines_cells else unresolved)

    @property
    def _batch_size(self) -> int:
        """Number of queries whose coefficients are computed together."""
        return max(1, (1 << 16) // self.domain.size)

    def _all_coefficients(self, queries: FloatArray) -> FloatArray:
        """Return a(q) for each of m queries, as rows of k coefficients that allow for any public total."""
        return np.stack([self.answer_coefficients(query) for query in queries])

    def _draw_coefficients(self, coefficients: FloatArray) -> FloatArray:
        """Convert coefficients of the released values in m answers to coefficients of the noise draws."""
        if self.strategy.row_by_row:
            return coefficients
        return np.stack([self.strategy.gather(weight) for weight in coefficients])

    def _moments_of_rows(self, queries: FloatArray) -> tuple[FloatArray, ...]:
        """Return the variances, excess kurtoses and unresolved shares of m queries."""
        weight = self._all_coefficients(queries)
        part = self._draw_coefficients(weight) ** 2 * self.draw_variance
        found = self._moments_of(part.sum(axis=1), np.einsum("mk,mk,k->m", part, part, self.draw_kurtosis))
        unresolved = np.zeros(len(queries))
        if not self.strategy.determines_cells:
            # aᵀA is the measured part of q. A public total measures another part.
            missing = queries - np.asarray(self.strategy.rmatmat(np.ascontiguousarray(weight.T))).T
            if self.total_known:
                _, direction, spread = self.onto_total
                missing -= (queries @ direction)[:, None] / spread if spread > 0 else 0.0
            unresolved = (missing * missing).sum(axis=1) / (queries * queries).sum(axis=1)
            unresolved[unresolved < 1e-9] = 0.0
        return found.variance, found.kurtosis, unresolved

    def _moments_of(self, variance: FloatArray, fourth: FloatArray) -> Moments:
        """Return the moments with given variances and fourth cumulants. Variances that are rounding errors become 0."""
        variance[variance < self.rounding_floor] = 0.0
        kurtosis = np.divide(fourth, variance**2, out=np.zeros_like(variance), where=variance > LEAST_SQUARED)
        return Moments(variance, kurtosis, note=self.note)

    def _simulated_moments(self, work: Boxes | AllRanges) -> Moments:
        """Return moments estimated from simulated noise, without private data."""
        spans = work.spans(self.domain)
        rng, total, fields = np.random.default_rng(20140604), np.zeros(len(work)), 100
        for _ in range(fields):
            total += box_sums(self.simulate_noise(rng), spans) ** 2
        note = f"from {fields} simulated noise fields"
        return Moments(total / fields, self._unknown_kurtosis(len(total)), freedom=fields, note=note)

    def box_kurtosis(self, spans: Sequence[Span], variance: FloatArray) -> FloatArray:
        """Return the excess kurtosis of answers to boxes. It is unknown if the fourth cumulant has no closed form."""
        fourth = self.box_cumulant(4)
        if fourth is None:
            return self._unknown_kurtosis(len(variance))
        out, some = np.zeros(len(variance)), variance > LEAST_SQUARED
        most = max(law.kurtosis() for law in self.laws)
        found = evaluate_boxes(fourth, spans)[some] / variance[some] ** 2
        out[some] = np.clip(found, min(most, 0.0), max(most, 0.0))
        return out

    def _unknown_kurtosis(self, number: int) -> FloatArray:
        """Return the value for each excess kurtosis that is not computed: NaN, or 0 if the noise is Gaussian."""
        return np.full(number, 0.0 if all(law.unit == "rho" for law in self.laws) else np.nan)

    def bound_kurtosis(self, variance: FloatArray) -> FloatArray:
        """Return bounds on the excess kurtosis of answers in which no draw has more than its full weight."""
        # Σ aᵢ⁴ vᵢ² ≤ max(aᵢ² vᵢ) Σ aᵢ² vᵢ
        most = max(0.0, *(law.kurtosis() for law in self.laws))
        share = np.divide(self._largest_draw, variance, out=np.zeros_like(variance), where=variance > 0)
        return most * share.clip(max=1.0)

    @property
    def _largest_draw(self) -> float:
        """Variance of the largest draw, in points squared."""
        groups = zip(self.strategy.groups, self.laws, strict=True)
        return max(law.variance() * float(group.unit) ** 2 for group, law in groups)

    def draws_summed(self, spans: Sequence[Span], variance: FloatArray) -> FloatArray | None:
        """Return, for each answer, the number of draws whose plain sum is its noise (`Moments.draws`)."""
        return None

    @property
    def rounding_floor(self) -> float:
        """Variance below which an answer, such as the public total, is exact up to rounding."""
        return 1e-12 * self._largest_draw


def make_decoder(strategy: Strategy, laws: Sequence[Law], *, total_known: bool) -> Decoder:
    """Return the decoder of a strategy with a noise law for each of its groups (`Strategy.decoder_class`)."""
    # A single cell whose count is public has no noise, so no weights are needed.
    kind = strategy.decoder_class() if any(law.parameter for law in laws) else DenseDecoder
    return kind(strategy, laws, total_known)


class PlainDecoder(Decoder):
    """The estimates are the released cells, adjusted to the public total if there is one."""

    def solve(self, values: FloatArray) -> FloatArray:
        return np.asarray(values, dtype=np.float64)

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        return query


class DenseDecoder(Decoder):
    """Least squares by the definition (AᵀΣ⁻¹A)⁻¹AᵀΣ⁻¹, or by the pseudo-inverse if A does not determine the cells."""

    _batch_size = 1024

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        dense = strategy.matrix().toarray().astype(np.float64)
        #: R (k, draws), the coefficients of draws in the values; None for the identity.
        self._entry = None
        if not strategy.row_by_row:
            self._entry = np.stack([strategy.gather(row) for row in np.eye(strategy.shape[0])])
            self.inverse = self._invert_correlated(dense, self._entry)
            return
        # Without noise, all rows get equal weight.
        variance = self.draw_variance if self.draw_variance.all() else np.ones(strategy.shape[0])
        if strategy.determines_cells:
            # Raise the variances of nearly exact rows, relative to row sizes, so that the equations are not singular.
            own = np.abs(dense).max(axis=1) ** 2
            weighted = dense / np.maximum(variance, 1e-11 * own * (variance / own).max())[:, None]
            self.inverse = scipy.linalg.solve(dense.T @ weighted, weighted.T, assume_a="pos")
        else:
            weight = 1 / np.sqrt(variance)
            self.inverse = scipy.linalg.pinv(weight[:, None] * dense, rtol=1e-12) * weight

    def _invert_correlated(self, dense: FloatArray, entry: FloatArray) -> FloatArray:
        """Return the least-squares inverse for noise covariance R Σ Rᵀ, or for equal weights if that is singular."""
        covariance = (entry * self.draw_variance) @ entry.T
        # Scale to correlations first, because the values of tents are 10⁹ times as large as those of cells.
        std = np.sqrt(np.diag(covariance))
        if not std.all() or scipy.linalg.eigvalsh(covariance / np.outer(std, std), subset_by_index=[0, 0])[0] < 1e-9:
            return np.asarray(scipy.linalg.pinv(dense, rtol=1e-12))
        root = scipy.linalg.cholesky(covariance, lower=True)
        inverse = scipy.linalg.pinv(scipy.linalg.solve_triangular(root, dense, lower=True), rtol=1e-12)
        return np.asarray(scipy.linalg.solve_triangular(root, inverse.T, lower=True, trans="T").T)

    def _draw_coefficients(self, coefficients: FloatArray) -> FloatArray:
        return coefficients if self._entry is None else multiply_rows(coefficients, self._entry)

    def solve(self, values: FloatArray) -> FloatArray:
        return self.inverse @ values

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        return query @ self.inverse

    def moments(self, work: Asked) -> Moments:
        if isinstance(work, Boxes | AllRanges) and len(work) * self.strategy.shape[0] > 50_000_000:
            variance = self._corner_variance(work.spans(self.domain))
            # Computing the unresolved share would require every coefficient.
            unknown = None if self.strategy.determines_cells else np.full(len(variance), np.nan)
            return Moments(variance, self._unknown_kurtosis(len(variance)), unresolved=unknown)
        return self.solved_moments(work)

    def _all_coefficients(self, queries: FloatArray) -> FloatArray:
        return multiply_rows(queries, self._full_inverse)

    def mean_variance(self, work: AllRanges) -> float:
        # Σ_q qᵀ V q = Σ_ij V_ij · (number of ranges that contain both i and j)
        spread = self._covariance_root
        return max(0.0, float(np.einsum("ij,ij->", spread @ spread.T, range_gram(self.domain))) / len(work))

    @functools.cached_property
    def _full_inverse(self) -> FloatArray:
        """The coefficients of released values in each cell's estimate, which allow for any public total."""
        if not self.total_known:
            return self.inverse
        ones, direction, spread = self.onto_total
        return self.inverse - np.outer(direction, ones) / spread if spread > 0 else self.inverse

    @functools.cached_property
    def _covariance_root(self) -> FloatArray:
        """A matrix S of shape (N, draws), where S Sᵀ is the covariance of the estimates."""
        return self._draw_coefficients(self._full_inverse) * np.sqrt(self.draw_variance)

    @functools.cached_property
    def _corner_covariance(self) -> FloatArray:
        """Covariance matrix of the prefix sums at all corners, which are numbered in C order."""
        cube = self._covariance_root.reshape(*self.domain.shape, -1)
        for axis in range(self.domain.ndim):
            pad = [(0, 0)] * cube.ndim
            pad[axis] = (1, 0)
            cube = np.pad(np.cumsum(cube, axis=axis), pad)
        flat = cube.reshape(-1, cube.shape[-1])
        return flat @ flat.T

    def _corner_variance(self, spans: Sequence[Span]) -> FloatArray:
        """Return the variance of each box from pairs of its corners, interpolating corners that lie inside cells."""
        number = len(spans[0][0])
        places = [(np.zeros(number, dtype=np.int64), np.ones(number))]
        for (low, high), n in zip(spans, self.domain.shape, strict=True):
            edges = Pieces.of(low, high).edges
            places = [(at * (n + 1) + i, w * v) for at, w in places for i, v in edges]
        out = np.zeros(number)
        for at, w in places:
            for other, v in places:
                out += w * v * self._corner_covariance[at, other]
        return np.where(out < self.rounding_floor, 0.0, out)


class IterativeDecoder(Decoder):
    """Least squares of minimum norm, by iteration (LSMR, Fong and Saunders 2011)."""

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        # If values share draws, all rows get equal weight. Estimates are then unbiased, but not optimal.
        known = strategy.row_by_row and self.draw_variance.all()
        self._weight = 1 / np.sqrt(self.draw_variance) if known else np.ones(strategy.shape[0])

    def solve(self, values: FloatArray) -> FloatArray:
        return self._least_squares(self._weight * values, adjoint=False)

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        return self._weight * self._least_squares(query, adjoint=True)

    def _least_squares(self, right: FloatArray, *, adjoint: bool) -> FloatArray:
        """Return B⁺ times values or (the adjoint) (Bᵀ)⁺ times a query, where B = Σ^-½ A."""
        rows = scipy.sparse.linalg.LinearOperator(
            self.strategy.shape,
            matvec=lambda cells: self._weight * self.strategy.matvec(cells.ravel()),
            rmatvec=lambda values: self.strategy.rmatvec(self._weight * values.ravel()),
            dtype=np.float64,
        )
        steps = 20_000
        how = {"atol": 1e-12, "btol": 1e-12, "conlim": 0.0, "maxiter": steps}
        found, ended, *_ = scipy.sparse.linalg.lsmr(rows.H if adjoint else rows, right, **how)
        if ended == 7:
            raise InputError(
                f"least squares for {self.strategy.name} did not converge in {steps:,} steps: the strategy is close to "
                "singular (use another strategy)"
            )
        return np.asarray(found)
