"""How the error of an answer is known: in closed form, solved from its coefficients, or from simulated noise.

Each way works for every decoder, however it solves; which one is taken is for the decoder to say (`Decoder.way`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.forms import Feature, Joint
from deltahist.errors import InputError, is_number
from deltahist.privacy import Law
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Boxes, RegionCover, Span
from deltahist.space.workloads.cover import explicit
from deltahist.space.workloads.sums import box_sums

if TYPE_CHECKING:
    from deltahist.decode.base import Decoder

#: Sum over terms of coefficient · product over axes of feature(interval), or · feature(box).
Terms = Sequence[tuple[float, tuple[Feature, ...] | Joint]]
#: Boxes, regions, or explicit queries (m, N).
Asked: TypeAlias = "Boxes | AllRanges | RegionCover | scipy.sparse.csr_array"
#: Queries are solved one by one up to this number; more of them are priced by simulated noise.
MOST_SOLVED = 200
#: Numbers of a sparse matrix that are dense at a time.
_DENSE = 1 << 16
#: All ranges are thinned out to this many where their mean has no closed form.
_SAMPLE = 2000
#: Boxes whose closed form is worked out at a time: what is gathered for them stays near the processor.
_AT_A_TIME = 1 << 13
#: Variances whose square a float still holds; below, noise is too rare for its kurtosis to matter.
LEAST_SQUARED = 1e-140
#: Simulated noise fields; their number sets Student's quantile of the interval.
REPLICATES = 100
#: Sums of integer noise with a standard deviation up to this one are treated with their exact law.
_MOST_EXACT = 4.0


@dataclass(frozen=True)
class Moments:
    """Error of each query: variance (m,), excess kurtosis (m,), and how the variance is known.

    `freedom` is infinite where the variance is exact or a bound, else the number of simulated noise fields.
    `unresolved` (m,) is the share of the query's squared norm that the strategy does not determine, or None.
    `draws` (m,) is the number of noise draws whose plain sum the answer's noise is, 0 where it is no such sum; of those
    that there are in all, `Strategy.draws`.
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


class _Closed:
    """In closed form: a sum of products of one function per axis (`Decoder.terms`)."""

    def moments(self, decoder: Decoder, work: Asked) -> Moments:
        spans, variance = self._variance(decoder, work)
        kurtosis, draws = decoder.kurtosis(spans, variance), decoder.draws_summed(spans, variance)
        return Moments(variance, kurtosis, draws=draws, note=decoder.note)

    def variance(self, decoder: Decoder, work: Asked) -> NDArray[np.float64]:
        """Return the variance alone: kurtosis takes longer."""
        return self._variance(decoder, work)[1]

    def _variance(self, decoder: Decoder, work: Asked) -> tuple[tuple[Span, ...], NDArray[np.float64]]:
        assert isinstance(work, Boxes | AllRanges)
        spans = work.spans(decoder.domain)
        variance = np.maximum(evaluate(self._terms(decoder), spans), 0.0)
        variance[variance < decoder.rounding_floor] = 0.0
        return spans, variance

    def mean(self, decoder: Decoder, work: AllRanges) -> float:
        return mean_of(self._terms(decoder), decoder.domain.shape)

    @staticmethod
    def _terms(decoder: Decoder) -> Terms:
        second = decoder.terms(2)
        assert second is not None
        return second


class _Solved:
    """Query by query, from the coefficients with which noise draws enter the answer."""

    def moments(self, decoder: Decoder, work: Asked) -> Moments:
        queries = rows_of(work, decoder.domain)
        strategy = decoder.strategy
        variance, kurtosis, unresolved = (np.zeros(queries.shape[0]) for _ in range(3))
        for i, query in enumerate(_rows(queries)):
            weight = decoder.coefficients(query)
            noise = strategy.gather(weight)
            part = noise * noise * decoder.draw_variance
            variance[i] = part.sum()
            if variance[i] < decoder.rounding_floor:
                variance[i] = 0.0
            elif variance[i] > LEAST_SQUARED:
                kurtosis[i] = (part * part * decoder.draw_kurtosis).sum() / variance[i] ** 2
            if not strategy.determines_cells:
                # aᵀA is what is measured of q; a public total adds its own share.
                missing = query - np.asarray(strategy.rmatvec(weight))
                if decoder.total_known:
                    _, direction, spread = decoder.onto_total
                    missing = missing - (query @ direction) / spread if spread > 0 else missing
                unresolved[i] = float(missing @ missing) / float(query @ query)
        unresolved[unresolved < 1e-9] = 0.0
        return Moments(variance, kurtosis, unresolved=None if strategy.determines_cells else unresolved)

    def mean(self, decoder: Decoder, work: AllRanges) -> float:
        return float(self.moments(decoder, work).variance.mean())


