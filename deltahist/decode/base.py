"""Decoder: least squares from noisy answers to cells, and the exact error of every query.

Notation: A the strategy, Σ the diagonal noise covariance, V = (AᵀΣ⁻¹A)⁺ the covariance of the cells,
a(q) = Σ⁻¹ A V q the coefficients with which the released values enter the answer to q, so that the answer
is a(q)·y and its variance a(q)ᵀ Σ a(q). Where the total n is public the estimate is moved onto it along V1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from deltahist.decode.features import Feature
from deltahist.decode.metric import Metric, simulated_metric
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy
from deltahist.workloads import AllRanges, Boxes, Span

#: Sum over terms of coefficient · product over axes of feature(interval).
Terms = Sequence[tuple[float, tuple[Feature, ...]]]

#: Queries are solved one by one up to this number; more of them are priced by simulated noise.
MOST_SOLVED = 200
#: All ranges are thinned out to this many where their mean has no closed form.
_SAMPLE = 2000
#: Squared share of a vector, per cell, below which it is rounding.
_UNSEEN = 1e-9
#: Variances whose square a float still holds; below, noise is too rare for its kurtosis to matter.
LEAST_SQUARED = 1e-140
#: Which decoder solves for which class of strategies.
_DECODERS: dict[type[Strategy], type[Decoder]] = {}
_Kind = TypeVar("_Kind", bound="type[Decoder]")
#: Simulated noise fields; their number sets Student's quantile of the interval.
REPLICATES = 100


@dataclass(frozen=True)
class Moments:
    """Error of each query: variance (m,), excess kurtosis (m,), and how the variance is known.

    `freedom` is infinite where the variance is exact or a bound, else the number of simulated noise fields.
    `unresolved` (m,) is the share of the query's squared norm that the strategy does not determine, or None.
    `draws` (m,) is the number of noise draws whose plain sum the answer's noise is, 0 where it is no such sum.
    """

    variance: NDArray[np.float64]
    kurtosis: NDArray[np.float64]
    freedom: float = np.inf
    unresolved: NDArray[np.float64] | None = None
    draws: NDArray[np.float64] | None = None
    note: str = "exact"


class Decoder:
    """Least squares for one strategy and its noise; subclasses give `solve` and `adjoint`.

    Parameters
    ----------
    strategy : A (k, N).
    laws : one noise law per group.
    total_known : whether the number of entities is public, so that estimates add up to it.
    """

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        self.strategy, self.laws, self.total_known = strategy, tuple(laws), total_known
        self.domain = strategy.domain

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """V AᵀΣ⁻¹ y (N,), without the total."""
        raise NotImplementedError

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ⁻¹ A V q (k,), the adjoint of `solve`."""
        raise NotImplementedError

    def terms(self, order: int) -> Terms | None:
        """Closed form over boxes of the variance (order 2) or fourth cumulant (order 4), total included."""
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
            out[group.rows] = figure
        return out

    @functools.cached_property
    def _total(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """a(1) (k,), the direction in which estimates move onto the total (N,), and its sum.

        The direction is V1 where the rows determine the total. Where they do not, what the total adds belongs
        to what was not measured: the direction is the part of 1 that no row sees.
        """
        ones = self.adjoint(np.ones(self.domain.size))
        unseen = np.zeros(0)
        if not self.strategy.determines_cells:
            unseen = 1 - np.asarray(self.strategy.rmatvec(ones))
        if unseen @ unseen > _UNSEEN * self.domain.size:
            return ones, unseen, float(unseen.sum())
        direction = self.solve(self.strategy.scatter(self.draw_variance * self.strategy.gather(ones)))
        return ones, direction, float(direction.sum())

    def estimate(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Least-squares estimates of all cells (domain.shape)."""
        cells = self.solve(np.asarray(values, dtype=np.float64))
        if self.total_known and total is not None:
            _, direction, spread = self._total
            if spread > 0:
                cells = cells + direction * ((total - cells.sum()) / spread)
        return cells.reshape(self.domain.shape)

    def field(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Estimates on the grid of `metric`, which holds the domain; here they are the same."""
        return self.estimate(values, total)

    def metric(self) -> Metric:
        """The metric of the estimates' noise, from simulated noise, which anybody may draw.

        Simulated spectra are smoothed over neighbouring frequencies. An error in them makes the non-negative estimate
        a little less sharp, not wrong.
        """
        rng = np.random.default_rng(20140605)
        spread = np.sqrt(self.draw_variance)

        def field() -> NDArray[np.float64]:
            noise = self.strategy.scatter(rng.normal(size=len(spread)) * spread)
            return self.estimate(noise, 0 if self.total_known else None)

        return simulated_metric(field, self.domain.shape, total_known=self.total_known)

    def coefficients(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """a(q) (k,): how the released values enter the answer to q (N,), beside the public total."""
        own = self.adjoint(query)
        if self.total_known:
            ones, direction, spread = self._total
            if spread > 0:
                own = own - ones * (float(query @ direction) / spread)
        return own

    def moments(self, work: Boxes | AllRanges | scipy.sparse.csr_array) -> Moments:
        """Variance and kurtosis of the answers to boxes, or to explicit queries (m, N)."""
        if isinstance(work, scipy.sparse.sparray):
            return self._solve_each(work)
        second = self.terms(2)
        if second is not None:
            spans = work.spans(self.domain)
            variance = np.maximum(evaluate(second, spans), 0.0)
            variance[variance < self._speck] = 0.0
            return Moments(
                variance, self.kurtosis(spans, variance), draws=self.draws(spans, variance), note=self.note
            )
        if len(work) <= MOST_SOLVED:
            return self._solve_each(work.matrix(self.domain))
        return self._simulate(work.spans(self.domain))

    def kurtosis(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Excess kurtosis of the answers to boxes, from the closed form of the fourth cumulant; else 0."""
        out = np.zeros(len(variance))
        fourth = self.terms(4)
        if fourth is not None:
            some = variance > LEAST_SQUARED
            most = max(law.kurtosis() for law in self.laws)
            out[some] = np.clip(
                evaluate(fourth, spans)[some] / variance[some] ** 2, min(most, 0.0), max(most, 0.0)
            )
        return out

    def draws(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Number of noise draws whose plain sum the noise of each answer is; None if it never is."""
        return None

    @property
    def _speck(self) -> float:
        """What rounding leaves where an answer is exact, such as the whole domain with a public total."""
        return 1e-12 * max(law.variance() for law in self.laws)

    #: How the closed form relates to the truth, for people.
    note = "exact"

    def mean_variance(self, work: AllRanges) -> float:
        """Mean variance over all ranges; in closed form where there is one, else over a sample."""
        second = self.terms(2)
        if second is None:
            if len(work) <= MOST_SOLVED:
                return float(self._solve_each(work.matrix(self.domain)).variance.mean())
            return float(self._simulate(work.sample(_SAMPLE).spans(self.domain)).variance.mean())
        # Intervals on the two axes are independent: the mean of a product is the product of means.
        return sum(
            weight * math.prod(f.mean(n) for f, n in zip(features, self.domain.shape, strict=True))
            for weight, features in second
        )

    def _solve_each(self, queries: scipy.sparse.csr_array) -> Moments:
        variance, kurtosis, unresolved = (np.zeros(queries.shape[0]) for _ in range(3))
        for i in range(queries.shape[0]):
            query = queries[[i]].toarray()[0]
            weight = self.coefficients(query)
            noise = self.strategy.gather(weight)
            part = noise * noise * self.draw_variance
            variance[i] = part.sum()
            if variance[i] < self._speck:
                variance[i] = 0.0
            elif variance[i] > LEAST_SQUARED:
                kurtosis[i] = (part * part * self.draw_kurtosis).sum() / variance[i] ** 2
            if not self.strategy.determines_cells:
                # aᵀA is what is measured of q; a public total adds its own share.
                missing = query - np.asarray(self.strategy.rmatvec(weight))
                if self.total_known:
                    _, direction, spread = self._total
                    missing = missing - (query @ direction) / spread if spread > 0 else missing
                unresolved[i] = float(missing @ missing) / float(query @ query)
        unresolved[unresolved < 1e-9] = 0.0
        return Moments(variance, kurtosis, unresolved=None if self.strategy.determines_cells else unresolved)

    def _simulate(self, spans: Sequence[Span]) -> Moments:
        """Variance from simulated noise: it needs public figures only, so anybody may draw it."""
        rng = np.random.default_rng(20140604)
        spread = np.sqrt(self.draw_variance)
        total = np.zeros(len(spans[0][0]))
        for _ in range(REPLICATES):
            noise = self.strategy.scatter(rng.normal(size=len(spread)) * spread)
            cells = self.estimate(noise, 0 if self.total_known else None)
            total += box_sums(cells, spans) ** 2
        variance = total / REPLICATES
        return Moments(
            variance,
            np.zeros(len(variance)),
            freedom=REPLICATES,
            note=f"from {REPLICATES} simulated noise fields",
        )


def decodes(*strategies: type[Strategy]) -> Callable[[_Kind], _Kind]:
    """A class decorator: the decoder solves for these classes of strategies, and those derived from them.

    >>> from deltahist.strategies import Identity
    >>> class Mine(Identity):
    ...     pass
    >>> @decodes(Mine)
    ... class MineDecoder(Decoder):
    ...     def solve(self, values): return values
    ...     def adjoint(self, query): return query
    """

    def note(decoder: _Kind) -> _Kind:
        _DECODERS.update(dict.fromkeys(strategies, decoder))
        return decoder

    return note


def decoder_of(strategy: Strategy) -> type[Decoder] | None:
    """The decoder that was made for a strategy's class, or for the nearest one that it derives from."""
    return next((_DECODERS[cls] for cls in type(strategy).__mro__ if cls in _DECODERS), None)


def evaluate(terms: Terms, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Values of a closed form at boxes."""
    known: dict[tuple[int, Feature], NDArray[np.float64]] = {}
    out = np.zeros(len(spans[0][0]))
    for weight, features in terms:
        product = np.full(len(out), weight)
        for axis, (feature, span) in enumerate(zip(features, spans, strict=True)):
            if (axis, feature) not in known:
                known[axis, feature] = feature(*span)
            product *= known[axis, feature]
        out += product
    return out


def aligned_spans(spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Which boxes (m,) consist of whole cells."""
    out = np.ones(len(spans[0][0]), dtype=bool)
    for span in spans:
        for edge in span:
            out &= edge == np.floor(edge)
    return out


def prefix_sums(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums from the low corner up to every cell edge; shape grows by one along each axis."""
    out = np.zeros([n + 1 for n in cells.shape])
    inner = out[tuple(slice(1, None) for _ in cells.shape)]
    np.cumsum(cells, axis=0, out=inner)
    for axis in range(1, cells.ndim):
        np.cumsum(inner, axis=axis, out=inner)
    return out


def box_sums(cells: NDArray[np.float64], spans: Sequence[Span]) -> NDArray[np.float64]:
    """Sums of cells over boxes; a cut cell counts by its share."""
    return sums_between(prefix_sums(cells), spans)


def sums_between(total: NDArray[np.float64], spans: Sequence[Span]) -> NDArray[np.float64]:
    """Sums over boxes from prefix sums, which are interpolated linearly where a box cuts cells."""
    flat = total.ravel()
    aligned = bool(aligned_spans(spans).all())
    if len(spans) == 1:
        low, high = spans[0]
        return _at(flat, high, len(total)) - _at(flat, low, len(total))
    (west, east), (south, north) = spans
    if aligned:
        row = total.shape[1]
        w, e, s, n = (c.astype(np.int64) for c in (west, east, south, north))
        w *= row
        e *= row
        return flat[e + n] - flat[w + n] - flat[e + s] + flat[w + s]
    return (
        _at_corner(total, east, north)
        - _at_corner(total, west, north)
        - _at_corner(total, east, south)
        + _at_corner(total, west, south)
    )


def _at(flat: NDArray[np.float64], place: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    below = np.minimum(place.astype(np.int64), length - 2)
    share = place - below
    return flat[below] * (1 - share) + flat[below + 1] * share


def _at_corner(
    total: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    row = total.shape[1]
    i = np.minimum(x.astype(np.int64), total.shape[0] - 2)
    j = np.minimum(y.astype(np.int64), row - 2)
    f, g = x - i, y - j
    at = i * row + j
    flat = total.ravel()
    low = flat[at] * (1 - g) + flat[at + 1] * g
    high = flat[at + row] * (1 - g) + flat[at + row + 1] * g
    return low * (1 - f) + high * f