class _Simulated:
    """From simulated noise: it needs public figures only, so anybody may draw it."""

    def moments(self, decoder: Decoder, work: Asked) -> Moments:
        assert isinstance(work, Boxes | AllRanges)
        spans = work.spans(decoder.domain)
        rng = np.random.default_rng(20140604)
        spread = np.sqrt(decoder.draw_variance)
        total = np.zeros(len(spans[0][0]))
        for _ in range(REPLICATES):
            noise = decoder.strategy.scatter(rng.normal(size=len(spread)) * spread)
            cells = decoder.estimate(noise, 0 if decoder.total_known else None)
            total += box_sums(cells, spans) ** 2
        note = f"from {REPLICATES} simulated noise fields"
        return Moments(total / REPLICATES, np.zeros(len(total)), freedom=REPLICATES, note=note)

    def mean(self, decoder: Decoder, work: AllRanges) -> float:
        return float(self.moments(decoder, work.sample(_SAMPLE)).variance.mean())


def _rows(queries: scipy.sparse.sparray) -> Iterator[NDArray[np.float64]]:
    """Yield the rows of a sparse matrix, made dense some at a time: each slice costs as much as a query."""
    some = max(1, _DENSE // queries.shape[1])
    for start in range(0, queries.shape[0], some):
        yield from queries[start : start + some].toarray()


CLOSED, SOLVED, SIMULATED = _Closed(), _Solved(), _Simulated()
Way: TypeAlias = _Closed | _Solved | _Simulated


def rows_of(work: Asked, domain: Domain) -> Any:
    """Return queries as rows (m, N)."""
    return work.matrix(domain) if isinstance(work, Boxes | AllRanges) else explicit(work)


def evaluate(terms: Terms, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Return values of a closed form at boxes."""
    out = np.zeros(len(spans[0][0]))
    for _, features in terms:
        for each in (features,) if isinstance(features, Joint) else features:
            each.expect(len(out))

    for start in range(0, len(out), _AT_A_TIME):
        some = slice(start, start + _AT_A_TIME)
        out[some] = _evaluate(terms, [(low[some], high[some]) for low, high in spans])
    return out


def _evaluate(terms: Terms, spans: Sequence[Span]) -> NDArray[np.float64]:
    known: dict[tuple[int, Feature], NDArray[np.float64]] = {}
    out = np.zeros(len(spans[0][0]))
    for weight, features in terms:
        if isinstance(features, Joint):
            out += weight * features(spans)
            continue
        product = np.full(len(out), weight)
        for axis, (feature, span) in enumerate(zip(features, spans, strict=True)):
            if (axis, feature) not in known:
                known[axis, feature] = feature(*span)
            product *= known[axis, feature]
        out += product
    return out


def mean_of(terms: Terms, shape: tuple[int, ...]) -> float:
    """Return the mean of a closed form over all boxes of whole cells."""
    out = 0.0
    for weight, features in terms:
        if isinstance(features, Joint):
            out += weight * features.mean(shape)
        else:  # intervals on the two axes are independent: the mean of a product is the product of means
            out += weight * math.prod(f.mean(n) for f, n in zip(features, shape, strict=True))
    return out


def interval(moments: Moments, law: Law, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far an interval of a given level reaches below and above each estimate.

    The normal (or Student's) quantile with the Cornish-Fisher correction for the excess kurtosis of
    symmetric noise, z + κ (z³ − 3 z) / 24: single Laplace draws need wider intervals than sums of many.

    Where the noise is a sum of whole draws (`moments.draws`) the interval holds a whole number of integers.
    The number whose probability is nearest the level is taken; an even one reaches one further up than
    down, since a symmetric interval could miss the level by twice as much.

    Parameters
    ----------
    moments : of the answers. law : of a single draw. level : between 0 and 1.
    """
    probability = (1 + level) / 2
    z = -NormalDist().inv_cdf((1 - level) / 2)
    start = z if np.isinf(moments.freedom) else float(scipy.special.stdtrit(moments.freedom, probability))
    # No law needs more than Chebyshev's bound; draws that are nearly always 0 have a huge kurtosis.
    most = 1 / math.sqrt(1 - level)
    # Below z = √3 the correction is negative; where draws are nearly always 0, more so than the quantile is positive.
    half = np.clip(start + moments.kurtosis * ((z**3 - 3 * z) / 24), 0.0, most) * np.sqrt(moments.variance)
    down, up = half.copy(), half.copy()
    if moments.draws is None:
        return down, up
    whole = np.flatnonzero(moments.draws > 0)
    held = np.maximum(np.rint(2 * half[whole]), 1.0)
    draws = moments.draws[whole]
    few = draws * law.variance() <= _MOST_EXACT**2
    numbers, place = np.unique(draws[few], return_inverse=True)
    held[few] = np.array([_count_integers(law, int(n), level) for n in numbers])[place] if len(numbers) else 0
    down[whole] = (held - 1) // 2 + 0.5
    up[whole] = held // 2 + 0.5
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
    held = np.cumsum(pmf[order])
    return int(np.argmin(np.abs(held - level))) + 1


def check_level(level: float) -> None:
    """Raise InputError unless the level of an interval lies between 0 and 1."""
    if not is_number(level) or not 0 < level < 1:
        hint = " (a percentage?)" if is_number(level) and 1 < level <= 100 else ""
        raise InputError(f"level is {level!r}: it must lie between 0 and 1, such as 0.95{hint}")
